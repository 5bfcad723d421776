//! Waiting for facts: polling with a timeout. A sleep proves nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For operations that take a moment on an idle machine: many times longer than that, because other
/// work on the same cores may delay everything.
pub const BOUND: Duration = Duration::from_secs(60);

/// The test has exceeded its deadline: all waiting ends.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Sets whether all waiting ends at once, as failures.
pub fn abandon(yes: bool) {
    ABANDONED.store(yes, Ordering::SeqCst);
}

/// Waits until `poll` succeeds; reports its last error after the timeout.
pub fn until<T>(what: &str, poll: impl FnMut() -> Result<T, String>) -> T {
    until_in(BOUND, what, poll)
}

/// [`until`] with another timeout.
pub fn until_in<T>(bound: Duration, what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        let saw = match poll() {
            Ok(value) => return value,
            Err(saw) => saw,
        };
        let waited = begun.elapsed();
        let abandoned = ABANDONED.load(Ordering::SeqCst);
        assert!(waited < bound && !abandoned, "waited {waited:.1?} for: {what}\n  saw: {saw}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Holds for the whole time, polled again and again.
pub fn always(time: Duration, what: &str, mut poll: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Err(saw) = poll() {
            panic!("{what}\n  saw: {saw}");
        }
        assert!(!ABANDONED.load(Ordering::SeqCst), "exceeded the test's deadline during: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
