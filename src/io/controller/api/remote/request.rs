//! One request to the API server: its bytes, and how the bytes of its answer are processed.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::controller::event::{CallId, Event, WatchFact, WatchId};
use crate::limits::{
    API_CALL_MS, API_LIST_MS, API_PAGE, API_WATCH_LATE_MS, API_WATCH_S,
    APPLICATION_RESPONSE_BYTES_MAX, RESPONSE_BODY_BYTES_MAX, WATCH_LINE_BYTES_MAX,
};
use crate::model::any_api::{AnyCall, AnyTarget};
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::application::Gvr;
use crate::model::error::Peer;
use crate::wire::rest::{self, Target};

/// The request.
#[derive(Debug)]
pub(super) enum Work {
    Call(CallId, Box<Call>),
    /// About a resource of any kind.
    AnyCall(CallId, Box<AnyCall>),
    /// With the `continue` token of the previous page.
    List(WatchId, Listed, String),
    /// With the version to start from.
    Watch(WatchId, Listed, Box<str>),
}

/// What is listed or watched.
#[derive(Clone, Debug)]
pub(super) enum Listed {
    /// Objects of this kind, as far as its selector includes them.
    Kind(Kind),
    /// All objects of a resource.
    Any(Arc<Gvr>),
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) work: Work,
    status: u16,
    body: Vec<u8>,
}

/// What follows an answer.
pub(super) enum Then {
    Done,
    /// Request the next page.
    Send(Work),
}

impl Task {
    pub(super) fn new(work: Work) -> Self {
        Self { work, status: 0, body: Vec::new() }
    }

    /// The id of its list or watch.
    pub(super) fn watch_id(&self) -> Option<WatchId> {
        self.work.watch_id()
    }

    /// The bytes of the request.
    pub(super) fn request(&self, host: &str, authorization: &str) -> Vec<u8> {
        let get = |path| Target { method: "GET", path, content_type: "application/json" };
        let (target, body) = match &self.work {
            Work::Call(_, call) => {
                let body = call.body.as_ref().filter(|_| call.verb != Verb::List);
                (rest::of_call(call), body.map(|body| body.get().as_bytes()))
            }
            Work::AnyCall(_, call) => {
                (rest::of_any_call(call), Some(&*call.body).filter(|body| !body.is_empty()))
            }
            Work::List(_, Listed::Kind(kind), next) => {
                (get(rest::of_list(*kind, API_PAGE, next)), None)
            }
            Work::List(_, Listed::Any(resource), next) => {
                (get(rest::of_any_list(resource, API_PAGE, next)), None)
            }
            Work::Watch(_, Listed::Kind(kind), version) => {
                (get(rest::of_watch(*kind, version, API_WATCH_S)), None)
            }
            Work::Watch(_, Listed::Any(resource), version) => {
                (get(rest::of_any_watch(resource, version, API_WATCH_S)), None)
            }
        };
        let Target { method, path, content_type } = target;
        let body = body.unwrap_or_default();
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Accept: \
             application/json\r\nUser-Agent: edgecontroller/{}\r\n",
            env!("CARGO_PKG_VERSION")
        );
        if let Work::AnyCall(_, call) = &self.work
            && let Some(node) = &call.node
        {
            bytes.extend(["Impersonate-User: system:node:", node, "\r\n"]);
            bytes += "Impersonate-Group: system:nodes\r\n";
        }
        if !body.is_empty() || method != "GET" {
            let length = body.len().to_string();
            bytes.extend(["Content-Type: ", content_type, "\r\nContent-Length: ", &length, "\r\n"]);
        }
        bytes += "\r\n";
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// The timeout of the whole answer, in milliseconds.
    pub(super) fn time_ms(&self) -> u64 {
        match &self.work {
            Work::Call(..) | Work::AnyCall(..) => API_CALL_MS,
            Work::List(..) => API_LIST_MS,
            Work::Watch(..) => API_WATCH_S * 1_000 + API_WATCH_LATE_MS,
        }
    }

    pub(super) fn head(&mut self, status: u16) {
        self.status = status;
    }

    /// Processes a part of the body. A watch reports each line at once; an error ends it.
    pub(super) fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Peer> {
        self.body.extend_from_slice(bytes);
        let (Work::Watch(id, listed, _), 200) = (&self.work, self.status) else {
            return self.bounded();
        };
        let mut from = 0;
        while let Some(end) = self.body[from..].iter().position(|byte| *byte == b'\n') {
            let line = &self.body[from..from + end];
            from += end + 1;
            if line.is_empty() {
                continue;
            }
            match fact(line, listed)? {
                Ok(fact) => events.push(Event::Watched(*id, fact)),
                Err(code) => {
                    self.status = code;
                    return Err(Peer::new("the API server ended the watch"));
                }
            }
        }
        self.body.drain(..from);
        if self.body.is_empty() {
            self.body = Vec::new();
        }
        self.bounded()
    }

    /// Checks the length of the buffered part of the answer.
    fn bounded(&self) -> Result<(), Peer> {
        let (what, limit) = match self.work {
            Work::Call(..) | Work::List(..) => ("", RESPONSE_BODY_BYTES_MAX),
            Work::AnyCall(..) => ("", APPLICATION_RESPONSE_BYTES_MAX),
            // A body that is not a line of the watch is an error.
            Work::Watch(..) => ("a line of ", WATCH_LINE_BYTES_MAX),
        };
        if self.body.len() > limit {
            return Err(Peer::new(format!("got {what}more than {limit} bytes")));
        }
        Ok(())
    }

    /// The answer is complete.
    pub(super) fn end(self, events: &mut Vec<Event>) -> Then {
        let Self { work, status, body } = self;
        match work {
            Work::Call(id, _) => events.push(Event::Called(id, result(status, body))),
            Work::AnyCall(id, call) => {
                let body = match call.target {
                    AnyTarget::Path(_) => as_json(body),
                    AnyTarget::Object { .. } => body,
                };
                events.push(Event::Called(id, result(status, body)));
            }
            Work::Watch(id, listed, _) => {
                let fact = match status {
                    403..=405 if matches!(listed, Listed::Any(_)) => refused(status, body),
                    410 => WatchFact::Gone,
                    404 => WatchFact::Unserved,
                    200 => WatchFact::Ended("its time was over".to_owned()),
                    _ => WatchFact::Ended(refusal_text(status, &body)),
                };
                events.push(Event::Watched(id, fact));
            }
            Work::List(id, listed, _) => match (status, page(&body)) {
                (200, Ok(page)) => {
                    let (kind, version) = match &listed {
                        Listed::Kind(kind) => (kind.name(), kind.api_version()),
                        Listed::Any(_) => {
                            (page.kind.strip_suffix("List").unwrap_or_default(), &*page.version)
                        }
                    };
                    let items = page.items.unwrap_or_default();
                    let items = items.into_iter().map(|item| with_kind(item, kind, version));
                    let items = items.collect();
                    events.push(Event::Watched(id, WatchFact::Listed(items)));
                    let next = page.metadata.next.unwrap_or_default();
                    if !next.is_empty() {
                        return Then::Send(Work::List(id, listed, next));
                    }
                    let end = WatchFact::ListEnd(page.metadata.resource_version.into());
                    events.push(Event::Watched(id, end));
                }
                (200, Err(why)) => {
                    let why = format!("an unreadable list: {why}");
                    events.push(Event::Watched(id, WatchFact::Ended(why)));
                }
                (410, _) => events.push(Event::Watched(id, WatchFact::Gone)),
                (403..=405, _) if matches!(listed, Listed::Any(_)) => {
                    events.push(Event::Watched(id, refused(status, body)));
                }
                (404, _) => events.push(Event::Watched(id, WatchFact::Unserved)),
                _ => {
                    let ended = WatchFact::Ended(refusal_text(status, &body));
                    events.push(Event::Watched(id, ended));
                }
            },
        }
        Then::Done
    }

    /// The same for a caller that waits for it.
    pub(super) fn whole(self) -> (u16, Vec<u8>) {
        (self.status, self.body)
    }

    /// The complete answer will not come.
    pub(super) fn lost(self, why: String, events: &mut Vec<Event>) {
        match self.work {
            Work::Call(id, _) | Work::AnyCall(id, _) => {
                events.push(Event::Called(id, Err(CallError::Lost(why))));
            }
            Work::List(id, ..) | Work::Watch(id, ..) => {
                let gone = self.status == 410;
                let fact = if gone { WatchFact::Gone } else { WatchFact::Ended(why) };
                events.push(Event::Watched(id, fact));
            }
        }
    }
}

impl Work {
    pub(super) fn watch_id(&self) -> Option<WatchId> {
        match self {
            Self::Call(..) | Self::AnyCall(..) => None,
            Self::List(id, ..) | Self::Watch(id, ..) => Some(*id),
        }
    }

    /// Whether repeating it does no harm.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Call(_, call) => matches!(call.verb, Verb::Get | Verb::List),
            Self::AnyCall(_, call) => call.is_read(),
            Self::List(..) | Self::Watch(..) => true,
        }
    }
}

#[derive(Deserialize)]
struct Connection {
    r#type: String,
    object: Box<RawValue>,
}

#[derive(Deserialize)]
struct About {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    /// `ServiceList`
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    version: String,
    #[serde(default)]
    metadata: Metadata,
    items: Option<Vec<Box<RawValue>>>,
}

/// Parses a line of a watch; the inner error is the code of an `ERROR`.
fn fact(line: &[u8], listed: &Listed) -> Result<Result<WatchFact, u16>, Peer> {
    let line: Connection =
        serde_json::from_slice(line).map_err(|error| Peer::at("a watch", error))?;
    let with_kind = |object| match listed {
        Listed::Kind(kind) => with_kind(object, kind.name(), kind.api_version()),
        // Objects of a watch have theirs.
        Listed::Any(_) => object,
    };
    Ok(Ok(match &*line.r#type {
        "ADDED" | "MODIFIED" => WatchFact::Changed(with_kind(line.object)),
        "DELETED" => WatchFact::Deleted(with_kind(line.object)),
        "BOOKMARK" => {
            let about: About = serde_json::from_str(line.object.get())
                .map_err(|error| Peer::at("a bookmark", error))?;
            WatchFact::Bookmark(about.metadata.resource_version.into())
        }
        "ERROR" => {
            let about = serde_json::from_str::<About>(line.object.get());
            return Ok(Err(about.map_or(500, |about| about.code)));
        }
        other => {
            return Err(Peer::new(format!("a watch: got {other:?}, expected ADDED or the like")));
        }
    }))
}

fn page(body: &[u8]) -> Result<Page, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Adds `kind` and `apiVersion`, which objects of a list lack.
fn with_kind(object: Box<RawValue>, kind: &str, version: &str) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Kinded {
        kind: Option<serde::de::IgnoredAny>,
    }
    let kinded = serde_json::from_str::<Kinded>(object.get()).is_ok_and(|it| it.kind.is_some());
    let Some(rest) = object.get().trim_start().strip_prefix('{').filter(|_| !kinded) else {
        return object;
    };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    let text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\"{comma}{rest}");
    RawValue::from_string(text).unwrap_or(object)
}

/// meta/v1 `Status`, only the fields that are used.
#[derive(Deserialize)]
struct Status {
    kind: String,
}

/// A body that is no JSON, as a JSON string.
fn as_json(body: Vec<u8>) -> Vec<u8> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
        return body;
    }
    serde_json::Value::from(String::from_utf8_lossy(&body)).to_string().into_bytes()
}

/// The API server does not show a resource to us, or does not have it.
fn refused(code: u16, body: Vec<u8>) -> WatchFact {
    match result(code, body) {
        Err(CallError::Refused { code, status }) => WatchFact::Refused(code, status),
        Err(CallError::Lost(why)) => WatchFact::Ended(why),
        Ok(_) => WatchFact::Ended(format!("got status {code}, expected 200")),
    }
}

/// The result of a call.
pub(super) fn result(status: u16, body: Vec<u8>) -> CallResult {
    let text = String::from_utf8(body).unwrap_or_default();
    let object = RawValue::from_string(text);
    if (200..300).contains(&status) {
        return object.map_err(|error| CallError::Lost(format!("an unreadable answer: {error}")));
    }
    let is_status = |object: &RawValue| {
        serde_json::from_str::<Status>(object.get()).is_ok_and(|it| it.kind == "Status")
    };
    let status_of = object.ok().filter(|object| is_status(object)).unwrap_or_else(|| {
        let text = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("the API server answered {status}"), "reason": "Unknown",
            "code": status,
        });
        RawValue::from_string(text.to_string()).expect("it was written as JSON")
    });
    Err(CallError::Refused { code: status, status: status_of })
}

fn refusal_text(status: u16, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let message = serde_json::from_slice::<Status>(body).map(|status| status.message);
    let message =
        message.unwrap_or_else(|_| String::from_utf8_lossy(&body[..body.len().min(200)]).into());
    format!("got status {status}, expected 200: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_watches_are_asked_for_with_their_bounds() {
        let (id, kind) = (WatchId(1), Kind::Pod);
        for (work, expected) in [
            (Work::List(id, Listed::Kind(kind), String::new()), format!("limit={API_PAGE}&")),
            (Work::List(id, Listed::Kind(kind), "next".to_owned()), format!("limit={API_PAGE}&")),
            (
                Work::Watch(id, Listed::Kind(kind), "5".into()),
                format!("timeoutSeconds={API_WATCH_S}&"),
            ),
        ] {
            let request = Task::new(work).request("api", "");
            let request = String::from_utf8(request).expect("text");
            let (line, _) = request.split_once(" HTTP/1.1").expect("a line");
            assert!(format!("{line}&").contains(&expected), "{line}\n{expected}");
        }
    }

    fn any(target: AnyTarget, node: Option<&str>) -> Task {
        let verb = crate::model::any_api::AnyVerb::Get;
        let node = node.map(Into::into);
        let call = AnyCall { verb, target, query: Vec::new(), body: Box::default(), node };
        Task::new(Work::AnyCall(CallId(1), Box::new(call)))
    }

    #[test]
    fn a_call_of_a_node_is_made_as_its_user_where_that_is_wanted() {
        let path = || AnyTarget::Path("/version".into());
        let request = |node| String::from_utf8(any(path(), node).request("api", "")).expect("text");
        assert!(!request(None).contains("Impersonate"));
        let user = "Impersonate-User: system:node:e1\r\nImpersonate-Group: system:nodes\r\n";
        assert!(request(Some("e1")).contains(user), "{}", request(Some("e1")));
    }

    #[test]
    fn an_answer_of_a_path_may_be_a_text_and_one_of_an_object_may_not() {
        let answer = |target: AnyTarget| {
            let (mut task, mut events) = (any(target, None), Vec::new());
            task.head(200);
            task.body(b"ok", &mut events).expect("it is short");
            task.end(&mut events);
            let Some(Event::Called(_, result)) = events.pop() else { panic!("no answer") };
            result.ok().map(|body| body.get().to_owned())
        };
        assert_eq!(answer(AnyTarget::Path("/readyz".into())).as_deref(), Some("\"ok\""));
        let object = AnyTarget::Object {
            resource: Gvr::new("", "v1", "services"),
            namespace: "n".into(),
            name: "a".into(),
            subresource: "".into(),
        };
        assert_eq!(answer(object), None);
    }

    #[test]
    fn an_answer_for_a_node_has_a_smaller_bound() {
        let mut task = any(AnyTarget::Path("/version".into()), None);
        task.head(200);
        task.body = vec![0; APPLICATION_RESPONSE_BYTES_MAX - 1];
        assert_eq!(task.body(b"x", &mut Vec::new()), Ok(()));
        let why = format!("got more than {APPLICATION_RESPONSE_BYTES_MAX} bytes");
        assert_eq!(task.body(b"x", &mut Vec::new()), Err(Peer::new(why)));
    }

    #[test]
    fn a_resource_that_is_not_there_is_refused_and_items_get_their_kind() {
        let resource = Arc::new(Gvr::new("x.org", "v1", "gadgets"));
        let end = |status: u16, body: &str| {
            let listed = Listed::Any(Arc::clone(&resource));
            let mut task = Task::new(Work::List(WatchId(1), listed, String::new()));
            let mut events = Vec::new();
            task.head(status);
            task.body(body.as_bytes(), &mut events).expect("it is short");
            task.end(&mut events);
            events
        };
        for code in [403, 404, 405] {
            let events = end(code, "404 page not found");
            let is_it = |event: &Event| match event {
                Event::Watched(_, WatchFact::Refused(got, _)) => *got == code,
                _ => false,
            };
            assert!(events.iter().all(is_it), "{events:?}");
        }
        let list = r#"{"kind":"GadgetList","apiVersion":"x.org/v1","metadata":{
            "resourceVersion":"7"},"items":[{"metadata":{}}]}"#;
        let events = end(200, list);
        let Event::Watched(_, WatchFact::Listed(items)) = &events[0] else { panic!("{events:?}") };
        assert!(items[0].get().starts_with(r#"{"kind":"Gadget","apiVersion":"x.org/v1","#));
    }

    #[test]
    fn an_answer_has_a_bound() {
        let mut task = Task::new(Work::List(WatchId(1), Listed::Kind(Kind::Pod), String::new()));
        task.head(200);
        // The kernel allocates memory only when it is written to.
        task.body = vec![0; RESPONSE_BODY_BYTES_MAX - 1];
        assert_eq!(task.body(b"x", &mut Vec::new()), Ok(()));
        let why = task.body(b"x", &mut Vec::new()).expect_err("it is too long");
        assert_eq!(why, Peer::new(format!("got more than {RESPONSE_BODY_BYTES_MAX} bytes")));
    }

    #[test]
    fn a_line_of_a_watch_has_a_bound_and_so_has_a_refusal() {
        let watch = |status: u16, bytes: usize| {
            let mut task = Task::new(Work::Watch(WatchId(1), Listed::Kind(Kind::Pod), "5".into()));
            task.head(status);
            task.body = vec![b' '; bytes];
            task
        };
        let why = Peer::new(format!("got a line of more than {WATCH_LINE_BYTES_MAX} bytes"));
        for status in [200, 403] {
            let mut events = Vec::new();
            let mut task = watch(status, WATCH_LINE_BYTES_MAX - 1);
            assert_eq!(task.body(b" ", &mut events), Ok(()));
            assert_eq!(task.body(b" ", &mut events), Err(why.clone()));
        }
        let line = b"{\"type\":\"BOOKMARK\",\"object\":{}}\n";
        let mut events = Vec::new();
        let mut whole = watch(200, WATCH_LINE_BYTES_MAX - line.len() + 1);
        assert_eq!((whole.body(line, &mut events), events.len()), (Ok(()), 1));
    }
}
