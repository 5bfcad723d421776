//! Logs are rotated by size, and never lost.

use edged::limits;
use edged::model::cri::{Code, ContainerId, Request};
use edged::model::housekeeping::HousekeepingCall;
use edged::model::job::{JobSpec, LogDir, LogLink};

use crate::harness::{Harness, MAIN, START, pod};

const LARGE: u64 = 10 << 20;
const A_WHILE_MS: u64 = 2 * limits::HOUSEKEEPING_LATE_MS;

fn log() -> LogLink {
    let pod = LogDir { namespace: "default".into(), name: "p-gw".into(), uid: "u1".into() };
    LogLink { pod, container: "m".into(), attempt: 0, id: "c2".into() }
}

fn running() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.node_jobs.clear();
    harness
}

/// The names of the jobs about logs.
fn jobs(harness: &Harness) -> Vec<&str> {
    let name = |spec: &JobSpec| match spec {
        JobSpec::RotateLog { log: of, files_max: 5, at_s } => {
            assert!(*of == log() && *at_s > 0, "{spec:?}");
            Some("rotate")
        }
        JobSpec::RestoreLog(_) => Some("restore"),
        JobSpec::CompressLogs(_) => Some("compress"),
        _ => None,
    };
    harness.node_jobs.iter().filter_map(name).collect()
}

#[test]
fn a_log_that_is_too_large_is_renamed_reopened_and_compressed() {
    let mut harness = running();
    harness.machine.logs = vec![(log(), Some(LARGE - 1))];
    harness.pass(A_WHILE_MS);
    assert_eq!(jobs(&harness), [] as [&str; 0], "it is small");
    harness.machine.logs = vec![(log(), Some(LARGE))];
    harness.pass(A_WHILE_MS);
    assert_eq!(jobs(&harness), ["rotate"]);
    harness.machine.logs = vec![(log(), Some(0))];
    let (_, request) = harness.take("reopen_container_log c2");
    let reopen = HousekeepingCall::ReopenContainerLog(ContainerId("c2".into()));
    assert_eq!(request, Request::HousekeepingCall(reopen));
    harness.reopened();
    assert_eq!(jobs(&harness), ["rotate", "compress"]);
    harness.pass(A_WHILE_MS);
    assert_eq!(jobs(&harness), ["rotate", "compress"]);
}

#[test]
fn a_log_that_cannot_be_reopened_gets_its_name_back() {
    let mut harness = running();
    harness.machine.logs = vec![(log(), Some(LARGE))];
    harness.pass(A_WHILE_MS);
    harness.machine.logs = vec![(log(), Some(0))];
    harness.refuses("reopen_container_log c2", Code::Unknown, "no space left on device");
    assert_eq!(jobs(&harness), ["rotate", "restore"]);
}

#[test]
fn where_the_runtime_reopens_nothing_the_log_gets_its_name_back_first() {
    let mut harness = running();
    harness.machine.logs = vec![(log(), Some(LARGE))];
    harness.pass(A_WHILE_MS);
    harness.refuses("reopen_container_log c2", Code::Unimplemented, "unknown method");
    assert_eq!(jobs(&harness), ["rotate", "restore"]);
    harness.pass(10 * A_WHILE_MS);
    assert_eq!(jobs(&harness), ["rotate", "restore"], "and that was all");
}

#[test]
fn a_log_that_is_not_there_is_reopened_and_a_runtime_that_cannot_is_left_alone() {
    let mut harness = running();
    harness.machine.logs = vec![(log(), None)];
    harness.pass(A_WHILE_MS);
    assert_eq!(jobs(&harness), [] as [&str; 0]);
    harness.refuses("reopen_container_log c2", Code::Unimplemented, "unknown method");
    harness.pass(10 * A_WHILE_MS);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "it is not requested again");
}

#[test]
fn the_logs_of_a_container_that_has_ended_are_let_be() {
    let mut harness = running();
    harness.machine.logs = vec![(log(), Some(LARGE))];
    harness.exits("m", 0);
    harness.pass(A_WHILE_MS);
    assert_eq!(jobs(&harness), [] as [&str; 0]);
}
