//! `edged-run` with a built-in runtime: two processes, each started again by itself, and upgrades
//! of both.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::keeper::{Gateway, good, lives};
use crate::until;

/// An edged whose agent takes the runtime that the file `choice` names, and whose server executes
/// its program anew at HUP. Both note their starts and ends in `noted`.
fn with_server(name: &str) -> String {
    let server = "runtime)
    case \" $* \" in *' --choose '*)
        echo \"$*\" >$TOP/asked
        exec cat $TOP/choice
        ;;
    esac
    trap 'echo server ends >>$TOP/noted; exit 0' TERM
    trap 'exec \"$0\" \"$@\"' HUP
    echo server NAME $$ $* >>$TOP/noted
    echo NAME >$TOP/served
    while :; do sleep 1 & wait $!; done
    ;;
run)";
    // What is noted can be told to end.
    let agent = "trap 'echo agent ends >>$TOP/noted; exit 0' TERM
    echo agent NAME \"$*\" >>$TOP/noted";
    good(name)
        .replacen("run)", server, 1)
        .replacen("trap 'exit 0' TERM", agent, 1)
        .replace("NAME", name)
}

/// A gateway whose flashed edged has a server, and its choice.
fn gateway(choice: &str) -> Gateway {
    let gateway = Gateway::new();
    gateway.scratch.program("edged-flashed", &with_server("flashed"));
    choose(&gateway, choice);
    gateway
}

fn choose(gateway: &Gateway, choice: &str) {
    let socket = gateway.scratch.path("run/rt/sock").display().to_string();
    let text = choice.replace("BUILTIN", &format!("ttrpc://{socket}"));
    fs::write(gateway.scratch.path("choice"), text).expect("a file of ours");
}

const BUILTIN: &str = "chosen BUILTIN no socket is there\n";

fn serves(gateway: &Gateway, name: &str) {
    until(&format!("{name} serves"), || gateway.scratch.read("served") == name);
}

fn server(gateway: &Gateway) -> Pid {
    let pid = || gateway.scratch.read("run/edged-runtime.pid");
    until("a server runs", || !pid().is_empty());
    Pid::from_raw(pid().parse().expect("a pid"))
}

fn noted(gateway: &Gateway) -> Vec<String> {
    gateway.scratch.read("noted").lines().map(str::to_owned).collect()
}

/// An agent that has not noted its start yet would end without a word.
fn begun(gateway: &Gateway, times: usize) {
    let count = || noted(gateway).iter().filter(|line| line.starts_with("agent flashed")).count();
    until(&format!("an agent has begun {times} times"), || count() == times);
}

fn upgrade(gateway: &Gateway, name: &str, text: &str) {
    let new: PathBuf = gateway.scratch.program(name, text);
    assert!(gateway.upgrade(&new).status.success());
}

#[test]
fn each_is_started_again_by_itself_and_term_ends_the_agent_first() {
    let mut gateway = gateway(BUILTIN);
    gateway.start();
    serves(&gateway, "flashed");
    begun(&gateway, 1);
    let (agent, first) = (gateway.pid(), server(&gateway));
    kill(first, Signal::SIGKILL).expect("it runs");
    until("another server runs", || {
        let now = gateway.scratch.read("run/edged-runtime.pid");
        !now.is_empty() && now != first.to_string()
    });
    assert!(lives(agent), "the agent lives on without a server");
    let second = server(&gateway);
    let servers = || noted(&gateway).iter().filter(|line| line.starts_with("server f")).count();
    until("it has begun", || servers() == 2);
    kill(agent, Signal::SIGKILL).expect("it runs");
    until("another agent runs", || {
        let now = gateway.scratch.read("run/edged.pid");
        !now.is_empty() && now != agent.to_string()
    });
    let agent = gateway.pid();
    assert_eq!((server(&gateway), lives(second)), (second, true), "the server lives on");
    begun(&gateway, 2);
    gateway.stop();
    assert!(!lives(agent) && !lives(second), "something outlives its keeper");
    let all = noted(&gateway);
    assert_eq!(all[all.len() - 2..], ["agent ends", "server ends"]);
    let run = gateway.scratch.path("run").display().to_string();
    let agents: Vec<_> = all.iter().filter(|line| line.starts_with("agent flashed")).collect();
    let agent = format!("agent flashed run --runtime ttrpc://{run}/rt/sock");
    assert_eq!(agents, [&agent, &agent], "what was asked is what the agent takes");
    let server = format!("runtime --run-dir {run}/rt");
    assert!(all.iter().any(|line| line.ends_with(&server)), "{all:?}");
    assert_eq!(gateway.scratch.read("asked"), "runtime --choose");
}

/// Where the agent's configuration is elsewhere, the server's part of it is there as well.
#[test]
fn the_server_reads_the_file_of_the_agent() {
    let mut gateway = gateway(BUILTIN);
    gateway.flags = "--log warn --config /etc/other.yaml";
    gateway.start();
    serves(&gateway, "flashed");
    let asked = gateway.scratch.read("asked");
    assert_eq!(asked, "runtime --choose --log warn --config /etc/other.yaml");
    let run = gateway.scratch.path("run").display().to_string();
    let server = format!("runtime --config /etc/other.yaml --run-dir {run}/rt");
    assert!(noted(&gateway).iter().any(|line| line.ends_with(&server)), "{:?}", noted(&gateway));
}

#[test]
fn an_upgrade_gives_the_server_the_new_program_in_its_place() {
    let mut gateway = gateway(BUILTIN);
    gateway.start();
    serves(&gateway, "flashed");
    let pid = server(&gateway);
    upgrade(&gateway, "new", &with_server("new"));
    gateway.runs("new");
    serves(&gateway, "new");
    until("it is trusted", || gateway.is_trusted());
    assert_eq!((server(&gateway), lives(pid)), (pid, true), "it is still the parent");
    assert_eq!(gateway.current(), "a");
    let server = |line: &&String| line.starts_with("server new");
    let all = noted(&gateway);
    assert_eq!(all.iter().filter(server).count(), 1, "{all:?}");
    // And back again.
    assert!(gateway.command().arg("back").status().expect("busybox runs").success());
    gateway.runs("flashed");
    serves(&gateway, "flashed");
    assert_eq!(gateway.scratch.read("run/edged-runtime.pid"), pid.to_string());
}

#[test]
fn an_upgrade_whose_server_fails_is_left_by_both() {
    for fails in ["exit 1", "sleep 1; exit 1"] {
        let mut gateway = gateway(BUILTIN);
        gateway.trial_s = "4";
        gateway.start();
        serves(&gateway, "flashed");
        let broken = with_server("new").replacen("trap", &format!("{fails}\ntrap"), 1);
        upgrade(&gateway, "new", &broken);
        gateway.runs("new");
        gateway.runs("flashed");
        until("the server is the one before", || {
            let line = noted(&gateway).into_iter().rfind(|line| line.starts_with("server"));
            line.is_some_and(|line| {
                let pid = gateway.scratch.read("run/edged-runtime.pid");
                !pid.is_empty() && line.starts_with(&format!("server flashed {pid} "))
            })
        });
        assert!(gateway.is_trusted());
        assert_eq!(gateway.current(), "", "{fails}");
    }
}

#[test]
fn a_server_that_never_answers_is_its_programs_fault() {
    let not_ready = "status) echo 'node       gw'; echo 'runtime    NOT READY: gone'; exit 1";
    for (choice, slot) in [(BUILTIN, ""), ("named unix:///run/c.sock it is configured\n", "a")] {
        let mut gateway = gateway(choice);
        gateway.start();
        gateway.runs("flashed");
        upgrade(&gateway, "new", &with_server("new").replacen("status) exit 0", not_ready, 1));
        gateway.runs("new");
        until("the trial is over", || gateway.is_trusted());
        assert_eq!(gateway.current(), slot, "{choice}");
    }
}

#[test]
fn another_runtime_has_no_server_and_a_mistake_ends_none() {
    let mut gateway = gateway(BUILTIN);
    gateway.start();
    serves(&gateway, "flashed");
    begun(&gateway, 1);
    let first = server(&gateway);
    let again = |gateway: &Gateway| {
        let agents = noted(gateway).iter().filter(|line| line.starts_with("agent ")).count();
        kill(gateway.pid(), Signal::SIGTERM).expect("it runs");
        // Its end, and its start.
        until("the agent is started again", || {
            noted(gateway).iter().filter(|line| line.starts_with("agent ")).count() == agents + 2
        });
    };
    // As with a mistake in edgecore.yaml.
    fs::remove_file(gateway.scratch.path("choice")).expect("it is there");
    again(&gateway);
    assert!(lives(first), "a mistake of the configuration ends no server");
    choose(&gateway, "named unix:///run/c.sock it is configured\n");
    again(&gateway);
    assert!(!lives(first), "nobody takes it");
    let agent = noted(&gateway).pop().expect("it was started");
    assert_eq!(agent, "agent flashed run", "the name stands in its configuration");
    choose(&gateway, BUILTIN);
    again(&gateway);
    assert!(lives(server(&gateway)));
}

#[test]
fn a_keeper_that_was_killed_leaves_no_second_server() {
    let mut gateway = gateway(BUILTIN);
    gateway.start();
    serves(&gateway, "flashed");
    let (agent, left) = (gateway.pid(), server(&gateway));
    let keeper = Pid::from_raw(gateway.scratch.read("run/server.pid").parse().expect("a pid"));
    let mut first = gateway.keeper.take().expect("it runs");
    first.kill().expect("it is our child");
    first.wait().expect("it is our child");
    assert!(lives(agent) && lives(left) && lives(keeper));
    gateway.start();
    gateway.runs("flashed");
    until("another server runs", || {
        let now = gateway.scratch.read("run/edged-runtime.pid");
        !now.is_empty() && now != left.to_string()
    });
    assert!(!lives(agent) && !lives(left) && !lives(keeper), "two of them");
}

/// Nobody has tried it: not even the question may keep the gateway without an agent.
#[test]
fn a_program_that_does_not_answer_is_started_all_the_same() {
    let mut gateway = gateway(BUILTIN);
    let hangs = with_server("flashed").replacen("exec cat $TOP/choice", "exec sleep 600", 1);
    gateway.scratch.program("edged-flashed", &hangs);
    gateway.start();
    gateway.runs("flashed");
    assert!(!gateway.scratch.path("run/edged-runtime.pid").exists());
}
