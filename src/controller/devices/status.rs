//! What is recorded of a device, as JSON: the status of a DeviceStatus, up to KubeEdge 1.22 of the
//! Device itself (spec `devices`, sections 1 and 3).
//!
//! ```text
//!  recorded status + reports ─▶ the status that should be ─▶ a patch of what differs
//! ```
//!
//! Fields that nobody here knows stay. A list in a merge patch replaces the whole list, so the
//! patch names the `resourceVersion` that it was made for.
//!
//! Beside KubeEdge's `timestamp` and `type` the metadata of a value has `version`: how often the
//! cloud and the node had changed it, `0.7`. By it a report is recognized that the node sends again
//! after a newer one. A state has no version: the object has an annotation with the time at which
//! the recorded one was reported, so that an older one is recognized after a restart as well.
//!
//! Both name the node that reported them. Versions and times are compared for one node only: where
//! the Device has moved, whatever its node reports replaces what another one did.
//!
//! Another annotation has the version of the Device for which the status was written. By it a
//! replica whose watch is behind knows that: the Device may be on another node by now, whose value
//! it must not replace.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::key::Key;
use super::super::location::DeviceFacts;
use super::super::nullable::Nullable;
use crate::model::api::{Call, Kind, PatchType, Verb};
use crate::model::device::{DELETED, DeviceState, TwinSide, TwinVersion, Twins};
use crate::model::error::Peer;
use crate::model::raw;

/// What the API server has.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// `resourceVersion`; empty: there is no object yet.
    version: Box<str>,
    /// The uid of the Device that it belongs to; empty: it does not say.
    owner: Box<str>,
    /// When the state was reported, by the node's clock: milliseconds since 1970; 0: not recorded.
    pub(super) state_at_ms: i64,
    /// The node that reported it; empty: not recorded.
    state_by: Box<str>,
    /// `resourceVersion` of the Device as it was known when this was written; 0: not recorded.
    device_version: u64,
    /// The Device that is known was read from the API server after this, and is the latest.
    pub(super) is_checked: bool,
    status: Map<String, Value>,
}

/// The annotation with the time of the state, in milliseconds since 1970.
const STATE_AT: &str = "edged.io/state-reported-at-ms";
/// The annotation with the node that reported the state.
const STATE_BY: &str = "edged.io/state-reported-by";
/// The annotation with the `resourceVersion` of the Device.
const DEVICE_VERSION: &str = "edged.io/device-resource-version";

/// A state that a node has reported.
#[derive(Clone, Copy)]
pub(super) struct ReportedState<'a> {
    pub(super) state: &'a DeviceState,
    /// By the node's clock: milliseconds since 1970; 0: not given.
    pub(super) at_ms: i64,
    /// The node has begun anew since the recorded state, and its clock with it.
    pub(super) is_anew: bool,
}

/// A device with a status.
#[derive(Clone, Copy)]
pub(super) struct Device<'a> {
    pub(super) key: &'a Key,
    pub(super) uid: &'a str,
    /// Its `resourceVersion`.
    pub(super) version: u64,
    pub(super) facts: &'a DeviceFacts,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Nullable<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Box<str>,
    #[serde(default)]
    owner_references: Nullable<Vec<Owner>>,
    #[serde(default)]
    annotations: Nullable<Annotations>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(default, rename = "edged.io/state-reported-at-ms")]
    state_at: Box<str>,
    #[serde(default, rename = "edged.io/state-reported-by")]
    state_by: Box<str>,
    #[serde(default, rename = "edged.io/device-resource-version")]
    device_version: Box<str>,
}

#[derive(Deserialize)]
struct Owner {
    kind: Box<str>,
    uid: Box<str>,
}

impl Recorded {
    /// Of an object of the API server.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Peer> {
        let Object { metadata, status } =
            serde_json::from_str(raw.get()).map_err(|error| Peer::new(error.to_string()))?;
        let mut owners = metadata.owner_references.0.into_iter();
        let owner = owners.find(|owner| &*owner.kind == Kind::Device.name());
        let owner = owner.map(|owner| owner.uid).unwrap_or_default();
        let Annotations { state_at, state_by, device_version } = metadata.annotations.0;
        Ok(Self {
            version: metadata.resource_version,
            owner,
            state_at_ms: state_at.parse().unwrap_or(0),
            state_by,
            device_version: device_version.parse().unwrap_or(0),
            is_checked: false,
            status: status.0,
        })
    }

    /// Whether it may have been written for a later state of the Device than is known here: for
    /// another one of its name, or when it was on another node. Then it is not ours to replace.
    pub(super) fn may_be_ahead(&self, kind: Kind, device: Device<'_>) -> bool {
        let is_foreign = !self.owner.is_empty() && *self.owner != *device.uid;
        let is_later = self.version.parse().is_ok_and(|version: u64| version > device.version);
        let is_ahead = (is_foreign && is_later) || self.device_version > device.version;
        kind == Kind::DeviceStatus && is_ahead && !self.is_checked
    }

    /// Whether it is a DeviceStatus of an earlier Device of this name, about to be deleted.
    pub(super) fn is_foreign(&self, kind: Kind, uid: &str) -> bool {
        kind == Kind::DeviceStatus && *self.owner != *uid
    }

    /// The call that records these reports; `None`: they are recorded. `kind`: of the object with
    /// the status.
    pub(super) fn change(
        &self,
        kind: Kind,
        device: Device<'_>,
        twins: &Twins,
        state: Option<ReportedState<'_>>,
    ) -> Option<Call> {
        let is_foreign = self.is_foreign(kind, device.uid);
        let nothing = Map::new();
        let old = if is_foreign { &nothing } else { &self.status };
        let mut new = Map::new();
        let list = recorded_twins(old, twins, device.facts);
        if old.get("twins").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) != list {
            new.insert("twins".to_owned(), Value::Array(list));
        }
        let is_comparable = !is_foreign && is_same_node(&self.state_by, &device.facts.node);
        let is_older = |it: &ReportedState<'_>| {
            !it.is_anew && is_comparable && it.at_ms != 0 && it.at_ms < self.state_at_ms
        };
        let state = state.filter(|it| !is_older(it));
        if let Some(ReportedState { state: DeviceState { state, last_online }, .. }) = state {
            for (key, word) in [("state", state), ("lastOnlineTime", last_online)] {
                // The time of the last good state stays while the device is offline.
                if !word.is_empty() && old.get(key).is_none_or(|it| *it != **word) {
                    new.insert(key.to_owned(), json!(word));
                }
            }
        }
        if new.is_empty() {
            return None;
        }
        let at_ms = state.map_or(0, |it| it.at_ms);
        let has_time =
            at_ms != 0 && (new.contains_key("state") || new.contains_key("lastOnlineTime"));
        let (namespace, name) = (&*device.key.namespace, &*device.key.name);
        let owners = json!([{
            "apiVersion": Kind::Device.api_version(), "kind": Kind::Device.name(), "name": name,
            "uid": device.uid, "controller": true, "blockOwnerDeletion": true,
        }]);
        let mut metadata = json!({});
        if has_time {
            metadata["annotations"][STATE_AT] = at_ms.to_string().into();
            metadata["annotations"][STATE_BY] = (*device.facts.node).into();
        }
        if kind == Kind::DeviceStatus && self.device_version != device.version {
            metadata["annotations"][DEVICE_VERSION] = device.version.to_string().into();
        }
        let (verb, body) = if self.version.is_empty() {
            metadata["name"] = name.into();
            metadata["namespace"] = namespace.into();
            metadata["ownerReferences"] = owners;
            let body = json!({
                "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata,
                "spec": {}, "status": new,
            });
            (Verb::Create, body)
        } else {
            metadata["resourceVersion"] = (*self.version).into();
            if is_foreign {
                metadata["ownerReferences"] = owners;
                for key in self.status.keys() {
                    new.entry(key.as_str()).or_insert(Value::Null);
                }
            }
            (Verb::Patch(PatchType::Merge), json!({"metadata": metadata, "status": new}))
        };
        let (namespace, name, body) = (namespace.into(), name.into(), Some(raw::json(&body)));
        Some(Call { verb, kind, namespace, name, subresource: None, body })
    }

    /// As an object, for people.
    pub(super) fn text(&self, key: &Key) -> String {
        let kind = Kind::DeviceStatus;
        let metadata = json!({"name": *key.name, "namespace": *key.namespace});
        json!({
            "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata,
            "status": self.status,
        })
        .to_string()
    }
}

/// What a `Status` of the API server says.
pub(super) fn message(status: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let status = serde_json::from_str::<Status>(status.get());
    status.map(|status| status.message).unwrap_or_default()
}

/// The list of twins with these reports. Properties that the device does not have any more are left
/// out, as in KubeEdge.
fn recorded_twins(old: &Map<String, Value>, twins: &Twins, facts: &DeviceFacts) -> Vec<Value> {
    let name = |twin: &Value| twin["propertyName"].as_str().unwrap_or_default().to_owned();
    let mut list = old.get("twins").and_then(Value::as_array).cloned().unwrap_or_default();
    list.retain(|twin| facts.properties.contains(&*name(twin)));
    for (property, twin) in twins.iter().filter(|(name, _)| facts.properties.contains(*name)) {
        let sides = [("reported", &twin.actual), ("observedDesired", &twin.expected)];
        for (key, side) in sides {
            let Some((side, value)) =
                side.as_ref().and_then(|side| Some((side, side.value.as_deref()?)))
            else {
                continue;
            };
            let at = list.iter().position(|twin| name(twin) == **property);
            let at = at.unwrap_or_else(|| {
                list.push(json!({"propertyName": property}));
                list.len() - 1
            });
            if !is_older(side, &facts.node, &list[at][key]) {
                list[at][key] = recorded_side(value, side, &twin.type_name, &facts.node);
            }
        }
    }
    list
}

fn recorded_side(value: &str, side: &TwinSide, type_name: &str, node: &str) -> Value {
    let mut metadata = Map::new();
    if side.timestamp_ms != 0 {
        metadata.insert("timestamp".to_owned(), json!(side.timestamp_ms.to_string()));
    }
    if !type_name.is_empty() && type_name != DELETED {
        metadata.insert("type".to_owned(), json!(type_name));
    }
    let TwinVersion { cloud, edge } = side.version;
    if side.version != TwinVersion::default() {
        metadata.insert("version".to_owned(), json!(format!("{cloud}.{edge}")));
    }
    metadata.insert("node".to_owned(), json!(node));
    json!({"value": value, "metadata": metadata})
}

/// Whether what was recorded may be of this node.
fn is_same_node(recorded: &str, node: &str) -> bool {
    recorded.is_empty() || recorded == node
}

/// Whether a value that a node reports is older than the recorded one.
fn is_older(side: &TwinSide, node: &str, recorded: &Value) -> bool {
    let word = |key: &str| recorded["metadata"][key].as_str();
    if !is_same_node(word("node").unwrap_or_default(), node) {
        return false;
    }
    let timestamp_ms = word("timestamp").and_then(|text| text.parse().ok()).unwrap_or(0);
    let version = word("version").and_then(|text| {
        let (cloud, edge) = text.split_once('.')?;
        Some(TwinVersion { cloud: cloud.parse().ok()?, edge: edge.parse().ok()? })
    });
    let recorded = TwinSide { value: None, timestamp_ms, version: version.unwrap_or_default() };
    is_resent(side, &recorded)
}

/// Whether a value was reported before another one, and is sent again. Neither the version alone
/// says so, because it begins anew when the node has lost its store, nor the time alone, because
/// the node's clock may have been wrong.
pub(super) fn is_resent(side: &TwinSide, other: &TwinSide) -> bool {
    let none = TwinVersion::default();
    let (new, old) = (side.version, other.version);
    let is_behind = new != old && new.cloud <= old.cloud && new.edge <= old.edge;
    let are_known = side.timestamp_ms != 0 && other.timestamp_ms != 0;
    if new == none || old == none {
        return are_known && side.timestamp_ms < other.timestamp_ms;
    }
    is_behind && are_known && side.timestamp_ms <= other.timestamp_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::Twin;

    fn side(value: &str, timestamp_ms: i64, edge: i64) -> TwinSide {
        let version = TwinVersion { cloud: 0, edge };
        TwinSide { value: Some(value.into()), timestamp_ms, version }
    }

    fn twins(name: &str, actual: TwinSide) -> Twins {
        let (actual, type_name) = (Some(actual), "int".into());
        Twins::from([(name.into(), Twin { expected: None, actual, optional: true, type_name })])
    }

    fn facts(properties: &[&str]) -> DeviceFacts {
        let properties = properties.iter().map(|name| (*name).into()).collect();
        DeviceFacts { node: "e".into(), properties, ..DeviceFacts::default() }
    }

    /// The verb and the body of the call, if there is one.
    fn change(
        recorded: &Recorded,
        kind: Kind,
        facts: &DeviceFacts,
        twins: &Twins,
        state: Option<&DeviceState>,
    ) -> Option<(Verb, Value)> {
        let state = state.map(|state| ReportedState { state, at_ms: 0, is_anew: false });
        let key = Key::new(Kind::Device, "n", "d");
        let device = Device { key: &key, uid: "u", version: 5, facts };
        let call = recorded.change(kind, device, twins, state)?;
        let body = call.body.expect("a body");
        Some((call.verb, serde_json::from_str(body.get()).expect("JSON")))
    }

    fn recorded(object: &Value) -> Recorded {
        Recorded::read(&raw::json(object)).expect("an object")
    }

    /// A DeviceStatus of the device `u`.
    fn own(status: &Value) -> Recorded {
        recorded(&json!({"metadata": {"resourceVersion": "7",
            "ownerReferences": [{"kind": "Device", "uid": "u"}]}, "status": status}))
    }

    #[test]
    fn the_first_value_is_recorded_in_a_new_object() {
        let (verb, body) = change(
            &Recorded::default(),
            Kind::DeviceStatus,
            &facts(&["temp"]),
            &twins("temp", side("21", 5, 1)),
            Some(&DeviceState { state: "online".into(), last_online: "T".into() }),
        )
        .expect("a call");
        assert_eq!(verb, Verb::Create);
        let owner = &body["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Device"), &json!("u")));
        let metadata = json!({"timestamp": "5", "type": "int", "version": "0.1", "node": "e"});
        let twin =
            json!({"propertyName": "temp", "reported": {"value": "21", "metadata": metadata}});
        let expected = json!({"twins": [twin], "state": "online", "lastOnlineTime": "T"});
        assert_eq!(body["status"], expected);
    }

    #[test]
    fn only_what_differs_is_written_and_the_whole_list() {
        let status = json!({"state": "online", "lastOnlineTime": "T", "twins": [
            {"propertyName": "a", "reported": {"value": "1"}, "more": 7},
            {"propertyName": "gone", "reported": {"value": "1"}},
        ]});
        let (old, facts) = (own(&status), facts(&["a", "b"]));
        let offline = DeviceState { state: "offline".into(), last_online: "".into() };
        let none = Twins::new();
        let (verb, body) =
            change(&old, Kind::DeviceStatus, &facts, &twins("b", side("2", 5, 1)), Some(&offline))
                .expect("a call");
        assert_eq!(verb, Verb::Patch(PatchType::Merge));
        let annotations = json!({"edged.io/device-resource-version": "5"});
        assert_eq!(body["metadata"], json!({"resourceVersion": "7", "annotations": annotations}));
        let names: Vec<&Value> =
            body["status"]["twins"].as_array().expect("a list").iter().collect();
        assert_eq!(*names[0], status["twins"][0], "it stays as it was");
        assert_eq!((names.len(), &names[1]["propertyName"]), (2, &json!("b")));
        assert_eq!(body["status"]["state"], "offline");
        assert!(body["status"].get("lastOnlineTime").is_none(), "{body}");
        let same = own(&json!({"state": "offline", "twins": []}));
        assert!(change(&same, Kind::DeviceStatus, &facts, &none, Some(&offline)).is_none());
        let unknown = twins("unknown", side("2", 5, 1));
        assert!(change(&same, Kind::DeviceStatus, &facts, &unknown, None).is_none());
        let deleted = twins("a", TwinSide { value: None, ..side("", 5, 2) });
        assert!(change(&same, Kind::DeviceStatus, &facts, &deleted, None).is_none());
    }

    #[test]
    fn a_status_of_an_earlier_device_of_this_name_is_replaced() {
        let object = json!({"metadata": {"resourceVersion": "7",
            "ownerReferences": [{"kind": "Device", "uid": "earlier"}]},
            "status": {"state": "online", "twins": [
                {"propertyName": "a", "reported": {"value": "1"}}]}});
        let old = recorded(&object);
        let new = twins("b", side("2", 5, 1));
        let facts = facts(&["a", "b"]);
        let (_, body) = change(&old, Kind::DeviceStatus, &facts, &new, None).expect("a call");
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(body["status"]["state"], Value::Null);
        assert_eq!(body["status"]["twins"].as_array().map(Vec::len), Some(1));
        // Up to KubeEdge 1.22 it is the device's own.
        let (_, body) = change(&old, Kind::Device, &facts, &new, None).expect("a call");
        assert_eq!(body["status"]["twins"].as_array().map(Vec::len), Some(2));
        assert!(body["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn a_status_of_a_later_state_of_the_device_is_known() {
        let (key, facts) = (Key::new(Kind::Device, "n", "d"), facts(&[]));
        let device = |version| Device { key: &key, uid: "u", version, facts: &facts };
        let status = |uid: &str, version: &str| {
            recorded(&json!({"metadata": {"resourceVersion": "7",
                "annotations": {"edged.io/device-resource-version": version},
                "ownerReferences": [{"kind": "Device", "uid": uid}]}}))
        };
        for (uid, version, known, is_ahead) in [
            ("u", "6", 6, false),
            ("u", "6", 5, true),
            ("u", "", 5, false),
            ("u", "x", 5, false),
            ("other", "", 6, true),
            ("other", "", 7, false),
            ("", "", 5, false),
        ] {
            let status = status(uid, version);
            let got = status.may_be_ahead(Kind::DeviceStatus, device(known));
            assert_eq!(got, is_ahead, "{uid} {version} {known}");
            assert!(!status.may_be_ahead(Kind::Device, device(known)), "there is no other object");
            let checked = Recorded { is_checked: true, ..status };
            assert!(!checked.may_be_ahead(Kind::DeviceStatus, device(known)));
        }
    }

    #[test]
    fn a_state_that_was_reported_before_the_recorded_one_is_left_out() {
        let (key, facts) = (Key::new(Kind::Device, "n", "d"), facts(&[]));
        let device = Device { key: &key, uid: "u", version: 5, facts: &facts };
        let change = |old: &Recorded, state: &str, at_ms: i64, is_anew: bool| {
            let state = &DeviceState { state: state.into(), last_online: "".into() };
            let state = Some(ReportedState { state, at_ms, is_anew });
            let call = old.change(Kind::DeviceStatus, device, &Twins::new(), state)?;
            let body = call.body.expect("a body");
            Some(serde_json::from_str::<Value>(body.get()).expect("JSON"))
        };
        let body = change(&Recorded::default(), "online", 20, false).expect("it is new");
        let annotations = &body["metadata"]["annotations"];
        let expected = json!({"edged.io/state-reported-at-ms": "20",
            "edged.io/state-reported-by": "e", "edged.io/device-resource-version": "5"});
        assert_eq!(*annotations, expected);
        let mut object = json!({"metadata": {"resourceVersion": "7", "annotations": annotations,
            "ownerReferences": [{"kind": "Device", "uid": "u"}]}, "status": {"state": "online"}});
        let old = recorded(&object);
        assert!(change(&old, "offline", 19, false).is_none(), "it is older");
        let body = change(&old, "offline", 21, false).expect("it is newer");
        assert_eq!(body["metadata"]["annotations"]["edged.io/state-reported-at-ms"], "21");
        for (at_ms, is_anew) in [(20, false), (0, false), (19, true)] {
            assert!(change(&old, "offline", at_ms, is_anew).is_some(), "{at_ms} {is_anew}");
        }
        let body = change(&old, "offline", 0, false).expect("a time is not known");
        assert!(body["metadata"].get("annotations").is_none(), "{body}");
        object["metadata"]["annotations"]["edged.io/state-reported-by"] = "other".into();
        assert!(change(&recorded(&object), "offline", 19, false).is_some(), "of another node");
        object["metadata"]["annotations"]["edged.io/state-reported-by"] = "e".into();
        object["metadata"]["ownerReferences"][0]["uid"] = "earlier".into();
        assert!(change(&recorded(&object), "offline", 19, false).is_some(), "of another device");
    }

    #[test]
    fn a_value_that_is_sent_again_after_a_newer_one_is_left_out() {
        for (new, old, is_older) in [
            ((5, 1), (6, 2), true),
            ((6, 1), (6, 2), true),
            ((6, 2), (6, 2), false),
            ((7, 2), (6, 2), false),
            // The node has lost its store.
            ((7, 1), (6, 2), false),
            // Its clock was ahead.
            ((5, 3), (6, 2), false),
            // Recorded by CloudCore, which does not write versions.
            ((5, 1), (6, 0), true),
            ((7, 1), (6, 0), false),
            ((5, 0), (6, 2), true),
            // A time is not known.
            ((0, 1), (6, 2), false),
            ((5, 1), (0, 2), false),
        ] {
            let (new, old) = (side("a", new.0, new.1), side("b", old.0, old.1));
            assert_eq!(is_resent(&new, &old), is_older, "{new:?} {old:?}");
            let mut recorded = recorded_side("b", &old, "int", "e");
            assert_eq!(super::is_older(&new, "e", &recorded), is_older, "{new:?} {recorded}");
            assert!(!super::is_older(&new, "other", &recorded), "{new:?} {recorded}");
            // Recorded by CloudCore, which does not write nodes.
            recorded["metadata"].as_object_mut().expect("metadata").remove("node");
            assert_eq!(super::is_older(&new, "other", &recorded), is_older, "{new:?} {recorded}");
        }
    }
}
