//! Joining a cloud, dialling, and the verification on both sides.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use edged::agent::event::{Event, JobId};
use edged::agent::time::Wall;
use edged::io::clock;
use edged::io::job::{Jobs, Roots};
use edged::model::job::{JobError, JobReply, JobSpec};
use edged::model::link::{Cause, Session};
use edged::model::settings::Secret;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::{Fixture, cloud_link, mode};
use crate::stub::Setup;

#[test]
fn a_node_joins_and_its_files_lie_where_kubeedge_has_them() {
    let fixture = Fixture::joined("join");
    let link = &fixture.link;
    for (file, label) in [
        (&link.ca_file, "CERTIFICATE"),
        (&link.cert_file, "CERTIFICATE"),
        (&link.key_file, "EC PRIVATE KEY"),
    ] {
        let text = fs::read_to_string(file).expect("it is there");
        assert!(text.starts_with(&format!("-----BEGIN {label}-----\n")), "{text}");
        assert_eq!(mode(file), 0o600, "{file}");
        let folder = Path::new(file).parent().expect("a folder");
        assert_eq!(mode(&folder.to_string_lossy()), 0o700);
        let left: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
        assert!(left.iter().all(|it| !it.path().to_string_lossy().ends_with(".new")), "{left:?}");
    }
    let sent = fixture.cloud.https_requests();
    let what: Vec<_> = sent.iter().map(|it| (&*it.what, it.shown)).collect();
    assert_eq!(what, [("GET /ca.crt", false), ("GET /edge.crt", false)]);
    let names: Vec<_> = sent[1].headers.iter().map(|(name, _)| &**name).collect();
    assert!(["authorization", "nodename", "content-length"].iter().all(|it| names.contains(it)));
}

#[test]
fn a_session_has_edgecores_path_and_headers_and_no_others() {
    let mut fixture = Fixture::joined("headers");
    let validity = fixture.dial(1).expect("it connects");
    assert_eq!((validity.not_before_s, validity.not_after_s), (1_577_836_800, 4_102_444_800));
    let upgrade = fixture.cloud.connected(1);
    assert_eq!(upgrade.path, "/e632aba927ea4ac2b575ec1603d56f10/edge-1/events");
    let mut headers = upgrade.headers.clone();
    headers.retain(|(name, _)| name != "sec-websocket-key");
    headers.sort();
    let address = fixture.cloud.websocket.to_string();
    let expected = [
        ("connection", "Upgrade"),
        ("connectionuse", "msg"),
        ("host", &*address),
        ("node_id", "edge-1"),
        ("project_id", "e632aba927ea4ac2b575ec1603d56f10"),
        ("sec-websocket-version", "13"),
        ("upgrade", "websocket"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, expected);
}

#[test]
fn a_cloud_that_is_not_there_or_says_nothing_is_told_with_the_step() {
    let mut fixture = Fixture::joined("steps");
    fixture.cloud.script(|script| script.frozen = true);
    let (deadline, now) = (clock::boot().plus_ms(300), fixture.now());
    fixture.cloud_link.dial(
        Session(1),
        deadline,
        now,
        fixture.poll.registry(),
        &mut fixture.events,
    );
    let server = fixture.link.server.clone();
    assert_eq!(
        fixture.down(),
        format!("{server} accepts TCP connections but does not answer in TLS")
    );
    // Failures that are known at once and cost nothing are separate: they are retried sooner.
    for (server, refused, expected) in [
        ("127.0.0.1:1", true, "cannot connect to 127.0.0.1:1: 127.0.0.1:1: Connection refused"),
        ("somewhere", false, "the cloud's address: got \"somewhere\", expected host:port"),
        ("[::1", false, "the cloud's address: got \"[::1\", expected host:port"),
    ] {
        fixture.link.server = server.to_owned();
        fixture.cloud_link = cloud_link(&fixture.link);
        let got = fixture.dial(2);
        let Err(Cause::Link(why) | Cause::Refused(why)) = &got else { panic!("{server}") };
        assert!(why.starts_with(expected), "{why}\n{expected}");
        assert_eq!(matches!(got, Err(Cause::Refused(_))), refused, "{server}");
    }
}

#[test]
fn a_node_that_never_joined_is_told_from_one_whose_certificate_does_not_do() {
    let mut fixture = Fixture::new("first", &Setup::default());
    let first = "the node has no certificate yet".to_owned();
    assert_eq!(fixture.dial(1), Err(Cause::NotJoined(first)));
    fixture.enrol(false).expect("it joins");
    fs::remove_file(&fixture.link.cert_file).expect("there is one");
    let got = fixture.dial(2);
    assert!(matches!(got, Err(Cause::Credentials(_))), "{got:?}");
}

#[test]
fn a_name_is_looked_up_in_a_child() {
    let _alone = crate::jobs::alone();
    let mut fixture =
        Fixture::new("names", &Setup { names: vec!["localhost".to_owned()], ..Setup::default() });
    fixture.enrol(false).expect("it joins");
    let port = fixture.cloud.websocket.port();
    fixture.link.server = format!("localhost:{port}");
    fixture.cloud_link = cloud_link(&fixture.link);
    fixture.dial(1).expect("it connects");
    // As SIGCHLD would report; no zombie is left.
    let reaped = |fixture: &mut Fixture| {
        let ended = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        fixture.cloud_link.reap();
        assert!(ended.is_err() || waitid(Id::All, WaitPidFlag::WEXITED).is_err(), "{ended:?}");
    };
    reaped(&mut fixture);
    fixture.link.server = format!("no.such.host.invalid:{port}");
    fixture.cloud_link = cloud_link(&fixture.link);
    let Err(Cause::Link(why)) = fixture.dial(2) else { panic!("there is no such host") };
    assert!(why.starts_with("cannot look up \"no.such.host.invalid\": "), "{why}");
    reaped(&mut fixture);
}

#[test]
fn credentials_are_read_for_every_dial() {
    let mut fixture = Fixture::up("reload");
    let first = fixture.cloud.connected(1).certificate;
    fixture.enrol(true).expect("it renews");
    let sent = fixture.cloud.https_requests().pop().expect("it sent a request");
    assert!(sent.shown && sent.headers.iter().all(|(name, _)| name != "authorization"));
    fixture.dial(2).expect("it connects");
    assert_ne!(fixture.cloud.connected(2).certificate, first, "the new one is in force");
    fs::remove_file(&fixture.link.key_file).expect("there is one");
    let Err(Cause::Credentials(why)) = fixture.dial(3) else { panic!("there is no key") };
    assert!(why.starts_with("cannot read "), "{why}");
}

#[test]
fn an_empty_name_in_the_clouds_certificate_spoils_nothing() {
    for names in [vec![""], vec!["", "cloud.example"], vec!["cloud.example"], vec![]] {
        let names = names.into_iter().map(str::to_owned).collect();
        let mut fixture = Fixture::new("empty-name", &Setup { names, ..Setup::default() });
        fixture.enrol(false).expect("it joins");
        fixture.dial(1).expect("it connects");
    }
}

#[test]
fn a_clock_in_1970_locks_nobody_out() {
    // The cloud's clock is right, and it verifies certificates by it.
    let setup = Setup { server_years: (2040, 2060), node_years: (2020, 2060), ..Setup::default() };
    let mut fixture = Fixture::new("clock", &setup);
    // In 1970, and in a year before the cloud's.
    for (session, wall) in [(1, None), (2, Some(Wall(1_795_196_778_000)))] {
        fixture.wall = wall;
        fixture.enrol(false).expect("it joins");
        fixture.enrol(true).expect("it renews");
        fixture.dial(session).expect("it connects");
    }
    // After both have ended.
    fixture.wall = Some(Wall(2_900_000_000_000));
    let Err(Cause::Credentials(why)) = fixture.dial(3) else { panic!("it has ended") };
    assert!(why.ends_with("server.crt: the certificate expired at 2060-01-01T00:00:00Z"), "{why}");
    let why = fixture.enrol(false).expect_err("the cloud's has ended as well").to_string();
    assert!(
        why.contains("the certificate of the cloud has expired, by this machine's clock"),
        "{why}"
    );
}

#[test]
fn a_certificate_that_is_not_ours_is_told_before_the_cloud_is_bothered() {
    let mut fixture = Fixture::joined("other-node");
    fixture.link.node_name = "edge-2".to_owned();
    fixture.cloud_link = cloud_link(&fixture.link);
    let Err(Cause::Credentials(why)) = fixture.dial(1) else { panic!("it is another's") };
    let expected = "got the certificate of \"system:node:edge-1\", expected \"system:node:edge-2\"";
    assert!(why.ends_with(expected), "{why}");
    assert!(fixture.cloud.upgrades().is_empty());
}

#[test]
fn a_cloud_that_does_not_take_the_certificate_makes_the_node_apply() {
    let mut fixture = Fixture::joined("alert");
    let other = Fixture::joined("alert-other");
    // The node's own pair is of another cloud than its CA.
    for (to, from) in [
        (&fixture.link.cert_file, &other.link.cert_file),
        (&fixture.link.key_file, &other.link.key_file),
    ] {
        fs::copy(from, to).expect("a copy");
    }
    for session in 1..10 {
        let got = fixture.dial(session);
        let Err(Cause::Credentials(why)) = &got else { panic!("{got:?}") };
        assert!(why.contains("does not accept the certificate"), "{why}");
    }
    // And in the other direction the node rejects the cloud.
    fs::copy(&other.link.ca_file, &fixture.link.ca_file).expect("a copy");
    let Err(Cause::Link(why)) = fixture.dial(10) else { panic!("it is another cloud") };
    assert!(why.contains("has no certificate of the CA in "), "{why}");
}

#[test]
fn a_power_cut_between_two_names_leaves_a_whole_pair() {
    let mut fixture = Fixture::joined("cut");
    let (cert, key) = (fixture.link.cert_file.clone(), fixture.link.key_file.clone());
    let read = |path: &str| fs::read(path).expect("it is there");
    let old = (read(&cert), read(&key));
    fixture.enrol(true).expect("it renews");
    let new = (read(&cert), read(&key));
    assert_ne!(old, new);
    let beside = |path: &str| format!("{path}.new");
    // The certificate, the key, and the files beside them, at each step of a replacement.
    let states: [[Option<&Vec<u8>>; 4]; 5] = [
        [Some(&old.0), Some(&old.1), None, Some(&new.1)],
        [Some(&old.0), Some(&old.1), Some(&new.0), Some(&new.1)],
        [Some(&old.0), Some(&new.1), Some(&new.0), None],
        [Some(&new.0), Some(&old.1), None, Some(&new.1)],
        [None, None, Some(&new.0), Some(&new.1)],
    ];
    for (at, state) in states.iter().enumerate() {
        for (path, bytes) in [&cert, &key, &beside(&cert), &beside(&key)].iter().zip(state) {
            let _ = fs::remove_file(path);
            if let Some(bytes) = bytes {
                fs::write(path, bytes).expect("a file");
            }
        }
        fixture.dial(at as u64 + 1).unwrap_or_else(|cause| panic!("state {at}: {cause}"));
        let pair = (read(&cert), read(&key));
        assert!(pair == old || pair == new, "state {at}: a mixture");
    }
}

#[test]
fn what_stands_against_joining_is_told_in_a_sentence() {
    let mut fixture = Fixture::new("refused", &Setup::default());
    let reported = |fixture: &Fixture, expected: &str| {
        let why = fixture.enrol(false).expect_err("it cannot").to_string();
        assert!(why.contains(expected), "{why}\n{expected}");
        assert!(!why.contains("eyJ"), "the token is told: {why}");
    };
    fixture.cloud.script(|script| script.refuse = Some(500));
    reported(&fixture, "/ca.crt: the cloud refuses (500): the test refuses");
    fixture.cloud.script(|script| script.refuse = None);
    let token = fixture.cloud.token();
    let hash = "0".repeat(64);
    fixture.link.token = Secret::new(&format!("{hash}{}", &token[64..]));
    reported(&fixture, "the token is of another cloud, or the connection is intercepted");
    fixture.link.token = Secret::new(&format!("{token}x"));
    reported(
        &fixture,
        "/edge.crt: the cloud refuses (401): Invalid authorization token; tokens are valid for a \
         day",
    );
    fixture.link.token = Secret::new("secret");
    reported(&fixture, "modules.edgeHub.token: got a token of 1 parts, expected the four");
    fixture.link.token = Secret::default();
    reported(&fixture, "the node has no token for a certificate request: ");
    assert!(
        !Path::new(&fixture.link.ca_file).exists() && !Path::new(&fixture.link.cert_file).exists()
    );
    // The file overrides the configuration.
    fs::create_dir_all(&fixture.dir).expect("a folder");
    fs::write(&fixture.link.token_file, format!("{token}\n")).expect("a file");
    fixture.enrol(false).expect("it joins");
    fixture.link.http_server = "https://127.0.0.1:1".to_owned();
    reported(
        &fixture,
        "https://127.0.0.1:1/ca.crt: cannot connect: 127.0.0.1:1: Connection refused",
    );
    fixture.link.http_server = "http://127.0.0.1:1".to_owned();
    reported(&fixture, "httpServer: got \"http://127.0.0.1:1\", expected https://host:port");
}

#[test]
fn a_child_applies_and_its_failure_is_a_sentence() {
    let _alone = crate::jobs::alone();
    let mut fixture = Fixture::new("child", &Setup::default());
    let request = |fixture: &Fixture, number: u64, renew: bool| {
        let roots = Roots::new(&fixture.dir.join("kubelet"), fixture.dir.join("logs"), None);
        let roots = roots.with_link(Some(fixture.link.clone()));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_edged"));
        let mut jobs = Jobs::new(program, roots);
        let mut answers = Vec::new();
        let spec = JobSpec::Enrol { renew };
        jobs.start(JobId(number), spec, clock::boot().plus_ms(60_000), &mut answers);
        waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("there is a child");
        jobs.reap(&mut answers);
        match answers.pop() {
            Some(Event::Job(JobId(got), done)) if got == number => done,
            other => panic!("{other:?}"),
        }
    };
    let renewed = request(&fixture, 1, true);
    let Err(JobError::Failed(why)) = renewed else { panic!("{renewed:?}") };
    assert!(why.starts_with("cannot read "), "{why}");
    assert_eq!(request(&fixture, 2, false), Ok(JobReply::Done));
    assert_eq!(request(&fixture, 3, true), Ok(JobReply::Done));
    fixture.dial(1).expect("it connects");
}

#[test]
fn a_person_joins_with_keadms_words() {
    let fixture = Fixture::new("command", &Setup::default());
    let root = fixture.dir.join("root");
    let token = fixture.cloud.token();
    fs::create_dir_all(&fixture.dir).expect("a folder");
    let piped = fixture.dir.join("token");
    fs::write(&piped, format!("{token}\n")).expect("a file");
    let from_file = ["--token-file", piped.to_str().expect("UTF-8")];
    let join = |name: &str, words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_edged"))
            .args(["join", "--cloudcore-ipport", &fixture.link.server])
            .args(["--certport", &fixture.cloud.https.port().to_string(), "--edgenode-name", name])
            .arg("--root")
            .arg(&root)
            .args(words)
            .stdin(File::open(&piped).expect("it was written"))
            .output()
            .expect("it runs");
        let output = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(output).expect("text"))
    };
    let _alone = crate::jobs::alone();
    fixture.cloud.script(|script| script.nodes = vec!["taken".to_owned()]);
    let (code, output) = join("taken", &from_file);
    assert!(output.contains("the cloud has a node \"taken\" already"), "{output}");
    assert_eq!(code, Some(1));
    assert!(!root.exists(), "nothing is written");
    let (code, output) = join("gw", &["--with-mqtt=true", "--token", "-"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("--with-mqtt: edged starts no broker"), "{output}");

    let (code, output) = join("gw", &["--cgroupdriver", "systemd", "--token", "-"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(!output.contains("on the command line"), "{output}");
    assert!(output.contains(" as node gw\n") && !output.contains(&token), "{output}");
    let file = |path: &str| root.join(path).to_string_lossy().into_owned();
    let token_file = file("etc/kubeedge/bootstrap-edgecore.conf");
    assert_eq!(fs::read_to_string(&token_file).expect("it is there"), format!("{token}\n"));
    assert_eq!(mode(&token_file), 0o640);
    assert_eq!(mode(&file("etc/kubeedge/certs/server.key")), 0o600);
    // The written configuration is readable, and names the same cloud.
    let config = file("etc/kubeedge/config/edgecore.yaml");
    let flags = ["--config".into(), config.into()];
    let config = edged::config::load(&flags, None).expect("it can be read").config;
    let link = config.link();
    assert!(config.cloud.is_configured());
    assert_eq!((&*link.server, &*link.node_name), (&*fixture.link.server, "gw"));
    assert_eq!(link.http_server, fixture.link.http_server);
    assert_eq!(link.cert_file, file("etc/kubeedge/certs/server.crt"));
    assert_eq!(mode(&file("etc/kubeedge/config/edgecore.yaml")), 0o600);
    for (path, expected) in [
        (&config.cloud.store, "var/lib/kubeedge/edgecore.db"),
        (&config.root, "var/lib/kubelet"),
        (&config.pod_logs, "var/log/pods"),
        (&config.manifests, "etc/kubeedge/manifests"),
    ] {
        assert_eq!(*path, file(expected), "all lies below the root that was given");
    }
    // Once more, though the cloud has the node by now.
    fixture.cloud.script(|script| script.nodes.push("gw".to_owned()));
    let (code, output) = join("gw", &["--token", &token]);
    assert!(code == Some(0) && output.contains("(unchanged)"), "{output}");
    assert!(output.contains("the token was on the command line"), "{output}");
}
