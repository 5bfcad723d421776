//! The memory of as many streams as there may be, of the most expensive kind: clients that take
//! nothing while more and more would come.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use edged::limits::STREAMS_MAX;

use super::{POD, ask, fill, manifest, open_logs, path, socket};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::Site;
use crate::support::exec::Exec;
use crate::support::process::pss_kb;
use crate::watched::Watched;

/// Names of [`growth`].
pub const NAMES: &[&str] = &["streams.memory.log", "streams.memory.exec"];

/// Every buffer is as full as it gets.
const SETTLE: Duration = Duration::from_secs(3);

/// KiB of each stream: of followed logs that nobody reads, and of commands whose output nobody
/// reads and which do not read what is sent to them.
pub fn growth(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    open_logs(&site);
    site.put("seen.yaml", &manifest());
    let agent = started(&site);
    fill(&site, 8 << 20);
    drop(agent);
    let log = |socket: &Path| {
        let stream = UnixStream::connect(socket).expect("it listens");
        ask(stream, &path("containerLogs", "follow=true"))
    };
    let of_log = of_each(&site, log);
    let of_exec = of_each(&site, typing);
    rig.wipe();
    [of_log, of_exec]
        .into_iter()
        .zip(NAMES)
        .map(|(kib, name)| Figure::alone(name, kib, "KiB", Some(Limit::Most(64.0))))
        .collect()
}

fn started(site: &Site) -> Watched {
    let agent = crate::memory::start(site);
    assert!(site.wait_running(POD).runs());
    agent
}

/// KiB of each of as many streams as there may be, in an agent that had none before but the first:
/// what all share is not counted.
fn of_each<S>(site: &Site, open: impl Fn(&Path) -> S) -> f64 {
    let agent = started(site);
    let socket = socket(site);
    drop(open(&socket));
    std::thread::sleep(SETTLE);
    let before = pss_kb(agent.pid());
    let streams: Vec<S> = (0..STREAMS_MAX).map(|_| open(&socket)).collect();
    std::thread::sleep(SETTLE);
    let grown = pss_kb(agent.pid()).saturating_sub(before);
    drop(streams);
    grown as f64 / STREAMS_MAX as f64
}

/// A command that writes and does not read, to which as much is sent as the sockets take.
fn typing(socket: &Path) -> Exec {
    let mut exec = Exec::open(socket, &path("exec", "output=1&input=1&command=yes"));
    exec.stream.set_nonblocking(true).expect("ours");
    // A binary message of 4 KiB on channel 0, masked with zeros.
    let mut message = vec![0x82, 0xfe, 0x10, 0x01, 0, 0, 0, 0];
    message.resize(8 + 4_097, 0);
    let (mut rest, mut refusals) = (&message[..], 0);
    while refusals < 40 {
        match exec.stream.write(rest) {
            Ok(count) => {
                refusals = 0;
                rest = &rest[count..];
                if rest.is_empty() {
                    rest = &message;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("the agent reads or waits: {error}"),
        }
    }
    exec
}
