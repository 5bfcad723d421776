//! Draws probes and hooks for a container, and how the container answers them.

use edged::model::pod::Container;
use edged::model::probe::{Exec, Handler, HttpGet, Lifecycle, Port, Probe, ProbeKind};

use crate::chance::Chance;
use crate::program::{Behaviour, HookOutcome, Program, Term};

/// Gives some containers probes and hooks. `port` is the container's own.
pub fn give(container: &mut Container, port: u16, chance: &mut Chance) {
    if !cfg!(feature = "probes") || chance.percent(45) {
        return;
    }
    let mut program = Program::of(&container.command);
    let slow_start = chance.percent(40);
    let sick = chance.percent(15);
    program.behaviour = Behaviour {
        port,
        well_ms: if slow_start { chance.spread(20_000) } else { 0 },
        sick_ms: if sick { chance.between(20_000, 300_000) } else { 0 },
        ..Behaviour::default()
    };
    if sick {
        // It will be stopped again and again.
        program.term = Term::End(chance.spread(2_000), 143);
    }
    if chance.percent(25) {
        container.startup_probe = Some(Box::new(probe(ProbeKind::Startup, port, chance)));
    }
    if chance.percent(50) {
        container.readiness_probe = Some(Box::new(probe(ProbeKind::Readiness, port, chance)));
    }
    if chance.percent(50) {
        let mut probe = probe(ProbeKind::Liveness, port, chance);
        if container.startup_probe.is_none() && slow_start {
            probe.initial_delay_seconds = 20;
        }
        container.liveness_probe = Some(Box::new(probe));
    }
    hooks(container, &mut program, chance);
    container.command = program.command();
}

fn hooks(container: &mut Container, program: &mut Program, chance: &mut Chance) {
    let mut lifecycle = Lifecycle::default();
    if chance.percent(15) {
        program.behaviour.post = match chance.below(10) {
            0..7 => HookOutcome::Well,
            7..9 => HookOutcome::Slow(chance.spread(60_000)),
            _ => HookOutcome::Fails,
        };
        lifecycle.post_start = Some(exec("post"));
    }
    if chance.percent(25) {
        program.behaviour.pre = match chance.below(10) {
            0..6 => HookOutcome::Well,
            6..9 => HookOutcome::Slow(chance.spread(400_000)),
            _ => HookOutcome::Fails,
        };
        lifecycle.pre_stop = Some(exec("pre"));
    }
    if lifecycle != Lifecycle::default() {
        container.lifecycle = Some(Box::new(lifecycle));
    }
}

fn probe(kind: ProbeKind, port: u16, chance: &mut Chance) -> Probe {
    let word = kind.title().to_lowercase();
    let handler = if chance.percent(50) {
        exec(&word)
    } else {
        let get = HttpGet {
            path: format!("/{word}"),
            port: Port::Number(port.into()),
            ..HttpGet::default()
        };
        Handler { http_get: Some(get), ..Handler::default() }
    };
    let some = |chance: &mut Chance, most: u64| chance.below(most + 1) as i32;
    let readiness = kind == ProbeKind::Readiness;
    Probe {
        handler,
        initial_delay_seconds: some(chance, 15),
        timeout_seconds: some(chance, 5),
        period_seconds: some(chance, 20),
        success_threshold: if readiness { some(chance, 3) } else { 0 },
        failure_threshold: if kind == ProbeKind::Startup { 10 } else { some(chance, 4) },
        termination_grace_period_seconds: (!readiness && chance.percent(20))
            .then(|| chance.between(1, 20) as i64),
    }
}

fn exec(word: &str) -> Handler {
    let command = vec!["ask".to_owned(), word.to_owned()];
    Handler { exec: Some(Exec { command }), ..Handler::default() }
}
