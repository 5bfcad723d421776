//! Admission: whether a pod is valid, and whether it uses something that this agent does not
//! support.
//!
//! A pod that uses unsupported features is refused with all fields concerned, instead of running
//! without what its author relies on (spec section 14.6). Fields without effect at a node, or that
//! request what edged does anyway, are accepted. An unknown field is a typing error, or newer than
//! this agent: the pod runs and the field is reported once.
//!
//! ```text
//!  the pod: metadata, names, resources, security ─▶ init containers ─▶ containers ─▶ fields of
//!      volumes ─▶ ephemeral containers ─▶ volumes and their mounts ─▶ Findings ─▶ Review
//! ```
//!
//! A pod is read once, in this order; for each part its untyped fields ([`fields`]), and then what
//! Kubernetes' validation says of it ([`validate`]).
//!
//! [`review_here`] adds what the node decides of the pod alone, and [`refusal_beside`] what depends
//! on the other pods; when each is asked is decided in `agent::pods`.

mod fields;
mod host;
mod node;
mod pages;
mod pressure;
mod probes;
mod room;
mod validate;
mod volumes;

pub use crate::model::names::is_subdomain;
use host::{forbidden_sysctl, without_apparmor};
use node::misplaced;
use pressure::under_pressure;
pub use pressure::{EVICTABLE, is_critical};
use room::without_room;

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::Config;
pub use super::pod::Refused;
use crate::limits::ADMIT_NAMED_MAX;
use crate::model::manifest::Invalid;
use crate::model::node::Pressure;
use crate::model::pod::Pod;

/// Errors of Kubernetes' validation in the pod of a manifest, for any node.
pub fn invalid(pod: &Pod) -> Option<Invalid> {
    let found = Findings::of(pod);
    let (path, _) = found.problems.first()?.split_once(": ")?;
    let path = path.to_owned();
    let all = list(found.problems.iter().map(String::as_str), "; ");
    let why = all[path.len() + 2..].to_owned();
    Some(Invalid { path, why, unknown: found.review().unknown })
}

/// The result of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Why the pod cannot run here.
    pub refused: Option<Refused>,
    /// Unknown fields, by their path.
    pub unknown: Vec<String>,
}

/// Why the pod cannot run at this node, whatever other pods it has.
pub fn refusal(pod: &Pod, config: &Config) -> Option<Refused> {
    let of_node = || forbidden_sysctl(pod, config).or_else(|| without_apparmor(pod, config));
    review(pod).refused.or_else(of_node)
}

/// Who has chosen this node for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedBy {
    /// A scheduler, by the labels of the node object, which users change in the cloud.
    Scheduler,
    /// Nobody: the pod's node selector and affinity have to fit.
    Node,
}

/// Reviews the pod for this node, before it is known which other pods run.
pub fn review_here(pod: &Pod, placed_by: PlacedBy, config: &Config) -> Review {
    let Review { refused, unknown } = review(pod);
    let misplaced = || match placed_by {
        PlacedBy::Scheduler => None,
        PlacedBy::Node => misplaced(pod, config),
    };
    let refused = refused.or_else(|| forbidden_sysctl(pod, config)).or_else(misplaced);
    Review { refused, unknown }
}

/// What a pod finds at this node that is to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// A running pod was admitted before.
    pub runs: bool,
    pub pressures: &'a BTreeSet<Pressure>,
    /// The other pods that are admitted.
    pub others: &'a [&'a Pod],
}

/// Why a reviewed pod cannot be admitted beside the others (spec section 1.2).
pub fn refusal_beside(pod: &Pod, at: Surroundings<'_>, config: &Config) -> Option<Refused> {
    let Surroundings { runs, pressures, others } = at;
    let under_pressure = if runs { None } else { under_pressure(pod, pressures) };
    under_pressure
        .or_else(|| without_room(pod, runs, others, config))
        .or_else(|| without_apparmor(pod, config))
}

/// Reviews the pod.
pub fn review(pod: &Pod) -> Review {
    Findings::of(pod).review()
}

/// What is found while a pod is read; each list in the order of the fields.
#[derive(Debug, Default)]
struct Findings {
    /// Errors of Kubernetes' validation: `spec.containers[0].name: Invalid value: "Web": …`.
    problems: Vec<String>,
    /// The paths of volume sources that are not built in, and of fields that need them.
    volumes: Vec<String>,
    /// The paths of other unsupported fields.
    features: Vec<String>,
    /// The paths of unknown fields.
    unknown: Vec<String>,
    /// `os.name` is not linux.
    foreign_os: bool,
}

impl Findings {
    /// Reads the pod once: itself, its containers, its volumes.
    fn of(pod: &Pod) -> Self {
        let spec = &*pod.spec;
        let mut found = Self::default();
        found.pod_fields(pod);
        found.pod(pod);
        let mut names = BTreeSet::new();
        for (path, container) in at("spec.initContainers", &spec.init_containers) {
            found.container_fields(&path, container);
            found.init_container(&path, container, spec, &mut names);
        }
        let mut host_ports = BTreeSet::new();
        for (path, container) in at("spec.containers", &spec.containers) {
            found.container_fields(&path, container);
            found.main_container(&path, container, spec, &mut names, &mut host_ports);
        }
        found.volume_fields(pod);
        found.ephemeral_containers(pod, &mut names);
        found.volumes(spec);
        found.misplaced_fields(spec);
        found
    }

    fn problem(&mut self, path: &str, problem: &str) {
        self.problems.push(format!("{path}: {problem}"));
    }

    fn invalid(&mut self, path: &str, got: impl Debug, expected: &str) {
        self.problems.push(format!("{path}: Invalid value: {got:?}: {expected}"));
    }

    fn review(self) -> Review {
        let Self { problems, volumes, features, mut unknown, foreign_os } = self;
        let mut parts = Vec::new();
        if !problems.is_empty() {
            parts.push(list(problems.iter().map(String::as_str), "; "));
        }
        if foreign_os {
            // The kubelet's text, which tools match on.
            parts.push("Failed to admit pod as the OS field doesn't match node OS".to_owned());
        }
        let lacking: Vec<_> = volumes.iter().chain(&features).collect();
        if !lacking.is_empty() {
            let named = list(lacking.iter().map(|field| field.as_str()), ", ");
            parts.push(format!("not built into this edged: {named}"));
        }
        let reason = if !problems.is_empty() {
            "FailedValidation"
        } else if foreign_os {
            "PodOSNotSupported"
        } else if features.is_empty() {
            "UnsupportedVolumeType"
        } else {
            "UnsupportedFeature"
        };
        let message = parts.join("; ");
        let refused = (!parts.is_empty()).then_some(Refused { reason, message });
        let more = unknown.len().saturating_sub(ADMIT_NAMED_MAX);
        if more > 0 {
            unknown.truncate(ADMIT_NAMED_MAX);
            unknown.push(format!("and {more} more"));
        }
        Review { refused, unknown }
    }
}

/// The items of a list, each with its path.
fn at<'a, T>(path: &'static str, all: &'a [T]) -> impl Iterator<Item = (String, &'a T)> {
    all.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

fn list<'a>(all: impl ExactSizeIterator<Item = &'a str>, between: &str) -> String {
    let more = all.len().saturating_sub(ADMIT_NAMED_MAX);
    let named: Vec<_> = all.take(ADMIT_NAMED_MAX).collect();
    let named = named.join(between);
    if more == 0 { named } else { format!("{named}{between}and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn pod(json: &str) -> Pod {
        serde_json::from_str(json).expect(json)
    }

    pub(super) fn problems(pod: &Pod) -> Vec<String> {
        Findings::of(pod).problems
    }

    #[test]
    fn a_pod_within_what_edged_does_passes() {
        let pod = pod(r#"{
            "metadata": {"name": "web", "namespace": "default", "uid": "0f3a-1",
                         "ownerReferences": [{"kind": "ReplicaSet"}]},
            "spec": {"schedulerName": "default-scheduler", "securityContext": {}, "volumes": [],
                     "tolerations": [{"operator": "Exists"}], "dnsPolicy": "ClusterFirst",
                     "containers": [{"name": "web", "image": "nginx", "lifecycle": null,
                                     "terminationMessagePath": "/dev/termination-log",
                                     "securityContext": {"privileged": false,
                                                         "capabilities": {"drop": []}}}]}
        }"#);
        assert_eq!(review(&pod), Review::default());
    }

    #[test]
    fn what_makes_a_pod_invalid_is_told_with_the_field() {
        let pod = pod(r#"{"metadata": {"name": "Web"}, "spec": {"containerz": []}}"#);
        let invalid = invalid(&pod).expect("a name in capitals, and no container");
        assert_eq!(invalid.path, "metadata.name");
        assert!(invalid.why.starts_with("Invalid value: \"Web\": "), "{invalid:?}");
        assert!(invalid.why.ends_with("; spec.containers: Required value"), "{invalid:?}");
        assert_eq!(invalid.unknown, ["spec.containerz"]);
    }

    #[test]
    fn a_refusal_names_everything_and_its_reason_is_the_gravest() {
        let text = |extra: &str, name: &str| {
            format!(
                r#"{{"metadata": {{"name": "{name}"}},
                     "spec": {{"volumes": [{{"name": "v", "iscsi": {{"lun": 1}}}}]{extra},
                               "containers": [{{"name": "c", "image": "i"}}]}}}}"#
            )
        };
        let got = |extra: &str, name: &str| review(&pod(&text(extra, name))).refused.expect(extra);
        let volume = got("", "web");
        assert_eq!(volume.reason, "UnsupportedVolumeType");
        assert_eq!(volume.message, "not built into this edged: spec.volumes[0].iscsi");
        let feature = got(r#", "hostnameOverride": "box""#, "web");
        assert_eq!(feature.reason, "UnsupportedFeature");
        assert_eq!(
            feature.message,
            "not built into this edged: spec.volumes[0].iscsi, spec.hostnameOverride"
        );
        let windows = got(r#", "os": {"name": "windows"}, "hostnameOverride": "box""#, "web");
        assert_eq!(windows.reason, "PodOSNotSupported");
        assert!(
            windows.message.starts_with(
                "Failed to admit pod as the OS field doesn't match node OS; not built"
            ),
            "{}",
            windows.message
        );
        let invalid = got("", "Web");
        assert_eq!(invalid.reason, "FailedValidation");
        assert!(invalid.message.contains("metadata.name: Invalid value: \"Web\""), "{invalid:?}");
        assert!(invalid.message.contains("spec.volumes[0].iscsi"), "{invalid:?}");
    }

    #[test]
    fn long_lists_of_complaints_are_cut() {
        let volumes = (0..100)
            .map(|n| format!(r#"{{"name": "v{n}", "iscsi": {{}}}}"#))
            .collect::<Vec<_>>()
            .join(",");
        let junk: Vec<_> = (0..100).map(|n| format!(r#""junk{n}": 1"#)).collect();
        let pod = pod(&format!(
            r#"{{"metadata": {{"name": "a"}},
                 "spec": {{"volumes": [{volumes}], {},
                           "containers": [{{"name": "c", "image": "i"}}]}}}}"#,
            junk.join(",")
        ));
        let review = review(&pod);
        assert_eq!(review.unknown.len(), ADMIT_NAMED_MAX + 1);
        assert_eq!(review.unknown.last().map(String::as_str), Some("and 68 more"));
        let message = review.refused.expect("volumes").message;
        assert!(message.ends_with("spec.volumes[31].iscsi, and 68 more"), "{message}");
    }
}
