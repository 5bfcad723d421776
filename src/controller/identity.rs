//! Which certificates are valid: not those of a deleted node, nor those that are denied, whatever
//! their expiry; and which node may get a new one.
//!
//! TLS has verified that our authority signed a certificate, and when it was made. What counts
//! beyond that is stored here: certificates of a node that were made up to some time are revoked.
//! The causes are: the deletion of a node where the nodes are our own objects; a token for one
//! node, whose certificate replaces all before it; and a Secret, which every replica in a cluster
//! sees:
//!
//! ```text
//!  kubectl create secret generic edgecontroller-denied --from-literal=NODE=2026-11-24T00:00:00Z
//! ```
//!
//! A node that misbehaves with a valid certificate waits before its next session.
//!
//! If we crash here: the store has the revocation before the answer is sent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::time::Instant;
use crate::core::rate::Limit;
use crate::core::time::{Backoff, BackoffBounds};
use crate::limits::{
    EDGE_PENALTIES_MAX, EDGE_PENALTY_CALM_MS, EDGE_PENALTY_MAX_MS, EDGE_PENALTY_MIN_MS,
    IDENTITIES_MAX,
};
use crate::model::base64;
use crate::model::time::Timestamp;

/// What is stored of a node's certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub node: Box<str>,
    /// Certificates made up to this time are revoked; seconds since 1970, 0: none.
    pub revoked_s: i64,
    /// When the newest certificate was made with which the node has connected; 0: not known.
    pub connected_s: i64,
}

/// Whether a token without a node name can enrol an existing node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnrolAgain {
    /// As `CloudCore`, with a warning.
    Allow,
    /// Only a token for that node can.
    Refuse,
}

/// The credential of an application for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedBy {
    /// The node's current certificate, made at this moment.
    Certificate {
        /// Seconds since 1970.
        made_s: i64,
    },
    /// A token for any new node, as in KubeEdge.
    Token {
        /// Seconds since 1970: its own field, or its end minus a token's usual validity.
        made_s: i64,
    },
    /// A token for this node alone.
    NodeToken {
        /// Seconds since 1970.
        made_s: i64,
    },
}

/// What is known of the certificates of all nodes.
#[derive(Default)]
pub(super) struct Identities {
    nodes: BTreeMap<Box<str>, Identity>,
    /// Up to which time the Secret denies each node.
    denied: BTreeMap<Box<str>, i64>,
    /// The last list of Secrets that contained it.
    pub(super) denied_round: u32,
    penalties: BTreeMap<Box<str>, Backoff>,
    /// Rate limits of the log.
    pub(super) refused_sessions: Limit,
    pub(super) refused_tunnels: Limit,
    pub(super) refused_certificates: Limit,
}

/// The name of the Secret.
pub(super) const DENIED: &str = "edgecontroller-denied";

impl Identities {
    /// Takes the content of the store.
    pub(super) fn load(&mut self, all: Vec<Identity>) {
        for identity in all {
            self.put(identity);
        }
    }

    /// Why a certificate of this node, made at this time, is not valid any more.
    pub(super) fn revoked(&self, node: &str, made_s: i64) -> Option<String> {
        let until_s = self.until(node).filter(|until_s| made_s <= *until_s)?;
        let (made, until) = (Timestamp(made_s), moment(until_s));
        Some(format!(
            "the certificate of {node}, made at {made}, is revoked: those made up to {until} are, \
             since the node was deleted, denied or given another; it has to join again"
        ))
    }

    /// Up to which time this node's certificates are revoked.
    fn until(&self, node: &str) -> Option<i64> {
        let revoked_s = self.nodes.get(node).map(|it| it.revoked_s).filter(|it| *it != 0);
        revoked_s.max(self.denied.get(node).copied())
    }

    /// Whether this node may get a certificate that is made now; returns also what to store.
    /// `is_taken`: the node exists, and only a token for it gives it another certificate.
    pub(super) fn may_enrol(
        &self,
        node: &str,
        by: SignedBy,
        is_taken: bool,
        now_s: i64,
    ) -> Result<Option<Identity>, (u16, String)> {
        let until_s = self.until(node).unwrap_or(i64::MIN);
        if until_s >= now_s {
            // It would be revoked already.
            let until = moment(until_s);
            return Err((403, format!("{node} gets no certificate: it is denied up to {until}")));
        }
        match by {
            SignedBy::Certificate { made_s } => {
                self.revoked(node, made_s).map_or(Ok(None), |why| Err((403, why)))
            }
            SignedBy::Token { made_s } if made_s <= until_s => {
                let (made, until) = (Timestamp(made_s), moment(until_s));
                let why = format!("it was made at {made}, and {node} was deleted at {until}");
                Err((401, format!("Invalid authorization token: {why}: a newer one is needed")))
            }
            SignedBy::Token { .. } if is_taken => Err((
                409,
                format!(
                    "there is a node {node} already: only a token for this node gives it another \
                     certificate (edgecontroller token --node {node}), or delete the node first"
                ),
            )),
            SignedBy::Token { .. } => Ok(None),
            SignedBy::NodeToken { made_s } => {
                let old = self.nodes.get(node).cloned().unwrap_or_default();
                if old.connected_s >= made_s {
                    let connected = Timestamp(old.connected_s);
                    let why =
                        format!("{node} has connected with a certificate made at {connected}");
                    return Err((401, format!("the token was used: {why}")));
                }
                // The owner of an older certificate of this name is another machine, or has lost
                // it.
                let revoked_s = old.revoked_s.max(now_s - 1);
                Ok(Some(Identity { node: node.into(), revoked_s, ..old }))
            }
        }
    }

    /// A node has connected with a certificate made at this time: returns what to store. It is
    /// needed only if a token for this node was used.
    pub(super) fn connected(&mut self, node: &str, made_s: i64) -> Option<Identity> {
        let identity = self.nodes.get_mut(node)?;
        if identity.connected_s >= made_s {
            return None;
        }
        identity.connected_s = made_s;
        Some(identity.clone())
    }

    /// A node was deleted at this time. The store has it already.
    pub(super) fn deleted(&mut self, node: &str, now_s: i64) {
        let old = self.nodes.get(node).cloned().unwrap_or_default();
        self.put(Identity { node: node.into(), revoked_s: old.revoked_s.max(now_s), ..old });
    }

    /// Stores this, and forgets the oldest if there are too many.
    pub(super) fn put(&mut self, identity: Identity) {
        let age = |it: &Identity| it.revoked_s.max(it.connected_s);
        if self.nodes.len() >= IDENTITIES_MAX && !self.nodes.contains_key(&identity.node) {
            let oldest = self.nodes.values().min_by_key(|it| age(it)).map(|it| it.node.clone());
            oldest.and_then(|node| self.nodes.remove(&node));
        }
        self.nodes.insert(identity.node.clone(), identity);
    }

    /// Takes the Secret with the denied nodes; `None`: it does not exist. Returns errors in its
    /// content.
    pub(super) fn deny(&mut self, secret: Option<&RawValue>) -> Vec<String> {
        #[derive(Default, Deserialize)]
        struct Secret {
            #[serde(default)]
            data: BTreeMap<Box<str>, String>,
        }
        let read = |raw: &RawValue| serde_json::from_str::<Secret>(raw.get()).unwrap_or_default();
        let mut strange = Vec::new();
        self.denied.clear();
        for (node, text) in
            secret.map(read).unwrap_or_default().data.into_iter().take(IDENTITIES_MAX)
        {
            let text = base64::decode(&text).and_then(|bytes| String::from_utf8(bytes).ok());
            let text = text.unwrap_or_default();
            let until_s = match text.trim() {
                "" => Some(i64::MAX),
                text => Timestamp::parse(text).map(|at| at.0),
            };
            if until_s.is_none() {
                strange.push(format!(
                    "secret {DENIED}, {node}: expected a time such as 2026-11-24T00:00:00Z, or \
                     nothing; all certificates of this node are denied"
                ));
            }
            self.denied.insert(node, until_s.unwrap_or(i64::MAX));
        }
        strange
    }

    /// A node's session was ended because of what it did: the next one has to wait.
    pub(super) fn punish(&mut self, node: &str, now: Instant) {
        if self.penalties.len() >= EDGE_PENALTIES_MAX && !self.penalties.contains_key(node) {
            let first = self.penalties.iter().min_by_key(|(_, it)| it.over_at());
            let first = first.map(|(node, _)| node.clone());
            first.and_then(|node| self.penalties.remove(&node));
        }
        let bounds = BackoffBounds {
            min_ms: EDGE_PENALTY_MIN_MS,
            max_ms: EDGE_PENALTY_MAX_MS,
            calm_ms: EDGE_PENALTY_CALM_MS,
        };
        self.penalties.entry(node.into()).or_default().grow(now, now, bounds);
    }

    /// Milliseconds that a node has to wait for its next session.
    pub(super) fn penalty_ms(&self, node: &str, now: Instant) -> Option<u64> {
        let over_at = self.penalties.get(node)?.over_at();
        Some(over_at.since_ms(now)).filter(|left_ms| *left_ms > 0)
    }
}

fn moment(at_s: i64) -> String {
    if at_s == i64::MAX { "any time".to_owned() } else { Timestamp(at_s).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status<T>(result: Result<T, (u16, String)>) -> u16 {
        result.map_or_else(|(status, _)| status, |_| 200)
    }

    #[test]
    fn who_may_have_a_certificate() {
        let mut all = Identities::default();
        let token = |made_s| SignedBy::Token { made_s };
        let may = |all: &Identities, by, taken| status(all.may_enrol("e1", by, taken, 1_000));
        assert_eq!(may(&all, token(0), false), 200, "a new node");
        assert_eq!(may(&all, token(0), true), 409, "it has one");
        assert_eq!(may(&all, SignedBy::NodeToken { made_s: 900 }, true), 200, "by force");
        assert_eq!(may(&all, SignedBy::Certificate { made_s: 1 }, true), 200, "a renewal");
        all.deleted("e1", 950);
        assert_eq!(may(&all, SignedBy::Certificate { made_s: 950 }, false), 403);
        assert_eq!(may(&all, SignedBy::Certificate { made_s: 951 }, false), 200);
        assert_eq!(may(&all, token(949), false), 401, "older than the deletion");
        assert_eq!(may(&all, token(951), false), 200);
        assert!(all.revoked("e1", 950).is_some() && all.revoked("e1", 951).is_none());
        assert!(all.revoked("e2", 0).is_none());
        all.deleted("e1", 1_000);
        assert_eq!(may(&all, token(1_001), false), 403, "in this very second");
    }

    #[test]
    fn a_token_for_a_node_is_spent_when_the_node_has_connected_by_it() {
        let mut all = Identities::default();
        let by = SignedBy::NodeToken { made_s: 900 };
        let first = all.may_enrol("e1", by, true, 950).expect("it is good").expect("it is kept");
        all.put(first);
        assert!(all.revoked("e1", 949).is_some(), "what was given before is superseded");
        assert!(all.revoked("e1", 950).is_none());
        // The answer may be lost on its way.
        let again = all.may_enrol("e1", by, true, 960).expect("once more").expect("it is kept");
        all.put(again);
        assert!(all.revoked("e1", 950).is_some(), "of two, the newer counts");
        assert_eq!(all.connected("e1", 960).map(|it| it.connected_s), Some(960));
        assert_eq!(all.connected("e1", 960), None, "it is known");
        assert_eq!(status(all.may_enrol("e1", by, true, 970)), 401);
        let later = SignedBy::NodeToken { made_s: 965 };
        assert_eq!(status(all.may_enrol("e1", later, true, 970)), 200);
        assert_eq!(all.connected("e2", 960), None, "nothing is to be known of it");
    }

    #[test]
    fn a_secret_denies_nodes_by_name() {
        let secret =
            |data: &str| RawValue::from_string(format!("{{\"data\":{data}}}")).expect("JSON");
        let mut all = Identities::default();
        // 1970-01-01T00:01:40Z, an empty value, and a malformed one.
        let raw = secret(r#"{"e1":"MTk3MC0wMS0wMVQwMDowMTo0MFo=","e2":"","e3":"eA=="}"#);
        assert_eq!(all.deny(Some(&raw)).len(), 1);
        assert!(all.revoked("e1", 100).is_some() && all.revoked("e1", 101).is_none());
        for node in ["e2", "e3"] {
            assert!(all.revoked(node, 1_000_000).is_some(), "{node}");
            let by = SignedBy::NodeToken { made_s: 1 };
            assert_eq!(status(all.may_enrol(node, by, false, 2)), 403, "{node}");
        }
        assert_eq!(all.deny(None), Vec::<String>::new());
        assert!(all.revoked("e2", 1_000_000).is_none());
    }

    #[test]
    fn there_are_bounds() {
        let mut all = Identities::default();
        for at in 0..=IDENTITIES_MAX as i64 {
            all.deleted(&format!("e{at}"), 10 + at);
        }
        assert_eq!(all.nodes.len(), IDENTITIES_MAX);
        assert!(all.revoked("e0", 1).is_none(), "the oldest is forgotten");
        assert!(all.revoked("e1", 1).is_some());
        for at in 0..=EDGE_PENALTIES_MAX as u64 {
            all.punish(&format!("e{at}"), Instant(at));
        }
        assert_eq!(all.penalties.len(), EDGE_PENALTIES_MAX);
        let now = Instant(EDGE_PENALTIES_MAX as u64);
        assert_eq!(
            all.penalty_ms(&format!("e{EDGE_PENALTIES_MAX}"), now),
            Some(EDGE_PENALTY_MIN_MS)
        );
        all.punish("e9", now);
        assert_eq!(all.penalty_ms("e9", now), Some(2 * EDGE_PENALTY_MIN_MS));
        assert_eq!(all.penalty_ms("e9", now.plus_ms(EDGE_PENALTY_MAX_MS)), None);
    }

    #[test]
    fn a_node_that_kept_to_what_it_may_for_a_while_waits_as_the_first_time() {
        for (calm_ms, wait_ms) in [
            (EDGE_PENALTY_CALM_MS, EDGE_PENALTY_MAX_MS),
            (EDGE_PENALTY_CALM_MS + 1, EDGE_PENALTY_MIN_MS),
        ] {
            let mut all = Identities::default();
            for _ in 0..20 {
                all.punish("e1", Instant(7));
            }
            assert_eq!(all.penalty_ms("e1", Instant(7)), Some(EDGE_PENALTY_MAX_MS));
            let later = Instant(7 + calm_ms);
            all.punish("e1", later);
            assert_eq!(all.penalty_ms("e1", later), Some(wait_ms), "{calm_ms}");
        }
    }
}
