//! Volumes of files: ConfigMaps and Secrets, separately and projected.

use std::time::Duration;

use crate::Entry;
use crate::case::{Case, SLEEP};
use crate::support::wait::always;

/// The kinds, as parameters of the cases.
const MAP: usize = 0;
const PROJECTED_MAP: usize = 1;
const SECRET: usize = 2;
const PROJECTED_SECRET: usize = 3;

const AREAS: [&str; 4] =
    ["ConfigMap volume", "Projected configMap", "Secrets volume", "Projected secret"];

const PLAIN: &str = "should be consumable from pods in volume";
const MODE: &str = "should be consumable from pods in volume with defaultMode set";
const NON_ROOT: &str = "should be consumable from pods in volume as non-root";
const NON_ROOT_GROUP: &str =
    "should be consumable from pods in volume as non-root with defaultMode and fsGroup set";
const MAPPED: &str = "should be consumable from pods in volume with mappings";
const MAPPED_MODE: &str =
    "should be consumable from pods in volume with mappings and Item mode set";
const MAPPED_SECRET_MODE: &str =
    "should be consumable from pods in volume with mappings and Item Mode set";
const MAPPED_NON_ROOT: &str = "should be consumable from pods in volume with mappings as non-root";
const UPDATES: &str = "updates should be reflected in volume";
const OPTIONAL: &str = "optional updates should be reflected in volume";
const SEVERAL: &str = "should be consumable in multiple volumes in the same pod";
const SEVERAL_SECRET: &str = "should be consumable in multiple volumes in a pod";
const NON_ROOT_ONLY_GROUP: &str =
    "should be consumable from pods in volume as non-root with FSGroup";
const MAPPED_NON_ROOT_GROUP: &str =
    "should be consumable from pods in volume with mappings as non-root with FSGroup";
const NO_MAP: &str = "Should fail non-optional pod creation due to configMap object does not exist";
const NO_MAP_KEY: &str =
    "Should fail non-optional pod creation due to the key in the configMap object does not exist";
const NO_SECRET: &str = "Should fail non-optional pod creation due to secret object does not exist";
const NO_SECRET_KEY: &str =
    "Should fail non-optional pod creation due to the key in the secret object does not exist";
const OTHER_NAMESPACE: &str = "should be able to mount in a volume regardless of a different \
                               secret existing with same name in different namespace";

pub(crate) const ROWS: &[Entry] = &[
    (AREAS[MAP], PLAIN, plain::<MAP>),
    (AREAS[MAP], MODE, default_mode::<MAP>),
    (AREAS[MAP], NON_ROOT, non_root::<MAP>),
    (AREAS[MAP], MAPPED, mapped::<MAP>),
    (AREAS[MAP], MAPPED_MODE, mapped_mode::<MAP>),
    (AREAS[MAP], MAPPED_NON_ROOT, mapped_non_root::<MAP>),
    (AREAS[MAP], UPDATES, updates::<MAP>),
    (AREAS[MAP], "binary data should be reflected in volume", binary),
    (AREAS[MAP], OPTIONAL, optional::<MAP>),
    (AREAS[MAP], SEVERAL, several::<MAP>),
    (AREAS[MAP], NON_ROOT_GROUP, group_mode::<MAP>),
    (AREAS[MAP], NON_ROOT_ONLY_GROUP, only_group::<MAP>),
    (AREAS[MAP], MAPPED_NON_ROOT_GROUP, mapped_group::<MAP>),
    (AREAS[PROJECTED_MAP], NON_ROOT_GROUP, group_mode::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], NON_ROOT_ONLY_GROUP, only_group::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], MAPPED_NON_ROOT_GROUP, mapped_group::<PROJECTED_MAP>),
    (AREAS[SECRET], PLAIN, plain::<SECRET>),
    (AREAS[SECRET], MODE, default_mode::<SECRET>),
    (AREAS[SECRET], NON_ROOT_GROUP, group::<SECRET>),
    (AREAS[SECRET], MAPPED, mapped::<SECRET>),
    (AREAS[SECRET], MAPPED_SECRET_MODE, mapped_mode::<SECRET>),
    (AREAS[SECRET], OTHER_NAMESPACE, other_namespace::<SECRET>),
    (AREAS[SECRET], SEVERAL_SECRET, several::<SECRET>),
    (AREAS[SECRET], OPTIONAL, optional::<SECRET>),
    (AREAS[PROJECTED_MAP], PLAIN, plain::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], MODE, default_mode::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], NON_ROOT, non_root::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], MAPPED, mapped::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], MAPPED_MODE, mapped_mode::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], MAPPED_NON_ROOT, mapped_non_root::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], UPDATES, updates::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], OPTIONAL, optional::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], SEVERAL, several::<PROJECTED_MAP>),
    (AREAS[PROJECTED_SECRET], PLAIN, plain::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], MODE, default_mode::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], NON_ROOT_GROUP, group::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], MAPPED, mapped::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], MAPPED_SECRET_MODE, mapped_mode::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], OTHER_NAMESPACE, other_namespace::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], SEVERAL_SECRET, several::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], OPTIONAL, optional::<PROJECTED_SECRET>),
];

/// Pods that wait for minutes for an object that never comes.
pub(crate) const WATCHES: &[Entry] = &[
    (AREAS[MAP], NO_MAP, no_object::<MAP>),
    (AREAS[MAP], NO_MAP_KEY, no_key::<MAP>),
    (AREAS[PROJECTED_MAP], NO_MAP, no_object::<PROJECTED_MAP>),
    (AREAS[PROJECTED_MAP], NO_MAP_KEY, no_key::<PROJECTED_MAP>),
    (AREAS[SECRET], NO_SECRET, no_object::<SECRET>),
    (AREAS[SECRET], NO_SECRET_KEY, no_key::<SECRET>),
    (AREAS[PROJECTED_SECRET], NO_SECRET, no_object::<PROJECTED_SECRET>),
    (AREAS[PROJECTED_SECRET], NO_SECRET_KEY, no_key::<PROJECTED_SECRET>),
];

fn is_secret(kind: usize) -> bool {
    matches!(kind, SECRET | PROJECTED_SECRET)
}

/// An object `<case>-<what>` with these texts, as a manifest.
fn object(kind: usize, case: &Case<'_>, what: &str, namespace: &str, data: &str) -> String {
    let (name, field) =
        if is_secret(kind) { ("Secret", "stringData") } else { ("ConfigMap", "data") };
    format!(
        "apiVersion: v1\nkind: {name}\nmetadata: {{name: {}-{what}, namespace: {namespace}}}\n\
         {field}: {data}\n",
        case.name
    )
}

/// A volume with the object `<case>-<what>`; `mode` and `extra` begin with a comma.
fn volume(kind: usize, case: &Case<'_>, what: &str, mode: &str, extra: &str) -> String {
    let name = format!("{}-{what}", case.name);
    let source = match kind {
        MAP => format!("configMap: {{name: {name}{mode}{extra}}}"),
        SECRET => format!("secret: {{secretName: {name}{mode}{extra}}}"),
        PROJECTED_MAP => {
            format!("projected: {{sources: [{{configMap: {{name: {name}{extra}}}}}]{mode}}}")
        }
        _ => format!("projected: {{sources: [{{secret: {{name: {name}{extra}}}}}]{mode}}}"),
    };
    format!("{{name: {what}, {source}}}")
}

const DATA: &str = "{data-1: value-1, data-2: value-2, data-3: value-3}";
const ITEM: &str = ", items: [{key: data-2, path: path/to/data-2}]";
const ITEM_MODE: &str = ", items: [{key: data-2, path: path/to/data-2, mode: 0400}]";

/// The content of a file below `/v` in a pod with one volume.
fn observe(
    kind: usize,
    case: &Case<'_>,
    (mode, extra): (&str, &str),
    security: &str,
    file: &str,
) -> Vec<String> {
    case.put("object", &object(kind, case, "v", "default", DATA));
    let spec = format!("  volumes: [{}]\n{security}", volume(kind, case, "v", mode, extra));
    let main = "    volumeMounts: [{name: v, mountPath: /v}]\n";
    let script = format!("stat -L -c %a /v/{file}; cat /v/{file}; echo; touch /v/new 2>&1");
    let pod = case.run_script(&spec, main, &script);
    let output = case.output(&pod);
    assert!(output[2].contains("Read-only file system"), "{output:?}");
    output[..2].to_vec()
}

const USER: &str = "  securityContext: {runAsUser: 1000}\n";

fn plain<const KIND: usize>(case: &Case<'_>) {
    assert_eq!(observe(KIND, case, ("", ""), "", "data-1"), ["644", "value-1"]);
}

fn default_mode<const KIND: usize>(case: &Case<'_>) {
    let mode = (", defaultMode: 0400", "");
    assert_eq!(observe(KIND, case, mode, "", "data-1"), ["400", "value-1"]);
}

fn non_root<const KIND: usize>(case: &Case<'_>) {
    assert_eq!(observe(KIND, case, ("", ""), USER, "data-1"), ["644", "value-1"]);
}

fn group<const KIND: usize>(case: &Case<'_>) {
    let mode = (", defaultMode: 0440", "");
    let security = "  securityContext: {runAsUser: 1000, fsGroup: 1001}\n";
    assert_eq!(observe(KIND, case, mode, security, "data-1"), ["440", "value-1"]);
}

const GROUP: &str = "  securityContext: {runAsUser: 1000, fsGroup: 1001}\n";

/// The mode as seen by a user of the volume's group.
fn group_mode<const KIND: usize>(case: &Case<'_>) {
    let mode = (", defaultMode: 0440", "");
    assert_eq!(observe(KIND, case, mode, GROUP, "data-1"), ["440", "value-1"]);
}

fn only_group<const KIND: usize>(case: &Case<'_>) {
    assert_eq!(observe(KIND, case, ("", ""), GROUP, "data-1")[1], "value-1");
}

fn mapped_group<const KIND: usize>(case: &Case<'_>) {
    assert_eq!(observe(KIND, case, ("", ITEM), GROUP, "path/to/data-2")[1], "value-2");
}

/// Nearly as long as upstream, which observes for five minutes: as long as it observes a container
/// that must not restart.
const PENDING: Duration = Duration::from_secs(240);

fn stays_pending(kind: usize, case: &Case<'_>, extra: &str) {
    let spec = format!("  volumes: [{}]\n", volume(kind, case, "v", "", extra));
    case.put_pod(&spec, &format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n"));
    always(PENDING, "it stays pending", || {
        let pod = case.pod();
        std::thread::sleep(Duration::from_secs(1));
        if pod.phase() == "Pending" { Ok(()) } else { Err(pod.0["status"].to_string()) }
    });
}

fn no_object<const KIND: usize>(case: &Case<'_>) {
    stays_pending(KIND, case, ", optional: false");
}

fn no_key<const KIND: usize>(case: &Case<'_>) {
    case.put("object", &object(KIND, case, "v", "default", DATA));
    stays_pending(KIND, case, ", items: [{key: data-9, path: f}], optional: false");
}

fn mapped<const KIND: usize>(case: &Case<'_>) {
    let output = observe(KIND, case, ("", ITEM), "", "path/to/data-2");
    assert_eq!(output, ["644", "value-2"]);
}

fn mapped_mode<const KIND: usize>(case: &Case<'_>) {
    let output = observe(KIND, case, ("", ITEM_MODE), "", "path/to/data-2");
    assert_eq!(output, ["400", "value-2"]);
}

fn mapped_non_root<const KIND: usize>(case: &Case<'_>) {
    let output = observe(KIND, case, ("", ITEM), USER, "path/to/data-2");
    assert_eq!(output, ["644", "value-2"]);
}

/// Waits for the output of a command in the running container.
fn wait_seen(case: &Case<'_>, script: &str, what: &str) {
    let pod = case.pod();
    crate::support::wait::until(&format!("`{script}` prints {what}"), || {
        let (_, output, errors) = case.exec(&pod, "main", &["sh", "-c", script]);
        if output.trim() == what { Ok(()) } else { Err(format!("{output}{errors}")) }
    });
}

fn updates<const KIND: usize>(case: &Case<'_>) {
    case.put("object", &object(KIND, case, "v", "default", "{data-1: value-1}"));
    let spec = format!("  volumes: [{}]\n", volume(KIND, case, "v", "", ""));
    case.run(&spec, &format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n"));
    wait_seen(case, "cat /v/data-1", "value-1");
    case.put("object", &object(KIND, case, "v", "default", "{data-1: value-2}"));
    wait_seen(case, "cat /v/data-1", "value-2");
}

fn binary(case: &Case<'_>) {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME-v}\n\
                data: {data-1: value-1}\nbinaryData: {dump.bin: 3q3QDwH/AA==}\n";
    case.put("object", &text.replace("NAME", &case.name));
    let spec = format!("  volumes: [{}]\n", volume(MAP, case, "v", "", ""));
    let main = "    volumeMounts: [{name: v, mountPath: /v}]\n";
    let script = "cat /v/data-1; echo; hexdump -v -e '1/1 \"%02x\"' /v/dump.bin; echo";
    assert_eq!(case.output_of(&spec, main, script), ["value-1", "deadd00f01ff00"]);
}

/// One object is removed, one changes and one is added.
fn optional<const KIND: usize>(case: &Case<'_>) {
    case.put("del", &object(KIND, case, "del", "default", "{data-1: value-1}"));
    case.put("upd", &object(KIND, case, "upd", "default", "{data-1: value-1}"));
    let volumes =
        ["del", "upd", "new"].map(|what| volume(KIND, case, what, "", ", optional: true"));
    let mounts = ["del", "upd", "new"].map(|what| format!("{{name: {what}, mountPath: /{what}}}"));
    let spec = format!("  volumes: [{}]\n", volumes.join(", "));
    case.run(&spec, &format!("{SLEEP}    volumeMounts: [{}]\n", mounts.join(", ")));
    wait_seen(case, "cat /del/data-1 /upd/data-1; ls /new", "value-1value-1");
    case.take("del");
    case.put("upd", &object(KIND, case, "upd", "default", "{data-3: value-3}"));
    case.put("new", &object(KIND, case, "new", "default", "{data-1: value-1}"));
    wait_seen(case, "ls /del; cat /upd/data-3 /new/data-1; ls /upd", "value-3value-1data-3");
}

fn several<const KIND: usize>(case: &Case<'_>) {
    case.put("object", &object(KIND, case, "v", "default", DATA));
    let one = volume(KIND, case, "v", "", "");
    let two = one.replace("{name: v, ", "{name: w, ");
    let spec = format!("  volumes: [{one}, {two}]\n");
    let main = "    volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]\n";
    let script = "cat /v/data-1; echo; cat /w/data-1; echo";
    assert_eq!(case.output_of(&spec, main, script), ["value-1", "value-1"]);
}

fn other_namespace<const KIND: usize>(case: &Case<'_>) {
    case.put("other", &object(KIND, case, "v", "elsewhere", "{data-1: not-this}"));
    assert_eq!(observe(KIND, case, ("", ""), "", "data-1"), ["644", "value-1"]);
}
