//! Images that are missing at first.

use crate::World;
use crate::support::agent::{manifest, sleeper};

crate::tests![
    an_image_that_cannot_be_pulled_says_why_and_is_put_off,
    an_image_that_may_not_be_pulled_is_waited_for_and_used_once_it_is_there,
];

fn an_image_that_cannot_be_pulled_says_why_and_is_put_off(world: &World) {
    let site = world.site("images-pull");
    let _agent = site.start();
    // Port 1 is closed: the pull fails at once.
    let text = sleeper("pulls").replace("localhost/edged-demo:1", "127.0.0.1:1/none:1");
    site.put("pulls.yaml", &text);
    let pod = site.wait("pulls", "ErrImagePull or ImagePullBackOff", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&pod.waits_for("main"))
    });
    assert_eq!(pod.phase(), "Pending");
    let pod =
        site.wait("pulls", "ImagePullBackOff", |pod| pod.waits_for("main") == "ImagePullBackOff");
    let message = pod.container("main")["state"]["waiting"]["message"].clone();
    let message = message.as_str().unwrap_or_default();
    let begins = "Back-off pulling image \"127.0.0.1:1/none:1\": ErrImagePull: ";
    assert!(message.starts_with(begins), "{message}");
    assert!(message.to_lowercase().contains("connection refused"), "{message}");
    let log = site.log();
    for reason in ["Pulling", "Failed", "BackOff"] {
        assert!(log.contains(reason), "{reason} in {log}");
    }
    // Another tool adds the image while the pull is in back-off.
    world.containerd.tag("127.0.0.1:1/none:1");
    let pod = site.wait_running("pulls");
    assert_eq!(pod.restarts("main"), 0);
    site.take("pulls.yaml");
    site.wait_empty();
    world.containerd.untag("127.0.0.1:1/none:1");
}

fn an_image_that_may_not_be_pulled_is_waited_for_and_used_once_it_is_there(world: &World) {
    let site = world.site("images-never");
    let _agent = site.start();
    let container = "    imagePullPolicy: Never\n    \
                     command: [sh, -c, 'trap \"exit 0\" TERM; sleep 100000 & wait']\n";
    let text = manifest("never", "  hostNetwork: true\n", container)
        .replace("localhost/edged-demo:1", "localhost/absent:1");
    site.put("never.yaml", &text);
    let pod =
        site.wait("never", "ErrImageNeverPull", |pod| pod.waits_for("main") == "ErrImageNeverPull");
    let message = pod.container("main")["state"]["waiting"]["message"].clone();
    let expected =
        "Container image \"localhost/absent:1\" is not present with pull policy of Never";
    assert_eq!(message, expected);
    world.containerd.tag("localhost/absent:1");
    site.wait_running("never");
    site.take("never.yaml");
    site.wait_empty();
    world.containerd.untag("localhost/absent:1");
}
