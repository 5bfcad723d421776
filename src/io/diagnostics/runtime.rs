//! Requests the runtime's version and status, and waits for the answers.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::io::clock;
use crate::io::runtime::calls::Calls;
use crate::limits::CHECK_RUNTIME_MS;
use crate::model::cri::{CallError, Reply, Request, RuntimeStatus, Version};

pub(super) fn query(socket: &Path) -> Result<(Version, RuntimeStatus), String> {
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no such socket".to_owned(),
        ErrorKind::ConnectionRefused => "no process listens on the socket".to_owned(),
        _ => error.to_string(),
    })?;
    let wait = Some(Duration::from_millis(CHECK_RUNTIME_MS));
    stream.set_read_timeout(wait).map_err(|error| error.to_string())?;
    stream.set_write_timeout(wait).map_err(|error| error.to_string())?;
    let deadline = clock::boot().plus_ms(CHECK_RUNTIME_MS);
    let mut client = Client { stream, calls: Calls::new(), answers: Vec::new(), deadline };
    let Reply::Version(version) = client.call(CallId(1), &Request::Version)? else {
        return Err("got another answer to Version".to_owned());
    };
    let Reply::Status(status) = client.call(CallId(2), &Request::Status)? else {
        return Err("got another answer to Status".to_owned());
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
    fn call(&mut self, call: CallId, request: &Request) -> Result<Reply, String> {
        self.calls.start(call, request, self.deadline, &mut self.answers);
        let mut buffer = vec![0; 16 << 10];
        loop {
            for answer in self.answers.drain(..) {
                if let Event::Cri(_, answer) = answer {
                    return answer.map_err(|error| explain(&error));
                }
            }
            let count = self.calls.output().len();
            self.stream.write_all(self.calls.output()).map_err(|error| error.to_string())?;
            self.calls.sent(count);
            let now = clock::boot();
            self.calls.tick(now, &mut self.answers);
            if !self.answers.is_empty() {
                continue;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("it closed the connection without an answer".to_owned()),
                Ok(count) => self.calls.receive(now, &buffer[..count], &mut self.answers)?,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err("it does not answer".to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

fn explain(error: &CallError) -> String {
    error.to_string()
}
