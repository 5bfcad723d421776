//! The ConfigMaps, Secrets and other objects that pods may use, as last received from their
//! sources.
//!
//! This module only stores them. On a change every pod of the namespace is informed: objects change
//! rarely, a check costs a pod microseconds, and an index of users would need every field that
//! names an object.
//!
//! If we crash here: the manifest folder is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::{Action, Out, Severity};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::InCluster;
use crate::model::object::{
    Claim, ConfigMap, Object, ObjectKind, PersistentVolume, RuntimeClass, Secret,
};
#[cfg(feature = "services")]
use crate::model::service::{Endpoints, Service};
use crate::model::token::{self, Metadata, Token};

#[derive(Debug, Default)]
pub struct Objects {
    map: BTreeMap<Key, Arc<Object>>,
    /// Names that appeared twice, until they no longer do.
    doubles: BTreeSet<Key>,
    /// Tokens of service accounts, issued for pods.
    tokens: Vec<Arc<Token>>,
    /// Where pods reach MetaServer.
    #[cfg(feature = "metaserver")]
    in_cluster: Option<Box<InCluster>>,
}

/// The ConfigMap of each namespace with the API server's CA.
#[cfg(feature = "metaserver-auth")]
pub const ROOT_CA: &str = "kube-root-ca.crt";

/// Where a pod comes from, and the objects that it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The manifest folder.
    File,
    /// The cloud.
    Cloud,
    /// Known only from the runtime.
    Runtime,
}

/// All objects, by the origin of the pods that may use them.
#[derive(Clone, Copy, Debug)]
pub struct ObjectsOf<'a> {
    /// Those of the manifest folder.
    pub folder: &'a Objects,
    /// Those of the cloud.
    pub cloud: &'a Objects,
}

impl<'a> ObjectsOf<'a> {
    /// The objects that pods of this origin may use.
    pub fn of(self, origin: Origin) -> &'a Objects {
        match origin {
            Origin::Cloud => self.cloud,
            Origin::File | Origin::Runtime => self.folder,
        }
    }
}

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: ObjectKind,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Objects {
    /// Takes all current objects; returns the keys of those that were added, removed or changed. Of
    /// two objects with the same name the first one stays.
    pub fn take(&mut self, all: impl Iterator<Item = Arc<Object>>, out: &mut Out) -> BTreeSet<Key> {
        let old = std::mem::take(&mut self.map);
        let mut doubles = BTreeSet::new();
        for object in all {
            let key = Key::of(&object);
            if self.map.contains_key(&key) {
                if !self.doubles.contains(&key) && !doubles.contains(&key) {
                    let Key { kind, namespace, name } = &key;
                    let line = format!(
                        "got a second {kind} {namespace}/{name} in the manifests, expected one: \
                         the first one is used"
                    );
                    out.push(Action::Log(Severity::Error, line));
                }
                doubles.insert(key);
                continue;
            }
            self.map.insert(key, object);
        }
        self.doubles = doubles;
        let new = &self.map;
        let differs = |one: &Arc<Object>, other: Option<&Arc<Object>>| {
            other.is_none_or(|other| !Arc::ptr_eq(one, other) && one != other)
        };
        let came = new.iter().filter(|(key, object)| differs(object, old.get(*key)));
        let went = old.keys().filter(|key| !new.contains_key(*key));
        came.map(|(key, _)| key).chain(went).cloned().collect()
    }

    #[cfg(feature = "metaserver")]
    pub fn in_cluster(&self) -> Option<&InCluster> {
        self.in_cluster.as_deref()
    }

    /// Pods reach MetaServer there from now on. Returns the keys of the objects that have other
    /// content for pods now.
    #[cfg(feature = "metaserver-auth")]
    pub fn take_in_cluster(&mut self, place: Option<Box<InCluster>>) -> BTreeSet<Key> {
        self.in_cluster = place;
        let is_root = |key: &&Key| key.kind == ObjectKind::ConfigMap && *key.name == *ROOT_CA;
        self.map.keys().filter(is_root).cloned().collect()
    }

    /// Takes all current tokens.
    pub fn take_tokens(&mut self, tokens: Vec<Arc<Token>>) {
        self.tokens = tokens;
    }

    /// The newest token that was issued for a pod with this audience and lifetime.
    pub fn token(&self, uid: &str, audience: &str, seconds: i64) -> Option<&str> {
        let all = self.tokens.iter().map(|token| &**token);
        token::newest(all, uid, audience, seconds).map(|token| &*token.status.token)
    }

    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        let Object::ConfigMap(map) = self.find(ObjectKind::ConfigMap, namespace, name)? else {
            return None;
        };
        Some(map)
    }

    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        let Object::Secret(secret) = self.find(ObjectKind::Secret, namespace, name)? else {
            return None;
        };
        Some(secret)
    }

    pub fn runtime_class(&self, name: &str) -> Option<&RuntimeClass> {
        let Object::RuntimeClass(class) = self.find(ObjectKind::RuntimeClass, "", name)? else {
            return None;
        };
        Some(class)
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        let kind = ObjectKind::PersistentVolumeClaim;
        let Object::Claim(claim) = self.find(kind, namespace, name)? else { return None };
        Some(claim)
    }

    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.map.values().filter_map(|object| match &**object {
            Object::Claim(claim) => Some(claim),
            _ => None,
        })
    }

    pub fn persistent_volume(&self, name: &str) -> Option<&PersistentVolume> {
        let kind = ObjectKind::PersistentVolume;
        let Object::PersistentVolume(volume) = self.find(kind, "", name)? else { return None };
        Some(&**volume)
    }

    pub fn persistent_volumes(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.map.values().filter_map(|object| match &**object {
            Object::PersistentVolume(volume) => Some(&**volume),
            _ => None,
        })
    }

    /// By namespace and name.
    #[cfg(feature = "services")]
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.map.values().filter_map(|object| match &**object {
            Object::Service(service) => Some(&**service),
            _ => None,
        })
    }

    #[cfg(feature = "services")]
    pub fn endpoints(&self, namespace: &str, name: &str) -> Option<&Endpoints> {
        let kind = ObjectKind::Endpoints;
        let Object::Endpoints(endpoints) = self.find(kind, namespace, name)? else { return None };
        Some(endpoints)
    }

    fn find(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&Object> {
        let key = Key { kind, namespace: namespace.into(), name: name.into() };
        self.map.get(&key).map(|object| &**object)
    }
}

impl Key {
    /// The key for the token of a service account, which pods use like a Secret.
    pub fn of_token(token: &Token) -> Self {
        let Metadata { name, namespace } = &token.metadata;
        Self { kind: ObjectKind::Secret, namespace: namespace.clone(), name: name.clone() }
    }

    fn of(object: &Object) -> Self {
        let metadata = object.metadata();
        Self {
            kind: object.kind(),
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, value: &str) -> Arc<Object> {
        let mut map = ConfigMap::default();
        "ns".clone_into(&mut map.metadata.namespace);
        name.clone_into(&mut map.metadata.name);
        map.data.insert("k".to_owned(), value.to_owned());
        Arc::new(Object::ConfigMap(map))
    }

    fn secret(name: &str) -> Arc<Object> {
        let mut secret = Secret::default();
        "ns".clone_into(&mut secret.metadata.namespace);
        name.clone_into(&mut secret.metadata.name);
        Arc::new(Object::Secret(secret))
    }

    fn take(objects: &mut Objects, all: &[Arc<Object>]) -> (Vec<String>, usize) {
        let mut out = Out::default();
        let changed = objects.take(all.iter().cloned(), &mut out);
        let names = changed.into_iter().map(|key| format!("{} {}", key.kind, key.name));
        (names.collect(), out.actions.len())
    }

    #[test]
    fn added_removed_and_changed_objects_are_returned() {
        let mut objects = Objects::default();
        let (a, b) = (map("a", "1"), map("b", "1"));
        let all = [a.clone(), b, secret("a")];
        assert_eq!(take(&mut objects, &all).0, ["ConfigMap a", "ConfigMap b", "Secret a"]);
        assert_eq!(take(&mut objects, &all).0, [] as [&str; 0]);
        assert_eq!(take(&mut objects, &[a, map("b", "1"), secret("a")]).0, [] as [&str; 0]);
        assert_eq!(
            take(&mut objects, &[map("a", "2"), secret("a")]).0,
            ["ConfigMap a", "ConfigMap b"]
        );
        assert_eq!(objects.config_map("ns", "a").expect("it is there").data["k"], "2");
        assert!(objects.secret("ns", "a").is_some());
        assert!(objects.config_map("ns", "b").is_none() && objects.secret("ns", "b").is_none());
        assert!(objects.config_map("other", "a").is_none());
    }

    #[test]
    fn the_first_of_two_objects_of_one_name_stays_with_one_log_line() {
        let mut objects = Objects::default();
        let all = [map("a", "1"), map("a", "2")];
        assert_eq!(take(&mut objects, &all), (vec!["ConfigMap a".to_owned()], 1));
        assert_eq!(objects.config_map("ns", "a").expect("it is there").data["k"], "1");
        assert_eq!(take(&mut objects, &all), (Vec::new(), 0));
        assert_eq!(take(&mut objects, &all[1..]), (vec!["ConfigMap a".to_owned()], 0));
        assert_eq!(take(&mut objects, &all).1, 1, "it is said again when it happens again");
    }
}
