//! Requests of clients (Kubernetes' API conventions; metaserver.md, sections 3, 7 to 9 and 11).
//!
//! Only what is served is read: the resources of the settings, in JSON. What changes an object is
//! carried as text, to the cloud.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{bad, is_segment, json_text, json_type, media_type, not_found};
use super::{discovery, people, selector};
use crate::limits::METASERVER_WATCH_S_MAX;
use crate::model::application::{Gvr, Scope};
use crate::model::base64;
#[cfg(feature = "devices")]
use crate::model::metaserver::DevicePut;
use crate::model::metaserver::{
    Call, Failure, Form, MetaServerSettings, Recency, Release, Served, Watch, Write,
};
use crate::wire::http1::call;
use crate::wire::http1::query::{pairs, unescaped_path};

/// What a request asks for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The answer is known: its media type and its body.
    Known(&'static str, String),
    Call(Call),
}

/// Reads a request.
pub fn read(request: &call::Call, settings: &MetaServerSettings) -> Result<Asked, Failure> {
    let is_get = request.method == "GET";
    if is_get && let Some((kind, body)) = discovery::answer(&request.path, settings) {
        return Ok(Asked::Known(kind, body));
    }
    if let Some(own) = own(request)? {
        return Ok(Asked::Call(own));
    }
    if let Some(own) = people::read(request, settings)? {
        return Ok(Asked::Call(own));
    }
    let target = Target::read(&request.path, settings)?;
    let query: Vec<(String, String)> = pairs(&request.query).collect();
    let query = Query(&query);
    if is_get {
        if !target.subresource.is_empty() {
            return Err(not_found(&request.path));
        }
        let form = form(request.header("accept"))?;
        return reading(target, &query, form).map(Asked::Call);
    }
    #[cfg(feature = "devices")]
    if let Some(put) = device_put(request, &target, &query, settings)? {
        return Ok(Asked::Call(put));
    }
    if !settings.has_writes() {
        let message = format!(
            "{} of {} is forbidden: this server is read-only \
             (modules.metaManager.metaServer.writes)",
            request.method, target.served.gvr.resource
        );
        return Err(Failure::new(403, "Forbidden", message));
    }
    writing(request, &target, &query).map(|write| Asked::Call(Call::Write(Box::new(write))))
}

/// The node's own requests, which shadow objects of these names (section 3).
fn own(request: &call::Call) -> Result<Option<Call>, Failure> {
    if request.method != "POST" {
        return Ok(None);
    }
    let body = || String::from_utf8_lossy(&request.body).trim().to_owned();
    let release = match request.path.trim_end_matches('/') {
        "/api/v1/pods/unhold-upgrade" => {
            let text = body();
            let parts: Vec<&str> = text.split('/').collect();
            let [namespace, name] = parts[..] else {
                return Err(bad("invalid format, expected <namespace>/<name>"));
            };
            Release::Pod { namespace: namespace.into(), name: name.into() }
        }
        "/api/v1/nodes/unhold-upgrade" => {
            let node = body();
            if node.is_empty() {
                return Err(bad("node name required in body"));
            }
            Release::Node(node.into())
        }
        "/api/v1/taskupgrade/confirm-upgrade" => return Ok(Some(Call::ConfirmUpgrade)),
        _ => return Ok(None),
    };
    Ok(Some(Call::Release(release)))
}

/// What a path names.
struct Target {
    served: Arc<Served>,
    namespace: Box<str>,
    /// Empty: the collection.
    name: Box<str>,
    subresource: Box<str>,
    /// The old form of a watch: `/api/v1/watch/…`
    is_watch: bool,
}

impl Target {
    fn read(path: &str, settings: &MetaServerSettings) -> Result<Self, Failure> {
        let missing = || not_found(path);
        let parts: Vec<String> = path.trim_matches('/').split('/').map(unescaped_path).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts[..] {
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return Err(missing()),
        };
        let (is_watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, resource, rest @ ..]
                if !matches!(*resource, "status" | "finalize") =>
            {
                (*namespace, [&[*resource], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (resource, name, subresource) = match rest[..] {
            [resource] => (resource, "", ""),
            [resource, name] => (resource, name, ""),
            [resource, name, subresource] => (resource, name, subresource),
            _ => return Err(missing()),
        };
        let gvr = Gvr::new(group, version, resource);
        let served = settings.find(&gvr).ok_or_else(missing)?.clone();
        let is_placed = served.namespaced || namespace.is_empty();
        let needs_place = served.namespaced && !name.is_empty() && namespace.is_empty();
        let is_name = |it: &str| it.is_empty() || is_segment(it);
        if !is_placed || needs_place || ![namespace, name, subresource].into_iter().all(is_name) {
            return Err(missing());
        }
        let (namespace, name, subresource) = (namespace.into(), name.into(), subresource.into());
        Ok(Self { served, namespace, name, subresource, is_watch })
    }

    fn key(&self) -> Box<str> {
        self.served.gvr.key(&self.namespace, &self.name).into()
    }
}

/// The decoded pairs of a query.
struct Query<'a>(&'a [(String, String)]);

impl Query<'_> {
    /// Empty where it is absent.
    fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    fn is_true(&self, key: &str) -> bool {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.is_some_and(|(_, value)| !matches!(&**value, "false" | "0"))
    }
}

fn reading(target: Target, query: &Query<'_>, form: Form) -> Result<Call, Failure> {
    let is_watch = target.is_watch || query.is_true("watch");
    let Target { served, namespace, name, .. } = target;
    if !is_watch && !name.is_empty() {
        return Ok(Call::Get { served, namespace, name, form });
    }
    let mut scope = Scope { namespace, name, ..Scope::all(served.gvr.clone()) };
    scope.labels = selector::labels(query.get("labelSelector"))?;
    selector::fields(query.get("fieldSelector"), &mut scope)?;
    let version = query.get("resourceVersion");
    let number = match version {
        "" => 0,
        text => text.parse::<u64>().map_err(|_| {
            bad(format!("Invalid value: {text:?}: resourceVersion must be a number"))
        })?,
    };
    if !is_watch {
        // A list goes on from a page of the cloud's, which was given out whole.
        if !query.get("continue").is_empty() {
            let message = "the continue token is not known: lists are given out whole";
            return Err(Failure::new(410, "Expired", message));
        }
        let recency = if version.is_empty() { Recency::Latest } else { Recency::Any };
        return Ok(Call::List { scope, recency, form });
    }
    let timeout_s = match query.get("timeoutSeconds") {
        "" => None,
        text => {
            let seconds = text.parse::<u32>().map_err(|_| {
                bad(format!("got timeoutSeconds {text:?}, expected a whole number"))
            })?;
            Some(seconds.min(METASERVER_WATCH_S_MAX)).filter(|seconds| *seconds > 0)
        }
    };
    Ok(Call::Watch(Watch {
        scope,
        version: number,
        timeout_s,
        bookmarks: query.is_true("allowWatchBookmarks"),
        initial_events: query.is_true("sendInitialEvents"),
        form,
    }))
}

/// The first of the acceptable forms that is served (section 3).
fn form(accept: &str) -> Result<Form, Failure> {
    for range in accept.split(',').map(str::trim) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        if !matches!(kind, "" | "*/*" | "application/*" | "application/json") {
            continue;
        }
        let parameter = |key: &str| {
            let found = parts.clone().find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default()
        };
        match (parameter("as"), parameter("g"), parameter("v")) {
            ("", ..) => return Ok(Form::Whole),
            ("Table", "meta.k8s.io", "v1") => return Ok(Form::Table),
            _ => {}
        }
    }
    let message = format!("got Accept: {accept}, expected application/json among these");
    Err(Failure::new(406, "NotAcceptable", message))
}

// ---- requests that change something ----

fn writing(request: &call::Call, target: &Target, query: &Query<'_>) -> Result<Write, Failure> {
    let named = !target.name.is_empty();
    let subresource = target.subresource.clone();
    let (key, is_status) = (target.key(), &*target.subresource == "status");
    if named && !subresource.is_empty() && !is_status {
        return Err(not_found(&request.path));
    }
    if request.method != "PATCH" && !request.body.is_empty() {
        json_type(request)?;
    }
    let (verb, options, body) = match &*request.method {
        "POST" if !named => {
            ("create", options(query), Some(object(&request.body, &target.served)?))
        }
        "PUT" if named => {
            let verb = if is_status { "updatestatus" } else { "update" };
            (verb, options(query), Some(object(&request.body, &target.served)?))
        }
        "PATCH" if named => ("patch", patch(request, target, query)?, None),
        "DELETE" if named && !is_status => {
            let given = json_text(&request.body)?;
            ("delete", given.map_or_else(|| options(query), str::to_owned), None)
        }
        other => {
            let message = format!("got {other}, expected another method for {}", request.path);
            return Err(Failure::new(405, "MethodNotAllowed", message));
        }
    };
    let subresource = if verb == "patch" { Box::default() } else { subresource };
    let options = options.into();
    Ok(Write { key, verb, options, body, subresource, is_of_status: is_status })
}

/// KubeEdge's update of a device on the node alone (section 11.4); `None`: it is another request.
/// Where every program may write to the cloud, and none may do this, it is a write like others.
#[cfg(feature = "devices")]
fn device_put(
    request: &call::Call,
    target: &Target,
    query: &Query<'_>,
    settings: &MetaServerSettings,
) -> Result<Option<Call>, Failure> {
    let is_whole = !target.name.is_empty() && target.subresource.is_empty();
    let is_device = target.served.gvr.is("devices.kubeedge.io", "devices");
    let may = settings.requires_authorization || settings.keadm_ctl;
    if request.method != "PUT" || !is_whole || !is_device || (settings.writes && !may) {
        return Ok(None);
    }
    if !may {
        let message = "PUT of a device changes it on this node alone, and is forbidden: every \
                       program of this machine, and every pod on its network, could do it \
                       (modules.metaManager.metaServer.keadmCtl)";
        return Err(Failure::new(403, "Forbidden", message));
    }
    json_type(request)?;
    if !query.get("dryRun").is_empty() {
        return Err(bad("got dryRun, expected none: a device on this node is changed, or not"));
    }
    let text = object(&request.body, &target.served)?;
    let (namespace, name) = (target.namespace.clone(), target.name.clone());
    Ok(Some(Call::EditDevice(Box::new(DevicePut { namespace, name, text }))))
}

/// The options of a create, an update or a delete, from its query.
fn options(query: &Query<'_>) -> String {
    let mut options = json!({});
    for key in ["fieldManager", "fieldValidation", "propagationPolicy"] {
        if !query.get(key).is_empty() {
            options[key] = query.get(key).into();
        }
    }
    if !query.get("dryRun").is_empty() {
        options["dryRun"] = json!([query.get("dryRun")]);
    }
    if let Ok(seconds) = query.get("gracePeriodSeconds").parse::<u32>() {
        options["gracePeriodSeconds"] = seconds.into();
    }
    if query.0.iter().any(|(key, _)| key == "force") {
        options["force"] = query.is_true("force").into();
    }
    options.to_string()
}

fn patch(request: &call::Call, target: &Target, query: &Query<'_>) -> Result<String, Failure> {
    let kind = media_type(request);
    let known = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    if !known.contains(&kind) {
        let message = format!("got Content-Type: {kind}, expected {}", known.join(" or "));
        return Err(Failure::new(415, "UnsupportedMediaType", message));
    }
    let parts: &[&str] = if target.subresource.is_empty() { &[] } else { &[&target.subresource] };
    let given: Value = serde_json::from_str(&options(query)).unwrap_or_default();
    Ok(json!({
        "Name": target.name, "PatchType": kind, "Data": base64::encode(&request.body),
        "Options": given, "Subresources": parts,
    })
    .to_string())
}

/// What an object is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: Box<str>,
    kind: Box<str>,
}

/// The object of a create or an update.
fn object(body: &[u8], served: &Served) -> Result<Box<str>, Failure> {
    let text = json_text(body)?.ok_or_else(|| bad("got no body, expected an object"))?;
    let head: Head = serde_json::from_str(text)
        .map_err(|_| bad("got a body without apiVersion and kind, expected an object"))?;
    let expected = served.gvr.api_version();
    if *head.api_version != *expected || head.kind != served.kind {
        let (got, kind) = (&head.api_version, &head.kind);
        return Err(bad(format!("got {kind} of {got}, expected {} of {expected}", served.kind)));
    }
    Ok(text.into())
}
