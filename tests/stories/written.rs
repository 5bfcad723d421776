//! Labels and annotations of a pod in the runtime: by them any agent recognizes the pod, and
//! operators find it.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::limits;
use edged::model::cri::{ContainerState, PidNamespace, Reply, Request};
use edged::model::job::{ContainerFiles, JobReply, JobSpec};
use edged::model::pod::Pod;

use crate::harness::{Harness, MAIN, START, UID, pod};
use crate::made::{annotated, made, made_on, sandbox_of};
use crate::node::FILES;

const NOTHING: [&str; 0] = [];

#[test]
fn labels_and_annotations_name_the_pod_and_the_container() {
    let mut harness = Harness::new();
    harness.manifests(&[&annotated(r#","labels":{"app":"web"}"#, MAIN)]);
    let sandbox = sandbox_of(&mut harness);
    harness.does("image_status i:1");
    let container = crate::made::container_of(&mut harness);
    let pod = [("name", "p-gw"), ("namespace", "default"), ("uid", UID)];
    let pod = pod.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()));
    let mut labels: Vec<_> = pod.into();
    let name = ("io.kubernetes.container.name".to_owned(), "m".to_owned());
    assert_eq!(container.labels, labels.iter().cloned().chain([name]).collect());
    labels.push(("app".to_owned(), "web".to_owned()));
    assert_eq!(sandbox.labels, labels.into_iter().collect());
    let note = |key: &str| container.annotations.get(&format!("io.kubernetes.{key}")).cloned();
    assert_eq!(note("container.restartCount").as_deref(), Some("0"));
    assert_eq!(note("pod.terminationGracePeriod").as_deref(), Some("30"));
    assert_eq!(note("container.ports"), None);
    assert_eq!(sandbox.log_directory, format!("/var/log/pods/default_p-gw_{UID}"));
    assert_eq!(container.log_path, "m/0.log");
}

#[test]
fn host_names_are_cut_to_what_the_kernel_takes() {
    let sandbox = |spec: &str, name: &str| {
        let mut harness =
            Harness::with(|config| "site".clone_into(&mut config.settings.cluster_domain));
        harness.manifests(&[&annotated("", spec).replace(r#""p""#, &format!("{name:?}"))]);
        sandbox_of(&mut harness).hostname
    };
    assert_eq!(sandbox(MAIN, "p"), "p-gw");
    assert_eq!(sandbox(&format!(r#""hostname":"","subdomain":"",{MAIN}"#), "p"), "p-gw");
    assert_eq!(sandbox(&format!(r#""hostname":"web","subdomain":"shop",{MAIN}"#), "p"), "web");
    let fqdn = r#""setHostnameAsFQDN":true,"#;
    assert_eq!(sandbox(&format!(r#"{fqdn}"subdomain":"",{MAIN}"#), "p"), "p-gw");
    assert_eq!(sandbox(&format!(r#""hostNetwork":true,{MAIN}"#), "p"), "");
    // 63 bytes, of which the last is no letter.
    let long = format!("{}-{}", "a".repeat(62), "b".repeat(9));
    assert_eq!(sandbox(MAIN, &long), "a".repeat(62));
    let longer = "c".repeat(70);
    assert_eq!(sandbox(MAIN, &longer), "c".repeat(63));
    // The longest full name that fits: 64 bytes.
    let host = "d".repeat(64 - ".shop.default.svc.site".len());
    let full = format!(r#"{fqdn}"hostname":"{host}","subdomain":"shop",{MAIN}"#);
    assert_eq!(sandbox(&full, "p").len(), 64);
}

#[test]
fn a_port_that_two_containers_name_is_mapped_once() {
    let with_port = |name: &str| {
        format!(r#"{{"name":"{name}","image":"i:1","ports":[{{"containerPort":80}}]}}"#)
    };
    let spec = format!(r#""containers":[{},{}]"#, with_port("m"), with_port("n"));
    let (sandbox, container) = made(&spec);
    assert_eq!(sandbox.port_mappings.len(), 1);
    assert!(container.annotations.contains_key("io.kubernetes.container.ports"));
}

#[test]
fn on_the_hosts_processes_nobody_has_to_look_into_another_container() {
    let mut harness = Harness::new();
    let with = |ephemeral: &str| annotated("", &format!(r#""hostPID":true,{ephemeral}{MAIN}"#));
    harness.manifests(&[&with("")]);
    sandbox_of(&mut harness);
    harness.does_all(&START[2..]);
    harness.manifests(&[&with(
        r#""ephemeralContainers":[{"name":"e","image":"i:1","targetContainerName":"m"}],"#,
    )]);
    harness.does("image_status i:1");
    let (_, request) = harness.take("create_container e#0");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    assert_eq!(config.namespaces.pid, PidNamespace::Node);
}

#[test]
fn an_ephemeral_container_may_look_into_none() {
    let mut harness = Harness::new();
    let ephemeral =
        r#""ephemeralContainers":[{"name":"e","image":"i:1","targetContainerName":""}]"#;
    harness.manifests(&[&annotated("", &format!("{ephemeral},{MAIN}"))]);
    sandbox_of(&mut harness);
    harness.does_all(&["image_status i:1", "create_container e#0"]);
}

/// The files that were created for containers so far.
fn files(harness: &Harness) -> Vec<&ContainerFiles> {
    let made = harness.specs.iter().filter_map(|spec| match spec {
        JobSpec::MakeContainerFiles(files) => Some(&**files),
        _ => None,
    });
    made.collect()
}

#[test]
fn a_container_that_brings_its_own_hosts_file_gets_no_other() {
    let spec = r#""volumes":[{"name":"v","hostPath":{"path":"/srv/hosts"}}],
        "containers":[{"name":"m","image":"i:1","terminationMessagePath":"",
            "volumeMounts":[{"name":"v","mountPath":"/etc/hosts"}]}]"#;
    let mut harness = Harness::new();
    let (_, container) = made_on(&mut harness, spec);
    let mounts: Vec<_> = container.mounts.iter().map(|it| &*it.container_path).collect();
    assert_eq!(mounts, ["/etc/hosts", "/dev/termination-log"]);
    assert_eq!(container.mounts[0].host_path, "/srv/hosts");
    assert_eq!(files(&harness)[0].hosts, None);
}

#[test]
fn the_files_of_a_container_are_made_once_and_waited_for() {
    let mut harness = Harness::new();
    harness.taken.hangs = Some(FILES);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    assert_eq!(harness.open_calls(), NOTHING);
    // Something else about the pod changes meanwhile.
    harness.manifests(&[&annotated(r#","labels":{"a":"b"}"#, MAIN)]);
    harness.pass(5_000);
    assert_eq!(files(&harness).len(), 1);
    let making = harness.taken.hung.take().expect("they are being made");
    harness.deliver(Event::Job(making, Ok(JobReply::Done)));
    assert_eq!(harness.open_calls(), ["create_container m#0"]);
}

#[test]
fn files_that_cannot_be_made_keep_the_container_waiting() {
    let mut harness = Harness::new();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::MakeContainerFiles(_)));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(waiting["message"], "failed to make files: no such device");
    harness.taken.fails = None;
    harness.pass(limits::RETRY_MS);
    harness.works_until("create_container m#0");
}

/// Two containers that run and are not restarted.
fn two() -> Harness {
    let mut harness = Harness::new();
    let two = r#""restartPolicy":"Never","containers":[{"name":"m","image":"i:1"},
        {"name":"n","image":"i:1"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.works();
    assert_eq!(harness.running(), ["m", "n"]);
    harness
}

#[test]
fn last_words_are_those_of_the_container_that_left_them() {
    let mut harness = two();
    harness.taken.reads_wait = true;
    harness.containers.iter_mut().for_each(|it| it.state = ContainerState::Exited);
    harness.pass(1_000);
    harness.does_all(&["container_status c3", "container_status c2"]);
    let [second, first] = harness.taken.unread[..] else { panic!("{:?}", harness.taken.unread) };
    harness.deliver(Event::TerminationMessage(first, "from m".into()));
    harness.deliver(Event::TerminationMessage(second, "from n".into()));
    let status = harness.status();
    let reported = |at: usize| &status["containerStatuses"][at]["state"]["terminated"]["message"];
    assert_eq!((reported(0), reported(1)), (&"from m".into(), &"from n".into()));
}

#[test]
fn a_container_without_last_words_keeps_what_the_runtime_says_of_its_end() {
    let mut harness = two();
    harness.exits("m", 1);
    let (call, request) = harness.take("container_status c2");
    let Reply::ContainerStatus(mut status) = harness.perform(&request) else { panic!("a status") };
    status.message = "killed".into();
    // A folder is not a file.
    status.message_file = Some("/var/lib/kubelet/pods/u1/containers/m/".into());
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
    assert_eq!(harness.reads, [], "there is nothing to read, and its log is not read");
    let mut harness = two();
    harness.exits("m", 1);
    let (call, request) = harness.take("container_status c2");
    let Reply::ContainerStatus(mut status) = harness.perform(&request) else { panic!("a status") };
    status.message = "killed".into();
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
    assert_eq!(harness.reads.len(), 1);
    let status = harness.status();
    let reported = &status["containerStatuses"][0]["state"]["terminated"]["message"];
    assert_eq!(reported, &"killed");
}

#[test]
fn a_pod_is_not_forgotten_while_what_it_left_is_being_read() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    harness.taken.reads_wait = true;
    harness.manifests(&[]);
    harness.works();
    harness.pass(2_000);
    let [job] = harness.taken.unread[..] else { panic!("{:?}", harness.taken.unread) };
    assert_eq!(harness.agent.pods().count(), 1);
    harness.deliver(Event::TerminationMessage(job, "".into()));
    harness.pass(2_000);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn a_start_time_that_was_found_late_is_noted_with_the_next_sandbox() {
    let mut harness = Harness::new();
    let wall = harness.now.wall.take();
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    harness.now.wall = wall;
    harness.pass(2_000);
    let reported = harness.status()["startTime"].clone();
    harness.now.wall = harness.now.wall.map(|wall| Wall(wall.0 + 5_000));
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works_until("run_podsandbox #1");
    let (_, request) = harness.take("run_podsandbox #1");
    let Request::RunPodSandbox(config) = request else { panic!("{request:?}") };
    assert_eq!(config.annotations["kubernetes.io/config.seen"], reported);
}

#[test]
fn a_pod_that_its_folder_has_no_more_is_shown_to_be_deleted() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""terminationGracePeriodSeconds":7,{MAIN}"#))]);
    harness.works();
    harness.manifests(&[]);
    let pod: &Pod = harness.agent.pods().next().expect("it ends");
    assert!(pod.metadata.deletion_timestamp.is_some());
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(7));
}

#[test]
fn a_pods_start_is_measured_once_and_without_its_pulls() {
    let sums = |harness: &Harness| {
        let metrics = harness.agent.metrics();
        let (all, sli) = (&metrics.pod_start_total, &metrics.pod_start);
        ((all.count(), all.sum_ms), (sli.count(), sli.sum_ms))
    };
    let mut harness = Harness::new();
    harness.images = vec!["i:2"];
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:2"}]"#;
    harness.manifests(&[&pod(two)]);
    let began = harness.now.boot;
    harness.works_until("pull_image i:1");
    harness.pass(3_000);
    harness.images.push("i:1");
    harness.works_until("start_container c3");
    assert_eq!(sums(&harness).0.0, 0, "one of two has started");
    harness.pass(500);
    harness.works();
    let all_ms = harness.now.boot.since_ms(began);
    let ((count, sum_ms), (sli_count, sli_ms)) = sums(&harness);
    assert_eq!((count, sli_count), (1, 1));
    assert!((3_500..=all_ms).contains(&sum_ms), "{sum_ms}");
    assert_eq!(sum_ms - sli_ms, 3_000, "that was the pull");
    // It begins anew in another sandbox.
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works();
    assert_eq!(harness.running().len(), 2);
    assert_eq!(sums(&harness).0.0, 1);
}

#[test]
fn starts_that_are_no_pods_own_are_not_measured() {
    let counts = |harness: &Harness| {
        let metrics = harness.agent.metrics();
        (metrics.pod_start_total.count(), metrics.pod_start.count())
    };
    // One that ran before the agent did.
    let mut harness = Harness::new();
    harness.sandboxes.push(crate::harness::sandbox("s1", 0, true));
    harness.containers.push(crate::harness::container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    assert_eq!(harness.status()["phase"], "Running");
    assert_eq!(counts(&harness), (0, 0));
    // One that fails.
    let mut harness = Harness::new();
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"gone:1"}]"#;
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":5,{two}"#))]);
    harness.works_until("pull_image gone:1");
    assert_eq!(harness.running(), ["m"]);
    harness.pass(5_000);
    harness.works();
    assert_eq!(harness.status()["phase"], "Failed");
    assert_eq!(counts(&harness), (0, 0));
    // And with an init container, whose own time is separate, only the whole; once.
    let mut harness = Harness::new();
    harness
        .manifests(&[&pod(&format!(r#""initContainers":[{{"name":"i","image":"i:1"}}],{MAIN}"#))]);
    harness.works();
    harness.exits("i", 0);
    harness.works();
    assert_eq!(counts(&harness), (1, 0));
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works();
    assert_eq!(harness.status()["phase"], "Pending");
    harness.exits("i", 0);
    harness.works();
    assert_eq!(harness.status()["phase"], "Running");
    assert_eq!(counts(&harness), (1, 0));
}
