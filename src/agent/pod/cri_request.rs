//! Builds the CRI request of a step.

use super::config::{NewContainer, container_config};
use super::env::{Environment, Sources};
use super::volumes::MountContext;
use super::{Image, Pod, PodContext, Step};
use crate::agent::downward::Downward;
use crate::agent::time::Now;
use crate::model::cri::Request;
use crate::model::image::with_tag;
use crate::model::pod::Container;

impl Pod {
    /// Makes the call, if it can be made now. `false`: nothing more can be requested.
    pub(super) fn call(&mut self, now: Now, step: Step, context: &mut PodContext<'_>) -> bool {
        if !context.calls.has_room(step.class()) {
            return false;
        }
        if self.bind_sub_paths(now, &step, context) || self.make_files(now, &step, context) {
            self.needs_plan = false;
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
    ) -> Result<Environment, String> {
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
        Sources { downward, objects: context.objects.of(self.origin) }
    }

    /// `Err`: why the container cannot be created as it is.
    fn request(&self, step: &Step, context: &PodContext<'_>) -> Result<Request, String> {
        let sandbox_attempt = || self.observed.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let config = context.config;
        let sandbox = |attempt| self.sandbox_config(attempt, context).map(Box::new);
        Ok(match step {
            Step::RunSandbox { attempt } => Request::RunPodSandbox(sandbox(*attempt)?),
            Step::InspectSandbox(id) => Request::PodSandboxStatus(id.clone()),
            Step::StopSandbox(id) => Request::StopPodSandbox(id.clone()),
            Step::RemoveSandbox(id) => Request::RemovePodSandbox(id.clone()),
            Step::ImageStatus { image, .. } => Request::ImageStatus(with_tag(image)),
            Step::Pull { .. } => panic!("pulls are requested in pod/image.rs"),
            Step::Create { container, attempt, image_ref, .. } => {
                let spec = self.spec_of(container).expect("next returns containers of the spec");
                let image = self.records.get(container).map(|record| &record.image);
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
                        recursive: self.recursive,
                    },
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
}
