//! What both cores share: time and randomness as arguments, rate limits,
//! outstanding work, and the output of actions.
#![forbid(unsafe_code)]

pub mod rate;
pub mod time;
pub mod work;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Each action.
    Debug,
    /// A phase changed.
    Info,
    /// We degraded.
    Warn,
    /// A person must come.
    Error,
}

/// Where a core leaves its actions. The event loop passes the same one each time and empties it in
/// between.
#[derive(Debug)]
pub struct Out<Action> {
    /// In order.
    pub actions: Vec<Action>,
}

impl<Action> Out<Action> {
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

impl<Action> Default for Out<Action> {
    fn default() -> Self {
        Self { actions: Vec::new() }
    }
}
