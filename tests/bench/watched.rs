//! An agent whose log lines are timed as they arrive.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::agent::Site;
use crate::support::guard;

/// A running agent. Dropping it kills it; its pods stay.
pub struct Watched {
    child: Child,
    lines: Receiver<(Instant, String)>,
    /// The last lines, for messages.
    tail: Vec<String>,
}

/// Longer than any operation takes here, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

impl Watched {
    /// Starts one with its log on a pipe.
    pub fn start(site: &Site) -> Watched {
        Self::start_by(site.command())
    }

    /// The same with another build.
    pub fn start_of(site: &Site, program: &Path) -> Watched {
        let made = site.command();
        let mut command = Command::new(program);
        command.args(made.get_args());
        for (name, value) in made.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        Self::start_by(command)
    }

    /// The same with a command that execs it.
    pub fn start_by(mut command: Command) -> Watched {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built beside this benchmark");
        guard::keep(guard::Left::Process(child.id()));
        let log = child.stderr.take().expect("it is piped");
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if to.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Watched { child, lines, tail: Vec::new() }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until this many pods have logged this; returns when the last one did.
    pub fn wait(&mut self, count: usize, what: &str) -> Instant {
        let mut reported = BTreeSet::new();
        loop {
            let (at, line) = self.line(what);
            if line.contains(what) {
                let pod = line.split(' ').find(|word| word.starts_with("pod="));
                reported.insert(pod.map_or_else(|| line.clone(), str::to_owned));
                if reported.len() == count {
                    return at;
                }
            }
        }
    }

    fn line(&mut self, what: &str) -> (Instant, String) {
        let Ok((at, line)) = self.lines.recv_timeout(PATIENCE) else {
            panic!("no «{what}» from the agent; its last lines:\n{}", self.tail.join("\n"));
        };
        if self.tail.len() == 40 {
            self.tail.remove(0);
        }
        self.tail.push(line.clone());
        (at, line)
    }

    /// Waits until it has connected and is ready.
    pub fn wait_ready(&mut self) {
        self.wait(1, "runtime ready");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

/// The log line of a running pod.
pub const RUNS: &str = "status=Running";
/// The log line of a pod of which nothing is left.
pub const GONE: &str = "phase=Finished";
