//! A CA's input and output: the certificate request of a real edge, certificates that others can
//! read, and the keys of KubeEdge's test vector.

use edged::model::link::Validity;
use edged::wire::x509::issue::{
    Application, Certificate, Issuer, ServerName, Subject, Usage, halves_of_sec1,
};
use edged::wire::x509::{self};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;

/// Of a real CloudCore: its own certificate, its EdgeCore's request, the issued certificate.
const CA: &[u8] = include_bytes!("../golden/x509/ca.der");
const REQUEST: &[u8] = include_bytes!("../golden/x509/request.der");
const EDGE: &[u8] = include_bytes!("../golden/x509/edge.der");

/// A CA that Go's crypto/x509 made with CloudCore's template, for these tests.
const GO_CA: &[u8] = include_bytes!("../golden/x509/go-ca.der");

fn subject(common_name: &str, organisation: &str) -> Subject {
    let organisations = Vec::from_iter(Some(organisation).filter(|it| !it.is_empty()));
    Subject {
        common_name: common_name.to_owned(),
        organisations: organisations.into_iter().map(str::to_owned).collect(),
    }
}

fn key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).expect("a key");
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random)
        .expect("it was made for this")
}

fn sign(key: &EcdsaKeyPair, bytes: &[u8]) -> Vec<u8> {
    key.sign(&SystemRandom::new(), bytes).expect("a signature").as_ref().to_vec()
}

#[test]
fn the_application_of_a_real_edge_is_read_and_proves_itself() {
    let application = Application::read(REQUEST).expect("it is one");
    assert_eq!(application.common_name, "system:node:edge1");
    assert_eq!(application.organisations, ["system:nodes"]);
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, application.point);
    key.verify(application.signed, application.signature).expect("it is signed by its key");
    let mut other = application.signed.to_vec();
    *other.last_mut().expect("it has bytes") ^= 1;
    key.verify(&other, application.signature).expect_err("it was changed");
}

#[test]
fn an_application_that_was_cut_or_spoilt_is_none() {
    for end in 0..REQUEST.len() {
        Application::read(&REQUEST[..end]).expect_err("it was cut");
    }
    for at in 0..REQUEST.len() {
        for byte in [0, 0x1f, 0x7f, 0x80, 0x84, 0xff] {
            let mut spoilt = REQUEST.to_vec();
            spoilt[at] = byte;
            // It may still be valid; it must not panic.
            let _ = Application::read(&spoilt);
        }
    }
    Application::read(EDGE).expect_err("a certificate is no application");
}

#[test]
fn subjects_of_real_certificates_are_read() {
    assert_eq!(Subject::of(EDGE), Ok(subject("system:node:edge1", "system:nodes")));
    assert_eq!(Subject::of(CA), Ok(subject("KubeEdge", "")));
}

#[test]
fn a_certificate_that_is_written_is_believed_by_tls_and_says_what_it_was_told() {
    let (ca_key, node_key) = (key(), key());
    let long = Validity { not_before_s: 1_700_000_000, not_after_s: 4_900_000_000 };
    let issuer = Issuer::new(&subject("KubeEdge", ""), &ca_key.public_key().as_ref()[1..21]);
    let certificate = |name: &str, organisation: &str, key: &EcdsaKeyPair, usage: Usage| {
        let unsigned = Certificate {
            serial: &[4, 0],
            issuer: &issuer,
            subject: subject(name, organisation),
            validity: long,
            point: key.public_key().as_ref(),
            usage,
            key_id: &key.public_key().as_ref()[1..21],
            names: &[],
        }
        .write();
        unsigned.signed(&sign(&ca_key, unsigned.to_sign()))
    };
    let ca = certificate("KubeEdge", "", &ca_key, Usage::Authority);
    assert_eq!(Issuer::of(&ca), Ok(issuer.clone()), "its certificates are not distinguished");
    let node = certificate("system:node:gw", "system:nodes", &node_key, Usage::Ends(vec![2]));
    let server = certificate("KubeEdge", "KubeEdge", &node_key, Usage::Server);
    let about = x509::read(&node).expect("it can be read");
    assert_eq!((about.validity, &*about.common_name), (long, "system:node:gw"));
    assert_eq!(Subject::of(&node), Ok(subject("system:node:gw", "system:nodes")));

    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(ca)).expect("it is a CA");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
    let verifier = verifier.expect("a verifier");
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    let judge = |der: &[u8]| verifier.verify_client_cert(&CertificateDer::from(der), &[], now);
    judge(&node).expect("our CA signed it for a client");
    judge(&server).expect_err("it is a server's");
    judge(EDGE).expect_err("another CA signed it");
}

#[test]
fn the_issuer_is_copied_byte_for_byte_from_the_ca() {
    let key = key();
    let written = |ca: &[u8]| {
        let issuer = Issuer::of(ca).expect("a CA");
        let unsigned = Certificate {
            serial: &[1],
            issuer: &issuer,
            subject: subject("system:node:gw", "system:nodes"),
            validity: Validity { not_before_s: 0, not_after_s: 2_600_000_000 },
            point: key.public_key().as_ref(),
            usage: Usage::Ends(vec![2]),
            key_id: b"id",
            names: &[],
        };
        unsigned.write().signed(b"")
    };
    let has = |der: &[u8], part: &[u8]| der.windows(part.len()).any(|it| it == part);
    // Go writes CN=KubeEdge as a PrintableString (0x13); and the key identifier in the CA's
    // extension 2.5.29.14 comes again as 2.5.29.35.
    let (name, id) = (b"\x06\x03\x55\x04\x03\x13\x08KubeEdge", b"\x55\x1d\x0e\x04\x16\x04\x14");
    for ca in [CA, GO_CA] {
        let der = written(ca);
        assert!(has(ca, name) && has(&der, name), "the name as Go writes it");
        let at = ca.windows(id.len()).position(|it| it == id).expect("it has an identifier");
        let authority_key_id = [&[0x80, 20], &ca[at + id.len()..][..20]].concat();
        assert!(has(&der, &authority_key_id), "the CA's own identifier");
    }
    // Without the extension there is nothing to name: it is left out.
    let at = GO_CA.windows(id.len()).position(|it| it == id).expect("it has an identifier");
    let mut bare = GO_CA.to_vec();
    bare[at + 2] = 99;
    assert!(!has(&written(&bare), &[0x55, 0x1d, 35]), "no authority key identifier");
    for end in 0..GO_CA.len() - 80 {
        Issuer::of(&GO_CA[..end]).expect_err("it was cut");
    }
}

#[test]
fn names_of_a_server_stand_in_its_certificate() {
    let key = key();
    let names = [ServerName::Dns("cloud.example".to_owned()), ServerName::Ip(vec![192, 0, 2, 10])];
    let unsigned = Certificate {
        serial: &[1],
        issuer: &Issuer::new(&subject("KubeEdge", ""), b"id"),
        subject: subject("KubeEdge", "KubeEdge"),
        validity: Validity { not_before_s: 0, not_after_s: 2_600_000_000 },
        point: key.public_key().as_ref(),
        usage: Usage::Server,
        key_id: b"id",
        names: &names,
    }
    .write();
    let der = CertificateDer::from(unsigned.signed(&sign(&key, unsigned.to_sign())));
    let parsed = rustls::server::ParsedCertificate::try_from(&der).expect("it can be read");
    for (name, is) in [("cloud.example", true), ("192.0.2.10", true), ("192.0.2.11", false)] {
        let name = rustls::pki_types::ServerName::try_from(name).expect("a name");
        assert_eq!(rustls::client::verify_server_name(&parsed, &name).is_ok(), is, "{name:?}");
    }
}

#[test]
fn a_key_in_sec1_is_read() {
    let hex = "307702010104207aede845d28ef7d5d132fc8250ba5b65ec49009f3bd484660071052a0b1693d7a0\
               0a06082a8648ce3d030107a1440342\
               0004fe0bc8a139949d63ae2e2c8606b67e3b146dac396b2decd8c882b15e3d9f1dc180e06190179f\
               c3ad0d98eadab305151f4d08c44f90d4caca2cfd7f8fc07a451d";
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let der: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    let (private, point) = halves_of_sec1(&der).expect("a key");
    assert_eq!((private.len(), point.len()), (32, 65));
    assert_eq!(x509::private_key(private, point), der);
}
