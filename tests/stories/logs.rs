//! Logs are rotated by size, and never lost.

use edged::limits;
use edged::model::cri::{Code, ContainerId, Request};
use edged::model::housekeeping::Upkeep;
use edged::model::job::{JobSpec, LogDir, LogLink};

use crate::desk::{Desk, MAIN, START, pod};

const LARGE: u64 = 10 << 20;
const A_WHILE_MS: u64 = 2 * limits::CHORES_LATE_MS;

fn log() -> LogLink {
    let pod = LogDir { namespace: "default".into(), name: "p-gw".into(), uid: "u1".into() };
    LogLink { pod, container: "m".into(), attempt: 0, id: "c2".into() }
}

fn running() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.node_jobs.clear();
    desk
}

/// Of the jobs that concern logs, their names.
fn jobs(desk: &Desk) -> Vec<&str> {
    let name = |spec: &JobSpec| match spec {
        JobSpec::RotateLog { log: of, files_max: 5, at_s } => {
            assert!(*of == log() && *at_s > 0, "{spec:?}");
            Some("rotate")
        }
        JobSpec::RestoreLog(_) => Some("restore"),
        JobSpec::CompressLogs(_) => Some("compress"),
        _ => None,
    };
    desk.node_jobs.iter().filter_map(name).collect()
}

#[test]
fn a_log_that_is_too_large_is_renamed_reopened_and_compressed() {
    let mut desk = running();
    desk.machine.logs = vec![(log(), Some(LARGE - 1))];
    desk.pass(A_WHILE_MS);
    assert_eq!(jobs(&desk), [] as [&str; 0], "it is small");
    desk.machine.logs = vec![(log(), Some(LARGE))];
    desk.pass(A_WHILE_MS);
    assert_eq!(jobs(&desk), ["rotate"]);
    desk.machine.logs = vec![(log(), Some(0))];
    let (_, request) = desk.take("reopen_container_log c2");
    let reopen = Upkeep::ReopenContainerLog(ContainerId("c2".into()));
    assert_eq!(request, Request::Upkeep(reopen));
    desk.reopened();
    assert_eq!(jobs(&desk), ["rotate", "compress"]);
    desk.pass(A_WHILE_MS);
    assert_eq!(jobs(&desk), ["rotate", "compress"]);
}

#[test]
fn a_log_that_cannot_be_reopened_gets_its_name_back() {
    let mut desk = running();
    desk.machine.logs = vec![(log(), Some(LARGE))];
    desk.pass(A_WHILE_MS);
    desk.machine.logs = vec![(log(), Some(0))];
    desk.refuses("reopen_container_log c2", Code::Unknown, "no space left on device");
    assert_eq!(jobs(&desk), ["rotate", "restore"]);
}

#[test]
fn where_the_runtime_reopens_nothing_the_log_gets_its_name_back_first() {
    let mut desk = running();
    desk.machine.logs = vec![(log(), Some(LARGE))];
    desk.pass(A_WHILE_MS);
    desk.refuses("reopen_container_log c2", Code::Unimplemented, "unknown method");
    assert_eq!(jobs(&desk), ["rotate", "restore"]);
    desk.pass(10 * A_WHILE_MS);
    assert_eq!(jobs(&desk), ["rotate", "restore"], "and that was all");
}

#[test]
fn a_log_that_is_not_there_is_reopened_and_a_runtime_that_cannot_is_left_alone() {
    let mut desk = running();
    desk.machine.logs = vec![(log(), None)];
    desk.pass(A_WHILE_MS);
    assert_eq!(jobs(&desk), [] as [&str; 0]);
    desk.refuses("reopen_container_log c2", Code::Unimplemented, "unknown method");
    desk.pass(10 * A_WHILE_MS);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "it is not asked again");
}

#[test]
fn the_logs_of_a_container_that_has_ended_are_let_be() {
    let mut desk = running();
    desk.machine.logs = vec![(log(), Some(LARGE))];
    desk.exits("m", 0);
    desk.pass(A_WHILE_MS);
    assert_eq!(jobs(&desk), [] as [&str; 0]);
}
