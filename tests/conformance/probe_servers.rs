//! Servers of this host for probes and hooks: a healthy gRPC server, one of another protocol, and
//! one with TLS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use edged::wire::{grpc, hpack};

/// The port of a server of another protocol.
pub(crate) fn serve_mail() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    port
}

/// A `grpc.health.v1.Health` server on this host that reports SERVING.
pub(crate) fn serve_health() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_health(stream));
        }
    });
    port
}

/// One call: HTTP/2 as far as a well-behaved client needs it.
fn answer_health(mut stream: TcpStream) -> std::io::Result<()> {
    const PREFACE: usize = 24;
    let frame = |kind: u8, flags: u8, id: u32, payload: &[u8]| {
        let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        out.extend([kind, flags]);
        out.extend(id.to_be_bytes());
        out.extend(payload);
        out
    };
    let block = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        for (name, value) in fields {
            hpack::encode(name, value, &mut out);
        }
        out
    };
    stream.read_exact(&mut [0; PREFACE])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        // DATA with END_STREAM: the request is complete, and names our service.
        if head[3] == 0 && head[4] & 1 == 1 {
            let known = payload.ends_with(b"\x0a\x02db");
            let status: &[u8] = if known { b"\x08\x01" } else { b"\x08\x03" };
            let begin = block(&[(":status", "200"), ("content-type", "application/grpc")]);
            let answer = [
                frame(4, 0, 0, &[]),
                frame(1, 4, 1, &begin),
                frame(0, 0, 1, &grpc::frame(status)),
                frame(1, 5, 1, &block(&[("grpc-status", "0")])),
            ];
            return stream.write_all(&answer.concat());
        }
    }
}

/// A web server over TLS, with an unsigned certificate.
#[cfg(feature = "probe-https")]
pub(crate) struct TlsServer {
    /// The port on this host.
    pub(crate) port: u16,
    requests: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

#[cfg(feature = "probe-https")]
impl TlsServer {
    /// Starts one; it serves as long as the process lives.
    pub(crate) fn start() -> TlsServer {
        use std::sync::{Arc, Mutex};

        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key.expect("made above"))
            .expect("they belong together");
        let (config, requests) = (Arc::new(config), Arc::new(Mutex::new(Vec::new())));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(Arc::clone(&config));
                let connection = connection.expect("the configuration is whole");
                let mut stream = rustls::StreamOwned::new(connection, stream);
                // A client without TLS fails here and is not recorded.
                if let Ok(line) = first_line(&mut stream) {
                    noted.lock().expect("no thread panics with it").push(line);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            }
        });
        TlsServer { port, requests }
    }

    /// The first lines of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no thread panics with it").clone()
    }
}

/// Reads a request without a body; returns its first line.
#[cfg(feature = "probe-https")]
fn first_line(stream: &mut impl Read) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}
