//! Sessions: what a client connects to at the URL that `Exec`, `Attach` and `PortForward` return.
//!
//! ```text
//!  server ─job─▶ open: a socket in RUN/s ─▶ URL, the job ends
//!                 └─fork─▶ session: one connection ─▶ upgrade ─▶ exec, attach or forward ─▶ ends
//! ```
//!
//! A session is a process, has one thread and serves one client. It belongs to no server: an
//! upgrade of the server ends no terminal. It ends with its client, or with the container or the
//! sandbox that it is for. The socket is open to root alone, and for the first connection only; its
//! name has 128 random bits. The file `N.lock` is locked by the session that has the number `N`, so
//! their count is right whoever was killed.
//!
//! **If we crash here** the client sees its connection end. A command goes on until it writes; its
//! terminal is hung up.

mod attach;
mod client;
mod exec;
mod forward;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use tungstenite::handshake::derive_accept_key;

use super::files;
use super::layout::Settings;
use crate::io::channel::Listener;
use crate::io::{child, clock};
use crate::limits::{RUNTIME_SESSIONS_MAX, SESSION_ACCEPT_MS, SESSION_OPEN_MS};
use crate::model::runtime::{JobFault, JobReply, Pipes, Session};
use crate::wire::streaming::command::Command;
use crate::wire::streaming::upgrade::{self, Protocol, Purpose, Upgrade};
use client::{Client, Socket};

/// Opens a session and leaves it to itself. → [`JobReply::Url`]
pub fn open(settings: &Settings, session: &Session) -> Result<JobReply, JobFault> {
    let failed = |why: &dyn std::fmt::Display| JobFault::Failed(format!("session: {why}"));
    let folder = settings.layout.sessions();
    files::make_dir(&folder).map_err(|why| failed(&why))?;
    let (number, _lock) = free_number(&folder)?;
    let name = format!("{number}-{:016x}{:016x}", clock::seed(), clock::seed());
    let listener =
        Listener::open_in(&folder, &name, SockType::Stream).map_err(|why| failed(&why))?;
    let path = folder.join(&name);
    let started = child::start(|| {
        if detach().is_ok() {
            run(settings, session, listener, &path);
        }
        0
    });
    started.map_err(|why| failed(&why))?;
    Ok(JobReply::Url(format!("unix://{}", path.display()).into()))
}

/// A number that no session has, with its lock, which children share. What a session that was
/// killed has left of the same number is removed.
fn free_number(folder: &Path) -> Result<(usize, File), JobFault> {
    let failed = |why: std::io::Error| JobFault::Failed(format!("session: {why}"));
    for number in 0..RUNTIME_SESSIONS_MAX {
        let lock = File::create(folder.join(format!("{number}.lock"))).map_err(failed)?;
        if lock.try_lock().is_err() {
            continue;
        }
        let of_it = format!("{number}-");
        for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(of_it.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        return Ok((number, lock));
    }
    Err(JobFault::Exhausted(format!("got a session beyond the limit of {RUNTIME_SESSIONS_MAX}")))
}

/// Leaves the job's session and folder. A new process has no parent that would take it along.
fn detach() -> nix::Result<()> {
    nix::unistd::setsid()?;
    nix::unistd::chdir("/")?;
    let null = File::open("/dev/null").map_err(|_| nix::Error::ENOENT)?;
    nix::unistd::dup2_stdin(null)?;
    // The job that opened it, and with it the server, has other signals blocked.
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    nix::sys::prctl::set_name(c"edged-session")
}

fn run(settings: &Settings, session: &Session, listener: Listener, name: &Path) {
    let accepted = accept(&listener, Duration::from_millis(SESSION_ACCEPT_MS));
    drop(listener);
    let _ = fs::remove_file(name);
    if let Some(stream) = accepted {
        serve(settings, session, stream);
    }
}

/// The first connection of our own user, if it comes in time.
fn accept(listener: &Listener, most: Duration) -> Option<UnixStream> {
    let until = clock::precise() + most;
    loop {
        let left = until.checked_sub(clock::precise()).filter(|left| !left.is_zero())?;
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let Some(connection) = listener.accept() else { continue };
        let peer = getsockopt(&connection.as_fd(), sockopt::PeerCredentials);
        if peer.is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw()) {
            return Some(connection.into_fd().into());
        }
    }
}

/// Serves a client to its end.
pub fn serve(settings: &Settings, session: &Session, stream: UnixStream) {
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let mut socket = Socket::new(stream);
    let purpose = match session {
        Session::Exec { .. } | Session::Attach { .. } => Purpose::Command,
        Session::PortForward { .. } => Purpose::Forward,
    };
    let Some((upgrade, rest)) = upgraded(&mut socket, purpose) else { return };
    let protocol = upgrade.protocol;
    match session {
        Session::Exec { container, command, pipes } => {
            let client = client(socket, protocol, *pipes);
            exec::serve(settings, container, command, *pipes, client, &rest);
        }
        Session::Attach { container, pipes, stdin_once } => {
            let client = client(socket, protocol, *pipes);
            attach::serve(settings, container, *pipes, *stdin_once, client, &rest);
        }
        Session::PortForward { sandbox, own_network, ports } => {
            let sandbox = forward::Place::new(&settings.layout, sandbox, *own_network);
            forward::serve(&sandbox, ports, protocol, socket, &rest);
        }
    }
}

fn client(socket: Socket, protocol: Protocol, pipes: Pipes) -> Client {
    Client::new(socket, Command::new(protocol, pipes))
}

/// Reads the request and answers it. What follows it is the second.
fn upgraded(socket: &mut Socket, purpose: Purpose) -> Option<(Upgrade, Vec<u8>)> {
    let until = clock::precise() + Duration::from_millis(SESSION_OPEN_MS);
    let mut came = Vec::new();
    loop {
        match upgrade::upgrade(&came, purpose, derive_accept_key) {
            Ok(Some(upgrade)) => {
                came.drain(..upgrade.head_bytes);
                let sent = socket.write_all(upgrade.answer.as_bytes(), until);
                return sent.then_some((upgrade, came));
            }
            Err(refusal) => {
                socket.write_all(&refusal, until);
                return None;
            }
            Ok(None) => {}
        }
        if !socket.wait(PollFlags::POLLIN, until) {
            return None;
        }
        let mut buffer = [0; 4 << 10];
        let count = socket.read(&mut buffer);
        came.extend_from_slice(&buffer[..count]);
        if socket.has_left() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::runtime::{ContainerFolder, ContainerId};

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("edged-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of ours");
        folder
    }

    #[test]
    fn sessions_have_a_bound_and_one_that_has_ended_leaves_its_number() {
        let folder = folder("sessions");
        let taken = |_| free_number(&folder).expect("it is free");
        let mut all: Vec<_> = (0..RUNTIME_SESSIONS_MAX).map(taken).collect();
        assert!(all.iter().map(|(number, _)| *number).eq(0..RUNTIME_SESSIONS_MAX));
        let refused = free_number(&folder).map(|(number, _)| number);
        let why = "got a session beyond the limit of 64".to_owned();
        assert_eq!(refused, Err(JobFault::Exhausted(why)));
        // The socket of one that was killed, and that of another one.
        for name in ["7-ab", "17-ab"] {
            fs::write(folder.join(name), "").expect("ours");
        }
        // Unlocked, not only closed: a child that another test has just forked holds it open too.
        let (_, ended) = all.remove(7);
        ended.unlock().expect("it is locked");
        assert_eq!(free_number(&folder).map(|(number, _)| number), Ok(7));
        assert!(!folder.join("7-ab").exists() && folder.join("17-ab").exists());
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn one_client_connects_in_time() {
        let folder = folder("accept");
        let listener = Listener::open_in(&folder, "a", SockType::Stream).expect("it listens");
        assert!(accept(&listener, Duration::from_millis(20)).is_none());
        let client = UnixStream::connect(folder.join("a")).expect("it listens");
        assert!(accept(&listener, Duration::from_millis(SESSION_ACCEPT_MS)).is_some());
        drop(client);
        fs::remove_dir_all(&folder).expect("ours");
        // As long as clients of other runtimes have.
        assert_eq!((SESSION_ACCEPT_MS, SESSION_OPEN_MS), (60_000, 30_000));
    }

    #[test]
    fn a_client_without_an_upgrade_is_answered_and_left() {
        let settings = Settings {
            layout: super::super::layout::Layout::new("/nowhere".into(), "/nowhere".into()),
            oci: "/nowhere".into(),
            cni_conf_dir: "/nowhere".into(),
            cni_bin_dir: "/nowhere".into(),
            handlers: Vec::new(),
            registries: crate::model::builtin::Registries::default(),
        };
        let container = ContainerFolder {
            id: ContainerId("a".into()),
            cgroup: "/a".into(),
            program: "".into(),
        };
        let pipes = Pipes { stdout: true, ..Pipes::default() };
        let session = Session::Exec { container, command: vec!["x".to_owned()], pipes };
        let (mut client, theirs) = UnixStream::pair().expect("a pair");
        std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
        serve(&settings, &session, theirs);
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut client, &mut answer).expect("it has closed");
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        let (client, theirs) = UnixStream::pair().expect("a pair");
        drop(client);
        // It does not wait for one that has left.
        serve(&settings, &session, theirs);
    }
}
