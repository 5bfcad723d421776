//! MQTT with real parts: Debian's `mosquitto` as the other broker, and its clients at our broker.

#![allow(clippy::disallowed_methods, reason = "these tests measure and wait for real programs")]

mod place;
#[path = "../support/port.rs"]
mod port;
#[path = "../support/process.rs"]
#[expect(dead_code, reason = "shared with tests that measure processes")]
mod process;

use edged::io::mqtt::Event;
use edged::model::settings::{MqttServer, Secret};
use edged::wire::mqtt::QoS;
use nix::sys::signal::Signal;
use place::{Folder, Lines, Mosquitto, Shell, certificates, external, internal, publishes};
use port::free_port;

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

impl Shell {
    fn publish(&mut self, topic: &str, payload: &str, retain: bool) -> u64 {
        let payload = payload.as_bytes();
        let number = self.mqtt.publish(topic, payload, QoS::AtLeastOnce, retain, &mut self.events);
        number.expect("it can be published")
    }
}

#[test]
fn clients_of_mosquitto_publish_to_our_broker_and_subscribe() {
    let port = free_port();
    let mut shell = Shell::new(&internal(port));
    shell.until("the port", |shell| shell.mqtt.status().broker);
    shell.publish("a/ready", "now", true);
    let mut subscribers = Vec::new();
    for (version, qos) in [("mqttv31", "0"), ("mqttv311", "1"), ("mqttv311", "2")] {
        let sub = Lines::sub(port, &["-V", version, "-q", qos, "-t", "a/#", "-t", "$hw/#"]);
        assert_eq!(shell.line(&sub), "a/ready now", "retained, for {version}");
        subscribers.push(sub);
    }
    for qos in ["0", "1", "2"] {
        let arguments = ["-q", qos, "-t", "a/user/x", "-m", qos];
        let output = publishes(port, &arguments);
        assert!(shell.output(output).status.success(), "QoS {qos}");
        assert_eq!(shell.message(), pair("a/user/x", qos), "to the owner");
        for sub in &subscribers {
            assert_eq!(shell.line(sub), format!("a/user/x {qos}"));
        }
    }
    let delta = "$hw/events/device/default/dev1/twin/update/delta";
    let forged = publishes(port, &["-q", "1", "-t", delta, "-m", "forged"]);
    assert!(shell.output(forged).status.success());
    shell.publish(delta, "ours", false);
    for sub in &subscribers {
        assert_eq!(shell.line(sub), format!("{delta} ours"), "what is forged is not passed on");
    }
    let received = |event: &Event| matches!(event, Event::Received { .. });
    assert!(!shell.events.iter().any(received), "once each: {:?}", shell.events);
    let counts = shell.mqtt.status().counts;
    assert_eq!((counts.received, counts.refused, counts.dropped), (4, 1, 0));
}

#[test]
fn a_client_of_mqtt_5_is_told_so_and_ends() {
    let port = free_port();
    let mut shell = Shell::new(&internal(port));
    shell.until("the port", |shell| shell.mqtt.status().broker);
    let refused = publishes(port, &["-V", "mqttv5", "-t", "a", "-m", "x"]);
    let output = shell.output(refused);
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(!output.status.success() && said.contains("protocol version"), "{said}");
}

#[test]
fn a_session_outlives_its_connection_and_a_will_its_client() {
    let port = free_port();
    let mut shell = Shell::new(&internal(port));
    shell.until("the port", |shell| shell.mqtt.status().broker);
    shell.publish("b/ready", "now", true);
    let watcher = Lines::sub(port, &["-t", "b/ready", "-t", "will/#"]);
    assert_eq!(shell.line(&watcher), "b/ready now");
    let lasting = ["-c", "-i", "lasting", "-q", "1", "-t", "b/#"];
    let will = ["--will-topic", "will/lasting", "--will-payload", "gone"];
    let sub = Lines::sub(port, &[&lasting[..], &will[..]].concat());
    assert_eq!(shell.line(&sub), "b/ready now");
    sub.signal(Signal::SIGKILL);
    assert_eq!(shell.line(&watcher), "will/lasting gone");
    for at in 0..5 {
        shell.publish("b/x", &at.to_string(), false);
    }
    let sub = Lines::sub(port, &lasting);
    // The subscription is renewed, so what is retained comes again.
    let mut lines: Vec<_> = (0..6).map(|_| shell.line(&sub)).collect();
    lines.retain(|line| line != "b/ready now");
    assert_eq!(lines, ["b/x 0", "b/x 1", "b/x 2", "b/x 3", "b/x 4"]);
}

#[test]
fn our_broker_has_tls_and_a_password_and_a_socket_of_its_own() {
    let (folder, port) = (Folder::new("broker"), free_port());
    certificates(&folder);
    let mut settings = internal(port);
    let broker = &mut settings.broker;
    broker.server = MqttServer::parse(&format!("ssl://127.0.0.1:{port}")).expect("a URL");
    (broker.user, broker.password) = ("user".to_owned(), Secret::new("secret"));
    (broker.cert_file, broker.key_file) = (folder.file("server.crt"), folder.file("server.key"));
    broker.socket = folder.file("mqtt.sock");
    let mut shell = Shell::new(&settings);
    shell.until("the port", |shell| shell.mqtt.status().broker);
    let ca = folder.file("ca.crt");
    let message = ["--cafile", &ca, "-q", "1", "-t", "a/user/x", "-m", "secret"];
    for (credentials, is_allowed) in [
        (&["-u", "user", "-P", "secret"][..], true),
        (&["-u", "user", "-P", "wrong"], false),
        (&[], false),
    ] {
        let child = publishes(port, &[&message[..], credentials].concat());
        let output = shell.output(child);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_allowed, "{credentials:?}: {said}");
        assert!(is_allowed || said.contains("Connection Refused"), "{said}");
    }
    assert_eq!(shell.message(), pair("a/user/x", "secret"));
    let plain = publishes(port, &["-u", "user", "-P", "secret", "-t", "a", "-m", "x"]);
    assert!(!shell.output(plain).status.success(), "without TLS");
    let socket = folder.file("mqtt.sock");
    let local = publishes(port, &["--unix", &socket, "-t", "a/user/x", "-m", "local"]);
    let output = shell.output(local);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(shell.message(), pair("a/user/x", "local"));
}

#[test]
fn our_client_keeps_its_session_at_mosquitto_over_restarts_of_both() {
    let (folder, port) = (Folder::new("restart"), free_port());
    let mut mosquitto = Mosquitto::start(&folder, port, "allow_anonymous true");
    // Its first address is that of IPv6 on most machines, where nobody listens.
    let settings = external(&format!("tcp://localhost:{port}"));
    let mut shell = Shell::new(&settings);
    shell.up();
    let publish = |shell: &mut Shell, payload: &str| {
        let child = publishes(port, &["-q", "1", "-t", "plant/user/x", "-m", payload]);
        assert!(shell.output(child).status.success());
    };
    // Its subscription has reached the broker once a message comes back.
    shell.until("the subscription", |shell| {
        publish(shell, "ready");
        shell.events.iter().any(|event| matches!(event, Event::Received { .. })).then_some(())
    });
    let sub = Lines::sub(port, &["-t", "answer/#", "-q", "1"]);
    let first = shell.until("a subscriber", |shell| {
        let number = shell.publish("answer/a", "42", false);
        shell.event("PUBACK", |event| *event == Event::Published(number));
        sub.try_line()
    });
    assert_eq!(first, "answer/a 42");
    mosquitto.stop();
    let why = shell.down();
    assert!(why.contains("it closed the connection"), "{why}");
    let waiting = shell.publish("answer/later", "43", false);
    mosquitto.start_again();
    // The client does not turn meanwhile: it is away.
    for payload in ["one", "two"] {
        let begun = std::time::Instant::now();
        loop {
            let mut child = publishes(port, &["-q", "1", "-t", "plant/user/x", "-m", payload]);
            if child.wait().expect("it is ours").success() {
                break;
            }
            assert!(begun.elapsed().as_secs() < 20, "mosquitto does not come back");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    shell.events.clear();
    shell.acknowledges = false;
    shell.up();
    assert_eq!(shell.message(), pair("plant/user/x", "one"));
    assert_eq!(shell.message(), pair("plant/user/x", "two"));
    shell.event("PUBACK", |event| *event == Event::Published(waiting));
    // They were not acknowledged: the next process gets them again.
    drop(shell);
    let mut shell = Shell::new(&settings);
    assert_eq!(shell.message(), pair("plant/user/x", "one"));
    assert_eq!(shell.message(), pair("plant/user/x", "two"));
}

#[test]
fn our_client_shows_its_certificate_and_names_what_is_wrong() {
    let (folder, port) = (Folder::new("tls"), free_port());
    certificates(&folder);
    let file = |name: &str| folder.file(name);
    let config = format!(
        "allow_anonymous true\ncafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true",
        file("ca.crt"),
        file("server.crt"),
        file("server.key")
    );
    let _mosquitto = Mosquitto::start(&folder, port, &config);
    let mut settings = external(&format!("ssl://127.0.0.1:{port}"));
    let client = &mut settings.client;
    client.ca_file = file("ca.crt");
    (client.cert_file, client.key_file) = (file("client.crt"), file("client.key"));
    let mut shell = Shell::new(&settings);
    shell.up();
    shell.publish("a", "x", false);
    shell.event("PUBACK", |event| matches!(event, Event::Published(_)));
    let mut bare = settings.clone();
    (bare.client.cert_file, bare.client.key_file) = (String::new(), String::new());
    let why = Shell::new(&bare).down();
    assert!(why.contains("ertificate"), "{why}");
    let other = Folder::new("tls-other");
    certificates(&other);
    let mut distrusts = settings.clone();
    distrusts.client.ca_file = other.file("ca.crt");
    let why = Shell::new(&distrusts).down();
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
    let mut missing = settings;
    missing.client.ca_file = String::new();
    let why = Shell::new(&missing).down();
    assert!(why.contains("tlsMqttCAFile") && why.contains("needs the file of a CA"), "{why}");
}

#[test]
fn a_broker_that_refuses_or_is_not_there_is_named() {
    let (folder, port) = (Folder::new("refused"), free_port());
    let _mosquitto = Mosquitto::start(&folder, port, "allow_anonymous false");
    let mut shell = Shell::new(&external(&format!("tcp://127.0.0.1:{port}")));
    let why = shell.until("the refusal", |shell| {
        let (_, state) = shell.mqtt.status().client.expect("it is set");
        state.err().filter(|why| why.contains("CONNACK"))
    });
    assert!(why.contains("the client is not authorized (CONNACK 5)"), "{why}");
    let why = Shell::new(&external(&format!("tcp://127.0.0.1:{}", free_port()))).down();
    assert!(why.contains("Connection refused"), "{why}");
}
