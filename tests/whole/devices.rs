//! A device of the cloud: a real mosquitto with its clients, and a mapper that the test plays.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::World;
use super::support::agent::{Agent, NODE, Site};
use super::support::broker::{Broker, DEVICE};
use super::support::cloud::{Cloud, Setup};
use super::support::joined::{join, with_devices};
use super::support::mapper::{Call, Mapper, device, model};
use super::support::wait::until;

crate::tests!(
    a_device_is_one_for_the_cloud_its_mapper_and_mqtt_clients,
    sixteen_mebibytes_of_a_client_a_mapper_and_the_cloud_harm_nothing_else,
);

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

/// The version of the value that the cloud was told last.
fn last_version(cloud: &Cloud) -> i64 {
    let received = cloud.received();
    let mut reports = received.iter().rev().filter(|it| it.resource().ends_with("edge_updated"));
    let twin = reports.next().expect("one was received").content()["twin"]["temp"].clone();
    twin["actual_version"]["edge"].as_i64().expect("a number")
}

fn next_call(mapper: &Mapper, method: &str, site: &Site) -> Call {
    let call = mapper.next_call(CALL);
    let call = call.unwrap_or_else(|| panic!("no {method}\n{}", site.log_tail()));
    assert_eq!(call.method, method);
    call
}

/// Of what the cloud was told kill -9 takes reported values of the last minutes, which their
/// devices report again; what is desired is not lost, nor undone by the mapper.
fn kill_and_report_again<'a>(
    site: &'a Site,
    cloud: &Cloud,
    broker: &Broker,
    agent: Agent<'a>,
) -> Agent<'a> {
    let report =
        |event: &str| json!({"event_id": event, "twin": {"temp": {"actual": {"value": "23"}}}});
    broker.publish("twin/update", &report("u2"));
    wait_reported(cloud, site, "23");
    let before = last_version(cloud);
    agent.kill();
    let agent = site.start();
    cloud.connected(2);
    let twin = broker.ask("g1");
    let actual = &twin["twin"]["temp"]["actual"]["value"];
    assert!(actual == "22" || actual == "23", "{twin}");
    assert_eq!(twin["twin"]["temp"]["expected"]["value"], "25", "{twin}");
    broker.publish("twin/update", &report("u3"));
    until("the cloud is told again", || match last_version(cloud) {
        version if version > before => Ok(()),
        version => Err(format!("version {version} after {before}")),
    });
    agent
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

    let agent = kill_and_report_again(&site, &cloud, &broker, agent);

    // Its end is the end for all.
    cloud.remove("default/device/dev1");
    let removed = next_call(&mapper, "RemoveDevice", &site).removed();
    assert_eq!(removed, ("default".to_owned(), "dev1".to_owned()));
    let topic = format!("$hw/events/node/{NODE}/membership/updated");
    broker.wait(&topic, |it| it["removed_devices"][0]["id"] == "default/dev1");
    agent.terminate();
    assert!(!socket.exists() || UnixStream::connect(&socket).is_err());
}

const HOSTILE_BYTES: usize = 16 << 20;

/// The most memory that the process has had, kilobytes.
fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Acceptance (e) of spec `devices`, section 18.
fn sixteen_mebibytes_of_a_client_a_mapper_and_the_cloud_harm_nothing_else(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("devices-hostile");
    join(&mut site, &cloud);
    let broker = Broker::start(&site.dir);
    let socket = site.dir.join("dmi.sock");
    with_devices(&site, &socket, &format!("tcp://127.0.0.1:{}", broker.port));
    let agent = site.start();
    cloud.connected(1);
    broker.ask("g0");
    cloud.acked(&cloud.put("default/devicemodel/model1", model()));
    cloud.acked(&cloud.put("default/device/dev1", device(NODE, "20")));
    let mapper = Mapper::listen(&socket, &site.dir.join("mapper.sock"));
    mapper.register("m1", "modbus").expect("it is accepted");
    let serves = |value: &str| {
        mapper.report(("default", "dev1"), "temp", [None, Some(value)]).expect("it is known");
        wait_reported(&cloud, &site, value);
        let twin = broker.ask(&format!("after {value}"));
        assert_eq!(twin["twin"]["temp"]["actual"]["value"], value, "{twin}");
    };
    serves("1");
    let before_kb = peak_kb(agent.pid());

    // A client: a request of that size, and a message for the cloud.
    let file = site.dir.join("hostile");
    let value = "x".repeat(HOSTILE_BYTES);
    let request = json!({"event_id": "h", "twin": {"temp": {"actual": {"value": value}}}});
    fs::write(&file, request.to_string()).expect("ours");
    for topic in [&format!("{DEVICE}/twin/update"), "plant/user/line1"] {
        let published = Command::new("mosquitto_pub")
            .args(["-p", &broker.port.to_string(), "-q", "1", "-t", topic, "-f"])
            .arg(&file)
            .status();
        assert!(published.expect("it runs").success());
    }
    serves("2");

    // A mapper: what is no HTTP/2, what never ends, and a value of that size.
    for bytes in [vec![0; HOSTILE_BYTES], value.clone().into_bytes()] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("ours");
        let _ = stream.write_all(&bytes);
    }
    // What its client may send at most, with what stands around the value.
    let large = &value[1_024..];
    let refused = mapper.report(("default", "dev1"), "temp", [None, Some(large)]);
    refused.expect_err("no value has that size");
    serves("3");

    // The cloud: a message of that size, and one that is small enough to be read.
    for bytes in [HOSTILE_BYTES, 64 << 10] {
        let devices = json!([{"id": "default/dev1", "name": "dev1",
            "description": "x".repeat(bytes)}]);
        cloud.send(&json!({
            "header": {"msg_id": format!("h-{bytes}"), "timestamp": 1},
            "route": {"source": "devicecontroller", "group": "twin", "operation": "update",
                      "resource": "membership"},
            "content": {"event_id": "h", "added_devices": devices, "removed_devices": null},
        }));
    }
    serves("4");
    let grown_kb = peak_kb(agent.pid()).saturating_sub(before_kb);
    assert!(grown_kb < 12 << 10, "it has grown by {grown_kb} kB, of {} MiB", HOSTILE_BYTES >> 20);
    agent.terminate();
}
