//! Invalid messages: old ones, broken ones, and those for other nodes.

use std::rc::Rc;

use edged::model::message::{Header, Message};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::CloudSim;
use super::hub::Sent;
use crate::trace::trace;
use crate::world::NODE;

impl CloudSim {
    /// An invalid message arrives.
    pub(super) fn mischief(&mut self, now: u64) {
        if self.hub.conn.is_none() {
            return;
        }
        let message = match self.chance.below(8) {
            0..3 => self.old(),
            3 => self.broken(),
            4 => Some(self.unknown()),
            5 => self.nameless_deletion(),
            6 => Some(self.of_others()),
            _ => self.old_deletion(),
        };
        if let Some(message) = message {
            let route = &message.route;
            trace!(now, "mischief: {} {} {}", route.operation, route.resource, message.header.id);
            self.hub.written.push(message);
        }
    }

    /// A message that was sent before over this connection, as it was or with another id.
    fn old(&mut self) -> Option<Message> {
        let count = self.hub.history.len();
        if count == 0 {
            return None;
        }
        let (message, sent) = self.hub.history[self.chance.index(count)].clone();
        let mut message = (*message).clone();
        if self.chance.percent(50) {
            message.header.id = self.hub.id();
            message.header.parent_id = "".into();
            if &*message.route.operation == "response" {
                message.route.operation = "update".into();
            }
            self.hub.sent.insert(message.header.id.clone(), sent);
        }
        Some(message)
    }

    fn some_key(&mut self) -> Option<Box<str>> {
        let count = self.api.iter().count();
        if count == 0 {
            return None;
        }
        let at = self.chance.index(count);
        self.api.iter().nth(at).map(|(key, _)| key.clone())
    }

    fn broken(&mut self) -> Option<Message> {
        let key = self.some_key()?;
        let content = match self.chance.below(4) {
            0 => json!("this is no object"),
            1 => json!({"metadata": 5, "spec": []}),
            2 => Value::Null,
            _ => json!([1, 2, 3]),
        };
        Some(self.nonsense("update", &key, &content))
    }

    fn nonsense(&mut self, operation: &str, key: &str, content: &Value) -> Message {
        let message = self.hub.message(operation, key, "", content);
        let sent = Sent {
            key: key.into(),
            uid: "".into(),
            version: 0,
            gone: false,
            essence: 0,
            nonsense: true,
            is_cached: false,
        };
        self.hub.sent.insert(message.header.id.clone(), Rc::new(sent));
        message
    }

    fn unknown(&mut self) -> Message {
        let content = json!({"kind": "Device", "metadata": {"name": "t", "namespace": "default"}});
        let mut message = self.nonsense("insert", "default/device/t", &content);
        match self.chance.below(4) {
            0 => message.route.operation = "gossip".into(),
            1 => message.route.group = "twin".into(),
            2 => message.route.resource = "a/b/c/d/e".into(),
            _ => {
                message.header = Header { timestamp_ms: 0, ..Header::default() };
                message.content = Some(to_raw_value("").expect("JSON"));
                message.route.group = "nobody".into();
            }
        }
        message
    }

    /// As a cloud answers an old report of a pod that it does not have: by name alone.
    fn nameless_deletion(&mut self) -> Option<Message> {
        let number = self.chance.between(1, 20);
        let key = format!("default/pod/cpod{number}");
        if self.api.get(&key).is_some() {
            return None;
        }
        let name = format!("cpod{number}");
        let content = json!({"metadata": {"name": name, "namespace": "default"}});
        let message = self.hub.message("delete", &key, "", &content);
        let key: Box<str> = key.into();
        let sent = Sent {
            key,
            uid: "".into(),
            version: 0,
            gone: true,
            essence: 0,
            nonsense: false,
            is_cached: false,
        };
        self.hub.sent.insert(message.header.id.clone(), Rc::new(sent));
        Some(message)
    }

    /// The deletion of an old incarnation.
    fn old_deletion(&mut self) -> Option<Message> {
        let key = self.some_key()?;
        let (namespace, name) = key.split_once("/pod/")?;
        let uid: Box<str> = format!("before-{name}").into();
        let content = json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}});
        let message = self.hub.message("delete", &key, "", &content);
        let sent = Sent {
            key: key.clone(),
            uid,
            version: 0,
            gone: true,
            essence: 0,
            nonsense: false,
            is_cached: false,
        };
        self.hub.sent.insert(message.header.id.clone(), Rc::new(sent));
        Some(message)
    }

    /// A pod of another node, or the mirror of a static pod.
    fn of_others(&mut self) -> Message {
        let mirror = self.chance.percent(50);
        let node = if mirror { NODE } else { "other" };
        let name = if mirror { "mirror" } else { "stray" };
        let notes =
            if mirror { json!({"kubernetes.io/config.mirror": "x"}) } else { json!({"a": "b"}) };
        let uid = format!("uid-{name}-{}", self.api.uid());
        let content = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default", "uid": uid,
                "resourceVersion": "5", "annotations": notes},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]},
        });
        self.nonsense("insert", &format!("default/pod/{name}"), &content)
    }
}
