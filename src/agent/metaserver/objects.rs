//! The objects that MetaServer keeps in memory, what was deleted of them lately, and which rows of
//! them the store has.
//!
//! An object never goes back: the greater `resourceVersion` stays, and what was deleted does not
//! come back with a late message.
//!
//! Changes come in another order than the API server made them: messages are sent again, and rows
//! of the store may lack what is older than they are. So each change has a position, which grows:
//! its version, or else a number that is greater than all before. A watch goes on from a position.
//!
//! A row is written when the object's meaning changes, not when its version does.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits::{METASERVER_OBJECTS_MAX, METASERVER_SAVE_ROWS_MAX, METASERVER_WINDOW};
use crate::model::application::{Gvr, Item, Scope};
use crate::model::map::{Map, Set};
use crate::model::metaserver::{RowChange, StoredItem};

/// Namespace and name.
pub(super) type Name = (Box<str>, Box<str>);

pub(super) fn name_of(item: &Item) -> Name {
    (item.namespace.clone(), item.name.clone())
}

/// A change of an object; both are present where it was changed.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Its position; 0: it is not a change, but what there is.
    pub position: u64,
    pub old: Option<Arc<Item>>,
    pub new: Option<Arc<Item>>,
}

/// The result of [`Objects::put`].
#[derive(Debug)]
pub(super) enum Put {
    Changed(Change),
    /// This version is known, or a later one.
    Known,
    /// There is no room for it.
    NoRoom,
}

#[derive(Debug)]
pub(super) struct Objects {
    tables: Map<Gvr, Table>,
    count: usize,
    bytes: usize,
    bytes_max: usize,
    /// What may have to be written.
    dirty: Set<(Gvr, Name)>,
    /// Rows of objects that are not kept any more.
    gone: Set<(Gvr, Name)>,
    /// The save under way: the digests that its rows get; `None`: they are deleted.
    saving: Vec<(Gvr, Name, Option<u64>)>,
}

#[derive(Debug, Default)]
struct Table {
    objects: Map<Name, Held>,
    /// What objects were before they were deleted, or their labels changed; the oldest first.
    window: VecDeque<Past>,
    /// The window has all such changes after this position.
    window_from: u64,
    /// The greatest position of all changes.
    version: u64,
    /// The last position that is no version.
    invented: u64,
}

/// What an object was before the change of this position.
#[derive(Debug)]
struct Past {
    position: u64,
    item: Arc<Item>,
    is_deleted: bool,
}

#[derive(Debug)]
struct Held {
    item: Arc<Item>,
    /// Of its last change.
    position: u64,
    /// The digest of its row; `None`: there is none.
    row: Option<u64>,
    /// A client has asked for this one: it is stored.
    is_wanted: bool,
}

impl Objects {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            tables: Map::new(),
            count: 0,
            bytes: 0,
            bytes_max,
            dirty: Set::new(),
            gone: Set::new(),
            saving: Vec::new(),
        }
    }

    /// Takes an object of the store.
    pub(super) fn load(&mut self, gvr: &Gvr, stored: &StoredItem) {
        let item = &stored.item;
        if self.lacks_room(item.text.len(), None) {
            return;
        }
        let table = self.tables.entry(gvr.clone()).or_default();
        let row = stored.has_row.then_some(item.digest);
        // Of two rows the newer one is right; only one of them is of `meta_v2`.
        let before = table.objects.get(&name_of(item));
        let row = row.or_else(|| before.and_then(|held| held.row));
        if let Some(held) = before.filter(|held| held.item.version >= item.version) {
            let item = held.item.clone();
            let held = Held { position: item.version, item, row, is_wanted: row.is_some() };
            table.objects.insert(name_of(&held.item), held);
            return;
        }
        let (item, position) = (item.clone(), item.version);
        let held = Held { item: item.clone(), position, row, is_wanted: row.is_some() };
        self.bytes += item.text.len();
        match table.objects.insert(name_of(&item), held) {
            Some(old) => self.bytes -= old.item.text.len(),
            None => self.count += 1,
        }
        table.version = table.version.max(item.version);
        table.window_from = table.version;
    }

    fn lacks_room(&self, bytes: usize, old: Option<&Item>) -> bool {
        let old_bytes = old.map_or(0, |old| old.text.len());
        self.bytes - old_bytes + bytes > self.bytes_max
            || (old.is_none() && self.count >= METASERVER_OBJECTS_MAX)
    }

    /// Takes an object of the cloud.
    pub(super) fn put(&mut self, gvr: &Gvr, item: &Arc<Item>) -> Put {
        let name = name_of(item);
        let found = self.tables.get(gvr);
        let old = found.and_then(|table| table.objects.get(&name)).map(|held| held.item.clone());
        match &old {
            Some(old) if old.version >= item.version => return Put::Known,
            None if found.is_some_and(|table| table.knows(item)) => return Put::Known,
            Some(_) | None => {}
        }
        if self.lacks_room(item.text.len(), old.as_deref()) {
            return Put::NoRoom;
        }
        let place = (gvr.clone(), name);
        let table = self.tables.entry(gvr.clone()).or_default();
        let position = table.next_position(item.version);
        if let Some(held) = table.objects.get_mut(&place.1) {
            self.bytes -= held.item.text.len();
            (held.item, held.position) = (item.clone(), position);
        } else {
            self.count += 1;
            // Its row may still be there, with other content.
            let row = self.gone.remove(&place).then_some(!item.digest);
            let held = Held { item: item.clone(), position, row, is_wanted: false };
            table.objects.insert(place.1.clone(), held);
        }
        self.bytes += item.text.len();
        if let Some(old) = &old {
            let is_deleted = old.uid != item.uid;
            if is_deleted || old.labels != item.labels {
                table.remember(position, old, is_deleted);
            }
        }
        self.dirty.insert(place);
        Put::Changed(Change { position, old, new: Some(item.clone()) })
    }

    /// A client has asked for this object alone: it is stored.
    pub(super) fn want(&mut self, gvr: &Gvr, name: &Name) {
        let held = self.tables.get_mut(gvr).and_then(|table| table.objects.get_mut(name));
        if let Some(held) = held.filter(|held| !held.is_wanted) {
            held.is_wanted = true;
            self.dirty.insert((gvr.clone(), name.clone()));
        }
    }

    /// Removes an object that was deleted. `uid` empty: whichever has the name. `version`: of its
    /// deletion; 0: not known.
    pub(super) fn remove(
        &mut self,
        gvr: &Gvr,
        name: &Name,
        uid: &str,
        version: u64,
    ) -> Option<Change> {
        self.take_out(gvr, name, uid, version, true)
    }

    /// Removes an object that is not what it was any more: a list of its labels does not have it,
    /// so that it may have others now, with which it comes again. `version`: of the list.
    pub(super) fn remove_left(&mut self, gvr: &Gvr, item: &Item, version: u64) -> Option<Change> {
        self.take_out(gvr, &name_of(item), &item.uid, version, false)
    }

    fn take_out(
        &mut self,
        gvr: &Gvr,
        name: &Name,
        uid: &str,
        version: u64,
        is_deleted: bool,
    ) -> Option<Change> {
        let table = self.tables.get_mut(gvr)?;
        let held = table.objects.get(name)?;
        if !uid.is_empty() && *held.item.uid != *uid {
            return None;
        }
        let held = table.objects.remove(name)?;
        let position = table.next_position(version);
        table.remember(position, &held.item, is_deleted);
        self.forget(gvr, name, &held);
        Some(Change { position, old: Some(held.item), new: None })
    }

    /// Remembers the deletion of an object that is not held. Which selections it was in is not
    /// known, so a watch that goes on from an older version gets 410 Gone. Returns the version of
    /// the deletion; `None`: it was remembered before, or the name has another object now.
    pub(super) fn remember_unheld(
        &mut self,
        gvr: &Gvr,
        name: &Name,
        uid: &str,
        version: u64,
    ) -> Option<u64> {
        let table = self.tables.entry(gvr.clone()).or_default();
        let is_it = |past: &Past| {
            past.is_deleted
                && name_of(&past.item) == *name
                && (uid.is_empty() || *past.item.uid == *uid)
                && past.position >= version
        };
        if table.objects.contains_key(name) || table.window.iter().any(is_it) {
            return None;
        }
        let version = if version > 0 { version } else { table.version + 1 };
        table.version = table.version.max(version);
        table.window_from = table.window_from.max(version);
        Some(version)
    }

    fn forget(&mut self, gvr: &Gvr, name: &Name, held: &Held) {
        self.count -= 1;
        self.bytes -= held.item.text.len();
        let place = (gvr.clone(), name.clone());
        if held.row.is_some() || self.saving.iter().any(|it| it.0 == *gvr && it.1 == *name) {
            self.dirty.insert(place.clone());
            self.gone.insert(place);
        }
    }

    /// Makes room: forgets the objects that nobody asks for. Their rows go as well.
    pub(super) fn retain(&mut self, is_needed: impl Fn(&Gvr, &Item) -> bool) {
        let mut dropped = Vec::new();
        for (gvr, table) in &mut self.tables {
            let names: Vec<Name> = table
                .objects
                .iter()
                .filter(|(_, held)| !is_needed(gvr, &held.item))
                .map(|(name, _)| name.clone())
                .collect();
            for name in names {
                if let Some(held) = table.objects.remove(&name) {
                    dropped.push((gvr.clone(), name, held));
                }
            }
        }
        for (gvr, name, held) in dropped {
            self.forget(&gvr, &name, &held);
        }
    }

    pub(super) fn get(&self, gvr: &Gvr, name: &Name) -> Option<&Arc<Item>> {
        Some(&self.tables.get(gvr)?.objects.get(name)?.item)
    }

    /// The objects of a scope, by namespace and name.
    pub(super) fn of<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Arc<Item>> {
        let table = self.tables.get(&scope.gvr);
        let all = table.into_iter().flat_map(|table| table.objects.values());
        all.map(|held| &held.item).filter(|item| scope.has(item))
    }

    /// The greatest version that is known of a resource.
    pub(super) fn version(&self, gvr: &Gvr) -> u64 {
        self.tables.get(gvr).map_or(0, |table| table.version)
    }

    /// A whole list has this version.
    pub(super) fn listed(&mut self, gvr: &Gvr, version: u64) {
        let table = self.tables.entry(gvr.clone()).or_default();
        table.version = table.version.max(version);
    }

    /// What has changed in a scope after a version: objects that are in it, and what left it.
    /// `None`: not all of that is known any more.
    pub(super) fn since(&self, scope: &Scope, version: u64) -> Option<Vec<Change>> {
        let Some(table) = self.tables.get(&scope.gvr) else { return Some(Vec::new()) };
        if version < table.window_from {
            return None;
        }
        let is_later = |of: u64| of > version || (of == version && version == table.invented);
        let mut changes = Vec::new();
        for Past { item: old, .. } in table.window.iter().filter(|past| is_later(past.position)) {
            let now = table.objects.get(&name_of(old)).map(|held| &held.item);
            let is_in = now.is_some_and(|now| now.uid == old.uid && scope.has(now));
            if scope.has(old) && !is_in {
                changes.push(Change { position: 0, old: Some(old.clone()), new: None });
            }
        }
        let mut changed: Vec<&Held> = table.objects.values().collect();
        changed.retain(|held| is_later(held.position) && scope.has(&held.item));
        let there = |held: &Held| Change { position: 0, old: None, new: Some(held.item.clone()) };
        changes.extend(changed.into_iter().map(there));
        Some(changes)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn rows(&self) -> usize {
        let all = self.tables.values().flat_map(|table| table.objects.values());
        all.filter(|held| held.row.is_some()).count()
    }

    /// The resource whose objects are of this kind, in lower case, and have this name and uid.
    pub(super) fn find(&self, name: &Name, uid: &str, gvrs: &[&Gvr]) -> Option<Gvr> {
        let has = |gvr: &&&Gvr| self.get(gvr, name).is_some_and(|item| *item.uid == *uid);
        gvrs.iter().find(has).or(gvrs.first()).map(|gvr| (*gvr).clone())
    }

    // ---- rows ----

    /// Rows of these objects are to be stored.
    pub(super) fn mark_dirty(&mut self, scope: &Scope) {
        let names: Vec<Name> = self.of(scope).map(|item| name_of(item)).collect();
        self.dirty.extend(names.into_iter().map(|name| (scope.gvr.clone(), name)));
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The rows that differ from what is stored. `is_kept`: whether the object has a row.
    pub(super) fn begin_save(&mut self, is_kept: impl Fn(&Gvr, &Item) -> bool) -> Vec<RowChange> {
        assert!(self.saving.is_empty(), "one save after the other");
        let mut changes = Vec::new();
        let mut dirty = std::mem::take(&mut self.dirty).into_iter();
        while changes.len() < METASERVER_SAVE_ROWS_MAX
            && let Some((gvr, name)) = dirty.next()
        {
            let held = self.tables.get(&gvr).and_then(|table| table.objects.get(&name));
            match held {
                Some(held) => {
                    let is_stored = held.is_wanted || held.row.is_some();
                    if held.row != Some(held.item.digest)
                        && (is_stored || is_kept(&gvr, &held.item))
                    {
                        changes.push(RowChange::Put(gvr.clone(), held.item.clone()));
                        self.saving.push((gvr, name, Some(held.item.digest)));
                    }
                }
                None if !self.gone.contains(&(gvr.clone(), name.clone())) => {}
                None => {
                    changes.push(RowChange::Delete(gvr.key(&name.0, &name.1).into()));
                    self.saving.push((gvr, name, None));
                }
            }
        }
        self.dirty = dirty.collect();
        changes
    }

    /// The save under way has ended.
    pub(super) fn end_save(&mut self, is_saved: bool) {
        for (gvr, name, row) in std::mem::take(&mut self.saving) {
            if !is_saved {
                self.dirty.insert((gvr, name));
                continue;
            }
            let table = self.tables.get_mut(&gvr);
            match table.and_then(|table| table.objects.get_mut(&name)) {
                Some(held) => held.row = row,
                None if row.is_none() => drop(self.gone.remove(&(gvr, name))),
                None => {}
            }
        }
    }
}

impl Table {
    /// The position of a change of this version; 0: it has none.
    fn next_position(&mut self, version: u64) -> u64 {
        self.version = if version > self.version {
            version
        } else {
            self.invented = self.version + 1;
            self.invented
        };
        self.version
    }

    fn remember(&mut self, position: u64, old: &Arc<Item>, is_deleted: bool) {
        if self.window.len() == METASERVER_WINDOW
            && let Some(lost) = self.window.pop_front()
        {
            self.window_from = self.window_from.max(lost.position);
        }
        self.window.push_back(Past { position, item: old.clone(), is_deleted });
    }

    /// Whether this version of an object that is not held is over: the object was deleted after it,
    /// or was seen at it.
    fn knows(&self, item: &Item) -> bool {
        let until = |past: &Past| if past.is_deleted { past.position } else { past.item.version };
        let mut of_it = self.window.iter().filter(|past| past.item.uid == item.uid);
        of_it.any(|past| until(past) >= item.version)
    }
}
