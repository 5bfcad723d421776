//! Volumes and their parts: what is done again, what is waited for, and what is said of it.

use edged::agent::event::Event;
use edged::limits;
use edged::model::job::{JobError, JobSpec};

use crate::desk::{Desk, UID, pod};
use crate::volumes::{MOUNT, with};

const NOTHING: [&str; 0] = [];
const EMPTY: &str = r#"{"name":"v"}"#;
const PARTS: &str = r#"{"name":"v","mountPath":"/a","subPath":"a"},
    {"name":"v","mountPath":"/b"},{"name":"v","mountPath":"/c","subPath":"c"}"#;

/// Paths of the parts of volumes that were to be mounted by themselves.
fn bound(desk: &Desk) -> Vec<(u32, &str)> {
    let parts = desk.specs.iter().filter_map(|spec| match spec {
        JobSpec::BindSubPath(part) => Some((part.index, &*part.path)),
        _ => None,
    });
    parts.collect()
}

#[test]
fn the_parts_that_a_container_sees_are_mounted_once_for_each_of_its_instances() {
    let mut desk = Desk::new();
    desk.manifests(&[&with(EMPTY, PARTS)]);
    desk.works();
    assert_eq!(bound(&desk), [(0, "a"), (2, "c")]);
    desk.exits("m", 1);
    desk.works();
    assert_eq!(desk.running(), ["m"]);
    assert_eq!(bound(&desk), [(0, "a"), (2, "c"), (0, "a"), (2, "c")]);
}

#[test]
fn a_part_that_cannot_be_mounted_keeps_its_container_waiting_and_is_tried_again() {
    let mut desk = Desk::new();
    desk.taken.fails =
        Some(|spec| matches!(spec, JobSpec::BindSubPath(part) if &*part.path == "c"));
    desk.manifests(&[&with(EMPTY, PARTS)]);
    desk.works();
    let why = "failed to prepare subPath for volumeMount \"v\" of container \"m\"";
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(waiting["message"], why);
    assert!(desk.events.contains(&format!("Failed Error: {why}")), "{:?}", desk.events);
    let before = bound(&desk).len();
    desk.pass(limits::RETRY_MS - 500);
    assert_eq!(bound(&desk).len(), before, "there is a pause");
    desk.taken.fails = None;
    desk.pass(500);
    desk.works();
    assert_eq!(desk.running(), ["m"]);
    assert_eq!(bound(&desk)[before..], [(2, "c")], "the other is there");
}

#[test]
fn a_volume_that_fails_while_its_pod_runs_is_tried_again_and_the_pod_runs_on() {
    let mut desk = Desk::new();
    desk.manifests(&[&with(EMPTY, MOUNT)]);
    desk.works();
    desk.taken.fails = Some(|spec| matches!(spec, JobSpec::SetUpVolume(_)));
    let other = with(r#"{"name":"v","hostPath":{"path":"/srv"}}"#, MOUNT);
    desk.manifests(&[&other]);
    let failed = |desk: &Desk| {
        let sets_up = |spec: &&JobSpec| matches!(spec, JobSpec::SetUpVolume(_));
        desk.specs.iter().filter(sets_up).count() - 1
    };
    assert_eq!(failed(&desk), 1);
    let told = r#"FailedMount MountVolume.SetUp failed for volume "v" : no such device"#;
    assert!(desk.events.iter().any(|event| event == told), "{:?}", desk.events);
    desk.pass(limits::VOLUME_RETRY_MIN_MS);
    assert_eq!(failed(&desk), 2);
    // What was there before is what is wanted again: it may have been touched.
    desk.taken.fails = None;
    desk.manifests(&[&with(EMPTY, MOUNT)]);
    desk.pass(10_000);
    let before = failed(&desk);
    assert_eq!(before, 3, "it is brought about once more");
    desk.pass(60_000);
    assert_eq!((failed(&desk), desk.asked_for()), (before, Vec::new()));
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn volumes_that_cannot_be_taken_down_are_tried_again_ever_later_and_told_of() {
    let mut desk = Desk::new();
    let spec = with(EMPTY, MOUNT).replace(r#""volumes""#, r#""restartPolicy":"Never","volumes""#);
    desk.manifests(&[&spec]);
    desk.works();
    desk.taken.fails = Some(|spec| matches!(spec, JobSpec::TearDownVolumes(_)));
    desk.exits("m", 0);
    desk.works();
    let downs = |desk: &Desk| {
        let is_it = |spec: &&JobSpec| matches!(spec, JobSpec::TearDownVolumes(_));
        desk.specs.iter().filter(is_it).count()
    };
    let told = "FailedUnMount UnmountVolume.TearDown failed: no such device";
    assert!(desk.events.iter().any(|event| event == told), "{:?}", desk.events);
    desk.pass(10_000);
    // At 0, 0.5, 1.5, 3.5, 7.5 s.
    assert!((4..=6).contains(&downs(&desk)), "{}", downs(&desk));
    desk.taken.fails = None;
    desk.pass(limits::VOLUME_RETRY_MAX_MS);
    let done = downs(&desk);
    desk.pass(limits::VOLUME_RETRY_MAX_MS);
    assert_eq!(downs(&desk), done, "they are down");
}

#[test]
fn a_pod_that_goes_takes_its_volumes_along_with_its_folder() {
    let mut desk = Desk::new();
    desk.manifests(&[&with(EMPTY, MOUNT)]);
    desk.works();
    desk.manifests(&[]);
    desk.works();
    assert!(!desk.volume_jobs.contains(&format!("tear down {UID}")), "{:?}", desk.volume_jobs);
    let removed = |spec: &JobSpec| matches!(spec, JobSpec::RemovePodDir(_));
    assert!(desk.specs.iter().any(removed));
}

#[test]
fn nothing_of_a_pods_folder_is_removed_while_a_mount_may_still_come() {
    let mut desk = Desk::new();
    (desk.taken.hangs, desk.taken.deaf) = (Some("v"), true);
    desk.manifests(&[&with(EMPTY, MOUNT)]);
    desk.manifests(&[]);
    desk.pass(30_000);
    assert_eq!(desk.volume_jobs, ["set up v", "kill"]);
    let removals = |desk: &Desk| {
        let removes =
            |spec: &&JobSpec| matches!(spec, JobSpec::RemovePodDir(_) | JobSpec::RemoveLogDir(_));
        desk.specs.iter().filter(removes).count()
    };
    assert_eq!((removals(&desk), desk.agent.pods().count()), (0, 1));
    let job = desk.taken.hung.take().expect("it hangs");
    desk.tell(Event::Job(job, Err(JobError::Killed)));
    assert_eq!((removals(&desk), desk.agent.pods().count()), (2, 0));
}

#[test]
fn a_volume_that_its_container_names_and_the_pod_does_not_have_is_told() {
    let mut desk = Desk::new();
    desk.manifests(&[&with("", r#"{"name":"w","mountPath":"/w"}"#)]);
    desk.works();
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    let why = r#"cannot find volume "w" to mount into container "m""#;
    if desk.status()["phase"] != "Failed" {
        assert_eq!(waiting["message"], why, "{}", desk.status());
    }
}

#[test]
fn one_of_two_volumes_that_is_slow_holds_the_pod_and_not_the_other() {
    let mut desk = Desk::new();
    desk.taken.hangs = Some("v");
    let both = format!(r#"{EMPTY},{{"name":"w"}},{{"name":"none"}}"#);
    let mounts = format!(r#"{MOUNT},{{"name":"w","mountPath":"/w"}}"#);
    desk.manifests(&[&with(&both, &mounts)]);
    desk.pass(5_000);
    assert_eq!(desk.volume_jobs, ["set up v", "set up w"]);
    assert_eq!(desk.asked_for(), NOTHING);
    let job = desk.taken.hung.take().expect("it is under way");
    desk.tell(Event::Job(job, Ok(())));
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
}

#[test]
fn an_init_container_may_be_the_only_one_that_mounts_a_volume() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(
        r#""volumes":[{EMPTY}],"containers":[{{"name":"m","image":"i:1"}}],
           "initContainers":[{{"name":"i","image":"i:1","volumeMounts":[{MOUNT}]}}]"#
    ))]);
    assert_eq!(desk.volume_jobs, ["set up v"]);
}

#[test]
fn a_pod_that_mounts_no_volume_has_none_to_take_down() {
    let ends = |volumes: &str, mounts: &str| {
        let mut desk = Desk::new();
        let spec = with(volumes, mounts);
        desk.manifests(&[&spec.replace(r#""volumes""#, r#""restartPolicy":"Never","volumes""#)]);
        desk.works();
        desk.exits("m", 0);
        desk.works();
        desk.pass(2_000);
        assert_eq!(desk.status()["phase"], "Succeeded");
        desk.volume_jobs.iter().any(|job| job.starts_with("tear down"))
    };
    assert!(!ends("", ""));
    assert!(!ends(EMPTY, ""));
    assert!(ends(&format!(r#"{EMPTY},{{"name":"none"}}"#), MOUNT));
}

#[test]
fn a_part_that_is_named_by_a_variable_without_a_value_is_none() {
    let mut desk = Desk::new();
    let mount = r#"{"name":"v","mountPath":"/v","subPathExpr":"$(E)"}"#;
    let env = r#""env":[{"name":"E","value":""}],"#;
    let spec = with(EMPTY, mount).replace(r#""volumeM"#, &format!(r#"{env}"volumeM"#));
    desk.manifests(&[&spec]);
    desk.works();
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "missing value for E");
}

#[test]
fn only_the_volumes_that_are_not_there_are_said_to_be_waited_for() {
    let mut desk = Desk::new();
    desk.bad_volume = Some("v");
    let mounts = format!(r#"{MOUNT},{{"name":"w","mountPath":"/w"}}"#);
    desk.manifests(&[&with(&format!(r#"{EMPTY},{{"name":"w"}}"#), &mounts)]);
    desk.pass(limits::VOLUME_WAIT_MS);
    let told = |desk: &Desk, what: &str| desk.events.iter().filter(|it| it.contains(what)).count();
    assert_eq!(told(&desk, "unmounted volumes=[v], "), 1, "{:?}", desk.events);
    desk.bad_volume = None;
    desk.pass(limits::VOLUME_RETRY_MAX_MS);
    desk.works();
    assert_eq!(desk.running(), ["m"]);
    desk.pass(2 * limits::VOLUME_WAIT_MS);
    assert_eq!(told(&desk, "unmounted volumes=[]"), 0);
}

#[test]
fn a_volume_that_healed_is_tried_again_as_soon_as_the_first_time() {
    let fails: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::SetUpVolume(_));
    let tries = |desk: &Desk| desk.specs.iter().filter(|spec| fails(spec)).count();
    let path = |at: &str| with(&format!(r#"{{"name":"v","hostPath":{{"path":"/{at}"}}}}"#), MOUNT);
    let mut desk = Desk::new();
    desk.taken.fails = Some(fails);
    desk.manifests(&[&path("a")]);
    desk.pass(4_000);
    desk.taken.fails = None;
    desk.pass(20_000);
    desk.works();
    assert_eq!(desk.running(), ["m"]);
    desk.taken.fails = Some(fails);
    desk.manifests(&[&path("b")]);
    let before = tries(&desk);
    desk.pass(limits::VOLUME_RETRY_MIN_MS);
    assert_eq!(tries(&desk), before + 1);
}
