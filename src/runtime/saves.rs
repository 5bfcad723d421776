//! Batches of saves: one is under way at a time, so that an answer says which one it means.

/// Between a batch's request and its answer.
#[derive(Debug, Default)]
pub struct Saves {
    /// Changes in the batch under way; 0: none is.
    sent: usize,
    /// After a batch failed: so many changes go alone, so that one which can never be saved (a
    /// record that is too large) fails by itself.
    alone: usize,
}

impl Saves {
    /// How many changes may be requested now.
    pub fn room(&self) -> usize {
        match (self.sent, self.alone) {
            (0, 0) => usize::MAX,
            (0, _) => 1,
            (_, _) => 0,
        }
    }

    /// So many were requested.
    pub fn sent(&mut self, count: usize) {
        self.sent = count;
    }

    pub fn saved(&mut self) {
        self.alone = self.alone.saturating_sub(self.sent);
        self.sent = 0;
    }

    /// Whether the changes of the batch are to be requested again.
    pub fn not_saved(&mut self) -> bool {
        let again = self.sent > 1;
        self.alone = if again { self.sent } else { self.alone.saturating_sub(1) };
        self.sent = 0;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_failed_is_tried_again_one_by_one() {
        let mut saves = Saves::default();
        assert_eq!(saves.room(), usize::MAX);
        saves.sent(3);
        assert_eq!(saves.room(), 0);
        assert!(saves.not_saved());
        for is_saved in [true, false, true] {
            assert_eq!(saves.room(), 1);
            saves.sent(1);
            if is_saved {
                saves.saved();
            } else {
                assert!(!saves.not_saved());
            }
        }
        assert_eq!(saves.room(), usize::MAX);
    }
}
