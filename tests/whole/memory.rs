//! A full node under a hard memory limit, with a hostile runtime and cloud.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
#[cfg(feature = "cloud")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fake::{Fake, Mood, UNKIND};
use crate::support::agent::{Pod, Site, manifest};
#[cfg(feature = "cloud")]
use crate::support::cloud::{Cloud, Setup};
#[cfg(feature = "cloud")]
use crate::support::harass;
#[cfg(feature = "cloud")]
use crate::support::joined::join;
use crate::support::process::signal;
use crate::support::{guard, wait};
use crate::{World, tests};

tests![
    a_full_node_lives_in_sixteen_megabytes_whatever_the_runtime_says,
    #[cfg(feature = "cloud")]
    it_lives_in_them_whatever_the_cloud_says_as_well,
];

/// The largest number of pods of a node.
const PODS: usize = 110;
/// The memory limit of the agent, with the page cache of its files.
const BYTES_MAX: u64 = 16 << 20;

fn a_full_node_lives_in_sixteen_megabytes_whatever_the_runtime_says(world: &World) {
    let node = Node::start(world, "memory", PODS, |_| ());
    node.runs();
    for mood in UNKIND {
        node.suffer(mood);
    }
    node.fake.turn(Mood::Kind);
    node.runs();
    node.stop();
}

/// Half of the pods are the cloud's, and so are all faults that the runtime does not cause.
#[cfg(feature = "cloud")]
fn it_lives_in_them_whatever_the_cloud_says_as_well(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let node = Node::start(world, "harassed", PODS / 2, |site| join(site, &cloud));
    cloud.connected(1);
    for n in PODS / 2..PODS {
        let (resource, pod) = harass::idle(&format!("p{n}"));
        cloud.put(&resource, pod);
    }
    node.runs();
    let (over, suffering) = (&AtomicBool::new(false), &node);
    std::thread::scope(|scope| {
        let runtime = scope.spawn(move || {
            // A store that accepts the cloud's messages takes its time, and so do connections.
            for mood in UNKIND.into_iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                suffering.suffer(mood);
                suffering.fake.turn(Mood::Kind);
                std::thread::sleep(Duration::from_secs(2));
            }
        });
        harass::harass(&cloud, 1);
        over.store(true, Ordering::Relaxed);
        runtime.join().expect("the agent lives");
    });
    node.fake.turn(Mood::Kind);
    node.runs();
    node.stop();
}

/// An agent with its own runtime in its own cgroup.
struct Node {
    fake: Fake,
    site: Site,
    cell: Cell,
    child: Mutex<Child>,
}

impl Node {
    /// With this many pods of the manifest folder.
    fn start(world: &World, name: &str, pods: usize, change: impl FnOnce(&mut Site)) -> Self {
        let folder = world.folder(name);
        fs::create_dir_all(&folder).expect("a folder of ours");
        let fake = Fake::start(folder.join("r.sock"));
        let mut site = Site::new(folder.join("site"), fake.socket().to_owned());
        change(&mut site);
        let cell = Cell::new(name);
        let made = site.command();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh"]);
        command.arg(cell.0.join("cgroup.procs")).arg(made.get_program()).args(made.get_args());
        let log = fs::File::create(site.dir.join("memory.log")).expect("a file of ours");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("a shell");
        guard::keep(guard::Left::Process(child.id()));
        for n in 0..pods {
            let text = manifest(&format!("p{n}"), "  hostNetwork: true\n", "");
            site.put(&format!("p{n}.yaml"), &text);
        }
        Self { fake, site, cell, child: Mutex::new(child) }
    }

    /// Waits until all pods run.
    fn runs(&self) {
        wait::until("all pods run", || {
            self.lives("on the way");
            let pods = self.site.pods()?;
            let wanted = |pod: &&Pod| pod.0["metadata"]["name"].as_str().is_some_and(is_wanted);
            let count = pods.iter().filter(wanted).filter(|pod| pod.runs()).count();
            if count == PODS { Ok(()) } else { Err(format!("{count} run; {}", self.cell.usage())) }
        });
        println!("all run: {}", self.cell.usage());
    }

    /// Several relists, and as many lost connections.
    fn suffer(&self, mood: Mood) {
        self.fake.turn(mood);
        std::thread::sleep(Duration::from_secs(5));
        println!("{mood:?}: {}", self.cell.usage());
        self.lives(&format!("{mood:?}"));
    }

    /// Neither it nor one of its children was ever killed for its memory.
    fn lives(&self, when: &str) {
        let ended = self.child.lock().expect("no thread panics").try_wait().expect("our child");
        assert!(ended.is_none(), "{when}: it ended with {ended:?}; {}", self.cell.usage());
        assert_eq!(self.cell.kills(), 0, "{when}: {}", self.cell.usage());
    }

    fn stop(self) {
        self.lives("at the end");
        let mut child = self.child.into_inner().expect("no thread panics");
        signal(child.id(), Signal::SIGTERM);
        assert!(child.wait().expect("it is our child").success());
    }
}

/// `p7`, and `p7-gw` of the manifest folder.
fn is_wanted(name: &str) -> bool {
    name.starts_with('p') && name[1..].starts_with(|first: char| first.is_ascii_digit())
}

/// The bounded agent's own cgroup, of either version; removed at the end.
struct Cell(PathBuf);

impl Cell {
    fn new(name: &str) -> Self {
        let name = format!("edged-{name}-{}", std::process::id());
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

    /// Its peak usage, and how often the limit was hit.
    fn usage(&self) -> String {
        let files = ["memory.max_usage_in_bytes", "memory.failcnt", "memory.peak", "memory.events"];
        let read = |file: &&str| Some(format!("{file}={}", self.read(file)?));
        let of_files = files.iter().filter_map(read);
        // The part that cannot be read again from a file, in either version.
        let stat = self.read("memory.stat").unwrap_or_default();
        let own =
            stat.split(',').filter(|line| line.starts_with("rss ") || line.starts_with("anon "));
        of_files.chain(own.map(str::to_owned)).collect::<Vec<_>>().join(" ")
    }

    /// Processes in it that the kernel killed for lack of memory.
    fn kills(&self) -> u64 {
        let events = self.read("memory.events").or_else(|| self.read("memory.oom_control"));
        let events = events.expect("the kernel counts");
        let count = events.split(',').find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).expect("the kernel counts them")
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
