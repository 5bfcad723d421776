//! One device: its properties, its state, and what the cloud has not confirmed of both.
//!
//! Intended behaviour: at most one message about the device is under way. It has the values as they
//! are, so a newer value is never overwritten by an older one. What is not confirmed is sent again,
//! three times in all; then it waits for a change, or for the next link.
//!
//! Actual values are sent before they are saved. So that none of them is older than what the cloud
//! has by its version, each save reserves versions: the row has a higher one than the twin, and
//! values up to it may be sent. After a power cut the row has an older value, and versions go on
//! from the reserved one.
//!
//! If we crash here: what the store has marked is sent after the next start. The actual value of
//! any other property is sent when it is next reported, changed or not, and not before: the cloud
//! may have a newer one than the store.

use std::sync::Arc;

use super::progress::{Firmness, Progress};
use super::twin::{self, Applied, Change, Delta, Synced};
use crate::core::time::{Instant, Now};
use crate::limits::{
    DEVICE_ATTRIBUTES_MAX, DEVICE_CONFIRM_MS, DEVICE_GATHER_MS, DEVICE_MESSAGE_MS,
    DEVICE_PROPERTIES_MAX, DEVICE_SENDS_MAX, TWIN_NAME_BYTES_MAX, TWIN_REFRESH_MS,
    TWIN_VALUE_BYTES_MAX, TWIN_VERSIONS_RESERVED,
};
use crate::model::device::{
    Attribute, AttributeChanges, Attributes, DeviceChange, DeviceId, DeviceObject, DeviceRow,
    DeviceState, DeviceUpstream, GivenTwin, Member, PropertyUpdate, Twin, TwinChange, TwinRow,
    TwinSide, Twins,
};
use crate::model::map::Map;

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    description: Box<str>,
    state: DeviceState,
    /// Of the row: description and state.
    progress: Progress,
    /// When the cloud was last told the state; 0: never.
    told_at: Instant,
    attributes: Attributes,
    /// Of their rows.
    attribute_rows: Progress,
    properties: Map<Box<str>, Property>,
    object: Option<Arc<DeviceObject>>,
    /// Of the row: the uid of its object, which may have been read by an earlier process.
    uid: Option<Box<str>>,
    upward: Upward,
}

#[derive(Debug)]
struct Property {
    twin: Twin,
    /// See [`TwinRow::desired`], if that is not the expected value.
    desired: Option<Box<str>>,
    /// It is the expected value. There may be thousands: this takes a fifth less memory.
    is_desired: bool,
    progress: Progress,
    /// The version of the actual value on the disk, and in the save under way.
    reserved: i64,
    reserving: i64,
    /// A content that is saved, or being saved, and that the twin has no more: the cloud gets it
    /// if the twin changes faster than it can be saved.
    held: Option<Box<(u64, Twin)>>,
    /// When the cloud was last told; 0: never.
    told_at: Instant,
    /// The cloud has confirmed something about it.
    is_introduced: bool,
    /// The actual value is as an earlier process has saved it: the cloud may have a newer one, and
    /// does not get it before it is reported.
    is_doubtful: bool,
}

/// The messages to the cloud about a device.
#[derive(Debug, Default)]
struct Upward {
    message: Option<Message>,
    /// Messages since the last confirmation or change.
    sends: u32,
    /// Not before this time.
    next_at: Instant,
    /// Until then it waits for what is being saved.
    gathers_until: Instant,
}

#[derive(Debug)]
struct Message {
    id: Box<str>,
    sent_at: Instant,
    contents: Contents,
}

/// The contents that a message has, as [`Progress`] counts them.
#[derive(Debug)]
enum Contents {
    State(u64),
    Twins(Vec<(Box<str>, u64)>),
}

/// What an update has changed, for those who are told.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// By property, the sides that were given; `None`: it was deleted.
    pub answers: Vec<(Box<str>, Option<Twin>)>,
    /// By property that has changed.
    pub changes: Vec<(Box<str>, TwinChange)>,
    pub attributes: AttributeChanges,
    pub change: Option<Change>,
}

impl Device {
    pub(super) fn new(description: &str) -> Self {
        let mut progress = Progress::new();
        // There is no state that the cloud needs.
        progress.confirm(1);
        Self {
            description: description.into(),
            state: DeviceState::default(),
            progress,
            told_at: Instant::default(),
            attributes: Attributes::new(),
            attribute_rows: Progress::stored(false),
            properties: Map::new(),
            object: None,
            uid: None,
            upward: Upward::default(),
        }
    }

    pub(super) fn stored(row: DeviceRow) -> Self {
        // EdgeCore has rows without a state: there is nothing to send.
        let is_unsent = row.is_unsent && !row.state.state.is_empty();
        Self {
            state: row.state,
            progress: Progress::stored(is_unsent),
            uid: row.uid,
            ..Self::new(&row.description)
        }
    }

    /// Takes a row of the store. Returns whether there was room for it.
    pub(super) fn load(&mut self, row: TwinRow) -> bool {
        let has_room = self.properties.len() < DEVICE_PROPERTIES_MAX
            || self.properties.contains_key(&row.property);
        if has_room {
            let TwinRow { property, twin, desired, is_unsent, is_doubtful, .. } = row;
            let mut loaded = Property {
                progress: Progress::stored(is_unsent),
                reserved: twin::actual_version(&twin),
                is_introduced: !is_unsent,
                is_doubtful: !is_unsent || is_doubtful,
                ..Property::new(twin)
            };
            if let Some(desired) = desired {
                loaded.set_desired(desired);
            }
            self.properties.insert(property, loaded);
        }
        has_room
    }

    /// Takes an attribute of the store.
    pub(super) fn load_attribute(&mut self, name: Box<str>, attribute: Attribute) {
        self.attributes.insert(name, attribute);
    }

    pub(super) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(super) fn object(&self) -> Option<&Arc<DeviceObject>> {
        self.object.as_ref()
    }

    /// It was made from an object, perhaps by an earlier process.
    pub(super) fn had_object(&self) -> bool {
        self.uid.is_some()
    }

    /// Whether this object has taken the place of the one that it was made from: one device was
    /// deleted, and another one has its name.
    pub(super) fn is_replaced_by(&self, object: &DeviceObject) -> bool {
        self.uid.as_ref().is_some_and(|uid| *uid != object.view.uid)
    }

    /// Whether this property has an expected value.
    pub(super) fn expects(&self, name: &str) -> bool {
        let expected = twin::live(self.existing(name)).and_then(|twin| twin.expected.as_ref());
        expected.is_some_and(|side| !side.text().is_empty())
    }

    pub(super) fn state(&self) -> &DeviceState {
        &self.state
    }

    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// The properties that are not deleted, by name; and whether the cloud has confirmed each.
    pub(super) fn properties(&self) -> impl Iterator<Item = (&str, &Twin, bool)> {
        let all = self.properties.iter().filter(|(_, property)| !property.twin.is_deleted());
        all.map(|(name, property)| (&**name, &property.twin, !property.progress.is_unsent()))
    }

    /// How many properties the cloud has not confirmed, and one for the state.
    pub(super) fn unconfirmed(&self) -> usize {
        let properties = self.properties.values();
        let unsent = properties.filter(|property| property.progress.is_unsent()).count();
        unsent + usize::from(self.progress.is_unsent())
    }

    /// How many properties it has, deleted ones included.
    pub(super) fn count(&self) -> usize {
        self.properties.len()
    }

    pub(super) fn member(&self, id: &DeviceId) -> Member {
        Member {
            id: id.clone(),
            description: self.description.clone(),
            state: self.state.clone(),
            attributes: self.attributes.clone(),
        }
    }

    /// The properties, without those that were deleted.
    pub(super) fn twins(&self) -> Twins {
        self.live().map(|(name, twin)| (name.clone(), twin.clone())).collect()
    }

    fn live(&self) -> impl Iterator<Item = (&Box<str>, &Twin)> {
        let all = self.properties.iter().map(|(name, property)| (name, &property.twin));
        all.filter(|(_, twin)| !twin.is_deleted())
    }

    /// See [`twin::delta`].
    pub(super) fn delta(&self) -> Option<Delta> {
        twin::delta(self.live())
    }

    fn existing(&self, name: &str) -> Option<&Twin> {
        self.properties.get(name).map(|property| &property.twin)
    }

    // ---- changes ----

    /// What a client or a mapper changes: all of it or nothing. `room`: how many properties more
    /// there may be.
    pub(super) fn update(
        &mut self,
        now: Now,
        updates: &[(Box<str>, PropertyUpdate)],
        room: usize,
    ) -> Result<Effects, &'static str> {
        let mut applied = Vec::new();
        let mut added = 0;
        for (name, update) in updates {
            twin::check_name(name)?;
            let result = twin::apply(self.existing(name), update, wall_ms(now))?;
            added += usize::from(result.is_some() && self.existing(name).is_none());
            applied.extend(result.map(|result| (name, result)));
        }
        if added > room.min(DEVICE_PROPERTIES_MAX.saturating_sub(self.properties.len())) {
            return Err(NO_ROOM);
        }
        let mut effects = Effects::default();
        for (name, Applied { twin, answer, change }) in applied {
            let has_actual = answer.as_ref().is_none_or(|answer| answer.actual.is_some());
            effects.answers.push((name.clone(), answer));
            let property = self.properties.get_mut(name).filter(|_| has_actual);
            let was_doubtful = property.is_some_and(|it| std::mem::take(&mut it.is_doubtful));
            match change {
                Change::Nothing => self.repeat(now, name, twin, was_doubtful),
                Change::Value | Change::Soon | Change::AtOnce => {
                    self.put(name, twin, change, &mut effects);
                }
            }
        }
        Ok(effects)
    }

    /// Only the times differ: the cloud is told now and then, and if it may have another value.
    fn repeat(&mut self, now: Now, name: &str, twin: Twin, was_doubtful: bool) {
        let property = self.properties.get_mut(name).expect("it exists");
        property.twin = twin;
        if is_old(now, &mut property.told_at) || was_doubtful {
            property.progress.repeat();
            self.upward.sends = 0;
        }
    }

    fn put(&mut self, name: &str, twin: Twin, change: Change, effects: &mut Effects) {
        let shown = |twin: &Twin| twin::live(Some(twin)).cloned();
        let current = shown(&twin);
        let last = if let Some(property) = self.properties.get_mut(name) {
            shown(&property.change(twin, change))
        } else {
            self.properties.insert(name.into(), Property::new(twin));
            None
        };
        effects.changes.push((name.into(), TwinChange { last, current }));
        effects.change = effects.change.max(Some(change));
        self.upward.sends = 0;
    }

    /// What the cloud changes by messages about twins.
    pub(super) fn sync(
        &mut self,
        now: Now,
        given: &[(Box<str>, GivenTwin)],
        mut room: usize,
    ) -> Effects {
        let mut effects = Effects::default();
        for (name, given) in given {
            let is_new = self.existing(name).is_none();
            if is_new && (room == 0 || self.properties.len() >= DEVICE_PROPERTIES_MAX) {
                continue;
            }
            match twin::sync(self.existing(name), given, wall_ms(now)) {
                Synced::Same => {}
                Synced::Changed(twin) => {
                    room = room.saturating_sub(usize::from(is_new));
                    self.put(name, twin, Change::AtOnce, &mut effects);
                }
                Synced::Refused => {
                    // What the node has goes up, with its versions.
                    if let Some(property) = self.properties.get_mut(name) {
                        property.progress.repeat();
                        self.upward.sends = 0;
                    }
                }
            }
        }
        effects
    }

    /// What the cloud changes of attributes. `room`: how many more there may be; those beyond are
    /// left out.
    pub(super) fn change_attributes(
        &mut self,
        changes: AttributeChanges,
        mut room: usize,
    ) -> Effects {
        let mut effects = Effects::default();
        for (name, attribute) in changes {
            let before = self.attributes.get(&name);
            let is_new = before.is_none();
            let is_full = room == 0 || self.attributes.len() >= DEVICE_ATTRIBUTES_MAX;
            if before == attribute.as_ref() || (is_new && is_full) {
                continue;
            }
            match &attribute {
                Some(attribute) => {
                    room = room.saturating_sub(usize::from(is_new));
                    self.attributes.insert(name.clone(), attribute.clone());
                }
                None => drop(self.attributes.remove(&name)),
            }
            effects.attributes.push((name, attribute));
            effects.change = Some(Change::AtOnce);
        }
        if effects.change.is_some() {
            self.attribute_rows.change_here();
        }
        effects
    }

    /// The cloud has this object. Desired values that have changed since the last object are
    /// expected from now on; others may have been changed here meanwhile, and stay.
    pub(super) fn take_object(
        &mut self,
        now: Now,
        object: &Arc<DeviceObject>,
        mut room: usize,
    ) -> Effects {
        let mut effects = Effects::default();
        if self.object.as_ref().is_some_and(|known| Arc::ptr_eq(known, object)) {
            return effects;
        }
        let view = &object.view;
        if self.uid.is_none() || self.description != view.description {
            self.description.clone_from(&view.description);
            self.uid = Some(view.uid.clone());
            self.progress.change_here();
            effects.change = Some(Change::AtOnce);
        }
        let cloud = view.version.parse().unwrap_or(0);
        for (name, value) in &object.desired() {
            let property = self.properties.get(name);
            let is_new = property.is_none();
            let seen = property.and_then(Property::desired);
            let fits = (1..=TWIN_NAME_BYTES_MAX).contains(&name.len())
                && value.len() <= TWIN_VALUE_BYTES_MAX
                && (!is_new || (room > 0 && self.properties.len() < DEVICE_PROPERTIES_MAX));
            if seen == Some(value) || (is_new && value.is_empty()) || !fits {
                continue;
            }
            let desired = twin::desire(self.existing(name), value, cloud, wall_ms(now));
            match desired.filter(|_| !value.is_empty()) {
                Some(twin) => {
                    room = room.saturating_sub(usize::from(is_new));
                    self.put(name, twin, Change::AtOnce, &mut effects);
                }
                None => effects.change = Some(Change::AtOnce),
            }
            let property = self.properties.get_mut(name).expect("it exists, or was just added");
            property.set_desired(value.clone());
            property.progress.change_here();
        }
        self.properties.shrink_to_fit();
        self.object = Some(object.clone());
        effects
    }

    /// Returns when it has to be saved: the first state at once, because whoever has made a device
    /// waits for it.
    pub(super) fn set_state(&mut self, now: Now, state: DeviceState) -> Change {
        let is_same = self.state.state == state.state;
        let is_first = self.state.state.is_empty();
        self.state = state;
        if !is_same {
            self.progress.change(Firmness::Firm);
            self.upward.sends = 0;
            return if is_first { Change::AtOnce } else { Change::Soon };
        }
        if is_old(now, &mut self.told_at) {
            self.progress.repeat();
            self.upward.sends = 0;
        }
        Change::Nothing
    }

    // ---- the store ----

    /// Something differs from its rows on the disk. `is_linked`: there is a link to the cloud.
    pub(super) fn needs_save(&self, is_linked: bool) -> bool {
        let rows = self.properties.values().map(|property| &property.progress);
        let own = [&self.progress, &self.attribute_rows];
        own.into_iter().chain(rows).any(|row| row.needs_save(is_linked))
    }

    /// The cloud waits for a property that must be saved before it is sent.
    pub(super) fn is_blocked(&self) -> bool {
        let is_blocked = |it: &Property| it.progress.is_due() && it.sendable().is_none();
        self.properties.values().any(is_blocked)
    }

    /// Starts to save what differs.
    pub(super) fn begin_save(
        &mut self,
        id: &DeviceId,
        is_linked: bool,
        changes: &mut Vec<DeviceChange>,
    ) {
        if self.progress.needs_save(is_linked) {
            let is_unsent = self.progress.begin_save(is_linked);
            changes.push(DeviceChange::PutDevice(DeviceRow {
                id: id.clone(),
                description: self.description.clone(),
                state: self.state.clone(),
                is_unsent,
                uid: self.uid.clone(),
            }));
        }
        if self.attribute_rows.needs_save(is_linked) {
            self.attribute_rows.begin_save(is_linked);
            changes.push(DeviceChange::PutAttributes(id.clone(), self.attributes.clone()));
        }
        for (name, property) in &mut self.properties {
            if property.progress.needs_save(is_linked) {
                let is_unsent = property.progress.begin_save(is_linked);
                let twin = twin::with_reserved(&property.twin, TWIN_VERSIONS_RESERVED);
                property.reserving = twin::actual_version(&twin);
                changes.push(DeviceChange::PutTwin(Box::new(TwinRow {
                    device: id.clone(),
                    property: name.clone(),
                    twin,
                    is_unsent,
                    is_doubtful: is_unsent && property.is_doubtful,
                    desired: property.desired().map(Into::into),
                })));
            }
        }
    }

    pub(super) fn end_save(&mut self, is_saved: bool) {
        self.progress.end_save(is_saved);
        self.attribute_rows.end_save(is_saved);
        for property in self.properties.values_mut() {
            if is_saved && property.progress.is_saving() {
                property.reserved = property.reserving;
            }
            property.progress.end_save(is_saved);
        }
    }

    // ---- the cloud ----

    /// The link is new: nothing is under way, and everything may be sent. What is not saved is
    /// saved first, so that the cloud gets the latest values, and only these.
    pub(super) fn link_up(&mut self, now: Now) {
        let gathers_until = now.boot.plus_ms(DEVICE_GATHER_MS);
        self.upward = Upward { gathers_until, ..Upward::default() };
        for property in self.properties.values_mut() {
            property.held = None;
        }
    }

    /// The report that is due now.
    pub(super) fn report(&self, now: Now, id: &DeviceId) -> Option<DeviceUpstream> {
        if self.report_at().is_none_or(|at| at > now.boot) {
            return None;
        }
        if self.progress.saved_for_cloud().is_some() {
            return Some(DeviceUpstream::State(id.clone(), self.state.clone()));
        }
        let due = self.properties.iter();
        let twins = due.filter_map(|(name, it)| Some((name.clone(), it.for_cloud()?)));
        Some(DeviceUpstream::Twins(id.clone(), twins.collect()))
    }

    /// When a report is due; `None`: nothing is to be sent.
    pub(super) fn report_at(&self) -> Option<Instant> {
        let mut all = self.properties.values();
        let has_state = self.progress.saved_for_cloud().is_some();
        let waits = has_state || all.any(|it| it.sendable().is_some());
        if !waits || self.upward.sends >= DEVICE_SENDS_MAX {
            return None;
        }
        let confirmed_by = |message: &Message| message.sent_at.plus_ms(DEVICE_CONFIRM_MS);
        let free_at = self.upward.message.as_ref().map_or(Instant::default(), confirmed_by);
        let at = free_at.max(self.upward.next_at);
        let gathers = at < self.upward.gathers_until && self.is_blocked();
        Some(if gathers { self.upward.gathers_until } else { at })
    }

    /// The report of [`Device::report`] was sent as the message of this id.
    pub(super) fn sent(&mut self, now: Now, message: Box<str>) {
        let contents = if let Some(content) = self.progress.saved_for_cloud() {
            self.told_at = now.boot;
            self.progress.send();
            Contents::State(content)
        } else {
            let due = self.properties.iter_mut().filter_map(|(name, property)| {
                let (content, _) = property.sendable()?;
                property.told_at = now.boot;
                property.progress.send();
                Some((name.clone(), content))
            });
            Contents::Twins(due.collect())
        };
        let (sent_at, next_at) = (now.boot, now.boot.plus_ms(DEVICE_MESSAGE_MS));
        let message = Some(Message { id: message, sent_at, contents });
        let sends = self.upward.sends + 1;
        self.upward = Upward { message, sends, next_at, ..Upward::default() };
    }

    /// The cloud has what the message of this id said. Returns whether there is such a message.
    pub(super) fn confirmed(&mut self, message: &str) -> bool {
        let Some(Message { contents, .. }) =
            self.upward.message.take_if(|under_way| *under_way.id == *message)
        else {
            return false;
        };
        self.upward.sends = 0;
        match contents {
            Contents::State(content) => self.progress.confirm(content),
            Contents::Twins(twins) => {
                for (name, content) in twins {
                    if let Some(property) = self.properties.get_mut(&name) {
                        property.confirm(content);
                    }
                }
            }
        }
        true
    }
}

impl Property {
    fn new(twin: Twin) -> Self {
        Self {
            twin,
            desired: None,
            is_desired: false,
            progress: Progress::new(),
            reserved: 0,
            reserving: 0,
            held: None,
            told_at: Instant::default(),
            is_introduced: false,
            is_doubtful: false,
        }
    }

    /// The cloud has this content. CloudCore from 1.17 on records nothing of the first message that
    /// names a property, and confirms it (section 3 of spec `devices`): it is told again.
    fn confirm(&mut self, content: u64) {
        self.progress.confirm(content);
        if !std::mem::replace(&mut self.is_introduced, true) {
            self.progress.repeat();
        }
    }

    /// See [`TwinRow::desired`].
    fn desired(&self) -> Option<&str> {
        if self.is_desired { Some(expected(&self.twin)) } else { self.desired.as_deref() }
    }

    fn set_desired(&mut self, value: Box<str>) {
        self.is_desired = *value == *expected(&self.twin);
        self.desired = (!self.is_desired).then_some(value);
    }

    /// Returns the twin before.
    fn change(&mut self, twin: Twin, change: Change) -> Twin {
        if self.is_desired && expected(&twin) != expected(&self.twin) {
            (self.desired, self.is_desired) = (Some(expected(&self.twin).into()), false);
        }
        let before = std::mem::replace(&mut self.twin, twin);
        if let Some(content) = self.progress.content_for_cloud() {
            self.held = Some(Box::new((content, before.clone())));
        }
        self.progress.change(match change {
            Change::Value => Firmness::Repeated,
            Change::Nothing | Change::Soon | Change::AtOnce => Firmness::Firm,
        });
        before
    }

    /// What the cloud gets now.
    fn for_cloud(&self) -> Option<Twin> {
        let (_, twin) = self.sendable()?;
        let actual = twin.actual.clone().filter(|_| !self.is_doubtful);
        Some(Twin { actual, ..twin.clone() })
    }

    /// What the cloud may get now, and its content.
    fn sendable(&self) -> Option<(u64, &Twin)> {
        let has_version = twin::actual_version(&self.twin) <= self.reserved;
        let ahead = self.progress.ahead_for_cloud().filter(|_| has_version);
        if let Some(content) = self.progress.saved_for_cloud().or(ahead) {
            return Some((content, &self.twin));
        }
        let (content, twin) = self.held.as_deref()?;
        self.progress.may_send_held(*content).then_some((*content, twin))
    }
}

/// The expected value; empty: there is none.
fn expected(twin: &Twin) -> &str {
    twin.expected.as_ref().map_or("", TwinSide::text)
}

/// Why a property is refused.
const NO_ROOM: &str = "the device, or the node, has as many properties as it may have";

/// Whether the cloud was told so long ago that it is told again; what it was never told of by this
/// process counts from now on.
fn is_old(now: Now, told_at: &mut Instant) -> bool {
    if *told_at == Instant::default() {
        *told_at = now.boot;
    }
    now.boot.since_ms(*told_at) >= TWIN_REFRESH_MS
}

/// Milliseconds since the epoch; 0: not known.
pub(super) fn wall_ms(now: Now) -> i64 {
    now.wall.map_or(0, |wall| wall.0)
}
