//! The TLS crypto provider: ring's suites, and the kinds of keys that a node can have.

use std::sync::Arc;

use rustls::Error;
use rustls::crypto::ring::sign::{RsaSigningKey, any_ecdsa_type};
use rustls::crypto::{CryptoProvider, KeyProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;

/// For all connections that this process opens as a node.
pub fn provider() -> CryptoProvider {
    CryptoProvider { key_provider: &NodeKeys, ..ring::default_provider() }
}

/// ECDSA, as KubeEdge and edged make them, and RSA, as some users bring them. Without Ed25519,
/// which no node has, the program is 16 kB smaller on armv7.
#[derive(Debug)]
struct NodeKeys;

impl KeyProvider for NodeKeys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        if let Ok(rsa) = RsaSigningKey::new(&key) {
            return Ok(Arc::new(rsa));
        }
        any_ecdsa_type(&key).map_err(|_| {
            Error::General("got a key of another kind, expected ECDSA or RSA".to_owned())
        })
    }
}
