//! The controller as a process, with its folders and its ports.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::agent::{KEEP_ALL, Site};
use super::port::free_port;
use super::wait::until;
use super::{guard, http};

/// The environment of a controller. Outlives it.
pub struct Cloud {
    dir: PathBuf,
    /// Its manifest folder.
    pub manifests: PathBuf,
    /// The port for sessions of nodes.
    pub hub: SocketAddr,
    /// The port where nodes join.
    pub https: SocketAddr,
    /// The port for stream tunnels of nodes.
    pub tunnel: SocketAddr,
    /// The port of its health and its metrics.
    pub api: SocketAddr,
    /// Further flags.
    pub flags: Vec<String>,
}

impl Cloud {
    /// A new one with an empty folder.
    pub fn new(dir: PathBuf) -> Self {
        let manifests = dir.join("manifests");
        fs::create_dir_all(&manifests).expect("a folder below one of ours");
        let at = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (hub, https, tunnel, api) = (at(), at(), at(), at());
        Self { dir, manifests, hub, https, tunnel, api, flags: Vec::new() }
    }

    /// Starts the controller.
    pub fn start(&self) -> Controller<'_> {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("log"));
        let child = Command::new(binary())
            .arg("run")
            .arg("--manifests")
            .arg(&self.manifests)
            .arg("--data")
            .arg(self.dir.join("data"))
            .args(["--listen-hub", &self.hub.to_string()])
            .args(["--listen-https", &self.https.to_string()])
            .args(["--listen-tunnel", &self.tunnel.to_string()])
            .args(["--api", &self.api.to_string()])
            .args(self.stream_flags())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a file of ours"))
            .spawn()
            .expect("the binary was built beside this test");
        guard::keep(guard::Left::Process(child.id()));
        let controller = Controller { cloud: self, child };
        until("the controller answers", || {
            let answer = http::get(self.api, "/healthz");
            match answer {
                Ok(answer) if answer.code == 200 => Ok(()),
                other => Err(format!("{other:?}\n{}", self.log_tail())),
            }
        });
        controller
    }

    /// In a cluster the port for kube-apiserver is on, and there are several controllers here.
    fn stream_flags(&self) -> Vec<String> {
        let in_cluster = self.flags.iter().any(|flag| flag == "--kubeconfig");
        let at = || format!("--listen-stream=127.0.0.1:{}", free_port());
        in_cluster.then(at).into_iter().collect()
    }

    /// The output of `edgecontroller token`.
    pub fn token(&self) -> String {
        let data = self.dir.join("data");
        let output = Command::new(binary()).arg("token").arg("--data").arg(data).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Deletes a pod by `edgecontroller delete`.
    pub fn delete(&self, pod: &str) {
        let data = self.dir.join("data");
        let mut command = Command::new(binary());
        let output = command.args(["delete", "pod", pod, "--data"]).arg(data).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs another command of `edgecontroller`; returns its exit code and its output.
    pub fn run(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let data = self.dir.join("data");
        let mut child = Command::new(binary());
        child.arg(command).arg("--data").arg(data).args(arguments).stdin(Stdio::null());
        let output = child.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Configures the site's agents for this cloud, at this address.
    pub fn welcome(&self, site: &mut Site, hub: SocketAddr) {
        self.welcome_with(site, hub, &self.token());
    }

    /// The same with this token.
    pub fn welcome_with(&self, site: &mut Site, hub: SocketAddr, token: &str) {
        let (dir, https) = (site.dir.display(), self.https);
        let mut text = format!(
            "database:\n  dataSource: {dir}/edgecore.db\nmodules:\n  edgeHub:\n    \
             httpServer: https://{https}\n    tlsCaFile: {dir}/ca.crt\n    \
             tlsCertFile: {dir}/node.crt\n    tlsPrivateKeyFile: {dir}/node.key\n    \
             token: {token}\n    websocket:\n      enable: true\n      server: {hub}\n  \
             edged:\n    tailoredKubeletConfig:\n      cgroupsPerQOS: false\n"
        );
        for line in KEEP_ALL.lines() {
            text.extend(["      ", line, "\n"]);
        }
        let path = site.dir.join("joined.yaml");
        fs::write(&path, text).expect("a file of ours");
        site.config = Some(path);
    }

    /// Configures the site's agents for the stream tunnel, after [`Cloud::welcome`].
    pub fn welcome_tunnel(&self, site: &Site) {
        let path = site.config.as_ref().expect("it was welcomed");
        let mut text = fs::read_to_string(path).expect("a file of ours");
        let server = self.tunnel;
        let lines = format!("  edgeStream:\n    enable: true\n    server: {server}\n");
        text.push_str(&lines);
        fs::write(path, text).expect("a file of ours");
    }

    /// Writes an object into the folder atomically.
    pub fn put(&self, file: &str, object: &Value) {
        let made = self.dir.join(format!("new-{file}"));
        fs::write(&made, format!("{object:#}\n")).expect("a file of ours");
        fs::rename(&made, self.manifests.join(file)).expect("a file of ours");
    }

    /// Removes a file from the folder.
    pub fn take(&self, file: &str) {
        fs::remove_file(self.manifests.join(file)).expect("it was put there");
    }

    /// An object as the controller has it; `None`: it has none.
    pub fn object(&self, path: &str) -> Result<Option<Value>, String> {
        let answer = http::get_of(&self.socket(), path).map_err(|error| error.to_string())?;
        match answer.code {
            200 => serde_json::from_str(&answer.body).map(Some).map_err(|error| error.to_string()),
            404 => Ok(None),
            code => Err(format!("{code}: {}", answer.body)),
        }
    }

    /// A pod as the controller has it.
    pub fn pod(&self, name: &str) -> Result<Option<Value>, String> {
        self.object(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    /// Waits until the cloud has a pod in this phase.
    pub fn wait_phase(&self, name: &str, phase: &str) -> Value {
        until(&format!("the cloud has pod {name} as {phase}"), || {
            let pod = self.pod(name)?.ok_or("it has none")?;
            let ending = pod["metadata"].get("deletionTimestamp").is_some();
            if pod["status"]["phase"] == phase && !ending {
                return Ok(pod);
            }
            Err(format!("{}\n{}", pod["status"], self.log_tail()))
        })
    }

    /// Waits until the cloud has no such pod.
    pub fn wait_gone(&self, name: &str) {
        until(&format!("the cloud has no pod {name}"), || match self.pod(name)? {
            None => Ok(()),
            Some(pod) => Err(format!("{}\n{}", pod["metadata"], self.log_tail())),
        });
    }

    /// The socket of its API for the operator.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("data/api.sock")
    }

    /// Its CA's folder.
    pub fn pki(&self) -> PathBuf {
        self.dir.join("data/pki")
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n    ")
    }
}

/// The binary under test.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_edgecontroller"))
}

/// A running controller. Dropping it kills it.
pub struct Controller<'a> {
    cloud: &'a Cloud,
    child: Child,
}

impl Controller<'_> {
    /// Kills it with SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it.
    pub fn terminate(mut self) {
        super::process::signal(self.child.id(), nix::sys::signal::Signal::SIGTERM);
        until("the controller ends after SIGTERM", || {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => Ok(()),
                Some(status) => Err(format!("{status}\n{}", self.cloud.log_tail())),
                None => Err(self.cloud.log_tail()),
            }
        });
    }
}

impl Drop for Controller<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

/// A pod on the host's network that sleeps, and ends at once when it is stopped.
pub fn pod(name: &str, node: &str, image: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main", "image": image, "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
            }],
        },
    })
}

/// A ConfigMap with one key.
pub fn map(name: &str, value: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"k": value},
    })
}
