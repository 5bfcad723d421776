//! Selectors of lists and watches as texts (Kubernetes' `labels.Parse`, `fields.ParseSelector`).

use std::collections::BTreeMap;

use super::error::Peer;
use crate::limits::{SELECTOR_BYTES_MAX, SELECTOR_TERMS_MAX};

/// The labels of an object.
pub type Labels = BTreeMap<Box<str>, Box<str>>;

/// `labelSelector`: all requirements must hold; none selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<Box<str>>),
    /// As in Kubernetes: also without the label.
    NotIn(Vec<Box<str>>),
}

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub fn parse(text: &str) -> Result<Self, Peer> {
        let terms = terms(text, "labelSelector")?;
        terms.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.get(key);
            match test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            }
        })
    }
}

fn requirement(term: &str) -> Result<Requirement, Peer> {
    let wrong =
        || Peer::new(format!("labelSelector: got {term:?}, expected key=value or the like"));
    let (key, test) = if let Some((left, right)) = term.split_once('(') {
        let values = right.strip_suffix(')').ok_or_else(wrong)?;
        let values: Vec<Box<str>> = values.split(',').map(|value| value.trim().into()).collect();
        let (key, operator) = left.trim().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        match operator {
            "in" => (key, Test::In(values)),
            "notin" => (key, Test::NotIn(values)),
            _ => return Err(wrong()),
        }
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, Test::NotIn(vec![value.trim().into()]))
    } else if let Some((key, value)) = term.split_once('=') {
        (key, Test::In(vec![value.trim_start_matches('=').trim().into()]))
    } else if let Some(key) = term.strip_prefix('!') {
        (key, Test::Absent)
    } else {
        (term, Test::Exists)
    };
    let key = key.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/');
    if key.is_empty() || !key.chars().all(is_key) {
        return Err(wrong());
    }
    Ok(Requirement { key: key.into(), test })
}

/// `fieldSelector`, as far as it can be compared here: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(Field, Equal, Box<str>)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    NodeName,
    Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Equal {
    Yes,
    No,
}

/// The fields of an object that a selector may name; empty: not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields<'a> {
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.namespace`
    pub namespace: &'a str,
    /// `spec.nodeName`
    pub node_name: &'a str,
    /// `status.phase`
    pub phase: &'a str,
}

impl FieldSelector {
    /// Reads `metadata.name=a,spec.nodeName!=b`.
    pub fn parse(text: &str) -> Result<Self, Peer> {
        let terms = terms(text, "fieldSelector")?;
        terms.into_iter().map(field_term).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an object with these fields is selected.
    pub fn matches(&self, fields: &SelectableFields<'_>) -> bool {
        self.0.iter().all(|(field, equal, expected)| {
            let got = match field {
                Field::Name => fields.name,
                Field::Namespace => fields.namespace,
                Field::NodeName => fields.node_name,
                Field::Phase => fields.phase,
            };
            (*got == **expected) == (*equal == Equal::Yes)
        })
    }
}

fn field_term(term: &str) -> Result<(Field, Equal, Box<str>), Peer> {
    let wrong = || Peer::new(format!("fieldSelector: got {term:?}, expected field=value"));
    let (field, equal, value) = if let Some((field, value)) = term.split_once("!=") {
        (field, Equal::No, value)
    } else {
        let (field, value) = term.split_once('=').ok_or_else(wrong)?;
        (field, Equal::Yes, value.strip_prefix('=').unwrap_or(value))
    };
    let field = match field.trim() {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        "spec.nodeName" => Field::NodeName,
        "status.phase" => Field::Phase,
        other => {
            return Err(Peer::new(format!(
                "fieldSelector: got {other:?}, expected metadata.name, metadata.namespace, \
                 spec.nodeName or status.phase"
            )));
        }
    };
    Ok((field, equal, value.trim().into()))
}

/// The parts between commas, except those in parentheses.
fn terms<'a>(text: &'a str, what: &str) -> Result<Vec<&'a str>, Peer> {
    if text.len() > SELECTOR_BYTES_MAX {
        let got = text.len();
        return Err(Peer::new(format!("{what}: got {got} bytes, expected {SELECTOR_BYTES_MAX}")));
    }
    let (mut depth, mut from, mut terms) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    terms.push(text[from..].trim());
    terms.retain(|term| !term.is_empty());
    if terms.len() > SELECTOR_TERMS_MAX {
        let got = terms.len();
        return Err(Peer::new(format!("{what}: got {got} terms, expected {SELECTOR_TERMS_MAX}")));
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn labels_are_selected_as_in_kubernetes() {
        let web = labels(&[("app", "web"), ("tier", "front"), ("example.org/x", "")]);
        for (text, selects) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier = front", true),
            ("app=web,tier=back", false),
            ("app!=web", false),
            ("zone!=a", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("tier notin (back),app", true),
            ("zone notin (a)", true),
            ("example.org/x", true),
            ("!app", false),
            ("!zone", true),
            ("example.org/x=", true),
        ] {
            let selector = LabelSelector::parse(text).expect(text);
            assert_eq!(selector.matches(&web), selects, "{text}");
        }
    }

    #[test]
    fn fields_are_selected_by_equality() {
        let pod = SelectableFields { name: "a", namespace: "n", node_name: "e", phase: "Running" };
        for (text, selects) in [
            ("", true),
            ("metadata.name=a,metadata.namespace==n", true),
            ("metadata.name!=a", false),
            ("spec.nodeName=e,status.phase!=Failed", true),
            ("spec.nodeName=", false),
        ] {
            assert_eq!(FieldSelector::parse(text).expect(text).matches(&pod), selects, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for (text, why) in [
            ("app in web", "labelSelector: got \"app in web\", expected"),
            ("app in (web", "labelSelector: got \"app in (web\", expected"),
            ("a b (c)", "labelSelector: got \"a b (c)\""),
            ("=x", "labelSelector: got \"=x\""),
            ("a>1", "labelSelector: got \"a>1\""),
        ] {
            let got = LabelSelector::parse(text).expect_err(text).to_string();
            assert!(got.starts_with(why), "{got}");
        }
        for (text, why) in [
            ("metadata.name", "fieldSelector: got \"metadata.name\", expected field=value"),
            ("spec.x=y", "fieldSelector: got \"spec.x\", expected metadata.name"),
        ] {
            let got = FieldSelector::parse(text).expect_err(text).to_string();
            assert!(got.starts_with(why), "{got}");
        }
    }

    #[test]
    fn selectors_have_bounds() {
        let terms = |count: usize| vec!["a"; count].join(",");
        assert!(LabelSelector::parse(&terms(SELECTOR_TERMS_MAX)).is_ok());
        let why = LabelSelector::parse(&terms(SELECTOR_TERMS_MAX + 1)).expect_err("too many");
        assert!(why.to_string().contains(&format!("expected {SELECTOR_TERMS_MAX}")), "{why}");
        let why = FieldSelector::parse(&"x".repeat(SELECTOR_BYTES_MAX + 1)).expect_err("too long");
        assert!(why.to_string().contains(&format!("expected {SELECTOR_BYTES_MAX}")), "{why}");
    }
}
