//! RuntimeClasses, as objects of the manifest folder.

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::{Pod, manifest};
use crate::support::wait::until;

const AREA: &str = "RuntimeClass";

pub(crate) const ROWS: &[Entry] = &[
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
    case.wait("it runs", Pod::runs);
}

/// While it exists its pods run; only after its removal a pod of it is refused.
fn deleted(case: &Case<'_>) {
    case.put("class", &class(case));
    put_pod(case);
    let pod = case.wait("a pod of it runs", Pod::runs);
    case.take("pod");
    case.node.wait_gone(&pod);
    case.take("class");
    // The agent does not report the removal of an object of the folder: pods of it show when it is
    // gone.
    let mut number = 0;
    until("a pod of it is refused", || {
        number += 1;
        let name = format!("{}-{number}", case.name);
        let spec = format!("{QUICK_END}  runtimeClassName: {}\n", case.name);
        case.put("asking", &manifest(&name, &spec, SLEEP));
        let pod = until("it is there", || {
            let pod = case.node.pod(&name)?;
            let shown = !pod.0["status"]["conditions"].is_null();
            if shown { Ok(pod) } else { Err(pod.0["status"].to_string()) }
        });
        case.take("asking");
        case.node.wait_gone(&pod);
        let ran = pod.condition("PodReadyToStartContainers") == "True";
        if ran { Err(pod.0["status"].to_string()) } else { Ok(()) }
    });
    put_pod(case);
    is_refused(case);
}
