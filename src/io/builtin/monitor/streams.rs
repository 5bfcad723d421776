//! The container's streams: FIFOs in its folder, or a terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockType;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::user_namespace;
use super::log::Log;
use crate::io::builtin::terminal;
use crate::io::channel::{Listener, receive_fd};
use crate::io::clock;
use crate::limits::{
    CRI_STATUS_TEXT_BYTES_MAX, LOG_OUTPUT_BYTES_MAX, MONITOR_DRAIN_MS_MAX, MONITOR_READ_BYTES,
};
use crate::model::runtime::MonitorStart;
use crate::wire::log::write::{Lines, Stream};

#[derive(Debug)]
pub(super) struct Streams {
    /// `out` and `err`; a terminal is the first.
    outputs: [Option<Output>; 2],
    /// The container's ends of its three streams, until it is made.
    ends: Option<[Stdio; 3]>,
    /// Where the container's input is written to.
    input: Option<File>,
    /// Where the OCI runtime sends the terminal.
    console: Option<Listener>,
    /// One byte for the stream's number, then what was read. Its pages are taken as they are
    /// written to: of a container that says little only the first.
    buffer: Vec<u8>,
    /// Lines that wait to be written; empty between two turns.
    lines: Vec<u8>,
}

#[derive(Debug)]
struct Output {
    file: File,
    lines: Lines,
}

impl Streams {
    /// Makes what a container needs, or opens what a process that is adopted has.
    pub(super) fn open(start: &MonitorStart) -> io::Result<Self> {
        let mut streams = Self {
            outputs: [None, None],
            ends: None,
            input: None,
            console: None,
            buffer: Vec::with_capacity(1 + MONITOR_READ_BYTES),
            lines: Vec::with_capacity(LOG_OUTPUT_BYTES_MAX),
        };
        if start.tty {
            // The terminal of a process that is adopted ended with the monitor that had it.
            if start.adopt.is_none() {
                streams.console = Some(Listener::open(CONSOLE, SockType::Stream)?);
                streams.ends = Some([Stdio::null(), Stdio::null(), Stdio::null()]);
            }
            return Ok(streams);
        }
        let mut ends = [Stdio::null(), Stdio::null(), Stdio::null()];
        if start.stdin {
            let (end, input) = open_input()?;
            (ends[0], streams.input) = (end.into(), Some(input));
        }
        for (at, (name, stream)) in [("out", Stream::Out), ("err", Stream::Err)].iter().enumerate()
        {
            fifo(name)?;
            let lines = Lines::new(*stream);
            let end = open_both(name, 0)?;
            user_namespace::own_stream(Path::new("."), &end)?;
            ends[at + 1] = end.into();
            let file = open_both(name, libc::O_NONBLOCK)?;
            streams.outputs[at] = Some(Output { file, lines });
        }
        streams.ends = Some(ends).filter(|_| start.adopt.is_none());
        Ok(streams)
    }

    /// Gives the container's ends to the OCI runtime.
    pub(super) fn hand_to(&mut self, call: &mut Command) {
        if self.console.is_some() {
            call.args(["--console-socket", CONSOLE]);
        }
        if let Some([input, output, error]) = self.ends.take() {
            call.stdin(input).stdout(output).stderr(error);
        }
    }

    /// After the OCI runtime has made the container: the terminal that it has sent.
    pub(super) fn take_console(&mut self) -> io::Result<()> {
        let Some(listener) = self.console.take() else { return Ok(()) };
        let sent = listener.accept().and_then(|connection| receive_fd(&connection));
        let terminal = sent.ok_or_else(|| io::Error::other("the OCI runtime sent no terminal"))?;
        set_nonblocking(&terminal)?;
        self.input = Some(terminal.try_clone()?.into());
        let lines = Lines::new(Stream::Out);
        self.outputs[0] = Some(Output { file: terminal.into(), lines });
        std::fs::remove_file(CONSOLE)
    }

    /// What to poll for output.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outputs.iter().flatten().map(|output| output.file.as_fd())
    }

    /// Reads of each stream what is there, as much as the buffer holds. `relay` gets it with the
    /// stream's number in front, 1 or 2. Returns whether there was anything.
    pub(super) fn pump(&mut self, nanos: i64, log: &mut Log, relay: &mut dyn FnMut(&[u8])) -> bool {
        let mut any = false;
        for (at, slot) in self.outputs.iter_mut().enumerate() {
            let Some(output) = slot else { continue };
            self.buffer.clear();
            self.buffer.push(at as u8 + 1);
            let ended =
                (&output.file).take(MONITOR_READ_BYTES as u64).read_to_end(&mut self.buffer);
            match ended {
                // Whatever ended it comes again.
                _ if self.buffer.len() > 1 => {
                    any = true;
                    relay(&self.buffer);
                    let read = &self.buffer[1..];
                    output.lines.push(read, nanos, &mut self.lines, &mut |lines| log.write(lines));
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // Nobody has the terminal open any more.
                Ok(_) | Err(_) => {
                    output.lines.end(nanos, &mut self.lines, &mut |lines| log.write(lines));
                    *slot = None;
                }
            }
        }
        log.write(&mut self.lines);
        any
    }

    /// Reads until nothing comes for `quiet_ms`, and ends the last lines.
    pub(super) fn drain(
        &mut self,
        quiet_ms: u16,
        nanos: i64,
        log: &mut Log,
        relay: &mut dyn FnMut(&[u8]),
    ) {
        let until = clock::precise() + Duration::from_millis(MONITOR_DRAIN_MS_MAX);
        loop {
            // One read takes all that a FIFO holds.
            while self.pump(nanos, log, relay) && clock::precise() < until {}
            let mut fds: Vec<_> = self.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let more = quiet_ms > 0
                && clock::precise() < until
                && !fds.is_empty()
                && poll(&mut fds, PollTimeout::from(quiet_ms)).is_ok_and(|ready| ready > 0);
            if !more {
                break;
            }
        }
        for output in self.outputs.iter_mut().flatten() {
            output.lines.end(nanos, &mut self.lines, &mut |lines| log.write(lines));
        }
        log.write(&mut self.lines);
    }

    /// What came on standard error, for the error of a container that could not be made.
    pub(super) fn last_words(&mut self) -> String {
        let mut text = vec![0; CRI_STATUS_TEXT_BYTES_MAX];
        let read = self.outputs[1].as_mut().map(|output| output.file.read(&mut text));
        text.truncate(read.and_then(Result::ok).unwrap_or(0));
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Writes to the container's input; how much of it was taken. Where there is no input, or
    /// nobody reads it, all is.
    pub(super) fn write_input(&mut self, bytes: &[u8]) -> usize {
        let Some(input) = &mut self.input else { return bytes.len() };
        match input.write(bytes) {
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            Err(_) => bytes.len(),
        }
    }

    /// What to poll for room in the input.
    pub(super) fn input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Sets the size of the terminal.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        if let Some(output) = &self.outputs[0] {
            terminal::resize(&output.file, rows, columns);
        }
    }
}

const CONSOLE: &str = "console";

/// For reading as well: a writer then never finds a FIFO without a reader, and a reader no end.
fn open_both(name: &str, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(name)
}

/// The end of an input is seen when its last writer is gone: that is this process alone.
fn open_input() -> io::Result<(File, File)> {
    fifo("in")?;
    let end = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("in")?;
    let input = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open("in")?;
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_RDONLY))?;
    user_namespace::own_stream(Path::new("."), &end)?;
    Ok((end, input))
}

fn fifo(name: &str) -> io::Result<()> {
    match mkfifo(Path::new(name), Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(io::Error::other(format!("mkfifo {name}: {errno}"))),
    }
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::test_folder::TestFolder;
    use crate::limits::MONITOR_DRAIN_QUIET_MS;

    fn of(file: File) -> Streams {
        Streams {
            outputs: [Some(Output { file, lines: Lines::new(Stream::Out) }), None],
            ends: None,
            input: None,
            console: None,
            buffer: Vec::with_capacity(1 + MONITOR_READ_BYTES),
            lines: Vec::with_capacity(LOG_OUTPUT_BYTES_MAX),
        }
    }

    #[test]
    fn one_read_takes_what_a_fifo_holds_and_silence_ends_it() {
        let top = TestFolder::new("fifo");
        let name = top.join("fifo");
        let name = name.to_str().expect("text");
        fifo(name).expect("made");
        fifo(name).expect("it is there");
        let mut writer = open_both(name, libc::O_NONBLOCK).expect("opens");
        let mut log = Log::open("").expect("none");
        let mut streams = of(open_both(name, libc::O_NONBLOCK).expect("opens"));
        assert!(!streams.pump(0, &mut log, &mut |_| panic!("nothing is there")));
        let written = writer.write(&vec![b'x'; 2 * MONITOR_READ_BYTES]).expect("room");
        assert_eq!(written, MONITOR_READ_BYTES);
        let mut relayed = Vec::new();
        assert!(streams.pump(0, &mut log, &mut |output| relayed.extend_from_slice(output)));
        assert_eq!((relayed.len(), relayed[0]), (1 + MONITOR_READ_BYTES, 1));
        assert_eq!(streams.buffer.capacity(), 1 + MONITOR_READ_BYTES, "it does not grow");
        let began = clock::precise();
        streams.drain(MONITOR_DRAIN_QUIET_MS, 0, &mut log, &mut |_| panic!("nothing is left"));
        let took = clock::precise().saturating_sub(began).as_millis();
        assert!(took >= u128::from(MONITOR_DRAIN_QUIET_MS), "{took}");
    }

    #[test]
    fn who_writes_without_end_is_left() {
        let mut log = Log::open("").expect("none");
        let began = clock::precise();
        of(File::open("/dev/zero").expect("Linux has it")).drain(9, 0, &mut log, &mut |_| ());
        let took = clock::precise().saturating_sub(began).as_millis() as u64;
        assert!(took >= MONITOR_DRAIN_MS_MAX, "{took}: what comes in time is taken");
    }
}
