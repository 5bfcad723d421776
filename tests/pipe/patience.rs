//! Commands that wait for a peer that does not answer: how long, by the clock. They run in
//! parallel, so that all of this takes as long as the longest.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use edged::io::clock;
use edged::limits::{CHECK_DIAL_MS, CHECK_RUNTIME_MS, CLIENT_CONNECT_MS, CLIENT_WAIT_MS, WATCH_MS};
use nix::sys::socket::{Backlog, listen};

/// Accepts one connection in its queue; later connections hang.
struct Deaf {
    address: SocketAddr,
    _listener: TcpListener,
    _first: TcpStream,
}

impl Deaf {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        listen(&listener, Backlog::new(0).expect("a number")).expect("it listens already");
        let address = listener.local_addr().expect("an address");
        let first = TcpStream::connect(address).expect("there is room for one");
        Self { address, _listener: listener, _first: first }
    }
}

/// Runs a command; returns its duration, and its output.
fn waited(args: &[&str]) -> (u64, Output) {
    let before = clock::boot();
    let done = Command::new(env!("CARGO_BIN_EXE_edged"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    (clock::boot().since_ms(before), done)
}

/// The same for a command that asks this address for its pods.
fn pods_of(server: &str) -> (u64, String) {
    let (ms, done) = waited(&["pods", "--server", server]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    (ms, String::from_utf8_lossy(&done.stderr).into_owned())
}

/// `edged check` with a runtime that does not answer and a cloud that accepts no connection.
fn checked() {
    let (deaf, folder) = (Deaf::new(), format!("edged-patience-{}", std::process::id()));
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder of ours");
    let (config, socket) = (folder.join("edgecore.yaml"), folder.join("runtime.sock"));
    let _runtime = UnixListener::bind(&socket).expect("a socket of ours");
    let text = format!(
        "modules: {{edgeHub: {{enable: true, websocket: {{server: '{}'}}}}}}\n",
        deaf.address
    );
    std::fs::write(&config, text).expect("a file of ours");
    let (config, socket) = (config.to_string_lossy(), socket.to_string_lossy());
    let (ms, done) = waited(&["check", "--config", &config, "--runtime", &socket]);
    std::fs::remove_dir_all(&folder).expect("it was made");
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(output.contains("it does not answer"), "{output}");
    assert!(output.contains(&format!("{}: connection timed out", deaf.address)), "{output}");
    // One after the other.
    assert!((CHECK_RUNTIME_MS + CHECK_DIAL_MS..KERNEL_MS).contains(&ms), "{ms} ms");
}

/// What the runtime or a node must answer first takes longer, and then says why.
#[cfg(feature = "streams")]
#[expect(clippy::disallowed_methods, reason = "the agent is slow")]
fn slow() {
    use std::io::Write;

    use edged::limits::{CLIENT_STREAM_WAIT_MS, STREAM_ANSWER_MS};

    let agent = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let server = agent.local_addr().expect("an address").to_string();
    let command = std::thread::spawn(move || waited(&["top", "pods", "--server", &server]));
    let (mut connection, _) = agent.accept().expect("it connects");
    // A connection that is closed with unread bytes is reset.
    assert!(connection.read(&mut [0; 4_096]).expect("it sends a request") > 0);
    std::thread::sleep(Duration::from_millis(CLIENT_WAIT_MS + 1_000));
    let why = "the runtime hangs";
    let head = format!("HTTP/1.1 503 Service Unavailable\r\nContent-Length: {}\r\n", why.len());
    connection.write_all(format!("{head}\r\n{why}").as_bytes()).expect("it waits");
    drop(connection);
    let (_, done) = command.join().expect("it ends");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(told.contains("the runtime hangs"), "{told}");
    const { assert!(CLIENT_STREAM_WAIT_MS > STREAM_ANSWER_MS) };
}

#[cfg(not(feature = "streams"))]
fn slow() {}

#[test]
#[expect(clippy::disallowed_methods, reason = "commands that wait do so side by side")]
fn commands_wait_a_while_for_who_does_not_answer() {
    let _alone = crate::jobs::alone();
    let deaf = std::thread::spawn(|| {
        let deaf = Deaf::new();
        let (ms, why) = pods_of(&deaf.address.to_string());
        assert!(why.contains("no answer from 127.0.0.1:"), "{why}");
        assert!((CLIENT_CONNECT_MS..KERNEL_MS).contains(&ms), "{ms} ms");
    });
    let dumb = std::thread::spawn(|| {
        let dumb = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let (ms, why) = pods_of(&dumb.local_addr().expect("an address").to_string());
        assert!(why.contains("no answer from 127.0.0.1:"), "{why}");
        assert!(ms >= CLIENT_WAIT_MS, "{ms} ms");
    });
    let check = std::thread::spawn(checked);
    let slow = std::thread::spawn(slow);
    for waits in [deaf, dumb, check, slow] {
        waits.join().expect("it reports why");
    }
}

#[test]
fn a_watch_looks_again_after_a_while() {
    use std::io::Write;

    let _alone = crate::jobs::alone();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("it listens").to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_edged"))
        .args(["pods", "--watch", "--server", &server])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut answered = None;
    for _ in 0..3 {
        let (mut stream, _) = listener.accept().expect("it sends a request");
        let pods_of = clock::boot();
        if let Some(before) = answered {
            assert!(pods_of.since_ms(before) >= WATCH_MS - COARSE_MS, "requests without a pause");
        }
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it can");
        assert!(stream.read(&mut [0; 4_096]).expect("it sends a request") > 0);
        answered = Some(clock::boot());
        let body = r#"{"kind": "PodList", "items": []}"#;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .expect("it is taken");
    }
    child.kill().and_then(|()| child.wait()).expect("it is ours");
}

/// The kernel dials for more than two minutes before it gives up; no load makes ours as long.
const KERNEL_MS: u64 = 60_000;
/// Our clock counts whole milliseconds.
const COARSE_MS: u64 = 1;
