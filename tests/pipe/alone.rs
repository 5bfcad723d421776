//! One agent per root directory, runtime and cgroup, and no kubelet beside it: the second one
//! reports the first, and exits.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;

use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::program;

pub struct Place(
    PathBuf,
    #[expect(dead_code, reason = "it is held, not read")] MutexGuard<'static, ()>,
);

impl Place {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("edged-alone-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("manifests")).expect("a folder for the test");
        Self(dir, crate::jobs::alone())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An agent with these arguments, killed after a while if it does not exit itself.
    pub fn edged(&self, root: &str, socket: &str, cgroup: &str) -> Command {
        let config = self.path(&format!("{root}-{cgroup}.yaml"));
        let cgroup = format!("/edged-alone-{}-{cgroup}", std::process::id());
        let text =
            format!("modules: {{edged: {{tailoredKubeletConfig: {{cgroupRoot: {cgroup}}}}}}}\n");
        fs::write(&config, text).expect("a file for the test");
        let mut command = Command::new(env!("CARGO_BIN_EXE_edged"));
        command.args(["run", "--listen", "off", "--node-name", "gw"]);
        command.arg("--config").arg(config).arg("--root-dir").arg(self.path(root));
        command.arg("--runtime").arg(self.path(socket));
        for (flag, path) in
            [("--manifests", "manifests"), ("--pod-logs", "pods"), ("--container-logs", "links")]
        {
            command.arg(flag).arg(self.path(path));
        }
        command.env_remove("RUST_LOG").stderr(Stdio::piped());
        command
    }

    /// The same, once it dials its runtime.
    fn starts(&self, root: &str, socket: &str, cgroup: &str, listener: &UnixListener) -> Agent {
        let child = self.edged(root, socket, cgroup).spawn().expect("it starts");
        let agent = Agent(child);
        let fd = PollFd::new(listener.as_fd(), PollFlags::POLLIN);
        let ready = poll(&mut [fd], PollTimeout::from(20_000_u16)).expect("polled");
        assert_eq!(ready, 1, "{root} {socket} {cgroup}: it does not dial");
        listener.accept().expect("it dialled");
        agent
    }

    /// Its last line; it exited by itself.
    fn ends(&self, root: &str, socket: &str, cgroup: &str) -> String {
        let edged = self.edged(root, socket, cgroup);
        let mut command = Command::new("timeout");
        command.arg("20").arg(edged.get_program()).args(edged.get_args()).env_remove("RUST_LOG");
        let done = command.output().expect("timeout is in coreutils");
        let output = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{root} {socket} {cgroup}: {output}");
        output.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A killed agent leaves the mount on its root directory to the next one.
        for root in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = umount2(&root.path(), MntFlags::MNT_DETACH);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Agent(pub Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn listen(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("a socket for the test")
}

#[test]
fn of_two_agents_on_one_thing_the_second_names_the_first_and_ends() {
    let place = Place::new("locks");
    let (one, two) = (listen(&place.path("one.sock")), listen(&place.path("two.sock")));
    let first = place.starts("root", "one.sock", "one", &one);
    let holder = format!("is in use by pid {} (edged)", first.0.id());
    symlink("one.sock", place.path("link.sock")).expect("a link for the test");
    fs::hard_link(place.path("one.sock"), place.path("other.sock")).expect("another name");
    for (root, socket, cgroup, what) in [
        ("root", "two.sock", "two", "the folder"),
        ("other", "one.sock", "two", "the runtime"),
        ("other", "link.sock", "two", "the runtime"),
        ("other", "other.sock", "two", "the runtime"),
        ("other", "two.sock", "one", "the cgroups"),
    ] {
        let output = place.ends(root, socket, cgroup);
        assert!(output.contains(what) && output.contains(&holder), "{socket}: {output}");
    }
    let _beside = place.starts("other", "two.sock", "two", &two);
    // A killed agent holds nothing any more.
    drop(first);
    let _next = place.starts("root", "one.sock", "one", &one);
}

#[test]
fn an_agent_ends_when_the_socket_turns_out_to_be_anothers() {
    let place = Place::new("late");
    let one = listen(&place.path("one.sock"));
    let _first = place.starts("one", "one.sock", "one", &one);
    // There is no runtime yet, so nothing is known of it.
    let mut second = Agent(place.edged("two", "two.sock", "two").spawn().expect("it starts"));
    let stderr = second.0.stderr.take().expect("it is piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    assert!(lines.any(|line| line.contains("no connection to the runtime")));
    fs::hard_link(place.path("one.sock"), place.path("two.sock")).expect("another name");
    assert_eq!(second.0.wait().expect("our child").code(), Some(1));
    assert!(lines.any(|line| line.contains("the runtime") && line.contains("is in use by pid")));
}

#[test]
fn a_kubelet_on_the_same_runtime_is_named_and_one_on_another_is_not() {
    let place = Place::new("kubelet");
    let socket = listen(&place.path("c.sock"));
    let kubelet = place.path("kubelet");
    program::write(&kubelet, b"#!/bin/sh\nread line\n");
    let run = |socket: &str| {
        let endpoint =
            format!("--container-runtime-endpoint=unix://{}", place.path(socket).display());
        let child = Command::new(&kubelet).arg(endpoint).stdin(Stdio::piped()).spawn();
        Agent(child.expect("a shell runs it"))
    };
    let same = run("c.sock");
    let output = place.ends("root", "c.sock", "c");
    let name = format!("kubelet (pid {}) uses the same runtime", same.0.id());
    assert!(output.contains(&name), "{output}");
    #[cfg(feature = "api")]
    {
        let check = Command::new(env!("CARGO_BIN_EXE_edged"))
            .arg("check")
            .arg("--runtime")
            .arg(place.path("c.sock"))
            .output()
            .expect("it runs");
        let output = String::from_utf8_lossy(&check.stdout).into_owned();
        let is = |line: &str| line.starts_with("fail") && line.contains(&name);
        assert!(output.lines().any(is), "{output}");
    }
    drop(same);
    let _other = run("other.sock");
    let _agent = place.starts("root", "c.sock", "c", &socket);
}
