//! A record in memory, how far the disk has it, and who sees it. What is shown to clients is
//! durable, except what is saved soon: of that the truth is in RUN as well.

use std::sync::Arc;

use super::event::{Action, CallId, Durability, Out};
use crate::model::runtime::{ContainerRecord, Record, SandboxRecord};

/// One kind of record.
pub trait Keep: Clone {
    fn record(&self) -> Record;
}

impl Keep for SandboxRecord {
    fn record(&self) -> Record {
        Record::Sandbox(self.clone())
    }
}

impl Keep for ContainerRecord {
    fn record(&self) -> Record {
        Record::Container(self.clone())
    }
}

#[derive(Debug)]
pub struct Kept<R> {
    shown: Arc<R>,
    /// What is shown is not on the disk.
    is_ahead: bool,
    state: State<R>,
    /// Clients see it: its creation was answered.
    pub is_visible: bool,
    /// The call that creates it, until it is answered.
    pub maker: Option<CallId>,
}

#[derive(Debug)]
enum State<R> {
    Durable,
    /// To be requested; `None`: to be erased.
    Wanted(Option<Arc<R>>),
    /// Requested.
    Sent(Option<Arc<R>>),
    /// It could not be saved or erased.
    Failed(Box<str>, Option<Arc<R>>),
    Erased,
}

impl<R: Keep> Kept<R> {
    /// A new record, to be saved.
    pub fn new(record: R, maker: CallId) -> Self {
        let shown = Arc::new(record);
        let state = State::Wanted(Some(Arc::clone(&shown)));
        Self { shown, is_ahead: true, state, is_visible: false, maker: Some(maker) }
    }

    /// One that was read from the disk.
    pub fn stored(record: R) -> Self {
        let (shown, state) = (Arc::new(record), State::Durable);
        Self { shown, is_ahead: false, state, is_visible: false, maker: None }
    }

    /// It has a name that nobody else may take.
    pub fn has_name(&self) -> bool {
        self.is_visible || self.maker.is_some()
    }

    pub fn shown(&self) -> &Arc<R> {
        &self.shown
    }

    /// Shown once it is durable.
    pub fn save(&mut self, record: R) {
        self.set(Some(Arc::new(record)));
    }

    pub fn erase(&mut self) {
        self.set(None);
    }

    fn set(&mut self, next: Option<Arc<R>>) {
        assert!(!self.is_pending(), "one change of a record at a time");
        self.state = State::Wanted(next);
    }

    /// Shown at once: RUN tells it as well.
    pub fn save_lazily(&mut self, record: R, out: &mut Out) {
        self.save_soon(record, Durability::Lazily, out);
    }

    /// Shown at once: RUN has the record as well.
    pub fn save_in_run(&mut self, record: R, out: &mut Out) {
        self.save_soon(record, Durability::InRun, out);
    }

    fn save_soon(&mut self, record: R, durability: Durability, out: &mut Out) {
        assert!(!self.is_pending(), "one change of a record at a time");
        out.push(Action::Save(Box::new(record.record()), durability));
        self.shown = Arc::new(record);
    }

    /// Shown at once, because it is true and cannot be saved now.
    pub fn show(&mut self, record: Arc<R>) {
        self.shown = record;
        self.is_ahead = true;
    }

    /// What is shown was never saved, or could not be.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// A change is under way.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Wanted(_) | State::Sent(_))
    }

    /// The record is gone from the disk; nothing else was left before.
    pub fn is_erased(&self) -> bool {
        matches!(self.state, State::Erased)
    }

    /// Why the last change failed, and to what it should have led; the next call says nothing.
    pub fn take_failure(&mut self) -> Option<(Box<str>, Option<Arc<R>>)> {
        if !matches!(self.state, State::Failed(..)) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Durable) {
            State::Failed(why, next) => Some((why, next)),
            State::Durable | State::Wanted(_) | State::Sent(_) | State::Erased => None,
        }
    }

    /// Requests the change that is wanted. `false`: there is none.
    pub fn request(&mut self, out: &mut Out) -> bool {
        let State::Wanted(next) = &mut self.state else { return false };
        let next = next.take();
        out.push(match &next {
            Some(record) => Action::Save(Box::new(record.record()), Durability::Now),
            None => Action::Erase(self.shown.record().key()),
        });
        self.state = State::Sent(next);
        true
    }

    /// The change is durable.
    pub fn saved(&mut self) {
        let State::Sent(next) = &mut self.state else { return };
        self.state = match next.take() {
            Some(record) => {
                self.shown = record;
                self.is_ahead = false;
                State::Durable
            }
            None => State::Erased,
        };
    }

    /// The change has failed, or is to be requested `again`.
    pub fn not_saved(&mut self, why: &str, again: bool) {
        let State::Sent(next) = &mut self.state else { return };
        let next = next.take();
        self.state = if again { State::Wanted(next) } else { State::Failed(why.into(), next) };
    }
}
