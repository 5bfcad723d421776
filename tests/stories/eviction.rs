//! Evictions: under pressure of the node, and for a pod's disk limits.

use edged::agent::Config;
use edged::agent::admit::EVICTABLE;
use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::ContainerState;
use edged::model::housekeeping::{
    Amount, ContainerUsage, EvictionPolicy, Room, SandboxUsage, Signal, Threshold,
};
use edged::model::job::{JobReply, JobSpec};
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;

use crate::cloud_harness::{CloudHarness, content, pod};
use crate::harness::{Harness, MAIN, START, container, sandbox};
use crate::node::WALK;

/// A pod of the folder that may be evicted, unless `more` changes that.
pub fn named(name: &str, more: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","annotations":{{
            "{EVICTABLE}":"true"{more}}}}},"spec":{{{spec}}}}}"#
    )
}

#[test]
fn a_container_with_a_limit_of_disk_is_not_refused() {
    let mut harness = Harness::new();
    let limit = r#""resources":{"limits":{"ephemeral-storage":"20Mi"}}"#;
    let spec = format!(r#""containers":[{{"name":"m","image":"i:1",{limit}}}]"#);
    harness.manifests(&[&named("p", "", &spec)]);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

pub fn memory(available: u64) -> Amount {
    Amount { capacity: 1 << 30, available: available << 20 }
}

/// The runtime has these pods running, one container `m` each.
pub fn running(names: &[&str], spec: &str, change: impl FnOnce(&mut Config)) -> Harness {
    let mut harness = Harness::with(change);
    harness.machine.memory = Some(memory(500));
    for name in names {
        let (mut home, mut it) =
            (sandbox("s", 0, true), container("c", "m", ContainerState::Running));
        let pod = home.pod.as_mut().expect("it has one");
        (pod.uid, pod.name) = ((*name).into(), format!("{name}-gw").into());
        home.id.0 = format!("s-{name}").into();
        it.pod.clone_from(&home.pod);
        it.id.0 = format!("c-{name}").into();
        it.sandbox = home.id.clone();
        harness.sandboxes.push(home);
        harness.containers.push(it);
    }
    let manifests: Vec<String> = names.iter().map(|name| named(name, "", spec)).collect();
    let manifests: Vec<&str> = manifests.iter().map(String::as_str).collect();
    harness.manifests(&manifests);
    harness.works();
    assert_eq!(harness.running().len(), names.len(), "{:?}", harness.events);
    harness
}

pub fn takes(harness: &mut Harness, name: &str, memory: u64, disk: u64) {
    harness.taken.containers.push(ContainerUsage {
        uid: name.into(),
        name: "m".into(),
        memory: Some(memory << 20),
        disk: Some(disk),
        inodes: Some(1),
        ..ContainerUsage::default()
    });
}

pub fn status(harness: &Harness, name: &str) -> serde_json::Value {
    let pod = harness.agent.pods().find(|pod| pod.metadata.uid == name).expect("it is known");
    serde_json::to_value(&pod.status).expect("plain data")
}

pub fn reported(harness: &Harness, event: &str) -> usize {
    harness.events.iter().filter(|reported| *reported == event).count()
}

/// Long enough for one cycle to begin, and too short for two.
pub const CYCLE_MS: u64 = limits::EVICTION_MS + limits::HOUSEKEEPING_EARLY_MS;

#[test]
fn who_waits_for_its_restart_does_not_go_before_who_takes_it_all() {
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    takes(&mut harness, "b", 200, 0);
    // It uses nothing: it crashed, and will be restarted later.
    for _ in 0..3 {
        let newest =
            harness.containers.iter().rposition(|it| it.id.0.contains('a') || it.attempt > 0);
        let at = newest.expect("it is there");
        harness.containers[at].state = ContainerState::Exited;
        harness.pass(limits::RELIST_MS);
        harness.works();
    }
    assert_eq!(harness.running(), ["m"]);
    harness.taken.containers.push(ContainerUsage {
        uid: "a".into(),
        name: "m".into(),
        memory: None,
        disk: Some(0),
        inodes: Some(1),
        ..ContainerUsage::default()
    });
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    harness.does("stop_container c-b 2");
    assert!(!harness.open_calls().contains(&"stop_podsandbox s-a".to_owned()));
}

#[test]
fn who_takes_most_beyond_what_it_asked_for_goes_and_only_one_at_a_time() {
    let mut harness = running(&["a", "b", "c"], MAIN, |_| ());
    takes(&mut harness, "a", 50, 0);
    takes(&mut harness, "b", 200, 0);
    takes(&mut harness, "c", 100, 0);
    harness.pass(3 * CYCLE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "there is memory");
    harness.machine.memory = Some(memory(90));
    harness.pass(CYCLE_MS);
    let disrupted =
        |harness: &Harness| status(harness, "b")["conditions"].to_string().contains("Disruption");
    assert!(!disrupted(&harness), "it is reported with its end");
    // The minimum grace of any stop, whatever the pod's own is.
    harness.does("stop_container c-b 2");
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: \
                   90Mi. Container m was using 200Mi, request is 0, has larger consumption of \
                   memory. ";
    assert_eq!(reported(&harness, &format!("Evicted {message}")), 1, "{:?}", harness.events);
    assert_eq!(reported(&harness, "EvictionThresholdMet Attempting to reclaim memory"), 1);
    let low = "NodeHasInsufficientMemory Node gw status is now: NodeHasInsufficientMemory";
    assert_eq!(reported(&harness, low), 1);
    assert_eq!(
        harness.agent.overview(harness.now).pressures,
        Some(vec!["MemoryPressure".to_owned()])
    );
    // While something of it is left, no other pod is evicted; nothing of it is kept.
    harness.does("stop_podsandbox s-b");
    assert_eq!(harness.open_calls(), ["container_status c-b"]);
    harness.pass(limits::EVICTION_MS);
    assert_eq!(harness.open_calls(), ["container_status c-b"]);
    harness.does("container_status c-b");
    harness.pass(limits::EVICTION_MS);
    assert_eq!(harness.open_calls(), ["remove_container c-b"]);
    harness.does_all(&["remove_container c-b", "remove_podsandbox s-b"]);
    let failed = status(&harness, "b");
    assert_eq!((&failed["phase"], &failed["reason"]), (&"Failed".into(), &"Evicted".into()));
    assert_eq!(failed["message"], message);
    let conditions = failed["conditions"].as_array().expect("a list");
    let target =
        conditions.iter().find(|it| it["type"] == "DisruptionTarget").expect("it is there");
    assert_eq!(
        (&target["status"], &target["reason"]),
        (&"True".into(), &"TerminationByKubelet".into())
    );
    assert_eq!(failed["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    // The next one at once, because it is still short.
    harness.does("stop_container c-c 2");
    assert_eq!(harness.agent.metrics().evictions, [("memory.available", 2)].into());
}

#[test]
fn pods_that_take_more_than_their_share_lose_one_though_the_machine_has_memory_left() {
    let reserve = |config: &mut Config| {
        config.housekeeping.system_reserved.memory_bytes = 512 << 20;
    };
    let mut harness = running(&["a", "b"], MAIN, reserve);
    takes(&mut harness, "a", 50, 0);
    takes(&mut harness, "b", 380, 0);
    // The threshold applies to the pods' share as to the whole.
    harness.machine.pods_memory = Some(412 << 20);
    harness.pass(3 * CYCLE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.machine.pods_memory = Some(430 << 20);
    harness.pass(CYCLE_MS);
    harness.does("stop_container c-b 2");
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: \
                   82Mi. Container m was using 380Mi, request is 0, has larger consumption of \
                   memory. ";
    assert_eq!(reported(&harness, &format!("Evicted {message}")), 1, "{:?}", harness.events);
    assert_eq!(reported(&harness, "EvictionThresholdMet Attempting to reclaim memory"), 1);
    assert_eq!(
        harness.agent.overview(harness.now).pressures,
        Some(vec!["MemoryPressure".to_owned()])
    );
}

#[test]
fn when_memory_can_be_had_again_nobody_goes_and_the_pressure_is_told_for_a_while() {
    let mut harness = running(&["a", "b"], MAIN, |_| ());
    harness.machine.memory = Some(memory(99));
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls().len(), 1, "nothing is known of either: the first in order");
    harness.machine.memory = Some(memory(100));
    harness.works();
    harness.pass(limits::EVICTION_CLEAN_MS + 2 * CYCLE_MS);
    assert_eq!(harness.running(), ["m"]);
    // Best effort and not critical: it is not admitted until the pressure is over.
    let spec = MAIN;
    let manifests = [named("a", "", spec), named("b", "", spec), named("new", "", spec)];
    harness.manifests(&[&manifests[0], &manifests[1], &manifests[2]]);
    assert_eq!(status(&harness, "new")["reason"], "Evicted");
    let why = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(status(&harness, "new")["message"], why);
    harness.pass(300_000 + CYCLE_MS);
    let over = "NodeHasSufficientMemory Node gw status is now: NodeHasSufficientMemory";
    assert_eq!(reported(&harness, over), 1);
    let last = named("last", "", spec);
    harness.manifests(&[&manifests[0], &manifests[1], &last]);
    harness.does("run_podsandbox #0");
}

#[test]
fn static_and_critical_pods_stay_whatever_the_node_runs_short_of() {
    let mut harness = Harness::new();
    let critical = named("crit", "", &format!("{MAIN},\"priority\":2000000000"));
    let plain = crate::harness::pod(MAIN);
    harness.manifests(&[&plain]);
    harness.does_all(START);
    harness.manifests(&[&plain, &critical]);
    harness.works();
    assert_eq!(harness.running().len(), 2);
    harness.machine.memory = Some(memory(1));
    harness.pass(10 * CYCLE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.running().len(), 2);
    let line = "the node is low on memory, and no pod can be evicted";
    assert_eq!(
        harness.log.iter().filter(|reported| reported.contains(line)).count(),
        1,
        "{:?}",
        harness.log
    );
    // They are admitted under pressure as well.
    let other = named("more", "", &format!("{MAIN},\"priority\":2000000001"));
    harness.manifests(&[&plain, &critical, &other]);
    harness.does("run_podsandbox #0");
}

#[test]
fn a_soft_threshold_has_a_grace_period_and_leaves_the_pod_some() {
    let mut harness = running(&["a"], MAIN, |config| {
        config.housekeeping.eviction = EvictionPolicy {
            hard: [].into(),
            soft: [(Signal::Memory, (Threshold::Amount(100 << 20), 60_000))].into(),
            grace_max_s: 20,
            ..EvictionPolicy::default()
        };
    });
    harness.machine.memory = Some(memory(50));
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(
        harness.agent.overview(harness.now).pressures,
        Some(vec!["MemoryPressure".to_owned()])
    );
    harness.pass(2 * CYCLE_MS);
    harness.does("stop_container c-a 20");
}

#[test]
fn a_full_disk_costs_dead_containers_and_images_before_it_costs_a_pod() {
    let mut harness = running(&["a"], MAIN, |_| ());
    harness.stored = vec![edged::model::housekeeping::StoredImage {
        id: "x".into(),
        names: vec!["r/x:1".into()],
        size: 60,
        pinned: false,
    }];
    let full = |percent: u64| {
        let bytes = Amount { capacity: 1_000, available: 1_000 - 10 * percent };
        Some(Room { bytes, device: 1, ..Room::default() })
    };
    (harness.machine.node_fs, harness.machine.image_fs) = (full(50), full(50));
    // So that the image is not too young.
    harness.pass(2 * limits::IMAGES_LIST_MS);
    let mut dead = harness.containers[0].clone();
    (dead.id.0, dead.state, dead.created_at) = ("c-old".into(), ContainerState::Exited, 0);
    harness.containers[0].attempt = 1;
    harness.containers.push(dead);
    harness.pass(2_000);
    harness.works();
    assert_eq!(harness.containers.len(), 2, "one dead container of each is kept");
    // More than 10 % are left for the node, less than 15 % for images.
    (harness.machine.node_fs, harness.machine.image_fs) = (full(86), full(86));
    harness.pass(CYCLE_MS);
    let message = "EvictionThresholdMet Attempting to reclaim ephemeral-storage";
    assert_eq!(reported(&harness, message), 1);
    harness.does("remove_container c-old");
    harness.pass(5_000);
    (harness.machine.node_fs, harness.machine.image_fs) = (full(80), full(80));
    harness.does("remove_image x");
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "that was enough");
    // Now there is nothing else to remove.
    (harness.machine.node_fs, harness.machine.image_fs) = (full(91), full(91));
    takes(&mut harness, "a", 1, 5 << 20);
    harness.taken.folders = vec![("m", 1 << 20)];
    harness.pass(limits::EVICTION_RECLAIM_MS + 2 * CYCLE_MS);
    harness.does("stop_container c-a 2");
    let evicted = "Evicted The node was low on resource: ephemeral-storage. Threshold quantity: \
                   100, available: 90. Container m was using 6Mi, request is 0, has larger \
                   consumption of ephemeral-storage. ";
    assert_eq!(reported(&harness, evicted), 1, "{:?}", harness.events);
}

#[test]
fn by_processes_the_pod_that_has_most_goes() {
    let mut harness = running(&["a", "b"], MAIN, |config| {
        config.housekeeping.eviction.hard.insert(Signal::Pids, Threshold::Amount(1_000));
    });
    harness.machine.pids = Some(Amount { capacity: 32_768, available: 999 });
    let has = |uid: &str, processes| SandboxUsage { uid: uid.into(), processes: Some(processes) };
    harness.taken.sandboxes = vec![has("a", 10), has("b", 30_000)];
    harness.pass(CYCLE_MS);
    harness.does("stop_container c-b 2");
    let evicted = "Evicted The node was low on resource: pids. Threshold quantity: 1k, available: \
                   999. ";
    assert_eq!(reported(&harness, evicted), 1, "{:?}", harness.events);
}

#[test]
fn a_pod_that_takes_more_of_the_disk_than_it_may_goes_though_there_is_room() {
    let limited = r#""volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}},
                                {"name":"w","emptyDir":{}}],
        "containers":[{"name":"m","image":"i:1","volumeMounts":[
            {"name":"v","mountPath":"/v"},{"name":"w","mountPath":"/w"}]}]"#;
    let mut harness = running(&["a", "b"], limited, |_| ());
    harness.taken.folders = vec![("v", 1 << 20), ("w", 1 << 40)];
    harness.pass(3 * limits::EVICTION_LIMITS_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "as large as it may be");
    let walked = harness.taken.walked.borrow().clone();
    assert!((2..=8).contains(&walked.len()), "once a minute: {walked:?}");
    assert!(walked.iter().all(|folder| folder == "Volume v"), "only what is bounded: {walked:?}");
    harness.taken.folders = vec![("v", (1 << 20) + 1)];
    harness.pass(limits::EVICTION_LIMITS_MS + CYCLE_MS);
    // All that exceed their limits, together.
    assert_eq!(harness.open_calls(), ["stop_container c-a 2", "stop_container c-b 2"]);
    harness.works();
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!(status(&harness, "a")["message"], message);
    assert_eq!(status(&harness, "a")["phase"], "Failed");
    let conditions = status(&harness, "a")["conditions"].to_string();
    assert!(!conditions.contains("DisruptionTarget"), "its own fault: {conditions}");
    assert!(harness.volume_jobs.contains(&"tear down a".to_owned()), "{:?}", harness.volume_jobs);
}

#[test]
fn a_limit_that_is_set_later_holds_from_then_on() {
    let spec = |dir: &str| {
        format!(
            r#""volumes":[{{"name":"v","emptyDir":{dir}}}],"containers":[{{
                "name":"m","image":"i:1","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]"#
        )
    };
    let mut harness = running(&["a"], &spec("{}"), |_| ());
    harness.taken.folders = vec![("v", 2 << 20)];
    harness.pass(2 * limits::EVICTION_LIMITS_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "as large as it likes");
    harness.manifests(&[&named("a", "", &spec(r#"{"sizeLimit":"1Mi"}"#))]);
    harness.pass(limits::EVICTION_LIMITS_MS + CYCLE_MS);
    assert_eq!(harness.open_calls(), ["stop_container c-a 2"]);
}

#[test]
fn without_thresholds_and_limits_nothing_is_measured() {
    // None of these limits the pod's disk usage.
    let spec = format!(
        r#""volumes":[{{"name":"w","emptyDir":{{}}}},{{"name":"n","emptyDir":{{"sizeLimit":"0"}}}},
            {{"name":"t","emptyDir":{{"medium":"Memory","sizeLimit":"1Mi"}}}}],{MAIN}"#
    );
    let mut harness = running(&["a"], &spec, |config| {
        config.housekeeping.eviction.hard.clear();
        config.housekeeping.images.high_percent = 100;
    });
    harness.machine.memory = Some(memory(1));
    harness.pass(20 * CYCLE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.agent.overview(harness.now).pressures, Some(vec![]));
    assert!(!harness.agent.metrics().operations.contains_key("list_container_stats"));
}

#[test]
fn what_pods_take_of_the_disk_is_measured_once_a_minute_though_memory_is_short() {
    let bounded = r#""priority":2000000000,
        "volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}}],
        "containers":[{"name":"m","image":"i:1","volumeMounts":[{"name":"v","mountPath":"/v"}]}]"#;
    let mut harness = running(&["a"], bounded, |_| ());
    harness.machine.memory = Some(memory(90));
    harness.pass(3 * limits::EVICTION_LIMITS_MS);
    let walked = harness.taken.walked.borrow().clone();
    assert!((2..=4).contains(&walked.len()), "{walked:?}");
    assert!(!harness.agent.metrics().operations.contains_key("list_podsandbox_stats"));
}

#[test]
fn folders_are_walked_through_one_lot_after_the_other() {
    let full =
        Room { bytes: Amount { capacity: 1_000, available: 90 }, device: 1, ..Room::default() };
    let spec = r#""volumes":[{"name":"w","emptyDir":{}}],"containers":[{"name":"m",
        "image":"i:1","volumeMounts":[{"name":"w","mountPath":"/w"}]}]"#;
    let mut harness = running(&["a"], spec, |_| ());
    (harness.machine.node_fs, harness.machine.image_fs) = (Some(full), Some(full));
    // The disk is slow as well.
    harness.taken.hangs = Some(WALK);
    harness.pass(2 * CYCLE_MS);
    let walks = |harness: &Harness| {
        harness.specs.iter().filter(|spec| matches!(spec, JobSpec::Measure(_))).count()
    };
    assert_eq!(walks(&harness), 1, "of the volume");
    harness.taken.hangs = None;
    let walk = harness.taken.hung.take().expect("it is under way");
    harness.deliver(Event::Job(walk, Ok(JobReply::Used(vec![None]))));
    assert_eq!(walks(&harness), 2, "of the logs");
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls(), ["stop_container c-a 2"]);
}

#[test]
fn where_memory_is_short_as_well_no_disk_is_walked_to_find_who_goes() {
    let full = |percent: u64| {
        let bytes = Amount { capacity: 1_000, available: 1_000 - 10 * percent };
        Some(Room { bytes, device: 1, ..Room::default() })
    };
    let spec = r#""volumes":[{"name":"w","emptyDir":{}}],"containers":[{"name":"m",
        "image":"i:1","volumeMounts":[{"name":"w","mountPath":"/w"}]}]"#;
    for (memory_mib, walks) in [(90, false), (500, true)] {
        let mut harness = running(&["a"], spec, |_| ());
        harness.machine.memory = Some(memory(memory_mib));
        (harness.machine.node_fs, harness.machine.image_fs) = (full(91), full(91));
        harness.pass(CYCLE_MS);
        let walked = harness.taken.walked.borrow().clone();
        let expected: &[&str] = if walks { &["Volume w", "Logs m"] } else { &[] };
        assert_eq!(walked, expected, "with {memory_mib} MiB left");
    }
}

#[test]
fn a_runtime_that_does_not_say_what_pods_take_costs_nobody_its_life() {
    let mut harness = running(&["a"], MAIN, |_| ());
    harness.taken.silent = true;
    harness.machine.memory = Some(memory(1));
    harness.pass(CYCLE_MS);
    let why = "unknown method ListContainerStats";
    harness.refuses("list_container_stats ", edged::model::cri::Code::Unimplemented, why);
    harness.pass(CYCLE_MS);
    assert_eq!(harness.running(), ["m"]);
    assert_eq!(
        harness.agent.overview(harness.now).pressures,
        Some(vec!["MemoryPressure".to_owned()])
    );
    harness.refuses("list_container_stats ", edged::model::cri::Code::Unimplemented, why);
    let line = "no pod is evicted: the usage of pods is not known";
    let count = harness.log.iter().filter(|reported| reported.contains(line)).count();
    assert_eq!(count, 1, "logged once: {:?}", harness.log);
}

#[test]
fn where_processes_run_short_and_nobody_tells_who_has_them_one_goes_all_the_same() {
    let mut harness = running(&["a", "b"], MAIN, |config| {
        config.housekeeping.eviction.hard.insert(Signal::Pids, Threshold::Amount(1_000));
    });
    harness.taken.mute = true;
    harness.machine.pids = Some(Amount { capacity: 32_768, available: 999 });
    harness.pass(CYCLE_MS);
    assert_eq!(harness.open_calls(), ["list_podsandbox_stats "], "no pod before it is known");
    harness.refuses("list_podsandbox_stats ", edged::model::cri::Code::Unimplemented, "unknown");
    assert_eq!(harness.open_calls().len(), 1, "{:?}", harness.open_calls());
    assert!(harness.open_calls()[0].starts_with("stop_container c-"), "{:?}", harness.open_calls());
}

#[test]
fn who_may_not_go_and_takes_more_than_it_may_is_told_of_once() {
    let spec = r#""priority":2000000000,"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}}],
        "containers":[{"name":"m","image":"i:1",
            "volumeMounts":[{"name":"v","mountPath":"/v"}]}]"#;
    let mut harness = running(&["a"], spec, |_| ());
    harness.taken.folders = vec![("v", 1 << 30)];
    harness.pass(5 * limits::EVICTION_LIMITS_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let line = "uid=a not evicted, because it is critical: Usage of EmptyDir volume \"v\"";
    assert_eq!(
        harness.log.iter().filter(|reported| reported.contains(line)).count(),
        1,
        "{:?}",
        harness.log
    );
}

#[test]
fn of_two_instances_the_one_that_runs_tells_what_the_container_takes() {
    for order in [[0, 1], [1, 0]] {
        let mut harness = running(&["a", "b"], MAIN, |_| ());
        takes(&mut harness, "a", 100, 0);
        takes(&mut harness, "b", 200, 0);
        let mut ended = harness.taken.containers[1].clone();
        ended.memory = None;
        let of_b = [harness.taken.containers.remove(1), ended];
        harness.taken.containers.extend(order.map(|at: usize| of_b[at].clone()));
        harness.machine.memory = Some(memory(90));
        harness.pass(CYCLE_MS);
        assert_eq!(harness.open_calls(), ["stop_container c-b 2"], "{order:?}");
    }
}

#[test]
fn what_a_pod_of_the_cloud_was_evicted_for_stands_where_its_readers_look() {
    let settings = CloudSettings { report_events: true, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.harness.machine.memory = Some(memory(500));
    cloud.connect();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud.harness.machine.memory = Some(memory(50));
    cloud.pass(3 * CYCLE_MS);
    let events: Vec<_> = cloud.take_sent("event").iter().map(content).collect();
    let of = |reason: &str| events.iter().find(|event| event["reason"] == reason).expect("told");
    let reported = of("Evicted");
    assert_eq!(reported["metadata"]["annotations"]["starved_resource"], "memory");
    assert!(reported["annotations"].is_null(), "{reported}");
    // Other events of the pod are not evictions.
    assert!(of("Killing")["metadata"]["annotations"].is_null(), "{}", of("Killing"));
}
