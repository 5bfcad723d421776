//! Applications for certificates, and how often.

use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::meta::Saved;

use crate::sky::Sky;

/// The dial under way fails: the credentials do not do.
fn refuse(sky: &mut Sky) {
    if let Some(session) = sky.dialled.pop() {
        let cause = Cause::Credentials("the certificate has ended".to_owned());
        sky.desk.tell(edged::agent::event::Event::LinkDown(session, cause));
        sky.settle();
    }
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
    for _ in 0..600 {
        refuse(&mut sky);
        sky.pass(1_000);
    }
    let count = applications(&sky);
    assert!((10..=16).contains(&count), "{count} in ten minutes");

    // The clock is set: what comes now does, and the next trouble is a new one.
    sky.pass(60_000);
    sky.connect();
    sky.disconnect();
    sky.pass(2_000);
    let before = applications(&sky);
    refuse(&mut sky);
    assert_eq!(applications(&sky), before + 1, "at once");
}
