//! A cloud for tests: both ports of a CloudCore on loopback, with real TLS and a real websocket,
//! and a small world of objects behind them that answers as CloudCore and its API server do.
//!
//! ```no_run
//! let cloud = Cloud::start(&Setup::default());
//! // … the agent joins with cloud.token(), at cloud.https and cloud.websocket …
//! let id = cloud.put("default/pod/web", pod);         // pushed where a node is connected
//! cloud.acked(&id);                                   // waits, or fails the test
//! cloud.script(|script| script.frozen = true);        // half-open from here on
//! cloud.wait("a pod's status", |m| m.resource() == "default/podpatch/web");
//! ```
//!
//! One node at a time. What was pushed and not acknowledged, or changed while no node was there, is
//! pushed again when one connects. Not played: the repeats of what is not acknowledged, and
//! the waiting of one push for another.
#![allow(dead_code, reason = "several programs share this and each uses its part")]

mod authority;
mod https;
mod websocket;
mod world;

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use authority::Authority;
pub use authority::Setup;
use world::World;

/// The two ports, and all that came to them.
pub struct Cloud {
    /// Of certificates: `https://` stands before it.
    pub https: SocketAddr,
    /// Of messages.
    pub websocket: SocketAddr,
    shared: Arc<Shared>,
}

/// How the cloud behaves from now on.
#[derive(Clone, Debug)]
pub struct Script {
    /// Questions, patches and the like are answered.
    pub answers: bool,
    /// Neither read nor written: the link is half-open.
    pub frozen: bool,
    /// Frames of so many bytes at most; CloudCore's are 4096 long with their heads.
    pub fragment: usize,
    /// Bytes of a message leave one by one, so far apart.
    pub drip: Option<Duration>,
    /// Applications for certificates and all else on the HTTPS port get this status.
    pub refuse: Option<u16>,
    /// Names that `GET /node/…` finds.
    pub nodes: Vec<String>,
}

/// A request for a websocket that was granted.
#[derive(Clone, Debug)]
pub struct Upgrade {
    /// `/<project>/<node>/events`
    pub path: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    /// DER of the certificate that was shown.
    pub certificate: Vec<u8>,
}

/// A request on the HTTPS port.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET /edge.crt`
    pub what: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// A client certificate was shown.
    pub shown: bool,
}

/// A message that came.
#[derive(Clone, Debug)]
pub struct Told(pub Value);

impl Told {
    /// `route.resource`
    pub fn resource(&self) -> &str {
        self.0["route"]["resource"].as_str().unwrap_or_default()
    }

    /// `route.operation`
    pub fn operation(&self) -> &str {
        self.0["route"]["operation"].as_str().unwrap_or_default()
    }

    /// `header.parent_msg_id`
    pub fn parent(&self) -> &str {
        self.0["header"]["parent_msg_id"].as_str().unwrap_or_default()
    }

    /// The content, taken out of the text that it may be in.
    pub fn content(&self) -> Value {
        match &self.0["content"] {
            Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
            other => other.clone(),
        }
    }
}

struct Shared {
    authority: Authority,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    script: Script,
    told: Vec<Told>,
    upgrades: Vec<Upgrade>,
    asked: Vec<Asked>,
    world: World,
    /// The connection of now; a new one takes its place.
    connection: u64,
    connected: bool,
    /// To be written by it.
    outbox: Vec<Out>,
}

enum Out {
    Text(String),
    Raw(Vec<u8>),
    Close,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            answers: true,
            frozen: false,
            fragment: 4_082,
            drip: None,
            refuse: None,
            nodes: Vec::new(),
        }
    }
}

impl Cloud {
    /// Opens both ports.
    pub fn start(setup: &Setup) -> Self {
        let shared = Arc::new(Shared {
            authority: Authority::new(setup),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let https = https::serve(Arc::clone(&shared));
        let websocket = websocket::serve(Arc::clone(&shared));
        Self { https, websocket, shared }
    }

    /// What `keadm gettoken` prints.
    pub fn token(&self) -> String {
        self.shared.authority.token()
    }

    /// The CA's certificate.
    pub fn ca(&self) -> Vec<u8> {
        self.shared.authority.ca_der()
    }

    /// Changes how it behaves.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.lock().script);
        self.shared.changed.notify_all();
    }

    /// Makes or changes an object; `default/pod/web`. Gives it a uid and a resource version where
    /// it has none, and pushes it. Returns the message's id.
    pub fn put(&self, resource: &str, object: Value) -> String {
        let mut state = self.shared.lock();
        let message = state.world.put(resource, object);
        state.push(&message)
    }

    /// Removes an object and pushes that. Returns the message's id.
    pub fn remove(&self, resource: &str) -> String {
        let mut state = self.shared.lock();
        let message = state.world.remove(resource);
        state.push(&message)
    }

    /// The object as it is now; null where there is none.
    pub fn object(&self, resource: &str) -> Value {
        self.shared.lock().world.object(resource)
    }

    /// Sends a message as it is.
    pub fn send(&self, message: &Value) {
        self.shared.lock().outbox.push(Out::Text(format!("{message}\n")));
    }

    /// Sends bytes in place of frames.
    pub fn raw(&self, bytes: Vec<u8>) {
        self.shared.lock().outbox.push(Out::Raw(bytes));
    }

    /// Ends the connection, as CloudCore does: without a farewell.
    pub fn drop_link(&self) {
        self.shared.lock().outbox.push(Out::Close);
    }

    /// Everything that came, in its order.
    pub fn told(&self) -> Vec<Told> {
        self.shared.lock().told.clone()
    }

    /// Websockets that were granted.
    pub fn upgrades(&self) -> Vec<Upgrade> {
        self.shared.lock().upgrades.clone()
    }

    /// What was asked on the HTTPS port.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.clone()
    }

    /// Waits for a message of this kind, one that came already included.
    pub fn wait(&self, what: &str, is: impl Fn(&Told) -> bool) -> Told {
        self.until(what, |state| state.told.iter().find(|told| is(told)).cloned())
    }

    /// Waits until so many messages have come in all.
    pub fn counted(&self, count: usize) {
        self.until("more messages", |state| (state.told.len() >= count).then_some(()));
    }

    /// Waits until the message with this id is acknowledged.
    pub fn acked(&self, id: &str) -> Told {
        self.wait(id, |told| told.parent() == id && told.operation() == "response")
    }

    /// Waits until so many websockets have been granted in all.
    pub fn connected(&self, times: usize) -> Upgrade {
        self.until("a websocket", |state| state.upgrades.get(times - 1).cloned())
    }

    /// Waits until no node is connected.
    pub fn left_alone(&self) {
        self.until("the end of the websocket", |state| (!state.connected).then_some(()));
    }

    #[expect(clippy::disallowed_methods, reason = "the other end has its own time")]
    fn until<T>(&self, what: &str, look: impl Fn(&State) -> Option<T>) -> T {
        let end = Instant::now() + WAIT;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = look(&state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let told: Vec<String> = state.told.iter().map(|told| told.0.to_string()).collect();
                panic!("the cloud waits for {what} in vain; it was told\n{}", told.join("\n"));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Pushed now where a node is connected; else when one connects.
    fn push(&mut self, message: &Value) -> String {
        let id = message["header"]["msg_id"].as_str().unwrap_or_default().to_owned();
        if self.connected {
            self.outbox.push(Out::Text(format!("{message}\n")));
        }
        id
    }

    fn heard(&mut self, message: Value) {
        if self.script.answers {
            for answer in self.world.hear(&message) {
                self.outbox.push(Out::Text(format!("{answer}\n")));
            }
        }
        self.told.push(Told(message));
    }
}

/// A message of CloudCore's.
fn message(operation: &str, resource: &str, parent: &str, content: &Value) -> Value {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut header = json!({
        "msg_id": format!("c10d0000-0000-4000-8000-{number:012x}"),
        "timestamp": 1_700_000_000_000_u64 + number,
    });
    if !parent.is_empty() {
        header["parent_msg_id"] = parent.into();
    }
    let version = [&content["metadata"], &content["Object"]["metadata"]]
        .into_iter()
        .find_map(|metadata| metadata["resourceVersion"].as_str());
    if let Some(version) = version {
        header["resourceversion"] = version.into();
    }
    let route = json!({
        "source": "edgecontroller", "group": "resource",
        "operation": operation, "resource": resource,
    });
    json!({ "header": header, "route": route, "content": content })
}

/// Longer than anything takes that works.
const WAIT: Duration = Duration::from_secs(20);
