//! The commands for the operator, against a real agent and a real runtime.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::World;
use crate::support::agent::{Site, binary, endpoint, sleeper};
use crate::support::containerd::is_version;

crate::tests![
    pods_are_listed_as_kubectl_lists_them,
    the_status_of_the_agent_is_told_in_a_few_lines,
    commands_say_what_to_do_where_no_agent_listens,
    a_machine_that_can_run_pods_passes_the_check,
    a_machine_without_a_runtime_fails_the_check_and_is_told_the_remedy,
];

fn edged(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{}\n{stderr}", text(output));
    text(output)
}

/// The words of the first line that begins with this one.
fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = rows.filter(|words| words.first() == Some(&first));
    found.next().unwrap_or_else(|| panic!("no row {first} in\n{table}"))
}

fn pods_are_listed_as_kubectl_lists_them(world: &World) {
    let site = world.site("cli-pods");
    let _agent = site.start();
    let server = site.api.to_string();
    site.put("listed.yaml", &sleeper("listed"));
    let unsupported = sleeper("asks").replace("  hostNetwork: true\n", "  hostnameOverride: box\n");
    site.put("asks.yaml", &unsupported);
    let listed = site.wait_running("listed");
    site.wait("asks", "Failed", |pod| pod.phase() == "Failed");
    let table = succeeded(&edged(&["pods", "--server", &server]));
    assert_eq!(row(&table, "NAME")[..5], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"], "{table}");
    assert_eq!(row(&table, "listed-gw")[1..4], ["1/1", "Running", "0"], "{table}");
    assert_eq!(row(&table, "asks-gw")[1..3], ["0/1", "UnsupportedFeature"], "{table}");
    let wide = succeeded(&edged(&["pods", "-o", "wide", "--server", &server]));
    assert!(row(&wide, "NAME").contains(&"IP"), "{wide}");
    assert!(row(&wide, "listed-gw").contains(&listed.ip()), "{wide}");
    let json = succeeded(&edged(&["pods", "-o", "json", "--server", &server]));
    let list: Value = serde_json::from_str(&json).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let names: Vec<_> = items.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["asks-gw", "listed-gw"]);
    let nobody = edged(&["pods", "-n", "elsewhere", "--server", &server]);
    assert!(!text(&nobody).contains("listed-gw"), "{nobody:?}");
    site.take("listed.yaml");
    site.take("asks.yaml");
    site.wait_empty();
}

fn the_status_of_the_agent_is_told_in_a_few_lines(world: &World) {
    let site = world.site("cli-status");
    let _agent = site.start();
    site.put("one.yaml", &sleeper("one"));
    site.put("torn.yaml", "kind: [}\n");
    site.wait_running("one");
    let status = succeeded(&edged(&["status", "--server", &site.api.to_string()]));
    assert_eq!(row(&status, "node"), ["node", "gw"]);
    let runtime = row(&status, "runtime")[1..].join(" ");
    assert!(is_version(&runtime), "{status}");
    assert!(status.contains("ready"), "{status}");
    assert_eq!(row(&status, "pods")[1..], ["1", "wanted,", "1", "running"], "{status}");
    let torn = format!("{}:1:", site.manifests.join("torn.yaml").display());
    assert!(status.contains(&torn), "{torn} in\n{status}");
    site.take("torn.yaml");
    site.take("one.yaml");
    site.wait_empty();
}

fn commands_say_what_to_do_where_no_agent_listens(world: &World) {
    let site = world.site("cli-nobody");
    for command in ["pods", "status"] {
        let output = edged(&[command, "--server", &site.api.to_string()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&site.api.to_string()), "names the address: {stderr}");
        assert!(stderr.contains("edged run"), "names the remedy: {stderr}");
    }
    let output = edged(&["pods", "--no-such-flag"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

fn check(site: &Site, runtime: &Path) -> Output {
    let runtime = endpoint(runtime);
    let manifests = site.manifests.display().to_string();
    let pod_logs = site.pod_logs.display().to_string();
    let container_logs = site.container_logs.display().to_string();
    let listen = site.api.to_string();
    edged(&[
        "check",
        "--runtime",
        &runtime,
        "--manifests",
        &manifests,
        "--pod-logs",
        &pod_logs,
        "--container-logs",
        &container_logs,
        "--listen",
        &listen,
        "--node-name",
        "gw",
    ])
}

fn a_machine_that_can_run_pods_passes_the_check(world: &World) {
    let site = world.site("cli-check");
    let output = check(&site, &site.runtime);
    let table = succeeded(&output);
    assert!(table.contains(crate::support::containerd::kind().name()), "{table}");
    for line in table.lines() {
        assert!(!line.starts_with("fail"), "{table}");
    }
    assert!(site.runtime_state().is_empty(), "a check changes nothing");
}

fn a_machine_without_a_runtime_fails_the_check_and_is_told_the_remedy(world: &World) {
    let site = world.site("cli-check-none");
    let absent = site.dir.join("absent.sock");
    let output = check(&site, &absent);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = text(&output);
    let lines: Vec<&str> = table.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("fail") && line.contains("absent.sock"));
    let at = at.unwrap_or_else(|| panic!("no failed row names the socket:\n{table}"));
    let remedy = lines.get(at + 1).copied().unwrap_or_default();
    assert!(remedy.trim_start().starts_with('→'), "the remedy stands below:\n{table}");
    assert!(remedy.contains("containerd"), "{remedy}");
}
