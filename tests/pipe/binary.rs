//! The whole binary with this test as its runtime: it lists at once, stops on a signal, reloads its
//! configuration, and its children do not outlive it. Waiting is for bytes or an exit; the ten
//! seconds are only for a failing test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::MutexGuard;
use std::time::Duration;

use edged::wire::cri::Rpc;
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::Peer;
use crate::server::Server;

struct Agent {
    dir: PathBuf,
    child: Child,
    log: BufReader<fs::File>,
    listener: UnixListener,
    _alone: MutexGuard<'static, ()>,
}

impl Agent {
    fn start(name: &str) -> Self {
        Self::start_with(name, |_| ())
    }

    fn start_with(name: &str, change: impl FnOnce(&mut Command)) -> Self {
        let alone = crate::jobs::alone();
        let dir = std::env::temp_dir().join(format!("edged-binary-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("manifests")).expect("a folder for the test");
        let listener = UnixListener::bind(dir.join("c.sock")).expect("a socket");
        fs::write(dir.join("edgecore.yaml"), config(&dir, "manifests", "")).expect("a file");
        let path = |below: &str| dir.join(below).into_os_string();
        let (log, errors) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(env!("CARGO_BIN_EXE_edged"));
        command
            .args(["run", "--listen", "off", "--node-name", "gw", "--log", "debug"])
            .args(["--config".into(), path("edgecore.yaml")])
            .args(["--runtime".into(), path("c.sock")])
            .args(["--root-dir".into(), path("kubelet")])
            .args(["--pod-logs".into(), path("pods")])
            .args(["--container-logs".into(), path("links")])
            .env_remove("RUST_LOG")
            .stderr(errors);
        change(&mut command);
        let child = command.spawn().expect("it starts");
        let log = BufReader::new(fs::File::from(OwnedFd::from(log)));
        Self { dir, child, log, listener, _alone: alone }
    }

    fn accept(&self) -> Peer {
        let fd = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        let ready = poll(&mut [fd], PollTimeout::from(10_000u16)).expect("polled");
        assert_eq!(ready, 1, "nobody connected within ten seconds");
        Peer::accept(&self.listener)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it lives");
    }

    /// Reads the log up to a line with `text`; returns that line.
    fn logged(&mut self, text: &str) -> String {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            let count = self.log.read_line(&mut line).expect("it can be read");
            assert!(count > 0, "no {text:?} in:\n{before}");
            if line.contains(text) {
                return line;
            }
            before.push_str(&line);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The agent makes its folder a mount of its own, and leaves it to the next agent.
        let _ = umount2(&self.dir.join("kubelet"), MntFlags::MNT_DETACH);
        if let Err(error) = fs::remove_dir_all(&self.dir)
            && !std::thread::panicking()
        {
            panic!("{}: {error}", self.dir.display());
        }
    }
}

fn config(dir: &std::path::Path, manifests: &str, more: &str) -> String {
    format!(
        "apiVersion: edgecore.config.kubeedge.io/v1alpha2\nkind: EdgeCore\nmodules:\n  edged:\n    \
         tailoredKubeletConfig:\n      cgroupRoot: /edged-binary-{}\n      \
         staticPodPath: {}\n{more}",
        std::process::id(),
        dir.join(manifests).display()
    )
}

/// Reads until that call was made.
fn calls(socket: &mut UnixStream, server: &mut Server, rpc: Rpc) {
    socket.set_nonblocking(false).expect("blocking");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a guard");
    let mut buffer = [0; 4_096];
    while !server.calls.iter().any(|calls| calls.path == rpc.path()) {
        let count = socket.read(&mut buffer).expect("the call comes within ten seconds");
        assert!(count > 0, "the agent hung up");
        server.receive(&buffer[..count]);
    }
}

#[test]
fn the_agent_asks_its_runtime_and_stops_when_told() {
    let mut agent = Agent::start("stop");
    let Peer { mut socket, mut server } = agent.accept();
    calls(&mut socket, &mut server, Rpc::Version);
    agent.signal(Signal::SIGTERM);
    agent.logged("stopped; the pods are left as they are");
    let status = agent.child.wait().expect("it ended");
    assert!(status.success(), "{status}");
}

#[test]
fn a_hangup_reads_the_configuration_again_and_says_what_waits_for_a_restart() {
    let mut agent = Agent::start("reload");
    let _peer = agent.accept();
    agent.logged("connected");
    fs::create_dir_all(agent.dir.join("others")).expect("a folder");
    fs::write(agent.dir.join("others/web.yaml"), "kind: Pod\n").expect("a file");
    let file = agent.dir.join("edgecore.yaml");
    fs::write(&file, config(&agent.dir, "others", "      maxPods: 20\n")).expect("a file");
    agent.signal(Signal::SIGHUP);
    let line = agent.logged("only a restart applies it");
    assert!(line.ends_with("only a restart applies it: maxPods\n"), "{line}");
    agent.logged("others/web.yaml read");
    fs::write(&file, "modules: [").expect("a file");
    agent.signal(Signal::SIGHUP);
    let line = agent.logged("the configuration is unchanged");
    let (time, rest) = line.split_once(' ').expect("words");
    assert!(time.ends_with('Z') && time.contains('T'), "{line}");
    assert!(rest.starts_with("ERROR io ") && rest.contains("edgecore.yaml:"), "{line}");
}

/// Its line about an unreadable configuration.
fn complaint(agent: &mut Agent) -> String {
    let _peer = agent.accept();
    fs::write(agent.dir.join("edgecore.yaml"), "modules: [").expect("a file");
    agent.signal(Signal::SIGHUP);
    agent.logged("the configuration is unchanged")
}

#[test]
fn a_filter_that_makes_no_sense_silences_no_error() {
    let mut agent = Agent::start_with("filter", |command| {
        command.env("RUST_LOG", "blah");
    });
    agent.logged(" WARN  io::log RUST_LOG: got \"blah\", expected levels");
    assert!(complaint(&mut agent).contains(" ERROR io "));
}

#[test]
fn no_line_has_a_time_where_the_journal_adds_it() {
    use std::os::unix::fs::MetadataExt;

    let (log, journal) = std::io::pipe().expect("a pipe");
    let about = fs::File::from(OwnedFd::from(journal.try_clone().expect("a pipe")));
    let about = about.metadata().expect("it is open");
    let mut agent = Agent::start_with("journal", |command| {
        command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()));
        command.stderr(journal);
    });
    agent.log = BufReader::new(fs::File::from(OwnedFd::from(log)));
    let line = complaint(&mut agent);
    assert!(line.starts_with("ERROR io "), "{line}");
}

#[test]
fn a_wrong_command_line_is_told_with_exit_code_2() {
    let _alone = crate::jobs::alone();
    for args in [&["run", "--manifest", "/m"][..], &["walk"], &["help", "walk"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_edged")).args(args).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stderr.starts_with(b"edged"), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}
