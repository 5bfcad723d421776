//! `scripts/install` into root file systems of all kinds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::{Scratch, TOP};

/// Installs into a root with these files and tells what init it took.
fn install(scratch: &Scratch, before: &[&str]) -> String {
    for file in before {
        scratch.program(&format!("root/{file}"), "for i in /etc/init.d/S??* ; do :; done\n");
    }
    fs::create_dir_all(scratch.path("root")).expect("a folder of ours");
    let binary = scratch.program("edged", "#!/bin/sh\n");
    let mut command = scratch.sh("scripts/install");
    command.arg("--root").arg(scratch.path("root")).arg("--binary").arg(binary);
    let done = command.output().expect("busybox runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}{why}");
    for (file, mode) in [
        ("usr/sbin/edged", 0o755),
        ("usr/sbin/edged-run", 0o755),
        ("etc/default/edged", 0o644),
        ("etc/kubeedge/config/edgecore.yaml", 0o644),
    ] {
        let about = fs::metadata(scratch.path("root").join(file)).expect(file);
        assert_eq!(about.permissions().mode() & 0o777, mode, "{file}");
    }
    assert!(scratch.path("root/etc/kubeedge/manifests").is_dir());
    said.lines().last().expect("it says what it did").to_owned()
}

#[test]
fn busybox_gets_its_line_once() {
    let scratch = Scratch::new();
    assert!(install(&scratch, &["etc/inittab"]).contains("for inittab"));
    assert!(install(&scratch, &[]).contains("for inittab"));
    let inittab = fs::read_to_string(scratch.path("root/etc/inittab")).expect("it is there");
    assert_eq!(inittab.matches("\n::respawn:/usr/sbin/edged-run\n").count(), 1, "{inittab}");
}

#[test]
fn buildroots_scripts_get_one_of_theirs() {
    let scratch = Scratch::new();
    assert!(install(&scratch, &["etc/inittab", "etc/init.d/rcS"]).contains("for sysv"));
    let script = fs::read_to_string(scratch.path("root/etc/init.d/S90edged")).expect("it is there");
    assert_eq!(script, fs::read_to_string(Path::new(TOP).join("config/init/S90edged")).expect(TOP));
}

#[test]
fn openrc_and_systemd_get_a_service_that_starts_at_boot() {
    let scratch = Scratch::new();
    assert!(install(&scratch, &["sbin/openrc-run"]).contains("for openrc"));
    assert!(scratch.path("root/etc/init.d/edged").is_file());
    assert!(scratch.path("root/etc/runlevels/default/edged").is_symlink());
    let scratch = Scratch::new();
    assert!(install(&scratch, &["lib/systemd/systemd"]).contains("for systemd"));
    let wants = "root/etc/systemd/system/multi-user.target.wants/edged.service";
    assert!(
        fs::read_to_string(scratch.path(wants)).expect("the link leads there").contains("Unit")
    );
}

#[test]
fn what_was_configured_stays() {
    let scratch = Scratch::new();
    install(&scratch, &["etc/inittab"]);
    let config = scratch.path("root/etc/kubeedge/config/edgecore.yaml");
    fs::write(&config, "# ours\n").expect("it is there");
    install(&scratch, &["etc/inittab"]);
    assert_eq!(fs::read_to_string(&config).expect("it is there"), "# ours\n");
}

#[test]
fn a_machine_without_a_known_init_is_told() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("root")).expect("a folder of ours");
    let binary = scratch.program("edged", "#!/bin/sh\n");
    let mut command = scratch.sh("scripts/install");
    command.arg("--root").arg(scratch.path("root")).arg("--binary").arg(binary);
    let done = command.output().expect("busybox runs");
    assert!(!done.status.success());
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(why.contains("give --init"), "{why}");
}
