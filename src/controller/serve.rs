//! The work of one step: which timers are due, which nodes have something to do, and when the next
//! step is due.

use std::ops::Bound;

use super::calls::OwnPart;
use super::downstream::NodeContext;
use super::event::{Action, Out};
use super::key::NodeId;
use super::time::{Instant, Now};
use super::{Controller, Session};
use crate::limits::{EDGE_OFFENCES_MAX, NODES_PER_STEP, RECONCILE_MS, RECONCILE_SLICE_MS};
use crate::model::api::{Call, CallResult};

impl Controller {
    /// Finds the nodes whose timers are due.
    pub(super) fn due(&mut self, now: Now) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now.boot
        {
            self.timers.remove(&(at, id));
            self.cache.at(id).timer = None;
            self.cache.ready.insert(id);
        }
        if self.reconcile_at <= now.boot && !self.sessions.is_empty() {
            self.reconcile_at = now.boot.plus_ms(RECONCILE_SLICE_MS);
            let slices = (RECONCILE_MS / RECONCILE_SLICE_MS) as usize;
            let some = self.sessions.len().div_ceil(slices);
            let behind = match self.reconciled {
                Some(last) => (Bound::Excluded(last), Bound::Unbounded),
                None => (Bound::Unbounded, Bound::Unbounded),
            };
            // The last is followed by the first, otherwise a round would take one slice more.
            let next = self.sessions.range(behind).chain(&self.sessions).take(some);
            let next: Vec<(Session, NodeId)> = next.map(|(at, id)| (*at, *id)).collect();
            self.reconciled = next.last().map(|(session, _)| *session);
            for (_, id) in next {
                self.cache.check_all(id);
            }
        }
    }

    /// Serves some of the nodes that have something to do.
    pub(super) fn serve(&mut self, now: Now) {
        for id in std::mem::take(&mut self.cache.orphans) {
            let node = self.cache.nodes.get(&id).filter(|node| !node.is_known);
            if let Some(session) = node.and_then(|node| node.link.as_ref()).map(|l| l.session) {
                self.close(id, session, "its Node was deleted");
            }
        }
        let mut context = NodeContext {
            now,
            rng: &mut self.rng,
            counters: &mut self.counters,
            out: &mut self.pending,
        };
        self.calls.fetch(&mut self.cache, &self.watches, &mut context);
        for _ in 0..NODES_PER_STEP {
            let ready = &mut self.cache.ready;
            let behind = ready.range((Bound::Excluded(self.served), Bound::Unbounded)).next();
            let Some(id) = behind.or_else(|| ready.first()).copied() else { break };
            ready.remove(&id);
            self.served = id;
            self.serve_one(now, id);
        }
    }

    /// Runs leader election, and does the leader's work.
    pub(super) fn run_leader_election(&mut self, now: Now) {
        if !self.is_ready() && !self.stopping {
            return;
        }
        let lease = self.leader_election.step(now, &mut self.pending);
        let leads = self.leader_election.leads(now.boot) && !self.stopping;
        let garbage = self.garbage.step(now.boot, leads, &mut self.cache);
        self.call_own(now, OwnPart::LeaderElection, lease);
        self.call_own(now, OwnPart::Garbage, garbage);
    }

    pub(super) fn call_own(&mut self, now: Now, own: OwnPart, call: Option<Call>) {
        let mut context = NodeContext {
            now,
            rng: &mut self.rng,
            counters: &mut self.counters,
            out: &mut self.pending,
        };
        if let Some(call) = call {
            self.calls.call_own(own, Box::new(call), &mut context);
        }
    }

    /// Takes the answer to a call of our own.
    pub(super) fn own_answered(&mut self, now: Now, own: OwnPart, result: CallResult) {
        match own {
            OwnPart::LeaderElection => {
                let next =
                    self.leader_election.answered(now, result, &mut self.rng, &mut self.pending);
                self.call_own(now, OwnPart::LeaderElection, next);
            }
            OwnPart::Garbage => {
                let leads = self.leader_election.leads(now.boot);
                let (cache, counters) = (&mut self.cache, &mut self.counters);
                self.garbage.answered(now.boot, &result, leads, cache, counters);
            }
            OwnPart::TunnelPort => {
                let next = self.tunnel_port.answered(now.boot, result, &mut self.pending);
                self.call_own(now, OwnPart::TunnelPort, next);
            }
            OwnPart::KubeletPort(id) => self.kubelet_port_answered(now, id, &result),
            OwnPart::DeviceStatusKind => self.device_status_kind_answered(now, &result),
            OwnPart::DeviceStatus(id, verb) => {
                self.device_status_answered(now, id, verb, result);
            }
            OwnPart::DeviceOfStatus(id) => self.device_of_status_answered(now, id, &result),
            OwnPart::NodeJob(id) => self.node_job_answered(now, id, result),
            OwnPart::Application(id) => self.application_called(now, id, result),
            OwnPart::Rule(id) => self.rule_answered(now, id, &result),
        }
    }

    /// Writes ObjectSyncs.
    pub(super) fn record(&mut self, now: Now) {
        let mut context = NodeContext {
            now,
            rng: &mut self.rng,
            counters: &mut self.counters,
            out: &mut self.pending,
        };
        self.calls.record(&mut self.cache, &mut context);
    }

    fn serve_one(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.cache.nodes.get(&id) else { return };
        let Some(link) = &node.link else { return };
        let session = link.session;
        if link.silent_at <= now.boot {
            let why = format!("no sign of life for {} ms", self.config.keepalive_ms);
            return self.close(id, session, &why);
        }
        if link.offences >= EDGE_OFFENCES_MAX {
            return self.end_misbehaving(now, id, session);
        }
        let mut context = NodeContext {
            now,
            rng: &mut self.rng,
            counters: &mut self.counters,
            out: &mut self.pending,
        };
        self.calls.serve(&mut self.cache, id, &mut context);
        self.cache.serve(id, &mut context);
        let node = self.cache.at(id);
        let at = node.link.as_ref().expect("it was not ended").wake_at();
        // A timer that fires too early costs less than moving it with each message.
        if node.timer.is_none_or(|timer| at < timer) {
            if let Some(timer) = node.timer.replace(at) {
                self.timers.remove(&(timer, id));
            }
            self.timers.insert((at, id));
        }
    }

    pub(super) fn stop(&mut self, out: &mut Out) {
        for (session, id) in std::mem::take(&mut self.sessions) {
            out.push(Action::Close(session, "the controller stops".to_owned()));
            self.unlink(id);
        }
    }

    /// When to step again if nothing happens before; strictly later than the last step.
    pub fn wake_at(&self) -> Option<Instant> {
        let now = self.now.boot;
        if !self.is_loaded || self.stopping {
            let all = [self.cache.ack_log.wake_at(), self.leader_election.wake_at()];
            return all.into_iter().flatten().min().map(|at| at.max(now.plus_ms(1)));
        }
        let ready = (!self.cache.ready.is_empty()).then_some(now);
        let timer = self.timers.first().map(|(at, _)| *at);
        let reconcile = (!self.sessions.is_empty()).then_some(self.reconcile_at);
        let is_ready = self.is_ready();
        let all = [
            ready,
            timer,
            reconcile,
            self.watches.wake_at(),
            self.calls.wake_at(&self.cache, now),
            self.cache.ack_log.wake_at(),
            self.leader_election.wake_at().filter(|_| is_ready),
            self.garbage.wake_at().filter(|_| is_ready),
            self.tunnel_port.wake_at().filter(|_| is_ready),
            self.kubelet_ports.wake_at().filter(|_| is_ready),
            self.statuses.wake_at().filter(|_| is_ready),
            self.jobs.wake_at().filter(|_| is_ready),
            self.dynamic_wake_at(now),
            self.policy_wake_at(now),
            self.router.wake_at().filter(|_| is_ready),
        ];
        all.into_iter().flatten().min().map(|at| at.max(now.plus_ms(1)))
    }
}
