//! One request of a person: what comes for it from the runtime or from a log, and the client that
//! takes it.
//!
//! ```text
//!  Asked ─┬─ refused, or a whole answer ─▶ Ended ──all has left──▶ Closing ─▶ gone
//!         ├─ Logs ──the log is complete──────▲
//!         └─ Relay ──the runtime closes──────┘
//! ```
//!
//! `Closing` exists because closing a socket that has unread bytes resets the connection, and the
//! reset may overtake the answer.

use std::io::{self, ErrorKind, Read};

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::logs::{LogReader, Step};
#[cfg(feature = "cloud")]
use super::pace::{Least, Pace};
use super::pipe::Pipe;
use super::relay::{Moved, Relay};
use crate::agent::time::Instant;
use crate::io::socket::BeforeMore;
use crate::io::transport::Transport;
#[cfg(feature = "metaserver")]
use crate::limits::METASERVER_LOG_BYTES_MAX;
use crate::limits::{
    HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, LOG_TURN_BYTES, STREAM_ANSWER_MS, STREAM_INPUT_BYTES_MAX,
    STREAM_STALL_MS, STREAM_TURN_BYTES, STREAM_UNSENT_BYTES_MAX,
};
#[cfg(feature = "cloud")]
use crate::limits::{TUNNEL_BLOCKED_BYTES, TUNNEL_BLOCKED_MS, TUNNEL_INPUT_BYTES_MAX};
use crate::model::error::Error;
use crate::model::stream::{LogOptions, Refusal, RefusalKind, StreamId, StreamRequest};
#[cfg(feature = "cloud")]
use crate::wire::http1::{Method, Response};
#[cfg(feature = "metaserver")]
use crate::wire::kubelet::messages::{self, LogText};
use crate::wire::kubelet::{Form, answer};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: StreamId,
    pub(super) form: Form,
    /// Of a request for a log.
    options: LogOptions,
    /// For the runtime: the method, and the headers that concern the upgrade.
    method: String,
    headers: Vec<(String, String)>,
    client: Client,
    source: Source,
    /// To the client.
    out: Pipe,
    /// From the client.
    input: Pipe,
    /// The client must have taken something by then.
    deadline: Instant,
    /// When the client has sent something through the tunnel, or the request began.
    #[cfg(feature = "cloud")]
    heard_at: Instant,
    /// How fast its runtime takes what keeps the tunnel from being read.
    #[cfg(feature = "cloud")]
    pace: Pace,
}

/// Who has sent the request.
#[derive(Debug)]
pub(super) enum Client {
    /// A connection to the HTTP API.
    Http(Http),
    /// The tunnel: it takes what is to be sent by [`Session::take_piece`].
    #[cfg(feature = "cloud")]
    Tunnel {
        /// The number that the cloud gave the request.
        id: u64,
        /// Status and headers can be told; otherwise there is only a body.
        has_head: bool,
    },
}

#[derive(Debug)]
pub(super) struct Http {
    stream: Transport,
    readable: bool,
    writable: bool,
    /// The client sends nothing after what it has sent.
    has_left: bool,
    /// The answer is complete, and our side of the connection closed.
    is_closing: bool,
    /// Bytes that were read and are for nobody.
    discarded: usize,
}

#[derive(Debug)]
enum Source {
    /// The core has not answered.
    Asked,
    /// A path of the HTTP API that came through the tunnel waits for its answer.
    #[cfg(feature = "cloud")]
    Api(Box<str>),
    Logs {
        reader: Box<LogReader>,
        /// The end of the file was reached, and nothing has changed since.
        waits: bool,
        body: Body,
    },
    Relay(Relay),
    /// Everything is on its way to the client.
    Ended,
}

/// How a log is written.
#[derive(Debug)]
enum Body {
    /// As it is: there was no head.
    Plain,
    Chunks,
    /// As the text of a JSON answer; its client has asked for so many bytes of it at most.
    #[cfg(feature = "metaserver")]
    Json(LogText, u64),
}

/// Whether a session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    End,
}

/// A request as it came over HTTP or through the tunnel.
#[derive(Debug)]
pub struct Opening {
    pub request: StreamRequest,
    pub form: Form,
    pub method: String,
    /// Those that concern the upgrade.
    pub headers: Vec<(String, String)>,
    /// What the client has sent after the request's head.
    pub input: Vec<u8>,
}

impl Session {
    /// A request that the core does not know.
    pub(super) fn new(id: StreamId, client: Client, now: Instant) -> Self {
        Self {
            id,
            form: Form::Relayed,
            options: LogOptions::default(),
            method: String::new(),
            headers: Vec::new(),
            client,
            source: Source::Asked,
            out: Pipe::default(),
            input: Pipe::default(),
            deadline: now.plus_ms(STREAM_ANSWER_MS),
            #[cfg(feature = "cloud")]
            heard_at: now,
            #[cfg(feature = "cloud")]
            pace: Pace::new(Least { bytes: TUNNEL_BLOCKED_BYTES, ms: TUNNEL_BLOCKED_MS }),
        }
    }

    /// The same, of a request that the core is about to answer.
    pub(super) fn of(self, opening: &mut Opening) -> Self {
        let mut input = Pipe::default();
        input.push(&std::mem::take(&mut opening.input));
        let options = match &opening.request {
            StreamRequest::Logs { options, .. } => options.clone(),
            _ => LogOptions::default(),
        };
        let deadline = match &opening.request {
            // The command lasts as long as it lasts, or its client waits.
            StreamRequest::Run { .. } => Instant(u64::MAX),
            _ => self.deadline,
        };
        Self {
            form: opening.form,
            options,
            method: std::mem::take(&mut opening.method),
            headers: std::mem::take(&mut opening.headers),
            input,
            deadline,
            ..self
        }
    }

    /// The core has not answered.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.source, Source::Asked)
    }

    pub(super) fn options(&self) -> &LogOptions {
        &self.options
    }

    /// The same, with the bound of what its client can take.
    pub(super) fn bounded_options(&self) -> LogOptions {
        #[cfg(feature = "metaserver")]
        if self.form == Form::LogMessages {
            let most = self.options.limit_bytes.unwrap_or(u64::MAX).min(METASERVER_LOG_BYTES_MAX);
            return LogOptions { limit_bytes: Some(most), ..self.options.clone() };
        }
        self.options.clone()
    }

    // ---- the core's answers ----

    /// Answers by this, and nothing follows.
    pub(super) fn answer(&mut self, whole: &[u8], now: Instant) {
        self.out.push(whole);
        self.end_source(now);
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal, now: Instant) {
        #[cfg(feature = "cloud")]
        if !self.has_head() {
            self.answer(&answer::line(refusal), now);
            return;
        }
        self.answer(&self::refusal(self.form, refusal), now);
    }

    /// Answers by this text, and nothing follows.
    pub(super) fn complete(&mut self, content_type: &str, body: &[u8], now: Instant) {
        if self.has_head() {
            self.answer(&answer::complete(content_type, body), now);
        } else {
            self.answer(body, now);
        }
    }

    fn has_head(&self) -> bool {
        match self.client {
            Client::Http(_) => true,
            #[cfg(feature = "cloud")]
            Client::Tunnel { has_head, .. } => has_head,
        }
    }

    fn end_source(&mut self, now: Instant) {
        self.source = Source::Ended;
        self.deadline = now.plus_ms(STREAM_STALL_MS);
    }

    pub(super) fn show(&mut self, reader: LogReader, now: Instant) {
        let body = self.begin_body();
        self.source = Source::Logs { reader: Box::new(reader), waits: false, body };
        self.deadline = now.plus_ms(STREAM_STALL_MS);
    }

    /// Writes the head of a log.
    fn begin_body(&mut self) -> Body {
        #[cfg(feature = "metaserver")]
        if self.form == Form::LogMessages {
            self.out.push(&LogText::begin());
            let asked = self.options.limit_bytes.unwrap_or(u64::MAX);
            return Body::Json(LogText::default(), asked);
        }
        if !self.has_head() {
            return Body::Plain;
        }
        self.out.push(&answer::chunked_head());
        Body::Chunks
    }

    pub(super) fn relay(
        &mut self,
        url: &str,
        registry: &Registry,
        token: Token,
        now: Instant,
    ) -> Result<(), Error> {
        let (relay, head) = Relay::open(url, &self.method, &self.headers, registry, token)?;
        let mut input = Pipe::default();
        input.push(&head);
        input.push(self.input.peek(usize::MAX));
        self.input = input;
        self.source = Source::Relay(relay);
        self.deadline = now.plus_ms(STREAM_STALL_MS);
        Ok(())
    }

    /// The container whose log is followed has ended.
    pub(super) fn log_ends(&mut self) {
        if let Source::Logs { reader, waits, .. } = &mut self.source {
            reader.end();
            *waits = false;
        }
    }

    /// A log may have grown.
    pub(super) fn look(&mut self) {
        if let Source::Logs { waits, .. } = &mut self.source {
            *waits = false;
        }
    }

    pub(super) fn follows(&self) -> bool {
        self.options.follow && matches!(self.source, Source::Logs { .. })
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.out.len()
    }

    #[cfg(test)]
    pub(super) fn unread(&self) -> usize {
        self.input.len()
    }

    // ---- the loop ----

    pub(super) fn client_ready(&mut self, ready: &Ready) {
        let Some(http) = self.client.http() else { return };
        http.has_left |= ready.is_read_closed() || ready.is_error();
        http.readable |= ready.is_readable() || http.has_left;
        http.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    pub(super) fn source_ready(&mut self, ready: &Ready) {
        if let Source::Relay(relay) = &mut self.source {
            relay.ready(ready);
        }
    }

    /// When to continue if no socket gets ready before.
    pub(super) fn wake_at(&self) -> Instant {
        let room = self.out_room() > 0;
        let can_take = match &self.source {
            Source::Logs { waits, .. } => room && !waits,
            Source::Relay(relay) => room && relay.is_readable(),
            #[cfg(feature = "cloud")]
            Source::Api(_) => false,
            Source::Ended | Source::Asked => false,
        };
        if can_take || self.is_client_busy() {
            return Instant(0);
        }
        // A client that has taken everything may wait as long as it likes.
        match self.source {
            Source::Logs { .. } | Source::Relay(_) if self.out.is_empty() => Instant(u64::MAX),
            _ => self.deadline,
        }
    }

    /// Something can be read from the client or written to it.
    fn is_client_busy(&self) -> bool {
        match &self.client {
            Client::Http(http) => {
                let can_send = http.writable && !self.out.is_empty();
                let is_sent = http.writable && self.out.is_empty();
                let ends = matches!(self.source, Source::Ended) && is_sent && !http.is_closing;
                can_send || ends || http.readable && (self.discards() || self.input_room() > 0)
            }
            // The tunnel has its own time.
            #[cfg(feature = "cloud")]
            Client::Tunnel { .. } => false,
        }
    }

    /// What the client sends is for nobody.
    fn discards(&self) -> bool {
        self.form != Form::Relayed || matches!(self.source, Source::Ended)
    }

    fn input_room(&self) -> usize {
        STREAM_INPUT_BYTES_MAX.saturating_sub(self.input.len())
    }

    /// Half of it at least: smaller pieces cost more than they are worth.
    fn out_room(&self) -> usize {
        let most = match self.source {
            Source::Logs { .. } => LOG_TURN_BYTES,
            #[cfg(feature = "cloud")]
            Source::Api(_) => STREAM_UNSENT_BYTES_MAX,
            Source::Asked | Source::Relay(_) | Source::Ended => STREAM_UNSENT_BYTES_MAX,
        };
        let room = most.saturating_sub(self.out.len());
        if room >= most / 2 { room } else { 0 }
    }

    fn refuse_late(&mut self, now: Instant) {
        let text = format!("no answer within {} s: try again", STREAM_ANSWER_MS / 1_000);
        self.refuse(&Refusal::new(RefusalKind::Unavailable, text), now);
    }

    /// Does what is possible now, within bounds.
    pub(super) fn turn(&mut self, now: Instant, buffer: &mut [u8]) -> Next {
        if now >= self.deadline {
            match self.source {
                Source::Logs { .. } | Source::Relay(_) if self.out.is_empty() => {}
                Source::Logs { .. } | Source::Relay(_) | Source::Ended => return Next::End,
                #[cfg(feature = "cloud")]
                Source::Api(_) => self.refuse_late(now),
                Source::Asked => self.refuse_late(now),
            }
        }
        self.move_bytes(now, buffer).unwrap_or(Next::End)
    }

    fn move_bytes(&mut self, now: Instant, buffer: &mut [u8]) -> io::Result<Next> {
        if let Some(http) = self.client.http() {
            http.stream.begin_turn();
        }
        let next = self.move_turn(now, buffer);
        if let Some(http) = self.client.http() {
            http.readable |= http.stream.has_more();
        }
        next
    }

    fn move_turn(&mut self, now: Instant, buffer: &mut [u8]) -> io::Result<Next> {
        let mut moved = 0;
        loop {
            let Some(came) = self.read_client(buffer)? else { return Ok(Next::End) };
            let unsent = self.out.len();
            let read = self.read_source(now, buffer);
            if unsent == 0 && !self.out.is_empty() {
                self.deadline = now.plus_ms(STREAM_STALL_MS);
            }
            self.write_client(now)?;
            moved += came + read;
            if came + read == 0 || moved >= STREAM_TURN_BYTES {
                return Ok(Next::Wait);
            }
        }
    }

    /// Returns how many bytes have come; `None`: the client has closed.
    fn read_client(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let discards = self.discards();
        let room = if discards { buffer.len() } else { self.input_room().min(buffer.len()) };
        if room == 0 {
            // What it has sent is more than the runtime takes, so its end would never be read.
            let has_left = self.client.http().is_some_and(|http| http.has_left);
            return Ok((!has_left).then_some(0));
        }
        loop {
            let Some(http) = self.client.http().filter(|http| http.readable) else {
                return Ok(Some(0));
            };
            match http.stream.read(&mut buffer[..room]) {
                Ok(0) => return Ok(None),
                Ok(count) if discards => {
                    http.discarded += count;
                    return Ok((http.discarded <= HTTP_CLOSE_BYTES_MAX).then_some(count));
                }
                Ok(count) => {
                    self.input.push(&buffer[..count]);
                    return Ok(Some(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => http.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns how many bytes were read, or looked at.
    fn read_source(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let room = self.out_room().min(buffer.len());
        let buffer = &mut buffer[..room];
        match &mut self.source {
            Source::Asked | Source::Ended => 0,
            #[cfg(feature = "cloud")]
            Source::Api(_) => 0,
            Source::Relay(relay) => {
                #[cfg(feature = "cloud")]
                let before = self.input.len();
                let read = match relay.turn(buffer, &mut self.input, &mut self.out) {
                    Ok(Moved::Bytes(count)) => count,
                    Ok(Moved::Closed) => {
                        self.end_source(now);
                        0
                    }
                    Err(why) => {
                        self.refuse(&Refusal::new(RefusalKind::Internal, why.to_string()), now);
                        0
                    }
                };
                #[cfg(feature = "cloud")]
                self.pace.took(before - self.input.len());
                read
            }
            Source::Logs { reader, waits, body } => {
                if *waits || room == 0 {
                    return 0;
                }
                let step = read_log(reader, buffer, &mut self.out, body);
                *waits = step == Step::Wait;
                if step == Step::Done {
                    self.end_source(now);
                }
                if step == Step::More { room } else { 0 }
            }
        }
    }

    fn write_client(&mut self, now: Instant) -> io::Result<()> {
        let Self { client, out, source, .. } = self;
        let Some(http) = client.http() else { return Ok(()) };
        let before = out.len();
        if http.writable {
            let is_behind = matches!(source, Source::Logs { reader, .. } if reader.is_behind());
            http.writable = if let Transport::Plain(stream) = &mut http.stream
                && is_behind
            {
                out.write_to(&mut BeforeMore(stream))?
            } else {
                out.write_to(&mut http.stream)? && http.stream.is_flushed()?
            };
        }
        if out.len() < before {
            self.deadline = now.plus_ms(STREAM_STALL_MS);
        }
        let is_sent = out.is_empty() && http.writable;
        if is_sent && matches!(self.source, Source::Ended) && !http.is_closing {
            http.stream.shutdown_write()?;
            http.is_closing = true;
            self.deadline = now.plus_ms(HTTP_CLOSE_MS);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, registry: &Registry) {
        if let Source::Relay(relay) = &mut self.source {
            relay.close(registry);
        }
        if let Some(http) = self.client.http() {
            let _ = http.stream.deregister(registry);
        }
    }
}

#[cfg(feature = "cloud")]
impl Session {
    /// Its number in the tunnel; `None`: its client is another.
    pub(super) fn tunnel_id(&self) -> Option<u64> {
        match self.client {
            Client::Http(_) => None,
            Client::Tunnel { id, .. } => Some(id),
        }
    }

    /// A path of the HTTP API, which is answered by [`Session::answer`].
    pub(super) fn of_path(self, path: &str) -> Self {
        Self { source: Source::Api(path.into()), ..self }
    }

    /// The path of the HTTP API that waits for its answer.
    pub(super) fn path(&self) -> Option<&str> {
        match &self.source {
            Source::Api(path) => Some(path),
            _ => None,
        }
    }

    /// Bytes that wait for room in the tunnel.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.out.len()
    }

    /// Answers a path of the HTTP API.
    pub(super) fn answer_path(&mut self, response: Response, now: Instant) {
        let whole = if self.has_head() { response.bytes(Method::Get) } else { response.body };
        self.answer(&whole, now);
    }

    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Takes what the cloud has sent for the runtime.
    pub(super) fn take_input(&mut self, bytes: &[u8], now: Instant) {
        self.heard_at = now;
        if !self.discards() {
            self.input.push(bytes);
        }
    }

    /// Whether its runtime takes too little while it blocks the tunnel.
    pub(super) fn is_slow(&mut self, now: Instant) -> bool {
        let blocks = self.blocks_tunnel();
        self.pace.is_slow(blocks, now)
    }

    /// When to ask [`Session::is_slow`] at the latest.
    pub(super) fn slow_at(&self) -> Option<Instant> {
        self.pace.due_at()
    }

    /// Whether more waits for the runtime than may wait.
    pub(super) fn blocks_tunnel(&self) -> bool {
        self.tunnel_id().is_some() && self.input.len() >= TUNNEL_INPUT_BYTES_MAX
    }

    pub(super) fn has_piece(&self) -> bool {
        !self.out.is_empty() || self.is_over()
    }

    /// Gives the next bytes for the cloud away.
    pub(super) fn take_piece(&mut self, max: usize, now: Instant, to: &mut dyn FnMut(&[u8])) {
        let piece = self.out.peek(max);
        let count = piece.len();
        if count > 0 {
            to(piece);
            self.out.forget(count);
            self.deadline = now.plus_ms(STREAM_STALL_MS);
        }
    }

    /// Nothing will follow what was taken.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.source, Source::Ended) && self.out.is_empty()
    }
}

impl Client {
    #[cfg_attr(
        not(feature = "cloud"),
        expect(clippy::unnecessary_wraps, reason = "then there is no other client")
    )]
    fn http(&mut self) -> Option<&mut Http> {
        match self {
            Self::Http(http) => Some(http),
            #[cfg(feature = "cloud")]
            Self::Tunnel { .. } => None,
        }
    }
}

impl Http {
    pub(super) fn new(stream: Transport) -> Self {
        Self {
            stream,
            readable: true,
            writable: true,
            has_left: false,
            is_closing: false,
            discarded: 0,
        }
    }
}

/// The bytes of a refusal.
pub(super) fn refusal(form: Form, refusal: &Refusal) -> Vec<u8> {
    match form {
        Form::Relayed => answer::refusal_of_upgrade(refusal),
        #[cfg(feature = "metaserver")]
        Form::LogMessages => answer::refusal_as_status(refusal),
        #[cfg(feature = "metaserver")]
        Form::CommandMessages => messages::refusal_of_command(refusal),
        Form::Text | Form::Summary { .. } | Form::Resource | Form::Cadvisor => {
            answer::refusal(refusal)
        }
    }
}

/// Reads as much of a log as the buffer holds.
fn read_log(reader: &mut LogReader, buffer: &mut [u8], out: &mut Pipe, body: &mut Body) -> Step {
    out.push_by(|out| match body {
        Body::Plain => read_text(reader, buffer, out),
        Body::Chunks => {
            let start = answer::begin_chunk(out);
            let step = read_text(reader, buffer, out);
            answer::end_chunk(start, out);
            if step == Step::Done {
                out.extend_from_slice(answer::LAST_CHUNK);
            }
            step
        }
        #[cfg(feature = "metaserver")]
        Body::Json(text, asked) => {
            let (room, mut plain) = ((buffer.len() / LogText::GROWTH).max(1), Vec::new());
            let step = read_text(reader, &mut buffer[..room], &mut plain);
            text.push(&plain, out);
            if step == Step::Done {
                let is_enough = *asked <= METASERVER_LOG_BYTES_MAX;
                text.end(if is_enough { u64::MAX } else { METASERVER_LOG_BYTES_MAX }, out);
            }
            step
        }
    })
}

fn read_text(reader: &mut LogReader, buffer: &mut [u8], out: &mut Vec<u8>) -> Step {
    reader.read(buffer, out).unwrap_or_else(|why| {
        // The status was sent: the error becomes text, as the kubelet does it.
        out.extend_from_slice(why.to_string().as_bytes());
        Step::Done
    })
}
