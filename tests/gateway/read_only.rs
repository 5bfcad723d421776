//! A read-only root, with one writable partition; no network, and no clock.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use crate::{BOUND, Scratch};

/// The root is made read-only in its own mount namespace, except the folder `$1`, and the network
/// namespace is empty.
const SETUP: &str = "\
    mount --make-rprivate / && mount --bind \"$1\" \"$1\" && mount --options remount,bind,ro / \
    || exit 9\n\
    if touch /edged-was-here 2>/dev/null; then rm /edged-was-here; echo 'can write'; exit 8; fi\n\
    shift\nexec \"$@\"\n";

/// A place that is not writable is known before a pod needs it.
#[cfg(all(feature = "api", feature = "cloud"))]
#[test]
fn check_names_the_places_that_cannot_be_written_to() {
    let scratch = Scratch::new();
    let [config, used] = ["edgecore.yaml", "store/used.db"].map(|name| scratch.path(name));
    for folder in ["store", "data"] {
        fs::create_dir_all(scratch.path(folder)).expect("a folder of ours");
    }
    fs::write(&used, "").expect("a file of ours");
    for store in [used, scratch.path("store/new/edgecore.db")] {
        let text = format!(
            "database: {{dataSource: {}}}\nmodules: {{edgeHub: {{httpServer: \
             'https://127.0.0.1:1', token: t}}}}\n",
            store.display()
        );
        fs::write(&config, text).expect("a file of ours");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", SETUP, "sh"]).arg(scratch.path("data"));
        command.arg(env!("CARGO_BIN_EXE_edged")).arg("check").arg("--config").arg(&config);
        command.arg("--root-dir").arg(scratch.path("kubelet"));
        command.arg("--pod-logs").arg(scratch.path("data/logs"));
        let done = command.output().expect("unshare is in util-linux");
        let output = String::from_utf8_lossy(&done.stdout);
        let row = |verdict: &str, name: &str, detail: &str| {
            let is = |line: &str| {
                let mut words = line.split_ascii_whitespace();
                words.next() == Some(verdict) && words.next() == Some(name) && line.contains(detail)
            };
            assert!(output.lines().any(is), "no {verdict} {name} {detail} in:\n{output}");
        };
        row("ok", "logs:", &scratch.path("data").display().to_string());
        row("fail", "root:", &format!("{} cannot be written to", scratch.0.display()));
        row("fail", "store:", &format!("{} cannot be used: EROFS", store.display()));
    }
}

#[test]
fn it_starts_with_one_writable_partition_no_network_and_no_clock() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    fs::create_dir_all(data.join("manifests")).expect("a folder of ours");
    let config = data.join("edgecore.yaml");
    let text = format!(
        "database: {{dataSource: {}/store/edgecore.db}}\nmodules: {{edgeHub: {{httpServer: \
         'https://cloud.example:10002', token: t}}}}\n",
        data.display()
    );
    let cgroup = format!(
        "{{edged: {{tailoredKubeletConfig: {{cgroupRoot: /edged-read-only-{}}}}}}}",
        std::process::id()
    );
    let text = if cfg!(feature = "cloud") {
        text.replace("modules: {", &format!("modules: {{{}, ", &cgroup[1..cgroup.len() - 1]))
    } else {
        format!("modules: {cgroup}\n")
    };
    fs::write(&config, text).expect("a file of ours");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", SETUP, "sh"]);
    command.arg(&data).arg(env!("CARGO_BIN_EXE_edged")).arg("run");
    for (flag, path) in [
        ("--config", "edgecore.yaml"),
        ("--manifests", "manifests"),
        ("--runtime", "absent.sock"),
        ("--root-dir", "kubelet"),
        ("--pod-logs", "logs"),
        ("--container-logs", "links"),
    ] {
        command.arg(flag).arg(data.join(path));
    }
    command.args(["--node-name", "gw", "--listen", "off"]);
    command
        .env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
        .env("FAKETIME", "@1970-01-01 00:01:00")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("unshare is in util-linux");
    let log = BufReader::new(child.stderr.take().expect("piped"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut seen = Vec::new();
    // The runtime is missing: all earlier steps of the start have worked.
    while !seen.iter().any(|line: &String| line.contains("no connection to the runtime")) {
        let line = lines.recv_timeout(BOUND);
        let Ok(line) = line else { panic!("no word of the runtime; the log: {seen:#?}") };
        seen.push(line);
    }
    assert!(child.try_wait().expect("our child").is_none(), "it ended: {seen:#?}");
    if cfg!(feature = "cloud") {
        assert!(data.join("store/edgecore.db").is_file(), "{seen:#?}");
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
}

/// Starts an agent where nothing is shared, waits for its mount, stops it, and checks that the
/// mount is gone.
const MOUNTED: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs run /run
root=$1
shift
"$@" &
agent=$!
until grep " $root " /proc/self/mountinfo | grep -q shared:; do kill -0 "$agent"; done
# Nobody but its owner and group looks into it, and no core file tells what is in memory.
test "$(stat -c %a "$root")" = 750
grep -q '^Max core file size  *0  *0 ' "/proc/$agent/limits"
kill "$agent"
wait "$agent"
! grep " $root " /proc/self/mountinfo
"#;

#[test]
fn the_mount_that_hands_on_those_below_it_goes_with_the_agent() {
    let scratch = Scratch::new();
    let root = scratch.path("kubelet");
    fs::create_dir_all(scratch.path("manifests")).expect("a folder of ours");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", MOUNTED, "sh"]).arg(&root);
    command.arg(env!("CARGO_BIN_EXE_edged")).arg("run").arg("--root-dir").arg(&root);
    for (flag, path) in [
        ("--manifests", "manifests"),
        ("--runtime", "absent.sock"),
        ("--pod-logs", "logs"),
        ("--container-logs", "links"),
    ] {
        command.arg(flag).arg(scratch.path(path));
    }
    command.args(["--node-name", "gw", "--listen", "off"]);
    let done = command.output().expect("unshare is in util-linux");
    let output = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&output));
}
