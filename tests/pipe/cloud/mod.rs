//! The link to a simulated cloud: real TLS, a real websocket, files on the disk.

mod hostile;
mod joins;
mod talk;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use edged::agent::event::Event;
use edged::agent::time::{Now, Wall};
use edged::io::clock;
use edged::io::cloud::{Cloud, enrol};
use edged::model::downstream::Downstream;
use edged::model::error::Error;
use edged::model::link::{Cause, Session, Validity};
use edged::model::settings::{CloudLink, Secret};
use edged::model::upstream::{Origin, Reply, Up, Upstream};
use mio::{Events, Poll, Token};

use crate::stub::{self, Setup};

const NODE: &str = "edge-1";

/// A node, its cloud, and the loop between them.
struct Fixture {
    cloud: stub::Cloud,
    link: CloudLink,
    cloud_link: Cloud,
    poll: Poll,
    events: Vec<Event>,
    dir: PathBuf,
    /// The node's clock; `None`: 1970.
    wall: Option<Wall>,
}

impl Fixture {
    /// With a cloud and without credentials.
    fn new(name: &str, setup: &Setup) -> Self {
        let cloud = stub::Cloud::start(setup);
        let dir = std::env::temp_dir().join(format!("edged-link-{name}.{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let at = |file: &str| dir.join(file).to_string_lossy().into_owned();
        let link = CloudLink {
            server: cloud.websocket.to_string(),
            http_server: format!("https://{}", cloud.https),
            node_name: NODE.to_owned(),
            ca_file: at("ca/rootCA.crt"),
            cert_file: at("certs/server.crt"),
            key_file: at("certs/server.key"),
            token: Secret::new(&cloud.token()),
            token_file: at("bootstrap-edgecore.conf"),
            handshake_timeout_ms: 5_000,
            write_timeout_ms: 1_000,
            ..CloudLink::default()
        };
        let mut fixture = Self {
            cloud_link: cloud_link(&link),
            cloud,
            link,
            poll: Poll::new().expect("a poll"),
            events: Vec::new(),
            dir,
            wall: Some(Wall(1_795_196_778_000)),
        };
        fixture.poll.registry();
        fixture.events.clear();
        fixture
    }

    /// A node that has joined.
    fn joined(name: &str) -> Self {
        let fixture = Self::new(name, &Setup::default());
        fixture.enrol(false).expect("it joins");
        fixture
    }

    /// A node that is connected.
    fn up(name: &str) -> Self {
        let mut fixture = Self::joined(name);
        fixture.dial(1).expect("it connects");
        fixture.cloud.connected(1);
        fixture.settle();
        fixture
    }

    /// Turns until there is nothing to do.
    fn settle(&mut self) {
        while self.cloud_link.wake_at().is_some() {
            self.turn(5);
        }
        self.events.clear();
    }

    fn enrol(&self, renew: bool) -> Result<(), Error> {
        enrol(&self.link, renew, self.wall).map(drop)
    }

    fn now(&self) -> Now {
        Now { boot: clock::boot(), wall: self.wall }
    }

    /// Dials, and continues until it is up or down.
    fn dial(&mut self, session: u64) -> Result<Validity, Cause> {
        let deadline = clock::boot().plus_ms(5_000);
        let now = self.now();
        self.cloud_link.dial(
            Session(session),
            deadline,
            now,
            self.poll.registry(),
            &mut self.events,
        );
        self.until(|event| match event {
            Event::LinkUp(name, validity) if *name == Session(session) => Some(Ok(*validity)),
            Event::LinkDown(name, cause) if *name == Session(session) => Some(Err(cause.clone())),
            _ => None,
        })
    }

    /// Turns until such an event occurs; takes it and all before it.
    fn until<T>(&mut self, matches: impl Fn(&Event) -> Option<T>) -> T {
        let end = clock::boot().plus_ms(20_000);
        loop {
            let mut found = self.events.iter().enumerate();
            let found = found.find_map(|(at, event)| Some((at, matches(event)?)));
            if let Some((at, found)) = found {
                self.events.drain(..=at);
                return found;
            }
            assert!(clock::boot() < end, "the event did not occur; there is {:?}", self.events);
            self.turn(20);
        }
    }

    fn turn(&mut self, ms: u64) {
        let mut ready = Events::with_capacity(8);
        let due = self.cloud_link.wake_at().map_or(ms, |at| at.since_ms(clock::boot()).min(ms));
        self.poll.poll(&mut ready, Some(Duration::from_millis(due))).expect("it polls");
        for ready in &ready {
            assert!(self.cloud_link.owns(ready.token()));
            self.cloud_link.ready(ready);
        }
        self.cloud_link.tick(clock::boot(), self.poll.registry(), &mut self.events);
        self.cloud_link.flush(clock::boot(), &mut self.events);
    }

    fn send(&mut self, text: &str) {
        let message = message(text);
        self.cloud_link.send(Session(1), &message, &mut self.events);
        self.cloud_link.flush(clock::boot(), &mut self.events);
    }

    fn down(&mut self) -> String {
        self.until(|event| match event {
            Event::LinkDown(_, cause) => Some(cause.to_string()),
            _ => None,
        })
    }

    /// The next message.
    fn next_message(&mut self) -> Box<Downstream> {
        self.until(|event| match event {
            Event::Cloud(_, message) => Some(message.clone()),
            _ => None,
        })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn cloud_link(link: &CloudLink) -> Cloud {
    Cloud::new(Some(link.clone()), PathBuf::from(env!("CARGO_BIN_EXE_edged")), Token(10))
}

/// A message with this content, `"…"`.
fn message(text: &str) -> Upstream {
    let content = Up::Reply(Origin::default(), Reply::Refused(text.into()));
    Upstream { id: "m".into(), timestamp_ms: 0, content }
}

fn pod(size: usize) -> serde_json::Value {
    serde_json::json!({ "metadata": { "annotations": { "x": "y".repeat(size) } } })
}

fn mode(path: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}
