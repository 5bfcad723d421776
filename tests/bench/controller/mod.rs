//! The controller's load: thousands of edges on one machine, ten pods each. `EDGES` sets the
//! number. Edges and controller share the machine's cores, so the times are upper bounds.

mod edges;
pub mod tls;

use std::time::Duration;

use serde_json::{Value, json};

use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::controller::Cloud;
use crate::support::process::{cpu_seconds, pss_anon_kb};
use edges::{Edges, name};

/// Names of [`load`].
pub const NAMES: &[&str] = &[
    "controller.idle_kib",
    "controller.connects_per_s",
    "controller.inserts_per_s",
    "controller.updates_per_s",
    "controller.update_cpu_us",
    "controller.storm_s",
];

const PODS_PER_EDGE: usize = 10;
/// Objects of one file of the folder.
const FILE: usize = 1_000;
/// Ten thousand edges within a minute.
const EDGES_LEAST: Option<Limit> = Some(Limit::Least(170.0));
/// A hundred thousand pods within a minute.
const PODS_LEAST: Option<Limit> = Some(Limit::Least(1_700.0));
/// The same on a single core.
const UPDATE_US_MOST: Option<Limit> = Some(Limit::Most(600.0));
const BOUND: Duration = Duration::from_secs(300);

/// Memory of an idle connection beyond that of TLS alone, rates, and the duration of a storm of
/// reconnects.
pub fn load(rig: &Rig) -> Vec<Figure> {
    let count = std::env::var("EDGES").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let pods = (count * PODS_PER_EDGE) as u64;
    let cloud = Cloud::new(rig.socket("cloud"));
    write(&cloud, "nodes", (0..count).map(node));
    let controller = cloud.start();
    let tls_kib = tls::idle_kib(&cloud.pki());
    let mut edges = Edges::new(count, &cloud.pki(), cloud.hub);
    edges.rest(Duration::from_secs(3));
    let before_kb = pss_anon_kb(controller.pid());
    eprintln!("bench: {count} edges connect");
    edges.storm();
    let connected = edges.until("all edges are up", BOUND, |edges| edges.up == count);
    edges.rest(Duration::from_secs(5));
    let after_kb = pss_anon_kb(controller.pid());
    let idle_kib = after_kb.saturating_sub(before_kb) as f64 / count as f64;

    eprintln!("bench: {pods} pods");
    write(&cloud, "pods", each(count, "one"));
    let acked = edges.acked;
    let made = edges.until("all pods are acknowledged", BOUND, |it| it.acked >= acked + pods);
    edges.rest(Duration::from_secs(3));
    eprintln!("bench: {pods} updates");
    let (acked, cpu) = (edges.acked, cpu_seconds(controller.pid()));
    write(&cloud, "pods", each(count, "two"));
    let changed = edges.until("all updates are acknowledged", BOUND, |it| it.acked >= acked + pods);
    let cpu_us = (cpu_seconds(controller.pid()) - cpu) * 1e6 / pods as f64;

    eprintln!("bench: all edges hang up and dial again");
    edges.rest(Duration::from_secs(2));
    edges.storm();
    let storm = edges.until("all edges are up again", BOUND, |edges| edges.up == count);
    let acked = edges.acked;
    write(&cloud, "pods", each(count, "three"));
    edges.until("nothing was lost", BOUND, |it| it.acked >= acked + pods);
    assert_eq!(edges.lost, 0, "connections ended unexpectedly");
    let idle = Figure::alone(NAMES[0], idle_kib, "KiB", Some(Limit::Most(24.0)));
    vec![
        Figure { reference: Some(tls_kib), ..idle },
        Figure::alone(NAMES[1], count as f64 / connected.as_secs_f64(), "1/s", EDGES_LEAST),
        Figure::alone(NAMES[2], pods as f64 / made.as_secs_f64(), "1/s", PODS_LEAST),
        Figure::alone(NAMES[3], pods as f64 / changed.as_secs_f64(), "1/s", PODS_LEAST),
        Figure::alone(NAMES[4], cpu_us, "µs", UPDATE_US_MOST),
        Figure::alone(NAMES[5], storm.as_secs_f64(), "s", Some(Limit::Most(60.0))),
    ]
}

fn write(cloud: &Cloud, what: &str, objects: impl Iterator<Item = Value>) {
    let all: Vec<Value> = objects.collect();
    for (at, part) in all.chunks(FILE).enumerate() {
        let list = json!({"kind": "List", "apiVersion": "v1", "items": part});
        cloud.put(&format!("{what}-{at}.json"), &list);
    }
}

fn node(at: usize) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name(at), "labels": {"node-role.kubernetes.io/edge": ""}},
    })
}

fn each(count: usize, label: &str) -> impl Iterator<Item = Value> {
    let pod = |at: usize, label: &str| {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": format!("p{at}"), "namespace": "default",
                         "labels": {"app": "load", "version": label}},
            "spec": {
                "nodeName": name(at / PODS_PER_EDGE),
                "containers": [{"name": "main", "image": "example.invalid/app:1",
                                "env": [{"name": "A", "value": "b"}]}],
            },
        })
    };
    (0..count * PODS_PER_EDGE).map(move |at| pod(at, label))
}
