//! Reports all pods to clouds up to KubeEdge 1.10 each minute (wire spec section 6.3).
//!
//! Such a cloud acts on a status only when it receives one: it deletes a pod that is reported as
//! ended, and answers when it does not have a pod. If that failed in the cloud, only another report
//! makes it try again. Later clouds compare by themselves and need no second report.
//!
//! If we crash here: the next process reports all pods at once, and again a minute later.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{self, ReportInputs};
use super::requests::CloudContext;
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::time::Instant;
use crate::limits::METASYNC_PODS_MAX;
use crate::model::status::PodStatus;
use crate::model::upstream::{PodName, Up};

/// When the next report is due.
#[derive(Debug, Default)]
pub(super) struct Metasync {
    /// `None`: the cloud is not known to be so old.
    at: Option<Instant>,
    /// Namespaces that are still to be reported.
    open: BTreeSet<Box<str>>,
}

impl Metasync {
    /// A new session: all pods are reported in it at once, one by one.
    pub(super) fn up(&mut self) {
        *self = Self::default();
    }

    /// Reports all pods when it is due.
    pub(super) fn step(
        &mut self,
        pods: &Pods,
        inputs: ReportInputs<'_>,
        interval_ms: u64,
        context: &mut CloudContext<'_>,
    ) {
        if !inputs.is_legacy {
            return self.up();
        }
        let now = context.now.boot;
        let at = *self.at.get_or_insert(now.plus_ms(interval_ms));
        if at > now && self.open.is_empty() {
            return;
        }
        let is_reportable = |pod: &&Pod| {
            pod.origin() == Origin::Cloud
                && *pod.wanted() == Wanted::Yes
                && pod.is_inspected()
                && inputs.terminal_statuses.is_stored(inputs.meta, pod)
        };
        let mut all: BTreeMap<&str, Vec<(PodName, PodStatus)>> = BTreeMap::new();
        for pod in pods.iter().filter(is_reportable) {
            let api = pod.api();
            let metadata = &api.metadata;
            let status = (report::pod_name(pod, pod.uid()), api.status.clone());
            all.entry(&metadata.namespace).or_default().push(status);
        }
        if at <= now {
            self.at = Some(now.plus_ms(interval_ms));
            self.open = all.keys().map(|namespace| (*namespace).into()).collect();
        }
        while let Some(namespace) = self.open.first().cloned().filter(|_| context.may_send()) {
            self.open.remove(&namespace);
            let statuses = all.remove(&*namespace).unwrap_or_default();
            for some in statuses.chunks(METASYNC_PODS_MAX) {
                let pods = some.to_vec();
                context.send(Up::LegacyPodStatuses { namespace: namespace.clone(), pods });
            }
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.open.is_empty() { self.at } else { Some(Instant(0)) }
    }
}
