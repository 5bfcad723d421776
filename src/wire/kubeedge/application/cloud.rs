//! The cloud's side: reads the requests of a node's `MetaServer`, and writes their answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::limits::{LISTENERS_OF_NODE_MAX, SELECTOR_BYTES_MAX};
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb, Parameters};
use crate::model::application::Gvr;
use crate::model::base64;
use crate::model::cloud_message::Failure;
use crate::model::edge_message::{ApplicationRequest, Requested, WatchRequest};
use crate::model::error::Peer;
use crate::model::selector::{FieldSelector, LabelSelector};

/// As Go writes it; other keys are kept in the whole text alone.
struct Request {
    id: Value,
    verb: Value,
    key: Value,
    option: Value,
    body: Value,
    subresource: Value,
}

/// One request; an error if there is nothing to answer.
pub(in crate::wire::kubeedge) fn read(text: &str) -> Result<ApplicationRequest, Peer> {
    let wrong = || malformed("an Application");
    let request: Map<String, Value> = serde_json::from_str(text).map_err(|_| wrong())?;
    let request = Request::of(&request);
    let id = request.id.as_str().ok_or_else(wrong)?.into();
    let requested = request.requested().map_err(|why| bad_request(&why));
    Ok(ApplicationRequest { id, request: text.into(), requested })
}

/// All watches of a node, by their ids.
pub(in crate::wire::kubeedge) fn read_sync(text: &str) -> Result<Vec<ApplicationRequest>, Peer> {
    let wrong = || malformed("Applications by their ids");
    let all: BTreeMap<String, Map<String, Value>> =
        serde_json::from_str(text).map_err(|_| wrong())?;
    let watches = all.into_iter().enumerate().map(|(at, (id, request))| {
        // There is an answer for each of them, so none is left out.
        let requested = if at < LISTENERS_OF_NODE_MAX {
            let request = Request::of(&request);
            request.requested().map_err(|why| bad_request(&why))
        } else {
            let why = format!("got more than {LISTENERS_OF_NODE_MAX} watches of one node");
            Err(Failure::new(429, "TooManyRequests", why))
        };
        let request = Value::Object(request).to_string().into();
        ApplicationRequest { id: id.into(), request, requested }
    });
    Ok(watches.collect())
}

fn malformed(expected: &str) -> Peer {
    Peer::new(format!("got a malformed request of MetaServer, expected {expected}"))
}

fn bad_request(why: &Peer) -> Failure {
    Failure::new(400, "BadRequest", why.to_string())
}

impl Request {
    fn of(map: &Map<String, Value>) -> Self {
        let field = |key: &str| map.get(key).cloned().unwrap_or_default();
        Self {
            id: field("ID"),
            verb: field("Verb"),
            key: field("Key"),
            option: field("Option"),
            body: field("ReqBody"),
            subresource: field("Subresource"),
        }
    }

    fn requested(&self) -> Result<Requested, Peer> {
        let key = self.key.as_str().unwrap_or_default();
        let verb = self.verb.as_str().unwrap_or_default();
        let target = target(key, self.subresource.as_str().unwrap_or_default())?;
        let option = decoded(&self.option, "Option")?;
        let option: Value = match &*option {
            [] => Value::Null,
            json => serde_json::from_slice(json).map_err(|error| Peer::at("Option", error))?,
        };
        if verb == "watch" {
            return watch(target, &option).map(|watch| Requested::Watch(Box::new(watch)));
        }
        let body = decoded(&self.body, "ReqBody")?;
        let call = call(verb, &target, &option, body)?;
        Ok(Requested::Call(Box::new(call)))
    }
}

/// Base64; `null` is empty.
fn decoded(value: &Value, what: &str) -> Result<Box<[u8]>, Peer> {
    let bytes = base64::decode(value.as_str().unwrap_or_default());
    let bytes = bytes.ok_or_else(|| Peer::new(format!("{what}: expected base64")))?;
    Ok(bytes.into())
}

/// A key is `/<group|core>/<version>/<resource>/<namespace|null>/<name|null>`, or a path.
fn target(key: &str, subresource: &str) -> Result<AnyTarget, Peer> {
    let wrong = || {
        let got: String = key.chars().take(256).collect();
        Peer::new(format!("Key: got {got:?}, expected /group/version/resource/namespace/name"))
    };
    let path = key.trim_end_matches('/');
    if is_passed_through(path) {
        return Ok(AnyTarget::Path(path.into()));
    }
    let mut parts = key.trim_matches('/').split('/').map(|part| match part {
        "null" => "",
        part => part,
    });
    let mut part = || parts.next().unwrap_or_default();
    let [group, version, resource, namespace, name] = [part(), part(), part(), part(), part()];
    let group = if group == "core" { "" } else { group };
    let is_whole = parts.next().is_none() && !version.is_empty() && !resource.is_empty();
    let lower = [group, version, resource, namespace, subresource].into_iter().all(is_lower);
    if !is_whole || !lower || !is_path_part(name) {
        return Err(wrong());
    }
    // The namespace of a Namespace is not in its path.
    let namespace = if (group, resource) == ("", "namespaces") { "" } else { namespace };
    Ok(AnyTarget::Object {
        resource: Gvr::new(group, version, resource),
        namespace: namespace.into(),
        name: name.into(),
        subresource: subresource.into(),
    })
}

/// Paths without a resource that may be read (section 10).
fn is_passed_through(path: &str) -> bool {
    if ["/version", "/healthz", "/livez", "/readyz", "/api", "/apis"].contains(&path)
        || ["/openapi/v2", "/openapi/v3"].contains(&path)
    {
        return true;
    }
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        // Otherwise it is a key of the group «api»: there is none without a dot.
        ["", "api", version] => is_word(version),
        ["", "apis", group] => is_word(group),
        ["", "apis", group, version] => is_word(group) && is_word(version),
        _ => false,
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && is_lower(text)
}

/// The characters of groups, versions, resources and namespaces.
fn is_lower(text: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    is_path_part(text) && text.bytes().all(is_part)
}

/// Names may have more characters: those of `ClusterRoles` have colons.
fn is_path_part(text: &str) -> bool {
    text.len() <= 253 && text != "." && text != ".." && !text.contains(['/', '%'])
}

fn call(verb: &str, target: &AnyTarget, option: &Value, body: Box<[u8]>) -> Result<AnyCall, Peer> {
    let is_named = matches!(target, AnyTarget::Object { name, .. } if !name.is_empty());
    let is_path = matches!(target, AnyTarget::Path(_));
    let wrong = |expected: &str| Peer::new(format!("Verb: got {verb:?}, expected {expected}"));
    let of = |any: AnyVerb, option: &Value| {
        let (query, target) = (query(option)?, target.clone());
        Ok(AnyCall { verb: any, target, query, body: Box::default(), node: None })
    };
    Ok(match verb {
        "get" if is_path || is_named => of(AnyVerb::Get, option)?,
        _ if is_path => return Err(wrong("get of a path")),
        "list" => {
            // A name in a list is a field selector, which the option has as well.
            let mut call = of(AnyVerb::List, option)?;
            if let AnyTarget::Object { name, .. } = &mut call.target {
                *name = Box::default();
            }
            call
        }
        "create" => AnyCall { body, ..of(AnyVerb::Create, option)? },
        "update" if is_named => AnyCall { body, ..of(AnyVerb::Update, option)? },
        "updatestatus" if is_named => {
            let mut call = AnyCall { body, ..of(AnyVerb::Update, option)? };
            if let AnyTarget::Object { subresource, .. } = &mut call.target {
                *subresource = "status".into();
            }
            call
        }
        "delete" if is_named => {
            let body = if option.is_object() { option.to_string() } else { "{}".to_owned() };
            let body = body.into_bytes().into();
            AnyCall { body, ..of(AnyVerb::Delete, &Value::Null)? }
        }
        "patch" if is_named => patch(of(AnyVerb::Patch(MERGE), &option["Options"])?, option)?,
        _ => return Err(wrong("get, list, watch, create, update, updatestatus, patch or delete")),
    })
}

/// The option of a patch has the patch itself.
fn patch(mut call: AnyCall, option: &Value) -> Result<AnyCall, Peer> {
    let got = option["PatchType"].as_str().unwrap_or_default();
    let known = PATCHES.iter().find(|known| **known == got);
    let known = known
        .ok_or_else(|| Peer::new(format!("PatchType: got {got:?}, expected one of {PATCHES:?}")))?;
    call.verb = AnyVerb::Patch(known);
    call.body = decoded(&option["Data"], "Data")?;
    let of_it = option["Subresources"][0].as_str().unwrap_or_default();
    if let AnyTarget::Object { subresource, .. } = &mut call.target {
        if !is_lower(of_it) {
            return Err(Peer::new("Subresources: expected a lower-case word"));
        }
        if subresource.is_empty() {
            *subresource = of_it.into();
        }
    }
    Ok(call)
}

fn watch(target: AnyTarget, option: &Value) -> Result<WatchRequest, Peer> {
    let AnyTarget::Object { resource, namespace, name, .. } = target else {
        return Err(Peer::new("Verb: got \"watch\", expected get of a path"));
    };
    let text = |key: &str| option[key].as_str().unwrap_or_default();
    let selectors = ["labelSelector", "fieldSelector"].map(|key| (key, text(key)));
    let query = selectors.iter().filter(|(_, value)| !value.is_empty());
    Ok(WatchRequest {
        resource,
        namespace,
        name,
        labels: LabelSelector::parse(text("labelSelector"))?,
        fields: FieldSelector::parse(text("fieldSelector"))?,
        query: query.map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    })
}

/// The options that are parameters of a request. Those of the stream between a client and its
/// `MetaServer` are left out: `watch`, `timeoutSeconds`, `allowWatchBookmarks`.
fn query(option: &Value) -> Result<Parameters, Peer> {
    let mut query = Vec::new();
    for name in PARAMETERS {
        let value = match &option[name] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(true) => "true".to_owned(),
            // `dryRun` has one value.
            Value::Array(all) => all.first().and_then(Value::as_str).unwrap_or_default().into(),
            Value::Null | Value::Bool(false) | Value::Object(_) => continue,
        };
        if value.len() > SELECTOR_BYTES_MAX {
            // Without it, it would be another request.
            let (got, most) = (value.len(), SELECTOR_BYTES_MAX);
            return Err(Peer::new(format!("{name}: got {got} bytes, expected {most} at most")));
        }
        if !value.is_empty() {
            query.push((name.into(), value.into()));
        }
    }
    Ok(query)
}

/// The answer: a copy of the request with the result in it. `body`: the object or the list; empty:
/// there is none.
pub(in crate::wire::kubeedge) fn answer(
    request: &str,
    result: Result<&str, Box<serde_json::value::RawValue>>,
) -> Value {
    // It was read when it came.
    let mut answer: Map<String, Value> = serde_json::from_str(request).unwrap_or_default();
    // It is not needed for the answer, and may be a whole object.
    answer.remove("ReqBody");
    match result {
        Ok(body) => {
            answer.insert("Status".to_owned(), json!("Approved"));
            if !body.is_empty() {
                answer.insert("RespBody".to_owned(), base64::encode(body.as_bytes()).into());
            }
        }
        Err(status) => {
            answer.insert("Status".to_owned(), json!("Rejected"));
            answer.insert("Error".to_owned(), json!({"ErrStatus": status}));
        }
    }
    Value::Object(answer)
}

const MERGE: &str = "application/merge-patch+json";
const PATCHES: [&str; 4] = [
    MERGE,
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const PARAMETERS: [&str; 11] = [
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, key: &str, option: &Value) -> Value {
        json!({"ID": "i", "Verb": verb, "Key": key, "Subresource": "",
            "Option": base64::encode(option.to_string().as_bytes()), "ReqBody": null})
    }

    fn requested(verb: &str, key: &str, option: &Value) -> Result<Requested, Failure> {
        let request = request(verb, key, option).to_string();
        read(&request).expect("an Application").requested
    }

    fn call_of(verb: &str, key: &str, option: &Value) -> AnyCall {
        match requested(verb, key, option) {
            Ok(Requested::Call(call)) => *call,
            other => panic!("{other:?}"),
        }
    }

    fn why(verb: &str, key: &str, option: &Value) -> String {
        match requested(verb, key, option) {
            Err(Failure::Own { code: 400, message, .. }) => message.into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_list_has_its_parameters_and_not_those_of_the_stream() {
        let option = json!({"labelSelector": "a=b", "limit": 500, "timeoutSeconds": 7,
            "watch": false, "resourceVersion": "0"});
        let call = call_of("list", "/apps/v1/deployments/n/null", &option);
        let AnyTarget::Object { resource, namespace, name, .. } = &call.target else { panic!() };
        assert_eq!(*resource, Gvr::new("apps", "v1", "deployments"));
        assert_eq!((&**namespace, &**name), ("n", ""));
        let names: Vec<&str> = call.query.iter().map(|(key, _)| &**key).collect();
        assert_eq!(names, ["labelSelector", "resourceVersion", "limit"]);
    }

    #[test]
    fn a_list_whose_selector_is_too_long_is_refused() {
        let selector = |bytes: usize| json!({"labelSelector": "a".repeat(bytes)});
        let key = "/core/v1/services/null/null";
        assert_eq!(call_of("list", key, &selector(SELECTOR_BYTES_MAX)).query.len(), 1);
        let got = why("list", key, &selector(SELECTOR_BYTES_MAX + 1));
        assert!(got.starts_with("labelSelector: got 4097 bytes"), "{got}");
    }

    #[test]
    fn each_verb_has_its_body() {
        let option = json!({"propagationPolicy": "Foreground"});
        let delete = call_of("delete", "/core/v1/configmaps/n/a", &option);
        assert_eq!(
            (delete.verb, &*delete.body),
            (AnyVerb::Delete, &*option.to_string().into_bytes())
        );
        let option = json!({"Name": "a", "PatchType": "application/json-patch+json",
            "Data": base64::encode(b"[]"), "Options": {"fieldManager": "m", "force": true},
            "Subresources": ["status"]});
        let patch = call_of("patch", "/core/v1/configmaps/n/a", &option);
        assert_eq!(patch.verb, AnyVerb::Patch("application/json-patch+json"));
        assert_eq!((&*patch.body, patch.parameter("fieldManager")), (&b"[]"[..], "m"));
        assert_eq!(patch.parameter("force"), "true");
        let status = call_of("updatestatus", "/core/v1/pods/n/a", &json!({}));
        for (call, part) in [(patch, "status"), (status, "status"), (delete, "")] {
            let AnyTarget::Object { subresource, .. } = &call.target else { panic!() };
            assert_eq!(&**subresource, part);
        }
    }

    #[test]
    fn paths_of_no_resource_are_read_and_others_are_keys() {
        for path in
            ["/version", "/readyz/", "/apis/apps", "/apis/apps/v1", "/api/v1", "/openapi/v2"]
        {
            let call = call_of("get", path, &json!({}));
            assert_eq!(call.target, AnyTarget::Path(path.trim_end_matches('/').into()));
        }
        for path in ["/openapi/v3/apis", "/metrics", "/", "", "/core/v1", "/logs/kern.log"] {
            let got = why("get", path, &json!({}));
            assert!(got.starts_with("Key: got ") || got.starts_with("Verb: got"), "{path}: {got}");
        }
        // It has the form of a key, and is a resource of a group that no list allows.
        let call = call_of("get", "/openapi/v3/apis/apps/v1", &json!({}));
        assert_eq!(call.resource(), Some(&Gvr::new("openapi", "v3", "apis")));
        assert!(why("create", "/version", &json!({})).starts_with("Verb: got \"create\""));
        assert!(why("watch", "/version", &json!({})).starts_with("Verb: got \"watch\""));
    }

    #[test]
    fn no_key_leads_to_another_path() {
        for key in [
            "/core/v1/pods/../secrets",
            "/core/v1/pods/n/..",
            "/core/v1/pods/n/a%2fb",
            "/core/v1/Pods/n/a",
            "/core/v1/pods?x/n/a",
            "/core/v1/pods/n/a/log",
            "/../v1/pods/n/a",
        ] {
            assert!(why("get", key, &json!({})).starts_with("Key: got "), "{key}");
        }
    }

    #[test]
    fn a_watch_has_selectors() {
        let option = json!({"labelSelector": "a in (b)", "watch": true, "resourceVersion": "8"});
        let Ok(Requested::Watch(watch)) =
            requested("watch", "/core/v1/services/null/null", &option)
        else {
            panic!()
        };
        assert_eq!((watch.query.len(), &*watch.namespace), (1, ""));
        let bad = json!({"fieldSelector": "spec.type=x"});
        assert!(why("watch", "/core/v1/services/n/null", &bad).starts_with("fieldSelector: got"));
    }

    #[test]
    fn watches_beyond_the_bound_are_refused() {
        let watch = request("watch", "/core/v1/services/null/null", &json!({}));
        let all: Map<String, Value> =
            (0..=LISTENERS_OF_NODE_MAX).map(|at| (format!("{at:04}"), watch.clone())).collect();
        let sync = read_sync(&Value::Object(all).to_string()).expect("a map");
        let refused: Vec<bool> = sync.iter().map(|it| it.requested.is_err()).collect();
        assert_eq!(refused.iter().filter(|it| **it).count(), 1);
        assert_eq!(refused.last(), Some(&true));
        assert!(read_sync("[]").is_err() && read("[]").is_err() && read("{}").is_err());
    }

    #[test]
    fn an_answer_is_a_copy_with_the_result() {
        let request = json!({"ID": "i", "Later": 1, "ReqBody": "e30="}).to_string();
        let approved = answer(&request, Ok("{}"));
        assert_eq!(
            approved,
            json!({"ID": "i", "Later": 1, "Status": "Approved",
            "RespBody": base64::encode(b"{}")})
        );
        let status = serde_json::value::to_raw_value(&json!({"code": 403})).expect("JSON");
        let rejected = answer(&request, Err(status));
        assert_eq!(
            rejected,
            json!({"ID": "i", "Later": 1, "Status": "Rejected",
            "Error": {"ErrStatus": {"code": 403}}})
        );
    }
}
