//! Keys of edgecore.yaml for ServiceBus: KubeEdge's below `modules.serviceBus`, and one of edged's
//! own.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Config;
use super::table::{Row, Rule, Table, ip, text, truth, whole};
use crate::limits::{SERVICE_BUS_CALL_MS, SERVICE_BUS_ENTRY_MS};
use crate::model::error::Input;
use crate::model::settings::ServiceBusSettings;
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// The settings of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceBus {
    is_on: bool,
    address: SocketAddr,
    of_file: ServiceBusSettings,
}

impl Default for ServiceBus {
    fn default() -> Self {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9_060);
        Self { is_on: false, address, of_file: ServiceBusSettings::default() }
    }
}

impl ServiceBus {
    /// Where applications connect; `None`: it is switched off.
    pub fn address(&self) -> Option<SocketAddr> {
        self.is_on.then_some(self.address)
    }
}

impl Config {
    /// `None`: ServiceBus is switched off, or there is no cloud.
    pub fn service_bus_settings(&self) -> Option<ServiceBusSettings> {
        let address = self.service_bus.address().filter(|_| self.cloud.is_configured())?;
        let own = [address.port(), self.listen.port(), self.image_mirror.port(), META_SERVER];
        let mut settings = self.service_bus.of_file.clone();
        settings.own_ports.extend(own);
        Some(settings)
    }
}

/// The port of MetaServer.
const META_SERVER: u16 = 10_550;

/// Below `modules`.
pub(super) const MODULES: &[Row] = &[("serviceBus", Map(&SERVICE_BUS))];

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("serviceBusPorts", Set(ports))];

const SERVICE_BUS: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.service_bus.is_on = truth(value)?;
                Ok(())
            }),
        ),
        (
            "port",
            Set(|config, value| {
                config.service_bus.address.set_port(whole(value, 1, i64::from(u16::MAX))? as u16);
                Ok(())
            }),
        ),
        (
            "server",
            Set(|config, value| {
                let given: IpAddr = ip(text(value)?)?;
                config.service_bus.address.set_ip(given);
                Ok(())
            }),
        ),
        (
            "timeout",
            Set(|config, value| {
                let seconds = whole(value, MIN_S, 10 * SERVICE_BUS_ENTRY_MS as i64 / 1_000)?;
                config.service_bus.of_file.timeout_ms = seconds as u64 * 1_000;
                Ok(())
            }),
        ),
        ("tlsCertFile", Set(no_tls)),
        ("tlsPrivateKeyFile", Set(no_tls)),
    ],
    more: &[],
    unused: "",
};

/// The shortest timeout: one call to a service.
const MIN_S: i64 = SERVICE_BUS_CALL_MS as i64 / 1_000;

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[&SERVICE_BUS];

/// A file that asks for TLS must not get a port without it.
fn no_tls(_: &mut Config, value: &Value) -> Result<(), Input> {
    match text(value)? {
        "" => Ok(()),
        given => Err(Input::quoted(given, "nothing: edged's ServiceBus has no TLS")),
    }
}

fn ports(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::List(list) = value else { return Err(Input::new(value, "a list of ports")) };
    let ports = list.iter().map(|node| Ok(whole(&node.value, 1, i64::from(u16::MAX))? as u16));
    config.service_bus.of_file.ports = ports.collect::<Result<_, Input>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;
    use crate::config::tests::edged_section;
    use crate::model::error::Refusal;

    fn section(keys: &str) -> Result<Config, Refusal> {
        let mut config = Config::default();
        let text = format!("modules: {{serviceBus: {{{keys}}}}}\n");
        let unused = overlay(&mut config, text.as_bytes())?;
        assert_eq!(unused, [""; 0], "{keys}");
        Ok(config)
    }

    #[test]
    fn the_settings_are_taken() {
        let off = section("enable: false, port: 9061").expect("a good file");
        assert_eq!((off.service_bus.address(), off.service_bus_settings()), (None, None));
        let keys = "enable: true, server: 127.0.0.2, port: 9061, timeout: 30, tlsCertFile: ''";
        let on = section(keys).expect("a good file");
        assert_eq!(on.service_bus.address(), Some("127.0.0.2:9061".parse().expect("an address")));
        assert_eq!(on.service_bus.of_file.timeout_ms, 30_000);
        assert_eq!(on.service_bus_settings(), None, "there is no cloud");
        let named = edged_section("serviceBusPorts: [80, 8080]").expect("a good file");
        assert_eq!(named.service_bus.of_file.ports, [80, 8_080].into());
        for (keys, want) in [
            ("port: 0", "port: got 0, expected a whole number from 1 to 65535"),
            ("server: gateway", "got \"gateway\", expected an IP address"),
            ("timeout: 9", "timeout: got 9, expected a whole number from 10 to 600"),
            ("tlsCertFile: /a", "got \"/a\", expected nothing: edged's ServiceBus has no TLS"),
            ("tls: /a", "got an unknown key"),
        ] {
            let why = section(keys).expect_err(keys).why;
            assert!(why.contains(want), "{why}");
        }
        let why = edged_section("serviceBusPorts: [0]").expect_err("no port").why;
        assert!(why.contains("got 0, expected a whole number from 1"), "{why}");
    }
}
