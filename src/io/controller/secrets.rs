//! The CA, the server's certificate and the token in KubeEdge's Secrets of a cluster, so that nodes
//! that have pinned CloudCore's CA keep working (wire spec section 1.3). Missing Secrets
//! are made; if two replicas make one at once, the first one counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::ServerConfig;
use serde_json::json;
use serde_json::value::RawValue;

use super::api::remote::{self, endpoints::Endpoint};
use super::authority::{Authority, Pair};
use super::callers::Identity;
use crate::controller::time::Instant;
use crate::limits::{TOKEN_LIFE_S, TOKEN_SECRET_MS};
use crate::model::api::{Call, CallError, Kind, PatchType, Verb};
use crate::model::base64;
use crate::model::error::{Error, Input, Peer, System};

/// Reads them, and makes the missing ones.
pub(super) fn open(
    reach: &mut Endpoint,
    namespace: &str,
    names: &[String],
    now_s: i64,
) -> Result<Authority, Error> {
    let mut secrets = SecretStore { reach, namespace };
    let ca = secrets.pair(&CA, || Authority::make_ca(now_s))?;
    let mut authority = Authority::of(ca.clone(), ca)?;
    let mut server = secrets.pair(&SERVER, || authority.make_server(names, now_s))?;
    if !authority.trusts_server(&server, now_s) {
        log::warn!(
            "secret {}: the server's certificate is not signed by the CA of {}, or expires within \
             a month: it is replaced",
            SERVER.0,
            CA.0
        );
        server = authority.make_server(names, now_s)?;
        secrets.replace(&SERVER, &server)?;
    }
    authority.serve(server)?;
    let token = token(namespace, &authority, now_s);
    match secrets.call(&token) {
        Ok(_) => {}
        Err(CallError::Refused { code: 404, .. }) => {
            let body = token.body.clone();
            let made =
                secrets.call(&Call { verb: Verb::Create, name: TOKEN.0.into(), body, ..token });
            made.map_err(|error| failure(TOKEN.0, error))?;
        }
        Err(error) => return Err(failure(TOKEN.0, error).into()),
    }
    Ok(authority)
}

/// The certificate of CloudCore's port for kube-apiserver, where its Secret has one. `Err`: it
/// cannot be used.
pub(super) fn stream_identity(
    reach: &mut Endpoint,
    namespace: &str,
    now_s: i64,
) -> Result<Option<Arc<ServerConfig>>, Error> {
    let [certificate, key] = STREAM.1;
    let mut secrets = SecretStore { reach, namespace };
    let Some(data) = secrets.data(STREAM.0)? else { return Ok(None) };
    let take = |key: &str| {
        let bytes = data.get(key).and_then(|text| base64::decode(text));
        bytes.and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let Some((certificate, key)) = take(certificate).zip(take(key)) else { return Ok(None) };
    let place = || format!("secret {}", STREAM.0);
    let identity = Identity::of(&certificate, &key).map_err(|why| Peer::at(place(), why))?;
    if identity.not_after_s().is_none_or(|at| at <= now_s) {
        return Err(Peer::at(place(), "the certificate has expired").into());
    }
    Ok(Some(identity.tls().map_err(|why| why.at(place()))?))
}

/// When the Secret needs a new token.
#[derive(Debug)]
pub(super) struct Renewal {
    at: Instant,
}

impl Renewal {
    /// The Secret has a new token now.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now.plus_ms(TOKEN_SECRET_MS) }
    }

    /// Whether a renewal is due; if so, the next one is counted from now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at <= now;
        if due {
            *self = Self::new(now);
        }
        due
    }

    /// When the next renewal is due.
    pub(super) fn wake_at(&self) -> Instant {
        self.at
    }
}

/// Writes a new token where `keadm gettoken` reads it.
pub(super) fn token(namespace: &str, authority: &Authority, now_s: i64) -> Call {
    let token = authority.token(now_s + TOKEN_LIFE_S);
    let data = [(TOKEN.1, base64::encode(token.as_bytes()))];
    call(Verb::Patch(PatchType::Merge), namespace, TOKEN.0, Some(secret(namespace, TOKEN.0, &data)))
}

struct SecretStore<'a> {
    reach: &'a mut Endpoint,
    namespace: &'a str,
}

impl SecretStore<'_> {
    fn call(&mut self, call: &Call) -> Result<Box<RawValue>, CallError> {
        remote::once(self.reach, call)
    }

    fn pair(
        &mut self,
        (name, certificate, key): &(&str, &str, &str),
        make: impl FnOnce() -> Result<Pair, System>,
    ) -> Result<Pair, Error> {
        if let Some(pair) = self.stored(name, certificate, key)? {
            return Ok(pair);
        }
        let pair = make()?;
        let body = self.body((name, certificate, key), &pair);
        match self.call(&call(Verb::Create, self.namespace, name, Some(body))) {
            Ok(_) => Ok(pair),
            Err(CallError::Refused { code: 409, .. }) => {
                let other = self.stored(name, certificate, key)?;
                other.ok_or_else(|| {
                    System::new(format!("secret {name}: it exists, and then it does not")).into()
                })
            }
            Err(error) => Err(failure(name, error).into()),
        }
    }

    fn replace(
        &mut self,
        (name, certificate, key): &(&str, &str, &str),
        pair: &Pair,
    ) -> Result<(), System> {
        let body = self.body((name, certificate, key), pair);
        let call = call(Verb::Patch(PatchType::Merge), self.namespace, name, Some(body));
        self.call(&call).map(drop).map_err(|error| failure(name, error))
    }

    fn body(&self, (name, certificate, key): (&str, &str, &str), pair: &Pair) -> Box<RawValue> {
        let data =
            [(certificate, base64::encode(&pair.certificate)), (key, base64::encode(&pair.key))];
        secret(self.namespace, name, &data)
    }

    /// The values of a Secret, in base64; `None`: it does not exist.
    fn data(&mut self, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        #[derive(serde::Deserialize)]
        struct Secret {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let secret = match self.call(&call(Verb::Get, self.namespace, name, None)) {
            Ok(secret) => secret,
            Err(CallError::Refused { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(failure(name, error).into()),
        };
        let secret: Secret = serde_json::from_str(secret.get())
            .map_err(|error| Peer::at(format_args!("secret {name}"), error))?;
        Ok(Some(secret.data))
    }

    fn stored(&mut self, name: &str, certificate: &str, key: &str) -> Result<Option<Pair>, Error> {
        let Some(data) = self.data(name)? else { return Ok(None) };
        let take = |key: &str| {
            let bytes = data.get(key).and_then(|text| base64::decode(text));
            let why = || Input::other(format!("expected {key} in base64, got none"));
            bytes.ok_or_else(|| why().at(format_args!("secret {name}")))
        };
        Ok(Some(Pair { certificate: take(certificate)?, key: take(key)? }))
    }
}

fn call(verb: Verb, namespace: &str, name: &str, body: Option<Box<RawValue>>) -> Call {
    Call {
        verb,
        kind: Kind::Secret,
        namespace: namespace.into(),
        name: name.into(),
        subresource: None,
        body,
    }
}

fn secret(namespace: &str, name: &str, data: &[(&str, String)]) -> Box<RawValue> {
    let data: BTreeMap<_, _> = data.iter().cloned().collect();
    let secret = json!({
        "kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace}, "data": data,
    });
    RawValue::from_string(secret.to_string()).expect("it was written as JSON")
}

fn failure(name: &str, error: CallError) -> System {
    System::new(match error {
        CallError::Lost(why) => format!("secret {name}: {why}"),
        CallError::Refused { code, status } => format!("secret {name}: {code}: {status}"),
    })
}

/// KubeEdge's names of the Secrets and their keys.
const CA: (&str, &str, &str) = ("casecret", "cadata", "cakeydata");
const SERVER: (&str, &str, &str) = ("cloudcoresecret", "cloudcoredata", "cloudcorekeydata");
const TOKEN: (&str, &str) = ("tokensecret", "tokendata");
/// Made by KubeEdge's helm chart.
const STREAM: (&str, [&str; 2]) = ("cloudcore", ["stream.crt", "stream.key"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_replaced_long_before_it_ends() {
        let at = |ms: u64| Instant(1_000 + ms);
        let mut renewal = Renewal::new(at(0));
        for begun in [0, TOKEN_SECRET_MS] {
            assert_eq!(renewal.wake_at(), at(begun + TOKEN_SECRET_MS));
            assert!(!renewal.is_due(at(begun + TOKEN_SECRET_MS - 1)));
            assert!(renewal.is_due(at(begun + TOKEN_SECRET_MS)));
        }
        assert!(renewal.wake_at().since_ms(at(2 * TOKEN_SECRET_MS)) < TOKEN_LIFE_S as u64 * 1_000);
    }
}
