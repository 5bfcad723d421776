//! The memory of TLS alone for an idle connection: the same configuration and the same first
//! messages, by rustls without sockets and without a controller. It runs in a separate process: in
//! ours the heap has free space from before, which would hide the usage.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use edged::io::controller::authority::{Authority, Clients};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection};

use super::edges::name;
use crate::support::containerd::run;
use crate::support::dial;
use crate::support::process::pss_anon_kb;

/// Set to the folder of a CA: only this is measured.
pub const ALONE: &str = "BENCH_TLS_ALONE";

/// Enough that other allocations do not matter.
const COUNT: usize = 2_000;

/// KiB of one connection, by the CA in this folder.
pub fn idle_kib(pki: &Path) -> f64 {
    let program = std::env::current_exe().expect("it runs");
    let reported = run(Command::new(program).env(ALONE, pki));
    reported.trim().parse().unwrap_or_else(|_| panic!("got «{reported}», expected a number"))
}

/// The same, in the separate process.
pub fn alone(pki: &Path) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_s = now.expect("after 1970").as_secs() as i64;
    let authority = Authority::open(pki, &["127.0.0.1".to_owned()], now_s).expect("its CA");
    let server = authority.tls(Clients::Required).expect("its CA");
    let clients = dial::configs(pki, (0..COUNT).map(name));
    let mut stored = Vec::with_capacity(COUNT);
    // The first connection fills the shared data.
    let first = idle(&server, &clients[0]);
    let before_kb = pss_anon_kb(std::process::id());
    stored.extend(clients.iter().map(|client| idle(&server, client)));
    let after_kb = pss_anon_kb(std::process::id());
    drop((first, stored));
    after_kb.saturating_sub(before_kb) as f64 / COUNT as f64
}

/// A connection after its upgrade; its other end is dropped.
fn idle(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> Box<ServerConnection> {
    let to = ServerName::try_from("127.0.0.1").expect("a name");
    let mut near = ClientConnection::new(Arc::clone(client), to).expect("TLS");
    let mut far = Box::new(ServerConnection::new(Arc::clone(server)).expect("TLS"));
    while near.is_handshaking() || far.is_handshaking() {
        carry(&mut near, &mut far);
        carry(&mut far, &mut near);
    }
    let (request, mut buffer) = (dial::upgrade("any"), [0; 4 << 10]);
    near.writer().write_all(request.as_bytes()).expect("it has room");
    carry(&mut near, &mut far);
    let count = far.reader().read(&mut buffer).expect("it came");
    assert_eq!(count, request.len(), "it came whole");
    far.writer().write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").expect("it has room");
    carry(&mut far, &mut near);
    far
}

/// Passes on all output of one end.
fn carry<A, B>(from: &mut ConnectionCommon<A>, to: &mut ConnectionCommon<B>) {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("memory takes what is written");
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("memory");
        to.process_new_packets().expect("they understand each other");
    }
}
