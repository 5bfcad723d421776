//! The JSON of images: an OCI layout's index, a manifest, the manifest of `docker save`, a
//! configuration.
//!
//! A text is read as a tree of so many values at most, and its fields are looked up by their names:
//! a field that is absent, or `null` as Go writes it, is empty unless it has to be there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::limits::{
    IMAGE_JSON_BYTES_MAX, IMAGE_JSON_VALUES_MAX, IMAGE_LAYERS_MAX, IMAGE_NAMES_MAX,
};
use crate::model::image::is_sha256;
use crate::model::tree::Shape;

/// An OCI descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the described object.
    pub media_type: String,
    /// `sha256:…`
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// Names, among others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
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

/// The entries of an OCI layout's `index.json`.
pub fn index(bytes: &[u8]) -> Result<Vec<Descriptor>, Fault> {
    let index = read(bytes)?;
    let manifests = required(&index, "manifests")?;
    at_most(IMAGE_NAMES_MAX, manifests.len(), "manifests")?;
    manifests.iter().map(descriptor).collect()
}

fn descriptor(of: &Value) -> Result<Descriptor, Fault> {
    Ok(Descriptor {
        media_type: some_text(of, "mediaType")?.to_owned(),
        digest: digest(of)?.to_owned(),
        size: size(of)?,
        annotations: texts_by_name(of, "annotations")?,
    })
}

/// One image of Docker's `manifest.json`. Paths are those of the archive's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub config: String,
    /// Full names.
    pub repo_tags: Vec<String>,
    /// From the lowest on.
    pub layers: Vec<String>,
}

/// Docker's `manifest.json`.
pub fn saved(bytes: &[u8]) -> Result<Vec<Saved>, Fault> {
    let images = read(bytes)?;
    let images = images.as_array().ok_or_else(|| unlike("manifest.json", &images, "a list"))?;
    at_most(IMAGE_NAMES_MAX, images.len(), "names and images")?;
    let images = images.iter().map(one_saved).collect::<Result<Vec<_>, _>>()?;
    let names: usize = images.iter().map(|one| 1 + one.repo_tags.len()).sum();
    at_most(IMAGE_NAMES_MAX, names, "names and images")?;
    Ok(images)
}

fn one_saved(of: &Value) -> Result<Saved, Fault> {
    at_most(IMAGE_LAYERS_MAX, required(of, "Layers")?.len(), "layers")?;
    Ok(Saved {
        config: some_text(of, "Config")?.to_owned(),
        repo_tags: texts(of, "RepoTags")?,
        layers: texts(of, "Layers")?,
    })
}

/// The digests of the layers' uncompressed contents, from the lowest on.
pub fn diff_ids(config: &[u8]) -> Result<Vec<String>, Fault> {
    let config = read(config)?;
    required(&config["rootfs"], "diff_ids")?;
    layer_ids(&config)
}

/// Likewise, of a configuration that is read; Go writes `null` for none.
pub(super) fn layer_ids(config: &Value) -> Result<Vec<String>, Fault> {
    let rootfs = &config["rootfs"];
    if !rootfs.is_object() {
        return Err(unlike("rootfs", rootfs, "a map"));
    }
    at_most(IMAGE_LAYERS_MAX, list(rootfs, "diff_ids")?.len(), "layers")?;
    let ids: Vec<String> = texts(rootfs, "diff_ids")?;
    ids.iter().try_for_each(|id| check_digest(id))?;
    Ok(ids)
}

/// The media type of an image's manifest or index, from its own field or its structure.
pub fn media_type(bytes: &[u8]) -> Result<String, Fault> {
    let value = read(bytes)?;
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

/// The one value of the text.
pub(super) fn read(bytes: &[u8]) -> Result<Value, Fault> {
    let wrong = |error: &dyn fmt::Display| Fault::Json(error.to_string());
    at_most(IMAGE_JSON_BYTES_MAX, bytes.len(), "bytes of JSON")?;
    let text = str::from_utf8(bytes).map_err(|error| wrong(&error))?;
    at_most(IMAGE_JSON_VALUES_MAX, Shape::of(text).values, "values of JSON")?;
    serde_json::from_str(text).map_err(|error| wrong(&error))
}

// ---- fields ----

fn some_text<'a>(of: &'a Value, name: &str) -> Result<&'a str, Fault> {
    of[name].as_str().ok_or_else(|| unlike(name, &of[name], "a text"))
}

/// `digest`, which has to be one.
pub(super) fn digest(of: &Value) -> Result<&str, Fault> {
    let digest = some_text(of, "digest")?;
    check_digest(digest).map(|()| digest)
}

/// `size`, which has to be there.
pub(super) fn size(of: &Value) -> Result<u64, Fault> {
    of["size"].as_u64().ok_or_else(|| unlike("size", &of["size"], "a number of bytes"))
}

/// A list, and the empty one where there is none.
pub(super) fn list<'a>(of: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match &of[name] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err(unlike(name, other, "a list")),
    }
}

fn required<'a>(of: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    if of[name].is_null() { Err(unlike(name, &Value::Null, "a list")) } else { list(of, name) }
}

/// A list of texts.
pub(super) fn texts<T: for<'a> From<&'a str>>(of: &Value, name: &str) -> Result<Vec<T>, Fault> {
    let mut texts = Vec::new();
    for one in list(of, name)? {
        texts.push(one.as_str().ok_or_else(|| unlike(name, one, "texts"))?.into());
    }
    Ok(texts)
}

/// A map, where there is one.
pub(super) fn map<'a>(
    of: &'a Value,
    name: &str,
) -> Result<Option<&'a serde_json::Map<String, Value>>, Fault> {
    match &of[name] {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        other => Err(unlike(name, other, "a map")),
    }
}

/// A map of texts.
pub(super) fn texts_by_name(of: &Value, name: &str) -> Result<BTreeMap<String, String>, Fault> {
    let mut texts = BTreeMap::new();
    for (key, value) in map(of, name)?.into_iter().flatten() {
        let text = value.as_str().ok_or_else(|| unlike(name, value, "texts"))?;
        texts.insert(key.clone(), text.to_owned());
    }
    Ok(texts)
}

pub(super) fn unlike(name: &str, got: &Value, expected: &str) -> Fault {
    let got = match got {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    Fault::Json(format!("{name}: got {got}, expected {expected}"))
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
        assert_eq!(found[0].repo_tags, ["a:1"]);
        assert!(found[1].repo_tags.is_empty());
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
        for (text, expected) in [
            ("[{\"Layers\":[]}]", "Config: got nothing, expected a text"),
            ("[{\"Config\":\"\"}]", "Layers: got nothing, expected a list"),
            ("[{\"Config\":\"\",\"Layers\":[1]}]", "Layers: got a number, expected texts"),
            ("[{\"Config\":\"\",\"Layers\":{}}]", "Layers: got a map, expected a list"),
            ("{}", "manifest.json: got a map, expected a list"),
        ] {
            let fault = saved(text.as_bytes()).expect_err(expected);
            assert!(why(fault).ends_with(expected), "{text}");
        }
    }

    #[test]
    fn a_text_of_too_many_values_is_not_read_as_a_tree() {
        let nothing = |count: usize| format!("{{\"\":[{}0]}}", "0,".repeat(count));
        // The map, the list, and the commas in it.
        let read = |count| media_type(nothing(count).as_bytes());
        assert_eq!(read(IMAGE_JSON_VALUES_MAX - 2), Err(Fault::Neither));
        let why = read(IMAGE_JSON_VALUES_MAX - 1).expect_err("one more").to_string();
        assert!(why.contains("values of JSON, expected"), "{why}");
    }
}
