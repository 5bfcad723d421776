//! Admission by huge pages (spec section 1.2, row 4c). They are reserved when the machine boots and
//! waiting does not add any, so that pods of the manifest folder are refused as well if the machine
//! could never hold them.

use std::collections::BTreeSet;

use super::Refused;
use super::pressure::is_static;
use crate::agent::Config;
use crate::agent::requests;
use crate::model::pod::{Pod, PodSpec};
use crate::model::quantity::Quantity;

const PREFIX: &str = "hugepages-";

/// Whether the pod requests more pages of some size than the others leave.
pub(super) fn too_many(pod: &Pod, others: &[&Pod], config: &Config) -> Option<Refused> {
    let others = if is_static(pod) { &[] } else { others };
    names(&pod.spec).into_iter().find_map(|name| {
        let requested = requests::of_pod(&pod.spec, name);
        let of_others = others.iter().map(|other| requests::of_pod(&other.spec, name));
        let used = of_others.fold(0, i64::saturating_add);
        let page: Option<Quantity> = name.strip_prefix(PREFIX).and_then(|size| size.parse().ok());
        let page_bytes = page.and_then(|page| u64::try_from(page.whole()).ok());
        let capacity = page_bytes.and_then(|bytes| config.machine.huge_pages.get(&bytes));
        let capacity = capacity.copied().unwrap_or(0);
        let after = u64::try_from(used.saturating_add(requested)).unwrap_or(0);
        (requested > 0 && after > capacity).then(|| Refused {
            reason: reason(name),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, \
                 capacity: {capacity}"
            ),
        })
    })
}

/// The page sizes that the pod requests.
fn names(spec: &PodSpec) -> BTreeSet<&str> {
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let each = containers.map(|container| &container.resources).chain([&spec.resources]);
    let keys = each.flat_map(|resources| resources.limits.keys().chain(resources.requests.keys()));
    keys.map(|key| &**key).filter(|key| key.starts_with(PREFIX)).collect()
}

/// The kubelet's reason. For sizes that no processor has, a general one.
fn reason(name: &str) -> &'static str {
    let known = REASONS.iter().find(|reason| reason.strip_prefix("OutOf") == Some(name));
    known.unwrap_or(&"UnexpectedAdmissionError")
}

const REASONS: [&str; 12] = [
    "OutOfhugepages-64Ki",
    "OutOfhugepages-512Ki",
    "OutOfhugepages-1Mi",
    "OutOfhugepages-2Mi",
    "OutOfhugepages-4Mi",
    "OutOfhugepages-8Mi",
    "OutOfhugepages-16Mi",
    "OutOfhugepages-32Mi",
    "OutOfhugepages-512Mi",
    "OutOfhugepages-1Gi",
    "OutOfhugepages-2Gi",
    "OutOfhugepages-16Gi",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Machine;

    fn pod(limits: &str, source: &str) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"annotations":{{"kubernetes.io/config.source":"{source}"}}}},
                 "spec":{{"containers":[{{"name":"c","resources":{{"limits":{{{limits}}}}}}}]}}}}"#
        );
        serde_json::from_str(&json).expect("a pod")
    }

    #[test]
    fn huge_pages_that_the_machine_lacks_are_refused_to_all() {
        let machine = Machine { huge_pages: [(2 << 20, 8 << 20)].into(), ..Machine::default() };
        let config = Config { machine, ..Config::default() };
        let other = pod(r#""hugepages-2Mi":"4Mi""#, "api");
        let short = |reason: &str, numbers: &str| {
            let name = &reason["OutOf".len()..];
            Some(format!("{reason}: Node didn't have enough resource: {name}, {numbers}"))
        };
        for (limits, source, want) in [
            ("", "api", None),
            (r#""hugepages-2Mi":"4Mi""#, "api", None),
            (
                r#""hugepages-2Mi":"6Mi""#,
                "api",
                short("OutOfhugepages-2Mi", "requested: 6291456, used: 4194304, capacity: 8388608"),
            ),
            (r#""hugepages-2Mi":"8Mi""#, "file", None),
            (
                r#""hugepages-2Mi":"10Mi""#,
                "file",
                short("OutOfhugepages-2Mi", "requested: 10485760, used: 0, capacity: 8388608"),
            ),
            (
                r#""hugepages-1Gi":"1Gi""#,
                "file",
                short("OutOfhugepages-1Gi", "requested: 1073741824, used: 0, capacity: 0"),
            ),
        ] {
            let refused = too_many(&pod(limits, source), &[&other], &config);
            let got = refused.map(|it| format!("{}: {}", it.reason, it.message));
            assert_eq!(got, want, "{limits} {source}");
        }
        let odd = too_many(&pod(r#""hugepages-3Mi":"3Mi""#, "api"), &[], &config);
        assert_eq!(odd.expect("nobody has them").reason, "UnexpectedAdmissionError");
    }
}
