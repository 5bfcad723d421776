//! Faults of the machine and the runtime, and the changes of users.

use std::collections::BTreeMap;

use edged::agent::event::Event;
use edged::model::cri::{ContainerConfig, PodRef, SandboxConfig};

use crate::program::{Behaviour, Program, Term, Then};
use crate::runtime::{ContainerNo, Left, SandboxNo};
use crate::trace::trace;
use crate::world::{POD_LOGS, World, WorldEvent};

impl World {
    /// Draws each fault.
    pub(crate) fn tick(&mut self) {
        self.tick_agent();
        self.tick_runtime();
        self.tick_pods();
        if self.chance.ppm(self.faults.jump_ppm) {
            self.jump();
        }
        if self.chance.ppm(self.faults.disk_ppm) {
            self.disk.read_only_until =
                self.clocks.now() + self.chance.spread(self.faults.unready_ms);
            self.tally.add("disk read-only");
        }
        if self.chance.ppm(self.faults.address_ppm) {
            let life = self.life;
            self.at(0, WorldEvent::Addresses(life));
        }
    }

    fn tick_agent(&mut self) {
        if self.chance.ppm(self.faults.stall_ppm) {
            let until = self.clocks.now() + self.chance.spread(self.faults.stall_ms);
            self.turns.stall_until(until);
            self.tally.add("stalls");
            trace!(self.clocks.now(), "the agent gets no processor time until {until}");
        }
        if self.chance.ppm(self.faults.crash_ppm) {
            trace!(self.clocks.now(), "the agent is killed");
            self.tally.add("crashes");
            self.agent_dies();
        }
        if self.chance.ppm(self.faults.stop_ppm) {
            trace!(self.clocks.now(), "the agent is stopped");
            self.tally.add("stops");
            self.deliver(vec![Event::Stop]);
        }
        if self.link.is_up() && self.chance.ppm(self.faults.flap_ppm) {
            self.tally.add("connections lost");
            self.disconnect("connection reset by peer");
            let (ms, life) = (self.chance.spread(5_000), self.life);
            self.at(ms, WorldEvent::Connect(life));
        }
    }

    fn tick_runtime(&mut self) {
        if self.chance.ppm(self.faults.stream_ppm) {
            self.break_streams();
        }
        if self.link.is_daemon_up() && self.chance.ppm(self.faults.daemon_ppm) {
            self.tally.add("daemon restarts");
            self.restart_daemon();
        }
        if self.chance.ppm(self.faults.reboot_ppm) {
            self.tally.add("reboots");
            self.reboot();
        }
        if self.chance.ppm(self.faults.unready_ppm) {
            self.tally.add("not ready");
            match self.chance.below(3) {
                0 => self.runtime.is_ready = false,
                _ => self.runtime.network_ready = false,
            }
            let ms = self.chance.spread(self.faults.unready_ms);
            self.at(ms, WorldEvent::Ready);
        }
        if self.chance.ppm(self.faults.fill_ppm) {
            self.machine.change(&mut self.chance);
        }
        if self.chance.ppm(self.faults.lose_image_ppm) {
            let image = self.registry_image();
            self.runtime.registry.forget(&image);
        }
    }

    fn registry_image(&mut self) -> Box<str> {
        let offers = crate::draw::offers();
        let at = self.chance.index(offers.len());
        offers.into_keys().nth(at).expect("the index is below the length")
    }

    fn tick_pods(&mut self) {
        if !self.link.is_daemon_up() {
            return;
        }
        if self.chance.ppm(self.faults.kill_ppm)
            && let Some(number) = self.some_living()
        {
            let oom = self.chance.percent(30);
            self.kill(number, if oom { "OOMKilled" } else { "" });
        }
        if self.chance.ppm(self.faults.kill_sandbox_ppm) {
            self.kill_sandbox();
        }
        if self.chance.ppm(self.faults.lose_ppm) {
            self.lose_container();
        }
        if self.chance.ppm(self.faults.foreign_ppm) {
            self.add_foreign();
        }
        self.settle_runtime();
    }

    /// A random living container of a pod.
    pub(crate) fn some_living(&mut self) -> Option<ContainerNo> {
        let living: Vec<ContainerNo> = self.runtime.living().map(|(number, _)| number).collect();
        (!living.is_empty()).then(|| *self.chance.pick(&living))
    }

    /// The container's process dies.
    pub(crate) fn kill(&mut self, number: ContainerNo, reason: &str) {
        trace!(self.clocks.now(), "c{number} is killed from outside");
        self.tally.add("containers killed");
        let clock = self.clocks.runtime();
        self.runtime.end(clock, number, 137, reason);
    }

    fn kill_sandbox(&mut self) {
        let ready = self.runtime.sandboxes.iter().filter(|(_, it)| it.listed.ready);
        let ready: Vec<SandboxNo> =
            ready.filter(|(_, it)| it.listed.pod.is_some()).map(|(&number, _)| number).collect();
        if ready.is_empty() {
            return;
        }
        let number = *self.chance.pick(&ready);
        trace!(self.clocks.now(), "s{number} is killed from outside");
        self.tally.add("sandboxes killed");
        let clock = self.clocks.runtime();
        self.runtime.kill_sandbox(clock, number);
    }

    fn lose_container(&mut self) {
        let dead = self.runtime.containers.iter().filter(|(_, it)| it.is_exited());
        let dead: Vec<ContainerNo> = dead.map(|(&number, _)| number).collect();
        if !dead.is_empty() {
            let number = *self.chance.pick(&dead);
            trace!(self.clocks.now(), "c{number} is removed by hand");
            self.tally.add("containers removed by hand");
            let pod = self.runtime.containers[&number].listed.pod.as_ref();
            if let Some(uid) = pod.map(|pod| pod.uid.clone()) {
                self.check.lost(&uid);
            }
            self.runtime.lose_container(number);
        }
    }

    fn jump(&mut self) {
        let hours = self.chance.between(1, 72) as i64;
        let back = self.chance.percent(50);
        self.clocks.jump(if back { -hours } else { hours } * 3_600_000);
        self.tally.add("clock jumps");
        self.check.clock_jumped();
        trace!(self.clocks.now(), "the clock jumps {}{hours} h", if back { "-" } else { "+" });
    }

    /// The connection breaks.
    pub(crate) fn disconnect(&mut self, cause: &str) {
        trace!(self.clocks.now(), "the connection is lost: {cause}");
        let mut bundle = self.cut_calls();
        // Answers that have arrived were read before the disconnection.
        bundle.push(self.link.lose(cause));
        self.deliver(bundle);
    }

    pub(crate) fn connect(&mut self, life: u32) {
        if life == self.life
            && let Some(news) = self.link.connect()
        {
            self.deliver(vec![news]);
        }
    }

    pub(crate) fn restart_daemon(&mut self) {
        trace!(self.clocks.now(), "the runtime's daemon goes down");
        self.link.daemon_goes_down();
        self.runtime.go_down();
        if self.link.is_up() {
            self.disconnect("broken pipe");
        }
        self.calls.drop_unheard();
        let ms = 100 + self.chance.spread(self.faults.daemon_ms);
        self.at(ms, WorldEvent::DaemonUp);
    }

    pub(crate) fn daemon_up(&mut self) {
        if !self.link.daemon_comes_up() {
            return;
        }
        trace!(self.clocks.now(), "the runtime's daemon is up");
        let clock = self.clocks.runtime();
        self.runtime.come_up(clock, &self.faults, &mut self.chance);
        let (ms, life) = (self.chance.below(100), self.life);
        self.at(ms, WorldEvent::Connect(life));
    }

    /// The power fails and comes back.
    fn reboot(&mut self) {
        let left = *self.chance.pick(&[Left::All, Left::All, Left::Nothing, Left::Some]);
        trace!(self.clocks.now(), "======== the machine restarts, {left:?} is left");
        if left != Left::All {
            self.check.lost_all();
        }
        self.link.daemon_goes_down();
        let clock = self.clocks.runtime();
        self.runtime.reboot(clock, left, &mut self.chance);
        self.settle_runtime();
        if left != Left::All && self.chance.percent(50) {
            self.disk.wipe();
        }
        self.kill_agent();
        self.probe_results.clear();
        self.cloud_reboots();
        crate::volumes::reboot(&mut self.disk.volumes);
        self.disk.parts.clear();
        self.disk.cgroups.clear();
        self.calls.drop_unheard();
        let clock_kept = self.chance.percent(50);
        self.boot_clocks(clock_kept);
        let ms = self.chance.spread(20_000);
        self.at(ms, WorldEvent::DaemonUp);
        self.begin_life();
    }

    pub(crate) fn become_ready(&mut self) {
        self.runtime.is_ready = true;
        self.runtime.network_ready = true;
    }

    /// The users change the manifests.
    pub(crate) fn users_change(&mut self) {
        if self.faults.user_change_ms == 0 {
            return;
        }
        let change = self.folder.change(&mut self.chance);
        trace!(self.clocks.now(), "users: {change:?}");
        self.tally.change(change);
        #[cfg(feature = "services")]
        self.services.iter_mut().for_each(crate::services::ServiceSim::change);
        self.folder_changed();
        let ms = 1 + self.chance.below(self.faults.user_change_ms * 2);
        self.at(ms, WorldEvent::UserChange);
    }

    /// The event loop will read it.
    pub(crate) fn folder_changed(&mut self) {
        if !self.reading {
            self.reading = true;
            let (ms, life) = (self.chance.below(self.faults.read_ms + 1), self.life);
            self.at(ms, WorldEvent::Read(life));
        }
    }

    pub(crate) fn folder_read(&mut self, life: u32) {
        if life != self.life {
            return;
        }
        self.reading = false;
        let folder = self.folder.read();
        #[cfg(feature = "services")]
        let folder = {
            let mut folder = folder;
            self.services.iter().for_each(|services| services.add_to(&mut folder));
            folder
        };
        self.deliver(vec![Event::Manifests(folder)]);
    }

    pub(crate) fn deliver_addresses(&mut self, life: u32) {
        if life != self.life {
            return;
        }
        let address = format!("192.168.1.{}", self.chance.between(10, 12));
        let addresses = match self.chance.below(6) {
            0 => vec![],
            1 => vec![address, "fd00::10".to_owned()],
            _ => vec![address],
        };
        self.check.addresses.clone_from(&addresses);
        self.deliver(vec![Event::Addresses(addresses)]);
    }
}

impl World {
    /// Another tool's sandbox, or a pod that no manifest names.
    fn add_foreign(&mut self) {
        self.tally.add("strangers");
        let clock = self.clocks.runtime();
        if self.chance.percent(50) {
            let sandbox = self.runtime.foreign_sandbox(clock);
            let config = foreign_container(None);
            self.runtime.adopt_container(clock, sandbox, config);
            return;
        }
        let number = self.chance.bits() >> 40;
        let source = if self.chance.percent(50) { "file" } else { "api" };
        let pod = PodRef {
            uid: format!("1111-{number}").into(),
            namespace: "default".into(),
            name: format!("orphan{number}").into(),
        };
        let sandbox = self.runtime.adopt_sandbox(clock, orphan_sandbox(&pod, source));
        self.runtime.adopt_container(clock, sandbox, foreign_container(Some(&pod)));
    }
}

fn labels_of(pod: &PodRef) -> BTreeMap<String, String> {
    [("uid", &pod.uid), ("name", &pod.name), ("namespace", &pod.namespace)]
        .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_string()))
        .into()
}

fn orphan_sandbox(pod: &PodRef, source: &str) -> SandboxConfig {
    let PodRef { uid, namespace, name } = pod;
    let note = ("kubernetes.io/config.source".to_owned(), source.to_owned());
    SandboxConfig {
        pod: pod.clone(),
        attempt: 0,
        hostname: name.to_string(),
        log_directory: format!("{POD_LOGS}/{namespace}_{name}_{uid}"),
        labels: labels_of(pod),
        annotations: [note].into(),
        ..SandboxConfig::default()
    }
}

fn foreign_container(pod: Option<&PodRef>) -> ContainerConfig {
    let term = Term::End(300, 143);
    let behaviour = Behaviour::default();
    let program = Program { fails: 0, then: Then::Run, after_ms: 0, term, behaviour };
    let mut labels = pod.map(labels_of).unwrap_or_default();
    if pod.is_some() {
        labels.insert("io.kubernetes.container.name".to_owned(), "main".to_owned());
    }
    ContainerConfig {
        name: "main".into(),
        attempt: 0,
        image_ref: "sha256:any".into(),
        image: "any".into(),
        command: program.command(),
        labels,
        log_path: "main/0.log".to_owned(),
        ..ContainerConfig::default()
    }
}
