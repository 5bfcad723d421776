//! The labels that every node has (spec section 9.1).
//!
//! They are told with the registration. Of a node that somebody else made, those are added that say
//! which machine it is, as the kubelet does, once a session. No other label is touched: the roles
//! least of all, by which the cloud decides whether it serves the node.

use std::collections::BTreeMap;

use super::remote::RemoteNode;
use super::status::Seen;

/// What the cloud has of them.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// Those that it lacks, or has with another value than a machine's; `None`: not known.
    had: Option<BTreeMap<&'static str, Box<str>>>,
    /// There is nothing to tell, as far as it is known.
    settled: bool,
    told: bool,
}

const ARCH: [&str; 2] = ["beta.kubernetes.io/arch", "kubernetes.io/arch"];
const OS: [&str; 2] = ["beta.kubernetes.io/os", "kubernetes.io/os"];
const NAME: &str = "kubernetes.io/hostname";

/// Those that say which machine it is.
pub(super) fn of<'a>(seen: &Seen<'a>) -> BTreeMap<&'static str, &'a str> {
    let architecture = &*seen.config.machine.identity.architecture;
    let arch = ARCH.map(|key| (key, architecture));
    let os = OS.map(|key| (key, "linux"));
    arch.into_iter().chain(os).chain([(NAME, seen.config.node_name.as_str())]).collect()
}

impl Labels {
    /// The link is new.
    pub(super) fn up(&mut self) {
        *self = Self::default();
    }

    /// The cloud told of the node.
    pub(super) fn learn(&mut self, told: &RemoteNode<'_>) {
        let keys = ARCH.iter().chain(&OS).chain([&NAME]);
        let had = keys.filter_map(|key| Some((*key, told.label(key)?.into())));
        self.had = Some(had.collect());
        self.settled = self.told;
    }

    /// Those that the cloud has to be told; `None`: it has them all, or was told.
    pub(super) fn missing<'a>(
        &mut self,
        seen: &Seen<'a>,
    ) -> Option<BTreeMap<&'static str, &'a str>> {
        let had = self.had.as_ref().filter(|_| !self.settled)?;
        let mut missing = of(seen);
        missing.retain(|key, value| had.get(key).is_none_or(|had| **had != **value));
        self.settled = missing.is_empty();
        (!self.settled).then_some(missing)
    }

    /// The cloud was told.
    pub(super) fn told(&mut self) {
        (self.told, self.settled) = (true, true);
    }
}
