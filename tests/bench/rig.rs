//! Shared by all figures: one private containerd, folders, and the machine's load.

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;

use crate::support::agent::{Site, manifest};
use crate::support::containerd::Containerd;
use crate::support::{runtime_state, scratch};

/// Started when a figure first needs it.
pub struct Rig {
    dir: PathBuf,
    containerd: OnceCell<Containerd>,
    /// Folders so far.
    folders: Cell<u32>,
}

/// The network of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The host's.
    Host,
    /// Its own, by CNI.
    Cni,
}

impl Rig {
    pub fn new() -> Rig {
        Rig { dir: scratch("bench"), containerd: OnceCell::new(), folders: Cell::new(0) }
    }

    /// The real runtime.
    pub fn containerd(&self) -> &Containerd {
        let start = || {
            eprintln!("bench: starting a private containerd");
            Containerd::start(self.dir.join("c"))
        };
        self.containerd.get_or_init(start)
    }

    /// The socket of the real runtime.
    pub fn runtime(&self) -> PathBuf {
        self.containerd().socket()
    }

    /// A new site on the real runtime.
    pub fn site(&self) -> Site {
        let runtime = self.runtime();
        self.site_on(runtime)
    }

    /// A new site on this runtime.
    pub fn site_on(&self, runtime: PathBuf) -> Site {
        Site::new(self.new_folder("s"), runtime)
    }

    /// A path that nothing has.
    pub fn new_folder(&self, name: &str) -> PathBuf {
        self.folders.set(self.folders.get() + 1);
        self.dir.join(format!("{name}{}", self.folders.get()))
    }

    /// A path for a socket.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Removes all objects from the real runtime.
    pub fn wipe(&self) {
        runtime_state::wipe(&self.runtime());
    }
}

/// A pod that does nothing and ends when it is stopped.
pub fn idler(name: &str, network: Network) -> String {
    let spec = match network {
        Network::Host => "  hostNetwork: true\n",
        Network::Cni => "",
    };
    manifest(name, spec, "").replace("localhost/edged-demo:1", "localhost/pause:1")
}

/// Processes that need a core, over one minute and now.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ');
    let minute = words.next().unwrap_or_default();
    format!("{minute}, running {}", words.nth(2).unwrap_or_default())
}
