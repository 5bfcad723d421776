//! What the controller sends to a node (wire spec sections 2.6, 3 and 5). `wire/kubeedge` writes
//! it; a node reads the same as a [`super::downstream::Downstream`].
//!
//! Objects of the API server are carried as they came: no field of them may be lost on the way to a
//! node, also those that this version does not know.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::Kind;
use super::node_job::{JobAction, JobKey, JobSpec};
use super::service_bus::ServiceCall;

/// One message to a node.
#[derive(Clone, Debug)]
pub struct CloudMessage {
    /// Its id, to which the node's acknowledgement refers.
    pub id: Box<str>,
    /// The id of the request that it answers; empty: it answers none.
    pub parent: Box<str>,
    /// Milliseconds since the epoch; 0: not known.
    pub timestamp_ms: i64,
    /// `resourceVersion` of the object; 0: none.
    pub version: u64,
    /// The module of KubeEdge in whose name it is sent.
    pub source: &'static str,
    pub group: &'static str,
    pub operation: &'static str,
    pub resource: Box<str>,
    pub content: Content,
}

impl CloudMessage {
    /// Its size on the wire, about.
    pub fn bytes(&self) -> usize {
        /// Header and route.
        const REST: usize = 256;
        REST + self.content.bytes()
    }
}

/// The content of a message to a node.
#[derive(Clone, Debug)]
pub enum Content {
    /// An object, the answer to a query for one, or the spec of a job.
    Object(Arc<RawValue>),
    /// All that is known of a deleted object.
    Tombstone(Box<Tombstone>),
    /// «OK»
    Done,
    /// The answer to a create, a patch or a lease: `ObjectResp`.
    ObjectResp(Result<Box<RawValue>, Failure>),
    /// The same answer to EdgeCore's request for a mirror pod: beside an error it reads an object.
    NotMade(Failure),
    /// The failure of a query.
    Failure(Failure),
    /// The failure of a registration of edges up to 1.11: a text.
    FailureText(Failure),
    /// The API server's CA, PEM; empty: there is none.
    Authority(Box<str>),
    /// Devices that the node has from now on, and those that it does not have any more.
    Membership { added: Vec<DeviceMember>, removed: Vec<DeviceMember> },
    /// All devices of the node.
    MembershipDetail(Vec<DeviceMember>),
    /// The request for a stage of a job, of v1alpha1.
    JobStage(Box<(JobKey, JobAction, JobSpec)>),
    /// The answer to a request of MetaServer: the request, and the object or list (empty: none) or
    /// a failure.
    Applied(Box<str>, Result<Box<str>, Failure>),
    /// The watches of MetaServer that are not held: id, request and failure of each.
    WatchesRejected(Vec<(Box<str>, Box<str>, Failure)>),
    /// `null`
    Nothing,
    /// A text of an application.
    Text(Box<str>),
    /// The call to a service of the node; port and path are in the message's resource.
    Call(Box<ServiceCall>),
}

/// A device in a message about which devices a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMember {
    /// As the node knows it: `namespace/name`, up to 1.16.1 the name.
    pub id: Box<str>,
    pub name: Box<str>,
    /// The device's label `description`; empty: none.
    pub description: Box<str>,
}

impl DeviceMember {
    fn bytes(&self) -> usize {
        /// Keys, quotes and the empty twin.
        const REST: usize = 64;
        REST + self.id.len() + self.name.len() + self.description.len()
    }
}

/// An object that was deleted, or that a node is not to have any more.
#[derive(Clone, Debug)]
pub struct Tombstone {
    pub kind: Kind,
    /// Empty: none.
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// Empty: whichever it is.
    pub uid: Arc<str>,
    /// `resourceVersion` of an object that exists and may come again; 0: it was deleted.
    pub version: u64,
}

/// Why a request of a node failed: meta/v1 `Status`.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The API server's own, whole.
    Remote(Box<RawValue>),
    /// The controller's.
    Own {
        /// The HTTP status.
        code: u16,
        reason: &'static str,
        /// For the user.
        message: Box<str>,
    },
}

impl Failure {
    /// The controller's own.
    pub fn new(code: u16, reason: &'static str, message: impl Into<Box<str>>) -> Self {
        Self::Own { code, reason, message: message.into() }
    }

    /// For a user: HTTP status and message.
    pub fn text(&self) -> String {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            code: u16,
            message: String,
        }
        let (code, message) = match self {
            Self::Remote(status) => {
                let status: Status = serde_json::from_str(status.get()).unwrap_or_default();
                (status.code, status.message)
            }
            Self::Own { code, message, .. } => (*code, message.to_string()),
        };
        format!("{code}: {message}")
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Remote(status) => status.get().len(),
            Self::Own { message, .. } => OWN_BYTES + message.len(),
        }
    }
}

fn job_bytes(spec: &JobSpec) -> usize {
    let sum = |texts: &[Box<str>]| texts.iter().map(|text| text.len() + 3).sum::<usize>();
    OWN_BYTES
        + match spec {
            JobSpec::PrePull(spec) => sum(&spec.images) + sum(&spec.check_items),
            JobSpec::Checks(items) => sum(items),
            JobSpec::Upgrade(_) | JobSpec::ConfigUpdate => OWN_BYTES,
        }
}

/// A `Status` or an object with all its keys and no text of any length.
const OWN_BYTES: usize = 128;

impl Content {
    fn bytes(&self) -> usize {
        match self {
            Self::Object(object) => object.get().len(),
            // Base64.
            Self::Applied(request, Ok(body)) => request.len() + body.len() / 3 * 4,
            Self::Applied(request, Err(failure)) => request.len() + failure.bytes(),
            Self::WatchesRejected(all) => {
                all.iter().map(|(id, it, failure)| id.len() + it.len() + failure.bytes()).sum()
            }
            Self::ObjectResp(Ok(object)) => object.get().len(),
            Self::ObjectResp(Err(failure))
            | Self::NotMade(failure)
            | Self::Failure(failure)
            | Self::FailureText(failure) => failure.bytes(),
            Self::Tombstone(_) => OWN_BYTES,
            Self::JobStage(stage) => job_bytes(&stage.2),
            Self::Authority(pem) => pem.len(),
            Self::Membership { added, removed } => {
                added.iter().chain(removed).map(DeviceMember::bytes).sum()
            }
            Self::MembershipDetail(all) => all.iter().map(DeviceMember::bytes).sum(),
            Self::Done | Self::Nothing => 0,
            Self::Text(text) => json_bytes(text),
            Self::Call(call) => {
                let headers = call.headers.iter();
                let headers = headers.map(|(name, value)| 8 + name.len() + json_bytes(value));
                // Base64.
                OWN_BYTES + headers.sum::<usize>() + call.body.len().div_ceil(3) * 4
            }
        }
    }
}

/// The length of a text as JSON.
fn json_bytes(text: &str) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..0x20 => 6,
        _ => 1,
    };
    2 + text.bytes().map(byte).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_text_is_that_of_its_json() {
        for text in ["", "plain", "\"\\\n\r\t\u{8}\u{c}", "\0\u{1}\u{1f}\u{7f}", "ä€😀"] {
            let json = serde_json::to_string(text).expect("plain data");
            assert_eq!(json_bytes(text), json.len(), "{json}");
        }
    }
}
