//! `DeviceMapperService`: what the agent calls.

use super::object;
use crate::limits::DMI_ANSWER_BYTES_MAX;
use crate::model::device::{DeviceId, MapperCall, MapperError};
use crate::model::error::Input;
use crate::wire::protobuf::Writer;
use crate::wire::rpc::{Event, Status};

/// Writes a call: the path of its method, and the message.
pub fn encode(call: &MapperCall) -> Result<(&'static str, Vec<u8>), MapperError> {
    let object = |message: Result<Vec<u8>, Input>| {
        let mut writer = Writer::default();
        let message = message.map_err(|why| MapperError::Unwritable(why.to_string().into()))?;
        writer.bytes(1, &message);
        Ok(writer.into_bytes())
    };
    let (path, message) = match call {
        MapperCall::CreateModel(model) => {
            ("/v1beta1.DeviceMapperService/CreateDeviceModel", object(object::model(model))?)
        }
        MapperCall::UpdateModel(model) => {
            ("/v1beta1.DeviceMapperService/UpdateDeviceModel", object(object::model(model))?)
        }
        MapperCall::RemoveModel(id) => {
            ("/v1beta1.DeviceMapperService/RemoveDeviceModel", reference(id))
        }
        MapperCall::RegisterDevice(device, model) => {
            let message = object(object::device(device, model.as_deref()))?;
            ("/v1beta1.DeviceMapperService/RegisterDevice", message)
        }
        MapperCall::UpdateDevice(device, model) => {
            let message = object(object::device(device, model.as_deref()))?;
            ("/v1beta1.DeviceMapperService/UpdateDevice", message)
        }
        MapperCall::RemoveDevice(id) => {
            ("/v1beta1.DeviceMapperService/RemoveDevice", reference(id))
        }
    };
    if message.len() > DMI_ANSWER_BYTES_MAX {
        let bytes = message.len();
        let text = format!("got {bytes} bytes, expected at most {DMI_ANSWER_BYTES_MAX}");
        return Err(MapperError::Unwritable(text.into()));
    }
    Ok((path, message))
}

/// The end of a call. The answers' messages say nothing that the call did not.
pub fn outcome(event: Event) -> Result<(), MapperError> {
    match event {
        Event::Reply(..) | Event::Message(..) | Event::Done(_) => Ok(()),
        Event::Failed(_, Status { code, message }) => {
            Err(MapperError::Refused(code as u32, message.into()))
        }
        Event::Lost(_, lost) => Err(MapperError::Unreachable(lost.why.into())),
    }
}

/// `RemoveDeviceRequest`, `RemoveDeviceModelRequest`
fn reference(id: &DeviceId) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(1, id.name());
    writer.text(2, id.namespace());
    writer.into_bytes()
}
