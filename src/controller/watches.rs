//! Lists and watches the API server (wire spec section 8.4): each kind is listed once and then
//! watched; a watch that ends is resumed at its last version, and one that is too old is replaced
//! by a new list.
//!
//! ```text
//!  Waiting ─turn─▶ Listing ──ListEnd──▶ Watching ──Ended──▶ BackingOff ─due─▶ Watching
//!                     ▲  └──Gone│Ended──▶ BackingOff ─due─▶ Listing │
//!                     └───────────────────────────────── Gone ◀─────┘
//! ```
//!
//! ObjectSyncs are listed first; ConfigMaps and Secrets after nodes and pods, which show which of
//! them a node wants. Devices, and then their models, are listed when all others are known: nobody
//! waits for them, because an API server may not have these kinds, or may not show them to us. The
//! same holds for jobs, rules and what service accounts may do, which wait for no device.

use std::collections::BTreeMap;

use super::SyncStore;
use super::event::{Action, Out, Severity, WatchId};
use super::time::{Backoff, Instant, Rng};
use crate::limits::{WATCH_CALM_MS, WATCH_RETRY_MAX_MS, WATCH_RETRY_MIN_MS, WATCH_UNSERVED_MS};
use crate::model::api::Kind;

/// All watched kinds.
pub(super) struct Watches {
    kinds: BTreeMap<Kind, Watch>,
    ids: BTreeMap<WatchId, Kind>,
    last: u64,
}

struct Watch {
    state: State,
    /// `resourceVersion` up to which everything is known, as the API server writes it.
    at: Box<str>,
    /// Number of lists begun.
    round: u32,
    /// A list was complete.
    is_synced: bool,
    backoff: Backoff,
    since: Instant,
    /// The trouble was logged.
    is_trouble_logged: bool,
}

enum State {
    Waiting,
    Listing(WatchId),
    Watching(WatchId),
    BackingOff { until: Instant, relist: bool },
}

/// What is known of all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listed {
    /// Nothing yet.
    #[default]
    NotYet,
    /// All of them.
    Yes,
    /// The API server does not have the kind, for the moment or for good.
    Unserved,
}

/// The kinds that are listed first; the later ones wait for them.
const FIRST: [Kind; 2] = [Kind::Node, Kind::Pod];
/// The kinds of records in KubeEdge's objects.
const RECORDS: [Kind; 2] = [Kind::ObjectSync, Kind::ClusterObjectSync];
const SECOND: [Kind; 2] = [Kind::ConfigMap, Kind::Secret];
/// The kinds for which nobody waits, each after the one before it.
const DEVICES: [Kind; 2] = [Kind::Device, Kind::DeviceModel];

/// Whether nobody waits for a kind.
fn is_optional(kind: Kind) -> bool {
    DEVICES.contains(&kind) || waits_for_no_device(kind)
}

/// The kinds for which nobody waits, and that wait for no other of them.
fn waits_for_no_device(kind: Kind) -> bool {
    kind.is_node_job() || kind.is_of_rules() || kind.is_of_policy()
}

/// When a kind is listed: with the others of its stage, after those of earlier ones.
fn stage(kind: Kind) -> usize {
    match DEVICES.iter().position(|it| *it == kind) {
        Some(at) => 3 + at,
        None if waits_for_no_device(kind) => 3,
        None if RECORDS.contains(&kind) => 0,
        None if FIRST.contains(&kind) => 1,
        None => 2,
    }
}

impl Watch {
    fn new() -> Self {
        Self {
            state: State::Waiting,
            at: "".into(),
            round: 0,
            is_synced: false,
            backoff: Backoff::default(),
            since: Instant(0),
            is_trouble_logged: false,
        }
    }

    /// A watch that has held for long: earlier failures do not count. A list that takes as long and
    /// fails does not count as one.
    fn is_calm(&self, now: Instant) -> bool {
        let watches = matches!(self.state, State::Watching(_));
        watches && now.since_ms(self.since) >= WATCH_CALM_MS
    }
}

impl Watches {
    pub(super) fn new(sync: SyncStore) -> Self {
        let records: &[Kind] = if sync == SyncStore::Objects { &RECORDS } else { &[] };
        let own = FIRST.iter().chain(&SECOND).chain(&DEVICES);
        let kinds = own.chain(&Kind::NODE_JOBS).chain(&Kind::RULES).chain(records);
        let kinds = kinds.map(|kind| (*kind, Watch::new())).collect();
        Self { kinds, ids: BTreeMap::new(), last: 0 }
    }

    /// Watches these kinds as well.
    pub(super) fn add(&mut self, kinds: &[Kind]) {
        self.kinds.extend(kinds.iter().map(|kind| (*kind, Watch::new())));
    }

    /// Whether every kind was listed once, except those for which nobody waits.
    pub(super) fn is_synced(&self) -> bool {
        self.kinds.iter().all(|(kind, watch)| watch.is_synced || is_optional(*kind))
    }

    /// Whether this kind was listed once: objects that are not known after that are fetched.
    pub(super) fn was_listed(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|watch| watch.is_synced)
    }

    /// The kind of this watch; `None`: it was ended.
    pub(super) fn kind(&self, id: WatchId) -> Option<Kind> {
        self.ids.get(&id).copied()
    }

    /// The round of the list under way, or of the last one.
    pub(super) fn round(&self, kind: Kind) -> u32 {
        self.kinds.get(&kind).map_or(0, |watch| watch.round)
    }

    /// The version up to which this kind is known.
    pub(super) fn known_version(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).and_then(|watch| watch.at.parse().ok()).unwrap_or(0)
    }

    /// A change of this version was received.
    pub(super) fn received(&mut self, kind: Kind, version: &str) {
        if let Some(watch) = self.kinds.get_mut(&kind)
            && matches!(watch.state, State::Watching(_))
        {
            watch.at = version.into();
        }
    }

    /// The list is complete.
    pub(super) fn listed(&mut self, now: Instant, kind: Kind, version: Box<str>, out: &mut Out) {
        let watch = self.kinds.get_mut(&kind).expect("it is listed");
        watch.at = version;
        watch.is_synced = true;
        if std::mem::take(&mut watch.is_trouble_logged) {
            let line = format!("api: {}: listed again", kind.plural());
            out.push(Action::Log(Severity::Info, line));
        }
        let relist = false;
        self.end(kind, State::BackingOff { until: now, relist });
    }

    /// 410: the version is too old.
    pub(super) fn expired(&mut self, now: Instant, kind: Kind, rng: &mut Rng) {
        self.fail(now, kind, rng, true);
    }

    /// The API server does not have this kind: it is looked for again.
    pub(super) fn unserved(&mut self, now: Instant, kind: Kind, rng: &mut Rng, out: &mut Out) {
        if !is_optional(kind) {
            return self.ended(now, kind, "the API server does not have this kind", rng, out);
        }
        let watch = self.kinds.get_mut(&kind).expect("it is listed");
        if !std::mem::replace(&mut watch.is_trouble_logged, true) {
            let (plural, version) = (kind.plural(), kind.api_version());
            let line = format!(
                "api: {plural}: the API server has no {version}; it is looked for every {} s",
                WATCH_UNSERVED_MS / 1_000
            );
            out.push(Action::Log(Severity::Info, line));
        }
        let (until, relist) = (now.plus_ms(WATCH_UNSERVED_MS), true);
        self.end(kind, State::BackingOff { until, relist });
    }

    /// The list or watch has ended.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        kind: Kind,
        why: &str,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        let watch = self.kinds.get_mut(&kind).expect("it is watched");
        let relist = matches!(watch.state, State::Listing(_));
        if watch.is_calm(now) {
            (watch.is_trouble_logged, watch.backoff) = (false, Backoff::default());
            self.end(kind, State::BackingOff { until: now, relist });
        } else {
            if !std::mem::replace(&mut watch.is_trouble_logged, true) {
                let line = format!("api: {}: {why}", kind.plural());
                out.push(Action::Log(Severity::Warn, line));
            }
            self.fail(now, kind, rng, relist);
        }
    }

    fn fail(&mut self, now: Instant, kind: Kind, rng: &mut Rng, relist: bool) {
        let watch = self.kinds.get_mut(&kind).expect("it is watched");
        if watch.is_calm(now) {
            watch.backoff = Backoff::default();
        }
        let _ = watch.backoff.retry_at(now, WATCH_RETRY_MIN_MS, WATCH_RETRY_MAX_MS);
        let until = now.plus_ms(rng.jitter_ms(watch.backoff.delay_ms()));
        self.end(kind, State::BackingOff { until, relist });
    }

    fn end(&mut self, kind: Kind, next: State) {
        let watch = self.kinds.get_mut(&kind).expect("it is watched");
        if let State::Listing(id) | State::Watching(id) = watch.state {
            self.ids.remove(&id);
        }
        watch.state = next;
    }

    /// Begins the lists and watches that are due. Returns how many lists were begun.
    pub(super) fn step(&mut self, now: Instant, out: &mut Out) -> u64 {
        let mut lists = 0;
        let is_late =
            |(kind, watch): &(&Kind, &Watch)| !watch.is_synced && !waits_for_no_device(**kind);
        let late = self.kinds.iter().filter(is_late);
        let turn = late.map(|(kind, _)| stage(*kind)).min().unwrap_or(usize::MAX);
        for (kind, watch) in &mut self.kinds {
            let relist = match watch.state {
                State::Waiting if stage(*kind) <= turn => true,
                State::BackingOff { until, relist } if until <= now => relist,
                State::Waiting
                | State::BackingOff { .. }
                | State::Listing(_)
                | State::Watching(_) => {
                    continue;
                }
            };
            self.last += 1;
            let id = WatchId(self.last);
            self.ids.insert(id, *kind);
            watch.since = now;
            if relist {
                lists += 1;
                watch.round += 1;
                watch.state = State::Listing(id);
                out.push(Action::List(id, *kind));
            } else {
                watch.state = State::Watching(id);
                out.push(Action::Watch(id, *kind, watch.at.clone()));
            }
        }
        lists
    }

    /// When the next list or watch is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let backing_off = self.kinds.values().filter_map(|watch| match watch.state {
            State::BackingOff { until, .. } => Some(until),
            State::Waiting | State::Listing(_) | State::Watching(_) => None,
        });
        backing_off.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a list (`true`) or a watch is begun for this kind at this moment.
    fn begun(watches: &mut Watches, ms: u64, kind: Kind) -> Option<bool> {
        let mut out = Out::default();
        watches.step(Instant(ms), &mut out);
        out.actions.iter().find_map(|action| match action {
            Action::List(_, of) if *of == kind => Some(true),
            Action::Watch(_, of, _) if *of == kind => Some(false),
            _ => None,
        })
    }

    fn end_watch(watches: &mut Watches, ms: u64) {
        let mut rng = Rng::new(ms);
        watches.ended(Instant(ms), Kind::Node, "reset", &mut rng, &mut Out::default());
    }

    /// When the next is begun.
    fn next(watches: &Watches) -> u64 {
        match watches.kinds[&Kind::Node].state {
            State::BackingOff { until, .. } => until.0,
            _ => panic!("it is under way"),
        }
    }

    #[test]
    fn failed_watches_back_off_however_long_they_took() {
        for took_ms in [0, WATCH_CALM_MS] {
            let mut watches = Watches::new(SyncStore::Table);
            let mut ms = 5;
            for n in 0..12 {
                assert_eq!(begun(&mut watches, ms, Kind::Node), Some(true), "{n}");
                ms += took_ms;
                end_watch(&mut watches, ms);
                let delay_ms = (WATCH_RETRY_MIN_MS << n).min(WATCH_RETRY_MAX_MS);
                let wait_ms = next(&watches) - ms;
                assert!((delay_ms..=delay_ms / 2 * 3).contains(&wait_ms), "{n}: {wait_ms}");
                assert_eq!(begun(&mut watches, ms + wait_ms - 1, Kind::Node), None);
                ms += wait_ms;
            }
        }
    }

    #[test]
    fn a_watch_that_has_held_goes_on_at_once() {
        for (held_ms, wait_ms) in [(WATCH_CALM_MS - 1, WATCH_RETRY_MIN_MS), (WATCH_CALM_MS, 0)] {
            let mut watches = Watches::new(SyncStore::Table);
            begun(&mut watches, 5, Kind::Node);
            watches.listed(Instant(5), Kind::Node, "7".into(), &mut Out::default());
            assert_eq!(begun(&mut watches, 5, Kind::Node), Some(false));
            end_watch(&mut watches, 5 + held_ms);
            let waits_ms = next(&watches) - 5 - held_ms;
            assert!((wait_ms..=wait_ms / 2 * 3).contains(&waits_ms), "{held_ms}: {waits_ms}");
        }
    }

    #[test]
    fn one_that_is_too_far_behind_after_it_has_held_waits_as_the_first_time() {
        let mut watches = Watches::new(SyncStore::Table);
        let mut rng = Rng::new(1);
        begun(&mut watches, 0, Kind::Node);
        let mut ms = 0;
        for _ in 0..4 {
            watches.listed(Instant(ms), Kind::Node, "7".into(), &mut Out::default());
            begun(&mut watches, ms, Kind::Node);
            watches.expired(Instant(ms), Kind::Node, &mut rng);
            ms = next(&watches);
            begun(&mut watches, ms, Kind::Node);
        }
        watches.listed(Instant(ms), Kind::Node, "7".into(), &mut Out::default());
        begun(&mut watches, ms, Kind::Node);
        ms += WATCH_CALM_MS;
        watches.expired(Instant(ms), Kind::Node, &mut rng);
        assert!(next(&watches) - ms <= WATCH_RETRY_MIN_MS / 2 * 3);
    }
}
