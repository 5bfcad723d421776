//! Writes JSON as YAML, as kubectl prints it.

use std::fmt::Write;

use serde_json::Value;

/// The document.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => object(value, 0, &mut text),
        Value::Array(list) if !list.is_empty() => array(value, 0, &mut text),
        _ => {
            scalar(value, &mut text);
            text.push('\n');
        }
    }
    text
}

/// Its first line continues where the text ends.
fn object(value: &Value, indent: usize, text: &mut String) {
    for (at, (key, value)) in value.as_object().into_iter().flatten().enumerate() {
        if at > 0 {
            let _ = write!(text, "{:indent$}", "");
        }
        string(key, text);
        text.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                let _ = write!(text, "\n{:1$}", "", indent + 2);
                object(value, indent + 2, text);
            }
            Value::Array(list) if !list.is_empty() => {
                let _ = write!(text, "\n{:indent$}", "");
                array(value, indent, text);
            }
            _ => {
                text.push(' ');
                scalar(value, text);
                text.push('\n');
            }
        }
    }
}

/// The same.
fn array(value: &Value, indent: usize, text: &mut String) {
    for (at, value) in value.as_array().into_iter().flatten().enumerate() {
        if at > 0 {
            let _ = write!(text, "{:indent$}", "");
        }
        text.push_str("- ");
        match value {
            Value::Object(map) if !map.is_empty() => object(value, indent + 2, text),
            Value::Array(list) if !list.is_empty() => array(value, indent + 2, text),
            _ => {
                scalar(value, text);
                text.push('\n');
            }
        }
    }
}

fn scalar(value: &Value, text: &mut String) {
    match value {
        Value::String(word) => string(word, text),
        // Empty lists and maps, numbers and the rest look the same in both.
        _ => {
            let _ = write!(text, "{value}");
        }
    }
}

/// Quoted unless every reader takes it for a string.
fn string(word: &str, text: &mut String) {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let bare = begins
        && word.bytes().all(plain)
        && !WORDS.iter().any(|known| word.eq_ignore_ascii_case(known));
    if bare {
        text.push_str(word);
        return;
    }
    text.push('"');
    for c in word.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            // YAML requires unprintable characters to be escaped; a terminal does as well.
            c if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{feff}') => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::tree::to_json;
    use crate::wire::tree;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let value = json!({
            "kind": "Pod", "items": [{"a": 1, "b": {"c": [], "d": {}}}, [1, ["x"]], {}, "", null],
            "on": "yes", "time": "2025-11-20T19:29:11Z", "12": "0x10", "bare": "registry.k8s.io/a",
            "odd": ["a: b", "#c", "- d", "e\n\u{1b}f\u{202e}", "\"g\\", "~", "1e3", "*x", "é"],
            "flag": true, "number": -1.5, "image": "i:1",
        });
        let text = text(&value);
        let read = tree::parse(text.as_bytes()).expect(&text);
        assert_eq!(to_json(&read[0]), value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn it_looks_as_kubectls() {
        let value = json!({"kind": "Pod", "spec": {"containers": [{"image": "i", "name": "c"}]}});
        assert_eq!(text(&value), "kind: Pod\nspec:\n  containers:\n  - image: i\n    name: c\n");
    }
}
