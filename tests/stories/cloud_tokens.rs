//! Tokens of service accounts: asked for by pod, and gone with it.

use edged::agent::time::Wall;
use edged::limits::{QUERY_RETRY_MS, TOKEN_AGAIN_MS};
use edged::model::job::{JobSpec, Source};
use edged::model::message::Message;
use edged::model::meta::{Change, Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, content, pod, row};

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
fn that_an_earlier_pod_of_the_name_is_gone_takes_no_token_from_the_one_that_is_there() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user("p", "u2"));
    let asked = sky.said("serviceaccounttoken").remove(0);
    sky.answer(&asked, &token("p", "u2"));
    sky.work();
    sky.written.clear();
    sky.push("delete", "ns/pod/p", &user("p", "u1"));
    sky.pass(1_000);
    assert!(sky.written.is_empty(), "{:?}", sky.written);
    assert_eq!(sky.desk.running(), ["m"]);
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

#[test]
fn that_one_of_several_volumes_has_not_come_yet_is_not_said_at_once() {
    let mut sky = Sky::new();
    let mut wanted = user("p", "u1");
    let volumes = wanted["spec"]["volumes"].as_array_mut().expect("a list");
    volumes.push(json!({"name": "w", "emptyDir": {}}));
    wanted["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/t"}, {"name": "w", "mountPath": "/w"}]);
    sky.push("insert", "ns/pod/p", &wanted);
    sky.pass(1_000);
    assert_eq!(sky.desk.events, [] as [&str; 0]);
    sky.hear();
    sky.pass(1_500);
    assert!(sky.desk.events[0].starts_with("FailedMount"), "{:?}", sky.desk.events);
}

/// A pod that wants tokens for these, in files of these names.
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

/// An answer in which the API server has put what it likes, until so many seconds from now.
fn given(sky: &Sky, to: &Message, text: &str, seconds: i64) -> Value {
    let mut given = content(to);
    if given["spec"]["audiences"].is_null() {
        given["spec"]["audiences"] = json!(["https://kubernetes.default.svc"]);
    }
    given["spec"]["expirationSeconds"] = json!(seconds);
    let now = sky.desk.now.timestamp().expect("a clock").0;
    let end = edged::model::time::Timestamp(now + seconds).to_string();
    given["status"] = json!({"token": text, "expirationTimestamp": end});
    given
}

/// What the pod finds in its files.
fn files(sky: &Sky) -> Vec<(String, String)> {
    let written = sky.desk.specs.iter().rev().find_map(|spec| match spec {
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

fn pass(sky: &mut Sky, seconds: u64) -> Vec<Message> {
    for _ in 0..seconds / 5 {
        sky.pass(5_000);
        sky.hear();
        sky.work();
    }
    sky.said("serviceaccounttoken")
}

#[test]
fn a_token_that_lives_shorter_than_was_asked_for_is_one_all_the_same() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user_of(&[("token", None, 3_607)]));
    let asked = sky.said("serviceaccounttoken");
    let answer = given(&sky, &asked[0], "short", 600);
    sky.answer(&asked[0], &answer);
    sky.work();
    assert_eq!(sky.desk.running(), ["m"]);
    assert_eq!(files(&sky), [file("token", "short")]);
    assert_eq!(pass(&mut sky, 450).len(), 0, "it is good for a while");
    let again = pass(&mut sky, 40);
    assert_eq!(again.len(), 1, "after four fifths of its life");
    let answer = given(&sky, &again[0], "next", 600);
    sky.answer(&again[0], &answer);
    pass(&mut sky, 100);
    assert_eq!(files(&sky), [file("token", "next")]);
}

#[test]
fn what_old_api_servers_leave_out_of_a_token_is_known() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user_of(&[("token", None, 3_607)]));
    let asked = sky.said("serviceaccounttoken");
    let first = given(&sky, &asked[0], "first", 3_607);
    let mut first = first;
    assert_eq!(first["metadata"]["name"], Value::Null);
    first["spec"].as_object_mut().expect("a map").remove("boundObjectRef");
    sky.answer(&asked[0], &first);
    sky.work();
    assert_eq!(sky.desk.running(), ["m"]);
    assert_eq!(pass(&mut sky, 2_800).len(), 0);
    let again = pass(&mut sky, 100);
    assert_eq!(again.len(), 1);
    // It differs in nothing but its status.
    let next = given(&sky, &again[0], "next", 3_607);
    sky.answer(&again[0], &next);
    pass(&mut sky, 100);
    assert_eq!(files(&sky), [file("token", "next")]);
}

#[test]
fn tokens_of_one_life_for_the_api_server_and_for_another_are_told_apart() {
    let both = [("token", None, 3_607), ("vault", Some("vault"), 3_607)];
    let mut sky = Sky::new();
    sky.keeps = false;
    sky.push("insert", "ns/pod/p", &user_of(&both));
    sky.save();
    let asked = sky.said("serviceaccounttoken");
    assert_eq!(asked.len(), 2);
    let (of_vault, of_api): (Vec<_>, Vec<_>) =
        asked.iter().partition(|asked| content(asked)["spec"]["audiences"] == json!(["vault"]));
    let mut rows = vec![row("ns/pod/p", &user_of(&both))];
    for (asked, text) in [(of_vault[0], "of vault"), (of_api[0], "of the API server")] {
        let answer = given(&sky, asked, text, 3_607);
        sky.answer(asked, &answer);
        for change in sky.save() {
            let Change::Put(row) = change else { panic!("{change:?}") };
            rows.push(row);
        }
    }
    sky.keeps = true;
    sky.work();
    let files_both = [file("token", "of the API server"), file("vault", "of vault")];
    assert_eq!(files(&sky), files_both);
    // Where EdgeCore looks for what it would ask for.
    let bound = r#"v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"p", UID:"u1"}"#;
    for (at, audiences) in [(1, r#"[]string{"vault"}"#), (2, "[]string(nil)")] {
        assert_eq!(*rows[at].key, format!(r#""default"/"ns"/{audiences}/3607/{bound}"#));
        assert_eq!(&*rows[at].kind, "serviceaccounttoken");
        let value: Value = serde_json::from_str(&rows[at].value).expect("JSON");
        let of = (&value["metadata"]["name"], &value["metadata"]["namespace"]);
        assert_eq!(of, (&json!("default"), &json!("ns")));
    }
    // The next life, before it has a link.
    let mut sky = Sky::with(Saved { rows: rows.clone(), origin: StoreOrigin::Kept });
    sky.work();
    assert_eq!(files(&sky), files_both);
    // Of two that an EdgeCore kept nobody knows which is which.
    for row in &mut rows[1..] {
        let mut value: Value = serde_json::from_str(&row.value).expect("JSON");
        value.as_object_mut().expect("a map").remove("asked");
        row.value = value.to_string().into();
    }
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    sky.work();
    let asked = sky.said("serviceaccounttoken");
    assert_eq!(asked.len(), 1);
    assert_eq!(content(&asked[0])["spec"]["audiences"], Value::Null);
}

#[test]
fn by_a_clock_that_is_ahead_tokens_are_not_asked_for_without_a_pause() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user_of(&[("token", None, 600)]));
    let (mut count, mut before) = (0, None);
    for _ in 0..1_200 {
        for asked in sky.said("serviceaccounttoken") {
            count += 1;
            if let Some(before) = before.replace(asked.clone()) {
                assert_eq!(sky.wait_ms(&before, &asked), TOKEN_AGAIN_MS);
            }
            let now = sky.desk.now;
            sky.desk.now.wall = now.wall.map(|wall| Wall(wall.0 - 3_600_000));
            let answer = given(&sky, &asked, &format!("{count}"), 600);
            sky.desk.now = now;
            sky.answer(&asked, &answer);
        }
        sky.pass(500);
        sky.hear();
    }
    assert!((2..=4).contains(&count), "{count} in ten minutes");
}

#[test]
fn a_token_that_cannot_be_kept_is_waited_for_asleep() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user_of(&[("token", None, 600)]));
    let asked = sky.said("serviceaccounttoken");
    sky.keeps = false;
    let answer = given(&sky, &asked[0], "a", 600);
    sky.answer(&asked[0], &answer);
    for _ in 0..20 {
        if !sky.saves.is_empty() {
            sky.fail_save();
        }
        sky.pass(5_000);
        sky.hear();
    }
    assert_eq!(sky.said("serviceaccounttoken").len(), 0, "it is on its way to the disk");
}

/// What of the rows with these words the store is asked to delete.
fn deleted(sky: &mut Sky, words: &[&str]) -> Vec<usize> {
    let changes: Vec<Change> = sky.saves.drain(..).flat_map(|(_, changes)| changes).collect();
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
    for told in [user("p", "u1"), json!({"metadata": {"name": "p", "namespace": "ns"}})] {
        let mut sky = Sky::with(Saved { rows: rows(), origin: StoreOrigin::Kept });
        sky.connect();
        sky.keeps = false;
        sky.push("delete", "ns/pod/p", &told);
        assert_eq!(deleted(&mut sky, &words), [1, 1, 1, 0, 0, 0], "{told}");
    }
    // What goes by its name alone and is none of the pods takes nothing along.
    let mut sky = Sky::with(Saved { rows: rows(), origin: StoreOrigin::Kept });
    sky.connect();
    sky.keeps = false;
    for of in ["ns/configmap/p", "ns/pod/unknown"] {
        sky.push("delete", of, &json!({"metadata": {"name": "p", "namespace": "ns"}}));
        assert_eq!(deleted(&mut sky, &words), [0; 6], "{of}");
    }
}

#[test]
fn a_token_that_was_not_given_before_the_link_broke_is_asked_for_at_once_over_the_next() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user("p", "u1"));
    assert_eq!(sky.said("serviceaccounttoken").len(), 1);
    sky.disconnect();
    sky.pass(2_000);
    sky.connect();
    assert_eq!(sky.said("serviceaccounttoken").len(), 1);
}

#[test]
fn an_answer_without_a_token_is_none_and_it_is_asked_for_again() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user("p", "u1"));
    let mut empty = token("p", "u1");
    empty["status"]["token"] = json!("");
    for answer in [json!("OK"), empty] {
        let asked = sky.said("serviceaccounttoken");
        assert_eq!(asked.len(), 1);
        sky.answer(&asked[0], &answer);
        sky.work();
        assert_eq!(sky.desk.running(), [] as [&str; 0], "{answer}");
        let again = sky.next("serviceaccounttoken", 20_000);
        assert_eq!(sky.wait_ms(&asked[0], &again), QUERY_RETRY_MS, "{answer}");
        sky.sent.push(again);
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
        let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
        sky.connect();
        sky.pass(2_000);
        assert_eq!(sky.said("serviceaccounttoken").len(), 0, "{pod}");
    }
}

#[test]
fn of_two_tokens_each_is_replaced_in_its_own_time() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &user_of(&[("a", Some("a"), 3_607), ("b", Some("b"), 3_607)]));
    for (asked, seconds) in sky.said("serviceaccounttoken").iter().zip([2_000, 1_000]) {
        let answer = given(&sky, asked, "t", seconds);
        sky.answer(asked, &answer);
    }
    sky.work();
    assert_eq!(pass(&mut sky, 790).len(), 0);
    let again = pass(&mut sky, 30);
    assert_eq!(again.len(), 1, "the one that ends sooner");
    assert_eq!(content(&again[0])["spec"]["audiences"], json!(["b"]));
}

#[test]
fn a_token_that_is_here_is_not_asked_for_over_each_link_and_one_that_is_old_by_the_next_life() {
    let asked = json!({"audience": "", "seconds": 3_607});
    for (seconds, count) in [(3_000, 0), (300, 1)] {
        let mut here = token("p", "u1");
        let end = edged::model::time::Timestamp(1_800_000_000 + seconds).to_string();
        (here["asked"], here["status"]["expirationTimestamp"]) = (asked.clone(), json!(end));
        let rows = vec![row("ns/pod/p", &user("p", "u1")), row("x/serviceaccounttoken/y", &here)];
        let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
        for _ in 0..2 {
            sky.connect();
            assert_eq!(sky.said("serviceaccounttoken").len(), count, "{seconds}");
            sky.disconnect();
            sky.pass(2_000);
        }
    }
}
