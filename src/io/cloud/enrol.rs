//! Requests the node's certificate: first with a token, later with the certificate that expires
//! soon.
//!
//! ```text
//!  first:  token ─▶ GET /ca.crt, unverified ─ its SHA-256 is in the token ─▶ the cloud's CA
//!                   GET /edge.crt (CSR, Bearer) ─▶ certificate ─▶ store CA, key, certificate
//!  renew:           GET /edge.crt (CSR) with the old certificate ─▶ store key, certificate
//! ```
//!
//! The CA is stored before the pair: with a new CA and an old pair the cloud refuses the
//! certificate, and the node requests another; the other way round the node could not notice it.
//!
//! Runs where blocking does no harm: in a child process, or in `edged join`. The token is in no
//! message, no log and no command line. **If it is killed** only an unused certificate is lost.

use std::path::Path;
use std::sync::Arc;

use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateSec1KeyDer};
use rustls::sign::CertifiedKey;

use super::files::{self, Pair};
use super::https::{self, Answer, Anybody};
use super::tls::{Credentials, Trust, builder};
use crate::agent::time::Wall;
use crate::io::crypto;
use crate::model::error::{Error, Input, Peer, System};
use crate::model::settings::{CloudLink, Secret};
use crate::model::{base64, hex};
use crate::wire::x509::{self, About, NODE_PREFIX, pem};

/// Requests a certificate and stores it. `wall`: `None` while the clock is not set.
pub fn enrol(link: &CloudLink, renew: bool, wall: Option<Wall>) -> Result<About, Error> {
    let provider = Arc::new(crypto::provider());
    let key = Key::generate()?;
    let application = key.application(&link.node_name)?;
    let (answer, ca) = if renew {
        // Only the cloud decides whether the certificate has expired.
        let credentials = Credentials::load(link, None)?;
        (apply(link, credentials.config, None, &application)?, None)
    } else {
        let token = Token::find(link)?;
        let ca = fetch_ca(link, &token, &provider)?;
        let trust = Trust::new(link, vec![ca.clone()], wall, &provider)?;
        let tls = Arc::new(builder(Arc::clone(&provider), trust).with_no_client_auth());
        (apply(link, tls, Some(&token), &application)?, Some(ca))
    };
    let (about, certificate) = check(link, answer, &key, &provider)?;
    if let Some(ca) = ca {
        store_ca(link, &ca)?;
    }
    let key = pem::encode("EC PRIVATE KEY", &key.sec1());
    let stored = files::store_pair(link, &pem::encode("CERTIFICATE", &certificate), &key);
    stored.map_err(|error| System::at("cannot store the certificate", error))?;
    // Read in the same way as for the next connection.
    Pair::load(link, &provider)?;
    Ok(about)
}

/// Whether the cloud has a node with this name. Clouds before 1.20 do not answer this.
pub(super) fn is_taken(link: &CloudLink, wall: Option<Wall>) -> Result<bool, Error> {
    let provider = Arc::new(crypto::provider());
    let token = Token::new(link.token.reveal())?;
    let ca = fetch_ca(link, &token, &provider)?;
    let trust = Trust::new(link, vec![ca], wall, &provider)?;
    let tls = Arc::new(builder(provider, trust).with_no_client_auth());
    let path = format!("/node/{}", link.node_name);
    Ok(https::get(link, tls, &path, &[], None)?.status == 200)
}

fn apply(
    link: &CloudLink,
    tls: Arc<ClientConfig>,
    token: Option<&Token>,
    application: &[u8],
) -> Result<Answer, Error> {
    let bearer = token.map(|token| format!("Bearer {}", token.jwt()));
    let mut headers = vec![("NodeName", &*link.node_name)];
    headers.extend(bearer.iter().map(|bearer| ("Authorization", &**bearer)));
    https::get(link, tls, "/edge.crt", &headers, Some(application))
}

/// Checks that the certificate is this node's and matches the new key.
fn check(
    link: &CloudLink,
    answer: Answer,
    key: &Key,
    provider: &CryptoProvider,
) -> Result<(About, Vec<u8>), Error> {
    let place = format!("{}/edge.crt", link.http_server.trim_end_matches('/'));
    if answer.status != 200 {
        let hint = match answer.status {
            400 | 401 | 403 => {
                "; tokens are valid for a day: `keadm gettoken` in the cloud prints a new one"
            }
            _ => "",
        };
        let message = answer.text();
        let why = format!("{place}: the cloud refuses ({}): {message}{hint}", answer.status);
        return Err(Peer::new(why).into());
    }
    let about = x509::read(&answer.body).map_err(|fault| Peer::at(&place, fault))?;
    let expected = format!("{NODE_PREFIX}{}", link.node_name);
    if about.common_name != expected {
        let got = about.common_name;
        let why = format!("got a certificate of {got:?}, expected {expected:?}");
        return Err(Peer::at(place, why).into());
    }
    let chain = vec![CertificateDer::from(answer.body.clone())];
    let private = PrivateSec1KeyDer::from(key.sec1()).into();
    CertifiedKey::from_der(chain, private, provider).map_err(|error| {
        Peer::at(place, format_args!("the certificate is not for our key: {error}"))
    })?;
    Ok((about, answer.body))
}

fn fetch_ca(
    link: &CloudLink,
    token: &Token,
    provider: &Arc<CryptoProvider>,
) -> Result<CertificateDer<'static>, Error> {
    let anybody = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(Arc::clone(provider))))
        .with_no_client_auth();
    let answer = https::get(link, Arc::new(anybody), "/ca.crt", &[], None)?;
    let place = format!("{}/ca.crt", link.http_server.trim_end_matches('/'));
    if answer.status != 200 {
        let message = answer.text();
        let why = format_args!("the cloud refuses ({}): {message}", answer.status);
        return Err(Peer::at(place, why).into());
    }
    let hash = hex::encode(digest::digest(&digest::SHA256, &answer.body).as_ref());
    if hash != token.ca_hash() {
        let why = format_args!(
            "got a CA with the hash {hash}, expected the token's {}: the token is of another \
             cloud, or the connection is intercepted",
            token.ca_hash()
        );
        return Err(Peer::at(place, why).into());
    }
    Ok(CertificateDer::from(answer.body))
}

fn store_ca(link: &CloudLink, ca: &CertificateDer<'_>) -> Result<(), System> {
    let text = pem::encode("CERTIFICATE", ca);
    files::store(Path::new(&link.ca_file), &text, files::PRIVATE)
        .map_err(|error| System::at("cannot store the cloud's CA", error))
}

const NODE_CLAIM: &[u8] = b"\"node\":";

/// `<hash of the CA>.<JWT>`, the hash in lower-case hex.
#[derive(Debug)]
pub(super) struct Token(Secret);

impl Token {
    /// The token of the file, else that of the configuration.
    pub(super) fn find(link: &CloudLink) -> Result<Self, Error> {
        let file = &link.token_file;
        match files::read(Path::new(file)) {
            Ok(text) if !text.trim().is_empty() => {
                Self::new(text.trim()).map_err(|wrong| wrong.at(file).into())
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let what = format_args!("cannot read the token in {file}");
                Err(System::at(what, error).into())
            }
            _ if link.token.is_empty() => Err(Input::other(format!(
                "the node has no token for a certificate request: {file} does not exist, and \
                 modules.edgeHub.token is empty; `edged join` sets it"
            ))
            .into()),
            _ => Self::new(link.token.reveal())
                .map_err(|wrong| wrong.at("modules.edgeHub.token").into()),
        }
    }

    /// Checks the token's format only.
    pub(super) fn new(text: &str) -> Result<Self, Input> {
        let parts: Vec<&str> = text.split('.').collect();
        let hash = parts[0];
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let word = |part: &&str| {
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
            !part.is_empty() && part.bytes().all(fits)
        };
        if parts.len() != 4 || hash.len() != 64 || !hash.bytes().all(hex) || !parts.iter().all(word)
        {
            let got = format_args!("a token of {} parts", parts.len());
            let expected = "the four that `keadm gettoken` prints: a hash of 64 hex digits, and a \
                            JWT's three";
            return Err(Input::new(got, expected));
        }
        Ok(Self(Secret::new(text)))
    }

    /// Whether the token is for one node, which may exist: `edgecontroller token --node`.
    pub(super) fn is_for_one_node(&self) -> bool {
        let claims = self.jwt().split('.').nth(1).unwrap_or_default();
        let text = claims.replace('-', "+").replace('_', "/");
        let padding = ["", "===", "==", "="][text.len() % 4];
        let claims = base64::decode(&(text + padding)).unwrap_or_default();
        claims.windows(NODE_CLAIM.len()).any(|part| part == NODE_CLAIM)
    }

    fn ca_hash(&self) -> &str {
        &self.0.reveal()[..64]
    }

    fn jwt(&self) -> &str {
        &self.0.reveal()[65..]
    }
}

/// A new key.
struct Key {
    pair: EcdsaKeyPair,
    private: Vec<u8>,
    random: SystemRandom,
}

impl Key {
    fn generate() -> Result<Self, System> {
        let random = SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let failed = |_| System::new("cannot make a key: the kernel gives no randomness");
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).map_err(failed)?;
        let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random);
        let pair = pair.map_err(|error| System::at("cannot make a key", error))?;
        let private = x509::private_of_pkcs8(document.as_ref());
        let private = private.map_err(|fault| System::at("cannot make a key", fault))?;
        Ok(Self { pair, private, random })
    }

    fn application(&self, node_name: &str) -> Result<Vec<u8>, System> {
        let request = x509::request(node_name, self.pair.public_key().as_ref());
        let signature = self.pair.sign(&self.random, request.to_sign());
        let signature = signature.map_err(|_| System::new("cannot sign with the new key"))?;
        Ok(request.signed(signature.as_ref()))
    }

    fn sec1(&self) -> Vec<u8> {
        x509::private_key(&self.private, self.pair.public_key().as_ref())
    }
}
