//! Evictions: for a volume that exceeds its limit, and for a full disk.

use std::path::PathBuf;
use std::time::Duration;

use crate::World;
use crate::support::agent::{KEEP_ALL, Pod, SLEEP, Site, manifest, sleeper};
use crate::support::wait::{until, until_in};

crate::tests![
    a_volume_that_outgrows_its_limit_costs_its_pod,
    a_full_disk_costs_one_pod_after_the_other_and_no_static_one,
];

/// Two checks of limits.
const LIMITS: Duration = Duration::from_secs(180);

fn evictable(manifest: &str) -> String {
    manifest.replacen(
        "metadata:\n",
        "metadata:\n  annotations: {edged.io/evictable: \"true\"}\n",
        1,
    )
}

fn volume(site: &Site, pod: &Pod) -> PathBuf {
    site.root.join("pods").join(pod.uid()).join("volumes/kubernetes.io~empty-dir/v")
}

fn wait_evicted(site: &Site, name: &str) -> Pod {
    until_in(LIMITS, &format!("{name} is evicted"), || {
        let pod = site.pod(name)?;
        let evicted = pod.phase() == "Failed" && pod.0["status"]["reason"] == "Evicted";
        if evicted { Ok(pod) } else { Err(pod.0["status"].to_string()) }
    })
}

fn a_volume_that_outgrows_its_limit_costs_its_pod(world: &World) {
    let site = world.site("evict-volume");
    site.set("", KEEP_ALL);
    let _agent = site.start();
    let spec = "  hostNetwork: true\n  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n";
    let mount = "    volumeMounts: [{name: v, mountPath: /v}]\n";
    let write = |kib: u32| {
        let script = format!("dd if=/dev/zero of=/v/f bs=1k count={kib}; sleep 100000 & wait");
        format!("    command: [sh, -c, 'trap \"exit 0\" TERM; {script}']\n{mount}")
    };
    site.put("static.yaml", &manifest("static", spec, &write(3_000)));
    site.put("modest.yaml", &evictable(&manifest("modest", spec, &write(500))));
    site.put("greedy.yaml", &evictable(&manifest("greedy", spec, &write(3_000))));
    let others = ["static", "modest"].map(|name| site.wait_running(name));
    let pod = wait_evicted(&site, "greedy");
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!(pod.0["status"]["message"], message);
    until("nothing of it is left", || {
        let state = site.runtime_state().of(pod.uid());
        let folder = volume(&site, &pod).exists();
        let gone = state.containers.is_empty() && state.sandboxes.is_empty() && !folder;
        if gone { Ok(()) } else { Err(format!("{}, volume: {folder}", state.short())) }
    });
    let terminated = &pod.0["status"]["containerStatuses"][0]["state"]["terminated"];
    assert!(terminated["exitCode"].is_i64(), "{}", pod.0["status"]);
    for other in others {
        let running = site.runtime_state().of(other.uid()).running("main").len();
        assert_eq!(running, 1, "{} is within its limit, or is static", other.uid());
    }
    for file in ["static.yaml", "modest.yaml", "greedy.yaml"] {
        site.take(file);
    }
    site.wait_empty();
}

fn a_full_disk_costs_one_pod_after_the_other_and_no_static_one(world: &World) {
    let site = world.site("evict-disk");
    site.set("", KEEP_ALL);
    site.put("static.yaml", &sleeper("static"));
    site.put("plain.yaml", &evictable(&sleeper("plain")));
    let dear = "  hostNetwork: true\n  priority: 7\n";
    site.put("dear.yaml", &evictable(&manifest("dear", dear, SLEEP)));
    let agent = site.start();
    for name in ["static", "plain", "dear"] {
        site.wait_running(name);
    }
    agent.kill();
    // Any disk has less free space than that. Images are too young to be removed.
    let full = "imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 24h\n\
                evictionHard: {nodefs.available: 99.999%}\nevictionPressureTransitionPeriod: 0s";
    site.set("", full);
    let _agent = site.start();
    let plain = wait_evicted(&site, "plain");
    let dear = wait_evicted(&site, "dear");
    for pod in [&plain, &dear] {
        let message = pod.0["status"]["message"].as_str().unwrap_or_default();
        let low = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
        assert!(message.starts_with(low), "{message}");
        let conditions = pod.0["status"]["conditions"].to_string();
        assert!(conditions.contains("TerminationByKubelet"), "{conditions}");
    }
    let log = site.log();
    let evicted: Vec<&str> = log.lines().filter(|line| line.contains("Evicted")).collect();
    let first = evicted.first().copied().unwrap_or_default();
    assert!(first.contains("plain-gw"), "the cheaper one first: {evicted:?}");
    let overview = site.status().expect("it answers");
    assert_eq!(overview["pressures"][0], "DiskPressure", "{overview}");
    site.put("late.yaml", &evictable(&sleeper("late")));
    let late = wait_evicted(&site, "late");
    let refused = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(late.0["status"]["message"], refused);
    let kept = site.wait_running("static");
    assert_eq!(kept.restarts("main"), 0);
    for file in ["static.yaml", "plain.yaml", "dear.yaml", "late.yaml"] {
        site.take(file);
    }
    site.wait_empty();
}
