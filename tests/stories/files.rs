//! The agent's own files of a container: `/etc/hosts`, and the termination message.

use edged::agent::event::Event;
use edged::model::cri::{Mount, Reply, Request};
use edged::model::job::{ContainerFiles, Hosts, JobSpec, LastWords, LogDir};
use serde_json::json;

use crate::harness::{Harness, MAIN, UID};
use crate::made::{annotated, container_of, made_on, sandbox_of};

/// The files that were made last.
fn files(harness: &Harness) -> ContainerFiles {
    let made = harness.specs.iter().rev().find_map(|spec| match spec {
        JobSpec::MakeContainerFiles(files) => Some((**files).clone()),
        _ => None,
    });
    made.expect("files are made before a container")
}

fn hosts(spec: &str) -> Option<Hosts> {
    let mut harness =
        Harness::with(|config| "site".clone_into(&mut config.settings.cluster_domain));
    made_on(&mut harness, spec);
    files(&harness).hosts
}

const HEAD: &str = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

#[test]
fn the_hosts_file_names_the_pod_and_its_aliases() {
    let own = |rest: &str| Some(Hosts::Own { text: format!("{HEAD}{rest}") });
    assert_eq!(hosts(MAIN), own("10.0.0.5\tp-gw\n"));
    let aliases = r#""hostAliases":[{"ip":"192.0.2.9","hostnames":["a","b.c"]}]"#;
    let lines = "\n# Entries added by HostAliases.\n192.0.2.9\ta\tb.c\n";
    assert_eq!(hosts(&format!("{aliases},{MAIN}")), own(&format!("10.0.0.5\tp-gw\n{lines}")));
    let named = format!(r#""hostname":"web","subdomain":"shop",{MAIN}"#);
    assert_eq!(hosts(&named), own("10.0.0.5\tweb.shop.default.svc.site\tweb\n"));
    let nodes = Some(Hosts::Nodes { aliases: lines.to_owned() });
    assert_eq!(hosts(&format!(r#""hostNetwork":true,{aliases},{MAIN}"#)), nodes);
}

#[test]
fn the_files_are_mounted_after_all_else() {
    let mut harness = Harness::new();
    let (_, container) = made_on(&mut harness, MAIN);
    let file = &files(&harness).message;
    let mount = |container_path: &str, host_path: String| Mount {
        container_path: container_path.to_owned(),
        host_path,
        ..Mount::default()
    };
    let dir = format!("/var/lib/kubelet/pods/{UID}");
    assert_eq!(file.len(), 8);
    assert_eq!(
        container.mounts,
        [
            mount("/etc/hosts", format!("{dir}/etc-hosts")),
            mount("/dev/termination-log", format!("{dir}/containers/m/{file}")),
        ]
    );
    let note = |key: &str| container.annotations[&format!("io.kubernetes.container.{key}")].clone();
    assert_eq!(note("terminationMessagePath"), "/dev/termination-log");
    assert_eq!(note("terminationMessagePolicy"), "File");
}

#[test]
fn each_instance_has_a_file_of_its_own_and_the_oldest_goes() {
    let mut harness = Harness::new();
    harness.manifests(&[&annotated("", MAIN)]);
    sandbox_of(&mut harness);
    harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    let first = files(&harness);
    assert_eq!((first.attempt, &first.old), (0, &None));
    harness.does("container_status c2");
    harness.exits("m", 1);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    let second = files(&harness);
    assert_eq!((second.attempt, &second.old), (1, &None));
    assert_ne!(first.message, second.message);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.exits("m", 1);
    harness.does("container_status c3");
    harness.pass(10_000);
    while !harness.open_calls().iter().any(|name| name == "create_container m#2") {
        let name = harness.open_calls().remove(0);
        harness.does(&name);
    }
    assert_eq!(files(&harness).old, Some(first.message));
}

const PATH: &str = r#""containers":[{"name":"m","image":"i:1","terminationMessagePath":"/tmp/why",
    "terminationMessagePolicy":"FallbackToLogsOnError"}]"#;

#[test]
fn last_words_are_read_when_a_container_has_ended() {
    let mut harness = Harness::new();
    harness.last_words = "no disk".to_owned();
    harness.manifests(&[&annotated("", PATH)]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    let (call, request) = harness.take("create_container m#0");
    let reply = harness.perform(&request);
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    assert_eq!(config.mounts[1].container_path, "/tmp/why");
    let note = &config.annotations["io.kubernetes.container.terminationMessagePolicy"];
    assert_eq!(note, "FallbackToLogsOnError");
    harness.deliver(Event::Cri(call, Ok(reply)));
    harness.does_all(&["start_container c2", "container_status c2"]);
    assert_eq!(harness.reads, [], "not while it runs");
    harness.exits("m", 1);
    let (call, request) = harness.take("container_status c2");
    let Reply::ContainerStatus(mut status) = harness.perform(&request) else { panic!("a status") };
    status.message = "killed".into();
    status.message_from_log = true;
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
    let pod = LogDir { namespace: "default".into(), name: "p-gw".into(), uid: UID.into() };
    let words = LastWords { pod, container: "m".into(), file: Some("f".into()), log: Some(0) };
    assert_eq!(harness.reads, [words]);
    let reported = harness.status();
    let reported = &reported["containerStatuses"][0];
    let ended =
        [&reported["state"], &reported["lastState"]].map(|it| it["terminated"]["message"].clone());
    assert!(ended.contains(&"killed: no disk".into()), "{reported}");
}

#[test]
fn the_log_stands_in_only_for_a_failure_and_only_files_below_the_pods_folder_are_read() {
    for (exit_code, reason, file, want) in [
        (0, "", "/var/lib/kubelet/pods/u1/containers/m/f", Some((Some("f"), None))),
        (1, "ContainerCannotRun", "", None),
        (1, "", "/etc/shadow", Some((None, Some(0)))),
        (1, "", "/var/lib/kubelet/pods/u1/containers/m/../../../x", Some((None, Some(0)))),
        (1, "", "/var/lib/kubelet/pods/u2/containers/m/f", Some((None, Some(0)))),
    ] {
        let mut harness = Harness::new();
        harness.manifests(&[&annotated("", &format!(r#""restartPolicy":"Never",{MAIN}"#))]);
        sandbox_of(&mut harness);
        harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
        harness.does("container_status c2");
        harness.exits("m", exit_code);
        let (call, request) = harness.take("container_status c2");
        let Reply::ContainerStatus(mut status) = harness.perform(&request) else {
            panic!("a status")
        };
        status.reason = reason.into();
        status.message_file = (!file.is_empty()).then(|| file.into());
        status.message_from_log = true;
        harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
        let read = harness.reads.first().map(|words| (words.file.as_deref(), words.log));
        assert_eq!(read, want, "{exit_code} {reason} {file}");
    }
}

#[test]
fn messages_of_all_containers_together_have_a_bound() {
    let mut harness = Harness::new();
    harness.last_words = "é".repeat(10_000);
    let two = r#""restartPolicy":"Never","containers":[{"name":"m","image":"i:1"},
        {"name":"n","image":"i:1"}]"#;
    harness.manifests(&[&annotated("", two)]);
    sandbox_of(&mut harness);
    harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container n#0"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.exits("m", 0);
    harness.does("container_status c2");
    let status = harness.status();
    let message = &status["containerStatuses"][0]["state"]["terminated"]["message"];
    assert_eq!(message.as_str().expect("a text").len(), 6_144);
}

#[test]
fn an_ephemeral_container_is_started_in_a_pod_that_runs_and_never_again() {
    let mut harness = Harness::new();
    harness.manifests(&[&annotated("", MAIN)]);
    sandbox_of(&mut harness);
    harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    harness.does("container_status c2");
    let with = |target: &str| {
        annotated(
            "",
            &format!(
                r#"{MAIN},"ephemeralContainers":[
                    {{"name":"e","image":"i:1","targetContainerName":"{target}"}}]"#
            ),
        )
    };
    harness.manifests(&[&with("m")]);
    harness.does("image_status i:1");
    let (call, request) = harness.take("create_container e#0");
    let reply = harness.perform(&request);
    let Request::CreateContainer { config, .. } = &request else { panic!("{request:?}") };
    let target = edged::model::cri::ContainerId("c2".into());
    assert_eq!(config.namespaces.pid, edged::model::cri::PidNamespace::Target(target));
    harness.deliver(Event::Cri(call, Ok(reply)));
    harness.does_all(&["start_container c3", "container_status c3"]);
    let status = harness.status();
    let reported = &status["ephemeralContainerStatuses"][0];
    assert_eq!(reported["name"], "e");
    assert!(reported["state"]["running"].is_object(), "{reported}");
    // Nothing depends on it: as the kubelet reports it.
    assert_eq!((&reported["ready"], reported.get("started")), (&json!(false), None), "{reported}");
    assert_eq!(status["containerStatuses"][0]["started"], true);
    assert_eq!(status["conditions"][2]["status"], "True");
    harness.exits("e", 1);
    harness.does("container_status c3");
    assert_eq!(harness.open_calls(), [] as [&str; 0], "it is not started again");
    assert_eq!(harness.status()["phase"], "Running");
}

#[test]
fn an_ephemeral_container_needs_the_container_that_it_looks_into() {
    let mut harness = Harness::new();
    let spec = format!(
        r#"{MAIN},"ephemeralContainers":[{{"name":"e","image":"i:1","targetContainerName":"x"}}]"#
    );
    harness.manifests(&[&annotated("", &spec)]);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    harness.does("image_status i:1");
    container_of(&mut harness);
    let status = harness.status();
    let waiting = &status["ephemeralContainerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(waiting["message"], "unable to find target container x");
}

#[test]
fn the_full_name_can_be_the_host_name_if_the_kernel_takes_it() {
    let with = |host: &str| {
        format!(r#""hostname":"{host}","subdomain":"shop","setHostnameAsFQDN":true,{MAIN}"#)
    };
    let domain = |config: &mut edged::agent::Config| {
        config.settings.cluster_domain = "cluster.local".to_owned();
    };
    let mut harness = Harness::with(domain);
    let (sandbox, _) = made_on(&mut harness, &with("web"));
    assert_eq!(sandbox.hostname, "web.shop.default.svc.cluster.local");
    let mut harness = Harness::with(domain);
    harness.manifests(&[&annotated("", &with(&"a".repeat(50)))]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let event = harness.events.iter().find(|event| event.starts_with("FailedCreatePodSandBox"));
    let event = event.expect("an event");
    assert!(
        event.contains("is too long (64 characters is the max, 81 characters requested)"),
        "{event}"
    );
}

#[test]
fn a_gate_that_nobody_opens_keeps_a_pod_from_being_ready() {
    let mut harness = Harness::new();
    let spec = format!(r#""readinessGates":[{{"conditionType":"site/up"}}],{MAIN}"#);
    harness.manifests(&[&annotated("", &spec)]);
    sandbox_of(&mut harness);
    harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    harness.does("container_status c2");
    let status = harness.status();
    let condition = |kind: &str| {
        let all = status["conditions"].as_array().expect("conditions").clone();
        all.into_iter().find(|it| it["type"] == kind).expect("it is there")
    };
    assert_eq!(condition("ContainersReady")["status"], "True");
    let ready = condition("Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&"False".into(), &"ReadinessGatesNotReady".into())
    );
    let message = "corresponding condition of pod readiness gate \"site/up\" does not exist.";
    assert_eq!(ready["message"], message);
}
