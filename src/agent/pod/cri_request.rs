//! Builds the CRI request of a step.
//!
//! The **RuntimeClass** of a pod names the handler of the runtime that runs it. It is an object of
//! the manifest folder. If it is missing, it may still come; until then the pod has no sandbox
//! (spec sections 3.1 and 14.2).
//!
//! A container whose **configuration is incomplete** waits: an object is missing, or the user may
//! not be root. It is retried after a while, and at once when an object may have come.

use std::collections::BTreeMap;

use super::config::{ConfigError, NewContainer, container_config, sandbox_config};
use super::env::{EnvError, Environment, Sources};
use super::image::Image;
use super::plan::Step;
use super::record::ContainerRecord;
use super::resources::overhead_resources;
use super::volumes::MountContext;
use super::{HostInfo, Pod, PodContext, cgroup, dns};
use crate::agent::downward::Downward;
use crate::agent::time::Now;
use crate::limits;
use crate::model::cri::{ContainerId, Request, RuntimeHandler, SandboxConfig};
use crate::model::image::with_tag;
use crate::model::pod::Container;
use crate::model::quantity::Quantity;
use crate::model::recorded_event::EventType;

impl Pod {
    /// Makes the call, if it can be made now. `false`: nothing more can be requested.
    pub(super) fn call(&mut self, now: Now, step: Step, context: &mut PodContext<'_>) -> bool {
        if !context.calls.has_room(step.class()) {
            context.calls.wait_for_room(step.class());
            return false;
        }
        if self.bind_sub_paths(now, &step, context) || self.make_files(now, &step, context) {
            self.schedule.rest();
            return false;
        }
        let request = match &step {
            Step::Pull { container, .. } => Ok(self.pull(now, container, context)),
            step => self.request(step, context).map(Some),
        };
        match request {
            Ok(Some(request)) => self.begin(now, step, request, context),
            // It has failed before it was requested.
            Ok(None) => {}
            Err(why) => self.misconfigured(now, &step, &why),
        }
        true
    }

    /// The environment variables of a container.
    pub(super) fn environment(
        &self,
        container: &Container,
        context: &PodContext<'_>,
    ) -> Result<Environment, EnvError> {
        let pod_ips = self.ips(context.host_info);
        Environment::of(container, self.sources(&pod_ips, context))
    }

    fn sources<'a>(&'a self, pod_ips: &'a [String], context: &'a PodContext<'_>) -> Sources<'a> {
        let downward = Downward {
            pod: &self.api,
            host_ips: context.host_info.addresses,
            pod_ips,
            config: context.config,
        };
        Sources {
            downward,
            objects: context.objects.of(self.origin),
            #[cfg(feature = "services")]
            services: context.services,
        }
    }

    /// `Err`: why the container cannot be created as it is.
    fn request(&self, step: &Step, context: &PodContext<'_>) -> Result<Request, ConfigError> {
        let sandbox_attempt = || self.observed.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let config = context.config;
        let sandbox = |attempt| self.sandbox_config(attempt, context).map(Box::new);
        Ok(match step {
            Step::RunSandbox { attempt } => {
                let config = sandbox(*attempt)?;
                let handler = self.runtime_handler(context);
                if config.namespaces.users.is_some()
                    && !handler.is_some_and(|it| it.user_namespaces)
                {
                    return Err(ConfigError::NoUsers(config.runtime_handler));
                }
                Request::RunPodSandbox(config)
            }
            Step::InspectSandbox(id) => Request::PodSandboxStatus(id.clone()),
            Step::StopSandbox(id) => Request::StopPodSandbox(id.clone()),
            Step::RemoveSandbox(id) => Request::RemovePodSandbox(id.clone()),
            Step::ImageStatus { image, .. } => Request::ImageStatus(with_tag(image)),
            Step::Pull { .. } => panic!("pulls are requested in pod/image.rs"),
            Step::Create { container, attempt, image_ref, .. } => {
                let spec = self.spec_of(container).expect("next returns containers of the spec");
                let image = self.records.get(container).map(ContainerRecord::image);
                let Some(Image::Ready(_, image_user)) = image else {
                    panic!("next does not create a container of {image:?}")
                };
                let pod_ips = self.ips(context.host_info);
                let locations = self.locations();
                let new_container = NewContainer {
                    pod: &self.api,
                    container: spec,
                    attempt: *attempt,
                    image_ref,
                    image_user,
                    sources: self.sources(&pod_ips, context),
                    mount_context: MountContext {
                        root: &config.root,
                        locations: &locations,
                        recursive: self.volumes.may_be_recursive(),
                    },
                    users: self.users(),
                    target: self.target(spec)?,
                };
                Request::CreateContainer {
                    sandbox: self.observed.sandbox().expect("next has checked it").id.clone(),
                    config: Box::new(container_config(&new_container, config)?),
                    sandbox_config: sandbox(sandbox_attempt())?,
                }
            }
            Step::Start { id, .. } => Request::StartContainer(id.clone()),
            Step::InspectContainer(id) => Request::ContainerStatus(id.clone()),
            Step::Stop { id, grace_s, .. } => {
                Request::StopContainer { id: id.clone(), grace_s: *grace_s }
            }
            Step::RemoveContainer(id) => Request::RemoveContainer(id.clone()),
            Step::EndTask { id, end } => Request::Task { id: id.clone(), end: *end },
        })
    }

    /// `PodSandboxConfig` with the values of its RuntimeClass.
    pub(super) fn sandbox_config(
        &self,
        attempt: u32,
        context: &PodContext<'_>,
    ) -> Result<SandboxConfig, ConfigError> {
        let mut config =
            sandbox_config(&self.api, attempt, self.users(), context.resolver, context.config)?;
        if let Some(name) = self.class_name() {
            let class = context
                .objects
                .folder
                .runtime_class(name)
                .ok_or_else(|| ConfigError::NoRuntimeClass(name.to_owned()))?;
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

    /// The container whose processes this one can see.
    fn target(&self, container: &Container) -> Result<Option<ContainerId>, ConfigError> {
        let name = container.target_container_name.as_deref().filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(None) };
        match self.observed.newest(name) {
            Some(observed) => Ok(Some(observed.id.clone())),
            None => Err(ConfigError::NoTarget(name.to_owned())),
        }
    }

    /// The pod's addresses, the primary first.
    pub(super) fn ips(&self, host_info: HostInfo<'_>) -> Vec<String> {
        if self.api.spec.host_network {
            return host_info.addresses.to_vec();
        }
        let status = self.observed.sandbox().and_then(|sandbox| sandbox.status.as_ref());
        status
            .map(|status| status.ips.iter().map(ToString::to_string).collect())
            .unwrap_or_default()
    }

    /// The call cannot be built: it waits until something may have changed.
    pub(super) fn misconfigured(&mut self, now: Now, step: &Step, why: &ConfigError) {
        match step {
            Step::Create { container, .. } => self.unconfigured(now, container, &why.to_string()),
            Step::RunSandbox { .. } => {
                self.runner.hold(now.boot.plus_ms(limits::RETRY_MS));
                self.warn("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {why}"));
            }
            other => panic!("{other:?} needs no configuration: {why}"),
        }
    }

    /// The container waits.
    pub(super) fn unconfigured(&mut self, now: Now, container: &str, why: &str) {
        let retry_at = now.boot.plus_ms(limits::RETRY_MS);
        let record = self.records.of(container);
        record.set_files(None);
        record.misconfigured(retry_at, why.to_owned());
        self.status_cache.mark_stale();
        self.record_event(container, EventType::Warning, "Failed", format!("Error: {why}"));
    }

    /// Records where the pod's resolver differs from the requested configuration.
    pub(super) fn record_dns_events(&mut self, context: &PodContext<'_>) {
        for (reason, message) in dns::form(&self.api, context.resolver, context.config).events {
            self.warn(reason, message);
        }
    }
}
