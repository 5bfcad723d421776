//! A link that holds addresses of our own, which pods and the host reach without any rule of
//! netfilter: `edgemesh0` with the address of the DNS responder and those of all Services
//! (edgemesh.md, section 14.3, way B), and `edge-dummy0` with that of MetaServer (metaserver.md,
//! section 2).
//!
//! It is a dummy, or a bridge without ports where the kernel has no dummy: both only hold
//! addresses. A link of this name that somebody else has made (it lacks our description) gets our
//! addresses and loses only them; ours is removed when it is not needed any more.
//!
//! **If we crash here** the link stays with its addresses, and the next process takes it over.

use std::fmt;
#[cfg(any(test, feature = "services"))]
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::model::map::Set;
use crate::wire::rtnetlink::{Reply, Request, replies};

/// That of Services: EdgeMesh's name, which existing files and habits have.
#[cfg(feature = "services")]
pub const SERVICES: Name = Name { name: "edgemesh0", alias: "edged services" };
/// That of MetaServer: EdgeCore's name.
#[cfg(feature = "metaserver-auth")]
pub const METASERVER: Name = Name { name: "edge-dummy0", alias: "edged metaserver" };
const KINDS: [&str; 2] = ["dummy", "bridge"];

/// The names of a link.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub name: &'static str,
    /// The description of a link that is ours (`ip link show`).
    alias: &'static str,
}

#[derive(Debug)]
pub(super) struct Link {
    name: &'static str,
    alias: &'static str,
    serial: u32,
    /// Those that this process has set.
    set: Set<Ipv4Addr>,
}

/// What could not be done, for a person.
#[derive(Debug)]
pub(super) struct Fault {
    what: &'static str,
    about: String,
    errno: Errno,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.about, self.errno.desc())
    }
}

struct Found {
    index: u32,
    is_up: bool,
    is_ours: bool,
}

impl Link {
    pub(super) fn new(name: Name) -> Self {
        Self { name: name.name, alias: name.alias, serial: 0, set: Set::new() }
    }

    /// Makes the link have these addresses; what it has of others' stays.
    pub(super) fn hold(&mut self, wanted: &Set<Ipv4Addr>) -> Result<(), Fault> {
        let socket = open().map_err(|errno| fault("open", "netlink", errno))?;
        let found = match self.find(&socket)? {
            Some(found) => found,
            None => self.make(&socket)?,
        };
        let index = found.index;
        if !found.is_up {
            self.ask(&socket, "raise", &Request::RaiseLink { index, alias: None })?;
        }
        let has = self.addresses(&socket, index)?;
        for ip in wanted.iter().filter(|ip| !has.contains(*ip)) {
            self.ask_about(&socket, "set", *ip, &Request::AddAddress { index, ip: *ip })?;
            self.set.insert(*ip);
        }
        for ip in has.iter().filter(|ip| !wanted.contains(*ip)) {
            if found.is_ours || self.set.contains(ip) {
                self.ask_about(&socket, "remove", *ip, &Request::DeleteAddress { index, ip: *ip })?;
                self.set.remove(ip);
            }
        }
        self.set.extend(wanted.iter().filter(|_| found.is_ours).copied());
        Ok(())
    }

    /// Whether somebody else has made a link of this name.
    #[cfg(feature = "services")]
    pub(super) fn is_of_another(&mut self) -> bool {
        let found = open().ok().and_then(|socket| self.find(&socket).ok().flatten());
        found.is_some_and(|found| !found.is_ours)
    }

    /// Removes the link if it is ours, else our addresses.
    pub(super) fn remove(&mut self) -> Result<(), Fault> {
        let socket = open().map_err(|errno| fault("open", "netlink", errno))?;
        let Some(found) = self.find(&socket)? else { return Ok(()) };
        let index = found.index;
        if found.is_ours {
            return self.ask(&socket, "remove", &Request::DeleteLink { index });
        }
        for ip in std::mem::take(&mut self.set) {
            self.ask_about(&socket, "remove", ip, &Request::DeleteAddress { index, ip })?;
        }
        Ok(())
    }

    fn make(&mut self, socket: &OwnedFd) -> Result<Found, Fault> {
        let mut last = Errno::EOPNOTSUPP;
        for kind in KINDS {
            match self.acked(socket, &Request::AddLink { name: self.name, kind }) {
                Ok(()) => {
                    let Some(mut found) = self.find(socket)? else { break };
                    let index = found.index;
                    self.ask(
                        socket,
                        "raise",
                        &Request::RaiseLink { index, alias: Some(self.alias) },
                    )?;
                    (found.is_up, found.is_ours) = (true, true);
                    return Ok(found);
                }
                Err(errno) => last = errno,
            }
            if last != Errno::EOPNOTSUPP {
                break;
            }
        }
        Err(fault("make the link", self.name, last))
    }

    fn find(&mut self, socket: &OwnedFd) -> Result<Option<Found>, Fault> {
        let (name, own) = (self.name, self.alias);
        let answers = self.answers(socket, &Request::FindLink { name });
        let found = answers.map_err(|errno| fault("find the link", name, errno))?;
        Ok(found.into_iter().find_map(|reply| match reply {
            Reply::Link { index, is_up, alias, .. } => {
                Some(Found { index, is_up, is_ours: *alias == *own })
            }
            _ => None,
        }))
    }

    fn addresses(&mut self, socket: &OwnedFd, index: u32) -> Result<Set<Ipv4Addr>, Fault> {
        let answers = self.answers(socket, &Request::Addresses);
        let all = answers.map_err(|errno| fault("list", "addresses", errno))?;
        let of_link = all.into_iter().filter_map(|reply| match reply {
            Reply::Address { index: on, ip } if on == index => Some(ip),
            _ => None,
        });
        Ok(of_link.collect())
    }

    fn ask(
        &mut self,
        socket: &OwnedFd,
        what: &'static str,
        request: &Request<'_>,
    ) -> Result<(), Fault> {
        self.acked(socket, request).map_err(|errno| fault(what, self.name, errno))
    }

    fn ask_about(
        &mut self,
        socket: &OwnedFd,
        what: &'static str,
        ip: Ipv4Addr,
        request: &Request<'_>,
    ) -> Result<(), Fault> {
        match self.acked(socket, request) {
            // Somebody was faster: it is as it should be.
            Ok(()) | Err(Errno::EEXIST | Errno::EADDRNOTAVAIL) => Ok(()),
            Err(errno) => Err(fault(what, &format!("{ip} on {}", self.name), errno)),
        }
    }

    fn acked(&mut self, socket: &OwnedFd, request: &Request<'_>) -> Result<(), Errno> {
        self.answers(socket, request).map(drop)
    }

    /// The kernel answers at once; the time limit of the socket is for what nobody expects.
    fn answers(&mut self, socket: &OwnedFd, request: &Request<'_>) -> Result<Vec<Reply>, Errno> {
        self.serial += 1;
        send(socket.as_raw_fd(), &request.encode(self.serial), MsgFlags::empty())?;
        let mut found = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let bytes = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            let ours = replies(&buffer[..bytes]).into_iter();
            for (_, reply) in ours.filter(|(serial, _)| *serial == self.serial) {
                match reply {
                    Reply::Ack(0) | Reply::Done => return Ok(found),
                    Reply::Ack(errno) if Errno::from_raw(errno) == Errno::ENODEV => {
                        return Ok(found);
                    }
                    Reply::Ack(errno) => return Err(Errno::from_raw(errno)),
                    Reply::Link { .. } if matches!(request, Request::FindLink { .. }) => {
                        found.push(reply);
                        return Ok(found);
                    }
                    reply => found.push(reply),
                }
            }
        }
    }
}

fn fault(what: &'static str, about: &str, errno: Errno) -> Fault {
    Fault { what, about: about.to_owned(), errno }
}

/// What the kernel puts into one read at the most (`NLMSG_GOODSIZE`).
const READ_BYTES: usize = 32 << 10;

fn open() -> Result<OwnedFd, Errno> {
    let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
    let socket = socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
    Ok(socket)
}

/// Whether the link exists on this machine.
#[cfg(any(test, feature = "services"))]
pub fn exists(name: Name) -> io::Result<bool> {
    let found =
        Link::new(name).find(&open()?).map_err(|fault| io::Error::other(fault.to_string()))?;
    Ok(found.is_some())
}
