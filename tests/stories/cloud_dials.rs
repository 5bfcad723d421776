//! How soon the cloud is dialled again, by what became of the dial before.

use edged::agent::event::Event;
use edged::model::link::Cause;
use edged::model::meta::Saved;

use crate::sky::Sky;

/// Each dial fails like this; how many there are in this time.
fn dials(sky: &mut Sky, cause: &Cause, seconds: u64) -> usize {
    let mut count = 0;
    for _ in 0..seconds {
        while let Some(session) = sky.dialled.pop() {
            count += 1;
            sky.desk.tell(Event::LinkDown(session, cause.clone()));
            sky.settle();
        }
        sky.pass(1_000);
    }
    count
}

#[test]
fn a_cloud_that_refuses_at_once_is_dialled_again_within_two_seconds() {
    let refused = Cause::Refused("connection refused".to_owned());
    let silent = Cause::Link("no answer".to_owned());
    let mut sky = Sky::with(Saved::default());
    sky.connect();
    sky.pass(61_000);
    sky.disconnect();
    assert!(dials(&mut sky, &silent, 120) <= 16, "it may be far away");
    // The wait before it was long. Now it is there, and may listen any moment.
    dials(&mut sky, &refused, 16);
    let count = dials(&mut sky, &refused, 100);
    assert!((50..=100).contains(&count), "{count} in 100 s: spread over one to two seconds");
    // Ten minutes after the loss it is no restart: each packet is paid for.
    dials(&mut sky, &refused, 360);
    let count = dials(&mut sky, &refused, 120);
    assert!(count <= 16, "{count} in two minutes");
    // The next loss is a first one.
    sky.pass(15_000);
    sky.connect();
    sky.pass(61_000);
    sky.disconnect();
    assert!(dials(&mut sky, &refused, 100) >= 50);
}
