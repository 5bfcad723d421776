//! Keys of edgecore.yaml for Services by name; edged's own: KubeEdge has EdgeMesh for it.

use core::net::Ipv4Addr;

use super::Config;
use super::table::{Row, Rule, Table, ip, text, truth};
use crate::model::error::Input;
use crate::model::settings::ServiceSettings;
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// The settings of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    is_on: bool,
    of_file: ServiceSettings,
}

impl Services {
    /// `None`: they are switched off.
    pub fn settings(&self) -> Option<&ServiceSettings> {
        self.is_on.then_some(&self.of_file)
    }
}

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("services", Map(&SERVICES))];

const SERVICES: Table = Table {
    rules: &[
        (
            "address",
            Set(|config, value| {
                config.services.of_file.address = v4(text(value)?)?;
                Ok(())
            }),
        ),
        ("clusterIPRange", Set(range)),
        (
            "enable",
            Set(|config, value| {
                config.services.is_on = truth(value)?;
                Ok(())
            }),
        ),
        (
            "nodePorts",
            Set(|config, value| {
                config.services.of_file.node_ports = truth(value)?;
                Ok(())
            }),
        ),
        ("upstreamServers", Set(upstream)),
    ],
    more: &[],
    unused: "",
};

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[&SERVICES];

/// Where they are on and no other resolver is named, pods get this one.
pub(super) fn finish(config: &mut Config) {
    if let Some(settings) = config.services.settings()
        && config.settings.cluster_dns.is_empty()
    {
        config.settings.cluster_dns = vec![settings.address.to_string()];
    }
}

fn v4(given: &str) -> Result<Ipv4Addr, Input> {
    given.parse().map_err(|_| Input::quoted(given, "an IPv4 address"))
}

fn range(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let wrong = || {
        let expected = "a network of IPv4 addresses such as 10.96.0.0/16, of 8 to 30 bits";
        Input::quoted(given, expected)
    };
    let (ip, bits) = given.split_once('/').ok_or_else(wrong)?;
    let (ip, bits): (Ipv4Addr, u8) =
        (ip.parse().map_err(|_| wrong())?, bits.parse().map_err(|_| wrong())?);
    let is_network =
        (8..=30).contains(&bits) && u32::from(ip).trailing_zeros() >= 32 - u32::from(bits);
    if !is_network {
        return Err(wrong());
    }
    config.services.of_file.range = (ip, bits);
    Ok(())
}

fn upstream(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::List(list) = value else { return Err(Input::new(value, "a list of addresses")) };
    let servers = list.iter().map(|node| {
        let given = text(&node.value)?;
        ip(given).map(|_| given.to_owned())
    });
    config.services.of_file.upstream = servers.collect::<Result<_, _>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::edged_section;

    #[test]
    fn the_settings_are_taken_and_pods_get_the_resolver() {
        let off = edged_section("services: {enable: false}").expect("a good file");
        assert_eq!((off.services.settings(), off.settings.cluster_dns.len()), (None, 0));
        let text = "services: {enable: true, address: 169.254.96.17, nodePorts: true, \
                    clusterIPRange: 10.43.0.0/20, upstreamServers: [192.0.2.1, 'fd00::1']}";
        let on = edged_section(text).expect("a good file");
        let want = ServiceSettings {
            address: Ipv4Addr::new(169, 254, 96, 17),
            range: (Ipv4Addr::new(10, 43, 0, 0), 20),
            node_ports: true,
            upstream: vec!["192.0.2.1".to_owned(), "fd00::1".to_owned()],
        };
        assert_eq!(on.services.settings(), Some(&want));
        assert_eq!(on.settings.cluster_dns, ["169.254.96.17"]);
        let own = "tailoredKubeletConfig: {clusterDNS: [192.0.2.2]}, services: {enable: true}";
        let own = edged_section(own).expect("a good file");
        assert_eq!(own.settings.cluster_dns, ["192.0.2.2"], "what the file names stays");
    }

    #[test]
    fn wrong_values_are_named() {
        for (line, want) in [
            ("enable: 1", "got 1, expected true or false"),
            ("address: 'fd00::1'", "got \"fd00::1\", expected an IPv4 address"),
            ("clusterIPRange: 10.96.0.1/16", "expected a network of IPv4 addresses"),
            ("clusterIPRange: 10.96.0.0/31", "expected a network of IPv4 addresses"),
            ("clusterIPRange: 10.96.0.0", "expected a network of IPv4 addresses"),
            ("upstreamServers: [dns.local]", "got \"dns.local\", expected an IP address"),
            ("upstream: []", "got an unknown key"),
        ] {
            let got = edged_section(&format!("services: {{{line}}}"));
            let is_said = got.as_ref().is_err_and(|why| why.to_string().contains(want));
            assert!(is_said, "{line}: {got:?}");
        }
    }
}
