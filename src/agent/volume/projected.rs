//! `projected`: ConfigMaps, Secrets and what the pod is told of itself, in one folder in memory.
//!
//! Service account tokens are refused before the pod is taken: only a cloud can give one.

use super::{Context, MODE, configmap, downwardapi, secret};
use crate::limits::FILES_VOLUME_BYTES_MAX;
use crate::model::job::{FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{ProjectedSource, Volume};

pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let of = volume.projected.clone().unwrap_or_default();
    let mode = of.default_mode.unwrap_or(MODE);
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for source in &of.sources {
        match one(source, mode, context) {
            Ok(more) => files.extend(more),
            Err(why) => problems.push(why),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let memory_bytes = Some(FILES_VOLUME_BYTES_MAX);
    Ok(Source::Files(Files { plugin: FilesPlugin::Projected, memory_bytes, files }))
}

fn one(
    source: &ProjectedSource,
    mode: i32,
    context: Context<'_>,
) -> Result<Vec<FileEntry>, String> {
    if let Some(of) = &source.config_map {
        return configmap::files(of, mode, context);
    }
    if let Some(of) = &source.secret {
        return secret::files(of, mode, context);
    }
    source.downward_api.as_ref().map_or(Ok(Vec::new()), |of| downwardapi::files(of, mode, context))
}
