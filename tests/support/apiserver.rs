//! A Kubernetes API server for tests: HTTPS on loopback over the controller's own objects, with
//! pages, watches with bookmarks, 410, patches, status subresources and preconditions, as the API
//! conventions define them; and with what real ones do now and then: a watch that ends, a
//! connection that is cut, a history that is dropped.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edged::controller::local::{Objects, WatchEvent};
use edged::model::api::{Call, CallError, Kind};
use edged::model::base64;
use edged::model::time::Timestamp;
use edged::wire::http1::call;
use edged::wire::rest::{self, ApiRequest};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A running API server.
pub struct ApiServer {
    address: SocketAddr,
    authority: String,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    objects: Objects,
    /// Watches and connections of an earlier number end.
    round: u64,
    /// This many of the next watches get 410.
    gone: usize,
    /// Objects per page.
    page: usize,
    /// The requests: `PATCH /api/…`.
    requests: Vec<String>,
}

const TOKEN: &str = "a-token-of-the-test";

impl ApiServer {
    /// Opens the port.
    pub fn start() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        let certificate = params.self_signed(&key).expect("a certificate");
        let authority = pem("CERTIFICATE", certificate.der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has these")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("they belong together");
        let state = State {
            objects: Objects::load(Vec::new(), 100, 3),
            round: 0,
            gone: 0,
            page: 2,
            requests: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (of_all, tls) = (Arc::clone(&shared), Arc::new(tls));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (shared, tls) = (Arc::clone(&of_all), Arc::clone(&tls));
                std::thread::spawn(move || serve(&shared, tls, socket));
            }
        });
        Self { address, authority, shared }
    }

    /// Writes a kubeconfig for this server.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        std::fs::create_dir_all(folder).expect("a folder of ours");
        let path = folder.join("kubeconfig");
        let authority = base64::encode(self.authority.as_bytes());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: \
             {{cluster: k, user: u}}\nclusters:\n- name: k\n  cluster: {{server: \
             'https://{}', certificate-authority-data: {authority}}}\nusers:\n- name: u\n  user: \
             {{token: {TOKEN}}}\n",
            self.address
        );
        std::fs::write(&path, text).expect("a file of ours");
        path
    }

    /// Creates or replaces an object.
    pub fn put(&self, kind: Kind, namespace: &str, name: &str, object: &Value) -> Value {
        use edged::model::api::{PatchType, Verb};
        let body = serde_json::value::to_raw_value(object).expect("JSON");
        let call = |verb| Call {
            verb,
            kind,
            namespace: namespace.into(),
            name: name.into(),
            subresource: None,
            body: Some(body.clone()),
        };
        let mut state = self.lock();
        let made = state.objects.call(&call(Verb::Create), now());
        let done = match made {
            Err(CallError::Refused { code: 409, .. }) => {
                state.objects.call(&call(Verb::Patch(PatchType::Merge)), now())
            }
            other => other,
        };
        self.shared.changed.notify_all();
        serde_json::from_str(done.expect("it is done").get()).expect("JSON")
    }

    /// Deletes an object as `kubectl delete` does.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        let call = Call {
            verb: edged::model::api::Verb::Delete,
            kind,
            namespace: namespace.into(),
            name: name.into(),
            subresource: None,
            body: None,
        };
        self.lock().objects.call(&call, now()).expect("it is there");
        self.shared.changed.notify_all();
    }

    /// An object; null: there is none.
    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Value {
        let state = self.lock();
        let all = state.objects.all(kind, namespace);
        let mut all = all.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        all.find(|object| object["metadata"]["name"] == name).unwrap_or(Value::Null)
    }

    /// Ends all present watches and connections.
    pub fn cut(&self) {
        self.lock().round += 1;
        self.shared.changed.notify_all();
    }

    /// This many of the next watches are refused as too far in the past.
    pub fn forget(&self, times: usize) {
        self.lock().gone = times;
        self.cut();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, tls: Arc<ServerConfig>, socket: TcpStream) {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let round = shared.state.lock().unwrap_or_else(PoisonError::into_inner).round;
    let connection = ServerConnection::new(tls).expect("a connection");
    let mut stream = StreamOwned::new(connection, socket);
    let mut bytes = Vec::new();
    while let Some(request) = next(shared, &mut stream, &mut bytes, round) {
        if answer(shared, &mut stream, &request, round).is_err() {
            break;
        }
    }
    let _ = stream.sock.shutdown(Shutdown::Both);
}

/// The next request; `None`: the connection is closed.
fn next(
    shared: &Shared,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    round: u64,
) -> Option<call::Call> {
    let mut buffer = [0; 8 << 10];
    loop {
        if let Some((request, length)) = call::call(bytes, 8 << 20).ok()? {
            bytes.drain(..length);
            return Some(request);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let now = shared.state.lock().unwrap_or_else(PoisonError::into_inner).round;
                if now != round {
                    return None;
                }
            }
            Err(_) => return None,
        }
    }
}

fn answer(
    shared: &Shared,
    stream: &mut Stream,
    request: &call::Call,
    round: u64,
) -> std::io::Result<()> {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.requests.push(format!("{} {}", request.method, request.path));
    if request.header("authorization") != format!("Bearer {TOKEN}") {
        return respond(stream, 401, &status(401, "Unauthorized"));
    }
    match rest::read(request) {
        Ok(ApiRequest::Call(call)) => {
            let result = state.objects.call(&call, now());
            shared.changed.notify_all();
            drop(state);
            match result {
                Ok(object) => respond(stream, 200, object.get()),
                Err(CallError::Refused { code, status }) => respond(stream, code, status.get()),
                Err(CallError::Lost(_)) => unreachable!("it is here"),
            }
        }
        Ok(ApiRequest::List { kind, selected, .. }) => {
            let text = list(&state, kind, selected, request);
            drop(state);
            respond(stream, 200, &text)
        }
        Ok(ApiRequest::Watch { kind, version }) => {
            let late = state.gone > 0;
            state.gone = state.gone.saturating_sub(1);
            drop(state);
            watch(shared, stream, (kind, &version), late, round)
        }
        Err((code, why)) => {
            drop(state);
            respond(stream, code, &status(code, &why))
        }
    }
}

/// A page; objects of a list have no `kind`.
fn list(state: &State, kind: Kind, selected: bool, request: &call::Call) -> String {
    let from: usize = request.query_value("continue").and_then(|it| it.parse().ok()).unwrap_or(0);
    let all: Vec<&str> = if selected {
        state.objects.list(kind).collect()
    } else {
        state.objects.all(kind, "").collect()
    };
    let items: Vec<Value> = all
        .iter()
        .skip(from)
        .take(state.page)
        .map(|text| {
            let mut object: Value = serde_json::from_str(text).expect("JSON");
            let map = object.as_object_mut().expect("an object");
            map.remove("kind");
            map.remove("apiVersion");
            object
        })
        .collect();
    let end = from + items.len();
    let next = if end < all.len() { end.to_string() } else { String::new() };
    let version = state.objects.version().to_string();
    json!({
        "kind": format!("{}List", kind.name()), "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": version, "continue": next}, "items": items,
    })
    .to_string()
}

fn watch(
    shared: &Shared,
    stream: &mut Stream,
    (kind, version): (Kind, &str),
    late: bool,
    round: u64,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: \
                chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let mut sent_version: u64 = version.parse().unwrap_or(0);
    loop {
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.round != round {
            // As a real one does when it is restarted: in the middle of an answer.
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        let missed = state.objects.since(kind, sent_version).filter(|_| !late);
        let now = state.objects.version();
        let Some(missed) = missed else {
            let gone = status(410, "too old resource version");
            drop(state);
            chunk(stream, &format!("{{\"type\":\"ERROR\",\"object\":{gone}}}\n"))?;
            return stream.write_all(b"0\r\n\r\n");
        };
        if missed.is_empty() {
            let waited = shared.changed.wait_timeout(state, Duration::from_millis(500));
            let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
            if timed_out && now > sent_version {
                sent_version = now;
                let bookmark = json!({"type": "BOOKMARK", "object": {
                    "kind": kind.name(), "metadata": {"resourceVersion": now.to_string()},
                }});
                chunk(stream, &format!("{bookmark}\n"))?;
            }
            continue;
        }
        drop(state);
        sent_version = now;
        for told in missed {
            let (word, object) = match told {
                WatchEvent::Changed(object) => ("MODIFIED", object),
                WatchEvent::Deleted(object) => ("DELETED", object),
            };
            chunk(stream, &format!("{{\"type\":\"{word}\",\"object\":{object}}}\n"))?;
        }
    }
}

fn chunk(stream: &mut Stream, text: &str) -> std::io::Result<()> {
    write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
    stream.flush()
}

fn respond(stream: &mut Stream, code: u16, body: &str) -> std::io::Result<()> {
    let (length, reason) = (body.len(), call::reason(code));
    write!(
        stream,
        "HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\nContent-Length: \
         {length}\r\n\r\n{body}"
    )?;
    stream.flush()
}

fn status(code: u16, why: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": why, "reason": if code == 410 { "Expired" } else { "Unknown" }, "code": code,
    })
    .to_string()
}

fn pem(label: &str, der: &[u8]) -> String {
    edged::wire::x509::pem::encode(label, der)
}

fn now() -> Option<Timestamp> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().map(|since| Timestamp(since.as_secs() as i64))
}
