//! The cloud's CA, its own certificate, its token, and the certificates that it issues.

use std::fmt::Write as _;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The contents of the cloud's certificates.
pub struct Setup {
    /// DNS names of the server; addresses are those of loopback. CloudCore's own default is one
    /// empty name.
    pub names: Vec<String>,
    /// The validity of the server's certificate, in years.
    pub server_years: (i32, i32),
    /// The validity of the nodes' certificates, in years.
    pub node_years: (i32, i32),
}

impl Default for Setup {
    fn default() -> Self {
        Self { names: vec![String::new()], server_years: (2020, 2100), node_years: (2020, 2100) }
    }
}

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: CertificateDer<'static>,
    server: CertificateDer<'static>,
    server_key: Vec<u8>,
    node_years: (i32, i32),
}

impl Authority {
    pub(super) fn new(setup: &Setup) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = params("KubeEdge", None, (2020, 2100));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let ca = params.self_signed(&key).expect("a CA").der().clone();
        let issuer = Issuer::new(params, key);

        let server_key = KeyPair::generate().expect("a key");
        let mut params = self::params("KubeEdge", Some("KubeEdge"), setup.server_years);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let name = |name: &String| SanType::DnsName(name.as_str().try_into().expect("ASCII"));
        params.subject_alt_names = setup.names.iter().map(name).collect();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let server = params.signed_by(&server_key, &issuer).expect("a certificate").der().clone();
        let server_key = server_key.serialize_der();
        Self { issuer, ca, server, server_key, node_years: setup.node_years }
    }

    pub(super) fn ca_der(&self) -> Vec<u8> {
        self.ca.to_vec()
    }

    /// The hash of the CA, and a JWT whose signature only the cloud could verify.
    pub(super) fn token(&self) -> String {
        let hash = ring::digest::digest(&ring::digest::SHA256, &self.ca);
        let mut token = String::new();
        for byte in hash.as_ref() {
            write!(token, "{byte:02x}").expect("memory");
        }
        token + "." + JWT
    }

    pub(super) fn is_bearer(header: &str) -> bool {
        header.strip_prefix("Bearer ") == Some(JWT)
    }

    /// A certificate for an application, as CloudCore issues it: unless its subject is not this
    /// node's.
    pub(super) fn sign(&self, application: &[u8], node: &str) -> Result<Vec<u8>, String> {
        let name = format!("system:node:{node}");
        let has = |part: &str| application.windows(part.len()).any(|it| it == part.as_bytes());
        if !has(&name) || !has("system:nodes") {
            return Err(format!("the application is not for {name}"));
        }
        // The point follows the head of its bit string.
        let at = application.windows(3).position(|three| three == [0x42, 0, 4]);
        let point = at.and_then(|at| application.get(at + 2..at + 67)).ok_or("no key of P-256")?;
        verify(application, point)?;
        let mut params = params(&name, Some("system:nodes"), self.node_years);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = Point(point.to_vec());
        let signed = params.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        Ok(signed.der().to_vec())
    }

    /// With a client certificate required, or requested.
    pub(super) fn tls(&self, required: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).expect("a CA");
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = if required { builder } else { builder.allow_unauthenticated() };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.server_key.clone()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has these")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![self.server.clone()], key)
            .expect("they belong together");
        Arc::new(config)
    }
}

fn params(name: &str, organisation: Option<&str>, (from, to): (i32, i32)) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(organisation) = organisation {
        subject.push(DnType::OrganizationName, organisation);
    }
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params
}

/// Stricter than CloudCore, which does not verify it: the signature must be right.
fn verify(application: &[u8], point: &[u8]) -> Result<(), String> {
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    let inner = application.get(4..).ok_or("too short")?;
    let body = match inner {
        [0x30, 0x81, len, ..] => &inner[..3 + usize::from(*len)],
        [0x30, 0x82, high, low, ..] => &inner[..4 + (usize::from(*high) << 8 | usize::from(*low))],
        _ => return Err("no application".to_owned()),
    };
    // A bit string follows `ecdsa-with-SHA256`.
    let bits = inner.get(body.len() + 12..).ok_or("no signature")?;
    let signature = bits.get(3..).filter(|_| bits[0] == 3).ok_or("no bit string")?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
        .verify(body, signature)
        .map_err(|_| "the signature of the application is wrong".to_owned())
}

/// A key of which only the public half is known.
struct Point(Vec<u8>);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjQwMDAwMDAwMDB9.c3R1Yg";
