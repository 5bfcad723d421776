//! The certificate of the authenticated form: made by the node, signed by its own key, and for the
//! server's addresses alone.
//!
//! EdgeCore has the cluster sign one, by a CSR that a stock CloudCore carries to the API server. It
//! works only with the link, a signer for `kubernetes.io/kubelet-serving` in the cluster, and a
//! cloud that carries CSRs, and a gateway that was never connected serves nothing. Here pods get
//! this certificate beside the cluster's CA in `ca.crt`, which works with every cloud and without.
//! It is no CA: whoever has its key can be this server on this node, and nothing else.
//!
//! **If we crash here** a key without its certificate is replaced at the next start.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ring::rand::SystemRandom;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivateSec1KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};

use crate::io::{crypto, issuer};
use crate::model::error::Error;
use crate::model::error::Input;
use crate::model::link::Validity;
use crate::wire::x509::issue::{Subject, Usage};
use crate::wire::x509::pem;

/// TLS as this server.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) config: Arc<ServerConfig>,
    /// PEM of the certificate.
    pub(super) certificate: Arc<str>,
}

/// Hides the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the certificate of MetaServer")
    }
}

impl Identity {
    /// Reads the stored pair, or makes one for these addresses.
    pub(super) fn open(folder: &Path, addresses: &[IpAddr]) -> Result<Self, Error> {
        let stored = issuer::stored(folder, NAME).unwrap_or_else(|why| {
            log::warn!("MetaServer makes a new certificate: {why}");
            None
        });
        if let Some(pair) = stored.filter(|pair| is_for(&pair.certificate, addresses)) {
            match Self::of(&pair) {
                Ok(identity) => return Ok(identity),
                Err(why) => log::warn!("MetaServer makes a new certificate: {why}"),
            }
        }
        let subject = Subject { common_name: "edged metaserver".to_owned(), organisations: vec![] };
        let names: Vec<_> =
            addresses.iter().map(|it| issuer::server_name(&it.to_string())).collect();
        let about = (subject, Usage::Server);
        let pair = issuer::self_signed(&SystemRandom::new(), about, (EVER, &names))?;
        Ok(Self::of(&issuer::store(folder, NAME, pair)?)?)
    }

    fn of(pair: &issuer::Pair) -> Result<Self, Input> {
        let key = PrivateKeyDer::from(PrivateSec1KeyDer::from(pair.key.clone()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for these versions")
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(pair.certificate.clone())], key)
            .map_err(|error| Input::other(error.to_string()).at("the certificate of MetaServer"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A session that is resumed would save a little time, and cost memory for each client.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let certificate = pem::encode("CERTIFICATE", &pair.certificate).into();
        Ok(Self { config: Arc::new(config), certificate })
    }
}

/// Whether a certificate is for all of these addresses.
fn is_for(certificate: &[u8], addresses: &[IpAddr]) -> bool {
    let der = CertificateDer::from(certificate);
    let Ok(parsed) = ParsedCertificate::try_from(&der) else { return false };
    addresses.iter().all(|address| {
        let name = ServerName::IpAddress((*address).into());
        rustls::client::verify_server_name(&parsed, &name).is_ok()
    })
}

/// The files `metaserver.crt` and `metaserver.key`, beside those of the node.
const NAME: &str = "metaserver";
/// From 2020 to the end of 9999 (RFC 5280, section 4.1.2.5: no end): the clock of a gateway may be
/// wrong, and pods have the certificate as long as they run.
const EVER: Validity = Validity { not_before_s: 1_577_836_800, not_after_s: 253_402_300_799 };
