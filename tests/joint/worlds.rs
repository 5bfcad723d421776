//! Worlds that are drawn from a seed: users change objects while links break and both sides are
//! started again. In the end each pod of the API server runs, with the latest ConfigMaps.

use std::collections::BTreeMap;

use edged::controller::SyncStore;
use edged::controller::time::Rng;
use edged::limits::UNUSED_MS;
use edged::model::api::Kind;
use edged::model::cri::ContainerState;

use crate::controller::world::Faults;
use crate::joint::{Joint, config_map, name, pod};

/// So many worlds, unless `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 40;
const TURNS: u64 = 40;

/// The last value of each ConfigMap that exists.
type Maps = [Option<u64>; 3];

struct Drawn {
    joint: Joint,
    rng: Rng,
    maps: Maps,
    /// The pods that are wanted, and the ConfigMap of each.
    pods: BTreeMap<usize, Option<usize>>,
    last: u64,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let (joint, rng) = draw(seed);
        Self { joint, rng, maps: Maps::default(), pods: BTreeMap::new(), last: 0 }
    }

    fn map_changes(&mut self, at: usize) {
        self.last += 1;
        self.maps[at] = Some(self.last);
        self.joint.apply(Kind::ConfigMap, config_map(&format!("m{at}"), &self.last.to_string()));
    }

    fn turn(&mut self) {
        let (pod_at, map_at) = (self.rng.below(4) as usize, self.rng.below(3) as usize);
        let pod_name = format!("p{pod_at}");
        match self.rng.below(16) {
            0..=2 => {
                let exists =
                    self.joint.world.cluster.objects.contains_key(&name(Kind::Pod, &pod_name));
                if !exists {
                    let map = Some(map_at).filter(|_| self.rng.below(4) > 0);
                    self.pods.insert(pod_at, map);
                    let map = map.map(|at| format!("m{at}"));
                    self.joint.apply(Kind::Pod, pod(&pod_name, map.as_deref()));
                }
            }
            3..=4 => {
                self.pods.remove(&pod_at);
                self.joint.delete_pod(&pod_name);
            }
            5..=6 => self.map_changes(map_at),
            7 => {
                self.maps[map_at] = None;
                self.joint.remove(Kind::ConfigMap, &format!("m{map_at}"));
            }
            8..=12 => Fault::draw(&mut self.rng).befall(&mut self.joint, &mut self.rng),
            13 => {
                // By force, and at once another of this name.
                self.pods.insert(pod_at, None);
                self.joint.remove(Kind::Pod, &pod_name);
                self.joint.apply(Kind::Pod, pod(&pod_name, None));
            }
            _ => self.container_exits(),
        }
        let ms = match self.rng.below(10) {
            0..=5 => self.rng.below(3_000),
            6..=8 => self.rng.below(60_000),
            _ => UNUSED_MS + self.rng.below(120_000),
        };
        self.joint.pass(ms);
        if self.rng.below(4) == 0 {
            self.joint.is_reachable = true;
        }
    }

    fn container_exits(&mut self) {
        let all = &mut self.joint.node.harness.containers;
        if let Some(one) = all.iter_mut().find(|it| it.state == ContainerState::Running) {
            one.state = ContainerState::Exited;
        }
    }

    /// All faults end, and what a pod needs exists.
    fn heal(&mut self) {
        heal(&mut self.joint);
        for at in 0..self.maps.len() {
            if self.maps[at].is_none() {
                self.map_changes(at);
            }
        }
        self.joint.pass(2 * UNUSED_MS);
    }
}

/// A number from the environment.
fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: got {text}, expected a number")))
}

fn seeds() -> std::ops::Range<u64> {
    let only = given("SEED").map(|seed| seed..seed + 1);
    only.unwrap_or_else(|| {
        let first = given("SIM_FIRST").unwrap_or(1);
        first..first + given("SIM_SEEDS").unwrap_or(SEEDS)
    })
}

/// Runs a world of each seed.
#[expect(clippy::print_stderr, reason = "of a failing world, its seed")]
pub(crate) fn each_seed(run: impl Fn(u64)) {
    for seed in seeds() {
        let world = std::panic::AssertUnwindSafe(|| run(seed));
        if let Err(why) = std::panic::catch_unwind(world) {
            eprintln!("seed {seed}: SEED={seed} runs it alone");
            std::panic::resume_unwind(why);
        }
    }
}

/// What befalls both sides and the link between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The link breaks, and may not come back.
    Link,
    /// The agent is killed, and started again.
    Agent,
    /// It is told to end, and started again.
    Stop,
    /// edgecontroller is killed, and started again.
    Cloud,
    /// The agent starts without its store.
    Store,
    /// The Node is deleted.
    Node,
}

impl Fault {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let all = [Self::Link, Self::Agent, Self::Stop, Self::Cloud, Self::Store, Self::Node];
        all[rng.below(all.len() as u64) as usize]
    }

    pub(crate) fn befall(self, joint: &mut Joint, rng: &mut Rng) {
        match self {
            Self::Link => {
                joint.is_reachable = rng.below(2) == 0;
                joint.cut();
            }
            Self::Agent => joint.restart_agent(),
            Self::Stop => joint.stop_agent(),
            Self::Cloud => joint.world.crash(),
            Self::Store => joint.lose_store(),
            Self::Node => joint.delete_node(),
        }
    }
}

/// All faults end.
pub(crate) fn heal(joint: &mut Joint) {
    joint.world.faults = Faults::default();
    joint.is_reachable = true;
}

/// Both sides, with faults of this world, and what draws what happens.
pub(crate) fn draw(seed: u64) -> (Joint, Rng) {
    let mut rng = Rng::new(seed);
    let sync = if rng.below(2) == 0 { SyncStore::Table } else { SyncStore::Objects };
    let mut joint = Joint::new(sync, seed);
    let rate = |rng: &mut Rng, most: u64| if rng.below(2) == 0 { 0 } else { rng.below(most) };
    joint.world.faults = Faults {
        call_lost: rate(&mut rng, 100),
        save_fails: rate(&mut rng, 100),
        watch_ends: rate(&mut rng, 50),
        delay_ms: rate(&mut rng, 500),
    };
    (joint, rng)
}

#[test]
fn whatever_happens_the_node_ends_up_as_the_api_server_wants_it() {
    each_seed(|seed| {
        let mut drawn = Drawn::new(seed);
        for _ in 0..TURNS {
            drawn.turn();
        }
        drawn.heal();
        drawn.joint.is_settled();
        let wanted = drawn.pods.len();
        assert_eq!(drawn.joint.wanted().len(), wanted);
        for at in drawn.pods.values().flatten() {
            let kept = drawn.joint.kept(&format!("m{at}"));
            assert_eq!(kept, drawn.maps[*at].map(|value| value.to_string()), "m{at}");
        }
    });
}
