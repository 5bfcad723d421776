//! The router's HTTP: what clients request of nodes at its REST entry, and its requests to REST
//! endpoints (spec `servicebus-router-tasks`, sections 4, 7 and 8).

use std::fmt::Write as _;

use super::http1::call::{Call, Refused, is_header_name, is_hop_by_hop, reason};
use super::http1::query::unescaped_path;
use crate::model::router::{Post, RestRequest};
use crate::model::service_bus::ServiceAnswer;

/// The request that a call means, without its body: `/<node>/<namespace>/<path>[?<query>]`.
pub fn read_request(call: &Call) -> Result<RestRequest, Refused> {
    let wrong = |status, why: String| Err(Refused { status, why });
    let target = [&*call.path, &*call.query];
    if !target.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_graphic())) {
        return wrong(400, "got a target with other than visible ASCII characters".to_owned());
    }
    let mut parts = call.path.strip_prefix('/').unwrap_or_default().splitn(3, '/');
    let (node, namespace, path) = (parts.next(), parts.next(), parts.next());
    let (node, namespace) = match (node, namespace) {
        (Some(node), Some(namespace)) if !node.is_empty() && !namespace.is_empty() => {
            (unescaped_path(node), unescaped_path(namespace))
        }
        _ => {
            let why = format!("got {:?}, expected /NODE/NAMESPACE/PATH", call.path);
            return wrong(404, why);
        }
    };
    let is_passed_on = |name: &str| {
        // The credential for this port is not the service's.
        is_header_name(name) && !is_hop_by_hop(name) && name != "authorization"
    };
    let headers = call.headers.iter().filter(|(name, value)| {
        is_passed_on(name)
            && !value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
    });
    Ok(RestRequest {
        node: node.into(),
        namespace: namespace.into(),
        path: path.unwrap_or_default().into(),
        query: (*call.query).into(),
        method: (*call.method).into(),
        headers: headers.map(|(name, value)| ((**name).into(), (**value).into())).collect(),
        body: Vec::new(),
    })
}

/// The token of a request; empty: none.
pub fn bearer(call: &Call) -> &str {
    let (scheme, token) = call.header("authorization").split_once(' ').unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
}

/// The bytes of an answer to a client, after which the connection ends. `with_body`: otherwise the
/// request was HEAD.
pub fn answer(answer: &ServiceAnswer, with_body: bool) -> Vec<u8> {
    let ServiceAnswer { status, headers, body } = answer;
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(*status));
    for (name, value) in headers {
        if !is_hop_by_hop(name) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    // RFC 9110, section 8.6
    if !matches!(status, 204 | 304) && with_body {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head += "Connection: close\r\n\r\n";
    let mut bytes = head.into_bytes();
    if with_body && !matches!(status, 204 | 304) {
        bytes.extend_from_slice(body);
    }
    bytes
}

/// The bytes of a request to a REST endpoint, for a connection of its own.
pub fn post(post: &Post) -> Vec<u8> {
    let Post { url, headers, body, .. } = post;
    let mut head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", url.target, url.authority());
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let _ = write!(head, "Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::router::RestUrl;
    use crate::wire::http1::call::call;

    fn read(text: &str) -> Result<RestRequest, Refused> {
        let (call, _) = call(text.as_bytes(), 100).expect("a request").expect("all of it");
        read_request(&call)
    }

    #[test]
    fn a_request_names_its_node_and_what_is_passed_on() {
        let request = read(
            "PUT /edge%2D1/default//a/b?x=1&y HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer t\r\n\
             Accept: a\r\nAccept: b\r\nConnection: close\r\nX-Own: 1\r\n\r\n",
        )
        .expect("a request");
        assert_eq!((&*request.node, &*request.namespace), ("edge-1", "default"));
        assert_eq!((&*request.path, &*request.query, &*request.method), ("/a/b", "x=1&y", "PUT"));
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(headers, ["accept: a", "accept: b", "x-own: 1"], "and no credential of ours");
        for (path, rest) in [("/e/n", ""), ("/e/n/", ""), ("/e/n/a/", "a/")] {
            let request = read(&format!("GET {path} HTTP/1.1\r\n\r\n")).expect(path);
            assert_eq!(&*request.path, rest, "{path}");
        }
        for path in ["/", "//n/a", "/e", "/e//a", "*"] {
            let refused = read(&format!("GET {path} HTTP/1.1\r\n\r\n")).expect_err(path);
            assert_eq!(refused.status, 404, "{path}");
        }
    }

    #[test]
    fn a_bearer_is_read_in_any_case() {
        let with = |value: &str| Call {
            headers: vec![("authorization".to_owned(), value.to_owned())],
            ..Call::default()
        };
        assert_eq!(bearer(&with("Bearer abc")), "abc");
        assert_eq!(bearer(&with("bearer  abc ")), "abc");
        for none in ["Basic abc", "abc", ""] {
            assert_eq!(bearer(&with(none)), "", "{none}");
        }
    }

    #[test]
    fn answers_have_their_own_length_and_headers() {
        let header = |name: &str, value: &str| (name.into(), value.into());
        let headers = vec![header("X-Kind", "echo"), header("Content-Length", "9")];
        let of = ServiceAnswer { status: 200, headers, body: b"ok".to_vec() };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert_eq!(
            text(answer(&of, true)),
            "HTTP/1.1 200 OK\r\nX-Kind: echo\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        );
        let head = text(answer(&of, false));
        assert!(head.ends_with("Connection: close\r\n\r\n") && !head.contains("Length"), "{head}");
        let none = text(answer(&ServiceAnswer { status: 204, ..of }, true));
        assert!(none.ends_with("\r\n\r\n") && !none.contains("Length"), "{none}");
    }

    #[test]
    fn a_post_is_that_of_its_url() {
        let url = RestUrl::parse("http://a.example:8080/in?x=1").expect("a URL");
        let headers = vec![("Edge-Node".into(), "gw".into())];
        let bytes = post(&Post { url, headers, body: b"21.5".to_vec(), answer_bytes_max: 0 });
        assert_eq!(
            String::from_utf8(bytes).expect("text"),
            "POST /in?x=1 HTTP/1.1\r\nHost: a.example:8080\r\nEdge-Node: gw\r\nContent-Length: \
             4\r\nConnection: close\r\n\r\n21.5"
        );
    }
}
