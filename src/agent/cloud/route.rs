//! Connects the cloud side to the agent: its events, its step, and when it wakes.

use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(any(feature = "metaserver", feature = "services"))]
use super::requests::RequestKind;
use super::rows::StoredObject;
#[cfg(any(feature = "metaserver", feature = "services"))]
use super::wanted_watches;
use super::{Changed, Cloud, CloudInputs, NodeInputs};
use crate::agent::calls::Uid;
#[cfg(feature = "devices")]
use crate::agent::devices::Devices;
use crate::agent::event::{Event, Out};
#[cfg(feature = "node-jobs")]
use crate::agent::node_jobs::{JobsContext, NodeJobs};
use crate::agent::objects::Key;
use crate::agent::pods::Knowledge;
#[cfg(feature = "metaserver")]
use crate::agent::pods::Pods;
#[cfg(feature = "servicebus")]
use crate::agent::service_bus::ServiceBus;
use crate::agent::time::{Instant, Now};
use crate::agent::{Agent, Config};
#[cfg(any(feature = "metaserver", feature = "services"))]
use crate::model::downstream::RefusedWatches;
use crate::model::job::JobError;
use crate::model::meta::StoreOrigin;
#[cfg(feature = "metaserver")]
use crate::model::metaserver::{
    Answer, Call, Caller, ClientId, Failure, MetaServerOverview, Reply,
};
use crate::model::object::Object;
use crate::model::pod::Pod;
use crate::model::token::Token;
#[cfg(feature = "metaserver")]
use crate::model::upstream::Origin;
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
        let Self { cloud, rng, pending, pods, config, .. } = self;
        let cloud = cloud.as_mut().expect("only a configured cloud has events");
        #[cfg(not(feature = "metaserver"))]
        let _ = (pods, config);
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
            #[cfg(feature = "metaserver")]
            Event::MetaServerOpened(id, call, caller) => {
                cloud.metaserver_opened(now, id, *call, &caller, &config.node_name, pods);
                Changed::default()
            }
            #[cfg(feature = "metaserver")]
            Event::MetaServerClosed(id) => {
                cloud.metaserver.closed(id);
                Changed::default()
            }
            #[cfg(feature = "servicebus")]
            Event::ServiceBus(event) => {
                cloud.service_bus.handle(now, *event);
                Changed::default()
            }
            other => panic!("{:?} is not about the cloud", std::mem::discriminant(&other)),
        };
        self.cloud_changed(now, changed);
    }

    /// What the cloud side has, has changed.
    fn cloud_changed(&mut self, now: Now, changed: Changed) {
        let Some(cloud) = &self.cloud else { return };
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

    /// The job that waits for somebody to confirm an upgrade, as `nodeupgradejob/NAME`.
    #[cfg(feature = "node-jobs")]
    pub fn awaits_confirmation(&self) -> Option<String> {
        self.node_jobs()?.awaits_confirmation().map(ToString::to_string)
    }

    #[cfg(feature = "node-jobs")]
    pub(in crate::agent) fn confirm_upgrade(&mut self) {
        let core = self.cloud.as_mut().and_then(|cloud| cloud.node_jobs.core_mut());
        if let Some(core) = core {
            core.confirm_upgrade();
        }
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
        if core.has_upgrade() {
            housekeeping.want_image_path();
        }
        let image_fs = housekeeping.image_path();
        let objects = &*cloud_objects;
        let mut context = JobsContext { calls, images, objects, jobs, recorder, image_fs, out };
        core.step(now, &mut context)
    }

    #[cfg(feature = "metaserver")]
    pub(in crate::agent) fn metaserver_overview(&self) -> Option<MetaServerOverview> {
        let overview = self.cloud.as_ref()?.metaserver.core()?.overview();
        let place = self.cloud_objects.in_cluster();
        let for_pods = place.map(|place| format!("https://{}", place.address));
        Some(MetaServerOverview { for_pods, ..overview })
    }

    #[cfg(feature = "devices")]
    pub(in crate::agent) fn device_core(&self) -> Option<&Devices> {
        self.cloud.as_ref()?.devices.core()
    }

    pub(in crate::agent) fn cloud_wake_at(&self) -> Option<Instant> {
        self.cloud.as_ref()?.wake_at(self.now)
    }
}

/// What the rest of the core asks of it.
impl Cloud {
    /// The state of the cloud side, for the status display.
    pub(in crate::agent) fn overview(&self, now: Now) -> CloudOverview {
        CloudOverview {
            up_ms: self.hub.up_ms(now),
            trouble: self.hub.trouble().map(str::to_owned),
            store_trouble: self.meta.trouble().map(str::to_owned),
            store_is_new: self.knowledge() == Knowledge::Broken,
            store_loss: match self.meta.origin() {
                Some(StoreOrigin::Lost(why)) => Some(why.clone()),
                _ => None,
            },
            objects: self.meta.stored_objects().count(),
        }
    }

    /// A relist of the runtime found no unknown pods.
    pub(in crate::agent) fn all_pods_known(&mut self) {
        self.meta.set_complete();
    }

    /// How much is known of the cloud's pods.
    pub(in crate::agent) fn knowledge(&self) -> Knowledge {
        match self.meta.origin() {
            None => Knowledge::Silent,
            Some(StoreOrigin::New | StoreOrigin::Lost(_)) => Knowledge::Broken,
            Some(StoreOrigin::Part { .. }) => Knowledge::Broken,
            Some(StoreOrigin::Kept) => Knowledge::Whole,
        }
    }

    /// Pods that the store does not know, and that the cloud has deleted.
    pub(in crate::agent) fn tombstones(&self) -> &BTreeSet<Uid> {
        self.meta.tombstones()
    }

    /// The pods that the cloud wants here.
    pub(in crate::agent) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.meta.stored_objects().filter_map(|object| match object {
            StoredObject::Pod(pod) => Some(&**pod),
            _ => None,
        })
    }

    /// The tokens of these pods.
    pub(in crate::agent) fn service_account_tokens(&self) -> Vec<Arc<Token>> {
        self.meta.tokens().cloned().collect()
    }

    /// The objects that these pods use.
    pub(in crate::agent) fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.meta.objects()
    }
}

/// The watches of the cloud.
impl Cloud {
    /// The cloud has answered the list of live watches.
    #[cfg(any(feature = "metaserver", feature = "services"))]
    pub(super) fn watches_answered(
        &mut self,
        now: Now,
        parent: &str,
        refused: RefusedWatches,
        out: &mut Out,
    ) {
        match self.requests.answered(parent) {
            Some((RequestKind::Watches, _)) => {
                self.watches.answered(now, refused);
                self.services.watch_answered(now, &self.watches, out);
            }
            Some((other, _)) => self.unanswered(now, &other, out),
            None => {}
        }
    }

    /// A client of MetaServer asks for this.
    #[cfg(feature = "metaserver")]
    fn metaserver_opened(
        &mut self,
        now: Now,
        id: ClientId,
        call: Call,
        caller: &Caller,
        node: &str,
        pods: &mut Pods,
    ) {
        if let Err(failure) = self.metaserver.judge(now, &self.meta, caller, &call) {
            return self.metaserver.refuse(now, id, call, failure);
        }
        let reply = match &call {
            Call::Release(release) => self.release(id, release, node, pods),
            Call::ConfirmUpgrade => Some(self.confirm_for_client()),
            #[cfg(feature = "streams")]
            Call::Stream(request) => {
                let resolved = crate::agent::streams::client::resolved(pods, request);
                Some(resolved.map_or_else(|reply| reply, |it| Reply::Stream(Box::new(it))))
            }
            Call::Restart { namespace, pods: names } => {
                Some(Reply::Messages(super::metaserver::restart(pods, namespace, names)))
            }
            #[cfg(feature = "devices")]
            Call::EditDevice(put) => self.edit_device(id, put),
            Call::Get { .. } | Call::List { .. } | Call::Watch(_) | Call::Write(_) => None,
        };
        self.metaserver.opened(now, id, call);
        if let Some(reply) = reply {
            self.metaserver.reply(id, reply);
        }
    }

    /// A client starts the upgrade of the node that waits for it.
    #[cfg(feature = "metaserver")]
    #[cfg_attr(
        not(feature = "node-jobs"),
        expect(clippy::unused_self, reason = "as where jobs are built in")
    )]
    fn confirm_for_client(&mut self) -> Reply {
        #[cfg(feature = "node-jobs")]
        if let Some(jobs) = self.node_jobs.core_mut()
            && jobs.awaits_confirmation().is_some()
        {
            jobs.confirm_upgrade();
            return Reply::Done;
        }
        let message = "there are no valid upgrade tasks to execute";
        Reply::Failure(Failure::new(400, "BadRequest", message))
    }

    /// The cloud has answered a request of MetaServer.
    #[cfg(feature = "metaserver")]
    pub(super) fn application_answered(
        &mut self,
        now: Now,
        parent: &str,
        answer: Answer,
        out: &mut Out,
    ) {
        match self.requests.answered(parent) {
            Some((RequestKind::Application(number), _)) => {
                self.metaserver.answered(now, number, answer);
            }
            Some((other, _)) => self.unanswered(now, &other, out),
            None => {}
        }
    }

    /// Whether an object comes by a watch of MetaServer's: it is kept there, and listed anew in
    /// each connection, so it need not be durable.
    #[cfg(feature = "metaserver")]
    pub(super) fn is_cached(&self, origin: &Origin, kind: &str) -> bool {
        let is_watch = &*origin.source == "dynamiccontroller";
        is_watch && self.metaserver.is_on() && !self.services.keeps(kind)
    }

    /// When the cloud is told of other watches.
    #[cfg(any(feature = "metaserver", feature = "services"))]
    pub(super) fn watches_at(&self) -> Option<Instant> {
        self.watches.wake_at(&wanted_watches(&self.services, &self.metaserver))
    }

    #[cfg(not(any(feature = "metaserver", feature = "services")))]
    #[expect(clippy::unused_self, reason = "as where there are watches")]
    pub(super) fn watches_at(&self) -> Option<Instant> {
        None
    }
}
