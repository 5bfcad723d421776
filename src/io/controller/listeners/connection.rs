//! One connection of a node, from TLS to its end.
//!
//! ```text
//!  Handshake ─▶ Reading ─▶ Waiting (for the core) ─▶ Up (a websocket)
//!                  │          └──▶ Writing (an answer) ─▶ Closing ─▶ gone
//!                  └─ invalid ──▶ Writing
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use super::ask::{self, Outcome};
use super::strangers::RefusalReason;
use super::{Door, Trust, Upgraded};
use crate::controller::event::{Event, Exchange, Tunnel};
use crate::controller::time::{Instant, Now};
use crate::io::tls::Tls;
use crate::io::websocket::{Bounds, End, Received, Role, Websocket};
use crate::limits::{
    EDGE_ANSWER_MS, EDGE_CLOSE_MS, EDGE_FIRST_BYTE_MS, EDGE_OUTPUT_BYTES_MAX,
    EDGE_REQUEST_BYTES_MAX, EDGE_REQUEST_MS, EDGE_STALL_MS, HTTP_HEAD_BYTES_MAX, MESSAGE_BYTES_MAX,
};
use crate::model::cloud_message::CloudMessage;
use crate::model::link::Session;
use crate::wire::edge;
use crate::wire::http1::call::{self, Call};
use crate::wire::kubeedge;
use crate::wire::kubelet::answer::TEXT;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    /// It is in the queue of connections with something to do.
    pub(super) queued: bool,
    /// The time under which it is in the list of deadlines.
    pub(super) due: Option<Instant>,
    pub(super) came_at: Instant,
    /// Why it was refused.
    pub(super) refused: Option<String>,
    /// Bytes were received from it.
    pub(super) has_received: bool,
    pub(super) door: Door,
    stage: Stage,
    /// Then it is closed, except an established websocket.
    deadline: Instant,
}

#[derive(Debug)]
enum Stage {
    Handshake(Box<Tls>),
    Reading(Box<Tls>, Vec<u8>),
    /// The core has a request; with the data to grant it.
    Waiting(Box<Tls>, Grant),
    Up(Session, Box<Websocket>),
    Writing(Box<Tls>, Vec<u8>, usize),
    Closing(Box<Tls>),
    /// Between two stages.
    Moving,
}

#[derive(Debug)]
enum Grant {
    /// The header that grants the websocket, and the bytes after the request.
    Session(Session, Vec<u8>, Vec<u8>),
    Exchange(Exchange),
    /// As a session's.
    Tunnel(Tunnel, Vec<u8>, Vec<u8>),
}

/// The result of a turn.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    More,
    /// The core got a request for a session.
    Session(Session),
    /// The core got a request for an answer.
    Exchange(Exchange),
    /// The core got a request for a tunnel.
    Tunnel(Tunnel),
    /// kube-apiserver has sent a request, and these bytes after it.
    Asked(Box<Tls>, Box<Call>, Vec<u8>),
    /// It has ended.
    End(String),
    /// The peer sent something invalid.
    Refused(RefusalReason, String),
}

impl Connection {
    pub(super) fn new(door: Door, peer: SocketAddr, tls: Tls, now: Instant) -> Self {
        Self {
            peer,
            queued: false,
            due: None,
            came_at: now,
            refused: None,
            has_received: false,
            door,
            stage: Stage::Handshake(Box::new(tls)),
            deadline: now.plus_ms(EDGE_FIRST_BYTE_MS),
        }
    }

    /// When it needs a turn even if nothing is ready.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Up(_, socket) => Some(socket.blocked_since()?.plus_ms(EDGE_STALL_MS)),
            _ => Some(self.deadline),
        }
    }

    /// Whether it has not sent a request yet.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.stage, Stage::Handshake(_) | Stage::Reading(..))
    }

    pub(super) fn session(&self) -> Option<Session> {
        match &self.stage {
            Stage::Up(session, _) | Stage::Waiting(_, Grant::Session(session, ..)) => {
                Some(*session)
            }
            _ => None,
        }
    }

    pub(super) fn exchange(&self) -> Option<Exchange> {
        match &self.stage {
            Stage::Waiting(_, Grant::Exchange(exchange)) => Some(*exchange),
            _ => None,
        }
    }

    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        match &self.stage {
            Stage::Waiting(_, Grant::Tunnel(tunnel, ..)) => Some(*tunnel),
            _ => None,
        }
    }

    /// What is handed over of one that waits for a tunnel.
    pub(super) fn into_upgraded(self) -> Option<Upgraded> {
        match self.stage {
            Stage::Waiting(tls, Grant::Tunnel(_, grant, tail)) => {
                Some(Upgraded { tls: *tls, grant, tail })
            }
            _ => None,
        }
    }

    /// Continues as far as possible now.
    pub(super) fn turn(
        &mut self,
        now: Now,
        trust: Trust<'_>,
        next_name: &mut u64,
        events: &mut Vec<Event>,
    ) -> Next {
        if !matches!(self.stage, Stage::Up(..)) && self.deadline <= now.boot {
            return self.late();
        }
        loop {
            match std::mem::replace(&mut self.stage, Stage::Moving) {
                Stage::Handshake(mut tls) => {
                    tls.begin_turn();
                    let shaken = tls.handshake();
                    if tls.received && !std::mem::replace(&mut self.has_received, true) {
                        self.deadline = self.came_at.plus_ms(EDGE_REQUEST_MS);
                    }
                    match shaken {
                        Ok(true) => self.stage = Stage::Reading(tls, Vec::new()),
                        Ok(false) => {
                            let more = tls.more;
                            self.stage = Stage::Handshake(tls);
                            return if more { Next::More } else { Next::Wait };
                        }
                        Err(error) => return no_tls(&error),
                    }
                }
                Stage::Reading(tls, head) => {
                    let next = self.read_request(tls, head, now, trust, next_name, events);
                    if let Some(next) = next {
                        return next;
                    }
                }
                Stage::Waiting(tls, wanted) => {
                    self.stage = Stage::Waiting(tls, wanted);
                    return Next::Wait;
                }
                Stage::Up(session, socket) => {
                    self.stage = Stage::Up(session, socket);
                    return self.talk(now.boot, events);
                }
                Stage::Writing(tls, answer, sent) => {
                    if let Some(next) = self.write_answer(tls, answer, sent, now.boot) {
                        return next;
                    }
                }
                Stage::Closing(tls) => return self.close_slowly(tls),
                Stage::Moving => unreachable!("a connection that has failed is gone"),
            }
        }
    }

    fn late(&self) -> Next {
        let late = |why: &str| Next::Refused(RefusalReason::Late, why.to_owned());
        match &self.stage {
            Stage::Handshake(_) => late("no TLS in time"),
            Stage::Reading(..) => late("no request in time"),
            Stage::Waiting(..) => Next::End("no answer in time".to_owned()),
            Stage::Writing(..) => late("it does not read its answer"),
            Stage::Up(..) | Stage::Closing(_) | Stage::Moving => Next::End("it is over".to_owned()),
        }
    }

    /// Reads a request. `None`: continue with the next stage.
    fn read_request(
        &mut self,
        mut tls: Box<Tls>,
        mut head: Vec<u8>,
        now: Now,
        trust: Trust<'_>,
        next_name: &mut u64,
        events: &mut Vec<Event>,
    ) -> Option<Next> {
        tls.begin_turn();
        let mut buffer = [0; READ_BYTES];
        let body_max = match self.door {
            Door::Hub | Door::Tunnel | Door::ApiServer => 0,
            Door::Https => EDGE_REQUEST_BYTES_MAX,
        };
        loop {
            let count = match tls.read(&mut buffer) {
                Ok(0) => return Some(Next::End("hung up".to_owned())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let more = tls.more;
                    self.stage = Stage::Reading(tls, head);
                    return Some(if more { Next::More } else { Next::Wait });
                }
                Err(error) => return Some(no_tls(&error)),
            };
            head.extend_from_slice(&buffer[..count]);
            if head.len() > HTTP_HEAD_BYTES_MAX + body_max + READ_BYTES {
                let why = "a request without an end".to_owned();
                return Some(Next::Refused(RefusalReason::Request, why));
            }
            let (request, length) = match call::call(&head, body_max) {
                Ok(None) => continue,
                Ok(Some(whole)) => whole,
                Err(refused) => {
                    return self.refuse(tls, refused.status, refused.why, now.boot);
                }
            };
            let tail = head.split_off(length);
            if self.door == Door::ApiServer {
                return match trust.callers.admit(tls.peer_chain(), now) {
                    Ok(()) => Some(Next::Asked(tls, Box::new(request), tail)),
                    Err((status, why)) => self.refuse(tls, status, why, now.boot),
                };
            }
            let certificate = tls.peer_certificate();
            let outcome = match self.door {
                Door::Hub => ask::websocket(&request, certificate, self.peer),
                Door::Https => ask::https(&request, certificate, self.peer, (trust.authority, now)),
                Door::Tunnel | Door::ApiServer => ask::tunnel(&request, certificate, self.peer),
            };
            return self.take_outcome(outcome, tls, tail, now.boot, next_name, events);
        }
    }

    /// `tail`: the bytes after the request.
    fn take_outcome(
        &mut self,
        outcome: Outcome,
        tls: Box<Tls>,
        tail: Vec<u8>,
        now: Instant,
        next_name: &mut u64,
        events: &mut Vec<Event>,
    ) -> Option<Next> {
        let name = *next_name;
        let (wanted, event, next) = match outcome {
            Outcome::Nothing(answer) => {
                self.begin_writing(tls, answer, now);
                return None;
            }
            Outcome::Refused(status, why) => return self.refuse(tls, status, why.to_owned(), now),
            Outcome::Session(peer, grant) => {
                let session = Session(name);
                let wanted = Grant::Session(session, grant, tail);
                (wanted, Event::EdgeUp(session, peer), Next::Session(session))
            }
            Outcome::Tunnel(peer, grant) => {
                let tunnel = Tunnel(name);
                let wanted = Grant::Tunnel(tunnel, grant, tail);
                (wanted, Event::TunnelUp(tunnel, peer), Next::Tunnel(tunnel))
            }
            Outcome::Exchange(ask) => {
                let exchange = Exchange(name);
                let event = Event::HttpRequest(exchange, ask);
                (Grant::Exchange(exchange), event, Next::Exchange(exchange))
            }
        };
        *next_name += 1;
        self.begin_waiting(tls, wanted, now);
        events.push(event);
        Some(next)
    }

    fn refuse(&mut self, tls: Box<Tls>, status: u16, why: String, now: Instant) -> Option<Next> {
        let answer = match self.door {
            Door::Hub | Door::Https | Door::Tunnel => ask::refusal(status, &why),
            // kube-apiserver shows it in a sentence.
            Door::ApiServer => call::answer(status, TEXT, why.as_bytes()),
        };
        self.begin_writing(tls, answer, now);
        self.refused = Some(why);
        None
    }

    fn begin_waiting(&mut self, tls: Box<Tls>, wanted: Grant, now: Instant) {
        self.stage = Stage::Waiting(tls, wanted);
        self.deadline = now.plus_ms(EDGE_ANSWER_MS);
    }

    fn begin_writing(&mut self, tls: Box<Tls>, answer: Vec<u8>, now: Instant) {
        self.stage = Stage::Writing(tls, answer, 0);
        self.deadline = now.plus_ms(EDGE_ANSWER_MS);
    }

    /// The core grants the websocket.
    pub(super) fn accept(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Waiting(tls, Grant::Session(session, grant, tail)) => {
                let mut socket = Websocket::new(*tls, tail, Role::Server, BOUNDS);
                socket.put_head(&grant);
                Stage::Up(session, Box::new(socket))
            }
            other => other,
        };
    }

    /// The answer to its request, from the core or not.
    pub(super) fn answer(&mut self, answer: Vec<u8>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Waiting(tls, _) => Stage::Writing(tls, answer, 0),
            other => other,
        };
    }

    pub(super) fn send(&mut self, message: &CloudMessage) -> Result<(), End> {
        match &mut self.stage {
            Stage::Up(_, socket) => socket.send(&edge::encode(&kubeedge::encode_cloud(message))),
            _ => Ok(()),
        }
    }

    /// Writes queued messages of a websocket.
    pub(super) fn flush(&mut self, now: Instant, events: &mut Vec<Event>) -> Next {
        let Stage::Up(session, socket) = &mut self.stage else { return Next::Wait };
        match socket.write(now) {
            Ok(0) => {}
            Ok(_) => events.push(Event::EdgeDrained(*session, socket.unsent_bytes())),
            Err(end) => return Next::End(end_reason(end)),
        }
        match socket.blocked_since() {
            Some(since) if since.plus_ms(EDGE_STALL_MS) <= now => {
                Next::End(format!("did not read for {} s", EDGE_STALL_MS / 1_000))
            }
            _ => Next::Wait,
        }
    }

    fn talk(&mut self, now: Instant, events: &mut Vec<Event>) -> Next {
        let Stage::Up(session, socket) = &mut self.stage else { return Next::Wait };
        let session = *session;
        let more = socket.read(&mut |came| match came {
            Received::Message(bytes) => events.push(match edge::decode(&bytes) {
                Ok(message) => {
                    Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message)))
                }
                Err(why) => Event::EdgeBadMessage(session, why.to_string()),
            }),
            Received::TooLarge(size) => {
                let why = format!("got {size} bytes, expected {MESSAGE_BYTES_MAX} at most");
                events.push(Event::EdgeBadMessage(session, why));
            }
        });
        match (more, self.flush(now, events)) {
            (Err(end), _) => Next::End(end_reason(end)),
            (Ok(true), Next::Wait) => Next::More,
            (Ok(_), next) => next,
        }
    }

    /// Writes an answer. `None`: continue with the next stage.
    fn write_answer(
        &mut self,
        mut tls: Box<Tls>,
        answer: Vec<u8>,
        mut sent: usize,
        now: Instant,
    ) -> Option<Next> {
        while sent < answer.len() {
            match tls.write(&answer[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stage = Stage::Writing(tls, answer, sent);
                    return Some(Next::Wait);
                }
                Err(error) => return Some(Next::End(format!("TLS: {error}"))),
            }
        }
        match tls.push_all() {
            Ok(true) => {}
            Ok(false) => {
                self.stage = Stage::Writing(tls, answer, sent);
                return Some(Next::Wait);
            }
            Err(error) => return Some(Next::End(format!("TLS: {error}"))),
        }
        tls.send_close();
        tls.shut_write();
        self.stage = Stage::Closing(tls);
        self.deadline = now.plus_ms(EDGE_CLOSE_MS);
        None
    }

    /// Closing a socket that has unread bytes resets the connection, and the reset may
    /// overtake the answer: so this waits until the other end closes, or the deadline.
    fn close_slowly(&mut self, mut tls: Box<Tls>) -> Next {
        tls.begin_turn();
        let mut buffer = [0; READ_BYTES];
        loop {
            match tls.read(&mut buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !tls.more => {
                    self.stage = Stage::Closing(tls);
                    return Next::Wait;
                }
                Ok(0) | Err(_) => return Next::End("answered".to_owned()),
            }
        }
    }

    /// Sends a close frame, as far as the socket takes it.
    pub(super) fn send_close(&mut self) {
        match &mut self.stage {
            Stage::Up(_, socket) => socket.send_close(),
            Stage::Reading(tls, _) | Stage::Waiting(tls, _) => tls.send_close(),
            Stage::Handshake(_) | Stage::Writing(..) | Stage::Closing(_) | Stage::Moving => {}
        }
    }
}

/// A peer that only checks whether the port is open is not counted.
fn no_tls(error: &std::io::Error) -> Next {
    if error.kind() == ErrorKind::UnexpectedEof {
        return Next::End("hung up".to_owned());
    }
    Next::Refused(RefusalReason::Tls, format!("TLS: {error}"))
}

pub(super) fn end_reason(end: End) -> String {
    match end {
        End::Io(error) if error.kind() == ErrorKind::UnexpectedEof => "hung up".to_owned(),
        End::Io(error) => error.to_string(),
        End::Peer(why) => why,
    }
}

/// On the stack.
const READ_BYTES: usize = 4 << 10;
/// The limits of a node's websocket.
const BOUNDS: Bounds =
    Bounds { message_bytes_max: MESSAGE_BYTES_MAX, out_bytes_max: EDGE_OUTPUT_BYTES_MAX };
