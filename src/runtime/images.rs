//! Images: their records and names, pulls and imports, and the layers that are unpacked.
//!
//! A name with a tag belongs to one image: a pull or an import moves it. A layer stays as long as a
//! record of an image or of a container names it; layers that nothing names are removed after
//! `RemoveImage`, after the removal of a container, and some time after a pull that failed, then
//! with the downloads that were broken off. If the server dies here, the records are what counts:
//! layers without one are known at the next start.

use std::collections::VecDeque;
use std::sync::Arc;

use super::context::{Context, Retry};
use super::event::{Action, CallId, Durability};
use super::ids;
use super::jobs::{CancelledJob, Owner};
use super::refusal::{cancelled, exhausted, not_saved, of_job, refusal};
use crate::core::time::{Instant, sooner};
use crate::limits::{PULL_DEADLINE_MS, RUNTIME_IMAGES_MAX, RUNTIME_JOB_MS, RUNTIME_RESUME_MS};
use crate::model::image::{ImageName, with_tag};
use crate::model::map::{Map, Set};
use crate::model::runtime::{
    Code, DiffId, ImageId, ImageRecord, Job, JobFault, JobReply, Record, RecordKey, Refusal,
    RegistryAuth, Reply,
};

#[derive(Debug, Default)]
pub struct Images {
    /// Durable.
    all: Map<ImageId, Arc<ImageRecord>>,
    changes: VecDeque<Change>,
    /// The change under way.
    sent: Option<Sent>,
    /// Images whose last change failed: the disk may have what was before, or after it.
    unsure: Set<ImageId>,
    restore: Retry,
    fetches: Map<u64, Fetch>,
    last_fetch: u64,
    unpacked: Set<DiffId>,
    /// Layers that a job removes; it may remove broken downloads alone.
    removing: Option<Vec<DiffId>>,
    /// When broken downloads are removed: nothing has continued them.
    downloads_at: Option<Instant>,
    /// When to look for layers that nothing names.
    collect_at: Option<Instant>,
    retry: Retry,
}

/// A pull or an import, for all calls that want the same.
#[derive(Debug)]
struct Fetch {
    source: Source,
    calls: Vec<CallId>,
    state: FetchState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Pull { image: Box<str>, auth: Option<RegistryAuth> },
    Import { path: Box<str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchState {
    /// Layers are being removed: which ones are unpacked is not known.
    Waiting,
    Requested,
    /// Nobody wants it any more; its job is being killed.
    Killed,
}

/// A change of records that is saved as a whole.
#[derive(Debug)]
enum Change {
    /// Images that a pull or an import has brought.
    Put {
        images: Vec<ImageRecord>,
        source: Source,
        calls: Vec<CallId>,
    },
    Remove {
        id: ImageId,
        call: CallId,
    },
    /// Two images have one name: a crash came between the two halves of its move.
    Repair,
    /// The disk gets again what is in memory.
    Restore,
}

#[derive(Debug)]
struct Sent {
    change: Change,
    /// `None`: it is erased.
    records: Vec<(ImageId, Option<Arc<ImageRecord>>)>,
}

impl Images {
    pub fn new(records: Vec<ImageRecord>) -> Self {
        let mut images = Self::default();
        for record in records {
            images.unpacked.extend(record.layers.iter().cloned());
            images.all.insert(record.id.clone(), Arc::new(record));
        }
        if images.repaired().next().is_some() {
            images.changes.push_back(Change::Repair);
        }
        images
    }

    pub fn get(&self, id: &ImageId) -> Option<&Arc<ImageRecord>> {
        self.all.get(id)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ImageRecord>> {
        self.all.values()
    }

    /// Bytes of all images; layers that two images share count twice.
    pub fn used_bytes(&self) -> u64 {
        self.all.values().map(|image| image.size).sum()
    }

    /// The image that a client means by its name, with or without a tag, by its id, or by the
    /// beginning of its id.
    pub fn find(&self, text: &str) -> Result<Option<&Arc<ImageRecord>>, Refusal> {
        if let Some(name) = full_name(text) {
            let named = |image: &&Arc<ImageRecord>| {
                image.tags.iter().chain(&image.digests).any(|other| **other == *name)
            };
            if let Some(image) = self.all.values().find(named) {
                return Ok(Some(image));
            }
        }
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let all = self.all.keys().map(|id| id.0.strip_prefix("sha256:").unwrap_or(&id.0));
        let found = ids::find(hex, all)?.map(|hex| format!("sha256:{hex}"));
        Ok(found.and_then(|id| self.all.get(&ImageId(id.into()))))
    }

    // ---- calls ----

    pub fn pull(
        &mut self,
        call: CallId,
        image: &str,
        auth: Option<RegistryAuth>,
    ) -> Result<(), Refusal> {
        ImageName::parse(image).map_err(|why| {
            refusal(Code::InvalidArgument, format!("got the image name {image:?}: {why}"))
        })?;
        self.fetch(call, Source::Pull { image: image.into(), auth })
    }

    pub fn import(&mut self, call: CallId, path: Box<str>) -> Result<(), Refusal> {
        if !path.starts_with('/') {
            let message = format!("got the path {path:?}, expected an absolute one");
            return Err(refusal(Code::InvalidArgument, message));
        }
        self.fetch(call, Source::Import { path })
    }

    fn fetch(&mut self, call: CallId, source: Source) -> Result<(), Refusal> {
        let is_same =
            |fetch: &&mut Fetch| fetch.source == source && fetch.state != FetchState::Killed;
        if let Some(fetch) = self.fetches.values_mut().find(is_same) {
            fetch.calls.push(call);
            return Ok(());
        }
        if self.all.len() >= RUNTIME_IMAGES_MAX {
            return Err(exhausted("an image", RUNTIME_IMAGES_MAX));
        }
        self.last_fetch += 1;
        let fetch = Fetch { source, calls: vec![call], state: FetchState::Waiting };
        self.fetches.insert(self.last_fetch, fetch);
        Ok(())
    }

    /// `false`: this call waits for no pull and no import.
    pub fn cancel(&mut self, call: CallId, ctx: &mut Context) -> bool {
        let Some((number, fetch)) =
            self.fetches.iter_mut().find(|(_, fetch)| fetch.calls.contains(&call))
        else {
            return false;
        };
        fetch.calls.retain(|other| *other != call);
        ctx.calls.answer(call, Err(cancelled()));
        if fetch.calls.is_empty() {
            let number = *number;
            let killed = fetch.state == FetchState::Requested
                && ctx.jobs.cancel(&Owner::Pull(number), &mut ctx.out) == CancelledJob::Killed;
            fetch.state = FetchState::Killed;
            if !killed {
                self.fetches.remove(&number);
            }
        }
        true
    }

    /// `RemoveImage`: all names go with it. Absent is no error.
    pub fn remove(&mut self, call: CallId, text: &str, ctx: &mut Context) {
        match self.find(text) {
            Err(refusal) => ctx.calls.answer(call, Err(refusal)),
            Ok(None) => ctx.calls.answer(call, Ok(Reply::Done)),
            Ok(Some(image)) if image.pinned => {
                let message = format!("image {text:?} is pinned");
                ctx.calls.answer(call, Err(refusal(Code::FailedPrecondition, message)));
            }
            Ok(Some(image)) => {
                let id = image.id.clone();
                self.changes.push_back(Change::Remove { id, call });
            }
        }
    }

    // ---- facts ----

    /// All layers that are unpacked; there may be broken downloads as well.
    pub fn layers(&mut self, layers: Vec<DiffId>, now: Instant) {
        let is_removed = |id: &DiffId| self.removing.iter().flatten().any(|other| other == id);
        self.unpacked = layers.into_iter().filter(|id| !is_removed(id)).collect();
        let at = now.plus_ms(RUNTIME_RESUME_MS);
        self.downloads_at = Some(at);
        self.collect_by(at);
    }

    /// Something that named layers is gone.
    pub fn collect_by(&mut self, at: Instant) {
        self.collect_at = sooner(self.collect_at, Some(at));
    }

    pub fn fetched(&mut self, number: u64, result: Result<JobReply, JobFault>, ctx: &mut Context) {
        let fetch = self.fetches.remove(&number).expect("its job was under way");
        let Fetch { source, mut calls, .. } = fetch;
        let images = match result {
            Ok(JobReply::Image(image)) => vec![*image],
            Ok(JobReply::Images(images)) => images,
            Ok(
                JobReply::Done
                | JobReply::Network(_)
                | JobReply::Exec(_)
                | JobReply::Url(_)
                | JobReply::Stats(_),
            ) => Vec::new(),
            Err(fault) => return ctx.calls.answer_all(&mut calls, &Err(of_job(fault))),
        };
        for image in &images {
            self.unpacked.extend(image.layers.iter().cloned());
        }
        // Even if nobody waits for it any more: its layers are there.
        self.changes.push_back(Change::Put { images, source, calls });
    }

    /// After a failure, [`Self::layers`] says what is left.
    pub fn layers_removed(&mut self, is_done: bool, now: Instant) {
        self.removing = None;
        if is_done {
            self.retry.succeeded();
        } else {
            self.retry.failed(now);
            self.collect_at = sooner(self.collect_at, self.retry.at());
        }
    }

    // ---- records ----

    /// Requests the next change, or does it at once if no record is to be changed. `false`: there
    /// is none, or one is under way.
    pub fn request(&mut self, ctx: &mut Context) -> bool {
        if self.sent.is_some() {
            return false;
        }
        let can_restore = !self.unsure.is_empty() && self.restore.is_due(ctx.now.boot);
        let restore = can_restore.then_some(Change::Restore);
        let Some(change) = self.changes.pop_front().or(restore) else { return false };
        let records = self.planned(&change);
        for (id, record) in &records {
            ctx.out.push(match record {
                Some(record) => {
                    let record = Box::new(Record::Image(ImageRecord::clone(record)));
                    Action::Save(record, Durability::Now)
                }
                None => Action::Erase(RecordKey::Image(id.clone())),
            });
        }
        let is_nothing = records.is_empty();
        self.sent = Some(Sent { change, records });
        if is_nothing {
            self.saved(ctx);
        }
        true
    }

    pub fn is_saving(&self) -> bool {
        self.sent.is_some()
    }

    pub fn saved(&mut self, ctx: &mut Context) {
        let Some(Sent { change, records }) = self.sent.take() else { return };
        for (id, record) in records {
            self.unsure.remove(&id);
            match record {
                Some(record) => drop(self.all.insert(id, record)),
                None => drop(self.all.remove(&id)),
            }
        }
        if self.unsure.is_empty() {
            self.restore.succeeded();
        }
        match change {
            Change::Put { images, source, mut calls } => {
                ctx.calls.answer_all(&mut calls, &source.reply(images));
            }
            Change::Remove { call, .. } => {
                ctx.calls.answer(call, Ok(Reply::Done));
                self.collect_by(ctx.now.boot);
            }
            Change::Repair | Change::Restore => {}
        }
    }

    /// The change has failed, or is to be requested `again`.
    pub fn not_saved(&mut self, why: &str, again: bool, ctx: &mut Context) {
        let Some(Sent { change, records }) = self.sent.take() else { return };
        if again {
            return self.changes.push_front(change);
        }
        self.unsure.extend(records.into_iter().map(|(id, _)| id));
        self.restore.failed(ctx.now.boot);
        let refused = Err(not_saved(why));
        match change {
            Change::Put { mut calls, .. } => {
                ctx.calls.answer_all(&mut calls, &refused);
                self.collect_by(ctx.now.boot.plus_ms(RUNTIME_RESUME_MS));
            }
            Change::Remove { call, .. } => ctx.calls.answer(call, refused),
            // The names are what they were; the next start finds them again.
            Change::Repair | Change::Restore => {}
        }
    }

    /// What a change makes of the records; `None`: erased.
    fn planned(&self, change: &Change) -> Vec<(ImageId, Option<Arc<ImageRecord>>)> {
        match change {
            Change::Put { images, .. } => self.put(images),
            Change::Remove { id, .. } => {
                self.all.get(id).map(|image| (image.id.clone(), None)).into_iter().collect()
            }
            Change::Repair => self.repaired().collect(),
            Change::Restore => {
                let unsure = self.unsure.iter();
                unsure.map(|id| (id.clone(), self.all.get(id).cloned())).collect()
            }
        }
    }

    fn put(&self, images: &[ImageRecord]) -> Vec<(ImageId, Option<Arc<ImageRecord>>)> {
        let mut changed: Map<ImageId, ImageRecord> = Map::new();
        for image in images {
            let mut image = image.clone();
            if let Some(old) = changed.get(&image.id).or(self.all.get(&image.id).map(|old| &**old))
            {
                merge(&mut image.tags, &old.tags);
                merge(&mut image.digests, &old.digests);
                image.pinned |= old.pinned;
            }
            let others: Vec<&ImageId> = self.all.keys().chain(changed.keys()).collect();
            let others: Set<ImageId> =
                others.into_iter().filter(|id| **id != image.id).cloned().collect();
            for id in others {
                let other = changed.get(&id).or(self.all.get(&id).map(|old| &**old));
                let other = other.expect("just seen");
                if other.tags.iter().any(|tag| image.tags.contains(tag)) {
                    let mut other = other.clone();
                    other.tags.retain(|tag| !image.tags.contains(tag));
                    changed.insert(id, other);
                }
            }
            changed.insert(image.id.clone(), image);
        }
        changed.into_iter().map(|(id, image)| (id, Some(Arc::new(image)))).collect()
    }

    /// Images without the names that one before them has.
    fn repaired(&self) -> impl Iterator<Item = (ImageId, Option<Arc<ImageRecord>>)> {
        let mut taken: Set<&str> = Set::new();
        self.all.values().filter_map(move |image| {
            let (double, own): (Vec<&Box<str>>, Vec<&Box<str>>) =
                image.tags.iter().partition(|tag| !taken.insert(tag));
            let tags = own.into_iter().cloned().collect();
            let image = ImageRecord { tags, ..ImageRecord::clone(image) };
            (!double.is_empty()).then(|| (image.id.clone(), Some(Arc::new(image))))
        })
    }

    // ---- the next step ----

    /// `named`: layers of containers.
    pub fn step<'a>(&mut self, named: impl Iterator<Item = &'a DiffId>, ctx: &mut Context) {
        self.collect(named, ctx);
        if self.removing.is_some() {
            return;
        }
        for (number, fetch) in &mut self.fetches {
            if fetch.state == FetchState::Waiting {
                fetch.state = FetchState::Requested;
                let job = match fetch.source.clone() {
                    Source::Pull { image, auth } => Job::Pull { image, auth },
                    Source::Import { path } => Job::Import { path },
                };
                ctx.jobs.add(Owner::Pull(*number), job, PULL_DEADLINE_MS);
            }
        }
    }

    /// Never beside a pull: it may be about to name a layer again.
    fn collect<'a>(&mut self, named: impl Iterator<Item = &'a DiffId>, ctx: &mut Context) {
        let is_due = self.collect_at.is_some_and(|at| at <= ctx.now.boot);
        if !is_due || !self.is_settled() || !self.retry.is_due(ctx.now.boot) {
            return;
        }
        let downloads = self.downloads_at.take_if(|at| *at <= ctx.now.boot).is_some();
        // Downloads that are not due yet are not forgotten with what is removed before.
        self.collect_at = self.downloads_at;
        let mut named: Set<&DiffId> = named.collect();
        named.extend(self.all.values().flat_map(|image| &image.layers));
        let unnamed: Vec<DiffId> =
            self.unpacked.iter().filter(|layer| !named.contains(layer)).cloned().collect();
        if unnamed.is_empty() && !downloads {
            return;
        }
        self.unpacked.retain(|layer| !unnamed.contains(layer));
        self.removing = Some(unnamed.clone());
        let job = Job::RemoveLayers { layers: unnamed, downloads };
        ctx.jobs.add(Owner::Layers, job, RUNTIME_JOB_MS);
    }

    fn is_settled(&self) -> bool {
        let is_fetching = self.fetches.values().any(|fetch| fetch.state != FetchState::Waiting);
        let is_saving = self.sent.is_some() || !self.changes.is_empty() || !self.unsure.is_empty();
        !is_fetching && !is_saving && self.removing.is_none()
    }

    /// When to look again if nothing happens. `can_save`: no batch is under way.
    pub fn wake_at(&self, can_save: bool) -> Option<Instant> {
        let can_restore = can_save && !self.unsure.is_empty();
        let restore_at = self.restore.at().filter(|_| can_restore);
        let collect_at = self.collect_at.filter(|_| self.is_settled());
        sooner(restore_at, collect_at.map(|at| self.retry.at().map_or(at, |retry| retry.max(at))))
    }
}

impl Source {
    /// To the calls of a pull or an import that has brought these images.
    fn reply(self, images: Vec<ImageRecord>) -> Result<Reply, Refusal> {
        match self {
            Self::Pull { image, .. } => match images.into_iter().next() {
                Some(record) => Ok(Reply::Pulled(record.id)),
                None => {
                    Err(refusal(Code::Internal, format!("the pull of {image:?} brought no image")))
                }
            },
            Self::Import { .. } => {
                Ok(Reply::Imported(images.into_iter().flat_map(|image| image.tags).collect()))
            }
        }
    }
}

/// As records have it: with registry and tag, or with the digest alone.
fn full_name(text: &str) -> Option<String> {
    let name = ImageName::parse(&with_tag(text)).ok()?;
    let tag = name.tag.as_deref().unwrap_or("latest");
    Some(match &name.digest {
        Some(digest) => format!("{}@{digest}", name.repository()),
        None => format!("{}:{tag}", name.repository()),
    })
}

fn merge(into: &mut Vec<Box<str>>, from: &[Box<str>]) {
    for name in from {
        if !into.contains(name) {
            into.push(name.clone());
        }
    }
}
