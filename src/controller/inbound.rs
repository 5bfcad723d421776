//! Dispatches the messages of a node, in the order of KubeEdge's cloud (wire spec section 2.7).

use super::calls;
use super::event::{Action, Severity};
use super::key::NodeId;
use super::outbound::{self, Origin};
use super::requests::NodeRequest;
use super::time::Now;
use super::upstream::{InboundOutcome, Problem, Reader};
use super::{Controller, Session};
use crate::model::cloud_message::{CloudMessage, Content, Failure};
use crate::model::edge_message::{EdgeContent, EdgeMessage};

/// Sources that only the cloud's own modules use.
const CLOUD_SOURCES: [&str; 5] =
    ["cloudhub", "cloudStream", "devicecontroller", "edgecontroller", "synccontroller"];
/// Modules that do not exist here, or whose messages have another form.
const UNSUPPORTED: [&str; 3] = ["metaserver", "eventbus", "servicebus"];

impl Controller {
    /// The socket of a session has accepted data.
    pub(super) fn edge_drained(&mut self, session: Session, unsent: usize) {
        if let Some(id) = self.sessions.get(&session).copied()
            && let Some(link) = &mut self.cache.at(id).link
        {
            link.drained(unsent);
            self.cache.ready.insert(id);
            self.dynamic_drained(id);
        }
    }

    /// A message of a node.
    pub(super) fn edge_message(&mut self, now: Now, session: Session, message: EdgeMessage) {
        let Some(id) = self.sessions.get(&session).copied() else { return };
        self.counters.messages_up += 1;
        self.counters.bytes_up += message.bytes as u64;
        let route = &message.route;
        match &*route.operation {
            "keepalive" => {
                let silent_at = now.boot.plus_ms(self.config.keepalive_ms);
                if let Some(link) = &mut self.cache.at(id).link {
                    link.silent_at = silent_at;
                }
            }
            "response" => {
                let parent = &message.header.parent_id;
                self.cache.acknowledged(now, id, parent, &mut self.counters);
                self.event_acknowledged(now, id, parent);
            }
            "error" => self.node_error(id, &message),
            _ if matches!(
                message.content,
                EdgeContent::Published(_)
                    | EdgeContent::ServiceAnswer(_)
                    | EdgeContent::ServiceRequest(_)
            ) =>
            {
                self.routed_message(now, id, session, message);
            }
            _ if &*route.group == "hub" => match message.content {
                EdgeContent::NodeJob(report) => self.job_report(now, id, *report),
                EdgeContent::Invalid(why) => self.count_offence(id, &why.to_string()),
                _ => self.counters.messages_unserved += 1,
            },
            _ if &*route.resource == "k8s/ca.crt" => self.api_authority(now, id, &message),
            "get" if &*route.resource == "membership/detail" => self.membership(id, &message),
            _ if &*route.source == "twin" => self.device_message(now, id, session, message),
            _ if CLOUD_SOURCES.contains(&&*route.source) => {
                self.count_offence(
                    id,
                    &format!("got a message of {}, expected the node's", route.source),
                );
            }
            _ if UNSUPPORTED.contains(&&*route.source) => {
                self.unsupported_message(now, id, session, message);
            }
            _ => self.handle_request(now, id, session, message),
        }
    }

    /// A message for the router.
    fn routed_message(&mut self, now: Now, id: NodeId, session: Session, message: EdgeMessage) {
        let EdgeMessage { header, route, content, .. } = message;
        match content {
            EdgeContent::Published(text) => self.published(now, id, &route.resource, &text),
            EdgeContent::ServiceAnswer(answer) => {
                self.service_answer(now, session, &header.parent_id, *answer);
            }
            EdgeContent::ServiceRequest(body) => {
                self.service_request(now, id, header.id, &route.resource, body);
            }
            _ => {}
        }
    }

    fn handle_request(&mut self, now: Now, id: NodeId, session: Session, message: EdgeMessage) {
        let origin = &origin(&message);
        let node = self.cache.at(id).name.clone();
        let route = &message.route;
        let reader = Reader { cache: &self.cache, id, node: &node, origin, route, now };
        let requests = match reader.read(message.content) {
            Ok(InboundOutcome::Requests(requests)) => requests,
            Ok(InboundOutcome::Ignored) => {
                self.counters.messages_unserved += 1;
                return;
            }
            Err(problem) => return self.refuse(now, id, session, origin, &problem),
        };
        for request in requests {
            let form = request.form;
            if !self.queue_request(id, request) {
                let why = "too many requests at once".to_owned();
                let problem = Problem { code: 429, reason: "TooManyRequests", why, form };
                return self.refuse(now, id, session, origin, &problem);
            }
        }
    }

    /// Queues a request. Returns `false` if there are too many.
    pub(super) fn queue_request(&mut self, id: NodeId, request: NodeRequest) -> bool {
        let link = self.cache.at(id).link.as_mut().expect("a session that is on");
        let fits = link.requests.add(request);
        self.cache.ready.insert(id);
        fits
    }

    fn refuse(
        &mut self,
        now: Now,
        id: NodeId,
        session: Session,
        origin: &Origin,
        problem: &Problem,
    ) {
        let failure = Failure::new(problem.code, problem.reason, &*problem.why);
        let content = calls::content(problem.form, Err((problem.code, failure)));
        if let Some(content) = content {
            let answer = outbound::response(&mut self.rng, now, origin, 0, content);
            self.cache.answer(id, session, answer);
        }
        self.count_offence(id, &problem.why);
    }

    /// A node has sent something forbidden or malformed: it is counted, and logged once.
    pub(super) fn count_offence(&mut self, id: NodeId, why: &str) {
        self.counters.messages_refused += 1;
        let node = self.cache.at(id);
        let Some(link) = &mut node.link else { return };
        link.offences = link.offences.saturating_add(1);
        if link.offences == 1 {
            let why: String = why.chars().take(256).collect();
            let line = format!("node={}: refused, further ones are counted: {why}", node.name);
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        self.cache.ready.insert(id);
    }

    /// A node refuses what we sent: it is sent again, and then postponed.
    fn node_error(&mut self, id: NodeId, message: &EdgeMessage) {
        let node = self.cache.at(id);
        let Some(link) = &mut node.link else { return };
        let Some(key) = link.awaits(&message.header.parent_id) else { return };
        let key = key.to_string();
        if !std::mem::replace(&mut link.is_error_logged, true) {
            let why = match &message.content {
                EdgeContent::Refusal(why) => &**why,
                _ => "",
            };
            let why: String = why.chars().take(256).collect();
            let line = format!("node={}: refuses {key}: {why}", node.name);
            self.pending.push(Action::Log(Severity::Warn, line));
        }
    }

    fn api_authority(&mut self, now: Now, id: NodeId, message: &EdgeMessage) {
        let origin = origin(message);
        let authority = self.config.api_authority.as_deref().unwrap_or_default();
        let content = Content::Authority(authority.into());
        let mut answer = outbound::response(&mut self.rng, now, &origin, 0, content);
        answer.source = "cloudhub";
        self.answer(id, answer);
    }

    pub(super) fn answer(&mut self, id: NodeId, answer: Box<CloudMessage>) {
        if let Some(session) = self.cache.at(id).link.as_ref().map(|link| link.session) {
            self.cache.answer(id, session, answer);
        }
    }
}

fn origin(message: &EdgeMessage) -> Origin {
    Origin { id: message.header.id.clone(), resource: message.route.resource.clone() }
}
