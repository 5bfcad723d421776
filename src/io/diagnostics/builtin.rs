//! What the built-in runtime finds on this machine, with the folders of edgecore.yaml.

use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::Room;
use crate::config::Config;
use crate::io::builtin::environment::{self, Environment, NotReady};
use crate::io::builtin::{cni, layout::Settings};
use crate::model::error::System;

/// All facts.
#[derive(Clone, Debug)]
pub struct BuiltinFacts {
    /// The OCI runtime, or the reason and the message.
    pub oci: Result<Environment, NotReady>,
    /// The kernel filters system calls.
    pub seccomp: bool,
    /// Or why pods can have no network.
    pub network: Result<(), NotReady>,
    /// The program for the one masquerade rule; `None`: the network asks for none, or cannot be
    /// read.
    pub masquerade: Option<Result<&'static str, ()>>,
    /// The file system of images and records.
    pub data: Result<Room, System>,
    /// The file system of what a reboot empties.
    pub run: Result<Room, System>,
    /// That is in memory; otherwise the server makes one of its own.
    pub run_in_memory: bool,
}

pub(super) fn read(config: &Config) -> BuiltinFacts {
    let settings = Settings::of(config);
    let wants = cni::network(&settings).ok().and_then(|network| network.masqueraded().ok());
    let masquerade = wants.filter(|subnets| !subnets.is_empty()).map(|_| {
        let tools = ["nft", "iptables"];
        tools.into_iter().find(|tool| environment::find(tool).is_some()).ok_or(())
    });
    let run = super::room(settings.layout.run());
    let in_memory = |room: &Room| {
        statfs(Path::new(&room.path)).is_ok_and(|on| on.filesystem_type() == TMPFS_MAGIC)
    };
    BuiltinFacts {
        oci: environment::examine(),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        network: cni::readiness(&settings),
        masquerade,
        data: super::room(settings.layout.data()),
        run_in_memory: run.as_ref().is_ok_and(in_memory),
        run,
    }
}
