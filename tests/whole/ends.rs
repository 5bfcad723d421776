//! Pods that end by themselves.

use crate::World;
use crate::support::agent::{Pod, Site, manifest};

crate::tests![
    a_job_that_succeeds_is_succeeded_and_is_not_started_again,
    a_job_that_fails_is_failed_and_says_how,
    a_job_that_may_try_again_does_so_until_it_succeeds,
    a_deadline_ends_the_pod,
    a_container_is_removed_though_a_cancelled_start_left_its_task,
];

fn ended(site: &Site, name: &str, phase: &str) -> Pod {
    site.wait(name, phase, |pod| pod.phase() == phase)
}

fn job(name: &str, policy: &str, script: &str) -> String {
    let spec = format!("  hostNetwork: true\n  restartPolicy: {policy}\n");
    manifest(name, &spec, &format!("    command: [sh, -c, '{script}']\n"))
}

fn a_job_that_succeeds_is_succeeded_and_is_not_started_again(world: &World) {
    let site = world.site("ends-well");
    let agent = site.start();
    site.put("done.yaml", &job("done", "Never", "echo done"));
    let pod = ended(&site, "done", "Succeeded");
    let end = &pod.container("main")["state"]["terminated"];
    assert_eq!(end["exitCode"], 0, "{end}");
    assert_eq!(end["reason"], "Completed");
    assert!(end["startedAt"].is_string() && end["finishedAt"].is_string(), "{end}");
    assert_eq!(pod.condition("Ready"), "False");
    assert_eq!(pod.condition("Initialized"), "True");
    let id = pod.container_id("main");
    // The next agent finds it ended, and does not restart it.
    agent.kill();
    let _agent = site.start();
    let later = ended(&site, "done", "Succeeded");
    assert_eq!((later.container_id("main"), later.restarts("main")), (id, 0));
    assert_eq!(site.runtime_state().of(pod.uid()).containers.len(), 1);
    site.take("done.yaml");
    site.wait_empty();
}

fn a_job_that_fails_is_failed_and_says_how(world: &World) {
    let site = world.site("ends-badly");
    let _agent = site.start();
    site.put("bad.yaml", &job("bad", "Never", "echo no >&2; exit 3"));
    let pod = ended(&site, "bad", "Failed");
    let end = &pod.container("main")["state"]["terminated"];
    assert_eq!(end["exitCode"], 3, "{end}");
    assert_eq!(end["reason"], "Error");
    assert_eq!(pod.restarts("main"), 0);
    // A missing command fails with the runtime's reason, without a retry.
    site.put(
        "none.yaml",
        &manifest(
            "none",
            "  hostNetwork: true\n  restartPolicy: Never\n",
            "    command: [/not/there]\n",
        ),
    );
    let none = ended(&site, "none", "Failed");
    let end = &none.container("main")["state"]["terminated"];
    assert_eq!(end["exitCode"], 128, "{}", none.0["status"]);
    assert_eq!(end["reason"], "StartError");
    site.take("bad.yaml");
    site.take("none.yaml");
    site.wait_empty();
}

fn a_job_that_may_try_again_does_so_until_it_succeeds(world: &World) {
    let site = world.site("ends-retried");
    let _agent = site.start();
    site.put("again.yaml", &job("again", "OnFailure", "exit 5"));
    let pod = site.wait("again", "tried again", |pod| pod.restarts("main") >= 1);
    let end = &pod.container("main")["lastState"]["terminated"];
    assert_eq!(end["exitCode"], 5, "{}", pod.0["status"]);
    assert_ne!(pod.phase(), "Failed", "OnFailure never fails a pod by its exit code");
    site.put("again.yaml", &job("again", "OnFailure", "exit 0"));
    let done = ended(&site, "again", "Succeeded");
    assert_eq!(done.restarts("main"), 0, "{}", done.0["status"]);
    site.take("again.yaml");
    site.wait_empty();
}

fn a_deadline_ends_the_pod(world: &World) {
    let site = world.site("ends-deadline");
    let _agent = site.start();
    let spec = "  hostNetwork: true\n  activeDeadlineSeconds: 2\n";
    let script = "    command: [sh, -c, 'trap \"exit 0\" TERM; sleep 100000 & wait']\n";
    site.put("late.yaml", &manifest("late", spec, script));
    let pod = ended(&site, "late", "Failed");
    assert_eq!(pod.reason(), "DeadlineExceeded");
    assert!(site.runtime_state().of(pod.uid()).running("main").is_empty());
    site.take("late.yaml");
    site.wait_empty();
}

/// What containerd leaves of a start whose caller is killed at the wrong moment is rare: so it is
/// created by hand, a task below a container that has ended.
fn a_container_is_removed_though_a_cancelled_start_left_its_task(world: &World) {
    let site = world.site("ends-task");
    let agent = site.start();
    let script = "if [ -e /again ]; then exec sleep 100000; fi; touch /again";
    // Beside it a container that keeps the sandbox alive.
    let stays = "  - name: stays\n    image: localhost/edged-demo:1\n    \
                 command: [sh, -c, 'trap exit TERM; sleep 1000 & wait']\n";
    site.put("left.yaml", &(job("left", "Never", script) + stays));
    let pod = site.wait("left", "one has ended", |pod| {
        pod.container("main")["state"]["terminated"].is_object() && pod.phase() == "Running"
    });
    let id = pod.container_id("main");
    world.containerd.ctr(&["tasks", "start", "--detach", "--null-io", &id]);
    let has_task = || world.containerd.ctr(&["tasks", "list"]).contains(&id);
    assert!(has_task(), "it is what keeps the container");
    site.take("left.yaml");
    site.wait_empty();
    assert!(!has_task());
    let log = agent.log();
    assert!(
        log.contains("cannot delete running task"),
        "it was not refused, so the test proves nothing"
    );
}
