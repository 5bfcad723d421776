//! Limits of the machine's watchdog.

/// Milliseconds that an answer may be overdue until the machine should be reset: far more than a
/// turn of the event loop takes on a disk that stalls.
pub const WATCHDOG_LATE_MS: u64 = 60_000;
/// Pings of the watchdog in one timeout: two may be late.
pub const WATCHDOG_PINGS: u64 = 3;
