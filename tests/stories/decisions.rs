//! Decision tables: state of the runtime × desired state → the first request.

use crate::harness::{Harness, MAIN, container, pod, sandbox};
use edged::model::cri::ContainerState::{self, Created, Exited, Running, Unknown};

/// A container that a relist finds: name, attempt, sandbox, state, exit code.
type Row = (&'static str, u32, &'static str, ContainerState, i32);

/// The first request, once everything is inspected; `-`: none. Everything that the agent finds here
/// was created by an earlier life of it.
fn first(spec: &str, sandboxes: &[(&str, u32, bool)], rows: &[Row]) -> String {
    let mut harness = Harness::new();
    for &(id, attempt, ready) in sandboxes {
        harness.sandboxes.push(sandbox(id, attempt, ready));
    }
    for (n, &(name, attempt, sandbox, state, exit_code)) in rows.iter().enumerate() {
        let mut found = container(&format!("x{n}"), name, state);
        // The found container has the spec's image.
        let wanted = spec.split_once(&format!(r#""name":"{name}","image":""#));
        let image = wanted.and_then(|(_, rest)| rest.split('"').next()).expect("in the spec");
        found.image = image.into();
        found.attempt = attempt;
        found.sandbox.0 = sandbox.into();
        harness.exit_codes.push((found.id.0.clone(), exit_code));
        harness.containers.push(found);
    }
    harness.manifests(&[&pod(spec)]);
    loop {
        let requested = harness.open_calls();
        match requested.first() {
            None => return "-".to_owned(),
            Some(name) if name.starts_with("container_status") => harness.does(name),
            Some(name) if name.starts_with("podsandbox_status") => harness.does(name),
            Some(_) => return requested.join(", "),
        }
    }
}

const UP: &[(&str, u32, bool)] = &[("s1", 0, true)];
const DOWN: &[(&str, u32, bool)] = &[("s1", 0, false)];

#[test]
fn main_containers_follow_the_restart_policy() {
    for (policy, state, code, expected) in [
        ("Always", Running, 0, "-"),
        ("Always", Exited, 0, "image_status i:1"),
        ("Always", Exited, 1, "image_status i:1"),
        ("Always", Created, 0, "start_container x0"),
        ("Always", Unknown, 0, "stop_container x0 30"),
        ("OnFailure", Exited, 0, "stop_podsandbox s1"),
        ("OnFailure", Exited, 1, "image_status i:1"),
        ("Never", Exited, 0, "stop_podsandbox s1"),
        ("Never", Exited, 1, "stop_podsandbox s1"),
        ("Never", Running, 0, "-"),
        ("Never", Unknown, 0, "stop_container x0 30"),
    ] {
        let spec = format!(r#""restartPolicy":"{policy}",{MAIN}"#);
        let got = first(&spec, UP, &[("m", 0, "s1", state, code)]);
        assert_eq!(got, expected, "{policy} {state:?} {code}");
    }
}

#[test]
fn a_sandbox_is_made_anew_only_where_something_is_left_to_run() {
    let two: &[(&str, u32, bool)] = &[("s1", 0, true), ("s2", 1, true)];
    for (policy, sandboxes, rows, expected) in [
        ("Always", &[][..], &[][..], "run_podsandbox #0"),
        ("Always", DOWN, &[], "stop_podsandbox s1"),
        ("Always", DOWN, &[("m", 0, "s1", Exited, 255)], "stop_podsandbox s1"),
        ("Always", two, &[("m", 0, "s1", Running, 0)], "stop_container x0 30"),
        ("Always", two, &[], "stop_podsandbox s2"),
        ("Never", DOWN, &[("m", 0, "s1", Exited, 255)], "stop_podsandbox s1"),
        ("OnFailure", DOWN, &[("m", 0, "s1", Exited, 0)], "stop_podsandbox s1"),
    ] {
        let spec = format!(r#""restartPolicy":"{policy}",{MAIN}"#);
        assert_eq!(first(&spec, sandboxes, rows), expected, "{policy} {sandboxes:?} {rows:?}");
    }
}

#[test]
fn after_a_reboot_a_pod_runs_again_unless_its_policy_says_that_it_has_ended() {
    for (policy, code, runs_again) in [
        ("Always", 0, true),
        ("Always", 255, true),
        ("OnFailure", 255, true),
        ("OnFailure", 0, false),
        ("Never", 255, false),
    ] {
        let mut harness = Harness::new();
        harness.sandboxes.push(sandbox("s0", 0, false));
        let mut dead = container("x0", "m", Exited);
        dead.sandbox.0 = "s0".into();
        harness.containers.push(dead);
        harness.exit_codes.push(("x0".into(), code));
        harness.manifests(&[&pod(&format!(r#""restartPolicy":"{policy}",{MAIN}"#))]);
        harness.does_all(&["container_status x0", "stop_podsandbox s0"]);
        let requested = harness.open_calls();
        let repeated = requested.contains(&"run_podsandbox #1".to_owned());
        assert_eq!(repeated, runs_again, "{policy} {code}: {requested:?}");
        if !runs_again {
            let phase = harness.status()["phase"].as_str().map(str::to_owned);
            let expected = if code == 0 { "Succeeded" } else { "Failed" };
            assert_eq!(phase.as_deref(), Some(expected), "{policy} {code}");
        }
    }
}

#[test]
fn plain_init_containers_run_one_by_one_and_only_in_the_newest_sandbox() {
    let spec = |policy: &str| {
        format!(
            r#""restartPolicy":"{policy}","initContainers":[{{"name":"a","image":"i:1"}},
                {{"name":"b","image":"i:2"}}],{MAIN}"#
        )
    };
    let both: &[(&str, u32, bool)] = &[("s0", 0, false), ("s1", 1, true)];
    for (policy, sandboxes, rows, expected) in [
        ("Always", UP, &[][..], "image_status i:1"),
        ("Always", UP, &[("a", 0, "s1", Running, 0)][..], "-"),
        ("Always", UP, &[("a", 0, "s1", Exited, 0)], "image_status i:2"),
        ("Always", UP, &[("a", 0, "s1", Exited, 1)], "image_status i:1"),
        ("Never", UP, &[("a", 0, "s1", Exited, 1)], "stop_podsandbox s1"),
        ("Always", UP, &[("a", 0, "s1", Exited, 0), ("b", 0, "s1", Exited, 0)], "image_status i:1"),
        // The runtime no longer has the first: the second has started, so the first had succeeded.
        ("Always", UP, &[("b", 0, "s1", Running, 0)], "-"),
        ("Always", UP, &[("b", 0, "s1", Exited, 1)], "image_status i:2"),
        ("Always", UP, &[("m", 0, "s1", Running, 0)], "-"),
        ("Always", UP, &[("m", 0, "s1", Exited, 1)], "image_status i:1"),
        (
            "Always",
            both,
            &[("a", 0, "s0", Exited, 0), ("m", 0, "s0", Exited, 255)],
            "image_status i:1",
        ),
    ] {
        assert_eq!(first(&spec(policy), sandboxes, rows), expected, "{policy} {rows:?}");
    }
}

#[test]
fn an_init_container_that_the_runtime_has_no_more_is_told_to_have_completed() {
    let mut harness = Harness::new();
    let spec = format!(r#""initContainers":[{{"name":"a","image":"i:1"}}],{MAIN}"#);
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", Running));
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    let status = harness.status();
    let reported = &status["initContainerStatuses"][0];
    let end = &reported["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&0.into(), &"Completed".into()), "{reported}");
    let message = "Unable to get init container status from container runtime and pod has been \
                   initialized, treat it as exit normally";
    assert_eq!((&end["message"], &reported["ready"]), (&message.into(), &true.into()));
    assert_eq!(status["phase"], "Running");
}

#[test]
fn a_pod_that_initializes_again_after_a_reboot_is_pending() {
    let mut harness = Harness::new();
    let spec = format!(r#""initContainers":[{{"name":"a","image":"i:1"}}],{MAIN}"#);
    harness.sandboxes.push(sandbox("s0", 0, false));
    for (id, name) in [("x0", "m"), ("x1", "a")] {
        let mut dead = container(id, name, Exited);
        dead.sandbox.0 = "s0".into();
        harness.containers.push(dead);
    }
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["container_status x1", "container_status x0", "stop_podsandbox s0"]);
    harness.does_all(&["remove_container x1", "run_podsandbox #1", "podsandbox_status s1"]);
    harness.does_all(&["image_status i:1", "create_container a#1", "start_container c2"]);
    assert_eq!(harness.status()["phase"], "Pending", "it has begun");
    harness.does("container_status c2");
    assert_eq!(harness.status()["phase"], "Pending", "it runs");
}

#[test]
fn sidecars_run_again_whatever_the_policy_and_gate_what_comes_after_them() {
    let spec = format!(
        r#""restartPolicy":"Never","initContainers":[
            {{"name":"a","image":"i:2","restartPolicy":"Always"}}],{MAIN}"#
    );
    for (rows, expected) in [
        (&[][..], "image_status i:2"),
        (&[("a", 0, "s1", Running, 0)][..], "image_status i:1"),
        (&[("a", 0, "s1", Exited, 0)], "image_status i:2"),
        (&[("a", 0, "s1", Running, 0), ("m", 0, "s1", Running, 0)], "-"),
        (&[("a", 0, "s1", Exited, 1), ("m", 0, "s1", Running, 0)], "image_status i:2"),
        (&[("a", 0, "s1", Running, 0), ("m", 0, "s1", Exited, 0)], "stop_container x0 30"),
        (&[("a", 0, "s1", Exited, 0), ("m", 0, "s1", Exited, 0)], "stop_podsandbox s1"),
    ] {
        assert_eq!(first(&spec, UP, rows), expected, "{rows:?}");
    }
}

#[test]
fn a_container_found_running_is_adopted_by_hash_or_by_image() {
    use edged::agent::pod::hash::container_hash;
    for (hash, image, expected) in [
        (Some(container_hash("m", "i:1")), "sha256:1", "-"),
        (Some("311670a".into()), "i:1", "-"),
        (None, "i:1", "-"),
        (Some(container_hash("m", "i:0")), "sha256:1", "stop_container x0 30"),
    ] {
        let mut harness = Harness::new();
        harness.sandboxes.push(sandbox("s1", 0, true));
        let mut found = container("x0", "m", Running);
        found.hash.clone_from(&hash);
        found.image = image.into();
        harness.containers.push(found);
        harness.manifests(&[&pod(MAIN)]);
        harness.does_all(&["podsandbox_status s1", "container_status x0"]);
        let requested = harness.open_calls();
        let requested = requested.first().map_or("-", String::as_str);
        assert_eq!(requested, expected, "{hash:?} {image}");
    }
}

#[test]
fn what_the_runtime_has_of_an_older_sandbox_is_not_started() {
    let both: &[(&str, u32, bool)] = &[("s0", 0, false), ("s1", 1, true)];
    let inits = format!(r#""initContainers":[{{"name":"a","image":"i:1"}}],{MAIN}"#);
    for (spec, sandboxes, rows, expected) in [
        (MAIN, both, &[("m", 0, "s0", Created, 0)][..], "remove_container x0"),
        (
            MAIN,
            UP,
            &[("m", 0, "s1", Running, 0), ("m", 1, "s1", Created, 0)],
            "remove_container x1",
        ),
        (&*inits, both, &[("a", 0, "s0", Created, 0)], "remove_container x0"),
        // The newest is dead, the older one not.
        (MAIN, &[("s1", 0, true), ("s2", 1, false)], &[], "stop_podsandbox s2"),
    ] {
        assert_eq!(first(spec, sandboxes, rows), expected, "{sandboxes:?} {rows:?}");
    }
}

#[test]
fn an_init_container_that_was_made_is_started_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let init = r#""initContainers":[{"name":"a","image":"i:1"}]"#;
        let spec = format!(r#""restartPolicy":"{policy}",{init},{MAIN}"#);
        let got = first(&spec, UP, &[("a", 0, "s1", Created, 0)]);
        assert_eq!(got, "start_container x0", "{policy}");
    }
}

/// Two main containers, and something before them.
fn two(policy: &str, init: &str) -> String {
    format!(
        r#""restartPolicy":"{policy}",{init}"containers":[{{"name":"m","image":"i:1"}},
            {{"name":"n","image":"i:3"}}]"#
    )
}

#[test]
fn with_one_of_two_main_containers_a_pod_is_initialised_and_goes_on() {
    let plain = r#""initContainers":[{"name":"a","image":"i:2"}],"#;
    let sidecar = r#""initContainers":[{"name":"a","image":"i:2","restartPolicy":"Always"}],"#;
    for (spec, rows, expected) in [
        (two("Always", plain), &[("n", 0, "s1", Running, 0)][..], "image_status i:1"),
        // A sidecar is restarted for the one that still runs.
        (
            two("Never", sidecar),
            &[("a", 0, "s1", Exited, 0), ("m", 0, "s1", Exited, 0), ("n", 0, "s1", Running, 0)],
            "image_status i:2",
        ),
    ] {
        assert_eq!(first(&spec, UP, rows), expected, "{rows:?}");
    }
}

#[test]
fn a_dead_sandbox_is_replaced_while_one_container_has_not_succeeded() {
    for (policy, codes, repeated) in [
        ("OnFailure", Some([0, 1]), true),
        ("OnFailure", Some([0, 0]), false),
        // Nothing of it was ever made.
        ("Never", None, true),
        ("Never", Some([0, 1]), false),
    ] {
        let mut harness = Harness::new();
        harness.sandboxes.push(sandbox("s1", 0, false));
        for (name, code) in codes.into_iter().flat_map(|codes| ["m", "n"].into_iter().zip(codes)) {
            let mut dead = container(&format!("x-{name}"), name, Exited);
            dead.image = if name == "m" { "i:1" } else { "i:3" }.into();
            harness.exit_codes.push((dead.id.0.clone(), code));
            harness.containers.push(dead);
        }
        harness.manifests(&[&pod(&two(policy, ""))]);
        for _ in 0..5 {
            let looks = |call: &String| call.contains("_status") || call.starts_with("stop_");
            if let Some(call) = harness.open_calls().into_iter().find(looks) {
                harness.does(&call);
            }
        }
        let run = harness.open_calls().contains(&"run_podsandbox #1".to_owned());
        assert_eq!(run, repeated, "{policy} {codes:?}: {:?}", harness.open_calls());
    }
}
