//! The router for custom messages: rules, what nodes are told of them, requests of clients, and
//! what nodes upload.

use edged::controller::event::Event;
use edged::controller::overview::RuleOverview;
use edged::limits::{
    MESSAGE_BYTES_MAX, ROUTER_ANSWER_MS, ROUTER_BODY_BYTES_MAX, ROUTER_ERROR_CHARS_MAX,
    ROUTER_ERRORS_MAX, ROUTER_NODE_RULES_MAX, ROUTER_REQUESTS_MAX, ROUTER_RULES_MAX,
    ROUTER_STATUS_CALLS_MAX, ROUTER_STATUS_MS, ROUTER_STATUS_RETRY_MAX_MS,
    ROUTER_STATUS_RETRY_MIN_MS, ROUTER_UNDO_MS, ROUTER_UPLOAD_MS,
};
use edged::model::api::{Kind, Subresource};
use edged::model::message::{Header, Message, Route};
use edged::model::router::{
    Post, PostAnswer, PostId, RestId, RestRequest, RouterAction, RouterEvent,
};
use edged::model::service_bus::ServiceAnswer;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::listed;
use crate::world::World;

const URL: &str = "http://cloud.example/orders";

fn endpoint(name: &str, kind: &str) -> (Kind, Value) {
    let object = json!({"metadata": {"name": name, "namespace": "n"},
        "spec": {"ruleEndpointType": kind, "properties": {"service_port": "9000"}}});
    (Kind::RuleEndpoint, object)
}

#[expect(clippy::needless_pass_by_value, reason = "so its many callers are short")]
fn rule(name: &str, source: (&str, Value), target: (&str, Value)) -> (Kind, Value) {
    let created = "2026-01-01T00:00:00Z";
    let metadata = json!({"name": name, "namespace": "n", "creationTimestamp": created});
    let object = json!({"metadata": metadata, "spec": {"source": source.0,
        "sourceResource": source.1, "target": target.0, "targetResource": target.1}});
    (Kind::Rule, object)
}

/// From a path to the service `/echo` of a node.
fn to_service(name: &str, path: &str) -> (Kind, Value) {
    rule(name, ("rest", json!({"path": path})), ("servicebus", json!({"path": "/echo"})))
}

/// From a topic of a node to a URL.
fn of_topic(name: &str, node: &str, topic: &str) -> (Kind, Value) {
    let source = json!({"topic": topic, "node_name": node});
    rule(name, ("eventbus", source), ("rest", json!({"resource": "http://a.example/in"})))
}

/// From a URL of a node to another.
fn of_url(name: &str, node: &str, url: &str) -> (Kind, Value) {
    let source = json!({"target_url": url, "node_name": node});
    rule(name, ("servicebus", source), ("rest", json!({"resource": "https://a.example/in"})))
}

/// A world with two nodes, all endpoints and these rules.
fn with(rules: &[(Kind, Value)]) -> World {
    let mut all = vec![
        (Kind::Node, crate::node("e1")),
        (Kind::Node, crate::node("e2")),
        endpoint("rest", "rest"),
        endpoint("eventbus", "eventbus"),
        endpoint("servicebus", "servicebus"),
    ];
    all.extend_from_slice(rules);
    let mut world = listed(&all);
    world.pass(100);
    world
}

fn apply(world: &mut World, (kind, object): (Kind, Value)) {
    world.cluster.apply(kind, object);
    world.pass(10);
}

fn key(name: &str) -> Name {
    (Kind::Rule, "n".to_owned(), name.to_owned())
}

fn remove(world: &mut World, name: &str) {
    world.cluster.remove(&key(name));
    world.pass(10);
}

fn connect(world: &mut World, node: &str) {
    world.connect(node);
    world.pass(10);
}

fn disconnect(world: &mut World, node: &str) {
    let session = world.session(node).expect("it is connected");
    world.disconnect(session);
    world.pass(10);
}

/// Messages of the router since the last call: source, operation and resource.
fn told(world: &mut World, node: &str) -> Vec<String> {
    routed(world, node).iter().map(named).collect()
}

fn named(message: &Message) -> String {
    let Route { source, operation, resource, .. } = &message.route;
    format!("{} {operation} {resource}", source.trim_start_matches("router_"))
}

fn routed(world: &mut World, node: &str) -> Vec<Message> {
    let messages = std::mem::take(&mut world.edge(node).messages);
    messages.into_iter().filter(|message| &*message.route.group == "user").collect()
}

fn content(message: &Message) -> Value {
    message.content.as_ref().map_or(Value::Null, |it| serde_json::from_str(it.get()).expect("JSON"))
}

fn status(world: &World, name: &str) -> Value {
    world.cluster.objects[&key(name)]["status"].clone()
}

/// The nodes go on with their signs of life.
fn pass(world: &mut World, ms: u64) {
    let mut left = ms;
    while left > 0 {
        let step = left.min(10_000);
        for node in world.edges.keys().cloned().collect::<Vec<_>>() {
            if world.session(&node).is_some() {
                let sign = world.edge(&node).keepalive();
                world.send(&node, sign);
            }
        }
        world.pass(step);
        left -= step;
    }
}

fn deliver(world: &mut World, event: RouterEvent) {
    world.deliver(Event::Router(Box::new(event)));
    world.pass(5);
}

/// A client requests this.
fn request(world: &mut World, id: u64, path: &str, body: &[u8]) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut parts = path.trim_start_matches('/').splitn(3, '/').map(Box::<str>::from);
    let mut next = || parts.next().unwrap_or_default();
    let request = RestRequest {
        node: next(),
        namespace: next(),
        path: next(),
        query: query.into(),
        method: if body.is_empty() { "GET" } else { "POST" }.into(),
        headers: vec![("accept".into(), "*/*".into())],
        body: body.to_vec(),
    };
    deliver(world, RouterEvent::Request(RestId(id), Box::new(request)));
}

/// The answers to clients since the last call.
fn answers(world: &mut World) -> Vec<(u64, u16, String)> {
    let all = std::mem::take(&mut world.routed);
    let (answers, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| matches!(it, RouterAction::Answer(..)));
    world.routed = others;
    let answer = |action| match action {
        RouterAction::Answer(id, ServiceAnswer { status, body, .. }) => {
            (id.0, status, String::from_utf8_lossy(&body).into_owned())
        }
        other => panic!("{other:?}"),
    };
    answers.into_iter().map(answer).collect()
}

fn only_answer(world: &mut World) -> (u16, String) {
    match &answers(world)[..] {
        [(_, status, body)] => (*status, body.clone()),
        other => panic!("{other:?}"),
    }
}

fn posts(world: &mut World) -> Vec<(PostId, Post)> {
    let all = std::mem::take(&mut world.routed);
    all.into_iter()
        .filter_map(|action| match action {
            RouterAction::Post(id, post) => Some((id, *post)),
            _ => None,
        })
        .collect()
}

/// A node uploads this for the router.
fn upload(world: &mut World, node: &str, source: &str, parent: &str, resource: &str, of: &Value) {
    let mut message = Message {
        header: Header { id: format!("up-{resource}").into(), ..Header::default() },
        route: Route {
            source: source.into(),
            group: "user".into(),
            operation: "upload".into(),
            resource: resource.into(),
        },
        content: Some(to_raw_value(of).expect("plain data")),
    };
    message.header.parent_id = parent.into();
    world.send(node, message);
    world.pass(5);
}

fn answer_call(world: &mut World, node: &str, call: &Message, status: u16) {
    let answer = json!({"header": {"X-Kind": ["echo"]}, "status_code": status, "body": "b2s="});
    upload(world, node, "servicebus", &call.header.id, "", &answer);
}

#[test]
fn a_call_reaches_the_service_and_its_answer_the_client() {
    let mut world = with(&[to_service("r", "/ddd")]);
    connect(&mut world, "e1");
    request(&mut world, 1, "/e1/n/ddd?x=1", b"hello");
    let [call] = &routed(&mut world, "e1")[..] else { panic!("one call") };
    assert_eq!(named(call), "servicebus POST 9000:/echo/?x=1");
    let expected = json!({"header": {"Accept": ["*/*"]}, "body": "aGVsbG8=", "method": "POST",
        "url": ""});
    assert_eq!(content(call), expected);
    assert_eq!(answers(&mut world), []);
    answer_call(&mut world, "e1", call, 207);
    assert_eq!(answers(&mut world), [(1, 207, "ok".to_owned())]);
    answer_call(&mut world, "e1", call, 200);
    assert_eq!(answers(&mut world), [], "it is answered once");
    // An answer of another node is none.
    connect(&mut world, "e2");
    request(&mut world, 2, "/e1/n/ddd/a/b", b"");
    let [call] = &routed(&mut world, "e1")[..] else { panic!("one call") };
    assert_eq!(named(call), "servicebus GET 9000:/echo/a/b");
    answer_call(&mut world, "e2", call, 200);
    assert_eq!(answers(&mut world), []);
    answer_call(&mut world, "e1", call, 500);
    assert_eq!(only_answer(&mut world).0, 500, "statuses are passed on");
    assert_eq!(told(&mut world, "e1"), [""; 0], "nothing is repeated");
    let expected = RuleOverview {
        name: "n/r".to_owned(),
        trouble: String::new(),
        delivered: 1,
        failed: 1,
        errors: vec!["the service answered 500".to_owned()],
    };
    assert_eq!(world.controller.overview().rules, [expected], "also before they are written");
    pass(&mut world, ROUTER_STATUS_MS);
    let expected = json!({"successMessages": 1, "failMessages": 1,
        "errors": ["the service answered 500"]});
    assert_eq!(status(&world, "r"), expected);
}

#[test]
fn a_client_is_told_why_there_is_no_answer() {
    let mut world = with(&[to_service("r", "/a"), to_service("longer", "/a/b")]);
    request(&mut world, 1, "/e1/n/a", b"");
    let (code, why) = only_answer(&mut world);
    assert_eq!((code, &*why), (503, "node e1 is not connected to this controller"));
    connect(&mut world, "e1");
    for (path, code, expected) in [
        ("/e1/n/ab", 404, "no rule of namespace n has a path for /ab"),
        ("/e1/n/x/a", 404, "no rule"),
        ("/e1/other/a", 404, "no rule of namespace other"),
        ("/e9/n/a", 404, "there is no node \"e9\""),
        ("/e1/n/a/../admin", 400, "expected no element . or .."),
        ("/e1/n/a/%2e%2E/admin", 400, "expected no element . or .."),
    ] {
        request(&mut world, 2, path, b"");
        let (got, why) = only_answer(&mut world);
        assert!(got == code && why.contains(expected), "{path}: {got} {why}");
    }
    assert_eq!(told(&mut world, "e1"), [""; 0]);
    // Not in time.
    request(&mut world, 3, "/e1/n/a/b/c", b"");
    assert_eq!(told(&mut world, "e1"), ["servicebus GET 9000:/echo/c"], "the longest path");
    pass(&mut world, ROUTER_ANSWER_MS - 10);
    assert_eq!(answers(&mut world), []);
    pass(&mut world, 10);
    assert_eq!(only_answer(&mut world), (504, "the node did not answer for 60 s".to_owned()));
    // The session ends, and the client leaves.
    request(&mut world, 4, "/e1/n/a", b"");
    request(&mut world, 5, "/e1/n/a", b"");
    let calls = routed(&mut world, "e1");
    deliver(&mut world, RouterEvent::Gone(RestId(5)));
    answer_call(&mut world, "e1", &calls[1], 200);
    assert_eq!(answers(&mut world), [], "nobody waits");
    disconnect(&mut world, "e1");
    let (code, why) = only_answer(&mut world);
    assert!(code == 502 && why.contains("session ended"), "{why}");
}

#[test]
fn a_request_may_publish_a_text_on_a_topic() {
    let publish = rule("r", ("rest", json!({"path": "/t"})), ("eventbus", json!({"topic": "/a"})));
    let mut world = with(&[publish]);
    connect(&mut world, "e1");
    request(&mut world, 1, "/e1/n/t/b", "21 °C".as_bytes());
    assert_eq!(only_answer(&mut world), (200, "message delivered".to_owned()));
    let [message] = &routed(&mut world, "e1")[..] else { panic!("one message") };
    assert_eq!(
        (named(message), content(message)),
        ("eventbus publish /a/b".into(), json!("21 °C"))
    );
    for (path, body, expected) in [
        ("/e1/n/t", &b"\xff"[..], "expected UTF-8"),
        ("/e1/n/t/+", b"x", "got a wildcard in a topic name"),
    ] {
        request(&mut world, 2, path, body);
        let (code, why) = only_answer(&mut world);
        assert!(code == 400 && why.contains(expected), "{why}");
    }
    assert_eq!(told(&mut world, "e1"), [""; 0]);
}

#[test]
fn what_a_node_cannot_take_is_refused_at_once() {
    let mut world = with(&[to_service("r", "/a")]);
    connect(&mut world, "e1");
    let large = vec![b'x'; ROUTER_BODY_BYTES_MAX];
    request(&mut world, 1, "/e1/n/a", &large);
    assert_eq!(answers(&mut world), [], "the largest body is sent");
    assert_eq!(told(&mut world, "e1").len(), 1);
    // edged accepts less in one message.
    let version = "v1.32.10-kubeedge-v1.23.1+edged.0.1.0";
    let mut node = crate::node("e1");
    node["status"] = json!({"nodeInfo": {"kubeletVersion": version}});
    apply(&mut world, (Kind::Node, node));
    request(&mut world, 2, "/e1/n/a", &large[..MESSAGE_BYTES_MAX / 4 * 3]);
    assert_eq!(only_answer(&mut world).0, 413);
    world.edge("e1").stuck = true;
    for id in 0..ROUTER_REQUESTS_MAX as u64 {
        request(&mut world, 10 + id, "/e1/n/a", b"x");
    }
    let refused = answers(&mut world);
    assert!(!refused.is_empty() && refused.iter().all(|(_, code, _)| *code == 503), "{refused:?}");
    assert!(world.session("e1").is_some(), "the session goes on");
}

#[test]
fn requests_that_wait_have_a_bound() {
    let mut world = with(&[to_service("r", "/a")]);
    for node in ["e1", "e2"] {
        connect(&mut world, node);
    }
    for id in 0..=ROUTER_REQUESTS_MAX as u64 {
        let node = if id % 2 == 0 { "e1" } else { "e2" };
        request(&mut world, id, &format!("/{node}/n/a"), b"");
        assert_eq!(
            answers(&mut world).len(),
            usize::from(id == ROUTER_REQUESTS_MAX as u64),
            "{id}"
        );
    }
}

#[test]
fn what_is_published_goes_to_every_rule_that_matches() {
    let rules =
        [of_topic("one", "e1", "a//b"), of_topic("all", "e1", "/a/+"), of_topic("o", "e2", "#")];
    let mut world = with(&rules);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/a/+", "eventbus subscribe n/a/b"]);
    upload(&mut world, "e1", "bus", "", "n/a/b", &json!("21.5"));
    let first = posts(&mut world);
    assert_eq!(first.len(), 2);
    let (id, post) = &first[0];
    assert_eq!(
        (&*post.url.host, &*post.url.target, &*post.body),
        ("a.example", "/in", &b"21.5"[..])
    );
    let headers: Vec<_> =
        post.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(headers, ["Edge-Node: e1", "Edge-Resource: n/a/b"]);
    // In order: the next waits.
    upload(&mut world, "e1", "bus", "", "n/a/c", &json!("22"));
    assert_eq!(posts(&mut world).len(), 0, "one at a time for a rule");
    upload(&mut world, "e1", "bus", "", "x/y", &json!("lost"));
    deliver(&mut world, RouterEvent::Posted(*id, Ok(PostAnswer { status: 202, body: Vec::new() })));
    let second = posts(&mut world);
    assert_eq!(second.iter().map(|(_, post)| &*post.body).collect::<Vec<_>>(), [b"22"]);
    let lost = Err("a.example: connection refused".into());
    deliver(&mut world, RouterEvent::Posted(first[1].0, lost));
    pass(&mut world, ROUTER_STATUS_MS);
    let expected = json!({"successMessages": 1, "failMessages": 0, "errors": []});
    assert_eq!(status(&world, "all"), expected);
    let expected = json!({"successMessages": 0, "failMessages": 1,
        "errors": ["a.example: connection refused"]});
    assert_eq!(status(&world, "one"), expected);
    // Of a rule that is gone nothing more is posted.
    remove(&mut world, "all");
    deliver(&mut world, RouterEvent::Posted(second[0].0, Err("lost".into())));
    assert_eq!(posts(&mut world).len(), 0);
}

#[test]
fn an_application_of_a_node_gets_the_answer_or_why_there_is_none() {
    let mut world = with(&[of_url("r", "e1", URL)]);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1"), [format!("servicebus start {URL}")]);
    let mut answer_of = |result: Result<PostAnswer, Box<str>>| {
        upload(&mut world, "e1", "servicebus", "", URL, &json!("eyJhIjoxfQ=="));
        let [(id, post)] = &posts(&mut world)[..] else { panic!("one request") };
        assert_eq!(post.body, b"eyJhIjoxfQ==", "the text as it came, as CloudCore does");
        deliver(&mut world, RouterEvent::Posted(*id, result));
        let [message] = &routed(&mut world, "e1")[..] else { panic!("one answer") };
        assert_eq!(named(message), format!("servicebus response {URL}"));
        assert_eq!(*message.header.parent_id, *format!("up-{URL}"));
        content(message)
    };
    let ok = |status, body: &[u8]| Ok(PostAnswer { status, body: body.to_vec() });
    assert_eq!(answer_of(ok(200, b"accepted")), "accepted");
    assert_eq!(answer_of(ok(500, b"no")), "no", "KubeEdge's message has no status");
    let why = answer_of(ok(200, b"\xff"));
    assert_eq!(why, "edgecontroller: the REST endpoint's answer is not UTF-8");
    assert_eq!(answer_of(Err("a.example: refused".into())), "edgecontroller: a.example: refused");
    // A URL that no rule has.
    upload(&mut world, "e1", "servicebus", "", "http://x/", &json!("e30="));
    let [message] = &routed(&mut world, "e1")[..] else { panic!("one answer") };
    assert_eq!(content(message), "edgecontroller: no rule has this URL and this node");
    pass(&mut world, ROUTER_STATUS_MS);
    let status = status(&world, "r");
    assert_eq!((&status["successMessages"], &status["failMessages"]), (&json!(2), &json!(2)));
}

#[test]
fn a_request_of_an_application_that_is_gone_is_not_posted() {
    let mut world = with(&[of_url("r", "e1", URL)]);
    connect(&mut world, "e1");
    for _ in 0..5 {
        upload(&mut world, "e1", "servicebus", "", URL, &json!("e30="));
    }
    let running = posts(&mut world);
    assert_eq!(running.len(), 4, "the fifth waits");
    pass(&mut world, ROUTER_UPLOAD_MS);
    for (id, _) in running {
        deliver(&mut world, RouterEvent::Posted(id, Err("late".into())));
    }
    assert_eq!(posts(&mut world).len(), 0);
}

#[test]
fn a_rule_that_is_made_or_deleted_while_its_node_is_away_is_made_up_for() {
    for restarts in [false, true] {
        let mut world = with(&[of_topic("old", "e1", "t"), of_url("stays", "e1", URL)]);
        connect(&mut world, "e1");
        let start = format!("servicebus start {URL}");
        assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t".to_owned(), start.clone()]);
        disconnect(&mut world, "e1");
        remove(&mut world, "old");
        apply(&mut world, of_topic("new", "e1", "u"));
        if restarts {
            world.crash();
            world.pass(100);
        }
        connect(&mut world, "e1");
        let expected =
            ["eventbus unsubscribe n/t", "eventbus subscribe n/u", &*start].map(str::to_owned);
        assert_eq!(told(&mut world, "e1"), expected, "restarts: {restarts}");
        // It may have been lost: it is told again, until a session has held.
        pass(&mut world, ROUTER_UNDO_MS - 1_000);
        disconnect(&mut world, "e1");
        pass(&mut world, ROUTER_UNDO_MS);
        connect(&mut world, "e1");
        assert_eq!(told(&mut world, "e1"), expected);
        assert_eq!(world.rule_rows.len(), 3);
        pass(&mut world, ROUTER_UNDO_MS + 10);
        assert_eq!(world.rule_rows.len(), 2);
        disconnect(&mut world, "e1");
        connect(&mut world, "e1");
        assert_eq!(told(&mut world, "e1"), expected[1..], "it is done");
    }
}

#[test]
fn nothing_is_undone_before_the_rules_are_known() {
    let mut world = with(&[of_topic("r", "e1", "t")]);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t"]);
    world.cluster.unserved = vec![Kind::Rule];
    world.crash();
    world.pass(100);
    connect(&mut world, "e1");
    pass(&mut world, 30_000);
    assert_eq!(told(&mut world, "e1"), [""; 0]);
    world.cluster.unserved.clear();
    pass(&mut world, 60_000);
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t"]);
    let lines: Vec<_> =
        world.logs.iter().filter_map(|line| line.strip_prefix("api: rules: ")).collect();
    let [unserved, "listed again"] = lines[..] else { panic!("{lines:?}") };
    assert!(unserved.contains("has no rules.kubeedge.io/v1"), "{unserved}");
}

#[test]
fn an_edit_is_another_rule() {
    let mut world = with(&[of_topic("r", "e1", "t"), to_service("s", "/a")]);
    connect(&mut world, "e1");
    told(&mut world, "e1");
    apply(&mut world, of_topic("r", "e1", "u"));
    assert_eq!(told(&mut world, "e1"), ["eventbus unsubscribe n/t", "eventbus subscribe n/u"]);
    apply(&mut world, of_topic("r", "e2", "u"));
    assert_eq!(told(&mut world, "e1"), ["eventbus unsubscribe n/u"]);
    apply(&mut world, to_service("s", "/b"));
    for (path, count) in [("/e1/n/a", 0), ("/e1/n/b", 1)] {
        request(&mut world, 1, path, b"");
        assert_eq!(told(&mut world, "e1").len(), count, "{path}");
    }
    // An endpoint that changes does the same.
    let mut servicebus = endpoint("servicebus", "servicebus");
    servicebus.1["spec"]["properties"]["service_port"] = json!("9001");
    apply(&mut world, servicebus);
    request(&mut world, 2, "/e1/n/b", b"");
    assert_eq!(told(&mut world, "e1"), ["servicebus GET 9001:/echo"]);
    world.cluster.remove(&(Kind::RuleEndpoint, "n".to_owned(), "servicebus".to_owned()));
    world.pass(10);
    answers(&mut world);
    request(&mut world, 3, "/e1/n/b", b"");
    assert_eq!(only_answer(&mut world).0, 404);
}

#[test]
fn the_status_says_why_a_rule_is_not_in_force() {
    let url = json!({"resource": "http://a.example/"});
    let of = |source: (&str, Value), target: (&str, Value)| rule("r", source, target);
    let path = ("rest", json!({"path": "/a"}));
    for (rule, expected) in [
        (of(("none", json!({})), ("rest", url.clone())), "spec.source: there is no RuleEndpoint"),
        (of(path.clone(), ("rest", url.clone())), "a rule from: got rest to rest, expected"),
        (
            of(("rest", json!({})), ("eventbus", json!({"topic": "t"}))),
            "spec.sourceResource: got no path",
        ),
        (
            of(path.clone(), ("eventbus", json!({"topic": "a/#"}))),
            "spec.targetResource: topic: got a wild",
        ),
        (
            of(path.clone(), ("servicebus", json!({"path": "/a b"}))),
            "spec.targetResource: path: got",
        ),
        (
            of(("eventbus", json!({"topic": "t"})), ("rest", url.clone())),
            "spec.sourceResource: got no node_name",
        ),
        (of_topic("r", "No", "t"), "spec.sourceResource: node_name: got \"No\""),
        (of_topic("r", "e1", "a#"), "spec.sourceResource: topic: got a wildcard within a level"),
        (
            of_topic("r", "e1", "../x"),
            "spec.sourceResource: topic: got \"../x\", expected no level",
        ),
        (
            of(
                ("servicebus", json!({"target_url": "u", "node_name": "e1"})),
                ("rest", json!({"resource": "u"})),
            ),
            "spec.targetResource: resource: got \"u\", expected http://host",
        ),
        (of(("rest", json!({"path": 7})), ("rest", url.clone())), "spec: invalid type"),
    ] {
        let mut world = with(&[rule]);
        let errors = status(&world, "r")["errors"].clone();
        let error = errors[0].as_str().unwrap_or_default().to_owned();
        assert!(error.starts_with(&format!("not in force: {expected}")), "{expected}: {errors}");
        assert!(error.chars().count() <= ROUTER_ERROR_CHARS_MAX);
        let shown = world.controller.overview().rules.remove(0);
        assert!(shown.trouble.starts_with(expected), "{expected}: {}", shown.trouble);
        assert_eq!(shown.errors, [""; 0]);
        // It is repaired.
        apply(&mut world, to_service("r", "/a"));
        pass(&mut world, ROUTER_STATUS_MS);
        let errors = status(&world, "r")["errors"].clone();
        assert!(errors.as_array().is_none_or(Vec::is_empty), "{errors}");
    }
}

#[test]
fn a_rule_waits_for_its_endpoints() {
    let mut world = listed(&[(Kind::Node, crate::node("e1")), of_topic("r", "e1", "t")]);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1"), [""; 0]);
    apply(&mut world, endpoint("eventbus", "eventbus"));
    apply(&mut world, endpoint("rest", "rest"));
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t"]);
}

#[test]
fn of_two_rules_with_one_source_the_older_is_in_force() {
    let mut young = of_topic("a", "e1", "t");
    young.1["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    let mut world = with(&[young, of_topic("b", "e1", "t")]);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t"]);
    let expected = json!(["not in force: rule b has the same source"]);
    assert_eq!(status(&world, "a")["errors"], expected);
    upload(&mut world, "e1", "bus", "", "n/t", &json!("1"));
    assert_eq!(posts(&mut world).len(), 1);
    remove(&mut world, "b");
    assert_eq!(told(&mut world, "e1"), ["eventbus subscribe n/t"], "it stays");
    pass(&mut world, ROUTER_STATUS_MS);
    assert_eq!(status(&world, "a")["errors"], json!([]));
    upload(&mut world, "e1", "bus", "", "n/t", &json!("2"));
    assert_eq!(posts(&mut world).len(), 1);
}

#[test]
fn a_status_is_written_now_and_then_and_others_counts_are_kept() {
    let mut world = with(&[to_service("r", "/a")]);
    connect(&mut world, "e1");
    let calls = |world: &World| world.calls.iter().filter(|it| it.kind == Kind::Rule).count();
    let failed = |world: &mut World, count: u64| {
        for id in 0..count {
            request(world, id, "/e1/n/a", b"");
            let call = routed(world, "e1").pop().expect("a call");
            answer_call(world, "e1", &call, 500 + (id % 10) as u16);
        }
    };
    let before = calls(&world);
    failed(&mut world, 10);
    assert_eq!(calls(&world) - before, 1, "the first at once");
    pass(&mut world, ROUTER_STATUS_MS);
    assert_eq!(calls(&world) - before, 2);
    let of = status(&world, "r");
    assert_eq!(of["failMessages"], 10);
    assert_eq!(of["errors"].as_array().expect("a list").len(), ROUTER_ERRORS_MAX);
    assert_eq!(of["errors"][ROUTER_ERRORS_MAX - 1], "the service answered 509");
    // Another replica has counted as well.
    let mut object = world.cluster.objects[&key("r")].clone();
    object["status"]["failMessages"] = json!(100);
    world.cluster.force(Kind::Rule, object);
    failed(&mut world, 1);
    pass(&mut world, 2 * ROUTER_STATUS_MS);
    assert_eq!(status(&world, "r")["failMessages"], 101);
    // After a restart it goes on.
    world.crash();
    world.pass(100);
    connect(&mut world, "e1");
    failed(&mut world, 1);
    pass(&mut world, ROUTER_STATUS_MS);
    assert_eq!(status(&world, "r")["failMessages"], 102);
}

#[test]
fn a_refused_status_is_written_again_after_a_while() {
    let mut world = with(&[to_service("r", "/a")]);
    world.forbidden.push((Kind::Rule, "r".to_owned(), 403));
    request(&mut world, 1, "/e1/n/a", b"");
    let calls = |world: &World| world.calls.iter().filter(|it| it.kind == Kind::Rule).count();
    let mut wait_ms = ROUTER_STATUS_RETRY_MIN_MS;
    for count in 1..9 {
        assert_eq!(calls(&world), count);
        pass(&mut world, wait_ms - 900);
        assert_eq!(calls(&world), count, "{wait_ms}");
        pass(&mut world, 910);
        wait_ms = (wait_ms * 2).min(ROUTER_STATUS_RETRY_MAX_MS);
    }
    world.forbidden.clear();
    pass(&mut world, ROUTER_STATUS_RETRY_MAX_MS);
    assert_eq!(status(&world, "r")["failMessages"], 1);
    let refusals = world.logs.iter().filter(|line| line.contains("refuses its status"));
    assert_eq!(refusals.count(), 1);
}

#[test]
fn a_status_goes_where_the_api_server_has_it() {
    let mut world = with(&[to_service("r", "/a")]);
    let part = |world: &World| {
        let last = world.calls.iter().rfind(|it| it.kind == Kind::Rule).expect("a write");
        last.subresource
    };
    request(&mut world, 1, "/e1/n/a", b"");
    assert_eq!(part(&world), Some(Subresource::Status));
    // KubeEdge's CRD has no subresource: then the API server says 404.
    world.forbidden.push((Kind::Rule, "r".to_owned(), 404));
    request(&mut world, 2, "/e1/n/a", b"");
    pass(&mut world, ROUTER_STATUS_MS);
    world.forbidden.clear();
    pass(&mut world, 2 * ROUTER_STATUS_MS);
    assert_eq!(part(&world), None);
    assert_eq!(status(&world, "r")["failMessages"], 2);
}

#[test]
fn rules_have_a_bound() {
    let rules: Vec<_> = (0..=ROUTER_RULES_MAX)
        .map(|at| to_service(&format!("r{at:05}"), &format!("/p{at}")))
        .collect();
    let mut world = with(&rules);
    connect(&mut world, "e1");
    for (at, count) in [(ROUTER_RULES_MAX - 1, 1), (ROUTER_RULES_MAX, 0)] {
        request(&mut world, 1, &format!("/e1/n/p{at}"), b"");
        assert_eq!(told(&mut world, "e1").len(), count, "{at}");
    }
    let logged = world.logs.iter().filter(|line| line.contains("waits until this controller"));
    assert_eq!(logged.count(), 1);
}

#[test]
fn rules_of_one_node_have_a_bound() {
    let rules: Vec<_> = (0..=ROUTER_NODE_RULES_MAX)
        .map(|at| of_topic(&format!("r{at:03}"), "e1", &format!("t{at:03}")))
        .collect();
    let mut world = with(&rules);
    pass(&mut world, ROUTER_STATUS_MS);
    connect(&mut world, "e1");
    assert_eq!(told(&mut world, "e1").len(), ROUTER_NODE_RULES_MAX);
    let last = status(&world, &format!("r{ROUTER_NODE_RULES_MAX:03}"));
    let why = last["errors"][0].as_str().unwrap_or_default();
    assert!(why.contains("more rules with node e1"), "{last}");
}

#[test]
fn so_many_statuses_are_written_at_once() {
    let rules: Vec<_> = (0..2 * ROUTER_STATUS_CALLS_MAX)
        .map(|at| rule(&format!("r{at}"), ("none", json!({})), ("none", json!({}))))
        .collect();
    let mut all = vec![(Kind::Node, crate::node("e1"))];
    all.extend(rules);
    let mut world = listed(&all);
    world.pass(100);
    // All are written in the end; none was given up.
    for at in 0..2 * ROUTER_STATUS_CALLS_MAX {
        let errors = status(&world, &format!("r{at}"))["errors"].clone();
        assert!(errors[0].as_str().is_some_and(|why| why.contains("no RuleEndpoint")), "{errors}");
    }
}
