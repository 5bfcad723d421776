//! What MetaServer asks the cloud for, and its answers.

use std::sync::Arc;

use super::objects::{Name, name_of};
use super::scope::{Refusal, Tracking, Upstream};
use super::{Link, MetaServer, Purpose, State};
use crate::agent::time::Now;
use crate::limits::{
    METASERVER_LIST_PAGE, METASERVER_LIST_PAGES_MAX, METASERVER_OBJECTS_MAX,
    METASERVER_REQUESTS_MAX, METASERVER_RETRY_MS,
};
use crate::model::application::{APPLICATION_ID, Application, Item, Options, Scope};
use crate::model::map::Set;
use crate::model::metaserver::{Answer, Call, ClientId, Failure, Page, Reply, Source};

/// What the cloud says of a watch that is to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It is not answered yet.
    Open,
    Taken,
    Refused(Box<str>),
    /// The cloud did not answer.
    Silent,
}

impl MetaServer {
    pub fn link_up(&mut self) {
        self.link = Link::Up;
        self.has_answered = false;
        self.scopes.values_mut().for_each(Tracking::reset);
    }

    pub fn link_down(&mut self) {
        self.link = Link::Down;
        self.scopes.values_mut().for_each(Tracking::reset);
    }

    /// The watches that the cloud is to serve; nothing else.
    pub fn watches(&self) -> impl Iterator<Item = &Arc<Scope>> {
        self.scopes.iter().filter(|(_, it)| it.wants_watch()).map(|(scope, _)| scope)
    }

    /// Takes what the cloud says of the watches. `has_news`: since the last call it has said
    /// something.
    pub fn registered(&mut self, now: Now, has_news: bool, state: impl Fn(&Scope) -> Registration) {
        for (scope, tracking) in &mut self.scopes {
            let is_asked = matches!(tracking.upstream, Upstream::Probed);
            if !tracking.wants_watch() || !has_news && !is_asked {
                continue;
            }
            match (state(scope), &tracking.upstream) {
                (Registration::Taken, Upstream::Probed) => {
                    tracking.upstream = Upstream::Registered(tracking.begun + 1);
                }
                (Registration::Refused(why), _) => {
                    let message = format!("the cloud does not watch {}: {why}", scope.gvr);
                    let failure = Failure::new(503, "ServiceUnavailable", message);
                    let until = now.boot.plus_ms(METASERVER_RETRY_MS);
                    tracking.upstream = Upstream::Refused(Refusal::Own(failure), until);
                }
                (Registration::Silent, _) => {
                    let until = now.boot.plus_ms(METASERVER_RETRY_MS);
                    tracking.upstream = Upstream::Refused(Refusal::Silence, until);
                }
                (Registration::Open | Registration::Taken, _) => {}
            }
        }
    }

    /// The next request to the cloud, and its number. `None`: there is none, or enough are open.
    pub fn next_request(&mut self) -> Option<(u64, Application)> {
        if self.link != Link::Up || self.asked.len() >= METASERVER_REQUESTS_MAX {
            return None;
        }
        let (purpose, request) = self.of_clients().or_else(|| self.of_scopes())?;
        self.last_request += 1;
        self.asked.insert(self.last_request, purpose);
        let id = format!("{APPLICATION_ID}{}", self.last_request).into();
        Some((self.last_request, Application { id, node: self.node.clone(), ..request }))
    }

    /// Whether a request would be made.
    pub fn has_request(&self) -> bool {
        if self.link != Link::Up || self.asked.len() >= METASERVER_REQUESTS_MAX {
            return false;
        }
        let of_client = |client: &super::Client| {
            let is_ours = match &*client.call {
                Call::Get { served, .. } => !Self::is_local(&served.gvr),
                Call::Write(_) => true,
                _ => false,
            };
            is_ours && client.state == State::New
        };
        self.clients.values().any(of_client)
            || self.scopes.iter().any(|(scope, tracking)| {
                if Self::is_local(&scope.gvr) {
                    return false;
                }
                let is_due = match tracking.upstream {
                    Upstream::Idle => tracking.is_watched,
                    Upstream::Registered(number) => {
                        tracking.listing.is_none() && tracking.begun < number
                    }
                    Upstream::Probing
                    | Upstream::Probed
                    | Upstream::Live
                    | Upstream::Refused(..) => false,
                };
                is_due || tracking.listing.as_ref().is_some_and(|it| !it.is_sent)
            })
    }

    fn of_clients(&mut self) -> Option<(Purpose, Application)> {
        for (id, client) in &mut self.clients {
            if client.state != State::New {
                continue;
            }
            let (purpose, request) = match &*client.call {
                Call::Get { served, namespace, name, .. } if !Self::is_local(&served.gvr) => {
                    let key = served.gvr.key(namespace, name);
                    (Purpose::Get(*id), request(key, "get", Options::None))
                }
                Call::Write(write) => {
                    let options = Options::Given(write.options.clone());
                    let request = request(write.key.to_string(), write.verb, options);
                    let (body, subresource) = (write.body.clone(), write.subresource.clone());
                    (Purpose::Write(*id), Application { body, subresource, ..request })
                }
                _ => continue,
            };
            client.state = State::Asked;
            return Some((purpose, request));
        }
        None
    }

    fn of_scopes(&mut self) -> Option<(Purpose, Application)> {
        for (scope, tracking) in &mut self.scopes {
            if Self::is_local(&scope.gvr) {
                continue;
            }
            if matches!(tracking.upstream, Upstream::Registered(number) if tracking.begun < number)
            {
                tracking.begin_list();
            }
            if matches!(tracking.upstream, Upstream::Idle) && tracking.is_watched {
                if !tracking.is_served {
                    tracking.upstream = Upstream::Probing;
                    let request = request_list(scope, 1, "");
                    return Some((Purpose::Probe(scope.clone()), request));
                }
                tracking.upstream = Upstream::Probed;
            }
            if let Some(listing) = tracking.listing.as_mut().filter(|it| !it.is_sent) {
                listing.is_sent = true;
                let request = request_list(scope, METASERVER_LIST_PAGE, &listing.next);
                return Some((Purpose::List(scope.clone()), request));
            }
        }
        None
    }

    /// The cloud has answered the request of this number.
    pub fn answered(&mut self, now: Now, number: u64, answer: Answer) {
        let Some(purpose) = self.asked.remove(&number) else { return };
        self.has_answered = true;
        if !self.is_full && self.link == Link::Up {
            self.trouble = None;
        }
        match purpose {
            Purpose::Get(id) => self.get_answered(now, id, answer),
            Purpose::Write(id) => self.write_answered(id, answer),
            Purpose::Probe(scope) => self.probe_answered(now, &scope, answer),
            Purpose::List(scope) => match answer {
                Answer::Page(page) => self.page_answered(now, &scope, page),
                other => self.list_failed(now, &scope, other),
            },
        }
    }

    /// No answer came in time, or none will come. `is_up`: the link is up.
    pub fn unanswered(&mut self, now: Now, number: u64, is_up: bool) {
        let Some(purpose) = self.asked.remove(&number) else { return };
        if is_up && !self.has_answered {
            self.link = Link::Silent(now.boot.plus_ms(METASERVER_RETRY_MS));
            self.trouble = Some(
                "no answer: the cloud has no dynamic controller (dynamicController.enable); \
                 requests are answered from the node's store"
                    .to_owned(),
            );
        }
        let nothing = || Answer::Failed("the cloud does not answer".into());
        match purpose {
            // The step answers them from the store.
            Purpose::Get(id) | Purpose::Write(id) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.state = State::Unanswered;
                }
            }
            Purpose::Probe(scope) => self.probe_answered(now, &scope, nothing()),
            Purpose::List(scope) => self.list_failed(now, &scope, nothing()),
        }
    }

    fn get_answered(&mut self, now: Now, id: ClientId, answer: Answer) {
        let Some(client) = self.clients.get(&id) else { return };
        let call = Arc::clone(&client.call);
        let Call::Get { served, form, namespace, name } = &*call else { return };
        match answer {
            Answer::Item(item) => {
                let name = name_of(&item);
                if self.take(now, &served.gvr, &item) {
                    self.objects.want(&served.gvr, &name);
                    self.save_at.get_or_insert(self.next_save_at(now));
                }
                self.reply(id, Reply::Object { item, form: *form, source: Source::Cloud });
            }
            Answer::Refused(code, status) => {
                if code == 404 {
                    let name = (namespace.clone(), name.clone());
                    if let Some(change) = self.objects.remove(&served.gvr, &name, "", 0) {
                        self.changed(now, &served.gvr, &change);
                    }
                }
                self.reply(id, Reply::Remote(code, status));
            }
            other => self.unclear(id, other),
        }
    }

    fn write_answered(&mut self, id: ClientId, answer: Answer) {
        let Some(client) = self.clients.get(&id) else { return };
        let Call::Write(write) = &*client.call else { return };
        let code = if write.verb == "create" { 201 } else { 200 };
        match answer {
            Answer::Item(item) => self.reply(id, Reply::Remote(code, item.text.clone())),
            Answer::Done(Some(text)) => self.reply(id, Reply::Remote(code, text)),
            Answer::Done(None) => self.reply(id, Reply::Remote(200, SUCCESS.into())),
            Answer::Refused(code, status) => self.reply(id, Reply::Remote(code, status)),
            other => self.unclear(id, other),
        }
    }

    fn unclear(&mut self, id: ClientId, answer: Answer) {
        let why = match answer {
            Answer::Failed(why) => why.into(),
            _ => "got an answer to another request".to_owned(),
        };
        self.fail(id, 500, "InternalError", &format!("the cloud cannot do it: {why}"));
    }

    fn probe_answered(&mut self, now: Now, scope: &Scope, answer: Answer) {
        let Some(tracking) = self.scopes.get_mut(scope) else { return };
        let until = now.boot.plus_ms(METASERVER_RETRY_MS);
        tracking.upstream = match answer {
            Answer::Page(_) => {
                tracking.is_served = true;
                Upstream::Probed
            }
            Answer::Refused(code, status) => {
                Upstream::Refused(Refusal::Remote(code, status), until)
            }
            // Watches go on with what the node has.
            Answer::Failed(_) | Answer::Item(_) | Answer::Done(_) => {
                Upstream::Refused(Refusal::Silence, until)
            }
        };
    }

    fn page_answered(&mut self, now: Now, scope: &Scope, page: Page) {
        let mut has_room = true;
        let mut names: Vec<Name> = Vec::new();
        for item in page.items.iter().filter(|item| scope.has(item)) {
            has_room &= self.take(now, &scope.gvr, item);
            names.push(name_of(item));
        }
        let Some(tracking) = self.scopes.get_mut(scope) else { return };
        let Some(listing) = &mut tracking.listing else { return };
        listing.seen.extend(names);
        listing.pages += 1;
        if !has_room || listing.pages > METASERVER_LIST_PAGES_MAX {
            let message = format!(
                "the list has more objects than are kept on this node, which are \
                 {METASERVER_OBJECTS_MAX} at most: select fewer"
            );
            let failure = Failure::new(500, "InternalError", message);
            self.list_refused(now, scope, &Refusal::Own(failure));
            // Its objects make room for others.
            let is_idle = |it: &Tracking| !it.is_watched && it.listing.is_none();
            if self.scopes.get(scope).is_some_and(is_idle) {
                self.scopes.remove(scope);
            }
            return;
        }
        if let Some(next) = page.next {
            (listing.next, listing.is_sent) = (next, false);
            return;
        }
        self.list_ended(now, scope, page.version);
    }

    /// The list is whole: what it does not have was deleted, or has left the selection.
    fn list_ended(&mut self, now: Now, scope: &Scope, version: u64) {
        let Some(tracking) = self.scopes.get_mut(scope) else { return };
        let Some(listing) = tracking.listing.take() else { return };
        tracking.ended = tracking.begun;
        tracking.is_served = true;
        tracking.version = tracking.version.max(version);
        if let Upstream::Registered(number) = tracking.upstream
            && tracking.ended >= number
        {
            tracking.upstream = Upstream::Live;
        }
        let is_gone =
            |item: &&Arc<Item>| item.version <= version && !listing.seen.contains(&name_of(item));
        let gone: Vec<_> = self.objects.of(scope).filter(is_gone).cloned().collect();
        for item in gone {
            let removed = if scope.is_by_name() {
                self.objects.remove(&scope.gvr, &name_of(&item), &item.uid, version)
            } else {
                self.objects.remove_left(&scope.gvr, &item, version)
            };
            if let Some(change) = removed {
                self.changed(now, &scope.gvr, &change);
            }
        }
        self.objects.listed(&scope.gvr, version);
        let mut ended = 0;
        if let Some(tracking) = self.scopes.get_mut(scope) {
            if !tracking.is_whole {
                // The store may have lacked objects that the process before gave out.
                (tracking.from, tracking.is_whole) = (Some(version), true);
            }
            ended = tracking.ended;
        }
        for (id, form) in self.waiting_for_list(scope, ended) {
            self.reply_list(id, scope, form, Source::Cloud);
        }
        self.list_again(scope);
    }

    /// Clients that came while the list was under way get another one.
    fn list_again(&mut self, scope: &Scope) {
        if !self.waiting_for_list(scope, u64::MAX).is_empty() {
            self.want_list(scope, u64::MAX);
        }
    }

    fn list_failed(&mut self, now: Now, scope: &Scope, answer: Answer) {
        if let Answer::Refused(code, status) = answer {
            // The page's token is too old: from the first page on.
            let tracking = self.scopes.get_mut(scope);
            let listing = tracking.and_then(|tracking| tracking.listing.as_mut());
            if let Some(listing) = listing.filter(|it| code == 410 && !it.next.is_empty()) {
                (listing.next, listing.is_sent) = (Box::default(), false);
                listing.seen = Set::new();
                return;
            }
            return self.list_refused(now, scope, &Refusal::Remote(code, status));
        }
        let Some(tracking) = self.scopes.get_mut(scope) else { return };
        (tracking.listing, tracking.ended) = (None, tracking.begun);
        let ended = tracking.ended;
        tracking.from.get_or_insert(self.objects.version(&scope.gvr));
        if let Upstream::Registered(_) = tracking.upstream {
            let until = now.boot.plus_ms(METASERVER_RETRY_MS);
            tracking.upstream = Upstream::Refused(Refusal::Silence, until);
        }
        for (id, form) in self.waiting_for_list(scope, ended) {
            self.reply_list(id, scope, form, Source::Store);
        }
        if self.link == Link::Up {
            self.list_again(scope);
        }
    }

    fn list_refused(&mut self, now: Now, scope: &Scope, refusal: &Refusal) {
        let Some(tracking) = self.scopes.get_mut(scope) else { return };
        (tracking.listing, tracking.ended) = (None, tracking.begun);
        let ended = tracking.ended;
        if tracking.is_watched {
            let until = now.boot.plus_ms(METASERVER_RETRY_MS);
            tracking.upstream = Upstream::Refused(refusal.clone(), until);
        }
        for (id, _) in self.waiting_for_list(scope, ended) {
            if let Some(reply) = refusal.clone().reply() {
                self.reply(id, reply);
            }
        }
        self.list_again(scope);
    }
}

/// As the API server answers a deletion.
const SUCCESS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

fn request(key: String, verb: &'static str, options: Options) -> Application {
    Application {
        node: Box::default(),
        id: Box::default(),
        key: key.into(),
        verb,
        options,
        body: None,
        subresource: Box::default(),
    }
}

fn request_list(scope: &Scope, limit: u32, page: &str) -> Application {
    let options = Options::List {
        labels: scope.label_selector().into(),
        fields: scope.field_selector().into(),
        limit,
        page: page.into(),
    };
    request(scope.gvr.key(&scope.namespace, ""), "list", options)
}
