//! Crashes of the agent, of a container, of a sandbox. And the agent's orderly stop.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use edged::limits::SHUTDOWN_MS;
use edged::wire::cri::container::{ContainerState, ContainerStatus};
use edged::wire::cri::sandbox::StopPodSandboxRequest;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::World;
use crate::support::agent::{Agent, Pod, Site, manifest, sleeper};
use crate::support::cri::Cri;
use crate::support::wait::until;
use crate::support::{http, process, runtime_state};

crate::tests![
    pods_do_not_notice_that_the_agent_is_killed_again_and_again,
    a_killed_container_is_started_again_and_one_that_crashes_on_is_put_off,
    a_killed_sandbox_is_replaced_and_its_init_containers_run_again,
    a_stopped_sandbox_is_replaced,
    what_is_gone_behind_the_runtimes_back_is_not_removed_without_end,
    the_agent_ends_on_sigterm_and_leaves_its_pods_running,
    an_agent_that_is_told_to_end_tears_no_start,
    the_agent_takes_sighup_and_leaves_no_zombies,
];

/// Container id and start time of everything that runs.
fn running(site: &Site) -> BTreeMap<String, i64> {
    let state = site.runtime_state();
    let running = state.containers.iter().filter(|one| one.state() == ContainerState::Running);
    running
        .map(|one| {
            let (status, _): (ContainerStatus, _) =
                runtime_state::container(&site.runtime, &one.id);
            (one.id.clone(), status.started_at)
        })
        .collect()
}

fn all_run(site: &Site, names: &[String]) {
    for name in names {
        site.wait_running(name);
    }
}

fn one_of_each(site: &Site, names: &[String]) {
    for name in names {
        let pod = site.pod(name).expect("it is wanted");
        let state = site.runtime_state().of(pod.uid());
        assert_eq!(state.ready().len(), 1, "{name}: {}", state.short());
        assert_eq!(state.running("main").len(), 1, "{name}: {}", state.short());
        // A runtime cancels a start whose caller has gone, and counts it; no container that ran may
        // have been started again.
        let main = pod.container("main");
        let cancelled = main["lastState"]["terminated"]["reason"] == "StartError";
        assert!(pod.restarts("main") == u64::from(cancelled), "{name}: {}", pod.0["status"]);
    }
}

fn pods_do_not_notice_that_the_agent_is_killed_again_and_again(world: &World) {
    let site = world.site("crashes-agent");
    let mut names: Vec<String> = (0..3).map(|n| format!("old{n}")).collect();
    let agent = site.start();
    for name in &names {
        site.put(&format!("{name}.yaml"), &sleeper(name));
    }
    all_run(&site, &names);
    let mut before = running(&site);
    assert_eq!(before.len(), 3);
    let mut agent = Some(agent);
    // Times from before the first call for a new pod to after its last, in random order.
    for (round, delay_ms) in [7, 140, 33, 260, 75].into_iter().enumerate() {
        let new = [format!("new{round}a"), format!("new{round}b")];
        for name in &new {
            site.put(&format!("{name}.yaml"), &sleeper(name));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        agent.take().expect("one runs").kill();
        agent = Some(site.start());
        names.extend(new);
        all_run(&site, &names);
        let after = running(&site);
        for (id, started_at) in &before {
            assert_eq!(after.get(id), Some(started_at), "round {round}: {id} was restarted");
        }
        assert_eq!(after.len(), names.len(), "round {round}: {}", site.runtime_state().short());
        one_of_each(&site, &names);
        before = after;
    }
    for name in &names {
        site.take(&format!("{name}.yaml"));
    }
    site.wait_empty();
}

fn a_killed_container_is_started_again_and_one_that_crashes_on_is_put_off(world: &World) {
    let site = world.site("crashes-container");
    let _agent = site.start();
    site.put("victim.yaml", &sleeper("victim"));
    let first = site.wait_running("victim");
    let id = first.container_id("main");
    process::signal(runtime_state::pid_of(&site.runtime, &id), Signal::SIGKILL);
    let second = site.wait("victim", "restarted", |pod| pod.runs() && pod.restarts("main") == 1);
    assert_ne!(second.container_id("main"), id);
    let ended = &second.container("main")["lastState"]["terminated"];
    assert_eq!(ended["exitCode"], 137, "{ended}");
    assert_eq!(
        ended["containerID"],
        format!("{}://{id}", crate::support::containerd::kind().name())
    );
    assert!(site.log_file(&second, "main", 1).exists());
    assert_eq!(site.runtime_state().of(second.uid()).sandboxes.len(), 1, "the sandbox stays");

    // The second exit within ten seconds of the first restart is delayed.
    let id = second.container_id("main");
    process::signal(runtime_state::pid_of(&site.runtime, &id), Signal::SIGKILL);
    let crashing = site
        .wait("victim", "in CrashLoopBackOff", |pod| pod.waits_for("main") == "CrashLoopBackOff");
    let uid = crashing.uid();
    let expected =
        format!("back-off 10s restarting failed container=main pod=victim-gw_default({uid})");
    assert_eq!(crashing.container("main")["state"]["waiting"]["message"], expected);
    assert_eq!(crashing.phase(), "Running");
    assert_eq!(crashing.condition("Ready"), "False");
    let third = site.wait("victim", "restarted", |pod| pod.runs() && pod.restarts("main") == 2);
    let ended_at = finished_at(&site, &id);
    let (status, _) = runtime_state::container(&site.runtime, &third.container_id("main"));
    let waited_ms = (status.started_at - ended_at) / 1_000_000;
    assert!(waited_ms >= 10_000, "waited {waited_ms} ms, expected the back-off of 10 s");
    site.take("victim.yaml");
    site.wait_gone(&third);
}

fn finished_at(site: &Site, id: &str) -> i64 {
    runtime_state::container(&site.runtime, id).0.finished_at
}

fn with_init(name: &str) -> String {
    manifest(
        name,
        "  hostNetwork: true\n  initContainers:\n  - name: prepare\n    \
         image: localhost/edged-demo:1\n    command: [sh, -c, 'echo prepared']\n",
        "    command: [sh, -c, 'trap \"exit 0\" TERM; sleep 100000 & wait']\n",
    )
}

fn replaced(site: &Site, name: &str, before: &Pod, old_id: &str) -> Pod {
    let after = site.wait(name, "running in a new sandbox", |pod| {
        pod.runs() && pod.container_id("main") != before.container_id("main")
    });
    let state = site.runtime_state().of(after.uid());
    let [sandbox] = state.ready()[..] else { panic!("{}", state.short()) };
    assert_ne!(sandbox.id, old_id);
    assert_eq!(sandbox.metadata.clone().map(|it| it.attempt), Some(1), "{}", state.short());
    assert_eq!(after.restarts("main"), 1);
    assert_eq!(after.restarts("prepare"), 1, "init containers run again");
    assert_ne!(after.container_id("prepare"), before.container_id("prepare"));
    until("the log has the reason", || {
        let expected = site.log();
        let line = "Pod sandbox changed, it will be killed and re-created.";
        if expected.contains("SandboxChanged") && expected.contains(line) {
            Ok(())
        } else {
            Err(expected)
        }
    });
    after
}

fn a_killed_sandbox_is_replaced_and_its_init_containers_run_again(world: &World) {
    let site = world.site("crashes-sandbox");
    let _agent = site.start();
    site.put("boxed.yaml", &with_init("boxed"));
    let before = site.wait_running("boxed");
    let sandbox = site.runtime_state().of(before.uid()).ready()[0].id.clone();
    process::signal(runtime_state::sandbox_pid_of(&site.runtime, &sandbox), Signal::SIGKILL);
    let after = replaced(&site, "boxed", &before, &sandbox);
    site.take("boxed.yaml");
    site.wait_gone(&after);
}

fn a_stopped_sandbox_is_replaced(world: &World) {
    let site = world.site("crashes-stopped");
    let _agent = site.start();
    site.put("halted.yaml", &with_init("halted"));
    let before = site.wait_running("halted");
    let sandbox = site.runtime_state().of(before.uid()).ready()[0].id.clone();
    let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    Cri::connect(&site.runtime).expect("it listens").call(&request).expect("it stops");
    let after = replaced(&site, "halted", &before, &sandbox);
    site.take("halted.yaml");
    site.wait_gone(&after);
}

fn the_agent_ends_on_sigterm_and_leaves_its_pods_running(world: &World) {
    let site = world.site("crashes-term");
    let agent = site.start();
    site.put("stays.yaml", &sleeper("stays"));
    let pod = site.wait_running("stays");
    let id = pod.container_id("main");
    let pid = runtime_state::pid_of(&site.runtime, &id);
    let status = agent.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(process::lives(pid), "the container lives on without the agent");
    // While no agent runs, another container ends; the next agent finds out by itself.
    site.put("late.yaml", &sleeper("late"));
    let _agent = site.start();
    let pod = site.wait_running("stays");
    assert_eq!((pod.container_id("main"), pod.restarts("main")), (id, 0));
    assert!(process::lives(pid));
    site.wait_running("late");
    site.take("stays.yaml");
    site.take("late.yaml");
    site.wait_empty();
}

fn an_agent_that_is_told_to_end_tears_no_start(world: &World) {
    let site = world.site("crashes-start");
    let (mut slow, mut begun) = (Vec::new(), Vec::new());
    // Times from before the first call for a pod to after its last.
    let names: Vec<String> = (0..8).map(|round| format!("new{round}")).collect();
    for (name, delay_ms) in names.iter().zip([15, 40, 65, 90, 115, 140, 170, 210]) {
        let agent = site.start();
        agent.wait_listening();
        // So that only the latest one is under way when this agent ends.
        for name in begun.drain(..) {
            site.wait_running(name);
        }
        site.put(&format!("{name}.yaml"), &sleeper(name));
        begun.push(name);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let expected = Instant::now();
        let status = agent.terminate();
        assert_eq!(status.code(), Some(0), "{status}");
        if expected.elapsed() >= Duration::from_millis(SHUTDOWN_MS) {
            slow.push(name);
        }
    }
    assert!(slow.len() < names.len(), "every runtime call took too long: nothing is shown");
    let _agent = site.start();
    for name in &names {
        let pod = site.wait_running(name);
        // If the runtime takes longer than the agent may wait, the agent closes the connection, for
        // the pod that was being created then.
        let excused = slow.contains(&name);
        assert!(excused || pod.restarts("main") == 0, "{name}: {}", pod.0["status"]);
        site.take(&format!("{name}.yaml"));
    }
    site.wait_empty();
}

fn the_agent_takes_sighup_and_leaves_no_zombies(world: &World) {
    let site = world.site("crashes-hup");
    let mut agent = site.start();
    agent.wait_listening();
    agent.signal(Signal::SIGHUP);
    for n in 0..4 {
        site.put(&format!("z{n}.yaml"), &sleeper(&format!("z{n}")));
    }
    let pods: Vec<Pod> = (0..4).map(|n| site.wait_running(&format!("z{n}"))).collect();
    agent.signal(Signal::SIGHUP);
    for (n, pod) in pods.iter().enumerate() {
        site.take(&format!("z{n}.yaml"));
        site.wait_gone(pod);
    }
    assert!(agent.lives(), "{}", site.log_tail());
    no_children(&agent);
}

fn no_children(agent: &Agent<'_>) {
    until("no child is left, dead or alive", || {
        let children = process::children(agent.pid());
        if children.is_empty() { Ok(()) } else { Err(format!("{children:?}")) }
    });
}

/// The value of this metric in `/metrics`.
fn metric(site: &Site, name: &str) -> Result<u64, String> {
    let page = http::get(site.api, "/metrics").map_err(|error| error.to_string())?.body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.map_or(0, |value| value.parse::<f64>().expect("a number") as u64))
}

/// `ctr` removes a container that CRI continues to list, and answers with NotFound on its removal.
fn what_is_gone_behind_the_runtimes_back_is_not_removed_without_end(world: &World) {
    const LISTED: &str = "edged_removed_objects_listed";
    const REMOVALS: &str = "kubelet_runtime_operations_total{operation_type=\"remove_container\"}";
    let site = world.site("crashes-gone");
    let agent = site.start();
    site.put("gone.yaml", &sleeper("gone"));
    let pod = site.wait_running("gone");
    agent.kill();
    site.take("gone.yaml");
    let state = site.runtime_state().of(pod.uid());
    let containers = state.containers.iter().map(|one| one.id.clone());
    for id in containers.chain(state.sandboxes.iter().map(|one| one.id.clone())) {
        world.containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", &id]);
        until("its task is gone", || {
            let tasks = world.containerd.ctr(&["tasks", "list", "--quiet"]);
            if tasks.contains(&id) { Err(tasks) } else { Ok(()) }
        });
        world.containerd.ctr(&["containers", "remove", &id]);
    }
    let agent = site.start();
    until("their removal is logged", || match metric(&site, LISTED)? {
        0 => Err(site.log_tail()),
        _ => Ok(()),
    });
    // Otherwise it would be hundreds.
    std::thread::sleep(Duration::from_secs(10));
    let removals = metric(&site, REMOVALS).expect("it answers");
    assert!((1..=8).contains(&removals), "{removals} removals\n{}", site.log_tail());
    let gone =
        |line: &&str| line.contains("the runtime reports that it is gone, but still lists it");
    let expected = agent.log().lines().filter(gone).count();
    assert!((1..=2).contains(&expected), "{expected} lines of it\n{}", agent.log());
    // After a restart the runtime does not list them any more.
    world.containerd.kill();
    site.wait_trouble("it is away", Value::is_string);
    world.containerd.start_daemon();
    site.wait_trouble("nothing, it is back", Value::is_null);
    site.wait_empty();
    until("nothing is counted any more", || match metric(&site, LISTED)? {
        0 => Ok(()),
        more => Err(more.to_string()),
    });
}
