//! MetaServer: the Kubernetes API on the node, for programs on the gateway (metaserver.md).
//!
//! ```text
//!  clients ──get, list, watch──▶ scopes ──▶ objects ◀── pages of lists, pushes ── the cloud's
//!     ▲                             │          │                                  dynamic
//!     └── objects, events ◀─────────┘          └──▶ rows of `meta_v2`             controller
//! ```
//!
//! Intended behaviour: an answer is the cloud's as long as the cloud answers, refusals included. If
//! it does not, get, list and watch are answered from what the node has, with a warning, and writes
//! are refused. All clients with the same selection share one watch of the cloud. A watch brings
//! each change once, and begins where its client's list ended; if that is not known any more, its
//! client gets 410 Gone and lists again.
//!
//! What comes by a watch is a cache: it is listed anew in each connection. So it is acknowledged
//! when it is in memory, and its rows are written once a minute, where an object's meaning has
//! changed. Everything else that the cloud sends is durable first.
//!
//! Pods are those of this node, as the cloud sends them: they are never watched upstream.
//!
//! **If we crash here** clients connect again; the next start has the rows of the last save.

mod objects;
mod scope;
mod serve;
mod upstream;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::event::{Action, Out, Severity};
use super::time::{Instant, Now, Rng};
use crate::limits::{
    METASERVER_BOOKMARK_MS, METASERVER_OBJECT_BYTES_MAX, METASERVER_SAVE_MS,
    METASERVER_SAVE_SOON_MS, METASERVER_SCOPES_MAX,
};
use crate::model::application::{Gvr, Item, Scope};
use crate::model::map::Map;
use crate::model::metaserver::{
    Authorization, Call, ClientId, Failure, MetaServerOverview, MetaServerSettings, Reply,
    RowChange, StoredItem, Watch,
};
use objects::{Change, Objects, Put, name_of};
use scope::{Tracking, Upstream};
pub use upstream::Registration;

#[derive(Debug)]
pub struct MetaServer {
    settings: MetaServerSettings,
    node: Box<str>,
    objects: Objects,
    scopes: Map<Arc<Scope>, Tracking>,
    clients: Map<ClientId, Client>,
    /// What is asked of the cloud, by the number of the request.
    asked: Map<u64, Purpose>,
    last_request: u64,
    link: Link,
    /// The cloud has answered a request since the link came up.
    has_answered: bool,
    /// There was no room for an object: what nobody asks for goes.
    is_full: bool,
    save_at: Option<Instant>,
    saved_at: Option<Instant>,
    trouble: Option<String>,
    logged: Option<String>,
    requests: u64,
    from_store: u64,
    refused: u64,
    /// Replies for the next step.
    replies: Vec<(ClientId, Reply)>,
    rows: usize,
}

/// Whether the cloud answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
    /// It has no dynamic controller; it is asked again then.
    Silent(Instant),
}

/// What a request to the cloud is for.
#[derive(Clone, Debug)]
enum Purpose {
    Get(ClientId),
    Write(ClientId),
    Probe(Arc<Scope>),
    List(Arc<Scope>),
}

/// A request of a client that is not answered yet, or a watch.
#[derive(Debug)]
struct Client {
    call: Arc<Call>,
    /// When it came.
    began: Instant,
    state: State,
}

impl Client {
    /// What it lists or watches.
    fn scope(&self) -> Option<&Scope> {
        match &*self.call {
            Call::Watch(Watch { scope, .. }) | Call::List { scope, .. } => Some(scope),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was done for it.
    New,
    /// The cloud is asked.
    Asked,
    /// The cloud did not answer.
    Unanswered,
    /// It waits for the list of this number.
    Listing(u64),
    /// The watch's events are given out, until then; the next bookmark.
    Open { ends_at: Instant, bookmark_at: Option<Instant> },
}

impl MetaServer {
    /// `bytes_max`: of the memory that objects of the cloud may take.
    pub fn new(settings: MetaServerSettings, node: &str, bytes_max: usize) -> Self {
        Self {
            settings,
            node: node.into(),
            objects: Objects::new((bytes_max / 3).min(METASERVER_OBJECT_BYTES_MAX)),
            scopes: Map::new(),
            clients: Map::new(),
            asked: Map::new(),
            last_request: 0,
            link: Link::Down,
            has_answered: false,
            is_full: false,
            save_at: None,
            saved_at: None,
            trouble: None,
            logged: None,
            requests: 0,
            from_store: 0,
            refused: 0,
            replies: Vec::new(),
            rows: 0,
        }
    }

    /// `None`: nobody is asked who he is.
    pub fn authorization(&self) -> Option<&Authorization> {
        self.settings.authorization()
    }

    /// Takes the objects of the store.
    pub fn load(&mut self, stored: &[StoredItem]) {
        for one in stored {
            if let Some(served) = self.settings.of_item(&one.item) {
                let gvr = served.gvr.clone();
                self.objects.load(&gvr, one);
            }
        }
        self.rows = self.objects.rows();
    }

    // ---- clients ----

    /// A client asks for this.
    pub fn opened(&mut self, now: Now, id: ClientId, call: Call) {
        self.requests += 1;
        let call = Arc::new(call);
        self.clients.insert(id, Client { call, began: now.boot, state: State::New });
    }

    /// A client asks for what it may not have.
    pub fn refused(&mut self, now: Now, id: ClientId, call: Call, failure: Failure) {
        self.refused += 1;
        self.opened(now, id, call);
        self.reply(id, Reply::Failure(failure));
    }

    /// A client has left.
    pub fn closed(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(tracking) = client.scope().and_then(|scope| self.scopes.get_mut(scope)) {
            tracking.is_left = true;
        }
    }

    /// Whether this client is there, and was not answered.
    pub fn waits(&self, id: ClientId) -> bool {
        self.clients.contains_key(&id)
    }

    /// Answers a request that the rest of the agent has served.
    pub fn reply_to(&mut self, id: ClientId, reply: Reply) {
        if self.waits(id) {
            self.reply(id, reply);
        }
    }

    fn reply(&mut self, id: ClientId, reply: Reply) {
        self.closed(id);
        self.replies.push((id, reply));
    }

    fn fail(&mut self, id: ClientId, code: u16, reason: &'static str, message: &str) {
        self.reply(id, Reply::Failure(Failure::new(code, reason, message)));
    }

    // ---- objects ----

    /// Pods of this node come by themselves, and are all that is served.
    fn is_local(gvr: &Gvr) -> bool {
        gvr.group.is_empty() && &*gvr.resource == "pods"
    }

    /// Those of this node come by themselves; others have to be asked for.
    fn is_of_node(gvr: &Gvr) -> bool {
        Self::is_local(gvr) || &*gvr.group == "devices.kubeedge.io"
    }

    fn is_of_scope(&self, gvr: &Gvr, item: &Item, is_it: impl Fn(&Tracking) -> bool) -> bool {
        let mut of_gvr = self.scopes.iter().filter(|(scope, _)| scope.gvr == *gvr);
        of_gvr.any(|(scope, tracking)| is_it(tracking) && scope.has(item))
    }

    /// The cloud has pushed an object.
    pub fn pushed(&mut self, now: Now, item: &Arc<Item>) {
        let Some(served) = self.settings.of_item(item) else { return };
        let gvr = served.gvr.clone();
        let is_known = self.objects.get(&gvr, &name_of(item)).is_some();
        if is_known || Self::is_of_node(&gvr) || self.is_of_scope(&gvr, item, |_| true) {
            self.take(now, &gvr, item);
        }
    }

    /// The cloud has deleted an object. `kind`: in lower case. `uid` empty: not given; `version` 0:
    /// not given.
    pub fn removed(
        &mut self,
        now: Now,
        kind: &str,
        (namespace, name): (&str, &str),
        uid: &str,
        version: u64,
    ) {
        let name = (namespace.into(), name.into());
        let of_kind = self.settings.served.iter().filter(|it| it.kind.to_lowercase() == kind);
        let gvrs: Vec<&Gvr> = of_kind.map(|it| &it.gvr).collect();
        let Some(gvr) = self.objects.find(&name, uid, &gvrs) else { return };
        if let Some(change) = self.objects.remove(&gvr, &name, uid, version) {
            self.changed(now, &gvr, &change);
        } else if let Some(version) = self.objects.remember_unheld(&gvr, &name, uid, version) {
            // Lists from now on are not older: their clients need not list again.
            for (_, tracking) in self.scopes.iter_mut().filter(|(scope, _)| scope.gvr == gvr) {
                tracking.version = tracking.version.max(version);
            }
        }
    }

    /// Takes an object; returns whether there was room for it.
    fn take(&mut self, now: Now, gvr: &Gvr, item: &Arc<Item>) -> bool {
        match self.objects.put(gvr, item) {
            Put::Changed(change) => {
                self.changed(now, gvr, &change);
                true
            }
            Put::Known => true,
            Put::NoRoom => {
                self.is_full = true;
                false
            }
        }
    }

    /// Gives a change to the watches.
    fn changed(&mut self, now: Now, gvr: &Gvr, change: &Change) {
        for (scope, tracking) in self.scopes.iter_mut().filter(|(scope, _)| scope.gvr == *gvr) {
            if [&change.old, &change.new].into_iter().flatten().any(|item| scope.has(item)) {
                tracking.version = tracking.version.max(change.position);
            }
        }
        self.give(gvr, change);
        self.save_at.get_or_insert(self.next_save_at(now));
    }

    /// The events of a change for the watches.
    fn give(&mut self, gvr: &Gvr, change: &Change) {
        for (id, client) in &self.clients {
            let Call::Watch(watch) = &*client.call else { continue };
            if watch.scope.gvr == *gvr && matches!(client.state, State::Open { .. }) {
                let events = serve::events(watch, change);
                self.replies.extend(events.into_iter().flatten().map(|event| (*id, event)));
            }
        }
    }

    fn next_save_at(&self, now: Now) -> Instant {
        let soon = now.boot.plus_ms(METASERVER_SAVE_SOON_MS);
        self.saved_at.map_or(soon, |at| at.plus_ms(METASERVER_SAVE_MS).max(soon))
    }

    // ---- scopes ----

    /// The tracking of a scope that is used now; `None`: there are too many.
    fn track(&mut self, now: Now, scope: &Scope) -> Option<&mut Tracking> {
        if !self.scopes.contains_key(scope) {
            if self.scopes.len() >= METASERVER_SCOPES_MAX {
                return None;
            }
            self.scopes.insert(Arc::new(scope.clone()), Tracking::new(now.boot));
        }
        let tracking = self.scopes.get_mut(scope)?;
        tracking.used_at = now.boot;
        Some(tracking)
    }

    /// Those that are listed now, or that a client has just left.
    fn note_used(&mut self, now: Now) {
        for tracking in self.scopes.values_mut() {
            if tracking.listing.is_some() || std::mem::take(&mut tracking.is_left) {
                tracking.used_at = now.boot;
            }
        }
    }

    /// Forgets the scopes that are not used any more.
    fn forget_scopes(&mut self, now: Now) {
        self.note_used(now);
        for tracking in self.scopes.values_mut() {
            if matches!(tracking.upstream, Upstream::Refused(_, until) if until <= now.boot) {
                tracking.upstream = Upstream::Idle;
            }
        }
        let is_due = |tracking: &Tracking| tracking.due_at() <= now.boot;
        if self.scopes.values().any(is_due) {
            for scope in self.clients.values().filter_map(Client::scope) {
                if let Some(tracking) = self.scopes.get_mut(scope) {
                    tracking.used_at = now.boot;
                }
            }
            self.scopes.retain(|_, tracking| !is_due(tracking));
        }
        if std::mem::take(&mut self.is_full) {
            let scopes = &self.scopes;
            self.objects.retain(|gvr, item| {
                Self::is_of_node(gvr)
                    || scopes.keys().any(|scope| scope.gvr == *gvr && scope.has(item))
            });
            self.trouble = Some("more objects than are kept: see docs/metaserver.md".to_owned());
        }
    }

    // ---- steps ----

    /// A device was edited on the node: it is another one for those that watch it.
    #[cfg(feature = "devices")]
    pub fn device_edited(&mut self, namespace: &str, name: &str) {
        let gvr = Gvr::new("devices.kubeedge.io", "v1beta1", "devices");
        let found = self.objects.get(&gvr, &(namespace.into(), name.into())).cloned();
        let Some(item) = found else { return };
        self.give(&gvr, &Change { position: 0, old: Some(item.clone()), new: Some(item) });
    }

    /// Answers what can be answered now. `local`: what is shown in an object's place.
    pub fn step(
        &mut self,
        now: Now,
        rng: &mut Rng,
        out: &mut Out,
        local: impl Fn(&Item) -> Option<Arc<Item>>,
    ) {
        if let Link::Silent(until) = self.link
            && until <= now.boot
        {
            self.link = Link::Up;
        }
        self.forget_scopes(now);
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.serve(now, id, rng);
        }
        self.note_used(now);
        for (id, mut reply) in self.replies.drain(..) {
            reply.replace(&local);
            out.push(Action::MetaServer(id, reply));
        }
        if self.trouble != self.logged {
            let line = self.trouble.as_deref().unwrap_or("the cloud answers");
            let severity = if self.trouble.is_some() { Severity::Warn } else { Severity::Info };
            out.push(Action::Log(severity, format!("metaserver: {line}")));
            self.logged.clone_from(&self.trouble);
        }
    }

    /// When to step again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        let of_client = |client: &Client| match client.state {
            State::Open { ends_at, bookmark_at } => {
                bookmark_at.map_or(ends_at, |at| at.min(ends_at))
            }
            State::New | State::Asked | State::Unanswered | State::Listing(_) => {
                serve::waits_until(client)
            }
        };
        let silent = match self.link {
            Link::Silent(until) => Some(until).filter(|_| !self.clients.is_empty()),
            Link::Down | Link::Up => None,
        };
        let refused = |tracking: &Tracking| match tracking.upstream {
            Upstream::Refused(_, until) => Some(until),
            _ => None,
        };
        let scopes = self.scopes.values();
        let clients = self.clients.values().map(of_client);
        let (grace, refused) = (scopes.clone().map(Tracking::due_at), scopes.filter_map(refused));
        let replies = (!self.replies.is_empty()).then_some(Instant(0));
        clients.chain(grace).chain(refused).chain(silent).chain(replies).min()
    }

    // ---- rows ----

    /// When rows are due; `None`: nothing is to be saved.
    pub fn save_at(&self) -> Option<Instant> {
        self.save_at
    }

    /// The changes of rows that are due. [`MetaServer::end_save`] follows if there are any.
    pub fn begin_save(&mut self, now: Now) -> Vec<RowChange> {
        let scopes = &self.scopes;
        let changes = self.objects.begin_save(|gvr, item| {
            let has = |scope: &Scope| scope.gvr == *gvr && scope.has(item);
            !Self::is_local(gvr) && scopes.iter().any(|(scope, it)| it.is_watched && has(scope))
        });
        self.saved_at = Some(now.boot);
        self.save_at = None;
        changes
    }

    /// The save under way has ended.
    pub fn end_save(&mut self, now: Now, is_saved: bool) {
        self.objects.end_save(is_saved);
        self.rows = self.objects.rows();
        if self.objects.has_dirty() {
            self.save_at.get_or_insert(self.next_save_at(now));
        }
    }

    // ---- for others ----

    pub fn overview(&self) -> MetaServerOverview {
        let is_watch = |client: &&Client| matches!(*client.call, Call::Watch(_));
        MetaServerOverview {
            clients: self.clients.len(),
            watches: self.clients.values().filter(is_watch).count(),
            upstream_watches: self.scopes.values().filter(|it| it.is_live()).count(),
            objects: self.objects.count(),
            object_bytes: self.objects.bytes(),
            rows: self.rows,
            requests: self.requests,
            from_store: self.from_store,
            refused: self.refused,
            for_pods: None,
            trouble: self.trouble.clone(),
        }
    }

    fn next_bookmark(now: Now) -> Instant {
        now.boot.plus_ms(METASERVER_BOOKMARK_MS)
    }
}
