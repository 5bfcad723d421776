//! Containers that containerd refuses to remove, for a task that no CRI call ends.

use edged::limits;
use edged::model::cri::Code;

use crate::harness::{Harness, MAIN, START, pod};

/// A container that has ended, and that the runtime refuses to remove with this code.
fn refused(code: Code) -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.manifests(&[]);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    harness.refuses("remove_container c2", code, "cannot delete running task c2");
    harness
}

#[test]
fn a_task_that_a_cancelled_start_has_left_is_ended_before_its_container_is_removed() {
    let mut harness = refused(Code::FailedPrecondition);
    harness.does("kill_task c2");
    assert_eq!(harness.open_calls(), [] as [&str; 0], "its processes need a moment");
    harness.pass(limits::TASK_END_MS);
    harness.does_all(&["delete_task c2", "remove_container c2", "remove_podsandbox s1"]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn a_task_that_takes_its_time_to_end_is_tried_again_later() {
    let mut harness = refused(Code::FailedPrecondition);
    harness.does("kill_task c2");
    harness.pass(limits::TASK_END_MS);
    let running = "task must be stopped before deletion: running";
    harness.refuses("delete_task c2", Code::FailedPrecondition, running);
    harness.refuses(
        "remove_container c2",
        Code::FailedPrecondition,
        "cannot delete running task c2",
    );
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(limits::RETRY_MS - 1);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(limits::RETRY_MS / 2 + 1);
    harness.refuses("kill_task c2", Code::NotFound, "process already finished");
    harness.pass(limits::TASK_END_MS);
    harness.does_all(&["delete_task c2", "remove_container c2", "remove_podsandbox s1"]);
}

#[test]
fn a_runtime_without_tasks_is_asked_to_remove_again_and_no_faster() {
    let mut harness = refused(Code::FailedPrecondition);
    for end in ["kill_task c2", "delete_task c2"] {
        harness.refuses(end, Code::Unimplemented, "unknown service");
        harness.pass(limits::TASK_END_MS);
    }
    harness.refuses("remove_container c2", Code::FailedPrecondition, "not now");
    harness.pass(limits::RETRY_MS - 1);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn only_that_refusal_speaks_of_a_task() {
    let mut harness = refused(Code::Unknown);
    harness.pass(limits::RETRY_MS * 3 / 2);
    harness.does_all(&["remove_container c2", "remove_podsandbox s1"]);
}
