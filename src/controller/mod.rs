//! The core of the cloud side: CloudHub, EdgeController and the sync controller in one. It takes
//! events and returns actions, with the same three methods as the agent. No I/O, no clock, no
//! threads.
//!
//! ```text
//!  API server ─list, watch─▶ watches ─▶ cache ─due?─▶ downstream ─▶ session ─Send─▶ node
//!      ▲                                  ▲ │                          │
//!      │                                  │ └─records─▶ ack_log ─▶ store│ack
//!      │                                  └────────────────────────────┤
//!      └─Call─ calls ◀─ requests ◀─ upstream (authorizes) ◀─ inbound ◀─┘
//! ```
//!
//! - `cache`: objects, nodes, and which node wants and holds which object; `object` and `location`
//!   parse them.
//! - `session`: the two queues of one node. `downstream`: fills them. `outbound`: the answers.
//! - `inbound`, `upstream`, `restrict`, `legacy`: messages from nodes, and whether they are
//!   allowed.
//! - `requests`, `calls`: requests to the API server, in order and bounded.
//! - `devices`: which devices a node has, and what it reports of them.
//! - `node_jobs`: which nodes are asked to pull images or to be upgraded, and what they report.
//! - `policy`: what the service accounts of nodes' pods may do.
//! - `dynamic`: requests and watches of programs on nodes, through a node's `MetaServer`.
//! - `router`: HTTP calls and MQTT messages between applications in the cloud and on nodes.
//! - `ack_log`: what each node has acknowledged. `admission`: which node may connect and gets a
//!   certificate, by its credentials (`join`) and by what is known of its name (`identity`).
//! - `streams`: the tunnels of nodes for logs and commands, and which of them a request takes.
//!   `tunnel_port` and `kubelet_port`: how kube-apiserver finds this replica; `stream_client`: who
//!   may use the port for it.
//! - `leader_election`: which of several replicas does `garbage`: the records of deleted nodes.
//!
//! Messages between nodes and the controller are types, which `wire/kubeedge` reads and writes.
//! Objects of the API server are bytes or trees of JSON here, and nowhere types: what is passed on
//! keeps the fields that this version does not know. `tests/tidy/json.rs` names the files that have
//! them.
//!
//! # Invariants
//!
//! 1. A node gets nothing that none of its own pods needs, and cannot change anything else, except
//!    what the configuration lets all nodes request (`dynamic::access`).
//! 2. Before a node gets an object for the first time there is a durable record of it, so that the
//!    node gets the deletion whatever happens to us in between.
//! 3. Only the newest version of an object waits; nothing is queued for a node that is not
//!    connected.
//! 4. A node does not get again what it has acknowledged, unless it may have lost it: it has just
//!    registered. It does not get an echo of what it has written itself.
//! 5. No step walks all nodes or all objects: a change finds its nodes, and timers find the rest.
//!
//! If we crash: lists bring back the objects, the store the records, and the nodes reconnect.
#![forbid(unsafe_code)]

mod ack_log;
mod admission;
mod cache;
mod calls;
mod closed;
mod counters;
mod devices;
mod downstream;
pub mod dynamic;
pub mod event;
mod garbage;
pub mod identity;
mod inbound;
mod join;
mod key;
mod kubelet_port;
mod leader_election;
mod legacy;
pub mod local;
mod location;
mod node;
mod node_jobs;
mod nullable;
mod object;
mod outbound;
pub mod overview;
mod policy;
mod records;
mod requests;
mod restrict;
mod router;
mod serve;
mod session;
mod stream_client;
mod streams;
mod syncs;
mod tunnel_port;
mod unsupported;
mod upstream;
mod watch_resume;
mod watches;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::core::{rate, time};

use cache::Cache;
use calls::Calls;
pub use counters::Counters;
use devices::statuses::Statuses;
use downstream::NodeContext;
use dynamic::Dynamic;
use dynamic::access::Access;
use event::{Action, Event, Exchange, Out, Severity};
use garbage::Garbage;
use identity::{EnrolAgain, Identities};
pub use join::Authority;
use key::{Key, NodeId};
use kubelet_port::KubeletPorts;
pub use leader_election::Candidate;
use leader_election::LeaderElection;
pub use node_jobs::JobOfNode;
use node_jobs::NodeJobs;
pub use policy::AccessRules;
use policy::Policy;
use router::Router;
pub use stream_client::may_request;
use streams::Streams;
use time::{Instant, Now, Rng};
pub use tunnel_port::Replica;
use tunnel_port::TunnelPort;
use watches::Watches;

use crate::model::api::Kind;
use crate::model::link::Session;

/// The configuration of the core; it does not change while it runs.
#[derive(Debug)]
pub struct Config {
    /// Signs the nodes' certificates.
    pub authority: Authority,
    /// Validity of a node's certificate, days (`edgeCertSigningDuration`).
    pub certificate_days: u32,
    /// Whether any token gives an existing node another certificate.
    pub enrol_again: EnrolAgain,
    /// Namespace of the Secret that denies nodes.
    pub namespace: Box<str>,
    /// Milliseconds without a keep-alive after which a node's session ends (`keepaliveInterval`).
    pub keepalive_ms: u64,
    /// The most nodes at once (`nodeLimit`).
    pub nodes_max: usize,
    /// The API server's own authority, PEM, for nodes that request it; `None`: it has none.
    pub api_authority: Option<String>,
    /// Where the acknowledgement records are stored.
    pub sync: SyncStore,
    /// Leader election, if several replicas share the records; `None`: there are no others.
    pub candidate: Option<Candidate>,
    /// Whom kube-apiserver reaches here; `None`: it does not.
    pub replica: Option<Replica>,
    /// What nodes may request through their `MetaServers`; `None`: nothing.
    pub access: Option<Access>,
    /// Whether nodes get the rules of the service accounts of their pods.
    pub access_rules: AccessRules,
}

/// Where the acknowledgement records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStore {
    /// In a table of our own: [`Action::Save`].
    Table,
    /// In KubeEdge's ObjectSyncs: the API server has the CRDs.
    Objects,
}

/// The whole core.
pub struct Controller {
    config: Config,
    rng: Rng,
    cache: Cache,
    watches: Watches,
    calls: Calls,
    leader_election: LeaderElection,
    garbage: Garbage,
    sessions: BTreeMap<Session, NodeId>,
    /// When each node is served next, if nothing happens before.
    timers: BTreeSet<(Instant, NodeId)>,
    signing: BTreeSet<Exchange>,
    streams: Streams,
    tunnel_port: TunnelPort,
    kubelet_ports: KubeletPorts,
    identities: Identities,
    statuses: Statuses,
    jobs: NodeJobs,
    policy: Policy,
    dynamic: Dynamic,
    router: Router,
    /// The session reconciled last, and when the next are.
    reconciled: Option<Session>,
    reconcile_at: Instant,
    /// The node served last: the others have their turn before it.
    served: NodeId,
    counters: Counters,
    /// Objects that could not be parsed; each is logged once.
    unread: BTreeSet<Key>,
    /// Actions from `handle`, until the next step.
    pending: Out,
    is_loaded: bool,
    was_ready: bool,
    stopping: bool,
    /// The time of the last step.
    now: Now,
}

impl Controller {
    /// A new core, which knows only its configuration.
    pub fn boot(config: Config, now: Now, seed: u64) -> Self {
        let mut watches = Watches::new(config.sync);
        if config.access_rules == AccessRules::On {
            watches.add(&Kind::POLICY);
        }
        Self {
            watches,
            leader_election: LeaderElection::new(config.candidate.clone()),
            garbage: Garbage::default(),
            tunnel_port: TunnelPort::new(config.replica.clone()),
            kubelet_ports: KubeletPorts::default(),
            policy: Policy::new(config.access_rules),
            config,
            rng: Rng::new(seed),
            cache: Cache::default(),
            calls: Calls::default(),
            sessions: BTreeMap::new(),
            timers: BTreeSet::new(),
            signing: BTreeSet::new(),
            streams: Streams::default(),
            identities: Identities::default(),
            statuses: Statuses::default(),
            jobs: NodeJobs::default(),
            dynamic: Dynamic::default(),
            router: Router::default(),
            reconciled: None,
            reconcile_at: now.boot,
            served: NodeId(0),
            counters: Counters::default(),
            unread: BTreeSet::new(),
            pending: Out::default(),
            is_loaded: false,
            was_ready: false,
            stopping: false,
            now,
        }
    }

    /// Handles one event. Actions are returned by the next step.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Loaded(rows) => {
                // Otherwise the API server has the records.
                if self.config.sync == SyncStore::Table {
                    self.cache.load(rows);
                }
                self.is_loaded = true;
            }
            Event::Identities(all) => self.identities.load(all),
            Event::NodeDeleted(node) => self.node_deleted(now, &node),
            Event::Saved(revision) => {
                for (id, key) in self.cache.ack_log.saved(revision) {
                    self.cache.stored(id, &key);
                    self.cache.record_saved(id, &key);
                }
            }
            Event::SaveFailed(revision, error) => {
                let out = &mut self.pending;
                self.cache.ack_log.failed(now.boot, revision, &error, out);
            }
            Event::EdgeUp(session, peer) => self.edge_up(now, session, &peer),
            Event::EdgeMessage(session, message) => self.edge_message(now, session, *message),
            Event::EdgeBadMessage(session, why) => {
                if let Some(id) = self.sessions.get(&session).copied() {
                    self.count_offence(id, &why);
                }
            }
            Event::EdgeDrained(session, unsent) => self.edge_drained(session, unsent),
            Event::EdgeDown(session, why) => {
                if let Some(id) = self.sessions.remove(&session) {
                    let name = &self.cache.at(id).name;
                    self.streams.node_seen(name, now);
                    let line = format!("node={name}: disconnected: {why}");
                    self.pending.push(Action::Log(Severity::Info, line));
                    self.unlink(id);
                }
            }
            Event::TunnelUp(tunnel, peer) => self.tunnel_up(now, tunnel, &peer),
            Event::TunnelDown(tunnel, why) => self.tunnel_down(now, tunnel, &why),
            Event::HttpRequest(exchange, request) => self.http_request(now, exchange, *request),
            Event::Signed(exchange, result) => self.signed(exchange, result),
            Event::Called(call, result) => {
                let mut context = NodeContext {
                    now,
                    rng: &mut self.rng,
                    counters: &mut self.counters,
                    out: &mut self.pending,
                };
                let (cache, watches) = (&mut self.cache, &self.watches);
                let own = self.calls.answered(call, result, cache, watches, &mut context);
                if let Some((own, result)) = own {
                    self.own_answered(now, own, result);
                }
            }
            Event::Watched(watch, fact) => self.watched(now, watch, fact),
            Event::Router(event) => self.router_event(now, *event),
            Event::Stop => {
                self.stopping = true;
                self.leader_election.stop(now.boot);
                self.cache.ack_log.stop();
            }
        }
    }

    /// Does what is due and returns the actions.
    pub fn step(&mut self, now: Now, out: &mut Out) {
        self.now = now;
        if self.is_loaded && !self.stopping {
            self.counters.lists += self.watches.step(now.boot, &mut self.pending);
            self.due(now);
            self.run_policy();
            self.write_device_statuses(now);
            self.run_node_jobs(now);
            self.run_dynamic(now);
            self.run_router(now);
            self.serve(now);
        }
        self.run_leader_election(now);
        self.announce_port(now);
        if self.is_loaded && self.config.sync == SyncStore::Objects {
            self.record(now);
        }
        out.actions.append(&mut self.pending.actions);
        if self.stopping {
            self.stop(out);
        }
        if self.is_loaded && self.config.sync == SyncStore::Table {
            let mut ack_log = std::mem::take(&mut self.cache.ack_log);
            ack_log.step(now.boot, |id, key| self.cache.row(id, key), out);
            self.cache.ack_log = ack_log;
        }
        let is_done =
            self.cache.ack_log.may_stop(now.boot) && self.leader_election.may_stop(now.boot);
        if self.stopping && is_done {
            out.push(Action::Exit);
        }
        if !self.was_ready && self.is_ready() {
            self.was_ready = true;
            let line = "api: all objects are listed; nodes may connect".to_owned();
            out.push(Action::Log(Severity::Info, line));
        }
    }

    /// Whether nodes may connect: all objects were listed once.
    pub fn is_ready(&self) -> bool {
        self.is_loaded && self.watches.is_synced() && !self.stopping
    }

    /// The metrics as of now.
    pub fn counters(&self) -> Counters {
        let dynamic = self.dynamic_gauges();
        let links = self.sessions.values().filter_map(|id| self.cache.nodes[id].link.as_ref());
        Counters {
            nodes_connected: self.sessions.len(),
            queued: links.map(|link| link.queued()).sum(),
            calls: self.calls.len(),
            leads: self.leader_election.leads(self.now.boot),
            jobs_open: self.open_jobs(),
            policy_refused: self.policy.refused(),
            dynamic_resources: dynamic.resources,
            dynamic_listeners: dynamic.listeners,
            rules: self.router.len(),
            router_waiting: self.router.waiting(),
            ..self.counters.clone()
        }
    }
}
