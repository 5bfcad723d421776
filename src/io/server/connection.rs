//! One connection: reads a request, writes the answer, waits until the client has received it.
//!
//! ```text
//!  Reading ─request──▶ (the server answers) ──▶ Writing ──all written──▶ Closing ──▶ gone
//!     └──invalid, too much, too slow──▶ Writing (the error)
//! ```
//!
//! `Closing` exists because closing a socket that has unread bytes resets the connection, and the
//! reset may overtake the answer.

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
    /// There may be bytes to read that epoll will not report again.
    readable: bool,
    /// The same for free space to write.
    writable: bool,
    /// Then the connection is closed.
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    /// The part of the request that was received.
    Reading(Vec<u8>),
    Writing {
        answer: Vec<u8>,
        sent: usize,
        /// The end of all writing, however steadily the client reads.
        end_at: Instant,
    },
    /// How many bytes were read and discarded.
    Closing(usize),
}

/// The result of a turn.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing more now.
    Wait,
    /// Call [`Connection::answer`] for this request.
    Answer(Request),
    /// The connection has ended.
    End,
}

impl Connection {
    pub(super) fn new(stream: Stream, access: Access, now: Instant) -> Self {
        Self {
            stream,
            access,
            state: State::Reading(Vec::new()),
            readable: true,
            writable: true,
            deadline: now.plus_ms(HTTP_REQUEST_MS),
        }
    }

    /// Which users may have sent the request.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        self.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        self.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    pub(super) fn wake_at(&self) -> Instant {
        let busy = match &self.state {
            State::Reading(_) | State::Closing(_) => self.readable,
            State::Writing { .. } => self.writable,
        };
        if busy { Instant(0) } else { self.deadline }
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        match &self.state {
            State::Writing { answer, sent, .. } => answer.len() - sent,
            State::Reading(_) | State::Closing(_) => 0,
        }
    }

    /// Does what is possible now.
    pub(super) fn turn(&mut self, now: Instant, bound: SocketAddr) -> Next {
        let late = now >= self.deadline;
        match &mut self.state {
            State::Reading(_) if late => {
                let why = "expected a whole request by now".to_owned();
                self.refuse(now, Bad { status: Status::RequestTimeout, why })
            }
            State::Writing { .. } | State::Closing(_) if late => Next::End,
            State::Reading(_) => self.read_request(now, bound),
            State::Writing { .. } => self.write_answer(now),
            State::Closing(_) => self.drain(),
        }
    }

    /// Starts to write; true: the connection has ended.
    pub(super) fn answer(&mut self, now: Instant, answer: Vec<u8>) -> bool {
        let end_at = now.plus_ms(HTTP_ANSWER_MS);
        self.state = State::Writing { answer, sent: 0, end_at };
        self.deadline = now.plus_ms(HTTP_STALL_MS);
        matches!(self.write_answer(now), Next::End)
    }

    /// What came after the request's head.
    #[cfg(feature = "streams")]
    pub(super) fn rest(&self, head_bytes: usize) -> &[u8] {
        match &self.state {
            State::Reading(bytes) => bytes.get(head_bytes..).unwrap_or_default(),
            State::Writing { .. } | State::Closing(_) => &[],
        }
    }

    #[cfg(feature = "streams")]
    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    pub(super) fn leave(&mut self, registry: &Registry) {
        // Closing does the same; it fails only if there is nothing to undo.
        let _ = self.stream.deregister(registry);
    }

    fn refuse(&mut self, now: Instant, bad: Bad) -> Next {
        let ended = self.answer(now, Response::from(bad).bytes(Method::Get));
        if ended { Next::End } else { Next::Wait }
    }

    fn read_request(&mut self, now: Instant, bound: SocketAddr) -> Next {
        let State::Reading(head) = &mut self.state else { return Next::Wait };
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

    fn write_answer(&mut self, now: Instant) -> Next {
        let State::Writing { answer, sent, end_at } = &mut self.state else { return Next::Wait };
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
        self.state = State::Closing(0);
        self.deadline = now.plus_ms(HTTP_CLOSE_MS);
        self.readable = true;
        self.drain()
    }

    fn drain(&mut self) -> Next {
        let State::Closing(read) = &mut self.state else { return Next::Wait };
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

/// On the stack: an idle connection costs no buffer.
const READ_BYTES: usize = 2 << 10;
