//! The node's connection to its cloud.

use std::path::Path;

use crate::config::Config;
use crate::io::{clock, cloud, disk};

#[derive(Clone, Debug)]
pub struct CloudFacts {
    /// The objects of the cloud on this disk.
    pub store: disk::Inspection,
    /// The certificate, and whether the cloud can be reached.
    pub link: cloud::Inspection,
    /// The same of the stream tunnel; `None`: it is switched off.
    pub tunnel: Option<cloud::Inspection>,
    /// Seconds since 1970; `None`: the clock is not set.
    pub now_s: Option<i64>,
}

/// `None`: no cloud is configured.
pub(super) fn read(config: &Config) -> Option<CloudFacts> {
    config.cloud.is_configured().then(|| CloudFacts {
        store: disk::inspect(Path::new(&config.cloud.store)),
        link: cloud::inspect(&config.link()),
        #[cfg(feature = "streams")]
        tunnel: config.tunnel_link().map(|link| cloud::inspect(&link)),
        #[cfg(not(feature = "streams"))]
        tunnel: None,
        now_s: clock::now().wall.map(|wall| wall.0 / 1_000),
    })
}
