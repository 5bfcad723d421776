//! People ask for logs, commands, ports and usage; the texts are those of the kubelet.

use edged::agent::event::{Action, CallId, Event};
use edged::limits::{COMMAND_OUTPUT_BYTES_MAX, COMMAND_S, STREAM_CALL_MS, STREAM_CALLS_MAX};
use edged::model::cri::{
    CallError, Code, ContainerState, Lost, Pipes, Reply, Request, StreamingCall,
};
use edged::model::housekeeping::{ContainerUsage, HousekeepingReply};
use edged::model::job::LogDir;
use edged::model::stream::{
    LogFile, LogOptions, PodName, RefusalKind, StreamAnswer, StreamId, StreamRequest,
};

use crate::harness::{Harness, MAIN, START, pod};

const ID: StreamId = StreamId(1);

fn named(name: &str) -> PodName {
    PodName { namespace: "default".into(), name: name.into(), uid: None }
}

fn running() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness
}

fn logs(pod: &str, container: &str, options: LogOptions) -> StreamRequest {
    StreamRequest::Logs { pod: named(pod), container: container.into(), options }
}

fn exec(pod: &str, container: &str) -> StreamRequest {
    let pipes = Pipes { stdout: true, stderr: true, ..Pipes::default() };
    let command = vec!["ls".to_owned()];
    StreamRequest::Exec { pod: named(pod), container: container.into(), command, pipes }
}

impl Harness {
    fn opens(&mut self, request: StreamRequest) {
        self.deliver(Event::StreamOpened(ID, Box::new(request)));
    }

    /// The only answer so far.
    #[track_caller]
    fn told(&mut self) -> StreamAnswer {
        assert_eq!(self.people.len(), 1, "{:?}", self.people);
        let (id, answer) = self.people.remove(0);
        assert_eq!(id, ID);
        answer
    }

    #[track_caller]
    fn refused(&mut self, request: StreamRequest) -> (RefusalKind, String) {
        self.opens(request);
        match self.told() {
            StreamAnswer::Refused(refusal) => (refusal.kind, refusal.text),
            other => panic!("{other:?}"),
        }
    }

    /// The open call for people.
    #[track_caller]
    fn asked(&mut self) -> (CallId, StreamingCall) {
        let is = |(_, request): &(CallId, Request)| matches!(request, Request::Streaming(_));
        let at = self.open.iter().position(is).expect("a call for people");
        match self.open.remove(at) {
            (call, Request::Streaming(streaming)) => (call, streaming),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_command_goes_to_the_runtimes_server() {
    let mut harness = running();
    harness.opens(exec("p-gw", "m"));
    let (call, asked) = harness.asked();
    let StreamingCall::Exec { container, command, pipes } = asked else { panic!("{asked:?}") };
    assert_eq!((&*container.0, command), ("c2", vec!["ls".to_owned()]));
    assert_eq!(pipes, Pipes { stdout: true, stderr: true, ..Pipes::default() });
    let url: Box<str> = "http://127.0.0.1:1/exec/x".into();
    harness.deliver(Event::Cri(call, Ok(Reply::Url(url.clone()))));
    assert_eq!(harness.told(), StreamAnswer::Relay(url));
    harness.deliver(Event::StreamClosed(ID));
    assert_eq!(harness.cancelled, [], "nothing was under way");
}

#[test]
fn with_a_terminal_there_is_no_second_output() {
    let mut harness = running();
    let pipes = Pipes { stdin: true, stdout: true, stderr: true, tty: true };
    let (pod, container) = (named("p-gw"), "m".into());
    harness.opens(StreamRequest::Exec { pod, container, command: Vec::new(), pipes });
    let (_, asked) = harness.asked();
    let StreamingCall::Exec { pipes, .. } = asked else { panic!("{asked:?}") };
    assert_eq!(pipes, Pipes { stdin: true, stdout: true, stderr: false, tty: true });
}

#[test]
fn attach_has_the_terminal_that_the_container_has() {
    for (spec, tty) in [
        (r#""containers":[{"name":"m","image":"i:1","tty":true}]"#, true),
        (r#""containers":[{"name":"m","image":"i:1"}]"#, false),
    ] {
        let mut harness = Harness::new();
        harness.manifests(&[&pod(spec)]);
        harness.does_all(START);
        let pipes = Pipes { stdout: true, stderr: true, tty: !tty, ..Pipes::default() };
        let (pod, container) = (named("p-gw"), "m".into());
        harness.opens(StreamRequest::Attach { pod, container, pipes });
        let (_, asked) = harness.asked();
        let StreamingCall::Attach { pipes, .. } = asked else { panic!("{asked:?}") };
        assert_eq!((pipes.tty, pipes.stderr), (tty, !tty));
    }
}

#[test]
fn ports_are_those_of_the_sandbox() {
    let mut harness = running();
    harness.opens(StreamRequest::PortForward { pod: named("p-gw"), ports: vec![80, 443] });
    let (_, asked) = harness.asked();
    let StreamingCall::PortForward { sandbox, ports } = asked else { panic!("{asked:?}") };
    assert_eq!((&*sandbox.0, ports), ("s1", vec![80, 443]));
}

#[test]
fn what_does_not_exist_or_run_is_refused_in_the_kubelets_words() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    let uid = PodName { uid: Some("other".into()), ..named("p-gw") };
    let forward = |pod| StreamRequest::PortForward { pod, ports: Vec::new() };
    let pipes = Pipes { stdout: true, ..Pipes::default() };
    let attach = StreamRequest::Attach { pod: named("p-gw"), container: "m".into(), pipes };
    for (request, kind, text) in [
        (exec("nope", "m"), RefusalKind::NotFound, "pod does not exist"),
        (forward(uid), RefusalKind::NotFound, "pod does not exist"),
        (exec("p-gw", "m"), RefusalKind::Internal, "container not found (\"m\")"),
        (attach, RefusalKind::Internal, "container m not found in pod p-gw_default"),
        (forward(named("p-gw")), RefusalKind::Internal, "pod not found (\"p-gw_default\")"),
        (
            logs("nope", "m", LogOptions::default()),
            RefusalKind::NotFound,
            "pod \"nope\" does not exist",
        ),
        (
            logs("p-gw", "x", LogOptions::default()),
            RefusalKind::NotFound,
            "container \"x\" not found in pod \"p-gw\"",
        ),
        (
            logs("p-gw", "m", LogOptions::default()),
            RefusalKind::BadRequest,
            "container \"m\" in pod \"p-gw\" is waiting to start: ContainerCreating",
        ),
        (
            logs("p-gw", "m", LogOptions { previous: true, ..LogOptions::default() }),
            RefusalKind::BadRequest,
            "previous terminated container \"m\" in pod \"p-gw\" not found",
        ),
    ] {
        assert_eq!(harness.refused(request), (kind, text.to_owned()));
    }
}

#[test]
fn a_log_is_that_of_the_running_instance_and_before_it_of_the_last() {
    let mut harness = running();
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(0), running: false });
    harness.exits("m", 1);
    harness.does("container_status c2");
    // The next instance does not exist yet: the last one is shown.
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(0), running: false });
    harness.does_all(&["image_status i:1", "create_container m#1", "start_container c3"]);
    harness.does("container_status c3");
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(1), running: false });
    harness.opens(logs("p-gw", "m", previous));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(0), running: false });
}

/// A file of the pod's container.
fn file(attempt: u32) -> LogFile {
    let pod = LogDir { namespace: "default".into(), name: "p-gw".into(), uid: "u1".into() };
    LogFile { pod, container: "m".into(), attempt }
}

#[test]
fn the_log_of_an_instance_that_the_runtime_has_forgotten_is_found_by_the_restarts() {
    let mut harness = running();
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    harness.exits("m", 1);
    harness.does("container_status c2");
    harness.does_all(&["image_status i:1", "create_container m#1", "start_container c3"]);
    harness.does("container_status c3");
    harness.containers.retain(|it| &*it.id.0 != "c2");
    harness.pass(1_000);
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(1), running: false });
    harness.opens(logs("p-gw", "m", previous));
    assert_eq!(harness.told(), StreamAnswer::Logs { file: file(0), running: false });
}

#[test]
fn why_there_is_no_log_yet_is_said_in_the_kubelets_words() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    let refused = |harness: &mut Harness, why: &str| {
        let text = format!("container \"m\" in pod \"p-gw\" is waiting to start: {why}");
        let got = harness.refused(logs("p-gw", "m", LogOptions::default()));
        assert_eq!(got, (RefusalKind::BadRequest, text));
    };
    refused(&mut harness, "image can't be pulled");
    harness.does("image_status i:1");
    refused(&mut harness, "trying and failing to pull image");
}

#[test]
fn of_a_container_that_has_ended_there_is_a_log_and_no_command() {
    let never = r#""restartPolicy":"Never","containers":[{"name":"m","image":"i:1"}]"#;
    let mut harness = Harness::new();
    harness.manifests(&[&pod(never)]);
    harness.does_all(START);
    harness.exits("m", 0);
    harness.does("container_status c2");
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    harness.opens(logs("p-gw", "m", follow));
    let answer = StreamAnswer::Logs { file: file(0), running: false };
    assert_eq!(harness.told(), answer, "nothing more will come");
    let refusal = harness.refused(exec("p-gw", "m"));
    assert_eq!(refusal, (RefusalKind::Internal, "container not found (\"m\")".to_owned()));
}

#[test]
fn a_pod_is_known_by_its_namespace_and_its_uid_too() {
    let mut harness = running();
    let elsewhere = PodName { namespace: "kube-system".into(), ..named("p-gw") };
    let other = PodName { uid: Some("u2".into()), ..named("p-gw") };
    for pod in [elsewhere, other] {
        let forward = StreamRequest::PortForward { pod, ports: vec![80] };
        assert_eq!(harness.refused(forward).0, RefusalKind::NotFound);
    }
    let its = PodName { uid: Some("u1".into()), ..named("p-gw") };
    harness.opens(StreamRequest::PortForward { pod: its, ports: vec![80] });
    assert!(matches!(harness.asked().1, StreamingCall::PortForward { .. }));
}

#[test]
fn a_log_that_is_not_followed_is_not_ended() {
    let mut harness = running();
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    harness.told();
    harness.exits("m", 0);
    assert_eq!(harness.people, []);
}

#[test]
fn a_followed_log_ends_with_its_container_and_only_then() {
    let mut harness = running();
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    harness.opens(logs("p-gw", "m", follow.clone()));
    let StreamAnswer::Logs { running: true, .. } = harness.told() else { panic!("it runs") };
    harness.pass(60_000);
    assert_eq!(harness.people, []);
    harness.exits("m", 0);
    assert_eq!(harness.told(), StreamAnswer::LogsEnd);
    harness.pass(60_000);
    assert_eq!(harness.people, [], "it ends once");
}

#[test]
fn a_followed_log_whose_client_has_left_is_forgotten() {
    let mut harness = running();
    harness.opens(logs("p-gw", "m", LogOptions { follow: true, ..LogOptions::default() }));
    harness.told();
    harness.deliver(Event::StreamClosed(ID));
    harness.exits("m", 0);
    assert_eq!(harness.people, []);
}

#[test]
fn a_client_that_leaves_takes_its_call_along() {
    let mut harness = running();
    harness.opens(exec("p-gw", "m"));
    let (call, _) = harness.asked();
    harness.deliver(Event::StreamClosed(ID));
    assert_eq!(harness.cancelled, [call]);
    // It was on its way.
    harness.deliver(Event::Cri(call, Ok(Reply::Url("http://127.0.0.1:1/x".into()))));
    assert_eq!(harness.people, []);
}

#[test]
fn an_answer_that_comes_together_with_the_clients_end_is_dropped() {
    let mut harness = running();
    harness.opens(exec("p-gw", "m"));
    let (call, _) = harness.asked();
    harness.agent.handle(harness.now, Event::StreamClosed(ID));
    harness.deliver(Event::Cri(call, Ok(Reply::Url("http://127.0.0.1:1/x".into()))));
    assert_eq!((harness.people.len(), harness.cancelled.len()), (0, 0));
}

#[test]
fn without_a_runtime_logs_are_shown_and_commands_refused() {
    let mut harness = running();
    harness.deliver(Event::RuntimeDown { cause: "connection reset".to_owned() });
    harness.opens(logs("p-gw", "m", LogOptions::default()));
    assert!(matches!(harness.told(), StreamAnswer::Logs { .. }));
    let text = "the container runtime is not usable: connection reset".to_owned();
    assert_eq!(harness.refused(exec("p-gw", "m")), (RefusalKind::Unavailable, text));
}

#[test]
fn the_runtimes_refusals_keep_their_texts_and_have_statuses() {
    let refusal = |code| CallError::Refused { code, message: "no".to_owned() };
    for (error, kind, text) in [
        (refusal(Code::NotFound), RefusalKind::NotFound, "rpc error: code = NotFound desc = no"),
        (
            refusal(Code::ResourceExhausted),
            RefusalKind::TooMany,
            "rpc error: code = ResourceExhausted desc = no",
        ),
        (refusal(Code::Unknown), RefusalKind::Internal, "rpc error: code = Unknown desc = no"),
        (
            CallError::Lost(Lost::Connection),
            RefusalKind::Internal,
            "the connection to the runtime was lost",
        ),
    ] {
        let mut harness = running();
        harness.opens(exec("p-gw", "m"));
        let (call, _) = harness.asked();
        harness.deliver(Event::Cri(call, Err(error)));
        let StreamAnswer::Refused(refusal) = harness.told() else { panic!("{text}") };
        assert_eq!((refusal.kind, &*refusal.text), (kind, text));
    }
}

#[test]
fn calls_for_people_have_a_bound_and_a_deadline() {
    let mut harness = running();
    let now = harness.now;
    for id in 0..=STREAM_CALLS_MAX as u64 {
        let request = Box::new(exec("p-gw", "m"));
        harness.agent.handle(now, Event::StreamOpened(StreamId(10 + id), request));
    }
    let mut out = edged::agent::event::Out::default();
    harness.agent.step(now, &mut out);
    let (mut calls, mut refusals) = (0, Vec::new());
    for action in out.actions {
        match action {
            Action::Cri { deadline, request: Request::Streaming(_), .. } => {
                assert_eq!(deadline, now.boot.plus_ms(STREAM_CALL_MS));
                calls += 1;
            }
            Action::Stream(id, StreamAnswer::Refused(refusal)) => refusals.push((id, refusal.kind)),
            _ => {}
        }
    }
    assert_eq!(calls, STREAM_CALLS_MAX);
    assert_eq!(refusals, [(StreamId(10 + STREAM_CALLS_MAX as u64), RefusalKind::TooMany)]);
}

#[test]
fn a_command_for_a_client_has_seconds_and_comes_back_whole() {
    let mut harness = running();
    let command = vec!["ls".to_owned(), "/".to_owned()];
    harness.opens(StreamRequest::Command { pod: named("p-gw"), container: "m".into(), command });
    let timeout = harness.open.iter().find_map(|(_, request)| match request {
        Request::ExecSync { timeout_s, .. } => Some(*timeout_s),
        _ => None,
    });
    assert_eq!(timeout, Some(COMMAND_S));
    harness.exec("c2 ls /", 3, "out");
    let StreamAnswer::Command(done) = harness.told() else { panic!("of a command") };
    assert_eq!((done.exit_code, &*done.output, done.errors_at), (3, "out", 3));
    let nobody = StreamRequest::Command {
        pod: named("nobody"),
        container: "m".into(),
        command: vec!["ls".to_owned()],
    };
    let (kind, text) = harness.refused(nobody);
    assert_eq!((kind, &*text), (RefusalKind::NotFound, "pod does not exist"));
}

#[test]
fn a_command_that_is_run_returns_its_output_or_why_not() {
    let long = "x".repeat(COMMAND_OUTPUT_BYTES_MAX);
    let cut = format!(
        "got more than {COMMAND_OUTPUT_BYTES_MAX} bytes of output, expected less: use exec"
    );
    for (code, output, want) in [
        (0, "hello", Ok("hello")),
        (3, "no", Err("command terminated with exit code 3: no")),
        (0, &*long, Err(&*cut)),
    ] {
        let mut harness = running();
        let command = vec!["echo".to_owned(), "hello".to_owned()];
        harness.opens(StreamRequest::Run { pod: named("p-gw"), container: "m".into(), command });
        harness.exec("c2 echo hello", code, output);
        match (harness.told(), want) {
            (StreamAnswer::Output(got), Ok(want)) => assert_eq!(&*got, want),
            (StreamAnswer::Refused(got), Err(want)) => assert_eq!(got.text, want),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn usage_is_that_of_containers_that_run() {
    let mut harness = running();
    harness.opens(StreamRequest::Usage);
    let (call, asked) = harness.asked();
    assert_eq!(asked, StreamingCall::ListContainerStats);
    let usage = |id: &str, uid: &str| ContainerUsage {
        id: id.into(),
        uid: uid.into(),
        name: "m".into(),
        memory: Some(1),
        ..ContainerUsage::default()
    };
    let all = vec![usage("c2", "u1"), usage("c1", "u1"), usage("c9", "stranger")];
    let reply = Reply::HousekeepingCall(HousekeepingReply::Containers(all));
    harness.deliver(Event::Cri(call, Ok(reply)));
    let StreamAnswer::Usage(shown) = harness.told() else { panic!("usage") };
    assert!(shown.iter().all(|it| it.started_at.is_some() && it.pod_started_at.is_some()));
    let shown: Vec<_> = shown.iter().map(|it| (&*it.pod, &*it.namespace, &*it.usage.id)).collect();
    assert_eq!(shown, [("p-gw", "default", "c2")]);
}

#[test]
fn of_two_pods_with_one_name_the_one_that_runs_is_meant() {
    let mut harness = running();
    let other = pod(MAIN).replace("\"u1\"", "\"u2\"");
    harness.manifests(&[&other]);
    assert_eq!(harness.containers[0].state, ContainerState::Running);
    harness.opens(exec("p-gw", "m"));
    let (_, asked) = harness.asked();
    let StreamingCall::Exec { container, .. } = asked else { panic!("{asked:?}") };
    assert_eq!(&*container.0, "c2", "the first one is still being stopped");
}

#[test]
fn nobody_is_answered_after_sigterm() {
    let mut harness = running();
    harness.deliver(Event::Stop);
    harness.opens(exec("p-gw", "m"));
    assert_eq!(harness.people, []);
    assert!(harness.exited);
}

#[cfg(feature = "cloud")]
mod tunnel {
    use edged::agent::event::{Action, Event};
    use edged::limits::{
        TUNNEL_BACKOFF_MAX_MS, TUNNEL_BACKOFF_MIN_MS, TUNNEL_CALM_MS, TUNNEL_FIRST_PONG_MS,
        TUNNEL_PING_MS, TUNNEL_PONG_MS,
    };
    use edged::model::link::{Cause, Session, Validity};
    use edged::model::settings::{CloudSettings, TunnelSettings};

    use crate::harness::Harness;

    fn switched_on() -> Harness {
        Harness::with(|config| {
            config.tunnel = Some(TunnelSettings { handshake_timeout_ms: 7_000 });
        })
    }

    fn refused() -> Cause {
        Cause::Refused("cannot connect".to_owned())
    }

    impl Harness {
        /// The requests about the tunnel since the last call.
        fn tunnel(&mut self) -> Vec<Action> {
            let is_of_it = |action: &Action| {
                matches!(
                    action,
                    Action::DialTunnel { .. } | Action::PingTunnel(_) | Action::HangupTunnel(_)
                )
            };
            self.cloud.drain(..).filter(is_of_it).collect()
        }

        /// Delivers an event, and lets no time pass.
        fn happens(&mut self, event: Event) {
            self.agent.handle(self.now, event);
            self.step();
        }

        #[track_caller]
        fn dials(&mut self) -> Session {
            match &self.tunnel()[..] {
                [Action::DialTunnel { session, .. }] => *session,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn without_it_nothing_is_dialled() {
        let mut harness = Harness::new();
        harness.pass(600_000);
        assert!(harness.tunnel().is_empty());
    }

    #[test]
    fn it_is_dialled_with_the_nodes_address_and_a_deadline() {
        let mut harness = switched_on();
        let first = harness.dials();
        harness.happens(Event::TunnelDown(first, refused()));
        harness.pass(2 * TUNNEL_BACKOFF_MIN_MS);
        match &harness.tunnel()[..] {
            [Action::DialTunnel { ip, deadline, .. }] => {
                assert_eq!(ip, "192.0.2.1");
                assert!(deadline.since_ms(harness.now.boot) <= 7_000);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_waits_between_dials_grow_to_their_bound_and_are_short_after_calm() {
        let mut harness = switched_on();
        let mut session = harness.dials();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let began = harness.now.boot;
            harness.happens(Event::TunnelDown(session, refused()));
            harness.pass(TUNNEL_BACKOFF_MAX_MS * 3 / 2);
            let Some(Action::DialTunnel { session: next, deadline, .. }) = harness.tunnel().pop()
            else {
                panic!("it is dialled")
            };
            waits.push(deadline.since_ms(began) - 7_000);
            session = next;
        }
        assert!((TUNNEL_BACKOFF_MIN_MS..=TUNNEL_BACKOFF_MIN_MS * 3 / 2).contains(&waits[0]));
        assert!(waits.iter().all(|wait| *wait <= TUNNEL_BACKOFF_MAX_MS * 3 / 2), "{waits:?}");
        assert!(*waits.last().expect("some") >= TUNNEL_BACKOFF_MAX_MS, "{waits:?}");
        let lines =
            harness.warnings.iter().filter(|line| line.contains("no stream tunnel")).count();
        assert_eq!(lines, 1, "the same trouble is logged once");
        harness.happens(Event::TunnelUp(session));
        harness.happens(Event::TunnelActive(session));
        for _ in 0..10 {
            harness.pass(TUNNEL_CALM_MS / 10);
            harness.happens(Event::TunnelActive(session));
        }
        harness.tunnel();
        harness.happens(Event::TunnelDown(session, refused()));
        harness.pass(TUNNEL_BACKOFF_MIN_MS * 3 / 2);
        harness.dials();
    }

    #[test]
    fn a_node_without_a_certificate_dials_when_it_has_joined() {
        let mut harness = Harness::with(|config| {
            config.tunnel = Some(TunnelSettings { handshake_timeout_ms: 7_000 });
            config.cloud = Some(CloudSettings::default());
        });
        let mut tunnel = harness.dials();
        for _ in 0..8 {
            let cause = Cause::NotJoined("no certificate yet".to_owned());
            harness.happens(Event::TunnelDown(tunnel, cause));
            harness.pass(TUNNEL_BACKOFF_MAX_MS * 3 / 2);
            tunnel = harness.dials();
        }
        let of_tunnel = |lines: &[String]| {
            lines.iter().filter(|line| line.contains("no stream tunnel")).count()
        };
        let logged = (of_tunnel(&harness.log), of_tunnel(&harness.warnings));
        assert_eq!(logged, (1, 0), "{:?}", harness.log);
        harness.happens(Event::TunnelDown(tunnel, Cause::NotJoined(String::new())));
        let validity = Validity { not_before_s: 0, not_after_s: i64::MAX };
        harness.happens(Event::LinkUp(Session(1), validity));
        let tunnel = harness.dials();
        // From then on the two are independent.
        harness.happens(Event::TunnelDown(tunnel, refused()));
        harness.happens(Event::LinkUp(Session(2), validity));
        assert!(harness.tunnel().is_empty(), "not before its time");
    }

    #[test]
    fn a_silent_tunnel_is_pinged_and_then_given_up() {
        let mut harness = switched_on();
        let session = harness.dials();
        harness.happens(Event::TunnelUp(session));
        harness.pass(TUNNEL_PING_MS - 1);
        assert!(harness.tunnel().is_empty(), "it may be silent so long");
        harness.pass(1);
        assert!(matches!(harness.tunnel()[..], [Action::PingTunnel(pinged)] if pinged == session));
        // CloudCore does not read in its first two minutes.
        harness.pass(TUNNEL_FIRST_PONG_MS - TUNNEL_PING_MS - 1);
        assert!(harness.tunnel().is_empty());
        harness.happens(Event::TunnelActive(session));
        harness.pass(TUNNEL_PING_MS);
        assert!(matches!(harness.tunnel()[..], [Action::PingTunnel(_)]));
        harness.pass(TUNNEL_PONG_MS - 1);
        assert!(harness.tunnel().is_empty());
        harness.pass(1);
        assert!(matches!(harness.tunnel()[..], [Action::HangupTunnel(hung)] if hung == session));
        let trouble = harness.agent.overview(harness.now).tunnel.and_then(|it| it.trouble);
        assert_eq!(trouble.as_deref(), Some("no sign of life for 30 s"));
        harness.pass(2 * TUNNEL_BACKOFF_MIN_MS);
        harness.dials();
    }

    #[test]
    fn events_of_an_older_tunnel_change_nothing() {
        let mut harness = switched_on();
        let first = harness.dials();
        harness.happens(Event::TunnelDown(first, refused()));
        harness.pass(2 * TUNNEL_BACKOFF_MIN_MS);
        let second = harness.dials();
        harness.happens(Event::TunnelUp(first));
        harness.happens(Event::TunnelDown(first, refused()));
        harness.happens(Event::TunnelUp(second));
        let overview = harness.agent.overview(harness.now).tunnel.expect("it is on");
        assert_eq!((overview.up_ms, overview.trouble), (Some(0), None));
        harness.happens(Event::TunnelDown(first, refused()));
        assert!(harness.agent.overview(harness.now).tunnel.expect("it is on").up_ms.is_some());
        // Nor is what comes from it a sign of life of the newer one.
        harness.pass(TUNNEL_PING_MS - 1);
        harness.happens(Event::TunnelActive(first));
        harness.pass(1);
        assert!(matches!(harness.tunnel()[..], [Action::PingTunnel(pinged)] if pinged == second));
    }
}
