//! The messages on the link, and what happens to them.

use edged::agent::event::Event;
use edged::limits::Budget;
use edged::model::link::{Cause, Session, Validity};
use edged::model::message::Message;
use edged::wire::kubeedge;

use super::link::Frame;
use super::{CloudSim, Due, Outcome, TICK_MS};
use crate::clocks::TODAY_MS;
use crate::trace::trace;

/// A session ends after this silence.
const SILENCE_MS: u64 = 30_000;

impl CloudSim {
    fn latency_ms(&mut self) -> u64 {
        1 + self.chance.below(self.rates.latency_ms + 1)
    }

    /// The agent dials.
    pub(super) fn dial(&mut self, now: u64, session: Session, wait_ms: u64) {
        self.link.dial(session);
        self.count("dials");
        let conn = self.link.open(self.life, session);
        let soon_ms = self.latency_ms().min(wait_ms);
        let wall_s = Self::wall_s(now);
        let good = |it: Validity| it.not_before_s <= wall_s && wall_s < it.not_after_s;
        let (ms, outcome) = if now < self.down_until {
            let hangs = self.chance.percent(50);
            (if hangs { wait_ms } else { soon_ms }, Outcome::Fails)
        } else if self.chance.percent(self.rates.dial_hang_pct) {
            (wait_ms, Outcome::Fails)
        } else if self.chance.percent(self.rates.dial_fail_pct) {
            (soon_ms, Outcome::Fails)
        } else if !self.validity.is_some_and(good) {
            (soon_ms, Outcome::Refused)
        } else if self.rates.dial_fail_pct > 0 && self.chance.percent(5) {
            self.timers.push((wait_ms, Due::Dialled(conn, Outcome::Fails)));
            (soon_ms, Outcome::Half)
        } else if self.rates.dial_fail_pct > 0 && self.chance.percent(3) {
            (soon_ms, Outcome::Alone)
        } else {
            (soon_ms, Outcome::Up)
        };
        trace!(now, "dial {session:?}: {outcome:?} in {ms} ms");
        self.timers.push((ms, Due::Dialled(conn, outcome)));
    }

    pub(super) fn dialled(&mut self, now: u64, number: u64, outcome: Outcome) {
        let life = self.life;
        let Some(conn) = self.link.get_mut(number) else { return };
        let (session, ours) = (conn.session, conn.edge_open && conn.life == life);
        let opens = matches!(outcome, Outcome::Up | Outcome::Half | Outcome::Alone);
        // The certificate may have been revoked since it was presented.
        let outcome = if opens && self.validity.is_none() { Outcome::Refused } else { outcome };
        match outcome {
            Outcome::Fails | Outcome::Refused => {
                self.link.forget(number);
                if ours {
                    let cause = if outcome == Outcome::Refused {
                        Cause::Credentials("certificate unknown".to_owned())
                    } else {
                        Cause::Link("connection refused".to_owned())
                    };
                    self.events.push(Event::LinkDown(session, cause));
                }
            }
            // The agent has given it up meanwhile.
            Outcome::Up | Outcome::Half | Outcome::Alone if !ours => self.link.forget(number),
            Outcome::Alone => {
                conn.cloud_open = true;
                conn.alone = true;
                self.count("links without a session");
                let validity = self.validity.expect("it was valid when it was presented");
                self.events.push(Event::LinkUp(session, validity));
            }
            Outcome::Up | Outcome::Half => {
                for old in self.link.numbers() {
                    if old < number {
                        self.link.forget(old);
                    }
                }
                self.link.get_mut(number).expect("just seen").cloud_open = true;
                self.hub.connect(now, number);
                self.informers_connected();
                self.timers.push((SILENCE_MS, Due::Silence(number)));
                if outcome == Outcome::Up {
                    self.count("links up");
                    let validity = self.validity.expect("it was valid when it was presented");
                    self.events.push(Event::LinkUp(session, validity));
                }
            }
        }
    }

    /// The agent sends a message.
    pub(super) fn send(&mut self, now: u64, session: Session, message: Box<Message>) {
        self.link.sends(session);
        trace!(
            now,
            "says {} {} {}",
            message.route.operation,
            message.route.resource,
            message.header.parent_id
        );
        let tight = self.rates.is_tight;
        let left_ms = self.chance.below(3);
        if let Some(conn) = self.push_up(now, session, Frame::Message(message))
            && !tight
        {
            self.timers.push((left_ms, Due::Left(conn)));
        }
    }

    /// The agent sends a ping.
    pub(super) fn ping(&mut self, now: u64, session: Session) {
        self.push_up(now, session, Frame::Ping);
    }

    /// The agent closes the session.
    pub(super) fn hang_up(&mut self, now: u64, session: Session) {
        trace!(now, "hangs up {session:?}");
        self.push_up(now, session, Frame::End);
        self.link.down(session);
        if let Some(conn) = self.link.find(self.life, session) {
            self.link.get_mut(conn).expect("just found").edge_open = false;
        }
    }

    fn push_up(&mut self, now: u64, session: Session, frame: Frame) -> Option<u64> {
        let ms = self.latency_ms();
        let number = self.link.find(self.life, session)?;
        let conn = self.link.get_mut(number).expect("just found");
        let ms = conn.up.push(now, frame, ms);
        self.timers.push((ms, Due::Up(number)));
        Some(number)
    }

    fn push_down(&mut self, now: u64, number: u64, frame: Frame) {
        let ms = self.latency_ms();
        if let Some(conn) = self.link.get_mut(number) {
            let ms = conn.down.push(now, frame, ms);
            self.timers.push((ms, Due::Down(number)));
        }
    }

    /// Sends what the cloud wrote.
    pub(super) fn flush(&mut self, now: u64) {
        self.timers.append(&mut self.hub.timers);
        for mut message in std::mem::take(&mut self.hub.written) {
            message.header.timestamp_ms = TODAY_MS + now as i64;
            if let Some(conn) = self.hub.conn {
                self.push_down(now, conn, Frame::Message(Box::new(message)));
            }
        }
    }

    pub(super) fn goes_up(&mut self, now: u64, number: u64) {
        let (life, tight) = (self.life, self.rates.is_tight);
        let Some(conn) = self.link.get_mut(number) else { return };
        if let Some(wait) = conn.up.held(now) {
            self.timers.extend(wait.map(|ms| (ms, Due::Up(number))));
            return;
        }
        let Some(frame) = conn.up.frames.pop_front() else { return };
        let ours = conn.edge_open && conn.life == life;
        let (session, open) = (conn.session, conn.cloud_open);
        match frame {
            Frame::Message(message) => {
                if tight && ours {
                    self.events.push(Event::Sent(session, 1));
                }
                if open {
                    self.receive(now, number, &message);
                }
            }
            Frame::Ping if open => self.push_down(now, number, Frame::Pong),
            Frame::Ping | Frame::Pong => {}
            Frame::End => {
                if self.hub.conn == Some(number) {
                    self.hub.disconnect();
                }
                self.link.forget(number);
            }
        }
    }

    pub(super) fn comes_down(&mut self, now: u64, number: u64) {
        let life = self.life;
        let Some(conn) = self.link.get_mut(number) else { return };
        if let Some(wait) = conn.down.held(now) {
            self.timers.extend(wait.map(|ms| (ms, Due::Down(number))));
            return;
        }
        let Some(frame) = conn.down.frames.pop_front() else { return };
        if !conn.edge_open || conn.life != life {
            return;
        }
        let session = conn.session;
        match frame {
            Frame::Message(message) => {
                self.events.push(Event::LinkActive(session));
                let content = kubeedge::decode(&message, &Budget::FULL);
                self.coming.push_back(message);
                self.events.push(Event::Cloud(session, Box::new(content)));
            }
            Frame::Ping | Frame::Pong => self.events.push(Event::LinkActive(session)),
            Frame::End => {
                self.link.forget(number);
                let cause = Cause::Link("closed by the cloud".to_owned());
                self.events.push(Event::LinkDown(session, cause));
            }
        }
    }

    pub(super) fn left(&mut self, number: u64) {
        let life = self.life;
        if let Some(conn) = self.link.get_mut(number).filter(|it| it.edge_open && it.life == life) {
            self.events.push(Event::Sent(conn.session, 1));
        }
    }

    /// Checks that the node has sent something.
    pub(super) fn silence(&mut self, now: u64, number: u64) {
        if self.hub.conn != Some(number) {
            return;
        }
        let silent_ms = now - self.hub.alive_at;
        if silent_ms < SILENCE_MS {
            self.timers.push((SILENCE_MS - silent_ms, Due::Silence(number)));
            return;
        }
        trace!(now, "the cloud has received nothing for {silent_ms} ms");
        self.count("sessions ended by the cloud");
        self.close(now, number);
    }

    fn close(&mut self, now: u64, number: u64) {
        if self.hub.conn == Some(number) {
            self.hub.disconnect();
        }
        if let Some(conn) = self.link.get_mut(number) {
            conn.cloud_open = false;
            self.push_down(now, number, Frame::End);
        }
    }

    pub(super) fn answer(&mut self, serial: u64) {
        if let Some((conn, message)) = self.answers.remove(&serial)
            && self.hub.conn == Some(conn)
        {
            self.hub.written.push(message);
        }
    }

    /// Draws each fault.
    pub(super) fn tick(&mut self, now: u64) {
        self.timers.push((TICK_MS, Due::Tick));
        if self.chance.ppm(self.rates.cut_ppm) {
            self.cut(now);
        }
        if self.chance.ppm(self.rates.hold_ppm) {
            self.hold(now);
        }
        if self.chance.ppm(self.rates.down_ppm) {
            self.count("clouds unreachable");
            self.down_until = now + self.chance.spread(self.rates.down_ms);
            self.cut(now);
        }
        if self.chance.ppm(self.rates.full_ppm) {
            self.store.full_until = now + self.chance.spread(self.rates.full_ms);
        }
        if self.chance.ppm(self.rates.revoke_ppm) {
            self.count("certificates revoked");
            self.validity = None;
            self.closed_until = now + self.chance.spread(self.rates.down_ms);
            self.cut(now);
        }
        if self.chance.ppm(self.rates.restart_ppm) {
            self.count("cloud restarts");
            self.cut(now);
            self.informers_restart_cloud();
            self.replay();
        }
        if self.chance.ppm(self.rates.mischief_ppm) {
            self.count("mischief");
            self.mischief(now);
        }
    }

    /// Informers start again: everything is reported as new.
    pub(super) fn replay(&mut self) {
        let all = self.api.iter().map(|(key, object)| super::api::Change {
            action: super::api::ChangeKind::Added,
            key: key.clone(),
            object: object.clone(),
        });
        let all: Vec<_> = all.collect();
        for change in all {
            self.hub.informed(&self.api, &change, true);
        }
    }

    /// Both ends see the connection break; frames in transit are lost.
    pub(super) fn cut(&mut self, now: u64) {
        for number in self.link.numbers() {
            let life = self.life;
            let conn = self.link.get_mut(number).expect("just listed");
            // Only the agent closes a connection without a session; otherwise the end would be too
            // easy.
            if !conn.cloud_open || conn.alone {
                continue;
            }
            trace!(now, "the link breaks");
            let (ours, session) = (conn.edge_open && conn.life == life, conn.session);
            self.link.forget(number);
            if self.hub.conn == Some(number) {
                self.hub.disconnect();
            }
            if ours {
                self.count("links broken");
                let cause = Cause::Link("connection reset by peer".to_owned());
                self.events.push(Event::LinkDown(session, cause));
            }
        }
    }

    fn hold(&mut self, now: u64) {
        let Some(number) = self.hub.conn else { return };
        let until = if self.chance.percent(40) {
            u64::MAX
        } else {
            now + self.chance.spread(self.rates.hold_ms)
        };
        let which = self.chance.below(3);
        let Some(conn) = self.link.get_mut(number) else { return };
        trace!(now, "the link is held until {until}, {which}");
        if which != 0 {
            conn.up.held_until = until;
        }
        if which != 1 {
            conn.down.held_until = until;
        }
        self.count("links held");
    }

    /// The agent's end is closed: frames that had left may arrive.
    pub(super) fn lose_end(&mut self, now: u64) {
        let dropped = self.chance.percent(50);
        for number in self.link.numbers() {
            let ms = self.latency_ms();
            let conn = self.link.get_mut(number).expect("just listed");
            if !conn.edge_open {
                continue;
            }
            conn.edge_open = false;
            if dropped {
                conn.up.frames.clear();
            }
            let ms = conn.up.push(now, Frame::End, ms);
            self.timers.push((ms, Due::Up(number)));
        }
    }

    /// The users change something.
    pub(super) fn users_change(&mut self, now: u64, user_change_ms: u64) {
        if user_change_ms == 0 {
            return;
        }
        let action = self.api.change(Self::wall_s(now), &mut self.chance);
        trace!(now, "users, in the cloud: {action}");
        self.count("changes in the cloud");
        self.inform();
        let ms = 1 + self.chance.below(user_change_ms * 2);
        self.timers.push((ms, Due::UserChange));
    }
}
