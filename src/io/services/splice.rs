//! Bytes from one socket to another inside the kernel (splice(2)): they pass through a pipe, and
//! are not copied into this process.
//!
//! A connection has a pipe only while bytes wait in it, so that idle ones have none.

#![expect(unsafe_code, reason = "splice is called as the kernel has it")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::limits::{SERVICE_PIPES_KEPT, SERVICE_SPLICE_BYTES};

/// Pipes without bytes.
#[derive(Debug, Default)]
pub(super) struct Pipes(Vec<Pipe>);

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// The pipe, and how many bytes are in it.
    pipe: Option<(Pipe, usize)>,
    /// The sender has sent its last byte.
    ended: bool,
    /// The receiver was told so.
    shut: bool,
}

/// Where a move stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// The sender has nothing more now.
    Drained,
    /// The receiver takes nothing more now.
    Blocked,
    /// There may be more, and it is the others' turn.
    Turn,
    /// The sender has sent everything, and the receiver has it: shut it down.
    Ended,
    /// That was done before.
    Over,
}

impl Half {
    pub(super) fn is_over(&self) -> bool {
        self.shut
    }

    /// Moves what there is, at most so often.
    pub(super) fn pump(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        pipes: &mut Pipes,
        moves: usize,
    ) -> io::Result<Moved> {
        if self.shut {
            return Ok(Moved::Over);
        }
        for _ in 0..moves {
            if self.pipe.is_none() && !self.ended {
                let pipe = pipes.take()?;
                match splice(from, borrow(&pipe.write), SERVICE_SPLICE_BYTES)? {
                    Some(0) => {
                        self.ended = true;
                        pipes.put(pipe);
                    }
                    Some(bytes) => self.pipe = Some((pipe, bytes)),
                    None => {
                        pipes.put(pipe);
                        return Ok(Moved::Drained);
                    }
                }
            }
            let Some((pipe, bytes)) = &mut self.pipe else {
                self.shut = true;
                return Ok(Moved::Ended);
            };
            match splice(borrow(&pipe.read), to, *bytes)? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(moved) => *bytes -= moved,
                None => return Ok(Moved::Blocked),
            }
            if let Some((pipe, _)) = self.pipe.take_if(|(_, bytes)| *bytes == 0) {
                pipes.put(pipe);
            }
        }
        Ok(Moved::Turn)
    }
}

impl Pipes {
    fn take(&mut self) -> io::Result<Pipe> {
        if let Some(pipe) = self.0.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    fn put(&mut self, pipe: Pipe) {
        if self.0.len() < SERVICE_PIPES_KEPT {
            self.0.push(pipe);
        }
    }
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

/// So many bytes were moved; `None`: it would have to wait.
fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes_max: usize) -> io::Result<Option<usize>> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    loop {
        // SAFETY: both descriptors are open, and without offsets no memory of ours is touched.
        let moved = unsafe {
            libc::splice(from.as_raw_fd(), null_mut(), to.as_raw_fd(), null_mut(), bytes_max, flags)
        };
        if moved >= 0 {
            return Ok(Some(moved as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_pass_in_their_order_and_an_idle_direction_has_no_pipe() {
        let (mut client, ours) = UnixStream::pair().expect("a pair");
        let (theirs, mut server) = UnixStream::pair().expect("a pair");
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).expect("ours");
        }
        let (mut half, mut pipes) = (Half::default(), Pipes::default());
        let mut pump = |half: &mut Half| {
            half.pump(ours.as_fd(), theirs.as_fd(), &mut pipes, 16).expect("open")
        };
        assert_eq!(pump(&mut half), Moved::Drained);
        client.write_all(b"hello").expect("room");
        assert_eq!(pump(&mut half), Moved::Drained);
        assert!(half.pipe.is_none());
        let mut read = [0; 5];
        server.read_exact(&mut read).expect("it was moved");
        assert_eq!(&read, b"hello");
        // A receiver that takes nothing stops the sender, and nothing is lost.
        client.set_nonblocking(true).expect("ours");
        let (mut sent, mut stopped) = (0_usize, 0);
        let block: Vec<u8> = (0..=255).collect();
        while stopped < 3 {
            let at = sent % 256;
            match client.write(&block[at..]) {
                Ok(bytes) => sent += bytes,
                Err(_) => {
                    stopped += usize::from(pump(&mut half) == Moved::Blocked);
                }
            }
        }
        server.set_nonblocking(true).expect("ours");
        client.shutdown(Shutdown::Write).expect("open");
        let mut got = Vec::new();
        let mut buffer = [0; 4_096];
        loop {
            match server.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => got.extend_from_slice(&buffer[..bytes]),
                Err(_) => {
                    if pump(&mut half) == Moved::Ended {
                        theirs.shutdown(Shutdown::Write).expect("open");
                    }
                }
            }
        }
        assert_eq!(got.len(), sent);
        assert!(got.iter().enumerate().all(|(at, byte)| *byte == (at % 256) as u8));
        assert!(half.is_over());
        assert_eq!(pump(&mut half), Moved::Over);
        assert!(pipes.0.len() <= SERVICE_PIPES_KEPT && SERVICE_SPLICE_BYTES >= 4_096);
    }
}
