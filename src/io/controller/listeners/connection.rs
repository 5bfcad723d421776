//! One connection, from TLS to its end.
//!
//! ```text
//!  Shaking ─▶ Asking ─▶ Waiting (for the mind) ─▶ Up (a websocket)
//!                │          └──▶ Telling (an answer) ─▶ Leaving ─▶ gone
//!                └─ nonsense ──▶ Telling
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use super::super::authority::Authority;
use super::Door;
use super::ask::{self, Asked};
use super::strangers::Nonsense;
use crate::controller::event::{Event, Exchange};
use crate::controller::time::{Instant, Now};
use crate::io::tls::Tls;
use crate::io::websocket::{Bounds, Came, End, Role, Websocket};
use crate::limits::{
    EDGE_ANSWER_MS, EDGE_CLOSE_MS, EDGE_FIRST_BYTE_MS, EDGE_OUTPUT_BYTES_MAX,
    EDGE_REQUEST_BYTES_MAX, EDGE_REQUEST_MS, EDGE_STALL_MS, HTTP_HEAD_BYTES_MAX, MESSAGE_BYTES_MAX,
};
use crate::model::link::Session;
use crate::model::message::Message;
use crate::wire::edge;
use crate::wire::http1::call;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    /// It stands in the queue of those with something to do.
    pub(super) queued: bool,
    /// Under which moment it is noted.
    pub(super) due: Option<Instant>,
    pub(super) came_at: Instant,
    /// Why it got nothing but a refusal.
    pub(super) refused: Option<String>,
    /// Something has come of it.
    pub(super) is_heard: bool,
    pub(super) door: Door,
    stage: Stage,
    /// Then it is given up, unless it is a websocket that is up.
    deadline: Instant,
}

#[derive(Debug)]
enum Stage {
    Shaking(Box<Tls>),
    Asking(Box<Tls>, Vec<u8>),
    /// What the mind is asked, and what it takes to grant it.
    Waiting(Box<Tls>, Wanted),
    Up(Session, Box<Websocket>),
    Telling(Box<Tls>, Vec<u8>, usize),
    Leaving(Box<Tls>),
    /// Between two of them.
    Moving,
}

#[derive(Debug)]
enum Wanted {
    /// The head that grants the websocket, and what came behind the request.
    Session(Session, Vec<u8>, Vec<u8>),
    Exchange(Exchange),
}

/// What a turn led to.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    /// There is more to do.
    Again,
    /// The mind was asked for a session.
    Session(Session),
    /// The mind was asked for an answer.
    Exchange(Exchange),
    /// It is over.
    End(String),
    /// What came was nothing that we serve.
    Nonsense(Nonsense, String),
}

impl Connection {
    pub(super) fn new(door: Door, peer: SocketAddr, tls: Tls, now: Instant) -> Self {
        Self {
            peer,
            queued: false,
            due: None,
            came_at: now,
            refused: None,
            is_heard: false,
            door,
            stage: Stage::Shaking(Box::new(tls)),
            deadline: now.plus_ms(EDGE_FIRST_BYTE_MS),
        }
    }

    /// When to give it a turn though nothing is ready.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Up(_, socket) => Some(socket.stuck_since()?.plus_ms(EDGE_STALL_MS)),
            _ => Some(self.deadline),
        }
    }

    /// Whether it has not said yet what it wants.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.stage, Stage::Shaking(_) | Stage::Asking(..))
    }

    pub(super) fn session(&self) -> Option<Session> {
        match &self.stage {
            Stage::Up(session, _) | Stage::Waiting(_, Wanted::Session(session, ..)) => {
                Some(*session)
            }
            _ => None,
        }
    }

    pub(super) fn exchange(&self) -> Option<Exchange> {
        match &self.stage {
            Stage::Waiting(_, Wanted::Exchange(exchange)) => Some(*exchange),
            _ => None,
        }
    }

    /// Goes as far as it can now.
    pub(super) fn turn(
        &mut self,
        now: Now,
        authority: &Authority,
        next_name: &mut u64,
        events: &mut Vec<Event>,
    ) -> Next {
        if !matches!(self.stage, Stage::Up(..)) && self.deadline <= now.boot {
            return self.late();
        }
        loop {
            match std::mem::replace(&mut self.stage, Stage::Moving) {
                Stage::Shaking(mut tls) => {
                    tls.begin_turn();
                    let shaken = tls.shake();
                    if tls.heard && !std::mem::replace(&mut self.is_heard, true) {
                        self.deadline = self.came_at.plus_ms(EDGE_REQUEST_MS);
                    }
                    match shaken {
                        Ok(true) => self.stage = Stage::Asking(tls, Vec::new()),
                        Ok(false) => {
                            let more = tls.more;
                            self.stage = Stage::Shaking(tls);
                            return if more { Next::Again } else { Next::Wait };
                        }
                        Err(error) => return no_tls(&error),
                    }
                }
                Stage::Asking(tls, head) => {
                    let next = self.ask(tls, head, now, authority, next_name, events);
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
                Stage::Telling(tls, answer, sent) => {
                    if let Some(next) = self.tell(tls, answer, sent, now.boot) {
                        return next;
                    }
                }
                Stage::Leaving(tls) => return self.leave(tls),
                Stage::Moving => unreachable!("a connection that has failed is gone"),
            }
        }
    }

    fn late(&self) -> Next {
        let late = |why: &str| Next::Nonsense(Nonsense::Late, why.to_owned());
        match &self.stage {
            Stage::Shaking(_) => late("no TLS in time"),
            Stage::Asking(..) => late("no request in time"),
            Stage::Waiting(..) => Next::End("no answer in time".to_owned()),
            Stage::Telling(..) => late("it does not take its answer"),
            Stage::Up(..) | Stage::Leaving(_) | Stage::Moving => Next::End("it is over".to_owned()),
        }
    }

    /// Reads a request. `None`: go on with the stage that follows.
    fn ask(
        &mut self,
        mut tls: Box<Tls>,
        mut head: Vec<u8>,
        now: Now,
        authority: &Authority,
        next_name: &mut u64,
        events: &mut Vec<Event>,
    ) -> Option<Next> {
        tls.begin_turn();
        let mut buffer = [0; READ_BYTES];
        let body_max = match self.door {
            Door::Hub => 0,
            Door::Https => EDGE_REQUEST_BYTES_MAX,
        };
        loop {
            let count = match tls.read(&mut buffer) {
                Ok(0) => return Some(Next::End("hung up".to_owned())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let more = tls.more;
                    self.stage = Stage::Asking(tls, head);
                    return Some(if more { Next::Again } else { Next::Wait });
                }
                Err(error) => return Some(no_tls(&error)),
            };
            head.extend_from_slice(&buffer[..count]);
            if head.len() > HTTP_HEAD_BYTES_MAX + body_max + READ_BYTES {
                let why = "a request that does not end".to_owned();
                return Some(Next::Nonsense(Nonsense::Request, why));
            }
            let (request, length) = match call::call(&head, body_max) {
                Ok(None) => continue,
                Ok(Some(whole)) => whole,
                Err(refused) => {
                    return self.refuse(tls, refused.status, refused.why, now.boot);
                }
            };
            let certificate = tls.peer_certificate();
            let name = *next_name;
            let asked = match self.door {
                Door::Hub => ask::websocket(&request, certificate, self.peer),
                Door::Https => ask::https(&request, certificate, self.peer, (authority, now)),
            };
            match asked {
                Asked::Nothing(answer) => {
                    self.begin_telling(tls, answer, now.boot);
                    return None;
                }
                Asked::Refused(status, why) => {
                    return self.refuse(tls, status, why.to_owned(), now.boot);
                }
                Asked::Session(peer, grant) => {
                    *next_name += 1;
                    let session = Session(name);
                    let wanted = Wanted::Session(session, grant, head.split_off(length));
                    self.begin_waiting(tls, wanted, now.boot);
                    events.push(Event::EdgeUp(session, peer));
                    return Some(Next::Session(session));
                }
                Asked::Exchange(ask) => {
                    *next_name += 1;
                    let exchange = Exchange(name);
                    self.begin_waiting(tls, Wanted::Exchange(exchange), now.boot);
                    events.push(Event::HttpRequest(exchange, ask));
                    return Some(Next::Exchange(exchange));
                }
            }
        }
    }

    fn refuse(&mut self, tls: Box<Tls>, status: u16, why: String, now: Instant) -> Option<Next> {
        self.begin_telling(tls, ask::refusal(status, &why), now);
        self.refused = Some(why);
        None
    }

    fn begin_waiting(&mut self, tls: Box<Tls>, wanted: Wanted, now: Instant) {
        self.stage = Stage::Waiting(tls, wanted);
        self.deadline = now.plus_ms(EDGE_ANSWER_MS);
    }

    fn begin_telling(&mut self, tls: Box<Tls>, answer: Vec<u8>, now: Instant) {
        self.stage = Stage::Telling(tls, answer, 0);
        self.deadline = now.plus_ms(EDGE_ANSWER_MS);
    }

    /// The mind grants the websocket.
    pub(super) fn accept(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Waiting(tls, Wanted::Session(session, grant, tail)) => {
                let mut socket = Websocket::new(*tls, tail, Role::Server, BOUNDS);
                socket.put_head(&grant);
                Stage::Up(session, Box::new(socket))
            }
            other => other,
        };
    }

    /// The mind, or nobody, has this answer for it.
    pub(super) fn answer(&mut self, answer: Vec<u8>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Waiting(tls, _) => Stage::Telling(tls, answer, 0),
            other => other,
        };
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<(), String> {
        match &mut self.stage {
            Stage::Up(_, socket) => socket.send(&edge::encode(message)).map_err(words),
            _ => Ok(()),
        }
    }

    /// Writes what waits on a websocket.
    pub(super) fn flush(&mut self, now: Instant, events: &mut Vec<Event>) -> Next {
        let Stage::Up(session, socket) = &mut self.stage else { return Next::Wait };
        match socket.write(now) {
            Ok(0) => {}
            Ok(_) => events.push(Event::EdgeDrained(*session, socket.unsent_bytes())),
            Err(end) => return Next::End(words(end)),
        }
        match socket.stuck_since() {
            Some(since) if since.plus_ms(EDGE_STALL_MS) <= now => {
                Next::End(format!("took nothing for {} s", EDGE_STALL_MS / 1_000))
            }
            _ => Next::Wait,
        }
    }

    fn talk(&mut self, now: Instant, events: &mut Vec<Event>) -> Next {
        let Stage::Up(session, socket) = &mut self.stage else { return Next::Wait };
        let session = *session;
        let more = socket.read(&mut |came| match came {
            Came::Message(bytes) => events.push(match edge::decode(&bytes) {
                Ok(message) => Event::EdgeMessage(session, Box::new(message)),
                Err(why) => Event::EdgeBadMessage(session, why.to_string()),
            }),
            Came::TooLarge(size) => {
                let why = format!("got {size} bytes, expected {MESSAGE_BYTES_MAX} at most");
                events.push(Event::EdgeBadMessage(session, why));
            }
        });
        match (more, self.flush(now, events)) {
            (Err(end), _) => Next::End(words(end)),
            (Ok(true), Next::Wait) => Next::Again,
            (Ok(_), next) => next,
        }
    }

    /// Writes an answer. `None`: go on with the stage that follows.
    fn tell(
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
                    self.stage = Stage::Telling(tls, answer, sent);
                    return Some(Next::Wait);
                }
                Err(error) => return Some(Next::End(format!("TLS: {error}"))),
            }
        }
        match tls.push_all() {
            Ok(true) => {}
            Ok(false) => {
                self.stage = Stage::Telling(tls, answer, sent);
                return Some(Next::Wait);
            }
            Err(error) => return Some(Next::End(format!("TLS: {error}"))),
        }
        tls.farewell();
        tls.shut_write();
        self.stage = Stage::Leaving(tls);
        self.deadline = now.plus_ms(EDGE_CLOSE_MS);
        None
    }

    /// A socket that is closed with unread bytes in it resets the connection, and a reset may
    /// overtake the answer: so the other end hangs up first, or its time is out.
    fn leave(&mut self, mut tls: Box<Tls>) -> Next {
        tls.begin_turn();
        let mut buffer = [0; READ_BYTES];
        loop {
            match tls.read(&mut buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !tls.more => {
                    self.stage = Stage::Leaving(tls);
                    return Next::Wait;
                }
                Ok(0) | Err(_) => return Next::End("answered".to_owned()),
            }
        }
    }

    /// Takes leave, as far as the socket takes it.
    pub(super) fn farewell(&mut self) {
        match &mut self.stage {
            Stage::Up(_, socket) => socket.farewell(),
            Stage::Asking(tls, _) | Stage::Waiting(tls, _) => tls.farewell(),
            Stage::Shaking(_) | Stage::Telling(..) | Stage::Leaving(_) | Stage::Moving => {}
        }
    }
}

/// Whoever only looks whether the port is open is no news.
fn no_tls(error: &std::io::Error) -> Next {
    if error.kind() == ErrorKind::UnexpectedEof {
        return Next::End("hung up".to_owned());
    }
    Next::Nonsense(Nonsense::Tls, format!("TLS: {error}"))
}

fn words(end: End) -> String {
    match end {
        End::Io(error) if error.kind() == ErrorKind::UnexpectedEof => "hung up".to_owned(),
        End::Io(error) => error.to_string(),
        End::Said(why) => why,
    }
}

/// On the stack.
const READ_BYTES: usize = 4 << 10;
/// Of a node's websocket.
const BOUNDS: Bounds =
    Bounds { message_bytes_max: MESSAGE_BYTES_MAX, out_bytes_max: EDGE_OUTPUT_BYTES_MAX };
