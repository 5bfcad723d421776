//! The agent as a process, with its folders and its port.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

pub use super::log_line::LogLine;
use super::port::free_port;
use super::wait::until;
use super::{cgroup, guard, http, process, runtime_state};

/// The environment of an agent: its manifests, its logs, its port. Outlives the agent.
#[derive(Debug)]
pub struct Site {
    /// The parent of all its folders.
    pub dir: PathBuf,
    /// The manifest folder.
    pub manifests: PathBuf,
    /// `--root-dir`
    pub root: PathBuf,
    /// `--pod-logs`
    pub pod_logs: PathBuf,
    /// `--container-logs`
    pub container_logs: PathBuf,
    /// The runtime's socket.
    pub runtime: PathBuf,
    /// `--listen`
    pub api: SocketAddr,
    /// `--log`
    pub level: &'static str,
    /// `--config`
    pub config: Option<PathBuf>,
    /// Programs that precede the machine's own in `PATH`.
    pub programs: Option<PathBuf>,
    /// `--node-name`
    pub node: &'static str,
}

/// `--runtime` for this socket: the built-in runtime's has this name.
pub fn endpoint(socket: &Path) -> String {
    let scheme = if socket.ends_with("rt/sock") { "ttrpc" } else { "unix" };
    format!("{scheme}://{}", socket.display())
}

/// The node's name in all tests: `web` becomes the pod `web-gw`.
pub const NODE: &str = "gw";

/// The machine's disk may be full, and the images are shared: nothing is removed for lack of room.
pub const KEEP_ALL: &str = "imageGCHighThresholdPercent: 100\nevictionHard: {}\n";

/// An edgecore.yaml with these lines: below `modules.edged` and below `tailoredKubeletConfig`,
/// without indentation. Its cgroups are those of this run: another agent may have the machine's.
pub fn settings(edged: &str, tailored: &str) -> String {
    let indent = |text: &str, by: &str| -> String {
        text.lines().flat_map(|line| [by, line, "\n"]).collect()
    };
    format!(
        "modules:\n  edged:\n    enable: true\n{}    tailoredKubeletConfig:\n      cgroupRoot: \
         {}\n{}",
        indent(edged, "    "),
        cgroup::root(),
        indent(tailored, "      ")
    )
}

impl Site {
    /// A new site with empty folders.
    pub fn new(dir: PathBuf, runtime: PathBuf) -> Site {
        let manifests = dir.join("manifests");
        let root = dir.join("kubelet");
        let pod_logs = dir.join("pod-logs");
        let container_logs = dir.join("container-logs");
        for folder in [&manifests, &pod_logs, &container_logs] {
            fs::create_dir_all(folder).expect("a folder below one of ours");
        }
        let api = (Ipv4Addr::LOCALHOST, free_port()).into();
        let config = dir.join("edgecore.yaml");
        fs::write(&config, settings("", KEEP_ALL)).expect("a file of ours");
        Site {
            dir,
            manifests,
            root,
            pod_logs,
            container_logs,
            runtime,
            api,
            level: "info",
            config: Some(config),
            programs: None,
            node: NODE,
        }
    }

    /// The [`settings`] of agents that start from now on.
    pub fn set(&self, edged: &str, tailored: &str) {
        let config = self.config.as_ref().expect("it was made with the site");
        fs::write(config, settings(edged, tailored)).expect("a file of ours");
    }

    /// Writes a manifest into the folder atomically, as an editor or `mv` does.
    pub fn put(&self, file: &str, text: &str) {
        let made = self.dir.join(format!("new-{file}"));
        fs::write(&made, text).expect("a file of ours");
        fs::rename(&made, self.manifests.join(file)).expect("a file of ours");
    }

    /// Removes a manifest.
    pub fn take(&self, file: &str) {
        fs::remove_file(self.manifests.join(file)).expect("it was put there");
    }

    /// Starts the agent.
    pub fn start(&self) -> Agent<'_> {
        self.start_with(|_| ())
    }

    /// Starts the agent on a machine without a hardware clock: it is a minute past 1970.
    pub fn start_at_1970(&self) -> Agent<'_> {
        self.start_with(|command| {
            command
                .env("LD_PRELOAD", super::FAKETIME)
                .env("FAKETIME", "@1970-01-01 00:01:00")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        })
    }

    fn start_with(&self, change: impl FnOnce(&mut Command)) -> Agent<'_> {
        let mut command = self.command();
        change(&mut command);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.expect("a file of ours");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.expect("the binary was built beside this test");
        guard::keep(guard::Left::Process(child.id()));
        Agent { site: self, child, log_from: self.log_length() }
    }

    /// `edged run` with the flags of this site.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command
            .arg("run")
            .arg("--manifests")
            .arg(&self.manifests)
            .arg("--runtime")
            .arg(endpoint(&self.runtime))
            .arg("--listen")
            .arg(self.api.to_string())
            .arg("--root-dir")
            .arg(&self.root)
            .arg("--pod-logs")
            .arg(&self.pod_logs)
            .arg("--container-logs")
            .arg(&self.container_logs)
            .args(["--node-name", self.node, "--log", self.level]);
        if let Some(programs) = &self.programs {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", programs.display()));
        }
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("edged.log")
    }

    fn log_length(&self) -> u64 {
        fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len())
    }

    /// The log of all agents of this site.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The end of it, for messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n    ")
    }

    /// The current objects of the runtime.
    pub fn runtime_state(&self) -> runtime_state::RuntimeState {
        runtime_state::list(&self.runtime)
    }

    /// `/edged/status`
    pub fn status(&self) -> Result<Value, String> {
        let answer = http::get(self.api, "/edged/status").map_err(|error| error.to_string())?;
        serde_json::from_str(&answer.body).map_err(|error| format!("{error}: {}", answer.body))
    }

    /// Waits until the agent reports this trouble with the runtime, or none.
    pub fn wait_trouble(&self, what: &str, is: impl Fn(&Value) -> bool) {
        until(&format!("the agent reports of the runtime: {what}"), || {
            let status = self.status()?;
            let has_answered = !status["runtime"].as_str().unwrap_or_default().is_empty();
            let trouble = &status["runtimeTrouble"];
            // Before the first answer of the runtime there is no trouble either.
            if (has_answered || !trouble.is_null()) && is(trouble) {
                Ok(())
            } else {
                Err(self.with_log(&status.to_string()))
            }
        });
    }

    /// Pods as the API returns them to every user.
    pub fn pods(&self) -> Result<Vec<Pod>, String> {
        listed(http::get(self.api, "/pods"))
    }

    /// A pod, by the name in its manifest.
    pub fn pod(&self, name: &str) -> Result<Pod, String> {
        named(self.pods()?, name)
    }

    /// The same as returned to root, with the values of its annotations and variables.
    pub fn pod_as_root(&self, name: &str) -> Result<Pod, String> {
        named(listed(http::get_of(&self.root.join("edged.sock"), "/pods"))?, name)
    }

    /// Waits until a pod is as described.
    pub fn wait(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        until(&format!("pod {name}: {what}"), || {
            let pod = self.pod(name).map_err(|why| self.with_log(&why))?;
            if is(&pod) { Ok(pod) } else { Err(self.with_log(&pod.0["status"].to_string())) }
        })
    }

    /// Waits until a pod is Running with all its containers.
    pub fn wait_running(&self, name: &str) -> Pod {
        self.wait(name, "Running", Pod::runs)
    }

    /// Waits until a pod is removed from the API, from the runtime, and with its logs.
    pub fn wait_gone(&self, pod: &Pod) {
        let uid = pod.uid();
        until(&format!("pod {} is completely removed", pod.name()), || {
            let pods = self.pods()?;
            if pods.iter().any(|other| other.uid() == uid) {
                return Err(self.with_log("still in /pods"));
            }
            let runtime_state = self.runtime_state().of(uid);
            if !runtime_state.is_empty() {
                return Err(self.with_log(&runtime_state.short()));
            }
            self.no_logs_of(pod)
        });
    }

    fn no_logs_of(&self, pod: &Pod) -> Result<(), String> {
        let here = |entry: &str| entry.contains(pod.uid());
        if let Some(left) = entries(&self.pod_logs).iter().find(|entry| here(entry)) {
            return Err(format!("left in the pods' logs: {left}"));
        }
        if let Some(left) = entries(&self.root.join("pods")).iter().find(|entry| here(entry)) {
            return Err(format!("left in the pods' folders: {left}"));
        }
        let prefix = format!("{}_", pod.name());
        // A later incarnation of the name may have its own links; ours must lead nowhere by now.
        let dangling = entries(&self.container_logs)
            .into_iter()
            .find(|entry| entry.starts_with(&prefix) && !self.container_logs.join(entry).exists());
        dangling.map_or(Ok(()), |link| Err(format!("left in the containers' logs: {link}")))
    }

    /// Waits until nothing is left of any pod of this site.
    pub fn wait_empty(&self) {
        until("nothing is left of any pod", || {
            let runtime_state = self.runtime_state();
            if !runtime_state.is_empty() {
                return Err(self.with_log(&runtime_state.short()));
            }
            for folder in [&self.root.join("pods"), &self.pod_logs, &self.container_logs] {
                if let Some(left) = entries(folder).first() {
                    return Err(self.with_log(&format!("{left} in {}", folder.display())));
                }
            }
            let left = self.pods()?.len();
            if left > 0 { Err(self.with_log(&format!("{left} pods in /pods"))) } else { Ok(()) }
        });
    }

    fn with_log(&self, saw: &str) -> String {
        format!("{saw}\n  log:\n    {}", self.log_tail())
    }

    /// The lines that a container has written to its standard output.
    pub fn output(&self, pod: &Pod, container: &str, attempt: u32) -> Vec<String> {
        LogLine::texts(&self.log_lines(pod, container, attempt), "stdout")
    }

    /// The lines that a container has written to its standard error.
    pub fn errors(&self, pod: &Pod, container: &str, attempt: u32) -> Vec<String> {
        LogLine::texts(&self.log_lines(pod, container, attempt), "stderr")
    }

    /// The lines of both streams: the runtime copies each by itself, so that a line of one may
    /// precede an earlier line of the other.
    pub fn log_lines(&self, pod: &Pod, container: &str, attempt: u32) -> Vec<LogLine> {
        let text = fs::read_to_string(self.log_file(pod, container, attempt)).unwrap_or_default();
        text.lines().map(LogLine::parse).collect()
    }

    /// The file of a container's output.
    pub fn log_file(&self, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
        let folder = format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid());
        self.pod_logs.join(folder).join(container).join(format!("{attempt}.log"))
    }
}

/// The names in a folder; empty if it does not exist.
pub fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The binary under test.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_edged"))
}

/// A running agent. Dropping it kills it; its pods stay.
pub struct Agent<'a> {
    site: &'a Site,
    child: Child,
    log_from: u64,
}

impl Agent<'_> {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log of this agent.
    pub fn log(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = File::open(self.site.log_path()) {
            file.seek(SeekFrom::Start(self.log_from)).expect("a file is seekable");
            let _ = file.read_to_string(&mut text);
        }
        text
    }

    /// Waits until the API answers.
    pub fn wait_listening(&self) {
        until("the agent listens", || {
            let answer = http::get(self.site.api, "/pods");
            answer.map(drop).map_err(|error| self.site.with_log(&error.to_string()))
        });
    }

    /// Kills it as the kernel's OOM killer would.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.reap();
    }

    /// Signals it.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Stops it, and returns its exit status.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        until("the agent ends after SIGTERM", || {
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            ended.ok_or_else(|| self.site.with_log("it runs"))
        })
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    fn reap(&mut self) {
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.reap();
    }
}

fn listed(answer: std::io::Result<http::Answer>) -> Result<Vec<Pod>, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    let list: Value = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(Pod).collect())
}

fn named(pods: Vec<Pod>, name: &str) -> Result<Pod, String> {
    let is_named = |pod: &Pod| pod.0["metadata"]["name"] == format!("{name}-{NODE}");
    let found = pods.into_iter().find(is_named);
    found.ok_or_else(|| format!("no pod {name}-{NODE} in /pods"))
}

/// A pod as `/pods` returns it.
#[derive(Clone, Debug)]
pub struct Pod(pub Value);

impl Pod {
    /// `metadata.name`
    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `metadata.namespace`
    pub fn namespace(&self) -> &str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// `metadata.uid`
    pub fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// `status.phase`
    pub fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap_or_default()
    }

    /// `status.reason`
    pub fn reason(&self) -> &str {
        self.0["status"]["reason"].as_str().unwrap_or_default()
    }

    /// `status.message`
    pub fn message(&self) -> &str {
        self.0["status"]["message"].as_str().unwrap_or_default()
    }

    /// `status.podIP`
    pub fn ip(&self) -> &str {
        self.0["status"]["podIP"].as_str().unwrap_or_default()
    }

    /// Running, as are all its main containers.
    pub fn runs(&self) -> bool {
        let all = self.0["status"]["containerStatuses"].as_array();
        let running = |status: &Value| status["state"]["running"].is_object();
        self.phase() == "Running" && all.is_some_and(|all| all.iter().all(running))
    }

    /// The status of a container, init containers included; null if there is none.
    pub fn container(&self, name: &str) -> &Value {
        let all = ["containerStatuses", "initContainerStatuses"]
            .into_iter()
            .filter_map(|kind| self.0["status"][kind].as_array())
            .flatten();
        all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
    }

    /// The runtime's id of a container, without the scheme.
    pub fn container_id(&self, name: &str) -> String {
        let id = self.container(name)["containerID"].as_str().unwrap_or_default();
        id.split_once("://").map_or_else(String::new, |(_, id)| id.to_owned())
    }

    /// The restart count of a container.
    pub fn restarts(&self, container: &str) -> u64 {
        self.container(container)["restartCount"].as_u64().unwrap_or_default()
    }

    /// Why a container waits.
    pub fn waits_for(&self, container: &str) -> &str {
        self.container(container)["state"]["waiting"]["reason"].as_str().unwrap_or_default()
    }

    /// `True` or `False`; empty if there is no such condition.
    pub fn condition(&self, kind: &str) -> &str {
        let all = self.0["status"]["conditions"].as_array();
        let found = all.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
        found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
    }
}

/// A manifest of a pod with one container `main`: the lines under `spec` and under the container
/// are given as YAML, each line indented as in a manifest.
pub fn manifest(name: &str, spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n{spec}  containers:\n  \
         - name: main\n    image: localhost/edged-demo:1\n{container}"
    )
}

/// A pod on the host's network that sleeps, and ends at once when it is stopped.
pub fn sleeper(name: &str) -> String {
    manifest(name, "  hostNetwork: true\n  terminationGracePeriodSeconds: 5\n", SLEEP)
}

/// A container that ends at once when it is stopped: the shell waits, and traps.
pub const SLEEP: &str =
    "    command: [sh, -c, 'trap \"exit 0\" TERM; echo up; sleep 100000 & wait']\n";
