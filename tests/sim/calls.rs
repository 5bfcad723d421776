//! Calls between the agent and the runtime: what the event loop does, and what goes wrong.

use std::collections::BTreeMap;

use edged::agent::event::{CallId, Event};
use edged::agent::time::Instant;
use edged::model::cri::{CallError, Code, Lost, Reply, Request};

use crate::rule::judge;
use crate::runtime::{Begun, Serial};
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// One call, from its request until it can have no further effect.
struct Call {
    id: CallId,
    request: Request,
    /// World time.
    deadline: u64,
    outcome: Outcome,
    /// The runtime does not take up the call before this time: it is still in a socket.
    held_until: u64,
    /// The agent still waits for the answer.
    open: bool,
    /// The runtime has taken it up.
    begun: bool,
    answer: Option<Result<Reply, CallError>>,
}

/// All of them.
#[derive(Default)]
pub struct Calls {
    all: BTreeMap<Serial, Call>,
    /// Calls that the agent waits for.
    open: BTreeMap<CallId, Serial>,
    serials: Serial,
    /// What the runtime refuses to do to an object again and again, and until when: a network that
    /// cannot be taken down, a process that cannot be killed.
    refusals: BTreeMap<(&'static str, String), u64>,
}

/// How long such a refusal lasts, milliseconds.
const REFUSAL_MS: u64 = 180_000;
/// The share of refusals that are repeated, percent.
const REPEATED_PCT: u64 = 10;

/// The outcome of a call, drawn when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is answered.
    Normal,
    /// It is refused, and nothing happens.
    Refused,
    /// It takes effect, and the answer is lost.
    Mute,
    /// It is lost on the way.
    Never,
    /// It takes effect after its deadline.
    Late,
}

impl Calls {
    /// The next life of the agent waits for none of them.
    pub fn begin_life(&mut self) {
        self.open.clear();
    }

    /// The runtime is down: calls that the agent no longer waits for are lost.
    pub fn drop_unheard(&mut self) {
        self.all.retain(|_, call| call.open);
    }

    fn forget_unless_open(&mut self, serial: Serial) {
        if self.all.get(&serial).is_some_and(|call| !call.open) {
            self.all.remove(&serial);
        }
    }
}

impl World {
    /// The agent asks for a call.
    pub(crate) fn ask(&mut self, id: CallId, request: Request, deadline: Instant) {
        let deadline = self.clocks.world_time(deadline);
        trace!(self.clocks.now(), "{:?} {}", id, brief(&request));
        self.tally.call(request.operation());
        self.check.request(self.clocks.now(), &self.runtime, id, &request, deadline);
        self.check_volumes(&request);
        self.check_cgroup(&request);
        self.check_log(&request);
        self.job_image_requested(&request);
        // The agent may not have received the event yet.
        if self.lose(id) {
            return;
        }
        let outcome = self.draw_outcome(&request);
        self.calls.serials += 1;
        let serial = self.calls.serials;
        let latency_ms = 1 + self.chance.below(self.faults.latency_ms + 1);
        let begins_in = match outcome {
            Outcome::Late => deadline - self.clocks.now() + 1 + self.chance.spread(60_000),
            Outcome::Normal | Outcome::Refused | Outcome::Mute | Outcome::Never => latency_ms,
        };
        if outcome != Outcome::Never {
            self.at(begins_in, WorldEvent::Begin(serial));
        }
        let begins_late = self.clocks.now() + begins_in >= deadline;
        if begins_late || matches!(outcome, Outcome::Mute | Outcome::Never | Outcome::Late) {
            self.at(deadline - self.clocks.now(), WorldEvent::Expire(serial));
        }
        self.calls.open.insert(id, serial);
        let call = Call {
            id,
            request,
            deadline,
            outcome,
            held_until: 0,
            open: true,
            begun: false,
            answer: None,
        };
        self.calls.all.insert(serial, call);
    }

    /// If there is no connection, fails the call before the agent learns of the disconnection.
    fn lose(&mut self, id: CallId) -> bool {
        let event = Event::Cri(id, Err(CallError::Lost(Lost::Connection)));
        if self.turns.push_before_disconnection(&event) {
            return true;
        }
        if !self.link.is_up() {
            self.deliver(vec![event]);
        }
        !self.link.is_up()
    }

    fn draw_outcome(&mut self, request: &Request) -> Outcome {
        let faults = &self.faults;
        // Lists are so many that the same rates would leave the agent without a list most of the
        // time.
        let weight = match request {
            Request::ListPodSandbox
            | Request::ListContainers
            | Request::Status
            | Request::GetContainerEvents => 4,
            _ => 1,
        };
        let draw = self.chance.below(100 * weight);
        let refused = faults.refuse_pct;
        let mute = refused + faults.mute_pct;
        let never = mute + faults.never_pct;
        let late = never + faults.late_pct;
        let outcome = match draw {
            _ if self.keeps_refusing(request, draw < refused) => Outcome::Refused,
            draw if draw < refused => Outcome::Refused,
            draw if draw < mute => Outcome::Mute,
            draw if draw < never => Outcome::Never,
            draw if draw < late => Outcome::Late,
            _ => return Outcome::Normal,
        };
        self.tally.add(match outcome {
            Outcome::Refused => "calls refused",
            Outcome::Mute => "answers lost",
            Outcome::Never => "calls lost",
            Outcome::Late | Outcome::Normal => "calls late",
        });
        trace!(self.clocks.now(), "    will be {outcome:?}");
        outcome
    }

    /// Whether the runtime refuses this request; if `refuses`, it may begin to do so for a while.
    fn keeps_refusing(&mut self, request: &Request, refuses: bool) -> bool {
        let about = match request {
            Request::StopPodSandbox(id)
            | Request::RemovePodSandbox(id)
            | Request::PodSandboxStatus(id) => id.0.to_string(),
            Request::StopContainer { id, .. }
            | Request::RemoveContainer(id)
            | Request::Task { id, .. }
            | Request::ContainerStatus(id) => id.0.to_string(),
            _ => return false,
        };
        let refusal = (request.operation(), about);
        if self.faults.refuse_pct == 0 {
            // Ends all repeated refusals.
            self.calls.refusals.clear();
        } else if refuses && self.chance.percent(REPEATED_PCT) {
            let until = self.clocks.now() + self.chance.spread(REFUSAL_MS);
            self.calls.refusals.insert(refusal.clone(), until);
        }
        self.calls.refusals.retain(|_, until| *until > self.clocks.now());
        self.calls.refusals.contains_key(&refusal)
    }

    /// The agent cancels a call.
    pub(crate) fn cancel(&mut self, id: CallId) {
        trace!(self.clocks.now(), "{id:?} cancelled");
        self.tally.add("calls cancelled");
        self.check.exec_answered(self.clocks.now(), id, None);
        self.check.answered(self.clocks.now(), id, false);
        let is_answer = |event: &Event| matches!(event, Event::Cri(answered, _) if *answered == id);
        let in_inbox = self.turns.withdraw(is_answer);
        let open = self.calls.open.remove(&id);
        judge!(open.is_some() || in_inbox, "[cancel] {id:?} is not under way");
        if let Some(serial) = open {
            self.abandon(serial);
        }
    }

    pub(crate) fn call_begins(&mut self, serial: Serial) {
        let Some(call) = self.calls.all.get_mut(&serial) else { return };
        if call.held_until > self.clocks.now() {
            let ms = call.held_until - self.clocks.now();
            self.at(ms, WorldEvent::Begin(serial));
            return;
        }
        if !self.link.is_daemon_up() {
            self.calls.all.remove(&serial);
            return;
        }
        if call.outcome == Outcome::Never {
            return;
        }
        if call.outcome == Outcome::Refused {
            let message = "context canceled by chance".to_owned();
            let error = CallError::Refused { code: Code::Unavailable, message };
            self.call_answered(serial, Err(error));
            return;
        }
        call.begun = true;
        let clock = self.clocks.runtime();
        let call = &self.calls.all[&serial];
        let world = (&self.faults, &mut self.chance);
        let begun = self.runtime.begin(clock, serial, &call.request, &self.disk.dirs, world);
        let deadline = call.deadline;
        match begun {
            Begun::Answer(result) => self.call_answered(serial, result),
            Begun::Takes(ms) => {
                if self.clocks.now() + ms >= deadline {
                    self.expire_at(serial, deadline);
                }
                self.at(ms, WorldEvent::Finish(serial));
            }
            Begun::Waits => self.expire_at(serial, deadline),
        }
        self.settle_runtime();
    }

    /// A deadline in the past is already in the queue.
    fn expire_at(&mut self, serial: Serial, deadline: u64) {
        if deadline > self.clocks.now() {
            self.at(deadline - self.clocks.now(), WorldEvent::Expire(serial));
        }
    }

    pub(crate) fn call_finishes(&mut self, serial: Serial) {
        let clock = self.clocks.runtime();
        let world = (&self.faults, &mut self.chance);
        if let Some(result) = self.runtime.finish(clock, serial, world) {
            self.call_answered(serial, result);
        }
        self.calls.forget_unless_open(serial);
        self.settle_runtime();
    }

    /// The runtime has an answer and sends it.
    pub(crate) fn call_answered(&mut self, serial: Serial, result: Result<Reply, CallError>) {
        let Some(call) = self.calls.all.get_mut(&serial) else { return };
        if call.open && matches!(result, Ok(Reply::Sandboxes(_) | Reply::Containers(_))) {
            self.check.relist.taken(self.clocks.now(), call.id);
        }
        if !call.open || matches!(call.outcome, Outcome::Mute | Outcome::Late) {
            trace!(self.clocks.now(), "{:?} unheard: {}", call.id, brief_result(&result));
            self.calls.forget_unless_open(serial);
            return;
        }
        call.answer = Some(result);
        let deadline = call.deadline;
        let slow = self.chance.percent(self.faults.slow_pct);
        let ms = if slow { self.chance.below(self.faults.slow_ms + 1) } else { 0 };
        if self.clocks.now() + ms >= deadline {
            self.expire_at(serial, deadline);
        } else if ms == 0 {
            self.answer(serial);
        } else {
            self.at(ms, WorldEvent::Answer(serial));
        }
    }

    /// The answer reaches the event loop.
    pub(crate) fn answer(&mut self, serial: Serial) {
        let Some(call) = self.calls.all.get_mut(&serial).filter(|call| call.open) else { return };
        let id = call.id;
        let result = call.answer.take().expect("it was stored before it was sent");
        trace!(self.clocks.now(), "{id:?} → {}", brief_result(&result));
        self.calls.all.remove(&serial);
        self.calls.open.remove(&id);
        self.deliver(vec![Event::Cri(id, result)]);
    }

    pub(crate) fn expire(&mut self, serial: Serial) {
        let Some(call) = self.calls.all.get(&serial).filter(|call| call.open) else { return };
        let id = call.id;
        trace!(self.clocks.now(), "{id:?} → deadline");
        self.tally.add("deadlines missed");
        self.calls.open.remove(&id);
        self.abandon(serial);
        self.deliver(vec![Event::Cri(id, Err(CallError::Lost(Lost::Deadline)))]);
    }

    /// The agent no longer waits for the call; its operation may go on.
    fn abandon(&mut self, serial: Serial) {
        let Some(call) = self.calls.all.get_mut(&serial) else { return };
        call.open = false;
        let over = call.answer.is_some();
        let begun = call.begun;
        let goes_on = !over && self.runtime.abandon(serial, &mut self.chance);
        if over || (begun && !goes_on) {
            self.calls.all.remove(&serial);
        }
    }

    /// The connection is lost: every open call fails, and takes effect or not.
    pub(crate) fn cut_calls(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, serial) in std::mem::take(&mut self.calls.open) {
            events.push(Event::Cri(id, Err(CallError::Lost(Lost::Connection))));
            self.abandon(serial);
            let dropped = self.chance.percent(40);
            let held = self.chance.percent(self.faults.cut_late_pct);
            let held_ms = self.chance.spread(90_000);
            let Some(call) = self.calls.all.get_mut(&serial).filter(|call| !call.begun) else {
                continue;
            };
            if dropped {
                self.calls.all.remove(&serial);
            } else if held {
                call.held_until = self.clocks.now() + held_ms;
            }
        }
        events
    }

    /// The runtime's event streams report a change.
    pub(crate) fn hint(&mut self) {
        let streams: Vec<Serial> = self.runtime.streams().collect();
        for serial in streams {
            let Some(call) = self.calls.all.get(&serial).filter(|call| call.open) else { continue };
            let (id, lost) = (call.id, self.chance.percent(self.faults.hint_lost_pct));
            if lost || call.outcome == Outcome::Mute {
                self.tally.add("hints lost");
            } else {
                self.tally.add("hints");
                self.deliver(vec![Event::Changed(id)]);
            }
        }
    }

    /// The event stream breaks; the connection stands.
    pub(crate) fn break_streams(&mut self) {
        let streams: Vec<Serial> = self.runtime.streams().collect();
        for serial in streams {
            self.tally.add("streams broken");
            let message = "stream terminated by RST_STREAM".to_owned();
            let error = CallError::Refused { code: Code::Unavailable, message };
            self.runtime.abandon(serial, &mut self.chance);
            self.call_answered(serial, Err(error));
        }
    }

    /// Abandoned calls no longer take effect.
    pub(crate) fn end_late_calls(&mut self) {
        for (&serial, _) in self.calls.all.iter().filter(|(_, call)| !call.open) {
            self.runtime.abort(serial);
        }
        self.calls.drop_unheard();
        for call in self.calls.all.values_mut().filter(|call| call.outcome == Outcome::Late) {
            call.outcome = Outcome::Never;
        }
    }

    /// Pulls that would hang and commands whose answers would be lost fail now: the agent may wait
    /// hours before it gives them up.
    pub(crate) fn break_off(&mut self) {
        let hangs = |call: &Call| match call.request {
            Request::PullImage { .. } => true,
            Request::ExecSync { .. } => call.outcome != Outcome::Normal,
            _ => false,
        };
        let hanging = self.calls.all.iter().filter(|(_, call)| call.open && hangs(call));
        let hanging: Vec<Serial> = hanging.map(|(&serial, _)| serial).collect();
        for serial in hanging {
            self.runtime.abandon(serial, &mut self.chance);
            let call = self.calls.all.get_mut(&serial).expect("just listed");
            call.outcome = Outcome::Normal;
            let message = "connection reset by peer".to_owned();
            let error = CallError::Refused { code: Code::Unknown, message };
            self.call_answered(serial, Err(error));
        }
    }
}

/// A request in a line.
pub fn brief(request: &Request) -> String {
    let operation = request.operation();
    match request {
        Request::RunPodSandbox(config) => {
            format!("{operation} {} uid={} #{}", config.pod.name, config.pod.uid, config.attempt)
        }
        Request::CreateContainer { sandbox, config, sandbox_config } => {
            let pod = &sandbox_config.pod;
            let (name, attempt) = (&config.name, config.attempt);
            format!("{operation} {}/{name} uid={} #{attempt} in {sandbox}", pod.name, pod.uid)
        }
        Request::StopContainer { id, grace_s } => format!("{operation} {id} grace={grace_s}"),
        Request::StartContainer(id)
        | Request::RemoveContainer(id)
        | Request::Task { id, .. }
        | Request::ContainerStatus(id) => format!("{operation} {id}"),
        Request::StopPodSandbox(id)
        | Request::RemovePodSandbox(id)
        | Request::PodSandboxStatus(id) => format!("{operation} {id}"),
        Request::ExecSync { id, command, timeout_s, .. } => {
            format!("{operation} {id} {command:?} {timeout_s} s")
        }
        Request::ImageStatus(image) => format!("{operation} {image}"),
        Request::HousekeepingCall(housekeeping) => format!("{operation} {housekeeping:?}"),
        #[cfg(feature = "streams")]
        Request::Streaming(call) => format!("{operation} {call:?}"),
        Request::PullImage { image, auth, sandbox_config } => {
            let user = auth.as_ref().map_or("", |auth| &auth.username);
            format!("{operation} {image} uid={} user={user}", sandbox_config.pod.uid)
        }
        Request::Version
        | Request::RuntimeConfig
        | Request::Status
        | Request::ListPodSandbox
        | Request::ListContainers
        | Request::GetContainerEvents => operation.to_owned(),
    }
}

fn brief_result(result: &Result<Reply, CallError>) -> String {
    match result {
        Ok(Reply::Sandboxes(sandboxes)) => {
            let one = |it: &std::sync::Arc<edged::model::cri::Sandbox>| {
                format!("{}{}", it.id, if it.ready { "" } else { "†" })
            };
            sandboxes.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Ok(Reply::Containers(containers)) => {
            let one = |it: &std::sync::Arc<edged::model::cri::Container>| {
                format!("{}={:?}", it.id, it.state)
            };
            containers.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Ok(reply) => format!("{reply:?}"),
        Err(error) => error.to_string(),
    }
}
