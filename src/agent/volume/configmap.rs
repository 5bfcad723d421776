//! `configMap`: its keys as files on the disk.

use std::collections::BTreeMap;

use super::files::{Choice, choose};
use super::{Context, MODE};
use crate::model::job::{FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{ObjectFiles, Volume};

pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let of = volume.config_map.clone().unwrap_or_default();
    let files = files(&of, of.default_mode.unwrap_or(MODE), context)?;
    Ok(Source::Files(Files { plugin: FilesPlugin::ConfigMap, memory_bytes: None, files }))
}

/// Its files; also for projected volumes.
pub(super) fn files(
    of: &ObjectFiles,
    mode: i32,
    context: Context<'_>,
) -> Result<Vec<FileEntry>, String> {
    let optional = of.optional.unwrap_or(false);
    let namespace = &context.pod.metadata.namespace;
    let Some(map) = context.objects.config_map(namespace, &of.name) else {
        let missing = format!("configmap {:?} not found", of.name);
        return if optional { Ok(Vec::new()) } else { Err(missing) };
    };
    let texts = map.data.iter().map(|(key, text)| (key.as_str(), text.as_bytes()));
    let bytes = map.binary_data.iter().map(|(key, bytes)| (key.as_str(), bytes.as_ref()));
    let data: BTreeMap<&str, &[u8]> = texts.chain(bytes).collect();
    let missing = "configmap references non-existent config key";
    choose(&data, Choice { items: &of.items, mode, optional, missing })
}
