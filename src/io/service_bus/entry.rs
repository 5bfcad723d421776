//! The port for applications of the node (`serviceBus.server` and `port`): one request for each
//! connection.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::io::socket::{Address, Listener, Stream};
use crate::limits::{
    HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, SERVICE_BUS_BODY_BYTES_MAX, SERVICE_BUS_CLIENT_MS,
    SERVICE_BUS_CONNECTIONS_MAX, SERVICE_BUS_TURN_BYTES,
};
use crate::model::service_bus::{BusEvent, EntryAnswer, EntryId};
use crate::wire::http1::call::call;
use crate::wire::service_bus::{entry_json, entry_url};

/// The listener and its connections.
#[derive(Debug)]
pub(super) struct Entries {
    first: Token,
    address: SocketAddr,
    /// `None`: no rule lets anybody in.
    listener: Option<Listener>,
    slots: [Option<Client>; SERVICE_BUS_CONNECTIONS_MAX],
    last: u64,
}

#[derive(Debug)]
struct Client {
    stream: Stream,
    state: State,
    /// Then the connection is closed; while the core has the request it decides.
    deadline: Instant,
    is_ready: bool,
}

#[derive(Debug)]
enum State {
    /// What was received of the request.
    Reading(Vec<u8>),
    /// The core answers.
    Waiting(EntryId),
    /// The answer, and how much of it was sent.
    Writing(Vec<u8>, usize),
    /// What the application sends beyond its request is read and dropped: a reset could overtake
    /// the answer. How many bytes.
    Closing(usize),
    Over,
}

impl Entries {
    /// One for the listener, one for each connection.
    pub(super) const TOKENS: usize = 1 + SERVICE_BUS_CONNECTIONS_MAX;

    pub(super) fn new(address: SocketAddr, first: Token) -> Self {
        let slots = [const { None }; SERVICE_BUS_CONNECTIONS_MAX];
        Self { first, address, listener: None, slots, last: 0 }
    }

    /// Whether applications may connect. Requests under way go on.
    pub(super) fn listen(&mut self, is_on: bool) {
        self.listener =
            is_on.then(|| Listener::new(Address::Port(self.address), "servicebus", self.first));
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        match ready.token().0 - self.first.0 {
            0 => self.listener.iter_mut().for_each(Listener::ready),
            number => {
                if let Some(Some(client)) = self.slots.get_mut(number - 1) {
                    client.is_ready = true;
                }
            }
        }
    }

    pub(super) fn answer(&mut self, now: Instant, id: EntryId, answer: &EntryAnswer) {
        let waits = |it: &&mut Client| matches!(it.state, State::Waiting(known) if known == id);
        // The application may have left.
        if let Some(client) = self.slots.iter_mut().flatten().find(waits) {
            client.write(now, answer);
        }
    }

    pub(super) fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.accept(now, registry);
        for slot in &mut self.slots {
            let Some(client) = slot else { continue };
            let is_late = client.deadline <= now && !matches!(client.state, State::Waiting(_));
            if !is_late && std::mem::take(&mut client.is_ready) {
                client.advance(now, &mut self.last, events);
            }
            if is_late || matches!(client.state, State::Over) {
                // Closed with its socket.
                let _ = client.stream.deregister(registry);
                *slot = None;
            }
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        let Some(listener) = &mut self.listener else { return };
        listener.listen(now, registry, |_, error| match error.kind() {
            ErrorKind::AddrInUse => "another program has that port",
            _ => "see modules.serviceBus of edgecore.yaml",
        });
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let Some(mut stream) = listener.accept(now) else { return };
            let token = Token(self.first.0 + 1 + slot);
            if let Err(error) = stream.register(registry, token) {
                log::warn!("servicebus: a connection cannot be served: {error}");
                continue;
            }
            let deadline = now.plus_ms(SERVICE_BUS_CLIENT_MS);
            let state = State::Reading(Vec::new());
            self.slots[slot] = Some(Client { stream, state, deadline, is_ready: true });
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let clients = self.slots.iter().flatten().filter_map(|client| match client.state {
            _ if client.is_ready => Some(Instant(0)),
            State::Waiting(_) => None,
            _ => Some(client.deadline),
        });
        let is_full = self.slots.iter().all(Option::is_some);
        let listener = self.listener.as_ref().filter(|_| !is_full);
        clients.chain(listener.and_then(Listener::wake_at)).min()
    }
}

impl Client {
    fn advance(&mut self, now: Instant, last: &mut u64, events: &mut Vec<Event>) {
        match &mut self.state {
            State::Reading(_) => self.read(now, last, events),
            // Whether the application has left is seen when it is answered.
            State::Waiting(_) | State::Over => {}
            State::Writing(..) => self.send(now),
            State::Closing(_) => self.drain(),
        }
    }

    fn read(&mut self, now: Instant, last: &mut u64, events: &mut Vec<Event>) {
        let State::Reading(bytes) = &mut self.state else { return };
        let mut buffer = [0; READ_BYTES];
        let mut left = SERVICE_BUS_TURN_BYTES;
        while left > 0 {
            match self.stream.read(&mut buffer) {
                Ok(0) => return self.state = State::Over,
                Ok(count) => {
                    bytes.extend_from_slice(&buffer[..count]);
                    left = left.saturating_sub(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.state = State::Over,
            }
        }
        self.is_ready = left == 0;
        let refusal = match call(bytes, SERVICE_BUS_BODY_BYTES_MAX) {
            Ok(None) => return,
            Ok(Some((request, _))) => match entry_url(&request.body) {
                Ok(url) => {
                    *last += 1;
                    let (id, body) = (EntryId(*last), request.body);
                    self.state = State::Waiting(id);
                    let event = BusEvent::Entry { id, url, body };
                    return events.push(Event::ServiceBus(Box::new(event)));
                }
                Err(refusal) => refusal,
            },
            Err(refused) => EntryAnswer::refused(&format!(
                "can't read data from body of the http's request: {}",
                refused.why
            )),
        };
        self.write(now, &refusal);
    }

    fn write(&mut self, now: Instant, answer: &EntryAnswer) {
        let json = entry_json(answer);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            json.len()
        );
        self.state = State::Writing([head.as_bytes(), json.as_bytes()].concat(), 0);
        self.deadline = now.plus_ms(SERVICE_BUS_CLIENT_MS);
        self.is_ready = true;
    }

    fn send(&mut self, now: Instant) {
        let State::Writing(bytes, sent) = &mut self.state else { return };
        let mut left = SERVICE_BUS_TURN_BYTES;
        while *sent < bytes.len() {
            if left == 0 {
                return self.is_ready = true;
            }
            let end = bytes.len().min(*sent + left);
            match self.stream.write(&bytes[*sent..end]) {
                Ok(count) => (*sent, left) = (*sent + count, left - count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.state = State::Over,
            }
        }
        if self.stream.shutdown_write().is_err() {
            return self.state = State::Over;
        }
        (self.state, self.is_ready) = (State::Closing(0), true);
        self.deadline = now.plus_ms(HTTP_CLOSE_MS);
    }

    fn drain(&mut self) {
        let State::Closing(count) = &mut self.state else { return };
        let mut buffer = [0; READ_BYTES];
        while *count < HTTP_CLOSE_BYTES_MAX {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(more) => *count += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.state = State::Over;
    }
}

const READ_BYTES: usize = 16 << 10;
