//! Without MetaServer no pod is held.

use std::collections::{BTreeMap, BTreeSet};

use super::{CloudSim, Config};
use crate::turns::Turns;
use crate::world::World;

pub struct Releases;

pub struct Marks;

impl Marks {
    #[expect(clippy::unused_self, reason = "as where pods are held")]
    pub fn give(&mut self, _: &mut BTreeMap<String, String>) {}
}

pub fn draw(_: u64, _: &mut Config) -> Option<(Releases, Marks)> {
    None
}

#[expect(clippy::unused_self, reason = "as where pods are held")]
impl CloudSim {
    pub(super) fn held(&self) -> BTreeSet<Box<str>> {
        BTreeSet::new()
    }

    pub(super) fn releases_begin_life(&mut self) {}

    pub(super) fn releases_calm(&mut self) {}

    pub(super) fn release(&mut self, _: u64, _: &Turns) {}
}

#[expect(clippy::unused_self, reason = "as where pods are held")]
impl World {
    pub(super) fn releases_unsettled(&self) -> Option<String> {
        None
    }
}
