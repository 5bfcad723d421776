//! A full partition: that of the store and of the root directory. README promises that in this case
//! new objects of the cloud are not accepted, and that pods keep running.
//!
//! It is a separate file system, so that it can really be filled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Pod, Site, entries};
use super::support::cloud::{Cloud, Setup};
use super::support::joined::{configure, pod};
use super::support::wait::until;
use super::support::{process, runtime_state};

crate::tests!(a_full_partition_loses_nothing_and_ends_no_pod_and_recovers_when_there_is_room);

/// A small file system.
struct Partition(PathBuf);

impl Partition {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("a folder of ours");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "edged-test"]).arg(&path);
        assert!(mount.status().expect("util-linux").success(), "cannot mount a tmpfs");
        Self(path)
    }

    /// Fills it completely.
    fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("there is room for a name");
        for block in [vec![0; 64 << 10], vec![0; 1 << 10], vec![0; 1]] {
            let full = loop {
                match filler.write_all(&block) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn map(bytes: usize) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "m", "namespace": "default"},
        "data": {"k": "x".repeat(bytes)},
    })
}

fn running(site: &Site, name: &str) -> Pod {
    until(&format!("pod {name} runs"), || {
        let found = site.pods()?.into_iter().find(|pod| pod.name() == name);
        let pod = found.ok_or_else(|| format!("no pod {name}\n{}", site.log_tail()))?;
        let reported = format!("{}\n{}", pod.0["status"], site.log_tail());
        if pod.runs() { Ok(pod) } else { Err(reported) }
    })
}

/// Waits until the store's condition in the cloud has this status.
fn condition_is(cloud: &Cloud, wanted: &str) -> Value {
    until(&format!("the node's StoreProblem is {wanted}"), || {
        let status = cloud.object(&format!("null/node/{NODE}"))["status"].clone();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|it| it["type"] == "StoreProblem").cloned();
        found.filter(|it| it["status"] == wanted).ok_or_else(|| status["conditions"].to_string())
    })
}

/// The size of a ConfigMap in the store of a dead agent; `None`: it is not there. Read from a copy
/// in a folder with free space.
fn kept(site: &Site, partition: &Path, name: &str) -> Option<usize> {
    let copy = site.dir.join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).expect("a folder of ours");
    for file in entries(partition).into_iter().filter(|name| name.starts_with("edgecore.db")) {
        fs::copy(partition.join(&file), copy.join(&file)).expect("a file of ours");
    }
    let store = rusqlite::Connection::open(copy.join("edgecore.db")).expect("the store");
    let sound: String =
        store.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(sound, "ok");
    let mut rows = store.prepare("SELECT value FROM meta WHERE key = ?1").expect("the table");
    let mut rows = rows.query([format!("default/configmap/{name}")]).expect("rows");
    let row = rows.next().expect("it can be read")?;
    let object: Value = serde_json::from_str(&row.get::<_, String>(0).expect("a text")).ok()?;
    Some(object["data"]["k"].as_str().unwrap_or_default().len())
}

fn a_full_partition_loses_nothing_and_ends_no_pod_and_recovers_when_there_is_room(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("disk");
    let partition = Partition::mount(site.dir.join("partition"));
    site.root = partition.0.join("kubelet");
    let (https, websocket) = (cloud.https.to_string(), cloud.websocket.to_string());
    configure(&mut site, &partition.0.join("edgecore.db"), &https, &websocket, &cloud.token());
    let agent = site.start();
    cloud.connected(1);
    cloud.acked(&cloud.put("default/configmap/first", map(1_000)));
    cloud.acked(&cloud.put("default/pod/web", pod("web", &json!({}))));
    let web = running(&site, "web");
    let pid = runtime_state::pid_of(&site.runtime, &web.container_id("main"));

    partition.fill();
    let refused = [
        cloud.put("default/configmap/big", map(300_000)),
        cloud.put("default/configmap/first", map(200_000)),
        cloud.put("default/pod/late", pod("late", &json!({}))),
    ];
    until("the log says so", || {
        let log = site.log();
        let line = "store: changes from the cloud cannot be saved, pods keep running: ";
        if log.contains(line) && log.contains("full") { Ok(()) } else { Err(log) }
    });
    let reported = condition_is(&cloud, "True");
    assert!(reported["message"].as_str().is_some_and(|why| why.contains("full")), "{reported}");
    let acked = |id: &String| cloud.received().iter().any(|reported| reported.parent() == *id);
    assert!(!refused.iter().any(acked), "nothing that is not durable is used");
    assert!(process::lives(pid), "the pod goes on");
    agent.kill();
    assert_eq!(kept(&site, &partition.0, "first"), Some(1_000), "as it was acknowledged");
    assert_eq!(kept(&site, &partition.0, "big"), None);

    // An agent that starts on a full partition knows its pods as well.
    let agent = site.start();
    cloud.connected(2);
    let same = running(&site, "web");
    assert_eq!((same.container_id("main"), same.restarts("main")), (web.container_id("main"), 0));
    assert!(process::lives(pid), "the pod goes on");
    condition_is(&cloud, "True");
    assert!(site.pods().expect("it answers").iter().all(|pod| pod.name() != "late"));

    partition.free();
    condition_is(&cloud, "False");
    running(&site, "late");
    cloud.acked(&cloud.put("default/configmap/last", map(10)));
    assert!(process::lives(pid), "the pod goes on");
    agent.kill();
    for (name, bytes) in [("first", 200_000), ("big", 300_000), ("last", 10)] {
        assert_eq!(kept(&site, &partition.0, name), Some(bytes), "{name}");
    }
    // The pods end before their folder is unmounted.
    let _agent = site.start();
    cloud.connected(3);
    for pod in ["web", "late"] {
        let reported = running(&site, pod);
        cloud.remove(&format!("default/pod/{pod}"));
        site.wait_gone(&reported);
    }
}
