//! Answers to HTTP probes: whole, in pieces, cut and damaged; and their results.

use edged::limits::{
    PROBE_BODY_BYTES_MAX, PROBE_REDIRECTS_MAX, RESPONSE_CHUNK_LINE_BYTES_MAX,
    RESPONSE_HEAD_BYTES_MAX, RESPONSE_HEADERS_MAX,
};
use edged::model::net::{Expects, Finding, HttpQuery, Query};
use edged::wire::http1::response::Fault;
use edged::wire::probe::{Exchange, Outcome, Reader, dial_failed, timed_out};

fn query(expects: Expects) -> HttpQuery {
    HttpQuery {
        tls: false,
        host: "10.0.0.5".into(),
        port: 8080,
        target: "/healthz?x=1".to_owned(),
        headers: vec![("User-Agent".to_owned(), "kube-probe/1.32".to_owned())],
        expects,
    }
}

fn get() -> Exchange {
    Exchange::new(&Query::Http(Box::new(query(Expects::Success)))).expect("built in")
}

fn finding(outcome: Option<Outcome>) -> Finding {
    match outcome {
        Some(Outcome::Done(finding)) => finding,
        other => panic!("{other:?}"),
    }
}

/// Answers of real servers, with the parts that a probe reads.
fn golden() -> Vec<(&'static [u8], u16, &'static [u8])> {
    vec![
        // busybox httpd
        (
            b"HTTP/1.1 200 OK\r\nDate: Thu, 20 Nov 2025 10:00:00 GMT\r\nConnection: close\r\n\
              Content-type: text/html\r\nContent-Length: 3\r\n\r\nok\n",
            200,
            b"ok\n",
        ),
        // Go's net/http with a handler that flushes
        (
            b"HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\n\
              Connection: close\r\n\r\n5\r\nerror\r\n3;x=y\r\n: 1\r\n0\r\n\r\n",
            500,
            b"error: 1",
        ),
        // HTTP/1.0, the end of the connection ends it
        (b"HTTP/1.0 404 File not found\r\nServer: SimpleHTTP/0.6\r\n\r\n<html>", 404, b"<html>"),
        // Interim answers come first.
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            204,
            b"",
        ),
        // Bare newlines, no reason
        (b"HTTP/1.1 200\nContent-Length: 0\n\n", 200, b""),
    ]
}

#[test]
fn real_answers_read_the_same_however_they_arrive() {
    for (bytes, status, body) in golden() {
        for size in [1, 2, 3, 7, bytes.len()] {
            let mut reader = Reader::default();
            for piece in bytes.chunks(size) {
                reader.receive(piece).expect("an answer");
            }
            let complete = reader.end();
            assert!(complete, "{status} in pieces of {size}");
            let got = reader.response().expect("a head");
            assert_eq!((got.status, &*got.body), (status, body), "in pieces of {size}");
        }
    }
}

#[test]
fn an_answer_that_is_cut_is_never_taken_for_a_whole_one() {
    for (bytes, status, _) in golden() {
        // The end of the connection is the end of this answer, once its head is complete.
        let head = if status == 404 { bytes.len() - b"<html>".len() } else { bytes.len() };
        for end in 0..head {
            let mut exchange = get();
            if let Some(outcome) = exchange.receive(&bytes[..end]) {
                // The bytes after the last chunk's size are ignored.
                let last = b"\r\n0\r\n";
                let found = bytes[..end].windows(last.len()).any(|part| part == last);
                assert!(found, "{end}: {outcome:?}");
            } else {
                let why = finding(Some(exchange.ended("EOF")));
                assert!(matches!(&why, Finding::Bad(why) if why.ends_with("EOF")), "{why:?}");
            }
        }
    }
}

#[test]
fn what_is_not_http_is_told_by_its_first_line() {
    for (bytes, why) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "malformed HTTP response \"SSH-2.0-OpenSSH_9.2\""),
        (b"\x15\x03\x01\x00\x02\x02\x16", "malformed HTTP response"),
        (b"HTTP/1.1 abc\r\n\r\n", "malformed HTTP response \"HTTP/1.1 abc\""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "bad Content-Length"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "bad Content-Length",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "invalid byte in chunk length",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            "malformed chunked encoding",
        ),
    ] {
        let Finding::Bad(text) = finding(get().receive(bytes)) else { panic!("{why}") };
        let prefix = "Get \"http://10.0.0.5:8080/healthz?x=1\": net/http: HTTP/1.x transport \
                      connection broken: ";
        assert!(text.starts_with(&format!("{prefix}{why}")), "{text}");
    }
}

#[test]
fn heads_and_bodies_have_bounds() {
    let mut reader = Reader::default();
    let filler = vec![b'a'; RESPONSE_HEAD_BYTES_MAX + 64];
    let head = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &filler].concat();
    assert_eq!(reader.receive(&head), Err(Fault::HeadTooLarge));
    for (count, expected) in [
        (RESPONSE_HEADERS_MAX, Ok(false)),
        (RESPONSE_HEADERS_MAX + 1, Err(Fault::HeadTooLarge)),
        (1_000, Err(Fault::HeadTooLarge)),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(count));
        assert_eq!(Reader::default().receive(head.as_bytes()), expected, "{count}");
    }
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (bytes, expected) in [
        (RESPONSE_CHUNK_LINE_BYTES_MAX, Ok(false)),
        (RESPONSE_CHUNK_LINE_BYTES_MAX + 1, Err(Fault::ChunkLine)),
    ] {
        let mut reader = Reader::default();
        assert_eq!(reader.receive(chunked), Ok(false));
        let line = format!("1;{}", "x".repeat(bytes - 2));
        assert_eq!(reader.receive(line.as_bytes()), expected, "{bytes}");
    }
    for head in ["Content-Length: 99999999999", "Transfer-Encoding: chunked", "X: y"] {
        let mut reader = Reader::default();
        let start = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        reader.receive(start.as_bytes()).expect("a head");
        let mut complete = false;
        for _ in 0..PROBE_BODY_BYTES_MAX {
            let chunk = if head.starts_with('T') { &b"2\r\nab\r\n"[..] } else { b"ab" };
            complete = reader.receive(chunk).expect("more");
            if complete {
                break;
            }
        }
        assert!(complete, "{head}: enough is enough");
        assert_eq!(reader.response().map(|it| it.body.len()), Some(PROBE_BODY_BYTES_MAX));
    }
}

/// Every byte damaged in every relevant way: no panic, no limit exceeded.
#[test]
fn spoilt_answers_do_no_harm() {
    for (bytes, _, _) in golden() {
        for at in 0..bytes.len() {
            for value in [0, b'\n', b'\r', b' ', b'f', 0xff, bytes[at] ^ 1] {
                let mut spoilt = bytes.to_vec();
                spoilt[at] = value;
                let mut exchange = get();
                if exchange.receive(&spoilt).is_none() {
                    exchange.ended("EOF");
                }
            }
        }
    }
}

#[test]
fn statuses_are_judged_as_the_kubelet_does() {
    for (status, expected) in [
        (200, Finding::Good),
        (299, Finding::Good),
        (304, Finding::Warning("Probe terminated redirects, Response body: ".to_owned())),
        (400, Finding::Bad("HTTP probe failed with statuscode: 400".to_owned())),
        (503, Finding::Bad("HTTP probe failed with statuscode: 503".to_owned())),
        (101, Finding::Bad("HTTP probe failed with statuscode: 101".to_owned())),
    ] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(finding(get().receive(answer.as_bytes())), expected, "{status}");
    }
    let mut hook = Exchange::new(&Query::Http(Box::new(query(Expects::Answer)))).expect("built in");
    let answer = b"HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(finding(hook.receive(answer)), Finding::Good, "any answer, without its body");
}

#[test]
fn redirects_stay_on_the_host_and_end() {
    let to = |location: &str| {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 2\r\n\r\nhi")
    };
    let mut exchange = get();
    for hop in 1..PROBE_REDIRECTS_MAX {
        let outcome = exchange.receive(to(&format!("/{hop}")).as_bytes());
        let Some(Outcome::Follow(next)) = outcome else { panic!("{hop}: {outcome:?}") };
        assert_eq!((next.port, &*next.target), (8080, &*format!("/{hop}")));
        exchange = exchange.follow(next);
        let request = String::from_utf8_lossy(exchange.output()).into_owned();
        assert!(request.starts_with(&format!("GET /{hop} HTTP/1.1\r\n")), "{request}");
    }
    let last = finding(exchange.receive(to("/more").as_bytes()));
    let why = format!(
        "Get \"http://10.0.0.5:8080/{}\": stopped after {PROBE_REDIRECTS_MAX} redirects",
        PROBE_REDIRECTS_MAX - 1
    );
    assert_eq!(last, Finding::Bad(why));
    let elsewhere = finding(get().receive(to("http://0.0.0.0/").as_bytes()));
    let why = "Probe terminated redirects, Response body: hi".to_owned();
    assert_eq!(elsewhere, Finding::Warning(why));
    // Another port of the same host is the same host.
    assert!(matches!(
        get().receive(to("http://10.0.0.5:1/").as_bytes()),
        Some(Outcome::Follow(next)) if next.port == 1
    ));
}

#[test]
fn the_request_says_what_the_kubelets_says() {
    let mut query = query(Expects::Success);
    query.headers.push(("X-A".to_owned(), "1\r\nEvil: 2".to_owned()));
    query.target = "/a b".to_owned();
    let exchange = Exchange::new(&Query::Http(Box::new(query.clone()))).expect("built in");
    assert_eq!(
        String::from_utf8_lossy(exchange.output()),
        "GET /a%20b HTTP/1.1\r\nHost: 10.0.0.5:8080\r\nUser-Agent: kube-probe/1.32\r\n\
         X-A: 1  Evil: 2\r\nConnection: close\r\n\r\n"
    );
    query.headers = vec![("host".to_owned(), "me.example".to_owned())];
    let exchange = Exchange::new(&Query::Http(Box::new(query))).expect("built in");
    let request = String::from_utf8_lossy(exchange.output()).into_owned();
    assert_eq!(request.matches("ost: me.example").count(), 1, "{request}");
}

#[test]
fn what_goes_wrong_on_the_way_is_said_as_go_says_it() {
    let http = Query::Http(Box::new(query(Expects::Success)));
    let tcp = Query::Tcp { host: "fd00::5".into(), port: 80 };
    let grpc =
        Query::Grpc { host: "10.0.0.5".into(), port: 5000, service: "".into(), timeout_s: 2 };
    let refused = "connect: connection refused";
    let url = "Get \"http://10.0.0.5:8080/healthz?x=1\"";
    for (got, expected) in [
        (
            dial_failed(&http, None, refused),
            format!("{url}: dial tcp 10.0.0.5:8080: connect: connection refused"),
        ),
        (
            dial_failed(&tcp, None, refused),
            "dial tcp [fd00::5]:80: connect: connection refused".to_owned(),
        ),
        (timed_out(&tcp, None, false), "dial tcp [fd00::5]:80: i/o timeout".to_owned()),
        (
            timed_out(&http, None, true),
            format!(
                "{url}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ),
        ),
        (
            timed_out(&grpc, None, false),
            "timeout: failed to connect service \"10.0.0.5:5000\" within 2s: context deadline \
             exceeded"
                .to_owned(),
        ),
        (timed_out(&grpc, None, true), "timeout: health rpc did not complete within 2s".to_owned()),
    ] {
        assert_eq!(got, Finding::Bad(expected));
    }
}

#[cfg(feature = "probes")]
mod health {
    use edged::limits::PROBE_GRPC_WINDOW_BYTES;

    use super::{Exchange, Finding, Outcome, Query, finding};
    use crate::peer;

    fn new_exchange() -> Exchange {
        let query =
            Query::Grpc { host: "10.0.0.5".into(), port: 5000, service: "db".into(), timeout_s: 1 };
        let exchange = Exchange::new(&query).expect("built in");
        let output = exchange.output();
        assert!(output.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        let holds = |part: &[u8]| output.windows(part.len()).any(|window| window == part);
        assert!(holds(b"/grpc.health.v1.Health/Check") && holds(b"10.0.0.5:5000"));
        assert!(holds(b"kube-probe/1.32") && holds(b"\x0a\x02db"), "the service is asked for");
        exchange
    }

    fn health_finding(status: &[u8]) -> Finding {
        let mut exchange = new_exchange();
        let bytes = [peer::settings(&[]), peer::reply(1, status)].concat();
        for piece in bytes.chunks(5) {
            if let Some(outcome) = exchange.receive(piece) {
                return finding(Some(outcome));
            }
        }
        panic!("no outcome of {bytes:?}");
    }

    #[test]
    fn what_a_health_server_says_is_judged() {
        assert_eq!(health_finding(b"\x08\x01"), Finding::Good);
        for (status, name) in
            [(&b""[..], "UNKNOWN"), (b"\x08\x02", "NOT_SERVING"), (b"\x08\x03", "SERVICE_UNKNOWN")]
        {
            let why = format!("service unhealthy (responded with {name:?})");
            assert_eq!(health_finding(status), Finding::Bad(why));
        }
    }

    #[test]
    fn a_server_is_let_ahead_of_us_by_one_window() {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        let mut exchange = new_exchange();
        let written = |exchange: &mut Exchange| {
            let bytes = exchange.output().to_vec();
            exchange.sent(bytes.len());
            peer::frames(&bytes)
        };
        let greeting = written(&mut exchange);
        let window =
            [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &PROBE_GRPC_WINDOW_BYTES.to_be_bytes()];
        let window = window.concat();
        let settings =
            greeting.iter().find(|frame| frame.kind == peer::SETTINGS).expect("they come");
        assert!(settings.payload.chunks(6).any(|it| it == window), "{settings:?}");
        let given = |frames: &[peer::Frame]| -> Vec<(u32, u32)> {
            let given = frames.iter().filter(|frame| frame.kind == peer::WINDOW_UPDATE);
            given.map(|frame| (frame.stream, frame.number())).collect()
        };
        assert_eq!(given(&greeting), [], "that of the connection is as large from the start");
        // A message that never ends; half of the window is returned once it is used.
        let message = peer::message(&vec![0; 1 << 20]);
        let (first, rest) = message[..PROBE_GRPC_WINDOW_BYTES as usize / 2].split_at(16 << 10);
        let (rest, last) = rest.split_at(rest.len() - 1);
        let data = |part: &[u8]| peer::frame(peer::DATA, 0, 1, part);
        let early = [peer::settings(&[]), peer::head(1), data(first), data(rest)].concat();
        assert_eq!(exchange.receive(&early), None);
        assert_eq!(given(&written(&mut exchange)), []);
        assert_eq!(exchange.receive(&data(last)), None);
        let half = PROBE_GRPC_WINDOW_BYTES / 2;
        assert_eq!(given(&written(&mut exchange)), [(0, half), (1, half)]);
    }

    #[test]
    fn a_server_without_health_or_without_grpc_has_failed() {
        let mut exchange = new_exchange();
        let refusal =
            [peer::settings(&[]), peer::head(1), peer::trailers(1, "12", "unknown service")];
        let outcome = exchange.receive(&refusal.concat());
        assert_eq!(
            finding(outcome),
            Finding::Bad(
                "error: this server does not implement the grpc health protocol \
                 (grpc.health.v1.Health): unknown service"
                    .to_owned()
            )
        );
        let mut exchange = new_exchange();
        let Some(Outcome::Done(Finding::Bad(why))) =
            exchange.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        else {
            panic!("no HTTP/2")
        };
        assert!(why.starts_with("error: health rpc probe failed: "), "{why}");
        let Outcome::Done(Finding::Bad(why)) = new_exchange().ended("EOF") else { panic!("gone") };
        assert_eq!(why, "error: health rpc probe failed: EOF");
    }
}
