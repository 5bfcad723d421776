//! Applications for certificates, and how often.

use edged::agent::time::Wall;
use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;

use crate::cloud_harness::Sky;

/// The dial under way fails: the credentials do not do. Whether there was one.
fn refuse(sky: &mut Sky) -> bool {
    let Some(session) = sky.dialled.pop() else { return false };
    let cause = Cause::Credentials("the certificate has ended".to_owned());
    sky.desk.tell(edged::agent::event::Event::LinkDown(session, cause));
    sky.settle();
    true
}

fn applications(sky: &Sky) -> usize {
    sky.desk.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
}

#[test]
fn certificates_that_do_not_do_are_applied_for_ever_more_rarely() {
    // By a clock that is a year ahead, each has ended when it comes.
    let mut sky = Sky::with(Saved::default());
    refuse(&mut sky);
    assert_eq!(applications(&sky), 1);
    assert_eq!(sky.dialled.len(), 1, "the new one is tried at once");
    let mut dials = 0;
    for at in 0..600 {
        dials += usize::from(refuse(&mut sky));
        if at == 58 {
            assert_eq!(applications(&sky), 1, "the next would be like it");
        }
        sky.pass(1_000);
    }
    // Each writes to flash. After one, two and four minutes, and up to half as much again.
    let count = applications(&sky);
    assert!((3..=4).contains(&count), "{count} in ten minutes");
    assert!(dials >= 30, "{dials}: what there is goes on to be shown");

    // The clock is set: what there is does, and nothing has to be applied for.
    sky.pass(15_000);
    sky.connect();
    assert_eq!(applications(&sky), count);
    // The next trouble is a new one.
    sky.disconnect();
    sky.pass(15_000);
    refuse(&mut sky);
    assert_eq!(applications(&sky), count + 1, "at once");
}

#[test]
fn a_refusal_of_what_was_just_given_is_told_with_its_reason_once() {
    let mut sky = Sky::with(Saved::default());
    for _ in 0..30 {
        refuse(&mut sky);
        sky.pass(1_000);
    }
    let told = "the certificate that was just obtained is refused: the certificate has ended";
    let lines = sky.desk.log.iter().filter(|line| line.contains(told)).count();
    assert_eq!(lines, 1, "{:?}", sky.desk.log);
}

fn kinds(sky: &Sky) -> Vec<bool> {
    let of = |spec: &JobSpec| match spec {
        JobSpec::Enrol { renew } => Some(*renew),
        _ => None,
    };
    sky.desk.specs.iter().filter_map(of).collect()
}

fn lines(sky: &Sky, of: &str) -> usize {
    sky.desk.log.iter().filter(|line| line.contains(of)).count()
}

#[test]
fn what_is_missing_is_applied_for_and_what_ends_is_renewed() {
    let mut sky = Sky::with(Saved::default());
    let session = sky.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("there is no certificate".to_owned());
    sky.desk.tell(edged::agent::event::Event::LinkDown(session, cause));
    sky.settle();
    assert_eq!(kinds(&sky), [false]);
    assert_eq!(lines(&sky, "certificate obtained"), 1);
    sky.connect();
    sky.hear();
    sky.pass(30_000);
    assert_eq!(kinds(&sky), [false]);
    let mut sky = Sky::new();
    assert_eq!(sky.said("node").len(), 1);
    sky.desk.now.wall = Some(Wall(1_829_900_000_000));
    sky.hear();
    sky.pass(2_000);
    assert_eq!(kinds(&sky), [true]);
    assert_eq!((lines(&sky, "certificate renewed"), sky.hung_up), (1, 1));
    // What was asked over the link before is asked over the next.
    sky.connect();
    assert_eq!(sky.said("node").len(), 1);
}

#[test]
fn a_renewal_that_fails_does_not_cost_the_link_and_one_that_is_not_wished_is_not_tried() {
    for rotates in [true, false] {
        let settings = CloudSettings { rotate_certificates: rotates, ..CloudSettings::default() };
        let mut sky = Sky::set("gw", Saved::default(), settings);
        sky.connect();
        sky.desk.read_only = true;
        sky.desk.now.wall = Some(Wall(1_829_900_000_000));
        for _ in 0..60 {
            sky.hear();
            sky.pass(1_000);
        }
        let count = kinds(&sky).len();
        let expected = if rotates { 5..=6 } else { 0..=0 };
        assert!(expected.contains(&count), "{count}");
        assert!(kinds(&sky).iter().all(|renews| *renews));
        assert_eq!(sky.hung_up, 0);
        assert_eq!(lines(&sky, "no certificate"), usize::from(rotates), "{:?}", sky.desk.log);
    }
}

#[test]
fn a_certificate_is_renewed_when_it_is_due_whatever_else_happens() {
    let mut sky = Sky::new();
    // The last tenth of its life begins at 1,826,900,000, the last third before 1,821,000,000.
    let mut asked_at = None;
    let mut wall_s = 1_820_600_000;
    while asked_at.is_none() && wall_s < 1_828_000_000 {
        sky.desk.now.wall = Some(Wall(wall_s * 1_000));
        sky.hear();
        sky.pass(1_000);
        asked_at = (!kinds(&sky).is_empty()).then_some(wall_s);
        wall_s += 20_000;
    }
    let asked_at = asked_at.expect("it is renewed");
    assert!((1_820_700_000..=1_826_920_000).contains(&asked_at), "{asked_at}");
    // Drawn once: looking again and again does not make it sooner.
    assert!(asked_at > 1_820_720_000, "{asked_at}");
}
