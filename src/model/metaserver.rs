//! The Kubernetes API on the node: what its clients ask for and what they get, and its rows of
//! KubeEdge's table `meta_v2` (metaserver.md).

use core::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::application::{Gvr, Item, Scope};

/// Identifies a client's request from its arrival to its end. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub gvr: Gvr,
    /// `EndpointSlice`
    pub kind: Box<str>,
    pub namespaced: bool,
}

/// Settings (`modules.metaManager.metaServer`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaServerSettings {
    /// `server`: an address on loopback.
    pub server: SocketAddr,
    /// What every node serves, and `resources` and `clusterResources`.
    pub served: Vec<Arc<Served>>,
    /// `writes`: clients may change objects, with the rights that the cloud has.
    pub writes: bool,
}

impl MetaServerSettings {
    pub fn find(&self, gvr: &Gvr) -> Option<&Arc<Served>> {
        self.served.iter().find(|it| it.gvr == *gvr)
    }

    /// The resource of an object.
    pub fn of_item(&self, item: &Item) -> Option<&Arc<Served>> {
        self.served.iter().find(|it| it.kind == item.kind && it.gvr.is_of(&item.api_version))
    }
}

impl Default for MetaServerSettings {
    /// What agents and operators' programs on gateways read, without secrets.
    fn default() -> Self {
        let served = |(group, version, resource, kind, namespaced): (_, _, _, &str, _)| {
            let gvr = Gvr::new(group, version, resource);
            Arc::new(Served { gvr, kind: kind.into(), namespaced })
        };
        let all = [
            ("", "v1", "configmaps", "ConfigMap", true),
            ("", "v1", "endpoints", "Endpoints", true),
            ("", "v1", "namespaces", "Namespace", false),
            ("", "v1", "nodes", "Node", false),
            ("", "v1", "pods", "Pod", true),
            ("", "v1", "services", "Service", true),
            ("devices.kubeedge.io", "v1beta1", "devicemodels", "DeviceModel", true),
            ("devices.kubeedge.io", "v1beta1", "devices", "Device", true),
            ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
        ];
        Self {
            server: SocketAddr::from(([127, 0, 0, 1], 10_550)),
            served: all.map(served).into(),
            writes: false,
        }
    }
}

/// How a client wants objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Whole,
    /// meta.k8s.io/v1 `Table` with name and age.
    Table,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub enum Call {
    Get {
        served: Arc<Served>,
        namespace: Box<str>,
        name: Box<str>,
        form: Form,
    },
    List {
        scope: Scope,
        recency: Recency,
        form: Form,
    },
    Watch(Watch),
    Write(Box<Write>),
    /// Release pods that are held back (metaserver.md, section 11.5).
    Release(Release),
    /// Start the upgrade of the node that waits for it (section 11.6).
    ConfirmUpgrade,
}

/// How new an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recency {
    /// As new as the API server's.
    Latest,
    /// What is known will do (`resourceVersion` is given).
    Any,
}

/// A request for a watch.
#[derive(Clone, Debug)]
pub struct Watch {
    pub scope: Scope,
    /// The changes after this version; 0: first the objects as they are.
    pub version: u64,
    /// Seconds after which it ends; `None`: the server chooses.
    pub timeout_s: Option<u32>,
    pub bookmarks: bool,
    /// `sendInitialEvents`: the objects as they are, and a bookmark after them.
    pub initial_events: bool,
    pub form: Form,
}

/// A request to change an object, as the cloud gets it.
#[derive(Clone, Debug)]
pub struct Write {
    /// See [`Gvr::key`].
    pub key: Box<str>,
    /// `create`, `update`, `updatestatus`, `patch`, `delete`
    pub verb: &'static str,
    /// JSON of the options.
    pub options: Box<str>,
    /// JSON of the object.
    pub body: Option<Box<str>>,
    /// Empty: none.
    pub subresource: Box<str>,
}

/// Which pods are released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    Pod {
        namespace: Box<str>,
        name: Box<str>,
    },
    /// All pods of the node of this name.
    Node(Box<str>),
}

/// What a client gets.
#[derive(Clone, Debug)]
pub enum Reply {
    Object {
        item: Arc<Item>,
        form: Form,
        source: Source,
    },
    List {
        served: Arc<Served>,
        items: Vec<Arc<Item>>,
        version: u64,
        form: Form,
        source: Source,
    },
    /// The API server's own answer: the HTTP status, JSON.
    Remote(u16, Box<str>),
    /// An answer without content.
    Done,
    Failure(Failure),
    /// The watch begins: events follow, until [`Reply::End`].
    Watching(Beginning),
    Event(WatchEvent),
    /// The watch ends.
    End,
}

/// What a watch begins with.
#[derive(Clone, Debug)]
pub struct Beginning {
    pub form: Form,
    /// Events of deletions.
    pub gone: Vec<Arc<Item>>,
    /// Events of objects that were added.
    pub items: Vec<Arc<Item>>,
    /// That these were all objects, up to this version.
    pub bookmark: Option<(Arc<Served>, u64)>,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The cloud, or a watch of it that is up to date.
    Cloud,
    /// What this node has stored: the cloud does not answer.
    Store,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    Added(Form, Arc<Item>),
    Modified(Form, Arc<Item>),
    Deleted(Form, Arc<Item>),
    /// All changes up to this version were sent; the flag: and so were all objects.
    Bookmark(Arc<Served>, u64, bool),
}

/// meta/v1 `Status` of a failure that the node itself answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// `NotFound`, `Expired` …; empty: none.
    pub reason: &'static str,
    /// For the user.
    pub message: String,
}

impl Failure {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    pub items: Vec<Arc<Item>>,
    /// `resourceVersion` of the list.
    pub version: u64,
    /// The token of the next page; `None`: it is the last one.
    pub next: Option<Box<str>>,
}

/// The dynamic controller's answer to an application.
#[derive(Clone, Debug)]
pub enum Answer {
    Item(Arc<Item>),
    Page(Page),
    /// A change was made; JSON of what the API server answered, `None`: nothing.
    Done(Option<Box<str>>),
    /// The API server's `Status`: the HTTP status, JSON.
    Refused(u16, Box<str>),
    /// Why there is neither an answer of the API server nor a refusal of it.
    Failed(Box<str>),
}

/// A row of `meta_v2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    Put(Gvr, Arc<Item>),
    /// Its key.
    Delete(Box<str>),
}

/// An object that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    pub item: Arc<Item>,
    /// A row of `meta_v2`, not one of `meta`.
    pub has_row: bool,
}

/// MetaServer in short, for `edged status` and `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaServerOverview {
    /// Requests that are open, watches among them.
    pub clients: usize,
    /// Watches of clients.
    pub watches: usize,
    /// Watches that the cloud serves this node.
    pub upstream_watches: usize,
    /// Objects in memory.
    pub objects: usize,
    /// Bytes of these.
    pub object_bytes: usize,
    /// Rows that are stored.
    pub rows: usize,
    /// Requests since the start.
    pub requests: u64,
    /// Of these, those that the store has answered, because the cloud did not.
    pub from_store: u64,
    /// What does not work.
    pub trouble: Option<String>,
}
