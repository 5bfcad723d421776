//! Tokens of service accounts: requested per pod, and removed with it.

use edged::agent::time::Wall;
use edged::limits::{QUERY_RETRY_MS, TOKEN_AGAIN_MS};
use edged::model::job::{JobSpec, Source};
use edged::model::message::Message;
use edged::model::meta::{Change, Saved};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, pod, row};

fn user(name: &str, uid: &str) -> Value {
    let mut user = pod(name, uid, 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}}]);
    user["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/t"}]);
    user
}

/// A token from an API server; newer ones include the uid of the service account.
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
    let mut cloud = CloudHarness::new();
    for uid in ["u1", "u2"] {
        cloud.push("insert", "ns/pod/p", &user("p", uid));
        let requested = cloud.take_sent("serviceaccounttoken");
        assert_eq!(requested.len(), 1, "of {uid}");
        assert_eq!(content(&requested[0])["spec"]["boundObjectRef"]["uid"], uid);
        cloud.answer(&requested[0], &token("p", uid));
        cloud.work();
        assert_eq!(cloud.harness.running(), ["m"], "of {uid}");
        cloud.push("delete", "ns/pod/p", &user("p", uid));
        cloud.work();
        cloud.pass(5_000);
        assert_eq!(cloud.harness.running(), [] as [&str; 0], "of {uid}");
    }
}

#[test]
fn that_an_earlier_pod_of_the_name_is_gone_takes_no_token_from_the_one_that_is_there() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user("p", "u2"));
    let requested = cloud.take_sent("serviceaccounttoken").remove(0);
    cloud.answer(&requested, &token("p", "u2"));
    cloud.work();
    cloud.written.clear();
    cloud.push("delete", "ns/pod/p", &user("p", "u1"));
    cloud.pass(1_000);
    assert!(cloud.written.is_empty(), "{:?}", cloud.written);
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn what_comes_at_once_is_not_told_to_be_missing_and_what_does_not_is() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user("p", "u1"));
    let requested = cloud.take_sent("serviceaccounttoken");
    cloud.pass(1_000);
    assert_eq!(cloud.harness.events, [] as [&str; 0]);
    cloud.sign_of_life();
    cloud.pass(1_500);
    assert!(cloud.harness.events[0].starts_with("FailedMount"), "{:?}", cloud.harness.events);
    let why = json!({"ErrStatus": {"status": "Failure", "message": "no such account",
        "reason": "NotFound", "code": 404}});
    cloud.answer(&requested[0], &why);
    let reported =
        |line: &&String| line.contains("no token of ns/default for pod p: no such account");
    assert_eq!(cloud.harness.log.iter().filter(reported).count(), 1, "{:?}", cloud.harness.log);
    cloud.sign_of_life();
    cloud.pass(15_000);
    let requested = cloud.take_sent("serviceaccounttoken");
    assert_eq!(requested.len(), 1, "it is requested again");
    cloud.answer(&requested[0], &why);
    assert_eq!(cloud.harness.log.iter().filter(reported).count(), 1, "logged once");
}

#[test]
fn that_one_of_several_volumes_has_not_come_yet_is_not_said_at_once() {
    let mut cloud = CloudHarness::new();
    let mut wanted = user("p", "u1");
    let volumes = wanted["spec"]["volumes"].as_array_mut().expect("a list");
    volumes.push(json!({"name": "w", "emptyDir": {}}));
    wanted["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/t"}, {"name": "w", "mountPath": "/w"}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.pass(1_000);
    assert_eq!(cloud.harness.events, [] as [&str; 0]);
    cloud.sign_of_life();
    cloud.pass(1_500);
    assert!(cloud.harness.events[0].starts_with("FailedMount"), "{:?}", cloud.harness.events);
}

/// A pod with tokens for these audiences, in files of these names.
fn user_of(sources: &[(&str, Option<&str>, i64)]) -> Value {
    let source = |&(path, audience, seconds): &(&str, Option<&str>, i64)| {
        json!({"serviceAccountToken":
            {"path": path, "audience": audience, "expirationSeconds": seconds}})
    };
    let mut user = user("p", "u1");
    let sources: Vec<Value> = sources.iter().map(source).collect();
    user["spec"]["volumes"][0]["projected"]["sources"] = json!(sources);
    user
}

/// An answer with this token of the API server, valid for this many seconds.
fn given(cloud: &CloudHarness, to: &Message, text: &str, seconds: i64) -> Value {
    let mut given = content(to);
    if given["spec"]["audiences"].is_null() {
        given["spec"]["audiences"] = json!(["https://kubernetes.default.svc"]);
    }
    given["spec"]["expirationSeconds"] = json!(seconds);
    let now = cloud.harness.now.timestamp().expect("a clock").0;
    let end = edged::model::time::Timestamp(now + seconds).to_string();
    given["status"] = json!({"token": text, "expirationTimestamp": end});
    given
}

/// The contents of the pod's files.
fn files(cloud: &CloudHarness) -> Vec<(String, String)> {
    let written = cloud.harness.specs.iter().rev().find_map(|spec| match spec {
        JobSpec::SetUpVolume(wanted) => match &wanted.source {
            Source::Files(files) => Some(&files.files),
            _ => None,
        },
        _ => None,
    });
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let all = written.into_iter().flatten();
    all.map(|file| (file.path.to_string(), text(&file.content.0))).collect()
}

fn file(path: &str, text: &str) -> (String, String) {
    (path.to_owned(), text.to_owned())
}

fn pass(cloud: &mut CloudHarness, seconds: u64) -> Vec<Message> {
    for _ in 0..seconds / 5 {
        cloud.pass(5_000);
        cloud.sign_of_life();
        cloud.work();
    }
    cloud.take_sent("serviceaccounttoken")
}

#[test]
fn a_token_that_lives_shorter_than_was_asked_for_is_one_all_the_same() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user_of(&[("token", None, 3_607)]));
    let requested = cloud.take_sent("serviceaccounttoken");
    let answer = given(&cloud, &requested[0], "short", 600);
    cloud.answer(&requested[0], &answer);
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
    assert_eq!(files(&cloud), [file("token", "short")]);
    assert_eq!(pass(&mut cloud, 450).len(), 0, "it is good for a while");
    let repeated = pass(&mut cloud, 40);
    assert_eq!(repeated.len(), 1, "after four fifths of its life");
    let answer = given(&cloud, &repeated[0], "next", 600);
    cloud.answer(&repeated[0], &answer);
    pass(&mut cloud, 100);
    assert_eq!(files(&cloud), [file("token", "next")]);
}

#[test]
fn what_old_api_servers_leave_out_of_a_token_is_known() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user_of(&[("token", None, 3_607)]));
    let requested = cloud.take_sent("serviceaccounttoken");
    let first = given(&cloud, &requested[0], "first", 3_607);
    let mut first = first;
    assert_eq!(first["metadata"]["name"], Value::Null);
    first["spec"].as_object_mut().expect("a map").remove("boundObjectRef");
    cloud.answer(&requested[0], &first);
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
    assert_eq!(pass(&mut cloud, 2_800).len(), 0);
    let repeated = pass(&mut cloud, 100);
    assert_eq!(repeated.len(), 1);
    // It differs in nothing but its status.
    let next = given(&cloud, &repeated[0], "next", 3_607);
    cloud.answer(&repeated[0], &next);
    pass(&mut cloud, 100);
    assert_eq!(files(&cloud), [file("token", "next")]);
}

#[test]
fn tokens_of_one_life_for_the_api_server_and_for_another_are_told_apart() {
    let both = [("token", None, 3_607), ("vault", Some("vault"), 3_607)];
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    cloud.push("insert", "ns/pod/p", &user_of(&both));
    cloud.save();
    let requested = cloud.take_sent("serviceaccounttoken");
    assert_eq!(requested.len(), 2);
    let (of_vault, of_api): (Vec<_>, Vec<_>) = requested
        .iter()
        .partition(|requested| content(requested)["spec"]["audiences"] == json!(["vault"]));
    let mut rows = vec![row("ns/pod/p", &user_of(&both))];
    for (requested, text) in [(of_vault[0], "of vault"), (of_api[0], "of the API server")] {
        let answer = given(&cloud, requested, text, 3_607);
        cloud.answer(requested, &answer);
        for change in cloud.save() {
            let Change::Put(row) = change else { panic!("{change:?}") };
            rows.push(row);
        }
    }
    cloud.keeps = true;
    cloud.work();
    let files_both = [file("token", "of the API server"), file("vault", "of vault")];
    assert_eq!(files(&cloud), files_both);
    // The key under which EdgeCore would look for it.
    let bound = r#"v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"p", UID:"u1"}"#;
    for (at, audiences) in [(1, r#"[]string{"vault"}"#), (2, "[]string(nil)")] {
        assert_eq!(*rows[at].key, format!(r#""default"/"ns"/{audiences}/3607/{bound}"#));
        assert_eq!(&*rows[at].kind, "serviceaccounttoken");
        let value: Value = serde_json::from_str(&rows[at].value).expect("JSON");
        let of = (&value["metadata"]["name"], &value["metadata"]["namespace"]);
        assert_eq!(of, (&json!("default"), &json!("ns")));
    }
    // The next life, before it has a link.
    let mut cloud = CloudHarness::with(Saved::kept(rows.clone()));
    cloud.work();
    assert_eq!(files(&cloud), files_both);
    // Two tokens that an EdgeCore stored cannot be told apart.
    for row in &mut rows[1..] {
        let mut value: Value = serde_json::from_str(&row.value).expect("JSON");
        value.as_object_mut().expect("a map").remove("asked");
        row.value = value.to_string().into();
    }
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.work();
    let requested = cloud.take_sent("serviceaccounttoken");
    assert_eq!(requested.len(), 1);
    assert_eq!(content(&requested[0])["spec"]["audiences"], Value::Null);
}

#[test]
fn by_a_clock_that_is_ahead_tokens_are_not_asked_for_without_a_pause() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user_of(&[("token", None, 600)]));
    let (mut count, mut before) = (0, None);
    for _ in 0..1_200 {
        for requested in cloud.take_sent("serviceaccounttoken") {
            count += 1;
            if let Some(before) = before.replace(requested.clone()) {
                assert_eq!(cloud.wait_ms(&before, &requested), TOKEN_AGAIN_MS);
            }
            let now = cloud.harness.now;
            cloud.harness.now.wall = now.wall.map(|wall| Wall(wall.0 - 3_600_000));
            let answer = given(&cloud, &requested, &format!("{count}"), 600);
            cloud.harness.now = now;
            cloud.answer(&requested, &answer);
        }
        cloud.pass(500);
        cloud.sign_of_life();
    }
    assert!((2..=4).contains(&count), "{count} in ten minutes");
}

#[test]
fn a_token_that_cannot_be_kept_is_waited_for_asleep() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user_of(&[("token", None, 600)]));
    let requested = cloud.take_sent("serviceaccounttoken");
    cloud.keeps = false;
    let answer = given(&cloud, &requested[0], "a", 600);
    cloud.answer(&requested[0], &answer);
    for _ in 0..20 {
        if !cloud.saves.is_empty() {
            cloud.fail_save();
        }
        cloud.pass(5_000);
        cloud.sign_of_life();
    }
    assert_eq!(cloud.take_sent("serviceaccounttoken").len(), 0, "it is on its way to the disk");
}

/// The rows with these words that the store is requested to delete.
fn deleted(cloud: &mut CloudHarness, words: &[&str]) -> Vec<usize> {
    let changes: Vec<Change> = cloud.saves.drain(..).flat_map(|(_, changes)| changes).collect();
    let deletes = |word: &&str| {
        let of_it = |it: &&Change| matches!(it, Change::Delete { key } if key.contains(*word));
        changes.iter().filter(of_it).count()
    };
    words.iter().map(deletes).collect()
}

#[test]
fn what_a_pod_was_given_leaves_the_store_with_it_and_nothing_else_does() {
    let bound = |uid: &str| token("p", uid);
    let mut unbound = bound("");
    unbound["spec"]["boundObjectRef"] = Value::Null;
    let ended = json!({"metadata": {"uid": "u1"}, "status": {"phase": "Succeeded"}});
    let rows = || {
        vec![
            row("ns/pod/p", &user("p", "u1")),
            row("of-u1/serviceaccounttoken/a", &bound("u1")),
            row("ns/pod/q", &user("q", "u2")),
            row("of-u2/serviceaccounttoken/b", &bound("u2")),
            row("of-none/serviceaccounttoken/c", &unbound),
            row("ns/podpatch/p", &ended),
        ]
    };
    let words = ["ns/pod/p", "of-u1", "ns/podpatch", "ns/pod/q", "of-u2", "of-none"];
    // Old clouds delete by name alone.
    for reported in [user("p", "u1"), json!({"metadata": {"name": "p", "namespace": "ns"}})] {
        let mut cloud = CloudHarness::with(Saved::kept(rows()));
        cloud.connect();
        cloud.keeps = false;
        cloud.push("delete", "ns/pod/p", &reported);
        assert_eq!(deleted(&mut cloud, &words), [1, 1, 1, 0, 0, 0], "{reported}");
    }
    // A deletion by name alone that matches no pod removes nothing else.
    let mut cloud = CloudHarness::with(Saved::kept(rows()));
    cloud.connect();
    cloud.keeps = false;
    for of in ["ns/configmap/p", "ns/pod/unknown"] {
        cloud.push("delete", of, &json!({"metadata": {"name": "p", "namespace": "ns"}}));
        assert_eq!(deleted(&mut cloud, &words), [0; 6], "{of}");
    }
}

#[test]
fn a_token_that_was_not_given_before_the_link_broke_is_asked_for_at_once_over_the_next() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user("p", "u1"));
    assert_eq!(cloud.take_sent("serviceaccounttoken").len(), 1);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    assert_eq!(cloud.take_sent("serviceaccounttoken").len(), 1);
}

#[test]
fn an_answer_without_a_token_is_none_and_it_is_asked_for_again() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user("p", "u1"));
    let mut empty = token("p", "u1");
    empty["status"]["token"] = json!("");
    for answer in [json!("OK"), empty] {
        let requested = cloud.take_sent("serviceaccounttoken");
        assert_eq!(requested.len(), 1);
        cloud.answer(&requested[0], &answer);
        cloud.work();
        assert_eq!(cloud.harness.running(), [] as [&str; 0], "{answer}");
        let repeated = cloud.next("serviceaccounttoken", 20_000);
        assert_eq!(cloud.wait_ms(&requested[0], &repeated), QUERY_RETRY_MS, "{answer}");
        cloud.sent.push(repeated);
    }
}

#[test]
fn a_pod_that_ends_or_has_ended_is_given_no_token() {
    let mut ending = user("p", "u1");
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    let mut ended = user("p", "u1");
    ended["status"]["phase"] = json!("Succeeded");
    for pod in [ending, ended] {
        let rows = vec![row("ns/pod/p", &pod)];
        let mut cloud = CloudHarness::with(Saved::kept(rows));
        cloud.connect();
        cloud.pass(2_000);
        assert_eq!(cloud.take_sent("serviceaccounttoken").len(), 0, "{pod}");
    }
}

#[test]
fn of_two_tokens_each_is_replaced_in_its_own_time() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user_of(&[("a", Some("a"), 3_607), ("b", Some("b"), 3_607)]));
    for (requested, seconds) in cloud.take_sent("serviceaccounttoken").iter().zip([2_000, 1_000]) {
        let answer = given(&cloud, requested, "t", seconds);
        cloud.answer(requested, &answer);
    }
    cloud.work();
    assert_eq!(pass(&mut cloud, 790).len(), 0);
    let repeated = pass(&mut cloud, 30);
    assert_eq!(repeated.len(), 1, "the one that ends sooner");
    assert_eq!(content(&repeated[0])["spec"]["audiences"], json!(["b"]));
}

#[test]
fn a_token_that_is_here_is_not_asked_for_over_each_link_and_one_that_is_old_by_the_next_life() {
    let requested = json!({"audience": "", "seconds": 3_607});
    for (seconds, count) in [(3_000, 0), (300, 1)] {
        let mut here = token("p", "u1");
        let end = edged::model::time::Timestamp(1_800_000_000 + seconds).to_string();
        (here["asked"], here["status"]["expirationTimestamp"]) = (requested.clone(), json!(end));
        let rows = vec![row("ns/pod/p", &user("p", "u1")), row("x/serviceaccounttoken/y", &here)];
        let mut cloud = CloudHarness::with(Saved::kept(rows));
        for _ in 0..2 {
            cloud.connect();
            assert_eq!(cloud.take_sent("serviceaccounttoken").len(), count, "{seconds}");
            cloud.disconnect();
            cloud.pass(2_000);
        }
    }
}
