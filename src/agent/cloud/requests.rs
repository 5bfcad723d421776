//! The requests to the cloud that are not answered yet: each ends with an answer, a timeout or the
//! end of the link.

use std::collections::BTreeMap;

use super::hub::Hub;
use crate::agent::calls::Uid;
use crate::agent::event::Out;
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::REQUESTS_MAX;
use crate::model::upstream::Up;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    /// Create the Node object.
    Register,
    /// Patch the status of the node.
    NodeStatus,
    /// Read, create or renew the lease.
    Lease,
    /// Patch the status of this pod.
    PodStatus(Uid),
    /// Delete this pod, of which nothing is left here.
    PodDelete(Uid),
    /// Create the mirror of this key.
    MirrorMake(Box<str>),
    /// Delete the mirror of this key and uid.
    MirrorDelete(Box<str>, Box<str>),
    /// Read the object of this key.
    Object(Box<str>),
    /// Request a token for a pod, stored under this key.
    Token(Box<str>),
    /// List the pods of this node.
    Pods,
    /// List the Services of the cluster.
    #[cfg(feature = "services")]
    Services,
    /// Name the watches that the cloud is to serve.
    #[cfg(any(feature = "metaserver", feature = "services"))]
    Watches,
    /// MetaServer's request of this number.
    #[cfg(feature = "metaserver")]
    Application(u64),
}

/// The open requests.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// By the id of the request's message.
    open: BTreeMap<Box<str>, PendingRequest>,
}

#[derive(Debug)]
struct PendingRequest {
    kind: RequestKind,
    deadline: Instant,
    /// Of its message in this session.
    number: u64,
}

/// What the parts of the cloud side need to send messages.
pub(super) struct CloudContext<'a> {
    pub hub: &'a mut Hub,
    pub requests: &'a mut PendingRequests,
    pub rng: &'a mut Rng,
    pub out: &'a mut Out,
    pub now: Now,
    /// Milliseconds until a request counts as not answered (`remoteQueryTimeout`).
    pub timeout_ms: u64,
}

impl CloudContext<'_> {
    /// Whether a request can be sent now; if not, a later step will try again.
    pub(super) fn has_room(&mut self) -> bool {
        self.requests.has_room() && self.hub.has_room(self.now)
    }

    /// Whether a message can be sent now that must not wait for the end of other requests: those
    /// about the node, of which there are three at most.
    pub(super) fn may_send(&mut self) -> bool {
        self.hub.has_room(self.now)
    }

    /// Sends a request. The caller has checked [`CloudContext::has_room`].
    pub(super) fn request(&mut self, kind: RequestKind, content: Up) {
        self.request_within(self.timeout_ms, kind, content);
    }

    /// As [`CloudContext::request`], with another timeout.
    pub(super) fn request_within(&mut self, timeout_ms: u64, kind: RequestKind, content: Up) {
        let id = self.hub.send(self.now, content, self.rng, self.out);
        let (deadline, number) = (self.now.boot.plus_ms(timeout_ms), self.hub.counts().0);
        self.requests.open.insert(id, PendingRequest { kind, deadline, number });
    }

    /// Sends a message that is not answered as a request is; returns its id. The caller has checked
    /// the room.
    pub(super) fn send(&mut self, content: Up) -> Box<str> {
        self.hub.send(self.now, content, self.rng, self.out)
    }
}

impl PendingRequests {
    /// Whether one more request may be open.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < REQUESTS_MAX
    }

    /// Removes the request that this answers; returns also the number of its message. `None`: it is
    /// not open any more.
    pub(super) fn answered(&mut self, parent_id: &str) -> Option<(RequestKind, u64)> {
        self.open.remove(parent_id).map(|request| (request.kind, request.number))
    }

    /// Removes the requests that were not answered in time.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<RequestKind> {
        if self.open.values().all(|request| request.deadline > now) {
            return Vec::new();
        }
        let open = std::mem::take(&mut self.open);
        let (late, open) = open.into_iter().partition(|(_, request)| request.deadline <= now);
        self.open = open;
        let late: BTreeMap<Box<str>, PendingRequest> = late;
        late.into_values().map(|request| request.kind).collect()
    }

    /// The link is lost: removes all requests.
    pub(super) fn clear(&mut self) -> Vec<RequestKind> {
        std::mem::take(&mut self.open).into_values().map(|request| request.kind).collect()
    }

    /// When the first request times out.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.open.values().map(|request| request.deadline).min()
    }
}
