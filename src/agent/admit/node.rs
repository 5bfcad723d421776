//! Admission by node: the pod's node selector and required node affinity against the node's labels
//! (spec section 1.2, rows 4a and 4d).

use serde_json::Value;

use super::Refused;
use crate::agent::Config;
use crate::model::pod::Pod;

/// Why the pod is for other nodes.
pub fn misplaced(pod: &Pod, config: &Config) -> Option<Refused> {
    let os = pod.metadata.labels.get("kubernetes.io/os");
    if os.is_some_and(|os| os != "linux") {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        let reason = "PodOSSelectorNodeLabelDoesNotMatch";
        return Some(Refused { reason, message: message.to_owned() });
    }
    let rest = &pod.spec.rest;
    let selected = rest.get("nodeSelector").is_none_or(|selector| selects(selector, config));
    let terms = rest.get("affinity").and_then(|affinity| {
        affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")
    });
    let terms = terms.and_then(|required| required.get("nodeSelectorTerms")?.as_array());
    let likes = terms.is_none_or(|terms| selects_node(terms, config));
    (!selected || !likes).then(|| Refused {
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

/// Whether a node selector matches this node: one matching term is enough.
pub fn selects_node(terms: &[Value], config: &Config) -> bool {
    terms.iter().any(|term| matches_term(term, config))
}

/// The labels of this node: those that every node has, KubeEdge's two, and the configured ones.
fn labels(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let own = [
        ("kubernetes.io/arch", ARCH),
        ("kubernetes.io/hostname", &config.node_name),
        ("kubernetes.io/os", "linux"),
        ("node-role.kubernetes.io/agent", ""),
        ("node-role.kubernetes.io/edge", ""),
    ];
    let more = config.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    own.into_iter().chain(more)
}

/// Go's name of the architecture.
const ARCH: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "arm"
};

fn label<'a>(key: &str, config: &'a Config) -> Option<&'a str> {
    labels(config).find_map(|(known, value)| (known == key).then_some(value))
}

fn selects(selector: &Value, config: &Config) -> bool {
    let Some(wanted) = selector.as_object() else { return selector.is_null() };
    wanted.iter().all(|(key, value)| label(key, config) == value.as_str())
}

/// core/v1 `NodeSelectorTerm`: all of its expressions have to match; an empty term matches nothing.
fn matches_term(term: &Value, config: &Config) -> bool {
    let list = |name: &str| term.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    let by_label = |key: &str| label(key, config);
    let by_field = |key: &str| (key == "metadata.name").then_some(&*config.node_name);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|wanted| matches(wanted, by_label))
        && fields.iter().all(|wanted| matches(wanted, by_field))
}

/// core/v1 `NodeSelectorRequirement`
fn matches<'a>(wanted: &Value, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let text = |name: &str| wanted.get(name).and_then(Value::as_str).unwrap_or_default();
    let value = value_of(text("key"));
    let values = wanted.get("values").and_then(Value::as_array);
    let mut values = values.into_iter().flatten().filter_map(Value::as_str);
    let number = |text: &str| text.parse::<i64>().ok();
    match text("operator") {
        "In" => value.is_some_and(|value| values.any(|wanted| wanted == value)),
        "NotIn" => value.is_none_or(|value| values.all(|wanted| wanted != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number) > values.next().and_then(number),
        "Lt" => match (value.and_then(number), values.next().and_then(number)) {
            (Some(value), Some(limit)) => value < limit,
            _ => false,
        },
        _ => false,
    }
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
