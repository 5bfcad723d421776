//! With real services and applications on loopback.
#![expect(clippy::disallowed_methods, reason = "the other ends live beside the test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use mio::{Events, Poll};

use super::*;
use crate::io::clock;
use crate::limits::{
    SERVICE_BUS_CALL_MS, SERVICE_BUS_CLIENT_MS, SERVICE_BUS_CONNECTIONS_MAX, SERVICE_BUS_TURN_BYTES,
};
use crate::model::service_bus::{
    BusEvent, EntryAnswer, EntryId, NoAnswer, ServiceAnswer, ServiceCall, ServiceCallId,
};

const BODY_BYTES: usize = 1 << 20;
/// More than goes out in one turn.
const BODY: usize = SERVICE_BUS_TURN_BYTES + 40_000;

fn call(port: u16, method: &str, body: &[u8]) -> ServiceCall {
    let headers = vec![("X-Own".into(), "1".into())];
    let (method, target) = (method.into(), "/a?b=c".into());
    ServiceCall { method, port, target, headers, body: body.to_vec() }
}

/// Serves connections one after another with this function.
fn serve(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

/// Runs turns until the call is answered.
fn ask(call: &ServiceCall) -> Result<ServiceAnswer, NoAnswer> {
    let mut poll = Poll::new().expect("a poll");
    let mut calls = Calls::new(Token(10), BODY_BYTES);
    let mut events = Vec::new();
    let id = ServiceCallId(1);
    calls.start(clock::boot(), id, call, poll.registry(), &mut events);
    let mut ready = Events::with_capacity(8);
    loop {
        if let Some(Event::ServiceBus(event)) = events.pop() {
            let BusEvent::Answered(known, result) = *event else { panic!("{event:?}") };
            assert_eq!((known, calls.wake_at()), (id, None), "nothing is left of it");
            return result;
        }
        let left = calls.wake_at().expect("it is under way").since_ms(clock::boot());
        poll.poll(&mut ready, Some(Duration::from_millis(left))).expect("it polls");
        ready.iter().for_each(|ready| calls.ready(ready));
        calls.tick(clock::boot(), &mut events);
    }
}

/// Reads a request up to the end of its body of so many bytes.
fn read_request(stream: &mut TcpStream, body: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
    }
    let head = bytes.len();
    bytes.resize(head + body, 0);
    stream.read_exact(&mut bytes[head..]).expect("the body");
    bytes
}

#[test]
fn a_service_is_called_and_its_answer_comes_back() {
    let body = vec![b'x'; BODY];
    let port = serve(|mut stream| {
        let request = read_request(&mut stream, BODY);
        let head = String::from_utf8_lossy(&request[..200]).into_owned();
        assert!(head.starts_with("POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
        assert!(
            head.contains("\r\nX-Own: 1\r\n")
                && head.contains(&format!("Content-Length: {BODY}\r\n"))
        );
        let _ = stream.write_all(
            b"HTTP/1.1 201 Created\r\nSet-Cookie: a\r\nConnection: close\r\n\
              Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        );
    });
    let answer = ask(&call(port, "POST", &body)).expect("an answer");
    let headers = vec![("Set-Cookie".into(), "a".into())];
    assert_eq!(answer, ServiceAnswer { status: 201, headers, body: b"abcde".to_vec() });
}

#[test]
fn the_end_of_an_answer_is_found_in_every_form() {
    for (method, text, expected) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Some((200, "ok"))),
        ("GET", "HTTP/1.0 200 OK\r\n\r\nto the end", Some((200, "to the end"))),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", Some((204, ""))),
        ("GET", "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", Some((302, ""))),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", Some((200, ""))),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", None),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", None),
        ("GET", "SSH-2.0-OpenSSH\r\n", None),
        ("GET", "", None),
    ] {
        let port = serve(move |mut stream| {
            read_request(&mut stream, 0);
            let _ = stream.write_all(text.as_bytes());
        });
        match (ask(&call(port, method, b"")), expected) {
            (Ok(answer), Some((status, body))) => {
                assert_eq!((answer.status, &answer.body[..]), (status, body.as_bytes()), "{text}");
            }
            (Err(NoAnswer::Failed(_)), None) => {}
            (got, _) => panic!("{text}: {got:?}"),
        }
    }
}

#[test]
fn an_answer_has_a_bound_in_bytes_and_in_time() {
    let port = serve(|mut stream| {
        read_request(&mut stream, 0);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[0; 4_096]).is_ok() {}
    });
    assert_eq!(ask(&call(port, "GET", b"")), Err(NoAnswer::TooLarge));
    // tcpmux: nobody listens.
    let refused = ask(&call(1, "GET", b""));
    assert!(
        matches!(&refused, Err(NoAnswer::Failed(why)) if why.contains("refused")),
        "{refused:?}"
    );
    let port = serve(std::mem::forget);
    let poll = Poll::new().expect("a poll");
    let (mut calls, mut events) = (Calls::new(Token(10), BODY_BYTES), Vec::new());
    let now = Instant(1_000);
    for id in 0..=SERVICE_BUS_CALLS_MAX as u64 {
        let call = call(port, "GET", b"");
        calls.start(now, ServiceCallId(id), &call, poll.registry(), &mut events);
    }
    assert_eq!(events.len(), 1, "one too many");
    events.clear();
    calls.tick(now.plus_ms(SERVICE_BUS_CALL_MS - 1), &mut events);
    assert!(events.is_empty());
    assert_eq!(calls.wake_at(), Some(now.plus_ms(SERVICE_BUS_CALL_MS)));
    calls.tick(now.plus_ms(SERVICE_BUS_CALL_MS), &mut events);
    assert_eq!(events.len(), SERVICE_BUS_CALLS_MAX);
    let is_late = |event: &Event| match event {
        Event::ServiceBus(event) => matches!(**event, BusEvent::Answered(_, Err(NoAnswer::Late))),
        _ => false,
    };
    assert!(events.iter().all(is_late), "{events:?}");
}

/// A free port, and the sockets for applications.
fn open() -> (Poll, Entries, SocketAddr) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let mut entries = Entries::new(address, Token(10));
    entries.listen(true);
    (Poll::new().expect("a poll"), entries, address)
}

/// Turns until this is so.
fn turn(
    poll: &mut Poll,
    entries: &mut Entries,
    events: &mut Vec<Event>,
    mut is: impl FnMut(&mut Entries, &mut Vec<Event>) -> bool,
) {
    let mut ready = Events::with_capacity(32);
    for _ in 0..2_000 {
        entries.tick(clock::boot(), poll.registry(), events);
        if is(entries, events) {
            return;
        }
        poll.poll(&mut ready, Some(Duration::from_millis(10))).expect("it polls");
        ready.iter().for_each(|ready| entries.ready(ready));
    }
    panic!("it has not come");
}

/// An application that sends this, and what it gets.
fn application(address: SocketAddr, request: Vec<u8>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(&request).expect("it reads");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    })
}

fn post(body: &str) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    (head + body).into_bytes()
}

#[test]
fn an_application_gets_the_answer_to_its_request() {
    let (mut poll, mut entries, address) = open();
    let mut events = Vec::new();
    turn(&mut poll, &mut entries, &mut events, |_, _| true);
    let body = format!(r#"{{"targetURL":"u","payload":"{}"}}"#, "p".repeat(1 << 20));
    let client = application(address, post(&body));
    turn(&mut poll, &mut entries, &mut events, |_, events| !events.is_empty());
    let Some(Event::ServiceBus(event)) = events.pop() else { panic!("a request") };
    let BusEvent::Entry { id, url, body: got } = *event else { panic!("{event:?}") };
    assert_eq!((&*url, got.len()), ("u", body.len()));
    let answer = EntryAnswer { code: 200, message: "done".into(), body: "yes".into() };
    entries.answer(clock::boot(), EntryId(99), &answer);
    entries.answer(clock::boot(), id, &answer);
    turn(&mut poll, &mut entries, &mut events, |_, _| client.is_finished());
    let text = client.join().expect("it ends");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.ends_with(r#"{"code":200,"msg":"done","body":"yes"}"#), "{text}");
    // Without a rule nobody is let in.
    entries.listen(false);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn what_is_no_request_is_answered_here_and_connections_have_a_bound() {
    let (mut poll, mut entries, address) = open();
    let mut events = Vec::new();
    turn(&mut poll, &mut entries, &mut events, |_, _| true);
    let length = SERVICE_BUS_BODY_BYTES_MAX + 1;
    let long = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
    for (request, want) in [
        (post("{}"), r#"{"code":400,"msg":"invalid params","body":""}"#),
        (long.into_bytes(), "can't read data from body of the http's request: "),
        (b"no http\r\n\r\n".to_vec(), "can't read data from body"),
    ] {
        let client = application(address, request);
        turn(&mut poll, &mut entries, &mut events, |_, _| client.is_finished());
        let text = client.join().expect("it ends");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(want), "{text}");
    }
    assert!(events.is_empty(), "{events:?}");
    // More silent connections than there is room for: the next is served when one is over.
    let silent: Vec<TcpStream> = (0..SERVICE_BUS_CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let client = application(address, post(r#"{"targetURL":"u"}"#));
    for _ in 0..10 {
        turn(&mut poll, &mut entries, &mut events, |_, _| true);
    }
    assert!(events.is_empty(), "{events:?}");
    silent[0].shutdown(Shutdown::Both).expect("open");
    turn(&mut poll, &mut entries, &mut events, |_, events| !events.is_empty());
    // In time the silent ones make room.
    let late = clock::boot().plus_ms(SERVICE_BUS_CLIENT_MS);
    entries.tick(late, poll.registry(), &mut events);
    let mut byte = [0];
    assert_eq!((&silent[1]).read(&mut byte).expect("it is closed"), 0);
    drop(entries);
    client.join().expect("it ends");
}
