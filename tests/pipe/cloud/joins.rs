//! Joining, dialling, and whom both sides believe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use edged::agent::event::{Event, JobId};
use edged::agent::time::Wall;
use edged::io::clock;
use edged::io::job::{Jobs, Roots};
use edged::model::job::{JobError, JobSpec};
use edged::model::link::{Cause, Session};
use edged::model::settings::Secret;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::{Desk, hands, mode};
use crate::stub::Setup;

#[test]
fn a_node_joins_and_its_files_lie_where_kubeedge_has_them() {
    let desk = Desk::joined("join");
    let link = &desk.link;
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
    let asked = desk.cloud.asked();
    let what: Vec<_> = asked.iter().map(|it| (&*it.what, it.shown)).collect();
    assert_eq!(what, [("GET /ca.crt", false), ("GET /edge.crt", false)]);
    let names: Vec<_> = asked[1].headers.iter().map(|(name, _)| &**name).collect();
    assert!(["authorization", "nodename", "content-length"].iter().all(|it| names.contains(it)));
}

#[test]
fn a_session_has_edgecores_path_and_headers_and_no_others() {
    let mut desk = Desk::joined("headers");
    let validity = desk.dial(1).expect("it connects");
    assert_eq!((validity.not_before_s, validity.not_after_s), (1_577_836_800, 4_102_444_800));
    let upgrade = desk.cloud.connected(1);
    assert_eq!(upgrade.path, "/e632aba927ea4ac2b575ec1603d56f10/edge-1/events");
    let mut headers = upgrade.headers.clone();
    headers.retain(|(name, _)| name != "sec-websocket-key");
    headers.sort();
    let address = desk.cloud.websocket.to_string();
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
    let mut desk = Desk::joined("steps");
    desk.cloud.script(|script| script.frozen = true);
    let (deadline, now) = (clock::boot().plus_ms(300), desk.now());
    desk.hands.dial(Session(1), deadline, now, desk.poll.registry(), &mut desk.events);
    let server = desk.link.server.clone();
    assert_eq!(desk.down(), format!("{server} accepts TCP connections but does not answer in TLS"));
    // What is known at once and costs nothing is told apart: it is tried again sooner.
    for (server, refused, expected) in [
        ("127.0.0.1:1", true, "cannot connect to 127.0.0.1:1: 127.0.0.1:1: Connection refused"),
        ("somewhere", false, "the cloud's address: got \"somewhere\", expected host:port"),
        ("[::1", false, "the cloud's address: got \"[::1\", expected host:port"),
    ] {
        desk.link.server = server.to_owned();
        desk.hands = hands(&desk.link);
        let got = desk.dial(2);
        let Err(Cause::Link(why) | Cause::Refused(why)) = &got else { panic!("{server}") };
        assert!(why.starts_with(expected), "{why}\n{expected}");
        assert_eq!(matches!(got, Err(Cause::Refused(_))), refused, "{server}");
    }
}

#[test]
fn a_node_that_never_joined_is_told_from_one_whose_certificate_does_not_do() {
    let mut desk = Desk::new("first", &Setup::default());
    let first = "the node has no certificate yet".to_owned();
    assert_eq!(desk.dial(1), Err(Cause::NotJoined(first)));
    desk.enrol(false).expect("it joins");
    fs::remove_file(&desk.link.cert_file).expect("there is one");
    let got = desk.dial(2);
    assert!(matches!(got, Err(Cause::Credentials(_))), "{got:?}");
}

#[test]
fn a_name_is_looked_up_in_a_child() {
    let _alone = crate::jobs::alone();
    let mut desk =
        Desk::new("names", &Setup { names: vec!["localhost".to_owned()], ..Setup::default() });
    desk.enrol(false).expect("it joins");
    let port = desk.cloud.websocket.port();
    desk.link.server = format!("localhost:{port}");
    desk.hands = hands(&desk.link);
    desk.dial(1).expect("it connects");
    // As SIGCHLD would tell; nothing is left that nobody waits for.
    let reaped = |desk: &mut Desk| {
        let ended = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        desk.hands.reap();
        assert!(ended.is_err() || waitid(Id::All, WaitPidFlag::WEXITED).is_err(), "{ended:?}");
    };
    reaped(&mut desk);
    desk.link.server = format!("no.such.host.invalid:{port}");
    desk.hands = hands(&desk.link);
    let Err(Cause::Link(why)) = desk.dial(2) else { panic!("there is no such host") };
    assert!(why.starts_with("cannot look up \"no.such.host.invalid\": "), "{why}");
    reaped(&mut desk);
}

#[test]
fn credentials_are_read_for_every_dial() {
    let mut desk = Desk::up("reload");
    let first = desk.cloud.connected(1).certificate;
    desk.enrol(true).expect("it renews");
    let asked = desk.cloud.asked().pop().expect("it asked");
    assert!(asked.shown && asked.headers.iter().all(|(name, _)| name != "authorization"));
    desk.dial(2).expect("it connects");
    assert_ne!(desk.cloud.connected(2).certificate, first, "the new one is in force");
    fs::remove_file(&desk.link.key_file).expect("there is one");
    let Err(Cause::Credentials(why)) = desk.dial(3) else { panic!("there is no key") };
    assert!(why.starts_with("cannot read "), "{why}");
}

#[test]
fn an_empty_name_in_the_clouds_certificate_spoils_nothing() {
    for names in [vec![""], vec!["", "cloud.example"], vec!["cloud.example"], vec![]] {
        let names = names.into_iter().map(str::to_owned).collect();
        let mut desk = Desk::new("empty-name", &Setup { names, ..Setup::default() });
        desk.enrol(false).expect("it joins");
        desk.dial(1).expect("it connects");
    }
}

#[test]
fn a_clock_in_1970_locks_nobody_out() {
    // The cloud itself lives in our time, and judges what it is shown by it.
    let setup = Setup { server_years: (2040, 2060), node_years: (2020, 2060), ..Setup::default() };
    let mut desk = Desk::new("clock", &setup);
    // In 1970, and in a year before the cloud's.
    for (session, wall) in [(1, None), (2, Some(Wall(1_795_196_778_000)))] {
        desk.wall = wall;
        desk.enrol(false).expect("it joins");
        desk.enrol(true).expect("it renews");
        desk.dial(session).expect("it connects");
    }
    // After both have ended.
    desk.wall = Some(Wall(2_900_000_000_000));
    let Err(Cause::Credentials(why)) = desk.dial(3) else { panic!("it has ended") };
    assert!(why.ends_with("server.crt: the certificate expired at 2060-01-01T00:00:00Z"), "{why}");
    let why = desk.enrol(false).expect_err("the cloud's has ended as well");
    assert!(
        why.contains("the certificate of the cloud has expired, by this machine's clock"),
        "{why}"
    );
}

#[test]
fn a_certificate_that_is_not_ours_is_told_before_the_cloud_is_bothered() {
    let mut desk = Desk::joined("other-node");
    desk.link.node_name = "edge-2".to_owned();
    desk.hands = hands(&desk.link);
    let Err(Cause::Credentials(why)) = desk.dial(1) else { panic!("it is another's") };
    let expected = "got the certificate of \"system:node:edge-1\", expected \"system:node:edge-2\"";
    assert!(why.ends_with(expected), "{why}");
    assert!(desk.cloud.upgrades().is_empty());
}

#[test]
fn a_cloud_that_does_not_take_the_certificate_makes_the_node_apply() {
    let mut desk = Desk::joined("alert");
    let other = Desk::joined("alert-other");
    // The node's own pair is of another cloud than its CA.
    for (to, from) in
        [(&desk.link.cert_file, &other.link.cert_file), (&desk.link.key_file, &other.link.key_file)]
    {
        fs::copy(from, to).expect("a copy");
    }
    for session in 1..10 {
        let got = desk.dial(session);
        let Err(Cause::Credentials(why)) = &got else { panic!("{got:?}") };
        assert!(why.contains("does not accept the certificate"), "{why}");
    }
    // And the other way round the cloud is not believed.
    fs::copy(&other.link.ca_file, &desk.link.ca_file).expect("a copy");
    let Err(Cause::Link(why)) = desk.dial(10) else { panic!("it is another cloud") };
    assert!(why.contains("has no certificate of the CA in "), "{why}");
}

#[test]
fn a_power_cut_between_two_names_leaves_a_whole_pair() {
    let mut desk = Desk::joined("cut");
    let (cert, key) = (desk.link.cert_file.clone(), desk.link.key_file.clone());
    let read = |path: &str| fs::read(path).expect("it is there");
    let old = (read(&cert), read(&key));
    desk.enrol(true).expect("it renews");
    let new = (read(&cert), read(&key));
    assert_ne!(old, new);
    let beside = |path: &str| format!("{path}.new");
    // The certificate, the key, and what lies beside them, at each place of a replacement.
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
        desk.dial(at as u64 + 1).unwrap_or_else(|cause| panic!("state {at}: {cause}"));
        let pair = (read(&cert), read(&key));
        assert!(pair == old || pair == new, "state {at}: a mixture");
    }
}

#[test]
fn what_stands_against_joining_is_told_in_a_sentence() {
    let mut desk = Desk::new("refused", &Setup::default());
    let told = |desk: &Desk, expected: &str| {
        let why = desk.enrol(false).expect_err("it cannot");
        assert!(why.contains(expected), "{why}\n{expected}");
        assert!(!why.contains("eyJ"), "the token is told: {why}");
    };
    desk.cloud.script(|script| script.refuse = Some(500));
    told(&desk, "/ca.crt: the cloud refuses (500): the test says no");
    desk.cloud.script(|script| script.refuse = None);
    let token = desk.cloud.token();
    let hash = "0".repeat(64);
    desk.link.token = Secret::new(&format!("{hash}{}", &token[64..]));
    told(&desk, "the token is of another cloud, or the connection is intercepted");
    desk.link.token = Secret::new(&format!("{token}x"));
    told(
        &desk,
        "/edge.crt: the cloud refuses (401): Invalid authorization token; tokens are valid for a \
         day",
    );
    desk.link.token = Secret::new("secret");
    told(&desk, "modules.edgeHub.token: got a token of 1 parts, expected the four");
    desk.link.token = Secret::default();
    told(&desk, "the node has no token for a certificate request: ");
    assert!(!Path::new(&desk.link.ca_file).exists() && !Path::new(&desk.link.cert_file).exists());
    // The file stands over the configuration.
    fs::create_dir_all(&desk.dir).expect("a folder");
    fs::write(&desk.link.token_file, format!("{token}\n")).expect("a file");
    desk.enrol(false).expect("it joins");
    desk.link.http_server = "https://127.0.0.1:1".to_owned();
    told(&desk, "https://127.0.0.1:1/ca.crt: cannot connect: 127.0.0.1:1: Connection refused");
    desk.link.http_server = "http://127.0.0.1:1".to_owned();
    told(&desk, "httpServer: got \"http://127.0.0.1:1\", expected https://host:port");
}

#[test]
fn a_child_applies_and_its_failure_is_a_sentence() {
    let _alone = crate::jobs::alone();
    let mut desk = Desk::new("child", &Setup::default());
    let ask = |desk: &Desk, number: u64, renew: bool| {
        let roots = Roots::new(&desk.dir.join("kubelet"), desk.dir.join("logs"), None);
        let roots = roots.with_link(Some(desk.link.clone()));
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
    let renewed = ask(&desk, 1, true);
    let Err(JobError::Failed(why)) = renewed else { panic!("{renewed:?}") };
    assert!(why.starts_with("cannot read "), "{why}");
    assert_eq!(ask(&desk, 2, false), Ok(()));
    assert_eq!(ask(&desk, 3, true), Ok(()));
    desk.dial(1).expect("it connects");
}

#[test]
fn a_person_joins_with_keadms_words() {
    let desk = Desk::new("command", &Setup::default());
    let root = desk.dir.join("root");
    let token = desk.cloud.token();
    fs::create_dir_all(&desk.dir).expect("a folder");
    let piped = desk.dir.join("token");
    fs::write(&piped, format!("{token}\n")).expect("a file");
    let from_file = ["--token-file", piped.to_str().expect("UTF-8")];
    let join = |name: &str, words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_edged"))
            .args(["join", "--cloudcore-ipport", &desk.link.server])
            .args(["--certport", &desk.cloud.https.port().to_string(), "--edgenode-name", name])
            .arg("--root")
            .arg(&root)
            .args(words)
            .stdin(File::open(&piped).expect("it was written"))
            .output()
            .expect("it runs");
        let said = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(said).expect("text"))
    };
    let _alone = crate::jobs::alone();
    desk.cloud.script(|script| script.nodes = vec!["taken".to_owned()]);
    let (code, said) = join("taken", &from_file);
    assert!(said.contains("the cloud has a node \"taken\" already"), "{said}");
    assert_eq!(code, Some(1));
    assert!(!root.exists(), "nothing is written");
    let (code, said) = join("gw", &["--with-mqtt=true", "--token", "-"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--with-mqtt: edged starts no broker"), "{said}");

    let (code, said) = join("gw", &["--cgroupdriver", "systemd", "--token", "-"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("on the command line"), "{said}");
    assert!(said.contains(" as node gw\n") && !said.contains(&token), "{said}");
    let file = |path: &str| root.join(path).to_string_lossy().into_owned();
    let token_file = file("etc/kubeedge/bootstrap-edgecore.conf");
    assert_eq!(fs::read_to_string(&token_file).expect("it is there"), format!("{token}\n"));
    assert_eq!(mode(&token_file), 0o640);
    assert_eq!(mode(&file("etc/kubeedge/certs/server.key")), 0o600);
    // What was written is read, and names the same cloud.
    let config = file("etc/kubeedge/config/edgecore.yaml");
    let flags = ["--config".into(), config.into()];
    let config = edged::config::load(&flags, None).expect("it can be read").config;
    let link = config.link();
    assert!(config.cloud.is_configured());
    assert_eq!((&*link.server, &*link.node_name), (&*desk.link.server, "gw"));
    assert_eq!(link.http_server, desk.link.http_server);
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
    // And once more, though the cloud knows it by now.
    desk.cloud.script(|script| script.nodes.push("gw".to_owned()));
    let (code, said) = join("gw", &["--token", &token]);
    assert!(code == Some(0) && said.contains("(unchanged)"), "{said}");
    assert!(said.contains("the token was on the command line"), "{said}");
}
