//! One stream tunnel of a node: its websocket, and the messages of its requests (edgestream.md,
//! section 3).

use crate::controller::event::Tunnel as Name;
use crate::controller::time::Instant;
use crate::io::controller::listeners::Upgraded;
use crate::io::websocket::{Bounds, End, Received, Role, Websocket};
use crate::limits::{
    CLOUD_TUNNEL_SILENT_MS, CLOUD_TUNNEL_UNSENT_BYTES_MAX, EDGE_STALL_MS, TUNNEL_CONNECT_BYTES_MAX,
    TUNNEL_DATA_BYTES_MAX,
};
use crate::wire::tunnel::{Kind, Message};

#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) name: Name,
    pub(super) node: Box<str>,
    socket: Websocket,
    /// It is in the queue of tunnels with something to read.
    pub(super) queued: bool,
    /// The time under which it is in the list of deadlines.
    pub(super) due: Option<Instant>,
    heard_at: Instant,
    /// Why the socket took no message.
    failed: Option<End>,
}

/// What the node says of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    Data(u64, Vec<u8>),
    Remove(u64),
}

impl Tunnel {
    pub(super) fn new(name: Name, node: Box<str>, upgraded: Upgraded, now: Instant) -> Self {
        let bounds = Bounds {
            message_bytes_max: TUNNEL_DATA_BYTES_MAX + NUMBERS_BYTES_MAX,
            // A request is sent if there is room for one byte of it.
            out_bytes_max: CLOUD_TUNNEL_UNSENT_BYTES_MAX + 2 * TUNNEL_CONNECT_BYTES_MAX,
        };
        let mut socket = Websocket::new(upgraded.tls, upgraded.tail, Role::Server, bounds);
        socket.put_head(&upgraded.grant);
        Self { name, node, socket, queued: false, due: None, heard_at: now, failed: None }
    }

    /// Reads a bounded amount. `true`: there is more.
    pub(super) fn read(&mut self, now: Instant, words: &mut Vec<Word>) -> Result<bool, End> {
        let mut fault = None;
        let read = self.socket.read(&mut |received| {
            let word = match received {
                Received::Message(bytes) => word(&bytes),
                // Bytes of some request are lost.
                Received::TooLarge(size) => {
                    Err(format!("got {size} bytes, expected {TUNNEL_DATA_BYTES_MAX} at most"))
                }
            };
            match word {
                Ok(Some(word)) if fault.is_none() => words.push(word),
                Ok(_) => {}
                Err(why) => fault = fault.take().or(Some(why)),
            }
        });
        if self.socket.take_received() {
            self.heard_at = now;
        }
        match (read, fault) {
            (Ok(_), Some(why)) => Err(End::Peer(format!("sent what cannot be read: {why}"))),
            (read, _) => read,
        }
    }

    /// It is not being read: silence says nothing.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// How many bytes may still be queued for the node.
    pub(super) fn room(&self) -> usize {
        CLOUD_TUNNEL_UNSENT_BYTES_MAX.saturating_sub(self.socket.unsent_bytes())
    }

    /// Queues a message. [`Tunnel::write`] reports failure.
    pub(super) fn send(&mut self, id: u64, kind: Kind, data: &[u8]) {
        let mut message = Vec::with_capacity(NUMBERS_BYTES_MAX + data.len());
        Message { id, kind, data }.encode(&mut message);
        if let Err(end) = self.socket.send(&message) {
            self.failed = self.failed.take().or(Some(end));
        }
    }

    /// Writes as much as the socket takes.
    pub(super) fn write(&mut self, now: Instant) -> Result<(), End> {
        match self.failed.take() {
            Some(end) => Err(end),
            None => self.socket.write(now).map(drop),
        }
    }

    /// When it ends if nothing happens.
    pub(super) fn wake_at(&self) -> Instant {
        let silent_at = self.heard_at.plus_ms(CLOUD_TUNNEL_SILENT_MS);
        let stalled_at = self.socket.blocked_since().map(|since| since.plus_ms(EDGE_STALL_MS));
        stalled_at.map_or(silent_at, |at| at.min(silent_at))
    }

    /// Why it ends by now, if it does.
    pub(super) fn over(&self, now: Instant) -> Option<String> {
        let stalled_at = self.socket.blocked_since().map(|since| since.plus_ms(EDGE_STALL_MS));
        if stalled_at.is_some_and(|at| at <= now) {
            return Some(format!("it did not read for {} s", EDGE_STALL_MS / 1_000));
        }
        let is_silent = self.heard_at.plus_ms(CLOUD_TUNNEL_SILENT_MS) <= now;
        is_silent.then(|| format!("it was silent for {} s", CLOUD_TUNNEL_SILENT_MS / 1_000))
    }

    pub(super) fn send_close(&mut self) {
        self.socket.send_close();
    }
}

/// `None`: of a kind that is not for the cloud, or of a later version.
fn word(bytes: &[u8]) -> Result<Option<Word>, String> {
    let message = Message::decode(bytes).map_err(|why| why.to_string())?;
    Ok(match message.kind {
        Kind::Data => Some(Word::Data(message.id, message.data.to_vec())),
        Kind::Remove => Some(Word::Remove(message.id)),
        Kind::Logs | Kind::Exec | Kind::Attach | Kind::Metrics | Kind::Close | Kind::Unknown(_) => {
            None
        }
    })
}

/// Why a tunnel ended, for the log and for the clients.
pub(super) fn reason(end: End) -> String {
    match end {
        End::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it hung up".to_owned()
        }
        End::Io(error) => error.to_string(),
        End::Peer(why) => format!("it {why}"),
    }
}

/// The two numbers before the data.
const NUMBERS_BYTES_MAX: usize = 20;
