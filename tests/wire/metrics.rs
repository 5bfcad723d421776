//! The metrics page, as a Prometheus server reads it.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::metrics::{Histogram, Metrics, Operation};
use edged::wire::metrics::{Process, render};

fn metrics() -> Metrics {
    let mut duration = Histogram::default();
    for ms in [1, 3, 3, 700, 1_000_000] {
        duration.observe_ms(ms);
    }
    let operation = Operation { total: 5, errors: 2, duration };
    Metrics {
        node: "gw\"1\\\n".to_owned(),
        desired_pods: 3,
        running_pods: 2,
        containers: [("created", 0), ("running", 4), ("exited", 1), ("unknown", 0)],
        operations: BTreeMap::from([("version", operation)]),
        evictions: BTreeMap::from([("memory.available", 2)]),
        relist_last_seen: Some(1_763_666_951),
        restarted_pods: [1, 3],
        ..Metrics::default()
    }
}

#[test]
fn values_stand_under_the_kubelets_names() {
    let page = render(
        &metrics(),
        Process { resident_bytes: 4_194_304, cpu_centis: 12, started_at_s: 1_763_666_000 },
    );
    for line in [
        "# HELP kubelet_running_pods Pods with a ready sandbox",
        "# TYPE kubelet_running_pods gauge",
        "kubelet_running_pods 2",
        "kubelet_node_name{node=\"gw\\\"1\\\\\\n\"} 1",
        "kubelet_running_containers{container_state=\"running\"} 4",
        "kubelet_pleg_last_seen_seconds 1763666951",
        "kubelet_restarted_pods_total{static=\"true\"} 3",
        "kubelet_restarted_pods_total{static=\"\"} 1",
        "kubelet_evictions{eviction_signal=\"memory.available\"} 2",
        "kubelet_runtime_operations_total{operation_type=\"version\"} 5",
        "kubelet_runtime_operations_errors_total{operation_type=\"version\"} 2",
        "kubelet_pod_start_sli_duration_seconds_bucket{le=\"0.001\"} 0",
        "kubelet_pod_start_sli_duration_seconds_count 0",
        "process_resident_memory_bytes 4194304",
        "process_cpu_seconds_total 0.12",
        "process_start_time_seconds 1763666000",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
}

#[test]
fn buckets_are_cumulated_in_seconds() {
    let page = render(&metrics(), Process::default());
    let name = "kubelet_runtime_operations_duration_seconds";
    let lines: Vec<&str> = page.lines().filter(|l| l.starts_with(name)).collect();
    assert_eq!(lines.len(), Histogram::BOUNDS_MS.len() + 3);
    for (at, rest) in [
        (0, "_bucket{operation_type=\"version\",le=\"0.001\"} 1"),
        (1, "_bucket{operation_type=\"version\",le=\"0.002\"} 1"),
        (2, "_bucket{operation_type=\"version\",le=\"0.005\"} 3"),
        (9, "_bucket{operation_type=\"version\",le=\"1\"} 4"),
        (15, "_bucket{operation_type=\"version\",le=\"600\"} 4"),
        (16, "_bucket{operation_type=\"version\",le=\"+Inf\"} 5"),
        (17, "_sum{operation_type=\"version\"} 1000.707"),
        (18, "_count{operation_type=\"version\"} 5"),
    ] {
        assert_eq!(lines[at], format!("{name}{rest}"));
    }
}

#[test]
fn every_family_is_announced_once_before_its_samples() {
    let page = render(&metrics(), Process::default());
    let (mut helped, mut typed, mut samples) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut open = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().expect("a name");
            assert!(helped.insert(name), "{name} twice");
            open = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(typed.insert(rest.split(' ').next().expect("a name")), "{line}");
        } else {
            assert!(line.starts_with(open), "{line} under {open}");
            assert!(samples.insert(line.rsplit_once(' ').expect("a value").0), "{line} twice");
        }
    }
    assert_eq!(helped, typed);
    assert!(page.ends_with('\n'));
}
