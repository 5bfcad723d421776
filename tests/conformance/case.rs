//! A test case: its unique name, its pods on the common node, and helpers to observe them.
#![allow(dead_code, reason = "each area uses its part of this")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use edged::wire::cri::container::{ExecSyncRequest, ExecSyncResponse, StopContainerRequest};

use crate::lifecycle::Log;
use crate::support;
use crate::support::agent::{NODE, Pod, Site, manifest};
use crate::support::cgroup;
use crate::support::containerd::{self, Containerd};
use crate::support::cri::Cri;
use crate::support::http;
use crate::support::verdict;
use crate::support::wait::{until, until_in};
use crate::wave::Wave;

/// The node that all cases share.
pub(crate) struct Node {
    /// The environment of the agent.
    pub(crate) site: Site,
    /// Its runtime.
    pub(crate) containerd: Containerd,
    /// Scratch space, removed at the end.
    pub(crate) dir: PathBuf,
    /// Of cases that share a restart of the agent.
    pub(crate) wave: Wave,
    /// `cgroupRoot` of its agents.
    cgroups: String,
    cases: AtomicUsize,
    snapshot: Mutex<Option<(Instant, Vec<Pod>)>>,
    outcomes: Mutex<BTreeMap<String, Arc<Outcome>>>,
}

/// The result of a pod that several cases share.
type Outcome = OnceLock<Result<Log, String>>;

/// All cases observe the node's pods; the agent is queried at most this often.
const SNAPSHOT_AGE: Duration = Duration::from_millis(150);

/// The interval of polling of a case.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Upstream gives a pod five minutes to start; many start here at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

impl Node {
    /// With its own containerd and without pods. `name` distinguishes nodes of one run, and names
    /// its cgroup; `settings` are added to those of all nodes.
    pub(crate) fn new(name: &str, settings: &str) -> Node {
        let dir = support::scratch(&format!("conformance-{name}"));
        let containerd = Containerd::start(dir.join("c"));
        let mut site = Site::new(dir.join("site"), containerd.socket());
        site.config = Some(dir.join("edgecore.yaml"));
        let cgroups = format!("{}/{name}", cgroup::root());
        let node = Node {
            site,
            containerd,
            dir,
            cgroups,
            wave: Wave::default(),
            cases: AtomicUsize::new(0),
            snapshot: Mutex::default(),
            outcomes: Mutex::default(),
        };
        node.set(settings);
        make_tools(&node.dir.join("tools"));
        node
    }

    /// Agents that start from now on have these additional settings.
    pub(crate) fn set(&self, settings: &str) {
        let text = CONFIG.replace("CGROUP_ROOT", &self.cgroups) + settings;
        let config = self.site.config.as_ref().expect("it was made with the node");
        fs::write(config, text).expect("a file of ours");
    }
    /// All pods as the agent returns them. It refuses connections beyond its limit, so the request
    /// is repeated.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        until("the agent answers", || self.site.pods())
    }

    /// A pod as the agent returned it a moment ago.
    pub(crate) fn pod(&self, name: &str) -> Result<Pod, String> {
        let name = format!("{name}-{NODE}");
        self.refresh(|pods| {
            let found = pods.iter().find(|pod| pod.name() == name);
            found.cloned().ok_or_else(|| format!("no pod {name}"))
        })
    }

    /// Waits until a pod is Running with all its containers.
    pub(crate) fn wait_running(&self, name: &str) -> Pod {
        until_in(PATIENCE, &format!("pod {name}: Running"), || {
            std::thread::sleep(LOOK);
            let pod = self.pod(name)?;
            if pod.runs() { Ok(pod) } else { Err(pod.0["status"].to_string()) }
        })
    }

    /// Waits until a pod is completely removed.
    pub(crate) fn wait_gone(&self, pod: &Pod) {
        until_in(PATIENCE, &format!("pod {} is gone", pod.name()), || {
            std::thread::sleep(LOOK);
            self.refresh(|pods| {
                let found = pods.iter().find(|shown| shown.uid() == pod.uid());
                found.map_or(Ok(()), |shown| Err(shown.0["status"].to_string()))
            })
        });
        // The runtime and the folders show whether something is left.
        self.site.wait_gone(pod);
    }

    /// Calls a function with all pods as the agent returned them a moment ago.
    fn refresh<T>(&self, observe: impl FnOnce(&[Pod]) -> Result<T, String>) -> Result<T, String> {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if snapshot.as_ref().is_none_or(|(at, _)| at.elapsed() > SNAPSHOT_AGE) {
            *snapshot = Some((Instant::now(), self.site.pods()?));
        }
        let (_, pods) = snapshot.as_ref().expect("made above");
        observe(pods)
    }

    /// The result of a shared pod: the first case runs it, the others wait.
    pub(crate) fn once(&self, key: &str, run: impl FnOnce() -> Log) -> Log {
        let outcome = {
            let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(outcomes.entry(key.to_owned()).or_default())
        };
        let run = || catch_unwind(AssertUnwindSafe(run)).map_err(|panic| verdict::why(&*panic));
        match outcome.get_or_init(run) {
            Ok(log) => log.clone(),
            Err(why) => panic!("{why}"),
        }
    }

    /// The folder of static programs made from `tools/*.c`, for pods that mount it. `euid` has the
    /// set-user-ID bit and belongs to root.
    pub(crate) fn tools(&self) -> String {
        self.dir.join("tools").to_str().expect("made from text").to_owned()
    }

    /// A case with a unique name.
    pub(crate) fn case(&self) -> Case<'_> {
        let number = self.cases.fetch_add(1, Ordering::SeqCst);
        Case { node: self, name: format!("case-{number}"), files: RefCell::default() }
    }
}

fn make_tools(to: &Path) {
    fs::create_dir(to).expect("a folder of ours");
    for (name, mode) in [("udp", 0o755), ("shm", 0o755), ("euid", 0o4755)] {
        let source = support::top().join(format!("tests/conformance/tools/{name}.c"));
        let flags = ["-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o"];
        let tool = to.join(name);
        containerd::run(Command::new("gcc").args(flags).arg(&tool).arg(source));
        fs::set_permissions(&tool, fs::Permissions::from_mode(mode)).expect("it was made");
    }
}

/// The settings of this node that differ from the defaults, so that cases take minutes instead of
/// hours.
const CONFIG: &str = "
apiVersion: edgecore.config.kubeedge.io/v1alpha2
kind: EdgeCore
modules:
  edged:
    tailoredKubeletConfig:
      cgroupRoot: CGROUP_ROOT
      containerLogMaxSize: 40Ki
      containerLogMaxFiles: 3
      containerLogMonitorInterval: 3s
      # The machine's disk may be full, and the images are shared.
      imageGCHighThresholdPercent: 100
      evictionHard: {}
";

/// One case.
pub(crate) struct Case<'a> {
    /// The common node.
    pub(crate) node: &'a Node,
    /// The name of its pod, and the prefix of the names of further objects.
    pub(crate) name: String,
    /// Manifests in the folder.
    files: RefCell<Vec<String>>,
}

/// A container that sleeps until it is stopped, and then ends at once.
pub(crate) const SLEEP: &str = support::agent::SLEEP;

/// For pods of cases, which need no grace.
pub(crate) const QUICK_END: &str = "  terminationGracePeriodSeconds: 1\n";

impl Case<'_> {
    /// Writes or replaces a manifest. `what` distinguishes several of one case.
    pub(crate) fn put(&self, what: &str, text: &str) {
        let file = format!("{}-{what}.yaml", self.name);
        self.node.site.put(&file, text);
        let mut files = self.files.borrow_mut();
        if !files.contains(&file) {
            files.push(file);
        }
    }

    /// Removes a manifest.
    pub(crate) fn take(&self, what: &str) {
        let file = format!("{}-{what}.yaml", self.name);
        self.node.site.take(&file);
        self.files.borrow_mut().retain(|put| *put != file);
    }

    /// Writes the case's pod: `spec` and the container `main` as indented YAML.
    pub(crate) fn put_pod(&self, spec: &str, main: &str) {
        self.put("pod", &manifest(&self.name, &format!("{QUICK_END}{spec}"), main));
    }

    /// Writes the case's pod and waits until it runs.
    pub(crate) fn run(&self, spec: &str, main: &str) -> Pod {
        self.put_pod(spec, main);
        self.node.wait_running(&self.name)
    }

    /// Writes a pod that runs `script` once, and waits until it has ended.
    pub(crate) fn run_script(&self, spec: &str, main: &str, script: &str) -> Pod {
        let command = format!("    command: [sh, -c, {}]\n", quoted(script));
        self.put_pod(&format!("  restartPolicy: Never\n{spec}"), &format!("{command}{main}"));
        self.wait("it has ended", |pod| matches!(pod.phase(), "Succeeded" | "Failed"))
    }

    /// The output of `script` in a pod that must succeed.
    pub(crate) fn output_of(&self, spec: &str, main: &str, script: &str) -> Vec<String> {
        let pod = self.run_script(spec, main, script);
        let errors = self.errors(&pod);
        assert_eq!(pod.phase(), "Succeeded", "errors: {errors:?}, status: {}", pod.0["status"]);
        self.output(&pod)
    }

    /// The standard output of the first instance of `main`.
    pub(crate) fn output(&self, pod: &Pod) -> Vec<String> {
        self.node.site.output(pod, "main", 0)
    }

    /// The standard error of the first instance of `main`.
    pub(crate) fn errors(&self, pod: &Pod) -> Vec<String> {
        self.node.site.errors(pod, "main", 0)
    }

    /// Waits until the first instance of a container has written such lines to its output.
    pub(crate) fn wait_output(
        &self,
        pod: &Pod,
        container: &str,
        what: &str,
        is: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        until(what, || {
            let lines = self.node.site.output(pod, container, 0);
            if is(&lines) { Ok(lines) } else { Err(format!("{lines:?}")) }
        })
    }

    /// Waits until the case's pod is as described.
    pub(crate) fn wait(&self, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        self.wait_in(PATIENCE, what, is)
    }

    /// [`Case::wait`] with another timeout.
    pub(crate) fn wait_in(&self, bound: Duration, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        until_in(bound, what, || {
            std::thread::sleep(LOOK);
            let pod = self.node.pod(&self.name)?;
            if is(&pod) { Ok(pod) } else { Err(format!("{}", pod.0["status"])) }
        })
    }

    /// Writes the case's pod with its whole spec given, with its grace period. `fields` are those
    /// of `main`, or of a sidecar beside a `main` that sleeps.
    pub(crate) fn put_without_grace(&self, spec: &str, fields: &str, sidecar: bool) {
        let text = if sidecar {
            let sidecar = format!(
                "{spec}  initContainers:\n  - name: sidecar\n    restartPolicy: Always\n    image: \
                 localhost/edged-demo:1\n{fields}"
            );
            manifest(&self.name, &sidecar, SLEEP)
        } else {
            manifest(&self.name, spec, fields)
        };
        self.put("pod", &text);
    }

    /// Ends the case's pod without the grace period of its spec, which may be minutes.
    pub(crate) fn end_at_once(&self) {
        self.take("pod");
        // A container that has just restarted is another one by now.
        until("its containers are stopped", || {
            let Ok(pod) = self.node.pod(&self.name) else { return Ok(()) };
            self.stop_containers(&pod);
            Err("the pod is still there".to_owned())
        });
    }

    fn stop_containers(&self, pod: &Pod) {
        let all = ["containerStatuses", "initContainerStatuses"];
        let all = all.iter().filter_map(|kind| pod.0["status"][kind].as_array()).flatten();
        for status in all.filter(|status| status["containerID"].is_string()) {
            let name = status["name"].as_str().unwrap_or_default();
            let request = StopContainerRequest { container_id: pod.container_id(name), timeout: 0 };
            let mut cri = Cri::connect(&self.node.containerd.socket()).expect("containerd listens");
            // It may have ended by itself.
            let _ = cri.call(&request);
        }
    }

    /// The current pod.
    pub(crate) fn pod(&self) -> Pod {
        until("the agent answers", || self.node.pod(&self.name))
    }

    /// The messages of events with this reason about the case's pods.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        // The agent refuses connections beyond its limit.
        let answer = until("the agent answers", || {
            http::get(self.node.site.api, "/events").map_err(|error| error.to_string())
        });
        let list: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let own = items.iter().filter(|event| {
            let name = event["involvedObject"]["name"].as_str().unwrap_or_default();
            let name = name.strip_prefix(&self.name).unwrap_or_default();
            name.starts_with('-') && event["reason"] == reason
        });
        own.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Runs a command in a running container; returns exit code, standard output, standard error.
    pub(crate) fn exec(
        &self,
        pod: &Pod,
        container: &str,
        command: &[&str],
    ) -> (i32, String, String) {
        let mut cri = Cri::connect(&self.node.containerd.socket()).expect("containerd listens");
        let request = ExecSyncRequest {
            container_id: pod.container_id(container),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: 30,
        };
        let reply: ExecSyncResponse = cri.call(&request).expect("the container runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (reply.exit_code, text(&reply.stdout), text(&reply.stderr))
    }

    /// The output of a script in a running container's `main`; it must succeed.
    pub(crate) fn sh(&self, pod: &Pod, script: &str) -> String {
        let (code, output, errors) = self.exec(pod, "main", &["sh", "-c", script]);
        assert_eq!(code, 0, "`{script}` in {}: {output}{errors}", pod.name());
        output
    }

    /// Removes its manifests.
    pub(crate) fn end(&self) {
        for file in self.files.take() {
            self.node.site.take(&file);
        }
    }
}

/// A text as YAML's double-quoted scalar.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}
