//! What a cloud sends that would become far more in memory than it is as a text.

use edged::limits::{Budget, STORE_KEY_BYTES_MAX};
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, content, pod};

/// What was refused, and why.
fn refused(sky: &mut Sky) -> Vec<(String, String)> {
    let sent = std::mem::take(&mut sky.sent);
    let refused = sent.iter().filter(|message| &*message.route.operation == "error");
    refused.map(|it| (it.header.parent_id.to_string(), content(it).to_string())).collect()
}

#[test]
fn what_is_nested_deeper_than_anybody_reads_is_not_kept_whatever_it_is() {
    let mut sky = Sky::new();
    let nested = |depth: usize| {
        let inner = format!("{}0{}", "[".repeat(depth), "]".repeat(depth));
        let more: Value = serde_json::from_str(&inner).expect("JSON");
        json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u"}, "more": more})
    };
    sky.push("insert", "ns/thing/x", &nested(62));
    assert_eq!(refused(&mut sky), []);
    let deep = sky.push("insert", "ns/thing/x", &nested(63));
    let told = refused(&mut sky);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, deep);
    assert!(told[0].1.contains("nested 64 deep, expected less than 64"), "{told:?}");
}

#[test]
fn a_name_that_the_store_would_refuse_is_refused_and_holds_up_nothing() {
    let mut sky = Sky::new();
    let key = |bytes: usize| format!("ns/thing/{}", "x".repeat(bytes - "ns/thing/".len()));
    let thing = json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u"}});
    sky.push("insert", &key(STORE_KEY_BYTES_MAX), &thing);
    assert_eq!(refused(&mut sky), []);
    let long = sky.push("insert", &key(STORE_KEY_BYTES_MAX + 1), &thing);
    let told = refused(&mut sky);
    assert_eq!((told.len(), &told[0].0), (1, &long), "{told:?}");
    let got = format!("got a name of {} bytes with", STORE_KEY_BYTES_MAX + 1);
    assert!(told[0].1.contains(&got), "{told:?}");
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    assert_eq!(sky.desk.agent.pods().count(), 1);
}

#[test]
fn it_is_refused_before_it_is_read() {
    let mut sky = Sky::new();
    let mut wide = pod("p", "u", 7);
    wide["spec"]["containers"] = Value::Array(vec![json!({}); Budget::FULL.pod_values_max]);
    let wide = sky.push("insert", "ns/pod/p", &wide);
    let mut broad = json!({"metadata": {"name": "cm", "namespace": "ns"}});
    broad["more"] = Value::Array(vec![json!(0); Budget::FULL.message_values_max]);
    let broad = sky.push("insert", "ns/configmap/cm", &broad);
    assert_eq!(sky.desk.agent.pods().count(), 0);
    let told = refused(&mut sky);
    let ids: Vec<&str> = told.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, [&wide, &broad], "{told:?}");
    assert!(told[0].1.contains("expected at most 8192"), "{told:?}");
    assert!(told[1].1.contains("expected at most 65536"), "{told:?}");
    // The cloud makes it smaller: all is well.
    sky.push("update", "ns/pod/p", &pod("p", "u", 8));
    assert_eq!(sky.desk.agent.pods().count(), 1);
}
