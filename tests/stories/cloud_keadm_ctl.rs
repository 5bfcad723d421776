//! MetaServer's requests for logs, commands and restarts, as `keadm ctl` sends them.

use edged::agent::Config;
use edged::agent::event::Event;
use edged::model::meta::{Row, Saved};
use edged::model::metaserver::{Call, Caller, ClientId, Messages, MetaServerSettings, Reply};
use edged::model::settings::CloudSettings;
use edged::model::stream::{LogOptions, PodName, StreamRequest};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod};
use crate::harness::START;

fn set(config: &mut Config) {
    config.cloud = Some(CloudSettings::default());
    let settings = MetaServerSettings { keadm_ctl: true, ..Default::default() };
    config.metaserver = Some(settings);
}

/// A node whose pod runs.
fn running(pod: &Value) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(Saved::kept(Vec::<Row>::new()), set);
    cloud.connect();
    cloud.push("insert", "ns/pod/p", pod);
    cloud.pass(1_000);
    cloud.harness.does_all(START);
    assert_eq!(cloud.harness.running(), ["m"]);
    cloud
}

fn call(cloud: &mut CloudHarness, call: Call) -> Reply {
    let id = ClientId(1);
    cloud.harness.deliver(Event::MetaServerOpened(id, Box::new(call), Caller::Local));
    cloud.settle();
    let mut replies = std::mem::take(&mut cloud.replies);
    let (of, reply) = replies.pop().expect("an answer at once");
    assert_eq!((of, replies.len()), (id, 0));
    cloud.harness.deliver(Event::MetaServerClosed(id));
    reply
}

fn restart(cloud: &mut CloudHarness, names: &[&str]) -> Messages {
    let pods = names.iter().map(|name| Box::from(*name)).collect();
    match call(cloud, Call::Restart { namespace: "ns".into(), pods }) {
        Reply::Messages(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn of(name: &str) -> PodName {
    PodName { namespace: "ns".into(), name: name.into(), uid: None }
}

#[test]
fn a_restart_stops_the_container_in_its_time_and_starts_another() {
    let mut one = pod("p", "u", 7);
    one["spec"]["terminationGracePeriodSeconds"] = json!(9);
    // Also one that would not start again after a good end.
    one["spec"]["restartPolicy"] = json!("OnFailure");
    let mut cloud = running(&one);
    let got = restart(&mut cloud, &["p", "q"]);
    assert_eq!(got.done, ["the pod \"ns/p\" restart successful"]);
    assert_eq!(got.errors, ["not found pod:\"/ns/q\""]);
    let stops = cloud.harness.open_calls();
    assert!(stops.len() == 1 && stops[0].starts_with("stop_container"), "{stops:?}");
    assert!(stops[0].ends_with(" 9"), "the pod's grace period: {stops:?}");
    let killed = "Killing Container m is restarted by a request on the node";
    assert_eq!(cloud.harness.events.iter().filter(|event| *event == killed).count(), 1);
    // A second request for the same instance asks for nothing more.
    let pods = vec!["p".into()];
    let elsewhere = call(&mut cloud, Call::Restart { namespace: "other".into(), pods });
    let Reply::Messages(elsewhere) = elsewhere else { panic!("{elsewhere:?}") };
    assert_eq!(elsewhere.errors, ["not found pod:\"/other/p\""]);
    let again = restart(&mut cloud, &["p"]);
    assert_eq!((again.done.len(), cloud.harness.open_calls().len()), (1, 1));
    for _ in 0..20 {
        cloud.work();
        cloud.pass(1_000);
    }
    assert_eq!(cloud.harness.running(), ["m"], "the next instance");
    let stops = cloud.harness.events.iter().filter(|event| *event == killed).count();
    assert_eq!(stops, 1, "it is left alone: {:?}", cloud.harness.events);
}

#[test]
fn a_pod_that_would_not_start_again_is_not_stopped() {
    let mut never = pod("p", "u", 7);
    never["spec"]["restartPolicy"] = json!("Never");
    let mut cloud = running(&never);
    let got = restart(&mut cloud, &["p"]);
    let why = "the pod \"ns/p\" is not restarted: its restartPolicy is Never";
    assert_eq!((got.done.len(), &*got.errors), (0, &[why.to_owned()][..]));
    assert!(cloud.harness.open_calls().is_empty());
    let mut cloud = running(&pod("p", "u", 7));
    cloud.push("delete", "ns/pod/p", &pod("p", "u", 7));
    let got = restart(&mut cloud, &["p"]);
    assert!(got.errors[0].ends_with("it ends, or has ended"), "{got:?}");
}

#[cfg(feature = "streams")]
#[test]
fn a_client_gets_the_container_that_it_means() {
    let mut cloud = running(&pod("p", "u", 7));
    let logs = |name: &str, container: &str| {
        let (pod, options) = (of(name), LogOptions::default());
        StreamRequest::Logs { pod, container: container.into(), options }
    };
    let command = |name: &str, container: &str, words: &[&str]| {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        StreamRequest::Command { pod: of(name), container: container.into(), command }
    };
    let mut ask = |request: StreamRequest| match call(&mut cloud, Call::Stream(Box::new(request))) {
        Reply::Stream(request) => Ok(*request),
        Reply::Failure(failure) => Err(format!("{} {}", failure.code, failure.message)),
        Reply::Messages(Messages { done, errors }) => {
            assert!(done.is_empty());
            Err(errors.join("\n"))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(logs("p", "")), Ok(logs("p", "m")));
    assert_eq!(ask(logs("p", "m")), Ok(logs("p", "m")));
    assert_eq!(ask(command("p", "", &["ls"])), Ok(command("p", "m", &["ls"])));
    // In KubeEdge's words: as an HTTP error of a log, and as a message of a command.
    assert_eq!(ask(logs("q", "")), Err("404 not found pod:\"/ns/q\"".to_owned()));
    assert_eq!(ask(command("q", "", &["ls"])), Err("not found pod:\"/ns/q\"".to_owned()));
    let why = "not found container x in pod:\"/ns/p\"";
    assert_eq!(ask(logs("p", "x")), Err(format!("404 {why}")));
    assert_eq!(ask(command("p", "x", &["ls"])), Err(why.to_owned()));
    let why = "You must specify at least one command for the container";
    assert_eq!(ask(command("p", "", &[])), Err(why.to_owned()));
}

#[cfg(feature = "streams")]
#[test]
fn of_several_containers_a_log_is_the_first_ones_and_a_command_needs_a_name() {
    let mut two = pod("p", "u", 7);
    let mut second = two["spec"]["containers"][0].clone();
    second["name"] = json!("n");
    two["spec"]["containers"].as_array_mut().expect("a list").push(second);
    let asked = |pod: &Value| {
        let mut cloud = CloudHarness::set_up(Saved::kept(Vec::<Row>::new()), set);
        cloud.connect();
        cloud.push("insert", "ns/pod/p", pod);
        cloud.pass(1_000);
        let (options, command) = (LogOptions::default(), vec!["ls".to_owned()]);
        let requests = [
            StreamRequest::Logs { pod: of("p"), container: "".into(), options },
            StreamRequest::Command { pod: of("p"), container: "".into(), command },
        ];
        requests.map(|request| match call(&mut cloud, Call::Stream(Box::new(request))) {
            Reply::Stream(mut request) => request.container_mut().expect("a container").to_string(),
            Reply::Messages(messages) => messages.errors.join("\n"),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(asked(&two), ["m", "more than one container in pod:\"/ns/p\""]);
    two["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "n"});
    assert_eq!(asked(&two), ["n", "n"]);
}
