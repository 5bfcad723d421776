//! Connections over loopback with both ends in the test's own thread: one end reads what the other
//! writes.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use mio::net::TcpStream;
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::Tls;

/// A server for 127.0.0.1, and a client that trusts it.
pub(in crate::io) fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let certificate = params.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has these")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("they belong together");
    // No messages come on their own after the handshake.
    server.send_tls13_tickets = 0;
    (client(certificate.der().clone()), Arc::new(server))
}

/// A client that trusts this certificate, and those that it signed.
pub(in crate::io) fn client(believed: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(believed).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has these")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// A server for one request, whose head it has read when it calls `answer`, and a client that
/// trusts it. Returns the server's origin: `https://127.0.0.1:PORT`.
#[cfg(feature = "cloud")]
#[expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]
pub(in crate::io) fn serve_once(
    answer: impl FnOnce(StreamOwned<ServerConnection, std::net::TcpStream>) + Send + 'static,
) -> (String, Arc<ClientConfig>) {
    let (client, server) = configs();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let origin = format!("https://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("it is dialled");
        let connection = ServerConnection::new(server).expect("a server");
        let mut stream = StreamOwned::new(connection, socket);
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it == 1) {
            head.push(byte[0]);
        }
        answer(stream);
    });
    (origin, client)
}

/// The client's end of a connection to this address, before the handshake.
pub(in crate::io) fn dial(to: SocketAddr, config: Arc<ClientConfig>) -> Tls {
    let socket = std::net::TcpStream::connect(to).expect("somebody listens");
    socket.set_nonblocking(true).expect("it can");
    // What is written can be read at once.
    socket.set_nodelay(true).expect("it can");
    let connection = ClientConnection::new(config, to.ip().into()).expect("a client");
    Tls::new(connection, TcpStream::from_std(socket))
}

/// A client and a server after their handshake.
pub(in crate::io) fn pair() -> (Tls, Tls) {
    pair_with(|_| ())
}

/// The same, where the kernel holds little for each of them.
#[cfg(feature = "streams")]
pub(in crate::io) fn narrow_pair() -> (Tls, Tls) {
    use nix::sys::socket::{setsockopt, sockopt};
    pair_with(|socket| {
        setsockopt(socket, sockopt::RcvBuf, &NARROW_BYTES).expect("it can");
        setsockopt(socket, sockopt::SndBuf, &NARROW_BYTES).expect("it can");
    })
}

#[cfg(feature = "streams")]
const NARROW_BYTES: usize = 32 << 10;

fn pair_with(set: fn(&TcpStream)) -> (Tls, Tls) {
    let (client, server) = configs();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut near = dial(listener.local_addr().expect("an address"), client);
    let (socket, _) = listener.accept().expect("it has dialled");
    socket.set_nonblocking(true).expect("it can");
    // What is written can be read at once.
    socket.set_nodelay(true).expect("it can");
    let server = ServerConnection::new(server).expect("a server");
    let mut far = Tls::new(server, TcpStream::from_std(socket));
    set(&near.socket);
    set(&far.socket);
    let (mut near_stands, mut far_stands) = (false, false);
    while !near_stands || !far_stands {
        near.begin_turn();
        near_stands = near.handshake().expect("they agree");
        far.begin_turn();
        far_stands = far.handshake().expect("they agree");
    }
    (near, far)
}

/// The bytes received so far; an error if no more can come: the other end is gone, or has sent
/// close_notify.
pub(in crate::io) fn came(end: &mut Tls) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        end.begin_turn();
        let ended = match end.read(&mut buffer) {
            Ok(0) => ErrorKind::UnexpectedEof.into(),
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && end.more => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(bytes),
            Err(error) => error,
        };
        return if bytes.is_empty() { Err(ended) } else { Ok(bytes) };
    }
}
