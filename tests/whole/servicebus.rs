//! ServiceBus: the cloud calls a service on the gateway, and an application on the gateway gets an
//! answer from the cloud, also after the agent was killed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use super::World;
use super::support::agent::Site;
use super::support::cloud::{Cloud, Received, Setup};
use super::support::http::ask;
use super::support::joined::{join, with_module};
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(calls_go_to_services_of_the_gateway_and_requests_of_applications_to_the_cloud);

/// The rule's URL.
const URL: &str = "http://cloud.example/orders";

/// Switches ServiceBus on, with applications on this port.
fn with_service_bus(site: &Site, port: u16) {
    with_module(site, &format!("  serviceBus:\n    enable: true\n    port: {port}\n"));
}

/// A message of the router; returns its id.
fn router(cloud: &Cloud, id: &str, [operation, resource]: [&str; 2], content: &Value) {
    cloud.send(&json!({
        "header": {"msg_id": id, "timestamp": 1},
        "route": {"source": "router_servicebus", "group": "user", "operation": operation,
                  "resource": resource},
        "content": content,
    }));
}

/// A service that says what it was asked, on a port that this returns.
fn service() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let first = String::from_utf8_lossy(&head);
            let first = first.lines().next().unwrap_or_default();
            let length = first.len();
            let answer = format!(
                "HTTP/1.1 207 Some\r\nX-Kind: echo\r\nContent-Length: {length}\r\n\r\n{first}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

/// The answer of the agent to a message of the router.
fn answer(cloud: &Cloud, id: &str) -> Value {
    let is_it = |it: &Received| it.parent() == id;
    let answer = cloud.wait(&format!("the answer to {id}"), is_it);
    assert_eq!((answer.operation(), answer.resource()), ("upload", ""), "{answer:?}");
    answer.content()
}

/// What an application gets on this port.
fn post(port: u16, url: &str) -> Result<Value, String> {
    let body = json!({"method": "POST", "targetURL": url, "payload": {"a": 1}}).to_string();
    let answer = ask(port, "POST", "/", &body)?;
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).map_err(|error| format!("{error}: {answer:?}"))
}

fn calls_go_to_services_of_the_gateway_and_requests_of_applications_to_the_cloud(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("servicebus");
    join(&mut site, &cloud);
    let (entry, port) = (free_port(), service());
    with_service_bus(&site, entry);
    let agent = site.start();
    cloud.connected(1);

    let call = json!({"header": {"Accept": ["*/*"]}, "body": null, "method": "GET", "url": ""});
    router(&cloud, "call-1", ["GET", &format!("{port}:/echo?x=1")], &call);
    let got = answer(&cloud, "call-1");
    assert_eq!((&got["status_code"], &got["header"]["X-Kind"]), (&json!(207), &json!(["echo"])));
    // «GET /echo?x=1 HTTP/1.1»
    assert_eq!(got["body"], "R0VUIC9lY2hvP3g9MSBIVFRQLzEuMQ==");
    router(&cloud, "call-2", ["GET", "22:/"], &call);
    assert_eq!(answer(&cloud, "call-2")["status_code"], 403);
    router(&cloud, "call-3", ["GET", &format!("{}:/", free_port())], &call);
    assert_eq!(answer(&cloud, "call-3")["status_code"], 404);

    assert!(post(entry, URL).is_err(), "there is no rule");
    router(&cloud, "rule-1", ["start", URL], &Value::Null);
    until("applications are let in", || post(entry, "other").map(drop));
    let why = post(entry, "other").expect("an answer")["msg"].clone();
    assert!(why.as_str().is_some_and(|why| why.starts_with("url other is not allowed")), "{why}");

    // The rule outlives the agent.
    agent.kill();
    let _agent = site.start();
    cloud.connected(2);
    let client = std::thread::spawn(move || {
        let mut got = Err("not tried".to_owned());
        until("applications are let in", || {
            got = post(entry, URL);
            match &got {
                // The agent may not know yet that it is connected.
                Ok(answer) if answer["code"] == 200 => Ok(()),
                Ok(answer) => Err(answer.to_string()),
                Err(why) => Err(why.clone()),
            }
        });
        got
    });
    let request = cloud.wait("the request of the application", |it| it.resource() == URL);
    let id = request.0["header"]["msg_id"].clone();
    cloud.send(&json!({
        "header": {"msg_id": "answer-1", "parent_msg_id": id, "timestamp": 1},
        "route": {"source": "router_servicebus", "group": "user", "operation": "response",
                  "resource": URL},
        "content": "accepted",
    }));
    let got = client.join().expect("it ends").expect("an answer");
    assert_eq!((&got["code"], &got["body"]), (&json!(200), &json!("accepted")), "{got}");
    let status = site.status().expect("it serves");
    assert_eq!(status["serviceBus"]["urls"], 1, "{status}");
    router(&cloud, "rule-2", ["stop", "http:/cloud.example/orders"], &Value::Null);
    until("nobody is let in", || match post(entry, "other") {
        Ok(got) => Err(got.to_string()),
        Err(_) => Ok(()),
    });
}
