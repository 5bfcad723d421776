//! Puts the rules of one service account together: KubeEdge's `ServiceAccountAccess`
//! (policy.kubeedge.io/v1alpha1; wire spec section 4.7), as EdgeCore reads it.
//!
//! EdgeCore looks for the role of a binding in all of these objects, by the kind and name in
//! `roleRef` and, for a Role, by the namespace of the account. So a binding of another namespace
//! than the account's has its Role named as a `ClusterRole` NAMESPACE/NAME, which no real one can
//! have: its rules count in the namespace of the binding, and nowhere else. And of two objects with
//! one binding it reads one: each has all its subjects.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::super::key::Key;
use super::super::object::Object;
use super::index::{Binding, Index};
use crate::limits::{ACCESS_BINDINGS_MAX, ACCESS_BYTES_MAX, ACCESS_VALUES_MAX};
use crate::model::api::Kind;
use crate::model::raw;
use crate::model::tree::Shape;

/// `roleRef.apiGroup`, always.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of an account.
pub(super) enum Rules {
    /// There is no such account.
    Absent,
    /// They are more than an agent takes, and how many.
    TooLarge(Box<str>),
    Object(Object),
}

/// The rules of the account whose `ServiceAccountAccess` has this key.
pub(super) fn of(index: &Index, key: &Key) -> Rules {
    let Some(uid) = index.account(&key.namespace, &key.name) else { return Rules::Absent };
    let bindings = match index.bindings_of(&key.namespace, &key.name) {
        Ok(bindings) => bindings,
        Err(count) => return too_large("bindings", count, ACCESS_BINDINGS_MAX),
    };
    let mut parts = [String::new(), String::new()];
    let mut bytes = 0;
    for at in bindings {
        let Some(binding) = index.binding(at) else { continue };
        // A role that does not exist has no rules.
        let Some(rules) = index.rules(&binding.role) else { continue };
        bytes += rules.len() + binding.subjects.len();
        if bytes > ACCESS_BYTES_MAX {
            return too_large("bytes", bytes, ACCESS_BYTES_MAX);
        }
        let is_of_cluster = at.kind == Kind::ClusterRoleBinding;
        let part = &mut parts[usize::from(is_of_cluster)];
        if !part.is_empty() {
            part.push(',');
        }
        add(part, at, binding, &key.namespace, rules);
    }
    let text = whole(key, uid, &parts);
    if text.len() > ACCESS_BYTES_MAX {
        return too_large("bytes", text.len(), ACCESS_BYTES_MAX);
    }
    let values = Shape::of(&text).values;
    if values > ACCESS_VALUES_MAX {
        return too_large("values", values, ACCESS_VALUES_MAX);
    }
    Rules::Object(object(uid, text))
}

fn too_large(what: &str, got: usize, most: usize) -> Rules {
    Rules::TooLarge(format!("got rules of {got} {what} or more, expected at most {most}").into())
}

/// Adds an `AccessRoleBinding` or `AccessClusterRoleBinding`.
fn add(text: &mut String, at: &Key, binding: &Binding, home: &str, rules: &str) {
    let field = if at.namespace.is_empty() { "clusterRoleBinding" } else { "roleBinding" };
    let Binding { role, subjects, .. } = binding;
    let is_foreign = role.kind == Kind::Role && *role.namespace != *home;
    let (kind, name) = if is_foreign {
        (Kind::ClusterRole, format!("{}/{}", role.namespace, role.name))
    } else {
        (role.kind, role.name.to_string())
    };
    let (kind, name) = (quoted(kind.name()), quoted(&name));
    let _ = write!(text, r#"{{"{field}":{{"metadata":"#);
    metadata(text, at);
    let _ = write!(text, r#","subjects":{subjects},"roleRef":{{"apiGroup":{},"#, quoted(GROUP));
    let _ = write!(text, r#""kind":{kind},"name":{name}}}}},"rules":{rules}}}"#);
}

fn metadata(text: &mut String, of: &Key) {
    let _ = write!(text, r#"{{"name":{}"#, quoted(&of.name));
    if !of.namespace.is_empty() {
        let _ = write!(text, r#","namespace":{}"#, quoted(&of.namespace));
    }
    text.push('}');
}

/// It has no uid, since an agent never takes an object again whose uid it has seen deleted, and no
/// `resourceVersion`, because it has been in no API server.
fn whole(key: &Key, uid: &str, [of_namespaces, of_cluster]: &[String; 2]) -> String {
    let (kind, version) = (quoted(key.kind.name()), quoted(key.kind.api_version()));
    let mut text = format!(r#"{{"kind":{kind},"apiVersion":{version},"metadata":"#);
    metadata(&mut text, key);
    text.push_str(r#","spec":{"serviceAccount":{"metadata":"#);
    metadata(&mut text, key);
    let _ = write!(text, r#"}},"serviceAccountUid":{}"#, quoted(uid));
    for (field, part) in
        [("accessRoleBinding", of_namespaces), ("accessClusterRoleBinding", of_cluster)]
    {
        if !part.is_empty() {
            let _ = write!(text, r#","{field}":[{part}]"#);
        }
    }
    text.push_str(r#"},"status":{}}"#);
    text
}

fn object(uid: &Arc<str>, text: String) -> Object {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    // Records store it as a signed number, and 0 means «not known».
    let version = (hasher.finish() >> 1).max(1);
    Object {
        uid: Arc::clone(uid),
        version,
        digest: version,
        json: Arc::from(raw::of_text(text)),
        is_ending: false,
        pod: None,
        device: None,
        node: None,
        round: 0,
    }
}

fn quoted(word: &str) -> String {
    raw::json(word).get().to_owned()
}
