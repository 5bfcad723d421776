//! The interface of the controller's core: events come in as [`Event`], actions go out as
//! [`Action`].

use std::sync::Arc;

use serde_json::value::RawValue;

use super::identity::Identity;
pub use crate::core::Severity;
use crate::model::any_api::AnyCall;
use crate::model::api::{Call, CallResult, Kind};
use crate::model::application::Gvr;
use crate::model::cloud_message::CloudMessage;
use crate::model::edge_message::EdgeMessage;
use crate::model::error::{self, Error};
use crate::model::link::Session;
use crate::model::meta::{DiskError, Revision};
use crate::model::router::{RouterAction, RouterEvent};
use crate::model::sync::{Change, Record};

/// An event from outside: the only input.
#[derive(Clone, Debug)]
pub enum Event {
    /// What the store holds of the nodes: the first event, exactly once.
    Loaded(Vec<Record>),
    /// What the store holds of nodes' certificates: at the start, before any request.
    Identities(Vec<Identity>),
    /// A Node of our own objects was deleted, and the store has its certificates as revoked.
    NodeDeleted(Box<str>),
    /// The answer to an [`Action::Save`]: it is durable.
    Saved(Revision),
    /// The other answer to an [`Action::Save`]: nothing of it is saved.
    SaveFailed(Revision, DiskError),
    /// A node requests a session: TLS is done, the head of the upgrade is read, and nothing is
    /// answered yet. Answered by [`Action::Accept`] or [`Action::Refuse`].
    EdgeUp(Session, Box<Peer>),
    /// A message of the node. A turn brings a bounded number of them.
    EdgeMessage(Session, Box<EdgeMessage>),
    /// Bytes of the node that are not a valid message: too large, or malformed. The event loop goes
    /// on reading.
    EdgeBadMessage(Session, String),
    /// The socket accepted data: so many bytes are still unsent. At most once a turn.
    EdgeDrained(Session, usize),
    /// The session is over, and not by our [`Action::Close`]. It has no further events.
    EdgeDown(Session, String),
    /// A node requests a stream tunnel: TLS is done, the head of the upgrade is read, and nothing
    /// is answered yet. Answered by [`Action::AcceptTunnel`] or [`Action::RefuseTunnel`].
    TunnelUp(Tunnel, Box<Peer>),
    /// The tunnel is over, and not by our [`Action::CloseTunnel`]. It has no further events.
    TunnelDown(Tunnel, String),
    /// A request on the HTTPS port. Answered by exactly one [`Action::Answer`].
    HttpRequest(Exchange, Box<HttpRequest>),
    /// The answer to an [`Action::Sign`]: exactly one each. The certificate's DER, or the error.
    Signed(Exchange, Result<Box<[u8]>, Error>),
    /// The answer to an [`Action::Call`]: exactly one each.
    Called(CallId, CallResult),
    /// An event of a list or a watch; one that we ended has no further events.
    Watched(WatchId, WatchFact),
    /// An event of the router for custom messages.
    Router(Box<RouterEvent>),
    /// SIGTERM: end the sessions and exit.
    Stop,
}

/// The peer that requests a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `CN` of the certificate that TLS has verified: `system:node:<node>`.
    pub common_name: String,
    /// The first `O` of it: `system:nodes`.
    pub organization: String,
    /// Header `node_id`; of a stream tunnel `SessionHostNameOverride`, which may be empty.
    pub node_id: String,
    /// Header `project_id`.
    pub project_id: String,
    /// Header `ConnectionUse`: `msg`.
    pub usage: String,
    /// When the certificate was made (`notBefore`), seconds since 1970.
    pub made_s: i64,
    /// The peer's address, for the log.
    pub address: String,
}

/// A request on the HTTPS port (wire spec sections 1.4 to 1.6). The event loop answers other paths
/// by itself.
#[derive(Clone, Debug)]
pub enum HttpRequest {
    /// `GET /ca.crt`
    Authority,
    /// `GET /edge.crt`
    Certificate {
        /// Header `NodeName`; empty: none.
        node: String,
        /// The applicant's credential.
        by: Credential,
        /// The certificate request, or why it cannot be parsed. The event loop has checked that it
        /// is signed by its own key.
        request: Result<Request, error::Peer>,
        /// The peer's address, for the log.
        address: String,
    },
    /// `GET /node/<name>`
    Node {
        /// From the path.
        name: String,
        /// The client's credential.
        by: Credential,
    },
}

/// The credential of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// No credential.
    None,
    /// `Authorization: Bearer …`, and no certificate.
    Bearer(String),
    /// A client certificate that our authority has signed and that is not expired.
    Certificate {
        /// `CN`
        common_name: String,
        /// The first `O`.
        organization: String,
        /// When it was made (`notBefore`), seconds since 1970.
        made_s: i64,
    },
    /// A certificate that is not valid, and the reason.
    BadCertificate(String),
}

/// A certificate request (PKCS#10).
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// As it came.
    pub der: Box<[u8]>,
    /// `CN` of its subject.
    pub common_name: String,
    /// The first `O` of its subject; empty: none.
    pub organization: String,
}

/// An event of a list or a watch.
#[derive(Clone, Debug)]
pub enum WatchFact {
    /// Some of the list's objects. A turn brings a bounded number.
    Listed(Vec<Box<RawValue>>),
    /// The list is complete, as of this `resourceVersion`.
    ListEnd(Box<str>),
    /// An object was added or changed: `ADDED` or `MODIFIED`.
    Changed(Box<RawValue>),
    /// An object was deleted; its last state.
    Deleted(Box<RawValue>),
    /// Nothing changed up to this `resourceVersion`.
    Bookmark(Box<str>),
    /// 410: the requested version is too old. The list or watch is over.
    Gone,
    /// 404: the API server does not have this kind. The list or watch is over.
    Unserved,
    /// 403, 404 or 405: the API server does not have a resource that was listed by its path, or
    /// does not show it to us; its `Status`. The list or watch is over.
    Refused(u16, Box<RawValue>),
    /// The list or watch is over: it timed over, or the connection or the server failed.
    Ended(String),
}

/// An action for the event loop: the only output.
#[derive(Clone, Debug)]
pub enum Action {
    /// Finish the upgrade: the session is open.
    Accept(Session),
    /// Answer the upgrade with this and close.
    Refuse(Session, Refusal),
    /// Send this to the node, after the messages before it.
    Send(Session, Box<CloudMessage>),
    /// End the session, for this reason. No [`Event::EdgeDown`] follows.
    Close(Session, String),
    /// Finish the upgrade: the tunnel of this node is open.
    AcceptTunnel(Tunnel, Box<str>),
    /// Answer the upgrade with this and close.
    RefuseTunnel(Tunnel, Refusal),
    /// End the tunnel, for this reason, and all its requests. No [`Event::TunnelDown`] follows.
    CloseTunnel(Tunnel, String),
    /// Answer a request on the HTTPS port.
    Answer(Exchange, Answer),
    /// Make a client certificate for the key of this request: subject `O=system:nodes,
    /// CN=system:node:<node>`, whatever the request says.
    Sign {
        /// Identifies it in the answer.
        exchange: Exchange,
        /// PKCS#10, whose signature was checked.
        request: Box<[u8]>,
        /// The node that it is for.
        node: String,
        /// Its validity.
        days: u32,
    },
    /// Call the API server.
    Call(CallId, Box<Call>),
    /// List all objects of a kind, in pages, and report the end. [`Kind::selector`] limits them.
    List(WatchId, Kind),
    /// Watch all changes of a kind since this `resourceVersion`, with bookmarks.
    Watch(WatchId, Kind, Box<str>),
    /// Call the API server about a resource of any kind.
    CallAny(CallId, Box<AnyCall>),
    /// List all objects of a resource of any kind, in pages, and report the end.
    ListAny(WatchId, Arc<Gvr>),
    /// Watch all changes of a resource of any kind since this `resourceVersion`, with bookmarks.
    WatchAny(WatchId, Arc<Gvr>, Box<str>),
    /// End the list or watch. It has no further events.
    Unwatch(WatchId),
    /// Save this durably, all or nothing. There is one save at a time.
    Save {
        /// Identifies it in the answer.
        revision: Revision,
        /// In this order.
        changes: Vec<Change>,
    },
    /// Store this about a node's certificates, durably, before any later action.
    KeepIdentity(Identity),
    /// An action of the router for custom messages.
    Router(Box<RouterAction>),
    /// Write this line to the log.
    Log(Severity, String),
    /// Exit the process with success.
    Exit,
}

/// Why a session is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The body, a text for the user.
    pub body: String,
}

/// The answer to a request on the HTTPS port.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// DER of a certificate, or text.
    pub body: Box<[u8]>,
}

/// Identifies a request on the HTTPS port. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange(pub u64);

/// Identifies a stream tunnel from its request on. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tunnel(pub u64);

/// Identifies a call from its [`Action::Call`] to its [`Event::Called`]. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Identifies a list or a watch. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// The actions of a step.
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
