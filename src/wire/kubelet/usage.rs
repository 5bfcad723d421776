//! The usage of the node and its containers, as metrics-server and Prometheus read it
//! (edgestream.md, section 13).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::Form;
use crate::model::housekeeping::{Amount, ContainerUsage, Room};
use crate::model::stream::StreamUsage;
use crate::model::time::Timestamp;

/// The usage of the whole node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    pub name: String,
    /// Nanoseconds since 1970.
    pub at_ns: i64,
    pub started_at: Timestamp,
    /// Of all cores, since the node's start.
    pub cpu_ns: u64,
    pub memory_working_set: u64,
    pub memory_available: u64,
    pub cores: usize,
    pub memory_total: u64,
    /// The file systems of the pods' volumes and logs, and of images; `None`: not measured.
    pub node_fs: Option<Room>,
    pub image_fs: Option<Room>,
    /// Those that reach other machines.
    pub interfaces: Vec<Interface>,
}

/// What a network interface has moved since it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_errors: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
}

/// Content type and body.
pub fn render(form: Form, node: &NodeUsage, all: &[StreamUsage]) -> (&'static str, Vec<u8>) {
    match form {
        Form::Summary { brief } => {
            let mut body = serde_json::to_vec(&summary(node, all, brief)).expect("plain data");
            body.push(b'\n');
            ("application/json", body)
        }
        Form::Cadvisor => (METRICS, cadvisor(node, all).into_bytes()),
        Form::Resource | Form::Text | Form::Relayed => (METRICS, resource(node, all).into_bytes()),
        // Of other requests.
        #[cfg(feature = "metaserver")]
        Form::LogMessages | Form::CommandMessages => (METRICS, Vec::new()),
    }
}

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn time_of(ns: i64) -> String {
    Timestamp::from_nanos(ns).to_string()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_bytes: Option<u64>,
    working_set_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_bytes: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Disk {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_used: Option<u64>,
}

impl Disk {
    fn of_room(time: &str, room: &Room) -> Self {
        let used = |amount: &Amount| Some(amount.capacity.saturating_sub(amount.available));
        // A file system without a limit of inodes has none to report.
        let inodes = Some(&room.inodes).filter(|inodes| inodes.capacity > 0);
        Self {
            time: time.to_owned(),
            available_bytes: Some(room.bytes.available),
            capacity_bytes: Some(room.bytes.capacity),
            used_bytes: used(&room.bytes),
            inodes_free: inodes.map(|inodes| inodes.available),
            inodes: inodes.map(|inodes| inodes.capacity),
            inodes_used: inodes.and_then(used),
        }
    }

    /// Of a container's writable layer.
    fn of_container(one: &StreamUsage) -> Option<Self> {
        let usage = &one.usage;
        usage.disk.or(usage.inodes).map(|_| Self {
            time: time_of(usage.memory_at),
            available_bytes: None,
            capacity_bytes: None,
            used_bytes: usage.disk,
            inodes_free: None,
            inodes: None,
            inodes_used: usage.inodes,
        })
    }
}

/// `Summary` of `stats/v1alpha1`. `brief`: processor and memory only.
fn summary(node: &NodeUsage, all: &[StreamUsage], brief: bool) -> Value {
    let time = time_of(node.at_ns);
    let mut pods: BTreeMap<&str, Vec<&StreamUsage>> = BTreeMap::new();
    for one in all {
        pods.entry(&one.uid).or_default().push(one);
    }
    let pods: Vec<Value> = pods.values().map(|containers| pod(containers, brief)).collect();
    let mut shown = json!({
        "nodeName": node.name,
        "startTime": node.started_at.to_string(),
        "cpu": Cpu {
            time: time.clone(),
            usage_nano_cores: None,
            usage_core_nano_seconds: node.cpu_ns,
        },
        "memory": Memory {
            time: time.clone(),
            available_bytes: Some(node.memory_available),
            usage_bytes: None,
            working_set_bytes: node.memory_working_set,
            rss_bytes: None,
        },
    });
    if !brief {
        if !node.interfaces.is_empty() {
            shown["network"] = network(&time, &node.interfaces);
        }
        if let Some(room) = &node.node_fs {
            shown["fs"] = json!(Disk::of_room(&time, room));
        }
        if let Some(room) = &node.image_fs {
            shown["runtime"] = json!({"imageFs": Disk::of_room(&time, room)});
        }
    }
    json!({"node": shown, "pods": pods})
}

/// The kubelet counts `eth0` as the node's network, and lists all interfaces.
fn network(time: &str, interfaces: &[Interface]) -> Value {
    let first = interfaces.iter().find(|it| it.name == "eth0");
    let mut network = first.map_or_else(|| json!({"name": ""}), |first| json!(first));
    network["time"] = time.into();
    network["interfaces"] = json!(interfaces);
    network
}

fn pod(containers: &[&StreamUsage], brief: bool) -> Value {
    let first = containers[0];
    let shown = containers.iter().map(|one| {
        let mut shown = json!({
            "name": one.usage.name,
            "startTime": one.started_at.map(|at| at.to_string()),
            "cpu": cpu(&[one]),
            "memory": memory(&[one]),
        });
        if let Some(disk) = Disk::of_container(one).filter(|_| !brief) {
            shown["rootfs"] = json!(disk);
        }
        shown
    });
    json!({
        "podRef": {"name": first.pod, "namespace": first.namespace, "uid": first.uid},
        "startTime": first.pod_started_at.map(|at| at.to_string()),
        "containers": shown.collect::<Vec<_>>(),
        "cpu": cpu(containers),
        "memory": memory(containers),
    })
}

/// The sum of containers; `None` where one of them is not known. A runtime may send any numbers,
/// such as 2^64 - 1 for a container that was just removed.
fn sum(of: &[&StreamUsage], part: impl Fn(&StreamUsage) -> Option<u64>) -> Option<u64> {
    of.iter().try_fold(0_u64, |sum, one| Some(sum.saturating_add(part(one)?)))
}

fn cpu(of: &[&StreamUsage]) -> Option<Cpu> {
    Some(Cpu {
        time: time_of(of.iter().map(|one| one.usage.cpu_at).max()?),
        usage_nano_cores: sum(of, |one| one.usage.cpu_nano_cores),
        usage_core_nano_seconds: sum(of, |one| one.usage.cpu_ns)?,
    })
}

fn memory(of: &[&StreamUsage]) -> Option<Memory> {
    Some(Memory {
        time: time_of(of.iter().map(|one| one.usage.memory_at).max()?),
        available_bytes: None,
        usage_bytes: sum(of, |one| one.usage.memory_usage),
        working_set_bytes: sum(of, |one| one.usage.memory)?,
        rss_bytes: sum(of, |one| one.usage.memory_rss),
    })
}

/// Every pod is shown whole or not at all: metrics-server drops one with a container that lacks a
/// value.
fn whole_pods(all: &[StreamUsage]) -> Vec<Vec<&StreamUsage>> {
    let mut pods: BTreeMap<(&str, &str, &str), Vec<&StreamUsage>> = BTreeMap::new();
    for one in all {
        pods.entry((&one.namespace, &one.pod, &one.uid)).or_default().push(one);
    }
    let is_known = |one: &&StreamUsage| one.usage.cpu_ns.is_some() && one.usage.memory.is_some();
    pods.into_values().filter(|pod| pod.iter().all(is_known)).collect()
}

/// A page in the exposition format of Prometheus.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        write!(self.0, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n")
            .expect("memory takes it");
    }

    /// `at_ns`: nanoseconds since 1970; `None`: without a time.
    fn line(&mut self, name: &str, labels: &str, value: &dyn Display, at_ns: Option<i64>) {
        write!(self.0, "{name}{labels} {value}").expect("memory takes it");
        if let Some(at_ns) = at_ns {
            write!(self.0, " {}", at_ns.div_euclid(1_000_000)).expect("memory takes it");
        }
        self.0.push('\n');
    }
}

/// Nanoseconds, written as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Names of Kubernetes need no escapes.
fn of_container(one: &StreamUsage) -> String {
    let (namespace, pod, name) = (&one.namespace, &one.pod, &one.usage.name);
    format!("{{container=\"{name}\",namespace=\"{namespace}\",pod=\"{pod}\"}}")
}

fn of_pod(one: &StreamUsage) -> String {
    format!("{{namespace=\"{}\",pod=\"{}\"}}", one.namespace, one.pod)
}

fn resource(node: &NodeUsage, all: &[StreamUsage]) -> String {
    let mut page = Page::default();
    let pods = whole_pods(all);
    let name = "container_cpu_usage_seconds_total";
    let help = "Cumulative cpu time consumed by the container in core-seconds";
    page.family(name, "counter", help);
    for one in pods.iter().flatten() {
        let value = Seconds(one.usage.cpu_ns.unwrap_or(0));
        page.line(name, &of_container(one), &value, Some(one.usage.cpu_at));
    }
    let name = "container_memory_working_set_bytes";
    page.family(name, "gauge", "Current working set of the container in bytes");
    for one in pods.iter().flatten() {
        let value = one.usage.memory.unwrap_or(0);
        page.line(name, &of_container(one), &value, Some(one.usage.memory_at));
    }
    let name = "container_start_time_seconds";
    page.family(name, "gauge", "Start time of the container since unix epoch in seconds");
    for one in pods.iter().flatten() {
        if let Some(at) = one.started_at {
            page.line(name, &of_container(one), &at.0, None);
        }
    }
    let name = "node_cpu_usage_seconds_total";
    page.family(name, "counter", "Cumulative cpu time consumed by the node in core-seconds");
    page.line(name, "", &Seconds(node.cpu_ns), Some(node.at_ns));
    let name = "node_memory_working_set_bytes";
    page.family(name, "gauge", "Current working set of the node in bytes");
    page.line(name, "", &node.memory_working_set, Some(node.at_ns));
    let name = "pod_cpu_usage_seconds_total";
    page.family(name, "counter", "Cumulative cpu time consumed by the pod in core-seconds");
    for pod in &pods {
        let total = Seconds(sum(pod, |one| one.usage.cpu_ns).unwrap_or(0));
        page.line(name, &of_pod(pod[0]), &total, pod.iter().map(|one| one.usage.cpu_at).max());
    }
    let name = "pod_memory_working_set_bytes";
    page.family(name, "gauge", "Current working set of the pod in bytes");
    for pod in &pods {
        let total = sum(pod, |one| one.usage.memory).unwrap_or(0);
        page.line(name, &of_pod(pod[0]), &total, pod.iter().map(|one| one.usage.memory_at).max());
    }
    let name = "resource_scrape_error";
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    page.family(name, "gauge", help);
    page.line(name, "", &0, None);
    page.0
}

/// The metrics of cAdvisor that dashboards read, as far as the runtime reports them.
fn cadvisor(node: &NodeUsage, all: &[StreamUsage]) -> String {
    let mut page = Page::default();
    page.family("machine_cpu_cores", "gauge", "Number of logical CPU cores.");
    page.line("machine_cpu_cores", "", &node.cores, None);
    page.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.");
    page.line("machine_memory_bytes", "", &node.memory_total, None);
    let name = "container_cpu_usage_seconds_total";
    page.family(name, "counter", "Cumulative cpu time consumed in seconds.");
    for one in all {
        if let Some(ns) = one.usage.cpu_ns {
            let labels = of_container(one).replace(",namespace", ",cpu=\"total\",namespace");
            page.line(name, &labels, &Seconds(ns), Some(one.usage.cpu_at));
        }
    }
    for (name, help, part) in MEMORY {
        page.family(name, "gauge", help);
        for one in all {
            if let Some(bytes) = part(&one.usage) {
                page.line(name, &of_container(one), &bytes, Some(one.usage.memory_at));
            }
        }
    }
    page.0
}

/// A value of cAdvisor's: its name, its help, and where it is.
type Part = (&'static str, &'static str, fn(&ContainerUsage) -> Option<u64>);

const MEMORY: [Part; 3] = [
    ("container_memory_working_set_bytes", "Current working set in bytes.", |it| it.memory),
    ("container_memory_usage_bytes", "Current memory usage in bytes.", |it| it.memory_usage),
    ("container_memory_rss", "Size of RSS in bytes.", |it| it.memory_rss),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeUsage {
        NodeUsage {
            name: "gw".to_owned(),
            at_ns: 1_795_000_000_250_000_000,
            started_at: Timestamp(1_794_000_000),
            cpu_ns: 2_500_000_000,
            memory_working_set: 1_000,
            memory_available: 24,
            cores: 2,
            memory_total: 1_024,
            node_fs: Some(room(1_000, 400, 50)),
            image_fs: Some(room(2_000, 1_500, 0)),
            interfaces: ["wlan0", "eth0"].map(interface).into(),
        }
    }

    fn room(capacity: u64, available: u64, inodes: u64) -> Room {
        Room {
            bytes: Amount { capacity, available },
            inodes: Amount { capacity: inodes, available: inodes / 5 },
            device: 1,
        }
    }

    fn interface(name: &str) -> Interface {
        let bytes = name.len() as u64;
        Interface { name: name.to_owned(), rx_bytes: bytes, tx_bytes: 2, ..Interface::default() }
    }

    fn used(pod: &str, container: &str, cpu_ns: Option<u64>) -> StreamUsage {
        StreamUsage {
            namespace: "default".into(),
            pod: pod.into(),
            uid: pod.into(),
            pod_started_at: Some(Timestamp(1_794_500_000)),
            usage: ContainerUsage {
                name: container.into(),
                memory: Some(100),
                memory_usage: Some(120),
                memory_at: 1_795_000_000_000_000_000,
                cpu_ns,
                cpu_nano_cores: Some(7),
                cpu_at: 1_795_000_000_001_000_000,
                ..ContainerUsage::default()
            },
            started_at: Some(Timestamp(1_794_600_000)),
        }
    }

    #[test]
    fn any_numbers_of_the_runtime_have_a_sum() {
        let all = [used("a", "one", Some(u64::MAX)), used("a", "two", Some(1))];
        for form in [Form::Summary { brief: false }, Form::Resource, Form::Cadvisor] {
            assert!(!render(form, &node(), &all).1.is_empty());
        }
        let summary = summary(&node(), &all, false);
        assert_eq!(summary["pods"][0]["cpu"]["usageCoreNanoSeconds"], u64::MAX);
    }

    #[test]
    fn a_pod_is_shown_whole_or_not_at_all_to_metrics_server() {
        let all = [
            used("a", "one", Some(1_500_000_000)),
            used("a", "two", Some(500_000_000)),
            used("b", "one", Some(1)),
            used("b", "new", None),
        ];
        let (kind, body) = render(Form::Resource, &node(), &all);
        let page = String::from_utf8(body).expect("text");
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        for line in [
            "container_cpu_usage_seconds_total{container=\"one\",namespace=\"default\",pod=\"a\"} \
             1.500000000 1795000000001",
            "container_start_time_seconds{container=\"two\",namespace=\"default\",pod=\"a\"} \
             1794600000",
            "node_cpu_usage_seconds_total 2.500000000 1795000000250",
            "node_memory_working_set_bytes 1000 1795000000250",
            "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"a\"} 2.000000000 \
             1795000000001",
            "pod_memory_working_set_bytes{namespace=\"default\",pod=\"a\"} 200 1795000000000",
            "resource_scrape_error 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} in {page}");
        }
        assert!(!page.contains("pod=\"b\""), "{page}");
    }

    #[test]
    fn the_summary_has_sums_where_all_is_known() {
        let all = [used("a", "one", Some(3)), used("a", "two", Some(4)), used("b", "one", None)];
        let (kind, body) = render(Form::Summary { brief: true }, &node(), &all);
        let summary: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(kind, "application/json");
        assert_eq!(summary["node"]["nodeName"], "gw");
        assert_eq!(summary["node"]["cpu"]["usageCoreNanoSeconds"], 2_500_000_000_u64);
        let first = &summary["pods"][0];
        assert_eq!(first["podRef"]["name"], "a");
        assert_eq!(first["cpu"]["usageCoreNanoSeconds"], 7);
        assert_eq!(first["cpu"]["usageNanoCores"], 14);
        assert_eq!(first["memory"]["workingSetBytes"], 200);
        assert_eq!(first["containers"][1]["name"], "two");
        assert_eq!(summary["pods"][1]["cpu"], Value::Null);
    }

    #[test]
    fn the_summary_has_file_systems_and_the_network_unless_they_are_not_wanted() {
        let mut one = used("a", "one", Some(3));
        (one.usage.disk, one.usage.inodes) = (Some(70), Some(8));
        let all = [one, used("a", "two", Some(4))];
        let whole = summary(&node(), &all, false);
        let fs = &whole["node"]["fs"];
        let shown = ["capacityBytes", "availableBytes", "usedBytes", "inodesUsed"];
        assert_eq!(shown.map(|name| fs[name].as_u64()), [1_000, 400, 600, 40].map(Some));
        let image_fs = &whole["node"]["runtime"]["imageFs"];
        assert_eq!((&image_fs["usedBytes"], &image_fs["inodes"]), (&json!(500), &Value::Null));
        let network = &whole["node"]["network"];
        assert_eq!((&network["name"], &network["rxBytes"]), (&json!("eth0"), &json!(4)));
        assert_eq!(network["interfaces"][0]["name"], "wlan0");
        let containers = &whole["pods"][0]["containers"];
        assert_eq!(containers[0]["rootfs"]["usedBytes"], 70);
        assert_eq!(containers[0]["rootfs"]["inodesUsed"], 8);
        assert_eq!(containers[1]["rootfs"], Value::Null);
        let brief = summary(&node(), &all, true).to_string();
        for left_out in ["fs", "runtime", "network", "rootfs"] {
            assert!(!brief.contains(&format!("\"{left_out}\"")), "{left_out} in {brief}");
        }
    }

    #[test]
    fn dashboards_find_what_cadvisor_calls_it() {
        let all = [used("a", "one", Some(3_000_000_000))];
        let page = String::from_utf8(render(Form::Cadvisor, &node(), &all).1).expect("text");
        for line in [
            "machine_cpu_cores 2",
            "container_cpu_usage_seconds_total{container=\"one\",cpu=\"total\",\
             namespace=\"default\",pod=\"a\"} 3.000000000 1795000000001",
            "container_memory_usage_bytes{container=\"one\",namespace=\"default\",pod=\"a\"} \
             120 1795000000000",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} in {page}");
        }
    }
}
