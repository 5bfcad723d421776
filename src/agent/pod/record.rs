//! What a pod remembers of the containers of its spec, beyond what the runtime reports: why one
//! does not run and until when it is put off, its image, its back-off and its attempt numbers.
//!
//! **Crash back-off** (spec section 2.4): one for each definition, because another image is another
//! container. If a manifest goes back to an earlier image, that image's old back-off applies.
//!
//! **Forgiven tries**: container starts that do not count as failures, because the sandbox was
//! ending meanwhile. A runtime that stops a sandbox ends its containers first. If an event reports
//! that at once, the sandbox is still ready, and the container is started again in it:
//!
//! ```text
//!  m#0 ends ──▶ Create m#1 ──▶ Start m#1 is refused ──▶ the list: the sandbox is not ready
//!                                                            │
//!  m#1 in a new sandbox ◀── m#1 removed, its back-off and hold taken back ◀┘
//! ```
//!
//! The container did not fail: without this rule it would have restarted twice and waited for ten
//! seconds. One such try is forgiven until a start succeeds, so that a sandbox that never lasts has
//! its back-off as before. Only a refused try is forgiven: a start whose answer was lost may have
//! taken effect.
//!
//! If we crash here: back-offs are lost, and so is what was known of removed containers; an
//! instance that has ended is counted.

use super::Pod;
use super::image::{Image, Tries};
use super::observed::ObservedContainer;
use crate::agent::time::{Backoff, BackoffBounds, Instant};
use crate::limits;
use crate::model::cri::{CallError, ContainerId, SandboxId};
use crate::model::map::Map;
use crate::model::status::Waiting;

/// The records by the containers' names in the spec.
#[derive(Debug, Default)]
pub(super) struct Records(Map<Box<str>, ContainerRecord>);

#[derive(Clone, Debug, Default)]
pub(super) struct ContainerRecord {
    image: Image,
    /// When the image to pull was first found absent, in this try.
    absent_since: Option<Instant>,
    /// Why it does not run: `state.waiting`. Cleared by the next start.
    failure: Option<Waiting>,
    /// The failure may be over when an object changes.
    is_misconfigured: bool,
    /// No retry before this time.
    hold_until: Option<Instant>,
    crashes: CrashBackoff,
    /// The smallest attempt number of the next instance: numbers of removed containers are not
    /// reused.
    attempt_floor: u32,
    /// The instance that was stopped in order to start another, whatever the restart policy says.
    restart_due: Option<ContainerId>,
    /// The instance that somebody wants to be stopped, so that another starts.
    restart_wanted: Option<ContainerId>,
    /// The attempt for which the agent's own files exist and whose container is not created yet.
    files: Option<u32>,
    tried: Try,
}

/// The waiting reason of a container whose configuration is incomplete.
const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// The newest try to start one container.
#[derive(Clone, Debug, Default)]
enum Try {
    /// None since the last start that succeeded.
    #[default]
    None,
    /// Its container is being created or started.
    Begun(Before),
    /// The runtime refused to create or start it.
    Refused(Before, Option<ContainerId>),
    /// It does not count; its container, if there is one, is removed before a new sandbox is
    /// created.
    Forgiven(Option<ContainerId>),
}

/// The state before the try.
#[derive(Clone, Debug)]
struct Before {
    sandbox: SandboxId,
    crashes: CrashBackoff,
}

/// The back-offs of one container of the spec.
#[derive(Clone, Debug, Default)]
struct CrashBackoff(Vec<(Box<str>, Backoff)>);

impl CrashBackoff {
    /// Milliseconds from the newest end, at `exited_at`, to the next start, if it was ever
    /// restarted and has not run for long since.
    fn delay_ms(&self, image: &str, exited_at: Instant) -> Option<u64> {
        let (_, backoff) = self.0.iter().find(|(of, _)| **of == *image)?;
        let calm = backoff.is_calm(exited_at, limits::BACKOFF_CALM_MS);
        (!calm).then(|| backoff.delay_ms())
    }

    /// It is restarted after it ended at `exited_at`.
    fn count(&mut self, image: &str, now: Instant, exited_at: Instant, bounds: BackoffBounds) {
        let at = self.0.iter().position(|(of, _)| **of == *image);
        let known = at.map(|at| self.0.remove(at));
        let (image, mut backoff) = known.unwrap_or_else(|| (image.into(), Backoff::default()));
        backoff.grow(now, exited_at, bounds);
        if self.0.len() >= limits::CRASHES_MAX {
            self.0.remove(0);
        }
        self.0.push((image, backoff));
    }
}

impl Records {
    pub(super) fn get(&self, name: &str) -> Option<&ContainerRecord> {
        self.0.get(name)
    }

    /// The record of a container; empty at first.
    pub(super) fn of(&mut self, name: &str) -> &mut ContainerRecord {
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), ContainerRecord::default());
        }
        self.0.get_mut(name).expect("it is there now")
    }

    /// The containers as the runtime lists them: their attempt numbers are taken, whatever happens
    /// to them.
    pub(super) fn observe(&mut self, containers: &[ObservedContainer]) {
        for container in containers {
            self.of(&container.name).number_taken(container.attempt);
        }
    }

    /// The attempt number of the next instance; `newest`: the greatest observed one (rule R7).
    pub(super) fn next_attempt(&self, name: &str, newest: Option<u32>) -> u32 {
        let floor = self.get(name).map_or(0, |record| record.attempt_floor);
        newest.map_or(0, |newest| newest + 1).max(floor)
    }

    /// The spec names another image: what is known of the image is cleared, and what was put off
    /// because of it.
    pub(super) fn image_changed(&mut self, name: &str) {
        if let Some(record) = self.0.get_mut(name) {
            record.image = Image::Unknown;
            record.absent_since = None;
            record.hold_until = None;
            record.failure = None;
        }
    }

    /// What a container waits for may exist now.
    pub(super) fn retry_configuration(&mut self) {
        for record in self.0.values_mut().filter(|it| it.is_misconfigured && it.failure.is_some()) {
            record.hold_until = None;
        }
    }

    /// Forgives the tries in sandboxes that are over.
    pub(super) fn forgive_tries(&mut self, is_over: impl Fn(&SandboxId) -> bool) {
        for record in self.0.values_mut() {
            match std::mem::take(&mut record.tried) {
                Try::Refused(before, id) if is_over(&before.sandbox) => record.forgive(before, id),
                other => record.tried = other,
            }
        }
    }
}

impl ContainerRecord {
    // ---- image ----

    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    pub(super) fn set_image(&mut self, image: Image) {
        self.image = image;
    }

    /// The state of the image, which is looked up again unless it is set.
    pub(super) fn take_image(&mut self) -> Image {
        std::mem::take(&mut self.image)
    }

    /// The image has to be pulled.
    pub(super) fn image_absent(&mut self, now: Instant) {
        self.absent_since.get_or_insert(now);
        self.image = Image::ToPull(Tries::new(now));
    }

    /// The image was pulled. Ignored if another image was named meanwhile: that is looked up.
    pub(super) fn pulled(&mut self, now: Instant, image_ref: Box<str>, took_ms: u64) {
        let Image::ToPull(tries) = &self.image else { return };
        let waited_ms = now.since_ms(self.absent_since.take().unwrap_or(tries.since()));
        self.image = Image::Pulled { image_ref, took_ms, waited_ms };
    }

    /// A pull has failed with this text. Returns the tries so far; `None`: ignored, as above.
    pub(super) fn pull_refused(&mut self, text: String) -> Option<&Tries> {
        let Image::ToPull(tries) = &mut self.image else { return None };
        tries.refused(text);
        Some(tries)
    }

    /// The pull has failed with every candidate.
    pub(super) fn pull_failed(&mut self, failure: Waiting) {
        self.image = Image::Unknown;
        self.absent_since = None;
        self.set_failure(failure);
    }

    // ---- starts ----

    pub(super) fn failure(&self) -> Option<&Waiting> {
        self.failure.as_ref()
    }

    /// Sets why it does not run. Returns whether that differs.
    pub(super) fn set_failure(&mut self, failure: Waiting) -> bool {
        let differs = self.failure.as_ref() != Some(&failure);
        self.is_misconfigured = false;
        self.failure = Some(failure);
        differs
    }

    /// Until when it is not started.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        self.hold_until.filter(|&at| at > now)
    }

    /// Puts it off; its image is looked up again then.
    pub(super) fn put_off(&mut self, until: Instant) {
        self.image = Image::Unknown;
        self.hold_until = Some(until);
    }

    /// Its configuration is incomplete: it waits until something may have changed.
    pub(super) fn misconfigured(&mut self, until: Instant, message: String) {
        self.hold_until = Some(until);
        self.failure = Some(Waiting { reason: CONFIG_ERROR, message });
        self.is_misconfigured = true;
    }

    pub(super) fn has_files(&self, attempt: u32) -> bool {
        self.files == Some(attempt)
    }

    pub(super) fn set_files(&mut self, attempt: Option<u32>) {
        self.files = attempt;
    }

    /// Somebody wants another instance in place of this one.
    #[cfg(feature = "metaserver")]
    pub(super) fn want_restart(&mut self, id: ContainerId) {
        self.restart_wanted = Some(id);
    }

    pub(super) fn is_restart_wanted(&self, id: &ContainerId) -> bool {
        self.restart_wanted.as_ref() == Some(id)
    }

    /// This instance is stopped in order to start another.
    pub(super) fn restart_after(&mut self, id: ContainerId) {
        self.restart_due = Some(id);
    }

    pub(super) fn is_restarted_after(&self, id: &ContainerId) -> bool {
        self.restart_due.as_ref() == Some(id)
    }

    /// Its newest instance runs.
    pub(super) fn started(&mut self) {
        self.failure = None;
        self.restart_due = None;
        self.restart_wanted = None;
        self.tried = Try::None;
    }

    /// An instance of this attempt number exists.
    pub(super) fn created(&mut self, attempt: u32) {
        self.image = Image::Unknown;
        self.attempt_floor = attempt + 1;
    }

    /// This attempt number is not used any more.
    pub(super) fn number_taken(&mut self, attempt: u32) {
        self.attempt_floor = self.attempt_floor.max(attempt.saturating_add(1));
    }

    /// An instance is removed. Its number is free again if its try was forgiven.
    pub(super) fn removed(&mut self, id: &ContainerId, attempt: u32) {
        if matches!(&self.tried, Try::Forgiven(Some(tried)) if tried == id) {
            self.tried = Try::Forgiven(None);
            self.attempt_floor = attempt;
        } else {
            self.number_taken(attempt);
        }
    }

    /// Milliseconds of the back-off after the newest end, at `exited_at`.
    pub(super) fn crash_delay_ms(&self, image: &str, exited_at: Instant) -> Option<u64> {
        self.crashes.delay_ms(image, exited_at)
    }

    /// It is restarted after it ended at `exited_at`.
    pub(super) fn count_crash(
        &mut self,
        image: &str,
        now: Instant,
        exited_at: Instant,
        bounds: BackoffBounds,
    ) {
        self.crashes.count(image, now, exited_at, bounds);
    }

    /// It is about to be created in this sandbox.
    pub(super) fn begin_try(&mut self, sandbox: SandboxId) {
        if !matches!(self.tried, Try::Forgiven(_)) {
            self.tried = Try::Begun(Before { sandbox, crashes: self.crashes.clone() });
        }
    }

    /// The runtime did not create it (`None`), or did not start it.
    pub(super) fn fail_try(&mut self, id: Option<&ContainerId>, error: &CallError) {
        self.tried = match (std::mem::take(&mut self.tried), error) {
            (Try::Begun(before), CallError::Refused { .. }) => Try::Refused(before, id.cloned()),
            (Try::Begun(_) | Try::Refused(..), _) => Try::None,
            (other @ (Try::None | Try::Forgiven(_)), _) => other,
        };
    }

    fn forgive(&mut self, before: Before, id: Option<ContainerId>) {
        self.crashes = before.crashes;
        self.hold_until = None;
        self.failure = None;
        self.tried = Try::Forgiven(id);
    }
}

impl Pod {
    /// Whether the container belongs to a forgiven try.
    pub(super) fn is_forgiven(&self, container: &ObservedContainer) -> bool {
        let tried = self.records.get(&container.name).map(|record| &record.tried);
        !container.may_run()
            && matches!(tried, Some(Try::Forgiven(Some(id))) if *id == container.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BACKOFF_CALM_MS, BACKOFF_MAX_MS, BACKOFF_MIN_MS, CRASHES_MAX};

    const BOUNDS: BackoffBounds =
        BackoffBounds { min_ms: BACKOFF_MIN_MS, max_ms: BACKOFF_MAX_MS, calm_ms: BACKOFF_CALM_MS };

    #[test]
    fn a_long_run_resets_the_back_off() {
        let began = Instant(1_000);
        let mut crashes = CrashBackoff::default();
        crashes.count("i:1", began, began, BOUNDS);
        let ended = began.plus_ms(BACKOFF_CALM_MS);
        assert_eq!(crashes.delay_ms("i:1", ended), Some(BACKOFF_MIN_MS));
        assert_eq!(crashes.delay_ms("i:1", ended.plus_ms(1)), None);
        let mut calm = crashes.clone();
        calm.count("i:1", ended, ended.plus_ms(1), BOUNDS);
        assert_eq!(calm.delay_ms("i:1", ended), Some(BACKOFF_MIN_MS));
        crashes.count("i:1", ended, ended, BOUNDS);
        assert_eq!(crashes.delay_ms("i:1", ended), Some(2 * BACKOFF_MIN_MS));
    }

    #[test]
    fn the_oldest_definition_is_dropped_for_a_new_one() {
        let at = Instant(1_000);
        let mut crashes = CrashBackoff::default();
        let mut count = |image: usize| crashes.count(&format!("i:{image}"), at, at, BOUNDS);
        (0..CRASHES_MAX).for_each(&mut count);
        // It crashes again: from now on another one is the oldest.
        count(0);
        count(CRASHES_MAX);
        let known = |image: usize| crashes.delay_ms(&format!("i:{image}"), at);
        assert_eq!(known(0), Some(2 * BACKOFF_MIN_MS));
        assert_eq!(known(1), None);
        let rest = 2..=CRASHES_MAX;
        assert!(rest.clone().all(|image| known(image) == Some(BACKOFF_MIN_MS)), "{crashes:?}");
        assert_eq!(crashes.0.len(), CRASHES_MAX);
    }
}
