//! ServiceBus on the wire: messages of the cloud's router, HTTP requests to services of the node,
//! and the JSON of applications on the node (spec `servicebus-router-tasks`, sections 6, 8 and 9).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::limits::{SERVICE_BUS_HEADERS_MAX, SERVICE_BUS_TARGET_BYTES_MAX};
use crate::model::base64;
use crate::model::message::Route;
use crate::model::service_bus::{BusDownstream, EntryAnswer, ServiceAnswer, ServiceCall};
use crate::wire::http1::call::is_header_name;
pub use crate::wire::http1::call::is_hop_by_hop;
use crate::wire::http1::response::Fields;

/// A header as Go has it: a name with all its values.
type Headers = BTreeMap<Box<str>, Vec<Box<str>>>;

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    header: Option<Headers>,
    #[serde(default)]
    body: Option<Box<str>>,
    #[serde(default)]
    method: Box<str>,
}

#[derive(Serialize)]
struct Answer<'a> {
    header: BTreeMap<&'a str, Vec<&'a str>>,
    status_code: u16,
    body: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "targetURL")]
    url: Box<str>,
}

#[derive(Serialize)]
struct EntryJson<'a> {
    code: u16,
    msg: &'a str,
    body: &'a str,
}

/// Methods that a call may have.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Whether a message of the cloud is one of the router for `ServiceBus`. CloudCore copies the
/// source of an application's request into the answer to it.
pub fn is_of_router(route: &Route) -> bool {
    let is_answer = &*route.source == "servicebus" && &*route.operation == "response";
    &*route.group == "user" && (is_answer || &*route.source == "router_servicebus")
}

/// Reads a message of the router with this content; `None`: it is not about ServiceBus.
pub fn decode_cloud(route: &Route, parent: &str, text: &str) -> Option<BusDownstream> {
    if !is_of_router(route) {
        return None;
    }
    match &*route.operation {
        "start" => Some(BusDownstream::Start(route.resource.clone())),
        "stop" => Some(BusDownstream::Stop(unmangled(&route.resource))),
        "response" => Some(BusDownstream::Answer(parent.into(), text.into())),
        method if METHODS.contains(&method) => Some(BusDownstream::Call(
            call(&route.resource, text).map_err(|why| ServiceAnswer::own(400, &why)),
        )),
        _ => None,
    }
}

/// CloudCore cleans the URL of a deleted rule as a path: `http:/host` for `http://host`.
fn unmangled(url: &str) -> Box<str> {
    for scheme in ["http:/", "https:/"] {
        if let Some(rest) = url.strip_prefix(scheme)
            && !rest.starts_with('/')
        {
            return format!("{scheme}/{rest}").into();
        }
    }
    url.into()
}

/// The call that a message asks for; the error is for its sender.
fn call(resource: &str, text: &str) -> Result<ServiceCall, String> {
    let place = resource.split_once(':').and_then(|(port, target)| {
        let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
        Some((port, target))
    });
    let Some((port, target)) = place else {
        return Err(format!(
            "the format of resource {} is incorrect: expected port:/path",
            shown(resource)
        ));
    };
    let Call { header, body, method } = serde_json::from_str(text)
        .map_err(|error| format!("error to parse http request: {error}"))?;
    if !METHODS.contains(&&*method) {
        return Err(format!(
            "error to parse http request: got method {}, expected one of {}",
            shown(&method),
            METHODS.join(", ")
        ));
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    let target: Box<str> = format!("{slash}{target}").into();
    if target.len() > SERVICE_BUS_TARGET_BYTES_MAX
        || !target.bytes().all(|it| it.is_ascii_graphic())
    {
        return Err(format!(
            "error to parse http request: got path {}, expected at most \
             {SERVICE_BUS_TARGET_BYTES_MAX} visible ASCII characters",
            shown(&target)
        ));
    }
    let body = match body.as_deref() {
        None => Vec::new(),
        Some(text) => base64::decode(text)
            .ok_or("error to parse http request: got a body that is not base64")?,
    };
    let headers = headers(header.unwrap_or_default())?;
    Ok(ServiceCall { method, port, target, headers, body })
}

/// Those that are passed on: one connection's own headers stay with it.
fn headers(all: Headers) -> Result<Fields, String> {
    let mut headers = Fields::new();
    for (name, values) in all {
        if !is_header_name(&name) {
            return Err(format!("error to parse http request: got header {}", shown(&name)));
        }
        if is_hop_by_hop(&name) {
            continue;
        }
        for value in values {
            if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
                return Err(format!(
                    "error to parse http request: got a control character in header {name}"
                ));
            }
            headers.push((name.clone(), value));
        }
    }
    if headers.len() > SERVICE_BUS_HEADERS_MAX {
        return Err(format!(
            "error to parse http request: got {} headers, expected {SERVICE_BUS_HEADERS_MAX} at \
             most",
            headers.len()
        ));
    }
    Ok(headers)
}

/// The first characters of a text, quoted.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}

/// The request of a call, for a connection of its own.
pub fn request(call: &ServiceCall) -> Vec<u8> {
    let ServiceCall { method, port, target, headers, body } = call;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
        head += "Accept: */*\r\n";
    }
    if !body.is_empty() || matches!(&**method, "POST" | "PUT" | "PATCH") {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head += "Connection: close\r\n\r\n";
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The content of the message with the answer to a call.
pub fn encode_answer(answer: &ServiceAnswer) -> String {
    let mut header: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in &answer.headers {
        header.entry(name).or_default().push(value);
    }
    let (status_code, body) = (answer.status, base64::encode(&answer.body));
    serde_json::to_string(&Answer { header, status_code, body }).expect("plain data")
}

/// The URL that the request of an application names.
pub fn entry_url(body: &[u8]) -> Result<Box<str>, EntryAnswer> {
    let entry: Result<Entry, _> = serde_json::from_slice(body);
    entry.map(|entry| entry.url).map_err(|_| EntryAnswer::refused("invalid params"))
}

/// The answer to an application as JSON.
pub fn entry_json(answer: &EntryAnswer) -> String {
    let EntryAnswer { code, message, body } = answer;
    serde_json::to_string(&EntryJson { code: *code, msg: message, body }).expect("plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(operation: &str, resource: &str) -> Route {
        let [source, group] = ["router_servicebus", "user"].map(Box::from);
        Route { source, group, operation: operation.into(), resource: resource.into() }
    }

    fn decoded(resource: &str, text: &str) -> Result<ServiceCall, String> {
        match decode_cloud(&route("GET", resource), "", text) {
            Some(BusDownstream::Call(call)) => call.map_err(|answer| {
                assert_eq!(answer.status, 400);
                String::from_utf8(answer.body).expect("text")
            }),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_of_cloudcore_becomes_a_request() {
        let text = r#"{"header":{"Accept":["text/html","*/*"],"Connection":["keep-alive"],
            "Host":["cloud"],"User-Agent":["curl/8"]},"body":"aGVsbG8=","method":"POST","url":""}"#;
        let call = decoded("9000:/echo/?x=1:2", text).expect("a call");
        let expected = "POST /echo/?x=1:2 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nAccept: \
                        text/html\r\nAccept: */*\r\nUser-Agent: curl/8\r\nContent-Length: \
                        5\r\nConnection: close\r\n\r\nhello";
        assert_eq!(String::from_utf8(request(&call)).expect("ASCII"), expected);
        let bare = r#"{"header":null,"body":null,"method":"GET","url":""}"#;
        let call = decoded("80:echo", bare).expect("a call");
        let expected = "GET /echo HTTP/1.1\r\nHost: 127.0.0.1:80\r\nAccept: */*\r\nConnection: \
                        close\r\n\r\n";
        assert_eq!(String::from_utf8(request(&call)).expect("ASCII"), expected);
    }

    #[test]
    fn what_cannot_be_a_request_is_refused_with_a_reason() {
        let bare = r#"{"method":"GET"}"#;
        for (resource, text, want) in [
            ("/echo", bare, "the format of resource \"/echo\" is incorrect"),
            ("0:/echo", bare, "the format of resource"),
            ("70000:/echo", bare, "the format of resource"),
            ("80:/a b", bare, "got path \"/a b\""),
            ("80:/a\r\nX: y", bare, "got path"),
            ("80:/", "[]", "error to parse http request: "),
            ("80:/", r#"{"method":"GET /x"}"#, "got method \"GET /x\", expected one of GET"),
            ("80:/", r#"{"method":"GET","body":"?"}"#, "not base64"),
            ("80:/", r#"{"method":"GET","header":{"a b":["c"]}}"#, "got header \"a b\""),
            ("80:/", r#"{"method":"GET","header":{"":["c"]}}"#, "got header \"\""),
            (
                "80:/",
                r#"{"method":"GET","header":{"a":["c\r\nd: e"]}}"#,
                "a control character in header a",
            ),
        ] {
            let why = decoded(resource, text).expect_err(resource);
            assert!(why.contains(want), "{resource} {text}: {why}");
        }
        let long = format!("80:/{}", "a".repeat(SERVICE_BUS_TARGET_BYTES_MAX));
        assert!(decoded(&long, bare).expect_err("too long").contains("got path"));
        let many: Vec<String> = vec!["\"v\"".to_owned(); SERVICE_BUS_HEADERS_MAX + 1];
        let many = format!(r#"{{"method":"GET","header":{{"a":[{}]}}}}"#, many.join(","));
        assert!(decoded("80:/", &many).expect_err("too many").contains("headers, expected"));
    }

    #[test]
    fn urls_of_rules_come_as_they_are_and_a_cleaned_one_is_repaired() {
        let read = |operation: &str, url: &str| decode_cloud(&route(operation, url), "", "");
        assert_eq!(read("start", "http://h/x"), Some(BusDownstream::Start("http://h/x".into())));
        for (sent, meant) in [
            ("http:/h/x", "http://h/x"),
            ("https:/h/x", "https://h/x"),
            ("http://h/x", "http://h/x"),
            ("/a/b", "/a/b"),
        ] {
            assert_eq!(read("stop", sent), Some(BusDownstream::Stop(meant.into())));
        }
        assert_eq!(read("subscribe", "a"), None);
        let mut other = route("start", "a");
        other.source = "router_eventbus".into();
        assert_eq!(decode_cloud(&other, "", ""), None);
    }

    #[test]
    fn answers_are_those_of_edgecore() {
        let headers = vec![("Set-Cookie".into(), "a".into()), ("Set-Cookie".into(), "b".into())];
        let answer = ServiceAnswer { status: 201, headers, body: b"ok".to_vec() };
        let expected = r#"{"header":{"Set-Cookie":["a","b"]},"status_code":201,"body":"b2s="}"#;
        assert_eq!(encode_answer(&answer), expected);
        let text = br#"{"method":"POST","targetURL":"http://h/x","payload":{"a":1}}"#;
        assert_eq!(entry_url(text), Ok("http://h/x".into()));
        for wrong in [&b"x"[..], b"{}", br#"{"targetURL":7}"#] {
            let answer = entry_url(wrong).expect_err("no entry");
            assert_eq!(entry_json(&answer), r#"{"code":400,"msg":"invalid params","body":""}"#);
        }
    }
}
