//! The RuntimeClass of a pod: which handler of the runtime runs it. The RuntimeClass is an object
//! of the manifest folder. If it is missing, it may still come; until then the pod has no sandbox
//! (spec sections 3.1 and 14.2).

use std::collections::BTreeMap;

use super::cgroup;
use super::config::sandbox_config;
use super::resources::overhead_resources;
use super::{Pod, PodContext};
use crate::model::cri::{RuntimeHandler, SandboxConfig};
use crate::model::quantity::Quantity;

impl Pod {
    /// `PodSandboxConfig` with the values of its RuntimeClass.
    pub(super) fn sandbox_config(
        &self,
        attempt: u32,
        context: &PodContext<'_>,
    ) -> Result<SandboxConfig, String> {
        let mut config = sandbox_config(&self.api, attempt, context.resolver, context.config)?;
        if let Some(name) = self.class_name() {
            let class = context.objects.folder.runtime_class(name).ok_or_else(|| {
                format!(
                    "failed to get RuntimeClass {name}: runtimeclass.node.k8s.io \"{name}\" not \
                     found"
                )
            })?;
            config.runtime_handler = class.handler.as_str().into();
        }
        let settings = &context.config.settings.cgroups;
        config.overhead = overhead_resources(self.overhead(context), settings);
        config.cgroup_parent = cgroup::parent(self, context);
        Ok(config)
    }

    /// The features of the pod's handler as the runtime reports them; `None`: it does not list that
    /// handler.
    pub(super) fn runtime_handler<'a>(
        &self,
        context: &PodContext<'a>,
    ) -> Option<&'a RuntimeHandler> {
        let class = self.class_name().and_then(|name| context.objects.folder.runtime_class(name));
        let name = class.map_or("", |class| &class.handler);
        let mut handlers = context.runtime.iter().flat_map(|runtime| &runtime.handlers);
        handlers.find(|handler| *handler.name == *name)
    }

    pub(super) fn class_name(&self) -> Option<&str> {
        self.api.spec.runtime_class_name.as_deref().filter(|name| !name.is_empty())
    }

    /// What the sandbox itself needs: the overhead of its RuntimeClass, as the API server fills it
    /// in for pods that come through it.
    pub(super) fn overhead<'a>(
        &'a self,
        context: &'a PodContext<'_>,
    ) -> &'a BTreeMap<String, Quantity> {
        let own = &self.api.spec.overhead;
        let class = self.class_name().and_then(|name| context.objects.folder.runtime_class(name));
        class.filter(|_| own.is_empty()).map_or(own, |class| &class.overhead.pod_fixed)
    }
}
