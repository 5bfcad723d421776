//! The connections to an API server: their number, and a change of its address.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use edged::controller::event::WatchId;
use edged::controller::time::Instant;
use edged::io::controller::api::remote::Remote;
use edged::io::controller::api::remote::endpoints::Endpoint;
use edged::limits::API_CONNECTIONS_MAX;
use edged::model::api::Kind;
use edged::model::base64;
use mio::{Events, Poll, Token};

use crate::stub;

/// An endpoint at this port of `localhost`, configured in a folder of this name.
fn reach(name: &str, port: u16) -> Endpoint {
    let cloud = stub::Cloud::start(&stub::Setup::default());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a folder");
    let ca = base64::encode(&cloud.ca());
    let ca = format!("-----BEGIN CERTIFICATE-----\n{ca}\n-----END CERTIFICATE-----\n");
    std::fs::write(dir.join("ca.crt"), ca).expect("a file");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  \
         context: {{cluster: a, user: a}}\nclusters:\n- name: a\n  cluster:\n    server: \
         https://localhost:{port}\n    certificate-authority: ca.crt\nusers:\n- name: a\n  \
         user: {{token: t}}\n"
    );
    std::fs::write(dir.join("config"), text).expect("a file");
    Endpoint::of_file(&dir.join("config")).expect("a way")
}

#[test]
fn an_api_server_that_has_moved_is_found_and_until_then_it_is_said() {
    let _alone = crate::jobs::alone();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.set_nonblocking(true).expect("it can");
    // The port of tcpmux, which is closed.
    let old = ([127, 0, 0, 1], 1).into();
    let mut reach = reach("moved", listener.local_addr().expect("an address").port());
    reach.addresses = vec![old];
    let program = PathBuf::from(env!("CARGO_BIN_EXE_edgecontroller"));
    let mut remote = Remote::new(reach, program, Token(1));
    let mut poll = Poll::new().expect("a poll");
    let (mut ready, mut requests) = (Events::with_capacity(16), 0);
    // Half a second each; most are used up at once.
    for at in 0..2_000 {
        let now = Instant(1_000 + at * 500);
        let mut events = Vec::new();
        remote.tick(now, poll.registry(), &mut events);
        if requests == 0 || !events.is_empty() {
            requests += 1;
            remote.list(WatchId(requests), Kind::Node);
        }
        if listener.accept().is_ok() {
            assert!(at > 120, "not before it was missed for a minute");
            drop(remote);
            // Nothing waits for the children that looked it up any more.
            while nix::sys::wait::wait().is_ok() {}
            return;
        }
        let trouble = remote.trouble(now);
        // Three minutes after the first failure, which is in one of the first turns.
        if !(360..370).contains(&at) {
            assert_eq!(trouble.is_some(), at >= 360, "at {at}: {trouble:?}");
        }
        poll.poll(&mut ready, Some(Duration::from_millis(20))).expect("it polls");
        for ready in &ready {
            remote.ready(ready);
        }
    }
    panic!("it was not found");
}

#[test]
fn what_is_asked_beyond_the_connections_waits_for_one_but_a_watch_does_not() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.set_nonblocking(true).expect("it can");
    let to = listener.local_addr().expect("an address");
    let mut reach = reach("connections", to.port());
    reach.addresses = vec![to];
    let mut remote = Remote::new(reach, PathBuf::from("/nowhere/edgecontroller"), Token(1));
    let lists = API_CONNECTIONS_MAX as u64 + 1;
    for id in 0..lists {
        remote.list(WatchId(id), Kind::Node);
    }
    let mut poll = Poll::new().expect("a poll");
    let (mut ready, mut held, mut ended) = (Events::with_capacity(64), Vec::new(), 0);
    let mut turns = |remote: &mut Remote, held: &mut Vec<_>| {
        for _ in 0..50 {
            let mut events = Vec::new();
            remote.tick(Instant(1_000), poll.registry(), &mut events);
            ended += events.len();
            held.extend(listener.accept().ok());
            poll.poll(&mut ready, Some(Duration::from_millis(1))).expect("it polls");
            ready.iter().for_each(|ready| remote.ready(ready));
        }
        ended
    };
    assert_eq!((turns(&mut remote, &mut held), held.len()), (0, API_CONNECTIONS_MAX));
    assert_ne!(remote.wake_at(), Some(Instant(0)), "it waits for one of them to end");
    remote.watch(WatchId(lists), Kind::Pod, "1");
    assert_eq!((turns(&mut remote, &mut held), held.len()), (0, API_CONNECTIONS_MAX + 1));
    // One connection closes: its list has ended, and the waiting request is sent.
    held.remove(0);
    assert_eq!((turns(&mut remote, &mut held), held.len()), (1, API_CONNECTIONS_MAX + 1));
}
