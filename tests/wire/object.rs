//! ConfigMaps and Secrets in manifest files: valid ones, refused ones, and errors without values.

use edged::limits::OBJECT_BYTES_MAX;
use edged::model::object::{Bytes, Object, ObjectKind};
use edged::wire::manifest::parse;

fn objects(text: &str) -> Vec<Object> {
    let content = parse(text.as_bytes()).expect(text);
    content.objects.iter().map(|object| (**object).clone()).collect()
}

#[track_caller]
fn refused(text: &str, want: &str) {
    let got = parse(text.as_bytes()).expect_err(text).to_string();
    assert!(got.contains(want), "{text}\n{got}\n{want}");
    assert!(!got.contains("hunter2"), "{got}");
}

fn bytes(text: &str) -> Bytes {
    Bytes(text.as_bytes().into())
}

#[test]
fn a_file_may_hold_pods_and_what_they_use() {
    let text = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data:
  color: green
  lines: |
    one
    two
binaryData: {logo.png: AAEC/w==}
immutable: true
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: web:1}]}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: key}, type: Opaque,
   data: {user: YWRtaW4=, pin: MTIzNA==}, stringData: {pin: '5678'}}
";
    let content = parse(text.as_bytes()).expect("a good file");
    assert_eq!(content.pods.len(), 1);
    let [Object::ConfigMap(map), Object::Secret(secret)] = &objects(text)[..] else {
        panic!("{content:?}")
    };
    assert_eq!((&*map.metadata.namespace, &*map.metadata.name), ("shop", "web"));
    assert_eq!(map.data["color"], "green");
    assert_eq!(map.data["lines"], "one\ntwo\n");
    assert_eq!(map.binary_data["logo.png"], Bytes([0, 1, 2, 255].into()));
    assert_eq!((&*secret.metadata.namespace, &*secret.metadata.name), ("default", "key"));
    assert_eq!(secret.r#type, "Opaque");
    assert_eq!(secret.data["user"], bytes("admin"));
    assert_eq!(secret.data["pin"], bytes("5678"), "what is written plainly counts");
    assert!(!format!("{content:?}").contains("admin"), "{content:?}");
    assert_eq!(objects(text)[0].kind(), ObjectKind::ConfigMap);
    assert_eq!(objects(text)[1].size_bytes(), "user".len() + "admin".len() + "pin".len() + 4);
}

#[test]
fn json_is_as_good() {
    let text =
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": null}"#;
    assert_eq!(objects(text)[0].metadata().namespace, "default");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let map =
        |rest: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{rest}");
    for (rest, want) in [
        ("data: {k: 5}", ":4:11: data.k: got 5, expected text (in quotes"),
        ("data: {k: [a]}", ":4:11: data.k: got a list, expected text"),
        ("data: [k]", ":4:7: data: got a list, expected"),
        ("data: {'': x}", ":4:8: data: got the key \"\", expected 1 to 253 letters"),
        ("data: {..: x}", ":4:8: data: got the key \"..\", expected"),
        ("data: {a/b: x}", ":4:8: data: got the key \"a/b\", expected"),
        ("data: {../../etc/x: x}", "data: got the key"),
        (
            "binaryData: {k: '!'}",
            ":4:17: binaryData.k: got text that is not base64, expected base64",
        ),
        ("binaryData: {k: AA==}\ndata: {k: x}", "got the key \"k\" in data and in binaryData"),
        ("dta: {k: x}", ":4:1: dta: got an unknown field, expected metadata, data, binaryData"),
        ("stringData: {k: x}", ":4:1: stringData: got an unknown field"),
    ] {
        refused(&map(rest), want);
    }
    refused("apiVersion: v1\nkind: Secret\n", ":1:1: got a Secret without metadata.name");
}

#[test]
fn no_error_shows_what_a_secret_says() {
    let secret =
        |rest: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\n{rest}");
    for (rest, want) in [
        ("data: {k: hunter2!}", ":4:11: data.k: got a value that is not shown, expected base64"),
        ("data: {k: [hunter2]}", ":4:11: data.k: got a value that is not shown, expected base64"),
        ("stringData: {k: [hunter2]}", ":4:17: stringData.k: got a value that is not shown"),
        ("stringData: {k: 1234}", ":4:17: stringData.k: got a value that is not shown"),
        ("stringData: hunter2", ":4:13: stringData: got a value that is not shown"),
        ("binaryData: {k: hunter2}", ":4:1: binaryData: got an unknown field"),
    ] {
        refused(&secret(rest), want);
    }
}

#[test]
fn a_runtime_class_is_in_no_namespace_and_has_a_handler() {
    let text = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n\
                metadata: {name: small, namespace: x}\nhandler: kata\n\
                overhead: {podFixed: {memory: 64Mi}}\n";
    let [Object::RuntimeClass(class)] = &objects(text)[..] else { panic!("{text}") };
    assert_eq!((&*class.metadata.name, &*class.metadata.namespace), ("small", ""));
    assert_eq!((&*class.handler, class.overhead.pod_fixed["memory"].whole()), ("kata", 64 << 20));
    refused(
        &text.replace("handler: kata", "scheduling: {}"),
        "got a RuntimeClass without a handler",
    );
}

#[test]
fn an_object_has_a_bound() {
    let text = |bytes: usize| {
        let value = "x".repeat(bytes - 1);
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{k: {value}}}\n")
    };
    assert_eq!(objects(&text(OBJECT_BYTES_MAX))[0].size_bytes(), OBJECT_BYTES_MAX);
    refused(&text(OBJECT_BYTES_MAX + 1), "got 1048577 bytes of data, expected at most 1048576");
}
