//! What the runtime and the agent show at the harness.

use edged::model::cri::ContainerState;

use crate::harness::Harness;

impl Harness {
    pub fn running(&self) -> Vec<&str> {
        let running = self.containers.iter().filter(|seen| seen.state == ContainerState::Running);
        running.map(|seen| &*seen.name).collect()
    }

    pub fn status(&self) -> serde_json::Value {
        let pod = self.agent.pods().next().expect("there is a pod");
        serde_json::to_value(&pod.status).expect("plain data")
    }
}
