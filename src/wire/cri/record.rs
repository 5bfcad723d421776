//! The records of the built-in runtime as bytes: protobuf messages of our own, which no peer sees.
//! Configurations in them are the messages of the CRI, as the agent writes and the server reads
//! them.
//!
//! ```text
//!  Record    { oneof: Sandbox sandbox = 1; Container container = 2; Image image = 3 }
//!  Sandbox   { id = 1; PodSandboxConfig config = 2; runtime_handler = 3; enum phase = 4;
//!              int64 created_at = 5; repeated ips = 6; boot = 7; program = 8 }
//!  Container { id = 1; sandbox = 2; ContainerConfig config = 3; log = 4; image = 5;
//!              repeated layers = 6; int32 stop_signal = 7; int64 created_at = 8;
//!              oneof phase: Created created = 9; string starting = 10; Running running = 11;
//!              Exit exited = 12 }
//!  Running   { int64 started_at = 1; Process process = 2 }
//!  Process   { int32 pid = 1; uint64 start_time = 2; boot = 3 }
//!  Exit      { int32 code = 1; enum reason = 2; message = 3; int64 started_at = 4;
//!              int64 finished_at = 5 }
//!  Image     { id = 1; repeated tags = 2; repeated digests = 3; repeated layers = 4;
//!              uint64 size = 5; bool pinned = 6; ImageConfig config = 7 }
//!  ImageConfig { user = 1; repeated env = 2; repeated entrypoint = 3; repeated cmd = 4;
//!              working_dir = 5; repeated volumes = 6; stop_signal = 7; map labels = 8 }
//! ```
//!
//! Fields without a type are strings. The enums count from 1, in the order of the model's variants.
//!
//! **Other versions.** A field that is missing has its zero, and an unknown field of these messages
//! is skipped; a number is never used for something else. A phase or a reason that is missing or
//! unknown is an error, because it would be taken for another one. In a configuration an unknown
//! field is an error as well, as in a request: a container without a restriction that was asked for
//! is worse than none.
//!
//! **Bounds.** The file or the message bounds its lists: an item has two bytes and up to 24 in
//! memory. Lists in configurations have the bound that they have in requests.
//!
//! In a message between processes of this program a record is a byte string of the same form, and
//! resources are one of CRI's: the implementations of serde at the end.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{convert, serve};
use crate::model::error::Peer;
use crate::model::runtime::{
    BootId, ContainerConfig, ContainerId, ContainerPhase, ContainerRecord, DiffId, Exit,
    ExitReason, ImageConfig, ImageId, ImageRecord, Process, Record, Resources, SandboxConfig,
    SandboxId, SandboxPhase, SandboxRecord,
};
use crate::wire::protobuf::{Malformed, Value, Writer, fields};

/// The message `Record`.
pub fn encode(record: &Record) -> Vec<u8> {
    written(|w| match record {
        Record::Sandbox(record) => w.message(1, &mut |w| sandbox(w, record)),
        Record::Container(record) => w.message(2, &mut |w| container(w, record)),
        Record::Image(record) => w.message(3, &mut |w| image(w, record)),
    })
}

/// Reads a message `Record`. Its ids are not checked.
pub fn decode(bytes: &[u8]) -> Result<Record, Peer> {
    read(bytes).map_err(|Malformed(why)| Peer::new(why))
}

fn read(bytes: &[u8]) -> Result<Record, Malformed> {
    let mut record = None;
    for field in fields(bytes) {
        record = Some(match field? {
            (1, value) => Record::Sandbox(read_sandbox(value.bytes()?)?),
            (2, value) => Record::Container(read_container(value.bytes()?)?),
            (3, value) => Record::Image(read_image(value.bytes()?)?),
            _ => continue,
        });
    }
    record.ok_or_else(|| Malformed("got no sandbox, container or image, expected one".to_owned()))
}

fn sandbox(w: &mut Writer, record: &SandboxRecord) {
    w.text(1, &record.id.0);
    w.bytes(2, &convert::sandbox_config(&record.config));
    w.text(3, &record.config.runtime_handler);
    w.number(4, number_of(SANDBOX_PHASES, record.phase));
    w.signed(5, record.created_at);
    w.texts(6, &record.ips);
    w.text(7, &record.boot.0);
    w.text(8, &record.program);
}

fn read_sandbox(message: &[u8]) -> Result<SandboxRecord, Malformed> {
    let (mut config, mut handler, mut phase) = (None, "", 0);
    let mut record = SandboxRecord {
        id: SandboxId("".into()),
        config: SandboxConfig::default(),
        phase: SandboxPhase::Making,
        created_at: 0,
        ips: Vec::new(),
        boot: BootId::default(),
        program: "".into(),
    };
    for field in fields(message) {
        match field? {
            (1, value) => record.id.0 = owned(value)?,
            (2, value) => config = Some(value.bytes()?),
            (3, value) => handler = value.text()?,
            (4, value) => phase = value.number()?,
            (5, value) => record.created_at = value.signed()?,
            (6, value) => record.ips.push(owned(value)?),
            (7, value) => record.boot.0 = owned(value)?,
            (8, value) => record.program = owned(value)?,
            _ => {}
        }
    }
    record.phase = variant("Sandbox.phase", SANDBOX_PHASES, phase)?;
    let config = config.ok_or_else(|| missing("Sandbox.config"))?;
    record.config = serve::sandbox_config(config, handler)?;
    Ok(record)
}

const SANDBOX_PHASES: &[SandboxPhase] =
    &[SandboxPhase::Making, SandboxPhase::Ready, SandboxPhase::Stopping, SandboxPhase::NotReady];

fn container(w: &mut Writer, record: &ContainerRecord) {
    w.text(1, &record.id.0);
    w.text(2, &record.sandbox.0);
    w.bytes(3, &convert::container_config(&record.config));
    w.text(4, &record.log);
    w.text(5, &record.image.0);
    layers(w, 6, &record.layers);
    w.signed(7, record.stop_signal.into());
    w.signed(8, record.created_at);
    match &record.phase {
        ContainerPhase::Created => w.message(9, &mut |_| {}),
        // Its presence counts, and so does that of an empty text.
        ContainerPhase::Starting(boot) => w.texts(10, &[&boot.0]),
        ContainerPhase::Running { started_at, process } => w.message(11, &mut |w| {
            w.signed(1, *started_at);
            w.message(2, &mut |w| {
                w.signed(1, process.pid.into());
                w.number(2, process.start_time);
                w.text(3, &process.boot.0);
            });
        }),
        ContainerPhase::Exited(exit) => w.message(12, &mut |w| {
            w.signed(1, exit.code.into());
            w.number(2, number_of(EXIT_REASONS, exit.reason));
            w.text(3, &exit.message);
            w.signed(4, exit.started_at);
            w.signed(5, exit.finished_at);
        }),
    }
}

fn read_container(message: &[u8]) -> Result<ContainerRecord, Malformed> {
    let (mut config, mut phase) = (None, None);
    let mut record = ContainerRecord {
        id: ContainerId("".into()),
        sandbox: SandboxId("".into()),
        config: ContainerConfig::default(),
        log: "".into(),
        image: ImageId("".into()),
        layers: Vec::new(),
        stop_signal: 0,
        created_at: 0,
        phase: ContainerPhase::Created,
    };
    for field in fields(message) {
        match field? {
            (1, value) => record.id.0 = owned(value)?,
            (2, value) => record.sandbox.0 = owned(value)?,
            (3, value) => config = Some(value.bytes()?),
            (4, value) => record.log = owned(value)?,
            (5, value) => record.image.0 = owned(value)?,
            (6, value) => record.layers.push(DiffId(owned(value)?)),
            (7, value) => record.stop_signal = small(value)?,
            (8, value) => record.created_at = value.signed()?,
            (9, _) => phase = Some(ContainerPhase::Created),
            (10, value) => phase = Some(ContainerPhase::Starting(BootId(owned(value)?))),
            (11, value) => phase = Some(running(value.bytes()?)?),
            (12, value) => phase = Some(ContainerPhase::Exited(exit(value.bytes()?)?)),
            _ => {}
        }
    }
    record.phase = phase.ok_or_else(|| missing("Container.phase"))?;
    let config = config.ok_or_else(|| missing("Container.config"))?;
    record.config = serve::container_config(config)?;
    Ok(record)
}

fn running(message: &[u8]) -> Result<ContainerPhase, Malformed> {
    let (mut started_at, mut process) = (0, None);
    for field in fields(message) {
        match field? {
            (1, value) => started_at = value.signed()?,
            (2, value) => process = Some(self::process(value.bytes()?)?),
            _ => {}
        }
    }
    let process = process.ok_or_else(|| missing("Running.process"))?;
    Ok(ContainerPhase::Running { started_at, process })
}

fn process(message: &[u8]) -> Result<Process, Malformed> {
    let mut process = Process { pid: 0, start_time: 0, boot: BootId::default() };
    for field in fields(message) {
        match field? {
            (1, value) => process.pid = small(value)?,
            (2, value) => process.start_time = value.number()?,
            (3, value) => process.boot.0 = owned(value)?,
            _ => {}
        }
    }
    Ok(process)
}

fn exit(message: &[u8]) -> Result<Exit, Malformed> {
    let mut reason = 0;
    let mut exit = Exit {
        code: 0,
        reason: ExitReason::Unknown,
        message: "".into(),
        started_at: 0,
        finished_at: 0,
    };
    for field in fields(message) {
        match field? {
            (1, value) => exit.code = small(value)?,
            (2, value) => reason = value.number()?,
            (3, value) => exit.message = owned(value)?,
            (4, value) => exit.started_at = value.signed()?,
            (5, value) => exit.finished_at = value.signed()?,
            _ => {}
        }
    }
    exit.reason = variant("Exit.reason", EXIT_REASONS, reason)?;
    Ok(exit)
}

const EXIT_REASONS: &[ExitReason] = &[
    ExitReason::Completed,
    ExitReason::Error,
    ExitReason::OomKilled,
    ExitReason::StartError,
    ExitReason::Unknown,
];

fn image(w: &mut Writer, record: &ImageRecord) {
    w.text(1, &record.id.0);
    w.texts(2, &record.tags);
    w.texts(3, &record.digests);
    layers(w, 4, &record.layers);
    w.number(5, record.size);
    w.flag(6, record.pinned);
    let config = &record.config;
    w.message(7, &mut |w| {
        w.text(1, &config.user);
        w.texts(2, &config.env);
        w.texts(3, &config.entrypoint);
        w.texts(4, &config.cmd);
        w.text(5, &config.working_dir);
        w.texts(6, &config.volumes);
        w.text(7, &config.stop_signal);
        w.map(8, &config.labels);
    });
}

fn read_image(message: &[u8]) -> Result<ImageRecord, Malformed> {
    let mut record = ImageRecord {
        id: ImageId("".into()),
        tags: Vec::new(),
        digests: Vec::new(),
        layers: Vec::new(),
        size: 0,
        pinned: false,
        config: ImageConfig::default(),
    };
    for field in fields(message) {
        match field? {
            (1, value) => record.id.0 = owned(value)?,
            (2, value) => record.tags.push(owned(value)?),
            (3, value) => record.digests.push(owned(value)?),
            (4, value) => record.layers.push(DiffId(owned(value)?)),
            (5, value) => record.size = value.number()?,
            (6, value) => record.pinned = value.flag()?,
            (7, value) => record.config = image_config(value.bytes()?)?,
            _ => {}
        }
    }
    Ok(record)
}

fn image_config(message: &[u8]) -> Result<ImageConfig, Malformed> {
    let mut config = ImageConfig::default();
    for field in fields(message) {
        match field? {
            (1, value) => config.user = owned(value)?,
            (2, value) => config.env.push(owned(value)?),
            (3, value) => config.entrypoint.push(owned(value)?),
            (4, value) => config.cmd.push(owned(value)?),
            (5, value) => config.working_dir = owned(value)?,
            (6, value) => config.volumes.push(owned(value)?),
            (7, value) => config.stop_signal = owned(value)?,
            (8, value) => {
                let (key, value) = value.entry()?;
                config.labels.insert(key, value);
            }
            _ => {}
        }
    }
    Ok(config)
}

fn layers(w: &mut Writer, field: u32, layers: &[DiffId]) {
    for DiffId(id) in layers {
        w.texts(field, &[id]);
    }
}

fn written(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    fill(&mut writer);
    writer.into_bytes()
}

/// Its place in the list, from 1.
fn number_of<T: Copy + PartialEq>(all: &[T], value: T) -> u64 {
    let at = all.iter().position(|one| *one == value);
    at.expect("the list has every variant") as u64 + 1
}

fn variant<T: Copy>(name: &str, all: &[T], number: u64) -> Result<T, Malformed> {
    let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| all.get(at))
        .copied()
        .ok_or_else(|| Malformed(format!("{name}: got {number}, expected 1 to {}", all.len())))
}

fn owned(value: Value<'_>) -> Result<Box<str>, Malformed> {
    value.text().map(Into::into)
}

/// `int32`
fn small(value: Value<'_>) -> Result<i32, Malformed> {
    let number = value.signed()?;
    number.try_into().map_err(|_| Malformed(format!("got {number}, expected 32 bits")))
}

fn missing(name: &str) -> Malformed {
    Malformed(format!("{name}: got none, expected one"))
}

/// `LinuxContainerResources`
fn resources(w: &mut Writer, of: &Resources) {
    w.signed(1, of.cpu_period);
    w.signed(2, of.cpu_quota);
    w.signed(3, of.cpu_shares);
    w.signed(4, of.memory_limit);
    w.signed(5, of.oom_score_adj);
    w.text(6, &of.cpuset_cpus);
    w.text(7, &of.cpuset_mems);
    for (page_size, limit) in &of.hugepages {
        w.message(8, &mut |w| {
            w.text(1, page_size);
            w.number(2, *limit);
        });
    }
    w.map(9, &of.unified);
    w.signed(10, of.memory_swap_limit);
}

macro_rules! as_bytes {
    ($($record:ty: $write:ident, $read:path;)*) => {$(
        impl Serialize for $record {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_bytes(&written(|w| $write(w, self)))
            }
        }

        impl<'de> Deserialize<'de> for $record {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $read(<&[u8]>::deserialize(from)?).map_err(D::Error::custom)
            }
        }
    )*};
}

as_bytes! {
    SandboxRecord: sandbox, read_sandbox;
    ContainerRecord: container, read_container;
    ImageRecord: image, read_image;
    Resources: resources, serve::resources;
}

#[cfg(test)]
mod tests;
