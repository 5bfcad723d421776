//! Ports for the programs under test: no other test is given the same, and no connection takes
//! them, neither before the program listens nor while it is down between two lives.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

/// Where they begin, above what is well known. The kernel gives connections and listeners on port
/// 0 others, from 32768 (`ip_local_port_range`); node ports have those from 30000.
const FIRST: u16 = 20_000;

/// How many there are.
const COUNT: u16 = 10_000;

/// A name for each port that is given away. An abstract name can be had once and lasts as long as
/// its process, in one network namespace: just what is true of a port.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of the test's own.
pub fn free_port() -> u16 {
    free_ports(&[0])
}

/// The first of several ports of the test's own, which lie this far from it.
pub fn free_ports(offsets: &[u16]) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two programs of tests begin in different places: what one has left in the kernel (a
    // connection that lingers, a rule for a host port) is not met by the next.
    let start = std::process::id().wrapping_mul(397);
    let span = offsets.iter().max().expect("at least one port is asked for") + 1;
    (0..COUNT)
        .map(|_| start.wrapping_add(NEXT.fetch_add(span, Ordering::Relaxed).into()))
        .map(|at| FIRST + u16::try_from(at % u32::from(COUNT - span)).expect("below COUNT"))
        .find(|first| offsets.iter().all(|offset| claim(first + offset)))
        .expect("not all ports are taken")
}

/// Nobody else is given it from here on, and nobody listens there.
fn claim(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("edged-test-port-{port}"));
    let Ok(claim) = UnixListener::bind_addr(&name.expect("a short name")) else { return false };
    CLAIMS.lock().expect("nobody panics here").push(claim);
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}
