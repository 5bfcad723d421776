//! The registry on loopback: serves the image store to the runtime (OCI distribution, pull
//! only). A process of its own, below the agent: files on a dying stick may block for ever, and
//! then only this process blocks.
//!
//! One request per connection, `GET` or `HEAD`. Everything is bounded: the connections, the bytes
//! of a request, the time in which a client must continue. Nothing is verified here: a runtime
//! verifies the digest of what it fetches.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Token};

use super::archive::{Blob, Span};
use super::image_store::ImageStore;
use crate::agent::time::Instant;
use crate::io::{clock, turn};
use crate::limits::{
    IMAGE_RESCAN_MS, MIRROR_CONNECTIONS_MAX, MIRROR_READ_BYTES, MIRROR_STALL_MS, MIRROR_TURN_READS,
};
use crate::wire::http1::{self, Method, Request};
use crate::wire::oci::json;
use crate::wire::oci::reference::Target;

pub struct Registry {
    poll: Poll,
    listener: TcpListener,
    bound: SocketAddr,
    waiting: bool,
    connections: Vec<Option<Connection>>,
    folders: Vec<PathBuf>,
    store: ImageStore,
    look_at: Instant,
    buffer: Vec<u8>,
}

struct Connection<S = TcpStream> {
    stream: S,
    /// The received part of the request; `None`: it is answered.
    request: Option<Vec<u8>>,
    out: Vec<u8>,
    sent: usize,
    body: Option<(File, Span)>,
    readable: bool,
    writable: bool,
    deadline: Instant,
}

const LISTENER: Token = Token(0);

impl Registry {
    /// Listens, and scans the folders.
    pub fn open(address: SocketAddr, folders: Vec<PathBuf>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let bound = listener.local_addr()?;
        let connections = std::iter::repeat_with(|| None).take(MIRROR_CONNECTIONS_MAX).collect();
        let (store, look_at) = (ImageStore::default(), Instant(0));
        let (waiting, buffer) = (true, Vec::new());
        Ok(Self { poll, listener, bound, waiting, connections, folders, store, look_at, buffer })
    }

    /// The address on which it listens.
    pub fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// Serves until the system refuses something it needs.
    pub fn run(mut self) -> io::Error {
        let mut ready = turn::events();
        loop {
            let now = clock::boot();
            self.scan(now);
            self.accept(now);
            let due_at = if self.turn(now) { now } else { self.wake_at() };
            match self.poll.poll(&mut ready, Some(turn::timeout(clock::boot(), due_at))) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return error,
                _ => {}
            }
            for event in &ready {
                if event.token() == LISTENER {
                    self.waiting = true;
                } else if let Some(one) = &mut self.connections[event.token().0 - 1] {
                    one.readable |= event.is_readable() || event.is_read_closed();
                    one.writable |= event.is_writable() || event.is_write_closed();
                }
            }
        }
    }

    /// Scans the folders, if that is due.
    fn scan(&mut self, now: Instant) {
        if now >= self.look_at {
            for line in self.store.scan(&self.folders) {
                log::info!("{line}");
            }
            self.look_at = now.plus_ms(IMAGE_RESCAN_MS);
        }
    }

    fn wake_at(&self) -> Instant {
        let deadlines = self.connections.iter().flatten().map(|one| one.deadline);
        deadlines.chain([self.look_at]).min().unwrap_or_default()
    }

    fn accept(&mut self, now: Instant) {
        while self.waiting {
            let Some(at) = self.connections.iter().position(Option::is_none) else { return };
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    let token = Token(at + 1);
                    if self.poll.registry().register(&mut stream, token, both).is_ok() {
                        self.connections[at] = Some(Connection::new(stream, now));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.waiting = false,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log::warn!("cannot accept a connection: {error}");
                    return;
                }
            }
        }
    }

    /// Returns whether more could be done at once.
    fn turn(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for at in 0..self.connections.len() {
            let Some(one) = &mut self.connections[at] else { continue };
            let ended = if now >= one.deadline {
                true
            } else {
                match one.read_request(now, self.bound) {
                    Received::Nothing => one.write_answer(now, &mut self.buffer),
                    Received::Over => true,
                    Received::This(request) => {
                        let (head, body) = answer(&self.store, &request);
                        one.begin(head, body);
                        one.write_answer(now, &mut self.buffer)
                    }
                }
            };
            if ended {
                self.connections[at] = None;
                busy |= self.waiting;
            } else {
                busy |= one.request.is_none() && one.writable;
            }
        }
        busy
    }
}

/// The result of reading.
enum Received {
    Nothing,
    This(Request),
    Over,
}

impl<S: Read + Write> Connection<S> {
    fn new(stream: S, now: Instant) -> Self {
        Self {
            stream,
            request: Some(Vec::new()),
            out: Vec::new(),
            sent: 0,
            body: None,
            readable: true,
            writable: true,
            deadline: now.plus_ms(MIRROR_STALL_MS),
        }
    }

    fn read_request(&mut self, now: Instant, bound: SocketAddr) -> Received {
        let Some(head) = &mut self.request else { return Received::Nothing };
        let mut buffer = [0; 2 << 10];
        while self.readable {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::Over,
                Ok(count) => head.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Received::Over,
            }
            match http1::request(head, bound) {
                Ok(None) => {}
                Ok(Some(request)) => {
                    self.request = None;
                    self.deadline = now.plus_ms(MIRROR_STALL_MS);
                    return Received::This(request);
                }
                Err(bad) => {
                    self.request = None;
                    self.begin(http1::Response::from(bad).bytes(Method::Get), None);
                    return Received::Nothing;
                }
            }
        }
        Received::Nothing
    }

    fn begin(&mut self, head: Vec<u8>, body: Option<(File, Span)>) {
        self.out = head;
        self.sent = 0;
        self.body = body;
    }

    /// Writes as much as possible; true: the connection has ended.
    fn write_answer(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        if self.request.is_some() {
            return false;
        }
        let mut reads = 0;
        while self.writable {
            if self.sent == self.out.len() {
                let Some((file, span)) = &mut self.body else { return true };
                if span.size == 0 {
                    return true;
                }
                if reads == MIRROR_TURN_READS {
                    return false;
                }
                reads += 1;
                // Compare as u64: a size may exceed this machine's address range.
                let count = span.size.min(MIRROR_READ_BYTES as u64) as usize;
                buffer.resize(count, 0);
                match file.read_at(buffer, span.at) {
                    // The file got shorter: the client notices that bytes are missing.
                    Ok(0) | Err(_) => return true,
                    Ok(read) => {
                        self.out.clear();
                        self.out.extend_from_slice(&buffer[..read]);
                        self.sent = 0;
                        span.at += read as u64;
                        span.size -= read as u64;
                    }
                }
            }
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return true,
                Ok(count) => {
                    self.sent += count;
                    self.deadline = now.plus_ms(MIRROR_STALL_MS);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        false
    }
}

/// The answer's header, with the body if it is small; else the file with the body.
fn answer(store: &ImageStore, request: &Request) -> (Vec<u8>, Option<(File, Span)>) {
    let found = match Target::parse(&request.path, &request.query) {
        None => Err(("UNSUPPORTED", "this registry only supports pull".to_owned())),
        Some(Target::Hello) => Ok(Found::Json("application/json".to_owned(), None, b"{}".to_vec())),
        Some(Target::Tag { name, tag }) => store
            .find(&name, &tag)
            .map_err(|wrong| ("MANIFEST_UNKNOWN", wrong.to_string()))
            .and_then(|image| manifest(store, &image.descriptor.digest)),
        Some(Target::Manifest(digest)) => manifest(store, &digest),
        Some(Target::Blob(digest)) => match store.blob(&digest) {
            Ok(Some(blob)) => Ok(Found::Blob(digest, blob)),
            Ok(None) => Err(("BLOB_UNKNOWN", format!("no blob {digest} in the folders"))),
            Err(error) => Err(("BLOB_UNKNOWN", format!("{digest} cannot be read: {error}"))),
        },
    };
    let found = found.unwrap_or_else(|(code, why)| {
        log::info!("{:?} {}: {why}", request.method, request.path);
        let errors = serde_json::json!({"errors": [{"code": code, "message": why}]});
        Found::Error(errors.to_string().into_bytes())
    });
    found.into_answer(request)
}

enum Found {
    Json(String, Option<String>, Vec<u8>),
    Blob(String, Blob),
    Error(Vec<u8>),
}

fn manifest(store: &ImageStore, digest: &str) -> Result<Found, (&'static str, String)> {
    let unknown = |why: String| ("MANIFEST_UNKNOWN", why);
    let blob = store.blob(digest).map_err(|error| unknown(format!("{digest}: {error}")))?;
    let blob = blob.ok_or_else(|| unknown(format!("no blob {digest} in the folders")))?;
    let bytes = blob.json().map_err(|error| unknown(format!("{digest}: {error}")))?;
    let kind = json::media_type(&bytes).map_err(|why| unknown(format!("{digest}: {why}")))?;
    Ok(Found::Json(kind, Some(digest.to_owned()), bytes))
}

impl Found {
    fn into_answer(self, request: &Request) -> (Vec<u8>, Option<(File, Span)>) {
        let (status, kind, digest, mut size) = match &self {
            Self::Json(kind, digest, bytes) => {
                ("200 OK", kind.as_str(), digest.as_deref(), bytes.len() as u64)
            }
            Self::Blob(digest, blob) => {
                ("200 OK", "application/octet-stream", Some(digest.as_str()), blob.size())
            }
            Self::Error(bytes) => ("404 Not Found", "application/json", None, bytes.len() as u64),
        };
        let mut status = status;
        let mut lines = format!("Content-Type: {kind}\r\n");
        if let Some(digest) = digest {
            lines = format!("{lines}Docker-Content-Digest: {digest}\r\n");
        }
        let from = match &self {
            Self::Blob(..) if request.from > 0 && request.from < size => request.from,
            _ => 0,
        };
        if from > 0 {
            status = "206 Partial Content";
            lines = format!("{lines}Content-Range: bytes {from}-{}/{size}\r\n", size - 1);
            size -= from;
        }
        let mut head = format!(
            "HTTP/1.1 {status}\r\nDocker-Distribution-API-Version: registry/2.0\r\n{lines}\
             Content-Length: {size}\r\nConnection: close\r\n\r\n"
        )
        .into_bytes();
        if request.method == Method::Head {
            return (head, None);
        }
        match self {
            Self::Json(_, _, bytes) | Self::Error(bytes) => head.extend_from_slice(&bytes),
            Self::Blob(_, Blob::Bytes(bytes)) => head.extend_from_slice(&bytes[from as usize..]),
            Self::Blob(_, Blob::File(file, span)) => {
                let span = Span { at: span.at + from, size: span.size - from };
                return (head, Some((file, span)));
            }
        }
        (head, None)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream as Client};

    use super::*;

    const NOW: Instant = Instant(1_000);

    fn registry(folders: Vec<PathBuf>) -> Registry {
        Registry::open((Ipv4Addr::LOCALHOST, 0).into(), folders).expect("a port of ours")
    }

    fn connected(registry: &Registry) -> usize {
        registry.connections.iter().flatten().count()
    }

    #[test]
    fn more_connections_than_are_served_wait_until_one_ends() {
        let mut registry = registry(Vec::new());
        let connect = |_| Client::connect(registry.bound).expect("it listens");
        let mut clients: Vec<Client> = (0..=MIRROR_CONNECTIONS_MAX).map(connect).collect();
        let last = clients.last().expect("one more").local_addr().expect("it has one");
        let is_served = |registry: &Registry| {
            let mut all = registry.connections.iter().flatten();
            all.any(|one| one.stream.peer_addr().is_ok_and(|peer| peer == last))
        };
        registry.accept(NOW);
        assert_eq!((connected(&registry), is_served(&registry)), (MIRROR_CONNECTIONS_MAX, false));
        drop(clients.remove(0));
        assert!(registry.turn(NOW), "there is room now");
        assert_eq!(connected(&registry), MIRROR_CONNECTIONS_MAX - 1);
        registry.accept(NOW);
        assert_eq!((connected(&registry), is_served(&registry)), (MIRROR_CONNECTIONS_MAX, true));
    }

    #[test]
    fn a_client_that_does_not_go_on_is_left() {
        let mut registry = registry(Vec::new());
        registry.scan(NOW);
        let client = Client::connect(registry.bound).expect("it listens");
        registry.accept(NOW);
        registry.turn(NOW.plus_ms(MIRROR_STALL_MS - 1));
        assert_eq!(connected(&registry), 1);
        registry.turn(NOW.plus_ms(MIRROR_STALL_MS));
        assert_eq!(connected(&registry), 0);
        drop(client);
    }

    #[test]
    fn the_folders_are_looked_at_now_and_then() {
        let dir = std::env::temp_dir().join(format!("edged-rescan-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder of ours");
        for (wait_ms, is_seen) in [(IMAGE_RESCAN_MS - 1, false), (IMAGE_RESCAN_MS, true)] {
            let file = dir.join("a.tar");
            let mut registry = registry(vec![dir.clone()]);
            registry.scan(NOW);
            assert_eq!(registry.wake_at(), NOW.plus_ms(IMAGE_RESCAN_MS));
            std::fs::write(&file, "no archive").expect("a file of ours");
            registry.scan(NOW.plus_ms(wait_ms));
            let news = registry.store.scan(&registry.folders);
            assert_eq!(news.is_empty(), is_seen, "{news:?}");
            std::fs::remove_file(&file).expect("ours");
        }
        std::fs::remove_dir(&dir).expect("ours");
    }

    /// Accepts all bytes that are written.
    #[derive(Default)]
    struct Sink {
        bytes: usize,
        writes: Vec<usize>,
    }

    impl Read for Sink {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes += bytes.len();
            self.writes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_client_that_takes_all_gets_its_share_of_a_turn() {
        let limit = MIRROR_TURN_READS * MIRROR_READ_BYTES;
        let path = std::env::temp_dir().join(format!("edged-share-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file of ours");
        file.set_len(limit as u64 + 1).expect("a hole");
        let file = File::open(&path).expect("ours");
        std::fs::remove_file(&path).expect("ours");
        let mut one = Connection::new(Sink::default(), NOW);
        one.request = None;
        one.begin(Vec::new(), Some((file, Span { at: 0, size: limit as u64 + 1 })));
        let mut buffer = Vec::new();
        assert!(!one.write_answer(NOW, &mut buffer), "one byte is left for the next turn");
        assert_eq!(one.stream.writes, [MIRROR_READ_BYTES; MIRROR_TURN_READS]);
        assert!(one.write_answer(NOW, &mut buffer));
        assert_eq!(one.stream.bytes, limit + 1);
    }
}
