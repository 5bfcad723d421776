//! What MetaServer and the cloud's dynamic controller speak of: resources, selections of their
//! objects, and requests for them (metaserver.md, sections 4 and 6).

use std::fmt;

use super::map::Set;
use super::selector::{LabelSelector, Labels};

/// Group, version and resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gvr {
    /// Empty for core.
    pub group: Box<str>,
    pub version: Box<str>,
    /// In the plural: `services`.
    pub resource: Box<str>,
}

impl Gvr {
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// `v1`, `discovery.k8s.io/v1`
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.to_string();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// Whether it is this resource of this group, in any version.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        (&*self.group, &*self.resource) == (group, resource)
    }

    /// Whether an object with this `apiVersion` may be of it.
    pub fn is_of(&self, api_version: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        *self.group == *group && *self.version == *version
    }

    /// `/core/v1/services/default/web` (section 4). Empty parts are `null`.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let part = |text: &str| if text.is_empty() { "null".to_owned() } else { text.to_owned() };
        let group = if self.group.is_empty() { "core" } else { &self.group };
        // A namespace is in none.
        let namespace = if self.is("", "namespaces") { "" } else { namespace };
        let (namespace, name) = (part(namespace), part(name));
        format!("/{group}/{}/{}/{namespace}/{name}", self.version, self.resource)
    }
}

/// `discovery.k8s.io/v1, Resource=endpointslices`: as KubeEdge's table has it.
impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// Which objects of a resource are meant. Two selections of the same objects, written in the same
/// way, are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub gvr: Gvr,
    /// Empty: all.
    pub namespace: Box<str>,
    pub labels: LabelSelector,
    /// `metadata.name`; empty: any.
    pub name: Box<str>,
    /// `spec.nodeName`; empty: any.
    pub node: Box<str>,
    /// `status.phase` of pods; empty: any.
    pub phase: Box<str>,
    /// What it is not.
    pub other_phases: Set<Box<str>>,
}

impl Scope {
    /// All objects of a resource.
    pub fn all(gvr: Gvr) -> Self {
        let (namespace, name, node, phase) = Default::default();
        let (labels, other_phases) = Default::default();
        Self { gvr, namespace, labels, name, node, phase, other_phases }
    }

    /// The label selector's text; empty: there is none.
    pub fn label_selector(&self) -> String {
        self.labels.to_string()
    }

    /// The field selector's text; empty: there is none.
    pub fn field_selector(&self) -> String {
        let name = (!self.name.is_empty()).then(|| format!("metadata.name={}", self.name));
        let node = (!self.node.is_empty()).then(|| format!("spec.nodeName={}", self.node));
        let phase = (!self.phase.is_empty()).then(|| format!("status.phase={}", self.phase));
        let others = self.other_phases.iter().map(|other| format!("status.phase!={other}"));
        let terms = name.into_iter().chain(node).chain(phase).chain(others);
        terms.collect::<Vec<_>>().join(",")
    }

    /// The id of its watch: the same in each connection, because the cloud knows a watch by it.
    pub fn id(&self, node: &str) -> String {
        let mut id = format!("edged-{}", self.gvr.resource);
        if !self.gvr.group.is_empty() {
            id.extend([".", &*self.gvr.group, ".", &*self.gvr.version]);
        }
        id.extend(["-", node]);
        for part in [self.namespace.to_string(), self.label_selector(), self.field_selector()] {
            if !part.is_empty() {
                id.extend(["/", &*part]);
            }
        }
        id
    }

    /// Whether an object that is in it stays in it until it is deleted.
    pub fn is_by_name(&self) -> bool {
        self.labels == LabelSelector::default()
            && self.node.is_empty()
            && self.phase.is_empty()
            && self.other_phases.is_empty()
    }

    pub fn has(&self, item: &Item) -> bool {
        (self.namespace.is_empty() || self.namespace == item.namespace)
            && (self.name.is_empty() || self.name == item.name)
            && (self.node.is_empty() || self.node == item.node)
            && (self.phase.is_empty() || self.phase == item.phase)
            && !self.other_phases.contains(&item.phase)
            && self.labels.matches(&item.labels)
    }
}

/// An object as the API server has it, without `metadata.managedFields`: its text, and what of it a
/// selection or an update depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    /// Empty: it is the cluster's.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// `resourceVersion`; 0: not a number.
    pub version: u64,
    pub labels: Labels,
    /// `spec.nodeName`; empty: none.
    pub node: Box<str>,
    /// `status.phase`; empty: none.
    pub phase: Box<str>,
    /// `creationTimestamp`, as it is written; empty: none.
    pub created: Box<str>,
    /// Of its content without versions and the times of heartbeats: an object with the same digest
    /// is not written to flash again.
    pub digest: u64,
    /// JSON, with `apiVersion` and `kind`.
    pub text: Box<str>,
}

/// A request of MetaServer to the dynamic controller, as the node makes it.
#[derive(Clone, Debug)]
pub struct Application {
    pub node: Box<str>,
    /// Tells the answer to it from those to other requests.
    pub id: Box<str>,
    /// See [`Gvr::key`].
    pub key: Box<str>,
    pub verb: &'static str,
    pub options: Options,
    /// JSON of the object that is created or updated.
    pub body: Option<Box<str>>,
    /// Empty: none.
    pub subresource: Box<str>,
}

/// The options of an [`Application`].
#[derive(Clone, Debug)]
pub enum Options {
    None,
    List {
        labels: Box<str>,
        fields: Box<str>,
        /// So many at most.
        limit: u32,
        /// The token of the page; empty: the first one.
        page: Box<str>,
    },
    /// JSON.
    Given(Box<str>),
}

/// The ids of MetaServer's applications begin so.
pub const APPLICATION_ID: &str = "edged-metaserver-";
