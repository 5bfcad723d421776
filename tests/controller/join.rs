//! Joining: certificates, and whether there is such a node.

use edged::controller::event::{Ask, Credential, Request};
use edged::model::api::Kind;

use crate::world::config;
use crate::{listed, node};

#[test]
fn who_has_a_token_gets_a_certificate_for_the_name_in_its_request() {
    let mut world = listed(&[]);
    let token = config().authority.token("hash", 1_900_000_000);
    let ask = |by, name: &str| Ask::Certificate {
        node: "e1".to_owned(),
        by,
        request: Ok(Request {
            der: [5].into(),
            common_name: format!("system:node:{name}"),
            organization: "system:nodes".to_owned(),
        }),
    };
    world.http(ask(Credential::Bearer(token.clone()), "e1"));
    world.http(ask(Credential::Bearer(token), "e2"));
    world.http(ask(Credential::None, "e1"));
    world.http(Ask::Authority);
    world.pass(10);
    assert_eq!(world.signs.len(), 1);
    assert_eq!(world.signs[0].1, "e1");
    let mut statuses: Vec<u16> = world.answers.iter().map(|(_, answer)| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 401, 403]);
}

#[test]
fn whether_a_name_is_taken_is_told() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    for (name, status) in [("e1", 200), ("e2", 404)] {
        world.http(Ask::Node { name: name.to_owned(), by: Credential::None });
        assert_eq!(world.answers.pop().expect("an answer").1.status, status);
    }
}
