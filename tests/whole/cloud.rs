//! A node and its cloud: real TLS and a real websocket on loopback, a real SQLite file, real pods.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::World;
use super::support::agent::{Agent, NODE, Pod, Site};
use super::support::cloud::{Cloud, Setup};
use super::support::containerd::Containerd;
use super::support::joined::{self, join, pod};
use super::support::wait::until;

crate::tests!(
    a_node_joins_its_cloud_and_runs_what_it_wants,
    a_pod_of_the_cloud_ends_in_the_cloud_when_nothing_is_left_of_it,
    pods_of_the_cloud_come_back_after_a_power_cut_without_it,
    an_agent_killed_again_and_again_keeps_what_it_acknowledged,
    another_life_takes_the_pods_of_the_cloud_over_without_touching_them,
);

/// A site whose agents are configured for this cloud.
fn site(world: &World, name: &str, cloud: &Cloud) -> Site {
    let mut site = world.site(name);
    join(&mut site, cloud);
    site
}

fn map(name: &str, value: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"k": value},
    })
}

fn secret(name: &str) -> Value {
    json!({
        "kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"password": "czNjcjN0"},
    })
}

/// One of the cloud's pods, as the agent reports it.
fn find(site: &Site, name: &str) -> Result<Pod, String> {
    let found = site.pods()?.into_iter().find(|pod| pod.name() == name);
    found.ok_or_else(|| format!("no pod {name}"))
}

fn wait_running(site: &Site, name: &str) -> Pod {
    until(&format!("pod {name} runs"), || {
        let pod = find(site, name).map_err(|why| format!("{why}\n{}", site.log_tail()))?;
        let reported = format!("{}\n{}", pod.0["status"], site.log_tail());
        if pod.runs() { Ok(pod) } else { Err(reported) }
    })
}

fn phase_in_the_cloud(cloud: &Cloud, name: &str, phase: &str) {
    until(&format!("the cloud has {name} as {phase}"), || {
        let object = cloud.object(&format!("default/pod/{name}"));
        let reported = &object["status"]["phase"];
        if reported == phase { Ok(()) } else { Err(object["status"].to_string()) }
    });
}

/// The cloud has a ready node with this machine's properties.
fn is_ready(cloud: &Cloud) {
    let node = || cloud.object(&format!("null/node/{NODE}"));
    until("the node is ready", || {
        let status = node()["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        match ready {
            Some(ready) if ready["status"] == "True" && ready["reason"] == "EdgeReady" => Ok(()),
            _ => Err(status.to_string()),
        }
    });
    let status = &node()["status"];
    let info = &status["nodeInfo"];
    let reported = info["containerRuntimeVersion"].as_str().expect("a text");
    let name = crate::support::containerd::kind().name();
    assert!(reported.starts_with(&format!("{name}://")), "{reported}");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there");
    assert_eq!(info["bootID"], boot_id.trim());
    for amounts in ["capacity", "allocatable"] {
        for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
            let amount = status[amounts][resource].as_str().expect("a text");
            assert_ne!(amount, "0", "{amounts} {resource}");
        }
    }
}

fn a_node_joins_its_cloud_and_runs_what_it_wants(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let site = site(world, "joins", &cloud);
    cloud.put("default/configmap/cm", map("cm", "one"));
    cloud.put("default/secret/sec", secret("sec"));
    let wanted = pod(
        "web",
        &json!({
            "volumes": [
                {"name": "cm", "configMap": {"name": "cm"}},
                {"name": "sec", "secret": {"secretName": "sec"}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }),
    );
    let mut wanted = wanted;
    wanted["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "cm", "mountPath": "/cm"}, {"name": "sec", "mountPath": "/sec"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]);
    wanted["spec"]["containers"][0]["env"] =
        json!([{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}]);
    let _agent = site.start();
    cloud.connected(1);
    cloud.wait("the node", |reported| {
        reported.operation() == "insert" && reported.resource().contains("/node/")
    });
    cloud.wait("the lease", |reported| {
        reported.resource() == format!("kube-node-lease/lease/{NODE}")
    });
    is_ready(&cloud);
    let id = cloud.put("default/pod/web", wanted);
    cloud.acked(&id);
    let reported = wait_running(&site, "web");
    phase_in_the_cloud(&cloud, "web", "Running");
    for file in ["ca.crt", "node.crt", "node.key"] {
        assert!(site.dir.join(file).is_file(), "{file}");
    }
    // A change in the cloud changes the pod.
    let volume =
        site.root.join("pods").join(reported.uid()).join("volumes/kubernetes.io~configmap/cm/k");
    let id = cloud.put("default/configmap/cm", map("cm", "two"));
    cloud.acked(&id);
    until("the file follows", || match fs::read_to_string(&volume) {
        Ok(text) if text == "two" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let status = site.status().expect("it answers");
    assert!(status["cloud"]["upMs"].is_u64() || status["cloud"]["up_ms"].is_u64(), "{status}");
}

fn a_pod_of_the_cloud_ends_in_the_cloud_when_nothing_is_left_of_it(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let site = site(world, "cloud-ends", &cloud);
    let _agent = site.start();
    cloud.connected(1);
    let wanted = pod("web", &json!({}));
    cloud.put("default/pod/web", wanted);
    let reported = wait_running(&site, "web");
    phase_in_the_cloud(&cloud, "web", "Running");
    let mut ending = cloud.object("default/pod/web");
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-21T12:00:00Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(1);
    cloud.put("default/pod/web", ending);
    cloud.wait("the deletion", |reported| {
        reported.operation() == "delete" && reported.resource() == "default/pod/web"
    });
    site.wait_gone(&reported);
    assert_eq!(cloud.object("default/pod/web"), Value::Null);
}

/// Everything that runs is killed: the agent, the containers, the runtime.
fn power_cut(agent: Agent<'_>, containerd: &Containerd) {
    agent.kill();
    containerd.cut();
    containerd.start_daemon();
}

fn pods_of_the_cloud_come_back_after_a_power_cut_without_it(world: &World) {
    let containerd = Containerd::start(world.folder("cut-runtime"));
    let cloud = Cloud::start(&Setup::default());
    let mut site = Site::new(world.folder("cut"), containerd.socket());
    join(&mut site, &cloud);
    let agent = site.start();
    cloud.connected(1);
    cloud.put("default/configmap/cm", map("cm", "kept"));
    cloud.put("default/secret/sec", secret("sec"));
    let mut wanted = pod(
        "web",
        &json!({
            "volumes": [
                {"name": "cm", "configMap": {"name": "cm"}},
                {"name": "sec", "secret": {"secretName": "sec"}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }),
    );
    wanted["spec"]["containers"][0]["command"] = json!([
        "sh",
        "-c",
        "cat /cm/k /sec/password; echo; trap 'exit 0' TERM; while :; do sleep 0.2; done"
    ]);
    wanted["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "cm", "mountPath": "/cm"}, {"name": "sec", "mountPath": "/sec"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]);
    let id = cloud.put("default/pod/web", wanted);
    cloud.acked(&id);
    cloud.put("default/pod/job", pod("job", &json!({})));
    let before = wait_running(&site, "web");
    wait_running(&site, "job");
    cloud.script(|script| script.frozen = true);
    power_cut(agent, &containerd);
    // No cloud, no name server, and an unset clock.
    let nowhere = "no-such-host.invalid";
    let (https, websocket) = (format!("{nowhere}:10002"), format!("{nowhere}:10000"));
    let store = joined::store(&site);
    joined::configure(&mut site, &store, &https, &websocket, "x.y.z.w");
    let _next = site.start_at_1970();
    for name in ["web", "job"] {
        let after = until(&format!("{name} runs again"), || {
            let pod = find(&site, name)?;
            let reported = format!("{}\n{}", pod.0["status"], site.log_tail());
            let anew = pod.container_id("main") != before.container_id("main");
            if pod.runs() && anew { Ok(pod) } else { Err(reported) }
        });
        assert!(!after.uid().is_empty());
    }
    let after = find(&site, "web").expect("it runs");
    let attempt = after.restarts("main") as u32;
    until("it reads its ConfigMap and its Secret", || {
        let output = site.output(&after, "main", attempt);
        let read = output.iter().any(|line| line.contains("kepts3cr3t"));
        if read { Ok(()) } else { Err(format!("{output:?} of attempt {attempt}")) }
    });
}

fn an_agent_killed_again_and_again_keeps_what_it_acknowledged(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let site = site(world, "kept", &cloud);
    let mut acknowledged: Vec<(String, String)> = Vec::new();
    for round in 0..12 {
        let agent = site.start();
        cloud.connected(round + 1);
        let mut pushed = Vec::new();
        for n in 0..8 {
            let (name, value) = (format!("m{n}"), format!("{round}-{n}"));
            let id = cloud.put(&format!("default/configmap/{name}"), map(&name, &value));
            pushed.push((id, name, value));
        }
        // Some are acknowledged by now; which ones differs from round to round.
        cloud.acked(&pushed[round % 8].0);
        agent.kill();
        cloud.left_alone();
        let reported = cloud.received();
        for (id, name, value) in pushed {
            if reported.iter().any(|reported| reported.parent() == id) {
                acknowledged.retain(|(known, _)| *known != name);
                acknowledged.push((name, value));
            }
        }
        for (name, value) in &acknowledged {
            let kept = kept(&site, &format!("default/configmap/{name}"));
            let number = |text: &str| text.split('-').next().and_then(|n| n.parse::<u32>().ok());
            let data = kept["data"]["k"].as_str().unwrap_or_default().to_owned();
            assert!(number(&data) >= number(value), "{name}: acknowledged {value}, kept {kept}");
        }
    }
    assert!(acknowledged.len() > 3, "{acknowledged:?}");
}

/// A row of the store.
fn kept(site: &Site, key: &str) -> Value {
    let path: PathBuf = site.dir.join("edgecore.db");
    let store = rusqlite::Connection::open(&path).expect("the store");
    let sql = "SELECT value FROM meta WHERE key = ?1";
    let text: Result<String, _> = store.query_row(sql, [key], |row| row.get(0));
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"))
}

/// A Go EdgeCore can start from the file, and it leaves a change of its own behind.
fn is_edgecores(site: &Site, web: &Pod) {
    let path = site.dir.join("edgecore.db");
    for end in ["-wal", "-shm", "-journal"] {
        assert!(!site.dir.join(format!("edgecore.db{end}")).exists(), "{end}");
    }
    let store = rusqlite::Connection::open(&path).expect("the store");
    let mode: String =
        store.query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
    assert_eq!(mode, "delete", "EdgeCore's own, and it is not open elsewhere");
    // At its start it reads all rows of this type, and stops at one that is no pod.
    let mut found = store.prepare("SELECT key, value FROM meta WHERE type = 'pod'").expect("rows");
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("texts");
    let rows: Vec<(String, String)> = rows.map(|row| row.expect("a row")).collect();
    let [(key, value)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(key, "default/pod/web");
    let pod: Value = serde_json::from_str(value).expect("JSON");
    let metadata = &pod["metadata"];
    assert_eq!((&metadata["namespace"], &metadata["name"]), (&json!("default"), &json!("web")));
    assert_eq!(metadata["uid"], web.uid());
    assert!(metadata["resourceVersion"].is_string(), "{metadata}");
    assert_eq!(pod["spec"]["nodeName"], NODE);
    assert!(pod["spec"]["containers"][0]["image"].is_string());
    // It reads its node only from here.
    let node: Value = kept(site, &format!("null/node/{NODE}"));
    assert_eq!(node["metadata"]["name"], NODE);
    // It stores the status of a pod in this form.
    let patch = format!("{{\"metadata\":{{\"uid\":\"{}\"}},\"status\":{{}}}}", web.uid());
    let sql = "INSERT OR REPLACE INTO meta (key, type, value) VALUES (?, ?, ?)";
    let row = ["default/podpatch/web", "podpatch", &patch];
    assert_eq!(store.execute(sql, row), Ok(1));
}

fn another_life_takes_the_pods_of_the_cloud_over_without_touching_them(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let site = site(world, "cloud-takeover", &cloud);
    let agent = site.start();
    cloud.connected(1);
    cloud.put("default/pod/web", pod("web", &json!({})));
    let before = wait_running(&site, "web");
    assert!(agent.terminate().success());
    is_edgecores(&site, &before);
    let _next = site.start();
    cloud.connected(2);
    let after = wait_running(&site, "web");
    assert_eq!(after.container_id("main"), before.container_id("main"));
    assert_eq!(after.0["status"]["containerStatuses"][0]["restartCount"], 0);
}
