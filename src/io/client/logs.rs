//! Prints logs of one container or of several at once, as they arrive.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connection::Connection;
use crate::limits::{CLIENT_LINE_BYTES_MAX, CLIENT_READ_BYTES};
use crate::model::error::Peer;
use crate::wire::http1::response::Piece;

/// The log of one container.
#[derive(Debug)]
pub struct Source {
    connection: Connection,
    /// Before each line.
    prefix: String,
    line: Vec<u8>,
    is_open: bool,
}

impl Source {
    pub fn new(connection: Connection, prefix: String) -> Self {
        Self { connection, prefix, line: Vec::new(), is_open: true }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Prints what was received; returns why the answer is unusable.
    fn print(&mut self, by_lines: bool, out: &mut dyn Write) -> io::Result<Option<String>> {
        loop {
            match self.connection.reader().piece() {
                Err(fault) => return Ok(Some(fault.to_string())),
                Ok(None) => break,
                Ok(Some(Piece::Head(_))) => {}
                Ok(Some(Piece::Body(part))) if by_lines => {
                    for line in part.split_inclusive(|byte| *byte == b'\n') {
                        self.line.extend_from_slice(line);
                        let ends = self.line.ends_with(b"\n");
                        if ends || self.line.len() >= CLIENT_LINE_BYTES_MAX {
                            out.write_all(self.prefix.as_bytes())?;
                            out.write_all(&self.line)?;
                            out.write_all(if ends { b"" } else { b"\n" })?;
                            self.line.clear();
                        }
                    }
                }
                Ok(Some(Piece::Body(part))) => out.write_all(part)?,
                Ok(Some(Piece::End)) => {
                    self.is_open = false;
                    break;
                }
            }
        }
        if !self.is_open && !self.line.is_empty() {
            out.write_all(self.prefix.as_bytes())?;
            out.write_all(&self.line)?;
            out.write_all(b"\n")?;
            self.line.clear();
        }
        out.flush()?;
        Ok(None)
    }

    /// Reads once and prints; returns why the answer is not whole.
    fn read(
        &mut self,
        buffer: &mut [u8],
        by_lines: bool,
        out: &mut dyn Write,
    ) -> io::Result<Option<String>> {
        match self.connection.read(buffer) {
            Ok(None) => Ok(None),
            Ok(Some(0)) => {
                self.is_open = false;
                let whole = self.connection.reader().closed();
                self.print(by_lines, out)?;
                Ok((!whole).then(|| "the connection was closed".to_owned()))
            }
            Ok(Some(count)) => {
                self.connection.reader().receive(&buffer[..count]);
                self.print(by_lines, out)
            }
            Err(error) => Ok(Some(error.to_string())),
        }
    }
}

/// Prints logs until all have ended; returns why one of them is not whole. Lines of several do not
/// mix, and only they and those with a prefix are taken apart. An error: `out` could not be
/// written.
pub fn print(mut sources: Vec<Source>, out: &mut dyn Write) -> io::Result<Result<(), Peer>> {
    let by_lines = sources.len() > 1 || sources.iter().any(|source| !source.prefix.is_empty());
    let mut buffer = vec![0; CLIENT_READ_BYTES];
    for source in &mut sources {
        // The beginning came with the head.
        if let Some(why) = source.print(by_lines, out)? {
            return Ok(Err(Peer::new(why)));
        }
    }
    loop {
        sources.retain(|source| source.is_open);
        if sources.is_empty() {
            return Ok(Ok(()));
        }
        let fd = |source| PollFd::new(Source::fd(source), PollFlags::POLLIN);
        let mut fds: Vec<PollFd<'_>> = sources.iter().map(fd).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Ok(Err(Peer::at("poll", errno.desc()))),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        for (source, _) in sources.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            if let Some(why) = source.read(&mut buffer, by_lines, out)? {
                return Ok(Err(Peer::new(why)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A log whose body is this.
    fn source(prefix: &str, body: &[u8]) -> Source {
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        theirs.write_all(body).expect("it fits");
        let connection = Connection::of(ours, "HTTP/1.1 200 OK\r\n\r\n");
        Source::new(connection, prefix.to_owned())
    }

    fn printed(sources: Vec<Source>) -> String {
        let mut out = Vec::new();
        print(sources, &mut out).expect("memory takes what is written").expect("whole logs");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn one_log_is_printed_as_it_is() {
        assert_eq!(printed(vec![source("", b"one\n\ntwo")]), "one\n\ntwo");
        assert_eq!(printed(vec![source("[a] ", b"one\n\ntwo")]), "[a] one\n[a] \n[a] two\n");
        assert_eq!(printed(Vec::new()), "");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let long = "x".repeat(CLIENT_LINE_BYTES_MAX);
        let got = printed(vec![source("[a] ", format!("{long}xy\n").as_bytes())]);
        // Where a read ends decides where exactly.
        let lines: Vec<&str> = got.lines().map(|line| &line[4..]).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].len() >= CLIENT_LINE_BYTES_MAX, "{}", lines[0].len());
        assert_eq!(lines.concat(), format!("{long}xy"));
    }
}
