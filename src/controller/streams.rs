//! Stream tunnels: which node may open one, which one is in force, and which one a request of a
//! person takes.
//!
//! A node has one tunnel; a newer one replaces the older. The node is that of the certificate:
//! with the tunnel go logs, and what people type into containers. Not here: the bytes.
//!
//! If we crash: the nodes dial again, and the requests under way end.

use std::collections::BTreeMap;

use super::event::{Action, Peer, Refusal, Severity, Tunnel};
use super::key::Key;
use super::node::Node;
use super::session::SessionOwner;
use super::time::Now;
use super::{Controller, join};
use crate::limits::{EDGE_REPLACED_MS, EDGE_REPLACED_WARN, STREAM_NODES_SEEN_MAX};
use crate::model::api::Kind;
use crate::model::stream::{self, RefusalKind};
use crate::model::time::Timestamp;

/// The tunnels, and when nodes were last heard.
#[derive(Default)]
pub(super) struct Streams {
    open: BTreeMap<Tunnel, Open>,
    by_node: BTreeMap<Box<str>, Tunnel>,
    /// When the last tunnel or session of a node ended.
    seen: BTreeMap<Box<str>, Timestamp>,
}

struct Open {
    node: Box<str>,
    owner: SessionOwner,
}

impl Streams {
    /// A tunnel or a session of this node has ended.
    pub(super) fn node_seen(&mut self, node: &str, now: Now) {
        let Some(at) = now.timestamp() else { return };
        if self.seen.len() >= STREAM_NODES_SEEN_MAX && !self.seen.contains_key(node) {
            let oldest = self.seen.iter().min_by_key(|(_, at)| at.0).map(|(node, _)| node.clone());
            if let Some(oldest) = oldest {
                self.seen.remove(&oldest);
            }
        }
        self.seen.insert(node.into(), at);
    }

    fn remove(&mut self, tunnel: Tunnel) -> Option<Open> {
        let open = self.open.remove(&tunnel)?;
        if self.by_node.get(&open.node) == Some(&tunnel) {
            self.by_node.remove(&open.node);
        }
        Some(open)
    }

    /// Whether this node has a tunnel.
    pub(super) fn has(&self, node: &str) -> bool {
        self.by_node.contains_key(node)
    }

    /// The nodes that have one.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(|node| &**node)
    }

    fn of(&self, node: &str) -> Option<(Tunnel, &SessionOwner)> {
        let tunnel = *self.by_node.get(node)?;
        Some((tunnel, &self.open.get(&tunnel)?.owner))
    }
}

impl Controller {
    /// A node requests a tunnel.
    pub(super) fn tunnel_up(&mut self, now: Now, tunnel: Tunnel, peer: &Peer) {
        let node = match self.may_open(now, peer) {
            Ok(node) => node,
            Err((status, why)) => {
                self.counters.sessions_refused += 1;
                if let Some(repeats) = self.identities.refused_tunnels.pass(now.boot) {
                    let (name, from) = (&peer.common_name, &peer.address);
                    let why: String = why.chars().take(256).collect();
                    let line = format!(
                        "stream tunnel of {name:?} from {from}: refused: {why}; repeats={repeats}"
                    );
                    self.pending.push(Action::Log(Severity::Warn, line));
                }
                self.pending.push(Action::RefuseTunnel(tunnel, Refusal { status, body: why }));
                return;
            }
        };
        let mut owner = SessionOwner::new(peer);
        if let Some((old, old_owner)) = self.streams.of(&node) {
            let count = owner.replaces(old_owner, now.boot);
            if count == EDGE_REPLACED_WARN {
                let line = format!(
                    "node={node}: {count} of its stream tunnels were replaced within {} s, the \
                     last from {} by one from {}: if these are two gateways, they have one \
                     certificate",
                    EDGE_REPLACED_MS / 1_000,
                    old_owner.address,
                    peer.address
                );
                self.pending.push(Action::Log(Severity::Warn, line));
            }
            self.close_tunnel(now, old, "replaced by a newer one");
        }
        let line = format!("node={node}: stream tunnel from {}", peer.address);
        self.pending.push(Action::Log(Severity::Info, line));
        self.pending.push(Action::AcceptTunnel(tunnel, node.clone()));
        self.check_kubelet_port(&node);
        self.streams.by_node.insert(node.clone(), tunnel);
        self.streams.open.insert(tunnel, Open { node, owner });
    }

    /// A tunnel has ended, and not by our [`Action::CloseTunnel`].
    pub(super) fn tunnel_down(&mut self, now: Now, tunnel: Tunnel, why: &str) {
        let Some(open) = self.streams.remove(tunnel) else { return };
        self.streams.node_seen(&open.node, now);
        let line = format!("node={}: stream tunnel ended: {why}", open.node);
        self.pending.push(Action::Log(Severity::Info, line));
    }

    /// Ends the tunnels whose certificates are revoked.
    pub(super) fn end_revoked_tunnels(&mut self, now: Now) {
        let revoked = self.streams.open.iter().filter_map(|(tunnel, open)| {
            Some((*tunnel, self.identities.revoked(&open.node, open.owner.made_s)?))
        });
        for (tunnel, why) in revoked.collect::<Vec<_>>() {
            self.close_tunnel(now, tunnel, &why);
        }
    }

    fn close_tunnel(&mut self, now: Now, tunnel: Tunnel, why: &str) {
        self.tunnel_down(now, tunnel, why);
        self.pending.push(Action::CloseTunnel(tunnel, why.to_owned()));
    }

    /// The node of a tunnel, or why there is none: an HTTP status, and a text for the user.
    fn may_open(&self, now: Now, peer: &Peer) -> Result<Box<str>, (u16, String)> {
        let Some(node) = join::node_of(&peer.common_name, &peer.organization) else {
            let got = format!("O={}, CN={}", peer.organization, peer.common_name);
            return Err((403, format!("got a certificate of {got}, expected a node's")));
        };
        if !peer.node_id.is_empty() && peer.node_id != node {
            let why = format!("got SessionHostNameOverride {:?}, expected {node:?}", peer.node_id);
            return Err((403, format!("{why}: that is whose certificate it is")));
        }
        if !self.is_ready() {
            let why = "not ready: the API server's objects are not listed yet";
            return Err((503, why.to_owned()));
        }
        if let Some(why) = self.identities.revoked(node, peer.made_s) {
            return Err((403, why));
        }
        match self.streams.of(node) {
            Some((_, owner)) if owner.is_contested(now.boot) => {
                let why = "too many stream tunnels of this node have replaced each other";
                Err((503, format!("{why}: do two gateways have its certificate?")))
            }
            None if self.streams.open.len() >= self.config.nodes_max => {
                let count = self.streams.open.len();
                Err((503, format!("{count} nodes have a stream tunnel, which is the limit")))
            }
            Some(_) | None => Ok(node.into()),
        }
    }

    /// The node that a pod is bound to.
    pub fn node_of_pod(&self, namespace: &str, pod: &str) -> Option<&str> {
        let key = Key::new(Kind::Pod, namespace, pod);
        if let Some(facts) = self.cache.object(&key).and_then(|object| object.pod.as_ref()) {
            return Some(&facts.node);
        }
        // Pods of nodes that have never connected are known by name alone.
        self.cache.nodes.values().find(|node| node.bound.contains_key(&key)).map(|node| &*node.name)
    }

    /// The namespaces and names of the pods that are bound to this node.
    pub fn pods_of(&self, node: &str) -> impl Iterator<Item = (&str, &str)> {
        self.bound_to(node, Kind::Pod)
    }

    /// The namespaces and names of the objects of this kind that are bound to this node.
    pub(super) fn bound_to(&self, node: &str, kind: Kind) -> impl Iterator<Item = (&str, &str)> {
        let bound = self.cache.find(node).into_iter().flat_map(|node| node.bound.keys());
        let of_kind = bound.filter(move |key| key.kind == kind);
        of_kind.map(|key| (&*key.namespace, &*key.name))
    }

    /// Whether this node has a session.
    pub fn is_connected(&self, node: &str) -> bool {
        self.cache.find(node).is_some_and(|node| node.link.is_some())
    }

    /// The node of this name, or with this address.
    pub fn node_at<'a>(&'a self, host: &'a str) -> Result<&'a str, stream::Refusal> {
        if self.cache.find(host).is_some_and(Node::is_edge) {
            return Ok(host);
        }
        let nodes = self.cache.nodes_at(host);
        match nodes[..] {
            [node] => Ok(node),
            [] => {
                let text = format!("no node has the name or the address {host:?}");
                Err(stream::Refusal::new(RefusalKind::NotFound, text))
            }
            [first, second, ..] => {
                let text = format!(
                    "nodes {first} and {second} have the address {host}: name one of them, as in \
                     /api/v1/nodes/{first}/proxy/ of the API server"
                );
                Err(stream::Refusal::new(RefusalKind::Unavailable, text))
            }
        }
    }

    /// The tunnel of this node.
    pub fn tunnel_of(&self, node: &str) -> Result<Tunnel, stream::Refusal> {
        if let Some((tunnel, _)) = self.streams.of(node) {
            return Ok(tunnel);
        }
        let known = self.cache.find(node);
        let state =
            match (known.is_some_and(|node| node.link.is_some()), self.streams.seen.get(node)) {
                (true, _) => "it is connected: is modules.edgeStream enabled there?".to_owned(),
                (false, Some(at)) => format!("last seen {at}"),
                (false, None) if known.is_none() => {
                    let text = format!("node {node:?} does not exist");
                    return Err(stream::Refusal::new(RefusalKind::NotFound, text));
                }
                (false, None) => "not seen since this controller started".to_owned(),
            };
        let text = format!("node {node} has no stream tunnel ({state})");
        Err(stream::Refusal::new(RefusalKind::Unavailable, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::{Instant, Wall};

    #[test]
    fn the_node_that_was_seen_first_is_forgotten_first() {
        let mut streams = Streams::default();
        let now = |at: usize| Now { boot: Instant(0), wall: Some(Wall(1_000 * at as i64)) };
        for at in 0..STREAM_NODES_SEEN_MAX {
            streams.node_seen(&at.to_string(), now(at + 1));
        }
        streams.node_seen("0", now(STREAM_NODES_SEEN_MAX + 1));
        assert!(streams.seen.contains_key("1"), "0 was in it");
        streams.node_seen("more", now(STREAM_NODES_SEEN_MAX + 2));
        assert_eq!(streams.seen.len(), STREAM_NODES_SEEN_MAX);
        assert!(!streams.seen.contains_key("1") && streams.seen.contains_key("0"));
    }
}
