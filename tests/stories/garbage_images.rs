//! Which images are removed, and which are not, while other things happen at the same time.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, Container, ContainerState, Reply, Request};
use edged::model::housekeeping::{HousekeepingReply, ImagePolicy, Room, StoredImage};
use edged::model::job::JobSpec;

use crate::harness::{Harness, MAIN, START, container, pod};
use crate::node::{SWEEP, Taken};

/// Long enough for two checks of the room.
const A_WHILE_MS: u64 = 2 * limits::HOUSEKEEPING_LATE_MS;
/// Older than the images that must not go for their youth.
const OLD_MS: u64 = 150_000;

fn image(id: &str, size: u64) -> StoredImage {
    StoredImage { id: id.into(), names: vec![format!("r/{id}:1").into()], size, pinned: false }
}

/// These images exist, old enough to be removed; no other rule would remove them.
fn with(change: impl FnOnce(&mut ImagePolicy), images: &[(&str, u64)]) -> Harness {
    let mut harness = Harness::with(|config| {
        config.housekeeping.eviction.hard.clear();
        change(&mut config.housekeeping.images);
    });
    harness.stored = images.iter().map(|(id, size)| image(id, *size)).collect();
    harness.fill(50);
    harness.pass(limits::IMAGES_LIST_MS + OLD_MS);
    harness
}

/// A container of somebody else runs this image.
fn of_others(image: &str) -> Container {
    let mut used = container("c9", "x", ContainerState::Running);
    (used.pod, used.image_id) = (None, image.into());
    used
}

fn removals(harness: &Harness) -> Vec<&str> {
    harness.trace.iter().filter_map(|call| call.strip_prefix("remove_image ")).collect()
}

fn requested(harness: &Harness, operation: &str) -> u64 {
    harness.agent.metrics().operations.get(operation).map_or(0, |reported| reported.total)
}

fn events(harness: &Harness, reason: &str) -> usize {
    harness.events.iter().filter(|event| event.starts_with(reason)).count()
}

#[test]
fn an_image_that_a_pod_comes_to_want_while_others_go_stays() {
    let mut harness = with(|_| (), &[("a", 60), ("b", 60), ("c", 60)]);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image a"]);
    harness.images.clear();
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"r/b:1"}]"#)]);
    harness.does("remove_image a");
    assert!(
        harness.open_calls().contains(&"remove_image c".to_owned()),
        "{:?}",
        harness.open_calls()
    );
    harness.does("remove_image c");
    harness.pass(1_000);
    assert_eq!(removals(&harness), ["a", "c"]);
}

#[test]
fn an_image_that_is_used_since_the_images_were_listed_stays() {
    let mut harness = with(|_| (), &[("a", 60), ("b", 60)]);
    harness.fill(95);
    // A relist is under way when they are listed: it may have missed what started since.
    harness.taken.lists_wait = true;
    harness.pass(A_WHILE_MS);
    let lists = ["list_podsandbox ", "list_containers "];
    assert_eq!(harness.open_calls(), lists, "the look that was under way");
    for name in lists {
        let (call, request) = harness.take(name);
        let nothing = match request {
            Request::ListPodSandbox => Reply::Sandboxes(Vec::new()),
            _ => Reply::Containers(Vec::new()),
        };
        harness.agent.handle(harness.now, Event::Cri(call, Ok(nothing)));
    }
    harness.containers.push(of_others("a"));
    harness.taken.lists_wait = false;
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image b"]);
}

#[test]
fn images_go_from_exactly_so_much_on() {
    for (percent, expected) in
        [(84, &[][..]), (85, &["remove_image a"]), (100, &["remove_image a"])]
    {
        let mut harness = with(|_| (), &[("a", 500)]);
        harness.fill(percent);
        harness.pass(A_WHILE_MS);
        assert_eq!(harness.open_calls(), expected, "{percent}");
    }
}

#[test]
fn with_room_images_are_listed_for_their_age_alone_and_without_that_not_at_all() {
    let mut harness = with(|_| (), &[("a", 500)]);
    let (listed, placed) =
        (requested(&harness, "list_images"), requested(&harness, "image_fs_info"));
    harness.pass(3_600_000);
    let count = requested(&harness, "list_images") - listed;
    assert!((10..=13).contains(&count), "{count} in an hour");
    assert_eq!(requested(&harness, "image_fs_info"), placed, "requested once");
    let mut harness = with(|policy| policy.high_percent = 100, &[("a", 500)]);
    harness.fill(99);
    harness.pass(3_600_000);
    assert_eq!((requested(&harness, "list_images"), requested(&harness, "image_fs_info")), (0, 0));
    assert_eq!(removals(&harness), [] as [&str; 0]);
}

#[test]
fn without_a_bound_for_the_room_images_go_for_their_age() {
    let mut harness = with(
        |policy| (policy.high_percent, policy.age_max_ms) = (100, 1_200_000),
        &[("a", 10), ("b", 10)],
    );
    harness.containers.push(of_others("b"));
    harness.fill(100);
    harness.pass(300_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "however full it is");
    harness.pass(2 * 1_200_000);
    assert_eq!(harness.open_calls(), ["remove_image a"]);
    harness.does("remove_image a");
    harness.containers.clear();
    harness.pass(1_200_000 - limits::IMAGES_LIST_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "used until a while ago");
    harness.pass(2 * limits::IMAGES_LIST_MS);
    assert_eq!(harness.open_calls(), ["remove_image b"]);
}

#[test]
fn those_that_are_too_old_go_first_and_all_of_them_though_there_is_room_before() {
    let mut harness = with(
        |policy| policy.age_max_ms = 3_600_000,
        &[("a", 500), ("b", 500), ("c", 500), ("d", 500)],
    );
    // Two are in use, one of them until an hour before the disk fills.
    harness.containers = vec![of_others("a"), of_others("b")];
    harness.containers[1].id.0 = "c8".into();
    harness.pass(1_000);
    harness.taken.no_images = true;
    harness.pass(3_600_000);
    harness.containers.clear();
    harness.pass(1_000);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    let (call, _) = harness.take("list_images ");
    harness.taken.no_images = false;
    let images = HousekeepingReply::Images(harness.stored.clone());
    harness.deliver(Event::Cri(call, Ok(Reply::HousekeepingCall(images))));
    harness.pass(2_000);
    // 150 bytes are needed; the first would do.
    harness.does_all(&["remove_image c", "remove_image d"]);
    harness.fill(50);
    harness.pass(A_WHILE_MS);
    assert_eq!(removals(&harness), ["c", "d"]);
}

#[test]
fn a_pass_that_won_enough_ends_a_row_of_failures() {
    let mut harness = with(|_| (), &[("a", 500), ("b", 500), ("c", 500)]);
    let wait_ms = A_WHILE_MS + 2 * limits::IMAGES_RETRY_MIN_MS;
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    for requested in ["a", "b", "c"] {
        harness.refuses(&format!("remove_image {requested}"), Code::Unknown, "busy");
    }
    harness.pass(1_000);
    assert_eq!(events(&harness, "ImageGCFailed"), 0, "one is none");
    harness.pass(wait_ms);
    harness.does("remove_image a");
    // It is needed again: that is a first failure again, and is retried as soon.
    harness.pass(wait_ms);
    for requested in ["b", "c"] {
        harness.refuses(&format!("remove_image {requested}"), Code::Unknown, "busy");
    }
    harness.pass(1_000);
    assert_eq!(events(&harness, "ImageGCFailed"), 0);
    harness.pass(wait_ms);
    for requested in ["b", "c"] {
        harness.refuses(&format!("remove_image {requested}"), Code::Unknown, "busy");
    }
    harness.pass(1_000);
    let reported = "ImageGCFailed wanted to free 150 bytes, but freed 0 bytes space with errors in \
                image deletion: [";
    assert_eq!(events(&harness, reported), 1, "{:?}", harness.events);
    assert_eq!(events(&harness, "FreeDiskSpaceFailed"), 0);
}

#[test]
fn images_that_cannot_be_listed_are_a_failure_that_is_told_the_second_time() {
    let mut harness = with(|_| (), &[("a", 500)]);
    harness.taken.no_images = true;
    harness.fill(95);
    for failures in 0..3 {
        harness.pass(A_WHILE_MS + (limits::IMAGES_RETRY_MIN_MS << failures));
        harness.refuses("list_images ", Code::Unknown, "busy");
        harness.pass(1_000);
        assert_eq!(events(&harness, "ImageGCFailed cannot list images: "), failures);
    }
    // With enough room nothing has failed.
    let mut harness = with(|_| (), &[("a", 500)]);
    harness.taken.no_images = true;
    for _ in 0..3 {
        harness.pass(limits::IMAGES_LIST_MS + A_WHILE_MS);
        harness.refuses("list_images ", Code::Unknown, "busy");
    }
    assert_eq!(events(&harness, "ImageGCFailed"), 0);
}

#[test]
fn a_file_system_of_images_without_a_size_is_told_and_looked_at_rarely() {
    let mut harness = with(|_| (), &[("a", 500)]);
    harness.machine.image_fs = Some(Room::default());
    let listed = requested(&harness, "list_images");
    harness.pass(1_000_000);
    let reported = "InvalidDiskCapacity invalid capacity 0 on image filesystem";
    assert!(events(&harness, reported) >= 1, "{:?}", harness.events);
    assert!(requested(&harness, "list_images") - listed <= 4);
    assert_eq!(removals(&harness), [] as [&str; 0]);
}

#[test]
fn that_the_room_of_images_cannot_be_read_is_said_once_each_time() {
    let mut harness = with(|_| (), &[]);
    harness.log.clear();
    let lines = |harness: &Harness| {
        let line = "path=/images images there are not collected: the disk usage cannot be read";
        harness.log.iter().filter(|reported| *reported == line).count()
    };
    for times in 1..=2 {
        harness.machine.image_fs = None;
        harness.pass(20 * limits::HOUSEKEEPING_LATE_MS);
        assert_eq!(lines(&harness), times, "{:?}", harness.log);
        harness.fill(50);
        harness.pass(20 * limits::HOUSEKEEPING_LATE_MS);
        assert_eq!(lines(&harness), times, "{:?}", harness.log);
    }
}

#[test]
fn another_runtime_is_asked_anew_where_its_images_lie_and_which_it_has() {
    let mut harness = with(|_| (), &[("a", 60), ("b", 60), ("c", 60)]);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image a"]);
    let placed = requested(&harness, "image_fs_info");
    harness.stored = vec![image("z", 500)];
    harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    harness.open.clear();
    harness.pass(2_000);
    harness.deliver(Event::RuntimeUp);
    harness.pass(A_WHILE_MS);
    assert_eq!(requested(&harness, "image_fs_info"), placed + 1);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "those of the one before are not its");
    harness.pass(OLD_MS + limits::IMAGES_RETRY_MAX_MS);
    assert_eq!(harness.open_calls(), ["remove_image z"]);
}

#[test]
fn what_was_removed_is_said_by_its_first_name() {
    let mut harness = with(|_| (), &[("a", 500)]);
    harness.stored[0].names.push("r/second:1".into());
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    harness.does("remove_image a");
    let line = "image=r/a:1 bytes=500 removed: unused";
    assert_eq!(
        harness.log.iter().filter(|reported| *reported == line).count(),
        1,
        "{:?}",
        harness.log
    );
}

#[test]
fn an_image_that_has_the_name_of_a_pause_image_among_others_stays() {
    let mut harness = with(|_| (), &[("a", 500), ("b", 10)]);
    harness.stored[0].names.push("mirror.example/pause:3.9".into());
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image b"]);
}

#[test]
fn the_image_of_sandboxes_stays_whatever_its_name() {
    let mut harness =
        with(|policy| policy.sandbox_image = "r/a:1".into(), &[("a", 500), ("b", 10)]);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image b"]);
}

/// The swept links: the containers whose links had to stay.
fn kept_links(harness: &Harness) -> Vec<Vec<String>> {
    let sweeps = harness.node_jobs.iter().filter_map(|spec| match spec {
        JobSpec::SweepLinks { living } => Some(living),
        _ => None,
    });
    sweeps.map(|living| living.iter().map(ToString::to_string).collect()).collect()
}

#[test]
fn links_to_logs_of_containers_that_live_stay() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.exits("m", 1);
    harness.works();
    harness.pass(30_000);
    harness.works();
    harness.node_jobs.clear();
    harness.pass(2 * limits::GARBAGE_MS);
    let running: Vec<String> = harness
        .containers
        .iter()
        .filter(|it| it.state == ContainerState::Running)
        .map(|it| it.id.0.to_string())
        .collect();
    assert_eq!((harness.containers.len(), running.len()), (2, 1));
    let stored = kept_links(&harness);
    assert!((1..=2).contains(&stored.len()), "{stored:?}");
    assert!(stored.iter().all(|living| *living == running), "{stored:?}");
}

#[test]
fn nothing_is_looked_for_that_nobody_wants_before_the_cloud_and_the_runtime_are_known() {
    let left = || {
        let left = edged::model::job::LogDir {
            namespace: "default".into(),
            name: "old-gw".into(),
            uid: "u9".into(),
        };
        Some(vec![left])
    };
    #[cfg(feature = "cloud")]
    {
        // The store was not read.
        let mut harness = Harness::with(|config| {
            config.cloud = Some(edged::model::settings::CloudSettings::default());
        });
        harness.machine.log_dirs = left();
        harness.manifests(&[]);
        harness.pass(3 * limits::GARBAGE_MS);
        assert_eq!((harness.jobs, kept_links(&harness)), (0, vec![]));
    }
    // The runtime has not reported the running containers.
    let mut harness = Harness::hiding(|_| (), Taken { lists_wait: true, ..Taken::default() });
    harness.machine.log_dirs = left();
    harness.manifests(&[]);
    harness.pass(3 * limits::GARBAGE_MS);
    assert_eq!((harness.jobs, kept_links(&harness)), (0, vec![]));
}

#[test]
fn where_nothing_else_wakes_the_agent_images_go_as_soon() {
    let mut harness = Harness::streaming(|config| config.housekeeping.eviction.hard.clear());
    harness.stored = vec![image("a", 500)];
    harness.fill(50);
    harness.pass(limits::IMAGES_LIST_MS + OLD_MS);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    assert_eq!(harness.open_calls(), ["remove_image a"]);
}

#[test]
fn an_image_that_is_used_by_one_of_its_names_is_in_use() {
    let mut harness = with(|_| (), &[("a", 500), ("b", 10)]);
    harness.containers = vec![of_others("a"), of_others("r/a:1")];
    harness.containers[0].id.0 = "c8".into();
    harness.pass(2 * limits::RELIST_IDLE_MS);
    harness.containers.remove(0);
    harness.pass(2 * limits::RELIST_IDLE_MS);
    harness.fill(95);
    harness.pass(A_WHILE_MS);
    harness.does("remove_image b");
    harness.pass(A_WHILE_MS);
    assert_eq!(removals(&harness), ["b"]);
}

#[test]
fn a_runtime_that_does_not_say_where_images_lie_is_asked_rarely() {
    let none = |config: &mut edged::agent::Config| config.housekeeping.eviction.hard.clear();
    let mut harness = Harness::hiding(none, Taken { no_place: true, ..Taken::default() });
    for _ in 0..3 {
        harness.refuses("image_fs_info ", Code::Unimplemented, "unknown method");
        harness.pass(limits::IMAGES_RETRY_MIN_MS - A_WHILE_MS);
        assert_eq!(harness.open_calls(), [] as [&str; 0]);
        harness.pass(2 * A_WHILE_MS);
    }
    // It supports the call, and has no path.
    let (call, _) = harness.take("image_fs_info ");
    harness
        .deliver(Event::Cri(call, Ok(Reply::HousekeepingCall(HousekeepingReply::ImageFs(None)))));
    harness.pass(3_600_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn while_links_are_looked_through_others_jobs_end_and_no_second_look_begins() {
    let mut harness = Harness::new();
    harness.taken.hangs = Some(SWEEP);
    harness.manifests(&[]);
    harness.pass(2 * limits::GARBAGE_MS);
    assert!(harness.taken.hung.is_some());
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.pass(3 * limits::GARBAGE_MS);
    assert_eq!(harness.running(), ["m"]);
    assert_eq!(kept_links(&harness).len(), 1);
}
