//! Environment variables: the sources of their values, and containers whose values are missing.

use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{Bytes, ConfigMap, Object, Secret};
use edged::model::pod::Pod;
use std::sync::Arc;

use edged::agent::event::Event;

use crate::harness::Harness;
use crate::made::{annotated, container_of, made, sandbox_of};

/// One container `m` with these fields.
fn spec(fields: &str) -> String {
    format!(r#""containers":[{{"name":"m","image":"i:1",{fields}}}]"#)
}

fn texts(pairs: &[(String, String)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn map(name: &str, data: &[(&str, &str)]) -> Arc<Object> {
    let mut map = ConfigMap::default();
    "default".clone_into(&mut map.metadata.namespace);
    name.clone_into(&mut map.metadata.name);
    map.data = data.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Arc::new(Object::ConfigMap(map))
}

fn secret(name: &str, data: &[(&str, &[u8])]) -> Arc<Object> {
    let mut secret = Secret::default();
    "default".clone_into(&mut secret.metadata.namespace);
    name.clone_into(&mut secret.metadata.name);
    secret.data = data.iter().map(|&(key, value)| (key.to_owned(), Bytes(value.into()))).collect();
    Arc::new(Object::Secret(secret))
}

/// The folder contains this pod and these objects.
fn put_folder(harness: &mut Harness, spec: &str, objects: &[Arc<Object>]) {
    let metadata = r#","labels":{"app":"web"},"annotations":{"note":"hello"}"#;
    let pods = vec![serde_json::from_str::<Pod>(&annotated(metadata, spec)).expect("a pod")];
    let content = Content { pods, objects: objects.to_vec() };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

fn environment(fields: &str, objects: &[Arc<Object>]) -> Vec<String> {
    let mut harness = Harness::new();
    put_folder(&mut harness, &spec(fields), objects);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    texts(&container_of(&mut harness).envs)
}

#[test]
fn variables_use_those_before_them_and_the_last_of_a_name_wins() {
    let (_, container) = made(&spec(
        r#""env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)$(C)"},
            {"name":"C","value":"3"},{"name":"A","value":"2$(A)"}],
           "command":["sh","$(A)"],"args":["$$(A)","$(D)"]"#,
    ));
    assert_eq!(texts(&container.envs), ["A=21", "B=1$(C)", "C=3"]);
    assert_eq!(
        (&container.command[..], &container.args[..]),
        (&["sh".to_owned(), "21".to_owned()][..], &["$(A)".to_owned(), "$(D)".to_owned()][..])
    );
}

/// `A` of 16 bytes, `B` of 16 times `A`, `C` of 16 times `B`, and so on.
fn powers(levels: usize) -> String {
    let mut all = vec![r#"{"name":"A","value":"0123456789abcdef"}"#.to_owned()];
    for level in 1..levels {
        let (name, of) = ((b'A' + level as u8) as char, (b'A' + level as u8 - 1) as char);
        all.push(format!(r#"{{"name":"{name}","value":"{}"}}"#, format!("$({of})").repeat(16)));
    }
    format!(r#""env":[{}]"#, all.join(","))
}

#[test]
fn variables_that_ask_for_more_than_any_memory_are_a_configuration_error() {
    let mut harness = Harness::new();
    put_folder(&mut harness, &spec(&powers(8)), &[]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    assert!(harness.open_calls().is_empty(), "nothing is made of it");
    let status = harness.status();
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    let message = waiting["message"].as_str().expect("a message");
    assert!(
        message.starts_with("got variables, command, arguments and subPathExpr of 2")
            && message.ends_with("replaced in the variable F, expected at most 2097152"),
        "{message}"
    );
}

#[test]
fn command_and_arguments_have_a_share_of_the_same_budget() {
    // 1 MiB of variables, and a command word of as much.
    for (words, fits) in [(r#""command":["$(E)"]"#, false), (r#""args":["$(D)"]"#, true)] {
        let mut harness = Harness::new();
        put_folder(&mut harness, &spec(&format!("{},{words}", powers(5))), &[]);
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        if fits {
            assert_eq!(container_of(&mut harness).args[0].len(), 1 << 16);
        } else {
            assert!(harness.open_calls().is_empty(), "nothing is made of it");
        }
    }
}

#[test]
fn a_config_map_of_very_many_keys_is_a_configuration_error_or_a_container_at_once() {
    let keys: Vec<String> = (0..90_000).map(|number| format!("k{number}")).collect();
    let pairs = |count: usize| keys[..count].iter().map(|key| (&**key, "")).collect::<Vec<_>>();
    let from = r#""envFrom":[{"configMapRef":{"name":"many"}}]"#;
    let mut harness = Harness::new();
    put_folder(&mut harness, &spec(from), &[map("many", &pairs(90_000))]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    assert!(harness.open_calls().is_empty(), "90,000 variables are more than the budget");
    // Variables are indexed by name: in a list each of these would be compared with all before it.
    assert_eq!(environment(from, &[map("many", &pairs(20_000))]).len(), 20_000);
}

#[test]
fn a_pod_is_told_of_itself() {
    let field = |path: &str| format!(r#"{{"fieldRef":{{"fieldPath":"{path}"}}}}"#);
    for (path, want) in [
        ("metadata.name", "p-gw"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['note']", "hello"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "gw"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
        ("status.podIP", "10.0.0.5"),
        ("status.podIPs", "10.0.0.5"),
    ] {
        let fields = format!(r#""env":[{{"name":"A","valueFrom":{}}}]"#, field(path));
        assert_eq!(environment(&fields, &[]), [format!("A={want}")], "{path}");
    }
    let resource = |resource: &str, divisor: &str| {
        format!(
            r#""resources":{{"limits":{{"cpu":"1500m","memory":"64Mi"}}}},
               "env":[{{"name":"A","valueFrom":{{"resourceFieldRef":
                   {{"resource":"{resource}","divisor":"{divisor}"}}}}}}]"#
        )
    };
    assert_eq!(environment(&resource("limits.cpu", "1"), &[]), ["A=2"]);
    assert_eq!(environment(&resource("requests.cpu", "1m"), &[]), ["A=1500"]);
    assert_eq!(environment(&resource("limits.memory", "1Mi"), &[]), ["A=64"]);
    let unlimited = r#""env":[{"name":"A","valueFrom":{"resourceFieldRef":
        {"resource":"limits.memory","divisor":"1Gi"}}}]"#;
    assert_eq!(environment(unlimited, &[]), ["A=1"], "all that the node has");
}

#[test]
fn on_the_hosts_network_the_pods_address_is_the_hosts() {
    let (_, container) = made(&format!(
        r#""hostNetwork":true,{}"#,
        spec(r#""env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}]"#)
    ));
    assert_eq!(texts(&container.envs), ["A=192.0.2.1"]);
}

#[test]
fn values_come_from_objects() {
    let objects =
        [map("settings", &[("color", "green"), ("size", "7")]), secret("key", &[("pin", b"5678")])];
    let fields = r#""envFrom":[{"prefix":"S_","configMapRef":{"name":"settings"}},
            {"secretRef":{"name":"key"}},{"configMapRef":{"name":"none","optional":true}}],
        "env":[{"name":"MY","valueFrom":{"configMapKeyRef":{"name":"settings","key":"color"}}},
            {"name":"PIN","valueFrom":{"secretKeyRef":{"name":"key","key":"pin"}}},
            {"name":"S_size","value":"not $(S_size)"},
            {"name":"N","valueFrom":{"configMapKeyRef":{"name":"none","key":"k","optional":true}}},
            {"name":"O","valueFrom":{"secretKeyRef":{"name":"key","key":"k","optional":true}}}]"#;
    assert_eq!(
        environment(fields, &objects),
        ["S_color=green", "S_size=not 7", "pin=5678", "MY=green", "PIN=5678"]
    );
}

#[test]
fn what_is_missing_is_said_and_heals_when_it_appears() {
    let settings = map("settings", &[("other", "1")]);
    let key = secret("key", &[("bin", b"\xff")]);
    let ref_of = |kind: &str, name: &str, key: &str| {
        format!(
            r#""env":[{{"name":"A","valueFrom":{{"{kind}":{{"name":"{name}","key":"{key}"}}}}}}]"#
        )
    };
    for (fields, want) in [
        (ref_of("configMapKeyRef", "none", "k"), "configmap \"none\" not found"),
        (ref_of("secretKeyRef", "none", "k"), "secret \"none\" not found"),
        (
            ref_of("configMapKeyRef", "settings", "k"),
            "couldn't find key k in ConfigMap default/settings",
        ),
        (ref_of("secretKeyRef", "key", "k"), "couldn't find key k in Secret default/key"),
        (
            ref_of("secretKeyRef", "key", "bin"),
            "got key bin in Secret default/key that is not UTF-8, expected text",
        ),
        (
            r#""envFrom":[{"configMapRef":{"name":"none"}}]"#.to_owned(),
            "configmap \"none\" not found",
        ),
        (r#""envFrom":[{"secretRef":{"name":"none"}}]"#.to_owned(), "secret \"none\" not found"),
    ] {
        let mut harness = Harness::new();
        put_folder(&mut harness, &spec(&fields), &[settings.clone(), key.clone()]);
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{fields}");
        let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerConfigError");
        assert_eq!(waiting["message"], want);
        assert!(harness.events.contains(&format!("Failed Error: {want}")), "{:?}", harness.events);
    }
    let fields = ref_of("configMapKeyRef", "late", "k");
    let mut harness = Harness::new();
    put_folder(&mut harness, &spec(&fields), &[]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    put_folder(&mut harness, &spec(&fields), &[map("late", &[("k", "here")])]);
    assert_eq!(texts(&container_of(&mut harness).envs), ["A=here"], "at once, without a pull");
}

#[test]
fn a_missing_object_is_looked_for_again_after_ten_seconds() {
    let fields = r#""envFrom":[{"configMapRef":{"name":"none"}}]"#;
    let mut harness = Harness::new();
    put_folder(&mut harness, &spec(fields), &[]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    let failed = |harness: &Harness| harness.specs.len();
    let before = failed(&harness);
    harness.pass(9_000);
    assert_eq!(failed(&harness), before);
    harness.pass(2_000);
    assert_eq!(failed(&harness), before + 1, "its files are made for another try");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn a_secret_that_need_not_be_there_is_not_missed() {
    let optional = r#""envFrom":[{"secretRef":{"name":"none","optional":true}}]"#;
    assert_eq!(environment(optional, &[]), [] as [&str; 0]);
}
