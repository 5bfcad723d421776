//! `configMap`, `secret`, `downwardAPI` and `projected`: keys of objects and fields of the pod as
//! files. Those of ConfigMaps are on the disk, all others in memory only.
//!
//! Only a cloud can issue tokens of service accounts: pods of the folder that request one are
//! refused at admission.

use std::collections::BTreeMap;

use super::{Context, VolumeError};
use crate::agent::downward::{Downward, ResourceError};
#[cfg(feature = "metaserver-auth")]
use crate::agent::objects::ROOT_CA;
use crate::limits::FILES_VOLUME_BYTES_MAX;
use crate::model::job::{FileContent, FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{
    DownwardFile, DownwardVolume, KeyToPath, ObjectFiles, ProjectedSource, SecretVolume,
    ServiceAccountToken, Volume,
};

/// The default permission bits of files.
const MODE: i32 = 0o644;

/// The files, or why they are not known.
type Result<T = Vec<FileEntry>> = std::result::Result<T, VolumeError>;

pub(super) fn config_map(volume: &Volume, context: Context<'_>) -> Result<Source> {
    let of = volume.config_map.clone().unwrap_or_default();
    let files = of_config_map(&of, of.default_mode.unwrap_or(MODE), context)?;
    Ok(Source::Files(Files { plugin: FilesPlugin::ConfigMap, memory_bytes: None, files }))
}

pub(super) fn secret(volume: &Volume, context: Context<'_>) -> Result<Source> {
    let SecretVolume { secret_name: name, items, default_mode, optional, .. } =
        volume.secret.clone().unwrap_or_default();
    let of = ObjectFiles { name, items, default_mode, optional, ..ObjectFiles::default() };
    let files = of_secret(&of, of.default_mode.unwrap_or(MODE), context)?;
    Ok(in_memory(FilesPlugin::Secret, files))
}

pub(super) fn downward_api(volume: &Volume, context: Context<'_>) -> Result<Source> {
    let of = volume.downward_api.clone().unwrap_or_default();
    let files = of_pod(&of, of.default_mode.unwrap_or(MODE), context)?;
    Ok(in_memory(FilesPlugin::DownwardApi, files))
}

pub(super) fn projected(volume: &Volume, context: Context<'_>) -> Result<Source> {
    let of = volume.projected.clone().unwrap_or_default();
    let mode = of.default_mode.unwrap_or(MODE);
    let mut files = Vec::new();
    let mut problems = Vec::new();
    #[cfg(feature = "metaserver-auth")]
    let has_token = of.sources.iter().any(|source| source.service_account_token.is_some());
    for source in &of.sources {
        match of_source(source, mode, context) {
            #[cfg(feature = "metaserver-auth")]
            Ok(mut more) if has_token => {
                trust_metaserver(source, &mut more, context);
                files.extend(more);
            }
            Ok(more) => files.extend(more),
            Err(why) => problems.push(why),
        }
    }
    if !problems.is_empty() {
        return Err(VolumeError::Sources(problems));
    }
    Ok(in_memory(FilesPlugin::Projected, files))
}

/// Adds MetaServer's certificate to the CAs beside a token: clients in the pod must trust the
/// server that is at `KUBERNETES_SERVICE_HOST`.
#[cfg(feature = "metaserver-auth")]
fn trust_metaserver(source: &ProjectedSource, files: &mut [FileEntry], context: Context<'_>) {
    let Some(place) = context.objects.in_cluster() else { return };
    if source.config_map.as_ref().is_none_or(|of| of.name != ROOT_CA) {
        return;
    }
    for file in files {
        let mut bytes = file.content.0.to_vec();
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(place.certificate.as_bytes());
        file.content = FileContent(bytes.into());
    }
}

fn in_memory(plugin: FilesPlugin, files: Vec<FileEntry>) -> Source {
    Source::Files(Files { plugin, memory_bytes: Some(FILES_VOLUME_BYTES_MAX), files })
}

fn of_source(source: &ProjectedSource, mode: i32, context: Context<'_>) -> Result {
    if let Some(of) = &source.config_map {
        return of_config_map(of, mode, context);
    }
    if let Some(of) = &source.secret {
        return of_secret(of, mode, context);
    }
    if let Some(of) = &source.service_account_token {
        return of_token(of, mode, context);
    }
    source.downward_api.as_ref().map_or(Ok(Vec::new()), |of| of_pod(of, mode, context))
}

fn of_config_map(of: &ObjectFiles, mode: i32, context: Context<'_>) -> Result {
    let map = context.objects.config_map(&context.pod.metadata.namespace, &of.name);
    let data = map.map(|map| -> BTreeMap<&str, &[u8]> {
        let texts = map.data.iter().map(|(key, text)| (key.as_str(), text.as_bytes()));
        let bytes = map.binary_data.iter().map(|(key, bytes)| (key.as_str(), bytes.as_ref()));
        texts.chain(bytes).collect()
    });
    of_keys(of, mode, data, "configmap", "configmap references non-existent config key")
}

fn of_secret(of: &ObjectFiles, mode: i32, context: Context<'_>) -> Result {
    let secret = context.objects.secret(&context.pod.metadata.namespace, &of.name);
    let data = secret.map(|secret| -> BTreeMap<&str, &[u8]> {
        secret.data.iter().map(|(key, bytes)| (key.as_str(), bytes.as_ref())).collect()
    });
    of_keys(of, mode, data, "secret", "references non-existent secret key")
}

/// The files of an object of this kind; `missing_key` is the error text of a missing key, before
/// its name.
fn of_keys(
    of: &ObjectFiles,
    mode: i32,
    data: Option<BTreeMap<&str, &[u8]>>,
    kind: &'static str,
    missing_key: &'static str,
) -> Result {
    let optional = of.optional.unwrap_or(false);
    let Some(data) = data else {
        let missing = || VolumeError::NoObject { kind, name: of.name.clone() };
        return if optional { Ok(Vec::new()) } else { Err(missing()) };
    };
    if of.items.is_empty() {
        return Ok(data.iter().map(|(key, bytes)| entry(key, mode, bytes)).collect());
    }
    let mut files = Vec::new();
    for KeyToPath { key, path, mode: own, .. } in &of.items {
        match data.get(&**key) {
            Some(bytes) => files.push(entry(path, own.unwrap_or(mode), bytes)),
            None if optional => {}
            None => return Err(VolumeError::NoKey { what: missing_key, key: key.clone() }),
        }
    }
    Ok(files)
}

fn entry(path: &str, mode: i32, content: &[u8]) -> FileEntry {
    let mode = mode.unsigned_abs() & 0o777;
    FileEntry { path: path.into(), mode, content: FileContent(content.into()) }
}

fn of_token(of: &ServiceAccountToken, mode: i32, context: Context<'_>) -> Result {
    let Context { pod, objects, .. } = context;
    let account = pod.service_account();
    let token = objects.token(&pod.metadata.uid, &of.audience, of.seconds());
    let token = token.ok_or_else(|| {
        let namespace = &pod.metadata.namespace;
        VolumeError::NoToken(format!("{namespace}/{account}"))
    })?;
    // Readable only by the pod's own users, if they are known.
    let owned = pod.spec.security_context.fs_group.is_some();
    let mode = if owned { 0o600 } else { mode };
    let content = FileContent(token.as_bytes().into());
    Ok(vec![FileEntry { path: of.path.as_str().into(), mode: mode as u32, content }])
}

fn of_pod(of: &DownwardVolume, mode: i32, context: Context<'_>) -> Result {
    let of_field = |file: &DownwardFile| {
        let text = text(file, context)?;
        Ok(entry(&file.path, file.mode.unwrap_or(mode), text.as_bytes()))
    };
    of.items.iter().map(of_field).collect()
}

fn text(file: &DownwardFile, context: Context<'_>) -> Result<String> {
    let downward =
        Downward { pod: context.pod, host_ips: &[], pod_ips: &[], config: context.config };
    if let Some(from) = &file.resource_field_ref {
        // A resource has to name its container, so it does not matter which one is passed.
        let own = context.pod.spec.containers.first();
        let none = || ResourceError::NoContainer(from.container_name.clone());
        let text = own.ok_or_else(none).and_then(|own| downward.resource(from, own));
        return text.map_err(VolumeError::Resource);
    }
    let path = file.field_ref.as_ref().map_or("", |from| &from.field_path);
    let metadata = &context.pod.metadata;
    match path {
        "metadata.labels" => Ok(lines(&metadata.labels)),
        "metadata.annotations" => Ok(lines(&metadata.annotations)),
        // Addresses are available to variables only.
        _ => Some(path)
            .filter(|path| path.starts_with("metadata."))
            .and_then(|path| downward.field(path))
            .ok_or_else(|| VolumeError::Field(path.to_owned())),
    }
}

/// `key="value"`, one per line, without a newline at the end.
fn lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<_> = map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Text in Go's quotation.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => quoted.extend(format!("\\x{:02x}", c as u32).chars()),
            '\u{80}'..='\u{a0}' | '\u{ad}' => {
                quoted.extend(format!("\\u{:04x}", c as u32).chars());
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn values_are_quoted_as_go_does() {
        for (text, want) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nnext\t\u{1}\u{7f}", r#""line\nnext\t\x01\x7f""#),
            ("é✓\u{85}", "\"é✓\\u0085\""),
        ] {
            assert_eq!(quoted(text), want);
        }
    }
}
