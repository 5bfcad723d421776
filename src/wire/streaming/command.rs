//! A command in a container, or the container's own process: what its client sends, and what it is
//! sent.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::upgrade::Protocol;
use super::{Message, Received, Violation, WebSocket};
use crate::limits::STREAM_SIZE_BYTES_MAX;
use crate::model::cri::Pipes;
use crate::wire::spdy::server;

/// A client.
#[derive(Debug)]
pub struct Command {
    pipes: Pipes,
    line: Line,
    /// Of the message with a terminal's size, which may come in pieces.
    size: Vec<u8>,
}

type Line = super::Line<Streams, WebSocketVersion>;

#[derive(Debug)]
struct Streams {
    version: u8,
    /// By [`Channel`].
    ids: [Option<u32>; 5],
}

#[derive(Debug)]
struct WebSocketVersion(u8);

/// The numbers are those of WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Stdin,
    Stdout,
    Stderr,
    Error,
    Resize,
}

const CHANNELS: [(Channel, &str); 5] = [
    (Channel::Stdin, "stdin"),
    (Channel::Stdout, "stdout"),
    (Channel::Stderr, "stderr"),
    (Channel::Error, "error"),
    (Channel::Resize, "resize"),
];

/// What the client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Standard input.
    Input(Cow<'a, [u8]>),
    /// No more input comes.
    EndOfInput,
    /// The size of its terminal.
    Size { columns: u16, rows: u16 },
    /// It is done with all.
    Left,
}

/// One of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

/// How the command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Exited(i32),
    /// It could not be run, or what became of it is not known.
    Failed(String),
}

impl Command {
    /// A client that was asked for these streams.
    pub fn new(protocol: Protocol, pipes: Pipes) -> Self {
        let line = match protocol {
            Protocol::Spdy(version) => {
                Line::Spdy(Box::default(), Streams { version, ids: [None; 5] })
            }
            Protocol::WebSocket(version) => {
                let mut socket = WebSocket::default();
                // It says that the client is connected.
                let first = if pipes.stdout { Channel::Stdout } else { Channel::Error };
                socket.send(first as u8, b"");
                Line::WebSocket(socket, WebSocketVersion(version))
            }
        };
        Self { pipes, line, size: Vec::new() }
    }

    fn is_wanted(&self, channel: Channel) -> bool {
        match channel {
            Channel::Stdin => self.pipes.stdin,
            Channel::Stdout => self.pipes.stdout,
            Channel::Stderr => self.pipes.stderr && !self.pipes.tty,
            Channel::Error => true,
            Channel::Resize => {
                self.pipes.tty && !matches!(self.line, Line::Spdy(_, Streams { version: ..3, .. }))
            }
        }
    }

    /// All streams are open.
    pub fn is_ready(&self) -> bool {
        match &self.line {
            Line::Spdy(_, streams) => CHANNELS.iter().all(|(channel, _)| {
                streams.ids[*channel as usize].is_some() || !self.is_wanted(*channel)
            }),
            Line::WebSocket(..) => true,
        }
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Incoming<'a>>), Violation> {
        let mut taken = 0;
        loop {
            let (count, received) = self.line.receive(&bytes[taken..])?;
            taken += count;
            let incoming = match received {
                None => return Ok((taken, None)),
                Some(Received::Spdy(incoming)) => self.of_spdy(incoming),
                Some(Received::WebSocket(message)) => self.of_message(message),
            };
            if incoming.is_some() {
                return Ok((taken, incoming));
            }
        }
    }

    fn of_spdy<'a>(&mut self, came: server::Incoming<'a>) -> Option<Incoming<'a>> {
        match came {
            server::Incoming::Open(id, headers) => {
                let kind = headers.get("streamtype");
                let channel = CHANNELS.iter().find(|(_, name)| *name == kind);
                let channel = channel.map(|(channel, _)| *channel);
                let wanted = channel.filter(|channel| self.is_wanted(*channel));
                let Line::Spdy(server, streams) = &mut self.line else { return None };
                match wanted.map(|channel| &mut streams.ids[channel as usize]) {
                    Some(stream @ None) => {
                        *stream = Some(id);
                        server.accept(id);
                    }
                    Some(Some(_)) | None => server.refuse(id),
                }
                None
            }
            server::Incoming::Data(id, bytes) => match self.channel(id)? {
                Channel::Stdin => Some(Incoming::Input(bytes.into())),
                Channel::Resize => self.take_size(bytes),
                Channel::Stdout | Channel::Stderr | Channel::Error => None,
            },
            server::Incoming::End(id) => {
                (self.channel(id)? == Channel::Stdin).then_some(Incoming::EndOfInput)
            }
            server::Incoming::Reset(id) => {
                let channel = self.channel(id)?;
                // Nothing more can be sent on it.
                if let Line::Spdy(_, streams) = &mut self.line {
                    streams.ids[channel as usize] = Some(CLOSED);
                }
                (channel == Channel::Stdin).then_some(Incoming::EndOfInput)
            }
        }
    }

    fn channel(&self, id: u32) -> Option<Channel> {
        let Line::Spdy(_, streams) = &self.line else { return None };
        let at = streams.ids.iter().position(|stream| *stream == Some(id))?;
        Some(CHANNELS[at].0)
    }

    fn of_message<'a>(&mut self, message: Message) -> Option<Incoming<'a>> {
        let Line::WebSocket(_, WebSocketVersion(version)) = self.line else { return None };
        match message {
            Message::Of(STDIN, bytes) if self.pipes.stdin => Some(Incoming::Input(bytes.into())),
            Message::Of(RESIZE, bytes) => self.take_size(&bytes),
            Message::Of(CLOSE, bytes) if version >= 5 && bytes[..] == [STDIN] => {
                Some(Incoming::EndOfInput)
            }
            Message::Of(..) => None,
            Message::Close => Some(Incoming::Left),
        }
    }

    /// `{"Width":111,"Height":33}`; only the last one counts.
    fn take_size(&mut self, bytes: &[u8]) -> Option<Incoming<'static>> {
        if self.size.len() + bytes.len() > STREAM_SIZE_BYTES_MAX {
            self.size.clear();
        }
        let room = STREAM_SIZE_BYTES_MAX - self.size.len();
        self.size.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let end = self.size.iter().rposition(|byte| *byte == b'}')? + 1;
        let begin = self.size[..end].iter().rposition(|byte| *byte == b'{').unwrap_or(0);
        let size: Option<Value> = serde_json::from_slice(&self.size[begin..end]).ok();
        self.size.drain(..end);
        let size = size?;
        let side = |name: &str| u16::try_from(size[name].as_u64()?).ok().filter(|side| *side > 0);
        Some(Incoming::Size { columns: side("Width")?, rows: side("Height")? })
    }

    /// Sends what the command has written.
    pub fn output(&mut self, output: Output, bytes: &[u8]) {
        let channel = match output {
            Output::Stdout => Channel::Stdout,
            Output::Stderr => Channel::Stderr,
        };
        if self.is_wanted(channel) {
            self.send(channel, bytes);
        }
    }

    fn send(&mut self, channel: Channel, bytes: &[u8]) {
        match &mut self.line {
            Line::Spdy(server, streams) => {
                if let Some(id) = streams.ids[channel as usize].filter(|id| *id != CLOSED) {
                    server.data(id, bytes);
                }
            }
            Line::WebSocket(socket, _) => socket.send(channel as u8, bytes),
        }
    }

    /// Sends the end of the outputs, and how the command has ended. Nothing follows.
    pub fn finish(&mut self, ended: &Ended) {
        let status = match &self.line {
            Line::Spdy(_, Streams { version: ..4, .. }) => plain_status(ended),
            Line::Spdy(..) | Line::WebSocket(..) => status(ended).to_string(),
        };
        for channel in [Channel::Stdout, Channel::Stderr] {
            self.end(channel);
        }
        if !status.is_empty() {
            self.send(Channel::Error, status.as_bytes());
        }
        for channel in [Channel::Error, Channel::Stdin, Channel::Resize] {
            self.end(channel);
        }
        self.line.finish();
    }

    fn end(&mut self, channel: Channel) {
        let Line::Spdy(server, streams) = &mut self.line else { return };
        if let Some(id) = streams.ids[channel as usize].replace(CLOSED).filter(|id| *id != CLOSED) {
            server.end(id);
        }
    }

    /// The bytes that are to be sent.
    pub fn pending(&self) -> &[u8] {
        self.line.pending()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.line.sent(count);
    }
}

/// No stream has this id: those of clients are odd.
const CLOSED: u32 = 0;
const STDIN: u8 = Channel::Stdin as u8;
const RESIZE: u8 = Channel::Resize as u8;
/// Of `v5.channel.k8s.io`: closes the channel that follows.
const CLOSE: u8 = 255;

/// meta/v1 `Status` in the kubelet's words.
fn status(ended: &Ended) -> Value {
    match ended {
        Ended::Exited(0) => json!({"metadata": {}, "status": "Success"}),
        Ended::Exited(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": plain_status(ended),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ended::Failed(why) => json!({
            "metadata": {},
            "status": "Failure",
            "message": plain_status(ended),
            "reason": "InternalError",
            "details": {"causes": [{"message": why}]},
            "code": 500,
        }),
    }
}

/// Before version 4: a text, and only of a failure.
fn plain_status(ended: &Ended) -> String {
    match ended {
        Ended::Exited(0) => String::new(),
        Ended::Exited(code) => {
            format!("command terminated with non-zero exit code: exit code {code}")
        }
        Ended::Failed(why) => {
            format!("Internal error occurred: error executing command in container: {why}")
        }
    }
}
