//! What a node has of an object, where lists, watches and sessions cross: the node ends with what
//! the API server has.

use edged::controller::dynamic::access::RequestUser;
use edged::limits::{ACK_MS, WATCH_RETRY_MIN_MS};
use edged::model::base64;
use serde_json::{Value, json};

use crate::dynamic::{
    all_services, application, applied, apply, events, open, service, services, sync, watch,
    world_with,
};
use crate::world::World;

fn labelled(name: &str, app: &str) -> Value {
    let mut object = service(name, 80);
    object["metadata"]["labels"]["app"] = json!(app);
    object
}

/// The watch of the resource missed what has happened until now: it is listed anew after a pause.
fn interrupt(world: &mut World) {
    world.any.compacted = world.any.version;
    world.pass(1);
}

fn list(world: &mut World) -> Value {
    let list = application("list", "/core/v1/services/null/null", &json!({}));
    let answer = applied(world, "e1", &list);
    let bytes = answer["RespBody"].as_str().and_then(base64::decode).expect("base64");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// `resourceVersion` of the objects in the events that a node has received.
fn versions(world: &mut World, node: &str) -> Vec<(String, u64)> {
    let messages = std::mem::take(&mut world.edge(node).messages);
    let of_it = messages.iter().filter(|it| &*it.route.source == "dynamiccontroller");
    let of_it = of_it.filter(|it| &*it.route.operation != "applicationResponse");
    let read = |content: &str| -> Value { serde_json::from_str(content).expect("JSON") };
    let with_version = of_it.map(|it| {
        let object = read(it.content.as_ref().expect("an object").get());
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        (it.route.operation.to_string(), version.parse().expect("a number"))
    });
    with_version.collect()
}

#[test]
fn a_deletion_that_the_watch_missed_is_older_than_what_came_after_it() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    applied(&mut world, "e1", &all_services());
    versions(&mut world, "e1");
    world.any.remove(&services(), "n", "web");
    world.any.apply(&services(), service("web", 81));
    interrupt(&mut world);
    world.pass(2 * WATCH_RETRY_MIN_MS);
    let got = versions(&mut world, "e1");
    assert_eq!(got, [("delete".to_owned(), 2), ("insert".to_owned(), 3)]);
}

#[test]
fn a_state_that_only_a_list_has_shown_is_followed_by_the_next() {
    let mut world = world_with(open);
    world.any.apply(&services(), labelled("web", "web"));
    applied(&mut world, "e1", &watch("/core/v1/services/null/null", "app=db"));
    assert_eq!(events(&mut world, "e1"), [""; 0]);
    world.any.apply(&services(), labelled("web", "db"));
    world.any.apply(&services(), labelled("new", "db"));
    interrupt(&mut world);
    assert_eq!(list(&mut world)["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(events(&mut world, "e1"), [""; 0], "it is not known yet");
    world.any.apply(&services(), labelled("web", "other"));
    world.any.remove(&services(), "n", "new");
    world.pass(2 * WATCH_RETRY_MIN_MS);
    let mut got = events(&mut world, "e1");
    got.sort();
    assert_eq!(got, ["delete n/service/new", "update n/service/web"]);
}

#[test]
fn a_list_of_what_is_known_causes_no_events() {
    let mut world = world_with(open);
    world.any.apply(&services(), labelled("web", "web"));
    world.any.apply(&services(), labelled("db", "db"));
    applied(&mut world, "e1", &watch("/core/v1/services/null/null", "app=db"));
    assert_eq!(events(&mut world, "e1"), ["insert n/service/db"]);
    list(&mut world);
    world.any.apply(&services(), labelled("web", "still another"));
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
}

#[test]
fn a_late_list_is_followed_by_the_deletion() {
    let mut world = world_with(open);
    applied(&mut world, "e1", &all_services());
    world.any.apply(&services(), service("web", 80));
    world.pass(100);
    world.any_answers_after_ms = 1_000;
    let list = application("list", "/core/v1/services/null/null", &json!({}));
    apply(&mut world, "e1", &list);
    world.pass(500);
    world.any.remove(&services(), "n", "web");
    world.pass(100);
    let got = events(&mut world, "e1");
    assert_eq!(got, ["insert n/service/web", "delete n/service/web"]);
    world.pass(1_000);
    let received = std::mem::take(&mut world.edge("e1").received);
    let received: Vec<String> = received.into_iter().map(|(operation, ..)| operation).collect();
    assert_eq!(received, ["applicationResponse", "delete"], "the list shows it once more");
}

#[test]
fn an_event_under_way_does_not_count_for_what_a_list_shows_after_it() {
    let mut world = world_with(open);
    world.any.apply(&services(), labelled("web", "db"));
    applied(&mut world, "e1", &watch("/core/v1/services/null/null", "app=db"));
    events(&mut world, "e1");
    world.any_answers_after_ms = 1_000;
    let list = application("list", "/core/v1/services/null/null", &json!({}));
    apply(&mut world, "e1", &list);
    world.pass(500);
    // The deletion is under way while the list is answered.
    world.edge("e1").deaf = true;
    world.any.remove(&services(), "n", "web");
    world.pass(1_000);
    assert_eq!(events(&mut world, "e1"), ["delete n/service/web"]);
    world.edge("e1").deaf = false;
    world.pass(ACK_MS);
    let got = events(&mut world, "e1");
    assert_eq!(got, ["delete n/service/web"; 2], "it is repeated, and sent for the list");
}

#[test]
fn the_end_of_a_selection_is_told_until_it_is_acknowledged() {
    let mut world = world_with(open);
    world.any.apply(&services(), labelled("db", "db"));
    applied(&mut world, "e1", &watch("/core/v1/services/null/null", "app=db"));
    events(&mut world, "e1");
    world.edge("e1").deaf = true;
    world.any.apply(&services(), labelled("db", "other"));
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), ["update n/service/db"]);
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    world.edge("e1").deaf = false;
    world.connect("e1");
    world.pass(100);
    let mut got = events(&mut world, "e1");
    got.retain(|event| event.contains("/service/"));
    assert_eq!(got, ["update n/service/db"]);
}

#[test]
fn a_watch_that_comes_back_sees_what_left_its_selection_meanwhile() {
    let mut world = world_with(open);
    let of = |app: &str| watch("/core/v1/services/null/null", &format!("app={app}"));
    world.any.apply(&services(), labelled("web", "a"));
    sync(&mut world, "e1", &[of("a")]);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/web"]);
    for watches in [[of("b")].as_slice(), &[of("b"), of("c")]] {
        sync(&mut world, "e1", watches);
    }
    world.any.apply(&services(), labelled("web", "d"));
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
    sync(&mut world, "e1", &[of("a"), of("b"), of("c")]);
    assert_eq!(events(&mut world, "e1"), ["update n/service/web"]);
}

#[test]
fn a_node_that_lists_without_a_watch_gets_no_events() {
    let only_reads = || crate::dynamic::allowing("services", "", RequestUser::Controller);
    let mut world = world_with(only_reads);
    applied(&mut world, "e2", &all_services());
    world.any.apply(&services(), service("web", 80));
    list(&mut world);
    world.any.remove(&services(), "n", "web");
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
}
