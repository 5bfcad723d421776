//! The expected end state of a desired pod: by its manifest, and by how its containers ended.

use edged::model::cri::{ContainerState, PodRef};
use edged::model::pod::{self as api, PullPolicy, RestartPolicy};
use edged::model::status::{ContainerStatus, Phase, PodStatus, State};

use super::phase::{self, Begun};
use crate::check::{Pod, Role, role};
use crate::draw;
use crate::program::{Program, Then};
use crate::runtime::{Container, number_of};
use crate::short;
use crate::world::World;

/// Beyond the back-off: a relist, a status request, and a turn at pulling.
const RESTART_SLACK_MS: u64 = 120_000;
/// The longest grace period.
const STOP_MS: u64 = 310_000;

/// How far a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Runs,
    /// It ended, and will not restart.
    Done,
    /// It ended or cannot start, and is retried correctly.
    Tried,
    /// It ended as allowed, or was stopped to be restarted, which a later life of the agent does
    /// not know.
    Unsure,
    /// It should have been started by now.
    Late,
}

impl World {
    /// Why a desired pod is not as it should be.
    pub(super) fn pod_unsettled(
        &self,
        uid: &str,
        pod: &api::Pod,
        containers: &[&Container],
    ) -> Option<String> {
        let Some(truth) = self.check.pod(uid).filter(|truth| truth.desired.is_some()) else {
            return Some("the agent did not receive it".to_owned());
        };
        let Some(reported) = self.agent.pod(uid) else {
            return Some("the agent does not know it".to_owned());
        };
        let status = &reported.api().status;
        if truth.came_back {
            return Some("its old run has not ended".to_owned());
        }
        if draw::is_refused(pod) || truth.is_out() {
            let ended = truth.alive == 0 && truth.ready_sandboxes == 0;
            let fine = status.phase == Phase::Failed && ended;
            return (!fine).then(|| format!("it cannot run here, and is {:?}", status.phase));
        }
        if let Some(seconds) = pod.spec.active_deadline_seconds
            && !status.phase.is_terminal()
        {
            // It may have expired earlier, by the start that an earlier life observed.
            let due = truth.delivered_at + seconds.unsigned_abs() * 1000;
            if self.clocks.now() > due + STOP_MS + RESTART_SLACK_MS {
                return Some(format!("its deadline has passed {} ms ago", self.clocks.now() - due));
            }
            if self.clocks.now() - truth.stop_requested_at < STOP_MS {
                // Its deadline has passed, and its grace period has not.
                return None;
            }
        }
        if self.has_to_go(pod, truth.of_cloud) {
            return Some("it exceeds its disk limit, and still exists".to_owned());
        }
        let ended = status.phase.is_terminal();
        if let Some(why) = self.cgroup_unsettled(uid, ended) {
            return Some(why);
        }
        if let Some(why) = self.volumes_unsettled(uid, pod, ended, truth.of_cloud) {
            return Some(why);
        }
        let wrong = if ended {
            ended_wrongly(pod, status, truth, containers)
        } else {
            self.runs_wrongly(pod, truth, containers)
        };
        wrong.or_else(|| {
            let stable_ms = if self.runtime.quirks.events { 40_000 } else { 5_000 };
            let stable = self.clocks.now() - truth.changed_at > stable_ms;
            if !stable {
                return None;
            }
            let dead = too_many_dead(containers, self.check.garbage.dead_max());
            if status.phase.is_terminal() {
                return dead;
            }
            dead.or_else(|| self.says_wrong(pod, status, truth, containers))
        })
    }

    /// The runtime has no instance of this init container any more: it had finished before a later
    /// one started.
    fn was_done(&self, spec: &api::PodSpec, index: usize, containers: &[&Container]) -> bool {
        let in_ready = |init: &api::Container| {
            containers.iter().any(|it| it.listed.name == init.name && self.is_in_ready(it))
        };
        let inits = &spec.init_containers;
        !in_ready(&inits[index]) && inits[index + 1..].iter().any(in_ready)
    }

    fn runs_wrongly(
        &self,
        pod: &api::Pod,
        truth: &Pod,
        containers: &[&Container],
    ) -> Option<String> {
        if truth.ready_sandboxes != 1 {
            return Some(format!("{} sandboxes are ready", truth.ready_sandboxes));
        }
        if let Err(why) = self.probed_wrongly(containers) {
            return why;
        }
        let spec = &pod.spec;
        let mains = &spec.containers;
        let main_ran = mains.iter().any(|main| {
            containers.iter().any(|it| it.listed.name == main.name && self.is_in_ready(it))
        });
        for (index, init) in spec.init_containers.iter().enumerate() {
            let sidecar = role(spec, &init.name) == Some(Role::Sidecar);
            if (main_ran || self.was_done(spec, index, containers)) && !sidecar {
                continue;
            }
            match self.progress((spec, truth), init, containers) {
                Progress::Late => return Some(format!("{} is not started", init.name)),
                Progress::Runs if sidecar => {
                    let newest = newest(containers, &init.name).expect("it runs");
                    let number = number_of(&newest.listed.id.0);
                    // The following containers must wait.
                    if !main_ran && !self.check.serves(number, init).0 {
                        return None;
                    }
                }
                Progress::Done => {}
                // Not finished: the following containers must wait.
                Progress::Runs | Progress::Tried | Progress::Unsure if !main_ran => return None,
                Progress::Runs | Progress::Tried | Progress::Unsure => {}
            }
        }
        let outdated = containers.iter().find(|it| {
            let all = spec.containers.iter().chain(&spec.init_containers);
            it.alive
                && all.into_iter().any(|spec_of| {
                    it.listed.name == spec_of.name
                        && it.listed.image != spec_of.image
                        && role(spec, &spec_of.name) != Some(Role::Init)
                })
        });
        let lost = containers.iter().find(|it| it.listed.state == ContainerState::Unknown);
        if truth.observation.is_stopping() {
            return Some("a container is being stopped".to_owned());
        }
        if let Some(lost) = lost {
            return Some(format!("{} is in an unknown state", lost.listed.id));
        }
        if let Some(outdated) = outdated {
            return Some(format!("{} still runs the old image", outdated.listed.id));
        }
        let mut done = true;
        for main in mains {
            match self.progress((spec, truth), main, containers) {
                Progress::Late => return Some(format!("{} is not started", main.name)),
                Progress::Runs | Progress::Tried | Progress::Unsure => done = false,
                Progress::Done => {}
            }
        }
        done.then(|| "all its containers are done, and it has not ended".to_owned())
    }

    /// It exceeds a limit, and will be evicted for it.
    fn has_to_go(&self, pod: &api::Pod, of_cloud: bool) -> bool {
        short::may_go(pod, of_cloud) && short::passes_limits(pod, &self.disk.volumes)
    }

    /// What is wrong by probes and hooks; `Err(None)`: they excuse it for now.
    fn probed_wrongly(&self, containers: &[&Container]) -> Result<(), Option<String>> {
        for it in containers.iter().filter(|it| it.alive) {
            let number = number_of(&it.listed.id.0);
            let failed = self.check.must_stop_since(number).or(self.check.post_failed_at(number));
            if let Some(at) = failed {
                let long = self.clocks.now() - at > STOP_MS + RESTART_SLACK_MS;
                return Err(
                    long.then(|| format!("c{number} failed its probes or hook, and still runs"))
                );
            }
            if self.check.is_starting(number) {
                return Err(None);
            }
        }
        Ok(())
    }

    fn is_in_ready(&self, container: &Container) -> bool {
        self.runtime.sandboxes.get(&container.sandbox).is_some_and(|it| it.listed.ready)
    }

    fn progress(
        &self,
        (spec, truth): (&api::PodSpec, &Pod),
        container: &api::Container,
        containers: &[&Container],
    ) -> Progress {
        let newest = newest(containers, &container.name);
        let here = newest.filter(|it| self.is_in_ready(it));
        let place = role(spec, &container.name);
        if let Some(newest) = newest {
            if newest.alive {
                return Progress::Runs;
            }
            let number = number_of(&newest.listed.id.0);
            let succeeded = newest.succeeded();
            let exited = newest.is_exited();
            let done = match (place, spec.restart_policy) {
                (Some(Role::Main), RestartPolicy::Never) => exited,
                (Some(Role::Main), RestartPolicy::OnFailure) => exited && succeeded,
                (Some(Role::Init), _) => exited && succeeded && here.is_some(),
                _ => false,
            };
            let changed = newest.listed.image != container.image;
            let changed = changed || truth.is_to_restart(number);
            if done && changed && place == Some(Role::Main) {
                return Progress::Unsure;
            }
            if done {
                return Progress::Done;
            }
            let patience_ms = self.check.backoff_max_ms() + RESTART_SLACK_MS;
            if exited && self.clocks.now() - newest.ended_at.max(newest.made_at) < patience_ms {
                return Progress::Tried;
            }
        }
        let program = Program::of(&container.command);
        let image = draw::full_name(&container.image);
        let registry = &self.runtime.registry;
        let here = registry.has(&image);
        let never = container.image_pull_policy == Some(PullPolicy::Never) && !here;
        let cannot = program.then == Then::Missing || never || !registry.offers(&image);
        if cannot { Progress::Tried } else { Progress::Late }
    }

    fn says_wrong(
        &self,
        pod: &api::Pod,
        status: &PodStatus,
        truth: &Pod,
        containers: &[&Container],
    ) -> Option<String> {
        if let Some(wrong) = self.says_wrong_address(pod, status, truth, containers) {
            return Some(wrong);
        }
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        let wrong = all.filter_map(|reported| {
            let newest = newest(containers, &reported.name)?;
            let number = number_of(&newest.listed.id.0);
            let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            let spec = all.into_iter().find(|spec| spec.name == reported.name)?;
            let serves = !self.check.is_starting(number);
            let ready = self.check.serves(number, spec).1;
            let place = role(&pod.spec, &reported.name);
            let why = says_wrong_of(reported, newest, truth, (place, serves, ready))?;
            Some(format!("{} is {why}, in {reported:?}", reported.name))
        });
        if let Some(wrong) = wrong.into_iter().next() {
            return Some(wrong);
        }
        if truth.lost {
            return None;
        }
        let begun = |name: &str| {
            let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            let spec = all.into_iter().find(|spec| &*spec.name == name);
            let Some((it, spec)) = newest(containers, name).zip(spec) else { return Begun::No };
            let number = number_of(&it.listed.id.0);
            if self.check.is_starting(number) {
                Begun::Hooked
            } else if self.check.serves(number, spec).0 {
                Begun::Yes
            } else {
                Begun::No
            }
        };
        let newest = |name: &str| newest(containers, name);
        let expected = phase::of(&pod.spec, newest, begun, |name| truth.has_ended(name))?;
        (status.phase != expected).then(|| format!("it is {expected:?}, not {:?}", status.phase))
    }

    fn says_wrong_address(
        &self,
        pod: &api::Pod,
        status: &PodStatus,
        truth: &Pod,
        containers: &[&Container],
    ) -> Option<String> {
        if truth.ready_sandboxes != 1 || containers.is_empty() {
            return None;
        }
        let of_pod = |uid: &str| *uid == *truth.uid;
        let sandbox = self.runtime.sandboxes.values().find(|it| {
            it.listed.ready && it.listed.pod.as_ref().is_some_and(|pod| of_pod(&pod.uid))
        })?;
        let expected = if pod.spec.host_network {
            self.check.addresses.first().map(String::as_str).unwrap_or_default()
        } else {
            sandbox.ip.as_deref().unwrap_or_default()
        };
        let reported = &status.pod_ip;
        (reported != expected).then(|| format!("its address is {expected:?}, not {reported:?}"))
    }

    /// Pods that run, and whose containers run for ever.
    pub(super) fn steady(&self) -> Vec<Box<str>> {
        let instances = self.instances();
        let runs = |pod: &api::Pod, container: &api::Container, containers: &[&Container]| {
            let place = role(&pod.spec, &container.name);
            place == Some(Role::Init)
                || newest(containers, &container.name).is_some_and(|it| {
                    // A hook that is lost with the connection has failed.
                    it.runs_for_ever(self.clocks.now())
                        && !self.check.is_passing(number_of(&it.listed.id.0))
                })
        };
        let steady = |(uid, pod): (Box<str>, &api::Pod)| {
            let containers = instances.get(&*uid).map(Vec::as_slice).unwrap_or_default();
            let spec = &pod.spec;
            let all = spec.init_containers.iter().chain(&spec.containers);
            let main_runs = spec.containers.iter().all(|main| runs(pod, main, containers));
            let mut all = all.filter(|it| !runs(pod, it, containers));
            // The collector may remove any dead container that is old enough.
            let tidy = too_many_dead(containers, self.check.garbage.dead_max()).is_none()
                && !containers.iter().any(|it| it.is_exited() && self.check.may_spare(it))
                && spec.active_deadline_seconds.is_none()
                && !self.check.pod(&uid).is_some_and(|pod| pod.observation.is_waited_for())
                && !self.has_to_go(pod, self.check.pod(&uid).is_some_and(|it| it.of_cloud));
            let calm = main_runs && all.next().is_none() && tidy && !self.has_emptied(&uid);
            calm.then_some(uid)
        };
        self.wanted().into_iter().filter_map(steady).collect()
    }
}

impl World {
    /// Whether a dead sandbox of the pod has lost its last container: it is removed after the next
    /// relist.
    fn has_emptied(&self, uid: &str) -> bool {
        let of_it = |pod: &PodRef| *pod.uid == *uid;
        let filled = |number| self.runtime.containers.values().any(|it| it.sandbox == number);
        self.runtime.sandboxes.iter().any(|(&number, it)| {
            !it.listed.ready && it.listed.pod.as_ref().is_some_and(of_it) && !filled(number)
        })
    }
}

/// The newest instance of a container.
pub(super) fn newest<'a>(containers: &[&'a Container], name: &str) -> Option<&'a Container> {
    let of_name = containers.iter().filter(|it| &*it.listed.name == name);
    of_name.max_by_key(|it| it.listed.attempt).copied()
}

/// Too many dead instances of a container: only this many are kept for its logs.
fn too_many_dead(containers: &[&Container], dead_max: usize) -> Option<String> {
    containers.iter().find_map(|container| {
        let name = &container.listed.name;
        let dead = containers.iter().filter(|it| it.listed.name == *name && it.is_exited()).count();
        (dead > dead_max).then(|| format!("{dead} dead containers named {name}"))
    })
}

/// A pod that is reported Succeeded or Failed must have a reason for it.
fn ended_wrongly(
    pod: &api::Pod,
    status: &PodStatus,
    truth: &Pod,
    containers: &[&Container],
) -> Option<String> {
    if truth.alive > 0 || truth.ready_sandboxes > 0 {
        return Some(format!("it is {:?}, and not all of it is stopped", status.phase));
    }
    claimed_wrongly(pod, status, truth, containers)
}

/// Why a pod without running containers has not ended as its status reports.
pub fn claimed_wrongly(
    pod: &api::Pod,
    status: &PodStatus,
    truth: &Pod,
    containers: &[&Container],
) -> Option<String> {
    let spec = &pod.spec;
    if status.reason == "DeadlineExceeded" {
        let expires = spec.active_deadline_seconds.is_some();
        return (!expires)
            .then(|| "DeadlineExceeded is reported, and it has no deadline".to_owned());
    }
    if spec.restart_policy == RestartPolicy::Always {
        return Some(format!("it is {:?}, and its restart policy is Always", status.phase));
    }
    if truth.lost || (spec.restart_policy == RestartPolicy::Never && truth.sandboxes > 1) {
        return None;
    }
    let failed_init = spec.init_containers.iter().any(|init| {
        role(spec, &init.name) == Some(Role::Init)
            && newest(containers, &init.name).is_some_and(|it| it.status.exit_code != 0)
    });
    let ends = spec.containers.iter().map(|main| newest(containers, &main.name));
    if truth.ended_before && ends.clone().any(|end| end.is_none()) {
        return None;
    }
    let code = |it: &Container| it.is_exited().then_some(it.status.exit_code);
    let codes: Vec<Option<i32>> = ends.map(|it| it.and_then(code)).collect();
    if spec.restart_policy == RestartPolicy::OnFailure && codes.iter().any(|&it| it != Some(0)) {
        return Some(format!("it is {:?}, and its containers ended with {codes:?}", status.phase));
    }
    let succeeded = codes.iter().all(|&code| code == Some(0)) && !failed_init;
    let expected = if succeeded { Phase::Succeeded } else { Phase::Failed };
    (status.phase != expected)
        .then(|| format!("it is {:?}, and its containers ended with {codes:?}", status.phase))
}

fn says_wrong_of(
    reported: &ContainerStatus,
    newest: &Container,
    truth: &Pod,
    (place, serves, ready): (Option<Role>, bool, bool),
) -> Option<String> {
    let attempt = newest.listed.attempt;
    let counts = attempt..=attempt.max(truth.attempt_max(&reported.name));
    if !truth.lost && !counts.contains(&reported.restart_count) {
        return Some(format!("at attempt {}", newest.listed.attempt));
    }
    let exited = newest.listed.state == ContainerState::Exited;
    let code = newest.status.exit_code;
    let ready = if place == Some(Role::Init) { newest.succeeded() } else { newest.alive && ready };
    if reported.ready != ready {
        return Some(if ready { "ready" } else { "not ready" }.to_owned());
    }
    match &reported.state {
        State::Running(_) => (!newest.alive).then(|| "not running".to_owned()),
        State::Waiting(_) | State::Unset => (newest.alive && serves).then(|| "running".to_owned()),
        State::Terminated(end) => {
            let wrong = newest.alive || (exited && end.exit_code != code);
            wrong.then(|| format!("exited with {code}"))
        }
    }
}
