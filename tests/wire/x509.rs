//! Certificates, requests and keys: those of a real cloud and a real edge, cut everywhere.

use edged::model::link::Validity;
use edged::wire::x509::{self, About, pem};

/// Of a real CloudCore: its own certificate, its EdgeCore's request, the issued certificate.
const CA: &[u8] = include_bytes!("../golden/x509/ca.der");
const REQUEST: &[u8] = include_bytes!("../golden/x509/request.der");
const EDGE: &[u8] = include_bytes!("../golden/x509/edge.der");

#[test]
fn a_certificate_says_whose_it_is_and_how_long_it_is_good() {
    let edge = About {
        validity: Validity { not_before_s: 1_795_196_778, not_after_s: 1_826_732_778 },
        common_name: "system:node:edge1".to_owned(),
    };
    assert_eq!(x509::read(EDGE), Ok(edge));
    let ca = About {
        validity: Validity { not_before_s: 1_795_196_183, not_after_s: 4_940_156_183 },
        common_name: "KubeEdge".to_owned(),
    };
    assert_eq!(x509::read(CA), Ok(ca));
}

#[test]
fn a_certificate_that_was_cut_or_spoilt_is_told_where() {
    for whole in [CA, EDGE] {
        for end in 0..whole.len() {
            let fault = x509::read(&whole[..end]).expect_err("it was cut");
            assert!(fault.to_string().starts_with("certificate, the whole, byte 0: "), "{fault}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x1f, 0x7f, 0x80, 0x84, 0xff] {
                let mut spoilt = whole.to_vec();
                spoilt[at] = byte;
                // It may still be valid; it must not panic.
                let _ = x509::read(&spoilt);
            }
        }
    }
    let longer = [EDGE, &[0]].concat();
    let fault = x509::read(&longer).expect_err("there is more");
    assert_eq!((fault.at, &*fault.why), (EDGE.len(), "got 1 bytes more, expected the end"));
    let at = EDGE.windows(2).position(|two| two == [0x17, 13]).expect("a time");
    for (place, byte) in [(0, 0x16), (1, 12), (4, b'9'), (6, b'9'), (8, b'9'), (14, b'X')] {
        let mut spoilt = EDGE.to_vec();
        spoilt[at + place] = byte;
        let fault = x509::read(&spoilt).expect_err("no such time");
        assert_eq!(fault.part, "validity", "{fault}");
    }
}

#[test]
fn an_application_is_that_of_a_real_edge_byte_for_byte() {
    // The point follows the head of its bit string, the signature is at the end.
    let at = REQUEST.windows(3).position(|three| three == [0x42, 0, 4]).expect("a point") + 2;
    let (key, rest) = REQUEST[at..].split_at(65);
    let request = x509::request("edge1", key);
    let tail = rest.windows(2).position(|two| two == [0x49, 0]).expect("a bit string") + 2;
    assert_eq!(request.signed(&rest[tail..]), REQUEST);
    let body = REQUEST.windows(request.to_sign().len()).position(|it| it == request.to_sign());
    assert_eq!(body, Some(4));
}

#[test]
fn a_key_is_written_as_openssl_and_go_read_it() {
    let (private, public) = ([0x11; 32], [0x22; 65]);
    let der = x509::private_key(&private, &public);
    assert_eq!(der.len(), 121, "as those that openssl writes");
    assert_eq!(der[..9], [0x30, 119, 2, 1, 1, 4, 32, 0x11, 0x11]);
    assert!(x509::is_sec1(&der));
    assert!(!x509::is_sec1(include_bytes!("../golden/tls/key.der")), "this is PKCS#8");
    assert!(!x509::is_sec1(b""));
    assert!(x509::private_of_pkcs8(&der).is_err());
}

#[test]
fn pem_goes_both_ways_and_says_what_is_wrong() {
    let two = format!("# a bundle\n{}\n{}", pem::encode("X", CA), pem::encode("Y", EDGE));
    assert!(two.lines().all(|line| line.len() <= 64), "{two}");
    let blocks = pem::decode(&two).expect("two blocks");
    let contents: Vec<_> = blocks.iter().map(|it| (&*it.label, it.der.as_slice())).collect();
    assert_eq!(contents, [("X", CA), ("Y", EDGE)]);
    assert_eq!(pem::decode("nothing"), Ok(vec![]));
    for (text, expected) in [
        ("-----BEGIN X\n", "PEM block 1: the line of its beginning has no end"),
        ("-----BEGIN X-----\nAAAA\n", "PEM block 1 (X): got no line \"-----END X-----\""),
        ("-----BEGIN X-----\nA!\n-----END X-----\n", "PEM block 1 (X): expected base64"),
        ("-----BEGIN X-----\n-----END X-----\n", "PEM block 1 (X): expected base64"),
    ] {
        let fault = pem::decode(text).expect_err("it is spoilt");
        assert_eq!(fault.to_string(), expected, "{text}");
    }
}
