//! What nodes upload, on its way to REST endpoints (spec `servicebus-router-tasks`, sections 7 and
//! 8).
//!
//! ```text
//!  upload ─▶ rules of the node ─▶ a queue for each ─turn─▶ Post ─▶ Posted ─▶ answer (servicebus)
//! ```
//!
//! Queues are in memory, and bounded in messages and bytes. A rule whose source is eventbus has one
//! POST at a time, so that its messages stay in order; nothing is repeated, and the oldest message
//! makes room. An application whose request cannot be delivered gets a text that says so:
//! CloudCore's applications wait for a minute.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::super::event::Action;
use super::super::key::{Key, NodeId};
use super::super::outbound;
use super::super::time::{Instant, Now};
use super::super::{Controller, Session};
use super::requests::most_bytes;
use super::rule::Target;
use crate::limits::{
    ROUTER_POST_BYTES_MAX, ROUTER_POSTS_MAX, ROUTER_QUEUE_BYTES_MAX, ROUTER_QUEUE_MAX,
    ROUTER_QUEUES_BYTES_MAX, ROUTER_RULE_POSTS_MAX, ROUTER_UPLOAD_MS,
};
use crate::model::cloud_message::Content;
use crate::model::router::{NodeRule, Post, PostAnswer, PostId, RouterAction};
use crate::model::topic;

/// The queues of all rules.
#[derive(Default)]
pub(super) struct Uploads {
    queues: BTreeMap<Key, Queue>,
    /// Rules with something to post, and room for it.
    ready: BTreeSet<Key>,
    /// The rule that had its turn last.
    last: Option<Key>,
    running: BTreeMap<PostId, Running>,
    last_id: u64,
    /// Of all that waits or is posted.
    bytes: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Upload>,
    bytes: usize,
    running: usize,
}

/// A message of a node.
struct Upload {
    node: Arc<str>,
    /// A topic or a URL.
    resource: Box<str>,
    body: Box<str>,
    /// The application that waits for an answer.
    reply: Option<Reply>,
    at: Instant,
}

#[derive(Clone)]
struct Reply {
    node: NodeId,
    session: Session,
    message: Box<str>,
    url: Box<str>,
}

struct Running {
    rule: Key,
    bytes: usize,
    reply: Option<Reply>,
}

impl Queue {
    /// Whether it has something to post, and room for it.
    fn is_ready(&self) -> bool {
        let max = match self.waiting.front() {
            None => 0,
            Some(upload) if upload.reply.is_some() => ROUTER_RULE_POSTS_MAX,
            Some(_) => 1,
        };
        self.running < max
    }

    fn pop(&mut self) -> Option<Upload> {
        let upload = self.waiting.pop_front()?;
        self.bytes -= upload.body.len();
        Some(upload)
    }
}

impl Uploads {
    /// Adds an upload; returns those that make room, and this one if there is none.
    fn push(&mut self, rule: &Key, upload: Upload) -> Vec<Upload> {
        let bytes = upload.body.len();
        if bytes > ROUTER_QUEUE_BYTES_MAX {
            return vec![upload];
        }
        let queue = self.queues.entry(rule.clone()).or_default();
        let mut dropped = Vec::new();
        while queue.waiting.len() >= ROUTER_QUEUE_MAX
            || queue.bytes + bytes > ROUTER_QUEUE_BYTES_MAX
        {
            let Some(oldest) = queue.pop() else { break };
            self.bytes -= oldest.body.len();
            dropped.push(oldest);
        }
        if self.bytes + bytes > ROUTER_QUEUES_BYTES_MAX {
            dropped.push(upload);
        } else {
            queue.bytes += bytes;
            self.bytes += bytes;
            queue.waiting.push_back(upload);
        }
        self.settle(rule);
        dropped
    }

    /// Notes whether the rule has something to post.
    fn settle(&mut self, rule: &Key) {
        let Some(queue) = self.queues.get(rule) else { return };
        if queue.is_ready() {
            self.ready.insert(rule.clone());
        } else {
            self.ready.remove(rule);
        }
        if queue.waiting.is_empty() && queue.running == 0 {
            self.queues.remove(rule);
        }
    }

    /// The next upload, of the rules in turn.
    fn next(&mut self) -> Option<(Key, Upload)> {
        if self.running.len() >= ROUTER_POSTS_MAX {
            return None;
        }
        let behind = self
            .last
            .as_ref()
            .and_then(|last| self.ready.range((Bound::Excluded(last), Bound::Unbounded)).next());
        let rule = behind.or_else(|| self.ready.first())?.clone();
        let upload = self.queues.get_mut(&rule)?.pop()?;
        self.bytes -= upload.body.len();
        self.settle(&rule);
        self.last = Some(rule.clone());
        Some((rule, upload))
    }

    fn begin(&mut self, rule: &Key, bytes: usize, reply: Option<Reply>) -> PostId {
        self.last_id += 1;
        let id = PostId(self.last_id);
        self.bytes += bytes;
        self.queues.entry(rule.clone()).or_default().running += 1;
        self.running.insert(id, Running { rule: rule.clone(), bytes, reply });
        self.settle(rule);
        id
    }

    fn end(&mut self, id: PostId) -> Running {
        let running = self.running.remove(&id).expect("an answer to a request that was made");
        self.bytes -= running.bytes;
        if let Some(queue) = self.queues.get_mut(&running.rule) {
            queue.running -= 1;
        }
        self.settle(&running.rule);
        running
    }

    /// The rule is gone, or is not in force any more.
    pub(super) fn forget(&mut self, rule: &Key) {
        let Some(queue) = self.queues.get_mut(rule) else { return };
        self.bytes -= std::mem::take(&mut queue.bytes);
        queue.waiting.clear();
        self.settle(rule);
    }

    /// How many wait or are posted.
    pub(super) fn len(&self) -> usize {
        let waiting = self.queues.values().map(|queue| queue.waiting.len());
        waiting.sum::<usize>() + self.running.len()
    }
}

impl Controller {
    /// Something was published on a node. Every rule with a filter for it gets it.
    pub(in super::super) fn published(&mut self, now: Now, id: NodeId, topic: &str, text: &str) {
        let node = Arc::clone(&self.cache.at(id).name);
        let all = self.router.claims.of_node(&node);
        let rules: Vec<Key> = all
            .filter(|(rule, _)| match rule {
                NodeRule::Topic(filter) => topic::matches(filter, topic),
                NodeRule::Url(_) => false,
            })
            .map(|(_, rule)| rule.clone())
            .collect();
        self.counters.router_uploads += 1;
        self.counters.messages_unserved += u64::from(rules.is_empty());
        for rule in rules {
            let upload = Upload {
                node: Arc::clone(&node),
                resource: topic.into(),
                body: text.into(),
                reply: None,
                at: now.boot,
            };
            self.upload(now, &rule, upload);
        }
    }

    /// An application of a node sends a request: its whole body, base64, goes on as it is.
    pub(in super::super) fn service_request(
        &mut self,
        now: Now,
        id: NodeId,
        message: Box<str>,
        url: &str,
        body: Box<str>,
    ) {
        self.counters.router_uploads += 1;
        let node = self.cache.at(id);
        let name = Arc::clone(&node.name);
        let session = node.link.as_ref().expect("a session that is on").session;
        let reply = Reply { node: id, session, message, url: url.into() };
        let is_it = |rule: &NodeRule| matches!(rule, NodeRule::Url(known) if **known == *url);
        let mut all = self.router.claims.of_node(&name);
        let rule = all.find(|(rule, _)| is_it(rule)).map(|(_, rule)| rule.clone());
        drop(all);
        let Some(rule) = rule else {
            self.counters.messages_unserved += 1;
            return self.reply(now, &reply, Err("no rule has this URL and this node"));
        };
        let (resource, at) = (url.into(), now.boot);
        self.upload(now, &rule, Upload { node: name, resource, body, reply: Some(reply), at });
    }

    fn upload(&mut self, now: Now, rule: &Key, upload: Upload) {
        for dropped in self.router.uploads.push(rule, upload) {
            self.fail_upload(now, rule, dropped.reply.as_ref(), "too many messages wait for it");
        }
    }

    /// Posts what may be posted now.
    pub(super) fn run_uploads(&mut self, now: Now) {
        // Each is posted or dropped, and there are so many.
        while let Some((rule, upload)) = self.router.uploads.next() {
            let Some(Target::Rest(url)) = self.router.target(&rule).cloned() else { continue };
            if let Some(reply) = &upload.reply
                && (upload.at.plus_ms(ROUTER_UPLOAD_MS) <= now.boot || !self.is_awaited(reply))
            {
                self.fail_upload(now, &rule, None, "its application did not wait for the answer");
                continue;
            }
            let mut headers = vec![("Edge-Node".into(), (*upload.node).into())];
            if upload.resource.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
                headers.push(("Edge-Resource".into(), upload.resource));
            }
            let body = String::from(upload.body).into_bytes();
            let answer_bytes_max = upload.reply.as_ref().map_or(0, |_| ROUTER_POST_BYTES_MAX);
            let id = self.router.uploads.begin(&rule, body.len(), upload.reply);
            let post = Post { url, headers, body, answer_bytes_max };
            self.pending.push(Action::Router(Box::new(RouterAction::Post(id, Box::new(post)))));
        }
    }

    fn is_awaited(&self, reply: &Reply) -> bool {
        let link = self.cache.nodes.get(&reply.node).and_then(|node| node.link.as_ref());
        link.is_some_and(|link| link.session == reply.session)
    }

    fn fail_upload(&mut self, now: Now, rule: &Key, reply: Option<&Reply>, why: &str) {
        self.counters.router_uploads_failed += 1;
        self.count_of_rule(now, rule, Some(why));
        if let Some(reply) = reply {
            self.reply(now, reply, Err(why));
        }
    }

    /// A REST endpoint has answered, or cannot be reached.
    pub(super) fn posted(&mut self, now: Now, id: PostId, result: Result<PostAnswer, Box<str>>) {
        let Running { rule, reply, .. } = self.router.uploads.end(id);
        let answer = match result {
            Ok(answer) => answer,
            Err(why) => return self.fail_upload(now, &rule, reply.as_ref(), &why),
        };
        if (200..300).contains(&answer.status) {
            self.count_of_rule(now, &rule, None);
        } else {
            self.counters.router_uploads_failed += 1;
            let why = format!("the REST endpoint answered {}", answer.status);
            self.count_of_rule(now, &rule, Some(&why));
        }
        if let Some(reply) = &reply {
            let text = String::from_utf8(answer.body);
            let text = text.as_deref().map_err(|_| "the REST endpoint's answer is not UTF-8");
            self.reply(now, reply, text);
        }
    }

    /// Answers an application of a node, if its session goes on: with the body of the REST
    /// endpoint's answer, or why there is none. KubeEdge's message has no place for a status.
    fn reply(&mut self, now: Now, reply: &Reply, text: Result<&str, &str>) {
        if !self.is_awaited(reply) {
            return;
        }
        let own = |why: &str| Content::Text(format!("edgecontroller: {why}").into());
        let content = text.map_or_else(own, |text| Content::Text(text.into()));
        let of = ("router_servicebus", "response");
        let Reply { node, message: parent, url, .. } = reply;
        let mut message = outbound::routed(&mut self.rng, now, of, url, parent, content);
        // Escapes may make it longer than a node accepts.
        if message.bytes() > most_bytes(super::super::object::Edge::Idempotent) {
            message.content = own("the answer is longer than a message may be");
        }
        let link = self.cache.at(*node).link.as_mut().expect("it was just seen");
        // A node that does not read its answers gets none.
        let _ = link.offer(message);
        self.cache.ready.insert(*node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::api::Kind;

    fn key(at: usize) -> Key {
        Key::new(Kind::Rule, "n", &format!("r{at:03}"))
    }

    fn upload(body: usize, number: u64) -> Upload {
        let (resource, body) = (Box::default(), "x".repeat(body).into());
        Upload { node: "e".into(), resource, body, reply: None, at: Instant(number) }
    }

    fn waiting(uploads: &Uploads, rule: usize) -> Vec<u64> {
        let queue = uploads.queues.get(&key(rule));
        queue.into_iter().flat_map(|queue| &queue.waiting).map(|upload| upload.at.0).collect()
    }

    #[test]
    fn the_oldest_of_a_queue_makes_room() {
        let mut uploads = Uploads::default();
        for number in 0..ROUTER_QUEUE_MAX as u64 {
            assert!(uploads.push(&key(0), upload(1, number)).is_empty(), "{number}");
        }
        let dropped = uploads.push(&key(0), upload(1, 9_999));
        assert_eq!(dropped.iter().map(|upload| upload.at.0).collect::<Vec<_>>(), [0]);
        assert_eq!((uploads.len(), uploads.bytes), (ROUTER_QUEUE_MAX, ROUTER_QUEUE_MAX));
        let dropped = uploads.push(&key(0), upload(ROUTER_QUEUE_BYTES_MAX, 1));
        assert_eq!((dropped.len(), waiting(&uploads, 0)), (ROUTER_QUEUE_MAX, vec![1]));
        let dropped = uploads.push(&key(0), upload(ROUTER_QUEUE_BYTES_MAX + 1, 2));
        assert_eq!((dropped.len(), dropped[0].at.0), (1, 2), "it never fits");
        uploads.forget(&key(0));
        assert_eq!((uploads.len(), uploads.bytes), (0, 0));
    }

    #[test]
    fn all_queues_have_a_bound_and_then_the_newest_is_dropped() {
        let mut uploads = Uploads::default();
        let fit = ROUTER_QUEUES_BYTES_MAX / ROUTER_QUEUE_BYTES_MAX;
        for rule in 0..fit {
            assert!(uploads.push(&key(rule), upload(ROUTER_QUEUE_BYTES_MAX, 1)).is_empty());
        }
        let dropped = uploads.push(&key(fit), upload(ROUTER_QUEUE_BYTES_MAX, 2));
        assert_eq!(dropped.len(), 1);
        // What is posted counts as well.
        let (rule, first) = uploads.next().expect("one waits");
        let id = uploads.begin(&rule, first.body.len(), None);
        assert_eq!(uploads.push(&key(fit), upload(ROUTER_QUEUE_BYTES_MAX, 3)).len(), 1);
        uploads.end(id);
        assert!(uploads.push(&key(fit), upload(ROUTER_QUEUE_BYTES_MAX, 4)).is_empty());
    }

    #[test]
    fn rules_take_turns_and_one_of_eventbus_waits_for_its_last_post() {
        let mut uploads = Uploads::default();
        for number in 0..3 {
            for rule in 0..=ROUTER_POSTS_MAX {
                uploads.push(&key(rule), upload(1, number));
            }
        }
        let mut begun = Vec::new();
        while let Some((rule, upload)) = uploads.next() {
            assert_eq!(upload.at.0, 0, "a second one of {rule}");
            begun.push(uploads.begin(&rule, 1, None));
        }
        assert_eq!(begun.len(), ROUTER_POSTS_MAX);
        uploads.end(begun[0]);
        let (rule, _) = uploads.next().expect("there is room");
        assert_eq!(rule, key(ROUTER_POSTS_MAX), "the others had their turn");
        // A rule of servicebus has several at once.
        let mut uploads = Uploads::default();
        let reply = Reply {
            node: NodeId(1),
            session: Session(1),
            message: Box::default(),
            url: Box::default(),
        };
        for number in 0..=ROUTER_RULE_POSTS_MAX as u64 {
            let reply = Some(reply.clone());
            uploads.push(&key(0), Upload { reply, ..upload(1, number) });
        }
        let mut count = 0;
        while let Some((rule, upload)) = uploads.next() {
            uploads.begin(&rule, 1, upload.reply);
            count += 1;
        }
        assert_eq!(count, ROUTER_RULE_POSTS_MAX);
    }
}
