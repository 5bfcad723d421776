//! People who look into pods: they ask for logs, commands, ports and usage, and leave when they
//! like.
//!
//! Their random numbers are their own, so that the rest of a world is the same without them.

use std::collections::BTreeMap;

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{ContainerState, Pipes};
use edged::model::stream::{LogOptions, PodName, StreamAnswer, StreamId, StreamRequest};

use crate::chance::Chance;
use crate::faults::asks_within_ms;
use crate::rule::judge;
use crate::runtime::ContainerNo;
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// The requests of people, and when the next one comes.
pub struct People {
    chance: Chance,
    /// The longest time between two of their actions; 0: there are none in this world.
    every_ms: u64,
    last: u64,
    open: BTreeMap<StreamId, Asked>,
}

struct Asked {
    request: StreamRequest,
    since: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// A log is followed, of this container if it is known.
    Follows(Option<ContainerNo>),
}

/// How long the agent may wait for the runtime, and be late itself.
const PATIENCE_MS: u64 = limits::STREAM_CALL_MS + 60_000;

impl People {
    /// In every third world.
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x0070_656f_706c_6521);
        let every_ms = if chance.percent(33) { 1 + chance.spread(60_000) } else { 0 };
        Self { chance, every_ms, last: 0, open: BTreeMap::new() }
    }

    /// The agent has died, and with it their connections.
    pub fn lose_the_agent(&mut self) {
        self.open.clear();
    }

    /// They ask for nothing more.
    pub fn retire(&mut self) {
        self.every_ms = 0;
    }
}

impl World {
    /// Their next action.
    pub fn people_wait(&mut self) {
        if self.people.every_ms > 0 {
            let within_ms = asks_within_ms(self.people.every_ms, self.people.last);
            let ms = 1 + self.people.chance.below(within_ms);
            self.at(ms, WorldEvent::Person);
        }
    }

    /// One of them asks, or leaves.
    pub fn person_acts(&mut self) {
        if self.people.every_ms == 0 {
            return;
        }
        // The event loop serves so many at once.
        let is_full = self.people.open.len() >= limits::STREAMS_MAX;
        let leaves = self.people.chance.percent(40) || is_full;
        if leaves && !self.people.open.is_empty() {
            let at = self.people.chance.index(self.people.open.len());
            let id = *self.people.open.keys().nth(at).expect("within");
            self.person_leaves(id);
        } else {
            self.person_asks();
        }
        self.people_wait();
    }

    fn person_leaves(&mut self, id: StreamId) {
        self.people.open.remove(&id);
        trace!(self.clocks.now(), "{id:?} leaves");
        self.deliver(vec![Event::StreamClosed(id)]);
    }

    fn person_asks(&mut self) {
        let chance = &mut self.people.chance;
        let names: Vec<_> = self
            .runtime
            .containers
            .values()
            .filter_map(|it| {
                let pod = it.listed.pod.as_ref()?;
                Some((pod.namespace.clone(), pod.name.clone(), it.listed.name.clone()))
            })
            .collect();
        let known = !names.is_empty() && chance.percent(90);
        let (namespace, name, container) = if known {
            chance.pick(&names).clone()
        } else {
            ("default".into(), "nobody".into(), "m".into())
        };
        let pod = PodName { namespace, name, uid: None };
        let pipes = Pipes { stdin: true, stdout: true, stderr: true, tty: chance.percent(50) };
        let request = match chance.below(7) {
            0..=2 => {
                let (follow, previous) = (chance.percent(60), chance.percent(20));
                let options = LogOptions { follow, previous, ..LogOptions::default() };
                StreamRequest::Logs { pod, container, options }
            }
            3 => StreamRequest::Exec { pod, container, command: vec!["ls".to_owned()], pipes },
            4 => StreamRequest::Attach { pod, container, pipes },
            5 => StreamRequest::PortForward { pod, ports: Vec::new() },
            _ => StreamRequest::Usage,
        };
        self.people.last += 1;
        let id = StreamId(self.people.last);
        trace!(self.clocks.now(), "{id:?} {request:?}");
        self.tally.add("requests of people");
        let since = self.clocks.now();
        let asked = Asked { request: request.clone(), since, state: State::Waits };
        self.people.open.insert(id, asked);
        self.deliver(vec![Event::StreamOpened(id, Box::new(request))]);
    }

    /// The agent answers.
    pub fn person_answered(&mut self, id: StreamId, answer: &StreamAnswer) {
        trace!(self.clocks.now(), "  {id:?}: {answer:?}");
        // It has left, and the agent does not know yet.
        let Some(asked) = self.people.open.get_mut(&id) else { return };
        match (asked.state, answer) {
            (State::Follows(number), StreamAnswer::LogsEnd) => {
                let listed = number.and_then(|number| self.runtime.containers.get(&number));
                let runs = listed.is_some_and(|it| {
                    it.alive && !it.was_unknown && it.listed.state == ContainerState::Running
                });
                judge!(!runs, "[log ends] {id:?}: c{number:?} runs");
                self.people.open.remove(&id);
            }
            (State::Waits, StreamAnswer::Logs { file, running: true }) => {
                let is = |it: &crate::runtime::Container| {
                    it.listed.name == file.container
                        && it.listed.attempt == file.attempt
                        && it.listed.pod.as_ref().is_some_and(|pod| pod.uid == file.pod.uid)
                };
                let all = self.runtime.containers.iter();
                let number = all.filter(|(_, it)| is(it)).map(|(number, _)| *number).max();
                asked.state = State::Follows(number);
            }
            (State::Waits, StreamAnswer::LogsEnd) => {
                judge!(false, "[log ends] {id:?} has no log yet");
            }
            (State::Waits, _) => {
                let fits = matches!(
                    (&asked.request, answer),
                    (_, StreamAnswer::Refused(_))
                        | (StreamRequest::Logs { .. }, StreamAnswer::Logs { .. })
                        | (StreamRequest::Usage, StreamAnswer::Usage(_))
                        | (
                            StreamRequest::Exec { .. }
                                | StreamRequest::Attach { .. }
                                | StreamRequest::PortForward { .. },
                            StreamAnswer::Relay(_),
                        )
                );
                judge!(fits, "[people] {id:?} {:?} is answered by {answer:?}", asked.request);
                self.tally.add("people answered");
                self.people.open.remove(&id);
            }
            (State::Follows(_), _) => {
                judge!(false, "[people] {id:?} is answered twice, now by {answer:?}");
            }
        }
    }

    /// Nobody waits too long.
    pub fn check_people(&self) {
        if self.leaving.is_some() {
            return;
        }
        for (id, asked) in &self.people.open {
            let waits_ms = self.clocks.now() - asked.since;
            let late = asked.state == State::Waits && waits_ms > PATIENCE_MS;
            judge!(!late, "[people] {id:?} {:?} waits for {waits_ms} ms", asked.request);
        }
    }

    /// A log that is followed although its container has ended.
    pub fn log_without_end(&self) -> Option<String> {
        self.people.open.iter().find_map(|(id, asked)| {
            let State::Follows(number) = asked.state else { return None };
            let listed = number.and_then(|number| self.runtime.containers.get(&number));
            let runs = listed.is_some_and(|it| it.listed.state != ContainerState::Exited);
            (!runs).then(|| format!("{id:?} follows the log of c{number:?}, which has ended"))
        })
    }
}
