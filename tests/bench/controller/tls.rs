//! What TLS alone keeps of an idle connection: the same configuration and the same first words, by
//! rustls without sockets and without a controller. This program again, in a process of its own:
//! in ours the heap has room that was used before, and nobody would see what is taken of it.

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

/// Set to the folder of a CA: nothing else is measured.
pub const ALONE: &str = "BENCH_TLS_ALONE";

/// Enough that what else comes and goes does not count.
const COUNT: usize = 2_000;

/// KiB of one connection, by the CA in this folder.
pub fn idle_kib(pki: &Path) -> f64 {
    let program = std::env::current_exe().expect("it runs");
    let told = run(Command::new(program).env(ALONE, pki));
    told.trim().parse().unwrap_or_else(|_| panic!("got «{told}», expected a number"))
}

/// The same, in the process of its own.
pub fn alone(pki: &Path) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_s = now.expect("after 1970").as_secs() as i64;
    let authority = Authority::open(pki, &["127.0.0.1".to_owned()], now_s).expect("its CA");
    let server = authority.tls(Clients::Required).expect("its CA");
    let clients = dial::configs(pki, (0..COUNT).map(name));
    let mut kept = Vec::with_capacity(COUNT);
    // The first fills what all have in common.
    let first = idle(&server, &clients[0]);
    let before_kb = pss_anon_kb(std::process::id());
    kept.extend(clients.iter().map(|client| idle(&server, client)));
    let after_kb = pss_anon_kb(std::process::id());
    drop((first, kept));
    after_kb.saturating_sub(before_kb) as f64 / COUNT as f64
}

/// One whose upgrade was granted; its other end is forgotten.
fn idle(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> Box<ServerConnection> {
    let to = ServerName::try_from("127.0.0.1").expect("a name");
    let mut near = ClientConnection::new(Arc::clone(client), to).expect("TLS");
    let mut far = Box::new(ServerConnection::new(Arc::clone(server)).expect("TLS"));
    while near.is_handshaking() || far.is_handshaking() {
        carry(&mut near, &mut far);
        carry(&mut far, &mut near);
    }
    let (request, mut heard) = (dial::upgrade("any"), [0; 4 << 10]);
    near.writer().write_all(request.as_bytes()).expect("it has room");
    carry(&mut near, &mut far);
    let count = far.reader().read(&mut heard).expect("it came");
    assert_eq!(count, request.len(), "it came whole");
    far.writer().write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").expect("it has room");
    carry(&mut far, &mut near);
    far
}

/// All that one end has to say.
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
