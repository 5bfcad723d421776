//! The node's conditions: its pressures, and since when they hold (spec section 9.2).
//!
//! Eviction sets the pressures; admission, `edged status` and the report of the node's status read
//! them here. Without eviction in the build there are no pressures.
//!
//! Not persistent: they are measured again after a restart.

use std::collections::BTreeSet;

use super::time::Now;
use crate::model::node::{Condition, Pressure};
use crate::model::time::Timestamp;

/// The node's pressures.
#[derive(Debug, Default)]
pub struct Node {
    pressures: BTreeSet<Pressure>,
    /// When each last changed, in the order of [`Pressure::ALL`]; `None`: the clock was not set.
    changed_at: [Option<Timestamp>; 3],
    /// When they were last set.
    known_at: Option<Timestamp>,
}

impl Node {
    /// Sets the current pressures. Returns those that changed.
    pub fn set_pressures(&mut self, now: Now, pressures: BTreeSet<Pressure>) -> Vec<Pressure> {
        let at = now.timestamp();
        let first = self.known_at.is_none();
        let mut changed = Vec::new();
        for (pressure, since) in Pressure::ALL.into_iter().zip(&mut self.changed_at) {
            if self.pressures.contains(&pressure) != pressures.contains(&pressure) {
                changed.push(pressure);
                *since = at;
            } else if first {
                *since = at;
            }
        }
        self.known_at = at;
        self.pressures = pressures;
        changed
    }

    pub fn pressures(&self) -> &BTreeSet<Pressure> {
        &self.pressures
    }

    /// The node's conditions about pressures: `NodeStatus.conditions` except `Ready`.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        Pressure::ALL.into_iter().zip(self.changed_at).map(|(pressure, changed_at)| {
            let status = self.pressures.contains(&pressure);
            let (reason, message) = pressure.reason_and_message(status);
            Condition {
                kind: pressure.kind(),
                status,
                reason,
                message,
                last_heartbeat_time: self.known_at,
                last_transition_time: changed_at,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::time::{Instant, Wall};

    fn at(ms: i64) -> Now {
        Now { boot: Instant(1), wall: Some(Wall(ms)) }
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let mut node = Node::default();
        assert_eq!(node.set_pressures(at(1_000_000), BTreeSet::new()), []);
        let disk = BTreeSet::from([Pressure::Disk]);
        assert_eq!(node.set_pressures(at(2_000_000), disk.clone()), [Pressure::Disk]);
        assert_eq!(node.set_pressures(at(3_000_000), disk), []);
        let conditions: Vec<Condition> = node.conditions().collect();
        let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure"];
        assert_eq!(conditions.iter().map(|it| it.kind).collect::<Vec<_>>(), kinds);
        assert_eq!(conditions[0].reason, "KubeletHasSufficientMemory");
        assert_eq!(conditions[1].reason, "KubeletHasDiskPressure");
        assert!(conditions[1].status && !conditions[0].status);
        assert_eq!(conditions[1].last_transition_time, at(2_000_000).timestamp());
        assert_eq!(conditions[1].last_heartbeat_time, at(3_000_000).timestamp());
        assert_eq!(conditions[0].last_transition_time, at(1_000_000).timestamp());
    }
}
