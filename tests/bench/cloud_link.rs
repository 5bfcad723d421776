//! The traffic of an idle link to the cloud, and the time until it is used again after an outage.

use std::fs;
use std::time::{Duration, Instant};

use crate::figure::{Figure, Limit, median};
use crate::rig::Rig;
use crate::support::cloud::{Cloud, Setup};
use crate::support::joined;
use crate::support::line::Line;
use crate::watched::Watched;

/// Names of [`back`].
pub const BACK: &[&str] = &["cloud.back", "cloud.back.due"];
/// Names of [`idle`].
pub const IDLE: &[&str] =
    &["cloud.idle.up", "cloud.idle.down", "cloud.idle.thrifty.up", "cloud.idle.thrifty.down"];

/// The node has joined, and everything is reported.
const SETTLE: Duration = Duration::from_secs(30);
const ROUNDS: u32 = 5;
/// By then the back-off between dials is at its longest.
const OUTAGE: Duration = Duration::from_secs(40);
/// Longer than the longest back-off.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every lease and keepalive is sent several times in it.
const WINDOW: Duration = Duration::from_secs(120);

/// EdgeCore's own intervals, and those for metered links.
const PLAIN: &str = "heartbeat: 15";
const THRIFTY: &str = "thrifty: true";

/// A node whose link goes over a line, with these intervals.
fn joined_by(rig: &Rig, cloud: &Cloud, line: &Line, intervals: &str) -> Watched {
    let mut site = rig.site();
    let (https, websocket) = (cloud.https.to_string(), line.address.to_string());
    let store = joined::store(&site);
    joined::configure(&mut site, &store, &https, &websocket, &cloud.token());
    let path = site.config.as_ref().expect("just written");
    let text = fs::read_to_string(path).expect("just written");
    assert!(text.contains(PLAIN), "{text}");
    fs::write(path, text.replace(PLAIN, intervals)).expect("a file of ours");
    let agent = Watched::start(&site);
    cloud.connected(1);
    std::thread::sleep(SETTLE);
    agent
}

/// The number of lease renewals so far.
fn renewals(cloud: &Cloud) -> usize {
    let reported = cloud.received();
    let of_lease = reported.iter().filter(|reported| reported.resource().contains("/lease/"));
    of_lease.filter(|reported| reported.operation() == "update").count()
}

/// Seconds from the link's return, and from the successful dial, to the renewed lease.
pub fn back(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let line = Line::open(cloud.websocket);
    let agent = joined_by(rig, &cloud, &line, PLAIN);
    let (mut all, mut due) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        line.cut(true);
        cloud.left_alone();
        // Not in step with the back-offs between dials.
        std::thread::sleep(OUTAGE + round * Duration::from_millis(2_300));
        let before = renewals(&cloud);
        line.cut(false);
        let mended = Instant::now();
        while renewals(&cloud) == before {
            assert!(mended.elapsed() < PATIENCE, "the lease is not renewed");
            std::thread::sleep(Duration::from_millis(1));
        }
        all.push(mended.elapsed().as_secs_f64());
        due.push(line.taken_at().expect("it was dialled").elapsed().as_secs_f64());
        std::thread::sleep(SETTLE);
    }
    drop(agent);
    rig.wipe();
    vec![
        Figure::alone(BACK[0], median(&all), "s", Some(Limit::Most(10.0))),
        Figure::alone(BACK[1], median(&due), "s", Some(Limit::Most(2.0))),
    ]
}

/// KiB a minute on the wire, TLS included, while idle: with EdgeCore's own intervals, and with
/// those for metered links. The received bytes are this cloud's answers, not CloudCore's.
pub fn idle(rig: &Rig) -> Vec<Figure> {
    let measure = |intervals| {
        rig.wipe();
        let cloud = Cloud::start(&Setup::default());
        let line = Line::open(cloud.websocket);
        let agent = joined_by(rig, &cloud, &line, intervals);
        let before = line.carried();
        std::thread::sleep(WINDOW);
        let after = line.carried();
        drop(agent);
        let minutes = WINDOW.as_secs_f64() / 60.0;
        let of = |after: u64, before: u64| (after - before) as f64 / 1_024.0 / minutes;
        (of(after.0, before.0), of(after.1, before.1))
    };
    let (plain, thrifty) = (measure(PLAIN), measure(THRIFTY));
    rig.wipe();
    // Half of what EdgeCore sends, and no more than it receives: each renewal is answered with the
    // whole lease. And the limit of a metered link.
    let figures = [(plain.0, 3.65), (plain.1, 6.4), (thrifty.0, 2.0), (thrifty.1, 3.5)];
    let named = IDLE.iter().zip(figures);
    named
        .map(|(name, (value, most))| Figure::alone(name, value, "KiB/min", Some(Limit::Most(most))))
        .collect()
}
