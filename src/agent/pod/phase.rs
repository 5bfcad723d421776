//! `PodStatus.phase` from the container statuses: the table of spec section 7.2.

use super::next::is_sidecar;
use crate::model::pod::{PodSpec, RestartPolicy};
use crate::model::status::{ContainerStatus, Phase, PodStatus, State};

/// Whether any container may still start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Open,
    /// The pod has ended.
    Final,
}

#[derive(Default)]
struct Counts {
    running: usize,
    stopped: usize,
    succeeded: usize,
    waiting: usize,
    pending_init: usize,
    failed_init: usize,
}

/// `initialised`: a main container has started in the newest sandbox.
pub(super) fn phase_of(
    spec: &PodSpec,
    status: &PodStatus,
    initialised: bool,
    outcome: Outcome,
) -> Phase {
    let counts = count(spec, status, initialised);
    let started = counts.running + counts.stopped > 0;
    if counts.failed_init > 0 && spec.restart_policy == RestartPolicy::Never {
        return Phase::Failed;
    }
    if outcome == Outcome::Open && (counts.pending_init > 0 || counts.waiting > 0) {
        return Phase::Pending;
    }
    if counts.running > 0 {
        return Phase::Running;
    }
    if !started {
        return if outcome == Outcome::Final { Phase::Failed } else { Phase::Pending };
    }
    let all_succeeded = counts.succeeded == counts.stopped && counts.waiting == 0;
    match (outcome, spec.restart_policy) {
        (Outcome::Open, RestartPolicy::Always) => Phase::Running,
        (_, _) if all_succeeded => Phase::Succeeded,
        (Outcome::Final, _) | (_, RestartPolicy::Never) => Phase::Failed,
        (Outcome::Open, RestartPolicy::OnFailure) => Phase::Running,
    }
}

fn count(spec: &PodSpec, status: &PodStatus, initialised: bool) -> Counts {
    let mut counts = Counts::default();
    for reported in &status.container_statuses {
        match (&reported.state, &reported.last_state) {
            (State::Running(_), _) => counts.running += 1,
            (State::Terminated(end), _) | (State::Waiting(_), State::Terminated(end)) => {
                counts.stopped += 1;
                counts.succeeded += usize::from(end.exit_code == 0);
            }
            (State::Waiting(_) | State::Unset, _) => counts.waiting += 1,
        }
    }
    let initialised = initialised || counts.running > 0;
    for (init, reported) in spec.init_containers.iter().zip(&status.init_container_statuses) {
        if is_sidecar(init) {
            // While a sidecar blocks the main containers, their statuses show that.
            counts.running += usize::from(matches!(reported.state, State::Running(_)));
        } else {
            count_init(reported, initialised, &mut counts);
        }
    }
    counts
}

/// `initialised`: the main containers no longer wait for it.
fn count_init(reported: &ContainerStatus, initialised: bool, counts: &mut Counts) {
    match (&reported.state, &reported.last_state) {
        (State::Terminated(end), _) if failed(end.exit_code, &end.reason) => {
            counts.failed_init += 1;
        }
        (State::Terminated(_), _) => {}
        (State::Waiting(_), State::Terminated(end)) if failed(end.exit_code, &end.reason) => {
            counts.failed_init += 1;
        }
        // This also holds after a reboot, if main containers ran before it.
        (State::Waiting(_) | State::Running(_) | State::Unset, _) => {
            counts.pending_init += usize::from(!initialised);
        }
    }
}

fn failed(exit_code: i32, reason: &str) -> bool {
    exit_code != 0 || reason == "OOMKilled"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::Container;
    use crate::model::status::{Running, Terminated, Waiting};

    fn reported(state: &str) -> ContainerStatus {
        let ended = |code| {
            State::Terminated(Box::new(Terminated { exit_code: code, ..Terminated::default() }))
        };
        let waits = || State::Waiting(Waiting::default());
        let (state, last_state) = match state {
            "runs" => (State::Running(Running { started_at: None }), State::Unset),
            "0" => (ended(0), State::Unset),
            "1" => (ended(1), State::Unset),
            "out of memory" => {
                let reason = "OOMKilled".into();
                let end = Terminated { reason, ..Terminated::default() };
                (State::Terminated(Box::new(end)), State::Unset)
            }
            "waits" => (waits(), State::Unset),
            "waits after 1" => (waits(), ended(1)),
            "waits after 0" => (waits(), ended(0)),
            other => panic!("no state {other}"),
        };
        let started = Some(matches!(state, State::Running(_)));
        ContainerStatus { state, last_state, started, ..ContainerStatus::default() }
    }

    fn phase(
        policy: RestartPolicy,
        inits: &[(&str, bool)],
        mains: &[&str],
        outcome: Outcome,
    ) -> Phase {
        let mut spec = PodSpec { restart_policy: policy, ..PodSpec::default() };
        let mut status = PodStatus::default();
        for (state, sidecar) in inits {
            spec.init_containers.push(Container {
                restart_policy: sidecar.then_some(RestartPolicy::Always),
                ..Container::default()
            });
            status.init_container_statuses.push(reported(state));
        }
        for state in mains {
            spec.containers.push(Container::default());
            status.container_statuses.push(reported(state));
        }
        phase_of(&spec, &status, false, outcome)
    }

    #[test]
    fn an_initialised_pod_waits_for_no_init_container() {
        let containers = || vec![Container::default()];
        let spec = PodSpec {
            init_containers: containers(),
            containers: containers(),
            ..PodSpec::default()
        };
        let mut status = PodStatus::default();
        status.init_container_statuses.push(reported("waits"));
        status.container_statuses.push(reported("1"));
        for (initialised, expected) in [(true, Phase::Running), (false, Phase::Pending)] {
            assert_eq!(phase_of(&spec, &status, initialised, Outcome::Open), expected);
        }
    }

    #[test]
    fn the_phase_follows_the_table() {
        use Outcome::{Final, Open};
        use RestartPolicy::{Always, Never, OnFailure};
        for (policy, inits, mains, outcome, expected) in [
            (Always, &[][..], &["runs"][..], Open, Phase::Running),
            (Always, &[], &["waits"], Open, Phase::Pending),
            (Always, &[], &["runs", "waits"], Open, Phase::Pending),
            (Always, &[], &["waits after 1"], Open, Phase::Running),
            (Always, &[], &["1"], Open, Phase::Running),
            (Always, &[], &["0"], Open, Phase::Running),
            (OnFailure, &[], &["0"], Open, Phase::Succeeded),
            (OnFailure, &[], &["1"], Open, Phase::Running),
            (OnFailure, &[], &["0", "1"], Open, Phase::Running),
            (Never, &[], &["0", "1"], Open, Phase::Failed),
            (Never, &[], &["0", "0"], Open, Phase::Succeeded),
            (Never, &[], &["0", "runs"], Open, Phase::Running),
            (Never, &[("1", false)], &["waits"], Open, Phase::Failed),
            (Always, &[("1", false)], &["waits"], Open, Phase::Pending),
            (Always, &[("runs", false)], &["waits"], Open, Phase::Pending),
            (Always, &[("0", false)], &["runs"], Open, Phase::Running),
            (Never, &[("0", false)], &["runs"], Open, Phase::Running),
            (Never, &[("out of memory", false)], &["waits"], Open, Phase::Failed),
            (Never, &[("waits after 1", false)], &["waits"], Open, Phase::Failed),
            (Never, &[("waits after 0", false)], &["waits"], Open, Phase::Pending),
            (Always, &[("waits", true)], &["waits"], Open, Phase::Pending),
            (Always, &[("runs", false)], &["1"], Open, Phase::Pending),
            (Always, &[("waits", false)], &["1"], Open, Phase::Pending),
            (Always, &[("waits", false)], &["runs"], Open, Phase::Running),
            (Always, &[("runs", true)], &["runs"], Open, Phase::Running),
            (Never, &[("runs", true)], &["0"], Open, Phase::Running),
            (Never, &[("1", true)], &["0"], Final, Phase::Succeeded),
            (Always, &[], &["1"], Final, Phase::Failed),
            (Always, &[], &["waits"], Final, Phase::Failed),
            (OnFailure, &[], &["waits after 0"], Final, Phase::Succeeded),
            (OnFailure, &[], &["0", "waits"], Final, Phase::Failed),
        ] {
            let got = phase(policy, inits, mains, outcome);
            assert_eq!(got, expected, "{policy:?} {inits:?} {mains:?} {outcome:?}");
        }
    }
}
