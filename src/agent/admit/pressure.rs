//! Admission and eviction under pressure: which pods are refused, and which are never evicted (spec
//! sections 1.2, row 1, and 9.4).
//!
//! Pods of the manifest folder are static: a kubelet never evicts them, and admits them under any
//! pressure. On a gateway without other pods, then no pod could be evicted; the annotation
//! [`EVICTABLE`] in a manifest treats its pod like other pods.

use std::collections::BTreeSet;

use super::Refused;
use crate::agent::pod::qos_class;
use crate::model::node::Pressure;
use crate::model::pod::{MIRROR, Pod, SOURCE};
use crate::model::status::QosClass;

/// `"true"`: the pod may be evicted although it is static. An annotation of edged.
pub const EVICTABLE: &str = "edged.io/evictable";
/// `SystemCriticalPriority`
const CRITICAL: i64 = 2_000_000_000;

/// Whether the pod is critical: static, mirror, or with a system priority.
pub fn is_critical(pod: &Pod) -> bool {
    let evictable = pod.metadata.annotations.get(EVICTABLE).is_some_and(|value| value == "true");
    pod.spec.priority() >= CRITICAL || (!evictable && is_static(pod))
}

/// Whether the pod is static: no API server has placed it, or it is the mirror of a static pod.
pub(super) fn is_static(pod: &Pod) -> bool {
    let annotations = &pod.metadata.annotations;
    let from_elsewhere = annotations.get(SOURCE).is_some_and(|source| source != "api");
    from_elsewhere || annotations.contains_key(MIRROR)
}

/// Why a node with these pressures does not admit the pod.
pub(super) fn under_pressure(pod: &Pod, pressures: &BTreeSet<Pressure>) -> Option<Refused> {
    if pressures.is_empty() || is_critical(pod) {
        return None;
    }
    if pressures.iter().eq([&Pressure::Memory]) {
        let best_effort = qos_class(&pod.spec) == QosClass::BestEffort;
        if !best_effort || tolerates(pod, "node.kubernetes.io/memory-pressure", "NoSchedule") {
            return None;
        }
    }
    let conditions: Vec<&str> = pressures.iter().map(|pressure| pressure.kind()).collect();
    let message = format!("The node had condition: [{}]. ", conditions.join(" "));
    Some(Refused { reason: "Evicted", message })
}

/// Whether a toleration of the pod matches a taint without a value (core/v1 `Toleration`).
fn tolerates(pod: &Pod, key: &str, effect: &str) -> bool {
    pod.spec.tolerations().any(|of| {
        let effects = ["", effect].contains(&of.effect);
        let keys = ["", key].contains(&of.key);
        match of.operator {
            "Exists" => effects && keys,
            "" | "Equal" => effects && of.key == key && of.value.is_empty(),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pressure::{Disk, Memory, Pid};

    fn refusal(metadata: &str, spec: &str, pressures: &[Pressure]) -> Option<String> {
        let json = format!(r#"{{"metadata":{{{metadata}}},"spec":{{{spec}}}}}"#);
        let pod: Pod = serde_json::from_str(&json).expect("a pod");
        let refused = under_pressure(&pod, &pressures.iter().copied().collect())?;
        assert_eq!(refused.reason, "Evicted");
        Some(refused.message)
    }

    #[test]
    fn under_pressure_only_critical_or_harmless_pods_are_admitted() {
        let burstable = r#""containers":[{"resources":{"requests":{"memory":"1Mi"}}}]"#;
        let tolerant = |operator: &str, effect: &str| {
            format!(
                r#""tolerations":[{{"key":"node.kubernetes.io/memory-pressure",
                    "operator":"{operator}","effect":"{effect}"}}]"#
            )
        };
        let note = |key: &str, value: &str| format!(r#""annotations":{{"{key}":"{value}"}}"#);
        let file = note(SOURCE, "file");
        let low = |names: &str| Some(format!("The node had condition: [{names}]. "));
        for (metadata, spec, pressures, want) in [
            ("", "", &[][..], None),
            ("", "", &[Memory], low("MemoryPressure")),
            ("", burstable, &[Memory], None),
            ("", &tolerant("Exists", "NoSchedule"), &[Memory], None),
            ("", &tolerant("Equal", ""), &[Memory], None),
            ("", &tolerant("Exists", "NoExecute"), &[Memory], low("MemoryPressure")),
            ("", r#""tolerations":[{"operator":"Exists"}]"#, &[Memory], None),
            ("", burstable, &[Disk], low("DiskPressure")),
            ("", burstable, &[Memory, Disk, Pid], low("MemoryPressure DiskPressure PIDPressure")),
            ("", r#""priority":1999999999"#, &[Disk], low("DiskPressure")),
            ("", r#""priority":2000000000"#, &[Disk], None),
            (&file, "", &[Disk], None),
            (&note(SOURCE, "api"), "", &[Disk], low("DiskPressure")),
            (&note(MIRROR, "x"), "", &[Disk], None),
            (&note(EVICTABLE, "true"), "", &[Disk], low("DiskPressure")),
        ] {
            assert_eq!(refusal(metadata, spec, pressures), want, "{metadata} {spec} {pressures:?}");
        }
        let both = format!(r#""annotations":{{"{SOURCE}":"file","{EVICTABLE}":"true"}}"#);
        assert_eq!(refusal(&both, "", &[Disk]), low("DiskPressure"));
        assert_eq!(refusal(&both, r#""priority":2000000000"#, &[Disk]), None);
    }
}
