//! What MetaServer needs: a cloud, and its port.

use crate::config::Config;
use crate::io::cloud::reach;
use crate::model::error::System;
use crate::model::metaserver::MetaServerSettings;

#[derive(Clone, Debug)]
pub struct MetaServerFacts {
    pub settings: MetaServerSettings,
    pub has_cloud: bool,
    /// Whether somebody accepts a TCP connection there.
    pub answers: Result<(), System>,
    /// The same at the address of pods; only with `requireAuthorization`.
    pub for_pods: Result<(), System>,
    /// The files of keys that cannot be read, and why.
    pub keys: Vec<String>,
}

/// `None`: it is switched off.
pub(super) fn read(config: &Config) -> Option<MetaServerFacts> {
    let settings = config.metaserver.settings()?.clone();
    let answers = reach(&settings.server.to_string());
    let (mut for_pods, mut keys) = (Ok(()), Vec::new());
    if let Some(authorization) = settings.authorization() {
        for_pods = reach(&authorization.dummy.to_string());
        keys = crate::io::metaserver::trouble_of_keys(authorization);
    }
    let has_cloud = config.cloud.is_configured();
    Some(MetaServerFacts { settings, has_cloud, answers, for_pods, keys })
}
