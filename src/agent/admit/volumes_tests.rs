//! Decision tables: errors of invalid volumes, and of kinds that are not built in.

use crate::agent::admit::review;
use crate::agent::admit::tests::pod;

fn with(volumes: &str, mounts: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "a"}},
             "spec": {{"volumes": [{volumes}], "containers":
                       [{{"name": "c", "image": "i", "volumeMounts": [{mounts}]}}]}}}}"#
    )
}

fn refused(volumes: &str, mounts: &str) -> (&'static str, String) {
    let refused = review(&pod(&with(volumes, mounts))).refused;
    refused.map_or(("", String::new()), |refused| (refused.reason, refused.message))
}

#[test]
fn volumes_that_cannot_be_are_named_in_kubernetes_words() {
    for (volume, want) in [
        (r#"{"name": "v"}"#, ""),
        (r#"{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}"#, ""),
        (r#"{"name": "v", "emptyDir": null}"#, ""),
        (r#"{"emptyDir": {}}"#, "spec.volumes[0].name: Required value"),
        (r#"{"name": "V"}"#, "spec.volumes[0].name: Invalid value: \"V\": a lowercase RFC 1123"),
        (r#"{"name": "../v"}"#, "spec.volumes[0].name: Invalid value: \"../v\""),
        (r#"{"name": "v"}, {"name": "v"}"#, "spec.volumes[1].name: Duplicate value: \"v\""),
        (
            r#"{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}"#,
            "spec.volumes[0]: Forbidden: may not specify more than 1 volume type",
        ),
        (
            r#"{"name": "v", "emptyDir": {"sizeLimit": "-1"}}"#,
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be greater than or",
        ),
        (r#"{"name": "v", "hostPath": {"path": "/a", "type": "Socket"}}"#, ""),
        (r#"{"name": "v", "hostPath": {}}"#, "spec.volumes[0].hostPath.path: Required value"),
        (
            r#"{"name": "v", "hostPath": {"path": "/a/../b"}}"#,
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            r#"{"name": "v", "hostPath": {"path": "/a", "type": "Dir"}}"#,
            "spec.volumes[0].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", ",
        ),
    ] {
        let (reason, message) = refused(volume, r#"{"name": "v", "mountPath": "/v"}"#);
        let message = message.split("; ").next().unwrap_or_default();
        if want.is_empty() {
            assert_eq!((reason, message), ("", ""), "{volume}");
        } else {
            assert!(message.starts_with(want), "{volume}\ngot  {message}\nwant {want}");
            assert_eq!(reason, "FailedValidation");
        }
    }
}

#[test]
fn mounts_that_cannot_be_are_named_in_kubernetes_words() {
    let at = "spec.containers[0].volumeMounts[0]";
    for (mount, want) in [
        (r#"{"name": "v", "mountPath": "relative", "subPath": "a/b"}"#, String::new()),
        (
            r#"{"name": "v", "mountPath": "/v", "mountPropagation": "HostToContainer"}"#,
            String::new(),
        ),
        (r#"{"mountPath": "/v"}"#, format!("{at}.name: Required value")),
        (r#"{"name": "w", "mountPath": "/v"}"#, format!("{at}.name: Not found: \"w\"")),
        (r#"{"name": "v"}"#, format!("{at}.mountPath: Required value")),
        (
            r#"{"name": "v", "mountPath": "/a:b"}"#,
            format!("{at}.mountPath: Invalid value: \"/a:b\": must not contain ':'"),
        ),
        (
            r#"{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}"#,
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique"
                .to_owned(),
        ),
        (
            r#"{"name": "v", "mountPath": "/v", "subPath": "/a"}"#,
            format!("{at}.subPath: Invalid value: \"/a\": must be a relative path"),
        ),
        (
            r#"{"name": "v", "mountPath": "/v", "subPath": "a/../../b"}"#,
            format!("{at}.subPath: Invalid value: \"a/../../b\": must not contain '..'"),
        ),
        (
            r#"{"name": "v", "mountPath": "/v", "subPath": "a", "subPathExpr": "b"}"#,
            format!("{at}.subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually"),
        ),
        (
            r#"{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}"#,
            format!("{at}.mountPropagation: Forbidden: Bidirectional mount propagation is"),
        ),
        (
            r#"{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}"#,
            format!("{at}.recursiveReadOnly: Forbidden: may only be specified when readOnly is"),
        ),
    ] {
        let (_, message) = refused(r#"{"name": "v"}"#, mount);
        let first = message.split("; ").next().unwrap_or_default();
        assert!(first.starts_with(&want), "{mount}\ngot  {first}\nwant {want}");
        assert_eq!(first.is_empty(), want.is_empty(), "{mount}: {first}");
    }
}

#[cfg(feature = "volumes")]
#[test]
fn files_out_of_objects_are_named_in_kubernetes_words() {
    for (volume, want) in [
        (
            r#"{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "a/b"}]}}"#,
            "",
        ),
        (r#"{"name": "v", "configMap": {}}"#, "configMap.name: Required value"),
        (r#"{"name": "v", "secret": {}}"#, "secret.secretName: Required value"),
        (
            r#"{"name": "v", "secret": {"secretName": "s", "defaultMode": 512}}"#,
            "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal)",
        ),
        (
            r#"{"name": "v", "secret": {"secretName": "s", "items": [{"path": "p"}]}}"#,
            "secret.items[0].key: Required value",
        ),
        (
            r#"{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "/p"}]}}"#,
            "configMap.items[0].path: Invalid value: \"/p\": must be a relative path",
        ),
        (
            r#"{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "..p"}]}}"#,
            "configMap.items[0].path: Invalid value: \"..p\": must not start with '..'",
        ),
        (
            r#"{"name": "v", "configMap":
                {"name": "c", "items": [{"key": "k", "path": "a/../p"}]}}"#,
            "configMap.items[0].path: Invalid value: \"a/../p\": must not contain '..'",
        ),
    ] {
        let (_, message) = refused(volume, "");
        let want = if want.is_empty() { String::new() } else { format!("spec.volumes[0].{want}") };
        assert!(message.starts_with(&want), "{volume}\ngot  {message}\nwant {want}");
        assert_eq!(message.is_empty(), want.is_empty(), "{volume}: {message}");
    }
}

#[cfg(feature = "volumes")]
#[test]
fn kinds_that_are_not_built_in_are_refused_by_name() {
    for (volume, want) in [
        (r#"{"name": "v", "iscsi": {"lun": 0}}"#, "spec.volumes[0].iscsi"),
        (
            r#"{"name": "v", "projected": {"sources":
                [{"serviceAccountToken": {"path": "token"}}]}}"#,
            "spec.volumes[0].projected.sources[0].serviceAccountToken",
        ),
        (r#"{"name": "v", "newerThanThis": {}}"#, "spec.volumes[0].newerThanThis"),
        (
            r#"{"name": "v", "emptyDir": {"medium": "HugePages"}}"#,
            "spec.volumes[0].emptyDir.medium (got \"HugePages\", expected \"\" or Memory)",
        ),
    ] {
        let (reason, message) = refused(volume, "");
        assert_eq!(reason, "UnsupportedVolumeType", "{volume}: {message}");
        assert_eq!(message, format!("not built into this edged: {want}"));
    }
}

#[test]
fn fields_that_nobody_knows_are_named() {
    let volumes = r#"{"name": "v", "hostPath": {"path": "/a", "kind": "x"}}"#;
    let mounts = r#"{"name": "v", "mountPath": "/v", "readonly": true}"#;
    let review = review(&pod(&with(volumes, mounts)));
    assert_eq!(review.refused, None);
    assert_eq!(
        review.unknown,
        ["spec.volumes[0].hostPath.kind", "spec.containers[0].volumeMounts[0].readonly"]
    );
}
