//! TLS to the cloud: the node's certificate, and how the server's certificate is verified.
//!
//! The server's certificate must chain to the CA that was pinned when the node joined, and contain
//! the host name of the connection. Two rules differ from those of a browser:
//!
//! - **The clock.** A certificate that is not valid yet by our clock is verified as of its first
//!   moment. Its signature proves it, and the clock of a gateway starts in 1970 until it is set,
//!   perhaps by a pod. Its expiry is checked by the clock.
//! - **The names.** CloudCore's own certificates have an empty DNS name among the others. It
//!   is ignored.

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
use crate::model::error::{self, Input};
use crate::model::link::{Cause, Validity};
use crate::model::settings::CloudLink;
use crate::model::time::Timestamp;
use crate::wire::x509::{self, NODE_PREFIX};

/// The node's credentials as they are on the disk at this moment.
#[derive(Debug)]
pub(super) struct Credentials {
    /// Of the node's certificate.
    pub(super) validity: Validity,
    pub(super) config: Arc<ClientConfig>,
}

impl Credentials {
    /// As [`Credentials::load`]; a node that has no credentials because it never joined is a
    /// separate error.
    pub(super) fn find(link: &CloudLink, wall: Option<Wall>) -> Result<Self, Cause> {
        let is_there = |file: &String| Path::new(file).exists();
        if ![&link.ca_file, &link.cert_file, &link.key_file].into_iter().any(is_there) {
            return Err(Cause::NotJoined("the node has no certificate yet".to_owned()));
        }
        Self::load(link, wall).map_err(|error| Cause::Credentials(error.to_string()))
    }

    /// Reads them. If one is invalid, the node must request a certificate.
    pub(super) fn load(link: &CloudLink, wall: Option<Wall>) -> Result<Self, error::Error> {
        let provider = Arc::new(crypto::provider());
        let roots = files::certificates(Path::new(&link.ca_file))?;
        let pair = Pair::load(link, &provider)?;
        let validity = judge(link, &pair, wall)?;
        let trust = Trust::new(link, roots, wall, &provider)?;
        let resolver = Arc::new(SingleCertAndKey::from(pair.certified));
        let mut config = builder(provider, trust).with_client_cert_resolver(resolver);
        // One session at a time, and each with its own credentials.
        config.resumption = Resumption::disabled();
        Ok(Self { validity, config: Arc::new(config) })
    }
}

/// Whether the certificate can be this node's. The cloud checks that it is valid already: with a
/// clock that is behind, the node would request a new one again and again.
pub(super) fn judge(link: &CloudLink, pair: &Pair, wall: Option<Wall>) -> Result<Validity, Input> {
    let file = &link.cert_file;
    let about =
        x509::read(&pair.chain[0]).map_err(|fault| Input::other(fault.to_string()).at(file))?;
    let expected = format!("{NODE_PREFIX}{}", link.node_name);
    if about.common_name != expected && about.common_name != LEGACY_NAME {
        let got = about.common_name;
        let got = format_args!("the certificate of {got:?}");
        return Err(Input::new(got, format!("{expected:?}")).at(file));
    }
    let ends_s = about.validity.not_after_s;
    match wall {
        Some(now) if now.0 / 1_000 > ends_s => {
            let why = format!("the certificate expired at {}", Timestamp(ends_s));
            Err(Input::other(why).at(file))
        }
        _ => Ok(about.validity),
    }
}

/// A configuration without a client certificate, with this verifier.
pub(in crate::io) fn builder(
    provider: Arc<CryptoProvider>,
    trust: Trust,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
}

/// Verifies a server's certificate.
#[derive(Debug)]
pub(in crate::io) struct Trust {
    roots: RootCertStore,
    wall: Option<Wall>,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// Trusts the CA of the file. `wall`: `None` while the clock is not set.
    pub(super) fn new(
        link: &CloudLink,
        certificates: Vec<CertificateDer<'static>>,
        wall: Option<Wall>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Input> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|error| Input::other(error.to_string()).at(&link.ca_file))?;
        }
        Ok(Self::of(roots, wall, provider))
    }

    /// Trusts these CAs.
    pub(in crate::io) fn of(
        roots: RootCertStore,
        wall: Option<Wall>,
        provider: &Arc<CryptoProvider>,
    ) -> Self {
        Self { roots, wall, provider: Arc::clone(provider) }
    }

    /// The time at which a certificate is verified.
    fn moment(&self, not_before_s: i64) -> UnixTime {
        let now_s = self.wall.map_or(0, |wall| wall.0 / 1_000);
        if now_s < not_before_s && !LOGGED.swap(true, Ordering::Relaxed) {
            log::warn!(
                "this machine's clock is behind a server's certificate, which is valid from {}: \
                 it is accepted, because the CA signed it",
                Timestamp(not_before_s)
            );
        }
        let seconds = now_s.max(not_before_s).unsigned_abs();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }
}

/// Logged once: it stays true until the clock is set.
static LOGGED: AtomicBool = AtomicBool::new(false);

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

/// The meaning of an error of this connection, for the user. `peer`: the other end.
pub(in crate::io) fn explain(error: &io::Error, link: &CloudLink, peer: &str) -> Cause {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(tls) = tls else {
        let why = match error.kind() {
            ErrorKind::UnexpectedEof => "the cloud closed the connection".to_owned(),
            _ => error.to_string(),
        };
        return Cause::Link(format!("{peer}: {why}"));
    };
    match tls {
        Error::AlertReceived(alert) if is_about_us(*alert) => Cause::Credentials(format!(
            "{peer} does not accept the certificate {}: it answers {alert:?}",
            link.cert_file
        )),
        Error::AlertReceived(alert) => Cause::Link(format!("{peer} ended TLS: {alert:?}")),
        Error::InvalidCertificate(why) => Cause::Link(distrust(why, link, peer)),
        other => Cause::Link(format!("TLS with {peer}: {other}")),
    }
}

/// RFC 8446, section 6.2: alerts about our certificate. `DecryptError` is about a signature, and
/// our only signatures are those of the certificate and its key.
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
            "{peer} has no certificate of the CA in {ca}: it is another cloud, or the cloud has a \
             new CA; then the node must join again"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{peer} has a certificate for another name: {why}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {peer} has expired, by this machine's clock: {why}")
        }
        other => format!("the certificate of {peer} is not trusted: {other}"),
    }
}

/// In the certificates of KubeEdge before 1.16: it is no node's name.
const LEGACY_NAME: &str = "kubeedge.io";
