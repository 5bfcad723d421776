//! The runtime's daemon, and the agent's connection to it.

use edged::agent::event::Event;

/// Both of them.
pub struct Link {
    daemon_up: bool,
    up: bool,
    /// The connection state that the agent last received, in this life.
    reported: Option<bool>,
}

impl Link {
    /// The daemon runs, and the agent is not connected.
    pub fn new() -> Self {
        Self { daemon_up: true, up: false, reported: None }
    }

    /// The next life of the agent begins without a connection.
    pub fn begin_life(&mut self) {
        (self.up, self.reported) = (false, None);
    }

    /// Whether the agent is connected.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the daemon runs.
    pub fn is_daemon_up(&self) -> bool {
        self.daemon_up
    }

    pub fn daemon_goes_down(&mut self) {
        self.daemon_up = false;
    }

    /// Returns whether the daemon was down.
    pub fn daemon_comes_up(&mut self) -> bool {
        !std::mem::replace(&mut self.daemon_up, true)
    }

    /// The connection is lost. Returns how the agent is informed.
    pub fn lose(&mut self, cause: &str) -> Event {
        (self.up, self.reported) = (false, Some(false));
        Event::RuntimeDown { cause: cause.to_owned() }
    }

    /// The agent tries to connect. Returns its result if it is news.
    pub fn connect(&mut self) -> Option<Event> {
        if self.up {
            None
        } else if self.daemon_up {
            (self.up, self.reported) = (true, Some(true));
            Some(Event::RuntimeUp)
        } else if self.reported.is_none() {
            Some(self.lose("no such file or directory"))
        } else {
            None
        }
    }
}
