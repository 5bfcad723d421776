//! Service accounts and what they may do: the changes of users, and the rules that a node has to
//! end up with, found without any index.

use edged::model::api::Kind;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::world::World;

/// Names of service accounts; those of pods.
pub const ACCOUNTS: [&str; 3] = ["robot", "r1", "r2"];
/// The namespace of the pods, and another one.
const NAMESPACES: [&str; 2] = ["n", "m"];
/// Names of roles, and of bindings.
const ROLES: u64 = 2;
const BINDINGS: u64 = 4;

impl World {
    /// The users change what a service account may do.
    pub(crate) fn users_change_policy(&mut self) {
        self.tally.add("changes of rights");
        let namespace = (*self.chance.pick(&NAMESPACES)).to_owned();
        let account = (*self.chance.pick(&ACCOUNTS)).to_owned();
        let role = format!("r{}", self.chance.below(ROLES));
        let binding = format!("b{}", self.chance.below(BINDINGS));
        let is_of_cluster = self.chance.percent(40);
        let of = |kind: Kind, name: String| -> Name {
            let namespace = if kind.is_namespaced() { namespace.clone() } else { String::new() };
            (kind, namespace, name)
        };
        let role_kind = if is_of_cluster { Kind::ClusterRole } else { Kind::Role };
        let binding_kind =
            if self.chance.percent(30) { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
        match self.chance.below(10) {
            0 | 1 => self.change(of(Kind::ServiceAccount, account), json!({})),
            2 => self.cluster.remove(&of(Kind::ServiceAccount, account)),
            3 | 4 => {
                let verb = *self.chance.pick(&["get", "list", "watch"]);
                let rule = json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
                self.change(of(role_kind, role), json!({"rules": [rule]}));
            }
            5 => self.cluster.remove(&of(role_kind, role)),
            6..=8 => {
                let kind = match binding_kind {
                    Kind::ClusterRoleBinding => Kind::ClusterRole,
                    _ => role_kind,
                };
                let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind.name(),
                    "name": role});
                let subjects = [self.subject(&account), self.subject(&account)];
                let content = json!({"roleRef": role, "subjects": subjects});
                self.change(of(binding_kind, binding), content);
            }
            _ => self.cluster.remove(&of(binding_kind, binding)),
        }
    }

    fn change(&mut self, (kind, namespace, name): Name, mut object: Value) {
        object["metadata"] = json!({"name": name});
        if kind.is_namespaced() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.cluster.apply(kind, object);
    }

    fn subject(&mut self, account: &str) -> Value {
        let namespace = *self.chance.pick(&NAMESPACES);
        match self.chance.below(12) {
            0 => json!({"kind": "Group", "name": "system:serviceaccounts"}),
            1 => json!({"kind": "Group", "name": format!("system:serviceaccounts:{namespace}")}),
            2 => json!({"kind": "User",
                "name": format!("system:serviceaccount:{namespace}:{account}")}),
            3 => json!({"kind": "Group", "name": "system:authenticated"}),
            4 => json!({"kind": "ServiceAccount", "name": account}),
            5 => json!({"kind": "User", "name": account}),
            _ => json!({"kind": "ServiceAccount", "name": account, "namespace": namespace}),
        }
    }

    /// What a node with a pod of this account has to have, if the account exists.
    pub(crate) fn rules_of(&self, account: &str) -> Option<Value> {
        let objects = &self.cluster.objects;
        let key = (Kind::ServiceAccount, "n".to_owned(), account.to_owned());
        let uid = &objects.get(&key)?["metadata"]["uid"];
        let names = json!({"name": account, "namespace": "n"});
        let mut spec =
            json!({"serviceAccount": {"metadata": names.clone()}, "serviceAccountUid": uid});
        for (kind, list, field) in [
            (Kind::RoleBinding, "accessRoleBinding", "roleBinding"),
            (Kind::ClusterRoleBinding, "accessClusterRoleBinding", "clusterRoleBinding"),
        ] {
            let of_kind = objects.iter().filter(|((of, ..), _)| *of == kind);
            let all: Vec<Value> = of_kind
                .filter_map(|((_, home, name), binding)| {
                    let mut subjects = binding["subjects"].as_array()?.iter();
                    subjects.find(|it| is_for(it, home, account))?;
                    let mut role = binding["roleRef"].clone();
                    let (role_kind, role_home) = match role["kind"].as_str() {
                        Some("Role") => (Kind::Role, home.clone()),
                        _ => (Kind::ClusterRole, String::new()),
                    };
                    let role_name = role["name"].as_str()?.to_owned();
                    if role_kind == Kind::Role && home != "n" {
                        role["kind"] = json!("ClusterRole");
                        role["name"] = json!(format!("{home}/{role_name}"));
                    }
                    let rules = &objects.get(&(role_kind, role_home, role_name))?["rules"];
                    let mut metadata = json!({"name": name});
                    if !home.is_empty() {
                        metadata["namespace"] = json!(home);
                    }
                    Some(json!({field: {"metadata": metadata, "roleRef": role,
                        "subjects": binding["subjects"]}, "rules": rules}))
                })
                .collect();
            if !all.is_empty() {
                spec[list] = json!(all);
            }
        }
        Some(json!({"metadata": names, "spec": spec}))
    }
}

/// Whether a subject of a binding in this namespace is the account `n/<name>`.
fn is_for(subject: &Value, home: &str, account: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    let user = format!("system:serviceaccount:n:{account}");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
    match subject["kind"].as_str() {
        Some("ServiceAccount") => {
            name == account && subject["namespace"].as_str().unwrap_or(home) == "n"
        }
        Some("User") => name == user,
        Some("Group") => groups.contains(&name),
        _ => false,
    }
}
