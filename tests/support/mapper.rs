//! A mapper of devices, played by the test: it registers, reports, and serves the calls of the
//! agent on a socket of its own. Its messages are read and written by prost, not by the agent's
//! code.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use edged::wire::grpc::{CallKey, Client, Code, Event, Incoming, Server, Status};
use edged::wire::h2;
use prost::Message;
use serde_json::{Value as Json, json};

/// How long the agent may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// A mapper that listens; dropped, it is gone, and its socket refuses.
pub struct Mapper {
    /// The agent's socket.
    agent: PathBuf,
    address: PathBuf,
    calls: Mutex<Receiver<Call>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    refusal: Mutex<Option<Status>>,
    gone: AtomicBool,
}

/// A call of the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// `RegisterDevice`
    pub method: String,
    pub message: Vec<u8>,
}

/// The object of a device `default/dev1` on this node, with this value desired.
pub fn device(node: &str, desired: &str) -> Json {
    json!({
        "kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "dev1", "namespace": "default"},
        "spec": {
            "deviceModelRef": {"name": "model1"}, "nodeName": node,
            "protocol": {"protocolName": "modbus", "configData": {"port": "/dev/ttyS0"}},
            "properties": [
                {"name": "temp", "desired": {"value": desired}, "visitors": {"configData":
                    {"offset": 40001, "scale": 0.5, "swap": true, "none": null}}},
                {"name": "plain"},
            ],
        },
        "status": {},
    })
}

/// The object of its model.
pub fn model() -> Json {
    json!({
        "kind": "DeviceModel", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "model1", "namespace": "default"},
        "spec": {
            "protocol": "modbus",
            "protocolConfigData": {"port": "/dev/null", "speed": 9600},
            "properties": [{"name": "temp", "type": "INT", "accessMode": "ReadWrite"}],
        },
    })
}

impl Call {
    /// The device of `RegisterDevice` and `UpdateDevice`.
    pub fn device(&self) -> Device {
        DeviceRequest::decode(&*self.message).expect("protobuf").device.expect("a device")
    }

    /// Namespace and name in `RemoveDevice` and `RemoveDeviceModel`.
    pub fn removed(&self) -> (String, String) {
        let Removed { name, namespace } = Removed::decode(&*self.message).expect("protobuf");
        (namespace, name)
    }
}

impl Mapper {
    /// Serves calls of the agent on `address`, in place of a mapper that was there.
    pub fn listen(agent: &Path, address: &Path) -> Self {
        match fs::remove_file(address) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                panic!("{}: {error}", address.display())
            }
            _ => {}
        }
        let listener = UnixListener::bind(address).expect("a free path");
        let (sender, calls) = channel();
        let state: Arc<State> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if shared.gone.load(Ordering::SeqCst) {
                    return;
                }
                serve(socket, &sender, &shared.refusal);
            }
        });
        let calls = Mutex::new(calls);
        Self { agent: agent.to_owned(), address: address.to_owned(), calls, state }
    }

    /// All further calls are answered with this error; `None`: they succeed.
    pub fn refuse(&self, status: Option<Status>) {
        *self.state.refusal.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The next call of the agent, if one comes in that time.
    pub fn next_call(&self, wait: Duration) -> Option<Call> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.recv_timeout(wait).ok()
    }

    /// Registers with data.
    pub fn register(&self, name: &str, protocol: &str) -> Result<Registered, Status> {
        let mapper = MapperInfo {
            name: name.to_owned(),
            version: "v1.0.0".to_owned(),
            api_version: "v1.0.0".to_owned(),
            protocol: protocol.to_owned(),
            address: self.address.to_str().expect("text").as_bytes().to_vec(),
            state: "ok".to_owned(),
        };
        let request = RegisterRequest { with_data: true, mapper: Some(mapper) };
        let path = "/v1beta1.DeviceManagerService/MapperRegister";
        self.ask(path, &request.encode_to_vec())
            .map(|answer| Registered::decode(&*answer).expect("protobuf"))
    }

    /// Reports one property, the desired value that it has seen, and the one that it read.
    pub fn report(
        &self,
        device: (&str, &str),
        property: &str,
        [expected, actual]: [Option<&str>; 2],
    ) -> Result<(), Status> {
        let side = |value: Option<&str>| value.map(|value| Value { value: value.to_owned() });
        let twin = ReportedTwin {
            property: property.to_owned(),
            expected: side(expected),
            actual: side(actual),
        };
        let request = StatusReport {
            name: device.1.to_owned(),
            status: Some(ReportedStatus { twins: vec![twin] }),
            namespace: device.0.to_owned(),
        };
        let path = "/v1beta1.DeviceManagerService/ReportDeviceStatus";
        self.ask(path, &request.encode_to_vec()).map(|_| ())
    }

    /// Reports the state of a device.
    pub fn report_state(&self, device: (&str, &str), state: &str) -> Result<(), Status> {
        let request = StateReport {
            name: device.1.to_owned(),
            namespace: device.0.to_owned(),
            state: state.to_owned(),
        };
        let path = "/v1beta1.DeviceManagerService/ReportDeviceStates";
        self.ask(path, &request.encode_to_vec()).map(|_| ())
    }

    /// One call on a connection of its own, as mapper-framework does it.
    fn ask(&self, path: &'static str, message: &[u8]) -> Result<Vec<u8>, Status> {
        let lost = |why: String| Status { code: Code::Unavailable, message: why };
        let mut socket =
            UnixStream::connect(&self.agent).map_err(|error| lost(error.to_string()))?;
        socket.set_read_timeout(Some(ANSWER)).expect("ours");
        let mut client = Client::new(h2::Config::default());
        client.unary(CallKey(0), path, message).expect("a new connection has room");
        let mut buffer = [0; 16_384];
        loop {
            let written = socket.write_all(client.output());
            client.sent(client.output().len());
            let count = written.and_then(|()| socket.read(&mut buffer));
            match count {
                Ok(0) => client.hangup("closed by the agent"),
                Ok(count) => client.receive(&buffer[..count]).expect("HTTP/2"),
                Err(error) => client.hangup(&error.to_string()),
            }
            match client.poll_event() {
                None => {}
                Some(Event::Reply(_, message)) => return Ok(message),
                Some(Event::Failed(_, status)) => return Err(status),
                Some(Event::Lost(_, why)) => return Err(lost(why.why)),
                Some(Event::Message(..) | Event::Done(_)) => unreachable!("the call is unary"),
            }
        }
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // The thread ends with its next connection: this one.
        self.state.gone.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.address);
        let _ = fs::remove_file(&self.address);
    }
}

/// One connection, until it is closed.
fn serve(mut socket: UnixStream, calls: &Sender<Call>, refusal: &Mutex<Option<Status>>) {
    let mut server = Server::default();
    let mut buffer = [0; 16_384];
    loop {
        while let Some(incoming) = server.poll_incoming() {
            let Incoming::Call(call) = incoming else { continue };
            let method = call.path.rsplit('/').next().unwrap_or_default().to_owned();
            let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match refused {
                Some(status) => server.answer(call.stream, Err(&status)),
                None => server.answer(call.stream, Ok(&[])),
            }
            // Nobody may look at it.
            let _ = calls.send(Call { method, message: call.message });
        }
        if socket.write_all(server.output()).is_err() {
            return;
        }
        server.sent(server.output().len());
        match socket.read(&mut buffer) {
            Ok(count @ 1..) if server.receive(&buffer[..count]).is_ok() => {}
            _ => return,
        }
    }
}

/// `MapperRegisterResponse`
#[derive(Clone, PartialEq, Message)]
pub struct Registered {
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<Device>,
}

/// What of a `DeviceModel` a test looks at.
#[derive(Clone, PartialEq, Message)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// What of a `Device` a test looks at.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<Spec>,
    #[prost(string, tag = "4")]
    pub namespace: String,
}

/// Of `DeviceSpec`.
#[derive(Clone, PartialEq, Message)]
pub struct Spec {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(message, optional, tag = "2")]
    pub protocol: Option<Config>,
    #[prost(message, repeated, tag = "3")]
    pub properties: Vec<Property>,
}

/// Of `DeviceProperty`.
#[derive(Clone, PartialEq, Message)]
pub struct Property {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub desired: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub visitors: Option<Config>,
}

/// `ProtocolConfig`, `VisitorConfig`
#[derive(Clone, PartialEq, Message)]
pub struct Config {
    #[prost(string, tag = "1")]
    pub protocol: String,
    #[prost(message, optional, tag = "2")]
    pub data: Option<Data>,
}

/// `CustomizedValue`
#[derive(Clone, PartialEq, Message)]
pub struct Data {
    #[prost(btree_map = "string, message", tag = "1")]
    pub data: BTreeMap<String, Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `TwinProperty`
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceRequest {
    #[prost(message, optional, tag = "1")]
    device: Option<Device>,
}

#[derive(Clone, PartialEq, Message)]
struct Removed {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct RegisterRequest {
    #[prost(bool, tag = "1")]
    with_data: bool,
    #[prost(message, optional, tag = "2")]
    mapper: Option<MapperInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct MapperInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    api_version: String,
    #[prost(string, tag = "4")]
    protocol: String,
    #[prost(bytes = "vec", tag = "5")]
    address: Vec<u8>,
    #[prost(string, tag = "6")]
    state: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusReport {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    status: Option<ReportedStatus>,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReportedStatus {
    #[prost(message, repeated, tag = "1")]
    twins: Vec<ReportedTwin>,
}

#[derive(Clone, PartialEq, Message)]
struct ReportedTwin {
    #[prost(string, tag = "1")]
    property: String,
    #[prost(message, optional, tag = "2")]
    expected: Option<Value>,
    #[prost(message, optional, tag = "3")]
    actual: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct StateReport {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    state: String,
}
