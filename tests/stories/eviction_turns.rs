//! Consecutive evictions: how long one waits for the other, and for reclaimed resources first.

use edged::agent::Config;
use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, ContainerState};
use edged::model::housekeeping::{Amount, EvictionPolicy, Room, Signal, StoredImage, Threshold};

use crate::eviction::{CYCLE_MS, memory, named, reported, running, status, takes};
use crate::harness::{Harness, MAIN, container, sandbox};
use crate::node::Taken;

fn full(percent: u64, device: u64) -> Room {
    let bytes = Amount { capacity: 1_000, available: 1_000 - 10 * percent };
    Room { bytes, device, ..Room::default() }
}

/// The number of open calls for the pod of this name.
fn stops(harness: &Harness, name: &str) -> usize {
    let of = |requested: &&String| {
        requested.starts_with("stop_") && requested.contains(&format!("-{name}"))
    };
    harness.open_calls().iter().filter(of).count()
}

#[test]
fn the_next_goes_as_soon_as_the_one_before_is_gone() {
    for is_wanted in [true, false] {
        let mut harness = running(&["a", "b"], MAIN, |_| ());
        takes(&mut harness, "a", 50, 0);
        takes(&mut harness, "b", 200, 0);
        harness.machine.memory = Some(memory(90));
        harness.pass(CYCLE_MS);
        if !is_wanted {
            harness.manifests(&[&named("a", "", MAIN)]);
        }
        let of_b = |requested: &String| requested.contains("-b");
        while let Some(next) = harness.open_calls().into_iter().find(of_b) {
            harness.does(&next);
        }
        harness.pass(1_000);
        assert_eq!(stops(&harness, "a"), 1, "{is_wanted}: {:?}", harness.open_calls());
    }
}

#[test]
fn one_that_does_not_go_is_waited_for_so_long_and_then_another_has_to() {
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    takes(&mut harness, "a", 50, 0);
    takes(&mut harness, "b", 200, 0);
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!((stops(&harness, "a"), stops(&harness, "b")), (0, 1));
    harness.pass(limits::EVICTION_CLEAN_MS - CYCLE_MS);
    assert_eq!(stops(&harness, "a"), 0);
    harness.pass(2 * CYCLE_MS);
    assert_eq!(stops(&harness, "a"), 1, "{:?}", harness.open_calls());
}

#[test]
fn while_a_volume_of_the_one_before_is_left_nobody_goes_whoever_removed_its_containers() {
    let spec = r#""volumes":[{"name":"w","emptyDir":{}}],"containers":[{"name":"m",
        "image":"i:1","volumeMounts":[{"name":"w","mountPath":"/w"}]}]"#;
    let mut harness = running(&["a", "b"], spec, |_| ());
    takes(&mut harness, "a", 50, 0);
    takes(&mut harness, "b", 200, 0);
    harness.bad_volume = Some("b");
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    harness.does_all(&["stop_container c-b 2", "stop_podsandbox s-b", "container_status c-b"]);
    harness.containers.retain(|it| &*it.id.0 != "c-b");
    harness.sandboxes.retain(|it| &*it.id.0 != "s-b");
    harness.pass(limits::EVICTION_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "its volume is there");
    harness.bad_volume = None;
    harness.pass(CYCLE_MS);
    assert_eq!(stops(&harness, "a"), 1, "{:?}", harness.open_calls());
}

#[test]
fn after_several_that_passed_their_bounds_nobody_goes_before_all_are_gone() {
    let spec = r#""volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}}],
        "containers":[{"name":"m","image":"i:1",
            "volumeMounts":[{"name":"v","mountPath":"/v"}]}]"#;
    for first in ["a", "b"] {
        let mut harness = running(&["a", "b"], spec, |_| ());
        harness.manifests(&[&named("a", "", spec), &named("b", "", spec), &named("c", "", MAIN)]);
        harness.works();
        harness.taken.folders = vec![("v", 1 << 30)];
        while harness.open_calls().is_empty() {
            harness.pass(1_000);
        }
        assert_eq!(harness.open_calls(), ["stop_container c-a 2", "stop_container c-b 2"]);
        harness.machine.memory = Some(memory(90));
        let of = |requested: &String| requested.contains(&format!("-{first}"));
        while let Some(next) = harness.open_calls().into_iter().find(of) {
            harness.does(&next);
        }
        harness.pass(2 * CYCLE_MS);
        assert_eq!(harness.running().len(), 2, "the other is not gone: {:?}", harness.open_calls());
        assert_eq!(status(&harness, "c")["phase"], "Running");
        assert_eq!(harness.agent.metrics().evictions, [("emptydirfs.limit", 2)].into());
    }
}

#[test]
fn who_ends_already_or_is_nobodys_is_not_evicted() {
    // A pod that runs here, and that no source knows yet.
    let mut harness = running(&["a"], MAIN, |config| {
        config.cloud = Some(edged::model::settings::CloudSettings::default());
    });
    let (mut home, mut it) =
        (sandbox("s-u", 0, true), container("c-u", "m", ContainerState::Running));
    let pod = home.pod.as_mut().expect("it has one");
    (pod.uid, pod.name) = ("u".into(), "u-gw".into());
    home.source = Some("api".into());
    it.pod.clone_from(&home.pod);
    it.sandbox = home.id.clone();
    harness.sandboxes.push(home);
    harness.containers.push(it);
    harness.pass(5_000);
    takes(&mut harness, "u", 400, 0);
    takes(&mut harness, "a", 300, 0);
    // The other goes, and takes its time.
    harness.manifests(&[]);
    assert_eq!(stops(&harness, "a"), 1);
    harness.machine.memory = Some(memory(90));
    harness.pass(5 * CYCLE_MS);
    assert!(harness.agent.metrics().evictions.is_empty(), "{:?}", harness.events);
    assert_eq!(stops(&harness, "u"), 0);
    let line = "the node is low on memory, and no pod can be evicted";
    assert_eq!(
        harness.log.iter().filter(|reported| reported.contains(line)).count(),
        1,
        "{:?}",
        harness.log
    );
    // It is over, and comes again: it is reported again.
    harness.machine.memory = Some(memory(500));
    harness.pass(2 * CYCLE_MS);
    harness.machine.memory = Some(memory(90));
    harness.pass(2 * CYCLE_MS);
    assert_eq!(
        harness.log.iter().filter(|reported| reported.contains(line)).count(),
        2,
        "{:?}",
        harness.log
    );
}

/// The disk fills; there are a dead container and an image to remove.
fn reclaiming() -> Harness {
    let mut harness = running(&["a"], MAIN, |config| config.housekeeping.images.high_percent = 99);
    harness.stored =
        vec![StoredImage { id: "x".into(), names: vec!["r/x:1".into()], size: 60, pinned: false }];
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full(50, 1)), Some(full(50, 1)));
    harness.pass(2 * limits::IMAGES_LIST_MS);
    let mut dead = harness.containers[0].clone();
    (dead.id.0, dead.state, dead.created_at) = ("c-old".into(), ContainerState::Exited, 0);
    harness.containers[0].attempt = 1;
    harness.containers.push(dead);
    harness.pass(2_000);
    harness.works();
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full(92, 1)), Some(full(92, 1)));
    takes(&mut harness, "a", 1, 5 << 20);
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls(), ["remove_container c-old"]);
    harness
}

fn evictions(harness: &Harness) -> u64 {
    harness.agent.metrics().evictions.values().sum()
}

#[test]
fn what_can_be_won_is_waited_for_before_a_pod_has_to_go() {
    let mut harness = reclaiming();
    harness.pass(limits::EVICTION_RECLAIM_MS - 2 * CYCLE_MS);
    assert_eq!(harness.open_calls(), ["remove_container c-old"], "images come after containers");
    harness.does("remove_container c-old");
    harness.pass(2_000);
    assert_eq!(harness.open_calls(), ["remove_image x"]);
    harness.pass(limits::EVICTION_RECLAIM_MS - 2 * CYCLE_MS);
    assert_eq!(harness.open_calls(), ["remove_image x"]);
    assert_eq!(evictions(&harness), 0, "it may be enough");
    harness.does("remove_image x");
    harness.pass(CYCLE_MS);
    assert_eq!(evictions(&harness), 1, "it was not");
}

#[test]
fn what_cannot_be_won_in_time_is_not_waited_for() {
    let mut harness = reclaiming();
    harness.pass(limits::EVICTION_RECLAIM_MS + 2_000);
    assert_eq!(harness.open_calls(), ["remove_container c-old", "remove_image x"]);
    assert_eq!(evictions(&harness), 0);
    harness.pass(limits::EVICTION_RECLAIM_MS + 2_000);
    assert_eq!(evictions(&harness), 1);
}

/// There is an image that could be removed, old enough, and `change` is short from now on.
fn with_an_image(change: impl FnOnce(&mut Harness)) -> Harness {
    let mut harness = running(&["a"], MAIN, |config| config.housekeeping.images.high_percent = 99);
    harness.stored =
        vec![StoredImage { id: "x".into(), names: vec!["r/x:1".into()], size: 60, pinned: false }];
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full(20, 1)), Some(full(20, 2)));
    harness.pass(2 * limits::IMAGES_LIST_MS);
    assert!(!harness.agent.metrics().operations.contains_key("list_container_stats"));
    takes(&mut harness, "a", 1, 5 << 20);
    harness.taken.folders = vec![("m", 1 << 20)];
    change(&mut harness);
    harness.pass(CYCLE_MS);
    harness
}

#[test]
fn what_can_be_won_from_images_does_not_help_where_they_have_a_disk_of_their_own() {
    let harness = with_an_image(|harness| harness.machine.node_fs = Some(full(92, 1)));
    assert_eq!(evictions(&harness), 1, "at once");
    assert_eq!(
        reported(&harness, "EvictionThresholdMet Attempting to reclaim ephemeral-storage"),
        1
    );
    assert_eq!(harness.stored.len(), 1);
    assert!(!harness.open_calls().contains(&"remove_image x".to_owned()));
    // Where they share it, or it is theirs that is full, it does.
    for fill in [(92, 1, 92, 1), (20, 1, 92, 2)] {
        let harness = with_an_image(|harness| {
            (harness.machine.node_fs, harness.machine.image_fs) =
                (Some(full(fill.0, fill.1)), Some(full(fill.2, fill.3)));
        });
        assert_eq!(
            (evictions(&harness), harness.open_calls()),
            (0, vec!["remove_image x".to_owned()])
        );
    }
}

#[test]
fn where_memory_is_short_as_well_no_image_goes_for_it() {
    let harness = with_an_image(|harness| {
        harness.machine.memory = Some(memory(90));
        (harness.machine.node_fs, harness.machine.image_fs) =
            (Some(full(92, 1)), Some(full(92, 1)));
    });
    assert_eq!(evictions(&harness), 1, "at once");
    let reclaims =
        |what: &str| reported(&harness, &format!("EvictionThresholdMet Attempting to {what}"));
    assert_eq!((reclaims("reclaim memory"), reclaims("reclaim ephemeral-storage")), (1, 0));
    assert!(!harness.trace.contains(&"remove_image x".to_owned()));
}

#[test]
fn who_passed_its_bounds_goes_and_nobody_for_the_shortage_before_it_has() {
    let bounded = r#""volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}}],
        "containers":[{"name":"m","image":"i:1",
            "volumeMounts":[{"name":"v","mountPath":"/v"}]}]"#;
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    harness.manifests(&[&named("a", "", MAIN), &named("b", "", MAIN), &named("c", "", bounded)]);
    harness.works();
    takes(&mut harness, "b", 200, 0);
    // In one cycle.
    harness.taken.folders = vec![("v", 1 << 30)];
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!(harness.agent.metrics().evictions, [("emptydirfs.limit", 1)].into());
    assert_eq!(status(&harness, "b")["phase"], "Running");
}

#[test]
fn a_runtime_that_does_not_say_what_containers_take_is_asked_again_and_for_nothing_else() {
    let mut harness = running(&["a"], MAIN, |config| {
        config.housekeeping.eviction.hard.insert(Signal::Pids, Threshold::Amount(1_000));
    });
    (harness.taken.silent, harness.taken.mute) = (true, true);
    harness.machine.pids = Some(Amount { capacity: 32_768, available: 999 });
    for _ in 0..3 {
        harness.pass(CYCLE_MS);
        assert_eq!(harness.open_calls(), ["list_container_stats "]);
        harness.refuses("list_container_stats ", Code::Unavailable, "busy");
        assert_eq!(harness.open_calls(), [] as [&str; 0]);
    }
    assert_eq!(evictions(&harness), 0);
}

#[test]
fn a_container_that_has_ended_takes_nothing_whatever_the_runtime_says() {
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    takes(&mut harness, "a", 400, 0);
    takes(&mut harness, "b", 200, 0);
    for _ in 0..3 {
        let newest =
            harness.containers.iter().rposition(|it| it.id.0.contains('a') || it.attempt > 0);
        harness.containers[newest.expect("it is there")].state = ContainerState::Exited;
        harness.pass(limits::RELIST_MS);
        harness.works();
    }
    assert_eq!(harness.running().len(), 1, "it waits for its restart");
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!((stops(&harness, "a"), stops(&harness, "b")), (0, 1), "{:?}", harness.open_calls());
}

#[test]
fn a_hard_threshold_comes_before_a_soft_one_of_the_same() {
    let mut harness = running(&["a"], MAIN, |config| {
        config.housekeeping.eviction = EvictionPolicy {
            hard: [(Signal::Memory, Threshold::Amount(100 << 20))].into(),
            soft: [(Signal::Memory, (Threshold::Amount(200 << 20), 0))].into(),
            grace_max_s: 20,
            ..EvictionPolicy::default()
        };
    });
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls(), ["stop_container c-a 2"]);
}

#[test]
fn the_disk_of_images_is_watched_though_images_are_not() {
    let mut harness = running(&["a"], MAIN, |config| {
        config.housekeeping.images.high_percent = 100;
        config.housekeeping.images.age_max_ms = 0;
    });
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full(20, 1)), Some(full(92, 2)));
    takes(&mut harness, "a", 1, 5 << 20);
    harness.pass(2 * limits::EVICTION_RECLAIM_MS);
    harness.pass(2 * CYCLE_MS);
    assert_eq!(harness.agent.metrics().evictions, [("imagefs.available", 1)].into());
}

#[test]
fn nobody_goes_before_it_is_known_where_images_lie_if_the_runtime_says_it() {
    let off = |config: &mut Config| config.housekeeping.images.high_percent = 100;
    let mut harness = Harness::hiding(off, Taken { no_place: true, ..Taken::default() });
    harness.machine.memory = Some(memory(90));
    harness.manifests(&[&named("a", "", MAIN)]);
    let works = |harness: &mut Harness| {
        let next = |harness: &Harness| {
            harness.open_calls().into_iter().find(|it| !it.contains("image_fs"))
        };
        while let Some(next) = next(harness) {
            harness.does(&next);
        }
    };
    works(&mut harness);
    harness.pass(3 * CYCLE_MS);
    works(&mut harness);
    assert_eq!(evictions(&harness), 0);
    assert_eq!(harness.open_calls(), ["image_fs_info "], "once");
    harness.refuses("image_fs_info ", Code::Unimplemented, "unknown method ImageFsInfo");
    harness.pass(2 * CYCLE_MS);
    assert_eq!(evictions(&harness), 1, "it will not be known");
    // Another runtime may know it.
    harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    harness.pass(2_000);
    harness.deliver(Event::RuntimeUp);
    works(&mut harness);
    harness.pass(2 * CYCLE_MS + limits::EVICTION_CLEAN_MS);
    works(&mut harness);
    assert_eq!(harness.open_calls(), ["image_fs_info "]);
}

#[test]
fn a_shortage_of_which_nothing_is_known_is_none() {
    let mut harness = running(&["a"], MAIN, |config| {
        config.housekeeping.eviction.hard.insert(Signal::Pids, Threshold::Amount(1_000));
        config.housekeeping.eviction.hard.insert(Signal::NodeFsInodes, Threshold::Amount(1_000));
    });
    // The file system does not count inodes, and memory and processes cannot be read.
    harness.machine.memory = None;
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full(20, 1)), Some(full(20, 1)));
    harness.pass(5 * CYCLE_MS);
    assert_eq!(evictions(&harness), 0);
    assert_eq!(harness.agent.overview(harness.now).pressures, Some(vec![]));
    // The memory for pods is not known.
    let mut harness = running(&["a"], MAIN, |config| config.machine.memory_bytes = 0);
    harness.machine.pods_memory = Some(1 << 30);
    harness.pass(5 * CYCLE_MS);
    assert_eq!(evictions(&harness), 0);
}

#[test]
fn a_pod_that_asked_for_what_it_takes_outlives_one_that_did_not() {
    let calls = r#""containers":[{"name":"m","image":"i:1",
        "resources":{"requests":{"memory":"300Mi"}}}]"#;
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    let matters = format!("{MAIN},\"priority\":5");
    harness.manifests(&[&named("a", "", calls), &named("b", "", &matters)]);
    harness.works();
    takes(&mut harness, "a", 300, 0);
    takes(&mut harness, "b", 10, 0);
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!(
        (status(&harness, "a").get("reason"), status(&harness, "b")["reason"].as_str()),
        (None, Some("Evicted"))
    );
}

#[test]
fn where_nothing_else_wakes_the_agent_a_pod_goes_as_soon() {
    let mut harness = Harness::streaming(|config| config.housekeeping.images.high_percent = 100);
    harness.machine.memory = Some(memory(500));
    harness.manifests(&[&named("a", "", MAIN)]);
    harness.works();
    harness.pass(limits::EVICTION_LIMITS_MS);
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    assert_eq!(evictions(&harness), 1);
}
