//! Applies objects of users: each becomes a file of its own in the manifest folder, which is read
//! at once.
//!
//! The file's name is made from the object's name, whose characters are checked as in an API
//! server: no two objects share a file, and no file is outside of the folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Answer, HttpContext, TEXT, named, text};
use crate::controller::local::Key;
use crate::io::cloud::files;
use crate::limits::{FILE_NAME_BYTES_MAX, JOBS_KEPT_MAX, MANIFEST_BYTES_MAX};
use crate::model::api::{Call as ApiCall, Kind, Verb};
use crate::model::error::Input;
use crate::model::names::{is_label, is_subdomain};
use crate::model::raw::{self as json, Manifest};
use crate::wire::http1::call::Call;
use crate::wire::manifest::raw;

impl HttpContext<'_> {
    /// Reports for each object whether it was created, configured or unchanged, as kubectl does.
    /// All
    /// are checked before the first one is written.
    pub(super) fn apply(&mut self, call: &Call) -> Answer {
        let manifests = match manifests(call) {
            Ok(manifests) => manifests,
            Err(answer) => return answer,
        };
        let mut files = Vec::new();
        for manifest in &manifests {
            let key = key_of(manifest);
            let file = match self.file(&key) {
                Ok(file) => file,
                Err(why) => return text(422, &format!(": {}: {why}", named(&key))),
            };
            if let Some(other) = self.objects().source(&key).filter(|it| Path::new(it) != file) {
                let name = named(&key);
                return text(409, &format!(": {name} is in {other}: change it there"));
            }
            let json = format!("{:#}\n", manifest.value);
            if json.len() > MANIFEST_BYTES_MAX {
                let (name, got) = (named(&key), json.len());
                let why = format!(": {name}: got {got} bytes, expected {MANIFEST_BYTES_MAX}");
                return text(413, &format!("{why} at most"));
            }
            files.push((key, file, json));
        }
        let mut report = String::new();
        for ((key, file, json), manifest) in files.iter().zip(&manifests) {
            let done = match std::fs::read(file) {
                Ok(old) if old == json.as_bytes() => "unchanged",
                Ok(_) => "configured",
                Err(error) if error.kind() == ErrorKind::NotFound => "created",
                Err(error) => return text(500, &format!(": {}: {error}", file.display())),
            };
            if done != "unchanged"
                && let Err(error) = files::store(file, json, files::PRIVATE)
            {
                return text(500, &format!(": {error}"));
            }
            report.extend([&named(key), " ", done, "\n"]);
            if let Some(warning) = self.warning(manifest) {
                report.extend(["Warning: ", &named(key), ": ", &warning, "\n"]);
            }
        }
        (200, TEXT, report.into_bytes())
    }

    /// Creates jobs for nodes. They are no files in the folder: each is done once.
    pub(super) fn create_jobs(&mut self, call: &Call) -> Answer {
        let manifests = match manifests(call) {
            Ok(manifests) => manifests,
            Err(answer) => return answer,
        };
        if let Some(other) = manifests.iter().find(|manifest| !manifest.kind.is_node_job()) {
            let got = other.kind.name();
            return text(422, &format!("got a {got}, expected a job for nodes"));
        }
        let mut report = String::new();
        for Manifest { kind, name, value, .. } in manifests {
            self.objects().prune_jobs(JOBS_KEPT_MAX);
            let (verb, body) = (Verb::Create, Some(json::json(&*value)));
            let (namespace, subresource) = ("".into(), None);
            let (status, _, body) = self.call(&ApiCall {
                verb,
                kind,
                namespace,
                name: name.clone(),
                subresource,
                body,
            });
            if status != 200 {
                return (status, super::JSON, body);
            }
            let key = Key { kind, namespace: "".into(), name };
            report.extend([&named(&key), " created\n"]);
        }
        (200, TEXT, report.into_bytes())
    }

    /// Why no node will have the pod or the device, although it is accepted.
    fn warning(&mut self, manifest: &Manifest) -> Option<String> {
        if !matches!(manifest.kind, Kind::Pod | Kind::Device) {
            return None;
        }
        let Some(node) = manifest.value["spec"]["nodeName"].as_str().filter(|it| !it.is_empty())
        else {
            let verb = if manifest.kind == Kind::Pod { "runs" } else { "has" };
            return Some(format!("spec.nodeName: got none, so no node {verb} it"));
        };
        let key = Key { kind: Kind::Node, namespace: "".into(), name: node.into() };
        let known = self.objects().has(&key);
        (!known).then(|| format!("spec.nodeName: got {node:?}, which has not joined yet"))
    }

    /// The file of an applied object; the error says why it cannot be one.
    pub(super) fn file(&self, key: &Key) -> Result<PathBuf, Input> {
        file_name(key).map(|name| self.folder.join(name))
    }
}

/// The manifests in a request; or its refusal.
fn manifests(call: &Call) -> Result<Vec<Manifest>, Answer> {
    // A web page cannot send this content type without a CORS preflight request.
    if call.header("content-type") != "application/yaml" {
        return Err(text(415, "expected the Content-Type application/yaml"));
    }
    raw::parse(&call.body).map_err(|refusal| text(400, &refusal.to_string()))
}

/// A namespace has no dot, so that the parts are unambiguous.
fn file_name(key: &Key) -> Result<String, Input> {
    let Key { kind, namespace, name } = key;
    if kind.is_namespaced() && !is_label(namespace) {
        let expected = "lower case letters, digits and '-', at most 63 of them";
        return Err(Input::quoted(namespace, expected).at("metadata.namespace"));
    }
    if !is_subdomain(name) {
        let expected = "lower case letters, digits, '-' and '.', at most 253 of them";
        return Err(Input::quoted(name, expected).at("metadata.name"));
    }
    let file = format!("{}.{namespace}.{name}.json", kind.name().to_ascii_lowercase());
    if file.len() > FILE_NAME_BYTES_MAX {
        let most = name.len() - (file.len() - FILE_NAME_BYTES_MAX);
        let got = format_args!("{} characters", name.len());
        let expected = format!("{most} at most, because of its file's name");
        return Err(Input::new(got, expected).at("metadata.name"));
    }
    Ok(file)
}

fn key_of(manifest: &Manifest) -> Key {
    let Manifest { kind, namespace, name, .. } = manifest;
    Key { kind: *kind, namespace: namespace.clone(), name: name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: Kind, namespace: &str, name: &str) -> Key {
        Key { kind, namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn no_two_objects_share_a_file() {
        let name = |namespace, name| file_name(&key(Kind::Pod, namespace, name));
        assert_eq!(name("a", "b.c").as_deref(), Ok("pod.a.b.c.json"));
        let node = file_name(&key(Kind::Node, "", "gw"));
        assert_eq!(node.as_deref(), Ok("node..gw.json"));
        for (namespace, wrong, expected) in [
            ("a.b", "c", "metadata.namespace: got \"a.b\", expected"),
            ("", "c", "metadata.namespace: got \"\", expected"),
            ("a", "../../evil", "metadata.name: got \"../../evil\", expected"),
            ("a", "B", "metadata.name: got \"B\", expected"),
            ("a", ".", "metadata.name: got \".\", expected"),
            ("../a", "c", "metadata.namespace: got \"../a\", expected"),
            ("a", &"b".repeat(253), "metadata.name: got 253 characters, expected 240 at most"),
        ] {
            let why = name(namespace, wrong).expect_err(wrong).to_string();
            assert!(why.starts_with(expected), "{why}");
        }
    }
    #[test]
    fn the_longest_name_is_that_of_the_longest_file() {
        let limit = FILE_NAME_BYTES_MAX - "pod.a..json".len();
        let file = |bytes: usize| file_name(&key(Kind::Pod, "a", &"b".repeat(bytes)));
        assert_eq!(file(limit).map(|name| name.len()), Ok(FILE_NAME_BYTES_MAX));
        let why = file(limit + 1).expect_err("its file would have no room for .new").to_string();
        assert!(why.contains(&format!("expected {limit} at most")), "{why}");
    }
}
