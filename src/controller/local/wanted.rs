//! What the manifests want, and how it comes about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{ANY_PRINT, Key, Objects, Print};
use crate::model::api::Kind;
use crate::model::raw::Manifest;
use crate::model::time::Timestamp;

/// What is wanted of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The file that says so.
    pub source: Box<str>,
    /// As it is to be.
    pub value: Arc<Value>,
    print: Print,
}

/// A file of the folder, and what it holds if it can be read.
type File = (Box<str>, Option<Vec<Manifest>>);

/// What is with files that are not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Gone,
    Stay,
}

/// An object that two files want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice {
    /// `kind namespace/name`
    pub name: String,
    /// The file that is not heeded.
    pub source: Box<str>,
    /// The file that is.
    pub counts: Box<str>,
}

impl Objects {
    /// The manifests as they are now: each file with what it holds, or `None` where it cannot be
    /// read, which leaves what it wanted before. Returns what is wanted twice.
    pub fn want(&mut self, files: Vec<File>, now: Option<Timestamp>) -> Vec<Twice> {
        self.replace_wanted(files, Others::Gone, now)
    }

    /// As [`Objects::want`] while the folder itself cannot be read: what other files wanted stays.
    pub fn want_still(&mut self, files: Vec<File>, now: Option<Timestamp>) -> Vec<Twice> {
        self.replace_wanted(files, Others::Stay, now)
    }

    fn replace_wanted(
        &mut self,
        files: Vec<File>,
        others: Others,
        now: Option<Timestamp>,
    ) -> Vec<Twice> {
        let mut before = std::mem::take(&mut self.wanted);
        let mut wanted: BTreeMap<Key, Wanted> = BTreeMap::new();
        let mut twice = Vec::new();
        let mut read = BTreeSet::new();
        for (source, manifests) in files {
            read.insert(source.clone());
            let found: Vec<(Key, Arc<Value>)> = match manifests {
                Some(manifests) => {
                    manifests.into_iter().map(|it| (key_of(&it), it.value)).collect()
                }
                None => before
                    .iter()
                    .filter(|(_, wanted)| wanted.source == source)
                    .map(|(key, wanted)| (key.clone(), wanted.value.clone()))
                    .collect(),
            };
            // At the first reading nothing is known of what it held: nothing goes.
            for (key, value) in found {
                if let Some(first) = wanted.get(&key) {
                    let name = format!("{} {}/{}", key.kind.name(), key.namespace, key.name);
                    let counts = first.source.clone();
                    twice.push(Twice { name, source: source.clone(), counts });
                    continue;
                }
                let known = before.get(&key).filter(|it| Arc::ptr_eq(&it.value, &value));
                let print = known.map_or_else(|| print(&key, &value), |it| it.print);
                wanted.insert(key, Wanted { source: source.clone(), value, print });
            }
        }
        if others == Others::Stay {
            for (key, kept) in before.iter().filter(|(_, kept)| !read.contains(&kept.source)) {
                wanted.entry(key.clone()).or_insert_with(|| kept.clone());
            }
        }
        self.wanted = wanted;
        before.retain(|key, _| !self.wanted.contains_key(key));
        for key in before.keys() {
            self.end(key, now);
        }
        self.reconcile(now);
        twice
    }

    /// From now on what no manifest wants goes, if it was made of one: every file was read once,
    /// and none of them is in error.
    pub fn all_was_read(&mut self, now: Option<Timestamp>) {
        if !std::mem::replace(&mut self.read, true) {
            self.reconcile(now);
            self.uids.settle();
        }
    }

    /// No manifest wants the object any more; the folder will say the same.
    pub fn unwant(&mut self, key: &Key) {
        self.wanted.remove(key);
    }

    /// Brings about what is missing, and ends what is too much.
    pub(super) fn reconcile(&mut self, now: Option<Timestamp>) {
        let amiss = self.wanted.keys().filter(|key| self.is_amiss(key));
        for key in amiss.cloned().collect::<Vec<Key>>() {
            self.bring_about(key, now);
        }
        if self.read {
            let loose = self.keys_where(|key, object| {
                object.row.made_of.is_some() && !self.wanted.contains_key(key)
            });
            for key in loose {
                self.end(&key, now);
            }
        }
    }

    /// Whether a manifest wants something else than there is.
    pub(super) fn is_amiss(&self, key: &Key) -> bool {
        let made_of = self.rows.get(key).and_then(|object| object.row.made_of);
        self.wanted.get(key).is_some_and(|wanted| made_of != Some(wanted.print))
    }

    pub(super) fn bring_about(&mut self, key: Key, now: Option<Timestamp>) {
        let Wanted { value, print, .. } = self.wanted[&key].clone();
        let mut new = Value::clone(&value);
        let Some(old) = self.value(&key) else {
            let uid = self.uids.of(&key, print);
            Self::found(&key, &mut new, uid, now);
            self.put(key, new, Some(print));
            return;
        };
        let made_of = self.rows[&key].row.made_of;
        let ending = old["metadata"].get("deletionTimestamp").is_some();
        let another = key.kind == Kind::Pod
            && made_of.is_some_and(|it| ![ANY_PRINT, print.fixed].contains(&it.fixed));
        if ending || another {
            // The new one begins when the old one is gone.
            if !ending {
                self.end(&key, now);
                if !self.rows.contains_key(&key) {
                    self.bring_about(key, now);
                }
            }
            return;
        }
        let uid = old["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Self::found(&key, &mut new, uid, now);
        new["metadata"]["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
        if let Some(status) = old.get("status") {
            new["status"] = status.clone();
        }
        if key.kind == Kind::Node {
            // The node itself says the most of its labels.
            for map in ["labels", "annotations"] {
                let mut all = old["metadata"][map].clone();
                super::patch::merge(&mut all, &new["metadata"][map]);
                new["metadata"][map] = all;
            }
        }
        self.put(key, new, Some(print));
    }

    /// Asks for an end as whoever deletes it would.
    fn end(&mut self, key: &Key, now: Option<Timestamp>) {
        if let Some(old) = self.value(key)
            && old["metadata"].get("deletionTimestamp").is_none()
        {
            // It is there, and no precondition is named.
            let _ = self.delete(key, &Value::Null, now);
        }
    }
}

fn key_of(manifest: &Manifest) -> Key {
    let Manifest { kind, namespace, name, .. } = manifest;
    Key { kind: *kind, namespace: namespace.clone(), name: name.clone() }
}

/// What tells one manifest from another.
fn print(key: &Key, value: &Value) -> Print {
    let mut fixed = value["spec"].clone();
    if key.kind == Kind::Pod {
        for list in ["containers", "initContainers"] {
            let list = fixed[list].as_array_mut();
            for container in list.into_iter().flatten() {
                container["image"] = json!("");
            }
        }
        // Kubernetes lets these change as well.
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
            if let Some(map) = fixed.as_object_mut() {
                map.remove(field);
            }
        }
    }
    Print { whole: hash(&value.to_string()), fixed: hash(&fixed.to_string()) }
}

/// FNV-1a: the same in every build, because it is kept.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
