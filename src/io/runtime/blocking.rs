//! Calls to the container runtime by a command that waits for each answer: `edged check`, `edged
//! images`, `edged runtime ps`. The agent does not use it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::agent::time::Instant;
use crate::io::clock;
use crate::limits::{CLI_WAIT_MS, RUNTIME_READ_BYTES};
use crate::model::cri::{Reply, Request};
use crate::model::endpoint::{Framing, RuntimeEndpoint};
use crate::model::error::{Error, Peer, System};
use crate::wire::cri::{Rpc, convert};
use crate::wire::line::Line;
use crate::wire::rpc::{CallKey, Event};

/// One connection.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    line: Line,
    calls: u64,
}

impl Client {
    pub fn connect(endpoint: &RuntimeEndpoint) -> Result<Self, Error> {
        let socket = UnixStream::connect(endpoint.path()).map_err(|error| match error.kind() {
            ErrorKind::NotFound => System::new("there is no such socket"),
            ErrorKind::ConnectionRefused => System::new("no process listens on the socket"),
            _ => error.into(),
        })?;
        Ok(Self::over(socket, endpoint.framing))
    }

    fn over(socket: UnixStream, framing: Framing) -> Self {
        Self { socket, line: Line::new(framing), calls: 0 }
    }

    /// Makes a call and waits so many milliseconds for its reply.
    pub fn call(&mut self, request: &Request, wait_ms: u64) -> Result<Reply, Error> {
        self.call_with(request, wait_ms, &mut |_| {})
    }

    /// The same; `waiting` is called about once a second with the milliseconds since the call.
    pub fn call_with(
        &mut self,
        request: &Request,
        wait_ms: u64,
        waiting: &mut dyn FnMut(u64),
    ) -> Result<Reply, Error> {
        let (rpc, message) = convert::encode(request);
        let reply = self.exchange(rpc, &message, wait_ms, waiting)?;
        Ok(convert::decode(rpc, &reply).map_err(|why| Peer::new(why.to_string()))?)
    }

    /// The same with the bytes of both messages.
    pub fn exchange(
        &mut self,
        rpc: Rpc,
        message: &[u8],
        wait_ms: u64,
        waiting: &mut dyn FnMut(u64),
    ) -> Result<Vec<u8>, Error> {
        self.calls += 1;
        let refused = self.line.call(CallKey(self.calls), rpc, wait_ms, message);
        refused.map_err(|refused| System::new(refused.to_string()))?;
        let began = clock::boot();
        let deadline = began.plus_ms(wait_ms);
        let mut buffer = vec![0; RUNTIME_READ_BYTES];
        loop {
            match self.line.poll_event() {
                Some(Event::Reply(_, reply)) => return Ok(reply),
                Some(Event::Failed(_, status)) => return Err(System::new(status.message).into()),
                Some(Event::Lost(_, lost)) => return Err(System::new(lost.why).into()),
                Some(Event::Message(..) | Event::Done(_)) => unreachable!("the call is unary"),
                None => {}
            }
            match self.move_bytes(deadline, &mut buffer) {
                Ok(0) => self.line.hangup("it closed the connection without an answer"),
                Ok(count) => self.line.receive(&buffer[..count])?,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    let now = clock::boot();
                    if now >= deadline {
                        return Err(System::new("it does not answer").into());
                    }
                    waiting(now.since_ms(began));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes what there is, and reads what comes within a second.
    fn move_bytes(&mut self, deadline: Instant, buffer: &mut [u8]) -> io::Result<usize> {
        let left_ms = deadline.since_ms(clock::boot()).clamp(1, CLI_WAIT_MS);
        let wait = Some(Duration::from_millis(left_ms));
        self.socket.set_write_timeout(wait)?;
        self.socket.set_read_timeout(wait)?;
        while !self.line.output().is_empty() {
            let count = self.socket.write(self.line.output())?;
            self.line.sent(count);
        }
        self.socket.read(buffer)
    }
}

/// Its answers come from a server of ttrpc in memory.
#[cfg(all(test, feature = "runtime"))]
mod answered;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_runtime_that_is_not_there_or_silent_is_told_apart() {
        let path = std::env::temp_dir().join(format!("edged-blocking-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let endpoint = RuntimeEndpoint::grpc(path.to_str().expect("UTF-8"));
        let connect = || Client::connect(&endpoint).map_err(|error| error.to_string());
        assert_eq!(connect().err(), Some("there is no such socket".to_owned()));
        let listener = UnixListener::bind(&path).expect("a socket of ours");
        let silent = connect().expect("it listens").call(&Request::Version, 20);
        assert_eq!(silent.map_err(|it| it.to_string()), Err("it does not answer".to_owned()));
        drop(listener);
        assert_eq!(connect().err(), Some("no process listens on the socket".to_owned()));
        std::fs::remove_file(&path).expect("a socket of ours");
    }

    #[test]
    fn whoever_waits_long_is_told_so() {
        let (ours, peer) = UnixStream::pair().expect("two ends");
        let mut client = Client::over(ours, Framing::Grpc);
        let mut told = Vec::new();
        let wait_ms = CLI_WAIT_MS + 100;
        let silent = client.call_with(&Request::Version, wait_ms, &mut |ms| told.push(ms));
        assert_eq!(silent.map_err(|it| it.to_string()), Err("it does not answer".to_owned()));
        assert!(matches!(told[..], [ms] if ms >= CLI_WAIT_MS), "{told:?}");
        drop(peer);
        let closed = client.call(&Request::Version, 1_000).expect_err("nobody is there");
        assert!(!closed.to_string().contains("does not answer"), "{closed}");
    }
}
