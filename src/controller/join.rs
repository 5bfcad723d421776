//! Joining (wire spec sections 1.2 to 1.6): which applicant gets a certificate, and for which name.
//!
//! Stricter than KubeEdge in two points: a certificate is issued only for the name that the
//! applicant has proven or that its token allows, never for another name in the request; and the
//! legacy subject, which every old edge shares, cannot renew a certificate.

use ring::hmac;
use serde::Deserialize;

use super::event::{Answer, Credential, HttpRequest, Request};
use super::identity::SignedBy;
use crate::limits::TOKEN_LIFE_S;
use crate::model::base64;
use crate::model::error::Input;

/// Signs the nodes' certificates and their tokens.
pub struct Authority {
    /// DER of its certificate.
    pub certificate: Box<[u8]>,
    /// SEC1 DER of its key, which signs tokens.
    pub key: Box<[u8]>,
}

/// The decision about a request on the HTTPS port.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The answer is known.
    Answer(Answer),
    /// A certificate for this node, if it may have one.
    Sign { node: String, request: Box<[u8]>, by: SignedBy },
    /// The answer depends on whether this node exists.
    NodeExists(String),
}

/// The node that a token is for; `None`: for any node.
type OnlyNode = Option<Box<str>>;

/// The prefix of the common name in a node's certificate.
const NODE: &str = "system:node:";
/// The organization in a node's certificate.
const NODES: &str = "system:nodes";
/// The subject of edges up to 1.15, only in the request.
const LEGACY: &str = "kubeedge.io";
/// The syntax of a node's name.
const NAME: &str = "lower case letters, digits, - and .";
/// KubeEdge's text.
const BAD_TOKEN: &str = "Invalid authorization token";
/// `{"alg":"HS256","typ":"JWT"}`, the header of every token of KubeEdge.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

impl Authority {
    /// A token that is valid until then, in seconds since 1970: the hash of the certificate, in
    /// hex, computed by the event loop, and a JWT.
    pub fn token(&self, certificate_hash: &str, until_s: i64) -> String {
        self.signed_token(certificate_hash, &format!(r#"{{"exp":{until_s}}}"#))
    }

    /// A token by which only this node gets a certificate, which replaces all its earlier ones. It
    /// is valid until then, and until the node has connected with a certificate that was made after
    /// the token.
    pub fn node_token(
        &self,
        certificate_hash: &str,
        node: &str,
        now_s: i64,
        until_s: i64,
    ) -> Result<String, Input> {
        if !is_node_name(node) {
            return Err(Input::new(format_args!("the name {node:?}"), NAME));
        }
        let claims = format!(r#"{{"exp":{until_s},"iat":{now_s},"node":"{node}"}}"#);
        Ok(self.signed_token(certificate_hash, &claims))
    }

    fn signed_token(&self, certificate_hash: &str, claims: &str) -> String {
        let signed = format!("{}.{}", url64(HEADER.as_bytes()), url64(claims.as_bytes()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let signature = hmac::sign(&key, signed.as_bytes());
        format!("{certificate_hash}.{signed}.{}", url64(signature.as_ref()))
    }

    /// Verifies this JWT, or a whole token that ends with one: signed by us and not expired.
    fn check(&self, bearer: &str, now_s: Option<i64>) -> Result<Claims, &'static str> {
        let parts: Vec<&str> = bearer.split('.').collect();
        let ([header, claims, signature] | [_, header, claims, signature]) = parts[..] else {
            return Err("got no JWT with three parts");
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let signature = from_url64(signature).ok_or("the signature is not base64")?;
        let signed = format!("{header}.{claims}");
        hmac::verify(&key, signed.as_bytes(), &signature)
            .map_err(|_| "the signature is not ours")?;
        // Only what we signed ourselves is parsed.
        let header: Header = part(header).ok_or("the header is not JSON")?;
        if &*header.alg != "HS256" {
            return Err("the algorithm is not HS256");
        }
        let claims: Claims = part(claims).ok_or("the claims are not JSON")?;
        match now_s {
            Some(now_s) if claims.exp > now_s => Ok(claims),
            Some(_) => Err("it has expired"),
            None => Err("the server's clock is not set"),
        }
    }

    /// Decides about one request.
    pub(super) fn judge(
        &self,
        request: HttpRequest,
        now_s: Option<i64>,
    ) -> Result<Verdict, (u16, String)> {
        match request {
            HttpRequest::Authority => {
                Ok(Verdict::Answer(Answer { status: 200, body: self.certificate.clone() }))
            }
            // KubeEdge's installer asks before it has a credential, and joins only on 404.
            HttpRequest::Node { name, .. } => Ok(Verdict::NodeExists(name)),
            HttpRequest::Certificate { node, by, request, .. } => {
                let (by, only) = self.may_apply(&node, &by, now_s)?;
                let request = request.map_err(|broken| (400, broken.to_string()))?;
                let node = name_of(node, &request)?;
                if let Some(only) = only.filter(|only| **only != *node) {
                    let why = format!("it is for {only:?}, and {node:?} applies");
                    return Err((403, format!("{BAD_TOKEN}: {why}")));
                }
                Ok(Verdict::Sign { node, request: request.der, by })
            }
        }
    }

    /// The credential, and the only node that it is for.
    fn may_apply(
        &self,
        node: &str,
        by: &Credential,
        now_s: Option<i64>,
    ) -> Result<(SignedBy, OnlyNode), (u16, String)> {
        match by {
            Credential::Bearer(token) => {
                let claims = self.check(token, now_s);
                let Claims { exp, iat, node } =
                    claims.map_err(|why| (401, format!("{BAD_TOKEN}: {why}")))?;
                let made_s = iat.unwrap_or(exp.saturating_sub(TOKEN_LIFE_S));
                Ok(match node {
                    None => (SignedBy::Token { made_s }, None),
                    Some(node) => (SignedBy::NodeToken { made_s }, Some(node)),
                })
            }
            Credential::None => Err((401, format!("{BAD_TOKEN}: got none"))),
            Credential::BadCertificate(why) => Err((401, why.clone())),
            Credential::Certificate { common_name, organization, made_s } => {
                let own = common_name.strip_prefix(NODE) == Some(node) && organization == NODES;
                let by = SignedBy::Certificate { made_s: *made_s };
                own.then_some((by, None)).ok_or_else(|| {
                    let got = format!("got a certificate of O={organization}, CN={common_name}");
                    (401, format!("{got}, expected one of O={NODES}, CN={NODE}{node}"))
                })
            }
        }
    }
}

/// Does not show the key.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "authority with a certificate of {} bytes", self.certificate.len())
    }
}

/// The node that the certificate is for: the header and the subject must agree. Edges up to 1.3
/// send no header, and those up to 1.15 have no name in their subject.
fn name_of(header: String, request: &Request) -> Result<String, (u16, String)> {
    let named = request.common_name.strip_prefix(NODE).filter(|_| request.organization == NODES);
    let node = match named {
        Some(named) if header.is_empty() || header == named => named.to_owned(),
        None if !header.is_empty() && request.common_name == LEGACY => header,
        Some(_) | None => {
            let got = format!("O={}, CN={}", request.organization, request.common_name);
            let expected = format!("O={NODES}, CN={NODE}{header}");
            return Err((403, format!("got a request for {got}, expected {expected}")));
        }
    };
    if is_node_name(&node) {
        return Ok(node);
    }
    Err((403, format!("got the name {node:?}, expected {NAME}")))
}

/// Whether this is a valid node name (RFC 1123 subdomain).
pub(super) fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// The node that owns this certificate.
pub(super) fn node_of<'a>(common_name: &'a str, organization: &str) -> Option<&'a str> {
    let node = common_name.strip_prefix(NODE)?;
    (organization == NODES && is_node_name(node)).then_some(node)
}

#[derive(Deserialize)]
struct Header {
    alg: Box<str>,
}

#[derive(Deserialize)]
struct Claims {
    exp: i64,
    iat: Option<i64>,
    node: Option<Box<str>>,
}

fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_slice(&from_url64(text)?).ok()
}

/// RFC 4648 section 5, without padding.
fn url64(bytes: &[u8]) -> String {
    base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fn from_url64(text: &str) -> Option<Vec<u8>> {
    if text.contains(['+', '/', '=']) {
        return None;
    }
    let padding = ["", "===", "==", "="][text.len() % 4];
    base64::decode(&format!("{}{padding}", text.replace('-', "+").replace('_', "/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the wire spec, section 1.2.
    fn authority() -> Authority {
        let key = "307702010104207aede845d28ef7d5d132fc8250ba5b65ec49009f3bd484660071052a0b1693d7\
                   a00a06082a8648ce3d030107a1440342\
                   0004fe0bc8a139949d63ae2e2c8606b67e3b146dac396b2decd8c882b15e3d9f1dc180e06190179f\
                   c3ad0d98eadab305151f4d08c44f90d4caca2cfd7f8fc07a451d";
        let byte = |at: usize| u8::from_str_radix(&key[at..at + 2], 16).expect("hex");
        let key = (0..key.len()).step_by(2).map(byte).collect();
        Authority { certificate: [1, 2, 3].into(), key }
    }

    const TOKEN: &str = "a02f9bdbae2df807d54a50ac7903b059b76bb069802ce37a737e1ae27381953b.\
                         eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE3OTAwMDAwMDB9.\
                         u0OYq2kMdIo5_lelM0E_xCFdntxDamYcJvjjd-jKVJg";

    fn application(
        node: &str,
        by: Credential,
        common_name: &str,
        organization: &str,
    ) -> HttpRequest {
        let request = Request {
            der: [7].into(),
            common_name: common_name.to_owned(),
            organization: organization.to_owned(),
        };
        let address = "192.0.2.1:4".to_owned();
        HttpRequest::Certificate { node: node.to_owned(), by, request: Ok(request), address }
    }

    fn judged(request: HttpRequest) -> Result<String, u16> {
        match authority().judge(request, Some(1_789_999_999)) {
            Ok(Verdict::Sign { node, .. }) => Ok(node),
            Ok(other) => panic!("{other:?}"),
            Err((status, _)) => Err(status),
        }
    }

    #[test]
    fn a_token_is_made_as_kubeedge_makes_it_and_checked() {
        let (hash, jwt) = TOKEN.split_once('.').expect("a hash and a JWT");
        assert_eq!(authority().token(hash, 1_790_000_000), TOKEN);
        let check = |bearer: &str, now_s| authority().check(bearer, now_s).is_ok();
        assert!(check(jwt, Some(1_789_999_999)));
        assert!(check(TOKEN, Some(1_789_999_999)), "whole, as people paste it");
        assert!(!check(jwt, Some(1_790_000_000)), "its time is out");
        assert!(!check(jwt, None));
        for at in 0..jwt.len() {
            let spoilt = if jwt.as_bytes()[at] == b'x' { "y" } else { "x" };
            let bad = format!("{}{spoilt}{}", &jwt[..at], &jwt[at + 1..]);
            // The last character of 32 bytes contains two unused bits.
            assert!(at == jwt.len() - 1 || !check(&bad, Some(1_789_999_999)), "{bad}");
        }
        assert!(!check("", Some(0)));
    }

    #[test]
    fn the_credential_of_a_certificate_request_is_recognized() {
        let by = |token: String| {
            let by = Credential::Bearer(token);
            let request = application("edge-1", by, "system:node:edge-1", NODES);
            match authority().judge(request, Some(1_789_999_999)) {
                Ok(Verdict::Sign { by, .. }) => by,
                other => panic!("{other:?}"),
            }
        };
        let made_s = 1_790_000_000 - TOKEN_LIFE_S;
        assert_eq!(by(TOKEN.to_owned()), SignedBy::Token { made_s }, "it does not say when");
        let own = authority().node_token("h", "edge-1", 7, 1_790_000_000).expect("a name");
        assert_eq!(by(own), SignedBy::NodeToken { made_s: 7 });
    }

    #[test]
    fn a_certificate_is_made_for_the_name_that_was_shown() {
        let token = || Credential::Bearer(TOKEN.to_owned());
        let own = authority().node_token("h", "edge-1", 1_789_999_000, 1_790_000_000);
        let own = || Credential::Bearer(own.clone().expect("a name"));
        authority().node_token("h", "Edge\"1", 0, 1).expect_err("no name");
        let certificate = |common_name: &str| Credential::Certificate {
            common_name: common_name.to_owned(),
            organization: NODES.to_owned(),
            made_s: 5,
        };
        let ok = Ok("edge-1".to_owned());
        for (node, by, common_name, organization, expected) in [
            ("edge-1", token(), "system:node:edge-1", NODES, ok.clone()),
            ("", token(), "system:node:edge-1", NODES, ok.clone()),
            ("edge-1", token(), LEGACY, "kubeEdge", ok.clone()),
            ("edge-1", certificate("system:node:edge-1"), "system:node:edge-1", NODES, ok.clone()),
            ("edge-1", own(), "system:node:edge-1", NODES, ok.clone()),
            ("", own(), "system:node:edge-1", NODES, ok),
            ("edge-2", own(), "system:node:edge-2", NODES, Err(403)),
            ("", own(), "system:node:edge-2", NODES, Err(403)),
            ("edge-1", token(), "system:node:edge-2", NODES, Err(403)),
            ("edge-1", token(), "system:node:edge-1", "system:masters", Err(403)),
            ("Edge", token(), "system:node:Edge", NODES, Err(403)),
            ("", token(), LEGACY, "kubeEdge", Err(403)),
            ("edge-2", certificate("system:node:edge-1"), "system:node:edge-2", NODES, Err(401)),
            ("edge-1", Credential::None, "system:node:edge-1", NODES, Err(401)),
            ("edge-1", Credential::Bearer("x".into()), "system:node:edge-1", NODES, Err(401)),
            (
                "edge-1",
                Credential::BadCertificate("expired".into()),
                "system:node:edge-1",
                NODES,
                Err(401),
            ),
        ] {
            let label = format!("{node} by {by:?} for {common_name} of {organization}");
            assert_eq!(
                judged(application(node, by, common_name, organization)),
                expected,
                "{label}"
            );
        }
    }
}
