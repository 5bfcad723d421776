//! What CloudCore does with messages of the node (wire spec sections 2.7 and 5).

use edged::model::base64;
use edged::model::message::{Message, Resource};
use serde::{Serialize, Serializer};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::api::{ChangeKind, Object};
use super::hub::{Cause, is_over};
use super::mirrors::MIRROR;
use super::rules::content;
use super::{CloudSim, Due};
use crate::rule::judge;
use crate::trace::trace;

impl CloudSim {
    /// A message of the node has arrived.
    pub(super) fn receive(&mut self, now: u64, conn: u64, message: &Message) {
        if self.hub.conn != Some(conn) {
            return;
        }
        let route = &message.route;
        let parent = &message.header.parent_id;
        trace!(now, "    cloud hears {} {} {parent}", route.operation, route.resource);
        match &*route.operation {
            "keepalive" => self.hub.alive_at = now,
            "response" => self.hub.acknowledged(parent),
            "error" => {}
            _ => self.request(now, conn, message),
        }
        self.inform();
    }

    fn request(&mut self, now: u64, conn: u64, message: &Message) {
        let mute = self.chance.percent(self.rates.mute_pct);
        let done = self.chance.percent(50);
        // Nobody answers a report of a job: what is heard is recorded.
        if self.job_report(now, message) || mute && !done {
            return;
        }
        let route = &message.route;
        if &*route.source == "metaserver" {
            return self.dynamic(now, conn, message, mute);
        }
        if &*route.source == "twin" {
            return self.devices_report(now, conn, message, mute);
        }
        let Some(resource) = Resource::parse(&route.resource) else { return };
        let namespace = resource.namespace.unwrap_or("null");
        let name = resource.name;
        let fails = self.chance.percent(self.rates.fail_pct);
        let answer = match (&*route.operation, resource.kind) {
            ("patch" | "insert" | "update", _) if fails => Answer::Plain(self.failure()),
            ("patch", "podpatch") => {
                self.patch_pod(now, &format!("{namespace}/pod/{name}"), message)
            }
            ("delete", "pod") if fails => {
                let refusal = refusal(500, "InternalError");
                Answer::Plain(json!({"ErrStatus": refusal["ErrStatus"]}))
            }
            ("delete", "pod") => Answer::Plain(self.delete_pod(&route.resource, message)),
            ("insert", "pod") => self.mirror(&resource, message),
            ("query", "configmap" | "secret" | "persistentvolume" | "persistentvolumeclaim") => {
                match self.api.get(&route.resource).cloned() {
                    Some(object) => {
                        let answer = Cause::Answer(&message.header.id, &route.resource);
                        self.hub.line_up("response", &route.resource, &object, answer);
                        return;
                    }
                    None => Answer::Plain(refusal(404, "NotFound")),
                }
            }
            (_, "node" | "nodepatch" | "lease") => {
                self.node(&route.operation, (resource.kind, name), message)
            }
            _ => return,
        };
        if !mute {
            self.respond(conn, message, &answer);
        }
    }

    /// Sends the answer.
    fn respond(&mut self, conn: u64, to: &Message, answer: &Answer) {
        let (resource, parent) = (&to.route.resource, &to.header.id);
        let answer = match answer {
            Answer::List(content) => {
                let resource = match &**resource {
                    "watchapp/sync" => "watchapp/sync",
                    _ => "ignore/Application/ignore",
                };
                self.hub.message("applicationResponse", resource, parent, content)
            }
            Answer::Plain(content) => self.hub.message("response", resource, parent, content),
            Answer::Object(object) => {
                let taken = Taken { object: object.value(), error: () };
                self.hub.about("response", resource, parent, to_raw_value(&taken).expect("JSON"))
            }
            Answer::Typed(object) => {
                let taken = Taken { object: Typed(object.value()), error: () };
                self.hub.about("response", resource, parent, to_raw_value(&taken).expect("JSON"))
            }
        };
        self.answer_later(conn, answer);
    }

    /// Sends an answer once the API server has answered.
    pub(super) fn answer_later(&mut self, conn: u64, answer: Message) {
        self.last_answer += 1;
        let serial = self.last_answer;
        self.answers.insert(serial, (conn, answer));
        let ms = self.chance.below(self.rates.api_ms + 1);
        self.timers.push((ms, Due::Answer(serial)));
    }

    /// A request to the dynamic controller, if there is one.
    fn dynamic(&mut self, now: u64, conn: u64, message: &Message, is_mute: bool) {
        if !self.rates.lists {
            return;
        }
        let asked = content(message);
        let answer = if &*message.route.resource == "watchapp/sync" {
            Some(self.informers_watches(&asked))
        } else {
            self.informers_application(now, &asked)
        };
        if is_mute {
            return;
        }
        if &*message.route.resource == "watchapp/sync" {
            self.count("watches taken");
        }
        let answer = Answer::List(answer.unwrap_or_else(|| self.list(message)));
        self.respond(conn, message, &answer);
    }

    /// The dynamic controller's answer to the request for the node's pods, or for Services.
    fn list(&mut self, message: &Message) -> Value {
        let mut reply: Value =
            serde_json::from_str(message.content.as_ref().expect("a question").get())
                .expect("JSON");
        if self.chance.percent(self.rates.fail_pct) {
            reply["Status"] = "Rejected".into();
            return reply;
        }
        let options = reply["Option"].as_str().and_then(base64::decode).expect("base64");
        let options: Value = serde_json::from_slice(&options).expect("JSON");
        let behind = options["continue"].as_str().unwrap_or_default().to_owned();
        let limit = options["limit"].as_u64().expect("a number") as usize;
        let is_services = reply["Key"].as_str().is_some_and(|key| key.contains("/services/"));
        let (part, kind) =
            if is_services { ("/service/", "ServiceList") } else { ("/pod/", "PodList") };
        let all = self.api.iter().filter(|(key, _)| key.contains(part));
        let left = all.filter(|(key, _)| ***key > *behind);
        let mut left: Vec<_> = left.map(|(key, object)| (key, object.value())).collect();
        let more = left.len() > limit;
        left.truncate(limit);
        let next = left.last().filter(|_| more).map(|(key, _)| key.to_string());
        let items: Vec<&Value> = left.into_iter().map(|(_, value)| value).collect();
        let list = json!({"kind": kind, "metadata": {"continue": next}, "items": items});
        reply["RespBody"] = base64::encode(list.to_string().as_bytes()).into();
        reply["Status"] = "Approved".into();
        self.count("lists answered");
        reply
    }

    /// The answer of a cloud whose request failed.
    fn failure(&mut self) -> Value {
        let none = json!({"metadata": {"creationTimestamp": null}, "spec": {}, "status": {}});
        let error = match self.chance.below(3) {
            // As Go's CloudCore answers when the API server is unreachable.
            0 => json!({}),
            1 => refusal(500, "InternalError"),
            _ => refusal(429, "TooManyRequests"),
        };
        json!({"Object": none, "Err": error})
    }

    fn patch_pod(&mut self, now: u64, key: &str, message: &Message) -> Answer {
        let patch = content(message);
        let uid = patch["metadata"]["uid"].as_str().unwrap_or_default();
        let Some(object) = self.api.get(key) else {
            let mut reply = failed(404, "NotFound");
            let name = key.rsplit('/').next().expect("a name");
            reply["Err"]["ErrStatus"]["message"] = format!("pods \"{name}\" not found").into();
            return Answer::Plain(reply);
        };
        if *object.uid != *uid {
            return Answer::Plain(failed(409, "Conflict"));
        }
        let before = object.value()["status"]["phase"].clone();
        let foreign = |value: &Value| {
            let conditions = value["status"]["conditions"].as_array();
            let all = conditions.into_iter().flatten();
            all.filter(|it| it["type"] == "example.com/checked").count()
        };
        let count = foreign(object.value());
        let object = self.api.report(key, &patch);
        let phase = object.value()["status"]["phase"].as_str().unwrap_or_default();
        trace!(now, "    cloud takes the status of {key}, {phase}: {}", patch["status"]);
        judge!(
            count == foreign(object.value()),
            "[others' conditions] {key} loses a condition that is not the node's: {patch}"
        );
        // A life that was cut off before it received the answer may not know it.
        let known = self.store.get(key).and_then(|row| row.pod.as_ref().map(|pod| (row, pod)));
        let over =
            known.is_some_and(|(row, pod)| row.uid == object.uid && pod.status.phase.is_terminal());
        judge!(
            !over || before == phase,
            "[ended is ended] {key} was {before}, is reported as {phase}"
        );
        Answer::Typed(object)
    }

    fn delete_pod(&mut self, key: &str, message: &Message) -> Value {
        let options = content(message);
        let uid = options["preconditions"]["uid"].as_str().unwrap_or_default();
        if let Some(object) = self.api.get(key).filter(|object| *object.uid == *uid) {
            if object.value()["metadata"]["annotations"][MIRROR].is_string() {
                self.api.remove(key);
                return json!("OK");
            }
            let phase = object.value()["status"]["phase"].as_str().unwrap_or_default();
            judge!(is_over(phase), "[delete last] {key} is to be deleted, and is {phase:?}");
            let ends = object.value()["metadata"].get("deletionTimestamp").is_some();
            judge!(
                ends,
                "[delete last] {key} is deleted by its node, and nobody has requested that"
            );
            self.api.remove(key);
        }
        json!("OK")
    }

    fn node(&mut self, operation: &str, (kind, name): (&str, &str), message: &Message) -> Answer {
        let key = match kind {
            "lease" => format!("kube-node-lease/lease/{name}"),
            _ => format!("null/node/{name}"),
        };
        let there = self.api.get(&key).cloned();
        let object = match (operation, there) {
            ("insert", Some(_)) => return Answer::Plain(failed(409, "AlreadyExists")),
            ("insert", None) => {
                let mut value = content(message);
                value["metadata"]["uid"] = format!("{kind}-uid").into();
                self.api.put(&key, value, ChangeKind::Added)
            }
            (_, None) => return Answer::Plain(failed(404, "NotFound")),
            ("query", Some(object)) if kind == "node" => {
                let mut value = object.value().clone();
                value["kind"] = "Node".into();
                return Answer::Plain(value);
            }
            ("query", Some(object)) => object,
            ("patch", Some(_)) => self.api.report(&key, &content(message)),
            (_, Some(object)) => {
                let mut value = content(message);
                let version = &value["metadata"]["resourceVersion"];
                if kind == "lease"
                    && version.as_str().is_some_and(|version| version.parse() != Ok(object.version))
                {
                    return Answer::Plain(failed(409, "Conflict"));
                }
                value["metadata"]["uid"] = (*object.uid).into();
                let object = self.api.put(&key, value, ChangeKind::Changed);
                if kind == "node" {
                    return Answer::Plain(json!("OK"));
                }
                object
            }
        };
        Answer::Object(object)
    }
}

/// The content of an answer.
pub(super) enum Answer {
    Plain(Value),
    /// In MetaServer's format.
    List(Value),
    /// The object as it is now.
    Object(Object),
    /// An object without `kind` and `apiVersion`.
    Typed(Object),
}

/// The form in which the cloud confirms a request.
#[derive(Serialize)]
struct Taken<T> {
    #[serde(rename = "Object")]
    object: T,
    #[serde(rename = "Err")]
    error: (),
}

struct Typed<'a>(&'a Value);

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let all = self.0.as_object().into_iter().flatten();
        to.collect_map(all.filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion")))
    }
}

fn refusal(code: u16, reason: &str) -> Value {
    json!({"ErrStatus": {"metadata": {}, "status": "Failure", "message": "no", "reason": reason,
        "code": code}})
}

pub(super) fn failed(code: u16, reason: &str) -> Value {
    json!({"Object": null, "Err": refusal(code, reason)})
}
