//! Custom messages on the wire, the cloud's side: calls to services of nodes, their answers, and
//! what nodes upload (spec `servicebus-router-tasks`, sections 5 to 8).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::limits::ROUTER_HEADERS_MAX;
use crate::model::base64;
use crate::model::edge_message::EdgeContent;
use crate::model::error::Peer;
use crate::model::message::{Header, Route, inner};
use crate::model::service_bus::{ServiceAnswer, ServiceCall};
use crate::wire::http1::call::{is_header_name, is_hop_by_hop};

/// A header as Go has it: a name with all its values.
type Headers<'a> = BTreeMap<String, Vec<&'a str>>;

#[derive(Serialize)]
struct Call<'a> {
    header: Headers<'a>,
    body: Option<String>,
    method: &'a str,
    url: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    header: Option<BTreeMap<Box<str>, Values>>,
    status_code: u16,
    #[serde(default)]
    body: Option<Box<str>>,
}

/// `null` for none.
type Values = Option<Vec<Box<str>>>;

/// The content of a message with a call.
pub(super) fn encode_call(call: &ServiceCall) -> Box<RawValue> {
    let ServiceCall { method, headers, body, .. } = call;
    let mut header = Headers::new();
    for (name, value) in headers {
        header.entry(canonical(name)).or_default().push(value);
    }
    let body = (!body.is_empty()).then(|| base64::encode(body));
    to_raw_value(&Call { header, body, method, url: "" }).expect("plain data")
}

/// A header's name as Go writes it: EdgeCore finds it only so. `content-type` → `Content-Type`
fn canonical(name: &str) -> String {
    let mut starts = true;
    let letter = |letter: char| {
        let upper = std::mem::replace(&mut starts, letter == '-');
        if upper { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    };
    name.chars().map(letter).collect()
}

/// What a node uploads for the router; `None`: it is another message.
pub(super) fn decode_upload(
    route: &Route,
    header: &Header,
    content: Option<&RawValue>,
) -> Option<Result<EdgeContent, Peer>> {
    // EdgeCore's own errors, in place of a service's answer, have no operation.
    let is_error = route.operation.is_empty() && &*route.source == "servicebus";
    if &*route.operation != "upload" && !is_error {
        return None;
    }
    let text = || content.map(inner).unwrap_or_default();
    match &*route.source {
        "bus" => Some(Ok(EdgeContent::Published(text().into()))),
        "servicebus" if header.parent_id.is_empty() => {
            Some(Ok(EdgeContent::ServiceRequest(text().into())))
        }
        "servicebus" => {
            let answer = decode_answer(&text());
            Some(answer.map(|answer| EdgeContent::ServiceAnswer(Box::new(answer))))
        }
        _ => None,
    }
}

fn decode_answer(text: &str) -> Result<ServiceAnswer, Peer> {
    let wrong = |why: &str| Peer::at("a service's answer", why);
    let Answer { header, status_code, body } =
        serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    if !(200..=999).contains(&status_code) {
        return Err(wrong(&format!("got status_code {status_code}, expected 200 to 999")));
    }
    let body = base64::decode(body.as_deref().unwrap_or_default());
    let body = body.ok_or_else(|| wrong("got a body that is not base64"))?;
    let mut headers = Vec::new();
    for (name, values) in header.unwrap_or_default() {
        if !is_header_name(&name) || is_hop_by_hop(&name) {
            continue;
        }
        for value in values.unwrap_or_default() {
            let is_text = !value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
            if is_text && headers.len() < ROUTER_HEADERS_MAX {
                headers.push((name.clone(), value));
            }
        }
    }
    Ok(ServiceAnswer { status: status_code, headers, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(source: &str, operation: &str, parent: &str, content: &str) -> Option<EdgeContent> {
        let route = Route {
            source: source.into(),
            group: "user".into(),
            operation: operation.into(),
            resource: "r".into(),
        };
        let header = Header { parent_id: parent.into(), ..Header::default() };
        let content = RawValue::from_string(content.to_owned()).expect("JSON");
        let read = decode_upload(&route, &header, Some(&content))?;
        Some(read.unwrap_or_else(EdgeContent::Invalid))
    }

    #[test]
    fn a_call_is_that_of_cloudcore() {
        let header = |name: &str, value: &str| (name.into(), value.into());
        let mut call = ServiceCall {
            method: "POST".into(),
            port: 9_000,
            target: "/echo".into(),
            headers: vec![header("accept", "a"), header("x-own-ID", "1"), header("accept", "b")],
            body: b"hello".to_vec(),
        };
        let expected = concat!(
            r#"{"header":{"Accept":["a","b"],"X-Own-Id":["1"]},"#,
            r#""body":"aGVsbG8=","method":"POST","url":""}"#
        );
        assert_eq!(encode_call(&call).get(), expected);
        (call.headers, call.body) = (Vec::new(), Vec::new());
        let expected = r#"{"header":{},"body":null,"method":"POST","url":""}"#;
        assert_eq!(encode_call(&call).get(), expected);
    }

    #[test]
    fn answers_are_read_with_what_may_be_passed_on() {
        let text = r#"{"header":{"Content-Type":["text/plain"],"Connection":["x"],"a b":["c"],
            "Set-Cookie":["a","b","c\r\nd: e"],"N":null},"status_code":207,"body":"b2s="}"#;
        for operation in ["upload", ""] {
            let Some(EdgeContent::ServiceAnswer(answer)) =
                upload("servicebus", operation, "m", text)
            else {
                panic!("no answer")
            };
            assert_eq!((answer.status, &*answer.body), (207, &b"ok"[..]));
            let names: Vec<&str> = answer.headers.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["Content-Type", "Set-Cookie", "Set-Cookie"]);
        }
        let bare = r#""{\"header\":null,\"status_code\":204,\"body\":null}""#;
        let answer = upload("servicebus", "upload", "m", bare);
        let Some(EdgeContent::ServiceAnswer(answer)) = answer else { panic!("{answer:?}") };
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        for (wrong, want) in [
            ("[]", "a service's answer: "),
            (r#"{"status_code":199}"#, "got status_code 199, expected 200 to 999"),
            (r#"{"status_code":200,"body":"?"}"#, "not base64"),
        ] {
            let read = upload("servicebus", "upload", "m", wrong);
            let Some(EdgeContent::Invalid(why)) = read else { panic!("{wrong}: {read:?}") };
            assert!(why.to_string().contains(want), "{why}");
        }
        let many: Vec<&str> = vec!["\"v\""; ROUTER_HEADERS_MAX + 1];
        let many = format!(r#"{{"header":{{"A":[{}]}},"status_code":200}}"#, many.join(","));
        let answer = upload("servicebus", "upload", "m", &many);
        let Some(EdgeContent::ServiceAnswer(answer)) = answer else { panic!("{answer:?}") };
        assert_eq!(answer.headers.len(), ROUTER_HEADERS_MAX);
    }

    #[test]
    fn uploads_are_texts() {
        let read = upload("bus", "upload", "", r#""21.5 \u00b0C""#);
        assert!(matches!(&read, Some(EdgeContent::Published(text)) if &**text == "21.5 °C"));
        let read = upload("servicebus", "upload", "", r#""eyJhIjoxfQ==""#);
        assert!(matches!(&read, Some(EdgeContent::ServiceRequest(text)) if text.len() == 12));
        for (source, operation) in [("bus", "response"), ("bus", ""), ("edged", "upload")] {
            assert!(upload(source, operation, "", "\"\"").is_none(), "{source} {operation}");
        }
    }
}
