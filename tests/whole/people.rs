//! Logs, commands, ports and usage of pods, through the HTTP API, on a real runtime.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::World;
use crate::support::agent::{Agent, Site, manifest, sleeper};
use crate::support::exec::Exec;
use crate::support::http::{self, Answer};
use crate::support::wait::until;

crate::tests![
    the_log_of_a_container_is_shown_with_its_options,
    a_followed_log_grows_and_ends_with_its_container,
    of_a_container_that_crashed_the_previous_log_is_shown,
    a_command_runs_in_a_container_and_its_exit_code_comes_back,
    a_port_of_a_pod_is_reached,
    usage_is_shown_for_metrics_server,
    only_root_and_who_has_the_token_look_into_pods,
];

fn socket(site: &Site) -> PathBuf {
    site.root.join("edged.sock")
}

fn get(site: &Site, path: &str) -> Answer {
    http::get_of(&socket(site), path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn serving(site: &Site) -> Agent<'_> {
    let agent = site.start();
    agent.wait_listening();
    site.wait_trouble("nothing", Value::is_null);
    agent
}

/// A pod whose container runs this in a shell.
fn shell(name: &str, script: &str) -> String {
    let command = format!("    command: [sh, -c, {script:?}]\n");
    manifest(name, "  hostNetwork: true\n  terminationGracePeriodSeconds: 1\n", &command)
}

fn the_log_of_a_container_is_shown_with_its_options(world: &World) {
    let site = world.site("people-log");
    let _agent = serving(&site);
    let script = "for i in 1 2 3; do echo line $i; done; echo oops >&2; sleep 100000";
    site.put("talks.yaml", &shell("talks", script));
    site.wait_running("talks");
    let path = "/containerLogs/default/talks-gw/main";
    until("the container has written", || {
        let body = get(&site, path).body;
        body.contains("oops").then_some(()).ok_or(body)
    });
    let whole = get(&site, path);
    assert_eq!((whole.code, whole.header("transfer-encoding")), (200, Some("chunked")));
    for line in ["line 1\n", "line 2\n", "line 3\n", "oops\n"] {
        assert!(whole.body.contains(line), "{whole:?}");
    }
    assert_eq!(get(&site, &format!("{path}?tailLines=1")).body.lines().count(), 1);
    assert_eq!(get(&site, &format!("{path}?limitBytes=7")).body.len(), 7);
    assert_eq!(get(&site, &format!("{path}?sinceTime=2100-01-01T00:00:00Z")).body, "");
    let stamped = get(&site, &format!("{path}?timestamps=true&tailLines=2")).body;
    for line in stamped.lines() {
        let (time, _) = line.split_once(' ').expect("a time");
        assert!(time.len() == 30 && time.ends_with('Z'), "{line}");
    }
    for (path, code, text) in [
        ("/containerLogs/default/nobody/main", 404, "pod \"nobody\" does not exist"),
        ("/containerLogs/default/talks-gw/x", 404, "container \"x\" not found in pod \"talks-gw\""),
        (
            "/containerLogs/default/talks-gw/main?previous=true",
            400,
            "previous terminated container \"main\" in pod \"talks-gw\" not found",
        ),
        (
            "/containerLogs/default/talks-gw/main?tailLines=-1",
            422,
            "{\"message\": \"Invalid request.\"}",
        ),
    ] {
        let answer = get(&site, path);
        assert_eq!((answer.code, &*answer.body), (code, text), "{path}");
    }
}

fn a_followed_log_grows_and_ends_with_its_container(world: &World) {
    let site = world.site("people-follow");
    let _agent = serving(&site);
    let script = "trap 'echo bye; exit 0' TERM; while :; do echo tick; sleep 1 & wait; done";
    site.put("ticks.yaml", &shell("ticks", script));
    let pod = site.wait_running("ticks");
    let mut stream = UnixStream::connect(socket(&site)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let path = "/containerLogs/default/ticks-gw/main?follow=true";
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut came = Vec::new();
    let mut buffer = [0; 4_096];
    while String::from_utf8_lossy(&came).matches("tick\n").count() < 4 {
        let count = stream.read(&mut buffer).expect("it goes on");
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&buffer[..count]);
    }
    site.take("ticks.yaml");
    stream.read_to_end(&mut came).expect("it ends");
    let answer = http::parse(&came).expect("a whole answer");
    assert!(answer.body.ends_with("bye\n"), "{answer:?}");
    site.wait_gone(&pod);
}

fn of_a_container_that_crashed_the_previous_log_is_shown(world: &World) {
    let site = world.site("people-previous");
    let _agent = serving(&site);
    site.put("fails.yaml", &shell("fails", "echo from $$; cat /proc/uptime; sleep 1; exit 3"));
    let path = "/containerLogs/default/fails-gw/main";
    let first = until("it runs", || {
        let answer = get(&site, path);
        let text = answer.body.clone();
        (answer.code == 200 && text.contains('.')).then_some(text).ok_or(answer.body)
    });
    until("it has run again", || {
        let pods = site.pods()?;
        let pod = pods.iter().find(|pod| pod.name() == "fails-gw").ok_or("no pod")?;
        let restarts = pod.0["status"]["containerStatuses"][0]["restartCount"].as_u64();
        if restarts >= Some(1) { Ok(()) } else { Err(format!("{restarts:?} restarts")) }
    });
    let previous = get(&site, &format!("{path}?previous=true"));
    assert_eq!(previous.code, 200, "{previous:?}");
    assert_eq!(previous.body, first);
}

fn a_command_runs_in_a_container_and_its_exit_code_comes_back(world: &World) {
    let site = world.site("people-exec");
    let _agent = serving(&site);
    site.put("hosts.yaml", &sleeper("hosts"));
    site.wait_running("hosts");
    let path = "/exec/default/hosts-gw/main?command=sh&command=-c&command=";
    let script = "echo+out;echo+err+%3E%262;exit+3";
    let exec = Exec::open(&socket(&site), &format!("{path}{script}&output=1&error=1"));
    let [_, out, err, status] = exec.rest();
    assert_eq!((&*out, &*err), ("out\n", "err\n"));
    let status: Value = serde_json::from_str(&status).expect("a status");
    assert_eq!(status["details"]["causes"][0]["message"], "3", "{status}");
    let mut exec =
        Exec::open(&socket(&site), &format!("{path}read+line;echo+got+$line&output=1&input=1"));
    exec.send(0, b"hello\n");
    let [_, out, _, status] = exec.rest();
    assert_eq!(out, "got hello\n");
    assert!(status.contains("Success"), "{status}");
    let mut exec = Exec::open(&socket(&site), &format!("{path}stty+size&output=1&input=1&tty=1"));
    exec.send(4, b"{\"Width\":111,\"Height\":33}");
    let [_, out, _, status] = exec.rest();
    assert!(status.contains("Success"), "{out} {status}");
    let refused = get(&site, "/exec/default/hosts-gw/x?command=ls&output=1");
    assert_eq!((refused.code, &*refused.body), (500, "container not found (\"x\")"));
    let run = "POST /run/default/hosts-gw/main?cmd=echo%20hello HTTP/1.1\r\nHost: localhost\r\n\
               Content-Length: 0\r\n\r\n";
    let answer = http::send_to(&socket(&site), run.as_bytes()).expect("an answer");
    assert_eq!((answer.code, &*answer.body), (200, "hello\n"));
    let mut attached = Exec::open(&socket(&site), "/attach/default/hosts-gw/main?output=1");
    assert_eq!(attached.next(), Some((1, Vec::new())), "it says that it is connected");
}

fn a_port_of_a_pod_is_reached(world: &World) {
    let site = world.site("people-port");
    let _agent = serving(&site);
    let script = "mkdir /www; echo hello > /www/index.html; httpd -f -p 8099 -h /www";
    let command = format!("    command: [sh, -c, {script:?}]\n");
    site.put("serves.yaml", &manifest("serves", "  terminationGracePeriodSeconds: 1\n", &command));
    site.wait_running("serves");
    let path = "/portForward/default/serves-gw?port=8099";
    until("its server listens", || {
        let mut forward = Exec::open(&socket(&site), path);
        forward.send(0, b"GET / HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        while let Some((channel, bytes)) = forward.next() {
            text.extend([char::from(b'0' + channel), ':']);
            text.push_str(&String::from_utf8_lossy(&bytes));
            if text.contains("hello") {
                return Ok(());
            }
            if text.contains("connection refused") {
                break;
            }
        }
        Err(text)
    });
}

fn usage_is_shown_for_metrics_server(world: &World) {
    let site = world.site("people-usage");
    let _agent = serving(&site);
    site.put("used.yaml", &sleeper("used"));
    site.wait_running("used");
    let labels = "{container=\"main\",namespace=\"default\",pod=\"used-gw\"}";
    until("its usage is known", || {
        let page = get(&site, "/metrics/resource").body;
        let has = |name: &str| page.contains(&format!("{name}{labels} "));
        let all = has("container_cpu_usage_seconds_total")
            && has("container_memory_working_set_bytes")
            && has("container_start_time_seconds");
        all.then_some(()).ok_or(page)
    });
    let page = get(&site, "/metrics/resource").body;
    assert!(page.contains("\nnode_cpu_usage_seconds_total "), "{page}");
    let summary = until("the file system is measured", || {
        let body = get(&site, "/stats/summary").body;
        let summary: Value = serde_json::from_str(&body).expect("JSON");
        let is_measured = summary["node"]["fs"]["capacityBytes"].as_u64() > Some(0);
        if is_measured { Ok(summary) } else { Err(body) }
    });
    assert_eq!(summary["node"]["nodeName"], "gw");
    assert_eq!(summary["pods"][0]["podRef"]["name"], "used-gw", "{summary}");
    assert!(summary["pods"][0]["memory"]["workingSetBytes"].as_u64() > Some(0), "{summary}");
    let page = get(&site, "/metrics/cadvisor").body;
    assert!(page.contains("container_memory_rss{container=\"main\""), "{page}");
}

fn only_root_and_who_has_the_token_look_into_pods(world: &World) {
    let site = world.site("people-door");
    let agent = serving(&site);
    site.put("closed.yaml", &sleeper("closed"));
    site.wait_running("closed");
    let path = "/containerLogs/default/closed-gw/main";
    let with = |header: &str| {
        let to = site.api;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\n{header}\r\n\r\n");
        http::send(to, request.as_bytes()).expect("an answer").code
    };
    assert_eq!(get(&site, path).code, 200);
    assert_eq!(with("X: y"), 401);
    let token = "0123456789abcdef0123";
    fs::write(site.root.join("edged.token"), token).expect("written");
    assert_eq!(with(&format!("Authorization: Bearer {token}")), 200);
    assert_eq!(with("Authorization: Bearer 0123456789abcdef0124"), 401);
    assert_eq!(with(&format!("Authorization: Bearer {token}\r\nOrigin: http://evil.example")), 403);
    drop(agent);
    site.set("openStreams: true", crate::support::agent::KEEP_ALL);
    let _agent = serving(&site);
    site.wait_running("closed");
    assert_eq!(with("X: y"), 200);
}
