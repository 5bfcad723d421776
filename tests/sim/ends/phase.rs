//! The phase of a pod by its containers (the table of Kubernetes' `PodStatus.phase`), derived from
//! the true state and written independently of the core's own code.

use edged::model::pod::{PodSpec, RestartPolicy};
use edged::model::status::Phase;

use crate::check::{Role, role};
use crate::runtime::Container;

/// How far the start of a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Its startup probe has not succeeded.
    No,
    /// Its postStart is not finished: it does not count as running.
    Hooked,
    /// It has started.
    Yes,
}

/// The phase of a pod that has not ended; `None`: the table has no clear row, because its init
/// containers start again while main ones ran before, because nothing of it runs, or because the
/// only instance of a container has ended and is gone: the node may remember it or not.
pub fn of<'a>(
    spec: &PodSpec,
    newest: impl Fn(&str) -> Option<&'a Container>,
    begun: impl Fn(&str) -> Begun,
    has_ended: impl Fn(&str) -> bool,
) -> Option<Phase> {
    let ended = |name: &str| newest(name).is_some_and(Container::is_exited);
    let hooked = |name: &str| begun(name) == Begun::Hooked;
    let runs = |name: &str| newest(name).is_some_and(|it| it.alive) && !hooked(name);
    let restarted = |name: &str| newest(name).is_some_and(|it| it.listed.attempt > 0);
    // A container that was started once is not waiting: it runs, or it has stopped.
    let seen = |name: &str| ended(name) || runs(name) || restarted(name);
    let inits = spec.init_containers.iter();
    let (sidecars, plain): (Vec<_>, Vec<_>) =
        inits.partition(|init| role(spec, &init.name) == Some(Role::Sidecar));
    let mains = &spec.containers;
    let is_gone = |name: &str| newest(name).is_none() && has_ended(name);
    if mains.iter().chain(sidecars.iter().copied()).any(|it| is_gone(&it.name)) {
        return None;
    }
    let any_main = mains.iter().any(|main| seen(&main.name));
    let init_open = plain.iter().any(|init| !newest(&init.name).is_some_and(Container::succeeded));
    let sidecar_waits = sidecars.iter().any(|sidecar| !seen(&sidecar.name));
    let slow = |it: &&edged::model::pod::Container| runs(&it.name) && begun(&it.name) == Begun::No;
    if !any_main && sidecars.iter().any(slow) {
        return Some(Phase::Pending);
    }
    if any_main && (init_open || sidecar_waits) {
        return None;
    }
    if init_open || sidecar_waits || mains.iter().any(|main| !seen(&main.name)) {
        return Some(Phase::Pending);
    }
    let mut all = mains.iter().chain(sidecars);
    let running = all.any(|container| runs(&container.name));
    let restarts = spec.restart_policy != RestartPolicy::Never;
    // If everything has ended for good, the pod is about to be reported as ended.
    (running || restarts).then_some(Phase::Running)
}
