//! The simulation: many worlds with faults, drawn from a seed. `SEED=17 cargo test … sim` replays
//! one, `SEEDS=2000` asks for so many.
//!
//! First people change objects while links, watches, calls, the store and the controller fail. Then
//! the faults stop, and every node must come to have what the API server has for it, and no more;
//! and of a node that is no more no record is left.
//! Held all the time: nothing foreign goes to a node, nothing goes before it is on record, and
//! nothing that is on record as acknowledged goes again, unless its node may have lost it.

use std::collections::BTreeMap;

use edged::controller::SyncStore;
use edged::controller::time::Rng;
use edged::model::api::Kind;
use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Name};
use crate::world::{Faults, World};
use crate::{config_map, pod};

const NODES: u64 = 4;
/// Is here for a while, and then never again.
const MORTAL: &str = "e4";
const SEEDS_DEFAULT: u64 = 100;

/// What is drawn for one world.
struct Whims {
    link_loss: u64,
    crash: u64,
    compaction: u64,
    edge_restart: u64,
    store_loss: u64,
}

#[test]
fn every_node_comes_to_have_what_is_its_own_whatever_fails() {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match of("SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..of("SEEDS").unwrap_or(SEEDS_DEFAULT) + 1,
    };
    let mut tally = Tally::default();
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        tally.add(&ran.unwrap_or_else(|_| panic!("SEED={seed} fails")));
    }
    // A simulation in which nothing fails shows nothing.
    if of("SEED").is_none() {
        let Tally { crashes, losses, lists, pushes, statuses, resends } = tally;
        let all = [crashes, losses, lists, pushes, statuses, resends];
        assert!(all.iter().all(|count| *count > 10), "{all:?}: something was never drawn");
    }
}

#[derive(Default)]
struct Tally {
    crashes: u64,
    losses: u64,
    lists: u64,
    pushes: u64,
    statuses: u64,
    resends: u64,
}

impl Tally {
    fn add(&mut self, one: &Self) {
        self.crashes += one.crashes;
        self.losses += one.losses;
        self.lists += one.lists;
        self.pushes += one.pushes;
        self.statuses += one.statuses;
        self.resends += one.resends;
    }
}

/// Often 0, otherwise up to `most`.
fn rate(rng: &mut Rng, most: u64) -> u64 {
    if rng.below(2) == 0 { 0 } else { 1 + rng.below(most) }
}

fn run(seed: u64) -> Tally {
    let mut rng = Rng::new(seed);
    let faults = Faults {
        call_lost: rate(&mut rng, 200),
        save_fails: rate(&mut rng, 200),
        watch_ends: rate(&mut rng, 200),
        delay_ms: [0, 50, 1_000, 8_000][rng.below(4) as usize],
    };
    let sync = if seed.is_multiple_of(2) { SyncStore::Table } else { SyncStore::Objects };
    let whims = Whims {
        link_loss: rate(&mut rng, 60),
        crash: rate(&mut rng, 20),
        compaction: rate(&mut rng, 30),
        edge_restart: rate(&mut rng, 20),
        store_loss: rate(&mut rng, 10),
    };
    let mut world = World::keeping(sync, seed, Cluster::default(), faults);
    world.on_send = Some(judge);
    let mut tally = Tally::default();
    let ends_at = rng.below(300);
    for round in 0..200 {
        let wait = rng.below(2_000);
        whim(&mut world, &mut rng, &whims, &mut tally);
        people(&mut world, &mut rng);
        live(&mut world, &mut rng);
        if round < ends_at {
            lives(&mut world, &mut rng, MORTAL);
        }
        if round == ends_at {
            dies(&mut world);
        }
        world.pass(wait);
    }
    world.faults = Faults { delay_ms: faults.delay_ms.min(1_000), ..Faults::default() };
    settle(&mut world, &mut rng, &mut tally);
    tally.lists += world.lists as u64;
    tally
}

/// What goes wrong beside calls, watches and saves.
fn whim(world: &mut World, rng: &mut Rng, whims: &Whims, tally: &mut Tally) {
    let mut chance = |thousandths: u64| rng.below(1000) < thousandths;
    if chance(whims.crash) {
        tally.crashes += 1;
        tally.resends += world.controller.counters().resends;
        tally.pushes += world.controller.counters().messages_down;
        world.crash();
    }
    if chance(whims.compaction) {
        world.cluster.compacted = world.cluster.version;
    }
    for at in 0..NODES {
        let name = format!("e{at}");
        let Some(session) = world.session(&name) else { continue };
        if chance(whims.link_loss) {
            tally.losses += 1;
            world.disconnect(session);
        } else if chance(whims.edge_restart) {
            world.disconnect(session);
            world.restarted.insert(name, String::new());
        } else if chance(whims.store_loss) {
            world.disconnect(session);
            world.edge(&name).store.clear();
            world.restarted.insert(name, String::new());
        }
    }
}

/// What people do to objects.
fn people(world: &mut World, rng: &mut Rng) {
    let at = rng.below(6);
    let on = format!("e{}", rng.below(NODES + 1));
    let name: Name = (Kind::Pod, "n".to_owned(), format!("p{at}"));
    let map: Name = (Kind::ConfigMap, "n".to_owned(), format!("m{}", rng.below(3)));
    match rng.below(12) {
        0..=2 if !world.cluster.objects.contains_key(&name) => {
            let mut pod = pod(&name.2, &on);
            pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": map.2}}]);
            world.ever.insert((map.2.clone(), on.clone()));
            world.cluster.apply(Kind::Pod, pod);
        }
        3 => {
            if let Some(mut pod) = world.cluster.objects.get(&name).cloned() {
                pod["metadata"]["labels"] = json!({"l": rng.below(100).to_string()});
                world.cluster.apply(Kind::Pod, pod);
            }
        }
        4 => world.cluster.delete_pod(&name),
        5 => world.cluster.remove(&name),
        6..=8 => {
            let value = rng.bits().to_string();
            world.cluster.apply(Kind::ConfigMap, config_map(&map.2, &value));
        }
        9 => world.cluster.remove(&map),
        10 if rng.below(8) == 0 => {
            world.cluster.remove(&(Kind::Node, String::new(), on));
        }
        _ => {}
    }
}

/// What nodes do: they come back, register, tell how their pods are and delete those that end.
fn live(world: &mut World, rng: &mut Rng) {
    for at in 0..NODES {
        lives(world, rng, &format!("e{at}"));
    }
}

fn lives(world: &mut World, rng: &mut Rng, name: &str) {
    if world.session(name).is_none() {
        world.connect(name);
    }
    if world.session(name).is_none() {
        return;
    }
    let sign = world.edge(name).keepalive();
    world.say(name, sign);
    let is_there =
        world.cluster.objects.contains_key(&(Kind::Node, String::new(), name.to_owned()));
    if world.is_registered(name) && is_there {
        world.restarted.remove(name);
    } else {
        world.registers(name);
    }
    let pods = world.edge(name).store.clone();
    for (_, pod) in pods.iter().filter(|(resource, _)| resource.contains("/pod/")) {
        if rng.below(4) > 0 {
            continue;
        }
        let edge = world.edge(name);
        let message = if pod["metadata"]["deletionTimestamp"].is_string() {
            let options = json!({"preconditions": {"uid": pod["metadata"]["uid"]}});
            let resource = format!("n/pod/{}", pod["metadata"]["name"].as_str().expect("name"));
            edge.ask("delete", &resource, Some(&options))
        } else {
            edge.pod_patch(pod, "Running")
        };
        world.say(name, message);
    }
}

/// The mortal node's link is cut, and somebody deletes its Node. Of its pods nobody says anything.
fn dies(world: &mut World) {
    if let Some(session) = world.session(MORTAL) {
        world.disconnect(session);
    }
    world.cluster.remove(&(Kind::Node, String::new(), MORTAL.to_owned()));
}

/// Rules about each message to a node.
fn judge(world: &World, node: &str, message: &Message) {
    let route = &message.route;
    let parts: Vec<&str> = route.resource.split('/').collect();
    let [_, kind, name] = parts[..] else { panic!("{} to {node}", route.resource) };
    let kind = match kind {
        "pod" => Kind::Pod,
        "configmap" => Kind::ConfigMap,
        "node" => Kind::Node,
        _ => return,
    };
    let content: Value = message
        .content
        .as_ref()
        .map_or(Value::Null, |content| serde_json::from_str(content.get()).expect("JSON"));
    if !matches!(&*route.operation, "insert" | "update" | "delete") {
        return;
    }
    match kind {
        Kind::Pod if &*route.operation != "delete" => {
            assert_eq!(content["spec"]["nodeName"], node, "a foreign pod");
        }
        Kind::ConfigMap => {
            assert!(world.ever.contains(&(name.to_owned(), node.to_owned())), "a foreign map");
        }
        Kind::Node => assert_eq!(name, node, "a foreign node"),
        _ => {}
    }
    let uid = content["metadata"]["uid"].as_str().expect("a uid");
    let records = world.records(node);
    let record =
        records.iter().find(|(of, called, whose, _)| *of == kind && called == name && whose == uid);
    let mut live = world.cluster.objects.values();
    let is_gone = live.all(|object| object["metadata"]["uid"] != uid);
    if record.is_none() && is_gone && world.sync == SyncStore::Objects {
        // A watch of records that is behind tells of one that was removed: its node is told once
        // more that the object is gone, and no more.
        assert_eq!(&*route.operation, "delete", "{} is not on record", route.resource);
        return;
    }
    let Some((.., acknowledged)) = record else {
        panic!("{} of {node} is not on record: {records:?}", route.resource)
    };
    if world.excused.get(node).is_some_and(|left| *left > 0) {
        return;
    }
    let version = message.header.resource_version.parse().unwrap_or(u64::MAX);
    assert!(version > *acknowledged, "{} was acknowledged before", route.resource);
}

/// Faults have stopped: everything becomes as it should be, and then quiet.
fn settle(world: &mut World, rng: &mut Rng, tally: &mut Tally) {
    for round in 0..120 {
        live(world, rng);
        world.pass(10_000);
        if round == 20 {
            // Its registration may have been on its way.
            dies(world);
        }
    }
    let before = world.controller.counters().messages_down;
    for _ in 0..4 {
        for at in 0..NODES {
            let sign = world.edge(&format!("e{at}")).keepalive();
            world.say(&format!("e{at}"), sign);
        }
        world.pass(10_000);
    }
    assert_eq!(world.controller.counters().messages_down, before, "it is not quiet");
    assert_eq!(world.controller.counters().queued, 0);
    tally.pushes += before;
    for at in 0..NODES {
        converged(world, &format!("e{at}"), tally);
    }
    let left = world.records(MORTAL);
    assert!(left.is_empty(), "of a node that is no more: {left:?}");
}

fn converged(world: &World, node: &str, tally: &mut Tally) {
    let own = |object: &Value| {
        let mut object = object.clone();
        for key in ["managedFields", "resourceVersion"] {
            object["metadata"].as_object_mut().expect("metadata").remove(key);
        }
        let fields = object.as_object_mut().expect("an object");
        fields.retain(|key, _| !matches!(&**key, "status" | "kind" | "apiVersion"));
        object
    };
    let mut expected = BTreeMap::new();
    for ((kind, ..), object) in &world.cluster.objects {
        let name = object["metadata"]["name"].as_str().expect("a name");
        match kind {
            Kind::Pod if object["spec"]["nodeName"] == node => {
                assert_eq!(object["status"]["phase"], "Running", "{node}: {name} was not told of");
                tally.statuses += 1;
                expected.insert(format!("n/pod/{name}"), own(object));
                let map = object["spec"]["volumes"][0]["configMap"]["name"].as_str();
                let map = map.expect("each uses one").to_owned();
                let name = (Kind::ConfigMap, "n".to_owned(), map.clone());
                if let Some(object) = world.cluster.objects.get(&name) {
                    expected.insert(format!("n/configmap/{map}"), own(object));
                }
            }
            Kind::Node if name == node => {
                expected.insert(format!("null/node/{name}"), own(object));
            }
            _ => {}
        }
    }
    let edge = &world.edges[node];
    // A ConfigMap that nobody uses costs a few bytes until its name is used again; of a pod its
    // node tells, and is rid of it.
    let is_left = |key: &str| {
        !key.contains("/pod/") && edge.stale.contains(key) && !expected.contains_key(key)
    };
    let has = edge.store.iter().filter(|(key, _)| !is_left(key));
    let has: BTreeMap<String, Value> = has.map(|(key, value)| (key.clone(), own(value))).collect();
    assert_eq!(has, expected, "{node}");
    let rows = world.records(node);
    assert_eq!(rows.len(), expected.len(), "{node}: {rows:?}");
}
