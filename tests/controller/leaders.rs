//! Leader election of several replicas: one holds the Lease, and only it removes what deleted nodes
//! have left.

use std::collections::BTreeMap;

use edged::controller::SyncStore;
use edged::controller::event::{Action, CallId, Event, Out, WatchFact};
use edged::controller::time::{Instant, Now, Rng, Wall};
use edged::controller::{Candidate, Config, Controller};
use edged::limits::{GONE_NODE_MS, LEASE_MS, LEASE_RELEASE_MS, LEASE_RENEW_MS, LEASE_RETRY_MS};
use edged::model::api::{Call, CallError, CallResult, Kind, Verb};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Name};
use crate::world::{Faults, World, config};
use crate::{config_map, node, pod};

fn lease_name() -> Name {
    (Kind::Lease, "k".to_owned(), "edgecontroller".to_owned())
}

fn lease_of(world: &World) -> Value {
    world.cluster.objects.get(&lease_name()).map_or(Value::Null, |lease| lease["spec"].clone())
}

fn others_lease(renewed: &str) -> Value {
    json!({"metadata": {"name": "edgecontroller", "namespace": "k"}, "spec": {
        "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": renewed}})
}

/// An ObjectSync of this node for an unknown pod.
fn record(node: &str, uid: &str) -> Value {
    json!({"metadata": {"name": format!("{node}.{uid}"), "namespace": "n"},
        "spec": {"objectAPIVersion": "v1", "objectKind": "Pod", "objectName": "web"},
        "status": {"objectResourceVersion": "7"}})
}

fn world(objects: &[(Kind, Value)]) -> World {
    let mut cluster = Cluster::default();
    for (kind, object) in objects {
        cluster.apply(*kind, object.clone());
    }
    World::keeping(SyncStore::Objects, 3, cluster, Faults::default())
}

fn left(world: &World, node: &str) -> usize {
    world.records(node).len()
}

#[test]
fn who_comes_first_holds_the_lease_and_renews_it() {
    let mut world = world(&[]);
    world.pass(10);
    let first = lease_of(&world);
    assert!(first["holderIdentity"].as_str().is_some_and(|it| it.starts_with("life-")), "{first}");
    assert_eq!(first["leaseDurationSeconds"], LEASE_MS / 1_000);
    assert_eq!(first["leaseTransitions"], 0);
    assert_eq!(first["acquireTime"], "2027-01-15T08:00:00.000000Z");
    world.pass(6_000);
    let later = lease_of(&world);
    assert_eq!(later["renewTime"], "2027-01-15T08:00:06.000000Z");
    assert_eq!(later["acquireTime"], first["acquireTime"]);
    let of_lease = |verb| move |call: &&Call| call.kind == Kind::Lease && call.verb == verb;
    assert_eq!(world.calls.iter().filter(of_lease(Verb::Update)).count(), 3, "every two seconds");
    for _ in 0..5 {
        world.calls.clear();
        let next_at = Instant(1_000 + (world.now.boot.0 - 1_000) / LEASE_RETRY_MS * LEASE_RETRY_MS)
            .plus_ms(LEASE_RETRY_MS);
        world.pass(next_at.since_ms(world.now.boot) - 1);
        assert_eq!(world.calls.len(), 0, "not before");
        world.pass(1);
        assert_eq!(world.calls.iter().filter(of_lease(Verb::Update)).count(), 1);
    }
    assert!(world.controller.counters().leads);
}

#[test]
fn what_nodes_that_are_no_more_have_left_is_removed_and_nothing_else() {
    let mut unlabelled = node("was");
    unlabelled["metadata"].as_object_mut().expect("metadata").remove("labels");
    let mut world = world(&[
        (Kind::Node, node("here")),
        (Kind::Node, unlabelled),
        (Kind::ObjectSync, record("here", "u1")),
        (Kind::ObjectSync, record("gone.example", "u2")),
        (Kind::ObjectSync, record("was", "u3")),
        (Kind::ObjectSync, record("dials", "u4")),
    ]);
    world.pass(10);
    world.connect("dials");
    world.edge("dials").deaf = true;
    // It was reported 10 ms ago.
    world.pass(GONE_NODE_MS - 11);
    assert_eq!(left(&world, "gone.example"), 1, "it may just be registering anew");
    world.pass(1);
    assert_eq!(left(&world, "gone.example"), 0);
    assert_eq!(world.controller.counters().records_removed, 1);
    for node in ["here", "was", "dials"] {
        assert_eq!(left(&world, node), 1, "{node}");
    }
    // One that is deleted during the test.
    world.cluster.remove(&(Kind::Node, String::new(), "here".to_owned()));
    world.pass(31_000);
    assert_eq!(left(&world, "here"), 0);
}

#[test]
fn a_node_that_registers_anew_keeps_its_records() {
    let mut world = world(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.pass(10);
    world.connect("e1");
    world.pass(100);
    world.cluster.remove(&(Kind::Node, String::new(), "e1".to_owned()));
    world.pass(10_000);
    assert!(world.session("e1").is_none(), "its Node was deleted");
    world.cluster.apply(Kind::Node, node("e1"));
    world.pass(40_000);
    assert!(world.records("e1").iter().any(|(kind, ..)| *kind == Kind::Pod));
}

#[test]
fn a_table_of_our_own_needs_no_lease_to_be_tidied() {
    let mut world = World::new(3, Cluster::default(), Faults::default());
    world.cluster.apply(Kind::Node, node("e1"));
    world.cluster.apply(Kind::ConfigMap, config_map("m", "1"));
    world.pass(10);
    let session = world.connect("e1");
    world.pass(100);
    assert_eq!(world.rows.len(), 1);
    world.disconnect(session);
    world.cluster.remove(&(Kind::Node, String::new(), "e1".to_owned()));
    world.pass(31_000);
    assert_eq!(world.rows.len(), 0);
    assert!(world.calls.iter().all(|call| call.kind != Kind::Lease));
}

#[test]
fn another_ones_lease_is_left_alone_until_it_runs_out() {
    let mut world = world(&[
        (Kind::ObjectSync, record("gone", "u2")),
        (Kind::Lease, others_lease("2020-01-01T00:00:00.000000Z")),
    ]);
    // Its clock may be years behind: only its progress counts.
    for minute in 0..20 {
        world.pass(5_000);
        let renewed = format!("2020-01-01T00:{minute:02}:00.000000Z");
        world.cluster.apply(Kind::Lease, others_lease(&renewed));
    }
    assert_eq!(lease_of(&world)["holderIdentity"], "other");
    assert_eq!(left(&world, "gone"), 1, "that is the other's to do");
    world.pass(14_000);
    assert_eq!(lease_of(&world)["holderIdentity"], "other");
    world.pass(6_000);
    let lease = lease_of(&world);
    assert_ne!(lease["holderIdentity"], "other");
    assert_eq!(lease["leaseTransitions"], 5);
    world.pass(31_000);
    assert_eq!(left(&world, "gone"), 0);
}

#[test]
fn a_lease_that_does_not_say_for_how_long_it_counts_has_the_usual_time() {
    let mut silent = others_lease("2020-01-01T00:00:00.000000Z");
    silent["spec"].as_object_mut().expect("a map").remove("leaseDurationSeconds");
    let mut world = world(&[(Kind::Lease, silent)]);
    // It was read at once when everything was listed.
    world.pass(LEASE_MS - 1);
    assert_eq!(lease_of(&world)["holderIdentity"], "other");
    // At the next read.
    world.pass(LEASE_RETRY_MS * 11 / 5 + 1);
    assert_ne!(lease_of(&world)["holderIdentity"], "other");
}

#[test]
fn who_cannot_renew_it_leads_no_more() {
    let mut world = world(&[]);
    world.pass(10);
    assert!(world.controller.counters().leads);
    world.faults.call_lost = 1_000;
    // It was created 10 ms ago.
    world.pass(LEASE_RENEW_MS - 11);
    assert!(world.controller.counters().leads);
    world.pass(1);
    assert!(!world.controller.counters().leads);
    assert!(world.logs.iter().any(|line| line.starts_with("lease: lost:")), "{:?}", world.logs);
    assert!(world.logs.len() < 10, "{:?}", world.logs);
    world.faults.call_lost = 0;
    world.pass(5_000);
    assert!(world.controller.counters().leads);
}

#[test]
fn who_stops_gives_it_back() {
    let mut world = world(&[]);
    world.pass(10);
    world.deliver(Event::Stop);
    world.pass(10);
    assert!(world.exited);
    assert_eq!(lease_of(&world)["holderIdentity"], "");
    assert_eq!(lease_of(&world)["leaseDurationSeconds"], 1);
}

#[test]
fn who_stops_does_not_wait_for_an_api_server_that_says_nothing() {
    let mut world = world(&[]);
    world.pass(10);
    world.faults.delay_ms = 3_600_000;
    world.deliver(Event::Stop);
    world.pass(LEASE_RELEASE_MS - 1);
    assert!(!world.exited);
    world.pass(1);
    assert!(world.exited);
}

// ---- many replicas ----

struct Replica {
    core: Controller,
    /// Its own clock.
    boot_ms: u64,
    wall_ms: i64,
    calls: BTreeMap<(u64, u64), (CallId, CallResult)>,
    /// Until this time it receives nothing and does nothing.
    frozen_until: u64,
}

impl Replica {
    fn new(at: u64, rng: &mut Rng) -> Self {
        let (boot_ms, wall_ms) =
            (rng.below(1 << 30), 1_800_000_000_000 + rng.below(1 << 30) as i64);
        let now = Now { boot: Instant(boot_ms), wall: Some(Wall(wall_ms)) };
        let identity = format!("r{at}-{}", rng.bits());
        let candidate = Some(Candidate { identity, namespace: "k".to_owned() });
        let config = Config { sync: SyncStore::Objects, candidate, ..config() };
        let core = Controller::boot(config, now, rng.bits());
        let mut one = Self { core, boot_ms, wall_ms, calls: BTreeMap::new(), frozen_until: 0 };
        one.core.handle(now, Event::Loaded(Vec::new()));
        one
    }

    fn now(&self, ms: u64) -> Now {
        let wall = Some(Wall(self.wall_ms + ms as i64));
        Now { boot: Instant(self.boot_ms + ms), wall }
    }

    fn leads(&self) -> bool {
        self.core.counters().leads
    }
}

/// Three replicas at one API server that is slow and loses answers; they freeze and die. There are
/// never two leaders, and sometimes there is one.
#[test]
fn there_are_never_two_leaders() {
    let (mut led, mut changes) = (0_u64, 0_u64);
    for seed in 1..40 {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::default();
        let mut all: Vec<Replica> = (0..3).map(|at| Replica::new(at, &mut rng)).collect();
        let (lost, slow_ms) = (rng.below(300), [1, 300, 4_000, 14_000][rng.below(4) as usize]);
        let mut last = 0;
        for ms in (0..200_000).step_by(50) {
            for (at, one) in all.iter_mut().enumerate() {
                if rng.below(6_000) == 0 {
                    *one = Replica::new(at as u64, &mut rng);
                }
                if rng.below(3_000) == 0 {
                    one.frozen_until = ms + rng.below(30_000);
                }
                if one.frozen_until <= ms {
                    turn(one, ms, &mut rng, &mut cluster, (lost, slow_ms), &mut last);
                }
            }
            // A frozen one does nothing, whatever it considers itself.
            let leaders = all.iter().filter(|one| one.frozen_until <= ms && one.leads()).count();
            assert!(leaders <= 1, "SEED={seed} at {ms} ms: {leaders} lead");
            led += leaders as u64;
        }
        let lease = cluster.objects.get(&lease_name());
        changes += lease.map_or(0, |it| it["spec"]["leaseTransitions"].as_u64().unwrap_or(0));
    }
    assert!(led > 1_000 && changes > 20, "{led} {changes}: this shows nothing");
}

fn turn(
    one: &mut Replica,
    ms: u64,
    rng: &mut Rng,
    cluster: &mut Cluster,
    (lost, slow_ms): (u64, u64),
    last: &mut u64,
) {
    let now = one.now(ms);
    let later = one.calls.split_off(&(ms + 1, 0));
    for (_, (id, result)) in std::mem::replace(&mut one.calls, later) {
        one.core.handle(now, Event::Called(id, result));
    }
    loop {
        let mut out = Out::default();
        one.core.step(now, &mut out);
        let mut repeated = false;
        for action in out.actions {
            match action {
                Action::List(id, _) => {
                    one.core.handle(now, Event::Watched(id, WatchFact::ListEnd("1".into())));
                    repeated = true;
                }
                Action::Call(id, call) => {
                    // It takes effect at once or not at all; the answer comes late or never.
                    let is_lost = rng.below(1_000) < lost;
                    let result = if is_lost && rng.below(2) == 0 {
                        Err(CallError::Lost("drawn".to_owned()))
                    } else {
                        cluster.call(&call)
                    };
                    let lost = || Err(CallError::Lost("drawn".to_owned()));
                    *last += 1;
                    let at = ms + rng.below(slow_ms);
                    let result = if is_lost { lost() } else { result };
                    one.calls.insert((at, *last), (id, result));
                }
                _ => {}
            }
        }
        if !repeated {
            return;
        }
    }
}
