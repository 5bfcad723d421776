//! Selects nodes by their labels (meta/v1 `LabelSelector`): all requirements must hold.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::nullable::Nullable;

/// `labelSelector`
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Selector {
    match_labels: Nullable<BTreeMap<Box<str>, Nullable<Box<str>>>>,
    match_expressions: Nullable<Vec<Requirement>>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    #[serde(default)]
    values: Nullable<Vec<Box<str>>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The labels of an object.
pub(super) type Labels = BTreeMap<Box<str>, Box<str>>;

impl Selector {
    /// Whether an object with these labels is selected. An empty selector selects all.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        let mut same = self.match_labels.iter();
        same.all(|(key, value)| labels.get(key) == Some(&value.0))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => is_listed,
            // As in Kubernetes: also without the label.
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_must_hold() {
        let labels: Labels =
            [("site", "a"), ("arch", "arm")].map(|(key, value)| (key.into(), value.into())).into();
        for (selector, expected) in [
            ("{}", true),
            (r#"{"matchLabels":{"site":"a"}}"#, true),
            (r#"{"matchLabels":{"site":"a","arch":"arm64"}}"#, false),
            (r#"{"matchLabels":{"none":""}}"#, false),
            (r#"{"matchExpressions":[{"key":"site","operator":"In","values":["b","a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"site","operator":"In","values":["b"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"site","operator":"NotIn","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"none","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"site","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"site","operator":"DoesNotExist"}]}"#, false),
            (
                r#"{"matchLabels":{"site":"a"},
                    "matchExpressions":[{"key":"none","operator":"Exists","values":null}]}"#,
                false,
            ),
        ] {
            let read: Selector = serde_json::from_str(selector).expect(selector);
            assert_eq!(read.matches(&labels), expected, "{selector}");
        }
        let wrong = r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}"#;
        assert!(serde_json::from_str::<Selector>(wrong).is_err());
    }
}
