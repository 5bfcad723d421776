//! Leaves the namespaces of this process for a moment: to make new ones, or to look into others.
//!
//! Namespaces belong to a thread, and a child process would cost more: the caller, who has one
//! thread, goes and comes back. **If we crash here** nothing is left: namespaces that nobody holds
//! are gone.
#![expect(unsafe_code, reason = "an interface is raised by an ioctl")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::model::error::System;

/// The name of each kind below `/proc/thread-self/ns`.
pub(super) const NET: Kind = ("net", CloneFlags::CLONE_NEWNET);
pub(super) const IPC: Kind = ("ipc", CloneFlags::CLONE_NEWIPC);
pub(super) const UTS: Kind = ("uts", CloneFlags::CLONE_NEWUTS);

/// For the children of this process.
pub(super) const PID: Kind = ("pid_for_children", CloneFlags::CLONE_NEWPID);

pub(super) type Kind = (&'static str, CloneFlags);

/// What `act` does in new namespaces of these kinds.
pub(super) fn in_new<T>(kinds: &[Kind], act: impl FnOnce() -> T) -> Result<T, System> {
    let flags = kinds.iter().fold(CloneFlags::empty(), |all, (_, flag)| all | *flag);
    away(kinds, &|| Ok(unshare(flags)?), act)
}

/// What `act` does in the namespaces of these kinds that `file` names by their names.
pub(super) fn in_those<T>(
    kinds: &[Kind],
    file: impl Fn(&str) -> PathBuf,
    act: impl FnOnce() -> T,
) -> Result<T, System> {
    let go =
        &|| kinds.iter().try_for_each(|(name, flag)| Ok(setns(File::open(file(name))?, *flag)?));
    away(kinds, go, act)
}

/// What `act` does in the namespace that this file holds.
pub(super) fn inside<T>(kind: Kind, file: &Path, act: impl FnOnce() -> T) -> Result<T, System> {
    away(&[kind], &|| Ok(setns(File::open(file)?, kind.1)?), act)
}

fn away<T>(
    kinds: &[Kind],
    go: &dyn Fn() -> io::Result<()>,
    act: impl FnOnce() -> T,
) -> Result<T, System> {
    let home = leave(kinds, go)?;
    let done = act();
    come_back(home);
    Ok(done)
}

/// Returns the way back.
fn leave(
    kinds: &[Kind],
    go: &dyn Fn() -> io::Result<()>,
) -> Result<Vec<(File, CloneFlags)>, System> {
    let home = |(name, flag): &Kind| Ok((File::open(Path::new(OWN).join(name))?, *flag));
    let home: io::Result<Vec<_>> = kinds.iter().map(home).collect();
    let home = home.map_err(|error| System::at(OWN, error))?;
    go().map_err(|error| System::at("cannot enter a namespace", error))?;
    Ok(home)
}

fn come_back(home: Vec<(File, CloneFlags)>) {
    for (file, flag) in home {
        // What comes next would change another namespace than the host's.
        setns(file, flag).expect("this process may return to where it was");
    }
}

/// Raises the loopback interface of the present network namespace; the kernel gives it its
/// addresses.
pub(super) fn raise_loopback() -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    name[0] = b'l' as libc::c_char;
    name[1] = b'o' as libc::c_char;
    let ifru_flags = libc::IFF_UP as libc::c_short;
    let request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags } };
    // SAFETY: the socket is open, and the kernel reads one ifreq, whose name ends with a zero.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// netdevice(7): the same number on all targets of edged.
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;

pub(super) const OWN: &str = "/proc/thread-self/ns";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn whoever_was_away_is_home_again() {
        let own = |(name, _): Kind| fs::read_link(Path::new(OWN).join(name)).expect("it is there");
        let before = [NET, IPC, UTS].map(own);
        let there = in_new(&[NET, IPC, UTS], || [NET, IPC, UTS].map(own)).expect("root may");
        assert!(before.iter().zip(&there).all(|(here, there)| here != there));
        assert_eq!([NET, IPC, UTS].map(own), before);
        let devices = in_new(&[NET], || fs::read_to_string("/proc/thread-self/net/dev"));
        let devices = devices.expect("root may").expect("it is there");
        assert_eq!(devices.lines().count(), 3, "two heads and lo: {devices}");
        let nowhere = inside(NET, Path::new("/nowhere"), || ());
        assert!(nowhere.is_err_and(|why| why.to_string().contains("No such file")));
    }
}
