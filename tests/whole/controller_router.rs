//! Custom messages without a cluster: our controller, our agent, a service and an application on
//! the node, and an application in the cloud.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Site};
use super::support::controller::Cloud;
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(clients_call_services_of_nodes_and_applications_of_nodes_call_the_cloud);

const TOKEN: &str = "0123456789abcdef-router";
const RULES: &str = "/apis/rules.kubeedge.io/v1/namespaces/default/rules";
/// What applications on the node name.
const OLD_URL: &str = "http://orders.example/old";
const NEW_URL: &str = "http://orders.example/new";

/// Switches ServiceBus on, with applications on this port.
fn with_service_bus(site: &Site, port: u16) {
    let path = site.config.as_ref().expect("it was welcomed");
    let mut text = fs::read_to_string(path).expect("a file of ours");
    let lines = format!("  serviceBus:\n    enable: true\n    port: {port}\n");
    text.push_str(&lines);
    fs::write(path, text).expect("a file of ours");
}

/// A server that answers 207 with the first line of each request, and sends this line and the body
/// to the test.
fn serve() -> (u16, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut first, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                let lower = line.to_ascii_lowercase();
                if let Some(number) = lower.strip_prefix("content-length:") {
                    length = number.trim().parse().expect("a number");
                }
                if first.is_empty() {
                    line.trim_end().clone_into(&mut first);
                }
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let answer = format!(
                "HTTP/1.1 207 Some\r\nX-Kind: echo\r\nContent-Length: {}\r\n\r\n{first}",
                first.len()
            );
            let _ = reader.get_mut().write_all(answer.as_bytes());
            let _ = sender.send((first, body));
        }
    });
    (port, receiver)
}

/// One request; returns the status, the head and the body.
fn request(port: u16, head: &str, body: &str) -> Result<(u16, String, String), String> {
    let failed = |error: std::io::Error| error.to_string();
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let length = body.len();
    let text = format!("{head}\r\nHost: c\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| head.to_owned())?, head.to_owned(), body.to_owned()))
}

/// What an application on the node gets on this port.
fn order(port: u16, url: &str) -> Result<Value, String> {
    let body = json!({"method": "POST", "targetURL": url, "payload": {"a": 1}}).to_string();
    let (_, _, answer) = request(port, "POST / HTTP/1.1", &body)?;
    serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))
}

fn put_rule(cloud: &Cloud, name: &str, source: [&Value; 2], target: [&Value; 2]) {
    let object = json!({
        "kind": "Rule", "apiVersion": "rules.kubeedge.io/v1", "metadata": {"name": name},
        "spec": {"source": source[0], "sourceResource": source[1],
                 "target": target[0], "targetResource": target[1]},
    });
    cloud.put(&format!("{name}.json"), &object);
}

fn put_endpoint(cloud: &Cloud, kind: &str, port: u16) {
    let object = json!({
        "kind": "RuleEndpoint", "apiVersion": "rules.kubeedge.io/v1", "metadata": {"name": kind},
        "spec": {"ruleEndpointType": kind, "properties": {"service_port": port.to_string()}},
    });
    cloud.put(&format!("endpoint-{kind}.json"), &object);
}

/// Orders of the node go to this port in the cloud.
fn put_orders(cloud: &Cloud, name: &str, url: &str, port: u16) {
    let source = json!({"target_url": url, "node_name": NODE});
    let target = json!({"resource": format!("http://127.0.0.1:{port}/in")});
    put_rule(cloud, name, [&json!("servicebus"), &source], [&json!("rest"), &target]);
}

/// A controller whose REST entry has this port, on loopback.
fn cloud(world: &World, entry: u16) -> Cloud {
    let folder = world.folder("router-cloud");
    let token = folder.join("router.token");
    let mut cloud = Cloud::new(folder);
    fs::write(&token, TOKEN).expect("a folder of ours");
    let (address, token) = (format!("127.0.0.1:{entry}"), token.to_str().expect("a path of ours"));
    let flags = ["--listen-router", &address, "--router-token", token, "--router-tls", "off"];
    cloud.flags = flags.map(str::to_owned).into();
    cloud
}

/// A request of a client for this path of the node.
fn call(path: &str) -> String {
    format!("GET /{NODE}/default/{path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}")
}

/// An order of the node comes as base64 of the application's whole request, and is counted.
fn check_order(cloud: &Cloud, orders: &Receiver<(String, Vec<u8>)>) {
    let (_, body) = orders.recv().expect("it was posted");
    let body = edged::model::base64::decode(&String::from_utf8(body).expect("text"));
    let body: Value = serde_json::from_slice(&body.expect("base64")).expect("JSON");
    assert_eq!((&body["targetURL"], &body["payload"]["a"]), (&json!(OLD_URL), &json!(1)));
    until("the rule counts", || {
        let rule = cloud.object(&format!("{RULES}/old"))?.ok_or("it is gone")?;
        let count = rule["status"]["successMessages"].as_u64();
        if count.is_some_and(|count| count > 0) { Ok(()) } else { Err(rule.to_string()) }
    });
}

/// One rule goes and another comes.
fn replace_orders(cloud: &Cloud, application: u16) {
    cloud.take("old.json");
    put_orders(cloud, "new", NEW_URL, application);
    until("the controller has the new rule alone", || {
        let rule = |name| cloud.object(&format!("{RULES}/{name}"));
        match (rule("old")?, rule("new")?) {
            (None, Some(_)) => Ok(()),
            other => Err(format!("{other:?}\n{}", cloud.log_tail())),
        }
    });
}

fn clients_call_services_of_nodes_and_applications_of_nodes_call_the_cloud(world: &World) {
    let entry = free_port();
    let cloud = cloud(world, entry);
    let ((service, _served), (application, orders)) = (serve(), serve());
    put_endpoint(&cloud, "rest", 1);
    put_endpoint(&cloud, "servicebus", service);
    let (source, target) = (json!({"path": "/ddd"}), json!({"path": "/echo"}));
    put_rule(&cloud, "call", [&json!("rest"), &source], [&json!("servicebus"), &target]);
    put_orders(&cloud, "old", OLD_URL, application);
    let controller = cloud.start();
    let mut site = world.site("router-node");
    cloud.welcome(&mut site, cloud.hub);
    let local = free_port();
    with_service_bus(&site, local);
    let agent = site.start();
    let logs = || format!("{}\n{}", cloud.log_tail(), site.log_tail());

    until("a client reaches the service", || match request(entry, &call("ddd/x?y=1"), "")? {
        (207, head, body)
            if body == "GET /echo/x?y=1 HTTP/1.1" && head.contains("X-Kind: echo") =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}\n{}", logs())),
    });
    let refused = request(entry, &format!("GET /{NODE}/default/ddd HTTP/1.1"), "");
    assert_eq!(refused.expect("an answer").0, 401, "without the token");
    assert_eq!(request(entry, &call("other"), "").expect("an answer").0, 404);
    until("an application of the node gets an answer", || match order(local, OLD_URL)? {
        answer if answer["code"] == 200 && answer["body"] == "POST /in HTTP/1.1" => Ok(()),
        answer => Err(format!("{answer}\n{}", logs())),
    });
    check_order(&cloud, &orders);

    // While the node is away; and the controller starts anew.
    agent.kill();
    until("the node is away", || match request(entry, &call("ddd"), "")?.0 {
        503 => Ok(()),
        other => Err(other.to_string()),
    });
    replace_orders(&cloud, application);
    controller.kill();
    let controller = cloud.start();
    let agent = site.start();
    until("the node knows the new rule", || match order(local, NEW_URL)? {
        answer if answer["code"] == 200 => Ok(()),
        answer => Err(format!("{answer}\n{}", logs())),
    });
    let answer = order(local, OLD_URL).expect("an answer");
    assert_eq!(answer["code"], 400, "{answer}");
    let why = answer["msg"].as_str().unwrap_or_default();
    assert!(why.starts_with(&format!("url {OLD_URL} is not allowed")), "{why}\n{}", logs());
    agent.terminate();
    controller.terminate();
}
