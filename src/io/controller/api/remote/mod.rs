//! A real API server: calls, lists and watches over HTTPS, in the same event loop.
//!
//! ```text
//!  calls, pages ─▶ queue ─▶ up to 16 reused connections ─▶ Called, Listed
//!  watches ───────────────▶ a connection each ─▶ Changed, Deleted, Bookmark … Ended
//! ```
//!
//! Only reads are repeated: for a write without an answer the core gets the error that the answer
//! was lost. The core decides when to list or watch again, and how long to wait before.
//! **If we crash here** the next start lists again.

mod connection;
pub mod endpoints;
mod health;
mod request;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event as Ready;
use mio::{Registry, Token};
use rustls::{ClientConnection, StreamOwned};

use crate::controller::event::{CallId, Event, WatchId};
use crate::controller::time::Instant;
use crate::io::clock;
use crate::limits::{API_CALL_MS, API_CONNECT_MS, API_CONNECTIONS_MAX};
use crate::model::any_api::AnyCall;
use crate::model::api::{Call, CallError, CallResult, Kind};
use crate::model::application::Gvr;
use crate::model::error::{Error, Peer, System};
use crate::wire::http1::response::{Piece, Reader};
use connection::{Connection, Outcome};
use endpoints::Endpoint;
use health::Health;
use request::{Listed, Task, Then, Work};

/// The connections and the requests that wait for one.
#[derive(Debug)]
pub struct Remote {
    reach: Endpoint,
    first: Token,
    lines: Vec<Option<Connection>>,
    queue: VecDeque<Work>,
    /// Which address is tried next.
    turn: usize,
    health: Health,
}

/// Our tokens: more than there are connections; the last one is for the lookup.
pub const TOKENS: usize = 256;

impl Remote {
    /// Not connected yet. `first`: this token and the [`TOKENS`] from it on are ours. `program`:
    /// looks up names, as `PROGRAM job resolve`.
    pub fn new(reach: Endpoint, program: PathBuf, first: Token) -> Self {
        let (lines, queue, health) = (Vec::new(), VecDeque::new(), Health::new(program));
        Self { reach, first, lines, queue, turn: 0, health }
    }

    /// How long no answer has come, and why, if it is more than a restart.
    pub fn trouble(&self, now: Instant) -> Option<String> {
        self.health.trouble(now)
    }

    /// Makes a call about one object.
    pub fn call(&mut self, id: CallId, call: &Call) {
        self.queue.push_back(Work::Call(id, Box::new(call.clone())));
    }

    /// Makes a call about a resource of any kind.
    pub fn call_any(&mut self, id: CallId, call: Box<AnyCall>) {
        self.queue.push_back(Work::AnyCall(id, call));
    }

    /// Starts a list.
    pub fn list(&mut self, id: WatchId, kind: Kind) {
        self.queue.push_back(Work::List(id, Listed::Kind(kind), String::new()));
    }

    /// Starts a list of a resource of any kind.
    pub fn list_any(&mut self, id: WatchId, resource: Arc<Gvr>) {
        self.queue.push_back(Work::List(id, Listed::Any(resource), String::new()));
    }

    /// Starts a watch.
    pub fn watch(&mut self, id: WatchId, kind: Kind, version: &str) {
        self.queue.push_back(Work::Watch(id, Listed::Kind(kind), version.into()));
    }

    /// Starts a watch of a resource of any kind.
    pub fn watch_any(&mut self, id: WatchId, resource: Arc<Gvr>, version: &str) {
        self.queue.push_back(Work::Watch(id, Listed::Any(resource), version.into()));
    }

    /// Ends the watch.
    pub fn unwatch(&mut self, id: WatchId) {
        self.queue.retain(|work| work.watch_id() != Some(id));
        for slot in &mut self.lines {
            if slot.as_ref().and_then(Connection::watch_id) == Some(id) {
                *slot = None;
            }
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        let slot = ready.token().0 - self.first.0;
        if let Some(Some(line)) = self.lines.get_mut(slot) {
            line.mark_busy();
        }
    }

    /// Sends queued requests, and reads answers.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let token = Token(self.first.0 + TOKENS - 1);
        let found = self.health.tick(now, &self.reach.host, token, registry);
        if let Some(addresses) = found.filter(|found| *found != self.reach.addresses) {
            log::info!("{} has new addresses: {addresses:?}", self.reach.host);
            self.reach.addresses = addresses;
        }
        self.begin(now, registry, events);
        for slot in &mut self.lines {
            let Some(line) = slot else { continue };
            let outcome = line.turn(now, events);
            if line.received() {
                self.health.answered();
            }
            if let Some(why) = line.lost() {
                self.health.lost(now, why);
            }
            match outcome {
                Outcome::Wait => {}
                Outcome::Send(work) => self.queue.push_front(work),
                Outcome::Retry(work) => {
                    *slot = None;
                    self.queue.push_front(work);
                }
                Outcome::Over => *slot = None,
            }
        }
        self.begin(now, registry, events);
    }

    /// When to call [`Remote::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let ready = self.queue.iter().any(|work| self.has_room(work));
        let now = ready.then_some(Instant(0));
        let lines = self.lines.iter().flatten().map(Connection::wake_at);
        lines.chain(now).chain(self.health.wake_at()).min()
    }

    fn has_room(&self, work: &Work) -> bool {
        matches!(work, Work::Watch(..))
            || self.lines.iter().flatten().any(Connection::is_idle)
            || self.unary() < API_CONNECTIONS_MAX
    }

    fn unary(&self) -> usize {
        self.lines.iter().flatten().filter(|line| !line.is_watch()).count()
    }

    fn begin(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        while let Some(at) = self.queue.iter().position(|work| self.has_room(work)) {
            let work = self.queue.remove(at).expect("it was just found");
            let watch = matches!(work, Work::Watch(..));
            let task = Task::new(work);
            let authorization = self.reach.authorization(now);
            let request = task.request(&self.reach.host, &authorization);
            let idle = self.lines.iter_mut().flatten().find(|line| line.is_idle() && !watch);
            if let Some(line) = idle {
                line.send(task, request, now);
                continue;
            }
            let slot = self.lines.iter().position(Option::is_none).unwrap_or_else(|| {
                self.lines.push(None);
                self.lines.len() - 1
            });
            assert!(slot < TOKENS - 1, "watches are as many as kinds and DYNAMIC_RESOURCES_MAX");
            self.turn += 1;
            let to = self.reach.addresses[self.turn % self.reach.addresses.len()];
            let token = Token(self.first.0 + slot);
            let config = (Arc::clone(&self.reach.tls), self.reach.name.clone());
            match Connection::open(to, config, token, registry, now) {
                Ok(mut line) => {
                    line.send(task, request, now);
                    self.lines[slot] = Some(line);
                }
                Err(error) => {
                    let why = format!("{to}: {error}");
                    self.health.lost(now, why.clone());
                    task.lost(why, events);
                }
            }
        }
    }
}

/// Makes one call and waits for the answer: before the event loop starts.
pub fn once(reach: &mut Endpoint, call: &Call) -> CallResult {
    let lost = |error: Error| CallError::Lost(error.to_string());
    let task = Task::new(Work::Call(CallId(0), Box::new(call.clone())));
    exchange(reach, task).map_err(lost).and_then(|(status, body)| request::result(status, body))
}

/// Whether the API server knows a kind.
pub fn has(reach: &mut Endpoint, kind: Kind) -> Result<bool, Error> {
    let task = Task::new(Work::List(WatchId(0), Listed::Kind(kind), String::new()));
    exchange(reach, task).map(|(status, _)| status == 200)
}

fn exchange(reach: &mut Endpoint, mut task: Task) -> Result<(u16, Vec<u8>), Error> {
    let authorization = reach.authorization(clock::boot());
    let request = task.request(&reach.host, &authorization);
    let connect = Duration::from_millis(API_CONNECT_MS);
    let mut refused = System::new("no address");
    let socket = reach.addresses.iter().find_map(|to| {
        let connected = TcpStream::connect_timeout(to, connect);
        connected.map_err(|error| refused = System::at(to, error)).ok()
    });
    let socket = socket.ok_or(refused)?;
    let wait = Some(Duration::from_millis(API_CALL_MS));
    let with_host = |error: std::io::Error| System::at(&reach.host, error);
    socket
        .set_read_timeout(wait)
        .and_then(|()| socket.set_write_timeout(wait))
        .map_err(with_host)?;
    let connection = ClientConnection::new(Arc::clone(&reach.tls), reach.name.clone());
    let connection = connection.map_err(|error| System::at(&reach.host, error))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(&request).map_err(with_host)?;
    let (mut reader, mut buffer, mut has_head) = (Reader::default(), [0; 8 << 10], false);
    loop {
        let count = stream.read(&mut buffer).map_err(with_host)?;
        if count == 0 {
            let whole = has_head && reader.closed();
            let cut_off = || Peer::new("the answer was cut off").into();
            return if whole { Ok(task.whole()) } else { Err(cut_off()) };
        }
        reader.receive(&buffer[..count]);
        while let Some(piece) = reader.piece().map_err(|fault| Peer::new(fault.to_string()))? {
            match piece {
                Piece::Head(head) => {
                    has_head = true;
                    task.head(head.status);
                }
                Piece::Body(bytes) => task.body(bytes, &mut Vec::new())?,
                Piece::End => return Ok(task.whole()),
            }
        }
    }
}

/// Handles the end of an answer, for [`connection`].
fn after(then: Then) -> Outcome {
    match then {
        Then::Done => Outcome::Wait,
        Then::Send(work) => Outcome::Send(work),
    }
}
