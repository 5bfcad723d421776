//! The trace: what happened, line by line, for somebody who replays a seed.
//!
//! Nothing is formatted unless it is read: a run without a trace costs a flag per line. A seed that
//! fails is run again with the last lines kept; being the same run, it fails the same way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

/// What happens to trace lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are not made.
    Off,
    /// The last ones are kept for the report.
    Keep,
    /// Each is printed as it comes.
    Print,
}

const LINES_MAX: usize = 60;

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    static LINES: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// Sets the mode of this thread and forgets its lines.
pub fn begin(mode: Mode) {
    MODE.set(mode);
    LINES.take();
}

/// Whether lines are made.
pub fn is_on() -> bool {
    MODE.get() != Mode::Off
}

/// Adds a line, stamped with the world's time.
pub fn line(now_ms: u64, what: fmt::Arguments<'_>) {
    let line = format!("{:>6}.{:03}  {what}", now_ms / 1000, now_ms % 1000);
    match MODE.get() {
        Mode::Off => {}
        Mode::Print => println!("{line}"),
        Mode::Keep => LINES.with_borrow_mut(|lines| {
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line);
        }),
    }
}

/// The kept lines, oldest first.
pub fn kept_lines() -> Vec<String> {
    LINES.take().into()
}

/// `trace!(now_ms, "text {}", value)`
macro_rules! trace {
    ($now:expr, $($text:tt)*) => {
        if $crate::trace::is_on() {
            $crate::trace::line($now, format_args!($($text)*));
        }
    };
}
pub(crate) use trace;
