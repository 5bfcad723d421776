//! ServiceBus: applications of the cloud call services of the node, and applications of the node
//! send requests to the cloud, over the one link that the node has (spec
//! `servicebus-router-tasks`, sections 6, 8 and 9).
//!
//! ```text
//!  message of the router ─▶ calls ──BusAction::Call──▶ 127.0.0.1:port ─▶ answers ─▶ cloud
//!  BusEvent::Entry ───────▶ entries ─upload▶ cloud ─response▶ BusAction::Answer ─▶ application
//!  start, stop ───────────▶ urls, a row each ─▶ whether applications may connect
//! ```
//!
//! Intended behaviour: each call is answered once, also one that cannot be made: without an answer
//! the caller in the cloud waits a minute, and CloudCore calls again. Nothing is repeated here: a
//! call may not be idempotent. Nothing is kept while the link is down: neither side is promised
//! more, and a late answer reaches nobody.
//!
//! Applications of the cloud reach services on the node's own loopback interface. Ports below 1024,
//! and edged's own, are refused unless the configuration names them.
//!
//! If we crash here: the URLs of rules are rows and are read again. Callers get no answer.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use super::rule_rows::RuleRows;
use super::time::{Instant, Now};
use crate::limits::{
    RULE_ROW_BYTES_MAX, RULE_ROWS_MAX, SERVICE_BUS_BODY_BYTES_MAX, SERVICE_BUS_CALLS_MAX,
    SERVICE_BUS_ENTRIES_MAX, SERVICE_BUS_PORT_MIN,
};
use crate::model::service_bus::{
    BusAction, BusDownstream, BusEvent, BusOverview, EntryAnswer, EntryId, NoAnswer, ServiceAnswer,
    ServiceCall, ServiceCallId,
};
use crate::model::settings::ServiceBusSettings;
use crate::model::upstream::Origin;

/// The core.
#[derive(Debug)]
pub struct ServiceBus {
    settings: ServiceBusSettings,
    /// Bytes of a body in a message to the cloud.
    body_bytes_max: usize,
    is_linked: bool,
    /// Those that applications may use.
    urls: RuleRows,
    calls: BTreeMap<ServiceCallId, Origin>,
    last_call: u64,
    /// Answers for the cloud.
    answers: VecDeque<(Origin, ServiceAnswer)>,
    entries: BTreeMap<EntryId, Entry>,
    actions: Vec<BusAction>,
    is_listening: bool,
    /// But the number of URLs.
    counters: BusOverview,
}

/// A request of an application.
#[derive(Debug)]
struct Entry {
    url: Box<str>,
    state: EntryState,
    deadline: Instant,
}

#[derive(Debug)]
enum EntryState {
    /// The body, to be sent.
    Waits(Vec<u8>),
    /// The id of its message.
    Sent(Box<str>),
}

/// The next message to the cloud.
#[derive(Debug)]
pub enum BusUp {
    /// The answer to this call.
    Answer(Origin, ServiceAnswer),
    /// The request of an application: the URL of the rule, and the whole body.
    Request(EntryId, Box<str>, Vec<u8>),
}

/// Answers that wait to be sent: those of all calls, and as many refusals.
const ANSWERS_MAX: usize = 2 * SERVICE_BUS_CALLS_MAX;

impl ServiceBus {
    /// `message_bytes_max`: of a message to the cloud.
    pub fn new(settings: ServiceBusSettings, message_bytes_max: usize) -> Self {
        Self {
            settings,
            // Base64, within a message.
            body_bytes_max: SERVICE_BUS_BODY_BYTES_MAX.min(message_bytes_max / 4 * 3 / 2),
            is_linked: false,
            urls: RuleRows::new(RULE_ROW_BYTES_MAX, RULE_ROWS_MAX),
            calls: BTreeMap::new(),
            last_call: 0,
            answers: VecDeque::new(),
            entries: BTreeMap::new(),
            actions: Vec::new(),
            is_listening: false,
            counters: BusOverview::default(),
        }
    }

    /// The rows of the store.
    pub fn load(&mut self, urls: Vec<Box<str>>) {
        self.urls.load(urls);
        self.listen();
    }

    /// What has happened since the start, for people and metrics.
    pub fn overview(&self) -> BusOverview {
        BusOverview { urls: self.urls.iter().len(), ..self.counters.clone() }
    }

    pub fn link_up(&mut self) {
        self.is_linked = true;
    }

    /// Who has called is not waited for any more, and requests get no answer.
    pub fn link_down(&mut self) {
        self.is_linked = false;
        self.answers.clear();
        self.calls.clear();
        for id in std::mem::take(&mut self.entries).into_keys() {
            self.answer_entry(id, EntryAnswer::refused("the link to the cloud was lost"));
        }
    }

    /// Takes a message of the router. Returns a line for the log if it cannot be done.
    pub fn message(&mut self, origin: Origin, message: BusDownstream) -> Option<String> {
        match message {
            BusDownstream::Call(call) => {
                self.counters.calls += 1;
                match call.and_then(|call| self.admitted(call)) {
                    Ok(call) => {
                        self.last_call += 1;
                        let id = ServiceCallId(self.last_call);
                        self.calls.insert(id, origin);
                        self.actions.push(BusAction::Call(id, call));
                    }
                    Err(refusal) => self.answer(origin, refusal),
                }
                None
            }
            BusDownstream::Start(url) => {
                let added = self.urls.add(&url);
                self.listen();
                added.err().map(|why| format!("servicebus: a rule is not served: {why}"))
            }
            BusDownstream::Stop(url) => {
                self.urls.remove(&url);
                self.listen();
                None
            }
            BusDownstream::Answer(parent, body) => {
                let sent = |entry: &Entry| match &entry.state {
                    EntryState::Sent(id) => *id == parent,
                    EntryState::Waits(_) => false,
                };
                let found = self.entries.iter().find(|(_, entry)| sent(entry));
                if let Some(id) = found.map(|(id, _)| *id) {
                    self.entries.remove(&id);
                    self.counters.responses += 1;
                    let message = "receive response from cloud successfully".into();
                    self.answer_entry(id, EntryAnswer { code: 200, message, body });
                }
                None
            }
        }
    }

    /// The call, if this node makes it.
    fn admitted(&self, call: ServiceCall) -> Result<ServiceCall, ServiceAnswer> {
        let ServiceBusSettings { ports, own_ports, .. } = &self.settings;
        let port = call.port;
        let is_open = if ports.is_empty() {
            port >= SERVICE_BUS_PORT_MIN && !own_ports.contains(&port)
        } else {
            ports.contains(&port)
        };
        if !is_open {
            let expected = if ports.is_empty() {
                format!("one from {SERVICE_BUS_PORT_MIN} on that is not edged's own")
            } else {
                format!("one of {ports:?}")
            };
            let why = format!("got port {port}, expected {expected} (edged.serviceBusPorts)");
            return Err(ServiceAnswer::own(403, &why));
        }
        if self.calls.len() >= SERVICE_BUS_CALLS_MAX {
            let why = format!("{SERVICE_BUS_CALLS_MAX} calls are under way on this node");
            return Err(ServiceAnswer::own(503, &why));
        }
        Ok(call)
    }

    fn listen(&mut self) {
        // Who was let in once is let in after a power cut.
        let has_rules = self.urls.has_saved();
        if self.is_listening != has_rules {
            self.is_listening = has_rules;
            self.actions.push(BusAction::Listen(self.is_listening));
        }
    }

    /// Takes an event of the sockets.
    pub fn handle(&mut self, now: Now, event: BusEvent) {
        match event {
            BusEvent::Answered(id, result) => {
                // Its caller may not be waited for any more.
                let Some(origin) = self.calls.remove(&id) else { return };
                let answer = match result {
                    Ok(answer) if answer.body.len() > self.body_bytes_max => {
                        self.refusal(&NoAnswer::TooLarge)
                    }
                    Ok(answer) => {
                        self.counters.answered += 1;
                        answer
                    }
                    Err(why) => self.refusal(&why),
                };
                self.answer(origin, answer);
            }
            BusEvent::Entry { id, url, body } => {
                self.counters.requests += 1;
                if let Some(refusal) = self.entry_refusal(&url, body.len()) {
                    return self.answer_entry(id, EntryAnswer::refused(&refusal));
                }
                let deadline = now.boot.plus_ms(self.settings.timeout_ms);
                let state = EntryState::Waits(body);
                self.entries.insert(id, Entry { url, state, deadline });
            }
        }
    }

    fn refusal(&self, why: &NoAnswer) -> ServiceAnswer {
        match why {
            // 404, as by EdgeCore.
            NoAnswer::Failed(why) => {
                ServiceAnswer::own(404, &format!("error to call service: {why}"))
            }
            NoAnswer::Late => ServiceAnswer::own(504, "error to call service: no answer in time"),
            NoAnswer::TooLarge => {
                let most = self.body_bytes_max;
                let why = format!(
                    "error to receive response, err: got a longer body, expected {most} bytes at \
                     most"
                );
                ServiceAnswer::own(502, &why)
            }
        }
    }

    /// Why a request is not sent to the cloud.
    fn entry_refusal(&self, url: &str, bytes: usize) -> Option<String> {
        if !self.urls.contains(url) {
            let url: String = url.chars().take(256).collect();
            return Some(format!(
                "url {url} is not allowed and please make a rule for this url in the cloud"
            ));
        }
        if bytes > self.body_bytes_max {
            let most = self.body_bytes_max;
            return Some(format!("got a body of {bytes} bytes, expected {most} at most"));
        }
        if !self.is_linked {
            return Some("the cloud is out of reach".to_owned());
        }
        if self.entries.len() >= SERVICE_BUS_ENTRIES_MAX {
            return Some(format!("{SERVICE_BUS_ENTRIES_MAX} requests wait for the cloud"));
        }
        None
    }

    fn answer(&mut self, origin: Origin, answer: ServiceAnswer) {
        // A link that is down drops them, and one that is slow must not collect them.
        if self.is_linked && self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((origin, answer));
        }
    }

    fn answer_entry(&mut self, id: EntryId, answer: EntryAnswer) {
        self.actions.push(BusAction::Answer(id, answer));
    }

    /// Ends what has waited too long.
    pub fn step(&mut self, now: Now) {
        let late = self.entries.iter().filter(|(_, entry)| entry.deadline <= now.boot);
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            let entry = self.entries.remove(&id).expect("just seen");
            let what = match entry.state {
                EntryState::Sent(message) => format!("message {message}"),
                EntryState::Waits(_) => "a message that could not be sent".to_owned(),
            };
            let why = format!("timeout to get response for {what}");
            self.answer_entry(id, EntryAnswer::refused(&why));
        }
    }

    /// The next message to the cloud.
    pub fn next_up(&mut self) -> Option<BusUp> {
        if !self.is_linked {
            return None;
        }
        if let Some((origin, answer)) = self.answers.pop_front() {
            return Some(BusUp::Answer(origin, answer));
        }
        self.entries.iter_mut().find_map(|(id, entry)| match &mut entry.state {
            EntryState::Waits(body) => {
                Some(BusUp::Request(*id, entry.url.clone(), std::mem::take(body)))
            }
            EntryState::Sent(_) => None,
        })
    }

    /// A request was sent in this message.
    pub fn sent(&mut self, id: EntryId, message: Box<str>) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = EntryState::Sent(message);
        }
    }

    /// Whether a message to the cloud waits.
    pub fn has_up(&self) -> bool {
        let waits = |entry: &Entry| matches!(entry.state, EntryState::Waits(_));
        self.is_linked && (!self.answers.is_empty() || self.entries.values().any(waits))
    }

    /// What the sockets are to do.
    pub fn take_actions(&mut self) -> Vec<BusAction> {
        std::mem::take(&mut self.actions)
    }

    /// The rows of the table `target_urls`.
    pub(super) fn urls(&mut self) -> &mut RuleRows {
        &mut self.urls
    }

    /// The save under way has ended; there may be nothing of ours in it.
    pub fn end_save(&mut self, is_saved: bool) {
        self.urls.end_save(is_saved);
        self.listen();
    }

    /// Whether rows are to be saved.
    pub fn has_unsaved(&self) -> bool {
        self.urls.has_unsaved()
    }

    /// When the next step is due.
    pub fn wake_at(&self) -> Option<Instant> {
        let now = (!self.actions.is_empty()).then_some(Instant(0));
        now.or_else(|| self.entries.values().map(|entry| entry.deadline).min())
    }
}
