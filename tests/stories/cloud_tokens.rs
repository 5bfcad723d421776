//! Tokens of service accounts: asked for by pod, and gone with it.

use serde_json::{Value, json};

use crate::sky::{Sky, content, pod};

fn user(name: &str, uid: &str) -> Value {
    let mut user = pod(name, uid, 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}}]);
    user["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/t"}]);
    user
}

/// What an API server gives; the newer ones with the uid of the service account.
fn token(pod: &str, uid: &str) -> Value {
    json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": "default", "namespace": "ns", "uid": "the-account"},
        "spec": {
            "audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3607,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid},
        },
        "status": {"token": "a.b.c", "expirationTimestamp": "2036-11-22T13:45:54Z"},
    })
}

#[test]
fn a_pod_gets_its_token_after_another_of_the_same_account_has_gone() {
    let mut sky = Sky::new();
    for uid in ["u1", "u2"] {
        sky.push("insert", "ns/pod/p", &user("p", uid));
        let asked = sky.said("serviceaccounttoken");
        assert_eq!(asked.len(), 1, "of {uid}");
        assert_eq!(content(&asked[0])["spec"]["boundObjectRef"]["uid"], uid);
        sky.answer(&asked[0], &token("p", uid));
        sky.work();
        assert_eq!(sky.desk.running(), ["m"], "of {uid}");
        sky.push("delete", "ns/pod/p", &user("p", uid));
        sky.work();
        sky.pass(5_000);
        assert_eq!(sky.desk.running(), [] as [&str; 0], "of {uid}");
    }
}

#[test]
fn what_comes_at_once_is_not_told_to_be_missing_and_what_does_not_is() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user("p", "u1"));
    let asked = sky.said("serviceaccounttoken");
    sky.pass(1_000);
    assert_eq!(sky.desk.events, [] as [&str; 0]);
    sky.hear();
    sky.pass(1_500);
    assert!(sky.desk.events[0].starts_with("FailedMount"), "{:?}", sky.desk.events);
    let why = json!({"ErrStatus": {"status": "Failure", "message": "no such account",
        "reason": "NotFound", "code": 404}});
    sky.answer(&asked[0], &why);
    let told = |line: &&String| line.contains("no token of ns/default for pod p: no such account");
    assert_eq!(sky.desk.log.iter().filter(told).count(), 1, "{:?}", sky.desk.log);
    sky.hear();
    sky.pass(15_000);
    let asked = sky.said("serviceaccounttoken");
    assert_eq!(asked.len(), 1, "it is asked for again");
    sky.answer(&asked[0], &why);
    assert_eq!(sky.desk.log.iter().filter(told).count(), 1, "said once");
}
