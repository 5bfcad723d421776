//! Of the index alone: what a change concerns, and what does not fit.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::{Content, Index, Subject};
use super::*;
use crate::limits::{ACCESS_BINDINGS_MAX, POLICY_OBJECT_BYTES, POLICY_SUBJECT_BYTES};

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, "n", name)
}

fn read(key: &Key, json: &str) -> Content {
    Content::read(key, &Arc::from("u"), json).expect("an object")
}

fn one(name: &str) -> BTreeSet<Subject> {
    [Subject::Account("n".into(), name.into())].into()
}

/// A binding of a role for an account of its own namespace.
fn bound(role: &str, account: &str) -> String {
    format!(
        r#"{{"roleRef":{{"kind":"Role","name":"{role}"}},"subjects":[{{"kind":"ServiceAccount",
        "name":"{account}"}},{{"kind":"User","name":"other"}},{{"kind":"ServiceAccount"}}]}}"#
    )
}

#[test]
fn a_change_concerns_whom_the_binding_was_for_and_is_for() {
    let mut index = Index::default();
    let (binding, role) = (key(Kind::RoleBinding, "b"), key(Kind::Role, "r"));
    assert_eq!(index.put(&binding, (1, 1), read(&binding, &bound("r", "a"))), one("a"));
    assert_eq!(index.put(&role, (2, 1), read(&role, r#"{"rules":[1]}"#)), one("a"));
    assert_eq!(index.put(&role, (3, 1), read(&role, r#"{"rules":[1]}"#)), BTreeSet::new());
    assert_eq!(index.put(&role, (3, 1), read(&role, r#"{"rules":[2]}"#)), BTreeSet::new(), "old");
    let both = one("a").union(&one("c")).cloned().collect();
    assert_eq!(index.put(&binding, (4, 1), read(&binding, &bound("r", "c"))), both);
    assert_eq!(index.put(&role, (5, 1), read(&role, r#"{"rules":[2]}"#)), one("c"));
    assert_eq!(index.remove(&role), one("c"));
    assert_eq!(index.remove(&binding), one("c"));
    assert_eq!((index.len(), index.bytes()), (0, 0));
    assert_eq!(index.put(&role, (6, 1), read(&role, "{}")), BTreeSet::new(), "of no binding");
}

#[test]
fn a_list_removes_what_it_does_not_name_unless_that_is_newer() {
    let mut index = Index::default();
    for (name, version) in [("old", 1), ("new", 9), ("named", 2)] {
        let key = key(Kind::ServiceAccount, name);
        index.put(&key, (version, 1), read(&key, "{}"));
    }
    index.put(&key(Kind::ServiceAccount, "named"), (2, 2), Content::Account(Arc::from("u")));
    index.seen(&key(Kind::ServiceAccount, "none"), 2);
    assert_eq!(index.listed(Kind::Role, 2, 5), BTreeSet::new(), "another kind");
    assert_eq!(index.listed(Kind::ServiceAccount, 2, 5), one("old"));
    let has = |name: &str| index.account("n", name).is_some();
    assert!(!has("old") && has("new") && has("named"));
}

#[test]
fn what_does_not_fit_takes_all_rights_until_a_list_fits() {
    let mut index = Index::default();
    let large = format!("{{\"rules\":\"{}\"}}", "x".repeat(POLICY_BYTES_MAX));
    let (binding, role) = (key(Kind::RoleBinding, "b"), key(Kind::Role, "r"));
    index.put(&binding, (1, 1), read(&binding, &bound("r", "a")));
    let text = r#"[{"kind":"ServiceAccount",
        "name":"a"},{"kind":"User","name":"other"},{"kind":"ServiceAccount"}]"#;
    assert_eq!(index.bytes(), POLICY_OBJECT_BYTES + POLICY_SUBJECT_BYTES + text.len());
    index.put(&role, (2, 1), read(&role, "{}"));
    assert_eq!(index.put(&role, (3, 1), read(&role, &large)), [Subject::All].into());
    assert!(index.is_incomplete() && index.rules(&role).is_none());
    assert_eq!(index.listed(Kind::Role, 1, 9), BTreeSet::new(), "it was in this list");
    assert!(index.is_incomplete());
    index.put(&role, (4, 2), read(&role, "{}"));
    assert_eq!(index.listed(Kind::Role, 2, 9), [Subject::All].into());
    assert!(!index.is_incomplete());
}

#[test]
fn a_binding_that_cannot_be_read_is_an_error() {
    let of = |json: &str| {
        let key = key(Kind::RoleBinding, "b");
        Content::read(&key, &Arc::from("u"), json).expect_err("no binding").to_string()
    };
    for (json, why) in [
        ("{}", "the binding: "),
        (r#"{"roleRef":{"kind":"X","name":"r"}}"#, "got roleRef.kind \"X\", expected Role or"),
        (r#"{"roleRef":{"kind":"Role","name":"r"},"subjects":[7]}"#, "subjects: "),
    ] {
        let got = of(json);
        assert!(got.starts_with(why), "{got}");
    }
}

#[test]
fn more_bindings_than_an_agent_takes_are_not_gone_through() {
    let mut index = Index::default();
    for at in 0..=ACCESS_BINDINGS_MAX {
        let binding = key(Kind::RoleBinding, &format!("b{at}"));
        index.put(&binding, (1, 1), read(&binding, &bound("none", "a")));
    }
    assert_eq!(index.bindings_of("n", "a").err(), Some(ACCESS_BINDINGS_MAX + 1));
    assert_eq!(index.bindings_of("n", "c").map(|all| all.len()), Ok(0), "of another account");
    index.remove(&key(Kind::RoleBinding, "b0"));
    assert_eq!(index.bindings_of("n", "a").map(|all| all.len()), Ok(ACCESS_BINDINGS_MAX));
    let account = key(Kind::ServiceAccount, "a");
    index.put(&account, (1, 1), read(&account, "{}"));
    let of = |index: &Index| rules::of(index, &key(Kind::ServiceAccountAccess, "a"));
    assert!(matches!(of(&index), Rules::Object(_)), "no role exists, so there are no rules");
    let binding = key(Kind::RoleBinding, "b0");
    index.put(&binding, (2, 1), read(&binding, &bound("none", "a")));
    assert!(matches!(of(&index), Rules::TooLarge(why) if why.starts_with("got rules of 769 bind")));
}
