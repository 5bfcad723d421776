//! Objects of the Kubernetes API, and calls to the API server about one of them.
//!
//! It makes no difference here whether a real API server answers or a folder of manifests.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The label of edge nodes.
pub const EDGE_LABEL: &str = "node-role.kubernetes.io/edge";

/// The kind of an object: only those that the edge uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Node,
    ConfigMap,
    Secret,
    /// KubeEdge's object with the rules of a service account. It is made for nodes, and is in no
    /// API server.
    ServiceAccountAccess,
    Pod,
    DeviceModel,
    Device,
    Lease,
    ServiceAccount,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    Event,
    DeviceStatus,
    ObjectSync,
    ClusterObjectSync,
    ImagePrePullJob,
    NodeUpgradeJob,
    ConfigUpdateJob,
    RuleEndpoint,
    Rule,
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl Kind {
    pub const ALL: [Self; 25] = [
        Self::Node,
        Self::ConfigMap,
        Self::Secret,
        Self::ServiceAccountAccess,
        Self::Pod,
        Self::DeviceModel,
        Self::Device,
        Self::Lease,
        Self::ServiceAccount,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::VolumeAttachment,
        Self::Event,
        Self::DeviceStatus,
        Self::ObjectSync,
        Self::ClusterObjectSync,
        Self::ImagePrePullJob,
        Self::NodeUpgradeJob,
        Self::ConfigUpdateJob,
        Self::RuleEndpoint,
        Self::Rule,
        Self::Role,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    /// The kinds of jobs for nodes.
    pub const NODE_JOBS: [Self; 3] =
        [Self::ImagePrePullJob, Self::NodeUpgradeJob, Self::ConfigUpdateJob];

    /// The kinds of rules for custom messages.
    pub const RULES: [Self; 2] = [Self::RuleEndpoint, Self::Rule];

    /// The kinds that say what service accounts may do.
    pub const POLICY: [Self; 5] = [
        Self::ServiceAccount,
        Self::Role,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    /// Whether its objects say what service accounts may do.
    pub fn is_of_policy(self) -> bool {
        Self::POLICY.contains(&self)
    }

    /// Whether its objects are rules for custom messages, or their endpoints.
    pub fn is_of_rules(self) -> bool {
        Self::RULES.contains(&self)
    }

    /// Whether its objects are jobs for nodes.
    pub fn is_node_job(self) -> bool {
        Self::NODE_JOBS.contains(&self)
    }

    /// `kind` of its objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::ServiceAccountAccess => "ServiceAccountAccess",
            Self::Pod => "Pod",
            Self::DeviceModel => "DeviceModel",
            Self::Device => "Device",
            Self::Lease => "Lease",
            Self::ServiceAccount => "ServiceAccount",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::VolumeAttachment => "VolumeAttachment",
            Self::Event => "Event",
            Self::DeviceStatus => "DeviceStatus",
            Self::ObjectSync => "ObjectSync",
            Self::ClusterObjectSync => "ClusterObjectSync",
            Self::ImagePrePullJob => "ImagePrePullJob",
            Self::NodeUpgradeJob => "NodeUpgradeJob",
            Self::ConfigUpdateJob => "ConfigUpdateJob",
            Self::RuleEndpoint => "RuleEndpoint",
            Self::Rule => "Rule",
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// `apiVersion` of its objects: `<version>` or `<group>/<version>`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Lease => "coordination.k8s.io/v1",
            Self::VolumeAttachment => "storage.k8s.io/v1",
            Self::DeviceModel | Self::Device | Self::DeviceStatus => "devices.kubeedge.io/v1beta1",
            Self::ObjectSync | Self::ClusterObjectSync => "reliablesyncs.kubeedge.io/v1alpha1",
            Self::ImagePrePullJob | Self::NodeUpgradeJob | Self::ConfigUpdateJob => {
                "operations.kubeedge.io/v1alpha2"
            }
            Self::RuleEndpoint | Self::Rule => "rules.kubeedge.io/v1",
            Self::ServiceAccountAccess => "policy.kubeedge.io/v1alpha1",
            Self::Role | Self::ClusterRole | Self::RoleBinding | Self::ClusterRoleBinding => {
                "rbac.authorization.k8s.io/v1"
            }
            Self::Node
            | Self::ConfigMap
            | Self::Secret
            | Self::Pod
            | Self::ServiceAccount
            | Self::PersistentVolume
            | Self::PersistentVolumeClaim
            | Self::Event => "v1",
        }
    }

    /// The name in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::ServiceAccountAccess => "serviceaccountaccesses",
            Self::Pod => "pods",
            Self::DeviceModel => "devicemodels",
            Self::Device => "devices",
            Self::Lease => "leases",
            Self::ServiceAccount => "serviceaccounts",
            Self::PersistentVolume => "persistentvolumes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::VolumeAttachment => "volumeattachments",
            Self::Event => "events",
            Self::DeviceStatus => "devicestatuses",
            Self::ObjectSync => "objectsyncs",
            Self::ClusterObjectSync => "clusterobjectsyncs",
            Self::ImagePrePullJob => "imageprepulljobs",
            Self::NodeUpgradeJob => "nodeupgradejobs",
            Self::ConfigUpdateJob => "configupdatejobs",
            Self::RuleEndpoint => "ruleendpoints",
            Self::Rule => "rules",
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Whether its objects have a namespace.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Node
            | Self::PersistentVolume
            | Self::VolumeAttachment
            | Self::ClusterObjectSync
            | Self::ImagePrePullJob
            | Self::NodeUpgradeJob
            | Self::ConfigUpdateJob
            | Self::ClusterRole
            | Self::ClusterRoleBinding => false,
            Self::ConfigMap
            | Self::Secret
            | Self::ServiceAccountAccess
            | Self::Pod
            | Self::DeviceModel
            | Self::Device
            | Self::Lease
            | Self::ServiceAccount
            | Self::PersistentVolumeClaim
            | Self::Event
            | Self::DeviceStatus
            | Self::ObjectSync
            | Self::RuleEndpoint
            | Self::Rule
            | Self::Role
            | Self::RoleBinding => true,
        }
    }

    /// The selector with which its objects are listed and watched: a parameter of the query and its
    /// value, not escaped. `None`: all.
    pub fn selector(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Node => Some(("labelSelector", EDGE_LABEL)),
            Self::Pod => Some(("fieldSelector", "spec.nodeName!=")),
            Self::ConfigMap
            | Self::Secret
            | Self::ServiceAccountAccess
            | Self::DeviceModel
            | Self::Device
            | Self::Lease
            | Self::ServiceAccount
            | Self::PersistentVolume
            | Self::PersistentVolumeClaim
            | Self::VolumeAttachment
            | Self::Event
            | Self::DeviceStatus
            | Self::ObjectSync
            | Self::ClusterObjectSync
            | Self::ImagePrePullJob
            | Self::NodeUpgradeJob
            | Self::ConfigUpdateJob
            | Self::RuleEndpoint
            | Self::Rule
            | Self::Role
            | Self::ClusterRole
            | Self::RoleBinding
            | Self::ClusterRoleBinding => None,
        }
    }
}

/// One call to the API server.
#[derive(Clone)]
pub struct Call {
    pub verb: Verb,
    /// The kind of the object.
    pub kind: Kind,
    /// Its namespace; empty: none.
    pub namespace: Box<str>,
    /// Its name; for [`Verb::Create`] as well, unless it is a subresource's owner.
    pub name: Box<str>,
    /// A part of it.
    pub subresource: Option<Subresource>,
    /// The object, the patch, the `DeleteOptions`, or the [`ListOptions`].
    pub body: Option<Box<RawValue>>,
}

/// The options of a list (meta/v1 `ListOptions`, as far as it is used).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListOptions {
    /// Empty: all.
    pub field_selector: String,
    /// Objects of one answer; 0: all at once.
    pub limit: u32,
    /// The `continue` of the answer before; empty: the first page.
    pub r#continue: String,
}

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// GET
    Get,
    /// GET of the collection, or of a part of it.
    List,
    /// POST: to the collection, or to the subresource where one is named.
    Create,
    /// PUT
    Update,
    /// PATCH
    Patch(PatchType),
    /// DELETE
    Delete,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatchType {
    /// `application/merge-patch+json` (RFC 7396)
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
}

/// A part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    /// `…/status`
    Status,
    /// `serviceaccounts/<name>/token`
    Token,
}

/// The object after the call, or any other body of a successful answer.
pub type CallResult = Result<Box<RawValue>, CallError>;

/// Why a call did not succeed.
#[derive(Clone, Debug)]
pub enum CallError {
    /// The API server refused it.
    Refused {
        /// The HTTP status.
        code: u16,
        /// meta/v1 `Status`, whole: the server's own, or one made from the code if it sent none.
        status: Box<RawValue>,
    },
    /// There was no answer: it may have taken effect or not.
    Lost(String),
}

/// Bodies may be secret.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, kind, namespace, name, subresource, body } = self;
        write!(f, "{verb:?} {} {namespace}/{name}", kind.plural())?;
        if let Some(subresource) = subresource {
            write!(f, " {subresource:?}")?;
        }
        write!(f, " ({} bytes)", body.as_ref().map_or(0, |body| body.get().len()))
    }
}
