//! Clients with certificates of all sorts, and servers' keys in all forms.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::*;
use crate::controller::time::Wall;
use crate::model::api::CallError;

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn ca(name: &str) -> Ca {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate");
    let pem = pem::encode("CERTIFICATE", certificate.der());
    Ca { pem, issuer: Issuer::new(params, key) }
}

impl Ca {
    fn client(&self, name: &str, group: &str) -> CertificateDer<'static> {
        self.signs(name, group, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signs(
        &self,
        name: &str,
        group: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![usage];
        params.signed_by(&key, &self.issuer).expect("a certificate").der().clone()
    }
}

const API_SERVER: &str = "kube-apiserver-kubelet-client";

fn now() -> Now {
    Now { boot: Instant(7_000), wall: Some(Wall(1_800_000_000_000)) }
}

fn config_map(text: &str) -> Box<RawValue> {
    to_raw_value(&json!({"data": {"client-ca-file": text}})).expect("JSON")
}

/// The status of a refusal; 200: it is let in.
fn status(callers: &Callers, chain: &[CertificateDer<'_>]) -> u16 {
    let chain = Some(chain).filter(|chain| !chain.is_empty());
    callers.admit(chain, now()).map_or_else(|(status, _)| status, |()| 200)
}

#[test]
fn only_the_clusters_own_certificates_of_the_right_name_are_let_in() {
    let (ours, other) = (ca("kubernetes"), ca("kubernetes"));
    let mut callers = Callers::of_cluster();
    assert_eq!(status(&callers, &[ours.client(API_SERVER, "x")]), 503, "it is not known yet");
    callers.answered(Ok(config_map(&ours.pem)), now().boot);
    let server = ours.signs(API_SERVER, "x", ExtendedKeyUsagePurpose::ServerAuth);
    for (chain, expected) in [
        (&[][..], 401),
        (&[other.client(API_SERVER, "system:masters")], 401),
        (&[server], 401),
        (&[ours.client("system:node:e1", "system:nodes")], 403),
        (&[ours.client("admin", "x")], 403),
        (&[ours.client(API_SERVER, "x")], 200),
        (&[ours.client("admin", "system:masters")], 200),
        (&[ours.client("admin", "kubeadm:cluster-admins")], 200),
        (&[CertificateDer::from(vec![1, 2, 3])], 401),
    ] {
        assert_eq!(status(&callers, chain), expected);
    }
    let late = Now { wall: Some(Wall(i64::from(i32::MAX) * 1_000_000)), ..now() };
    let chain = [ours.client(API_SERVER, "x")];
    let refused = callers.admit(Some(&chain), late).expect_err("its time is over");
    assert_eq!(refused.0, 401, "{}", refused.1);
    assert_eq!(status(&Callers::anybody(), &[]), 200);
}

#[test]
fn a_chain_is_followed_to_its_ca_but_not_without_end() {
    let mut cas = vec![ca("root")];
    let mut callers = Callers::of_cluster();
    callers.answered(Ok(config_map(&cas[0].pem)), now().boot);
    let mut between = Vec::new();
    for at in 1..=CLIENT_CHAIN_MAX + 1 {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("below {at}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.signed_by(&key, &cas[at - 1].issuer).expect("a certificate");
        between.insert(0, certificate.der().clone());
        cas.push(Ca { pem: String::new(), issuer: Issuer::new(params, key) });
        let chain = [vec![cas[at].client(API_SERVER, "x")], between.clone()].concat();
        let expected = if at <= CLIENT_CHAIN_MAX { 200 } else { 401 };
        assert_eq!(status(&callers, &chain), expected, "{at} between");
    }
}

#[test]
fn the_ca_is_read_again_and_a_failure_keeps_the_one_that_is_known() {
    let (first, second) = (ca("1"), ca("2"));
    let mut callers = Callers::of_cluster();
    let mut at = Instant(5);
    let call = callers.due(at).expect("at once");
    assert_eq!((&*call.namespace, &*call.name), ("kube-system", CLIENT_CA));
    assert!(callers.due(at).is_none(), "it is under way");
    for answer in [
        Err(CallError::Lost("reset".to_owned())),
        Ok(to_raw_value(&json!({"data": {}})).expect("JSON")),
        Ok(config_map("nothing")),
        Ok(config_map("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
    ] {
        callers.answered(answer, at);
        assert_eq!(status(&callers, &[first.client(API_SERVER, "x")]), 503);
        assert_eq!(callers.wake_at(), Some(at.plus_ms(CLIENT_CA_RETRY_MS)));
        at = at.plus_ms(CLIENT_CA_RETRY_MS);
        callers.due(at).expect("again");
    }
    callers.answered(Ok(config_map(&first.pem)), at);
    assert_eq!(callers.wake_at(), Some(at.plus_ms(CLIENT_CA_CHECK_MS)));
    at = at.plus_ms(CLIENT_CA_CHECK_MS);
    callers.due(at).expect("again");
    callers.answered(Err(CallError::Lost("reset".to_owned())), at);
    assert_eq!(status(&callers, &[first.client(API_SERVER, "x")]), 200, "it is still known");
    // While it is replaced there are both.
    callers.answered(Ok(config_map(&[&*first.pem, &*second.pem].concat())), at);
    for ca in [&first, &second] {
        assert_eq!(status(&callers, &[ca.client(API_SERVER, "x")]), 200);
    }
    callers.answered(Ok(config_map(&second.pem)), at);
    assert_eq!(status(&callers, &[first.client(API_SERVER, "x")]), 401);
    assert_eq!(Callers::anybody().wake_at(), None);
}

#[test]
fn a_servers_key_may_have_any_usual_form() {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::default().self_signed(&key).expect("a certificate");
    let chain = pem::encode("CERTIFICATE", certificate.der());
    let pkcs8 = key.serialize_der();
    let private = crate::wire::x509::private_of_pkcs8(&pkcs8).expect("a key");
    let sec1 = crate::wire::x509::private_key(&private, key.public_key_raw());
    for (label, der) in [("PRIVATE KEY", &pkcs8), ("PRIVATE KEY", &sec1), ("EC PRIVATE KEY", &sec1)]
    {
        let identity = Identity::of(&chain, &pem::encode(label, der)).expect("PEM");
        let tls = identity.tls().expect(label);
        assert_eq!(tls.alpn_protocols, [b"http/1.1"]);
    }
    let rsa = Identity::of(
        include_str!("../../../../tests/golden/x509/stream.crt"),
        include_str!("../../../../tests/golden/x509/stream.key"),
    );
    rsa.expect("PEM").tls().expect("as openssl and KubeEdge's script make it");
    let other = KeyPair::generate().expect("a key").serialize_der();
    for (chain, key) in [
        (&*chain, pem::encode("PRIVATE KEY", &other)),
        (&*chain, pem::encode("PUBLIC KEY", &pkcs8)),
        ("", pem::encode("PRIVATE KEY", &pkcs8)),
    ] {
        let identity = Identity::of(chain, &key).expect("PEM");
        identity.tls().expect_err("it is not whole");
    }
}
