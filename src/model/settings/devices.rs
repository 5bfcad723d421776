//! The settings of devices; KubeEdge's keys, below `modules.deviceTwin` and `modules.eventBus`.

use super::MqttSettings;

/// What the node serves for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// `deviceTwin.dmiSockPath`: absolute path of the socket for mappers. The key names the file,
    /// or since 1.23 its folder.
    pub socket: String,
    /// `None`: `eventBus` is switched off.
    pub bus: Option<BusSettings>,
}

/// `modules.eventBus`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusSettings {
    pub mqtt: MqttSettings,
    /// `mqttQOS`: of what the broker of the node publishes, 0 to 2.
    pub qos: u8,
    /// `mqttRetain`: likewise.
    pub retain: bool,
}

/// KubeEdge's defaults.
impl Default for DeviceSettings {
    fn default() -> Self {
        let socket = "/etc/kubeedge/dmi.sock".to_owned();
        Self { socket, bus: Some(BusSettings::default()) }
    }
}
