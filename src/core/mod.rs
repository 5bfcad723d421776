//! What every mind needs and none decides by itself: time and chance as arguments, how often
//! something may be done, and where its requests go.
#![forbid(unsafe_code)]

pub mod rate;
pub mod time;

/// How loud a line is.
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

/// Where a mind leaves its requests. The hands lend the same one each time and empty it between.
#[derive(Debug)]
pub struct Out<Action> {
    /// In the order asked.
    pub actions: Vec<Action>,
}

impl<Action> Out<Action> {
    /// Adds one request.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

impl<Action> Default for Out<Action> {
    fn default() -> Self {
        Self { actions: Vec::new() }
    }
}
