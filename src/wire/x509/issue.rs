//! What a CA reads and writes: certificate requests (RFC 2986) and certificates (RFC 5280). All
//! keys are of P-256, all signatures ECDSA with SHA-256: KubeEdge uses no others.
//!
//! rcgen does not fit: it keeps one value for each kind of attribute of the issuer's name. Under a
//! CA called `DC=example, DC=company` it names the issuer `DC=company`, which no verifier accepts.
//!
//! Not here: the keys, and the verification of a request's signature; [`Application::signed`] and
//! [`Application::signature`] are the inputs of a verification.

use super::der::{Reader, Tag};
use super::{
    COMMON_NAME, EC_KEY, ECDSA_SHA256, Fault, ORGANISATION, P256, Unsigned, attribute, attributes,
    from_validity, public_key,
};
use crate::model::link::Validity;
use crate::model::time::Timestamp;

/// A parsed certificate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application<'a> {
    /// The signed bytes.
    pub signed: &'a [u8],
    /// ECDSA-SHA256, itself DER.
    pub signature: &'a [u8],
    /// The 65 bytes of an uncompressed point of P-256: the key that signed, and that the
    /// certificate is for.
    pub point: &'a [u8],
    /// `CN` of the subject; empty: none.
    pub common_name: String,
    /// `O` of the subject, in order.
    pub organisations: Vec<String>,
}

impl<'a> Application<'a> {
    /// Reads a request's DER.
    pub fn read(der: &'a [u8]) -> Result<Self, Fault> {
        let mut outer = Reader::new("the whole", der);
        let mut request = outer.enter("the whole", Tag::SEQUENCE)?;
        outer.end()?;
        let (signed, mut about) = request.whole("the application", Tag::SEQUENCE)?;
        let mut algorithm = request.enter("the signature", Tag::SEQUENCE)?;
        algorithm.expect(Tag::OID, ECDSA_SHA256, "ECDSA with SHA-256")?;
        let signature = request.bits()?;
        request.end()?;
        about.take(Tag::INTEGER)?;
        let subject = Subject::read(about.enter("subject", Tag::SEQUENCE)?)?;
        let mut key = about.enter("the key", Tag::SEQUENCE)?;
        let mut kind = key.enter("the key", Tag::SEQUENCE)?;
        kind.expect(Tag::OID, EC_KEY, "an EC key")?;
        kind.expect(Tag::OID, P256, "the curve P-256")?;
        let point = key.bits()?;
        let Subject { common_name, organisations } = subject;
        Ok(Self { signed, signature, point, common_name, organisations })
    }
}

/// The subject of a certificate, as far as KubeEdge reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `CN`; empty: none.
    pub common_name: String,
    /// `O`, in order.
    pub organisations: Vec<String>,
}

impl Subject {
    /// From a certificate's DER.
    pub fn of(der: &[u8]) -> Result<Self, Fault> {
        Self::read(from_subject(der)?.enter("subject", Tag::SEQUENCE)?)
    }

    fn read(name: Reader<'_>) -> Result<Self, Fault> {
        let mut subject = Self::default();
        attributes(name, |kind, text| match kind {
            COMMON_NAME => subject.common_name = text,
            ORGANISATION => subject.organisations.push(text),
            _ => {}
        })?;
        Ok(subject)
    }

    fn write(&self) -> Vec<u8> {
        let organisations = self.organisations.iter().map(|text| (ORGANISATION, text));
        let all = organisations.chain([(COMMON_NAME, &self.common_name)]);
        let name: Vec<u8> = all.flat_map(|(kind, text)| attribute(kind, Tag::UTF8, text)).collect();
        Tag::SEQUENCE.write(&[&name])
    }
}

/// The issuer of certificates, by its own certificate.
///
/// The name is copied byte for byte: verifiers such as Go's and webpki compare the bytes, and the
/// same text may be a `PrintableString` (Go's choice) or a `UTF8String` (ours). The key identifier
/// is copied as well: openssl refuses a certificate that names another than its issuer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// DER of the name.
    name: Vec<u8>,
    /// `SubjectKeyIdentifier`; `None`: the issuer has none, and its certificates name none.
    key_id: Option<Vec<u8>>,
}

impl Issuer {
    /// From a CA's certificate, DER.
    pub fn of(der: &[u8]) -> Result<Self, Fault> {
        let mut body = from_subject(der)?;
        let (name, _) = body.whole("subject", Tag::SEQUENCE)?;
        body.take(Tag::SEQUENCE)?;
        let mut key_id = None;
        while !body.is_empty() {
            if !body.next_is(Tag::FOURTH) {
                body.any()?;
                continue;
            }
            let mut all =
                body.enter("extensions", Tag::FOURTH)?.enter("extensions", Tag::SEQUENCE)?;
            while !all.is_empty() {
                let mut one = all.enter("extensions", Tag::SEQUENCE)?;
                if one.take(Tag::OID)? != KEY_ID {
                    continue;
                }
                let id = one.enter("subjectKeyIdentifier", Tag::OCTETS)?.take(Tag::OCTETS)?;
                key_id = Some(id.to_vec());
            }
        }
        Ok(Self { name: name.to_vec(), key_id })
    }

    /// For a CA that signs its own certificate.
    pub fn new(subject: &Subject, key_id: &[u8]) -> Self {
        Self { name: subject.write(), key_id: Some(key_id.to_vec()) }
    }
}

/// A certificate's DER from its subject on.
fn from_subject(der: &[u8]) -> Result<Reader<'_>, Fault> {
    let mut body = from_validity(der)?;
    body.take(Tag::SEQUENCE)?;
    Ok(body)
}

/// The contents of a certificate.
#[derive(Clone, Debug)]
pub struct Certificate<'a> {
    /// Big-endian; positive: its first bit is not set.
    pub serial: &'a [u8],
    pub issuer: &'a Issuer,
    pub subject: Subject,
    pub validity: Validity,
    /// The key of the subject: 65 bytes of P-256.
    pub point: &'a [u8],
    pub usage: Usage,
    /// Identifies the subject's key: any bytes, the same for the same key.
    pub key_id: &'a [u8],
    /// Names and addresses of a server.
    pub names: &'a [ServerName],
}

/// The permitted use of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// To sign others, and to be either end.
    Authority,
    /// To be the server of a TLS connection.
    Server,
    /// To be the ends with these numbers of Go's `x509.ExtKeyUsage`; see [`extended`].
    Ends(Vec<u8>),
}

/// A name of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// A DNS name.
    Dns(String),
    /// The 4 or 16 bytes of an address.
    Ip(Vec<u8>),
}

fn extended(number: u8) -> Option<&'static [u8]> {
    match number {
        0 => Some(ANY_USAGE),
        1 => Some(SERVER_AUTH),
        2 => Some(CLIENT_AUTH),
        _ => None,
    }
}

impl Certificate<'_> {
    /// Encodes it without a signature.
    pub fn write(&self) -> Unsigned {
        let times = [self.validity.not_before_s, self.validity.not_after_s].map(time).concat();
        Unsigned(Tag::SEQUENCE.write(&[
            // Version 3.
            &Tag::VERSION.write(&[&Tag::INTEGER.write(&[&[2]])]),
            &Tag::INTEGER.write(&[self.serial]),
            &Tag::SEQUENCE.write(&[&Tag::OID.write(&[ECDSA_SHA256])]),
            &self.issuer.name,
            &Tag::SEQUENCE.write(&[&times]),
            &self.subject.write(),
            &public_key(self.point),
            &Tag::FOURTH.write(&[&Tag::SEQUENCE.write(&[&self.extensions()])]),
        ]))
    }

    fn extensions(&self) -> Vec<u8> {
        let authority = self.usage == Usage::Authority;
        // digitalSignature and keyEncipherment, and keyCertSign: the first bits from the left.
        let key_usage: &[u8] = if authority { &[2, 0b1010_0100] } else { &[5, 0b1010_0000] };
        let ends: Vec<u8> = match &self.usage {
            Usage::Authority => [SERVER_AUTH, CLIENT_AUTH].map(|it| Tag::OID.write(&[it])).concat(),
            Usage::Server => Tag::OID.write(&[SERVER_AUTH]),
            Usage::Ends(numbers) => {
                let known = numbers.iter().filter_map(|number| extended(*number));
                known.flat_map(|it| Tag::OID.write(&[it])).collect()
            }
        };
        let constraints: &[u8] = if authority { &[1, 1, 0xff] } else { &[] };
        let mut all = extension(KEY_USAGE, Critical::Yes, &Tag::BITS.write(&[key_usage]));
        all.extend(extension(EXTENDED_USAGE, Critical::No, &Tag::SEQUENCE.write(&[&ends])));
        let constraints = Tag::SEQUENCE.write(&[constraints]);
        all.extend(extension(CONSTRAINTS, Critical::Yes, &constraints));
        all.extend(extension(KEY_ID, Critical::No, &Tag::OCTETS.write(&[self.key_id])));
        if let Some(id) = &self.issuer.key_id {
            let issuer = Tag::SEQUENCE.write(&[&Tag::CONTEXT_0.write(&[id])]);
            all.extend(extension(ISSUER_KEY_ID, Critical::No, &issuer));
        }
        if !self.names.is_empty() {
            let names = self.names.iter().flat_map(|name| match name {
                ServerName::Dns(text) => Tag::CONTEXT_2.write(&[text.as_bytes()]),
                ServerName::Ip(bytes) => Tag::CONTEXT_7.write(&[bytes]),
            });
            let names = Tag::SEQUENCE.write(&[&names.collect::<Vec<u8>>()]);
            all.extend(extension(SUBJECT_NAMES, Critical::No, &names));
        }
        all
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Critical {
    Yes,
    No,
}

fn extension(kind: &[u8], critical: Critical, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical == Critical::Yes { &[1, 1, 0xff] } else { &[] };
    Tag::SEQUENCE.write(&[&Tag::OID.write(&[kind]), critical, &Tag::OCTETS.write(&[value])])
}

/// RFC 5280, section 4.1.2.5: up to 2049 with two digits of the year.
fn time(seconds: i64) -> Vec<u8> {
    let text: String = Timestamp(seconds).to_string();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect::<String>() + "Z";
    match digits.strip_prefix("20").or_else(|| digits.strip_prefix("19")) {
        Some(short) if digits.as_str() < "2050" => Tag::UTC_TIME.write(&[short.as_bytes()]),
        _ => Tag::GENERALIZED_TIME.write(&[digits.as_bytes()]),
    }
}

/// The private and the public half of a P-256 key in SEC1's DER (RFC 5915).
pub fn halves_of_sec1(der: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let mut key = Reader::new("the whole", der).enter("the key", Tag::SEQUENCE)?;
    key.take(Tag::INTEGER)?;
    let private = key.take(Tag::OCTETS)?;
    if key.next_is(Tag::FIRST) {
        key.take(Tag::FIRST)?;
    }
    let point = key.enter("the key", Tag::SECOND)?.bits()?;
    Ok((private, point))
}

/// 2.5.29.15
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// 2.5.29.37
const EXTENDED_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// 2.5.29.37.0
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 37, 0];
/// 2.5.29.19
const CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
/// 2.5.29.14
const KEY_ID: &[u8] = &[0x55, 0x1d, 14];
/// 2.5.29.35
const ISSUER_KEY_ID: &[u8] = &[0x55, 0x1d, 35];
/// 2.5.29.17
const SUBJECT_NAMES: &[u8] = &[0x55, 0x1d, 17];
/// 1.3.6.1.5.5.7.3.1
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// 1.3.6.1.5.5.7.3.2
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
