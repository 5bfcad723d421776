//! Connections of pods to a Service that has one endpoint, without this process between them: when
//! a pod connects to the ClusterIP, the kernel puts the endpoint's address in its place, and the
//! bytes never pass here. A program of the type `BPF_PROG_TYPE_CGROUP_SOCK_ADDR` at the cgroup of
//! all pods does that (kernel 5.7 with `CONFIG_CGROUP_BPF`, cgroup v2 or the hierarchy beside v1).
//!
//! ```text
//!  connect(10.96.0.7:80) ─▶ rows: 10.96.0.7:80 → 10.88.0.5:8080 ─▶ connect(10.88.0.5:8080)
//!                            └ none: as it was asked for, to this process's listener
//! ```
//!
//! Only for endpoints that are pods of this node, which all its pods reach. With several endpoints
//! this process chooses, tries the next one, and keeps clients with theirs. Where the kernel or the
//! machine has no such thing, it serves all connections.
//!
//! **If we crash** the kernel removes the program with our last descriptor.

use std::fs::File;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::limits::{SERVICE_ROWS_LOCKED_BYTES, SERVICE_ROWS_MAX};
use crate::model::map::Map;
use crate::model::service::{EntryKind, Protocol, ServiceEntry};

#[derive(Debug, Default)]
pub(super) struct Direct {
    /// The folders that may be the pods' cgroup; `None`: they have none in common.
    folders: Option<[PathBuf; 2]>,
    loaded: Option<Loaded>,
    /// Those that the kernel has.
    rows: Map<Row, Row>,
    /// Why the kernel does not do it, as it was logged.
    why: String,
}

/// What the kernel has, until it is dropped.
#[derive(Debug)]
struct Loaded {
    rows: OwnedFd,
    count: OwnedFd,
    /// They keep the programs.
    _links: [OwnedFd; 2],
    /// Device and inode of the cgroup.
    cgroup: (u64, u64),
}

/// An address as the program compares and writes it: four bytes of `user_ip4`, four of `user_port`,
/// both in network order.
type Row = [u8; 8];

impl Direct {
    /// `pods`: the path of the cgroup of all pods; empty: there is none.
    pub(super) fn set(&mut self, pods: &str) {
        let below = pods.trim_start_matches('/');
        let folder = |top: &str| Path::new(top).join(below);
        self.folders = (!below.is_empty()).then(|| TOPS.map(folder));
    }

    /// Gives the kernel the rows of this table.
    pub(super) fn apply(&mut self, table: &[Arc<ServiceEntry>]) {
        let Some(folders) = self.folders.clone() else { return self.close() };
        if let Err(why) = self.attach(&folders) {
            self.close();
            if self.why != why {
                log::info!("services: all connections pass through this process: {why}");
                self.why = why;
            }
            return;
        }
        self.why.clear();
        let Some(loaded) = &self.loaded else { return };
        let wanted = rows(table);
        let gone: Vec<Row> =
            self.rows.keys().filter(|at| !wanted.contains_key(*at)).copied().collect();
        for at in gone {
            // What is not there is as it should be.
            let _ = loaded.remove(&at);
            self.rows.remove(&at);
        }
        for (at, to) in wanted {
            if self.rows.get(&at) == Some(&to) {
                continue;
            }
            match loaded.put(&at, &to) {
                Ok(()) => _ = self.rows.insert(at, to),
                Err(errno) => {
                    // Connections pass through this process.
                    let _ = loaded.remove(&at);
                    self.rows.remove(&at);
                    log::debug!("services: a row was not taken: {}", errno.desc());
                }
            }
        }
    }

    /// The kernel does nothing more.
    pub(super) fn close(&mut self) {
        self.loaded = None;
        self.rows.clear();
    }

    /// Connections that the kernel has led to their endpoint since it does. `None`: it does not.
    pub(super) fn count(&self) -> Option<u64> {
        let loaded = self.loaded.as_ref()?;
        let (at, mut value) = (0_u32, 0_u32);
        let (at, value_at) = (&raw const at as u64, &raw mut value as u64);
        let words = [loaded.count.as_raw_fd() as u64, at, value_at, 0];
        // SAFETY: the map has a key and a value of four bytes, and both live until it returns.
        #[expect(unsafe_code, reason = "the kernel writes where it is told")]
        let got = unsafe { bpf(LOOKUP, &words) };
        got.ok().map(|_| value.into())
    }

    /// Loads the program at the pods' cgroup, unless it is there. The cgroup comes with the first
    /// pod, and is another one when it was removed meanwhile.
    fn attach(&mut self, folders: &[PathBuf; 2]) -> Result<(), String> {
        let Some(folder) = folders.iter().find_map(|path| File::open(path).ok()) else {
            let [alone, beside] = folders.each_ref().map(|path| path.display());
            return Err(format!("there is no cgroup {alone} or {beside} yet"));
        };
        let told = folder.metadata().map_err(|error| error.to_string())?;
        let cgroup = (told.dev(), told.ino());
        if self.loaded.as_ref().is_some_and(|it| it.cgroup == cgroup) {
            return Ok(());
        }
        self.close();
        let loaded = Loaded::new(&folder, cgroup);
        self.loaded = Some(loaded.map_err(|(what, errno)| format!("{what}: {}", errno.desc()))?);
        log::info!("services: pods connect to single endpoints directly");
        Ok(())
    }
}

impl Loaded {
    fn new(folder: &File, cgroup: (u64, u64)) -> Result<Self, (&'static str, Errno)> {
        // Before kernel 5.11 maps count as locked memory, of which there may be too little.
        let _ = setrlimit(
            Resource::RLIMIT_MEMLOCK,
            SERVICE_ROWS_LOCKED_BYTES,
            SERVICE_ROWS_LOCKED_BYTES,
        );
        let map = |kind, key, value, rows, flags| {
            // SAFETY: the words contain no address.
            #[expect(unsafe_code, reason = "the call may also be told to write")]
            unsafe {
                open(MAP_CREATE, &[pair(kind, key), pair(value, rows), flags])
            }
        };
        let size = size_of::<Row>() as u32;
        let rows = map(MAP_HASH, size, size, SERVICE_ROWS_MAX as u32, MAP_NO_PREALLOC)
            .map_err(|errno| ("BPF map", errno))?;
        let count = map(MAP_ARRAY, 4, 4, 1, 0).map_err(|errno| ("BPF map", errno))?;
        let link = |attach| led(attach, folder, &rows, &count);
        let links = [link(CONNECT4)?, link(CONNECT6)?];
        Ok(Self { rows, count, _links: links, cgroup })
    }

    fn put(&self, at: &Row, to: &Row) -> Result<(), Errno> {
        let words = [self.rows.as_raw_fd() as u64, at.as_ptr() as u64, to.as_ptr() as u64, 0];
        // SAFETY: both have the sizes of the map's keys and values and live until it returns.
        #[expect(unsafe_code, reason = "the kernel is given addresses")]
        unsafe { bpf(UPDATE, &words) }.map(drop)
    }

    fn remove(&self, at: &Row) -> Result<(), Errno> {
        let words = [self.rows.as_raw_fd() as u64, at.as_ptr() as u64];
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "the kernel is given an address")]
        unsafe { bpf(DELETE, &words) }.map(drop)
    }
}

/// Loads the program for one kind of address, and links it to the cgroup.
fn led(
    attach: u32,
    folder: &File,
    rows: &OwnedFd,
    count: &OwnedFd,
) -> Result<OwnedFd, (&'static str, Errno)> {
    let code = program(attach, rows, count);
    let license = c"Apache-2.0";
    let words = [
        pair(PROGRAM_KIND, code.len() as u32),
        code.as_ptr() as u64,
        license.as_ptr() as u64,
        // No log, no name, no flags, no device.
        0,
        0,
        0,
        0,
        0,
        pair(0, attach),
    ];
    // SAFETY: code and license live until it returns, and the kernel only reads them.
    #[expect(unsafe_code, reason = "the kernel is given addresses")]
    let program = unsafe { open(PROGRAM_LOAD, &words) };
    let program = program.map_err(|errno| ("BPF program", errno))?;
    let [program_fd, folder_fd] = [program.as_raw_fd(), folder.as_raw_fd()];
    let words = [pair(program_fd as u32, folder_fd as u32), pair(attach, 0)];
    // SAFETY: the words contain no address.
    #[expect(unsafe_code, reason = "the call may also be told to write")]
    let link = unsafe { open(LINK_CREATE, &words) };
    link.map_err(|errno| ("BPF link at the pods' cgroup", errno))
}

/// Where cgroups of version 2 are: alone, or beside those of version 1.
const TOPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Each TCP port of a Service that leads to one pod of this node.
fn rows(table: &[Arc<ServiceEntry>]) -> Map<Row, Row> {
    let mut rows = Map::new();
    for service in table.iter().filter(|it| it.of_pods) {
        let EntryKind::Cluster(ip) = service.kind else { continue };
        for (at, port) in service.ports.iter().enumerate() {
            let number = |ports: &[u16]| ports.get(at).copied().filter(|number| *number > 0);
            let mut able =
                service.endpoints.iter().filter_map(|it| Some((it.ip, number(&it.ports)?)));
            let (Some((to, number)), None) = (able.next(), able.next()) else { continue };
            // A pod's own loopback is not the node's.
            if port.protocol != Protocol::Tcp || to.is_loopback() || rows.len() == SERVICE_ROWS_MAX
            {
                continue;
            }
            // Of two Services with one address the first one has it.
            rows.entry(row(SocketAddrV4::new(ip, port.port)))
                .or_insert_with(|| row(SocketAddrV4::new(to, number)));
        }
    }
    rows
}

fn row(address: SocketAddrV4) -> Row {
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    [a, b, c, d, high, low, 0, 0]
}

/// Instructions as `struct bpf_insn` has them, little-endian. What the program is given is `struct
/// bpf_sock_addr` (linux/bpf.h).
fn program(attach: u32, rows: &OwnedFd, count: &OwnedFd) -> Vec<u64> {
    const PORT: u16 = 24;
    const PROTOCOL: u16 = 36;
    // An IPv4 address in an IPv6 one (RFC 4291, section 2.5.5.2) is its last word.
    let (ip, rest) = match attach {
        CONNECT6 => (20, &[(8, 0), (12, 0), (16, 0xffff_u32.to_be())][..]),
        _ => (4, &[][..]),
    };
    // Code, target and source register, offset, number.
    let op = |code: u8, to: u8, from: u8, offset: u16, number: u32| {
        u64::from(code)
            | u64::from(to | from << 4) << 8
            | u64::from(offset) << 16
            | u64::from(number) << 32
    };
    let copy = |to, from| op(0xbf, to, from, 0, 0);
    let load = |to, from, offset| op(0x61, to, from, offset, 0);
    let store = |to, offset, from| op(0x63, to, from, offset, 0);
    let set = |to, number| op(0xb7, to, 0, 0, number);
    let stack = |bytes: u16| bytes.wrapping_neg();
    let [rows, count] = [rows, count].map(|fd| fd.as_raw_fd() as u32);
    let lead = [
        load(2, 1, ip),
        store(10, stack(8), 2),
        load(2, 1, PORT),
        store(10, stack(4), 2),
        // The map, by two instructions.
        op(0x18, 1, 1, 0, rows),
        0,
        copy(2, 10),
        op(0x07, 2, 0, 0, 8_u32.wrapping_neg()),
        // bpf_map_lookup_elem; no row: to the end.
        op(0x85, 0, 0, 0, 1),
        op(0x15, 0, 0, 8, 0),
        load(2, 0, 0),
        store(6, ip, 2),
        load(2, 0, 4),
        store(6, PORT, 2),
        // The address of the only value of the other map, by two instructions.
        op(0x18, 1, 2, 0, count),
        0,
        set(2, 1),
        // Add, atomically.
        op(0xc3, 1, 2, 0, 0),
    ];
    let mut code = vec![copy(6, 1)];
    let checks = [(PROTOCOL, libc::IPPROTO_TCP as u32)];
    let checks = checks.iter().chain(rest);
    let mut after = 2 * (1 + rest.len() as u16) + lead.len() as u16;
    for (offset, number) in checks {
        after -= 2;
        // Something else: to the end.
        code.extend([load(2, 1, *offset), op(0x56, 2, 0, after, *number)]);
    }
    code.extend(lead);
    // 1: the call goes on.
    code.extend([set(0, 1), op(0x95, 0, 0, 0, 0)]);
    code
}

// Commands, kinds and flags of bpf(2).
const MAP_CREATE: u32 = 0;
const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
const PROGRAM_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const MAP_HASH: u32 = 1;
const MAP_ARRAY: u32 = 2;
const MAP_NO_PREALLOC: u64 = 1;
const PROGRAM_KIND: u32 = 18;
const CONNECT4: u32 = 10;
const CONNECT6: u32 = 11;

/// Two numbers of `union bpf_attr` in one word.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// bpf(2); `words` is the beginning of `union bpf_attr`.
///
/// # Safety
/// Addresses in `words` are as the command demands, and live until it returns.
#[expect(unsafe_code, reason = "nix does not have it")]
unsafe fn bpf(command: u32, words: &[u64]) -> Result<i32, Errno> {
    // SAFETY: the kernel reads `words` alone, and what the caller vouches for.
    let got = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(words)) };
    Errno::result(got).map(|got| got as i32)
}

/// A command that returns a descriptor, which is closed on exec.
///
/// # Safety
/// As of [`bpf`].
#[expect(unsafe_code, reason = "a descriptor that nobody owns yet")]
unsafe fn open(command: u32, words: &[u64]) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller vouches for the words; the descriptor is new.
    unsafe { bpf(command, words).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::model::service::{Endpoint, EntryPort};

    fn entry(number: u8, ports: &[(Protocol, u16)], endpoints: &[&[u16]]) -> ServiceEntry {
        let port = |&(protocol, port): &(Protocol, u16)| EntryPort {
            name: "".into(),
            protocol,
            port,
            node_port: 0,
        };
        let endpoint = |(at, ports): (usize, &&[u16])| Endpoint {
            ip: Ipv4Addr::new(10, 88, 0, at as u8),
            hostname: "".into(),
            ports: ports.to_vec(),
        };
        ServiceEntry {
            namespace: "ns".into(),
            name: number.to_string().into(),
            kind: EntryKind::Cluster(Ipv4Addr::new(10, 96, 0, number)),
            ports: ports.iter().map(port).collect(),
            endpoints: endpoints.iter().enumerate().map(endpoint).collect(),
            affinity_s: 0,
            of_pods: true,
        }
    }

    #[test]
    fn a_port_with_one_pod_has_a_row() {
        use Protocol::{Tcp, Udp};
        let loopback = |mut entry: ServiceEntry| {
            entry.endpoints[0].ip = Ipv4Addr::LOCALHOST;
            entry
        };
        let written = ServiceEntry { of_pods: false, ..entry(5, &[(Tcp, 80)], &[&[8_080]]) };
        let headless =
            ServiceEntry { kind: EntryKind::Headless, ..entry(6, &[(Tcp, 80)], &[&[8_080]]) };
        let table = [
            entry(1, &[(Tcp, 80), (Udp, 53), (Tcp, 443)], &[&[8_080, 53, 8_443]]),
            entry(2, &[(Tcp, 80)], &[&[8_080], &[8_080]]),
            entry(3, &[(Tcp, 80)], &[]),
            // The second one has no port of this name.
            entry(4, &[(Tcp, 80)], &[&[0x1f91], &[0]]),
            written,
            headless,
            loopback(entry(7, &[(Tcp, 80)], &[&[8_080]])),
            ServiceEntry { name: "later".into(), ..entry(1, &[(Tcp, 80)], &[&[1]]) },
        ];
        let rows = rows(&table.map(Arc::new));
        let want = [
            ([10, 96, 0, 1, 0, 80, 0, 0], [10, 88, 0, 0, 0x1f, 0x90, 0, 0]),
            ([10, 96, 0, 1, 1, 187, 0, 0], [10, 88, 0, 0, 0x20, 0xfb, 0, 0]),
            ([10, 96, 0, 4, 0, 80, 0, 0], [10, 88, 0, 0, 0x1f, 0x91, 0, 0]),
        ];
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn rows_have_a_bound() {
        let ports: Vec<_> =
            (1..=SERVICE_ROWS_MAX as u16 + 1).map(|it| (Protocol::Tcp, it)).collect();
        let targets = vec![9; ports.len()];
        assert_eq!(rows(&[Arc::new(entry(1, &ports, &[&targets]))]).len(), SERVICE_ROWS_MAX);
        // A row and its place in the kernel have 100 bytes or so.
        const { assert!(SERVICE_ROWS_LOCKED_BYTES > 200 * SERVICE_ROWS_MAX as u64) }
    }
}
