//! The stream tunnel: messages between a real CloudCore and a real EdgeCore, written again byte by
//! byte, and cut everywhere.

use std::fs;

use edged::limits::TUNNEL_DATA_BYTES_MAX;
use edged::wire::tunnel::{Connect, ConnectError, Kind, Message, MessageError, Number};

use crate::golden::hex;
use crate::mutation::Dice;

/// A message as a capture has it.
struct Captured {
    file: String,
    id: u64,
    kind: Kind,
    /// `None`: the capture has shortened it.
    bytes: Option<Vec<u8>>,
    /// Of a request.
    json: Option<String>,
}

/// All messages of all captures, each of a line that names its id and its kind (`… = id 34, type 1
/// EXEC, …`), a line with its bytes, and a line with its data as text.
fn captured() -> Vec<Captured> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/stream");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the captures") {
        let path = entry.expect("a capture").path();
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !file.starts_with("tunnel-") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a capture is text");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some((_, about)) = line.split_once(" bytes = id ") else { continue };
            let words: Vec<&str> = about.split([' ', ',']).filter(|it| !it.is_empty()).collect();
            let kind = match words[3] {
                "LOGS" => Kind::Logs,
                "EXEC" => Kind::Exec,
                "METRIC" | "METRICS" => Kind::Metrics,
                "ATTACH" => Kind::Attach,
                "DATA" => Kind::Data,
                "REMOVE" => Kind::Remove,
                other => panic!("{file}: a kind that the captures do not have: {other}"),
            };
            let bytes = lines.next().and_then(|line| line.trim().strip_prefix("hex "));
            let bytes = bytes.filter(|it| !it.ends_with("(cut)")).map(hex);
            let data = lines.next().and_then(|line| line.trim().strip_prefix("txt "));
            let json = data.filter(|it| it.starts_with("{\"MessID\"")).map(str::to_owned);
            let id = words[0].parse().expect("an id");
            found.push(Captured { file: file.clone(), id, kind, bytes, json });
        }
    }
    assert!(found.len() > 200, "got {} messages, expected all", found.len());
    found
}

/// The requests that CloudCore wrote; those that were made by hand are spaced.
fn requests() -> Vec<Captured> {
    let mut all = captured();
    all.retain(|it| it.json.as_ref().is_some_and(|json| !json.contains("\": ")));
    assert!(all.len() >= 10, "got {} requests, expected all", all.len());
    all
}

fn encoded(id: u64, kind: Kind, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { id, kind, data }.encode(&mut bytes);
    bytes
}

#[test]
fn captured_messages_are_read_and_written_as_they_were() {
    for Captured { file, id, kind, bytes, json } in captured() {
        let Some(bytes) = bytes.or_else(|| Some(encoded(id, kind, json?.as_bytes()))) else {
            continue;
        };
        let message = Message::decode(&bytes).expect(&file);
        assert_eq!((message.id, message.kind), (id, kind), "{file}");
        assert_eq!(encoded(id, kind, message.data), bytes, "{file}");
    }
}

#[test]
fn the_requests_of_a_cloud_are_written_as_it_wrote_them() {
    let mut kinds = Vec::new();
    for Captured { file, id, kind, json, .. } in requests() {
        let json = json.expect("a request has its JSON");
        let connect = Connect::decode(json.as_bytes()).expect(&file);
        assert_eq!(connect.id, id, "{file}");
        let expected = if matches!(kind, Kind::Exec | Kind::Attach) { "POST" } else { "GET" };
        assert_eq!(connect.method, expected, "{file}");
        assert_eq!(String::from_utf8(connect.encode(kind)).expect("JSON"), json, "{file}");
        kinds.push(kind);
    }
    for kind in [Kind::Logs, Kind::Exec, Kind::Metrics, Kind::Attach] {
        assert!(kinds.contains(&kind), "no request of the kind {kind:?}");
    }
}

#[test]
fn a_request_is_what_was_asked_of_the_api_server() {
    let all = captured();
    let one = all.iter().find(|it| it.file == "tunnel-exec-exit3.txt" && it.json.is_some());
    let json = one.and_then(|it| it.json.as_deref()).expect("the request");
    let connect = Connect::decode(json.as_bytes()).expect("a request");
    assert_eq!((connect.id, &*connect.method), (34, "POST"));
    assert_eq!(connect.path, "/exec/default/p3/main");
    let query = "command=sh&command=-c&command=echo+out%3B+echo+err+%3E%262%3B+exit+3&error=1&\
                 output=1";
    assert_eq!(connect.query, query);
    assert_eq!(connect.target(), format!("/exec/default/p3/main?{query}"));
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let version = |value: &str| header("X-Stream-Protocol-Version", value);
    let expected = [
        header("Connection", "Upgrade"),
        header("Content-Length", "0"),
        header("Upgrade", "SPDY/3.1"),
        header("User-Agent", "Go-http-client/1.1"),
        version("v5.channel.k8s.io"),
        version("v4.channel.k8s.io"),
        version("v3.channel.k8s.io"),
        version("v2.channel.k8s.io"),
        version("channel.k8s.io"),
    ];
    assert_eq!(connect.headers, expected);
}

#[test]
fn a_cut_request_is_an_error_at_every_byte() {
    for Captured { file, kind, json, .. } in requests() {
        let json = json.expect("a request has its JSON");
        for end in 0..json.len() {
            let cut = Connect::decode(&json.as_bytes()[..end]);
            assert!(matches!(cut, Err(ConnectError::Json(_))), "{file} {kind:?} {end}: {cut:?}");
        }
    }
}

#[test]
fn damaged_requests_are_requests_or_errors() {
    let requests = requests();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut errors = 0;
    for round in 0..20_000 {
        let one = &requests[round % requests.len()];
        let json = one.json.as_ref().expect("a request has its JSON");
        let mut bytes = encoded(one.id, one.kind, json.as_bytes());
        dice.damage(&mut bytes);
        let connect = Message::decode(&bytes).ok().map(|message| Connect::decode(message.data));
        match connect {
            Some(Ok(connect)) => {
                let target = connect.target();
                assert!(!target.contains(['\r', '\n', '\0', ' ']), "{target:?}");
            }
            Some(Err(_)) | None => errors += 1,
        }
    }
    assert!((1_000..20_000).contains(&errors), "{errors} of 20000 are errors");
}

#[test]
fn numbers_have_one_to_ten_bytes() {
    for (text, id, kind, data) in [
        ("0004", 0, Kind::Remove, ""),
        ("0104", 1, Kind::Remove, ""),
        ("7f0361", 127, Kind::Data, "a"),
        ("80010361", 128, Kind::Data, "a"),
        ("ac0203", 300, Kind::Data, ""),
        ("ac0204", 300, Kind::Remove, ""),
        ("000578", 0, Kind::Close, "x"),
        ("01036f6b", 1, Kind::Data, "ok"),
        ("ffffffffffffffffff010400", u64::MAX, Kind::Remove, "\0"),
        ("0107", 1, Kind::Unknown(7), ""),
        ("01ffffffffffffffffff01", 1, Kind::Unknown(u64::MAX), ""),
    ] {
        let bytes = hex(text);
        let message = Message { id, kind, data: data.as_bytes() };
        assert_eq!(Message::decode(&bytes), Ok(message), "{text}");
        assert_eq!(encoded(id, kind, data.as_bytes()), bytes, "{text}");
        let head = bytes.len() - data.len();
        for end in 0..head {
            let cut = Message::decode(&bytes[..end]);
            assert!(matches!(cut, Err(MessageError::Cut(_))), "{text} {end}: {cut:?}");
        }
    }
    // Longer than needed, as any reader of base 128 takes it.
    let padded = Message::decode(&[0x81, 0x80, 0x00, 0x83, 0x00]);
    assert_eq!(padded, Ok(Message { id: 1, kind: Kind::Data, data: b"" }));
}

#[test]
fn what_is_no_message_is_refused() {
    for (text, error) in [
        ("", MessageError::Cut(Number::Id)),
        ("01", MessageError::Cut(Number::Kind)),
        ("80808080808080808080010400", MessageError::Overflow(Number::Id)),
        ("ffffffffffffffffff0204", MessageError::Overflow(Number::Id)),
        ("01ffffffffffffffffff02", MessageError::Overflow(Number::Kind)),
    ] {
        assert_eq!(Message::decode(&hex(text)), Err(error), "{text}");
    }
    let why = MessageError::Overflow(Number::Id).to_string();
    assert_eq!(why, "tunnel: got a longer number, expected an id of 64 bits");
}

#[test]
fn data_has_a_bound() {
    let most = vec![b'a'; TUNNEL_DATA_BYTES_MAX];
    let bytes = encoded(300, Kind::Data, &most);
    assert_eq!(Message::decode(&bytes).expect("as much as may be").data.len(), most.len());
    let bytes = [&bytes[..], b"a"].concat();
    assert_eq!(Message::decode(&bytes), Err(MessageError::Size(TUNNEL_DATA_BYTES_MAX + 1)));
}
