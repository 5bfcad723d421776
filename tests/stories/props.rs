//! Common test objects: a pod, and its objects in the runtime.

use edged::model::cri::{Container, ContainerId, ContainerState, PodRef, Sandbox, SandboxId};

/// The pod's uid in all stories.
pub const UID: &str = "u1";

pub fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: SandboxId(id.into()),
        pod: Some(PodRef { uid: UID.into(), namespace: "default".into(), name: "p-gw".into() }),
        attempt,
        ready,
        created_at: 1,
        source: Some("file".into()),
        seen_at: None,
        first_user: None,
    }
}

pub fn container(id: &str, name: &str, state: ContainerState) -> Container {
    Container {
        id: ContainerId(id.into()),
        pod: Some(PodRef { uid: UID.into(), namespace: "default".into(), name: "p-gw".into() }),
        name: name.into(),
        sandbox: SandboxId("s1".into()),
        attempt: 0,
        state,
        created_at: 1,
        image: "i:1".into(),
        image_id: "sha256:1".into(),
        hash: None,
        grace_s: None,
        pre_stop: None,
    }
}

/// A pod `p` with this uid and spec.
pub fn pod(spec: &str) -> String {
    format!(r#"{{"metadata":{{"name":"p","uid":"{UID}"}},"spec":{{{spec}}}}}"#)
}

/// One main container `m`.
pub const MAIN: &str = r#""containers":[{"name":"m","image":"i:1"}]"#;

/// From [`MAIN`]'s manifest to its running container.
pub const START: &[&str] = &[
    "run_podsandbox #0",
    "podsandbox_status s1",
    "image_status i:1",
    "create_container m#0",
    "start_container c2",
    "container_status c2",
];
