//! RuntimeClasses, as objects of the manifest folder.

use crate::Row;
use crate::case::{Case, SLEEP};

const AREA: &str = "RuntimeClass";

pub(crate) const ROWS: &[Row] = &[
    (AREA, "should reject a Pod requesting a non-existent RuntimeClass", absent),
    (AREA, "should schedule a Pod requesting a RuntimeClass without PodOverhead", present),
    (AREA, "should reject a Pod requesting a deleted RuntimeClass", deleted),
];

fn class(case: &Case<'_>) -> String {
    format!(
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: {}}}\nhandler: runc\n",
        case.name
    )
}

fn put_pod(case: &Case<'_>) {
    case.put_pod(&format!("  runtimeClassName: {}\n", case.name), SLEEP);
}

/// It stays without a sandbox.
fn is_refused(case: &Case<'_>) {
    let pod = case.wait("it is there", |pod| !pod.0["status"]["conditions"].is_null());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let pod = [pod, case.pod()];
    for pod in pod {
        assert_eq!(pod.phase(), "Pending");
        assert_eq!(pod.0["status"]["conditions"][0]["type"], "PodReadyToStartContainers");
        assert_eq!(pod.0["status"]["conditions"][0]["status"], "False");
    }
}

fn absent(case: &Case<'_>) {
    put_pod(case);
    is_refused(case);
}

fn present(case: &Case<'_>) {
    case.put("class", &class(case));
    put_pod(case);
    case.wait("it runs", crate::yard::agent::Pod::runs);
}

fn deleted(case: &Case<'_>) {
    case.put("class", &class(case));
    case.take("class");
    put_pod(case);
    is_refused(case);
}
