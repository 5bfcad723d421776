//! Calls to services on the node's loopback interface: one connection each.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::event::Event as Ready;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::limits::{SERVICE_BUS_CALL_MS, SERVICE_BUS_CALLS_MAX, SERVICE_BUS_TURN_BYTES};
use crate::model::service_bus::{BusEvent, NoAnswer, ServiceAnswer, ServiceCall, ServiceCallId};
use crate::wire::http1::response::{Piece, Reader};
use crate::wire::service_bus::{is_hop_by_hop, request};

/// The calls under way.
#[derive(Debug)]
pub(super) struct Calls {
    first: Token,
    body_bytes_max: usize,
    /// By their tokens.
    slots: [Option<Call>; SERVICE_BUS_CALLS_MAX],
}

#[derive(Debug)]
struct Call {
    id: ServiceCallId,
    socket: TcpStream,
    stands: bool,
    request: Vec<u8>,
    sent: usize,
    reader: Reader,
    /// The answer has no body, whatever its head says.
    is_head: bool,
    answer: Option<ServiceAnswer>,
    deadline: Instant,
    /// It may be able to go on.
    is_ready: bool,
}

/// How a call stands.
enum Progress {
    Wait,
    /// There may be more that epoll will not report again.
    More,
    Done(Result<ServiceAnswer, NoAnswer>),
}

impl Calls {
    pub(super) fn new(first: Token, body_bytes_max: usize) -> Self {
        Self { first, body_bytes_max, slots: [const { None }; SERVICE_BUS_CALLS_MAX] }
    }

    pub(super) fn start(
        &mut self,
        now: Instant,
        id: ServiceCallId,
        call: &ServiceCall,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        let mut fail = |why: NoAnswer| {
            events.push(Event::ServiceBus(Box::new(BusEvent::Answered(id, Err(why)))));
        };
        let Some(slot) = self.slots.iter().position(Option::is_none) else {
            // Calls whose callers are gone may still be under way.
            return fail(NoAnswer::Failed("too many calls are under way".to_owned()));
        };
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), call.port);
        let connected = TcpStream::connect(address).and_then(|mut socket| {
            let both = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut socket, Token(self.first.0 + slot), both).map(|()| socket)
        });
        let socket = match connected {
            Ok(socket) => socket,
            Err(error) => return fail(NoAnswer::Failed(error.to_string())),
        };
        self.slots[slot] = Some(Call {
            id,
            socket,
            stands: false,
            request: request(call),
            sent: 0,
            reader: Reader::with_fields(),
            is_head: &*call.method == "HEAD",
            answer: None,
            deadline: now.plus_ms(SERVICE_BUS_CALL_MS),
            is_ready: true,
        });
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        if let Some(Some(call)) = self.slots.get_mut(ready.token().0 - self.first.0) {
            call.is_ready = true;
        }
    }

    pub(super) fn tick(&mut self, now: Instant, events: &mut Vec<Event>) {
        let most = self.body_bytes_max;
        for slot in &mut self.slots {
            let Some(call) = slot else { continue };
            let progress = if call.deadline <= now {
                Progress::Done(Err(NoAnswer::Late))
            } else if std::mem::take(&mut call.is_ready) {
                call.advance(most)
            } else {
                Progress::Wait
            };
            match progress {
                Progress::Wait => {}
                Progress::More => call.is_ready = true,
                Progress::Done(result) => {
                    let event = BusEvent::Answered(call.id, result);
                    events.push(Event::ServiceBus(Box::new(event)));
                    *slot = None;
                }
            }
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let calls = self.slots.iter().flatten();
        calls.map(|call| if call.is_ready { Instant(0) } else { call.deadline }).min()
    }
}

impl Call {
    /// Does what is possible now, within a turn's bytes.
    fn advance(&mut self, body_bytes_max: usize) -> Progress {
        let failed = |why: String| Progress::Done(Err(NoAnswer::Failed(why)));
        if !self.stands {
            match self.socket.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => return failed(error.to_string()),
            }
            match self.socket.peer_addr() {
                Ok(_) => self.stands = true,
                Err(error) if error.kind() == ErrorKind::NotConnected => return Progress::Wait,
                Err(error) => return failed(error.to_string()),
            }
        }
        let mut left = SERVICE_BUS_TURN_BYTES;
        while self.sent < self.request.len() && left > 0 {
            let end = self.request.len().min(self.sent + left);
            match self.socket.write(&self.request[self.sent..end]) {
                Ok(count) => (self.sent, left) = (self.sent + count, left - count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The answer may have come before: 413 for a body that is not wanted.
                Err(_) => self.sent = self.request.len(),
            }
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    return match self.answer.take().filter(|_| self.reader.closed()) {
                        Some(answer) => Progress::Done(Ok(answer)),
                        None => failed("it has closed the connection".to_owned()),
                    };
                }
                Ok(count) => {
                    if let Some(result) = self.take(&buffer[..count], body_bytes_max) {
                        return Progress::Done(result);
                    }
                    left = left.saturating_sub(count);
                    if left == 0 {
                        return Progress::More;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_blocked = self.sent < self.request.len() && left == 0;
                    return if is_blocked { Progress::More } else { Progress::Wait };
                }
                Err(error) => return failed(error.to_string()),
            }
        }
    }

    /// Takes received bytes; returns the answer when it is whole.
    fn take(
        &mut self,
        bytes: &[u8],
        body_bytes_max: usize,
    ) -> Option<Result<ServiceAnswer, NoAnswer>> {
        self.reader.receive(bytes);
        loop {
            let status = match self.reader.piece() {
                Err(fault) => return Some(Err(NoAnswer::Failed(fault.to_string()))),
                Ok(None) => return None,
                Ok(Some(Piece::Head(head))) => head.status,
                Ok(Some(Piece::Body(piece))) => {
                    let answer = self.answer.as_mut().expect("a body follows a head");
                    if answer.body.len() + piece.len() > body_bytes_max {
                        return Some(Err(NoAnswer::TooLarge));
                    }
                    answer.body.extend_from_slice(piece);
                    continue;
                }
                Ok(Some(Piece::End)) => return self.answer.take().map(Ok),
            };
            let mut headers = self.reader.take_fields();
            headers.retain(|(name, _)| !is_hop_by_hop(name));
            let answer = ServiceAnswer { status, headers, body: Vec::new() };
            if self.is_head {
                return Some(Ok(answer));
            }
            self.answer = Some(answer);
        }
    }
}

const READ_BYTES: usize = 16 << 10;
