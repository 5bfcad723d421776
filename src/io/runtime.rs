//! The socket of the container runtime: connected, written, read, and connected again.
//!
//! ```text
//!            connect                       GOAWAY, end of file, error, bad bytes
//!  Down ──────────────────▶ Up ─▶ calls ──────────────────────────────────────────▶ Down
//!   │ ▲                      RuntimeUp         every call answered Lost, RuntimeDown
//!   └─┘ failed: 25 … 100 ms
//! ```
//!
//! What a call means is in [`calls`]; when to make one is the mind's affair. One connection, one
//! buffer; requests that are asked for in one turn leave in one write at its end. The socket is
//! registered for reading once; for writing only while the kernel's buffer is full, because each
//! read of the other end would wake us otherwise.
//!
//! If the agent dies the runtime drops the calls it has not finished; what became of them the next
//! agent's first look shows.

pub mod calls;

use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;

use calls::Calls;
use mio::event::Event as Ready;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

use super::log::Limit;
use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::limits::{
    CONNECT_BACKOFF_MAX_MS, CONNECT_BACKOFF_MIN_MS, CriBudget, RUNTIME_GOODBYE_MS, RUNTIME_PONG_MS,
    RUNTIME_READ_BYTES, RUNTIME_TURN_READS,
};
use crate::model::cri::{CallError, Lost, Request};

/// The connection to the runtime, or the wait for one.
#[derive(Debug)]
pub struct Runtime {
    path: PathBuf,
    token: Token,
    state: State,
    /// Of the next failed connect; grows until a call was answered.
    backoff_ms: u64,
    /// [`Event::RuntimeDown`] was told and no [`Event::RuntimeUp`] since.
    told_down: bool,
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
    /// There may be bytes that no edge will tell of.
    unread: bool,
    /// The other end closed: read to the end of file, however short the reads are.
    hung_up: bool,
    /// The kernel's buffer is full.
    stuck: bool,
    /// The socket is registered for writing too.
    watched: bool,
    /// The runtime said goodbye: then we hang up.
    leave_at: Option<Instant>,
    /// Only answers to PINGs wait to be written: then they go alone.
    pong_at: Option<Instant>,
}

impl Runtime {
    /// `path` is the socket's; the first [`Runtime::tick`] connects.
    pub fn new(path: PathBuf, token: Token) -> Self {
        Self {
            path,
            token,
            state: State::Down { retry_at: Instant(0) },
            backoff_ms: CONNECT_BACKOFF_MIN_MS,
            told_down: false,
            buffer: vec![0; RUNTIME_READ_BYTES].into(),
            limit: Limit::default(),
            budget: CriBudget::default(),
        }
    }

    /// The same with other bounds of what is taken.
    #[must_use]
    pub fn within(self, budget: CriBudget) -> Self {
        Self { budget, ..self }
    }

    /// Makes a call, or answers at once that there is no connection.
    pub fn call(
        &mut self,
        call: CallId,
        request: &Request,
        deadline: Instant,
        answers: &mut Vec<Event>,
    ) {
        match &mut self.state {
            State::Up(link) => link.calls.start(call, request, deadline, answers),
            State::Down { .. } => {
                answers.push(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
            }
        }
    }

    /// The call is of no more interest.
    pub fn cancel(&mut self, call: CallId) {
        if let State::Up(link) = &mut self.state {
            link.calls.cancel(call);
        }
    }

    /// The socket is ready for something.
    pub fn ready(&mut self, ready: &Ready) {
        if let State::Up(link) = &mut self.state {
            link.unread |= ready.is_readable();
            link.hung_up |= ready.is_read_closed() || ready.is_error();
            link.unread |= link.hung_up;
            if ready.is_writable() {
                link.stuck = false;
            }
        }
    }

    /// Connects, reads and gives up, as far as each is due.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let ended = match &mut self.state {
            State::Down { retry_at } if *retry_at > now => return,
            State::Down { .. } => return self.connect(now, registry, events),
            State::Up(link) => link.tick(now, &mut self.buffer, events),
        };
        if let Err(why) = ended {
            self.hangup(&why, now, registry, events);
        }
    }

    /// Writes what was asked for; the last thing in a turn.
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
                let all = [link.calls.wake_at(), link.leave_at, link.pong_at];
                all.into_iter().flatten().min()
            }
        }
    }

    fn connect(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let connected = UnixStream::connect(&self.path).and_then(|mut socket| {
            registry.register(&mut socket, self.token, Interest::READABLE)?;
            Ok(socket)
        });
        let path = self.path.display();
        match connected {
            Ok(socket) => {
                log::info!("runtime={path} connected");
                let calls = Calls::new().within(self.budget);
                self.state = State::Up(Box::new(Link {
                    socket,
                    calls,
                    unread: false,
                    hung_up: false,
                    stuck: false,
                    watched: false,
                    leave_at: None,
                    pong_at: None,
                }));
                self.told_down = false;
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
            // Tells a runtime that can still hear what is wrong with it.
            let _ = link.socket.write(link.calls.output());
            link.calls.hangup(why, events);
            // Closing takes the socket out of the poll anyway.
            let _ = registry.deregister(&mut link.socket);
            if link.calls.heard() {
                self.backoff_ms = CONNECT_BACKOFF_MIN_MS;
            }
        }
        self.down(why, now, events);
    }

    fn down(&mut self, why: &str, now: Instant, events: &mut Vec<Event>) {
        if let Some(kept) = self.limit.pass(now) {
            log::error!("no connection to the runtime: {why}; repeats={kept}");
        }
        if !self.told_down {
            self.told_down = true;
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
    ) -> Result<(), String> {
        if self.unread {
            self.read(now, buffer, events)?;
        }
        self.calls.tick(now, events);
        let Some(why) = self.calls.closing() else { return Ok(()) };
        let leave_at = *self.leave_at.get_or_insert(now.plus_ms(RUNTIME_GOODBYE_MS));
        if self.calls.unanswered() == 0 || leave_at <= now {
            return Err(why.to_owned());
        }
        Ok(())
    }

    fn read(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let Self { socket, calls, hung_up, .. } = self;
        let receive = |bytes: &[u8]| calls.receive(now, bytes, events);
        self.unread = !read_on(socket, buffer, *hung_up, receive)?;
        Ok(())
    }

    /// Writes until all is written or the kernel takes no more.
    fn write(&mut self, now: Instant, registry: &Registry, token: Token) -> io::Result<()> {
        if self.calls.only_pongs() {
            let pong_at = *self.pong_at.get_or_insert(now.plus_ms(RUNTIME_PONG_MS));
            if pong_at > now {
                return Ok(());
            }
        }
        self.pong_at = None;
        while !self.stuck && !self.calls.output().is_empty() {
            match self.socket.write(self.calls.output()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.calls.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.stuck = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.stuck != self.watched {
            let both = Interest::READABLE | Interest::WRITABLE;
            let interest = if self.stuck { both } else { Interest::READABLE };
            registry.reregister(&mut self.socket, token, interest)?;
            self.watched = self.stuck;
        }
        Ok(())
    }
}

/// Reads until there is no more, which is the answer, or as much as one turn may.
fn read_on(
    from: &mut impl Read,
    buffer: &mut [u8],
    hung_up: bool,
    mut receive: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<bool, String> {
    for _ in 0..RUNTIME_TURN_READS {
        match from.read(buffer) {
            Ok(0) => return Err("closed by the runtime".to_owned()),
            Ok(count) => {
                receive(&buffer[..count])?;
                // A short read of a stream has emptied it: the next bytes make a new edge.
                if count < buffer.len() && !hung_up {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("read: {error}")),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
