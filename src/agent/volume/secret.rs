//! `secret`: its keys as files, in memory only.

use std::collections::BTreeMap;

use super::files::{Choice, choose};
use super::{Context, MODE};
use crate::limits::FILES_VOLUME_BYTES_MAX;
use crate::model::job::{FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{ObjectFiles, SecretVolume, Volume};

pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let SecretVolume { secret_name: name, items, default_mode, optional, .. } =
        volume.secret.clone().unwrap_or_default();
    let of = ObjectFiles { name, items, default_mode, optional, ..ObjectFiles::default() };
    let files = files(&of, of.default_mode.unwrap_or(MODE), context)?;
    let memory_bytes = Some(FILES_VOLUME_BYTES_MAX);
    Ok(Source::Files(Files { plugin: FilesPlugin::Secret, memory_bytes, files }))
}

/// Its files; also for projected volumes.
pub(super) fn files(
    of: &ObjectFiles,
    mode: i32,
    context: Context<'_>,
) -> Result<Vec<FileEntry>, String> {
    let optional = of.optional.unwrap_or(false);
    let namespace = &context.pod.metadata.namespace;
    let Some(secret) = context.objects.secret(namespace, &of.name) else {
        let missing = format!("secret {:?} not found", of.name);
        return if optional { Ok(Vec::new()) } else { Err(missing) };
    };
    let data: BTreeMap<&str, &[u8]> =
        secret.data.iter().map(|(key, bytes)| (key.as_str(), bytes.as_ref())).collect();
    let missing = "references non-existent secret key";
    choose(&data, Choice { items: &of.items, mode, optional, missing })
}
