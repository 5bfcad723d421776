//! `Device` and `DeviceModel`: from the JSON of their objects to the messages of DMI, by tables.

use serde_json::{Map, Value};

use crate::model::error::Input;
use crate::wire::protobuf::Writer;

/// A field of a message, and the key of the object that it is read from.
struct Field {
    key: &'static str,
    number: u32,
    kind: Kind,
}

/// How a value is written.
enum Kind {
    Text,
    Texts,
    /// `map<string, string>`
    TextMap,
    Flag,
    /// `int32`, `int64`
    Integer,
    /// The field `name` of an object.
    Name,
    Message(&'static [Field]),
    /// The same, also if it is absent: mapper-framework uses it without a check.
    Always(&'static [Field]),
    Messages(&'static [Field]),
    /// `CustomizedValue`, present also if it is absent.
    AnyMap,
    /// `AnomalyDetection`, of the same shape.
    OptionalAnyMap,
}

const fn field(key: &'static str, number: u32, kind: Kind) -> Field {
    Field { key, number, kind }
}

use Kind::{
    Always, AnyMap, Flag, Integer, Message, Messages, Name, OptionalAnyMap, Text, TextMap, Texts,
};

const MODEL_SPEC: &[Field] = &[field("properties", 1, Messages(MODEL_PROPERTY))];

const MODEL_PROPERTY: &[Field] = &[
    field("name", 1, Text),
    field("description", 2, Text),
    field("type", 3, Text),
    field("accessMode", 4, Text),
    field("minimum", 5, Text),
    field("maximum", 6, Text),
    field("unit", 7, Text),
];

const DEVICE_SPEC: &[Field] = &[
    field("deviceModelRef", 1, Name),
    field("protocol", 2, Always(CONFIG)),
    field("properties", 3, Messages(PROPERTY)),
    field("methods", 4, Messages(METHOD)),
];

/// `ProtocolConfig`, `VisitorConfig`
const CONFIG: &[Field] = &[field("protocolName", 1, Text), field("configData", 2, AnyMap)];

const METHOD: &[Field] =
    &[field("name", 1, Text), field("description", 2, Text), field("propertyNames", 3, Texts)];

const PROPERTY: &[Field] = &[
    field("name", 1, Text),
    field("desired", 2, Always(TWIN_PROPERTY)),
    field("visitors", 3, Always(CONFIG)),
    field("reportCycle", 4, Integer),
    field("collectCycle", 5, Integer),
    field("reportToCloud", 6, Flag),
    field("pushMethod", 7, Message(PUSH_METHOD)),
];

const TWIN_PROPERTY: &[Field] = &[field("value", 1, Text), field("metadata", 2, TextMap)];

const PUSH_METHOD: &[Field] = &[
    field("http", 1, Message(PUSH_HTTP)),
    field("mqtt", 2, Message(PUSH_MQTT)),
    field("dbMethod", 3, Message(DB_METHOD)),
    field("otel", 4, Message(PUSH_OTEL)),
    field("anomalyDetection", 5, OptionalAnyMap),
];

const PUSH_HTTP: &[Field] = &[
    field("hostName", 1, Text),
    field("port", 2, Integer),
    field("requestPath", 3, Text),
    field("timeout", 4, Integer),
];

const PUSH_MQTT: &[Field] = &[
    field("address", 1, Text),
    field("topic", 2, Text),
    field("qos", 3, Integer),
    field("retained", 4, Flag),
];

const PUSH_OTEL: &[Field] = &[field("endpointURL", 1, Text)];

const DB_METHOD: &[Field] = &[
    field("influxdb2", 1, Message(INFLUXDB2)),
    field("redis", 2, Message(REDIS)),
    field("TDEngine", 3, Message(TDENGINE)),
    field("mysql", 4, Message(MYSQL)),
];

const INFLUXDB2: &[Field] = &[
    field("influxdb2ClientConfig", 1, Message(INFLUXDB2_CLIENT)),
    field("influxdb2DataConfig", 2, Message(INFLUXDB2_DATA)),
];

const INFLUXDB2_CLIENT: &[Field] =
    &[field("url", 1, Text), field("org", 2, Text), field("bucket", 3, Text)];

const INFLUXDB2_DATA: &[Field] =
    &[field("measurement", 1, Text), field("tag", 2, TextMap), field("fieldKey", 3, Text)];

const REDIS: &[Field] = &[field("redisClientConfig", 1, Message(REDIS_CLIENT))];

const REDIS_CLIENT: &[Field] = &[
    field("addr", 1, Text),
    field("db", 2, Integer),
    field("poolsize", 3, Integer),
    field("minIdleConns", 4, Integer),
];

const TDENGINE: &[Field] = &[field("TDEngineClientConfig", 1, Message(TDENGINE_CLIENT))];

const TDENGINE_CLIENT: &[Field] = &[field("addr", 1, Text), field("dbName", 2, Text)];

const MYSQL: &[Field] = &[field("mysqlClientConfig", 1, Message(MYSQL_CLIENT))];

const MYSQL_CLIENT: &[Field] =
    &[field("addr", 1, Text), field("database", 2, Text), field("userName", 3, Text)];

/// What of `DeviceStatus` a mapper needs: whether and how often it reports the state.
const STATUS: &[Field] = &[field("reportToCloud", 2, Flag), field("reportCycle", 3, Integer)];

type Object = Map<String, Value>;

/// The message `DeviceModel`.
pub(super) fn model(json: &str) -> Result<Vec<u8>, Input> {
    let model = parse(json)?;
    write_model(&model).map_err(|why| named(why, &model))
}

fn write_model(model: &Object) -> Result<Vec<u8>, Input> {
    let mut writer = Writer::default();
    metadata("name", 1, model, &mut writer)?;
    nested(2, &mut writer, |writer| write(MODEL_SPEC, model.get("spec"), writer))
        .map_err(|why| why.at("spec"))?;
    metadata("namespace", 3, model, &mut writer)?;
    Ok(writer.into_bytes())
}

/// The message `Device`, with the defaults of its model.
pub(super) fn device(json: &str, model: Option<&str>) -> Result<Vec<u8>, Input> {
    let mut device = parse(json)?;
    if let Some(model) = model {
        let model = parse(model).map_err(|why| named(why.at("its model"), &device))?;
        add_defaults(&mut device, &model);
    }
    write_device(&device).map_err(|why| named(why, &device))
}

fn write_device(device: &Object) -> Result<Vec<u8>, Input> {
    let mut writer = Writer::default();
    metadata("name", 1, device, &mut writer)?;
    let spec = device.get("spec");
    nested(2, &mut writer, |writer| write(DEVICE_SPEC, spec, writer))
        .map_err(|why| why.at("spec"))?;
    let report = spec.and_then(|spec| spec.get("stateReport")).filter(|report| !report.is_null());
    let (report, place) = match report {
        Some(report) => (Some(report), "spec: stateReport"),
        // Clouds up to 1.22.
        None => (device.get("status"), "status"),
    };
    nested(3, &mut writer, |writer| write(STATUS, report, writer)).map_err(|why| why.at(place))?;
    metadata("namespace", 4, device, &mut writer)?;
    Ok(writer.into_bytes())
}

fn parse(json: &str) -> Result<Object, Input> {
    serde_json::from_str(json).map_err(|error| Input::new(error, "an object in JSON"))
}

/// The object's name before what is wrong with it.
fn named(why: Input, object: &Object) -> Input {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str());
    why.at(name.unwrap_or("without a name"))
}

/// A text of the object's metadata.
fn metadata(
    key: &'static str,
    number: u32,
    object: &Object,
    writer: &mut Writer,
) -> Result<(), Input> {
    write(&[field(key, number, Text)], object.get("metadata"), writer)
        .map_err(|why| why.at("metadata"))
}

/// KubeEdge 1.22 and later: what the device does not say of itself its model says, key by key. If
/// the model has visitors, their protocol is that of the model.
fn add_defaults(device: &mut Object, model: &Object) {
    let Some(of_model) = model.get("spec").and_then(Value::as_object) else { return };
    let Some(spec) = object_at(device, "spec") else { return };
    if let Some(defaults) = of_model.get("protocolConfigData").and_then(Value::as_object)
        && let Some(protocol) = object_at(spec, "protocol")
    {
        add_missing(protocol, defaults);
    }
    let Some(Value::Array(properties)) = spec.get_mut("properties") else { return };
    let of_model = of_model.get("properties").and_then(Value::as_array);
    for property in properties.iter_mut().filter_map(Value::as_object_mut) {
        let is_it = |of_model: &&Value| of_model.get("name") == property.get("name");
        let visitors = of_model
            .and_then(|all| all.iter().find(is_it))
            .and_then(|of_model| of_model.get("visitors")?.as_object());
        if let Some(visitors) = visitors
            && let Some(own) = object_at(property, "visitors")
        {
            if let Some(name) = visitors.get("protocolName").filter(|name| *name != "") {
                own.insert("protocolName".to_owned(), name.clone());
            }
            if let Some(defaults) = visitors.get("configData").and_then(Value::as_object) {
                add_missing(own, defaults);
            }
        }
    }
}

/// Adds to `configData` the keys that it does not have.
fn add_missing(config: &mut Object, defaults: &Object) {
    let Some(data) = object_at(config, "configData") else { return };
    for (key, value) in defaults {
        data.entry(key.as_str()).or_insert_with(|| value.clone());
    }
}

/// The object of that key, a new one if there is none; `None`: there is something else.
fn object_at<'a>(object: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let value = object.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// Writes the fields of an object; `None` and null: an empty one.
fn write(fields: &[Field], value: Option<&Value>, writer: &mut Writer) -> Result<(), Input> {
    let empty = Object::new();
    let object = match value {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(object)) => object,
        Some(other) => return Err(unlike(other, "an object")),
    };
    for field in fields {
        let value = object.get(field.key).filter(|value| !value.is_null());
        write_field(field, value, writer).map_err(|why| why.at(field.key))?;
    }
    Ok(())
}

fn write_field(field: &Field, value: Option<&Value>, writer: &mut Writer) -> Result<(), Input> {
    let number = field.number;
    match (&field.kind, value) {
        (Always(fields), _) => {
            nested(number, writer, |writer| write(fields, value, writer))?;
        }
        (AnyMap, None) => writer.message(number, &mut |_| {}),
        (_, None) => {}
        (Text, Some(value)) => writer.text(number, text(value)?),
        (Flag, Some(value)) => {
            writer.flag(number, value.as_bool().ok_or_else(|| unlike(value, "true or false"))?);
        }
        (Integer, Some(value)) => {
            writer.signed(number, value.as_i64().ok_or_else(|| unlike(value, "an integer"))?);
        }
        (Name, Some(value)) => {
            write(&[self::field("name", number, Text)], Some(value), writer)?;
        }
        (Message(fields), Some(_)) => {
            nested(number, writer, |writer| write(fields, value, writer))?;
        }
        (Texts, Some(value)) => {
            let texts: Result<Vec<&str>, Input> = list(value)?.iter().map(text).collect();
            writer.texts(number, &texts?);
        }
        (Messages(fields), Some(value)) => {
            for (at, item) in list(value)?.iter().enumerate() {
                nested(number, writer, |writer| write(fields, Some(item), writer))
                    .map_err(|why| why.at(at))?;
            }
        }
        (TextMap, Some(value)) => {
            for (key, value) in entries(value)? {
                let value = text(value).map_err(|why| why.at(key))?;
                writer.message(number, &mut |entry| {
                    entry.text(1, key);
                    entry.text(2, value);
                });
            }
        }
        (AnyMap | OptionalAnyMap, Some(value)) => {
            nested(number, writer, |writer| write_any_map(value, writer))?;
        }
    }
    Ok(())
}

/// `map<string, google.protobuf.Any>` as field 1 of a message.
fn write_any_map(value: &Value, writer: &mut Writer) -> Result<(), Input> {
    for (key, value) in entries(value)? {
        if value.is_null() {
            continue;
        }
        let (kind, value) = any(value).map_err(|why| why.at(key))?;
        writer.message(1, &mut |entry| {
            entry.text(1, key);
            entry.message(2, &mut |any| {
                any.text(1, kind);
                any.bytes(2, &value);
            });
        });
    }
    Ok(())
}

/// The type of a `google.protobuf.Any` and its bytes: a wrapper message with the value in field 1.
fn any(value: &Value) -> Result<(&'static str, Vec<u8>), Input> {
    let mut writer = Writer::default();
    let kind = match value {
        Value::String(text) => {
            writer.text(1, text);
            "type.googleapis.com/google.protobuf.StringValue"
        }
        Value::Bool(flag) => {
            writer.flag(1, *flag);
            "type.googleapis.com/google.protobuf.BoolValue"
        }
        Value::Number(number) => {
            if let Some(integer) = number.as_i64() {
                writer.signed(1, integer);
                "type.googleapis.com/google.protobuf.Int64Value"
            } else {
                let float = number.as_f64().map(|number| number as f32);
                let Some(float) = float.filter(|float| float.is_finite()) else {
                    return Err(Input::new(number, "a number that a float of 32 bits can hold"));
                };
                writer.float(1, float);
                "type.googleapis.com/google.protobuf.FloatValue"
            }
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(unlike(value, "text, a number, true or false"));
        }
    };
    Ok((kind, writer.into_bytes()))
}

/// A message inside, whose content may fail.
fn nested(
    number: u32,
    writer: &mut Writer,
    fill: impl Fn(&mut Writer) -> Result<(), Input>,
) -> Result<(), Input> {
    let mut filled = Ok(());
    writer.message(number, &mut |writer| filled = fill(writer));
    filled
}

fn text(value: &Value) -> Result<&str, Input> {
    value.as_str().ok_or_else(|| unlike(value, "text"))
}

fn list(value: &Value) -> Result<&Vec<Value>, Input> {
    value.as_array().ok_or_else(|| unlike(value, "a list"))
}

fn entries(value: &Value) -> Result<&Object, Input> {
    value.as_object().ok_or_else(|| unlike(value, "an object"))
}

fn unlike(value: &Value, expected: &'static str) -> Input {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Input::new(got, expected)
}
