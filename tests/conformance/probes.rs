//! Probes of each kind and handler, of main containers and of sidecars.

use std::time::{Duration, Instant};

use crate::Entry;
use crate::case::{Case, SLEEP, quoted};
use crate::pod_status::since;
use crate::pods::day_s;
use crate::probe_servers::{serve_health, serve_mail};
use crate::support::agent::Pod;
use crate::support::wait::always;

/// The probed container, as a parameter of the cases.
const MAIN: bool = false;
const SIDECAR: bool = true;

const AREA: &str = "Probing container";
const SIDECARS: &str = "Probing restartable init container";

const DELAYED: &str =
    "with readiness probe should not be ready before initial delay and never restart";
const FAILING: &str = "with readiness probe that fails should never be ready and never restart";
const CAT: &str = "should be restarted with a exec \"cat /tmp/health\" liveness probe";
const NOT_CAT: &str = "should *not* be restarted with a exec \"cat /tmp/health\" liveness probe";
const HTTP: &str = "should be restarted with a /healthz http liveness probe";
const NOT_HTTP: &str = "should *not* be restarted with a /healthz http liveness probe";
const NOT_TCP: &str = "should *not* be restarted with a tcp:8080 liveness probe";
const MONOTONIC: &str = "should have monotonically increasing restart count";
const TIMEOUT: &str = "should be restarted with an exec liveness probe with timeout";
const READY_TIMEOUT: &str = "should not be ready with an exec readiness probe timeout";
const LATE_FAILURE: &str =
    "should be restarted with a failing exec liveness probe that took longer than the timeout";
const REDIRECT: &str = "should be restarted with a local redirect http liveness probe";
const NOT_REDIRECT: &str =
    "should *not* be restarted with a non-local redirect http liveness probe";
const STARTUP: &str = "should be restarted startup probe fails";
const NOT_STARTUP: &str =
    "should *not* be restarted by liveness probe because startup probe delays it";
const AFTER_STARTUP: &str = "should be restarted by liveness probe after startup probe enables it";
const READY_AFTER_STARTUP: &str = "should be ready immediately after startupProbe succeeds";
const GRACE: &str = "should override timeoutGracePeriodSeconds when LivenessProbe field is set";
const STARTUP_GRACE: &str =
    "should override timeoutGracePeriodSeconds when StartupProbe field is set";
const NOT_GRPC: &str = "should *not* be restarted with a GRPC liveness probe";
const GRPC: &str = "should be restarted with a GRPC liveness probe";
const TERMINATING: &str = "should mark readiness on pods to false while pod is in progress of \
                           terminating when a pod has a readiness probe";
const TERMINATING_QUIETLY: &str = "should mark readiness on pods to false and disable liveness \
                                   probes while pod is in progress of terminating";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, DELAYED, ready_after_delay::<MAIN>),
    (AREA, CAT, |case| {
        restarted::<MAIN>(case, &live("touch /tmp/health; sleep 4; rm /tmp/health; ", HEALTH));
    }),
    (AREA, HTTP, |case| restarted::<MAIN>(case, &live(&server(4), HEALTHZ))),
    (AREA, MONOTONIC, grows::<MAIN>),
    (AREA, TIMEOUT, |case| restarted::<MAIN>(case, &live("", SLOW))),
    (AREA, LATE_FAILURE, |case| {
        let late = "exec: {command: [sh, -c, 'sleep 10 & exit 1']}\n      timeoutSeconds: 1\n";
        restarted::<MAIN>(case, &live("", late));
    }),
    (AREA, REDIRECT, |case| {
        let local = "httpGet: {path: /cgi-bin/local, port: 8080}\n";
        restarted::<MAIN>(case, &live(&server(4), local));
    }),
    (AREA, STARTUP, startup_fails::<MAIN>),
    (AREA, AFTER_STARTUP, startup_enables::<MAIN>),
    (AREA, READY_AFTER_STARTUP, ready_at_startup::<MAIN>),
    (AREA, GRACE, |case| own_grace::<MAIN>(case, "livenessProbe")),
    (AREA, STARTUP_GRACE, |case| own_grace::<MAIN>(case, "startupProbe")),
    (AREA, GRPC, grpc_wrong_port::<MAIN>),
    (AREA, TERMINATING, unready_at_end::<MAIN>),
    (AREA, TERMINATING_QUIETLY, unprobed_at_end::<MAIN>),
    (SIDECARS, DELAYED, ready_after_delay::<SIDECAR>),
    (SIDECARS, CAT, |case| {
        restarted::<SIDECAR>(case, &live("touch /tmp/health; sleep 4; rm /tmp/health; ", HEALTH));
    }),
    (SIDECARS, HTTP, |case| restarted::<SIDECAR>(case, &live(&server(4), HEALTHZ))),
    (SIDECARS, MONOTONIC, grows::<SIDECAR>),
    (SIDECARS, TIMEOUT, |case| restarted::<SIDECAR>(case, &live("", SLOW))),
    (SIDECARS, LATE_FAILURE, |case| {
        let late = "exec: {command: [sh, -c, 'sleep 10 & exit 1']}\n      timeoutSeconds: 1\n";
        restarted::<SIDECAR>(case, &live("", late));
    }),
    (SIDECARS, REDIRECT, |case| {
        let local = "httpGet: {path: /cgi-bin/local, port: 8080}\n";
        restarted::<SIDECAR>(case, &live(&server(4), local));
    }),
    (SIDECARS, STARTUP, startup_fails::<SIDECAR>),
    (SIDECARS, AFTER_STARTUP, startup_enables::<SIDECAR>),
    (SIDECARS, READY_AFTER_STARTUP, ready_at_startup::<SIDECAR>),
    (SIDECARS, GRACE, |case| own_grace::<SIDECAR>(case, "livenessProbe")),
    (SIDECARS, STARTUP_GRACE, |case| own_grace::<SIDECAR>(case, "startupProbe")),
    (SIDECARS, GRPC, grpc_wrong_port::<SIDECAR>),
    (SIDECARS, TERMINATING, unready_at_end::<SIDECAR>),
    (SIDECARS, TERMINATING_QUIETLY, unprobed_at_end::<SIDECAR>),
];

/// Cases that check for minutes that nothing happens.
pub(crate) const WATCHES: &[Entry] = &[
    (AREA, FAILING, |case| never_ready::<MAIN>(case, "exec: {command: ['false']}\n")),
    (AREA, READY_TIMEOUT, |case| never_ready::<MAIN>(case, SLOW)),
    (AREA, NOT_CAT, |case| not_restarted::<MAIN>(case, "", &calm("touch /tmp/health; ", HEALTH))),
    (AREA, NOT_HTTP, |case| not_restarted::<MAIN>(case, "", &calm(&server(600), HEALTHZ))),
    (AREA, NOT_TCP, |case| {
        not_restarted::<MAIN>(case, "", &calm(&server(600), "tcpSocket: {port: 8080}\n"));
    }),
    (AREA, NOT_REDIRECT, elsewhere::<MAIN>),
    (AREA, NOT_STARTUP, startup_delays::<MAIN>),
    (AREA, NOT_GRPC, grpc_serving::<MAIN>),
    (SIDECARS, FAILING, |case| never_ready::<SIDECAR>(case, "exec: {command: ['false']}\n")),
    (SIDECARS, READY_TIMEOUT, |case| never_ready::<SIDECAR>(case, SLOW)),
    (SIDECARS, NOT_CAT, |case| {
        not_restarted::<SIDECAR>(case, "", &calm("touch /tmp/health; ", HEALTH));
    }),
    (SIDECARS, NOT_HTTP, |case| not_restarted::<SIDECAR>(case, "", &calm(&server(600), HEALTHZ))),
    (SIDECARS, NOT_TCP, |case| {
        not_restarted::<SIDECAR>(case, "", &calm(&server(600), "tcpSocket: {port: 8080}\n"));
    }),
    (SIDECARS, NOT_REDIRECT, elsewhere::<SIDECAR>),
    (SIDECARS, NOT_STARTUP, startup_delays::<SIDECAR>),
    (SIDECARS, NOT_GRPC, grpc_serving::<SIDECAR>),
];

const HEALTH: &str = "exec: {command: [cat, /tmp/health]}\n";
const HEALTHZ: &str = "httpGet: {path: /cgi-bin/healthz, port: 8080}\n";
const SLOW: &str = "exec: {command: [sleep, '10']}\n      timeoutSeconds: 1\n";
/// As long as upstream observes a container that must not restart.
const UNRESTARTED: Duration = Duration::from_secs(240);
/// As long as upstream observes a pod that must not become ready.
const UNREADY: Duration = Duration::from_secs(60);

/// The name of the probed container.
const fn probed(sidecar: bool) -> &'static str {
    if sidecar { "sidecar" } else { "main" }
}

/// Writes a pod whose probed container has these fields; a sidecar runs beside a `main` that
/// sleeps.
fn put<const SIDECAR: bool>(case: &Case<'_>, spec: &str, fields: &str) {
    if SIDECAR {
        let sidecar = "  initContainers:\n  - name: sidecar\n    restartPolicy: Always\n    image: \
                       localhost/edged-demo:1\n";
        case.put_pod(&format!("{spec}{sidecar}{fields}"), SLEEP);
    } else {
        case.put_pod(spec, fields);
    }
}

/// Waits until the probed container has begun.
fn wait_begun<const SIDECAR: bool>(case: &Case<'_>) -> Pod {
    case.wait("it has begun", |pod| {
        let state = &pod.container(probed(SIDECAR))["state"];
        state["running"].is_object() || state["terminated"].is_object()
    })
}

/// A probe with a failure threshold of one.
fn probe(kind: &str, handler: &str) -> String {
    let quick = "      periodSeconds: 1\n      failureThreshold: 1\n";
    format!("    {kind}:\n      {handler}{quick}")
}

/// A container that runs this script, then waits for its end.
fn container(script: &str) -> String {
    let script = format!("trap 'exit 0' TERM; {script}while :; do sleep 1 & wait; done");
    format!("    command: [sh, -c, {}]\n", quoted(&script))
}

/// A web server whose `/cgi-bin/healthz` is 200 for this many seconds, then 500; `/cgi-bin/local`
/// redirects there, and `/cgi-bin/elsewhere` to another host.
fn server(healthy_s: u32) -> String {
    let cgi = format!(
        "#!/bin/sh\nif [ $(($(date +%s) - $(cat /tmp/began))) -lt {healthy_s} ]; then \
         printf 'HTTP/1.0 200 OK\\r\\n\\r\\nok'; else \
         printf 'HTTP/1.0 500 Internal Server Error\\r\\n\\r\\nerror'; fi\n"
    );
    let redirect = |to: &str| {
        format!(
            "#!/bin/sh\nprintf 'HTTP/1.0 302 Found\\r\\nLocation: {to}\\r\\n\\r\\n<a href=\"{to}\">\
             Found</a>.'\n"
        )
    };
    let file =
        |name: &str, text: &str| format!("cat > /tmp/www/cgi-bin/{name} <<'END'\n{text}END\n");
    format!(
        "mkdir -p /tmp/www/cgi-bin; date +%s > /tmp/began; {}{}{}\
         chmod +x /tmp/www/cgi-bin/*; httpd -p 8080 -h /tmp/www; ",
        file("healthz", &cgi),
        file("local", &redirect("/cgi-bin/healthz")),
        file("elsewhere", &redirect("http://0.0.0.0/")),
    )
}

fn ready_after_delay<const SIDECAR: bool>(case: &Case<'_>) {
    let probe = "    readinessProbe:\n      exec: {command: ['true']}\n      \
                 initialDelaySeconds: 6\n      periodSeconds: 1\n";
    put::<SIDECAR>(case, "", &format!("{SLEEP}{probe}"));
    let running = case.wait("it runs", |pod| pod.phase() == "Running");
    assert_eq!(running.condition("Ready"), "False");
    let ready = case.wait("it is ready", |pod| pod.condition("Ready") == "True");
    // By the status, in whole seconds: the time of a busy case's poll is not reliable.
    let started = &ready.container(probed(SIDECAR))["state"]["running"]["startedAt"];
    let started_s = day_s(started.as_str().expect("a time"));
    let took_s = (day_s(&since(&ready, "Ready", "True")) - started_s).rem_euclid(24 * 3600);
    assert!(took_s >= 5, "ready after {took_s} s");
    assert_eq!(ready.restarts(probed(SIDECAR)), 0);
}

fn never_ready<const SIDECAR: bool>(case: &Case<'_>, handler: &str) {
    put::<SIDECAR>(case, "", &format!("{SLEEP}{}", probe("readinessProbe", handler)));
    case.wait("it runs", |pod| pod.phase() == "Running");
    always(UNREADY, "it is not ready and does not restart", || {
        let pod = case.pod();
        let container = pod.container(probed(SIDECAR));
        let holds = pod.condition("Ready") == "False"
            && container["ready"] == false
            && container["restartCount"] == 0;
        if holds { Ok(()) } else { Err(pod.0["status"].to_string()) }
    });
}

fn restarted<const SIDECAR: bool>(case: &Case<'_>, fields: &str) {
    put::<SIDECAR>(case, "", fields);
    case.wait("it was restarted", |pod| pod.restarts(probed(SIDECAR)) >= 1);
}

/// A container with this script and a liveness probe that starts after the script.
fn live(script: &str, handler: &str) -> String {
    let probe = probe("livenessProbe", handler);
    format!("{}{probe}      initialDelaySeconds: 2\n", container(script))
}

/// The same with upstream's timeout: a second is too short where other cases start pods.
fn calm(script: &str, handler: &str) -> String {
    let patient =
        "      initialDelaySeconds: 2\n      timeoutSeconds: 5\n      failureThreshold: 1\n";
    format!("{}    livenessProbe:\n      {handler}{patient}", container(script))
}

fn not_restarted<const SIDECAR: bool>(case: &Case<'_>, spec: &str, fields: &str) {
    put::<SIDECAR>(case, spec, fields);
    wait_begun::<SIDECAR>(case);
    always(UNRESTARTED, "it does not restart", || {
        let pod = case.pod();
        let container = pod.container(probed(SIDECAR));
        let holds = container["restartCount"] == 0 && container["state"]["running"].is_object();
        std::thread::sleep(Duration::from_secs(1));
        if holds { Ok(()) } else { Err(container.to_string()) }
    });
}

fn grows<const SIDECAR: bool>(case: &Case<'_>) {
    put::<SIDECAR>(case, "", &live(&server(1), HEALTHZ));
    let last = std::cell::Cell::new(0);
    case.wait_in(Duration::from_secs(200), "it was restarted five times", |pod| {
        let count = pod.restarts(probed(SIDECAR));
        assert!(count >= last.get(), "{} restarts after {}", count, last.get());
        last.set(count);
        count >= 5
    });
}

/// A redirect to another host is a success, with an event.
fn elsewhere<const SIDECAR: bool>(case: &Case<'_>) {
    let handler = "httpGet: {path: /cgi-bin/elsewhere, port: 8080}\n";
    not_restarted::<SIDECAR>(case, "", &calm(&server(600), handler));
    let messages = case.events("ProbeWarning");
    let want = "Probe terminated redirects, Response body: <a href=\"http://0.0.0.0/\">Found</a>.";
    assert!(messages.iter().any(|message| message.contains(want)), "{messages:?}");
}

fn startup_fails<const SIDECAR: bool>(case: &Case<'_>) {
    let live = "    livenessProbe:\n      exec: {command: ['true']}\n";
    let startup = "    startupProbe:\n      exec: {command: ['false']}\n      periodSeconds: 1\n";
    restarted::<SIDECAR>(case, &format!("{SLEEP}{live}{startup}"));
}

fn startup_delays<const SIDECAR: bool>(case: &Case<'_>) {
    let live = probe("livenessProbe", "exec: {command: ['false']}\n");
    let startup = "    startupProbe:\n      exec: {command: ['false']}\n      \
                   initialDelaySeconds: 15\n      failureThreshold: 60\n";
    not_restarted::<SIDECAR>(case, "", &format!("{SLEEP}{live}{startup}"));
}

fn startup_enables<const SIDECAR: bool>(case: &Case<'_>) {
    let live = probe("livenessProbe", "exec: {command: ['false']}\n");
    let startup = "    startupProbe:\n      exec: {command: [cat, /tmp/startup]}\n      \
                   periodSeconds: 1\n      failureThreshold: 60\n";
    let container = container("sleep 6; echo ok > /tmp/startup; ");
    let begun = Instant::now();
    restarted::<SIDECAR>(case, &format!("{container}{live}{startup}"));
    assert!(begun.elapsed() >= Duration::from_secs(6), "restarted before it had started");
}

fn ready_at_startup<const SIDECAR: bool>(case: &Case<'_>) {
    let ready = "    readinessProbe:\n      exec: {command: [cat, /tmp/health]}\n      \
                 periodSeconds: 30\n";
    let startup = "    startupProbe:\n      exec: {command: [cat, /tmp/startup]}\n      \
                   periodSeconds: 5\n      failureThreshold: 120\n";
    let container = container("echo ok > /tmp/health; sleep 12; echo ok > /tmp/startup; ");
    put::<SIDECAR>(case, "", &format!("{container}{ready}{startup}"));
    let started =
        case.wait("it has started", |pod| pod.container(probed(SIDECAR))["started"] == true);
    let since = Instant::now();
    assert!(started.container(probed(SIDECAR))["state"]["running"].is_object());
    case.wait("it is ready", |pod| pod.condition("Ready") == "True");
    assert!(since.elapsed() <= Duration::from_secs(25), "ready after {:?}", since.elapsed());
}

/// The pod would wait for minutes; its probe does not.
fn own_grace<const SIDECAR: bool>(case: &Case<'_>, kind: &str) {
    let spec = "  terminationGracePeriodSeconds: 500\n";
    let probe = probe(kind, "exec: {command: ['false']}\n");
    let fields = format!(
        "    command: [sh, -c, 'sleep 1000']\n{probe}      initialDelaySeconds: 2\n      \
         terminationGracePeriodSeconds: 5\n"
    );
    case.put_without_grace(spec, &fields, SIDECAR);
    wait_begun::<SIDECAR>(case);
    let began = Instant::now();
    case.wait("it was restarted", |pod| pod.restarts(probed(SIDECAR)) >= 1);
    let took = began.elapsed();
    let bounds = Duration::from_secs(4)..Duration::from_secs(40);
    assert!(bounds.contains(&took), "restarted after {took:?}");
    case.end_at_once();
}

/// A container on the host's network that is probed there.
fn requests(port: u16) -> String {
    let probe = probe("livenessProbe", &format!("grpc: {{port: {port}, service: db}}\n"));
    format!("{SLEEP}{probe}      timeoutSeconds: 5\n")
}

const HOST: &str = "  hostNetwork: true\n";

fn grpc_serving<const SIDECAR: bool>(case: &Case<'_>) {
    not_restarted::<SIDECAR>(case, HOST, &requests(serve_health()));
}

fn grpc_wrong_port<const SIDECAR: bool>(case: &Case<'_>) {
    put::<SIDECAR>(case, HOST, &requests(serve_mail()));
    case.wait("it was restarted", |pod| pod.restarts(probed(SIDECAR)) >= 1);
}

/// A container that takes its time to end, and whose probes notice that.
fn terminating<const SIDECAR: bool>(case: &Case<'_>, liveness: bool) -> Pod {
    let script = "trap 'rm -f /tmp/ready /tmp/live; sleep 8; exit 0' TERM; touch /tmp/ready \
                  /tmp/live; while :; do sleep 1 & wait $!; done";
    let mut fields = format!("    command: [sh, -c, {}]\n", quoted(script));
    fields += &probe("readinessProbe", "exec: {command: [cat, /tmp/ready]}\n");
    if liveness {
        fields += &probe("livenessProbe", "exec: {command: [cat, /tmp/live]}\n");
        fields += "      initialDelaySeconds: 2\n";
    }
    case.put_without_grace("  terminationGracePeriodSeconds: 30\n", &fields, SIDECAR);
    let pod = case.wait("it is ready", |pod| pod.condition("Ready") == "True");
    case.take("pod");
    case.wait("it is not ready while it ends", |pod| pod.condition("Ready") == "False");
    pod
}

fn unready_at_end<const SIDECAR: bool>(case: &Case<'_>) {
    terminating::<SIDECAR>(case, false);
}

fn unprobed_at_end<const SIDECAR: bool>(case: &Case<'_>) {
    let pod = terminating::<SIDECAR>(case, true);
    case.node.wait_gone(&pod);
    let messages = case.events("Unhealthy");
    let failed = messages.iter().any(|message| message.contains("Liveness probe failed"));
    assert!(!failed, "{messages:?}");
}
