//! Certificate requests, and how often they are made.

use edged::agent::event::{Action, Event, Out};
use edged::agent::time::Wall;
use edged::model::job::{JobReply, JobSpec};
use edged::model::link::Cause;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;

use crate::cloud_harness::CloudHarness;

/// The dial under way fails: the credentials are refused. Returns whether there was one.
fn refuse(cloud: &mut CloudHarness) -> bool {
    let Some(session) = cloud.dialled.pop() else { return false };
    let cause = Cause::Credentials("the certificate has ended".to_owned());
    cloud.harness.deliver(Event::LinkDown(session, cause));
    cloud.settle();
    true
}

fn applications(cloud: &CloudHarness) -> usize {
    cloud.harness.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
}

#[test]
fn certificates_that_do_not_do_are_applied_for_ever_more_rarely() {
    // By a clock that is a year ahead, each certificate has expired on arrival.
    let mut cloud = CloudHarness::with(Saved::default());
    refuse(&mut cloud);
    assert_eq!(applications(&cloud), 1);
    assert_eq!(cloud.dialled.len(), 1, "the new one is tried at once");
    let mut dials = 0;
    for at in 0..600 {
        dials += usize::from(refuse(&mut cloud));
        if at == 58 {
            assert_eq!(applications(&cloud), 1, "the next would be like it");
        }
        cloud.pass(1_000);
    }
    // Each writes to flash. After one, two and four minutes, and up to half as much again.
    let count = applications(&cloud);
    assert!((3..=4).contains(&count), "{count} in ten minutes");
    assert!(dials >= 30, "{dials}: what there is goes on to be shown");

    // The clock is set: the certificate is valid, and no request is needed.
    cloud.pass(15_000);
    cloud.connect();
    assert_eq!(applications(&cloud), count);
    // The next failure is a first one.
    cloud.disconnect();
    cloud.pass(15_000);
    refuse(&mut cloud);
    assert_eq!(applications(&cloud), count + 1, "at once");
}

#[test]
fn a_refusal_of_what_was_just_given_is_told_with_its_reason_once() {
    let mut cloud = CloudHarness::with(Saved::default());
    for _ in 0..30 {
        refuse(&mut cloud);
        cloud.pass(1_000);
    }
    let reported = "the certificate that was just obtained is refused: the certificate has ended";
    let lines = cloud.harness.log.iter().filter(|line| line.contains(reported)).count();
    assert_eq!(lines, 1, "{:?}", cloud.harness.log);
}

fn kinds(cloud: &CloudHarness) -> Vec<bool> {
    let of = |spec: &JobSpec| match spec {
        JobSpec::Enrol { renew } => Some(*renew),
        _ => None,
    };
    cloud.harness.specs.iter().filter_map(of).collect()
}

fn lines(cloud: &CloudHarness, of: &str) -> usize {
    cloud.harness.log.iter().filter(|line| line.contains(of)).count()
}

#[test]
fn what_is_missing_is_applied_for_and_what_ends_is_renewed() {
    let mut cloud = CloudHarness::with(Saved::default());
    let session = cloud.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("there is no certificate".to_owned());
    cloud.harness.deliver(Event::LinkDown(session, cause));
    cloud.settle();
    assert_eq!(kinds(&cloud), [false]);
    assert_eq!(lines(&cloud, "certificate obtained"), 1);
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(30_000);
    assert_eq!(kinds(&cloud), [false]);
    let mut cloud = CloudHarness::new();
    assert_eq!(cloud.take_sent("node").len(), 1);
    cloud.harness.now.wall = Some(Wall(1_829_900_000_000));
    cloud.sign_of_life();
    cloud.pass(2_000);
    assert_eq!(kinds(&cloud), [true]);
    assert_eq!((lines(&cloud, "certificate renewed"), cloud.hung_up), (1, 1));
    // Requests of the former link are repeated over the next.
    cloud.connect();
    assert_eq!(cloud.take_sent("node").len(), 1);
}

#[test]
fn a_renewal_that_fails_does_not_cost_the_link_and_one_that_is_not_wished_is_not_tried() {
    for rotates in [true, false] {
        let settings = CloudSettings { rotate_certificates: rotates, ..CloudSettings::default() };
        let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
        cloud.connect();
        cloud.harness.read_only = true;
        cloud.harness.now.wall = Some(Wall(1_829_900_000_000));
        for _ in 0..60 {
            cloud.sign_of_life();
            cloud.pass(1_000);
        }
        let count = kinds(&cloud).len();
        let expected = if rotates { 5..=6 } else { 0..=0 };
        assert!(expected.contains(&count), "{count}");
        assert!(kinds(&cloud).iter().all(|renews| *renews));
        assert_eq!(cloud.hung_up, 0);
        assert_eq!(
            lines(&cloud, "no certificate"),
            usize::from(rotates),
            "{:?}",
            cloud.harness.log
        );
    }
}

#[test]
fn a_certificate_is_renewed_when_it_is_due_whatever_else_happens() {
    let mut cloud = CloudHarness::new();
    // The last tenth of its life begins at 1,826,900,000, the last third before 1,821,000,000.
    let mut asked_at = None;
    let mut wall_s = 1_820_600_000;
    while asked_at.is_none() && wall_s < 1_828_000_000 {
        cloud.harness.now.wall = Some(Wall(wall_s * 1_000));
        cloud.sign_of_life();
        cloud.pass(1_000);
        asked_at = (!kinds(&cloud).is_empty()).then_some(wall_s);
        wall_s += 20_000;
    }
    let asked_at = asked_at.expect("it is renewed");
    assert!((1_820_700_000..=1_826_920_000).contains(&asked_at), "{asked_at}");
    // Drawn once: repeated checks do not make it earlier.
    assert!(asked_at > 1_820_720_000, "{asked_at}");
}

#[test]
fn a_certificate_that_comes_after_a_stop_leads_to_nothing() {
    let mut cloud = CloudHarness::new();
    let agent = &mut cloud.harness.agent;
    let mut now = cloud.harness.now;
    now.boot = now.boot.plus_ms(2_000);
    now.wall = Some(Wall(1_829_900_000_000));
    let mut step = |event: Option<Event>| {
        if let Some(event) = event {
            agent.handle(now, event);
        }
        let mut out = Out::default();
        agent.step(now, &mut out);
        out.actions
    };
    let renewal = step(None).into_iter().find_map(|action| match action {
        Action::Job { job, spec: JobSpec::Enrol { .. }, .. } => Some(job),
        _ => None,
    });
    step(Some(Event::Stop));
    let after = step(Some(Event::Job(renewal.expect("it is due"), Ok(JobReply::Done))));
    let requests: Vec<&Action> = after
        .iter()
        .filter(|action| !matches!(action, Action::Log(..) | Action::SaveProbeResults(_)))
        .filter(|action| !matches!(action, Action::Exit))
        .collect();
    assert!(requests.is_empty(), "{requests:?}");
}
