//! `downwardAPI`: fields of the pod, as files in memory.

use super::{Context, MODE};
use crate::agent::pod::downward::Downward;
use crate::limits::FILES_VOLUME_BYTES_MAX;
use crate::model::job::{FileContent, FileEntry, Files, FilesPlugin, Source};
use crate::model::pod::{DownwardFile, DownwardVolume, Volume};

pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let of = volume.downward_api.clone().unwrap_or_default();
    let files = files(&of, of.default_mode.unwrap_or(MODE), context)?;
    let memory_bytes = Some(FILES_VOLUME_BYTES_MAX);
    Ok(Source::Files(Files { plugin: FilesPlugin::DownwardApi, memory_bytes, files }))
}

/// Its files; also for projected volumes.
pub(super) fn files(
    of: &DownwardVolume,
    mode: i32,
    context: Context<'_>,
) -> Result<Vec<FileEntry>, String> {
    let entry = |file: &DownwardFile| {
        let text = text(file, context)?;
        Ok(FileEntry {
            path: file.path.as_str().into(),
            mode: file.mode.unwrap_or(mode).unsigned_abs() & 0o777,
            content: FileContent(text.into_bytes().into()),
        })
    };
    of.items.iter().map(entry).collect()
}

fn text(file: &DownwardFile, context: Context<'_>) -> Result<String, String> {
    let downward =
        Downward { pod: context.pod, host_ips: &[], pod_ips: &[], config: context.config };
    if let Some(from) = &file.resource_field_ref {
        // A resource has to name its container, so it does not matter which one is passed.
        let own = context.pod.spec.containers.first();
        let own = own.ok_or_else(|| format!("container {} not found", from.container_name))?;
        return downward.resource(from, own);
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
            .ok_or_else(|| format!("unsupported fieldPath: {path}")),
    }
}

/// `key="value"`, one per line, without a newline at the end.
fn lines(map: &std::collections::BTreeMap<String, String>) -> String {
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
