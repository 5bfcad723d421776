//! RuntimeClasses: the runtime handler of a pod.

use std::sync::Arc;

use edged::agent::event::Event;
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{Object, RuntimeClass};
use edged::model::pod::Pod;

use crate::harness::{Harness, MAIN};
use crate::made::{annotated, sandbox_of};

/// The folder contains a pod of class `small`, and that class if it has a handler.
fn put_folder(harness: &mut Harness, handler: Option<&str>, overhead: &str) {
    let spec = format!(r#""runtimeClassName":"small",{overhead}{MAIN}"#);
    let pods = vec![serde_json::from_str::<Pod>(&annotated("", &spec)).expect("a pod")];
    let class = handler.map(|handler| {
        let mut class = RuntimeClass::default();
        "small".clone_into(&mut class.metadata.name);
        handler.clone_into(&mut class.handler);
        let quantity = "250m".parse().expect("a quantity");
        class.overhead.pod_fixed.insert("cpu".to_owned(), quantity);
        Arc::new(Object::RuntimeClass(class))
    });
    let content = Content { pods, objects: class.into_iter().collect() };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

#[test]
fn a_class_names_the_handler_and_what_the_sandbox_needs() {
    let mut harness = Harness::new();
    put_folder(&mut harness, Some("kata"), "");
    let sandbox = sandbox_of(&mut harness);
    assert_eq!((&*sandbox.runtime_handler, sandbox.overhead.cpu_shares), ("kata", 256));
    let mut harness = Harness::new();
    put_folder(&mut harness, Some("kata"), r#""overhead":{"cpu":"500m"},"#);
    assert_eq!(sandbox_of(&mut harness).overhead.cpu_shares, 512, "the pod's own stands over it");
}

#[test]
fn a_class_that_is_not_there_keeps_the_pod_from_starting_until_it_is() {
    let mut harness = Harness::new();
    put_folder(&mut harness, None, "");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let event = "FailedCreatePodSandBox Failed to create pod sandbox: failed to get RuntimeClass \
                 small: runtimeclass.node.k8s.io \"small\" not found";
    assert!(harness.events.contains(&event.to_owned()), "{:?}", harness.events);
    assert_eq!(harness.status()["phase"], "Pending");
    put_folder(&mut harness, Some("runc"), "");
    harness.pass(11_000);
    assert_eq!(&*sandbox_of(&mut harness).runtime_handler, "runc");
}
