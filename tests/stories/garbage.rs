//! Garbage collection: images, dead containers, old sandboxes, logs of removed pods.

use edged::limits;
use edged::model::cri::{Code, ContainerState, SandboxId};
use edged::model::housekeeping::{ContainerPolicy, ImagePolicy, StoredImage};
use edged::model::job::LogDir;

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};

fn image(id: &str, name: &str, size: u64) -> StoredImage {
    StoredImage { id: id.into(), names: vec![name.into()], size, pinned: false }
}

/// Long enough for two checks of the room.
const A_WHILE_MS: u64 = 2 * limits::HOUSEKEEPING_LATE_MS;
/// Older than the images that must not go for their youth.
const OLD_MS: u64 = 150_000;

fn removals(harness: &Harness) -> Vec<&str> {
    harness.trace.iter().filter_map(|call| call.strip_prefix("remove_image ")).collect()
}

#[test]
fn images_go_until_there_is_room_the_least_recently_used_first() {
    // The eviction would want all of them removed.
    let mut harness = Harness::with(|config| config.housekeeping.eviction.hard.clear());
    harness.stored = ["a", "b", "c", "d"].map(|id| image(id, &format!("r/{id}:1"), 60)).into();
    // A container of `a` and one of `b`, of somebody else; `b` goes later, `a` first.
    let used = |id: &str, image: &str| {
        let mut used = container(id, "x", ContainerState::Exited);
        (used.pod, used.image_id) = (None, image.into());
        used
    };
    harness.containers = vec![used("c1", "a"), used("c2", "b")];
    harness.pass(30_000);
    harness.containers.remove(0);
    harness.pass(30_000);
    harness.containers.clear();
    harness.pass(limits::IMAGES_LIST_MS + OLD_MS);
    assert_eq!(removals(&harness), [] as [&str; 0], "there is room");
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    // 150 bytes are needed. Images that were not used since the agent's start are removed first.
    harness.does("remove_image c");
    harness.does("remove_image d");
    harness.does("remove_image a");
    harness.fill(77);
    harness.pass(OLD_MS);
    assert_eq!(removals(&harness), ["c", "d", "a"]);
}

#[test]
fn an_image_that_is_used_or_wanted_or_pinned_stays_and_the_failure_is_told() {
    let mut harness = Harness::new();
    harness.images = vec![];
    harness.manifests(&[&pod(MAIN)]);
    // Used by a pod that cannot pull: the runtime refuses all.
    let mut pinned = image("p", "r/p:1", 10);
    pinned.pinned = true;
    let mut used = container("c9", "x", ContainerState::Exited);
    (used.pod, used.image_id) = (None, "u".into());
    harness.containers.push(used);
    harness.stored = vec![
        image("w", "docker.io/library/i:1", 10),
        pinned,
        image("u", "r/u:1", 10),
        image("s", "kubeedge/pause:3.6", 10),
        image("t", "registry.k8s.io/pause:3.9", 10),
        image("x", "r/x:1", 10),
    ];
    harness.pass(2 * limits::IMAGES_LIST_MS);
    harness.fill(90);
    harness.pass(A_WHILE_MS);
    harness.does("remove_image x");
    harness.pass(A_WHILE_MS);
    assert_eq!(removals(&harness), ["x"]);
    let line = "FreeDiskSpaceFailed Failed to garbage collect required amount of images. Attempted \
                to free 100 bytes, but only found 10 bytes eligible to free.";
    assert!(harness.events.iter().any(|it| it == line), "{:?}", harness.events);
    assert!(!harness.events.iter().any(|event| event.starts_with("ImageGCFailed")), "only once");
    harness.pass(A_WHILE_MS + limits::IMAGES_RETRY_MIN_MS);
    let failed = "ImageGCFailed Failed to garbage collect required amount of images. Attempted to \
                  free 100 bytes, but only found 0 bytes eligible to free.";
    assert!(harness.events.iter().any(|event| event == failed), "{:?}", harness.events);
}

#[test]
fn young_images_stay_and_one_unused_for_too_long_goes_though_there_is_room() {
    let images = ImagePolicy { age_max_ms: 3_600_000, ..ImagePolicy::default() };
    let mut harness = Harness::with(|config| config.housekeeping.images = images);
    harness.fill(95);
    harness.stored = vec![image("a", "r/a:1", 500), image("b", "r/b:1", 500)];
    // `b` had a container of another tool until a short while ago.
    let mut used = container("c1", "x", ContainerState::Exited);
    (used.pod, used.image_id) = (None, "b".into());
    harness.containers.push(used);
    harness.pass(100_000);
    assert_eq!(removals(&harness), [] as [&str; 0], "it is too young");
    harness.fill(10);
    harness.pass(3_400_000);
    assert_eq!(removals(&harness), [] as [&str; 0], "the agent has not watched it for long enough");
    harness.containers.clear();
    harness.pass(600_000);
    harness.does("remove_image a");
    harness.pass(A_WHILE_MS);
    assert_eq!(removals(&harness), ["a"]);
}

#[test]
fn gauges_that_are_read_for_others_say_nothing_of_the_room_for_images() {
    let mut harness = Harness::new();
    harness.fill(50);
    harness.log.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    // Its log is measured more often.
    harness.pass(3_600_000);
    let blind = |line: &&String| line.contains("images there are not collected");
    assert_eq!(harness.log.iter().filter(blind).count(), 0, "{:?}", harness.log);
}

#[test]
fn with_room_the_runtime_is_asked_for_images_every_few_minutes_only() {
    let mut harness = Harness::new();
    harness.fill(50);
    harness.trace.clear();
    harness.pass(3_600_000);
    let requested = harness.trace.len();
    assert_eq!(requested, 0, "listing images is a look: {:?}", harness.trace);
    assert_eq!(harness.jobs, 0);
}

#[test]
fn an_image_list_that_fails_while_the_disk_is_full_is_tried_again() {
    let mut harness = Harness::new();
    harness.stored = vec![image("a", "r/a:1", 500)];
    harness.pass(limits::IMAGES_LIST_MS + OLD_MS);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    let (call, _) = harness.take("remove_image a");
    let gone = edged::model::cri::CallError::Lost(edged::model::cri::Lost::Deadline);
    harness.deliver(edged::agent::event::Event::Cri(call, Err(gone)));
    harness.pass(A_WHILE_MS + limits::IMAGES_RETRY_MIN_MS);
    harness.does("remove_image a");
}

#[test]
fn where_nothing_goes_images_are_gone_through_ever_less_often() {
    let mut harness = Harness::with(|config| config.housekeeping.eviction.hard.clear());
    harness.stored = vec![image("a", "r/a:1", 500)];
    harness.pass(limits::IMAGES_LIST_MS + OLD_MS);
    harness.fill(95);
    let (mut waits, mut last) = (Vec::new(), None);
    while waits.len() < 7 {
        let next = harness.agent.wake_at().expect("there is housekeeping");
        harness.pass(next.since_ms(harness.now.boot));
        if harness.open_calls() == ["remove_image a"] {
            let last = last.replace(harness.now.boot);
            waits.extend(last.map(|last| harness.now.boot.since_ms(last)));
            harness.refuses("remove_image a", Code::Unknown, "no");
        }
    }
    // A check of the room may be late by as much as any housekeeping.
    let mut wait_ms = limits::IMAGES_RETRY_MIN_MS;
    for got_ms in &waits {
        let expected = wait_ms..=wait_ms + limits::HOUSEKEEPING_LATE_MS;
        assert!(expected.contains(got_ms), "{waits:?}: {expected:?}");
        wait_ms = limits::IMAGES_RETRY_MAX_MS.min(2 * wait_ms);
    }
    assert_eq!(wait_ms, limits::IMAGES_RETRY_MAX_MS);
}

#[test]
fn a_sandbox_that_was_replaced_goes_with_its_last_container() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("s1", 0, false), sandbox("s2", 1, true)];
    let mut old = container("c1", "m", ContainerState::Exited);
    let mut new = container("c2", "m", ContainerState::Running);
    (old.sandbox, new.sandbox) = (SandboxId("s1".into()), SandboxId("s2".into()));
    new.attempt = 1;
    harness.containers = vec![old, new];
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s2", "container_status c2", "container_status c1"]);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "its dead container is kept");
    harness.containers.remove(0);
    harness.pass(1_000);
    harness.does_all(&["stop_podsandbox s1", "remove_podsandbox s1"]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn dead_containers_of_all_pods_have_a_bound_of_their_own() {
    let policy = ContainerPolicy { per_container_max: Some(3), all_max: Some(3), age_min_ms: 0 };
    let mut harness = Harness::with(|config| config.housekeeping.containers = policy);
    harness.sandboxes = vec![sandbox("s1", 0, true)];
    harness.containers = (0..6)
        .map(|attempt| {
            let mut it = container(&format!("c{attempt}"), "m", ContainerState::Exited);
            (it.attempt, it.created_at) = (attempt, i64::from(attempt) + 1);
            it
        })
        .collect();
    harness.containers[5].state = ContainerState::Running;
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c5", "container_status c4"]);
    // Three dead ones of each container may stay: two of five are removed.
    harness.does_all(&["remove_container c1", "remove_container c0"]);
    harness.pass(100);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    // Another pod with dead containers of its own: now the bound for the node applies.
    let mut others = harness.containers[2..4].to_vec();
    for (at, it) in others.iter_mut().enumerate() {
        let pod = it.pod.as_mut().expect("it has one");
        (pod.uid, pod.name) = ("u2".into(), "q-gw".into());
        it.id.0 = format!("d{at}").into();
        (it.sandbox, it.created_at) = (SandboxId("s7".into()), 100 + at as i64);
    }
    harness.containers.extend(others);
    let mut home = sandbox("s7", 0, true);
    home.pod = harness.containers.last().expect("just added").pod.clone();
    harness.sandboxes.push(home);
    let second = pod(MAIN).replace("\"p\"", "\"q\"").replace("u1", "u2");
    harness.manifests(&[&pod(MAIN), &second]);
    harness.pass(1_000);
    harness.works();
    harness.pass(limits::GARBAGE_MS + A_WHILE_MS);
    harness.works();
    let dead = harness.containers.iter().filter(|it| it.state == ContainerState::Exited).count();
    // Four for room for three: the share of each of the two containers is one.
    assert_eq!(dead, 2, "{:?}", harness.containers);
}

/// A pod whose container runs as `run`, after an instance `dead`.
fn restarted(harness: &mut Harness, sandbox_id: &str, dead: &str, run: &str) {
    harness.sandboxes.push(sandbox(sandbox_id, 0, true));
    let mut old = container(dead, "m", ContainerState::Exited);
    let mut new = container(run, "m", ContainerState::Running);
    (old.created_at, new.created_at, new.attempt) = (1, 2, 1);
    for it in [&mut old, &mut new] {
        it.sandbox = SandboxId(sandbox_id.into());
    }
    harness.containers.extend([old, new]);
}

#[test]
fn the_bound_for_all_takes_from_each_but_the_newest() {
    let policy = ContainerPolicy { per_container_max: Some(1), all_max: Some(1), age_min_ms: 0 };
    let mut harness = Harness::with(|config| config.housekeeping.containers = policy);
    restarted(&mut harness, "s1", "c0", "c1");
    restarted(&mut harness, "s2", "d0", "d1");
    for it in &mut harness.containers[2..] {
        let pod = it.pod.as_mut().expect("it has one");
        (pod.uid, pod.name) = ("u2".into(), "q-gw".into());
        it.created_at += 10;
    }
    harness.sandboxes[1].pod = harness.containers[2].pod.clone();
    harness.manifests(&[&pod(MAIN), &pod(MAIN).replace("\"p\"", "\"q\"").replace("u1", "u2")]);
    for _ in 0..2 {
        harness.works();
        harness.pass(limits::GARBAGE_MS + A_WHILE_MS);
    }
    assert_eq!(harness.trace.iter().filter(|it| it.starts_with("remove_")).count(), 1);
    harness.trace.iter().position(|it| it == "remove_container c0").expect("the oldest goes");
}

#[test]
fn one_that_was_to_go_stays_when_it_is_the_newest_again() {
    let policy = ContainerPolicy { per_container_max: Some(0), all_max: None, age_min_ms: 0 };
    let mut harness = Harness::with(|config| config.housekeeping.containers = policy);
    restarted(&mut harness, "s1", "c0", "c1");
    harness.manifests(&[&pod(&format!("{MAIN}, \"restartPolicy\": \"Never\""))]);
    harness.does_all(&["podsandbox_status s1", "container_status c1", "container_status c0"]);
    harness.pass(limits::GARBAGE_MS);
    harness.refuses("remove_container c0", Code::Unavailable, "busy");
    // Another tool removes the one that ran.
    harness.containers.pop();
    harness.pass(60_000);
    harness.does("stop_podsandbox s1");
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "a pod that ended is known by it");
}

#[test]
fn logs_of_a_pod_that_is_gone_go_once_all_is_known() {
    let mut harness = Harness::new();
    let left = LogDir { namespace: "default".into(), name: "old-gw".into(), uid: "u9".into() };
    harness.machine.log_dirs = Some(vec![left]);
    harness.pass(2 * limits::GARBAGE_MS);
    assert_eq!(harness.jobs, 0, "no source has delivered");
    harness.manifests(&[]);
    harness.pass(2 * limits::GARBAGE_MS);
    assert!(harness.jobs >= 1, "they are removed");
    assert_eq!(harness.agent.pods().count(), 0);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn logs_of_a_pod_whose_manifest_may_be_the_one_that_cannot_be_read_stay() {
    let mut harness = Harness::new();
    let left = LogDir { namespace: "default".into(), name: "old-gw".into(), uid: "u9".into() };
    harness.machine.log_dirs = Some(vec![left]);
    harness.broken_manifest();
    harness.pass(3 * limits::GARBAGE_MS);
    assert_eq!(harness.jobs, 0);
    harness.manifests(&[]);
    harness.pass(2 * limits::GARBAGE_MS);
    assert!(harness.jobs >= 1, "they are removed");
}

#[test]
fn logs_of_a_pod_that_is_known_stay() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    let jobs = harness.jobs;
    let own = LogDir { namespace: "default".into(), name: "p-gw".into(), uid: "u1".into() };
    harness.machine.log_dirs = Some(vec![own]);
    harness.pass(3 * limits::GARBAGE_MS);
    assert_eq!(harness.jobs, jobs);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn logs_that_a_late_job_leaves_go_too() {
    let mut harness = Harness::new();
    harness.manifests(&[]);
    harness.pass(3 * limits::GARBAGE_MS);
    let jobs = harness.jobs;
    // A child of an earlier life that hung in the kernel meanwhile.
    let left = LogDir { namespace: "default".into(), name: "old-gw".into(), uid: "u9".into() };
    harness.machine.log_dirs = Some(vec![left]);
    harness.pass(2 * limits::GARBAGE_MS);
    assert!(harness.jobs > jobs, "they are removed");
}

#[test]
fn what_a_pod_without_a_name_has_left_is_told_of_by_its_uid() {
    let mut harness = Harness::new();
    harness.machine.log_dirs = Some(vec![LogDir::nameless("u9")]);
    harness.manifests(&[]);
    harness.pass(2 * limits::GARBAGE_MS);
    let of: Vec<&String> = harness.log.iter().filter(|line| line.contains("u9")).collect();
    assert!(!of.is_empty(), "{:?}", harness.log);
    assert!(of.iter().all(|line| line.starts_with("uid=u9 ")), "{of:?}");
}
