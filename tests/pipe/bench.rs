//! The real `io::runtime` on a real local socket, with the other end in the same thread: bytes that
//! one end writes are readable at the other when the call returns, so no test waits.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use edged::agent::event::{CallId, Event};
use edged::agent::time::Instant;
use edged::io::RUNTIME;
use edged::io::runtime::Runtime;
use edged::model::cri::Request;
use edged::model::endpoint::RuntimeEndpoint;
use mio::{Events, Poll};

use crate::server::{Server, greeting};

/// The agent's end, a folder for the socket, and a clock.
pub struct Bench {
    pub dir: PathBuf,
    pub runtime: Runtime,
    pub poll: Poll,
    pub now: Instant,
}

/// The runtime's end of one connection.
pub struct Peer {
    pub socket: UnixStream,
    pub server: Server,
}

impl Bench {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-pipe-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a folder for the test");
        let endpoint = RuntimeEndpoint::grpc(dir.join("c.sock").to_string_lossy());
        let runtime = Runtime::new(endpoint, RUNTIME);
        Self { dir, runtime, poll: Poll::new().expect("a poll"), now: Instant(1_000) }
    }

    pub fn listen(&self) -> UnixListener {
        let path = self.dir.join("c.sock");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("non-blocking");
        listener
    }

    /// A bench whose runtime is connected.
    pub fn connected() -> (Self, UnixListener, Peer) {
        let mut bench = Self::new();
        let listener = bench.listen();
        let events = bench.turn();
        assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
        let peer = Peer::accept(&listener);
        (bench, listener, peer)
    }

    /// One turn of the loop, as far as it concerns the runtime.
    pub fn turn(&mut self) -> Vec<Event> {
        self.turn_asking(&[])
    }

    /// The same with calls, each with a deadline of ten seconds.
    pub fn turn_asking(&mut self, calls: &[(u64, Request)]) -> Vec<Event> {
        let mut ready = Events::with_capacity(8);
        self.poll.poll(&mut ready, Some(Duration::ZERO)).expect("polled");
        for ready in &ready {
            self.runtime.ready(ready);
        }
        let mut events = Vec::new();
        let registry = self.poll.registry();
        self.runtime.tick(self.now, registry, &mut events);
        for (call, request) in calls {
            let deadline = self.now.plus_ms(10_000);
            self.runtime.call(self.now, CallId(*call), request, deadline, &mut events);
        }
        self.runtime.flush(self.now, registry, &mut events);
        events
    }

    pub fn later(&mut self, ms: u64) -> Vec<Event> {
        self.now = self.now.plus_ms(ms);
        self.turn()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Peer {
    /// Accepts the waiting connection, and sends the server's first frames.
    pub fn accept(listener: &UnixListener) -> Self {
        let (socket, _) = listener.accept().expect("a connection waits");
        socket.set_nonblocking(true).expect("non-blocking");
        let mut peer = Self { socket, server: Server::default() };
        peer.write(&greeting());
        peer
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("there is room");
    }

    /// Reads the available bytes; returns the number of successful reads.
    pub fn read(&mut self) -> usize {
        let mut buffer = vec![0; 1 << 20];
        for reads in 0.. {
            match self.socket.read(&mut buffer) {
                Ok(0) => return reads,
                Ok(count) => self.server.receive(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return reads,
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("the loop has no end")
    }
}
