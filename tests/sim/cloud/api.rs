//! The API server's objects, and the users who create, change and delete them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use edged::model::base64;
use edged::model::pod::Pod;
use edged::model::status::PodStatus;
use edged::model::time::Timestamp;
use serde::Deserialize as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::held::Marks;
use super::mirrors::MIRROR;
use super::{hub, merge};
use crate::chance::Chance;
use crate::draw::{self, Drawer};
use crate::world::NODE;

pub struct Api {
    /// By key: `default/pod/web`.
    objects: BTreeMap<Box<str>, Object>,
    /// The last `resourceVersion`.
    version: u64,
    /// Changes for the informers.
    changes: Vec<Change>,
    drawer: Drawer,
    uids: u64,
    pods_wished: usize,
    /// Deleted pods that come back under their names.
    replaced: Vec<(Box<str>, Pod)>,
    /// Another controller owns a condition of each pod.
    foreign: bool,
    /// Who marks pods to be held, in some worlds.
    marks: Option<Marks>,
}

/// One object.
#[derive(Clone)]
pub struct Object {
    /// Identifies this incarnation.
    pub uid: Box<str>,
    /// `resourceVersion`
    pub version: u64,
    /// The whole object.
    body: Rc<Body>,
    /// Of a pod, its typed form.
    pub pod: Option<Rc<Pod>>,
}

/// The content of an object, and values derived from it once, on demand.
struct Body {
    value: Value,
    text: OnceCell<Box<RawValue>>,
    essence: OnceCell<u64>,
}

impl Object {
    /// An object that the node receives.
    pub fn new(uid: Box<str>, version: u64, value: Value, pod: Option<Rc<Pod>>) -> Self {
        let body = Body { value, text: OnceCell::new(), essence: OnceCell::new() };
        Self { uid, version, body: Rc::new(body), pod }
    }

    /// The whole object.
    pub fn value(&self) -> &Value {
        &self.body.value
    }

    /// As JSON.
    pub fn text(&self) -> &RawValue {
        self.body.text.get_or_init(|| to_raw_value(&self.body.value).expect("JSON"))
    }

    /// A hash of all that makes a difference to a node.
    pub fn essence(&self) -> u64 {
        *self.body.essence.get_or_init(|| hub::essence(&self.body.value))
    }
}

/// A change that informers report.
#[derive(Clone)]
pub struct Change {
    /// The kind of change.
    pub action: ChangeKind,
    /// The object's key.
    pub key: Box<str>,
    /// The object as it is, or was last.
    pub object: Object,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Changed,
    /// Only its status changed.
    Reported,
    Deleted,
}

pub const NAMESPACES: [&str; 2] = ["default", "site"];
const NAMES: u64 = 3;

impl Api {
    /// `pods_wished`: about how many pods the users want.
    pub fn new(drawer: Drawer, pods_wished: usize, foreign: bool, marks: Option<Marks>) -> Self {
        Self {
            objects: BTreeMap::new(),
            version: 100,
            changes: Vec::new(),
            drawer,
            uids: 0,
            pods_wished,
            replaced: Vec::new(),
            foreign,
            marks,
        }
    }

    /// Changes that informers have not reported yet.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The last `resourceVersion`.
    #[cfg_attr(not(feature = "metaserver"), expect(dead_code, reason = "nobody lists"))]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, key: &str) -> Option<&Object> {
        self.objects.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Box<str>, &Object)> {
        self.objects.iter()
    }

    /// All pods, including those being deleted.
    pub fn pods(&self) -> impl Iterator<Item = (&Box<str>, &Object, &Rc<Pod>)> {
        self.objects.iter().filter_map(|(key, it)| Some((key, it, it.pod.as_ref()?)))
    }

    /// The pods that are to run.
    pub fn wanted(&self) -> impl Iterator<Item = (&Box<str>, &Object, &Rc<Pod>)> {
        self.pods().filter(|(_, _, pod)| pod.metadata.deletion_timestamp.is_none())
    }

    /// Whether some pod on the node names the object.
    pub fn is_used(&self, key: &str) -> bool {
        self.pods().any(|(_, _, pod)| {
            let namespace = &pod.metadata.namespace;
            pod.spec.volumes.iter().any(|volume| {
                let map = volume.config_map.as_ref();
                let secret = volume.secret.as_ref();
                map.is_some_and(|it| *key == *format!("{namespace}/configmap/{}", it.name))
                    || secret
                        .is_some_and(|it| *key == *format!("{namespace}/secret/{}", it.secret_name))
            })
        })
    }

    pub(super) fn uid(&mut self) -> Box<str> {
        self.uids += 1;
        format!("c-{}", self.uids).into()
    }

    /// Creates or replaces an object.
    pub fn put(&mut self, key: &str, mut value: Value, action: ChangeKind) -> Object {
        self.version += 1;
        let version = self.version;
        value["metadata"]["resourceVersion"] = version.to_string().into();
        value["metadata"]["managedFields"] = json!([{"manager": "x", "time": version}]);
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().into();
        let is_mirror = value["metadata"]["annotations"][MIRROR].is_string();
        let pod = (value["kind"] == "Pod" && !is_mirror).then(|| {
            let old = self.objects.get(key).and_then(|old| old.pod.clone());
            match old.filter(|_| action == ChangeKind::Reported) {
                Some(pod) => pod,
                None => Rc::new(Pod::deserialize(&value).expect("a pod")),
            }
        });
        let object = Object::new(uid, version, value, pod);
        self.objects.insert(key.into(), object.clone());
        self.changes.push(Change { action, key: key.into(), object: object.clone() });
        object
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &str) {
        if let Some(object) = self.objects.remove(key) {
            self.version += 1;
            let mut value = object.value().clone();
            value["metadata"]["resourceVersion"] = self.version.to_string().into();
            let object = Object::new(object.uid, self.version, value, object.pod);
            self.changes.push(Change { action: ChangeKind::Deleted, key: key.into(), object });
        }
        let back = self.replaced.iter().position(|(other, _)| **other == *key);
        if let Some(at) = back {
            let (_, pod) = self.replaced.remove(at);
            self.make(pod);
        }
    }

    /// A user creates this pod.
    fn make(&mut self, mut pod: Pod) {
        pod.metadata.uid = self.uid().into();
        if let Some(marks) = &mut self.marks {
            marks.give(&mut pod.metadata.annotations);
        }
        Arc::make_mut(&mut pod.spec).node_name = Some(NODE.to_owned());
        let mut value = serde_json::to_value(&pod).expect("plain data");
        value["kind"] = "Pod".into();
        value["apiVersion"] = "v1".into();
        let mut conditions = vec![json!({"type": "PodScheduled", "status": "True",
            "lastProbeTime": null, "lastTransitionTime": "2025-11-20T01:00:00Z"})];
        if self.foreign {
            conditions.push(json!({"type": "example.com/checked", "status": "True",
                "lastProbeTime": null, "lastTransitionTime": "2025-11-20T01:00:00Z"}));
        }
        value["status"] =
            json!({"phase": "Pending", "qosClass": "BestEffort", "conditions": conditions});
        let key = key_of(&pod);
        self.put(&key, value, ChangeKind::Added);
    }

    /// The node writes its part of a pod: the status.
    pub fn report(&mut self, key: &str, patch: &Value) -> Object {
        let old = &self.objects[key];
        let mut value = old.value().clone();
        if let Some(status) = patch.get("status") {
            merge::apply(&mut value["status"], status);
        }
        if value == *old.value() {
            // Then the API server does not write.
            return old.clone();
        }
        self.put(key, value, ChangeKind::Reported)
    }

    /// `kubectl delete`: a pod of the node gets a grace period.
    pub fn delete(&mut self, key: &str, grace_s: Option<i64>, wall_s: i64) {
        let Some(object) = self.objects.get(key) else { return };
        let Some(pod) = &object.pod else { return self.remove(key) };
        let whole_s = pod.spec.termination_grace_period_seconds.unwrap_or(30);
        let mut grace_s = grace_s.unwrap_or(whole_s).max(0);
        let before = pod.metadata.deletion_grace_period_seconds;
        if grace_s == 0 {
            return self.remove(key);
        }
        // A second deletion can only shorten it.
        if before.is_some_and(|before| before <= grace_s) {
            return;
        }
        let mut value = object.value().clone();
        grace_s = grace_s.max(1);
        let at = Timestamp(wall_s + grace_s).to_string();
        value["metadata"]["deletionTimestamp"] = at.into();
        value["metadata"]["deletionGracePeriodSeconds"] = grace_s.into();
        self.put(key, value, ChangeKind::Changed);
    }

    /// Restores every object that pods use.
    pub fn heal(&mut self) {
        for namespace in NAMESPACES {
            for kind in ["configmap", "secret"] {
                for name in 0..NAMES {
                    self.write(namespace, kind, name, Write::IfMissing);
                }
            }
            for name in 0..NAMES {
                self.bind(namespace, name);
            }
        }
    }

    fn write(&mut self, namespace: &str, kind: &str, name: u64, how: Write) {
        let name = format!("{}{name}", if kind == "secret" { "s" } else { "cm" });
        let key = format!("{namespace}/{kind}/{name}");
        let old = self.objects.get(&*key).map(|old| old.uid.clone());
        if old.is_some() && how == Write::IfMissing {
            return;
        }
        let action = if old.is_some() { ChangeKind::Changed } else { ChangeKind::Added };
        let uid = old.unwrap_or_else(|| self.uid());
        let text = (self.version + 1).to_string();
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid});
        let value = if kind == "secret" {
            let data = base64::encode(text.as_bytes());
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata,
                "type": "Opaque", "data": {"key": data}})
        } else {
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata,
                "data": {"key": text}})
        };
        self.put(&key, value, action);
    }

    /// A claim is bound to its volume. That it was unbound is not reported: no informer watches
    /// claims.
    fn bind(&mut self, namespace: &str, name: u64) {
        let (name, volume) = (format!("claim{name}"), format!("pv-{namespace}-{name}"));
        let kept_for = json!({"namespace": namespace, "name": name});
        self.fill(&format!("null/persistentvolume/{volume}"), |uid| {
            json!({"kind": "PersistentVolume", "apiVersion": "v1",
                "metadata": {"name": volume, "uid": uid},
                "spec": {"local": {"path": "/mnt/ssd"}, "claimRef": kept_for}})
        });
        self.fill(&format!("{namespace}/persistentvolumeclaim/{name}"), |uid| {
            json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "spec": {"volumeName": volume}})
        });
    }

    /// Creates an object that is missing or incomplete.
    fn fill(&mut self, key: &str, value: impl FnOnce(&str) -> Value) {
        let old = self.objects.get(key).map(|old| (old.uid.clone(), old.value()["spec"].clone()));
        let uid = old.as_ref().map_or_else(|| self.uid(), |(uid, _)| uid.clone());
        let value = value(&uid);
        let action = if old.is_some() { ChangeKind::Changed } else { ChangeKind::Added };
        if old.is_none_or(|(_, spec)| spec != value["spec"]) {
            self.put(key, value, action);
        }
    }

    /// A claim is created again, and waits for a volume.
    fn unbind(&mut self, namespace: &str, name: u64) {
        let name = format!("claim{name}");
        let key = format!("{namespace}/persistentvolumeclaim/{name}");
        self.remove(&key);
        self.fill(&key, |uid| {
            json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": {}})
        });
    }

    /// The text of a file of this object; `None`: there is no such object.
    pub fn text(&self, key: &str) -> Option<String> {
        text(self.objects.get(key)?.value())
    }

    /// A user changes something.
    pub fn change(&mut self, wall_s: i64, chance: &mut Chance) -> &'static str {
        let pods = self.wanted().count();
        if pods * 2 < self.pods_wished {
            return self.add(chance);
        }
        match chance.below(100) {
            0..25 if pods < self.pods_wished * 3 / 2 => self.add(chance),
            0..18 => self.change_object(chance),
            18..45 => self.end(wall_s, chance),
            45..55 => self.replace(wall_s, chance),
            55..70 => self.edit(chance, draw::change_image),
            70..78 => self.edit(chance, |pod, chance| {
                let label = chance.below(9).to_string();
                pod.metadata.labels.insert("tier".to_owned(), label);
            }),
            79..83 => self.change_claim(chance),
            83..85 => self.end_mirror(chance),
            78 if chance.percent(30) => {
                let all: Vec<Box<str>> = self.pods().map(|(key, ..)| key.clone()).collect();
                for key in &all {
                    self.delete(key, None, wall_s);
                }
                "delete all"
            }
            _ => "nothing",
        }
    }

    /// A user creates a pod.
    pub fn add(&mut self, chance: &mut Chance) -> &'static str {
        let mut pod = self.drawer.pod(chance);
        pod.metadata.name = format!("c{}", pod.metadata.name);
        self.make(pod);
        "add"
    }

    fn some(&self, chance: &mut Chance) -> Option<Box<str>> {
        let count = self.pods().count();
        if count == 0 {
            return None;
        }
        self.pods().nth(chance.index(count)).map(|(key, ..)| key.clone())
    }

    fn grace_s(chance: &mut Chance) -> Option<i64> {
        match chance.below(10) {
            0..6 => None,
            6..8 => Some(0),
            8 => Some(1),
            _ => Some(chance.between(1, 100) as i64),
        }
    }

    fn end(&mut self, wall_s: i64, chance: &mut Chance) -> &'static str {
        let Some(key) = self.some(chance) else { return "nothing" };
        let grace_s = Self::grace_s(chance);
        self.delete(&key, grace_s, wall_s);
        "delete"
    }

    /// As a StatefulSet does: the next pod of the name after this one is removed.
    fn replace(&mut self, wall_s: i64, chance: &mut Chance) -> &'static str {
        let Some(key) = self.some(chance) else { return "nothing" };
        let mut pod = (**self.objects[&key].pod.as_ref().expect("a pod")).clone();
        pod.metadata.deletion_timestamp = None;
        pod.metadata.deletion_grace_period_seconds = None;
        pod.metadata.rest.clear();
        pod.status = PodStatus::default();
        draw::change_image(&mut pod, chance);
        if self.replaced.iter().all(|(other, _)| *other != key) {
            self.replaced.push((key.clone(), pod));
        }
        let grace_s = Self::grace_s(chance);
        self.delete(&key, grace_s, wall_s);
        "replace"
    }

    fn edit(&mut self, chance: &mut Chance, how: fn(&mut Pod, &mut Chance)) -> &'static str {
        let Some(key) = self.some(chance) else { return "nothing" };
        let object = &self.objects[&key];
        let mut pod = (**object.pod.as_ref().expect("a pod")).clone();
        how(&mut pod, chance);
        let mut value = object.value().clone();
        value["spec"] = serde_json::to_value(&pod.spec).expect("plain data");
        value["metadata"]["labels"] = json!(pod.metadata.labels);
        if value == *object.value() {
            return "nothing";
        }
        self.put(&key, value, ChangeKind::Changed);
        "edit"
    }

    fn change_claim(&mut self, chance: &mut Chance) -> &'static str {
        let (namespace, name) = (*chance.pick(&NAMESPACES), chance.below(NAMES));
        if chance.percent(40) {
            self.unbind(namespace, name);
            return "make a claim anew";
        }
        self.bind(namespace, name);
        "bind a claim"
    }

    fn change_object(&mut self, chance: &mut Chance) -> &'static str {
        let kind = *chance.pick(&["configmap", "secret"]);
        let (namespace, name) = (*chance.pick(&NAMESPACES), chance.below(NAMES));
        if chance.percent(20) {
            let short = if kind == "secret" { "s" } else { "cm" };
            self.remove(&format!("{namespace}/{kind}/{short}{name}"));
            return "delete object";
        }
        self.write(namespace, kind, name, Write::Anyway);
        "change object"
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    IfMissing,
    Anyway,
}

/// The text of a file of this object.
pub fn text(value: &Value) -> Option<String> {
    let text = value["data"]["key"].as_str()?;
    if value["kind"] == "Secret" {
        return String::from_utf8(base64::decode(text)?).ok();
    }
    Some(text.to_owned())
}

/// `default/pod/web`
fn key_of(pod: &Pod) -> Box<str> {
    format!("{}/pod/{}", pod.metadata.namespace, pod.metadata.name).into()
}
