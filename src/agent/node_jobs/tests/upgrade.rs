//! Upgrades of edged, whose trials go as a test says, and power cuts between their steps.

use super::*;
use crate::agent::node_jobs::upgrade::{VERSION, image_of};
use crate::limits::{
    UPGRADE_LOOK_MS, UPGRADE_LOOKS_MAX, UPGRADE_RESTART_MS, UPGRADE_RETRIES, UPGRADE_SPACE_PROGRAMS,
};
use crate::model::job::{Slots, Trial, UpgradeReply, UpgradeStep};
use crate::model::node_job::{ImageDigests, UpgradeSpec};

const REPOSITORY: &str = "registry.example/edged";
const OLD: &str = "sha256:01";
const NEW: &str = "sha256:02";

fn upgrade() -> UpgradeSpec {
    let (version, image) = ("v9.9.9".into(), REPOSITORY.into());
    UpgradeSpec { version, image, ..UpgradeSpec::default() }
}

fn upgrade_key(generation: Generation) -> JobKey {
    JobKey { generation, kind: JobKind::Upgrade, name: "up".into(), node: "gw".into() }
}

/// What is trusted runs, and there is room.
fn slots(program: &str, trial: Trial) -> Slots {
    let (program_bytes, free_bytes) = (10, 10 * UPGRADE_SPACE_PROGRAMS);
    Slots { program: program.into(), program_bytes, free_bytes, trial, left: "".into() }
}

impl World {
    fn allowing() -> Self {
        Self { core: NodeJobs::new("gw", &[REPOSITORY.into()]), ..Self::new() }
    }

    fn ask(&mut self, generation: Generation, action: JobAction, spec: JobSpec) {
        let request = JobRequest { key: upgrade_key(generation), action, spec: Ok(spec) };
        assert_eq!(self.core.request(self.now, request), None);
    }

    fn upgrade(&mut self, spec: UpgradeSpec) {
        self.ask(Generation::V1Alpha2, JobAction::Check, JobSpec::Upgrade(spec));
    }

    /// Saves and steps until nothing more can be done: an action that ends lets the next one begin.
    fn advance(&mut self) {
        for _ in 0..2 * BEFORE.len() {
            self.save();
            self.step();
        }
    }

    /// The step of an upgrade that is requested next.
    fn job(&mut self) -> Option<(JobId, UpgradeStep)> {
        self.advance();
        self.requested()
    }

    fn requested(&mut self) -> Option<(JobId, UpgradeStep)> {
        let mut jobs = self.out.actions.drain(..).filter_map(|action| match action {
            Action::Job { job, spec: SystemJob::Upgrade(step), .. } => Some((job, step)),
            _ => None,
        });
        let job = jobs.next();
        assert!(jobs.next().is_none(), "two jobs at a time");
        job
    }

    fn done(&mut self, job: JobId, reply: Result<UpgradeReply, &str>) {
        self.jobs.end(job);
        let reply = reply.map(JobReply::Upgrade);
        self.core.job_done(job, reply.map_err(|why| JobError::Failed(why.to_owned())));
    }

    /// The slots are looked at next, and are these.
    fn look(&mut self, slots: Slots) {
        let (job, step) = self.job().expect("a look");
        assert_eq!(step, UpgradeStep::Look);
        self.done(job, Ok(UpgradeReply::Slots(slots)));
    }

    /// Image and digests are those of `NEW`.
    fn find(&mut self, expected: &str) {
        let (call, request) = self.next_call().expect("a call");
        assert_eq!(request, Request::ImageStatus(expected.into()));
        let digests = vec!["registry.example/edged@sha256:aa".into()];
        let image = Image { id: "sha256:0a".into(), size: 1, digests, user: ImageUser::Unset };
        self.answer(call, Ok(Reply::Image(Some(Box::new(image)))));
    }

    /// Until the program is taken; the image is `registry.example/edged:v9.9.9`.
    fn until_taken(&mut self) {
        let name = "registry.example/edged:v9.9.9";
        self.look(slots(OLD, Trial::None));
        assert_eq!(&*self.status(true), name, "the check pulls it");
        self.advance();
        assert_eq!(&*self.status(true), name, "it may have been removed since");
        self.find(name);
        let (job, step) = self.job().expect("a job");
        let digests = vec!["registry.example/edged@sha256:aa".into()];
        let (image_fs, image) = ("/i".into(), "sha256:0a".into());
        assert_eq!(step, UpgradeStep::Take { image_fs, image, digests });
        self.done(job, Ok(UpgradeReply::Taken { program: NEW.into() }));
    }

    /// Until the trial is begun.
    fn until_tried(&mut self) {
        self.until_taken();
        self.look(slots(OLD, Trial::None));
        let (job, step) = self.begin();
        assert_eq!(step, UpgradeStep::Try { program: NEW.into() });
        self.done(job, Ok(UpgradeReply::Begun));
    }

    fn begin(&mut self) -> (JobId, UpgradeStep) {
        self.step();
        assert_eq!(self.requested(), None, "the row does not say so yet");
        self.job().expect("the trial begins")
    }

    /// The power fails, or edged ends: what is left is the rows.
    fn cut(self) -> Self {
        let stored: Vec<_> = self.core.jobs.iter().map(|job| job.stored.clone()).collect();
        let mut next = Self { now: self.now, ..Self::allowing() };
        next.core.load(self.now.boot, stored.into_iter());
        next
    }

    fn results(&mut self) -> Vec<(JobAction, Result<(), String>)> {
        self.advance();
        let reports = self.reports().into_iter();
        reports.map(|(action, result, _)| (action, result.map_err(Into::into))).collect()
    }
}

fn versions(from: &str, to: &str) -> JobDetail {
    JobDetail::Versions { from: from.into(), to: to.into() }
}

/// The reports of the actions before the upgrade itself.
const BEFORE: [JobAction; 3] =
    [JobAction::Check, JobAction::WaitingConfirmation, JobAction::BackUp];

#[test]
fn an_upgrade_is_reported_once_its_trial_is_won() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_tried();
    // The old edged waits for its end.
    world.look(slots(OLD, Trial::Next));
    assert_eq!(world.job(), None);
    assert_eq!(world.actions(), BEFORE, "nobody knows yet what becomes of it");
    let mut world = world.cut();
    world.look(slots(NEW, Trial::Running));
    assert_eq!(world.job(), None);
    assert_eq!(world.core.wake_at(), Some(world.now.boot.plus_ms(UPGRADE_LOOK_MS)));
    assert_eq!(world.core.overview()[0].trouble, "its trial goes on");
    assert_eq!(world.actions(), BEFORE, "the new edged may be left yet");
    world.pass(UPGRADE_LOOK_MS);
    world.look(slots(NEW, Trial::None));
    assert_eq!(world.job(), None);
    let reports = world.reports();
    assert_eq!(reports, [(JobAction::Upgrade, Ok(()), versions(VERSION, "v9.9.9"))]);
    assert_eq!(world.core.metrics().succeeded, 1);
}

#[test]
fn a_trial_that_is_lost_is_reported_by_the_old_edged() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_tried();
    world.actions();
    let mut world = world.cut();
    let left = "was started three times and did not hold";
    world.look(Slots { left: left.into(), ..slots(OLD, Trial::None) });
    assert_eq!(world.job(), None);
    let reports = &world.reports()[BEFORE.len()..];
    assert_eq!(reports[0], (JobAction::Upgrade, Err(left.into()), versions(VERSION, "v9.9.9")));
    // A success would be shown as one of the whole upgrade.
    let back = format!("back on {VERSION}");
    assert_eq!(reports[1], (JobAction::RollBack, Err(back.into()), versions("v9.9.9", VERSION)));
    assert_eq!(reports.len(), 2);
    assert_eq!(world.core.metrics().failed, 1);
}

/// What was announced and what runs say together what has happened.
#[test]
fn a_power_cut_before_the_trial_begins_is_a_failure() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_taken();
    world.look(slots(OLD, Trial::None));
    world.step();
    world.save();
    let mut world = world.cut();
    world.look(slots(OLD, Trial::None));
    assert_eq!(world.job(), None);
    let why = world.results()[BEFORE.len()].clone();
    let expected = "the trial did not begin: power failed".to_owned();
    assert_eq!(why, (JobAction::Upgrade, Err(expected)));
}

#[test]
fn a_power_cut_before_the_row_begins_the_action_again() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_taken();
    world.look(slots(OLD, Trial::None));
    let stored = world.core.jobs[0].stored.clone();
    assert_eq!(stored.upgrade, UpgradeProgress::default());
    let mut world = world.cut();
    assert_eq!(&*world.status(true), "registry.example/edged:v9.9.9");
    assert_eq!(world.core.jobs[0].stored.stage, JobStage::Doing(JobAction::Upgrade));
}

#[test]
fn an_edged_that_was_not_told_to_end_is_told_again() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_tried();
    world.look(slots(OLD, Trial::Next));
    assert_eq!(world.job(), None);
    world.pass(UPGRADE_RESTART_MS);
    world.look(slots(OLD, Trial::Next));
    let (job, step) = world.job().expect("a job");
    assert_eq!(step, UpgradeStep::Restart);
    world.done(job, Ok(UpgradeReply::Begun));
    assert_eq!(world.job(), None);
    assert_eq!(world.core.jobs[0].stored.stage, JobStage::Doing(JobAction::Upgrade));
}

#[test]
fn a_refusal_of_edged_run_is_the_reason() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_taken();
    world.look(slots(OLD, Trial::None));
    let (job, _) = world.begin();
    world.done(job, Err("no space left on device"));
    world.look(slots(OLD, Trial::None));
    assert_eq!(world.job(), None);
    let results = world.results();
    let expected = (JobAction::Upgrade, Err("no space left on device".to_owned()));
    assert_eq!(results[BEFORE.len()], expected);
}

#[test]
fn slots_that_cannot_be_read_end_the_action_after_some_looks() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_tried();
    for _ in 0..=UPGRADE_LOOKS_MAX {
        let (job, _) = world.job().expect("a look");
        world.done(job, Err("no memory"));
        assert_eq!(world.job(), None);
        world.pass(UPGRADE_LOOK_MS);
    }
    let (_, why) = world.results()[BEFORE.len()].clone();
    assert_eq!(why, Err("what runs cannot be read: no memory".to_owned()));
}

#[test]
fn the_edged_that_runs_is_not_tried_again() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_taken();
    world.look(slots(NEW, Trial::None));
    assert_eq!(world.job(), None);
    assert_eq!(world.results()[BEFORE.len()], (JobAction::Upgrade, Ok(())));
}

#[test]
fn a_program_that_cannot_be_taken_changes_nothing() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    let name = "registry.example/edged:v9.9.9";
    world.look(slots(OLD, Trial::None));
    world.status(true);
    world.advance();
    world.status(true);
    world.find(name);
    let (job, _) = world.job().expect("a job");
    let why = "edged.sig is not a signature of it by this key";
    world.done(job, Err(why));
    assert_eq!(world.job(), None);
    let results = world.results();
    assert_eq!(results[3], (JobAction::Upgrade, Err(why.to_owned())));
    let still = format!("still on {VERSION}: no trial has begun");
    assert_eq!(results[4], (JobAction::RollBack, Err(still)));
}

#[test]
fn a_node_that_is_not_ready_says_why() {
    let no_room = Slots { free_bytes: 19, ..slots(OLD, Trial::None) };
    for (slots, expected) in [
        (slots(OLD, Trial::Running), "another upgrade is tried"),
        (slots(OLD, Trial::Next), "another upgrade is tried"),
        (no_room, "got 19 bytes free where edged-run has its slots, expected 20"),
    ] {
        let mut world = World::allowing();
        world.upgrade(upgrade());
        world.look(slots);
        assert_eq!(world.job(), None);
        let results = world.results();
        let [(JobAction::Check, Err(why))] = &results[..] else { panic!("{results:?}") };
        assert!(why.starts_with(expected), "{why}");
    }
    let mut world = World::allowing();
    world.upgrade(UpgradeSpec { check_items: vec!["gpu".into()], ..upgrade() });
    assert_eq!(world.job(), None);
    let expected = (JobAction::Check, Err("check item gpu not support".to_owned()));
    assert_eq!(world.results(), [expected]);
}

#[test]
fn an_image_that_cannot_be_pulled_is_tried_some_times() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.look(slots(OLD, Trial::None));
    for _ in 0..=UPGRADE_RETRIES {
        world.status(false);
        let (call, ..) = world.pull();
        world.answer(call, refused("no route to host"));
        assert_eq!(world.job(), None);
        world.pass(NODE_JOB_RETRY_MS);
    }
    let results = world.results();
    let [(JobAction::Check, Err(why))] = &results[..] else { panic!("{results:?}") };
    assert!(why.ends_with("no route to host"), "{why}");
}

#[test]
fn an_upgrade_waits_for_somebody_and_then_goes_on() {
    let mut world = World::allowing();
    world.upgrade(UpgradeSpec { require_confirmation: true, ..upgrade() });
    world.core.confirm_upgrade();
    world.look(slots(OLD, Trial::None));
    world.status(true);
    assert_eq!(world.job(), None);
    assert_eq!(world.actions(), BEFORE[..2]);
    let mut world = world.cut();
    assert_eq!(world.job(), None);
    let shown = world.core.overview();
    assert_eq!(shown[0].stage, "waiting");
    assert!(shown[0].trouble.ends_with("edged upgrade confirm"), "{shown:?}");
    assert_eq!(world.core.awaits_confirmation().map(|key| &*key.name), Some("up"));
    world.core.confirm_upgrade();
    assert_eq!(world.core.awaits_confirmation(), None);
    world.advance();
    assert_eq!(&*world.status(true), "registry.example/edged:v9.9.9");
    // What was confirmed stays so.
    let mut world = world.cut();
    world.status(true);
    assert_eq!(world.actions(), BEFORE, "they are sent again over the next link");
}

#[test]
fn a_newer_upgrade_replaces_one_that_waits() {
    let mut world = World::allowing();
    world.upgrade(UpgradeSpec { require_confirmation: true, ..upgrade() });
    world.look(slots(OLD, Trial::None));
    world.status(true);
    world.job();
    world.actions();
    let key = JobKey { name: "newer".into(), ..upgrade_key(Generation::V1Alpha2) };
    let spec = Ok(JobSpec::Upgrade(upgrade()));
    let request = JobRequest { key, action: JobAction::Check, spec };
    assert_eq!(world.core.request(world.now, request), None);
    let why = "replaced by nodeupgradejob/newer".to_owned();
    assert_eq!(world.results(), [(JobAction::BackUp, Err(why))]);
    assert_eq!(world.core.awaits_confirmation(), None);
}

#[test]
fn a_request_changes_nothing_of_a_trial() {
    let mut world = World::allowing();
    world.upgrade(upgrade());
    world.until_tried();
    world.actions();
    world.upgrade(UpgradeSpec { version: "v1.0.0".into(), ..upgrade() });
    assert_eq!(world.core.jobs[0].stored.upgrade.program, NEW.into());
    world.look(slots(NEW, Trial::None));
    world.job();
    let reports = world.reports();
    assert_eq!(reports.last(), Some(&(JobAction::Upgrade, Ok(()), versions(VERSION, "v9.9.9"))));
}

#[test]
fn the_cloud_of_v1alpha1_asks_for_each_stage() {
    let v1 = Generation::V1Alpha1;
    let spec = UpgradeSpec { require_confirmation: true, ..upgrade() };
    let mut world = World::allowing();
    world.ask(v1, JobAction::Init, JobSpec::Upgrade(spec.clone()));
    assert_eq!(world.job(), None);
    assert_eq!(world.results(), [(JobAction::WaitingConfirmation, Ok(()))]);
    world.core.confirm_upgrade();
    assert_eq!(world.job(), None);
    assert_eq!(world.results(), [(JobAction::Init, Ok(()))]);
    // It names nothing but what is to be checked.
    world.ask(v1, JobAction::Check, JobSpec::Checks(Vec::new()));
    world.look(slots(OLD, Trial::None));
    world.status(true);
    assert_eq!(world.job(), None);
    assert_eq!(world.results(), [(JobAction::Check, Ok(()))]);
    world.ask(v1, JobAction::BackUp, JobSpec::Upgrade(spec.clone()));
    assert_eq!(world.job(), None);
    assert_eq!(world.results(), [(JobAction::BackUp, Ok(()))]);
    world.ask(v1, JobAction::Upgrade, JobSpec::Upgrade(spec.clone()));
    world.status(true);
    world.find("registry.example/edged:v9.9.9");
    let (job, _) = world.job().expect("a job");
    world.done(job, Err("no space left on device"));
    assert_eq!(world.job(), None);
    let why = "no space left on device".to_owned();
    assert_eq!(world.results(), [(JobAction::Upgrade, Err(why))]);
    world.ask(v1, JobAction::RollBack, JobSpec::Upgrade(spec));
    assert_eq!(world.job(), None);
    let results = world.results();
    assert!(matches!(results[..], [(JobAction::RollBack, Err(_))]), "{results:?}");
}

#[test]
fn only_images_by_digest_or_of_a_repository_that_is_allowed_are_taken() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let other = format!("sha256:{}", "b".repeat(64));
    let spec = |version: &str, image: &str| UpgradeSpec {
        version: version.into(),
        image: image.into(),
        ..UpgradeSpec::default()
    };
    let allowed: [Box<str>; 1] = [REPOSITORY.into()];
    for (image, expected) in [
        (REPOSITORY, format!("{REPOSITORY}:v1.2.3")),
        ("registry.example/edged:v1", format!("{REPOSITORY}:v1")),
        (&format!("r.example/x:1@{digest}"), format!("r.example/x@{digest}")),
    ] {
        assert_eq!(image_of(&spec("v1.2.3", image), &allowed), Ok(expected.into()));
    }
    // Of v1alpha1, or of this machine's architecture.
    let named = UpgradeSpec { image_digest: (&*digest).into(), ..spec("v1.2.3", "r.example/x") };
    assert_eq!(image_of(&named, &[]), Ok(format!("r.example/x@{digest}").into()));
    let digests = ImageDigests { amd64: (&*other).into(), arm64: (&*other).into() };
    let both = UpgradeSpec { digests, ..spec("v1.2.3", &format!("r.example/x@{digest}")) };
    assert_eq!(image_of(&both, &[]), Ok(format!("r.example/x@{digest}").into()));
    for (version, image, expected) in [
        ("v1.2.3", "", "got no image"),
        ("v1.2.3", "r.example/x", "got the image \"r.example/x\": expected a digest, or"),
        ("v1.2.3", "r.example/edged", "got the image \"r.example/edged\": expected a digest"),
        ("v1.2.3", "r.example/x@sha512:00", "got the image"),
        ("v1.2.3", "A b", "got the image \"A b\": invalid reference format"),
        ("1.2.3", REPOSITORY, "got the version \"1.2.3\", expected one such as v1.2.3"),
        ("v1.2", REPOSITORY, "got the version"),
        ("v1.2.3-", REPOSITORY, "got the version"),
        ("v1.2.3-a b", REPOSITORY, "got the version"),
        ("v1.2.x", REPOSITORY, "got the version"),
    ] {
        let why = image_of(&spec(version, image), &allowed).expect_err(expected);
        assert!(why.starts_with(expected), "got {why:?}, expected {expected:?}");
    }
    assert!(image_of(&spec("v1.2.3-rc.1_x", REPOSITORY), &allowed).is_ok());
}
