//! What a service account may do on this node: KubeEdge's `ServiceAccountAccess`
//! (policy.kubeedge.io/v1alpha1; wire spec section 4.7), and rules of Kubernetes' RBAC
//! (rbac.authorization.k8s.io/v1 `PolicyRule`).

use super::tree::fields;

/// The rules that the cloud has found for one service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub spec: Spec,
}

fields!(Access {
    "spec" => spec,
});

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// core/v1 `ServiceAccount`; CloudCore sends its names alone.
    pub service_account: Account,
    pub account_uid: Box<str>,
    pub role_bindings: Vec<Binding>,
    pub cluster_role_bindings: Vec<Binding>,
}

fields!(Spec {
    "serviceAccount" => service_account,
    "serviceAccountUid" => account_uid,
    "accessRoleBinding" => role_bindings,
    "accessClusterRoleBinding" => cluster_role_bindings,
});

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub metadata: Names,
}

fields!(Account {
    "metadata" => metadata,
});

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

fields!(Names {
    "namespace" => namespace,
    "name" => name,
});

/// A binding with the rules of its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Of a `RoleBinding`: its namespace is where the rules are valid.
    pub role_binding: Account,
    pub rules: Vec<Rule>,
}

fields!(Binding {
    "roleBinding" => role_binding,
    "rules" => rules,
});

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<Box<str>>,
    pub api_groups: Vec<Box<str>>,
    /// `pods`, `pods/log`, `*/scale`, `*`
    pub resources: Vec<Box<str>>,
    /// Empty: all objects.
    pub resource_names: Vec<Box<str>>,
}

fields!(Rule {
    "verbs" => verbs,
    "apiGroups" => api_groups,
    "resources" => resources,
    "resourceNames" => resource_names,
});

/// What a request does to which objects, as an authorizer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty: none.
    pub subresource: &'a str,
    /// Empty: all of them, or the resource has none.
    pub namespace: &'a str,
    /// Empty: all objects.
    pub name: &'a str,
}

impl Access {
    /// Whether a rule allows it.
    pub fn allows(&self, wanted: &Attributes<'_>) -> bool {
        let Spec { role_bindings, cluster_role_bindings, .. } = &self.spec;
        let is_there =
            |binding: &&Binding| *binding.role_binding.metadata.namespace == *wanted.namespace;
        // A role binding without a namespace, if there were one, is none of the whole cluster.
        let of_namespace = role_bindings.iter().filter(is_there);
        let of_namespace = of_namespace.filter(|_| !wanted.namespace.is_empty());
        let mut all = of_namespace.chain(cluster_role_bindings);
        all.any(|binding| binding.rules.iter().any(|rule| rule.allows(wanted)))
    }
}

impl Rule {
    fn allows(&self, wanted: &Attributes<'_>) -> bool {
        let is_or_all = |list: &[Box<str>], word: &str| {
            list.iter().any(|known| **known == *word || **known == *"*")
        };
        is_or_all(&self.verbs, wanted.verb)
            && is_or_all(&self.api_groups, wanted.group)
            && self.resources.iter().any(|known| is_resource(known, wanted))
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|known| **known == *wanted.name))
    }
}

/// Whether a rule's resource is the one of the request (Kubernetes' `ResourceMatches`).
fn is_resource(known: &str, wanted: &Attributes<'_>) -> bool {
    if known == "*" {
        return true;
    }
    match known.split_once('/') {
        None => wanted.subresource.is_empty() && known == wanted.resource,
        Some((resource, subresource)) => {
            !wanted.subresource.is_empty()
                && subresource == wanted.subresource
                && (resource == "*" || resource == wanted.resource)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tree;

    fn access(text: &str) -> Access {
        tree::of_json(text).expect(text)
    }

    fn of(words: [&str; 6]) -> Attributes<'_> {
        let [verb, group, resource, subresource, namespace, name] = words;
        Attributes { verb, group, resource, subresource, namespace, name }
    }

    fn allows(rule: &str, words: [&str; 6]) -> bool {
        let of_role = format!(
            r#"{{"spec":{{"accessRoleBinding":[{{
                "roleBinding":{{"metadata":{{"name":"b","namespace":"ns"}}}},
                "rules":[{rule}]}}]}}}}"#
        );
        access(&of_role).allows(&of(words))
    }

    #[test]
    fn a_rule_matches_as_in_kubernetes() {
        let pods = r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}"#;
        assert!(allows(pods, ["get", "", "pods", "", "ns", "web"]));
        for other in [
            ["watch", "", "pods", "", "ns", ""],
            ["get", "apps", "pods", "", "ns", "web"],
            ["get", "", "services", "", "ns", "web"],
            ["get", "", "pods", "log", "ns", "web"],
            ["get", "", "pods", "", "other", "web"],
            ["list", "", "pods", "", "", ""],
        ] {
            assert!(!allows(pods, other), "{other:?}");
        }
        let sub = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["pods/log","*/status"]}"#;
        assert!(allows(sub, ["get", "", "pods", "log", "ns", "web"]));
        assert!(allows(sub, ["update", "x", "devices", "status", "ns", "d"]));
        for other in [["get", "", "pods", "", "ns", "w"], ["get", "", "nodes", "log", "ns", "w"]] {
            assert!(!allows(sub, other), "{other:?}");
        }
        let all = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#;
        assert!(allows(all, ["delete", "x", "y", "z", "ns", "n"]));
        let named = r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["configmaps"],
            "resourceNames":["a"]}"#;
        assert!(allows(named, ["get", "", "configmaps", "", "ns", "a"]));
        assert!(allows(named, ["list", "", "configmaps", "", "ns", "a"]), "with a field selector");
        assert!(!allows(named, ["list", "", "configmaps", "", "ns", ""]));
        for empty in ["{}", r#"{"verbs":null,"apiGroups":[""],"resources":["pods"]}"#] {
            assert!(!allows(empty, ["get", "", "pods", "", "ns", "web"]), "{empty}");
        }
    }

    #[test]
    fn cluster_role_bindings_count_everywhere_and_role_bindings_in_their_namespace() {
        let rules = r#""rules":[{"verbs":["list"],"apiGroups":[""],"resources":["nodes","pods"]}]"#;
        let cluster = access(&format!(
            r#"{{"spec":{{"accessClusterRoleBinding":[{{"clusterRoleBinding":{{}},{rules}}}]}}}}"#
        ));
        assert!(cluster.allows(&of(["list", "", "nodes", "", "", ""])));
        assert!(cluster.allows(&of(["list", "", "pods", "", "any", ""])));
        // Without a namespace it must not be taken for one of the whole cluster.
        let bare = access(&format!(
            r#"{{"spec":{{"accessRoleBinding":[{{"roleBinding":{{}},{rules}}}]}}}}"#
        ));
        assert!(!bare.allows(&of(["list", "", "nodes", "", "", ""])));
        assert!(!Access::default().allows(&of(["list", "", "nodes", "", "", ""])));
    }
}
