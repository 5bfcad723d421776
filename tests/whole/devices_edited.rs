//! A device that is edited on the gateway without its cloud, as `keadm ctl edit device` does, and a
//! mapper that the test plays.

use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Site};
use super::support::cloud::{Cloud, Setup};
use super::support::http::ask;
use super::support::joined::{join, with_devices, with_metaserver};
use super::support::mapper::{Device, Mapper, device, model};
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(an_edit_on_the_gateway_reaches_its_mapper_without_the_cloud_and_lasts);

const TARGET: &str = "/apis/devices.kubeedge.io/v1beta1/namespaces/default/devices/dev1";
/// A call of the agent comes after 30 s at most: that is its longest back-off.
const CALL: Duration = Duration::from_secs(40);

/// The value that the mapper is told to reach next.
fn next_value(mapper: &Mapper, site: &Site) -> String {
    let call = mapper.next_call(CALL);
    let call = call.unwrap_or_else(|| panic!("no call\n{}", site.log_tail()));
    assert_eq!(call.method, "UpdateDevice");
    desired(&call.device())
}

fn desired(device: &Device) -> String {
    let spec = device.spec.as_ref().expect("a spec");
    spec.properties[0].desired.as_ref().expect("it is sent").value.clone()
}

/// The device as clients of MetaServer read it.
fn read(port: u16) -> Value {
    let answer = ask(port, "GET", TARGET, "").expect("it listens");
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn edit(port: u16, device: &Value) -> Value {
    let answer = ask(port, "PUT", TARGET, &device.to_string()).expect("it listens");
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn wait_edited(site: &Site, count: u64) {
    until(&format!("{count} devices are edited"), || {
        let edited = site.status()?["devices"]["edited"].clone();
        (edited == count).then_some(()).ok_or(edited.to_string())
    });
}

fn an_edit_on_the_gateway_reaches_its_mapper_without_the_cloud_and_lasts(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("devices-edited");
    join(&mut site, &cloud);
    let (socket, port) = (site.dir.join("dmi.sock"), free_port());
    with_devices(&site, &socket, "tcp://127.0.0.1:9");
    with_metaserver(&site, port, "      keadmCtl: true\n");
    let agent = site.start();
    cloud.connected(1);
    cloud.acked(&cloud.put("default/devicemodel/model1", model()));
    cloud.acked(&cloud.put("default/device/dev1", device(NODE, "20")));
    let mapper = Mapper::listen(&socket, &site.dir.join("mapper.sock"));
    mapper.register("m1", "modbus").expect("it is accepted");

    // The cloud is silent from here on.
    cloud.script(|script| script.frozen = true);
    let mut wanted = read(port);
    let property = &mut wanted["spec"]["properties"][0];
    assert_eq!(property["desired"]["value"], "20");
    property["desired"]["value"] = "33".into();
    property["visitors"]["configData"]["offset"] = json!(40_002);
    let edited = edit(port, &wanted);
    assert_eq!(edited["spec"], wanted["spec"]);
    assert_eq!(next_value(&mapper, &site), "33");
    assert_eq!(read(port)["metadata"]["annotations"]["edged.io/local-edit"], "spec");
    wait_edited(&site, 1);
    agent.kill();
    let agent = site.start();
    let registered = until("the agent is back", || {
        mapper.register("m1", "modbus").map_err(|error| format!("{error:?}"))
    });
    assert_eq!(desired(&registered.devices[0]), "33", "after a power cut as well");
    wait_edited(&site, 1);

    // The cloud is back. What it has sent before changes nothing; a change of its own wins.
    cloud.script(|script| script.frozen = false);
    cloud.connected(2);
    let mut same = device(NODE, "20");
    same["status"] = json!({"reportToCloud": true});
    cloud.acked(&cloud.put("default/device/dev1", same));
    wait_edited(&site, 1);
    cloud.acked(&cloud.put("default/device/dev1", device(NODE, "50")));
    assert_eq!(next_value(&mapper, &site), "50");
    wait_edited(&site, 0);
    agent.terminate();
}
