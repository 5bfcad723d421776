//! Changes and removals of manifests: what ends, how, and with which grace period.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::World;
use crate::support::agent::{entries, manifest, sleeper};
use crate::support::wait::until;

crate::tests![
    another_image_in_the_manifest_replaces_the_pod,
    another_variable_in_the_manifest_replaces_the_pod,
    a_removed_pod_is_told_and_may_end_in_its_own_time,
    a_removed_pod_that_does_not_listen_is_killed_when_its_grace_is_over,
    a_pod_without_grace_is_killed_at_once,
    a_pod_that_is_removed_and_put_back_runs_again,
];

const VERSION: &str = "    command: [sh, -c, 'trap \"exit 0\" TERM; cat /etc/demo-version; \
                       echo $COLOUR; sleep 100000 & wait']\n    \
                       env: [{name: COLOUR, value: red}]\n";

fn another_image_in_the_manifest_replaces_the_pod(world: &World) {
    let site = world.site("changes-image");
    let _agent = site.start();
    let text = manifest("app", "  hostNetwork: true\n", VERSION);
    site.put("app.yaml", &text);
    let before = site.wait_running("app");
    until("version 1 speaks", || {
        let output = site.output(&before, "main", 0);
        if output == ["1", "red"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    site.put("app.yaml", &text.replace("edged-demo:1", "edged-demo:2"));
    let after =
        site.wait("app", "the new image runs", |pod| pod.runs() && pod.uid() != before.uid());
    until("version 2 speaks", || {
        let output = site.output(&after, "main", 0);
        if output == ["2", "red"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    site.wait_gone(&before);
    assert_eq!(after.container("main")["image"], "localhost/edged-demo:2");
    site.take("app.yaml");
    site.wait_gone(&after);
}

fn another_variable_in_the_manifest_replaces_the_pod(world: &World) {
    let site = world.site("changes-env");
    let _agent = site.start();
    let text = manifest("app", "  hostNetwork: true\n", VERSION);
    site.put("app.yaml", &text);
    let before = site.wait_running("app");
    site.put("app.yaml", &text.replace("value: red", "value: green"));
    let after =
        site.wait("app", "the new value runs", |pod| pod.runs() && pod.uid() != before.uid());
    until("the new value is there", || {
        let output = site.output(&after, "main", 0);
        if output == ["1", "green"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    site.wait_gone(&before);
    // Rewriting the same content changes nothing.
    site.put("app.yaml", &format!("# words\n{}", text.replace("value: red", "value: green")));
    site.put("other.yaml", &sleeper("other"));
    site.wait_running("other");
    let same = site.pod("app").expect("it is wanted");
    assert_eq!((same.uid(), same.container_id("main")), (after.uid(), after.container_id("main")));
    site.take("app.yaml");
    site.take("other.yaml");
    site.wait_empty();
}

/// Writes a line on SIGTERM, takes its time, ends with 7.
const POLITE: &str = "    command: [sh, -c, 'trap \"echo bye; sleep 1; echo gone; exit 7\" TERM; \
                      echo up; sleep 100000 & wait']\n";

fn a_removed_pod_is_told_and_may_end_in_its_own_time(world: &World) {
    let site = world.site("changes-polite");
    let _agent = site.start();
    // With an hour's grace only a process that ends by itself is gone in time.
    let spec = "  hostNetwork: true\n  terminationGracePeriodSeconds: 3600\n";
    site.put("polite.yaml", &manifest("polite", spec, POLITE));
    let pod = site.wait_running("polite");
    until("it is up", || {
        let output = site.output(&pod, "main", 0);
        if output == ["up"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    // An open file outlives its name.
    let mut log = File::open(site.log_file(&pod, "main", 0)).expect("the log is there");
    site.take("polite.yaml");
    let ending = site.wait("polite", "says that it ends", |pod| {
        pod.0["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(ending.uid(), pod.uid());
    site.wait_gone(&pod);
    let mut text = String::new();
    log.read_to_string(&mut text).expect("it is text");
    assert!(text.contains(" bye\n") && text.contains(" gone\n"), "{text}");
}

const DEAF: &str = "    command: [sh, -c, 'trap \"\" TERM; echo up; \
                    while true; do sleep 1000; done']\n";

fn a_removed_pod_that_does_not_listen_is_killed_when_its_grace_is_over(world: &World) {
    let site = world.site("changes-deaf");
    let _agent = site.start();
    let spec = "  hostNetwork: true\n  terminationGracePeriodSeconds: 3\n";
    site.put("deaf.yaml", &manifest("deaf", spec, DEAF));
    let pod = site.wait_running("deaf");
    until("it is up", || {
        let output = site.output(&pod, "main", 0);
        if output == ["up"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    let removed = Instant::now();
    site.take("deaf.yaml");
    site.wait_gone(&pod);
    let took = removed.elapsed();
    assert!(took >= Duration::from_secs(3), "killed after {took:?}, expected 3 s of grace");
    assert_eq!(entries(&site.pod_logs), [] as [&str; 0]);
}

fn a_pod_without_grace_is_killed_at_once(world: &World) {
    let site = world.site("changes-force");
    let _agent = site.start();
    let spec = "  hostNetwork: true\n  terminationGracePeriodSeconds: 0\n";
    site.put("forced.yaml", &manifest("forced", spec, DEAF));
    let pod = site.wait_running("forced");
    site.take("forced.yaml");
    site.wait_gone(&pod);
}

fn a_pod_that_is_removed_and_put_back_runs_again(world: &World) {
    let site = world.site("changes-back");
    let _agent = site.start();
    let text = sleeper("back");
    site.put("back.yaml", &text);
    let before = site.wait_running("back");
    site.take("back.yaml");
    site.wait("back", "says that it ends", |pod| {
        pod.0["metadata"]["deletionTimestamp"].is_string()
    });
    site.put("back.yaml", &text);
    let after = site.wait("back", "runs again", |pod| {
        pod.runs() && pod.container_id("main") != before.container_id("main")
    });
    // The same content has the same uid, and the pod is a new one all the same.
    assert_eq!(after.uid(), before.uid());
    assert!(after.0["metadata"]["deletionTimestamp"].is_null());
    let state = site.runtime_state().of(after.uid());
    assert_eq!((state.sandboxes.len(), state.containers.len()), (1, 1), "{}", state.short());
    site.take("back.yaml");
    site.wait_empty();
}
