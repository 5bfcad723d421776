//! Joining: certificates, and whether a node exists.

use edged::controller::event::{Credential, Event, HttpRequest, Request};
use edged::controller::identity::Identity;
use edged::limits::SIGNATURES_MAX;
use edged::model::api::Kind;
use serde_json::json;

use crate::world::{World, config};
use crate::{listed, node};

/// By [`World`]'s clock.
const NOW_S: i64 = 1_800_000_000;

fn ask(by: Credential, name: &str) -> HttpRequest {
    HttpRequest::Certificate {
        node: "e1".to_owned(),
        by,
        request: Ok(Request {
            der: [5].into(),
            common_name: format!("system:node:{name}"),
            organization: "system:nodes".to_owned(),
        }),
        address: "192.0.2.9:7".to_owned(),
    }
}

fn token() -> Credential {
    Credential::Bearer(config().authority.token("hash", NOW_S + 86_000))
}

fn own_token(made_s: i64) -> Credential {
    let token = config().authority.node_token("hash", "e1", made_s, 1_900_000_000);
    Credential::Bearer(token.expect("a name"))
}

fn certificate(made_s: i64) -> Credential {
    let (common_name, organization) = ("system:node:e1".to_owned(), "system:nodes".to_owned());
    Credential::Certificate { common_name, organization, made_s }
}

/// The status of the answer; 200: it was signed.
fn requested(world: &mut World, by: Credential) -> u16 {
    let signed = world.signs.len();
    world.http(ask(by, "e1"));
    world.pass(10);
    let status = world.answers.pop().expect("an answer").1.status;
    assert_eq!(world.signs.len() - signed, usize::from(status == 200));
    status
}

#[test]
fn who_has_a_token_gets_a_certificate_for_the_name_in_its_request() {
    let mut world = listed(&[]);
    world.http(ask(token(), "e1"));
    world.http(ask(token(), "e2"));
    world.http(ask(Credential::None, "e1"));
    world.http(HttpRequest::Authority);
    world.pass(10);
    assert_eq!(world.signs.len(), 1);
    assert_eq!(world.signs[0].1, "e1");
    let mut statuses: Vec<u16> = world.answers.iter().map(|(_, answer)| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 401, 403]);
}

#[test]
fn so_many_certificates_are_signed_at_once_and_the_next_is_to_be_asked_for_again() {
    let mut world = listed(&[]);
    for _ in 0..SIGNATURES_MAX {
        world.http(ask(token(), "e1"));
    }
    assert_eq!((world.signs.len(), world.answers.len()), (SIGNATURES_MAX, 0));
    world.http(ask(token(), "e1"));
    assert_eq!(world.answers.pop().map(|(_, answer)| answer.status), Some(503));
    world.pass(10);
    assert_eq!(world.answers.len(), SIGNATURES_MAX);
    assert_eq!(requested(&mut world, token()), 200);
}

#[test]
fn whether_a_name_is_taken_is_told() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    for (name, status) in [("e1", 200), ("e2", 404)] {
        world.http(HttpRequest::Node { name: name.to_owned(), by: Credential::None });
        assert_eq!(world.answers.pop().expect("an answer").1.status, status);
    }
}

#[test]
fn a_node_that_exists_gets_another_certificate_only_by_a_token_of_its_own() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    assert_eq!(requested(&mut world, token()), 409);
    assert_eq!(requested(&mut world, certificate(NOW_S - 9)), 200, "it renews its own");
    let session = world.connect_made("e1", NOW_S - 9);
    assert_eq!(requested(&mut world, own_token(NOW_S - 5)), 200);
    // Its certificate is superseded, and so is the session.
    assert_eq!(world.closed.pop().map(|(closed, _)| closed), Some(session));
    assert_eq!(requested(&mut world, certificate(NOW_S - 9)), 403);
    // The answer was lost: once more.
    assert_eq!(requested(&mut world, own_token(NOW_S - 5)), 200);
    world.connect_made("e1", NOW_S);
    assert!(world.session("e1").is_some(), "{:?}", world.refused);
    let stored = world.identities.last().expect("it is kept");
    assert_eq!((stored.revoked_s, stored.connected_s), (NOW_S - 1, NOW_S));
    assert_eq!(requested(&mut world, own_token(NOW_S - 5)), 401, "it has done its work");
}

#[test]
fn the_certificates_of_a_node_that_was_deleted_are_good_no_more() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let session = world.connect_made("e1", NOW_S - 9);
    world.cluster.remove(&(Kind::Node, String::new(), "e1".to_owned()));
    world.deliver(Event::NodeDeleted("e1".into()));
    world.pass(2_000);
    assert_eq!(world.closed.pop().map(|(closed, _)| closed), Some(session));
    world.connect_made("e1", NOW_S - 9);
    assert_eq!(world.refused.pop().map(|it| it.status), Some(403));
    assert_eq!(requested(&mut world, certificate(NOW_S - 9)), 403, "it does not renew itself");
    let old = Credential::Bearer(config().authority.token("hash", NOW_S + 86_399));
    assert_eq!(requested(&mut world, old), 401, "a token of before brings it not back");
    let new = Credential::Bearer(config().authority.token("hash", NOW_S + 86_401));
    assert_eq!(requested(&mut world, new), 200);
    world.connect_made("e1", NOW_S + 2);
    assert!(world.session("e1").is_some(), "{:?}", world.refused);
}

#[test]
fn what_the_store_holds_of_certificates_counts_after_a_start() {
    let mut world = listed(&[]);
    let identity = Identity { node: "e1".into(), revoked_s: NOW_S - 5, connected_s: 0 };
    world.deliver(Event::Identities(vec![identity]));
    world.connect_made("e1", NOW_S - 5);
    assert_eq!(world.refused.pop().map(|it| it.status), Some(403));
    world.connect_made("e1", NOW_S - 4);
    assert!(world.session("e1").is_some());
}

#[test]
fn a_secret_denies_a_node_as_long_as_it_is_there() {
    let mut world = listed(&[]);
    let session = world.connect_made("e1", NOW_S - 9);
    let name = "edgecontroller-denied";
    let secret = |namespace: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"metadata": metadata, "data": {"e1": ""}})
    };
    world.cluster.apply(Kind::Secret, secret("n"));
    world.pass(100);
    assert_eq!(world.session("e1"), Some(session), "another's");
    world.cluster.apply(Kind::Secret, secret("k"));
    world.pass(100);
    assert_eq!(world.closed.pop().map(|(closed, _)| closed), Some(session));
    world.connect_made("e1", NOW_S - 9);
    assert_eq!(world.refused.pop().map(|it| it.status), Some(403));
    for by in [token(), own_token(NOW_S - 1), certificate(NOW_S - 9)] {
        assert_eq!(requested(&mut world, by), 403);
    }
    world.cluster.remove(&(Kind::Secret, "k".to_owned(), name.to_owned()));
    world.pass(100);
    world.connect_made("e1", NOW_S - 9);
    assert!(world.session("e1").is_some());
}

#[test]
fn refused_applications_are_told_with_their_origin_and_seldom() {
    let mut world = listed(&[]);
    for _ in 0..1_000 {
        world.http(ask(Credential::None, "e1"));
    }
    world.pass(100);
    let lines: Vec<_> = world.logs.iter().filter(|line| line.contains("refused")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = lines[0];
    assert!(line.contains("192.0.2.9:7") && line.contains("\"e1\""), "{line}");
    world.pass(60_000);
    world.http(ask(Credential::None, "e1"));
    world.pass(100);
    assert!(world.logs.iter().any(|line| line.ends_with("repeats=999")), "{:?}", world.logs);
}
