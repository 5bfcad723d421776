//! What joins the machine to its cloud.

use std::path::Path;

use crate::config::Config;
use crate::io::{clock, cloud, disk};

/// The store, and the way to the cloud.
#[derive(Clone, Debug)]
pub struct CloudFacts {
    /// What is kept of the cloud's.
    pub store: disk::Inspection,
    /// The certificate, and whether the cloud is within reach.
    pub link: cloud::Inspection,
    /// Seconds since 1970; `None`: the clock is not to be believed.
    pub now_s: Option<i64>,
}

/// `None`: no cloud is configured.
pub(super) fn look(config: &Config) -> Option<CloudFacts> {
    config.cloud.is_configured().then(|| CloudFacts {
        store: disk::inspect(Path::new(&config.cloud.store)),
        link: cloud::inspect(&config.link()),
        now_s: clock::now().wall.map(|wall| wall.0 / 1_000),
    })
}
