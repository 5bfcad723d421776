//! The authenticated form, with pods that the test plays on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket;

use super::super::tests::{Bench, TURNS};
use super::*;
use crate::io::test_folder::TestFolder;
use crate::limits::{JWT_KEYS_MAX, METASERVER_ADDRESS_MAX, METASERVER_SIDE_MIN};
use crate::model::metaserver::Reply;
use crate::wire::x509::pem;

/// The same in its authenticated form; the address for pods is on loopback as well.
fn secure_bench(folder: &TestFolder, key_files: Vec<Box<str>>) -> Bench {
    let mut bench = Bench::new();
    let settings = &mut bench.server.settings;
    settings.requires_authorization = true;
    settings.authorization.dummy = ([127, 0, 0, 1], 0).into();
    settings.authorization.key_files = key_files;
    let mut secure = Secure::new(settings, folder, Token(100));
    // No link: the address is there.
    (secure.is_held, secure.retry_at) = (true, Instant(u64::MAX));
    let loopback = IpAddr::from([127, 0, 0, 1]);
    secure.identity = Some(Identity::open(folder, &[loopback]).expect("it is made"));
    bench.server.secure = Some(secure);
    bench.turn();
    bench
}

fn place(bench: &mut Bench) -> InCluster {
    let found = bench.events.iter().find_map(|event| match event {
        Event::InCluster(place) => place.clone(),
        _ => None,
    });
    *found.expect("it is told to the core")
}

/// What a client that trusts only this certificate gets.
fn fetch(bench: &mut Bench, place: &InCluster, target: &str, more: &str) -> String {
    let pem = pem::decode(&place.certificate).expect("PEM").remove(0);
    let config = crate::io::tls::loopback::client(pem.der.into());
    let name = rustls::pki_types::ServerName::from(place.address.ip());
    let connection = rustls::ClientConnection::new(config, name.to_owned()).expect("a client");
    let socket = TcpStream::connect(place.address).expect("it accepts");
    socket.set_nonblocking(true).expect("ours");
    let mut client = rustls::StreamOwned::new(connection, socket);
    let request = format!("GET {target} HTTP/1.1\r\nHost: anything\r\n{more}\r\n");
    let (mut sent, mut got) = (0, Vec::new());
    for _ in 0..TURNS {
        bench.turn();
        if sent < request.len() {
            match client.write(&request.as_bytes()[sent..]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        let _ = client.flush();
        let mut bytes = [0; 16 << 10];
        match client.read(&mut bytes) {
            Ok(0) => return String::from_utf8(got).expect("text"),
            Ok(count) => got.extend_from_slice(&bytes[..count]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
        let opened = bench.events.iter().position(|it| matches!(it, Event::MetaServerOpened(..)));
        if let Some(at) = opened {
            let Event::MetaServerOpened(id, _, caller) = bench.events.remove(at) else { continue };
            let message = format!("{caller:?}");
            let reply = Reply::Failure(Failure::new(403, "Forbidden", message));
            bench.server.reply(bench.now.boot, id, reply);
        }
    }
    panic!("the answer has no end: {}", String::from_utf8_lossy(&got));
}

#[test]
fn pods_get_https_with_a_certificate_that_they_can_trust_and_show_their_tokens() {
    let folder = TestFolder::new("metaserver");
    let mut bench = secure_bench(&folder, Vec::new());
    let place = place(&mut bench);
    let version = fetch(&mut bench, &place, "/version", "");
    assert!(version.starts_with("HTTP/1.1 200 OK") && version.contains("v1.32"), "{version}");
    let pods = "/api/v1/pods";
    let anonymous = fetch(&mut bench, &place, pods, "");
    assert!(anonymous.contains("403") && anonymous.contains("Anonymous"), "{anonymous}");
    for (header, want) in [
        ("Authorization: Basic YTpi\r\n", "expected Authorization: Bearer"),
        ("Authorization: Bearer a.b\r\n", "expected a JSON Web Token"),
        ("Authorization: Bearer\r\n", "expected a JSON Web Token"),
        ("Authorization: Bearer a.b.c\r\n", "the header"),
    ] {
        let got = fetch(&mut bench, &place, pods, header);
        assert!(got.starts_with("HTTP/1.1 401 Unauthorized") && got.contains(want), "{got}");
    }
    let token = include_str!("../../../../tests/golden/metaserver/token.txt").trim();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let known = fetch(&mut bench, &place, pods, &bearer);
    assert!(known.contains("is_signed: false") && known.contains("default"), "{known}");
    let port = bench.server.bound().expect("it listens");
    let mut plain = bench.client("/version");
    let got = bench.received(&mut plain, "");
    assert!(!got.contains("HTTP/1.1 200"), "{port} speaks no plain HTTP any more: {got}");
}

/// A connection to the address for pods, from this address on loopback.
fn connect_from(place: &InCluster, last: u8) -> TcpStream {
    use std::os::fd::AsRawFd;
    let (family, kind) = (socket::AddressFamily::Inet, socket::SockType::Stream);
    let fd = socket::socket(family, kind, socket::SockFlag::empty(), None).expect("a socket");
    let from = socket::SockaddrIn::new(127, 0, 0, last, 0);
    socket::bind(fd.as_raw_fd(), &from).expect("all of 127 is ours");
    let SocketAddr::V4(to) = place.address else { panic!("{place:?}") };
    socket::connect(fd.as_raw_fd(), &socket::SockaddrIn::from(to)).expect("it accepts");
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(true).expect("ours");
    stream
}

#[test]
fn a_pod_has_its_share_of_connections_and_pods_together_leave_some_for_loopback() {
    let folder = TestFolder::new("metaserver-share");
    let mut bench = secure_bench(&folder, Vec::new());
    let place = place(&mut bench);
    let settled = |bench: &mut Bench| {
        for _ in 0..20 {
            bench.turn();
        }
        bench.server.connections.iter().flatten().count()
    };
    let mut greedy: Vec<TcpStream> =
        (0..METASERVER_ADDRESS_MAX + 3).map(|_| connect_from(&place, 2)).collect();
    assert_eq!(settled(&mut bench), METASERVER_ADDRESS_MAX);
    let mut last = greedy.pop().expect("the last one");
    let ended = last.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{ended:?}");
    // Others are served meanwhile, until pods have all that they may have.
    let mut others = Vec::new();
    for last in 3..=6 {
        others.extend((0..METASERVER_ADDRESS_MAX).map(|_| connect_from(&place, last)));
    }
    let most = METASERVER_CLIENTS_MAX - METASERVER_SIDE_MIN;
    assert_eq!(settled(&mut bench), most);
    assert!(bench.server.wake_at().is_none_or(|at| at > bench.now.boot), "it waits, and works not");
    let bound = bench.server.bound().expect("it listens");
    let on_loopback = InCluster { address: bound, ..place.clone() };
    let version = fetch(&mut bench, &on_loopback, "/version", "");
    assert!(version.starts_with("HTTP/1.1 200 OK"), "{version}");
    // When one of them leaves, the next one that waits is served.
    drop(greedy);
    assert_eq!(settled(&mut bench), most, "of those that waited");
}

#[test]
fn a_token_of_an_api_server_is_verified_with_its_key() {
    let folder = TestFolder::new("metaserver-keys");
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metaserver/sa.pub");
    let settings = |files: &[&str]| Authorization {
        key_files: files.iter().map(|it| Box::from(*it)).collect(),
        ..Default::default()
    };
    let token = include_str!("../../../../tests/golden/metaserver/token.txt").trim();
    let signed = |keys: &Keys, token: &str| {
        let authorization = ("authorization".to_owned(), format!("Bearer {token}"));
        let request = Call { headers: vec![authorization], ..Default::default() };
        match keys.caller(&request).expect("it can be read") {
            Caller::Bearer(bearer) => bearer.is_signed,
            other => panic!("{other:?}"),
        }
    };
    assert!(signed(&Keys::read(&settings(&[key])), token));
    assert!(!signed(&Keys::read(&settings(&[])), token));
    let other = folder.join("other.pub");
    std::fs::write(&other, OTHER_KEY).expect("written");
    let other = other.to_str().expect("text");
    assert!(!signed(&Keys::read(&settings(&[other])), token));
    assert!(signed(&Keys::read(&settings(&["/nowhere", other, key])), token), "one of several");
    let many = folder.join("many.pub");
    std::fs::write(&many, OTHER_KEY.repeat(JWT_KEYS_MAX + 1)).expect("written");
    let trouble = trouble_of_keys(&settings(&["/nowhere", many.to_str().expect("text")]));
    assert_eq!(trouble.len(), 2, "{trouble:?}");
    assert!(trouble[1].ends_with(&format!("expected {JWT_KEYS_MAX} keys at most")), "{trouble:?}");
    // Other claims, or another algorithm, under the same signature.
    let parts: Vec<&str> = token.split('.').collect();
    let forged = crate::model::base64::encode(br#"{"iss":"me"}"#).replace('=', "");
    let none = crate::model::base64::encode(br#"{"alg":"none"}"#).replace('=', "");
    let with = |parts: [&str; 3]| parts.join(".");
    let keys = Keys::read(&settings(&[key]));
    assert!(!signed(&keys, &with([parts[0], &forged, parts[2]])));
    assert!(!signed(&keys, &with([&none, parts[1], ""])));
    assert!(!signed(&keys, &with([&none, parts[1], parts[2]])));
}

#[test]
fn the_certificate_stays_until_the_addresses_change() {
    let folder = TestFolder::new("metaserver-identity");
    let open = |addresses: &[[u8; 4]]| {
        let all: Vec<IpAddr> = addresses.iter().map(|it| IpAddr::from(*it)).collect();
        Identity::open(&folder, &all).expect("it is there").certificate
    };
    let first = open(&[[127, 0, 0, 1], [169, 254, 30, 10]]);
    assert_eq!(open(&[[169, 254, 30, 10]]), first, "pods have it");
    assert_ne!(open(&[[169, 254, 30, 11]]), first);
    std::fs::write(folder.join("metaserver.key"), "nothing").expect("a file of ours");
    let anew = open(&[[127, 0, 0, 1], [169, 254, 30, 10]]);
    assert_ne!(anew, first, "a pair that does not fit is made anew");
    let about = std::fs::metadata(folder.join("metaserver.key")).expect("it was written");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_link_for_pods_is_made_and_comes_back_after_it_was_removed() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may");
    let folder = TestFolder::new("metaserver-link");
    let settings = MetaServerSettings { requires_authorization: true, ..Default::default() };
    let mut secure = Secure::new(&settings, &folder, Token(100));
    let exists = || link::exists(link::METASERVER).expect("netlink");
    let now = Instant(1_000);
    assert!(!exists());
    secure.prepare(now, &settings);
    assert!(secure.is_held && secure.identity.is_some() && exists());
    Link::new(link::METASERVER).remove().expect("it is ours");
    secure.prepare(now.plus_ms(METASERVER_LINK_MS - 1), &settings);
    assert!(!exists(), "it is looked at once a minute");
    secure.prepare(now.plus_ms(METASERVER_LINK_MS), &settings);
    assert!(exists());
}

/// Of P-256.
const OTHER_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6V1c+m+5G+MKAEU272N/3D4UqqTd
nRo8I/IFvnfv0pIUF3nemAmeYXfmy9KKXgqdb7SBfIHWGR7INn3rcPq14A==
-----END PUBLIC KEY-----
";
