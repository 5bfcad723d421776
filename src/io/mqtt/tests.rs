//! The bounds of time and of a turn, over loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use mio::Poll;

use super::*;
use crate::limits::{
    MQTT_BACKOFF_MAX_MS, MQTT_BACKOFF_MIN_MS, MQTT_CONNECTIONS_MAX, MQTT_DIAL_MS, MQTT_TURN_BYTES,
};
use crate::model::settings::MqttServer;

/// MQTT in an event loop whose clock is the test's.
struct Shell {
    poll: Poll,
    mqtt: Mqtt,
    events: Vec<Event>,
}

impl Shell {
    fn new(mode: MqttMode, port: u16) -> Self {
        let mut settings = MqttSettings { mode, ..MqttSettings::default() };
        let server = format!("tcp://127.0.0.1:{port}");
        settings.client.server = MqttServer::parse(&server).expect("a URL");
        settings.broker.server = settings.client.server.clone();
        let mqtt = Mqtt::new(&settings, PathBuf::from("/nowhere/edged"), Token(3), 5);
        let mqtt = mqtt.expect("the settings are right");
        Self { poll: Poll::new().expect("a poll"), mqtt, events: Vec::new() }
    }

    fn tick(&mut self, ms: u64) {
        let now = Now { boot: Instant(ms), wall: None };
        self.mqtt.tick(now, self.poll.registry(), &mut self.events);
    }

    /// A tick after the poll has said what is ready.
    fn turn(&mut self) {
        let mut ready = mio::Events::with_capacity(256);
        let wait = std::time::Duration::from_millis(100);
        self.poll.poll(&mut ready, Some(wait)).expect("it polls");
        for ready in &ready {
            self.mqtt.ready(ready);
        }
        self.tick(1);
    }

    fn downs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Down(_))).count()
    }
}

/// A port on which nobody listens.
fn free() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("an address").port()
}

#[test]
fn a_broker_that_is_away_is_dialled_at_longer_and_longer_intervals() {
    let mut shell = Shell::new(MqttMode::External, free());
    let (mut now_ms, mut expected) = (0, MQTT_BACKOFF_MIN_MS);
    for _ in 0..8 {
        // The refusal may take a moment.
        while shell.mqtt.wake_at().is_some_and(|at| at.0 <= now_ms || at.0 == 0) {
            shell.tick(now_ms);
        }
        let wait_ms = shell.mqtt.wake_at().expect("it goes on").0 - now_ms;
        let range = expected..=expected + expected / 2;
        assert!(range.contains(&wait_ms), "{wait_ms} is not in {range:?}");
        now_ms += wait_ms;
        expected = (2 * expected).min(MQTT_BACKOFF_MAX_MS);
    }
    assert_eq!(shell.downs(), 1, "the owner hears of it once: {:?}", shell.events);
}

#[test]
fn a_broker_that_nobody_named_may_be_absent_on_this_machine() {
    let dialled = |is_written, server: &str| {
        let mut settings = MqttSettings::default();
        settings.client.server = MqttServer::parse(server).expect("a URL");
        settings.client.is_written = is_written;
        let mqtt = Mqtt::new(&settings, PathBuf::from("/nowhere/edged"), Token(3), 5);
        let mqtt = mqtt.expect("the settings are right");
        let mut shell = Shell { poll: Poll::new().expect("a poll"), mqtt, events: Vec::new() };
        while shell.downs() == 0 {
            shell.turn();
        }
        shell.mqtt.link.as_ref().is_some_and(Link::is_trouble)
    };
    let server = format!("tcp://127.0.0.1:{}", free());
    assert!(!dialled(false, &server));
    assert!(dialled(true, &server));
    // The lookup cannot even begin.
    assert!(dialled(false, "tcp://broker.example:1883"), "another failure is not expected");
}

#[test]
fn a_broker_that_does_not_answer_is_left_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    let mut shell = Shell::new(MqttMode::External, port);
    shell.tick(1_000);
    let (mut socket, _) = listener.accept().expect("it dials");
    for _ in 0..3 {
        shell.tick(1_000);
    }
    let mut hello = [0; 2];
    while shell.mqtt.wake_at() == Some(Instant(0)) {
        shell.tick(1_000);
    }
    socket.read_exact(&mut hello).expect("a CONNECT");
    assert_eq!(hello[0], 0x10);
    assert_eq!(shell.mqtt.wake_at(), Some(Instant(1_000 + MQTT_DIAL_MS)));
    shell.tick(999 + MQTT_DIAL_MS);
    assert_eq!(shell.downs(), 0);
    shell.tick(1_000 + MQTT_DIAL_MS);
    let Some(Event::Down(why)) = shell.events.last() else { panic!("{:?}", shell.events) };
    assert!(why.ends_with("it does not answer the CONNECT: is it MQTT?"), "{why}");
}

#[test]
fn a_turn_reads_so_much_of_a_client_and_the_next_goes_on() {
    let port = free();
    let mut shell = Shell::new(MqttMode::Internal, port);
    shell.tick(0);
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let connect = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c";
    let publish = [&b"\x30\x80\x01\0\x08a/user/x"[..], &[b'x'; 118]].concat();
    assert_eq!(publish.len(), 3 + 128);
    let count = 4 * MQTT_TURN_BYTES / publish.len();
    let all = [&connect[..], &publish.repeat(count)].concat();
    socket.set_nonblocking(true).expect("it can");
    let (mut sent, mut turns) = (0, 0);
    while shell.events.len() < count {
        match socket.write(&all[sent..]) {
            Ok(more) => sent += more,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let before = shell.events.len();
        shell.turn();
        let came = shell.events.len() - before;
        assert!(came <= (MQTT_TURN_BYTES + (4 << 10)) / publish.len() + 1, "{came} in a turn");
        turns += usize::from(came > 0);
    }
    assert!(turns >= 3, "{turns}");
}

#[test]
fn the_broker_has_so_many_clients_and_turns_others_away() {
    let port = free();
    let mut shell = Shell::new(MqttMode::Internal, port);
    shell.tick(0);
    let connect = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        socket.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0").expect("there is room");
        socket
    };
    let sockets: Vec<_> = (0..MQTT_CONNECTIONS_MAX).map(|_| connect()).collect();
    while shell.mqtt.status().counts.clients < MQTT_CONNECTIONS_MAX {
        shell.turn();
    }
    let mut more = connect();
    shell.turn();
    let mut answer = [0; 4];
    let closed = more.read(&mut answer);
    assert!(!matches!(closed, Ok(1..)), "{closed:?}");
    drop(sockets);
}

#[test]
fn an_open_address_is_refused_with_its_place() {
    let mut settings = MqttSettings { mode: MqttMode::Both, ..MqttSettings::default() };
    settings.broker.server.host = "0.0.0.0".to_owned();
    let wrong = Mqtt::new(&settings, PathBuf::new(), Token(1), 1).expect_err("it is open");
    let expected = "mqttServerInternal: got tcp://0.0.0.0:1884 without TLS, user and password, ";
    assert!(wrong.to_string().starts_with(expected), "{wrong}");
}
