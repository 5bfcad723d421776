//! The HTTPS port: the CA, certificates, and whether a node is known.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};

use super::authority::Authority;
use super::{HttpsRequest, Shared};

type Stream = StreamOwned<ServerConnection, TcpStream>;

#[expect(clippy::disallowed_methods, reason = "the cloud runs beside the test")]
pub(super) fn serve(shared: Arc<Shared>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let _ = socket.set_read_timeout(Some(Duration::from_secs(10)));
            let tls = shared.authority.tls(false);
            let connection = ServerConnection::new(tls).expect("a connection");
            let _ = answer(&shared, StreamOwned::new(connection, socket));
        }
    });
    address
}

/// One request, then the connection ends.
fn answer(shared: &Shared, mut stream: Stream) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().lines();
    let what = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let header = |wanted: &str| {
        headers.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| &**value)
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body)?;
    let shown = stream.conn.peer_certificates().is_some();
    let (status, answer) = respond(shared, &what, &header, &body, shown);
    {
        let mut state = shared.lock();
        state.https_requests.push(HttpsRequest { what, headers: headers.clone(), shown });
        shared.changed.notify_all();
    }
    let length = answer.len();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n")?;
    stream.write_all(&answer)?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn respond<'a>(
    shared: &Shared,
    what: &str,
    header: &impl Fn(&str) -> &'a str,
    body: &[u8],
    shown: bool,
) -> (u16, Vec<u8>) {
    let script = shared.lock().script.clone();
    if let Some(status) = script.refuse {
        return (status, b"the test refuses".to_vec());
    }
    match what {
        "GET /ca.crt" => (200, shared.authority.ca_der()),
        // A presented certificate makes the token unnecessary.
        "GET /edge.crt" if !shown && !Authority::is_bearer(header("authorization")) => {
            (401, b"Invalid authorization token".to_vec())
        }
        "GET /edge.crt" => match shared.authority.sign(body, header("nodename")) {
            Ok(der) => (200, der),
            Err(why) => (500, why.into_bytes()),
        },
        _ => match what.strip_prefix("GET /node/") {
            Some(name) if script.nodes.iter().any(|node| node == name) => {
                (200, b"Node found".to_vec())
            }
            _ => (404, b"Node not found".to_vec()),
        },
    }
}
