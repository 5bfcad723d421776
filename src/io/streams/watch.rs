//! Reports that logs have grown, through inotify on their folders.
//!
//! A container that writes much would wake the loop for each line. So after a report the watch is
//! not listened to for a moment. Where inotify is not available, logs are looked at each second.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::agent::time::Instant;
use crate::limits::{LOG_LOOK_MS, LOG_REST_MS};

#[derive(Debug)]
pub(super) struct Watch {
    token: Token,
    state: State,
    /// epoll has reported something.
    is_changed: bool,
}

#[derive(Debug)]
enum State {
    /// Nothing is followed.
    Off,
    /// epoll reports changes.
    Listening(Inotify),
    /// Changes are looked at when this time comes.
    Resting(Inotify, Instant),
    /// There is no inotify: the next look.
    Blind(Instant),
}

impl Watch {
    pub(super) fn new(token: Token) -> Self {
        Self { token, state: State::Off, is_changed: false }
    }

    /// Watches one more folder.
    pub(super) fn add(&mut self, dir: &Path, now: Instant, registry: &Registry) {
        if matches!(self.state, State::Off) {
            let opened = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
                .map_err(std::io::Error::from)
                .and_then(|inotify| {
                    self.listen(&inotify, registry)?;
                    Ok(inotify)
                });
            self.state = match opened {
                Ok(inotify) => State::Listening(inotify),
                Err(error) => {
                    log::warn!("no inotify ({error}): followed logs are read each second");
                    State::Blind(now.plus_ms(LOG_LOOK_MS))
                }
            };
        }
        let (State::Listening(inotify) | State::Resting(inotify, _)) = &self.state else { return };
        let changes =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        // The same folder twice is one watch. Its end comes with the end of all.
        if let Err(error) = inotify.add_watch(dir, changes) {
            log::warn!("path={} is not watched: {error}", dir.display());
            self.state = State::Blind(now.plus_ms(LOG_LOOK_MS));
        }
    }

    /// Nothing is followed any more.
    pub(super) fn stop(&mut self) {
        self.state = State::Off;
    }

    fn listen(&self, inotify: &Inotify, registry: &Registry) -> std::io::Result<()> {
        let fd = inotify.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&fd), self.token, Interest::READABLE)
    }

    pub(super) fn ready(&mut self) {
        self.is_changed = true;
    }

    /// Whether the logs must be looked at now.
    pub(super) fn tick(&mut self, now: Instant, registry: &Registry) -> bool {
        let is_changed = std::mem::take(&mut self.is_changed);
        let (state, is_due) = match std::mem::replace(&mut self.state, State::Off) {
            State::Listening(inotify) if is_changed => {
                let fd = inotify.as_fd().as_raw_fd();
                let _ = registry.deregister(&mut SourceFd(&fd));
                (State::Resting(inotify, now.plus_ms(LOG_REST_MS)), false)
            }
            State::Resting(inotify, at) if at <= now => {
                // Events that come after this are reported at once.
                for _ in 0..READS_MAX {
                    if !inotify.read_events().is_ok_and(|events| !events.is_empty()) {
                        break;
                    }
                }
                match self.listen(&inotify, registry) {
                    Ok(()) => (State::Listening(inotify), true),
                    Err(_) => (State::Blind(now.plus_ms(LOG_LOOK_MS)), true),
                }
            }
            State::Blind(at) if at <= now => (State::Blind(now.plus_ms(LOG_LOOK_MS)), true),
            state => (state, false),
        };
        self.state = state;
        is_due
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Off | State::Listening(_) => None,
            State::Resting(_, at) | State::Blind(at) => Some(at),
        }
    }
}

/// Each takes all that fits into 4 KiB. What remains is reported again by epoll.
const READS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_inotify_logs_are_looked_at_each_second() {
        let poll = mio::Poll::new().expect("epoll");
        let mut watch = Watch::new(Token(1));
        let (now, registry) = (Instant(1_000), poll.registry());
        watch.state = State::Blind(now.plus_ms(LOG_LOOK_MS));
        assert!(!watch.tick(now, registry));
        let later = now.plus_ms(LOG_LOOK_MS);
        assert_eq!(watch.wake_at(), Some(later));
        assert!(watch.tick(later, registry) && !watch.tick(later, registry));
        watch.add(Path::new("/does/not/exist"), later, registry);
        assert_eq!(watch.wake_at(), Some(later.plus_ms(LOG_LOOK_MS)));
        watch.stop();
        assert_eq!(watch.wake_at(), None);
    }
}
