//! Requests of MetaServer and the dynamic controller's answers: each side reads what the other one
//! writes.

use edged::limits::Budget;
use edged::model::any_api::{AnyTarget, AnyVerb};
use edged::model::application::{APPLICATION_ID, Application, Gvr, Options, Scope};
use edged::model::cloud_message::{CloudMessage, Content, Failure};
use edged::model::downstream::Down;
use edged::model::edge_message::{EdgeContent, Requested};
use edged::model::metaserver::Answer;
use edged::model::raw;
use edged::model::selector::{LabelSelector, SelectableFields};
use edged::model::upstream::Up;
use edged::wire::edge::decode;
use edged::wire::kubeedge;
use serde_json::json;

use crate::controller_messages::{cloud_message, from_node, read_by_node, to_node};

/// The answer to a node's request, as the node reads it.
fn answered(request: &str, result: Result<&str, Failure>) -> Answer {
    let content = Content::Applied(request.into(), result.map(Into::into));
    match to_node(content, "applicationResponse") {
        Down::Application(to, answer) => {
            assert_eq!(*to, *"q");
            answer
        }
        other => panic!("got {other:?}"),
    }
}

#[test]
fn requests_of_metaserver_and_their_answers_cross() {
    let services = || Gvr::new("", "v1", "services");
    let request = |key: String, verb, options| Application {
        node: "gw".into(),
        id: format!("{APPLICATION_ID}1").into(),
        key: key.into(),
        verb,
        options,
        body: Some(r#"{"kind":"Service"}"#.into()),
        subresource: Box::default(),
    };
    let crossed = |application: Application| match from_node(Up::Application(Box::new(application)))
    {
        EdgeContent::Application(request) => request,
        other => panic!("got {other:?}"),
    };
    let call = |requested| match requested {
        Ok(Requested::Call(call)) => *call,
        other => panic!("got {other:?}"),
    };

    let options = Options::List {
        labels: "a in (b,c)".into(),
        fields: "".into(),
        limit: 9,
        page: "p".into(),
    };
    let list = crossed(request(services().key("default", ""), "list", options));
    let page = answered(&list.request, Ok(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#));
    assert!(matches!(page, Answer::Page(page) if page.version == 7));
    let list = call(list.requested);
    assert_eq!((list.verb, list.resource()), (AnyVerb::List, Some(&services())));
    assert_eq!((list.parameter("labelSelector"), list.parameter("limit")), ("a in (b,c)", "9"));
    assert_eq!(list.parameter("continue"), "p");

    let get = crossed(request(services().key("default", "web"), "get", Options::None));
    let status = json!({"metadata": {}, "status": "Failure", "message": "no", "code": 404});
    for failure in [Failure::Remote(raw::json(&status)), Failure::new(404, "NotFound", "no")] {
        let refused = answered(&get.request, Err(failure));
        assert!(matches!(&refused, Answer::Refused(404, it) if it.contains("no")), "{refused:?}");
    }
    let path = |name: &str| AnyTarget::Object {
        resource: services(),
        namespace: "default".into(),
        name: name.into(),
        subresource: Box::default(),
    };
    assert_eq!(call(get.requested).target, path("web"));

    let create = crossed(request(services().key("default", ""), "create", Options::None));
    let create = call(create.requested);
    assert_eq!((create.verb, create.target), (AnyVerb::Create, path("")));
    assert_eq!(*create.body, *br#"{"kind":"Service"}"#);
    let options = Options::Given(r#"{"propagationPolicy":"Orphan"}"#.into());
    let delete = crossed(request(services().key("default", "web"), "delete", options));
    assert!(matches!(answered(&delete.request, Ok("")), Answer::Done(None)));
    assert_eq!(*call(delete.requested).body, *br#"{"propagationPolicy":"Orphan"}"#);
}

/// A stock CloudCore answers a refused list with the text of the error alone.
#[test]
fn cloudcores_refusals_of_lists_have_their_codes() {
    let answered = |reason: &str| {
        let message = json!({
            "header": {"msg_id": "c1", "parent_msg_id": "q", "timestamp": 1},
            "route": {"source": "dynamiccontroller", "group": "resource",
                "operation": "applicationResponse", "resource": "ignore/Application/ignore"},
            "content": {"ID": format!("{APPLICATION_ID}1"), "Verb": "list", "Status": "Rejected",
                "RespBody": null, "Reason": reason, "Error": {"ErrStatus": {"metadata": {}}}},
        });
        let message = decode(message.to_string().as_bytes()).expect("a message");
        match kubeedge::decode(&message, &Budget::FULL).content {
            Down::Application(_, answer) => answer,
            other => panic!("got {other:?}"),
        }
    };
    for (code, reason, text) in [
        (404, "NotFound", "the server could not find the requested resource"),
        (
            403,
            "Forbidden",
            "foos.example.com is forbidden: User \"cloudcore\" cannot list resource",
        ),
        (410, "Expired", "The provided continue parameter is too old to display a consistent list"),
    ] {
        let answer = answered(&format!("get current list error: {text}"));
        let Answer::Refused(got, status) = &answer else { panic!("{text}: {answer:?}") };
        let status: serde_json::Value = serde_json::from_str(status).expect("JSON");
        assert_eq!(
            (*got, &status["reason"], &status["message"]),
            (code, &json!(reason), &json!(text))
        );
    }
    // The API server does not answer: the node's store does.
    for text in [
        "get current list error: Get \"https://10.96.0.1/api/v1/services\": connection refused",
        "failed to add listener, services is forbidden: no",
    ] {
        let answer = answered(text);
        assert!(matches!(&answer, Answer::Failed(why) if **why == *text), "{answer:?}");
    }
}

#[test]
fn watches_of_a_node_and_their_refusals_cross() {
    let labels = LabelSelector::parse("app=web,tier!=x").expect("a selector");
    let nodes = Scope::all(Gvr::new("", "v1", "nodes"));
    let some = Scope {
        namespace: "default".into(),
        labels: labels.clone(),
        name: "a".into(),
        ..Scope::all(Gvr::new("discovery.k8s.io", "v1", "endpointslices"))
    };
    let watches = vec![nodes.clone(), some.clone()];
    let sync = from_node(Up::SyncWatches { node: "gw".into(), watches });
    let EdgeContent::Watches(all) = sync else { panic!("got {sync:?}") };
    for scope in [&nodes, &some] {
        let id = scope.id("gw");
        let watch = all.iter().find(|it| *it.id == *id).expect("it is named");
        let Ok(Requested::Watch(watch)) = &watch.requested else { panic!("got {watch:?}") };
        assert_eq!((&watch.resource, &watch.labels), (&scope.gvr, &scope.labels));
        assert_eq!(watch.namespace, scope.namespace);
        let of = |name| SelectableFields { name, ..SelectableFields::default() };
        let selects_others = scope.name.is_empty();
        assert!(watch.fields.matches(&of("a")) && watch.fields.matches(&of("b")) == selects_others);
    }
    let refused =
        all.into_iter().map(|it| (it.id, it.request, Failure::new(403, "Forbidden", "no")));
    let message = CloudMessage {
        resource: "watchapp/sync".into(),
        ..cloud_message(Content::WatchesRejected(refused.collect()), "applicationResponse")
    };
    let Down::WatchesSynced(_, Ok(refused)) = read_by_node(&message) else { panic!("no answer") };
    let mut expected = [nodes.id("gw"), some.id("gw")].map(|id| (Box::from(id), Box::from("no")));
    expected.sort();
    assert_eq!(refused, expected);
}
