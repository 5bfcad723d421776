//! Rows of the store, which an earlier program or a damaged file has left, and edits of a device: a
//! node boots with any of them, and what it writes is read again.
#![no_main]

use edged::agent::event::{Action, Event, Out};
use edged::agent::time::{Instant, Now, Wall};
use edged::agent::{Agent, Config, Machine};
use edged::limits::RELIST_GAP_MAX_MS;
use edged::model::device::DeviceObject;
use edged::model::meta::{Change, Row, Saved};
use edged::model::metaserver::{Call, Caller, ClientId, DevicePut, MetaServerSettings};
use edged::model::settings::{CloudSettings, DeviceSettings};
use libfuzzer_sys::fuzz_target;

/// Steps of one life.
const STEPS: u64 = 20;

/// A device of this node.
const DEVICE: &str = r#"{"kind":"Device","apiVersion":"devices.kubeedge.io/v1beta1",
"metadata":{"name":"dev1","namespace":"default","uid":"u1","resourceVersion":"5"},
"spec":{"nodeName":"gw","protocol":{"protocolName":"modbus"},
"properties":[{"name":"temp","desired":{"value":"20"}}]}}"#;

/// The kind and the key of a row, by the first byte of its part.
const ROWS: [(u8, &str, &str); 16] = [
    (b'p', "pod", "default/pod/web"),
    (b's', "podstatus", "default/podstatus/web"),
    (b'P', "podpatch", "default/podpatch/web"),
    (b'r', "podrelease", "default/podrelease/web"),
    (b'm', "configmap", "default/configmap/m"),
    (b'x', "secret", "default/secret/x"),
    (b'c', "persistentvolumeclaim", "default/persistentvolumeclaim/c"),
    (b'v', "persistentvolume", "default/persistentvolume/v"),
    (b'S', "service", "default/service/web"),
    (b'a', "serviceaccountaccess", "default/serviceaccountaccess/default"),
    (b'D', "devicemodel", "default/devicemodel/model1"),
    (b'd', "device", "default/device/dev2"),
    (b'e', "deviceedit", "default/deviceedit/dev1"),
    (b'M', "devicemapper", "node/nodeID/namespace/devicemapper/modbus"),
    (b'j', "nodejob", "null/nodejob/v1alpha2.imageprepulljob.nightly"),
    (b'n', "node", "default/node/gw"),
];

/// A row of this part. Where its first byte stands for none, its first line is the kind and its
/// second the key.
fn row(part: &str) -> Option<Row> {
    let first = *part.as_bytes().first()?;
    let (kind, key, value) = match ROWS.iter().find(|(byte, ..)| *byte == first) {
        Some((_, kind, key)) => (*kind, *key, &part[1..]),
        None => {
            let (kind, rest) = part.split_once('\n')?;
            let (key, value) = rest.split_once('\n')?;
            (kind, key, value)
        }
    };
    let mut value = value.to_owned();
    if kind == "deviceedit" {
        // It holds only for the spec that was edited.
        let base = DeviceObject::read(DEVICE).expect("a device").view.spec;
        value = format!("{{\"base\":\"{base:016x}\",{value}");
    }
    Some(Row { key: key.into(), kind: kind.into(), value: value.into() })
}

struct Node {
    agent: Agent,
    now: Now,
    written: Vec<Change>,
}

impl Node {
    fn boot(rows: Vec<Row>) -> Self {
        let config = Config {
            node_name: "gw".to_owned(),
            root: "/var/lib/kubelet".to_owned(),
            pod_logs: "/var/log/pods".to_owned(),
            machine: Machine {
                memory_bytes: 1 << 30,
                cpu_milli: 2_000,
                kernel: (6, 1),
                ..Machine::default()
            },
            pods_max: 110,
            crash_backoff_max_ms: 300_000,
            cloud: Some(CloudSettings::default()),
            devices: Some(DeviceSettings::default()),
            metaserver: Some(MetaServerSettings { keadm_ctl: true, ..Default::default() }),
            node_jobs: true,
            ..Config::default()
        };
        let now = Now { boot: Instant(1_000), wall: Some(Wall(1_800_000_000_000)) };
        let mut node = Self { agent: Agent::boot(config, now, 1), now, written: Vec::new() };
        node.agent.handle(now, Event::Loaded(Box::new(Saved::kept(rows))));
        node.pass();
        node
    }

    /// All that is saved is saved at once; nothing else is answered.
    fn pass(&mut self) {
        let mut out = Out::default();
        for _ in 0..STEPS {
            self.agent.step(self.now, &mut out);
            for action in std::mem::take(&mut out.actions) {
                if let Action::Save { revision, changes } = action {
                    self.written.extend(changes);
                    self.agent.handle(self.now, Event::Saved(revision));
                }
            }
            self.now.boot = self.now.boot.plus_ms(RELIST_GAP_MAX_MS);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.split('\0');
    let edit = parts.next().unwrap_or_default();
    let mut rows: Vec<Row> = parts.take(8).filter_map(row).collect();
    rows.push(Row {
        key: "default/device/dev1".into(),
        kind: "device".into(),
        value: DEVICE.into(),
    });
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows.dedup_by(|a, b| a.key == b.key);
    let mut node = Node::boot(rows);
    let put = DevicePut { namespace: "default".into(), name: "dev1".into(), text: edit.into() };
    let call = Box::new(Call::EditDevice(Box::new(put)));
    node.agent.handle(node.now, Event::MetaServerOpened(ClientId(1), call, Caller::Local));
    node.pass();
    let written = std::mem::take(&mut node.written).into_iter();
    let rows = written.filter_map(|change| match change {
        Change::Put(row) => Some(row),
        _ => None,
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows.dedup_by(|a, b| a.key == b.key);
    Node::boot(rows);
});
