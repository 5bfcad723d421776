//! How far the latest content of a row has come: to the disk, and to the cloud.
//!
//! ```text
//!  changed ──save──▶ saved ──send──▶ confirmed ──save──▶ its mark is removed
//! ```
//!
//! Intended behaviour: the cloud gets only what is saved, so that after a power cut it has nothing
//! newer than the node. The mark in the store says that the cloud does not have the content; it is
//! removed with the next save, not by a save of its own.
//!
//! If we crash here: what is marked is sent again, as it is then.

/// Contents are counted, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    latest: u64,
    saved: u64,
    /// Of the save under way: the content, and whether the row is marked with it.
    saving: Option<(u64, bool)>,
    confirmed: u64,
    is_marked: bool,
    /// The cloud has it, and is told that it is still so.
    is_repeated: bool,
}

impl Progress {
    /// A new row.
    pub(super) fn new() -> Self {
        Self { saved: 0, ..Self::stored(true) }
    }

    /// A row of the store.
    pub(super) fn stored(is_unsent: bool) -> Self {
        let confirmed = u64::from(!is_unsent);
        Self {
            latest: 1,
            saved: 1,
            saving: None,
            confirmed,
            is_marked: is_unsent,
            is_repeated: false,
        }
    }

    /// There is another content.
    pub(super) fn change(&mut self) {
        self.latest += 1;
    }

    /// There is another content, and the cloud needs none of it.
    pub(super) fn change_here(&mut self) {
        let is_unsent = self.is_unsent();
        self.latest += 1;
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

    /// The row on the disk differs.
    pub(super) fn needs_save(&self) -> bool {
        self.saved < self.latest || self.is_marked != self.is_unsent()
    }

    /// A save of the row begins. Returns whether it is marked.
    pub(super) fn begin_save(&mut self) -> bool {
        let is_unsent = self.is_unsent();
        self.saving = Some((self.latest, is_unsent));
        is_unsent
    }

    /// The save under way has ended.
    pub(super) fn end_save(&mut self, is_saved: bool) {
        if let Some((content, is_marked)) = self.saving.take().filter(|_| is_saved) {
            (self.saved, self.is_marked) = (content, is_marked);
        }
    }

    /// The cloud is to get it, and may.
    pub(super) fn may_send(&self) -> bool {
        (self.is_unsent() || self.is_repeated) && self.saved == self.latest
    }

    /// The latest content, if it is on the disk, or on its way there, and the cloud does not have
    /// it.
    pub(super) fn content_for_cloud(&self) -> Option<u64> {
        let saving = self.saving.map(|(content, _)| content);
        let is_there = self.saved == self.latest || saving == Some(self.latest);
        (is_there && self.is_unsent()).then_some(self.latest)
    }

    /// The cloud is to get this content, which has changed since, and may: it is what the disk has.
    pub(super) fn may_send_held(&self, content: u64) -> bool {
        self.saved == content && self.confirmed < content
    }

    /// What is saved is sent. Returns which content that is.
    pub(super) fn send(&mut self) -> u64 {
        self.is_repeated = false;
        self.saved
    }

    /// The cloud has this content.
    pub(super) fn confirm(&mut self, content: u64) {
        self.confirmed = self.confirmed.max(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(progress: &mut Progress) -> bool {
        let is_marked = progress.begin_save();
        progress.end_save(true);
        is_marked
    }

    #[test]
    fn only_what_is_saved_is_sent() {
        let mut row = Progress::new();
        assert!(row.needs_save() && !row.may_send());
        assert!(row.begin_save() && !row.may_send());
        row.end_save(false);
        assert!(row.needs_save() && !row.may_send(), "the save has failed");
        assert!(save(&mut row) && row.may_send() && !row.needs_save());
        row.change();
        assert!(!row.may_send(), "the latest is not saved");
    }

    #[test]
    fn a_confirmation_of_an_older_content_leaves_the_mark() {
        let mut row = Progress::new();
        save(&mut row);
        let sent = row.send();
        row.change();
        row.confirm(sent);
        assert!(row.is_unsent());
        assert!(save(&mut row), "it is marked");
        let sent = row.send();
        row.confirm(sent);
        assert!(!row.is_unsent() && row.needs_save(), "the mark is to be removed");
        assert!(!save(&mut row) && !row.needs_save());
    }

    #[test]
    fn a_change_for_the_node_alone_is_saved_and_not_sent() {
        let mut row = Progress::stored(false);
        row.change_here();
        assert!(row.needs_save() && !row.is_unsent());
        save(&mut row);
        assert!(!row.may_send());
        row.repeat();
        assert!(row.may_send(), "it may be repeated");
        row.send();
        assert!(!row.may_send());
    }

    #[test]
    fn a_content_that_changed_while_it_was_saved_is_saved_again() {
        let mut row = Progress::new();
        row.begin_save();
        row.change();
        row.end_save(true);
        assert!(row.needs_save() && !row.may_send());
    }
}
