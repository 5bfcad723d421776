//! The manifest folder, and the users who change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::model::error::Refusal;
use edged::model::manifest::{Content, File, Folder as Read};
use edged::model::pod::Pod;

use crate::chance::Chance;
use crate::draw::{self, Drawer};
use crate::volumes::Objects;

/// The folder as it is on the disk now.
pub struct Folder {
    files: BTreeMap<Box<str>, OnDisk>,
    /// Removed files, which may be restored.
    removed: Vec<(Box<str>, OnDisk)>,
    /// The ConfigMaps and Secrets, one more file.
    pub objects: Objects,
    drawer: Drawer,
    numbers: u64,
    pods_wished: usize,
}

#[derive(Clone)]
struct OnDisk {
    pods: Vec<Pod>,
    broken: bool,
}

/// A change by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Add,
    Remove,
    Return,
    Replace,
    ChangeImage,
    ChangeGrace,
    Break,
    Heal,
    Move,
    /// Another pod of the same name in another file.
    Copy,
    RemoveAll,
    ChangeObject,
    Nothing,
}

impl Folder {
    /// Empty; `pods_wished`: about how many pods the users want in it.
    pub fn new(drawer: Drawer, pods_wished: usize) -> Self {
        let mut objects = Objects::default();
        objects.heal();
        let (files, removed) = (BTreeMap::new(), Vec::new());
        Self { files, removed, objects, drawer, numbers: 0, pods_wished }
    }

    /// The content as the event loop reads it.
    pub fn read(&self) -> Read {
        let files = self.files.iter().map(|(path, file)| File {
            path: path.clone(),
            changed_ns: 0,
            content: if file.broken { Err(refusal()) } else { Ok(file.pods.clone().into()) },
        });
        let objects = Content { pods: Vec::new(), objects: self.objects.read() };
        let objects = File {
            path: "/etc/kubeedge/manifests/objects.yaml".into(),
            changed_ns: 0,
            content: Ok(objects),
        };
        Read { trouble: None, files: files.chain([objects]).collect() }
    }

    /// All desired pods, without broken files.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.files.values().filter(|file| !file.broken).flat_map(|file| &file.pods)
    }

    /// Repairs everything.
    pub fn heal(&mut self) {
        for file in self.files.values_mut() {
            file.broken = false;
        }
        self.objects.heal();
    }

    /// A user changes something.
    pub fn change(&mut self, chance: &mut Chance) -> ChangeKind {
        let pods = self.pods().count();
        if pods * 2 < self.pods_wished {
            return self.add(chance);
        }
        if chance.percent(15) {
            self.objects.change(chance);
            return ChangeKind::ChangeObject;
        }
        match chance.below(100) {
            0..25 if pods < self.pods_wished * 3 / 2 => self.add(chance),
            0..42 => self.remove(chance),
            42..52 => self.give_back(chance),
            52..64 => self.replace(chance),
            64..78 => self.edit(chance, ChangeKind::ChangeImage),
            78..82 => self.edit(chance, ChangeKind::ChangeGrace),
            82..89 => self.edit(chance, ChangeKind::Break),
            89..96 => self.edit(chance, ChangeKind::Heal),
            96..98 => self.move_file(chance),
            98 => self.copy(chance),
            _ if chance.percent(30) => self.remove_all(),
            _ => ChangeKind::Nothing,
        }
    }

    /// A new file, with one pod or rarely more.
    pub fn add(&mut self, chance: &mut Chance) -> ChangeKind {
        self.numbers += 1;
        let count = if chance.percent(85) { 1 } else { chance.between(2, 3) };
        let pods = (0..count).map(|_| self.drawer.pod(chance)).collect();
        let path = format!("/etc/kubeedge/manifests/{:03}.yaml", self.numbers % 1000);
        self.files.insert(path.into(), OnDisk { pods, broken: false });
        ChangeKind::Add
    }

    /// Removes the file of a pod; returns the uids of its pods.
    pub fn remove_pod(&mut self, uid: &str) -> Vec<String> {
        let holds = |file: &OnDisk| file.pods.iter().any(|pod| pod.metadata.uid == uid);
        let path = self.files.iter().find(|(_, file)| holds(file)).map(|(path, _)| path.clone());
        let file = path.and_then(|path| self.files.remove(&path));
        let pods = file.map(|file| file.pods).unwrap_or_default();
        pods.into_iter().map(|pod| pod.metadata.uid).collect()
    }

    fn some(&self, chance: &mut Chance) -> Option<Box<str>> {
        if self.files.is_empty() {
            return None;
        }
        self.files.keys().nth(chance.index(self.files.len())).cloned()
    }

    fn remove(&mut self, chance: &mut Chance) -> ChangeKind {
        let Some(path) = self.some(chance) else { return ChangeKind::Nothing };
        let file = self.files.remove(&path).expect("some() returned an existing one");
        self.removed.push((path, file));
        if self.removed.len() > 8 {
            self.removed.remove(0);
        }
        ChangeKind::Remove
    }

    fn remove_all(&mut self) -> ChangeKind {
        self.removed.extend(std::mem::take(&mut self.files));
        ChangeKind::RemoveAll
    }

    /// With the same uids: mostly what was removed last.
    fn give_back(&mut self, chance: &mut Chance) -> ChangeKind {
        if self.removed.is_empty() {
            return ChangeKind::Nothing;
        }
        let last = self.removed.len() - 1;
        let at = if chance.percent(70) { last } else { chance.index(last + 1) };
        let (path, mut file) = self.removed.remove(at);
        file.broken = false;
        if self.files.contains_key(&path) {
            return ChangeKind::Nothing;
        }
        self.files.insert(path, file);
        ChangeKind::Return
    }

    /// Any change of a manifest without its own uid is a new pod of the same name.
    fn replace(&mut self, chance: &mut Chance) -> ChangeKind {
        let Some(path) = self.some(chance) else { return ChangeKind::Nothing };
        let file = self.files.get_mut(&path).expect("some() returned an existing one");
        // A file whose new pod is refused keeps its old pods: the stories test that.
        if file.pods.iter().any(draw::is_refused) {
            return ChangeKind::Nothing;
        }
        for pod in &mut file.pods {
            pod.metadata.uid = self.drawer.uid();
            draw::change_image(pod, chance);
        }
        file.broken = false;
        ChangeKind::Replace
    }

    /// The pods keep their uids.
    fn edit(&mut self, chance: &mut Chance, kind: ChangeKind) -> ChangeKind {
        let Some(path) = self.some(chance) else { return ChangeKind::Nothing };
        let file = self.files.get_mut(&path).expect("some() returned an existing one");
        match kind {
            ChangeKind::ChangeImage => {
                file.pods.iter_mut().for_each(|pod| draw::change_image(pod, chance));
            }
            ChangeKind::ChangeGrace => {
                for pod in &mut file.pods {
                    let grace_s = chance.between(0, 60) as i64;
                    Arc::make_mut(&mut pod.spec).termination_grace_period_seconds = Some(grace_s);
                }
            }
            ChangeKind::Break => file.broken = true,
            ChangeKind::Heal => file.broken = false,
            other => panic!("{other:?} is no edit"),
        }
        kind
    }

    /// A copy that was to become another pod, and still has its name.
    fn copy(&mut self, chance: &mut Chance) -> ChangeKind {
        let Some(path) = self.some(chance) else { return ChangeKind::Nothing };
        let mut file = self.files[&path].clone();
        for pod in &mut file.pods {
            pod.metadata.uid = self.drawer.uid();
        }
        self.numbers += 1;
        let before = if chance.percent(50) { "000-" } else { "" };
        let path = format!("/etc/kubeedge/manifests/{before}{:03}-copy.yaml", self.numbers % 1000);
        self.files.insert(path.into(), file);
        ChangeKind::Copy
    }

    /// The same pods from another file.
    fn move_file(&mut self, chance: &mut Chance) -> ChangeKind {
        let Some(path) = self.some(chance) else { return ChangeKind::Nothing };
        let file = self.files.remove(&path).expect("some() returned an existing one");
        self.numbers += 1;
        let path = format!("/etc/kubeedge/manifests/{:03}-moved.yaml", self.numbers % 1000);
        self.files.insert(path.into(), file);
        ChangeKind::Move
    }
}

fn refusal() -> Refusal {
    Refusal { line: 3, column: 7, why: "got a tab, expected spaces".to_owned() }
}
