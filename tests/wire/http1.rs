//! Requests of the HTTP API, from curl's to hostile ones.

use std::net::SocketAddr;

use edged::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_TARGET_BYTES_MAX};
use edged::wire::http1::{Bad, Method, Request, Response, Status, request};

fn bound() -> SocketAddr {
    "127.0.0.1:10350".parse().expect("an address")
}

/// Without the length of the head and the headers of an upgrade, which have tests of their own.
fn read(text: &str) -> Result<Option<Request>, Bad> {
    let read = request(text.as_bytes(), bound())?;
    Ok(read.map(|request| Request { head_bytes: 0, upgrade: Vec::new(), ..request }))
}

fn get(path: &str) -> Request {
    Request {
        method: Method::Get,
        path: path.to_owned(),
        query: String::new(),
        from: 0,
        upgrade: Vec::new(),
        bearer: None,
        head_bytes: 0,
    }
}

#[test]
fn a_request_for_an_upgrade_keeps_its_headers_and_leaves_the_rest() {
    let head = "POST /exec/d/p/c HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nupgrade: \
                SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-\
                Version: v3.channel.k8s.io\r\nContent-Length: 0\r\nAccept-Encoding: gzip\r\n\
                Authorization: Bearer secret\r\n\r\n";
    let bytes = [head.as_bytes(), b"\x80\x03"].concat();
    let got = request(&bytes, bound()).expect("valid").expect("whole");
    assert_eq!((got.method, got.head_bytes), (Method::Post, head.len()));
    assert_eq!(got.bearer.as_deref(), Some("secret"));
    let upgrade: Vec<_> = got.upgrade.iter().map(|(name, value)| (&**name, &**value)).collect();
    let want = [
        ("Connection", "Upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
        ("Content-Length", "0"),
    ];
    assert_eq!(upgrade, want);
}

fn status(text: &str) -> Status {
    read(text).expect_err(text).status
}

#[test]
fn what_clients_send_is_read() {
    let curl = "GET /pods?limit=5 HTTP/1.1\r\nHost: 127.0.0.1:10350\r\nUser-Agent: curl/7.88\r\n\
                Accept: */*\r\n\r\n";
    assert_eq!(read(curl), Ok(Some(Request { query: "limit=5".to_owned(), ..get("/pods") })));
    for end in 0..curl.len() {
        assert_eq!(read(&curl[..end]), Ok(None), "{end}");
    }
    let head = "HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let want = Request { method: Method::Head, ..get("/healthz") };
    assert_eq!(read(head), Ok(Some(want)));
    assert_eq!(read("GET /healthz HTTP/1.0\r\n\r\n"), Ok(Some(get("/healthz"))));
    let proxied = "GET http://localhost:10350/pods HTTP/1.1\r\nHost: localhost:10350\r\n\r\n";
    assert_eq!(read(proxied), Ok(Some(get("/pods"))));
    assert_eq!(
        read("GET / HTTP/1.1\nHost: [::1]:10350\nContent-Length: 0\n\n"),
        Ok(Some(get("/")))
    );
}

#[test]
fn only_names_that_nobody_can_forge_are_served() {
    let host = |host: &str| read(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for ours in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:10350"] {
        assert_eq!(host(ours), Ok(Some(get("/"))), "{ours}");
    }
    for theirs in
        ["", "evil.example", "localhost.evil.example:10350", "10.0.0.7", "127.0.0.1.evil", "[", ":"]
    {
        assert_eq!(host(theirs).expect_err(theirs).status, Status::Forbidden, "{theirs}");
    }
    let other: SocketAddr = "10.0.0.7:10350".parse().expect("an address");
    assert!(request(b"GET / HTTP/1.1\r\nHost: 10.0.0.7\r\n\r\n", other).is_ok());
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), Status::BadRequest);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: ::1\r\nHost: a\r\n\r\n"), Status::BadRequest);
}

#[test]
fn other_methods_bodies_and_versions_are_refused() {
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"] {
        let text = format!("{method} /pods HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(status(&text), Status::MethodNotAllowed, "{method}");
    }
    let with = |header: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
    assert_eq!(status(&with("Content-Length: 5")), Status::ContentTooLarge);
    assert_eq!(status(&with("Transfer-Encoding: chunked")), Status::ContentTooLarge);
    assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), Status::VersionNotSupported);
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Status::VersionNotSupported);
    for junk in ["\0\0", "GET  / HTTP/1.1\r\n", "GET /\x01 HTTP/1.1\r\n", "\x16\x03\x01\x02"] {
        assert_eq!(status(junk), Status::BadRequest, "{junk:?}");
    }
}

#[test]
fn what_is_too_large_is_refused_as_soon_as_it_is() {
    let long = "a".repeat(HTTP_TARGET_BYTES_MAX + 64);
    assert_eq!(status(&format!("GET /{long} HTTP/1.1\r\n\r\n")), Status::UriTooLong);
    assert_eq!(status(&format!("GET /{long}")), Status::UriTooLong);
    let fat = "a".repeat(HTTP_HEAD_BYTES_MAX);
    let text = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {fat}");
    assert_eq!(status(&text), Status::HeaderFieldsTooLarge);
    let many = "X: y\r\n".repeat(HTTP_HEADERS_MAX + 1);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Status::HeaderFieldsTooLarge);
}

#[test]
fn answers_are_whole_and_end_the_connection() {
    let response = Response::text(Status::Ok, "ok");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
                Content-Length: 3\r\nCache-Control: no-store\r\n\
                X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
    let bytes = response.clone().bytes(Method::Get);
    assert_eq!(String::from_utf8(bytes), Ok(format!("{head}ok\n")));
    assert_eq!(String::from_utf8(response.bytes(Method::Head)), Ok(head.to_owned()));
    let bad = read("POST / HTTP/1.1\r\n\r\n").expect_err("a POST");
    let text = String::from_utf8(Response::from(bad).bytes(Method::Get)).expect("text");
    assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{text}");
    assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
}
