//! Rows of the cloud's rules: URLs that applications may use ([`super::service_bus`]), topics of
//! MQTT clients that go to the cloud ([`super::devices`]). Each is a text.
//!
//! A rule is sent once and not confirmed, so its row is all that a restarted node has of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::error::Input;
use crate::model::rule_row::RuleRow;

/// The rows of one table.
#[derive(Debug)]
pub(super) struct RuleRows {
    all: BTreeSet<Box<str>>,
    /// Those that differ from the store, and whether each is to exist.
    unsaved: BTreeMap<Box<str>, bool>,
    /// The same, in the save under way.
    saving: BTreeMap<Box<str>, bool>,
    bytes_max: usize,
    count_max: usize,
}

impl RuleRows {
    /// `bytes_max`: of one text.
    pub(super) fn new(bytes_max: usize, count_max: usize) -> Self {
        let (all, unsaved, saving) = Default::default();
        Self { all, unsaved, saving, bytes_max, count_max }
    }

    /// Takes what the store has.
    pub(super) fn load(&mut self, rows: Vec<Box<str>>) {
        self.all.extend(rows.into_iter().take(self.count_max));
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.all.iter().map(|text| &**text)
    }

    #[cfg(any(test, feature = "servicebus"))]
    pub(super) fn contains(&self, text: &str) -> bool {
        self.all.contains(text)
    }

    /// Whether the store has one that is to stay.
    #[cfg(feature = "servicebus")]
    pub(super) fn has_saved(&self) -> bool {
        let Self { all, unsaved, saving, .. } = self;
        all.iter().any(|text| !unsaved.contains_key(text) && !saving.contains_key(text))
    }

    /// Returns whether it is new; the error says why it is left out.
    pub(super) fn add(&mut self, text: &str) -> Result<bool, Input> {
        if self.all.contains(text) {
            return Ok(false);
        }
        if text.is_empty() || text.len() > self.bytes_max {
            let expected = format!("1 to {}", self.bytes_max);
            return Err(Input::new(format_args!("{} bytes", text.len()), expected));
        }
        if self.all.len() >= self.count_max {
            return Err(Input::quoted(text, format!("{} rules at most", self.count_max)));
        }
        self.all.insert(text.into());
        self.unsaved.insert(text.into(), true);
        Ok(true)
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, text: &str) -> bool {
        let was_there = self.all.remove(text);
        if was_there {
            self.unsaved.insert(text.into(), false);
        }
        was_there
    }

    pub(super) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Whether nothing has to be saved, and no save is under way.
    #[cfg(feature = "devices")]
    pub(super) fn is_saved(&self) -> bool {
        self.unsaved.is_empty() && self.saving.is_empty()
    }

    /// The changes for the save that begins.
    pub(super) fn begin_save(&mut self) -> Vec<RuleRow> {
        let changes = std::mem::take(&mut self.unsaved);
        self.saving.extend(changes.iter().map(|(text, exists)| (text.clone(), *exists)));
        changes.into_iter().map(|(text, exists)| RuleRow { text, exists }).collect()
    }

    /// The save under way has ended; there may be nothing of these in it.
    pub(super) fn end_save(&mut self, is_saved: bool) {
        for (text, exists) in std::mem::take(&mut self.saving) {
            if !is_saved {
                self.unsaved.entry(text).or_insert(exists);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, exists: bool) -> RuleRow {
        RuleRow { text: text.into(), exists }
    }

    #[test]
    fn rows_are_saved_until_a_save_has_them() {
        let mut rows = RuleRows::new(4, 9);
        assert_eq!(rows.add("a"), Ok(true));
        assert_eq!(rows.begin_save(), [row("a", true)]);
        assert_eq!((rows.add("a"), rows.has_unsaved()), (Ok(false), false));
        // The save fails while the rule goes.
        assert!(rows.remove("a") && !rows.remove("a") && !rows.contains("a"));
        rows.end_save(false);
        assert_eq!(rows.begin_save(), [row("a", false)]);
        rows.end_save(true);
        assert!(!rows.has_unsaved());
        rows.add("b").expect("room");
        rows.begin_save();
        rows.end_save(false);
        assert_eq!(rows.begin_save(), [row("b", true)], "it is tried again");
    }

    #[test]
    fn rows_have_bounds() {
        let mut rows = RuleRows::new(4, 2);
        for wrong in ["", "12345"] {
            let why = rows.add(wrong).expect_err(wrong).to_string();
            assert_eq!(why, format!("got {} bytes, expected 1 to 4", wrong.len()));
        }
        rows.load(["a", "b", "c"].map(Box::from).to_vec());
        assert_eq!(rows.iter().collect::<Vec<_>>(), ["a", "b"]);
        let why = rows.add("c").expect_err("no room").to_string();
        assert_eq!(why, "got \"c\", expected 2 rules at most");
        assert!(rows.contains("a") && !rows.has_unsaved());
    }
}
