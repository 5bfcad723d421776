//! Images: when one is pulled, with which credentials, and how many in parallel.
//!
//! A single pull is handled by the pod (`pod/image.rs`); this module has what they share. Not
//! persistent: the runtime keeps the images, and back-offs start again after a crash.

use super::objects::Objects;
use super::rate::Rate;
use super::time::Now;
use crate::model::cri::Auth;
use crate::model::image::{self, ImageName};
#[cfg(feature = "node-jobs")]
use crate::model::keyring;
use crate::model::keyring::Keyring;
#[cfg(feature = "node-jobs")]
use crate::model::object::Secret;
use crate::model::pod::{Pod, PullPolicy};

/// The settings of pulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `serializeImagePulls` is 1, else `maxParallelImagePulls`; at most
    /// [`crate::limits::PULL_CALLS_MAX`].
    pub parallel_max: usize,
    /// Pulls per second in the long run (`registryPullQPS`); 0: no limit.
    pub per_second: u32,
    /// Pulls at once after a quiet time (`registryBurst`).
    pub burst: u32,
}

impl Default for Settings {
    /// The kubelet's defaults.
    fn default() -> Self {
        Self { parallel_max: 1, per_second: 5, burst: 10 }
    }
}

/// What the pulls of all pods share.
#[derive(Debug)]
pub struct Images {
    /// `registryPullQPS` and `registryBurst`. A pull beyond the limit is not delayed but fails, as
    /// in the kubelet: its pod has a back-off of its own.
    budget: Rate,
    node: Keyring,
}

/// The credentials of a pull, tried one after another until one is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Never empty: without credentials, `None` is the only candidate.
    pub auths: Vec<Option<Auth>>,
    /// Names of secrets that the pod refers to and that do not exist.
    pub missing: Vec<String>,
}

impl Images {
    /// Nothing pulled yet, and no credentials of the node.
    pub fn new(settings: Settings, now: Now) -> Self {
        let budget = Rate::new(settings.per_second, settings.burst, now.boot);
        Self { budget, node: Keyring::default() }
    }

    /// Sets the node's own credentials, as its files contain them now.
    pub fn take_node(&mut self, keyring: Keyring) {
        self.node = keyring;
    }

    /// Takes one pull from the budget, if there is one.
    pub fn may_pull(&mut self, now: Now) -> bool {
        let granted = self.budget.has(now.boot);
        if granted {
            self.budget.take(now.boot);
        }
        granted
    }

    /// The credentials for the pod's image, in order: those of its secrets, then the node's (spec
    /// section 3.6). Fails if a secret cannot be read, as the kubelet's pull does.
    pub fn candidates(
        &self,
        pod: &Pod,
        image: &str,
        objects: &Objects,
    ) -> Result<Candidates, String> {
        let mut own = Keyring::default();
        let mut missing = Vec::new();
        let named = pod.spec.image_pull_secrets.iter().map(|secret| &secret.name);
        for name in named.filter(|name| !name.is_empty()) {
            match objects.secret(&pod.metadata.namespace, name) {
                Some(secret) => own.add_secret(secret).map_err(|wrong| wrong.to_string())?,
                None => missing.push(name.clone()),
            }
        }
        Ok(Candidates { auths: self.auths(&own, image)?, missing })
    }

    /// The same for the image of a job, which names one secret.
    #[cfg(feature = "node-jobs")]
    pub fn candidates_by(
        &self,
        secret: Option<&Secret>,
        image: &str,
    ) -> Result<Vec<Option<Auth>>, String> {
        let mut own = Keyring::default();
        let Some(secret) = secret else { return self.auths(&own, image) };
        if let Some(auth) = keyring::flat(secret) {
            return Ok(vec![Some(auth)]);
        }
        own.add_secret(secret).map_err(|wrong| wrong.to_string())?;
        self.auths(&own, image)
    }

    /// Never empty.
    fn auths(&self, own: &Keyring, image: &str) -> Result<Vec<Option<Auth>>, String> {
        let repository =
            ImageName::parse(image).map_err(|invalid| invalid.to_string())?.repository();
        let found = own.find(&repository).chain(self.node.find(&repository));
        let mut auths: Vec<Option<Auth>> = found.cloned().map(Some).collect();
        if auths.is_empty() {
            auths.push(None);
        }
        Ok(auths)
    }
}

/// The pull policy in force: the written one, or by the tag (spec section 3.6).
pub fn pull_policy(written: Option<PullPolicy>, name: &str) -> PullPolicy {
    let latest = name.ends_with(":latest") || !image::has_tag(name);
    written.unwrap_or(if latest { PullPolicy::Always } else { PullPolicy::IfNotPresent })
}

/// The errors of several tries as one, joined as by the kubelet.
pub fn joined(errors: &[String]) -> String {
    let mut different: Vec<&str> = Vec::new();
    for error in errors {
        if !different.contains(&&**error) {
            different.push(error);
        }
    }
    match different[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", different.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::time::Instant;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: None }
    }

    fn granted(images: &mut Images, at_ms: u64) -> usize {
        (0..100).filter(|_| images.may_pull(at(at_ms))).count()
    }

    #[test]
    fn a_burst_then_the_long_run_rate() {
        let settings = Settings { parallel_max: 1, per_second: 5, burst: 10 };
        let mut images = Images::new(settings, at(0));
        assert_eq!(granted(&mut images, 0), 10);
        assert_eq!(granted(&mut images, 199), 0);
        assert_eq!(granted(&mut images, 200), 1);
        assert_eq!(granted(&mut images, 1_200), 5);
        assert_eq!(granted(&mut images, 3_600_000), 10, "never more than the burst");
        let mut unbounded = Images::new(Settings { per_second: 0, ..settings }, at(0));
        assert_eq!(granted(&mut unbounded, 0), 100);
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("busybox", PullPolicy::Always),
            ("busybox:latest", PullPolicy::Always),
            ("busybox:1.36", PullPolicy::IfNotPresent),
            ("localhost:5000/busybox", PullPolicy::Always),
            ("localhost:5000/busybox:1", PullPolicy::IfNotPresent),
            ("busybox@sha256:00", PullPolicy::IfNotPresent),
        ] {
            assert_eq!(pull_policy(None, image), policy, "{image}");
            assert_eq!(pull_policy(Some(PullPolicy::Never), image), PullPolicy::Never);
        }
    }

    #[test]
    fn several_errors_are_one_text_and_repeats_are_told_once() {
        let errors = |all: &[&str]| all.iter().map(|only| (*only).to_owned()).collect::<Vec<_>>();
        assert_eq!(joined(&errors(&["a"])), "a");
        assert_eq!(joined(&errors(&["a", "a"])), "a");
        assert_eq!(joined(&errors(&["a", "b", "a"])), "[a, b]");
    }
}
