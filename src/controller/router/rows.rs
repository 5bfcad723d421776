//! What nodes were told of rules (spec `servicebus-router-tasks`, sections 7 and 8): a node does
//! not forget a topic or a URL by itself, and nobody acknowledges that it was told.
//!
//! So a row is stored before a node is told of a rule, and stays until the node was told that the
//! rule is gone and has gone on for [`ROUTER_UNDO_MS`] after that. A node that connects is told of
//! all its rules, and of those that it may still have. CloudCore tells those alone that are
//! connected, once.

use std::collections::{BTreeMap, BTreeSet};

use super::super::event::{Action, Severity};
use super::super::key::NodeId;
use super::super::time::{Instant, Now};
use super::super::{Controller, Session};
use crate::limits::{ROUTER_ROWS_MAX, ROUTER_UNDO_MS};
use crate::model::router::{NodeRule, NodeRuleRow, RouterAction};

/// The rows of all nodes.
#[derive(Default)]
pub(super) struct Rows {
    /// By the node.
    all: BTreeMap<Box<str>, BTreeMap<NodeRule, Undoing>>,
    count: usize,
    /// Rules of nodes that are new or gone.
    changed: BTreeSet<NodeRuleRow>,
    /// When what was undone counts as done.
    due: BTreeSet<(Instant, NodeRuleRow)>,
    is_full_logged: bool,
}

impl Rows {
    /// A rule of this node is new, or gone.
    pub(super) fn mark(&mut self, node: &str, rule: &NodeRule) {
        self.changed.insert(NodeRuleRow { node: node.into(), rule: rule.clone() });
    }

    /// All rules are known: those that `has` does not know are gone.
    pub(super) fn mark_gone(&mut self, has: impl Fn(&str, &NodeRule) -> bool) {
        for (node, rules) in &self.all {
            let row = |rule: &NodeRule| NodeRuleRow { node: node.clone(), rule: rule.clone() };
            let gone = rules.keys().filter(|rule| !has(node, rule));
            self.changed.extend(gone.map(row));
        }
    }

    pub(super) fn load(&mut self, rows: Vec<NodeRuleRow>) {
        for NodeRuleRow { node, rule } in rows.into_iter().take(ROUTER_ROWS_MAX) {
            let before = self.all.entry(node).or_default().insert(rule, None);
            self.count += usize::from(before.is_none());
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let changed = (!self.changed.is_empty()).then_some(Instant(0));
        changed.or_else(|| self.due.first().map(|(at, _)| *at))
    }

    /// There is a row from now on. Returns whether it is new; an error if there is no room.
    fn add(&mut self, row: &NodeRuleRow) -> Result<bool, Full> {
        if let Some(known) = self.all.get_mut(&row.node).and_then(|all| all.get_mut(&row.rule)) {
            *known = None;
            return Ok(false);
        }
        if self.count >= ROUTER_ROWS_MAX {
            return Err(Full);
        }
        self.count += 1;
        self.all.entry(row.node.clone()).or_default().insert(row.rule.clone(), None);
        Ok(true)
    }

    fn remove(&mut self, row: &NodeRuleRow) {
        let Some(rules) = self.all.get_mut(&row.node) else { return };
        self.count -= usize::from(rules.remove(&row.rule).is_some());
        if rules.is_empty() {
            self.all.remove(&row.node);
        }
    }
}

/// The session that was told that the rule is gone, and when that counts as done.
type Undoing = Option<(Session, Instant)>;

/// There are [`ROUTER_ROWS_MAX`] rows.
struct Full;

impl Controller {
    /// A node has connected: it is told of all its rules.
    pub(in super::super) fn tell_rules_to(&mut self, id: NodeId) {
        let Some(node) = self.cache.nodes.get_mut(&id) else { return };
        let name = node.name.clone();
        if let Some(link) = &mut node.link {
            let rules = self.router.claims.of_node(&name).map(|(rule, _)| (rule.clone(), true));
            link.rules.extend(rules);
        }
        let rows = &mut self.router.rows;
        let row = |rule: &NodeRule| NodeRuleRow { node: (*name).into(), rule: rule.clone() };
        rows.changed.extend(rows.all.get(&*name).into_iter().flatten().map(|(rule, _)| row(rule)));
    }

    /// Tells nodes of rules that are new or gone.
    pub(super) fn run_rows(&mut self, now: Now) {
        for row in std::mem::take(&mut self.router.rows.changed) {
            if self.router.claims.has(&row.node, &row.rule) {
                self.add_row(&row);
            } else if self.router.is_listed() {
                self.undo(now.boot, row);
            }
        }
        while let Some((at, row)) = self.router.rows.due.first().cloned()
            && at <= now.boot
        {
            self.router.rows.due.remove(&(at, row.clone()));
            self.end_undo(now.boot, at, row);
        }
    }

    fn add_row(&mut self, row: &NodeRuleRow) {
        match self.router.rows.add(row) {
            Ok(true) => {
                let keep = RouterAction::Keep(row.clone(), true);
                self.pending.push(Action::Router(Box::new(keep)));
            }
            Ok(false) => {}
            Err(Full) if std::mem::replace(&mut self.router.rows.is_full_logged, true) => {}
            Err(Full) => {
                let line = format!(
                    "router: nodes have {ROUTER_ROWS_MAX} topics and URLs of rules: what more they \
                     are told is not undone while they are away"
                );
                self.pending.push(Action::Log(Severity::Warn, line));
            }
        }
        self.tell(row, true);
    }

    /// Tells a node, if it is connected. Returns the session.
    fn tell(&mut self, row: &NodeRuleRow, is_on: bool) -> Option<Session> {
        let id = self.cache.id_of(&row.node)?;
        let link = self.cache.at(id).link.as_mut()?;
        link.rules.insert(row.rule.clone(), is_on);
        let session = link.session;
        self.cache.ready.insert(id);
        Some(session)
    }

    /// The node is told that a rule is gone, now or when it connects.
    fn undo(&mut self, now: Instant, row: NodeRuleRow) {
        let rules = self.router.rows.all.get(&row.node);
        let Some(before) = rules.and_then(|rules| rules.get(&row.rule)).copied() else { return };
        let session = self.tell(&row, false);
        let undoing = session.map(|session| (session, now.plus_ms(ROUTER_UNDO_MS)));
        let rows = &mut self.router.rows;
        if let Some((_, at)) = before {
            rows.due.remove(&(at, row.clone()));
        }
        if let Some(rules) = rows.all.get_mut(&row.node) {
            rules.insert(row.rule.clone(), undoing);
        }
        if let Some((_, at)) = undoing {
            rows.due.insert((at, row));
        }
    }

    /// The node has gone on for long enough, unless its session has ended or it was told otherwise.
    fn end_undo(&mut self, now: Instant, at: Instant, row: NodeRuleRow) {
        let rules = self.router.rows.all.get(&row.node);
        let undoing = rules.and_then(|rules| rules.get(&row.rule)).copied().flatten();
        let Some((session, _)) = undoing.filter(|(_, until)| *until == at) else { return };
        let id = self.cache.id_of(&row.node);
        let link = id.and_then(|id| self.cache.nodes.get(&id)?.link.as_ref());
        let Some(link) = link.filter(|link| link.session == session) else { return };
        if link.rules.contains_key(&row.rule) {
            // It has not left yet.
            return self.undo(now, row);
        }
        self.router.rows.remove(&row);
        let keep = RouterAction::Keep(row, false);
        self.pending.push(Action::Router(Box::new(keep)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: usize) -> NodeRuleRow {
        let rule = NodeRule::Url(format!("u{}", at % 128).into());
        NodeRuleRow { node: format!("n{}", at / 128).into(), rule }
    }

    #[test]
    fn rows_have_a_bound() {
        let mut rows = Rows::default();
        rows.load((0..=ROUTER_ROWS_MAX).map(row).collect());
        assert_eq!(rows.count, ROUTER_ROWS_MAX);
        assert!(rows.add(&row(ROUTER_ROWS_MAX)).is_err());
        assert!(matches!(rows.add(&row(0)), Ok(false)), "it is known");
        rows.remove(&row(1));
        rows.remove(&row(1));
        assert!(matches!(rows.add(&row(ROUTER_ROWS_MAX)), Ok(true)));
    }
}
