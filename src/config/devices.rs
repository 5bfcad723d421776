//! Keys of edgecore.yaml for devices: `modules.deviceTwin` and `modules.eventBus`.
//!
//! Both are on by default, as in KubeEdge, where there is a cloud: without one there are no
//! devices.

use std::path::Path;

use super::Config;
use super::table::{Row, Rule, Table, absolute, text, truth, whole};
use crate::limits::{MAPPER_SOCKET_BYTES_MAX, MQTT_SESSION_QUEUE_MAX};
use crate::model::error::Input;
use crate::model::settings::{
    BusSettings, DeviceSettings, MqttMode, MqttServer, MqttSettings, Secret,
};
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// The settings of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    twin_is_on: bool,
    bus_is_on: bool,
    socket: String,
    bus: BusSettings,
    /// Empty: it follows from the node's name.
    client_id: String,
    user: String,
    password: Secret,
    tls_is_on: bool,
    tls: Tls,
}

/// Absolute paths of PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tls {
    ca: String,
    cert: String,
    key: String,
}

impl Default for Devices {
    fn default() -> Self {
        let tls = Tls {
            ca: "/etc/kubeedge/ca/rootCA.crt".to_owned(),
            cert: "/etc/kubeedge/certs/server.crt".to_owned(),
            key: "/etc/kubeedge/certs/server.key".to_owned(),
        };
        let DeviceSettings { socket, bus } = DeviceSettings::default();
        Self {
            twin_is_on: true,
            bus_is_on: true,
            socket,
            bus: bus.unwrap_or_default(),
            client_id: String::new(),
            user: String::new(),
            password: Secret::default(),
            tls_is_on: false,
            tls,
        }
    }
}

impl Devices {
    /// User, password and files are of both brokers.
    fn bus(&self, node: &str) -> BusSettings {
        let mut bus = self.bus.clone();
        let MqttSettings { client, broker, .. } = &mut bus.mqtt;
        client.client_id.clone_from(&self.client_id);
        if client.client_id.is_empty() {
            client.client_id = format!("edged-{node}");
        }
        client.user.clone_from(&self.user);
        broker.user.clone_from(&self.user);
        client.password = self.password.clone();
        broker.password = self.password.clone();
        if self.tls_is_on {
            client.ca_file.clone_from(&self.tls.ca);
            client.cert_file.clone_from(&self.tls.cert);
            client.key_file.clone_from(&self.tls.key);
            broker.cert_file.clone_from(&self.tls.cert);
            broker.key_file.clone_from(&self.tls.key);
        }
        bus
    }
}

impl Config {
    /// The settings of devices; `None`: they are switched off, or there is no cloud.
    pub fn device_settings(&self) -> Option<DeviceSettings> {
        let Devices { twin_is_on, bus_is_on, socket, .. } = &self.devices;
        let bus = bus_is_on.then(|| self.devices.bus(&self.node_name));
        let settings = DeviceSettings { socket: socket.clone(), bus };
        (*twin_is_on && self.cloud.is_configured()).then_some(settings)
    }
}

impl Config {
    /// Settings that can be used, and that somebody did not mean so.
    pub fn device_contradictions(&self) -> Vec<String> {
        let Devices { twin_is_on, bus_is_on, bus, user, password, tls_is_on, .. } = &self.devices;
        let MqttSettings { mode, client, broker } = &bus.mqtt;
        let unused = if self.cloud.is_configured() {
            "deviceTwin is switched off"
        } else {
            "no cloud is configured"
        };
        if client.is_written && *bus_is_on && !(*twin_is_on && self.cloud.is_configured()) {
            return vec![format!("{unused}: eventBus has no effect")];
        }
        if !bus_is_on {
            return Vec::new();
        }
        let default = BusSettings::default();
        let of_broker = *broker != default.mqtt.broker
            || (bus.qos, bus.retain) != (default.qos, default.retain);
        let uses_tls = match mode {
            MqttMode::Internal => broker.server.is_tls,
            MqttMode::Both => broker.server.is_tls || client.server.is_tls,
            MqttMode::External => client.server.is_tls,
        };
        let all = [
            (
                *mode == MqttMode::External && of_broker,
                "mqttMode 2 has no broker inside: mqttServerInternal, mqttSocketInternal, mqttQOS, \
                 mqttRetain and mqttSessionQueueSize have no effect",
            ),
            (
                *mode == MqttMode::Internal && client.server != default.mqtt.client.server,
                "mqttMode 0 has no other broker: mqttServerExternal has no effect",
            ),
            (
                *mode == MqttMode::Both && client.server.address() == broker.server.address(),
                "mqttServerExternal is the broker inside, mqttServerInternal",
            ),
            (
                user.is_empty() && !password.is_empty(),
                "mqttPassword has no effect without mqttUsername",
            ),
            (
                *tls_is_on && !uses_tls,
                "eventBusTLS.enable is true, and no server in use begins with ssl://",
            ),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, why)| why.to_owned()).collect()
    }
}

/// Checks several keys together.
pub(super) fn check(config: &Config) -> Result<(), Input> {
    if !config.devices.bus_is_on {
        return Ok(());
    }
    let MqttSettings { mode, client, broker } = config.devices.bus("").mqtt;
    let at = |key| format!("modules.eventBus.{key}");
    if mode != MqttMode::Internal && client.server.is_tls && client.ca_file.is_empty() {
        let expected = "tcp://, or eventBusTLS.enable: true, which names the certificates";
        return Err(Input::new("a server with TLS", expected).at(at("mqttServerExternal")));
    }
    if mode != MqttMode::External {
        broker.address().map_err(|why| why.at(at("mqttServerInternal")))?;
    }
    Ok(())
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
                config.devices.bus.mqtt.client.is_written = true;
                Ok(())
            }),
        ),
        ("eventBusTLS", Map(&TLS)),
        (
            "mqttMode",
            Set(|config, value| {
                config.devices.bus.mqtt.mode = match whole(value, 0, 2)? {
                    0 => MqttMode::Internal,
                    1 => MqttMode::Both,
                    _ => MqttMode::External,
                };
                config.devices.bus.mqtt.client.is_written = true;
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
                config.devices.password = Secret::new(password);
                Ok(())
            }),
        ),
        (
            "mqttQOS",
            Set(|config, value| {
                config.devices.bus.qos = whole(value, 0, 2)? as u8;
                Ok(())
            }),
        ),
        (
            "mqttRetain",
            Set(|config, value| {
                config.devices.bus.retain = truth(value)?;
                Ok(())
            }),
        ),
        (
            "mqttServerExternal",
            Set(|config, value| {
                config.devices.bus.mqtt.client.server = MqttServer::parse(text(value)?)?;
                config.devices.bus.mqtt.client.is_written = true;
                Ok(())
            }),
        ),
        (
            "mqttServerInternal",
            Set(|config, value| {
                config.devices.bus.mqtt.broker.server = MqttServer::parse(text(value)?)?;
                Ok(())
            }),
        ),
        (
            "mqttSessionQueueSize",
            Set(|config, value| {
                let most = MQTT_SESSION_QUEUE_MAX as i64;
                config.devices.bus.mqtt.broker.session_messages_max =
                    whole(value, 1, most)? as usize;
                Ok(())
            }),
        ),
        // Edged's own: KubeEdge has no such setting.
        (
            "mqttSocketInternal",
            Set(|config, value| {
                let given = text(value)?;
                let path = if given.is_empty() { String::new() } else { unix_socket(given)? };
                config.devices.bus.mqtt.broker.socket = path;
                Ok(())
            }),
        ),
        (
            "mqttSubClientID",
            Set(|config, value| {
                config.devices.client_id = word(value)?;
                Ok(())
            }),
        ),
        (
            "mqttUsername",
            Set(|config, value| {
                config.devices.user = word(value)?;
                Ok(())
            }),
        ),
    ],
    more: &[],
    unused: "mqttPubClientID",
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
                config.devices.tls.ca = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsMqttCertFile",
            Set(|config, value| {
                config.devices.tls.cert = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsMqttPrivateKeyFile",
            Set(|config, value| {
                config.devices.tls.key = file(value)?;
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
    config.devices.socket = unix_socket(&path)?;
    Ok(())
}

/// The absolute path of a unix socket.
fn unix_socket(given: &str) -> Result<String, Input> {
    let path = file_path(given)?;
    if path.len() > MAPPER_SOCKET_BYTES_MAX {
        let expected = format!("{MAPPER_SOCKET_BYTES_MAX} at most: it is a unix socket");
        return Err(Input::new(format_args!("a path of {} bytes", path.len()), expected));
    }
    Ok(path)
}

fn file(value: &Value) -> Result<String, Input> {
    file_path(text(value)?)
}

fn file_path(given: &str) -> Result<String, Input> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;
    use crate::model::error::Refusal;
    use crate::model::settings::{MqttBrokerSettings, MqttClientSettings};

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
        let got = read("deviceTwin: null").expect("valid").expect("there is a cloud");
        assert_eq!(got.socket, DeviceSettings::default().socket);
        let client = MqttClientSettings { client_id: "edged-".to_owned(), ..Default::default() };
        let mqtt = MqttSettings { client, ..Default::default() };
        assert_eq!(got.bus, Some(BusSettings { mqtt, ..Default::default() }));
        assert_eq!(Config::default().device_settings(), None);
        assert_eq!(read("deviceTwin: {enable: false}"), Ok(None));
        let got = read("eventBus: {enable: false, mqttMode: 1}").expect("it is off");
        assert_eq!(got.map(|settings| settings.bus), Some(None));
    }

    #[test]
    fn the_shipped_file_has_every_key_and_its_default_as_a_comment() {
        let shipped = include_str!("../../config/edgecore.yaml");
        let lines = shipped.lines().skip_while(|line| *line != "  #deviceTwin:");
        let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("  #")).collect();
        let text = format!("modules:\n  {}\n", lines.join("\n  "));
        let mut config = Config::default();
        assert_eq!(overlay(&mut config, text.as_bytes()), Ok(Vec::new()), "{text}");
        // Whoever names a broker expects one.
        let client = &mut config.devices.bus.mqtt.client;
        assert!(std::mem::take(&mut client.is_written));
        assert_eq!(config, Config::default());
        for (key, _) in [DEVICE_TWIN, EVENT_BUS, TLS].iter().flat_map(Table::all) {
            let start = format!("{key}:");
            assert!(lines.iter().any(|line| line.trim_start().starts_with(&start)), "{key}");
        }
    }

    #[test]
    fn every_setting_is_taken() {
        let got = read(
            "deviceTwin: {enable: true, dmiSockPath: /run/edged/}, eventBus: {enable: true, \
             mqttMode: 1, mqttServerExternal: 'ssl://b.example:8883', mqttServerInternal: \
             'tcp://[::1]:1885', mqttQOS: 1, mqttRetain: true, mqttSessionQueueSize: 7, \
             mqttSocketInternal: /run/mqtt.sock, mqttSubClientID: s, mqttUsername: u, \
             mqttPassword: w, \
             eventBusTLS: {enable: true, tlsMqttCAFile: /t/ca, tlsMqttCertFile: /t/cert, \
             tlsMqttPrivateKeyFile: /t/key}}",
        );
        let server = |is_tls, host: &str, port| MqttServer { is_tls, host: host.into(), port };
        let client = MqttClientSettings {
            server: server(true, "b.example", 8_883),
            is_written: true,
            client_id: "s".into(),
            user: "u".into(),
            password: Secret::new("w"),
            ca_file: "/t/ca".into(),
            cert_file: "/t/cert".into(),
            key_file: "/t/key".into(),
        };
        let broker = MqttBrokerSettings {
            server: server(false, "::1", 1_885),
            socket: "/run/mqtt.sock".into(),
            user: "u".into(),
            password: Secret::new("w"),
            cert_file: "/t/cert".into(),
            key_file: "/t/key".into(),
            session_messages_max: 7,
        };
        let mqtt = MqttSettings { mode: MqttMode::Both, client, broker };
        let bus = BusSettings { mqtt, qos: 1, retain: true };
        let want = DeviceSettings { socket: "/run/edged/dmi.sock".into(), bus: Some(bus) };
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
            (
                "eventBus: {mqttServerExternal: 'tcp://b:x'}".to_owned(),
                "expected tcp://host:port or",
            ),
            (
                "eventBus: {mqttServerExternal: 'ssl://b:1'}".to_owned(),
                "modules.eventBus.mqttServerExternal: got a server with TLS, expected tcp://",
            ),
            (
                "eventBus: {mqttMode: 0, mqttServerInternal: 'tcp://0.0.0.0:1884', mqttUsername: \
                 u, mqttPassword: w}"
                    .to_owned(),
                "mqttServerInternal: got tcp://0.0.0.0:1884 without TLS, user and password",
            ),
            ("eventBus: {eventBusTLS: {tlsMqttCAFile: ca}}".to_owned(), "expected an absolute"),
            ("eventBus: {mqttSocketInternal: a.sock}".to_owned(), "expected an absolute path"),
            (format!("eventBus: {{mqttSocketInternal: /{long}}}"), "expected 107 at most"),
        ] {
            let got = read(&modules);
            let is_named = got.as_ref().is_err_and(|why| why.to_string().contains(want));
            assert!(is_named, "{modules}: {got:?}");
        }
        let guarded = "eventBus: {mqttMode: 0, mqttServerInternal: 'ssl://0.0.0.0:8883', \
                       mqttUsername: u, mqttPassword: w, eventBusTLS: {enable: true}}";
        assert!(read(guarded).is_ok_and(|settings| settings.is_some()), "it is guarded");
    }

    #[test]
    fn settings_that_contradict_others_are_named() {
        let of = |modules: &str| {
            let mut config = Config::default();
            let text = format!("modules: {{{modules}}}\n");
            overlay(&mut config, text.as_bytes()).expect("valid");
            config.device_contradictions()
        };
        let hub = "edgeHub: {httpServer: 'https://c.example:10002'}";
        for (bus, want) in [
            ("mqttServerInternal: 'tcp://127.0.0.1:9'", "mqttMode 2 has no broker inside"),
            ("mqttQOS: 1", "mqttMode 2 has no broker inside"),
            ("mqttMode: 0, mqttServerExternal: 'tcp://b:1'", "mqttMode 0 has no other broker"),
            ("mqttMode: 1, mqttServerExternal: 'tcp://127.0.0.1:1884'", "is the broker inside"),
            ("mqttPassword: w", "mqttPassword has no effect without mqttUsername"),
            ("eventBusTLS: {enable: true}", "no server in use begins with ssl://"),
        ] {
            let found = of(&format!("{hub}, eventBus: {{{bus}}}"));
            assert!(found.len() == 1 && found[0].contains(want), "{bus}: {found:?}");
        }
        let off = of(&format!("{hub}, deviceTwin: {{enable: false}}, eventBus: {{mqttMode: 0}}"));
        assert_eq!(off, ["deviceTwin is switched off: eventBus has no effect"]);
        assert_eq!(
            of("eventBus: {enable: true}"),
            ["no cloud is configured: eventBus has no effect"]
        );
        for well in [
            hub.to_owned(),
            format!("{hub}, eventBus: {{enable: false, mqttQOS: 1}}"),
            format!("{hub}, eventBus: {{mqttMode: 0, mqttQOS: 1, mqttSocketInternal: /m.sock}}"),
            "eventBus: {enable: false}".to_owned(),
        ] {
            assert_eq!(of(&well), [""; 0], "{well}");
        }
    }
}
