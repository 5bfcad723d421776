//! MetaServer with `requireAuthorization`: whose token is believed, and what its bearer may do.

use edged::agent::event::Event;
use edged::limits::{JWT_LEEWAY_S, TOKENS_REPLACED_MAX};
use edged::model::application::{Gvr, Scope};
use edged::model::job::{JobSpec, Source};
use edged::model::message::Message;
use edged::model::meta::{Change, Row, Saved};
use edged::model::metaserver::{
    Bearer, Call, Caller, Claims, ClientId, Form, InCluster, MetaServerSettings, Recency, Reply,
};
use edged::model::token::digest;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, pod, row};
use crate::made::container_of;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn node(rows: &[(&str, Value)]) -> CloudHarness {
    with(rows.iter().map(|(key, value)| row(key, value)).collect())
}

fn with(rows: Vec<Row>) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(Saved::kept(rows), |config| {
        config.metaserver =
            Some(MetaServerSettings { requires_authorization: true, ..Default::default() });
    });
    cloud.connect();
    cloud.pass(100);
    cloud.replies.clear();
    cloud
}

/// A pod with a token and the CA of the API server in one volume.
fn user() -> Value {
    let mut user = pod("p", "u1", 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}]);
    user["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/t"}]);
    user
}

fn root_ca() -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "ns", "uid": "ca"},
        "data": {"ca.crt": "the cluster's\n"}})
}

/// What the account may do: read ConfigMaps of its namespace, and one of all namespaces' Services.
fn access() -> Value {
    json!({"kind": "ServiceAccountAccess", "apiVersion": "policy.kubeedge.io/v1alpha1",
        "metadata": {"name": "default", "namespace": "ns", "uid": "x", "resourceVersion": "3"},
        "spec": {
            "serviceAccount": {"metadata": {"name": "default", "namespace": "ns"}},
            "serviceAccountUid": "sa",
            "accessRoleBinding": [{"roleBinding": {"metadata": {"name": "r", "namespace": "ns"}},
                "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""],
                    "resources": ["configmaps"]}]}],
            "accessClusterRoleBinding": [{"clusterRoleBinding": {"metadata": {"name": "c"}},
                "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["services"]}]}]}})
}

fn now_s(cloud: &CloudHarness) -> i64 {
    cloud.harness.now.timestamp().expect("a clock").0
}

/// The bearer of this token, as it would be if it was real.
fn bearer(cloud: &CloudHarness, token: &str) -> Bearer {
    let now_s = now_s(cloud);
    Bearer {
        digest: digest(token).into(),
        is_signed: false,
        claims: Claims {
            issuer: ISSUER.into(),
            audiences: vec![ISSUER.into()],
            ends_at: Some(now_s + 3_607),
            begins_at: Some(now_s),
            namespace: "ns".into(),
            account: "default".into(),
            account_uid: "sa".into(),
            pod: Some(("p".into(), "u1".into())),
            has_secret: false,
        },
    }
}

fn list(resource: &str, namespace: &str) -> Call {
    let gvr = Gvr::new("", "v1", resource);
    let scope = Scope { namespace: namespace.into(), ..Scope::all(gvr) };
    Call::List { scope, recency: Recency::Latest, form: Form::Whole }
}

/// The refusal of a request; `None`: it is served, or waits for the cloud.
fn refusal(cloud: &mut CloudHarness, caller: Caller, call: Call) -> Option<String> {
    let id = ClientId(7);
    cloud.harness.deliver(Event::MetaServerOpened(id, Box::new(call), caller));
    cloud.settle();
    let refusal =
        std::mem::take(&mut cloud.replies).into_iter().find_map(|(of, reply)| match reply {
            Reply::Failure(failure) if of == id => {
                Some(format!("{} {}", failure.code, failure.message))
            }
            _ => None,
        });
    cloud.harness.deliver(Event::MetaServerClosed(id));
    refusal
}

fn of_bearer(cloud: &mut CloudHarness, bearer: &Bearer) -> Option<String> {
    refusal(cloud, Caller::Bearer(Box::new(bearer.clone())), list("configmaps", "ns"))
}

/// The cloud gives the pod a token; the request that it answers must be open.
fn give(cloud: &mut CloudHarness, token: &str) {
    let request = cloud.take_sent("serviceaccounttoken").remove(0);
    let mut given = content(&request);
    given["spec"]["audiences"] = json!([ISSUER]);
    let end = edged::model::time::Timestamp(now_s(cloud) + 3_607).to_string();
    given["status"] = json!({"token": token, "expirationTimestamp": end});
    cloud.answer(&request, &given);
    cloud.work();
}

/// A node whose pod has the token `one`.
fn with_token() -> CloudHarness {
    let rows = [("ns/configmap/kube-root-ca.crt", root_ca())];
    let mut cloud = node(&rows);
    cloud.push_to(
        ["policycontroller", "resource", "insert", "ns/serviceaccountaccess/default"],
        &access(),
    );
    cloud.push("insert", "ns/pod/p", &user());
    give(&mut cloud, "one");
    cloud
}

#[test]
fn a_token_that_was_handed_out_is_known_and_no_other_is() {
    let mut cloud = with_token();
    let good = bearer(&cloud, "one");
    assert_eq!(of_bearer(&mut cloud, &good), None);
    let other = bearer(&cloud, "two");
    let why = of_bearer(&mut cloud, &other).expect("nobody knows it");
    assert!(why.starts_with("401 Unauthorized: this node has handed out no such token"), "{why}");
    let signed = Bearer { is_signed: true, ..other };
    assert_eq!(of_bearer(&mut cloud, &signed), None, "a key of the cluster has signed it");
    for caller in [Caller::Anonymous, Caller::Local] {
        let why = refusal(&mut cloud, caller, list("configmaps", "ns")).expect("nobody");
        assert!(why.starts_with(r#"403 configmaps is forbidden: User "system:anonymous""#));
    }
}

#[test]
fn what_a_token_says_must_be_true_here_and_now() {
    let mut cloud = with_token();
    let good = bearer(&cloud, "one");
    let now_s = now_s(&cloud);
    let changed = |change: &dyn Fn(&mut Claims)| {
        let mut changed = Bearer { is_signed: true, ..good.clone() };
        change(&mut changed.claims);
        changed
    };
    let pod = |name: &str, uid: &str| Some((Box::from(name), Box::from(uid)));
    for (wrong, want) in [
        (changed(&|it| it.issuer = "https://other".into()), "got the issuer"),
        (changed(&|it| it.audiences = vec!["vault".into()]), "got the audiences \"vault\""),
        (changed(&|it| it.ends_at = Some(now_s - JWT_LEEWAY_S - 1)), "has expired"),
        (changed(&|it| it.ends_at = None), "without an end"),
        (changed(&|it| it.begins_at = Some(now_s + JWT_LEEWAY_S + 20)), "not valid yet"),
        (changed(&|it| it.pod = pod("p", "u2")), "the pod ns/p of the token is not on this node"),
        (changed(&|it| it.pod = pod("q", "u1")), "the pod ns/q of the token is not on this node"),
        (changed(&|it| it.account_uid = "old".into()), "does not match claim (old)"),
        (changed(&|it| it.account = "".into()), "of no service account"),
        (changed(&|it| it.has_secret = true), "bound to a Secret"),
    ] {
        let why = of_bearer(&mut cloud, &wrong).expect(want);
        assert!(why.starts_with("401 Unauthorized: ") && why.contains(want), "{why}");
    }
    for right in [
        // The clock goes on by some seconds meanwhile.
        changed(&|it| it.ends_at = Some(now_s - JWT_LEEWAY_S + 20)),
        changed(&|it| it.begins_at = Some(now_s + JWT_LEEWAY_S)),
        changed(&|it| it.audiences = vec!["vault".into(), ISSUER.into()]),
        changed(&|it| it.audiences.clear()),
        changed(&|it| it.pod = None),
    ] {
        assert_eq!(of_bearer(&mut cloud, &right), None, "{right:?}");
    }
    cloud.push("delete", "ns/pod/p", &user());
    cloud.work();
    cloud.pass(5_000);
    assert!(of_bearer(&mut cloud, &good).is_some(), "the pod is gone, and its token with it");
}

#[test]
fn rules_decide_and_a_refusal_is_the_api_servers() {
    let mut cloud = with_token();
    let caller = |cloud: &CloudHarness| Caller::Bearer(Box::new(bearer(cloud, "one")));
    let mut ask = |call: Call| {
        let caller = caller(&cloud);
        refusal(&mut cloud, caller, call)
    };
    assert_eq!(ask(list("services", "")), None);
    assert_eq!(ask(list("services", "other")), None, "a cluster role binding");
    assert_eq!(
        ask(list("configmaps", "")).expect("only its own namespace"),
        "403 configmaps is forbidden: User \"system:serviceaccount:ns:default\" cannot list \
         resource \"configmaps\" in API group \"\" at the cluster scope"
    );
    assert_eq!(
        ask(list("pods", "ns")).expect("no rule"),
        "403 pods is forbidden: User \"system:serviceaccount:ns:default\" cannot list resource \
         \"pods\" in API group \"\" in the namespace \"ns\""
    );
    let release = edged::model::metaserver::Release::Node("gw".into());
    let why = ask(Call::Release(release)).expect("no rule");
    assert!(why.starts_with("403 nodes \"unhold-upgrade\" is forbidden"), "{why}");
    // The rules go: nothing is left.
    cloud.push_to(
        ["policycontroller", "resource", "delete", "ns/serviceaccountaccess/default"],
        &access(),
    );
    cloud.pass(100);
    let good = bearer(&cloud, "one");
    let why = of_bearer(&mut cloud, &good).expect("no rules");
    assert!(why.starts_with("403 ") && why.contains("the cloud has sent no rules"), "{why}");
}

#[test]
fn only_the_rules_under_the_accounts_own_name_count() {
    let mut cloud = with_token();
    let good = bearer(&cloud, "one");
    let of = |account: &str| {
        let mut of = Bearer { is_signed: true, ..good.clone() };
        of.claims.account = account.into();
        of
    };
    // The rules of `default`, as a row of `other`: they are of neither.
    cloud.push_to(
        ["policycontroller", "resource", "insert", "ns/serviceaccountaccess/other"],
        &access(),
    );
    let mut rules = access();
    rules["spec"]["serviceAccount"]["metadata"]["name"] = json!("third");
    cloud.push_to(
        ["policycontroller", "resource", "insert", "ns/serviceaccountaccess/third"],
        &rules,
    );
    assert_eq!(of_bearer(&mut cloud, &of("default")), None);
    assert_eq!(of_bearer(&mut cloud, &of("third")), None);
    let why = of_bearer(&mut cloud, &of("other")).expect("no rules of its own");
    assert!(why.starts_with("403 ") && why.contains("the cloud has sent no rules"), "{why}");
    cloud.push_to(
        ["policycontroller", "resource", "delete", "ns/serviceaccountaccess/default"],
        &access(),
    );
    cloud.pass(100);
    let why = of_bearer(&mut cloud, &of("default")).expect("its rules are gone");
    assert!(why.starts_with("403 ") && why.contains("the cloud has sent no rules"), "{why}");
}

#[test]
fn tokens_before_the_current_one_are_known_also_after_a_restart() {
    let mut cloud = with_token();
    let mut names = vec!["one".to_owned()];
    for number in 2..=TOKENS_REPLACED_MAX + 2 {
        // It is replaced after four fifths of its life.
        for _ in 0..3_607 / 5 {
            cloud.pass(5_000);
            cloud.sign_of_life();
            let is_it = |it: &Message| it.route.resource.contains("serviceaccounttoken");
            if cloud.sent.iter().any(is_it) {
                break;
            }
        }
        let name = format!("token {number}");
        give(&mut cloud, &name);
        names.push(name);
    }
    let known = |cloud: &mut CloudHarness| -> Vec<bool> {
        let all = names.iter().map(|name| bearer(cloud, name)).collect::<Vec<_>>();
        all.iter().map(|it| of_bearer(cloud, it).is_none()).collect()
    };
    let mut expected = vec![true; TOKENS_REPLACED_MAX + 2];
    expected[0] = false;
    assert_eq!(known(&mut cloud), expected, "the oldest makes room");
    // The store of the next start: the last value of each row.
    let rows = cloud.written.iter().filter_map(|change| match change {
        Change::Put(row) => Some((row.key.clone(), row.clone())),
        _ => None,
    });
    let rows: std::collections::BTreeMap<_, _> = rows.collect();
    let text: String = rows.values().map(|row| &*row.value).collect();
    assert!(text.contains("replaced") && !text.contains("token 3\""), "digests alone: {text}");
    let mut again = with(rows.into_values().collect());
    assert_eq!(known(&mut again), expected);
}

fn place() -> InCluster {
    InCluster {
        address: "169.254.30.10:10550".parse().expect("an address"),
        certificate: "the node's\n".into(),
    }
}

#[test]
fn new_containers_have_the_variables_once_the_server_listens() {
    let variables = |place| {
        let mut cloud = node(&[]);
        cloud.harness.deliver(Event::InCluster(place));
        cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
        cloud.pass(1_000);
        let is_before = |call: &&String| !call.starts_with("create_container");
        while let Some(next) = cloud.harness.open_calls().iter().find(is_before).cloned() {
            cloud.harness.does(&next);
            cloud.settle();
        }
        let envs = container_of(&mut cloud.harness).envs.into_iter();
        envs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(variables(None), [""; 0], "never empty ones");
    let expected = [
        "KUBERNETES_SERVICE_HOST=169.254.30.10",
        "KUBERNETES_SERVICE_PORT=10550",
        "KUBERNETES_SERVICE_PORT_HTTPS=10550",
    ];
    assert_eq!(variables(Some(Box::new(place()))), expected);
}

#[test]
fn pods_of_the_cloud_know_where_the_server_is_and_whom_to_trust() {
    let mut cloud = with_token();
    let files = |cloud: &CloudHarness| -> Vec<(String, String)> {
        let of = |spec: &JobSpec| match spec {
            JobSpec::SetUpVolume(wanted) => match &wanted.source {
                Source::Files(files) => Some(files.files.clone()),
                _ => None,
            },
            _ => None,
        };
        let files = cloud.harness.specs.iter().rev().find_map(of).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        files.iter().map(|it| (it.path.to_string(), text(&it.content.0))).collect()
    };
    let ca = |text: &str| ("ca.crt".to_owned(), text.to_owned());
    assert!(files(&cloud).contains(&ca("the cluster's\n")), "nobody listens yet");
    cloud.harness.deliver(Event::InCluster(Some(Box::new(place()))));
    cloud.pass(1_000);
    cloud.work();
    assert!(files(&cloud).contains(&ca("the cluster's\nthe node's\n")), "{:?}", files(&cloud));
}
