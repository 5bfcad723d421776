//! Mirror pods of static pods: how the API server admits them, and whether they are right at the
//! end.

use edged::model::message::{Message, Resource};
use edged::model::pod::Pod;
use serde_json::{Value, json};

use super::CloudSim;
use super::answers::{Answer, failed};
use super::api::{Api, ChangeKind};
use super::ends::misreported;
use super::rules::content;
use crate::chance::Chance;
use crate::check::events::first_of_each_name;
use crate::rule::judge;
use crate::world::{NODE, World};

/// The annotation that identifies the static pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The API server refuses a mirror of a pod that uses such objects (its `ServiceAccount`
/// admission).
fn is_forbidden(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|it| it.config_map.is_some() || it.secret.is_some())
}

fn key_of(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    let namespace = Some(&*metadata.namespace).filter(|it| !it.is_empty()).unwrap_or("default");
    format!("{namespace}/pod/{}-{NODE}", metadata.name)
}

impl CloudSim {
    /// The node creates a pod: only mirrors are allowed.
    pub(super) fn mirror(&mut self, resource: &Resource<'_>, message: &Message) -> Answer {
        let mut value = content(message);
        let metadata = &value["metadata"];
        let named = [metadata["namespace"].as_str(), metadata["name"].as_str()];
        let route = [resource.namespace, Some(resource.name)];
        judge!(named == route, "[mirrors] {named:?} under the name of {route:?}");
        judge!(metadata["annotations"][MIRROR].is_string(), "[mirrors] {metadata} is no mirror");
        judge!(value["spec"]["nodeName"] == NODE, "[mirrors] a mirror for another node");
        let owner = self.api.get(&format!("null/node/{NODE}")).map(|it| it.uid.clone());
        let owner_uid = metadata["ownerReferences"][0]["uid"].as_str();
        judge!(
            owner.as_deref() == owner_uid,
            "[mirrors] {owner_uid:?} is not the node, which is {owner:?}"
        );
        let key = resource.to_string();
        if self.api.get(&key).is_some() {
            return Answer::Plain(failed(409, "AlreadyExists"));
        }
        let pod: Pod = serde_json::from_value(value.clone()).expect("a pod");
        if is_forbidden(&pod) {
            return Answer::Plain(failed(403, "Forbidden"));
        }
        value["metadata"]["uid"] = (*self.api.uid()).into();
        value["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
        self.count("mirrors made");
        Answer::Typed(self.api.put(&key, value, ChangeKind::Added))
    }
}

impl Api {
    /// A user deletes a mirror, which does not affect the static pod.
    pub(super) fn end_mirror(&mut self, chance: &mut Chance) -> &'static str {
        let is_mirror = |value: &Value| value["metadata"]["annotations"][MIRROR].is_string();
        let all = self.iter().filter(|(_, object)| is_mirror(object.value()));
        let keys: Vec<Box<str>> = all.map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return "nothing";
        }
        let key = chance.pick(&keys);
        let mut value = self.get(key).expect("just listed").value().clone();
        value["metadata"]["deletionTimestamp"] = "2025-11-20T01:00:30Z".into();
        value["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        self.put(key, value, ChangeKind::Changed);
        "delete mirror"
    }
}

impl World {
    /// A static pod without a mirror of the same status, or a mirror without its static pod.
    pub(super) fn mismirrored(&self) -> Option<String> {
        let cloud = self.cloud.as_deref()?;
        let wanted = first_of_each_name(self.folder.pods());
        for (uid, pod) in &wanted {
            let key = key_of(pod);
            let mirror = cloud.api.get(&key);
            let (Some(pod_status), false) = (self.agent.pod(uid), is_forbidden(pod)) else {
                continue;
            };
            let Some(mirror) = mirror else { return Some(format!("{key} has no mirror")) };
            let of = mirror.value()["metadata"]["annotations"][MIRROR].as_str();
            if of != Some(&**uid) {
                return Some(format!("the mirror {key} is of {of:?}, expected {uid}"));
            }
            if let Some(why) = misreported(&key, &mirror.value()["status"], pod_status) {
                return Some(why);
            }
        }
        let keys: Vec<String> = wanted.values().map(|pod| key_of(pod)).collect();
        let left = cloud.api.iter().find(|(key, object)| {
            let is_mirror = object.value()["metadata"]["annotations"][MIRROR].is_string();
            is_mirror && !keys.iter().any(|other| *other == ***key)
        });
        left.map(|(key, _)| format!("{key} is the mirror of no pod"))
    }
}
