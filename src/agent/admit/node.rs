//! Admission by node: the pod's node selector and required node affinity against the node's labels
//! (spec section 1.2, rows 4a and 4d).

use super::Refused;
use crate::agent::Config;
use crate::agent::node::{labels, selects, selects_node};
use crate::model::pod::Pod;

/// Why the pod is for other nodes.
pub(super) fn misplaced(pod: &Pod, config: &Config) -> Option<Refused> {
    let os = pod.metadata.labels.get("kubernetes.io/os");
    if os.is_some_and(|os| os != "linux") {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        let reason = "PodOSSelectorNodeLabelDoesNotMatch";
        return Some(Refused { reason, message: message.to_owned() });
    }
    let required = pod.spec.required_nodes();
    let likes = required.is_none_or(|terms| selects_node(&terms, config));
    (!selects(&pod.spec, config) || !likes).then(|| Refused {
        reason: "NodeAffinity",
        message: format!(
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector; \
             this node has {}",
            labels(config)
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &str) -> Option<&'static str> {
        let pod: Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).expect("a pod");
        let config = Config {
            node_name: "gw".to_owned(),
            node_labels: [("site".to_owned(), "north".to_owned())].into(),
            ..Config::default()
        };
        misplaced(&pod, &config).map(|refused| refused.reason)
    }

    fn affinity(terms: &str) -> String {
        format!(
            r#"{{"affinity":{{"nodeAffinity":{{
                "requiredDuringSchedulingIgnoredDuringExecution":{{
                    "nodeSelectorTerms":[{terms}]}}}}}}}}"#
        )
    }

    #[test]
    fn a_selector_has_to_fit_the_node() {
        for (selector, reason) in [
            ("{}", None),
            ("null", None),
            ("[]", Some("NodeAffinity")),
            (r#"{"kubernetes.io/os":"linux","kubernetes.io/hostname":"gw"}"#, None),
            (r#"{"node-role.kubernetes.io/edge":""}"#, None),
            (r#"{"kubernetes.io/hostname":"other"}"#, Some("NodeAffinity")),
            (r#"{"site":"north"}"#, None),
            (r#"{"site":"south"}"#, Some("NodeAffinity")),
            (r#"{"disk":"ssd"}"#, Some("NodeAffinity")),
            (r#"{"kubernetes.io/os":1}"#, Some("NodeAffinity")),
        ] {
            let spec = format!(r#"{{"nodeSelector":{selector}}}"#);
            assert_eq!(refusal(&spec), reason, "{selector}");
        }
    }

    #[test]
    fn one_term_of_the_required_affinity_has_to_fit() {
        let expression = |operator: &str, key: &str, values: &str| {
            format!(
                r#"{{"matchExpressions":[
                    {{"key":"{key}","operator":"{operator}","values":[{values}]}}]}}"#
            )
        };
        let on = |key: &str| format!("kubernetes.io/{key}");
        for (term, fits) in [
            (expression("In", &on("os"), r#""linux","windows""#), true),
            (expression("In", &on("os"), r#""windows""#), false),
            (expression("NotIn", &on("os"), r#""windows""#), true),
            (expression("NotIn", &on("os"), r#""linux""#), false),
            (expression("Exists", &on("os"), ""), true),
            (expression("Exists", "disk", ""), false),
            (expression("DoesNotExist", "disk", ""), true),
            (expression("Gt", "disk", r#""1""#), false),
            (expression("Lt", "disk", r#""1""#), false),
            (expression("Near", &on("os"), ""), false),
            ("{}".to_owned(), false),
        ] {
            assert_eq!(refusal(&affinity(&term)).is_none(), fits, "{term}");
            let either = format!("{term},{}", expression("Exists", &on("os"), ""));
            assert_eq!(refusal(&affinity(&either)), None, "{either}");
        }
        let field = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["gw"]}]}"#;
        assert_eq!(refusal(&affinity(field)), None);
        assert_eq!(refusal(&affinity(&field.replace("gw", "x"))), Some("NodeAffinity"));
    }

    #[test]
    fn a_pod_for_another_system_is_refused() {
        let json = r#"{"metadata":{"labels":{"kubernetes.io/os":"windows"}}}"#;
        let pod: Pod = serde_json::from_str(json).expect("a pod");
        let reason = misplaced(&pod, &Config::default()).map(|refused| refused.reason);
        assert_eq!(reason, Some("PodOSSelectorNodeLabelDoesNotMatch"));
    }
}
