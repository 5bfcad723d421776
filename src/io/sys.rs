//! Reads what the machine is: its addresses, name, memory and cores. Quick reads of the kernel's
//! files; nothing is stored or changed.

#[cfg(feature = "cloud")]
mod identity;
mod memory;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
#[cfg(any(feature = "cloud", feature = "probes", feature = "services"))]
use std::path::PathBuf;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use crate::agent::Machine;
use crate::limits::RESOLV_CONF_BYTES_MAX;
use crate::model::cgroup::{Cgroups, Hierarchy, Settings};
use crate::model::cri::Dns;
use crate::model::error::System;
use crate::wire::resolv;

/// Raises the limit of open descriptors of this process to its hard limit.
#[cfg(any(feature = "controller", feature = "runtime", feature = "services"))]
pub fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        log::warn!("cannot raise the limit of open descriptors: {error}");
    }
}

/// Lifts the bound of memory that `edged-run` sets for each process: it is a soft one.
#[cfg(feature = "runtime")]
pub fn lift_memory_bound() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // It is never refused up to the hard one.
    let _ = getrlimit(Resource::RLIMIT_DATA)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_DATA, hard, hard));
}

/// Keeps the memory of this process, with tokens and keys, out of core files and from other
/// processes of its user. Programs that it starts inherit the limit on core files only.
pub fn guard_memory() {
    use nix::sys::prctl::set_dumpable;
    use nix::sys::resource::{Resource, setrlimit};
    // Neither call is refused to any user; and the agent works without them.
    let _ = set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Makes the root directory if it is absent: for its owner and group alone, as the kubelet's.
pub fn make_root(path: &Path) -> Result<(), System> {
    let failed = |error: io::Error| System::at(format_args!("mkdir {}", path.display()), error);
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o750).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !path.is_dir() => {
            Err(failed(error))
        }
        _ => Ok(()),
    }
}

/// The file in `dir` that an agent has for this purpose and its root directory, which is named by
/// device and inode. `None`: the root directory cannot be read.
#[cfg(any(feature = "cloud", feature = "probes", feature = "services"))]
pub fn file_of_root(dir: &Path, purpose: &str, root: &Path) -> Option<PathBuf> {
    let meta = fs::metadata(root).ok()?;
    Some(dir.join(format!("edged.{purpose}-{:x}-{:x}", meta.dev(), meta.ino())))
}

/// Reads a text file of the kernel. Only a name in it that is not UTF-8, such as the label of a
/// USB stick, is lost.
pub fn kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The node's addresses as text, the primary first, at most one of each family: those of the
/// interface that holds the default route, else of the first one with a global address, else
/// loopback. `wanted` (configuration `nodeIP`) comes first if it is given.
pub fn addresses(wanted: Option<IpAddr>) -> Vec<String> {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    choose(wanted, &interfaces(), default_interface(&routes))
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Memory, cores and the kernel's features. A file that cannot be read counts as 0 bytes, one core,
/// the oldest kernel, no AppArmor.
pub fn machine(root: &str) -> Machine {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cores = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let apparmor = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    let cores = cores_of(&cores);
    Machine {
        memory_bytes: memory_bytes(&memory),
        cpu_milli: cores * 1_000,
        pids_max: pids_max(),
        storage_bytes: storage_bytes(Path::new(root)),
        budget: memory::budget(memory_bytes(&memory)),
        kernel: version_of(&release),
        apparmor: apparmor.is_ok_and(|enabled| enabled.starts_with('Y')),
        thermal_paths: (0..cores)
            .map(|core| format!("/sys/devices/system/cpu/cpu{core}/thermal_throttle"))
            .filter(|path| Path::new(path).is_dir())
            .collect(),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        #[cfg(feature = "cloud")]
        identity: identity::read(),
        cgroups: cgroups(),
    }
}

/// The lower of the kernel's two bounds.
fn pids_max() -> u64 {
    let bounds = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let texts = bounds.into_iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.filter_map(|text| text.trim().parse().ok()).min().unwrap_or(0)
}

/// Folders `hugepages-2048kB` with a file `nr_hugepages`.
fn huge_pages(folder: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_size = |entry: fs::DirEntry| {
        let page_bytes = huge_page_bytes(entry.file_name().to_str()?)?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let count: u64 = count.trim().parse().ok()?;
        Some((page_bytes, page_bytes.checked_mul(count)?))
    };
    entries.filter_map(of_size).collect()
}

/// Where the kernel mounts its cgroups.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// The parent cgroup of the pods' cgroups, as the hierarchy's device and inode and the path in it.
/// `None`: the agent makes no cgroups for pods.
pub fn cgroup_root(settings: &Settings) -> Option<String> {
    let top = match cgroups().hierarchy {
        Hierarchy::V1 => Path::new(CGROUPS).join("memory"),
        Hierarchy::V2 => CGROUPS.into(),
        Hierarchy::None => return None,
    };
    let meta = fs::metadata(top).ok().filter(|_| settings.per_qos)?;
    Some(format!("/{} of {}:{}", settings.root.join("/"), meta.dev(), meta.ino()))
}

/// Which cgroups this process can make, and which controllers limit what.
pub fn cgroups() -> Cgroups {
    let (top, memory) = (Path::new(CGROUPS), Path::new(CGROUPS).join("memory"));
    let is = |path: &Path, kind| statfs(path).is_ok_and(|stat| stat.filesystem_type() == kind);
    let open = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    let (hierarchy, swap) = if is(top, CGROUP2_SUPER_MAGIC) && open(top) {
        // The root cgroup has none of these files.
        let below = fs::read_dir(top).into_iter().flatten().flatten();
        (
            Hierarchy::V2,
            below.map(|entry| entry.path()).any(|path| path.join("memory.swap.max").exists()),
        )
    } else if is(&memory, CGROUP_SUPER_MAGIC) && open(&memory) {
        (Hierarchy::V1, memory.join("memory.memsw.limit_in_bytes").exists())
    } else {
        (Hierarchy::None, false)
    };
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut huge_pages: Vec<u64> =
        sizes.filter_map(|entry| huge_page_bytes(entry.file_name().to_str()?)).collect();
    huge_pages.sort_unstable();
    Cgroups { hierarchy, swap, huge_pages }
}

/// `hugepages-2048kB` is 2 MiB.
fn huge_page_bytes(name: &str) -> Option<u64> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1_024)
}

/// The user that this process runs as; `None`: root.
pub fn unprivileged() -> Option<u32> {
    let uid = nix::unistd::geteuid();
    (!uid.is_root()).then_some(uid.as_raw())
}

/// The kernel's host name, trimmed and in lower case, as the kubelet names a node.
pub fn hostname() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let name = name.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Name and address of every interface that is up.
fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    all.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            Some((interface.interface_name, v4.or_else(v6)?))
        })
        .collect()
}

fn choose(wanted: Option<IpAddr>, all: &[(String, IpAddr)], default: Option<&str>) -> Vec<IpAddr> {
    let global = || all.iter().filter(|(_, address)| is_global(*address));
    // A pod bridge has global addresses as well, and after a restart it is up before the uplink.
    let uplink = default
        .filter(|name| global().any(|(of, _)| of == name))
        .or_else(|| global().find(|(of, _)| !is_bridge(of)).map(|(of, _)| of.as_str()))
        .or_else(|| global().next().map(|(of, _)| of.as_str()));
    let mut chosen: Vec<IpAddr> = wanted.into_iter().collect();
    let of_uplink = || global().filter(|(of, _)| Some(of.as_str()) == uplink).map(|(_, ip)| *ip);
    for ip in of_uplink().filter(IpAddr::is_ipv4).chain(of_uplink().filter(IpAddr::is_ipv6)) {
        if !chosen.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
            chosen.push(ip);
        }
    }
    if chosen.is_empty() {
        chosen.extend(all.iter().map(|(_, ip)| *ip).find(IpAddr::is_loopback));
    }
    chosen
}

/// The prefixes of the bridges that CNI plugins and Docker create.
fn is_bridge(name: &str) -> bool {
    ["cni", "docker", "br-", "virbr", "veth", "flannel", "cali"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Reachable from elsewhere: neither loopback nor link-local.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()),
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unicast_link_local() || old_site_local(ip)),
    }
}

/// fec0::/10, withdrawn by RFC 3879.
fn old_site_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfec0
}

/// The interface of the default route with the lowest metric, out of `/proc/net/route`: columns
/// Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask.
fn default_interface(routes: &str) -> Option<&str> {
    routes
        .lines()
        .skip(1)
        .filter_map(|line| {
            let column: Vec<&str> = line.split_ascii_whitespace().collect();
            let default = column.get(1)? == &"00000000" && column.get(7)? == &"00000000";
            default.then_some((column.get(6)?.parse::<u32>().ok()?, column[0]))
        })
        .min_by_key(|(metric, _)| *metric)
        .map(|(_, name)| name)
}

fn memory_bytes(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map_or(0, |kib: u64| kib * 1_024)
}

/// Of the file system that the folder is on, or will be.
#[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
fn storage_bytes(folder: &Path) -> u64 {
    let there = folder.ancestors().find(|path| path.exists());
    let stat = there.and_then(|path| statvfs(path).ok());
    stat.map_or(0, |stat| (stat.blocks() as u64).saturating_mul(stat.fragment_size() as u64))
}

/// The host's `resolv.conf`; empty if it cannot be read.
pub fn resolver(path: &str) -> Dns {
    let file = fs::File::open(path).map(|file| file.take(RESOLV_CONF_BYTES_MAX));
    let mut text = Vec::new();
    let read = file.and_then(|mut file| file.read_to_end(&mut text));
    match read {
        Ok(_) => resolv::parse(&String::from_utf8_lossy(&text)),
        Err(_) => Dns::default(),
    }
}

/// `6.1.0-18-arm64` is (6, 1).
fn version_of(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// `0-3,6` is five.
fn cores_of(online: &str) -> u64 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    online.trim().split(',').filter_map(count).sum::<u64>().max(1)
}

/// What images this machine runs.
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
pub fn image_machine() -> crate::wire::oci::manifest::Machine {
    let kernel = nix::sys::utsname::uname().ok();
    let kernel = kernel.as_ref().and_then(|name| name.machine().to_str()).unwrap_or_default();
    image_machine_of(std::env::consts::ARCH, kernel)
}

/// Of this program's architecture in Rust's words, and the kernel's in its own.
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
pub(super) fn image_machine_of(
    program: &'static str,
    kernel: &str,
) -> crate::wire::oci::manifest::Machine {
    let version = |kernel: &str| {
        let digit = kernel.strip_prefix("armv")?.bytes().next()?;
        digit.is_ascii_digit().then(|| digit - b'0')
    };
    let (architecture, variant) = match program {
        "x86_64" => ("amd64", 0),
        "x86" => ("386", 0),
        "aarch64" => ("arm64", 8),
        // A kernel of 64 bits calls itself aarch64.
        "arm" => ("arm", version(kernel).unwrap_or(8)),
        other => (other, 0),
    };
    crate::wire::oci::manifest::Machine { architecture, variant }
}

/// Opens a file that the operator named.
pub fn open(path: impl AsRef<Path>) -> io::Result<fs::File> {
    fs::File::open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    #[test]
    fn what_is_in_memory_is_kept_from_others() {
        use nix::sys::prctl::get_dumpable;
        use nix::sys::resource::{Resource, getrlimit};
        guard_memory();
        assert_eq!(get_dumpable(), Ok(false));
        assert_eq!(getrlimit(Resource::RLIMIT_CORE), Ok((0, 0)));
    }

    #[test]
    fn a_new_root_directory_is_not_for_everybody() {
        let top = std::env::temp_dir().join(format!("edged-root.{}", std::process::id()));
        let root = top.join("deep/kubelet");
        make_root(&root).expect("it can be made");
        make_root(&root).expect("it is there");
        let mode = fs::metadata(&root).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        fs::write(top.join("file"), "").expect("a file of ours");
        assert!(make_root(&top.join("file")).is_err(), "it is no folder");
        fs::remove_dir_all(&top).expect("it was made");
    }

    fn at(name: &str, address: &str) -> (String, IpAddr) {
        (name.to_owned(), address.parse().expect("an address"))
    }

    fn chosen(wanted: Option<&str>, all: &[(String, IpAddr)], default: Option<&str>) -> String {
        let wanted = wanted.map(|text| text.parse().expect("an address"));
        let chosen = choose(wanted, all, default);
        chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_a_long_resolv_conf_the_beginning_is_read() {
        let path = std::env::temp_dir().join(format!("edged-long-dns-{}", std::process::id()));
        let line = "\nnameserver 192.0.2.10";
        let servers = |beyond: u64| {
            let file = fs::File::create(&path).expect("a file of ours");
            let at = RESOLV_CONF_BYTES_MAX - line.len() as u64 + beyond;
            file.write_all_at(line.as_bytes(), at).expect("behind a hole");
            resolver(path.to_str().expect("UTF-8")).servers
        };
        assert_eq!(servers(0), ["192.0.2.10"]);
        assert_eq!(servers(1), ["192.0.2.1"], "its last byte is beyond the bound");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn the_interface_of_the_default_route_gives_the_addresses() {
        let all = [
            at("lo", "127.0.0.1"),
            at("cni0", "10.88.0.1"),
            at("eth0", "192.168.1.4"),
            at("wwan0", "10.20.0.7"),
            at("wwan0", "fe80::1"),
            at("wwan0", "2001:db8::7"),
        ];
        assert_eq!(chosen(None, &all, Some("wwan0")), "10.20.0.7 2001:db8::7");
        assert_eq!(chosen(None, &all, None), "192.168.1.4");
        assert_eq!(chosen(None, &all, Some("gone0")), "192.168.1.4");
        assert_eq!(chosen(None, &all[..2], None), "10.88.0.1");
        assert_eq!(chosen(None, &all[..1], None), "127.0.0.1");
        assert_eq!(chosen(Some("172.16.0.9"), &all, Some("wwan0")), "172.16.0.9 2001:db8::7");
        assert_eq!(chosen(None, &[], None), "");
    }

    #[test]
    fn the_default_route_with_the_lowest_metric_counts() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            wwan0\t00000000\t0100000A\t0003\t0\t0\t700\t00000000\t0\t0\t0\n\
            eth0\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
        assert_eq!(default_interface(routes), Some("eth0"));
        assert_eq!(default_interface("Iface\n"), None);
        assert_eq!(default_interface(""), None);
    }

    #[test]
    fn memory_and_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(memory_bytes("MemTotal:         494000 kB\nMemFree: 1 kB\n"), 494_000 << 10);
        assert_eq!(memory_bytes("nothing"), 0);
        for (text, cores) in [("0-3\n", 4), ("0\n", 1), ("0-3,6\n", 5), ("", 1), ("3-1", 1)] {
            assert_eq!(cores_of(text), cores, "{text}");
        }
        assert!(machine("/").memory_bytes > 0 && machine("/nowhere/at/all").storage_bytes > 0);
        for (page_bytes, bytes) in machine("/").huge_pages {
            assert!(page_bytes.is_power_of_two() && bytes % page_bytes == 0);
        }
        assert!(machine("/").kernel > (3, 0), "{:?}", machine("/"));
        assert_eq!(version_of("6.1.0-18-arm64\n"), (6, 1));
        assert_eq!(version_of(""), (0, 0));
        for (name, bytes) in [("hugepages-2048kB", Some(2 << 20)), ("hugepages-x", None)] {
            assert_eq!(huge_page_bytes(name), bytes);
        }
    }
}
