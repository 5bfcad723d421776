//! Requests of clients to services and topics of nodes (spec `servicebus-router-tasks`, sections 4
//! to 6).
//!
//! ```text
//!  Request ─▶ rule? ─▶ node connected? ─▶ eventbus: publish, 200
//!                                     └─▶ servicebus: call ─answer, end of session, 60 s─▶ Answer
//! ```
//!
//! A request is sent once: nothing is repeated, and nothing is kept. It is known before its message
//! is sent, so that no answer comes too early.

use std::collections::{BTreeMap, BTreeSet};

use super::super::event::Action;
use super::super::key::{Key, NodeId};
use super::super::object::Edge;
use super::super::outbound;
use super::super::time::{Instant, Now};
use super::super::{Controller, Session};
use super::pattern::is_dots;
use super::rule::Target;
use crate::limits::{
    MESSAGE_BYTES_MAX, ROUTER_ANSWER_MS, ROUTER_MESSAGE_BYTES_MAX, ROUTER_REQUESTS_MAX,
};
use crate::model::cloud_message::{CloudMessage, Content};
use crate::model::router::{RestId, RestRequest, RouterAction};
use crate::model::service_bus::{ServiceAnswer, ServiceCall};
use crate::model::topic;

/// Requests that wait for the answer of a node.
#[derive(Default)]
pub(super) struct Requests {
    open: BTreeMap<RestId, Waiting>,
    /// By the ids of their messages.
    messages: BTreeMap<Box<str>, RestId>,
    due: BTreeSet<(Instant, RestId)>,
}

struct Waiting {
    rule: Key,
    node: NodeId,
    session: Session,
    message: Box<str>,
    until: Instant,
}

/// A request that is not made: its status, and the reason.
struct Refused(u16, String);

/// The methods that a node knows.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

impl Requests {
    fn add(&mut self, id: RestId, waiting: Waiting) {
        self.messages.insert(waiting.message.clone(), id);
        self.due.insert((waiting.until, id));
        self.open.insert(id, waiting);
    }

    fn end(&mut self, id: RestId) -> Option<Waiting> {
        let waiting = self.open.remove(&id)?;
        self.messages.remove(&waiting.message);
        self.due.remove(&(waiting.until, id));
        Some(waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Controller {
    /// A client requests something of a node.
    pub(super) fn rest_request(&mut self, now: Now, id: RestId, request: RestRequest) {
        self.counters.router_requests += 1;
        let router = &self.router;
        let found = router.claims.find_path(&request.namespace, &request.path);
        let Some((rule, rest)) = found.map(|(rule, rest)| (rule.clone(), Box::<str>::from(rest)))
        else {
            let why = if router.is_listed() {
                let (namespace, path) = (&request.namespace, &request.path);
                let why = format!("no rule of namespace {namespace} has a path for /{path}");
                Refused(404, why)
            } else {
                Refused(503, "not ready: the rules are not listed yet".to_owned())
            };
            self.counters.router_requests_failed += 1;
            return self.refuse_rest(id, &why);
        };
        match self.send_request(now, id, &rule, &rest, request) {
            Ok(()) => {}
            Err(refused) => {
                self.counters.router_requests_failed += 1;
                self.count_of_rule(now, &rule, Some(&refused.1));
                self.refuse_rest(id, &refused);
            }
        }
    }

    fn refuse_rest(&mut self, id: RestId, Refused(status, why): &Refused) {
        self.answer_rest(id, own_answer(*status, why));
    }

    fn answer_rest(&mut self, id: RestId, answer: ServiceAnswer) {
        self.pending.push(Action::Router(Box::new(RouterAction::Answer(id, answer))));
    }

    fn send_request(
        &mut self,
        now: Now,
        id: RestId,
        rule: &Key,
        rest: &str,
        request: RestRequest,
    ) -> Result<(), Refused> {
        if rest.split('/').any(is_dots) {
            let why = format!("got /{rest} after the rule's path, expected no element . or ..");
            return Err(Refused(400, why));
        }
        let param = match &*request.query {
            "" => rest.to_owned(),
            query => format!("{rest}?{query}"),
        };
        let (node, session, edge) = self.connected(&request.node)?;
        let target = self.router.target(rule).expect("a rule in force has one").clone();
        match target {
            Target::EventBus { topic } => {
                let topic = joined(&topic, &param);
                topic::check_name(&topic).map_err(|fault| Refused(400, fault.to_string()))?;
                let text = String::from_utf8(request.body).map_err(|_| {
                    let why = "got bytes that are no text, expected UTF-8: send others as base64";
                    Refused(400, why.to_owned())
                })?;
                let content = Content::Text(text.into());
                let of = ("router_eventbus", "publish");
                let message = outbound::routed(&mut self.rng, now, of, &topic, "", content);
                self.offer(node, session, edge, message)?;
                self.count_of_rule(now, rule, None);
                // CloudCore's text: whether the broker has it is not known.
                self.answer_rest(id, own_answer(200, "message delivered"));
                Ok(())
            }
            Target::ServiceBus { port, path } => {
                let RestRequest { method, headers, body, .. } = request;
                let known = METHODS.into_iter().find(|known| **known == *method);
                let operation = known.ok_or_else(|| {
                    let why =
                        format!("got method {method}, expected one of {}", METHODS.join(", "));
                    Refused(405, why)
                })?;
                if self.router.requests.len() >= ROUTER_REQUESTS_MAX {
                    let why = format!("{ROUTER_REQUESTS_MAX} requests wait for nodes: try again");
                    return Err(Refused(503, why));
                }
                let resource = format!("{port}:{}", joined(&path, &param));
                let call = ServiceCall { method, port, target: path, headers, body };
                let content = Content::Call(Box::new(call));
                let of = ("router_servicebus", operation);
                let message = outbound::routed(&mut self.rng, now, of, &resource, "", content);
                let until = now.boot.plus_ms(ROUTER_ANSWER_MS);
                let (rule, message_id) = (rule.clone(), message.id.clone());
                self.offer(node, session, edge, message)?;
                let waiting = Waiting { rule, node, session, message: message_id, until };
                self.router.requests.add(id, waiting);
                Ok(())
            }
            Target::Rest(_) => Err(Refused(500, "a rule from rest to rest".to_owned())),
        }
    }

    /// The session of a node.
    fn connected(&self, name: &str) -> Result<(NodeId, Session, Edge), Refused> {
        let node = self.cache.id_of(name).and_then(|id| Some((id, self.cache.nodes.get(&id)?)));
        let Some((id, node)) = node.filter(|(_, node)| node.is_known || node.link.is_some()) else {
            return Err(Refused(404, format!("there is no node {name:?}")));
        };
        let away = || Refused(503, format!("node {name} is not connected to this controller"));
        let link = node.link.as_ref().ok_or_else(away)?;
        let object = self.cache.object(&Key::node(name)).and_then(|object| object.node.as_ref());
        let edge = object.map_or(Edge::default(), |facts| facts.edge);
        Ok((id, link.session, edge))
    }

    /// Sends a message to a node, if it and its queue have room for it.
    fn offer(
        &mut self,
        id: NodeId,
        session: Session,
        edge: Edge,
        message: Box<CloudMessage>,
    ) -> Result<(), Refused> {
        let max = most_bytes(edge);
        if message.bytes() > max {
            let got = message.bytes();
            let why = format!("got a message of {got} bytes with its body, expected {max} at most");
            return Err(Refused(413, why));
        }
        let node = self.cache.at(id);
        let link = node.link.as_mut().filter(|link| link.session == session);
        if !link.is_some_and(|link| link.offer(message)) {
            let why = format!("node {} does not read what it is sent: try again", node.name);
            return Err(Refused(503, why));
        }
        self.cache.ready.insert(id);
        Ok(())
    }

    /// A service of a node has answered.
    pub(in super::super) fn service_answer(
        &mut self,
        now: Now,
        session: Session,
        message: &str,
        answer: ServiceAnswer,
    ) {
        let requests = &mut self.router.requests;
        let id = requests.messages.get(message).copied();
        let is_own = |id: &RestId| requests.open.get(id).is_some_and(|it| it.session == session);
        // Its client is gone, or it came too late.
        let Some(waiting) = id.filter(is_own).and_then(|id| requests.end(id)) else {
            self.counters.messages_unserved += 1;
            return;
        };
        let failure =
            (answer.status >= 400).then(|| format!("the service answered {}", answer.status));
        self.counters.router_requests_failed += u64::from(failure.is_some());
        self.count_of_rule(now, &waiting.rule, failure.as_deref());
        self.answer_rest(id.expect("it was found"), answer);
    }

    /// Its client is gone: an answer is for nobody.
    pub(super) fn rest_gone(&mut self, id: RestId) {
        drop(self.router.requests.end(id));
    }

    /// A session has ended.
    pub(in super::super) fn end_requests_of(&mut self, now: Now, node: NodeId) {
        let open = self.router.requests.open.iter();
        let ended: Vec<RestId> =
            open.filter(|(_, waiting)| waiting.node == node).map(|(id, _)| *id).collect();
        for id in ended {
            self.fail_request(now, id, 502, "the node's session ended before its service answered");
        }
    }

    fn fail_request(&mut self, now: Now, id: RestId, status: u16, why: &str) {
        if let Some(waiting) = self.router.requests.end(id) {
            self.counters.router_requests_failed += 1;
            self.count_of_rule(now, &waiting.rule, Some(why));
            self.answer_rest(id, own_answer(status, why));
        }
    }

    /// Ends the requests that have waited too long.
    pub(super) fn end_late_requests(&mut self, now: Now) {
        while let Some((at, id)) = self.router.requests.due.first().copied()
            && at <= now.boot
        {
            let why = format!("the node did not answer for {} s", ROUTER_ANSWER_MS / 1_000);
            self.fail_request(now, id, 504, &why);
        }
    }
}

/// Bytes of a message that a node accepts, as far as that is known here.
pub(super) fn most_bytes(edge: Edge) -> usize {
    match edge {
        // One with little memory accepts less.
        Edge::Idempotent => MESSAGE_BYTES_MAX,
        Edge::Stages | Edge::Flow => ROUTER_MESSAGE_BYTES_MAX,
    }
}

/// The controller's own answer: one line of text.
fn own_answer(status: u16, text: &str) -> ServiceAnswer {
    let headers = vec![
        ("Content-Type".into(), "text/plain; charset=utf-8".into()),
        ("Server".into(), "edgecontroller".into()),
    ];
    ServiceAnswer { status, headers, body: text.as_bytes().to_vec() }
}

/// A target and what follows the rule's path, with one slash between them.
fn joined(target: &str, param: &str) -> String {
    match param {
        "" => target.to_owned(),
        _ => format!("{}/{}", target.trim_end_matches('/'), param.trim_start_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_path_is_appended_as_cloudcore_does() {
        for (target, param, expected) in [
            ("/echo", "", "/echo"),
            ("/echo/", "", "/echo/"),
            ("/echo", "?x=1", "/echo/?x=1"),
            ("/echo/", "/a/b?x=1", "/echo/a/b?x=1"),
            ("/", "a", "/a"),
            ("a/b", "c", "a/b/c"),
        ] {
            assert_eq!(joined(target, param), expected, "{target} {param}");
        }
    }
}
