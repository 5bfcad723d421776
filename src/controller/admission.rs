//! Decides which nodes get a session, and which get a certificate.

use super::event::{Action, Answer, Exchange, HttpRequest, Peer, Refusal, Severity};
use super::identity::{EnrolAgain, Identity, SignedBy};
use super::join::{self, Verdict};
use super::key::NodeId;
use super::session::{Link, SessionOwner};
use super::time::Now;
use super::{Controller, Session};
use crate::limits::{EDGE_REPLACED_MS, EDGE_REPLACED_WARN, SIGNATURES_MAX};
use crate::model::error::Error;

impl Controller {
    /// A node requests a session.
    pub(super) fn edge_up(&mut self, now: Now, session: Session, peer: &Peer) {
        let is_on = self.cache.find(&peer.node_id).is_some_and(|node| node.link.is_some());
        let refusal = self.refusal(now, peer, is_on);
        if let Some((status, why)) = refusal {
            self.counters.sessions_refused += 1;
            if let Some(suppressed) = self.identities.refused_sessions.pass(now.boot) {
                let (node, from) = (&peer.node_id, &peer.address);
                let why: String = why.chars().take(256).collect();
                let line =
                    format!("node={node:?} from {from}: refused: {why}; repeats={suppressed}");
                self.pending.push(Action::Log(Severity::Warn, line));
            }
            self.pending.push(Action::Refuse(session, Refusal { status, body: why }));
            return;
        }
        let id = self.cache.node(&peer.node_id);
        let mut owner = SessionOwner::new(peer);
        if let Some(old) = &mut self.cache.at(id).link {
            let before = old.session;
            let count = owner.replaces(&old.owner, now.boot);
            if count == EDGE_REPLACED_WARN {
                let line = format!(
                    "node={}: {count} of its sessions were replaced within {} s, the last from {} \
                     by one from {}: if these are two gateways, they have one certificate",
                    peer.node_id,
                    EDGE_REPLACED_MS / 1_000,
                    old.owner.address,
                    peer.address
                );
                self.pending.push(Action::Log(Severity::Warn, line));
            }
            self.close(id, before, "replaced by a newer session");
        }
        // The old session may have been all that was left of the node.
        let id = self.cache.node(&peer.node_id);
        let line = format!("node={}: connected from {}", peer.node_id, peer.address);
        self.pending.push(Action::Log(Severity::Info, line));
        self.pending.push(Action::Accept(session));
        if let Some(identity) = self.identities.connected(&peer.node_id, peer.made_s) {
            self.pending.push(Action::KeepIdentity(identity));
        }
        self.sessions.insert(session, id);
        let silent_at = now.boot.plus_ms(self.config.keepalive_ms);
        self.cache.link_up(id, Box::new(Link::new(session, silent_at, owner)));
        self.dynamic_connected(id);
        self.tell_rules_to(id);
    }

    /// Why a session is refused: an HTTP status, and a text for the user.
    fn refusal(&self, now: Now, peer: &Peer, is_on: bool) -> Option<(u16, String)> {
        let node = &*peer.node_id;
        let named = join::node_of(&peer.common_name, &peer.organization);
        if named.is_none_or(|named| named != node) {
            let got = format!("O={}, CN={}", peer.organization, peer.common_name);
            return Some((403, format!("got a certificate of {got} for node {node:?}")));
        }
        if let Some(why) = self.identities.revoked(node, peer.made_s) {
            return Some((403, why));
        }
        if peer.usage != "msg" {
            return Some((400, format!("got ConnectionUse {:?}, expected msg", peer.usage)));
        }
        if !self.is_ready() {
            return Some((
                503,
                "not ready: the API server's objects are not listed yet".to_owned(),
            ));
        }
        if let Some(left_ms) = self.identities.penalty_ms(node, now.boot) {
            let left_s = left_ms.div_ceil(1_000);
            let why = "its last session was ended for what it sent";
            return Some((503, format!("{why}: the next is accepted in {left_s} s")));
        }
        let link = self.cache.find(node).and_then(|node| node.link.as_ref());
        if link.is_some_and(|link| link.owner.is_contested(now.boot)) {
            let why = "too many sessions of this node have replaced each other";
            return Some((503, format!("{why}: do two gateways have its certificate?")));
        }
        if !is_on && self.sessions.len() >= self.config.nodes_max {
            let count = self.sessions.len();
            return Some((503, format!("{count} nodes are connected, which is the limit")));
        }
        None
    }

    /// Ends a session from our side.
    pub(super) fn close(&mut self, id: NodeId, session: Session, why: &str) {
        let line = format!("node={}: session ended: {why}", self.cache.at(id).name);
        self.pending.push(Action::Log(Severity::Info, line));
        self.pending.push(Action::Close(session, why.to_owned()));
        self.sessions.remove(&session);
        self.unlink(id);
    }

    /// Ends a session because of what the node did in it.
    pub(super) fn end_misbehaving(&mut self, now: Now, id: NodeId, session: Session) {
        let name = self.cache.at(id).name.clone();
        self.identities.punish(&name, now.boot);
        self.close(id, session, "it sent too many forbidden or malformed messages");
    }

    pub(super) fn unlink(&mut self, id: NodeId) {
        self.end_requests_of(self.now, id);
        let node = self.cache.at(id);
        node.link = None;
        if let Some(at) = node.timer.take() {
            self.timers.remove(&(at, id));
        }
        self.dynamic_disconnected(self.now.boot, id);
        self.cache.suspect(id);
        self.cache.remove_if_idle(id);
    }

    /// A Node of our own objects was deleted: its certificate is not accepted any more.
    pub(super) fn node_deleted(&mut self, now: Now, node: &str) {
        // Without a clock nothing was signed either.
        let Some(at) = now.timestamp() else { return };
        self.identities.deleted(node, at.0);
        self.end_revoked();
    }

    /// Ends the sessions whose certificates are revoked.
    pub(super) fn end_revoked(&mut self) {
        let revoked = self.sessions.iter().filter_map(|(session, id)| {
            let node = self.cache.nodes.get(id)?;
            let made_s = node.link.as_ref()?.owner.made_s;
            Some((*session, *id, self.identities.revoked(&node.name, made_s)?))
        });
        for (session, id, why) in revoked.collect::<Vec<_>>() {
            self.close(id, session, &why);
        }
        self.end_revoked_tunnels(self.now);
    }

    pub(super) fn http_request(&mut self, now: Now, exchange: Exchange, request: HttpRequest) {
        let now_s = now.timestamp().map(|at| at.0);
        let about = match &request {
            HttpRequest::Certificate { node, address, .. } => (node.clone(), address.clone()),
            HttpRequest::Authority | HttpRequest::Node { .. } => Default::default(),
        };
        let decided =
            self.config.authority.judge(request, now_s).and_then(|verdict| match verdict {
                Verdict::Answer(answer) => Ok(Action::Answer(exchange, answer)),
                Verdict::NodeExists(_) if !self.is_ready() => {
                    Ok(Action::Answer(exchange, text(503, "not ready")))
                }
                Verdict::NodeExists(name) => {
                    let found = self.exists(&name);
                    let (status, why) =
                        if found { (200, "Node found") } else { (404, "Node not found") };
                    Ok(Action::Answer(exchange, text(status, why)))
                }
                Verdict::Sign { node, request, by } => {
                    let identity = self.may_sign(&node, by, now_s)?;
                    Ok(self.sign(exchange, node, request, identity))
                }
            });
        let action = decided.unwrap_or_else(|(status, why)| {
            if let Some(suppressed) = self.identities.refused_certificates.pass(now.boot) {
                let why: String = why.chars().take(256).collect();
                let (node, from) = about;
                let line = format!(
                    "certificate for {node:?} from {from}: refused: {why}; repeats={suppressed}"
                );
                self.pending.push(Action::Log(Severity::Warn, line));
            }
            Action::Answer(exchange, text(status, &why))
        });
        self.pending.push(action);
    }

    fn exists(&self, node: &str) -> bool {
        self.cache.find(node).is_some_and(|node| node.is_known)
    }

    fn may_sign(
        &mut self,
        node: &str,
        by: SignedBy,
        now_s: Option<i64>,
    ) -> Result<Option<Identity>, (u16, String)> {
        if self.signing.len() >= SIGNATURES_MAX {
            return Err((503, "too many certificate requests at once".to_owned()));
        }
        // The denied nodes are known from one list, and the existing nodes from another.
        if !self.is_ready() {
            return Err((503, "not ready: the API server's objects are not listed yet".to_owned()));
        }
        let exists = self.exists(node);
        let is_taken = exists && self.config.enrol_again == EnrolAgain::Refuse;
        let now_s = now_s.ok_or((503, "the server's clock is not set".to_owned()))?;
        let identity = self.identities.may_enrol(node, by, is_taken, now_s)?;
        if exists && !matches!(by, SignedBy::Certificate { .. }) {
            let line = format!("node={node}: exists and gets another certificate with a token");
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        Ok(identity)
    }

    fn sign(
        &mut self,
        exchange: Exchange,
        node: String,
        request: Box<[u8]>,
        identity: Option<Identity>,
    ) -> Action {
        self.signing.insert(exchange);
        let line = format!("node={node}: applies for a certificate");
        self.pending.push(Action::Log(Severity::Info, line));
        if let Some(identity) = identity {
            self.identities.put(identity.clone());
            self.pending.push(Action::KeepIdentity(identity));
            self.end_revoked();
        }
        Action::Sign { exchange, request, node, days: self.config.certificate_days }
    }

    pub(super) fn signed(&mut self, exchange: Exchange, result: Result<Box<[u8]>, Error>) {
        assert!(self.signing.remove(&exchange), "a certificate that nobody applied for");
        let answer = match result {
            Ok(body) => {
                self.counters.certificates += 1;
                Answer { status: 200, body }
            }
            Err(error) => text(500, &error.to_string()),
        };
        self.pending.push(Action::Answer(exchange, answer));
    }
}

fn text(status: u16, why: &str) -> Answer {
    Answer { status, body: why.as_bytes().into() }
}
