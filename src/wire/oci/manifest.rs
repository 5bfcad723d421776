//! Which layers an image has on which machine: its index and its manifest (OCI image-spec, and
//! Docker's image manifest version 2, schema 2, which has the same fields).

use std::fmt;

use serde_json::Value;

use super::json::{self, Fault};
use crate::limits::{IMAGE_LAYERS_MAX, IMAGE_NAMES_MAX};

/// An index or a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Index(Vec<Entry>),
    Manifest(Manifest),
}

/// One image of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of its manifest, or of another index.
    pub digest: Box<str>,
    /// Bytes.
    pub size: u64,
    pub platform: Option<Platform>,
}

/// What an image runs on, in Go's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    pub os: Box<str>,
    pub architecture: Box<str>,
    /// `v7`
    pub variant: Box<str>,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub config: Content,
    /// The lowest first.
    pub layers: Vec<Content>,
}

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub digest: Box<str>,
    /// Bytes.
    pub size: u64,
}

/// Reads an index or a manifest.
pub fn document(bytes: &[u8]) -> Result<Document, Fault> {
    let document = json::read(bytes)?;
    let (manifests, layers) = (json::list(&document, "manifests")?, &document["layers"]);
    if !document["manifests"].is_null() {
        json::at_most(IMAGE_NAMES_MAX, manifests.len(), "manifests")?;
        return manifests.iter().map(entry).collect::<Result<_, _>>().map(Document::Index);
    }
    if !layers.is_null() && !document["config"].is_null() {
        let layers = json::list(&document, "layers")?;
        json::at_most(IMAGE_LAYERS_MAX, layers.len(), "layers")?;
        let layers = layers.iter().map(content).collect::<Result<_, _>>()?;
        return Ok(Document::Manifest(Manifest { config: content(&document["config"])?, layers }));
    }
    Err(if document["schemaVersion"] == 1 { Fault::Schema } else { Fault::Neither })
}

fn entry(of: &Value) -> Result<Entry, Fault> {
    let Content { digest, size } = content(of)?;
    let platform = json::map(of, "platform")?.map(|_| platform(&of["platform"])).transpose()?;
    Ok(Entry { digest, size, platform })
}

fn content(of: &Value) -> Result<Content, Fault> {
    Ok(Content { digest: json::digest(of)?.into(), size: json::size(of)? })
}

/// The fields `os`, `architecture` and `variant`.
pub(super) fn platform(of: &Value) -> Result<Platform, Fault> {
    let text = |name| text(of, name).map(Into::into);
    Ok(Platform { os: text("os")?, architecture: text("architecture")?, variant: text("variant")? })
}

/// A text, and the empty one where there is none.
pub(super) fn text<'a>(of: &'a Value, name: &str) -> Result<&'a str, Fault> {
    match &of[name] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        other => Err(json::unlike(name, other, "a text")),
    }
}

/// What this machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Go's word: `amd64`, `arm64`, `arm`.
    pub architecture: &'static str,
    /// The version of the ARM architecture; 0 on others.
    pub variant: u8,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture)?;
        if self.architecture == "arm" { write!(f, "/v{}", self.variant) } else { Ok(()) }
    }
}

impl Machine {
    /// The entry that fits best; `None`: there is none. ARM runs what is for itself or an older
    /// version. An entry without a platform fits if no other does.
    pub fn choose(self, entries: &[Entry]) -> Option<&Entry> {
        let rank = |entry: &&Entry| match &entry.platform {
            None => Some(0),
            Some(platform) => self.rank(platform),
        };
        let fitting = entries.iter().filter_map(|entry| Some((rank(&entry)?, entry)));
        // The first of those that fit equally well.
        fitting.rev().max_by_key(|(rank, _)| *rank).map(|(_, entry)| entry)
    }

    /// Whether it runs images for this platform; a part that is not named fits.
    pub fn runs(self, platform: &Platform) -> bool {
        let is = |got: &str, own: &str| got.is_empty() || got == own;
        is(&platform.os, "linux") && is(&platform.architecture, self.architecture)
    }

    fn rank(self, platform: &Platform) -> Option<u8> {
        if &*platform.os != "linux" || &*platform.architecture != self.architecture {
            return None;
        }
        let version = platform.variant.strip_prefix('v').map(str::parse::<u8>);
        match (self.architecture, version) {
            (_, None) => platform.variant.is_empty().then_some(1),
            ("arm", Some(Ok(version))) => (version <= self.variant).then_some(version),
            ("arm64", Some(Ok(8))) => Some(8),
            ("amd64", Some(Ok(1))) => Some(2),
            _ => None,
        }
    }
}
