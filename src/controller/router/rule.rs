//! Rules and their endpoints as the API server has them, and what a rule asks for (spec
//! `servicebus-router-tasks`, section 2).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::key::Key;
use super::super::nullable::Nullable;
use super::super::object::Object;
use super::pattern::Pattern;
use crate::model::api::{Call, Kind, PatchType, Subresource, Verb};
use crate::model::error::{Input, Peer};
use crate::model::names::is_subdomain;
use crate::model::raw;
use crate::model::router::{NodeRule, RestUrl};
use crate::model::topic;

/// `RuleEndpoint`
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) version: u64,
    pub(super) kind: Result<EndpointKind, Input>,
}

/// `spec.ruleEndpointType`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointKind {
    Rest,
    EventBus,
    /// The port of the service; only a rule with it as its target needs one.
    ServiceBus(Result<u16, Input>),
}

/// `Rule`
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) uid: Arc<str>,
    /// `resourceVersion`
    pub(super) version: u64,
    /// `creationTimestamp`: of two rules of one source the older is in force.
    pub(super) created: Box<str>,
    pub(super) spec: Result<Spec, Input>,
    pub(super) status: Status,
    /// The whole object, for people.
    pub(super) text: Arc<RawValue>,
}

type Resource = BTreeMap<Box<str>, Box<str>>;

/// `spec` of a rule.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) source: Box<str>,
    source_resource: Resource,
    pub(super) target: Box<str>,
    target_resource: Resource,
}

/// `status` of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) success_messages: Nullable<u64>,
    pub(super) fail_messages: Nullable<u64>,
    pub(super) errors: Nullable<Vec<Box<str>>>,
}

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) source: Source,
    pub(super) target: Target,
}

/// Where its messages come from. Only one rule has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Rest { namespace: Box<str>, pattern: Pattern },
    Node { node: Box<str>, rule: NodeRule },
}

/// Where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The topic that the node publishes on.
    EventBus {
        topic: Box<str>,
    },
    /// A service of the node.
    ServiceBus {
        port: u16,
        path: Box<str>,
    },
    Rest(RestUrl),
}

impl Endpoint {
    pub(super) fn read(object: &Object) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Raw {
            spec: Nullable<RawSpec>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct RawSpec {
            rule_endpoint_type: Nullable<Box<str>>,
            properties: Nullable<Resource>,
        }
        let read: Result<Raw, _> = serde_json::from_str(object.json.get());
        let kind =
            read.map_err(|error| Input::other(format!("spec: {error}"))).and_then(
                |raw| match &**raw.spec.rule_endpoint_type {
                    "rest" => Ok(EndpointKind::Rest),
                    "eventbus" => Ok(EndpointKind::EventBus),
                    "servicebus" => {
                        let port = text(&raw.spec.properties, "service_port").unwrap_or_default();
                        let number = port.parse().ok().filter(|port| *port != 0);
                        let wrong =
                            || Input::quoted(port, "1 to 65535").at("spec.properties.service_port");
                        Ok(EndpointKind::ServiceBus(number.ok_or_else(wrong)))
                    }
                    other => Err(Input::quoted(other, "rest, eventbus or servicebus")
                        .at("spec.ruleEndpointType")),
                },
            );
        Self { version: object.version, kind }
    }
}

fn text<'a>(resource: &'a Resource, key: &str) -> Option<&'a str> {
    resource.get(key).map(|value| &**value).filter(|value| !value.is_empty())
}

impl Rule {
    /// Reads a rule. One whose spec cannot be read is read as well: its status says why.
    pub(super) fn read(object: &Object) -> Result<Self, Peer> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            metadata: Metadata,
            #[serde(borrow, default)]
            spec: Option<&'a RawValue>,
            #[serde(borrow, default)]
            status: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            creation_timestamp: Nullable<Box<str>>,
        }
        let raw: Raw<'_> = serde_json::from_str(object.json.get())
            .map_err(|error| Peer::new(error.to_string()))?;
        let spec = raw.spec.ok_or_else(|| Input::other("got no spec"));
        let spec = spec.and_then(|spec| {
            let read = serde_json::from_str(spec.get());
            read.map_err(|error| Input::other(error.to_string()).at("spec"))
        });
        // A status that others wrote wrong begins anew.
        let status = raw.status.and_then(|it| serde_json::from_str(it.get()).ok());
        Ok(Self {
            uid: Arc::clone(&object.uid),
            version: object.version,
            created: raw.metadata.creation_timestamp.0,
            spec,
            status: status.unwrap_or_default(),
            text: Arc::clone(&object.json),
        })
    }

    /// What the rule asks for, with these endpoints of its namespace.
    pub(super) fn route<'a>(
        &self,
        namespace: &str,
        endpoint: &dyn Fn(&str) -> Option<&'a Endpoint>,
    ) -> Result<Route, Input> {
        let spec = self.spec.as_ref().map_err(Clone::clone)?;
        let find = |name: &str, field: &'static str| {
            let missing = || {
                Input::other(format!("there is no RuleEndpoint {name:?} in namespace {namespace}"))
                    .at(field)
            };
            let found = endpoint(name).ok_or_else(missing)?;
            found.kind.as_ref().map_err(|why| why.clone().at(format_args!("{field} {name}")))
        };
        let source = find(&spec.source, "spec.source")?;
        let target = find(&spec.target, "spec.target")?;
        let is_known = match (source, target) {
            (EndpointKind::Rest, EndpointKind::EventBus | EndpointKind::ServiceBus(_))
            | (EndpointKind::EventBus | EndpointKind::ServiceBus(_), EndpointKind::Rest) => true,
            (EndpointKind::Rest, EndpointKind::Rest)
            | (EndpointKind::EventBus | EndpointKind::ServiceBus(_), _) => false,
        };
        if !is_known {
            let got = format!("{} to {}", source.name(), target.name());
            let expected = "rest to eventbus or servicebus, or one of these to rest";
            return Err(Input::new(got, expected).at("a rule from"));
        }
        Ok(Route { source: spec.source(source, namespace)?, target: spec.target(target)? })
    }
}

impl EndpointKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::EventBus => "eventbus",
            Self::ServiceBus(_) => "servicebus",
        }
    }
}

impl Spec {
    fn source(&self, kind: &EndpointKind, namespace: &str) -> Result<Source, Input> {
        const PLACE: &str = "spec.sourceResource";
        let field = |key: &'static str| required(&self.source_resource, PLACE, key);
        let node = || {
            let node = field("node_name")?;
            let wrong = || Input::quoted(node, "the name of a node").at("node_name").at(PLACE);
            if is_subdomain(node) { Ok(Box::from(node)) } else { Err(wrong()) }
        };
        Ok(match kind {
            EndpointKind::Rest => {
                let pattern = Pattern::read(field("path")?);
                let pattern = pattern.map_err(|why| why.at("path").at(PLACE))?;
                Source::Rest { namespace: namespace.into(), pattern }
            }
            EndpointKind::EventBus => {
                let topic = topic_of(namespace, field("topic")?);
                let topic = topic.map_err(|why| why.at("topic").at(PLACE))?;
                Source::Node { node: node()?, rule: NodeRule::Topic(topic) }
            }
            EndpointKind::ServiceBus(_) => {
                let url = field("target_url")?;
                Source::Node { node: node()?, rule: NodeRule::Url(url.into()) }
            }
        })
    }

    fn target(&self, kind: &EndpointKind) -> Result<Target, Input> {
        const PLACE: &str = "spec.targetResource";
        let field = |key: &'static str| required(&self.target_resource, PLACE, key);
        Ok(match kind {
            EndpointKind::Rest => {
                let url = RestUrl::parse(field("resource")?);
                Target::Rest(url.map_err(|why| why.at("resource").at(PLACE))?)
            }
            EndpointKind::EventBus => {
                let topic = field("topic")?;
                topic::check_name(topic)
                    .map_err(|fault| Input::other(fault.to_string()).at("topic").at(PLACE))?;
                Target::EventBus { topic: topic.into() }
            }
            EndpointKind::ServiceBus(port) => {
                let path = field("path")?;
                let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
                if !is_path || path.contains('#') {
                    let wrong = Input::quoted(path, "a path of visible ASCII characters");
                    return Err(wrong.at("path").at(PLACE));
                }
                let slash = if path.starts_with('/') { "" } else { "/" };
                let path = format!("{slash}{path}").into();
                Target::ServiceBus { port: port.clone()?, path }
            }
        })
    }
}

fn required<'a>(
    resource: &'a Resource,
    place: &'static str,
    key: &'static str,
) -> Result<&'a str, Input> {
    text(resource, key).ok_or_else(|| Input::other(format!("got no {key}, expected one")).at(place))
}

/// The filter of a rule's topic: KubeEdge joins both as the paths of files.
fn topic_of(namespace: &str, topic: &str) -> Result<Box<str>, Input> {
    let wrong = |why: String| Err(Input::other(why));
    let levels: Vec<&str> = topic.split('/').filter(|level| !level.is_empty()).collect();
    if levels.is_empty() {
        return wrong(format!("got {topic:?}, expected a level at least"));
    }
    if levels.iter().any(|level| matches!(*level, "." | "..")) {
        return wrong(format!("got {topic:?}, expected no level . or .."));
    }
    let filter = format!("{namespace}/{}", levels.join("/"));
    match topic::check_filter(&filter) {
        Ok(()) => Ok(filter.into()),
        Err(fault) => wrong(fault.to_string()),
    }
}

/// The call that writes this status over the one of this version. `part`: the API server has it as
/// a part of its own.
pub(super) fn write(key: &Key, version: u64, status: &Status, part: Option<Subresource>) -> Call {
    #[derive(Serialize)]
    struct Patch<'a> {
        metadata: Metadata,
        status: &'a Status,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let metadata = Metadata { resource_version: version.to_string() };
    Call {
        verb: Verb::Patch(PatchType::Merge),
        kind: Kind::Rule,
        namespace: key.namespace.as_ref().into(),
        name: key.name.as_ref().into(),
        subresource: part,
        body: Some(raw::json(&Patch { metadata, status })),
    }
}
