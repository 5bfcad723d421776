//! Messages between edge and cloud, compared with those of the real CloudCore and EdgeCore.

use std::fs;

use edged::limits::MESSAGE_BYTES_MAX;
use edged::model::message::inner;
use edged::model::message::{Header, Message, Resource, Route};
use edged::wire::edge::{MessageError, content, decode, encode};

use crate::mutation::Dice;

/// One line for each websocket message of the captured conversations, without its direction.
pub fn captured() -> Vec<String> {
    let folder = format!("{}/tests/golden/edge", env!("CARGO_MANIFEST_DIR"));
    let mut lines = Vec::new();
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}")) {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("text");
        for line in text.lines() {
            let message = line.strip_prefix("> ").or_else(|| line.strip_prefix("< "));
            lines.push(format!("{}\n", message.expect("a direction")));
        }
    }
    assert!(lines.len() > 50, "got {} messages, which test little", lines.len());
    lines
}

#[test]
fn every_captured_message_is_read_and_written_again_to_the_byte() {
    for line in captured() {
        let message = decode(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(String::from_utf8(encode(&message)).expect("text"), line);
    }
}

#[test]
fn a_captured_message_that_is_cut_is_refused_with_the_place() {
    for line in captured().iter().take(6) {
        for end in 0..line.len() - 2 {
            let error = decode(&line.as_bytes()[..end]).expect_err("it is cut");
            let MessageError::Json { line: 1, column, .. } = error else { panic!("{error}") };
            assert!(column <= end, "{error}");
        }
    }
}

#[test]
fn spoilt_messages_are_refused_or_read_but_harm_nothing() {
    for line in captured().iter().take(6) {
        let mut dice = Dice(0x5eed);
        for _ in 0..500 {
            let mut bytes = line.clone().into_bytes();
            dice.damage(&mut bytes);
            if let Ok(message) = decode(&bytes) {
                let repeated = decode(&encode(&message)).expect("what we write can be read");
                assert_eq!((repeated.header, repeated.route), (message.header, message.route));
            }
        }
    }
}

#[test]
fn the_keepalive_is_written_as_edgecore_writes_it() {
    let message = Message {
        header: Header {
            id: "5ac8a0d6-2f5d-4f2a-9a57-5f0f3c0f1b11".into(),
            timestamp_ms: 1_700_000_000_000,
            ..Header::default()
        },
        route: Route {
            source: "websocket".into(),
            group: "resource".into(),
            operation: "keepalive".into(),
            resource: "node".into(),
        },
        content: Some(content("ping")),
    };
    let bytes = encode(&message);
    assert_eq!(bytes.len(), 196);
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.ends_with("\"resource\":\"node\"},\"content\":\"ping\"}\n"), "{text}");
}

#[test]
fn what_go_escapes_is_escaped_and_nothing_else() {
    assert_eq!(
        content("a<b>&\u{2028}\u{2029}é\"\\\n").get(),
        r#""a\u003cb\u003e\u0026\u2028\u2029é\"\\\n""#
    );
}

#[test]
fn unknown_fields_and_what_follows_the_value_are_ignored_and_missing_ones_are_empty() {
    let text = r#"{"header":{"sync":true,"type":"x"},"new":1} {"header":3}"#;
    let message = decode(text.as_bytes()).expect("as Go reads it");
    assert_eq!(message.header, Header::default());
    assert_eq!(message.route, Route::default());
    assert!(message.content.is_none());
}

#[test]
fn a_text_with_json_in_it_counts_as_that_json() {
    let object = content(&serde_json::json!({"a": "<"}));
    let text = content(object.get());
    assert_eq!(inner(&object), r#"{"a":"\u003c"}"#);
    assert_eq!(inner(&text), inner(&object));
}

#[test]
fn shapes_that_are_wrong_are_told_with_what_was_got_and_expected() {
    let text = |text: &str| decode(text.as_bytes()).expect_err(text).to_string();
    assert_eq!(
        text("{\"header\":{\"msg_id\":5}}"),
        "message, line 1, column 21: invalid type: integer `5`, expected a string"
    );
    assert_eq!(text(""), "message, line 1, column 0: EOF while parsing a value");
    let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
    assert_eq!(decode(&long).expect_err("too long"), MessageError::Size(MESSAGE_BYTES_MAX + 1));
}

#[test]
fn content_of_any_depth_is_carried_and_never_overflows_the_stack() {
    let deep = format!("{{\"content\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let message = decode(deep.as_bytes()).expect("its content is not looked into");
    assert_eq!(message.content.expect("it has one").get().len(), 2 << 20);
}

#[test]
fn resource_strings_are_taken_apart_and_put_together_again() {
    let parse = Resource::parse;
    let pod = Resource { namespace: Some("default"), kind: "pod", name: "p1" };
    let node = Resource { namespace: None, kind: "node", name: "edge1" };
    let list = Resource { namespace: Some("default"), kind: "podlist", name: "" };
    for (text, resource) in
        [("default/pod/p1", pod), ("null/node/edge1", node), ("default/podlist", list)]
    {
        assert_eq!(parse(text), Some(resource), "{text}");
        assert_eq!(resource.to_string(), text);
    }
    for special in ["node", "", "membership/", "/pod/p1", "a/b/c/d", "device/ns/name/twin"] {
        assert_eq!(parse(special), None, "{special}");
    }
}
