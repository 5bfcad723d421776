//! Devices without a cluster: our controller, our agent, and a mapper that the test plays.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Site};
use super::support::controller::{Cloud, binary};
use super::support::mapper::Mapper;
use super::support::wait::until;

crate::tests!(a_device_of_the_folder_reaches_its_mapper_and_its_reports_the_commands);

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

/// Serves mappers on this socket, and no MQTT clients.
fn with_mappers(site: &Site, socket: &Path) {
    let path = site.config.as_ref().expect("it was welcomed");
    let mut text = fs::read_to_string(path).expect("a file of ours");
    let lines = format!(
        "  deviceTwin:\n    dmiSockPath: {}\n  eventBus:\n    enable: false\n",
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
    with_mappers(&site, &socket);
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
        let wait = std::time::Duration::from_secs(1);
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
