//! Bounds of the machine's watchdog.

/// Milliseconds that an answer may be overdue until the machine is better reset: far more than a
/// turn of the loop takes on a disk that stalls.
pub const WATCHDOG_LATE_MS: u64 = 60_000;
/// Meals in a timeout: two may be late.
pub const WATCHDOG_MEALS: u64 = 3;
