//! ServiceBus: HTTP calls between applications of the cloud and of the node, carried by the link
//! (spec `servicebus-router-tasks`, part B).
//!
//! ```text
//!  rest → servicebus:  cloud ─BusDownstream::Call─▶ core ─BusAction::Call─▶ 127.0.0.1:port
//!                      cloud ◀──ServiceAnswer────── core ◀──BusEvent::Answered────┘
//!  servicebus → rest:  application ─BusEvent::Entry─▶ core ─upload─▶ cloud
//!                      application ◀─BusAction::Answer─ core ◀─BusDownstream::Answer─ cloud
//! ```

use core::fmt;

use serde::{Deserialize, Serialize};

/// A call of an application in the cloud to a service on this node.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceCall {
    /// `GET`, `POST` …
    pub method: Box<str>,
    /// On 127.0.0.1 of the node's own network.
    pub port: u16,
    /// Path and query: `/echo?x=1`.
    pub target: Box<str>,
    pub headers: Vec<(Box<str>, Box<str>)>,
    pub body: Vec<u8>,
}

/// Headers and bodies may have secrets.
impl fmt::Debug for ServiceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} 127.0.0.1:{}{}", self.method, self.port, self.target)
    }
}

/// The answer of the service, or of edged in its place.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAnswer {
    /// 200–999
    pub status: u16,
    pub headers: Vec<(Box<str>, Box<str>)>,
    pub body: Vec<u8>,
}

impl ServiceAnswer {
    /// An answer of edged itself: one line of text.
    pub fn own(status: u16, text: &str) -> Self {
        let headers = vec![
            ("Content-Type".into(), "text/plain; charset=utf-8".into()),
            ("Server".into(), "edged".into()),
        ];
        Self { status, headers, body: text.as_bytes().to_vec() }
    }
}

impl fmt::Debug for ServiceAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} bytes", self.status, self.body.len())
    }
}

/// What the cloud says about ServiceBus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusDownstream {
    /// Make this call; the error is what the caller gets.
    Call(Result<ServiceCall, ServiceAnswer>),
    /// Applications may use this URL: a rule has it as its source.
    Start(Box<str>),
    /// They may not any more.
    Stop(Box<str>),
    /// The answer to what an application has sent, by the id of that message.
    Answer(Box<str>, Box<str>),
}

/// Identifies a call to a service of the node. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceCallId(pub u64);

/// Identifies a request of an application on the node. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(pub u64);

/// What an application gets: always with HTTP status 200, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryAnswer {
    /// 200 or 400.
    pub code: u16,
    pub message: Box<str>,
    /// What the application in the cloud has answered.
    pub body: Box<str>,
}

impl EntryAnswer {
    pub fn refused(why: &str) -> Self {
        Self { code: 400, message: why.into(), body: Box::default() }
    }
}

/// An input of the core.
#[derive(Clone, Debug)]
pub enum BusEvent {
    /// The answer to a [`BusAction::Call`]: exactly one each. The error says why there is none.
    Answered(ServiceCallId, Result<ServiceAnswer, NoAnswer>),
    /// An application sends a request to the cloud. Exactly one [`BusAction::Answer`] follows.
    Entry {
        id: EntryId,
        /// The rule that it means.
        url: Box<str>,
        /// The whole body of its request.
        body: Vec<u8>,
    },
}

/// Why a service has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It could not be reached, or has closed the connection.
    Failed(String),
    /// Not in time.
    Late,
    /// With too many bytes.
    TooLarge,
}

/// A request of the core.
#[derive(Clone, Debug)]
pub enum BusAction {
    /// Call this service.
    Call(ServiceCallId, ServiceCall),
    /// The answer to a [`BusEvent::Entry`].
    Answer(EntryId, EntryAnswer),
    /// Whether applications of the node may connect at all: there is a URL that they may use.
    Listen(bool),
}

/// What has happened since the start, and what is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BusOverview {
    /// URLs of rules that applications may use.
    pub urls: usize,
    /// Calls of the cloud, and those of them that a service has answered.
    pub calls: u64,
    pub answered: u64,
    /// Requests of applications, and those of them that the cloud has answered.
    pub requests: u64,
    pub responses: u64,
}
