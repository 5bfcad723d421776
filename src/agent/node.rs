//! The node as pods see it: its conditions, which are its pressures and since when they hold (spec
//! section 9.2), and its labels (spec section 1.2, rows 4a and 4d).
//!
//! Eviction sets the pressures; admission, `edged status` and the report of the node's status read
//! them here. Without eviction in the build there are no pressures.
//!
//! Not persistent: they are measured again after a restart.

use std::collections::BTreeSet;

use super::Config;
use super::time::Now;
use crate::model::node::{Condition, Pressure};
use crate::model::pod::{NodeRequirement, NodeSelectorTerm, PodSpec};
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

/// Whether a node selector matches this node: one matching term is enough.
pub fn selects_node(terms: &[NodeSelectorTerm<'_>], config: &Config) -> bool {
    terms.iter().any(|term| matches_term(term, config))
}

/// The labels of this node: those that every node has, KubeEdge's two, and the configured ones.
pub fn labels(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let own = [
        ("kubernetes.io/arch", ARCH),
        ("kubernetes.io/hostname", &config.node_name),
        ("kubernetes.io/os", "linux"),
        ("node-role.kubernetes.io/agent", ""),
        ("node-role.kubernetes.io/edge", ""),
    ];
    let more = config.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    own.into_iter().chain(more)
}

/// Go's name of the architecture.
const ARCH: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "arm"
};

fn label<'a>(key: &str, config: &'a Config) -> Option<&'a str> {
    labels(config).find_map(|(known, value)| (known == key).then_some(value))
}

/// Whether the labels of this node are those of a pod's `nodeSelector`.
pub fn selects(spec: &PodSpec, config: &Config) -> bool {
    spec.node_selector()
        .is_some_and(|mut wanted| wanted.all(|(key, value)| label(key, config) == value))
}

/// core/v1 `NodeSelectorTerm`: all of its expressions have to match; an empty term matches nothing.
fn matches_term(term: &NodeSelectorTerm<'_>, config: &Config) -> bool {
    let (expressions, fields) = (&term.match_expressions, &term.match_fields);
    let by_label = |key: &str| label(key, config);
    let by_field = |key: &str| (key == "metadata.name").then_some(&*config.node_name);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|wanted| matches(wanted, by_label))
        && fields.iter().all(|wanted| matches(wanted, by_field))
}

/// core/v1 `NodeSelectorRequirement`
fn matches<'a>(wanted: &NodeRequirement<'_>, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let value = value_of(wanted.key);
    let number = |text: &str| text.parse::<i64>().ok();
    let limit = wanted.values.first().and_then(|text| number(text));
    match wanted.operator {
        "In" => value.is_some_and(|value| wanted.values.contains(&value)),
        "NotIn" => value.is_none_or(|value| !wanted.values.contains(&value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number) > limit,
        "Lt" => match (value.and_then(number), limit) {
            (Some(value), Some(limit)) => value < limit,
            _ => false,
        },
        _ => false,
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
