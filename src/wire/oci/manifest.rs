//! Which layers an image has on which machine: its index and its manifest (OCI image-spec, and
//! Docker's image manifest version 2, schema 2, which has the same fields).

use std::fmt;

use serde::Deserialize;

use super::json::{self, Fault};
use crate::limits::{IMAGE_LAYERS_MAX, IMAGE_NAMES_MAX};

/// An index or a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Index(Vec<Entry>),
    Manifest(Manifest),
}

/// One image of an index.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Of its manifest, or of another index.
    pub digest: Box<str>,
    /// Bytes.
    pub size: u64,
    pub platform: Option<Platform>,
}

/// What an image runs on, in Go's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: Box<str>,
    #[serde(default)]
    pub architecture: Box<str>,
    /// `v7`
    #[serde(default)]
    pub variant: Box<str>,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    pub config: Content,
    /// The lowest first.
    pub layers: Vec<Content>,
}

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Content {
    pub digest: Box<str>,
    /// Bytes.
    pub size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Any {
    schema_version: Option<u64>,
    manifests: Option<Vec<Entry>>,
    config: Option<Content>,
    layers: Option<Vec<Content>>,
}

/// Reads an index or a manifest.
pub fn document(bytes: &[u8]) -> Result<Document, Fault> {
    let any: Any = json::read(bytes)?;
    match (any.manifests, any.config, any.layers) {
        (Some(manifests), ..) => {
            json::at_most(IMAGE_NAMES_MAX, manifests.len(), "manifests")?;
            manifests.iter().try_for_each(|entry| json::check_digest(&entry.digest))?;
            Ok(Document::Index(manifests))
        }
        (None, Some(config), Some(layers)) => {
            json::at_most(IMAGE_LAYERS_MAX, layers.len(), "layers")?;
            layers.iter().chain([&config]).try_for_each(|it| json::check_digest(&it.digest))?;
            Ok(Document::Manifest(Manifest { config, layers }))
        }
        _ if any.schema_version == Some(1) => Err(Fault::Schema),
        _ => Err(Fault::Neither),
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
