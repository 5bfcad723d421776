//! A private containerd by `scripts/containerd`, with the images of `scripts/images`; or, where
//! `RUNTIME=builtin`, the built-in runtime by `scripts/builtin`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::agent::binary;
use super::{guard, top};

/// A running one; the guard ends it.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
    kind: Kind,
    /// What the built-in runtime is started with: its program, and crun or runc if one is named.
    builtin: (PathBuf, Option<PathBuf>),
}

/// Which runtime it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Containerd,
    /// `edged runtime`
    Builtin,
}

impl Containerd {
    /// Starts one in this folder, on the first free network, and imports the images.
    pub fn start(dir: PathBuf) -> Containerd {
        Containerd::start_kind(dir, kind())
    }

    /// Starts one of this kind, whatever `RUNTIME` says.
    pub fn start_kind(dir: PathBuf, kind: Kind) -> Containerd {
        Containerd::start_with(dir, kind, (binary().to_owned(), None))
    }

    /// Starts a built-in runtime of this program, which drives this crun or runc.
    pub fn start_builtin(dir: PathBuf, program: PathBuf, oci: PathBuf) -> Containerd {
        Containerd::start_with(dir, Kind::Builtin, (program, Some(oci)))
    }

    fn start_with(dir: PathBuf, kind: Kind, builtin: (PathBuf, Option<PathBuf>)) -> Containerd {
        guard::keep(guard::Left::Runtime(kind, dir.clone()));
        let containerd = Containerd { dir, kind, builtin };
        containerd.script("start");
        let socket = containerd.socket();
        let images = || Command::new(top().join("scripts/images"));
        if kind == Kind::Containerd {
            run(images().arg("import").arg(&socket));
            return containerd;
        }
        run(images().arg("build"));
        for name in ["pause-1", "edged-demo-1", "edged-demo-2"] {
            let file = top().join(format!("target/images/{name}.tar"));
            let endpoint = format!("ttrpc://{}", socket.display());
            let mut import = Command::new(binary());
            run(import.args(["images", "import", "--runtime", &endpoint]).arg(file));
        }
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

    /// From its next start on the built-in runtime calls this program in the place of crun or runc.
    #[cfg(feature = "runtime")]
    #[allow(dead_code, reason = "not every program of tests has such a test")]
    pub fn use_oci(&mut self, program: PathBuf) {
        self.builtin.1 = Some(program);
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(if self.kind == Kind::Builtin { "rt/sock" } else { "c.sock" })
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join(if self.kind == Kind::Builtin { "runtime.log" } else { "containerd.log" })
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
        let mut script = script(self.kind);
        let (program, oci) = &self.builtin;
        script.env("EDGED", program);
        if let Some(oci) = oci {
            script.env("OCI", oci);
        }
        run(script.arg(verb).arg(&self.dir));
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Which one `RUNTIME` names.
fn kind() -> Kind {
    match std::env::var("RUNTIME").as_deref() {
        Err(_) | Ok("" | "containerd") => Kind::Containerd,
        Ok("builtin") => Kind::Builtin,
        Ok(other) => panic!("RUNTIME: got {other:?}, expected containerd or builtin"),
    }
}

/// What starts and stops a private runtime.
pub fn script(kind: Kind) -> Command {
    let name = match kind {
        Kind::Containerd => "scripts/containerd",
        Kind::Builtin => "scripts/builtin",
    };
    let mut script = Command::new(top().join(name));
    script.env("EDGED", binary());
    script
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
