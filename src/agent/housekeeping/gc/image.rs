//! Image garbage collection: unused images are removed when their file system fills up (spec
//! section 8.4).
//!
//! ```text
//!  room ≥ high │ an age │ a pressure ─▶ ListImages ─▶ a relist that began after ─▶ RemoveImage one
//!                                                                                by one, until
//!                                                                                enough
//! ```
//!
//! Cheap as long as there is room: the runtime is asked once for the path of its images, the usage
//! of the file system is measured each period, and the images are listed every few minutes for
//! their age.
//!
//! Never removed: an image of any container, running or not, whoever created it; an image that a
//! pod of this node wants, because it may not be available again (a link that is down, a registry
//! that is gone); an image that the runtime has pinned; and the sandbox image. The name in a pod
//! rather matches too many images than too few. An image that a job of the cloud has brought stays
//! until a container has used it, but not under disk pressure: pods would be evicted for it.
//!
//! If we crash here: the next start lists the images again; it does not know when they were last
//! used, so unused images count as equally old.

mod name;

use std::collections::{BTreeSet, VecDeque};

use crate::agent::calls::CallTask;
use crate::agent::event::{Action, Severity};
use crate::agent::housekeeping::{HousekeepingContext, MeasurePlan, Periodic};
use crate::agent::pleg::List;
use crate::agent::pod::Pod;
use crate::agent::pods::Pods;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{
    HousekeepingCall, HousekeepingReply, ImagePolicy, Room, StoredImage,
};
use crate::model::map::Map;
use crate::model::recorded_event::EventType;
use name::{NameMatcher, base_of};

/// The garbage collector of images.
#[derive(Debug)]
pub struct Images {
    policy: ImagePolicy,
    started_at: Instant,
    path: ImagePath,
    /// A job for the node needs it, also where no images are collected.
    is_path_wanted: bool,
    /// When the usage of the file system is measured.
    room_check: Periodic,
    /// When the images are listed.
    list: Periodic,
    /// By id, as of the last list.
    known: Map<Box<str>, Record>,
    /// When each image, by the id or name that a container reports, was last observed in use.
    used: Map<Box<str>, Instant>,
    /// Names of images that stay until they are used, and since when.
    kept: Vec<(Box<str>, Instant)>,
    room: Option<Room>,
    /// The last measurement of the file system failed, which was logged.
    room_unreadable: bool,
    pass: Pass,
    /// Eviction requests the removal of all unused images.
    reclaim_requested: bool,
    /// No pass for lack of space before this time.
    pass_at: Instant,
    /// Passes in a row that freed too little.
    failures: u32,
    /// Messages for the next step.
    pending_messages: Vec<(MessageKind, String)>,
}

/// The path of the images.
#[derive(Debug, PartialEq, Eq)]
enum ImagePath {
    Unknown,
    Requested,
    /// `None`: the runtime does not report it.
    Known(Option<Box<str>>),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    first_seen: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Warning(&'static str),
    Line,
}

/// The reason of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassReason {
    /// To list them, and to remove those that are too old.
    Age,
    /// To free so many bytes.
    Room(u64),
    /// To remove all unused images.
    Pressure,
}

#[derive(Debug)]
enum Pass {
    Rest,
    Listing(PassReason),
    Relisting { after: u64, images: Vec<StoredImage>, why: PassReason },
    Removing(Removal),
}

#[derive(Debug)]
struct Removal {
    why: PassReason,
    began: Instant,
    /// In the order of removal.
    queue: VecDeque<StoredImage>,
    /// It is being removed.
    current: Option<StoredImage>,
    freed: u64,
    errors: Vec<String>,
}

impl Images {
    /// Nothing known.
    pub fn new(policy: ImagePolicy, now: Instant) -> Self {
        Self {
            started_at: now,
            path: ImagePath::Unknown,
            is_path_wanted: false,
            room_check: Periodic::new(policy.period_ms, now),
            list: Periodic::new(limits::IMAGES_LIST_MS, now),
            policy,
            known: Map::new(),
            used: Map::new(),
            kept: Vec::new(),
            room: None,
            room_unreadable: false,
            pass: Pass::Rest,
            reclaim_requested: false,
            pass_at: now,
            failures: 0,
            pending_messages: Vec::new(),
        }
    }

    /// The runtime is back, and may be another: calls under way were answered before.
    pub fn up(&mut self) {
        self.reclaim_requested |= self.is_reclaiming();
        self.path = ImagePath::Unknown;
        self.room = None;
        self.pass = Pass::Rest;
    }

    /// Requests the removal of all unused images.
    #[cfg(feature = "eviction")]
    pub fn reclaim(&mut self) {
        self.reclaim_requested = true;
    }

    /// Whether all unused images are being removed.
    pub fn is_reclaiming(&self) -> bool {
        self.reclaim_requested
            || match &self.pass {
                Pass::Rest => false,
                Pass::Listing(why) | Pass::Relisting { why, .. } => *why == PassReason::Pressure,
                Pass::Removing(removal) => removal.why == PassReason::Pressure,
            }
    }

    /// These stay until a container has used them since.
    #[cfg(feature = "node-jobs")]
    pub fn keep(&mut self, kept: Vec<(Box<str>, Instant)>) {
        self.kept = kept;
    }

    /// The path is asked for, also where no images are collected.
    #[cfg(feature = "node-jobs")]
    pub fn want_path(&mut self) {
        self.is_path_wanted = true;
    }

    /// The path of the images, as the runtime reports it.
    pub fn path(&self) -> Option<&str> {
        match &self.path {
            ImagePath::Known(path) => path.as_deref(),
            ImagePath::Unknown | ImagePath::Requested => None,
        }
    }

    /// A relist is complete: the images of its containers are in use.
    pub fn take_list(&mut self, now: Instant, list: &List, pods: &Pods) {
        for container in &list.containers {
            match self.used.get_mut(&container.image_id) {
                Some(at) => *at = now,
                None => {
                    self.used.insert(container.image_id.clone(), now);
                }
            }
        }
        if let Pass::Relisting { after, images, why } = &mut self.pass
            && list.serial > *after
        {
            let (images, why) = (std::mem::take(images), *why);
            self.choose(now, images, why, pods);
        }
    }

    /// Takes the measurement of the images' file system. If it was not `requested`, it is ignored.
    pub fn measured(&mut self, now: Instant, room: Option<Room>, requested: bool) {
        let room_unreadable =
            if requested { room.is_none() && self.path().is_some() } else { self.room_unreadable };
        if room_unreadable && !self.room_unreadable {
            let path = self.path().unwrap_or_default();
            let line = format!(
                "path={path} images there are not collected: the disk usage cannot be read"
            );
            self.pending_messages.push((MessageKind::Line, line));
        }
        (self.room_unreadable, self.room) = (room_unreadable, room);
        if let Some(Room { bytes, .. }) = room
            && bytes.capacity == 0
        {
            let why = "invalid capacity 0 on image filesystem".to_owned();
            self.pending_messages.push((MessageKind::Warning("InvalidDiskCapacity"), why));
            self.room = None;
            self.pass_at = now.plus_ms(limits::IMAGES_RETRY_MAX_MS);
        }
    }

    /// Takes the answer to the call for the path.
    pub fn path_answer(&mut self, now: Instant, result: &Result<Reply, CallError>) {
        self.path = match result {
            Ok(Reply::HousekeepingCall(HousekeepingReply::ImageFs(path))) => {
                ImagePath::Known(path.clone())
            }
            Ok(other) => panic!("ImageFsInfo cannot answer {}", other.kind()),
            Err(_) => {
                self.room_check.put_off(now.plus_ms(limits::IMAGES_RETRY_MIN_MS));
                ImagePath::Unknown
            }
        };
    }

    /// Takes the answer to a call of the pass.
    pub fn answer(&mut self, now: Instant, result: &Result<Reply, CallError>) {
        match (std::mem::replace(&mut self.pass, Pass::Rest), result) {
            (
                Pass::Listing(why),
                Ok(Reply::HousekeepingCall(HousekeepingReply::Images(images))),
            ) => self.listed(now, images, why),
            (Pass::Listing(_), Ok(other)) => panic!("ListImages cannot answer {}", other.kind()),
            // If the images cannot be listed, they cannot be removed: the pass failed.
            (Pass::Listing(why), Err(error)) => {
                self.fail(now, why, format!("cannot list images: {error}"));
            }
            (Pass::Removing(mut removal), result) => {
                let image = removal.current.take().expect("an image is being removed");
                self.removed(&mut removal, &image, result);
                self.pass = Pass::Removing(removal);
            }
            (pass, result) => {
                let result = result.as_ref().map(Reply::kind);
                panic!("{pass:?} awaits no answer, got {result:?}")
            }
        }
    }

    fn listed(&mut self, now: Instant, images: &[StoredImage], why: PassReason) {
        let ids: BTreeSet<&str> = images.iter().map(|image| &*image.id).collect();
        self.known.retain(|id, _| ids.contains(&**id));
        for image in images {
            self.known.entry(image.id.clone()).or_insert(Record { first_seen: now });
        }
        let names: BTreeSet<&str> = images.iter().flat_map(names_of).collect();
        self.used.retain(|used, _| names.contains(&**used));
        self.release_used(images);
        let ages =
            self.policy.age_max_ms > 0 && now.since_ms(self.started_at) > self.policy.age_max_ms;
        if why != PassReason::Age || ages {
            self.pass = Pass::Relisting { after: u64::MAX, images: images.to_vec(), why };
        }
    }

    /// What was kept for its first use, and was used, is like any other image.
    fn release_used(&mut self, images: &[StoredImage]) {
        let used = images.iter().filter_map(|image| Some((image, self.last_used(image)?)));
        let used: Vec<(&StoredImage, Instant)> = used.collect();
        self.kept.retain(|(name, since)| {
            let name = NameMatcher::by([&**name]);
            !used.iter().any(|(image, at)| at > since && name.has(image))
        });
    }

    /// The images that stay, although nothing uses them.
    fn wanted<'a>(&'a self, pods: &'a Pods, why: PassReason) -> NameMatcher<'a> {
        let kept = self.kept.iter().filter(|_| why != PassReason::Pressure);
        let names = pods.iter().flat_map(Pod::images_wanted);
        NameMatcher::by(names.chain(kept.map(|(name, _)| &**name)))
    }

    /// Chooses the images to remove, and their order.
    fn choose(&mut self, now: Instant, images: Vec<StoredImage>, why: PassReason, pods: &Pods) {
        let wanted = self.wanted(pods, why);
        let policy = &self.policy;
        let old = |image: &StoredImage| match self.last_used(image) {
            Some(at) => now.since_ms(at) > policy.age_max_ms,
            // Not used since the agent began.
            None => true,
        };
        let ages = policy.age_max_ms > 0 && now.since_ms(self.started_at) > policy.age_max_ms;
        let mut queue: Vec<StoredImage> = images
            .into_iter()
            .filter(|image| !self.is_needed(image, now, &wanted))
            .filter(|image| {
                let age_ms = now.since_ms(self.known[&image.id].first_seen);
                let fits = why != PassReason::Age && age_ms >= policy.age_min_ms;
                fits || (ages && old(image))
            })
            .collect();
        queue.sort_by_cached_key(|image| {
            // Images that are too old are removed in any case, the others only until there is room.
            let stays = !(ages && old(image));
            (stays, self.last_used(image), self.known[&image.id].first_seen, image.id.clone())
        });
        let queue = queue.into();
        self.pass = Pass::Removing(Removal {
            why,
            began: now,
            queue,
            current: None,
            freed: 0,
            errors: Vec::new(),
        });
    }

    /// When a container of it was last observed.
    fn last_used(&self, image: &StoredImage) -> Option<Instant> {
        names_of(image).filter_map(|name| self.used.get(name)).max().copied()
    }

    /// Whether it must not be removed now; `since`: an image counts as in use if it was observed in
    /// use since then.
    fn is_needed(&self, image: &StoredImage, since: Instant, wanted: &NameMatcher<'_>) -> bool {
        let in_use = self.last_used(image).is_some_and(|at| at >= since);
        let sandbox = &*self.policy.sandbox_image;
        let is_pause = image.names.iter().any(|name| base_of(name) == "pause");
        image.pinned
            || in_use
            || is_pause
            || wanted.has(image)
            || NameMatcher::by([sandbox]).has(image)
    }

    fn removed(
        &mut self,
        removal: &mut Removal,
        image: &StoredImage,
        result: &Result<Reply, CallError>,
    ) {
        match result {
            Ok(_) => {
                removal.freed = removal.freed.saturating_add(image.size);
                self.known.remove(&image.id);
                let name = image.names.first().map_or(&*image.id, |name| &**name);
                let line = format!("image={name} bytes={} removed: unused", image.size);
                self.pending_messages.push((MessageKind::Line, line));
            }
            Err(error) => removal.errors.push(error.to_string()),
        }
    }

    /// Requests what is due.
    pub fn step(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        self.check_room(now, context, measure_plan);
        self.remove(now, context);
        self.begin(now, context);
        if let Pass::Relisting { after, .. } = &mut self.pass
            && *after == u64::MAX
        {
            *after = context.pleg.begun();
            context.pleg.request_relist();
        }
        for (kind, text) in self.pending_messages.drain(..) {
            match kind {
                MessageKind::Warning(reason) => {
                    context.record_event(now, EventType::Warning, reason, text);
                }
                MessageKind::Line => context.out.push(Action::Log(Severity::Info, text)),
            }
        }
    }

    fn check_room(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        let is_wanted = self.is_path_wanted && matches!(self.path, ImagePath::Unknown);
        if !is_wanted && (self.is_off() || !self.room_check.is_due(now.boot)) {
            return;
        }
        match &self.path {
            ImagePath::Unknown => {
                if !self.request_path(now, context) {
                    self.room_check.put_off(now.boot.plus_ms(self.policy.period_ms));
                }
            }
            ImagePath::Requested => {}
            ImagePath::Known(None) => self.room_check.done(now.boot),
            ImagePath::Known(Some(path)) => {
                if let Some(request) = measure_plan.fields() {
                    request.image_fs = Some(path.clone());
                    self.room_check.done(now.boot);
                }
            }
        }
    }

    /// `false`: there is no room for a call.
    fn request_path(&mut self, now: Now, context: &mut HousekeepingContext<'_>) -> bool {
        let made = context.call(now, CallTask::ImagePath, HousekeepingCall::ImageFsInfo);
        if made {
            self.path = ImagePath::Requested;
        }
        made
    }

    /// Requests the path of the images, unless it is known or was `requested` before without
    /// success. `false`: it will be known soon.
    #[cfg(feature = "eviction")]
    pub fn find_path(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        requested: bool,
    ) -> bool {
        match self.path {
            ImagePath::Known(_) => true,
            ImagePath::Requested => false,
            ImagePath::Unknown if requested => true,
            ImagePath::Unknown => {
                self.request_path(now, context);
                false
            }
        }
    }

    /// Lists the images, if there is a reason to.
    fn begin(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        if !matches!(self.pass, Pass::Rest) {
            return;
        }
        let needed = self.room.filter(|_| self.pass_at <= now.boot).and_then(|it| self.lacks(it));
        let why = if self.reclaim_requested {
            PassReason::Pressure
        } else if let Some(bytes) = needed {
            PassReason::Room(bytes)
        } else if self.list.is_due(now.boot) && !self.is_off() {
            PassReason::Age
        } else {
            return;
        };
        if !context.call(now, CallTask::Images, HousekeepingCall::ListImages) {
            self.list.put_off(now.boot.plus_ms(self.policy.period_ms));
            return;
        }
        self.reclaim_requested &= why != PassReason::Pressure;
        self.list.done(now.boot);
        self.pass = Pass::Listing(why);
    }

    /// Bytes to free; `None`: there is room.
    fn lacks(&self, room: Room) -> Option<u64> {
        let (capacity, available) = (room.bytes.capacity, room.bytes.available);
        let share = |percent: u64| {
            let bytes = u128::from(capacity) * u128::from(percent) / 100;
            u64::try_from(bytes).expect("a share is no more than the whole")
        };
        let free_percent = u128::from(available) * 100 / u128::from(capacity.max(1));
        let used_percent = 100 - u64::try_from(free_percent).unwrap_or(100).min(100);
        let full = self.policy.high_percent < 100 && used_percent >= self.policy.high_percent;
        full.then(|| share(100 - self.policy.low_percent).saturating_sub(available))
    }

    fn is_off(&self) -> bool {
        self.policy.high_percent == 100 && self.policy.age_max_ms == 0
    }

    /// Removes the next image, or ends the pass.
    fn remove(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        let mut removal = match std::mem::replace(&mut self.pass, Pass::Rest) {
            Pass::Removing(removal) if removal.current.is_none() => removal,
            pass => {
                self.pass = pass;
                return;
            }
        };
        // The pods may want other images now.
        let wanted = self.wanted(context.pods, removal.why);
        while let Some(image) = removal.queue.pop_front() {
            let enough = match removal.why {
                PassReason::Room(bytes) => {
                    removal.freed >= bytes && !self.is_too_old(&image, now.boot)
                }
                PassReason::Age | PassReason::Pressure => false,
            };
            if enough || self.is_needed(&image, removal.began, &wanted) {
                continue;
            }
            let remove = HousekeepingCall::RemoveImage(image.id.clone());
            if context.call(now, CallTask::Images, remove) {
                removal.current = Some(image);
            } else {
                // The next step tries again.
                removal.queue.push_front(image);
            }
            self.pass = Pass::Removing(removal);
            return;
        }
        self.end(now.boot, removal);
    }

    fn is_too_old(&self, image: &StoredImage, now: Instant) -> bool {
        let most_ms = self.policy.age_max_ms;
        let unused_ms = self.last_used(image).map_or(u64::MAX, |at| now.since_ms(at));
        most_ms > 0 && now.since_ms(self.started_at) > most_ms && unused_ms > most_ms
    }

    fn end(&mut self, now: Instant, removal: Removal) {
        // The earlier measurement is out of date.
        self.room = None;
        let Removal { why, freed, errors, .. } = removal;
        let PassReason::Room(bytes) = why else {
            for error in errors {
                self.pending_messages
                    .push((MessageKind::Line, format!("cannot remove an image: {error}")));
            }
            return;
        };
        if freed >= bytes {
            self.failures = 0;
            self.pass_at = now;
        } else if errors.is_empty() {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {bytes} \
                 bytes, but only found {freed} bytes eligible to free."
            );
            self.pending_messages
                .push((MessageKind::Warning("FreeDiskSpaceFailed"), message.clone()));
            self.fail(now, why, message);
        } else {
            let errors = errors.join(", ");
            let message = format!(
                "wanted to free {bytes} bytes, but freed {freed} bytes space with errors in image \
                 deletion: [{errors}]"
            );
            self.fail(now, why, message);
        }
    }

    /// Only two failures in a row are reported as an event of the node.
    fn fail(&mut self, now: Instant, why: PassReason, message: String) {
        if why == PassReason::Age {
            return;
        }
        self.failures += 1;
        let doubled_ms = limits::IMAGES_RETRY_MIN_MS << (self.failures - 1).min(8);
        self.pass_at = now.plus_ms(doubled_ms.min(limits::IMAGES_RETRY_MAX_MS));
        if self.failures > 1 {
            self.pending_messages.push((MessageKind::Warning("ImageGCFailed"), message));
        }
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        (!self.is_off()).then(|| self.room_check.due_at().min(self.list.due_at()))
    }
}

/// All names by which a container may refer to the image.
fn names_of(image: &StoredImage) -> impl Iterator<Item = &str> {
    image.names.iter().map(|name| &**name).chain([&*image.id])
}
