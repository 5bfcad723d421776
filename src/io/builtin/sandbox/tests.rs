//! Sandboxes with the kernel's namespaces and, for the network of pods, Debian's CNI plugins in a
//! network namespace of the test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::io::builtin::layout::Layout;
use crate::io::mounts;
use crate::io::test_folder::TestFolder;
use crate::limits::HOLDER_READY_MS;
use crate::model::builtin::Registries;
use crate::model::cri::{Namespaces, PortMapping, Protocol};
use crate::model::runtime::{BootId, SandboxPhase};

/// Folders of one test; what it leaves is taken down.
struct Place {
    top: TestFolder,
    settings: Settings,
}

const PLUGINS: &str = "/usr/lib/cni";

impl Place {
    fn new(name: &str) -> Self {
        let top = TestFolder::new(&format!("sandbox-{name}"));
        let settings = Settings {
            layout: Layout::new(top.join("run"), top.join("data")),
            oci: PathBuf::new(),
            handlers: Vec::new(),
            cni_conf_dir: top.join("conf"),
            cni_bin_dir: top.join("bin"),
            registries: Registries::default(),
        };
        for folder in [&settings.cni_conf_dir, &settings.cni_bin_dir] {
            files::make_dir(folder).expect("a folder of ours");
        }
        let leases = top.join("leases");
        let list = include_str!("../../../../config/cni/10-edged.conflist")
            .replace("/run/edged/ipam", &leases.to_string_lossy())
            .replace("10.88.0.0/16", "10.213.0.0/29");
        fs::write(settings.cni_conf_dir.join("10-edged.conflist"), list).expect("ours");
        for plugin in ["bridge", "host-local", "portmap"] {
            let path = Path::new(PLUGINS).join(plugin);
            assert!(path.exists(), "{} is missing: see scripts/setup", path.display());
            symlink(path, settings.cni_bin_dir.join(plugin)).expect("a link of ours");
        }
        Self { top, settings }
    }

    /// In a network namespace of its own: bridges and rules are gone with it.
    fn alone<T>(&self, act: impl FnOnce(&Settings) -> T) -> T {
        namespace::in_new(&[NET], || act(&self.settings)).expect("root may")
    }

    fn leases(&self) -> Vec<String> {
        let entries = fs::read_dir(self.top.join("leases/edged")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<String> = names.filter(|name| name.starts_with("10.")).collect();
        all.sort();
        all
    }

    fn mounts(&self) -> usize {
        let table = mounts::table().expect("it is readable");
        table.lines().filter(|line| line.contains(&*self.top.to_string_lossy())).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for id in found(&self.settings) {
            let _ = remove_folder(&self.settings.layout.sandbox(&id));
        }
    }
}

fn record(name: &str, network: Network, ipc: IpcNamespace) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId("5".repeat(64).into()),
        config: SandboxConfig {
            hostname: "web-0".to_owned(),
            namespaces: Namespaces { network, ipc, ..Namespaces::default() },
            cgroup_parent: format!("/edged-sandbox-test-{name}-{}", std::process::id()),
            ..SandboxConfig::default()
        },
        phase: SandboxPhase::Making,
        created_at: 0,
        ips: Vec::new(),
        boot: BootId::default(),
        program: "".into(),
    }
}

/// What its network namespace's interface has, by `ip`.
fn inside(place: &Place, record: &SandboxRecord, command: &str) -> String {
    let file = place.settings.layout.sandbox(&record.id).join(NET.0);
    let output = namespace::inside(NET, &file, || {
        std::process::Command::new("/bin/sh").args(["-c", command]).output()
    });
    String::from_utf8_lossy(&output.expect("it is held").expect("it ran").stdout).into_owned()
}

fn remove_cgroup(record: &SandboxRecord) {
    let entries = fs::read_dir(sys::CGROUPS).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()).chain([sys::CGROUPS.into()]) {
        let _ = fs::remove_dir(folder.join(&record.config.cgroup_parent[1..]));
    }
}

#[test]
fn on_the_hosts_network_there_are_files_and_shared_memory() {
    let place = Place::new("host");
    let mut record = record("host", Network::Node, IpcNamespace::Pod);
    record.config.dns = Some(Dns {
        servers: vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()],
        searches: vec!["a.example".to_owned(), "example".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    let folder = place.settings.layout.sandbox(&record.id);
    for _ in 0..2 {
        // The second time it finds what a killed job has left.
        assert_eq!(make(&place.settings, &record), Ok(JobReply::Network(vec![])));
        assert_eq!(place.mounts(), 2, "shm and ipc");
    }
    let memory = nix::sys::statvfs::statvfs(&folder.join("shm")).expect("it is mounted");
    assert_eq!(memory.blocks() as u64 * memory.fragment_size() as u64, SANDBOX_SHM_BYTES);
    let mode = |name: &str| fs::metadata(folder.join(name)).expect(name).permissions().mode();
    assert_eq!((mode("shm") & 0o7777, mode("hosts") & 0o777), (0o1777, 0o644));
    let own = fs::read_link(Path::new(namespace::OWN).join("ipc")).expect("it is there");
    let held = fs::metadata(folder.join("ipc")).expect("it is held");
    let inode = std::os::unix::fs::MetadataExt::ino(&held);
    assert_ne!(own.to_string_lossy(), format!("ipc:[{inode}]"));
    assert!(!folder.join("net").exists() && !folder.join("uts").exists());
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
    assert_eq!(text("hostname"), "web-0\n");
    assert_eq!(
        text("resolv.conf"),
        "search a.example example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5\n"
    );
    assert_eq!(found(&place.settings), [record.id.clone()]);
    for _ in 0..2 {
        assert_eq!(end(&place.settings, &record), Ok(JobReply::Done));
        assert!(!folder.exists() && place.mounts() == 0);
    }
    remove_cgroup(&record);
}

#[test]
fn a_pod_has_an_address_a_name_and_sysctls_of_its_own() {
    let place = Place::new("pod");
    let mut record = record("pod", Network::Pod, IpcNamespace::Pod);
    record.config.sysctls =
        [("net.ipv4.ip_unprivileged_port_start", "81"), ("kernel.sem", "9 9 9 9")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    record.config.port_mappings = vec![PortMapping {
        protocol: Protocol::Tcp,
        container_port: 80,
        host_port: 8_080,
        host_ip: String::new(),
    }];
    let folder = place.settings.layout.sandbox(&record.id);
    place.alone(|settings| {
        for address in ["10.213.0.2", "10.213.0.3"] {
            // What a killed run has leased is given back, not leased a second time.
            let made = make(settings, &record).expect("root may");
            assert_eq!(made, JobReply::Network(vec![address.into()]));
            assert_eq!(place.leases(), [address]);
        }
        let shown = inside(
            &place,
            &record,
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start; \
             ip -o -4 addr show up",
        );
        assert!(shown.starts_with("81\n"), "{shown}");
        assert!(shown.contains("127.0.0.1/8") && shown.contains("10.213.0.3/29"), "{shown}");
        let name = namespace::inside(UTS, &folder.join("uts"), nix::unistd::gethostname);
        assert_eq!(name.expect("it is held").expect("a name"), "web-0");
        let sem = namespace::inside(IPC, &folder.join("ipc"), || {
            fs::read_to_string("/proc/sys/kernel/sem").expect("it is there")
        });
        assert_eq!(sem.expect("it is held").split_whitespace().collect::<Vec<_>>(), ["9"; 4]);
        let of = crate::model::runtime::StatsOf {
            cgroup: record.config.cgroup_parent.as_str().into(),
            layer_of: None,
            network_of: Some(record.id.clone()),
        };
        let usage = crate::io::builtin::stats::stats(settings, &[of]).remove(0);
        assert!(usage.network.is_some() && usage.memory_usage.is_some(), "{usage:?}");
        assert_eq!(end(settings, &record), Ok(JobReply::Done));
        assert_eq!((place.leases(), place.mounts()), (vec![], 0));
        assert_eq!(found(settings), []);
    });
    remove_cgroup(&record);
}

#[test]
fn an_address_is_given_back_after_a_reboot() {
    let place = Place::new("reboot");
    let record = record("reboot", Network::Pod, IpcNamespace::Node);
    place.alone(|settings| make(settings, &record)).expect("root may");
    assert_eq!(place.leases(), ["10.213.0.2"]);
    remove_folder(&place.settings.layout.sandbox(&record.id)).expect("as a reboot does");
    place.alone(|settings| {
        let stopping = SandboxRecord { phase: SandboxPhase::Stopping, ..record.clone() };
        assert_eq!(end(settings, &stopping), Ok(JobReply::Done));
    });
    assert_eq!(place.leases(), [""; 0]);
    remove_cgroup(&record);
}

#[test]
fn a_failure_leaves_nothing() {
    let place = Place::new("failure");
    let script = place.settings.cni_bin_dir.join("portmap");
    fs::remove_file(&script).expect("ours");
    let calls = place.top.join("calls");
    let shell = "#!/bin/sh\necho $CNI_COMMAND >> CALLS\n[ $CNI_COMMAND = DEL ] || { echo broken \
                >&2; exit 1; }\n";
    fs::write(&script, shell.replace("CALLS", &calls.to_string_lossy())).expect("ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let mut record = record("failure", Network::Pod, IpcNamespace::Pod);
    record.config.port_mappings = vec![PortMapping {
        protocol: Protocol::Tcp,
        container_port: 80,
        host_port: 8_080,
        host_ip: String::new(),
    }];
    place.alone(|settings| {
        let failed = make(settings, &record).expect_err("the last plugin fails");
        assert!(failed.text().ends_with("type=\"portmap\" failed (add): broken"), "{failed:?}");
        assert_eq!((place.leases(), place.mounts(), found(settings)), (vec![], 0, vec![]));
        let calls = fs::read_to_string(&calls).expect("it was called");
        assert_eq!(calls, "ADD\nDEL\n", "there was nothing to take down before");
        // Neither do requests that cannot be fulfilled, which make nothing at all.
        for (name, value) in [("kernel.hostname", "x"), ("net.ipv4.conf.nothing.here", "1")] {
            record.config.sysctls = [(name.to_owned(), value.to_owned())].into();
            let failed = make(settings, &record).expect_err(name);
            assert!(failed.text().contains(name), "{failed:?}");
            assert_eq!((place.mounts(), found(settings)), (0, vec![]));
        }
    });
    remove_cgroup(&record);
    let foreign = SandboxRecord { id: SandboxId("../../etc".into()), ..record.clone() };
    for done in [make(&place.settings, &foreign), end(&place.settings, &foreign)] {
        assert!(matches!(done, Err(JobFault::Invalid(why)) if why.contains("../../etc")));
    }
}

/// In the holder's place: it does what `edged pause` does, but does not confine itself.
const HOLDER: &str = "#!/bin/sh\nexec 3<>$2/holder\n[ $$ = 1 ] || { echo pid $$; exit; }\n\
    printf ready\nexec >&-\nexec head -c 1 <&3 >/dev/null\n";

#[test]
fn a_process_namespace_is_held_until_the_end() {
    let place = Place::new("holder");
    let mut record = record("holder", Network::Node, IpcNamespace::Node);
    record.config.namespaces.pid = PidNamespace::Pod;
    let program = place.top.join("holder.sh");
    let write = |text: &str| {
        fs::write(&program, text).expect("a file of ours");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    };
    let folder = place.settings.layout.sandbox(&record.id);
    let cgroup = holder_cgroup(&record);
    let held = || {
        let procs: Vec<String> = cgroups()
            .folders(&cgroup)
            .iter()
            .map(|it| fs::read_to_string(it.join("cgroup.procs")).expect("it is there"))
            .collect();
        procs.first().is_some_and(|pid| !pid.is_empty() && procs.iter().all(|it| it == pid))
    };
    write(HOLDER);
    for _ in 0..2 {
        let made = make_with(&place.settings, &record, &program);
        assert_eq!(made, Ok(JobReply::Network(vec![])));
        assert_eq!((held(), place.mounts()), (true, 1));
        let kind = statfs(&folder.join("pid")).expect("it is there").filesystem_type();
        assert_eq!(kind, NSFS_MAGIC);
    }
    assert_eq!(end(&place.settings, &record), Ok(JobReply::Done));
    assert!(!folder.exists() && place.mounts() == 0);
    assert_eq!(cgroups().folders(&cgroup), [""; 0].map(PathBuf::from), "it has left");

    for (text, expected) in [
        ("#!/bin/sh\nprintf 'no root'\n", "edged pause: no root"),
        ("#!/bin/sh\n", "edged pause: it ended"),
    ] {
        write(text);
        let failed = make_with(&place.settings, &record, &program).expect_err(text);
        assert_eq!(failed.text(), expected);
        assert!(!folder.exists() && place.mounts() == 0);
    }
    remove_cgroup(&record);
    const { assert!(HOLDER_READY_MS >= 1_000, "it may have to be read from slow flash") };
}

#[test]
fn only_sysctls_of_the_pods_namespaces_are_taken() {
    let pod = record("sysctls", Network::Pod, IpcNamespace::Pod).config;
    let host = record("sysctls", Network::Node, IpcNamespace::Node).config;
    for (name, file) in [
        ("net.core.somaxconn", "net/core/somaxconn"),
        ("net/core/somaxconn", "net/core/somaxconn"),
        ("net.ipv4.conf.eth0/1.rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
        ("net/ipv4/conf/eth0.1/rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
        ("kernel.shm_rmid_forced", "kernel/shm_rmid_forced"),
        ("kernel.msgmax", "kernel/msgmax"),
        ("kernel.sem", "kernel/sem"),
        ("fs.mqueue.msg_max", "fs/mqueue/msg_max"),
    ] {
        assert_eq!(sysctl(name, &pod), Ok(Path::new("/proc/sys").join(file)), "{name}");
        let refused = sysctl(name, &host).expect_err(name);
        assert!(refused.starts_with(&format!("sysctl {name:?}: it is the host's")), "{refused}");
    }
    for name in [
        "",
        "net",
        "kernel.hostname",
        "kernel.semaphore",
        "vm.swappiness",
        "net..core",
        "net.core.",
        "net/../kernel/panic",
        "net.//.kernel",
        "net/core/x\n",
    ] {
        assert!(sysctl(name, &pod).is_err(), "{name:?}");
    }
}

#[test]
fn a_line_of_resolv_conf_cannot_become_two() {
    let dns = |server: &str| Dns { servers: vec![server.to_owned()], ..Dns::default() };
    assert_eq!(resolv_conf(&dns("::1")), Ok("nameserver ::1\n".to_owned()));
    assert_eq!(resolv_conf(&Dns::default()), Ok(String::new()), "then it is the host's");
    assert!(resolv_conf(&dns("::1\noptions rotate")).is_err());
}

#[test]
fn of_a_long_file_of_the_host_whole_lines_are_taken() {
    let path = std::env::temp_dir().join(format!("edged-hosts-{}", std::process::id()));
    let name = path.to_str().expect("a name of ours");
    let line = "192.0.2.1 a\n";
    fs::write(&path, line.repeat(HOST_FILE_BYTES_MAX / line.len() + 1)).expect("ours");
    let taken = host_file(name, HOST_FILE_BYTES_MAX);
    assert_eq!(taken.len(), HOST_FILE_BYTES_MAX / line.len() * line.len());
    assert_eq!(host_file(name, 5), b"");
    fs::remove_file(&path).expect("ours");
    assert_eq!(host_file(name, 5), b"", "absent");
}

#[test]
fn a_pod_with_users_of_its_own_has_namespaces_that_belong_to_them() {
    let place = Place::new("users");
    let mut record = record("users", Network::Pod, IpcNamespace::Pod);
    let users = UserRange { first: 300_000, count: 65_536 };
    record.config.namespaces.users = Some(users);
    record.config.namespaces.pid = PidNamespace::Pod;
    record.config.sysctls = [("net.ipv4.ip_default_ttl".to_owned(), "9".to_owned())].into();
    let folder = place.settings.layout.sandbox(&record.id);
    let program = place.top.join("holder.sh");
    fs::write(&program, HOLDER).expect("a file of ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    place.alone(|settings| {
        for _ in 0..2 {
            let made = make_with(settings, &record, &program);
            assert!(matches!(made, Ok(JobReply::Network(_))), "{made:?}");
        }
        assert!(is_held(&record));
        let meta = fs::metadata(folder.join("hosts")).expect("it is there");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&meta), users.first);
        let ttl = inside(&place, &record, "cat /proc/sys/net/ipv4/ip_default_ttl");
        assert_eq!(ttl, "9\n");
        assert_eq!(end(settings, &record), Ok(JobReply::Done));
        assert!(!folder.exists());
        assert_eq!(place.mounts(), 0);
    });
    for (network, pid, ipc) in [
        (Network::Node, PidNamespace::Container, IpcNamespace::Pod),
        (Network::Pod, PidNamespace::Node, IpcNamespace::Pod),
        (Network::Pod, PidNamespace::Container, IpcNamespace::Node),
    ] {
        record.config.namespaces = Namespaces { network, pid, ipc, users: Some(users) };
        let refused = make(&place.settings, &record).expect_err("the host's are not theirs");
        assert!(matches!(refused, JobFault::Invalid(_)), "{refused:?}");
    }
    remove_cgroup(&record);
}
