//! Objects that the cloud sends without being asked: they are stored, and then acknowledged.

use super::Cloud;
use super::meta::ChangeOutcome;
use crate::agent::time::{Now, Rng};
use crate::model::downstream::RemoteObject;
use crate::model::message::Resource;
use crate::model::upstream::{Origin, Reply};

impl Cloud {
    /// An object was added or changed.
    pub(super) fn object_received(
        &mut self,
        now: Now,
        object: &RemoteObject,
        origin: Origin,
        rng: &mut Rng,
    ) {
        let key = origin.resource.clone();
        let Some(resource) = Resource::parse(&key) else { return };
        if let Some(node) = object.node().filter(|_| resource.kind == "node") {
            self.node.received(now, node);
        }
        #[cfg(feature = "metaserver")]
        {
            self.metaserver.pushed(now, object.item.as_ref());
            if self.is_cached(&origin, resource.kind) {
                return self.reply(now, origin, Reply::Stored, rng);
            }
        }
        let outcome = self.meta.put(&key, resource.kind, &object.text, Some(origin.clone()));
        // A pod that is not stored is not remembered: it comes again, or never.
        if let Some(pod) = object.pod().filter(|pod| self.meta.is_latest(&key, &pod.uid))
            && resource.kind == "pod"
        {
            self.report.pod_received(pod);
        }
        self.pod_changed(resource);
        self.respond(now, outcome, origin, rng);
    }

    /// An object was deleted.
    pub(super) fn object_deleted(
        &mut self,
        now: Now,
        (uid, version): (&str, u64),
        origin: Origin,
        rng: &mut Rng,
    ) {
        let key = origin.resource.clone();
        let Some(resource) = Resource::parse(&key) else { return };
        #[cfg(feature = "metaserver")]
        {
            self.metaserver.removed(now, resource, uid, version);
            // What came while it was not watched has a row.
            let has_row = self.meta.stored_object(&key).is_some() || self.meta.is_pending(&key);
            if !has_row && self.is_cached(&origin, resource.kind) {
                return self.reply(now, origin, Reply::Stored, rng);
            }
        }
        let outcome = self.deleted(resource, (uid, version), Some(origin.clone()));
        self.respond(now, outcome, origin, rng);
    }

    pub(super) fn pod_changed(&mut self, resource: Resource<'_>) {
        if resource.kind == "pod" {
            self.meta.delete_rows_of_earlier(resource);
        }
    }

    pub(super) fn respond(&mut self, now: Now, outcome: ChangeOutcome, to: Origin, rng: &mut Rng) {
        match outcome {
            ChangeOutcome::Queued | ChangeOutcome::Dropped => {}
            ChangeOutcome::Unchanged => self.reply(now, to, Reply::Stored, rng),
            ChangeOutcome::Refused(why) => self.reply(now, to, Reply::Refused(why.into()), rng),
        }
    }
}
