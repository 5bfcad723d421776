//! What the built-in runtime needs of this machine: the OCI runtime's program, cgroups, namespaces.
//! For the condition `RuntimeReady` and for `edged check`. Changes nothing.
//!
//! crun is taken, else runc. crun refuses machines where the hierarchies of cgroup v1 are mounted
//! and v2 beside them has controllers: there runc is taken.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{AccessFlags, access};
use serde::Deserialize;

use super::{files, program, user_namespace};
use crate::io::sys;
use crate::limits::OCI_VERSION_MS;
use crate::model::cgroup::Hierarchy;
use crate::model::error::System;
use crate::model::runtime::Handler;

/// What it runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Absolute: for `Settings::oci`.
    pub oci: PathBuf,
    /// The first line of `--version`: `crun version 1.8.1`.
    pub version: String,
    /// What some containers will miss, a sentence each.
    pub remarks: Vec<String>,
}

/// The reason and the message of a condition that is false.
pub type NotReady = (Box<str>, Box<str>);

/// Looks, and runs `--version`. `Err`: the reason and the message of the condition.
pub fn examine() -> Result<Environment, NotReady> {
    let machine = Machine::read();
    let mut remarks = machine.remarks();
    let mut failures = Vec::new();
    for (oci, remark) in machine.candidates()? {
        match version(&oci) {
            Ok(version) => {
                remarks.extend(remark);
                remarks.extend(failures);
                return Ok(Environment { oci, version, remarks });
            }
            Err(why) => failures.push(why.to_string()),
        }
    }
    Err(("OCIRuntimeFailed".into(), failures.join("; ").into()))
}

/// The runtime handlers: the default one, those that are `named`, and `crun` and `runc` where they
/// work here and no other has the name. `data`: where the layers of images are. `Err`: a named one
/// does not work.
pub fn handlers(
    default: &Path,
    named: Vec<(String, PathBuf)>,
    data: &Path,
) -> Result<Vec<Handler>, System> {
    let kernel = has_mount_setattr();
    let users = files::make_dir(data).and_then(|()| user_namespace::works(data));
    if let Err(why) = &users {
        log::info!("pods with `hostUsers: false` cannot run here: {why}");
    }
    let user_namespaces = users.is_ok();
    let handler = |name: &str, program: &Path| {
        let recursive_read_only = kernel && makes_recursive(program, &version(program)?);
        let program = program.to_string_lossy().into();
        Ok::<_, System>(Handler {
            name: name.into(),
            program,
            recursive_read_only,
            user_namespaces,
        })
    };
    let mut all = vec![handler("", default)?];
    for (name, program) in named {
        all.push(handler(&name, &program)?);
    }
    for (program, _) in Machine::read().candidates().unwrap_or_default() {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if all.iter().all(|other| *other.name != *name) {
            all.extend(handler(&name, &program).ok());
        }
    }
    Ok(all)
}

/// The first line of `--version`.
fn version(program: &Path) -> Result<String, System> {
    let text = said(program, "--version")?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// What the program says if it is called with this one word.
fn said(program: &Path, word: &str) -> Result<String, System> {
    let mut command = Command::new(program);
    command.arg(word).current_dir("/");
    let ended = program::run(&mut command, b"", OCI_VERSION_MS)?;
    if !ended.status.success() {
        return Err(System::at(program.display(), format_args!("{word}: {}", ended.status)));
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// mount_setattr(2): Linux 5.12.
fn has_mount_setattr() -> bool {
    let release = nix::sys::utsname::uname().map(|it| it.release().to_os_string());
    let release = release.unwrap_or_default();
    numbers(&release.to_string_lossy()).is_some_and(|version| version >= (5, 12))
}

/// Whether it knows the mount option `rro`. crun 1.8.1 does, and tells of it from 1.8.6 on.
fn makes_recursive(program: &Path, version: &str) -> bool {
    if let Ok(features) = said(program, "features") {
        return serde_json::from_str::<Features>(&features)
            .is_ok_and(|features| features.mount_options.iter().any(|option| option == "rro"));
    }
    let crun = version.strip_prefix("crun version ").and_then(numbers);
    crun.is_some_and(|version| version >= (1, 8))
}

/// The output of `features` (OCI runtime-spec, features.md).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Features {
    #[serde(default)]
    mount_options: Vec<String>,
}

/// The first two numbers of a version: `5.12` of `5.12.0-rc1`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// What is there.
#[derive(Clone, Debug, Default)]
struct Machine {
    crun: Option<PathBuf>,
    runc: Option<PathBuf>,
    hierarchy: Hierarchy,
    /// Controllers of v2 beside v1.
    beside: String,
    /// Of this hierarchy.
    controllers: Vec<String>,
    /// Kinds in `/proc/self/ns`.
    namespaces: Vec<String>,
    /// `/proc/filesystems`
    filesystems: String,
    /// `/proc/self/status`
    status: String,
    /// The kernel has AppArmor on, and these profiles.
    apparmor: Option<String>,
}

/// Kinds that every pod has.
const NAMESPACES: [&str; 5] = ["ipc", "mnt", "net", "pid", "uts"];

impl Machine {
    fn read() -> Self {
        let top = Path::new(sys::CGROUPS);
        let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let hierarchy = sys::cgroups().hierarchy;
        let beside = match hierarchy {
            Hierarchy::V1 => text(top.join("unified/cgroup.controllers")),
            Hierarchy::V2 | Hierarchy::None => String::new(),
        };
        let controllers = match hierarchy {
            Hierarchy::V1 => files::names(top),
            Hierarchy::V2 => {
                let all = text(top.join("cgroup.controllers"));
                all.split_whitespace().map(str::to_owned).collect()
            }
            Hierarchy::None => Vec::new(),
        };
        Self {
            crun: find("crun"),
            runc: find("runc"),
            hierarchy,
            beside,
            controllers,
            namespaces: files::names(Path::new("/proc/self/ns")),
            filesystems: text("/proc/filesystems".into()),
            status: text("/proc/self/status".into()),
            apparmor: text("/sys/module/apparmor/parameters/enabled".into())
                .starts_with('Y')
                .then(apparmor_profiles),
        }
    }

    /// The programs to try, the best first, each with what is to be said about the choice.
    fn candidates(&self) -> Result<Vec<(PathBuf, Option<String>)>, NotReady> {
        let missing: Vec<&str> = NAMESPACES
            .into_iter()
            .filter(|kind| !self.namespaces.iter().any(|there| there == kind))
            .collect();
        if !missing.is_empty() {
            let why = format!("the kernel has no namespaces of kind {}", missing.join(", "));
            return Err(("NamespacesMissing".into(), why.into()));
        }
        if self.hierarchy == Hierarchy::None {
            let why = format!("no cgroups that can be written to are mounted on {}", sys::CGROUPS);
            return Err(("CgroupsMissing".into(), why.into()));
        }
        let beside = self.beside.trim();
        let hybrid = (!beside.is_empty()).then(|| {
            format!(
                "crun does not work here: cgroup v1 is mounted, and v2 beside it has controllers \
                 ({beside}); boot with systemd.unified_cgroup_hierarchy=1 or 0"
            )
        });
        let taken = |why: &String| format!("runc is taken: {why}");
        let crun = self.crun.iter().filter(|_| hybrid.is_none());
        let found: Vec<(PathBuf, Option<String>)> = crun
            .map(|crun| (crun.clone(), None))
            .chain(self.runc.iter().map(|runc| (runc.clone(), hybrid.as_ref().map(taken))))
            .collect();
        if found.is_empty() {
            let why = match (hybrid, &self.crun) {
                (Some(why), Some(_)) => format!("{why}, or install runc"),
                _ => "neither crun nor runc is installed".to_owned(),
            };
            return Err(("OCIRuntimeMissing".into(), why.into()));
        }
        Ok(found)
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let wanted: &[&str] = match self.hierarchy {
            Hierarchy::V1 => &["cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"],
            Hierarchy::V2 => &["cpu", "cpuset", "memory", "pids"],
            Hierarchy::None => &[],
        };
        let has = |name: &&&str| !self.controllers.iter().any(|there| there == *name);
        let missing: Vec<&str> = wanted.iter().filter(has).copied().collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            remarks.push(format!("containers that need these cgroup controllers fail: {missing}"));
        }
        if self.status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"])) {
            let why = "containers inherit that this process gets no new privileges, and what goes \
                       with it: under systemd edged.service needs edged-builtin.conf over it";
            remarks.push(why.to_owned());
        }
        let overlay = |line: &str| line.split_whitespace().next_back() == Some("overlay");
        if !self.filesystems.lines().any(overlay) {
            let why = "the kernel has no overlay file system, unless it is a module that is loaded \
                       at its first mount: otherwise each container has a copy of its image";
            remarks.push(why.to_owned());
        }
        let own = |line: &str| line.starts_with(APPARMOR_PROFILE);
        if self.apparmor.as_ref().is_some_and(|profiles| !profiles.lines().any(own)) {
            let why = "AppArmor is on, and no profile has the name";
            let then = "containers that ask for the runtime's default have none";
            remarks.push(format!("{why} {APPARMOR_PROFILE}: {then}"));
        }
        remarks
    }
}

/// The AppArmor profile of containers that ask for the runtime's default, where it is loaded.
pub(super) const APPARMOR_PROFILE: &str = "edged-default";

/// A line for each loaded profile: `NAME (MODE)`. Empty: AppArmor is off.
pub(super) fn apparmor_profiles() -> String {
    fs::read_to_string("/sys/kernel/security/apparmor/profiles").unwrap_or_default()
}

/// A program in the folders of PATH, and in the usual ones.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = env::var_os("PATH").unwrap_or_default();
    let usual = OsString::from(program::PATH);
    let mut paths = env::split_paths(&own).chain(env::split_paths(&usual)).map(|it| it.join(name));
    paths.find(|path| {
        path.is_absolute() && path.is_file() && access(path, AccessFlags::X_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Machine {
            crun: Some("/usr/bin/crun".into()),
            runc: Some("/usr/sbin/runc".into()),
            hierarchy: Hierarchy::V2,
            beside: String::new(),
            controllers: all(&["cpu", "cpuset", "memory", "pids", "io"]),
            namespaces: all(&["ipc", "mnt", "net", "pid", "uts", "user"]),
            filesystems: "nodev\ttmpfs\nnodev\toverlay\n\text4\n".to_owned(),
            status: "NoNewPrivs:\t0\nSeccomp:\t0\n".to_owned(),
            apparmor: Some("edged-default (enforce)\n".to_owned()),
        }
    }

    /// The programs by their names, or the reason.
    fn chosen(machine: &Machine) -> String {
        match machine.candidates() {
            Ok(all) => {
                let name = |path: &Path| path.file_name().map(|it| it.to_string_lossy().into());
                all.iter().filter_map(|(path, _)| name(path)).collect::<Vec<String>>().join(" ")
            }
            Err((reason, _)) => reason.into(),
        }
    }

    #[test]
    fn crun_is_taken_and_runc_where_crun_does_not_work() {
        let whole = machine();
        assert_eq!((&*chosen(&whole), whole.remarks()), ("crun runc", vec![]));
        let hybrid =
            Machine { hierarchy: Hierarchy::V1, beside: "hugetlb\n".to_owned(), ..whole.clone() };
        assert_eq!(chosen(&hybrid), "runc");
        let (_, remark) = hybrid.candidates().expect("runc").remove(0);
        let remark = remark.unwrap_or_default();
        assert!(
            remark.starts_with("runc is taken: crun does not work here: cgroup v1"),
            "{remark}"
        );
        assert!(remark.contains("v2 beside it has controllers (hugetlb)"), "{remark}");
        let without = Machine { runc: None, ..hybrid };
        assert_eq!(chosen(&without), "OCIRuntimeMissing");
        let why = without.candidates().expect_err("none").1;
        assert!(why.ends_with("=1 or 0, or install runc"), "{why}");
        for (lacks, expected) in [
            (Machine { crun: None, ..whole.clone() }, "runc"),
            (Machine { crun: None, runc: None, ..whole.clone() }, "OCIRuntimeMissing"),
            (Machine { hierarchy: Hierarchy::None, ..whole.clone() }, "CgroupsMissing"),
            (Machine { namespaces: vec!["mnt".to_owned()], ..whole }, "NamespacesMissing"),
        ] {
            assert_eq!(chosen(&lacks), expected);
        }
    }

    #[test]
    fn what_only_some_containers_miss_is_a_remark() {
        let lacks = Machine {
            controllers: vec!["cpu".to_owned()],
            filesystems: "nodev\toverlay2\n".to_owned(),
            status: "NoNewPrivs:\t1\n".to_owned(),
            apparmor: Some("web (enforce)\n".to_owned()),
            ..machine()
        };
        let [controllers, unit, overlay, apparmor] = &lacks.remarks()[..] else { panic!("four") };
        assert!(unit.ends_with("edged.service needs edged-builtin.conf over it"), "{unit}");
        assert!(apparmor.contains("no profile has the name edged-default"), "{apparmor}");
        assert!(controllers.ends_with("fail: cpuset, memory, pids"), "{controllers}");
        assert!(overlay.starts_with("the kernel has no overlay"), "{overlay}");
    }

    #[test]
    fn this_machine_can_run_containers() {
        let found = examine().expect("the tests' machine has runc or crun");
        assert!(found.oci.is_absolute() && found.version.contains("version"), "{found:?}");
        const { assert!(OCI_VERSION_MS >= 1_000, "it may have to be read from slow flash") };
        assert_eq!(find("no such program"), None);
    }

    #[test]
    fn handlers_are_the_default_the_named_ones_and_those_that_work_here() {
        let found = examine().expect("the tests' machine has runc or crun");
        let names = |all: &[Handler]| all.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
        let plain = handlers(&found.oci, Vec::new(), &env::temp_dir()).expect("it works");
        let own = found.oci.file_name().expect("a name").to_string_lossy();
        assert!(plain[0].name.is_empty() && names(&plain).contains(&own.into_owned()));
        let named = vec![("runc".to_owned(), found.oci.clone())];
        let all = handlers(&found.oci, named, &env::temp_dir()).expect("it works");
        assert_eq!(all.iter().filter(|it| *it.name == *"runc").count(), 1, "{all:?}");
        assert_eq!(*all[1].program, *found.oci.to_string_lossy());
        let broken = vec![("broken".to_owned(), "/bin/false".into())];
        let why = handlers(&found.oci, broken, &env::temp_dir());
        let why = why.expect_err("it fails").to_string();
        assert_eq!(why, "/bin/false: --version: exit status: 1");
    }

    #[test]
    fn recursive_mounts_need_a_kernel_and_a_program_that_know_them() {
        let versions = ["6.18.44-fc", "5.12", "5.12.0-rc1", "5.4.0", "x", "6"].map(numbers);
        let expected = [Some((6, 18)), Some((5, 12)), Some((5, 12)), Some((5, 4)), None, None];
        assert_eq!(versions, expected);
        // It has no `features`, as crun before 1.8.6.
        let old = Path::new("/bin/false");
        assert!(makes_recursive(old, "crun version 1.8.1"));
        assert!(!makes_recursive(old, "crun version 1.7") && !makes_recursive(old, "runc 1.0.0"));
        // Its features are none.
        assert!(!makes_recursive(Path::new("/bin/echo"), "crun version 1.8.1"));
    }
}
