//! Service accounts, roles and bindings, and which of them a change concerns.
//!
//! Bindings are found by whom they are for and by their role, so a change costs as much as the
//! accounts and bindings that it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::key::Key;
use super::super::nullable::Nullable;
use crate::limits::{
    ACCESS_BINDINGS_MAX, POLICY_BYTES_MAX, POLICY_OBJECT_BYTES, POLICY_SUBJECT_BYTES,
};
use crate::model::api::Kind;
use crate::model::error::Peer;

/// Whom a binding is for, as far as that can be a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// All of them: the groups `system:serviceaccounts` and `system:authenticated`.
    All,
    /// Those of a namespace: the group `system:serviceaccounts:<namespace>`.
    Namespace(Box<str>),
    /// One: its namespace and name.
    Account(Box<str>, Box<str>),
}

/// What is kept of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A service account: its uid.
    Account(Arc<str>),
    /// A role: `rules`, JSON.
    Role(Box<str>),
    Binding(Binding),
}

/// A `RoleBinding` or `ClusterRoleBinding`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) role: Key,
    /// `subjects`, JSON.
    pub(super) subjects: Box<str>,
    of: BTreeSet<Subject>,
}

#[derive(Debug)]
struct Entry {
    version: u64,
    /// The list in which it was seen last.
    round: u32,
    content: Content,
}

/// All service accounts, roles and bindings.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<Key, Entry>,
    bindings: BTreeMap<Subject, BTreeSet<Key>>,
    /// The bindings of each role.
    used: BTreeMap<Key, BTreeSet<Key>>,
    bytes: usize,
    /// The kinds of which an object was left out, with the list in which that happened last.
    left_out: BTreeMap<Kind, u32>,
}

impl Index {
    /// Takes an object in. Returns whom that concerns.
    pub(super) fn put(
        &mut self,
        key: &Key,
        (version, round): (u64, u32),
        content: Content,
    ) -> BTreeSet<Subject> {
        if let Some(old) = self.entries.get_mut(key) {
            old.round = round;
            if old.version >= version || old.content == content {
                old.version = old.version.max(version);
                return BTreeSet::new();
            }
        }
        let mut concerned = self.remove(key);
        let bytes = self.bytes + bytes_of(&content);
        if bytes > POLICY_BYTES_MAX {
            self.left_out.insert(key.kind, round);
            return [Subject::All].into();
        }
        self.bytes = bytes;
        if let Content::Binding(binding) = &content {
            for subject in &binding.of {
                self.bindings.entry(subject.clone()).or_default().insert(key.clone());
            }
            self.used.entry(binding.role.clone()).or_default().insert(key.clone());
        }
        self.entries.insert(key.clone(), Entry { version, round, content });
        concerned.extend(self.concerned(key));
        concerned
    }

    /// An object is gone. Returns whom that concerns.
    pub(super) fn remove(&mut self, key: &Key) -> BTreeSet<Subject> {
        let concerned = self.concerned(key);
        let Some(entry) = self.entries.remove(key) else { return concerned };
        self.bytes -= bytes_of(&entry.content);
        if let Content::Binding(Binding { role, of, .. }) = entry.content {
            for subject in of {
                remove_from(&mut self.bindings, &subject, key);
            }
            remove_from(&mut self.used, &role, key);
        }
        concerned
    }

    /// A list of this round and version is complete. Returns whom that concerns.
    pub(super) fn listed(&mut self, kind: Kind, round: u32, version: u64) -> BTreeSet<Subject> {
        let from = Key::new(kind, "", "");
        let of_kind = self.entries.range(from..).take_while(|(key, _)| key.kind == kind);
        // A newer object is left to the watch.
        let gone = of_kind.filter(|(_, it)| it.round != round && it.version <= version);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        let mut concerned: BTreeSet<Subject> =
            gone.iter().flat_map(|key| self.remove(key)).collect();
        if self.left_out.get(&kind).is_some_and(|at| *at != round) {
            self.left_out.remove(&kind);
            concerned.insert(Subject::All);
        }
        concerned
    }

    /// A list has an object that cannot be read: it stays as it was.
    pub(super) fn seen(&mut self, key: &Key, round: u32) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.round = round;
        }
    }

    /// Whom a change of this object concerns.
    fn concerned(&self, key: &Key) -> BTreeSet<Subject> {
        match self.entries.get(key).map(|entry| &entry.content) {
            None => BTreeSet::new(),
            Some(Content::Account(_)) => {
                [Subject::Account((*key.namespace).into(), (*key.name).into())].into()
            }
            Some(Content::Binding(binding)) => binding.of.clone(),
            Some(Content::Role(_)) => {
                let bindings = self.used.get(key).into_iter().flatten();
                let bindings = bindings.filter_map(|key| self.binding(key));
                bindings.flat_map(|binding| &binding.of).cloned().collect()
            }
        }
    }

    /// The bindings for this account: those of namespaces first. `Err`: how many there may be, if
    /// that is more than [`ACCESS_BINDINGS_MAX`].
    pub(super) fn bindings_of(&self, namespace: &str, name: &str) -> Result<BTreeSet<&Key>, usize> {
        let account = Subject::Account(namespace.into(), name.into());
        let all = [account, Subject::Namespace(namespace.into()), Subject::All];
        let found = || all.iter().filter_map(|subject| self.bindings.get(subject));
        let count = found().map(BTreeSet::len).sum();
        if count > ACCESS_BINDINGS_MAX { Err(count) } else { Ok(found().flatten().collect()) }
    }

    /// The uid of a service account, if it exists.
    pub(super) fn account(&self, namespace: &str, name: &str) -> Option<&Arc<str>> {
        match &self.entries.get(&Key::new(Kind::ServiceAccount, namespace, name))?.content {
            Content::Account(uid) => Some(uid),
            Content::Role(_) | Content::Binding(_) => None,
        }
    }

    pub(super) fn binding(&self, key: &Key) -> Option<&Binding> {
        match &self.entries.get(key)?.content {
            Content::Binding(binding) => Some(binding),
            Content::Role(_) | Content::Account(_) => None,
        }
    }

    /// `rules` of a role, JSON, if it exists.
    pub(super) fn rules(&self, role: &Key) -> Option<&str> {
        match &self.entries.get(role)?.content {
            Content::Role(rules) => Some(rules),
            Content::Account(_) | Content::Binding(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether an object was left out for lack of room.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.left_out.is_empty()
    }
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(keys) = map.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(at);
        }
    }
}

fn bytes_of(content: &Content) -> usize {
    POLICY_OBJECT_BYTES
        + match content {
            Content::Account(uid) => uid.len(),
            Content::Role(rules) => rules.len(),
            Content::Binding(Binding { subjects, of, .. }) => {
                subjects.len() + of.len() * POLICY_SUBJECT_BYTES
            }
        }
}

#[derive(Deserialize)]
struct RawRole<'a> {
    #[serde(borrow, default)]
    rules: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBinding<'a> {
    #[serde(borrow, default)]
    subjects: Option<&'a RawValue>,
    role_ref: RawRef,
}

#[derive(Deserialize)]
struct RawRef {
    kind: Box<str>,
    name: Box<str>,
}

#[derive(Deserialize)]
struct RawSubject {
    #[serde(default)]
    kind: Nullable<Box<str>>,
    #[serde(default)]
    name: Nullable<Box<str>>,
    #[serde(default)]
    namespace: Nullable<Box<str>>,
}

impl Content {
    /// Parses an object (`rbac.authorization.k8s.io/v1`, or a `ServiceAccount`).
    pub(super) fn read(key: &Key, uid: &Arc<str>, json: &str) -> Result<Self, Peer> {
        match key.kind {
            Kind::Role | Kind::ClusterRole => {
                let role: RawRole<'_> = parse("the role", json)?;
                Ok(Self::Role(role.rules.map_or("[]", RawValue::get).into()))
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                Ok(Self::Binding(Binding::read(key, json)?))
            }
            _ => Ok(Self::Account(Arc::clone(uid))),
        }
    }
}

impl Binding {
    fn read(key: &Key, json: &str) -> Result<Self, Peer> {
        let binding: RawBinding<'_> = parse("the binding", json)?;
        let RawRef { kind, name } = &binding.role_ref;
        let role = match &**kind {
            "ClusterRole" => Key::new(Kind::ClusterRole, "", name),
            "Role" => Key::new(Kind::Role, &key.namespace, name),
            _ => {
                return Err(Peer::new(format!(
                    "got roleRef.kind {kind:?}, expected Role or ClusterRole"
                )));
            }
        };
        let subjects = binding.subjects.map_or("[]", RawValue::get);
        let all: Vec<RawSubject> = parse("subjects", subjects)?;
        let of = all.iter().filter_map(|it| it.account(&key.namespace)).collect();
        Ok(Self { role, subjects: subjects.into(), of })
    }
}

impl RawSubject {
    /// `home`: the namespace of the binding; empty: none.
    fn account(&self, home: &str) -> Option<Subject> {
        let name = &**self.name;
        let one = |namespace: &str, name: &str| {
            let is_named = !namespace.is_empty() && !name.is_empty();
            is_named.then(|| Subject::Account(namespace.into(), name.into()))
        };
        match &**self.kind {
            "ServiceAccount" if self.namespace.is_empty() => one(home, name),
            "ServiceAccount" => one(&self.namespace, name),
            "User" => {
                let (namespace, name) =
                    name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
                one(namespace, name)
            }
            "Group" if matches!(name, "system:serviceaccounts" | "system:authenticated") => {
                Some(Subject::All)
            }
            "Group" => {
                let namespace = name.strip_prefix("system:serviceaccounts:")?;
                Some(Subject::Namespace(namespace.into()))
            }
            _ => None,
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Result<T, Peer> {
    serde_json::from_str(json).map_err(|error| Peer::at(what, error))
}
