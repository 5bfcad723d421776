//! The policy controller: the rules of the service accounts whose pods are on nodes, for nodes that
//! decide themselves what a pod may do at their MetaServer (KubeEdge's feature gate
//! `requireAuthorization`; wire spec section 4.7).
//!
//! ```text
//!  accounts, roles, bindings ─▶ Index ─whom it concerns─▶ due ─▶ rules ─▶ Cache ─▶ nodes
//!                                        wanted, held ────▲
//! ```
//!
//! The rules of an account are an object of the cache like those of the API server: a pod needs it
//! as it needs a ConfigMap, so that nodes get it and its deletion once, in order, and again when
//! they were away. It is made of what the API server has and is never written there: unlike
//! CloudCore, no CRD is needed, and nothing is left behind for one that comes later.
//!
//! Intended behaviour: an account has the rights on a node that it has in the cluster, or fewer.
//! Nothing is sent or deleted before all five kinds were listed once. Rules that are too many are
//! not sent in part, and neither is anything if not all objects fit into memory: then the account
//! has no rights on its nodes.
//!
//! If we crash: the lists bring the objects back. The version of the rules is a hash of them, so a
//! node gets only those that have changed.

mod index;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::Controller;
use super::event::{Action, Severity};
use super::key::Key;
use super::object::Object;
use super::overview::PolicyOverview;
use super::time::Instant;
use crate::limits::{POLICY_ACCOUNTS_PER_STEP, POLICY_BYTES_MAX, POLICY_REFUSED_SHOWN_MAX};
use crate::model::api::Kind;
use crate::model::error::Peer;
use index::{Content, Index, Subject};
use rules::Rules;

/// Whether nodes get the rules of service accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessRules {
    /// Those that they have are deleted.
    #[default]
    Off,
    On,
}

/// What service accounts may do.
#[derive(Default)]
pub(super) struct Policy {
    mode: AccessRules,
    index: Index,
    /// The kinds that were listed once.
    listed: BTreeSet<Kind>,
    /// The rules that may have changed, by the keys of their objects.
    due: BTreeSet<Key>,
    /// Accounts that nodes need and whose rules are too many, and why.
    refused: BTreeMap<Key, Box<str>>,
    is_full_logged: bool,
}

impl Policy {
    pub(super) fn new(mode: AccessRules) -> Self {
        Self { mode, ..Self::default() }
    }

    fn is_listed(&self) -> bool {
        self.listed.len() == Kind::POLICY.len()
    }

    /// Whether rules can be put together now.
    fn may_compute(&self) -> bool {
        self.mode == AccessRules::Off || self.is_listed()
    }

    /// How many accounts have too many rules.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }
}

impl Controller {
    /// An account, a role or a binding was added or changed.
    pub(super) fn policy_read(&mut self, object: &Object, key: &Key) -> Result<(), Peer> {
        if key.kind == Kind::ServiceAccount && object.is_ending {
            self.policy_deleted(key);
            return Ok(());
        }
        let content = Content::read(key, &object.uid, object.json.get())?;
        let at = (object.version, object.round);
        let concerned = self.policy.index.put(key, at, content);
        self.policy_changed(&concerned);
        Ok(())
    }

    /// A list has an object that cannot be read: it stays as it was.
    pub(super) fn policy_unread(&mut self, key: &Key, round: u32) {
        self.policy.index.seen(key, round);
    }

    /// An account, a role or a binding was deleted.
    pub(super) fn policy_deleted(&mut self, key: &Key) {
        let concerned = self.policy.index.remove(key);
        self.policy_changed(&concerned);
    }

    /// All objects of a kind were listed.
    pub(super) fn policy_listed(&mut self, kind: Kind, round: u32, version: u64) {
        let concerned = self.policy.index.listed(kind, round, version);
        self.policy.listed.insert(kind);
        self.policy_changed(&concerned);
    }

    /// The rules of these accounts are put together again, if a node needs or has them.
    fn policy_changed(&mut self, concerned: &BTreeSet<Subject>) {
        let (due, objects) = (&mut self.policy.due, &self.cache.objects);
        let kind = Kind::ServiceAccountAccess;
        for subject in concerned {
            match subject {
                Subject::All => {
                    let from = objects.range(Key::new(kind, "", "")..);
                    let all = from.map(|(key, _)| key).take_while(|key| key.kind == kind);
                    due.extend(all.cloned());
                    // The others are among them.
                    return;
                }
                Subject::Namespace(namespace) => {
                    let from = objects.range(Key::new(kind, namespace, "")..);
                    let all = from.map(|(key, _)| key);
                    let is_in = |key: &&Key| key.kind == kind && *key.namespace == **namespace;
                    due.extend(all.take_while(is_in).cloned());
                }
                Subject::Account(namespace, name) => {
                    let key = Key::new(kind, namespace, name);
                    if objects.contains_key(&key) {
                        due.insert(key);
                    }
                }
            }
        }
    }

    /// Puts some of the rules together that may have changed.
    pub(super) fn run_policy(&mut self) {
        self.policy.due.append(&mut self.cache.compute);
        if !self.policy.may_compute() {
            return;
        }
        let is_full = self.policy.index.is_incomplete();
        if is_full != std::mem::replace(&mut self.policy.is_full_logged, is_full) {
            let line = if is_full {
                format!("access rules: {}", full())
            } else {
                "access rules: all service accounts, roles and bindings fit again".to_owned()
            };
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        for _ in 0..POLICY_ACCOUNTS_PER_STEP {
            let Some(key) = self.policy.due.pop_first() else { break };
            self.compute_rules(&key);
        }
    }

    fn compute_rules(&mut self, key: &Key) {
        if !self.cache.objects.contains_key(key) {
            self.policy.refused.remove(key);
            return;
        }
        let is_possible = self.policy.mode == AccessRules::On && !self.policy.index.is_incomplete();
        self.counters.policy_computed += u64::from(is_possible);
        let rules = if is_possible { rules::of(&self.policy.index, key) } else { Rules::Absent };
        let object = match rules {
            Rules::Object(object) => Some(object),
            Rules::Absent => None,
            Rules::TooLarge(why) => return self.refuse_rules(key, why),
        };
        self.policy.refused.remove(key);
        self.cache.computed(key, object);
    }

    /// The account has no rights on its nodes.
    fn refuse_rules(&mut self, key: &Key, why: Box<str>) {
        let refused = &mut self.policy.refused;
        if !refused.contains_key(key) && refused.len() < POLICY_REFUSED_SHOWN_MAX {
            let line = format!(
                "access rules: the service account {}/{} has no rights on nodes: {why}",
                key.namespace, key.name
            );
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        refused.insert(key.clone(), why);
        self.cache.computed(key, None);
    }

    /// When rules are due, if nothing happens before.
    pub(super) fn policy_wake_at(&self, now: Instant) -> Option<Instant> {
        let is_due = !self.policy.due.is_empty() || !self.cache.compute.is_empty();
        (is_due && self.policy.may_compute()).then_some(now)
    }

    /// What `status` says; `None`: nodes get no rules.
    pub(super) fn policy_overview(&self) -> Option<PolicyOverview> {
        if self.policy.mode == AccessRules::Off {
            return None;
        }
        let waits_for = Kind::POLICY.into_iter().filter(|kind| !self.policy.listed.contains(kind));
        let waits_for: Vec<&str> = waits_for.map(Kind::plural).collect();
        let from = self.cache.objects.range(Key::new(Kind::ServiceAccountAccess, "", "")..);
        let of_kind = from.take_while(|(key, _)| key.kind == Kind::ServiceAccountAccess);
        let trouble = if self.policy.index.is_incomplete() {
            full()
        } else if waits_for.is_empty() {
            String::new()
        } else {
            format!("not listed yet: {}", waits_for.join(", "))
        };
        let refused = self.policy.refused.iter().take(POLICY_REFUSED_SHOWN_MAX);
        Some(PolicyOverview {
            accounts: of_kind.count(),
            objects: self.policy.index.len(),
            bytes: self.policy.index.bytes(),
            trouble,
            refused: refused
                .map(|(key, why)| format!("{}/{}: {why}", key.namespace, key.name))
                .collect(),
        })
    }
}

/// Why no account has rights.
fn full() -> String {
    format!(
        "no account has rights on nodes: got service accounts, roles and bindings of more than \
         {POLICY_BYTES_MAX} bytes; they are looked at again when edgecontroller starts anew"
    )
}
