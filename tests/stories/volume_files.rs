//! Volumes out of objects: they wait for them, follow them, and keep what they had.

use std::sync::Arc;

use edged::agent::event::Event;
use edged::model::job::JobError;
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{ConfigMap, Object};
use edged::model::pod::Pod;

use super::desk::Desk;
use super::volumes::{MOUNT, start, with};

const MAP: &str = r#"{"name":"v","configMap":{"name":"cm"}}"#;

/// The folder holds this pod and perhaps a ConfigMap `cm`.
fn folder(desk: &mut Desk, json: &str, value: Option<&str>) {
    let pods = vec![serde_json::from_str::<Pod>(json).expect("a pod")];
    let object = |value: &str| {
        let mut map = ConfigMap::default();
        (map.metadata.namespace, map.metadata.name) = ("default".to_owned(), "cm".to_owned());
        map.data.insert("k".to_owned(), value.to_owned());
        Arc::new(Object::ConfigMap(map))
    };
    let content = Ok(Content { pods, objects: value.map(object).into_iter().collect() });
    desk.tell(Event::Manifests(Folder {
        trouble: None,
        files: vec![File { path: "/m/0".into(), changed_ns: 0, content }],
    }));
}

#[test]
fn a_missing_object_keeps_its_pod_waiting_until_it_comes() {
    let mut desk = Desk::new();
    folder(&mut desk, &with(MAP, MOUNT), None);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    let said = r#"FailedMount MountVolume.SetUp failed for volume "v" : configmap "cm" not found"#;
    assert_eq!(desk.events, [said]);
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    assert_eq!(desk.volume_jobs, ["set up v"]);
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
}

#[test]
fn what_is_wrong_with_a_volume_is_said_once_and_again_when_it_is_something_else() {
    let item = r#"{"name":"v","configMap":{"name":"cm","items":[{"key":"other","path":"f"}]}}"#;
    let mut desk = Desk::new();
    folder(&mut desk, &with(item, MOUNT), None);
    desk.pass(60_000);
    folder(&mut desk, &with(item, MOUNT), Some("1"));
    let count = |desk: &Desk| {
        desk.events.iter().filter(|event| event.contains("MountVolume.SetUp")).count()
    };
    assert_eq!(count(&desk), 2, "{:?}", desk.events);
    folder(&mut desk, &with(item, MOUNT), Some("2"));
    desk.pass(60_000);
    let why = ["configmap \"cm\" not found", "configmap references non-existent config key: other"];
    let said =
        why.map(|why| format!("FailedMount MountVolume.SetUp failed for volume \"v\" : {why}"));
    let told: Vec<&String> =
        desk.events.iter().filter(|event| event.contains("MountVolume.SetUp")).collect();
    assert_eq!(told, said.each_ref());
}

#[test]
fn what_changes_is_written_while_the_pod_runs_and_what_goes_stays() {
    let mut desk = Desk::new();
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    start(&mut desk);
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    assert_eq!(desk.volume_jobs.len(), 1, "nothing changed");
    folder(&mut desk, &with(MAP, MOUNT), Some("2"));
    assert_eq!(desk.volume_jobs.len(), 2);
    folder(&mut desk, &with(MAP, MOUNT), None);
    assert_eq!(desk.volume_jobs.len(), 2, "the old content stays");
    assert_eq!(desk.running(), ["m"]);
    desk.bad_volume = Some("v");
    folder(&mut desk, &with(MAP, MOUNT), Some("3"));
    desk.exits("m", 1);
    desk.does("container_status c2");
    assert_eq!(desk.asked_for(), ["image_status i:1"], "good for the next container");
}

#[test]
fn what_goes_back_while_it_is_written_is_written_again() {
    let mut desk = Desk::new();
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    start(&mut desk);
    desk.taken.hangs = Some("v");
    folder(&mut desk, &with(MAP, MOUNT), Some("2"));
    desk.taken.hangs = None;
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    assert_eq!(desk.volume_jobs.len(), 2, "one at a time");
    let under_way = desk.taken.hung.take().expect("it hangs");
    desk.tell(Event::Job(under_way, Ok(())));
    assert_eq!(desk.volume_jobs.len(), 3, "\"2\" was written over \"1\"");
    desk.pass(60_000);
    assert_eq!(desk.volume_jobs.len(), 3, "and that is all");
}

#[test]
fn what_goes_back_while_it_is_written_is_written_again_when_that_fails() {
    let mut desk = Desk::new();
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    start(&mut desk);
    desk.taken.hangs = Some("v");
    folder(&mut desk, &with(MAP, MOUNT), Some("2"));
    desk.taken.hangs = None;
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    let under_way = desk.taken.hung.take().expect("it hangs");
    desk.tell(Event::Job(under_way, Err(JobError::Failed("no space left".to_owned()))));
    desk.pass(60_000);
    assert_eq!(desk.volume_jobs.len(), 3, "some of \"2\" may have been written");
}

#[test]
fn what_goes_back_after_a_failure_is_written_again() {
    let mut desk = Desk::new();
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    start(&mut desk);
    desk.bad_volume = Some("v");
    folder(&mut desk, &with(MAP, MOUNT), Some("2"));
    desk.bad_volume = None;
    folder(&mut desk, &with(MAP, MOUNT), Some("1"));
    desk.pass(60_000);
    assert_eq!(desk.volume_jobs.len(), 3, "some of \"2\" may be there");
}
