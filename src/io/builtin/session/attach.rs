//! A container's own streams, for a client: by the container's monitor, which passes on what the
//! container writes from now on. The log has it as well.
//!
//! A client that leaves ends the container's input only where the container asks for that
//! (`stdin_once`). One that reads so slowly that the container would have to wait is hung up on.

use std::os::fd::AsFd;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::client::Client;
use crate::io::builtin::layout::Settings;
use crate::io::builtin::monitor::{CTL, EXIT, INPUT, WORD_BYTES};
use crate::io::channel::{Channel, Received};
use crate::limits::MONITOR_READ_BYTES;
use crate::model::cri::Pipes;
use crate::model::runtime::ContainerFolder;
use crate::wire::streaming::command::{Ended, Output};

/// Connects a client until one of both ends; `rest` was read of the client already.
pub(super) fn serve(
    settings: &Settings,
    container: &ContainerFolder,
    pipes: Pipes,
    stdin_once: bool,
    mut client: Client,
    rest: &[u8],
) {
    if !client.open(rest) {
        return;
    }
    let folder = settings.layout.container(&container.id);
    let ended = match Channel::connect(&folder, CTL) {
        Ok(channel) if channel.send(b"attach") => {
            let closes_input = pipes.stdin && stdin_once;
            Attached { channel, closes_input }.run(&mut client, &folder)
        }
        Ok(_) => Some(end(&folder)),
        Err(_) if !folder.join(CTL).exists() || folder.join(EXIT).exists() => {
            Some(Ended::Exited(0))
        }
        Err(error) => Some(Ended::Failed(format!("the container's monitor: {error}"))),
    };
    if let Some(ended) = ended {
        client.finish(&ended);
    }
}

struct Attached {
    channel: Channel,
    /// The container's input is to be closed once the client's has ended.
    closes_input: bool,
}

impl Attached {
    /// `None`: the client has left.
    fn run(&mut self, client: &mut Client, folder: &Path) -> Option<Ended> {
        let mut buffer = vec![0; 1 + MONITOR_READ_BYTES];
        loop {
            while client.has_room() {
                match self.channel.receive(&mut buffer) {
                    Received::Nothing => break,
                    Received::End => return Some(end(folder)),
                    Received::Message(bytes) => match &buffer[..bytes] {
                        [1, bytes @ ..] => client.output(Output::Stdout, bytes),
                        [2, bytes @ ..] => client.output(Output::Stderr, bytes),
                        // A fact from before it was attached.
                        _ => {}
                    },
                }
            }
            let is_sent = self.send(client);
            if is_sent && client.has_left() {
                return None;
            }
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, client.has_room());
            flags.set(PollFlags::POLLOUT, !is_sent);
            let mut fds = vec![PollFd::new(self.channel.as_fd(), flags)];
            fds.extend(client.watch());
            let _ = poll(&mut fds, PollTimeout::NONE);
            let polled = fds.get(1).and_then(PollFd::revents);
            let polled = polled.unwrap_or(PollFlags::empty());
            client.turn(polled);
        }
    }

    /// Whether the monitor has taken all that there is for it.
    fn send(&mut self, client: &mut Client) -> bool {
        if let Some((columns, rows)) = client.size {
            if !self.channel.send(format!("resize {rows} {columns}").as_bytes()) {
                return false;
            }
            client.size = None;
        }
        let mut message = [INPUT; WORD_BYTES];
        while !client.input.is_empty() {
            let count = client.input.len().min(WORD_BYTES - 1);
            message[1..=count].copy_from_slice(&client.input[..count]);
            if !self.channel.send(&message[..=count]) {
                return false;
            }
            client.input.drain(..count);
        }
        if client.input_ended && self.closes_input {
            if !self.channel.send(b"closestdin") {
                return false;
            }
            self.closes_input = false;
        }
        true
    }
}

/// The monitor has hung up: it keeps the exit code before it ends.
fn end(folder: &Path) -> Ended {
    if folder.join(EXIT).exists() || !folder.exists() {
        return Ended::Exited(0);
    }
    let why = "the container goes on, but its monitor has hung up: it was restarted, or its output \
               was read too slowly";
    Ended::Failed(why.to_owned())
}
