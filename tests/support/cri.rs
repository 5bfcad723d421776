//! A blocking client of the CRI, on the project's own codecs.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use edged::model::endpoint::Framing;
use edged::wire::cri::{Request, Rpc, decode};
use edged::wire::line::Line;
use edged::wire::rpc::{CallKey, Code, Event};

/// One connection.
pub struct Cri {
    socket: UnixStream,
    line: Line,
    last: u64,
    buffer: Vec<u8>,
    answers: VecDeque<(CallKey, Result<Vec<u8>, Refusal>)>,
}

/// The runtime refused, or did not answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// gRPC's code; `None`: the connection was lost.
    pub code: Option<Code>,
    /// The runtime's message.
    pub why: String,
}

/// The built-in runtime is the one whose socket is the `sock` of a folder `rt`.
fn framing(path: &Path) -> Framing {
    #[cfg(feature = "runtime")]
    if path.ends_with("rt/sock") {
        return Framing::Ttrpc;
    }
    let _ = path;
    Framing::Grpc
}

impl Cri {
    /// Connects.
    pub fn connect(path: &Path) -> io::Result<Cri> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(Duration::from_secs(150)))?;
        let line = Line::new(framing(path));
        let buffer = vec![0; 64 << 10];
        Ok(Cri { socket, line, last: 0, buffer, answers: VecDeque::new() })
    }

    /// Makes a call and waits for its answer.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Reply, Refusal> {
        let key = self.begin(R::RPC, &request.encode_to_vec());
        let (answered, answer) = self.next();
        assert_eq!(answered, key, "one call at a time");
        let bytes = answer?;
        decode::<R>(&bytes)
            .map_err(|error| Refusal { code: None, why: format!("{}: {error}", R::RPC.name()) })
    }

    /// Begins a call; its answer comes by [`Cri::next`].
    pub fn begin(&mut self, rpc: Rpc, message: &[u8]) -> CallKey {
        self.last += 1;
        let key = CallKey(self.last);
        self.line.call(key, rpc, 0, message).expect("the connection takes calls");
        let _ = self.flush();
        key
    }

    /// Waits for the next answer to any call.
    pub fn next(&mut self) -> (CallKey, Result<Vec<u8>, Refusal>) {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return answer;
            }
            if let Err(error) = self.receive() {
                self.line.hangup(&error.to_string());
            }
            while let Some(event) = self.line.poll_event() {
                let key = event.key();
                let answer = match event {
                    Event::Reply(_, bytes) => Ok(bytes),
                    Event::Failed(_, status) => {
                        Err(Refusal { code: Some(status.code), why: status.message })
                    }
                    Event::Lost(_, lost) => Err(Refusal { code: None, why: lost.why }),
                    Event::Message(..) | Event::Done(_) => panic!("an event of a stream"),
                };
                self.answers.push_back((key, answer));
            }
        }
    }

    /// Its own frames are sent with the next request, or before the next wait, as the agent does:
    /// the runtime would wake up for each alone.
    fn receive(&mut self) -> io::Result<()> {
        self.flush()?;
        let count = self.socket.read(&mut self.buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.line.receive(&self.buffer[..count]).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.line.output().is_empty() {
            let count = self.socket.write(self.line.output())?;
            self.line.sent(count);
        }
        Ok(())
    }
}
