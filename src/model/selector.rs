//! Selectors of lists and watches as texts (Kubernetes' `labels.Parse`, `fields.ParseSelector`).

use std::collections::BTreeMap;
use std::fmt;

use super::error::Peer;
use crate::limits::{SELECTOR_BYTES_MAX, SELECTOR_REQUIREMENTS_MAX, SELECTOR_VALUES_MAX};

/// The labels of an object.
pub type Labels = BTreeMap<Box<str>, Box<str>>;

/// `labelSelector`: all requirements must hold; none selects all. In order, each once: two texts
/// with the same requirements are the same selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelSelector(Vec<Requirement>);

/// A requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    /// The label has one of these values: `k=v`, `k in (a,b)`.
    In(Box<str>, Vec<Box<str>>),
    /// It is absent, or has none of these: `k!=v`, `k notin (a,b)`.
    NotIn(Box<str>, Vec<Box<str>>),
    /// `k`
    Exists(Box<str>),
    /// `!k`
    Absent(Box<str>),
}

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub fn parse(text: &str) -> Result<Self, Peer> {
        let mut all = Vec::new();
        for term in terms(text, "labelSelector")? {
            let wrong = || {
                Peer::new(format!("labelSelector: got {term:?}, expected key=value or the like"))
            };
            all.push(Requirement::parse(term).ok_or_else(wrong)?);
        }
        all.sort();
        all.dedup();
        Ok(Self(all))
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|it| it.matches(labels))
    }
}

/// As it is read.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    fn parse(term: &str) -> Option<Self> {
        if let Some(key) = term.strip_prefix('!') {
            return Some(Self::Absent(key_of(key)?));
        }
        if let Some((head, values)) = term.split_once('(') {
            let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
            let values = values.strip_suffix(')')?.split(',').map(value_of);
            let mut values: Vec<Box<str>> = values.collect::<Option<_>>()?;
            values.sort();
            values.dedup();
            let is_short = values.len() <= SELECTOR_VALUES_MAX;
            return match operator {
                "in" if is_short => Some(Self::In(key_of(key)?, values)),
                "notin" if is_short => Some(Self::NotIn(key_of(key)?, values)),
                _ => None,
            };
        }
        if let Some((key, value)) = term.split_once("!=") {
            return Some(Self::NotIn(key_of(key)?, vec![value_of(value)?]));
        }
        if let Some((key, value)) = term.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            return Some(Self::In(key_of(key)?, vec![value_of(value)?]));
        }
        Some(Self::Exists(key_of(term)?))
    }

    fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|it| values.contains(it)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|it| !values.contains(it)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Self::NotIn(key, values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Self::In(key, values) => write!(f, "{key} in ({})", values.join(",")),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(",")),
            Self::Exists(key) => f.write_str(key),
            Self::Absent(key) => write!(f, "!{key}"),
        }
    }
}

/// A label's name: what could end a selector or begin another must not be in it.
fn key_of(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let is_valid = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/');
    (!text.is_empty() && text.bytes().all(is_valid)).then(|| text.into())
}

fn value_of(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let is_valid = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    text.bytes().all(is_valid).then(|| text.into())
}

/// `fieldSelector`, as far as it can be compared here: all terms must hold.
#[cfg(feature = "controller")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(Field, Equal, Box<str>)>);

#[cfg(feature = "controller")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    NodeName,
    Phase,
}

#[cfg(feature = "controller")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Equal {
    Yes,
    No,
}

/// The fields of an object that a selector may name; empty: not set.
#[cfg(feature = "controller")]
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

#[cfg(feature = "controller")]
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

#[cfg(feature = "controller")]
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
        let most = SELECTOR_BYTES_MAX;
        return Err(Peer::new(format!("{what}: got {got} bytes, expected {most} at most")));
    }
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let terms: Vec<&str> = parts.map(str::trim).filter(|term| !term.is_empty()).collect();
    if terms.len() > SELECTOR_REQUIREMENTS_MAX {
        let (got, most) = (terms.len(), SELECTOR_REQUIREMENTS_MAX);
        return Err(Peer::new(format!("{what}: got {got} requirements, expected {most} at most")));
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
            ("app in (db,web),tier", true),
            ("tier notin (back),app", true),
            ("zone notin (a)", true),
            ("example.org/x", true),
            ("!app", false),
            ("!zone", true),
            ("example.org/x=", true),
        ] {
            let selector = LabelSelector::parse(text).expect(text);
            assert_eq!(selector.matches(&web), selects, "{text}");
            let again = LabelSelector::parse(&selector.to_string()).expect(text);
            assert_eq!(again, selector, "{text} as it is written");
        }
    }

    #[test]
    fn the_same_requirements_are_the_same_selector() {
        let parse = |text: &str| LabelSelector::parse(text).expect(text);
        assert_eq!(parse("b , a in (y,x,y),b"), parse("a in (x,y),b"));
        assert_ne!(parse("a"), parse("a,b"));
    }

    #[cfg(feature = "controller")]
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
        for (text, why) in [
            ("metadata.name", "fieldSelector: got \"metadata.name\", expected field=value"),
            ("spec.x=y", "fieldSelector: got \"spec.x\", expected metadata.name"),
        ] {
            let got = FieldSelector::parse(text).expect_err(text).to_string();
            assert!(got.starts_with(why), "{got}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for text in [
            "app in web",
            "app in (web",
            "app like (web)",
            "a b (c)",
            "(a)",
            "=x",
            "a>1",
            "a=b=c",
            "a=b c",
        ] {
            let got = LabelSelector::parse(text).expect_err(text).to_string();
            assert!(got.starts_with(&format!("labelSelector: got {text:?}, expected")), "{got}");
        }
    }

    #[test]
    fn selectors_have_bounds() {
        let refused = |text: &str, most: usize| {
            let why = LabelSelector::parse(text).expect_err("too many").to_string();
            assert!(why.ends_with(&format!("expected {most} at most")), "{why}");
        };
        let terms = |count: usize| vec!["a"; count].join(",");
        assert!(LabelSelector::parse(&terms(SELECTOR_REQUIREMENTS_MAX)).is_ok());
        refused(&terms(SELECTOR_REQUIREMENTS_MAX + 1), SELECTOR_REQUIREMENTS_MAX);
        refused(&"x".repeat(SELECTOR_BYTES_MAX + 1), SELECTOR_BYTES_MAX);
        let values: Vec<String> = (0..=SELECTOR_VALUES_MAX).map(|at| at.to_string()).collect();
        let of = |values: &[String]| format!("a in ({})", values.join(","));
        assert!(LabelSelector::parse(&of(&values[1..])).is_ok());
        assert!(LabelSelector::parse(&of(&values)).is_err());
    }
}
