//! Where the built-in runtime keeps its things.
//!
//! ```text
//!  RUN (tmpfs: gone after a reboot)          DATA (flash)
//!    sock        the server listens            sb/ID.rec  c/ID.rec  images/HEX.rec   records
//!    sb/ID/      net ipc uts shm               c/ID/      upper work volumes
//!                resolv.conf hosts hostname    layers/HEX/fs  layers/HEX/size
//!    c/ID/       start config.json rootfs      cni/ID     result of ADD, for DEL after a reboot
//!                out err in ctl pid exit       tmp/       what is unfinished
//!    bin/        the OCI runtimes' programs, mounted read-only
//!    oci/        state of the OCI runtime
//!    s/          N-TOKEN N.lock: sessions of exec, attach and port forwarding
//!    seccomp/    filters that crun has made
//!    rec/ID.rec  copies of the records of sandboxes and containers
//! ```
//!
//! Every part of a path is an id that was checked when it was made or read: 64 hex digits.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::model::builtin::Registries;
use crate::model::endpoint::{BUILTIN, Framing};
use crate::model::runtime::{ContainerId, DiffId, Handler, ImageId, RecordKey, SandboxId};

/// What the server passes to its jobs and monitors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub layout: Layout,
    /// The OCI runtime's program: crun or runc, absolute. For jobs and monitors that of the
    /// container's sandbox.
    pub oci: PathBuf,
    /// What sandboxes may name; the first one is the default.
    pub handlers: Vec<Handler>,
    /// Of `*.conflist`, `*.conf` and `*.json`.
    pub cni_conf_dir: PathBuf,
    /// Of the plugins.
    pub cni_bin_dir: PathBuf,
    /// Where images are pulled from.
    pub registries: Registries,
}

impl Settings {
    /// As edgecore.yaml has them. The OCI runtime is empty where it names none, and RUN the usual
    /// one where the socket is another runtime's.
    pub fn of(config: &Config) -> Self {
        let socket = match config.runtime.framing {
            Framing::Grpc => BUILTIN,
            Framing::Ttrpc => &config.runtime.socket,
        };
        let run = Path::new(socket).parent().expect("a socket's path is absolute");
        let Config { builtin, image_folders, image_mirror, .. } = config;
        let mut registries = builtin.registries.clone();
        registries.image_folders = (!image_folders.is_empty()).then(|| image_mirror.to_string());
        Self {
            layout: Layout::new(run.to_path_buf(), PathBuf::from(&builtin.data_dir)),
            oci: PathBuf::from(&builtin.oci_program),
            handlers: Vec::new(),
            cni_conf_dir: PathBuf::from(&builtin.cni_conf_dir),
            cni_bin_dir: bin_dir(&builtin.cni_bin_dirs),
            registries,
        }
    }

    /// Those of a job or a monitor: `program` is the sandbox's, and empty where it has none.
    #[must_use]
    pub fn with_program(&self, program: &str) -> Self {
        let oci = if program.is_empty() { self.oci.clone() } else { program.into() };
        Self { oci, ..self.clone() }
    }
}

/// The two folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    run: PathBuf,
    data: PathBuf,
}

impl Layout {
    /// Both absolute.
    pub fn new(run: PathBuf, data: PathBuf) -> Self {
        Self { run, data }
    }

    pub fn run(&self) -> &Path {
        &self.run
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn socket(&self) -> PathBuf {
        self.run.join("sock")
    }

    /// `--root` of the OCI runtime.
    pub fn oci(&self) -> PathBuf {
        self.run.join("oci")
    }

    /// The OCI runtimes' programs, mounted read-only.
    pub fn programs(&self) -> PathBuf {
        self.run.join("bin")
    }

    /// The sockets and locks of sessions.
    pub fn sessions(&self) -> PathBuf {
        self.run.join("s")
    }

    /// Filters that crun has made.
    pub fn seccomp(&self) -> PathBuf {
        self.run.join("seccomp")
    }

    /// Copies of records.
    pub fn copies(&self) -> PathBuf {
        self.run.join("rec")
    }

    /// A sandbox's folder in RUN.
    pub fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.run.join("sb").join(&*id.0)
    }

    /// A container's folder in RUN: its bundle as well.
    pub fn container(&self, id: &ContainerId) -> PathBuf {
        self.run.join("c").join(&*id.0)
    }

    /// A container's folder in DATA.
    pub fn own_layer(&self, id: &ContainerId) -> PathBuf {
        self.data.join("c").join(&*id.0)
    }

    pub fn layers(&self) -> PathBuf {
        self.data.join("layers")
    }

    /// An unpacked layer's folder: `fs` and `size` are in it.
    pub fn layer(&self, id: &DiffId) -> PathBuf {
        self.layers().join(hex(&id.0))
    }

    /// The result of CNI's ADD.
    pub fn cni(&self, id: &SandboxId) -> PathBuf {
        self.data.join("cni").join(&*id.0)
    }

    pub fn tmp(&self) -> PathBuf {
        self.data.join("tmp")
    }

    pub fn record(&self, key: &RecordKey) -> PathBuf {
        match key {
            RecordKey::Sandbox(SandboxId(id)) => self.data.join("sb").join(format!("{id}.rec")),
            RecordKey::Container(ContainerId(id)) => self.data.join("c").join(format!("{id}.rec")),
            RecordKey::Image(ImageId(id)) => {
                self.data.join("images").join(format!("{}.rec", hex(id)))
            }
        }
    }
}

/// Where CNI plugins are: the first folder that is there, of those that are named and then of those
/// that distributions have.
fn bin_dir(named: &[String]) -> PathBuf {
    let known = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
    let mut all = named.iter().map(|folder| &**folder).chain(known);
    let first = named.first().map_or(known[0], |folder| folder);
    PathBuf::from(all.find(|folder| Path::new(folder).is_dir()).unwrap_or(first))
}

/// Of `sha256:HEX`.
fn hex(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// Whether this is the id of a sandbox or a container: 64 hex digits in lower case.
pub fn is_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_64_hex_digits_and_no_path() {
        assert!(is_id(&format!("{:064x}", 0x0123_4567_89ab_cdef_u64)));
        let (short, long) = ("a".repeat(63), "a".repeat(65));
        for other in ["", "..", &short, &long, &"G".repeat(64), &"A".repeat(64), &"/".repeat(64)] {
            assert!(!is_id(other), "{other}");
        }
    }
}
