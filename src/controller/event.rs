//! The controller's door: facts come in as [`Event`], requests go out as [`Action`].

use serde_json::value::RawValue;

use super::identity::Identity;
pub use crate::core::Severity;
use crate::model::api::{Call, CallResult, Kind};
use crate::model::link::Session;
use crate::model::message::Message;
use crate::model::meta::{DiskError, Revision};
use crate::model::sync::{Change, Record};

/// A fact from outside: the only way in.
#[derive(Clone, Debug)]
pub enum Event {
    /// What the store holds of the nodes: the first fact of all, exactly once.
    Loaded(Vec<Record>),
    /// What the store holds of nodes' certificates: at the start, before anybody asks for anything.
    Identities(Vec<Identity>),
    /// A node of our own objects was deleted, and the store has its certificates as revoked.
    NodeDeleted(Box<str>),
    /// The answer to an [`Action::Save`]: it stays when power fails now.
    Saved(Revision),
    /// The other answer to an [`Action::Save`]: nothing of it is kept.
    SaveFailed(Revision, DiskError),
    /// Somebody asks for a session: TLS is done, the head of the upgrade is read, and nothing is
    /// answered yet. Answered by [`Action::Accept`] or [`Action::Refuse`].
    EdgeUp(Session, Box<Peer>),
    /// A message of the node's. A turn brings a bounded number of them.
    EdgeSaid(Session, Box<Message>),
    /// Bytes of the node's that are no message: too many, or malformed. The hands went on to read.
    EdgeSpoilt(Session, String),
    /// The socket took something: so many bytes that were to be sent are still here. At most once
    /// a turn.
    EdgeDrained(Session, usize),
    /// The session is over, and it was not we who ended it. Nothing of it follows.
    EdgeDown(Session, String),
    /// A request on the HTTPS port. Answered by exactly one [`Action::Answer`].
    Asked(Exchange, Box<Ask>),
    /// The answer to an [`Action::Sign`]: exactly one each. The certificate's DER, or why not.
    Signed(Exchange, Result<Box<[u8]>, String>),
    /// The answer to an [`Action::Call`]: exactly one each.
    Called(CallId, CallResult),
    /// Something about a list or a watch; of one that we ended nothing follows.
    Watched(WatchId, WatchFact),
    /// SIGTERM: end the sessions and exit.
    Stop,
}

/// Who asks for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `CN` of the certificate that TLS has verified: `system:node:<node>`.
    pub common_name: String,
    /// The first `O` of it: `system:nodes`.
    pub organization: String,
    /// Header `node_id`.
    pub node_id: String,
    /// Header `project_id`.
    pub project_id: String,
    /// Header `ConnectionUse`: `msg`.
    pub usage: String,
    /// When the certificate was made (`notBefore`), seconds since 1970.
    pub made_s: i64,
    /// Where from, for the log.
    pub address: String,
}

/// A request on the HTTPS port (wire spec sections 1.4 to 1.6). What nobody serves the hands answer
/// by themselves.
#[derive(Clone, Debug)]
pub enum Ask {
    /// `GET /ca.crt`
    Authority,
    /// `GET /edge.crt`
    Certificate {
        /// Header `NodeName`; empty: none.
        node: String,
        /// Who asks.
        by: Credential,
        /// What is to be signed, or why it cannot be read. That it is signed by its own key the
        /// hands have checked.
        request: Result<Request, String>,
        /// Where from, for the log.
        address: String,
    },
    /// `GET /node/<name>`
    Node {
        /// Of the path.
        name: String,
        /// Who asks.
        by: Credential,
    },
}

/// By what somebody shows who he is.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// By nothing.
    None,
    /// `Authorization: Bearer …`, and no certificate.
    Bearer(String),
    /// By a certificate that our authority has signed for clients, and that is in its time.
    Certificate {
        /// `CN`
        common_name: String,
        /// The first `O`.
        organization: String,
        /// When it was made (`notBefore`), seconds since 1970.
        made_s: i64,
    },
    /// By a certificate that is not good, and why.
    BadCertificate(String),
}

/// An application for a certificate (PKCS#10).
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// As it came.
    pub der: Box<[u8]>,
    /// `CN` of its subject.
    pub common_name: String,
    /// The first `O` of its subject; empty: none.
    pub organization: String,
}

/// What comes of a list or a watch.
#[derive(Clone, Debug)]
pub enum WatchFact {
    /// Some of the list's objects. A turn brings a bounded number.
    Listed(Vec<Box<RawValue>>),
    /// That was all of the list, as of this `resourceVersion`.
    ListEnd(Box<str>),
    /// One is new or has changed: `ADDED` or `MODIFIED`.
    Changed(Box<RawValue>),
    /// One is gone; so it was at last.
    Deleted(Box<RawValue>),
    /// Nothing changed up to this `resourceVersion`.
    Bookmark(Box<str>),
    /// 410: what was asked for is too old. The list or watch is over.
    Gone,
    /// The list or watch is over: its time was over, or the connection or the server failed.
    Ended(String),
}

/// A request to the outside: the only way out.
#[derive(Clone, Debug)]
pub enum Action {
    /// Finish the upgrade: the session is on.
    Accept(Session),
    /// Answer the upgrade by this and close.
    Refuse(Session, Refusal),
    /// Send this to the node, after what was asked before.
    Send(Session, Box<Message>),
    /// End the session, for this reason. No [`Event::EdgeDown`] follows.
    Close(Session, String),
    /// Answer a request on the HTTPS port.
    Answer(Exchange, Answer),
    /// Make a client certificate for the key of this request: subject `O=system:nodes,
    /// CN=system:node:<node>`, whatever the request says.
    Sign {
        /// Names it in the answer.
        exchange: Exchange,
        /// PKCS#10, whose signature was checked.
        request: Box<[u8]>,
        /// Whose it is to be.
        node: String,
        /// Of its life.
        days: u32,
    },
    /// Ask the API server.
    Call(CallId, Box<Call>),
    /// List all of a kind, in pages, and tell when that was all. [`Kind::selector`] says which.
    List(WatchId, Kind),
    /// Tell of all changes of a kind since this `resourceVersion`, with bookmarks.
    Watch(WatchId, Kind, Box<str>),
    /// The list or watch is of no more interest. Nothing of it follows.
    Unwatch(WatchId),
    /// Keep this, all or nothing, durably. Not asked again before it is answered.
    Save {
        /// Names it in the answer.
        revision: Revision,
        /// In this order.
        changes: Vec<Change>,
    },
    /// Keep this of a node's certificates, durably, before what is asked after it leaves.
    KeepIdentity(Identity),
    /// Write this line to the log.
    Log(Severity, String),
    /// End the process with success.
    Exit,
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of HTTP.
    pub status: u16,
    /// For people: the body.
    pub words: String,
}

/// The answer to a request on the HTTPS port.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Of HTTP.
    pub status: u16,
    /// DER of a certificate, or text.
    pub body: Box<[u8]>,
}

/// Names one request on the HTTPS port. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange(pub u64);

/// Names one call from its [`Action::Call`] to its [`Event::Called`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Names one list or one watch. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// Where `step` leaves its requests.
pub type Out = crate::core::Out<Action>;

/// Tokens are secret.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bearer(_) => f.write_str("a token"),
            Self::Certificate { common_name, organization, .. } => {
                write!(f, "certificate of O={organization}, CN={common_name}")
            }
            Self::BadCertificate(why) => write!(f, "bad certificate: {why}"),
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { der, common_name, organization } = self;
        write!(f, "request for O={organization}, CN={common_name} ({} bytes)", der.len())
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.status, self.body.len())
    }
}
