//! Admission: whether a pod is valid, and whether it uses something that this agent does not
//! support.
//!
//! A pod that uses unsupported features is refused with all fields concerned, instead of running
//! without what its author relies on (spec section 14.6). Fields without effect at a node, or that
//! request what edged does anyway, are accepted. An unknown field is a typing error, or newer than
//! this agent: the pod runs and the field is reported once.
//!
//! Only the pod itself is checked; what depends on other pods is decided in `agent::pods`.

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
pub use host::{forbidden_sysctl, without_apparmor};
pub use node::misplaced;
pub use pressure::{EVICTABLE, is_critical, priority, under_pressure};
pub use room::without_room;

use super::Config;
pub use super::pod::Refused;
use crate::limits::ADMIT_NAMED_MAX;
use crate::model::manifest::Invalid;
use crate::model::pod::Pod;

/// Errors of Kubernetes' validation in the pod of a manifest, for any node.
pub fn invalid(pod: &Pod) -> Option<Invalid> {
    let problems = validate::problems(pod);
    let (path, _) = problems.first()?.split_once(": ")?;
    let path = path.to_owned();
    let all = list(problems.iter().map(String::as_str), "; ");
    let why = all[path.len() + 2..].to_owned();
    Some(Invalid { path, why, unknown: review(pod).unknown })
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

/// Reviews the pod.
pub fn review(pod: &Pod) -> Review {
    let problems = validate::problems(pod);
    let found = fields::check_unsupported(pod);
    let mut parts = Vec::new();
    if !problems.is_empty() {
        parts.push(list(problems.iter().map(String::as_str), "; "));
    }
    if found.foreign_os {
        // The kubelet's text, which tools match on.
        parts.push("Failed to admit pod as the OS field doesn't match node OS".to_owned());
    }
    let lacking: Vec<_> = found.volumes.iter().chain(&found.features).collect();
    if !lacking.is_empty() {
        let named = list(lacking.iter().map(|field| field.as_str()), ", ");
        parts.push(format!("not built into this edged: {named}"));
    }
    let reason = if !problems.is_empty() {
        "FailedValidation"
    } else if found.foreign_os {
        "PodOSNotSupported"
    } else if found.features.is_empty() {
        "UnsupportedVolumeType"
    } else {
        "UnsupportedFeature"
    };
    let message = parts.join("; ");
    let refused = (!parts.is_empty()).then_some(Refused { reason, message });
    let mut unknown = found.unknown;
    let more = unknown.len().saturating_sub(ADMIT_NAMED_MAX);
    if more > 0 {
        unknown.truncate(ADMIT_NAMED_MAX);
        unknown.push(format!("and {more} more"));
    }
    Review { refused, unknown }
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
        let feature = got(r#", "hostUsers": false"#, "web");
        assert_eq!(feature.reason, "UnsupportedFeature");
        assert_eq!(
            feature.message,
            "not built into this edged: spec.volumes[0].iscsi, \
             spec.hostUsers (got false, expected true)"
        );
        let windows = got(r#", "os": {"name": "windows"}, "hostUsers": false"#, "web");
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
