//! Container Lifecycle Hook: a server of the case is called when a container begins and ends.

use crate::Row;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::yard::agent::manifest;
use crate::yard::wait::until;

const AREA: &str = "Container Lifecycle Hook";

pub(crate) const ROWS: &[Row] = &[
    (AREA, "should execute poststart exec hook properly", |case| {
        after_start(case, &exec);
    }),
    (AREA, "should execute prestop exec hook properly", |case| before_stop(case, &exec)),
    (AREA, "should execute poststart http hook properly", |case| {
        after_start(case, &|ip, what| get(ip, what, "HTTP"));
    }),
    (AREA, "should execute prestop http hook properly", |case| {
        before_stop(case, &|ip, what| get(ip, what, "HTTP"));
    }),
    #[cfg(feature = "probe-https")]
    (AREA, "should execute poststart https hook properly", |case| {
        after_start(case, &|ip, what| get(ip, what, "HTTPS"));
    }),
    #[cfg(feature = "probe-https")]
    (AREA, "should execute prestop https hook properly", |case| {
        before_stop(case, &|ip, what| get(ip, what, "HTTPS"));
    }),
];

/// A handler that calls `http://IP:8080/WHAT`.
type Handler = dyn Fn(&str, &str) -> String;

fn exec(ip: &str, what: &str) -> String {
    format!("{{exec: {{command: [wget, -q, -O, /dev/null, 'http://{ip}:8080/{what}']}}}}")
}

/// Over HTTPS it meets a server without TLS, and asks it again without.
fn get(ip: &str, what: &str, scheme: &str) -> String {
    format!("{{httpGet: {{host: {ip}, port: 8080, path: /{what}, scheme: {scheme}}}}}")
}

/// A web server that prints what it is asked for; its address.
fn server(case: &Case<'_>) -> String {
    let script = "mkdir /tmp/www; echo hi > /tmp/www/called; exec httpd -f -vv -p 8080 -h /tmp/www";
    let main = format!("    command: [sh, -c, '{script}']\n");
    let name = format!("{}-server", case.name);
    case.put("server", &manifest(&name, QUICK_END, &main));
    let pod = case.node.site.wait_running(&name);
    pod.0["status"]["podIP"].as_str().expect("it has an address").to_owned()
}

fn was_called(case: &Case<'_>) -> bool {
    let server = case.node.site.pod(&format!("{}-server", case.name)).expect("it runs");
    let lines = case.node.site.errors(&server, "main", 0);
    lines.iter().any(|line| line.contains("url:/called"))
}

/// What a server has printed takes a moment to its log.
fn wait_called(case: &Case<'_>) {
    until("the server was called", || {
        if was_called(case) { Ok(()) } else { Err("nobody asked it for /called".to_owned()) }
    });
}

fn after_start(case: &Case<'_>, handler: &Handler) {
    let ip = server(case);
    let hook = handler(&ip, "called");
    case.run("", &format!("{SLEEP}    lifecycle:\n      postStart: {hook}\n"));
    wait_called(case);
}

fn before_stop(case: &Case<'_>, handler: &Handler) {
    let ip = server(case);
    let hook = handler(&ip, "called");
    let main = format!("{SLEEP}    lifecycle:\n      preStop: {hook}\n");
    case.put("pod", &manifest(&case.name, "  terminationGracePeriodSeconds: 15\n", &main));
    let pod = case.node.site.wait_running(&case.name);
    assert!(!was_called(case), "nothing ends yet");
    case.take("pod");
    wait_called(case);
    case.node.site.wait_gone(&pod);
}
