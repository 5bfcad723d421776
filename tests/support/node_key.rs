//! A key of nodes under test, and their certificates by a controller's CA.

use std::time::{SystemTime, UNIX_EPOCH};

use edged::io::controller::authority::Authority;
use edged::model::link::Validity;
use edged::wire::x509;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivateSec1KeyDer};

/// One for all nodes of a test: the controller compares names only.
pub struct NodeKey {
    /// PKCS #10
    application: Vec<u8>,
    sec1: Vec<u8>,
}

impl NodeKey {
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).expect("a key");
        let private = x509::private_of_pkcs8(document.as_ref()).expect("a key");
        let sec1 = x509::private_key(&private, key.public_key().as_ref());
        let request = x509::request("any", key.public_key().as_ref());
        let signature = key.sign(&random, request.to_sign()).expect("a signature");
        Self { application: request.signed(signature.as_ref()), sec1 }
    }

    /// The certificate of a node for a day, and the key.
    pub fn certificate(
        &self,
        authority: &Authority,
        node: &str,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let now_s = now_s();
        let validity = Validity { not_before_s: now_s - 60, not_after_s: now_s + 86_400 };
        let der = authority.sign(&self.application, node, validity).expect("a certificate");
        let key = PrivateSec1KeyDer::from(self.sec1.clone());
        (CertificateDer::from(der), PrivateKeyDer::from(key))
    }
}

/// Seconds since 1970.
pub fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_secs()).expect("long before its end")
}
