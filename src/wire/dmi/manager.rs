//! `DeviceManagerService`: what mappers call.

use super::object;
use crate::limits::{DMI_ANSWER_BYTES_MAX, DMI_NAME_BYTES_MAX, DMI_TWINS_MAX};
use crate::model::device::{DeviceId, ManagerAnswer, ManagerCall, Mapper, ReportedTwin};
use crate::wire::protobuf::{Malformed, Value, Writer, fields};
use crate::wire::rpc::{Code, Status};

const SERVICE: &str = "v1beta1.DeviceManagerService";

/// The answer of a call, ready for gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub result: Result<Vec<u8>, Status>,
    /// Devices and models that cannot be written and are missing in the answer, each with the
    /// reason: for the log.
    pub left_out: Vec<String>,
}

/// Reads a call. The status is for the mapper.
pub fn decode(path: &str, message: &[u8]) -> Result<ManagerCall, Status> {
    let (service, method) =
        path.strip_prefix('/').unwrap_or(path).split_once('/').unwrap_or(("", path));
    if service != SERVICE {
        let text = format!("unknown service {service}, expected {SERVICE}");
        return Err(Status::new(Code::Unimplemented, text));
    }
    let read = match method {
        "MapperRegister" => register,
        "ReportDeviceStatus" => report_status,
        "ReportDeviceStates" => report_state,
        _ => {
            let text = format!("unknown method {method} for service {SERVICE}");
            return Err(Status::new(Code::Unimplemented, text));
        }
    };
    read(message).map_err(|why| Status::new(Code::InvalidArgument, format!("{method}: {why}")))
}

/// Writes an answer.
pub fn answer(answer: &ManagerAnswer) -> Answer {
    let mut left_out = Vec::new();
    let refused = |code, text: &str| Err(Status::new(code, text));
    let result = match answer {
        ManagerAnswer::Done => Ok(Vec::new()),
        ManagerAnswer::NotFound(text) => refused(Code::NotFound, text),
        ManagerAnswer::Invalid(text) => refused(Code::InvalidArgument, text),
        ManagerAnswer::TooMany(text) => refused(Code::ResourceExhausted, text),
        ManagerAnswer::Registered { models, devices } => {
            let mut writer = Writer::default();
            for model in models {
                match object::model(model) {
                    Ok(message) => writer.bytes(1, &message),
                    Err(why) => left_out.push(format!("model {why}")),
                }
            }
            for (device, model) in devices {
                match object::device(device, model.as_deref()) {
                    Ok(message) => writer.bytes(2, &message),
                    Err(why) => left_out.push(format!("device {why}")),
                }
            }
            Ok(writer.into_bytes())
        }
    };
    let result = result.and_then(|message| match message.len() {
        0..=DMI_ANSWER_BYTES_MAX => Ok(message),
        bytes => {
            let text = format!(
                "models and devices have {bytes} bytes, expected at most {DMI_ANSWER_BYTES_MAX}"
            );
            Err(Status::new(Code::ResourceExhausted, text))
        }
    });
    Answer { result, left_out }
}

/// `MapperRegisterRequest`
fn register(message: &[u8]) -> Result<ManagerCall, Malformed> {
    let (mut with_data, mut mapper) = (false, None);
    for field in fields(message) {
        match field? {
            (1, field) => with_data = field.flag()?,
            (2, field) => mapper = Some(read_mapper(field.bytes()?)?),
            _ => {}
        }
    }
    let mapper = mapper.ok_or_else(|| missing("mapper"))?;
    let names = [("name", &mapper.name), ("protocol", &mapper.protocol)];
    for (name, value) in names.into_iter().chain([("address", &mapper.address)]) {
        if value.is_empty() {
            return Err(missing(name));
        }
    }
    Ok(ManagerCall::Register { mapper, with_data })
}

/// `MapperInfo`
fn read_mapper(message: &[u8]) -> Result<Mapper, Malformed> {
    let mut mapper = Mapper::default();
    for field in fields(message) {
        match field? {
            (1, field) => mapper.name = name(field)?,
            (2, field) => mapper.version = name(field)?,
            (3, field) => mapper.api_version = name(field)?,
            (4, field) => mapper.protocol = name(field)?,
            (5, field) => mapper.address = name(field)?,
            (6, field) => mapper.state = name(field)?,
            _ => {}
        }
    }
    Ok(mapper)
}

/// `ReportDeviceStatusRequest`
fn report_status(message: &[u8]) -> Result<ManagerCall, Malformed> {
    let (mut device, mut namespace, mut twins) = <(Box<str>, Box<str>, Vec<_>)>::default();
    for field in fields(message) {
        match field? {
            (1, field) => device = name(field)?,
            (2, field) => read_twins(field.bytes()?, &mut twins)?,
            (3, field) => namespace = name(field)?,
            _ => {}
        }
    }
    if twins.is_empty() {
        return Err(missing("reportedDevice.twins"));
    }
    Ok(ManagerCall::ReportStatus { device: id(&namespace, &device)?, twins })
}

/// `DeviceStatus.twins`; cycles of the status are the cloud's to say.
fn read_twins(message: &[u8], twins: &mut Vec<ReportedTwin>) -> Result<(), Malformed> {
    for field in fields(message) {
        if let (1, field) = field? {
            if twins.len() == DMI_TWINS_MAX {
                let text = format!("got more twins, expected at most {DMI_TWINS_MAX}");
                return Err(Malformed(text));
            }
            twins.push(read_twin(field.bytes()?)?);
        }
    }
    Ok(())
}

/// `Twin`
fn read_twin(message: &[u8]) -> Result<ReportedTwin, Malformed> {
    let mut property = Box::default();
    let (mut expected, mut actual) = (None, None);
    for field in fields(message) {
        match field? {
            (1, field) => property = name(field)?,
            (2, field) => expected = Some(read_value(field.bytes()?)?),
            (3, field) => actual = Some(read_value(field.bytes()?)?),
            _ => {}
        }
    }
    if property.is_empty() {
        return Err(missing("propertyName"));
    }
    Ok(ReportedTwin { property, expected: expected.filter(|value| !value.is_empty()), actual })
}

/// `TwinProperty.value`; its metadata has nothing that the agent does not know better.
fn read_value(message: &[u8]) -> Result<Box<str>, Malformed> {
    let mut value = Box::default();
    for field in fields(message) {
        if let (1, field) = field? {
            value = field.text()?.into();
        }
    }
    Ok(value)
}

/// `ReportDeviceStatesRequest`
fn report_state(message: &[u8]) -> Result<ManagerCall, Malformed> {
    let (mut device, mut namespace, mut state) = <(Box<str>, Box<str>, Box<str>)>::default();
    for field in fields(message) {
        match field? {
            (1, field) => device = name(field)?,
            (2, field) => namespace = name(field)?,
            (3, field) => state = name(field)?,
            _ => {}
        }
    }
    if state.is_empty() {
        return Err(missing("state"));
    }
    Ok(ManagerCall::ReportState { device: id(&namespace, &device)?, state })
}

fn id(namespace: &str, name: &str) -> Result<DeviceId, Malformed> {
    if name.is_empty() {
        return Err(missing("deviceName"));
    }
    Ok(DeviceId::new(namespace, name))
}

fn name(field: Value<'_>) -> Result<Box<str>, Malformed> {
    let text = field.text()?;
    if text.len() > DMI_NAME_BYTES_MAX {
        let bytes = text.len();
        let text = format!("got a name of {bytes} bytes, expected at most {DMI_NAME_BYTES_MAX}");
        return Err(Malformed(text));
    }
    Ok(text.into())
}

fn missing(field: &str) -> Malformed {
    Malformed(format!("got no {field}, expected one"))
}
