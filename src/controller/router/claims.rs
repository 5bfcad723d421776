//! Which rules have which sources: each source counts for one rule, the oldest that has it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::key::Key;
use super::pattern::Pattern;
use super::rule::Source;
use crate::model::router::NodeRule;

/// All sources of rules.
#[derive(Default)]
pub(super) struct Claims {
    /// By the namespace.
    paths: BTreeMap<Box<str>, BTreeMap<Pattern, Rules>>,
    /// By the node.
    nodes: BTreeMap<Box<str>, BTreeMap<NodeRule, Rules>>,
}

/// The rules of one source; the first is in force.
type Rules = BTreeSet<Claim>;

/// A rule: when it was created, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) created: Box<str>,
    pub(super) key: Key,
}

impl Claims {
    pub(super) fn add(&mut self, source: &Source, claim: Claim) {
        let rules = match source {
            Source::Rest { namespace, pattern } => {
                self.paths.entry(namespace.clone()).or_default().entry(pattern.clone()).or_default()
            }
            Source::Node { node, rule } => {
                self.nodes.entry(node.clone()).or_default().entry(rule.clone()).or_default()
            }
        };
        rules.insert(claim);
    }

    pub(super) fn remove(&mut self, source: &Source, claim: &Claim) {
        match source {
            Source::Rest { namespace, pattern } => {
                remove_of(&mut self.paths, namespace, pattern, claim);
            }
            Source::Node { node, rule } => remove_of(&mut self.nodes, node, rule, claim),
        }
    }

    /// The rules that have this source.
    pub(super) fn of(&self, source: &Source) -> impl Iterator<Item = &Key> {
        let rules = match source {
            Source::Rest { namespace, pattern } => {
                self.paths.get(namespace).and_then(|all| all.get(pattern))
            }
            Source::Node { node, rule } => self.nodes.get(node).and_then(|all| all.get(rule)),
        };
        rules.into_iter().flatten().map(|claim| &claim.key)
    }

    /// The rule that is meant by this path, and what follows its own path.
    pub(super) fn find_path<'a>(&self, namespace: &str, path: &'a str) -> Option<(&Key, &'a str)> {
        let all = self.paths.get(namespace)?.iter();
        let fitting =
            all.filter_map(|(pattern, rules)| Some((pattern, rules, pattern.match_path(path)?)));
        let (_, rules, rest) = fitting.max_by(|one, other| one.0.preference(other.0))?;
        Some((&rules.first()?.key, rest))
    }

    /// What a node is to know of rules, and the rule that is in force for each.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = (&NodeRule, &Key)> {
        let all = self.nodes.get(node).into_iter().flatten();
        all.filter_map(|(rule, rules)| Some((rule, &rules.first()?.key)))
    }

    /// How much that is.
    pub(super) fn count_of_node(&self, node: &str) -> usize {
        self.nodes.get(node).map_or(0, BTreeMap::len)
    }

    /// Whether a node is to know this.
    pub(super) fn has(&self, node: &str, rule: &NodeRule) -> bool {
        self.nodes.get(node).is_some_and(|all| all.contains_key(rule))
    }
}

/// Nothing empty is left.
fn remove_of<Of: Ord>(
    all: &mut BTreeMap<Box<str>, BTreeMap<Of, Rules>>,
    place: &str,
    of: &Of,
    claim: &Claim,
) {
    let Some(at) = all.get_mut(place) else { return };
    if let Some(rules) = at.get_mut(of) {
        rules.remove(claim);
        if rules.is_empty() {
            at.remove(of);
        }
    }
    if at.is_empty() {
        all.remove(place);
    }
}
