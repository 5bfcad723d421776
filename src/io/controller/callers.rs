//! The clients of the port for kube-apiserver: its certificate, and which clients' are trusted
//! (edgestream.md, section 6.4).
//!
//! A handshake succeeds with any certificate whose key the client has, and without one, so that
//! the answer to the request can say what is wrong with it: 401 without a certificate of the
//! cluster's CA for clients, 403 if it is somebody else's. There are no bearer tokens.
//!
//! That CA is read from the cluster, again and again, or from a file at the start. As long as it is
//! not known, nobody is let in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;

use super::any_client::AnyClient;
use super::authority::Pair;
use crate::controller::may_request;
use crate::controller::time::{Instant, Now};
use crate::io::cloud::files;
use crate::limits::{CLIENT_CA_CHECK_MS, CLIENT_CA_RETRY_MS, CLIENT_CHAIN_MAX};
use crate::model::api::{Call, CallResult, Kind, Verb};
use crate::model::error::{Error, Input, Peer, System};
use crate::wire::x509::issue::Subject;
use crate::wire::x509::pem;

/// Which clients are let in.
#[derive(Debug)]
pub struct Callers {
    trust: Trust,
    /// When the CA is read from the cluster; `None`: it is not there.
    read_at: Option<Instant>,
    /// The trouble was logged.
    is_trouble_logged: bool,
}

#[derive(Debug)]
enum Trust {
    /// Whoever connects.
    Anybody,
    /// The CA is not known.
    Nobody,
    /// Clients of these CAs. With the text that they were read from.
    Signed(Arc<dyn ClientCertVerifier>, String),
}

impl Callers {
    /// Everybody is let in, as by CloudCore.
    pub fn anybody() -> Self {
        Self { trust: Trust::Anybody, read_at: None, is_trouble_logged: false }
    }

    /// The clients of the CA that is in this file.
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        let place = path.display();
        let text = files::read(path).map_err(|error| System::at(&place, error))?;
        let trust = Trust::of(&text).map_err(|why| Input::other(why).at(&place))?;
        Ok(Self { trust, read_at: None, is_trouble_logged: false })
    }

    /// The clients of the cluster's CA, which is to be read.
    pub fn of_cluster() -> Self {
        Self { trust: Trust::Nobody, read_at: Some(Instant(0)), is_trouble_logged: false }
    }

    /// The call that reads the CA, when it is due.
    pub fn due(&mut self, now: Instant) -> Option<Call> {
        self.read_at.filter(|at| *at <= now)?;
        self.read_at = Some(now.plus_ms(CLIENT_CA_RETRY_MS));
        let (kind, name) = (Kind::ConfigMap, CLIENT_CA.into());
        let (verb, namespace) = (Verb::Get, "kube-system".into());
        Some(Call { verb, kind, namespace, name, subresource: None, body: None })
    }

    /// When the next read is due.
    pub fn wake_at(&self) -> Option<Instant> {
        self.read_at
    }

    /// Takes the answer to such a call.
    pub fn answered(&mut self, result: CallResult, now: Instant) {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: Data,
        }
        #[derive(Default, Deserialize)]
        struct Data {
            #[serde(rename = "client-ca-file")]
            client_ca: Option<String>,
        }
        let text = result.map_err(|error| format!("{error:?}")).and_then(|raw| {
            let map: ConfigMap =
                serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
            map.data.client_ca.ok_or_else(|| "got no client-ca-file".to_owned())
        });
        if let (Ok(text), Trust::Signed(_, known)) = (&text, &self.trust)
            && text == known
        {
            self.read_at = Some(now.plus_ms(CLIENT_CA_CHECK_MS));
            self.is_trouble_logged = false;
            return;
        }
        match text.and_then(|text| Trust::of(&text)) {
            Ok(trust) => {
                log::info!(
                    "kube-apiserver's requests are accepted by the cluster's CA for clients"
                );
                (self.trust, self.is_trouble_logged) = (trust, false);
                self.read_at = Some(now.plus_ms(CLIENT_CA_CHECK_MS));
            }
            Err(why) if !std::mem::replace(&mut self.is_trouble_logged, true) => {
                log::warn!(
                    "cannot read the cluster's CA for clients, by which kube-apiserver's requests \
                     for logs and commands are accepted: ConfigMap kube-system/{CLIENT_CA}: {why}"
                );
            }
            Err(_) => {}
        }
    }

    /// Whether a client with this chain of certificates is let in; otherwise a status and a text.
    pub(super) fn admit(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        now: Now,
    ) -> Result<(), (u16, String)> {
        let verifier = match &self.trust {
            Trust::Anybody => return Ok(()),
            Trust::Nobody => {
                let why = "the cluster's CA for clients is not known yet: see edgecontroller's log";
                return Err((503, why.to_owned()));
            }
            Trust::Signed(verifier, _) => verifier,
        };
        let Some([own, others @ ..]) = chain else {
            return Err((401, "expected a client certificate of the cluster, got none".to_owned()));
        };
        let now_s = now.timestamp().ok_or((503, "this clock is not set".to_owned()))?.0;
        let moment = UnixTime::since_unix_epoch(Duration::from_secs(now_s.max(0).unsigned_abs()));
        let others = &others[..others.len().min(CLIENT_CHAIN_MAX)];
        if let Err(why) = verifier.verify_client_cert(own, others, moment) {
            let why = format!("the client certificate is not of the cluster's CA: {why}");
            return Err((401, why));
        }
        let subject = Subject::of(own);
        let subject = subject.map_err(|fault| (401, format!("the client certificate: {fault}")))?;
        may_request(&subject.common_name, &subject.organisations)
            .map_err(|why| (403, why.to_string()))
    }
}

impl Trust {
    /// From PEM, which may have several CAs.
    fn of(text: &str) -> Result<Self, String> {
        let blocks = pem::decode(text).map_err(|fault| fault.to_string())?;
        let mut roots = RootCertStore::empty();
        for block in blocks.into_iter().filter(|block| block.label == "CERTIFICATE") {
            roots.add(CertificateDer::from(block.der)).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("expected a certificate in PEM, got none".to_owned());
        }
        let provider = Arc::new(default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = builder.build().map_err(|error| error.to_string())?;
        Ok(Self::Signed(verifier, text.to_owned()))
    }
}

/// kube-apiserver writes it with its flags.
const CLIENT_CA: &str = "extension-apiserver-authentication";

/// A server's certificates and its key.
#[derive(Debug)]
pub(super) struct Identity {
    /// Its own is the first.
    chain: Vec<CertificateDer<'static>>,
    keys: Vec<PrivateKeyDer<'static>>,
}

impl Identity {
    /// From PEM.
    pub(super) fn of(chain: &str, key: &str) -> Result<Self, Peer> {
        let wrong = |what: &'static str| move |fault| Peer::at(what, fault);
        let blocks = pem::decode(chain).map_err(wrong("the certificate"))?;
        let chain = blocks.into_iter().filter(|block| block.label == "CERTIFICATE");
        let chain: Vec<_> = chain.map(|block| CertificateDer::from(block.der)).collect();
        let keys = pem::decode(key).map_err(wrong("the key"))?.into_iter();
        let keys = keys.flat_map(|block| match &*block.label {
            "EC PRIVATE KEY" => vec![PrivateSec1KeyDer::from(block.der).into()],
            "RSA PRIVATE KEY" => vec![PrivatePkcs1KeyDer::from(block.der).into()],
            // CloudCore writes its SEC1 keys under this name as well.
            "PRIVATE KEY" => vec![
                PrivatePkcs8KeyDer::from(block.der.clone()).into(),
                PrivateSec1KeyDer::from(block.der).into(),
            ],
            _ => Vec::new(),
        });
        Ok(Self { chain, keys: keys.collect() })
    }

    /// One that our CA has signed.
    pub(super) fn of_pair(pair: Pair) -> Self {
        let key = PrivateSec1KeyDer::from(pair.key).into();
        Self { chain: vec![CertificateDer::from(pair.certificate)], keys: vec![key] }
    }

    /// The TLS configuration of the port. HTTP/2 is not offered: exec needs HTTP/1.1, and one
    /// connection for all nodes would let one slow stream hold up the others.
    pub(super) fn tls(&self) -> Result<Arc<ServerConfig>, Input> {
        let mut why = "expected a certificate and its key in PEM, got none".to_owned();
        for key in &self.keys {
            let provider = Arc::new(default_provider());
            // Named CAs would make a client keep a certificate of another to itself.
            let verifier = AnyClient { provider: Arc::clone(&provider), cas: Vec::new() };
            let built = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("the provider has suites for these versions")
                .with_client_cert_verifier(Arc::new(verifier))
                .with_single_cert(self.chain.clone(), key.clone_key());
            match built {
                Ok(mut config) => {
                    config.alpn_protocols = vec![b"http/1.1".to_vec()];
                    config.session_storage = Arc::new(NoServerSessionStorage {});
                    config.send_tls13_tickets = 0;
                    return Ok(Arc::new(config));
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(Input::other(why).at("the certificate of the port for kube-apiserver"))
    }

    /// When its own certificate ends, seconds since 1970.
    pub(super) fn not_after_s(&self) -> Option<i64> {
        crate::wire::x509::read(self.chain.first()?).ok().map(|about| about.validity.not_after_s)
    }
}

#[cfg(test)]
mod tests;
