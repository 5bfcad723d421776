//! The objects that the cloud's pods refer to.

use edged::model::meta::Saved;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod, row};

/// A pod that refers to objects in every possible place, and some references without a name.
fn user() -> Value {
    let mut user = pod("p", "u", 7);
    let of = |n: u8| {
        json!({"name": "m", "image": "i:1",
            "envFrom": [{"configMapRef": {"name": format!("c{n}1")}},
                {"secretRef": {"name": format!("s{n}1")}}, {"secretRef": {"name": ""}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef":
                    {"name": format!("c{n}2"), "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef":
                    {"name": format!("s{n}2"), "key": "k"}}}]})
    };
    let mut init = of(2);
    init["name"] = json!("i");
    user["spec"]["containers"] = json!([of(1)]);
    user["spec"]["initContainers"] = json!([init]);
    user["spec"]["imagePullSecrets"] = json!([{"name": "pull"}, {"name": ""}]);
    user["spec"]["volumes"] = json!([
        {"name": "a", "configMap": {"name": "c3"}},
        {"name": "b", "secret": {"secretName": "s3"}},
        {"name": "c", "projected": {"sources": [
            {"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]}},
    ]);
    user
}

fn requested(cloud: &mut CloudHarness, kind: &str) -> Vec<String> {
    let requested = cloud.take_sent(kind);
    requested
        .iter()
        .map(|it| it.route.resource.rsplit('/').next().expect("one").to_owned())
        .collect()
}

#[test]
fn all_that_a_pod_names_is_asked_for() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user());
    assert_eq!(requested(&mut cloud, "configmap"), ["c11", "c12", "c21", "c22", "c3", "c4"]);
    assert_eq!(requested(&mut cloud, "secret"), ["pull", "s11", "s12", "s21", "s22", "s3", "s4"]);
    assert!(!cloud.sent.iter().any(|it| &*it.route.resource == "ns/secret"), "of no name");
}

#[test]
fn for_a_pod_that_ends_or_has_ended_nothing_is_asked() {
    let mut ending = user();
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    let mut ended = user();
    ended["status"]["phase"] = json!("Failed");
    for pod in [ending, ended] {
        let rows = vec![row("ns/pod/p", &pod)];
        let mut cloud = CloudHarness::with(Saved::kept(rows));
        cloud.connect();
        cloud.pass(2_000);
        assert_eq!(requested(&mut cloud, "configmap"), [] as [&str; 0], "{pod}");
        assert_eq!(requested(&mut cloud, "secret"), [] as [&str; 0], "{pod}");
    }
}

#[test]
fn an_object_that_came_is_not_asked_for_again_when_it_goes_before_it_is_kept() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "cm"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    let question = cloud.take_sent("configmap");
    let map = json!({"metadata": {"name": "cm", "namespace": "ns", "uid": "c"}});
    let id = cloud.answer(&question[0], &map);
    assert_eq!(cloud.answers(&id).len(), 1);
    // The cloud's answer arrives once more, as after a lost acknowledgement.
    let id = cloud.answer(&question[0], &map);
    assert_eq!(cloud.answers(&id).len(), 1, "or the cloud would send nothing else");
    // One that came too late is an answer to nothing, and it is acknowledged as well.
    let refusal = json!({"ErrStatus": {"status": "Failure", "code": 404, "reason": "NotFound"}});
    let id = cloud.answer(&question[0], &refusal);
    assert_eq!(cloud.answers(&id).len(), 1);
    cloud.pass(12_000);
    cloud.sign_of_life();
    cloud.pass(12_000);
    assert_eq!(cloud.take_sent("configmap").len(), 0, "it is here");
}

#[test]
fn what_pods_of_the_store_name_is_asked_for_with_the_first_link() {
    let rows = vec![row("ns/pod/p", &user())];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    assert_eq!(
        (requested(&mut cloud, "configmap").len(), requested(&mut cloud, "secret").len()),
        (6, 7)
    );
}

#[test]
fn an_answer_that_cannot_be_kept_is_refused() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "cm"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    let question = cloud.take_sent("configmap").remove(0);
    let large = json!({"metadata": {"name": "cm", "namespace": "ns", "uid": "c"},
        "data": {"k": "x".repeat(2 << 20)}});
    let id = cloud.answer(&question, &large);
    let answers = cloud.answers(&id);
    assert_eq!(answers.len(), 1);
    let route = &answers[0].route;
    assert_eq!((&*route.operation, &*route.source), ("error", "metamanager"));
}
