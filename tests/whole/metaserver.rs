//! MetaServer: programs on the gateway read the cloud's objects, and have them without it as well.

use serde_json::{Value, json};

use super::World;
use super::support::cloud::{Cloud, Setup};
use super::support::dynamic::{answer, reply};
use super::support::http::{self, Answer};
use super::support::joined::{join, with_metaserver};
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(objects_of_the_cloud_are_read_on_the_gateway_and_without_it_too);

/// The answer to a request without a body.
fn ask(port: u16, method: &str, target: &str) -> Result<Answer, String> {
    http::ask(port, method, target, "")
}

fn code(port: u16, method: &str, target: &str) -> u16 {
    ask(port, method, target).expect("it listens").code
}

fn objects_of_the_cloud_are_read_on_the_gateway_and_without_it_too(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("metaserver");
    join(&mut site, &cloud);
    let port = free_port();
    with_metaserver(&site, port, "");
    let _agent = site.start();
    cloud.connected(1);
    // By this the agent knows that there is a dynamic controller.
    let sync = cloud.wait("its watches", |it| it.resource() == "watchapp/sync");
    reply(&cloud, &sync, "watchapp/sync", &json!({}));
    until("MetaServer answers", || ask(port, "GET", "/healthz").map(drop));
    assert_eq!(code(port, "GET", "/version"), 200);
    let found = ask(port, "GET", "/api/v1").expect("it listens");
    let found: Value = serde_json::from_str(&found.body).expect("JSON");
    let names: Vec<&str> = found["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(names.contains(&"services") && !names.contains(&"secrets"), "{names:?}");
    assert_eq!(code(port, "GET", "/api/v1/secrets"), 404);
    assert_eq!(code(port, "DELETE", "/api/v1/namespaces/default/services/web"), 403);

    let service = json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7"},
        "spec": {"clusterIP": "10.96.0.7"}});
    let target = "/api/v1/namespaces/default/services/web";
    let client = std::thread::spawn(move || ask(port, "GET", target));
    answer(&cloud, "/core/v1/services/default/web", &service);
    let served = client.join().expect("it ends").expect("an answer");
    let got: Value = serde_json::from_str(&served.body).expect("JSON");
    assert_eq!((served.code, served.header("warning")), (200, None), "{served:?}");
    assert_eq!(got["spec"]["clusterIP"], "10.96.0.7", "{got}");

    // The cloud does not answer any more: the node does, and says so.
    let stored = ask(port, "GET", target).expect("it listens");
    assert_eq!(stored.code, 200, "{stored:?}");
    assert!(stored.header("warning").is_some_and(|it| it.starts_with("299 ")), "{stored:?}");
    assert!(stored.body.contains("10.96.0.7"), "{stored:?}");
    assert_eq!(code(port, "GET", "/api/v1/namespaces/default/services/other"), 503);
    let overview = site.status().expect("it serves");
    assert!(overview["metaserver"]["objects"].as_u64().is_some_and(|it| it > 0), "{overview}");
}
