//! EdgeHub: the WebSocket session with the cloud (wire spec sections 2.3 to 2.6).
//!
//! ```text
//!  Down ──retry due──▶ Dialing ──LinkUp──▶ Up ──LinkDown│silence──▶ Down
//!   ▲                     └──LinkDown──────────────────────────────▶┘
//! ```
//!
//! Intended behaviour: a lost link is noticed within [`LINK_SILENCE_MS`], also a half-open one,
//! because we send pings ourselves; the cloud sends nothing on an idle link. A link that answers
//! pings but no request is a connection without a session: `CloudCore` keeps connections open that
//! it does not serve (trap 15 of the wire spec), so it is closed after [`LINK_MUTE_MS`]. The wait
//! before the next dial doubles, and is short again only after the link has held for a while; it
//! stays short for some minutes where dials are refused at once. Messages are sent with a rate
//! limit, as in KubeEdge; answers that the cloud waits for go first.
//!
//! If we crash here: the cloud sends again what was not acknowledged.

use std::collections::VecDeque;

use crate::agent::event::{Action, Out, Severity};
use crate::agent::rate::Rate;
use crate::agent::time::{Backoff, BackoffBounds, Instant, Now, Rng};
use crate::limits::{
    ANSWERS_MAX, DIAL_MS, LINK_BACKOFF_MAX_MS, LINK_BACKOFF_MIN_MS, LINK_CALM_MS, LINK_MUTE_MS,
    LINK_PING_MS, LINK_REFUSED_MAX_MS, LINK_REFUSED_MS, LINK_SILENCE_MS, UNSENT_MAX,
};
use crate::model::link::{Cause, Session};
use crate::model::settings::CloudSettings;
use crate::model::upstream::{self, Upstream};

/// The session with the cloud, and the queue of answers.
#[derive(Debug)]
pub(super) struct Hub {
    heartbeat_ms: u64,
    state: State,
    last: Session,
    /// Since when there is no link.
    lost_at: Instant,
    backoff: Backoff,
    rate: Rate,
    /// Answers that the cloud waits for.
    answers: VecDeque<Upstream>,
    /// The last trouble with the link that was logged.
    logged_trouble: Option<String>,
}

/// What an event or a step has done to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum LinkEvent {
    /// Nothing; also if the event is about an earlier session.
    Unchanged,
    /// It is up.
    Up,
    /// It has ended: no request is answered any more.
    Lost,
}

#[derive(Debug)]
enum State {
    Down { retry_at: Instant },
    Dialing(Session),
    Up(Up),
}

#[derive(Debug)]
struct Up {
    session: Session,
    since: Instant,
    received_at: Instant,
    /// The cloud has sent a message in this session.
    has_received: bool,
    pinged_at: Option<Instant>,
    keepalive_at: Instant,
    /// Messages that were handed over for sending, and of them those that have not left.
    handed_over: u64,
    unsent: usize,
}

impl Up {
    /// When the session is closed because no ping or no message was answered: the lease at least is
    /// requested all the time. Returns also how long that was, in milliseconds, and the reason.
    fn end(&self) -> (Instant, u64, &'static str) {
        let silent =
            (self.received_at.plus_ms(LINK_SILENCE_MS), LINK_SILENCE_MS, "no sign of life");
        let mute = (self.since.plus_ms(LINK_MUTE_MS), LINK_MUTE_MS, "nothing but pongs");
        if self.has_received { silent } else { silent.min(mute) }
    }

    /// When a ping is due: after silence, and again after the same time.
    fn ping_at(&self) -> Instant {
        self.pinged_at.unwrap_or(self.received_at).plus_ms(LINK_PING_MS)
    }
}

impl Hub {
    pub(super) fn new(settings: &CloudSettings, now: Now) -> Self {
        Self {
            heartbeat_ms: settings.heartbeat_ms,
            state: State::Down { retry_at: now.boot },
            last: Session(0),
            lost_at: now.boot,
            backoff: Backoff::default(),
            rate: Rate::new(settings.messages_per_second, settings.messages_burst, now.boot),
            answers: VecDeque::new(),
            logged_trouble: None,
        }
    }

    /// The link of this session is up.
    pub(super) fn up(&mut self, now: Now, session: Session, out: &mut Out) -> LinkEvent {
        if !matches!(self.state, State::Dialing(dialled) if dialled == session) {
            return LinkEvent::Unchanged;
        }
        out.push(Action::Log(Severity::Info, "cloud: connected".to_owned()));
        self.logged_trouble = None;
        self.state = State::Up(Up {
            session,
            since: now.boot,
            received_at: now.boot,
            has_received: false,
            pinged_at: None,
            // The cloud counts the time from the WebSocket upgrade.
            keepalive_at: now.boot,
            handed_over: 0,
            unsent: 0,
        });
        LinkEvent::Up
    }

    /// The link of this session is down.
    pub(super) fn down(
        &mut self,
        now: Now,
        session: Session,
        cause: &Cause,
        rng: &mut Rng,
        out: &mut Out,
    ) -> LinkEvent {
        if self.session() != Some(session) {
            return LinkEvent::Unchanged;
        }
        self.go_down(now, cause, rng, out);
        LinkEvent::Lost
    }

    fn go_down(&mut self, now: Now, cause: &Cause, rng: &mut Rng, out: &mut Out) {
        let was_up = matches!(self.state, State::Up(_));
        if was_up {
            self.lost_at = now.boot;
        }
        let is_recent = now.boot.since_ms(self.lost_at) < LINK_REFUSED_MS;
        let max_ms = match cause {
            Cause::Refused(_) if is_recent => LINK_REFUSED_MAX_MS,
            Cause::NotJoined(_) | Cause::Refused(_) | Cause::Credentials(_) | Cause::Link(_) => {
                LINK_BACKOFF_MAX_MS
            }
        };
        let bounds = BackoffBounds { min_ms: LINK_BACKOFF_MIN_MS, max_ms, calm_ms: LINK_CALM_MS };
        let why = &*cause.to_string();
        self.backoff.grow(now.boot, now.boot, bounds);
        let delay_ms = self.backoff.delay_ms();
        // Gateways that lost the same cloud must not reconnect at the same moment.
        let wait_ms = delay_ms / 2 + rng.below(delay_ms / 2 + 1);
        self.state = State::Down { retry_at: now.boot.plus_ms(wait_ms) };
        self.answers.clear();
        if was_up || self.logged_trouble.as_deref() != Some(why) {
            let (severity, line) = match cause {
                Cause::NotJoined(_) => (Severity::Info, format!("cloud: {why}: applying for one")),
                Cause::Credentials(_) | Cause::Refused(_) | Cause::Link(_) => {
                    (Severity::Warn, format!("cloud: {why}; the pods stay as they are"))
                }
            };
            out.push(Action::Log(severity, line));
            self.logged_trouble = Some(why.to_owned());
        }
    }

    /// The session that is being dialled or is up.
    fn session(&self) -> Option<Session> {
        match &self.state {
            State::Down { .. } => None,
            State::Dialing(session) => Some(*session),
            State::Up(up) => Some(up.session),
        }
    }

    /// The cloud has sent a message over the link of this session.
    pub(super) fn message_received(&mut self, session: Session) {
        if let State::Up(up) = &mut self.state
            && up.session == session
        {
            up.has_received = true;
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    pub(super) fn is_up_in(&self, session: Session) -> bool {
        matches!(&self.state, State::Up(up) if up.session == session)
    }

    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.state, State::Dialing(_))
    }

    /// Milliseconds since the link came up; `None`: it is down.
    pub(super) fn up_ms(&self, now: Now) -> Option<u64> {
        match &self.state {
            State::Up(up) => Some(now.boot.since_ms(up.since)),
            State::Down { .. } | State::Dialing(_) => None,
        }
    }

    /// Why there is no link; `None`: there is one.
    pub(super) fn trouble(&self) -> Option<&str> {
        match self.state {
            State::Up(_) => None,
            State::Down { .. } | State::Dialing(_) => {
                Some(self.logged_trouble.as_deref().unwrap_or("not connected yet"))
            }
        }
    }

    /// Something was received over the link: a message or a pong.
    pub(super) fn received(&mut self, now: Now, session: Session) {
        if let State::Up(up) = &mut self.state
            && up.session == session
        {
            up.received_at = now.boot;
            up.pinged_at = None;
        }
    }

    /// So many messages have left.
    pub(super) fn sent(&mut self, session: Session, count: usize) {
        if let State::Up(up) = &mut self.state
            && up.session == session
        {
            up.unsent = up.unsent.saturating_sub(count);
        }
    }

    /// The number of the last message that was handed over in this session, from 1 on, and of the
    /// last one that has left.
    pub(super) fn counts(&self) -> (u64, u64) {
        match &self.state {
            State::Up(up) => (up.handed_over, up.handed_over - up.unsent as u64),
            State::Down { .. } | State::Dialing(_) => (0, 0),
        }
    }

    /// Queues an answer to the cloud, which is sent before anything else. When the queue is full
    /// the answer is dropped: the cloud then sends again what it wants to have acknowledged.
    pub(super) fn answer(&mut self, now: Now, content: upstream::Up, rng: &mut Rng) {
        let message = message(rng, now, content);
        if self.is_up() && self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(message);
        }
    }

    /// Whether a message that is not an answer can be sent now.
    pub(super) fn has_room(&mut self, now: Now) -> bool {
        self.answers.is_empty() && self.may_send(now)
    }

    /// Sends a message that is no answer; returns its id. The caller has checked
    /// [`Hub::has_room`].
    pub(super) fn send(
        &mut self,
        now: Now,
        content: upstream::Up,
        rng: &mut Rng,
        out: &mut Out,
    ) -> Box<str> {
        let message = message(rng, now, content);
        let id = message.id.clone();
        self.hand_over(now, message, out);
        id
    }

    fn hand_over(&mut self, now: Now, message: Upstream, out: &mut Out) {
        let State::Up(up) = &mut self.state else { panic!("nothing is sent without a link") };
        self.rate.take(now.boot);
        up.handed_over += 1;
        up.unsent += 1;
        out.push(Action::Send(up.session, Box::new(message)));
    }

    /// Ends the session to begin another one with new credentials.
    pub(super) fn renew(&mut self, now: Now, out: &mut Out) -> LinkEvent {
        if let Some(session) = self.session() {
            out.push(Action::Hangup(session));
        }
        if self.is_up() {
            self.lost_at = now.boot;
        }
        self.answers.clear();
        self.state = State::Down { retry_at: now.boot };
        LinkEvent::Lost
    }

    /// Dials, sends pings and keep-alives, sends the queued answers, and ends a session in which
    /// the cloud does not answer. `may_dial`: there are credentials to try.
    pub(super) fn step(
        &mut self,
        now: Now,
        may_dial: bool,
        rng: &mut Rng,
        out: &mut Out,
    ) -> LinkEvent {
        match &self.state {
            State::Down { retry_at } if *retry_at <= now.boot && may_dial => {
                self.last = Session(self.last.0 + 1);
                self.state = State::Dialing(self.last);
                let deadline = now.boot.plus_ms(DIAL_MS);
                out.push(Action::Dial { session: self.last, deadline });
                return LinkEvent::Unchanged;
            }
            State::Down { .. } | State::Dialing(_) => return LinkEvent::Unchanged,
            State::Up(up) => {
                let (end_at, ms, what) = up.end();
                if end_at <= now.boot {
                    out.push(Action::Hangup(up.session));
                    let cause = Cause::Link(format!("{what} for {} s", ms / 1000));
                    self.go_down(now, &cause, rng, out);
                    return LinkEvent::Lost;
                }
            }
        }
        self.keep_alive(now, rng, out);
        while !self.answers.is_empty() && self.may_send(now) {
            let message = self.answers.pop_front().expect("it is not empty");
            self.hand_over(now, message, out);
        }
        LinkEvent::Unchanged
    }

    fn may_send(&mut self, now: Now) -> bool {
        matches!(&self.state, State::Up(up) if up.unsent < UNSENT_MAX) && self.rate.has(now.boot)
    }

    fn keep_alive(&mut self, now: Now, rng: &mut Rng, out: &mut Out) {
        let State::Up(up) = &mut self.state else { return };
        if up.keepalive_at <= now.boot {
            up.keepalive_at = now.boot.plus_ms(self.heartbeat_ms);
            up.handed_over += 1;
            up.unsent += 1;
            // Without regard to the rate: without it the cloud closes the connection.
            let message = message(rng, now, upstream::Up::KeepAlive);
            out.push(Action::Send(up.session, Box::new(message)));
        }
        if up.ping_at() <= now.boot {
            up.pinged_at = Some(now.boot);
            out.push(Action::Ping(up.session));
        }
    }

    pub(super) fn wake_at(&self, may_dial: bool) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at } => may_dial.then_some(*retry_at),
            State::Dialing(_) => None,
            State::Up(up) => {
                let (end_at, ..) = up.end();
                let due = up.keepalive_at.min(up.ping_at()).min(end_at);
                let waits = !self.answers.is_empty() && up.unsent < UNSENT_MAX;
                Some(if waits { due.min(self.rate.wake_at()) } else { due })
            }
        }
    }

    /// When a message that is not an answer can be sent, as far as the rate decides it.
    pub(super) fn room_at(&self) -> Option<Instant> {
        matches!(&self.state, State::Up(up) if up.unsent < UNSENT_MAX).then(|| self.rate.wake_at())
    }
}

/// A message with a new id. Any text works that nobody else uses; 64 random bits are shorter than a
/// UUID, and these bytes are the traffic of an idle link.
fn message(rng: &mut Rng, now: Now, content: upstream::Up) -> Upstream {
    let id = format!("{:016x}", rng.bits()).into();
    Upstream { id, timestamp_ms: now.wall.map_or(0, |wall| wall.0), content }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::upstream::Origin;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: None }
    }

    /// A hub at boot, without a rate limit.
    fn hub() -> Hub {
        let settings = CloudSettings { messages_per_second: 0, ..CloudSettings::default() };
        Hub::new(&settings, at(0))
    }

    /// The actions of one step.
    fn step(hub: &mut Hub, ms: u64) -> Vec<Action> {
        let mut out = Out::default();
        let _ = hub.step(at(ms), true, &mut Rng::new(ms), &mut out);
        out.actions
    }

    fn dial(hub: &mut Hub, ms: u64) -> Session {
        let actions = step(hub, ms);
        let [Action::Dial { session, deadline }] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(deadline, Instant(ms + DIAL_MS), "its time begins with the request");
        session
    }

    fn connect(hub: &mut Hub, ms: u64) -> Session {
        let session = dial(hub, ms);
        assert_eq!(hub.up(at(ms), session, &mut Out::default()), LinkEvent::Up);
        session
    }

    /// The session ends. Returns when the next dial is due.
    fn fail(hub: &mut Hub, ms: u64, session: Session, cause: &Cause) -> u64 {
        let mut rng = Rng::new(ms);
        let event = hub.down(at(ms), session, cause, &mut rng, &mut Out::default());
        assert_eq!(event, LinkEvent::Lost);
        let next = hub.wake_at(true).expect("it is dialled again").0;
        let (wait_ms, delay_ms) = (next - ms, hub.backoff.delay_ms());
        assert!((delay_ms / 2..=delay_ms).contains(&wait_ms), "{wait_ms} of {delay_ms}");
        assert!(step(hub, next - 1).is_empty(), "not before");
        next
    }

    /// So many dials fail, from this moment on. Returns the delays between them, and when the last
    /// is over.
    fn delays(hub: &mut Hub, mut ms: u64, cause: &Cause, count: u32) -> (Vec<u64>, u64) {
        let mut delays = Vec::new();
        for _ in 0..count {
            let session = dial(hub, ms);
            ms = fail(hub, ms, session, cause);
            delays.push(hub.backoff.delay_ms());
        }
        (delays, ms)
    }

    fn growing(max_ms: u64, count: u32) -> Vec<u64> {
        (0..count).map(|at| (LINK_BACKOFF_MIN_MS << at).min(max_ms)).collect()
    }

    #[test]
    fn without_credentials_to_try_nothing_is_dialled() {
        let mut hub = hub();
        let mut out = Out::default();
        let _ = hub.step(at(1), false, &mut Rng::new(1), &mut out);
        assert!(out.actions.is_empty() && hub.wake_at(false).is_none(), "{:?}", out.actions);
        dial(&mut hub, 2);
    }

    #[test]
    fn the_wait_before_the_next_dial_doubles_to_its_bound() {
        for (cause, max_ms) in [
            (Cause::Link("no answer".to_owned()), LINK_BACKOFF_MAX_MS),
            (Cause::Credentials("it has ended".to_owned()), LINK_BACKOFF_MAX_MS),
            (Cause::Refused("nobody listens".to_owned()), LINK_REFUSED_MAX_MS),
        ] {
            assert_eq!(delays(&mut hub(), 0, &cause, 20).0, growing(max_ms, 20), "{cause:?}");
        }
    }

    #[test]
    fn refusals_are_waited_for_as_anything_else_some_time_after_the_loss() {
        let refused = Cause::Refused("nobody listens".to_owned());
        for (ms, delay_ms) in
            [(LINK_REFUSED_MS - 1, LINK_REFUSED_MAX_MS), (LINK_REFUSED_MS, 2 * LINK_REFUSED_MAX_MS)]
        {
            let mut hub = hub();
            let (_, mut next) = delays(&mut hub, 0, &refused, 10);
            while next + LINK_CALM_MS / 2 < ms {
                let session = dial(&mut hub, next);
                next = fail(&mut hub, next, session, &refused).max(next + LINK_CALM_MS / 2);
            }
            let session = dial(&mut hub, ms);
            fail(&mut hub, ms, session, &refused);
            assert_eq!(hub.backoff.delay_ms(), delay_ms, "{ms} ms after the loss");
        }
    }

    #[test]
    fn a_loss_after_a_calm_time_counts_as_the_first() {
        let lost = Cause::Link("connection reset".to_owned());
        for (calm_ms, delay_ms) in
            [(LINK_CALM_MS, LINK_BACKOFF_MAX_MS), (LINK_CALM_MS + 1, LINK_BACKOFF_MIN_MS)]
        {
            let mut hub = hub();
            let (_, next) = delays(&mut hub, 0, &lost, 10);
            let failed_at = hub.backoff.over_at().0 - hub.backoff.delay_ms();
            let session = connect(&mut hub, next);
            fail(&mut hub, failed_at + calm_ms, session, &lost);
            assert_eq!(hub.backoff.delay_ms(), delay_ms, "{calm_ms} ms after the one before");
        }
    }

    /// Whether it sends a ping, and whether it closes the session.
    fn signs(hub: &mut Hub, ms: u64) -> (bool, bool) {
        let actions = step(hub, ms);
        let pings = actions.iter().any(|action| matches!(action, Action::Ping(_)));
        (pings, actions.iter().any(|action| matches!(action, Action::Hangup(_))))
    }

    #[test]
    fn a_silent_link_is_pinged_repeatedly_and_then_closed() {
        let mut hub = hub();
        let session = connect(&mut hub, 0);
        hub.message_received(session);
        for n in 1..3 {
            assert_eq!(signs(&mut hub, n * LINK_PING_MS - 1), (false, false));
            assert_eq!(signs(&mut hub, n * LINK_PING_MS), (true, false));
        }
        assert_eq!(signs(&mut hub, LINK_SILENCE_MS - 1), (false, false));
        // At the last moment.
        hub.received(at(LINK_SILENCE_MS - 1), session);
        assert_eq!(signs(&mut hub, LINK_SILENCE_MS), (false, false));
        signs(&mut hub, 2 * LINK_SILENCE_MS - 2);
        assert!(hub.is_up());
        assert_eq!(signs(&mut hub, 2 * LINK_SILENCE_MS - 1), (false, true));
        assert!(!hub.is_up());
    }

    #[test]
    fn a_link_without_messages_is_closed_even_if_it_answers_pings() {
        for sends in [false, true] {
            let mut hub = hub();
            let session = connect(&mut hub, 0);
            if sends {
                hub.message_received(session);
            }
            for ms in (0..LINK_MUTE_MS).step_by(5_000) {
                hub.received(at(ms), session);
                assert_eq!(signs(&mut hub, ms), (false, false));
            }
            assert_eq!(signs(&mut hub, LINK_MUTE_MS - 1), (false, false));
            assert_eq!(signs(&mut hub, LINK_MUTE_MS), (false, !sends));
        }
    }

    #[test]
    fn answers_that_wait_have_a_bound_and_what_is_too_much_is_not_answered() {
        let mut hub = hub();
        let session = connect(&mut hub, 0);
        step(&mut hub, 0);
        hub.sent(session, 1);
        for n in 0..=ANSWERS_MAX {
            let to = Origin { id: n.to_string().into(), ..Origin::default() };
            let answer = upstream::Up::Reply(to, upstream::Reply::Stored);
            hub.answer(at(0), answer, &mut Rng::new(1));
        }
        let mut answered = Vec::new();
        loop {
            let sent = step(&mut hub, 1);
            assert!(sent.len() <= UNSENT_MAX, "the others wait until these have left");
            if sent.is_empty() {
                break;
            }
            hub.sent(session, sent.len());
            answered.extend(sent.into_iter().filter_map(|action| match action {
                Action::Send(_, message) => match message.content {
                    upstream::Up::Reply(to, _) => Some(to.id),
                    _ => None,
                },
                _ => None,
            }));
        }
        let expected: Vec<Box<str>> = (0..ANSWERS_MAX).map(|at| at.to_string().into()).collect();
        assert_eq!(answered, expected, "the newest is dropped");
    }

    #[test]
    fn what_an_earlier_session_reports_changes_nothing() {
        let lost = Cause::Link("connection reset".to_owned());
        let (mut hub, mut rng, mut out) = (hub(), Rng::new(1), Out::default());
        let first = connect(&mut hub, 0);
        let next = fail(&mut hub, 1, first, &lost);
        let second = dial(&mut hub, next);
        assert_eq!(hub.up(at(next), first, &mut out), LinkEvent::Unchanged);
        assert_eq!(hub.up(at(next), second, &mut out), LinkEvent::Up);
        assert_eq!(hub.down(at(next), first, &lost, &mut rng, &mut out), LinkEvent::Unchanged);
        assert!(hub.is_up_in(second) && !hub.is_up_in(first));
        assert_eq!(hub.renew(at(next), &mut out), LinkEvent::Lost);
        assert!(!hub.is_up());
    }
}
