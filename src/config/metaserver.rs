//! Keys of edgecore.yaml for the Kubernetes API on the node: `modules.metaManager.metaServer`.
//!
//! `resources`, `clusterResources`, `writes` and `keadmCtl` are edged's own.

#[cfg(feature = "metaserver-auth")]
mod authorization;
#[cfg(not(feature = "metaserver-auth"))]
#[path = "metaserver/authorization/absent.rs"]
mod authorization;

use core::net::SocketAddr;
use std::sync::Arc;

use super::Config;
use super::table::{Row, Rule, Table, loopback, text, truth};
use crate::limits::METASERVER_RESOURCES_MAX;
use crate::model::application::Gvr;
use crate::model::error::Input;
use crate::model::metaserver::{MetaServerSettings, Served};
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// The settings of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaServer {
    is_on: bool,
    of_file: MetaServerSettings,
}

impl MetaServer {
    /// `None`: it is switched off.
    pub fn settings(&self) -> Option<&MetaServerSettings> {
        self.is_on.then_some(&self.of_file)
    }
}

/// Below the top of the file.
pub(super) const GATES: &[Row] = &[("featureGates", Set(gates))];

/// Of KubeEdge's gates only one matters here; newer versions have others.
fn gates(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::Map(gates) = value else { return Err(Input::new(value, "a map of gates")) };
    for (gate, entry) in gates {
        let is_on = truth(&entry.node.value).map_err(|wrong| wrong.at(gate))?;
        if &**gate == "requireAuthorization" {
            config.metaserver.of_file.requires_authorization = is_on;
        }
    }
    Ok(())
}

/// Only some programs can ask clients who they are.
pub(super) fn check(config: &Config) -> Result<(), Input> {
    check_gate(config, cfg!(feature = "metaserver-auth"))
}

/// An agent that ignored the gate would serve everybody.
fn check_gate(config: &Config, has_auth: bool) -> Result<(), Input> {
    if !has_auth && config.metaserver.settings().is_some_and(|it| it.requires_authorization) {
        let expected = "false, or a program with the feature metaserver-auth (set full)";
        return Err(Input::new("true", expected).at("featureGates.requireAuthorization"));
    }
    Ok(())
}

/// Below `modules.metaManager`.
pub(super) const META: &[Row] = &[("metaServer", Map(&META_SERVER))];

const META_SERVER: Table = Table {
    rules: &[
        ("clusterResources", Set(|config, value| resources(config, value, false))),
        (
            "enable",
            Set(|config, value| {
                config.metaserver.is_on = truth(value)?;
                Ok(())
            }),
        ),
        (
            "keadmCtl",
            Set(|config, value| {
                config.metaserver.of_file.keadm_ctl = truth(value)?;
                Ok(())
            }),
        ),
        ("resources", Set(|config, value| resources(config, value, true))),
        ("server", Set(server)),
        // Those of EdgeHub, in every file of keadm. EdgeCore itself has not used them since 1.17.
        ("tlsCaFile", Set(|_, value| text(value).map(drop))),
        ("tlsCertFile", Set(|_, value| text(value).map(drop))),
        ("tlsPrivateKeyFile", Set(|_, value| text(value).map(drop))),
        (
            "writes",
            Set(|config, value| {
                config.metaserver.of_file.writes = truth(value)?;
                Ok(())
            }),
        ),
    ],
    more: &[authorization::META_SERVER],
    unused: "",
};

/// Without authentication, only this machine is served.
fn server(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let wrong = || Input::quoted(given, "an address and a port, such as 127.0.0.1:10550");
    let server: SocketAddr = given.parse().map_err(|_| wrong())?;
    loopback(server.ip())?;
    if server.port() == 0 {
        return Err(wrong());
    }
    config.metaserver.of_file.server = server;
    Ok(())
}

fn resources(config: &mut Config, value: &Value, namespaced: bool) -> Result<(), Input> {
    let expected = "a list such as [networking.istio.io/v1/gateways=Gateway]";
    let Value::List(list) = value else { return Err(Input::new(value, expected)) };
    for node in list {
        let served = resource(text(&node.value)?, namespaced)?;
        let all = &mut config.metaserver.of_file.served;
        if all.len() >= METASERVER_RESOURCES_MAX {
            return Err(Input::other(format!(
                "got more than {METASERVER_RESOURCES_MAX} resources"
            )));
        }
        if all.iter().all(|it| it.gvr != served.gvr) {
            all.push(Arc::new(served));
        }
    }
    Ok(())
}

fn resource(given: &str, namespaced: bool) -> Result<Served, Input> {
    let expected = "group/version/resource=Kind, such as networking.istio.io/v1/gateways=Gateway";
    let wrong = || Input::quoted(given, expected);
    let (path, kind) = given.split_once('=').ok_or_else(wrong)?;
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version, resource) = match parts[..] {
        [version, resource] => ("", version, resource),
        [group, version, resource] => (group, version, resource),
        _ => return Err(wrong()),
    };
    let is_word = |word: &str, more: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !word.is_empty() && word.chars().all(is_valid)
    };
    let is_lower = resource == resource.to_lowercase() && group == group.to_lowercase();
    let is_valid = is_word(version, "") && is_word(resource, "") && is_word(kind, "");
    if !is_lower || !is_valid || !(group.is_empty() || is_word(group, "-.")) {
        return Err(wrong());
    }
    if group.is_empty() && resource == "secrets" {
        let why = "got secrets: they are never served (docs/metaserver.md)";
        return Err(Input::other(why));
    }
    Ok(Served { gvr: Gvr::new(group, version, resource), kind: kind.into(), namespaced })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;

    fn read(line: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let text = format!("modules: {{metaManager: {{metaServer: {{{line}}}}}}}\n");
        overlay(&mut config, text.as_bytes()).map_err(|why| why.to_string())?;
        Ok(config)
    }

    #[test]
    fn the_settings_are_taken() {
        assert_eq!(read("enable: false").expect("a good file").metaserver.settings(), None);
        let text = "enable: true, server: '127.0.0.1:1234', writes: true, keadmCtl: true, \
                    resources: \
                    [networking.istio.io/v1/gateways=Gateway, v1/services=Service], \
                    clusterResources: [example.com/v1/sites=Site]";
        let config = read(text).expect("a good file");
        let settings = config.metaserver.settings().expect("it is on");
        assert_eq!((settings.server.port(), settings.writes), (1_234, true));
        assert!(settings.keadm_ctl && !MetaServerSettings::default().keadm_ctl);
        let usual = MetaServerSettings::default().served.len();
        let added: Vec<String> =
            settings.served[usual..].iter().map(|it| format!("{} {}", it.gvr, it.kind)).collect();
        let want = [
            "networking.istio.io/v1, Resource=gateways Gateway",
            "example.com/v1, Resource=sites Site",
        ];
        assert_eq!(added.iter().filter(|it| want.contains(&&***it)).count(), 2, "{added:?}");
        assert_eq!(added.len(), 2, "what is served already is not served twice");
    }

    #[test]
    fn the_gate_is_refused_where_it_cannot_be_served_and_metaserver_is_on() {
        let gate = "featureGates: {requireAuthorization: true}\n";
        let on = "modules: {metaManager: {metaServer: {enable: true}}}\n";
        let mut config = Config::default();
        overlay(&mut config, gate.as_bytes()).expect("nothing is served");
        check_gate(&config, false).expect("MetaServer is off");
        let read = overlay(&mut config, on.as_bytes());
        assert_eq!(read.is_ok(), cfg!(feature = "metaserver-auth"), "{read:?}");
        check_gate(&config, true).expect("it is built in");
        let why = check_gate(&config, false).expect_err("it is not built in").to_string();
        assert!(why.contains("featureGates.requireAuthorization: got true"), "{why}");
        assert!(why.contains("metaserver-auth"), "{why}");
    }

    #[test]
    fn wrong_values_are_named() {
        let many: Vec<String> =
            (0..METASERVER_RESOURCES_MAX).map(|n| format!("a.b/v1/r{n}=K")).collect();
        let too_many = format!("resources: [{}]", many.join(", "));
        for (line, want) in [
            ("server: '10.0.0.1:10550'", "a loopback address"),
            ("server: '127.0.0.1'", "an address and a port"),
            ("server: '127.0.0.1:0'", "an address and a port"),
            ("resources: [v1/secrets=Secret]", "got secrets"),
            ("resources: [gateways]", "group/version/resource=Kind"),
            ("resources: [a/b/c/d=E]", "group/version/resource=Kind"),
            ("resources: ['v1/Pods=Pod']", "group/version/resource=Kind"),
            ("clusterResources: 3", "expected a list such as"),
            (&too_many, "got more than"),
        ] {
            let got = read(line).expect_err(line);
            assert!(got.contains(want), "{line}: {got}");
        }
    }
}
