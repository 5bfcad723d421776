//! Generates uids. Mostly they are random; those of the first objects of a new store are derived
//! from the manifests, so that a controller that lost its store gives the running pods of its nodes
//! the same uids, and they keep running.
//!
//! A uid is derived once for each object: an object that was deleted and created again is another
//! object, and a node never accepts a deleted uid again.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

use super::{Key, Print};
use crate::controller::time::Rng;

/// The generator.
#[derive(Debug)]
pub(super) struct Uids {
    rng: Rng,
    /// The keys whose uids were derived; `None`: uids are not derived any more.
    derived: Option<BTreeSet<Key>>,
}

impl Uids {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, derived: None }
    }

    /// From now on uids are derived.
    pub(super) fn derive(&mut self) {
        self.derived = Some(BTreeSet::new());
    }

    /// The first objects are created: from now on uids are random.
    pub(super) fn settle(&mut self) {
        self.derived = None;
    }

    /// The uid of an object from a manifest.
    pub(super) fn of(&mut self, key: &Key, print: Print) -> String {
        let Some(derived) = self.derived.as_mut().filter(|_| key.kind.is_namespaced()) else {
            return self.random();
        };
        if !derived.insert(key.clone()) {
            return self.random();
        }
        let Key { kind, namespace, name } = key;
        let text = format!("{}/{namespace}/{name}/{:016x}", kind.name(), print.fixed);
        let digest = digest(&SHA256, text.as_bytes());
        let half = |from: usize| {
            let bytes = digest.as_ref()[from..from + 8].try_into().expect("eight of 32 bytes");
            u64::from_be_bytes(bytes)
        };
        // RFC 9562, version 8: the bits are free to use.
        uuid(8, half(0), half(8))
    }

    /// RFC 9562, version 4.
    pub(super) fn random(&mut self) -> String {
        let (high, low) = (self.rng.bits(), self.rng.bits());
        uuid(4, high, low)
    }
}

fn uuid(version: u64, high: u64, low: u64) -> String {
    let high = high & !0xf000 | version << 12;
    let low = low & !(3 << 62) | 1 << 63;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
