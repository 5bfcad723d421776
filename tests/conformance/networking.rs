//! Networking, granular checks: between pods, and from the node to a pod.

use std::net::UdpSocket;
use std::time::Duration;

use crate::Entry;
use crate::case::{Case, QUICK_END};
use crate::support::agent::{Pod, manifest};
use crate::support::http;
use crate::support::wait::until;

const AREA: &str = "Networking: Pods";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, "should function for intra-pod communication: http", pod_to_pod_http),
    (AREA, "should function for intra-pod communication: udp", pod_to_pod_udp),
    (AREA, "should function for node-pod communication: http", node_to_pod_http),
    (AREA, "should function for node-pod communication: udp", node_to_pod_udp),
];

const HTTP_SERVER: &str = "    command: [sh, -c, 'mkdir -p /tmp/w; hostname > /tmp/w/hostname; \
                           exec httpd -f -p 8080 -h /tmp/w']\n";

fn pod_to_pod_http(case: &Case<'_>) {
    let server = server(case, HTTP_SERVER);
    // Done by a script: the wget of a static busybox cannot look up names.
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

const UDP_SERVER: &str = "    command: [/tools/udp, serve, '8081']\n";

/// Fields of `spec` and of the container: the tools at `/tools`.
fn tools(case: &Case<'_>) -> (String, &'static str) {
    let path = case.node.tools();
    let volume = format!("  volumes: [{{name: tools, hostPath: {{path: {path}}}}}]\n");
    (volume, "    volumeMounts: [{name: tools, mountPath: /tools, readOnly: true}]\n")
}

fn udp_server(case: &Case<'_>) -> Pod {
    let (volume, mount) = tools(case);
    let name = format!("{}-server", case.name);
    let main = format!("{UDP_SERVER}{mount}");
    case.put("server", &manifest(&name, &format!("{QUICK_END}{volume}"), &main));
    case.node.wait_running(&name)
}

fn pod_to_pod_udp(case: &Case<'_>) {
    let server = udp_server(case);
    let (volume, mount) = tools(case);
    // Datagrams may be lost, and the server may not listen yet.
    let ask = format!("/tools/udp ask {} 8081", server.ip());
    let script = format!("for i in 1 2 3 4 5; do {ask} && exit; sleep 1; done; exit 1");
    let output = case.output_of(&volume, mount, &script);
    assert_eq!(output.last().map(String::as_str), Some(server.name()), "{output:?}");
}

fn node_to_pod_udp(case: &Case<'_>) {
    let server = udp_server(case);
    let answer = until("the pod answers the node", || {
        let values = |error: std::io::Error| error.to_string();
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(values)?;
        socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(values)?;
        socket.send_to(b"?", format!("{}:8081", server.ip())).map_err(values)?;
        let mut buffer = [0; 256];
        let (length, _) = socket.recv_from(&mut buffer).map_err(values)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    });
    assert_eq!(answer, server.name());
}

/// A second pod, on the pod network.
fn server(case: &Case<'_>, main: &str) -> Pod {
    let name = format!("{}-server", case.name);
    case.put("server", &manifest(&name, QUICK_END, main));
    case.node.wait_running(&name)
}
