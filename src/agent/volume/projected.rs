//! `projected`: ConfigMaps, Secrets and fields of the pod, in one directory in memory.
//!
//! Only a cloud can issue tokens of service accounts: pods of the folder that request one are
//! refused at admission.

use super::{Context, MODE, configmap, downwardapi, secret};
use crate::limits::FILES_VOLUME_BYTES_MAX;
use crate::model::job::{FileContent, FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{ProjectedSource, ServiceAccountToken, Volume};

pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let of = volume.projected.clone().unwrap_or_default();
    let mode = of.default_mode.unwrap_or(MODE);
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for source in &of.sources {
        match source_files(source, mode, context) {
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

fn source_files(
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
    if let Some(of) = &source.service_account_token {
        return token(of, mode, context);
    }
    source.downward_api.as_ref().map_or(Ok(Vec::new()), |of| downwardapi::files(of, mode, context))
}

fn token(
    of: &ServiceAccountToken,
    mode: i32,
    context: Context<'_>,
) -> Result<Vec<FileEntry>, String> {
    let Context { pod, objects, .. } = context;
    let account = pod.service_account();
    let token = objects.token(&pod.metadata.uid, &of.audience, of.seconds());
    let token = token.ok_or_else(|| {
        let namespace = &pod.metadata.namespace;
        format!(
            "failed to fetch token: the cloud has not issued one for service account \
             \"{namespace}/{account}\" yet"
        )
    })?;
    // Readable only by the pod's own users, if they are known.
    let owned = pod.spec.security_context.fs_group.is_some();
    let mode = if owned { 0o600 } else { mode };
    let content = FileContent(token.as_bytes().into());
    Ok(vec![FileEntry { path: of.path.as_str().into(), mode: mode as u32, content }])
}
