//! Invalid manifests, beside valid ones.

use std::fs;
use std::time::Duration;

use nix::mount::MsFlags;
use serde_json::Value;

use crate::World;
use crate::support::agent::{Pod, Site, manifest, sleeper};
use crate::support::wait::{always, until};

crate::tests![
    a_broken_manifest_is_named_with_its_place_and_the_others_run,
    a_manifest_that_breaks_keeps_its_pod_running,
    a_mistyped_key_keeps_its_pod_running,
    a_pod_outlives_a_restart_of_the_agent_while_its_manifest_is_broken,
    a_folder_that_is_moved_away_ends_nothing,
    a_partition_that_is_unmounted_ends_nothing,
    what_edged_does_not_do_fails_the_pod_and_names_the_field,
    files_that_are_no_manifests_are_left_alone,
];

/// The problems of manifests in `/edged/status`.
fn trouble(site: &Site) -> Result<Vec<String>, String> {
    let status = site.status()?;
    let lines = status["manifestTrouble"].as_array().ok_or(status.to_string())?;
    Ok(lines.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn wait_for_trouble(site: &Site, is: impl Fn(&[String]) -> bool) -> Vec<String> {
    until("/edged/status shows problems of the manifests", || {
        let lines = trouble(site)?;
        if is(&lines) { Ok(lines) } else { Err(format!("{lines:?}\n{}", site.log_tail())) }
    })
}

/// The sixth line has a brace too many.
const TORN: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: torn\nspec:\n  containers: [}\n";

fn a_broken_manifest_is_named_with_its_place_and_the_others_run(world: &World) {
    let site = world.site("broken-beside");
    site.put("torn.yaml", TORN);
    site.put("typed.yaml", &sleeper("typed").replace("hostNetwork: true", "hostNetwork: maybe"));
    site.put("good.yaml", &sleeper("good"));
    let _agent = site.start();
    let good = site.wait_running("good");
    let lines = wait_for_trouble(&site, |lines| lines.len() == 2);
    let torn = format!("{}:6:", site.manifests.join("torn.yaml").display());
    assert!(lines.iter().any(|line| line.starts_with(&torn)), "{torn} in {lines:?}");
    let typed = format!("{}:6:16: ", site.manifests.join("typed.yaml").display());
    let line = lines.iter().find(|line| line.starts_with(&typed));
    let line = line.unwrap_or_else(|| panic!("{typed} in {lines:?}"));
    assert!(line.contains("hostNetwork"), "{line}");
    for line in &lines {
        assert!(site.log().contains(line.as_str()), "{line} in the log\n{}", site.log());
    }
    site.put("torn.yaml", &sleeper("torn"));
    site.put("typed.yaml", &sleeper("typed"));
    site.wait_running("torn");
    site.wait_running("typed");
    wait_for_trouble(&site, <[String]>::is_empty);
    let same = site.pod("good").expect("it is wanted");
    assert_eq!(same.container_id("main"), good.container_id("main"));
    for file in ["torn.yaml", "typed.yaml", "good.yaml"] {
        site.take(file);
    }
    site.wait_empty();
}

fn a_manifest_that_breaks_keeps_its_pod_running(world: &World) {
    let site = world.site("broken-later");
    let _agent = site.start();
    site.put("torn.yaml", &sleeper("torn"));
    let before = site.wait_running("torn");
    site.put("torn.yaml", TORN);
    wait_for_trouble(&site, |lines| lines.len() == 1);
    stays(&site, &before.container_id("main"));
    site.put("torn.yaml", &sleeper("torn"));
    wait_for_trouble(&site, <[String]>::is_empty);
    stays(&site, &before.container_id("main"));
    site.take("torn.yaml");
    site.wait_empty();
}

/// The pod runs for several more relists.
fn stays(site: &Site, id: &str) {
    always(Duration::from_millis(2500), "the pod runs on", || {
        let pod = site.pod("torn")?;
        if pod.runs() && pod.container_id("main") == id { Ok(()) } else { Err(pod.0.to_string()) }
    });
}

fn a_mistyped_key_keeps_its_pod_running(world: &World) {
    let site = world.site("broken-key");
    let agent = site.start();
    site.put("torn.yaml", &sleeper("torn"));
    let before = site.wait_running("torn");
    let text = sleeper("torn").replace("containers:", "containerz:");
    site.put("torn.yaml", &text);
    let line = text.lines().position(|line| line.contains("containerz")).expect("it is there") + 1;
    let place =
        format!("{}:{line}:3: spec.containerz: ", site.manifests.join("torn.yaml").display());
    let lines = wait_for_trouble(&site, |lines| lines.len() == 1);
    assert!(lines[0].starts_with(&place), "{place} in {lines:?}");
    stays(&site, &before.container_id("main"));
    agent.kill();
    let _agent = site.start();
    wait_for_trouble(&site, |lines| lines.len() == 1);
    runs_on(&site, &before);
    site.put("torn.yaml", &sleeper("torn"));
    let later = site.wait_running("torn");
    assert_eq!(later.container_id("main"), before.container_id("main"), "adopted");
    site.take("torn.yaml");
    site.wait_empty();
}

/// For a while its container stays the only one, whether the agent knows the pod or not.
fn runs_on(site: &Site, pod: &Pod) {
    always(Duration::from_millis(2500), "the pod runs on", || {
        let state = site.runtime_state().of(pod.uid());
        let ids: Vec<_> = state.running("main").iter().map(|one| one.id.clone()).collect();
        if ids == [pod.container_id("main")] { Ok(()) } else { Err(state.short()) }
    });
}

fn a_folder_that_is_moved_away_ends_nothing(world: &World) {
    let site = world.site("broken-moved");
    let agent = site.start();
    site.put("torn.yaml", &sleeper("torn"));
    let before = site.wait_running("torn");
    let away = site.dir.join("away");
    fs::rename(&site.manifests, &away).expect("a folder of ours");
    let lines = wait_for_trouble(&site, |lines| lines.len() == 1);
    assert!(lines[0].contains("the folder cannot be read: No such file"), "{lines:?}");
    stays(&site, &before.container_id("main"));
    agent.kill();
    let _agent = site.start();
    wait_for_trouble(&site, |lines| lines.len() == 1);
    runs_on(&site, &before);
    fs::create_dir(&site.manifests).expect("a folder of ours");
    let lines = wait_for_trouble(&site, |lines| lines.iter().any(|it| it.contains("is not the")));
    assert_eq!(lines.len(), 1, "{lines:?}");
    runs_on(&site, &before);
    fs::remove_dir(&site.manifests).expect("it is empty");
    fs::rename(&away, &site.manifests).expect("a folder of ours");
    let later = site.wait_running("torn");
    assert_eq!(later.container_id("main"), before.container_id("main"), "adopted");
    wait_for_trouble(&site, <[String]>::is_empty);
    site.take("torn.yaml");
    site.wait_empty();
}

fn a_partition_that_is_unmounted_ends_nothing(world: &World) {
    let none = None::<&str>;
    let site = world.site("broken-unmounted");
    let mount = || {
        nix::mount::mount(none, &site.manifests, Some("tmpfs"), MsFlags::empty(), none)
            .expect("root may mount");
        fs::write(site.manifests.join("torn.yaml"), sleeper("torn")).expect("a file of ours");
    };
    let unmount = || nix::mount::umount(&site.manifests).expect("nothing is open in it");
    mount();
    let agent = site.start();
    let before = site.wait_running("torn");
    unmount();
    let lines = wait_for_trouble(&site, |lines| lines.len() == 1);
    assert!(lines[0].contains("is not the one that manifests were read from"), "{lines:?}");
    stays(&site, &before.container_id("main"));
    agent.kill();
    let _agent = site.start();
    wait_for_trouble(&site, |lines| lines.len() == 1);
    runs_on(&site, &before);
    mount();
    let later = site.wait_running("torn");
    assert_eq!(later.container_id("main"), before.container_id("main"), "adopted");
    wait_for_trouble(&site, <[String]>::is_empty);
    site.take("torn.yaml");
    site.wait_empty();
    unmount();
}

fn a_pod_outlives_a_restart_of_the_agent_while_its_manifest_is_broken(world: &World) {
    let site = world.site("broken-restart");
    let agent = site.start();
    site.put("torn.yaml", &sleeper("torn"));
    site.put("good.yaml", &sleeper("good"));
    let torn = site.wait_running("torn");
    let good = site.wait_running("good");
    site.put("torn.yaml", TORN);
    wait_for_trouble(&site, |lines| lines.len() == 1);
    agent.kill();
    let _agent = site.start();
    site.wait_running("good");
    wait_for_trouble(&site, |lines| lines.len() == 1);
    runs_on(&site, &torn);
    site.put("torn.yaml", &sleeper("torn"));
    let later = site.wait_running("torn");
    assert_eq!(later.container_id("main"), torn.container_id("main"), "adopted, not restarted");
    assert_eq!(later.restarts("main"), 0);
    let same = site.pod("good").expect("it is wanted");
    assert_eq!(same.container_id("main"), good.container_id("main"));
    site.take("torn.yaml");
    site.take("good.yaml");
    site.wait_empty();
}

fn what_edged_does_not_do_fails_the_pod_and_names_the_field(world: &World) {
    let site = world.site("broken-unsupported");
    let _agent = site.start();
    let fields = "  hostnameOverride: box\n  volumes: [{name: v, iscsi: {lun: 1}}]\n";
    let text = manifest("asks", fields, "    command: [sleep, '100000']\n");
    site.put("asks.yaml", &text);
    let failed = site.wait("asks", "Failed", |pod| pod.phase() == "Failed");
    assert_eq!(failed.reason(), "UnsupportedFeature", "{}", failed.0["status"]);
    let message = failed.message();
    assert!(message.contains("spec.hostnameOverride"), "{message}");
    assert!(message.contains("spec.volumes[0].iscsi"), "{message}");
    assert!(site.runtime_state().of(failed.uid()).is_empty(), "nothing was started");
    site.put("asks.yaml", &sleeper("asks"));
    let healed = site.wait_running("asks");
    assert_ne!(healed.uid(), failed.uid());
    site.take("asks.yaml");
    site.wait_empty();
}

fn files_that_are_no_manifests_are_left_alone(world: &World) {
    let site = world.site("broken-strange");
    site.put(".hidden.yaml", TORN);
    fs::create_dir(site.manifests.join("folder.yaml")).expect("a folder of ours");
    site.put("good.yaml", &sleeper("good"));
    let _agent = site.start();
    site.wait_running("good");
    assert_eq!(trouble(&site), Ok(Vec::new()), "{}", site.log());
    site.take("good.yaml");
    site.wait_empty();
}
