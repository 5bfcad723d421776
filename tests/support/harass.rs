//! A hostile cloud: its messages try to exhaust a gateway's memory.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::cloud::Cloud;
use super::joined::pod;

/// A pod of the cloud that does nothing, and its resource.
pub fn idle(name: &str) -> (String, Value) {
    let container =
        json!([{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}]);
    let pod = pod(name, &json!({"hostNetwork": true, "containers": container}));
    (format!("default/pod/{name}"), pod)
}

/// Huge frames, deep JSON, floods, very many objects, slow transmissions. `links`: how often the
/// agent has dialled.
pub fn harass(cloud: &Cloud, mut links: usize) {
    // A frame of 2^40 bytes, and some of them.
    let mut frame = vec![0x81, 127];
    frame.extend((1_u64 << 40).to_be_bytes());
    frame.extend(vec![b'x'; 1 << 20]);
    // A message in frames that do not end.
    let mut endless = vec![0x01, 126, 0xff, 0xff];
    endless.extend(vec![b'['; 0xffff]);
    let part: Vec<u8> = [0x00, 126, 0xff, 0xff].into_iter().chain(vec![b'['; 0xffff]).collect();
    endless.extend(std::iter::repeat_n(part, 400).flatten());
    for bytes in [frame, endless] {
        cloud.raw(bytes);
        std::thread::sleep(Duration::from_secs(5));
        cloud.drop_link();
        links += 1;
        cloud.connected(links);
    }
    let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    cloud.send(&json!({"header": {"msg_id": "deep"}, "content": deep}));
    // Small as a text, large when decoded.
    let wide = |key: &str, one: &str| {
        let (_, mut pod) = idle("wide");
        pod["metadata"]["uid"] = json!("wide");
        pod["spec"][key] = json!(
            serde_json::from_str::<Vec<Value>>(&format!(
                "[{}{one}]",
                format!("{one},").repeat(1 << 20)
            ))
            .expect("JSON")
        );
        pod
    };
    for (key, one) in [("containers", "{}"), ("volumes", "{}"), ("more", "0")] {
        cloud.send(&json!({
            "header": {"msg_id": format!("wide-{key}"), "timestamp": 0},
            "route": {"source": "edgecontroller", "group": "resource", "operation": "insert",
                      "resource": "default/pod/wide"},
            "content": wide(key, one),
        }));
    }
    // Each within every limit, and few bytes as texts.
    for n in 0..100 {
        let (resource, mut pod) = idle(&format!("packed{n}"));
        pod["spec"]["containers"] = Value::Array(vec![json!({}); 1_500]);
        cloud.put(&resource, pod);
        let data: BTreeMap<String, &str> = (0..8_000).map(|key| (key.to_string(), "")).collect();
        cloud.put(&format!("default/configmap/crumbs{n}"), json!({"data": data}));
    }
    for n in 0..300 {
        let (resource, mut pod) = idle(&format!("many{n}"));
        pod["spec"]["nodeSelector"] = json!({"not": "here"});
        pod["spec"]["os"] = json!({"name": "windows"});
        pod["metadata"]["annotations"] = json!({"ballast": "x".repeat(64 << 10)});
        cloud.put(&resource, pod);
    }
    for n in 0..20_000 {
        cloud.send(&json!({
            "header": {"msg_id": format!("flood-{n}"), "timestamp": 0},
            "route": {"source": "edgecontroller", "group": "resource", "operation": "update",
                      "resource": format!("default/configmap/none-{n}")},
            "content": {"metadata": {"name": format!("none-{n}"), "namespace": "default"}},
        }));
    }
    std::thread::sleep(SETTLE);
    cloud.script(|script| script.drip = Some(Duration::from_millis(50)));
    let (resource, mut pod) = idle("slow");
    pod["metadata"]["annotations"] = json!({"ballast": "x".repeat(64 << 10)});
    cloud.put(&resource, pod);
    std::thread::sleep(SETTLE);
}

/// The messages have arrived, and have been processed.
const SETTLE: Duration = Duration::from_secs(20);
