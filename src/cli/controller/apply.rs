//! `edgecontroller apply`: writes manifests of files and folders into the controller's folder.
//!
//! All files are read and checked before the first is sent: an error in one leaves all objects
//! unchanged. An error begins with the file and the position in it.

use std::io::Write;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use crate::agent::admit;
use crate::cli::{Error, list};
use crate::io::client;
use crate::model::api::Kind;
use crate::model::raw::Manifest;
use crate::wire::manifest::{self, raw};

/// Parses the flags, reads the files, sends them and prints the result for each object.
pub(super) fn run(
    mut args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    let (mut named, mut server, mut data) = (Vec::new(), None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Short('f') | Long("filename") => named.push(PathBuf::from(args.value()?)),
            Long("server") => server = Some(args.value()?.string()?),
            Long("data") => data = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    if named.is_empty() {
        return Err(Error::Usage("expected -f FILE".to_owned()));
    }
    let mut files = Vec::new();
    for path in &named {
        files.extend(client::files_of(path)?);
    }
    let mut read = Vec::new();
    let mut wrong = 0;
    for path in &files {
        let shown = if path == Path::new("-") {
            "standard input".into()
        } else {
            path.display().to_string()
        };
        match read_checked(path) {
            Ok((bytes, remarks)) => {
                for remark in remarks {
                    writeln!(trouble, "Warning: {shown}: {remark}")?;
                }
                read.push((shown, bytes));
            }
            Err(why) => {
                wrong += 1;
                writeln!(trouble, "{shown}{why}")?;
            }
        }
    }
    if wrong > 0 {
        return Ok(1);
    }
    let controller = (list::CONTROLLER.at)(server.as_deref(), data.as_deref())?;
    for (shown, bytes) in read {
        let answer = controller.send("POST", "/apply", &bytes)?;
        if answer.status != 200 {
            wrong += 1;
            let why = answer.why();
            let colon = if why.starts_with(':') { "" } else { ": " };
            writeln!(trouble, "{shown}{colon}{why}")?;
            continue;
        }
        for line in String::from_utf8_lossy(&answer.body).lines() {
            match line.strip_prefix("Warning: ") {
                Some(remark) => writeln!(trouble, "Warning: {shown}: {remark}")?,
                None => writeln!(out, "{line}")?,
            }
        }
    }
    Ok(u8::from(wrong > 0))
}

/// A file's bytes, and remarks on it; or its first error, to be appended to the file's name.
fn read_checked(path: &Path) -> Result<(Vec<u8>, Vec<String>), String> {
    let bytes = client::read_whole(path).map_err(|why| format!(": {why}"))?;
    let objects =
        raw::parse_valid(&bytes, admit::invalid).map_err(|refusal| refusal.to_string())?;
    if objects.is_empty() {
        return Err(": got no object, expected one".to_owned());
    }
    let mut remarks = Vec::new();
    for object in objects.iter().filter(|object| object.kind == Kind::Pod) {
        remarks.extend(lint(object)?);
    }
    Ok((bytes, remarks))
}

/// The remarks of `edged check` on a pod that an API server accepts: what edged does not support
/// another node may.
fn lint(pod: &Manifest) -> Result<Vec<String>, String> {
    let text = pod.value.to_string();
    let content =
        manifest::parse(text.as_bytes()).map_err(|refusal| format!(": {}", refusal.why))?;
    let mut remarks = Vec::new();
    for pod in content.pods {
        let review = admit::review(&pod);
        let name = &pod.metadata.name;
        if let Some(refused) = review.refused {
            remarks.push(format!("pod/{name}: {}", refused.message));
        }
        if !review.unknown.is_empty() {
            remarks.push(format!("pod/{name}: not known: {}", review.unknown.join(", ")));
        }
    }
    Ok(remarks)
}
