//! `$(NAME)` in variables and words of a command. Input: the budget, then lines: `NAME=VALUE` for
//! variables in order, and at last a text. What is made stays within the budget, and is what a
//! plain reading of the rules makes.
#![no_main]

use std::collections::BTreeMap;

use edged::agent::pod::env::{Environment, references};
use edged::model::pod::EnvVar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [low, high, text @ ..] = data else { return };
    let bytes_max = usize::from(u16::from_be_bytes([*high, *low]));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (lines, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    let env: Vec<EnvVar> = pairs
        .map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: value.to_owned(),
            ..EnvVar::default()
        })
        .collect();
    let Ok(mut known) = Environment::written(&env, bytes_max) else { return };
    let mut plain = BTreeMap::new();
    for variable in &env {
        let value = expanded(&variable.value, &plain);
        plain.insert(variable.name.clone(), value);
    }
    for (name, value) in &plain {
        assert_eq!(known.value(name), Some(&**value));
    }
    let result = known.expand(last, &String::new);
    let mut sum = result.as_ref().map_or(0, String::len);
    if let Ok(text) = result {
        assert_eq!(text, expanded(last, &plain));
    }
    for (name, value) in known.into_list() {
        sum += name.len() + value.len();
        assert_eq!(plain.remove(&name), Some(value));
    }
    assert!(plain.is_empty() && sum <= bytes_max);
    assert!(references(last).iter().all(|name| last.contains(&format!("$({name})"))));
});

/// As Kubernetes' `third_party/forked/golang/expansion` does it, character by character.
fn expanded(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let inner = after.strip_prefix('(').filter(|_| first == '$');
        if let Some((name, after)) = inner.and_then(|inner| inner.split_once(')')) {
            match known.get(name) {
                Some(value) => made.push_str(value),
                None => made.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            made.push(first);
            rest = if first == '$' { after.strip_prefix('$').unwrap_or(after) } else { after };
        }
    }
    made
}
