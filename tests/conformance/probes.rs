//! Probing container: what probes of each kind and handler lead to.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use edged::wire::{grpc, hpack};

use crate::Row;
use crate::case::{Case, SLEEP, quoted};
use crate::yard::agent::{Pod, manifest};

const AREA: &str = "Probing container";

pub(crate) const ROWS: &[Row] = &[
    (
        AREA,
        "with readiness probe should not be ready before initial delay and never restart",
        ready_after_delay,
    ),
    (AREA, "with readiness probe that fails should never be ready and never restart", |case| {
        never_ready(case, "exec: {command: ['false']}\n");
    }),
    (AREA, "should be restarted with a exec \"cat /tmp/health\" liveness probe", |case| {
        restarted(case, "touch /tmp/health; sleep 4; rm /tmp/health; ", HEALTH);
    }),
    (AREA, "should *not* be restarted with a exec \"cat /tmp/health\" liveness probe", |case| {
        not_restarted(case, "touch /tmp/health; ", HEALTH);
    }),
    (AREA, "should be restarted with a /healthz http liveness probe", |case| {
        restarted(case, &server(4), HEALTHZ);
    }),
    (AREA, "should *not* be restarted with a /healthz http liveness probe", |case| {
        not_restarted(case, &server(600), HEALTHZ);
    }),
    (AREA, "should *not* be restarted with a tcp:8080 liveness probe", |case| {
        not_restarted(case, &server(600), "tcpSocket: {port: 8080}\n");
    }),
    (AREA, "should have monotonically increasing restart count", restart_count_grows),
    (AREA, "should be restarted with an exec liveness probe with timeout", |case| {
        restarted(case, "", "exec: {command: [sleep, '10']}\n      timeoutSeconds: 1\n");
    }),
    (AREA, "should not be ready with an exec readiness probe timeout", |case| {
        never_ready(case, "exec: {command: [sleep, '10']}\n      timeoutSeconds: 1\n");
    }),
    (AREA, "should override timeoutGracePeriodSeconds when LivenessProbe field is set", |case| {
        own_grace(case, "livenessProbe");
    }),
    (AREA, "should override timeoutGracePeriodSeconds when StartupProbe field is set", |case| {
        own_grace(case, "startupProbe");
    }),
    (AREA, "should *not* be restarted with a GRPC liveness probe", grpc_serving),
    (AREA, "should be restarted with a GRPC liveness probe", grpc_wrong_port),
];

const HEALTH: &str = "exec: {command: [cat, /tmp/health]}\n";
const HEALTHZ: &str = "httpGet: {path: /cgi-bin/healthz, port: 8080}\n";
/// Several rounds of probes.
const A_WHILE: Duration = Duration::from_secs(10);

/// A probe that decides at its first failure.
fn probe(kind: &str, handler: &str) -> String {
    let quick = "      periodSeconds: 1\n      failureThreshold: 1\n";
    format!("    {kind}:\n      {handler}{quick}")
}

/// A container that does this, then waits for its end.
fn container(script: &str) -> String {
    let script = format!("trap 'exit 0' TERM; {script}while :; do sleep 1 & wait; done");
    format!("    command: [sh, -c, {}]\n", quoted(&script))
}

/// A web server whose `/cgi-bin/healthz` is 200 for so many seconds, then 500.
fn server(healthy_s: u32) -> String {
    let cgi = format!(
        "#!/bin/sh\nif [ $(($(date +%s) - $(cat /tmp/began))) -lt {healthy_s} ]; then \
         printf 'HTTP/1.0 200 OK\\r\\n\\r\\nok'; else \
         printf 'HTTP/1.0 500 Internal Server Error\\r\\n\\r\\nerror'; fi\n"
    );
    format!(
        "mkdir -p /tmp/www/cgi-bin; date +%s > /tmp/began; cat > /tmp/www/cgi-bin/healthz <<'END'\n\
         {cgi}END\nchmod +x /tmp/www/cgi-bin/healthz; httpd -p 8080 -h /tmp/www; "
    )
}

fn ready_after_delay(case: &Case<'_>) {
    let probe = "    readinessProbe:\n      exec: {command: ['true']}\n      \
                 initialDelaySeconds: 6\n      periodSeconds: 1\n";
    case.put_pod("", &format!("{SLEEP}{probe}"));
    let running = case.wait("it runs", |pod| pod.phase() == "Running");
    let began = Instant::now();
    assert_eq!(running.condition("Ready"), "False");
    let ready = case.wait("it is ready", |pod| pod.condition("Ready") == "True");
    // A little less than what the node counts: we look later than it does, never earlier.
    assert!(began.elapsed() >= Duration::from_secs(5), "ready after {:?}", began.elapsed());
    assert_eq!(ready.restarts("main"), 0);
}

fn never_ready(case: &Case<'_>, handler: &str) {
    case.put_pod("", &format!("{SLEEP}{}", probe("readinessProbe", handler)));
    case.wait("it runs", |pod| pod.phase() == "Running");
    let end = Instant::now() + A_WHILE;
    while Instant::now() < end {
        let pod = case.pod();
        assert_eq!(pod.condition("Ready"), "False");
        assert_eq!(pod.container("main")["ready"], false);
        assert_eq!(pod.restarts("main"), 0);
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn restarted(case: &Case<'_>, script: &str, handler: &str) {
    case.put_pod("", &format!("{}{}", container(script), late_probe(handler)));
    case.wait("it was restarted", |pod| pod.restarts("main") >= 1);
}

/// Liveness, once the script has had time to begin.
fn late_probe(handler: &str) -> String {
    format!("{}      initialDelaySeconds: 2\n", probe("livenessProbe", handler))
}

fn not_restarted(case: &Case<'_>, script: &str, handler: &str) {
    case.run("", &format!("{}{}", container(script), late_probe(handler)));
    std::thread::sleep(A_WHILE);
    assert_eq!(case.pod().restarts("main"), 0);
}

fn restart_count_grows(case: &Case<'_>) {
    let main = format!("{}{}", container(&server(1)), late_probe(HEALTHZ));
    case.put_pod("", &main);
    let last = std::cell::Cell::new(0);
    case.wait_in(Duration::from_secs(200), "it was restarted five times", |pod| {
        let count = pod.restarts("main");
        assert!(count >= last.get(), "{} restarts after {}", count, last.get());
        last.set(count);
        count >= 5
    });
}

/// The pod would wait for half a minute; its probe does not.
fn own_grace(case: &Case<'_>, kind: &str) {
    let spec = "  terminationGracePeriodSeconds: 30\n";
    let script = "trap 'sleep 25; exit 0' TERM; while :; do sleep 1 & wait; done";
    let main = format!(
        "    command: [sh, -c, {}]\n{}      initialDelaySeconds: 2\n      \
         terminationGracePeriodSeconds: 5\n",
        quoted(script),
        probe(kind, "exec: {command: ['false']}\n")
    );
    case.put("pod", &manifest(&case.name, spec, &main));
    case.wait("it runs", |pod| pod.phase() == "Running");
    let began = Instant::now();
    case.wait("it was restarted", |pod| pod.restarts("main") >= 1);
    let took = began.elapsed();
    let bounds = Duration::from_secs(4)..Duration::from_secs(20);
    assert!(bounds.contains(&took), "restarted after {took:?}");
}

fn grpc_pod(case: &Case<'_>, port: u16) -> Pod {
    let probe = probe("livenessProbe", &format!("grpc: {{port: {port}, service: db}}\n"));
    case.run("  hostNetwork: true\n", &format!("{SLEEP}{probe}"))
}

fn grpc_serving(case: &Case<'_>) {
    let port = serve_health();
    grpc_pod(case, port);
    std::thread::sleep(A_WHILE);
    assert_eq!(case.pod().restarts("main"), 0);
}

fn grpc_wrong_port(case: &Case<'_>) {
    // It listens, and speaks another language.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    grpc_pod(case, port);
    case.wait("it was restarted", |pod| pod.restarts("main") >= 1);
}

/// A server of `grpc.health.v1.Health` on this host that serves.
fn serve_health() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_health(stream));
        }
    });
    port
}

/// One call: HTTP/2 as far as a client that behaves needs it.
fn answer_health(mut stream: TcpStream) -> std::io::Result<()> {
    const PREFACE: usize = 24;
    let frame = |kind: u8, flags: u8, id: u32, payload: &[u8]| {
        let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        out.extend([kind, flags]);
        out.extend(id.to_be_bytes());
        out.extend(payload);
        out
    };
    let block = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        for (name, value) in fields {
            hpack::encode(name, value, &mut out);
        }
        out
    };
    stream.read_exact(&mut [0; PREFACE])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        // DATA with END_STREAM: the question is whole, and names the service that we have.
        if head[3] == 0 && head[4] & 1 == 1 {
            let known = payload.ends_with(b"\x0a\x02db");
            let status: &[u8] = if known { b"\x08\x01" } else { b"\x08\x03" };
            let begin = block(&[(":status", "200"), ("content-type", "application/grpc")]);
            let answer = [
                frame(4, 0, 0, &[]),
                frame(1, 4, 1, &begin),
                frame(0, 0, 1, &grpc::frame(status)),
                frame(1, 5, 1, &block(&[("grpc-status", "0")])),
            ];
            return stream.write_all(&answer.concat());
        }
    }
}
