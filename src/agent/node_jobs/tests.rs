//! Jobs against runtime, store and cloud that answer as a test says.

mod upgrade;

use std::sync::Arc;

use super::*;
use crate::agent::calls::{Class, Outcome, Owner};
use crate::agent::image;
use crate::agent::time::Wall;
use crate::limits::{
    NODE_JOB_BUDGET_MS, NODE_JOB_REPORT_MS, NODE_JOB_RETRIES_MAX, NODE_JOB_RETRY_MS,
    NODE_JOB_SECRET_MS, NODE_JOB_USAGE_MAX,
};
use crate::model::cri::{Code, Image, ImageUser, Lost, Request, SandboxConfig};
use crate::model::job::{JobSpec as SystemJob, NodeUsage};
use crate::model::node_job::PrePullSpec;
use crate::model::object::Object;
use crate::model::tree;

/// The core with what it needs, and the requests that it has made.
struct World {
    now: Now,
    core: NodeJobs,
    calls: Calls,
    images: Images,
    objects: Objects,
    jobs: Jobs,
    recorder: Recorder,
    out: Out,
}

/// The number of each report in its session.
const SENT: u64 = 7;

const START: Now = Now { boot: Instant(1_000), wall: Some(Wall(1_795_196_779_000)) };

impl World {
    fn new() -> Self {
        let settings = image::Settings { parallel_max: 1, per_second: 1, burst: 100 };
        Self {
            now: START,
            core: NodeJobs::new("gw", &[]),
            calls: Calls::new(settings.parallel_max),
            images: Images::new(settings, START),
            objects: Objects::default(),
            jobs: Jobs::default(),
            recorder: Recorder::default(),
            out: Out::default(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.boot = self.now.boot.plus_ms(ms);
        self.now.wall = self.now.wall.map(|wall| Wall(wall.0 + ms as i64));
    }

    fn request(&mut self, action: JobAction, spec: PrePullSpec) -> Option<JobReport> {
        let spec = Ok(JobSpec::PrePull(spec));
        self.core.request(self.now, JobRequest { key: key("a"), action, spec })
    }

    /// Everything that is due is saved.
    fn save(&mut self) -> usize {
        let mut rows = 0;
        let refused = self.core.save_rows(self.now, |_| {
            rows += 1;
            Ok(())
        });
        assert!(refused.is_empty(), "{refused:?}");
        self.core.rows_saved(|_| false);
        rows
    }

    /// Whether a pull was given up.
    fn step(&mut self) -> bool {
        let Self { now, core, calls, images, objects, jobs, recorder, out } = self;
        let mut context =
            JobsContext { calls, images, objects, jobs, recorder, image_fs: Some("/i"), out };
        core.step(*now, &mut context)
    }

    /// Saves and steps; the one call that was made, if there was one.
    fn next_call(&mut self) -> Option<(CallId, Request)> {
        self.save();
        self.step();
        let mut calls = self.out.actions.drain(..).filter_map(|action| match action {
            Action::Cri { call, request, .. } => Some((call, request)),
            _ => None,
        });
        let call = calls.next();
        assert!(calls.next().is_none(), "two calls at a time");
        call
    }

    /// The image of the status that is asked for next, which is answered so.
    fn status(&mut self, present: bool) -> Box<str> {
        let (call, request) = self.next_call().expect("a call");
        let Request::ImageStatus(image) = request else { panic!("{request:?}") };
        let image_found =
            Image { id: "sha256:00".into(), size: 1, digests: Vec::new(), user: ImageUser::Unset };
        let reply = present.then(|| Box::new(image_found));
        self.answer(call, Ok(Reply::Image(reply)));
        image
    }

    /// Image and user of the pull that is begun next.
    fn pull(&mut self) -> (CallId, Box<str>, Option<Box<str>>) {
        let (call, request) = self.next_call().expect("a call");
        let Request::PullImage { image, auth, sandbox_config } = request else {
            panic!("{request:?}")
        };
        assert_eq!(*sandbox_config, SandboxConfig::default());
        (call, image, auth.map(|auth| auth.username))
    }

    fn answer(&mut self, call: CallId, result: Result<Reply, CallError>) {
        let outcome = Outcome::Answered;
        let (owner, _) = self.calls.end(self.now, call, outcome).expect("it is under way");
        assert_eq!(owner, Owner::NodeJobs);
        self.core.answer(self.now.boot, call, result);
    }

    /// Action, result and images of the reports that may be sent, which are handed over.
    fn reports(&mut self) -> Vec<(JobAction, Result<(), Box<str>>, JobDetail)> {
        self.save();
        let (mut all, mut now) = (Vec::new(), self.now);
        while let Some(at) = self.core.report_at(now) {
            now.boot = at;
            let (run, report) = self.core.next_report(now).expect("it is due");
            assert!(report.at.is_some(), "{report:?}");
            all.push((report.action, report.result, report.detail));
            self.core.sent(now.boot, run, SENT);
        }
        all
    }

    fn actions(&mut self) -> Vec<JobAction> {
        self.reports().into_iter().map(|(action, ..)| action).collect()
    }

    fn secret(&mut self, r#type: &str, config: &str) {
        let data = crate::model::base64::encode(config.as_bytes());
        let text = format!(
            r#"{{"metadata":{{"namespace":"ns","name":"s"}},"type":"{type}",
                "data":{{".dockerconfigjson":"{data}"}}}}"#
        );
        let secret = Arc::new(Object::Secret(tree::of_json(&text).expect("a secret")));
        self.objects.take([secret].into_iter(), &mut self.out);
    }
}

fn key(name: &str) -> JobKey {
    let (generation, kind) = (Generation::V1Alpha2, JobKind::PrePull);
    JobKey { generation, kind, name: name.into(), node: "gw".into() }
}

fn spec(images: &[&str]) -> PrePullSpec {
    let images = images.iter().map(|image| Box::from(*image)).collect();
    PrePullSpec { images, ..PrePullSpec::default() }
}

fn refused(message: &str) -> Result<Reply, CallError> {
    Err(CallError::Refused { code: Code::Unknown, message: message.to_owned() })
}

fn pulled() -> Reply {
    Reply::Pulled("sha256:00".into())
}

fn results(all: &[(&str, Result<(), &str>)]) -> JobDetail {
    let of = |(image, result): &(&str, Result<(), &str>)| ImageResult {
        image: (*image).into(),
        result: result.map_err(Box::from),
    };
    JobDetail::Images(all.iter().map(of).collect())
}

#[test]
fn a_job_pulls_what_is_absent_and_reports_each_image() {
    let mut world = World::new();
    assert_eq!(world.request(JobAction::Check, spec(&["a", "b:1"])), None);
    assert!(world.next_call().is_none(), "the check has nothing to do");
    assert_eq!(&*world.status(true), "a:latest");
    assert_eq!(&*world.status(false), "b:1");
    let (call, image, user) = world.pull();
    assert_eq!((&*image, user), ("b:1", None));
    world.answer(call, Ok(pulled()));
    assert!(world.next_call().is_none());
    let detail = results(&[("a", Ok(())), ("b:1", Ok(()))]);
    let expected =
        [(JobAction::Check, Ok(()), JobDetail::Nothing), (JobAction::Pull, Ok(()), detail)];
    assert_eq!(world.reports(), expected);
    assert_eq!(world.core.overview()[0].images, (2, 2));
    assert_eq!(world.core.metrics(), JobMetrics { succeeded: 1, ..JobMetrics::default() });
}

#[test]
fn nothing_is_done_or_reported_before_it_is_durable() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    assert!(!world.step() && world.core.run.is_none());
    world.core.save_rows(world.now, |_| Ok(()));
    assert!(!world.step() && world.core.run.is_none(), "it is being saved");
    world.core.rows_saved(|_| true);
    assert!(!world.step() && world.core.run.is_none(), "another save has ended");
    world.core.rows_saved(|_| false);
    world.step();
    assert!(world.core.next_report(world.now).is_none(), "the check is done and not saved");
    assert_eq!(world.actions(), [JobAction::Check]);
}

#[test]
fn the_reports_of_a_job_have_a_pause_between_them() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(true);
    world.next_call();
    world.save();
    let sends = |world: &mut World| {
        let (run, report) = world.core.next_report(world.now)?;
        world.core.sent(world.now.boot, run, SENT);
        Some(report.action)
    };
    assert_eq!(sends(&mut world), Some(JobAction::Check));
    let pull_at = world.now.boot.plus_ms(NODE_JOB_REPORT_MS);
    assert_eq!(world.core.report_at(world.now), Some(pull_at));
    world.pass(NODE_JOB_REPORT_MS - 1);
    assert_eq!(sends(&mut world), None);
    world.pass(1);
    assert_eq!(sends(&mut world), Some(JobAction::Pull));
    assert_eq!(world.core.report_at(world.now), None);
    // Also when they are sent again.
    world.core.link_up();
    assert_eq!(world.core.report_at(world.now), Some(world.now.boot.plus_ms(NODE_JOB_REPORT_MS)));
}

#[test]
fn what_failed_is_tried_as_often_as_the_job_says() {
    let mut world = World::new();
    let retry_times = i32::MAX;
    world.request(JobAction::Check, PrePullSpec { retry_times, ..spec(&["a", "b"]) });
    world.next_call();
    let mut tries = 0;
    while world.core.metrics().failed == 0 {
        if tries == 0 {
            world.status(true);
        }
        world.status(false);
        let (call, image, _) = world.pull();
        assert_eq!(&*image, "b:latest", "a is there");
        world.answer(call, refused("no such image"));
        assert!(world.next_call().is_none(), "not at once");
        tries += 1;
        world.pass(NODE_JOB_RETRY_MS - 1);
        assert!(world.next_call().is_none(), "not yet");
        world.pass(1);
    }
    assert_eq!(tries, NODE_JOB_RETRIES_MAX + 1);
    let why = "1 of 2 images could not be pulled: b: no such image";
    let detail = results(&[("a", Ok(())), ("b", Err("b: no such image"))]);
    assert_eq!(world.reports()[1], (JobAction::Pull, Err(why.into()), detail));
}

#[test]
fn a_broken_connection_is_no_try() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(false);
    let (call, ..) = world.pull();
    world.answer(call, Err(CallError::Lost(Lost::Connection)));
    assert!(world.next_call().is_none());
    world.pass(NODE_JOB_RETRY_MS);
    world.status(false);
    let (call, ..) = world.pull();
    world.answer(call, Err(CallError::Lost(Lost::Deadline)));
    world.next_call();
    assert_eq!(world.core.metrics().failed, 1, "a pull that took too long is one");
}

#[test]
fn the_credentials_are_those_of_the_registry_or_of_the_flat_form() {
    let image = "registry.example/team/app:1";
    let docker = "kubernetes.io/dockerconfigjson";
    let entry = r#"{"auths":{"registry.example":{"username":"u","password":"p"},
        "other":{"username":"o","password":"p"}}}"#;
    let flat = r#"{"username":"f","password":"p"}"#;
    for (kind, config, user) in [
        (docker, entry, Some("u")),
        (docker, flat, Some("f")),
        ("Opaque", flat, Some("f")),
        (docker, r#"{"auths":{}}"#, None),
    ] {
        let mut world = World::new();
        world.secret(kind, config);
        let image_secret = "ns/s".into();
        world.request(JobAction::Check, PrePullSpec { image_secret, ..spec(&[image]) });
        world.next_call();
        world.status(false);
        assert_eq!(world.pull().2.as_deref(), user, "{config}");
    }
}

#[test]
fn a_secret_is_waited_for_and_missed() {
    let mut world = World::new();
    let image_secret = "ns/s".into();
    world.request(JobAction::Check, PrePullSpec { image_secret, ..spec(&["a"]) });
    world.next_call();
    world.status(false);
    assert!(world.next_call().is_none());
    assert_eq!(world.core.overview()[0].trouble, "waits for the secret ns/s");
    let stored = &world.core.jobs[0].stored;
    assert_eq!(NodeJobs::image_secret(stored), Some(("ns", "s")));
    assert_eq!(world.core.wake_at(), Some(START.boot.plus_ms(NODE_JOB_SECRET_MS)));
    world.pass(NODE_JOB_SECRET_MS);
    world.next_call();
    let why = "1 of 1 images could not be pulled: secret ns/s: not found";
    assert_eq!(world.reports()[1].1, Err(why.into()));
    assert_eq!(NodeJobs::image_secret(&world.core.jobs[0].stored), None);
}

#[test]
fn a_pull_gives_way_to_a_pod_and_is_begun_again() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(false);
    world.pull();
    world.calls.begin_pods();
    world.calls.wait_for_room(Class::Work);
    assert!(!world.step(), "another kind of room");
    world.calls.wait_for_room(Class::Pull);
    assert!(world.step());
    assert!(matches!(world.out.actions[..], [Action::CancelCri(_)]), "{:?}", world.out);
    // The pod's.
    let sandbox_config = Box::new(SandboxConfig::default());
    let pull = Request::PullImage { image: "p".into(), auth: None, sandbox_config };
    let owner = Owner::Pod("uid".into());
    let pod = world.calls.begin(world.now, owner, pull, &mut Out::default());
    world.calls.begin_pods();
    world.out.actions.clear();
    world.status(false);
    assert!(world.next_call().is_none(), "there is no room");
    world.calls.end(world.now, pod, Outcome::Answered);
    world.calls.wait_for_room(Class::Pull);
    assert!(world.next_call().is_none(), "a pod waits for it");
    world.calls.begin_pods();
    let (call, ..) = world.pull();
    world.answer(call, Ok(pulled()));
    world.next_call();
    assert_eq!(world.core.metrics().succeeded, 1);
}

#[test]
fn pulls_of_jobs_are_in_the_budget_of_the_node() {
    let mut world = World::new();
    while world.images.may_pull(world.now) {}
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(false);
    assert!(world.next_call().is_none());
    world.pass(NODE_JOB_BUDGET_MS);
    world.status(false);
    world.pull();
}

#[test]
fn checks_compare_with_the_most_that_may_be_in_use() {
    let most = NODE_JOB_USAGE_MAX;
    let usage = |cpu, memory, disk| NodeUsage { cpu, memory, disk };
    let all = ["cpu", "mem", "disk"];
    for (items, measured, expected) in [
        (&all[..], usage(Some(most), Some(most), Some(0)), None),
        (
            &all[..],
            usage(Some(0), Some(most + 1), Some(0)),
            Some(
                "current memory usage is 80.01, \
            which exceeds the maximum allowed usage 80.00",
            ),
        ),
        (
            &all[2..],
            usage(Some(10_000), None, Some(10_000)),
            Some(
                "current disk usage is 100.00, \
            which exceeds the maximum allowed usage 80.00",
            ),
        ),
        (&all[..1], usage(None, None, None), Some("the cpu usage is not known")),
    ] {
        let mut world = World::new();
        let check_items = items.iter().map(|item| Box::from(*item)).collect();
        world.request(JobAction::Check, PrePullSpec { check_items, ..spec(&["a"]) });
        world.save();
        world.step();
        let job = world.out.actions.iter().find_map(|action| match action {
            Action::Job { job, spec: SystemJob::MeasureNode { image_fs }, .. } => {
                assert_eq!(image_fs.as_deref(), Some("/i"));
                Some(*job)
            }
            _ => None,
        });
        let job = job.expect("a measurement");
        world.jobs.end(job);
        world.core.job_done(job, Ok(JobReply::NodeUsage(measured)));
        world.step();
        let result = expected.map_or(Ok(()), |why| Err(Box::from(why)));
        assert_eq!(world.reports(), [(JobAction::Check, result, JobDetail::Nothing)]);
        assert_eq!(world.core.metrics().failed, u64::from(expected.is_some()));
    }
    let mut world = World::new();
    let check_items = vec!["gpu".into()];
    world.request(JobAction::Check, PrePullSpec { check_items, ..spec(&["a"]) });
    world.next_call();
    assert_eq!(world.reports()[0].1, Err("check item gpu not support".into()));
}

#[test]
fn a_report_is_repeated_until_a_later_request_is_answered() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(true);
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Check, JobAction::Pull]);
    world.core.confirm(SENT);
    assert_eq!(world.core.overview()[0].unconfirmed, 2, "the answer to an earlier request");
    world.core.link_up();
    assert_eq!(world.actions(), [JobAction::Check, JobAction::Pull]);
    world.core.confirm(SENT + 1);
    assert_eq!(world.core.overview()[0].unconfirmed, 0);
    assert_eq!(world.save(), 1);
    world.core.link_up();
    assert_eq!(world.actions(), []);
}

#[test]
fn what_is_asked_for_twice_is_done_once_and_reported_twice() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Check]);
    assert_eq!(world.request(JobAction::Check, spec(&["a"])), None);
    assert_eq!(world.actions(), [JobAction::Check]);
    world.status(true);
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Pull]);
    world.request(JobAction::Check, spec(&["a"]));
    assert_eq!(world.actions(), [JobAction::Check, JobAction::Pull]);
    assert!(world.next_call().is_none(), "it is done");
    // Once the cloud has the result, the same name is another try.
    world.core.confirm(SENT + 1);
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Check]);
    world.status(false);
}

#[test]
fn another_content_under_the_same_name_replaces_the_job() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(false);
    let (call, ..) = world.pull();
    world.request(JobAction::Check, spec(&["b"]));
    world.step();
    assert!(matches!(world.out.actions[0], Action::CancelCri(cancelled) if cancelled == call));
    world.out.actions.clear();
    world.next_call();
    assert_eq!(&*world.status(true), "b:latest");
}

#[test]
fn the_cloud_of_v1alpha1_asks_for_each_stage() {
    let mut world = World::new();
    let key = JobKey { generation: Generation::V1Alpha1, ..key("a") };
    let pull = || Ok(JobSpec::PrePull(spec(&["a"])));
    let checks = || Ok(JobSpec::Checks(Vec::new()));
    let ask = |world: &mut World, action, spec| {
        let request = JobRequest { key: key.clone(), action, spec };
        assert_eq!(world.core.request(world.now, request), None);
    };
    ask(&mut world, JobAction::Init, pull());
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Init]);
    assert!(world.next_call().is_none(), "nothing by itself");
    ask(&mut world, JobAction::Check, checks());
    let kept = world.core.take_kept_images().expect("the job has changed");
    assert_eq!(kept.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a"]);
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Check]);
    ask(&mut world, JobAction::Pull, pull());
    ask(&mut world, JobAction::Pull, pull());
    world.status(true);
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Pull]);
    assert_eq!(world.core.overview()[0].stage, "finished");
    ask(&mut world, JobAction::Pull, pull());
    assert_eq!(world.actions(), [JobAction::Pull], "it did not come through");
    // After a restart of the cloud.
    ask(&mut world, JobAction::Init, pull());
    world.next_call();
    assert_eq!(world.actions()[..1], [JobAction::Init]);
}

#[test]
fn jobs_survive_a_restart() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    world.status(false);
    let stored: Vec<StoredJob> = world.core.jobs.iter().map(|job| job.stored.clone()).collect();
    let mut world = World::new();
    world.core.load(world.now.boot, stored.into_iter());
    world.status(false);
    let (call, ..) = world.pull();
    world.answer(call, Ok(pulled()));
    world.next_call();
    assert_eq!(world.actions(), [JobAction::Check, JobAction::Pull]);
    let other = StoredJob {
        key: JobKey { node: "other".into(), ..key("b") },
        ..world.core.jobs[0].stored.clone()
    };
    let mut world = World::new();
    world.core.load(world.now.boot, [other].into_iter());
    assert!(world.core.jobs.is_empty(), "the node has another name now");
}

#[test]
fn what_cannot_be_done_is_refused_at_once() {
    let mut world = World::new();
    let refused = |report: Option<JobReport>| {
        report.expect("a refusal").result.expect_err("a refusal").into_string()
    };
    let key_of_config = JobKey { kind: JobKind::ConfigUpdate, ..key("a") };
    let spec_of_config = Ok(JobSpec::ConfigUpdate);
    let action = JobAction::Check;
    let request = JobRequest { key: key_of_config, action, spec: spec_of_config };
    let expected = "edged does not change its configuration by jobs";
    assert!(refused(world.core.request(world.now, request)).starts_with(expected));
    let node = JobKey { node: "other".into(), ..key("a") };
    let request =
        JobRequest { key: node, action: JobAction::Check, spec: Ok(JobSpec::PrePull(spec(&[]))) };
    assert_eq!(refused(world.core.request(world.now, request)), "this node is gw");
    let request = JobRequest { key: key("a"), action: JobAction::Check, spec: Err("no".into()) };
    assert_eq!(refused(world.core.request(world.now, request)), "no");
    assert_eq!(world.core.metrics().refused, 3);
    let why = "x".repeat(2 * NODE_JOB_REASON_BYTES_MAX);
    let request = JobRequest { key: key("a"), action: JobAction::Check, spec: Err(why.into()) };
    assert_eq!(refused(world.core.request(world.now, request)).len(), NODE_JOB_REASON_BYTES_MAX);
    world.request(JobAction::Check, spec(&["a"]));
    let reports = world.core.save_rows(world.now, |_| Err(NotSaved::Refused("full".to_owned())));
    let why = reports[0].result.clone().expect_err("a refusal");
    assert_eq!(&*why, "it cannot be stored: full");
    assert!(world.core.jobs.is_empty());
}

#[test]
fn only_so_many_jobs_are_kept_and_finished_ones_go_first() {
    let mut world = World::new();
    let ask = |world: &mut World, name: &str| {
        let (key, spec) = (key(name), Ok(JobSpec::PrePull(spec(&["a"]))));
        world.core.request(world.now, JobRequest { key, action: JobAction::Check, spec })
    };
    for number in 0..NODE_JOBS_MAX {
        assert_eq!(ask(&mut world, &format!("j{number}")), None);
    }
    assert!(ask(&mut world, "more").is_some());
    // The first one ends.
    world.next_call();
    world.status(true);
    world.next_call();
    assert!(ask(&mut world, "more").is_some(), "its report may be lost");
    world.reports();
    world.core.confirm(SENT + 1);
    assert_eq!(ask(&mut world, "more"), None);
    let mut deleted = Vec::new();
    world.core.delete_rows(|key| {
        deleted.push(key.name.clone());
        true
    });
    assert_eq!(deleted, ["j0".into()]);
}

#[test]
fn images_are_kept_for_some_days() {
    let mut world = World::new();
    world.request(JobAction::Check, spec(&["a"]));
    assert_eq!(world.core.take_kept_images(), Some(vec![("a".into(), START.boot)]));
    assert_eq!(world.core.take_kept_images(), None, "as before");
    world.next_call();
    world.status(true);
    world.next_call();
    world.reports();
    world.core.confirm(SENT + 1);
    world.pass(NODE_JOB_KEPT_MS);
    world.next_call();
    assert_eq!(world.core.take_kept_images(), None);
    world.pass(1);
    world.next_call();
    assert_eq!(world.core.take_kept_images(), Some(Vec::new()));
}

#[test]
fn without_a_clock_a_report_waits() {
    let mut world = World::new();
    world.now.wall = None;
    world.request(JobAction::Check, spec(&["a"]));
    world.next_call();
    assert_eq!(world.actions(), []);
    world.now.wall = START.wall;
    assert_eq!(world.actions(), [JobAction::Check]);
}
