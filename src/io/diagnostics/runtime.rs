//! Requests the runtime's version and status, and waits for the answers.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::io::clock;
use crate::io::runtime::calls::Calls;
use crate::limits::CHECK_RUNTIME_MS;
use crate::model::cri::{Reply, Request, RuntimeStatus, Version};
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{Error, Peer, System};

pub(super) fn query(endpoint: &RuntimeEndpoint) -> Result<(Version, RuntimeStatus), Error> {
    let stream = UnixStream::connect(endpoint.path()).map_err(|error| match error.kind() {
        ErrorKind::NotFound => System::new("there is no such socket"),
        ErrorKind::ConnectionRefused => System::new("no process listens on the socket"),
        _ => error.into(),
    })?;
    let wait = Some(Duration::from_millis(CHECK_RUNTIME_MS));
    stream.set_read_timeout(wait)?;
    stream.set_write_timeout(wait)?;
    let deadline = clock::boot().plus_ms(CHECK_RUNTIME_MS);
    let calls = Calls::new(endpoint.framing);
    let mut client = Client { stream, calls, answers: Vec::new(), deadline };
    let Reply::Version(version) = client.call(CallId(1), &Request::Version)? else {
        return Err(Peer::new("got another answer to Version").into());
    };
    let Reply::Status(status) = client.call(CallId(2), &Request::Status)? else {
        return Err(Peer::new("got another answer to Status").into());
    };
    Ok((version, status))
}

struct Client {
    stream: UnixStream,
    calls: Calls,
    answers: Vec<Event>,
    deadline: Instant,
}

impl Client {
    fn call(&mut self, call: CallId, request: &Request) -> Result<Reply, Error> {
        self.calls.start(clock::boot(), call, request, self.deadline, &mut self.answers);
        let mut buffer = vec![0; 16 << 10];
        loop {
            for answer in self.answers.drain(..) {
                if let Event::Cri(_, answer) = answer {
                    return answer.map_err(|error| System::new(error.to_string()).into());
                }
            }
            let count = self.calls.output().len();
            self.stream.write_all(self.calls.output())?;
            self.calls.sent(count);
            let now = clock::boot();
            self.calls.tick(now, &mut self.answers);
            if !self.answers.is_empty() {
                continue;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    return Err(Peer::new("it closed the connection without an answer").into());
                }
                Ok(count) => self.calls.receive(now, &buffer[..count], &mut self.answers)?,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(System::new("it does not answer").into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
