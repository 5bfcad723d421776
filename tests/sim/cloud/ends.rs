//! The end of a run: the cloud is reachable, and both sides know the same.

use edged::agent::pod;
use edged::limits::LINK_MUTE_MS;
use edged::model::cri::PodRef;
use edged::model::job::{JobSpec, Source};
use edged::model::pod::{Pod, Volume};
use serde_json::{Map, Value};

use super::rates::Rates;
use super::{CloudSim, Due};
use crate::rule::judge;
use crate::runtime::SandboxNo;
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// A pod that runs well may just have become ready.
const REPORTS_MAX: usize = 4;
/// Until the cloud has sent everything again: the agent may have to close a link first over which
/// the cloud sends nothing.
const REFILL_MS: u64 = LINK_MUTE_MS + 240_000;

impl World {
    /// Ends the faults of the cloud. Where the store was lost, the users do what helps: they make
    /// the cloud forget what the node acknowledged, and after everything was sent again they remove
    /// by hand what runs unwanted, because the agent does not touch it and says so.
    pub(crate) fn cloud_calms(&mut self) {
        let Some(cloud) = &mut self.cloud else { return };
        let now = self.clocks.now();
        let (echoes, lists) = (cloud.rates.echoes, cloud.rates.lists);
        cloud.rates = Rates { echoes, lists, ..Rates::calm() };
        cloud.down_until = 0;
        cloud.closed_until = 0;
        cloud.store.full_until = 0;
        cloud.api.heal();
        cloud.devices_calm();
        cloud.releases_calm();
        cloud.informers_calm();
        cloud.inform();
        cloud.cut(now);
        for number in cloud.link.numbers() {
            let conn = cloud.link.get_mut(number).expect("just listed");
            conn.up.held_until = 0;
            conn.down.held_until = 0;
        }
        if cloud.lost {
            trace!(now, "the users make the cloud forget what the node acknowledged");
            cloud.hub.forget(&cloud.api);
            cloud.replay();
        }
        self.cloud_settle();
        self.run_until(self.clocks.now() + 1);
        if self.knows_its_store_new() {
            self.run_until(self.clocks.now() + REFILL_MS);
            if self.knows_its_store_new() {
                // It would know otherwise after a relist.
                let left = self.unwanted_of_cloud();
                judge!(
                    !left.is_empty()
                        || self.check.relist.requested_at() + REFILL_MS < self.clocks.now(),
                    "[lost store] the agent treats its store as new, and knows every pod here"
                );
            }
            self.people_tidy();
        }
    }

    fn knows_its_store_new(&self) -> bool {
        let overview = self.agent.overview(self.clocks.agent());
        overview.cloud.is_some_and(|cloud| cloud.store_is_new)
    }

    /// Sandboxes of pods of the cloud that the cloud does not want.
    fn unwanted_of_cloud(&self) -> Vec<SandboxNo> {
        let wanted = self.wanted();
        let unwanted = |pod: &PodRef| !wanted.contains_key(&pod.uid);
        let left = self.runtime.sandboxes.iter().filter(|(_, it)| {
            it.listed.source.as_deref() == Some("api")
                && it.listed.pod.as_ref().is_some_and(unwanted)
        });
        left.map(|(&number, _)| number).collect()
    }

    fn people_tidy(&mut self) {
        let clock = self.clocks.runtime();
        for number in self.unwanted_of_cloud() {
            trace!(self.clocks.now(), "the users remove s{number} by hand");
            if let Some(pod) = &self.runtime.sandboxes[&number].listed.pod {
                self.check.lost(&pod.uid);
            }
            self.runtime.drop_sandbox(clock, number);
        }
        self.settle_runtime();
    }

    /// Only users and faults stop: the synchroniser goes on.
    pub(crate) fn is_cloud_fault(event: WorldEvent) -> bool {
        let WorldEvent::Cloud(due) = event else { return false };
        matches!(due, Due::Tick | Due::UserChange)
            || CloudSim::is_device_fault(due)
            || CloudSim::is_job_fault(due)
            || CloudSim::is_informer_fault(due)
    }

    pub(crate) fn cloud_wants(&self) -> Vec<&Pod> {
        let cloud = self.cloud.as_deref();
        cloud.into_iter().flat_map(|cloud| cloud.api.wanted()).map(|(_, _, pod)| &**pod).collect()
    }

    /// A user deletes a pod in the cloud, if it is the cloud's.
    pub(crate) fn cloud_removes(&mut self, uid: &str) {
        let Some(cloud) = &mut self.cloud else { return };
        let key = cloud.api.pods().find(|(_, object, _)| *object.uid == *uid);
        if let Some(key) = key.map(|(key, ..)| key.clone()) {
            cloud.api.delete(&key, None, CloudSim::wall_s(self.clocks.now()));
            cloud.inform();
        }
        self.cloud_settle();
    }

    /// The content of a volume of a pod of the cloud; `None`: there is no such object.
    pub(crate) fn cloud_text(&self, namespace: &str, volume: &Volume) -> Option<String> {
        self.cloud.as_deref()?.api.text(&object_of(namespace, volume)?)
    }

    /// The content of a volume of a pod of the cloud is durable.
    pub(crate) fn cloud_shows(&self, spec: &JobSpec) {
        let JobSpec::SetUpVolume(wanted) = spec else { return };
        let Some(cloud) = self.cloud.as_deref() else { return };
        let truth = self.check.pod(&wanted.uid).filter(|truth| truth.of_cloud);
        let Some(api) = truth.and_then(|truth| truth.desired.as_deref()) else { return };
        let volume = api.spec.volumes.iter().find(|volume| volume.name == wanted.volume);
        let key = volume.and_then(|volume| object_of(&api.metadata.namespace, volume));
        if let (Some(key), Source::Files(files)) = (key, &wanted.source)
            && let Some(file) = files.files.first()
        {
            cloud.rules.shows(&key, &String::from_utf8_lossy(&file.content.0));
        }
    }

    /// What of the cloud is not yet as it should be.
    pub(crate) fn cloud_unsettled(&self) -> Option<String> {
        let cloud = self.cloud.as_deref()?;
        if cloud.hub.conn.is_none() || cloud.link.known_up.is_none() {
            return Some("there is no link".to_owned());
        }
        if self.knows_its_store_new() {
            return Some("the agent treats its store as new".to_owned());
        }
        if !cloud.hub.is_idle() {
            return Some(format!("not acknowledged yet: {:?}", cloud.hub.under_way()));
        }
        for (uid, record) in cloud.hub.records() {
            let object = cloud.api.get(&record.key).filter(|it| it.uid == *uid);
            let Some(object) = object else {
                return Some(format!(
                    "the node does not know that {} {uid} is deleted",
                    record.key
                ));
            };
            // A pod that ends and starts all the time always has a newer status.
            let same = cloud
                .store
                .get(&record.key)
                .is_some_and(|it| it.uid == *uid && it.essence == object.essence());
            if object.version > record.version && !same {
                return Some(format!(
                    "the node knows {} at version {}",
                    record.key, record.version
                ));
            }
        }
        if let Some((key, _)) = cloud
            .store
            .iter()
            .find(|(key, stored)| stored.pod.is_some() && cloud.api.get(key).is_none())
        {
            return Some(format!("the store holds {key}, and there is no such pod"));
        }
        let is_left = |key: &str| {
            key.contains("/podpatch/")
                && cloud.api.get(&key.replacen("/podpatch/", "/pod/", 1)).is_none()
        };
        if let Some((key, _)) = cloud.store.iter().find(|(key, _)| is_left(key)) {
            return Some(format!("the store holds {key}, and there is no such pod"));
        }
        let of_cloud = cloud.api.pods().find_map(|(key, object, pod)| {
            let stored = cloud.store.get(key).filter(|stored| stored.uid == object.uid);
            let Some(stored) = stored else {
                return Some(format!("the store does not hold {key} {}", object.uid));
            };
            if stored.essence != object.essence() {
                return Some(format!("the store holds another {key} {}", object.uid));
            }
            let uid = &pod.metadata.uid;
            match self.agent.pod(uid) {
                Some(reported) => misreported(key, &object.value()["status"], reported),
                None => Some(format!("the agent does not know {key} {uid}")),
            }
        });
        of_cloud
            .or_else(|| self.mismirrored())
            .or_else(|| cloud.devices_unsettled())
            .or_else(|| cloud.jobs_unsettled())
            .or_else(|| cloud.informers_unsettled())
            .or_else(|| self.releases_unsettled())
    }

    /// A pod that runs without a change is not reported again and again.
    pub(crate) fn cloud_is_quiet(&self, uid: &str, since: u64) -> bool {
        self.cloud.as_deref().is_none_or(|cloud| cloud.rules.reports(uid, since) <= REPORTS_MAX)
    }
}

/// Whether the cloud's status of a pod differs from the node's.
pub(super) fn misreported(key: &str, has: &Value, reported: &pod::Pod) -> Option<String> {
    let status = serde_json::to_value(&reported.api().status).expect("plain data");
    let (ours, theirs) = (plain(&status), plain(has));
    let differs = ours.iter().find(|(key, ours)| theirs.get(*key) != Some(*ours));
    let more = theirs.iter().find(|(key, _)| !ours.contains_key(*key));
    let (part, value) = differs.or(more)?;
    Some(format!(
        "{part} of {key} {} is {:?}, and the cloud has {:?}",
        reported.uid(),
        ours.get(part).map_or_else(|| format!("nothing for {value}"), ToString::to_string),
        theirs.get(part).map(ToString::to_string)
    ))
}

/// The key of the object that fills a volume.
fn object_of(namespace: &str, volume: &Volume) -> Option<String> {
    match (&volume.config_map, &volume.secret) {
        (Some(map), _) => Some(format!("{namespace}/configmap/{}", map.name)),
        (None, Some(secret)) => Some(format!("{namespace}/secret/{}", secret.secret_name)),
        (None, None) => None,
    }
}

/// A status as the node has it: without fields of others, and without the order of conditions.
fn plain(status: &Value) -> Map<String, Value> {
    let mut plain = Map::new();
    for (key, value) in status.as_object().into_iter().flatten() {
        if key == "qosClass" || value.is_null() {
            continue;
        }
        let mut value = without_nulls(value);
        if key == "conditions"
            && let Some(list) = value.as_array_mut()
        {
            list.retain(|it| it["type"] != "example.com/checked");
            list.sort_by_key(|it| it["type"].to_string());
        }
        plain.insert(key.clone(), value);
    }
    plain
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let there = map.iter().filter(|(_, value)| !value.is_null());
            there.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
