//! A pod's own cgroup: its name, its values, and when it comes and goes.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cgroup::{Cgroups, Hierarchy, PodCgroup, QosCgroups};
use edged::model::cri::CgroupDriver;
use edged::model::housekeeping::Reserved;
use edged::model::job::{JobReply, JobSpec};
use edged::model::status::QosClass;

use crate::harness::{Harness, MAIN, START, UID, pod};
use crate::made::{made_on, sandbox_of};
use crate::node::CGROUP;

/// On a machine with cgroups of this version.
fn harness(hierarchy: Hierarchy) -> Harness {
    Harness::with(|config| {
        let huge_pages = vec![2 << 20];
        config.machine.cgroups = Cgroups { hierarchy, swap: true, huge_pages };
    })
}

fn cgroup_of(harness: &Harness) -> Option<&PodCgroup> {
    harness.specs.iter().find_map(|spec| match spec {
        JobSpec::MakePodCgroup(wanted) => Some(&**wanted),
        _ => None,
    })
}

fn removals(harness: &Harness) -> usize {
    let removal = JobSpec::RemovePodCgroup(UID.into());
    harness.specs.iter().filter(|spec| **spec == removal).count()
}

const LIMITED: &str = r#""containers":[{"name":"m","image":"i:1","resources":{
    "limits":{"cpu":"500m","memory":"64Mi","hugepages-2Mi":"4Mi"},"requests":{"cpu":"250m"}}}]"#;

#[test]
fn a_pods_cgroup_is_there_before_its_sandbox_and_holds_its_values() {
    let mut harness = harness(Hierarchy::V1);
    let (sandbox, container) = made_on(&mut harness, LIMITED);
    assert_eq!(sandbox.cgroup_parent, format!("/kubepods/burstable/pod{UID}"));
    let made = cgroup_of(&harness).expect("it is made");
    assert_eq!((&*made.uid, made.class), (UID, QosClass::Burstable));
    assert_eq!((made.values.cpu_shares, made.values.cpu_quota), (256, Some(50_000)));
    assert_eq!(made.values.memory, Some(64 << 20));
    assert_eq!(made.values.huge_pages, [("2MB".into(), 4 << 20)]);
    assert_eq!(container.resources.memory_swap_limit, 64 << 20);
    assert_eq!(container.resources.hugepages, [("2MB".to_owned(), 4 << 20)]);
    assert!(container.resources.unified.is_empty());
}

#[test]
fn version_2_says_what_it_has_files_for() {
    let (_, container) = made_on(&mut harness(Hierarchy::V2), LIMITED);
    let files: Vec<_> = container.resources.unified.into_iter().collect();
    let want = [("memory.oom.group", "1"), ("memory.swap.max", "0")];
    assert_eq!(files, want.map(|(file, value)| (file.to_owned(), value.to_owned())));
    assert_eq!(container.resources.memory_swap_limit, 0);
}

#[test]
fn a_runtime_that_makes_slices_is_told_their_names_and_nothing_else_is_done() {
    let mut harness = Harness::booted_with(CgroupDriver::Systemd, |config| {
        config.machine.cgroups.hierarchy = Hierarchy::V2;
    });
    let (sandbox, _) = made_on(&mut harness, MAIN);
    let want =
        format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID}.slice");
    assert_eq!(sandbox.cgroup_parent, want);
    assert!(cgroup_of(&harness).is_none(), "{:?}", harness.specs);
    assert!(
        harness.log.iter().any(|line| line.contains("cgroup driver is systemd")),
        "{:?}",
        harness.log
    );
}

#[test]
fn the_runtimes_word_on_the_driver_stands_over_the_settings() {
    for (reported, settings, slices) in [
        (Some(CgroupDriver::Cgroupfs), CgroupDriver::Systemd, false),
        (Some(CgroupDriver::Systemd), CgroupDriver::Cgroupfs, true),
        (None, CgroupDriver::Systemd, true),
        (None, CgroupDriver::Cgroupfs, false),
    ] {
        let mut harness = Harness::booted_with(reported, |config| {
            config.machine.cgroups.hierarchy = Hierarchy::V1;
            config.settings.cgroups.driver = settings;
        });
        let (sandbox, _) = made_on(&mut harness, MAIN);
        let is_slice = sandbox.cgroup_parent.contains("kubepods.slice");
        assert_eq!(is_slice, slices, "{reported:?} {settings:?} {}", sandbox.cgroup_parent);
    }
}

#[test]
fn where_there_is_none_the_runtime_chooses() {
    for (hierarchy, per_qos) in [(Hierarchy::None, true), (Hierarchy::V1, false)] {
        let mut harness = Harness::with(|config| {
            config.machine.cgroups.hierarchy = hierarchy;
            config.settings.cgroups.per_qos = per_qos;
        });
        let (sandbox, _) = made_on(&mut harness, MAIN);
        assert_eq!(sandbox.cgroup_parent, "");
        assert!(cgroup_of(&harness).is_none());
        let found = harness.log.iter().any(|line| line.contains("no cgroups at /sys/fs/cgroup"));
        assert_eq!(found, per_qos, "{:?}", harness.log);
    }
}

#[test]
fn a_cgroup_that_cannot_be_made_keeps_the_pod_waiting_and_is_tried_again() {
    let mut harness = harness(Hierarchy::V1);
    harness.bad_cgroups = true;
    harness.manifests(&[&pod(MAIN)]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let event = "FailedToCreatePodContainer unable to ensure pod container exists: no such device";
    assert!(harness.events.contains(&event.to_owned()), "{:?}", harness.events);
    harness.bad_cgroups = false;
    harness.pass(10_000);
    sandbox_of(&mut harness);
}

#[test]
fn one_that_is_still_being_made_goes_when_it_is_there() {
    let mut harness = harness(Hierarchy::V1);
    harness.taken.hangs = Some(CGROUP);
    harness.manifests(&[&pod(MAIN)]);
    let making = harness.taken.hung.take().expect("it is being made");
    harness.manifests(&[]);
    harness.pass(5_000);
    assert_eq!(removals(&harness), 0, "it would come after that, and stay: {:?}", harness.specs);
    harness.deliver(Event::Job(making, Ok(JobReply::Done)));
    harness.pass(1_000);
    assert_eq!(removals(&harness), 1, "{:?}", harness.specs);
}

#[test]
fn it_goes_after_the_last_container_whether_the_pod_is_kept_or_not() {
    let mut stored = harness(Hierarchy::V1);
    stored.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    stored.does_all(START);
    assert_eq!(removals(&stored), 0);
    stored.exits("m", 0);
    stored.does_all(&["container_status c2", "stop_podsandbox s1"]);
    assert_eq!(removals(&stored), 1, "{:?}", stored.specs);
    assert_eq!(stored.status()["phase"], "Succeeded");
    let mut gone = harness(Hierarchy::V1);
    gone.manifests(&[&pod(MAIN)]);
    gone.does_all(START);
    gone.manifests(&[]);
    gone.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    assert_eq!(removals(&gone), 1, "{:?}", gone.specs);
}

#[test]
fn what_the_pod_asks_for_as_a_whole_is_kept_or_refused() {
    let spec = format!(r#""resources":{{"limits":{{"memory":"64Mi"}}}},{MAIN}"#);
    let mut with = harness(Hierarchy::V1);
    let (sandbox, container) = made_on(&mut with, &spec);
    assert_eq!(cgroup_of(&with).expect("it is made").values.memory, Some(64 << 20));
    assert_eq!((sandbox.resources.memory_limit, container.resources.memory_limit), (64 << 20, 0));
    let mut without = Harness::new();
    without.manifests(&[&pod(&spec)]);
    let status = without.status();
    assert_eq!(status["reason"], "UnsupportedFeature");
    let message = status["message"].as_str().expect("a text");
    assert!(message.starts_with("Pod was rejected: spec.resources: this node has no"), "{message}");
}

#[test]
fn the_classes_get_what_their_pods_ask_for() {
    let qos = |harness: &Harness| -> Vec<QosCgroups> {
        let of = |spec: &JobSpec| match spec {
            JobSpec::SetQosCgroups(wanted) => Some((**wanted).clone()),
            _ => None,
        };
        harness.node_jobs.iter().filter_map(of).collect()
    };
    let mut harness = harness(Hierarchy::V1);
    let first = qos(&harness);
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].all.cpu_shares, first[0].all.memory), (2_048, Some(1 << 30)));
    assert_eq!(first[0].burstable_shares, 2);
    harness.manifests(&[&pod(LIMITED)]);
    harness.does("run_podsandbox #0");
    assert_eq!(qos(&harness).last().map(|last| last.burstable_shares), Some(256));
    harness.pass(200_000);
    assert_eq!(qos(&harness).len(), 2, "what is done is not done again");
}

#[test]
fn what_the_classes_could_not_be_given_is_tried_again_with_the_next_look() {
    let mut harness = harness(Hierarchy::V1);
    let set = |spec: &JobSpec| matches!(spec, JobSpec::SetQosCgroups(_));
    let requested = |harness: &Harness| harness.node_jobs.iter().filter(|spec| set(spec)).count();
    harness.bad_cgroups = true;
    harness.manifests(&[&pod(LIMITED)]);
    let before = requested(&harness);
    let reported = |harness: &Harness| {
        let why = |line: &&String| line.starts_with("cannot set the cgroups of the QoS classes: ");
        harness.log.iter().filter(why).count()
    };
    assert_eq!(reported(&harness), 1);
    harness.pass(
        limits::QOS_CGROUPS_MS - limits::HOUSEKEEPING_EARLY_MS - limits::RELIST_GAP_MAX_MS - 1,
    );
    assert_eq!(requested(&harness), before);
    harness.pass(limits::HOUSEKEEPING_EARLY_MS + limits::HOUSEKEEPING_LATE_MS);
    assert_eq!(requested(&harness), before + 1);
    harness.pass(limits::QOS_CGROUPS_MS);
    assert_eq!(requested(&harness), before + 2);
    assert_eq!(reported(&harness), 1, "the same is logged once");
}

#[test]
fn all_pods_together_are_held_to_what_is_not_reserved() {
    let mut harness = Harness::with(|config| {
        config.machine.cgroups = Cgroups { hierarchy: Hierarchy::V2, ..Cgroups::default() };
        config.machine.pids_max = 32_768;
        config.housekeeping.system_reserved =
            Reserved { cpu_milli: 500, memory_bytes: 128 << 20, ..Reserved::default() };
        config.housekeeping.kube_reserved = Reserved { pids: 768, ..Reserved::default() };
    });
    harness.manifests(&[]);
    let set = harness.node_jobs.iter().find_map(|spec| match spec {
        JobSpec::SetQosCgroups(wanted) => Some(&wanted.all),
        _ => None,
    });
    let all = set.expect("they are set");
    assert_eq!((all.memory, all.pids), (Some((1 << 30) - (128 << 20)), Some(32_000)));
    assert_eq!(all.cpu_shares, 1_536);
}

#[test]
fn an_idle_cgroup_of_a_pod_that_nobody_knows_goes_once_all_is_known() {
    let swept = |harness: &Harness| {
        let of_stray = JobSpec::RemovePodCgroup("stray".into());
        harness.specs.iter().filter(|spec| **spec == of_stray).count()
    };
    let mut harness = harness(Hierarchy::V2);
    // Of a pod that has no more than its cgroup, and of one that runs.
    harness.taken.idle_cgroups = vec!["stray", UID];
    harness.pass(2 * limits::GARBAGE_MS);
    assert_eq!(swept(&harness), 0, "no source has delivered");
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.pass(2 * limits::GARBAGE_MS);
    assert!(swept(&harness) > 0, "{:?}", harness.specs);
    assert_eq!(removals(&harness), 0, "it is known");
    assert_eq!(harness.running(), ["m"]);

    let driver = CgroupDriver::Systemd;
    let mut harness = Harness::booted_with(driver, |config| {
        config.machine.cgroups = Cgroups { hierarchy: Hierarchy::V2, ..Cgroups::default() };
    });
    harness.taken.idle_cgroups = vec!["stray"];
    harness.manifests(&[]);
    harness.pass(3 * limits::GARBAGE_MS);
    assert_eq!(swept(&harness), 0, "slices are systemd's");
}

#[test]
fn a_pod_that_asks_for_more_huge_pages_than_any_quantity_is_refused_and_no_more() {
    let one = LIMITED.replace(r#":"4Mi""#, r#":"5Pi""#);
    let (before, list) = one.split_once('[').expect("a list");
    let other = list.trim_end_matches(']').replace(r#""m""#, r#""n""#);
    let mut harness = harness(Hierarchy::V2);
    harness.manifests(&[&pod(&format!("{before}[{other},{list}"))]);
    harness.pass(60_000);
    assert_eq!(harness.status()["reason"], "OutOfhugepages-2Mi");
}
