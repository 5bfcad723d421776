//! The HTTP API as clients see it, well-behaved ones and others.

use std::io::{Read, Write};

use serde_json::Value;

use crate::World;
use crate::support::agent::{Agent, Site, sleeper};
use crate::support::containerd::is_version;
use crate::support::http::{self, Answer};
use crate::support::wait::until;

crate::tests![
    the_api_shows_pods_health_events_and_metrics,
    the_api_refuses_what_it_does_not_understand,
    slow_and_endless_requests_are_cut_off,
    a_hundred_idle_connections_keep_nobody_from_the_api,
];

fn get(site: &Site, path: &str) -> Answer {
    http::get(site.api, path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn json(answer: &Answer) -> Value {
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn listening(site: &Site) -> Agent<'_> {
    let agent = site.start();
    agent.wait_listening();
    site.wait_trouble("nothing", Value::is_null);
    agent
}

fn the_api_shows_pods_health_events_and_metrics(world: &World) {
    let site = world.site("api-shows");
    let _agent = listening(&site);
    let empty = json(&get(&site, "/pods"));
    assert_eq!((&empty["kind"], &empty["apiVersion"]), (&"PodList".into(), &"v1".into()));
    assert!(empty["items"].is_null(), "an empty list is null, as the kubelet writes it: {empty}");
    site.put("seen.yaml", &sleeper("seen"));
    let pod = site.wait_running("seen");
    for path in ["/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"] {
        let answer = get(&site, path);
        assert_eq!((answer.code, answer.body.trim()), (200, "ok"), "{path}");
    }
    let running = json(&get(&site, "/runningpods/"));
    let one = &running["items"][0];
    assert_eq!(one["metadata"]["name"], "seen-gw", "{running}");
    assert_eq!(one["metadata"]["uid"], pod.uid());
    assert_eq!(one["spec"]["containers"][0]["name"], "main");
    assert_eq!(one["spec"]["containers"][0]["image"], "localhost/edged-demo:1");
    let status = json(&get(&site, "/edged/status"));
    assert_eq!((&status["node"], &status["podsRunning"]), (&"gw".into(), &1.into()), "{status}");
    assert!(status["runtime"].as_str().is_some_and(is_version), "{status}");
    let events = json(&get(&site, "/events"));
    let reasons: Vec<&str> = events["items"]
        .as_array()
        .map(|all| all.iter().filter_map(|event| event["reason"].as_str()).collect())
        .unwrap_or_default();
    for reason in ["Pulled", "Created", "Started"] {
        assert!(reasons.contains(&reason), "{reason} in {reasons:?}");
    }
    let metrics = get(&site, "/metrics");
    assert!(metrics.header("content-type").is_some_and(|it| it.starts_with("text/plain")));
    for name in [
        "kubelet_node_name{node=\"gw\"} 1",
        "kubelet_running_pods 1",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "kubelet_desired_pods",
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 1",
        "kubelet_pod_start_duration_seconds_bucket",
        "kubelet_pleg_relist_duration_seconds_count",
        "process_resident_memory_bytes",
    ] {
        assert!(metrics.body.contains(name), "{name} in\n{}", metrics.body);
    }
    site.take("seen.yaml");
    site.wait_empty();
}

fn the_api_refuses_what_it_does_not_understand(world: &World) {
    let site = world.site("api-refuses");
    let mut agent = listening(&site);
    assert_eq!(get(&site, "/nowhere").code, 404);
    let host = format!("Host: {}\r\n", site.api);
    for (request, code) in [
        (format!("POST /pods HTTP/1.1\r\n{host}\r\n"), 405),
        (format!("DELETE /pods HTTP/1.1\r\n{host}\r\n"), 405),
        (format!("GET /pods HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello"), 413),
        (format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(17 << 10)), 414),
        (format!("GET /pods HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(25 << 10)), 431),
        ("GET /pods HTTP/1.1\r\nHost: attacker.example\r\n\r\n".to_owned(), 403),
        ("GET /pods HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET pods\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1} a TLS client says hello\r\n\r\n".to_owned(), 400),
    ] {
        let answer = http::send(site.api, request.as_bytes());
        let answer = answer.unwrap_or_else(|error| panic!("{error} after {request:.80?}"));
        assert_eq!(answer.code, code, "{answer:?} after {request:.80?}");
    }
    let head = http::send(site.api, format!("HEAD /pods HTTP/1.1\r\n{host}\r\n").as_bytes());
    let head = head.expect("an answer");
    assert_eq!((head.code, &*head.body), (200, ""));
    assert!(agent.lives(), "{}", site.log_tail());
    assert_eq!(get(&site, "/healthz").code, 200);
}

fn slow_and_endless_requests_are_cut_off(world: &World) {
    let site = world.site("api-slow");
    let mut agent = listening(&site);
    // One sends an incomplete request and waits.
    let mut slow = http::connect(site.api).expect("it listens");
    slow.write_all(b"GET /po").expect("it takes words");
    // One never stops sending.
    let mut endless = http::connect(site.api).expect("it listens");
    let junk = vec![b'x'; 64 << 10];
    let written = (0..1000).take_while(|_| endless.write_all(&junk).is_ok()).count();
    assert!(written < 1000, "64 MB of a request were taken");
    // One sends a request and does not read.
    let mut deaf = http::connect(site.api).expect("it listens");
    deaf.write_all(format!("GET /pods HTTP/1.1\r\nHost: {}\r\n\r\n", site.api).as_bytes())
        .expect("it takes words");
    assert_eq!(get(&site, "/healthz").code, 200, "the others are served meanwhile");
    let mut bytes = Vec::new();
    slow.read_to_end(&mut bytes).expect("it is closed in order");
    let answer = http::parse(&bytes).expect("an answer");
    assert_eq!(answer.code, 408, "{answer:?}");
    assert!(agent.lives(), "{}", site.log_tail());
}

fn a_hundred_idle_connections_keep_nobody_from_the_api(world: &World) {
    let site = world.site("api-crowd");
    let mut agent = listening(&site);
    site.put("works.yaml", &sleeper("works"));
    let idle: Vec<_> = (0..100).map(|_| http::connect(site.api)).collect();
    let connected = idle.iter().filter(|one| one.is_ok()).count();
    assert!(connected >= 16, "{connected} connected");
    // The pods do not wait for clients; clients wait for each other, up to the time limit of a
    // request.
    let state = || {
        let running = site.runtime_state().running("main").len();
        if running == 1 { Ok(()) } else { Err(format!("{running} run\n{}", site.log_tail())) }
    };
    until("the pod runs under the crowd", state);
    until("a request is answered", || {
        let answer = http::get(site.api, "/healthz").map_err(|error| error.to_string())?;
        if answer.code == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    drop(idle);
    assert!(agent.lives(), "{}", site.log_tail());
    // And none of the connections is left open.
    let sockets = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).expect("it lives");
        let links = all.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    until("its sockets are few again", || {
        // The runtime's, the listener, and one that may be serving this request.
        let count = sockets();
        if count <= 3 { Ok(()) } else { Err(format!("{count} sockets")) }
    });
    site.take("works.yaml");
    site.wait_empty();
}
