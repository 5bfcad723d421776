//! The jobs that make and end containers. Each can be done again after a crash at any moment.
//!
//! ```text
//!  make    DATA c/ID/{upper,work,volumes}, RUN c/ID/rootfs mounted, RUN c/ID/config.json
//!  (the monitor starts it)
//!  end     killed, deleted from the OCI runtime, unmounted, RUN c/ID removed
//!  remove  DATA c/ID removed
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use serde_json::value::RawValue;

use super::cgroup::Cgroup;
use super::environment::{self, APPARMOR_PROFILE};
use super::fail_point::{self, Who};
use super::layout::{Layout, Settings};
use super::monitor::{self, PID};
use super::root::Root;
use super::rootfs::{self, ROOTFS};
use super::sandbox::is_held;
use super::user_namespace::{self, Users};
use super::{copy, files, oci, process, seccomp, users};
use crate::io::{mounts, sys};
use crate::limits::{DEVICES_MAX, RUNTIME_OCI_CALL_MS_MAX, SECCOMP_BYTES_MAX};
use crate::model::cgroup::Hierarchy;
use crate::model::cri::{
    ContainerConfig, ContainerSecurity, Mount, PidNamespace, Profile, Propagation,
};
use crate::model::error::{Error, Input, System};
use crate::model::runtime::{
    ContainerFolder, ContainerId, ContainerRecord, ImageRecord, JobFault, JobReply, Process,
    SandboxRecord,
};
use crate::wire::monitor::read_pid;
use crate::wire::oci::capabilities::Capabilities;
use crate::wire::oci::spec::{self, Device, Host, Limits};

const OCI_CALL: Duration = Duration::from_millis(RUNTIME_OCI_CALL_MS_MAX);
/// The name of OCI's configuration in a bundle.
pub const CONFIG: &str = "config.json";
/// Ends of names in `tmp`, after the container's id: what is not whole yet.
const NEW: &str = "new";
const VOLUME: &str = "volume";

/// Makes a container's folders, root file system and `config.json`. A failure leaves nothing.
pub fn make(
    settings: &Settings,
    sandbox: &SandboxRecord,
    container: &ContainerRecord,
    image: &ImageRecord,
) -> Result<JobReply, JobFault> {
    if !is_held(sandbox) {
        let why = "the pod's process namespace has ended: its first process is gone";
        return Err(JobFault::SandboxLost(why.to_owned()));
    }
    made(settings, sandbox, container, image).map(|()| JobReply::Done).map_err(|error| {
        let folder = settings.layout.container(&container.id);
        let _ = take_down(&folder).and_then(|()| remove_layer(&settings.layout, &container.id));
        fault(error)
    })
}

pub(super) fn fault(error: Error) -> JobFault {
    match error {
        Error::Input(wrong) => JobFault::Invalid(wrong.to_string()),
        Error::Peer(_) | Error::System(_) => JobFault::Failed(error.to_string()),
    }
}

fn made(
    settings: &Settings,
    sandbox: &SandboxRecord,
    container: &ContainerRecord,
    image: &ImageRecord,
) -> Result<(), Error> {
    let (id, layout) = (&container.id, &settings.layout);
    let own = layout.own_layer(id);
    make_layer(layout, id).map_err(|error| files::at("make", &own, &error))?;
    step(layout, "the own layer is made");
    let folder = layout.container(id);
    files::make_dir(&folder)?;
    step(layout, "the folder is made");
    let config = &container.config;
    let users = users_of(layout, sandbox, config)?;
    if let Some(users) = &users {
        // Of a job that was killed.
        user_namespace::take_down(&folder)?;
        user_namespace::open_way(layout, &folder, users.range())?;
        users.own(&layout.own_layer(id).join("upper"))?;
    }
    rootfs::mount_all(layout, id, &container.layers, users.as_ref())?;
    step(layout, "the root is mounted");
    let root = Root::open(&folder.join(ROOTFS))?;
    let owner = users.as_ref().map_or(0, |users| users.range().first);
    root.make_folders(spec::cwd(config, &image.config), owner)?;
    let mut host = host(settings, sandbox, container, image, &root, users.as_ref())?;
    let profile = spec::seccomp_profile(&config.security, &host)?;
    host.seccomp_filter = profile.and_then(|text| seccomp::find(settings, &folder, &text));
    let bytes = spec::bundle(sandbox, container, &image.config, &host)?;
    let written = monitor::replace_in(&folder, CONFIG, &bytes);
    Ok(written.map_err(|error| files::at("write", &folder.join(CONFIG), &error))?)
}

/// The pod's own users.
fn users_of(
    layout: &Layout,
    sandbox: &SandboxRecord,
    config: &ContainerConfig,
) -> Result<Option<Users>, Error> {
    let users = config.namespaces.users;
    let mut mounts = config.mounts.iter().filter_map(|mount| mount.users);
    let others = sandbox.config.namespaces.users != users || mounts.any(|it| Some(it) != users);
    if others {
        let why = "got other users than the sandbox has, expected the same for all of the pod";
        return Err(Input::other(why).at("userns_options").into());
    }
    let of = |range| Users::of(&layout.sandbox(&sandbox.id), range);
    Ok(users.map(of).transpose()?)
}

/// `upper` and `work` appear together.
fn make_layer(layout: &Layout, id: &ContainerId) -> io::Result<()> {
    let own = layout.own_layer(id);
    if own.is_dir() {
        return Ok(());
    }
    let unfinished = layout.tmp().join(format!("{id}.{NEW}"));
    for name in ["upper", "work", "volumes"] {
        fs::create_dir_all(unfinished.join(name))?;
    }
    fs::create_dir_all(own.parent().expect("below DATA"))?;
    step(layout, "the own layer is unfinished");
    fs::rename(&unfinished, &own)
}

/// What the records do not say.
fn host(
    settings: &Settings,
    sandbox: &SandboxRecord,
    container: &ContainerRecord,
    image: &ImageRecord,
    root: &Root,
    users: Option<&Users>,
) -> Result<Host, Error> {
    let (config, layout) = (&container.config, &settings.layout);
    let security = &config.security;
    let of_sandbox = layout.sandbox(&sandbox.id);
    let table = mounts::table()?;
    let folder = layout.container(&container.id);
    let sources = config.mounts.iter().enumerate().map(|(at, mount)| {
        let source = source(mount, &table)?;
        match users.filter(|_| mount.users.is_some()) {
            None => Ok(source),
            Some(users) => mapped(users, &folder, at, &source),
        }
    });
    if config.mounts.iter().any(|mount| mount.recursive_read_only) && !makes_recursive(settings) {
        let why = "the kernel or the OCI runtime cannot make a mount read-only recursively";
        return Err(Input::other(why).at("recursive_read_only").into());
    }
    let status = sys::kernel_text("/proc/self/status")?;
    let capabilities = Capabilities(field(&status, "CapEff:"));
    let may_lower = capabilities.has("SYS_RESOURCE");
    let hostname = &sandbox.config.hostname;
    Ok(Host {
        sandbox: text(&of_sandbox)?.to_owned(),
        hostname: match &**hostname {
            "" => sys::hostname().unwrap_or_default(),
            name => name.to_owned(),
        },
        user: users::look_up(root, &security.user, &image.config.user)?,
        pid_namespace: pid_namespace(layout, &of_sandbox, config)?,
        sources: sources.collect::<Result<_, Error>>()?,
        volumes: volumes(layout, container, &image.config.volumes, root, users)?,
        devices: devices(config)?,
        seccomp: match &security.seccomp {
            Profile::Localhost(path) if !security.privileged => Some(profile(path)?),
            Profile::Localhost(_) | Profile::RuntimeDefault | Profile::Unconfined => None,
        },
        seccomp_filter: None,
        apparmor: apparmor(security)?,
        capabilities,
        oom_score_adj_min: if may_lower { -1_000 } else { own_score() },
        limits: limits(),
        selinux: selinux(config),
        users: config.namespaces.users,
    })
}

/// A volume with the owners that its files have for the pod's users.
fn mapped(users: &Users, folder: &Path, at: usize, source: &str) -> Result<String, Error> {
    let place = users.map_volume(folder, at, Path::new(source)).map_err(|error| {
        System::at(format_args!("{source} cannot be mapped to the pod's users"), error)
    })?;
    Ok(text(&place)?.to_owned())
}

fn makes_recursive(settings: &Settings) -> bool {
    let mut handlers = settings.handlers.iter();
    handlers.any(|it| it.recursive_read_only && Path::new(&*it.program) == settings.oci)
}

fn text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Input::new(path.display(), "a path in UTF-8").into())
}

/// The number of a line `NAME HEX` of `/proc/self/status`; 0: there is none.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn own_score() -> i64 {
    let text = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

pub(super) fn limits() -> Limits {
    let machine = sys::cgroups();
    Limits {
        cgroup2: machine.hierarchy == Hierarchy::V2,
        swap: machine.swap,
        hugetlb: has_hugetlb(),
    }
}

fn has_hugetlb() -> bool {
    let v2 = fs::read_to_string(Path::new(sys::CGROUPS).join("cgroup.controllers"));
    match v2 {
        Ok(controllers) => controllers.split_whitespace().any(|name| name == "hugetlb"),
        Err(_) => Path::new(sys::CGROUPS).join("hugetlb").is_dir(),
    }
}

/// A namespace that is joined.
fn pid_namespace(
    layout: &Layout,
    sandbox: &Path,
    config: &ContainerConfig,
) -> Result<Option<String>, Error> {
    match &config.namespaces.pid {
        PidNamespace::Container | PidNamespace::Node => Ok(None),
        PidNamespace::Pod => {
            let held = sandbox.join("pid");
            let path = text(&held)?.to_owned();
            let missing = || Input::other("a process namespace of the pod is not supported");
            if held.exists() { Ok(Some(path)) } else { Err(missing().at("pid").into()) }
        }
        PidNamespace::Target(id) => {
            let noted = files::read_text(&layout.container(id).join(PID), read_pid);
            let alive = |process: &Process| matches!(process::open(process), Ok(Some(_)));
            let process = noted.map(|(process, _)| process).filter(alive).ok_or_else(|| {
                Input::quoted(&id.0, "the id of a running container").at("target_id")
            })?;
            Ok(Some(format!("/proc/{}/ns/pid", process.pid)))
        }
    }
}

/// The host's path without links; what is absent becomes a folder.
fn source(mount: &Mount, table: &str) -> Result<String, Error> {
    if mount.image.is_some() {
        return Ok(String::new());
    }
    let path = Path::new(&mount.host_path);
    if !path.is_absolute() {
        return Err(Input::quoted(&mount.host_path, "an absolute path").at("host_path").into());
    }
    let failed = |error: io::Error| Error::System(System::at(&mount.host_path, error));
    let real = match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path).and_then(|()| path.canonicalize())
        }
        real => real,
    };
    let real = real.map_err(failed)?;
    let over = mounts::over(table, &real);
    let (shared, slave) = over.as_ref().map_or((false, false), |over| (over.shared, over.slave));
    let expected = match mount.propagation {
        Propagation::Bidirectional if !shared => "a shared mount",
        Propagation::HostToContainer if !shared && !slave => "a shared or slave mount",
        Propagation::Private | Propagation::HostToContainer | Propagation::Bidirectional => {
            return Ok(text(&real)?.to_owned());
        }
    };
    let point = over.map_or_else(String::new, |over| over.point.into_owned());
    let why = format!("path {:?} is mounted on {point:?} but it is not {expected}", real.display());
    Err(Input::other(why).at("propagation").into())
}

/// The image's volumes that CRI does not mount: folders with what the image has there.
fn volumes(
    layout: &Layout,
    container: &ContainerRecord,
    volumes: &[Box<str>],
    root: &Root,
    users: Option<&Users>,
) -> Result<Vec<(String, String)>, Error> {
    let mounts = &container.config.mounts;
    let plain = |path: &str| path.trim_matches('/').to_owned();
    let mut all = Vec::new();
    for (at, volume) in volumes.iter().enumerate() {
        if mounts.iter().any(|mount| plain(&mount.container_path) == plain(volume)) {
            continue;
        }
        let folder = layout.own_layer(&container.id).join("volumes").join(at.to_string());
        fill(layout, &container.id, volume, &folder, root, users)?;
        all.push((volume.to_string(), text(&folder)?.to_owned()));
    }
    Ok(all)
}

fn fill(
    layout: &Layout,
    id: &ContainerId,
    volume: &str,
    folder: &Path,
    root: &Root,
    users: Option<&Users>,
) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let unfinished = layout.tmp().join(format!("{id}.{VOLUME}"));
    files::remove_tree(&unfinished)?;
    DirBuilder::new().recursive(true).mode(0o755).create(&unfinished)?;
    users.map_or(Ok(()), |users| users.own(&unfinished))?;
    if let Some(from) = root.get(volume, OFlag::O_RDONLY | OFlag::O_DIRECTORY)? {
        let from = format!("/proc/self/fd/{}", from.as_raw_fd());
        copy::layer(&Path::new(&from).join("."), &unfinished)?;
    }
    fs::create_dir_all(folder.parent().expect("below DATA"))?;
    fs::rename(&unfinished, folder)
}

/// Those that are asked for, and all of the machine for a privileged container.
fn devices(config: &ContainerConfig) -> Result<Vec<Device>, Error> {
    let mut all = Vec::new();
    for asked in &config.devices {
        let wrong = |why: Input| Error::Input(why.at(&asked.host_path).at("devices"));
        let access = &*asked.permissions;
        if access.is_empty() || !access.chars().all(|letter| "rwm".contains(letter)) {
            let why = Input::quoted(access, "letters of `rwm`").at("permissions");
            return Err(wrong(why));
        }
        let found = Path::new(&asked.host_path).canonicalize();
        let found = found.map_err(|error| wrong(Input::other(error.to_string())))?;
        let before = all.len();
        for mut device in devices_at(&found)? {
            let below = Path::new(&device.path).strip_prefix(&found).expect("it is below");
            let inside = Path::new(&asked.container_path).join(below);
            // Joined with nothing it would be a folder's path.
            let inside =
                if below.as_os_str().is_empty() { asked.container_path.as_ref() } else { &*inside };
            text(inside)?.clone_into(&mut device.path);
            device.access = Some(access.into());
            all.push(device);
        }
        if all.len() == before {
            return Err(wrong(Input::other("got neither a device nor a folder of devices")));
        }
        too_many(&all)?;
    }
    if config.security.privileged {
        let is_new = |one: &Device| all.iter().all(|asked| asked.path != one.path);
        let others: Vec<Device> =
            devices_at(Path::new("/dev"))?.into_iter().filter(is_new).collect();
        all.extend(others);
    }
    Ok(all)
}

fn too_many(devices: &[Device]) -> io::Result<()> {
    if devices.len() > DEVICES_MAX {
        let why = format!("got more than {DEVICES_MAX} devices");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// This device, or all device nodes below a folder but terminals.
fn devices_at(top: &Path) -> io::Result<Vec<Device>> {
    let meta = fs::metadata(top)?;
    if !meta.is_dir() {
        let kind = meta.file_type();
        let is_device = kind.is_char_device() || kind.is_block_device();
        let found = device(top, &meta, kind.is_block_device()).filter(|_| is_device);
        return Ok(found.into_iter().collect());
    }
    let mut devices = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let (kind, name) = (meta.file_type(), path.file_name().unwrap_or_default());
            let special = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
            if kind.is_dir() && !special.iter().any(|special| name == *special) {
                folders.push(path);
            } else if (kind.is_char_device() || kind.is_block_device()) && name != "console" {
                devices.extend(device(&path, &meta, kind.is_block_device()));
                too_many(&devices)?;
            }
        }
    }
    devices.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(devices)
}

fn device(path: &Path, meta: &fs::Metadata, is_block: bool) -> Option<Device> {
    Some(Device {
        path: path.to_str()?.to_owned(),
        kind: if is_block { "b" } else { "c" },
        major: nix::sys::stat::major(meta.rdev() as _) as _,
        minor: nix::sys::stat::minor(meta.rdev() as _) as _,
        file_mode: meta.mode() & 0o777,
        uid: meta.uid(),
        gid: meta.gid(),
        access: None,
    })
}

/// A profile of the operator's, in OCI's own form.
fn profile(path: &str) -> Result<Box<RawValue>, Error> {
    let wrong = |why: String| Error::Input(Input::other(why).at(path).at("seccomp"));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(SECCOMP_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > SECCOMP_BYTES_MAX {
        return Err(wrong(format!("got more than {SECCOMP_BYTES_MAX} bytes")));
    }
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if !value["defaultAction"].is_string() {
        return Err(wrong("got no defaultAction, expected OCI's linux.seccomp".to_owned()));
    }
    if let Some(key) = ["archMap", "includes"].iter().find(|key| value.get(**key).is_some()) {
        return Err(wrong(format!("got {key:?} of Docker's form, expected OCI's linux.seccomp")));
    }
    RawValue::from_string(text).map_err(|error| wrong(error.to_string()))
}

/// The AppArmor profile: one that CRI names must be loaded; without a name the runtime's own counts
/// where it is.
fn apparmor(security: &ContainerSecurity) -> Result<Option<String>, Error> {
    if security.privileged {
        return Ok(None);
    }
    let loaded = environment::apparmor_profiles();
    let is_loaded = |name: &str| {
        let is_it = |line: &str| line.rsplit_once(" (").is_some_and(|(loaded, _)| loaded == name);
        loaded.lines().any(is_it)
    };
    match &security.apparmor {
        Some(Profile::Localhost(name)) => {
            let name = name.strip_prefix("localhost/").unwrap_or(name);
            let expected = if loaded.is_empty() {
                "no profile, because AppArmor is off or has none"
            } else {
                "a loaded AppArmor profile"
            };
            let missing = || Input::quoted(name, expected).at("apparmor");
            if is_loaded(name) { Ok(Some(name.to_owned())) } else { Err(missing().into()) }
        }
        Some(Profile::RuntimeDefault) | None => {
            Ok(is_loaded(APPARMOR_PROFILE).then(|| APPARMOR_PROFILE.to_owned()))
        }
        Some(Profile::Unconfined) => Ok(None),
    }
}

/// Whether the machine has SELinux. Other machines run the pods that ask for it, as other runtimes
/// do, and say so.
fn selinux(config: &ContainerConfig) -> bool {
    let is_on = Path::new("/sys/fs/selinux/enforce").exists();
    if !is_on && config.security.selinux.is_some() {
        log::warn!("container {}: selinux_options have no effect: SELinux is off", config.name);
    }
    is_on
}

/// Kills what is left of a container and takes down what is in RUN. Succeeds where nothing is.
pub fn end(settings: &Settings, container: &ContainerFolder) -> Result<JobReply, JobFault> {
    ended(settings, container)
        .map(|()| JobReply::Done)
        .map_err(|error| JobFault::Failed(error.to_string()))
}

fn ended(settings: &Settings, container: &ContainerFolder) -> io::Result<()> {
    let id = &*container.id.0;
    Cgroup::find(&container.cgroup)?.kill()?;
    let step = |what| step(&settings.layout, what);
    step("the container is killed");
    let folder = settings.layout.container(&container.id);
    if oci::knows(settings, id) {
        let log = folder.join("delete.log");
        let mut call = oci::command(settings, &log);
        call.args(["delete", "--force", id]);
        // Nothing of it lives. A program that was removed, or is another one by now, leaves its
        // own state.
        if let Err(why) = oci::run(call, &log, OCI_CALL) {
            log::warn!("container {id}: its state is removed: {why}");
            files::remove_tree(&settings.layout.oci().join(id))?;
        }
    }
    step("the OCI runtime has deleted it");
    // The OCI runtime leaves what the container has made in it.
    Cgroup::find(&container.cgroup)?.remove()?;
    step("its cgroup is removed");
    user_namespace::take_down(&folder)?;
    rootfs::take_down(&folder)?;
    step("its root is unmounted");
    files::remove_tree(&folder)
}

fn step(layout: &Layout, what: &str) {
    fail_point::step(layout.run(), Who::Job, what);
}

fn take_down(folder: &Path) -> io::Result<()> {
    user_namespace::take_down(folder)?;
    rootfs::take_down(folder)?;
    files::remove_tree(folder)
}

/// Removes a container's own layer.
pub fn remove(settings: &Settings, id: &ContainerId) -> Result<JobReply, JobFault> {
    remove_layer(&settings.layout, id)
        .map(|()| JobReply::Done)
        .map_err(|error| JobFault::Failed(error.to_string()))
}

/// Renamed first: what remains after a crash is in `tmp`, which a start of the server empties.
fn remove_layer(layout: &Layout, id: &ContainerId) -> io::Result<()> {
    let tmp = |end: &str| layout.tmp().join(format!("{id}.{end}"));
    let old = tmp("old");
    // Of jobs that were killed.
    for unfinished in [&old, &tmp(NEW), &tmp(VOLUME)] {
        files::remove_tree(unfinished)?;
    }
    fs::create_dir_all(layout.tmp())?;
    match fs::rename(layout.own_layer(id), &old) {
        Ok(()) => {
            step(layout, "the own layer is in tmp");
            files::remove_tree(&old)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};

    use super::*;

    #[test]
    fn a_seccomp_profile_is_read_whole_and_in_ocis_form() {
        let path = std::env::temp_dir().join(format!("edged-seccomp-{}", std::process::id()));
        let read = |content: &str| {
            fs::write(&path, content).expect("a file of ours");
            profile(path.to_str().expect("text")).map(|profile| profile.get().len())
        };
        let long = |bytes: usize| {
            let text = "{\"defaultAction\":\"SCMP_ACT_ALLOW\"}";
            format!("{}{text}", " ".repeat(bytes - text.len()))
        };
        assert!(read(&long(SECCOMP_BYTES_MAX as usize)).is_ok());
        for (content, expected) in [
            (&*long(SECCOMP_BYTES_MAX as usize + 1), "got more than 65536 bytes"),
            ("{", "EOF"),
            ("[]", "got no defaultAction"),
            ("{\"defaultAction\":\"A\",\"archMap\":[]}", "got \"archMap\" of Docker's form"),
        ] {
            let why = read(content).expect_err(expected).to_string();
            assert!(why.starts_with("seccomp: ") && why.contains(expected), "{why}");
        }
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn devices_are_found_below_a_folder_up_to_a_bound() {
        let top = std::env::temp_dir().join(format!("edged-devices-{}", std::process::id()));
        for folder in ["deep", "pts", "empty"] {
            fs::create_dir_all(top.join(folder)).expect("folders");
        }
        let node = |name: &str, kind, number| {
            mknod(&top.join(name), kind, Mode::S_IRUSR, number).expect("root may");
        };
        node("null", SFlag::S_IFCHR, makedev(1, 3));
        node("deep/disk", SFlag::S_IFBLK, makedev(7, 300));
        node("pts/0", SFlag::S_IFCHR, makedev(136, 0));
        node("console", SFlag::S_IFCHR, makedev(5, 1));
        let found = devices_at(&top).expect("readable");
        let shown: Vec<_> =
            found.iter().map(|one| (one.kind, one.major, one.minor, one.file_mode)).collect();
        assert_eq!(shown, [("b", 7, 300, 0o400), ("c", 1, 3, 0o400)]);
        for at in found.len()..DEVICES_MAX {
            node(&at.to_string(), SFlag::S_IFCHR, makedev(1, 3));
        }
        assert_eq!(devices_at(&top).expect("as many as may be").len(), DEVICES_MAX);
        node("more", SFlag::S_IFCHR, makedev(1, 3));
        assert!(devices_at(&top).expect_err("one more").to_string().contains("more than 4096"));
        fs::remove_file(top.join("more")).expect("ours");
        let asked = |host: &str, inside: &str, permissions: &str| {
            let devices = vec![crate::model::cri::Device {
                host_path: host.replace("TOP", top.to_str().expect("text")),
                container_path: inside.to_owned(),
                permissions: permissions.into(),
            }];
            let found = devices_of(devices).map_err(|error| error.to_string());
            found.map(|all| (all[0].path.clone(), all[0].access.clone(), all.len()))
        };
        let one = ("/dev/x".to_owned(), Some("rw".into()), 1);
        assert_eq!(asked("TOP/null", "/dev/x", "rw"), Ok(one));
        std::os::unix::fs::symlink("deep", top.join("link")).expect("ours");
        let below = ("/dev/d/disk".to_owned(), Some("rwm".into()), 1);
        assert_eq!(asked("TOP/link", "/dev/d", "rwm"), Ok(below), "as the folder's name says");
        for (host, permissions, expected) in [
            ("TOP/null", "", "permissions: got \"\", expected letters of `rwm`"),
            ("TOP/null", "rx", "permissions: got \"rx\""),
            ("TOP/none", "r", "No such file"),
            ("/etc/passwd", "r", "got neither a device nor a folder of devices"),
            ("TOP/empty", "r", "got neither a device nor a folder"),
        ] {
            let why = asked(host, "/dev/x", permissions).expect_err("refused");
            assert!(why.starts_with("devices: ") && why.contains(expected), "{why}");
        }
        fs::remove_dir_all(&top).expect("ours");
    }

    fn devices_of(devices: Vec<crate::model::cri::Device>) -> Result<Vec<Device>, Error> {
        super::devices(&ContainerConfig { devices, ..ContainerConfig::default() })
    }

    #[test]
    fn a_mount_needs_a_place_that_propagates() {
        let top = std::env::temp_dir().join(format!("edged-source-{}", std::process::id()));
        let path = top.join("made").to_str().expect("text").to_owned();
        let of = |propagation, host_path: &str, options: &str| {
            let table = format!("1 0 8:1 / / rw{options} - ext4 /dev/a rw\n");
            let host_path = host_path.to_owned();
            let mount = Mount { host_path, propagation, ..Mount::default() };
            source(&mount, &table).map_err(|error| error.to_string())
        };
        assert_eq!(of(Propagation::Private, &path, ""), Ok(path.clone()));
        assert!(Path::new(&path).is_dir(), "it is made");
        assert_eq!(of(Propagation::HostToContainer, &path, " master:1"), Ok(path.clone()));
        assert_eq!(of(Propagation::Bidirectional, &path, " shared:1"), Ok(path.clone()));
        let why = of(Propagation::Bidirectional, &path, " master:1").expect_err("not shared");
        assert!(why.ends_with("is mounted on \"/\" but it is not a shared mount"), "{why}");
        assert!(of(Propagation::HostToContainer, &path, "").is_err());
        let why = of(Propagation::Private, "a", "").expect_err("not absolute");
        assert_eq!(why, "host_path: got \"a\", expected an absolute path");
        fs::remove_dir_all(&top).expect("ours");
    }

    #[test]
    fn only_what_has_a_name_is_removed() {
        assert!(files::remove_tree(Path::new("/")).is_err());
        files::remove_tree(Path::new("/none/at/all")).expect("nothing to remove");
        assert_eq!(field("A:\t1\nCapEff:\t00000000a80425fb\n", "CapEff:"), 0xa804_25fb);
    }
}
