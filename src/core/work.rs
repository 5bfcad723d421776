//! Outstanding work: what was requested and is not answered yet, each with its owner.
//!
//! An answer goes straight to the owner that its number belongs to; nobody is asked whether an
//! answer is theirs. Not persistent: after a crash nothing is outstanding.

use crate::model::map::Map;

/// The outstanding requests of one kind. Numbers begin with 1 and are never used twice.
#[derive(Debug)]
pub struct WorkBook<Id, Owner> {
    open: Map<Id, Owner>,
    last: u64,
}

impl<Id: Copy + Ord + From<u64>, Owner> WorkBook<Id, Owner> {
    /// Enters a request, and returns its number.
    pub fn begin(&mut self, owner: Owner) -> Id {
        self.last += 1;
        let id = Id::from(self.last);
        self.open.insert(id, owner);
        id
    }

    /// Removes an answered or cancelled request. `None`: it is not outstanding.
    pub fn end(&mut self, id: Id) -> Option<Owner> {
        self.open.remove(&id)
    }

    /// How many are outstanding.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// The owners, in the order of the requests.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.open.values()
    }

    /// Numbers and owners, in the order of the requests.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Owner)> {
        self.open.iter().map(|(id, owner)| (*id, owner))
    }

    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        self.open.values_mut()
    }
}

impl<Id, Owner> Default for WorkBook<Id, Owner> {
    fn default() -> Self {
        Self { open: Map::new(), last: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_owner_once_and_is_never_used_twice() {
        let mut book: WorkBook<u64, &str> = WorkBook::default();
        assert_eq!((book.begin("a"), book.begin("b")), (1, 2));
        assert_eq!(book.owners().collect::<Vec<_>>(), [&"a", &"b"]);
        assert_eq!(book.iter().collect::<Vec<_>>(), [(1, &"a"), (2, &"b")]);
        assert_eq!((book.end(2), book.end(2)), (Some("b"), None));
        assert_eq!(book.begin("c"), 3);
        assert_eq!(book.count(), 2);
    }
}
