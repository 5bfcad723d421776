//! One connection: reads a request, waits for the core, writes pieces as the client takes them.
//!
//! ```text
//!  Reading ──request──▶ Writing ──the last piece is written──▶ Closing ──▶ gone
//!     └──invalid, too much, too slow──▶ Writing (the error)
//! ```
//!
//! A watch stays in Writing, mostly with nothing to write. `Closing` waits until the client has
//! received everything: closing a socket that has unread bytes resets the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::Registry;
use mio::event::Event as Ready;

use super::Pieces;
use crate::agent::time::Instant;
#[cfg(feature = "streams")]
use crate::io::streams::Opening;
use crate::io::transport::Transport;
use crate::limits::{
    HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, METASERVER_BODY_BYTES_MAX, METASERVER_QUEUE_MAX,
    METASERVER_REQUEST_MS, METASERVER_STALL_MS, METASERVER_TURN_BYTES,
};
use crate::model::metaserver::{ClientId, Failure};
use crate::wire::http1::call::{self, Call};
use crate::wire::metaserver::reply::{self, Piece};

/// Through which listener a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Loopback,
    /// That for pods, from this address.
    Pods(IpAddr),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) side: Side,
    stream: Transport,
    state: State,
    /// The core's request, if it has one.
    client: Option<ClientId>,
    /// What the client has asked for is not served here, if it may have it: nothing more is read.
    #[cfg(feature = "streams")]
    opening: Option<Box<Opening>>,
    /// There may be bytes to read that epoll will not report again.
    readable: bool,
    /// The same for free space to write.
    writable: bool,
    /// Then the connection is closed; `None`: it waits for the core.
    deadline: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing {
        queue: Pieces,
        /// Parts in the queue.
        queued: usize,
        buffer: Vec<u8>,
        sent: usize,
    },
    /// How many bytes were read and discarded.
    Closing(usize),
}

/// The result of reading.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    /// With what the client has sent after it.
    Request(Box<Call>, Vec<u8>),
    End,
}

impl Connection {
    pub(super) fn new(stream: Transport, side: Side, now: Instant) -> Self {
        Self {
            side,
            stream,
            state: State::Reading(Vec::new()),
            client: None,
            #[cfg(feature = "streams")]
            opening: None,
            readable: true,
            writable: true,
            deadline: Some(now.plus_ms(METASERVER_REQUEST_MS)),
        }
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        self.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        self.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    /// Its client has to show who he is.
    pub(super) fn is_tls(&self) -> bool {
        self.stream.is_tls()
    }

    /// The request that the core has.
    pub(super) fn client(&self) -> Option<ClientId> {
        self.client
    }

    /// Bytes of a request that is still arriving.
    pub(super) fn read_bytes(&self) -> usize {
        if let State::Reading(bytes) = &self.state { bytes.len() } else { 0 }
    }

    /// Parts that wait for the client.
    pub(super) fn queued(&self) -> usize {
        if let State::Writing { queued, .. } = &self.state { *queued } else { 0 }
    }

    pub(super) fn wake_at(&self) -> Instant {
        let busy = match &self.state {
            State::Reading(_) | State::Closing(_) => self.readable,
            State::Writing { queue, buffer, sent, .. } => {
                self.readable && !self.is_kept()
                    || self.writable && (*sent < buffer.len() || !queue.is_empty())
            }
        };
        if busy { Instant(0) } else { self.deadline.unwrap_or(Instant(u64::MAX)) }
    }

    pub(super) fn leave(&mut self, registry: &Registry) {
        // Closing does the same; it fails only if there is nothing to undo.
        let _ = self.stream.deregister(registry);
    }

    /// The core has the request.
    pub(super) fn waits(&mut self, id: ClientId) {
        self.client = Some(id);
        self.deadline = None;
        self.begin_writing();
    }

    /// The client gets its answer from elsewhere, if the core lets it.
    #[cfg(feature = "streams")]
    pub(super) fn keep(&mut self, opening: Opening) {
        self.opening = Some(Box::new(opening));
    }

    /// Nothing is read before the core has answered.
    #[cfg_attr(not(feature = "streams"), expect(clippy::unused_self, reason = "none is kept"))]
    fn is_kept(&self) -> bool {
        #[cfg(feature = "streams")]
        return self.opening.is_some();
        #[cfg(not(feature = "streams"))]
        false
    }

    /// The client's connection, and what it has asked for; `None`: it was answered here.
    #[cfg(feature = "streams")]
    pub(super) fn give_away(self) -> Option<(Transport, Opening)> {
        self.opening.map(|opening| (self.stream, *opening))
    }

    fn begin_writing(&mut self) {
        if !matches!(self.state, State::Writing { .. }) {
            let (queue, buffer) = (Pieces::new(), Vec::new());
            self.state = State::Writing { queue, queued: 0, buffer, sent: 0 };
        }
    }

    /// Adds to the answer.
    pub(super) fn push(&mut self, now: Instant, pieces: Vec<Piece>) {
        self.begin_writing();
        #[cfg(feature = "streams")]
        drop(self.opening.take());
        let State::Writing { queue, queued, .. } = &mut self.state else { return };
        *queued += pieces.iter().map(Piece::len).sum::<usize>();
        queue.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        self.deadline.get_or_insert(now.plus_ms(METASERVER_STALL_MS));
    }

    /// Reads what has arrived; `room`: bytes of a request that may be added now.
    pub(super) fn read(&mut self, now: Instant, bound: SocketAddr, room: usize) -> Next {
        self.stream.begin_turn();
        if self.is_kept() {
            return Next::Wait;
        }
        let next = self.read_turn(now, bound, room);
        self.readable |= self.stream.has_more();
        next
    }

    fn read_turn(&mut self, now: Instant, bound: SocketAddr, room: usize) -> Next {
        match &self.state {
            State::Reading(_) if self.deadline.is_some_and(|at| at <= now) => {
                let why = "expected a whole request by now".to_owned();
                self.refuse(now, 408, why)
            }
            State::Reading(_) => self.read_request(now, bound, room),
            // Only the end of the connection is of interest.
            State::Writing { .. } | State::Closing(_) => self.discard(now),
        }
    }

    fn read_request(&mut self, now: Instant, bound: SocketAddr, room: usize) -> Next {
        let State::Reading(bytes) = &mut self.state else { return Next::Wait };
        let end = bytes.len() + room.min(METASERVER_TURN_BYTES);
        let mut buffer = [0; READ_BYTES];
        while self.readable && bytes.len() < end {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Next::End,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
        }
        match call::call(bytes, METASERVER_BODY_BYTES_MAX) {
            Ok(None) if room == 0 => {
                let why = "too many requests are arriving at once".to_owned();
                self.refuse(now, 429, why)
            }
            Ok(None) => Next::Wait,
            // A web page has no token, and gets nothing without one.
            Ok(Some((call, _))) if !self.stream.is_tls() && !call::is_local(&call, bound) => {
                let why = format!("expected the Host {bound} or localhost, and no other Origin");
                self.refuse(now, 403, why)
            }
            Ok(Some((call, length))) => Next::Request(Box::new(call), bytes.split_off(length)),
            Err(refused) => self.refuse(now, refused.status, refused.why),
        }
    }

    fn refuse(&mut self, now: Instant, code: u16, why: String) -> Next {
        self.deadline = None;
        self.push(now, reply::refusal(&Failure::new(code, "", why)));
        Next::Wait
    }

    fn discard(&mut self, now: Instant) -> Next {
        let mut buffer = [0; READ_BYTES];
        let mut read = 0;
        while self.readable {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Next::End,
                Ok(count) => read += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
            if read > HTTP_CLOSE_BYTES_MAX {
                return Next::End;
            }
        }
        let is_late = self.deadline.is_some_and(|at| at <= now);
        match &mut self.state {
            State::Closing(before) => {
                *before += read;
                if is_late || *before > HTTP_CLOSE_BYTES_MAX { Next::End } else { Next::Wait }
            }
            State::Reading(_) | State::Writing { .. } => Next::Wait,
        }
    }

    /// Writes what fits; returns whether the connection is over.
    pub(super) fn write(&mut self, now: Instant, now_s: Option<i64>) -> bool {
        let State::Writing { queue, queued, buffer, sent } = &mut self.state else {
            return false;
        };
        let mut written = 0;
        let mut is_ended = false;
        loop {
            if *sent == buffer.len() {
                buffer.clear();
                *sent = 0;
                while buffer.len() < METASERVER_TURN_BYTES && !is_ended {
                    let Some(piece) = queue.front_mut() else { break };
                    is_ended = matches!(piece, Piece::End);
                    *queued = queued.saturating_sub(1);
                    if !piece.write(now_s, buffer) {
                        queue.pop_front();
                    }
                }
            }
            if *sent == buffer.len() || !self.writable || written >= METASERVER_TURN_BYTES {
                break;
            }
            match self.stream.write(&buffer[*sent..]) {
                Ok(count) => {
                    *sent += count;
                    written += count;
                    self.deadline = Some(now.plus_ms(METASERVER_STALL_MS));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        let is_sent = *sent == buffer.len();
        let Ok(is_flushed) = self.stream.is_flushed() else { return true };
        self.writable &= is_flushed;
        if !is_sent || !is_flushed {
            // What is behind the end was not taken out of the queue.
            if is_ended {
                queue.push_front(Piece::End);
                *queued += 1;
            }
            let is_late = self.deadline.is_some_and(|at| at <= now);
            return is_late || *queued > METASERVER_QUEUE_MAX;
        }
        if buffer.capacity() > 2 * METASERVER_TURN_BYTES || queue.is_empty() {
            *buffer = Vec::new();
            *sent = 0;
        }
        if !is_ended {
            self.deadline = None;
            return *queued > METASERVER_QUEUE_MAX;
        }
        if self.stream.shutdown_write().is_err() {
            return true;
        }
        self.state = State::Closing(0);
        self.deadline = Some(now.plus_ms(HTTP_CLOSE_MS));
        self.readable = true;
        false
    }
}

/// On the stack: an idle connection costs no buffer.
const READ_BYTES: usize = 4 << 10;
