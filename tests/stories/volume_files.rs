//! Volumes with files from objects: they wait for them, follow them, and keep their last content.

use std::sync::Arc;

use edged::agent::event::{Event, JobId};
use edged::model::job::{JobError, JobReply};
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{ConfigMap, Object};
use edged::model::pod::Pod;

use super::harness::Harness;
use super::volumes::{MOUNT, start, with};

const MAP: &str = r#"{"name":"v","configMap":{"name":"cm"}}"#;

/// The folder holds this pod and perhaps a ConfigMap `cm`.
fn folder(harness: &mut Harness, json: &str, value: Option<&str>) {
    let pods = vec![serde_json::from_str::<Pod>(json).expect("a pod")];
    let object = |value: &str| {
        let mut map = ConfigMap::default();
        (map.metadata.namespace, map.metadata.name) = ("default".to_owned(), "cm".to_owned());
        map.data.insert("k".to_owned(), value.to_owned());
        Arc::new(Object::ConfigMap(map))
    };
    let content = Ok(Content { pods, objects: value.map(object).into_iter().collect() });
    harness.deliver(Event::Manifests(Folder {
        trouble: None,
        files: vec![File { path: "/m/0".into(), changed_ns: 0, content }],
    }));
}

#[test]
fn a_missing_object_keeps_its_pod_waiting_until_it_comes() {
    let mut harness = Harness::new();
    folder(&mut harness, &with(MAP, MOUNT), None);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let found = r#"FailedMount MountVolume.SetUp failed for volume "v" : configmap "cm" not found"#;
    assert_eq!(harness.events, [found]);
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    assert_eq!(harness.volume_jobs, ["set up v"]);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn what_is_wrong_with_a_volume_is_said_once_and_again_when_it_is_something_else() {
    let item = r#"{"name":"v","configMap":{"name":"cm","items":[{"key":"other","path":"f"}]}}"#;
    let mut harness = Harness::new();
    folder(&mut harness, &with(item, MOUNT), None);
    harness.pass(60_000);
    folder(&mut harness, &with(item, MOUNT), Some("1"));
    let count = |harness: &Harness| {
        harness.events.iter().filter(|event| event.contains("MountVolume.SetUp")).count()
    };
    assert_eq!(count(&harness), 2, "{:?}", harness.events);
    folder(&mut harness, &with(item, MOUNT), Some("2"));
    harness.pass(60_000);
    let why = ["configmap \"cm\" not found", "configmap references non-existent config key: other"];
    let found =
        why.map(|why| format!("FailedMount MountVolume.SetUp failed for volume \"v\" : {why}"));
    let reported: Vec<&String> =
        harness.events.iter().filter(|event| event.contains("MountVolume.SetUp")).collect();
    assert_eq!(reported, found.each_ref());
}

#[test]
fn what_changes_is_written_while_the_pod_runs_and_what_goes_stays() {
    let mut harness = Harness::new();
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    start(&mut harness);
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    assert_eq!(harness.volume_jobs.len(), 1, "nothing changed");
    folder(&mut harness, &with(MAP, MOUNT), Some("2"));
    assert_eq!(harness.volume_jobs.len(), 2);
    folder(&mut harness, &with(MAP, MOUNT), None);
    assert_eq!(harness.volume_jobs.len(), 2, "the old content stays");
    assert_eq!(harness.running(), ["m"]);
    harness.bad_volume = Some("v");
    folder(&mut harness, &with(MAP, MOUNT), Some("3"));
    harness.exits("m", 1);
    harness.does("container_status c2");
    assert_eq!(harness.open_calls(), ["image_status i:1"], "good for the next container");
}

/// A file of a volume is "1", and "1" again while "2" is being written by this job.
fn goes_back_while_it_is_written() -> (Harness, JobId) {
    let mut harness = Harness::new();
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    start(&mut harness);
    harness.taken.hangs = Some("v");
    folder(&mut harness, &with(MAP, MOUNT), Some("2"));
    harness.taken.hangs = None;
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    let under_way = harness.taken.hung.take().expect("it hangs");
    (harness, under_way)
}

#[test]
fn what_goes_back_while_it_is_written_is_written_again() {
    let (mut harness, under_way) = goes_back_while_it_is_written();
    assert_eq!(harness.volume_jobs.len(), 2, "one at a time");
    harness.deliver(Event::Job(under_way, Ok(JobReply::Done)));
    assert_eq!(harness.volume_jobs.len(), 3, "\"2\" was written over \"1\"");
    harness.pass(60_000);
    assert_eq!(harness.volume_jobs.len(), 3, "and that is all");
}

#[test]
fn what_goes_back_while_it_is_written_is_written_again_when_that_fails() {
    let (mut harness, under_way) = goes_back_while_it_is_written();
    harness.deliver(Event::Job(under_way, Err(JobError::Failed("no space left".to_owned()))));
    harness.pass(60_000);
    assert_eq!(harness.volume_jobs.len(), 3, "some of \"2\" may have been written");
}

#[test]
fn what_goes_back_after_a_failure_is_written_again() {
    let mut harness = Harness::new();
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    start(&mut harness);
    harness.bad_volume = Some("v");
    folder(&mut harness, &with(MAP, MOUNT), Some("2"));
    harness.bad_volume = None;
    folder(&mut harness, &with(MAP, MOUNT), Some("1"));
    harness.pass(60_000);
    assert_eq!(harness.volume_jobs.len(), 3, "some of \"2\" may be there");
}
