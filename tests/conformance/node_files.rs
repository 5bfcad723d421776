//! Files and limits of the node for pods: names, log files and their rotation, the number of dead
//! containers, and disk limits.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::{Pod, entries, manifest};
use crate::support::wait::{always, until, until_in};

const HOSTNAME: &str = "Hostname of Pod";
const LOG_PATH: &str = "ContainerLogPath";
const GARBAGE: &str = "GarbageCollect";
const RESTART: &str = "Container Restart";

pub(crate) const ROWS: &[Entry] = &[
    (HOSTNAME, "a pod without subdomain field does not have FQDN", |case| {
        let name = pod_name(case);
        host_names(case, "", &name, &name);
    }),
    (HOSTNAME, "a pod without FQDN is not affected by SetHostnameAsFQDN field", |case| {
        let name = pod_name(case);
        host_names(case, "  setHostnameAsFQDN: true\n", &name, &name);
    }),
    (HOSTNAME, "a pod with subdomain field has FQDN, hostname is shortname", |case| {
        let name = pod_name(case);
        host_names(case, "  subdomain: t\n", &name, &full_name(&name));
    }),
    (
        HOSTNAME,
        "a pod with subdomain field has FQDN, when setHostnameAsFQDN is set to true, the FQDN is \
         set as hostname",
        |case| {
            let full = full_name(&pod_name(case));
            host_names(case, "  subdomain: t\n  setHostnameAsFQDN: true\n", &full, &full);
        },
    ),
    (
        HOSTNAME,
        "a pod configured to set FQDN as hostname will remain in Pending state generating \
         FailedCreatePodSandBox events when the FQDN is longer than 64 bytes",
        too_long,
    ),
    (LOG_PATH, "should print log to correct log path", |case| {
        let pod = case.run_script("", "", LOG_SCRIPT);
        let site = &case.node.site;
        let id = pod.container_id("main");
        let file = format!("{}_{}_main-{id}.log", pod.name(), pod.namespace());
        has_log(case, &site.container_logs.join(file));
    }),
    (LOG_PATH, "should print log to correct cri log path", |case| {
        let pod = case.run_script("", "", LOG_SCRIPT);
        let folder = format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid());
        has_log(case, &case.node.site.pod_logs.join(folder).join("main/0.log"));
    }),
    (GARBAGE, ONE_QUIET, |case| dead_ones(case, &["one"], 0)),
    (GARBAGE, MANY_RESTARTS, |case| dead_ones(case, &["one"], 3)),
    (GARBAGE, MANY_PODS, |case| dead_ones(case, &["one", "two", "three"], 3)),
    (
        "LocalStorageCapacityIsolationEviction",
        "should eventually evict all of the correct pods",
        over_their_disk,
    ),
];

/// Cases that write or crash for minutes.
pub(crate) const WATCHES: &[Entry] = &[
    ("ContainerLogRotation", ROTATED, |case| rotated(case, 1)),
    ("ContainerLogRotationWithMultipleWorkers", ROTATED, |case| rotated(case, 2)),
    (RESTART, "Container restart backs off.", |case| backs_off(case, 7)),
    (RESTART, "Alternate restart backs off.", |case| backs_off(case, 13)),
];

const ROTATED: &str = "should be rotated and limited to a fixed amount of files";

/// The names of the tests of dead containers.
macro_rules! garbage {
    ($($constant:ident = $name:literal,)+) => {
        $(const $constant: &str = concat!(
            "Garbage Collection Test: ", $name, ": Should eventually garbage collect containers \
             when we exceed the number of dead containers per container");)+
    };
}

garbage! {
    ONE_QUIET = "One Non-restarting Container",
    MANY_RESTARTS = "Many Restarting Containers",
    MANY_PODS = "Many Pods with Many Restarting Containers",
}

/// The name of a pod of the folder ends with the node's name.
fn pod_name(case: &Case<'_>) -> String {
    format!("{}-{}", case.name, crate::support::agent::NODE)
}

fn full_name(name: &str) -> String {
    format!("{name}.t.default.svc.cluster.local")
}

/// The kernel's name, and the first name of the pod's address in the hosts file: the output of
/// `hostname -f` where names can be looked up, which a static busybox cannot.
fn host_names(case: &Case<'_>, spec: &str, short: &str, full: &str) {
    let script = "hostname; grep -v '^#' /etc/hosts | tail -n 1";
    let output = case.output_of(spec, "", script);
    assert_eq!(output[0], short);
    let mut words = output[1].split_whitespace();
    assert_eq!(words.next(), Some(case.pod().ip()), "{output:?}");
    assert_eq!(words.next(), Some(full), "{output:?}");
}

fn too_long(case: &Case<'_>) {
    let long = "hostfqdnveryveryveryverylongforfqdntobemorethan64bytes";
    let spec =
        format!("  hostname: {long}\n  subdomain: t\n  setHostnameAsFQDN: true\n{QUICK_END}");
    case.put("pod", &manifest(&case.name, &spec, SLEEP));
    until("there is an event of it", || {
        let messages = case.events("FailedCreatePodSandBox");
        let want = "Failed to create pod sandbox: failed to construct FQDN from pod hostname and \
                    cluster domain, FQDN ";
        let found = messages.iter().any(|message| message.contains(want));
        if found { Ok(()) } else { Err(format!("{messages:?}")) }
    });
    assert_eq!(case.pod().phase(), "Pending");
}

const LOG_SCRIPT: &str = "echo test-log-entry";

fn has_log(case: &Case<'_>, path: &Path) {
    until("the log is there", || {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if text.contains("test-log-entry") { Ok(()) } else { Err(text) }
    });
    assert_eq!(case.pod().phase(), "Succeeded");
}

/// Names of the log files of a container, with rotated ones.
fn log_files(case: &Case<'_>, pod: &Pod) -> Vec<String> {
    let file = case.node.site.log_file(pod, "main", 0);
    entries(file.parent().expect("a folder of its own"))
}

/// The node keeps three files of at most 40 KiB, checked every three seconds.
fn rotated(case: &Case<'_>, count: usize) {
    let script = "    command: [sh, -c, 'while :; do n=0; while [ $n -lt 200 ]; do echo hello \
                  world; n=$((n+1)); done; sleep 0.2; done']\n";
    let spec = format!("{QUICK_END}  restartPolicy: Never\n");
    let pods: Vec<Pod> = (0..count)
        .map(|number| {
            let name = format!("{}-{number}", case.name);
            case.put(&number.to_string(), &manifest(&name, &spec, script));
            case.node.wait_running(&name)
        })
        .collect();
    let counts = || pods.iter().map(|pod| log_files(case, pod).len()).collect::<Vec<_>>();
    until_in(Duration::from_secs(180), "each has three files", || {
        let counts = counts();
        if counts.iter().all(|count| *count == 3) { Ok(()) } else { Err(format!("{counts:?}")) }
    });
    always(Duration::from_secs(120), "none has more", || {
        std::thread::sleep(Duration::from_secs(1));
        let files: Vec<_> = pods.iter().map(|pod| log_files(case, pod)).collect();
        // During a rotation there may be another file for a moment.
        let moment = |file: &&String| file.rsplit('.').next() == Some("tmp");
        let lasting = |files: &Vec<String>| files.iter().filter(|file| !moment(file)).count();
        if files.iter().all(|files| lasting(files) <= 3) {
            Ok(())
        } else {
            Err(format!("{files:?}"))
        }
    });
}

/// The node's longest back-off is twenty seconds, so a crashing container restarts a few times.
fn backs_off(case: &Case<'_>, restarts_max: u64) {
    case.put_pod("", "    command: [/bin/false]\n");
    // As upstream: half a minute before the first check, then three restarts.
    std::thread::sleep(Duration::from_secs(30));
    let bound = Duration::from_secs(300);
    let pod = case.wait_in(bound, "it was restarted", |pod| pod.restarts("main") >= 3);
    assert!(pod.restarts("main") <= restarts_max, "{}", pod.0["status"]);
}

/// The newest dead container of each one stays; of removed pods none does.
fn dead_ones(case: &Case<'_>, names: &[&str], restarts: u64) {
    let pods: Vec<Pod> = names
        .iter()
        .map(|what| {
            let name = format!("{}-{what}", case.name);
            let end = if restarts == 0 { "sleep 10000 & wait" } else { "exit 0" };
            let main = format!("    command: [sh, -c, 'trap \"exit 0\" TERM; {end}']\n");
            case.put(what, &manifest(&name, QUICK_END, &main));
            until("it is there", || case.node.pod(&name))
        })
        .collect();
    for what in names {
        let name = format!("{}-{what}", case.name);
        until_in(Duration::from_secs(120), "it has restarted", || {
            let pod = case.node.pod(&name)?;
            let done = pod.restarts("main") >= restarts
                && !pod.container("main")["containerID"].as_str().unwrap_or_default().is_empty();
            if done { Ok(()) } else { Err(pod.0["status"].to_string()) }
        });
    }
    let count = |pod: &Pod| case.node.site.runtime_state().of(pod.uid()).containers.len();
    for pod in &pods {
        until("no more than one dead container is kept", || {
            let count = count(pod);
            if count <= 2 { Ok(()) } else { Err(format!("{count} containers")) }
        });
    }
    always(Duration::from_secs(10), "no more are kept", || {
        let counts: Vec<usize> = pods.iter().map(count).collect();
        std::thread::sleep(Duration::from_secs(1));
        // A container that is about to start exists beside the dead one and the one before it.
        if counts.iter().all(|count| *count <= 3) { Ok(()) } else { Err(format!("{counts:?}")) }
    });
    for what in names {
        case.take(what);
    }
    for pod in &pods {
        case.node.wait_gone(pod);
    }
}

/// Writes this many MiB there, and waits.
fn consumer(path: &str, mib: u32, fields: &str) -> String {
    format!(
        "    command: [sh, -c, 'trap \"exit 0\" TERM; dd if=/dev/zero of={path}/f bs=1M \
         count={mib} 2>/dev/null; sleep 10000 & wait']\n{fields}"
    )
}

/// Pods of the folder are evicted if their annotation allows it.
fn over_their_disk(case: &Case<'_>) {
    let mount = "    volumeMounts: [{name: v, mountPath: /v}]\n";
    let limit = "    resources: {limits: {ephemeral-storage: 20Mi}}\n";
    let volume = |source: &str| format!("  volumes: [{{name: v, emptyDir: {{{source}}}}}]\n");
    let sized = volume("sizeLimit: 20Mi");
    let in_memory = volume("medium: Memory, sizeLimit: 20Mi");
    let put = |what: &str, spec: &str, main: &str| {
        let name = format!("{}-{what}", case.name);
        let text = manifest(&name, &format!("{QUICK_END}{spec}"), main);
        let metadata = "metadata:\n  annotations: {edged.io/evictable: 'true'}\n";
        case.put(what, &text.replace("metadata:\n", metadata));
        name
    };
    let both = format!("{mount}{limit}");
    let over = [
        put("volume", &sized, &consumer("/v", 21, mount)),
        put("layer", "", &consumer("/tmp", 21, limit)),
        put("both", &volume(""), &consumer("/v", 21, &both)),
    ];
    let within = [
        put("memory", &in_memory, &consumer("/v", 21, mount)),
        put("below", &sized, &consumer("/v", 19, mount)),
        put("below-layer", "", &consumer("/tmp", 19, limit)),
    ];
    for name in &over {
        until_in(Duration::from_secs(120), &format!("{name} is evicted"), || {
            let pod = case.node.pod(name)?;
            let evicted = (pod.phase(), pod.reason()) == ("Failed", "Evicted");
            if evicted { Ok(()) } else { Err(pod.0["status"].to_string()) }
        });
    }
    always(Duration::from_secs(15), "the others stay", || {
        for name in &within {
            let pod = case.node.pod(name)?;
            if pod.reason() == "Evicted" {
                return Err(pod.0["status"].to_string());
            }
        }
        Ok(())
    });
}
