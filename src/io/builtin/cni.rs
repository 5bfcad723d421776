//! Attaches sandboxes to the pod network: runs CNI plugins, and keeps on flash what DEL needs.
//!
//! ```text
//!  ADD  network and no result are kept ─▶ plugin ─▶ plugin … ─▶ the result is kept
//!  DEL  plugin … ─▶ plugin, in reverse ─▶ what was kept is removed
//! ```
//!
//! DEL uses the network that ADD used, also after a reboot, when there is no namespace: otherwise
//! host-local, which keeps its leases on flash, would run out of addresses. **If we crash here**
//! the next attempt begins with DEL, which plugins must take however far ADD came. What is kept is
//! not synced: after a power cut it may be missing, and DEL then uses the present network.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use nix::unistd::{AccessFlags, access};
use serde_json::Value;

use super::fail_point::{self, Who};
use super::files;
use super::layout::Settings;
use super::program;
use crate::limits::{CNI_CONFIG_BYTES_MAX, CNI_PLUGIN_MS, PROGRAM_OUTPUT_BYTES_MAX};
use crate::model::error::{Error, Input, System};
use crate::model::runtime::{JobFault, SandboxPhase, SandboxRecord};
use crate::wire::cni::{self, Attachment, INTERFACE, Network, Plugin};

/// The network of all pods: the first configuration by name, without one that is only loopback.
pub fn network(settings: &Settings) -> Result<Network, Error> {
    let folder = &settings.cni_conf_dir;
    let mut paths = Vec::new();
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                let path = entry.map_err(|error| files::at("readdir", folder, &error))?.path();
                let end = path.extension().and_then(|end| end.to_str());
                if matches!(end, Some("conflist" | "conf" | "json")) {
                    paths.push(path);
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(files::at("readdir", folder, &error).into()),
    }
    paths.sort_unstable();
    for path in paths {
        let bytes = files::read(&path, CNI_CONFIG_BYTES_MAX);
        let bytes = bytes.map_err(|error| files::at("read", &path, &error))?;
        let network = Network::parse(&bytes).map_err(|why| why.at(path.display()))?;
        if !network.is_loopback() {
            return Ok(network);
        }
    }
    let why = format!("no network: no *.conflist, *.conf or *.json in {}", folder.display());
    Err(Input::other(why).into())
}

/// The condition `NetworkReady`: the network can be read, and its plugins are there.
pub fn readiness(settings: &Settings) -> Result<(), (Box<str>, Box<str>)> {
    let not_ready = |why: String| Err(("NetworkPluginNotReady".into(), why.into()));
    let network = match network(settings) {
        Ok(network) => network,
        Err(why) => return not_ready(format!("cni: {why}")),
    };
    for plugin in network.plugins() {
        let path = settings.cni_bin_dir.join(plugin.kind());
        if let Err(errno) = access(&path, AccessFlags::X_OK) {
            let (name, path) = (network.name(), path.display());
            let errno = errno.desc();
            return not_ready(format!("cni: network {name} needs the plugin {path}: {errno}"));
        }
    }
    Ok(())
}

/// ADD. `netns`: the file that holds the sandbox's network namespace. → its addresses, the first is
/// CRI's `network.ip`. After a failure [`detach`] is needed.
pub(super) fn attach(
    settings: &Settings,
    record: &SandboxRecord,
    netns: &Path,
) -> Result<Vec<Box<str>>, JobFault> {
    let id = &record.id;
    let failed = |why: String| {
        JobFault::Failed(format!("failed to setup network for sandbox \"{id}\": {why}"))
    };
    let network = network(settings).map_err(|why| failed(why.to_string()))?;
    let mut attachment = Attachment { network, result: None };
    let keep = |attachment: &Attachment| {
        keep(settings, record, attachment).map_err(|why| failed(why.to_string()))
    };
    keep(&attachment)?;
    let step = |what| fail_point::step(settings.layout.run(), Who::Job, what);
    step("the network is noted");
    let network = &attachment.network;
    let mut result: Option<Value> = None;
    for plugin in network.chain(&record.config) {
        let call = Call { settings, record, network, netns: Some(netns), verb: "ADD" };
        let stdout = call.run(plugin, result.as_ref()).map_err(|fault| match fault {
            Fault::Invalid(why) => JobFault::Invalid(why.to_string()),
            Fault::Failed(why) => failed(why),
        })?;
        let read = cni::result(&stdout);
        result = Some(read.map_err(|why| failed(format!("{}: {why}", plugin.kind())))?);
        step("a plugin has done ADD");
    }
    let addresses = result.as_ref().map(cni::addresses).unwrap_or_default();
    if addresses.is_empty() {
        let name = attachment.network.name();
        return Err(failed(format!("network {name} gave no address to {INTERFACE}")));
    }
    attachment.result = result;
    keep(&attachment)?;
    Ok(addresses.iter().map(|address| address.to_string().into()).collect())
}

/// DEL of whatever [`attach`] did. `netns`: `None` if it is gone. Succeeds where nothing is left.
pub(super) fn detach(
    settings: &Settings,
    record: &SandboxRecord,
    netns: Option<&Path>,
) -> Result<(), JobFault> {
    let id = &record.id;
    let path = settings.layout.cni(id);
    // A network and a result, which has the bounds of what programs write.
    let kept = match files::read(&path, CNI_CONFIG_BYTES_MAX + PROGRAM_OUTPUT_BYTES_MAX) {
        Ok(bytes) => Attachment::decode(&bytes)
            .inspect_err(|why| log::warn!("{}: {why}", path.display()))
            .ok(),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(JobFault::Failed(files::at("read", &path, &error).to_string())),
    };
    let must = kept.is_some() || netns.is_some();
    if !must && record.phase == SandboxPhase::NotReady {
        return Ok(());
    }
    let attachment = match (kept, network(settings)) {
        (Some(kept), _) => kept,
        (None, Ok(network)) => Attachment { network, result: None },
        // Nothing can have been attached by it that we know of.
        (None, Err(_)) => return remove(&path),
    };
    let Attachment { network, result } = &attachment;
    let mut failure = None;
    for plugin in network.chain(&record.config).into_iter().rev() {
        let call = Call { settings, record, network, netns, verb: "DEL" };
        if let Err(fault) = call.run(plugin, result.as_ref()) {
            failure = failure.or(Some(fault.to_string()));
        }
        fail_point::step(settings.layout.run(), Who::Job, "a plugin has done DEL");
    }
    match failure {
        Some(why) if must => {
            Err(JobFault::Failed(format!("failed to destroy network for sandbox \"{id}\": {why}")))
        }
        _ => remove(&path),
    }
}

/// Ids of sandboxes whose DEL is due or may be.
pub(super) fn kept_ids(settings: &Settings) -> Vec<String> {
    let folder = settings.layout.data().join("cni");
    files::names(&folder)
}

fn keep(
    settings: &Settings,
    record: &SandboxRecord,
    attachment: &Attachment,
) -> Result<(), System> {
    let path = settings.layout.cni(&record.id);
    let tmp = settings.layout.tmp().join(format!("{}.cni", record.id));
    for path in [&path, &tmp] {
        files::make_dir(path.parent().expect("it lies in a folder"))?;
    }
    files::replace(&tmp, &path, &attachment.encode())
}

fn remove(path: &Path) -> Result<(), JobFault> {
    files::remove(path).map_err(|why| JobFault::Failed(why.to_string()))
}

/// One command for one sandbox.
struct Call<'a> {
    settings: &'a Settings,
    record: &'a SandboxRecord,
    network: &'a Network,
    netns: Option<&'a Path>,
    verb: &'static str,
}

#[derive(Debug)]
enum Fault {
    /// The pod asks for what cannot be.
    Invalid(Input),
    Failed(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(why) => why.fmt(f),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl Call<'_> {
    /// → its standard output.
    fn run(&self, plugin: &Plugin, previous: Option<&Value>) -> Result<Vec<u8>, Fault> {
        let SandboxRecord { id, config, .. } = self.record;
        let input = self.network.input(plugin, config, previous).map_err(Fault::Invalid)?;
        let args = cni::args(&id.0, config).map_err(Fault::Invalid)?;
        let bin = &self.settings.cni_bin_dir;
        let mut command = command(bin, plugin.kind());
        command
            .env("CNI_COMMAND", self.verb)
            .env("CNI_CONTAINERID", &*id.0)
            .env("CNI_NETNS", self.netns.unwrap_or(Path::new("")))
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_ARGS", args);
        let failed = |why: &dyn std::fmt::Display| {
            let verb = self.verb.to_ascii_lowercase();
            Fault::Failed(format!("plugin type=\"{}\" failed ({verb}): {why}", plugin.kind()))
        };
        let ended =
            program::run(&mut command, &input, CNI_PLUGIN_MS).map_err(|why| failed(&why))?;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        Err(failed(&cni::failure(&ended.stdout, &ended.stderr)))
    }
}

/// A call of a plugin in this folder, without the words that are its own.
pub(super) fn command(bin: &Path, plugin: &str) -> Command {
    let mut command = program::unbounded(bin.join(plugin));
    command.env("CNI_PATH", bin).current_dir("/");
    program::with_path(&mut command);
    command
}

#[cfg(test)]
mod tests;
