//! What a mapper sends and what a Device says, any bytes: calls and messages, or errors. Input:
//! which of them, then the bytes; a zero ends the device and begins its model.
#![no_main]

use edged::limits::{DMI_ANSWER_BYTES_MAX, DMI_TWINS_MAX};
use edged::model::device::{ManagerCall, MapperCall};
use edged::wire::dmi;
use libfuzzer_sys::fuzz_target;

const METHODS: [&str; 3] = ["MapperRegister", "ReportDeviceStatus", "ReportDeviceStates"];

fuzz_target!(|data: &[u8]| {
    let [which, bytes @ ..] = data else { return };
    if let Some(method) = METHODS.get(usize::from(*which)) {
        let path = format!("/v1beta1.DeviceManagerService/{method}");
        if let Ok(ManagerCall::ReportStatus { twins, .. }) = dmi::decode(&path, bytes) {
            assert!((1..=DMI_TWINS_MAX).contains(&twins.len()));
        }
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    let (device, model) = text.split_once('\0').unwrap_or((&text, ""));
    let model = (!model.is_empty()).then(|| model.into());
    if let Ok((_, message)) = dmi::encode(&MapperCall::UpdateDevice(device.into(), model)) {
        assert!(message.len() <= DMI_ANSWER_BYTES_MAX);
    }
    let _ = dmi::encode(&MapperCall::CreateModel(device.into()));
});
