//! MetaServer's requests for logs, commands and restarts, as `keadm ctl` sends them, on a real
//! runtime.

use serde_json::{Value, json};

use super::World;
use super::support::agent::manifest;
use super::support::cloud::{Cloud, Setup};
use super::support::http::ask;
use super::support::joined::{join, with_metaserver};
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(people_on_site_read_logs_run_commands_and_restart_pods);

const POD: &str = "/api/v1/namespaces/default/pods/talks-gw";

fn json_of(port: u16, method: &str, target: &str, body: &str) -> Value {
    let answer = ask(port, method, target, body).expect("it listens");
    assert_eq!((answer.code, answer.header("content-type")), (200, Some("application/json")));
    serde_json::from_str(&answer.body).expect("JSON")
}

fn people_on_site_read_logs_run_commands_and_restart_pods(world: &World) {
    let cloud = Cloud::start(&Setup::default());
    let mut site = world.site("keadm-ctl");
    join(&mut site, &cloud);
    let port = free_port();
    with_metaserver(&site, port, "      keadmCtl: true\n");
    let _agent = site.start();
    cloud.connected(1);
    let script = "trap 'exit 0' TERM; echo 'one \"line\"'; while :; do sleep 0.2; done";
    let command = format!("    command: [sh, -c, {script:?}]\n");
    let spec = "  hostNetwork: true\n  terminationGracePeriodSeconds: 5\n";
    site.put("talks.yaml", &manifest("talks", spec, &command));
    let before = site.wait_running("talks");
    let log = || json_of(port, "GET", &format!("{POD}/log"), "");
    until("the container has written", || {
        let got = log();
        (got == json!({"logMessages": ["one \"line\"\n"]})).then_some(()).ok_or(got.to_string())
    });
    let answer = ask(port, "GET", &format!("{POD}/log?container=nobody"), "").expect("an answer");
    assert!(answer.code == 404 && answer.body.contains("\"kind\":\"Status\""), "{answer:?}");

    let run = |script: &str| {
        json_of(port, "POST", &format!("{POD}/exec?command=sh&command=-c&command={script}"), "")
    };
    let want = json!({"runOutMessages": ["out\n"], "runErrMessages": ["err\n"],
        "errMessages": ["command terminated with exit code 3"]});
    assert_eq!(run("echo+out;echo+err+%3E%262;exit+3"), want);
    assert_eq!(run("echo+err+%3E%262"), json!({"runErrMessages": ["err\n"]}));
    let target = "/api/v1/namespaces/default/pods/nobody/exec?command=ls";
    let want = json!({"errMessages": ["not found pod:\"/default/nobody\""]});
    assert_eq!(json_of(port, "POST", target, ""), want);

    let restart = "/api/v1/namespaces/default/pods/restart";
    let want = json!({"LogMessages": ["the pod \"default/talks-gw\" restart successful"],
        "errMessages": ["not found pod:\"/default/nobody\""]});
    assert_eq!(json_of(port, "POST", restart, "[\"talks-gw\",\"nobody\"]"), want);
    let after = site.wait("talks", "its next instance", |pod| {
        pod.restarts("main") == 1 && pod.container("main")["state"]["running"].is_object()
    });
    assert_eq!(after.uid(), before.uid(), "the pod is the same");
}
