//! The labels that every node has (spec section 9.1).
//!
//! They are sent with the registration. On a node that another component created, the labels that
//! describe the machine are added, as the kubelet does, once a session. No other label is changed,
//! above all not the roles, by which the cloud decides whether it serves the node.

use std::collections::BTreeMap;

use super::NodeInputs;
use crate::model::node_status::RemoteNode;

/// What the cloud has of the labels.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// The labels that are missing in the cloud, or have a value that does not fit the machine;
    /// `None`: not known.
    remote: Option<BTreeMap<&'static str, Box<str>>>,
    /// There is nothing to report, as far as known.
    is_settled: bool,
    is_reported: bool,
}

const ARCH: [&str; 2] = ["beta.kubernetes.io/arch", "kubernetes.io/arch"];
const OS: [&str; 2] = ["beta.kubernetes.io/os", "kubernetes.io/os"];
const NAME: &str = "kubernetes.io/hostname";

/// The labels that describe the machine.
pub(super) fn machine_labels<'a>(inputs: &NodeInputs<'a>) -> BTreeMap<&'static str, &'a str> {
    let architecture = &*inputs.config.machine.identity.architecture;
    let arch = ARCH.map(|key| (key, architecture));
    let os = OS.map(|key| (key, "linux"));
    arch.into_iter().chain(os).chain([(NAME, inputs.config.node_name.as_str())]).collect()
}

impl Labels {
    /// A new session.
    pub(super) fn up(&mut self) {
        *self = Self::default();
    }

    /// The cloud sent the node.
    pub(super) fn learn(&mut self, node: &RemoteNode) {
        let keys = ARCH.iter().chain(&OS).chain([&NAME]);
        let remote = keys.filter_map(|key| Some((*key, node.labels.get(*key)?.clone())));
        self.remote = Some(remote.collect());
        self.is_settled = self.is_reported;
    }

    /// The labels to report; `None`: the cloud has them all, or they were reported.
    pub(super) fn missing<'a>(
        &mut self,
        inputs: &NodeInputs<'a>,
    ) -> Option<BTreeMap<&'static str, &'a str>> {
        let remote = self.remote.as_ref().filter(|_| !self.is_settled)?;
        let mut missing = machine_labels(inputs);
        missing.retain(|key, value| remote.get(key).is_none_or(|remote| **remote != **value));
        self.is_settled = missing.is_empty();
        (!self.is_settled).then_some(missing)
    }

    /// The labels were reported.
    pub(super) fn mark_reported(&mut self) {
        (self.is_reported, self.is_settled) = (true, true);
    }
}
