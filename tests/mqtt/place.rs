//! An event loop with our MQTT in it, mosquitto and its clients as processes, and certificates.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use edged::io::clock;
use edged::io::mqtt::{Event, Mqtt};
use edged::model::settings::{MqttMode, MqttServer, MqttSettings};
use edged::wire::x509::pem;
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::process::signal;

/// Many times longer than anything takes on an idle machine.
const BOUND: Duration = Duration::from_secs(30);

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("edged-mqtt-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a file of ours");
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The part of the agent's event loop that MQTT needs.
pub struct Shell {
    poll: Poll,
    pub mqtt: Mqtt,
    /// All that came since they were last looked at.
    pub events: Vec<Event>,
    /// Whether messages are acknowledged as they come.
    pub acknowledges: bool,
}

impl Shell {
    pub fn new(settings: &MqttSettings) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_edged"));
        let mqtt = Mqtt::new(settings, program, Token(7), 1).expect("the settings are right");
        let poll = Poll::new().expect("a poll");
        Self { poll, mqtt, events: Vec::new(), acknowledges: true }
    }

    fn turn(&mut self) {
        let mut ready = Events::with_capacity(64);
        let due = self.mqtt.wake_at().map_or(u64::MAX, |at| at.0);
        let wait = due.saturating_sub(clock::boot().0).min(10);
        self.poll.poll(&mut ready, Some(Duration::from_millis(wait))).expect("it polls");
        for ready in &ready {
            assert!(self.mqtt.owns(ready.token()));
            self.mqtt.ready(ready);
        }
        let first = self.events.len();
        self.mqtt.tick(clock::now(), self.poll.registry(), &mut self.events);
        for event in &self.events[first..] {
            if let (Event::Received { id: Some(id), .. }, true) = (event, self.acknowledges) {
                self.mqtt.acknowledge(*id);
            }
        }
        self.mqtt.flush(clock::boot(), &mut self.events);
        self.mqtt.reap();
    }

    /// Turns until the condition holds.
    pub fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = done(self) {
                return found;
            }
            assert!(begun.elapsed() < BOUND, "waited for: {what}; {:?}", self.events);
            self.turn();
        }
    }

    /// Turns until this event has come, and forgets those before it.
    pub fn event(&mut self, what: &str, is_meant: impl Fn(&Event) -> bool) -> Event {
        self.until(what, |shell| {
            let at = shell.events.iter().position(&is_meant)?;
            shell.events.drain(..at);
            Some(shell.events.remove(0))
        })
    }

    pub fn up(&mut self) {
        self.event("up", |event| *event == Event::Up);
    }

    pub fn down(&mut self) -> String {
        match self.event("down", |event| matches!(event, Event::Down(_))) {
            Event::Down(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// The next message: its topic and its payload.
    pub fn message(&mut self) -> (String, String) {
        match self.event("a message", |event| matches!(event, Event::Received { .. })) {
            Event::Received { topic, payload, .. } => {
                (topic.into(), String::from_utf8(payload.into()).expect("UTF-8"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Turns until the program has ended.
    pub fn output(&mut self, mut program: Child) -> Output {
        self.until("the end of a program", |_| program.try_wait().expect("it is ours"));
        program.wait_with_output().expect("it is ours")
    }

    /// Turns until it has printed a line.
    pub fn line(&mut self, of: &Lines) -> String {
        self.until("a line", |_| of.try_line())
    }
}

/// The settings of our client.
pub fn external(server: &str) -> MqttSettings {
    let mut settings = MqttSettings { mode: MqttMode::External, ..MqttSettings::default() };
    settings.client.server = MqttServer::parse(server).expect("a URL");
    settings
}

/// The settings of our broker.
pub fn internal(port: u16) -> MqttSettings {
    let mut settings = MqttSettings { mode: MqttMode::Internal, ..MqttSettings::default() };
    settings.broker.server.port = port;
    settings
}

/// A program that prints lines; it is killed at the end.
pub struct Lines {
    child: Child,
    lines: Receiver<String>,
}

impl Lines {
    /// `mosquitto_sub -v` with these arguments.
    pub fn sub(port: u16, arguments: &[&str]) -> Self {
        let mut command = client("mosquitto_sub", port, arguments);
        let mut child = command.arg("-v").spawn().expect("mosquitto-clients is installed");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line, if there is one.
    pub fn try_line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mosquitto_pub` with these arguments.
pub fn publishes(port: u16, arguments: &[&str]) -> Child {
    client("mosquitto_pub", port, arguments).spawn().expect("mosquitto-clients is installed")
}

fn client(program: &str, port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Debian's broker.
pub struct Mosquitto {
    child: Child,
    config: String,
}

impl Mosquitto {
    pub fn start(folder: &Folder, port: u16, more: &str) -> Self {
        let text = format!(
            "user root\nlistener {port} 127.0.0.1\npersistence true\n\
             persistence_location {}/\nlog_dest none\n{more}\n",
            folder.0.display()
        );
        let config = folder.write("mosquitto.conf", &text);
        Self { child: Self::run(&config), config }
    }

    fn run(config: &str) -> Child {
        let mut command = Command::new("/usr/sbin/mosquitto");
        command.args(["-c", config]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("mosquitto is installed")
    }

    /// Ends it; it saves its sessions.
    pub fn stop(&mut self) {
        signal(self.child.id(), Signal::SIGTERM);
        self.child.wait().expect("it is ours");
    }

    pub fn start_again(&mut self) {
        self.child = Self::run(&self.config);
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A CA in `ca.crt`, and certificates that it signed: `server` for 127.0.0.1, and `client`.
pub fn certificates(folder: &Folder) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "A CA of the tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).expect("a CA");
    folder.write("ca.crt", &pem::encode("CERTIFICATE", ca.der()));
    let issuer = Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        folder.write(&format!("{name}.crt"), &pem::encode("CERTIFICATE", certificate.der()));
        folder.write(&format!("{name}.key"), &pem::encode("PRIVATE KEY", &key.serialize_der()));
    }
}
