//! The interface for mappers, against a mapper whose messages are read and written by prost.

use std::path::PathBuf;
use std::time::Duration;

use edged::agent::time::Instant;
use edged::io::dmi::{Dmi, Event};
use edged::model::device::{
    DeviceId, ManagerAnswer, ManagerCall, MapperCall, MapperError, ObjectText, ReportedTwin,
};
use edged::wire::grpc::{Code, Status};
use mio::{Events, Poll, Token};

use crate::mapper::{Any, Call, Mapper, device, model};

struct Scene {
    folder: PathBuf,
    poll: Poll,
    dmi: Dmi,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("edged-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of ours");
        let dmi = Dmi::new(&folder.join("dmi.sock"), Token(1), Instant(1));
        let mut scene = Self { folder, poll: Poll::new().expect("a poll"), dmi };
        scene.turn(&mut |_| ManagerAnswer::Done);
        scene
    }

    fn mapper(&self) -> Mapper {
        Mapper::listen(&self.folder.join("dmi.sock"), &self.address())
    }

    fn address(&self) -> PathBuf {
        self.folder.join("m.sock")
    }

    /// One turn; calls of mappers are answered at once.
    fn turn(&mut self, answer: &mut dyn FnMut(&ManagerCall) -> ManagerAnswer) -> Vec<Event> {
        let (mut events, mut ready) = (Vec::new(), Events::with_capacity(16));
        self.poll.poll(&mut ready, Some(Duration::from_millis(5))).expect("it polls");
        for ready in &ready {
            self.dmi.ready(ready);
        }
        self.dmi.tick(Instant(1), self.poll.registry(), &mut events);
        for event in &events {
            if let Event::Called { id, call } = event {
                self.dmi.answer(Instant(1), *id, &answer(call));
            }
        }
        self.dmi.flush(self.poll.registry(), &mut events);
        events
    }

    /// What a mapper gets for a call, and the call as it was read.
    fn ask<T: Send>(
        &mut self,
        ask: impl FnOnce() -> T + Send,
        answer: &ManagerAnswer,
    ) -> (T, ManagerCall) {
        std::thread::scope(|scope| {
            let asked = scope.spawn(ask);
            let mut read = None;
            while !asked.is_finished() {
                self.turn(&mut |call| {
                    read = Some(call.clone());
                    answer.clone()
                });
            }
            (asked.join().expect("it ends"), read.expect("it called"))
        })
    }

    /// Calls the mapper, and waits for the end of it.
    fn call(&mut self, call: MapperCall) -> Result<(), MapperError> {
        let address = self.address();
        let mut events = Vec::new();
        let deadline = Instant(10_000);
        self.dmi.call(7, address.to_str().expect("text"), call, deadline, &mut events);
        for _ in 0..2_000 {
            events.extend(self.turn(&mut |_| ManagerAnswer::Done));
            if let Some(Event::Done { id: 7, result }) = events.pop() {
                return result;
            }
        }
        panic!("the call does not end");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A device and its model.
fn texts() -> (ObjectText, ObjectText) {
    (device("gw", "20").to_string().into(), model().to_string().into())
}

fn any(kind: &str, value: &[u8]) -> Any {
    let type_url = format!("type.googleapis.com/google.protobuf.{kind}");
    Any { type_url, value: value.to_vec() }
}

#[test]
fn a_mapper_that_registers_gets_its_devices_with_the_defaults_of_their_model() {
    let mut scene = Scene::new("mapper-registers");
    let mapper = scene.mapper();
    let (device, model) = texts();
    let devices = vec![(device, Some(model.clone()))];
    let answer = ManagerAnswer::Registered { models: vec![model], devices };
    let (registered, call) = scene.ask(|| mapper.register("m1", "modbus"), &answer);
    let ManagerCall::Register { mapper: read, with_data: true } = call else { panic!("{call:?}") };
    assert_eq!((&*read.name, &*read.protocol), ("m1", "modbus"));
    assert_eq!(Some(&*read.address), scene.address().to_str());
    let registered = registered.expect("it may register");
    assert_eq!(registered.models[0].name, "model1");
    let device = &registered.devices[0];
    assert_eq!((&*device.namespace, &*device.name), ("default", "dev1"));
    let spec = device.spec.as_ref().expect("always there");
    assert_eq!(spec.model, "model1");
    let protocol = spec.protocol.as_ref().expect("always there");
    let data = &protocol.data.as_ref().expect("always there").data;
    assert_eq!(data["port"], any("StringValue", b"\x0a\x0a/dev/ttyS0"), "the device's own");
    assert_eq!(data["speed"], any("Int64Value", b"\x08\x80\x4b"), "the model's");
    let [temp, plain] = &spec.properties[..] else { panic!("{spec:?}") };
    assert_eq!(temp.desired.as_ref().map(|desired| &*desired.value), Some("20"));
    let data = &temp.visitors.as_ref().and_then(|v| v.data.as_ref()).expect("always there").data;
    assert_eq!(data.len(), 3, "null is left out");
    assert_eq!(data["offset"], any("Int64Value", b"\x08\xc1\xb8\x02"));
    assert_eq!(data["scale"], any("FloatValue", b"\x0d\0\0\0\x3f"));
    assert_eq!(data["swap"], any("BoolValue", b"\x08\x01"));
    assert!(plain.desired.is_some(), "mappers use it without a check");
    assert!(plain.visitors.as_ref().is_some_and(|visitors| visitors.data.is_some()));
}

#[test]
fn reports_are_answered_with_the_status_of_the_core() {
    let mut scene = Scene::new("mapper-reports");
    let mapper = scene.mapper();
    let sides = [None, Some("21")];
    let report = || mapper.report(("default", "dev1"), "temp", sides);
    let (answer, call) = scene.ask(report, &ManagerAnswer::Done);
    let twins =
        vec![ReportedTwin { property: "temp".into(), expected: None, actual: Some("21".into()) }];
    let device = DeviceId::new("default", "dev1");
    assert_eq!(call, ManagerCall::ReportStatus { device: device.clone(), twins });
    assert_eq!(answer, Ok(()));
    let unknown = ManagerAnswer::NotFound("device «dev1» is not known".into());
    let report = || mapper.report_state(("default", "dev1"), "online");
    let (answer, call) = scene.ask(report, &unknown);
    assert_eq!(call, ManagerCall::ReportState { device, state: "online".into() });
    let message = "device «dev1» is not known".to_owned();
    assert_eq!(answer, Err(Status { code: Code::NotFound, message }));
}

#[test]
fn a_mapper_is_told_of_devices_until_it_is_gone() {
    let mut scene = Scene::new("mapper-told");
    let mapper = scene.mapper();
    let told = |mapper: &Mapper| mapper.next_call(Duration::from_secs(5)).expect("it was called");
    let (device, model) = texts();
    let call = || MapperCall::RegisterDevice(device.clone(), Some(model.clone()));
    assert_eq!(scene.call(call()), Ok(()));
    let registered: Call = told(&mapper);
    assert_eq!((&*registered.method, &*registered.device().name), ("RegisterDevice", "dev1"));
    let remove = MapperCall::RemoveDevice(DeviceId::new("default", "dev1"));
    assert_eq!(scene.call(remove.clone()), Ok(()));
    assert_eq!(told(&mapper).removed(), ("default".to_owned(), "dev1".to_owned()));
    let message = "can not find device dev1".to_owned();
    mapper.refuse(Some(Status { code: Code::Unknown, message }));
    let refused = MapperError::Refused(2, "can not find device dev1".into());
    assert_eq!(scene.call(remove.clone()), Err(refused));
    drop(mapper);
    assert!(matches!(scene.call(remove), Err(MapperError::Unreachable(_))));
    // It comes back.
    let mapper = scene.mapper();
    assert_eq!(scene.call(call()), Ok(()));
    assert_eq!(told(&mapper).method, "RegisterDevice");
}
