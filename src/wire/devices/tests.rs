//! The conversation of a client with EdgeCore (section 19 of spec `devices`), and what is read
//! beyond it.

use super::*;
use crate::limits::{
    DEVICE_ATTRIBUTES_MAX, DEVICE_DESCRIPTION_BYTES_MAX, DEVICE_ID_BYTES_MAX,
    DEVICE_PAYLOAD_BYTES_MAX, DEVICE_PAYLOAD_SHOWN, DEVICE_PAYLOAD_VALUES_MAX,
    DEVICE_PROPERTIES_MAX, DEVICE_WORD_BYTES_MAX, NODE_DEVICES_MAX,
};
use crate::model::device::{
    Attribute, Attributes, ClientContent, ClientRequest, DeviceDownstream, DeviceId, DeviceState,
    DeviceUpstream, Door, GivenDevice, GivenSide, GivenTwin, Member, PropertyUpdate, Publication,
    Published, Twin, TwinChange, TwinSide, TwinVersion, Twins,
};

const UPDATE: &str = "$hw/events/device/default/dev1/twin/update";

fn dev1() -> DeviceId {
    DeviceId::new("default", "dev1")
}

fn side(value: &str, timestamp_ms: i64, edge: i64) -> TwinSide {
    let version = TwinVersion { cloud: 0, edge };
    TwinSide { value: Some(value.into()), timestamp_ms, version }
}

fn temp(expected: Option<TwinSide>, actual: Option<TwinSide>) -> Twin {
    Twin { expected, actual, optional: true, type_name: "int".into() }
}

fn maker() -> Attribute {
    Attribute { value: "acme".into(), optional: true, type_name: "string".into() }
}

fn set(expected: Option<&str>, actual: Option<&str>) -> PropertyUpdate {
    let [expected, actual] = [expected, actual].map(|value| value.map(Into::into));
    PropertyUpdate::Set { expected, actual, optional: None, type_name: Box::default() }
}

fn read(topic: &str, payload: &str) -> ClientRequest {
    request(topic, payload.as_bytes()).unwrap_or_else(|| panic!("{topic} is one of a request"))
}

/// The updates of a request that can be used.
fn updates(payload: &str) -> Vec<(Box<str>, PropertyUpdate)> {
    match read(UPDATE, payload).content {
        ClientContent::TwinUpdate(id, updates) if id == dev1() => updates,
        other => panic!("{payload}: {other:?}"),
    }
}

fn reason(topic: &str, payload: &[u8]) -> Box<str> {
    match request(topic, payload).map(|it| it.content) {
        Some(ClientContent::Invalid(_, _, why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_read_by_the_position_of_what_their_topics_name() {
    for (topic, want) in [
        ("$hw/events/node/edge1/membership/get", ClientContent::Membership),
        ("$hw/events/device/default/dev1/twin/get", ClientContent::TwinGet(dev1())),
        // KubeEdge drops all messages of these namespaces.
        (
            "$hw/events/device/dev/dev1/twin/get",
            ClientContent::TwinGet(DeviceId::new("dev", "dev1")),
        ),
        (
            "$hw/events/device/events/twin/twin/get",
            ClientContent::TwinGet(DeviceId::new("events", "twin")),
        ),
        // Up to 1.16.1.
        ("$hw/events/device/dev9/twin/get", ClientContent::TwinGet(DeviceId::new("", "dev9"))),
        (
            "$hw/events/device/default/dev1/state/update",
            ClientContent::State(dev1(), "ONLINE".into()),
        ),
    ] {
        let got = read(topic, r#"{"event_id":"e","timestamp":1,"state":"ONLINE"}"#);
        assert_eq!(got, ClientRequest { event_id: "e".into(), content: want }, "{topic}");
    }
    let long = "n".repeat(DEVICE_ID_BYTES_MAX);
    for topic in [
        "$hw/events/device/default/dev1/twin/cloud_updated",
        "$hw/events/device/default/dev1/twin/update/result",
        "$hw/events/device/default/dev1/state/get",
        "$hw/events/device//dev1/twin/get",
        "$hw/events/device/default//twin/get",
        "$hw/events/device/a/b/c/twin/get",
        "$hw/events/device/twin/get",
        "$hw/events/node/a/b/membership/get",
        "$hw/events/node/edge1/twin/get",
        "plant/user/line1",
        "",
        &format!("$hw/events/device/a/{long}/twin/get"),
    ] {
        assert_eq!(request(topic, b"{}"), None, "{topic}");
    }
}

#[test]
fn updates_are_read_as_go_reads_them_and_values_may_lack_their_quotes() {
    let payload = r#"{"event_id":"u1","timestamp":1,"twin":{"temp":{"expected":{"value":"20"},
        "actual":{"value":"19"},"metadata":{"type":"int"}}}}"#;
    let (expected, actual) = (Some("20".into()), Some("19".into()));
    let want = PropertyUpdate::Set { expected, actual, optional: None, type_name: "int".into() };
    assert_eq!(updates(payload), [("temp".into(), want)]);
    for (payload, want) in [
        (r#"{"TWIN":{"t":{"Actual":{"VALUE":"5"}}}}"#, set(None, Some("5"))),
        (r#"{"twin":{"t":{"actual":{"value":21}}}}"#, set(None, Some("21"))),
        (r#"{"twin":{"t":{"actual":{"value":21.5}}}}"#, set(None, Some("21.5"))),
        (r#"{"twin":{"t":{"actual":{"value":true}}}}"#, set(None, Some("true"))),
        (r#"{"twin":{"t":{"actual":{"value":"23 °C"}}}}"#, set(None, Some("23 °C"))),
        // EdgeCore's worker dies of these.
        (r#"{"twin":{"t":{"actual":{}}}}"#, set(None, None)),
        (r#"{"twin":{"t":{"actual":{"value":null},"expected":null}}}"#, set(None, None)),
        (r#"{"twin":{"t":null}}"#, PropertyUpdate::Delete),
        (r#"{"twin":{"t":{"unknown":[1]}}}"#, set(None, None)),
    ] {
        assert_eq!(updates(payload), [("t".into(), want)], "{payload}");
    }
}

#[test]
fn a_payload_that_cannot_be_used_is_answered_where_the_client_listens() {
    let body = "Unmarshal update request body failed, please check the request";
    let no_twin = "Update twin error, key:twin does not exist";
    let many = (0..=DEVICE_PROPERTIES_MAX).map(|n| format!("\"p{n}\":null")).collect::<Vec<_>>();
    let many = format!("{{\"twin\":{{{}}}}}", many.join(","));
    let event = "e".repeat(DEVICE_WORD_BYTES_MAX + 1);
    for (payload, want) in [
        ("{bad", body),
        ("[]", body),
        (r#"{"twin":{"t":{"actual":{"value":[1]}}}}"#, body),
        (r#"{"twin":{"t":{"actual":"5"}}}"#, body),
        (r#"{"twin":[]}"#, body),
        (&many, body),
        (&format!(r#"{{"event_id":"{event}"}}"#), body),
        ("{}", no_twin),
        (r#"{"twin":null}"#, no_twin),
    ] {
        assert_eq!(&*reason(UPDATE, payload.as_bytes()), want, "{payload}");
    }
    let got = read(UPDATE, r#"{"event_id":"u9","twin":5}"#);
    let content = ClientContent::Invalid(Some(dev1()), Door::TwinUpdate, body.into());
    assert_eq!(got, ClientRequest { event_id: "u9".into(), content }, "its id is repeated");
    assert_eq!(&*reason(UPDATE, &vec![b' '; DEVICE_PAYLOAD_BYTES_MAX + 1]), body);
    assert_eq!(&*reason(UPDATE, &vec![b'['; DEVICE_PAYLOAD_VALUES_MAX + 1]), body);
    assert_eq!(&*reason(UPDATE, b"\xff"), body);
    let long = "x".repeat(2 * DEVICE_PAYLOAD_SHOWN);
    let why = reason("$hw/events/device/default/dev1/twin/get", long.as_bytes());
    assert!(why.starts_with("Unmarshal twin info xxx") && why.len() < 2 * DEVICE_PAYLOAD_SHOWN);
}

fn published(event_id: &str, content: Published) -> (String, String) {
    let publication = Publication { event_id: event_id.into(), timestamp_ms: 1_795, content };
    let (topic, payload) = publish("edge1", &publication);
    (topic, String::from_utf8(payload).expect("JSON is text"))
}

#[test]
fn answers_are_written_as_edgecore_writes_them() {
    let both = temp(Some(side("20", 1_795, 1)), Some(side("19", 1_795, 1)));
    let shown = concat!(
        r#"{"expected":{"value":"20","metadata":{"timestamp":1795}},"actual":{"va"#,
        r#"lue":"19","metadata":{"timestamp":1795}},"optional":true,"metadata":{""#,
        r#"type":"int"}}"#,
    );
    let twins: Twins = [("temp".into(), both.clone())].into();
    let device = "$hw/events/device/default/dev1";
    let deleted = TwinChange { last: Some(both.clone()), current: None };
    for (content, topic, rest) in [
        (
            Published::Members(vec![member(Attributes::new())]),
            "$hw/events/node/edge1/membership/get/result".to_owned(),
            r#""devices":[{"id":"default/dev1","name":"dev1"}]}"#.to_owned(),
        ),
        (
            Published::MembersChanged { added: Vec::new(), removed: vec![dev1()] },
            "$hw/events/node/edge1/membership/updated".to_owned(),
            r#""added_devices":null,"removed_devices":[{"id":"default/dev1"}]}"#.to_owned(),
        ),
        (
            Published::Twins(dev1(), Twins::new()),
            format!("{device}/twin/get/result"),
            r#""twin":{}}"#.to_owned(),
        ),
        (
            Published::Updated(dev1(), vec![("temp".into(), Some(both.clone()))]),
            format!("{device}/twin/update/result"),
            format!(r#""twin":{{"temp":{shown}}}}}"#),
        ),
        (
            Published::Updated(dev1(), vec![("temp".into(), None)]),
            format!("{device}/twin/update/result"),
            r#""twin":{"temp":null}}"#.to_owned(),
        ),
        (
            Published::Document(dev1(), vec![("temp".into(), deleted)]),
            format!("{device}/twin/update/document"),
            format!(r#""twin":{{"temp":{{"last":{shown},"current":null}}}}}}"#),
        ),
        (
            Published::Delta { device: dev1(), twins, delta: vec![("temp".into(), "20".into())] },
            format!("{device}/twin/update/delta"),
            format!(r#""twin":{{"temp":{shown}}},"delta":{{"temp":"20"}}}}"#),
        ),
        (
            Published::Refused(
                Door::TwinUpdate,
                Some(dev1()),
                400,
                "the value is not int or integer".into(),
            ),
            format!("{device}/twin/update/result"),
            r#""code":400,"reason":"the value is not int or integer"}"#.to_owned(),
        ),
    ] {
        let got = published("u1", content);
        assert_eq!(got, (topic, format!(r#"{{"event_id":"u1","timestamp":1795,{rest}"#)));
    }
    let tombstone = TwinSide { version: TwinVersion { cloud: 0, edge: 2 }, ..TwinSide::default() };
    let revived = Twin { type_name: "float".into(), ..temp(Some(tombstone), None) };
    let (_, got) = published("u8", Published::Updated(dev1(), vec![("t".into(), Some(revived))]));
    assert!(got.contains(r#"{"t":{"expected":{},"optional":true,"metadata":{"type":"float"}}}"#));
}

/// The device, with these attributes.
fn member(attributes: Attributes) -> Member {
    let (description, state) = Default::default();
    Member { id: dev1(), description, state, attributes }
}

#[test]
fn attributes_are_written_as_edgecore_writes_them() {
    let attributes: Attributes = [("maker".into(), maker())].into();
    let maker = r#"{"maker":{"value":"acme","optional":true,"metadata":{"type":"string"}}}"#;
    let device = "$hw/events/device/default/dev1";
    for (content, topic, rest) in [
        (
            Published::Members(vec![member(attributes.clone())]),
            "$hw/events/node/edge1/membership/get/result".to_owned(),
            format!(r#""devices":[{{"id":"default/dev1","name":"dev1","attributes":{maker}}}]}}"#),
        ),
        (
            Published::Attributes(
                dev1(),
                vec![("maker".into(), Some(attributes["maker"].clone())), ("zone".into(), None)],
            ),
            format!("{device}/updated"),
            format!(r#""attributes":{},"zone":null}}}}"#, &maker[..maker.len() - 1]),
        ),
    ] {
        let got = published("u1", content);
        assert_eq!(got, (topic, format!(r#"{{"event_id":"u1","timestamp":1795,{rest}"#)));
    }
}

#[test]
fn attributes_of_the_cloud_are_read() {
    let attributes = r#"{"maker":{"value":"acme","metadata":{"type":"string"}},"zone":null}"#;
    for (resource, id) in [("device/dev9", "dev9"), ("device/default/dev1", "default/dev1")] {
        let got = decode_cloud(resource, &format!(r#"{{"attributes":{attributes}}}"#));
        let changes = vec![("maker".into(), Some(maker())), ("zone".into(), None)];
        assert_eq!(got, Some(Ok(DeviceDownstream::Attributes(DeviceId::of(id), changes))));
    }
    let given = |attributes: &str| {
        let text = format!(r#"{{"devices":[{{"id":"dev9"{attributes}}}]}}"#);
        match decode_cloud("membership/detail", &text) {
            Some(Ok(DeviceDownstream::Detail(mut devices))) => devices.remove(0).attributes,
            other => panic!("{text}: {other:?}"),
        }
    };
    let all = Attributes::from([("maker".into(), maker())]);
    assert_eq!(given(&format!(r#","attributes":{attributes}"#)), Some(all));
    assert_eq!(given(r#","attributes":{}"#), Some(Attributes::new()));
    assert_eq!(given(r#","attributes":null"#), None);
}

#[test]
fn states_are_written_as_edgecore_writes_them() {
    let device = "$hw/events/device/default/dev1";
    let online = DeviceState { state: "ONLINE".into(), last_online: "2026-11-23T21:00:30Z".into() };
    let offline = DeviceState { state: "offline".into(), last_online: Box::default() };
    for (content, topic, rest) in [
        (
            Published::State(dev1(), online),
            format!("{device}/state/update/result"),
            r#""device":{"name":"dev1","state":"ONLINE","lastOnlineTime":"2026-11-23T21:00:30Z"}}"#
                .to_owned(),
        ),
        (
            Published::State(dev1(), offline),
            format!("{device}/state/update/result"),
            r#""device":{"name":"dev1","state":"offline"}}"#.to_owned(),
        ),
    ] {
        let got = published("u1", content);
        assert_eq!(got, (topic, format!(r#"{{"event_id":"u1","timestamp":1795,{rest}"#)));
    }
}

#[test]
fn messages_of_the_cloud_are_read() {
    let membership = r#"{"event_id":"2b19","timestamp":1795196937285,
        "added_devices":[{"id":"default/dev1","name":"dev1"}],"removed_devices":null}"#;
    let given = |id: &str, twins| GivenDevice {
        id: DeviceId::of(id),
        description: Box::default(),
        attributes: None,
        twins,
    };
    let added = vec![given("default/dev1", Vec::new())];
    let want = DeviceDownstream::Membership { added, removed: Vec::new() };
    assert_eq!(decode_cloud("membership", membership), Some(Ok(want)));

    let twin = r#"{"t":{"expected":{"value":"1","metadata":{"timestamp":5}},"optional":false,
        "metadata":{"type":"string"},"expected_version":{"cloud":700,"edge":0}}}"#;
    let version = Some(TwinVersion { cloud: 700, edge: 0 });
    let t = GivenTwin {
        expected: Some(GivenSide { value: "1".into(), version }),
        actual: None,
        optional: Some(false),
        type_name: "string".into(),
    };
    let detail = format!(r#"{{"devices":[{{"id":"dev9","name":"dev9","twin":{twin}}}]}}"#);
    let want = DeviceDownstream::Detail(vec![given("dev9", vec![("t".into(), t.clone())])]);
    assert_eq!(decode_cloud("membership/detail", &detail), Some(Ok(want)));
    for (resource, id) in [
        ("device/dev9/twin/cloud_updated", "dev9"),
        ("device/default/dev1/twin/cloud_updated", "default/dev1"),
    ] {
        let got = decode_cloud(resource, &format!(r#"{{"twin":{twin}}}"#));
        let want = DeviceDownstream::CloudUpdated(DeviceId::of(id), vec![("t".into(), t.clone())]);
        assert_eq!(got, Some(Ok(want)));
    }
    assert_eq!(decode_cloud("device/default/dev1/other", "{}"), None);
    let attribute = |n: usize| format!(r#""a{n}":null"#);
    let attributes: Vec<String> = (0..=DEVICE_ATTRIBUTES_MAX).map(attribute).collect();
    let attributes = attributes.join(",");
    let long = "x".repeat(DEVICE_DESCRIPTION_BYTES_MAX + 1);
    let many = vec![r#"{"id":"a"}"#; NODE_DEVICES_MAX + 1].join(",");
    for content in [
        "{",
        "[]",
        r#"{"added_devices":{}}"#,
        r#"{"added_devices":[{"id":""}]}"#,
        r#"{"added_devices":[{"id":"a/b/c"}]}"#,
        r#"{"added_devices":[{"id":"a","twin":{"":{}}}]}"#,
        r#"{"added_devices":[{"id":"a","attributes":{"":{}}}]}"#,
        r#"{"added_devices":[{"id":"a","attributes":{"maker":{"value":[]}}}]}"#,
        &format!(r#"{{"added_devices":[{{"id":"a","attributes":{{{attributes}}}}}]}}"#),
        r#"{"added_devices":[{"id":"a","twin":{"t":{"expected":{"value":[]}}}}]}"#,
        &format!(r#"{{"added_devices":[{{"id":"a","description":"{long}"}}]}}"#),
        &format!(r#"{{"added_devices":[{many}]}}"#),
    ] {
        let got = decode_cloud("membership", content);
        assert!(matches!(got, Some(Err(_))), "{content}: {got:?}");
    }
}

#[test]
fn reports_are_written_as_edgecore_writes_them() {
    let both = temp(Some(side("20", 1_795, 1)), Some(side("19", 1_795, 1)));
    let report = DeviceUpstream::Twins(dev1(), [("temp".into(), both)].into());
    let (operation, resource, content) = encode_cloud(&report, "2c00", 1_795);
    assert_eq!((operation, &*resource), ("update", "device/default/dev1/twin/edge_updated"));
    assert_eq!(
        content.get(),
        concat!(
            r#"{"event_id":"2c00","timestamp":1795,"twin":{"temp":{"expected":{"value"#,
            r#"":"20","metadata":{"timestamp":1795}},"actual":{"value":"19","metadata"#,
            r#"":{"timestamp":1795}},"optional":true,"metadata":{"type":"int"},"expec"#,
            r#"ted_version":{"cloud":0,"edge":1},"actual_version":{"cloud":0,"edge":1"#,
            r#"}}}}"#,
        )
    );
    let state = DeviceState { state: "online".into(), last_online: "2026-11-23T21:00:30Z".into() };
    let (operation, resource, content) =
        encode_cloud(&DeviceUpstream::State(dev1(), state), "e", 5);
    assert_eq!((operation, &*resource), ("update", "device/default/dev1/state/update"));
    let text: String = serde_json::from_str(content.get()).expect("JSON in a string");
    assert_eq!(
        text,
        concat!(
            r#"{"event_id":"e","timestamp":5,"device":{"name":"dev1","state":"online""#,
            r#","lastOnlineTime":"2026-11-23T21:00:30Z"}}"#,
        )
    );
}

#[test]
fn what_is_not_about_devices_and_nodes_is_for_the_cloud() {
    for topic in
        ["$hw/events/upload/a", "SYS/dis/upload_records", "plant/user/x", "$hw/events/nodes"]
    {
        let got = upload(topic, b"a\xff").expect("it is");
        assert_eq!((&*got.topic, &*got.payload), (topic, "a\u{fffd}"));
    }
    for topic in
        ["$hw/events/device/d/twin/what", "$hw/events/node/n/membership/got", "$hw/events/device"]
    {
        assert!(upload(topic, b"").is_none(), "{topic}");
    }
}
