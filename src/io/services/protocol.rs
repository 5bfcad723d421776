//! What the agent and the process that serves Services tell each other: postcard, one message each.
//!
//! The process greets first, in plain text, so that an agent of another version understands whether
//! it understands the rest. Then it gets all Services, between [`Order::Begin`] and [`Order::End`],
//! and what changes after that. It keeps those of before until the end, so that a restart of the
//! agent, or one that is cut off in between, changes nothing.

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::service::ServiceEntry;

/// What the agent tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    Settings(Settings),
    /// All Services follow.
    Begin,
    /// A Service is new or has changed.
    Put(Arc<ServiceEntry>),
    Remove {
        namespace: Box<str>,
        name: Box<str>,
    },
    /// Those since [`Order::Begin`] are all.
    End,
    /// Another process takes over: listen to nothing more, and exit after the last connection.
    Leave,
    /// Services are switched off: exit, and leave no link.
    Stop,
}

/// How Services are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The zone; empty: none.
    pub domain: String,
    /// Where DNS is answered.
    pub address: Ipv4Addr,
    /// Name servers for all other names; empty: those of `resolv_conf`.
    pub upstream: Vec<String>,
    /// The host's, an absolute path; empty: there is none.
    pub resolv_conf: String,
    /// The path of the cgroup of all pods; empty: they have none in common.
    pub pods_cgroup: String,
}

/// The greeting. Its number changes with any of the types above.
pub fn greeting() -> String {
    format!("edged-services 2 {}", env!("CARGO_PKG_VERSION"))
}
