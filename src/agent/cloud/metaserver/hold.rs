//! Pods that are held back until somebody on the node releases them (metaserver.md, section 11.5).
//!
//! ```text
//!  marked, and still to start ──▶ held ──released: a row, durable──▶ it starts, and its client is
//!                                                                    answered
//! ```
//!
//! Intended behaviour: only a pod that has not begun is held; its end is not. Nothing is held where
//! MetaServer is off, because nobody could release it. A release is of one pod, by its uid, and is
//! kept as long as the pod: after a reboot, with or without the cloud, the pod starts by itself.
//! `EdgeCore` forgets it, and holds the pod again.
//!
//! **If we crash here** what was answered is in the store.

use std::collections::BTreeSet;

use crate::agent::cloud::Cloud;
use crate::agent::cloud::meta::{ChangeOutcome, Meta};
use crate::agent::cloud::rows::{self, RELEASE, StoredObject};
use crate::agent::pods::Pods;
use crate::model::message::Resource;
use crate::model::metaserver::{ClientId, Failure, Release, Reply};
use crate::model::pod::{HOLD, Pod};

/// The clients whose releases are not durable yet, with the keys of the rows. Each client has one
/// request, so they are as bounded as the clients.
#[derive(Debug, Default)]
pub(super) struct Releases(Vec<(ClientId, Vec<Box<str>>)>);

impl Releases {
    /// The clients whose releases have become durable. One that does not wait any more is dropped:
    /// it has left, or it was answered that the store takes too long. What it asked for is done
    /// nevertheless.
    pub(super) fn take_durable(
        &mut self,
        meta: &Meta,
        waits: impl Fn(ClientId) -> bool,
    ) -> Vec<ClientId> {
        self.0.retain(|(id, _)| waits(*id));
        let is_durable = |keys: &[Box<str>]| keys.iter().all(|key| !meta.is_pending(key));
        let durable = self.0.extract_if(.., |(_, keys)| is_durable(keys));
        durable.map(|(id, _)| id).collect()
    }
}

impl Cloud {
    /// Uids of the pods that may not begin.
    pub(in crate::agent) fn held(&self) -> BTreeSet<&str> {
        let is_on = self.metaserver.is_on();
        let held = self.pods().filter(|pod| is_on && is_held(&self.meta, pod));
        held.map(|pod| pod.metadata.uid.as_str()).collect()
    }

    /// Answers the clients whose releases have become durable.
    pub(in crate::agent::cloud) fn answer_releases(&mut self) {
        for client in self.metaserver.durable_releases(&self.meta) {
            self.metaserver.reply(client, Reply::Done);
        }
    }

    /// A client releases pods. Returns the answer, unless it has to wait for the store.
    pub(in crate::agent::cloud) fn release(
        &mut self,
        client: ClientId,
        release: &Release,
        node: &str,
        pods: &Pods,
    ) -> Option<Reply> {
        match self.begin_release(release, node, pods) {
            Ok(keys) if keys.is_empty() => Some(Reply::Done),
            Ok(keys) => {
                self.metaserver.releases.0.push((client, keys));
                None
            }
            Err((code, reason, message)) => {
                Some(Reply::Failure(Failure::new(code, reason, message)))
            }
        }
    }

    /// Queues the rows of what is released, and returns their keys.
    fn begin_release(
        &mut self,
        release: &Release,
        node: &str,
        pods: &Pods,
    ) -> Result<Vec<Box<str>>, (u16, &'static str, String)> {
        let has_begun = |pod: &Pod| pods.get(&pod.metadata.uid).is_some_and(|pod| !pod.is_unseen());
        let rows: Vec<(String, String)> = match release {
            Release::Pod { namespace, name } => {
                let key = Resource { namespace: Some(namespace), kind: "pod", name }.to_string();
                let Some(StoredObject::Pod(pod)) = self.meta.stored_object(&key) else {
                    return Err((404, "NotFound", format!("pod not found: {namespace}/{name}")));
                };
                if pod.metadata.annotations.get(HOLD).is_none_or(|value| value != "true") {
                    let why = "pod is not marked with hold-upgrade annotation";
                    return Err((400, "BadRequest", why.to_owned()));
                }
                if !pod.is_to_be_held || has_begun(pod) {
                    return Err((400, "BadRequest", "pod is not in pending phase".to_owned()));
                }
                vec![(key_of(pod), rows::release(pod))]
            }
            Release::Node(other) if **other != *node => {
                return Err((404, "NotFound", format!("node not found: {other}")));
            }
            Release::Node(_) => {
                let held = self.pods().filter(|pod| is_held(&self.meta, pod) && !has_begun(pod));
                held.map(|pod| (key_of(pod), rows::release(pod))).collect()
            }
        };
        let mut keys = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            match self.meta.put(&key, RELEASE, &value, None) {
                ChangeOutcome::Queued | ChangeOutcome::Unchanged => keys.push(key.into()),
                ChangeOutcome::Refused(why) => {
                    return Err((500, "InternalError", format!("the release of {key}: {why}")));
                }
                ChangeOutcome::Dropped => {
                    let why = format!("the release of {key}: the store is busy: try again");
                    return Err((503, "ServiceUnavailable", why));
                }
            }
        }
        Ok(keys)
    }
}

/// Whether somebody has to release the pod before it begins.
fn is_held(meta: &Meta, pod: &Pod) -> bool {
    let is_released = || match meta.stored_object(&key_of(pod)) {
        Some(StoredObject::Released(uid)) => **uid == *pod.metadata.uid,
        _ => false,
    };
    pod.is_to_be_held && !is_released()
}

fn key_of(pod: &Pod) -> String {
    let (namespace, name) = (Some(&*pod.metadata.namespace), &*pod.metadata.name);
    Resource { namespace, kind: RELEASE, name }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Budget;

    #[test]
    fn a_client_that_was_answered_otherwise_is_dropped() {
        let meta = Meta::new("gw", Budget::FULL);
        let mut releases = Releases(vec![(ClientId(1), Vec::new()), (ClientId(2), Vec::new())]);
        assert_eq!(releases.take_durable(&meta, |id| id == ClientId(2)), [ClientId(2)]);
        assert!(releases.0.is_empty());
    }
}
