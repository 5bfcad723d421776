//! Which resources the nodes may request through their `MetaServers`: two lists of the
//! configuration, for reads and for writes.

use crate::limits::ACCESS_RULES_MAX;
use crate::model::any_api::{AnyCall, AnyTarget};
use crate::model::application::Gvr;
use crate::model::error::Input;

/// What nodes may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    reads: Vec<Rule>,
    writes: Vec<Rule>,
    /// As whose user requests are made.
    pub user: RequestUser,
}

/// As whose user requests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestUser {
    /// The controller's own.
    #[default]
    Controller,
    /// `system:node:<node>` of group `system:nodes`: the API server decides what it may.
    Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Empty: the core group.
    group: Box<str>,
    /// `None`: all of the group.
    resource: Option<Box<str>>,
    /// Empty: the object itself.
    subresource: Box<str>,
}

/// What all nodes may read unless the configuration says otherwise: what a DNS server or a proxy
/// needs. Contents of workloads (Pods, ConfigMaps, Secrets) are to be named: one node that was
/// broken into would show those of the whole cluster.
pub const READS: &str = "services,endpoints,endpointslices.discovery.k8s.io,namespaces,nodes";

impl Access {
    /// Reads two lists of `resource`, `resource.group`, `resource.group/subresource` or `*.group`,
    /// separated by commas.
    pub fn parse(reads: &str, writes: &str, user: RequestUser) -> Result<Self, Input> {
        Ok(Self { reads: rules(reads)?, writes: rules(writes)?, user })
    }

    /// Whether objects of this resource may be read.
    pub fn may_read(&self, resource: &Gvr, subresource: &str) -> bool {
        // A status is a part of what is read anyway.
        let subresource = if subresource == "status" { "" } else { subresource };
        self.reads.iter().any(|rule| rule.is(resource, subresource))
    }

    /// Whether this call may be made.
    pub fn may_call(&self, call: &AnyCall) -> bool {
        match &call.target {
            // What the API server says of itself: every user may read it.
            AnyTarget::Path(_) => call.is_read(),
            AnyTarget::Object { resource, subresource, .. } if call.is_read() => {
                self.may_read(resource, subresource)
            }
            AnyTarget::Object { resource, subresource, .. } => {
                self.writes.iter().any(|rule| rule.is(resource, subresource))
            }
        }
    }
}

impl Rule {
    fn is(&self, resource: &Gvr, subresource: &str) -> bool {
        *self.group == *resource.group
            && self.resource.as_ref().is_none_or(|it| **it == *resource.resource)
            && *self.subresource == *subresource
    }
}

fn rules(text: &str) -> Result<Vec<Rule>, Input> {
    let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.len() > ACCESS_RULES_MAX {
        return Err(Input::new(items.len(), format!("{ACCESS_RULES_MAX} resources at the most")));
    }
    items.into_iter().map(rule).collect()
}

fn rule(item: &str) -> Result<Rule, Input> {
    let wrong =
        || Input::quoted(item, "RESOURCE, RESOURCE.GROUP, RESOURCE.GROUP/SUBRESOURCE or *.GROUP");
    let (of, subresource) = item.split_once('/').unwrap_or((item, ""));
    let (resource, group) = of.split_once('.').unwrap_or((of, ""));
    let is_word = |text: &str| {
        text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b".-".contains(&c))
    };
    let resource = match resource {
        // The core group has Secrets.
        "*" if group.is_empty() => return Err(wrong()),
        "*" => None,
        "" => return Err(wrong()),
        name if is_word(name) => Some(name.into()),
        _ => return Err(wrong()),
    };
    if !is_word(group) || !is_word(subresource) {
        return Err(wrong());
    }
    Ok(Rule { group: group.into(), resource, subresource: subresource.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::any_api::AnyVerb;

    fn call(verb: AnyVerb, group: &str, resource: &str, subresource: &str) -> AnyCall {
        let target = AnyTarget::Object {
            resource: Gvr::new(group, "v1", resource),
            namespace: "n".into(),
            name: "a".into(),
            subresource: subresource.into(),
        };
        AnyCall { verb, target, query: Vec::new(), body: Box::default(), node: None }
    }

    #[test]
    fn only_what_is_listed_may_be_requested() {
        let writes = "leases.coordination.k8s.io,deployments.apps/scale";
        let reads = format!("{READS},pods,*.networking.istio.io");
        let access = Access::parse(&reads, writes, RequestUser::Controller).expect("lists");
        for (verb, group, resource, part, may) in [
            (AnyVerb::Get, "", "services", "", true),
            (AnyVerb::Get, "", "pods", "status", true),
            (AnyVerb::Get, "", "pods", "log", false),
            (AnyVerb::List, "networking.istio.io", "gateways", "", true),
            (AnyVerb::Get, "", "secrets", "", false),
            (AnyVerb::Get, "example.org", "services", "", false),
            (AnyVerb::Create, "", "services", "", false),
            (AnyVerb::Update, "coordination.k8s.io", "leases", "", true),
            (AnyVerb::Get, "coordination.k8s.io", "leases", "", false),
            (AnyVerb::Update, "coordination.k8s.io", "leases", "status", false),
            (AnyVerb::Update, "apps", "deployments", "scale", true),
            (AnyVerb::Update, "apps", "deployments", "", false),
        ] {
            let is_allowed = access.may_call(&call(verb, group, resource, part));
            assert_eq!(is_allowed, may, "{verb:?} {resource}.{group}/{part}");
        }
        let path =
            |verb| AnyCall { target: AnyTarget::Path("/version".into()), ..call(verb, "", "", "") };
        assert!(access.may_call(&path(AnyVerb::Get)) && !access.may_call(&path(AnyVerb::Create)));
    }

    #[test]
    fn by_default_nodes_read_no_contents_of_workloads() {
        let access = Access::parse(READS, "", RequestUser::Controller).expect("a list");
        let may_read = |group: &str, resource: &str| {
            let of = Gvr::new(group, "v1", resource);
            let may_call = [AnyVerb::Get, AnyVerb::List]
                .map(|verb| access.may_call(&call(verb, group, resource, "")));
            assert_eq!(may_call, [access.may_read(&of, ""); 2], "{of}");
            may_call[0]
        };
        for resource in ["services", "endpoints", "namespaces", "nodes"] {
            assert!(may_read("", resource), "{resource}");
        }
        assert!(may_read("discovery.k8s.io", "endpointslices"));
        for resource in ["pods", "configmaps", "secrets", "serviceaccounts", "events"] {
            assert!(!may_read("", resource), "{resource}");
        }
        assert!(!may_read("networking.istio.io", "gateways"));
    }

    #[test]
    fn mistakes_are_named() {
        let parse = |reads: &str| Access::parse(reads, "", RequestUser::Controller);
        for item in ["*", "*.", ".apps", "Pods", "pods/Log", "pods.a b"] {
            let why = parse(item).expect_err(item).to_string();
            assert!(why.contains("expected RESOURCE, RESOURCE.GROUP"), "{why}");
        }
        let many = vec!["a"; ACCESS_RULES_MAX].join(",");
        assert!(parse(&many).is_ok() && parse(&format!("{many},a")).is_err());
    }
}
