//! `nfs`: a directory of another machine, mounted in a child process by mount(8) (spec section
//! 14.4).

use super::{Context, Location};
use crate::model::job::Source;
use crate::model::pod::{Nfs, Volume};

pub(super) fn plan(volume: &Volume, context: Context<'_>) -> (Source, Location) {
    let of_volume = volume.nfs.clone().unwrap_or_default();
    let host_path = super::host_path(volume, context.pod, &context.config.root);
    let read_only = of_volume.read_only;
    let location = Location { folder: volume.name.clone(), host_path, read_only };
    (of(&of_volume, read_only, &[]), location)
}

/// Also for a persistent volume.
pub(super) fn of(of: &Nfs, read_only: bool, options: &[String]) -> Source {
    Source::Nfs {
        server: of.server.as_str().into(),
        path: of.path.as_str().into(),
        read_only,
        options: options.iter().map(|option| option.as_str().into()).collect(),
    }
}
