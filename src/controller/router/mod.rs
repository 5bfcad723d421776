//! The router for custom messages, as CloudCore's `router` (spec `servicebus-router-tasks`, part
//! B): HTTP calls of clients in the cloud to services and MQTT topics of nodes, and what nodes
//! publish or send to REST endpoints in the cloud.
//!
//! ```text
//!  Rule, RuleEndpoint ─watch─▶ rules ─▶ claims ─▶ requests ─message─▶ node ─answer─▶ client
//!                                ▲ │       └────▶ rows ─subscribe, start─▶ node
//!                                │ └─ status      uploads ◀─upload─ node
//!                                └── counts ◀────────┴─Post─▶ REST endpoint
//! ```
//!
//! - `rule`: what a rule asks for; `pattern`: its path; `claims`: which rule has which source.
//! - `rows`: what each node was told of rules, so that it can be undone.
//! - `requests`: clients that wait for nodes. `uploads`: what waits for REST endpoints.
//! - `status`: what rules have delivered.
//!
//! Intended behaviour: a changed rule is another rule at once; one whose endpoint is missing waits
//! for it; one that is not valid, or has the source of an older one, says so in its status. Nothing
//! is repeated and nothing is stored in the cloud: who needs more is not served by KubeEdge's
//! messages, which nobody acknowledges.
//!
//! If we crash here: lists bring back the rules, and the store the rows. Clients see the end of
//! their connections; uploads that waited are lost.

mod claims;
mod pattern;
mod requests;
mod rows;
mod rule;
mod status;
mod uploads;

use std::collections::{BTreeMap, BTreeSet};

use super::Controller;
use super::calls::{OwnPart, RuleCall};
use super::event::{Action, Severity};
use super::key::Key;
use super::object::Object;
use super::overview::RuleOverview;
use super::time::{Instant, Now};
use crate::limits::{ROUTER_NODE_RULES_MAX, ROUTER_RULES_MAX, UNREAD_LOGGED_MAX};
use crate::model::api::{CallError, CallResult, Kind};
use crate::model::error::{Input, Peer};
use crate::model::router::RouterEvent;
use claims::{Claim, Claims};
use requests::Requests;
use rows::Rows;
use rule::{Endpoint, Route, Rule, Source, Target};
use status::{Statuses, Tally};
use uploads::Uploads;

/// All rules, and what is on its way by them.
#[derive(Default)]
pub(super) struct Router {
    endpoints: BTreeMap<Key, (Endpoint, u32)>,
    rules: BTreeMap<Key, Entry>,
    /// The rules that name an endpoint.
    users: BTreeMap<Key, BTreeSet<Key>>,
    claims: Claims,
    rows: Rows,
    requests: Requests,
    uploads: Uploads,
    statuses: Statuses,
    /// Which kinds were listed.
    listed: BTreeSet<Kind>,
    is_full_logged: bool,
    /// For the log.
    lines: Vec<String>,
}

struct Entry {
    rule: Rule,
    /// The list in which it was seen last.
    round: u32,
    /// What it asks for, or why it is not in force.
    route: Result<Route, Input>,
    tally: Tally,
}

impl Router {
    /// Whether all rules are known.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.len() == Kind::RULES.len()
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Requests and uploads that wait.
    pub(super) fn waiting(&self) -> usize {
        self.requests.len() + self.uploads.len()
    }

    /// Where the messages of a rule in force go.
    fn target(&self, rule: &Key) -> Option<&Target> {
        Some(&self.rules.get(rule)?.route.as_ref().ok()?.target)
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let all = [self.rows.wake_at(), self.requests.wake_at(), self.statuses.wake_at()];
        all.into_iter().flatten().min()
    }

    /// The key of an endpoint in the namespace of a rule.
    fn endpoint_of(rule: &Key, name: &str) -> Key {
        Key::new(Kind::RuleEndpoint, &rule.namespace, name)
    }

    fn endpoints_of(key: &Key, rule: &Rule) -> Vec<Key> {
        let spec = rule.spec.as_ref().ok();
        let names = spec.into_iter().flat_map(|spec| [&spec.source, &spec.target]);
        names.map(|name| Self::endpoint_of(key, name)).collect()
    }

    /// A rule was read. It replaces what is known, unless that is newer.
    fn put(&mut self, now: Instant, key: &Key, rule: Rule, round: u32) -> Result<(), Full> {
        let (mut tally, is_full) = (Tally::default(), self.rules.len() >= ROUTER_RULES_MAX);
        match self.rules.get_mut(key) {
            Some(entry) if entry.rule.uid == rule.uid => {
                entry.round = entry.round.max(round);
                if entry.rule.version >= rule.version {
                    return Ok(());
                }
                entry.tally.read(&rule.status);
                let is_same = entry.rule.spec == rule.spec;
                if is_same {
                    (entry.rule.version, entry.rule.status) = (rule.version, rule.status);
                    entry.rule.text = rule.text;
                    self.statuses.mark(now, key, &mut entry.tally);
                    return Ok(());
                }
                tally = std::mem::take(&mut entry.tally);
                self.statuses.remove(key, &mut tally);
                self.remove(now, key);
            }
            Some(_) => self.remove(now, key),
            None if is_full => return Err(Full),
            None => {}
        }
        for endpoint in Self::endpoints_of(key, &rule) {
            self.users.entry(endpoint).or_default().insert(key.clone());
        }
        let route = Err(Input::other("it was not looked at yet"));
        self.rules.insert(key.clone(), Entry { rule, round, route, tally });
        self.settle(now, key);
        Ok(())
    }

    /// A rule does not exist any more.
    fn remove(&mut self, now: Instant, key: &Key) {
        let Some(mut entry) = self.rules.remove(key) else { return };
        for endpoint in Self::endpoints_of(key, &entry.rule) {
            if let Some(users) = self.users.get_mut(&endpoint) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&endpoint);
                }
            }
        }
        self.statuses.remove(key, &mut entry.tally);
        self.uploads.forget(key);
        if let Ok(route) = &entry.route {
            let claim = Claim { created: entry.rule.created.clone(), key: key.clone() };
            self.claims.remove(&route.source, &claim);
            self.source_changed(now, &route.source);
        }
    }

    /// A rule or one of its endpoints is new, or has changed.
    fn settle(&mut self, now: Instant, key: &Key) {
        let Some(entry) = self.rules.get(key) else { return };
        let find = |name: &str| {
            let found = self.endpoints.get(&Self::endpoint_of(key, name));
            found.map(|(endpoint, _)| endpoint)
        };
        let mut route = entry.rule.route(&key.namespace, &find);
        let old = entry.route.as_ref().ok().map(|route| route.source.clone());
        if let Ok(Route { source: Source::Node { node, rule }, .. }) = &route
            && self.claims.count_of_node(node) >= ROUTER_NODE_RULES_MAX
            && !self.claims.has(node, rule)
        {
            let expected = format!("{ROUTER_NODE_RULES_MAX} at most: delete some, and this one");
            let got = format!("more rules with node {node} as their source");
            route = Err(Input::new(got, expected));
        }
        let new = route.as_ref().ok().map(|route| route.source.clone());
        let claim = Claim { created: entry.rule.created.clone(), key: key.clone() };
        if old != new {
            if let Some(old) = &old {
                self.claims.remove(old, &claim);
            }
            if let Some(new) = &new {
                self.claims.add(new, claim);
            }
        }
        if route.is_err() {
            self.uploads.forget(key);
        }
        self.rules.get_mut(key).expect("just seen").route = route;
        if old != new {
            for source in old.iter().chain(&new) {
                self.source_changed(now, source);
            }
        }
        self.report(now, key);
    }

    /// The rules of a source have changed: another may be in force.
    fn source_changed(&mut self, now: Instant, source: &Source) {
        if let Source::Node { node, rule } = source {
            self.rows.mark(node, rule);
        }
        // The one in force, and the next one, which may have been.
        for key in self.claims.of(source).take(2).cloned().collect::<Vec<_>>() {
            self.report(now, &key);
        }
    }

    /// Notes in the status of a rule whether it is in force.
    fn report(&mut self, now: Instant, key: &Key) {
        // Until then an endpoint or an older rule may just not be known.
        if !self.is_listed() {
            return;
        }
        let Some(entry) = self.rules.get(key) else { return };
        let trouble = match &entry.route {
            Err(why) => Some(Box::<str>::from(why.to_string())),
            Ok(route) => {
                let first = self.claims.of(&route.source).next();
                let other = first.filter(|first| *first != key);
                other.map(|other| {
                    Box::<str>::from(format!("rule {} has the same source", other.name))
                })
            }
        };
        let entry = self.rules.get_mut(key).expect("just seen");
        if let Some(why) = trouble.as_ref().filter(|_| entry.tally.trouble != trouble)
            && self.lines.len() < UNREAD_LOGGED_MAX
        {
            self.lines.push(format!("{key}: not in force: {why}"));
        }
        entry.tally.trouble = trouble;
        self.statuses.mark(now, key, &mut entry.tally);
    }

    /// All rules of a kind were listed: what is not in this list is gone.
    fn sweep(&mut self, now: Instant, kind: Kind, round: u32, version: u64) {
        if kind == Kind::RuleEndpoint {
            let gone = |it: &(Endpoint, u32)| it.1 != round && it.0.version <= version;
            let gone: Vec<Key> = self
                .endpoints
                .iter()
                .filter(|(_, it)| gone(it))
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                self.remove_endpoint(now, &key);
            }
        } else {
            let gone = |it: &Entry| it.round != round && it.rule.version <= version;
            let all = self.rules.iter();
            let gone: Vec<Key> =
                all.filter(|(_, it)| gone(it)).map(|(key, _)| key.clone()).collect();
            for key in gone {
                self.remove(now, &key);
            }
        }
        if self.listed.insert(kind) && self.is_listed() {
            for key in self.rules.keys().cloned().collect::<Vec<_>>() {
                self.report(now, &key);
            }
            let claims = &self.claims;
            self.rows.mark_gone(|node, rule| claims.has(node, rule));
        }
    }

    fn put_endpoint(&mut self, now: Instant, key: &Key, endpoint: Endpoint, round: u32) {
        let known = self.endpoints.get_mut(key);
        if let Some((known, at)) = known
            && known.version >= endpoint.version
        {
            *at = (*at).max(round);
            return;
        }
        self.endpoints.insert(key.clone(), (endpoint, round));
        self.settle_users(now, key);
    }

    fn remove_endpoint(&mut self, now: Instant, key: &Key) {
        if self.endpoints.remove(key).is_some() {
            self.settle_users(now, key);
        }
    }

    fn settle_users(&mut self, now: Instant, endpoint: &Key) {
        for rule in self.users.get(endpoint).cloned().unwrap_or_default() {
            self.settle(now, &rule);
        }
    }
}

/// There are [`ROUTER_RULES_MAX`] rules.
struct Full;

impl Controller {
    /// A rule or an endpoint was listed, or has changed.
    pub(super) fn rule_read(&mut self, now: Now, object: &Object, key: &Key) -> Result<(), Peer> {
        let router = &mut self.router;
        let fits = if key.kind == Kind::RuleEndpoint {
            let is_known = router.endpoints.contains_key(key);
            let fits = is_known || router.endpoints.len() < ROUTER_RULES_MAX;
            if fits {
                router.put_endpoint(now.boot, key, Endpoint::read(object), object.round);
            }
            fits
        } else {
            router.put(now.boot, key, Rule::read(object)?, object.round).is_ok()
        };
        if !fits && !std::mem::replace(&mut self.router.is_full_logged, true) {
            let line = format!(
                "{key}: waits until this controller starts anew: there are {ROUTER_RULES_MAX} \
                 rules, or endpoints of rules"
            );
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        Ok(())
    }

    /// A list has an object that cannot be read: it stays as it was.
    pub(super) fn rule_unread(&mut self, key: &Key, round: u32) {
        if let Some(entry) = self.router.rules.get_mut(key) {
            entry.round = round;
        }
        if let Some((_, at)) = self.router.endpoints.get_mut(key) {
            *at = round;
        }
    }

    /// A rule or an endpoint was deleted.
    pub(super) fn rule_deleted(&mut self, now: Now, key: &Key) {
        if key.kind == Kind::RuleEndpoint {
            self.router.remove_endpoint(now.boot, key);
        } else {
            self.router.remove(now.boot, key);
        }
    }

    /// All objects of a kind were listed.
    pub(super) fn rules_listed(&mut self, now: Now, kind: Kind, round: u32, version: u64) {
        self.router.sweep(now.boot, kind, round, version);
    }

    /// A message was delivered by a rule, or was not, and why.
    fn count_of_rule(&mut self, now: Now, key: &Key, failure: Option<&str>) {
        if let Some(entry) = self.router.rules.get_mut(key) {
            entry.tally.count(failure);
            self.router.statuses.mark(now.boot, key, &mut entry.tally);
        }
    }

    pub(super) fn router_event(&mut self, now: Now, event: RouterEvent) {
        match event {
            RouterEvent::Loaded(rows) => self.router.rows.load(rows),
            RouterEvent::Request(id, request) => self.rest_request(now, id, *request),
            RouterEvent::Gone(id) => self.rest_gone(id),
            RouterEvent::Posted(id, result) => self.posted(now, id, result),
        }
    }

    /// Does what is due for the router.
    pub(super) fn run_router(&mut self, now: Now) {
        self.end_late_requests(now);
        self.run_uploads(now);
        self.run_rows(now);
        for line in std::mem::take(&mut self.router.lines) {
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        if self.is_ready() {
            let router = &mut self.router;
            while let Some((id, call)) = router.statuses.next(now.boot, &mut router.rules) {
                let mut context = super::downstream::NodeContext {
                    now,
                    rng: &mut self.rng,
                    counters: &mut self.counters,
                    out: &mut self.pending,
                };
                self.calls.call_own(OwnPart::Rule(id), Box::new(call), &mut context);
            }
        }
    }

    /// The API server has answered a write of a rule's status.
    pub(super) fn rule_answered(&mut self, now: Now, id: RuleCall, result: &CallResult) {
        let key = self.router.statuses.end(id);
        let Some(entry) = self.router.rules.get_mut(&key) else { return };
        let read = result.as_ref().ok().and_then(|raw| Object::read(key.kind, raw).ok());
        let rule = read.and_then(|read| Rule::read(&read.object).ok());
        let status = rule.as_ref().map(|rule| &rule.status);
        let answer = result.as_ref().map(|_| status);
        let statuses = &mut self.router.statuses;
        statuses.answered(now.boot, id, &key, &mut entry.tally, answer);
        if let Some(rule) = rule {
            self.counters.router_writes += 1;
            statuses.is_refusal_logged = false;
            // It exists, or the watch says that it is gone.
            let _ = self.router.put(now.boot, &key, rule, 0);
        }
        if let Err(CallError::Refused { code: 400 | 403 | 413 | 422, status }) = result
            && !std::mem::replace(&mut self.router.statuses.is_refusal_logged, true)
        {
            let why: String = status.get().chars().take(512).collect();
            let line = format!("{key}: the API server refuses its status: {why}");
            self.pending.push(Action::Log(Severity::Warn, line));
        }
    }

    /// All rules with their counts.
    pub(super) fn rule_overviews(&self) -> Vec<RuleOverview> {
        let overview = |(key, entry): (&Key, &Entry)| {
            let trouble = entry.tally.trouble.as_deref().unwrap_or_default().to_owned();
            let status = entry.tally.status(&entry.rule.status);
            let errors = status.errors.iter().filter(|_| trouble.is_empty());
            RuleOverview {
                name: format!("{}/{}", key.namespace, key.name),
                errors: errors.map(ToString::to_string).collect(),
                trouble,
                delivered: *status.success_messages,
                failed: *status.fail_messages,
            }
        };
        self.router.rules.iter().map(overview).collect()
    }

    /// All rules, JSON of objects.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.router.rules.values().map(|entry| entry.rule.text.get())
    }
}
