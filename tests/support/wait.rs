//! Waiting for facts: asked for again and again, with a bound. A sleep proves nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For what is done in a moment on an idle machine: many times longer than that, since other work
/// on the same cores may stretch everything.
pub const BOUND: Duration = Duration::from_secs(60);

/// The test has met its deadline: whoever waits gives up.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Whether all waiting ends at once, as failures.
pub fn abandon(yes: bool) {
    ABANDONED.store(yes, Ordering::SeqCst);
}

/// Waits until `look` succeeds, says what it saw last when the bound is met.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_in(BOUND, what, look)
}

/// [`until`] with another bound.
pub fn until_in<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        let saw = match look() {
            Ok(value) => return value,
            Err(saw) => saw,
        };
        let waited = begun.elapsed();
        let abandoned = ABANDONED.load(Ordering::SeqCst);
        assert!(waited < bound && !abandoned, "waited {waited:.1?} for: {what}\n  saw: {saw}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Holds for the whole time, looked at again and again.
pub fn always(time: Duration, what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Err(saw) = look() {
            panic!("{what}\n  saw: {saw}");
        }
        assert!(!ABANDONED.load(Ordering::SeqCst), "met the test's deadline during: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
