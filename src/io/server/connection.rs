//! One connection: reads a request, writes its answer, waits for the client to have it.
//!
//! ```text
//!  Asking ──request──▶ (the server answers) ──▶ Telling ──all written──▶ Leaving ──▶ gone
//!     └───nonsense, too much, too slow──▶ Telling (the error)
//! ```
//!
//! `Leaving` is there because a socket that is closed with unread bytes in it resets the
//! connection, and a reset may overtake the answer.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::Registry;
use mio::event::Event as Ready;

use crate::agent::time::Instant;
use crate::io::socket::{Access, Stream};
use crate::limits::{
    HTTP_ANSWER_MS, HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, HTTP_REQUEST_MS, HTTP_STALL_MS,
    HTTP_TURN_BYTES,
};
use crate::wire::http1::{self, Bad, Method, Request, Response, Status};

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    access: Access,
    state: State,
    /// There may be something to read that no edge will tell of.
    readable: bool,
    /// The same for room to write.
    writable: bool,
    /// Then it is given up.
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    /// What has come of the request.
    Asking(Vec<u8>),
    Telling {
        answer: Vec<u8>,
        sent: usize,
        /// However steadily the client reads.
        end_at: Instant,
    },
    /// How much was read to no end.
    Leaving(usize),
}

/// What a turn led to.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing more now.
    Wait,
    /// [`Connection::answer`] this.
    Answer(Request),
    /// It is over.
    End,
}

impl Connection {
    pub(super) fn new(stream: Stream, access: Access, now: Instant) -> Self {
        Self {
            stream,
            access,
            state: State::Asking(Vec::new()),
            readable: true,
            writable: true,
            deadline: now.plus_ms(HTTP_REQUEST_MS),
        }
    }

    /// Who may have sent the request.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        self.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        self.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    pub(super) fn wake_at(&self) -> Instant {
        let busy = match &self.state {
            State::Asking(_) | State::Leaving(_) => self.readable,
            State::Telling { .. } => self.writable,
        };
        if busy { Instant(0) } else { self.deadline }
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        match &self.state {
            State::Telling { answer, sent, .. } => answer.len() - sent,
            State::Asking(_) | State::Leaving(_) => 0,
        }
    }

    /// Does what it can now.
    pub(super) fn turn(&mut self, now: Instant, bound: SocketAddr) -> Next {
        let late = now >= self.deadline;
        match &mut self.state {
            State::Asking(_) if late => {
                let why = "expected a whole request by now".to_owned();
                self.refuse(now, Bad { status: Status::RequestTimeout, why })
            }
            State::Telling { .. } | State::Leaving(_) if late => Next::End,
            State::Asking(_) => self.ask(now, bound),
            State::Telling { .. } => self.tell(now),
            State::Leaving(_) => self.drain(),
        }
    }

    /// Begins to write; true: it is over.
    pub(super) fn answer(&mut self, now: Instant, answer: Vec<u8>) -> bool {
        let end_at = now.plus_ms(HTTP_ANSWER_MS);
        self.state = State::Telling { answer, sent: 0, end_at };
        self.deadline = now.plus_ms(HTTP_STALL_MS);
        matches!(self.tell(now), Next::End)
    }

    pub(super) fn leave(&mut self, registry: &Registry) {
        // Closing does the same; it fails only where there is nothing to undo.
        let _ = self.stream.deregister(registry);
    }

    fn refuse(&mut self, now: Instant, bad: Bad) -> Next {
        let ended = self.answer(now, Response::from(bad).bytes(Method::Get));
        if ended { Next::End } else { Next::Wait }
    }

    fn ask(&mut self, now: Instant, bound: SocketAddr) -> Next {
        let State::Asking(head) = &mut self.state else { return Next::Wait };
        let mut buffer = [0; READ_BYTES];
        while self.readable {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Next::End,
                Ok(count) => head.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Next::Wait;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Next::End,
            }
            match http1::request(head, bound) {
                Ok(None) => {}
                Ok(Some(request)) => return Next::Answer(request),
                Err(bad) => return self.refuse(now, bad),
            }
        }
        Next::Wait
    }

    fn tell(&mut self, now: Instant) -> Next {
        let State::Telling { answer, sent, end_at } = &mut self.state else { return Next::Wait };
        let turn_end = sent.saturating_add(HTTP_TURN_BYTES).min(answer.len());
        while self.writable && *sent < turn_end {
            match self.stream.write(&answer[*sent..turn_end]) {
                Ok(count) => {
                    *sent += count;
                    self.deadline = now.plus_ms(HTTP_STALL_MS).min(*end_at);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
        }
        if *sent < answer.len() {
            return Next::Wait;
        }
        if self.stream.shutdown_write().is_err() {
            return Next::End;
        }
        self.state = State::Leaving(0);
        self.deadline = now.plus_ms(HTTP_CLOSE_MS);
        self.readable = true;
        self.drain()
    }

    fn drain(&mut self) -> Next {
        let State::Leaving(read) = &mut self.state else { return Next::Wait };
        let mut buffer = [0; READ_BYTES];
        while self.readable {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Next::End,
                Ok(count) => *read += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
            if *read > HTTP_CLOSE_BYTES_MAX {
                return Next::End;
            }
        }
        Next::Wait
    }
}

/// On the stack: a connection that says nothing costs no buffer.
const READ_BYTES: usize = 2 << 10;
