//! Judges what the built-in runtime needs beyond what every runtime does.

use super::{Row, fail, ok, place, warn};
use crate::io::builtin::environment::Environment;
use crate::io::diagnostics::BuiltinFacts;

/// The rows of the runtime itself.
pub(super) fn rows(facts: &BuiltinFacts) -> Vec<Row> {
    let mut rows = oci(facts);
    rows.push(if facts.seccomp {
        ok("seccomp", "the kernel filters system calls")
    } else {
        let remedy = "build the kernel with CONFIG_SECCOMP_FILTER, or ask for Unconfined";
        warn("seccomp", "no filter: pods that ask for RuntimeDefault are refused", remedy)
    });
    rows.push(place("data", &facts.data, "builtinRuntime.dataDir"));
    rows.extend(facts.run.as_ref().ok().filter(|_| facts.run_in_memory).map(|room| {
        let mb = room.free_bytes >> 20;
        let detail = format!("{} has {mb} MiB free, in memory", room.path);
        if room.free_bytes < RUN_MIN_BYTES {
            let remedy = "each container needs some 20 KiB there: mount a larger tmpfs on /run";
            warn("run", detail, remedy)
        } else {
            ok("run", detail)
        }
    }));
    rows
}

/// What a full node needs for the folders of its containers.
const RUN_MIN_BYTES: u64 = 8 << 20;

fn oci(facts: &BuiltinFacts) -> Vec<Row> {
    match &facts.oci {
        Ok(Environment { oci, version, remarks }) => {
            let detail = format!("{version} ({})", oci.display());
            let remarks = remarks.iter().map(|remark| warn("oci", remark.as_str(), ""));
            [ok("oci", detail)].into_iter().chain(remarks).collect()
        }
        Err((reason, message)) => {
            let remedy = match &**reason {
                "OCIRuntimeMissing" => {
                    "install one (Debian, Alpine, OpenWrt: crun or runc; Buildroot: \
                     BR2_PACKAGE_CRUN or BR2_PACKAGE_RUNC)"
                }
                _ => "see docs/gateway.md for what the kernel has to have",
            };
            vec![fail("oci", &**message, remedy)]
        }
    }
}

/// The rows of the network. `usual`: those of every runtime.
pub(super) fn network(facts: &BuiltinFacts, usual: Vec<Row>) -> Vec<Row> {
    let mut rows = match &facts.network {
        Ok(()) => usual,
        Err((_, why)) => {
            let remedy = "put config/cni/10-edged.conflist of the release into /etc/cni/net.d, and \
                          install the CNI plugins (Debian: containernetworking-plugins, Alpine and \
                          OpenWrt: cni-plugins, Buildroot: BR2_PACKAGE_CNI_PLUGINS); hostNetwork \
                          needs none";
            vec![warn("cni", &**why, remedy)]
        }
    };
    match facts.masquerade {
        None => {}
        Some(Ok(tool)) => rows.push(ok("masquerade", format!("by {tool}"))),
        Some(Err(())) => {
            let detail = "neither nft nor iptables is there: pods reach no other machine";
            let remedy = "install one (Debian, Alpine: nftables or iptables)";
            rows.push(warn("masquerade", detail, remedy));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Verdict;
    use crate::io::diagnostics::Room;
    use crate::model::error::System;

    fn facts() -> BuiltinFacts {
        let room = |path: &str, free_bytes| Room {
            path: path.to_owned(),
            writable: true,
            free_bytes,
            bytes: 1 << 32,
            ..Room::default()
        };
        BuiltinFacts {
            oci: Ok(Environment {
                oci: "/usr/bin/crun".into(),
                version: "crun version 1.8.1".to_owned(),
                remarks: Vec::new(),
            }),
            seccomp: true,
            network: Ok(()),
            masquerade: Some(Ok("nft")),
            data: Ok(room("/var/lib", 1 << 30)),
            run: Ok(room("/run", RUN_MIN_BYTES)),
            run_in_memory: true,
        }
    }

    fn told(facts: &BuiltinFacts) -> Vec<String> {
        let all = rows(facts).into_iter().chain(network(facts, Vec::new()));
        let line = |row: Row| {
            let remedy = row.remedy.unwrap_or_default();
            format!("{} {}: {} → {remedy}", row.verdict.word(), row.name, row.detail)
        };
        all.map(line).collect()
    }

    #[test]
    fn a_machine_that_has_everything_is_well() {
        assert_eq!(
            told(&facts()),
            [
                "ok oci: crun version 1.8.1 (/usr/bin/crun) → ",
                "ok seccomp: the kernel filters system calls → ",
                "ok data: /var/lib has 1024 MiB of 4096 MiB free → ",
                "ok run: /run has 8 MiB free, in memory → ",
                "ok masquerade: by nft → ",
            ]
        );
    }

    type Change<'a> = &'a dyn Fn(&mut BuiltinFacts);

    #[test]
    fn what_is_missing_has_a_remedy() {
        let small = |facts: &mut BuiltinFacts| {
            facts.run.as_mut().expect("it is known").free_bytes = RUN_MIN_BYTES - 1;
        };
        let remarked = |facts: &mut BuiltinFacts| {
            let remarks = &mut facts.oci.as_mut().expect("it is known").remarks;
            remarks.push("crun does not work here".to_owned());
        };
        let cases: [(Change<'_>, &str, &str); 8] = [
            (&remarked, "warn oci: crun does not work here", ""),
            (
                &|facts| facts.oci = Err(("OCIRuntimeMissing".into(), "neither".into())),
                "fail oci: neither",
                "BR2_PACKAGE_CRUN",
            ),
            (
                &|facts| facts.oci = Err(("CgroupsMissing".into(), "no cgroups".into())),
                "fail oci: no cgroups",
                "docs/gateway.md",
            ),
            (&|facts| facts.seccomp = false, "warn seccomp: no filter", "SECCOMP_FILTER"),
            (&|facts| facts.data = Err(System::new("gone")), "fail data: gone", "dataDir"),
            (&small, "warn run: /run has 7 MiB free", "tmpfs"),
            (
                &|facts| facts.network = Err(("NetworkPluginNotReady".into(), "cni: none".into())),
                "warn cni: cni: none",
                "containernetworking-plugins",
            ),
            (&|facts| facts.masquerade = Some(Err(())), "warn masquerade: neither", "iptables"),
        ];
        for (change, start, remedy) in cases {
            let mut facts = facts();
            change(&mut facts);
            let bad =
                told(&facts).into_iter().filter(|row| !row.starts_with("ok ")).collect::<Vec<_>>();
            let [one] = &bad[..] else { panic!("{bad:#?}\nexpected {start}") };
            assert!(one.starts_with(start) && one.contains(remedy), "{one}\n{start} {remedy}");
        }
        let own = BuiltinFacts { run_in_memory: false, masquerade: None, ..facts() };
        let names: Vec<_> = rows(&own).iter().map(|row| (row.name, row.verdict)).collect();
        assert_eq!(names, [("oci", Verdict::Ok), ("seccomp", Verdict::Ok), ("data", Verdict::Ok)]);
    }
}
