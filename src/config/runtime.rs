//! Which container runtime the agent uses where neither edgecore.yaml nor a flag names one.
//!
//! ```text
//!  the built-in one has pods ─▶ a socket is there ─▶ containerd has pods ─▶ the built-in one
//!                                                                            ─▶ containerd
//! ```
//!
//! The first that applies; what is not built in is left out. Pods do not move between runtimes, so
//! the one that has them stays: another that is installed later changes nothing, and containerd may
//! start after the agent. [`edged runtime --choose`](crate::cli) prints the choice for `edged-run`,
//! which starts the server of the built-in runtime.

use crate::model::endpoint::{self, RuntimeEndpoint};

/// Where containerd listens unless it is configured otherwise, and CRI-O.
pub(super) const OTHERS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];
/// containerd's CRI has a folder for each of its sandboxes there, also after a reboot.
pub(super) const CONTAINERD_PODS: &str = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";

/// What decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub builtin_has_pods: bool,
    pub containerd_has_pods: bool,
    /// The first of [`OTHERS`] that is there.
    pub other: Option<&'static str>,
}

impl Seen {
    /// The runtime, and why it is this one.
    pub fn choose(self) -> (RuntimeEndpoint, &'static str) {
        let builtin = RuntimeEndpoint::ttrpc(endpoint::BUILTIN.to_owned());
        let containerd = RuntimeEndpoint::grpc(OTHERS[0]);
        match (builtin, self.other) {
            (Some(builtin), _) if self.builtin_has_pods => (builtin, "it has pods"),
            (_, Some(socket)) => (RuntimeEndpoint::grpc(socket), "its socket is there"),
            (_, None) if self.containerd_has_pods => (containerd, "it has pods"),
            (Some(builtin), None) => (builtin, "no socket of containerd or CRI-O is there"),
            (None, None) => (containerd, "none is built in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_that_has_pods_stays_whatever_else_is_installed() {
        let [containerd, crio] = OTHERS;
        let builtin = if cfg!(feature = "runtime") { endpoint::BUILTIN } else { containerd };
        let seen = |builtin_has_pods, containerd_has_pods, other| Seen {
            builtin_has_pods,
            containerd_has_pods,
            other,
        };
        for (seen, expected) in [
            (seen(false, false, None), builtin),
            (seen(false, false, Some(crio)), crio),
            (seen(false, false, Some(containerd)), containerd),
            (seen(false, true, None), containerd),
            (seen(false, true, Some(crio)), crio),
            (seen(true, false, None), builtin),
            (seen(true, true, Some(containerd)), builtin),
            (seen(true, true, None), builtin),
        ] {
            let (chosen, reason) = seen.choose();
            assert_eq!(chosen.socket, expected, "{seen:?}: {reason}");
            assert_eq!(chosen.to_string().starts_with("ttrpc:"), expected == endpoint::BUILTIN);
        }
    }
}
