//! `scripts/install` into various root file systems.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{Scratch, TOP, program};

/// An unpacked release in this folder, with this file as edged; the machine's own tools make the
/// checksums.
fn release(scratch: &Scratch, folder: &str, edged: &str) {
    let program = scratch.program(&format!("{folder}/edged"), edged);
    let folder = program.parent().expect("below ours");
    let mut command = Command::new("cp");
    command.arg("-R").arg(Path::new(TOP).join("scripts/install"));
    command.arg(Path::new(TOP).join("config")).arg(folder);
    assert!(command.status().expect("coreutils").success());
    let sums = "find . -type f ! -name SHA256SUMS | xargs sha256sum >SHA256SUMS";
    let done = Command::new("sh").args(["-c", sums]).current_dir(folder).status();
    assert!(done.expect("coreutils").success());
}

/// Installs into a root with these files and returns the init system that it detected.
fn install(scratch: &Scratch, before: &[&str]) -> String {
    for file in before {
        scratch.program(&format!("root/{file}"), "for i in /etc/init.d/S??* ; do :; done\n");
    }
    fs::create_dir_all(scratch.path("root")).expect("a folder of ours");
    let binary = scratch.program("edged", "#!/bin/sh\n");
    let mut command = scratch.sh("scripts/install");
    command.arg("--root").arg(scratch.path("root")).arg("--binary").arg(binary);
    let done = command.output().expect("busybox runs");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{output}{why}");
    for (file, mode) in [
        ("usr/sbin/edged", 0o755),
        ("usr/sbin/edged-run", 0o755),
        ("etc/default/edged", 0o644),
        ("etc/kubeedge/config/edgecore.yaml", 0o600),
    ] {
        let about = fs::metadata(scratch.path("root").join(file)).expect(file);
        assert_eq!(about.permissions().mode() & 0o777, mode, "{file}");
    }
    assert!(scratch.path("root/etc/kubeedge/manifests").is_dir());
    output.lines().last().expect("it reports what it did").to_owned()
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

/// What systemd reports against the installed service.
#[test]
fn systemd_understands_all_of_the_service() {
    let scratch = Scratch::new();
    install(&scratch, &["lib/systemd/systemd"]);
    let unit = scratch.path("root/etc/systemd/system/edged.service");
    let verified = |text: &str| -> Vec<String> {
        // Its program exists, wherever this root is.
        let program = scratch.path("root/usr/sbin/edged-run").display().to_string();
        fs::write(&unit, text.replace("/usr/sbin/edged-run", &program)).expect("a file of ours");
        let mut command = Command::new("systemd-analyze");
        let done = command.args(["verify", "--man=no"]).arg(&unit).output();
        let done = done.expect("systemd-analyze is missing: run `make setup`");
        let output = String::from_utf8_lossy(&done.stderr).into_owned();
        output.lines().filter(|line| line.contains("edged.service")).map(str::to_owned).collect()
    };
    let text = fs::read_to_string(&unit).expect("it was installed");
    assert_eq!(verified(&text), [] as [&str; 0]);
    let wrong = verified(&text.replace("KillMode=process", "KillMode=gently"));
    assert!(wrong.iter().any(|line| line.contains("kill mode")), "{wrong:?}");
    // What stands over it where the runtime is built in.
    let over = fs::read_to_string(Path::new(TOP).join("config/init/edged-builtin.conf"));
    let over = over.expect("it is there");
    let drop_in = unit.with_extension("service.d").join("builtin.conf");
    fs::create_dir_all(drop_in.parent().expect("a folder")).expect("a folder of ours");
    fs::write(&drop_in, &over).expect("a file of ours");
    assert_eq!(verified(&text), [] as [&str; 0]);
    fs::write(&drop_in, over.replace("Delegate=yes", "Delegate=perhaps")).expect("ours");
    let mut command = Command::new("systemd-analyze");
    let done = command.args(["verify", "--man=no"]).arg(&unit).output().expect("it runs");
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(why.contains("builtin.conf"), "{why}");
}

/// What it is restricted in, and what it must not be restricted in: mounts in its own namespace
/// would be invisible to pods, and folders of an fsGroup have the setgid bit.
#[test]
fn systemd_bounds_what_the_service_may_do() {
    let text = fs::read_to_string(Path::new(TOP).join("config/init/edged.service")).expect(TOP);
    for line in ["MemoryMax=50%", "NoNewPrivileges=yes", "LimitCORE=0", "LockPersonality=yes"] {
        assert!(text.lines().any(|other| other == line), "{line} is missing");
    }
    for bad in [
        "Protect",
        "Private",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "MountFlags",
        "RestrictSUIDSGID",
        "RestrictNamespaces",
        "RootDirectory",
        "DynamicUser",
    ] {
        let mut lines = text.lines();
        assert!(!lines.any(|line| line.starts_with(bad)), "{bad} hides volumes, or refuses them");
    }
}

/// Containers inherit what their server may not do: a filter of system calls, no new privileges,
/// capabilities that are gone for good.
#[test]
fn with_the_built_in_runtime_systemd_bounds_nothing_that_containers_would_inherit() {
    let read = |name: &str| fs::read_to_string(Path::new(TOP).join(name)).expect("it is there");
    let (unit, over) = (read("config/init/edged.service"), read("config/init/edged-builtin.conf"));
    let set = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let over = set(&over);
    let begin = ["NoNew", "Capability", "Restrict", "Lock", "MemoryDeny", "SystemCall"];
    for (key, value) in set(&unit) {
        if begin.iter().any(|begin| key.starts_with(begin)) {
            let is_over = |(other, now): &(String, String)| *other == key && *now != value;
            assert!(over.iter().any(is_over), "{key}={value} is left to containers");
        }
    }
    // What serves Services, and the monitors of containers, outlive edged.
    assert!(set(&unit).contains(&("KillMode".to_owned(), "process".to_owned())));
    assert!(over.iter().all(|(key, _)| key != "KillMode"));
}

/// OpenRC sources it in the machine's shell, and so does this test, as far as OpenRC would call it.
#[test]
fn openrcs_service_starts_and_reloads_the_keeper() {
    let scratch = Scratch::new();
    install(&scratch, &["sbin/openrc-run"]);
    scratch.program("bin/supervise-daemon", "#!/bin/sh\necho \"supervise-daemon $*\"\n");
    let script = scratch.program(
        "asked",
        "set -eu\nRC_SVCNAME=edged\nafter() { echo \"after $*\"; }\n. \"$1\"\ndepend\n\
         echo \"$supervisor $command $respawn_delay $respawn_max $extra_started_commands\"\n\
         reload\n",
    );
    let mut command = Command::new("/bin/busybox");
    command.arg("sh").arg(script).arg(scratch.path("root/etc/init.d/edged"));
    let done = command.env("PATH", scratch.path("bin")).output().expect("busybox runs");
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{why}");
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "after containerd\nsupervise-daemon /usr/sbin/edged-run 1 0 reload\n\
         supervise-daemon edged --signal HUP\n"
    );
}

/// A file with Windows' line ends, or half a file, would be noticed only at the first boot.
#[test]
fn whatever_a_shell_runs_at_boot_is_a_script() {
    let scratch = Scratch::new();
    install(&scratch, &["etc/inittab", "etc/init.d/rcS"]);
    install(&scratch, &["sbin/openrc-run"]);
    for file in ["usr/sbin/edged-run", "etc/init.d/S90edged", "etc/default/edged"] {
        let mut command = Command::new("/bin/busybox");
        let done = command.args(["sh", "-n"]).arg(scratch.path("root").join(file)).output();
        let done = done.expect("busybox runs");
        assert!(done.status.success(), "{file}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn the_configuration_of_a_fresh_root_names_where_everything_lies() {
    let scratch = Scratch::new();
    install(&scratch, &["etc/inittab"]);
    let config = scratch.path("root/etc/kubeedge/config/edgecore.yaml");
    let config = fs::read_to_string(config).expect("it is there");
    for key in ["dataSource: /", "rootDirectory: /", "podLogsDir: /", "staticPodPath: /"] {
        assert!(config.lines().any(|line| line.trim_start().starts_with(key)), "{key}");
    }
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

/// Installs with these options into a root with these files, which are programs; returns the exit
/// code and what it said.
fn with_runtime(scratch: &Scratch, before: &[&str], options: &[&str]) -> (bool, String) {
    for file in before {
        scratch.program(&format!("root/{file}"), "#!/bin/sh\n");
    }
    fs::create_dir_all(scratch.path("root")).expect("a folder of ours");
    // What tells a program of another machine that has a runtime.
    let binary = scratch.program("edged", "#!/bin/sh\n# edged-monitor\n");
    let mut command = scratch.sh("scripts/install");
    command.args(["--init", "systemd", "--root"]).arg(scratch.path("root"));
    command.arg("--binary").arg(binary).args(options);
    let done = command.output().expect("busybox runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The keys of edgecore.yaml about the runtime.
fn named(scratch: &Scratch) -> Vec<String> {
    let config = scratch.read("root/etc/kubeedge/config/edgecore.yaml");
    let lines = config.lines().map(str::trim).filter(|line| line.starts_with("containerRuntime"));
    lines.map(str::to_owned).collect()
}

const CONFLIST: &str = "root/etc/cni/net.d/10-edged.conflist";
const DROP_IN: &str = "root/etc/systemd/system/edged.service.d/builtin.conf";

#[test]
fn a_machine_without_a_runtime_gets_the_built_in_one_and_is_told_what_it_lacks() {
    let scratch = Scratch::new();
    let (done, said) = with_runtime(&scratch, &["usr/bin/crun"], &[]);
    assert!(done, "{said}");
    assert_eq!(
        named(&scratch),
        ["containerRuntime: builtin", "containerRuntimeEndpoint: null"],
        "{said}"
    );
    assert!(said.contains("lacks: CNI plugins, nft or iptables\n"), "{said}");
    assert!(said.contains("apt-get install crun containernetworking-plugins"), "{said}");
    let shipped = Path::new(TOP).join("config/cni/10-edged.conflist");
    let shipped = fs::read_to_string(shipped).expect("it is there");
    assert_eq!(scratch.read(CONFLIST), shipped.trim());
    assert!(!scratch.read(DROP_IN).contains("KillMode"), "the unit has it for every runtime");
    // Once more: the file stays, and so does what goes with it.
    fs::remove_file(scratch.path(DROP_IN)).expect("it is there");
    let all = ["usr/sbin/iptables", "usr/lib/cni/bridge"];
    let (done, said) = with_runtime(&scratch, &all, &[]);
    assert!(done && scratch.path(DROP_IN).exists() && !said.contains("lacks"), "{said}");
    assert!(said.contains("10-edged.conflist stays"), "{said}");
}

#[test]
fn a_network_that_is_there_stays_the_only_one() {
    let scratch = Scratch::new();
    let (done, said) = with_runtime(&scratch, &["etc/cni/net.d/20-own.conf"], &[]);
    assert!(done && said.contains("20-own.conf stays, and is the network of the pods"), "{said}");
    assert!(!scratch.path(CONFLIST).exists());
}

#[test]
fn the_runtime_that_is_installed_is_named_unless_another_is_asked_for() {
    let unset = ["containerRuntime: remote", "containerRuntimeEndpoint: null"];
    let containerd = [
        "containerRuntime: remote",
        "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock",
    ];
    let builtin = ["containerRuntime: builtin", "containerRuntimeEndpoint: null"];
    for (before, options, expected) in [
        ("usr/bin/containerd", &[][..], containerd),
        ("usr/bin/crio", &[], unset),
        ("usr/bin/containerd", &["--runtime", "builtin"], builtin),
        ("usr/bin/other", &["--runtime", "containerd"], containerd),
    ] {
        let scratch = Scratch::new();
        let (done, said) = with_runtime(&scratch, &[before], options);
        assert!(done, "{said}");
        assert_eq!(named(&scratch), expected, "{before} {options:?}: {said}");
        assert_eq!(scratch.path(DROP_IN).exists(), expected == builtin);
    }
    let scratch = Scratch::new();
    let (done, said) = with_runtime(&scratch, &[], &["--runtime", "docker"]);
    assert!(!done && said.contains("--runtime containerd|builtin"), "{said}");
}

#[test]
fn pods_of_containerd_are_begun_anew_only_if_that_is_asked_for() {
    let scratch = Scratch::new();
    let pod = "var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/0123/hosts";
    let (done, said) = with_runtime(&scratch, &[pod], &["--runtime", "builtin"]);
    assert!(!done && said.contains("containerd has 1 pods"), "{said}");
    assert!(said.contains("nothing was changed; --begin-pods-anew goes on"), "{said}");
    assert!(!scratch.path("root/etc").exists() && !scratch.path("root/usr").exists());
    let (done, said) = with_runtime(&scratch, &[], &["--runtime", "builtin", "--begin-pods-anew"]);
    assert!(done && said.contains("they are begun anew"), "{said}");
    assert_eq!(named(&scratch)[0], "containerRuntime: builtin");
}

/// Whatever sha256sum is used.
#[test]
fn a_release_is_whole_or_refused() {
    for tools in ["busybox", "the machine's"] {
        let scratch = Scratch::new();
        release(&scratch, "release", "#!/bin/sh\n");
        let run = || {
            let mut command = match tools {
                "busybox" => Command::new("/bin/busybox"),
                _ => Command::new("/bin/sh"),
            };
            if tools == "busybox" {
                command.arg("sh").env("PATH", scratch.path("bin"));
            }
            command.arg(scratch.path("release/install")).args(["--init", "sysv", "--root"]);
            let done = command.arg(scratch.path("root")).output().expect("a shell");
            (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
        };
        let (done, why) = run();
        assert!(done, "{tools}: {why}");
        assert!(scratch.path("root/usr/sbin/edged").is_file(), "{tools}");
        scratch.program("release/edged", "#!/bin/sh\n# spoilt\n");
        let (done, why) = run();
        assert!(!done && why.contains("the release is damaged"), "{tools}: {why}");
    }
}

/// A gateway whose root is a folder, with busybox and `EDGED_HOME` on a separate partition.
struct Gateway<'a>(&'a Scratch);

impl<'a> Gateway<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        scratch.program("root/etc/default/edged", "EDGED_HOME=/data\n");
        for folder in ["root/dev", "root/data"] {
            fs::create_dir_all(scratch.path(folder)).expect("a folder of ours");
        }
        let busybox = fs::read("/bin/busybox").expect("it is there");
        program::write(&scratch.path("root/bin/busybox"), &busybox);
        let gateway = Self(scratch);
        gateway.run(&["/bin/busybox", "--install", "-s", "/bin"]).expect("busybox runs");
        gateway
    }

    /// Its output, or its error message.
    fn run(&self, command: &[&str]) -> Result<String, String> {
        let mut chroot = Command::new("/bin/busybox");
        chroot.arg("chroot").arg(self.0.path("root")).args(command).env("PATH", "/bin");
        let done = chroot.output().expect("busybox runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    fn install(&self, version: &str) -> Result<String, String> {
        release(self.0, "root/release", &format!("#!/bin/sh\necho {version}\n"));
        self.run(&["/release/install", "--init", "sysv", "--unsigned"])
    }

    /// The same with a release that this key signed, and this content of `release.pub`.
    fn install_signed(&self, version: &str, key: &str) -> Result<String, String> {
        let folder = self.0.path("root/release");
        fs::create_dir_all(&folder).expect("a folder of ours");
        fs::write(folder.join("edged.sig"), key).expect("a file of ours");
        fs::write(folder.join("release.pub"), key).expect("a file of ours");
        // It verifies as the real one does, except that the key itself stands for a signature by
        // it.
        let edged = format!(
            "#!/bin/sh\n[ \"$1\" != verify-release ] || exec cmp -s $3 $5\necho {version}\n"
        );
        release(self.0, "root/release", &edged);
        self.run(&["/release/install", "--init", "sysv"])
    }

    /// Which edged is started next.
    fn next(&self) -> String {
        let slot = self.run(&["/usr/sbin/edged-run", "slot"]).expect("it is installed");
        self.run(&[&slot]).expect("a program")
    }
}

/// A leftover of an earlier upgrade in a slot would be started instead of the version just
/// installed.
#[test]
fn a_newer_release_is_what_starts_next_though_edged_is_stopped() {
    let scratch = Scratch::new();
    let gateway = Gateway::new(&scratch);
    let output = gateway.install("1.0").expect("nothing is in its way");
    assert!(output.ends_with("done, for sysv; it starts with the next boot"), "{output}");
    assert_eq!(gateway.next(), "1.0");
    scratch.program("root/tmp/edged", "#!/bin/sh\necho 2.0\n");
    gateway
        .run(&["/usr/sbin/edged-run", "upgrade", "--unsigned", "/tmp/edged"])
        .expect("there is none");
    let trust = || fs::remove_file(scratch.path("root/data/trial")).expect("it is tried");
    trust();
    let output = gateway.install("3.0").expect("none is tried");
    assert!(output.ends_with("3.0 is tried from now on, in slot b"), "{output}");
    assert_eq!(gateway.next(), "3.0");
    assert_eq!(gateway.run(&["/usr/sbin/edged"]).as_deref(), Ok("1.0"), "as it was flashed");
    let why = gateway.install("4.0").expect_err("one at a time");
    assert!(why.contains("3.0 is tried in slot b"), "{why}");
    trust();
    // The root was made anew, the partition was not.
    fs::remove_dir_all(scratch.path("root/usr")).expect("it was installed");
    fs::remove_dir_all(scratch.path("root/etc/init.d")).expect("it was installed");
    gateway.install("5.0").expect("none is tried");
    assert_eq!(gateway.next(), "5.0");
    assert_eq!(gateway.run(&["/usr/sbin/edged"]).as_deref(), Ok("5.0"));
    assert!(scratch.path("root/etc/init.d/S90edged").is_file());
}

/// The first release brings the key, by which later ones are verified before they change anything.
#[test]
fn the_first_release_brings_the_key_of_those_that_follow() {
    let scratch = Scratch::new();
    let gateway = Gateway::new(&scratch);
    gateway.install_signed("1.0", "ours").expect("nothing is in its way");
    assert_eq!(scratch.read("root/etc/edged/release.pub"), "ours");
    gateway.install_signed("2.0", "ours").expect("it is signed");
    assert_eq!(gateway.next(), "2.0", "it was never started: no upgrade is needed");
    fs::create_dir_all(scratch.path("root/run/edged")).expect("a folder of ours");
    fs::write(scratch.path("root/run/edged/edged.pid"), "2147483646").expect("a file of ours");
    let output = gateway.install_signed("3.0", "ours").expect("it is signed");
    assert!(output.ends_with("3.0 is tried from now on, in slot a"), "{output}");
    fs::remove_file(scratch.path("root/data/trial")).expect("it is tried");
    let script = scratch.path("root/usr/sbin/edged-run");
    fs::write(&script, "what an earlier one installed").expect("it is there");
    let why = gateway.install_signed("4.0", "theirs").expect_err("signed by another");
    assert!(why.contains("nothing was changed"), "{why}");
    assert_eq!(scratch.read("root/etc/edged/release.pub"), "ours");
    assert_eq!(scratch.read("root/usr/sbin/edged-run"), "what an earlier one installed");
    gateway.install("5.0").expect("it was requested");
    assert_eq!(gateway.next(), "5.0");
    assert_eq!(scratch.read("root/etc/edged/release.pub"), "ours");
}
