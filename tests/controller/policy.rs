//! The rules of service accounts: nodes get those of their pods' accounts, and no others.

use edged::controller::SyncStore;
use edged::limits::{ACCESS_VALUES_MAX, POLICY_ACCOUNTS_PER_STEP, POLICY_REFUSED_SHOWN_MAX};
use edged::model::api::Kind;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::world::World;
use crate::{listed, listed_with_rules, node, pod, received};

const ROW: &str = "n/serviceaccountaccess/robot";

fn account(namespace: &str, name: &str) -> (Kind, Value) {
    (Kind::ServiceAccount, json!({"metadata": {"name": name, "namespace": namespace}}))
}

fn rule(verb: &str) -> Value {
    json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})
}

fn role(namespace: &str, name: &str, rules: &[Value]) -> (Kind, Value) {
    let role = json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules});
    (Kind::Role, role)
}

fn cluster_role(name: &str, rules: &[Value]) -> (Kind, Value) {
    (Kind::ClusterRole, json!({"metadata": {"name": name}, "rules": rules}))
}

fn robot() -> Value {
    json!({"kind": "ServiceAccount", "name": "robot", "namespace": "n"})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

/// `role`: its kind and name.
fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: &[Value]) -> (Kind, Value) {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1});
    let mut object = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": role});
    if namespace.is_empty() {
        return (Kind::ClusterRoleBinding, object);
    }
    object["metadata"]["namespace"] = json!(namespace);
    (Kind::RoleBinding, object)
}

/// Two nodes, each with a pod of `n/robot`, which may get pods there by a role.
fn usual() -> Vec<(Kind, Value)> {
    vec![
        (Kind::Node, node("e1")),
        (Kind::Node, node("e2")),
        (Kind::Pod, pod("p1", "e1")),
        (Kind::Pod, pod("p2", "e2")),
        account("n", "robot"),
        role("n", "r", &[rule("get")]),
        binding("n", "b", ("Role", "r"), &[robot()]),
    ]
}

/// The usual world, with both nodes connected.
fn connected() -> World {
    let mut world = listed_with_rules(SyncStore::Table, &usual());
    world.connect("e1");
    world.connect("e2");
    world.pass(1_000);
    world
}

fn apply(world: &mut World, (kind, object): (Kind, Value)) {
    world.cluster.apply(kind, object);
    world.pass(1_000);
}

fn remove(world: &mut World, kind: Kind, namespace: &str, name: &str) {
    let name: Name = (kind, namespace.to_owned(), name.to_owned());
    world.cluster.remove(&name);
    world.pass(1_000);
}

/// What a node has of `n/robot`: the verbs of its rules, with the binding of each.
fn has(world: &mut World, node: &str) -> Option<Vec<String>> {
    has_of(world, node, ROW)
}

fn has_of(world: &mut World, node: &str, row: &str) -> Option<Vec<String>> {
    let row = world.edge(node).store.get(row)?;
    let list = |name: &str, of: &str| -> Vec<String> {
        let all = row["spec"][name].as_array().cloned().unwrap_or_default();
        let named = |it: &Value| {
            let verbs = it["rules"].as_array().expect("rules").iter();
            let verbs: Vec<&str> = verbs.filter_map(|rule| rule["verbs"][0].as_str()).collect();
            let metadata = &it[of]["metadata"];
            let (namespace, name) = (metadata["namespace"].as_str(), &metadata["name"]);
            let name = name.as_str().expect("a name");
            format!("{}/{name}: {}", namespace.unwrap_or_default(), verbs.join(" "))
        };
        all.iter().map(named).collect()
    };
    let mut all = list("accessRoleBinding", "roleBinding");
    all.extend(list("accessClusterRoleBinding", "clusterRoleBinding"));
    Some(all)
}

#[test]
fn every_node_with_a_pod_of_the_account_gets_its_rules_before_the_pod() {
    let mut world = connected();
    for (node, pod) in [("e1", "p1"), ("e2", "p2")] {
        let expected = [format!("update null/node/{node}"), format!("insert {ROW}")];
        let got = received(&mut world, node);
        assert_eq!(got, [&expected[..], &[format!("insert n/pod/{pod}")]].concat());
    }
    let uid = world.cluster.objects[&(Kind::ServiceAccount, "n".into(), "robot".into())]
        ["metadata"]["uid"]
        .clone();
    let expected = json!({
        "kind": "ServiceAccountAccess", "apiVersion": "policy.kubeedge.io/v1alpha1",
        "metadata": {"name": "robot", "namespace": "n"},
        "spec": {
            "serviceAccount": {"metadata": {"name": "robot", "namespace": "n"}},
            "serviceAccountUid": uid,
            "accessRoleBinding": [{
                "roleBinding": {
                    "metadata": {"name": "b", "namespace": "n"}, "subjects": [robot()],
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                        "name": "r"},
                },
                "rules": [rule("get")],
            }],
        },
        "status": {},
    });
    assert_eq!(world.edge("e2").store[ROW], expected);
    let message = world.edge("e1").messages.iter().find(|it| &*it.route.resource == ROW);
    let message = message.expect("it was sent");
    assert_eq!((&*message.route.source, &*message.route.group), ("policycontroller", "resource"));
    assert_eq!(&*message.header.resource_version, "", "it is in no API server");
}

#[test]
fn a_node_without_a_pod_of_the_account_gets_nothing() {
    let mut world = connected();
    apply(&mut world, (Kind::Node, node("e3")));
    world.connect("e3");
    world.pass(1_000);
    assert_eq!(received(&mut world, "e3"), ["update null/node/e3"]);
    apply(&mut world, account("n", "other"));
    assert_eq!(world.edge("e1").store.len(), 3, "no pod of it is here");
}

#[test]
fn a_change_of_a_role_or_a_binding_reaches_the_nodes() {
    let mut world = connected();
    let changes = [
        (role("n", "r", &[rule("get"), rule("list")]), vec!["n/b: get list"]),
        (binding("n", "c", ("Role", "none"), &[robot()]), vec!["n/b: get list"]),
        (role("n", "none", &[rule("watch")]), vec!["n/b: get list", "n/c: watch"]),
        (binding("n", "b", ("Role", "r"), &[group("x")]), vec!["n/c: watch"]),
    ];
    for (change, expected) in changes {
        apply(&mut world, change);
        for node in ["e1", "e2"] {
            assert_eq!(has(&mut world, node).expect("rules"), expected);
        }
    }
    remove(&mut world, Kind::Role, "n", "none");
    assert_eq!(has(&mut world, "e1"), Some(vec![]), "it has an account, and no rights");
    apply(&mut world, role("n", "none", &[rule("watch")]));
    remove(&mut world, Kind::RoleBinding, "n", "c");
    assert_eq!(has(&mut world, "e2"), Some(vec![]));
}

#[test]
fn what_changes_nothing_for_an_account_is_not_sent() {
    let mut world = connected();
    let computed = world.controller.counters().policy_computed;
    let _ = (received(&mut world, "e1"), received(&mut world, "e2"));
    let mut labelled = role("n", "r", &[rule("get")]);
    labelled.1["metadata"]["labels"] = json!({"l": "1"});
    let mut binding_of = binding("n", "d", ("Role", "r"), &[group("masters")]);
    binding_of.1["subjects"] = Value::Null;
    for change in [
        labelled,
        role("n", "unused", &[rule("get")]),
        role("m", "r", &[rule("delete")]),
        cluster_role("r", &[rule("delete")]),
        binding(
            "m",
            "b",
            ("ClusterRole", "r"),
            &[json!({"kind": "ServiceAccount", "name": "robot"})],
        ),
        binding("", "b", ("ClusterRole", "r"), &[json!({"kind": "User", "name": "robot"})]),
        binding_of,
    ] {
        apply(&mut world, change);
    }
    assert_eq!(world.controller.counters().policy_computed, computed);
    assert!(received(&mut world, "e1").is_empty() && received(&mut world, "e2").is_empty());
}

#[test]
fn all_forms_of_subjects_count() {
    let mut world = connected();
    apply(&mut world, cluster_role("c", &[rule("list")]));
    let user = json!({"kind": "User", "name": "system:serviceaccount:n:robot"});
    let local = json!({"kind": "ServiceAccount", "name": "robot"});
    for subject in [
        robot(),
        user,
        group("system:serviceaccounts"),
        group("system:serviceaccounts:n"),
        group("system:authenticated"),
    ] {
        let subjects = [group("x"), subject.clone()];
        apply(&mut world, binding("", "cb", ("ClusterRole", "c"), &subjects));
        assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get", "/cb: list"], "{subject}");
        remove(&mut world, Kind::ClusterRoleBinding, "", "cb");
        assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"], "{subject}");
    }
    apply(&mut world, binding("n", "l", ("ClusterRole", "c"), &[local]));
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get", "n/l: list"]);
    for other in [group("system:serviceaccounts:m"), group("system:unauthenticated")] {
        apply(&mut world, binding("n", "l", ("ClusterRole", "c"), std::slice::from_ref(&other)));
        assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"], "{other}");
    }
}

#[test]
fn a_role_of_another_namespace_cannot_be_taken_for_one_of_the_accounts_own() {
    let mut world = connected();
    apply(&mut world, role("m", "r", &[rule("delete")]));
    apply(&mut world, binding("m", "b", ("Role", "r"), &[robot()]));
    assert_eq!(has(&mut world, "e1").expect("rules"), ["m/b: delete", "n/b: get"]);
    let row = &world.edge("e1").store[ROW]["spec"]["accessRoleBinding"];
    let foreign = &row[0]["roleBinding"]["roleRef"];
    assert_eq!((&foreign["kind"], &foreign["name"]), (&json!("ClusterRole"), &json!("m/r")));
    let own = &row[1]["roleBinding"]["roleRef"];
    assert_eq!((&own["kind"], &own["name"]), (&json!("Role"), &json!("r")));
}

#[test]
fn an_aggregated_role_counts_with_the_rules_that_the_api_server_has_filled_in() {
    let mut world = connected();
    let mut all = cluster_role("all", &[]);
    all.1["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    all.1["rules"] = Value::Null;
    apply(&mut world, all.clone());
    apply(&mut world, binding("n", "a", ("ClusterRole", "all"), &[robot()]));
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/a: ", "n/b: get"]);
    all.1["rules"] = json!([rule("watch")]);
    apply(&mut world, all);
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/a: watch", "n/b: get"]);
}

#[test]
fn the_rules_leave_with_the_last_pod_and_come_again_with_the_next() {
    let mut world = connected();
    apply(&mut world, (Kind::Pod, pod("p3", "e1")));
    remove(&mut world, Kind::Pod, "n", "p1");
    assert!(has(&mut world, "e1").is_some(), "another pod has the account");
    remove(&mut world, Kind::Pod, "n", "p3");
    assert_eq!(has(&mut world, "e1"), None);
    let last = world.edge("e1").messages.iter().rev().find(|it| &*it.route.resource == ROW);
    let content = last.and_then(|it| it.content.as_ref()).expect("a deletion").get().to_owned();
    let content: Value = serde_json::from_str(&content).expect("JSON");
    // An agent that has seen a uid deleted never takes it again.
    assert_eq!(content["metadata"]["uid"], "", "{content}");
    assert!(has(&mut world, "e2").is_some(), "its own pod is still there");
    assert!(world.records("e1").iter().all(|record| record.0 != Kind::ServiceAccountAccess));
    apply(&mut world, (Kind::Pod, pod("p1", "e1")));
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"]);
}

#[test]
fn an_account_that_is_deleted_has_no_rights_and_a_new_one_of_its_name_has_its_own() {
    let mut world = connected();
    let uid_of =
        |world: &mut World| world.edge("e1").store[ROW]["spec"]["serviceAccountUid"].clone();
    let first = uid_of(&mut world);
    remove(&mut world, Kind::ServiceAccount, "n", "robot");
    assert_eq!((has(&mut world, "e1"), has(&mut world, "e2")), (None, None));
    apply(&mut world, account("n", "robot"));
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"]);
    let second = uid_of(&mut world);
    assert_ne!(first, second);
    // Both changes come at once, as after an interruption of the watch.
    let name: Name = (Kind::ServiceAccount, "n".into(), "robot".into());
    world.cluster.remove(&name);
    apply(&mut world, account("n", "robot"));
    assert!(![first, second].contains(&uid_of(&mut world)));
    // An account that is about to be deleted is gone.
    let mut ending = account("n", "robot");
    ending.1["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    apply(&mut world, ending);
    assert_eq!(has(&mut world, "e1"), None);
}

#[test]
fn a_node_that_was_away_gets_what_has_changed_and_nothing_else() {
    for sync in [SyncStore::Table, SyncStore::Objects] {
        let mut world = listed_with_rules(sync, &usual());
        let session = world.connect("e1");
        world.connect("e2");
        world.pass(20_000);
        world.disconnect(session);
        let _ = received(&mut world, "e1");
        world.connect("e1");
        world.pass(20_000);
        assert!(received(&mut world, "e1").is_empty(), "{sync:?}: nothing has changed");
        // Their hashes are greater and smaller than the ones before.
        for verb in ["list", "watch", "create", "update", "patch"] {
            let session = world.session("e1").expect("a session");
            world.disconnect(session);
            apply(&mut world, role("n", "r", &[rule(verb)]));
            world.connect("e1");
            world.pass(20_000);
            assert_eq!(received(&mut world, "e1"), [format!("update {ROW}")], "{sync:?} {verb}");
            assert_eq!(has(&mut world, "e1").expect("rules"), [format!("n/b: {verb}")]);
        }
        let session = world.session("e1").expect("a session");
        world.disconnect(session);
        remove(&mut world, Kind::ServiceAccount, "n", "robot");
        world.connect("e1");
        world.pass(20_000);
        assert_eq!(received(&mut world, "e1"), [format!("delete {ROW}")], "{sync:?}");
    }
}

#[test]
fn a_controller_that_starts_anew_sends_only_what_has_changed() {
    for sync in [SyncStore::Table, SyncStore::Objects] {
        let mut world = listed_with_rules(sync, &usual());
        for node in ["e1", "e2"] {
            world.connect(node);
        }
        world.pass(20_000);
        world.crash();
        world.pass(20_000);
        let _ = (received(&mut world, "e1"), received(&mut world, "e2"));
        for node in ["e1", "e2"] {
            world.connect(node);
        }
        world.pass(20_000);
        assert!(received(&mut world, "e1").is_empty(), "{sync:?}: nothing has changed");
        // What was removed meanwhile has no version that could show it.
        world.crash();
        world.cluster.remove(&(Kind::RoleBinding, "n".into(), "b".into()));
        world.pass(20_000);
        for node in ["e1", "e2"] {
            world.connect(node);
        }
        world.pass(20_000);
        assert_eq!(has(&mut world, "e1"), Some(vec![]), "{sync:?}");
        assert_eq!(has(&mut world, "e2"), Some(vec![]), "{sync:?}");
    }
}

#[test]
fn records_name_nothing_that_cloudcore_would_watch() {
    let mut world = listed_with_rules(SyncStore::Objects, &usual());
    world.connect("e1");
    world.pass(20_000);
    let records = world.cluster.objects.iter().filter(|((kind, ..), _)| *kind == Kind::ObjectSync);
    let specs: Vec<&Value> = records
        .map(|(_, record)| &record["spec"])
        .filter(|spec| spec["objectKind"] == "ServiceAccountAccess")
        .collect();
    let expected = json!({"objectAPIVersion": "v1", "objectKind": "ServiceAccountAccess",
        "objectName": "robot"});
    assert_eq!(specs, [&expected]);
}

#[test]
fn rules_of_cloudcore_are_replaced() {
    let mut world = listed_with_rules(SyncStore::Objects, &usual());
    let record = json!({"metadata": {"name": "e1.of-the-crd", "namespace": "n"},
        "spec": {"objectAPIVersion": "policy.kubeedge.io/v1alpha1",
            "objectKind": "ServiceAccountAccess", "objectName": "robot"},
        "status": {"objectResourceVersion": "999999"}});
    apply(&mut world, (Kind::ObjectSync, record));
    world.connect("e1");
    world.edge("e1").store.insert(ROW.to_owned(), json!({"metadata": {"name": "robot"}}));
    world.pass(20_000);
    let got = received(&mut world, "e1");
    let rows: Vec<&String> = got.iter().filter(|it| it.ends_with(ROW)).collect();
    assert_eq!(rows, [&format!("delete {ROW}"), &format!("insert {ROW}")]);
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"]);
    let crd: Name = (Kind::ObjectSync, "n".into(), "e1.of-the-crd".into());
    assert!(!world.cluster.objects.contains_key(&crd));
}

#[test]
fn where_it_is_off_nodes_get_no_rules_and_lose_what_they_have() {
    let mut world = listed(&usual());
    world.connect("e1");
    world.pass(1_000);
    assert_eq!(received(&mut world, "e1"), ["update null/node/e1", "insert n/pod/p1"]);
    let kinds = [Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding];
    assert!(kinds.iter().all(|kind| !world.is_watched(*kind)), "it costs nothing");
    let mut world = connected();
    world.set_config(crate::world::config);
    world.crash();
    world.pass(1_000);
    world.connect("e1");
    world.pass(1_000);
    assert_eq!(has(&mut world, "e1"), None);
}

#[test]
fn nothing_is_sent_or_deleted_before_all_kinds_are_listed() {
    let mut world = connected();
    world.cluster.unserved = vec![Kind::RoleBinding];
    world.crash();
    world.pass(1_000);
    let _ = received(&mut world, "e1");
    world.connect("e1");
    world.pass(1_000);
    apply(&mut world, (Kind::Pod, pod("p9", "e1")));
    assert_eq!(received(&mut world, "e1"), ["insert n/pod/p9"], "pods wait for no rules");
    assert_eq!(has(&mut world, "e1").expect("rules"), ["n/b: get"], "what it has stays");
    let policy = world.controller.overview().policy.expect("it is on");
    assert_eq!(policy.trouble, "not listed yet: rolebindings");
}

#[test]
fn rules_that_are_too_many_are_not_sent_in_part() {
    let mut world = connected();
    let many = |count: usize| {
        let verbs: Vec<String> = (0..count).map(|at| format!("v{at}")).collect();
        role("n", "r", &[json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]})])
    };
    apply(&mut world, many(ACCESS_VALUES_MAX));
    assert_eq!((has(&mut world, "e1"), has(&mut world, "e2")), (None, None));
    let told = world.logs.iter().filter(|line| line.contains("n/robot has no rights on nodes"));
    assert_eq!(told.count(), 1, "{:?}", world.logs);
    let policy = world.controller.overview().policy.expect("it is on");
    assert!(policy.refused[0].contains("expected at most 8192"), "{policy:?}");
    assert_eq!(world.controller.counters().policy_refused, 1);
    apply(&mut world, many(ACCESS_VALUES_MAX - 50));
    assert!(has(&mut world, "e1").is_some(), "they fit");
    assert_eq!(world.controller.counters().policy_refused, 0);
    // So do those of bytes: long names of few resources.
    let long = "x".repeat(edged::limits::ACCESS_BYTES_MAX);
    apply(&mut world, role("n", "r", &[rule(&long)]));
    assert_eq!(has(&mut world, "e1"), None);
}

#[test]
fn a_change_that_concerns_many_accounts_takes_several_steps() {
    let count = 2 * POLICY_ACCOUNTS_PER_STEP;
    let mut objects = usual();
    for at in 0..count {
        let mut pod = pod(&format!("q{at}"), "e1");
        pod["spec"]["serviceAccountName"] = json!(format!("a{at}"));
        objects.extend([(Kind::Pod, pod), account("n", &format!("a{at}"))]);
    }
    objects.push(cluster_role("c", &[rule("list")]));
    objects.push(binding("", "cb", ("ClusterRole", "c"), &[group("system:serviceaccounts")]));
    let mut world = listed_with_rules(SyncStore::Table, &objects);
    world.connect("e1");
    world.pass(5_000);
    let before = world.controller.counters().policy_computed;
    apply(&mut world, cluster_role("c", &[rule("watch")]));
    let computed = world.controller.counters().policy_computed - before;
    assert_eq!(computed, count as u64 + 1, "each account once");
    assert_eq!(world.computed_at_once, POLICY_ACCOUNTS_PER_STEP as u64);
    world.pass(5_000);
    for at in [0, count - 1] {
        let row = format!("n/serviceaccountaccess/a{at}");
        assert_eq!(has_of(&mut world, "e1", &row).expect("rules"), ["/cb: watch"]);
    }
}

#[test]
fn only_some_of_many_accounts_with_too_many_rules_are_named() {
    let count = POLICY_REFUSED_SHOWN_MAX + 1;
    let mut objects = usual();
    for at in 0..count {
        let mut pod = pod(&format!("q{at}"), "e1");
        pod["spec"]["serviceAccountName"] = json!(format!("a{at}"));
        objects.extend([(Kind::Pod, pod), account("n", &format!("a{at}"))]);
    }
    let verbs: Vec<String> = (0..ACCESS_VALUES_MAX).map(|at| at.to_string()).collect();
    objects.push(cluster_role("c", &[json!({"verbs": verbs})]));
    objects.push(binding("", "cb", ("ClusterRole", "c"), &[group("system:serviceaccounts")]));
    let world = listed_with_rules(SyncStore::Table, &objects);
    let refused = world.logs.iter().filter(|line| line.contains("has no rights on nodes"));
    assert_eq!(refused.count(), POLICY_REFUSED_SHOWN_MAX);
    let policy = world.controller.overview().policy.expect("it is on");
    assert_eq!(policy.refused.len(), POLICY_REFUSED_SHOWN_MAX);
    // `robot` is one of them, too.
    assert_eq!(world.controller.counters().policy_refused, count + 1);
}
