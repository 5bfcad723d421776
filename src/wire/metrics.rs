//! Writes counters in the Prometheus text format (version 0.0.4), under the kubelet's names.
//!
//! A scraper for a kubelet finds here the same metrics, as far as edged has them.

use std::fmt::Write;

use crate::model::metrics::{Histogram, Metrics};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The resource usage of the process, read at the scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Resident memory.
    pub resident_bytes: u64,
    /// User and system time since the start, hundredths of a second.
    pub cpu_centis: u64,
    /// Since 1970, seconds. As wrong as the clock was when the process started.
    pub started_at_s: u64,
}

pub fn render(metrics: &Metrics, process: Process) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.gauges(metrics);
    page.counters(metrics);
    page.operations(metrics);
    for (name, help, histogram) in [
        (
            "kubelet_pod_start_sli_duration_seconds",
            "From a pod's arrival to all its containers running, without pulls and init containers",
            &metrics.pod_start,
        ),
        (
            "kubelet_pod_start_duration_seconds",
            "From a pod's arrival to all its containers running",
            &metrics.pod_start_total,
        ),
        (
            "kubelet_pleg_relist_duration_seconds",
            "Listing what the runtime has",
            &metrics.relist_duration,
        ),
        (
            "kubelet_pleg_relist_interval_seconds",
            "Between two lists of what the runtime has",
            &metrics.relist_interval,
        ),
        ("kubelet_image_pull_duration_seconds", "Pulling an image", &metrics.image_pull),
    ] {
        page.family(name, "histogram", help);
        page.histogram(name, None, histogram);
    }
    page.process(process);
    page.0
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: core::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("memory takes what is written");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn gauges(&mut self, metrics: &Metrics) {
        let name = "kubelet_node_name";
        self.family(name, "gauge", "The node's name; always 1");
        self.line(format_args!("{name}{{node=\"{}\"}} 1", Escaped(&metrics.node)));
        for (name, help, value) in [
            ("kubelet_desired_pods", "Pods that a source wants", metrics.desired_pods),
            ("kubelet_running_pods", "Pods with a ready sandbox", metrics.running_pods),
            (
                "edged_removed_objects_listed",
                "Sandboxes and containers that the runtime lists, and says are gone",
                metrics.removed_listed,
            ),
        ] {
            self.one(name, "gauge", help, value as f64);
        }
        let name = "kubelet_running_containers";
        self.family(name, "gauge", "Containers in the runtime by what they do");
        for (state, count) in metrics.containers {
            self.line(format_args!("{name}{{container_state=\"{state}\"}} {count}"));
        }
        if let Some(seconds) = metrics.relist_last_seen {
            let help = "When the runtime was last listed, seconds since 1970";
            self.one("kubelet_pleg_last_seen_seconds", "gauge", help, seconds as f64);
        }
    }

    fn counters(&mut self, metrics: &Metrics) {
        for (name, help, value) in [
            ("kubelet_started_pods_total", "Sandboxes asked for", metrics.started_pods),
            (
                "kubelet_started_pods_errors_total",
                "Sandboxes that could not be started",
                metrics.started_pods_errors,
            ),
            (
                "kubelet_started_containers_total",
                "Containers that were to be started",
                metrics.started_containers,
            ),
            (
                "kubelet_started_containers_errors_total",
                "Containers that could not be started",
                metrics.started_containers_errors,
            ),
            (
                "kubelet_orphaned_runtime_pods_total",
                "Pods found in the runtime that no source wants",
                metrics.orphaned_pods,
            ),
        ] {
            self.one(name, "counter", help, value as f64);
        }
        let name = "kubelet_restarted_pods_total";
        self.family(name, "counter", "Pods that came back under their uid");
        for (is_static, count) in ["", "true"].iter().zip(metrics.restarted_pods) {
            self.line(format_args!("{name}{{static=\"{is_static}\"}} {count}"));
        }
        let name = "kubelet_evictions";
        if !metrics.evictions.is_empty() {
            self.family(name, "counter", "Pods evicted, by what ran short or was passed");
        }
        for (signal, count) in &metrics.evictions {
            self.line(format_args!("{name}{{eviction_signal=\"{signal}\"}} {count}"));
        }
    }

    fn operations(&mut self, metrics: &Metrics) {
        let name = "kubelet_runtime_operations_total";
        self.family(name, "counter", "Calls of the runtime, answered or lost");
        for (kind, operation) in &metrics.operations {
            self.line(format_args!("{name}{{operation_type=\"{kind}\"}} {}", operation.total));
        }
        let name = "kubelet_runtime_operations_errors_total";
        self.family(name, "counter", "Calls of the runtime, refused or lost");
        for (kind, operation) in &metrics.operations {
            self.line(format_args!("{name}{{operation_type=\"{kind}\"}} {}", operation.errors));
        }
        let name = "kubelet_runtime_operations_duration_seconds";
        self.family(name, "histogram", "From a call of the runtime to its answer");
        for (kind, operation) in &metrics.operations {
            self.histogram(name, Some(kind), &operation.duration);
        }
    }

    /// The core counts each bucket separately; they are summed up here.
    fn histogram(&mut self, name: &str, operation: Option<&str>, histogram: &Histogram) {
        let label = operation.map(|kind| format!("operation_type=\"{kind}\"")).unwrap_or_default();
        let comma = if label.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (bound_ms, count) in Histogram::BOUNDS_MS.iter().zip(histogram.counts) {
            sum += count;
            let le = *bound_ms as f64 / 1e3;
            self.line(format_args!("{name}_bucket{{{label}{comma}le=\"{le}\"}} {sum}"));
        }
        let count = histogram.count();
        self.line(format_args!("{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}"));
        let labels = if label.is_empty() { label } else { format!("{{{label}}}") };
        let seconds = histogram.sum_ms as f64 / 1e3;
        self.line(format_args!("{name}_sum{labels} {seconds}"));
        self.line(format_args!("{name}_count{labels} {count}"));
    }

    fn process(&mut self, process: Process) {
        let cpu_s = process.cpu_centis as f64 / 100.0;
        for (name, kind, help, value) in [
            (
                "process_resident_memory_bytes",
                "gauge",
                "Memory of edged that is really there",
                process.resident_bytes as f64,
            ),
            ("process_cpu_seconds_total", "counter", "User and system time of edged", cpu_s),
            (
                "process_start_time_seconds",
                "gauge",
                "When edged started, seconds since 1970",
                process.started_at_s as f64,
            ),
        ] {
            self.one(name, kind, help, value);
        }
        let name = "edged_build_info";
        self.family(name, "gauge", "The version of edged; always 1");
        let version = env!("CARGO_PKG_VERSION");
        self.line(format_args!("{name}{{version=\"{version}\"}} 1"));
    }
}

/// A label's value.
struct Escaped<'a>(&'a str);

impl core::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
