//! `edged status`: prints the agent's state in a few lines.

use std::io::Write;

use lexopt::prelude::*;

use super::{Error, age};
use crate::io::client;
#[cfg(feature = "devices")]
use crate::model::device::{DevicesOverview, MapperOverview, MqttOverview};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::MetaServerOverview;
#[cfg(feature = "node-jobs")]
use crate::model::node_job::JobOverview;
#[cfg(feature = "services")]
use crate::model::service::ServicesOverview;
#[cfg(feature = "servicebus")]
use crate::model::service_bus::BusOverview;
use crate::model::view::Overview;

/// Parses the flags, requests the state and prints it.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut server, mut config, mut is_connected) = (None, None, false);
    while let Some(arg) = args.next()? {
        match arg {
            Long("server") => server = Some(args.value()?.string()?),
            Long("config") => config = Some(args.value()?.string()?),
            Long("connected") => is_connected = true,
            _ => return Err(arg.unexpected().into()),
        }
    }
    let agent = client::agent(server.as_deref(), config.as_deref())?;
    let body = agent.get("/edged/status")?;
    let overview: Overview = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not edged's status: {error}"))
    })?;
    print(&overview, out)?;
    let is_away = overview.cloud.as_ref().is_some_and(|cloud| cloud.up_ms.is_none());
    if is_connected && is_away {
        return Ok(NOT_CONNECTED);
    }
    Ok(u8::from(overview.runtime_trouble.is_some()))
}

/// An exit code, which `edged-run` knows.
const NOT_CONNECTED: u8 = 3;

/// The state of a connection to the cloud.
fn link(up_ms: Option<u64>, trouble: Option<&String>) -> String {
    match (up_ms, trouble) {
        (Some(ms), _) => format!("connected for {}", age::short((ms / 1000) as i64)),
        (None, Some(why)) => format!("NOT CONNECTED: {why}"),
        (None, None) => "not connected yet".to_owned(),
    }
}

/// The lines about devices, with their names.
#[cfg(feature = "devices")]
fn devices(of: &DevicesOverview) -> Vec<(&'static str, String)> {
    let waits = match of.unconfirmed {
        0 => String::new(),
        count => format!(", {count} values or states that the cloud has not confirmed"),
    };
    let edited = match of.edited {
        0 => String::new(),
        count => format!(", {count} edited on the node"),
    };
    let mut lines = vec![("devices", format!("{}{edited}{waits}", of.devices))];
    if let Some(MqttOverview { server, up_ms, trouble, address, listens, clients }) = &of.mqtt {
        if !server.is_empty() {
            let state = match (up_ms, &**trouble) {
                (Some(ms), _) => format!("connected for {}", age::short((ms / 1000) as i64)),
                (None, "") => "not connected yet".to_owned(),
                (None, why) => format!("not connected: {why}"),
            };
            lines.push(("mqtt", format!("{server}, {state}")));
        }
        if !address.is_empty() {
            let state =
                if *listens { format!("{clients} clients") } else { "NOT LISTENING".to_owned() };
            lines.push(("broker", format!("{address}, {state}")));
        }
    }
    if of.uploads > 0 {
        lines.push(("uploads", format!("{} messages wait for the cloud", of.uploads)));
    }
    lines.extend(of.mappers.iter().map(|mapper| ("mapper", mapper_line(mapper))));
    lines
}

/// The lines about the Kubernetes API on the node.
#[cfg(feature = "metaserver")]
fn metaserver(of: &MetaServerOverview) -> Vec<String> {
    let mut lines = vec![format!(
        "{} clients, {} watches ({} of the cloud), {} objects, {} rows",
        of.clients, of.watches, of.upstream_watches, of.objects, of.rows
    )];
    if let Some(url) = &of.for_pods {
        lines.push(format!("pods use {url}, {} requests were refused", of.refused));
    }
    lines.extend(of.trouble.as_ref().map(|why| format!("DEGRADED: {why}")));
    lines
}

/// The line about ServiceBus.
#[cfg(feature = "servicebus")]
fn service_bus(of: &BusOverview) -> String {
    format!(
        "{} rules, {} of {} calls of the cloud and {} of {} requests to it answered",
        of.urls, of.answered, of.calls, of.responses, of.requests
    )
}

/// The lines about Services.
#[cfg(feature = "services")]
fn services(of: &ServicesOverview) -> Vec<String> {
    let report = &of.report;
    let direct = report.direct.map(|count| format!(" and {count} direct ones"));
    let mut lines = vec![format!(
        "{}, {} connections{}, {} UDP clients, {} DNS queries and {} forwarded",
        of.services,
        report.connections,
        direct.unwrap_or_default(),
        report.flows,
        report.queries,
        report.forwarded
    )];
    lines.extend(report.trouble.iter().map(|why| format!("NOT SERVED: {why}")));
    lines
}

#[cfg(feature = "devices")]
fn mapper_line(mapper: &MapperOverview) -> String {
    let MapperOverview { name, protocol, socket, unreachable_ms, devices, trouble } = mapper;
    let state = match (unreachable_ms, &**trouble) {
        (Some(ms), why) => {
            format!("NOT REACHED for {}: {why}", age::short((ms / 1000) as i64))
        }
        (None, "") => "ready".to_owned(),
        (None, why) => format!("last error: {why}"),
    };
    format!("{name} of {protocol}, {devices} devices, {socket}, {state}")
}

#[cfg(feature = "node-jobs")]
fn job_line(job: &JobOverview) -> String {
    let JobOverview { name, stage, images, trouble, unconfirmed } = job;
    let images = match images {
        (_, 0) => String::new(),
        (done, all) => format!(", {done} of {all} images"),
    };
    let waits = if *unconfirmed > 0 { ", the cloud may not know" } else { "" };
    let trouble = if trouble.is_empty() { String::new() } else { format!(": {trouble}") };
    format!("{name}, {stage}{images}{waits}{trouble}")
}

fn pressures(overview: &Overview) -> String {
    match overview.pressures.as_deref() {
        None => "not watched".to_owned(),
        Some([]) => "none".to_owned(),
        Some(pressures) => pressures.join(", "),
    }
}

fn print(overview: &Overview, out: &mut dyn Write) -> std::io::Result<()> {
    let mut line = |name: &str, text: &str| writeln!(out, "{name:10} {text}");
    line("node", &overview.node)?;
    let up = age::short((overview.uptime_ms / 1000) as i64);
    line("edged", &format!("{}, up {up}", overview.version))?;
    let changes = if overview.evented { "events" } else { "relisting each second" };
    let runtime = match (&*overview.runtime, &overview.runtime_trouble) {
        ("", Some(trouble)) => format!("NOT READY: {trouble}"),
        (name, Some(trouble)) => format!("{name}, NOT READY: {trouble}"),
        ("", None) => "not connected yet".to_owned(),
        (name, None) => format!("{name}, ready, changes by {changes}"),
    };
    line("runtime", &runtime)?;
    let network = match (&overview.network_trouble, &overview.runtime_trouble) {
        (Some(trouble), _) => format!("NOT READY: {trouble}"),
        (None, Some(_)) => "not known".to_owned(),
        (None, None) => "ready".to_owned(),
    };
    line("network", &network)?;
    if let Some(cloud) = &overview.cloud {
        line("cloud", &link(cloud.up_ms, cloud.trouble.as_ref()))?;
        let store = match (&cloud.store_trouble, &cloud.store_loss, cloud.store_is_new) {
            (Some(why), _, _) => format!("NOT STORING what the cloud sends: {why}"),
            (None, Some(why), _) => format!("LOST, {} objects since: {why}", cloud.objects),
            (None, None, true) => format!("new, {} objects; other pods left alone", cloud.objects),
            (None, None, false) => format!("{} objects", cloud.objects),
        };
        line("store", &store)?;
    }
    if let Some(tunnel) = &overview.tunnel {
        line("streams", &link(tunnel.up_ms, tunnel.trouble.as_ref()))?;
    }
    #[cfg(feature = "devices")]
    for (name, text) in overview.devices.iter().flat_map(devices) {
        line(name, &text)?;
    }
    #[cfg(feature = "servicebus")]
    if let Some(of) = &overview.service_bus {
        line("servicebus", &service_bus(of))?;
    }
    #[cfg(feature = "services")]
    for text in overview.services.iter().flat_map(services) {
        line("services", &text)?;
    }
    #[cfg(feature = "metaserver")]
    for text in overview.metaserver.iter().flat_map(metaserver) {
        line("metaserver", &text)?;
    }
    #[cfg(feature = "node-jobs")]
    for job in overview.node_jobs.iter().flatten() {
        line("job", &job_line(job))?;
    }
    line("pressure", &pressures(overview))?;
    match &overview.manifest_trouble[..] {
        [] => line("manifests", "all read")?,
        troubles => {
            line("manifests", &format!("{} NOT USED:", troubles.len()))?;
            for trouble in troubles {
                line("", trouble)?;
            }
        }
    }
    for (image, ms) in &overview.pulls {
        line("pulling", &format!("{image} for {}", age::short((ms / 1000) as i64)))?;
    }
    let Overview { pods_wanted, pods_running, .. } = overview;
    line("pods", &format!("{pods_wanted} wanted, {pods_running} running"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::view::{CloudOverview, TunnelOverview};

    fn printed(overview: &Overview) -> String {
        let mut out = Vec::new();
        print(overview, &mut out).expect("writes to memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn an_agent_that_is_well_says_so() {
        let overview = Overview {
            node: "gw".to_owned(),
            version: "0.1.0".to_owned(),
            uptime_ms: 11_520_000,
            runtime: "containerd 1.6.20".to_owned(),
            pods_wanted: 3,
            pods_running: 2,
            pressures: Some(Vec::new()),
            evented: true,
            ..Overview::default()
        };
        assert_eq!(
            printed(&overview),
            "node       gw\n\
             edged      0.1.0, up 3h12m\n\
             runtime    containerd 1.6.20, ready, changes by events\n\
             network    ready\n\
             pressure   none\n\
             manifests  all read\n\
             pods       3 wanted, 2 running\n"
        );
    }

    #[test]
    fn each_trouble_is_reported() {
        let overview = Overview {
            runtime_trouble: Some("connection refused".to_owned()),
            network_trouble: Some("cni plugin not initialized".to_owned()),
            pressures: Some(vec!["DiskPressure".to_owned(), "PIDPressure".to_owned()]),
            manifest_trouble: vec!["/m/a.yaml:3:7: got 5".to_owned()],
            pulls: vec![("localhost/i:1".to_owned(), 90_000)],
            cloud: Some(CloudOverview {
                store_is_new: true,
                store_loss: Some("it was set aside".to_owned()),
                objects: 2,
                ..CloudOverview::default()
            }),
            tunnel: Some(TunnelOverview { up_ms: None, trouble: Some("refused".to_owned()) }),
            ..Overview::default()
        };
        let text = printed(&overview);
        for want in [
            "runtime    NOT READY: connection refused\n",
            "network    NOT READY: cni plugin not initialized\n",
            "pressure   DiskPressure, PIDPressure\n",
            "manifests  1 NOT USED:\n           /m/a.yaml:3:7: got 5\n",
            "pulling    localhost/i:1 for 90s\n",
            "store      LOST, 2 objects since: it was set aside\n",
            "streams    NOT CONNECTED: refused\n",
        ] {
            assert!(text.contains(want), "{text}");
        }
    }

    #[cfg(feature = "node-jobs")]
    #[test]
    fn jobs_have_a_line_each() {
        let job = |stage: &str, images, trouble: &str, unconfirmed| JobOverview {
            name: "imageprepulljob/nightly".to_owned(),
            stage: stage.to_owned(),
            images,
            trouble: trouble.to_owned(),
            unconfirmed,
        };
        let jobs = vec![
            job("Pull", (1, 3), "web: refused", 0),
            job("finished", (3, 3), "", 1),
            job("Check", (0, 0), "", 0),
        ];
        let text = printed(&Overview { node_jobs: Some(jobs), ..Overview::default() });
        for want in [
            "job        imageprepulljob/nightly, Pull, 1 of 3 images: web: refused\n",
            "job        imageprepulljob/nightly, finished, 3 of 3 images, the cloud may not know\n",
            "job        imageprepulljob/nightly, Check\n",
        ] {
            assert!(text.contains(want), "{text}");
        }
    }

    #[cfg(feature = "devices")]
    #[test]
    fn brokers_and_mappers_have_a_line_each() {
        let mapper = |unreachable_ms, trouble: &str| MapperOverview {
            name: "m1".to_owned(),
            protocol: "modbus".to_owned(),
            socket: "/m.sock".to_owned(),
            unreachable_ms,
            devices: 2,
            trouble: trouble.to_owned(),
        };
        let mut devices = DevicesOverview {
            devices: 3,
            edited: 1,
            unconfirmed: 2,
            uploads: 7,
            mqtt: Some(MqttOverview {
                server: "tcp://b:1883".to_owned(),
                up_ms: Some(5_000),
                address: "tcp://127.0.0.1:1884".to_owned(),
                listens: true,
                clients: 4,
                ..MqttOverview::default()
            }),
            mappers: vec![mapper(None, ""), mapper(Some(9_000), "refused"), mapper(None, "no")],
        };
        let shown = |devices: &DevicesOverview| {
            let overview = Overview { devices: Some(devices.clone()), ..Overview::default() };
            printed(&overview)
        };
        let text = shown(&devices);
        for want in [
            "devices    3, 1 edited on the node, 2 values or states that the cloud has not \
             confirmed\n",
            "mqtt       tcp://b:1883, connected for 5s\n",
            "broker     tcp://127.0.0.1:1884, 4 clients\n",
            "uploads    7 messages wait for the cloud\n",
            "mapper     m1 of modbus, 2 devices, /m.sock, ready\n",
            "mapper     m1 of modbus, 2 devices, /m.sock, NOT REACHED for 9s: refused\n",
            "mapper     m1 of modbus, 2 devices, /m.sock, last error: no\n",
        ] {
            assert!(text.contains(want), "{text}");
        }
        let mqtt = devices.mqtt.as_mut().expect("it is there");
        (mqtt.up_ms, mqtt.trouble, mqtt.listens) = (None, "refused".to_owned(), false);
        let text = shown(&devices);
        assert!(text.contains("mqtt       tcp://b:1883, not connected: refused\n"), "{text}");
        assert!(text.contains("broker     tcp://127.0.0.1:1884, NOT LISTENING\n"), "{text}");
    }
}
