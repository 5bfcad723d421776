//! Objects that the runtime reports as gone but still lists: their removal succeeded, or a call
//! about them was answered by NotFound. Applying such a list would repeat the same request at once,
//! and for ever. So the object is left out of the lists, each time for longer, and requested once
//! after each of these times.
//!
//! Not persistent: after a restart the request is made once more.

use super::event::{Action, Out, Severity};
use super::pleg::List;
use super::time::{Backoff, Now};
use crate::limits::{REMOVED_RETRY_MAX_MS, RETRY_MIN_MS};
use crate::model::cri::PodRef;
use crate::model::map::Map;

/// All of them. Bounded by the runtime's lists, plus the answers since the last one.
#[derive(Debug, Default)]
pub struct Removed(Map<Box<str>, Entry>);

#[derive(Debug)]
struct Entry {
    /// Lists with this serial number or a smaller one are too old to count (rule R3).
    answered_at: u64,
    /// The last list that contained it.
    named_by: u64,
    /// No list has come since it was answered.
    is_new: bool,
    /// How often a list contained it although it was gone.
    backoff: Backoff,
}

impl Removed {
    /// The runtime reports this sandbox or container as gone. `relists_begun`: so far.
    pub fn answered(&mut self, id: Box<str>, relists_begun: u64) {
        let entry = self.0.entry(id).or_insert_with(|| Entry {
            answered_at: 0,
            named_by: 0,
            is_new: true,
            backoff: Backoff::default(),
        });
        (entry.answered_at, entry.is_new) = (relists_begun, true);
    }

    /// The runtime is back, and may be another.
    pub fn up(&mut self) {
        self.0.clear();
    }

    /// How many objects the runtime lists although they are gone.
    pub fn listed(&self) -> u64 {
        self.0.values().filter(|entry| entry.backoff.delay_ms() > 0).count() as u64
    }

    /// Removes from the list what is gone and not to be requested yet, and logs each object once.
    pub fn filter(&mut self, now: Now, list: &mut List, out: &mut Out) {
        if self.0.is_empty() {
            return;
        }
        let serial = list.serial;
        let mut stays = |id: &str, what: &str, pod: Option<&PodRef>| {
            let Some(entry) = self.0.get_mut(id) else { return true };
            entry.named_by = serial;
            if entry.answered_at >= serial {
                return true;
            }
            if std::mem::take(&mut entry.is_new) {
                if entry.backoff.delay_ms() == 0 {
                    let pod = pod.map(|it| format!("{}/{}", it.namespace, it.name));
                    let line = format!(
                        "pod={} {what}={id}: the runtime reports that it is gone, but still lists \
                         it: retried less and less often",
                        pod.unwrap_or_default()
                    );
                    out.push(Action::Log(Severity::Warn, line));
                }
                entry.backoff.retry_at(now.boot, RETRY_MIN_MS, REMOVED_RETRY_MAX_MS);
            }
            entry.backoff.over_at() <= now.boot
        };
        list.sandboxes.retain(|it| stays(&it.id.0, "sandbox", it.pod.as_ref()));
        list.containers.retain(|it| stays(&it.id.0, "container", it.pod.as_ref()));
        self.0.retain(|_, entry| entry.answered_at >= serial || entry.named_by == serial);
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
            first_user: None,
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
                removed.filter(now, &mut list, &mut out);
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
