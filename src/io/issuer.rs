//! Certificates that this program issues, for its own servers and as a CA: keys of P-256, made and
//! used by ring, and stored in two files.
//!
//! Not here: what a certificate contains (`wire/x509/issue`), and who is trusted.

use std::net::IpAddr;
use std::path::Path;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use super::cloud::files;
use crate::model::error::{Error, Input, System};
use crate::model::link::Validity;
use crate::wire::x509::issue::{Certificate, Issuer, ServerName, Subject, Usage};
use crate::wire::x509::{self, issue, pem};

/// A certificate and its key, both DER; the key is SEC1's.
#[derive(Clone)]
pub struct Pair {
    /// The certificate's DER.
    pub certificate: Vec<u8>,
    /// The private key's DER.
    pub key: Vec<u8>,
}

/// Hides the key.
impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a certificate of {} bytes and its key", self.certificate.len())
    }
}

/// The pair that is stored under this name; `None`: it is absent.
pub(super) fn stored(folder: &Path, name: &str) -> Result<Option<Pair>, Error> {
    let path = |end: &str| folder.join(format!("{name}.{end}"));
    let (certificate, key) = (path("crt"), path("key"));
    if !certificate.exists() {
        return Ok(None);
    }
    let block = |path: &Path, labels: &[&str]| {
        let place = &path.display();
        let text = files::read(path).map_err(|error| System::at(place, error))?;
        let wrong = |why: String| Input::other(why).at(place);
        let blocks = pem::decode(&text).map_err(|fault| wrong(fault.to_string()))?;
        let found = blocks.into_iter().find(|block| labels.contains(&&*block.label));
        let none = || wrong(format!("expected a PEM block {}, got none", labels.join(" or ")));
        found.map(|block| block.der).ok_or_else(|| Error::from(none()))
    };
    Ok(Some(Pair {
        certificate: block(&certificate, &["CERTIFICATE"])?,
        // CloudCore writes its SEC1 keys as PRIVATE KEY.
        key: block(&key, &["EC PRIVATE KEY", "PRIVATE KEY"])?,
    }))
}

/// Stores a pair, durably.
pub(super) fn store(folder: &Path, name: &str, pair: Pair) -> Result<Pair, System> {
    let store = |end: &str, label: &str, der: &[u8]| {
        let path = folder.join(format!("{name}.{end}"));
        files::store(&path, &pem::encode(label, der), files::PRIVATE)
            .map_err(|error| System::new(format!("cannot write {error}")))
    };
    // The key first: a certificate without its key would be taken for a pair.
    store("key", "EC PRIVATE KEY", &pair.key)?;
    store("crt", "CERTIFICATE", &pair.certificate)?;
    Ok(pair)
}

/// A certificate that its own key has signed, for a new key.
pub(super) fn self_signed(
    random: &SystemRandom,
    (subject, usage): (Subject, Usage),
    (validity, names): (Validity, &[ServerName]),
) -> Result<Pair, System> {
    let (key, point) = make_key(random)?;
    let pair = key_of(&key, random).expect("it was made so");
    let issuer = Issuer::new(&subject, &key_id(&point));
    let about = (subject, &*point, usage);
    let certificate = issue(random, (&pair, &issuer), about, (validity, names))?;
    Ok(Pair { certificate, key })
}

/// A certificate for the key of this point.
pub(super) fn issue(
    random: &SystemRandom,
    (key, issuer): (&EcdsaKeyPair, &Issuer),
    (subject, point, usage): (Subject, &[u8], Usage),
    (validity, names): (Validity, &[ServerName]),
) -> Result<Vec<u8>, System> {
    let failed = |_| System::new("no random numbers, or no signature");
    let mut serial = [0; SERIAL_BYTES];
    random.fill(&mut serial).map_err(failed)?;
    // Positive, and of constant length.
    serial[0] = serial[0] & 0x7f | 0x40;
    let unsigned = Certificate {
        serial: &serial,
        issuer,
        subject,
        validity,
        point,
        usage,
        key_id: &key_id(point),
        names,
    }
    .write();
    let signature = key.sign(random, unsigned.to_sign()).map_err(failed)?;
    Ok(unsigned.signed(signature.as_ref()))
}

/// A new key: SEC1's DER, and its public point.
pub(super) fn make_key(random: &SystemRandom) -> Result<(Vec<u8>, Vec<u8>), System> {
    let failed = || System::new("cannot make a key");
    let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(kind, random).map_err(|_| failed())?;
    let private = x509::private_of_pkcs8(document.as_ref()).map_err(|_| failed())?;
    let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), random).map_err(|_| failed())?;
    let point = pair.public_key().as_ref().to_vec();
    Ok((x509::private_key(&private, &point), point))
}

/// A key by its SEC1 DER.
pub(super) fn key_of(sec1: &[u8], random: &SystemRandom) -> Result<EcdsaKeyPair, Input> {
    let wrong = |wrong: Input| wrong.at("the issuer's key");
    let (private, point) =
        issue::halves_of_sec1(sec1).map_err(|fault| wrong(Input::other(fault.to_string())))?;
    let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
    EcdsaKeyPair::from_private_key_and_public_key(kind, private, point, random)
        .map_err(|error| wrong(Input::new(error, "a key of P-256")))
}

/// Identifies a key that we made.
fn key_id(point: &[u8]) -> Vec<u8> {
    digest(&SHA256, point).as_ref()[..KEY_ID_BYTES].to_vec()
}

/// A DNS name, or an address.
pub(super) fn server_name(name: &str) -> ServerName {
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => ServerName::Ip(address.octets().to_vec()),
        Ok(IpAddr::V6(address)) => ServerName::Ip(address.octets().to_vec()),
        Err(_) => ServerName::Dns(name.to_owned()),
    }
}

const SERIAL_BYTES: usize = 16;
/// The length of a SHA-1, as usual.
const KEY_ID_BYTES: usize = 20;
