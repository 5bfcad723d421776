//! The CA of the nodes, the server's certificate, and the tokens: made at the first start, stored,
//! and unchanged from then on, because every node has pinned the CA.
//!
//! ```text
//!  <folder>/ca.crt, ca.key            made once; without them every node must join again
//!  <folder>/server.crt, server.key    renewed if the names change or it expires
//! ```
//!
//! Keys are PEM `EC PRIVATE KEY` of P-256 with mode 0600, as KubeEdge's are. **If we crash here** a
//! key without its certificate is replaced at the next start; no node has seen it.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1, EcdsaKeyPair, UnparsedPublicKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivateSec1KeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::any_client::AnyClient;
use crate::controller as join;
pub use crate::io::issuer::Pair;
use crate::io::issuer::{self, issue, key_of, make_key, server_name, store, stored};
use crate::model::error::{Error, Input, Peer, System};
use crate::model::hex;
use crate::model::link::Validity;
use crate::wire::x509;
use crate::wire::x509::issue::{Application, Issuer, ServerName, Subject, Usage};

/// The CA and the certificates that it signed.
#[derive(Debug)]
pub struct Authority {
    ca: Pair,
    server: Pair,
    key: EcdsaKeyPair,
    issuer: Issuer,
    random: SystemRandom,
}

impl Authority {
    /// Reads what is stored in the folder, and makes what is missing. `names`: DNS names and
    /// addresses under which nodes connect.
    pub fn open(folder: &Path, names: &[String], now_s: i64) -> Result<Self, Error> {
        let random = SystemRandom::new();
        let ca = match stored(folder, "ca")? {
            Some(pair) => pair,
            None => store(folder, "ca", make_ca(&random, now_s)?)?,
        };
        let mut authority = Self::of(ca.clone(), ca)?;
        authority.server = match stored(folder, "server")? {
            Some(pair) if authority.serves(&pair, names, now_s) => pair,
            _ => store(folder, "server", authority.make_server(names, now_s)?)?,
        };
        Ok(authority)
    }

    /// From these two pairs, which are stored elsewhere.
    pub fn of(ca: Pair, server: Pair) -> Result<Self, Input> {
        let random = SystemRandom::new();
        let key = key_of(&ca.key, &random)?;
        let issuer = Issuer::of(&ca.certificate)
            .map_err(|fault| Input::other(format!("the CA's {fault}")))?;
        Ok(Self { ca, server, key, issuer, random })
    }

    /// A new CA.
    pub fn make_ca(now_s: i64) -> Result<Pair, System> {
        make_ca(&SystemRandom::new(), now_s)
    }

    /// Whether nodes accept this server's certificate, for some time to come.
    pub fn trusts_server(&self, server: &Pair, now_s: i64) -> bool {
        let der = CertificateDer::from(&*server.certificate);
        self.tls_with(server, Clients::Optional).is_ok()
            && self.vouches_for(&der, now_s)
            && self.vouches_for(&der, now_s + FOREIGN_SERVER_LEFT_S)
    }

    /// Uses this pair from now on.
    pub fn serve(&mut self, server: Pair) -> Result<(), Input> {
        self.tls_with(&server, Clients::Optional)?;
        self.server = server;
        Ok(())
    }

    /// What the core needs to sign tokens and to answer requests for the CA.
    pub fn core_authority(&self) -> join::Authority {
        let (certificate, key) = (self.ca.certificate.clone(), self.ca.key.clone());
        join::Authority { certificate: certificate.into(), key: key.into() }
    }

    /// A token that lets any node join until then.
    pub fn token(&self, ends_s: i64) -> String {
        self.core_authority().token(&self.hash(), ends_s)
    }

    /// A token that lets only this node get a certificate, until then.
    pub fn node_token(&self, node: &str, now_s: i64, ends_s: i64) -> Result<String, Input> {
        self.core_authority().node_token(&self.hash(), node, now_s, ends_s)
    }

    /// The SHA-256 of the CA's certificate, in hex.
    fn hash(&self) -> String {
        hex::encode(digest(&SHA256, &self.ca.certificate).as_ref())
    }

    /// A client certificate for the key of a CSR, in the name of this node, whatever
    /// the CSR's subject is.
    pub fn sign(
        &self,
        application: &[u8],
        node: &str,
        validity: Validity,
    ) -> Result<Vec<u8>, Error> {
        let csr = read_application(application)?;
        let subject = Subject {
            common_name: format!("{}{node}", x509::NODE_PREFIX),
            organisations: vec![NODES.to_owned()],
        };
        Ok(self.issue(subject, csr.point, Usage::Ends(CLIENT.to_vec()), validity, &[])?)
    }

    fn issue(
        &self,
        subject: Subject,
        point: &[u8],
        usage: Usage,
        validity: Validity,
        names: &[ServerName],
    ) -> Result<Vec<u8>, System> {
        let about = (subject, point, usage);
        issue(&self.random, (&self.key, &self.issuer), about, (validity, names))
    }

    /// A certificate and key for a server with these names.
    pub fn make_server(&self, names: &[String], now_s: i64) -> Result<Pair, System> {
        let (key, point) = make_key(&self.random)?;
        let subject =
            Subject { common_name: KUBEEDGE.to_owned(), organisations: vec![KUBEEDGE.to_owned()] };
        let names: Vec<ServerName> = names.iter().map(|name| server_name(name)).collect();
        let validity = Validity { not_before_s: now_s - 3_600, not_after_s: now_s + SERVER_S };
        let certificate = self.issue(subject, &point, Usage::Server, validity, &names)?;
        Ok(Pair { certificate, key })
    }

    /// Whether this CA signed the pair, with these names, and it is valid for some time to come.
    fn serves(&self, pair: &Pair, names: &[String], now_s: i64) -> bool {
        let der = CertificateDer::from(&*pair.certificate);
        let (Ok(about), Ok(parsed)) =
            (x509::read(&pair.certificate), rustls::server::ParsedCertificate::try_from(&der))
        else {
            return false;
        };
        let fits = |name: &String| {
            rustls::pki_types::ServerName::try_from(name.as_str())
                .is_ok_and(|name| rustls::client::verify_server_name(&parsed, &name).is_ok())
        };
        about.validity.not_after_s > now_s + SERVER_LEFT_S
            && names.iter().all(fits)
            && self.tls_with(pair, Clients::Optional).is_ok()
            && self.vouches_for(&der, now_s)
    }

    fn vouches_for(&self, der: &CertificateDer<'_>, now_s: i64) -> bool {
        let mut roots = RootCertStore::empty();
        let added = roots.add(CertificateDer::from(self.ca.certificate.clone()));
        let moment = Duration::from_secs(now_s.max(0).unsigned_abs());
        added.is_ok()
            && rustls::server::ParsedCertificate::try_from(der).is_ok_and(|parsed| {
                rustls::client::verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    &roots,
                    &[],
                    UnixTime::since_unix_epoch(moment),
                    default_provider().signature_verification_algorithms.all,
                )
                .is_ok()
            })
    }

    /// The TLS configuration of a port for nodes.
    pub fn tls(&self, clients: Clients) -> Result<Arc<ServerConfig>, Input> {
        self.tls_with(&self.server, clients)
    }

    fn tls_with(&self, pair: &Pair, clients: Clients) -> Result<Arc<ServerConfig>, Input> {
        let provider = Arc::new(default_provider());
        let verifier: Arc<dyn ClientCertVerifier> = match clients {
            Clients::Required => self.verifier()?,
            Clients::Optional => Arc::new(AnyClient {
                provider: Arc::clone(&provider),
                cas: self.verifier()?.root_hint_subjects().to_vec(),
            }),
        };
        let key = PrivateKeyDer::from(PrivateSec1KeyDer::from(pair.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for these versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![CertificateDer::from(pair.certificate.clone())], key)
            .map_err(|error| Input::other(error.to_string()).at("the server's certificate"))?;
        // No node resumes a session: neither EdgeCore nor edged stores tickets.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, Input> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from(self.ca.certificate.clone());
        let wrong = |place, error: &dyn Display| Input::other(error.to_string()).at(place);
        roots.add(ca).map_err(|error| wrong("the CA's certificate", &error))?;
        let provider = Arc::new(default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.build().map_err(|error| wrong("the CA", &error))
    }

    /// Whether a client's certificate is signed by our CA for clients, and is valid at this
    /// time.
    pub fn trusts_client(&self, der: &CertificateDer<'_>, now_s: i64) -> Result<(), Error> {
        let moment = Duration::from_secs(now_s.max(0).unsigned_abs());
        let moment = UnixTime::since_unix_epoch(moment);
        let judged = self.verifier()?.verify_client_cert(der, &[], moment);
        let distrust = |error| Peer::new(format!("the client certificate: {error}"));
        judged.map(drop).map_err(|error| distrust(error).into())
    }
}

/// A token of the CA in the folder, that lets nodes join until then, or only this node.
pub fn token(folder: &Path, node: Option<&str>, now_s: i64, ends_s: i64) -> Result<String, Error> {
    let ca = stored(folder, "ca")?.ok_or_else(|| {
        let folder = folder.display();
        Input::other(format!(
            "no CA in {folder}: it is made by `edgecontroller run`; is --data right?"
        ))
    })?;
    let authority = Authority::of(ca.clone(), ca)?;
    match node {
        None => Ok(authority.token(ends_s)),
        Some(node) => Ok(authority.node_token(node, now_s, ends_s)?),
    }
}

/// Reads a CSR, and verifies its signature with its own key.
pub fn read_application(der: &[u8]) -> Result<Application<'_>, Peer> {
    let csr = Application::read(der).map_err(|fault| Peer::new(format!("the CSR: {fault}")))?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, csr.point)
        .verify(csr.signed, csr.signature)
        .map_err(|_| Peer::new("the CSR is not signed by the key that it names"))?;
    Ok(csr)
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// A certificate of our CA is required.
    Required,
    /// A certificate is optional.
    Optional,
}

fn make_ca(random: &SystemRandom, now_s: i64) -> Result<Pair, System> {
    let subject = Subject { common_name: KUBEEDGE.to_owned(), organisations: Vec::new() };
    let validity = Validity { not_before_s: now_s - 3_600, not_after_s: now_s + CA_S };
    issuer::self_signed(random, (subject, Usage::Authority), (validity, &[]))
}

/// The last number of the OID of clientAuth.
const CLIENT: &[u8] = &[2];
/// The organization in nodes' certificates (Kubernetes' group).
const NODES: &str = "system:nodes";
const KUBEEDGE: &str = "KubeEdge";
/// 100 years (KubeEdge's value): a new CA means that all nodes must join again.
const CA_S: i64 = 100 * 365 * 86_400;
/// Ten years; renewed at a start in the last year.
const SERVER_S: i64 = 10 * 365 * 86_400;
const SERVER_LEFT_S: i64 = 365 * 86_400;
/// The remaining time at which a server certificate from the cluster (CloudCore's) is replaced.
const FOREIGN_SERVER_LEFT_S: i64 = 30 * 86_400;

#[cfg(test)]
mod tests;
