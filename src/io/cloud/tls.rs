//! TLS to the cloud: what the node shows, and whom it believes.
//!
//! The server's certificate must chain to the CA that was pinned when the node joined, and name
//! the host that was dialled. Two things differ from what a browser does:
//!
//! - **The clock.** A certificate that is not good yet by our clock is judged as of its first
//!   moment. Who signed it is what proves it, and gateways start in 1970 until they were told the
//!   time, perhaps by a pod. That it has ended is judged by the clock.
//! - **The names.** CloudCore's own certificates carry an empty DNS name among the others. It
//!   names nobody, and spoils nothing.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use super::files::{self, Pair};
use crate::agent::time::Wall;
use crate::io::crypto;
use crate::model::link::{Cause, Validity};
use crate::model::settings::CloudLink;
use crate::model::time::Timestamp;
use crate::wire::x509::{self, NODE_PREFIX};

/// What the node shows and whom it believes, as they lie on the disk at this moment.
#[derive(Debug)]
pub(super) struct Credentials {
    /// Of the certificate that the node shows.
    pub(super) validity: Validity,
    pub(super) config: Arc<ClientConfig>,
}

impl Credentials {
    /// As [`Credentials::load`]; that the node has none of them, since it never joined, is told
    /// apart.
    pub(super) fn find(link: &CloudLink, wall: Option<Wall>) -> Result<Self, Cause> {
        let is_there = |file: &String| Path::new(file).exists();
        if ![&link.ca_file, &link.cert_file, &link.key_file].into_iter().any(is_there) {
            return Err(Cause::NotJoined("the node has no certificate yet".to_owned()));
        }
        Self::load(link, wall)
    }

    /// Reads them. A fault of theirs is a [`Cause::Credentials`]: the node has to apply anew.
    pub(super) fn load(link: &CloudLink, wall: Option<Wall>) -> Result<Self, Cause> {
        let provider = Arc::new(crypto::provider());
        let roots = files::certificates(Path::new(&link.ca_file)).map_err(Cause::Credentials)?;
        let pair = Pair::load(link, &provider).map_err(Cause::Credentials)?;
        let validity = judge(link, &pair, wall).map_err(Cause::Credentials)?;
        let trust = Trust::new(link, roots, wall, &provider).map_err(Cause::Credentials)?;
        let resolver = Arc::new(SingleCertAndKey::from(pair.certified));
        let mut config = builder(provider, trust).with_client_cert_resolver(resolver);
        // One session at a time, and each with the credentials of its own moment.
        config.resumption = Resumption::disabled();
        Ok(Self { validity, config: Arc::new(config) })
    }
}

/// Whether the certificate can be this node's. That it is not good yet is left to the cloud: a
/// clock that is behind would ask for a new one again and again.
pub(super) fn judge(link: &CloudLink, pair: &Pair, wall: Option<Wall>) -> Result<Validity, String> {
    let file = &link.cert_file;
    let about = x509::read(&pair.chain[0]).map_err(|fault| format!("{file}: {fault}"))?;
    let expected = format!("{NODE_PREFIX}{}", link.node_name);
    if about.common_name != expected && about.common_name != LEGACY_NAME {
        let got = about.common_name;
        return Err(format!("{file}: got the certificate of {got:?}, expected {expected:?}"));
    }
    let ends_s = about.validity.not_after_s;
    match wall {
        Some(now) if now.0 / 1_000 > ends_s => {
            Err(format!("{file}: the certificate ended at {}", Timestamp(ends_s)))
        }
        _ => Ok(about.validity),
    }
}

/// A configuration without a certificate of the node's, that believes this.
pub(super) fn builder(
    provider: Arc<CryptoProvider>,
    trust: Trust,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
}

/// Whom we believe to be the cloud.
#[derive(Debug)]
pub(super) struct Trust {
    roots: RootCertStore,
    wall: Option<Wall>,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// Whoever the CA vouches for. `wall`: `None` while the clock is not to be believed.
    pub(super) fn new(
        link: &CloudLink,
        certificates: Vec<CertificateDer<'static>>,
        wall: Option<Wall>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| format!("{}: {error}", link.ca_file))?;
        }
        Ok(Self { roots, wall, provider: Arc::clone(provider) })
    }

    /// The moment by which a certificate is judged.
    fn moment(&self, not_before_s: i64) -> UnixTime {
        let now_s = self.wall.map_or(0, |wall| wall.0 / 1_000);
        if now_s < not_before_s && !TOLD.swap(true, Ordering::Relaxed) {
            log::warn!(
                "this machine's clock is behind the cloud's certificate, which begins at {}: it is \
                 taken to be good already, since the CA vouches for it",
                Timestamp(not_before_s)
            );
        }
        let seconds = now_s.max(not_before_s).unsigned_abs();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }
}

/// Said once: it goes on until the clock is set.
static TOLD: AtomicBool = AtomicBool::new(false);

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let about = x509::read(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            self.moment(about.validity.not_before_s.max(0)),
            self.provider.signature_verification_algorithms.all,
        )?;
        verify_server_name(&certificate, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What an error of this connection means, for people. `peer`: who was dialled.
pub(super) fn explain(error: &io::Error, link: &CloudLink, peer: &str) -> Cause {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(tls) = tls else {
        let why = match error.kind() {
            ErrorKind::UnexpectedEof => "the cloud hung up".to_owned(),
            _ => error.to_string(),
        };
        return Cause::Link(format!("{peer}: {why}"));
    };
    match tls {
        Error::AlertReceived(alert) if is_about_us(*alert) => Cause::Credentials(format!(
            "{peer} does not take the certificate {}: it says {alert:?}",
            link.cert_file
        )),
        Error::AlertReceived(alert) => Cause::Link(format!("{peer} broke off TLS: {alert:?}")),
        Error::InvalidCertificate(why) => Cause::Link(distrust(why, link, peer)),
        other => Cause::Link(format!("TLS with {peer}: {other}")),
    }
}

/// RFC 8446, section 6.2: what is said of the certificate that we showed. `DecryptError` is said of
/// a signature, and the only ones of ours are the certificate's and that of its key.
fn is_about_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

fn distrust(why: &CertificateError, link: &CloudLink, peer: &str) -> String {
    let ca = &link.ca_file;
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "{peer} is not vouched for by the CA in {ca}: it is another cloud, or this one has a \
             new CA; then the node has to join again"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{peer} shows a certificate for another name: {why}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {peer} has ended, by this machine's clock: {why}")
        }
        other => format!("the certificate of {peer} cannot be believed: {other}"),
    }
}

/// In the certificates of KubeEdge before 1.16: it names no node.
const LEGACY_NAME: &str = "kubeedge.io";
