//! A device of the cloud: a real mosquitto with its clients, and a mapper that the test plays.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::World;
use super::support::agent::{NODE, Site};
use super::support::broker::{Broker, DEVICE};
use super::support::cloud::{Cloud, Setup};
use super::support::joined::{join, with_devices};
use super::support::mapper::{Call, Mapper, device, model};
use super::support::wait::until;

crate::tests!(a_device_is_one_for_the_cloud_its_mapper_and_mqtt_clients);

/// A call of the agent comes after 30 s at most: that is its longest back-off.
const CALL: Duration = Duration::from_secs(40);

/// Waits until the cloud was told of this actual value, and confirms all that it is told, as
/// CloudCore does.
fn wait_reported(cloud: &Cloud, site: &Site, value: &str) {
    let mut confirmed = BTreeSet::new();
    until(&format!("the cloud has the value {value}"), || {
        let received = cloud.received();
        let resource = "device/default/dev1/twin/edge_updated";
        let reports: Vec<_> = received.iter().filter(|it| it.resource() == resource).collect();
        for report in &reports {
            let id = report.0["header"]["msg_id"].as_str().expect("an id").to_owned();
            if confirmed.insert(id.clone()) {
                cloud.send(&json!({
                    "header": {"msg_id": format!("c-{id}"), "parent_msg_id": id, "timestamp": 1},
                    "route": {"source": "devicecontroller", "group": "twin",
                              "operation": "response", "resource": "twin"},
                    "content": "OK",
                }));
            }
        }
        let values =
            reports.iter().map(|it| it.content()["twin"]["temp"]["actual"]["value"].clone());
        if values.clone().any(|it| it == value) {
            Ok(())
        } else {
            Err(format!("{:?}\n{}", values.collect::<Vec<_>>(), site.log_tail()))
        }
    });
}

fn next_call(mapper: &Mapper, method: &str, site: &Site) -> Call {
    let call = mapper.next_call(CALL);
    let call = call.unwrap_or_else(|| panic!("no {method}\n{}", site.log_tail()));
    assert_eq!(call.method, method);
    call
}

fn a_device_is_one_for_the_cloud_its_mapper_and_mqtt_clients(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("devices");
    join(&mut site, &cloud);
    let broker = Broker::start(&site.dir);
    let socket = site.dir.join("dmi.sock");
    with_devices(&site, &socket, &format!("tcp://127.0.0.1:{}", broker.port));
    let agent = site.start();
    cloud.connected(1);
    // The broker has been reached once a question is answered.
    broker.ask("g0");

    // The cloud's device is there for clients, with what is desired of it.
    let id = cloud.put("default/devicemodel/model1", model());
    cloud.acked(&id);
    let id = cloud.put("default/device/dev1", device(NODE, "20"));
    cloud.acked(&id);
    broker.wait(&format!("{DEVICE}/twin/update/delta"), |it| it["delta"]["temp"] == "20");

    // Its mapper gets it when it registers, and what is changed after that.
    let mapper = Mapper::listen(&socket, &site.dir.join("mapper.sock"));
    let registered = mapper.register("m1", "modbus").expect("it is accepted");
    assert_eq!(registered.models.len(), 1);
    assert_eq!(registered.devices[0].name, "dev1");
    cloud.put("default/device/dev1", device(NODE, "25"));
    let changed = next_call(&mapper, "UpdateDevice", &site).device();
    let desired = changed.spec.expect("a spec").properties[0].desired.clone();
    assert_eq!(desired.expect("it is sent").value, "25");
    broker.wait(&format!("{DEVICE}/twin/update/delta"), |it| it["delta"]["temp"] == "25");

    // What a mapper and a client report reaches the cloud.
    mapper.report(("default", "dev1"), "temp", [Some("20"), Some("21")]).expect("it is known");
    wait_reported(&cloud, &site, "21");
    let unknown = mapper.report(("default", "none"), "temp", [None, Some("1")]);
    assert_eq!(unknown.expect_err("no such device").code, edged::wire::grpc::Code::NotFound);
    broker.publish(
        "twin/update",
        &json!({"event_id": "u1", "twin": {"temp": {"actual": {"value": "22"}}}}),
    );
    let result = broker.wait(&format!("{DEVICE}/twin/update/result"), |it| it["event_id"] == "u1");
    assert_eq!(result["twin"]["temp"]["actual"]["value"], "22", "{result}");
    wait_reported(&cloud, &site, "22");

    // What the cloud was told survives kill -9, and what is desired is not undone by the mapper.
    agent.kill();
    let agent = site.start();
    cloud.connected(2);
    let twin = broker.ask("g1");
    assert_eq!(twin["twin"]["temp"]["actual"]["value"], "22", "{twin}");
    assert_eq!(twin["twin"]["temp"]["expected"]["value"], "25", "{twin}");

    // Its end is the end for all.
    cloud.remove("default/device/dev1");
    let removed = next_call(&mapper, "RemoveDevice", &site).removed();
    assert_eq!(removed, ("default".to_owned(), "dev1".to_owned()));
    let topic = format!("$hw/events/node/{NODE}/membership/updated");
    broker.wait(&topic, |it| it["removed_devices"][0]["id"] == "default/dev1");
    agent.terminate();
    assert!(!socket.exists() || std::os::unix::net::UnixStream::connect(&socket).is_err());
}
