//! The harness's view of the runtime and of the agent's API.

use edged::model::cri::ContainerState;

use crate::harness::Harness;

impl Harness {
    pub fn running(&self) -> Vec<&str> {
        let running =
            self.containers.iter().filter(|observed| observed.state == ContainerState::Running);
        running.map(|observed| &*observed.name).collect()
    }

    pub fn status(&self) -> serde_json::Value {
        let pod = self.agent.pods().next().expect("there is a pod");
        serde_json::to_value(&pod.status).expect("plain data")
    }
}
