//! The websocket's port: one connection after another; a new one ends the old one.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use tungstenite::handshake::server::{Request, Response};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use super::{Out, Shared, Upgrade};

type Socket = WebSocket<StreamOwned<ServerConnection, TcpStream>>;

#[expect(clippy::disallowed_methods, reason = "the cloud runs beside the test")]
pub(super) fn serve(shared: Arc<Shared>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let Some((number, mut socket)) = accept(&shared, socket) else { return };
                talk(&shared, number, &mut socket);
                let mut state = shared.lock();
                if state.connection == number {
                    state.connected = false;
                }
                shared.changed.notify_all();
            });
        }
    });
    address
}

fn accept(shared: &Shared, socket: TcpStream) -> Option<(u64, Socket)> {
    while shared.lock().script.frozen {
        pause();
    }
    let connection = ServerConnection::new(shared.authority.tls(true)).expect("a connection");
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return None;
        }
    }
    let certificate = stream.conn.peer_certificates()?.first()?.to_vec();
    let mut upgrade = Upgrade { path: String::new(), headers: Vec::new(), certificate };
    #[expect(clippy::result_large_err, reason = "tungstenite's own")]
    let read = |request: &Request, response: Response| {
        request.uri().path().clone_into(&mut upgrade.path);
        upgrade.headers = request
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into())
            })
            .collect();
        Ok(response)
    };
    let config = WebSocketConfig::default();
    let socket = tungstenite::accept_hdr_with_config(stream, read, Some(config)).ok()?;
    socket.get_ref().sock.set_read_timeout(Some(POLL)).expect("a socket");
    let mut state = shared.lock();
    state.connection += 1;
    state.connected = true;
    state.outbox.clear();
    let missed = state.world.missed();
    state.outbox.extend(missed.iter().map(|message| Out::Text(format!("{message}\n"))));
    state.upgrades.push(upgrade);
    shared.changed.notify_all();
    Some((state.connection, socket))
}

fn talk(shared: &Shared, number: u64, socket: &mut Socket) {
    loop {
        let (out, script) = {
            let mut state = shared.lock();
            if state.connection != number {
                return;
            }
            let script = state.script.clone();
            (if script.frozen { Vec::new() } else { std::mem::take(&mut state.outbox) }, script)
        };
        if script.frozen {
            pause();
            continue;
        }
        for out in out {
            let wrote = match out {
                Out::Close => return,
                Out::Raw(bytes) => write(socket, &bytes, script.drip),
                Out::Text(text) => {
                    write(socket, &frames(text.as_bytes(), script.fragment), script.drip)
                }
            };
            if wrote.is_err() {
                return;
            }
        }
        match socket.read() {
            Ok(Message::Text(text)) => {
                let message = serde_json::from_str(text.as_str()).expect("a message is JSON");
                shared.lock().receive(message);
                shared.changed.notify_all();
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) => return,
            Ok(other) => panic!("EdgeCore sends text messages only, got {other:?}"),
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// As Go's library writes: a message that does not fit into its buffer is split into several
/// frames.
fn frames(bytes: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let count = bytes.len().div_ceil(most).max(1);
    for (index, part) in bytes.chunks(most).enumerate() {
        let last = if index + 1 == count { 0x80 } else { 0 };
        out.push(last | u8::from(index == 0));
        match part.len() {
            length @ ..126 => out.push(length as u8),
            length @ ..65_536 => {
                out.push(126);
                out.extend((length as u16).to_be_bytes());
            }
            length => {
                out.push(127);
                out.extend((length as u64).to_be_bytes());
            }
        }
        out.extend(part);
    }
    out
}

fn write(socket: &mut Socket, bytes: &[u8], drip: Option<Duration>) -> std::io::Result<()> {
    let stream = socket.get_mut();
    let Some(gap) = drip else {
        stream.write_all(bytes)?;
        return stream.flush();
    };
    for byte in bytes {
        stream.write_all(&[*byte])?;
        stream.flush()?;
        wait(gap);
    }
    Ok(())
}

fn pause() {
    wait(POLL);
}

#[expect(clippy::disallowed_methods, reason = "the cloud runs on a thread of its own")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

const POLL: Duration = Duration::from_millis(2);
