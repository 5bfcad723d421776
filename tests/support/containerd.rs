//! A private containerd by `scripts/containerd`, with the images of `scripts/images`; or, where
//! `RUNTIME=builtin`, the built-in runtime by `scripts/builtin`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use edged::wire::cri::image::{ImageSpec, RemoveImageRequest};

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

impl Kind {
    /// As CRI's Version names it; the ids of containers begin with it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Containerd => "containerd",
            Kind::Builtin => "edged",
        }
    }
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
        containerd.import_images();
        containerd
    }

    /// Imports the images of the tests; those that are there stay.
    pub fn import_images(&self) {
        let images = || Command::new(top().join("scripts/images"));
        if self.kind == Kind::Containerd {
            run(images().arg("import").arg(self.socket()));
            return;
        }
        run(images().arg("build"));
        for name in ["pause-1", "edged-demo-1", "edged-demo-2"] {
            self.import(&archive(name));
        }
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

    /// Imports a docker-archive.
    pub fn import(&self, archive: &Path) {
        match self.kind {
            Kind::Containerd => {
                self.ctr(&["images", "import", &archive.to_string_lossy()]);
            }
            Kind::Builtin => {
                let endpoint = format!("ttrpc://{}", self.socket().display());
                let mut import = Command::new(binary());
                run(import.args(["images", "import", "--runtime", &endpoint]).arg(archive));
            }
        }
    }

    /// Gives `localhost/edged-demo:1` another name beside its own.
    pub fn tag(&self, name: &str) {
        let image = "localhost/edged-demo:1";
        if self.kind == Kind::Containerd {
            self.ctr(&["images", "tag", image, name]);
            return;
        }
        let work = self.dir.join("tag");
        std::fs::create_dir_all(&work).expect("a folder of ours");
        let packed = work.join("image.tar");
        run(Command::new("tar").arg("-C").arg(&work).arg("-xf").arg(archive("edged-demo-1")));
        let manifest = work.join("manifest.json");
        let text = std::fs::read_to_string(&manifest).expect("every archive has one");
        std::fs::write(&manifest, text.replace(image, name)).expect("a file of ours");
        let all = ["--exclude=image.tar", "."];
        run(Command::new("tar").arg("-C").arg(&work).arg("-cf").arg(&packed).args(all));
        self.import(&packed);
        std::fs::remove_dir_all(&work).expect("a folder of ours");
    }

    /// Takes a name from an image. The built-in runtime knows images with all their names only:
    /// there the image is removed, and those of the tests are imported again.
    pub fn untag(&self, name: &str) {
        if self.kind == Kind::Containerd {
            self.ctr(&["images", "rm", "--sync", name]);
            return;
        }
        let image = Some(ImageSpec { image: name.to_owned(), ..ImageSpec::default() });
        let mut cri = super::cri::Cri::connect(&self.socket()).expect("it listens");
        cri.call(&RemoveImageRequest { image }).expect("nothing uses it");
        self.import_images();
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

    /// What the built-in runtime has mounted for pods, a line of /proc/self/mounts each. The OCI
    /// runtimes' programs stay mounted as long as it runs: they are of no pod.
    pub fn pod_mounts(&self) -> Vec<String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is mounted");
        let below = format!(" {}/rt/", self.dir.display());
        let programs = format!("{below}bin/");
        let of_pods = |line: &&str| line.contains(&below) && !line.contains(&programs);
        mounts.lines().filter(of_pods).map(str::to_owned).collect()
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A docker-archive that `scripts/images` makes.
fn archive(name: &str) -> PathBuf {
    top().join(format!("target/images/{name}.tar"))
}

/// Which one `RUNTIME` names.
pub fn kind() -> Kind {
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

/// Whether a text begins with the runtime's name and a version, such as «containerd v2.3.4».
pub fn is_version(text: &str) -> bool {
    let (name, version) = text.split_once(' ').unwrap_or_default();
    let is_number = version.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
    name == kind().name() && is_number
}

/// Runs to the end; a failure reports the output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{stderr}", output.status);
    text
}
