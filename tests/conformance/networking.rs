//! Networking, granular checks: between pods, and from the node to a pod.

use crate::Row;
use crate::case::{Case, QUICK_END};
use crate::yard::agent::{Pod, manifest};
use crate::yard::http;
use crate::yard::wait::until;

const AREA: &str = "Networking: Pods";

pub(crate) const ROWS: &[Row] = &[
    (AREA, "should function for intra-pod communication: http", pod_to_pod_http),
    (AREA, "should function for node-pod communication: http", node_to_pod_http),
];

const HTTP_SERVER: &str = "    command: [sh, -c, 'mkdir -p /tmp/w; hostname > /tmp/w/hostname; \
                           exec httpd -f -p 8080 -h /tmp/w']\n";

fn pod_to_pod_http(case: &Case<'_>) {
    let server = server(case, HTTP_SERVER);
    // By hand: the wget of a static busybox cannot look up names.
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' \
         | nc -w 2 {} 8080 | grep '^case-' && exit; sleep 1; done; exit 1",
        server.ip()
    );
    assert_eq!(case.output_of("", "", &script), [server.name()]);
}

fn node_to_pod_http(case: &Case<'_>) {
    let server = server(case, HTTP_SERVER);
    let address = format!("{}:8080", server.ip()).parse().expect("an address");
    let answer = until("the pod answers the node", || {
        http::get(address, "/hostname").map_err(|error| error.to_string())
    });
    assert_eq!(answer.body.trim(), server.name());
}

/// A second pod, on the pod network.
fn server(case: &Case<'_>, main: &str) -> Pod {
    let name = format!("{}-server", case.name);
    case.put("server", &manifest(&name, QUICK_END, main));
    case.node.site.wait_running(&name)
}
