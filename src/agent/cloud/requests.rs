//! The book of what was asked of the cloud: every question has an answer, be it that none came.

use std::collections::BTreeMap;

use super::hub::Hub;
use super::talk;
use crate::agent::calls::Uid;
use crate::agent::event::Out;
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::ASKS_MAX;
use crate::model::message::Message;
use serde_json::value::RawValue;

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    /// Make the Node object.
    Register,
    /// Patch its status.
    NodeStatus,
    /// Read, make or renew the lease.
    Lease,
    /// Patch the status of this pod.
    PodStatus(Uid),
    /// Delete this pod, of which nothing runs any more.
    PodDelete(Uid),
    /// Make the mirror of this key.
    MirrorMake(Box<str>),
    /// Delete the mirror of this key and uid.
    MirrorDelete(Box<str>, Box<str>),
    /// Read the object of this key.
    Object(Box<str>),
    /// A token for this pod, kept under this key.
    Token(Box<str>),
    /// List the pods that the cloud wants here.
    Pods,
}

/// The book.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// By the id of the message that asked.
    open: BTreeMap<Box<str>, PendingRequest>,
}

#[derive(Debug)]
struct PendingRequest {
    kind: RequestKind,
    deadline: Instant,
}

/// What a part of the cloud side speaks with.
pub(super) struct CloudContext<'a> {
    pub hub: &'a mut Hub,
    pub asks: &'a mut PendingRequests,
    pub rng: &'a mut Rng,
    pub out: &'a mut Out,
    pub now: Now,
    /// Milliseconds until a question counts as not answered (`remoteQueryTimeout`).
    pub timeout_ms: u64,
}

impl CloudContext<'_> {
    /// Whether something can be asked now; where not, a later step comes.
    pub(super) fn has_room(&mut self) -> bool {
        self.asks.has_room() && self.hub.has_room(self.now)
    }

    /// Whether something can be said now that must not wait for the end of questions: the node's
    /// own, of which there are three at the most.
    pub(super) fn may_speak(&mut self) -> bool {
        self.hub.has_room(self.now)
    }

    /// Asks. There is room: [`CloudContext::has_room`] was asked before.
    pub(super) fn ask(
        &mut self,
        kind: RequestKind,
        operation: &str,
        resource: &str,
        content: Option<Box<RawValue>>,
    ) {
        self.ask_within(self.timeout_ms, kind, operation, resource, content);
    }

    /// Asks by a message that is made already. There is room.
    pub(super) fn ask_by(&mut self, kind: RequestKind, message: Message) {
        let deadline = self.now.boot.plus_ms(self.timeout_ms);
        self.asks.open.insert(message.header.id.clone(), PendingRequest { kind, deadline });
        self.hub.send(self.now, message, self.out);
    }

    /// As [`CloudContext::ask`], to be answered within another time.
    pub(super) fn ask_within(
        &mut self,
        timeout_ms: u64,
        kind: RequestKind,
        operation: &str,
        resource: &str,
        content: Option<Box<RawValue>>,
    ) {
        let message = talk::request(self.rng, self.now, operation, resource, content);
        let deadline = self.now.boot.plus_ms(timeout_ms);
        self.asks.open.insert(message.header.id.clone(), PendingRequest { kind, deadline });
        self.hub.send(self.now, message, self.out);
    }

    /// Says something that is not answered. There is room.
    pub(super) fn say(&mut self, operation: &str, resource: &str, content: Box<RawValue>) {
        let message = talk::request(self.rng, self.now, operation, resource, Some(content));
        self.hub.send(self.now, message, self.out);
    }

    /// Tells in MetaManager's name. There is room.
    pub(super) fn sync(&mut self, resource: &str, content: Box<RawValue>) {
        let message = talk::sync(self.rng, self.now, resource, content);
        self.hub.send(self.now, message, self.out);
    }
}

impl PendingRequests {
    /// Whether there is room for one more.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < ASKS_MAX
    }

    /// Strikes out what this is the answer to. `None`: nothing that is still open.
    pub(super) fn answered(&mut self, parent_id: &str) -> Option<RequestKind> {
        self.open.remove(parent_id).map(|ask| ask.kind)
    }

    /// Strikes out what was not answered in time.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<RequestKind> {
        if self.open.values().all(|ask| ask.deadline > now) {
            return Vec::new();
        }
        let open = std::mem::take(&mut self.open);
        let (late, open) = open.into_iter().partition(|(_, ask)| ask.deadline <= now);
        self.open = open;
        let late: BTreeMap<Box<str>, PendingRequest> = late;
        late.into_values().map(|ask| ask.kind).collect()
    }

    /// The link is lost: strikes out everything.
    pub(super) fn clear(&mut self) -> Vec<RequestKind> {
        std::mem::take(&mut self.open).into_values().map(|ask| ask.kind).collect()
    }

    /// When the first question is overdue.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.open.values().map(|ask| ask.deadline).min()
    }
}
