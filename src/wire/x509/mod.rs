//! Certificates, and certificate requests: the parts of X.509 that a node needs.
//!
//! [`read`] takes the subject and the validity from a certificate (RFC 5280), [`request`] writes a
//! certificate request (RFC 2986), [`private_key`] a key (RFC 5915), [`pem`] the text form on the
//! disk (RFC 7468). **Nothing here verifies anything**: TLS verifies the signer, and the contents
//! of an unverified certificate may come from anybody.

mod der;
#[cfg(any(feature = "controller", feature = "metaserver-auth"))]
pub mod issue;
pub mod pem;

use std::fmt;

use der::{Reader, Tag};

use crate::model::link::Validity;
use crate::model::time::Timestamp;

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The period in which it is valid.
    pub validity: Validity,
    /// `CN` of its subject; empty: it has none.
    pub common_name: String,
}

/// Why bytes are not a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// In bytes from the start of the part that was being read.
    pub at: usize,
    pub part: &'static str,
    /// «got X, expected Y».
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate, {}, byte {}: {}", self.part, self.at, self.why)
    }
}

/// Reads a certificate's DER.
pub fn read(der: &[u8]) -> Result<About, Fault> {
    let mut body = from_validity(der)?;
    let mut validity = body.enter("validity", Tag::SEQUENCE)?;
    let (not_before_s, not_after_s) = (time(&mut validity)?, time(&mut validity)?);
    let mut common_name = String::new();
    attributes(body.enter("subject", Tag::SEQUENCE)?, |kind, text| {
        if kind == COMMON_NAME {
            common_name = text;
        }
    })?;
    Ok(About { validity: Validity { not_before_s, not_after_s }, common_name })
}

/// A certificate's DER from its validity on.
fn from_validity(der: &[u8]) -> Result<Reader<'_>, Fault> {
    let mut outer = Reader::new("the whole", der);
    let mut certificate = outer.enter("the whole", Tag::SEQUENCE)?;
    outer.end()?;
    let mut body = certificate.enter("tbsCertificate", Tag::SEQUENCE)?;
    if body.next_is(Tag::VERSION) {
        body.take(Tag::VERSION)?;
    }
    body.take(Tag::INTEGER)?;
    for _ in ["signature", "issuer"] {
        body.take(Tag::SEQUENCE)?;
    }
    Ok(body)
}

/// `UTCTime` or `GeneralizedTime`, both in the one form that RFC 5280 allows.
fn time(from: &mut Reader<'_>) -> Result<i64, Fault> {
    let short = from.next_is(Tag::UTC_TIME);
    let at = from.at();
    let text = from.take(if short { Tag::UTC_TIME } else { Tag::GENERALIZED_TIME })?;
    let shown = String::from_utf8_lossy(text);
    let wrong = || Fault {
        at,
        part: "validity",
        why: format!("got {shown:?}, expected a time such as 20261120174618Z"),
    };
    let digits = text.strip_suffix(b"Z").ok_or_else(wrong)?;
    let years = if short { 2 } else { 4 };
    if digits.len() != years + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let number = |from: usize, len: usize| {
        digits[from..from + len].iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let year = match number(0, years) {
        year if !short => year,
        year if year < 50 => year + 2000,
        year => year + 1900,
    };
    let part = |index: usize| number(years + 2 * index, 2);
    let [month, day, hour, minute, second] = std::array::from_fn(part);
    let sound = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !sound {
        return Err(wrong());
    }
    Ok(Timestamp::days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Passes on the kind and the text of each attribute of a name.
fn attributes(mut name: Reader<'_>, mut each: impl FnMut(&[u8], String)) -> Result<(), Fault> {
    while !name.is_empty() {
        let mut set = name.enter("subject", Tag::SET)?;
        while !set.is_empty() {
            let mut pair = set.enter("subject", Tag::SEQUENCE)?;
            let kind = pair.take(Tag::OID)?;
            let (_, value) = pair.any()?;
            each(kind, String::from_utf8_lossy(value).into_owned());
        }
    }
    Ok(())
}

/// An attribute of a name, as written.
fn attribute(kind: &[u8], tag: Tag, text: &str) -> Vec<u8> {
    let pair = Tag::SEQUENCE.write(&[&Tag::OID.write(&[kind]), &tag.write(&[text.as_bytes()])]);
    Tag::SET.write(&[&pair])
}

/// A `SubjectPublicKeyInfo`. `point`: the 65 bytes of an uncompressed point of P-256.
fn public_key(point: &[u8]) -> Vec<u8> {
    Tag::SEQUENCE.write(&[
        &Tag::SEQUENCE.write(&[&Tag::OID.write(&[EC_KEY]), &Tag::OID.write(&[P256])]),
        &Tag::BITS.write(&[&[0], point]),
    ])
}

/// A certificate request or a certificate without its signature: sign [`Unsigned::to_sign`], then
/// call [`Unsigned::signed`].
#[derive(Clone, Debug)]
pub struct Unsigned(Vec<u8>);

/// Begins a certificate request for a node, as KubeEdge's do from 1.16 on. `point`: the 65 bytes of
/// an uncompressed point of P-256.
pub fn request(node_name: &str, point: &[u8]) -> Unsigned {
    let subject = [
        (COUNTRY, "CN"),
        (STATE, "Zhejiang"),
        (LOCALITY, "Hangzhou"),
        (ORGANISATION, "system:nodes"),
        (COMMON_NAME, &*format!("{NODE_PREFIX}{node_name}")),
    ]
    .map(|(kind, text)| attribute(kind, Tag::PRINTABLE, text));
    Unsigned(Tag::SEQUENCE.write(&[
        &Tag::INTEGER.write(&[&[0]]),
        &Tag::SEQUENCE.write(&[&subject.concat()]),
        &public_key(point),
        // Attributes: none.
        &Tag::FIRST.write(&[]),
    ]))
}

impl Unsigned {
    /// The bytes to sign.
    pub fn to_sign(&self) -> &[u8] {
        &self.0
    }

    /// With an ECDSA-SHA256 signature (itself DER) over [`Unsigned::to_sign`].
    pub fn signed(&self, signature: &[u8]) -> Vec<u8> {
        Tag::SEQUENCE.write(&[
            &self.0,
            &Tag::SEQUENCE.write(&[&Tag::OID.write(&[ECDSA_SHA256])]),
            &Tag::BITS.write(&[&[0], signature]),
        ])
    }
}

/// A key of P-256 as `EC PRIVATE KEY` holds it: 32 bytes, and the 65 of the public point. The
/// curve is named, because Go reads no key without.
pub fn private_key(private: &[u8], public: &[u8]) -> Vec<u8> {
    Tag::SEQUENCE.write(&[
        &Tag::INTEGER.write(&[&[1]]),
        &Tag::OCTETS.write(&[private]),
        &Tag::FIRST.write(&[&Tag::OID.write(&[P256])]),
        &Tag::SECOND.write(&[&Tag::BITS.write(&[&[0], public])]),
    ])
}

/// The 32 bytes of the key inside a PKCS#8 document of P-256, as ring makes them.
pub fn private_of_pkcs8(der: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut document = Reader::new("the whole", der).enter("the key", Tag::SEQUENCE)?;
    document.take(Tag::INTEGER)?;
    document.take(Tag::SEQUENCE)?;
    let mut key = document.enter("the key", Tag::OCTETS)?.enter("the key", Tag::SEQUENCE)?;
    key.take(Tag::INTEGER)?;
    Ok(key.take(Tag::OCTETS)?.to_vec())
}

/// Whether the DER of a private key is SEC1's (`EC PRIVATE KEY`), whatever its PEM label: KubeEdge
/// writes some as `PRIVATE KEY`.
pub fn is_sec1(der: &[u8]) -> bool {
    let version = Reader::new("the whole", der)
        .enter("the key", Tag::SEQUENCE)
        .and_then(|mut key| key.take(Tag::INTEGER).map(<[u8]>::to_vec));
    version == Ok(vec![1])
}

/// A public key, in the form in which signatures are verified.
#[cfg(feature = "metaserver-auth")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// DER of PKCS#1's `RSAPublicKey`.
    Rsa(Vec<u8>),
    /// The 65 bytes of an uncompressed point of P-256.
    P256(Vec<u8>),
}

/// The key of a PEM block `PUBLIC KEY` (RFC 5280, `SubjectPublicKeyInfo`) or `RSA PUBLIC KEY`.
#[cfg(feature = "metaserver-auth")]
pub fn public_key_of(block: &pem::Block) -> Result<PublicKey, Fault> {
    let wrong = |why: String| Fault { at: 0, part: "the key", why };
    if block.label == "RSA PUBLIC KEY" {
        return Ok(PublicKey::Rsa(block.der.clone()));
    }
    if block.label != "PUBLIC KEY" {
        return Err(wrong(format!("got a PEM block {}, expected PUBLIC KEY", block.label)));
    }
    let mut info = Reader::new("the key", &block.der).enter("the key", Tag::SEQUENCE)?;
    let mut kind = info.enter("the key", Tag::SEQUENCE)?;
    let algorithm = kind.take(Tag::OID)?;
    let bits = info.bits()?.to_vec();
    if algorithm == RSA {
        return Ok(PublicKey::Rsa(bits));
    }
    if algorithm == EC_KEY && kind.take(Tag::OID)? == P256 {
        return Ok(PublicKey::P256(bits));
    }
    Err(wrong("got a key of another kind, expected RSA or P-256".to_owned()))
}

/// The prefix of the node's name in the certificate's CN.
pub const NODE_PREFIX: &str = "system:node:";

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const COUNTRY: &[u8] = &[0x55, 4, 6];
const LOCALITY: &[u8] = &[0x55, 4, 7];
const STATE: &[u8] = &[0x55, 4, 8];
const ORGANISATION: &[u8] = &[0x55, 4, 10];
/// 1.2.840.10045.2.1
const EC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// 1.2.840.10045.3.1.7
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// 1.2.840.113549.1.1.1
#[cfg(feature = "metaserver-auth")]
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// 1.2.840.10045.4.3.2
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
