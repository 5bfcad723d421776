//! The objects of the API server that concern a node, and what each node has of them.
//!
//! Every object knows which nodes want it (a pod's own node; for ConfigMaps and Secrets the nodes
//! of the pods that refer to them) and which hold it (there is a record). So a change of an object
//! finds its nodes without a walk, and what a node lacks is a pure function, [`Cache::due`], of the
//! object and the node's record of it. Objects that no node wants or holds are not kept.
//!
//! If we crash here: the lists bring back the objects, and the store the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Session;
use super::ack_log::AckLog;
use super::closed::ClosedRecords;
use super::key::{Key, NodeId, is_computed, is_of_devices};
use super::node::Node;
use super::object::{Object, Read};
use super::outbound::Membership;
use super::session::{Link, RequestedObject};
use super::time::Instant;
use super::watches::Listed;
use crate::limits::UNUSED_MS;
use crate::model::api::Kind;
use crate::model::cloud_message::CloudMessage;

/// Nodes, objects, and which node has what.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    names: BTreeMap<Arc<str>, NodeId>,
    last_node: u32,
    pub(super) objects: BTreeMap<Key, Entry>,
    /// Nodes with something to do.
    pub(super) ready: BTreeSet<NodeId>,
    /// Objects that a node wants and that have to be fetched.
    pub(super) fetch: BTreeSet<Key>,
    /// The same of objects that are made here.
    pub(super) compute: BTreeSet<Key>,
    pub(super) ack_log: AckLog,
    pub(super) closed: ClosedRecords,
    /// Nodes that were deleted in the API server.
    pub(super) orphans: BTreeSet<NodeId>,
    /// Nodes that may be deleted, and have records.
    pub(super) suspects: BTreeSet<NodeId>,
    /// Nodes whose objects have changed.
    pub(super) changed_nodes: BTreeSet<NodeId>,
    /// What is known of all devices.
    pub(super) devices: Listed,
    /// Models cannot be listed: no device waits for one that is not known.
    pub(super) are_models_unlisted: bool,
    /// Nodes that have registered: they may have lost what they listened to.
    pub(super) restarted: BTreeSet<NodeId>,
    /// Nodes have come into other node groups.
    pub(super) have_groups_changed: bool,
    /// Nodes that have registered: their clocks may begin anew.
    pub(super) registered: BTreeSet<NodeId>,
    /// Devices that were deleted, or taken from their nodes.
    pub(super) gone_devices: BTreeSet<Key>,
    /// Nodes that have connected, and whether each has registered: it has begun a new life.
    pub(super) arrived: BTreeMap<NodeId, bool>,
    /// The Secret that a job names, and the nodes that work on the job.
    pub(super) job_secrets: BTreeMap<Key, (Key, BTreeSet<Box<str>>)>,
    /// The nodes with each address.
    addresses: BTreeMap<Box<str>, BTreeSet<NodeId>>,
}

/// One object.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) live: Live,
    /// The nodes that want it, with the number of pods that need it.
    pub(super) wanted: BTreeMap<NodeId, u32>,
    /// The nodes with a record.
    pub(super) held: BTreeSet<NodeId>,
    /// The round of the last list in which it was and could not be parsed.
    unread: u32,
    /// It was fetched, and there was no answer.
    is_unanswered: bool,
    /// Of a device or a model: the object of this name that existed before, whose deletion carries
    /// it.
    last: Option<Box<Object>>,
}

/// Whether the object exists.
#[derive(Default)]
pub(super) enum Live {
    /// Not known: it is fetched when a node wants it.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Box<Object>),
}

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A list or a watch: in order and complete.
    Watch,
    /// The answer to a call: it may be older than what the watch has delivered since, up to this
    /// version.
    Call(u64),
}

/// What a node needs of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// The object.
    Put,
    /// Only the new version is noted: nothing has changed for the node.
    Learn,
    /// Its deletion.
    Delete,
}

impl Cache {
    /// The node of this name; it is created if it is not known.
    pub(super) fn node(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        self.last_node += 1;
        let (id, name) = (NodeId(self.last_node), Arc::from(name));
        self.names.insert(Arc::clone(&name), id);
        self.nodes.insert(id, Node::new(name));
        id
    }

    /// The node of this name, if it is known.
    pub(super) fn find(&self, name: &str) -> Option<&Node> {
        self.names.get(name).and_then(|id| self.nodes.get(id))
    }

    /// The number of a node, if it is known.
    pub(super) fn id_of(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The names of the nodes with this address, two at the most.
    pub(super) fn nodes_at(&self, address: &str) -> Vec<&str> {
        let ids = self.addresses.get(address).into_iter().flatten();
        ids.filter_map(|id| self.nodes.get(id)).map(|node| &*node.name).take(2).collect()
    }

    pub(super) fn at(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node with an id exists")
    }

    /// Removes a node of which nothing is left.
    pub(super) fn remove_if_idle(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        if node.is_idle() && !self.ack_log.concerns(id) {
            self.names.remove(&*node.name);
            self.nodes.remove(&id);
            self.ready.remove(&id);
        }
    }

    /// Adds or updates an object.
    pub(super) fn put(&mut self, now: Instant, read: Read, from: From) {
        let Read { key, object, is_edge } = read;
        match key.kind {
            Kind::Node if !is_edge => return self.deleted(now, &key, None),
            Kind::Node => {
                // An answer that is older than the watch must not bring back a deleted node.
                let is_late = matches!(from, From::Call(known) if object.version <= known);
                if is_late && !self.find(&key.name).is_some_and(|node| node.is_known) {
                    return;
                }
                let id = self.node(&key.name);
                self.at(id).is_known = true;
                self.becomes_edge(id);
            }
            Kind::Pod | Kind::Device => return self.put_bound(now, &key, object, from),
            _ => {}
        }
        self.store_object(&key, object, from);
    }

    fn put_bound(&mut self, now: Instant, key: &Key, object: Object, from: From) {
        let binding = object.binding().expect("its kind is bound to nodes");
        if binding.node.is_empty() && key.kind == Kind::Pod {
            return;
        }
        let (node, needs) = (Box::<str>::from(binding.node), binding.needs.clone());
        let unknown = matches!(self.objects.get(key), Some(Entry { live: Live::Unknown, .. }));
        let old = self.object(key);
        // Whether it still exists the watch knows better.
        let is_late = old.is_none_or(|old| old.uid != object.uid) && !unknown;
        if from != From::Watch && is_late || old.is_some_and(|old| old.version > object.version) {
            return;
        }
        if self.object(key).and_then(Object::binding).is_some_and(|old| *old.node != *node) {
            // A device that was moved; or another pod of this name, and the deletion of its
            // predecessor was never seen.
            self.deleted(now, key, None);
        }
        if node.is_empty() {
            // A device that is on no node does not exist for any of them.
            return self.deleted(now, key, None);
        }
        let old = self.object(key).and_then(Object::binding).map(|old| old.needs.clone());
        let id = self.node(&node);
        self.at(id).bound.insert(key.clone(), object.round);
        let is_pod = key.kind == Kind::Pod;
        if is_pod && !self.at(id).is_edge() && !self.objects.contains_key(key) {
            // It costs nothing until its node turns out to be an edge node. A device may move to
            // another node, and has an object by which the former is found.
            return;
        }
        self.unbind_from_others(now, id, key);
        self.want_once(id, key);
        if old.as_ref() != Some(&needs) {
            for need in &needs {
                self.want(id, need);
            }
            for need in old.iter().flatten() {
                self.unwant(now, id, need);
            }
        }
        self.store_object(key, object, from);
    }

    /// An object is bound to one node: another node that had one of this name has none now, even
    /// if its deletion was never seen.
    fn unbind_from_others(&mut self, now: Instant, id: NodeId, key: &Key) {
        let Some(entry) = self.objects.get(key) else { return };
        let others: Vec<NodeId> = entry.wanted.keys().copied().filter(|of| *of != id).collect();
        for other in others {
            self.at(other).bound.remove(key);
            self.unwant_all(now, other, key);
        }
    }

    fn store_object(&mut self, key: &Key, object: Object, from: From) {
        let Some(entry) = self.objects.get_mut(key) else { return };
        let is_new = !matches!(&entry.live, Live::Present(old) if old.uid == object.uid);
        match &mut entry.live {
            Live::Present(old) if old.version >= object.version => {
                old.round = old.round.max(object.round);
                return;
            }
            Live::Absent if matches!(from, From::Call(known) if object.version <= known) => return,
            Live::Present(_) | Live::Absent | Live::Unknown => {}
        }
        let old = std::mem::replace(&mut entry.live, Live::Present(Box::new(object)));
        self.fetch.remove(key);
        if key.kind == Kind::Node {
            self.node_changed(key, &old);
        }
        let Some(entry) = self.objects.get_mut(key) else { return };
        if is_new {
            entry.keep_last(key.kind, old);
        }
        if is_new {
            for id in entry.held.iter().copied().collect::<Vec<NodeId>>() {
                self.settle_records(id, key);
            }
        }
        self.mark_dirty(key);
    }

    /// A Node has replaced this one.
    fn node_changed(&mut self, key: &Key, old: &Live) {
        let Some(id) = self.id_of(&key.name) else { return };
        self.changed_nodes.insert(id);
        if let Live::Present(old) = old {
            self.forget_addresses(id, old.addresses());
        }
        let group = |object: &Object| object.node.as_ref().map(|facts| facts.group.clone());
        let former = match old {
            Live::Present(old) => group(old),
            Live::Unknown | Live::Absent => None,
        };
        self.have_groups_changed |= former != self.object(key).and_then(group);
        let addresses = self.object(key).map(Object::addresses).unwrap_or_default();
        for address in addresses {
            self.addresses.entry(address).or_default().insert(id);
        }
    }

    fn forget_addresses(&mut self, id: NodeId, addresses: Vec<Box<str>>) {
        for address in addresses {
            let Some(nodes) = self.addresses.get_mut(&address) else { continue };
            nodes.remove(&id);
            if nodes.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }

    /// The object does not exist any more. `node`: the node that it was bound to.
    pub(super) fn deleted(&mut self, now: Instant, key: &Key, node: Option<&str>) {
        match key.kind {
            Kind::Node => {
                if let Some(id) = self.names.get(&*key.name).copied() {
                    let addresses = self.object(key).map(Object::addresses).unwrap_or_default();
                    self.forget_addresses(id, addresses);
                    self.at(id).is_known = false;
                    self.orphans.insert(id);
                    self.mark_dirty(key);
                    self.unwant_all(now, id, key);
                    self.suspect(id);
                    self.remove_if_idle(id);
                }
            }
            Kind::Pod | Kind::Device => self.bound_deleted(now, key, node),
            _ => {}
        }
        let Some(entry) = self.objects.get_mut(key) else { return };
        let old = std::mem::replace(&mut entry.live, Live::Absent);
        entry.keep_last(key.kind, old);
        self.fetch.remove(key);
        self.mark_dirty(key);
        self.drop_if_idle(key);
    }

    fn bound_deleted(&mut self, now: Instant, key: &Key, node: Option<&str>) {
        let binding = self.object(key).and_then(Object::binding);
        let needs = binding.map(|binding| binding.needs.clone()).unwrap_or_default();
        let name = binding.map(|binding| binding.node).or(node);
        let bound = name.and_then(|name| self.names.get(name)).copied();
        if key.kind == Kind::Device {
            self.gone_devices.insert(key.clone());
        }
        if let Some(id) = bound {
            self.at(id).bound.remove(key);
            for need in &needs {
                self.unwant(now, id, need);
            }
        }
        self.mark_dirty(key);
        // A node that had it before it was known.
        let wanting = self.objects.get(key).into_iter().flat_map(|entry| entry.wanted.keys());
        let wanting = wanting.copied().chain(bound).collect::<BTreeSet<NodeId>>();
        for id in wanting {
            self.at(id).bound.remove(key);
            self.unwant_all(now, id, key);
            self.remove_if_idle(id);
        }
    }

    /// A list contains this object, but it could not be parsed: it exists.
    pub(super) fn seen_unread(&mut self, key: &Key, round: u32) {
        if let Some(entry) = self.objects.get_mut(key) {
            entry.unread = round;
        }
    }

    /// The list of a kind is complete, as of this version: objects that are not in it are deleted.
    pub(super) fn sweep(&mut self, now: Instant, kind: Kind, round: u32, version: u64) {
        let from = Key::new(kind, "", "");
        let of_kind = self.objects.range(from..).take_while(|(key, _)| key.kind == kind);
        let unnamed: Vec<Key> = of_kind
            .filter(|(_, entry)| match &entry.live {
                // A newer object is left to the watch.
                Live::Present(object) => object.round != round && object.version <= version,
                // A wanted object may have been listed before it was wanted: it is fetched.
                Live::Unknown => entry.wanted.is_empty(),
                Live::Absent => false,
            })
            .filter(|(_, entry)| entry.unread != round)
            .map(|(key, _)| key.clone())
            .collect();
        for key in unnamed {
            let is_fetched = self.object(&key).is_some_and(|object| object.round == 0);
            let is_used = matches!(kind, Kind::ConfigMap | Kind::Secret | Kind::DeviceModel);
            if is_fetched && is_used {
                // It may have been listed before it was wanted, too.
                self.objects.get_mut(&key).expect("just checked").live = Live::Unknown;
                self.fetch.insert(key);
            } else {
                self.deleted(now, &key, None);
            }
        }
        if matches!(kind, Kind::Pod | Kind::Device) {
            let elsewhere = self.nodes.values_mut().filter(|node| !node.is_edge());
            for node in elsewhere {
                node.bound.retain(|key, listed| key.kind != kind || *listed == round);
            }
        }
    }

    /// The node has turned out to be an edge node: its pods are sent to it.
    fn becomes_edge(&mut self, id: NodeId) {
        let node = self.at(id);
        let own = Some(Key::node(&node.name)).filter(|_| node.is_known);
        let keys: Vec<Key> = node.bound.keys().cloned().chain(own).collect();
        for key in keys {
            self.want_once(id, &key);
        }
    }

    /// A session of the node is open.
    pub(super) fn link_up(&mut self, id: NodeId, link: Box<Link>) {
        self.at(id).link = Some(link);
        self.arrived.entry(id).or_default();
        self.becomes_edge(id);
        self.check_all(id);
        self.ready.insert(id);
    }

    /// Marks all objects of the node to be checked.
    pub(super) fn check_all(&mut self, id: NodeId) {
        let node = self.at(id);
        if let Some(link) = &mut node.link {
            link.dirty.extend(node.wanted.iter().chain(node.records.keys()).cloned());
            self.ready.insert(id);
        }
    }

    /// An object that a node wants or holds is not known.
    pub(super) fn find_out(&mut self, key: &Key) {
        let unknown = if is_computed(key.kind) { &mut self.compute } else { &mut self.fetch };
        unknown.insert(key.clone());
    }

    /// An object that is made here: it is this one, or does not exist.
    pub(super) fn computed(&mut self, key: &Key, object: Option<Object>) {
        let Some(entry) = self.objects.get_mut(key) else { return };
        let is_same = match (&entry.live, &object) {
            (Live::Present(old), Some(new)) => old.uid == new.uid && old.version == new.version,
            (Live::Absent, None) => true,
            (Live::Present(_) | Live::Absent | Live::Unknown, _) => false,
        };
        if is_same {
            return;
        }
        entry.live = object.map_or(Live::Absent, |object| Live::Present(Box::new(object)));
        for id in entry.held.iter().copied().collect::<Vec<NodeId>>() {
            self.settle_records(id, key);
        }
        self.mark_dirty(key);
        self.drop_if_idle(key);
    }

    fn want_once(&mut self, id: NodeId, key: &Key) {
        if !self.at(id).wanted.contains(key) {
            self.want(id, key);
        }
    }

    fn want(&mut self, id: NodeId, key: &Key) {
        let entry = self.objects.entry(key.clone()).or_default();
        let is_first = entry.wanted.is_empty();
        let count = entry.wanted.entry(id).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        // Otherwise it is being fetched.
        if is_first && matches!(entry.live, Live::Unknown) {
            self.find_out(key);
        }
        let node = self.at(id);
        node.wanted.insert(key.clone());
        node.member_changed(key, Membership::Added);
        if let Some(record) = node.records.get_mut(key) {
            record.unused_since = None;
        }
        if node.mark_dirty(key) {
            self.ready.insert(id);
        }
    }

    fn unwant(&mut self, now: Instant, id: NodeId, key: &Key) {
        let Some(entry) = self.objects.get_mut(key) else { return };
        let Some(count) = entry.wanted.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            self.unwant_all(now, id, key);
        }
    }

    fn unwant_all(&mut self, now: Instant, id: NodeId, key: &Key) {
        let Some(entry) = self.objects.get_mut(key) else { return };
        entry.wanted.remove(&id);
        let node = self.at(id);
        if node.wanted.remove(key) {
            node.member_changed(key, Membership::Removed);
        }
        if let Some(record) = node.records.get_mut(key) {
            record.unused_since = Some(now);
            if !is_kept_for_a_while(key.kind) && node.mark_dirty(key) {
                self.ready.insert(id);
            }
        }
        self.drop_if_idle(key);
    }

    pub(super) fn drop_if_idle(&mut self, key: &Key) {
        if self.objects.get(key).is_some_and(|e| e.wanted.is_empty() && e.held.is_empty()) {
            self.objects.remove(key);
            self.fetch.remove(key);
        }
    }

    /// Marks the object to be checked for each node that wants or holds it.
    pub(super) fn mark_dirty(&mut self, key: &Key) {
        let Some(entry) = self.objects.get(key) else { return };
        for id in entry.wanted.keys().chain(&entry.held) {
            if let Some(node) = self.nodes.get_mut(id)
                && node.mark_dirty(key)
            {
                self.ready.insert(*id);
            }
        }
    }

    /// The object of this name and uid, though it may not exist any more; only of devices and
    /// models.
    pub(super) fn last_object(&self, key: &Key, uid: &str) -> Option<&Object> {
        let live = self.object(key).filter(|_| is_of_devices(key.kind));
        let last = self.objects.get(key).and_then(|entry| entry.last.as_deref());
        live.into_iter().chain(last).find(|object| *object.uid == *uid)
    }

    /// What the node needs of this object.
    pub(super) fn due(&mut self, now: Instant, id: NodeId, key: &Key) -> Due {
        let node = self.nodes.get_mut(&id).expect("a node with an id exists");
        let record = node.records.get_mut(key);
        let Some(entry) = self.objects.get(key) else {
            assert!(record.is_none(), "an object with a record has an entry");
            return Due::Nothing;
        };
        // Even if the node wants it: a pod belongs to its own node alone.
        let foreign = match &entry.live {
            Live::Present(object) => object.binding().is_some_and(|it| *it.node != *node.name),
            Live::Unknown | Live::Absent => false,
        };
        let wanted = entry.wanted.contains_key(&id) && !foreign;
        match (&entry.live, record) {
            (Live::Unknown, _) | (Live::Absent, None) => Due::Nothing,
            (Live::Present(_), None) if wanted => Due::Put,
            (Live::Present(_), None) => Due::Nothing,
            (Live::Absent, Some(_)) => Due::Delete,
            (Live::Present(object), Some(record)) if record.uid != object.uid => Due::Delete,
            (Live::Present(_), Some(record)) if !wanted => {
                let since = *record.unused_since.get_or_insert(now);
                let is_kept = is_kept_for_a_while(key.kind) && now.since_ms(since) < UNUSED_MS;
                if is_kept { Due::Nothing } else { Due::Delete }
            }
            (Live::Present(object), Some(record)) if record.version == object.version => {
                record.digest = object.digest;
                Due::Nothing
            }
            (Live::Present(object), Some(record))
                if record.version > object.version && !is_computed(key.kind) =>
            {
                Due::Nothing
            }
            (Live::Present(object), Some(record))
                if record.version > 0 && record.digest == object.digest =>
            {
                Due::Learn
            }
            (Live::Present(_), Some(_)) => Due::Put,
        }
    }

    /// It was fetched, and does not exist. No watch tells of a deletion before it began: no
    /// node has it any more.
    pub(super) fn absent(&mut self, now: Instant, key: &Key) {
        if !self.is_unknown(key) {
            return;
        }
        if key.kind == Kind::Pod {
            // It may be bound to a node that has just turned out to be an edge node.
            self.deleted(now, key, None);
        } else {
            self.objects.get_mut(key).expect("just checked").live = Live::Absent;
            self.mark_dirty(key);
        }
    }

    /// There was no answer about it: nobody waits for it.
    pub(super) fn unanswered(&mut self, key: &Key) {
        if let Some(entry) = self.objects.get_mut(key) {
            entry.is_unanswered = true;
            self.mark_dirty(key);
        }
    }

    /// Whether a model that is not known yet is about to be.
    pub(super) fn is_awaited(&self, model: &Key) -> bool {
        let entry = self.objects.get(model).filter(|entry| matches!(entry.live, Live::Unknown));
        entry.is_some_and(|entry| !entry.is_unanswered && !self.are_models_unlisted)
    }

    /// Whether it is wanted, and not known.
    pub(super) fn is_unknown(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(|entry| matches!(entry.live, Live::Unknown))
    }

    /// Answers a node, if that session is still open. If the node does not read its answers, the
    /// session ends.
    pub(super) fn answer(&mut self, id: NodeId, session: Session, message: Box<CloudMessage>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(link) = node.link.as_mut().filter(|link| link.session == session) {
            link.reply(message);
            self.ready.insert(id);
        }
    }

    /// Sends a node an object that it requested, if that session is still open.
    pub(super) fn queue_object(
        &mut self,
        id: NodeId,
        session: Session,
        requested: RequestedObject,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(link) = node.link.as_mut().filter(|link| link.session == session) {
            link.queue_object(requested);
            self.ready.insert(id);
        }
    }

    /// The object, if it exists.
    pub(super) fn object(&self, key: &Key) -> Option<&Object> {
        match &self.objects.get(key)?.live {
            Live::Present(object) => Some(object),
            Live::Unknown | Live::Absent => None,
        }
    }
}

/// Whether a node keeps an object of this kind for a while that none of its pods uses any more.
fn is_kept_for_a_while(kind: Kind) -> bool {
    !is_of_devices(kind) && !is_computed(kind)
}

impl Entry {
    /// An object that is replaced, or gone.
    fn keep_last(&mut self, kind: Kind, old: Live) {
        if let Live::Present(old) = old
            && is_of_devices(kind)
        {
            self.last = Some(old);
        }
    }
}
