//! Connects the cloud side to the agent: its events, its step, and when it wakes.

use super::{Changed, Cloud, CloudInputs, NodeInputs};
#[cfg(feature = "devices")]
use crate::agent::devices::Devices;
use crate::agent::event::{Event, Out};
#[cfg(feature = "node-jobs")]
use crate::agent::node_jobs::{JobsContext, NodeJobs};
use crate::agent::objects::Key;
use crate::agent::pods::Knowledge;
#[cfg(feature = "servicebus")]
use crate::agent::service_bus::ServiceBus;
use crate::agent::time::{Instant, Now};
use crate::agent::{Agent, Config};
use crate::model::job::JobError;
use crate::model::view::CloudOverview;

impl Agent {
    /// Creates the cloud side, if a cloud is configured.
    pub(in crate::agent) fn cloud(config: &Config, now: Now) -> Option<Box<Cloud>> {
        let settings = config.cloud.as_ref()?;
        Some(Box::new(Cloud::new(config, settings, now)))
    }

    /// The time, with the cloud's clock if there is no other.
    pub(in crate::agent) fn with_cloud_clock(&self, now: Now) -> Now {
        self.cloud.as_ref().map_or(now, |cloud| cloud.correct_clock(now))
    }

    /// Handles an event of the link or of the store.
    pub(in crate::agent) fn handle_cloud(&mut self, now: Now, event: Event) {
        let Self { cloud, rng, pending, .. } = self;
        let cloud = cloud.as_mut().expect("only a configured cloud has events");
        let changed = match event {
            Event::Loaded(saved) => {
                cloud.loaded(now, *saved, rng, pending);
                Changed { pods: true, objects: true }
            }
            Event::Saved(revision) => cloud.saved(now, revision, rng, pending),
            Event::SaveFailed(revision, why) => {
                cloud.save_failed(now, revision, &why, pending);
                Changed::default()
            }
            Event::LinkUp(session, validity) => {
                cloud.link_up(now, session, validity, pending);
                #[cfg(feature = "streams")]
                self.streams.link_up(now);
                Changed::default()
            }
            Event::LinkDown(session, cause) => {
                cloud.link_down(now, session, &cause, rng, pending);
                Changed::default()
            }
            Event::LinkActive(session) => {
                cloud.received(now, session);
                Changed::default()
            }
            Event::Sent(session, count) => {
                cloud.sent(session, count);
                Changed::default()
            }
            Event::Cloud(session, message) => {
                cloud.message(now, session, *message, rng, pending);
                Changed::default()
            }
            #[cfg(feature = "devices")]
            Event::Device(event) => {
                cloud.device_event(now, *event, rng);
                Changed::default()
            }
            #[cfg(feature = "servicebus")]
            Event::ServiceBus(event) => {
                cloud.bus_event(now, *event);
                Changed::default()
            }
            other => panic!("{:?} is not about the cloud", std::mem::discriminant(&other)),
        };
        if changed.objects {
            let all = cloud.objects();
            let mut changed = self.cloud_objects.take(all, &mut self.pending);
            let tokens = cloud.service_account_tokens();
            changed.extend(tokens.iter().map(|token| Key::of_token(token)));
            self.cloud_objects.take_tokens(tokens);
            self.pods.objects_changed(&changed);
            #[cfg(feature = "services")]
            self.services.iter_mut().for_each(crate::agent::services::Services::objects_changed);
        }
        if changed.pods {
            self.update_desired_pods(now);
        }
    }

    /// Takes the result of the job of the cloud side.
    pub(in crate::agent) fn cloud_job_done(&mut self, now: Now, result: &Result<(), JobError>) {
        let cloud = self.cloud.as_mut().expect("only a configured cloud has jobs");
        cloud.job_done(now, result, &mut self.rng, &mut self.pending);
    }

    /// Steps the cloud side. Last in the agent's step, so that it reports what changed in it.
    pub(in crate::agent) fn step_cloud(&mut self, now: Now, out: &mut Out) {
        let folder_is_whole = self.sources().folder == Knowledge::Whole;
        let Self { config, addresses, runtime, pleg, node, housekeeping, .. } = self;
        let node_inputs =
            NodeInputs { config, addresses, runtime, pleg, node, images: housekeeping.images() };
        let Self { cloud, pods, recorder, rng, jobs, .. } = self;
        if let Some(cloud) = cloud {
            let inputs =
                CloudInputs { pods, recorder, folder_is_whole, node: node_inputs, rng, jobs, out };
            cloud.step(now, inputs);
        }
    }

    /// The core of ServiceBus, if it is switched on.
    #[cfg(feature = "servicebus")]
    pub(in crate::agent) fn service_bus(&self) -> Option<&ServiceBus> {
        self.cloud.as_ref()?.service_bus.core()
    }

    /// The agent is about to exit: saves what is to be saved before. Returns whether everything is.
    pub(in crate::agent) fn save_before_exit(&mut self, now: Now, out: &mut Out) -> bool {
        self.cloud.as_mut().is_none_or(|cloud| cloud.save_devices(now, out))
    }

    /// When [`Agent::save_before_exit`] may go on.
    pub(in crate::agent) fn save_before_exit_at(&self) -> Option<Instant> {
        self.cloud.as_ref()?.save_devices_at(self.now)
    }

    pub(in crate::agent) fn cloud_overview(&self, now: Now) -> Option<CloudOverview> {
        self.cloud.as_ref().map(|cloud| cloud.overview(now))
    }

    #[cfg(feature = "node-jobs")]
    pub(in crate::agent) fn node_jobs(&self) -> Option<&NodeJobs> {
        self.cloud.as_ref()?.node_jobs.core()
    }

    #[cfg(feature = "node-jobs")]
    pub(in crate::agent) fn node_jobs_mut(&mut self) -> &mut NodeJobs {
        let cloud = self.cloud.as_mut().and_then(|cloud| cloud.node_jobs.core_mut());
        cloud.expect("only jobs that are done have calls")
    }

    /// Works on jobs for the node. Returns whether a pull was given up for a pod.
    #[cfg(feature = "node-jobs")]
    pub(in crate::agent) fn step_node_jobs(&mut self, now: Now, out: &mut Out) -> bool {
        let Self { cloud, rng, calls, images, cloud_objects, jobs, recorder, .. } = self;
        let Some(cloud) = cloud else { return false };
        // Before the work: it may go on with what is durable.
        cloud.store_jobs(now, rng);
        let Some(core) = cloud.node_jobs.core_mut() else { return false };
        let housekeeping = &mut self.housekeeping;
        if let Some(kept) = core.take_kept_images() {
            housekeeping.keep_images(kept);
        }
        let image_fs = housekeeping.image_path();
        let objects = &*cloud_objects;
        let mut context = JobsContext { calls, images, objects, jobs, recorder, image_fs, out };
        core.step(now, &mut context)
    }

    #[cfg(feature = "devices")]
    pub(in crate::agent) fn device_core(&self) -> Option<&Devices> {
        self.cloud.as_ref()?.devices.core()
    }

    pub(in crate::agent) fn cloud_wake_at(&self) -> Option<Instant> {
        self.cloud.as_ref()?.wake_at(self.now)
    }
}
