//! Which of the runtime's handlers runs the pod: its RuntimeClass, which is an object of the
//! manifest folder. One that is not there may come; until then the pod has no sandbox (spec
//! sections 3.1 and 14.2).

use super::config::sandbox_config;
use super::resources::overhead_resources;
use super::{Hands, Pod};
use crate::model::cri::SandboxConfig;

impl Pod {
    /// `PodSandboxConfig` with what its class says.
    pub(super) fn sandbox_config(
        &self,
        attempt: u32,
        hands: &Hands<'_>,
    ) -> Result<SandboxConfig, String> {
        let mut config = sandbox_config(&self.api, attempt, hands.resolver, hands.config)?;
        let spec = &self.api.spec;
        let mut overhead = &spec.overhead;
        if let Some(name) = spec.runtime_class_name.as_deref().filter(|name| !name.is_empty()) {
            let class = hands.objects.folder.runtime_class(name).ok_or_else(|| {
                format!(
                    "failed to get RuntimeClass {name}: runtimeclass.node.k8s.io \"{name}\" not \
                     found"
                )
            })?;
            config.runtime_handler = class.handler.as_str().into();
            // What the API server does for pods that come through it.
            if overhead.is_empty() {
                overhead = &class.overhead.pod_fixed;
            }
        }
        config.overhead = overhead_resources(overhead);
        Ok(config)
    }
}
