//! Lifecycle hooks: a server of the case is called when a container starts and ends, for main
//! containers and sidecars; and hooks that sleep.

use std::time::{Duration, Instant};

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::manifest;
use crate::support::wait::until;

const MAIN: bool = false;
const SIDECAR: bool = true;

const AREA: &str = "Container Lifecycle Hook";
const SIDECARS: &str = "Restartable Init Container Lifecycle Hook";
const SLEEPS: &str = "Lifecycle Sleep Hook";

const START_EXEC: &str = "should execute poststart exec hook properly";
const STOP_EXEC: &str = "should execute prestop exec hook properly";
const START_HTTP: &str = "should execute poststart http hook properly";
const STOP_HTTP: &str = "should execute prestop http hook properly";
#[cfg(feature = "probe-https")]
const START_HTTPS: &str = "should execute poststart https hook properly";
#[cfg(feature = "probe-https")]
const STOP_HTTPS: &str = "should execute prestop https hook properly";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, START_EXEC, |case| after_start::<MAIN>(case, &exec)),
    (AREA, STOP_EXEC, |case| before_stop::<MAIN>(case, &exec)),
    (AREA, START_HTTP, |case| after_start::<MAIN>(case, &get)),
    (AREA, STOP_HTTP, |case| before_stop::<MAIN>(case, &get)),
    (SIDECARS, START_EXEC, |case| after_start::<SIDECAR>(case, &exec)),
    (SIDECARS, STOP_EXEC, |case| before_stop::<SIDECAR>(case, &exec)),
    (SIDECARS, START_HTTP, |case| after_start::<SIDECAR>(case, &get)),
    (SIDECARS, STOP_HTTP, |case| before_stop::<SIDECAR>(case, &get)),
    #[cfg(feature = "probe-https")]
    (AREA, START_HTTPS, tls_after_start::<MAIN>),
    #[cfg(feature = "probe-https")]
    (AREA, STOP_HTTPS, tls_before_stop::<MAIN>),
    #[cfg(feature = "probe-https")]
    (SIDECARS, START_HTTPS, tls_after_start::<SIDECAR>),
    #[cfg(feature = "probe-https")]
    (SIDECARS, STOP_HTTPS, tls_before_stop::<SIDECAR>),
    ("PreStop", "should call prestop when killing a pod", |case| {
        before_stop::<MAIN>(case, &get);
    }),
    (SLEEPS, "valid prestop hook using sleep action", slept),
    (SLEEPS, "ignore terminated container", not_slept),
    (
        "Lifecycle sleep action zero value",
        "prestop hook using sleep action with zero duration",
        slept_for_nothing,
    ),
];

/// A handler that calls `http://IP:8080/WHAT`.
type Handler = dyn Fn(&str, &str) -> String;

fn exec(ip: &str, what: &str) -> String {
    format!("{{exec: {{command: [wget, -q, -O, /dev/null, 'http://{ip}:8080/{what}']}}}}")
}

fn get(ip: &str, what: &str) -> String {
    format!("{{httpGet: {{host: {ip}, port: 8080, path: /{what}}}}}")
}

/// Writes a pod whose container has this lifecycle.
fn put<const SIDECAR: bool>(case: &Case<'_>, lifecycle: &str) {
    let fields = format!("{SLEEP}    lifecycle:\n      {lifecycle}\n");
    case.put_without_grace("  terminationGracePeriodSeconds: 15\n", &fields, SIDECAR);
}

/// A web server that prints its requests; returns its address.
fn server(case: &Case<'_>) -> String {
    let script = "mkdir /tmp/www; echo hi > /tmp/www/called; exec httpd -f -vv -p 8080 -h /tmp/www";
    let main = format!("    command: [sh, -c, '{script}']\n");
    let name = format!("{}-server", case.name);
    case.put("server", &manifest(&name, QUICK_END, &main));
    let pod = case.node.wait_running(&name);
    pod.0["status"]["podIP"].as_str().expect("it has an address").to_owned()
}

fn was_called(case: &Case<'_>) -> bool {
    let server = case.node.wait_running(&format!("{}-server", case.name));
    let lines = case.node.site.errors(&server, "main", 0);
    lines.iter().any(|line| line.contains("url:/called"))
}

/// The output of a server takes a moment to appear in its log.
fn wait_called(case: &Case<'_>) {
    until("the server was called", || {
        if was_called(case) { Ok(()) } else { Err("nobody asked it for /called".to_owned()) }
    });
}

fn after_start<const SIDECAR: bool>(case: &Case<'_>, handler: &Handler) {
    let ip = server(case);
    put::<SIDECAR>(case, &format!("postStart: {}", handler(&ip, "called")));
    case.node.wait_running(&case.name);
    wait_called(case);
}

fn before_stop<const SIDECAR: bool>(case: &Case<'_>, handler: &Handler) {
    let ip = server(case);
    put::<SIDECAR>(case, &format!("preStop: {}", handler(&ip, "called")));
    let pod = case.node.wait_running(&case.name);
    assert!(!was_called(case), "nothing ends yet");
    case.take("pod");
    wait_called(case);
    case.node.wait_gone(&pod);
}

/// A hook that calls a server of this host over TLS.
#[cfg(feature = "probe-https")]
fn over_tls(server: &crate::probe_servers::TlsServer) -> String {
    let port = server.port;
    format!("{{httpGet: {{host: 127.0.0.1, port: {port}, path: /called, scheme: HTTPS}}}}")
}

#[cfg(feature = "probe-https")]
fn wait_asked(server: &crate::probe_servers::TlsServer) {
    until("the server is asked over TLS", || {
        let requests = server.requests();
        if requests.iter().any(|line| line.starts_with("GET /called ")) {
            Ok(())
        } else {
            Err(format!("{requests:?}"))
        }
    });
}

#[cfg(feature = "probe-https")]
fn tls_after_start<const SIDECAR: bool>(case: &Case<'_>) {
    let server = crate::probe_servers::TlsServer::start();
    put::<SIDECAR>(case, &format!("postStart: {}", over_tls(&server)));
    case.node.wait_running(&case.name);
    wait_asked(&server);
}

#[cfg(feature = "probe-https")]
fn tls_before_stop<const SIDECAR: bool>(case: &Case<'_>) {
    let server = crate::probe_servers::TlsServer::start();
    put::<SIDECAR>(case, &format!("preStop: {}", over_tls(&server)));
    let pod = case.node.wait_running(&case.name);
    assert!(server.requests().is_empty(), "nothing ends yet");
    case.take("pod");
    wait_asked(&server);
    case.node.wait_gone(&pod);
}

/// How long the end of a pod takes whose container has a hook that sleeps.
fn end_after_sleep(case: &Case<'_>, seconds: u32) -> Duration {
    let fields = format!("{SLEEP}    lifecycle: {{preStop: {{sleep: {{seconds: {seconds}}}}}}}\n");
    let spec = "  terminationGracePeriodSeconds: 40\n";
    case.put("pod", &manifest(&case.name, spec, &fields));
    let pod = case.node.wait_running(&case.name);
    case.take("pod");
    let begun = Instant::now();
    case.node.wait_gone(&pod);
    begun.elapsed()
}

fn slept(case: &Case<'_>) {
    let took = end_after_sleep(case, 10);
    let bounds = Duration::from_secs(10)..Duration::from_secs(40);
    assert!(bounds.contains(&took), "ended after {took:?}");
}

fn slept_for_nothing(case: &Case<'_>) {
    let took = end_after_sleep(case, 0);
    assert!(took < Duration::from_secs(30), "ended after {took:?}");
}

/// A container that has ended by itself has no hook to wait for.
fn not_slept(case: &Case<'_>) {
    let fields = "    command: [sh, -c, 'sleep 3']\n    lifecycle: {preStop: {sleep: {seconds: \
                  30}}}\n";
    let spec = "  restartPolicy: Never\n  terminationGracePeriodSeconds: 60\n";
    let begun = Instant::now();
    case.put("pod", &manifest(&case.name, spec, fields));
    case.wait("it has ended", |pod| pod.phase() == "Succeeded");
    assert!(begun.elapsed() < Duration::from_secs(30), "ended after {:?}", begun.elapsed());
}
