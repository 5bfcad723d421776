//! The cloud side's mind: CloudHub, EdgeController and the sync controller in one. Facts in,
//! requests out, by the same three verbs as the agent's. No I/O, no clock, no threads.
#![forbid(unsafe_code)]

mod counters;
pub mod event;
mod join;
pub mod local;

use std::collections::BTreeMap;

pub use crate::mind::{rate, time};

pub use counters::Counters;
use event::{Action, Answer, Event, Out, Peer, Refusal, Severity};
pub use join::Authority;
use join::Verdict;
use time::{Instant, Now};

use crate::model::link::Session;

/// What the mind must know before it starts; none of it changes while it runs.
#[derive(Debug)]
pub struct Config {
    /// Who signs the nodes' certificates.
    pub authority: Authority,
    /// Of the life of a node's certificate, days (`edgeCertSigningDuration`).
    pub certificate_days: u32,
    /// Milliseconds without a sign of life after which a node's session ends
    /// (`keepaliveInterval`).
    pub keepalive_ms: u64,
    /// The most nodes at once (`nodeLimit`).
    pub nodes_max: usize,
    /// The API server's own authority, PEM, for nodes that ask; `None`: it has none.
    pub api_authority: Option<String>,
    /// Where it is kept what each node has.
    pub sync: SyncStore,
}

/// Where it is kept what each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStore {
    /// In a table of our own: [`Action::Save`].
    Table,
    /// In KubeEdge's objects: the API server has its CRDs.
    Objects,
}

/// The whole mind.
pub struct Controller {
    config: Config,
    sessions: BTreeMap<Session, Link>,
    counters: Counters,
    /// Decided while learning.
    pending: Out,
    stopping: bool,
}

struct Link {
    node: String,
    silent_at: Instant,
}

impl Controller {
    /// Knows nothing yet but its configuration.
    pub fn boot(config: Config, _now: Now, _seed: u64) -> Self {
        Self {
            config,
            sessions: BTreeMap::new(),
            counters: Counters::default(),
            pending: Out::default(),
            stopping: false,
        }
    }

    /// Learns one fact. Asks for nothing.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::EdgeUp(session, peer) => self.edge_up(now, session, &peer),
            Event::EdgeSaid(session, message) => {
                self.counters.messages_up += 1;
                if let Some(link) = self.sessions.get_mut(&session)
                    && &*message.route.operation == "keepalive"
                {
                    link.silent_at = now.boot.plus_ms(self.config.keepalive_ms);
                }
            }
            Event::EdgeDown(session, _) => drop(self.sessions.remove(&session)),
            Event::Asked(exchange, ask) => {
                let now_s = now.timestamp().map(|at| at.0);
                let action = match self.config.authority.judge(*ask, now_s) {
                    Ok(Verdict::Answer(answer)) => Action::Answer(exchange, answer),
                    Ok(Verdict::Look(name)) => {
                        let found = self.sessions.values().any(|link| link.node == name);
                        let answer =
                            if found { (200, "Node found") } else { (404, "Node not found") };
                        Action::Answer(exchange, text(answer.0, answer.1))
                    }
                    Ok(Verdict::Sign { node, request }) => {
                        let days = self.config.certificate_days;
                        Action::Sign { exchange, request, node, days }
                    }
                    Err((status, words)) => Action::Answer(exchange, text(status, &words)),
                };
                self.pending.push(action);
            }
            Event::Signed(exchange, Ok(body)) => {
                self.counters.certificates += 1;
                self.pending.push(Action::Answer(exchange, Answer { status: 200, body }));
            }
            Event::Signed(exchange, Err(why)) => {
                self.pending.push(Action::Answer(exchange, text(500, &why)));
            }
            Event::Stop => self.stopping = true,
            Event::Loaded(_)
            | Event::Saved(_)
            | Event::SaveFailed(..)
            | Event::EdgeSpoilt(..)
            | Event::EdgeDrained(..)
            | Event::Called(..)
            | Event::Watched(..) => {}
        }
    }

    fn edge_up(&mut self, now: Now, session: Session, peer: &Peer) {
        match join::node_of(&peer.common_name, &peer.organization) {
            Some(node) if node == peer.node_id => {
                let silent_at = now.boot.plus_ms(self.config.keepalive_ms);
                self.sessions.insert(session, Link { node: node.to_owned(), silent_at });
                self.pending.push(Action::Accept(session));
            }
            _ => {
                self.counters.sessions_refused += 1;
                let words = format!("got node {:?} with {}", peer.node_id, peer.common_name);
                self.pending.push(Action::Refuse(session, Refusal { status: 403, words }));
            }
        }
    }

    /// Looks at all it knows, and asks for what is missing.
    pub fn step(&mut self, now: Now, out: &mut Out) {
        out.actions.append(&mut self.pending.actions);
        let silent = self.sessions.iter().filter(|(_, link)| link.silent_at <= now.boot);
        let silent: Vec<Session> = silent.map(|(session, _)| *session).collect();
        for session in silent {
            let link = self.sessions.remove(&session).expect("just seen");
            out.push(Action::Log(Severity::Warn, format!("node={}: silent", link.node)));
            out.push(Action::Close(session, "no sign of life".to_owned()));
        }
        self.counters.nodes_connected = self.sessions.len();
        if self.stopping {
            out.push(Action::Exit);
        }
    }

    /// When to step again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.sessions.values().map(|link| link.silent_at).min()
    }

    /// What is counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether nodes are taken: all that there is was listed once.
    pub fn is_ready(&self) -> bool {
        !self.stopping
    }
}

fn text(status: u16, words: &str) -> Answer {
    Answer { status, body: words.as_bytes().into() }
}
