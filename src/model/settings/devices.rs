//! The settings of devices; KubeEdge's keys, below `modules.deviceTwin` and `modules.eventBus`.

use super::Secret;

/// What the node serves for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// `deviceTwin.dmiSockPath`: absolute path of the socket for mappers. The key names the file,
    /// or since 1.23 its folder.
    pub socket: String,
    /// `None`: `eventBus` is switched off.
    pub mqtt: Option<MqttSettings>,
}

/// `modules.eventBus`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttSettings {
    /// `mqttMode`
    pub mode: MqttMode,
    /// `mqttServerExternal`: the broker to connect to.
    pub external: MqttServer,
    /// `mqttServerInternal`: where the broker of the node listens.
    pub internal: MqttServer,
    /// `mqttQOS`: of what the broker of the node publishes, 0 to 2.
    pub qos: u8,
    /// `mqttRetain`: likewise.
    pub retain: bool,
    /// `mqttSessionQueueSize`: messages that wait in a session of the broker of the node.
    pub session_queue_max: usize,
    /// `mqttSubClientID`; empty: the node chooses.
    pub sub_client_id: String,
    /// `mqttPubClientID`; empty: the node chooses.
    pub pub_client_id: String,
    /// `mqttUsername`; empty: none, and no password is sent.
    pub username: String,
    /// `mqttPassword`
    pub password: Secret,
    /// `eventBusTLS`; `None`: it is switched off.
    pub tls: Option<MqttTls>,
}

/// `mqttMode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MqttMode {
    /// 0: only the broker of the node.
    Internal,
    /// 1: the broker of the node, and another one.
    Both,
    /// 2: only another one.
    #[default]
    External,
}

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttServer {
    pub transport: MqttTransport,
    /// A name or an address; IPv6 in brackets.
    pub host: String,
    pub port: u16,
}

/// The scheme of a broker's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttTransport {
    /// `tcp`, `mqtt`
    Tcp,
    /// `ssl`, `tls`, `tcps`, `mqtts`
    Tls,
}

/// Absolute paths of PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttTls {
    /// `tlsMqttCAFile`
    pub ca_file: String,
    /// `tlsMqttCertFile`
    pub cert_file: String,
    /// `tlsMqttPrivateKeyFile`
    pub key_file: String,
}

/// KubeEdge's defaults.
impl Default for DeviceSettings {
    fn default() -> Self {
        let socket = "/etc/kubeedge/dmi.sock".to_owned();
        Self { socket, mqtt: Some(MqttSettings::default()) }
    }
}

impl Default for MqttSettings {
    fn default() -> Self {
        let local =
            |port| MqttServer { transport: MqttTransport::Tcp, host: "127.0.0.1".to_owned(), port };
        Self {
            mode: MqttMode::default(),
            external: local(1_883),
            internal: local(1_884),
            qos: 0,
            retain: false,
            session_queue_max: 100,
            sub_client_id: String::new(),
            pub_client_id: String::new(),
            username: String::new(),
            password: Secret::default(),
            tls: None,
        }
    }
}

impl Default for MqttTls {
    fn default() -> Self {
        Self {
            ca_file: "/etc/kubeedge/ca/rootCA.crt".to_owned(),
            cert_file: "/etc/kubeedge/certs/server.crt".to_owned(),
            key_file: "/etc/kubeedge/certs/server.key".to_owned(),
        }
    }
}
