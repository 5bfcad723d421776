//! Storage that outlives pods: claims of folders of the node, and folders of other machines.
//!
//! The test machine's kernel need not support NFS: the program `mount` that the agent finds here is
//! the test's own, which mounts a folder of the node in place of the remote one.

use std::fs;
use std::path::PathBuf;

use super::World;
use super::support::agent::{SLEEP, Site, manifest, sleeper};
use super::support::program;
use super::support::wait::until;

crate::tests!(
    a_claim_keeps_its_data_when_its_pods_go,
    a_pod_waits_for_its_claim_and_says_so,
    a_folder_of_another_machine_is_mounted_and_unmounted_with_its_pod,
    a_machine_that_does_not_answer_keeps_only_its_own_pods_waiting,
);

const QUICK: &str = "  terminationGracePeriodSeconds: 1\n";
const CLAIMED: &str = "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n";

/// A claim `data`, and its volume `ssd`.
fn claim(path: &std::path::Path) -> String {
    format!(
        r"apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec:
  volumeName: ssd
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 1Mi}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: ssd}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {{path: {}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {{key: kubernetes.io/hostname, operator: In, values: [gw]}}
",
        path.display()
    )
}

fn mounts_below(site: &Site) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's own file");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let root = site.root.join("pods");
    points.filter(|point| PathBuf::from(point).starts_with(&root)).map(str::to_owned).collect()
}

fn a_claim_keeps_its_data_when_its_pods_go(world: &World) {
    let site = world.site("storage-local");
    let ssd = site.dir.join("ssd");
    fs::create_dir_all(&ssd).expect("a folder of ours");
    let _agent = site.start();
    site.put("claim.yaml", &claim(&ssd));
    let once =
        format!("{QUICK}  restartPolicy: Never\n  securityContext: {{fsGroup: 1234}}\n{CLAIMED}");
    let writes = "    command: [sh, -c, 'id -G; echo kept > /v/data']\n    \
                  volumeMounts: [{name: v, mountPath: /v}]\n";
    site.put("one.yaml", &manifest("one", &once, writes));
    let one = site.wait("one", "Succeeded", |pod| pod.phase() == "Succeeded");
    assert_eq!(fs::read_to_string(ssd.join("data")).expect("it was written").trim(), "kept");
    until("the volume of the pod that has ended is unmounted", || {
        let mounts = mounts_below(&site);
        if mounts.is_empty() { Ok(()) } else { Err(format!("{mounts:?}")) }
    });
    site.take("one.yaml");
    site.wait_gone(&one);
    let reads = "    command: [sh, -c, 'cat /v/data; echo no > /v/x']\n    \
                 volumeMounts: [{name: v, mountPath: /v, readOnly: true}]\n";
    site.put("two.yaml", &manifest("two", &once, reads));
    let two = site.wait("two", "its last command failed", |pod| pod.phase() == "Failed");
    assert_eq!(site.output(&two, "main", 0), ["kept"]);
    let errors = site.errors(&two, "main", 0);
    assert!(errors[0].contains("Read-only file system"), "{errors:?}");
    site.take("two.yaml");
    site.wait_gone(&two);
    assert!(ssd.join("data").exists(), "the node's folder stays");
}

fn a_pod_waits_for_its_claim_and_says_so(world: &World) {
    let site = world.site("storage-waits");
    let ssd = site.dir.join("ssd");
    let agent = site.start();
    let main = format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n");
    site.put("one.yaml", &manifest("one", &format!("{QUICK}{CLAIMED}"), &main));
    let wait_message = |what: &str| {
        until("the reason of the waiting is reported", || {
            let log = agent.log();
            if log.contains(what) { Ok(()) } else { Err(log) }
        });
    };
    wait_message("persistentvolumeclaims \\\"data\\\" not found");
    site.put("claim.yaml", &claim(&ssd));
    wait_message("does not exist");
    let waits = site.wait("one", "waiting", |pod| pod.waits_for("main") == "ContainerCreating");
    assert_eq!(waits.phase(), "Pending");
    fs::create_dir_all(&ssd).expect("a folder of ours");
    site.wait_running("one");
}

/// The program `mount` of the agents of this site; `script` has its arguments in `$@`, and the
/// mount point in `$place`.
fn stand_in(site: &mut Site, script: &str) {
    let programs = site.dir.join("programs");
    let text = format!("#!/bin/sh\nfor place; do :; done\n{script}\n");
    program::write(&programs.join("mount"), text.as_bytes());
    site.programs = Some(programs);
}

const NAS: &str = "  volumes: [{name: v, nfs: {server: nas, path: /export}}]\n";

fn a_folder_of_another_machine_is_mounted_and_unmounted_with_its_pod(world: &World) {
    let mut site = world.site("storage-nfs");
    let (export, arguments) = (site.dir.join("export"), site.dir.join("told"));
    fs::create_dir_all(&export).expect("a folder of ours");
    let script = format!(
        "echo \"$@\" > {}\nexec /bin/mount --bind {} \"$place\"",
        arguments.display(),
        export.display()
    );
    stand_in(&mut site, &script);
    let _agent = site.start();
    let main = "    command: [sh, -c, 'echo here > /v/data; sleep 1000']\n    \
                volumeMounts: [{name: v, mountPath: /v, subPath: part}]\n";
    site.put("one.yaml", &manifest("one", &format!("{QUICK}{NAS}"), main));
    let pod = site.wait_running("one");
    assert_eq!(
        fs::read_to_string(&arguments).expect("it was asked").trim(),
        "-t nfs nas:/export ./v"
    );
    until("the container has written", || {
        fs::read_to_string(export.join("part/data")).map_err(|error| error.to_string())
    });
    site.take("one.yaml");
    site.wait_gone(&pod);
    assert_eq!(mounts_below(&site), [""; 0]);
    assert!(export.join("part/data").exists(), "its contents stay");
}

fn a_machine_that_does_not_answer_keeps_only_its_own_pods_waiting(world: &World) {
    let mut site = world.site("storage-hangs");
    stand_in(&mut site, "exec sleep 30");
    let _agent = site.start();
    let main = format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n");
    for name in ["a", "b", "c"] {
        site.put(&format!("{name}.yaml"), &manifest(name, &format!("{QUICK}{NAS}"), &main));
    }
    site.wait("c", "waiting", |pod| pod.waits_for("main") == "ContainerCreating");
    // Work that needs a child process of the agent continues as well: the end of a pod with
    // volumes.
    let other = manifest(
        "other",
        &format!("{QUICK}  volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]\n"),
        &format!("{SLEEP}    volumeMounts: [{{name: m, mountPath: /m}}]\n"),
    );
    site.put("other.yaml", &other);
    let pod = site.wait_running("other");
    site.take("other.yaml");
    site.wait_gone(&pod);
    site.put("plain.yaml", &sleeper("plain"));
    site.wait_running("plain");
    assert_eq!(site.pod("a").expect("it is there").phase(), "Pending");
}
