//! `edged runtime`: serves CRI to the agent, and drives crun or runc.

use std::path::{Path, PathBuf};

use lexopt::prelude::*;
use log::LevelFilter;

use super::Error;
use crate::io::builtin::environment::Environment;
use crate::io::builtin::layout::{Layout, Settings};
use crate::io::builtin::{cni, environment};

/// RUN, if no option says otherwise.
const RUN: &str = "/run/edged/rt";
/// DATA, likewise.
const DATA: &str = "/var/lib/edged/rt";
const CONFLISTS: &str = "/etc/cni/net.d";

/// What the arguments say, and what this machine has.
pub(super) fn parse(mut args: lexopt::Parser) -> Result<(Settings, Environment), Error> {
    let (mut run, mut data) = (PathBuf::from(RUN), PathBuf::from(DATA));
    let (mut oci, mut plugins, mut conflists) = (None, None, PathBuf::from(CONFLISTS));
    let mut level = LevelFilter::Info;
    while let Some(arg) = args.next()? {
        match arg {
            Long("run-dir") => run = absolute("--run-dir", args.value()?.into())?,
            Long("data-dir") => data = absolute("--data-dir", args.value()?.into())?,
            Long("oci") => oci = Some(absolute("--oci", args.value()?.into())?),
            Long("cni-bin-dir") => {
                plugins = Some(absolute("--cni-bin-dir", args.value()?.into())?);
            }
            Long("cni-conf-dir") => conflists = absolute("--cni-conf-dir", args.value()?.into())?,
            Long("log") => level = args.value()?.parse()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    crate::io::log::open(level);
    let environment = environment::examine().map_err(|(reason, message)| {
        Error::Failed(format!("this machine cannot run containers: {reason}: {message}"))
    })?;
    for remark in &environment.remarks {
        log::warn!("{remark}");
    }
    let settings = Settings {
        layout: Layout::new(run, data),
        oci: oci.unwrap_or_else(|| environment.oci.clone()),
        cni_conf_dir: conflists,
        cni_bin_dir: plugins.unwrap_or_else(cni::default_bin_dir),
    };
    Ok((settings, environment))
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
