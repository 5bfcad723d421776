//! A connection of a command that goes on after the head of its answer: a body without an end, or
//! another protocol.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{Agent, Answer, connect, may_use_fallback};
use crate::limits::{CLIENT_BYTES_MAX, CLIENT_READ_BYTES, CLIENT_STREAM_WAIT_MS};
use crate::model::error::{Error, Peer};
use crate::wire::http1::response::{Piece, Reader};

/// A connection that does not block.
#[derive(Debug)]
pub struct Connection {
    socket: File,
    /// What came after the head and was not taken.
    reader: Reader,
}

/// What became of a request.
#[derive(Debug)]
pub enum Opened {
    /// It has the expected status.
    Open(Connection),
    /// Another status.
    Refused(Answer),
}

impl Agent {
    /// Sends a request whose answer should have this status, 101 or 200, and waits for its head.
    /// `head`: further lines of the request's head, each with its end.
    pub fn open(
        &self,
        method: &str,
        path: &str,
        head: &str,
        expected: u16,
    ) -> Result<Opened, Error> {
        let mut address = &self.address;
        let mut done = connect(address, CLIENT_STREAM_WAIT_MS);
        if let (Err(error), Some(fallback)) = (&done, &self.fallback)
            && may_use_fallback(error)
        {
            address = fallback;
            done = connect(address, CLIENT_STREAM_WAIT_MS);
        }
        let socket = done.map_err(|error| self.cannot(address, &error))?;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
        begin(socket, request.as_bytes(), expected).map_err(|error| match error.kind() {
            // Not HTTP, or cut off.
            ErrorKind::InvalidData => Peer::at(address, error).into(),
            _ => self.cannot(address, &error).into(),
        })
    }
}

fn begin(mut socket: File, request: &[u8], expected: u16) -> io::Result<Opened> {
    let bad = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    // A server that refuses a request early may not read all of it, but still sends the reason.
    let written = socket.write_all(request);
    let (mut reader, mut answer) = (Reader::single(), None::<Answer>);
    let mut buffer = [0; CLIENT_READ_BYTES];
    loop {
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            // The end of a body without a length.
            if let Some(answer) = answer.filter(|_| reader.closed()) {
                return Ok(Opened::Refused(answer));
            }
            written?;
            return Err(bad("the answer was cut off".to_owned()));
        }
        reader.receive(&buffer[..count]);
        while let Some(piece) = reader.piece().map_err(|fault| bad(fault.to_string()))? {
            match (piece, &mut answer) {
                (Piece::Head(head), _) if head.status == expected => {
                    return Connection::new(socket, reader).map(Opened::Open);
                }
                (Piece::Head(head), _) => {
                    answer = Some(Answer { status: head.status, body: Vec::new() });
                }
                (Piece::Body(part), Some(answer)) => {
                    if (answer.body.len() + part.len()) as u64 > CLIENT_BYTES_MAX {
                        return Err(bad(format!("got {CLIENT_BYTES_MAX} bytes, expected fewer")));
                    }
                    answer.body.extend_from_slice(part);
                }
                (Piece::Body(_), None) => {}
                (Piece::End, _) => {
                    return Ok(Opened::Refused(answer.take().expect("a head came first")));
                }
            }
        }
    }
}

impl Connection {
    fn new(socket: File, reader: Reader) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { socket, reader })
    }

    /// For tests: a connection whose head was read.
    #[cfg(test)]
    pub fn of(socket: std::os::unix::net::UnixStream, head: &str) -> Self {
        let mut reader = Reader::single();
        reader.receive(head.as_bytes());
        let piece = reader.piece().expect("a head");
        assert!(matches!(piece, Some(Piece::Head(_))), "got {piece:?}");
        Self::new(std::os::fd::OwnedFd::from(socket).into(), reader).expect("a socket")
    }

    /// For `poll`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The bytes of the other protocol that came with the head.
    pub fn early(&mut self) -> Vec<u8> {
        // The end of the answer, which has no body.
        let _ = self.reader.piece();
        let bytes = self.reader.rest().to_vec();
        self.reader = Reader::single();
        bytes
    }

    /// Bytes of the body, if this is one.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Reads what there is; `None`: nothing yet; 0: the other end has closed.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        again(self.socket.read(buffer))
    }

    /// Writes what the socket takes; `None`: nothing yet.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        again(self.socket.write(bytes))
    }
}

/// A read or a write that would block is none.
pub(super) fn again(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What comes of a request that is answered so.
    fn begun(answer: &[u8], expected: u16) -> io::Result<Opened> {
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        theirs.write_all(answer).expect("it fits");
        theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
        begin(OwnedFd::from(ours).into(), b"GET / HTTP/1.1\r\n\r\n", expected)
    }

    #[test]
    fn bytes_behind_the_head_belong_to_the_other_protocol() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n";
        for early in ["", "\x7f\x03early"] {
            let opened = begun(format!("{head}{early}").as_bytes(), 101).expect("an answer");
            let Opened::Open(mut connection) = opened else { panic!("got {opened:?}") };
            assert_eq!(connection.early(), early.as_bytes());
        }
    }

    #[test]
    fn another_status_is_a_refusal_with_its_body() {
        for answer in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
            "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngone\r\n0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\n\r\ngone",
        ] {
            let opened = begun(answer.as_bytes(), 200).expect("an answer");
            let Opened::Refused(refused) = opened else { panic!("got {opened:?}") };
            assert_eq!((refused.status, &*refused.body), (404, &b"gone"[..]), "{answer}");
        }
        // A server that knows no upgrade.
        let opened = begun(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 101);
        assert!(matches!(opened.expect("an answer"), Opened::Refused(it) if it.status == 200));
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        for answer in
            ["", "HTTP/1.1 20", "SSH-2.0\r\n", "HTTP/1.1 404 N\r\nContent-Length: 9\r\n\r\ng"]
        {
            let error = begun(answer.as_bytes(), 200).expect_err(answer);
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{answer}: {error}");
        }
    }
}
