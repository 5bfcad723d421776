//! A CA in a folder of its own.

use super::*;
use crate::wire::x509::pem;

fn folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("edgecontroller-{name}-{}", std::process::id()))
}

#[test]
fn it_is_made_once_and_the_server_anew_where_its_names_change() {
    let folder = folder("authority");
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let open = |list: &[&str], now_s| Authority::open(&folder, &names(list), now_s);
    let first = open(&["127.0.0.1", "cloud.example"], NOW).expect("it is made");
    let again = open(&["127.0.0.1"], NOW).expect("it is kept");
    assert_eq!(again.ca.certificate, first.ca.certificate);
    assert_eq!(again.server.certificate, first.server.certificate);
    let other = open(&["127.0.0.1", "::1"], NOW).expect("it is kept");
    assert_eq!(other.ca.certificate, first.ca.certificate);
    assert_ne!(other.server.certificate, first.server.certificate);
    let later = open(&["::1"], NOW + SERVER_S).expect("it is kept");
    assert_ne!(later.server.certificate, other.server.certificate, "its time is nearly over");
    for file in ["ca.key", "server.key", "ca.crt"] {
        use std::os::unix::fs::PermissionsExt;
        let about = std::fs::metadata(folder.join(file)).expect("it was written");
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{file}");
    }
    std::fs::write(folder.join("ca.key"), "nothing").expect("a file of ours");
    let why = open(&["::1"], NOW).expect_err("no key").to_string();
    assert!(why.contains("ca.key: expected a PEM block EC PRIVATE KEY"), "{why}");
    std::fs::remove_dir_all(&folder).expect("it was made");
}

#[test]
fn a_node_gets_a_certificate_in_its_name_that_the_ca_vouches_for() {
    let folder = folder("signs");
    let authority = Authority::open(&folder, &["127.0.0.1".to_owned()], NOW).expect("it is made");
    std::fs::remove_dir_all(&folder).expect("it was made");
    let request = include_bytes!("../../../../tests/golden/x509/request.der");
    let application = read_application(request).expect("a real one");
    assert_eq!(application.common_name, "system:node:edge1");
    let mut spoilt = *request;
    *spoilt.last_mut().expect("it has bytes") ^= 1;
    read_application(&spoilt).expect_err("the signature is another");
    let validity = Validity { not_before_s: NOW, not_after_s: NOW + 86_400 };
    let der = authority.sign(request, "edge-7", validity).expect("it is signed");
    let about = x509::read(&der).expect("a certificate");
    assert_eq!((&*about.common_name, about.validity), ("system:node:edge-7", validity));
    let der = CertificateDer::from(der);
    assert_eq!(authority.trusts_client(&der, NOW + 1), Ok(()));
    authority.trusts_client(&der, NOW + 86_401).expect_err("its time is over");
    let server = CertificateDer::from(authority.server.certificate.clone());
    authority.trusts_client(&server, NOW + 1).expect_err("it is a server's");
}

/// CloudCore's server certificate from its Secret: made by Go's crypto/x509 for this test.
fn go_ca() -> Pair {
    Pair {
        certificate: include_bytes!("../../../../tests/golden/x509/go-ca.der").to_vec(),
        key: include_bytes!("../../../../tests/golden/x509/go-ca-key.der").to_vec(),
    }
}

/// A CA of a company, made by openssl: two attributes of its name are of the same kind.
fn company_ca() -> Pair {
    Pair {
        certificate: include_bytes!("../../../../tests/golden/x509/company-ca.der").to_vec(),
        key: include_bytes!("../../../../tests/golden/x509/company-ca-key.der").to_vec(),
    }
}

/// `openssl verify`, which compares key identifiers.
fn openssl_believes(ca: &[u8], leaf: &[u8], purpose: &str) {
    let folder = folder(&format!("openssl-{purpose}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, der: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, pem::encode("CERTIFICATE", der)).expect("a file");
        path
    };
    let said = std::process::Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", purpose, "-attime", &NOW.to_string()])
        .arg("-CAfile")
        .args([file("ca.pem", ca), file("leaf.pem", leaf)])
        .output()
        .expect("openssl, which scripts/setup --test installs");
    std::fs::remove_dir_all(&folder).expect("it was made");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "openssl does not believe it: {errors}");
}

#[test]
fn what_is_signed_under_a_ca_of_others_is_believed_by_rustls_and_openssl() {
    let names = ["127.0.0.1".to_owned(), "cloud.example".to_owned()];
    let request = include_bytes!("../../../../tests/golden/x509/request.der");
    let validity = Validity { not_before_s: NOW, not_after_s: NOW + 86_400 };
    for ca in [go_ca(), company_ca()] {
        let mut authority = Authority::of(ca.clone(), ca.clone()).expect("it is read");
        let server = authority.make_server(&names, NOW).expect("a server's");
        assert!(authority.serves(&server, &names, NOW), "rustls refuses the server's certificate");
        assert!(authority.trusts_server(&server, NOW));
        openssl_believes(&ca.certificate, &server.certificate, "sslserver");
        authority.serve(server).expect("it is shown");
        let node = authority.sign(request, "edge1", validity).expect("it is signed");
        openssl_believes(&ca.certificate, &node, "sslclient");
        assert_eq!(authority.trusts_client(&CertificateDer::from(node), NOW + 1), Ok(()));
    }
    // Ours is accepted as well.
    let ours = Authority::make_ca(NOW).expect("a CA");
    let authority = Authority::of(ours.clone(), ours.clone()).expect("it is read");
    let node = authority.sign(request, "edge1", validity).expect("it is signed");
    openssl_believes(&ours.certificate, &node, "sslclient");
    let other = Authority::of(go_ca(), go_ca()).expect("CloudCore's CA");
    let server = other.make_server(&names, NOW).expect("a server's");
    assert!(!authority.trusts_server(&server, NOW), "another CA's");
}

const NOW: i64 = 1_800_000_000;
