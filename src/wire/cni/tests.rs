//! Configurations and results of CNI, sound and unsound.

use super::*;
use crate::model::cri::{Dns, PodRef};

const LIST: &str = r#"{
  "cniVersion": "0.4.0", "name": "pods",
  "plugins": [
    { "type": "loopback" },
    { "type": "bridge", "bridge": "b0", "ipam": { "type": "host-local",
      "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00::/64" }]] } },
    { "type": "portmap", "capabilities": { "portMappings": true, "bandwidth": false } }
  ]
}"#;

fn list() -> Network {
    Network::parse(LIST.as_bytes()).expect("it is sound")
}

fn with_port(host_port: u16) -> SandboxConfig {
    let port = PortMapping {
        protocol: Protocol::Udp,
        container_port: 53,
        host_port,
        host_ip: String::new(),
    };
    SandboxConfig { port_mappings: vec![port], ..SandboxConfig::default() }
}

fn kinds(chain: &[&Plugin]) -> Vec<String> {
    chain.iter().map(|plugin| plugin.kind().to_owned()).collect()
}

#[test]
fn plugins_without_work_are_left_out() {
    let network = list();
    assert_eq!(kinds(&network.chain(&with_port(0))), ["bridge"]);
    assert_eq!(kinds(&network.chain(&with_port(53))), ["bridge", "portmap"]);
    // In the middle the next plugin needs what it hands on; without the capability it has ports
    // of its own.
    for (old, new) in [
        ("{ \"type\": \"loopback\" }", "{ \"type\": \"portmap\" }"),
        ("\"portMappings\": true", "\"portMappings\": false"),
    ] {
        let network = Network::parse(LIST.replace(old, new).as_bytes()).expect("it is sound");
        let chain = kinds(&network.chain(&with_port(0)));
        assert!(chain.contains(&"portmap".to_owned()), "{chain:?}");
    }
    let single = Network::parse(br#"{"name":"lo","type":"loopback"}"#).expect("it is sound");
    assert!(single.is_loopback() && !network.is_loopback());
}

#[test]
fn a_plugin_is_given_its_own_object_and_what_it_declares() {
    let network = list();
    let [_, bridge, portmap] = network.plugins() else { panic!("{network:?}") };
    let input = |plugin, config: &SandboxConfig, previous: Option<&Value>| -> Value {
        let bytes = network.input(plugin, config, previous).expect("it is sound");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    let first = input(bridge, &with_port(53), None);
    assert_eq!((&first["name"], &first["cniVersion"]), (&json!("pods"), &json!("0.4.0")));
    assert_eq!(first["bridge"], "b0");
    assert!(first.get("runtimeConfig").is_none() && first.get("prevResult").is_none());
    let second = input(portmap, &with_port(53), Some(&json!({"ips": []})));
    let ports = json!([{"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": ""}]);
    assert_eq!(second["runtimeConfig"], json!({"portMappings": ports}));
    assert_eq!(second["prevResult"], json!({"ips": []}));
    assert!(second.get("capabilities").is_none());
}

#[test]
fn capabilities_have_the_words_that_plugins_read() {
    let text = r#"{"name":"n","type":"t","capabilities":{"bandwidth":true,"dns":true,
        "io.kubernetes.cri.pod-annotations":true}}"#;
    let network = Network::parse(text.as_bytes()).expect("it is sound");
    let rate = |text: &str| SandboxConfig {
        annotations: [("kubernetes.io/ingress-bandwidth".to_owned(), text.to_owned())].into(),
        dns: Some(Dns { servers: vec!["192.0.2.1".to_owned()], ..Dns::default() }),
        ..SandboxConfig::default()
    };
    let bytes = network.input(&network.plugins()[0], &rate("10M"), None).expect("it is sound");
    let input: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(
        input["runtimeConfig"],
        json!({
            "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": u32::MAX},
            "dns": {"servers": ["192.0.2.1"], "searches": [], "options": []},
            "io.kubernetes.cri.pod-annotations": {"kubernetes.io/ingress-bandwidth": "10M"},
        })
    );
    for wrong in ["0", "-1", "fast"] {
        let refused = network.input(&network.plugins()[0], &rate(wrong), None);
        let why = refused.expect_err(wrong).to_string();
        assert!(why.starts_with("kubernetes.io/ingress-bandwidth: got "), "{why}");
    }
}

#[test]
fn what_is_no_configuration_is_refused_by_its_place() {
    for (text, why) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("[]", "name: got \"\", expected letters, digits and «._-»"),
        (r#"{"name":7}"#, "name: got 7, expected a text"),
        (r#"{"name":"a/b","type":"x"}"#, "name: got \"a/b\", expected letters, digits and «._-»"),
        (r#"{"name":"a"}"#, "plugin 1: type: got null, expected the name of a program"),
        (
            r#"{"name":"a","plugins":[{"type":"../sh"}]}"#,
            "plugin 1: type: got \"../sh\", expected the name of a program",
        ),
        (r#"{"name":"a","plugins":{}}"#, "plugins: got {}, expected a list"),
        (r#"{"name":"a","plugins":[]}"#, "plugins: got 0 plugins, expected 1 to 16"),
        (r#"{"name":"a","plugins":["x"]}"#, "plugin 1: type: got null, expected the name of a pro"),
    ] {
        let got = Network::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(got.starts_with(why), "{text}: {got}");
    }
    let plugins = |count: usize| {
        let list = vec![r#"{"type":"x"}"#; count].join(",");
        Network::parse(format!(r#"{{"name":"a","plugins":[{list}]}}"#).as_bytes())
    };
    assert!(plugins(CNI_PLUGINS_MAX).is_ok() && plugins(CNI_PLUGINS_MAX + 1).is_err());
    let padded = |bytes: usize| {
        Network::parse(format!("{LIST}{}", " ".repeat(bytes - LIST.len())).as_bytes())
    };
    assert!(padded(CNI_CONFIG_BYTES_MAX).is_ok());
    let refused = padded(CNI_CONFIG_BYTES_MAX + 1).expect_err("one byte more").to_string();
    assert_eq!(refused, format!("got {} bytes, expected 65536 at most", CNI_CONFIG_BYTES_MAX + 1));
}

#[test]
fn only_a_configuration_that_asks_for_it_is_masqueraded() {
    assert_eq!(list().masqueraded(), Ok(vec![]));
    let asks = |subnet: &str| {
        let text = LIST.replace("\"name\"", "\"edged\": {\"masquerade\": true}, \"name\"");
        Network::parse(text.replace("10.1.0.0/24", subnet).as_bytes()).expect("it is sound")
    };
    let subnets = asks("10.1.0.0/24").masqueraded().expect("both are sound");
    let texts: Vec<String> = subnets.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.1.0.0/24", "fd00::/64"]);
    for wrong in ["10.1.0.0/33", "10.1.0.0", "x/8", "10.1.0.0/8; flush ruleset"] {
        let why = asks(wrong).masqueraded().expect_err(wrong).to_string();
        assert!(why.starts_with("subnet: got "), "{why}");
    }
}

#[test]
fn addresses_are_read_from_results_of_all_versions() {
    for (result, expected) in [
        (json!({"ip4": {"ip": "10.1.0.2/24"}, "ip6": {"ip": "fd00::2/64"}}), "10.1.0.2 fd00::2"),
        (json!({"ips": [{"version": "4", "address": "10.1.0.3/24"}]}), "10.1.0.3"),
        (
            json!({
                "interfaces": [
                    {"name": "b0"}, {"name": "eth0", "sandbox": ""},
                    {"name": "eth0", "sandbox": "/run/x"}, {"name": "eth1", "sandbox": "/run/x"}
                ],
                "ips": [
                    {"interface": 2, "address": "fd00::4/64"},
                    {"interface": 0, "address": "10.1.0.1/24"},
                    {"interface": 1, "address": "10.1.0.9/24"},
                    {"interface": 3, "address": "10.2.0.4/24"},
                    {"interface": 9, "address": "10.3.0.4/24"},
                    {"interface": 2, "address": "10.1.0.4/24"},
                ],
            }),
            "10.1.0.4 fd00::4",
        ),
        (json!({"ips": [{"address": "nonsense"}, {"address": 7}, 7]}), ""),
        (json!({"ips": 7}), ""),
        (json!({}), ""),
    ] {
        let got: Vec<String> = addresses(&result).iter().map(ToString::to_string).collect();
        assert_eq!(got.join(" "), expected, "{result}");
    }
}

#[test]
fn what_is_kept_for_del_comes_back() {
    assert!(["7", "[]", "null", "{}"].iter().all(|it| Attachment::decode(it.as_bytes()).is_err()));
    for result in [None, Some(json!({"ips": []}))] {
        let kept = Attachment { network: list(), result };
        let bytes = kept.encode();
        assert_eq!(Attachment::decode(&bytes), Ok(kept));
        for at in 0..bytes.len() {
            assert!(Attachment::decode(&bytes[..at]).is_err(), "torn after {at} bytes");
        }
    }
}

#[test]
fn a_failure_has_the_plugins_own_words() {
    for (stdout, stderr, expected) in [
        (r#"{"code":11,"msg":"no address","details":"all taken"}"#, "", "no address: all taken"),
        (r#"{"code":11,"msg":"no address"}"#, "noise", "no address"),
        ("", " panic: x\n", "panic: x"),
        ("[]", "", "it says nothing"),
    ] {
        assert_eq!(failure(stdout.as_bytes(), stderr.as_bytes()), expected);
    }
    assert!(result(b"7").is_err() && result(b"").is_err() && result(b"{}").is_ok());
}

#[test]
fn a_pod_is_named_to_plugins() {
    let pod = |name: &str| SandboxConfig {
        pod: PodRef { name: name.into(), namespace: "default".into(), uid: "u-1".into() },
        ..SandboxConfig::default()
    };
    let expected = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;\
                    K8S_POD_INFRA_CONTAINER_ID=0f;K8S_POD_UID=u-1";
    assert_eq!(args("0f", &pod("web")), Ok(expected.to_owned()));
    let refused = args("0f", &pod("a;K8S_POD_UID=x")).expect_err("two in one").to_string();
    assert!(refused.starts_with("K8S_POD_NAME: got "), "{refused}");
}
