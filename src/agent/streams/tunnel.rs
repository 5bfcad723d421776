//! EdgeStream: the connection through which the cloud asks for logs and commands (edgestream.md,
//! sections 2 and 14.3). What comes through it is a request like one of the HTTP API.
//!
//! ```text
//!  Down ──retry due──▶ Dialling ──TunnelUp──▶ Up ──TunnelDown│no pong──▶ Down
//!   ▲                      └──TunnelDown───────────────────────────────▶┘
//! ```
//!
//! It is independent of the session with EdgeHub: one may be up without the other. A half-open
//! connection is noticed because our pings are not answered. The wait before the next dial doubles,
//! and is short again after the tunnel has held for a while. A node without a certificate dials as
//! soon as that session is up: it has one by then.

use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, BackoffBounds, Instant, Now, Rng};
use crate::limits::{
    TUNNEL_BACKOFF_MAX_MS, TUNNEL_BACKOFF_MIN_MS, TUNNEL_CALM_MS, TUNNEL_FIRST_PONG_MS,
    TUNNEL_PING_MS, TUNNEL_PONG_MS,
};
use crate::model::link::{Cause, Session};
use crate::model::settings::TunnelSettings;

#[derive(Debug)]
pub(super) struct Tunnel {
    settings: TunnelSettings,
    state: State,
    last: Session,
    backoff: Backoff,
    /// Why it is down; it was logged.
    trouble: Option<String>,
    /// The node had no certificate when it was dialled last.
    needs_certificate: bool,
}

#[derive(Debug)]
enum State {
    Down { retry_at: Instant },
    Dialling(Session),
    Up(Up),
}

#[derive(Debug)]
struct Up {
    session: Session,
    since: Instant,
    received_at: Instant,
    /// The last ping, if nothing has come since.
    pinged_at: Option<Instant>,
}

impl Up {
    /// When a ping is due, or the tunnel given up.
    fn due_at(&self) -> Instant {
        match self.pinged_at {
            None => self.received_at.plus_ms(TUNNEL_PING_MS),
            // For its first two minutes CloudCore does not read.
            Some(at) => at.plus_ms(TUNNEL_PONG_MS).max(self.since.plus_ms(TUNNEL_FIRST_PONG_MS)),
        }
    }
}

impl Tunnel {
    pub(super) fn new(settings: TunnelSettings, now: Now) -> Self {
        Self {
            settings,
            state: State::Down { retry_at: now.boot },
            last: Session(0),
            backoff: Backoff::default(),
            trouble: None,
            needs_certificate: false,
        }
    }

    /// The session with EdgeHub is up, so the node has a certificate.
    pub(super) fn link_up(&mut self, now: Now) {
        if self.needs_certificate
            && let State::Down { retry_at } = &mut self.state
        {
            *retry_at = now.boot;
        }
    }

    pub(super) fn up(&mut self, now: Now, session: Session, out: &mut Out) {
        if matches!(self.state, State::Dialling(dialled) if dialled == session) {
            let (since, received_at) = (now.boot, now.boot);
            self.state = State::Up(Up { session, since, received_at, pinged_at: None });
            self.trouble = None;
            out.push(Action::Log(Severity::Info, "the stream tunnel is up".to_owned()));
        }
    }

    pub(super) fn down(
        &mut self,
        now: Now,
        session: Session,
        cause: &Cause,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        let since = match &self.state {
            State::Dialling(dialled) if *dialled == session => None,
            State::Up(up) if up.session == session => Some(up.since),
            State::Down { .. } | State::Dialling(_) | State::Up(_) => return,
        };
        self.needs_certificate = matches!(cause, Cause::NotJoined(_));
        let severity = if self.needs_certificate { Severity::Info } else { Severity::Warn };
        self.go_down(now, since, (severity, &cause.to_string()), rng, out);
    }

    /// `since`: it was up. `why`: how serious that is, and the reason.
    fn go_down(
        &mut self,
        now: Now,
        since: Option<Instant>,
        (severity, why): (Severity, &str),
        rng: &mut Rng,
        out: &mut Out,
    ) {
        if since.is_some_and(|since| now.boot.since_ms(since) >= TUNNEL_CALM_MS) {
            self.backoff = Backoff::default();
        }
        let (min_ms, max_ms) = (TUNNEL_BACKOFF_MIN_MS, TUNNEL_BACKOFF_MAX_MS);
        let bounds = BackoffBounds { min_ms, max_ms, calm_ms: u64::MAX };
        self.backoff.grow(now.boot, now.boot, bounds);
        let retry_at = now.boot.plus_ms(rng.jitter_ms(self.backoff.delay_ms()));
        self.state = State::Down { retry_at };
        if self.trouble.as_deref() != Some(why) {
            let line = format!("no stream tunnel, so no kubectl logs and exec: {why}");
            out.push(Action::Log(severity, line));
            self.trouble = Some(why.to_owned());
        }
    }

    /// Something came through the tunnel, even if only a pong.
    pub(super) fn received(&mut self, now: Now, session: Session) {
        if let State::Up(up) = &mut self.state
            && up.session == session
        {
            (up.received_at, up.pinged_at) = (now.boot, None);
        }
    }

    /// `ip`: the node's address, as its status has it.
    pub(super) fn step(&mut self, now: Now, ip: Option<&String>, rng: &mut Rng, out: &mut Out) {
        match &mut self.state {
            State::Down { retry_at } if *retry_at <= now.boot => {
                self.last.0 += 1;
                self.state = State::Dialling(self.last);
                out.push(Action::DialTunnel {
                    session: self.last,
                    deadline: now.boot.plus_ms(self.settings.handshake_timeout_ms),
                    ip: ip.cloned().unwrap_or_default(),
                });
            }
            State::Up(up) if up.due_at() <= now.boot => {
                let session = up.session;
                if up.pinged_at.is_none() {
                    up.pinged_at = Some(now.boot);
                    out.push(Action::PingTunnel(session));
                    return;
                }
                let since = up.since;
                out.push(Action::HangupTunnel(session));
                let silent_s = now.boot.since_ms(up.received_at) / 1_000;
                let why = format!("no sign of life for {silent_s} s");
                self.go_down(now, Some(since), (Severity::Warn, &why), rng, out);
            }
            State::Down { .. } | State::Dialling(_) | State::Up(_) => {}
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at } => Some(*retry_at),
            State::Dialling(_) => None,
            State::Up(up) => Some(up.due_at()),
        }
    }

    /// Milliseconds since it came up, and why it is down.
    pub(super) fn overview(&self, now: Now) -> (Option<u64>, Option<String>) {
        match &self.state {
            State::Up(up) => (Some(now.boot.since_ms(up.since)), None),
            State::Down { .. } | State::Dialling(_) => (None, self.trouble.clone()),
        }
    }
}
