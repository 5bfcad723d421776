//! Jobs for nodes without a cluster: our controller, our agent, and its commands.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::World;
use super::support::agent::{NODE, Site};
use super::support::controller::{Cloud, binary};
use super::support::wait::until;

crate::tests!(a_job_of_a_command_or_of_the_folder_is_done_by_its_node);

/// The image that every runtime of these tests has.
const IMAGE: &str = "localhost/edged-demo:1";

/// The node does jobs.
fn with_jobs(site: &Site) {
    let path = site.config.as_ref().expect("it was welcomed");
    let mut text = fs::read_to_string(path).expect("a file of ours");
    text.push_str("  taskManager:\n    enable: true\n");
    fs::write(path, text).expect("a file of ours");
}

/// Runs `edgecontroller` with these arguments. Returns the exit code and what it prints.
fn run(cloud: &Cloud, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let server = format!("unix://{}", cloud.socket().display());
    let mut process = Command::new(binary());
    process.arg(command).args(arguments).args(["--server", &server]);
    let output = process.output().expect("it was built beside this test");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn a_job_of_a_command_or_of_the_folder_is_done_by_its_node(world: &World) {
    let cloud = Cloud::new(world.folder("jobs-cloud"));
    let controller = cloud.start();
    let mut site = world.site("jobs-folder");
    cloud.welcome(&mut site, cloud.hub);
    with_jobs(&site);
    let agent = site.start();
    until("the node is ready", || {
        let (_, text) = run(&cloud, "get", &["nodes"]);
        if text.contains(" Ready ") { Ok(()) } else { Err(text) }
    });
    let logs = || format!("{}\n{}", cloud.log_tail(), site.log_tail());

    // A command makes a job, follows it, and ends as it does.
    let (code, text) = run(&cloud, "prepull", &[NODE, "--image", IMAGE, "--name", "good"]);
    assert_eq!(code, Some(0), "{text}\n{}", logs());
    for line in ["imageprepulljob/good created", ": asked", ": Pull done", "good: Completed"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let missing = "localhost/edged-no-such-image:1";
    let (code, text) = run(&cloud, "prepull", &[NODE, "--image", missing, "--name", "bad"]);
    assert!(code == Some(1) && text.contains("Pull failed"), "{text}\n{}", logs());
    assert!(text.contains(missing), "the reason names the image: {text}");
    let (code, text) = run(&cloud, "prepull", &[NODE, "--image", IMAGE, "--name", "good"]);
    assert!(code == Some(1) && text.contains("already exists"), "{text}");
    let refused = [NODE, "--version", "v9.9.9", "--image", "r.example/edged"];
    let (code, text) = run(&cloud, "upgrade", &refused);
    assert!(code == Some(1) && text.contains("Check failed"), "{text}\n{}", logs());

    // A job in the folder, while the controller ends and begins anew.
    controller.kill();
    cloud.put(
        "job.json",
        &json!({
            "kind": "ImagePrePullJob", "apiVersion": "operations.kubeedge.io/v1alpha2",
            "metadata": {"name": "nightly"},
            "spec": {"imagePrePullTemplate": {"images": [IMAGE], "nodeNames": [NODE]}},
        }),
    );
    let controller = cloud.start();
    until("the job of the folder is done", || {
        let (_, text) = run(&cloud, "get", &["jobs", "-o", "wide"]);
        let row = text.lines().find(|line| line.starts_with("nightly")).unwrap_or_default();
        if row.contains("Completed") { Ok(()) } else { Err(format!("{text}\n{}", logs())) }
    });
    let (_, text) = run(&cloud, "get", &["jobs", "nightly"]);
    assert!(text.contains("Successful") && text.contains("Pull"), "{text}");
    let (_, text) = run(&cloud, "get", &["jobs", "bad", "-o", "json"]);
    assert!(text.contains("\"phase\": \"Failure\""), "it outlives the controller: {text}");
    let (code, text) = run(&cloud, "delete", &["imageprepulljob", "bad"]);
    assert_eq!(code, Some(0), "{text}");
    agent.terminate();
    controller.terminate();
}
