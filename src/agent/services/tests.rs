//! The table of Services, the answers about their names, and the choice of an endpoint.

use core::net::Ipv4Addr;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::balance::Balance;
use super::names::Zone;
use super::table::{self, Backend};
use super::{Services, Table};
use crate::agent::Pods;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::objects::{Objects, ObjectsOf};
use crate::agent::time::{Instant, Now};
use crate::limits::{
    AFFINITY_CLIENTS_MAX, AFFINITY_DEFAULT_S, DNS_TTL_S, SERVICE_ENDPOINTS_MAX, SERVICE_PORTS_MAX,
    SERVICES_MAX, SERVICES_SETTLE_MS,
};
use crate::model::dns::{Answer, Data, Question, Rcode, Resolution, kind};
use crate::model::object::Object;
use crate::model::pod::Pod;
use crate::model::service::{
    Endpoint, Endpoints, EntryKind, Service, ServiceEntry, ServicesReport,
};
use crate::model::settings::ServiceSettings;

fn service(json: &str) -> Arc<Object> {
    let service: Service = serde_json::from_str(json).expect("a Service");
    Arc::new(Object::Service(Box::new(service)))
}

fn web(more: &str) -> Arc<Object> {
    service(&format!(
        r#"{{"metadata":{{"name":"web","namespace":"ns"}},"spec":{{"selector":{{"app":"web"}},
           "clusterIP":"10.96.0.7",
           "ports":[{{"name":"http","port":80,"targetPort":"web"}},
                    {{"name":"dns","port":53,"protocol":"UDP","targetPort":5353}}]{more}}}}}"#
    ))
}

fn pod(name: &str, app: &str, more: &str) -> Pod {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","labels":{{"app":"{app}"}}}},
            "spec":{{"containers":[{{"name":"c","image":"i",
            "ports":[{{"name":"web","containerPort":8080}}]}}]{more}}}}}"#
    );
    serde_json::from_str(&json).expect("a pod")
}

fn backend(pod: &Pod, last: u8) -> Backend<'_> {
    Backend { pod, ip: Ipv4Addr::new(10, 88, 0, last), ready: true, terminating: false }
}

fn objects(all: Vec<Arc<Object>>) -> Objects {
    let mut objects = Objects::default();
    objects.take(all.into_iter(), &mut Out::default());
    objects
}

/// These as the folder's.
fn of_folder(folder: &Objects) -> ObjectsOf<'_> {
    static NONE: std::sync::LazyLock<Objects> = std::sync::LazyLock::new(Objects::default);
    ObjectsOf { folder, cloud: &NONE }
}

fn table_of(all: Vec<Arc<Object>>, backends: &[Backend<'_>]) -> Table {
    let objects = objects(all);
    table::of(of_folder(&objects), backends, &ServiceSettings::default(), "gw", &[]).0
}

#[test]
fn a_service_of_the_folder_stands_over_one_of_the_cloud() {
    let (folder, cloud) = (
        objects(vec![web("")]),
        objects(vec![
            web(""),
            service(r#"{"metadata":{"name":"b","namespace":"ns"},"spec":{"clusterIP":"None"}}"#),
        ]),
    );
    let both = ObjectsOf { folder: &folder, cloud: &cloud };
    let table = table::of(both, &[], &ServiceSettings::default(), "gw", &[]).0;
    assert_eq!(table.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["b", "web"]);
    let again = table::of(both, &[], &ServiceSettings::default(), "gw", &table).0;
    assert!(table.iter().zip(&again).all(|(old, new)| Arc::ptr_eq(old, new)));
}

fn endpoints(table: &Table) -> Vec<String> {
    let shown = |it: &Endpoint| format!("{}{}{:?}", it.hostname, it.ip, it.ports);
    table.iter().flat_map(|it| &it.endpoints).map(shown).collect()
}

#[test]
fn the_endpoints_are_the_ready_pods_that_the_selector_chooses() {
    let (a, b, c) = (pod("a", "web", ""), pod("b", "web", ""), pod("c", "other", ""));
    let all = [backend(&a, 5), backend(&b, 4), backend(&c, 3)];
    // By address; the named port is the pod's, and one that it lacks has none.
    let expected = ["10.88.0.4[8080, 5353]", "10.88.0.5[8080, 5353]"];
    assert_eq!(endpoints(&table_of(vec![web("")], &all)), expected);
    let late = Backend { ready: false, ..backend(&a, 5) };
    assert_eq!(endpoints(&table_of(vec![web("")], &[late])), [""; 0]);
    let early = web(r#","publishNotReadyAddresses":true"#);
    assert_eq!(endpoints(&table_of(vec![early], &[late])).len(), 1);
    // Those that end only where there is no other.
    let ending = Backend { terminating: true, ..backend(&b, 4) };
    assert_eq!(endpoints(&table_of(vec![web("")], &[late, ending])), ["10.88.0.4[8080, 5353]"]);
    let both = [backend(&a, 5), ending];
    assert_eq!(endpoints(&table_of(vec![web("")], &both)), ["10.88.0.5[8080, 5353]"]);
    // Of another namespace.
    let mut far = a.clone();
    "far".clone_into(&mut far.metadata.namespace);
    assert_eq!(endpoints(&table_of(vec![web("")], &[backend(&far, 5)])), [""; 0]);
    let mut bare = a.clone();
    Arc::make_mut(&mut bare.spec).containers[0].ports.clear();
    assert_eq!(endpoints(&table_of(vec![web("")], &[backend(&bare, 5)])), ["10.88.0.5[0, 5353]"]);
}

#[test]
fn a_service_without_selector_leads_to_what_its_endpoints_object_names() {
    let bare = service(
        r#"{"metadata":{"name":"db","namespace":"ns"},
            "spec":{"clusterIP":"10.96.0.8","ports":[{"port":5432,"targetPort":1}]}}"#,
    );
    let json = r#"{"metadata":{"name":"db","namespace":"ns"},"subsets":[
        {"addresses":[{"ip":"192.0.2.9"},{"ip":"10.88.0.5","nodeName":"other"},
                      {"ip":"10.88.0.6","nodeName":"gw"},{"ip":"fd00::1"}],
         "ports":[{"port":6543}]}]}"#;
    let object: Endpoints = serde_json::from_str(json).expect("Endpoints");
    let object = Arc::new(Object::Endpoints(Box::new(object)));
    // A pod of another node may have the address of a pod of this one: it is not dialled.
    let expected = ["10.88.0.6[6543]", "192.0.2.9[6543]"];
    let table = table_of(vec![bare.clone(), object], &[]);
    assert_eq!((endpoints(&table), table[0].of_pods), (expected.map(str::to_owned).into(), false));
    assert!(table_of(vec![web("")], &[])[0].of_pods);
    let a = pod("a", "web", "");
    assert_eq!(endpoints(&table_of(vec![bare], &[backend(&a, 5)])), [""; 0], "no selector");
}

#[test]
fn each_service_has_an_address_a_name_or_its_endpoints() {
    let named = |name: &str, spec: &str| {
        service(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns"}},"spec":{{{spec}}}}}"#
        ))
    };
    let kinds = |all: Vec<Arc<Object>>| -> Vec<String> {
        let shown = |it: &Arc<ServiceEntry>| format!("{} {:?}", it.name, it.kind);
        table_of(all, &[]).iter().map(shown).collect()
    };
    let all = vec![
        named("a", r#""clusterIP":"None""#),
        named("b", r#""type":"ExternalName","externalName":"DB.example.org.""#),
        named("c", r#""clusterIP":"fd00::7","clusterIPs":["fd00::7","10.96.1.1"]"#),
        named("d", r#""clusterIP":"fd00::8""#),
        named("e", r#""clusterIP":"127.0.0.1""#),
        named("f", r#""clusterIP":"224.0.0.1""#),
    ];
    let expected = ["a Headless", r#"b External("db.example.org")"#, "c Cluster(10.96.1.1)"];
    assert_eq!(kinds(all), expected, "those that cannot be served are left out");
    // One that another proxy serves.
    let labelled = service(
        r#"{"metadata":{"name":"x","namespace":"ns","labels":{
                "service.edgemesh.kubeedge.io/service-proxy-name":""}},
            "spec":{"clusterIP":"10.96.0.1"}}"#,
    );
    assert_eq!(kinds(vec![labelled]), [""; 0]);
    // An address that follows from the name, within the range, and each once.
    let many: Vec<_> = (0..600).map(|n| named(&format!("s{n}"), "")).collect();
    let assigned = |all: Vec<Arc<Object>>| -> Vec<Ipv4Addr> {
        let ip = |it: &Arc<ServiceEntry>| match it.kind {
            EntryKind::Cluster(ip) => ip,
            EntryKind::Headless | EntryKind::External(_) => panic!("{it:?}"),
        };
        table_of(all, &[]).iter().map(ip).collect()
    };
    let got = assigned(many);
    assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 600);
    assert!(got.iter().all(|ip| ip.octets()[..2] == [10, 96]));
    let alone = assigned(vec![named("s0", "")]);
    assert_eq!(alone[..1], got[..1], "it is the same beside others");
}

#[test]
fn what_exceeds_the_limits_is_left_out() {
    let ports: Vec<String> =
        (1..=SERVICE_PORTS_MAX + 1).map(|n| format!(r#"{{"name":"p{n}","port":{n}}}"#)).collect();
    let wide = service(&format!(
        r#"{{"metadata":{{"name":"w","namespace":"ns"}},"spec":{{"selector":{{"app":"web"}},
           "clusterIP":"10.96.0.9","ports":[{}]}}}}"#,
        ports.join(",")
    ));
    let a = pod("a", "web", "");
    let all: Vec<_> = (0..=SERVICE_ENDPOINTS_MAX).map(|n| backend(&a, n as u8)).collect();
    let table = table_of(vec![wide], &all);
    assert_eq!((table[0].ports.len(), table[0].endpoints.len()), (32, 128));
    assert_eq!((SERVICE_PORTS_MAX, SERVICE_ENDPOINTS_MAX), (32, 128));
    let many = (0..SERVICES_MAX + 2).map(|n| {
        service(&format!(
            r#"{{"metadata":{{"name":"s{n:05}","namespace":"ns"}},"spec":{{"clusterIP":"None"}}}}"#
        ))
    });
    let objects = objects(many.collect());
    let (table, left_out) =
        table::of(of_folder(&objects), &[], &ServiceSettings::default(), "gw", &[]);
    assert_eq!((table.len(), left_out), (SERVICES_MAX, 2));
}

#[test]
fn node_ports_and_affinity_are_served_where_they_are_asked_for() {
    let object = |more: &str| {
        service(&format!(
            r#"{{"metadata":{{"name":"n","namespace":"ns"}},"spec":{{"type":"NodePort",
               "clusterIP":"10.96.0.9","ports":[{{"port":80,"nodePort":30080}}]{more}}}}}"#
        ))
    };
    let of = |more: &str, node_ports: bool| {
        let settings = ServiceSettings { node_ports, ..ServiceSettings::default() };
        let objects = objects(vec![object(more)]);
        let table = table::of(of_folder(&objects), &[], &settings, "gw", &[]).0;
        (table[0].ports[0].node_port, table[0].affinity_s)
    };
    assert_eq!(of("", false), (0, 0));
    let sticky = r#","sessionAffinity":"ClientIP""#;
    assert_eq!(of(sticky, true), (30_080, AFFINITY_DEFAULT_S));
    let short = r#","sessionAffinity":"ClientIP",
        "sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}"#;
    assert_eq!(of(short, true), (30_080, 60));
}

/// The Services of the tests of names.
fn zone_table() -> Table {
    let a = pod("web-0", "web", r#","hostname":"web-0","subdomain":"set""#);
    let b = pod("web-1", "web", "");
    let all = vec![
        web(""),
        service(
            r#"{"metadata":{"name":"set","namespace":"ns"},"spec":{"selector":{"app":"web"},
               "clusterIP":"None","ports":[{"name":"http","port":80,"targetPort":"web"}]}}"#,
        ),
        service(
            r#"{"metadata":{"name":"ext","namespace":"ns"},
                "spec":{"type":"ExternalName","externalName":"db.example.org"}}"#,
        ),
        service(
            r#"{"metadata":{"name":"inner","namespace":"ns"},
                "spec":{"type":"ExternalName","externalName":"web.ns.svc.cluster.local"}}"#,
        ),
        service(
            r#"{"metadata":{"name":"loop","namespace":"ns"},
                "spec":{"type":"ExternalName","externalName":"loop.ns.svc.cluster.local"}}"#,
        ),
    ];
    table_of(all, &[backend(&a, 5), backend(&b, 6)])
}

fn ask(name: &str, kind: u16) -> Resolution {
    let table = zone_table();
    let zone = Zone { domain: "cluster.local", table: &table, turn: 0 };
    zone.resolve(&Question { name: name.into(), kind })
}

fn answer(name: &str, kind: u16) -> Answer {
    match ask(name, kind) {
        Resolution::Answer(answer) => answer,
        other => panic!("{name}: {other:?}"),
    }
}

fn data(name: &str, kind: u16) -> Vec<Data> {
    let answer = answer(name, kind);
    assert_eq!(answer.rcode, Rcode::NoError, "{name}");
    assert!(answer.answers.iter().all(|it| it.ttl_s == DNS_TTL_S && answer.authoritative));
    answer.answers.into_iter().map(|it| it.data).collect()
}

fn ip(last: u8) -> Data {
    Data::A(Ipv4Addr::new(10, 88, 0, last))
}

#[test]
fn names_of_services_and_of_their_endpoints_are_answered() {
    let cluster = Data::A(Ipv4Addr::new(10, 96, 0, 7));
    assert_eq!(data("web.ns.svc.cluster.local", kind::A), [cluster]);
    assert_eq!(data("set.ns.svc.cluster.local", kind::A), [ip(5), ip(6)]);
    assert_eq!(data("web-0.set.ns.svc.cluster.local", kind::A), [ip(5)]);
    assert_eq!(data("10-88-0-6.set.ns.svc.cluster.local", kind::A), [ip(6)]);
    assert_eq!(data("1-2-3-4.ns.pod.cluster.local", kind::A), [Data::A([1, 2, 3, 4].into())]);
    // Another type of a name that exists: no record, and how long that holds.
    for name in ["web.ns.svc.cluster.local", "ns.svc.cluster.local", "cluster.local"] {
        let nothing = answer(name, kind::AAAA);
        assert_eq!((nothing.rcode, nothing.answers.len()), (Rcode::NoError, 0), "{name}");
        assert_eq!(nothing.authority[0].data, Data::Soa { minimum_s: DNS_TTL_S });
    }
    assert_eq!(data("cluster.local", kind::SOA), [Data::Soa { minimum_s: DNS_TTL_S }]);
    for name in [
        "nobody.ns.svc.cluster.local",
        "web.far.svc.cluster.local",
        "far.svc.cluster.local",
        "a.web.ns.svc.cluster.local",
        "a.b.c.d.e.svc.cluster.local",
        "google.com.ns.svc.cluster.local",
        "web.ns.cluster.local",
        "1-2-3.ns.pod.cluster.local",
        "1.2-3-4.pod.cluster.local",
    ] {
        let none = answer(name, kind::A);
        assert_eq!((none.rcode, none.authority.len()), (Rcode::NxDomain, 1), "{name}");
    }
    for name in ["example.org", "xcluster.local", "local", "", "web.ns.svc"] {
        assert_eq!(ask(name, kind::A), Resolution::Forward, "{name}");
    }
    let table = zone_table();
    let bare = Zone { domain: "", table: &table, turn: 0 };
    let question = Question { name: "web.ns.svc.cluster.local".into(), kind: kind::A };
    assert_eq!(bare.resolve(&question), Resolution::Forward, "there is no zone");
    // Clients that take the first address are spread.
    let turned = Zone { domain: "cluster.local", table: &table, turn: 1 };
    let question = Question { name: "set.ns.svc.cluster.local".into(), kind: kind::A };
    let Resolution::Answer(answer) = turned.resolve(&question) else { panic!("it is ours") };
    assert_eq!(answer.answers[0].data, ip(6));
}

#[test]
fn ports_have_names_and_addresses_have_them_too() {
    let srv = |port, target: &str| Data::Srv { port, target: target.into() };
    let of_web = srv(80, "web.ns.svc.cluster.local");
    assert_eq!(data("_http._tcp.web.ns.svc.cluster.local", kind::SRV), [of_web]);
    assert_eq!(data("web.ns.svc.cluster.local", kind::SRV).len(), 2);
    let of_set = answer("_http._tcp.set.ns.svc.cluster.local", kind::SRV);
    let targets: Vec<_> = of_set.answers.iter().map(|it| it.data.clone()).collect();
    let expected = [
        srv(8_080, "web-0.set.ns.svc.cluster.local"),
        srv(8_080, "10-88-0-6.set.ns.svc.cluster.local"),
    ];
    assert_eq!(targets, expected);
    assert_eq!(of_set.additional.len(), 2);
    let other = answer("_http._udp.web.ns.svc.cluster.local", kind::SRV);
    assert_eq!(other.rcode, Rcode::NxDomain);
    assert_eq!(data("_http._tcp.web.ns.svc.cluster.local", kind::A), []);
    let ptr = |name: &str| Data::Ptr(name.into());
    let of_cluster = data("7.0.96.10.in-addr.arpa", kind::PTR);
    assert_eq!(of_cluster, [ptr("web.ns.svc.cluster.local")]);
    let of_pod = data("5.0.88.10.in-addr.arpa", kind::PTR);
    assert_eq!(of_pod, [ptr("web-0.set.ns.svc.cluster.local")]);
    for name in ["9.0.96.10.in-addr.arpa", "x.in-addr.arpa", "1.0.in-addr.arpa", "0.ip6.arpa"] {
        assert_eq!(ask(name, kind::PTR), Resolution::Forward, "{name}");
    }
}

#[test]
fn an_alias_is_followed_inside_and_asked_for_outside() {
    let Resolution::Alias(alias, target) = ask("ext.ns.svc.cluster.local", kind::A) else {
        panic!("its target is elsewhere")
    };
    assert_eq!((alias.data, &*target), (Data::Cname("db.example.org".into()), "db.example.org"));
    let inner = data("inner.ns.svc.cluster.local", kind::A);
    let web = "web.ns.svc.cluster.local";
    assert_eq!(inner, [Data::Cname(web.into()), Data::A([10, 96, 0, 7].into())]);
    assert_eq!(data("ext.ns.svc.cluster.local", kind::CNAME).len(), 1);
    assert_eq!(answer("loop.ns.svc.cluster.local", kind::A).rcode, Rcode::ServFail);
}

fn entry(affinity_s: u32, last: &[u8]) -> ServiceEntry {
    let endpoint = |last: &u8| Endpoint {
        ip: Ipv4Addr::new(10, 88, 0, *last),
        hostname: "".into(),
        ports: vec![8_080, u16::from(*last != 9)],
    };
    ServiceEntry {
        namespace: "ns".into(),
        name: "web".into(),
        kind: EntryKind::Headless,
        ports: Vec::new(),
        endpoints: last.iter().map(endpoint).collect(),
        affinity_s,
        of_pods: true,
    }
}

#[test]
fn connections_go_to_each_endpoint_in_turn_and_to_none_that_failed() {
    let (mut balance, service) = (Balance::default(), entry(0, &[5, 6, 9]));
    let client = Ipv4Addr::new(10, 88, 0, 2);
    let mut choose = |port: usize, failed: &[Ipv4Addr]| {
        let chosen = balance.choose(Instant(1), &service, port, client, failed)?;
        Some((chosen.0.octets()[3], chosen.1))
    };
    let three: BTreeSet<_> = (0..3).filter_map(|_| choose(0, &[])).collect();
    assert_eq!(three, BTreeSet::from([(5, 8_080), (6, 8_080), (9, 8_080)]));
    let two: BTreeSet<_> = (0..4).filter_map(|_| choose(1, &[])).collect();
    assert_eq!(two, BTreeSet::from([(5, 1), (6, 1)]), "one has no such port");
    let bad = [Ipv4Addr::new(10, 88, 0, 5), Ipv4Addr::new(10, 88, 0, 6)];
    assert_eq!(choose(0, &bad), Some((9, 8_080)));
    assert_eq!(choose(1, &bad), None);
    assert_eq!(choose(7, &[]), None);
}

#[test]
fn a_client_with_affinity_keeps_its_endpoint_for_a_time() {
    let mut balance = Balance::default();
    let service = entry(60, &[5, 6]);
    let client = |n: u32| Ipv4Addr::from(n);
    let mut choose = |at, service: &ServiceEntry, n, failed: &[Ipv4Addr]| {
        balance.choose(Instant(at), service, 0, client(n), failed).map(|it| it.0)
    };
    let first = choose(0, &service, 1, &[]).expect("there are two");
    for at in [1, 60_000, 120_000] {
        assert_eq!(choose(at, &service, 1, &[]), Some(first), "each use renews it");
    }
    let other = choose(120_001, &service, 1, &[first]).expect("there is another");
    assert_ne!(other, first);
    assert_eq!(choose(120_002, &service, 1, &[]), Some(other), "from now on it has that one");
    let alone = entry(60, &[if other.octets()[3] == 5 { 6 } else { 5 }]);
    assert_ne!(choose(120_003, &alone, 1, &[]), Some(other), "its endpoint is gone");
    let late: BTreeSet<_> =
        (0..4).map(|n| choose(300_000 + n * 61_000, &service, 1, &[])).collect();
    assert_eq!(late.len(), 2, "it was forgotten in between");
    for n in 0..AFFINITY_CLIENTS_MAX as u32 + 10 {
        choose(900_000, &service, n, &[]);
    }
    assert_eq!(balance.clients(), AFFINITY_CLIENTS_MAX);
}

fn at(ms: u64) -> Now {
    Now { boot: Instant(ms), wall: None }
}

fn tables(out: &mut Out) -> Vec<usize> {
    let count = |action| match action {
        Action::Services(table) => Some(Vec::len(&table)),
        _ => None,
    };
    out.actions.drain(..).filter_map(count).collect()
}

#[test]
fn the_first_table_waits_for_the_pods_and_not_for_ever() {
    let (pods, mut out) = (Pods::default(), Out::default());
    let objects = objects(vec![web("")]);
    let new = || Services::new(ServiceSettings::default(), "gw", at(0));
    let mut services = new();
    services.step(at(1), &pods, false, of_folder(&objects), &mut out);
    assert_eq!(tables(&mut out), [0_usize; 0]);
    assert_eq!(services.wake_at(), Some(Instant(SERVICES_SETTLE_MS)));
    services.step(at(2), &pods, true, of_folder(&objects), &mut out);
    assert_eq!((tables(&mut out), services.wake_at()), (vec![1], None));
    services.objects_changed();
    services.step(at(3), &pods, true, of_folder(&objects), &mut out);
    assert_eq!(tables(&mut out), [0_usize; 0], "it is as it was");
    services.objects_changed();
    let nothing = self::objects(Vec::new());
    services.step(at(4), &pods, false, of_folder(&nothing), &mut out);
    assert_eq!(tables(&mut out), [0]);
    let mut late = new();
    late.step(at(SERVICES_SETTLE_MS - 1), &pods, false, of_folder(&objects), &mut out);
    assert_eq!(tables(&mut out), [0_usize; 0]);
    late.step(at(SERVICES_SETTLE_MS), &pods, false, of_folder(&objects), &mut out);
    assert_eq!(tables(&mut out), [1]);
}

#[test]
fn trouble_is_logged_once_and_its_end_too() {
    let mut services = Services::new(ServiceSettings::default(), "gw", at(0));
    let mut out = Out::default();
    let report = |trouble: &[&str]| ServicesReport {
        trouble: trouble.iter().map(|&line| line.to_owned()).collect(),
        ..ServicesReport::default()
    };
    for trouble in [&["a"][..], &["a", "b"], &["b"], &[], &[]] {
        services.take_report(report(trouble), &mut out);
    }
    let lines: Vec<_> = out
        .actions
        .iter()
        .map(|action| match action {
            Action::Log(severity, text) => (*severity, text.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (Severity::Warn, "services: a"),
        (Severity::Warn, "services: b"),
        (Severity::Info, "services: all of them are served"),
    ];
    assert_eq!(lines, expected);
}
