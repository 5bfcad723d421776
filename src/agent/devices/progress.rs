//! How far the latest content of a row has come: to the disk, and to the cloud.
//!
//! ```text
//!  firm change ──save──▶ saved ──send──▶ confirmed ──save──▶ its mark is removed
//!  actual value ─┬─send──▶ confirmed
//!                └─save, some minutes later
//! ```
//!
//! A change is firm if nobody repeats it: desired values, deletions, states. The cloud gets it only
//! when it is saved, so that after a power cut the cloud has nothing of these that the node does
//! not have. An actual value alone may be ahead of the disk, because its device reports it again.
//!
//! The mark in the store says that the cloud does not have the content of the row, nor a newer one:
//! it is sent after the next start. So nothing newer is sent while the row on the disk is marked,
//! or about to be: otherwise an older value would replace a newer one after a power cut. A row
//! without the mark is not sent by itself after a start: the cloud may have a newer one.
//!
//! If we crash here: what is marked is sent again, as it is on the disk.

/// Contents are counted, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    latest: u64,
    /// The last firm change.
    firm: u64,
    saved: u64,
    /// The content in the save under way; 0: there is none.
    saving: u64,
    /// The row is marked in the save under way.
    saves_mark: bool,
    confirmed: u64,
    /// On the disk.
    is_marked: bool,
    /// A save that failed had the mark: after a power cut it may be there nevertheless.
    may_be_marked: bool,
    /// The cloud has it, and is told that it is still so.
    is_repeated: bool,
}

/// Whether a change may be lost by a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Firmness {
    /// It is saved before it is sent.
    Firm,
    /// An actual value: its device reports it again.
    Repeated,
}

impl Progress {
    /// A new row.
    pub(super) fn new() -> Self {
        Self { saved: 0, ..Self::stored(true) }
    }

    /// A row of the store.
    pub(super) fn stored(is_unsent: bool) -> Self {
        Self {
            latest: 1,
            firm: 1,
            saved: 1,
            saving: 0,
            saves_mark: false,
            confirmed: u64::from(!is_unsent),
            is_marked: is_unsent,
            may_be_marked: false,
            is_repeated: false,
        }
    }

    /// There is another content.
    pub(super) fn change(&mut self, firmness: Firmness) {
        self.latest += 1;
        if firmness == Firmness::Firm {
            self.firm = self.latest;
        }
    }

    /// There is another content, and the cloud needs none of it.
    pub(super) fn change_here(&mut self) {
        let is_unsent = self.is_unsent();
        self.change(Firmness::Firm);
        if !is_unsent {
            self.confirmed = self.latest;
        }
    }

    /// The content is the same, and the cloud is to know that.
    pub(super) fn repeat(&mut self) {
        self.is_repeated = true;
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.confirmed < self.latest
    }

    /// Whether the row is to be marked: firm changes until they are confirmed; an actual value only
    /// while there is no link, because the cloud gets newer ones as long as there is one.
    fn needs_mark(&self, is_linked: bool) -> bool {
        self.confirmed < self.firm || (self.is_unsent() && !is_linked)
    }

    /// The row on the disk differs.
    pub(super) fn needs_save(&self, is_linked: bool) -> bool {
        let has_mark = self.is_marked == self.needs_mark(is_linked) && !self.may_be_marked;
        self.saved < self.latest || !has_mark
    }

    /// A save of the row begins. Returns whether it is marked.
    pub(super) fn begin_save(&mut self, is_linked: bool) -> bool {
        let is_marked = self.needs_mark(is_linked);
        (self.saving, self.saves_mark) = (self.latest, is_marked);
        is_marked
    }

    /// The row is in the save under way.
    pub(super) fn is_saving(&self) -> bool {
        self.saving > 0
    }

    /// The save under way has ended.
    pub(super) fn end_save(&mut self, is_saved: bool) {
        if !self.is_saving() {
            return;
        }
        let (content, is_marked) = (std::mem::take(&mut self.saving), self.saves_mark);
        if is_saved {
            (self.saved, self.is_marked, self.may_be_marked) = (content, is_marked, false);
        } else {
            self.may_be_marked |= is_marked;
        }
    }

    /// The content that the cloud is to get, and may: the latest, if it is saved.
    pub(super) fn saved_for_cloud(&self) -> Option<u64> {
        (self.is_due() && self.saved == self.latest).then_some(self.latest)
    }

    /// The same of a content that is ahead of the disk.
    pub(super) fn ahead_for_cloud(&self) -> Option<u64> {
        let is_saving = self.is_saving() && self.saves_mark;
        let is_marked = self.is_marked || self.may_be_marked || is_saving;
        (self.is_due() && self.firm <= self.saved && !is_marked).then_some(self.latest)
    }

    /// The cloud is to get something of it, or to know that it is still so.
    pub(super) fn is_due(&self) -> bool {
        self.is_unsent() || self.is_repeated
    }

    /// The latest content, if it is on the disk, or on its way there, and the cloud does not have
    /// it.
    pub(super) fn content_for_cloud(&self) -> Option<u64> {
        let is_there = [self.saved, self.saving].contains(&self.latest);
        (is_there && self.is_unsent()).then_some(self.latest)
    }

    /// The cloud is to get this content, which has changed since, and may: it is what the disk has.
    /// If only actual values have changed, it gets the latest after the next save.
    pub(super) fn may_send_held(&self, content: u64) -> bool {
        self.saved == content && self.confirmed < self.firm.min(content)
    }

    /// Something is sent.
    pub(super) fn send(&mut self) {
        self.is_repeated = false;
    }

    /// The cloud has this content.
    pub(super) fn confirm(&mut self, content: u64) {
        self.confirmed = self.confirmed.max(content);
    }
}

#[cfg(test)]
mod tests {
    use super::Firmness::{Firm, Repeated};
    use super::*;

    fn save(progress: &mut Progress) -> bool {
        let is_marked = progress.begin_save(true);
        progress.end_save(true);
        is_marked
    }

    /// What may be sent.
    fn sendable(progress: &Progress) -> Option<u64> {
        progress.saved_for_cloud().or_else(|| progress.ahead_for_cloud())
    }

    /// A row that the cloud has, and that is saved so.
    fn confirmed() -> Progress {
        let mut row = Progress::new();
        save(&mut row);
        row.confirm(1);
        save(&mut row);
        assert!(!row.needs_save(true) && sendable(&row).is_none());
        row
    }

    #[test]
    fn a_firm_change_is_sent_only_when_it_is_saved() {
        let mut row = Progress::new();
        assert!(row.needs_save(true) && sendable(&row).is_none());
        assert!(row.begin_save(true) && sendable(&row).is_none());
        row.end_save(false);
        assert!(row.needs_save(true) && sendable(&row).is_none(), "the save has failed");
        assert!(save(&mut row) && sendable(&row) == Some(1) && !row.needs_save(true));
        let mut row = confirmed();
        row.change(Firm);
        assert_eq!(sendable(&row), None);
        row.change(Repeated);
        assert_eq!(sendable(&row), None, "the firm change goes with it");
        save(&mut row);
        assert_eq!(sendable(&row), Some(3));
    }

    #[test]
    fn a_value_is_sent_ahead_of_the_disk_unless_the_row_there_is_marked() {
        let mut row = confirmed();
        row.change(Repeated);
        assert_eq!((row.saved_for_cloud(), row.ahead_for_cloud()), (None, Some(2)));
        row.change(Repeated);
        assert_eq!(sendable(&row), Some(3), "and the next");
        assert!(!save(&mut row), "it is not marked");
        row.change(Repeated);
        // The link is away, so the row is marked.
        assert!(row.begin_save(false));
        row.change(Repeated);
        assert_eq!(sendable(&row), None, "the row on the disk may be marked");
        row.end_save(true);
        assert_eq!(sendable(&row), None, "it is");
        assert!(!save(&mut row));
        assert_eq!(sendable(&row), Some(5));
    }

    #[test]
    fn a_save_that_failed_may_have_marked_the_row_nevertheless() {
        let mut row = confirmed();
        row.change(Repeated);
        assert!(row.begin_save(false));
        row.end_save(false);
        row.change(Repeated);
        assert!(row.needs_save(true) && sendable(&row).is_none());
        row.confirm(3);
        assert!(row.needs_save(true), "nobody knows what the disk has");
        assert!(!save(&mut row));
        row.change(Repeated);
        assert_eq!(sendable(&row), Some(4));
    }

    #[test]
    fn a_value_is_marked_when_the_link_goes_and_a_firm_change_until_it_is_confirmed() {
        let mut row = confirmed();
        row.change(Repeated);
        save(&mut row);
        assert!(!row.needs_save(true) && row.needs_save(false));
        row.confirm(2);
        assert!(!row.needs_save(false), "the cloud has it");
        row.change(Firm);
        row.change(Repeated);
        assert!(save(&mut row));
        row.confirm(3);
        assert!(row.needs_save(true) && !save(&mut row), "only the value is not confirmed");
    }

    #[test]
    fn a_confirmation_of_an_older_content_leaves_the_mark() {
        let mut row = Progress::new();
        save(&mut row);
        row.change(Firm);
        row.confirm(1);
        assert!(row.is_unsent());
        assert!(save(&mut row), "it is marked");
        row.confirm(2);
        assert!(!row.is_unsent() && row.needs_save(true), "the mark is to be removed");
        assert!(!save(&mut row) && !row.needs_save(true));
    }

    #[test]
    fn a_change_for_the_node_alone_is_saved_and_not_sent() {
        let mut row = Progress::stored(false);
        row.change_here();
        assert!(row.needs_save(true) && !row.is_unsent());
        save(&mut row);
        assert_eq!(sendable(&row), None);
        row.repeat();
        assert_eq!(sendable(&row), Some(2), "it may be repeated");
        row.send();
        assert_eq!(sendable(&row), None);
    }

    #[test]
    fn a_content_that_changed_while_it_was_saved_is_saved_again() {
        let mut row = Progress::new();
        row.begin_save(true);
        row.change(Firm);
        row.end_save(true);
        assert!(row.needs_save(true) && sendable(&row).is_none());
    }
}
