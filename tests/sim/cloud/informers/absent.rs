//! Without MetaServer there is nothing to watch.

use edged::agent::Config;
use serde_json::{Value, json};

use super::CloudSim;
use super::api::Change;
use crate::faults::Class;

pub struct InformerSim;

/// There is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerDue {}

pub fn draw(_: Class, _: u64, _: &mut Config, _: bool) -> Option<Box<InformerSim>> {
    None
}

#[expect(clippy::unused_self, reason = "as where there are informers")]
impl CloudSim {
    pub(super) fn informers_begin(&mut self) {}

    pub(super) fn informers_change(&mut self, _: &Change) {}

    pub(super) fn informers_restart_cloud(&mut self) {}

    pub(super) fn informers_begin_life(&mut self) {}

    pub(super) fn informers_connected(&mut self) {}

    pub(super) fn informers_calm(&mut self) {}

    pub(super) fn is_informer_fault(_: super::Due) -> bool {
        false
    }

    pub(super) fn informer_due(&mut self, _: u64, due: InformerDue) {
        match due {}
    }

    pub(super) fn informers_application(&mut self, _: u64, _: &Value) -> Option<Value> {
        None
    }

    pub(super) fn informers_watches(&mut self, _: &Value) -> Value {
        json!({})
    }

    pub(super) fn informers_unsettled(&self) -> Option<String> {
        None
    }
}
