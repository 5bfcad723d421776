//! Which images go, and which do not, while much happens at once.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, Container, ContainerState, Reply, Request};
use edged::model::housekeeping::{ImagePolicy, Room, StoredImage, Told};
use edged::model::job::JobSpec;

use crate::desk::{Desk, MAIN, START, container, pod};
use crate::node::{SWEEP, Taken};

/// Long enough for the room to be looked at twice.
const A_WHILE_MS: u64 = 2 * limits::CHORES_LATE_MS;
/// Older than the images that must not go for their youth.
const OLD_MS: u64 = 150_000;

fn image(id: &str, size: u64) -> StoredImage {
    StoredImage { id: id.into(), names: vec![format!("r/{id}:1").into()], size, pinned: false }
}

/// There are these images, old enough to go; nothing else would want them gone.
fn with(change: impl FnOnce(&mut ImagePolicy), images: &[(&str, u64)]) -> Desk {
    let mut desk = Desk::with(|config| {
        config.housekeeping.eviction.hard.clear();
        change(&mut config.housekeeping.images);
    });
    desk.stored = images.iter().map(|(id, size)| image(id, *size)).collect();
    desk.fill(50);
    desk.pass(limits::IMAGES_LIST_MS + OLD_MS);
    desk
}

/// A container of somebody else runs this image.
fn of_others(image: &str) -> Container {
    let mut used = container("c9", "x", ContainerState::Running);
    (used.pod, used.image_id) = (None, image.into());
    used
}

fn removals(desk: &Desk) -> Vec<&str> {
    desk.trace.iter().filter_map(|call| call.strip_prefix("remove_image ")).collect()
}

fn asked(desk: &Desk, operation: &str) -> u64 {
    desk.agent.metrics().operations.get(operation).map_or(0, |told| told.total)
}

fn events(desk: &Desk, reason: &str) -> usize {
    desk.events.iter().filter(|event| event.starts_with(reason)).count()
}

#[test]
fn an_image_that_a_pod_comes_to_want_while_others_go_stays() {
    let mut desk = with(|_| (), &[("a", 60), ("b", 60), ("c", 60)]);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image a"]);
    desk.images.clear();
    desk.manifests(&[&pod(r#""containers":[{"name":"m","image":"r/b:1"}]"#)]);
    desk.does("remove_image a");
    assert!(desk.asked_for().contains(&"remove_image c".to_owned()), "{:?}", desk.asked_for());
    desk.does("remove_image c");
    desk.pass(1_000);
    assert_eq!(removals(&desk), ["a", "c"]);
}

#[test]
fn an_image_that_is_used_since_the_images_were_listed_stays() {
    let mut desk = with(|_| (), &[("a", 60), ("b", 60)]);
    desk.fill(95);
    // A look is under way when they are listed: it may have missed what began since.
    desk.taken.looks_wait = true;
    desk.pass(A_WHILE_MS);
    let lists = ["list_podsandbox ", "list_containers "];
    assert_eq!(desk.asked_for(), lists, "the look that was under way");
    for name in lists {
        let (call, request) = desk.take(name);
        let nothing = match request {
            Request::ListPodSandbox => Reply::Sandboxes(Vec::new()),
            _ => Reply::Containers(Vec::new()),
        };
        desk.agent.handle(desk.now, Event::Cri(call, Ok(nothing)));
    }
    desk.containers.push(of_others("a"));
    desk.taken.looks_wait = false;
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image b"]);
}

#[test]
fn images_go_from_exactly_so_much_on() {
    for (percent, expected) in
        [(84, &[][..]), (85, &["remove_image a"]), (100, &["remove_image a"])]
    {
        let mut desk = with(|_| (), &[("a", 500)]);
        desk.fill(percent);
        desk.pass(A_WHILE_MS);
        assert_eq!(desk.asked_for(), expected, "{percent}");
    }
}

#[test]
fn with_room_images_are_listed_for_their_age_alone_and_without_that_not_at_all() {
    let mut desk = with(|_| (), &[("a", 500)]);
    let (listed, placed) = (asked(&desk, "list_images"), asked(&desk, "image_fs_info"));
    desk.pass(3_600_000);
    let count = asked(&desk, "list_images") - listed;
    assert!((10..=13).contains(&count), "{count} in an hour");
    assert_eq!(asked(&desk, "image_fs_info"), placed, "asked once");
    let mut desk = with(|policy| policy.high_percent = 100, &[("a", 500)]);
    desk.fill(99);
    desk.pass(3_600_000);
    assert_eq!((asked(&desk, "list_images"), asked(&desk, "image_fs_info")), (0, 0));
    assert_eq!(removals(&desk), [] as [&str; 0]);
}

#[test]
fn without_a_bound_for_the_room_images_go_for_their_age() {
    let mut desk = with(
        |policy| (policy.high_percent, policy.age_max_ms) = (100, 1_200_000),
        &[("a", 10), ("b", 10)],
    );
    desk.containers.push(of_others("b"));
    desk.fill(100);
    desk.pass(300_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "however full it is");
    desk.pass(2 * 1_200_000);
    assert_eq!(desk.asked_for(), ["remove_image a"]);
    desk.does("remove_image a");
    desk.containers.clear();
    desk.pass(1_200_000 - limits::IMAGES_LIST_MS);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "used until a while ago");
    desk.pass(2 * limits::IMAGES_LIST_MS);
    assert_eq!(desk.asked_for(), ["remove_image b"]);
}

#[test]
fn those_that_are_too_old_go_first_and_all_of_them_though_there_is_room_before() {
    let mut desk = with(
        |policy| policy.age_max_ms = 3_600_000,
        &[("a", 500), ("b", 500), ("c", 500), ("d", 500)],
    );
    // Two are in use, one of them until an hour before the disk fills.
    desk.containers = vec![of_others("a"), of_others("b")];
    desk.containers[1].id.0 = "c8".into();
    desk.pass(1_000);
    desk.taken.no_images = true;
    desk.pass(3_600_000);
    desk.containers.clear();
    desk.pass(1_000);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    let (call, _) = desk.take("list_images ");
    desk.taken.no_images = false;
    let images = Told::Images(desk.stored.clone());
    desk.tell(Event::Cri(call, Ok(Reply::Upkeep(images))));
    desk.pass(2_000);
    // 150 bytes are needed; the first would do.
    desk.does_all(&["remove_image c", "remove_image d"]);
    desk.fill(50);
    desk.pass(A_WHILE_MS);
    assert_eq!(removals(&desk), ["c", "d"]);
}

#[test]
fn a_pass_that_won_enough_ends_a_row_of_failures() {
    let mut desk = with(|_| (), &[("a", 500), ("b", 500), ("c", 500)]);
    let wait_ms = A_WHILE_MS + 2 * limits::IMAGES_RETRY_MIN_MS;
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    for asked in ["a", "b", "c"] {
        desk.refuses(&format!("remove_image {asked}"), Code::Unknown, "busy");
    }
    desk.pass(1_000);
    assert_eq!(events(&desk, "ImageGCFailed"), 0, "one is none");
    desk.pass(wait_ms);
    desk.does("remove_image a");
    // It is needed again: that is a first failure once more, and tried again as soon.
    desk.pass(wait_ms);
    for asked in ["b", "c"] {
        desk.refuses(&format!("remove_image {asked}"), Code::Unknown, "busy");
    }
    desk.pass(1_000);
    assert_eq!(events(&desk, "ImageGCFailed"), 0);
    desk.pass(wait_ms);
    for asked in ["b", "c"] {
        desk.refuses(&format!("remove_image {asked}"), Code::Unknown, "busy");
    }
    desk.pass(1_000);
    let told = "ImageGCFailed wanted to free 150 bytes, but freed 0 bytes space with errors in \
                image deletion: [";
    assert_eq!(events(&desk, told), 1, "{:?}", desk.events);
    assert_eq!(events(&desk, "FreeDiskSpaceFailed"), 0);
}

#[test]
fn images_that_cannot_be_listed_are_a_failure_that_is_told_the_second_time() {
    let mut desk = with(|_| (), &[("a", 500)]);
    desk.taken.no_images = true;
    desk.fill(95);
    for failures in 0..3 {
        desk.pass(A_WHILE_MS + (limits::IMAGES_RETRY_MIN_MS << failures));
        desk.refuses("list_images ", Code::Unknown, "busy");
        desk.pass(1_000);
        assert_eq!(events(&desk, "ImageGCFailed cannot list images: "), failures);
    }
    // With room enough nothing has failed for it.
    let mut desk = with(|_| (), &[("a", 500)]);
    desk.taken.no_images = true;
    for _ in 0..3 {
        desk.pass(limits::IMAGES_LIST_MS + A_WHILE_MS);
        desk.refuses("list_images ", Code::Unknown, "busy");
    }
    assert_eq!(events(&desk, "ImageGCFailed"), 0);
}

#[test]
fn a_file_system_of_images_without_a_size_is_told_and_looked_at_rarely() {
    let mut desk = with(|_| (), &[("a", 500)]);
    desk.machine.image_fs = Some(Room::default());
    let listed = asked(&desk, "list_images");
    desk.pass(1_000_000);
    let told = "InvalidDiskCapacity invalid capacity 0 on image filesystem";
    assert!(events(&desk, told) >= 1, "{:?}", desk.events);
    assert!(asked(&desk, "list_images") - listed <= 4);
    assert_eq!(removals(&desk), [] as [&str; 0]);
}

#[test]
fn that_the_room_of_images_cannot_be_read_is_said_once_each_time() {
    let mut desk = with(|_| (), &[]);
    desk.log.clear();
    let lines = |desk: &Desk| {
        let line = "path=/images images there are not watched: no room can be read";
        desk.log.iter().filter(|told| *told == line).count()
    };
    for times in 1..=2 {
        desk.machine.image_fs = None;
        desk.pass(20 * limits::CHORES_LATE_MS);
        assert_eq!(lines(&desk), times, "{:?}", desk.log);
        desk.fill(50);
        desk.pass(20 * limits::CHORES_LATE_MS);
        assert_eq!(lines(&desk), times, "{:?}", desk.log);
    }
}

#[test]
fn another_runtime_is_asked_anew_where_its_images_lie_and_which_it_has() {
    let mut desk = with(|_| (), &[("a", 60), ("b", 60), ("c", 60)]);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image a"]);
    let placed = asked(&desk, "image_fs_info");
    desk.stored = vec![image("z", 500)];
    desk.tell(Event::RuntimeDown { cause: "connection refused".to_owned() });
    desk.open.clear();
    desk.pass(2_000);
    desk.tell(Event::RuntimeUp);
    desk.pass(A_WHILE_MS);
    assert_eq!(asked(&desk, "image_fs_info"), placed + 1);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "those of the one before are not its");
    desk.pass(OLD_MS + limits::IMAGES_RETRY_MAX_MS);
    assert_eq!(desk.asked_for(), ["remove_image z"]);
}

#[test]
fn what_was_removed_is_said_by_its_first_name() {
    let mut desk = with(|_| (), &[("a", 500)]);
    desk.stored[0].names.push("r/second:1".into());
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    desk.does("remove_image a");
    let line = "image=r/a:1 bytes=500 removed: unused";
    assert_eq!(desk.log.iter().filter(|told| *told == line).count(), 1, "{:?}", desk.log);
}

#[test]
fn an_image_that_has_the_name_of_a_pause_image_among_others_stays() {
    let mut desk = with(|_| (), &[("a", 500), ("b", 10)]);
    desk.stored[0].names.push("mirror.example/pause:3.9".into());
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image b"]);
}

#[test]
fn the_image_of_sandboxes_stays_whatever_its_name() {
    let mut desk = with(|policy| policy.sandbox_image = "r/a:1".into(), &[("a", 500), ("b", 10)]);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image b"]);
}

/// The links that were looked through: which containers had to keep theirs.
fn kept_links(desk: &Desk) -> Vec<Vec<String>> {
    let sweeps = desk.node_jobs.iter().filter_map(|spec| match spec {
        JobSpec::SweepLinks { living } => Some(living),
        _ => None,
    });
    sweeps.map(|living| living.iter().map(ToString::to_string).collect()).collect()
}

#[test]
fn links_to_logs_of_containers_that_live_stay() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.exits("m", 1);
    desk.works();
    desk.pass(30_000);
    desk.works();
    desk.node_jobs.clear();
    desk.pass(2 * limits::GARBAGE_MS);
    let running: Vec<String> = desk
        .containers
        .iter()
        .filter(|it| it.state == ContainerState::Running)
        .map(|it| it.id.0.to_string())
        .collect();
    assert_eq!((desk.containers.len(), running.len()), (2, 1));
    let kept = kept_links(&desk);
    assert!((1..=2).contains(&kept.len()), "{kept:?}");
    assert!(kept.iter().all(|living| *living == running), "{kept:?}");
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
        let mut desk = Desk::with(|config| {
            config.cloud = Some(edged::model::settings::CloudSettings::default());
        });
        desk.machine.log_dirs = left();
        desk.manifests(&[]);
        desk.pass(3 * limits::GARBAGE_MS);
        assert_eq!((desk.jobs, kept_links(&desk)), (0, vec![]));
    }
    // The runtime has not told what runs.
    let mut desk = Desk::hiding(|_| (), Taken { looks_wait: true, ..Taken::default() });
    desk.machine.log_dirs = left();
    desk.manifests(&[]);
    desk.pass(3 * limits::GARBAGE_MS);
    assert_eq!((desk.jobs, kept_links(&desk)), (0, vec![]));
}

#[test]
fn where_nothing_else_wakes_the_agent_images_go_as_soon() {
    let mut desk = Desk::streaming(|config| config.housekeeping.eviction.hard.clear());
    desk.stored = vec![image("a", 500)];
    desk.fill(50);
    desk.pass(limits::IMAGES_LIST_MS + OLD_MS);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    assert_eq!(desk.asked_for(), ["remove_image a"]);
}

#[test]
fn an_image_that_is_used_by_one_of_its_names_is_in_use() {
    let mut desk = with(|_| (), &[("a", 500), ("b", 10)]);
    desk.containers = vec![of_others("a"), of_others("r/a:1")];
    desk.containers[0].id.0 = "c8".into();
    desk.pass(2 * limits::RELIST_IDLE_MS);
    desk.containers.remove(0);
    desk.pass(2 * limits::RELIST_IDLE_MS);
    desk.fill(95);
    desk.pass(A_WHILE_MS);
    desk.does("remove_image b");
    desk.pass(A_WHILE_MS);
    assert_eq!(removals(&desk), ["b"]);
}

#[test]
fn a_runtime_that_does_not_say_where_images_lie_is_asked_rarely() {
    let none = |config: &mut edged::agent::Config| config.housekeeping.eviction.hard.clear();
    let mut desk = Desk::hiding(none, Taken { no_place: true, ..Taken::default() });
    for _ in 0..3 {
        desk.refuses("image_fs_info ", Code::Unimplemented, "unknown method");
        desk.pass(limits::IMAGES_RETRY_MIN_MS - A_WHILE_MS);
        assert_eq!(desk.asked_for(), [] as [&str; 0]);
        desk.pass(2 * A_WHILE_MS);
    }
    // It knows the question, and no place.
    let (call, _) = desk.take("image_fs_info ");
    desk.tell(Event::Cri(call, Ok(Reply::Upkeep(Told::ImageFs(None)))));
    desk.pass(3_600_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
}

#[test]
fn while_links_are_looked_through_others_jobs_end_and_no_second_look_begins() {
    let mut desk = Desk::new();
    desk.taken.hangs = Some(SWEEP);
    desk.manifests(&[]);
    desk.pass(2 * limits::GARBAGE_MS);
    assert!(desk.taken.hung.is_some());
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.pass(3 * limits::GARBAGE_MS);
    assert_eq!(desk.running(), ["m"]);
    assert_eq!(kept_links(&desk).len(), 1);
}
