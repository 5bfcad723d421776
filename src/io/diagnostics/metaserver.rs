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
}

/// `None`: it is switched off.
pub(super) fn read(config: &Config) -> Option<MetaServerFacts> {
    let settings = config.metaserver.settings()?.clone();
    let answers = reach(&settings.server.to_string());
    Some(MetaServerFacts { has_cloud: config.cloud.is_configured(), answers, settings })
}
