//! Lists, watches and the sizes of resources.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::*;

fn raw(name: &str, version: u64, bytes: usize) -> Box<RawValue> {
    let object = json!({"kind": "Gadget", "apiVersion": "x.org/v1", "metadata": {"name": name,
        "namespace": "n", "uid": name, "resourceVersion": version.to_string()},
        "spec": "x".repeat(bytes)});
    to_raw_value(&object).expect("JSON")
}

fn gadgets(at: usize) -> Gvr {
    Gvr::new("x.org", "v1", &format!("gadgets{at}"))
}

/// A resource that a node listens to, and its list.
fn listing(resources: &mut Resources, at: usize, out: &mut Out) -> (ResourceId, WatchId) {
    let id = resources.acquire(Instant(1), &gadgets(at), out).expect("there is room");
    resources.listen(id, NodeId(1));
    resources.step(Instant(1), out);
    let last = resources.watches.iter().next_back().expect("a list");
    (id, *last.0)
}

/// Hands it in, if the list is still wanted.
fn listed(resources: &mut Resources, watch: WatchId, objects: Vec<Box<RawValue>>, out: &mut Out) {
    if let Some(id) = resources.of_watch(watch) {
        let fact = WatchFact::Listed(objects);
        resources.watched(Instant(2), id, fact, &mut Rng::new(1), out);
    }
}

#[test]
fn objects_of_a_resource_are_bounded() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, watch) = listing(&mut resources, 0, &mut out);
    let some = (0..DYNAMIC_OBJECTS_MAX).map(|at| raw(&at.to_string(), 1, 0)).collect();
    listed(&mut resources, watch, some, &mut out);
    assert_eq!(resources.all[&id].objects.len(), DYNAMIC_OBJECTS_MAX);
    listed(&mut resources, watch, vec![raw("more", 1, 0), raw("and more", 1, 0)], &mut out);
    let resource = &resources.all[&id];
    assert!(matches!(resource.refusal(), Some(Failure::Own { code: 413, .. })));
    assert_eq!((resource.objects.len(), resources.bytes), (0, 0));
    let ended = |action: &Action| matches!(action, Action::Unwatch(it) if *it == watch);
    assert!(out.actions.iter().any(ended));
    assert_eq!(resources.of_watch(watch), None, "what still comes is not taken");
}

#[test]
fn bytes_of_a_resource_and_of_all_are_bounded() {
    const PART: usize = 8 << 20;
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let parts = DYNAMIC_BYTES_MAX / PART - 1;
    let mut fill = |resources: &mut Resources, at: usize, parts: usize| {
        let (id, watch) = listing(resources, at, &mut out);
        for part in 0..parts {
            listed(resources, watch, vec![raw(&part.to_string(), 1, PART)], &mut out);
        }
        resources.all[&id].refusal().is_some()
    };
    assert!(!fill(&mut resources, 0, parts));
    assert!(fill(&mut resources, 1, parts + 1), "it is too large");
    // As if others had the rest.
    resources.bytes = DYNAMIC_ALL_BYTES_MAX - 2 * PART;
    assert!(!fill(&mut resources, 2, 1));
    assert!(fill(&mut resources, 3, 1), "all of them are too large");
    assert_eq!(resources.bytes / PART, DYNAMIC_ALL_BYTES_MAX / PART - 1, "its own are free again");
}

#[test]
fn bytes_are_counted_until_the_last_node_has_the_deletion() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, watch) = listing(&mut resources, 0, &mut out);
    listed(&mut resources, watch, vec![raw("a", 1, 100)], &mut out);
    let mut rng = Rng::new(1);
    let mut tell = |resources: &mut Resources, fact| {
        let id = *resources.all.keys().next().expect("one");
        resources.watched(Instant(3), id, fact, &mut rng, &mut out)
    };
    tell(&mut resources, WatchFact::ListEnd("1".into()));
    resources.step(Instant(3), &mut Out::default());
    let name = Arc::clone(resources.all[&id].objects.keys().next().expect("one"));
    let place = Place { resource: id, name: Arc::clone(&name) };
    assert!(resources.show(&place, NodeId(1), &"a".into(), 1));
    let before = resources.bytes;
    tell(&mut resources, WatchFact::Changed(raw("a", 2, 50)));
    assert_eq!(resources.bytes, before - 50);
    tell(&mut resources, WatchFact::Deleted(raw("a", 3, 50)));
    assert_eq!(resources.bytes, before - 50, "a node has it");
    resources.released(&place, NodeId(1));
    assert_eq!((resources.bytes, resources.all[&id].objects.len()), (0, 0));
}

#[test]
fn failed_lists_back_off() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, _) = listing(&mut resources, 0, &mut out);
    let mut rng = Rng::new(1);
    let mut now = Instant(1);
    for n in 0..12 {
        let fact = WatchFact::Ended("reset".to_owned());
        resources.watched(now, id, fact, &mut rng, &mut out);
        let at = resources.wake_at().expect("it is retried");
        let delay_ms = (WATCH_RETRY_MIN_MS << n).min(WATCH_RETRY_MAX_MS);
        let wait_ms = at.since_ms(now);
        assert!((delay_ms..=delay_ms / 2 * 3).contains(&wait_ms), "{n}: {wait_ms}");
        now = at;
        assert_eq!(resources.step(now, &mut out), 1);
    }
    let warnings = out.actions.iter().filter(|it| matches!(it, Action::Log(..))).count();
    assert_eq!(warnings, 1, "it is logged once");
}

#[test]
fn a_watch_that_has_held_goes_on_at_once() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, _) = listing(&mut resources, 0, &mut out);
    let mut rng = Rng::new(1);
    let end = WatchFact::ListEnd("1".into());
    resources.watched(Instant(1), id, end, &mut rng, &mut out);
    resources.step(Instant(1), &mut out);
    let now = Instant(1 + WATCH_CALM_MS);
    resources.watched(now, id, WatchFact::Ended("over".to_owned()), &mut rng, &mut out);
    assert_eq!(resources.wake_at(), Some(now));
    assert_eq!(resources.step(now, &mut out), 0, "it is no list");
}

#[test]
fn a_resource_that_nobody_needs_ends() {
    let listed = || WatchFact::ListEnd("1".into());
    for (facts, kept_ms) in [
        (vec![listed()], DYNAMIC_UNUSED_MS),
        (vec![WatchFact::Unserved], DYNAMIC_REFUSED_MS),
        // It was there before.
        (vec![listed(), WatchFact::Unserved], DYNAMIC_REFUSED_MS),
    ] {
        let (mut resources, mut out) = (Resources::default(), Out::default());
        let (id, _) = listing(&mut resources, 0, &mut out);
        for fact in facts {
            resources.watched(Instant(1), id, fact, &mut Rng::new(1), &mut out);
        }
        resources.unlisten(Instant(5), id, NodeId(1));
        resources.step(Instant(4 + kept_ms), &mut out);
        assert_eq!(resources.all.len(), 1);
        resources.step(Instant(5 + kept_ms), &mut out);
        assert_eq!(resources.all.len(), 0);
    }
}

#[test]
fn services_that_were_refused_are_listed_again_for_those_who_need_them() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let endpoints = Gvr::new("", "v1", "endpoints");
    let of_endpoints = resources.acquire(Instant(1), &endpoints, &mut out).expect("there is room");
    resources.listen(of_endpoints, NodeId(1));
    assert!(resources.waits_for_services(Instant(1), &endpoints, &mut out).is_some());
    resources.step(Instant(1), &mut out);
    let of_services = resources.of_name(&services()).expect("they are watched");
    resources.watched(Instant(1), of_services, WatchFact::Unserved, &mut Rng::new(1), &mut out);
    assert_eq!(resources.step(Instant(DYNAMIC_RELIST_MS), &mut out), 0);
    assert_eq!(resources.step(Instant(1 + DYNAMIC_RELIST_MS), &mut out), 1);
}

#[test]
fn what_nodes_have_of_a_resource_that_becomes_too_large_is_not_forgotten() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, watch) = listing(&mut resources, 0, &mut out);
    listed(&mut resources, watch, vec![raw("a", 1, 0)], &mut out);
    let name = Arc::clone(resources.all[&id].objects.keys().next().expect("one"));
    let place = Place { resource: id, name };
    assert!(resources.show(&place, NodeId(1), &"a".into(), 1));
    let some = (0..DYNAMIC_OBJECTS_MAX).map(|at| raw(&at.to_string(), 1, 0)).collect();
    listed(&mut resources, watch, some, &mut out);
    let resource = &resources.all[&id];
    assert!(resource.refusal().is_some());
    assert_eq!((resource.objects.len(), resource.bytes), (1, 0));
    assert!(!resource.knows(None, 1), "the node is told of nothing until it is listed");
    resources.step(Instant(2 + DYNAMIC_RELIST_MS), &mut out);
    let end = WatchFact::ListEnd("9".into());
    let changes = resources.watched(Instant(3), id, end, &mut Rng::new(1), &mut out);
    assert!(changes.is_settled && resources.all[&id].knows(None, 1));
    assert!(resources.held(&place, NodeId(1)).is_some(), "it is to be deleted there");
    resources.forget(id, NodeId(1));
    assert_eq!(resources.all[&id].objects.len(), 0);
}

#[test]
fn deleted_objects_that_nodes_have_are_bounded() {
    let (mut resources, mut out) = (Resources::default(), Out::default());
    let (id, watch) = listing(&mut resources, 0, &mut out);
    for at in 0..=DYNAMIC_ENTRIES_MAX {
        let name = ObjectName { namespace: "n".into(), name: at.to_string().into() };
        let place = Place { resource: id, name: Arc::new(name) };
        assert!(resources.show(&place, NodeId(1), &"u".into(), 1));
    }
    assert_eq!(resources.all[&id].objects.len(), DYNAMIC_ENTRIES_MAX);
    listed(&mut resources, watch, vec![raw("more", 1, 0)], &mut out);
    let resource = &resources.all[&id];
    assert!(resource.refusal().is_some());
    assert_eq!(resource.objects.len(), 0, "there is no other way to make room");
}
