//! Debian's mosquitto, and one subscriber that keeps all that it hears of devices.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::port::free_port;
use super::wait::until;

/// The topics of the device `default/dev1`.
pub const DEVICE: &str = "$hw/events/device/default/dev1";

/// A program of the test, killed at its end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// mosquitto, and one subscriber that writes all that it hears to a file.
pub struct Broker {
    pub port: u16,
    heard: PathBuf,
    mosquitto: Program,
    _subscriber: Program,
}

impl Broker {
    pub fn start(folder: &Path) -> Self {
        let port = free_port();
        let config = folder.join("mosquitto.conf");
        let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n");
        fs::write(&config, text).expect("a file of ours");
        let log = File::create(folder.join("mosquitto.log")).expect("ours");
        let mosquitto =
            Command::new("/usr/sbin/mosquitto").arg("-c").arg(&config).stderr(log).spawn();
        let mosquitto = Program(mosquitto.expect("mosquitto is installed: run `make setup`"));
        until("mosquitto listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
        });
        let heard = folder.join("heard");
        let file = File::create(&heard).expect("ours");
        let subscriber = Command::new("mosquitto_sub")
            .args(["-p", &port.to_string(), "-v", "-t", "$hw/events/#", "-q", "1"])
            .stdout(file)
            .stderr(Stdio::null())
            .spawn();
        let subscriber = Program(subscriber.expect("mosquitto-clients is installed"));
        Self { port, heard, mosquitto, _subscriber: subscriber }
    }

    /// The process of mosquitto.
    pub fn pid(&self) -> u32 {
        self.mosquitto.0.id()
    }

    /// Publishes on a topic of the device.
    pub fn publish(&self, topic: &str, payload: &Value) {
        let published = Command::new("mosquitto_pub")
            .args(["-p", &self.port.to_string(), "-q", "1"])
            .args(["-t", &format!("{DEVICE}/{topic}"), "-m", &payload.to_string()])
            .status();
        assert!(published.expect("it runs").success());
    }

    /// Asks for the twins until the agent answers: mosquitto keeps nothing for a client that it
    /// does not know yet. Returns the answer.
    pub fn ask(&self, event: &str) -> Value {
        until("an answer by MQTT", || {
            self.publish("twin/get", &json!({"event_id": event}));
            self.heard(&format!("{DEVICE}/twin/get/result"), |it| it["event_id"] == event)
        })
    }

    /// Waits for a message on this topic for which that holds.
    pub fn wait(&self, topic: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(&format!("a message on {topic}"), || self.heard(topic, &is))
    }

    /// The first such message; if there is none, all that was heard.
    fn heard(&self, topic: &str, is: impl Fn(&Value) -> bool) -> Result<Value, String> {
        let text = fs::read_to_string(&self.heard).expect("ours");
        let messages = text.lines().filter_map(|line| line.strip_prefix(topic)?.strip_prefix(' '));
        let mut values = messages.filter_map(|message| serde_json::from_str(message).ok());
        values.find(|value| is(value)).ok_or(text)
    }
}
