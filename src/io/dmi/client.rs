//! Calls to mappers.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read};

use mio::event::Event as Ready;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

use super::Event;
use crate::agent::time::Instant;
use crate::io::socket_writer::SocketWriter;
use crate::limits::{
    CriBudget, DMI_CALLS_MAX, DMI_CALLS_WAITING_MAX, DMI_HEADER_BLOCK_BYTES_MAX,
    DMI_HEADER_LIST_BYTES_MAX, DMI_OUTPUT_BYTES_MAX, DMI_READ_BYTES, DMI_REPLY_BYTES_MAX,
    DMI_WINDOW_BYTES,
};
use crate::model::device::{MapperCall, MapperError};
use crate::wire::rpc::CallKey;
use crate::wire::{dmi, grpc, h2};

/// The calls under way, and those that wait for their mapper.
#[derive(Debug)]
pub(super) struct Client {
    first: Token,
    /// By the number that is added to the first token.
    open: BTreeMap<usize, Conversation>,
    waiting: VecDeque<Waiting>,
    buffer: Box<[u8]>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    /// The path of its socket.
    mapper: Box<str>,
    call: MapperCall,
    deadline: Instant,
}

/// A connection with one call.
#[derive(Debug)]
struct Conversation {
    id: u64,
    mapper: Box<str>,
    socket: UnixStream,
    client: grpc::Client,
    writer: SocketWriter,
    unread: bool,
    received_bytes: usize,
    deadline: Instant,
}

const CALL: CallKey = CallKey(0);

impl Client {
    pub(super) fn new(first: Token) -> Self {
        let buffer = vec![0; DMI_READ_BYTES].into();
        Self { first, open: BTreeMap::new(), waiting: VecDeque::new(), buffer }
    }

    pub(super) fn call(
        &mut self,
        id: u64,
        mapper: &str,
        call: MapperCall,
        deadline: Instant,
        events: &mut Vec<Event>,
    ) {
        if self.waiting.len() >= DMI_CALLS_WAITING_MAX {
            let why = format!("{DMI_CALLS_WAITING_MAX} calls wait for mappers, expected fewer");
            let result = Err(MapperError::Unreachable(why.into()));
            return events.push(Event::Done { id, result });
        }
        self.waiting.push_back(Waiting { id, mapper: mapper.into(), call, deadline });
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if let Some(conversation) = self.open.get_mut(&at) {
            conversation.unread |=
                ready.is_readable() || ready.is_read_closed() || ready.is_error();
            if ready.is_writable() {
                conversation.writer.ready();
            }
        }
    }

    /// Reads answers, and ends what is late.
    pub(super) fn tick(&mut self, now: Instant, events: &mut Vec<Event>) {
        let Self { open, buffer, waiting, .. } = self;
        waiting.retain(|waiting| {
            let is_late = waiting.deadline <= now;
            if is_late {
                events.push(Event::Done { id: waiting.id, result: Err(MapperError::Deadline) });
            }
            !is_late
        });
        open.retain(|_, conversation| {
            let ended = match conversation.read(buffer) {
                Err(error) => Some(Err(error)),
                Ok(Some(event)) => Some(dmi::outcome(event)),
                Ok(None) if conversation.deadline <= now => Some(Err(MapperError::Deadline)),
                Ok(None) => None,
            };
            conversation.done(ended, events)
        });
    }

    /// Begins calls, the oldest of each mapper that has none under way, and writes.
    pub(super) fn flush(&mut self, registry: &Registry, events: &mut Vec<Event>) {
        let mut at = 0;
        while at < self.waiting.len() && self.open.len() < DMI_CALLS_MAX {
            let mapper = &self.waiting[at].mapper;
            if self.open.values().any(|conversation| conversation.mapper == *mapper) {
                at += 1;
                continue;
            }
            let Some(waiting) = self.waiting.remove(at) else { return };
            let id = waiting.id;
            if let Err(error) = self.begin(waiting, registry) {
                events.push(Event::Done { id, result: Err(error) });
            }
        }
        let first = self.first.0;
        for (at, conversation) in &mut self.open {
            conversation.write(registry, Token(first + at));
        }
    }

    fn begin(&mut self, waiting: Waiting, registry: &Registry) -> Result<(), MapperError> {
        let Waiting { id, mapper, call, deadline } = waiting;
        let (path, message) = dmi::encode(&call)?;
        let mut client = client();
        client.unary(CALL, path, &message).map_err(|refused| unreachable(&refused))?;
        let at = (0..DMI_CALLS_MAX).find(|at| !self.open.contains_key(at));
        let at = at.expect("the caller has counted them");
        let connected = UnixStream::connect(&*mapper).and_then(|mut socket| {
            registry.register(&mut socket, Token(self.first.0 + at), Interest::READABLE)?;
            Ok(socket)
        });
        let socket = connected.map_err(|error| {
            MapperError::Unreachable(format!("connect {mapper}: {error}").into())
        })?;
        log::debug!("call={id} mapper={mapper} rpc={path} bytes={}", message.len());
        let conversation = Conversation {
            id,
            mapper,
            socket,
            client,
            writer: SocketWriter::default(),
            unread: false,
            received_bytes: 0,
            deadline,
        };
        self.open.insert(at, conversation);
        Ok(())
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let one = |conversation: &Conversation| {
            if conversation.unread { Instant(0) } else { conversation.deadline }
        };
        self.open.values().map(one).chain(self.waiting.iter().map(|it| it.deadline)).min()
    }
}

/// A connection's client, for small answers.
fn client() -> grpc::Client {
    let client = grpc::Client::new(h2::Config {
        stream_window_bytes: DMI_WINDOW_BYTES,
        connection_window_bytes: DMI_WINDOW_BYTES,
        header_list_bytes_max: DMI_HEADER_LIST_BYTES_MAX,
        header_block_bytes_max: DMI_HEADER_BLOCK_BYTES_MAX,
        output_bytes_max: DMI_OUTPUT_BYTES_MAX,
        ..h2::Config::default()
    });
    client.within(&CriBudget {
        message_bytes_max: DMI_REPLY_BYTES_MAX,
        unfinished_bytes_max: DMI_REPLY_BYTES_MAX,
        ..CriBudget::default()
    })
}

impl Conversation {
    /// Whether it goes on.
    fn done(&self, ended: Option<Result<(), MapperError>>, events: &mut Vec<Event>) -> bool {
        let Some(result) = ended else { return true };
        events.push(Event::Done { id: self.id, result });
        false
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<grpc::Event>, MapperError> {
        while self.unread {
            match self.socket.read(buffer) {
                Ok(0) => {
                    self.unread = false;
                    self.client.hangup("closed by the mapper");
                }
                Ok(count) => {
                    self.received_bytes += count;
                    if self.received_bytes > DMI_REPLY_BYTES_MAX {
                        let max = DMI_REPLY_BYTES_MAX;
                        let why = format!("its answer has more than the {max} bytes expected");
                        return Err(unreachable(&why));
                    }
                    // A violation is the reason why the call is lost.
                    let _ = self.client.receive(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unread = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreachable(&format_args!("read: {error}"))),
            }
            if let Some(event) = self.client.poll_event() {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// A mapper that has closed may have answered before: what it sent, and the end, is read next.
    fn write(&mut self, registry: &Registry, token: Token) {
        let Self { socket, client, writer, .. } = self;
        let written = loop {
            match writer.write(socket, client.output()) {
                Ok(0) => break writer.watch(socket, registry, token),
                Ok(count) => client.sent(count),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = written {
            log::debug!("call={} mapper={} write: {error}", self.id, self.mapper);
            self.unread = true;
        }
    }
}

fn unreachable(why: &dyn std::fmt::Display) -> MapperError {
    MapperError::Unreachable(why.to_string().into())
}
