//! Clouds that keep a link open and say nothing over it.

use serde_json::json;

use crate::cloud_harness::Sky;

/// Time passes; the cloud answers pings.
fn pass(sky: &mut Sky, seconds: u64) {
    for _ in 0..seconds {
        sky.pass(1_000);
        sky.hear();
    }
}

#[test]
fn a_cloud_that_answers_pings_and_nothing_else_is_left_and_dialled_again() {
    // As CloudCore does at its nodeLimit, and where it takes the node for another.
    let mut sky = Sky::new();
    pass(&mut sky, 270);
    assert_eq!(sky.hung_up, 0, "it may be slow");
    pass(&mut sky, 40);
    assert_eq!((sky.hung_up, sky.dialled.len()), (1, 1));
    let why = "cloud: nothing but pongs for 300 s";
    assert!(sky.desk.log.iter().any(|line| line.starts_with(why)), "{:?}", sky.desk.log);
    sky.sent.clear();
    sky.connect();
    assert_eq!(sky.said("lease").len(), 1, "asked anew, as over any link");
}

#[test]
fn a_cloud_that_has_said_anything_keeps_its_link() {
    let mut sky = Sky::new();
    let asked = sky.said("lease");
    sky.answer(&asked[0], &json!("what?"));
    pass(&mut sky, 900);
    assert_eq!(sky.hung_up, 0);
}
