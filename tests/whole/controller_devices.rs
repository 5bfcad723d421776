//! Devices without a cluster: our controller, our agent, and a mapper that the test plays or
//! clients of a real mosquitto.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Site};
use super::support::broker::Broker;
use super::support::controller::{Cloud, binary};
use super::support::http;
use super::support::mapper::Mapper;
use super::support::wait::until;

crate::tests!(
    a_device_of_the_folder_reaches_its_mapper_and_its_reports_the_commands,
    what_is_reported_while_the_cloud_is_away_arrives_as_the_last_values,
);

fn model() -> Value {
    json!({
        "kind": "DeviceModel", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "model1", "namespace": "default"},
        "spec": {"protocol": "modbus", "properties": [
            {"name": "temp", "type": "INT", "accessMode": "ReadWrite"}]},
    })
}

fn device() -> Value {
    json!({
        "kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "dev1", "namespace": "default"},
        "spec": {
            "deviceModelRef": {"name": "model1"}, "nodeName": NODE,
            "protocol": {"protocolName": "modbus", "configData": {"slaveID": 1}},
            "properties": [{
                "name": "temp", "desired": {"value": "20"},
                "visitors": {"protocolName": "modbus", "configData": {"offset": 40001}},
            }],
        },
    })
}

/// Serves mappers on this socket, and MQTT clients as these lines of `eventBus` say.
fn with_mappers(site: &Site, socket: &Path, event_bus: &str) {
    let path = site.config.as_ref().expect("it was welcomed");
    let mut text = fs::read_to_string(path).expect("a file of ours");
    let lines = format!(
        "  deviceTwin:\n    dmiSockPath: {}\n  eventBus:\n    {event_bus}\n",
        socket.display()
    );
    text.push_str(&lines);
    fs::write(path, text).expect("a file of ours");
}

/// Runs `edgecontroller get devices` with these arguments.
fn get(cloud: &Cloud, arguments: &[&str]) -> Result<String, String> {
    let server = format!("unix://{}", cloud.socket().display());
    let mut command = Command::new(binary());
    command.args(["get", "devices", "--server", &server]).args(arguments);
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is shown of the property.
fn shown(cloud: &Cloud) -> Result<String, String> {
    let text = get(cloud, &["dev1", "-o", "json"])?;
    let device: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    let value = &device["status"]["twins"][0]["reported"]["value"];
    value.as_str().map(ToOwned::to_owned).ok_or_else(|| device["status"].to_string())
}

fn wait_shown(cloud: &Cloud, site: &Site, value: &str) {
    until(&format!("the commands show the value {value}"), || {
        let got = shown(cloud)?;
        if got == value {
            return Ok(());
        }
        Err(format!("{got}\n{}\n{}", cloud.log_tail(), site.log_tail()))
    });
}

fn a_device_of_the_folder_reaches_its_mapper_and_its_reports_the_commands(world: &World) {
    let cloud = Cloud::new(world.folder("devices-cloud"));
    let controller = cloud.start();
    let mut site = world.site("devices-folder");
    cloud.welcome(&mut site, cloud.hub);
    let socket = site.dir.join("dmi.sock");
    with_mappers(&site, &socket, "enable: false");
    cloud.put("model.json", &model());
    cloud.put("device.json", &device());
    let agent = site.start();

    // The mapper gets the device with its model.
    until("a mapper may register", || if socket.exists() { Ok(()) } else { Err(site.log_tail()) });
    let mapper = Mapper::listen(&socket, &site.dir.join("mapper.sock"));
    until("the mapper has the device", || {
        let registered = mapper.register("m1", "modbus").map_err(|why| format!("{why:?}"))?;
        match &registered.devices[..] {
            [device] if device.name == "dev1" && registered.models.len() == 1 => Ok(()),
            other => Err(format!("{} devices\n{}", other.len(), site.log_tail())),
        }
    });
    let report = |value: &str| {
        let sides = [Some("20"), Some(value)];
        mapper.report(("default", "dev1"), "temp", sides).expect("it is known");
    };

    // What it reports is shown, and outlives the controller.
    report("21");
    wait_shown(&cloud, &site, "21");
    let text = get(&cloud, &["-o", "wide"]).expect("it answers");
    assert!(text.contains("temp=21") && text.contains(NODE), "{text}");
    controller.kill();
    report("22");
    let controller = cloud.start();
    let after = shown(&cloud).expect("it was recorded");
    assert!(["21", "22"].contains(&&*after), "{after}");
    wait_shown(&cloud, &site, "22");

    // The last value of many is the one that is recorded.
    for value in 23..63 {
        report(&value.to_string());
    }
    wait_shown(&cloud, &site, "62");

    // Its end.
    cloud.take("device.json");
    until("no device is shown", || {
        let text = get(&cloud, &[])?;
        if text.starts_with("No devices") { Ok(()) } else { Err(text) }
    });
    until("the mapper is told", || {
        let wait = Duration::from_secs(1);
        match mapper.next_call(wait) {
            Some(call) if call.method == "RemoveDevice" => Ok(()),
            Some(call) => Err(call.method),
            None => Err(site.log_tail()),
        }
    });
    let status = "/apis/devices.kubeedge.io/v1beta1/namespaces/default/devicestatuses/dev1";
    assert_eq!(cloud.object(status), Ok(None), "it goes with its device");
    agent.terminate();
    controller.terminate();
}

const DEVICES: usize = 2;
const PROPERTIES: usize = 5;

/// A device `pN` with the properties `v0` …
fn with_properties(at: usize) -> Value {
    let names = (0..PROPERTIES).map(|at| json!({"name": format!("v{at}")}));
    json!({
        "kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": format!("p{at}"), "namespace": "default"},
        "spec": {"nodeName": NODE, "protocol": {"protocolName": "modbus"},
            "properties": names.collect::<Vec<_>>()},
    })
}

/// All recorded values: device, property, value.
fn recorded(cloud: &Cloud) -> Vec<(usize, String, String)> {
    let mut all = Vec::new();
    for at in 0..DEVICES {
        let path =
            format!("/apis/devices.kubeedge.io/v1beta1/namespaces/default/devicestatuses/p{at}");
        let status = cloud.object(&path).ok().flatten().unwrap_or_default();
        for twin in status["status"]["twins"].as_array().into_iter().flatten() {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            all.push((at, text(&twin["propertyName"]), text(&twin["reported"]["value"])));
        }
    }
    all.sort();
    all
}

/// MQTT clients that report numbers of all properties, one after another, by a real mosquitto.
struct Clients(Vec<Child>);

impl Clients {
    fn start(broker: &Broker) -> Self {
        let client = |at: usize| {
            let mut command = Command::new("mosquitto_pub");
            command.args(["-p", &broker.port.to_string(), "-q", "1", "-l"]);
            command.args(["-t", &format!("$hw/events/device/default/p{at}/twin/update")]);
            command.stdin(Stdio::piped()).spawn().expect("mosquitto-clients is installed")
        };
        Self((0..DEVICES).map(client).collect())
    }

    fn publish(&mut self, number: usize) {
        let (at, property, value) = place(number);
        let report = json!({"event_id": "e", "timestamp": 0,
            "twin": {property: {"actual": {"value": value}}}});
        let stdin = self.0[at].stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{report}").expect("it reads");
    }
}

/// Device, property and value of a number.
fn place(number: usize) -> (usize, String, String) {
    (number % DEVICES, format!("v{}", number / DEVICES % PROPERTIES), number.to_string())
}

/// `SOAK_S`: how long the cloud is away, in seconds; with 3600 it is the acceptance of devices.
fn what_is_reported_while_the_cloud_is_away_arrives_as_the_last_values(world: &World) {
    let away_s = std::env::var("SOAK_S").map_or(5, |it| it.parse().expect("seconds"));
    let cloud = Cloud::new(world.folder("devices-away-cloud"));
    let controller = cloud.start();
    let mut site = world.site("devices-away");
    cloud.welcome(&mut site, cloud.hub);
    let broker = Broker::start(&site.dir);
    let server = format!("mqttServerExternal: tcp://127.0.0.1:{}", broker.port);
    with_mappers(&site, &site.dir.join("dmi.sock"), &server);
    for at in 0..DEVICES {
        cloud.put(&format!("p{at}.json"), &with_properties(at));
    }
    let agent = site.start();
    let mut clients = Clients::start(&broker);
    let all = DEVICES * PROPERTIES;
    let wait = |numbers: std::ops::Range<usize>| {
        let mut expected: Vec<_> = numbers.map(place).collect();
        expected.sort();
        until("the last value of each property is recorded", || {
            let got = recorded(&cloud);
            if got == expected {
                return Ok(());
            }
            Err(format!("{got:?}\n{}\n{}", cloud.log_tail(), site.log_tail()))
        });
    };
    // What is published before a device is known is lost.
    until("a report is recorded", || {
        clients.publish(0);
        std::thread::sleep(Duration::from_millis(200));
        if recorded(&cloud).is_empty() { Err(site.log_tail()) } else { Ok(()) }
    });
    (0..all).for_each(|number| clients.publish(number));
    wait(0..all);
    // What CloudCore would not record yet is told twice.
    until("all is confirmed", || match &site.status()?["devices"]["unconfirmed"] {
        left if *left == 0 => Ok(()),
        left => Err(format!("{left}\n{}", site.log_tail())),
    });

    controller.kill();
    let end = all * (1 + away_s);
    for number in all..end {
        clients.publish(number);
        std::thread::sleep(Duration::from_millis(100));
    }
    let controller = cloud.start();
    let began = Instant::now();
    wait(end - all..end);
    println!("after {away_s} s without a cloud all was recorded in {:?}", began.elapsed());
    let page = http::get(cloud.api, "/metrics").expect("it answers").body;
    let counter = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.expect("a counter").parse::<usize>().expect("a number")
    };
    let reports = counter("edgecontroller_device_reports_total")
        - counter("edgecontroller_device_reports_ignored_total");
    assert_eq!(reports, DEVICES, "one message of a device");
    agent.terminate();
    controller.terminate();
}

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.0 {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}
