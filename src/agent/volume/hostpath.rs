//! `hostPath`: a path of the node, checked by its type.

use crate::model::job::{HostPathKind, Source};
use crate::model::pod::{HostPath, Volume};

pub(super) fn source(volume: &Volume) -> Result<Source, String> {
    of(&volume.host_path.clone().unwrap_or_default())
}

/// Also for a persistent volume.
pub(super) fn of(of: &HostPath) -> Result<Source, String> {
    let kind = kind(&of.r#type).ok_or_else(|| {
        format!("hostPath type check failed: {:?} is an invalid volume type", of.r#type)
    })?;
    Ok(Source::HostPath { path: of.path.as_str().into(), kind })
}

/// By its name in the API.
pub(in crate::agent) fn kind(name: &str) -> Option<HostPathKind> {
    Some(match name {
        "" => HostPathKind::Unset,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        _ => return None,
    })
}
