//! Kubernetes' own validation of volumes, in its words, and volumes that are not built in.

use std::collections::BTreeSet;

use super::validate::{LABEL, is_label};
use super::{Findings, at};
use crate::agent::volume::Kind;
use crate::model::names::{cut, is_machine};
use crate::model::pod::{
    Container, DownwardVolume, KeyToPath, MountPropagation, Nfs, Pod, PodSpec, ProjectedSource,
    RecursiveReadOnly, Rest, SOURCE, Volume, VolumeMount, is_nothing,
};

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

impl Findings {
    /// Kinds and fields that are not built in, and unknown ones.
    pub(super) fn volume_fields(&mut self, pod: &Pod) {
        for (path, volume) in at("spec.volumes", &pod.spec.volumes) {
            // An unknown source must not become an emptyDir.
            self.volumes.extend(volume.rest.keys().map(|kind| format!("{path}.{}", cut(kind))));
            let kind = Kind::of(volume);
            let path = format!("{path}.{}", kind.field());
            if !kind.is_built_in() {
                self.volumes.push(path);
                continue;
            }
            self.source_fields(&path, volume);
            self.token_fields(&path, pod, volume);
        }
        for (path, container) in containers(&pod.spec) {
            for (index, mount) in container.volume_mounts.iter().enumerate() {
                self.unknown(&format!("{path}.volumeMounts[{index}]"), &mount.rest);
            }
        }
    }

    fn source_fields(&mut self, path: &str, volume: &Volume) {
        if let Some(of) = &volume.empty_dir {
            self.unknown(path, &of.rest);
            if !matches!(&*of.medium, "" | "Memory") {
                let got = cut(&of.medium);
                self.volumes.push(format!("{path}.medium (got {got:?}, expected \"\" or Memory)"));
            }
        }
        if let Some(of) = &volume.host_path {
            self.unknown(path, &of.rest);
        }
        if let Some(of) = &volume.persistent_volume_claim {
            self.unknown(path, &of.rest);
        }
        if let Some(of) = &volume.nfs {
            self.unknown(path, &of.rest);
        }
        if let Some(of) = &volume.config_map {
            self.object_fields(path, &of.rest, &of.items);
        }
        if let Some(of) = &volume.secret {
            self.object_fields(path, &of.rest, &of.items);
        }
        if let Some(of) = &volume.downward_api {
            self.downward_fields(path, of);
        }
        if let Some(of) = &volume.projected {
            self.unknown(path, &of.rest);
            for (index, source) in of.sources.iter().enumerate() {
                self.projected_fields(&format!("{path}.sources[{index}]"), source);
            }
        }
    }

    /// Only a cloud can issue the token of a service account, and only to its own pods.
    fn token_fields(&mut self, path: &str, pod: &Pod, volume: &Volume) {
        let is_cloudy = pod.metadata.annotations.get(SOURCE).is_some_and(|source| source == "api");
        for (index, source) in volume.projected.iter().flat_map(|of| &of.sources).enumerate() {
            let path = format!("{path}.sources[{index}].serviceAccountToken");
            match &source.service_account_token {
                Some(of) if is_cloudy => self.unknown(&path, &of.rest),
                Some(_) => self.volumes.push(path),
                None => {}
            }
        }
    }

    fn projected_fields(&mut self, path: &str, source: &ProjectedSource) {
        self.volumes.extend(source.rest.keys().map(|name| format!("{path}.{}", cut(name))));
        if let Some(of) = &source.config_map {
            self.object_fields(&format!("{path}.configMap"), &of.rest, &of.items);
        }
        if let Some(of) = &source.secret {
            self.object_fields(&format!("{path}.secret"), &of.rest, &of.items);
        }
        if let Some(of) = &source.downward_api {
            self.downward_fields(&format!("{path}.downwardAPI"), of);
        }
    }

    fn downward_fields(&mut self, path: &str, of: &DownwardVolume) {
        self.unknown(path, &of.rest);
        for (index, item) in of.items.iter().enumerate() {
            self.unknown(&format!("{path}.items[{index}]"), &item.rest);
        }
    }

    fn object_fields(&mut self, path: &str, rest: &Rest, items: &[KeyToPath]) {
        self.unknown(path, rest);
        for (index, item) in items.iter().enumerate() {
            self.unknown(&format!("{path}.items[{index}]"), &item.rest);
        }
    }

    pub(super) fn volumes(&mut self, spec: &PodSpec) {
        let mut names = BTreeSet::new();
        for (path, volume) in at("spec.volumes", &spec.volumes) {
            let name = &*volume.name;
            let name_path = format!("{path}.name");
            if name.is_empty() {
                self.problem(&name_path, "Required value");
            } else if !is_label(name) {
                self.invalid(&name_path, cut(name), LABEL);
            } else if !names.insert(name) {
                self.problem(&name_path, &format!("Duplicate value: {name:?}"));
            }
            self.source(&path, volume);
        }
        for (path, container) in containers(spec) {
            self.mounts(&path, container, &names);
        }
    }

    fn source(&mut self, path: &str, volume: &Volume) {
        let rest = volume.rest.iter().filter(|(_, value)| !is_nothing(value));
        let known = [
            volume.empty_dir.is_some(),
            volume.host_path.is_some(),
            volume.config_map.is_some(),
            volume.secret.is_some(),
            volume.downward_api.is_some(),
            volume.projected.is_some(),
            volume.persistent_volume_claim.is_some(),
            volume.nfs.is_some(),
        ];
        if known.iter().filter(|is| **is).count() + rest.count() > 1 {
            self.problem(path, "Forbidden: may not specify more than 1 volume type");
        }
        if let Some(limit) = volume.empty_dir.as_ref().and_then(|of| of.size_limit.as_ref())
            && limit.milli() < 0
        {
            let expected = "must be greater than or equal to 0";
            self.invalid(&format!("{path}.emptyDir.sizeLimit"), limit.to_string(), expected);
        }
        if let Some(of) = &volume.host_path {
            let path = format!("{path}.hostPath");
            if of.path.is_empty() {
                self.problem(&format!("{path}.path"), "Required value");
            } else {
                self.no_way_back(&format!("{path}.path"), &of.path);
            }
            if !HOST_PATH_TYPES.contains(&&*of.r#type) {
                let known = HOST_PATH_TYPES.map(|name| format!("{name:?}")).join(", ");
                let problem =
                    format!("Unsupported value: {:?}: supported values: {known}", cut(&of.r#type));
                self.problem(&format!("{path}.type"), &problem);
            }
        }
        if let Some(of) = &volume.persistent_volume_claim {
            self.object(&format!("{path}.persistentVolumeClaim"), "claimName", &of.claim_name);
        }
        if let Some(of) = &volume.nfs {
            self.nfs(&format!("{path}.nfs"), of);
        }
        if let Some(of) = &volume.config_map {
            self.object(&format!("{path}.configMap"), "name", &of.name);
            self.items(&format!("{path}.configMap"), &of.items, of.default_mode);
        }
        if let Some(of) = &volume.secret {
            self.object(&format!("{path}.secret"), "secretName", &of.secret_name);
            self.items(&format!("{path}.secret"), &of.items, of.default_mode);
        }
        if let Some(of) = &volume.downward_api {
            self.downward(&format!("{path}.downwardAPI"), of);
        }
        if let Some(of) = &volume.projected {
            self.mode(&format!("{path}.projected.defaultMode"), of.default_mode);
            for (index, source) in of.sources.iter().enumerate() {
                self.projected(&format!("{path}.projected.sources[{index}]"), source);
            }
        }
    }

    /// These become arguments of mount(8).
    fn nfs(&mut self, path: &str, of: &Nfs) {
        if of.server.is_empty() {
            self.problem(&format!("{path}.server"), "Required value");
        } else if !is_machine(&of.server) {
            let expected = "must be a name or an address of a machine";
            self.invalid(&format!("{path}.server"), cut(&of.server), expected);
        }
        if of.path.is_empty() {
            self.problem(&format!("{path}.path"), "Required value");
        } else if !of.path.starts_with('/') {
            self.invalid(&format!("{path}.path"), cut(&of.path), "must be an absolute path");
        }
        self.no_way_back(&format!("{path}.path"), &of.path);
    }

    fn projected(&mut self, path: &str, source: &ProjectedSource) {
        if let Some(of) = &source.config_map {
            self.object(&format!("{path}.configMap"), "name", &of.name);
            self.items(&format!("{path}.configMap"), &of.items, None);
        }
        if let Some(of) = &source.secret {
            self.object(&format!("{path}.secret"), "name", &of.name);
            self.items(&format!("{path}.secret"), &of.items, None);
        }
        if let Some(of) = &source.downward_api {
            self.downward(&format!("{path}.downwardAPI"), of);
        }
    }

    fn downward(&mut self, path: &str, of: &DownwardVolume) {
        self.mode(&format!("{path}.defaultMode"), of.default_mode);
        for (index, item) in of.items.iter().enumerate() {
            let path = format!("{path}.items[{index}]");
            self.file_path(&format!("{path}.path"), &item.path);
            self.mode(&format!("{path}.mode"), item.mode);
            match (&item.field_ref, &item.resource_field_ref) {
                (Some(_), Some(_)) => {
                    self.problem(
                        &path,
                        "Forbidden: fieldRef and resourceFieldRef can not be specified \
                                     simultaneously",
                    );
                }
                (None, None) => {
                    self.problem(
                        &path,
                        "Required value: one of fieldRef and resourceFieldRef is \
                                     required",
                    );
                }
                (None, Some(from)) if from.container_name.is_empty() => {
                    self.problem(
                        &format!("{path}.resourceFieldRef.containerName"),
                        "Required value",
                    );
                }
                _ => {}
            }
        }
    }

    fn object(&mut self, path: &str, field: &str, name: &str) {
        if name.is_empty() {
            self.problem(&format!("{path}.{field}"), "Required value");
        }
    }

    fn items(&mut self, path: &str, items: &[KeyToPath], default_mode: Option<i32>) {
        self.mode(&format!("{path}.defaultMode"), default_mode);
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}.items[{index}]");
            if item.key.is_empty() {
                self.problem(&format!("{path}.key"), "Required value");
            }
            self.file_path(&format!("{path}.path"), &item.path);
            self.mode(&format!("{path}.mode"), item.mode);
        }
    }

    fn mode(&mut self, path: &str, mode: Option<i32>) {
        if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
            self.invalid(path, mode, MODE);
        }
    }

    /// A file below a volume.
    fn file_path(&mut self, path: &str, file: &str) {
        if file.is_empty() {
            self.problem(path, "Required value");
        } else if file.starts_with('/') {
            self.invalid(path, cut(file), "must be a relative path");
        } else if file.split('/').any(|part| part == "..") {
            self.invalid(path, cut(file), "must not contain '..'");
        } else if file.starts_with("..") {
            self.invalid(path, cut(file), "must not start with '..'");
        }
    }

    fn no_way_back(&mut self, path: &str, got: &str) {
        if got.split('/').any(|part| part == "..") {
            self.invalid(path, cut(got), "must not contain '..'");
        }
    }

    fn mounts(&mut self, path: &str, container: &Container, volumes: &BTreeSet<&str>) {
        let mut places = BTreeSet::new();
        for (index, mount) in container.volume_mounts.iter().enumerate() {
            let path = format!("{path}.volumeMounts[{index}]");
            if mount.name.is_empty() {
                self.problem(&format!("{path}.name"), "Required value");
            } else if !volumes.contains(&*mount.name) {
                self.problem(
                    &format!("{path}.name"),
                    &format!("Not found: {:?}", cut(&mount.name)),
                );
            }
            let place = format!("{path}.mountPath");
            if mount.mount_path.is_empty() {
                self.problem(&place, "Required value");
            } else if mount.mount_path.contains(':') {
                self.invalid(&place, cut(&mount.mount_path), "must not contain ':'");
            } else if !places.insert(&*mount.mount_path) {
                self.invalid(&place, cut(&mount.mount_path), "must be unique");
            }
            self.sub_path(&path, mount);
            self.propagation(&path, mount, container);
        }
    }

    fn sub_path(&mut self, path: &str, mount: &VolumeMount) {
        for (field, got) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            let path = format!("{path}.{field}");
            if got.starts_with('/') {
                self.invalid(&path, cut(got), "must be a relative path");
            }
            self.no_way_back(&path, got);
        }
        if !mount.sub_path.is_empty() && !mount.sub_path_expr.is_empty() {
            let expected = "subPathExpr and subPath are mutually exclusive";
            self.invalid(&format!("{path}.subPathExpr"), cut(&mount.sub_path_expr), expected);
        }
    }

    fn propagation(&mut self, path: &str, mount: &VolumeMount, container: &Container) {
        if mount.mount_propagation == Some(MountPropagation::Bidirectional)
            && !is_privileged(container)
        {
            let problem = "Forbidden: Bidirectional mount propagation is available only to \
                           privileged containers";
            self.problem(&format!("{path}.mountPropagation"), problem);
        }
        let requested =
            !matches!(mount.recursive_read_only, None | Some(RecursiveReadOnly::Disabled));
        let path = format!("{path}.recursiveReadOnly");
        if requested && !mount.read_only {
            self.problem(&path, "Forbidden: may only be specified when readOnly is true");
        }
        if requested && !matches!(mount.mount_propagation, None | Some(MountPropagation::None)) {
            let problem = "Forbidden: may only be specified when mountPropagation is None or not \
                           specified";
            self.problem(&path, problem);
        }
    }
}

/// All containers that can mount volumes, with their paths.
fn containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    at("spec.initContainers", &spec.init_containers).chain(at("spec.containers", &spec.containers))
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.privileged.unwrap_or(false)
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
