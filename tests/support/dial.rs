//! Nodes that dial a controller under test, with certificates of its own CA: the test chooses their
//! messages.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use edged::io::controller::authority::Authority;
use edged::wire::ws::{Incoming, Kind, Receiver, write};
use edged::wire::x509;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::node_key::{NodeKey, now_s};

/// The TLS configurations of nodes of these names, for the controller whose CA is in this folder.
pub fn configs(pki: &Path, names: impl Iterator<Item = String>) -> Vec<Arc<ClientConfig>> {
    let authority = Authority::open(pki, &["127.0.0.1".to_owned()], now_s()).expect("its CA");
    let ca = std::fs::read_to_string(pki.join("ca.crt")).expect("its CA");
    let ca = x509::pem::decode(&ca).expect("PEM").remove(0).der;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca)).expect("a CA");
    let roots = Arc::new(roots);
    let key = NodeKey::new();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = |name: String| {
        let (certificate, key) = key.certificate(&authority, &name);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has these")
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(vec![certificate], key)
            .expect("they belong together");
        config.resumption = Resumption::disabled();
        Arc::new(config)
    };
    names.map(config).collect()
}

/// The request for a session.
pub fn upgrade(node: &str) -> String {
    format!(
        "GET /p/{node}/events HTTP/1.1\r\nHost: c\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         node_id: {node}\r\nproject_id: p\r\nConnectionUse: msg\r\n\r\n"
    )
}

/// A sign of life.
pub fn keepalive() -> Value {
    json!({
        "header": {"msg_id": "k", "timestamp": 1},
        "route": {"source": "websocket", "group": "resource", "operation": "keepalive",
                  "resource": "node"},
        "content": "ping",
    })
}

/// A connection from this address.
fn connect_from(from: [u8; 4], to: SocketAddr) -> nix::Result<TcpStream> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrStorage, bind, connect, socket,
    };
    use std::os::fd::AsRawFd;
    let kind = (AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let made = socket(kind.0, kind.1, kind.2, None)?;
    let [a, b, c, d] = from;
    bind(made.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0))?;
    connect(made.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(made))
}

/// A blocking connection.
pub struct Dialled {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    receiver: Receiver,
    rest: Vec<u8>,
}

impl Dialled {
    /// TLS, and no more.
    pub fn tls(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        Self::over(TcpStream::connect(to).expect("it listens"), config)
    }

    fn over(socket: TcpStream, config: &Arc<ClientConfig>) -> Self {
        let wait = Some(Duration::from_secs(20));
        socket.set_read_timeout(wait).and_then(|()| socket.set_write_timeout(wait)).expect("ours");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("TLS");
        let stream = StreamOwned::new(connection, socket);
        Self { stream, receiver: Receiver::new(8 << 20), rest: Vec::new() }
    }

    /// A session of this node; `Err`: the answer that refused it.
    pub fn session(to: SocketAddr, config: &Arc<ClientConfig>, node: &str) -> Result<Self, String> {
        let socket = TcpStream::connect(to).expect("it listens");
        Self::upgraded(socket, config, node)
    }

    /// The same, from this address of loopback.
    pub fn session_from(
        from: [u8; 4],
        to: SocketAddr,
        config: &Arc<ClientConfig>,
        node: &str,
    ) -> Result<Self, String> {
        Self::upgraded(connect_from(from, to).expect("it listens"), config, node)
    }

    fn upgraded(socket: TcpStream, config: &Arc<ClientConfig>, node: &str) -> Result<Self, String> {
        let mut this = Self::over(socket, config);
        this.stream.write_all(upgrade(node).as_bytes()).map_err(|error| error.to_string())?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match this.stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                other => return Err(format!("{other:?} {}", String::from_utf8_lossy(&head))),
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(this) } else { Err(head) }
    }

    /// Sends a request, and reads to the end.
    pub fn request(&mut self, bytes: &[u8]) -> String {
        let _ = self.stream.write_all(bytes);
        let mut answer = Vec::new();
        let mut buffer = [0; 4 << 10];
        while let Ok(count @ 1..) = self.stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a text message.
    pub fn send(&mut self, text: &str) -> std::io::Result<()> {
        let mut frame = Vec::new();
        write(Kind::Text, text.as_bytes(), [1, 2, 3, 4], &mut frame);
        self.stream.write_all(&frame)
    }

    /// The next message.
    pub fn receive(&mut self) -> std::io::Result<Value> {
        let mut buffer = [0; 4 << 10];
        loop {
            while !self.rest.is_empty() {
                let received = self.receiver.receive(&self.rest);
                let (taken, incoming) = received.map_err(|why| std::io::Error::other(why.0))?;
                self.rest.drain(..taken);
                match incoming {
                    Some(Incoming::Message(bytes)) => {
                        return serde_json::from_slice(&bytes).map_err(std::io::Error::other);
                    }
                    Some(Incoming::Close(..)) => return Err(ErrorKind::UnexpectedEof.into()),
                    Some(_) => {}
                    None => break,
                }
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.rest.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Receives until a message about this resource comes, and acknowledges everything.
    pub fn wait_for(&mut self, resource: &str) -> Value {
        loop {
            let message = self.receive().unwrap_or_else(|error| panic!("{resource}: {error}"));
            let (header, route) = (&message["header"], &message["route"]);
            let ack = json!({
                "header": {"msg_id": "a", "parent_msg_id": header["msg_id"], "timestamp": 1},
                "route": {"source": route["source"], "group": route["group"],
                          "operation": "response", "resource": route["resource"]},
                "content": "OK",
            });
            self.send(&ack.to_string()).expect("it listens");
            if route["resource"] == resource {
                return message;
            }
        }
    }
}
