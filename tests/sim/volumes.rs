//! Volumes: the objects that fill them, their state on the disk, and the rules about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::model::cri::{ContainerConfig, Request};
use edged::model::job::{Files, FilesPlugin, JobSpec, Medium, Source, VolumeSetUp};
use edged::model::object::{Bytes, Claim, ConfigMap, Local, Object, PersistentVolume, Secret};
use edged::model::pod::{
    ClaimVolume, EmptyDir, HostPath, ObjectFiles, Pod, PodSpec, SecretVolume, Volume, VolumeMount,
};

use crate::chance::Chance;
use crate::rule::judge;
use crate::world::World;

const NAMESPACES: [&str; 2] = ["default", "site"];
const NAMES: u64 = 3;

/// ConfigMaps and Secrets as they are written now, by kind, namespace and name, with their version.
#[derive(Default)]
pub struct Objects(BTreeMap<(ObjectKind, &'static str, u64), u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKind {
    ConfigMap,
    Secret,
    /// A claim, and the volume behind it.
    Claim,
}

const KINDS: [ObjectKind; 3] = [ObjectKind::ConfigMap, ObjectKind::Secret, ObjectKind::Claim];

/// Volumes on the disk, by uid and name.
pub type Volumes = BTreeMap<(Box<str>, Box<str>), VolumeSetUp>;

impl Objects {
    /// Restores all of them.
    pub fn heal(&mut self) {
        for kind in KINDS {
            for namespace in NAMESPACES {
                for name in 0..NAMES {
                    self.0.entry((kind, namespace, name)).or_insert(0);
                }
            }
        }
    }

    /// A user writes or removes one.
    pub fn change(&mut self, chance: &mut Chance) {
        let kind = *chance.pick(&KINDS);
        let key = (kind, *chance.pick(&NAMESPACES), chance.below(NAMES));
        if chance.percent(20) {
            self.0.remove(&key);
        } else {
            *self.0.entry(key).or_insert(0) += 1;
        }
    }

    /// As the event loop reads them.
    pub fn read(&self) -> Vec<Arc<Object>> {
        let each = self.0.iter().flat_map(|((kind, namespace, name), version)| match kind {
            ObjectKind::ConfigMap => {
                let mut map = ConfigMap::default();
                (*namespace).clone_into(&mut map.metadata.namespace);
                map.metadata.name = format!("cm{name}");
                map.data.insert("key".to_owned(), version.to_string());
                vec![Object::ConfigMap(map)]
            }
            ObjectKind::Secret => {
                let mut secret = Secret::default();
                (*namespace).clone_into(&mut secret.metadata.namespace);
                secret.metadata.name = format!("s{name}");
                let bytes = Bytes(version.to_string().into_bytes().into());
                secret.data.insert("key".to_owned(), bytes);
                vec![Object::Secret(secret)]
            }
            ObjectKind::Claim => claim(namespace, *name),
        });
        each.map(Arc::new).collect()
    }

    /// The content of a volume's file; `None`: it has none.
    fn text(&self, namespace: &str, volume: &Volume) -> Option<String> {
        let number = |name: &str| name.trim_start_matches(char::is_alphabetic).parse().ok();
        let (kind, name) = match (&volume.config_map, &volume.secret) {
            (Some(of), _) => (ObjectKind::ConfigMap, number(&of.name)?),
            (None, Some(of)) => (ObjectKind::Secret, number(&of.secret_name)?),
            // The content of a claimed folder is not ours.
            (None, None) => return None,
        };
        let namespace = NAMESPACES.into_iter().find(|known| *known == namespace)?;
        self.0.get(&(kind, namespace, name)).map(u64::to_string)
    }
}

/// A claim, bound to a folder of the node.
fn claim(namespace: &str, name: u64) -> Vec<Object> {
    let mut claim = Claim::default();
    namespace.clone_into(&mut claim.metadata.namespace);
    claim.metadata.name = format!("claim{name}");
    claim.spec.volume_name = format!("pv-{namespace}-{name}");
    let mut volume = PersistentVolume::default();
    volume.metadata.name.clone_from(&claim.spec.volume_name);
    let local = Local { path: "/mnt/ssd".to_owned(), ..Local::default() };
    volume.spec.local = Some(local);
    vec![Object::Claim(claim), Object::PersistentVolume(Box::new(volume))]
}

/// Gives a pod volumes, and its containers mounts of some of them.
pub fn draw(spec: &mut PodSpec, chance: &mut Chance) {
    for number in 0..chance.between(1, 3) {
        let mut volume = Volume { name: format!("v{number}").into(), ..Volume::default() };
        let name = chance.below(NAMES);
        match chance.below(6) {
            0 if chance.percent(50) => {
                let claim_name = format!("claim{name}");
                let of = ClaimVolume { claim_name, ..ClaimVolume::default() };
                volume.persistent_volume_claim = Some(of);
            }
            0 => {}
            1 => {
                let medium = "Memory".to_owned();
                volume.empty_dir = Some(EmptyDir { medium, ..EmptyDir::default() });
            }
            2 => {
                let path = "/srv/data".to_owned();
                volume.host_path = Some(HostPath { path, ..HostPath::default() });
            }
            3 | 4 => {
                let (name, optional) = (format!("cm{name}"), chance.percent(30).then_some(true));
                let of = ObjectFiles { name, optional, ..ObjectFiles::default() };
                volume.config_map = Some(of);
            }
            _ => {
                let of = SecretVolume { secret_name: format!("s{name}"), ..Default::default() };
                volume.secret = Some(of);
            }
        }
        spec.volumes.push(volume);
    }
    let all = spec.init_containers.iter_mut().chain(&mut spec.containers);
    for container in all {
        for volume in &spec.volumes {
            if chance.percent(40) {
                continue;
            }
            let sub_path = if chance.percent(20) { "part".to_owned() } else { String::new() };
            container.volume_mounts.push(VolumeMount {
                name: volume.name.clone(),
                mount_path: format!("/{}", volume.name),
                sub_path,
                ..VolumeMount::default()
            });
        }
    }
}

/// The effect of a volume job on the disk.
pub fn perform(volumes: &mut Volumes, spec: &JobSpec, whole: bool) {
    match spec {
        JobSpec::SetUpVolume(wanted) => {
            let key = (wanted.uid.clone(), wanted.volume.clone());
            // A crash in the middle leaves the old content: the switch is one step.
            if whole {
                volumes.insert(key, (**wanted).clone());
            }
        }
        JobSpec::TearDownVolumes(pod) | JobSpec::RemovePodDir(pod) => {
            let mut kept = whole;
            volumes.retain(|(uid, _), _| {
                // Half done: the first of them is left.
                *uid != pod.uid || !std::mem::replace(&mut kept, true)
            });
        }
        JobSpec::BindSubPath(_)
        | JobSpec::RotateLog { .. }
        | JobSpec::RestoreLog(_)
        | JobSpec::CompressLogs(_)
        | JobSpec::Measure(_)
        | JobSpec::MakePodDirs { .. }
        | JobSpec::MakeContainerFiles(_)
        | JobSpec::LinkLog(_)
        | JobSpec::RemoveLog(_)
        | JobSpec::SweepLinks { .. }
        | JobSpec::MakePodCgroup(_)
        | JobSpec::RemovePodCgroup(_)
        | JobSpec::SetQosCgroups(_)
        | JobSpec::RemoveLogDir(_) => {}
        #[cfg(feature = "cloud")]
        JobSpec::Enrol { .. } => {}
        #[cfg(feature = "node-jobs")]
        JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => {}
    }
}

/// The machine restarts: volumes in memory are gone.
pub fn reboot(volumes: &mut Volumes) {
    volumes.retain(|_, volume| match &volume.source {
        Source::EmptyDir(Medium::Memory { .. }) => false,
        Source::Local { .. } | Source::Nfs { .. } => false,
        Source::EmptyDir(Medium::Disk) | Source::HostPath { .. } => true,
        Source::Files(Files { plugin, .. }) => *plugin != FilesPlugin::Secret,
    });
}

fn used(spec: &PodSpec) -> impl Iterator<Item = &Volume> {
    let mounts = |volume: &&Volume| {
        let mut all = spec.init_containers.iter().chain(&spec.containers);
        all.any(|container| container.volume_mounts.iter().any(|it| it.name == volume.name))
    };
    spec.volumes.iter().filter(mounts)
}

impl World {
    /// Sandboxes and containers are created only after the pod's volumes are set up.
    pub(crate) fn check_volumes(&self, request: &Request) {
        let (uid, config) = match request {
            Request::RunPodSandbox(config) => (&config.pod.uid, None),
            Request::CreateContainer { sandbox_config, config, .. } => {
                (&sandbox_config.pod.uid, Some(config))
            }
            _ => return,
        };
        let Some(desired) = self.check.pod(uid).and_then(|pod| pod.desired.clone()) else { return };
        for volume in used(&desired.spec) {
            let key = (uid.clone(), volume.name.clone());
            judge!(
                self.disk.volumes.contains_key(&key),
                "[volumes first] pod {uid}: {} without volume {}",
                request.operation(),
                volume.name
            );
        }
        if let Some(config) = config {
            self.check_mounts(uid, config, &desired.spec);
        }
    }

    fn check_mounts(&self, uid: &str, config: &ContainerConfig, spec: &PodSpec) {
        let mut all = spec.init_containers.iter().chain(&spec.containers);
        let Some(container) = all.find(|it| it.name == config.name) else { return };
        let wanted = container.volume_mounts.len();
        let got = config.mounts.len();
        judge!(got >= wanted, "[mounts] pod {uid}: {got} of {wanted} in {}", config.name);
        for mount in &container.volume_mounts {
            let at = config.mounts.iter().find(|it| it.container_path == mount.mount_path);
            judge!(at.is_some(), "[mounts] pod {uid}: {} is missing", mount.name);
            let Some(at) = at else { continue };
            let bound = at.host_path.contains("/volume-subpaths/");
            judge!(bound != mount.sub_path.is_empty(), "[mounts] pod {uid}: {at:?} for {mount:?}");
            let part = (Box::from(uid), config.name.clone());
            judge!(
                !bound || self.disk.parts.contains(&part),
                "[volumes first] pod {uid}: a part of {} is not mounted",
                mount.name
            );
        }
    }

    /// What is wrong at the end with the volumes of a desired pod.
    pub(crate) fn volumes_unsettled(
        &self,
        uid: &str,
        pod: &Pod,
        ended: bool,
        of_cloud: bool,
    ) -> Option<String> {
        let on_disk = |volume: &Volume| {
            self.disk.volumes.get(&(Box::from(uid), volume.name.clone())).map(|it| &it.source)
        };
        if ended {
            let left = used(&pod.spec).find(|volume| on_disk(volume).is_some());
            return left.map(|volume| format!("volume {} is left behind", volume.name));
        }
        let namespace = &pod.metadata.namespace;
        used(&pod.spec).find_map(|volume| {
            let Some(Source::Files(files)) = on_disk(volume) else { return None };
            let wanted = if of_cloud {
                self.cloud_text(namespace, volume)
            } else {
                self.folder.objects.text(namespace, volume)
            };
            let there = files.files.first().map(|it| String::from_utf8_lossy(&it.content.0));
            let fine = wanted.as_deref() == there.as_deref();
            (!fine)
                .then(|| format!("volume {} contains {there:?}, expected {wanted:?}", volume.name))
        })
    }
}
