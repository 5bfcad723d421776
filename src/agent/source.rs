//! The manifest folder → static pods (spec section 1.8), and the objects that they use.
//!
//! A file that was valid and is invalid now keeps its last valid content: an editor that saves in
//! two steps, or a typing error, must not stop running pods. An error is logged once, with file and
//! position. The same applies if a pod in the file cannot run here, while the file had one that
//! can; a pod that never ran is refused as any other.
//!
//! A kubelet derives the uid of a pod from the manifest by Go's printing of its own types. This
//! differs between releases and cannot be reproduced, so our uid is another one. If a pod runs
//! already under a uid that we did not assign, and its file is older than the pod, then another
//! agent started it: the pod keeps that uid and continues unchanged. If the file was changed since,
//! the pod has changed, as always.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::calls::Uid;
use super::event::{Action, Out, Severity};
use super::pleg::List;
use super::pod::{Origin, Pod};
use super::pods::{DesiredPods, Pods};
use crate::limits;
use crate::model::cri::PodRef;
use crate::model::manifest::{Content, Folder};
use crate::model::map::Map;
use crate::model::object::Object;
use crate::model::pod::{self as api, SOURCE};

/// From the manifest folder.
const FILE: &str = "file";
const HASH: &str = "kubernetes.io/config.hash";

/// The last content of the folder.
#[derive(Debug, Default)]
pub struct Source {
    /// The folder was read at least once: only from then on a pod that is missing in it is
    /// unwanted.
    delivered: bool,
    /// Why the folder itself cannot be read.
    trouble: Option<Box<str>>,
    files: Map<Box<str>, File>,
    /// For each uid that we assigned: the uid that another agent gave the pod.
    taken_over: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Debug, Default)]
struct File {
    pods: Vec<Static>,
    changed_ns: i64,
    objects: Vec<Arc<Object>>,
    trouble: Option<String>,
}

#[derive(Debug)]
struct Static {
    pod: api::Pod,
    /// Why it cannot run here.
    refused: Option<String>,
    /// The uid that we assigned; `None`: the manifest contains one.
    ours: Option<Box<str>>,
}

impl Source {
    /// Takes the content of the whole folder. `refusal` returns why a pod cannot run here.
    pub fn take(
        &mut self,
        folder: Folder,
        node_name: &str,
        refusal: &dyn Fn(&api::Pod) -> Option<String>,
        out: &mut Out,
    ) {
        let mut files = std::mem::take(&mut self.files);
        self.delivered |= folder.trouble.is_none();
        if self.trouble != folder.trouble {
            let line = match &folder.trouble {
                Some(trouble) => (Severity::Error, format!("{trouble}; the pods stay as they are")),
                None => (Severity::Info, "the manifest folder can be read again".to_owned()),
            };
            out.push(Action::Log(line.0, line.1));
            self.trouble = folder.trouble;
        }
        for read in folder.files {
            let old = files.remove(&read.path).unwrap_or_default();
            let found = match read.content {
                Ok(Content { pods, objects }) => {
                    let made = |pod| static_pod(pod, &read.path, node_name).checked(refusal);
                    let pods: Vec<Static> = pods.into_iter().map(made).collect();
                    match old.reject_reason(&pods) {
                        Some(why) => Err(format!("{}: {why}", read.path)),
                        None => Ok((pods, objects)),
                    }
                }
                Err(refusal) => Err(format!("{}{refusal}", read.path)),
            };
            let file = match found {
                Ok((pods, objects)) => {
                    File { pods, changed_ns: read.changed_ns, objects, trouble: None }
                }
                Err(trouble) => {
                    if old.trouble.as_ref() != Some(&trouble) {
                        out.push(Action::Log(Severity::Error, trouble.clone()));
                    }
                    File { trouble: Some(trouble), ..old }
                }
            };
            self.files.insert(read.path, file);
        }
        if self.trouble.is_some() {
            self.files.extend(files);
        }
        let mut still_taken_over = BTreeMap::new();
        for entry in self.files.values_mut().flat_map(|file| &mut file.pods) {
            let ours = entry.ours.as_ref();
            if let Some((ours, uid)) = ours.and_then(|ours| self.taken_over.remove_entry(ours)) {
                name(&mut entry.pod, &uid);
                still_taken_over.insert(ours, uid);
            }
        }
        self.taken_over = still_taken_over;
    }

    /// Takes over pods of the folder that another agent started, under the uids that it gave them.
    /// Returns the uids that we had assigned: those pods do not exist any more.
    pub fn take_over(&mut self, list: &List, pods: &Pods) -> Vec<Uid> {
        let mut renamed = Vec::new();
        for sandbox in &list.sandboxes {
            let Some(found) = &sandbox.pod else { continue };
            let is_file = sandbox.source.as_deref() == Some(FILE);
            if !sandbox.ready || !is_file || pods.get(&found.uid).is_some() {
                continue;
            }
            let Some(entry) = self.unchanged(found, sandbox.created_at) else { continue };
            // A pod that we started ourselves in an earlier start keeps our uid.
            let is_ours = |other: &PodRef| entry.ours.as_deref() == Some(&other.uid);
            let mut all = list.sandboxes.iter().filter_map(|sandbox| sandbox.pod.as_ref());
            let Some(ours) = entry.ours.clone() else { continue };
            if *ours != *entry.pod.metadata.uid
                || all.any(is_ours)
                || !pods.get(&ours).is_none_or(Pod::is_untouched)
            {
                continue;
            }
            name(&mut entry.pod, &found.uid);
            self.taken_over.insert(ours.clone(), found.uid.clone());
            renamed.push(ours);
        }
        renamed
    }

    /// The pod of this name, if its file has not changed since that time.
    fn unchanged(&mut self, found: &PodRef, at_ns: i64) -> Option<&mut Static> {
        let is_older = |file: &&mut File| (1..at_ns).contains(&file.changed_ns);
        self.files.values_mut().filter(is_older).flat_map(|file| &mut file.pods).find(|entry| {
            let metadata = &entry.pod.metadata;
            *metadata.name == *found.name && *metadata.namespace == *found.namespace
        })
    }

    /// Whether the folder was read at least once.
    pub fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Whether the folder or a file cannot be read: then it is not known which pods it contains.
    pub fn is_broken(&self) -> bool {
        self.trouble().next().is_some()
    }

    /// The current errors, a line each.
    pub fn trouble(&self) -> impl Iterator<Item = &str> {
        let of_files = self.files.values().filter_map(|file| file.trouble.as_deref());
        self.trouble.as_deref().into_iter().chain(of_files)
    }

    /// The objects in it, by file and in the order of each file.
    pub fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.files.values().flat_map(|file| &file.objects).cloned()
    }

    /// The pods that the folder wants. Of two pods with the same name or uid the first one stays.
    pub fn desired(&self) -> DesiredPods<'_> {
        let mut desired = DesiredPods::default();
        let mut names = BTreeMap::<(&str, &str), &str>::new();
        let mut reported = BTreeSet::new();
        for (path, file) in &self.files {
            for Static { pod, .. } in file.pods.iter().take(limits::MANIFEST_PODS_MAX) {
                let metadata = &pod.metadata;
                let uid = metadata.uid.as_str();
                let name = (metadata.namespace.as_str(), metadata.name.as_str());
                let same_uid = || desired.pods.contains_key(uid).then_some(uid);
                if let Some(holder) = names.get(&name).copied().or_else(same_uid) {
                    let message = format!(
                        "Error validating pod {} from file due to duplicate pod name \"{}\", \
                         ignoring the one in {path}",
                        metadata.name, metadata.name
                    );
                    if reported.insert(message.clone()) {
                        desired.duplicates.push((holder.into(), message));
                    }
                    continue;
                }
                names.insert(name, uid);
                desired.pods.insert(uid, (Origin::File, pod));
            }
        }
        desired
    }
}

impl File {
    /// Why these pods are not accepted as the file's new content: a new one among them cannot run
    /// here, and the old content has pods that can.
    fn reject_reason(&self, pods: &[Static]) -> Option<String> {
        if self.pods.iter().all(|old| old.refused.is_some()) {
            return None;
        }
        let uid = |entry: &Static| match &entry.ours {
            Some(ours) => ours.clone(),
            None => entry.pod.metadata.uid.as_str().into(),
        };
        let refused = self.pods.iter().filter(|old| old.refused.is_some());
        let known: BTreeSet<Box<str>> = refused.map(uid).collect();
        pods.iter().filter(|new| !known.contains(&uid(new))).find_map(|new| {
            let why = new.refused.as_ref()?;
            let metadata = &new.pod.metadata;
            Some(format!("pod {}/{} cannot run here: {why}", metadata.namespace, metadata.name))
        })
    }
}

impl Static {
    fn checked(mut self, refusal: &dyn Fn(&api::Pod) -> Option<String>) -> Self {
        self.refused = refusal(&self.pod);
        self
    }
}

/// Makes the static pod of a manifest, as a kubelet does: named after the node, and with its own
/// uid, which changes with any change of the manifest.
fn static_pod(mut pod: api::Pod, path: &str, node_name: &str) -> Static {
    let named = !pod.metadata.uid.is_empty();
    let ours = (!named).then(|| Box::from(pod.digest([node_name, path])));
    let uid: Box<str> = ours.clone().unwrap_or_else(|| pod.metadata.uid.as_str().into());
    name(&mut pod, &uid);
    if pod.metadata.namespace.is_empty() {
        "default".clone_into(&mut pod.metadata.namespace);
    }
    pod.metadata.name = format!("{}-{node_name}", pod.metadata.name);
    let spec = Arc::make_mut(&mut pod.spec);
    spec.node_name = Some(node_name.to_owned());
    pod.metadata.annotations.insert(SOURCE.to_owned(), FILE.to_owned());
    if spec.host_network {
        for container in &mut spec.containers {
            for port in &mut container.ports {
                if port.host_port == 0 {
                    port.host_port = port.container_port;
                }
            }
        }
    }
    Static { pod, refused: None, ours }
}

fn name(pod: &mut api::Pod, uid: &str) {
    uid.clone_into(&mut pod.metadata.uid);
    pod.metadata.annotations.insert(HASH.to_owned(), uid.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Refusal;
    use crate::model::manifest::File as Read;

    fn pod(name: &str, image: &str) -> api::Pod {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}"}},
                "spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
        );
        serde_json::from_str(&json).expect("a pod")
    }

    fn folder(files: &[(&str, Result<Vec<api::Pod>, &str>)]) -> Folder {
        let refusal = |why: &str| Refusal { line: 3, column: 7, why: why.to_owned() };
        let files = files
            .iter()
            .map(|(path, pods)| (path, pods.clone().map(Content::from).map_err(refusal)))
            .map(|(path, content)| Read { path: (*path).into(), changed_ns: 5, content });
        Folder { trouble: None, files: files.collect() }
    }

    fn names(source: &Source) -> Vec<String> {
        source.desired().pods.values().map(|(_, pod)| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn a_static_pod_is_named_after_its_node_and_its_uid_follows_the_manifest() {
        let entry = static_pod(pod("web", "a:1"), "/m/web.yaml", "gw").pod;
        assert_eq!(entry.metadata.name, "web-gw");
        assert_eq!(entry.metadata.namespace, "default");
        assert_eq!(entry.metadata.uid.len(), 32);
        let same = static_pod(pod("web", "a:1"), "/m/web.yaml", "gw").pod;
        assert_eq!(entry.metadata.uid, same.metadata.uid);
        for other in [
            static_pod(pod("web", "a:2"), "/m/web.yaml", "gw"),
            static_pod(pod("web", "a:1"), "/m/other.yaml", "gw"),
            static_pod(pod("web", "a:1"), "/m/web.yaml", "gw2"),
        ] {
            assert_ne!(entry.metadata.uid, other.pod.metadata.uid);
        }
    }

    #[test]
    fn a_file_that_breaks_keeps_its_pods_until_it_is_removed() {
        let (mut source, mut out) = (Source::default(), Out::default());
        let good = Ok(vec![pod("web", "a:1")]);
        source.take(folder(&[("/m/a", good), ("/m/b", Err("bad"))]), "gw", &|_| None, &mut out);
        assert_eq!(names(&source), ["web-gw"]);
        source.take(folder(&[("/m/a", Err("bad"))]), "gw", &|_| None, &mut out);
        assert_eq!(names(&source), ["web-gw"]);
        assert!(source.is_broken());
        source.take(folder(&[("/m/a", Err("bad"))]), "gw", &|_| None, &mut out);
        let lines: Vec<String> = out.actions.iter().map(|action| format!("{action:?}")).collect();
        assert_eq!(lines.len(), 2, "each trouble is said once: {lines:?}");
        assert!(lines[0].contains("/m/b:3:7: bad"), "{lines:?}");
        source.take(folder(&[]), "gw", &|_| None, &mut out);
        assert_eq!(names(&source), [] as [&str; 0]);
    }

    #[test]
    fn a_pod_that_cannot_run_never_replaces_one_that_can() {
        let (mut source, mut out) = (Source::default(), Out::default());
        let bad = |pod: &api::Pod| {
            let is_bad = &*pod.spec.containers[0].image == "bad";
            is_bad.then(|| "the image is bad".to_owned())
        };
        let mut take = |pods: &[(&str, &str)]| {
            let pods = pods.iter().map(|(name, image)| pod(name, image)).collect();
            source.take(folder(&[("/m/a", Ok(pods))]), "gw", &bad, &mut out);
            let images = source.desired().pods.into_values();
            let images = images.map(|(_, pod)| pod.spec.containers[0].image.to_string());
            (images.collect::<BTreeSet<_>>(), source.trouble().count())
        };
        let is = |images: &[&str], troubles: usize| {
            (images.iter().map(|&image| image.to_owned()).collect::<BTreeSet<_>>(), troubles)
        };
        assert_eq!(take(&[("web", "bad")]), is(&["bad"], 0), "it never ran: it is refused");
        assert_eq!(take(&[("web", "a:1")]), is(&["a:1"], 0));
        assert_eq!(take(&[("web", "bad")]), is(&["a:1"], 1), "the file is not used");
        assert_eq!(take(&[("Web", "bad")]), is(&["a:1"], 1), "whatever it is called");
        assert_eq!(take(&[("web", "a:2")]), is(&["a:2"], 0));
        assert_eq!(take(&[]), is(&[], 0));
        assert_eq!(take(&[("web", "a:1"), ("other", "bad")]), is(&["a:1", "bad"], 0));
        assert_eq!(take(&[("web", "a:2"), ("other", "bad")]), is(&["a:2", "bad"], 0));
        let reported = out.actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>();
        let why = "/m/a: pod default/web-gw cannot run here: the image is bad";
        assert!(reported[0].contains(why), "{reported:?}");
    }

    #[test]
    fn a_file_that_breaks_keeps_its_objects_too() {
        let (mut source, mut out) = (Source::default(), Out::default());
        let object = Arc::new(Object::Secret(crate::model::object::Secret::default()));
        let content = Ok(Content { pods: Vec::new(), objects: vec![object] });
        let files = vec![Read { path: "/m/a".into(), changed_ns: 5, content }];
        source.take(Folder { trouble: None, files }, "gw", &|_| None, &mut out);
        assert_eq!(source.objects().count(), 1);
        source.take(folder(&[("/m/a", Err("bad"))]), "gw", &|_| None, &mut out);
        assert_eq!(source.objects().count(), 1);
        source.take(folder(&[("/m/a", Ok(Vec::new()))]), "gw", &|_| None, &mut out);
        assert_eq!(source.objects().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_read_keeps_its_files() {
        let (mut source, mut out) = (Source::default(), Out::default());
        let lost = || Folder { trouble: Some("/m: gone".into()), files: Vec::new() };
        source.take(lost(), "gw", &|_| None, &mut out);
        assert!(!source.is_delivered() && source.is_broken());
        let good = Ok(vec![pod("web", "a:1")]);
        source.take(folder(&[("/m/a", good)]), "gw", &|_| None, &mut out);
        assert!(source.is_delivered() && !source.is_broken());
        source.take(lost(), "gw", &|_| None, &mut out);
        source.take(lost(), "gw", &|_| None, &mut out);
        assert_eq!(names(&source), ["web-gw"]);
        assert_eq!(source.trouble().collect::<Vec<_>>(), ["/m: gone"]);
        let is_error = |it: &&Action| matches!(it, Action::Log(Severity::Error, _));
        assert_eq!(out.actions.iter().filter(is_error).count(), 2, "once each time");
        source.take(folder(&[]), "gw", &|_| None, &mut out);
        assert_eq!(names(&source), [] as [&str; 0]);
    }

    #[test]
    fn of_two_pods_of_one_name_the_first_stays() {
        let (mut source, mut out) = (Source::default(), Out::default());
        let files = [("/m/a", Ok(vec![pod("web", "a:1")])), ("/m/b", Ok(vec![pod("web", "b:1")]))];
        source.take(folder(&files), "gw", &|_| None, &mut out);
        let desired = source.desired();
        assert_eq!(desired.pods.len(), 1);
        assert_eq!(&*desired.pods.values().next().expect("one").1.spec.containers[0].image, "a:1");
        assert!(
            desired.duplicates[0].1.contains("duplicate pod name \"web-gw\""),
            "{:?}",
            desired.duplicates
        );
    }
}
