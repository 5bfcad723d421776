//! Pods whose containers have disk limits.

use edged::limits;
use edged::model::housekeeping::{Amount, ContainerUsage, Room};

use crate::eviction::{CYCLE_MS, memory, named, status};
use crate::harness::{Harness, START};

const MI: u64 = 1 << 20;

/// `a` has two containers with limits of this and of 8 MiB, and a volume without a limit; `b` has
/// no limits. Both run.
fn limited(of_m: &str, thresholds: bool) -> Harness {
    let of = |name: &str, limit: &str| {
        format!(
            r#"{{"name":"{name}","image":"i:1",
                "resources":{{"limits":{{"ephemeral-storage":"{limit}"}}}},
                "volumeMounts":[{{"name":"w","mountPath":"/w"}}]}}"#
        )
    };
    let volume = r#""volumes":[{"name":"w","emptyDir":{}}]"#;
    let spec = format!("{volume},\"containers\":[{},{}]", of("m", of_m), of("n", "8Mi"));
    let free = r#""volumes":[{"name":"x","emptyDir":{}}],"containers":[{"name":"f",
        "image":"i:1","volumeMounts":[{"name":"x","mountPath":"/x"}]}]"#;
    let mut harness = Harness::with(|config| {
        if !thresholds {
            config.housekeeping.eviction.hard.clear();
        }
    });
    harness.machine.memory = Some(memory(500));
    harness.manifests(&[&named("a", "", &spec), &named("b", "", free)]);
    harness.works();
    assert_eq!(harness.running().len(), 3);
    harness
}

/// The containers of `a` wrote this over their images, and its folders contain this.
fn takes(harness: &mut Harness, (m, n): (u64, u64), folders: &[(&'static str, u64)]) {
    let of = |name: &str, bytes| ContainerUsage {
        uid: "a".into(),
        name: name.into(),
        memory: Some(1),
        disk: Some(bytes),
        inodes: Some(1),
        ..ContainerUsage::default()
    };
    harness.taken.containers = vec![of("m", m), of("n", n)];
    harness.taken.folders = folders.to_vec();
}

/// The disk of the node's files and that of images.
fn disks(harness: &mut Harness, devices: (u64, u64)) {
    let room = |device| {
        let bytes = Amount { capacity: 1_000, available: 900 };
        Some(Room { bytes, device, ..Room::default() })
    };
    harness.machine.node_fs = room(devices.0);
    harness.machine.image_fs = room(devices.1);
}

const OF_M: &str = "Container m exceeded its local ephemeral storage limit \"1Mi\". ";
const OF_ALL: &str =
    "Pod ephemeral local storage usage exceeds the total limit of containers 9Mi. ";

#[test]
fn what_a_container_may_take_of_the_disk_counts_its_layer_and_its_logs() {
    for thresholds in [true, false] {
        for (taken, folders, devices, gone) in [
            ((MI, 0), &[][..], (1, 1), None),
            ((MI + 1, 0), &[], (1, 1), Some(OF_M)),
            ((MI - 9, 0), &[("m", 9)], (1, 1), None),
            ((MI - 9, 0), &[("m", 10)], (1, 1), Some(OF_M)),
            ((0, 8 * MI), &[("m", MI)], (1, 1), None),
            // Layers are with the images, if those have a separate disk.
            ((2 * MI, 0), &[], (1, 2), None),
            ((2 * MI, 0), &[("m", MI + 1)], (1, 2), Some(OF_M)),
            // The whole pod's usage, with its volumes.
            ((MI, 7 * MI), &[("w", MI)], (1, 1), None),
            ((MI, 7 * MI), &[("w", MI + 1)], (1, 1), Some(OF_ALL)),
        ] {
            let case = format!("{taken:?} {folders:?} {devices:?} {thresholds}");
            let mut harness = limited("1Mi", thresholds);
            disks(&mut harness, devices);
            takes(&mut harness, taken, folders);
            harness.pass(limits::EVICTION_LIMITS_MS + CYCLE_MS);
            harness.works();
            let reported = status(&harness, "a");
            let message = gone.map(serde_json::Value::from).unwrap_or_default();
            assert_eq!(reported.get("message").cloned().unwrap_or_default(), message, "{case}");
            assert_eq!(status(&harness, "b")["phase"], "Running", "{case}");
            let walked = harness.taken.walked.borrow();
            for folder in ["Volume w", "Logs m", "Logs n"] {
                assert!(walked.iter().any(|it| it == folder), "{case}: {walked:?}");
            }
            assert!(!walked.iter().any(|it| it.ends_with('x') || it.ends_with('f')), "{case}");
        }
    }
}

#[test]
fn a_bound_of_nothing_is_none() {
    let mut harness = limited("0", true);
    disks(&mut harness, (1, 1));
    takes(&mut harness, (MI, 0), &[]);
    harness.pass(2 * limits::EVICTION_LIMITS_MS);
    assert!(harness.agent.metrics().evictions.is_empty(), "{:?}", harness.events);
}

#[test]
fn pods_that_pass_their_bounds_are_counted_by_what_they_passed() {
    let mut harness = limited("1Mi", true);
    disks(&mut harness, (1, 1));
    takes(&mut harness, (MI + 1, 0), &[]);
    harness.pass(limits::EVICTION_LIMITS_MS + CYCLE_MS);
    assert_eq!(harness.agent.metrics().evictions, [("ephemeralcontainerfs.limit", 1)].into());
}

#[test]
fn a_volume_in_memory_is_not_one_on_the_disk() {
    let spec = r#""volumes":[{"name":"t","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}},
        {"name":"h","hostPath":{"path":"/h"}}],
        "containers":[{"name":"m","image":"i:1",
            "resources":{"limits":{"ephemeral-storage":"1Mi"}},"volumeMounts":[
            {"name":"t","mountPath":"/t"},{"name":"h","mountPath":"/h"}]}]"#;
    let mut harness = Harness::new();
    harness.machine.memory = Some(memory(500));
    harness.manifests(&[&named("p", "", spec)]);
    harness.does_all(START);
    harness.taken.folders = vec![("t", 1 << 30), ("h", 1 << 30)];
    harness.pass(2 * limits::EVICTION_LIMITS_MS);
    assert_eq!(harness.running(), ["m"]);
    let walked = harness.taken.walked.borrow();
    assert!(!walked.is_empty() && walked.iter().all(|it| it == "Logs m"), "{walked:?}");
}

#[test]
fn one_container_with_a_bound_beside_one_without_is_held_to_it() {
    let spec = r#""containers":[{"name":"n","image":"i:1"},{"name":"m","image":"i:1",
        "resources":{"limits":{"ephemeral-storage":"1Mi"}}}]"#;
    let mut harness = Harness::new();
    harness.machine.memory = Some(memory(500));
    harness.manifests(&[&named("a", "", spec)]);
    harness.works();
    disks(&mut harness, (1, 1));
    takes(&mut harness, (0, 0), &[("m", MI + 1)]);
    harness.pass(limits::EVICTION_LIMITS_MS + CYCLE_MS);
    assert_eq!(harness.agent.metrics().evictions.values().sum::<u64>(), 1);
}
