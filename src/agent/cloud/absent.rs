//! Replaces the cloud side in builds without it: the manifest folder is the only source of pods.

use std::collections::BTreeSet;

use crate::agent::calls::Uid;
use crate::agent::event::Out;
use crate::agent::pods::Knowledge;
use crate::agent::time::{Instant, Now};
use crate::agent::{Agent, Config};
use crate::model::pod::Pod;
use crate::model::view::CloudOverview;

/// Never created.
#[derive(Debug)]
pub(super) enum Cloud {}

impl Cloud {
    pub(super) fn knowledge(&self) -> Knowledge {
        match *self {}
    }

    pub(super) fn tombstones(&self) -> &BTreeSet<Uid> {
        match *self {}
    }

    pub(super) fn all_pods_known(&mut self) {
        match *self {}
    }

    pub(super) fn pods(&self) -> std::iter::Empty<&Pod> {
        match *self {}
    }

    pub(super) fn held(&self) -> BTreeSet<&str> {
        match *self {}
    }
}

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl Agent {
    pub(super) fn cloud(_: &Config, _: Now) -> Option<Box<Cloud>> {
        None
    }

    pub(super) fn with_cloud_clock(&self, now: Now) -> Now {
        now
    }

    pub(super) fn step_cloud(&mut self, _: Now, _: &mut Out) {}

    pub(super) fn save_before_exit(&mut self, _: Now, _: &mut Out) -> bool {
        true
    }

    pub(super) fn save_before_exit_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn cloud_overview(&self, _: Now) -> Option<CloudOverview> {
        None
    }

    pub(super) fn cloud_wake_at(&self) -> Option<Instant> {
        None
    }
}
