//! Writes counters in the Prometheus text format (version 0.0.4), under the kubelet's names.
//!
//! A scraper for a kubelet finds here the same metrics, as far as edged has them.

use std::fmt::Write;

#[cfg(feature = "devices")]
use crate::model::device::{DeviceMetrics, MapperMetrics};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::MetaServerOverview;
use crate::model::metrics::{Histogram, Metrics};
#[cfg(feature = "node-jobs")]
use crate::model::node_job::JobMetrics;
#[cfg(feature = "services")]
use crate::model::service::ServicesOverview;
#[cfg(feature = "servicebus")]
use crate::model::service_bus::BusOverview;

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
    #[cfg(feature = "node-jobs")]
    if let Some(jobs) = &metrics.node_jobs {
        page.node_jobs(*jobs);
    }
    #[cfg(feature = "devices")]
    if let Some(devices) = &metrics.devices {
        page.devices(devices);
    }
    #[cfg(feature = "servicebus")]
    if let Some(bus) = &metrics.service_bus {
        page.service_bus(bus);
    }
    #[cfg(feature = "services")]
    if let Some(services) = &metrics.services {
        page.services(services);
    }
    #[cfg(feature = "metaserver")]
    if let Some(metaserver) = &metrics.metaserver {
        page.metaserver(metaserver);
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

    #[cfg(feature = "metaserver")]
    fn metaserver(&mut self, of: &MetaServerOverview) {
        let (gauge, counter) = ("gauge", "counter");
        for (name, kind, help, value) in [
            ("clients", gauge, "Requests to MetaServer that are open", of.clients as u64),
            ("watches", gauge, "Watches of MetaServer's clients", of.watches as u64),
            (
                "upstream_watches",
                gauge,
                "Watches that the cloud serves MetaServer",
                of.upstream_watches as u64,
            ),
            ("objects", gauge, "Objects that MetaServer keeps", of.objects as u64),
            ("object_bytes", gauge, "Bytes of these objects", of.object_bytes as u64),
            ("rows", gauge, "Rows of MetaServer in the store", of.rows as u64),
            ("requests_total", counter, "Requests to MetaServer", of.requests),
            (
                "requests_from_store_total",
                counter,
                "Requests to MetaServer answered without the cloud",
                of.from_store,
            ),
            (
                "requests_refused_total",
                counter,
                "Requests to MetaServer without a valid token, or that no rule allows",
                of.refused,
            ),
        ] {
            let name = format!("edged_metaserver_{name}");
            self.one(&name, kind, help, value as f64);
        }
    }

    #[cfg(feature = "servicebus")]
    fn service_bus(&mut self, of: &BusOverview) {
        let counter = "counter";
        for (name, kind, help, value) in [
            ("edged_servicebus_urls", "gauge", "URLs of ServiceBus' rules", of.urls as u64),
            ("edged_servicebus_calls_total", counter, "Calls of the cloud", of.calls),
            ("edged_servicebus_answered_total", counter, "Those with an answer", of.answered),
            ("edged_servicebus_requests_total", counter, "Requests to the cloud", of.requests),
            ("edged_servicebus_responses_total", counter, "Those with an answer", of.responses),
        ] {
            self.one(name, kind, help, value as f64);
        }
    }

    #[cfg(feature = "services")]
    fn services(&mut self, of: &ServicesOverview) {
        let (gauge, counter, report) = ("gauge", "counter", &of.report);
        for (name, kind, help, value) in [
            ("edged_services", gauge, "Services that are known", of.services as u64),
            (
                "edged_service_trouble",
                gauge,
                "What keeps Services from being served",
                report.trouble.len() as u64,
            ),
            (
                "edged_service_connections",
                gauge,
                "TCP connections through Services",
                report.connections,
            ),
            ("edged_service_flows", gauge, "UDP clients of Services", report.flows),
            (
                "edged_service_connections_total",
                counter,
                "TCP connections to Services",
                report.accepted,
            ),
            (
                "edged_service_connections_direct_total",
                counter,
                "TCP connections of pods that the kernel has led to an endpoint",
                report.direct.unwrap_or(0),
            ),
            (
                "edged_service_connections_failed_total",
                counter,
                "TCP connections that no endpoint took",
                report.failed,
            ),
            ("edged_dns_queries_total", counter, "DNS queries about Services", report.queries),
            ("edged_dns_forwarded_total", counter, "DNS queries forwarded", report.forwarded),
            (
                "edged_dns_unanswered_total",
                counter,
                "DNS queries forwarded and not answered",
                report.unanswered,
            ),
        ] {
            self.one(name, kind, help, value as f64);
        }
    }

    #[cfg(feature = "node-jobs")]
    fn node_jobs(&mut self, of: JobMetrics) {
        let help = "Jobs of the cloud for the node that have not ended";
        self.one("edged_node_jobs", "gauge", help, of.open as f64);
        let name = "edged_node_jobs_total";
        self.family(name, "counter", "Jobs of the cloud for the node that have ended, by result");
        for (result, count) in
            [("succeeded", of.succeeded), ("failed", of.failed), ("refused", of.refused)]
        {
            self.line(format_args!("{name}{{result=\"{result}\"}} {count}"));
        }
    }

    #[cfg(feature = "devices")]
    fn devices(&mut self, of: &DeviceMetrics) {
        let gauge = "gauge";
        self.one("edged_devices", gauge, "Devices of the node", of.devices as f64);
        let help = "Devices that are as somebody on the node has edited them";
        self.one("edged_devices_edited", gauge, help, of.edited as f64);
        let help = "Properties and states of devices that the cloud has not confirmed";
        self.one("edged_devices_unconfirmed", gauge, help, of.unconfirmed as f64);
        let help = "Updates of twins by MQTT clients and mappers, accepted";
        self.one("edged_device_updates_total", "counter", help, of.updates as f64);
        let name = "edged_device_refusals_total";
        self.family(name, "counter", "Requests and calls about devices, refused");
        for (reason, count) in of.refused {
            self.line(format_args!("{name}{{reason=\"{reason}\"}} {count}"));
        }
        if let Some(mqtt) = &of.mqtt {
            if let Some(other) = &mqtt.client {
                let help = "Whether the other MQTT broker is connected";
                self.one("edged_mqtt_connected", gauge, help, u8::from(other.is_up()).into());
            }
            if mqtt.broker.is_some() {
                let help = "Clients of the MQTT broker inside edged";
                self.one("edged_mqtt_clients", gauge, help, mqtt.clients as f64);
            }
            let [waiting, sent, dropped] = of.uploads;
            let help = "MQTT messages that wait for the cloud";
            self.one("edged_mqtt_uploads_waiting", gauge, help, waiting as f64);
            let help = "MQTT messages that left for the cloud";
            self.one("edged_mqtt_uploads_total", "counter", help, sent as f64);
            let help = "MQTT messages for the cloud that were dropped: too many waited";
            self.one("edged_mqtt_uploads_dropped_total", "counter", help, dropped as f64);
            let help = "MQTT messages that the other broker or clients got";
            self.one("edged_mqtt_publications_total", "counter", help, mqtt.published as f64);
            let help = "MQTT messages that were dropped: too many waited, or the broker was away";
            self.one("edged_mqtt_dropped_total", "counter", help, mqtt.dropped as f64);
        }
        for (name, kind, help, value) in MAPPER_FAMILIES {
            if !of.mappers.is_empty() {
                self.family(name, kind, help);
            }
            for mapper in &of.mappers {
                let (of, protocol) = (Escaped(&mapper.name), Escaped(&mapper.protocol));
                let value = value(mapper);
                let labels = format_args!("mapper=\"{of}\",protocol=\"{protocol}\"");
                self.line(format_args!("{name}{{{labels}}} {value}"));
            }
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

/// Name, kind and help of a metric that each mapper has, and its value.
#[cfg(feature = "devices")]
type MapperFamily = (&'static str, &'static str, &'static str, fn(&MapperMetrics) -> u64);

#[cfg(feature = "devices")]
const MAPPER_FAMILIES: [MapperFamily; 3] = [
    ("edged_mapper_up", "gauge", "Whether the mapper's socket accepts connections", |mapper| {
        mapper.is_up.into()
    }),
    ("edged_mapper_calls_total", "counter", "Calls of the mapper that have ended", |mapper| {
        mapper.calls
    }),
    ("edged_mapper_failures_total", "counter", "Of them, those without success", |mapper| {
        mapper.failures
    }),
];

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

#[cfg(test)]
mod tests {
    #[cfg(any(feature = "devices", feature = "node-jobs"))]
    use super::*;
    #[cfg(feature = "devices")]
    use crate::model::device::{MqttStatus, OtherBroker};

    #[cfg(feature = "node-jobs")]
    #[test]
    fn jobs_have_metrics_where_they_are_done() {
        let mut metrics = Metrics::default();
        assert!(!render(&metrics, Process::default()).contains("node_jobs"));
        metrics.node_jobs = Some(JobMetrics { open: 1, succeeded: 2, failed: 3, refused: 4 });
        let page = render(&metrics, Process::default());
        for line in [
            "edged_node_jobs 1",
            "edged_node_jobs_total{result=\"succeeded\"} 2",
            "edged_node_jobs_total{result=\"failed\"} 3",
            "edged_node_jobs_total{result=\"refused\"} 4",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} in {page}");
        }
    }

    #[cfg(feature = "devices")]
    #[test]
    fn devices_have_metrics_where_they_are_served() {
        let mut metrics = Metrics::default();
        assert!(!render(&metrics, Process::default()).contains("device"));
        let mqtt = MqttStatus {
            client: Some(OtherBroker { server: "tcp://b:1".into(), trouble: None }),
            broker: Some(("tcp://127.0.0.1:2".into(), true)),
            clients: 3,
            published: 4,
            dropped: 5,
        };
        let mapper = MapperMetrics {
            name: "m\"1".into(),
            protocol: "modbus".into(),
            is_up: true,
            calls: 6,
            failures: 7,
        };
        metrics.devices = Some(DeviceMetrics {
            devices: 1,
            edited: 15,
            unconfirmed: 2,
            updates: 8,
            refused: [("unknown_device", 9), ("invalid", 10), ("too_many", 11)],
            uploads: [12, 13, 14],
            mqtt: Some(mqtt),
            mappers: vec![mapper],
        });
        let page = render(&metrics, Process::default());
        for line in [
            "edged_devices 1",
            "edged_devices_edited 15",
            "edged_devices_unconfirmed 2",
            "edged_device_updates_total 8",
            "edged_device_refusals_total{reason=\"unknown_device\"} 9",
            "edged_device_refusals_total{reason=\"invalid\"} 10",
            "edged_device_refusals_total{reason=\"too_many\"} 11",
            "edged_mqtt_connected 1",
            "edged_mqtt_clients 3",
            "edged_mqtt_uploads_waiting 12",
            "edged_mqtt_uploads_total 13",
            "edged_mqtt_uploads_dropped_total 14",
            "edged_mqtt_publications_total 4",
            "edged_mqtt_dropped_total 5",
            "edged_mapper_up{mapper=\"m\\\"1\",protocol=\"modbus\"} 1",
            "edged_mapper_calls_total{mapper=\"m\\\"1\",protocol=\"modbus\"} 6",
            "edged_mapper_failures_total{mapper=\"m\\\"1\",protocol=\"modbus\"} 7",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} in {page}");
        }
    }
}
