//! The socket that mappers call.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use mio::event::Event as Ready;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

use super::Event;
use crate::agent::time::Instant;
use crate::core::rate::Rate;
use crate::io::log::Limit;
use crate::io::socket::{Address, Listener, Stream};
use crate::io::socket_writer::SocketWriter;
use crate::limits::{
    DMI_ANSWER_MS, DMI_CALLS_PER_S, DMI_CONNECTIONS_MAX, DMI_HELD_BYTES_MAX, DMI_READ_BYTES,
    DMI_READS_BURST, DMI_READS_PER_S, DMI_STALL_MS, DMI_TURN_READS,
};
use crate::model::device::ManagerAnswer;
use crate::wire::dmi;
use crate::wire::grpc::{self, Code, Incoming, Status};
use crate::wire::h2::StreamId;

/// The listener, its connections, and the calls on them.
#[derive(Debug)]
pub(super) struct Server {
    listener: Listener,
    first: Token,
    /// By the number that follows the listener's token.
    open: BTreeMap<usize, Connection>,
    calls: BTreeMap<u64, Call>,
    last: u64,
    rate: Rate,
    buffer: Box<[u8]>,
    limits: Limits,
}

/// Of lines that a mapper can repeat.
#[derive(Debug, Default)]
struct Limits {
    refused: Limit,
    left_out: Limit,
    closed: Limit,
}

#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    server: grpc::Server,
    writer: SocketWriter,
    /// There may be bytes that epoll will not report again.
    unread: bool,
    reads: Rate,
    /// Since when it is the client's turn, without progress.
    waits_since: Option<Instant>,
    /// When something was read last.
    used_at: Instant,
}

/// A call that was reported.
#[derive(Clone, Copy, Debug)]
struct Call {
    connection: usize,
    stream: StreamId,
    deadline: Instant,
}

impl Server {
    pub(super) fn new(socket: &Path, first: Token, now: Instant) -> Self {
        let address = Address::Socket(socket.to_owned());
        Self {
            listener: Listener::new(address, "the interface for mappers", first).for_group(),
            first,
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
            last: 0,
            rate: Rate::new(DMI_CALLS_PER_S, DMI_CALLS_PER_S, now),
            buffer: vec![0; DMI_READ_BYTES].into(),
            limits: Limits::default(),
        }
    }

    pub(super) fn retry(&mut self) {
        self.listener.retry();
    }

    /// `at` 0: the listener.
    pub(super) fn ready(&mut self, at: usize, ready: &Ready) {
        if at == 0 {
            self.listener.ready();
        } else if let Some(connection) = self.open.get_mut(&at) {
            connection.unread |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
            if ready.is_writable() {
                connection.writer.ready();
            }
        }
    }

    pub(super) fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.listener.listen(now, registry, remedy);
        self.accept(now, registry);
        self.expire(now);
        let numbers: Vec<usize> = self.open.keys().copied().collect();
        for at in numbers {
            let Some(connection) = self.open.get_mut(&at) else { continue };
            let ended = connection.read(now, &mut self.buffer);
            self.take(now, at, events);
            let keeps = |connection: &Connection| connection.server.held_bytes() > 0;
            let held = if self.open.get(&at).is_some_and(keeps) { self.held_bytes() } else { 0 };
            let Some(connection) = self.open.get_mut(&at) else { continue };
            let ended = ended.and_then(|()| {
                if held > DMI_HELD_BYTES_MAX {
                    let text = format!("{held} bytes are kept, expected {DMI_HELD_BYTES_MAX}");
                    return Err(Ended::Fault(text));
                }
                connection.check(now)
            });
            if let Err(ended) = ended {
                self.close(now, at, &ended);
            }
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        while let Some(at) = self.room() {
            let Some(stream) = self.listener.accept(now) else { return };
            let Stream::Socket(mut socket) = stream else { continue };
            if let Some(mut idle) = self.open.remove(&at) {
                log::debug!("connection={at} is idle and makes room");
                idle.server.leave();
                let _ = idle.socket.write(idle.server.output());
            }
            let token = Token(self.first.0 + at);
            if let Err(error) = registry.register(&mut socket, token, Interest::READABLE) {
                log::warn!("cannot watch a mapper's connection: {error}");
                continue;
            }
            let connection = Connection {
                socket,
                server: grpc::Server::default(),
                writer: SocketWriter::default(),
                unread: true,
                reads: Rate::new(DMI_READS_PER_S, DMI_READS_BURST, now),
                waits_since: None,
                used_at: now,
            };
            self.open.insert(at, connection);
        }
    }

    /// A free number, or that of the connection that has been idle for longest.
    fn room(&self) -> Option<usize> {
        let free = (1..=DMI_CONNECTIONS_MAX).find(|at| !self.open.contains_key(at));
        let is_idle = |(_, connection): &(&usize, &Connection)| connection.server.is_idle();
        free.or_else(|| {
            let idle = self.open.iter().filter(is_idle);
            idle.min_by_key(|(_, connection)| connection.used_at).map(|(at, _)| *at)
        })
    }

    /// The calls that have come.
    fn take(&mut self, now: Instant, at: usize, events: &mut Vec<Event>) {
        let Some(connection) = self.open.get_mut(&at) else { return };
        while let Some(incoming) = connection.server.poll_incoming() {
            let call = match incoming {
                Incoming::Call(call) => call,
                Incoming::Cancelled(stream) => {
                    self.calls.retain(|_, call| (call.connection, call.stream) != (at, stream));
                    continue;
                }
            };
            connection.waits_since = None;
            let decoded = if self.rate.has(now) {
                self.rate.take(now);
                dmi::decode(&call.path, &call.message)
            } else {
                let message = format!("more than {DMI_CALLS_PER_S} calls in a second");
                Err(Status { code: Code::ResourceExhausted, message })
            };
            match decoded {
                Err(status) => {
                    if let Some(repeats) = self.limits.refused.pass(now) {
                        log::warn!("a mapper's call is refused: {status}; repeats={repeats}");
                    }
                    connection.server.answer(call.stream, Err(&status));
                }
                Ok(decoded) => {
                    self.last += 1;
                    let wait_ms = call.timeout_ms.unwrap_or(DMI_ANSWER_MS).min(DMI_ANSWER_MS);
                    let deadline = now.plus_ms(wait_ms);
                    let call = Call { connection: at, stream: call.stream, deadline };
                    self.calls.insert(self.last, call);
                    events.push(Event::Called { id: self.last, call: decoded });
                }
            }
        }
    }

    pub(super) fn answer(&mut self, now: Instant, id: u64, answer: &ManagerAnswer) {
        let held = self.held_bytes();
        let Some(call) = self.calls.remove(&id) else { return };
        let Some(connection) = self.open.get_mut(&call.connection) else { return };
        let dmi::Answer { result, left_out } = dmi::answer(answer);
        if !left_out.is_empty()
            && let Some(repeats) = self.limits.left_out.pass(now)
        {
            log::warn!("a mapper is not told of {}; repeats={repeats}", left_out.join("; "));
        }
        match &result {
            Ok(message) if held + message.len() > DMI_HELD_BYTES_MAX => {
                let message = "answers to other calls are not read yet".to_owned();
                let status = Status { code: Code::ResourceExhausted, message };
                connection.server.answer(call.stream, Err(&status));
            }
            Ok(message) => connection.server.answer(call.stream, Ok(message)),
            Err(status) => connection.server.answer(call.stream, Err(status)),
        }
    }

    /// Answers the calls whose time is over.
    fn expire(&mut self, now: Instant) {
        let Self { calls, open, .. } = self;
        calls.retain(|id, call| {
            if call.deadline > now {
                return true;
            }
            log::warn!("call={id} of a mapper was not answered in time");
            if let Some(connection) = open.get_mut(&call.connection) {
                let message = "the agent has not answered in time".to_owned();
                let status = Status { code: Code::DeadlineExceeded, message };
                connection.server.answer(call.stream, Err(&status));
            }
            false
        });
    }

    /// Writes what is to be written; a connection that fails is closed.
    pub(super) fn flush(&mut self, registry: &Registry) {
        let first = self.first.0;
        let mut failed = Vec::new();
        for (at, connection) in &mut self.open {
            if let Err(error) = connection.write(registry, Token(first + at)) {
                log::debug!("connection={at} ended: write: {error}");
                failed.push(*at);
            }
        }
        for at in failed {
            self.forget(at);
        }
    }

    fn close(&mut self, now: Instant, at: usize, ended: &Ended) {
        let fault = match ended {
            Ended::Closed => None,
            Ended::System(error) => Some(error.to_string()),
            Ended::Fault(text) => Some(text.clone()),
        };
        if let Some(why) = fault
            && let Some(repeats) = self.limits.closed.pass(now)
        {
            log::warn!("connection={at} of a mapper is closed: {why}; repeats={repeats}");
        }
        if let Some(mut connection) = self.forget(at) {
            // A client that still reads gets the error.
            let _ = connection.socket.write(connection.server.output());
        }
    }

    /// Its calls are answered to nobody.
    fn forget(&mut self, at: usize) -> Option<Connection> {
        self.calls.retain(|_, call| call.connection != at);
        self.open.remove(&at)
    }

    fn held_bytes(&self) -> usize {
        self.open.values().map(|connection| connection.server.held_bytes()).sum()
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let listener = self.room().and_then(|_| self.listener.wake_at());
        let calls = self.calls.values().map(|call| call.deadline).min();
        let connections = self.open.values().filter_map(Connection::wake_at).min();
        [listener, calls, connections].into_iter().flatten().min()
    }
}

/// Why a connection is over.
enum Ended {
    /// By the mapper, as it should.
    Closed,
    System(io::Error),
    /// By a fault of the mapper.
    Fault(String),
}

impl Connection {
    fn has_more(&self) -> bool {
        // Who does not read its answers is not read.
        self.unread && !self.server.is_full()
    }

    fn read(&mut self, now: Instant, buffer: &mut [u8]) -> Result<(), Ended> {
        for _ in 0..DMI_TURN_READS {
            if !self.has_more() || !self.reads.has(now) {
                return Ok(());
            }
            match self.socket.read(buffer) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => {
                    self.reads.take(now);
                    self.used_at = now;
                    let received = self.server.receive(&buffer[..count]);
                    received.map_err(|why| Ended::Fault(why.to_string()))?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unread = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::System(error)),
            }
        }
        Ok(())
    }

    /// Whether the client takes too long for what is its turn. An answer that waits to be written
    /// counts as well: progress is that it is read.
    fn check(&mut self, now: Instant) -> Result<(), Ended> {
        if !self.server.waits_for_client() {
            self.waits_since = None;
            return Ok(());
        }
        let since = *self.waits_since.get_or_insert(now);
        if now.since_ms(since) < DMI_STALL_MS {
            return Ok(());
        }
        Err(Ended::Fault(format!("no progress in {DMI_STALL_MS} ms")))
    }

    fn write(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        while let count @ 1.. = self.writer.write(&mut self.socket, self.server.output())? {
            self.server.sent(count);
            self.waits_since = None;
        }
        self.writer.watch(&mut self.socket, registry, token)
    }

    fn wake_at(&self) -> Option<Instant> {
        let read = self.has_more().then(|| self.reads.wake_at());
        let stall = self.waits_since.map(|since| since.plus_ms(DMI_STALL_MS));
        [read, stall].into_iter().flatten().min()
    }
}

fn remedy(_: &Address, error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "stop EdgeCore, or set modules.deviceTwin.dmiSockPath",
        _ => "check modules.deviceTwin.dmiSockPath",
    }
}
