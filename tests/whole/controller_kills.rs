//! Two agents and a controller, killed at random while manifests change: in the end everything runs
//! as the folder wants, and nothing ran twice. `SOAK_S` sets the duration, `SEED` the order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use edged::agent::time::Rng;
use serde_json::{Value, json};

use super::World;
use super::support::agent::{Agent, Site};
use super::support::containerd::Containerd;
use super::support::controller::{Cloud, Controller, map, pod};
use super::support::line::Line;
use super::support::wait::until;

crate::tests!(two_agents_and_a_controller_killed_at_random_converge);

const NODES: [&str; 2] = ["gw-a", "gw-b"];
const IMAGES: [&str; 2] = ["localhost/edged-demo:1", "localhost/edged-demo:2"];
/// On both nodes together.
const PODS: u64 = 6;

fn number(name: &str, unless: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(unless)
}

fn two_agents_and_a_controller_killed_at_random_converge(world: &World) {
    let seed = number("SEED", u64::from(std::process::id()));
    println!("(SEED={seed}) ");
    let mut rng = Rng::new(seed);
    let end = Instant::now() + Duration::from_secs(number("SOAK_S", 30));
    let other = Containerd::start(world.folder("kills-runtime"));
    let cloud = Cloud::new(world.folder("kills-cloud"));
    let mut controller = Some(cloud.start());
    let line = Line::open(cloud.hub);
    let sites: Vec<Site> = [world.socket(), other.socket()]
        .into_iter()
        .zip(NODES)
        .map(|(socket, node)| {
            let mut site = Site::new(world.folder(node), socket);
            site.node = node;
            cloud.welcome(&mut site, line.address);
            site
        })
        .collect();
    let mut agents: Vec<Option<Agent<'_>>> = sites.iter().map(|site| Some(site.start())).collect();
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    while Instant::now() < end {
        change(&mut rng, &cloud, &mut wanted);
        upset(&mut rng, &cloud, &mut controller, &sites, &mut agents, &line);
        sites.iter().for_each(nothing_runs_twice);
        std::thread::sleep(Duration::from_millis(200 + rng.below(1_500)));
    }
    line.cut(false);
    controller.get_or_insert_with(|| cloud.start());
    for (agent, site) in agents.iter_mut().zip(&sites) {
        agent.get_or_insert_with(|| site.start());
    }
    for (name, object) in &wanted {
        runs(&cloud, &sites, name, object, seed);
    }
    until("nothing else runs", || {
        let all = cloud.object("/api/v1/pods")?.ok_or("no list")?;
        let names: Vec<&str> = all["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        let reported = format!("SEED={seed}: {names:?}, wanted {:?}", wanted.keys());
        if names.len() == wanted.len() { Ok(()) } else { Err(reported) }
    });
    for site in &sites {
        let here = wanted.values().filter(|pod| pod["spec"]["nodeName"] == site.node).count();
        until("each runs once", || {
            let state = site.runtime_state();
            let reported = format!("SEED={seed} {}: {here} wanted: {}", site.node, state.short());
            let (pods, containers) = (state.ready().len(), state.running("main").len());
            if pods == here && containers == here { Ok(()) } else { Err(reported) }
        });
    }
}

/// Never two running containers of one pod, whatever was killed in between.
fn nothing_runs_twice(site: &Site) {
    let state = site.runtime_state();
    let mut uids: Vec<_> = state
        .running("main")
        .into_iter()
        .filter_map(|one| one.labels.get("io.kubernetes.pod.uid"))
        .collect();
    let count = uids.len();
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), count, "a pod runs twice: {}", state.short());
}

/// The pod runs on its node, with its image and the latest version of its ConfigMap.
fn runs(cloud: &Cloud, sites: &[Site], name: &str, wanted: &Value, seed: u64) {
    until(&format!("SEED={seed}: {name} runs as it is wanted"), || {
        let pod = cloud.pod(name)?.ok_or("the cloud has none")?;
        let status = &pod["status"]["containerStatuses"][0];
        let image = &wanted["spec"]["containers"][0]["image"];
        let is = pod["spec"]["nodeName"] == wanted["spec"]["nodeName"]
            && pod["status"]["phase"] == "Running"
            && pod["metadata"].get("deletionTimestamp").is_none()
            && status["image"] == *image
            && status["state"]["running"].is_object();
        let reported = format!("{}\n{}", pod["status"], cloud.log_tail());
        if !is {
            return Err(reported);
        }
        let site = sites.iter().find(|site| wanted["spec"]["nodeName"] == site.node);
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let site = site.expect("it is on one of them");
        let file = site.root.join("pods").join(uid).join("volumes/kubernetes.io~configmap/cm/k");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let newest = std::fs::read_to_string(cloud.manifests.join("cm.json")).unwrap_or_default();
        let newest: Value = serde_json::from_str(&newest).unwrap_or_default();
        if newest["data"]["k"] == text { Ok(()) } else { Err(format!("{text} of {newest}")) }
    });
}

fn change(rng: &mut Rng, cloud: &Cloud, wanted: &mut BTreeMap<String, Value>) {
    cloud.put("cm.json", &map("cm", &format!("v{}", rng.below(1_000))));
    let name = format!("p{}", rng.below(PODS));
    let file = format!("{name}.json");
    if wanted.contains_key(&name) && rng.below(3) == 0 {
        wanted.remove(&name);
        cloud.take(&file);
        return;
    }
    // Sometimes on another node, which is another pod of the name.
    let node = NODES[rng.below(2) as usize];
    let mut object = pod(&name, node, IMAGES[rng.below(2) as usize]);
    object["spec"]["volumes"] = json!([{"name": "cm", "configMap": {"name": "cm"}}]);
    object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "cm", "mountPath": "/cm"}]);
    cloud.put(&file, &object);
    wanted.insert(name, object);
}

fn upset<'a, 'c>(
    rng: &mut Rng,
    cloud: &'c Cloud,
    controller: &mut Option<Controller<'c>>,
    sites: &'a [Site],
    agents: &mut [Option<Agent<'a>>],
    line: &Line,
) {
    match rng.below(8) {
        0 | 1 => {
            if let Some(controller) = controller.take() {
                controller.kill();
            }
        }
        2 => line.cut(true),
        3 | 4 => {
            let at = rng.below(2) as usize;
            if let Some(agent) = agents[at].take() {
                agent.kill();
            }
        }
        _ => {
            line.cut(false);
            controller.get_or_insert_with(|| cloud.start());
            for (agent, site) in agents.iter_mut().zip(sites) {
                agent.get_or_insert_with(|| site.start());
            }
        }
    }
}
