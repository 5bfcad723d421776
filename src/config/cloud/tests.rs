//! The files that keadm writes, when there is a cloud, and invalid values of its keys.

use super::*;
use crate::config::overlay;
use crate::model::settings::{Registration, Secret, Taint};

fn read(text: &str) -> Result<(Config, Vec<String>), String> {
    let mut config = Config::default();
    match overlay(&mut config, text.as_bytes()) {
        Ok(unused) => Ok((config, unused)),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Settings of a file with this `modules.edgeHub`, and with an address.
fn joined(hub: &str, rest: &str) -> Result<Config, String> {
    let text = format!(
        "modules: {{edgeHub: {{websocket: {{server: 'c.example:10000'}}, {hub}}}, {rest}}}\n"
    );
    read(&text).map(|(config, unused)| {
        assert_eq!(unused, [] as [&str; 0], "{text}");
        config
    })
}

#[test]
fn the_least_file_that_keadm_writes_is_read() {
    let (config, unused) = read(include_str!("keadm/minimum.yaml")).expect("KubeEdge's own");
    assert!(config.cloud.is_configured());
    let want = CloudLink {
        server: "192.0.2.10:10000".to_owned(),
        http_server: "https://192.0.2.10:10002".to_owned(),
        node_name: "edge-1".to_owned(),
        token: Secret::new("1c5e.aGVhZA.Ym9keQ.c2lnbg"),
        ..CloudLink::default()
    };
    assert_eq!(config.link(), want);
    assert_eq!(config.cloud.settings, CloudSettings::default());
    let want = [
        "modules.edgeHub.websocket.readDeadline",
        #[cfg(not(feature = "devices"))]
        "modules.eventBus",
    ];
    assert_eq!(unused, want);
}

#[test]
fn the_whole_file_that_keadm_writes_is_read() {
    let (config, unused) = read(include_str!("keadm/default.yaml")).expect("KubeEdge's own");
    assert!(config.cloud.is_configured());
    assert_eq!(config.cloud.settings, CloudSettings::default());
    assert_eq!(config.cloud.store, "/var/lib/kubeedge/edgecore.db");
    // Parts that are off are not reported, those that are on are reported once.
    let modules: Vec<&str> = unused.iter().filter_map(|key| key.strip_prefix("modules.")).collect();
    let others: Vec<&str> = modules.into_iter().filter(|key| !key.starts_with("edged.")).collect();
    assert_eq!(
        others,
        [
            #[cfg(not(feature = "devices"))]
            "deviceTwin",
            "edgeHub.websocket.readDeadline",
            #[cfg(feature = "streams")]
            "edgeStream.readDeadline",
            #[cfg(feature = "streams")]
            "edgeStream.writeDeadline",
            #[cfg(not(feature = "devices"))]
            "eventBus",
            "metaManager.contextSendGroup",
            "metaManager.contextSendModule",
        ]
    );
}

#[test]
fn every_setting_is_taken() {
    let hub = "enable: true, heartbeat: 20, messageQPS: 5, messageBurst: 9, projectID: p-1, \
               tlsCaFile: /t/ca, tlsCertFile: /t/cert, tlsPrivateKeyFile: /t/key, token: a.b.c.d, \
               rotateCertificates: false, httpServer: 'https://[2001:db8::1]:1/'";
    let rest = "metaManager: {remoteQueryTimeout: 7, podStatusSyncInterval: 8}, edged: { \
                nodeLabels: {a.b/c: d, e: ''}, registerSchedulable: false, reportEvent: true, \
                registerNodeNamespace: ns, tailoredKubeletConfig: {registerNode: false, \
                registerWithTaints: [{key: k, value: v, effect: NoSchedule}, \
                {key: a.b/k, effect: NoExecute, timeAdded: null}], \
                nodeLeaseDurationSeconds: 60, nodeStatusUpdateFrequency: 20s, \
                nodeStatusReportFrequency: 1h, nodeStatusMaxImages: -1, syncFrequency: 2m, \
                eventRecordQPS: 1, eventBurst: 2}}";
    let config = joined(hub, rest).expect("all of it is right");
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    };
    let want = CloudSettings {
        registration: Registration {
            register: false,
            namespace: "ns".to_owned(),
            taints: vec![taint("k", "v", "NoSchedule"), taint("a.b/k", "", "NoExecute")],
            schedulable: false,
        },
        rotate_certificates: false,
        heartbeat_ms: 20_000,
        messages_per_second: 5,
        messages_burst: 9,
        lease_duration_s: 60,
        lease_interval_ms: 15_000,
        status_update_ms: 20_000,
        status_report_ms: 3_600_000,
        status_images_max: None,
        remote_query_timeout_ms: 7_000,
        sync_ms: 120_000,
        pod_status_sync_ms: 8_000,
        report_events: true,
        events_per_second: 1,
        events_burst: 2,
    };
    assert_eq!(config.cloud.settings, want);
    let labels = [("a.b/c", "d"), ("e", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(config.node_labels, labels.into());
    let want = CloudLink {
        server: "c.example:10000".to_owned(),
        http_server: "https://[2001:db8::1]:1".to_owned(),
        project_id: "p-1".to_owned(),
        node_name: String::new(),
        ca_file: "/t/ca".to_owned(),
        cert_file: "/t/cert".to_owned(),
        key_file: "/t/key".to_owned(),
        token: Secret::new("a.b.c.d"),
        ..CloudLink::default()
    };
    assert_eq!(config.link(), want);
    let old = "edged: {registerNode: false, registerWithTaints: [{key: k, effect: NoSchedule}]}";
    let registration = joined("enable: true", old).expect("up to 1.17").cloud.settings.registration;
    assert!(!registration.register && registration.taints.len() == 1);
}

#[test]
fn a_thrifty_link_says_less() {
    let settings = joined("heartbeat: 15, thrifty: true", "").expect("it is right").cloud.settings;
    assert_eq!((settings.heartbeat_ms, settings.lease_interval_ms), (25_000, 20_000));
    let settings = joined("thrifty: false", "").expect("it is right").cloud.settings;
    assert_eq!((settings.heartbeat_ms, settings.lease_interval_ms), (15_000, 10_000));
}

#[test]
fn there_is_a_cloud_where_its_address_is_known() {
    for (hub, want) in [
        ("", false),
        ("edgeHub: null", false),
        ("edgeHub: {}", false),
        ("edgeHub: {enable: false}", false),
        ("edgeHub: {enable: false, token: t, websocket: {server: 'c:1'}}", false),
        ("edgeHub: {enable: false, heartbeat: 15, tlsCaFile: /a}", false),
        ("edgeHub: {websocket: {server: 'c:1'}}", true),
        ("edgeHub: {enable: true, httpServer: 'https://c:2'}", true),
    ] {
        let (config, _) = read(&format!("modules: {{{hub}}}\n")).expect(hub);
        assert_eq!(config.cloud.is_configured(), want, "{hub}");
    }
    let link = |hub: &str| {
        let (config, _) = read(&format!("modules: {{edgeHub: {{{hub}}}}}\n")).expect(hub);
        let link = config.link();
        (link.server, link.http_server)
    };
    // One address is derived from the other.
    let both = ("[::1]:10000".to_owned(), "https://[::1]:10002".to_owned());
    assert_eq!(link("websocket: {server: '[::1]:10000'}"), both);
    assert_eq!(link("httpServer: 'https://[::1]:10002'"), both);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (hub, want) in [
        ("enable: true", "modules.edgeHub: got no address of the cloud, expected"),
        ("token: t", "modules.edgeHub: got no address of the cloud, expected"),
        ("heartbeat: 15", "modules.edgeHub: got no address of the cloud, expected"),
        ("heartbeat: 15s", ":1:32: modules.edgeHub.heartbeat: got \"15s\", expected a whole"),
        ("heartbeat: 0", "expected a whole number from 1 to 300"),
        ("token: 12345678", "modules.edgeHub.token: got no text, expected a token"),
        ("websocket: {server: c}", "server: got \"c\", expected a host and a port"),
        ("websocket: {server: 'c:0'}", "server: got \"c:0\", expected a host and a port"),
        ("websocket: {server: 'wss://c:1'}", "expected a host and a port"),
        ("websocket: {enable: false}", "got false, expected true: it is the only transport"),
        ("quic: {enable: true}", "quic.enable: got true, expected false: edged has no QUIC"),
        ("httpServer: 'http://c:1'", "got \"http://c:1\", expected https://, a host and a port"),
        ("httpServer: 'https://c'", "got \"https://c\", expected https://, a host and a port"),
        ("tlsCaFile: ca.crt", "got \"ca.crt\", expected an absolute path of a file"),
        ("projectID: a/b", "projectID: got \"a/b\", expected letters, digits"),
        ("tokens: x", "modules.edgeHub.tokens: got an unknown key"),
    ] {
        let text = format!("modules: {{edgeHub: {{{hub}}}}}\n");
        let why = read(&text).expect_err(&text);
        assert!(why.contains(want), "{text}\n{why}\n{want}");
        assert!(!why.contains("12345678"), "{why}");
    }
    for (rest, want) in [
        ("metaManager: {enable: false}", "metaManager.enable: got false, expected true where"),
        ("edged: {nodeLabels: {a b: c}}", "nodeLabels: got a b: \"c\", expected a label"),
        ("edged: {nodeLabels: {a: '-'}}", "nodeLabels: got a: \"-\", expected a label"),
        ("edged: {nodeLabels: {a: 5}}", "nodeLabels: a: got 5, expected text"),
        (
            "edged: {registerWithTaints: [{key: k, effect: Never}]}",
            "[0]: effect: got \"Never\", expected",
        ),
        ("edged: {registerWithTaints: [{keys: k}]}", "[0]: keys: got an unknown key"),
        ("edged: {registerNodeNamespace: ''}", "got \"\", expected a namespace"),
    ] {
        let why = joined("enable: true", rest).expect_err(rest);
        assert!(why.contains(want), "{why}\n{want}");
    }
    let why = read("database: {driverName: mysql}\n").expect_err("another driver");
    assert!(why.contains("database.driverName: got \"mysql\", expected sqlite3"), "{why}");
}

#[cfg(feature = "streams")]
#[test]
fn the_tunnel_has_the_links_host_and_files_unless_it_names_others() {
    let hub = "websocket: {server: 'cloud.example:10000'}, tlsCaFile: /a/ca.crt";
    let read = |stream: &str| {
        let text = format!("modules: {{edgeHub: {{{hub}}}, edgeStream: {{{stream}}}}}\n");
        let mut config = Config { node_name: "gw".to_owned(), ..Config::default() };
        overlay(&mut config, text.as_bytes()).expect("valid");
        config
    };
    assert_eq!(read("enable: false").tunnel_link(), None);
    let config = read("enable: true, tlsTunnelCAFile: /etc/kubeedge/ca/rootCA.crt");
    let link = config.tunnel_link().expect("it is on");
    assert_eq!((&*link.server, &*link.ca_file), ("cloud.example:10004", "/a/ca.crt"));
    assert_eq!((&*link.node_name, &*link.cert_file), ("gw", "/etc/kubeedge/certs/server.crt"));
    assert_eq!(config.tunnel_settings().expect("it is on").handshake_timeout_ms, 30_000);
    let config = read(
        "enable: true, server: 'other:1', tlsTunnelCAFile: /b/ca.crt, tlsTunnelCertFile: /b/x, \
         tlsTunnelPrivateKeyFile: /b/y, handshakeTimeout: 7",
    );
    let link = config.tunnel_link().expect("it is on");
    let files = [&*link.server, &*link.ca_file, &*link.cert_file, &*link.key_file];
    assert_eq!(files, ["other:1", "/b/ca.crt", "/b/x", "/b/y"]);
    assert_eq!(config.tunnel_settings().expect("it is on").handshake_timeout_ms, 7_000);
    let mut config = Config::default();
    let alone = overlay(&mut config, b"modules: {edgeStream: {enable: true}}\n");
    let refusal = alone.expect_err("there is no cloud").to_string();
    assert!(refusal.contains("modules.edgeStream.enable: got true"), "{refusal}");
}
