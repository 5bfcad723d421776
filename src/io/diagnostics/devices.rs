//! What devices need of this machine: the broker, and the folder of the socket for mappers.

use std::path::Path;

use super::{Room, room};
use crate::config::Config;
use crate::io::cloud::reach;
use crate::model::error::System;
use crate::model::settings::{DeviceSettings, MqttMode};

#[derive(Clone, Debug)]
pub struct DeviceFacts {
    pub settings: DeviceSettings,
    /// Whether the other broker accepts a TCP connection; `None`: there is none by the mode.
    pub broker: Option<Result<(), System>>,
    /// The folder of the socket for mappers, or the deepest one above it that exists.
    pub folder: Result<Room, System>,
}

/// `None`: devices are not served.
pub(super) fn read(config: &Config) -> Option<DeviceFacts> {
    let settings = config.device_settings()?;
    let mqtt = settings.bus.as_ref().map(|bus| &bus.mqtt);
    let other = mqtt.filter(|mqtt| mqtt.mode != MqttMode::Internal);
    let broker = other.map(|mqtt| reach(&mqtt.client.server.address()));
    let folder = room(Path::new(&settings.socket).parent().unwrap_or(Path::new("/")));
    Some(DeviceFacts { settings, broker, folder })
}
