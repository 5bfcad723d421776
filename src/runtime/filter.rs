//! Filters of lists: all that is set must match.

use std::collections::BTreeMap;

use crate::model::runtime::{ContainerFilter, ContainerRecord, SandboxFilter, SandboxRecord};

pub fn sandbox(filter: &SandboxFilter, record: &SandboxRecord) -> bool {
    record.id.0.starts_with(&*filter.id)
        && filter.ready.is_none_or(|ready| ready == record.is_ready())
        && labels(&filter.labels, &record.config.labels)
}

pub fn container(filter: &ContainerFilter, record: &ContainerRecord) -> bool {
    record.id.0.starts_with(&*filter.id)
        && record.sandbox.0.starts_with(&*filter.sandbox)
        && filter.state.is_none_or(|state| state == record.state())
        && labels(&filter.labels, &record.config.labels)
}

fn labels(wanted: &BTreeMap<String, String>, has: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| has.get(name) == Some(value))
}
