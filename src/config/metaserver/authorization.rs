//! Keys of MetaServer's authenticated form: who signs tokens, and where pods reach it.

use core::net::SocketAddrV4;

use crate::config::Config;
use crate::config::table::{Row, Rule, text};
use crate::limits::METASERVER_RESOURCES_MAX;
use crate::model::error::Input;
use crate::wire::tree::{Node, Value};

use Rule::Take as Set;

/// Below `modules.metaManager.metaServer`.
pub(super) const META_SERVER: &[Row] = &[
    (
        "apiAudiences",
        Set(|config, value| {
            config.metaserver.of_file.authorization.audiences = texts(value, "audiences")?;
            Ok(())
        }),
    ),
    ("dummyServer", Set(dummy)),
    (
        "serviceAccountIssuers",
        Set(|config, value| {
            let issuers = texts(value, "URLs")?;
            if !issuers.is_empty() {
                config.metaserver.of_file.authorization.issuers = issuers;
            }
            Ok(())
        }),
    ),
    ("serviceAccountKeyFiles", Set(key_files)),
];

/// An address for a link of our own: pods of any network reach it through their gateway.
fn dummy(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let expected = "an IPv4 address that nothing else uses and a port: 169.254.30.10:10550";
    let wrong = || Input::quoted(given, expected);
    let address: SocketAddrV4 = given.parse().map_err(|_| wrong())?;
    let ip = address.ip();
    let is_usable = !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast();
    if !is_usable || ip.is_broadcast() || address.port() == 0 {
        return Err(wrong());
    }
    config.metaserver.of_file.authorization.dummy = address.into();
    Ok(())
}

fn key_files(config: &mut Config, value: &Value) -> Result<(), Input> {
    let files = texts(value, "paths of public keys")?;
    if let Some(wrong) = files.iter().find(|path| !path.starts_with('/')) {
        return Err(Input::quoted(wrong, "an absolute path"));
    }
    config.metaserver.of_file.authorization.key_files = files;
    Ok(())
}

fn texts(value: &Value, of: &str) -> Result<Vec<Box<str>>, Input> {
    let list: &[Node] = match value {
        Value::Null => &[],
        Value::List(list) if list.len() <= METASERVER_RESOURCES_MAX => list,
        other => {
            let expected = format!("a list of {of}, of {METASERVER_RESOURCES_MAX} at most");
            return Err(Input::new(other, expected));
        }
    };
    list.iter().map(|node| text(&node.value).map(Box::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;
    use crate::model::metaserver::{Authorization, MetaServerSettings};

    fn settings(text: &str) -> Result<MetaServerSettings, String> {
        let mut config = Config::default();
        overlay(&mut config, text.as_bytes()).map_err(|why| why.to_string())?;
        Ok(config.metaserver.settings().expect("it is on").clone())
    }

    #[test]
    fn the_authenticated_form_is_a_gate_at_the_top() {
        let keys = "enable: true, dummyServer: '10.9.0.1:1234', apiAudiences: [a, b], \
                    serviceAccountIssuers: [https://i], serviceAccountKeyFiles: [/k.pub]";
        let meta = format!("modules: {{metaManager: {{metaServer: {{{keys}}}}}}}\n");
        assert_eq!(settings(&meta).expect("a good file").authorization(), None);
        let gates = "featureGates: {requireAuthorization: true, moduleRestart: false}\n";
        let settings_with = settings(&format!("{gates}{meta}")).expect("a good file");
        let got = settings_with.authorization().expect("it is on");
        assert_eq!(got.dummy.to_string(), "10.9.0.1:1234");
        assert_eq!(got.audiences(), ["a".into(), "b".into()]);
        assert_eq!(got.issuers, ["https://i".into()]);
        assert_eq!(got.key_files, ["/k.pub".into()]);
        // What keadm writes is the default.
        let bare = format!(
            "{gates}modules: {{metaManager: {{metaServer: {{enable: true, \
            apiAudiences: null, serviceAccountIssuers: [], serviceAccountKeyFiles: null}}}}}}\n"
        );
        let settings_with = settings(&bare).expect("a good file");
        let got = settings_with.authorization().expect("it is on");
        assert_eq!(*got, Authorization::default());
        assert_eq!(got.audiences(), got.issuers);
        let why = settings("featureGates: {requireAuthorization: 1}\n").expect_err("no truth");
        assert!(why.contains("true or false"), "{why}");
    }

    #[test]
    fn wrong_values_are_named() {
        for (line, want) in [
            ("dummyServer: '127.0.0.1:10550'", "an IPv4 address that nothing else uses"),
            ("dummyServer: '0.0.0.0:10550'", "an IPv4 address that nothing else uses"),
            ("dummyServer: '169.254.30.10:0'", "an IPv4 address that nothing else uses"),
            ("dummyServer: '[fd00::1]:10550'", "an IPv4 address that nothing else uses"),
            ("serviceAccountKeyFiles: [k.pub]", "an absolute path"),
            ("apiAudiences: a", "a list of audiences"),
        ] {
            let meta = format!("modules: {{metaManager: {{metaServer: {{{line}}}}}}}\n");
            let got = settings(&meta).expect_err(line);
            assert!(got.contains(want), "{line}: {got}");
        }
    }
}
