//! The monitor's connections: the server's, and those of tools. Each is told the facts; each may
//! say a word.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockType, setsockopt, sockopt};

use super::log::{Log, LogFault};
use super::streams::Streams;
use crate::io::channel::{Channel, Listener, Received};
use crate::limits::{MONITOR_ATTACH_BYTES, MONITOR_ATTACH_WAIT_MS, MONITOR_CONNECTIONS_MAX};
use crate::model::runtime::MonitorFact;
use crate::wire::monitor;

#[derive(Debug)]
pub(super) struct Control {
    listener: Option<Listener>,
    connections: Vec<Connection>,
    /// The last fact, for who connects later.
    fact: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    /// It gets output.
    attached: bool,
    /// What the container has not taken of its input. While there is some, nothing is read.
    input: Vec<u8>,
}

impl Connection {
    fn new(channel: Channel) -> Self {
        Self { channel, attached: false, input: Vec::new() }
    }

    /// Whether it was sent; for a moment its reader is waited for.
    fn relay(&self, output: &[u8]) -> bool {
        self.channel.send(output) || {
            let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLOUT)];
            let _ = poll(&mut fds, PollTimeout::from(MONITOR_ATTACH_WAIT_MS));
            self.channel.send(output)
        }
    }
}

impl Control {
    /// With the server's connection.
    pub(super) fn new(server: Channel) -> Self {
        let connections = vec![Connection::new(server)];
        Self { listener: None, connections, fact: Vec::new() }
    }

    pub(super) fn listen(&mut self, name: &str) -> io::Result<()> {
        self.listener = Some(Listener::open(name, SockType::SeqPacket)?);
        Ok(())
    }

    /// What to poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = self.listener.iter().map(AsFd::as_fd);
        let read = self.connections.iter().filter(|one| one.input.is_empty());
        listener.chain(read.map(|one| one.channel.as_fd()))
    }

    /// Input waits for the container.
    pub(super) fn has_input(&self) -> bool {
        self.connections.iter().any(|one| !one.input.is_empty())
    }

    /// Tells everybody; whether anybody was told.
    pub(super) fn tell(&mut self, fact: &MonitorFact) -> bool {
        self.fact = monitor::fact(fact).into_bytes();
        let plain = self.connections.iter().filter(|one| !one.attached);
        plain.filter(|one| one.channel.send(&self.fact)).count() > 0
    }

    /// Gives output to those who are attached; one that does not read is hung up on.
    pub(super) fn relay(&mut self, output: &[u8]) {
        self.connections.retain(|one| !one.attached || one.relay(output));
    }

    /// Takes connections and does what they say. `status` becomes that of the adopted process.
    pub(super) fn turn(&mut self, streams: &mut Streams, log: &mut Log, status: &mut Option<i32>) {
        self.accept();
        let mut buffer = [0; WORD_BYTES];
        self.connections.retain_mut(|one| {
            loop {
                let taken = streams.write_input(&one.input);
                one.input.drain(..taken);
                if !one.input.is_empty() {
                    return true;
                }
                match one.channel.receive(&mut buffer) {
                    Received::Nothing => return true,
                    Received::End => return false,
                    Received::Message(bytes) if buffer[..bytes].first() == Some(&INPUT) => {
                        one.input.extend_from_slice(&buffer[1..bytes]);
                    }
                    Received::Message(bytes) => {
                        let word = str::from_utf8(&buffer[..bytes]).unwrap_or_default();
                        obey(word, one, streams, log, status);
                    }
                }
            }
        });
    }

    /// Waits for a new connection, or for what is said.
    pub(super) fn wait(&mut self, most: Duration) {
        let mut fds: Vec<_> = self.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX));
        drop(fds);
        let mut buffer = [0; WORD_BYTES];
        // Words are of no use any more.
        self.connections.retain(|one| one.channel.receive(&mut buffer) != Received::End);
        self.accept();
    }

    fn accept(&mut self) {
        while let Some(channel) = self.listener.as_ref().and_then(Listener::accept) {
            // One more than its bound is closed again.
            if self.connections.len() < MONITOR_CONNECTIONS_MAX
                && (self.fact.is_empty() || channel.send(&self.fact))
            {
                self.connections.push(Connection::new(channel));
            }
        }
    }
}

/// A word, or a piece of input with the byte in front.
pub(in crate::io::builtin) const WORD_BYTES: usize = 4_096;
/// In front of input.
pub(in crate::io::builtin) const INPUT: u8 = 0;

fn obey(
    word: &str,
    from: &mut Connection,
    streams: &mut Streams,
    log: &mut Log,
    status: &mut Option<i32>,
) {
    let mut parts = word.split(' ');
    let name = parts.next().unwrap_or_default();
    let mut number = || parts.next()?.parse::<i32>().ok();
    match name {
        "reopen" => {
            let done = log.reopen().map_err(|LogFault(why)| why);
            let fact = MonitorFact::Reopened(done);
            from.channel.send(monitor::fact(&fact).as_bytes());
        }
        "status" => {
            let dropped = format!("{{\"dropped_bytes\":{}}}", log.dropped());
            from.channel.send(dropped.as_bytes());
        }
        "attach" => {
            // Refused without CAP_NET_ADMIN: then it is hung up on sooner.
            let _ = setsockopt(&from.channel, sockopt::SndBufForce, &MONITOR_ATTACH_BYTES);
            from.attached = true;
        }
        "closestdin" => streams.close_input(),
        "resize" => {
            if let (Some(height), Some(width)) = (number(), number()) {
                streams.resize(height.clamp(0, 0xffff) as u16, width.clamp(0, 0xffff) as u16);
            }
        }
        "exited" => *status = status.or(number()),
        // A word of a later version.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_told_the_last_fact_and_one_too_many_is_closed() {
        let folder = std::env::temp_dir().join(format!("edged-ctl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (server, ours) = Channel::pair().expect("a pair");
        let mut control = Control::new(server);
        control.listen(folder.join("ctl").to_str().expect("text")).expect("it listens");
        let fact = MonitorFact::Reopened(Ok(()));
        assert!(control.tell(&fact));
        let mut buffer = [0; 64];
        assert_eq!(ours.receive(&mut buffer), Received::Message(8));
        let mut connect = || {
            let one = Channel::connect(&folder, "ctl").expect("it listens");
            control.wait(Duration::from_secs(9));
            one
        };
        let others: Vec<_> = (1..MONITOR_CONNECTIONS_MAX).map(|_| connect()).collect();
        let surplus = connect();
        assert_eq!(surplus.receive(&mut buffer), Received::End);
        for other in &others {
            assert_eq!(other.receive(&mut buffer), Received::Message(8));
            assert_eq!(&buffer[..8], b"reopened");
        }
        drop(others);
        control.wait(Duration::from_secs(9));
        assert_eq!(control.connections.len(), 1);
        drop(ours);
        assert!(!control.tell(&fact), "nobody is there");
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn one_that_is_attached_and_does_not_read_is_waited_for_a_moment_only() {
        let (server, ours) = Channel::pair().expect("a pair");
        let mut control = Control::new(server);
        let process = crate::io::builtin::process::name(std::process::id() as i32);
        let start = crate::model::runtime::MonitorStart {
            id: crate::model::runtime::ContainerId("a".into()),
            log: "".into(),
            stdin: false,
            tty: true,
            cgroup: "".into(),
            program: "".into(),
            adopt: Some(process.expect("this one")),
        };
        let mut streams = Streams::open(&start).expect("an adopted terminal has none");
        let mut log = Log::open("").expect("none");
        assert!(ours.send(b"attach"));
        control.turn(&mut streams, &mut log, &mut None);
        let output = vec![1; 32 << 10];
        let mut taken = 0;
        let began = crate::io::clock::precise();
        while !control.connections.is_empty() {
            control.relay(&output);
            taken += output.len();
        }
        let took = crate::io::clock::precise().saturating_sub(began);
        assert!(took >= Duration::from_millis(MONITOR_ATTACH_WAIT_MS.into()), "{took:?}");
        assert!(taken >= MONITOR_ATTACH_BYTES, "{taken}");
    }
}
