//! One informer, as client-go's: it lists, watches from the version of the list, and goes on from
//! the version of the last event when the watch ends.

use std::sync::Arc;

use edged::model::application::{Item, Scope};
use edged::model::metaserver::{
    Beginning, Call, ClientId, Failure, Form, Recency, Reply, Source, Watch, WatchEvent,
};

use super::super::api::Api;
use super::controller::Controller;
use super::{Objects, Selection};
use crate::chance::Chance;
use crate::rule::judge;

#[derive(Debug)]
pub struct Informer {
    scope: Scope,
    /// It gets its first objects by a watch (`sendInitialEvents`).
    streams: bool,
    objects: Objects,
    /// From which it watches; 0: it has to list first.
    version: u64,
    /// Its objects are those of this life of the agent.
    is_of_life: bool,
    open: Option<Open>,
}

/// What it waits for, or watches.
#[derive(Debug)]
struct Open {
    client: ClientId,
    since: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// What the cloud had when it asked, if the answer must not be older.
    List(Option<Objects>),
    /// Whether the watch has begun.
    Watch(bool),
}

impl Informer {
    pub fn new(scope: Scope, streams: bool) -> Self {
        let (objects, version) = (Objects::new(), 0);
        Self { scope, streams, objects, version, is_of_life: false, open: None }
    }

    pub fn selection(&self) -> Selection {
        Selection::of(&self.scope)
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    pub fn is_of_ghosts(&self) -> bool {
        &*self.scope.gvr.resource == "ghosts"
    }

    /// The request or watch that is open.
    pub fn open(&self) -> Option<ClientId> {
        self.open.as_ref().map(|open| open.client)
    }

    pub fn is_watching(&self) -> bool {
        matches!(self.open, Some(Open { what: What::Watch(true), .. }))
    }

    /// Since when it has no answer.
    pub fn waits_since(&self) -> Option<u64> {
        let open = self.open.as_ref().filter(|open| !matches!(open.what, What::Watch(true)));
        open.map(|open| open.since)
    }

    /// The connection is over.
    pub fn agent_ended(&mut self) {
        (self.open, self.is_of_life) = (None, false);
    }

    /// It gives up its request.
    pub fn leave(&mut self) -> ClientId {
        self.open.take().expect("its caller knows that it has one").client
    }

    /// The program begins anew.
    pub fn restart(&mut self) {
        self.objects.clear();
        self.version = 0;
    }

    /// What it asks for next.
    pub fn ask(&mut self, now: u64, client: ClientId, api: &Api, chance: &mut Chance) -> Call {
        let scope = self.scope.clone();
        let form = Form::Whole;
        if self.version == 0 && !self.streams {
            let is_latest = chance.percent(50);
            let recency = if is_latest { Recency::Latest } else { Recency::Any };
            let before = is_latest.then(|| self.selection().truth(api));
            self.open = Some(Open { client, since: now, what: What::List(before) });
            return Call::List { scope, recency, form };
        }
        self.open = Some(Open { client, since: now, what: What::Watch(false) });
        Call::Watch(Watch {
            scope,
            version: self.version,
            timeout_s: chance.percent(50).then(|| chance.between(1, 900) as u32),
            bookmarks: chance.percent(70),
            initial_events: self.version == 0,
            form,
        })
    }

    /// It gets an answer or an event. Returns what that was.
    pub fn take(&mut self, now: u64, reply: Reply, api: &Api, of: &Controller) -> &'static str {
        match reply {
            Reply::List { items, version, source, .. } => {
                self.listed(now, &items, source, api, of);
                self.version = version;
                self.open = None;
                "lists of informers"
            }
            Reply::Watching(beginning) => {
                self.begins(&beginning, of);
                "watches of informers"
            }
            Reply::Event(event) => {
                self.event(event, of);
                "events of informers"
            }
            Reply::End => {
                self.open = None;
                "watches ended"
            }
            Reply::Failure(Failure { code: 410, .. }) => {
                self.restart();
                self.open = None;
                "watches too old"
            }
            Reply::Failure(_) | Reply::Remote(..) => {
                self.open = None;
                "refusals of informers"
            }
            Reply::Object { .. } | Reply::Done | Reply::Stream(_) | Reply::Messages(_) => {
                panic!("an informer gets {reply:?}")
            }
        }
    }

    fn listed(
        &mut self,
        now: u64,
        items: &[Arc<Item>],
        source: Source,
        api: &Api,
        of: &Controller,
    ) {
        let open = self.open.as_ref().expect("its caller has looked");
        let new: Objects = items.iter().map(|item| named(item)).collect();
        for item in items {
            self.is_selected(item, of);
        }
        if let (Source::Cloud, What::List(Some(before))) = (source, &open.what) {
            let truth = self.selection().truth(api);
            for (name, object) in before.iter().filter(|(name, it)| truth.get(*name) == Some(*it)) {
                judge!(
                    new.get(name) == Some(object),
                    "[fresh list] {name:?} is {object:?} all the time, got {:?}",
                    new.get(name)
                );
            }
            for (name, (uid, _)) in &new {
                judge!(
                    !of.was_removed(uid, open.since),
                    "[fresh list] {name:?} {uid} was deleted before {} ms, now {now}",
                    open.since
                );
            }
        }
        if source == Source::Cloud || self.is_of_life {
            for (name, (uid, version)) in &self.objects {
                let later = new.get(name).filter(|(other, _)| other == uid);
                judge!(
                    later.is_none_or(|(_, later)| later >= version),
                    "[informer never back] {name:?} was at {version}, and the list has {later:?}"
                );
            }
        }
        (self.objects, self.is_of_life) = (new, true);
    }

    fn is_selected(&self, item: &Item, of: &Controller) {
        of.judge_text(item);
        judge!(self.scope.has(item), "[selected only] got {} for {:?}", item.text, self.scope);
    }

    fn begins(&mut self, beginning: &Beginning, of: &Controller) {
        let open = self.open.as_mut().expect("its caller has looked");
        judge!(
            matches!(open.what, What::Watch(false)),
            "[one change, one event] a watch begins in {open:?}"
        );
        open.what = What::Watch(true);
        if self.version == 0 {
            self.objects.clear();
            self.is_of_life = true;
            judge!(
                beginning.bookmark.is_some() && beginning.gone.is_empty(),
                "[one change, one event] a stream of all objects begins with {beginning:?}"
            );
        }
        for item in &beginning.gone {
            let (name, (uid, _)) = named(item);
            if self.objects.get(&name).is_some_and(|(other, _)| *other == uid) {
                self.objects.remove(&name);
            }
            self.version = item.version;
        }
        for item in &beginning.items {
            self.is_selected(item, of);
            let (name, (uid, version)) = named(item);
            let before = self.objects.insert(name, (uid.clone(), version));
            let before = before.filter(|(other, _)| self.is_of_life && *other == uid);
            judge!(
                before.as_ref().is_none_or(|(_, before)| *before <= version),
                "[informer never back] {} after {before:?}",
                item.text
            );
            self.version = self.version.max(version);
        }
        if let Some((_, version)) = &beginning.bookmark {
            self.version = *version;
        }
    }

    fn event(&mut self, event: WatchEvent, of: &Controller) {
        judge!(self.is_watching(), "[one change, one event] {event:?} before the watch has begun");
        let life = self.is_of_life;
        match event {
            WatchEvent::Added(_, item) => {
                self.is_selected(&item, of);
                let (name, object) = named(&item);
                self.version = object.1;
                let before = self.objects.insert(name, object);
                judge!(
                    before.is_none() || !life,
                    "[one change, one event] ADDED {}, which was {before:?}",
                    item.text
                );
            }
            WatchEvent::Modified(_, item) => {
                self.is_selected(&item, of);
                let (name, (uid, version)) = named(&item);
                self.version = version;
                let before = self.objects.insert(name, (uid.clone(), version));
                let is_older =
                    |(other, before): &(Box<str>, u64)| *other == uid && *before < version;
                judge!(
                    before.as_ref().is_some_and(is_older) || !life,
                    "[one change, one event] MODIFIED {}, which was {before:?}",
                    item.text
                );
            }
            WatchEvent::Deleted(_, item) => {
                let (name, (uid, _)) = named(&item);
                self.version = item.version;
                let before = self.objects.remove(&name);
                judge!(
                    before.as_ref().is_some_and(|(other, _)| *other == uid) || !life,
                    "[one change, one event] DELETED {}, which was {before:?}",
                    item.text
                );
            }
            WatchEvent::Bookmark(_, version, _) => self.version = version,
        }
    }
}

type Named = ((Box<str>, Box<str>), (Box<str>, u64));

fn named(item: &Item) -> Named {
    ((item.namespace.clone(), item.name.clone()), (item.uid.clone(), item.version))
}
