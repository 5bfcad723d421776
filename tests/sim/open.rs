//! Faults that the simulator has found and nobody has mended yet: the worlds that show them, and
//! the rule that each breaks. They run with all others and are told each time; a world that breaks
//! another rule, or is not named here, fails the run. Mend one, and its row goes.

/// Seed, and the rule that it breaks.
const OPEN: &[(u64, &str)] = &[
    (157, "quiet"),
    (171, "ready by its probes"),
    (453, "restart policy"),
    (526, "converges"),
    (1007, "converges"),
    (1257, "converges"),
    (1339, "quiet"),
    (1536, "quiet"),
    (1707, "converges"),
];

/// Whether this is what the world is known to show.
pub(crate) fn is_known(seed: u64, why: &str) -> bool {
    let known = |(open, rule): &(u64, &str)| *open == seed && why.contains(&format!("[{rule}]"));
    OPEN.iter().any(known)
}
