//! Answers to clients: at once where the node knows them, else when the cloud has answered, or does
//! not answer in time.

use std::sync::Arc;

use super::objects::Change;
use super::scope::Upstream;
use super::{Client, Link, MetaServer, State};
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::{METASERVER_ANSWER_MS, METASERVER_WATCH_MS};
use crate::model::application::{Gvr, Item, Scope};
use crate::model::metaserver::{
    Beginning, Call, ClientId, Form, Recency, Reply, Served, Source, Watch, WatchEvent,
};

/// The events of a change for a watch: none, one, or two where another object has taken the name.
pub(super) fn events(watch: &Watch, change: &Change) -> [Option<Reply>; 2] {
    let is_in = |item: &&Arc<Item>| watch.scope.has(item);
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    let (was, is) = (old.filter(is_in), new.filter(is_in));
    let form = watch.form;
    let event = |event| Some(Reply::Event(event));
    let is_same = was.is_some_and(|was| new.is_some_and(|new| was.uid == new.uid));
    match (was, is) {
        (None, None) => [None, None],
        (None, Some(is)) => [event(WatchEvent::Added(form, is.clone())), None],
        (Some(_), Some(is)) if is_same => [event(WatchEvent::Modified(form, is.clone())), None],
        (Some(was), Some(is)) => [
            event(WatchEvent::Deleted(form, was.clone())),
            event(WatchEvent::Added(form, is.clone())),
        ],
        // It has left the selection: the client gets it as it is now.
        (Some(was), None) => {
            let last = new.filter(|_| is_same).unwrap_or(was);
            [event(WatchEvent::Deleted(form, last.clone())), None]
        }
    }
}

/// When a request is answered from the store at the latest.
pub(super) fn waits_until(client: &Client) -> Instant {
    match client.state {
        State::Unanswered => Instant(0),
        _ => client.began.plus_ms(METASERVER_ANSWER_MS),
    }
}

impl MetaServer {
    fn served(&self, gvr: &Gvr) -> Option<Arc<Served>> {
        self.settings.find(gvr).cloned()
    }

    /// Goes on with a request.
    pub(super) fn serve(&mut self, now: Now, id: ClientId, rng: &mut Rng) {
        let Some(client) = self.clients.get(&id) else { return };
        let is_late = waits_until(client) <= now.boot;
        let state = client.state;
        let call = Arc::clone(&client.call);
        match &*call {
            Call::Get { served, namespace, name, form } => {
                let is_local = Self::is_local(&served.gvr);
                if is_local || self.link != Link::Up || is_late {
                    let source = if is_local { self.pod_source() } else { Source::Store };
                    let name = (namespace.clone(), name.clone());
                    self.reply_object(id, served, &name, *form, source);
                }
            }
            Call::List { scope, recency, form } => {
                self.serve_list(now, id, scope, *recency, *form, (state, is_late));
            }
            Call::Watch(watch) => match state {
                State::Open { ends_at, bookmark_at } => {
                    self.go_on(now, id, watch, ends_at, bookmark_at);
                }
                State::New | State::Asked | State::Unanswered | State::Listing(_) => {
                    self.begin_watch(now, id, watch, is_late, rng);
                }
            },
            Call::Write(_) if self.link == Link::Up && !is_late => {}
            Call::Write(_) => {
                let message = "the cloud does not answer: objects can be changed only there";
                self.fail(id, 503, "ServiceUnavailable", message);
            }
            // The rest of the agent answers them.
            Call::Release(_) | Call::ConfirmUpgrade if is_late => {
                let message = "the store does not take it: see the log of the agent";
                self.fail(id, 503, "ServiceUnavailable", message);
            }
            Call::Release(_) | Call::ConfirmUpgrade => {}
            #[cfg(feature = "devices")]
            Call::EditDevice(_) if is_late => {
                let message = "the store does not take it: see the log of the agent";
                self.fail(id, 503, "ServiceUnavailable", message);
            }
            #[cfg(feature = "devices")]
            Call::EditDevice(_) => {}
            // It was answered as it came.
            #[cfg(feature = "streams")]
            Call::Stream(_) => {}
            Call::Restart { .. } => {}
        }
    }

    /// The cloud sends this node's pods without being asked, as long as there is a link.
    fn pod_source(&self) -> Source {
        if self.link == Link::Down { Source::Store } else { Source::Cloud }
    }

    /// Answers with the object that the node has.
    fn reply_object(
        &mut self,
        id: ClientId,
        served: &Arc<Served>,
        name: &(Box<str>, Box<str>),
        form: Form,
        source: Source,
    ) {
        if let Some(item) = self.objects.get(&served.gvr, name).cloned() {
            self.from_store += u64::from(source == Source::Store);
            return self.reply(id, Reply::Object { item, form, source });
        }
        let (resource, name) = (&served.gvr.resource, &name.1);
        let scope = Scope::all(served.gvr.clone());
        let is_whole = self.scopes.get(&scope).is_some_and(|it| it.is_whole);
        if source == Source::Cloud || is_whole || Self::is_local(&served.gvr) {
            let message = format!("{resource} \"{name}\" not found");
            return self.fail(id, 404, "NotFound", &message);
        }
        let message =
            format!("{resource} \"{name}\": the cloud does not answer, and the node has no copy");
        self.fail(id, 503, "ServiceUnavailable", &message);
    }

    fn serve_list(
        &mut self,
        now: Now,
        id: ClientId,
        scope: &Scope,
        recency: Recency,
        form: Form,
        (state, is_late): (State, bool),
    ) {
        if Self::is_local(&scope.gvr) {
            return self.reply_list(id, scope, form, self.pod_source());
        }
        let (link, version) = (self.link, self.objects.version(&scope.gvr));
        let Some(tracking) = self.track(now, scope) else {
            let message = "too many selections are listed and watched: try again";
            return self.fail(id, 429, "TooManyRequests", message);
        };
        if tracking.is_live() && recency == Recency::Any {
            return self.reply_list(id, scope, form, Source::Cloud);
        }
        if link != Link::Up || is_late {
            // What changes after this list is known.
            tracking.from.get_or_insert(version);
            tracking.version = tracking.version.max(version);
            return self.reply_list(id, scope, form, Source::Store);
        }
        match state {
            State::New => {
                // A list that is under way may have begun before the client's last write.
                let number = tracking.begun + 1;
                if let Some(client) = self.clients.get_mut(&id) {
                    client.state = State::Listing(number);
                }
                self.want_list(scope, number);
            }
            State::Asked | State::Unanswered | State::Listing(_) | State::Open { .. } => {}
        }
    }

    /// Begins the list of this number, if the one before has ended.
    pub(super) fn want_list(&mut self, scope: &Scope, number: u64) {
        if let Some(tracking) = self.scopes.get_mut(scope).filter(|it| it.begun < number) {
            tracking.begin_list();
        }
    }

    /// Answers with the objects that the node has.
    pub(super) fn reply_list(&mut self, id: ClientId, scope: &Scope, form: Form, source: Source) {
        let Some(served) = self.served(&scope.gvr) else { return };
        self.from_store += u64::from(source == Source::Store);
        let items = self.objects.of(scope).cloned().collect();
        let version = self.version_of(scope);
        self.reply(id, Reply::List { served, items, version, form, source });
    }

    /// The version from which a watch goes on after a list.
    fn version_of(&self, scope: &Scope) -> u64 {
        let of_scope = self.scopes.get(scope).map_or(0, |tracking| tracking.version);
        let of_gvr = self.objects.version(&scope.gvr);
        if of_scope > 0 { of_scope } else { of_gvr.max(1) }
    }

    // ---- watches ----

    fn begin_watch(&mut self, now: Now, id: ClientId, watch: &Watch, is_late: bool, rng: &mut Rng) {
        let (scope, is_local) = (&watch.scope, Self::is_local(&watch.scope.gvr));
        let (link, version) = (self.link, self.objects.version(&scope.gvr));
        let Some(tracking) = self.track(now, scope) else {
            let message = "too many selections are listed and watched: try again";
            return self.fail(id, 429, "TooManyRequests", message);
        };
        let is_new = !tracking.is_watched;
        tracking.is_watched = true;
        let mut is_known = is_local || tracking.is_live() || link != Link::Up || is_late;
        if let Upstream::Refused(refusal, _) = tracking.upstream.clone() {
            match refusal.reply() {
                Some(reply) => return self.reply(id, reply),
                None => is_known = true,
            }
        }
        // If its client has a version, it was given that by the process before, or long ago.
        let is_earlier = !is_local && tracking.from.is_none();
        if is_known {
            tracking.from.get_or_insert(if is_local { 0 } else { version });
            tracking.version = tracking.version.max(version);
        }
        if is_new {
            self.objects.mark_dirty(scope);
        }
        if is_known {
            self.open_watch(now, id, watch, is_earlier, rng);
        }
    }

    /// `is_earlier`: nothing was given out of the scope yet.
    fn open_watch(
        &mut self,
        now: Now,
        id: ClientId,
        watch: &Watch,
        is_earlier: bool,
        rng: &mut Rng,
    ) {
        let (scope, known) = (&watch.scope, self.version_of(&watch.scope));
        let Some(tracking) = self.scopes.get(scope) else { return };
        let from = tracking.from.unwrap_or(0);
        let is_whole = watch.version == 0 || watch.initial_events;
        let changes = if is_whole {
            let all = self.objects.of(scope).cloned();
            Some(all.map(|item| Change { position: 0, old: None, new: Some(item) }).collect())
        } else if is_earlier || watch.version < from || watch.version > known {
            // A later one than is known was given out by the process before.
            None
        } else {
            self.objects.since(scope, watch.version)
        };
        let Some(changes) = changes else {
            let version = watch.version;
            let message = format!(
                "too old resource version: got {version}, expected one of those that this node \
                 knows, {from} to {known}"
            );
            return self.fail(id, 410, "Expired", &message);
        };
        let (least, most) = METASERVER_WATCH_MS;
        let lasts_ms = watch
            .timeout_s
            .map_or_else(|| least + rng.below(most - least), |seconds| u64::from(seconds) * 1_000);
        let (mut gone, mut items) = (Vec::new(), Vec::new());
        for change in changes {
            items.extend(change.new);
            gone.extend(change.old);
        }
        let served = self.served(&scope.gvr).filter(|_| watch.initial_events);
        let bookmark = served.map(|served| (served, self.version_of(scope)));
        let beginning = Beginning { form: watch.form, gone, items, bookmark };
        self.replies.push((id, Reply::Watching(beginning)));
        let bookmark_at = watch.bookmarks.then(|| Self::next_bookmark(now));
        let ends_at = now.boot.plus_ms(lasts_ms);
        if let Some(client) = self.clients.get_mut(&id) {
            client.state = State::Open { ends_at, bookmark_at };
        }
    }

    /// Ends a watch whose time is over, and sends the bookmark that is due.
    fn go_on(
        &mut self,
        now: Now,
        id: ClientId,
        watch: &Watch,
        ends_at: Instant,
        bookmark_at: Option<Instant>,
    ) {
        if ends_at <= now.boot {
            return self.reply(id, Reply::End);
        }
        if bookmark_at.is_none_or(|at| at > now.boot) {
            return;
        }
        if let Some(served) = self.served(&watch.scope.gvr) {
            let bookmark = WatchEvent::Bookmark(served, self.version_of(&watch.scope), false);
            self.replies.push((id, Reply::Event(bookmark)));
        }
        let bookmark_at = Some(Self::next_bookmark(now));
        if let Some(client) = self.clients.get_mut(&id) {
            client.state = State::Open { ends_at, bookmark_at };
        }
    }

    /// The clients that wait for a list of the scope up to this number.
    pub(super) fn waiting_for_list(&self, scope: &Scope, number: u64) -> Vec<(ClientId, Form)> {
        let waits = |(id, client): (&ClientId, &Client)| match (&*client.call, client.state) {
            (Call::List { scope: of, form, .. }, State::Listing(wanted))
                if of == scope && wanted <= number =>
            {
                Some((*id, *form))
            }
            _ => None,
        };
        self.clients.iter().filter_map(waits).collect()
    }
}
