//! Stories of restarts: what was stored, what is found, and what follows.

use std::collections::BTreeMap;

use super::*;
use crate::limits::RUNTIME_JOB_MS;

fn sandbox_record(phase: SandboxPhase) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId("5a".repeat(32).into()),
        config: SandboxConfig::default(),
        phase,
        created_at: 1,
        ips: vec!["10.0.0.2".into()],
        boot: boot(),
        program: "".into(),
    }
}

fn container_record(phase: ContainerPhase) -> ContainerRecord {
    ContainerRecord {
        sandbox: sandbox_record(SandboxPhase::Ready).id,
        phase,
        ..orphan_record(ContainerId("c0".repeat(32).into()))
    }
}

fn stored(phase: ContainerPhase, found: Option<Found>) -> Stored {
    let sandbox = sandbox_record(SandboxPhase::Ready);
    let container = container_record(phase);
    Stored {
        found: found.into_iter().map(|found| (container.id.clone(), found)).collect(),
        found_sandboxes: vec![sandbox.id.clone()],
        sandboxes: vec![sandbox],
        containers: vec![container],
        ..Stored::default()
    }
}

fn running() -> ContainerPhase {
    ContainerPhase::Running { started_at: 5, process: process() }
}

/// Table 4.3 of the design, after a restart of the server within one boot.
#[test]
fn what_is_found_decides_how_a_container_goes_on() {
    let starting = || ContainerPhase::Starting(boot());
    let ended = || Found::Ended(exited(7));
    let failed = || Found::Ended(MonitorFact::Failed("no such file".into()));
    let other = Process { pid: 8, ..process() };
    // What is requested first, and the exit code in the end.
    for (phase, found, want, code) in [
        (ContainerPhase::Created, None, &[][..], None),
        (ContainerPhase::Created, Some(Found::Remains), &[], None),
        (ContainerPhase::Created, Some(ended()), &["save"], Some(7)),
        (ContainerPhase::Created, Some(failed()), &["save"], Some(128)),
        (ContainerPhase::Created, Some(Found::Alone(process(), None)), &["save"], Some(128)),
        (ContainerPhase::Created, Some(Found::Alone(process(), Some(5))), &["adopt"], None),
        (starting(), None, &["save"], Some(128)),
        (starting(), Some(Found::Alone(process(), None)), &["save"], Some(128)),
        (starting(), Some(Found::Alone(process(), Some(5))), &["adopt"], None),
        (starting(), Some(Found::Remains), &["save"], Some(128)),
        (starting(), Some(failed()), &["save"], Some(128)),
        (starting(), Some(ended()), &["save"], Some(7)),
        (starting(), Some(Found::Monitored), &[], None),
        (running(), Some(Found::Monitored), &[], None),
        (running(), Some(Found::Alone(process(), None)), &["adopt"], None),
        (running(), Some(Found::Alone(other, Some(5))), &["save"], Some(255)),
        (running(), Some(ended()), &["save"], Some(7)),
        (running(), Some(Found::Remains), &["save"], Some(255)),
        (running(), None, &["save"], Some(255)),
    ] {
        let mut story = Story::with(stored(phase.clone(), found.clone()));
        let id = container_record(phase.clone()).id;
        assert_eq!(kinds(&story.out), want, "{phase:?}, {found:?}");
        let out = std::mem::take(&mut story.out);
        let Some(code) = code else { continue };
        let out = story.flow(out);
        let ends = if found.is_some() { vec!["save", "end container"] } else { vec!["save"] };
        assert_eq!(kinds(&out), ends, "{phase:?}, {found:?}");
        let exit = story.exit(&id);
        assert_eq!(exit.code, code, "{phase:?}, {found:?}");
        let ran = phase == running();
        assert!(!ran || exit.started_at == 5, "{exit:?}");
    }
}

#[test]
fn what_a_monitor_says_after_a_restart_goes_on_where_it_was() {
    for phase in [ContainerPhase::Created, ContainerPhase::Starting(boot())] {
        let mut story = Story::with(stored(phase.clone(), Some(Found::Monitored)));
        let id = container_record(phase.clone()).id;
        // A call that comes again joins the start under way.
        let (call, out) = story.call(Request::StartContainer(id.0.clone()));
        assert_eq!(out, []);
        let started = MonitorFact::Started { process: process(), at: 5 };
        let out = story.give(Event::Monitor(id.clone(), started));
        assert_eq!(answer(&out, call), Some(Ok(Reply::Done)), "{phase:?}");
        assert_eq!(story.phase(&id), running());
    }
    let mut story = Story::with(stored(ContainerPhase::Created, Some(Found::Monitored)));
    assert_eq!(kinds(&story.wait(RUNTIME_JOB_MS)), ["save"], "it has said nothing");
}

#[test]
fn a_created_container_is_made_anew_before_it_starts() {
    let with =
        |found| Stored { images: vec![image("a:1")], ..stored(ContainerPhase::Created, found) };
    let mut made = with(Some(Found::Remains));
    made.containers[0].image = image("a:1").id;
    let mut story = Story::with(made);
    let id = container_record(ContainerPhase::Created).id;
    let (call, out) = story.call(Request::StartContainer(id.0.clone()));
    let out = story.flow(out);
    let want = ["end container", "make container", "save lazily", "start", "save lazily", "answer"];
    assert_eq!((kinds(&out), answer(&out, call)), (want.to_vec(), Some(Ok(Reply::Done))));
    let mut story = Story::with(with(None));
    let refusal = story.ask(Request::StartContainer(id.0)).expect_err("its image is gone");
    assert_eq!(refusal.code, Code::NotFound);
}

#[test]
fn after_a_reboot_sandboxes_are_not_ready_and_containers_have_exited() {
    let exit = Exit {
        code: 3,
        reason: ExitReason::Error,
        message: "".into(),
        started_at: 5,
        finished_at: 6,
    };
    let all = [
        (ContainerPhase::Created, 255, 0),
        (ContainerPhase::Starting(boot()), 255, 0),
        (running(), 255, 5),
        (ContainerPhase::Exited(exit), 3, 5),
    ];
    let both = |it| [(SandboxPhase::Ready, it), (SandboxPhase::Making, it)];
    for (of_sandbox, (phase, code, started_at)) in all.iter().flat_map(both) {
        let (code, started_at) = (*code, *started_at);
        let mut before = stored(phase.clone(), None);
        before.sandboxes[0].boot = BootId("before".into());
        // The disk may not know yet that it had become ready.
        before.sandboxes[0].phase = of_sandbox;
        let (sandbox, id) = (before.sandboxes[0].id.clone(), before.containers[0].id.clone());
        let mut story = Story::with(before);
        let out = std::mem::take(&mut story.out);
        let out = story.flow(out);
        let ends = jobs(&out);
        assert!(
            matches!(&ends[..], [(_, Job::EndSandbox(_))]),
            "CNI's DEL is to be done: {ends:?}"
        );
        let Ok(Reply::Sandboxes(all)) =
            story.ask(Request::ListPodSandbox(SandboxFilter::default()))
        else {
            panic!("no list")
        };
        let shown: Vec<bool> = all.iter().map(|record| record.is_ready()).collect();
        assert_eq!(shown, [false], "its containers are to be found: {of_sandbox:?}");
        let exit = story.exit(&id);
        assert_eq!((exit.code, exit.started_at), (code, started_at), "{phase:?}");
        let (call, out) = story.call(Request::RemovePodSandbox(sandbox.0));
        let out = story.flow(out);
        assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    }
}

#[test]
fn a_sandbox_goes_on_by_its_phase() {
    for (phase, is_found, want, is_shown) in [
        (SandboxPhase::Making, false, &["end sandbox", "erase"][..], None),
        (SandboxPhase::Making, true, &["end sandbox", "erase"], None),
        (SandboxPhase::Ready, true, &[], Some(true)),
        (SandboxPhase::Ready, false, &["end sandbox", "save"], Some(false)),
        (SandboxPhase::Stopping, true, &["end sandbox", "save"], Some(false)),
        (SandboxPhase::NotReady, false, &[], Some(false)),
        (SandboxPhase::NotReady, true, &["end sandbox"], Some(false)),
    ] {
        let sandbox = sandbox_record(phase);
        let found_sandboxes = if is_found { vec![sandbox.id.clone()] } else { Vec::new() };
        let mut story =
            Story::with(Stored { sandboxes: vec![sandbox], found_sandboxes, ..Stored::default() });
        let out = std::mem::take(&mut story.out);
        let out = story.flow(out);
        assert_eq!(kinds(&out), want, "{phase:?}, {is_found}");
        let Ok(Reply::Sandboxes(all)) =
            story.ask(Request::ListPodSandbox(SandboxFilter::default()))
        else {
            panic!("no list")
        };
        assert_eq!(all.first().map(|record| record.is_ready()), is_shown, "{phase:?}, {is_found}");
    }
}

#[test]
fn what_has_no_record_is_removed_and_never_shown() {
    let id = ContainerId("0f".repeat(32).into());
    let mut story = Story::with(Stored {
        found: vec![(id.clone(), Found::Alone(process(), None))],
        found_sandboxes: vec![SandboxId("ab".repeat(32).into())],
        ..Stored::default()
    });
    let out = std::mem::take(&mut story.out);
    let folder = jobs(&out).into_iter().find_map(|(_, job)| match job {
        Job::EndContainer(folder) => Some(folder),
        _ => None,
    });
    assert_eq!(&*folder.expect("it is ended").cgroup, format!("/edged/{id}"));
    assert_eq!(
        story.ask(Request::ListContainers(ContainerFilter::default())),
        Ok(Reply::Containers(Vec::new()))
    );
    let out = story.flow(out);
    let mut kinds = kinds(&out);
    kinds.sort_unstable();
    assert_eq!(kinds, ["end container", "end sandbox", "erase", "erase", "remove container"]);
    assert!(story.runtime.containers.is_empty() && story.runtime.sandboxes.is_empty());
}

#[test]
fn a_container_of_a_lost_sandbox_is_ended_and_can_be_removed() {
    let mut lost = stored(running(), Some(Found::Monitored));
    lost.sandboxes.clear();
    lost.found_sandboxes.clear();
    let mut story = Story::with(lost);
    let out = std::mem::take(&mut story.out);
    let out = story.flow(out);
    assert_eq!(kinds(&out), ["save", "end container"]);
    let id = container_record(running()).id;
    let (call, out) = story.call(Request::RemoveContainer(id.0));
    let out = story.flow(out);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
}

// ---- saves that fail ----

#[test]
fn a_record_that_can_never_be_saved_fails_alone() {
    let mut story = Story::new();
    let large = CallId(1_000);
    story.runtime.handle(clock(0), Event::Call(large, run("large", 0)));
    let (small, out) = story.call(run("small", 0));
    assert_eq!(kinds(&out), ["save", "save"]);
    let mut out = story.give(Event::NotSaved("too large".into()));
    let mut answers = BTreeMap::new();
    while !out.is_empty() {
        let saves: Vec<&Action> = out.iter().filter(|action| is_save(action)).collect();
        let is_large = |action: &&&Action| {
            matches!(action, Action::Save(..)) && format!("{action:?}").contains("\"large\"")
        };
        let is_large = saves.iter().any(|action| is_large(&action));
        assert!(!is_large || saves.len() == 1, "it fails alone: {saves:?}");
        let mut events: Vec<Event> = out.iter().filter_map(success).collect();
        let too_large = || Event::NotSaved("too large".into());
        events.extend(saves.first().map(|_| if is_large { too_large() } else { Event::Saved }));
        for call in [large, small] {
            answers.extend(answer(&out, call).map(|answer| (call, answer.is_ok())));
        }
        out = events.into_iter().flat_map(|event| story.give(event)).collect();
    }
    assert_eq!(answers, BTreeMap::from([(large, false), (small, true)]));
}

#[test]
fn an_exit_that_cannot_be_saved_is_shown_and_saved_later() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (call, _) = story.call(Request::StopContainer { id: id.0.clone(), grace_s: 0 });
    story.give(Event::Monitor(id.clone(), exited(137)));
    let out = story.give(Event::NotSaved("full".into()));
    assert_eq!(refused(&out, call).message, "the record cannot be saved: full");
    assert_eq!(story.exit(&id).code, 137);
    assert_eq!(kinds(&story.wait(RUNTIME_RETRY_MIN_MS)), ["save"]);
    assert_eq!(kinds(&story.give(Event::Saved)), ["end container"]);
}

#[test]
fn a_stop_that_cannot_be_saved_is_refused_and_leaves_the_network() {
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let (call, out) = story.call(Request::StopPodSandbox(sandbox.0.clone()));
    assert_eq!(kinds(&out), ["save"]);
    let out = story.give(Event::NotSaved("full".into()));
    assert_eq!((kinds(&out), refused(&out, call).code), (vec!["answer"], Code::Unknown));
    let (call, out) = story.call(Request::StopPodSandbox(sandbox.0));
    let out = story.flow(out);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
}

#[test]
fn a_sandbox_whose_process_namespace_has_ended_is_stopped_and_another_one_can_be_made() {
    let mut story = Story::new();
    let (sandbox, other) = story.running();
    let (call, out) = story.call(create(&sandbox, "next", "a:1"));
    let out: Vec<Action> = out.into_iter().chain(story.give(Event::Saved)).collect();
    let [(job, Job::MakeContainer { .. })] = &jobs(&out)[..] else { panic!("{out:?}") };
    let why = "its first process is gone";
    let out = story.give(Event::Job(*job, Err(JobFault::SandboxLost(why.into()))));
    assert_eq!(signals(&out), [9], "what may be left in it ends");
    let exit = story.give(Event::Monitor(other.clone(), exited(137)));
    let all = story.flow([out, exit].concat());
    assert_eq!(refused(&all, call).message, why);
    assert_eq!(sandbox_phase(&mut story, &sandbox), SandboxPhase::NotReady);
    let (again, out) = story.call(create(&sandbox, "next", "a:1"));
    assert_eq!(refused(&out, again).code, Code::FailedPrecondition);
}

/// Nobody asks for the stop, so nobody asks for it again.
#[test]
fn that_a_sandbox_is_lost_is_saved_later_where_it_cannot_be_now() {
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let (_, out) = story.call(create(&sandbox, "web", "a:1"));
    let out: Vec<Action> = out.into_iter().chain(story.give(Event::Saved)).collect();
    let [(job, _)] = jobs(&out)[..] else { panic!("{out:?}") };
    let mut out = story.give(Event::Job(job, Err(JobFault::SandboxLost("gone".into()))));
    assert!(kinds(&out).contains(&"save"), "{out:?}");
    out.retain(|action| !is_save(action));
    out.extend(story.give(Event::NotSaved("no space left".into())));
    story.flow(out);
    assert_eq!(sandbox_phase(&mut story, &sandbox), SandboxPhase::Ready);
    let later = story.wait(RUNTIME_RETRY_MIN_MS);
    let all = story.flow(later);
    assert!(kinds(&all).contains(&"save"), "{all:?}");
    assert_eq!(sandbox_phase(&mut story, &sandbox), SandboxPhase::NotReady);
}

fn sandbox_phase(story: &mut Story, id: &SandboxId) -> SandboxPhase {
    match story.ask(Request::PodSandboxStatus(id.0.clone())) {
        Ok(Reply::SandboxStatus(record)) => record.phase,
        other => panic!("{other:?}"),
    }
}
