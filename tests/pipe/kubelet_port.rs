//! The real controller between an API server, a node and kube-apiserver, which the test plays: who
//! is let in on the port for kube-apiserver, what it gets, and what the cluster is told.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use edged::io::controller::authority::{Authority, Pair};
use edged::model::api::Kind;
use edged::model::base64;
use edged::wire::tunnel::{self, Connect, Message};
use edged::wire::ws::{Incoming, Kind as Frame, Receiver, write};
use edged::wire::x509::pem;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::node_key::NodeKey;
use crate::port::free_port;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The cluster's CA for clients.
struct Ca(Issuer<'static, KeyPair>, String);

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let certificate = params.self_signed(&key).expect("a certificate");
        let text = pem::encode("CERTIFICATE", certificate.der());
        Self(Issuer::new(params, key), text)
    }

    fn client(&self, name: &str, group: &str) -> Arc<ClientConfig> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        config(Some((certificate.der().clone(), key)))
    }
}

/// As kube-apiserver by default: any server is trusted. Both protocols are offered.
fn config(own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has these")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match own {
        Some((certificate, key)) => {
            builder.with_client_auth_cert(vec![certificate], key).expect("they belong together")
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

struct Controller {
    dir: PathBuf,
    api: ApiServer,
    stream: SocketAddr,
    tunnel: SocketAddr,
    child: Child,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Controller {
    fn start(name: &str, client_ca: &str, flags: &[&str]) -> Self {
        let alone = crate::jobs::alone();
        let dir = format!("edged-kubelet-port-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).expect("a folder for the test");
        let api = ApiServer::start();
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {"client-ca-file": client_ca}});
        api.put(Kind::ConfigMap, "kube-system", "extension-apiserver-authentication", &map);
        api.put(Kind::Node, "", "e1", &node("e1"));
        api.put(Kind::Node, "", "e2", &node("e2"));
        api.put(Kind::Pod, "default", "web", &pod("web", "e1"));
        let kubeconfig = api.kubeconfig(&dir);
        let at = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (stream, tunnel, any) = (at(), at(), "127.0.0.1:0");
        let log = std::fs::File::create(dir.join("log")).expect("a file of ours");
        let child = Command::new(env!("CARGO_BIN_EXE_edgecontroller"))
            .args(["run", "--listen-hub", any, "--listen-https", any, "--api", "off"])
            .args(["--listen-tunnel", &tunnel.to_string()])
            .args(["--listen-stream", &stream.to_string(), "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--data")
            .arg(dir.join("data"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let controller = Self { dir, api, stream, tunnel, child, _alone: alone };
        controller.until("it is ready", |it| it.log().contains("nodes may connect"));
        controller
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(60), "{what}: never\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The whole answer to a request.
    fn ask(&self, config: &Arc<ClientConfig>, target: &str, more: &str) -> String {
        let mut stream = connect(self.stream, config);
        let head = format!("GET {target} HTTP/1.1\r\nHost: 192.0.2.9:10351\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).expect("it is taken");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("its end is said");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        String::from_utf8(answer).expect("text")
    }

    fn secret(&self, name: &str, key: &str) -> Vec<u8> {
        let secret = self.api.object(Kind::Secret, "kubeedge", name);
        base64::decode(secret["data"][key].as_str().expect("a value")).expect("base64")
    }

    /// A node's tunnel.
    fn dial(&self, node: &str) -> Edge {
        let ca = Pair {
            certificate: self.secret("casecret", "cadata"),
            key: self.secret("casecret", "cakeydata"),
        };
        let authority = Authority::of(ca.clone(), ca).expect("a CA");
        let identity = NodeKey::new().certificate(&authority, node);
        let mut stream = connect(self.tunnel, &config(Some(identity)));
        let head = "GET /v1/kubeedge/connect HTTP/1.1\r\nHost: c\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it is taken");
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("an answer");
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Edge { stream, receiver: Receiver::new(2 << 20), rest: Vec::new() }
    }

    fn port_of(&self, node: &str) -> Value {
        let node = self.api.object(Kind::Node, "", node);
        node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].clone()
    }
}

fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> Stream {
    let socket = TcpStream::connect(to).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("ours");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).expect("TLS"), socket)
}

/// The end of a tunnel at its node.
struct Edge {
    stream: Stream,
    receiver: Receiver,
    rest: Vec<u8>,
}

impl Edge {
    /// The next request.
    fn opened(&mut self) -> (u64, Connect) {
        let mut buffer = [0; 4 << 10];
        loop {
            while !self.rest.is_empty() {
                let (taken, incoming) = self.receiver.receive(&self.rest).expect("a frame");
                self.rest.drain(..taken);
                match incoming {
                    Some(Incoming::Message(bytes)) => {
                        let Message { id, data, .. } = Message::decode(&bytes).expect("a message");
                        return (id, Connect::decode(data).expect("a request"));
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => self.rest.extend_from_slice(&buffer[..count]),
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, id: u64, answer: &[u8]) {
        for (kind, data) in [(tunnel::Kind::Data, answer), (tunnel::Kind::Remove, b"")] {
            let (mut message, mut frame) = (Vec::new(), Vec::new());
            Message { id, kind, data }.encode(&mut message);
            write(Frame::Text, &message, [1, 2, 3, 4], &mut frame);
            self.stream.write_all(&frame).expect("it is taken");
        }
    }
}

fn node(name: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/edge": ""}}, "spec": {},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_350}}}})
}

fn pod(name: &str, node: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

const API_SERVER: &str = "kube-apiserver-kubelet-client";
const LOG: &str = "/containerLogs/default/web/c?tailLines=1";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nline";

#[test]
fn kube_apiserver_is_let_in_and_nobody_else() {
    let (ca, other) = (Ca::new(), Ca::new());
    let controller = Controller::start("doors", &ca.1, &[]);
    let mut edge = controller.dial("e1");
    let accepted = "accepted by the cluster's CA";
    controller.until("it knows the CA", |it| it.log().contains(accepted));
    for (config, expected) in [
        (config(None), "HTTP/1.1 401 "),
        (other.client(API_SERVER, "system:masters"), "HTTP/1.1 401 "),
        (ca.client("system:node:e2", "system:nodes"), "HTTP/1.1 403 "),
    ] {
        let answer = controller.ask(&config, LOG, "");
        assert!(answer.starts_with(expected), "{expected}: {answer}");
    }
    for config in [ca.client(API_SERVER, "x"), ca.client("admin", "system:masters")] {
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| controller.ask(&config, LOG, ""));
            let (id, connect) = edge.opened();
            assert_eq!((&*connect.method, connect.target()), ("GET", LOG.to_owned()));
            edge.answer(id, OK);
            let answer = asks.join().expect("it has its answer");
            assert_eq!(answer.as_bytes(), OK, "as the node has written it");
        });
    }
}

#[test]
fn the_cluster_is_told_the_port_and_requests_find_their_node() {
    let ca = Ca::new();
    let controller = Controller::start("ways", &ca.1, &["--advertise", "203.0.113.5"]);
    let annotation = || {
        let map = controller.api.object(Kind::ConfigMap, "kubeedge", "tunnelport");
        map["metadata"]["annotations"]["tunnelportrecord.kubeedge.io"].clone()
    };
    let record = r#"{"ipTunnelPort":{"203.0.113.5":10351},"port":{"10351":true}}"#;
    controller.until("the record is written", |_| annotation() == record);
    let config = ca.client(API_SERVER, "x");
    controller.until("it knows the CA", |it| it.log().contains("accepted by the cluster's CA"));
    let away = controller.ask(&config, LOG, "");
    assert!(away.starts_with("HTTP/1.1 500 "), "{away}");
    assert!(
        away.ends_with("node e1 has no stream tunnel (not seen since this controller started)")
    );
    let mut edge = controller.dial("e1");
    controller.until("the port is written", |it| it.port_of("e1") == 10_351);
    assert_eq!(controller.port_of("e2"), 10_350, "it has no tunnel");
    let both = controller.ask(&config, "/stats/summary", "");
    assert!(both.starts_with("HTTP/1.1 503 "), "{both}");
    assert!(both.contains("nodes e1 and e2 have the address 192.0.2.9"), "{both}");
    let forwarded = "X-Forwarded-Uri: /api/v1/nodes/e1/proxy/stats/summary\r\n";
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| controller.ask(&config, "/stats/summary", forwarded));
        let (id, connect) = edge.opened();
        assert_eq!(connect.target(), "/stats/summary");
        edge.answer(id, OK);
        assert!(asks.join().expect("it has its answer").ends_with("line"));
    });
    let elsewhere = "X-Forwarded-Uri: /api/v1/nodes/e2/proxy/containerLogs/default/web/c\r\n";
    let answer = controller.ask(&config, LOG, elsewhere);
    assert!(answer.starts_with("HTTP/1.1 404 "), "it is on another node: {answer}");
    drop(edge);
    controller.until("the end of the tunnel is noticed", |it| {
        it.log().contains("node=e1: stream tunnel ended")
    });
    let gone = controller.ask(&config, "/pods", forwarded);
    assert!(gone.starts_with("HTTP/1.1 503 ") && gone.contains("(last seen 20"), "{gone}");
}

#[test]
fn a_setting_lets_everybody_in_and_says_so() {
    let controller = Controller::start("any", "", &["--stream-clients", "any"]);
    assert!(controller.log().contains("--stream-clients any: whoever reaches the port"));
    let answer = controller.ask(&config(None), LOG, "");
    assert!(answer.contains("node e1 has no stream tunnel"), "{answer}");
}
