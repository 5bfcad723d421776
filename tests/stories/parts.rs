//! Volumes and their parts: retries, waiting, and events.

use edged::agent::event::Event;
use edged::limits;
use edged::model::job::{JobError, JobReply, JobSpec};

use crate::harness::{Harness, UID, pod};
use crate::volumes::{MOUNT, with};

const NOTHING: [&str; 0] = [];
const EMPTY: &str = r#"{"name":"v"}"#;
const PARTS: &str = r#"{"name":"v","mountPath":"/a","subPath":"a"},
    {"name":"v","mountPath":"/b"},{"name":"v","mountPath":"/c","subPath":"c"}"#;

/// Paths of the parts of volumes that were to be mounted separately.
fn bound(harness: &Harness) -> Vec<(u32, &str)> {
    let parts = harness.specs.iter().filter_map(|spec| match spec {
        JobSpec::BindSubPath(part) => Some((part.index, &*part.path)),
        _ => None,
    });
    parts.collect()
}

#[test]
fn the_parts_that_a_container_sees_are_mounted_once_for_each_of_its_instances() {
    let mut harness = Harness::new();
    harness.manifests(&[&with(EMPTY, PARTS)]);
    harness.works();
    assert_eq!(bound(&harness), [(0, "a"), (2, "c")]);
    harness.exits("m", 1);
    harness.works();
    assert_eq!(harness.running(), ["m"]);
    assert_eq!(bound(&harness), [(0, "a"), (2, "c"), (0, "a"), (2, "c")]);
}

#[test]
fn a_part_that_cannot_be_mounted_keeps_its_container_waiting_and_is_tried_again() {
    let mut harness = Harness::new();
    harness.taken.fails =
        Some(|spec| matches!(spec, JobSpec::BindSubPath(part) if &*part.path == "c"));
    harness.manifests(&[&with(EMPTY, PARTS)]);
    harness.works();
    let why = "failed to prepare subPath for volumeMount \"v\" of container \"m\"";
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(waiting["message"], why);
    assert!(harness.events.contains(&format!("Failed Error: {why}")), "{:?}", harness.events);
    let before = bound(&harness).len();
    harness.pass(limits::RETRY_MS - 500);
    assert_eq!(bound(&harness).len(), before, "there is a pause");
    harness.taken.fails = None;
    harness.pass(500);
    harness.works();
    assert_eq!(harness.running(), ["m"]);
    assert_eq!(bound(&harness)[before..], [(2, "c")], "the other is there");
}

#[test]
fn a_volume_that_fails_while_its_pod_runs_is_tried_again_and_the_pod_runs_on() {
    let mut harness = Harness::new();
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    harness.works();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::SetUpVolume(_)));
    let other = with(r#"{"name":"v","hostPath":{"path":"/srv"}}"#, MOUNT);
    harness.manifests(&[&other]);
    let failed = |harness: &Harness| {
        let sets_up = |spec: &&JobSpec| matches!(spec, JobSpec::SetUpVolume(_));
        harness.specs.iter().filter(sets_up).count() - 1
    };
    assert_eq!(failed(&harness), 1);
    let reported = r#"FailedMount MountVolume.SetUp failed for volume "v" : no such device"#;
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    harness.pass(limits::VOLUME_RETRY_MIN_MS);
    assert_eq!(failed(&harness), 2);
    // The former content is desired again: it may have been changed.
    harness.taken.fails = None;
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    harness.pass(10_000);
    let before = failed(&harness);
    assert_eq!(before, 3, "it is brought about once more");
    harness.pass(60_000);
    assert_eq!((failed(&harness), harness.open_calls()), (before, Vec::new()));
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn volumes_that_cannot_be_taken_down_are_tried_again_ever_later_and_told_of() {
    let mut harness = Harness::new();
    let spec = with(EMPTY, MOUNT).replace(r#""volumes""#, r#""restartPolicy":"Never","volumes""#);
    harness.manifests(&[&spec]);
    harness.works();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::TearDownVolumes(_)));
    harness.exits("m", 0);
    harness.works();
    let downs = |harness: &Harness| {
        let is_it = |spec: &&JobSpec| matches!(spec, JobSpec::TearDownVolumes(_));
        harness.specs.iter().filter(is_it).count()
    };
    let reported = "FailedUnMount UnmountVolume.TearDown failed: no such device";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    harness.pass(10_000);
    // At 0, 0.5, 1.5, 3.5, 7.5 s.
    assert!((4..=6).contains(&downs(&harness)), "{}", downs(&harness));
    harness.taken.fails = None;
    harness.pass(limits::VOLUME_RETRY_MAX_MS);
    let done = downs(&harness);
    harness.pass(limits::VOLUME_RETRY_MAX_MS);
    assert_eq!(downs(&harness), done, "they are down");
}

#[test]
fn a_pod_that_goes_takes_its_volumes_along_with_its_folder() {
    let mut harness = Harness::new();
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    harness.works();
    harness.manifests(&[]);
    harness.works();
    assert!(
        !harness.volume_jobs.contains(&format!("tear down {UID}")),
        "{:?}",
        harness.volume_jobs
    );
    let removed = |spec: &JobSpec| matches!(spec, JobSpec::RemovePodDir(_));
    assert!(harness.specs.iter().any(removed));
}

#[test]
fn nothing_of_a_pods_folder_is_removed_while_a_mount_may_still_come() {
    let mut harness = Harness::new();
    (harness.taken.hangs, harness.taken.deaf) = (Some("v"), true);
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    harness.manifests(&[]);
    harness.pass(30_000);
    assert_eq!(harness.volume_jobs, ["set up v", "kill"]);
    let removals = |harness: &Harness| {
        let removes =
            |spec: &&JobSpec| matches!(spec, JobSpec::RemovePodDir(_) | JobSpec::RemoveLogDir(_));
        harness.specs.iter().filter(removes).count()
    };
    assert_eq!((removals(&harness), harness.agent.pods().count()), (0, 1));
    let job = harness.taken.hung.take().expect("it hangs");
    harness.deliver(Event::Job(job, Err(JobError::Killed)));
    assert_eq!((removals(&harness), harness.agent.pods().count()), (2, 0));
}

#[test]
fn a_volume_that_its_container_names_and_the_pod_does_not_have_is_told() {
    let mut harness = Harness::new();
    harness.manifests(&[&with("", r#"{"name":"w","mountPath":"/w"}"#)]);
    harness.works();
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    let why = r#"cannot find volume "w" to mount into container "m""#;
    if harness.status()["phase"] != "Failed" {
        assert_eq!(waiting["message"], why, "{}", harness.status());
    }
}

#[test]
fn one_of_two_volumes_that_is_slow_holds_the_pod_and_not_the_other() {
    let mut harness = Harness::new();
    harness.taken.hangs = Some("v");
    let both = format!(r#"{EMPTY},{{"name":"w"}},{{"name":"none"}}"#);
    let mounts = format!(r#"{MOUNT},{{"name":"w","mountPath":"/w"}}"#);
    harness.manifests(&[&with(&both, &mounts)]);
    harness.pass(5_000);
    assert_eq!(harness.volume_jobs, ["set up v", "set up w"]);
    assert_eq!(harness.open_calls(), NOTHING);
    let job = harness.taken.hung.take().expect("it is under way");
    harness.deliver(Event::Job(job, Ok(JobReply::Done)));
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn an_init_container_may_be_the_only_one_that_mounts_a_volume() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(
        r#""volumes":[{EMPTY}],"containers":[{{"name":"m","image":"i:1"}}],
           "initContainers":[{{"name":"i","image":"i:1","volumeMounts":[{MOUNT}]}}]"#
    ))]);
    assert_eq!(harness.volume_jobs, ["set up v"]);
}

#[test]
fn a_pod_that_mounts_no_volume_has_none_to_take_down() {
    let ends = |volumes: &str, mounts: &str| {
        let mut harness = Harness::new();
        let spec = with(volumes, mounts);
        harness.manifests(&[&spec.replace(r#""volumes""#, r#""restartPolicy":"Never","volumes""#)]);
        harness.works();
        harness.exits("m", 0);
        harness.works();
        harness.pass(2_000);
        assert_eq!(harness.status()["phase"], "Succeeded");
        harness.volume_jobs.iter().any(|job| job.starts_with("tear down"))
    };
    assert!(!ends("", ""));
    assert!(!ends(EMPTY, ""));
    assert!(ends(&format!(r#"{EMPTY},{{"name":"none"}}"#), MOUNT));
}

#[test]
fn a_part_that_is_named_by_a_variable_without_a_value_is_none() {
    let mut harness = Harness::new();
    let mount = r#"{"name":"v","mountPath":"/v","subPathExpr":"$(E)"}"#;
    let env = r#""env":[{"name":"E","value":""}],"#;
    let spec = with(EMPTY, mount).replace(r#""volumeM"#, &format!(r#"{env}"volumeM"#));
    harness.manifests(&[&spec]);
    harness.works();
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "missing value for E");
}

#[test]
fn only_the_volumes_that_are_not_there_are_said_to_be_waited_for() {
    let mut harness = Harness::new();
    harness.bad_volume = Some("v");
    let mounts = format!(r#"{MOUNT},{{"name":"w","mountPath":"/w"}}"#);
    harness.manifests(&[&with(&format!(r#"{EMPTY},{{"name":"w"}}"#), &mounts)]);
    harness.pass(limits::VOLUME_WAIT_MS);
    let reported = |harness: &Harness, what: &str| {
        harness.events.iter().filter(|it| it.contains(what)).count()
    };
    assert_eq!(reported(&harness, "unmounted volumes=[v], "), 1, "{:?}", harness.events);
    harness.bad_volume = None;
    harness.pass(limits::VOLUME_RETRY_MAX_MS);
    harness.works();
    assert_eq!(harness.running(), ["m"]);
    harness.pass(2 * limits::VOLUME_WAIT_MS);
    assert_eq!(reported(&harness, "unmounted volumes=[]"), 0);
}

#[test]
fn a_volume_that_healed_is_tried_again_as_soon_as_the_first_time() {
    let fails: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::SetUpVolume(_));
    let tries = |harness: &Harness| harness.specs.iter().filter(|spec| fails(spec)).count();
    let path = |at: &str| with(&format!(r#"{{"name":"v","hostPath":{{"path":"/{at}"}}}}"#), MOUNT);
    let mut harness = Harness::new();
    harness.taken.fails = Some(fails);
    harness.manifests(&[&path("a")]);
    harness.pass(4_000);
    harness.taken.fails = None;
    harness.pass(20_000);
    harness.works();
    assert_eq!(harness.running(), ["m"]);
    harness.taken.fails = Some(fails);
    harness.manifests(&[&path("b")]);
    let before = tries(&harness);
    harness.pass(limits::VOLUME_RETRY_MIN_MS);
    assert_eq!(tries(&harness), before + 1);
}
