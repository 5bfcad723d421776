//! Messages of MQTT clients for applications in the cloud, on their way through KubeEdge's router.
//!
//! ```text
//!  PUBLISH ─▶ waiting ──handed over──▶ under way ──left──▶ gone
//!                ▲                        │ link lost
//!                └────────────────────────┘
//! ```
//!
//! Intended behaviour: in the order of their arrival, and each until it has left the node. The
//! cloud confirms none, so what is in a connection that breaks may be lost, and what had partly
//! left may come twice. While the link is away the newest stay; the oldest are dropped and counted.
//!
//! If we crash here: they are lost. They are in memory only, because flash wears out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits::{UPLOAD_BYTES_MAX, UPLOADS_MAX, UPLOADS_UNDER_WAY_BYTES};
use crate::model::device::Upload;

#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Those under way come first.
    queue: VecDeque<Arc<Upload>>,
    bytes: usize,
    /// The numbers of the messages under way, as the link counts them.
    under_way: VecDeque<u64>,
    under_way_bytes: usize,
    pub sent: u64,
    pub dropped: u64,
    /// Dropped since the last line in the log.
    unlogged: u64,
}

impl Uploads {
    /// Returns whether this is the first one that is dropped for want of room.
    pub(super) fn push(&mut self, upload: Upload) -> bool {
        self.bytes += upload.bytes();
        self.queue.push_back(Arc::new(upload));
        let before = self.unlogged;
        // The oldest that waits; the newest stays, whatever its size.
        while (self.queue.len() > UPLOADS_MAX || self.bytes > UPLOAD_BYTES_MAX)
            && self.queue.len() > self.under_way.len() + 1
        {
            let oldest = self.queue.remove(self.under_way.len()).expect("there are more");
            self.bytes -= oldest.bytes();
            self.dropped += 1;
            self.unlogged += 1;
        }
        before == 0 && self.unlogged > 0
    }

    /// The next one to be sent, if another may be under way.
    pub(super) fn next(&self) -> Option<&Arc<Upload>> {
        let next = self.queue.get(self.under_way.len())?;
        let fits = self.under_way_bytes + next.bytes() <= UPLOADS_UNDER_WAY_BYTES;
        (fits || self.under_way.is_empty()).then_some(next)
    }

    /// That one is the message of this number.
    pub(super) fn handed_over(&mut self, number: u64) {
        self.under_way_bytes += self.queue[self.under_way.len()].bytes();
        self.under_way.push_back(number);
    }

    /// All messages up to this number have left.
    pub(super) fn left(&mut self, number: u64) {
        while self.under_way.front().is_some_and(|first| *first <= number) {
            self.under_way.pop_front();
            let gone = self.queue.pop_front().expect("it is under way");
            self.bytes -= gone.bytes();
            self.under_way_bytes -= gone.bytes();
            self.sent += 1;
        }
    }

    /// The link is new. Returns how many were dropped since the last time.
    pub(super) fn link_up(&mut self) -> u64 {
        self.under_way.clear();
        self.under_way_bytes = 0;
        std::mem::take(&mut self.unlogged)
    }

    pub(super) fn count(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(text: &str, bytes: usize) -> Upload {
        Upload { topic: "a/user/x".into(), payload: (text.to_owned() + &" ".repeat(bytes)).into() }
    }

    fn texts(uploads: &Uploads) -> Vec<&str> {
        uploads.queue.iter().map(|upload| upload.payload.trim()).collect()
    }

    fn filled() -> Uploads {
        let mut uploads = Uploads::default();
        for at in 0..UPLOADS_MAX {
            assert!(!uploads.push(upload(&at.to_string(), 0)));
        }
        uploads
    }

    #[test]
    fn of_too_many_the_oldest_is_dropped_and_counted() {
        let mut uploads = filled();
        assert!(uploads.push(upload("more", 0)) && !uploads.push(upload("and more", 0)));
        assert_eq!((uploads.count(), uploads.dropped, texts(&uploads)[0]), (UPLOADS_MAX, 2, "2"));
        assert_eq!(uploads.link_up(), 2);
        assert_eq!(uploads.link_up(), 0, "it is logged once");
        assert!(uploads.push(upload("again", 0)), "a new time of want is logged anew");
    }

    #[test]
    fn bytes_count_as_well_and_a_single_one_always_has_room() {
        let mut uploads = filled();
        uploads.push(upload("large", UPLOAD_BYTES_MAX));
        assert_eq!((uploads.count(), texts(&uploads)[0]), (1, "large"));
        uploads.push(upload("small", 0));
        assert_eq!(texts(&uploads), ["small"]);
        assert_eq!(uploads.bytes, uploads.queue[0].bytes());
    }

    #[test]
    fn what_has_not_left_is_sent_again_in_order() {
        let mut uploads = Uploads::default();
        for text in ["a", "b", "c"] {
            uploads.push(upload(text, 0));
        }
        let sent = |uploads: &mut Uploads, number| {
            let next = uploads.next().expect("one waits").payload.clone();
            uploads.handed_over(number);
            next
        };
        assert_eq!(&*sent(&mut uploads, 5), "a");
        assert_eq!(&*sent(&mut uploads, 7), "b");
        uploads.left(6);
        assert_eq!((uploads.sent, texts(&uploads)), (1, vec!["b", "c"]));
        uploads.link_up();
        assert_eq!(&*sent(&mut uploads, 1), "b");
        assert_eq!(&*sent(&mut uploads, 2), "c");
        assert!(uploads.next().is_none());
        uploads.left(2);
        assert_eq!((uploads.sent, uploads.count(), uploads.bytes), (3, 0, 0));
        assert_eq!(uploads.under_way_bytes, 0);
    }

    #[test]
    fn so_many_bytes_are_under_way() {
        let mut uploads = Uploads::default();
        uploads.push(upload("a", UPLOADS_UNDER_WAY_BYTES));
        uploads.push(upload("b", 0));
        assert!(uploads.next().is_some(), "the first may have any size");
        uploads.handed_over(1);
        assert!(uploads.next().is_none());
        uploads.left(1);
        assert_eq!(uploads.next().map(|next| next.payload.trim()), Some("b"));
    }

    #[test]
    fn those_under_way_are_not_dropped() {
        let mut uploads = filled();
        uploads.handed_over(1);
        uploads.handed_over(2);
        uploads.push(upload("more", 0));
        assert_eq!(texts(&uploads)[..3], ["0", "1", "3"]);
    }
}
