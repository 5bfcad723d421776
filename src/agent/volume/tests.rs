//! The result of each kind for a spec and objects.

use std::sync::Arc;

use super::*;
use crate::agent::event::Out;
use crate::agent::{Config, Machine};
#[cfg(feature = "volumes")]
use crate::limits::FILES_VOLUME_BYTES_MAX;
#[cfg(feature = "volumes")]
use crate::model::job::Files;
use crate::model::job::{HostPathKind, Medium};
use crate::model::object::{Bytes, ConfigMap, Object, Secret};

fn config() -> Config {
    Config {
        root: "/r".to_owned(),
        machine: Machine { memory_bytes: 1 << 30, cpu_milli: 2000, ..Machine::default() },
        ..Config::default()
    }
}

fn objects() -> Objects {
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = ("ns".to_owned(), "cm".to_owned());
    map.data.insert("a".to_owned(), "1".to_owned());
    map.binary_data.insert("b".to_owned(), Bytes([0xff, 0].into()));
    let mut secret = Secret::default();
    (secret.metadata.namespace, secret.metadata.name) = ("ns".to_owned(), "s".to_owned());
    secret.data.insert("k".to_owned(), Bytes(b"2".as_slice().into()));
    let mut objects = Objects::default();
    let all = [Arc::new(Object::ConfigMap(map)), Arc::new(Object::Secret(secret))];
    objects.take(all.into_iter(), &mut Out::default());
    objects
}

fn of(volume: &str, limit: &str) -> Result<Source, VolumeError> {
    let pod: Pod = serde_json::from_str(&format!(
        r#"{{"metadata": {{"namespace": "ns", "name": "p", "uid": "u",
                           "labels": {{"a": "1", "b": "x\"y"}}}},
             "spec": {{"volumes": [{volume}], "containers": [{{"name": "c", "image": "i",
                       "resources": {{"limits": {{{limit}}}}}}}]}}}}"#
    ))
    .expect(volume);
    let (objects, config) = (objects(), config());
    let memory_limit = crate::agent::pod::memory_limit(&pod.spec);
    let context = Context { pod: &pod, objects: &objects, config: &config, memory_limit };
    plan(&pod.spec.volumes[0], context).map(|(source, _)| source)
}

#[cfg(feature = "volumes")]
#[test]
fn files_that_may_be_secret_lie_in_memory_within_a_bound() {
    for (volume, bytes) in [
        (r#"{"name": "v", "secret": {"secretName": "s"}}"#, Some(FILES_VOLUME_BYTES_MAX)),
        (r#"{"name": "v", "downwardAPI": {"items": []}}"#, Some(FILES_VOLUME_BYTES_MAX)),
        (r#"{"name": "v", "projected": {"sources": []}}"#, Some(FILES_VOLUME_BYTES_MAX)),
        (r#"{"name": "v", "configMap": {"name": "cm"}}"#, None),
    ] {
        let Ok(Source::Files(Files { memory_bytes, .. })) = of(volume, "") else {
            panic!("{volume}")
        };
        assert_eq!(memory_bytes, bytes, "{volume}");
    }
}

/// `path mode content`, by file.
#[cfg(feature = "volumes")]
fn files(volume: &str) -> Result<Vec<String>, VolumeError> {
    let Source::Files(Files { files, .. }) = of(volume, "")? else { panic!("{volume}") };
    let line =
        |it: &crate::model::job::FileEntry| format!("{} {:o} {:?}", it.path, it.mode, it.content.0);
    Ok(files.iter().map(line).collect())
}

#[test]
fn memory_is_the_least_of_all_that_bounds_it() {
    for (volume, limit, bytes) in [
        (r#"{"name": "v", "emptyDir": {"medium": "Memory"}}"#, "", 1 << 30),
        (r#"{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}"#, "", 1 << 20),
        (r#"{"name": "v", "emptyDir": {"medium": "Memory"}}"#, r#""memory": "64Mi""#, 64 << 20),
        (
            r#"{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}"#,
            r#""memory": "3Gi""#,
            1 << 30,
        ),
    ] {
        let medium = Medium::Memory { size_bytes: bytes };
        assert_eq!(of(volume, limit), Ok(Source::EmptyDir(medium)), "{volume}");
    }
    assert_eq!(of(r#"{"name": "v"}"#, ""), Ok(Source::EmptyDir(Medium::Disk)));
    let limited = r#"{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}"#;
    assert_eq!(of(limited, ""), Ok(Source::EmptyDir(Medium::Disk)));
}

#[test]
fn what_is_looked_at_on_the_node_is_named_by_its_type() {
    let source = of(r#"{"name": "v", "hostPath": {"path": "/a", "type": "Socket"}}"#, "");
    let wanted = Source::HostPath { path: "/a".into(), kind: HostPathKind::Socket };
    assert_eq!(source, Ok(wanted));
}

#[cfg(feature = "volumes")]
#[test]
fn keys_become_files() {
    for (volume, wanted) in [
        (r#"{"name": "v", "configMap": {"name": "cm"}}"#, Ok(vec!["a 644 [49]", "b 644 [255, 0]"])),
        (
            r#"{"name": "v", "configMap": {"name": "cm", "defaultMode": 256, "items":
                [{"key": "a", "path": "x/y"}, {"key": "a", "path": "z", "mode": 511}]}}"#,
            Ok(vec!["x/y 400 [49]", "z 777 [49]"]),
        ),
        (
            r#"{"name": "v", "configMap": {"name": "cm", "items": [{"key": "c", "path": "c"}]}}"#,
            Err("configmap references non-existent config key: c"),
        ),
        (
            r#"{"name": "v", "configMap": {"name": "cm", "optional": true,
                "items": [{"key": "c", "path": "c"}, {"key": "a", "path": "a"}]}}"#,
            Ok(vec!["a 644 [49]"]),
        ),
        (r#"{"name": "v", "configMap": {"name": "no"}}"#, Err("configmap \"no\" not found")),
        (r#"{"name": "v", "configMap": {"name": "no", "optional": true}}"#, Ok(vec![])),
        (r#"{"name": "v", "secret": {"secretName": "s"}}"#, Ok(vec!["k 644 [50]"])),
        (r#"{"name": "v", "secret": {"secretName": "no"}}"#, Err("secret \"no\" not found")),
        (
            r#"{"name": "v", "secret": {"secretName": "s", "items": [{"key": "c", "path": "c"}]}}"#,
            Err("references non-existent secret key: c"),
        ),
    ] {
        let got = files(volume).map_err(|why| why.to_string());
        let got = got.as_deref().map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(got.map_err(String::as_str), wanted, "{volume}");
    }
}

#[cfg(feature = "volumes")]
#[test]
fn downward_api_fields_become_files() {
    for (volume, limit, wanted) in [
        ("fieldRef: metadata.name", "", Ok("p")),
        ("fieldRef: metadata.labels", "", Ok("a=\"1\"\nb=\"x\\\"y\"")),
        ("fieldRef: metadata.labels['b']", "", Ok("x\"y")),
        ("fieldRef: metadata.annotations['none']", "", Ok("")),
        ("fieldRef: status.podIP", "", Err("unsupported fieldPath: status.podIP")),
        ("limits.cpu", r#""cpu": "1500m""#, Ok("2")),
        ("limits.cpu", "", Ok("2")),
        ("requests.memory", r#""memory": "1Mi""#, Ok("1048576")),
        ("limits.gpu", "", Err("unsupported container resource : limits.gpu")),
    ] {
        let from = match volume.strip_prefix("fieldRef: ") {
            Some(path) => format!(r#""fieldRef": {{"fieldPath": "{path}"}}"#),
            None => {
                format!(r#""resourceFieldRef": {{"containerName": "c", "resource": "{volume}"}}"#)
            }
        };
        let source = format!(
            r#"{{"name": "v", "projected": {{"sources": [
                {{"configMap": {{"name": "cm", "items": [{{"key": "a", "path": "f"}}]}}}},
                {{"downwardAPI": {{"items": [{{"path": "f", {from}}}]}}}}]}}}}"#
        );
        let got = of(&source, limit).map(|source| {
            let Source::Files(Files { files, .. }) = source else { panic!("{volume}") };
            assert_eq!(files.len(), 2, "the writer lets the later win");
            String::from_utf8_lossy(&files[1].content.0).into_owned()
        });
        let got = got.map_err(|why| why.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), wanted, "{volume}");
    }
    let two = r#"{"name": "v", "projected": {"sources": [
        {"configMap": {"name": "no"}}, {"secret": {"name": "no"}}]}}"#;
    let why = "configmap \"no\" not found; secret \"no\" not found";
    assert_eq!(of(two, "").expect_err("both are missing").to_string(), why);
}

#[test]
fn places_for_other_volumes_are_found_inside_a_volume() {
    let spec = |mounts: &str| -> PodSpec {
        let json = format!(r#"{{"containers": [{{"name": "c", "volumeMounts": [{mounts}]}}]}}"#);
        serde_json::from_str(&json).expect(mounts)
    };
    let mounts = r#"{"name": "v", "mountPath": "/a/"}, {"name": "w", "mountPath": "/a/b/c"},
        {"name": "w", "mountPath": "/ab"}, {"name": "x", "mountPath": "/a/b/c"},
        {"name": "v", "mountPath": "/z", "subPath": "s"}, {"name": "w", "mountPath": "/z/y"}"#;
    let of = |mounts: &str, volume: &str| -> Vec<String> {
        let spec = spec(mounts);
        let nested = nested(&spec);
        nested.get(volume).into_iter().flatten().map(|&path| path.to_owned()).collect()
    };
    assert_eq!(of(mounts, "v"), ["b/c"]);
    assert_eq!(of(mounts, "w"), [""; 0]);
    let root = r#"{"name": "r", "mountPath": "/"}, {"name": "w", "mountPath": "/a/"}"#;
    assert_eq!(of(root, "r"), ["a"]);
    let many =
        (0..2 * NESTED_MOUNTS_MAX).map(|n| format!(r#"{{"name":"w","mountPath":"/v/{n}"}}"#));
    let many = format!(r#"{{"name":"v","mountPath":"/v"}},{}"#, many.collect::<Vec<_>>().join(","));
    assert_eq!(of(&many, "v").len(), NESTED_MOUNTS_MAX, "no more than fit into a message");
}
