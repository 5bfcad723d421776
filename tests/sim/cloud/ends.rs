//! The end: the cloud is within reach, and both sides know the same.

use edged::agent::pod;
use edged::model::cri::PodRef;
use edged::model::job::{JobSpec, Source};
use edged::model::pod::{Pod, Volume};
use serde_json::{Map, Value};

use super::rates::Rates;
use super::{Due, Sky};
use crate::rule::judge;
use crate::runtime::SandboxNo;
use crate::trace::trace;
use crate::world::{Thing, World};

/// A pod that runs well may just have become ready, or its probes have said so.
const REPORTS_MAX: usize = 4;
/// Until the cloud has told everything anew.
const REFILL_MS: u64 = 240_000;

impl World {
    /// Nothing goes wrong with the cloud any more. Where the store was lost, people do what helps:
    /// they let the cloud forget what the node acknowledged, and when that is told again they
    /// remove by hand what runs and nobody wants, for the agent leaves it alone and says so.
    pub(crate) fn sky_calms(&mut self) {
        let Some(sky) = &mut self.sky else { return };
        let now = self.now;
        let (echoes, lists) = (sky.rates.echoes, sky.rates.lists);
        sky.rates = Rates { echoes, lists, ..Rates::calm() };
        sky.down_until = 0;
        sky.closed_until = 0;
        sky.store.full_until = 0;
        sky.api.heal();
        sky.inform();
        sky.cut(now);
        for number in sky.link.numbers() {
            let conn = sky.link.get_mut(number).expect("just listed");
            conn.up.held_until = 0;
            conn.down.held_until = 0;
        }
        if sky.lost {
            trace!(now, "people let the cloud forget what the node acknowledged");
            sky.hub.forget(&sky.api);
            sky.replay();
        }
        self.sky_settle();
        self.run_until(self.now + 1);
        if self.knows_its_store_new() {
            self.run_until(self.now + REFILL_MS);
            if self.knows_its_store_new() {
                // It would know otherwise as soon as it had looked.
                let left = self.unwanted_of_cloud();
                judge!(
                    !left.is_empty() || self.check.looked_at + REFILL_MS < self.now,
                    "[lost store] the agent takes its store for new, and knows all that is here"
                );
            }
            self.people_tidy();
        }
    }

    fn knows_its_store_new(&self) -> bool {
        let overview = self.agent.overview(self.agent_now());
        overview.cloud.is_some_and(|cloud| cloud.store_is_new)
    }

    /// Sandboxes of pods of the cloud that it does not want.
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
        let clock = self.clock();
        for number in self.unwanted_of_cloud() {
            trace!(self.now, "people remove s{number} by hand");
            if let Some(pod) = &self.runtime.sandboxes[&number].listed.pod {
                self.check.lost(&pod.uid);
            }
            self.runtime.drop_sandbox(clock, number);
        }
        self.settle_runtime();
    }

    /// Only people and faults stop: the synchroniser goes on.
    pub(crate) fn is_whim_of_the_sky(thing: Thing) -> bool {
        matches!(thing, Thing::Sky(Due::Tick | Due::Will))
    }

    /// Pods that the cloud wants.
    pub(crate) fn sky_wants(&self) -> Vec<&Pod> {
        let sky = self.sky.as_deref();
        sky.into_iter().flat_map(|sky| sky.api.wanted()).map(|(_, _, pod)| &**pod).collect()
    }

    /// Somebody deletes a pod in the cloud, if it is one of the cloud's.
    pub(crate) fn sky_removes(&mut self, uid: &str) {
        let Some(sky) = &mut self.sky else { return };
        let key = sky.api.pods().find(|(_, object, _)| *object.uid == *uid);
        if let Some(key) = key.map(|(key, ..)| key.clone()) {
            sky.api.delete(&key, None, Sky::wall_s(self.now));
            sky.inform();
        }
        self.sky_settle();
    }

    /// What a volume of a pod of the cloud has to say; `None`: there is no such object.
    pub(crate) fn sky_text(&self, namespace: &str, volume: &Volume) -> Option<String> {
        self.sky.as_deref()?.api.text(&object_of(namespace, volume)?)
    }

    /// What comes into a volume of a pod of the cloud is durable.
    pub(crate) fn sky_shows(&self, spec: &JobSpec) {
        let JobSpec::SetUpVolume(wanted) = spec else { return };
        let Some(sky) = self.sky.as_deref() else { return };
        let truth = self.check.pod(&wanted.uid).filter(|truth| truth.of_cloud);
        let Some(api) = truth.and_then(|truth| truth.told.as_deref()) else { return };
        let volume = api.spec.volumes.iter().find(|volume| volume.name == wanted.volume);
        let key = volume.and_then(|volume| object_of(&api.metadata.namespace, volume));
        if let (Some(key), Source::Files(files)) = (key, &wanted.source)
            && let Some(file) = files.files.first()
        {
            sky.rules.shows(&key, &String::from_utf8_lossy(&file.content.0));
        }
    }

    /// What of the cloud is not yet as it should be.
    pub(crate) fn sky_unsettled(&self) -> Option<String> {
        let sky = self.sky.as_deref()?;
        if sky.hub.conn.is_none() || sky.link.told_up.is_none() {
            return Some("there is no link".to_owned());
        }
        if self.knows_its_store_new() {
            return Some("the agent takes its store for a new one".to_owned());
        }
        if !sky.hub.is_idle() {
            return Some(format!("not acknowledged yet: {:?}", sky.hub.under_way()));
        }
        for (uid, record) in sky.hub.records() {
            let object = sky.api.get(&record.key).filter(|it| it.uid == *uid);
            let Some(object) = object else {
                return Some(format!("the node does not know that {} {uid} is gone", record.key));
            };
            // Of one that ends and begins all the time there is always another status.
            let same = sky
                .store
                .get(&record.key)
                .is_some_and(|it| it.uid == *uid && it.essence == object.essence());
            if object.version > record.version && !same {
                return Some(format!("the node knows {} as of {}", record.key, record.version));
            }
        }
        if let Some((key, _)) = sky
            .store
            .iter()
            .find(|(key, stored)| stored.pod.is_some() && sky.api.get(key).is_none())
        {
            return Some(format!("the store holds {key}, and there is no such pod"));
        }
        let is_left = |key: &str| {
            key.contains("/podpatch/")
                && sky.api.get(&key.replacen("/podpatch/", "/pod/", 1)).is_none()
        };
        if let Some((key, _)) = sky.store.iter().find(|(key, _)| is_left(key)) {
            return Some(format!("the store holds {key}, and there is no such pod"));
        }
        let of_cloud = sky.api.pods().find_map(|(key, object, pod)| {
            let stored = sky.store.get(key).filter(|stored| stored.uid == object.uid);
            let Some(stored) = stored else {
                return Some(format!("the store does not hold {key} {}", object.uid));
            };
            if stored.essence != object.essence() {
                return Some(format!("the store holds another {key} {}", object.uid));
            }
            let uid = &pod.metadata.uid;
            match self.agent.pod(uid) {
                Some(told) => misreported(key, &object.value()["status"], told),
                None => Some(format!("the agent does not know {key} {uid}")),
            }
        });
        of_cloud.or_else(|| self.mismirrored())
    }

    /// No pod that only runs is reported again and again.
    pub(crate) fn sky_is_quiet(&self, uid: &str, since: u64) -> bool {
        self.sky.as_deref().is_none_or(|sky| sky.rules.reports(uid, since) <= REPORTS_MAX)
    }
}

/// Whether the cloud's status of a pod is not the node's.
pub(super) fn misreported(key: &str, has: &Value, told: &pod::Pod) -> Option<String> {
    let status = serde_json::to_value(&told.api().status).expect("plain data");
    let (ours, theirs) = (plain(&status), plain(has));
    let differs = ours.iter().find(|(key, ours)| theirs.get(*key) != Some(*ours));
    let more = theirs.iter().find(|(key, _)| !ours.contains_key(*key));
    let (part, value) = differs.or(more)?;
    Some(format!(
        "{part} of {key} {} is {:?}, and the cloud has {:?}",
        told.uid(),
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

/// A status as the node has it: without what is others', and without the order of conditions.
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
