//! `edged images import`: for runtimes that cannot be configured to use the registry. The CRI has
//! no call for it, so the runtime's own tool imports; only containerd's is supported, and the
//! built-in runtime.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use super::archive::Catalog;
use super::image_store::full_name;
use crate::model::endpoint::{Framing, RuntimeEndpoint};
use crate::model::error::{Error, Input, System};

/// Imports the archive's images into the runtime at the socket. Returns their names. `waiting` is
/// called now and then with the milliseconds so far; not while another program imports.
pub fn import(
    file: &Path,
    runtime: &RuntimeEndpoint,
    waiting: &mut dyn FnMut(u64),
) -> Result<Vec<String>, Error> {
    let _ = &waiting;
    match runtime.framing {
        Framing::Grpc => import_by_ctr(file, &runtime.socket),
        #[cfg(feature = "runtime")]
        Framing::Ttrpc => super::builtin::import(file, runtime, waiting),
    }
}

fn import_by_ctr(file: &Path, socket: &str) -> Result<Vec<String>, Error> {
    let shown = file.display();
    if file.is_dir() {
        let expected = "an archive: put folders into imageFolders, where the registry on loopback \
                        serves them";
        return Err(Input::new(format_args!("the folder {shown}"), expected).into());
    }
    let catalog = Catalog::open(file).map_err(|error| error.at(&shown))?;
    let names: Vec<String> = catalog.images.iter().map(full_name).collect();
    let mut ctr = Command::new("ctr");
    ctr.args(["--address", socket, "--namespace", "k8s.io", "images", "import"]).arg(file);
    let output = ctr.output().map_err(|error| {
        System::new(match error.kind() {
        ErrorKind::NotFound => format!(
            "no `ctr` on this machine, which is a part of containerd: put {shown} into one of the \
             imageFolders of edgecore.yaml, then any runtime can pull {} from the registry on \
             loopback",
            names.join(", ")
        ),
        _ => format!("ctr: {error}"),
    })})?;
    if output.status.success() {
        return Ok(names);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let what = format_args!("ctr did not import {shown} ({})", output.status);
    Err(System::at(what, message.trim()).into())
}
