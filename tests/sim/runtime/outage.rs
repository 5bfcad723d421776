//! Restarts of the daemon and the machine, and manual changes of the runtime's objects.

use edged::model::cri::ContainerState;

use super::quirks::EndedWhileDown;
use super::{Clock, Container, ContainerNo, Effect, Holder, Runtime, SandboxNo};
use crate::chance::Chance;
use crate::faults::Faults;

/// What a reboot leaves of sandboxes and containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All of them, dead.
    All,
    /// Nothing: the runtime's state was in memory.
    Nothing,
    /// Some.
    Some,
}

impl Runtime {
    /// The daemon stops. Containers go on.
    pub fn go_down(&mut self) {
        self.is_down = true;
        self.operations.clear();
        for container in self.containers.values_mut() {
            container.stops.clear();
        }
        self.names
            .retain(|_, holder| !matches!(holder, Holder::Operation(_) | Holder::Leaked { .. }));
    }

    /// The daemon is up again and reads the state of its containers.
    pub fn come_up(&mut self, clock: Clock, faults: &Faults, chance: &mut Chance) {
        self.is_down = false;
        self.ready_at = clock.now + chance.spread(faults.init_ms);
        for container in self.containers.values_mut() {
            // It ends leftover tasks when it starts.
            container.task = None;
            let found_ended = std::mem::take(&mut container.found_ended);
            if container.alive && chance.percent(faults.unknown_alive_pct) {
                container.lose_track();
            } else if found_ended {
                match self.quirks.ended_while_down {
                    EndedWhileDown::Kept => {}
                    EndedWhileDown::Lost => {
                        container.exit(clock, 255, "Unknown");
                    }
                    EndedWhileDown::Unknown => container.lose_track(),
                }
            }
        }
    }

    /// The machine went down: nothing runs.
    pub fn reboot(&mut self, clock: Clock, left: Left, chance: &mut Chance) {
        self.go_down();
        let keep = |chance: &mut Chance| match left {
            Left::All => true,
            Left::Nothing => false,
            Left::Some => chance.percent(50),
        };
        let numbers: Vec<ContainerNo> = self.containers.keys().copied().collect();
        for number in numbers {
            let container = self.containers.get_mut(&number).expect("just listed");
            if container.alive {
                self.end(clock, number, 255, "Unknown");
            }
            let container = self.containers.get_mut(&number).expect("just listed");
            container.found_ended = false;
            if container.listed.state == ContainerState::Unknown {
                container.exit(clock, 255, "Unknown");
            }
            if !keep(chance) {
                self.forget_container(number);
            }
        }
        let numbers: Vec<SandboxNo> = self.sandboxes.keys().copied().collect();
        for number in numbers {
            self.sandbox_down(number);
            let holds = self.containers.values().any(|it| it.sandbox == number);
            if !holds && !keep(chance) {
                self.forget_sandbox(number);
            }
        }
    }

    /// The sandbox's own process dies.
    pub fn kill_sandbox(&mut self, clock: Clock, number: SandboxNo) {
        if self.quirks.dies_with_sandbox {
            let inside = self.containers.iter().filter(|(_, it)| it.sandbox == number);
            let inside: Vec<ContainerNo> = inside.map(|(&number, _)| number).collect();
            for container in inside {
                self.end(clock, container, 137, "");
            }
        }
        self.sandbox_down(number);
    }

    /// Somebody removes a dead container by hand.
    pub fn lose_container(&mut self, number: ContainerNo) {
        self.forget_container(number);
    }

    /// Frees all names that no living operation holds.
    pub fn clear_leaks(&mut self) {
        self.names.retain(|_, holder| !matches!(holder, Holder::Leaked { .. }));
    }

    /// The living containers of pods, not the foreign ones.
    pub fn living(&self) -> impl Iterator<Item = (ContainerNo, &Container)> {
        let of_pods = self.containers.iter().filter(|(_, it)| it.alive && it.listed.pod.is_some());
        of_pods.map(|(&number, it)| (number, it))
    }

    /// Takes the pending effects.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.outputs.effects)
    }
}
