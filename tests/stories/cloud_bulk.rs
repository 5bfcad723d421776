//! Messages of the cloud that would be far larger in memory than as a text.

use edged::limits::{Budget, STORE_KEY_BYTES_MAX};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, pod};

/// The refused messages, with the reasons.
fn refused(cloud: &mut CloudHarness) -> Vec<(String, String)> {
    let sent = std::mem::take(&mut cloud.sent);
    let refused = sent.iter().filter(|message| &*message.route.operation == "error");
    refused.map(|it| (it.header.parent_id.to_string(), content(it).to_string())).collect()
}

#[test]
fn what_is_nested_deeper_than_anybody_reads_is_not_kept_whatever_it_is() {
    let mut cloud = CloudHarness::new();
    let nested = |depth: usize| {
        let inner = format!("{}0{}", "[".repeat(depth), "]".repeat(depth));
        let more: Value = serde_json::from_str(&inner).expect("JSON");
        json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u"}, "more": more})
    };
    cloud.push("insert", "ns/thing/x", &nested(62));
    assert_eq!(refused(&mut cloud), []);
    let deep = cloud.push("insert", "ns/thing/x", &nested(63));
    let reported = refused(&mut cloud);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].0, deep);
    assert!(reported[0].1.contains("nested 64 deep, expected less than 64"), "{reported:?}");
}

#[test]
fn a_name_that_the_store_would_refuse_is_refused_and_holds_up_nothing() {
    let mut cloud = CloudHarness::new();
    let key = |bytes: usize| format!("ns/thing/{}", "x".repeat(bytes - "ns/thing/".len()));
    let thing = json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u"}});
    cloud.push("insert", &key(STORE_KEY_BYTES_MAX), &thing);
    assert_eq!(refused(&mut cloud), []);
    let long = cloud.push("insert", &key(STORE_KEY_BYTES_MAX + 1), &thing);
    let reported = refused(&mut cloud);
    assert_eq!((reported.len(), &reported[0].0), (1, &long), "{reported:?}");
    let got = format!("got a key of {} bytes with", STORE_KEY_BYTES_MAX + 1);
    assert!(reported[0].1.contains(&got), "{reported:?}");
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    assert_eq!(cloud.harness.agent.pods().count(), 1);
}

#[test]
fn it_is_refused_before_it_is_read() {
    let mut cloud = CloudHarness::new();
    let mut wide = pod("p", "u", 7);
    wide["spec"]["containers"] = Value::Array(vec![json!({}); Budget::FULL.pod_values_max]);
    let wide = cloud.push("insert", "ns/pod/p", &wide);
    let mut broad = json!({"metadata": {"name": "cm", "namespace": "ns"}});
    broad["more"] = Value::Array(vec![json!(0); Budget::FULL.message_values_max]);
    let broad = cloud.push("insert", "ns/configmap/cm", &broad);
    assert_eq!(cloud.harness.agent.pods().count(), 0);
    let reported = refused(&mut cloud);
    let ids: Vec<&str> = reported.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, [&wide, &broad], "{reported:?}");
    assert!(reported[0].1.contains("expected at most 8192"), "{reported:?}");
    assert!(reported[1].1.contains("expected at most 65536"), "{reported:?}");
    // The cloud makes it smaller: it is accepted.
    cloud.push("update", "ns/pod/p", &pod("p", "u", 8));
    assert_eq!(cloud.harness.agent.pods().count(), 1);
}
