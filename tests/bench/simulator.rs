//! The speed of the simulator, from its own report.

use std::process::Command;

use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::containerd::run;
use crate::support::top;

/// Names of [`speed`].
pub const NAMES: &[&str] = &["sim.hours_per_second"];

/// Seeds of the timed run.
const SEEDS: [&str; 2] = ["1", "200"];

/// Simulated hours per CPU second.
pub fn speed(_: &Rig) -> Vec<Figure> {
    let mut command = Command::new(top().join("scripts/cargo"));
    command.args(["test", "--quiet", "--locked", "--profile", "sim", "--test", "sim", "--"]);
    let reported = run(command.args(SEEDS));
    let hours = reported
        .lines()
        .rev()
        .find_map(|line| {
            let (before, _) = line.split_once(" h per s")?;
            before.rsplit(' ').next()?.parse().ok()
        })
        .unwrap_or_else(|| panic!("the simulator tells no «N h per s»:\n{reported}"));
    vec![Figure::alone(NAMES[0], hours, "h/s", Some(Limit::Least(10.0)))]
}
