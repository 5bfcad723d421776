//! Real sockets on loopback: peers that answer, that do not, and that are late.
#![expect(clippy::disallowed_methods, reason = "the other ends live beside the test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use mio::{Events, Poll};
use nix::sys::socket::{setsockopt, sockopt};

use super::*;
use crate::io::clock;
use crate::model::net::{Expects, HttpQuery};

/// Runs turns until this query is answered.
fn ask(query: Query, ms: u64) -> Finding {
    let mut poll = Poll::new().expect("a poll");
    let mut probes = Probes::new(Token(10));
    let mut events = Vec::new();
    let deadline = clock::boot().plus_ms(ms);
    probes.start(ProbeId(1), query, deadline, poll.registry(), &mut events);
    let mut ready = Events::with_capacity(8);
    loop {
        if let Some(Event::Probe(ProbeId(1), finding)) = events.pop() {
            assert_eq!(probes.wake_at(), None, "nothing is left of it");
            return finding;
        }
        let left = probes.wake_at().expect("it is under way").since_ms(clock::boot());
        poll.poll(&mut ready, Some(Duration::from_millis(left))).expect("it polls");
        for ready in &ready {
            assert!(probes.owns(ready.token()));
            probes.ready(ready);
        }
        probes.tick(clock::boot(), poll.registry(), &mut events);
    }
}

fn get(port: u16, tls: bool) -> Query {
    Query::Http(Box::new(HttpQuery {
        tls,
        host: "127.0.0.1".into(),
        port,
        target: "/x".to_owned(),
        headers: Vec::new(),
        expects: Expects::Success,
    }))
}

/// Serves connections one after another with this function.
fn serve(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A port without a listener: tcpmux. One from the kernel may soon belong to another test.
const NOBODY: u16 = 1;

#[test]
fn a_port_is_open_or_it_is_not() {
    let port = serve(drop);
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(ask(Query::Tcp { host: host.into(), port }, 5_000), Finding::Good);
    }
    let port = NOBODY;
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(ask(Query::Tcp { host: "127.0.0.1".into(), port }, 5_000), Finding::Bad(refused));
    let strange = ask(Query::Tcp { host: "no.such.host.invalid".into(), port: 1 }, 5_000);
    let why = "dial tcp no.such.host.invalid:1: lookup no.such.host.invalid: no such host";
    assert_eq!(strange, Finding::Bad(why.to_owned()));
}

#[test]
fn an_answer_in_pieces_is_an_answer() {
    let port = serve(|mut stream| {
        read_head(&mut stream);
        for piece in ["HTTP/1.1 200 ", "OK\r\nContent-Length: 4\r\n", "\r\nha", "lt"] {
            stream.write_all(piece.as_bytes()).expect("the probe reads");
            std::thread::yield_now();
        }
    });
    assert_eq!(ask(get(port, false), 5_000), Finding::Good);
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let port = serve(|mut stream| {
        // Until the probe closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let before = clock::boot();
    let why = format!(
        "Get \"http://127.0.0.1:{port}/x\": context deadline exceeded (Client.Timeout exceeded \
         while awaiting headers)"
    );
    assert_eq!(ask(get(port, false), 300), Finding::Bad(why));
    assert!(clock::boot().since_ms(before) >= 300);
}

#[test]
fn a_server_that_hangs_up_has_failed() {
    let port = serve(|mut stream| drop(read_head(&mut stream)));
    let why = format!("Get \"http://127.0.0.1:{port}/x\": EOF");
    assert_eq!(ask(get(port, false), 5_000), Finding::Bad(why));
}

#[test]
fn a_redirect_is_followed_to_another_port() {
    let to = serve(|mut stream| {
        assert!(read_head(&mut stream).starts_with("GET /there HTTP/1.1\r\n"));
        let _ = stream.write_all(b"HTTP/1.1 418 X\r\nContent-Length: 0\r\n\r\n");
    });
    let port = serve(move |mut stream| {
        read_head(&mut stream);
        let head = format!("HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:{to}/there\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
    });
    let why = "HTTP probe failed with statuscode: 418".to_owned();
    assert_eq!(ask(get(port, false), 5_000), Finding::Bad(why));
}

#[test]
fn a_turn_reads_so_much_of_a_connection_and_the_next_one_the_rest() {
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (more, turns) in [(0, 1), (1, 2)] {
        // Interim answers before the final one, of which there may be any number.
        let interim = |reason: usize| format!("HTTP/1.1 100 {}\r\n\r\n", "X".repeat(reason));
        let mut text = interim(983).repeat(PROBE_TURN_BYTES / 1_000 - 1);
        let left = PROBE_TURN_BYTES + more - text.len() - last.len();
        text += &interim(left - interim(0).len());
        text += last;
        assert_eq!(text.len(), PROBE_TURN_BYTES + more);

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (mut poll, mut ready) = (Poll::new().expect("a poll"), Events::with_capacity(8));
        let (mut probes, mut events) = (Probes::new(Token(10)), Vec::new());
        let deadline = clock::boot().plus_ms(60_000);
        probes.start(ProbeId(1), get(port, false), deadline, poll.registry(), &mut events);
        setsockopt(&probes.open[&ProbeId(1)].socket, sockopt::RcvBuf, &(4 * text.len()))
            .expect("it can");
        let (mut stream, _) = listener.accept().expect("it dials");
        stream.write_all(text.as_bytes()).expect("it is taken");
        let mut buffer = vec![0; 2 * text.len()];
        while probes.open[&ProbeId(1)].socket.peek(&mut buffer).unwrap_or(0) < text.len() {}
        poll.poll(&mut ready, None).expect("it polls");
        ready.iter().for_each(|ready| probes.ready(ready));
        for turn in 1..=turns {
            assert!(events.is_empty() && probes.wake_at() == Some(Instant(0)), "{turn}");
            probes.tick(clock::boot(), poll.registry(), &mut events);
        }
        assert!(matches!(events[..], [Event::Probe(ProbeId(1), Finding::Good)]), "{events:?}");
    }
}

#[test]
fn what_is_cancelled_is_never_answered() {
    let poll = Poll::new().expect("a poll");
    let mut probes = Probes::new(Token(10));
    let mut events = Vec::new();
    // It neither answers nor closes, whichever end is quicker.
    let port = serve(|mut stream| while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {});
    let deadline = clock::boot().plus_ms(60_000);
    for number in 0..3 {
        probes.start(ProbeId(number), get(port, false), deadline, poll.registry(), &mut events);
    }
    for number in 0..3 {
        probes.cancel(ProbeId(number));
    }
    probes.tick(deadline, poll.registry(), &mut events);
    assert!(events.is_empty() && probes.wake_at().is_none(), "{events:?}");
    assert!(probes.open.is_empty() && probes.slots.iter().all(Option::is_none));
}

#[cfg(not(feature = "probe-https"))]
#[test]
fn tls_that_was_left_out_is_said_so() {
    let Finding::Bad(why) = ask(get(NOBODY, true), 5_000) else { panic!("no TLS") };
    assert!(why.contains("not built into this edged: probe-https"), "{why}");
}

#[cfg(feature = "probe-https")]
mod https {
    use std::sync::Arc;

    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// A certificate that no client would trust.
    fn config() -> Arc<ServerConfig> {
        let cert = CertificateDer::from(&include_bytes!("../../../tests/golden/tls/cert.der")[..]);
        let key = &include_bytes!("../../../tests/golden/tls/key.der")[..];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has these")
            .with_no_client_auth()
            .with_single_cert(vec![cert], key);
        Arc::new(config.expect("they belong together"))
    }

    #[test]
    fn a_server_is_asked_over_tls_whoever_it_is() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Finding::Good),
            (
                "HTTP/1.1 500 X\r\n\r\nuntil the end",
                Finding::Bad("HTTP probe failed with statuscode: 500".to_owned()),
            ),
        ] {
            let config = config();
            let port = serve(move |stream| {
                let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut tls = StreamOwned::new(session, stream);
                assert!(read_head(&mut tls).starts_with("GET /x HTTP/1.1\r\n"));
                let _ = tls.write_all(answer.as_bytes());
                tls.conn.send_close_notify();
                let _ = tls.flush();
            });
            assert_eq!(ask(get(port, true), 5_000), expected);
        }
    }

    #[test]
    fn a_server_without_tls_is_told_from_others() {
        let port = serve(|mut stream| {
            let _ = stream.read(&mut [0; 2048]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        let why = format!(
            "Get \"https://127.0.0.1:{port}/x\": http: server gave HTTP response to HTTPS client"
        );
        assert_eq!(ask(get(port, true), 5_000), Finding::NotTls(why));
        let port = serve(|mut stream| {
            let _ = stream.read(&mut [0; 2048]);
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        });
        let Finding::Bad(why) = ask(get(port, true), 5_000) else { panic!("no TLS") };
        assert!(why.contains(": tls: "), "{why}");
    }
}
