//! The messages of mappers and to them, byte by byte.

use std::sync::Arc;

use super::*;
use crate::limits::{DMI_ANSWER_BYTES_MAX, DMI_NAME_BYTES_MAX, DMI_TWINS_MAX};
use crate::model::device::{
    DeviceId, ManagerAnswer, ManagerCall, Mapper, MapperCall, MapperError, ReportedTwin,
};
use crate::wire::rpc::{Begun, CallKey, Code, Event, Lost, Status};

const MANAGER: &str = "/v1beta1.DeviceManagerService/";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("digits")).collect()
}

fn decoded(method: &str, message: &[u8]) -> Result<ManagerCall, Status> {
    decode(&format!("{MANAGER}{method}"), message)
}

fn refused(method: &str, message: &[u8]) -> String {
    let status = decoded(method, message).expect_err("a refusal");
    assert_eq!(status.code, Code::InvalidArgument);
    status.message
}

fn twin(property: &str, expected: Option<&str>, actual: Option<&str>) -> ReportedTwin {
    let [expected, actual] = [expected, actual].map(|side| side.map(Into::into));
    ReportedTwin { property: property.into(), expected, actual }
}

#[test]
fn a_registration_is_read() {
    let message = hex(
        "08 01 12 3c 0a 02 6d 31 12 07 76 31 2e 31 33 2e 30 1a 06 76 31 2e 30 2e 30 22 06 6d 6f 64
         62 75 73 2a 19 2f 65 74 63 2f 6b 75 62 65 65 64 67 65 2f 6d 6f 64 62 75 73 2e 73 6f 63 6b
         32 02 6f 6b",
    );
    let mapper = Mapper {
        name: "m1".into(),
        version: "v1.13.0".into(),
        api_version: "v1.0.0".into(),
        protocol: "modbus".into(),
        address: "/etc/kubeedge/modbus.sock".into(),
        state: "ok".into(),
    };
    let expected = ManagerCall::Register { mapper, with_data: true };
    assert_eq!(decoded("MapperRegister", &message), Ok(expected));
    for cut in 0..message.len() {
        let _ = decoded("MapperRegister", &message[..cut]);
    }
    assert_eq!(
        refused("MapperRegister", b"\x08\x01"),
        "MapperRegister: got no mapper, expected one"
    );
    assert_eq!(
        refused("MapperRegister", b"\x12\x03\x0a\x01m"),
        "MapperRegister: got no protocol, expected one"
    );
    assert_eq!(
        refused("MapperRegister", b"\x12\x06\x0a\x01m\x22\x01p"),
        "MapperRegister: got no address, expected one"
    );
}

#[test]
fn a_report_is_read_with_the_sides_that_it_gives() {
    let message = hex(
        "0a 04 64 65 76 31 12 14 0a 12 0a 04 74 65 6d 70 12 04 0a 02 32 30 1a 04 0a 02 32 31 1a 07
         64 65 66 61 75 6c 74",
    );
    let device = DeviceId::new("default", "dev1");
    let twins = vec![twin("temp", Some("20"), Some("21"))];
    let expected = ManagerCall::ReportStatus { device, twins };
    assert_eq!(decoded("ReportDeviceStatus", &message), Ok(expected));
    // Without a namespace (up to 1.15), one side, an empty side of each kind, unknown fields.
    let message = b"\x0a\x01d\x12\x1b\
        \x0a\x07\x0a\x01a\x1a\x02\x0a\x00\
        \x0a\x09\x0a\x01b\x12\x00\x1a\x02\x22\x00\
        \x0a\x03\x0a\x01c\x10\x01\
        \x50\x01";
    let device = DeviceId::new("", "d");
    let twins = vec![twin("a", None, Some("")), twin("b", None, Some("")), twin("c", None, None)];
    let expected = ManagerCall::ReportStatus { device, twins };
    assert_eq!(decoded("ReportDeviceStatus", message), Ok(expected));
}

#[test]
fn a_report_that_says_nothing_is_refused() {
    for (message, expected) in [
        (&b"\x0a\x01d"[..], "got no reportedDevice.twins, expected one"),
        (b"\x0a\x01d\x12\x00", "got no reportedDevice.twins, expected one"),
        (b"\x12\x05\x0a\x03\x0a\x01p", "got no deviceName, expected one"),
        (b"\x0a\x01d\x12\x02\x0a\x00", "got no propertyName, expected one"),
        (b"\x08\x01", "got a field with a varint, expected bytes"),
        (b"\x0a\x05d", "got no field at byte 0 of 3, expected one"),
    ] {
        let expected = format!("ReportDeviceStatus: {expected}");
        assert_eq!(refused("ReportDeviceStatus", message), expected);
    }
    let text = refused("ReportDeviceStates", b"\x0a\x01\xff\x1a\x02ok");
    assert!(text.starts_with("ReportDeviceStates: got a string that is no UTF-8"), "{text}");
    assert_eq!(
        refused("ReportDeviceStates", b"\x0a\x01d"),
        "ReportDeviceStates: got no state, expected one"
    );
}

#[test]
fn reports_have_bounds() {
    let report = |twins: usize| {
        let twins = b"\x0a\x03\x0a\x01p".repeat(twins);
        let length = [0x80 | (twins.len() & 0x7f) as u8, (twins.len() >> 7) as u8];
        [b"\x0a\x01d\x12", &length[..], &twins].concat()
    };
    assert!(decoded("ReportDeviceStatus", &report(DMI_TWINS_MAX)).is_ok());
    assert_eq!(
        refused("ReportDeviceStatus", &report(DMI_TWINS_MAX + 1)),
        format!("ReportDeviceStatus: got more twins, expected at most {DMI_TWINS_MAX}")
    );
    let state = |bytes: usize| {
        let name = "n".repeat(bytes);
        let length = [0x80 | (bytes & 0x7f) as u8, (bytes >> 7) as u8];
        [b"\x0a", &length[..], name.as_bytes(), b"\x1a\x02ok"].concat()
    };
    assert!(decoded("ReportDeviceStates", &state(DMI_NAME_BYTES_MAX)).is_ok());
    let text = refused("ReportDeviceStates", &state(DMI_NAME_BYTES_MAX + 1));
    assert_eq!(text, "ReportDeviceStates: got a name of 513 bytes, expected at most 512");
}

#[test]
fn a_state_is_read() {
    let message = b"\x0a\x04dev1\x12\x07default\x1a\x06online";
    let device = DeviceId::new("default", "dev1");
    let expected = ManagerCall::ReportState { device, state: "online".into() };
    assert_eq!(decoded("ReportDeviceStates", message), Ok(expected));
}

#[test]
fn other_methods_and_services_are_not_implemented() {
    for (path, text) in [
        (
            "/v1beta1.DeviceManagerService/Reboot",
            "unknown method Reboot for service v1beta1.DeviceManagerService",
        ),
        (
            "/v1alpha1.DeviceManagerService/MapperRegister",
            "unknown service v1alpha1.DeviceManagerService, expected v1beta1.DeviceManagerService",
        ),
        ("nonsense", "unknown service , expected v1beta1.DeviceManagerService"),
    ] {
        let expected = Status { code: Code::Unimplemented, message: text.to_owned() };
        assert_eq!(decode(path, b""), Err(expected));
    }
}

fn text(json: &str) -> Arc<str> {
    json.into()
}

const MODEL: &str = r#"{"metadata":{"name":"model1","namespace":"default"},"spec":{"properties":[
    {"name":"temp","type":"INT","accessMode":"ReadWrite","maximum":"100","unit":"C"}]}}"#;

const MODEL_BYTES: &str = "0a 06 6d 6f 64 65 6c 31 12 20 0a 1e 0a 04 74 65 6d 70 1a 03 49 4e 54
    22 09 52 65 61 64 57 72 69 74 65 32 03 31 30 30 3a 01 43 1a 07 64 65 66 61 75 6c 74";

#[test]
fn a_registered_mapper_gets_models_and_devices() {
    assert_eq!(answer(&ManagerAnswer::Done).result, Ok(Vec::new()));
    let device = r#"{"metadata":{"name":"d"}}"#;
    let broken = r#"{"metadata":{"name":"broken"},"spec":{"protocol":7}}"#;
    let got = answer(&ManagerAnswer::Registered {
        models: vec![text(MODEL)],
        devices: vec![(text(broken), None), (text(device), None), (text("{"), None)],
    });
    let device = b"\x12\x0b\x0a\x01d\x12\x04\x12\x02\x12\x00\x1a\x00";
    let expected = [&b"\x0a\x33"[..], &hex(MODEL_BYTES), device].concat();
    assert_eq!(got.result, Ok(expected));
    assert_eq!(got.left_out.len(), 2);
    let why = "device broken: spec: protocol: got a number, expected an object";
    assert_eq!(got.left_out[0], why);
}

#[test]
fn refusals_have_the_codes_of_grpc() {
    for (refusal, code) in [
        (ManagerAnswer::NotFound("x".into()), Code::NotFound),
        (ManagerAnswer::Invalid("x".into()), Code::InvalidArgument),
        (ManagerAnswer::TooMany("x".into()), Code::ResourceExhausted),
    ] {
        let status = Status { code, message: "x".to_owned() };
        assert_eq!(answer(&refusal).result, Err(status));
    }
}

#[test]
fn an_answer_that_grpc_would_refuse_is_not_sent() {
    let config = "x".repeat(DMI_ANSWER_BYTES_MAX / 2);
    let device = format!(
        r#"{{"metadata":{{"name":"d"}},"spec":{{"protocol":{{"configData":{{"k":"{config}"}}}}}}}}"#
    );
    let devices = |count| {
        let devices = vec![(text(&device), None); count];
        answer(&ManagerAnswer::Registered { models: Vec::new(), devices }).result
    };
    assert!(devices(1).is_ok());
    assert_eq!(devices(2).map_err(|status| status.code), Err(Code::ResourceExhausted));
    let large = device.replace(&config, &config.repeat(2));
    let call = MapperCall::UpdateDevice(text(&large), None);
    assert!(matches!(encode(&call), Err(MapperError::Unwritable(_))));
}

/// The message of a device, without the request around it.
fn device_of(device: &str, model: Option<&str>) -> Vec<u8> {
    object::device(device, model).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn values_become_the_wrappers_that_mappers_read() {
    let value = |json: &str| {
        let device = format!(
            r#"{{"spec":{{"properties":[{{"visitors":{{"configData":{{"k":{json}}}}}}}]}}}}"#
        );
        object::device(&device, None).map(|bytes| {
            let at = bytes.windows(27).position(|part| part == b"type.googleapis.com/google.");
            at.map(|at| String::from_utf8_lossy(&bytes[at + 36..bytes.len() - 2]).into_owned())
        })
    };
    for (json, expected) in [
        ("40001", "Int64Value\x12\x04\x08\u{fffd}\u{fffd}\x02"),
        ("16777217", "Int64Value\x12\x05\x08\u{fffd}\u{fffd}\u{fffd}\x08"),
        ("0", "Int64Value"),
        ("true", "BoolValue\x12\x02\x08\x01"),
        ("false", "BoolValue"),
        ("\"x\"", "StringValue\x12\x03\x0a\x01x"),
        ("2.5", "FloatValue\x12\x05\x0d\0\0 @"),
        ("0.0", "FloatValue"),
    ] {
        assert_eq!(value(json).map(Option::unwrap_or_default).as_deref(), Ok(expected), "{json}");
    }
    assert_eq!(value("null"), Ok(None), "it is left out");
    for (json, got) in [("[1]", "a list"), ("{}", "an object")] {
        let why = value(json).expect_err("it has no wrapper").to_string();
        let place = "without a name: spec: properties: 0: visitors: configData: k";
        assert_eq!(why, format!("{place}: got {got}, expected text, a number, true or false"));
    }
    let why = value("1e300").expect_err("32 bits do not hold it").to_string();
    assert!(why.ends_with("got 1e+300, expected a number that a float of 32 bits can hold"));
}

#[test]
fn what_mappers_use_without_a_check_is_always_there() {
    let device =
        device_of(r#"{"metadata":{"name":"d"},"spec":{"properties":[{"name":"p"}]}}"#, None);
    let expected = b"\x0a\x01d\
        \x12\x0f\
            \x12\x02\x12\x00\
            \x1a\x09\x0a\x01p\x12\x00\x1a\x02\x12\x00\
        \x1a\x00";
    assert_eq!(device, expected);
    // A null is an absent key.
    let nulls = r#"{"metadata":{"name":"d","namespace":null},"status":null,"spec":{"protocol":null,
        "properties":[{"name":"p","desired":null,"visitors":{"configData":null}}]}}"#;
    assert_eq!(device_of(nulls, None), expected);
}

#[test]
fn cycles_and_the_report_of_the_state_are_written() {
    let property = r#"{"spec":{"properties":[
        {"reportCycle":10000,"collectCycle":5000,"reportToCloud":true}]}}"#;
    let bytes = device_of(property, None);
    let cycles = hex("20 90 4e 28 88 27 30 01");
    assert!(bytes.windows(cycles.len()).any(|part| part == cycles), "{bytes:02x?}");
    let status = |json: &str| {
        let bytes = device_of(json, None);
        let at = bytes.windows(2).rposition(|part| part[0] == 0x1a).expect("it is there");
        bytes[at..].to_vec()
    };
    assert_eq!(status("{}"), b"\x1a\x00");
    let both = r#"{"spec":{"stateReport":{"reportToCloud":true,"reportCycle":5}},
        "status":{"reportCycle":6}}"#;
    assert_eq!(status(both), b"\x1a\x04\x10\x01\x18\x05", "of 1.23 and later");
    let old = r#"{"status":{"reportToCloud":true,"reportCycle":6,"twins":[{"propertyName":"p"}]}}"#;
    assert_eq!(status(old), b"\x1a\x04\x10\x01\x18\x06", "up to 1.22, and without the twins");
}

#[test]
fn the_model_gives_defaults_key_by_key() {
    let model = r#"{"spec":{
        "protocolConfigData":{"port":1,"speed":9600},
        "properties":[
            {"name":"temp","visitors":{"protocolName":"of-model","configData":{"reg":"m","off":5}}},
            {"name":"plain"}]}}"#;
    let device = r#"{"metadata":{"name":"d"},"spec":{
        "protocol":{"protocolName":"modbus","configData":{"port":2}},
        "properties":[
            {"name":"temp","visitors":{"protocolName":"own","configData":{"reg":"d"}}},
            {"name":"plain","visitors":{"protocolName":"own"}},
            {"name":"other"}]}}"#;
    let merged = r#"{"metadata":{"name":"d"},"spec":{
        "protocol":{"protocolName":"modbus","configData":{"port":2,"speed":9600}},
        "properties":[
            {"name":"temp","visitors":{"protocolName":"of-model","configData":{"off":5,"reg":"d"}}},
            {"name":"plain","visitors":{"protocolName":"own"}},
            {"name":"other"}]}}"#;
    assert_eq!(device_of(device, Some(model)), device_of(merged, None));
    assert_ne!(device_of(device, None), device_of(merged, None));
    let bare = r#"{"metadata":{"name":"d"},"spec":{"properties":[{"name":"temp"}]}}"#;
    let filled = r#"{"metadata":{"name":"d"},"spec":{
        "protocol":{"configData":{"port":1,"speed":9600}},
        "properties":[
            {"name":"temp","visitors":{
                "protocolName":"of-model","configData":{"off":5,"reg":"m"}}}]}}"#;
    assert_eq!(device_of(bare, Some(model)), device_of(filled, None));
    // Defaults do not replace what is wrong.
    let wrong = r#"{"metadata":{"name":"d"},"spec":{"protocol":"modbus"}}"#;
    let why = object::device(wrong, Some(model)).expect_err("no object").to_string();
    assert_eq!(why, "d: spec: protocol: got text, expected an object");
    let why = object::device(bare, Some("[]")).expect_err("no model").to_string();
    assert!(why.starts_with("d: its model: got "), "{why}");
}

#[test]
fn what_is_of_another_type_is_named_with_its_place() {
    for (spec, expected) in [
        (r#"{"properties":{}}"#, "properties: got an object, expected a list"),
        (r#"{"properties":[1]}"#, "properties: 0: got a number, expected an object"),
        (
            r#"{"methods":[{"propertyNames":[1]}]}"#,
            "methods: 0: propertyNames: got a number, expected text",
        ),
        (
            r#"{"properties":[{},{"reportCycle":"1"}]}"#,
            "properties: 1: reportCycle: got text, expected an integer",
        ),
        (
            r#"{"properties":[{"reportToCloud":1}]}"#,
            "properties: 0: reportToCloud: got a number, expected true or false",
        ),
        (
            r#"{"properties":[{"desired":{"metadata":{"type":null}}}]}"#,
            "properties: 0: desired: metadata: type: got null, expected text",
        ),
    ] {
        let device = format!(r#"{{"metadata":{{"name":"d"}},"spec":{spec}}}"#);
        let call = MapperCall::RegisterDevice(text(&device), None);
        let why: Box<str> = format!("d: spec: {expected}").into();
        assert_eq!(encode(&call), Err(MapperError::Unwritable(why)));
    }
}

#[test]
fn calls_have_their_paths_and_messages() {
    let model = hex(MODEL_BYTES);
    let model = [&[0x0a, model.len() as u8][..], &model].concat();
    let device = r#"{"metadata":{"name":"d"}}"#;
    let device_bytes = b"\x0a\x0b\x0a\x01d\x12\x04\x12\x02\x12\x00\x1a\x00".to_vec();
    let id = DeviceId::new("ns", "d");
    for (call, method, expected) in [
        (MapperCall::CreateModel(text(MODEL)), "CreateDeviceModel", model.clone()),
        (MapperCall::UpdateModel(text(MODEL)), "UpdateDeviceModel", model),
        (MapperCall::RemoveModel(id.clone()), "RemoveDeviceModel", b"\x0a\x01d\x12\x02ns".to_vec()),
        (MapperCall::RegisterDevice(text(device), None), "RegisterDevice", device_bytes.clone()),
        (MapperCall::UpdateDevice(text(device), Some(text("{}"))), "UpdateDevice", device_bytes),
        (MapperCall::RemoveDevice(id), "RemoveDevice", b"\x0a\x01d\x12\x02ns".to_vec()),
    ] {
        let (path, message) = encode(&call).expect("it can be written");
        assert_eq!(path, format!("/v1beta1.DeviceMapperService/{method}"));
        assert_eq!(message, expected, "{method}");
    }
}

#[test]
fn a_call_ends_well_or_with_a_reason() {
    let key = CallKey(1);
    assert_eq!(outcome(Event::Reply(key, Vec::new())), Ok(()));
    let status = Status { code: Code::Unknown, message: "can not find device".to_owned() };
    let refused = MapperError::Refused(2, "can not find device".into());
    assert_eq!(outcome(Event::Failed(key, status)), Err(refused));
    let lost = Lost { begun: Begun::Perhaps, why: "closed".to_owned() };
    assert_eq!(outcome(Event::Lost(key, lost)), Err(MapperError::Unreachable("closed".into())));
}
