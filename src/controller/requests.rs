//! The requests of one node to the API server: in order for each object, a few at once.

use std::collections::{BTreeSet, VecDeque};

use super::key::Key;
use super::outbound::Origin;
use crate::limits::{EDGE_CALLS_MAX, EDGE_REQUESTS_BYTES_MAX, EDGE_REQUESTS_MAX};
use crate::model::api::Call;

#[derive(Debug)]
pub(super) struct NodeRequest {
    pub(super) origin: Origin,
    pub(super) call: Box<Call>,
    pub(super) form: Form,
    pub(super) then: Then,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `{"Object":…,"Err":…}`.
    ObjectResp,
    /// The same, with an empty object beside an error: EdgeCore reads it.
    Made,
    /// The object, or `{"ErrStatus":…}`.
    Object,
    /// «OK», or `{"ErrStatus":…}`.
    Ok,
    /// «OK», also if the object is gone or was replaced.
    OkIfGone,
    /// «OK», also if the object exists already; otherwise the error's text.
    OkIfThere,
    /// «OK» or no answer: old clouds do not answer failures.
    OkOrNothing,
    /// No answer.
    Silent,
}

/// What else follows from the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// It is put into the cache: its kind is watched.
    Learn,
    /// The node has registered: it may have lost all that it had.
    Registered,
    /// The node gets a copy that is kept up to date.
    Give(Key),
    /// The node may read the volume if one of these claims is bound to it: namespace, name.
    Bound(BTreeSet<(Box<str>, Box<str>)>),
    /// The node may read the attachment if it is for this node.
    Attached(Box<str>),
    /// The node has a pod that is not known here: if it does not exist, the node has to delete it.
    Missing {
        key: Key,
        uid: Box<str>,
    },
    /// The node has this device without a record of it: if it is not the node's, the node has to
    /// delete it.
    Unrecorded(Key),
    /// A pod that has ended is deleted.
    Finish {
        uid: Box<str>,
    },
    /// The node lists its pods through MetaServer's protocol: the request, JSON.
    List(Box<str>),
}

/// The requests of one session.
#[derive(Default)]
pub(super) struct PendingRequests {
    waiting: VecDeque<NodeRequest>,
    bytes: usize,
    running: Vec<(Box<str>, Box<str>)>,
}

fn bytes(request: &NodeRequest) -> usize {
    request.call.body.as_ref().map_or(0, |body| body.get().len()) + 512
}

/// Only one request about an object is sent at a time; they stay in order.
fn object_of(call: &Call) -> (Box<str>, Box<str>) {
    (format!("{}/{}", call.kind.plural(), call.namespace).into(), call.name.clone())
}

impl PendingRequests {
    /// Adds a request. Returns `false` if there are too many.
    #[must_use]
    pub(super) fn add(&mut self, request: NodeRequest) -> bool {
        let bytes = bytes(&request);
        let fits =
            self.waiting.len() < EDGE_REQUESTS_MAX && self.bytes + bytes <= EDGE_REQUESTS_BYTES_MAX;
        if fits {
            self.bytes += bytes;
            self.waiting.push_back(request);
        }
        fits
    }

    /// The next request that may be sent.
    pub(super) fn next(&mut self) -> Option<NodeRequest> {
        if self.running.len() >= EDGE_CALLS_MAX {
            return None;
        }
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|request| !self.running.contains(&object_of(&request.call)))?;
        let request = self.waiting.remove(at).expect("just checked");
        self.bytes -= bytes(&request);
        self.running.push(object_of(&request.call));
        Some(request)
    }

    /// A request is answered.
    pub(super) fn done(&mut self, call: &Call) {
        let object_of = object_of(call);
        if let Some(at) = self.running.iter().position(|running| *running == object_of) {
            self.running.swap_remove(at);
        }
    }

    /// Whether a request waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::model::api::{Kind, Verb};

    /// About this object, with a body of so many bytes; 0: none.
    fn request(name: &str, body_bytes: usize) -> NodeRequest {
        let body = (body_bytes > 0).then(|| format!("\"{}\"", "x".repeat(body_bytes - 2)));
        let call = Call {
            verb: Verb::Get,
            kind: Kind::ConfigMap,
            namespace: "n".into(),
            name: name.into(),
            subresource: None,
            body: body.map(|text| RawValue::from_string(text).expect("JSON")),
        };
        let origin = Origin { id: "q".into(), resource: "n/configmap/m".into() };
        NodeRequest { origin, call: Box::new(call), form: Form::Object, then: Then::Nothing }
    }

    #[test]
    fn waiting_requests_have_a_limit() {
        let mut requests = PendingRequests::default();
        for at in 0..EDGE_REQUESTS_MAX {
            assert!(requests.add(request(&at.to_string(), 0)), "{at}");
        }
        assert!(!requests.add(request("more", 0)));
        assert!(requests.next().is_some());
        assert!(requests.add(request("more", 0)), "one waits no more");
        assert!(!requests.add(request("more", 0)));
    }

    #[test]
    fn bytes_of_waiting_requests_have_a_limit() {
        let half = EDGE_REQUESTS_BYTES_MAX / 2 - bytes(&request("a", 0));
        let mut requests = PendingRequests::default();
        assert!(requests.add(request("a", half)));
        assert!(!requests.add(request("b", half + 1)));
        assert!(requests.add(request("b", half)));
        assert!(!requests.add(request("c", 0)));
        assert!(requests.next().is_some());
        assert!(requests.add(request("c", half)), "the first waits no more");
    }

    #[test]
    fn running_requests_have_a_limit_and_there_is_one_for_each_object() {
        let mut requests = PendingRequests::default();
        assert!(requests.add(request("0", 0)));
        for at in 0..=EDGE_CALLS_MAX {
            assert!(requests.add(request(&at.to_string(), 0)));
        }
        let running: Vec<NodeRequest> = std::iter::from_fn(|| requests.next()).collect();
        let names: Vec<&str> = running.iter().map(|request| &*request.call.name).collect();
        let expected: Vec<String> = (0..EDGE_CALLS_MAX).map(|at| at.to_string()).collect();
        assert_eq!(names, expected, "the second about one object waits for the first");
        requests.done(&running[0].call);
        assert_eq!(requests.next().map(|request| request.call.name), Some("0".into()));
        assert!(requests.next().is_none());
    }
}
