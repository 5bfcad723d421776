//! The demo, as `make run` starts it, without a terminal: its pods start, and after its end nothing
//! of it is left.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::World;
use super::support::agent::{binary, endpoint, entries, sleeper};
use super::support::containerd::Kind;
use super::support::port::{free_port, free_ports};
use super::support::wait::{until, until_in};
use super::support::{guard, http, process, top};

crate::tests!(
    #[cfg(feature = "runtime")]
    the_demo_on_the_built_in_runtime_leaves_nothing,
    #[cfg(all(feature = "runtime", feature = "devices"))]
    the_demo_with_devices_shows_values_and_turns_a_switch_on,
    the_demo_shows_its_pods_and_leaves_nothing,
    the_demo_on_a_runtime_that_is_there_removes_only_what_is_its_own,
);

/// The address of the demo's web server on the host; from its manifest.
const WEB: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8088);
/// The time limit of its start: as long as the script itself waits for one part after the other.
const UP: Duration = Duration::from_secs(120);
/// The time to wait for another run of this program with the demo: as long as its longest test.
const TURN: Duration = Duration::from_secs(240);
/// The time limit of its end: pods with grace periods, a containerd, its shims.
const DOWN: Duration = Duration::from_secs(90);

/// A running demo; dropping it stops it.
struct Demo {
    child: Child,
    dir: PathBuf,
    agent: SocketAddr,
    /// The processes of the script that the guard cleans up.
    guarded: RefCell<BTreeSet<u32>>,
    /// Reserves its web server's port on the host.
    _turn: UnixListener,
}

/// Waits for the port in the demo's manifest, which exists once per machine.
fn take_turn() -> UnixListener {
    until_in(TURN, "no other run of the tests uses the demo", || {
        let name = UnixAddr::from_abstract_name("edged-test-demo").expect("a short name");
        UnixListener::bind_addr(&name).map_err(|error| error.to_string())
    })
}

/// `scripts/run` in this folder. The caller may ignore signals.
fn script(dir: &Path, agent: SocketAddr, mode: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(top().join("scripts/run"));
    command.env("EDGED", binary()).env("EDGED_RUN_DIR", dir).env("MODE", mode);
    command.env("RUNTIME", "containerd");
    // The controller's four ports, and the broker's, as the script derives them from the first.
    let hub = free_ports(&[0, 2, 4, 6, 20]);
    command.env("EDGED_LISTEN", agent.to_string()).env("CLOUD_PORT", hub.to_string());
    command.stdin(Stdio::null());
    command
}

fn refused(mut command: Command, why: &str) {
    let Output { status, stderr, .. } = command.output().expect("a shell runs it");
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

impl Demo {
    fn start(dir: PathBuf, mut command: Command, agent: SocketAddr) -> Self {
        let turn = take_turn();
        fs::create_dir_all(&dir).expect("a folder of ours");
        fs::write(dir.join("lock"), "").expect("a file of ours");
        let log = File::create(dir.join("said")).expect("a file of ours");
        command.stdout(log.try_clone().expect("a handle of ours")).stderr(log);
        // As a terminal's shell does: Ctrl-C goes to the whole process group.
        let child = command.process_group(0).spawn().expect("a shell runs it");
        guard::keep(guard::Left::Process(child.id()));
        guard::keep(guard::Left::Runtime(Kind::Containerd, dir.join("containerd")));
        guard::keep(guard::Left::Runtime(Kind::Builtin, dir.join("builtin")));
        Self { child, dir, agent, guarded: RefCell::default(), _turn: turn }
    }

    /// The processes that the script started, and that have not ended yet.
    fn programs(&self) -> Vec<u32> {
        let files = ["edged.pid", "edgecontroller.pid", "mapper.pid"];
        let files = files.map(|name| self.dir.join(name));
        let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
        texts.filter_map(|text| text.trim().parse().ok()).collect()
    }

    fn keep_programs(&self) {
        for pid in self.programs() {
            if self.guarded.borrow_mut().insert(pid) {
                guard::keep(guard::Left::Process(pid));
            }
        }
    }

    /// All of them have ended: their pids may belong to other processes by now.
    fn forget(&self) {
        for pid in self.guarded.take().into_iter().chain([self.child.id()]) {
            guard::gone(&guard::Left::Process(pid));
        }
    }

    fn output(&self) -> String {
        fs::read_to_string(self.dir.join("said")).unwrap_or_default()
    }

    fn wait_output(&self, words: &str) {
        until_in(UP, &format!("the demo prints: {words}"), || {
            self.keep_programs();
            let output = self.output();
            if output.contains(words) { Ok(()) } else { Err(output) }
        });
    }

    /// A line of a table.
    fn wait_row(&self, words: [&str; 2]) {
        until(&format!("the demo prints a row {words:?}"), || {
            let output = self.output();
            let has =
                |line: &str| words.iter().all(|it| line.split_whitespace().any(|is| is == *it));
            if output.lines().any(has) { Ok(()) } else { Err(output) }
        });
    }

    /// A pod in `/pods`.
    fn wait_pod(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until_in(UP, &format!("pod {name}: {what}"), || {
            let answer = http::get(self.agent, "/pods").map_err(|error| error.to_string())?;
            let list: Value = serde_json::from_str(&answer.body).map_err(|it| it.to_string())?;
            let pods = list["items"].as_array().cloned().unwrap_or_default();
            let named = |pod: &&Value| {
                pod["metadata"]["name"].as_str().is_some_and(|is| is.starts_with(name))
            };
            self.keep_programs();
            let found = pods.iter().find(named).filter(|pod| is(pod)).cloned();
            found.ok_or_else(|| format!("{list:#}\n{}", self.output()))
        })
    }

    /// Its exit code.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        let group = Pid::from_raw(self.child.id().cast_signed());
        killpg(group, signal).expect("it is ours");
        let code = until_in(DOWN, "the demo ends", || {
            self.child.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| self.output())
        });
        self.forget();
        code.code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // After a panic: it cleans up itself.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
            let _ = self.child.wait();
        }
        // A killed script did not: its agent would treat other tests' pods as orphans.
        for pid in self.programs() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        self.forget();
    }
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
        && pod["status"]["containerStatuses"][0]["ready"] == Value::Bool(true)
}

/// What still uses a demo's folder: processes, mounts, cgroups, bridges.
fn left(dir: &Path) -> Vec<String> {
    let path = dir.display().to_string();
    let mut left = Vec::new();
    for entry in entries(Path::new("/proc")) {
        let Ok(pid) = entry.parse::<u32>() else { continue };
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&path) && process::lives(pid) {
            left.push(format!("process {pid}: {command}"));
        }
    }
    let mounts = fs::read("/proc/self/mounts").expect("/proc is mounted");
    let mounts = String::from_utf8_lossy(&mounts).into_owned();
    left.extend(mounts.lines().filter(|line| line.contains(&path)).map(str::to_owned));
    let tops = entries(Path::new("/sys/fs/cgroup"));
    let tops = tops.iter().map(|name| Path::new("/sys/fs/cgroup").join(name));
    for top in tops.chain([PathBuf::from("/sys/fs/cgroup")]) {
        let ours = entries(&top).into_iter().filter(|name| name.starts_with("edged-demo-"));
        left.extend(ours.map(|name| format!("{}/{name}", top.display())));
    }
    for link in entries(Path::new("/sys/class/net")) {
        let alias = fs::read_to_string(format!("/sys/class/net/{link}/ifalias"));
        left.extend(alias.ok().filter(|alias| alias.contains(&path)).map(|_| link));
    }
    left
}

fn the_demo_shows_its_pods_and_leaves_nothing(world: &World) {
    shows_its_pods_and_leaves_nothing(&world.folder("demo"), Kind::Containerd);
}

#[cfg(feature = "runtime")]
fn the_demo_on_the_built_in_runtime_leaves_nothing(world: &World) {
    shows_its_pods_and_leaves_nothing(&world.folder("demo-own"), Kind::Builtin);
}

fn shows_its_pods_and_leaves_nothing(dir: &Path, kind: Kind) {
    let dir = dir.to_owned();
    let agent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut command = script(&dir, agent, "cloud");
    if kind == Kind::Builtin {
        // As it is without a word.
        command.env_remove("RUNTIME");
    }
    let mut demo = Demo::start(dir.clone(), command, agent);
    if kind == Kind::Containerd {
        // Out of the container, by a command through the stream tunnel.
        demo.wait_output("The gateway says hello from web");
    }
    demo.wait_output("the manifest of web changes now");
    until("the changed web server answers", || {
        let answer = http::get(WEB.into(), "/").map_err(|error| error.to_string())?;
        if answer.body.contains("The cloud says hello") { Ok(()) } else { Err(answer.body) }
    });
    let _ = http::get(WEB.into(), "/cgi-bin/crash");
    demo.wait_pod("web", "was restarted", |pod| {
        is_running(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
    });
    demo.wait_pod("job", "has ended", |pod| pod["status"]["phase"] == "Succeeded");
    demo.wait_pod("reader", "runs", is_running);
    for words in
        [["demo", "Ready"], ["web", "Running"], ["job", "Completed"], ["reader", "Running"]]
    {
        demo.wait_row(words);
    }
    until("its pods' files are its own", || {
        let of = entries(&dir.join("kubelet/pods"));
        if of.len() == 3 { Ok(()) } else { Err(format!("{of:?}")) }
    });
    // The user's own files stay.
    let own = dir.join("manifests/own.yaml");
    fs::write(&own, sleeper("own")).expect("a file of ours");
    demo.wait_pod("own", "runs", is_running);
    assert_eq!(demo.end(Signal::SIGINT), Some(0), "{}", demo.output());
    demo.wait_output("stopped; the logs are in");
    assert_eq!(left(&dir), [] as [&str; 0]);
    assert_eq!(fs::read_to_string(&own).expect("it is there again"), sleeper("own"));
    let names = |folder: &str| entries(&dir.join(folder));
    assert_eq!((names("manifests"), names("wanted")), (vec!["own.yaml".to_owned()], vec![]));
    let logs = names("logs");
    assert!(logs.iter().any(|name| name.starts_with("demo_web_")), "{logs:?}");
    for log in ["edged.log", "edgecontroller.log"] {
        let text = fs::read_to_string(dir.join(log)).expect("it is there");
        // A busy machine is slow, which is not an error of the demo.
        let slow = |line: &str| line.contains(" took ") && line.contains(" ms");
        let bad =
            |line: &&str| (line.contains(" WARN ") || line.contains(" ERROR ")) && !slow(line);
        let bad: Vec<&str> = text.lines().filter(bad).collect();
        assert_eq!(bad, [] as [&str; 0], "{log}: of a demo without errors");
    }
    if kind == Kind::Builtin {
        let log = fs::read_to_string(dir.join("builtin/runtime.log")).expect("it is there");
        let started = log.lines().find(|line| line.contains(" oci=/"));
        assert!(started.is_some_and(|line| line.contains("version=\"")), "{log}");
    }
}

#[cfg(all(feature = "runtime", feature = "devices"))]
fn the_demo_with_devices_shows_values_and_turns_a_switch_on(world: &World) {
    let dir = world.folder("demo-devices");
    let agent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mapper = binary().with_file_name("examples").join("demo-mapper");
    assert!(mapper.exists(), "{}: cargo test builds it with all tests", mapper.display());
    let mut command = script(&dir, agent, "cloud");
    command.env_remove("RUNTIME").env("DEVICES", "1");
    let mut demo = Demo::start(dir.clone(), command, agent);
    demo.wait_output("the cloud wants it on");
    for words in [["thermometer", "demo-mapper"], ["temperature", "°C"]] {
        demo.wait_row(words);
    }
    // As the cloud wants it, and as the mapper has set it.
    demo.wait_output("switch   power      on         on ");
    demo.wait_pod("web", "runs", is_running);
    assert_eq!(demo.end(Signal::SIGINT), Some(0), "{}", demo.output());
    assert_eq!(left(&dir), [] as [&str; 0]);
    assert_eq!(entries(&dir.join("wanted")), [] as [&str; 0]);
}

fn the_demo_on_a_runtime_that_is_there_removes_only_what_is_its_own(world: &World) {
    let dir = world.folder("demo-cri");
    let agent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let on_it = |dir: &Path, agent| {
        let mut command = script(dir, agent, "standalone");
        command.env("CRI", endpoint(&world.socket()));
        command
    };
    // Another agent's pods would be treated as orphans.
    let site = world.site("demo-host");
    let host = site.start();
    site.put("foreign.yaml", &sleeper("foreign"));
    site.wait_running("foreign");
    refused(on_it(&dir, agent), "another agent's pods are on");
    // Another program's answers would be mistaken for its own.
    refused(on_it(&dir, site.api), "something answers on");
    site.wait_running("foreign");
    site.take("foreign.yaml");
    site.wait_empty();
    drop(host);

    let mut demo = Demo::start(dir.clone(), on_it(&dir, agent), agent);
    demo.wait_pod("web", "runs", is_running);
    demo.wait_pod("reader", "runs", is_running);
    refused(on_it(&dir, agent), "another one runs in");
    assert_eq!(demo.end(Signal::SIGHUP), Some(0), "{}", demo.output());
    assert_eq!(left(&dir), [] as [&str; 0]);
    assert!(site.runtime_state().containers.is_empty(), "{:?}", site.runtime_state());
}
