//! Applications for certificates, and how often.

use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::meta::Saved;

use crate::sky::Sky;

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
