//! The `config.json` of a container (OCI runtime-spec 1.0.2), made of what CRI asked for, of the
//! image and of what the machine has.
//!
//! It says what containerd 1.6 says for the same request, so that a workload sees no difference.
//! The fields that an OCI runtime would ignore, such as annotations, are left out. Nothing that CRI
//! asks for is ignored here: what cannot be written is refused with the name of CRI's field.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::capabilities::Capabilities;
use super::seccomp;
use super::write::Writer;
use crate::model::cri::{
    ContainerConfig, ContainerSecurity, IpcNamespace, Network, PidNamespace, Profile, Propagation,
    Resources, Selinux, UserRange,
};
use crate::model::error::Input;
use crate::model::runtime::{ContainerRecord, ImageConfig, SandboxRecord};

/// What the records do not say.
#[derive(Debug)]
pub struct Host {
    /// The sandbox's folder: `net`, `ipc`, `uts`, `shm`, `hostname`, `hosts`, `resolv.conf`.
    pub sandbox: String,
    /// For `HOSTNAME`: the sandbox's, or the machine's on its network.
    pub hostname: String,
    /// Of the process, looked up in the image.
    pub user: User,
    /// A process namespace that is joined: the holder's, or another container's.
    pub pid_namespace: Option<String>,
    /// The existing host paths of `config.mounts`, in their order, without links.
    pub sources: Vec<String>,
    /// The image's volumes: the destination, and the folder with its content.
    pub volumes: Vec<(String, String)>,
    /// Those that CRI asks for, and all of the machine's for a privileged container.
    pub devices: Vec<Device>,
    /// The content of the file that `Profile::Localhost` names.
    pub seccomp: Option<Box<RawValue>>,
    /// A filter that crun has made of the profile before, in base64.
    pub seccomp_filter: Option<String>,
    /// The name of an AppArmor profile that is loaded.
    pub apparmor: Option<String>,
    /// Those that the runtime has itself.
    pub capabilities: Capabilities,
    /// The lowest `oom_score_adj` that the runtime may give.
    pub oom_score_adj_min: i64,
    pub limits: Limits,
    pub selinux: bool,
    /// The pod's own: its sandbox has a namespace `user`.
    pub users: Option<UserRange>,
}

/// What the machine's cgroups can limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// cgroup v2 alone.
    pub cgroup2: bool,
    /// Memory with swap can be limited.
    pub swap: bool,
    /// Huge pages can be limited.
    pub hugetlb: bool,
}

/// `process.user`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Ascending, each once; the gid among them.
    pub additional_gids: Vec<u32>,
}

/// One of `linux.devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub path: String,
    /// `b` or `c`.
    pub kind: &'static str,
    pub major: u64,
    pub minor: u64,
    /// Permission bits.
    pub file_mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// What the container may do with it, letters of `rwm`; `None`: what it may with all.
    pub access: Option<Box<str>>,
}

/// The file's content. An [`Input`] names the field of CRI's `ContainerConfig`.
pub fn bundle(
    sandbox: &SandboxRecord,
    container: &ContainerRecord,
    image: &ImageConfig,
    host: &Host,
) -> Result<Vec<u8>, Input> {
    let config = &container.config;
    let security = &config.security;
    let capabilities = capabilities(security, host)?;
    if security.privileged && !sandbox.config.security.privileged {
        let why = "got a privileged container, expected its sandbox to be privileged as well";
        return Err(Input::other(why).at("privileged"));
    }
    let label = security.selinux.as_ref().filter(|_| host.selinux).map(label).transpose()?;
    let label = label.as_deref();
    let args = args(config, image)?;
    let env = env(config, image, &host.hostname);
    let mounts = mounts(sandbox, config, host)?;
    let namespaces = namespaces(sandbox, config, host)?;
    let devices = devices(&host.devices)?;
    let filter = filter(security, capabilities, host)?;
    check_unified(&config.resources, host.limits)?;
    Ok(Writer::object(&mut |w| {
        w.text("ociVersion", "1.0.2");
        w.map("process", &mut |w| {
            w.texts("args", &args);
            w.texts("env", &env);
            w.text("cwd", cwd(config, image));
            process(w, config, capabilities, host);
            some_text(w, "selinuxLabel", label);
        });
        w.map("root", &mut |w| {
            w.text("path", "rootfs");
            w.flag("readonly", security.readonly_rootfs);
        });
        w.list("mounts", &mut |w| mounts.iter().for_each(|mount| mount.write(w)));
        w.map("linux", &mut |w| {
            w.text("cgroupsPath", &sandbox.cgroup(&container.id));
            w.list("namespaces", &mut |w| namespaces.iter().for_each(|one| one.write(w)));
            linux(w, config, host, &devices);
            if let Some(filter) = &filter {
                filter.write(w);
            }
            some_text(w, "mountLabel", label);
        });
        if let Some(filter) = &host.seccomp_filter {
            // For crun; others ignore it.
            w.map("annotations", &mut |w| w.text("run.oci.seccomp_bpf_data", filter));
        }
    }))
}

/// The file for `update --resources`: OCI's `linux.resources` without devices.
pub fn update(resources: &Resources, limits: Limits) -> Result<Vec<u8>, Input> {
    check_unified(resources, limits)?;
    // The OCI runtimes change none of these.
    let hugetlb = false;
    Ok(Writer::object(&mut |w| self::resources(w, resources, Limits { hugetlb, ..limits })))
}

/// The process of a command in a container, out of its `config.json`: the container's own with
/// other arguments, and with or without a terminal. `None`: this is no such file.
pub fn exec_process(config: &[u8], args: &[String], tty: bool) -> Option<Vec<u8>> {
    let mut config: Value = serde_json::from_slice(config).ok()?;
    let process = config.get_mut("process")?.as_object_mut()?;
    process.insert("args".to_owned(), args.into());
    process.insert("terminal".to_owned(), tty.into());
    if tty && let Some(env) = process.get_mut("env").and_then(Value::as_array_mut) {
        let has_term = |word: &Value| word.as_str().is_some_and(|word| word.starts_with("TERM="));
        if !env.iter().any(has_term) {
            env.push("TERM=xterm".into());
        }
    }
    Some(serde_json::to_vec(process).expect("it was JSON"))
}

/// What of `process` is neither of the image nor a label.
fn process(w: &mut Writer, config: &ContainerConfig, capabilities: Capabilities, host: &Host) {
    w.flag("terminal", config.terminal.tty);
    w.map("user", &mut |w| {
        w.number("uid", host.user.uid.into());
        w.number("gid", host.user.gid.into());
        w.numbers("additionalGids", &host.user.additional_gids);
    });
    w.map("capabilities", &mut |w| {
        // Without `inheritable`: a program could hand those on to one that it must not.
        let names = capabilities.names();
        for set in ["bounding", "effective", "permitted"] {
            w.texts(set, &names);
        }
    });
    w.flag("noNewPrivileges", config.security.no_new_privs);
    w.signed("oomScoreAdj", config.resources.oom_score_adj.max(host.oom_score_adj_min));
    some_text(w, "apparmorProfile", host.apparmor.as_deref());
}

/// What of `linux` needs no more than is there.
fn linux(w: &mut Writer, config: &ContainerConfig, host: &Host, devices: &[Device]) {
    let security = &config.security;
    if let Some(users) = host.users {
        for mappings in ["uidMappings", "gidMappings"] {
            w.list(mappings, &mut |w| {
                w.item(&mut |w| {
                    w.number("containerID", 0);
                    w.number("hostID", users.first.into());
                    w.number("size", users.count.into());
                });
            });
        }
    }
    w.map("resources", &mut |w| {
        w.list("devices", &mut |w| device_rules(w, security.privileged, &host.devices));
        resources(w, &config.resources, host.limits);
    });
    w.list("devices", &mut |w| devices.iter().for_each(|device| device.write(w)));
    some_text(w, "rootfsPropagation", rootfs_propagation(config));
    let (masked, readonly): (&[String], &[String]) = if security.privileged {
        (&[], &[])
    } else {
        (&security.masked_paths, &security.readonly_paths)
    };
    w.texts("maskedPaths", masked);
    w.texts("readonlyPaths", readonly);
}

impl Device {
    fn write(&self, w: &mut Writer) {
        w.item(&mut |w| {
            w.text("path", &self.path);
            w.text("type", self.kind);
            w.number("major", self.major);
            w.number("minor", self.minor);
            w.number("fileMode", self.file_mode.into());
            w.number("uid", self.uid.into());
            w.number("gid", self.gid.into());
        });
    }
}

struct Mount<'a> {
    destination: Cow<'a, str>,
    kind: &'a str,
    source: Cow<'a, str>,
    options: Vec<&'a str>,
}

impl Mount<'_> {
    fn write(&self, w: &mut Writer) {
        w.item(&mut |w| {
            w.text("destination", &self.destination);
            w.text("type", self.kind);
            w.text("source", &self.source);
            w.texts("options", &self.options);
        });
    }
}

struct Namespace {
    kind: &'static str,
    path: Option<String>,
}

impl Namespace {
    fn write(&self, w: &mut Writer) {
        w.item(&mut |w| {
            w.text("type", self.kind);
            some_text(w, "path", self.path.as_deref());
        });
    }
}

/// `linux.seccomp`
enum Filter<'a> {
    Own(Capabilities),
    File(&'a RawValue),
}

impl Filter<'_> {
    fn write(&self, w: &mut Writer) {
        match self {
            Self::Own(bounding) => {
                w.map("seccomp", &mut |w| seccomp::runtime_default(w, *bounding));
            }
            Self::File(content) => w.raw("seccomp", content.get()),
        }
    }
}

fn some_text(w: &mut Writer, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        w.text(name, value);
    }
}

/// The image's entry point goes with arguments of CRI's, and its arguments only with its own entry
/// point.
fn args<'a>(config: &'a ContainerConfig, image: &'a ImageConfig) -> Result<Vec<&'a str>, Input> {
    let own = |list: &'a [String]| list.iter().map(String::as_str).collect::<Vec<_>>();
    let theirs = |list: &'a [Box<str>]| list.iter().map(|text| &**text).collect::<Vec<_>>();
    let args = match (&*config.command, &*config.args) {
        ([], []) => [theirs(&image.entrypoint), theirs(&image.cmd)].concat(),
        ([], args) => [theirs(&image.entrypoint), own(args)].concat(),
        (command, args) => [own(command), own(args)].concat(),
    };
    if args.is_empty() { Err(Input::other("no command specified").at("command")) } else { Ok(args) }
}

/// A later variable replaces an earlier one of its name, at its place.
fn env<'a>(
    config: &'a ContainerConfig,
    image: &'a ImageConfig,
    hostname: &str,
) -> Vec<Cow<'a, str>> {
    let mut all: Vec<Cow<'a, str>> = vec![PATH.into()];
    if config.terminal.tty {
        all.push("TERM=xterm".into());
    }
    all.push(format!("HOSTNAME={hostname}").into());
    let name = |variable: &str| variable.split('=').next().unwrap_or_default().to_owned();
    let images = image.env.iter().map(|variable| Cow::from(&**variable));
    let own = config.envs.iter().map(|(name, value)| Cow::from(format!("{name}={value}")));
    for variable in images.chain(own) {
        let wanted = name(&variable);
        match all.iter_mut().find(|other| name(other) == wanted) {
            Some(other) => *other = variable,
            None => all.push(variable),
        }
    }
    all
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// CRI's working folder, else the image's, else the root.
pub fn cwd<'a>(config: &'a ContainerConfig, image: &'a ImageConfig) -> &'a str {
    let given = [&*config.working_dir, &*image.working_dir];
    given.into_iter().find(|dir| !dir.is_empty()).unwrap_or("/")
}

fn capabilities(security: &ContainerSecurity, host: &Host) -> Result<Capabilities, Input> {
    if security.privileged {
        return Ok(host.capabilities);
    }
    let (add, drop) = (&security.add_capabilities, &security.drop_capabilities);
    Capabilities::of(add, drop, host.capabilities)
}

fn label(selinux: &Selinux) -> Result<String, Input> {
    let Selinux { user, role, kind, level } = selinux;
    for (part, name) in [(user, "user"), (role, "role"), (kind, "type"), (level, "level")] {
        if part.is_empty() || part.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let why = Input::quoted(part, "a part of a label; this runtime has no defaults");
            return Err(why.at(name).at("selinux_options"));
        }
    }
    Ok(format!("{user}:{role}:{kind}:{level}"))
}

fn devices(all: &[Device]) -> Result<Vec<Device>, Input> {
    let cleaned = all
        .iter()
        .map(|device| Ok(Device { path: clean(&device.path)?.into_owned(), ..device.clone() }));
    cleaned.collect()
}

/// The first rule is for all devices; OCI runtimes add those that every container has.
fn device_rules(w: &mut Writer, privileged: bool, devices: &[Device]) {
    w.item(&mut |w| {
        w.flag("allow", privileged);
        w.text("access", "rwm");
    });
    for device in devices.iter().filter(|_| !privileged) {
        let Some(access) = &device.access else { continue };
        w.item(&mut |w| {
            w.flag("allow", true);
            w.text("type", device.kind);
            w.number("major", device.major);
            w.number("minor", device.minor);
            w.text("access", access);
        });
    }
}

fn mounts<'a>(
    sandbox: &'a SandboxRecord,
    config: &'a ContainerConfig,
    host: &'a Host,
) -> Result<Vec<Mount<'a>>, Input> {
    let access = if config.security.privileged { "rw" } else { "ro" };
    let mut binds = Vec::new();
    for (mount, source) in config.mounts.iter().zip(&host.sources) {
        if mount.image.is_some() {
            let why = "volumes of images are not supported by this runtime";
            return Err(Input::other(why).at("mounts").at(&mount.container_path));
        }
        let propagation = match mount.propagation {
            Propagation::Private => "rprivate",
            Propagation::HostToContainer => "rslave",
            Propagation::Bidirectional => "rshared",
        };
        let access = match (mount.readonly, mount.recursive_read_only) {
            (_, true) => "rro",
            (true, false) => "ro",
            (false, false) => "rw",
        };
        let options = vec!["rbind", propagation, access];
        binds.push(bind(clean(&mount.container_path)?, source.into(), options));
    }
    let is_free = |binds: &[Mount<'_>], at: &str| !binds.iter().any(|one| one.destination == at);
    for (destination, source) in &host.volumes {
        let destination = clean(destination)?;
        if is_free(&binds, &destination) {
            binds.push(bind(destination, source.into(), vec!["rbind", "rprivate", "rw"]));
        }
    }
    let of_etc = if config.security.readonly_rootfs { "ro" } else { "rw" };
    let shm = match sandbox.config.namespaces.ipc {
        IpcNamespace::Pod => format!("{}/shm", host.sandbox),
        IpcNamespace::Node => "/dev/shm".to_owned(),
    };
    let own = |name: &str| format!("{}/{name}", host.sandbox);
    for (destination, source, access) in [
        ("/etc/hostname", own("hostname"), of_etc),
        ("/etc/hosts", own("hosts"), of_etc),
        ("/etc/resolv.conf", own("resolv.conf"), of_etc),
        ("/dev/shm", shm, "rw"),
    ] {
        if is_free(&binds, destination) {
            let options = vec!["rbind", "rprivate", access];
            binds.push(bind(destination.into(), source.into(), options));
        }
    }
    // What lies below another mount comes after it.
    binds.sort_by_key(|bind| bind.destination.matches('/').count());
    let mut mounts = defaults(access);
    mounts.retain(|one| is_free(&binds, &one.destination));
    mounts.append(&mut binds);
    Ok(mounts)
}

fn bind<'a>(destination: Cow<'a, str>, source: Cow<'a, str>, options: Vec<&'a str>) -> Mount<'a> {
    Mount { destination, kind: "bind", source, options }
}

fn defaults<'a>(access: &'a str) -> Vec<Mount<'a>> {
    let plain = ["nosuid", "noexec", "nodev"];
    let of = |destination: &'a str, kind: &'a str, options: Vec<&'a str>| Mount {
        destination: destination.into(),
        kind,
        source: kind.into(),
        options,
    };
    let terminals = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    vec![
        of("/proc", "proc", plain.to_vec()),
        of("/dev", "tmpfs", vec!["nosuid", "strictatime", "mode=755", "size=65536k"]),
        of("/dev/pts", "devpts", terminals.to_vec()),
        of("/dev/mqueue", "mqueue", plain.to_vec()),
        of("/sys", "sysfs", [&plain[..], &[access]].concat()),
        of("/sys/fs/cgroup", "cgroup", [&plain[..], &["relatime", access]].concat()),
    ]
}

/// Absolute, without empty parts and dots: two names of one place must not both be mounted.
fn clean(path: &str) -> Result<Cow<'_, str>, Input> {
    let parts = || path.split('/').filter(|part| !matches!(*part, "" | "."));
    if !path.starts_with('/') || parts().any(|part| part == "..") {
        return Err(Input::quoted(path, "an absolute path without `..`").at("container_path"));
    }
    let plain = parts().fold(String::new(), |path, part| path + "/" + part);
    if plain.is_empty() {
        return Err(Input::quoted(path, "a path below the root").at("container_path"));
    }
    Ok(if plain == path { path.into() } else { plain.into() })
}

fn rootfs_propagation(config: &ContainerConfig) -> Option<&'static str> {
    let any = |kind| config.mounts.iter().any(|mount| mount.propagation == kind);
    if any(Propagation::Bidirectional) {
        Some("rshared")
    } else {
        any(Propagation::HostToContainer).then_some("rslave")
    }
}

fn namespaces(
    sandbox: &SandboxRecord,
    config: &ContainerConfig,
    host: &Host,
) -> Result<Vec<Namespace>, Input> {
    let new = |kind| Namespace { kind, path: None };
    let of_sandbox = |kind, file: &str| {
        let path = Some(format!("{}/{file}", host.sandbox));
        Namespace { kind, path }
    };
    let mut all = vec![new("mount")];
    match &config.namespaces.pid {
        PidNamespace::Container => all.push(new("pid")),
        PidNamespace::Node => {}
        PidNamespace::Pod | PidNamespace::Target(_) => {
            let missing = || Input::other("there is no such process namespace").at("pid");
            let path = host.pid_namespace.clone().ok_or_else(missing)?;
            all.push(Namespace { kind: "pid", path: Some(path) });
        }
    }
    if sandbox.config.namespaces.ipc == IpcNamespace::Pod {
        all.push(of_sandbox("ipc", "ipc"));
    }
    if sandbox.config.namespaces.network == Network::Pod {
        all.extend([of_sandbox("network", "net"), of_sandbox("uts", "uts")]);
    }
    if host.users.is_some() {
        all.push(of_sandbox("user", "user"));
    }
    if host.limits.cgroup2 && !config.security.privileged {
        all.push(new("cgroup"));
    }
    Ok(all)
}

fn check_unified(wanted: &Resources, limits: Limits) -> Result<(), Input> {
    if !limits.cgroup2 && !wanted.unified.is_empty() {
        return Err(Input::other("got files of cgroup v2, expected none on v1").at("unified"));
    }
    Ok(())
}

/// The fields of `linux.resources` but `devices`; 0 and empty texts are left out.
fn resources(w: &mut Writer, wanted: &Resources, limits: Limits) {
    let some = |w: &mut Writer, name, value| {
        if value != 0 {
            w.signed(name, value);
        }
    };
    w.map("memory", &mut |w| {
        some(w, "limit", wanted.memory_limit);
        if limits.swap {
            // Without a limit of its own, no swap; it counts memory as well.
            let own = wanted.memory_swap_limit;
            some(w, "swap", if own == 0 { wanted.memory_limit } else { own });
        }
    });
    w.map("cpu", &mut |w| {
        some(w, "shares", wanted.cpu_shares);
        some(w, "quota", wanted.cpu_quota);
        some(w, "period", wanted.cpu_period);
        for (name, set) in [("cpus", &wanted.cpuset_cpus), ("mems", &wanted.cpuset_mems)] {
            some_text(w, name, Some(&**set).filter(|set| !set.is_empty()));
        }
    });
    if limits.hugetlb && !wanted.hugepages.is_empty() {
        w.list("hugepageLimits", &mut |w| {
            for (page_size, limit) in &wanted.hugepages {
                w.item(&mut |w| {
                    w.text("pageSize", page_size);
                    w.number("limit", *limit);
                });
            }
        });
    }
    if !wanted.unified.is_empty() {
        w.map("unified", &mut |w| {
            wanted.unified.iter().for_each(|(name, value)| w.text(name, value));
        });
    }
}

/// The seccomp profile that [`bundle`] writes, as JSON.
pub fn seccomp_profile(security: &ContainerSecurity, host: &Host) -> Result<Option<String>, Input> {
    let filter = filter(security, capabilities(security, host)?, host)?;
    Ok(filter.map(|filter| match filter {
        Filter::Own(bounding) => {
            let bytes = Writer::object(&mut |w| seccomp::runtime_default(w, bounding));
            String::from_utf8(bytes).expect("JSON is UTF-8")
        }
        Filter::File(content) => content.get().to_owned(),
    }))
}

fn filter<'a>(
    security: &ContainerSecurity,
    capabilities: Capabilities,
    host: &'a Host,
) -> Result<Option<Filter<'a>>, Input> {
    if security.privileged {
        return Ok(None);
    }
    match &security.seccomp {
        Profile::Unconfined => Ok(None),
        Profile::RuntimeDefault => Ok(Some(Filter::Own(capabilities))),
        Profile::Localhost(path) => {
            let missing = || Input::quoted(path, "a seccomp profile that was read").at("seccomp");
            host.seccomp.as_deref().map(|file| Some(Filter::File(file))).ok_or_else(missing)
        }
    }
}

#[cfg(test)]
#[path = "spec/tests.rs"]
mod tests;
