//! MQTT: which brokers there are, and how to reach them (KubeEdge's `modules.eventBus`).

use core::net::{IpAddr, SocketAddr};
use std::fmt;

use super::Secret;
use crate::limits::MQTT_SESSION_MESSAGES_MAX;
use crate::model::error::Input;

/// The settings of MQTT; KubeEdge's keys, below `modules.eventBus`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqttSettings {
    pub mode: MqttMode,
    pub client: MqttClientSettings,
    pub broker: MqttBrokerSettings,
}

/// `mqttMode`: which brokers are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MqttMode {
    /// 0: the broker inside.
    Internal,
    /// 1: both of them.
    Both,
    /// 2: another broker.
    #[default]
    External,
}

/// The other broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttClientSettings {
    /// `mqttServerExternal`
    pub server: MqttServer,
    /// The file has one of the keys `enable`, `mqttMode` and `mqttServerExternal`: somebody
    /// expects a broker there.
    pub is_written: bool,
    /// `mqttSubClientID`; stable, because the broker keeps messages for it.
    pub client_id: String,
    /// `mqttUsername`; empty: none.
    pub user: String,
    /// `mqttPassword`
    pub password: Secret,
    /// `eventBusTLS.tlsMqttCAFile`: absolute path, PEM. Required with TLS.
    pub ca_file: String,
    /// `eventBusTLS.tlsMqttCertFile`: absolute path, PEM; empty: no client certificate.
    pub cert_file: String,
    /// `eventBusTLS.tlsMqttPrivateKeyFile`: absolute path, PEM.
    pub key_file: String,
}

impl Default for MqttClientSettings {
    fn default() -> Self {
        Self {
            server: MqttServer { is_tls: false, host: "127.0.0.1".to_owned(), port: 1883 },
            is_written: false,
            client_id: "edged".to_owned(),
            user: String::new(),
            password: Secret::default(),
            ca_file: String::new(),
            cert_file: String::new(),
            key_file: String::new(),
        }
    }
}

/// The broker inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttBrokerSettings {
    /// `mqttServerInternal`
    pub server: MqttServer,
    /// Absolute path of a unix socket for pods; empty: none. Only its owner and root can open it,
    /// and they need no password.
    pub socket: String,
    /// Empty: any client may connect.
    pub user: String,
    pub password: Secret,
    /// Absolute path of the certificate, PEM. Required with TLS.
    pub cert_file: String,
    /// Absolute path of its key, PEM.
    pub key_file: String,
    /// `mqttSessionQueueSize`: messages that wait for one client.
    pub session_messages_max: usize,
}

impl Default for MqttBrokerSettings {
    fn default() -> Self {
        Self {
            server: MqttServer { is_tls: false, host: "127.0.0.1".to_owned(), port: 1884 },
            socket: String::new(),
            user: String::new(),
            password: Secret::default(),
            cert_file: String::new(),
            key_file: String::new(),
            session_messages_max: MQTT_SESSION_MESSAGES_MAX,
        }
    }
}

impl MqttBrokerSettings {
    /// The address to listen on. Beyond this machine anybody can read and write all devices, unless
    /// TLS and a password protect them.
    pub fn address(&self) -> Result<SocketAddr, Input> {
        let MqttServer { is_tls, host, port } = &self.server;
        let ip: IpAddr = match host.parse() {
            Ok(ip) => ip,
            Err(_) if host == "localhost" => IpAddr::from([127, 0, 0, 1]),
            Err(_) => return Err(Input::quoted(host, "an IP address to listen on")),
        };
        if *is_tls && (self.cert_file.is_empty() || self.key_file.is_empty()) {
            return Err(Input::other("TLS needs a certificate and its key, got none"));
        }
        let is_protected = *is_tls && !self.user.is_empty() && !self.password.is_empty();
        if !ip.is_loopback() && !is_protected {
            let got = format_args!("{} without TLS, user and password", self.server);
            return Err(Input::new(
                got,
                "an address on loopback, or ssl:// with a certificate, a user and a password",
            ));
        }
        Ok(SocketAddr::new(ip, *port))
    }
}

/// `tcp://host:port` or `ssl://host:port`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttServer {
    pub is_tls: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
}

impl MqttServer {
    /// Reads the URL of a broker, with the schemes of EdgeCore's library but `ws` and `wss`.
    pub fn parse(text: &str) -> Result<Self, Input> {
        let wrong = || Input::quoted(text, "tcp://host:port or ssl://host:port");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "tcp" | "mqtt" => false,
            "ssl" | "tls" | "tcps" | "mqtts" => true,
            _ => return Err(wrong()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        // Without brackets the end of an IPv6 address is ambiguous.
        if bare.is_none() && (host.is_empty() || host.contains([':', '[', ']', '/', '@'])) {
            return Err(wrong());
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        Ok(Self { is_tls, host: bare.unwrap_or(host).to_owned(), port })
    }

    /// `host:port`
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for MqttServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "ssl" } else { "tcp" };
        write!(f, "{scheme}://{}", self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_broker_is_read() {
        for (text, is_tls, host, port) in [
            ("tcp://127.0.0.1:1883", false, "127.0.0.1", 1883),
            ("mqtt://broker.example:1", false, "broker.example", 1),
            ("ssl://broker:8883/", true, "broker", 8883),
            ("tls://[2001:db8::1]:8883", true, "2001:db8::1", 8883),
        ] {
            let expected = MqttServer { is_tls, host: host.to_owned(), port };
            assert_eq!(MqttServer::parse(text).as_ref(), Ok(&expected), "{text}");
        }
        assert_eq!(MqttServer::parse("tls://[::1]:9").expect("valid").to_string(), "ssl://[::1]:9");
        for text in [
            "127.0.0.1:1883",
            "ws://127.0.0.1:8083",
            "tcp://127.0.0.1",
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:65536",
            "tcp://::1:1883",
            "tcp://:1883",
            "tcp://user@host:1883",
        ] {
            let wrong = MqttServer::parse(text).expect_err("invalid").to_string();
            let expected = format!("got {text:?}, expected tcp://host:port or ssl://host:port");
            assert_eq!(wrong, expected);
        }
    }

    #[test]
    fn beyond_this_machine_the_broker_wants_tls_and_a_password() {
        let of = |server: &str, user: &str, password: &str| MqttBrokerSettings {
            server: MqttServer::parse(server).expect("valid"),
            user: user.to_owned(),
            password: Secret::new(password),
            cert_file: "/a".to_owned(),
            key_file: "/b".to_owned(),
            ..MqttBrokerSettings::default()
        };
        for server in ["tcp://127.0.0.1:1884", "tcp://localhost:1884", "tcp://[::1]:1884"] {
            assert!(of(server, "", "").address().is_ok(), "{server}");
        }
        assert!(of("ssl://0.0.0.0:8884", "u", "p").address().is_ok());
        for (server, user, password) in [
            ("tcp://0.0.0.0:1884", "u", "p"),
            ("ssl://0.0.0.0:1884", "", ""),
            ("ssl://192.0.2.1:1884", "u", ""),
        ] {
            let wrong = of(server, user, password).address().expect_err("open to others");
            let expected = format!(
                "got {server} without TLS, user and password, expected an address on loopback, or \
                 ssl:// with a certificate, a user and a password"
            );
            assert_eq!(wrong.to_string(), expected);
        }
        assert!(of("tcp://broker.example:1884", "", "").address().is_err(), "a name");
        let bare =
            MqttBrokerSettings { cert_file: String::new(), ..of("ssl://127.0.0.1:8884", "u", "p") };
        assert!(bare.address().is_err(), "no certificate");
    }
}
