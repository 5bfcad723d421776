//! The port in the status of each Node that has a stream tunnel here: by it kube-apiserver reaches
//! this replica (edgestream.md, section 6.1).
//!
//! It is written when the tunnel comes up, if it differs, and when the Node turns out to have the
//! port of a kubelet, as after its node has registered again. A port above the kubelet's is that of
//! a replica, and stays while the tunnel does: if both replicas had a tunnel of this node, one of
//! them dead and not yet noticed, they would change it for ever.
//!
//! If we crash here: the nodes dial again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde_json::json;

use super::Controller;
use super::cache::From;
use super::calls::OwnPart;
use super::event::{Action, Severity};
use super::key::{Key, NodeId};
use super::object::Object;
use super::time::{Instant, Now};
use super::tunnel_port::KUBELET_PORT;
use crate::limits::{KUBELET_PORT_CALLS_MAX, KUBELET_PORT_RETRY_MS};
use crate::model::api::{Call, CallError, CallResult, Kind, PatchType, Subresource, Verb};
use crate::model::raw;

/// The Nodes that may need another port.
#[derive(Default)]
pub(super) struct KubeletPorts {
    check: BTreeMap<NodeId, Cause>,
    in_flight: BTreeSet<NodeId>,
    /// The Node that was checked last. Those after it are next: some that are refused again and
    /// again do not keep the others waiting.
    last: Option<NodeId>,
    /// Nothing is written before this time.
    retry_at: Instant,
    /// The port that all tunnels were checked for.
    port: Option<u16>,
    /// The trouble was logged.
    is_trouble_logged: bool,
}

/// Why a Node is checked. The greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The Node has changed.
    Changed,
    /// Its tunnel has come up, or our port has changed.
    Opened,
}

impl KubeletPorts {
    fn add(&mut self, id: NodeId, cause: Cause) {
        let known = self.check.entry(id).or_insert(cause);
        *known = cause.max(*known);
    }

    /// The next Node to check. One whose call is under way waits for its answer.
    fn next(&mut self, now: Instant) -> Option<(NodeId, Cause)> {
        if now < self.retry_at || self.in_flight.len() >= KUBELET_PORT_CALLS_MAX {
            return None;
        }
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let in_turn = self.check.range((after, Bound::Unbounded)).chain(&self.check);
        let id = in_turn.map(|(id, _)| *id).find(|id| !self.in_flight.contains(id))?;
        self.last = Some(id);
        self.check.remove_entry(&id)
    }

    /// When to step again if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let has_room = self.in_flight.len() < KUBELET_PORT_CALLS_MAX && self.port.is_some();
        let is_waiting = has_room && self.check.keys().any(|id| !self.in_flight.contains(id));
        is_waiting.then_some(self.retry_at)
    }
}

impl Controller {
    /// A tunnel of this node is up.
    pub(super) fn check_kubelet_port(&mut self, node: &str) {
        if let Some(id) = self.cache.id_of(node) {
            self.kubelet_ports.add(id, Cause::Opened);
        }
    }

    /// The calls about our port, and about those of Nodes, that are due now.
    pub(super) fn announce_port(&mut self, now: Now) {
        for id in std::mem::take(&mut self.cache.changed_nodes) {
            let node = self.cache.nodes.get(&id);
            if self.tunnel_port.is_used() && node.is_some_and(|node| self.streams.has(&node.name)) {
                self.kubelet_ports.add(id, Cause::Changed);
            }
        }
        if !self.is_ready() || self.stopping {
            return;
        }
        let call = self.tunnel_port.step(now.boot);
        self.call_own(now, OwnPart::TunnelPort, call);
        let Some(port) = self.tunnel_port.port() else { return };
        if self.kubelet_ports.port.replace(port) != Some(port) {
            let open = self.streams.nodes().filter_map(|node| self.cache.id_of(node));
            for id in open.collect::<Vec<_>>() {
                self.kubelet_ports.add(id, Cause::Opened);
            }
        }
        while let Some((id, cause)) = self.kubelet_ports.next(now.boot) {
            if let Some(call) = self.kubelet_port_call(id, cause, port) {
                self.kubelet_ports.in_flight.insert(id);
                self.call_own(now, OwnPart::KubeletPort(id), Some(call));
            }
        }
    }

    /// The call that changes the port of a Node; `None`: it is right.
    fn kubelet_port_call(&self, id: NodeId, cause: Cause, port: u16) -> Option<Call> {
        let node = self.cache.nodes.get(&id)?;
        if !self.streams.has(&node.name) {
            return None;
        }
        let object = self.cache.object(&Key::node(&node.name))?;
        let old = object.node.as_ref().map_or(0, |facts| facts.kubelet_port);
        if old == port || (cause == Cause::Changed && old > KUBELET_PORT) {
            return None;
        }
        let status = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
        Some(Call {
            verb: Verb::Patch(PatchType::Merge),
            kind: Kind::Node,
            namespace: "".into(),
            name: (&*node.name).into(),
            subresource: Some(Subresource::Status),
            body: Some(raw::json(&json!({"status": status}))),
        })
    }

    /// The API server has answered such a call.
    pub(super) fn kubelet_port_answered(&mut self, now: Now, id: NodeId, result: &CallResult) {
        self.kubelet_ports.in_flight.remove(&id);
        let ports = &mut self.kubelet_ports;
        let why = match result {
            Ok(raw) => {
                ports.is_trouble_logged = false;
                if let Ok(read) = Object::read(Kind::Node, raw) {
                    let known = self.watches.known_version(Kind::Node);
                    self.cache.put(now.boot, read, From::Call(known));
                }
                return;
            }
            // The watch brings its deletion.
            Err(CallError::Refused { code: 404, .. }) => return,
            Err(CallError::Refused { code, status }) => format!("{code}: {status}"),
            Err(CallError::Lost(why)) => why.clone(),
        };
        // The Node may have the port of another replica, so its next change does not bring it here.
        ports.add(id, Cause::Opened);
        ports.retry_at = now.boot.plus_ms(KUBELET_PORT_RETRY_MS);
        if !std::mem::replace(&mut ports.is_trouble_logged, true) {
            let node = self.cache.nodes.get(&id).map_or("", |node| &*node.name);
            let line = format!("node={node}: its port for kube-apiserver cannot be set: {why}");
            self.pending.push(Action::Log(Severity::Warn, line));
        }
    }
}
