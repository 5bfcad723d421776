//! Mappers that call and are called, on real sockets, with a clock that the test moves.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use mio::{Events, Poll};

use super::*;
use crate::io::test_folder::TestFolder;
use crate::limits::{
    DMI_ANSWER_MS, DMI_CALLS_PER_S, DMI_CALLS_WAITING_MAX, DMI_HELD_BYTES_MAX,
    DMI_MESSAGE_BYTES_MAX, DMI_READ_BYTES, DMI_READS_BURST, DMI_READS_PER_S, DMI_REPLY_BYTES_MAX,
    DMI_STALL_MS, DMI_TURN_READS,
};
use crate::model::device::DeviceId;
use crate::wire::grpc::{self, CallKey, Code, Incoming, Status};
use crate::wire::h2;

/// Until the deadline of each call to a mapper.
const CALL_MS: u64 = 7_000;
const STATE: &str = "/v1beta1.DeviceManagerService/ReportDeviceStates";

/// The agent's side on a folder of its own, with a clock that the test moves.
struct Scene {
    folder: TestFolder,
    poll: Poll,
    dmi: Dmi,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        let folder = TestFolder::new("dmi");
        let (poll, now) = (Poll::new().expect("a poll"), Instant(1_000));
        let dmi = Dmi::new(&folder.join("dmi.sock"), Token(8), now);
        let mut scene = Self { folder, poll, dmi, now };
        assert_eq!(scene.turn(), []);
        scene
    }

    fn turn(&mut self) -> Vec<Event> {
        let (mut events, mut ready) = (Vec::new(), Events::with_capacity(64));
        self.poll.poll(&mut ready, Some(Duration::from_millis(5))).expect("it polls");
        for ready in &ready {
            assert!(self.dmi.owns(ready.token()));
            self.dmi.ready(ready);
        }
        self.dmi.tick(self.now, self.poll.registry(), &mut events);
        self.dmi.flush(self.poll.registry(), &mut events);
        events
    }

    /// Turns until something comes; none for a second is a failure.
    fn events(&mut self) -> Vec<Event> {
        for _ in 0..200 {
            let events = self.turn();
            if !events.is_empty() {
                return events;
            }
        }
        panic!("nothing comes");
    }

    fn answer(&mut self, id: u64, answer: &ManagerAnswer) {
        self.dmi.answer(self.now, id, answer);
        self.turn();
    }

    /// Calls a mapper, with a deadline in [`CALL_MS`].
    fn call(&mut self, id: u64, mapper: &str, call: MapperCall, events: &mut Vec<Event>) {
        self.dmi.call(id, mapper, call, self.now.plus_ms(CALL_MS), events);
    }

    fn dial(&self) -> Peer {
        Peer::new(UnixStream::connect(self.folder.join("dmi.sock")).expect("it listens"))
    }

    fn listen(&self, name: &str) -> (String, UnixListener) {
        let path = self.folder.join(name);
        let listener = UnixListener::bind(&path).expect("a free path");
        (path.to_str().expect("text").to_owned(), listener)
    }
}

/// A mapper that calls.
struct Peer {
    socket: UnixStream,
    client: grpc::Client,
}

impl Peer {
    fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("ours");
        Self { socket, client: grpc::Client::new(h2::Config::default()) }
    }

    fn call(&mut self, key: u64, path: &'static str, message: &[u8]) {
        self.client.unary(CallKey(key), path, message).expect("there is room");
        self.write();
    }

    fn write(&mut self) {
        while !self.client.output().is_empty() {
            let count = self.socket.write(self.client.output()).expect("it is read");
            self.client.sent(count);
        }
    }

    /// Reads until an event; `None`: closed.
    fn event(&mut self) -> Option<grpc::Event> {
        let mut buffer = [0; 4_096];
        loop {
            if let Some(event) = self.client.poll_event() {
                return Some(event);
            }
            let count = self.socket.read(&mut buffer).expect("it is answered or closed");
            if count == 0 {
                return None;
            }
            self.client.receive(&buffer[..count]).expect("HTTP/2");
            self.write();
        }
    }

    fn is_closed(&mut self) -> bool {
        self.socket.set_nonblocking(true).expect("ours");
        let mut buffer = [0; 4_096];
        let end = loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        };
        self.socket.set_nonblocking(false).expect("ours");
        end
    }
}

/// `ReportDeviceStatesRequest`
fn state(value: &str) -> Vec<u8> {
    [b"\x0a\x01d\x1a", &[value.len() as u8][..], value.as_bytes()].concat()
}

fn called(events: &[Event]) -> u64 {
    let [Event::Called { id, .. }] = events else { panic!("{events:?}") };
    *id
}

fn status(code: Code, message: &str) -> Status {
    Status { code, message: message.to_owned() }
}

#[test]
fn a_report_is_answered_as_the_core_says() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    mapper.call(1, STATE, &state("online"));
    let events = scene.events();
    let [Event::Called { id, call: ManagerCall::ReportState { device, state } }] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((device, &**state), (&DeviceId::new("", "d"), "online"));
    scene.answer(*id, &ManagerAnswer::Done);
    scene.answer(*id, &ManagerAnswer::Done);
    assert_eq!(mapper.event(), Some(grpc::Event::Reply(CallKey(1), Vec::new())));
    mapper.call(2, STATE, &self::state("offline"));
    let id = called(&scene.events());
    scene.answer(id, &ManagerAnswer::NotFound("device d".into()));
    let expected = grpc::Event::Failed(CallKey(2), status(Code::NotFound, "device d"));
    assert_eq!(mapper.event(), Some(expected));
    // What cannot be read never comes to the core.
    mapper.call(3, STATE, b"");
    mapper.call(4, "/v1beta1.DeviceManagerService/Reboot", b"");
    assert_eq!(scene.turn(), []);
    let text = "ReportDeviceStates: got no state, expected one";
    let expected = grpc::Event::Failed(CallKey(3), status(Code::InvalidArgument, text));
    assert_eq!(mapper.event(), Some(expected));
    let text = "unknown method Reboot for service v1beta1.DeviceManagerService";
    let expected = grpc::Event::Failed(CallKey(4), status(Code::Unimplemented, text));
    assert_eq!(mapper.event(), Some(expected));
}

#[test]
fn a_socket_that_a_dead_agent_left_is_replaced() {
    let mut scene = Scene::new();
    let path = scene.folder.join("dmi.sock");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&path).expect("it is there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o660, "root and its group");
    scene.dmi = Dmi::new(&path, Token(8), scene.now);
    scene.turn();
    let mut mapper = scene.dial();
    mapper.call(1, STATE, &state("online"));
    called(&scene.events());
}

#[test]
fn the_connection_that_is_idle_for_longest_makes_room() {
    let mut scene = Scene::new();
    let mut mappers = Vec::new();
    for n in 0..DMI_CONNECTIONS_MAX as u64 {
        let mut mapper = scene.dial();
        mapper.call(n, STATE, &state("online"));
        let id = called(&scene.events());
        scene.answer(id, &ManagerAnswer::Done);
        mapper.event().expect("an answer");
        scene.turn();
        scene.now.0 += 1;
        mappers.push(mapper);
    }
    // The first is used again, the second waits for its answer: the third makes room.
    mappers[0].call(100, STATE, &state("online"));
    let id = called(&scene.events());
    scene.answer(id, &ManagerAnswer::Done);
    mappers[0].event().expect("an answer");
    mappers[1].call(101, STATE, &state("online"));
    called(&scene.events());
    let mut late = scene.dial();
    late.call(1, STATE, &state("online"));
    called(&scene.events());
    let closed = mappers.iter_mut().enumerate().filter_map(|(n, it)| it.is_closed().then_some(n));
    assert_eq!(closed.collect::<Vec<_>>(), [2]);
}

#[test]
fn who_does_not_go_on_is_cut_off() {
    let mut scene = Scene::new();
    let mut silent = scene.dial();
    let mut slow = scene.dial();
    let request = {
        slow.client.unary(CallKey(1), STATE, &state("online")).expect("there is room");
        slow.client.output().to_vec()
    };
    slow.socket.write_all(&request[..request.len() - 1]).expect("it is read");
    let mut idle = scene.dial();
    idle.call(1, STATE, &state("online"));
    let id = called(&scene.events());
    scene.answer(id, &ManagerAnswer::Done);
    idle.event().expect("an answer");
    scene.turn();
    scene.now.0 += DMI_STALL_MS - 1;
    scene.turn();
    assert!(!silent.is_closed() && !slow.is_closed());
    assert_eq!(scene.dmi.wake_at(), Some(scene.now.plus_ms(1)));
    scene.now.0 += 1;
    scene.turn();
    assert!(silent.is_closed() && slow.is_closed());
    scene.now.0 += 1_000_000;
    scene.turn();
    assert!(!idle.is_closed(), "it may keep its connection");
}

#[test]
fn a_call_that_the_core_forgets_ends_at_its_deadline() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    mapper.call(1, STATE, &state("online"));
    let id = called(&scene.events());
    scene.now.0 += DMI_ANSWER_MS - 1;
    scene.turn();
    assert_eq!(scene.dmi.wake_at(), Some(scene.now.plus_ms(1)));
    scene.now.0 += 1;
    scene.turn();
    let text = "the agent has not answered in time";
    let expected = grpc::Event::Failed(CallKey(1), status(Code::DeadlineExceeded, text));
    assert_eq!(mapper.event(), Some(expected));
    scene.answer(id, &ManagerAnswer::Done);
}

#[test]
fn a_call_that_its_mapper_cancels_is_not_answered() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    mapper.call(1, STATE, &state("online"));
    let id = called(&scene.events());
    mapper.client.cancel(CallKey(1));
    mapper.write();
    for _ in 0..20 {
        assert_eq!(scene.turn(), []);
    }
    assert_eq!(scene.dmi.wake_at(), None, "it has no deadline any more");
    scene.answer(id, &ManagerAnswer::Done);
    mapper.call(2, STATE, &state("offline"));
    let id = called(&scene.events());
    scene.answer(id, &ManagerAnswer::Done);
    assert_eq!(mapper.event(), Some(grpc::Event::Reply(CallKey(2), Vec::new())));
}

#[test]
fn a_mapper_that_waits_for_a_shorter_time_is_answered_by_then() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    let metadata = Some(("grpc-timeout", "1S"));
    let asked = mapper.client.unary_with(CallKey(1), STATE, metadata, &state("online"));
    asked.expect("there is room");
    mapper.write();
    called(&scene.events());
    assert_eq!(scene.dmi.wake_at(), Some(scene.now.plus_ms(1_000)));
    scene.now.0 += 1_000;
    scene.turn();
    let text = "the agent has not answered in time";
    let expected = grpc::Event::Failed(CallKey(1), status(Code::DeadlineExceeded, text));
    assert_eq!(mapper.event(), Some(expected));
}

#[test]
fn calls_beyond_the_rate_are_refused() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    for n in 0..u64::from(DMI_CALLS_PER_S) {
        mapper.call(n, STATE, &state("online"));
        let id = called(&scene.events());
        scene.dmi.answer(scene.now, id, &ManagerAnswer::Done);
        // What is read of one connection has a rate of its own: another one each time.
        if n % u64::from(DMI_READS_BURST / 4) == 0 {
            mapper = scene.dial();
        }
    }
    mapper.call(u64::MAX, STATE, &state("online"));
    assert_eq!(scene.turn(), []);
    let text = format!("more than {DMI_CALLS_PER_S} calls in a second");
    loop {
        match mapper.event().expect("an answer") {
            grpc::Event::Reply(..) => {}
            event => {
                let status = status(Code::ResourceExhausted, &text);
                assert_eq!(event, grpc::Event::Failed(CallKey(u64::MAX), status));
                return;
            }
        }
    }
}

#[test]
fn a_flood_is_read_at_a_bounded_rate() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    mapper.write();
    scene.turn();
    // Frames of an unknown type are dropped.
    let flood = [0, 0, 0, 0x42, 0, 0, 0, 0, 0].repeat(1 << 16);
    mapper.socket.set_nonblocking(true).expect("ours");
    let mut sent = 0;
    let mut pour = |scene: &mut Scene, turns: usize| {
        for _ in 0..turns {
            let at = sent % 9;
            while let Ok(count) = mapper.socket.write(&flood[at..]) {
                sent += count;
                if (sent % 9) != at {
                    break;
                }
            }
            scene.turn();
        }
        sent
    };
    let burst = pour(&mut scene, 200);
    assert!(burst > DMI_READS_BURST as usize / 2 * DMI_READ_BYTES, "{burst}");
    assert_eq!(pour(&mut scene, 20), burst, "no more at the same moment");
    scene.now.0 += 1_000;
    let second = pour(&mut scene, 200) - burst;
    assert!(second <= (DMI_READS_PER_S as usize + DMI_TURN_READS) * DMI_READ_BYTES, "{second}");
    assert!(scene.dmi.wake_at().is_some_and(|at| at > scene.now));
}

#[test]
fn who_keeps_too_much_is_cut_off() {
    let mut scene = Scene::new();
    let message = vec![7; DMI_MESSAGE_BYTES_MAX];
    let mut mappers = Vec::new();
    for _ in 0..=DMI_HELD_BYTES_MAX / DMI_MESSAGE_BYTES_MAX {
        let mut mapper = scene.dial();
        mapper.client.unary(CallKey(1), STATE, &message).expect("there is room");
        mapper.socket.set_nonblocking(true).expect("ours");
        mappers.push(mapper);
    }
    let mut closed = 0;
    for _ in 0..4_000 {
        mappers.retain_mut(|mapper| {
            let mut buffer = [0; 4_096];
            match mapper.socket.read(&mut buffer) {
                Ok(count @ 1..) => mapper.client.receive(&buffer[..count]).expect("HTTP/2"),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => {
                    closed += 1;
                    return false;
                }
            }
            // The last bytes never come.
            let bytes = mapper.client.output().len().saturating_sub(9);
            if let Ok(count) = mapper.socket.write(&mapper.client.output()[..bytes]) {
                mapper.client.sent(count);
            }
            true
        });
        assert_eq!(scene.turn(), []);
        if closed > 0 {
            break;
        }
    }
    assert_eq!(closed, 1, "the others stay");
}

#[test]
fn another_protocol_is_closed_at_once() {
    let mut scene = Scene::new();
    let mut mapper = scene.dial();
    mapper.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it is read");
    for _ in 0..20 {
        scene.turn();
    }
    assert!(mapper.is_closed());
    assert_eq!(scene.dmi.wake_at(), None);
}

/// A mapper that is called: the connection's server, and what came.
fn serve(scene: &mut Scene, listener: &UnixListener) -> (UnixStream, grpc::Server, grpc::Call) {
    listener.set_nonblocking(true).expect("ours");
    let mut server = grpc::Server::default();
    let mut socket = None;
    let mut buffer = [0; 4_096];
    for _ in 0..200 {
        assert_eq!(scene.turn(), []);
        if socket.is_none() {
            socket = listener.accept().ok().map(|(socket, _)| socket);
        }
        let Some(socket) = &mut socket else { continue };
        socket.set_nonblocking(true).expect("ours");
        if let Ok(count) = socket.read(&mut buffer) {
            server.receive(&buffer[..count]).expect("HTTP/2");
        }
        let count = socket.write(server.output()).expect("it is read");
        server.sent(count);
        if let Some(Incoming::Call(call)) = server.poll_incoming() {
            return (socket.try_clone().expect("ours"), server, call);
        }
    }
    panic!("no call comes");
}

fn remove(name: &str) -> MapperCall {
    MapperCall::RemoveDevice(DeviceId::new("ns", name))
}

fn done(id: u64, result: Result<(), MapperError>) -> Vec<Event> {
    vec![Event::Done { id, result }]
}

fn flush(socket: &mut UnixStream, server: &mut grpc::Server) {
    socket.write_all(server.output()).expect("it is read");
    server.sent(server.output().len());
}

#[test]
fn a_mapper_gets_one_call_after_the_other() {
    let mut scene = Scene::new();
    let (path, listener) = scene.listen("m.sock");
    let mut none = Vec::new();
    for id in [1, 2] {
        scene.call(id, &path, remove("d"), &mut none);
    }
    let (mut socket, mut server, call) = serve(&mut scene, &listener);
    assert_eq!(&*call.path, "/v1beta1.DeviceMapperService/RemoveDevice");
    assert_eq!(call.message, b"\x0a\x01d\x12\x02ns");
    assert!(listener.accept().is_err(), "the second waits");
    server.answer(call.stream, Ok(b""));
    flush(&mut socket, &mut server);
    assert_eq!(scene.events(), done(1, Ok(())));
    let (mut socket, mut server, call) = serve(&mut scene, &listener);
    server.answer(call.stream, Err(&status(Code::Unknown, "can not find device")));
    flush(&mut socket, &mut server);
    let refused = MapperError::Refused(2, "can not find device".into());
    assert_eq!(scene.events(), done(2, Err(refused)));
    assert_eq!(scene.dmi.wake_at(), None);
}

#[test]
fn mappers_are_called_side_by_side() {
    let mut scene = Scene::new();
    let mappers: Vec<_> = (0..=DMI_CALLS_MAX).map(|n| scene.listen(&format!("{n}.sock"))).collect();
    let mut none = Vec::new();
    for (id, (path, listener)) in (0..).zip(&mappers) {
        listener.set_nonblocking(true).expect("ours");
        scene.call(id, path, remove("d"), &mut none);
    }
    scene.turn();
    let called: Vec<_> =
        mappers.iter().filter_map(|(_, listener)| listener.accept().ok()).collect();
    assert_eq!(called.len(), DMI_CALLS_MAX, "and one waits");
    // It waits no longer than until its deadline.
    scene.now.0 += CALL_MS - 1;
    assert_eq!(scene.turn(), []);
    assert_eq!(scene.dmi.wake_at(), Some(scene.now.plus_ms(1)));
    scene.now.0 += 1;
    let ended = scene.turn();
    let late = |it: &&Event| matches!(it, Event::Done { result: Err(MapperError::Deadline), .. });
    assert_eq!(ended.iter().filter(late).count(), DMI_CALLS_MAX + 1);
}

#[test]
fn a_call_ends_with_the_reason_why_there_is_no_answer() {
    let mut scene = Scene::new();
    let (path, listener) = scene.listen("m.sock");
    let unreachable = |why: String| Err(MapperError::Unreachable(why.into()));
    let mut none = Vec::new();
    // Nobody has such a socket.
    let absent = scene.folder.join("absent.sock");
    let absent = absent.to_str().expect("text");
    scene.call(1, absent, remove("d"), &mut none);
    let why = format!("connect {absent}: No such file or directory (os error 2)");
    assert_eq!(scene.events(), done(1, unreachable(why)));
    // A device that cannot be written.
    scene.call(2, &path, MapperCall::UpdateDevice("[]".into(), None), &mut none);
    let events = scene.events();
    assert!(
        matches!(&events[..], [Event::Done { id: 2, result: Err(MapperError::Unwritable(_)) }]),
        "{events:?}"
    );
    // It is slow.
    scene.call(3, &path, remove("d"), &mut none);
    let slow = serve(&mut scene, &listener);
    scene.now.0 += CALL_MS - 1;
    assert_eq!(scene.turn(), []);
    assert_eq!(scene.dmi.wake_at(), Some(scene.now.plus_ms(1)));
    scene.now.0 += 1;
    assert_eq!(scene.events(), done(3, Err(MapperError::Deadline)));
    drop(slow);
    // It dies.
    scene.call(4, &path, remove("d"), &mut none);
    drop(serve(&mut scene, &listener));
    assert_eq!(scene.events(), done(4, unreachable("closed by the mapper".to_owned())));
    // It speaks something else.
    scene.call(5, &path, remove("d"), &mut none);
    let (mut socket, ..) = serve(&mut scene, &listener);
    socket.write_all(b"\0\0\x08\x06\0\0\0\0\x01").expect("it is read");
    let why = "server's PING on stream 1: expected on stream 0 (PROTOCOL_ERROR)";
    assert_eq!(scene.events(), done(5, unreachable(why.to_owned())));
    // It talks without end.
    scene.call(6, &path, remove("d"), &mut none);
    let (mut socket, ..) = serve(&mut scene, &listener);
    let endless = [0, 0, 0, 0x42, 0, 0, 0, 0, 0].repeat(DMI_REPLY_BYTES_MAX / 9 + 1);
    socket.write_all(&endless).expect("it fits");
    let why = format!("its answer has more than the {DMI_REPLY_BYTES_MAX} bytes expected");
    assert_eq!(scene.events(), done(6, unreachable(why)));
}

#[test]
fn the_queue_of_calls_has_a_bound() {
    let mut scene = Scene::new();
    let (path, _listener) = scene.listen("m.sock");
    let mut events = Vec::new();
    for id in 0..=DMI_CALLS_WAITING_MAX as u64 {
        scene.call(id, &path, remove("d"), &mut events);
    }
    let [Event::Done { id, result: Err(MapperError::Unreachable(why)) }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*id, DMI_CALLS_WAITING_MAX as u64);
    assert_eq!(&**why, format!("{DMI_CALLS_WAITING_MAX} calls wait for mappers, expected fewer"));
}
