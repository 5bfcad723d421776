//! Devices: updates through the core, memory of many, and what they cost at rest beside mosquitto.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use edged::agent::event::{Action, DeviceAction, DeviceEvent, Event, Out};
use edged::agent::time::{Instant as Boot, Now, Wall};
use edged::agent::{Agent, Config};
use edged::io::disk::Disk as Store;
use edged::limits::{NODE_DEVICES_MAX, TWIN_SAVE_MS, TWINS_MAX};
use edged::model::device::{DeviceChange, DeviceId, Twin, TwinRow, TwinSide, TwinVersion};
use edged::model::meta::{Change, Revision, Row, Saved, StoreOrigin};
use edged::model::settings::{CloudSettings, DeviceSettings};
use edged::wire::devices;
use serde_json::{Value, json};

use crate::cloud::Disk;
use crate::figure::{Figure, Limit, median};
use crate::rig::Rig;
use crate::support::agent::NODE;
use crate::support::broker::Broker;
use crate::support::cloud::{Cloud, Setup};
use crate::support::joined::{self, join, with_devices};
use crate::support::mapper::{device, model};
use crate::support::process::{cpu_seconds, pss_kb};
use crate::watched::Watched;

/// Names of [`updates`].
pub const UPDATES: &[&str] = &["devices.updates_per_s", "devices.update_us_p99"];
/// Names of [`memory`].
pub const MEMORY: &[&str] = &["devices.memory.full"];
/// Names of [`idle`].
pub const IDLE: &[&str] = &["devices.cpu.idle", "devices.flash.day"];
/// Names of [`flash`].
pub const FLASH: &[&str] = &["devices.flash.save", "devices.flash.changing"];

const ROUNDS: usize = 5;
const UPDATES_A_ROUND: usize = 20_000;
/// As many as fit where each device has them.
const PROPERTIES: usize = TWINS_MAX / NODE_DEVICES_MAX;
/// Devices at rest, each of which reports once a second.
const RESTING: usize = 20;
const SETTLE: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_secs(120);

/// One of the device's objects, with so many properties.
fn object(number: usize, properties: usize) -> Value {
    let mut object = device(NODE, "20");
    object["metadata"]["name"] = format!("dev{number}").into();
    object["metadata"]["uid"] = format!("uid-{number}").into();
    let property = |n| json!({"name": format!("p{n}"), "desired": {"value": "20"}});
    object["spec"]["properties"] = (0..properties).map(property).collect();
    object
}

/// Twin updates in a second and the time of each, from the payload of a message to the payloads of
/// its answers, with as many devices as a node may have. Saves take no time.
pub fn updates(_: &Rig) -> Vec<Figure> {
    let now = |started: Instant| {
        let ms = started.elapsed().as_millis() as u64;
        Now { boot: Boot(1_000 + ms), wall: Some(Wall(1_800_000_000_000 + ms as i64)) }
    };
    let started = Instant::now();
    let config = Config {
        node_name: NODE.to_owned(),
        cloud: Some(CloudSettings::default()),
        devices: Some(DeviceSettings::default()),
        ..Config::default()
    };
    let mut agent = Agent::boot(config, now(started), 1);
    let rows = (0..NODE_DEVICES_MAX).map(|n| Row {
        key: format!("default/device/dev{n}").into(),
        kind: "device".into(),
        value: object(n, PROPERTIES).to_string().into(),
    });
    let saved = Saved::new(rows.collect(), StoreOrigin::Kept);
    agent.handle(now(started), Event::Loaded(Box::new(saved)));
    let mut out = Out::default();
    agent.step(now(started), &mut out);
    // What every device publishes at a start is no answer.
    while answer(&mut agent, &mut out, now(started)) > 0 {
        agent.step(now(started), &mut out);
    }
    let mut rates = Vec::new();
    let mut times_us = Vec::new();
    let mut number = 0_usize;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..UPDATES_A_ROUND {
            number += 1;
            let (at, property) = (number % NODE_DEVICES_MAX, number % PROPERTIES);
            let topic = format!("$hw/events/device/default/dev{at}/twin/update");
            let twin = format!(r#"{{"p{property}":{{"actual":{{"value":"{number}"}}}}}}"#);
            let payload = format!(r#"{{"event_id":"e{number}","twin":{twin}}}"#);
            let before = Instant::now();
            let request = devices::request(&topic, payload.as_bytes()).expect("a request");
            let event = Event::Device(Box::new(DeviceEvent::Request(request)));
            agent.handle(now(started), event);
            agent.step(now(started), &mut out);
            let answers = answer(&mut agent, &mut out, now(started));
            times_us.push(before.elapsed().as_secs_f64() * 1e6);
            assert_eq!(answers, 3, "result, document and delta");
        }
        rates.push(UPDATES_A_ROUND as f64 / began.elapsed().as_secs_f64());
    }
    times_us.sort_by(f64::total_cmp);
    let p99 = times_us[times_us.len() * 99 / 100];
    vec![
        Figure::alone(UPDATES[0], median(&rates), "1/s", Some(Limit::Least(10_000.0))),
        Figure::alone(UPDATES[1], p99, "us", Some(Limit::Most(1_000.0))),
    ]
}

/// Performs what the agent requests; returns how many messages were published.
fn answer(agent: &mut Agent, out: &mut Out, now: Now) -> usize {
    let mut published = 0;
    for action in std::mem::take(&mut out.actions) {
        match action {
            Action::Device(action) => {
                if let DeviceAction::Publish(publication) = *action {
                    std::hint::black_box(devices::publish(NODE, &publication));
                    published += 1;
                }
            }
            Action::Save { revision, .. } => agent.handle(now, Event::Saved(revision)),
            _ => {}
        }
    }
    published
}

/// Megabytes that as many devices take as a node may have, with as many properties as fit, beyond
/// those of an agent without devices.
pub fn memory(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site();
    join(&mut site, &cloud);
    with_devices(&site, &site.dir.join("dmi.sock"), "tcp://127.0.0.1:9");
    let agent = Watched::start(&site);
    cloud.connected(1);
    std::thread::sleep(SETTLE);
    let before = pss_kb(agent.pid()) as f64;
    cloud.acked(&cloud.put("default/devicemodel/model1", model()));
    for n in 0..NODE_DEVICES_MAX {
        cloud.acked(&cloud.put(&format!("default/device/dev{n}"), object(n, PROPERTIES)));
    }
    std::thread::sleep(SETTLE);
    let after = pss_kb(agent.pid()) as f64;
    drop(agent);
    rig.wipe();
    let more = (after - before) / 1_024.0;
    vec![Figure::alone(MEMORY[0], more, "MB", Some(Limit::Most(3.0)))]
}

/// CPU of the agent with devices that report the same value each second, beside that of the broker
/// which carries their messages; bytes that it writes to flash meanwhile.
pub fn idle(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site();
    let disk = Disk::new(&site.dir);
    let (https, websocket) = (cloud.https.to_string(), cloud.websocket.to_string());
    let store = disk.mount.join("edgecore.db");
    joined::configure(&mut site, &store, &https, &websocket, &cloud.token());
    let broker = Broker::start(&site.dir);
    let address = format!("tcp://127.0.0.1:{}", broker.port);
    with_devices(&site, &site.dir.join("dmi.sock"), &address);
    let agent = Watched::start(&site);
    cloud.connected(1);
    cloud.acked(&cloud.put("default/devicemodel/model1", model()));
    for n in 0..RESTING {
        cloud.acked(&cloud.put(&format!("default/device/dev{n}"), object(n, 1)));
    }
    let mut devices: Vec<Resting> = (0..RESTING).map(|n| Resting::start(n, broker.port)).collect();
    let mut rest = |time: Duration| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let next = Instant::now() + Duration::from_secs(1);
            devices.iter_mut().for_each(Resting::report);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    rest(SETTLE);
    let cpu = || (cpu_seconds(agent.pid()), cpu_seconds(broker.pid()));
    let (before, before_kib) = (cpu(), disk.written_kib());
    rest(WINDOW);
    let (after, after_kib) = (cpu(), disk.written_kib());
    drop(agent);
    rig.wipe();
    let per_s = |before: f64, after: f64| (after - before) * 1_000.0 / WINDOW.as_secs_f64();
    let windows_a_day = 86_400.0 / WINDOW.as_secs_f64();
    let day = (after_kib - before_kib) / 1_024.0 * windows_a_day;
    let (ours, theirs) = (per_s(before.0, after.0), per_s(before.1, after.1));
    vec![
        Figure::beside(IDLE[0], &[ours], &[theirs], "ms/s", Limit::Ratio(4.0)),
        Figure::alone(IDLE[1], day, "MiB/day", Some(Limit::Most(1.0))),
    ]
}

/// KiB on the device below the store for a save of as many values as devices at rest have, and MiB
/// in a day if all of them change each second: as many saves as fit into it.
pub fn flash(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    let disk = Disk::new(&site.dir);
    let (mut store, _) = Store::open(&disk.mount.join("edgecore.db")).expect("nobody else's");
    let mut save = |n: u64| {
        let rows = (0..RESTING).map(|at| Change::Device(DeviceChange::PutTwin(row(at, n))));
        let saved = store.save(Revision(n), &rows.collect::<Vec<_>>());
        assert!(matches!(saved, Event::Saved(_)), "{saved:?}");
        // The file system writes its journal in the meantime.
        std::thread::sleep(SAVE_PAUSE);
    };
    (0..2).for_each(&mut save);
    let before = disk.written_kib();
    (2..2 + SAVES).for_each(&mut save);
    let kib = (disk.written_kib() - before) / SAVES as f64;
    drop(store);
    rig.wipe();
    let saves_a_day = 86_400_000.0 / TWIN_SAVE_MS as f64;
    vec![
        Figure::alone(FLASH[0], kib, "KiB", Some(Limit::Most(14.0))),
        Figure::alone(FLASH[1], kib * saves_a_day / 1_024.0, "MiB/day", Some(Limit::Most(1.0))),
    ]
}

const SAVES: u64 = 10;
/// Longer than ext4 waits before it writes its journal (5 s).
const SAVE_PAUSE: Duration = Duration::from_secs(7);

fn row(device: usize, n: u64) -> Box<TwinRow> {
    let side = |value: String| {
        let version = TwinVersion { cloud: 0, edge: 1_000_000 + n as i64 };
        let timestamp_ms = 1_800_000_000_000 + n as i64;
        Some(TwinSide { value: Some(value.into()), timestamp_ms, version })
    };
    Box::new(TwinRow {
        device: DeviceId::new("default", &format!("dev{device}")),
        property: "p0".into(),
        twin: Twin {
            expected: side("20".to_owned()),
            actual: side(n.to_string()),
            optional: true,
            type_name: "string".into(),
        },
        is_unsent: false,
        is_doubtful: false,
        desired: Some("20".into()),
    })
}

/// A device that reports one value again and again.
struct Resting(Child);

impl Resting {
    fn start(number: usize, port: u16) -> Self {
        let topic = format!("$hw/events/device/default/dev{number}/twin/update");
        let publisher = Command::new("mosquitto_pub")
            .args(["-p", &port.to_string(), "-q", "1", "-l", "-t", &topic])
            .stdin(Stdio::piped())
            .spawn();
        Self(publisher.expect("mosquitto-clients is installed"))
    }

    fn report(&mut self) {
        let payload = r#"{"event_id":"e","twin":{"p0":{"actual":{"value":"21"}}}}"#;
        let stdin = self.0.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{payload}").expect("it reads");
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
