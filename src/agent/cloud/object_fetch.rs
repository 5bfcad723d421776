//! Requests the objects that the cloud's pods and jobs for the node refer to, and that are not in
//! the store (wire spec section 5.8). The cloud pushes later changes of them by itself.

use std::collections::BTreeSet;

use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::rows::StoredObject;
#[cfg(feature = "node-jobs")]
use crate::agent::node_jobs::NodeJobs;
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::QUERY_RETRY_MS;
use crate::model::map::Map;
use crate::model::message::Resource;
use crate::model::object::{Claim, Object};
use crate::model::pod::{Container, Pod};
use crate::model::settings::CloudSettings;
use crate::model::upstream::Up;

const CLAIM: &str = "persistentvolumeclaim";
const VOLUME: &str = "persistentvolume";

/// The missing objects.
#[derive(Debug, Default)]
pub(super) struct ObjectFetches {
    /// Something has changed since they were computed.
    stale: bool,
    /// By key of the row.
    missing: Map<Box<str>, Missing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// Requested not before this time.
    At(Instant),
    Requested,
}

/// Whether objects of this kind are stored for pods, and have to be acknowledged when they come as
/// an answer.
pub(super) fn is_kept(kind: &str) -> bool {
    matches!(
        kind,
        "configmap" | "secret" | "persistentvolume" | "persistentvolumeclaim" | "volumeattachment"
    )
}

impl ObjectFetches {
    /// Pods or objects have changed.
    pub(super) fn mark_dirty(&mut self) {
        self.stale = true;
    }

    /// A new session: no request is open.
    pub(super) fn up(&mut self) {
        for missing in self.missing.values_mut() {
            *missing = Missing::At(Instant(0));
        }
    }

    /// The cloud sent the object. A claim may not be bound yet, and is not pushed when it is bound:
    /// it is requested again until its volume is in the store too.
    pub(super) fn answered(
        &mut self,
        now: Now,
        key: &str,
        settings: &CloudSettings,
        rng: &mut Rng,
    ) {
        if Resource::parse(key).is_some_and(|resource| resource.kind == CLAIM) {
            self.refused(now, key, settings, rng);
        } else {
            self.missing.remove(key);
        }
    }

    /// The cloud has no such object: it pushes it when it is created. It is requested again all the
    /// same.
    pub(super) fn refused(&mut self, now: Now, key: &str, settings: &CloudSettings, rng: &mut Rng) {
        let wait_ms = rng.jitter_ms(settings.sync_ms.max(QUERY_RETRY_MS));
        self.retry_after(now, key, wait_ms);
    }

    pub(super) fn unanswered(&mut self, now: Now, key: &str) {
        self.retry_after(now, key, QUERY_RETRY_MS);
    }

    fn retry_after(&mut self, now: Now, key: &str, wait_ms: u64) {
        if let Some(missing) = self.missing.get_mut(key) {
            *missing = Missing::At(now.boot.plus_ms(wait_ms));
        }
    }

    /// Requests the missing objects.
    pub(super) fn step(&mut self, meta: &Meta, context: &mut CloudContext<'_>) {
        if std::mem::take(&mut self.stale) {
            self.compute_missing(meta);
        }
        let now = context.now.boot;
        for (key, missing) in &mut self.missing {
            let due = matches!(missing, Missing::At(at) if *at <= now);
            if !due || meta.is_pending(key) {
                continue;
            }
            if !context.has_room() {
                return;
            }
            let kind = RequestKind::Object(key.clone());
            context.request(kind, Up::QueryObject { key: key.clone() });
            *missing = Missing::Requested;
        }
    }

    fn compute_missing(&mut self, meta: &Meta) {
        let mut named = BTreeSet::new();
        for object in meta.stored_objects() {
            match object {
                StoredObject::Pod(pod) => name_objects(pod, &mut named),
                #[cfg(feature = "node-jobs")]
                StoredObject::NodeJob(job) => {
                    let secret = NodeJobs::image_secret(job).map(|(namespace, name)| Resource {
                        namespace: Some(namespace),
                        kind: "secret",
                        name,
                    });
                    named.extend(secret.map(|secret| secret.to_string().into()));
                }
                _ => {}
            }
        }
        for key in named.clone() {
            if let Some(claim) = claim(meta, &key).filter(|claim| is_bound(claim)) {
                let name = &claim.spec.volume_name;
                let volume = Resource { namespace: Some("null"), kind: VOLUME, name };
                named.insert(volume.to_string().into());
            }
        }
        let old = std::mem::take(&mut self.missing);
        for key in named {
            if meta.stored_object(&key).is_none()
                || claim(meta, &key).is_some_and(|it| !is_bound(it))
            {
                let missing = old.get(&key).copied().unwrap_or(Missing::At(Instant(0)));
                self.missing.insert(key, missing);
            }
        }
    }

    /// When the next request is due. An object that is not durable yet is not requested, however
    /// long that takes.
    pub(super) fn wake_at(&self, meta: &Meta) -> Option<Instant> {
        let due = self.missing.iter().filter_map(|(key, missing)| match missing {
            Missing::At(at) if !meta.is_pending(key) => Some(*at),
            Missing::At(_) | Missing::Requested => None,
        });
        due.min()
    }
}

/// A stored claim.
fn claim<'a>(meta: &'a Meta, key: &str) -> Option<&'a Claim> {
    match meta.stored_object(key)? {
        StoredObject::Object(object) => match &**object {
            Object::Claim(claim) => Some(claim),
            _ => None,
        },
        _ => None,
    }
}

fn is_bound(claim: &Claim) -> bool {
    !claim.spec.volume_name.is_empty()
}

/// The keys of all objects that the pod refers to.
fn name_objects(pod: &Pod, to: &mut BTreeSet<Box<str>>) {
    if pod.metadata.deletion_timestamp.is_some() || pod.status.phase.is_terminal() {
        return;
    }
    let namespace = Some(pod.metadata.namespace.as_str());
    let mut add = |kind, name: &str| {
        if !name.is_empty() {
            to.insert(Resource { namespace, kind, name }.to_string().into());
        }
    };
    let spec = &pod.spec;
    for container in spec.init_containers.iter().chain(&spec.containers) {
        of_container(container, &mut add);
    }
    for volume in &spec.volumes {
        if let Some(map) = &volume.config_map {
            add("configmap", &map.name);
        }
        if let Some(secret) = &volume.secret {
            add("secret", &secret.secret_name);
        }
        if let Some(of) = &volume.persistent_volume_claim {
            add(CLAIM, &of.claim_name);
        }
        for source in volume.projected.iter().flat_map(|projected| &projected.sources) {
            if let Some(map) = &source.config_map {
                add("configmap", &map.name);
            }
            if let Some(secret) = &source.secret {
                add("secret", &secret.name);
            }
        }
    }
    for secret in &spec.image_pull_secrets {
        add("secret", &secret.name);
    }
}

fn of_container(container: &Container, add: &mut impl FnMut(&'static str, &str)) {
    for from in &container.env_from {
        if let Some(map) = &from.config_map_ref {
            add("configmap", &map.name);
        }
        if let Some(secret) = &from.secret_ref {
            add("secret", &secret.name);
        }
    }
    for source in container.env.iter().filter_map(|env| env.value_from.as_ref()) {
        if let Some(map) = &source.config_map_key_ref {
            add("configmap", &map.name);
        }
        if let Some(secret) = &source.secret_key_ref {
            add("secret", &secret.name);
        }
    }
}
