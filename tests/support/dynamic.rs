//! The dynamic controller's part of the tests' cloud: it answers what MetaServer asks for.

use edged::model::base64;
use serde_json::{Value, json};

use super::cloud::{Cloud, Received};

/// Answers a request as a dynamic controller does.
pub fn reply(cloud: &Cloud, to: &Received, resource: &str, content: &Value) {
    let id = to.0["header"]["msg_id"].clone();
    cloud.send(&json!({
        "header": {"msg_id": format!("answer-{id}"), "timestamp": 1, "parent_msg_id": id},
        "route": {"source": "dynamiccontroller", "group": "resource",
                  "operation": "applicationResponse", "resource": resource},
        "content": content,
    }));
}

/// Whether it is a request of MetaServer.
pub fn is_request(received: &Received) -> bool {
    received.0["route"]["source"] == "metaserver"
}

/// Answers the request for the object of this key.
pub fn answer(cloud: &Cloud, key: &str, object: &Value) {
    let is_it = |it: &Received| is_request(it) && it.content()["Key"] == key;
    let request = cloud.wait(&format!("a request for {key}"), is_it);
    approve(cloud, &request, object);
}

/// The API server has answered a request with this body.
pub fn approve(cloud: &Cloud, request: &Received, body: &Value) {
    let mut content = request.content();
    content["Status"] = json!("Approved");
    content["RespBody"] = json!(base64::encode(body.to_string().as_bytes()));
    reply(cloud, request, "ignore/Application/ignore", &content);
}

/// Answers a request for a page of a list, as of version `version`.
pub fn page(cloud: &Cloud, request: &Received, kind: &str, objects: &[Value], version: u64) {
    let content = request.content();
    assert_eq!(content["Verb"], "list", "{content}");
    let options = base64::decode(content["Option"].as_str().expect("a text")).expect("base64");
    let options: Value = serde_json::from_slice(&options).expect("JSON");
    let begin: usize = options["continue"].as_str().map_or(0, |it| it.parse().expect("ours"));
    let limit = options["limit"].as_u64().expect("pages") as usize;
    let end = objects.len().min(begin + limit);
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if end < objects.len() {
        metadata["continue"] = end.to_string().into();
    }
    let list = json!({"kind": format!("{kind}List"), "apiVersion": objects[0]["apiVersion"],
        "metadata": metadata, "items": objects[begin..end]});
    approve(cloud, request, &list);
}
