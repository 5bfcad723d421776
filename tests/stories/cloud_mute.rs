//! Clouds that keep a link open and send nothing over it.

use serde_json::json;

use crate::cloud_harness::CloudHarness;

/// Time passes; the cloud answers pings.
fn pass(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds {
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
}

#[test]
fn a_cloud_that_answers_pings_and_nothing_else_is_left_and_dialled_again() {
    // As CloudCore does at its nodeLimit, and where it takes the node for another.
    let mut cloud = CloudHarness::new();
    pass(&mut cloud, 270);
    assert_eq!(cloud.hung_up, 0, "it may be slow");
    pass(&mut cloud, 40);
    assert_eq!((cloud.hung_up, cloud.dialled.len()), (1, 1));
    let why = "cloud: nothing but pongs for 300 s";
    assert!(cloud.harness.log.iter().any(|line| line.starts_with(why)), "{:?}", cloud.harness.log);
    cloud.sent.clear();
    cloud.connect();
    assert_eq!(cloud.take_sent("lease").len(), 1, "requested again, as over any link");
}

#[test]
fn a_cloud_that_has_said_anything_keeps_its_link() {
    let mut cloud = CloudHarness::new();
    let requested = cloud.take_sent("lease");
    cloud.answer(&requested[0], &json!("what?"));
    pass(&mut cloud, 900);
    assert_eq!(cloud.hung_up, 0);
}
