//! Reads what a node reports of its devices, for the controller (sections 7.3 and 10.2): what
//! [`super::encode_cloud`] writes, and EdgeCore.

use super::cloud::number;
use super::request::Fields;
use crate::limits::{
    DEVICE_ID_BYTES_MAX, DEVICE_REPORT_BYTES_MAX, DEVICE_REPORT_PROPERTIES_MAX,
    TWIN_NAME_BYTES_MAX, TWIN_VALUE_BYTES_MAX,
};
use crate::model::device::{
    DeviceId, DeviceState, DeviceUpstream, Twin, TwinSide, TwinVersion, Twins,
};
use crate::model::error::Peer;
use crate::model::tree::{self, Value};

/// The report of this resource and content, with its time: milliseconds since 1970 by the node's
/// clock; 0: not given. `None`: it is none of these.
///
/// The resource is read from its end: the device's id has one part or two.
pub fn decode_report(resource: &str, content: &str) -> Option<Result<(DeviceUpstream, i64), Peer>> {
    let parts: Vec<&str> = resource.split('/').take(6).collect();
    let (id, what) = match parts[..] {
        ["device", .., "twin", "edge_updated"] => (&parts[1..parts.len() - 2], Report::Twins),
        ["device", .., "state", "update"] => (&parts[1..parts.len() - 2], Report::State),
        _ => return None,
    };
    Some(read(id, what, content))
}

#[derive(Clone, Copy)]
enum Report {
    Twins,
    State,
}

fn read(id: &[&str], what: Report, content: &str) -> Result<(DeviceUpstream, i64), Peer> {
    let id = id.join("/");
    let is_id = (1..=2).contains(&id.split('/').count()) && id.split('/').all(|it| !it.is_empty());
    if !is_id || id.len() > DEVICE_ID_BYTES_MAX {
        let shown: String = id.chars().take(DEVICE_ID_BYTES_MAX).collect();
        return Err(Peer::new(format!("got the device {shown:?}, expected namespace/name")));
    }
    if content.len() > DEVICE_REPORT_BYTES_MAX {
        let got = content.len();
        return Err(Peer::new(format!(
            "content: got {got} bytes, expected {DEVICE_REPORT_BYTES_MAX} at most"
        )));
    }
    let node =
        tree::parse_json(content.as_bytes()).map_err(|refusal| Peer::at("content", refusal.why))?;
    let fields = Fields::of(&node)?;
    let at_ms = number(&fields, "timestamp")?;
    let id = DeviceId::of(&id);
    let report = match what {
        Report::Twins => DeviceUpstream::Twins(id, twins(&fields)?),
        Report::State => DeviceUpstream::State(id, state(&fields)?),
    };
    Ok((report, at_ms))
}

/// EdgeCore up to 1.17 writes `last_online`.
fn state(fields: &Fields<'_>) -> Result<DeviceState, Peer> {
    let Some(device) = fields.inner("device")? else {
        return Err(Peer::new("got no device, expected one"));
    };
    let last_online = device.word("lastOnlineTime")?;
    let last_online =
        if last_online.is_empty() { device.word("last_online")? } else { last_online };
    Ok(DeviceState { state: device.word("state")?, last_online })
}

fn twins(fields: &Fields<'_>) -> Result<Twins, Peer> {
    let given = fields.entries("twin")?;
    if given.len() > DEVICE_REPORT_PROPERTIES_MAX {
        let got = given.len();
        return Err(Peer::new(format!(
            "twin: got {got} properties, expected {DEVICE_REPORT_PROPERTIES_MAX} at most"
        )));
    }
    let mut twins = Twins::new();
    for (name, node) in given {
        if name.is_empty() || name.len() > TWIN_NAME_BYTES_MAX {
            let got = name.len();
            return Err(Peer::new(format!(
                "twin: got a name of {got} bytes, expected 1 to {TWIN_NAME_BYTES_MAX}"
            )));
        }
        if node.value == Value::Null {
            continue;
        }
        let twin = Fields::of(node).and_then(|fields| twin(&fields));
        let twin = twin.map_err(|why| Peer::at(format_args!("twin.{name}"), why))?;
        twins.insert(name.into(), twin);
    }
    Ok(twins)
}

fn twin(fields: &Fields<'_>) -> Result<Twin, Peer> {
    let side = |name: &str, version: &str| -> Result<Option<TwinSide>, Peer> {
        let Some(side) = fields.inner(name)? else { return Ok(None) };
        let value = side.value("value")?;
        if let Some(value) = value.as_ref().filter(|it| it.len() > TWIN_VALUE_BYTES_MAX) {
            let got = value.len();
            return Err(Peer::new(format!(
                "{name}: got {got} bytes, expected {TWIN_VALUE_BYTES_MAX} at most"
            )));
        }
        let timestamp_ms = match side.inner("metadata")? {
            Some(metadata) => number(&metadata, "timestamp")?,
            None => 0,
        };
        let version = match fields.inner(version)? {
            Some(given) => {
                TwinVersion { cloud: number(&given, "cloud")?, edge: number(&given, "edge")? }
            }
            None => TwinVersion::default(),
        };
        Ok(Some(TwinSide { value, timestamp_ms, version }))
    };
    let type_name = match fields.inner("metadata")? {
        Some(metadata) => metadata.word("type")?,
        None => Box::default(),
    };
    Ok(Twin {
        expected: side("expected", "expected_version")?,
        actual: side("actual", "actual_version")?,
        optional: fields.truth("optional")?.unwrap_or(false),
        type_name: (&*type_name).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::devices::encode_cloud;

    const DEV1: &str = "device/default/dev1/twin/edge_updated";

    fn error(resource: &str, content: &str) -> String {
        let read = decode_report(resource, content).expect("it is a report");
        read.expect_err("it is not valid").to_string()
    }

    fn side(value: &str, timestamp_ms: i64, edge: i64) -> TwinSide {
        let version = TwinVersion { cloud: 0, edge };
        TwinSide { value: Some(value.into()), timestamp_ms, version }
    }

    #[test]
    fn what_a_node_writes_is_read() {
        let temp = Twin {
            expected: Some(side("20", 5, 1)),
            actual: Some(side("<21>", 6, 7)),
            optional: true,
            type_name: "int".into(),
        };
        let twins = Twins::from([("temp".into(), temp)]);
        let state = DeviceState { state: "online".into(), last_online: "2027-01-15T".into() };
        for id in ["default/dev1", "dev1"] {
            for report in [
                DeviceUpstream::Twins(DeviceId::of(id), twins.clone()),
                DeviceUpstream::State(DeviceId::of(id), state.clone()),
            ] {
                let (operation, resource, content) = encode_cloud(&report, "e", 9);
                assert_eq!(operation, "update");
                let text = crate::model::message::inner(&content);
                let read = decode_report(&resource, &text).expect("a report");
                assert_eq!(read.expect("it is valid"), (report, 9));
            }
        }
    }

    /// Section 10.2, as measured on EdgeCore.
    #[test]
    fn what_edgecore_writes_is_read() {
        let text = r#"{"event_id":"2c00","timestamp":1795468055281,"twin":{"temp":{"actual":
            {"value":"19","metadata":{"timestamp":1795468055267}},"optional":true,"metadata":
            {"type":"int"},"actual_version":{"cloud":0,"edge":1}},"gone":{"actual":{},
            "metadata":{"type":"deleted"},"actual_version":{"cloud":0,"edge":2}},"none":null}}"#;
        let (report, at_ms) = decode_report(DEV1, text).expect("a report").expect("it is valid");
        let DeviceUpstream::Twins(id, twins) = report else { panic!("{report:?}") };
        assert_eq!((id.as_str(), at_ms), ("default/dev1", 1_795_468_055_281));
        assert_eq!(twins["temp"].actual, Some(side("19", 1_795_468_055_267, 1)));
        let gone = twins["gone"].actual.clone().expect("the side is given");
        assert_eq!((gone.value, gone.version.edge), (None, 2));
        assert_eq!(twins.len(), 2);
        let text = r#"{"device":{"name":"dev1","state":"offline","last_online":"x"}}"#;
        let read = decode_report("device/dev1/state/update", text).expect("a report");
        let state = DeviceState { state: "offline".into(), last_online: "x".into() };
        assert_eq!(read, Ok((DeviceUpstream::State(DeviceId::of("dev1"), state), 0)));
    }

    #[test]
    fn other_messages_are_no_reports() {
        for resource in ["membership/detail", "device/d/twin/get", "node", "device", ""] {
            assert!(decode_report(resource, "{}").is_none(), "{resource}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_has_bounds() {
        let long = "n".repeat(DEVICE_ID_BYTES_MAX);
        for id in ["", "/", "a/", "a/b/c", &*long, &format!("n/{long}")] {
            let resource = format!("device/{id}/twin/edge_updated");
            let Some(read) = decode_report(&resource, "{}") else { continue };
            let is_valid = id == long;
            assert_eq!(read.is_ok(), is_valid, "{id}");
        }
        let big = format!("{{\"x\":\"{}\"}}", "x".repeat(DEVICE_REPORT_BYTES_MAX - 8));
        assert!(decode_report(DEV1, &big).expect("a report").is_ok());
        assert!(error(DEV1, &format!("{big} ")).starts_with("content: got 1048577 bytes"));
        let twins = |count: usize| {
            let all: Vec<String> = (0..count).map(|at| format!("\"p{at}\":{{}}")).collect();
            format!("{{\"twin\":{{{}}}}}", all.join(","))
        };
        let most = DEVICE_REPORT_PROPERTIES_MAX;
        assert!(decode_report(DEV1, &twins(most)).expect("a report").is_ok());
        let why = error(DEV1, &twins(most + 1));
        assert_eq!(why, format!("twin: got {} properties, expected {most} at most", most + 1));
        let value = |bytes: usize| {
            format!("{{\"twin\":{{\"t\":{{\"actual\":{{\"value\":\"{}\"}}}}}}}}", "x".repeat(bytes))
        };
        assert!(decode_report(DEV1, &value(TWIN_VALUE_BYTES_MAX)).expect("a report").is_ok());
        assert!(error(DEV1, &value(TWIN_VALUE_BYTES_MAX + 1)).starts_with("twin.t: actual: got"));
        let name = |bytes: usize| format!("{{\"twin\":{{\"{}\":{{}}}}}}", "x".repeat(bytes));
        assert!(decode_report(DEV1, &name(TWIN_NAME_BYTES_MAX)).expect("a report").is_ok());
        assert!(error(DEV1, &name(TWIN_NAME_BYTES_MAX + 1)).starts_with("twin: got a name of"));
        for (content, expected) in [
            ("{bad", "content: "),
            ("[]", "got "),
            (r#"{"twin":7}"#, "twin: got 7, expected a map"),
            (r#"{"twin":{"t":7}}"#, "twin.t: got 7, expected a map"),
            (r#"{"timestamp":"x"}"#, "timestamp: got"),
        ] {
            let why = error(DEV1, content);
            assert!(why.starts_with(expected), "{content}: {why}");
        }
        assert_eq!(error("device/d/state/update", "{}"), "got no device, expected one");
    }
}
