//! Cases that need the agent to restart: they run side by side on a node of their own, and all of
//! them share one restart. Each prepares its pod, does what it has to do while no agent runs, and
//! looks at what became of it.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::case::{Case, Node};
use crate::support::agent::Agent;

/// Where the restart stands, and who takes part.
#[derive(Debug, Default)]
pub(crate) struct Wave {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Cases that are still on their way to the restart.
    coming: usize,
    /// Names of those that wait for it, or have it behind them.
    arrived: BTreeSet<String>,
    /// Names of those that have done what they do while no agent runs.
    done: BTreeSet<String>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Before,
    Down,
    After,
}

impl Wave {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let mut state = self.lock();
        while !until(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// So many cases will come.
    pub(crate) fn expect(&self, count: usize) {
        self.lock().coming = count;
    }

    /// A case of the wave has ended: nobody waits for it any more, if it has failed on its way.
    pub(crate) fn leave(&self, name: &str) {
        let mut state = self.lock();
        if state.arrived.insert(name.to_owned()) {
            state.coming -= 1;
        }
        state.done.insert(name.to_owned());
        self.changed.notify_all();
    }

    /// Restarts the agent once all cases are there.
    pub(crate) fn restart<'a>(&self, node: &'a Node, agent: Agent<'a>) -> Agent<'a> {
        self.wait(|state| state.coming == 0);
        // How it ended is another test's matter; the cases must not wait for it.
        agent.terminate();
        self.enter(Stage::Down);
        self.wait(|state| state.arrived == state.done);
        let agent = node.site.start();
        agent.wait_listening();
        self.enter(Stage::After);
        agent
    }

    fn enter(&self, stage: Stage) {
        self.lock().stage = stage;
        self.changed.notify_all();
    }
}

impl Case<'_> {
    /// Waits until the agent has ended, does this, and waits until there is one again.
    pub(crate) fn across_restart<T>(&self, down: impl FnOnce() -> T) -> T {
        let wave = &self.node.wave;
        {
            let mut state = wave.lock();
            state.coming -= 1;
            state.arrived.insert(self.name.clone());
            wave.changed.notify_all();
        }
        wave.wait(|state| state.stage >= Stage::Down);
        let result = down();
        wave.lock().done.insert(self.name.clone());
        wave.changed.notify_all();
        wave.wait(|state| state.stage >= Stage::After);
        result
    }
}
