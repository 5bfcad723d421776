//! Volumes: set up before the first container, kept for the next one, removed after the last.

use edged::agent::event::Event;
use edged::limits::VOLUME_JOBS_MAX;
use edged::model::cri::{Propagation, Request};
use edged::model::job::{JobReply, JobSpec};

use super::harness::{Harness, UID, pod};

/// One main container with these mounts of these volumes.
pub fn with(volumes: &str, mounts: &str) -> String {
    pod(&format!(
        r#""volumes":[{volumes}],
           "containers":[{{"name":"m","image":"i:1","volumeMounts":[{mounts}]}}]"#
    ))
}

const EMPTY: &str = r#"{"name":"v"}"#;
pub const MOUNT: &str = r#"{"name":"v","mountPath":"/v"}"#;
pub fn start(harness: &mut Harness) {
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
}

#[test]
fn a_pod_may_have_more_volumes_than_anybody_counted_on() {
    // As many as one pod may have; to compare each with all others at each step would take minutes.
    let volumes: Vec<_> =
        (0..1300).map(|n| format!(r#"{{"name":"v{n}","emptyDir":{{}}}}"#)).collect();
    let mounts: Vec<_> =
        (0..1300).map(|n| format!(r#"{{"name":"v{n}","mountPath":"/v/{n}"}}"#)).collect();
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(
        r#""volumes":[{}],"containers":[{{"name":"m","image":"i:1","volumeMounts":[{}]}}]"#,
        volumes.join(","),
        mounts.join(",")
    ))]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
}

#[test]
fn so_many_volumes_of_a_pod_are_brought_about_at_once() {
    let list =
        |one: fn(usize) -> String| (0..=VOLUME_JOBS_MAX).map(one).collect::<Vec<_>>().join(",");
    let volumes = list(|n| format!(r#"{{"name":"v{n}","emptyDir":{{}}}}"#));
    let mounts = list(|n| format!(r#"{{"name":"v{n}","mountPath":"/v/{n}"}}"#));
    let mut harness = Harness::new();
    harness.taken.holds = true;
    harness.manifests(&[&with(&volumes, &mounts)]);
    harness.pass(10_000);
    assert_eq!(harness.volume_jobs.len(), VOLUME_JOBS_MAX);
    let first = harness.taken.held.remove(0);
    harness.deliver(Event::Job(first, Ok(JobReply::Done)));
    assert_eq!(harness.volume_jobs.len(), VOLUME_JOBS_MAX + 1, "the last has its turn");
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the pod waits for all of them");
    for job in std::mem::take(&mut harness.taken.held) {
        harness.deliver(Event::Job(job, Ok(JobReply::Done)));
    }
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn volumes_are_there_before_the_sandbox_and_go_after_the_last_container() {
    let mut harness = Harness::new();
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    assert_eq!(harness.volume_jobs, ["set up v"]);
    start(&mut harness);
    harness.pass(60_000);
    assert_eq!(harness.volume_jobs, ["set up v"], "once");
    harness.exits("m", 0);
    assert_eq!(harness.volume_jobs, ["set up v"], "a restart leaves them");
}

#[test]
fn a_pod_that_has_ended_and_is_kept_keeps_no_volumes() {
    let mut harness = Harness::new();
    let spec = with(EMPTY, MOUNT).replace(r#""volumes""#, r#""restartPolicy":"Never","volumes""#);
    harness.manifests(&[&spec]);
    start(&mut harness);
    harness.exits("m", 0);
    harness.does("container_status c2");
    assert_eq!(harness.volume_jobs, ["set up v"], "the sandbox is up still");
    harness.does("stop_podsandbox s1");
    assert_eq!(harness.volume_jobs, ["set up v", &*format!("tear down {UID}")]);
    assert_eq!(harness.status()["phase"], "Succeeded");
}

#[test]
fn volumes_that_no_container_mounts_are_left_alone() {
    let mut harness = Harness::new();
    harness.manifests(&[&with(EMPTY, "")]);
    assert_eq!(harness.volume_jobs, [] as [&str; 0]);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn a_volume_that_fails_is_tried_again_with_growing_waits_and_heals() {
    let mut harness = Harness::new();
    harness.bad_volume = Some("v");
    harness.manifests(&[&with(EMPTY, MOUNT)]);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "no sandbox");
    let found = r#"FailedMount MountVolume.SetUp failed for volume "v" : no such device"#;
    assert_eq!(harness.events, [found]);
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"]["reason"];
    assert_eq!(waiting, "ContainerCreating");
    harness.pass(10_000);
    // At 0, 0.5, 1.5, 3.5, 7.5 s.
    assert_eq!(harness.volume_jobs.len(), 5, "{:?}", harness.volume_jobs);
    harness.pass(120_000);
    let event = "FailedMount Unable to attach or mount volumes: unmounted volumes=[v], unattached \
                volumes=[], failed to process volumes=[]: context deadline exceeded";
    assert!(harness.events.iter().any(|it| it == event), "{:?}", harness.events);
    harness.bad_volume = None;
    harness.pass(130_000);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn a_mount_that_hangs_does_not_keep_a_pod_from_going() {
    let mut harness = Harness::new();
    harness.taken.hangs = Some("v");
    let hanging = with(EMPTY, MOUNT);
    harness.manifests(&[&hanging]);
    harness.pass(20_000);
    assert_eq!(harness.volume_jobs, ["set up v"], "it is under way, and wanted");
    assert!(harness.taken.hung.is_some());
    let before = harness.now.boot;
    harness.manifests(&[]);
    assert_eq!(harness.volume_jobs, ["set up v", "kill"]);
    let removed = harness.specs.iter().any(|spec| matches!(spec, JobSpec::RemovePodDir(_)));
    assert!(removed, "{:?}", harness.specs);
    assert_eq!(harness.agent.pods().count(), 0);
    assert!(harness.now.boot.since_ms(before) < 5_000, "at once, not at the job's deadline");
    assert!(!harness.events.iter().any(|it| it.starts_with("FailedMount")), "{:?}", harness.events);
    // A returning pod starts again.
    harness.taken.hangs = None;
    harness.manifests(&[&hanging]);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn containers_see_volumes_where_and_as_they_ask() {
    let mut harness = Harness::new();
    let volumes = r#"{"name":"v"},{"name":"h","hostPath":{"path":"/srv"}}"#;
    let mounts = r#"{"name":"v","mountPath":"v","readOnly":true},
        {"name":"h","mountPath":"/h","mountPropagation":"HostToContainer"},
        {"name":"v","mountPath":"/part","subPath":"a/b"}"#;
    harness.manifests(&[&with(volumes, mounts)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(harness.volume_jobs, ["set up h", "set up v", "bind v"]);
    let (_, request) = harness.take("create_container m#0");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    let root = format!("/var/lib/kubelet/pods/{UID}");
    let reported: Vec<_> = config
        .mounts
        .iter()
        .take(3)
        .map(|it| (&*it.container_path, &*it.host_path, it.readonly, it.propagation))
        .collect();
    let volume = format!("{root}/volumes/kubernetes.io~empty-dir/v");
    let part = format!("{root}/volume-subpaths/v/m/2");
    assert_eq!(
        reported,
        [
            ("/v", &*volume, true, Propagation::Private),
            ("/h", "/srv", false, Propagation::HostToContainer),
            ("/part", &*part, false, Propagation::Private),
        ]
    );
}

#[test]
fn a_part_of_a_volume_that_cannot_be_had_keeps_its_container_waiting() {
    for (mount, why) in [
        (r#"{"name":"v","mountPath":"/v","subPathExpr":"$(NO)"}"#, "missing value for NO"),
        (
            r#"{"name":"v","mountPath":"/v","subPathExpr":"$(ABS)"}"#,
            "error SubPath `/a` must not be an absolute path",
        ),
        (
            r#"{"name":"v","mountPath":"/v","subPathExpr":"$(BACK)"}"#,
            "unable to provision SubPath `a/../b`: must not contain '..'",
        ),
    ] {
        let mut harness = Harness::new();
        let env = r#""env":[{"name":"ABS","value":"/a"},{"name":"BACK","value":"a/../b"}],"#;
        let spec = with(EMPTY, mount).replace(r#""volumeM"#, &format!(r#"{env}"volumeM"#));
        harness.manifests(&[&spec]);
        harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
        let waiting = harness.status()["containerStatuses"][0]["state"]["waiting"].clone();
        assert_eq!(waiting["reason"], "CreateContainerConfigError", "{mount}");
        assert_eq!(waiting["message"], why);
        assert!(harness.events.contains(&format!("Failed Error: {why}")), "{:?}", harness.events);
    }
}
