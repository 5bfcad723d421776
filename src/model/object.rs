//! Objects that pods use, as a manifest defines them: ConfigMaps, Secrets, RuntimeClasses, and
//! claims of storage with their volumes.
//!
//! To add a kind, add a variant of [`Object`] and of [`ObjectKind`], an arm in
//! `wire::manifest::object`, and a lookup in `agent::objects`. The API and the log never show their
//! contents: they may be secret, and the name is enough to find an object.

mod storage;

use std::collections::BTreeMap;
use std::fmt;

use super::base64;
use super::pod::Metadata;
use super::quantity::Quantity;
#[cfg(feature = "services")]
use super::service::{Endpoints, Service};
use super::tree::{self, Fault, Node, Read, Step, by_tree, fields};

pub use storage::{
    Claim, ClaimRef, ClaimSpec, Local, PersistentVolume, PersistentVolumeSpec, StorageRequest,
};

/// One object of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// core/v1 `ConfigMap`
    ConfigMap(ConfigMap),
    /// core/v1 `Secret`
    Secret(Secret),
    /// node.k8s.io/v1 `RuntimeClass`
    RuntimeClass(RuntimeClass),
    /// core/v1 `PersistentVolumeClaim`
    Claim(Claim),
    /// core/v1 `PersistentVolume`
    PersistentVolume(Box<PersistentVolume>),
    /// core/v1 `Service`
    #[cfg(feature = "services")]
    Service(Box<Service>),
    /// core/v1 `Endpoints`
    #[cfg(feature = "services")]
    Endpoints(Box<Endpoints>),
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    ConfigMap,
    Secret,
    RuntimeClass,
    PersistentVolumeClaim,
    PersistentVolume,
    #[cfg(feature = "services")]
    Service,
    #[cfg(feature = "services")]
    Endpoints,
}

/// core/v1 `ConfigMap`. A key is in at most one of the two maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigMap {
    /// Name and namespace.
    pub metadata: Metadata,
    /// Texts.
    pub data: BTreeMap<String, String>,
    /// Other values; only volumes contain them.
    pub binary_data: BTreeMap<String, Bytes>,
}

fields!(ConfigMap {
    "metadata" => metadata,
    "data" => data,
    "binaryData" => binary_data,
});

/// core/v1 `Secret`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Secret {
    /// Name and namespace.
    pub metadata: Metadata,
    /// `Opaque`, `kubernetes.io/dockerconfigjson` …
    pub r#type: String,
    /// With `stringData`.
    pub data: BTreeMap<String, Bytes>,
}

fields!(Secret {
    "metadata" => metadata,
    "type" => r#type,
    "data" => data,
});

/// node.k8s.io/v1 `RuntimeClass`; without a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeClass {
    /// Name.
    pub metadata: Metadata,
    /// The runtime's name of it.
    pub handler: String,
    /// The resources of its pods beside their containers.
    pub overhead: Overhead,
}

fields!(RuntimeClass {
    "metadata" => metadata,
    "handler" => handler,
    "overhead" => overhead,
});

/// node.k8s.io/v1 `Overhead`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overhead {
    /// By resource name.
    pub pod_fixed: BTreeMap<String, Quantity>,
}

fields!(Overhead {
    "podFixed" => pod_fixed,
});

/// Bytes that a manifest contains in base64. Their `Debug` shows only the length.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Box<[u8]>);

impl Object {
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::ConfigMap(_) => ObjectKind::ConfigMap,
            Self::Secret(_) => ObjectKind::Secret,
            Self::RuntimeClass(_) => ObjectKind::RuntimeClass,
            Self::Claim(_) => ObjectKind::PersistentVolumeClaim,
            Self::PersistentVolume(_) => ObjectKind::PersistentVolume,
            #[cfg(feature = "services")]
            Self::Service(_) => ObjectKind::Service,
            #[cfg(feature = "services")]
            Self::Endpoints(_) => ObjectKind::Endpoints,
        }
    }

    /// Name and namespace.
    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::ConfigMap(map) => &map.metadata,
            Self::Secret(secret) => &secret.metadata,
            Self::RuntimeClass(class) => &class.metadata,
            Self::Claim(claim) => &claim.metadata,
            Self::PersistentVolume(volume) => &volume.metadata,
            #[cfg(feature = "services")]
            Self::Service(service) => &service.metadata,
            #[cfg(feature = "services")]
            Self::Endpoints(endpoints) => &endpoints.metadata,
        }
    }

    /// Roughly its size in memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        let behind = match self {
            Self::ConfigMap(map) => map.heap_bytes(),
            Self::Secret(secret) => secret.heap_bytes(),
            Self::RuntimeClass(class) => class.heap_bytes(),
            Self::Claim(claim) => claim.heap_bytes(),
            Self::PersistentVolume(volume) => volume.heap_bytes(),
            #[cfg(feature = "services")]
            Self::Service(service) => service.heap_bytes(),
            #[cfg(feature = "services")]
            Self::Endpoints(endpoints) => endpoints.heap_bytes(),
        };
        tree::piece_bytes(size_of::<Self>()) + behind
    }

    /// The size of its keys and values, bytes.
    pub fn size_bytes(&self) -> usize {
        fn of<T: AsRef<[u8]>>(map: &BTreeMap<String, T>) -> usize {
            map.iter().map(|(key, value)| key.len() + value.as_ref().len()).sum()
        }
        match self {
            Self::ConfigMap(map) => of(&map.data) + of(&map.binary_data),
            Self::Secret(secret) => of(&secret.data),
            Self::RuntimeClass(class) => class.handler.len(),
            Self::Claim(claim) => claim.spec.volume_name.len(),
            Self::PersistentVolume(volume) => {
                volume.spec.local.as_ref().map_or(0, |local| local.path.len())
            }
            #[cfg(feature = "services")]
            Self::Service(service) => service.heap_bytes(),
            #[cfg(feature = "services")]
            Self::Endpoints(endpoints) => endpoints.heap_bytes(),
        }
    }
}

impl Secret {
    /// An error without any content of the object: errors go to the log, which many people can
    /// read.
    pub fn hide(mut fault: Fault) -> Fault {
        let at = |field: &str| fault.path.iter().any(|step| *step == Step::Key(field.into()));
        let hidden = "got a value that is not shown, expected";
        if at("data") {
            fault.why = format!("{hidden} base64");
        } else if at("stringData") {
            let expected = "text (in quotes if it looks like a number or a boolean)";
            fault.why = format!("{hidden} {expected}");
        }
        fault
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Read for Bytes {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        let mut text = String::new();
        text.read(node)?;
        let bytes = base64::decode(&text);
        let why = || Fault::bare("got text that is not base64, expected base64".to_owned());
        self.0 = bytes.ok_or_else(why)?.into();
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        tree::piece_bytes(self.0.len())
    }
}

by_tree!(Bytes);
