//! MetaServer: programs on the gateway read the cloud's objects, and have them without it as well.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use edged::model::base64;
use serde_json::{Value, json};

use super::World;
use super::support::agent::Site;
use super::support::cloud::{Cloud, Received, Setup};
use super::support::joined::join;
use super::support::wait::until;

crate::tests!(objects_of_the_cloud_are_read_on_the_gateway_and_without_it_too);

pub fn with_metaserver(site: &Site, port: u16) {
    let path = site.config.as_deref().expect("it has joined a cloud");
    let text = fs::read_to_string(path).expect("a file of ours");
    let on = format!(
        "modules:\n  metaManager:\n    metaServer:\n      enable: true\n      \
         server: 127.0.0.1:{port}\n"
    );
    fs::write(path, text.replacen("modules:\n", &on, 1)).expect("a file of ours");
}

/// The head and the body of an answer.
pub fn ask(port: u16, method: &str, target: &str) -> Result<(String, String), String> {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| text.clone())?;
    Ok((head.to_owned(), body.to_owned()))
}

fn status(port: u16, method: &str, target: &str) -> String {
    let (head, _) = ask(port, method, target).expect("it listens");
    head.split(' ').nth(1).expect("a status").to_owned()
}

/// The cloud answers this request as a dynamic controller does.
fn reply(cloud: &Cloud, to: &Received, resource: &str, content: &Value) {
    let id = to.0["header"]["msg_id"].clone();
    cloud.send(&json!({
        "header": {"msg_id": format!("answer-{id}"), "timestamp": 1, "parent_msg_id": id},
        "route": {"source": "dynamiccontroller", "group": "resource",
                  "operation": "applicationResponse", "resource": resource},
        "content": content,
    }));
}

/// Answers the request for the object of this key.
fn answer(cloud: &Cloud, key: &str, object: &Value) {
    let is_it =
        |it: &Received| it.0["route"]["source"] == "metaserver" && it.content()["Key"] == key;
    let request = cloud.wait(&format!("a request for {key}"), is_it);
    let mut content = request.content();
    content["Status"] = json!("Approved");
    content["RespBody"] = json!(base64::encode(object.to_string().as_bytes()));
    reply(cloud, &request, "ignore/Application/ignore", &content);
}

fn objects_of_the_cloud_are_read_on_the_gateway_and_without_it_too(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("metaserver");
    join(&mut site, &cloud);
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    with_metaserver(&site, port);
    let _agent = site.start();
    cloud.connected(1);
    // By this the agent knows that there is a dynamic controller.
    let sync = cloud.wait("its watches", |it| it.resource() == "watchapp/sync");
    reply(&cloud, &sync, "watchapp/sync", &json!({}));
    until("MetaServer answers", || ask(port, "GET", "/healthz").map(drop));
    assert_eq!(status(port, "GET", "/version"), "200");
    let (_, body) = ask(port, "GET", "/api/v1").expect("it listens");
    let found: Value = serde_json::from_str(&body).expect("JSON");
    let names: Vec<&str> = found["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(names.contains(&"services") && !names.contains(&"secrets"), "{names:?}");
    assert_eq!(status(port, "GET", "/api/v1/secrets"), "404");
    assert_eq!(status(port, "DELETE", "/api/v1/namespaces/default/services/web"), "403");

    let service = json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7"},
        "spec": {"clusterIP": "10.96.0.7"}});
    let target = "/api/v1/namespaces/default/services/web";
    let client = std::thread::spawn(move || ask(port, "GET", target));
    answer(&cloud, "/core/v1/services/default/web", &service);
    let (head, body) = client.join().expect("it ends").expect("an answer");
    let got: Value = serde_json::from_str(&body).expect("JSON");
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("Warning"), "{head}");
    assert_eq!(got["spec"]["clusterIP"], "10.96.0.7", "{got}");

    // The cloud does not answer any more: the node does, and says so.
    let (head, body) = ask(port, "GET", target).expect("it listens");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("Warning: 299"), "{head}");
    assert!(body.contains("10.96.0.7"), "{body}");
    let (head, _) =
        ask(port, "GET", "/api/v1/namespaces/default/services/other").expect("it listens");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let overview = site.status().expect("it serves");
    assert!(overview["metaserver"]["objects"].as_u64().is_some_and(|it| it > 0), "{overview}");
}
