//! The Kubernetes API on the node: what its clients ask for and what they get, and its rows of
//! KubeEdge's table `meta_v2` (metaserver.md).

use core::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::access::Attributes;
use super::application::{Gvr, Item, Scope};
#[cfg(feature = "streams")]
use super::stream::StreamRequest;

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
    /// `keadmCtl`: every program of this machine may read logs, run commands in containers, and
    /// restart pods.
    pub keadm_ctl: bool,
    /// The feature gate `requireAuthorization`: clients show who they are, and RBAC decides.
    pub requires_authorization: bool,
    pub authorization: Authorization,
}

/// Settings of the authenticated form (metaserver.md, section 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// `dummyServer`: an address that pods reach, which is held by a link of our own.
    pub dummy: SocketAddr,
    /// `serviceAccountIssuers`: the accepted `iss` of tokens.
    pub issuers: Vec<Box<str>>,
    /// `apiAudiences`: a token needs one of these; empty: the issuers.
    pub audiences: Vec<Box<str>>,
    /// `serviceAccountKeyFiles`: PEM of public keys.
    pub key_files: Vec<Box<str>>,
}

impl Authorization {
    /// The audiences of which a token needs one.
    pub fn audiences(&self) -> &[Box<str>] {
        if self.audiences.is_empty() { &self.issuers } else { &self.audiences }
    }
}

/// `KubeEdge`'s.
impl Default for Authorization {
    fn default() -> Self {
        Self {
            dummy: SocketAddr::from(([169, 254, 30, 10], 10_550)),
            issuers: vec!["https://kubernetes.default.svc.cluster.local".into()],
            audiences: Vec::new(),
            key_files: Vec::new(),
        }
    }
}

impl MetaServerSettings {
    /// `None`: nobody is asked who he is. Without the feature `metaserver-auth` the configuration
    /// refuses the gate.
    pub fn authorization(&self) -> Option<&Authorization> {
        let is_on = cfg!(feature = "metaserver-auth") && self.requires_authorization;
        is_on.then_some(&self.authorization)
    }

    /// Whether clients may change objects: some of them, where RBAC decides.
    pub fn has_writes(&self) -> bool {
        self.writes || self.requires_authorization
    }

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
            keadm_ctl: false,
            requires_authorization: false,
            authorization: Authorization::default(),
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
    /// A log, or a command in a container (sections 11.1 and 11.2). An empty name of a container:
    /// the pod's only one, of a log its first one.
    #[cfg(feature = "streams")]
    Stream(Box<StreamRequest>),
    /// Give a device of the node another spec, on the node alone (section 11.4).
    #[cfg(feature = "devices")]
    EditDevice(Box<DevicePut>),
    /// Start the containers of pods anew (section 11.3).
    Restart {
        namespace: Box<str>,
        /// Their names.
        pods: Vec<Box<str>>,
    },
}

impl Call {
    /// What an authorizer decides about (Kubernetes' `RequestInfo`).
    pub fn attributes(&self) -> Attributes<'_> {
        let all = Attributes {
            verb: "create",
            group: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
        };
        let attributes = match self {
            Self::Get { served: of, namespace, name, .. } => {
                Attributes { verb: "get", namespace, name, ..of_gvr(&of.gvr) }
            }
            Self::List { scope, .. } => Attributes { verb: "list", ..of_scope(scope) },
            Self::Watch(Watch { scope, .. }) => Attributes { verb: "watch", ..of_scope(scope) },
            Self::Write(write) => write.attributes(),
            Self::Release(Release::Pod { .. }) => {
                Attributes { resource: "pods", name: "unhold-upgrade", ..all }
            }
            Self::Release(Release::Node(_)) => {
                Attributes { resource: "nodes", name: "unhold-upgrade", ..all }
            }
            Self::ConfirmUpgrade => {
                Attributes { resource: "taskupgrade", name: "confirm-upgrade", ..all }
            }
            #[cfg(feature = "streams")]
            Self::Stream(request) => of_stream(request, all),
            #[cfg(feature = "devices")]
            Self::EditDevice(put) => Attributes {
                verb: "update",
                group: "devices.kubeedge.io",
                resource: "devices",
                namespace: &put.namespace,
                name: &put.name,
                ..all
            },
            Self::Restart { namespace, .. } => {
                Attributes { resource: "pods", namespace, name: "restart", ..all }
            }
        };
        match (attributes.group, attributes.resource) {
            // A namespace is in itself.
            ("", "namespaces") => Attributes { namespace: attributes.name, ..attributes },
            _ => attributes,
        }
    }
}

/// As the API server's of the same subresource.
#[cfg(feature = "streams")]
fn of_stream<'a>(request: &'a StreamRequest, all: Attributes<'a>) -> Attributes<'a> {
    let (verb, subresource) = match request {
        StreamRequest::Logs { .. } => ("get", "log"),
        StreamRequest::Exec { .. } | StreamRequest::Command { .. } => ("create", "exec"),
        StreamRequest::Attach { .. } => ("create", "attach"),
        StreamRequest::PortForward { .. } => ("create", "portforward"),
        StreamRequest::Run { .. } | StreamRequest::Usage => ("create", "proxy"),
    };
    let pod = request.pod();
    let (namespace, name) = pod.map_or(("", ""), |pod| (&*pod.namespace, &*pod.name));
    Attributes { verb, resource: "pods", subresource, namespace, name, ..all }
}

fn of_gvr(gvr: &Gvr) -> Attributes<'_> {
    let (group, resource) = (&gvr.group, &gvr.resource);
    Attributes { verb: "", group, resource, subresource: "", namespace: "", name: "" }
}

fn of_scope(scope: &Scope) -> Attributes<'_> {
    Attributes { namespace: &scope.namespace, name: &scope.name, ..of_gvr(&scope.gvr) }
}

impl Write {
    fn attributes(&self) -> Attributes<'_> {
        let mut parts = self.key.split('/').skip(1);
        let mut next = || match parts.next().unwrap_or_default() {
            "null" | "core" => "",
            part => part,
        };
        let (group, _, resource) = (next(), next(), next());
        let (namespace, name) = (next(), next());
        let verb = if self.verb == "updatestatus" { "update" } else { self.verb };
        let subresource = if self.is_of_status { "status" } else { "" };
        Attributes { verb, group, resource, subresource, namespace, name }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Some program on this machine: nobody is asked.
    Local,
    /// A client that shows no token.
    Anonymous,
    Bearer(Box<Bearer>),
}

/// The token that a client shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// See [`super::token::digest`].
    pub digest: Box<str>,
    /// One of the configured keys has signed it.
    pub is_signed: bool,
    /// What it says; true only if it is signed, or its digest is known.
    pub claims: Claims,
}

/// Claims of a service account token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `iss`
    pub issuer: Box<str>,
    /// `aud`
    pub audiences: Vec<Box<str>>,
    /// `exp`, in seconds since 1970.
    pub ends_at: Option<i64>,
    /// `nbf`
    pub begins_at: Option<i64>,
    /// Of the service account, and of what the token is bound to.
    pub namespace: Box<str>,
    pub account: Box<str>,
    pub account_uid: Box<str>,
    /// Name and uid of the pod whose end is the token's.
    pub pod: Option<(Box<str>, Box<str>)>,
    /// It ends with a Secret.
    pub has_secret: bool,
}

/// Where pods reach MetaServer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCluster {
    pub address: SocketAddr,
    /// PEM of the certificate that its clients must trust.
    pub certificate: Arc<str>,
}

impl InCluster {
    /// What client-go's in-cluster configuration reads, as a kubelet sets it. `KUBERNETES_PORT` is
    /// not among them: it tells agents of EdgeMesh that they are in the cloud.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        let port = self.address.port().to_string();
        [
            ("KUBERNETES_SERVICE_HOST", self.address.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT", port.clone()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ]
    }
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
    /// It is about the status alone, whichever way the verb says that.
    pub is_of_status: bool,
}

/// A device as a client wants it.
#[cfg(feature = "devices")]
#[derive(Clone, Debug)]
pub struct DevicePut {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// JSON of the whole object.
    pub text: Box<str>,
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
    /// The client may have it, and gets it from the streams of people: with the container's name.
    #[cfg(feature = "streams")]
    Stream(Box<StreamRequest>),
    /// What has become of the client's pods.
    Messages(Messages),
    Failure(Failure),
    /// The watch begins: events follow, until [`Reply::End`].
    Watching(Beginning),
    Event(WatchEvent),
    /// The watch ends.
    End,
}

impl Reply {
    /// Puts others in the place of objects.
    pub fn replace(&mut self, other: impl Fn(&Item) -> Option<Arc<Item>>) {
        let replace = |item: &mut Arc<Item>| {
            if let Some(other) = other(item) {
                *item = other;
            }
        };
        match self {
            Self::Object { item, .. } => replace(item),
            Self::List { items, .. } => items.iter_mut().for_each(replace),
            Self::Watching(beginning) => beginning.items.iter_mut().for_each(replace),
            Self::Event(
                WatchEvent::Added(_, item)
                | WatchEvent::Modified(_, item)
                | WatchEvent::Deleted(_, item),
            ) => replace(item),
            _ => {}
        }
    }
}

/// What a client of KubeEdge shows its user: lines, and errors. The HTTP status is 200 in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// `LogMessages`
    pub done: Vec<String>,
    /// `errMessages`
    pub errors: Vec<String>,
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
    /// Requests that were refused: a wrong token, or no rule that allows them.
    pub refused: u64,
    /// Where pods reach it with their tokens; `None`: nowhere.
    pub for_pods: Option<String>,
    /// What does not work.
    pub trouble: Option<String>,
}
