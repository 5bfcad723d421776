//! SPDY to a runtime's streaming server: what containerd was sent and what it answered, cut
//! everywhere, too large, and invalid.

use std::fs;

use edged::limits::{
    SPDY_DATA_BYTES, SPDY_FRAME_BYTES_MAX, SPDY_REASON_BYTES_MAX, SPDY_STATUS_BYTES_MAX,
};
use edged::wire::spdy::exec::{Exec, Outcome, Output, Wanted};
use edged::wire::spdy::forward::{Event, Forward};
use edged::wire::spdy::{Client, Incoming, Violation};

use crate::golden::hex;
use crate::mutation::Dice;

/// The bytes of a capture in one direction, after the head: `>>` to the server, `<<` from it.
pub fn captured(file: &str, arrow: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/stream/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).expect("the capture");
    let mut bytes = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.contains(&format!(" {arrow} ")) && line.ends_with(" bytes") {
            let line = lines.next().expect("the bytes follow");
            bytes.extend(hex(line.trim().strip_prefix("hex ").expect("hex")));
        }
    }
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    bytes.split_off(head)
}

const ALL: Wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };

/// A connection that reads its answers in these pieces.
trait Receive {
    fn piece(&mut self, bytes: &[u8]) -> Result<(usize, Option<String>), Violation>;

    fn all<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<String>, Violation> {
        let mut found: Vec<String> = Vec::new();
        for piece in pieces {
            let mut rest = piece;
            loop {
                let (taken, got) = self.piece(rest)?;
                rest = &rest[taken..];
                match got {
                    // The pieces of data are those in which they came.
                    Some(got) => match (found.last_mut(), got.split_once(": ")) {
                        (Some(last), Some((name, data)))
                            if last.split(": ").next() == Some(name) =>
                        {
                            last.push_str(data);
                        }
                        _ => found.push(got),
                    },
                    None if rest.is_empty() => break,
                    None => assert!(taken > 0, "it stands still"),
                }
            }
        }
        Ok(found)
    }
}

impl Receive for Exec {
    fn piece(&mut self, bytes: &[u8]) -> Result<(usize, Option<String>), Violation> {
        let (taken, output) = self.receive(bytes)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let output = output.map(|output| match output {
            Output::Stdout(bytes) => format!("out: {}", text(bytes)),
            Output::Stderr(bytes) => format!("err: {}", text(bytes)),
        });
        Ok((taken, output))
    }
}

impl Receive for Forward {
    fn piece(&mut self, bytes: &[u8]) -> Result<(usize, Option<String>), Violation> {
        let (taken, event) = self.receive(bytes)?;
        let event = event.map(|event| match event {
            Event::Data(id, bytes) => format!("{id}: {}", String::from_utf8_lossy(bytes)),
            Event::End(id) => format!("{id} ends"),
            Event::Failed(id, why) => format!("{id} failed, {why}"),
        });
        Ok((taken, event))
    }
}

impl Receive for Client {
    fn piece(&mut self, bytes: &[u8]) -> Result<(usize, Option<String>), Violation> {
        let (taken, incoming) = self.receive(bytes)?;
        Ok((taken, incoming.map(|incoming| format!("{incoming:?}"))))
    }
}

fn exec() -> Exec {
    let mut exec = Exec::new(ALL);
    exec.input(b"hello\n");
    exec.end_input();
    exec
}

#[test]
fn a_command_is_sent_as_containerd_took_it() {
    let exec = exec();
    assert_eq!(exec.output(), captured("containerd-spdy-exec.txt", ">>"));
    assert!(!exec.takes_input());
}

#[test]
fn a_command_ends_with_its_output_and_its_code() {
    let bytes = captured("containerd-spdy-exec.txt", "<<");
    let expected = ["out: hello\n", "err: err\n"].map(str::to_owned);
    for size in [1, 2, 3, 7, 100, bytes.len()] {
        let mut exec = exec();
        let got = exec.all(bytes.chunks(size)).expect("a real server's");
        assert_eq!(got, expected, "{size}");
        assert!(exec.is_finished());
        assert_eq!(exec.outcome(), Outcome::Exited(3), "{size}");
    }
}

#[test]
fn a_command_cut_anywhere_is_not_a_success() {
    let bytes = captured("containerd-spdy-exec.txt", "<<");
    let status = bytes.windows(9).position(|it| it == b"}]}}\x80\x03\x00\x03\x00");
    let status = status.expect("the status, and a reset behind it") + 4;
    for end in 0..bytes.len() {
        let mut exec = exec();
        exec.all([&bytes[..end]]).expect("a real server's");
        let expected = if end < status { Outcome::Lost } else { Outcome::Exited(3) };
        assert_eq!(exec.outcome(), expected, "{end}");
        // The stream of the status ends by a reset of 16 bytes.
        assert_eq!(exec.is_finished(), end >= status + 16, "{end}");
    }
}

#[test]
fn damaged_answers_end_in_an_outcome_or_an_error() {
    let bytes = captured("containerd-spdy-exec.txt", "<<");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut errors, mut lost) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        dice.damage(&mut bytes);
        let mut exec = exec();
        match exec.all([&bytes[..]]) {
            Ok(_) => lost += usize::from(exec.outcome() == Outcome::Lost),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 1_000 && lost > 1_000, "{errors} errors, {lost} lost");
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    [&stream.to_be_bytes()[..], &[flags], &length[1..], bytes].concat()
}

fn control(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&[0x80, 3][..], &kind.to_be_bytes(), &[flags], &length[1..], payload].concat()
}

/// How a command ends whose status is this.
fn ended(status: &[u8]) -> Outcome {
    let mut exec = Exec::new(ALL);
    let frames: Vec<u8> =
        status.chunks(SPDY_FRAME_BYTES_MAX / 2).flat_map(|it| data(1, 0, it)).collect();
    exec.all([&frames[..], &data(1, 1, b"")]).expect("frames");
    exec.outcome()
}

#[test]
fn a_status_says_how_a_command_ended() {
    let failed = |why: &str| Outcome::Failed(why.to_owned());
    let code = |text: &str| {
        format!(
            r#"{{"status":"Failure","reason":"NonZeroExitCode","message":"m","details":{{"causes":
                [{{"reason":"Other","message":"9"}},
                 {{"reason":"ExitCode","message":"{text}"}}]}}}}"#
        )
    };
    for (status, expected) in [
        (r#"{"metadata":{},"status":"Success"}"#, Outcome::Exited(0)),
        (&code("137"), Outcome::Exited(137)),
        // Not a number: what is left is its message.
        (&code("x"), failed("m")),
        (
            r#"{"status":"Failure","message":"no such file","reason":"InternalError"}"#,
            failed("no such file"),
        ),
        (r#"{"status":"Failure"}"#, failed("")),
        (r#"{"status":"Other"}"#, Outcome::Lost),
        ("{}", Outcome::Lost),
        ("[]", Outcome::Lost),
        ("", Outcome::Lost),
        ("no JSON", Outcome::Lost),
    ] {
        assert_eq!(ended(status.as_bytes()), expected, "{status}");
    }
    let long = |bytes: usize| {
        let head = r#"{"status":"Failure","message":""#;
        format!("{head}{}\"}}", "m".repeat(bytes - head.len() - 2))
    };
    assert!(matches!(ended(long(SPDY_STATUS_BYTES_MAX).as_bytes()), Outcome::Failed(_)));
    assert_eq!(ended(long(SPDY_STATUS_BYTES_MAX + 1).as_bytes()), Outcome::Lost);
}

#[test]
fn a_terminal_has_its_size_and_no_stream_for_errors() {
    let mut exec = Exec::new(Wanted { stderr: false, tty: true, ..ALL });
    let before = exec.output().len();
    exec.resize(111, 33);
    let size = br#"{"Width":111,"Height":33}"#;
    assert_eq!(exec.output()[before..], data(7, 0, size));
    let text = String::from_utf8_lossy(&exec.output()[..before]).into_owned();
    let names = ["error", "stdin", "stdout", "resize"];
    let at: Vec<_> = names.iter().map(|name| text.find(name).expect(name)).collect();
    assert!(at.is_sorted() && !text.contains("stderr"), "{text:?}");
    // The runtime gives a stream up: nothing is sent on it any more.
    exec.all([&control(3, 0, &[0, 0, 0, 3, 0, 0, 0, 5])[..]]).expect("a reset");
    let before = exec.output().len();
    exec.input(b"more");
    exec.end_input();
    assert_eq!((exec.output().len(), exec.takes_input()), (before, false));
}

#[test]
fn a_page_is_fetched_from_a_pod_as_containerd_took_it() {
    let mut forward = Forward::default();
    let id = forward.open(8080);
    forward.data(id, b"GET /demo-version HTTP/1.0\r\n\r\n");
    let sent = captured("containerd-spdy-portforward.txt", ">>");
    let mut output = forward.output().to_vec();
    // The capture's client did not end the stream of errors at once, as kubectl and we do.
    assert_eq!(output[4], 1);
    output[4] = 0;
    assert_eq!(output, sent);
    let bytes = captured("containerd-spdy-portforward.txt", "<<");
    for size in [1, 5, bytes.len()] {
        let mut forward = Forward::default();
        let id = forward.open(8080);
        let got = forward.all(bytes.chunks(size)).expect("a real server's");
        assert!(got[0].starts_with("3: HTTP/1.1 200 OK\r\n") && got[0].ends_with("\r\n\r\n1\n"));
        assert_eq!(got[1..], ["3 ends"]);
        assert!(forward.has(id), "we may still send");
        forward.end(id);
        assert!(!forward.has(id));
    }
}

#[test]
fn connections_to_ports_do_not_mix() {
    let mut forward = Forward::default();
    let ids: Vec<u32> = (0..3).map(|at| forward.open(80 + at)).collect();
    assert_eq!(ids, [3, 7, 11]);
    let text = String::from_utf8_lossy(forward.output()).into_owned();
    for request in ["requestid\0\0\0\u{1}0", "requestid\0\0\0\u{1}1", "requestid\0\0\0\u{1}2"] {
        assert_eq!(text.matches(request).count(), 2, "{text:?}");
    }
    forward.sent(forward.output().len());
    let got = forward.all([
        &data(7, 0, b"seven")[..],
        &data(3, 1, b"three"),
        // The second fails; what comes for it later is not passed on.
        &data(5, 0, b" connect: connection "),
        &data(5, 1, b"refused\n"),
        &data(7, 0, b"late"),
        // The third is reset, by either of its streams.
        &control(3, 0, &[0, 0, 0, 9, 0, 0, 0, 6]),
        &data(11, 0, b"late"),
    ]);
    let expected = [
        "7: seven",
        "3: three",
        "3 ends",
        "7 failed, connect: connection refused",
        "11 failed, got a reset, status 6",
    ];
    assert_eq!(got, Ok(expected.map(str::to_owned).to_vec()));
    assert_eq!(ids.iter().map(|id| forward.has(*id)).collect::<Vec<_>>(), [true, false, false]);
    // The failed one is given up, so that its server's side ends too.
    assert_eq!(forward.output(), control(3, 0, &[0, 0, 0, 7, 0, 0, 0, 5]));
    forward.sent(forward.output().len());
    forward.end(3);
    forward.data(3, b"after the end");
    assert_eq!(forward.output(), data(3, 1, b""));
    assert_eq!(forward.all([&data(1, 1, b"")[..]]), Ok(Vec::new()));
    assert!(!forward.has(3));
}

#[test]
fn a_connection_that_is_given_up_is_forgotten() {
    let mut forward = Forward::default();
    let id = forward.open(80);
    forward.sent(forward.output().len());
    forward.cancel(id);
    let resets =
        [control(3, 0, &[0, 0, 0, 3, 0, 0, 0, 5]), control(3, 0, &[0, 0, 0, 1, 0, 0, 0, 5])];
    assert_eq!(forward.output(), resets.concat());
    assert_eq!(forward.all([&data(3, 1, b"late")[..], &data(1, 1, b"late")]), Ok(Vec::new()));
    forward.cancel(id);
    assert_eq!(forward.output(), resets.concat());
}

#[test]
fn the_reason_of_a_failure_has_a_bound() {
    let mut forward = Forward::default();
    forward.open(80);
    let got = forward.all([&data(1, 1, &b"x".repeat(SPDY_REASON_BYTES_MAX + 1))[..]]);
    let why = "x".repeat(SPDY_REASON_BYTES_MAX);
    assert_eq!(got, Ok(vec![format!("3 failed, {why}")]));
}

#[test]
fn unknown_frames_are_skipped_and_pings_answered() {
    let mut client = Client::default();
    let bytes = [
        control(4, 0, &[0; 12]),
        control(9, 0, &[0; 8]),
        control(0x7fff, 1, b""),
        control(6, 0, &[0, 0, 0, 2]),
        // The answer to a ping that we did not send.
        control(6, 0, &[0, 0, 0, 1]),
        control(2, 0, &[0, 0, 0, 1, 9, 9]),
        control(2, 1, &[0, 0, 0, 3]),
        data(1, 0, b""),
        control(7, 0, &[0, 0, 0, 0, 0, 0, 0, 2]),
        // The server opens no streams.
        control(1, 0, &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0]),
    ]
    .concat();
    for size in [1, 3, bytes.len()] {
        let got = client.all(bytes.chunks(size));
        let expected = [Incoming::End(3), Incoming::GoAway(2)].map(|it| format!("{it:?}"));
        assert_eq!(got, Ok(expected.to_vec()));
        let pong = control(6, 0, &[0, 0, 0, 2]);
        let refusal = control(3, 0, &[0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(client.output(), [pong, refusal].concat());
        client.sent(client.output().len());
    }
}

#[test]
fn violations_are_named() {
    let largest = data(1, 0, &vec![0; SPDY_FRAME_BYTES_MAX]);
    assert_eq!(Client::default().all([&largest[..]]).map(|got| got.len()), Ok(1));
    let size = |bytes: usize| Err(Violation::Size(bytes));
    for (bytes, expected) in [
        (data(1, 0, &vec![0; SPDY_FRAME_BYTES_MAX + 1]), size(SPDY_FRAME_BYTES_MAX + 1)),
        (vec![0x80, 3, 0, 2, 0, 0xff, 0xff, 0xff], size(0xff_ffff)),
        (vec![0x80, 2, 0, 1, 0, 0, 0, 0], Err(Violation::Version(2))),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), size(0x31_2e31)),
        (control(1, 0, &[0; 3]), Err(Violation::Short(1, 3))),
        (control(2, 0, &[0; 3]), Err(Violation::Short(2, 3))),
        (control(3, 0, &[0; 7]), Err(Violation::Short(3, 7))),
        (control(6, 0, &[0; 3]), Err(Violation::Short(6, 3))),
        (control(7, 0, &[0; 7]), Err(Violation::Short(7, 7))),
    ] {
        let got = Client::default().all([&bytes[..]]);
        assert_eq!(got, expected, "{:02x?}", &bytes[..8]);
    }
    let why = Violation::Size(1 << 21).to_string();
    assert_eq!(why, "SPDY: got a frame of 2097152 bytes, expected at most 1048576");
}

#[test]
fn long_data_is_sent_in_pieces() {
    let mut client = Client::default();
    let id = client.open(&[("streamtype", "stdin")], false);
    client.sent(client.output().len());
    client.data(id, &vec![b'a'; SPDY_DATA_BYTES + 1]);
    let pieces = [data(1, 0, &vec![b'a'; SPDY_DATA_BYTES]), data(1, 0, b"a")];
    assert_eq!(client.output(), pieces.concat());
    client.data(id, b"");
    assert_eq!(client.output().len(), pieces.concat().len());
}
