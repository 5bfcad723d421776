//! Requests that are read, answers that are written, and objects of the cloud.

use serde_json::{Value, json};

use super::reply::{self, Piece};
use super::request::{self, Asked};
use super::{item, selector};
use crate::limits::METASERVER_WATCH_S_MAX;
use crate::model::application::{Gvr, Item, Scope};
use crate::model::metaserver::{
    Beginning, Call, Failure, Form, MetaServerSettings, Recency, Release, Reply, Source, WatchEvent,
};
use crate::wire::http1::call;

mod people;

fn asked_with(
    method: &str,
    target: &str,
    (accept, content): (&str, &str),
    body: &str,
    settings: &MetaServerSettings,
) -> Result<Asked, Failure> {
    let length = body.len();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: \
         {content}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let (call, _) = call::call(text.as_bytes(), 1 << 20).expect("a request").expect("all of it");
    request::read(&call, settings)
}

fn asked(method: &str, target: &str) -> Result<Asked, Failure> {
    let settings = MetaServerSettings::default();
    asked_with(method, target, ("application/json", ""), "", &settings)
}

fn call_of(target: &str) -> Call {
    match asked("GET", target) {
        Ok(Asked::Call(call)) => call,
        other => panic!("{target}: {other:?}"),
    }
}

fn code_of(method: &str, target: &str) -> u16 {
    asked(method, target).map_or_else(|failure| failure.code, |_| 200)
}

#[test]
fn objects_and_lists_are_told_apart() {
    let Call::Get { served, namespace, name, .. } =
        call_of("/api/v1/namespaces/default/services/web")
    else {
        panic!()
    };
    assert_eq!((&*served.kind, &*namespace, &*name), ("Service", "default", "web"));
    let Call::Get { served, namespace, name, .. } = call_of("/api/v1/namespaces/default") else {
        panic!()
    };
    assert_eq!((&*served.kind, &*namespace, &*name), ("Namespace", "", "default"));
    let Call::List { scope, recency, .. } = call_of(
        "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?labelSelector=a%3Db%2Cc%21%3Dd\
         &resourceVersion=0&limit=500",
    ) else {
        panic!()
    };
    assert_eq!(recency, Recency::Any);
    assert_eq!((&*scope.gvr.resource, &*scope.namespace), ("endpointslices", "a"));
    assert_eq!(scope.label_selector(), "a=b,c!=d");
    let Call::List { scope, recency, .. } =
        call_of("/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1%2Cmetadata.namespace%3Dx")
    else {
        panic!()
    };
    assert_eq!((recency, &*scope.node, &*scope.namespace), (Recency::Latest, "edge-1", "x"));
}

/// `kubectl describe node` lists the pods of the node that have not ended.
#[test]
fn pods_are_selected_by_their_phase() {
    let listed = |fields: &str| {
        let target = format!("/api/v1/pods?fieldSelector={fields}");
        let Call::List { scope, .. } = call_of(&target) else { panic!("{target}") };
        scope
    };
    let pod = |phase: &str| {
        read_item(
            &json!({ "kind": "Pod", "spec": { "nodeName": "e" }, "status": { "phase": phase } }),
        )
    };
    let open = "spec.nodeName=e,status.phase!=Succeeded,status.phase!=Failed";
    let scope = listed(&open.replace('=', "%3D").replace('!', "%21").replace(',', "%2C"));
    let has = |scope: &Scope, phases: [&str; 4]| phases.map(|phase| scope.has(&pod(phase)));
    let phases = ["Pending", "Running", "Succeeded", "Failed"];
    assert_eq!(has(&scope, phases), [true, true, false, false]);
    assert_eq!(has(&listed("status.phase%3DRunning"), phases), [false, true, false, false]);
    let text = scope.field_selector();
    assert_eq!(text, "spec.nodeName=e,status.phase!=Failed,status.phase!=Succeeded");
    assert_eq!(listed(&text.replace('=', "%3D").replace('!', "%21")), scope, "as it is written");
}

#[test]
fn watches_have_both_forms_and_their_options() {
    for target in [
        "/api/v1/services?watch=true&resourceVersion=7&timeoutSeconds=60&allowWatchBookmarks=true",
        "/api/v1/watch/services?watch=1&resourceVersion=7&timeoutSeconds=60&allowWatchBookmarks=1",
    ] {
        let Call::Watch(watch) = call_of(target) else { panic!("{target}") };
        assert_eq!((watch.version, watch.timeout_s), (7, Some(60)));
        assert_eq!((watch.bookmarks, watch.initial_events), (true, false));
        assert_eq!(watch.scope, Scope::all(Gvr::new("", "v1", "services")));
    }
    assert!(matches!(call_of("/api/v1/services?watch=false"), Call::List { .. }));
    let long = call_of("/api/v1/services?watch=1&timeoutSeconds=4000000000");
    let Call::Watch(watch) = long else { panic!("{long:?}") };
    assert_eq!(watch.timeout_s, Some(METASERVER_WATCH_S_MAX));
    let one = call_of("/api/v1/namespaces/a/services/web?watch=true");
    let Call::Watch(watch) = one else { panic!("{one:?}") };
    assert_eq!((&*watch.scope.namespace, &*watch.scope.name), ("a", "web"));
}

#[test]
fn what_is_not_served_is_refused_with_its_status() {
    for (method, target, code) in [
        ("GET", "/api/v1/secrets", 404),
        ("GET", "/api/v1/namespaces/default/secrets/a", 404),
        ("GET", "/apis/apps/v1/deployments", 404),
        ("GET", "/api/v1/namespaces/a/nodes", 404),
        ("GET", "/api/v1/services/web", 404),
        ("GET", "/api/v1/namespaces/a/pods/p/log", 403),
        ("GET", "/api/v1/namespaces/a/services/%2e%2e", 404),
        ("GET", "/api/v1/namespaces/a%2Fb/services", 404),
        ("GET", "/openapi/v2", 404),
        ("GET", "/api/v1/services?resourceVersion=x", 400),
        ("GET", "/api/v1/services?labelSelector=a%3D%3Db%20c", 400),
        ("GET", "/api/v1/services?fieldSelector=spec.nodeName%3Da", 400),
        ("GET", "/api/v1/services?fieldSelector=metadata.name%21%3Da", 400),
        ("GET", "/api/v1/services?fieldSelector=status.phase%21%3DFailed", 400),
        ("GET", "/api/v1/pods?fieldSelector=status.phase%21%3Dfailed", 400),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Da", 400),
        ("GET", "/api/v1/services?watch=1&timeoutSeconds=-1", 400),
        ("GET", "/api/v1/services?continue=abc", 410),
        ("POST", "/api/v1/namespaces/a/configmaps", 403),
        ("DELETE", "/api/v1/namespaces/a/configmaps/x", 403),
        ("GET", "/api/v1/services", 200),
    ] {
        assert_eq!(code_of(method, target), code, "{method} {target}");
    }
}

#[test]
fn the_accepted_form_is_given() {
    let settings = MetaServerSettings::default();
    let form = |accept: &str| {
        let got = asked_with("GET", "/api/v1/services", (accept, ""), "", &settings);
        match got {
            Ok(Asked::Call(Call::List { form, .. })) => Ok(form),
            Err(failure) => Err(failure.code),
            Ok(other) => panic!("{other:?}"),
        }
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    assert_eq!(form(table), Ok(Form::Table));
    assert_eq!(form("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Whole));
    assert_eq!(form("application/vnd.kubernetes.protobuf"), Err(406));
    assert_eq!(form(""), Ok(Form::Whole));
    assert_eq!(form("*/*"), Ok(Form::Whole));
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(form(metadata), Err(406));
}

#[test]
fn writes_go_to_the_cloud_where_they_are_allowed() {
    let settings = MetaServerSettings { writes: true, ..MetaServerSettings::default() };
    let write = |method: &str, target: &str, content: &str, body: &str| match asked_with(
        method,
        target,
        ("", content),
        body,
        &settings,
    ) {
        Ok(Asked::Call(Call::Write(write))) => Ok(*write),
        Err(failure) => Err(failure.code),
        Ok(other) => panic!("{other:?}"),
    };
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#;
    let all = "/api/v1/namespaces/a/configmaps";
    let one = "/api/v1/namespaces/a/configmaps/x";
    let made = write("POST", &format!("{all}?fieldManager=me&dryRun=All"), "", object);
    let made = made.expect("a create");
    assert_eq!((made.verb, &*made.key), ("create", "/core/v1/configmaps/a/null"));
    assert_eq!(&*made.options, r#"{"dryRun":["All"],"fieldManager":"me"}"#);
    assert_eq!(made.body.as_deref(), Some(object));
    let status = write("PUT", &format!("{one}/status"), "", object).expect("an update");
    assert_eq!((status.verb, &*status.subresource), ("updatestatus", "status"));
    let patch = write("PATCH", one, "application/merge-patch+json", "{}").expect("a patch");
    let options: Value = serde_json::from_str(&patch.options).expect("JSON");
    let want = json!({
        "Name": "x", "PatchType": "application/merge-patch+json", "Data": "e30=", "Options": {},
        "Subresources": [],
    });
    assert_eq!(options, want);
    assert_eq!(write("DELETE", one, "", "").expect("a deletion").verb, "delete");
    let protobuf = "application/vnd.kubernetes.protobuf";
    assert!(write("DELETE", one, protobuf, "").is_ok(), "there is no body");
    assert!(write("POST", all, "application/json; charset=utf-8", object).is_ok());
    for (method, target, content, body, code) in [
        ("POST", all, "", "", 400),
        ("POST", all, "", "{", 400),
        ("POST", all, "", r#"{"apiVersion":"v1","kind":"Secret"}"#, 400),
        ("POST", all, "", r#"{"apiVersion":"v2","kind":"ConfigMap"}"#, 400),
        ("PATCH", one, "text/plain", "{}", 415),
        ("POST", all, "application/vnd.kubernetes.protobuf", object, 415),
        ("PUT", one, "application/yaml", object, 415),
        ("DELETE", one, "application/vnd.kubernetes.protobuf", "{}", 415),
        ("DELETE", all, "", "", 405),
        ("POST", "/api/v1/secrets", "", object, 404),
    ] {
        let got = write(method, target, content, body).expect_err(target);
        assert_eq!(got, code, "{method} {target} {body}");
    }
}

#[test]
fn pods_are_released_by_name() {
    let settings = MetaServerSettings::default();
    let release =
        |target: &str, body: &str| match asked_with("POST", target, ("", ""), body, &settings) {
            Ok(Asked::Call(Call::Release(release))) => Ok(release),
            Err(failure) => Err(failure.message),
            Ok(other) => panic!("{other:?}"),
        };
    let pods = "/api/v1/pods/unhold-upgrade";
    let pod = Release::Pod { namespace: "a".into(), name: "b".into() };
    assert_eq!(release(pods, "a/b\n"), Ok(pod));
    let why = "invalid format, expected <namespace>/<name>";
    assert_eq!(release(pods, "b"), Err(why.to_owned()));
    let nodes = "/api/v1/nodes/unhold-upgrade";
    assert_eq!(release(nodes, "edge-1"), Ok(Release::Node("edge-1".into())));
    assert_eq!(release(nodes, ""), Err("node name required in body".to_owned()));
    let confirm = asked("POST", "/api/v1/taskupgrade/confirm-upgrade");
    assert!(matches!(confirm, Ok(Asked::Call(Call::ConfirmUpgrade))), "{confirm:?}");
}

#[test]
fn discovery_names_what_is_served_and_nothing_else() {
    let known = |path: &str| match asked("GET", path) {
        Ok(Asked::Known(_, body)) => body,
        other => panic!("{path}: {other:?}"),
    };
    let core: Value = serde_json::from_str(&known("/api/v1")).expect("JSON");
    let names: Vec<&str> = core["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["configmaps", "endpoints", "namespaces", "nodes", "pods", "services"]);
    assert_eq!(core["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    let groups: Value = serde_json::from_str(&known("/apis")).expect("JSON");
    let first = &groups["groups"][0];
    assert_eq!(first["preferredVersion"]["groupVersion"], "devices.kubeedge.io/v1beta1");
    assert_eq!(known("/readyz"), "ok");
    assert!(known("/version").contains("\"gitVersion\":\"v1."), "{}", known("/version"));
    assert_eq!(code_of("GET", "/apis/apps/v1"), 404);
}

#[test]
fn selectors_choose_objects() {
    let labels = |text: &str| {
        let parts = text.split(',').filter_map(|pair| pair.split_once('='));
        parts.map(|(key, value)| (key.into(), value.into())).collect()
    };
    let bare = read_item(&json!({}));
    for (text, of, expected) in [
        ("a=b", "a=b", true),
        ("a==b", "a=c", false),
        ("a!=b", "", true),
        ("a!=b", "a=b", false),
        ("a in (b, c),d", "a=c,d=", true),
        ("a in (b,c),d", "a=c", false),
        ("a notin (b,c)", "a=b", false),
        ("!a", "b=c", true),
        ("!a", "a=c", false),
        ("", "a=c", true),
    ] {
        let requirements = selector::labels(text).expect(text);
        let scope = Scope { labels: requirements, ..Scope::all(Gvr::new("", "v1", "configmaps")) };
        let item = Item { labels: labels(of), ..bare.clone() };
        assert_eq!(scope.has(&item), expected, "{text} of {of}");
        let again = selector::labels(&scope.label_selector()).expect(text);
        assert_eq!(again, scope.labels, "{text}");
    }
    let why = selector::labels("a like (b)").expect_err("no selector");
    assert_eq!(why.code, 400, "{why:?}");
}

fn read_item(more: &Value) -> Item {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "x", "namespace": "a", "uid": "u", "resourceVersion": "7",
            "managedFields": [{"manager": "kubectl"}],
        },
    });
    for (key, value) in more.as_object().expect("a map") {
        object[key] = value.clone();
    }
    item::read(&object.to_string(), None).expect("an object")
}

#[test]
fn an_object_is_kept_whole_but_for_its_managed_fields() {
    let got = read_item(&json!({"data": {"k": "v"}, "unknown": [1, 2.5, null]}));
    let text: Value = serde_json::from_str(&got.text).expect("JSON");
    let want = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "unknown": [1, 2.5, null],
        "metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "7"},
    });
    assert_eq!(text, want);
    assert_eq!((got.version, &*got.uid, &*got.namespace), (7, "u", "a"));
    for none in ["[]", "{", "{}", r#"{"apiVersion":"v1","kind":"A","metadata":{}}"#, "7"] {
        assert_eq!(item::read(none, None), None, "{none}");
    }
}

#[test]
fn only_a_change_of_meaning_changes_the_digest() {
    let of = |version: &str, status: Value, data: Value| {
        read_item(&json!({
            "metadata": {"name": "x", "resourceVersion": version}, "status": status, "data": data,
        }))
        .digest
    };
    let first = of("1", json!({"lastHeartbeatTime": "a", "ready": true}), json!({"k": "v"}));
    let beat = of("2", json!({"lastHeartbeatTime": "b", "ready": true}), json!({"k": "v"}));
    assert_eq!(first, beat);
    let changed = of("2", json!({"lastHeartbeatTime": "b", "ready": false}), json!({"k": "v"}));
    assert_ne!(first, changed);
    // A key of a ConfigMap may have any name.
    let (one, other) = (json!({"resourceVersion": "1"}), json!({"resourceVersion": "2"}));
    assert_ne!(of("1", json!({}), one), of("1", json!({}), other));
}

#[test]
fn a_page_of_a_list_gives_its_items_their_kind() {
    let body = json!({
        "kind": "ServiceList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "12", "continue": "t"},
        "items": [{"metadata": {"name": "a", "namespace": "x", "resourceVersion": "3"}}],
    });
    let page = item::page(&body.to_string()).expect("a page");
    assert_eq!((page.version, page.next.as_deref()), (12, Some("t")));
    assert_eq!((&*page.items[0].kind, &*page.items[0].api_version), ("Service", "v1"));
    assert!(page.items[0].text.contains("\"kind\":\"Service\""));
    for none in ["{}", r#"{"kind":"ServiceList"}"#, r#"{"items":[{}]}"#, "[]"] {
        assert!(item::page(none).is_err(), "{none}");
    }
    let empty = r#"{"kind":"ServiceList","items":null}"#;
    assert!(item::page(empty).expect("a list").items.is_empty());
}

/// The answer's head, and its body without chunks.
fn written(pieces: Vec<Piece>) -> (String, String, bool) {
    let mut bytes = Vec::new();
    let mut is_ended = false;
    for mut piece in pieces {
        is_ended |= matches!(piece, Piece::End);
        while !piece.is_empty() && piece.write(Some(1_700_000_060), &mut bytes) {}
    }
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    if !head.contains("chunked") {
        return (head.to_owned(), body.to_owned(), is_ended);
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(&after[..size]);
        assert_eq!(&after[size..size + 2], "\r\n");
        rest = &after[size + 2..];
    }
    (head.to_owned(), whole, is_ended)
}

#[test]
fn a_list_is_written_with_its_kind_and_its_source() {
    let settings = MetaServerSettings::default();
    let served = settings.served[0].clone();
    let item = std::sync::Arc::new(read_item(&json!({})));
    let items = vec![item.clone(), item.clone(), item];
    let list = |form, source| {
        let (served, items) = (served.clone(), items.clone());
        written(reply::pieces(Reply::List { served, items, version: 9, form, source }))
    };
    let (head, body, ended) = list(Form::Whole, Source::Store);
    assert!(head.contains("Warning: 299 - \"served from the node's store\"") && ended, "{head}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(body["metadata"]["resourceVersion"], "9");
    assert_eq!(body["items"].as_array().map(Vec::len), Some(3));
    let (head, body, _) = list(Form::Table, Source::Cloud);
    assert!(!head.contains("Warning"), "{head}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&body["kind"], &body["rows"][2]["cells"][0]), (&json!("Table"), &json!("x")));
    assert_eq!(body["rows"][0]["object"]["metadata"]["namespace"], "a");
    assert_eq!(body["rows"][0]["cells"][1], "<unknown>");
}

#[test]
fn a_table_has_the_age_of_an_object() {
    // A minute before the time that `written` gives.
    let created = json!({ "name": "x", "creationTimestamp": "2023-11-14T22:13:20Z" });
    let item = std::sync::Arc::new(read_item(&json!({ "metadata": created })));
    let reply = Reply::Object { item, form: Form::Table, source: Source::Cloud };
    let (_, body, _) = written(reply::pieces(reply));
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["rows"][0]["cells"], json!(["x", "60s"]));
}

#[test]
fn a_watch_is_a_line_for_each_event() {
    let settings = MetaServerSettings::default();
    let item = std::sync::Arc::new(read_item(&json!({})));
    let beginning = Beginning {
        form: Form::Whole,
        gone: vec![item.clone()],
        items: vec![item.clone(), item.clone()],
        bookmark: Some((settings.served[0].clone(), 5)),
    };
    let mut pieces = reply::pieces(Reply::Watching(beginning));
    for event in [
        WatchEvent::Modified(Form::Table, item),
        WatchEvent::Bookmark(settings.served[0].clone(), 8, false),
    ] {
        pieces.extend(reply::pieces(Reply::Event(event)));
    }
    let (_, body, ended) = written(pieces);
    assert!(!ended);
    let lines: Vec<Value> =
        body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(kinds, ["DELETED", "ADDED", "ADDED", "BOOKMARK", "MODIFIED", "BOOKMARK"]);
    let of = |at: usize| &lines[at]["object"]["metadata"];
    assert_eq!(of(3)["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!((&of(3)["resourceVersion"], &of(5)["resourceVersion"]), (&json!("5"), &json!("8")));
    assert_eq!(lines[4]["object"]["rows"][0]["cells"][0], "x");
}
