//! The connection to the container runtime: connects, writes, reads, and connects again.
//!
//! ```text
//!            connect                       GOAWAY, end of file, error, bad bytes
//!  Down ──────────────────▶ Up ─▶ calls ──────────────────────────────────────────▶ Down
//!   │ ▲                      RuntimeUp         every call answered Lost, RuntimeDown
//!   └─┘ failed: 25 … 100 ms
//! ```
//!
//! [`calls`] has the meaning of a call; the core decides when to make one. One connection, one
//! buffer; the requests of one turn are sent in one write at its end.
//!
//! If the agent dies the runtime cancels the calls that it has not finished; the next agent's first
//! relist shows their result.

#[cfg(any(feature = "api", feature = "images"))]
pub mod blocking;
pub mod calls;

use std::io::{self, ErrorKind, Read, Write};

use calls::Calls;
use mio::event::Event as Ready;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

use super::log::Limit;
use super::socket_writer::SocketWriter;
use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::limits::{
    CONNECT_BACKOFF_MAX_MS, CONNECT_BACKOFF_MIN_MS, CriBudget, RUNTIME_GOODBYE_MS, RUNTIME_PONG_MS,
    RUNTIME_READ_BYTES, RUNTIME_TURN_READS,
};
use crate::model::cri::{CallError, Lost, Request};
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{Error, Peer, System};

/// The connection to the runtime, or the wait for the next attempt.
#[derive(Debug)]
pub struct Runtime {
    endpoint: RuntimeEndpoint,
    token: Token,
    state: State,
    /// For the next failed connect; grows until a call is answered.
    backoff_ms: u64,
    /// [`Event::RuntimeDown`] was reported and no [`Event::RuntimeUp`] since.
    reported_down: bool,
    buffer: Box<[u8]>,
    limit: Limit,
    budget: CriBudget,
}

#[derive(Debug)]
enum State {
    Down { retry_at: Instant },
    Up(Box<Link>),
}

#[derive(Debug)]
struct Link {
    socket: UnixStream,
    calls: Calls,
    /// There may be bytes that epoll will not report again.
    unread: bool,
    /// The other end closed: read to the end of file, however short the reads are.
    closed: bool,
    writer: SocketWriter,
    /// The runtime sent GOAWAY: when to close the connection.
    close_at: Option<Instant>,
    /// Only answers to PINGs are pending: when they are written without a request.
    pong_at: Option<Instant>,
}

impl Runtime {
    /// The first [`Runtime::tick`] connects.
    pub fn new(endpoint: RuntimeEndpoint, token: Token) -> Self {
        Self {
            endpoint,
            token,
            state: State::Down { retry_at: Instant(0) },
            backoff_ms: CONNECT_BACKOFF_MIN_MS,
            reported_down: false,
            buffer: vec![0; RUNTIME_READ_BYTES].into(),
            limit: Limit::default(),
            budget: CriBudget::default(),
        }
    }

    /// The same with other memory limits.
    #[must_use]
    pub fn within(self, budget: CriBudget) -> Self {
        Self { budget, ..self }
    }

    /// Makes a call, or answers at once that there is no connection.
    pub fn call(
        &mut self,
        now: Instant,
        call: CallId,
        request: &Request,
        deadline: Instant,
        answers: &mut Vec<Event>,
    ) {
        match &mut self.state {
            State::Up(link) => link.calls.start(now, call, request, deadline, answers),
            State::Down { .. } => {
                answers.push(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
            }
        }
    }

    /// Cancels the call.
    pub fn cancel(&mut self, call: CallId) {
        if let State::Up(link) = &mut self.state {
            link.calls.cancel(call);
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        if let State::Up(link) = &mut self.state {
            link.unread |= ready.is_readable();
            link.closed |= ready.is_read_closed() || ready.is_error();
            link.unread |= link.closed;
            if ready.is_writable() {
                link.writer.ready();
            }
        }
    }

    /// Connects, reads, and ends what is late, as far as each is due.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let ended = match &mut self.state {
            State::Down { retry_at } if *retry_at > now => return,
            State::Down { .. } => return self.connect(now, registry, events),
            State::Up(link) => link.tick(now, &mut self.buffer, events),
        };
        if let Err(why) = ended {
            self.hangup(&why.to_string(), now, registry, events);
        }
    }

    /// Writes the pending requests, at the end of a turn.
    pub fn flush(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let State::Up(link) = &mut self.state else { return };
        if let Err(error) = link.write(now, registry, self.token) {
            self.hangup(&format!("write: {error}"), now, registry, events);
        }
    }

    /// When to call [`Runtime::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at } => Some(*retry_at),
            State::Up(link) if link.unread => Some(Instant(0)),
            State::Up(link) => {
                let all = [link.calls.wake_at(), link.close_at, link.pong_at];
                all.into_iter().flatten().min()
            }
        }
    }

    fn connect(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let connected = UnixStream::connect(self.endpoint.path()).and_then(|mut socket| {
            registry.register(&mut socket, self.token, Interest::READABLE)?;
            Ok(socket)
        });
        let path = &self.endpoint.socket;
        match connected {
            Ok(socket) => {
                log::info!("runtime={path} connected");
                let calls = Calls::new(self.endpoint.framing).within(self.budget);
                self.state = State::Up(Box::new(Link {
                    socket,
                    calls,
                    unread: false,
                    closed: false,
                    writer: SocketWriter::default(),
                    close_at: None,
                    pong_at: None,
                }));
                self.reported_down = false;
                events.push(Event::RuntimeUp);
            }
            Err(error) => {
                self.down(&format!("connect {path}: {error}"), now, events);
            }
        }
    }

    fn hangup(&mut self, why: &str, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let before = std::mem::replace(&mut self.state, State::Down { retry_at: now });
        if let State::Up(mut link) = before {
            // A runtime that still reads gets the error.
            let _ = link.socket.write(link.calls.output());
            link.calls.hangup(why, events);
            // Closing removes the socket from epoll anyway.
            let _ = registry.deregister(&mut link.socket);
            if link.calls.has_answered() {
                self.backoff_ms = CONNECT_BACKOFF_MIN_MS;
            }
        }
        self.down(why, now, events);
    }

    fn down(&mut self, why: &str, now: Instant, events: &mut Vec<Event>) {
        if let Some(repeats) = self.limit.pass(now) {
            log::error!("no connection to the runtime: {why}; repeats={repeats}");
        }
        if !self.reported_down {
            self.reported_down = true;
            events.push(Event::RuntimeDown { cause: why.to_owned() });
        }
        self.state = State::Down { retry_at: now.plus_ms(self.backoff_ms) };
        self.backoff_ms = (self.backoff_ms * 2).min(CONNECT_BACKOFF_MAX_MS);
    }
}

impl Link {
    fn tick(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        if self.unread {
            self.read(now, buffer, events)?;
        }
        self.calls.tick(now, events);
        let Some(why) = self.calls.closing() else { return Ok(()) };
        let close_at = *self.close_at.get_or_insert(now.plus_ms(RUNTIME_GOODBYE_MS));
        if self.calls.unanswered() == 0 || close_at <= now {
            return Err(Peer::new(why).into());
        }
        Ok(())
    }

    fn read(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let Self { socket, calls, closed, .. } = self;
        let receive = |bytes: &[u8]| calls.receive(now, bytes, events);
        self.unread = !read_on(socket, buffer, *closed, receive)?;
        Ok(())
    }

    /// Writes until all is written or the kernel's buffer is full.
    fn write(&mut self, now: Instant, registry: &Registry, token: Token) -> io::Result<()> {
        if self.calls.only_pongs() {
            let pong_at = *self.pong_at.get_or_insert(now.plus_ms(RUNTIME_PONG_MS));
            if pong_at > now {
                return Ok(());
            }
        }
        self.pong_at = None;
        while let count @ 1.. = self.writer.write(&mut self.socket, self.calls.output())? {
            self.calls.sent(count);
        }
        self.writer.watch(&mut self.socket, registry, token)
    }
}

/// Reads until there is no more, which it returns as true, or until the limit of a turn.
fn read_on(
    from: &mut impl Read,
    buffer: &mut [u8],
    closed: bool,
    mut receive: impl FnMut(&[u8]) -> Result<(), Peer>,
) -> Result<bool, Error> {
    for _ in 0..RUNTIME_TURN_READS {
        match from.read(buffer) {
            Ok(0) => return Err(System::new("closed by the runtime").into()),
            Ok(count) => {
                receive(&buffer[..count])?;
                // A short read of a stream has emptied it: epoll reports the next bytes.
                if count < buffer.len() && !closed {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(System::at("read", error).into()),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
