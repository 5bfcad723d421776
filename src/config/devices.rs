//! Keys of edgecore.yaml for devices: `modules.deviceTwin` and `modules.eventBus`.
//!
//! Both are on by default, as in KubeEdge, where there is a cloud: without one there are no
//! devices.

use std::path::Path;

use super::Config;
use super::table::{Row, Rule, Table, absolute, text, truth, whole};
use crate::agent::admit::is_subdomain;
use crate::limits::{MAPPER_SOCKET_BYTES_MAX, MQTT_SESSION_QUEUE_MAX};
use crate::model::error::Input;
use crate::model::settings::{
    DeviceSettings, MqttMode, MqttServer, MqttSettings, MqttTls, MqttTransport, Secret,
};
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// The settings of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    twin_is_on: bool,
    bus_is_on: bool,
    socket: String,
    mqtt: MqttSettings,
    tls_is_on: bool,
    tls: MqttTls,
}

impl Default for Devices {
    fn default() -> Self {
        let DeviceSettings { socket, mqtt } = DeviceSettings::default();
        let (mqtt, tls) = (mqtt.unwrap_or_default(), MqttTls::default());
        Self { twin_is_on: true, bus_is_on: true, socket, mqtt, tls_is_on: false, tls }
    }
}

impl Config {
    /// The settings of devices; `None`: they are switched off, or there is no cloud.
    pub fn device_settings(&self) -> Option<DeviceSettings> {
        let Devices { twin_is_on, bus_is_on, socket, mqtt, tls_is_on, tls } = &self.devices;
        let tls = tls_is_on.then(|| tls.clone());
        let mqtt = bus_is_on.then(|| MqttSettings { tls, ..mqtt.clone() });
        let settings = DeviceSettings { socket: socket.clone(), mqtt };
        (*twin_is_on && self.cloud.is_configured()).then_some(settings)
    }
}

/// Checks several keys together.
pub(super) fn check(config: &Config) -> Result<(), Input> {
    let Devices { bus_is_on, mqtt, tls_is_on, .. } = &config.devices;
    if !bus_is_on {
        return Ok(());
    }
    let has = |mode| mqtt.mode == mode || mqtt.mode == MqttMode::Both;
    let at = |key| format!("modules.eventBus.{key}");
    for (mode, server, key) in [
        (MqttMode::External, &mqtt.external, "mqttServerExternal"),
        (MqttMode::Internal, &mqtt.internal, "mqttServerInternal"),
    ] {
        if has(mode) && server.transport == MqttTransport::Tls && !tls_is_on {
            let expected = "tcp://, or eventBusTLS.enable: true, which names the certificates";
            return Err(Input::new("a server with TLS", expected).at(at(key)));
        }
    }
    let is_guarded = !mqtt.username.is_empty()
        && !mqtt.password.is_empty()
        && mqtt.internal.transport == MqttTransport::Tls;
    if has(MqttMode::Internal) && !is_loopback(&mqtt.internal.host) && !is_guarded {
        let expected = "a loopback address, or ssl:// with mqttUsername and mqttPassword: whoever \
                        reaches the broker reads and writes all devices";
        return Err(Input::quoted(&mqtt.internal.host, expected).at(at("mqttServerInternal")));
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<core::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Below `modules`.
pub(super) const MODULES: &[Row] =
    &[("deviceTwin", Map(&DEVICE_TWIN)), ("eventBus", Map(&EVENT_BUS))];

const DEVICE_TWIN: Table = Table {
    rules: &[
        ("dmiSockPath", Set(socket)),
        (
            "enable",
            Set(|config, value| {
                config.devices.twin_is_on = truth(value)?;
                Ok(())
            }),
        ),
    ],
    more: &[],
    unused: "",
};

const EVENT_BUS: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.devices.bus_is_on = truth(value)?;
                Ok(())
            }),
        ),
        ("eventBusTLS", Map(&TLS)),
        (
            "mqttMode",
            Set(|config, value| {
                config.devices.mqtt.mode = match whole(value, 0, 2)? {
                    0 => MqttMode::Internal,
                    1 => MqttMode::Both,
                    _ => MqttMode::External,
                };
                Ok(())
            }),
        ),
        (
            "mqttPassword",
            Set(|config, value| {
                // An error text never contains it.
                let Value::Text(password) = value else {
                    return Err(Input::new("no text", "a password (in quotes if it is a number)"));
                };
                config.devices.mqtt.password = Secret::new(password);
                Ok(())
            }),
        ),
        (
            "mqttPubClientID",
            Set(|config, value| {
                config.devices.mqtt.pub_client_id = word(value)?;
                Ok(())
            }),
        ),
        (
            "mqttQOS",
            Set(|config, value| {
                config.devices.mqtt.qos = whole(value, 0, 2)? as u8;
                Ok(())
            }),
        ),
        (
            "mqttRetain",
            Set(|config, value| {
                config.devices.mqtt.retain = truth(value)?;
                Ok(())
            }),
        ),
        (
            "mqttServerExternal",
            Set(|config, value| {
                config.devices.mqtt.external = server(text(value)?, 1_883)?;
                Ok(())
            }),
        ),
        (
            "mqttServerInternal",
            Set(|config, value| {
                config.devices.mqtt.internal = server(text(value)?, 1_884)?;
                Ok(())
            }),
        ),
        (
            "mqttSessionQueueSize",
            Set(|config, value| {
                let most = MQTT_SESSION_QUEUE_MAX as i64;
                config.devices.mqtt.session_queue_max = whole(value, 1, most)? as usize;
                Ok(())
            }),
        ),
        (
            "mqttSubClientID",
            Set(|config, value| {
                config.devices.mqtt.sub_client_id = word(value)?;
                Ok(())
            }),
        ),
        (
            "mqttUsername",
            Set(|config, value| {
                config.devices.mqtt.username = word(value)?;
                Ok(())
            }),
        ),
    ],
    more: &[],
    unused: "",
};

const TLS: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.devices.tls_is_on = truth(value)?;
                Ok(())
            }),
        ),
        (
            "tlsMqttCAFile",
            Set(|config, value| {
                config.devices.tls.ca_file = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsMqttCertFile",
            Set(|config, value| {
                config.devices.tls.cert_file = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsMqttPrivateKeyFile",
            Set(|config, value| {
                config.devices.tls.key_file = file(value)?;
                Ok(())
            }),
        ),
    ],
    more: &[],
    unused: "",
};

/// A file that ends in `.sock`, or the folder of `dmi.sock`.
fn socket(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let wrong = || Input::quoted(given, "an absolute path of a folder, or of a file *.sock");
    let path = absolute(given).ok_or_else(wrong)?;
    let is_file = Path::new(&path).extension().is_some_and(|end| end == "sock");
    let path = if is_file { path } else { format!("{path}/dmi.sock") };
    if path.len() > MAPPER_SOCKET_BYTES_MAX {
        let expected = format!("{MAPPER_SOCKET_BYTES_MAX} at most: it is a unix socket");
        return Err(Input::new(format_args!("a path of {} bytes", path.len()), expected));
    }
    config.devices.socket = path;
    Ok(())
}

fn file(value: &Value) -> Result<String, Input> {
    let given = text(value)?;
    absolute(given).ok_or_else(|| Input::quoted(given, "an absolute path of a file"))
}

/// A string of MQTT, of at most as many bytes as its length can say.
fn word(value: &Value) -> Result<String, Input> {
    let given = text(value)?;
    if given.len() > usize::from(u16::MAX) || given.contains('\0') {
        return Err(Input::quoted(given, "at most 65535 bytes, without a zero"));
    }
    Ok(given.to_owned())
}

/// `tcp://127.0.0.1:1883`
fn server(given: &str, default_port: u16) -> Result<MqttServer, Input> {
    let wrong = || Input::quoted(given, "tcp:// or ssl://, a host and a port");
    let (scheme, rest) = given.split_once("://").ok_or_else(wrong)?;
    let transport = match scheme {
        "tcp" | "mqtt" => MqttTransport::Tcp,
        "ssl" | "tls" | "tcps" | "mqtts" => MqttTransport::Tls,
        _ => return Err(wrong()),
    };
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (rest, default_port),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_valid = match inner {
        Some(inner) => inner.parse::<core::net::Ipv6Addr>().is_ok(),
        None => is_subdomain(&host.to_ascii_lowercase()),
    };
    if !is_valid || port == 0 {
        return Err(wrong());
    }
    Ok(MqttServer { transport, host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;
    use crate::model::error::Refusal;

    fn read(modules: &str) -> Result<Option<DeviceSettings>, Refusal> {
        let hub = "edgeHub: {httpServer: 'https://c.example:10002'}";
        let text = format!("modules: {{{hub}, {modules}}}\n");
        let mut config = Config::default();
        overlay(&mut config, text.as_bytes()).map(|unused| {
            assert_eq!(unused, [""; 0], "{modules}");
            config.device_settings()
        })
    }

    #[test]
    fn without_keys_they_are_kubeedges_defaults_and_without_a_cloud_there_are_no_devices() {
        assert_eq!(read("deviceTwin: null"), Ok(Some(DeviceSettings::default())));
        assert_eq!(Config::default().device_settings(), None);
        assert_eq!(read("deviceTwin: {enable: false}"), Ok(None));
        let got = read("eventBus: {enable: false, mqttMode: 1}").expect("it is off");
        assert_eq!(got.map(|settings| settings.mqtt), Some(None));
    }

    #[test]
    fn every_setting_is_taken() {
        let got = read(
            "deviceTwin: {enable: true, dmiSockPath: /run/edged/}, eventBus: {enable: true, \
             mqttMode: 1, mqttServerExternal: 'ssl://b.example:8883', mqttServerInternal: \
             'tcp://[::1]:1885', mqttQOS: 1, mqttRetain: true, mqttSessionQueueSize: 7, \
             mqttSubClientID: s, mqttPubClientID: p, mqttUsername: u, mqttPassword: w, \
             eventBusTLS: {enable: true, tlsMqttCAFile: /t/ca, tlsMqttCertFile: /t/cert, \
             tlsMqttPrivateKeyFile: /t/key}}",
        );
        let server =
            |transport, host: &str, port| MqttServer { transport, host: host.into(), port };
        let mqtt = MqttSettings {
            mode: MqttMode::Both,
            external: server(MqttTransport::Tls, "b.example", 8_883),
            internal: server(MqttTransport::Tcp, "[::1]", 1_885),
            qos: 1,
            retain: true,
            session_queue_max: 7,
            sub_client_id: "s".into(),
            pub_client_id: "p".into(),
            username: "u".into(),
            password: Secret::new("w"),
            tls: Some(MqttTls {
                ca_file: "/t/ca".into(),
                cert_file: "/t/cert".into(),
                key_file: "/t/key".into(),
            }),
        };
        let want = DeviceSettings { socket: "/run/edged/dmi.sock".into(), mqtt: Some(mqtt) };
        assert_eq!(got, Ok(Some(want)));
        let got = read("deviceTwin: {dmiSockPath: /run/dmi2.sock}").expect("a file");
        assert_eq!(got.map(|settings| settings.socket), Some("/run/dmi2.sock".into()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let long = "x".repeat(MAPPER_SOCKET_BYTES_MAX);
        let most = MQTT_SESSION_QUEUE_MAX;
        for (modules, want) in [
            ("deviceTwin: {dmiSockPath: dmi.sock}".to_owned(), "got \"dmi.sock\", expected an"),
            (format!("deviceTwin: {{dmiSockPath: /{long}}}"), "expected 107 at most"),
            ("deviceTwin: {socket: /a}".to_owned(), "got an unknown key"),
            ("eventBus: {mqttMode: 3}".to_owned(), "mqttMode: got 3, expected a whole number"),
            ("eventBus: {mqttQOS: 3}".to_owned(), "got 3, expected a whole number from 0 to 2"),
            (format!("eventBus: {{mqttSessionQueueSize: {}}}", most + 1), "mqttSessionQueueSize"),
            ("eventBus: {mqttPassword: 5}".to_owned(), "got no text, expected a password"),
            ("eventBus: {mqttServerExternal: 'ws://b:1'}".to_owned(), "got \"ws://b:1\", expected"),
            ("eventBus: {mqttServerExternal: 'tcp://b:x'}".to_owned(), "expected tcp:// or ssl"),
            (
                "eventBus: {mqttServerExternal: 'ssl://b:1'}".to_owned(),
                "modules.eventBus.mqttServerExternal: got a server with TLS, expected tcp://",
            ),
            (
                "eventBus: {mqttMode: 0, mqttServerInternal: 'tcp://0.0.0.0:1884', mqttUsername: \
                 u, mqttPassword: w}"
                    .to_owned(),
                "mqttServerInternal: got \"0.0.0.0\", expected a loopback address",
            ),
            ("eventBus: {eventBusTLS: {tlsMqttCAFile: ca}}".to_owned(), "expected an absolute"),
        ] {
            let got = read(&modules);
            let is_named = got.as_ref().is_err_and(|why| why.to_string().contains(want));
            assert!(is_named, "{modules}: {got:?}");
        }
        let guarded = "eventBus: {mqttMode: 0, mqttServerInternal: 'ssl://0.0.0.0:8883', \
                       mqttUsername: u, mqttPassword: w, eventBusTLS: {enable: true}}";
        assert!(read(guarded).is_ok_and(|settings| settings.is_some()), "it is guarded");
    }
}
