//! An upgrade of edged by a job of the cloud, over the end of one edged and the start of the next:
//! what is in the store, and what the cloud hears.

use std::collections::BTreeMap;

use edged::agent::event::Event;
use edged::limits::{NODE_JOB_REPORT_MS, UPGRADE_LOOK_MS};
use edged::model::job::{Slots, Trial, UpgradeReply};
use edged::model::meta::{Change, Row, Saved};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content};

const RESOURCE: &str = "operations.kubeedge.io/v1alpha2/nodeupgradejob/up/node/gw";
const IMAGE: &str = "r.example/edged:v9.9.9";

/// The slots, with one program running and perhaps tried.
fn slots(program: &str, trial: Trial) -> UpgradeReply {
    let program = format!("sha256:{program}").into();
    UpgradeReply::Slots(Slots { program, free_bytes: 1, trial, ..Slots::default() })
}

/// A node with this store, whose `edged-run` gives these answers.
fn node(rows: Vec<Row>, replies: Vec<UpgradeReply>) -> CloudHarness {
    let mut cloud = CloudHarness::beside(
        Saved::kept(rows),
        |config| {
            config.node_jobs = true;
            config.upgrade_repositories = vec!["r.example/edged".into()];
        },
        |harness| {
            harness.images.push(IMAGE);
            harness.upgrade.borrow_mut().extend(replies);
        },
    );
    cloud.connect();
    cloud
}

fn ask(cloud: &mut CloudHarness, more: &Value) {
    let mut spec = json!({"version": "v9.9.9", "image": "r.example/edged"});
    for (key, value) in more.as_object().expect("a map") {
        spec[key] = value.clone();
    }
    cloud.push_to(["taskmanager", "taskmanager", "Check", RESOURCE], &spec);
    work(cloud);
}

/// The runtime and the system do what is requested, until five reports can have been sent.
fn work(cloud: &mut CloudHarness) {
    for _ in 0..NODE_JOB_REPORT_MS * 9 / 2 / 100 {
        cloud.work();
        cloud.pass(100);
    }
}

/// The reports since the last call: action, success and reason.
fn reports(cloud: &mut CloudHarness) -> Vec<(String, bool, String)> {
    let sent = std::mem::take(&mut cloud.sent);
    let of_job = sent.iter().filter(|message| &*message.route.resource == RESOURCE);
    of_job
        .map(|message| {
            let report = content(message);
            assert_ne!(report["finishTime"], "", "{report}");
            let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
            if ["BackUp", "Upgrade", "RollBack"].contains(&&*text("action")) {
                assert_eq!(text("extend").split(',').count(), 2, "the cloud refuses others");
            }
            (text("action"), report["succ"] == true, text("reason"))
        })
        .collect()
}

/// What the next edged finds in the store.
fn rows(cloud: &mut CloudHarness) -> Vec<Row> {
    let mut rows: BTreeMap<Box<str>, Row> = BTreeMap::new();
    for change in std::mem::take(&mut cloud.written) {
        match change {
            Change::Put(row) => drop(rows.insert(row.key.clone(), row)),
            Change::Delete { key } => drop(rows.remove(&key)),
            // Of other tables.
            _ => {}
        }
    }
    rows.into_values().collect()
}

/// A node on which the trial of program 02 was begun, until its edged ends.
fn begun() -> Vec<Row> {
    let taken = UpgradeReply::Taken { program: "sha256:02".into() };
    let replies = vec![
        slots("01", Trial::None),
        taken,
        slots("01", Trial::None),
        UpgradeReply::Begun,
        slots("01", Trial::Next),
    ];
    let mut cloud = node(Vec::new(), replies);
    ask(&mut cloud, &json!({}));
    let actions: Vec<_> = reports(&mut cloud).into_iter().map(|(action, ..)| action).collect();
    assert_eq!(actions, ["Check", "WaitingConfirmation", "BackUp"]);
    rows(&mut cloud)
}

fn last(cloud: &mut CloudHarness) -> Vec<(String, bool, String)> {
    let all = reports(cloud);
    all.into_iter().filter(|(action, ..)| ["Upgrade", "RollBack"].contains(&&**action)).collect()
}

#[test]
fn the_new_edged_reports_that_it_is_trusted() {
    let tried = slots("02", Trial::Running);
    let mut cloud = node(begun(), vec![tried.clone(), tried, slots("02", Trial::None)]);
    work(&mut cloud);
    assert_eq!(last(&mut cloud), [], "it may be left yet");
    cloud.pass(3 * UPGRADE_LOOK_MS);
    assert_eq!(last(&mut cloud), [("Upgrade".to_owned(), true, String::new())]);
    // A power cut after that: it is not reported as another result.
    let mut cloud = node(rows(&mut cloud), vec![slots("02", Trial::None)]);
    work(&mut cloud);
    assert!(last(&mut cloud).iter().all(|(_, is_success, _)| *is_success));
}

#[test]
fn the_old_edged_reports_why_the_new_one_was_left() {
    let UpgradeReply::Slots(old) = slots("01", Trial::None) else { panic!("they are slots") };
    let left = "has not reached its cloud in 660 s";
    let old = UpgradeReply::Slots(Slots { left: left.into(), ..old });
    let mut cloud = node(begun(), vec![old]);
    work(&mut cloud);
    let all = last(&mut cloud);
    assert_eq!(all[0], ("Upgrade".to_owned(), false, left.to_owned()));
    let (action, is_success, reason) = &all[1];
    assert_eq!((&**action, *is_success), ("RollBack", false));
    assert!(reason.starts_with("back on v"), "{reason}");
    assert_eq!(all.len(), 2);
}

#[test]
fn nothing_is_tried_before_it_is_stored() {
    let taken = UpgradeReply::Taken { program: "sha256:02".into() };
    let mut cloud = node(
        Vec::new(),
        vec![
            slots("01", Trial::None),
            taken,
            slots("01", Trial::None),
            UpgradeReply::Begun,
            slots("01", Trial::Next),
        ],
    );
    ask(&mut cloud, &json!({"requireConfirmation": true}));
    assert_eq!(reports(&mut cloud).len(), 2);
    cloud.keeps = false;
    cloud.harness.deliver(Event::ConfirmUpgrade);
    cloud.settle();
    let steps = |cloud: &CloudHarness| {
        let is_step = |spec: &&edged::model::job::JobSpec| spec.kind() == "Upgrade";
        cloud.harness.specs.iter().filter(is_step).count()
    };
    assert_eq!(steps(&cloud), 1, "the look of the check");
    work(&mut cloud);
    assert_eq!(steps(&cloud), 1, "that it is confirmed is not stored");
    // Confirmed; the backup has ended; the program is taken.
    cloud.save();
    work(&mut cloud);
    cloud.save();
    work(&mut cloud);
    assert_eq!(steps(&cloud), 3, "it is taken, and is not what runs");
    work(&mut cloud);
    assert_eq!(steps(&cloud), 3, "the trial is not stored");
    cloud.save();
    work(&mut cloud);
    assert!(steps(&cloud) > 3);
}
