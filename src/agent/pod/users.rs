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

use super::{Pod, Uid};
use crate::limits::USERS_PER_POD;
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

    /// Ranges that nobody has, the lowest first.
    fn free<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> impl Iterator<Item = UserRange> {
        let taken = pods.flat_map(Pod::taken).chain(self.unclaimed.iter().copied());
        let mut taken: Vec<u32> = taken.map(|range| range.first).collect();
        taken.sort_unstable();
        let mut taken = taken.into_iter().peekable();
        // The first range is the host's own; the last id is no user.
        let all = (USERS_PER_POD..u32::MAX - USERS_PER_POD).step_by(USERS_PER_POD as usize);
        all.filter(move |first| {
            while taken.next_if(|it| it.saturating_add(USERS_PER_POD) <= *first).is_some() {}
            taken.peek().is_none_or(|it| first + USERS_PER_POD <= *it)
        })
        .map(|first| UserRange { first, count: USERS_PER_POD })
    }

    /// Gives a range to each pod that is to have one. Those that are not listed yet may have one in
    /// the runtime.
    pub fn lend(&self, pods: &mut Map<Uid, Box<Pod>>, unlisted: &BTreeSet<Uid>) {
        let lacks = |pod: &Pod| pod.lacks_users() && !unlisted.contains(pod.uid());
        let lacking = pods.values().filter(|pod| lacks(pod)).count();
        if lacking == 0 {
            return;
        }
        let free: Vec<_> = self.free(pods.values().map(|pod| &**pod)).take(lacking).collect();
        let lacking = pods.values_mut().filter(|pod| lacks(pod));
        for (pod, range) in lacking.zip(free) {
            pod.lent = Some(range);
        }
    }
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

    /// The first three free ranges, in ranges.
    fn free(taken: &[u32]) -> Vec<u32> {
        let mut users = LentUsers::default();
        for first in taken {
            users.add_unclaimed(&sandbox(*first));
        }
        let free = users.free(std::iter::empty()).take(3);
        free.map(|range| range.first / USERS_PER_POD).collect()
    }

    #[test]
    fn the_lowest_range_that_nobody_has_is_free() {
        const N: u32 = USERS_PER_POD;
        assert_eq!(free(&[]), [1, 2, 3]);
        assert_eq!(free(&[N, 2 * N, 4 * N]), [3, 5, 6]);
        assert_eq!(free(&[4 * N, N, N]), [2, 3, 5], "in any order, and twice");
        assert_eq!(free(&[2 * N - 1]), [3, 4, 5], "of another form: it takes part of two");
        assert_eq!(free(&[1]), [2, 3, 4]);
        // No range: nobody of these has users of its own.
        assert_eq!(free(&[0, u32::MAX]), [1, 2, 3]);
        let mut users = LentUsers::default();
        users.add_unclaimed(&sandbox(N));
        users.begin_list();
        assert_eq!(users.free(std::iter::empty()).next().map(|it| it.first), Some(N));
    }
}
