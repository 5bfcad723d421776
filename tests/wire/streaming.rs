//! The server's end of exec, attach and port forwarding: real clients' bytes, cut everywhere, too
//! much, and invalid; and the clients of this program as the other end.

use edged::limits::{
    HTTP_HEAD_BYTES_MAX, SESSION_CONNECTIONS_MAX, SPDY_HEADERS_BYTES_MAX, STREAM_MESSAGE_BYTES_MAX,
    STREAM_SIZE_BYTES_MAX,
};
use edged::model::runtime::Pipes;
use edged::wire::spdy::exec::{Exec, Outcome, Output as Came, Wanted};
use edged::wire::spdy::forward::{Event, Forward as Peer};
use edged::wire::spdy::server::{Incoming as Spdy, Server};
use edged::wire::spdy::{Client, Violation as Wrong};
use edged::wire::streaming::Violation;
use edged::wire::streaming::command::{Command, Ended, Incoming, Output};
use edged::wire::streaming::forward::{Forward, Incoming as Port};
use edged::wire::streaming::upgrade::{Protocol, Purpose, Upgrade, upgrade};
use edged::wire::ws;

use crate::golden::hex;
use crate::mutation::Dice;
use crate::spdy::captured;

const ALL: Pipes = Pipes { stdin: true, stdout: true, stderr: true, tty: false };
const TTY: Pipes = Pipes { stdin: true, stdout: true, stderr: false, tty: true };

/// What a server is sent in these pieces.
fn spdy<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<String>, Wrong> {
    let (mut server, mut found): (Server, Vec<String>) = (Server::default(), Vec::new());
    for piece in pieces {
        let mut rest = piece;
        loop {
            let (taken, incoming) = server.receive(rest)?;
            rest = &rest[taken..];
            match incoming {
                Some(Spdy::Open(id, headers)) => {
                    found.push(format!("{id} {}", headers.get("streamtype")));
                }
                Some(Spdy::Data(id, bytes)) => {
                    let text = String::from_utf8_lossy(bytes);
                    match found.last_mut().filter(|last| last.starts_with(&format!("{id}: "))) {
                        Some(last) => last.push_str(&text),
                        None => found.push(format!("{id}: {text}")),
                    }
                }
                Some(other) => found.push(format!("{other:?}")),
                None if rest.is_empty() => break,
                None => assert!(taken > 0, "it stands still"),
            }
        }
    }
    Ok(found)
}

/// What kubectl sends (by Go's zlib, with the dictionary), as captured before a real kubelet.
fn kubectl() -> Vec<u8> {
    let frames = [
        "8003000100000029000000010000000000007",
        "8f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff",
        "800300010000001900000003000000000000c22ac5565c92925f5a02000000ffff",
    ];
    hex(&frames.concat())
}

#[test]
fn a_real_clients_streams_are_read_in_whatever_pieces() {
    let bytes = [kubectl(), hex("000000010100000080030006000000040000000f")].concat();
    let expected = ["1 error", "3 stdout", "End(1)"].map(str::to_owned);
    for size in [1, 2, 3, 7, bytes.len()] {
        assert_eq!(spdy(bytes.chunks(size)).expect("a real client's"), expected, "{size}");
    }
    // The ping is answered, its number being odd.
    let mut server = Server::default();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = &rest[server.receive(rest).expect("a real client's").0..];
    }
    assert_eq!(server.output(), hex("80030006000000040000000f"));
}

#[test]
fn a_clients_bytes_cut_anywhere_are_no_error_and_spoilt_ones_no_panic() {
    let bytes = [kubectl(), captured("containerd-spdy-exec.txt", ">>")].concat();
    for end in 0..bytes.len() {
        let got = spdy([&bytes[..end]]);
        // The second client's first stream comes again.
        assert!(got.is_ok() || end > kubectl().len(), "{end}: {got:?}");
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut errors = 0;
    for _ in 0..20_000 {
        let mut bytes = kubectl();
        dice.damage(&mut bytes);
        errors += usize::from(spdy([&bytes[..]]).is_err());
    }
    assert!(errors > 1_000, "{errors}");
}

/// A stream that is opened with this block of headers.
fn opens(id: u32, block: &[u8]) -> Vec<u8> {
    let length = (10 + block.len() as u32).to_be_bytes();
    let head = [&[0x80, 3, 0, 1, 0][..], &length[1..], &id.to_be_bytes(), &[0; 6]].concat();
    [&head, block].concat()
}

/// Stored deflate blocks of this text, with zlib's head and a flush.
fn block(text: &[u8]) -> Vec<u8> {
    let mut block = vec![0x78, 0x01];
    for piece in text.chunks(usize::from(u16::MAX)).chain([&b""[..]]) {
        let length = piece.len() as u16;
        block.push(0);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(piece);
    }
    block
}

fn list(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = (pairs.len() as u32).to_be_bytes().to_vec();
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[test]
fn headers_have_a_bound_packed_and_unpacked() {
    let of = |value: &str| list(&[("streamtype", value)]);
    let most = SPDY_HEADERS_BYTES_MAX - of("").len();
    let wrong = |bytes: &[u8]| spdy([bytes]).expect_err("it is wrong").to_string();
    // What frames it counts as well.
    let fits = opens(1, &block(&of(&"x".repeat(most - 12))));
    assert_eq!(spdy([&fits[..]]).expect("as long as may be").len(), 1);
    let long = format!("SPDY: headers: got a block of more than {SPDY_HEADERS_BYTES_MAX} bytes");
    assert_eq!(wrong(&opens(1, &block(&of(&"x".repeat(most - 11))))), long);
    assert_eq!(wrong(&opens(1, &block(&of(&"x".repeat(100_000))))), long);
    // 300,000 zeros in 300 bytes, as zlib packs them: fixed codes, matches of 258 bytes each.
    let mut packed = vec![0x78, 0x01];
    let (mut word, mut bits) = (0_u64, 0);
    let mut put = |value: u64, count: u32, packed: &mut Vec<u8>| {
        word |= value << bits;
        bits += count;
        while bits >= 8 {
            packed.push(word as u8);
            (word, bits) = (word >> 8, bits - 8);
        }
    };
    put(0b010, 3, &mut packed);
    // The literal 0, then symbol 285 and the distance 1.
    put(0b0000_1100, 8, &mut packed);
    for _ in 0..1_100 {
        put(0b1010_0011, 8, &mut packed);
        put(0, 5, &mut packed);
    }
    assert!(packed.len() < SPDY_HEADERS_BYTES_MAX);
    assert_eq!(wrong(&opens(1, &packed)), long);
}

#[test]
fn streams_that_are_opened_wrongly_end_the_connection() {
    let wrong = |bytes: &[u8]| spdy([bytes]).expect_err("it is wrong").to_string();
    let good = opens(3, &block(&list(&[("streamtype", "error")])));
    for (id, last) in [(2, 0), (0, 0)] {
        let text = format!("SPDY: got a stream with the id {id}, expected an odd one above {last}");
        assert_eq!(wrong(&opens(id, b"")), text);
    }
    assert_eq!(
        wrong(&[&good[..], &good].concat()),
        "SPDY: got a stream with the id 3, expected an odd one above 3"
    );
    for (block, why) in [
        (&b"\x79\x01"[..], "got 0x7901, expected zlib's head"),
        (b"\x78\xf9\0\0\0\0", "got the dictionary 0x0"),
        (b"\x78", "deflate: it is cut off"),
        (b"\x78\x01\x01\0\0\xff\xff", "got the end of their stream"),
        (b"\x78\x01\0\x01\0\xfe\xff", "deflate: it is cut off"),
        (&block(b"\0\0\0\x01"), "got no list of names and values"),
        (&block(&[&list(&[]), &b"x"[..]].concat()), "got no list of names and values"),
        (&block(b"\xff\xff\xff\xff"), "got no list of names and values"),
    ] {
        assert_eq!(wrong(&opens(1, block)), format!("SPDY: headers: {why}"), "{block:02x?}");
    }
    let short = hex("8003000100000004").into_iter().chain([0, 0, 0, 1]);
    assert!(wrong(&short.collect::<Vec<_>>()).contains("got 4 bytes in a frame of type 1"));
}

// ---- commands ----

/// What a client did, in words.
fn take(command: &mut Command, bytes: &[u8]) -> Result<Vec<String>, Violation> {
    let (mut rest, mut found) = (bytes, Vec::new());
    loop {
        let (taken, incoming) = command.receive(rest)?;
        rest = &rest[taken..];
        match incoming {
            Some(Incoming::Input(bytes)) => found.push(String::from_utf8_lossy(&bytes).into()),
            Some(other) => found.push(format!("{other:?}")),
            None if rest.is_empty() => return Ok(found),
            None => assert!(taken > 0, "it stands still"),
        }
    }
}

fn sent(command: &mut Command) -> Vec<u8> {
    let bytes = command.pending().to_vec();
    command.sent(bytes.len());
    bytes
}

fn outputs(exec: &mut Exec, mut bytes: &[u8]) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let (taken, output) = exec.receive(bytes).expect("SPDY");
        bytes = &bytes[taken..];
        match output {
            Some(Came::Stdout(piece)) => out.extend_from_slice(piece),
            Some(Came::Stderr(piece)) => err.extend_from_slice(piece),
            None => {}
        }
    }
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(out), text(err))
}

#[test]
fn a_command_over_spdy() {
    let mut exec = Exec::new(Wanted { stdin: true, stdout: true, stderr: true, tty: false });
    let mut command = Command::new(Protocol::Spdy(4), ALL);
    exec.input(b"hello\n");
    exec.end_input();
    let bytes = exec.output().to_vec();
    // All four streams must be there, and no byte is needed twice.
    let ready = (0..bytes.len()).find(|end| {
        let mut command = Command::new(Protocol::Spdy(4), ALL);
        take(&mut command, &bytes[..*end]).expect("SPDY");
        command.is_ready()
    });
    assert_eq!(ready, Some(bytes.len() - b"hello\n".len() - 16), "input and its end follow");
    assert_eq!(take(&mut command, &bytes).expect("SPDY"), ["hello\n", "EndOfInput"]);
    command.output(Output::Stdout, b"out");
    command.output(Output::Stderr, b"err");
    let first = outputs(&mut exec, &sent(&mut command));
    assert_eq!(first, ("out".to_owned(), "err".to_owned()));
    command.finish(&Ended::Exited(7));
    outputs(&mut exec, &sent(&mut command));
    assert!(exec.is_finished());
    assert_eq!(exec.outcome(), Outcome::Exited(7));
}

#[test]
fn how_a_command_ended_is_told_in_each_version() {
    let of = |version, ended: &Ended| {
        let mut exec = Exec::new(Wanted { stdin: false, stdout: true, stderr: false, tty: false });
        let pipes = Pipes { stdout: true, ..Pipes::default() };
        let mut command = Command::new(Protocol::Spdy(version), pipes);
        take(&mut command, exec.output()).expect("SPDY");
        command.finish(ended);
        let bytes = sent(&mut command);
        outputs(&mut exec, &bytes);
        (exec.outcome(), String::from_utf8_lossy(&bytes).into_owned())
    };
    let failed = Ended::Failed("no such file".to_owned());
    assert_eq!(of(4, &Ended::Exited(0)).0, Outcome::Exited(0));
    assert_eq!(of(4, &Ended::Exited(137)).0, Outcome::Exited(137));
    let Outcome::Failed(why) = of(4, &failed).0 else { panic!() };
    assert_eq!(why, "Internal error occurred: error executing command in container: no such file");
    assert!(of(3, &failed).1.contains(&why) && !of(3, &failed).1.contains('{'));
    assert!(of(3, &Ended::Exited(2)).1.contains("non-zero exit code: exit code 2"));
    let text = of(3, &Ended::Exited(0)).1;
    assert!(!text.contains("exit code") && !text.contains("Success"), "{text}");
}

#[test]
fn streams_that_were_not_asked_for_are_refused() {
    let mut client = Client::default();
    for kind in ["error", "stdout", "stdin", "stdout", "other", "resize"] {
        client.open(&[("streamtype", kind)], false);
    }
    let pipes = Pipes { stdout: true, ..Pipes::default() };
    let mut command = Command::new(Protocol::Spdy(4), pipes);
    assert_eq!(take(&mut command, client.output()).expect("SPDY"), [""; 0]);
    assert!(command.is_ready());
    let resets: Vec<u32> = sent(&mut command)
        .windows(16)
        .filter(|frame| frame.starts_with(&hex("8003000300000008")))
        .map(|frame| u32::from_be_bytes(frame[8..12].try_into().expect("four")))
        .collect();
    assert_eq!(resets, [5, 7, 9, 11]);
}

fn message(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ws::write(ws::Kind::Text, payload, [1, 2, 3, 4], &mut bytes);
    bytes
}

#[test]
fn a_command_over_websocket() {
    for (version, close) in [(4, &[][..]), (5, &["EndOfInput"][..])] {
        let mut command = Command::new(Protocol::WebSocket(version), TTY);
        assert!(command.is_ready());
        assert_eq!(sent(&mut command), hex("820101"), "it is connected");
        let bytes = [message(b"\0ls\n"), message(b"\xff\0"), message(b"\x07x")].concat();
        let expected: Vec<&str> = ["ls\n"].into_iter().chain(close.iter().copied()).collect();
        assert_eq!(take(&mut command, &bytes).expect("WebSocket"), expected, "{version}");
        command.output(Output::Stdout, b"out");
        command.output(Output::Stderr, b"a terminal has none");
        command.finish(&Ended::Exited(0));
        let status = b"\x03{\"metadata\":{},\"status\":\"Success\"}";
        let mut expected = hex("8204016f7574");
        expected.extend([0x82, status.len() as u8]);
        expected.extend(status);
        expected.extend(hex("880203e8"));
        assert_eq!(sent(&mut command), expected);
    }
    let mut command = Command::new(Protocol::WebSocket(4), ALL);
    sent(&mut command);
    let mut close = Vec::new();
    ws::write(ws::Kind::Ping, b"p", [0; 4], &mut close);
    ws::write(ws::Kind::Close, &[3, 0xe8], [0; 4], &mut close);
    assert_eq!(take(&mut command, &close).expect("WebSocket"), ["Left"]);
    assert_eq!(sent(&mut command), hex("8a0170880203e8"));
    // A gap in what a command is sent would be worse than an end.
    let mut command = Command::new(Protocol::WebSocket(4), ALL);
    let fits = message(&vec![0; STREAM_MESSAGE_BYTES_MAX]);
    assert_eq!(take(&mut command, &fits).expect("as long as may be").len(), 1);
    let long = message(&vec![0; STREAM_MESSAGE_BYTES_MAX + 1]);
    assert!(take(&mut command, &long).expect_err("too long").0.contains("expected 65536 at most"));
}

#[test]
fn the_last_whole_size_of_a_terminal_counts() {
    let of = |pieces: &[&str]| {
        let mut command = Command::new(Protocol::WebSocket(4), TTY);
        let mut found = Vec::new();
        for piece in pieces {
            let bytes = message(&[b"\x04", piece.as_bytes()].concat());
            found.extend(take(&mut command, &bytes).expect("WebSocket"));
        }
        found
    };
    let size = "Size { columns: 111, rows: 33 }";
    assert_eq!(of(&[r#"{"Width":111,"Height":33}"#]), [size]);
    assert_eq!(of(&[r#"{"Width":1"#, r#"11,"Height":33}"#]), [size]);
    assert_eq!(of(&[r#"{"Width":1,"Height":1}{"Width":111,"Height":33}"#]), [size]);
    assert_eq!(of(&[r#"{"Width":0,"Height":33}"#, r#"{"Width":70000,"Height":33}"#]), [""; 0]);
    assert_eq!(of(&["}", "{}", "{\"Width\":true}", r#"{"Width":111,"Height":33}"#]), [size]);
    let long = "x".repeat(STREAM_SIZE_BYTES_MAX);
    assert_eq!(of(&[&long, r#"{"Width":111,"Height":33}"#]), [size]);
}

// ---- ports ----

fn ports(forward: &mut Forward, bytes: &[u8]) -> Vec<String> {
    let (mut rest, mut found) = (bytes, Vec::new());
    loop {
        let (taken, incoming) = forward.receive(rest).expect("a client's");
        rest = &rest[taken..];
        match incoming {
            Some(Port::Data(id, bytes)) => {
                found.push(format!("{id}: {}", String::from_utf8_lossy(&bytes)));
            }
            Some(other) => found.push(format!("{other:?}")),
            None if rest.is_empty() => return found,
            None => assert!(taken > 0, "it stands still"),
        }
    }
}

fn forwarded(forward: &mut Forward) -> Vec<u8> {
    let bytes = forward.pending().to_vec();
    forward.sent(bytes.len());
    bytes
}

#[test]
fn connections_over_spdy() {
    let captured = captured("containerd-spdy-portforward.txt", ">>");
    let mut forward = Forward::new(Protocol::Spdy(1), &[]);
    let got = ports(&mut forward, &captured);
    assert_eq!(got[..2], ["Open(3, 8080)", "3: GET /demo-version HTTP/1.0\r\n\r\n"]);
    for end in 0..captured.len() {
        ports(&mut Forward::new(Protocol::Spdy(1), &[]), &captured[..end]);
    }
    let (mut peer, mut forward) = (Peer::default(), Forward::new(Protocol::Spdy(1), &[]));
    let (good, bad, given_up) = (peer.open(80), peer.open(81), peer.open(82));
    peer.data(good, b"hi");
    peer.end(good);
    peer.cancel(given_up);
    let mut expected: Vec<String> = [(good, 80), (bad, 81), (given_up, 82)]
        .map(|(id, port)| format!("Open({id}, {port})"))
        .into();
    expected.extend([format!("{good}: hi"), format!("End({good})"), format!("Cancel({given_up})")]);
    assert_eq!(ports(&mut forward, peer.output()), expected);
    forward.data(good, b"ho");
    forward.end(good);
    forward.close(good, None);
    forward.close(bad, Some("refused"));
    let bytes = forwarded(&mut forward);
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (taken, event) = peer.receive(rest).expect("SPDY");
        rest = &rest[taken..];
        events.extend(event.map(|event| format!("{event:?}")));
    }
    let expected = [
        format!("{:?}", Event::Data(good, b"ho")),
        format!("{:?}", Event::End(good)),
        format!("{:?}", Event::Failed(bad, "refused".to_owned())),
    ];
    assert_eq!(events, expected);
    assert!(!peer.has(good) && !peer.has(bad));
}

#[test]
fn connections_beyond_the_bound_and_half_ones_are_refused() {
    let (mut peer, mut forward) = (Peer::default(), Forward::new(Protocol::Spdy(1), &[]));
    for _ in 0..=SESSION_CONNECTIONS_MAX {
        peer.open(80);
    }
    assert_eq!(ports(&mut forward, peer.output()).len(), SESSION_CONNECTIONS_MAX);
    let mut client = Client::default();
    for (kind, port, request) in [
        ("data", "0", "1"),
        ("data", "x", "1"),
        ("other", "80", "1"),
        ("data", "80", "1"),
        ("data", "80", "1"),
        ("error", "80", "1"),
    ] {
        let headers = [("streamtype", kind), ("port", port), ("requestid", request)];
        client.open(&headers, false);
    }
    let mut forward = Forward::new(Protocol::Spdy(1), &[]);
    assert_eq!(ports(&mut forward, client.output()), ["Open(7, 80)"]);
}

#[test]
fn connections_over_websocket() {
    let mut forward = Forward::new(Protocol::WebSocket(4), &[8_080, 1]);
    assert_eq!(forwarded(&mut forward), hex("820300901f820301901f820302010082030301 00".trim()));
    let bytes = [message(b"\0hi"), message(b"\x01x"), message(b"\x04x"), message(b"\x02ho")];
    let expected = ["Open(0, 8080)", "Open(1, 1)", "0: hi", "1: ho"];
    assert_eq!(ports(&mut forward, &bytes.concat()), expected);
    forward.data(1, b"x");
    forward.close(1, Some("no"));
    assert_eq!(forwarded(&mut forward), hex("82020278 8203036e6f"));
    // Of so many each channel has a number in a byte.
    let mut forward = Forward::new(Protocol::WebSocket(4), &[80; 300]);
    assert_eq!(ports(&mut forward, b"").len(), 127);
}

// ---- upgrades ----

fn request(headers: &str) -> Vec<u8> {
    format!("GET /x HTTP/1.1\r\nHost: h\r\n{headers}\r\n")
        .replace('\n', "\r\n")
        .replace("\r\r", "\r")
        .into()
}

/// The answer to a request with these headers: the upgrade, or the refusal.
fn to(headers: &str, purpose: Purpose) -> Result<Upgrade, String> {
    let accept = |key: &[u8]| format!("made of {}", String::from_utf8_lossy(key));
    let bytes = request(&format!("Connection: keep-alive, Upgrade\n{headers}"));
    for end in 0..bytes.len() {
        assert_eq!(upgrade(&bytes[..end], purpose, accept), Ok(None), "{end}");
    }
    let granted = upgrade(&[&bytes[..], b"more"].concat(), purpose, accept);
    let granted = granted.map(|granted| granted.expect("it is complete"));
    assert!(granted.as_ref().is_ok_and(|it| it.head_bytes == bytes.len()) || granted.is_err());
    granted.map_err(|answer| String::from_utf8(answer).expect("text"))
}

fn by_spdy(versions: &str) -> String {
    format!("Upgrade: SPDY/3.1\nX-Stream-Protocol-Version: {versions}\n")
}

fn by_websocket(versions: &str) -> String {
    format!(
        "Upgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: \
         Rn99==\nSec-WebSocket-Protocol: {versions}\n"
    )
}

#[test]
fn the_first_known_protocol_of_a_client_is_taken() {
    for (versions, version) in [
        ("v4.channel.k8s.io", 4),
        ("v5.channel.k8s.io, v3.channel.k8s.io", 3),
        ("v5.channel.k8s.io\nX-Stream-Protocol-Version: v2.channel.k8s.io", 2),
        ("channel.k8s.io", 1),
    ] {
        let granted = to(&by_spdy(versions), Purpose::Command).expect(versions);
        assert_eq!(granted.protocol, Protocol::Spdy(version));
        assert!(granted.answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"));
        assert!(granted.answer.ends_with("channel.k8s.io\r\n\r\n"), "{}", granted.answer);
    }
    let granted = to(&by_spdy("portforward.k8s.io"), Purpose::Forward).expect("it is known");
    assert_eq!(granted.protocol, Protocol::Spdy(1));
    let both = by_websocket("v5.channel.k8s.io, v4.channel.k8s.io");
    let granted = to(&both, Purpose::Command).expect("it is known");
    assert_eq!(granted.protocol, Protocol::WebSocket(5));
    let accept = "\r\nSec-WebSocket-Accept: made of Rn99==\r\n";
    assert!(granted.answer.contains(accept), "{}", granted.answer);
    let granted = to(&by_websocket("v4.channel.k8s.io"), Purpose::Forward).expect("it is known");
    assert_eq!(granted.protocol, Protocol::WebSocket(4));
}

#[test]
fn a_request_that_cannot_be_granted_is_refused_with_its_reason() {
    let bad = "400 Bad Request";
    for (headers, purpose, status, why) in [
        ("", Purpose::Command, bad, "missing upgrade headers in request: got \"\""),
        ("Upgrade: h2c\n", Purpose::Command, bad, "got \"h2c\""),
        (
            "Upgrade: SPDY/3.1\n",
            Purpose::Command,
            bad,
            "unable to upgrade: X-Stream-Protocol-Version is required",
        ),
        (
            &by_spdy("v5.channel.k8s.io"),
            Purpose::Command,
            "403 Forbidden",
            "client supports [v5.channel.k8s.io], server accepts [v4.channel.k8s.io \
             v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]",
        ),
        (&by_spdy("v4.channel.k8s.io"), Purpose::Forward, "403 Forbidden", "[portforward.k8s.io]"),
        (
            "Upgrade: websocket\nSec-WebSocket-Protocol: v4.channel.k8s.io\n",
            Purpose::Command,
            bad,
            "no Sec-WebSocket-Key",
        ),
    ] {
        let answer = to(headers, purpose).expect_err(headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains(why), "{answer}");
    }
    let accept = |_: &[u8]| String::new();
    let long = [b"GET / HTTP/1.1\r\nX: ", &vec![b'x'; HTTP_HEAD_BYTES_MAX][..]].concat();
    let answer = upgrade(&long, Purpose::Command, accept).expect_err("it is too long");
    assert!(answer.starts_with(b"HTTP/1.1 431 "));
    assert!(upgrade(b"\x80\x03\r\n\r\n", Purpose::Command, accept).is_err());
}
