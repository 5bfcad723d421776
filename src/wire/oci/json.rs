//! The JSON of images: an OCI layout's index, a manifest, the manifest of `docker save`, a
//! configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{IMAGE_JSON_BYTES_MAX, IMAGE_LAYERS_MAX, IMAGE_NAMES_MAX};
use crate::model::image::is_sha256;

/// An OCI descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the described object.
    pub media_type: String,
    /// `sha256:…`
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// Names, among others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// The name under which the image was saved: a full one, or only a tag.
    pub fn name(&self) -> Option<&str> {
        // containerd and Docker write the full name into the first, and the tag into the second.
        let keys = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
        keys.into_iter().find_map(|key| self.annotations.get(key).map(String::as_str))
    }
}

/// Why JSON is not of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More of something than its bound.
    TooMany { what: &'static str, got: usize, max: usize },
    /// Invalid JSON, or of another structure: the parser's message.
    Json(String),
    /// Not a digest; as far as it is shown.
    Digest(String),
    /// Not a plain text.
    MediaType(String),
    /// Neither manifest nor index.
    Neither,
    /// A manifest of Docker's first schema.
    Schema,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { what, got, max } => {
                write!(f, "got {got} {what}, expected {max} at most")
            }
            Self::Json(why) => write!(f, "got JSON of another form: {why}"),
            Self::Digest(got) => {
                write!(f, "got the digest {got:?}, expected sha256: and 64 hex digits")
            }
            Self::MediaType(got) => write!(f, "mediaType: got {got:?}"),
            Self::Schema => f.write_str("got a manifest of schema 1, expected schema 2 or OCI's"),
            Self::Neither => f.write_str("got JSON that is neither manifest nor index"),
        }
    }
}

pub(super) fn at_most(max: usize, got: usize, what: &'static str) -> Result<(), Fault> {
    if got > max { Err(Fault::TooMany { what, got, max }) } else { Ok(()) }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

/// The entries of an OCI layout's `index.json`.
pub fn index(bytes: &[u8]) -> Result<Vec<Descriptor>, Fault> {
    let Index { manifests } = read(bytes)?;
    at_most(IMAGE_NAMES_MAX, manifests.len(), "manifests")?;
    for one in &manifests {
        check_digest(&one.digest)?;
    }
    Ok(manifests)
}

/// One image of Docker's `manifest.json`. Paths are those of the archive's members.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Saved {
    pub config: String,
    /// Full names.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// From the lowest on.
    pub layers: Vec<String>,
}

/// Docker's `manifest.json`.
pub fn saved(bytes: &[u8]) -> Result<Vec<Saved>, Fault> {
    let images: Vec<Saved> = read(bytes)?;
    let names: usize = images.iter().map(|one| 1 + one.repo_tags.iter().flatten().count()).sum();
    at_most(IMAGE_NAMES_MAX, names, "names and images")?;
    images.iter().try_for_each(|one| at_most(IMAGE_LAYERS_MAX, one.layers.len(), "layers"))?;
    Ok(images)
}

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// The digests of the layers' uncompressed contents, from the lowest on.
pub fn diff_ids(config: &[u8]) -> Result<Vec<String>, Fault> {
    let config: Config = read(config)?;
    let ids = config.rootfs.diff_ids;
    ids.iter().try_for_each(|id| check_digest(id))?;
    Ok(ids)
}

/// The media type of an image's manifest or index, from its own field or its structure.
pub fn media_type(bytes: &[u8]) -> Result<String, Fault> {
    let value: Value = read(bytes)?;
    if let Some(media_type) = value["mediaType"].as_str() {
        let plain =
            media_type.bytes().all(|byte| byte.is_ascii_graphic()) && media_type.len() <= 128;
        return if plain {
            Ok(media_type.to_owned())
        } else {
            Err(Fault::MediaType(media_type.to_owned()))
        };
    }
    if value["manifests"].is_array() {
        return Ok("application/vnd.oci.image.index.v1+json".to_owned());
    }
    if value["layers"].is_array() {
        return Ok(MANIFEST.to_owned());
    }
    Err(Fault::Neither)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u8,
    media_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// A manifest for an image that `docker save` wrote without one: configuration and size, then each
/// layer's digest and size. Returns its descriptor and its bytes.
pub fn manifest(config: &[u8], layers: &[(String, u64)]) -> (Descriptor, Vec<u8>) {
    let of = |media_type: &str, digest: String, size| Descriptor {
        media_type: media_type.to_owned(),
        digest,
        size,
        annotations: BTreeMap::new(),
    };
    let config_digest = super::sha256(config);
    let layer = |(digest, size): &(String, u64)| of(LAYER, digest.clone(), *size);
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST,
        config: of(CONFIG, config_digest, config.len() as u64),
        layers: layers.iter().map(layer).collect(),
    };
    let bytes = serde_json::to_vec(&manifest).expect("plain data");
    let digest = super::sha256(&bytes);
    (of(MANIFEST, digest, bytes.len() as u64), bytes)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub(super) fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Fault> {
    at_most(IMAGE_JSON_BYTES_MAX, bytes.len(), "bytes of JSON")?;
    serde_json::from_slice(bytes).map_err(|error| Fault::Json(error.to_string()))
}

pub(super) fn check_digest(digest: &str) -> Result<(), Fault> {
    if is_sha256(digest) { Ok(()) } else { Err(Fault::Digest(digest.chars().take(80).collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(digit: &str) -> String {
        format!("sha256:{}", digit.repeat(64))
    }

    #[test]
    fn an_index_names_its_images() {
        let text = format!(
            r#"{{"schemaVersion": 2, "manifests": [
                {{"mediaType": "m", "digest": "{}", "size": 5, "platform": {{}}, "annotations":
                  {{"io.containerd.image.name": "docker.io/library/a:1",
                    "org.opencontainers.image.ref.name": "1"}}}},
                {{"mediaType": "m", "digest": "{}", "size": 6}}]}}"#,
            digest("a"),
            digest("b")
        );
        let found = index(text.as_bytes()).expect("an index");
        assert_eq!(found[0].name(), Some("docker.io/library/a:1"));
        assert_eq!((found[1].name(), found[1].size), (None, 6));
    }

    #[test]
    fn what_docker_saves_is_read() {
        let text = r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["x/layer.tar"]},
                       {"Config":"d.json","RepoTags":null,"Layers":[]}]"#;
        let found = saved(text.as_bytes()).expect("two images");
        assert_eq!(found[0].repo_tags.as_deref(), Some(&["a:1".to_owned()][..]));
        assert_eq!(found[1].repo_tags, None);
        let config = format!(r#"{{"os":"linux","rootfs":{{"diff_ids":["{}"]}}}}"#, digest("c"));
        assert_eq!(diff_ids(config.as_bytes()), Ok(vec![digest("c")]));
        let (descriptor, bytes) = manifest(config.as_bytes(), &[(digest("c"), 512)]);
        assert_eq!(descriptor.size, bytes.len() as u64);
        assert_eq!(media_type(&bytes).as_deref(), Ok(MANIFEST));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let many = |count: usize| {
            let list = vec![r#"{"Config":"","Layers":[]}"#; count].join(",");
            saved(format!("[{list}]").as_bytes())
        };
        assert_eq!(many(IMAGE_NAMES_MAX).map(|all| all.len()), Ok(IMAGE_NAMES_MAX));
        let why = many(IMAGE_NAMES_MAX + 1).expect_err("many").to_string();
        assert!(why.contains("names and images, expected"), "{why}");
        // Names count with the image that has them.
        let names = |count: usize| {
            let list = vec![r#""a:1""#; count].join(",");
            saved(format!(r#"[{{"Config":"","RepoTags":[{list}],"Layers":[]}}]"#).as_bytes())
        };
        assert!(names(IMAGE_NAMES_MAX - 1).is_ok() && names(IMAGE_NAMES_MAX).is_err());
        let listed = |count: usize| {
            let one = format!(r#"{{"mediaType":"m","digest":"{}","size":5}}"#, digest("a"));
            let list = vec![one; count].join(",");
            index(format!(r#"{{"manifests":[{list}]}}"#).as_bytes())
        };
        assert!(listed(IMAGE_NAMES_MAX).is_ok());
        let why = |fault: Fault| fault.to_string();
        let many = listed(IMAGE_NAMES_MAX + 1).expect_err("many");
        assert!(why(many).contains("manifests, expected"));
        let layers = vec![r#""l""#; IMAGE_LAYERS_MAX + 1].join(",");
        let tall = format!(r#"[{{"Config":"","Layers":[{layers}]}}]"#);
        assert!(why(saved(tall.as_bytes()).expect_err("tall")).contains("layers, expected"));
        let bad = r#"{"manifests": [{"mediaType": "m", "digest": "sha256:../../x", "size": 5}]}"#;
        assert!(why(index(bad.as_bytes()).expect_err("a path")).contains("got the digest"));
        let large = vec![b' '; IMAGE_JSON_BYTES_MAX + 1];
        assert!(why(index(&large).expect_err("large")).contains("bytes of JSON, expected"));
        assert!(index(b"[]").is_err() && diff_ids(b"{}").is_err() && media_type(b"{}").is_err());
        assert!(media_type(b"{\"mediaType\": \"a\\r\\nb\"}").is_err());
    }
}
