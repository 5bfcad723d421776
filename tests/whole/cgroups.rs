//! Pods' own cgroups: the kernel's values, and the limits that they enforce.

use super::World;
use super::support::agent::{KEEP_ALL, SLEEP, manifest, sleeper};
use super::support::cgroup;
use super::support::wait::until;

crate::tests!(
    a_pods_cgroup_holds_its_values_while_it_runs_and_is_gone_after_it,
    a_pod_may_have_so_many_processes_and_no_more,
    a_pod_keeps_to_what_it_says_for_itself_though_its_containers_say_nothing,
);

const QUICK: &str = "  terminationGracePeriodSeconds: 1\n";

fn a_pods_cgroup_holds_its_values_while_it_runs_and_is_gone_after_it(world: &World) {
    let site = world.site("cgroup-values");
    let _agent = site.start();
    let limits = "    resources:\n      limits: {cpu: 500m, memory: 64Mi}\n      \
                  requests: {cpu: 250m}\n";
    site.put("one.yaml", &manifest("one", QUICK, &format!("{SLEEP}{limits}")));
    site.put("two.yaml", &sleeper("two"));
    let (one, two) = (site.wait_running("one"), site.wait_running("two"));
    let path = format!("kubepods/burstable/pod{}", one.uid());
    for (v1, v2, wants) in [
        ("memory.limit_in_bytes", "memory.max", ["67108864", "67108864"]),
        ("cpu.shares", "cpu.weight", ["256", "10"]),
        ("cpu.cfs_quota_us", "cpu.max", ["50000", "50000 100000"]),
    ] {
        let got = cgroup::value(&path, v1, v2).expect("the pod's cgroup");
        assert!(wants.contains(&&*got), "{v1} {v2}: {got}, not {wants:?}");
    }
    until("the class has the shares of its pods", || {
        let got = cgroup::value("kubepods/burstable", "cpu.shares", "cpu.weight");
        let fine = matches!(got.as_deref(), Some("256" | "10"));
        if fine { Ok(()) } else { Err(format!("{got:?}")) }
    });
    let least = cgroup::value("kubepods/besteffort", "cpu.shares", "cpu.weight");
    assert!(matches!(least.as_deref(), Some("2" | "1")), "{least:?}");
    let id = one.container_id("main");
    let of_container = cgroup::value(&format!("{path}/{id}"), "cgroup.procs", "cgroup.procs");
    assert!(of_container.is_some_and(|pid| !pid.is_empty()), "the container is in it");
    let other = format!("kubepods/besteffort/pod{}", two.uid());
    assert!(!cgroup::all(&other).is_empty());
    site.take("one.yaml");
    site.wait_gone(&one);
    assert_eq!(cgroup::all(&path), [] as [&std::path::Path; 0], "in no hierarchy");
    assert!(!cgroup::all(&other).is_empty(), "the other pod's stays");
    site.take("two.yaml");
    site.wait_gone(&two);
    assert_eq!(cgroup::all(&other), [] as [&std::path::Path; 0]);
}

fn a_pod_may_have_so_many_processes_and_no_more(world: &World) {
    let site = world.site("cgroup-pids");
    site.set("", &format!("{KEEP_ALL}podPidsLimit: 12\n"));
    let _agent = site.start();
    let script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 30 & done; echo all";
    let main = format!("    command: [sh, -c, '{script}']\n");
    site.put("many.yaml", &manifest("many", &format!("{QUICK}  restartPolicy: Never\n"), &main));
    let pod = site.wait("many", "it cannot start so many", |pod| pod.phase() == "Failed");
    let errors = site.errors(&pod, "main", 0);
    assert!(errors.iter().any(|line| line.contains("can't fork")), "{errors:?}");
}

fn a_pod_keeps_to_what_it_says_for_itself_though_its_containers_say_nothing(world: &World) {
    let site = world.site("cgroup-whole");
    let _agent = site.start();
    let spec =
        format!("{QUICK}  restartPolicy: Never\n  resources: {{limits: {{memory: 32Mi}}}}\n");
    // It reads all input into memory until the end of a line, which never comes.
    let main = "    command: [sh, -c, 'tr \"\\\\000\" x < /dev/zero | grep y']\n";
    site.put("big.yaml", &manifest("big", &spec, main));
    let pod = site.wait("big", "it is killed", |pod| pod.phase() == "Failed");
    let ended = &pod.container("main")["state"]["terminated"];
    assert!(ended["exitCode"] != 0, "{ended}");
    assert_eq!(pod.0["status"]["qosClass"], "Burstable");
}
