//! Volumes beyond the upstream tests: hostile links, sizes, and agents that die in between.

use std::fs;
use std::path::PathBuf;

use super::World;
use super::support::agent::{Pod, Site, manifest};
use super::support::wait::until;

crate::tests!(
    a_link_in_a_volume_shows_nothing_of_the_node,
    memory_holds_no_more_than_its_limit,
    volumes_outlive_the_agent_and_follow_what_changed_meanwhile,
    an_agent_killed_again_and_again_leaves_no_volume_behind,
);

const SLEEP: &str = super::support::agent::SLEEP;
const QUICK: &str = "  terminationGracePeriodSeconds: 1\n";

/// The pod's volume on the node.
fn volume(site: &Site, pod: &Pod, kind: &str, name: &str) -> PathBuf {
    site.root.join("pods").join(pod.uid()).join(format!("volumes/kubernetes.io~{kind}/{name}"))
}

fn a_link_in_a_volume_shows_nothing_of_the_node(world: &World) {
    let site = world.site("hostile-link");
    let _agent = site.start();
    let init = "  initContainers:\n  - name: evil\n    image: localhost/edged-demo:1\n    \
                imagePullPolicy: Never\n    \
                command: [sh, -c, 'ln -s / /v/up; ln -s ../../.. /v/out']\n    \
                volumeMounts: [{name: v, mountPath: /v}]\n";
    for (name, part) in [("absolute", "up"), ("relative", "out"), ("deep", "up/etc")] {
        let spec = format!("{QUICK}  volumes: [{{name: v}}]\n{init}");
        let main =
            format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /part, subPath: {part}}}]\n");
        site.put(&format!("{name}.yaml"), &manifest(name, &spec, &main));
        let pod = site.wait(name, "its container cannot be made", |pod| {
            let waiting = &pod.0["status"]["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
        });
        let waiting = &pod.0["status"]["containerStatuses"][0]["state"]["waiting"];
        let why = "failed to prepare subPath for volumeMount \"v\" of container \"main\"";
        assert_eq!(waiting["message"], why, "and nothing about the node");
        site.take(&format!("{name}.yaml"));
        site.wait_gone(&pod);
    }
    assert!(fs::metadata("/etc/passwd").is_ok(), "nothing of the node went with them");
}

fn memory_holds_no_more_than_its_limit(world: &World) {
    let site = world.site("memory-limit");
    let _agent = site.start();
    let spec = format!(
        "{QUICK}  restartPolicy: Never\n  \
         volumes: [{{name: v, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}]\n"
    );
    let script = "df -k /v | tail -1; dd if=/dev/zero of=/v/f bs=1M count=2";
    let main = format!(
        "    command: [sh, -c, '{script}']\n    \
                volumeMounts: [{{name: v, mountPath: /v}}]\n"
    );
    site.put("full.yaml", &manifest("full", &spec, &main));
    let pod = site.wait("full", "Failed", |pod| pod.phase() == "Failed");
    let output = site.output(&pod, "main", 0);
    assert!(output[0].split_whitespace().any(|word| word == "1024"), "{output:?}");
    until("its memory is given back", || {
        let folder = volume(&site, &pod, "empty-dir", "v");
        if folder.exists() { Err(folder.display().to_string()) } else { Ok(()) }
    });
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: VALUE}\n";

fn with_all() -> String {
    let volumes = "  volumes:\n  - {name: disk}\n  - {name: memory, emptyDir: {medium: Memory}}\n  \
                   - {name: cm, configMap: {name: cm}}\n";
    let mounts = "    volumeMounts:\n    - {name: disk, mountPath: /disk}\n    \
                  - {name: memory, mountPath: /memory}\n    - {name: cm, mountPath: /cm}\n    \
                  - {name: disk, mountPath: /part, subPath: part}\n";
    manifest("all", &format!("{QUICK}{volumes}"), &format!("{SLEEP}{mounts}"))
}

fn volumes_outlive_the_agent_and_follow_what_changed_meanwhile(world: &World) {
    let site = world.site("outlive");
    let agent = site.start();
    site.put("cm.yaml", &MAP.replace("VALUE", "one"));
    site.put("all.yaml", &with_all());
    let pod = site.wait_running("all");
    for kind in ["disk", "memory"] {
        fs::write(volume(&site, &pod, "empty-dir", kind).join("kept"), "x").expect("ours");
    }
    agent.kill();
    site.put("cm.yaml", &MAP.replace("VALUE", "two"));
    let _next = site.start();
    let file = volume(&site, &pod, "configmap", "cm").join("k");
    until("the file follows", || match fs::read_to_string(&file) {
        Ok(text) if text == "two" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for kind in ["disk", "memory"] {
        let kept = volume(&site, &pod, "empty-dir", kind).join("kept");
        assert!(kept.exists(), "{} is gone", kept.display());
    }
    let after = site.wait_running("all");
    assert_eq!(after.container_id("main"), pod.container_id("main"), "undisturbed");
    site.take("all.yaml");
    site.wait_gone(&pod);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it is there");
    assert!(!mounts.contains(pod.uid()), "something is left mounted");
}

fn an_agent_killed_again_and_again_leaves_no_volume_behind(world: &World) {
    let site = world.site("killed");
    site.put("cm.yaml", &MAP.replace("VALUE", "one"));
    for round in 0..12_u64 {
        site.put("all.yaml", &with_all());
        let agent = site.start();
        std::thread::sleep(std::time::Duration::from_millis(60 * round));
        agent.kill();
        site.take("all.yaml");
        let agent = site.start();
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        agent.kill();
    }
    let _agent = site.start();
    site.wait_empty();
    let root = site.root.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it is there");
    let left = mounts.lines().filter(|line| line.contains(&format!("{root}/pods/"))).count();
    assert_eq!(left, 0, "{mounts}");
}
