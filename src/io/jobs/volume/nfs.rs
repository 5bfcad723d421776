//! NFS volumes. mount(8) resolves the server and negotiates the version; it may
//! block, and so may any access to the folder: all of it runs in a child of the agent.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;

use super::super::{Component, Failure, tree};
use super::{make_plugin, mount, open_pod};
use crate::model::job::VolumeSetUp;

const PLUGIN: &str = "kubernetes.io~nfs";

pub(super) struct Export<'a> {
    pub server: &'a str,
    pub path: &'a str,
    pub read_only: bool,
    pub options: &'a [Box<str>],
}

/// Mounts it, if it is not mounted.
pub(super) fn set_up(
    pods: BorrowedFd<'_>,
    wanted: &VolumeSetUp,
    export: &Export<'_>,
) -> Result<(), Failure> {
    let pod = open_pod(pods, &wanted.uid)?;
    let plugin = make_plugin(pod.as_fd(), PLUGIN)?;
    let name = Component::new(wanted.folder.as_ref())?;
    tree::make_place(plugin.as_fd(), name, Mode::from_bits_truncate(0o750))?;
    let place = mount::at(plugin.as_fd(), name)?;
    if mount::is_mounted(plugin.as_fd(), place.as_fd()) {
        return Ok(());
    }
    let arguments = arguments(export, name);
    // The path starts at the open folder, so that it cannot be replaced by another.
    let mut command = Command::new("mount");
    command
        .args(&arguments)
        .current_dir(format!("/proc/self/fd/{}", plugin.as_raw_fd()))
        .stdin(Stdio::null());
    let shown = || arguments.iter().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let ended = command.output().map_err(|error| Failure(format!("cannot run mount: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(Failure(format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
        ended.status,
        shown(),
        String::from_utf8_lossy(&ended.stderr).trim()
    )))
}

fn arguments(export: &Export<'_>, name: Component<'_>) -> Vec<OsString> {
    let mut options: Vec<&str> = export.options.iter().map(|option| &**option).collect();
    if export.read_only {
        options.push("ro");
    }
    let server = match export.server {
        v6 if v6.contains(':') && !v6.starts_with('[') => format!("[{v6}]"),
        server => server.to_owned(),
    };
    let mut arguments: Vec<OsString> = vec!["-t".into(), "nfs".into()];
    if !options.is_empty() {
        arguments.extend(["-o".into(), options.join(",").into()]);
    }
    arguments.push(format!("{server}:{}", export.path).into());
    let mut place = OsString::from("./");
    place.push(name.as_os_str());
    arguments.push(place);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_is_told_what_and_where() {
        for (server, read_only, options, want) in [
            ("nas", false, &[][..], "-t nfs nas:/a b ./v"),
            ("10.0.0.1", true, &[], "-t nfs -o ro 10.0.0.1:/a b ./v"),
            (
                "fd00::1",
                true,
                &["hard", "vers=4.1"],
                "-t nfs -o hard,vers=4.1,ro [fd00::1]:/a b ./v",
            ),
        ] {
            let options: Vec<Box<str>> = options.iter().map(|&option| option.into()).collect();
            let export = Export { server, path: "/a b", read_only, options: &options };
            let name = Component::new("v").expect("a name");
            let got: Vec<_> = arguments(&export, name)
                .iter()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect();
            assert_eq!(got.join(" "), want);
            let export = &got[got.len() - 2];
            assert!(export.ends_with("/a b"), "one argument: no shell parts it");
        }
    }
}
