//! Pods: addresses, updates, deletion, deadlines, back-off.

use std::net::IpAddr;
use std::time::Duration;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::manifest;
use crate::support::wait::until_in;

const AREA: &str = "Pods";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, "should get a host IP", host_ip),
    (AREA, "should be submitted and removed", submitted_and_removed),
    (AREA, "should be updated", updated),
    (AREA, "should allow activeDeadlineSeconds to be updated", active_deadline_updated),
    (
        AREA,
        "should have their auto-restart back-off timer reset on image update",
        back_off_reset_by_image,
    ),
    (AREA, "should cap back-off at MaxContainerBackOff", back_off_capped),
];

fn host_ip(case: &Case<'_>) {
    let pod = case.run("", SLEEP);
    let ip = pod.0["status"]["hostIP"].as_str().unwrap_or_default();
    assert!(ip.parse::<IpAddr>().is_ok(), "hostIP: {ip:?}");
    assert_eq!(pod.0["status"]["hostIPs"][0]["ip"], ip);
}

fn submitted_and_removed(case: &Case<'_>) {
    let pod = case.run("", SLEEP);
    assert!(pod.0["metadata"]["deletionTimestamp"].is_null());
    case.take("pod");
    case.node.wait_gone(&pod);
}

fn updated(case: &Case<'_>) {
    let labelled = |value: &str| {
        let text = manifest(&case.name, QUICK_END, SLEEP);
        text.replace("metadata:\n", &format!("metadata:\n  labels: {{time: {value}}}\n"))
    };
    // A pod of the folder has its uid from its manifest, unless the manifest has one.
    let with_uid = |text: String| {
        text.replace("metadata:\n", &format!("metadata:\n  uid: {}-fixed\n", case.name))
    };
    case.put("pod", &with_uid(labelled("one")));
    let before = case.node.wait_running(&case.name);
    case.put("pod", &with_uid(labelled("two")));
    let after =
        case.wait("the new label shows", |pod| pod.0["metadata"]["labels"]["time"] == "two");
    assert_eq!(after.container_id("main"), before.container_id("main"), "undisturbed");
    assert_eq!(after.restarts("main"), 0);
    assert!(after.runs());
}

fn active_deadline_updated(case: &Case<'_>) {
    let pod = |deadline: &str| {
        manifest(&case.name, &format!("{QUICK_END}{deadline}"), SLEEP)
            .replace("metadata:\n", &format!("metadata:\n  uid: {}-fixed\n", case.name))
    };
    case.put("pod", &pod(""));
    case.node.wait_running(&case.name);
    case.put("pod", &pod("  activeDeadlineSeconds: 3\n"));
    let failed = case.wait("it has failed", |pod| pod.phase() == "Failed");
    assert_eq!(failed.reason(), "DeadlineExceeded");
}

/// The second of the day of the start of each of these instances, from its output.
fn starts(case: &Case<'_>, instances: std::ops::RangeInclusive<u32>) -> Vec<i64> {
    let start = |instance: u32| {
        let what = format!("instance {instance} has written");
        until_in(Duration::from_secs(120), &what, || {
            let pod = case.node.site.pod(&case.name)?;
            let lines = case.node.site.log_lines(&pod, "main", instance);
            let first = lines.first().map(|line| day_s(&line.time));
            first.ok_or_else(|| pod.container("main").to_string())
        })
    };
    instances.map(start).collect()
}

/// Seconds from each to the next.
fn delays(starts: &[i64]) -> Vec<i64> {
    starts.windows(2).map(|pair| (pair[1] - pair[0]).rem_euclid(24 * 3600)).collect()
}

/// The second of the day of an RFC 3339 time in UTC.
pub(crate) fn day_s(at: &str) -> i64 {
    let time = at.get(11..19).unwrap_or_else(|| panic!("got {at}, expected RFC 3339"));
    let part = |part: &str| part.parse::<i64>().expect("two digits");
    time.split(':').map(part).fold(0, |seconds, part| seconds * 60 + part)
}

const CRASH: &str = "    command: [sh, -c, 'echo up; exit 1']\n";

fn back_off_reset_by_image(case: &Case<'_>) {
    let uid = format!("metadata:\n  uid: {}-fixed\n", case.name);
    let first = manifest(&case.name, QUICK_END, CRASH).replace("metadata:\n", &uid);
    case.put("pod", &first);
    // The first restart comes at once, the second after 10 s, the third after 20 s.
    let before = delays(&starts(case, 1..=3));
    assert!(before[0] + 5 < before[1], "delays: {before:?}");
    case.put("pod", &first.replace("edged-demo:1", "edged-demo:2"));
    // The fourth has another image, so the fifth waits as long as the second did.
    let after = delays(&starts(case, 4..=5));
    assert!(after[0] + 5 < before[1], "delays before: {before:?}, after: {after:?}");
}

/// Upstream waits until the delay settles at its cap of 300 s, which takes half an hour. Here the
/// node's cap is set to 20 s (`crashLoopBackOff.maxContainerRestartPeriod`), so that it is reached
/// by the second delay and held by the third.
fn back_off_capped(case: &Case<'_>) {
    case.put("pod", &manifest(&case.name, QUICK_END, CRASH));
    let delays = delays(&starts(case, 1..=4));
    assert!((8..=14).contains(&delays[0]), "delays: {delays:?}");
    for delay in &delays[1..] {
        assert!((18..=24).contains(delay), "delays: {delays:?}");
    }
}
