//! One open stream: its unsent body, and both windows.

use super::frame::{Kind, WINDOW_BYTES_MAX};
use super::{ErrorCode, Problem};

/// What the peer may send next. A stream that has ended is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No header block yet.
    Headers,
    /// Body, or the trailers.
    Body,
    /// Nothing: a client has sent its request, and the answer is due.
    #[cfg(feature = "devices")]
    Ended,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) phase: Phase,
    body: Vec<u8>,
    body_sent: usize,
    /// The header block after the body; empty: the body ends the stream.
    pub(super) trailers: Vec<u8>,
    /// Whether END_STREAM has been written.
    pub(super) ended: bool,
    pub(super) send_window: Window,
    pub(super) receive_window: Credit,
}

impl Stream {
    /// A stream whose HEADERS are written; they carried END_STREAM if `body` is empty.
    pub(super) fn new(body: Vec<u8>, send: u32, receive: u32) -> Stream {
        Stream {
            phase: Phase::Headers,
            ended: body.is_empty(),
            body,
            body_sent: 0,
            trailers: Vec::new(),
            send_window: Window(i64::from(send)),
            receive_window: Credit::new(receive, receive),
        }
    }

    /// A client's stream whose answer is not known yet.
    #[cfg(feature = "devices")]
    pub(super) fn unanswered(send: u32, receive: u32) -> Stream {
        Stream { phase: Phase::Body, ended: false, ..Stream::new(Vec::new(), send, receive) }
    }

    /// What is sent after the HEADERS; neither part is empty.
    #[cfg(feature = "devices")]
    pub(super) fn answer(&mut self, body: Vec<u8>, trailers: Vec<u8>) {
        (self.body, self.trailers) = (body, trailers);
    }

    /// The unsent part of the request.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.body[self.body_sent..]
    }

    /// `count` bytes were written as DATA; the body's memory is freed as soon as it is sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.body_sent += count;
        self.send_window.spend(count);
        if self.unsent().is_empty() {
            self.ended = true;
            self.body = Vec::new();
            self.body_sent = 0;
        }
    }
}

/// The bytes that the peer lets us send; SETTINGS can make it negative (RFC 9113 section 6.9.2).
#[derive(Debug)]
pub(super) struct Window(pub(super) i64);

impl Window {
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    pub(super) fn spend(&mut self, count: usize) {
        assert!(count <= self.room(), "DATA stays within the window");
        self.0 -= count as i64;
    }

    pub(super) fn grow(&mut self, by: i64) -> Result<(), (ErrorCode, Problem)> {
        let got_bytes = self.0 + by;
        if got_bytes > WINDOW_BYTES_MAX {
            return Err((ErrorCode::FLOW_CONTROL_ERROR, Problem::WindowOverflow { got_bytes }));
        }
        self.0 = got_bytes;
        Ok(())
    }
}

/// The bytes that we let the peer send. Everything received is consumed at once, but returned in
/// halves, so that a stream of small frames does not cost a WINDOW_UPDATE each.
#[derive(Debug)]
pub(super) struct Credit {
    full: u32,
    window: i64,
}

impl Credit {
    /// `now` is the initial window; if it is less than `full`, the rest is added with the first
    /// DATA.
    pub(super) fn new(full: u32, now: u32) -> Credit {
        Credit { full, window: i64::from(now) }
    }

    /// A DATA frame was announced.
    pub(super) fn spend(
        &mut self,
        got_bytes: u32,
        window: &'static str,
    ) -> Result<(), (ErrorCode, Problem)> {
        let window_bytes = self.window;
        if i64::from(got_bytes) > window_bytes {
            let problem = Problem::WindowExceeded { got_bytes, window_bytes, window };
            return Err((ErrorCode::FLOW_CONTROL_ERROR, problem));
        }
        self.window -= i64::from(got_bytes);
        Ok(())
    }

    /// The increment of a WINDOW_UPDATE, once half of the window is used.
    pub(super) fn due(&mut self) -> Option<u32> {
        let used = i64::from(self.full) - self.window;
        if used < i64::from(self.full / 2).max(1) {
            return None;
        }
        self.window = i64::from(self.full);
        Some(u32::try_from(used).expect("a window is never used beyond its full size"))
    }
}

/// The payload of a WINDOW_UPDATE by `increment`.
pub(super) fn put_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    super::frame::put(Kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}
