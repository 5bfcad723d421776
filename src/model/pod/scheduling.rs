//! Fields for the scheduler that a node reads too. They stay untyped in their objects and are read
//! leniently: a value of a wrong kind counts as absent.

use serde_json::Value;

use super::{PodSpec, Rest};

/// core/v1 `NodeSelectorTerm`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelectorTerm<'a> {
    /// Of labels.
    pub match_expressions: Vec<NodeRequirement<'a>>,
    /// Of `metadata.name`.
    pub match_fields: Vec<NodeRequirement<'a>>,
}

/// core/v1 `NodeSelectorRequirement`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRequirement<'a> {
    pub key: &'a str,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: &'a str,
    pub values: Vec<&'a str>,
}

/// core/v1 `Toleration`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toleration<'a> {
    pub key: &'a str,
    /// `Exists` or `Equal`; empty: `Equal`.
    pub operator: &'a str,
    pub value: &'a str,
    /// Empty: all.
    pub effect: &'a str,
}

impl PodSpec {
    /// `priority`; 0 by default.
    pub fn priority(&self) -> i64 {
        self.rest.get("priority").and_then(Value::as_i64).unwrap_or(0)
    }

    /// `priorityClassName`
    pub fn priority_class_name(&self) -> Option<&str> {
        self.rest.get("priorityClassName").and_then(Value::as_str)
    }

    /// `tolerations`
    pub fn tolerations(&self) -> impl Iterator<Item = Toleration<'_>> {
        list(self.rest.get("tolerations")).map(|one| Toleration {
            key: text(one, "key"),
            operator: text(one, "operator"),
            value: text(one, "value"),
            effect: text(one, "effect"),
        })
    }

    /// `nodeSelector`: labels with their values, where they are text. `None`: it is no map.
    pub fn node_selector(&self) -> Option<impl Iterator<Item = (&str, Option<&str>)>> {
        let labels = match self.rest.get("nodeSelector") {
            None | Some(Value::Null) => None,
            Some(selector) => Some(selector.as_object()?),
        };
        Some(labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// The required node affinity; `None`: any node.
    pub fn required_nodes(&self) -> Option<Vec<NodeSelectorTerm<'_>>> {
        let affinity = self.rest.get("affinity")?;
        terms(affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")?)
    }
}

/// The terms of a volume's node affinity; `None`: any node.
pub(in crate::model) fn required_nodes(affinity: &Rest) -> Option<Vec<NodeSelectorTerm<'_>>> {
    terms(affinity.get("required")?)
}

/// core/v1 `NodeSelector`
fn terms(selector: &Value) -> Option<Vec<NodeSelectorTerm<'_>>> {
    let terms = selector.get("nodeSelectorTerms")?.as_array()?;
    let requirements = |term, name| list(Value::get(term, name)).map(requirement).collect();
    let term = |term| NodeSelectorTerm {
        match_expressions: requirements(term, "matchExpressions"),
        match_fields: requirements(term, "matchFields"),
    };
    Some(terms.iter().map(term).collect())
}

fn requirement(of: &Value) -> NodeRequirement<'_> {
    NodeRequirement {
        key: text(of, "key"),
        operator: text(of, "operator"),
        values: list(of.get("values")).filter_map(Value::as_str).collect(),
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}
