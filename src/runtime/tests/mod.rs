//! Stories: given facts, expect requests and answers.

mod containers;
mod features;
mod images;
mod restarts;

use super::*;
use crate::core::time::Wall;
use crate::limits::{RUNTIME_RETRY_MIN_MS, RUNTIME_SANDBOX_MS};
use crate::model::cri::PodRef;
use crate::model::runtime::{
    BootId, DiffId, Exit, ExitReason, ImageConfig, Job, Process, Record, RecordKey, Usage,
};
use event::Durability;

/// 2027-01-15, milliseconds since 1970.
const TODAY_MS: i64 = 1_800_000_000_000;

/// A core, and what it has requested.
struct Story {
    runtime: Runtime,
    now_ms: u64,
    last_call: u64,
    out: Vec<Action>,
}

impl Story {
    fn new() -> Self {
        Self::with(Stored { images: vec![image("a:1")], ..Stored::default() })
    }

    fn with(stored: Stored) -> Self {
        let stored = Stored { boot: boot(), ..stored };
        let runtime = Runtime::boot(stored, clock(0), 1);
        let mut story = Self { runtime, now_ms: 0, last_call: 0, out: Vec::new() };
        story.step();
        story
    }

    /// Gives an event; returns what is requested in the step after it.
    fn give(&mut self, event: Event) -> Vec<Action> {
        self.runtime.handle(clock(self.now_ms), event);
        self.step();
        std::mem::take(&mut self.out)
    }

    fn step(&mut self) {
        let mut out = Out::default();
        self.runtime.step(clock(self.now_ms), &mut out);
        let wake = self.runtime.wake_at();
        assert!(wake.is_none_or(|at| at.0 > self.now_ms), "{wake:?} at {}", self.now_ms);
        self.out.append(&mut out.actions);
    }

    /// Lets time pass; returns what is requested.
    fn wait(&mut self, ms: u64) -> Vec<Action> {
        self.now_ms += ms;
        self.step();
        std::mem::take(&mut self.out)
    }

    fn call(&mut self, request: Request) -> (CallId, Vec<Action>) {
        self.last_call += 1;
        let call = CallId(self.last_call);
        (call, self.give(Event::Call(call, request)))
    }

    /// A call that is answered at once.
    fn ask(&mut self, request: Request) -> Result<Reply, Refusal> {
        let (call, out) = self.call(request);
        answer(&out, call).expect("an answer at once")
    }

    /// Answers everything that is requested with success, until nothing more is: saves, jobs, and
    /// the starts of containers. Returns all requests from `out` on.
    fn flow(&mut self, out: Vec<Action>) -> Vec<Action> {
        let mut all = Vec::new();
        let mut open = out;
        while !open.is_empty() {
            let mut events: Vec<Event> = open.iter().filter_map(success).collect();
            if open.iter().any(is_save) {
                events.push(Event::Saved);
            }
            all.append(&mut open);
            for event in events {
                open.append(&mut self.give(event));
            }
        }
        all
    }

    fn ready_sandbox(&mut self) -> SandboxId {
        let (call, out) = self.call(run("pod", 0));
        let out = self.flow(out);
        match answer(&out, call) {
            Some(Ok(Reply::Sandbox(id))) => id,
            other => panic!("{other:?}"),
        }
    }

    fn created(&mut self, sandbox: &SandboxId, name: &str) -> ContainerId {
        let (call, out) = self.call(create(sandbox, name, "a:1"));
        let out = self.flow(out);
        match answer(&out, call) {
            Some(Ok(Reply::Container(id))) => id,
            other => panic!("{other:?}"),
        }
    }

    fn running(&mut self) -> (SandboxId, ContainerId) {
        let sandbox = self.ready_sandbox();
        let container = self.created(&sandbox, "web");
        let (call, out) = self.call(Request::StartContainer(container.0.clone()));
        let out = self.flow(out);
        assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
        (sandbox, container)
    }

    fn phase(&mut self, id: &ContainerId) -> ContainerPhase {
        match self.ask(Request::ContainerStatus(id.0.clone())) {
            Ok(Reply::ContainerStatus(record, _)) => record.phase.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn exit(&mut self, id: &ContainerId) -> Exit {
        match self.phase(id) {
            ContainerPhase::Exited(exit) => exit,
            other => panic!("{other:?}"),
        }
    }
}

fn clock(ms: u64) -> Now {
    Now { boot: Instant(ms), wall: Some(Wall(TODAY_MS + ms as i64)) }
}

fn boot() -> BootId {
    BootId("this".into())
}

fn process() -> Process {
    Process { pid: 7, start_time: 1, boot: boot() }
}

/// The answer to a job or a start that succeeds.
fn success(action: &Action) -> Option<Event> {
    match action {
        Action::Job(id, job, _) => Some(Event::Job(*id, Ok(done(job)))),
        Action::Monitor(start) => {
            let fact = MonitorFact::Started { process: process(), at: 5 };
            Some(Event::Monitor(start.id.clone(), fact))
        }
        Action::Signal(id, _, signal) => {
            let fact = MonitorFact::Exited { code: 128 + signal, oom_killed: false, at: 9 };
            Some(Event::Monitor(id.clone(), fact))
        }
        _ => None,
    }
}

fn done(job: &Job) -> JobReply {
    match job {
        Job::MakeSandbox(_) => JobReply::Network(vec!["10.0.0.2".into()]),
        Job::Exec { .. } => JobReply::Exec(crate::model::runtime::ExecOutput::default()),
        Job::Pull { image: name, .. } => JobReply::Image(Box::new(image(name))),
        Job::Stats(of) => JobReply::Stats(vec![Usage::default(); of.len()]),
        _ => JobReply::Done,
    }
}

fn is_save(action: &Action) -> bool {
    matches!(action, Action::Save(_, Durability::Now) | Action::Erase(_))
}

fn answer(out: &[Action], call: CallId) -> Option<Result<Reply, Refusal>> {
    out.iter().find_map(|action| match action {
        Action::Answer(other, answer) if *other == call => Some(answer.clone()),
        _ => None,
    })
}

fn refused(out: &[Action], call: CallId) -> Refusal {
    answer(out, call).expect("an answer").expect_err("a refusal")
}

fn jobs(out: &[Action]) -> Vec<(JobId, Job)> {
    let jobs = out.iter().filter_map(|action| match action {
        Action::Job(id, job, _) => Some((*id, job.clone())),
        _ => None,
    });
    jobs.collect()
}

fn signals(out: &[Action]) -> Vec<i32> {
    let signals = out.iter().filter_map(|action| match action {
        Action::Signal(_, _, signal) => Some(*signal),
        _ => None,
    });
    signals.collect()
}

/// The requests by their kinds, without logs.
fn kinds(out: &[Action]) -> Vec<&'static str> {
    let kinds = out.iter().filter_map(|action| match action {
        Action::Answer(..) => Some("answer"),
        Action::Item(..) => Some("item"),
        Action::Save(_, Durability::Now) => Some("save"),
        Action::Save(_, Durability::Lazily) => Some("save lazily"),
        Action::Save(_, Durability::InRun) => Some("save in run"),
        Action::Erase(_) => Some("erase"),
        Action::Job(_, Job::MakeSandbox(_), _) => Some("make sandbox"),
        Action::Job(_, Job::EndSandbox(_), _) => Some("end sandbox"),
        Action::Job(_, Job::MakeContainer { .. }, _) => Some("make container"),
        Action::Job(_, Job::EndContainer(_), _) => Some("end container"),
        Action::Job(_, Job::RemoveContainer(_), _) => Some("remove container"),
        Action::Job(_, Job::RemoveLayers { .. }, _) => Some("remove layers"),
        Action::Job(..) => Some("job"),
        Action::KillJob(_) => Some("kill job"),
        Action::Monitor(start) if start.adopt.is_some() => Some("adopt"),
        Action::Monitor(_) => Some("start"),
        Action::Reopen(_) => Some("reopen"),
        Action::Signal(..) => Some("signal"),
        Action::Log(..) => None,
    });
    kinds.collect()
}

fn image(name: &str) -> ImageRecord {
    ImageRecord {
        id: ImageId(format!("sha256:{}", format!("{:02x}", name.as_bytes()[0]).repeat(32)).into()),
        tags: vec![format!("docker.io/library/{name}").into()],
        digests: Vec::new(),
        layers: vec![DiffId("sha256:base".into()), DiffId(format!("sha256:{name}").into())],
        size: 10,
        pinned: false,
        config: ImageConfig { stop_signal: "SIGINT".into(), ..ImageConfig::default() },
    }
}

fn run(name: &str, attempt: u32) -> Request {
    let pod = PodRef { uid: "u".into(), namespace: "ns".into(), name: name.into() };
    let log_directory = "/logs/".to_owned();
    Request::RunPodSandbox(Box::new(SandboxConfig {
        pod,
        attempt,
        log_directory,
        ..SandboxConfig::default()
    }))
}

fn create(sandbox: &SandboxId, name: &str, image: &str) -> Request {
    let config = ContainerConfig {
        name: name.into(),
        image_ref: image.into(),
        log_path: "web/0.log".to_owned(),
        ..ContainerConfig::default()
    };
    Request::CreateContainer { sandbox: sandbox.0.clone(), config: Box::new(config) }
}

fn exited(code: i32) -> MonitorFact {
    MonitorFact::Exited { code, oom_killed: false, at: 9 }
}

// ---- sandboxes ----

#[test]
fn a_sandbox_is_on_record_before_it_is_made_and_answered_once_run_has_it() {
    let mut story = Story::new();
    let (call, out) = story.call(run("pod", 0));
    assert_eq!(kinds(&out), ["save"]);
    assert!(matches!(&out[0], Action::Save(record, _)
        if matches!(&**record, Record::Sandbox(record) if record.phase == SandboxPhase::Making)));
    let out = story.give(Event::Saved);
    assert_eq!(kinds(&out), ["make sandbox"]);
    assert!(matches!(out[0], Action::Job(_, _, at) if at == Instant(RUNTIME_SANDBOX_MS)));
    let (job, _) = jobs(&out)[0].clone();
    let network = JobReply::Network(vec!["10.0.0.2".into()]);
    assert_eq!(
        story.ask(Request::ListPodSandbox(SandboxFilter::default())),
        Ok(Reply::Sandboxes(Vec::new()))
    );
    let out = story.give(Event::Job(job, Ok(network)));
    assert_eq!(kinds(&out), ["save in run", "answer"]);
    let Some(Ok(Reply::Sandbox(id))) = answer(&out, call) else { panic!("{out:?}") };
    let Ok(Reply::SandboxStatus(record)) = story.ask(Request::PodSandboxStatus(id.0[..12].into()))
    else {
        panic!("no status")
    };
    assert_eq!((record.is_ready(), &*record.ips), (true, &["10.0.0.2".into()][..]));
}

#[test]
fn a_sandbox_that_cannot_be_made_leaves_nothing() {
    for (fault, code, rest) in [
        (JobFault::Failed("x".into()), Code::Unknown, &["erase"][..]),
        (JobFault::Invalid("x".into()), Code::InvalidArgument, &["erase"]),
        (JobFault::Died("x".into()), Code::Unknown, &["end sandbox", "erase"]),
    ] {
        let mut story = Story::new();
        let (call, out) = story.call(run("pod", 0));
        assert_eq!(kinds(&out), ["save"]);
        let (job, _) = jobs(&story.give(Event::Saved))[0].clone();
        let out = story.give(Event::Job(job, Err(fault.clone())));
        let out = story.flow(out);
        let (last, others) = out.split_last().expect("an answer at least");
        assert_eq!(kinds(others), rest, "{fault:?}");
        assert_eq!(refused(std::slice::from_ref(last), call).code, code, "{fault:?}");
        let (_, out) = story.call(run("pod", 0));
        assert_eq!(kinds(&out), ["save"], "its name is free again");
    }
}

#[test]
fn a_sandbox_that_cannot_be_undone_stays_under_its_id_and_is_tried_again() {
    let mut story = Story::new();
    let (call, _) = story.call(run("pod", 0));
    let (job, _) = jobs(&story.give(Event::Saved))[0].clone();
    let out = story.give(Event::Job(job, Err(JobFault::Died("first".into()))));
    let (job, _) = jobs(&out)[0].clone();
    let out = story.give(Event::Job(job, Err(JobFault::Failed("busy".into()))));
    assert_eq!(refused(&out, call).message, "first");
    let Ok(Reply::Sandboxes(all)) = story.ask(Request::ListPodSandbox(SandboxFilter::default()))
    else {
        panic!("no list")
    };
    assert_eq!(all.iter().map(|record| record.is_ready()).collect::<Vec<_>>(), [false]);
    assert_eq!(kinds(&story.wait(RUNTIME_RETRY_MIN_MS - 1)), [""; 0]);
    assert_eq!(kinds(&story.wait(1)), ["end sandbox"]);
}

#[test]
fn names_are_reserved_in_the_words_that_agents_read() {
    let mut story = Story::new();
    let sandbox = story.ready_sandbox();
    let refusal = story.ask(run("pod", 0)).expect_err("it is taken");
    let want = format!(
        "failed to reserve sandbox name \"pod_ns_u_0\": name \"pod_ns_u_0\" is reserved for \
         \"{sandbox}\""
    );
    assert_eq!((refusal.code, refusal.message), (Code::Unknown, want));
    assert_eq!(kinds(&story.call(run("pod", 1)).1), ["save"]);
    story.give(Event::Saved);
    let container = story.created(&sandbox, "web");
    let refusal = story.ask(create(&sandbox, "web", "a:1")).expect_err("it is taken");
    let want = format!(
        "failed to reserve container name \"web_pod_ns_u_0\": name \"web_pod_ns_u_0\" is reserved \
         for \"{container}\""
    );
    assert_eq!((refusal.code, refusal.message), (Code::Unknown, want));
}

#[test]
fn what_is_not_there_is_refused_or_done() {
    let id = || "0123".into();
    let container = "an error occurred when try to find container \"0123\": not found";
    let sandbox = "an error occurred when try to find sandbox \"0123\": not found";
    let nowhere = SandboxId(id());
    let handler = SandboxConfig { runtime_handler: "x".into(), ..SandboxConfig::default() };
    for (request, want) in [
        (Request::StopPodSandbox(id()), None),
        (Request::RemovePodSandbox(id()), None),
        (Request::RemoveContainer(id()), None),
        (Request::RemoveImage("none:1".into()), None),
        (Request::PodSandboxStatus(id()), Some((Code::NotFound, sandbox))),
        (create(&nowhere, "web", "a:1"), Some((Code::NotFound, sandbox))),
        (Request::ContainerStatus(id()), Some((Code::NotFound, container))),
        (Request::StartContainer(id()), Some((Code::NotFound, container))),
        (Request::StopContainer { id: id(), grace_s: 1 }, Some((Code::NotFound, container))),
        (Request::ReopenContainerLog(id()), Some((Code::NotFound, container))),
        (
            Request::RunPodSandbox(Box::new(handler)),
            Some((Code::Unknown, "no runtime for \"x\" is configured")),
        ),
        (
            Request::StopPodSandbox("".into()),
            Some((Code::InvalidArgument, "got an empty id, expected one or its prefix")),
        ),
        (
            Request::ExecSync { id: id(), command: vec!["a".into()], timeout_s: 0 },
            Some((Code::NotFound, container)),
        ),
        (
            Request::ExecSync { id: id(), command: Vec::new(), timeout_s: 0 },
            Some((Code::InvalidArgument, "got an empty command")),
        ),
        (
            Request::ImportImages { path: "a".into() },
            Some((Code::InvalidArgument, "got the path \"a\", expected an absolute one")),
        ),
    ] {
        let got = Story::new().ask(request.clone());
        match want {
            None => assert_eq!(got, Ok(Reply::Done), "{request:?}"),
            Some((code, message)) => {
                let want = Refusal { code, message: message.to_owned() };
                assert_eq!(got, Err(want), "{request:?}");
            }
        }
    }
    assert_eq!(Story::new().ask(Request::ImageStatus("none:1".into())), Ok(Reply::Image(None)));
}

#[test]
fn stopping_a_sandbox_kills_its_containers_and_takes_down_its_network() {
    let mut story = Story::new();
    let (sandbox, container) = story.running();
    let (call, out) = story.call(Request::StopPodSandbox(sandbox.0.clone()));
    assert_eq!((signals(&out), answer(&out, call)), (vec![9], None));
    let out = story.flow(out);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    assert_eq!(jobs(&out).len(), 2);
    let exit = story.exit(&container);
    assert_eq!((exit.code, exit.reason), (137, ExitReason::Error));
    let Ok(Reply::SandboxStatus(record)) = story.ask(Request::PodSandboxStatus(sandbox.0.clone()))
    else {
        panic!("no status")
    };
    assert_eq!((record.phase, record.ips.len()), (SandboxPhase::NotReady, 0));
    // Again, and with a container that is refused.
    assert_eq!(story.ask(Request::StopPodSandbox(sandbox.0.clone())), Ok(Reply::Done));
    let refusal = story.ask(create(&sandbox, "other", "a:1")).expect_err("it is stopped");
    assert_eq!(refusal.code, Code::FailedPrecondition);
}

#[test]
fn removing_a_sandbox_removes_its_containers_first_and_its_record_last() {
    let mut story = Story::new();
    let (sandbox, container) = story.running();
    let (call, out) = story.call(Request::RemovePodSandbox(sandbox.0.clone()));
    let out = story.flow(out);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Done)));
    let erased: Vec<&Action> =
        out.iter().filter(|action| matches!(action, Action::Erase(_))).collect();
    let keys = [RecordKey::Container(container), RecordKey::Sandbox(sandbox.clone())];
    assert_eq!(erased, [&Action::Erase(keys[0].clone()), &Action::Erase(keys[1].clone())]);
    assert_eq!(story.ask(Request::RemovePodSandbox(sandbox.0)), Ok(Reply::Done));
    assert_eq!(
        story.ask(Request::ListContainers(ContainerFilter::default())),
        Ok(Reply::Containers(Vec::new()))
    );
}
