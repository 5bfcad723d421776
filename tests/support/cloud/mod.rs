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
#![allow(dead_code, reason = "several programs share this and each uses a part of it")]

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

/// The two ports, and everything that they received.
pub struct Cloud {
    /// For certificates, by `https://`.
    pub https: SocketAddr,
    /// Of messages.
    pub websocket: SocketAddr,
    shared: Arc<Shared>,
}

/// How the cloud behaves from now on.
#[derive(Clone, Debug)]
pub struct Script {
    /// Requests are answered.
    pub answers: bool,
    /// Neither read nor written: the link is half-open.
    pub frozen: bool,
    /// The largest size of a frame; CloudCore's are 4096 long with their heads.
    pub fragment: usize,
    /// Bytes of a message are sent one by one, with this pause.
    pub drip: Option<Duration>,
    /// Every request on the HTTPS port gets this status.
    pub refuse: Option<u16>,
    /// Names that `GET /node/…` finds.
    pub nodes: Vec<String>,
}

/// An accepted request for a websocket.
#[derive(Clone, Debug)]
pub struct Upgrade {
    /// `/<project>/<node>/events`
    pub path: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    /// DER of the presented certificate.
    pub certificate: Vec<u8>,
}

/// A request on the HTTPS port.
#[derive(Clone, Debug)]
pub struct HttpsRequest {
    /// `GET /edge.crt`
    pub what: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// A client certificate was presented.
    pub shown: bool,
}

/// A received message.
#[derive(Clone, Debug)]
pub struct Received(pub Value);

impl Received {
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

    /// The content, decoded if it is a string.
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
    received: Vec<Received>,
    upgrades: Vec<Upgrade>,
    https_requests: Vec<HttpsRequest>,
    world: World,
    /// The current connection; a new one replaces it.
    connection: u64,
    connected: bool,
    /// Messages that it is to write.
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

    /// Changes its behaviour.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.lock().script);
        self.shared.changed.notify_all();
    }

    /// Creates or changes an object; `default/pod/web`. Gives it a uid and a resource version where
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

    /// The object; null where there is none.
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

    /// Ends the connection, as CloudCore does: without a close frame.
    pub fn drop_link(&self) {
        self.shared.lock().outbox.push(Out::Close);
    }

    /// All received messages, in their order.
    pub fn received(&self) -> Vec<Received> {
        self.shared.lock().received.clone()
    }

    /// Accepted websockets.
    pub fn upgrades(&self) -> Vec<Upgrade> {
        self.shared.lock().upgrades.clone()
    }

    /// The requests on the HTTPS port.
    pub fn https_requests(&self) -> Vec<HttpsRequest> {
        self.shared.lock().https_requests.clone()
    }

    /// Waits for a message of this kind, including those received before.
    pub fn wait(&self, what: &str, is: impl Fn(&Received) -> bool) -> Received {
        self.until(what, |state| state.received.iter().find(|received| is(received)).cloned())
    }

    /// Waits until this many messages have been received in all.
    pub fn counted(&self, count: usize) {
        self.until("more messages", |state| (state.received.len() >= count).then_some(()));
    }

    /// Waits until the message with this id is acknowledged.
    pub fn acked(&self, id: &str) -> Received {
        self.wait(id, |received| received.parent() == id && received.operation() == "response")
    }

    /// Waits until this many websockets have been accepted in all.
    pub fn connected(&self, times: usize) -> Upgrade {
        self.until("a websocket", |state| state.upgrades.get(times - 1).cloned())
    }

    /// Waits until no node is connected.
    pub fn left_alone(&self) {
        self.until("the end of the websocket", |state| (!state.connected).then_some(()));
    }

    #[expect(clippy::disallowed_methods, reason = "the cloud runs on a thread of its own")]
    fn until<T>(&self, what: &str, poll: impl Fn(&State) -> Option<T>) -> T {
        let end = Instant::now() + WAIT;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = poll(&state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let received: Vec<String> =
                    state.received.iter().map(|received| received.0.to_string()).collect();
                panic!("the cloud did not get {what}; it received\n{}", received.join("\n"));
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
    /// Pushed now if a node is connected; otherwise when one connects.
    fn push(&mut self, message: &Value) -> String {
        let id = message["header"]["msg_id"].as_str().unwrap_or_default().to_owned();
        if self.connected {
            self.outbox.push(Out::Text(format!("{message}\n")));
        }
        id
    }

    fn receive(&mut self, message: Value) {
        if self.script.answers {
            for answer in self.world.answer(&message) {
                self.outbox.push(Out::Text(format!("{answer}\n")));
            }
        }
        self.received.push(Received(message));
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

/// Longer than any working operation takes.
const WAIT: Duration = Duration::from_secs(20);
