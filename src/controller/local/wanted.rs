//! Reconciles the objects with the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{ANY_PRINT, Key, Objects, Print};
use crate::model::api::Kind;
use crate::model::raw::Manifest;
use crate::model::time::Timestamp;

/// The desired state of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The file that defines it.
    pub source: Box<str>,
    /// The desired content.
    pub value: Arc<Value>,
    print: Print,
}

/// A file of the folder, and its manifests; `None`: it cannot be read.
type File = (Box<str>, Option<Vec<Manifest>>);

/// What happens to files that are not in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Gone,
    Stay,
}

/// An object that two files define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// `kind namespace/name`
    pub name: String,
    /// The file that is ignored.
    pub source: Box<str>,
    /// The file that wins.
    pub winner: Box<str>,
}

impl Objects {
    /// The manifests as they are now: each file with its content, or `None` if it cannot be read;
    /// then its old content stays. Returns objects that are defined twice.
    pub fn want(&mut self, files: Vec<File>, now: Option<Timestamp>) -> Vec<Duplicate> {
        self.replace_wanted(files, Others::Gone, now)
    }

    /// As [`Objects::want`], while the folder itself cannot be read: the content of other files
    /// stays.
    pub fn want_still(&mut self, files: Vec<File>, now: Option<Timestamp>) -> Vec<Duplicate> {
        self.replace_wanted(files, Others::Stay, now)
    }

    fn replace_wanted(
        &mut self,
        files: Vec<File>,
        others: Others,
        now: Option<Timestamp>,
    ) -> Vec<Duplicate> {
        let mut before = std::mem::take(&mut self.wanted);
        let mut wanted: BTreeMap<Key, Wanted> = BTreeMap::new();
        let mut duplicates = Vec::new();
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
            // At the first reading the old content is not known: nothing is deleted.
            for (key, value) in found {
                if let Some(first) = wanted.get(&key) {
                    let name = format!("{} {}/{}", key.kind.name(), key.namespace, key.name);
                    let winner = first.source.clone();
                    duplicates.push(Duplicate { name, source: source.clone(), winner });
                    continue;
                }
                let known = before.get(&key).filter(|it| Arc::ptr_eq(&it.value, &value));
                let print = known.map_or_else(|| hashes_of(&key, &value), |it| it.print);
                wanted.insert(key, Wanted { source: source.clone(), value, print });
            }
        }
        if others == Others::Stay {
            for (key, old) in before.iter().filter(|(_, old)| !read.contains(&old.source)) {
                wanted.entry(key.clone()).or_insert_with(|| old.clone());
            }
        }
        self.wanted = wanted;
        before.retain(|key, _| !self.wanted.contains_key(key));
        for key in before.keys() {
            self.end(key, now);
        }
        self.reconcile(now);
        duplicates
    }

    /// Every file was read once without an error: from now on objects that were made from a
    /// manifest and have none any more are deleted.
    pub fn all_was_read(&mut self, now: Option<Timestamp>) {
        if !std::mem::replace(&mut self.read, true) {
            self.reconcile(now);
            self.uids.settle();
        }
    }

    /// No manifest defines the object any more; the next read of the folder will confirm it.
    pub fn unwant(&mut self, key: &Key) {
        self.wanted.remove(key);
    }

    /// Creates what is missing, and deletes what is left over.
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

    /// Whether the object differs from its manifest.
    pub(super) fn is_amiss(&self, key: &Key) -> bool {
        let made_of = self.rows.get(key).and_then(|object| object.row.made_of);
        self.wanted.get(key).is_some_and(|wanted| made_of != Some(wanted.print))
    }

    pub(super) fn bring_about(&mut self, key: Key, now: Option<Timestamp>) {
        let Wanted { value, print, .. } = self.wanted[&key].clone();
        let mut new = Value::clone(&value);
        let Some(old) = self.value(&key) else {
            let uid = self.uids.of(&key, print);
            Self::complete_metadata(&key, &mut new, uid, now);
            self.put(key, new, Some(print));
            return;
        };
        let made_of = self.rows[&key].row.made_of;
        let ending = old["metadata"].get("deletionTimestamp").is_some();
        let another = key.kind == Kind::Pod
            && made_of.is_some_and(|it| ![ANY_PRINT, print.fixed].contains(&it.fixed));
        if ending || another {
            // The new one is created when the old one is gone.
            if !ending {
                self.end(&key, now);
                if !self.rows.contains_key(&key) {
                    self.bring_about(key, now);
                }
            }
            return;
        }
        let uid = old["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Self::complete_metadata(&key, &mut new, uid, now);
        new["metadata"]["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
        if let Some(status) = old.get("status") {
            new["status"] = status.clone();
        }
        if key.kind == Kind::Node {
            // The node itself sets most of its labels.
            for map in ["labels", "annotations"] {
                let mut all = old["metadata"][map].clone();
                super::patch::merge(&mut all, &new["metadata"][map]);
                new["metadata"][map] = all;
            }
        }
        self.put(key, new, Some(print));
    }

    /// Deletes an object as a user would.
    fn end(&mut self, key: &Key, now: Option<Timestamp>) {
        if let Some(old) = self.value(key)
            && old["metadata"].get("deletionTimestamp").is_none()
        {
            // It exists, and there is no precondition.
            let _ = self.delete(key, &Value::Null, now);
        }
    }
}

fn key_of(manifest: &Manifest) -> Key {
    let Manifest { kind, namespace, name, .. } = manifest;
    Key { kind: *kind, namespace: namespace.clone(), name: name.clone() }
}

/// The hashes of a manifest.
fn hashes_of(key: &Key, value: &Value) -> Print {
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

/// FNV-1a: the same in every build, because the hash is stored.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
