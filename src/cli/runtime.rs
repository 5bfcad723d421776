//! `edged runtime`: serves CRI to the agent, and drives crun or runc.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;
use log::LevelFilter;

use super::Error;
use crate::config::{self, Config};
use crate::io::builtin::cni;
use crate::io::builtin::environment::{self, Environment};
use crate::io::builtin::layout::{Layout, Settings};
use crate::model::endpoint::{BUILTIN, Framing};
use crate::model::error::Input;

/// What edgecore.yaml and the arguments say, and what this machine has.
pub(super) fn parse(mut args: lexopt::Parser) -> Result<(Settings, Environment), Error> {
    let (mut run, mut data, mut oci) = (None, None, None);
    let (mut plugins, mut conflists) = (None, None);
    let mut level = LevelFilter::Info;
    let mut file: Vec<OsString> = Vec::new();
    while let Some(arg) = args.next()? {
        let (name, folder) = match arg {
            Long("config") => {
                file.extend(["--config".into(), args.value()?]);
                continue;
            }
            Long("log") => {
                level = args.value()?.parse()?;
                continue;
            }
            Long("run-dir") => ("--run-dir", &mut run),
            Long("data-dir") => ("--data-dir", &mut data),
            Long("oci") => ("--oci", &mut oci),
            Long("cni-bin-dir") => ("--cni-bin-dir", &mut plugins),
            Long("cni-conf-dir") => ("--cni-conf-dir", &mut conflists),
            _ => return Err(arg.unexpected().into()),
        };
        *folder = Some(absolute(name, args.value()?.into())?);
    }
    let config = config::load(&file, Some("localhost".to_owned()))?.config;
    crate::io::log::open(level);
    let environment = environment::examine().map_err(|(reason, message)| {
        Error::Failed(format!("this machine cannot run containers: {reason}: {message}"))
    })?;
    for remark in &environment.remarks {
        log::warn!("{remark}");
    }
    let run = run.map_or_else(|| run_dir(&config), Ok)?;
    let Config { builtin, image_folders, image_mirror, .. } = config;
    let mut registries = builtin.registries;
    registries.image_folders = (!image_folders.is_empty()).then(|| image_mirror.to_string());
    let named = (!builtin.oci_program.is_empty()).then(|| PathBuf::from(&builtin.oci_program));
    let settings = Settings {
        layout: Layout::new(run, data.unwrap_or_else(|| builtin.data_dir.into())),
        oci: oci.or(named).unwrap_or_else(|| environment.oci.clone()),
        cni_conf_dir: conflists.unwrap_or_else(|| builtin.cni_conf_dir.into()),
        cni_bin_dir: plugins.unwrap_or_else(|| cni::bin_dir(&builtin.cni_bin_dirs)),
        registries,
    };
    Ok((settings, environment))
}

/// The folder of the socket that the agent connects to.
fn run_dir(config: &Config) -> Result<PathBuf, Error> {
    let socket = match config.runtime.framing {
        Framing::Grpc => BUILTIN,
        Framing::Ttrpc => &config.runtime.socket,
    };
    socket.strip_suffix("/sock").map(PathBuf::from).ok_or_else(|| {
        let expected = "ttrpc:// and a path that ends with /sock, or --run-dir";
        Error::Failed(
            Input::new(&config.runtime, expected).at("containerRuntimeEndpoint").to_string(),
        )
    })
}

fn absolute(option: &str, path: PathBuf) -> Result<PathBuf, Error> {
    if is_plain(&path) {
        return Ok(path);
    }
    let got = path.display();
    Err(Error::Usage(format!("{option}: got {got}, expected an absolute path without `..`")))
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_absolute() {
        for (path, plain) in
            [("/run/edged/rt", true), ("run", false), ("", false), ("/run/../etc", false)]
        {
            assert_eq!(absolute("--run-dir", path.into()).is_ok(), plain, "{path}");
        }
    }
}
