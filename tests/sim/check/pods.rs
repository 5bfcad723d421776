//! All pods by index, uid and name.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use edged::model::cri::PodRef;

use super::Pod;

/// Every pod that was ever observed or desired. None is removed, so that its index stays valid.
#[derive(Default)]
pub struct Pods {
    all: Vec<Pod>,
    by_uid: BTreeMap<Box<str>, usize>,
    /// By namespace and name.
    by_name: BTreeMap<(Box<str>, Box<str>), Vec<usize>>,
}

impl Pods {
    /// The index of the pod with this uid, if it was ever known.
    pub fn find(&self, uid: &str) -> Option<usize> {
        self.by_uid.get(uid).copied()
    }

    /// The index of the pod with this uid, which is known.
    pub fn index(&self, uid: &str) -> usize {
        self.by_uid[uid]
    }

    /// The index of the pod, which is known from now on.
    pub fn index_or_add(&mut self, pod: &PodRef) -> usize {
        if let Some(at) = self.find(&pod.uid) {
            return at;
        }
        let at = self.all.len();
        self.all.push(Pod::new(&pod.uid));
        self.by_uid.insert(pod.uid.clone(), at);
        let name = (pod.namespace.clone(), pod.name.clone());
        self.by_name.entry(name).or_default().push(at);
        at
    }

    /// All pods of this namespace and name, if there ever was one.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&[usize]> {
        self.by_name.get(&(namespace.into(), name.into())).map(Vec::as_slice)
    }

    /// The pods of the same name, with itself.
    pub fn namesakes(&self, at: usize) -> impl Iterator<Item = &Pod> {
        let of_name = self.by_name.values().find(|all| all.contains(&at));
        of_name.into_iter().flatten().map(|&other| &self.all[other])
    }
}

impl Deref for Pods {
    type Target = [Pod];

    fn deref(&self) -> &[Pod] {
        &self.all
    }
}

impl DerefMut for Pods {
    fn deref_mut(&mut self) -> &mut [Pod] {
        &mut self.all
    }
}
