//! What nodes watch through their `MetaServers`: Services, as an agent does that names its watches
//! after each connection and then lists anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::controller::event::{CallId, Event, WatchFact, WatchId};
use edged::model::any_api::AnyCall;
use edged::model::api::CallError;
use edged::model::application::Gvr;
use edged::model::base64;
use edged::model::link::Session;
use edged::model::message::Message;
use edged::model::selector::LabelSelector;
use serde_json::{Value, json};

use crate::any_cluster::labels_of;
use crate::cluster::raw;
use crate::node::Node;
use crate::trace::trace;
use crate::world::{AnyWatch, Due, World};

/// A list that is not answered, or a watch that was rejected, is requested again after this time.
const AGAIN_MS: u64 = 40_000;
const SERVICES: u64 = 8;
const APPS: [&str; 3] = ["a", "b", "c"];

pub fn services() -> Gvr {
    Gvr::new("", "v1", "services")
}

/// What a node watches, and has of it.
#[derive(Default)]
pub struct Listening {
    /// Label selectors.
    watches: Vec<String>,
    /// Services by namespace and name.
    store: BTreeMap<String, Value>,
    /// The versions at which they were deleted.
    gone: BTreeMap<String, u64>,
    /// It has named its watches in this session.
    session: Option<Session>,
    /// The message with which it did, and when that was sent.
    sync: Option<(Box<str>, u64)>,
    /// Some were rejected.
    is_rejected: bool,
    /// The list that is under way: its message, and when it was requested.
    list: Option<(Box<str>, u64)>,
    /// The list of this session has come.
    is_listed: bool,
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn name_of(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

impl Listening {
    /// The node begins a new life.
    pub fn restart(&mut self, is_store_lost: bool) {
        (self.session, self.list, self.is_listed) = (None, None, false);
        if is_store_lost {
            self.store.clear();
            self.gone.clear();
        }
    }

    fn selects(&self, object: &Value) -> bool {
        let labels = labels_of(object);
        let is_selected =
            |text: &String| LabelSelector::parse(text).expect("a selector").matches(&labels);
        self.watches.iter().any(is_selected)
    }

    /// An object is taken unless a newer state of it is known.
    fn put(&mut self, object: Value) {
        let (name, version) = (name_of(&object), version_of(&object));
        let known = self.store.get(&name).map_or(0, version_of);
        let gone = self.gone.get(&name).copied().unwrap_or(0);
        if version > known.max(gone) {
            self.store.insert(name, object);
        }
    }

    fn delete(&mut self, object: &Value) {
        let (name, version) = (name_of(object), version_of(object));
        let known = self.store.get(&name);
        let is_it =
            known.is_some_and(|known| known["metadata"]["uid"] == object["metadata"]["uid"]);
        let version = if is_it { version.max(known.map_or(0, version_of)) } else { version };
        let gone = self.gone.entry(name.clone()).or_default();
        *gone = version.max(*gone);
        if known.is_some_and(|known| version_of(known) <= version) {
            self.store.remove(&name);
        }
    }

    /// A whole list: what is not in it, and not newer, does not exist.
    fn listed(&mut self, list: &Value) {
        let at = version_of(list);
        let items = list["items"].as_array().expect("a list");
        let named: Vec<String> = items.iter().map(name_of).collect();
        self.store.retain(|name, object| named.contains(name) || version_of(object) > at);
        for item in items {
            self.put(item.clone());
        }
    }

    /// A message of the dynamic controller. Returns whether it is to be acknowledged.
    pub fn take(&mut self, message: &Message, content: &Value) -> bool {
        match &*message.route.operation {
            "insert" | "update" => self.put(content.clone()),
            "delete" => self.delete(content),
            _ => {
                if self.list.take_if(|(id, _)| *id == message.header.parent_id).is_some()
                    && content["Status"] == "Approved"
                {
                    let body = content["RespBody"].as_str().and_then(base64::decode);
                    let list = serde_json::from_slice(&body.expect("base64")).expect("JSON");
                    self.listed(&list);
                    self.is_listed = true;
                }
                let of_sync = self.sync.as_ref();
                if of_sync.is_some_and(|(id, _)| *id == message.header.parent_id) {
                    self.is_rejected = content.as_object().is_some_and(|all| !all.is_empty());
                }
                return false;
            }
        }
        true
    }
}

fn application(verb: &str, labels: &str) -> Value {
    let option = json!({"labelSelector": labels}).to_string();
    json!({"ID": format!("{verb} {labels}"), "Key": "/core/v1/services/null/null", "Verb": verb,
        "Option": base64::encode(option.as_bytes()), "ReqBody": null, "Subresource": ""})
}

impl Node {
    fn apply(&mut self, resource: &str, content: &Value) -> Message {
        self.message(["metaserver", "dynamiccontroller", "null", resource], Some(content))
    }
}

impl World {
    /// A node watches what it wants to.
    pub(crate) fn listen(&mut self, name: &str, session: Session) {
        let now = self.now;
        let (changes, at) = (!self.is_over && self.chance.percent(3), self.chance.below(4));
        let node = self.nodes.get_mut(name).expect("a node");
        if changes {
            let selector = APPS.get(at as usize).map_or(String::new(), |app| format!("app={app}"));
            match node.listening.watches.iter().position(|it| *it == selector) {
                Some(at) => drop(node.listening.watches.remove(at)),
                None => node.listening.watches.push(selector),
            }
            node.listening.session = None;
        }
        let sent_at = node.listening.sync.as_ref().map_or(0, |(_, at)| *at);
        let again = node.listening.is_rejected && now >= sent_at + AGAIN_MS;
        if node.listening.session != Some(session) || again {
            node.listening.session = Some(session);
            node.listening.is_rejected = false;
            (node.listening.list, node.listening.is_listed) = (None, false);
            let all: BTreeMap<String, Value> = node
                .listening
                .watches
                .iter()
                .map(|labels| application("watch", labels))
                .map(|watch| (watch["ID"].as_str().expect("an id").to_owned(), watch))
                .collect();
            let message = node.apply("watchapp/sync", &json!(all));
            node.listening.sync = Some((message.header.id.clone(), now));
            self.send_message(name, message);
        }
        let node = self.nodes.get_mut(name).expect("a node");
        let waits = node.listening.list.as_ref().is_some_and(|(_, at)| now < at + AGAIN_MS);
        if !node.listening.watches.is_empty() && !node.listening.is_listed && !waits {
            let message = node.apply("null", &application("list", ""));
            node.listening.list = Some((message.header.id.clone(), now));
            self.send_message(name, message);
        }
    }

    /// It requests what it may not have, and watches of many kinds.
    pub(crate) fn attack_by_metaserver(&mut self, name: &str) {
        let verbs = ["get", "list", "watch", "create", "delete", "patch", "explode"];
        let keys =
            ["/core/v1/secrets/n/s", "/core/v1/services/n/s0", "/a/b/c", "/version", "", "/"];
        let mut application = application(self.chance.pick::<&str>(&verbs), "");
        application["Key"] = json!(self.chance.pick(&keys));
        application["ID"] = json!(self.chance.below(100).to_string());
        let is_sync = self.chance.percent(30);
        let node = self.nodes.get_mut(name).expect("a node");
        let message = if is_sync {
            node.apply("watchapp/sync", &json!({"x": application, "y": [], "z": {}}))
        } else {
            node.apply("null", &application)
        };
        self.send_message(name, message);
    }

    /// The users change Services.
    pub(crate) fn users_change_services(&mut self) {
        let name = format!("s{}", self.chance.below(SERVICES));
        if self.chance.percent(30) {
            return self.any.remove(&services(), "n", &name);
        }
        if self.chance.percent(3) && !self.any.unserved.remove(&services()) {
            self.any.unserved.insert(services());
        }
        let app = *self.chance.pick(&APPS);
        let object = json!({"kind": "Service", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
            "spec": {"x": self.chance.below(1 << 20)}});
        self.any.apply(&services(), object);
    }

    pub(crate) fn call_any_soon(&mut self, at: usize, id: CallId, call: Box<AnyCall>) {
        let (ms, life) = (self.delay_ms(), self.replicas[at].life);
        self.at(ms, Due::CallAny(at, life, id, call));
    }

    pub(crate) fn list_any_soon(&mut self, at: usize, id: WatchId) {
        let (ms, life) = (self.delay_ms(), self.replicas[at].life);
        self.at(ms, Due::ListAny(at, life, id));
    }

    pub(crate) fn unwatch(&mut self, at: usize, id: WatchId) {
        self.replicas[at].watches.remove(&id);
        self.replicas[at].any_watches.remove(&id);
    }

    pub(crate) fn call_any(&mut self, at: usize, life: u64, id: CallId, call: &AnyCall) {
        if self.replicas[at].life != life {
            return;
        }
        let is_lost = !self.api_is_up() || self.chance.percent(self.faults.call_lost_pct);
        let result = self.any.call(call);
        let lost = || CallError::Lost("drawn".to_owned());
        let result = if is_lost { Err(lost()) } else { result };
        self.send_event(at, Event::Called(id, result));
    }

    pub(crate) fn list_any(&mut self, at: usize, life: u64, id: WatchId) {
        if self.replicas[at].life != life {
            return;
        }
        if !self.api_is_up() {
            return self.deliver(at, Event::Watched(id, WatchFact::Ended("refused".to_owned())));
        }
        match self.any.list(&services()) {
            Ok(objects) => {
                let version = self.any.version.to_string().into();
                self.deliver(at, Event::Watched(id, WatchFact::Listed(objects)));
                self.deliver(at, Event::Watched(id, WatchFact::ListEnd(version)));
            }
            Err((code, status)) => {
                self.deliver(at, Event::Watched(id, WatchFact::Refused(code, status)));
            }
        }
    }

    /// A watch of Services begins.
    pub(crate) fn watch_any(&mut self, at: usize, id: WatchId, resource: &Arc<Gvr>, version: &str) {
        assert_eq!(**resource, services(), "nodes watch nothing else");
        let version = version.parse().expect("a version");
        self.replicas[at].any_watches.insert(id, AnyWatch { version, is_due: false });
        self.feed_any_soon(at, id);
    }

    pub(crate) fn feed_any_soon(&mut self, at: usize, id: WatchId) {
        let ms = self.chance.below(self.faults.watch_ms + 1);
        let replica = &mut self.replicas[at];
        if let Some(watch) = replica.any_watches.get_mut(&id) {
            watch.is_due = true;
            let life = replica.life;
            self.at(ms, Due::FeedAny(at, life, id));
        }
    }

    /// Watches with pending changes report them after a while.
    pub(crate) fn feed_any(&mut self) {
        for at in 0..self.replicas.len() {
            let idle = self.replicas[at].any_watches.iter().filter(|(_, watch)| !watch.is_due);
            let idle: Vec<(WatchId, u64)> = idle.map(|(id, watch)| (*id, watch.version)).collect();
            for (id, version) in idle {
                if self.any.after(&services(), version) != Ok(None) {
                    self.feed_any_soon(at, id);
                }
            }
        }
    }

    pub(crate) fn any_watch_tells(&mut self, at: usize, life: u64, id: WatchId) {
        if self.replicas[at].life != life {
            return;
        }
        let Some(watch) = self.replicas[at].any_watches.get_mut(&id) else { return };
        watch.is_due = false;
        let next = self.any.after(&services(), watch.version);
        let next = next.map(|next| next.map(|(at, gone, object)| (at, gone, raw(object))));
        let ends = self.chance.percent(self.faults.watch_ends_pct);
        let fact = match next {
            _ if !self.api_is_up() => WatchFact::Ended("the API server is down".to_owned()),
            Err(()) => WatchFact::Gone,
            Ok(None) => return,
            Ok(Some(_)) if ends => WatchFact::Ended("drawn".to_owned()),
            Ok(Some((up_to, gone, object))) => {
                if let Some(watch) = self.replicas[at].any_watches.get_mut(&id) {
                    watch.version = up_to;
                }
                let fact =
                    if gone { WatchFact::Deleted(object) } else { WatchFact::Changed(object) };
                self.deliver(at, Event::Watched(id, fact));
                return self.feed_any_soon(at, id);
            }
        };
        self.replicas[at].any_watches.remove(&id);
        self.deliver(at, Event::Watched(id, fact));
    }

    /// What a node's watches do not have as the API server has it.
    pub(crate) fn listening_unsettled(&self, name: &str) -> Option<String> {
        let listening = &self.nodes[name].listening;
        if listening.is_rejected {
            // It will name them again.
            return Some(format!("{name} watches {:?}, which was rejected", listening.watches));
        }
        let link = self.nodes[name].session.and_then(|session| self.links.get(&session));
        let replica = link.map(|link| &self.replicas[link.replica]);
        if !listening.watches.is_empty() && replica.is_some_and(|it| it.any_watches.is_empty()) {
            // A kind that was not there is looked for each minute, and then sent as a whole.
            return Some(format!("{name}: its replica does not watch Services yet"));
        }
        let resource = services();
        let live = self.any.of(&resource).filter(|(_, object)| listening.selects(object));
        let live: BTreeMap<String, &Value> = live
            .map(|(_, object)| (name_of(object), &object["metadata"]["resourceVersion"]))
            .collect();
        let has = listening.store.iter().filter(|(_, object)| listening.selects(object));
        let has: BTreeMap<String, &Value> = has
            .map(|(key, object)| (key.clone(), &object["metadata"]["resourceVersion"]))
            .collect();
        trace!(self.now, "  {name} watches {:?}", listening.watches);
        (live != has).then(|| {
            format!("{name} watches {:?} and has {has:?}, expected {live:?}", listening.watches)
        })
    }
}
