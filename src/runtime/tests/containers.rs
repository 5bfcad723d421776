//! Stories of containers: their lives, commands in them, and what is counted of them.

use std::collections::BTreeMap;

use super::*;
use crate::limits::{
    RUNTIME_CALLS_MAX, RUNTIME_CONTAINERS_MAX, RUNTIME_ENDS_MAX, RUNTIME_EVENTS_MAX,
    RUNTIME_EXEC_EXTRA_MS, RUNTIME_EXECS_MAX, RUNTIME_JOB_MS, RUNTIME_KILL_AGAIN_MS,
    RUNTIME_LAYER_USAGE_MS, RUNTIME_MEASURES_MAX, RUNTIME_REMOVALS_MAX, RUNTIME_REOPEN_MS,
    RUNTIME_RETRY_MAX_MS, RUNTIME_SANDBOXES_MAX, RUNTIME_SESSION_OPENS_MAX, RUNTIME_STARTS_MAX,
    RUNTIME_STREAMS_MAX,
};
use crate::model::runtime::{ContainerState, EventKind, ExecOutput, Pipes, Session};

#[test]
fn a_container_is_created_started_and_ends_by_itself() {
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let (call, out) = story.call(create(&sandbox, "web", "a"));
    assert_eq!(refused(&out, call).message, "failed to resolve image \"a\": not found");
    let (call, out) = story.call(create(&sandbox, "web", "a:1"));
    assert_eq!(kinds(&out), ["save"]);
    let out = story.give(Event::Saved);
    assert_eq!((kinds(&out), answer(&out, call)), (vec!["make container"], None));
    let out = story.flow(out);
    let Some(Ok(Reply::Container(id))) = answer(&out, call) else { panic!("{out:?}") };
    let (call, out) = story.call(Request::StartContainer(id.0.clone()));
    assert_eq!(kinds(&out), ["save lazily", "start"]);
    assert!(matches!(&out[1], Action::Monitor(start) if &*start.log == "/logs/web/0.log"));
    let out = story.flow(out);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    assert_eq!(story.phase(&id), ContainerPhase::Running { started_at: 5, process: process() });
    // Its exit is saved before anything of it is removed, and shown once it is saved.
    let out = story.give(Event::Monitor(id.clone(), exited(3)));
    assert_eq!(kinds(&out), ["save"]);
    assert!(matches!(story.phase(&id), ContainerPhase::Running { .. }));
    assert_eq!(kinds(&story.give(Event::Saved)), ["end container"]);
    let exit = story.exit(&id);
    assert_eq!((exit.code, exit.reason, exit.started_at), (3, ExitReason::Error, 5));
}

#[test]
fn a_state_that_does_not_fit_is_named() {
    let mut story = Story::new();
    let (sandbox, id) = story.running();
    let new = story.created(&sandbox, "new");
    let exec = |id: &ContainerId| Request::ExecSync {
        id: id.0.clone(),
        command: vec!["true".to_owned()],
        timeout_s: 0,
    };
    for (request, want) in [
        (Request::StartContainer(id.0.clone()), "container is in CONTAINER_RUNNING state"),
        (exec(&new), "container is in CONTAINER_CREATED state"),
        (Request::ReopenContainerLog(new.0.clone()), "container is not running"),
    ] {
        let refusal = story.ask(request.clone()).expect_err(want);
        assert_eq!((refusal.code, &*refusal.message), (Code::Unknown, want), "{request:?}");
    }
    let out = story.give(Event::Monitor(id.clone(), exited(0)));
    story.flow(out);
    for (request, want) in [
        (Request::StartContainer(id.0.clone()), "container is in CONTAINER_EXITED state"),
        (exec(&id), "container is in CONTAINER_EXITED state"),
    ] {
        assert_eq!(story.ask(request).expect_err(want).message, want);
    }
}

#[test]
fn an_exit_has_its_reason() {
    let oom = MonitorFact::Exited { code: 137, oom_killed: true, at: 9 };
    for (fact, code, reason) in [
        (exited(0), 0, ExitReason::Completed),
        (exited(143), 143, ExitReason::Error),
        (oom, 137, ExitReason::OomKilled),
        // The monitor that adopts it finds nothing.
        (MonitorFact::Failed("gone".into()), 255, ExitReason::Unknown),
    ] {
        let mut story = Story::new();
        let (_, id) = story.running();
        let out = story.give(Event::Monitor(id.clone(), fact.clone()));
        story.flow(out);
        let exit = story.exit(&id);
        assert_eq!((exit.code, exit.reason, exit.started_at), (code, reason, 5), "{fact:?}");
    }
}

#[test]
fn a_container_that_cannot_be_started_has_exited_with_a_start_error() {
    for (fact, text) in [
        (Some(MonitorFact::Failed("no such file".into())), "no such file"),
        (Some(MonitorFact::Gone), "its monitor ended while it was starting"),
        (None, "it has not started within 60 s"),
    ] {
        let mut story = Story::new();
        let sandbox = story.ready_sandbox();
        let id = story.created(&sandbox, "web");
        let (call, _) = story.call(Request::StartContainer(id.0.clone()));
        let out = match fact {
            Some(fact) => story.give(Event::Monitor(id.clone(), fact)),
            None => story.wait(RUNTIME_JOB_MS),
        };
        assert_eq!((kinds(&out), answer(&out, call)), (vec!["save"], None), "{text}");
        let out = story.give(Event::Saved);
        assert_eq!(kinds(&out), ["end container", "answer"], "{text}");
        assert_eq!(&*refused(&out, call).message, text);
        let exit = story.exit(&id);
        assert_eq!((exit.code, exit.reason, &*exit.message), (128, ExitReason::StartError, text));
        assert_eq!((exit.started_at, exit.finished_at > 0), (0, true));
    }
}

#[test]
fn a_stop_signals_waits_its_grace_and_kills() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let stop = |grace_s| Request::StopContainer { id: id.0.clone(), grace_s };
    let (first, out) = story.call(stop(30));
    // The image's own signal.
    assert_eq!(signals(&out), [2]);
    assert_eq!(signals(&story.wait(10_000)), [0; 0]);
    // A longer grace does not lengthen it, a shorter one shortens it.
    let (second, out) = story.call(stop(100));
    assert_eq!(signals(&out), [0; 0]);
    let (third, out) = story.call(stop(1));
    assert_eq!(signals(&out), [0; 0]);
    assert_eq!(signals(&story.wait(999)), [0; 0]);
    assert_eq!(signals(&story.wait(1)), [9]);
    assert_eq!(signals(&story.wait(RUNTIME_KILL_AGAIN_MS)), [9]);
    let out = story.give(Event::Monitor(id.clone(), exited(137)));
    assert_eq!(kinds(&out), ["save"]);
    let out = story.give(Event::Saved);
    assert_eq!(kinds(&out), ["end container"]);
    let out = story.flow(out);
    for call in [first, second, third] {
        assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    }
    assert_eq!(story.ask(stop(1)), Ok(Reply::Done));
}

#[test]
fn a_stop_without_grace_kills_at_once_and_a_created_container_is_stopped() {
    for grace_s in [0, -1] {
        let mut story = Story::new();
        let (_, id) = story.running();
        let (_, out) = story.call(Request::StopContainer { id: id.0.clone(), grace_s });
        assert_eq!(signals(&out), [9]);
    }
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let id = story.created(&sandbox, "web");
    assert_eq!(story.ask(Request::StopContainer { id: id.0, grace_s: 9 }), Ok(Reply::Done));
}

#[test]
fn a_removal_kills_ends_removes_and_erases_in_this_order() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (call, out) = story.call(Request::RemoveContainer(id.0.clone()));
    let out = story.flow(out);
    let want = ["signal", "save", "end container", "remove container", "erase", "answer"];
    assert_eq!((kinds(&out), answer(&out, call)), (want.to_vec(), Some(Ok(Reply::Done))));
    assert_eq!(story.ask(Request::RemoveContainer(id.0)), Ok(Reply::Done));
}

#[test]
fn an_end_that_fails_is_refused_and_tried_again_ever_more_seldom() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (call, _) = story.call(Request::RemoveContainer(id.0.clone()));
    story.give(Event::Monitor(id.clone(), exited(137)));
    let mut out = story.give(Event::Saved);
    let mut waits = Vec::new();
    for round in 0..12 {
        let (job, _) = jobs(&out)[0].clone();
        let failed = story.give(Event::Job(job, Err(JobFault::Failed("busy".into()))));
        assert_eq!(answer(&failed, call).is_some(), round == 0);
        let at = story.runtime.wake_at().expect("it is tried again");
        waits.push(at.0 - story.now_ms);
        out = story.wait(at.0 - story.now_ms);
        assert_eq!(kinds(&out), ["end container"]);
    }
    assert_eq!((waits[0], waits[1], waits[11]), (1_000, 2_000, RUNTIME_RETRY_MAX_MS));
    assert!(matches!(story.phase(&id), ContainerPhase::Exited(_)), "it is shown as it is");
    let out = story.flow(out);
    assert_eq!(kinds(&out), ["end container"], "the removal was refused: nothing is removed");
}

#[test]
fn a_monitor_that_is_lost_is_replaced() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let out = story.give(Event::Monitor(id.clone(), MonitorFact::Gone));
    let [Action::Monitor(start)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(start.adopt, Some(process()));
    // Only one at a time, and after a wait if that one fails as well.
    assert_eq!(kinds(&story.wait(RUNTIME_RETRY_MAX_MS)), [""; 0]);
    assert_eq!(kinds(&story.give(Event::Monitor(id.clone(), MonitorFact::Gone))), ["adopt"]);
    assert_eq!(kinds(&story.give(Event::Monitor(id.clone(), MonitorFact::Gone))), [""; 0]);
    assert_eq!(kinds(&story.wait(2 * RUNTIME_RETRY_MIN_MS)), ["adopt"]);
    story.give(Event::Monitor(id.clone(), exited(42)));
    story.give(Event::Saved);
    assert_eq!(story.exit(&id).code, 42);
}

#[test]
fn a_log_is_opened_anew_by_its_monitor() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let reopen = || Request::ReopenContainerLog(id.0.clone());
    let (first, out) = story.call(reopen());
    assert_eq!(kinds(&out), ["reopen"]);
    let (second, _) = story.call(reopen());
    let said = |result| Event::Monitor(id.clone(), MonitorFact::Reopened(result));
    assert_eq!(answer(&story.give(said(Ok(()))), first), Some(Ok(Reply::Done)));
    assert_eq!(refused(&story.give(said(Err("full".into()))), second).message, "full");
    let (late, _) = story.call(reopen());
    assert_eq!(refused(&story.wait(RUNTIME_REOPEN_MS), late).code, Code::Unknown);
    // A new monitor opens it anyway.
    story.give(Event::Monitor(id.clone(), MonitorFact::Gone));
    let (call, out) = story.call(reopen());
    assert_eq!(kinds(&out), ["reopen"]);
    let started = MonitorFact::Started { process: process(), at: 5 };
    assert_eq!(
        answer(&story.give(Event::Monitor(id.clone(), started)), call),
        Some(Ok(Reply::Done))
    );
    let (call, _) = story.call(reopen());
    let out = story.give(Event::Monitor(id.clone(), exited(0)));
    assert_eq!(refused(&out, call).message, "container is not running");
}

#[test]
fn a_command_ends_by_itself_by_its_time_or_by_its_client() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let exec = |timeout_s| Request::ExecSync {
        id: id.0.clone(),
        command: vec!["true".to_owned()],
        timeout_s,
    };
    let (call, out) = story.call(exec(2));
    let Action::Job(job, _, at) = &out[0] else { panic!("{out:?}") };
    assert_eq!(*at, Instant(2_000 + RUNTIME_EXEC_EXTRA_MS));
    let output = ExecOutput { exit_code: 5, ..ExecOutput::default() };
    let out = story.give(Event::Job(*job, Ok(JobReply::Exec(output.clone()))));
    assert_eq!(answer(&out, call), Some(Ok(Reply::Exec(Box::new(output)))));
    for (timeout_s, fault, code, message) in [
        (
            2,
            JobFault::TimedOut("timeout 2s exceeded".into()),
            Code::DeadlineExceeded,
            "timeout 2s exceeded",
        ),
        (2, JobFault::Died("killed".into()), Code::DeadlineExceeded, "timeout 2s exceeded"),
        (0, JobFault::Died("killed".into()), Code::Unknown, "killed"),
        (0, JobFault::Failed("exec failed".into()), Code::Unknown, "exec failed"),
    ] {
        let (call, out) = story.call(exec(timeout_s));
        let (job, _) = jobs(&out)[0].clone();
        let refusal = refused(&story.give(Event::Job(job, Err(fault))), call);
        assert_eq!((refusal.code, &*refusal.message), (code, message));
    }
    let (call, out) = story.call(exec(0));
    let (job, _) = jobs(&out)[0].clone();
    let out = story.give(Event::Cancel(call));
    assert_eq!(
        (kinds(&out), refused(&out, call).code),
        (vec!["kill job", "answer"], Code::Cancelled)
    );
    assert_eq!(story.give(Event::Job(job, Err(JobFault::Died("killed".into())))), []);
    // Others go on without their client.
    let (call, _) = story.call(Request::StopContainer { id: id.0.clone(), grace_s: 0 });
    assert_eq!(story.give(Event::Cancel(call)), []);
}

#[test]
fn what_waits_for_its_turn_is_started_as_soon_as_there_is_room() {
    let mut story = Story::new();
    let (sandbox, id) = story.running();
    let exec = Request::ExecSync { id: id.0, command: vec!["true".to_owned()], timeout_s: 0 };
    let calls: Vec<_> = (0..=RUNTIME_EXECS_MAX).map(|_| story.call(exec.clone())).collect();
    let began = calls.iter().filter(|(_, out)| !out.is_empty()).count();
    assert_eq!(began, RUNTIME_EXECS_MAX);
    let (last, _) = calls[RUNTIME_EXECS_MAX];
    // A command that has not begun is not killed.
    assert_eq!(kinds(&story.give(Event::Cancel(last))), ["answer"]);
    let stats = || Request::ListPodSandboxStats(SandboxFilter::default());
    let began: usize = (0..3).map(|_| jobs(&story.call(stats()).1).len()).sum();
    assert_eq!(began, RUNTIME_MEASURES_MAX);
    let new: Vec<ContainerId> =
        (0..4).map(|at| story.created(&sandbox, &format!("c{at}"))).collect();
    let mut started = 0;
    for id in &new {
        started += story.call(Request::StartContainer(id.0.clone())).1.len() / 2;
    }
    assert_eq!(started, RUNTIME_STARTS_MAX);
    let removals = new.iter().map(|id| story.call(Request::RemoveContainer(id.0.clone())).1);
    assert_eq!(removals.flat_map(|out| jobs(&out)).count(), 0, "they are starting");
    let mut ends = 0;
    for id in &new {
        story.give(Event::Monitor(id.clone(), MonitorFact::Failed("no".into())));
        ends += jobs(&story.give(Event::Saved)).len();
    }
    assert_eq!(ends, RUNTIME_ENDS_MAX);
    assert_eq!(RUNTIME_REMOVALS_MAX, 1);
}

#[test]
fn usage_is_measured_for_all_at_once_and_what_was_written_is_counted_now_and_then() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let stats = || Request::ListContainerStats(ContainerFilter::default());
    for (wait_ms, counts) in [(0, true), (RUNTIME_LAYER_USAGE_MS - 1, false), (1, true)] {
        story.wait(wait_ms);
        let (call, out) = story.call(stats());
        let (job, Job::Stats(of)) = jobs(&out)[0].clone() else { panic!("{out:?}") };
        assert_eq!((of.len(), of[0].layer_of.is_some()), (1, counts));
        assert_eq!(&*of[0].cgroup, format!("/edged/{id}"));
        let usage = Usage { layer: counts.then_some((7, 1)), ..Usage::default() };
        let out = story.give(Event::Job(job, Ok(JobReply::Stats(vec![usage]))));
        let Some(Ok(Reply::ContainerStats(all))) = answer(&out, call) else { panic!("{out:?}") };
        assert_eq!(all[0].1.layer, Some((7, 1)), "remembered in between");
    }
    let filter =
        ContainerFilter { state: Some(ContainerState::Exited), ..ContainerFilter::default() };
    assert_eq!(
        story.ask(Request::ListContainerStats(filter)),
        Ok(Reply::ContainerStats(Vec::new()))
    );
}

#[test]
fn lists_are_filtered_by_all_that_is_set() {
    let mut story = Story::new();
    let (sandbox, id) = story.running();
    let label = |value: &str| BTreeMap::from([("app".to_owned(), value.to_owned())]);
    let any = ContainerFilter::default();
    for (filter, want) in [
        (any.clone(), 1),
        (ContainerFilter { id: id.0[..9].into(), ..any.clone() }, 1),
        (ContainerFilter { id: "x".into(), ..any.clone() }, 0),
        (ContainerFilter { sandbox: sandbox.0[..9].into(), ..any.clone() }, 1),
        (ContainerFilter { sandbox: "x".into(), ..any.clone() }, 0),
        (ContainerFilter { state: Some(ContainerState::Running), ..any.clone() }, 1),
        (ContainerFilter { state: Some(ContainerState::Created), ..any.clone() }, 0),
        (ContainerFilter { labels: label("a"), ..any.clone() }, 0),
    ] {
        let Ok(Reply::Containers(all)) = story.ask(Request::ListContainers(filter.clone())) else {
            panic!("no list")
        };
        assert_eq!(all.len(), want, "{filter:?}");
    }
    let any = SandboxFilter::default();
    for (filter, want) in [
        (any.clone(), 1),
        (SandboxFilter { id: sandbox.0[..9].into(), ..any.clone() }, 1),
        (SandboxFilter { ready: Some(false), ..any.clone() }, 0),
        (SandboxFilter { labels: label("a"), ..any.clone() }, 0),
    ] {
        let Ok(Reply::Sandboxes(all)) = story.ask(Request::ListPodSandbox(filter.clone())) else {
            panic!("no list")
        };
        assert_eq!(all.len(), want, "{filter:?}");
    }
}

#[test]
fn event_streams_tell_what_changes_until_they_are_cancelled() {
    let mut story = Story::new();
    let (stream, out) = story.call(Request::GetContainerEvents);
    assert_eq!(out, []);
    let (_, out) = story.call(run("pod", 0));
    let out = story.flow(out);
    let items = |out: &[Action]| -> Vec<(EventKind, usize)> {
        let items = out.iter().filter_map(|action| match action {
            Action::Item(call, event) if *call == stream => {
                Some((event.kind, event.containers.len()))
            }
            _ => None,
        });
        items.collect()
    };
    assert_eq!(items(&out), [(EventKind::Created, 0), (EventKind::Started, 0)]);
    let sandbox = story.runtime.sandboxes.keys().next().expect("just made").clone();
    let (_, out) = story.call(create(&sandbox, "web", "a:1"));
    let out = story.flow(out);
    assert_eq!(items(&out), [(EventKind::Created, 1)]);
    let (_, out) = story.call(Request::RemovePodSandbox(sandbox.0));
    let out = story.flow(out);
    assert_eq!(items(&out), [(EventKind::Deleted, 0), (EventKind::Deleted, 0)]);
    let out = story.give(Event::Cancel(stream));
    assert_eq!(refused(&out, stream).code, Code::Cancelled);
}

#[test]
fn what_is_beyond_a_limit_is_refused() {
    let mut story = Story::new();
    for _ in 0..RUNTIME_STREAMS_MAX {
        story.call(Request::GetContainerEvents);
    }
    let refusal = story.ask(Request::GetContainerEvents).expect_err("one too many");
    assert_eq!(refusal.code, Code::ResourceExhausted);
    let mut calls = RUNTIME_STREAMS_MAX;
    for at in 0.. {
        let (call, out) = story.call(run("pod", at));
        if let Some(answer) = answer(&out, call) {
            let refusal = answer.expect_err("one too many");
            assert_eq!(refusal.code, Code::ResourceExhausted);
            break;
        }
        calls += 1;
    }
    assert_eq!(calls, RUNTIME_STREAMS_MAX + RUNTIME_SANDBOXES_MAX);
    assert!(RUNTIME_CALLS_MAX > calls && RUNTIME_CONTAINERS_MAX > RUNTIME_SANDBOXES_MAX);
    for _ in calls..RUNTIME_CALLS_MAX {
        story.call(Request::PullImage { image: "b:1".into(), auth: None });
    }
    let refusal = story.ask(Request::Version).expect_err("one too many");
    assert_eq!(refusal.code, Code::ResourceExhausted);
    // So many events in one step, and a client has to list.
    let mut calls = calls::Calls::default();
    let mut streams = Streams::default();
    let mut out = Out::default();
    calls.open(CallId(1));
    streams.open(CallId(1)).expect("the first");
    let event = RuntimeEvent {
        id: "a".into(),
        kind: EventKind::Created,
        at: 0,
        sandbox: None,
        containers: Vec::new(),
    };
    streams.send(&vec![event.clone(); RUNTIME_EVENTS_MAX], &mut calls, &mut out);
    assert_eq!(out.actions.len(), RUNTIME_EVENTS_MAX);
    streams.send(&vec![event; RUNTIME_EVENTS_MAX + 1], &mut calls, &mut out);
    calls.take(&mut out);
    assert_eq!(refused(&out.actions, CallId(1)).code, Code::ResourceExhausted);
    assert!(streams.is_empty());
}

#[test]
fn a_session_is_opened_for_what_runs() {
    let mut story = Story::new();
    let (sandbox, id) = story.running();
    let pipes = Pipes { stdin: true, stdout: true, ..Pipes::default() };
    let exec = |id: &ContainerId| {
        let command = vec!["sh".to_owned()];
        Request::Exec { id: id.0.clone(), command, pipes }
    };
    let attach = |id: &ContainerId| Request::Attach { id: id.0.clone(), pipes };
    let forward = |id: &SandboxId| Request::PortForward { sandbox: id.0.clone(), ports: vec![80] };
    for request in [exec(&id), attach(&id), forward(&sandbox)] {
        let (call, out) = story.call(request.clone());
        let (job, spec) = jobs(&out)[0].clone();
        match (&request, spec) {
            (Request::Exec { .. }, Job::Open(Session::Exec { command, .. })) => {
                assert_eq!(command, ["sh"]);
            }
            (Request::Attach { .. }, Job::Open(Session::Attach { stdin_once, .. })) => {
                assert!(!stdin_once);
            }
            (_, Job::Open(Session::PortForward { own_network, ports, .. })) => {
                assert_eq!((own_network, ports), (true, vec![80]));
            }
            other => panic!("{other:?}"),
        }
        let url: Box<str> = "unix:///run/s/0-1".into();
        let out = story.give(Event::Job(job, Ok(JobReply::Url(url.clone()))));
        assert_eq!(answer(&out, call), Some(Ok(Reply::Url(url))));
    }
    let (call, out) = story.call(exec(&id));
    let fault = JobFault::Exhausted("too many".into());
    let out = story.give(Event::Job(jobs(&out)[0].0, Err(fault)));
    assert_eq!(refused(&out, call).code, Code::ResourceExhausted);
    // So many are opened at once, however many commands run.
    let calls: Vec<_> = (0..=RUNTIME_SESSION_OPENS_MAX).map(|_| story.call(attach(&id))).collect();
    let begun = calls.iter().filter(|(_, out)| !jobs(out).is_empty()).count();
    assert_eq!(begun, RUNTIME_SESSION_OPENS_MAX);
    let other = ContainerId("e".repeat(64).into());
    for (request, code, message) in [
        (exec(&other), Code::NotFound, "container"),
        (attach(&other), Code::NotFound, "container"),
        (forward(&SandboxId(other.0.clone())), Code::NotFound, "sandbox"),
    ] {
        let (call, out) = story.call(request);
        let refusal = refused(&out, call);
        assert_eq!(refusal.code, code);
        assert!(refusal.message.contains(message), "{}", refusal.message);
    }
}
