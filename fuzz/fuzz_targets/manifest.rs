//! Manifest files and the configuration: any bytes. What is read as a pod is written as JSON and
//! read as the same pod, and its review ends.
#![no_main]

use edged::agent::admit;
use edged::config::{Config, overlay};
use edged::wire::manifest::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = overlay(&mut Config::default(), data);
    for pod in parse(data).into_iter().flat_map(|content| content.pods) {
        let _ = admit::review(&pod);
        let mut json = serde_json::to_value(&pod).expect("a pod is plain data");
        json["apiVersion"] = "v1".into();
        json["kind"] = "Pod".into();
        let again = parse(json.to_string().as_bytes());
        assert_eq!(again, Ok(vec![pod].into()));
    }
});
