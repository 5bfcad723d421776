//! Objects that the runtime says are gone: a removal of them succeeded, or a call about them was
//! answered by NotFound. Where a list names one all the same, to believe it would mean to ask for
//! the same again at once, and for ever. It is left out of the lists then, for ever longer, and
//! asked about once after each of these times.
//!
//! Not persistent: the next life asks once more.

use std::collections::BTreeMap;

use super::event::{Action, Out, Severity};
use super::pleg::List;
use super::time::{Backoff, Now};
use crate::limits::{REMOVED_RETRY_MAX_MS, RETRY_MIN_MS};
use crate::model::cri::PodRef;

/// The book of them. As long as the runtime's lists, and what was answered since the last one.
#[derive(Debug, Default)]
pub struct Removed(BTreeMap<Box<str>, One>);

#[derive(Debug)]
struct One {
    /// Lists with this serial number and below are too old to say anything of it (rule R3).
    answered_at: u64,
    /// The last list that named it.
    named_by: u64,
    /// No list has come since it was answered.
    is_new: bool,
    /// Times that a list named it though it was gone.
    backoff: Backoff,
}

impl Removed {
    /// The runtime says that this sandbox or container is gone. `looks_begun`: so far.
    pub fn answered(&mut self, id: Box<str>, looks_begun: u64) {
        let one = self.0.entry(id).or_insert_with(|| One {
            answered_at: 0,
            named_by: 0,
            is_new: true,
            backoff: Backoff::default(),
        });
        (one.answered_at, one.is_new) = (looks_begun, true);
    }

    /// The runtime is back, and may be another.
    pub fn up(&mut self) {
        self.0.clear();
    }

    /// How many the runtime lists though they are gone.
    pub fn listed(&self) -> u64 {
        self.0.values().filter(|one| one.backoff.delay_ms() > 0).count() as u64
    }

    /// Leaves out of the list what is gone and not to be asked about yet, and says so once of each.
    pub fn sift(&mut self, now: Now, list: &mut List, out: &mut Out) {
        if self.0.is_empty() {
            return;
        }
        let serial = list.serial;
        let mut stays = |id: &str, what: &str, pod: Option<&PodRef>| {
            let Some(one) = self.0.get_mut(id) else { return true };
            one.named_by = serial;
            if one.answered_at >= serial {
                return true;
            }
            if std::mem::take(&mut one.is_new) {
                if one.backoff.delay_ms() == 0 {
                    let pod = pod.map(|it| format!("{}/{}", it.namespace, it.name));
                    let line = format!(
                        "pod={} {what}={id}: the runtime says that it is gone, and lists it: it is \
                         asked ever more rarely",
                        pod.unwrap_or_default()
                    );
                    out.push(Action::Log(Severity::Warn, line));
                }
                one.backoff.retry_at(now.boot, RETRY_MIN_MS, REMOVED_RETRY_MAX_MS);
            }
            one.backoff.over_at() <= now.boot
        };
        list.sandboxes.retain(|it| stays(&it.id.0, "sandbox", it.pod.as_ref()));
        list.containers.retain(|it| stays(&it.id.0, "container", it.pod.as_ref()));
        self.0.retain(|_, one| one.answered_at >= serial || one.named_by == serial);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::time::Instant;
    use crate::model::cri::{Sandbox, SandboxId};

    fn named(serial: u64) -> List {
        let id = SandboxId("s".into());
        let pod = Some(PodRef::default());
        let sandbox = Sandbox {
            id,
            pod,
            attempt: 0,
            ready: false,
            created_at: 0,
            source: None,
            seen_at: None,
        };
        List { serial, sandboxes: vec![Arc::new(sandbox)], containers: Vec::new() }
    }

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let (mut removed, mut out) = (Removed::default(), Out::default());
        let mut now = Now { boot: Instant(0), wall: None };
        let mut wait_ms = RETRY_MIN_MS;
        for serial in 1..30 {
            removed.answered("s".into(), serial - 1);
            let mut shows = |removed: &mut Removed, now| {
                let mut list = named(serial);
                removed.sift(now, &mut list, &mut out);
                !list.sandboxes.is_empty()
            };
            assert!(!shows(&mut removed, now), "{serial}");
            now.boot = now.boot.plus_ms(wait_ms - 1);
            assert!(!shows(&mut removed, now), "{serial}: not before {wait_ms} ms");
            now.boot = now.boot.plus_ms(1);
            assert!(shows(&mut removed, now), "{serial}: after {wait_ms} ms");
            wait_ms = (2 * wait_ms).min(REMOVED_RETRY_MAX_MS);
        }
        assert_eq!(wait_ms, REMOVED_RETRY_MAX_MS);
    }
}
