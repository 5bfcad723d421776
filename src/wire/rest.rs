//! Kubernetes REST requests: calls ↔ method, path and query (Kubernetes' API conventions); written
//! by a client, read by a server.

use serde_json::value::RawValue;

use super::http1::call;
use super::http1::query::unescaped;
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::{Call, Kind, ListOptions, PatchType, Subresource, Verb};
use crate::model::application::Gvr;

/// A request's line and the type of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `GET`, `PATCH` …
    pub method: &'static str,
    /// With the query.
    pub path: String,
    pub content_type: &'static str,
}

/// The request of a call.
pub fn of_call(call: &Call) -> Target {
    let named = !matches!((call.verb, call.subresource), (Verb::Create, None) | (Verb::List, _));
    let mut path = collection(call.kind, &call.namespace);
    if named {
        path.push('/');
        path.push_str(&escaped(&call.name));
    }
    match call.subresource {
        None => {}
        Some(Subresource::Status) => path.push_str("/status"),
        Some(Subresource::Token) => path.push_str("/token"),
    }
    let (method, content_type) = match call.verb {
        Verb::Get => ("GET", JSON),
        Verb::List => {
            path.push_str(&query(call.body.as_deref()));
            ("GET", JSON)
        }
        Verb::Create => ("POST", JSON),
        Verb::Update => ("PUT", JSON),
        Verb::Patch(PatchType::Merge) => ("PATCH", MERGE),
        Verb::Patch(PatchType::Strategic) => ("PATCH", STRATEGIC),
        Verb::Delete => ("DELETE", JSON),
    };
    Target { method, path, content_type }
}

/// From a call's [`ListOptions`].
fn query(options: Option<&RawValue>) -> String {
    let options = options.map_or("{}", RawValue::get);
    let options: ListOptions = serde_json::from_str(options).unwrap_or_default();
    let mut query = format!("?limit={}", options.limit);
    for (key, value) in
        [("fieldSelector", options.field_selector), ("continue", options.r#continue)]
    {
        if !value.is_empty() {
            query.extend(["&", key, "=", &escaped(&value)]);
        }
    }
    query
}

/// The request of a call about a resource of any kind.
pub fn of_any_call(call: &AnyCall) -> Target {
    let mut path = match &call.target {
        AnyTarget::Path(path) => path.to_string(),
        AnyTarget::Object { resource, namespace, name, subresource } => {
            let mut path = any_collection(resource, namespace);
            for part in [name, subresource].into_iter().filter(|part| !part.is_empty()) {
                path.extend(["/", &escaped(part)]);
            }
            path
        }
    };
    for (at, (key, value)) in call.query.iter().enumerate() {
        path.extend([if at == 0 { "?" } else { "&" }, &escaped(key), "=", &escaped(value)]);
    }
    let (method, content_type) = match call.verb {
        AnyVerb::Get | AnyVerb::List => ("GET", JSON),
        AnyVerb::Create => ("POST", JSON),
        AnyVerb::Update => ("PUT", JSON),
        AnyVerb::Patch(content_type) => ("PATCH", content_type),
        AnyVerb::Delete => ("DELETE", JSON),
    };
    Target { method, path, content_type }
}

/// As [`of_list`], of any resource.
pub fn of_any_list(resource: &Gvr, limit: usize, next: &str) -> String {
    let mut path = format!("{}?limit={limit}", any_collection(resource, ""));
    if !next.is_empty() {
        path.extend(["&continue=", &escaped(next)]);
    }
    path
}

/// As [`of_watch`], of any resource.
pub fn of_any_watch(resource: &Gvr, version: &str, timeout_s: u64) -> String {
    format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_s}&resourceVersion={}",
        any_collection(resource, ""),
        escaped(version)
    )
}

fn any_collection(resource: &Gvr, namespace: &str) -> String {
    let Gvr { group, version, resource } = resource;
    let mut path = if group.is_empty() { "/api".to_owned() } else { "/apis/".to_owned() };
    path.push_str(&escaped(group));
    path.extend(["/", &escaped(version)]);
    if !namespace.is_empty() {
        path.extend(["/namespaces/", &escaped(namespace)]);
    }
    path.extend(["/", &escaped(resource)]);
    path
}

/// The path of a page of a list; `next`: the `continue` of the page before, empty: the first.
pub fn of_list(kind: Kind, limit: usize, next: &str) -> String {
    let mut path = format!("{}?limit={limit}{}", collection(kind, ""), selector(kind));
    if !next.is_empty() {
        path.push_str("&continue=");
        path.push_str(&escaped(next));
    }
    path
}

/// The path of a watch from this version on.
pub fn of_watch(kind: Kind, version: &str, timeout_s: u64) -> String {
    format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_s}&resourceVersion={}{}",
        collection(kind, ""),
        escaped(version),
        selector(kind)
    )
}

fn selector(kind: Kind) -> String {
    kind.selector().map_or_else(String::new, |(key, value)| format!("&{key}={}", escaped(value)))
}

fn collection(kind: Kind, namespace: &str) -> String {
    let version = kind.api_version();
    let mut path = if version.contains('/') { "/apis/" } else { "/api/" }.to_owned();
    path.push_str(version);
    if kind.is_namespaced() && !namespace.is_empty() {
        path.push_str("/namespaces/");
        path.push_str(&escaped(namespace));
    }
    path.push('/');
    path.push_str(kind.plural());
    path
}

/// A request to an API server.
#[derive(Clone, Debug)]
pub enum ApiRequest {
    /// About one object.
    Call(Box<Call>),
    /// All objects of a kind.
    List {
        kind: Kind,
        /// Empty: in all namespaces.
        namespace: String,
        /// The query has a selector.
        selected: bool,
    },
    /// Changes since a version.
    Watch {
        kind: Kind,
        /// `resourceVersion`; empty: from now on.
        version: String,
    },
}

/// Reads a request. An error is a status and one line for the operator.
pub fn read(request: &call::Call) -> Result<ApiRequest, (u16, String)> {
    let nothing = || (404, format!("the server could not find {}", request.path));
    let mut parts = request.path.trim_matches('/').split('/');
    let version = match (parts.next(), parts.next()) {
        (Some("api"), Some(version)) => version.to_owned(),
        (Some("apis"), Some(group)) => {
            format!("{group}/{}", parts.next().ok_or_else(nothing)?)
        }
        _ => return Err(nothing()),
    };
    let rest: Vec<&str> = parts.collect();
    let (namespace, rest) = match rest[..] {
        ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() => (namespace, rest),
        ref rest => ("", rest),
    };
    let [plural, rest @ ..] = rest else { return Err(nothing()) };
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.plural() == *plural && kind.api_version() == version)
        .ok_or_else(nothing)?;
    let (name, part) = match rest {
        [] => ("", None),
        [name] => (*name, None),
        [name, "status"] => (*name, Some(Subresource::Status)),
        [name, "token"] if kind == Kind::ServiceAccount => (*name, Some(Subresource::Token)),
        _ => return Err(nothing()),
    };
    let verb = match &*request.method {
        "GET" if name.is_empty() => return Ok(of_all(request, kind, namespace)),
        "GET" => Verb::Get,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch(match request.header("content-type") {
            MERGE => PatchType::Merge,
            STRATEGIC => PatchType::Strategic,
            other => return Err((415, format!("got {other}, expected a kind of patch"))),
        }),
        "DELETE" if !name.is_empty() => Verb::Delete,
        other => return Err((405, format!("got {other}, expected another method"))),
    };
    let body = match &*request.body {
        [] => None,
        body => {
            let text = String::from_utf8_lossy(body).into_owned();
            let body = RawValue::from_string(text);
            Some(body.map_err(|error| (400, format!("the body is no JSON: {error}")))?)
        }
    };
    let (namespace, name) = (unescaped(namespace).into(), unescaped(name).into());
    Ok(ApiRequest::Call(Box::new(Call { verb, kind, namespace, name, subresource: part, body })))
}

fn of_all(request: &call::Call, kind: Kind, namespace: &str) -> ApiRequest {
    let yes = |key: &str| request.query_value(key).is_some_and(|it| it == "true" || it == "1");
    if yes("watch") {
        let version = request.query_value("resourceVersion").unwrap_or_default();
        return ApiRequest::Watch { kind, version };
    }
    let selected =
        ["labelSelector", "fieldSelector"].iter().any(|it| request.query_value(it).is_some());
    ApiRequest::List { kind, namespace: unescaped(namespace), selected }
}

/// Escapes characters that are not allowed in a path or a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
            escaped.push(digit(byte >> 4));
            escaped.push(digit(byte & 0xf));
        }
    }
    escaped
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(verb: Verb, kind: Kind, namespace: &str, part: Option<Subresource>) -> Call {
        let (namespace, name) = (namespace.into(), "a.b".into());
        Call { verb, kind, namespace, name, subresource: part, body: None }
    }

    #[test]
    fn what_is_written_is_read() {
        for (call, expected) in [
            (ask(Verb::Get, Kind::Node, "", None), "GET /api/v1/nodes/a.b"),
            (ask(Verb::Create, Kind::Pod, "x", None), "POST /api/v1/namespaces/x/pods"),
            (
                ask(Verb::Patch(PatchType::Strategic), Kind::Pod, "x", Some(Subresource::Status)),
                "PATCH /api/v1/namespaces/x/pods/a.b/status",
            ),
            (
                ask(Verb::Update, Kind::Lease, "kube-node-lease", None),
                "PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a.b",
            ),
            (
                ask(Verb::Create, Kind::ServiceAccount, "x", Some(Subresource::Token)),
                "POST /api/v1/namespaces/x/serviceaccounts/a.b/token",
            ),
            (
                ask(Verb::Delete, Kind::ClusterObjectSync, "", None),
                "DELETE /apis/reliablesyncs.kubeedge.io/v1alpha1/clusterobjectsyncs/a.b",
            ),
        ] {
            let target = of_call(&call);
            assert_eq!(format!("{} {}", target.method, target.path), expected);
            let request = call::Call {
                method: target.method.to_owned(),
                path: target.path,
                headers: vec![("content-type".to_owned(), target.content_type.to_owned())],
                ..call::Call::default()
            };
            let Ok(ApiRequest::Call(read)) = read(&request) else { panic!("{expected}") };
            assert_eq!((read.verb, read.kind), (call.verb, call.kind));
            assert_eq!((&read.namespace, read.subresource), (&call.namespace, call.subresource));
            let named =
                if call.verb == Verb::Create && call.subresource.is_none() { "" } else { "a.b" };
            assert_eq!(&*read.name, named);
        }
    }

    #[test]
    fn lists_and_watches_say_what_they_select() {
        let list = of_list(Kind::Pod, 500, "a/b=");
        assert_eq!(
            list,
            "/api/v1/pods?limit=500&fieldSelector=spec.nodeName%21%3D&continue=a%2Fb%3D"
        );
        let watch = of_watch(Kind::Node, "7", 300);
        let (path, query) = watch.split_once('?').expect("a query");
        let request = call::Call {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            ..call::Call::default()
        };
        let Ok(ApiRequest::Watch { kind: Kind::Node, version }) = read(&request) else { panic!() };
        assert_eq!(version, "7");
        assert_eq!(
            request.query_value("labelSelector").as_deref(),
            Some("node-role.kubernetes.io/edge")
        );
    }

    #[test]
    fn a_list_for_somebody_carries_what_he_asked_for() {
        let body = r#"{"fieldSelector":"spec.nodeName=a","limit":7,"continue":"x="}"#;
        let body = RawValue::from_string(body.to_owned()).expect("JSON");
        let call = Call { body: Some(body), ..ask(Verb::List, Kind::Pod, "", None) };
        let target = of_call(&call);
        assert_eq!(
            (target.method, &*target.path),
            ("GET", "/api/v1/pods?limit=7&fieldSelector=spec.nodeName%3Da&continue=x%3D")
        );
    }

    #[test]
    fn calls_about_any_resource_have_the_paths_of_the_api() {
        let object = |group: &str, resource: &str, namespace: &str, name: &str, part: &str| {
            let resource = Gvr::new(group, "v1", resource);
            let [namespace, name, subresource] = [namespace, name, part].map(Box::from);
            AnyTarget::Object { resource, namespace, name, subresource }
        };
        for (verb, target, query, expected) in [
            (
                AnyVerb::List,
                object("", "services", "", "", ""),
                "a=b,c",
                "GET /api/v1/services?q=a%3Db%2Cc",
            ),
            (
                AnyVerb::Patch(MERGE),
                object("apps", "deployments", "n", "a", "scale"),
                "",
                "PATCH /apis/apps/v1/namespaces/n/deployments/a/scale",
            ),
            (
                AnyVerb::Get,
                object("rbac.authorization.k8s.io", "clusterroles", "", "system:node", ""),
                "",
                "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            ),
            (AnyVerb::Get, AnyTarget::Path("/readyz".into()), "", "GET /readyz"),
        ] {
            let query = Some(("q".into(), query.into())).filter(|_| !query.is_empty());
            let query = query.into_iter().collect();
            let call = AnyCall { verb, target, query, body: Box::default(), node: None };
            let target = of_any_call(&call);
            assert_eq!(format!("{} {}", target.method, target.path), expected);
        }
        let services = Gvr::new("", "v1", "services");
        assert_eq!(of_any_list(&services, 5, "x="), "/api/v1/services?limit=5&continue=x%3D");
        let watch = of_any_watch(&services, "7", 9);
        assert!(watch.starts_with("/api/v1/services?watch=true&") && watch.ends_with("Version=7"));
    }

    #[test]
    fn what_nobody_has_is_not_found() {
        for (method, path, status) in [
            ("GET", "/api/v1/services", 404),
            ("GET", "/version", 404),
            ("GET", "/apis/apps/v1/nodes", 404),
            ("DELETE", "/api/v1/nodes", 405),
            ("PATCH", "/api/v1/nodes/a", 415),
        ] {
            let request = call::Call {
                method: method.to_owned(),
                path: path.to_owned(),
                ..call::Call::default()
            };
            assert_eq!(read(&request).expect_err(path).0, status, "{path}");
        }
    }
}
