//! Manifest files of users, valid and invalid.

use std::fmt::Write as _;

use edged::limits::{
    MANIFEST_BYTES_MAX, MANIFEST_COPIED_BYTES_MAX, MANIFEST_DEPTH_MAX, MANIFEST_NODES_MAX,
    MANIFEST_OBJECTS_MAX, MANIFEST_PODS_MAX, OBJECT_JSON_BYTES_MAX, POD_VALUES_MAX,
};
use edged::model::error::Refusal;
use edged::model::pod::{Pod, PortProtocol, RestartPolicy};
use edged::model::status::PodStatus;
use edged::wire::manifest::parse;

const WEB: &str = r#"# The shop's front.
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web, tier: "1", empty:}
  annotations:
    note: >-
      two
      lines
  creationTimestamp: null
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  hostNetwork: yes
  initContainers: null
  containers:
  - name: web
    image: nginx:1.25
    args: ["-g", 'daemon off;', "5"]
    env:
    - {name: A, value: "1"}
    - name: B
    ports:
    - containerPort: 80
      hostPort: 0x50
    - {containerPort: 53, protocol: UDP}
    resources:
      limits: {cpu: 1, memory: 64Mi}
      requests: {cpu: 500m}
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    emptyDir: {}
  tolerations: [{operator: Exists}]
status: {}
"#;

fn one(text: &str) -> Pod {
    let mut pods = parse(text.as_bytes()).expect(text).pods;
    assert_eq!(pods.len(), 1, "{text}");
    pods.remove(0)
}

fn refusal(text: &str) -> Refusal {
    parse(text.as_bytes()).expect_err(text)
}

/// A pod with this container, whose first key is in line 6, column 5.
fn with_container(container: &str) -> String {
    let body = container.replace('\n', "\n    ");
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - {body}\n")
}

#[test]
fn a_pod_is_read_with_all_it_says() {
    let pod = one(WEB);
    assert_eq!(pod.metadata.name, "web");
    assert_eq!(pod.metadata.labels["tier"], "1");
    assert_eq!(pod.metadata.labels["empty"], "");
    assert_eq!(pod.metadata.annotations["note"], "two lines");
    assert_eq!(pod.metadata.creation_timestamp, None);
    assert_eq!(pod.spec.restart_policy, RestartPolicy::OnFailure);
    assert_eq!(pod.spec.termination_grace_period_seconds, Some(5));
    assert!(pod.spec.host_network);
    assert!(pod.spec.init_containers.is_empty());
    let web = &pod.spec.containers[0];
    assert_eq!(web.args, ["-g", "daemon off;", "5"]);
    assert_eq!(web.env[1].value, "");
    assert_eq!((web.ports[0].container_port, web.ports[0].host_port), (80, 80));
    assert_eq!(web.ports[1].protocol, PortProtocol::Udp);
    assert_eq!(web.resources.limits["cpu"].milli(), 1000);
    assert_eq!(web.resources.requests["cpu"].to_string(), "500m");
    assert_eq!(web.volume_mounts[0].mount_path, "/data");
    assert_eq!(&*pod.spec.volumes[0].name, "data");
    assert_eq!(pod.spec.rest["tolerations"][0]["operator"], "Exists");
}

#[test]
fn json_says_the_same_as_yaml() {
    let mut pod = one(WEB);
    pod.status = PodStatus::default();
    let mut json = serde_json::to_value(&pod).expect("serialises");
    json["apiVersion"] = "v1".into();
    json["kind"] = "Pod".into();
    assert_eq!(one(&json.to_string()), pod);
    assert_eq!(one(&format!("\u{feff}\n {json:#}\n")), pod);
}

#[test]
fn documents_and_lists_are_unfolded_in_order() {
    let pod = |name: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n");
    let names = |text: &str| -> Vec<String> {
        let pods = parse(text.as_bytes()).expect(text).pods;
        pods.into_iter().map(|pod| pod.metadata.name).collect()
    };
    let text = format!("---\n{}---\n# nothing\n---\n{}...\n", pod("a"), pod("b"));
    assert_eq!(names(&text), ["a", "b"]);
    let list =
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: c}}\n";
    assert_eq!(names(&format!("{list}---\n{}", pod("d"))), ["c", "d"]);
    let list =
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"e"}}]}"#;
    assert_eq!(names(list), ["e"]);
    for empty in
        ["# switched off\n", "---\n---\n", r#"{"kind":"PodList","apiVersion":"v1","items":null}"#]
    {
        assert_eq!(names(empty), [""; 0]);
    }
}

#[test]
fn anchors_and_merge_keys_are_resolved_within_a_document() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: &l {app: a, tier: b}}\n\
                spec:\n  nodeSelector: *l\n  containers:\n  - &base {name: one, image: i, \
                stdin: true}\n  - {<<: *base, name: two}\n";
    let pod = one(text);
    assert_eq!(pod.spec.rest["nodeSelector"]["tier"], "b");
    assert_eq!(&*pod.spec.containers[1].name, "two");
    assert!(pod.spec.containers[1].stdin);
    assert_eq!(&*pod.spec.containers[1].image, "i");
    let across = format!("{text}---\n{}", text.replace("&l {app: a, tier: b}", "*l"));
    assert!(refusal(&across).why.contains("alias"), "{}", refusal(&across));
}

#[test]
fn wrong_values_are_named_with_path_and_place() {
    for (container, line, column, why) in [
        (
            "name: web\nports:\n- containerPort: http",
            8,
            22,
            "spec.containers[0].ports[0].containerPort: got \"http\", expected a whole number from \
             0 to 65535",
        ),
        ("name: web\nports: [{containerPort: 65536}]", 7, 29, "got 65536, expected a whole number"),
        (
            "name: web\nargs:\n- 5",
            8,
            7,
            "spec.containers[0].args[0]: got 5, expected text (in quotes if it looks like a number \
             or a boolean)",
        ),
        ("name: web\nenv: [{name: A, value: yes}]", 7, 28, "env[0].value: got true, expected text"),
        ("name: web\nenv: {A: b}", 7, 10, "spec.containers[0].env: got a map, expected a list"),
        ("- web", 6, 5, "spec.containers[0]: got a list, expected a map"),
        (
            "name: web\nresources: {limits: {memory: 1Mb}}",
            7,
            34,
            "spec.containers[0].resources.limits.memory: got \"1Mb\", expected a quantity",
        ),
        (
            "name: web\nimagePullPolicy: Sometimes",
            7,
            22,
            "got \"Sometimes\", expected one of Always, IfNotPresent, Never",
        ),
        ("name: web\nimage: a\nname: b", 8, 5, "got the key \"name\" twice, expected it once"),
        ("name: web\ntty: 1", 7, 10, "spec.containers[0].tty: got 1, expected true or false"),
    ] {
        let text = with_container(container);
        let got = refusal(&text);
        assert!(got.why.contains(why), "{text}\n{got}\n{why}");
        assert_eq!((got.line, got.column), (line, column), "{text}\n{got}");
    }
}

#[test]
fn wrong_values_in_json_are_named_with_path_and_line() {
    let text = r#"{"apiVersion": "v1",
      "kind": "List",
      "items": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Pod",
         "spec": {
           "containers": [{"name": 5}]}}]}"#;
    let got = refusal(text);
    assert_eq!(got.line, 7, "{got}");
    assert!(got.why.starts_with("items[1].spec.containers[0].name: got 5, expected text"), "{got}");
    let got = refusal("{\"apiVersion\": \"v1\",\n\"kind\": \"Pod\",\n\"kind\": \"Pod\"}");
    assert_eq!(got.line, 3, "{got}");
    assert!(got.why.contains("twice"), "{got}");
    let got = refusal("{\"apiVersion\": \"v1\",\n}");
    assert_eq!(got.to_string(), ":2:1: trailing comma");
}

#[test]
fn what_is_no_pod_is_named() {
    for (text, want) in [
        (
            "apiVersion: v1\nkind: Node\n",
            ":2:7: kind: got kind Node (v1), expected Pod, ConfigMap, Secret, PersistentVo",
        ),
        ("kind: Pod\napiVersion: v2\n", "kind: got kind Pod (v2), expected"),
        ("kind: Pod\n", ":1:1: got no apiVersion, expected apiVersion: v1"),
        ("apiVersion: v1\n", ":1:1: got no kind, expected kind: Pod"),
        ("hello\n", ":1:1: got \"hello\", expected a Pod"),
        ("- kind: Pod\n", ":1:1: got a list, expected a Pod"),
        ("apiVersion: v1\nkind: [Pod]\n", ":2:7: kind: got a list, expected Pod"),
        (
            "apiVersion: v1\nkind: Pod\nsepc: {}\n",
            ":3:1: sepc: got an unknown field, expected metadata, spec or status",
        ),
        ("apiVersion: v1\nkind: List\nitems: 3\n", ":3:8: items: got 3, expected a list"),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node}]\n",
            "items[0].kind: got kind Node (v1)",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}]\n",
            "items[0]: got a list in a list",
        ),
        ("", ": got an empty file, expected a Pod"),
        (" \n\n", ": got an empty file, expected a Pod"),
        ("a: b\n  c: d\n", ":2:"),
        ("a: [1, 2\n", ":2:1: "),
        ("a: *b\n", "unknown anchor"),
        ("a: &b [*b]\n", "got an alias of what is not complete"),
        ("a: !foo b\n", "got the tag !foo, expected none"),
        ("? [a]\n: b\n", "got a list as a key, expected text"),
        ("~: b\n", "got null as a key, expected text"),
        ("<<: 5\n", "got 5 for <<, expected a map"),
        ("a: b\0c", ":1:5: got the control character 0x00"),
    ] {
        let got = refusal(text).to_string();
        assert!(got.contains(want), "{text:?}\n{got}\n{want}");
    }
    let got = parse(b"a: b\nc: \xff").expect_err("no UTF-8");
    assert_eq!(got.to_string(), ":2:4: got the byte 0xff, expected UTF-8");
}

#[test]
fn texts_that_stand_for_too_much_are_refused() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, two) in ('a'..='y').zip('b'..='z') {
        let ten = vec![format!("*{one}"); 10].join(", ");
        writeln!(laughs, "{two}: &{two} [{ten}]").expect("writes to memory");
    }
    let text_laughs =
        format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 64].join(", "));
    let deep_alias = format!("a: &a {}1{}\nb: {0}*a{1}\n", "[".repeat(40), "]".repeat(40));
    for (text, want) in [
        (laughs, "got "),
        (text_laughs, "aliases that stand for too much"),
        (deep_alias, "nested deeper"),
        ("[".repeat(1000), "nested deeper"),
        ("{\"a\":".repeat(1000), "nested deeper"),
        ("- ".repeat(100_000), "nested deeper"),
        ("- {b: ".to_owned() + &"{b: ".repeat(100), "nested deeper"),
        ("? ".repeat(100), "nested deeper"),
        ("a: [b: [".repeat(100), "nested deeper"),
        ("- a\n".repeat(1 << 19), "values, expected fewer"),
        (format!("[{}0]", "0,".repeat(1 << 19)), "values, expected fewer"),
        (" ".repeat(MANIFEST_BYTES_MAX) + "a", "bytes, expected at most"),
        ("---\napiVersion: v1\nkind: Pod\n".repeat(MANIFEST_PODS_MAX + 1), "pods, expected fewer"),
    ] {
        let got = refusal(&text).to_string();
        assert!(got.contains(want), "{}…\n{got}\n{want}", &text[..40]);
    }
    let deepest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {}1{}\n",
        "{a: ".repeat(MANIFEST_DEPTH_MAX - 2),
        "}".repeat(MANIFEST_DEPTH_MAX - 2)
    );
    assert!(parse(deepest.as_bytes()).is_ok(), "{deepest}");
}

#[test]
fn values_are_counted_with_the_list_that_holds_them() {
    let most = format!("got more than {MANIFEST_NODES_MAX} values, expected fewer");
    let why = |text: &str| refusal(text).to_string();
    // The list counts as well.
    for (list, beyond) in [(MANIFEST_NODES_MAX - 1, false), (MANIFEST_NODES_MAX, true)] {
        let json = format!("[{}0]", "0,".repeat(list - 1));
        assert_eq!(why(&json).ends_with(&most), beyond, "{}", why(&json));
        let yaml = "- 0\n".repeat(list);
        assert_eq!(why(&yaml).ends_with(&most), beyond, "{}", why(&yaml));
    }
}

#[test]
fn aliases_may_stand_for_as_many_bytes_as_are_copied_for_them() {
    // The kept value of an anchor is a copy, too: with three aliases there are four.
    let why = |text_bytes: usize| {
        let text = "x".repeat(text_bytes);
        refusal(&format!("a: &a {text}\nb: [*a, *a, *a]\n")).to_string()
    };
    let quarter = MANIFEST_COPIED_BYTES_MAX / 4;
    let within = why(quarter - 1_024);
    assert!(within.contains("got no kind"), "room for the values themselves: {within}");
    let beyond = why(quarter);
    assert!(beyond.contains("aliases that stand for too much"), "{beyond}");
}

#[test]
fn a_file_has_a_bound_of_objects() {
    let maps =
        |count: usize| "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".repeat(count);
    let most = parse(maps(MANIFEST_OBJECTS_MAX).as_bytes()).expect("as many as may be");
    assert_eq!(most.objects.len(), MANIFEST_OBJECTS_MAX);
    let got = refusal(&maps(MANIFEST_OBJECTS_MAX + 1)).to_string();
    let why = format!("got more than {MANIFEST_OBJECTS_MAX} objects, expected fewer");
    assert!(got.contains(&why), "{got}");
}

#[test]
fn a_pod_has_a_bound_of_values_and_an_object_one_of_bytes() {
    let pod = |args: usize| {
        let args = "a,".repeat(args);
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n\
             spec: {{containers: [{{name: m, image: i, args: [{args}]}}]}}\n"
        )
    };
    // The pod, its four fields, the name, the list, the container, its three fields.
    let others = 11;
    parse(pod(POD_VALUES_MAX - others).as_bytes()).expect("as many as may be");
    let got = refusal(&pod(POD_VALUES_MAX - others + 1)).to_string();
    assert!(got.contains("got a pod of 8193 values, expected at most 8192"), "{got}");
    let long = "x".repeat(OBJECT_JSON_BYTES_MAX);
    for (kind, field) in [("Pod", "spec"), ("PersistentVolume", "spec")] {
        let text = format!(
            "apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n{field}: {{a: {long}}}\n"
        );
        let got = refusal(&text).to_string();
        assert!(got.contains("bytes as JSON, expected at most 1572864"), "{kind}: {got}");
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % end
    }
}

/// Pieces for random manifests.
const PIECES: [&[u8]; 36] = [
    b"-",
    b":",
    b"?",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b"#",
    b"&a",
    b"*a",
    b"!",
    b"!!",
    b"|",
    b">",
    b"'",
    b"\"",
    b"%",
    b"@",
    b"`",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"  ",
    b"---",
    b"...",
    b"\\",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
    b"<<",
    b"\\u",
    b"0",
    b"~",
    b"\n\n  ",
    b"\xff",
];

/// The rarer half of YAML.
const HARD: &str = r#"%YAML 1.2
%TAG ! tag:x,2000:
--- !!map
? &k a
: |+2
   text

'b': "\u00e9\
 x"
[]: {}
- !<tag:yaml.org,2002:str> 5
&a *a : - ? :
...
# end"#;

fn mutilate(text: &mut Vec<u8>, chance: &mut Chance) {
    let at = chance.below(text.len() + 1);
    let piece = PIECES[chance.below(PIECES.len())];
    match chance.below(5) {
        0 => text.truncate(at),
        1 => drop(text.splice(at..at, piece.iter().copied())),
        2 => {
            let end = (at + 1 + chance.below(8)).min(text.len());
            text.splice(at..end, piece.iter().copied());
        }
        3 => drop(text.drain(at..(at + chance.below(40)).min(text.len()))),
        _ => {
            let from = chance.below(text.len() + 1);
            let end = (from + chance.below(60)).min(text.len());
            let copied = text[from..end].to_vec();
            text.splice(at..at, copied);
        }
    }
}

#[test]
fn mutilated_files_are_refused_or_read_but_never_crash() {
    let pod = serde_json::to_string_pretty(&one(WEB)).expect("serialises");
    let seeds = [WEB, &pod, HARD];
    let rounds = std::env::var("MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    for seed in 0..rounds {
        let mut chance = Chance(seed);
        let mut text = seeds[chance.below(seeds.len())].as_bytes().to_vec();
        for _ in 0..=chance.below(6) {
            mutilate(&mut text, &mut chance);
        }
        // A panic names the test; the seed is needed to reproduce it.
        let outcome = std::panic::catch_unwind(|| parse(&text).map(|content| content.pods.len()));
        assert!(outcome.is_ok(), "seed {seed}: {:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn every_prefix_of_a_file_is_refused_or_read() {
    for end in 0..WEB.len() {
        let _ = parse(&WEB.as_bytes()[..end]);
    }
}

#[test]
fn a_file_with_an_invalid_pod_is_refused_with_the_place() {
    use edged::agent::admit::invalid;
    use edged::wire::manifest::parse_valid;
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containerz: []\n";
    let refusal = parse_valid(text.as_bytes(), invalid).expect_err("there is no container");
    let expected = ":5:3: spec.containerz: got an unknown field; spec.containers: Required value";
    assert_eq!(refusal.to_string(), expected);
    #[cfg(feature = "controller")]
    {
        let raw = edged::wire::manifest::raw::parse_valid(text.as_bytes(), invalid);
        assert_eq!(raw.expect_err("the same"), refusal);
    }
    assert!(parse(text.as_bytes()).is_ok(), "it is reported only on request");
}
