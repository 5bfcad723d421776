//! A full node under a hard bound of memory, with a runtime that does its worst.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fake::{Fake, Mood, UNKIND};
use crate::yard::agent::{Site, manifest};
use crate::yard::process::signal;
use crate::yard::{guard, http, wait};
use crate::{World, tests};

tests![a_full_node_lives_in_sixteen_megabytes_whatever_the_runtime_says];

/// Pods that a node may have.
const PODS: usize = 110;
/// What all of the agent may take, the pages of its files included.
const BYTES_MAX: u64 = 16 << 20;

fn a_full_node_lives_in_sixteen_megabytes_whatever_the_runtime_says(world: &World) {
    let folder = world.folder("memory");
    fs::create_dir_all(&folder).expect("a folder of ours");
    let fake = Fake::start(folder.join("r.sock"));
    let site = Site::new(folder.join("site"), fake.socket().to_owned());
    let cell = Cell::new();
    let made = site.command();
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh"]);
    command.arg(cell.0.join("cgroup.procs")).arg(made.get_program()).args(made.get_args());
    let log = fs::File::create(site.dir.join("memory.log")).expect("a file of ours");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().expect("a shell");
    guard::keep(guard::Left::Process(child.id()));
    for n in 0..PODS {
        site.put(&format!("p{n}.yaml"), &manifest(&format!("p{n}"), "  hostNetwork: true\n", ""));
    }
    let all_run = || {
        let answer = http::get(site.api, "/pods").map_err(|error| error.to_string())?;
        let count = answer.body.matches("\"phase\":\"Running\"").count();
        if count == PODS { Ok(()) } else { Err(format!("{count} run; {}", cell.tells())) }
    };
    wait::until("all pods run", all_run);
    println!("at rest: {}", cell.tells());
    for mood in UNKIND {
        fake.turn(mood);
        // Several looks, and as many connections as are lost.
        std::thread::sleep(Duration::from_secs(5));
        println!("{mood:?}: {}", cell.tells());
        let ended = child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "{mood:?}: it ended with {ended:?}; {}", cell.tells());
    }
    fake.turn(Mood::Kind);
    wait::until("all pods run again", all_run);
    signal(child.id(), Signal::SIGTERM);
    assert!(child.wait().expect("it is our child").success());
}

/// A cgroup of the bounded agent's own, by either version; removed at the end.
struct Cell(PathBuf);

impl Cell {
    fn new() -> Self {
        let name = format!("edged-memory-{}", std::process::id());
        let old = PathBuf::from("/sys/fs/cgroup/memory");
        let (top, file) = if old.is_dir() {
            (old, "memory.limit_in_bytes")
        } else {
            (PathBuf::from("/sys/fs/cgroup"), "memory.max")
        };
        let cell = Self(top.join(name));
        fs::create_dir(&cell.0).expect("cgroups can be made by root");
        fs::write(cell.0.join(file), BYTES_MAX.to_string())
            .expect("the memory controller is there, and bounds can be set");
        cell
    }

    /// What it took at the most, and how often the bound was met.
    fn tells(&self) -> String {
        let files = ["memory.max_usage_in_bytes", "memory.failcnt", "memory.peak", "memory.events"];
        let read = |file: &&str| Some(format!("{file}={}", self.read(file)?));
        files.iter().filter_map(read).collect::<Vec<_>>().join(" ")
    }

    fn read(&self, file: &str) -> Option<String> {
        Some(fs::read_to_string(self.0.join(file)).ok()?.trim().replace('\n', ","))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
