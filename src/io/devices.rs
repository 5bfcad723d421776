//! What devices are reached by: MQTT clients and mappers, between their sockets and the core.
//!
//! ```text
//!  MQTT clients ◀─▶ io/mqtt ─topic, payload─▶ wire/devices ─▶ DeviceEvent ─▶ core
//!  mappers ◀─▶ io/dmi ─▶ DeviceEvent ─▶ core ─▶ DeviceAction ─▶ both
//! ```
//!
//! A message by MQTT is acknowledged to the broker once the core has it. The core saves what it
//! says within minutes; what a power cut takes of that is reported again by its device. Messages
//! for the cloud are in memory until they have left the node.

use std::path::{Path, PathBuf};

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::dmi::{self, Dmi};
use super::mqtt::{self, Mqtt};
use crate::agent::event::{DeviceAction, DeviceEvent, Event};
use crate::agent::time::{Instant, Now, sooner};
use crate::config::Config;
use crate::model::device::{ManagerCallId, MapperCallId, MqttStatus, OtherBroker, Publication};
use crate::model::settings::{DeviceSettings, MqttMode};
use crate::wire::devices;
use crate::wire::mqtt::QoS;

/// Both, as far as the settings have them.
#[derive(Debug, Default)]
pub struct Devices {
    node: Box<str>,
    mappers: Option<Dmi>,
    clients: Option<Clients>,
}

#[derive(Debug)]
struct Clients {
    mqtt: Mqtt,
    /// How answers are published.
    qos: QoS,
    retain: bool,
    /// The URL of the broker inside, if there is one, and whether it listened at the last look.
    broker: Option<Box<str>>,
    listens: bool,
    published: u64,
    dropped: u64,
    report: Report,
}

/// What the core does not know yet of the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Report {
    Nothing,
    /// Counters: they go with the next event.
    Counts,
    /// A state: at once.
    State,
}

impl Devices {
    /// `first`: the first of all tokens from there on. What cannot be opened is logged: pods do
    /// not depend on it.
    pub fn new(config: &Config, first: Token, now: Instant) -> Self {
        let Some(settings) = config.device_settings() else { return Self::default() };
        Self {
            node: (*config.node_name).into(),
            mappers: Some(Dmi::new(Path::new(&settings.socket), first, now)),
            clients: Clients::open(&settings, Token(first.0 + Dmi::TOKENS)),
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        self.mappers.as_ref().is_some_and(|mappers| mappers.owns(token))
            || self.clients.as_ref().is_some_and(|clients| clients.mqtt.owns(token))
    }

    pub fn ready(&mut self, ready: &Ready) {
        match (&mut self.mappers, &mut self.clients) {
            (Some(mappers), _) if mappers.owns(ready.token()) => mappers.ready(ready),
            (_, Some(clients)) => clients.mqtt.ready(ready),
            _ => {}
        }
    }

    /// Takes what has come.
    pub fn tick(&mut self, now: Now, registry: &Registry, events: &mut Vec<Event>) {
        if let Some(mappers) = &mut self.mappers {
            let mut found = Vec::new();
            mappers.tick(now.boot, registry, &mut found);
            events.extend(found.into_iter().map(of_mapper));
        }
        if let Some(clients) = &mut self.clients {
            let mut found = Vec::new();
            clients.mqtt.tick(now, registry, &mut found);
            clients.take(found, events);
            clients.report(events);
        }
    }

    pub fn perform(&mut self, now: Instant, action: DeviceAction, events: &mut Vec<Event>) {
        match (action, &mut self.mappers) {
            (DeviceAction::Publish(publication), _) => {
                if let Some(clients) = &mut self.clients {
                    clients.publish(&self.node, &publication, events);
                }
            }
            (DeviceAction::Subscribe(topic), _) => {
                if let Some(clients) = &mut self.clients
                    && let Err(why) = clients.mqtt.subscribe(&topic)
                {
                    log::warn!("eventbus: topic={topic:?} of a rule is not served: {why}");
                }
            }
            (DeviceAction::Unsubscribe(topic), _) => {
                if let Some(clients) = &mut self.clients {
                    clients.mqtt.unsubscribe(&topic);
                }
            }
            (DeviceAction::Pass { topic, payload }, _) => {
                if let Some(clients) = &mut self.clients {
                    clients.pass(&topic, &payload, events);
                }
            }
            (DeviceAction::Answer(id, answer), Some(mappers)) => {
                mappers.answer(now, id.0, &answer);
            }
            (DeviceAction::Call { id, socket, call, deadline }, Some(mappers)) => {
                let mut found = Vec::new();
                mappers.call(id.0, &socket, call, deadline, &mut found);
                events.extend(found.into_iter().map(of_mapper));
            }
            (DeviceAction::CheckSocket { id, socket }, Some(_)) => {
                let result = dmi::check(&socket);
                events.push(of_mapper(dmi::Event::Done { id: id.0, result }));
            }
            // The core has no devices without the settings for both.
            (_, None) => {}
        }
    }

    /// Writes what this turn has brought, at its end.
    pub fn flush(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        if let Some(mappers) = &mut self.mappers {
            let mut found = Vec::new();
            mappers.flush(registry, &mut found);
            events.extend(found.into_iter().map(of_mapper));
        }
        if let Some(clients) = &mut self.clients {
            let mut found = Vec::new();
            clients.mqtt.flush(now, &mut found);
            clients.take(found, events);
            clients.report(events);
        }
    }

    pub fn wake_at(&self) -> Option<Instant> {
        let mappers = self.mappers.as_ref().and_then(Dmi::wake_at);
        sooner(mappers, self.clients.as_ref().and_then(|clients| clients.mqtt.wake_at()))
    }

    /// A child has ended, perhaps the one that looks up the broker's name.
    pub fn reap(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.mqtt.reap();
        }
    }

    /// The configuration was reloaded: what failed is tried at once.
    pub fn retry(&mut self) {
        if let Some(mappers) = &mut self.mappers {
            mappers.retry();
        }
    }
}

impl Clients {
    fn open(settings: &DeviceSettings, first: Token) -> Option<Self> {
        let bus = settings.bus.as_ref()?;
        let (program, seed) = (PathBuf::from("/proc/self/exe"), super::clock::seed());
        let opened = Mqtt::new(&bus.mqtt, program, first, seed);
        let opened = opened.inspect_err(|why| log::error!("MQTT is off: {why}"));
        // EdgeCore's keys are those of the broker inside.
        let (qos, retain) = match bus.mqtt.mode {
            MqttMode::Internal if bus.qos == 0 => (QoS::AtMostOnce, bus.retain),
            MqttMode::Internal if bus.qos == 1 => (QoS::AtLeastOnce, bus.retain),
            MqttMode::Internal => (QoS::ExactlyOnce, bus.retain),
            MqttMode::Both | MqttMode::External => (QoS::AtLeastOnce, false),
        };
        let has_broker = bus.mqtt.mode != MqttMode::External;
        let broker = has_broker.then(|| bus.mqtt.broker.server.to_string().into());
        let (listens, published, dropped) = Default::default();
        let mqtt = opened.ok()?;
        Some(Self { mqtt, qos, retain, broker, listens, published, dropped, report: Report::State })
    }

    fn take(&mut self, found: Vec<mqtt::Event>, events: &mut Vec<Event>) {
        for event in found {
            let report = match event {
                mqtt::Event::Received { id, topic, payload } => {
                    let request = devices::request(&topic, &payload).map(DeviceEvent::Request);
                    let upload = || devices::upload(&topic, &payload).map(DeviceEvent::Upload);
                    match request.or_else(upload) {
                        Some(event) => events.push(of(event)),
                        None => log::debug!("topic={topic:?} is none of a request: dropped"),
                    }
                    if let Some(id) = id {
                        self.mqtt.acknowledge(id);
                    }
                    Report::Nothing
                }
                mqtt::Event::Up | mqtt::Event::Down(_) | mqtt::Event::Clients => Report::State,
                mqtt::Event::Published(_) => {
                    self.published += 1;
                    Report::Counts
                }
                mqtt::Event::Dropped(_) => {
                    self.dropped += 1;
                    Report::Counts
                }
            };
            self.report = self.report.max(report);
        }
    }

    /// Reports the brokers to the core, if there is something new.
    fn report(&mut self, events: &mut Vec<Event>) {
        let listens = self.mqtt.bound().is_some();
        let is_due = match self.report {
            Report::Nothing => false,
            // They are worth no step of the core by themselves.
            Report::Counts => !events.is_empty(),
            Report::State => true,
        };
        if is_due || listens != self.listens {
            (self.report, self.listens) = (Report::Nothing, listens);
            let mqtt::Status { client, counts, .. } = self.mqtt.status();
            let status = MqttStatus {
                client: client.map(|(server, state)| OtherBroker {
                    server: server.into(),
                    trouble: state.err().map(Box::from),
                }),
                broker: self.broker.clone().map(|address| (address, listens)),
                clients: counts.clients,
                published: self.published,
                dropped: self.dropped + counts.dropped,
            };
            events.push(of(DeviceEvent::Mqtt(Box::new(status))));
        }
    }

    fn publish(&mut self, node: &str, publication: &Publication, events: &mut Vec<Event>) {
        let (topic, payload) = devices::publish(node, publication);
        let (qos, retain) = (self.qos, self.retain);
        self.send(&topic, payload.as_ref(), (qos, retain), events);
    }

    /// Publishes what the cloud's router has sent, as EdgeCore does.
    fn pass(&mut self, topic: &str, payload: &str, events: &mut Vec<Event>) {
        self.send(topic, payload.as_bytes(), (QoS::AtLeastOnce, false), events);
    }

    fn send(
        &mut self,
        topic: &str,
        payload: &[u8],
        (qos, retain): (QoS, bool),
        events: &mut Vec<Event>,
    ) {
        let mut found = Vec::new();
        let published = self.mqtt.publish(topic, payload, qos, retain, &mut found);
        if let Err(why) = published {
            log::debug!("topic={topic:?} is not published: {why}");
        }
        self.take(found, events);
    }
}

fn of(event: DeviceEvent) -> Event {
    Event::Device(Box::new(event))
}

fn of_mapper(event: dmi::Event) -> Event {
    of(match event {
        dmi::Event::Called { id, call } => DeviceEvent::Called(ManagerCallId(id), call),
        dmi::Event::Done { id, result } => DeviceEvent::Answered(MapperCallId(id), result),
    })
}
