//! The image of a container before its start: whether it is present or has to be pulled, with which
//! credentials, and what is reported when a pull fails (spec sections 2.4, 2.5 and 3.6).
//!
//! ```text
//!  Unknown ──ImageStatus──▶ Ready                      (present, and not to be pulled each time)
//!     ▲         └─────────▶ ToPull ──PullImage──▶ Pulled ──ImageStatus──▶ Ready
//!     └──the last candidate failed──┘   ▲──┘ another candidate is left
//! ```
//!
//! If we crash here: the runtime continues the pull or cancels it, and after the restart the image
//! is requested again. Back-offs start again.

use super::plan::{HoldReason, Step};
use super::{Pod, PodContext};
use crate::agent::event::CallId;
use crate::agent::image::{joined, pull_policy};
use crate::agent::time::{Backoff, BackoffBounds, Instant, Now, Rng};
use crate::limits;
use crate::model::cri::{self, CallError, Code, ImageUser, Request};
use crate::model::image::{ImageName, with_tag};
use crate::model::map::Map;
use crate::model::pod::{Container, PodSpec, PullPolicy};
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// The state of a container's image, in this try to start it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Image {
    #[default]
    Unknown,
    /// Absent, or pulled each time.
    ToPull(Tries),
    Pulled {
        image_ref: Box<str>,
        /// Milliseconds of the pull.
        took_ms: u64,
        /// Milliseconds since it was first requested.
        waited_ms: u64,
    },
    /// `image_ref`, and the user of the image.
    Ready(Box<str>, ImageUser),
}

/// The results of the pulls so far, one for each candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tries {
    /// When it was found absent.
    since: Instant,
    errors: Vec<String>,
    /// There are candidates left after the pull under way.
    more: bool,
}

impl Tries {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, errors: Vec::new(), more: false }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The pull with another candidate has failed.
    pub(super) fn refused(&mut self, text: String) {
        self.errors.push(text);
    }
}

/// The pulls of a pod that failed, by image name.
#[derive(Debug, Default)]
pub(super) struct Pulls(Map<Box<str>, FailedPull>);

impl Pulls {
    pub(super) fn failed(&self, image: &str) -> Option<&FailedPull> {
        self.0.get(image)
    }

    fn succeeded(&mut self, image: &str) {
        self.0.remove(image);
    }

    /// The pull failed, once more or for the first time.
    fn fail(&mut self, now: Instant, image: Box<str>, why: String) {
        let bounds = BackoffBounds {
            min_ms: limits::BACKOFF_MIN_MS,
            max_ms: limits::BACKOFF_MAX_MS,
            calm_ms: limits::BACKOFF_CALM_MS,
        };
        let known = self.0.remove(&image);
        let mut backoff = known.map_or_else(Backoff::default, |failed| failed.backoff);
        backoff.grow(now, now, bounds);
        let until = now.plus_ms(backoff.delay_ms());
        self.0.insert(image, FailedPull { backoff, until, why });
    }

    /// The pull failed because of the budget.
    fn spread(&mut self, image: &str, rng: &mut Rng) {
        self.0.get_mut(image).expect("just entered").spread(rng);
    }
}

/// A pull that failed with every candidate.
#[derive(Clone, Debug)]
pub(super) struct FailedPull {
    backoff: Backoff,
    /// No retry before this time.
    pub(super) until: Instant,
    /// `ErrImagePull: <the runtime's message>`
    pub(super) why: String,
}

impl Pod {
    /// Why the image name of the container is invalid.
    pub(super) fn image_fault(container: &Container) -> Option<HoldReason> {
        let why = ImageName::parse(&container.image).err()?.to_string();
        Some(HoldReason::ImageName { why })
    }

    /// The spec is about to change: the state of images that it no longer names, and the holds
    /// because of them, are cleared.
    pub(super) fn forget_changed_images(&mut self, new: &PodSpec) {
        let names = || new.init_containers.iter().chain(&new.containers);
        let spec = &self.api.spec;
        for old in spec.init_containers.iter().chain(&spec.containers) {
            let same = names().any(|new| new.name == old.name && new.image == old.image);
            if !same {
                self.records.image_changed(&old.name);
            }
        }
    }

    /// The pull of an image that the spec no longer names.
    pub(super) fn abandoned_pull(&self) -> Option<CallId> {
        self.runner.find_call(|step| match step {
            Step::Pull { container, image } => !self.names(container, image),
            _ => false,
        })
    }

    fn names(&self, container: &str, image: &str) -> bool {
        self.spec_of(container).is_some_and(|spec| &*spec.image == image)
    }

    /// The next pull of the container's image. `None`: it has failed before it was requested.
    pub(super) fn pull(
        &mut self,
        now: Now,
        container: &str,
        context: &mut PodContext<'_>,
    ) -> Option<Request> {
        let Image::ToPull(tries) = self.records.of(container).image().clone() else {
            panic!("next returns pulls of images to pull");
        };
        let spec = self.spec_of(container).expect("next returns containers of the spec");
        let wanted = pull_policy(spec.image_pull_policy, &spec.image) != PullPolicy::Always;
        let spec_image = spec.image.clone();
        let image = with_tag(&spec_image);
        let long = now.boot.since_ms(tries.since) > limits::IMAGE_ABSENT_MS;
        if wanted && long && tries.errors.is_empty() {
            // It has waited for room: another pull may have brought the image meanwhile.
            self.records.of(container).set_image(Image::Unknown);
            return None;
        }
        if tries.errors.is_empty() {
            self.record_event(
                container,
                EventType::Normal,
                "Pulling",
                format!("Pulling image \"{image}\""),
            );
        }
        let objects = context.objects.of(self.origin);
        let mut candidates = match context.images.candidates(&self.api, &image, objects) {
            Ok(candidates) => candidates,
            Err(why) => {
                self.pull_failed(now.boot, container, &why);
                return None;
            }
        };
        if tries.errors.is_empty() {
            self.warn_missing_secrets(&candidates.missing);
            if !context.images.may_pull(now) {
                self.pull_failed(now.boot, container, "pull QPS exceeded");
                self.pulls.spread(&spec_image, context.rng);
                return None;
            }
        }
        let at = tries.errors.len();
        if at >= candidates.auths.len() {
            // A secret was removed meanwhile.
            self.pull_failed(now.boot, container, &joined(&tries.errors));
            return None;
        }
        let more = at + 1 < candidates.auths.len();
        self.records.of(container).set_image(Image::ToPull(Tries { more, ..tries }));
        let attempt = self.observed.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let sandbox_config = match self.sandbox_config(attempt, context) {
            Ok(config) => Box::new(config),
            Err(why) => {
                self.unconfigured(now, container, &why.to_string());
                return None;
            }
        };
        Some(Request::PullImage { image, auth: candidates.auths.swap_remove(at), sandbox_config })
    }

    fn warn_missing_secrets(&mut self, missing: &[String]) {
        if missing.is_empty() {
            return;
        }
        let missing = missing.join(", ");
        let message = format!(
            "Unable to retrieve some image pull secrets ({missing}); attempting to pull the image \
             may not succeed."
        );
        self.events.warn("FailedToRetrieveImagePullSecret", message);
    }

    /// A pull has succeeded.
    pub(super) fn pulled(
        &mut self,
        now: Instant,
        container: &str,
        image: &str,
        image_ref: Box<str>,
        took_ms: u64,
    ) {
        self.lifecycle.pull_took(took_ms);
        self.pulls.succeeded(image);
        if self.names(container, image) {
            self.records.of(container).pulled(now, image_ref, took_ms);
        }
    }

    /// Takes the answer of `ImageStatus`.
    pub(super) fn image_status(
        &mut self,
        now: Now,
        container: &str,
        name: &str,
        here: Option<cri::Image>,
    ) {
        let Some(spec) = self.spec_of(container).filter(|spec| &*spec.image == name) else {
            return;
        };
        let policy = pull_policy(spec.image_pull_policy, name);
        let known = self.records.of(container).take_image();
        let next = match (here, known) {
            (
                Some(cri::Image { size, user, .. }),
                Image::Pulled { image_ref, took_ms, waited_ms },
            ) => {
                let (took, waited) = (go_duration_ms(took_ms), go_duration_ms(waited_ms));
                let name = with_tag(name);
                let message = format!(
                    "Successfully pulled image \"{name}\" in {took} ({waited} including waiting). \
                     Image size: {size} bytes."
                );
                self.record_event(container, EventType::Normal, "Pulled", message);
                Image::Ready(image_ref, user)
            }
            (Some(cri::Image { id, user, .. }), _) if policy != PullPolicy::Always => {
                let message = format!("Container image \"{name}\" already present on machine");
                self.record_event(container, EventType::Normal, "Pulled", message);
                Image::Ready(id, user)
            }
            (None, _) if policy == PullPolicy::Never => {
                let message =
                    format!("Container image \"{name}\" is not present with pull policy of Never");
                let retry_at = now.boot.plus_ms(limits::RETRY_MS);
                self.hold(container, "ErrImageNeverPull", message.clone(), retry_at);
                self.record_event(container, EventType::Warning, "ErrImageNeverPull", message);
                self.error(container, "ErrImageNeverPull");
                Image::Unknown
            }
            (Some(_) | None, _) => {
                self.records.of(container).image_absent(now.boot);
                return;
            }
        };
        self.records.of(container).set_image(next);
    }

    /// A pull was refused or lost: the next candidate is tried, or this try ends.
    pub(super) fn pull_refused(
        &mut self,
        now: Instant,
        container: &str,
        image: &str,
        error: &CallError,
    ) {
        if !self.names(container, image) {
            return;
        }
        // The code `Unknown` carries no information: the runtime had none.
        let text = match error {
            CallError::Refused { code: Code::Unknown, message } => message.clone(),
            other => other.to_string(),
        };
        // After a lost answer no other candidate is tried now.
        let answered = matches!(error, CallError::Refused { .. });
        let Some(tries) = self.records.of(container).pull_refused(text) else { return };
        if answered && tries.more {
            return;
        }
        let all = joined(&tries.errors);
        self.pull_failed(now, container, &all);
    }

    fn pull_failed(&mut self, now: Instant, container: &str, text: &str) {
        let image = self.spec_of(container).map(|spec| spec.image.clone()).unwrap_or_default();
        let image_name = with_tag(&image);
        let (reason, message) = failure_of(&image_name, text);
        self.pulls.fail(now, image, format!("{reason}: {message}"));
        self.records.of(container).pull_failed(Waiting { reason, message });
        let event = format!("Failed to pull image \"{image_name}\": {text}");
        self.record_event(container, EventType::Warning, "Failed", event);
        self.error(container, reason);
        self.status_cache.mark_stale();
    }
}

impl FailedPull {
    /// A pull that was refused because of the budget is retried a little later than those that were
    /// allowed: at the same time, it would be refused each time.
    fn spread(&mut self, rng: &mut Rng) {
        let spread_ms = self.backoff.delay_ms() / limits::PULL_SPREAD_PART;
        self.until = self.until.plus_ms(rng.below(spread_ms + 1));
    }
}

/// The reason and the message in the status for a failed pull, by the beginning of its text.
fn failure_of(image: &str, text: &str) -> (&'static str, String) {
    for (reason, what) in [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ] {
        if let Some(rest) = text.strip_prefix(reason) {
            return (reason, format!("image pull failed for {image} because {what}{rest}"));
        }
    }
    ("ErrImagePull", text.to_owned())
}

/// Durations in Go's notation: `0s`, `250ms`, `1.2s`, `1m3.045s`, `1h0m0s`.
fn go_duration_ms(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let (hours, minutes, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let mut text = match (hours, minutes) {
        (0, 0) => String::new(),
        (0, minutes) => format!("{minutes}m"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    };
    text.push_str(&(ms / 1_000).to_string());
    if ms % 1_000 > 0 {
        text.push_str(format!(".{:03}", ms % 1_000).trim_end_matches('0'));
    }
    text.push('s');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_over_the_budget_wait_longer_by_up_to_a_part_of_their_back_off() {
        let (now, min_ms) = (Instant(1_000), limits::BACKOFF_MIN_MS);
        let mut backoff = Backoff::default();
        let until = backoff.retry_at(now, min_ms, min_ms);
        let late_ms = |seed| {
            let (backoff, why) = (backoff.clone(), String::new());
            let mut failed = FailedPull { backoff, until, why };
            failed.spread(&mut Rng::new(seed));
            failed.until.since_ms(until)
        };
        let all: Vec<u64> = (0..10_000).map(late_ms).collect();
        let most_ms = min_ms / limits::PULL_SPREAD_PART;
        assert!(all.iter().all(|&ms| ms <= most_ms), "{:?}", all.iter().max());
        // The whole range is used.
        let part = |n: u64| all.iter().filter(|&&ms| ms * 4 / (most_ms + 1) == n).count();
        assert!((0..4).all(|n| part(n) > 2_000), "{:?}", [part(0), part(1), part(2), part(3)]);
    }

    #[test]
    fn durations_are_written_as_go_does() {
        for (ms, want) in [
            (0, "0s"),
            (850, "850ms"),
            (1_000, "1s"),
            (1_200, "1.2s"),
            (63_045, "1m3.045s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration_ms(ms), want);
        }
    }

    #[test]
    fn the_text_of_a_failed_pull_decides_its_reason() {
        for (text, reason, message) in [
            ("boom", "ErrImagePull", "boom"),
            (
                "RegistryUnavailable: no route",
                "RegistryUnavailable",
                "image pull failed for i:1 because the registry is unavailable: no route",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for i:1 because the signature validation failed",
            ),
        ] {
            assert_eq!(failure_of("i:1", text), (reason, message.to_owned()));
        }
    }
}
