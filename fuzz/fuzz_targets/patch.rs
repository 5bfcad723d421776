//! Patches of nodes: any object and any patch, as JSON with a zero byte between. A merge patch that
//! is applied again changes nothing, and no patch nests deeper than what it was made of.
#![no_main]

use edged::controller::local::patch;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fuzz_target!(|data: &[u8]| {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (old, with) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes);
    let (Ok(old), Ok(with)) = (read(old), read(with)) else { return };
    let most = depth(&old).max(depth(&with));
    let mut merged = old.clone();
    patch::merge(&mut merged, &with);
    assert!(depth(&merged) <= most);
    let once = merged.clone();
    patch::merge(&mut merged, &with);
    assert_eq!(merged, once);
    let mut target = old;
    if patch::strategic(&mut target, &with).is_ok() {
        assert!(depth(&target) <= most);
    }
});
