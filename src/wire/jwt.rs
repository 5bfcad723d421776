//! Service account tokens as their bearer shows them: JSON Web Tokens in compact form (RFC 7519,
//! RFC 7515) with Kubernetes' claims.
//!
//! **Nothing here verifies anything**: what is read may come from anybody, until its signature was
//! verified, or its digest is that of a token that this node has handed out.

use std::fmt;

use crate::limits::JWT_BYTES_MAX;
use crate::model::base64;
use crate::model::metaserver::Claims;
use crate::model::tree::{self, Fault, Node, Read, Value, fields};

/// A token in its parts.
#[derive(Debug)]
pub struct Jwt<'a> {
    /// JWS `alg`: `RS256`, `ES256` …
    pub algorithm: Box<str>,
    pub claims: Claims,
    /// The bytes that are signed.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

/// Why a text is no such token: «got X, expected Y».
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a token.
pub fn read(token: &str) -> Result<Jwt<'_>, Invalid> {
    if token.len() > JWT_BYTES_MAX {
        let why = format!("got {} bytes, expected {JWT_BYTES_MAX} at most", token.len());
        return Err(Invalid(why));
    }
    let wrong = || Invalid("got no three parts, expected a JSON Web Token".to_owned());
    let (signed, signature) = token.rsplit_once('.').ok_or_else(wrong)?;
    let (header, payload) = signed.split_once('.').ok_or_else(wrong)?;
    let header: Header = part("the header", header)?;
    let payload: Payload = part("the claims", payload)?;
    let signature = base64_url(signature)
        .ok_or_else(|| Invalid("the signature: expected base64url".to_owned()))?;
    Ok(Jwt { algorithm: header.algorithm, claims: payload.into_claims(), signed, signature })
}

fn part<T: Read + Default>(what: &str, text: &str) -> Result<T, Invalid> {
    let bytes = base64_url(text).ok_or_else(|| Invalid(format!("{what}: expected base64url")))?;
    let json =
        std::str::from_utf8(&bytes).map_err(|_| Invalid(format!("{what}: expected text")))?;
    let wrong = |fault: Fault| Invalid(format!("{what}: {fault}"));
    tree::within_object(json).map_err(wrong)?;
    tree::of_json(json).map_err(wrong)
}

/// RFC 4648, section 5, without padding.
fn base64_url(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'-' => Some('+'),
        b'_' => Some('/'),
        byte if byte.is_ascii_alphanumeric() => Some(char::from(byte)),
        _ => None,
    };
    base64::decode(&text.bytes().map(digit).collect::<Option<String>>()?)
}

#[derive(Default)]
struct Header {
    algorithm: Box<str>,
}

fields!(Header {
    "alg" => algorithm,
});

#[derive(Default)]
struct Payload {
    issuer: Box<str>,
    audiences: Audiences,
    ends_at: Option<i64>,
    begins_at: Option<i64>,
    private: Private,
}

fields!(Payload {
    "iss" => issuer,
    "aud" => audiences,
    "exp" => ends_at,
    "nbf" => begins_at,
    "kubernetes.io" => private,
});

/// Kubernetes' claims of a service account token.
#[derive(Default)]
struct Private {
    namespace: Box<str>,
    account: Bound,
    pod: Option<Bound>,
    secret: Option<Bound>,
}

fields!(Private {
    "namespace" => namespace,
    "serviceaccount" => account,
    "pod" => pod,
    "secret" => secret,
});

#[derive(Default)]
struct Bound {
    name: Box<str>,
    uid: Box<str>,
}

fields!(Bound {
    "name" => name,
    "uid" => uid,
});

/// One, or a list of them.
#[derive(Default)]
struct Audiences(Vec<Box<str>>);

impl Read for Audiences {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        match &node.value {
            Value::Text(_) => {
                self.0.push(Box::default());
                self.0[0].read(node)
            }
            _ => self.0.read(node),
        }
    }
}

impl Payload {
    fn into_claims(self) -> Claims {
        let Private { namespace, account, pod, secret } = self.private;
        let pod = pod.map(|pod| (pod.name, pod.uid));
        Claims {
            issuer: self.issuer,
            audiences: self.audiences.0,
            ends_at: self.ends_at,
            begins_at: self.begins_at,
            namespace,
            account: account.name,
            account_uid: account.uid,
            pod,
            has_secret: secret.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a kube-apiserver 1.32.
    const REAL: &str = include_str!("../../tests/golden/metaserver/token.txt");

    fn token(header: &str, payload: &str) -> String {
        let part = |text: &str| {
            let base64 = base64::encode(text.as_bytes());
            base64.replace('+', "-").replace('/', "_").replace('=', "")
        };
        format!("{}.{}.{}", part(header), part(payload), part("sig"))
    }

    #[test]
    fn a_token_of_an_api_server_is_read() {
        let token = REAL.trim();
        let jwt = read(token).expect("it is one");
        let claims = &jwt.claims;
        assert_eq!((&*jwt.algorithm, jwt.signature.len()), ("RS256", 256));
        assert_eq!(&*claims.issuer, "https://kubernetes.default.svc.cluster.local");
        assert_eq!(claims.audiences, ["https://kubernetes.default.svc.cluster.local".into()]);
        assert_eq!((&*claims.namespace, &*claims.account), ("default", "app"));
        assert_eq!(claims.account_uid.len(), 36);
        let (from, until) = (claims.begins_at.expect("nbf"), claims.ends_at.expect("exp"));
        assert_eq!(until - from, 3_600);
        assert_eq!((claims.pod.as_ref(), claims.has_secret), (None, false));
        assert_eq!(Some(jwt.signed), token.rsplit_once('.').map(|(signed, _)| signed));
    }

    #[test]
    fn what_it_is_bound_to_and_a_single_audience_are_read() {
        let text = token(
            r#"{"alg":"ES256"}"#,
            r#"{"aud":"a","kubernetes.io":{"namespace":"n","pod":{"name":"p","uid":"u"},
                "secret":{"name":"s"},"serviceaccount":{"name":"x","uid":"y"}}}"#,
        );
        let claims = read(&text).expect("it is one").claims;
        assert_eq!(claims.audiences, ["a".into()]);
        assert_eq!(claims.pod, Some(("p".into(), "u".into())));
        assert!(claims.has_secret);
    }

    #[test]
    fn what_is_no_token_is_refused_wherever_it_is_cut_or_spoilt() {
        let token = REAL.trim();
        for end in 0..token.len() {
            let _ = read(&token[..end]);
        }
        for at in 0..token.len() {
            for byte in ["!", "=", " ", ".", "é", "\0"] {
                let spoilt = format!("{}{byte}{}", &token[..at], &token[at + 1..]);
                assert!(read(&spoilt).is_err() || byte == ".", "{spoilt}");
            }
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(3_000), "]".repeat(3_000));
        for wrong in
            ["", "a", "a.b", "..", "e30.e30.!", "e30.W10.", "e30.MQ.", &self::token("{}", &deep)]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let long = format!("e30.e30.{}", "A".repeat(JWT_BYTES_MAX));
        let why = read(&long).expect_err("too long");
        assert!(why.0.contains(&format!("expected {JWT_BYTES_MAX} at most")), "{why}");
        assert_eq!(read("e30.e30.").expect("empty claims").claims, Claims::default());
    }
}
