//! Services by name: what is given out to be served, and what containers are told of it.

use std::sync::Arc;

use edged::agent::Config;
use edged::agent::event::Event;
use edged::model::cri::ContainerState;
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::Object;
use edged::model::pod::Pod;
use edged::model::service::{Service, ServiceEntry, ServicesReport};
use edged::model::settings::ServiceSettings;

use crate::harness::{Harness, MAIN, START, container, sandbox};
use crate::made::{annotated, container_of, sandbox_of};

fn switched_on(config: &mut Config) {
    config.services = Some(ServiceSettings::default());
}

/// The folder has the pod `p` with this spec, and a Service that chooses it.
fn put_folder(harness: &mut Harness, spec: &str) {
    let pod = annotated(r#","labels":{"app":"web"}"#, spec);
    let pods = vec![serde_json::from_str::<Pod>(&pod).expect("a pod")];
    let json = r#"{"metadata":{"name":"web","namespace":"default"},"spec":{
        "selector":{"app":"web"},"clusterIP":"10.96.0.7","ports":[{"port":80}]}}"#;
    let service: Service = serde_json::from_str(json).expect("a Service");
    let content = Content { pods, objects: vec![Arc::new(Object::Service(Box::new(service)))] };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

/// The endpoints of each table that was given out, the last one at the end.
fn given(harness: &Harness) -> Vec<Vec<String>> {
    let shown = |entry: &Arc<ServiceEntry>| {
        let all = entry.endpoints.iter().map(|it| format!("{}:{:?}", it.ip, it.ports));
        all.collect::<Vec<_>>()
    };
    harness.services.iter().map(|table| table.iter().flat_map(shown).collect()).collect()
}

#[test]
fn a_pod_is_an_endpoint_as_long_as_it_is_ready() {
    let mut harness = Harness::with(switched_on);
    assert_eq!(harness.services.len(), 0, "the folder was not read");
    put_folder(&mut harness, MAIN);
    harness.does_all(START);
    let last = |harness: &Harness| given(harness).pop().expect("a table");
    assert_eq!(last(&harness), ["10.0.0.5:[80]"]);
    harness.exits("m", 1);
    harness.does("container_status c2");
    assert_eq!(last(&harness), [""; 0]);
    harness.manifests(&[]);
    assert_eq!(harness.services.last().map(Vec::len), Some(0));
}

#[test]
fn after_a_restart_no_table_is_given_out_before_the_pods_are_known() {
    let mut harness = Harness::with(switched_on);
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    put_folder(&mut harness, MAIN);
    harness.does("podsandbox_status s1");
    assert_eq!(given(&harness), [[""; 0]; 0]);
    harness.does("container_status c1");
    assert_eq!(given(&harness), [["10.0.0.5:[80]"]], "the first table is whole");
}

#[test]
fn containers_are_told_of_services_unless_their_pod_says_no() {
    let told = |more: &str| {
        let mut harness = Harness::with(switched_on);
        put_folder(&mut harness, &format!("{more}{MAIN}"));
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        container_of(&mut harness).envs
    };
    let all = told("");
    assert!(all.contains(&("WEB_SERVICE_HOST".to_owned(), "10.96.0.7".to_owned())), "{all:?}");
    assert_eq!(told(r#""enableServiceLinks":false,"#), []);
}

#[test]
fn what_does_not_work_is_shown() {
    let mut harness = Harness::with(switched_on);
    let report = ServicesReport { trouble: vec!["no link".to_owned()], ..Default::default() };
    harness.deliver(Event::Services(Box::new(report)));
    assert!(harness.warnings.contains(&"services: no link".to_owned()), "{:?}", harness.warnings);
    let shown = harness.agent.overview(harness.now).services.expect("they are on");
    assert_eq!(shown.report.trouble, ["no link"]);
    let off = Harness::new();
    assert!(off.agent.overview(off.now).services.is_none());
    assert!(off.agent.service_table().is_none());
}
