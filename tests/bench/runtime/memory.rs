//! What the runtimes keep in memory, and what they compute while nothing happens.

use std::path::Path;
use std::time::Duration;

use super::{builtin, name_program, program};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::{Site, sleeper};
use crate::support::containerd::Containerd;
use crate::support::process::{children, command_line, cpu_seconds, pids, pss_kb};
use crate::watched::{RUNS, Watched};

/// Names of [`ten`].
pub const TEN: &[&str] = &["runtime.memory.ten"];
/// Names of [`idle`].
pub const IDLE: &[&str] = &["runtime.idle.thirty"];

/// Long enough for start-up, and for a few rounds of all periodic work.
const SETTLE: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_secs(60);

/// A node with running pods.
struct Node {
    /// Agent, server, and what they hold for each pod, without the pods' own processes.
    parts: Vec<(&'static str, Vec<u32>)>,
    _agent: Watched,
}

impl Node {
    fn start(site: &Site, pods: usize, runtime: &Containerd, is_builtin: bool) -> Self {
        let mut agent = Watched::start_of(site, &program());
        for n in 0..pods {
            site.put(&format!("p{n}.yaml"), &sleeper(&format!("p{n}")));
        }
        agent.wait(pods, RUNS);
        std::thread::sleep(SETTLE);
        let mut parts = vec![("agent", vec![agent.pid()]), ("server", vec![runtime.pid()])];
        if is_builtin {
            parts.push(("monitors", monitors(runtime.dir())));
        } else {
            let shims = shims(&runtime.socket());
            let all = shims.iter().flat_map(|shim| children(*shim));
            let is_pause = |pid: &u32| command_line(*pid).first().is_some_and(|it| it == "/pause");
            let pauses = all.map(|(pid, _)| pid).filter(is_pause).collect();
            parts.extend([("shims", shims), ("pauses", pauses)]);
        }
        for (name, pids) in &parts[2..] {
            assert_eq!(pids.len(), pods, "{name}: {pids:?}");
        }
        Self { parts, _agent: agent }
    }

    /// Megabytes of all, and a line of the parts.
    fn memory(&self) -> f64 {
        let kb = |pids: &[u32]| pids.iter().map(|pid| pss_kb(*pid)).sum::<u64>();
        let of_each: Vec<_> = self.parts.iter().map(|(name, pids)| (*name, kb(pids))).collect();
        eprintln!("bench:   PSS, kB: {of_each:?}");
        of_each.iter().map(|(_, kb)| *kb).sum::<u64>() as f64 / 1_024.0
    }

    fn cpu(&self) -> Vec<f64> {
        let of_part = |pids: &[u32]| pids.iter().map(|pid| cpu_seconds(*pid)).sum::<f64>();
        self.parts.iter().map(|(_, pids)| of_part(pids)).collect()
    }

    /// CPU seconds since then, and a line of the parts.
    fn since(&self, before: &[f64]) -> f64 {
        let of_each: Vec<f64> =
            self.cpu().iter().zip(before).map(|(after, before)| after - before).collect();
        let named: Vec<_> = self.parts.iter().map(|(name, _)| *name).zip(&of_each).collect();
        eprintln!("bench:   CPU seconds: {named:.4?}");
        of_each.iter().sum()
    }
}

/// Monitors have a folder of their runtime among their arguments.
fn monitors(dir: &Path) -> Vec<u32> {
    let folder = dir.join("rt/c");
    having(|word| Path::new(word).parent() == Some(&folder))
}

/// Shims have their containerd's socket among their arguments.
fn shims(socket: &Path) -> Vec<u32> {
    let is_shim = |pid: &u32| command_line(*pid)[0].contains("containerd-shim");
    having(|word| Path::new(word) == socket).into_iter().filter(is_shim).collect()
}

fn having(is_it: impl Fn(&str) -> bool) -> Vec<u32> {
    pids().into_iter().filter(|pid| command_line(*pid).iter().any(|word| is_it(word))).collect()
}

/// Megabytes (PSS) of agent, server and monitors with ten pods; compared with the same agent,
/// containerd, its shims and its pauses. One node after the other, because two agents in the same
/// cgroup are refused, and would share pages of their program.
pub fn ten(rig: &Rig) -> Vec<Figure> {
    name_program();
    rig.wipe();
    let crun = builtin(rig, "crun");
    let node = Node::start(&rig.site_on(crun.socket()), 10, &crun, true);
    let own = node.memory();
    drop(node);
    crun.cut();
    let node = Node::start(&rig.site(), 10, rig.containerd(), false);
    let containerds = node.memory();
    drop(node);
    rig.wipe();
    let (value, reference) = ([own], [containerds]);
    vec![Figure::beside(TEN[0], &value, &reference, "MB", Limit::Most(12.0))]
}

/// CPU seconds a minute with thirty pods, of the same.
pub fn idle(rig: &Rig) -> Vec<Figure> {
    name_program();
    rig.wipe();
    let crun = builtin(rig, "crun");
    let own = cpu_per_minute(&Node::start(&rig.site_on(crun.socket()), 30, &crun, true));
    crun.cut();
    let containerds = cpu_per_minute(&Node::start(&rig.site(), 30, rig.containerd(), false));
    rig.wipe();
    vec![Figure::beside(IDLE[0], &[own], &[containerds], "s/min", Limit::Most(0.05))]
}

fn cpu_per_minute(node: &Node) -> f64 {
    let before = node.cpu();
    std::thread::sleep(WINDOW);
    node.since(&before) * 60.0 / WINDOW.as_secs_f64()
}
