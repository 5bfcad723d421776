//! How the real EdgeCore joined the real CloudCore, compared with ours: we get the cloud's recorded
//! messages.

use std::collections::BTreeMap;

use edged::agent::Machine;
use edged::model::machine::Identity;
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::wire::edge::decode;
use serde_json::Value;

use crate::cloud_harness::{CloudHarness, content, patch};

/// Messages that EdgeCore sends, and we do not.
const NOT_SAID: &[(&str, &str)] = &[
    ("get membership/detail", "devices are not served"),
    ("response kube-node-lease/lease/edge1", "the cloud waits for no acknowledgement of it"),
    ("patch null/nodepatch/edge1", "the answer to the registration tells what the cloud has"),
];

/// Messages that we send, and EdgeCore does not, or later.
const SAID: &[(&str, &str)] =
    &[("insert kube-node-lease/lease/edge1", "at once, not at the next renewal")];

/// Fields of the node's object that differ, with ours.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("metadata/creationTimestamp", "", "null in Go, which is nothing"),
    ("status/allocatable/ephemeral-storage", "243497856615", "10 % of it, where Go's is rounded"),
    ("status/conditions/3/status", "True", "no CSI, so nothing to wait for"),
    ("status/conditions/3/reason", "EdgeReady", "as above"),
    ("status/conditions/3/message", "edge is posting ready status", "as above"),
    ("status/nodeInfo/containerRuntimeVersion", "containerd://1", "the runtime of these stories"),
    ("status/nodeInfo/kubeletVersion", VERSION, "our own"),
    ("status/nodeInfo/kubeProxyVersion", "", "there is none"),
];

const VERSION: &str = concat!("v1.32.10-kubeedge-v1.23.1+edged.", env!("CARGO_PKG_VERSION"));

fn conversation() -> Vec<(bool, Message)> {
    let text = include_str!("../golden/edge/00-join.txt");
    let read =
        |line: &str| (line.starts_with('<'), decode(&line.as_bytes()[2..]).expect("a message"));
    text.lines().map(read).collect()
}

fn what(message: &Message) -> String {
    format!("{} {}", message.route.operation, message.route.resource)
}

/// The machine on which it was recorded.
fn machine() -> Machine {
    Machine {
        memory_bytes: 24_684_092 << 10,
        cpu_milli: 2_000,
        storage_bytes: 264_212_084 << 10,
        huge_pages: [(1 << 30, 0), (2 << 20, 0)].into(),
        identity: Identity {
            machine_id: "3d1219c7c4c5404aaa1f6d2a48adfda4".into(),
            system_uuid: "3d1219c7c4c5404aaa1f6d2a48adfda4".into(),
            boot_id: "d7bcb826-6252-4e4f-9615-ee0d5c4efabf".into(),
            kernel_version: "6.18.44-fc-v657".into(),
            os_image: "Debian GNU/Linux 12 (bookworm)".into(),
            architecture: "amd64".into(),
        },
        ..Machine::default()
    }
}

/// Sends the cloud's messages, and its answers to our requests; returns our messages.
fn replay(cloud: &mut CloudHarness, conversation: &[(bool, Message)]) -> Vec<Message> {
    let mut found = Vec::new();
    for (_, message) in conversation.iter().filter(|(from_cloud, _)| *from_cloud) {
        found.append(&mut cloud.sent);
        let mut message = message.clone();
        if !message.header.parent_id.is_empty() {
            let requested = |requested: &&Message| {
                requested.header.parent_id.is_empty()
                    && requested.route.resource == message.route.resource
            };
            let Some(requested) = found.iter().find(requested) else { continue };
            message.header.parent_id = requested.header.id.clone();
        }
        cloud.replay(&message);
    }
    found.append(&mut cloud.sent);
    found
}

fn leaves(value: &Value, path: &str, to: &mut BTreeMap<String, String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        Value::String(text) => {
            to.insert(path.to_owned(), text.clone());
            return;
        }
        other => {
            to.insert(path.to_owned(), other.to_string());
            return;
        }
    };
    for (key, value) in children {
        let path = if path.is_empty() { key } else { format!("{path}/{key}") };
        leaves(value, &path, to);
    }
}

fn joined() -> (Vec<Message>, Vec<(bool, Message)>) {
    let conversation = conversation();
    let empty = Saved::kept(Vec::new());
    let mut cloud = CloudHarness::set_up(empty, |config| {
        "edge1".clone_into(&mut config.node_name);
        config.machine = machine();
    });
    cloud.harness.deliver(edged::agent::event::Event::Addresses(vec!["10.99.0.1".to_owned()]));
    cloud.connect();
    (replay(&mut cloud, &conversation), conversation)
}

#[test]
fn a_node_joins_as_edgecore_joins() {
    let (found, conversation) = joined();
    let theirs = conversation.iter().filter(|(from_cloud, _)| !from_cloud);
    let mut missing: Vec<String> = theirs.map(|(_, message)| what(message)).collect();
    let mut more = Vec::new();
    for message in &found {
        let what = what(message);
        match missing.iter().position(|other| *other == what) {
            Some(at) => drop(missing.remove(at)),
            None => more.push(what),
        }
    }
    missing.sort();
    missing.dedup();
    let justified = |list: &[(&str, &str)]| {
        let mut list: Vec<String> = list.iter().map(|(what, _)| (*what).to_owned()).collect();
        list.sort();
        list
    };
    assert_eq!(missing, justified(NOT_SAID));
    assert_eq!(more, justified(SAID));
}

#[test]
fn the_node_is_registered_as_edgecore_registers_it() {
    let (found, conversation) = joined();
    let is_insert = |message: &&Message| what(message) == "insert null/node/edge1";
    let leaves_of = |message: &Message| {
        let mut all = BTreeMap::new();
        leaves(&content(message), "", &mut all);
        all.retain(|path, _| !path.ends_with("Time"));
        all
    };
    let ours = leaves_of(found.iter().find(is_insert).expect("ours"));
    let mut all = conversation.iter().map(|(_, message)| message);
    let theirs = leaves_of(all.find(is_insert).expect("theirs"));
    let mut different = BTreeMap::new();
    for path in ours.keys().chain(theirs.keys()) {
        if ours.get(path) != theirs.get(path) {
            different.insert(path.as_str(), ours.get(path).map_or("", String::as_str));
        }
    }
    let justified = DIFFERENT.iter().map(|(path, ours, _)| (*path, *ours)).collect();
    assert_eq!(different, justified);
}

#[test]
fn that_the_node_is_ready_is_told_as_edgecore_tells_it() {
    let (found, conversation) = joined();
    let is_patch = |message: &&Message| what(message) == "patch null/nodepatch/edge1";
    let without_times = |message: &Message| {
        let mut reported = patch(message);
        for condition in reported["status"]["conditions"].as_array_mut().expect("a list") {
            condition.as_object_mut().expect("a map").retain(|key, _| !key.ends_with("Time"));
        }
        reported
    };
    let ours = found.iter().find(is_patch).expect("ours");
    let mut last_first = conversation.iter().rev().map(|(_, message)| message);
    let theirs = last_first.find(is_patch).expect("theirs");
    let mut ours = without_times(ours);
    let status = ours["status"].as_object_mut().expect("a map");
    // The recorded cloud had EdgeCore's.
    assert!(status.remove("nodeInfo").is_some() && status.remove("allocatable").is_some());
    assert_eq!(ours, without_times(theirs));
}
