//! The demo's mapper: a thermometer and a switch that exist in this process alone.
//!
//! It registers by DMI as KubeEdge's mappers do. Once a second it reports the state of each device,
//! the temperature where there is the property `temperature`, and for any other property the value
//! that it was last told to set. `scripts/run` starts it with `DEVICES=1`:
//!
//!     demo-mapper AGENT-SOCKET OWN-SOCKET
//!
//! If it crashes: the agent calls it again until it is back, and then it registers anew.

#![allow(clippy::disallowed_methods, reason = "it waits for its agent and for the next second")]
#![allow(clippy::print_stdout, reason = "what it does is for the user of the demo")]

#[path = "../support/mapper.rs"]
#[allow(dead_code, reason = "shared with tests, which need more of it")]
mod mapper;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mapper::{Device, Mapper};

const PROTOCOL: &str = "demo";
const SECOND: Duration = Duration::from_secs(1);

/// The desired values by property, of each device by namespace and name.
type Devices = BTreeMap<(String, String), BTreeMap<String, String>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [agent, own] = &args[..] else {
        println!("usage: demo-mapper AGENT-SOCKET OWN-SOCKET");
        return ExitCode::from(2);
    };
    let mapper = Mapper::listen(Path::new(agent), Path::new(own));
    let mut devices = Devices::new();
    // The agent may be about to start.
    let registered = loop {
        match mapper.register("demo-mapper", PROTOCOL) {
            Ok(registered) => break registered,
            Err(why) => println!("not registered yet: {}", why.message),
        }
        sleep(SECOND);
    };
    println!("registered, devices={}", registered.devices.len());
    registered.devices.into_iter().for_each(|device| take(&mut devices, device));
    for second in 0_u32.. {
        let next = Instant::now() + SECOND;
        for (id, desired) in &devices {
            report(&mapper, id, desired, second);
        }
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let Some(call) = mapper.next_call(wait) else { break };
            match &*call.method {
                "RegisterDevice" | "UpdateDevice" => take(&mut devices, call.device()),
                "RemoveDevice" => {
                    let id = call.removed();
                    println!("removed {}/{}", id.0, id.1);
                    devices.remove(&id);
                }
                _ => {}
            }
        }
    }
    ExitCode::SUCCESS
}

/// The device is new, or its desired values are.
fn take(devices: &mut Devices, device: Device) {
    let Device { name, namespace, spec } = device;
    let properties = spec.map(|spec| spec.properties).unwrap_or_default();
    let desired: BTreeMap<String, String> = properties
        .into_iter()
        .map(|it| (it.name, it.desired.map(|desired| desired.value).unwrap_or_default()))
        .collect();
    println!("has {namespace}/{name}: {desired:?}");
    devices.insert((namespace, name), desired);
}

fn report(
    mapper: &Mapper,
    (namespace, name): &(String, String),
    desired: &BTreeMap<String, String>,
    second: u32,
) {
    let device = (&**namespace, &**name);
    if let Err(why) = mapper.report_state(device, "online") {
        println!("{namespace}/{name}: the state is refused: {}", why.message);
    }
    for (property, desired) in desired {
        let (expected, actual) = match &**property {
            "temperature" => (None, temperature(second)),
            _ if desired.is_empty() => continue,
            _ => (Some(&**desired), desired.clone()),
        };
        if let Err(why) = mapper.report(device, property, [expected, Some(&actual)]) {
            println!("{namespace}/{name} {property}={actual} is refused: {}", why.message);
        }
    }
}

/// Of a room that is heated and cools down again, once a minute.
fn temperature(second: u32) -> String {
    let phase = f64::from(second % 60) / 60.0 * std::f64::consts::TAU;
    format!("{:.1}", 20.0 + 2.5 * phase.sin())
}
