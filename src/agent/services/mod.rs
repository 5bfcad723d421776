//! Services by name on this node: which Services there are, and which of their endpoints this node
//! can reach (edgemesh.md, section 14).
//!
//! ```text
//!  manifests, cloud ──→ objects ──┐
//!                                 ├──→ table ──→ Action::Services ──→ the process that serves
//!  pods: labels, address, ready ──┘                                   them (DNS, ClusterIPs)
//! ```
//!
//! Endpoints are the pods of this node, as the agent sees them: no message of the cloud is needed
//! when a pod fails or gets another address. Pods of other nodes are no endpoints: their addresses
//! may be those of pods of this node. What else a Service leads to, its Endpoints object says.
//!
//! Here are also the answers about names ([`names`]) and the choice of an endpoint ([`balance`]),
//! which the process that serves the table calls.
//!
//! **If we crash here** that process goes on with the table that it has. The next start of the
//! agent gives out a table once every pod was inspected, or [`SERVICES_SETTLE_MS`] have passed: a
//! table without endpoints that run would cut them off.

pub mod balance;
pub mod names;
mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::Pods;
use super::event::{Action, Out, Severity};
use super::objects::ObjectsOf;
use super::pod::Pod;
use super::time::{Instant, Now};
use crate::limits::{SERVICES_MAX, SERVICES_SETTLE_MS};
use crate::model::service::{ServiceEntry, ServicesOverview, ServicesReport};
use crate::model::settings::ServiceSettings;

/// All Services with their endpoints, by namespace and name.
pub type Table = Vec<Arc<ServiceEntry>>;

#[derive(Debug)]
pub struct Services {
    settings: ServiceSettings,
    /// The node's name: endpoints with another one are not reached.
    node_name: String,
    table: Table,
    /// The revision of the pods that the table was made of; `None`: make it.
    revision: Option<u64>,
    /// Until then pods may be inspected before the first table.
    settle_by: Option<Instant>,
    /// Services beyond the limit, as last logged.
    left_out: usize,
    report: ServicesReport,
}

impl Services {
    pub fn new(settings: ServiceSettings, node_name: &str, now: Now) -> Self {
        Self {
            settings,
            node_name: node_name.to_owned(),
            table: Vec::new(),
            revision: None,
            settle_by: Some(now.boot.plus_ms(SERVICES_SETTLE_MS)),
            left_out: 0,
            report: ServicesReport::default(),
        }
    }

    /// Services or Endpoints may have changed.
    pub fn objects_changed(&mut self) {
        self.revision = None;
    }

    /// What the process that serves them tells of itself.
    pub fn take_report(&mut self, report: ServicesReport, out: &mut Out) {
        for line in report.trouble.iter().filter(|line| !self.report.trouble.contains(line)) {
            out.push(Action::Log(Severity::Warn, format!("services: {line}")));
        }
        if report.trouble.is_empty() && !self.report.trouble.is_empty() {
            out.push(Action::Log(Severity::Info, "services: all of them are served".to_owned()));
        }
        self.report = report;
    }

    /// Gives out the table if it has changed. `is_whole`: the sources were read, and the pods of
    /// the runtime are known.
    pub fn step(
        &mut self,
        now: Now,
        pods: &Pods,
        is_whole: bool,
        objects: ObjectsOf<'_>,
        out: &mut Out,
    ) {
        let is_first = self.settle_by.is_some();
        if is_first {
            let settled = is_whole && pods.iter().all(Pod::is_fully_observed);
            if !settled && self.settle_by.is_some_and(|by| now.boot < by) {
                return;
            }
        }
        let revision = Some(pods.revision());
        if !is_first && self.revision == revision {
            return;
        }
        self.settle_by = None;
        self.revision = revision;
        let backends = table::backends(pods);
        let (table, left_out) =
            table::of(objects, &backends, &self.settings, &self.node_name, &self.table);
        if left_out > 0 && left_out != self.left_out {
            let all = left_out + SERVICES_MAX;
            let line = format!(
                "got {all} Services, expected {SERVICES_MAX} at most: the last by namespace and \
                 name are not served"
            );
            out.push(Action::Log(Severity::Error, line));
        }
        self.left_out = left_out;
        let is_same = table.len() == self.table.len()
            && table.iter().zip(&self.table).all(|(new, old)| Arc::ptr_eq(new, old));
        if is_first || !is_same {
            self.table.clone_from(&table);
            out.push(Action::Services(table));
        }
    }

    /// When to step again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.settle_by
    }

    pub fn table(&self) -> &[Arc<ServiceEntry>] {
        &self.table
    }

    pub fn overview(&self) -> ServicesOverview {
        ServicesOverview { services: self.table.len(), report: self.report.clone() }
    }
}
