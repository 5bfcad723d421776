//! The machine's watchdog is fed while every part meets its deadlines, and only then.

use edged::agent::event::Event;
use edged::limits::{WATCHDOG_LATE_MS, WATCHDOG_PINGS};
use edged::model::cri::{CallError, CgroupDriver, Lost};
use edged::model::watchdog::Settings;

use crate::harness::{Harness, MAIN, pod};

const TIMEOUT_S: u32 = 30;
const MEAL_MS: u64 = TIMEOUT_S as u64 * 1_000 / WATCHDOG_PINGS;
const MINUTE_MS: u64 = 60_000;

fn watched(runtime_silence_ms: u64) -> Harness {
    let device = "/dev/watchdog".to_owned();
    let settings = Settings { device, timeout_s: TIMEOUT_S, runtime_silence_ms };
    Harness::booted_with(CgroupDriver::Cgroupfs, |config| config.watchdog = settings)
}

/// How often the watchdog is fed while this time passes.
fn meals_in(harness: &mut Harness, ms: u64) -> u32 {
    let before = harness.watchdog_feeds;
    harness.pass(ms);
    harness.watchdog_feeds - before
}

#[test]
fn a_healthy_agent_feeds_some_times_within_the_timeout_from_the_start_on() {
    let mut harness = watched(0);
    assert_eq!(harness.watchdog_feeds, 1);
    assert_eq!(meals_in(&mut harness, u64::from(TIMEOUT_S) * 1_000), WATCHDOG_PINGS as u32);
}

#[test]
fn nothing_is_fed_where_no_device_is_named() {
    let mut harness = Harness::new();
    harness.pass(MINUTE_MS);
    assert_eq!(harness.watchdog_feeds, 0);
}

#[test]
fn an_answer_that_the_hands_owe_long_after_its_deadline_ends_the_meals() {
    let mut harness = watched(0);
    harness.manifests(&[&pod(MAIN)]);
    let (call, request) = harness.take("run_podsandbox #0");
    // The call has four minutes; that is the runtime's time, and no reason to stop.
    assert!(meals_in(&mut harness, 4 * MINUTE_MS) >= 23);
    harness.pass(WATCHDOG_LATE_MS + MEAL_MS);
    assert_eq!(meals_in(&mut harness, MINUTE_MS), 0);
    let reported =
        harness.log.iter().filter(|line| line.starts_with("the watchdog is not fed any more"));
    assert_eq!(reported.count(), 1);
    // It arrives after all.
    let reply = harness.perform(&request);
    harness.deliver(Event::Cri(call, Ok(reply)));
    assert!(meals_in(&mut harness, MINUTE_MS) >= 5);
    assert!(harness.log.iter().any(|line| line == "the watchdog is fed again"));
}

#[test]
fn a_call_that_failed_by_its_deadline_is_no_reason() {
    let mut harness = watched(0);
    harness.manifests(&[&pod(MAIN)]);
    for _ in 0..5 {
        let (call, _) = harness.take("run_podsandbox #0");
        assert!(meals_in(&mut harness, 4 * MINUTE_MS) >= 23);
        harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
        harness.pass(MINUTE_MS);
    }
}

#[test]
fn a_runtime_that_is_away_is_no_reason_unless_the_configuration_says_so() {
    let away = || Event::RuntimeDown { cause: "no socket".to_owned() };
    let mut patient = watched(0);
    patient.deliver(away());
    assert_eq!(meals_in(&mut patient, 60 * MINUTE_MS), 360);
    let mut strict = watched(10 * MINUTE_MS);
    strict.deliver(away());
    assert!(meals_in(&mut strict, 10 * MINUTE_MS) >= 59);
    strict.pass(MINUTE_MS);
    assert_eq!(meals_in(&mut strict, MINUTE_MS), 0);
    strict.deliver(Event::RuntimeUp);
    assert!(meals_in(&mut strict, MINUTE_MS) >= 5);
}
