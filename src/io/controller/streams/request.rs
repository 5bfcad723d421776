//! One request of a person: the client, and what its node has sent for it.
//!
//! ```text
//!  Asked ──bytes──▶ Answered ──the node ends it──▶ Ended ──all has left──▶ Closing ─▶ gone
//!    │                 │                              ▲
//!    │                 └── the client leaves, or is slow ──▶ Leaving ──the node confirms──▶ gone
//!    └── refused, or no answer in time ───────────────┘
//! ```
//!
//! `Closing` exists because closing a socket that has unread bytes resets the connection, and the
//! reset may overtake the answer.

use std::io::{self, ErrorKind, Read};

use mio::event::Event as Ready;

use super::super::client::Client;
use crate::controller::event::Tunnel;
use crate::controller::time::Instant;
use crate::io::streams::pace::{Least, Pace};
use crate::io::streams::pipe::Pipe;
use crate::limits::{
    CLOUD_STREAM_ANSWER_MS, CLOUD_STREAM_PIECE_BYTES, CLOUD_STREAM_REMOVE_MS, CLOUD_STREAM_SLOW_MS,
    CLOUD_STREAM_UNSENT_BYTES_MAX, HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, STREAM_STALL_MS,
    STREAM_TURN_BYTES,
};
use crate::model::stream::{Refusal, RefusalKind};
use crate::wire::kubelet::answer;

#[derive(Debug)]
pub(super) struct Request {
    /// Its number in the tunnel.
    pub(super) id: u64,
    /// `None`: it was refused before it got one.
    pub(super) tunnel: Option<Tunnel>,
    /// `None`: it has left.
    client: Option<Connected>,
    /// What the client sends is for the node.
    is_relayed: bool,
    refusals: Refusals,
    state: State,
    /// To the client.
    out: Pipe,
    /// How fast the client takes what keeps its node's tunnel from being read.
    pace: Pace,
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Connected {
    stream: Client,
    readable: bool,
    writable: bool,
    /// Bytes that were read and are for nobody.
    discarded: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The node has sent nothing yet.
    Asked,
    Answered,
    /// Everything is on its way to the client.
    Ended,
    Closing,
    /// The node is told, and has to confirm it.
    Leaving,
}

/// How a client is told that its request is refused, if not by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusals {
    /// By a text, as a kubelet does.
    Text,
    /// kube-apiserver replaces the text of each status but these: 400, 403 and 500. So a node that
    /// is away is an internal error in place of 503.
    OfLog,
    /// kube-apiserver passes it on unchanged, and its client shows the message of a `Status`.
    Passed,
}

impl Refusals {
    pub(super) fn of(client: &Client, path: &str) -> Self {
        match client {
            Client::Local(_) => Self::Text,
            Client::ApiServer(_) if path.starts_with("/containerLogs/") => Self::OfLog,
            Client::ApiServer(_) => Self::Passed,
        }
    }

    pub(super) fn answer(self, refusal: &Refusal) -> Vec<u8> {
        match (self, refusal.kind) {
            (Self::Passed, _) => answer::refusal_as_status(refusal),
            (Self::OfLog, RefusalKind::Unavailable) => {
                answer::refusal(&Refusal::new(RefusalKind::Internal, &*refusal.text))
            }
            (Self::Text | Self::OfLog, _) => answer::refusal(refusal),
        }
    }
}

/// What the request needs after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// The node is to be told that it ends.
    Remove,
    /// It is over.
    End,
}

impl Request {
    /// A request that was sent to its node.
    pub(super) fn new(
        (tunnel, id): (Tunnel, u64),
        stream: Client,
        (is_relayed, is_patient): (bool, bool),
        refusals: Refusals,
        now: Instant,
    ) -> Self {
        let deadline = (!is_patient).then(|| now.plus_ms(CLOUD_STREAM_ANSWER_MS));
        Self {
            id,
            tunnel: Some(tunnel),
            client: Some(Connected { stream, readable: true, writable: true, discarded: 0 }),
            is_relayed,
            refusals,
            state: State::Asked,
            out: Pipe::default(),
            pace: Pace::new(Least {
                bytes: CLOUD_STREAM_UNSENT_BYTES_MAX,
                ms: CLOUD_STREAM_SLOW_MS,
            }),
            deadline,
        }
    }

    /// A request that no node gets.
    pub(super) fn refused(
        refusal: &Refusal,
        stream: Client,
        refusals: Refusals,
        now: Instant,
    ) -> Self {
        let mut request = Self::new((Tunnel(0), 0), stream, (false, false), refusals, now);
        request.tunnel = None;
        request.refuse(refusal, now);
        request
    }

    // ---- what the node says ----

    pub(super) fn data(&mut self, bytes: &[u8]) {
        match self.state {
            State::Asked | State::Answered => {
                (self.state, self.deadline) = (State::Answered, None);
                self.out.push(bytes);
            }
            State::Ended | State::Closing | State::Leaving => {}
        }
    }

    /// The node ends it, or its tunnel has ended for this reason.
    pub(super) fn removed(&mut self, why: &str, now: Instant) -> Next {
        match self.state {
            State::Asked => {
                let refusal = Refusal::new(RefusalKind::Unavailable, why);
                self.refuse(&refusal, now);
                Next::Wait
            }
            State::Answered => {
                self.end(now);
                Next::Wait
            }
            State::Ended | State::Closing => Next::Wait,
            State::Leaving => Next::End,
        }
    }

    fn refuse(&mut self, refusal: &Refusal, now: Instant) {
        self.out.push(&self.refusals.answer(refusal));
        self.end(now);
    }

    fn end(&mut self, now: Instant) {
        (self.state, self.deadline) = (State::Ended, Some(now.plus_ms(STREAM_STALL_MS)));
        self.pace.stop();
    }

    /// Whether more waits for the client than may wait: its tunnel is not read.
    pub(super) fn is_full(&self) -> bool {
        let is_open = matches!(self.state, State::Asked | State::Answered);
        is_open && self.out.len() >= CLOUD_STREAM_UNSENT_BYTES_MAX
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.out.len()
    }

    // ---- the loop ----

    pub(super) fn ready(&mut self, ready: &Ready) {
        let Some(client) = &mut self.client else { return };
        client.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        client.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    /// When to continue if no socket gets ready before. `room`: for bytes to the node.
    pub(super) fn wake_at(&self, room: usize) -> Option<Instant> {
        if let Some(client) = &self.client {
            let reads = client.readable && (self.discards() || room > 0);
            let writes = client.writable && !self.out.is_empty();
            // TLS may still hold bytes that the socket does not take.
            let closes = self.state == State::Ended && self.out.is_empty() && client.writable;
            if reads || writes || closes {
                return Some(Instant(0));
            }
        }
        self.deadline.into_iter().chain(self.pace.due_at()).min()
    }

    /// Moves bytes, as far as the client and the bounds of a turn allow. `send` takes bytes for the
    /// node, of which there may be so many.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        room: usize,
        buffer: &mut [u8],
        send: &mut dyn FnMut(&[u8]),
    ) -> Next {
        if self.deadline.is_some_and(|at| at <= now) {
            return self.late(now);
        }
        if self.client.is_none() {
            return Next::Wait;
        }
        let moved = self.read_client(room, buffer, send).and_then(|stays| {
            self.write_client(now)?;
            Ok(stays)
        });
        match (moved, self.state) {
            (Ok(true), _) if self.is_slow(now) => {
                let _ = self.leave(now);
                log::warn!(
                    "stream={}: its client takes less than {CLOUD_STREAM_UNSENT_BYTES_MAX} bytes \
                     in {} s: it ends",
                    self.id,
                    CLOUD_STREAM_SLOW_MS / 1_000
                );
                Next::Remove
            }
            (Ok(true), _) => Next::Wait,
            (Ok(false) | Err(_), State::Asked | State::Answered) => self.leave(now),
            (Ok(false) | Err(_), State::Ended | State::Closing | State::Leaving) => Next::End,
        }
    }

    fn late(&mut self, now: Instant) -> Next {
        match self.state {
            State::Asked => {
                let seconds = CLOUD_STREAM_ANSWER_MS / 1_000;
                let text = format!("the node did not answer for {seconds} s");
                self.refuse(&Refusal::new(RefusalKind::Unavailable, text), now);
                Next::Remove
            }
            State::Answered | State::Ended | State::Closing | State::Leaving => Next::End,
        }
    }

    fn leave(&mut self, now: Instant) -> Next {
        (self.client, self.out) = (None, Pipe::default());
        self.pace.stop();
        self.state = State::Leaving;
        self.deadline = Some(now.plus_ms(CLOUD_STREAM_REMOVE_MS));
        Next::Remove
    }

    /// What the client sends is for nobody.
    fn discards(&self) -> bool {
        !self.is_relayed || !matches!(self.state, State::Asked | State::Answered)
    }

    /// `false`: the client has left, or sends what nobody wants.
    fn read_client(
        &mut self,
        mut room: usize,
        buffer: &mut [u8],
        send: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        let (discards, mut came) = (self.discards(), 0);
        let Some(client) = &mut self.client else { return Ok(true) };
        client.stream.begin_turn();
        while client.readable && came < STREAM_TURN_BYTES {
            let max = if discards { buffer.len() } else { room.min(CLOUD_STREAM_PIECE_BYTES) };
            let max = max.min(buffer.len());
            if max == 0 {
                break;
            }
            match client.stream.read(&mut buffer[..max]) {
                Ok(0) => return Ok(false),
                Ok(count) if discards => {
                    came += count;
                    client.discarded += count;
                    if client.discarded > HTTP_CLOSE_BYTES_MAX {
                        return Ok(false);
                    }
                }
                Ok(count) => {
                    came += count;
                    room -= count;
                    send(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    client.readable = client.stream.has_more();
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write_client(&mut self, now: Instant) -> io::Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let before = self.out.len();
        // A unix socket is reported as writable only when most of it is empty.
        if client.writable || self.pace.is_watched() {
            client.writable = self.out.write_to(&mut client.stream)?;
        }
        let has_left = client.stream.push()?;
        client.writable &= has_left;
        let count = before - self.out.len();
        self.pace.took(count);
        if self.state == State::Ended {
            if count > 0 {
                self.deadline = Some(now.plus_ms(STREAM_STALL_MS));
            }
            if self.out.is_empty() && has_left {
                client.stream.shutdown_write()?;
                self.state = State::Closing;
                self.deadline = Some(now.plus_ms(HTTP_CLOSE_MS));
            }
        }
        Ok(())
    }

    /// Whether the client has taken too little while as much waited for it as may.
    fn is_slow(&mut self, now: Instant) -> bool {
        let is_full = self.is_full();
        self.pace.is_slow(is_full, now)
    }
}
