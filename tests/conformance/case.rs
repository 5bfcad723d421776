//! What a case works with: a name of its own, pods on the common node, and what they show.
#![allow(dead_code, reason = "each area uses its part of this")]

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use edged::wire::cri::container::{ExecSyncRequest, ExecSyncResponse};

use crate::yard;
use crate::yard::agent::{Pod, Site, manifest};
use crate::yard::containerd::{self, Containerd};
use crate::yard::cri::Cri;
use crate::yard::wait::{until, until_in};

/// The node that all cases share.
pub(crate) struct Node {
    /// Where the agent works.
    pub(crate) site: Site,
    /// Its runtime.
    pub(crate) containerd: Containerd,
    /// Scratch space, gone at the end.
    pub(crate) dir: PathBuf,
    cases: AtomicUsize,
}

impl Node {
    /// With a containerd of its own and no pods.
    pub(crate) fn new() -> Node {
        let dir = yard::scratch("conformance");
        let containerd = Containerd::start(dir.join("c"));
        let mut site = Site::new(dir.join("site"), containerd.socket());
        let config = dir.join("edgecore.yaml");
        fs::write(&config, CONFIG).expect("a file of ours");
        site.config = Some(config);
        make_tools(&dir.join("tools"));
        Node { site, containerd, dir, cases: AtomicUsize::new(0) }
    }

    /// The folder of static programs made from `tools/*.c`, for pods that mount it. `euid` has the
    /// set-user-ID bit and belongs to root.
    pub(crate) fn tools(&self) -> String {
        self.dir.join("tools").to_str().expect("made from text").to_owned()
    }

    /// A case with a name that no other has.
    pub(crate) fn case(&self) -> Case<'_> {
        let number = self.cases.fetch_add(1, Ordering::SeqCst);
        Case { node: self, name: format!("case-{number}"), files: RefCell::default() }
    }
}

fn make_tools(to: &Path) {
    fs::create_dir(to).expect("a folder of ours");
    for (name, mode) in [("udp", 0o755), ("euid", 0o4755)] {
        let source = yard::top().join(format!("tests/conformance/tools/{name}.c"));
        let flags = ["-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o"];
        let tool = to.join(name);
        containerd::run(Command::new("gcc").args(flags).arg(&tool).arg(source));
        fs::set_permissions(&tool, fs::Permissions::from_mode(mode)).expect("it was made");
    }
}

/// What differs on this node from the defaults, so that cases take minutes instead of hours.
const CONFIG: &str = "
apiVersion: edgecore.config.kubeedge.io/v1alpha2
kind: EdgeCore
modules:
  edged:
    tailoredKubeletConfig:
      # The machine's disk may be full, and the images are shared.
      imageGCHighThresholdPercent: 100
      evictionHard: {}
      crashLoopBackOff: {maxContainerRestartPeriod: 20s}
";

/// One case.
pub(crate) struct Case<'a> {
    /// The common node.
    pub(crate) node: &'a Node,
    /// Of its pod, and the beginning of the names of further objects.
    pub(crate) name: String,
    /// Manifests that it has put into the folder.
    files: RefCell<Vec<String>>,
}

/// A container that sleeps until it is told to end, and then ends at once.
pub(crate) const SLEEP: &str = yard::agent::SLEEP;

/// For pods of cases, which have nothing to finish.
pub(crate) const QUICK_END: &str = "  terminationGracePeriodSeconds: 1\n";

impl Case<'_> {
    /// Puts a manifest into the folder, or another in its place. `what` tells several of one case
    /// from each other.
    pub(crate) fn put(&self, what: &str, text: &str) {
        let file = format!("{}-{what}.yaml", self.name);
        self.node.site.put(&file, text);
        let mut files = self.files.borrow_mut();
        if !files.contains(&file) {
            files.push(file);
        }
    }

    /// Takes a manifest out.
    pub(crate) fn take(&self, what: &str) {
        let file = format!("{}-{what}.yaml", self.name);
        self.node.site.take(&file);
        self.files.borrow_mut().retain(|put| *put != file);
    }

    /// Puts the case's pod: `spec` and the container `main` as indented YAML.
    pub(crate) fn put_pod(&self, spec: &str, main: &str) {
        self.put("pod", &manifest(&self.name, &format!("{QUICK_END}{spec}"), main));
    }

    /// Puts the case's pod and waits until it runs.
    pub(crate) fn run(&self, spec: &str, main: &str) -> Pod {
        self.put_pod(spec, main);
        self.node.site.wait_running(&self.name)
    }

    /// Puts a pod that runs `script` once, and waits until it has ended.
    pub(crate) fn run_script(&self, spec: &str, main: &str, script: &str) -> Pod {
        let command = format!("    command: [sh, -c, {}]\n", quoted(script));
        self.put_pod(&format!("  restartPolicy: Never\n{spec}"), &format!("{command}{main}"));
        self.wait("it has ended", |pod| matches!(pod.phase(), "Succeeded" | "Failed"))
    }

    /// What `script` prints in a pod that must succeed.
    pub(crate) fn output_of(&self, spec: &str, main: &str, script: &str) -> Vec<String> {
        let pod = self.run_script(spec, main, script);
        let errors = self.errors(&pod);
        assert_eq!(pod.phase(), "Succeeded", "errors: {errors:?}, status: {}", pod.0["status"]);
        self.output(&pod)
    }

    /// What the first instance of `main` has written to its standard output.
    pub(crate) fn output(&self, pod: &Pod) -> Vec<String> {
        self.node.site.output(pod, "main", 0)
    }

    /// What the first instance of `main` has written to its standard error.
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
        self.node.site.wait(&self.name, what, is)
    }

    /// [`Case::wait`] with a bound of its own.
    pub(crate) fn wait_in(&self, bound: Duration, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        until_in(bound, what, || {
            let pod = self.node.site.pod(&self.name)?;
            if is(&pod) { Ok(pod) } else { Err(format!("{}", pod.0["status"])) }
        })
    }

    /// The pod as it is now.
    pub(crate) fn pod(&self) -> Pod {
        self.node.site.pod(&self.name).expect("its manifest is there")
    }

    /// Runs a command in a running container; exit code, standard output, standard error.
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

    /// What a script prints in a running container's `main`; it must succeed.
    pub(crate) fn sh(&self, pod: &Pod, script: &str) -> String {
        let (code, output, errors) = self.exec(pod, "main", &["sh", "-c", script]);
        assert_eq!(code, 0, "`{script}` in {}: {output}{errors}", pod.name());
        output
    }

    /// Takes out what it has put in.
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
