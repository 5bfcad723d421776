//! Stories of runtime handlers, and of changes of resources.

use super::*;
use crate::model::cri::Resources;
use crate::model::runtime::Handler;

fn conditions(handlers: &[(&str, &str)]) -> Event {
    let handler = |(name, program): &(&str, &str)| Handler {
        name: (*name).into(),
        program: (*program).into(),
        recursive_read_only: false,
        user_namespaces: false,
    };
    let handlers = handlers.iter().map(handler).collect();
    Event::Conditions(Conditions { handlers, ..unknown_conditions() })
}

fn run_by(handler: &str, name: &str) -> Request {
    match run(name, 0) {
        Request::RunPodSandbox(config) => Request::RunPodSandbox(Box::new(SandboxConfig {
            runtime_handler: handler.into(),
            ..*config
        })),
        other => panic!("{other:?}"),
    }
}

/// The programs that are called for, in their order.
fn programs(out: &[Action]) -> Vec<&str> {
    let programs = out.iter().filter_map(|action| match action {
        Action::Job(_, job, _) => Some(job.program()),
        Action::Monitor(start) => Some(&*start.program),
        _ => None,
    });
    programs.collect()
}

#[test]
fn a_sandbox_keeps_the_program_of_its_handler_whatever_changes() {
    let mut story = Story::new();
    story.give(conditions(&[("", "/crun"), ("runc", "/runc")]));
    let (call, out) = story.call(run_by("", "one"));
    assert!(answer(&story.flow(out), call).expect("an answer").is_ok());
    let (call, out) = story.call(run_by("runc", "two"));
    let Some(Ok(Reply::Sandbox(id))) = answer(&story.flow(out), call) else { panic!("no sandbox") };
    story.give(conditions(&[("", "/other")]));
    let (_, out) = story.call(create(&id, "web", "a:1"));
    let made = story.flow(out);
    let Some(Reply::Container(web)) = made.iter().find_map(|action| match action {
        Action::Answer(_, Ok(reply)) => Some(reply.clone()),
        _ => None,
    }) else {
        panic!("{made:?}")
    };
    let (_, out) = story.call(Request::StartContainer(web.0.clone()));
    let started = story.flow(out);
    let command = vec!["ls".to_owned()];
    let (_, exec) = story.call(Request::ExecSync { id: web.0.clone(), command, timeout_s: 1 });
    let (_, out) = story.call(Request::RemovePodSandbox(id.0));
    let ended = story.flow(out);
    assert_eq!(programs(&made), ["/runc"], "the job that makes it");
    assert_eq!(programs(&started), ["/runc"], "its monitor");
    assert_eq!(programs(&exec), ["/runc"]);
    // The container, the sandbox, and the container's layer, which needs none.
    assert_eq!(programs(&ended), ["/runc", "/runc", ""]);
    let refusal = story.ask(run_by("runc", "three")).expect_err("it is gone");
    let want = (Code::Unknown, "no runtime for \"runc\" is configured");
    assert_eq!((refusal.code, &*refusal.message), want);
    let (_, out) = story.call(run_by("", "four"));
    assert_eq!(programs(&story.flow(out)), ["/other"]);
}

fn limits(memory_limit: i64) -> Resources {
    Resources { memory_limit, ..Resources::default() }
}

fn update(id: &ContainerId, resources: Resources) -> Request {
    Request::UpdateContainerResources { id: id.0.clone(), resources: Box::new(resources) }
}

impl Story {
    fn resources(&mut self, id: &ContainerId) -> Resources {
        match self.ask(Request::ContainerStatus(id.0.clone())) {
            Ok(Reply::ContainerStatus(record, _)) => record.config.resources.clone(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_zero_or_empty_stays_and_the_cgroup_gets_the_whole() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let first = Resources {
        cpu_shares: 512,
        cpuset_cpus: "0".to_owned(),
        unified: [("cpu.idle".to_owned(), "1".to_owned())].into(),
        ..limits(5)
    };
    let (call, out) = story.call(update(&id, first));
    assert_eq!(kinds(&out), ["save lazily", "job"]);
    assert_eq!(answer(&story.flow(out), call), Some(Ok(Reply::Done)));
    let (_, out) = story.call(update(&id, Resources { cpu_quota: 7, ..limits(9) }));
    let [(_, Job::Update { container, resources })] = &jobs(&out)[..] else { panic!("{out:?}") };
    assert_eq!(container.id, id);
    let whole = Resources {
        cpu_shares: 512,
        cpu_quota: 7,
        cpuset_cpus: "0".to_owned(),
        unified: [("cpu.idle".to_owned(), "1".to_owned())].into(),
        ..limits(9)
    };
    assert_eq!(**resources, whole);
    assert_eq!(story.resources(&id), whole);
}

#[test]
fn of_a_container_that_does_not_run_the_record_is_changed() {
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let id = story.created(&sandbox, "web");
    let (call, out) = story.call(update(&id, limits(5)));
    assert_eq!(kinds(&out), ["save"]);
    assert_eq!(story.resources(&id), limits(0), "not before it is durable");
    assert_eq!(answer(&story.give(Event::Saved), call), Some(Ok(Reply::Done)));
    assert_eq!(story.resources(&id), limits(5));
    let (_, out) = story.call(Request::StartContainer(id.0.clone()));
    let out = story.flow(out);
    let made = jobs(&out).into_iter().find_map(|(_, job)| match job {
        Job::MakeContainer { container, .. } => Some(container.config.resources.clone()),
        _ => None,
    });
    assert_eq!(made, Some(limits(5)), "its config.json is written anew");
    // It has ended.
    story.give(Event::Monitor(id.clone(), exited(0)));
    let out = story.give(Event::Saved);
    story.flow(out);
    let (call, out) = story.call(update(&id, limits(6)));
    assert_eq!(kinds(&out), ["save"]);
    let out = story.give(Event::NotSaved("full".into()));
    let again = story.give(Event::NotSaved("full".into()));
    let refusal = refused(if answer(&out, call).is_some() { &out } else { &again }, call);
    assert_eq!(refusal.message, "the record cannot be saved: full");
    assert_eq!(story.resources(&id), limits(5));
}

#[test]
fn what_the_oci_runtime_refuses_is_taken_back() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (first, out) = story.call(update(&id, limits(5)));
    let (second, waiting) = story.call(update(&id, limits(6)));
    assert_eq!(kinds(&waiting), [""; 0], "one after the other");
    let (job, _) = jobs(&out)[0].clone();
    let out = story.give(Event::Job(job, Err(JobFault::Failed("busy".into()))));
    let refusal = refused(&out, first);
    assert_eq!((refusal.code, &*refusal.message), (Code::Unknown, "busy"));
    assert_eq!(kinds(&out), ["save lazily", "save lazily", "job", "answer"]);
    assert_eq!(answer(&story.flow(out), second), Some(Ok(Reply::Done)));
    assert_eq!(story.resources(&id), limits(6));
    for (wanted, field) in [
        (Resources { oom_score_adj: 5, ..limits(7) }, "oom_score_adj"),
        (Resources { hugepages: vec![("2MB".into(), 1)], ..limits(7) }, "hugepage_limits"),
    ] {
        let refusal = story.ask(update(&id, wanted)).expect_err("it is not to be changed");
        assert_eq!(refusal.code, Code::InvalidArgument);
        let want = format!("{field}: got another value, expected that of CreateContainer");
        assert_eq!(refusal.message, want);
    }
}

#[test]
fn a_container_is_stopped_and_removed_while_its_resources_are_changed() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (changed, out) = story.call(update(&id, limits(5)));
    let (later, _) = story.call(update(&id, limits(6)));
    let (job, _) = jobs(&out)[0].clone();
    let (removed, out) = story.call(Request::RemoveContainer(id.0.clone()));
    assert_eq!(signals(&out), [9], "at once");
    let out = story.flow(out);
    assert_eq!(answer(&out, removed), Some(Ok(Reply::Done)));
    assert_eq!(refused(&out, changed).code, Code::NotFound);
    assert_eq!(refused(&out, later).code, Code::NotFound);
    let out = story.give(Event::Job(job, Err(JobFault::Failed("gone".into()))));
    assert_eq!(kinds(&out), [""; 0]);
}

#[test]
fn a_container_that_has_ended_meanwhile_has_what_its_record_says() {
    let mut story = Story::new();
    let (_, id) = story.running();
    let (call, out) = story.call(update(&id, limits(5)));
    let (job, _) = jobs(&out)[0].clone();
    let out = story.give(Event::Monitor(id.clone(), exited(0)));
    story.flow(out);
    let out = story.give(Event::Job(job, Err(JobFault::Failed("gone".into()))));
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    assert_eq!(story.resources(&id), limits(5));
}
