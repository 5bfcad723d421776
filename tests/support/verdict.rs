//! The report of a failed test: where and why it failed, at once and again at the end.

use std::any::Any;
use std::cell::RefCell;
use std::panic;

thread_local! {
    /// Where this thread panicked.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Records where a thread panics for [`why`]; a backtrace through the runner adds nothing.
pub fn note_panics() {
    panic::set_hook(Box::new(|info| {
        PLACE.set(info.location().map(ToString::to_string).unwrap_or_default());
    }));
}

/// Where this thread panicked, and its message.
pub fn why(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("{}: {}", PLACE.take(), text.unwrap_or_default())
}

/// The summary of a run: of a truncated log, the end remains.
pub fn sum_up(passed: usize, failed: &[(String, String)]) {
    for (name, why) in failed {
        println!("failed: {name}\n{why}\n");
    }
    println!("{passed} passed, {} failed", failed.len());
}
