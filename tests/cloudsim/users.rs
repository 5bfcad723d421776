//! The changes of users, and the faults of machines, links and the API server.

use edged::controller::SyncStore;
use edged::controller::event::Event;
use edged::model::api::Kind;
use edged::model::base64;
use edged::model::link::Session;
use edged::model::time::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::node::Behaviour;
use crate::policy::ACCOUNTS;
use crate::trace::trace;
use crate::world::{Due, World};

/// Names of ConfigMaps.
const MAPS: u64 = 3;

impl World {
    /// Draws each fault.
    pub(crate) fn tick(&mut self) {
        self.check_time();
        if self.is_over {
            return;
        }
        if self.chance.ppm(self.faults.api_down_ppm) {
            self.tally.add("API server away");
            self.api_down_until = self.now + self.chance.below(self.faults.api_down_ms + 1);
            trace!(self.now, "the API server is down until {}", self.api_down_until);
            for at in 0..self.replicas.len() {
                for id in self.replicas[at].watches.keys().copied().collect::<Vec<_>>() {
                    self.feed_soon(at, id);
                }
            }
        }
        if self.chance.ppm(self.faults.compaction_ppm) {
            self.tally.add("compactions");
            self.cluster.compacted = self.cluster.version;
            self.any.compacted = self.any.version;
        }
        for at in 0..self.replicas.len() {
            self.tick_replica(at);
        }
        for session in self.links.keys().copied().collect::<Vec<_>>() {
            if self.chance.ppm(self.faults.link_ppm) {
                self.tally.add("links lost");
                if self.chance.percent(self.faults.half_open_pct) {
                    self.half_open(session);
                } else {
                    self.cut(session);
                }
            }
        }
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.tick_node(&name);
        }
    }

    fn tick_replica(&mut self, at: usize) {
        if self.replicas[at].core.is_none() {
            return;
        }
        if self.chance.ppm(self.faults.crash_ppm) {
            trace!(self.now, "r{at} is killed");
            self.tally.add("crashes");
            self.end(at);
            if self.size.sync == SyncStore::Table && self.chance.percent(self.faults.store_lost_pct)
            {
                self.lose_store();
            }
            let ms = self.chance.below(self.faults.down_ms + 1);
            self.at(ms, Due::Begin(at));
        } else if self.chance.ppm(self.faults.stop_ppm) {
            self.tally.add("stops");
            self.replicas[at].stopping.get_or_insert(self.now);
            self.deliver(at, Event::Stop);
        } else if self.chance.ppm(self.faults.freeze_ppm) {
            self.tally.add("freezes");
            let until = self.now + self.chance.below(self.faults.freeze_ms + 1);
            let replica = &mut self.replicas[at];
            replica.frozen_until = replica.frozen_until.max(until);
        }
    }

    /// The controller's own store is lost: what the nodes have is unknown from now on.
    fn lose_store(&mut self) {
        trace!(self.now, "the controller's store is lost");
        self.tally.add("stores lost");
        self.rows.clear();
        self.identities.clear();
        for node in self.nodes.values_mut() {
            node.stale = node.store.keys().cloned().collect();
        }
    }

    fn tick_node(&mut self, name: &str) {
        if self.chance.ppm(self.faults.node_restart_ppm) {
            self.tally.add("nodes restarted");
            if let Some(session) = self.nodes[name].session {
                self.cut(session);
            }
            let lost = self.chance.percent(self.faults.node_store_lost_pct);
            let node = self.nodes.get_mut(name).expect("a node");
            node.restart();
            node.work.restart();
            node.devices.restart(lost);
            node.listening.restart(lost);
            if lost {
                node.store.clear();
            }
        }
        if self.chance.ppm(self.faults.revoke_ppm) {
            self.tally.add("certificates revoked");
            self.revoke(name);
        }
    }

    fn revoke(&mut self, name: &str) {
        let secret: Name = (Kind::Secret, "k".to_owned(), "edgecontroller-denied".to_owned());
        let now_s = self.wall_s();
        let mut object = self.cluster.objects.get(&secret).cloned().unwrap_or_else(
            || json!({"metadata": {"name": secret.2, "namespace": "k"}, "data": {}}),
        );
        object["data"][name] = base64::encode(Timestamp(now_s).to_string().as_bytes()).into();
        self.cluster.apply(Kind::Secret, object);
        self.check.revoked(name, now_s, self.cluster.version);
    }

    /// A link breaks, and both ends notice.
    pub fn cut(&mut self, session: Session) {
        let Some(link) = self.links.get_mut(&session) else { return };
        let (at, was_half, node) = (link.replica, link.half_open, link.node.clone());
        link.half_open = true;
        if let Some(node) = self.nodes.get_mut(&node)
            && node.session == Some(session)
        {
            node.session = None;
        }
        if !was_half {
            self.send_event(at, Event::EdgeDown(session, "reset".to_owned()));
        }
    }

    /// A link breaks, and the replica notices only by silence.
    fn half_open(&mut self, session: Session) {
        let Some(link) = self.links.get_mut(&session) else { return };
        link.half_open = true;
        if let Some(node) = self.nodes.get_mut(&link.node)
            && node.session == Some(session)
        {
            node.session = None;
        }
    }

    /// The users change something.
    pub(crate) fn users_change(&mut self) {
        if self.is_over {
            return;
        }
        let ms = 1 + self.chance.below(self.faults.user_change_ms * 2);
        self.at(ms, Due::UserChange);
        let pod: Name =
            (Kind::Pod, "n".to_owned(), format!("p{}", self.chance.below(self.size.pods)));
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let node = self.chance.pick(&names).clone();
        let map = format!("m{}", self.chance.below(MAPS));
        if self.chance.percent(30) {
            return self.users_change_devices();
        }
        if self.chance.percent(20) {
            return self.users_change_services();
        }
        if self.chance.percent(10) {
            return self.users_change_jobs();
        }
        if self.chance.percent(15) {
            return self.users_change_policy();
        }
        match self.chance.below(13) {
            0..=2 if !self.cluster.objects.contains_key(&pod) => {
                self.check.allow_map(&map, &node);
                let account = *self.chance.pick(&ACCOUNTS);
                self.check.allow_account(account, &node);
                let object = json!({"metadata": {"name": pod.2, "namespace": "n"}, "spec": {
                    "nodeName": node, "serviceAccountName": account,
                    "containers": [{"name": "c", "image": "i"}],
                    "imagePullSecrets": [{"name": format!("s-{node}")}],
                    "volumes": [{"name": "v", "configMap": {"name": map}}]},
                    "status": {"phase": "Pending"}});
                self.cluster.apply(Kind::Pod, object);
            }
            3 => {
                if let Some(mut object) = self.cluster.objects.get(&pod).cloned() {
                    object["metadata"]["labels"] = json!({"l": self.chance.below(100).to_string()});
                    self.cluster.apply(Kind::Pod, object);
                }
            }
            4 => self.cluster.delete_pod(&pod),
            5 => self.cluster.remove(&pod),
            6..=8 => {
                let value = self.chance.bits().to_string();
                let object =
                    json!({"metadata": {"name": map, "namespace": "n"}, "data": {"k": value}});
                self.cluster.apply(Kind::ConfigMap, object);
            }
            9 => self.cluster.remove(&(Kind::ConfigMap, "n".to_owned(), map)),
            10 | 11 => {
                let name = format!("s-{node}");
                if self.chance.percent(30) {
                    self.cluster.remove(&(Kind::Secret, "n".to_owned(), name));
                } else {
                    let data =
                        json!({"k": format!("only-{node}-"), "v": self.chance.bits().to_string()});
                    let object =
                        json!({"metadata": {"name": name, "namespace": "n"}, "data": data});
                    self.cluster.apply(Kind::Secret, object);
                }
            }
            12 if self.chance.percent(15) => self.remove_node(&node),
            _ => {}
        }
    }

    /// A user deletes a Node.
    pub fn remove_node(&mut self, name: &str) {
        trace!(self.now, "the Node {name} is deleted");
        self.tally.add("Nodes deleted");
        self.check.node_deleted(name, self.now);
        self.cluster.remove(&(Kind::Node, String::new(), name.to_owned()));
    }

    /// Leaves exactly the desired objects, and none of nodes that are not honest.
    pub(crate) fn users_tidy(&mut self) {
        self.cluster.remove(&(Kind::Secret, "k".to_owned(), "edgecontroller-denied".to_owned()));
        self.check.nobody_is_revoked(self.now);
        let honest =
            |name: &str| self.nodes.get(name).is_some_and(|it| it.behaviour == Behaviour::Honest);
        let spoilt: Vec<Name> = self
            .cluster
            .objects
            .iter()
            .filter(|((kind, ..), pod)| {
                matches!(kind, Kind::Pod | Kind::Device)
                    && !honest(pod["spec"]["nodeName"].as_str().unwrap_or_default())
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in &spoilt {
            self.cluster.remove(name);
        }
        self.collect_statuses();
    }
}

/// The node of a pod.
pub fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}
