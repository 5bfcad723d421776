//! The users of pods with users of their own (`hostUsers: false`): each such pod has a range of the
//! host's ids that no other pod has, so that what breaks out of one has no rights in another.
//!
//! Files in volumes keep their owners: the runtime maps them (`Mount.uidMappings`). So a range
//! belongs to the sandbox and not to the pod, and is not stored: the annotation of a sandbox tells
//! which one it has, which counts also where another one was lent since: a call of an agent that
//! has ended may still take effect. A pod that starts gets the lowest range that no pod in the
//! runtime has.
//! Differs from the kubelet, which keeps it in a file `userns` of the pod's folder.

use std::collections::BTreeSet;

use super::{Pod, Uid, hash};
use crate::limits::{USER_RANGES, USERS_PER_POD};
use crate::model::cri::{Sandbox, UserRange};
use crate::model::map::Map;

/// Who has which range.
#[derive(Debug, Default)]
pub struct LentUsers {
    /// Of sandboxes whose pods are not known.
    unclaimed: Vec<UserRange>,
}

/// The range that a sandbox has.
pub(super) fn lent_to(sandbox: &Sandbox) -> Option<UserRange> {
    let first = sandbox.first_user?;
    // A range of another form was not lent here, but it is taken all the same.
    let is_range = first > 0 && first.checked_add(USERS_PER_POD).is_some();
    is_range.then_some(UserRange { first, count: USERS_PER_POD })
}

impl LentUsers {
    /// A list of the runtime begins.
    pub fn begin_list(&mut self) {
        self.unclaimed.clear();
    }

    /// A listed sandbox is of a pod that is not known.
    pub fn add_unclaimed(&mut self, sandbox: &Sandbox) {
        self.unclaimed.extend(lent_to(sandbox));
    }

    /// The numbers of the ranges that somebody has, or has a part of.
    fn taken<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> Vec<u32> {
        let all = pods.flat_map(Pod::taken).chain(self.unclaimed.iter().copied());
        let ends = all.flat_map(|UserRange { first, count }| [first, first + (count - 1)]);
        ends.map(|id| id / USERS_PER_POD).collect()
    }

    /// Gives a range to each pod that is to have one. Those that are not listed yet may have one in
    /// the runtime.
    pub fn lend(&self, pods: &mut Map<Uid, Box<Pod>>, unlisted: &BTreeSet<Uid>) {
        let lacks = |pod: &Pod| pod.lacks_users() && !unlisted.contains(pod.uid());
        if !pods.values().any(|pod| lacks(pod)) {
            return;
        }
        let mut taken = self.taken(pods.values().map(|pod| &**pod));
        for pod in pods.values_mut().filter(|pod| lacks(pod)) {
            if let Some(number) = free(hash::of_uid(pod.uid()), &taken) {
                pod.lent = Some(UserRange { first: number * USERS_PER_POD, count: USERS_PER_POD });
                taken.push(number);
            }
        }
    }
}

/// The number of the first free range from this place on. The first range of all is the host's own.
fn free(from: u32, taken: &[u32]) -> Option<u32> {
    let mut all = (0..USER_RANGES).map(|at| 1 + (from % USER_RANGES + at) % USER_RANGES);
    all.find(|number| !taken.contains(number))
}

impl Pod {
    /// The users that its newest sandbox has, or else that its next one is to have.
    pub(super) fn users(&self) -> Option<UserRange> {
        let newest = self.observed.sandbox().and_then(|sandbox| sandbox.users);
        newest.or(self.lent).filter(|_| self.api.spec.has_users())
    }

    fn taken(&self) -> impl Iterator<Item = UserRange> {
        self.observed.sandboxes.iter().filter_map(|sandbox| sandbox.users).chain(self.lent)
    }

    fn lacks_users(&self) -> bool {
        self.api.spec.has_users() && self.users().is_none() && self.is_active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cri::SandboxId;

    fn sandbox(first_user: u32) -> Sandbox {
        Sandbox {
            id: SandboxId("a".into()),
            pod: None,
            attempt: 0,
            ready: true,
            created_at: 0,
            source: None,
            seen_at: None,
            first_user: Some(first_user),
        }
    }

    fn taken(firsts: &[u32]) -> Vec<u32> {
        let mut users = LentUsers::default();
        for first in firsts {
            users.add_unclaimed(&sandbox(*first));
        }
        users.taken(std::iter::empty())
    }

    #[test]
    fn what_somebody_has_is_taken_also_in_part() {
        const N: u32 = USERS_PER_POD;
        assert_eq!(taken(&[4 * N, N]), [4, 4, 1, 1]);
        assert_eq!(taken(&[2 * N - 1]), [1, 2], "of another form: it takes part of two");
        assert_eq!(taken(&[1]), [0, 1]);
        // No range: nobody of these has users of its own.
        assert_eq!(taken(&[0, u32::MAX]), [0; 0]);
        assert_eq!(taken(&[u32::MAX - N]), [u32::MAX / N - 1, u32::MAX / N]);
        let mut users = LentUsers::default();
        users.add_unclaimed(&sandbox(N));
        users.begin_list();
        assert_eq!(users.taken(std::iter::empty()), [0; 0]);
    }

    #[test]
    fn the_first_free_range_from_a_place_on_is_lent() {
        const LAST: u32 = USER_RANGES;
        assert_eq!(free(0, &[]), Some(1), "the first range of all is the host's own");
        assert_eq!(free(6, &[]), Some(7));
        assert_eq!(free(6, &[8, 7, 10]), Some(9));
        assert_eq!(free(LAST - 1, &[]), Some(LAST));
        assert_eq!(free(LAST - 1, &[LAST, 1]), Some(2), "after the last comes the first");
        assert_eq!(free(LAST, &[]), Some(1));
        assert!(free(u32::MAX, &[]).is_some_and(|number| (1..=LAST).contains(&number)));
        let all: Vec<u32> = (1..=LAST).collect();
        assert_eq!(free(7, &all), None);
        assert_eq!(free(7, &all[1..]), Some(1));
        // No id of a range is negative to who keeps it as a signed number.
        assert!(i32::try_from((LAST + 1) * USERS_PER_POD - 1).is_ok());
        assert!(i32::try_from((LAST + 2) * USERS_PER_POD - 1).is_err());
    }
}
