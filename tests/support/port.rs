//! Ports for the programs under test: each is given to one test only, and the kernel gives it to no
//! connection, neither before the program listens nor while it is down between two lives.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port, above the well-known ones. The kernel takes ports for connections and for
/// listeners on port 0 from 32768 up (`ip_local_port_range`); node ports begin at 30000.
const FIRST: u16 = 20_000;

/// The number of ports.
const COUNT: u16 = 10_000;

/// A name for each port in use. An abstract name can be bound once and lasts as long as its
/// process, in one network namespace: the same holds for a port.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port for this test only.
pub fn free_port() -> u16 {
    free_ports(&[0])
}

/// The first of several ports for this test only, at these offsets.
pub fn free_ports(offsets: &[u16]) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two test programs begin at different ports: what one has left in the kernel (a lingering
    // connection, a rule for a host port) does not affect the next.
    let start = std::process::id().wrapping_mul(397);
    let span = offsets.iter().max().expect("at least one port is requested") + 1;
    (0..COUNT)
        .map(|_| start.wrapping_add(NEXT.fetch_add(span, Ordering::Relaxed).into()))
        .map(|at| FIRST + u16::try_from(at % u32::from(COUNT - span)).expect("below COUNT"))
        .find(|first| offsets.iter().all(|offset| claim(first + offset)))
        .expect("some port is free")
}

/// Reserves the port; false if it is taken or something listens there.
fn claim(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("edged-test-port-{port}"));
    let Ok(claim) = UnixListener::bind_addr(&name.expect("a short name")) else { return false };
    CLAIMS.lock().expect("no thread panics here").push(claim);
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}
