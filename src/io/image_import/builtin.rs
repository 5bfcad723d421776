//! `edged images import` into the built-in runtime, which has a call of its own for that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use prost::Message;

use crate::limits::{PULL_DEADLINE_MS, RUNTIME_READ_BYTES};
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{Error, Input, Peer, System};
use crate::wire::cri::edged::ImportRequest;
use crate::wire::cri::{Rpc, decode};
use crate::wire::line::Line;
use crate::wire::rpc::{CallKey, Event};

/// Imports the images of an archive or of an OCI layout. Returns their names.
pub(super) fn import(file: &Path, runtime: &RuntimeEndpoint) -> Result<Vec<String>, Error> {
    let path = std::path::absolute(file)?;
    let path = path.to_str().ok_or_else(|| Input::quoted(&path.to_string_lossy(), "UTF-8"))?;
    let mut socket = UnixStream::connect(runtime.path())
        .map_err(|error| System::at(format_args!("connect {}", runtime.socket), error))?;
    let wait = Some(Duration::from_millis(PULL_DEADLINE_MS));
    socket.set_read_timeout(wait)?;
    socket.set_write_timeout(wait)?;
    ask(&mut socket, Line::new(runtime.framing), path)
}

fn ask(socket: &mut UnixStream, mut line: Line, path: &str) -> Result<Vec<String>, Error> {
    let message = ImportRequest { path: path.to_owned() }.encode_to_vec();
    line.call(CallKey(0), Rpc::Import, PULL_DEADLINE_MS, &message)
        .map_err(|refused| System::new(refused.to_string()))?;
    socket.write_all(line.output())?;
    let mut buffer = vec![0; RUNTIME_READ_BYTES];
    loop {
        match line.poll_event() {
            Some(Event::Reply(_, reply)) => {
                let reply = decode::<ImportRequest>(&reply);
                return Ok(reply.map_err(|error| Peer::new(error.to_string()))?.names);
            }
            Some(Event::Failed(_, status)) => return Err(System::new(status.message).into()),
            Some(Event::Lost(_, lost)) => return Err(System::new(lost.why).into()),
            Some(Event::Message(..) | Event::Done(_)) => unreachable!("the call is unary"),
            None => {}
        }
        match socket.read(&mut buffer)? {
            0 => line.hangup("the runtime closed the connection without an answer"),
            count => line.receive(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::endpoint::Framing;
    use crate::wire::rpc::{Code, Status};
    use crate::wire::ttrpc::{self, Server, StreamId};

    /// The answer waits in the socket before the call is made.
    fn answered(answer: fn(&mut Server)) -> Result<String, String> {
        let mut request = Line::new(Framing::Ttrpc);
        let message = b"\x0a\x0d/images/a.tar";
        request.call(CallKey(1), Rpc::Import, PULL_DEADLINE_MS, message).expect("it takes calls");
        let mut server = Server::default();
        server.receive(request.output()).expect("a good request");
        let Some(ttrpc::Event::Call(call)) = server.poll_event() else { panic!("a call") };
        assert_eq!(call.timeout, Some(Duration::from_millis(PULL_DEADLINE_MS)));
        answer(&mut server);
        let (mut ours, mut peer) = UnixStream::pair().expect("two ends");
        peer.write_all(server.output()).expect("there is room");
        peer.shutdown(std::net::Shutdown::Write).expect("it is open");
        let result = ask(&mut ours, Line::new(Framing::Ttrpc), "/images/a.tar");
        let mut sent = vec![0; request.output().len()];
        peer.read_exact(&mut sent).expect("the request");
        assert_eq!(sent, request.output());
        result.map(|names| names.join(" ")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_names_or_the_reason_come_from_the_runtime() {
        let good = answered(|server| server.answer(StreamId(1), b"\x0a\x03a:1\x0a\x03b:2"));
        assert_eq!(good, Ok("a:1 b:2".to_owned()));
        let bad = answered(|server| {
            let message = "no image in it".to_owned();
            server.refuse(StreamId(1), &Status { code: Code::InvalidArgument, message });
        });
        assert_eq!(bad, Err("no image in it".to_owned()));
        let why = "the runtime closed the connection without an answer";
        assert_eq!(answered(|_| {}), Err(why.to_owned()));
    }
}
