//! A private containerd by `scripts/containerd`, with the images of `scripts/images`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{guard, top};

/// A running one; the guard ends it.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
}

impl Containerd {
    /// Starts one in this folder, on the first free network, and imports the images.
    pub fn start(dir: PathBuf) -> Containerd {
        guard::keep(guard::Left::Containerd(dir.clone()));
        let containerd = Containerd { dir };
        containerd.script("start");
        let socket = containerd.socket();
        run(Command::new(top().join("scripts/images")).arg("import").arg(&socket));
        containerd
    }

    /// Kills the daemon alone with SIGKILL and starts it again with its state.
    pub fn restart(&self) {
        self.kill();
        self.start_daemon();
    }

    /// Kills the daemon alone; the containers go on.
    pub fn kill(&self) {
        self.script("kill");
    }

    /// Ends the daemon and everything that runs in it, as a power cut does; the disk's contents
    /// stay.
    pub fn cut(&self) {
        self.script("stop");
    }

    /// Starts the daemon again.
    pub fn start_daemon(&self) {
        self.script("start");
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("c.sock")
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.dir.join("pid")).expect("it was started");
        text.trim().parse().expect("a pid")
    }

    /// `ctr` in the CRI's namespace.
    pub fn ctr(&self, arguments: &[&str]) -> String {
        let mut ctr = Command::new("ctr");
        ctr.env("PATH", path());
        ctr.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io"]).args(arguments);
        run(&mut ctr)
    }

    fn script(&self, verb: &str) {
        run(Command::new(top().join("scripts/containerd")).arg(verb).arg(&self.dir));
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// `PATH`, with the folder of containerd and `ctr` that `CONTAINERD` names put first.
pub fn path() -> OsString {
    let named = std::env::var_os("CONTAINERD").filter(|folder| !folder.is_empty());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = named.map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("no folder has a colon")
}

/// Whether a text begins with «containerd» and a version, such as «containerd v2.3.4».
pub fn is_version(text: &str) -> bool {
    let version = text.strip_prefix("containerd ").unwrap_or_default();
    version.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit())
}

/// Runs to the end; a failure reports the output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{stderr}", output.status);
    text
}
