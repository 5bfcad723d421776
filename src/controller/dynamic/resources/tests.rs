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
    resources.hold(id, &name);
    let before = resources.bytes;
    tell(&mut resources, WatchFact::Changed(raw("a", 2, 50)));
    assert_eq!(resources.bytes, before - 50);
    tell(&mut resources, WatchFact::Deleted(raw("a", 3, 50)));
    assert_eq!(resources.bytes, before - 50, "a node has it");
    resources.released(id, &name);
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
    for is_listed in [true, false] {
        let (mut resources, mut out) = (Resources::default(), Out::default());
        let (id, _) = listing(&mut resources, 0, &mut out);
        let fact = if is_listed { WatchFact::ListEnd("1".into()) } else { WatchFact::Unserved };
        resources.watched(Instant(1), id, fact, &mut Rng::new(1), &mut out);
        assert!(resources.unlisten(Instant(5), id, NodeId(1)));
        let kept_ms = if is_listed { DYNAMIC_UNUSED_MS } else { DYNAMIC_REFUSED_MS };
        resources.step(Instant(4 + kept_ms), &mut out);
        assert_eq!(resources.all.len(), 1);
        resources.step(Instant(5 + kept_ms), &mut out);
        assert_eq!(resources.all.len(), 0);
    }
}
