//! What the server prepares once at its start: RUN, and the masquerade of the pods' subnet.
//!
//! The plugin `bridge` with `ipMasq` runs iptables several times for each sandbox, which takes
//! longer than all the rest. The network that edged ships (`config/cni`) has it off, and asks the
//! node for one rule for its whole subnet; the networks of others run unchanged. Both steps may be
//! repeated: **if we crash here** the next start does them again.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;

use nix::mount::MsFlags;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::layout::{Layout, Settings};
use super::{cni, files, program};
use crate::io::mounts;
use crate::limits::MASQUERADE_MS;
use crate::model::error::{Error, System};
use crate::wire::cni::Subnet;

/// Makes RUN: in memory, so that a reboot empties it, and a private mount of its own, so that no
/// other mount namespace sees what is mounted in it and keeps it busy.
pub fn make_run(layout: &Layout) -> Result<(), System> {
    let run = layout.run();
    let above = run.parent().expect("it is no root");
    // Pods with users of their own pass it.
    let made = DirBuilder::new().recursive(true).mode(0o711).create(above);
    made.map_err(|error| files::at("mkdir", above, &error))?;
    files::make_dir(run)?;
    let run = run.canonicalize().map_err(|error| files::at("open", run, &error))?;
    let table = mounts::table()?;
    let failed = |errno: nix::Error| files::at("mount on", &run, &errno.into());
    if mounts::over(&table, &run).is_none_or(|over| Path::new(&*over.point) != run) {
        let in_memory = statfs(&run).is_ok_and(|on| on.filesystem_type() == TMPFS_MAGIC);
        if in_memory {
            files::bind(&run, &run)
        } else {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            let source = Some(Path::new("edged"));
            files::mount(source, &run, Some("tmpfs"), flags, Some("mode=0700"))
        }
        .map_err(failed)?;
    }
    files::mount(None, &run, None, MsFlags::MS_PRIVATE, None).map_err(failed)
}

/// Makes the rule that the network asks for, if it asks for one; what there is of it from an
/// earlier start is replaced. By nft, else by iptables, whichever is there and works.
pub fn masquerade(settings: &Settings) -> Result<(), Error> {
    // A network that is absent or unsound is told by the condition NetworkReady.
    let Ok(network) = cni::network(settings) else { return Ok(()) };
    let subnets = network.masqueraded()?;
    for family in [Family::V4, Family::V6] {
        let own = |subnet: &&Subnet| subnet.address.is_ipv6() == (family == Family::V6);
        let subnets: Vec<Subnet> = subnets.iter().filter(own).copied().collect();
        if subnets.is_empty() {
            continue;
        }
        if let Err(nft) = run("nft", &["-f", "-"], &nft(family, &subnets)) {
            by_iptables(family, &subnets).map_err(|iptables| {
                System::new(format!("pods reach no other machine: {nft}; {iptables}"))
            })?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// What is sent to groups keeps its source.
    fn multicast(self) -> &'static str {
        match self {
            Self::V4 => "224.0.0.0/4",
            Self::V6 => "ff00::/8",
        }
    }
}

/// One transaction: a table of our own takes the place of an earlier one.
fn nft(family: Family, subnets: &[Subnet]) -> String {
    let (ip, multicast) = match family {
        Family::V4 => ("ip", family.multicast()),
        Family::V6 => ("ip6", family.multicast()),
    };
    let rules = subnets.iter().map(|subnet| {
        format!("{ip} saddr {subnet} {ip} daddr != {{ {subnet}, {multicast} }} masquerade\n")
    });
    let rules: String = rules.collect();
    format!(
        "table {ip} edged\ndelete table {ip} edged\ntable {ip} edged {{\nchain postrouting {{\n\
         type nat hook postrouting priority 100;\n{rules}}}\n}}\n"
    )
}

/// A chain of our own, which is emptied and filled in one transaction, and one rule that leads to
/// it.
fn by_iptables(family: Family, subnets: &[Subnet]) -> Result<(), System> {
    let (program, restore) = match family {
        Family::V4 => ("iptables", "iptables-restore"),
        Family::V6 => ("ip6tables", "ip6tables-restore"),
    };
    run(restore, &["--wait", "--noflush"], &chain(family, subnets))?;
    let rule = |verb| ["--wait", "-t", "nat", verb, "POSTROUTING", "-j", CHAIN];
    run(program, &rule("-C"), "").or_else(|_| run(program, &rule("-A"), ""))
}

fn chain(family: Family, subnets: &[Subnet]) -> String {
    let multicast = family.multicast();
    let rules = subnets.iter().map(|subnet| {
        format!(
            "-A {CHAIN} -s {subnet} -d {subnet} -j RETURN\n\
             -A {CHAIN} -s {subnet} -d {multicast} -j RETURN\n\
             -A {CHAIN} -s {subnet} -j MASQUERADE\n"
        )
    });
    let rules: String = rules.collect();
    format!("*nat\n:{CHAIN} - [0:0]\n{rules}COMMIT\n")
}

const CHAIN: &str = "EDGED-MASQUERADE";

fn run(name: &str, args: &[&str], input: &str) -> Result<(), System> {
    let mut command = Command::new(name);
    command.args(args).current_dir("/");
    program::with_path(&mut command);
    let ended = program::run(&mut command, input.as_bytes(), MASQUERADE_MS)?;
    if ended.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ended.stderr).trim().replace('\n', " ");
    Err(System::at(name, format_args!("{}: {text}", ended.status)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::io::builtin::namespace::{self, NET};
    use crate::model::builtin::Registries;

    #[test]
    fn the_network_that_is_shipped_asks_for_one_rule() {
        let text = include_str!("../../../config/cni/10-edged.conflist");
        let network = crate::wire::cni::Network::parse(text.as_bytes()).expect("it is sound");
        let subnets = network.masqueraded().expect("they are sound");
        assert_eq!(subnets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.88.0.0/16"]);
        let rule = "ip saddr 10.88.0.0/16 ip daddr != { 10.88.0.0/16, 224.0.0.0/4 } masquerade\n";
        assert!(nft(Family::V4, &subnets).contains(rule));
        // In memory: host-local does not sync its leases, and what a power cut leaves of one is
        // never given back.
        assert!(text.contains(r#""dataDir": "/run/"#));
    }

    #[test]
    fn the_rule_is_made_once_however_often_the_server_starts() {
        let top = std::env::temp_dir().join(format!("edged-masquerade-{}", std::process::id()));
        fs::create_dir_all(&top).expect("a folder of ours");
        let settings = Settings {
            layout: Layout::new(top.join("run"), top.join("data")),
            oci: PathBuf::new(),
            handlers: Vec::new(),
            cni_conf_dir: top.clone(),
            cni_bin_dir: PathBuf::new(),
            registries: Registries::default(),
        };
        let write = |subnet: &str| {
            let text = include_str!("../../../config/cni/10-edged.conflist");
            let text = text.replace("10.88.0.0/16", subnet);
            fs::write(top.join("10-edged.conflist"), text).expect("a file of ours");
        };
        let rules = || {
            let listed = Command::new("iptables-save").args(["-t", "nat"]).output();
            let text = listed.expect("iptables is there").stdout;
            let text = String::from_utf8(text).expect("text");
            text.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
        };
        let seen: Vec<Vec<String>> = namespace::in_new(&[NET], || {
            let mut seen = Vec::new();
            for subnet in ["10.77.0.0/24", "10.77.0.0/24", "10.78.0.0/24"] {
                write(subnet);
                // The machine of the tests has iptables; nft is tried by hand.
                let subnets = cni::network(&settings).expect("it is sound").masqueraded();
                by_iptables(Family::V4, &subnets.expect("sound")).expect("root may");
                seen.push(rules());
            }
            seen
        })
        .expect("root may");
        fs::remove_dir_all(&top).expect("ours");
        let expected = |subnet: &str| {
            vec![
                format!("-A POSTROUTING -j {CHAIN}"),
                format!("-A {CHAIN} -s {subnet} -d {subnet} -j RETURN"),
                format!("-A {CHAIN} -s {subnet} -d 224.0.0.0/4 -j RETURN"),
                format!("-A {CHAIN} -s {subnet} -j MASQUERADE"),
            ]
        };
        assert_eq!(seen[0], expected("10.77.0.0/24"));
        assert_eq!(seen[1], seen[0]);
        assert_eq!(seen[2], expected("10.78.0.0/24"), "it takes the old one's place");
    }

    #[test]
    fn run_is_a_private_mount_in_memory() {
        let top = std::env::temp_dir().join(format!("edged-run-{}", std::process::id()));
        let layout = Layout::new(top.join("deep/run"), top.join("data"));
        make_run(&layout).expect("root may");
        make_run(&layout).expect("it is there");
        let table = mounts::table().expect("it is readable");
        let run = layout.run();
        let points = table.lines().filter(|line| line.contains(&*run.to_string_lossy())).count();
        let over = mounts::over(&table, run).expect("it is mounted");
        let is_own = Path::new(&*over.point) == run && over.kind == "tmpfs" && !over.shared;
        nix::mount::umount2(run, nix::mount::MntFlags::MNT_DETACH).expect("ours");
        fs::remove_dir_all(&top).expect("ours");
        assert!(is_own && points == 1, "{over:?}, {points} times");
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_words() {
        let refused = run("sh", &["-c", "echo no >&2; exit 4"], "").expect_err("it fails");
        assert_eq!(refused.to_string(), "sh: exit status: 4: no");
        assert!(run("sh", &["-c", "true"], "").is_ok());
        assert_eq!(MASQUERADE_MS % 1_000, 0, "it is told in seconds");
    }
}
