//! The controller's own API and its commands, with the real programs: who is shown what, and the
//! handling of applied files. Waiting is only for lines of its log.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::MutexGuard;

use crate::port::free_port;

const PROGRAM: &str = env!("CARGO_BIN_EXE_edgecontroller");

struct Controller {
    dir: PathBuf,
    api: SocketAddr,
    child: Child,
    /// Kept open, or the controller could not write its log.
    _log: BufReader<ChildStderr>,
    _alone: MutexGuard<'static, ()>,
}

impl Controller {
    fn start(name: &str) -> Self {
        Self::start_by(name, "exec \"$@\"")
    }

    /// Started by a shell script that has `"$@"` for it.
    fn start_by(name: &str, shell: &str) -> Self {
        let alone = crate::jobs::alone();
        let dir = std::env::temp_dir().join(format!("edged-people-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("manifests")).expect("a folder for the test");
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let any = "127.0.0.1:0";
        let mut child = Command::new("sh")
            .args(["-c", shell, "sh", PROGRAM, "run", "--listen-hub", any, "--listen-https", any])
            .args(["--listen-tunnel", "off", "--api", &api.to_string(), "--data"])
            .arg(dir.join("data"))
            .arg("--manifests")
            .arg(dir.join("manifests"))
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let (mut output, mut open) = (String::new(), 0);
        while open < 2 {
            let mut line = String::new();
            assert!(log.read_line(&mut line).expect("it can be read") > 0, "it ended:\n{output}");
            open += usize::from(line.contains("the controller's API listens on"));
            output.push_str(&line);
        }
        Self { dir, api, child, _log: log, _alone: alone }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("data/api.sock")
    }

    /// Exit code, standard output, standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(PROGRAM);
        let done = command.args(args).arg("--data").arg(self.dir.join("data")).output();
        let done = done.expect("it starts");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.join(name);
        fs::write(&path, text).expect("a file of ours");
        path.display().to_string()
    }

    /// The names in its manifest folder.
    fn applied(&self) -> Vec<String> {
        names(&self.dir.join("manifests"))
    }

    fn on_port(&self, text: &str) -> String {
        request(TcpStream::connect(self.api).expect("it listens"), text)
    }

    fn on_socket(&self, text: &str) -> String {
        request(UnixStream::connect(self.socket()).expect("it listens"), text)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn request(mut stream: impl Read + Write, text: &str) -> String {
    stream.write_all(text.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn pod(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {more}\n  containers:\n  \
         - {{name: c, image: i}}\n"
    )
}

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n";

#[test]
fn objects_are_for_who_may_open_the_socket() {
    let controller = Controller::start("socket");
    let mode = fs::metadata(controller.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let file = controller.file("s.yaml", SECRET);
    let done = controller.run(&["apply", "-f", &file]);
    assert_eq!(done, (Some(0), "secret/s created\n".to_owned(), String::new()));
    let of = |method: &str, path: &str, more: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    };
    for request in [
        of("GET", "/api/v1/secrets", ""),
        of("GET", "/api/v1/namespaces/default/pods/web", ""),
        of("DELETE", "/api/v1/namespaces/default/secrets/s", ""),
        of("POST", "/apply", "Content-Type: application/yaml\r\nContent-Length: 0\r\n"),
    ] {
        let text = controller.on_port(&request);
        assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("unix socket"), "{text}");
    }
    assert!(controller.on_port(&of("GET", "/metrics", "")).starts_with("HTTP/1.1 200 "));
    let text = controller.on_socket(&of("GET", "/api/v1/secrets", ""));
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("Yg=="), "{text}");
}

#[test]
fn web_pages_are_refused() {
    let controller = Controller::start("pages");
    for headers in [
        "Host: evil.example\r\n",
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "",
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        for text in [controller.on_port(&request), controller.on_socket(&request)] {
            assert!(text.starts_with("HTTP/1.1 403 "), "{headers:?}: {text}");
        }
    }
    let request = "GET /metrics HTTP/1.1\r\nHost: [::1]:1\r\nOrigin: http://localhost:8080\r\n\r\n";
    assert!(controller.on_port(request).starts_with("HTTP/1.1 200 "));
}

const TOKEN: &str = "0123456789abcdef0123";

#[test]
fn a_browser_gets_the_page_of_the_controller() {
    let controller = Controller::start("browser");
    for (path, text) in [("/", "<h1"), ("/page.css", "dark"), ("/load.js", "/edgecontroller/")] {
        let with = |headers: &str| {
            controller.on_port(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n"))
        };
        let answer = with("Host: localhost");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(text), "{path}: {answer}");
        assert!(answer.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{answer}");
        for headers in
            ["Host: rebound.example", "Host: localhost\r\nOrigin: http://rebound.example"]
        {
            assert!(with(headers).starts_with("HTTP/1.1 403 "), "{path}: {headers}");
        }
    }
}

#[test]
fn the_port_shows_nodes_and_logs_to_who_has_the_token_and_nothing_else() {
    let controller = Controller::start("token");
    let gw = "apiVersion: v1\nkind: Node\nmetadata: {name: gw, annotations: {a: passw0rd}}\n";
    let gw = controller.file("gw.yaml", gw);
    let secret = controller.file("s.yaml", SECRET);
    assert_eq!(controller.run(&["apply", "-f", &gw, "-f", &secret]).0, Some(0));
    let ask = |method: &str, path: &str, token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n")
    };
    let nodes = "/edgecontroller/nodes";
    let none = controller.on_port(&ask("GET", nodes, TOKEN));
    assert!(none.starts_with("HTTP/1.1 401 ") && none.contains("/data/api.token"), "{none}");
    fs::write(controller.dir.join("data/api.token"), TOKEN).expect("written");
    // A file in the folder becomes an object in the next turn.
    while !controller.on_port(&ask("GET", nodes, TOKEN)).contains("\"gw\"") {}
    let log = "/containerLogs/default/nobody/c";
    for (method, path, token, status) in [
        ("GET", nodes, TOKEN, 200),
        ("GET", nodes, "0123456789abcdefXXXX", 401),
        ("GET", nodes, "", 401),
        ("GET", "/edgecontroller/nodes/gw", TOKEN, 200),
        ("GET", "/edgecontroller/nodes/gw", "", 401),
        ("GET", "/edgecontroller/nodes/nobody", TOKEN, 404),
        ("GET", log, TOKEN, 404),
        ("GET", log, "", 401),
        ("POST", nodes, TOKEN, 403),
        ("DELETE", "/api/v1/nodes/gw", TOKEN, 403),
        ("GET", "/api/v1/nodes", TOKEN, 403),
        ("GET", "/api/v1/secrets", TOKEN, 403),
        ("GET", "/exec/default/nobody/c?command=ls&output=1", TOKEN, 403),
        ("POST", "/portForward/default/nobody", TOKEN, 403),
        ("GET", "/nodes/gw/stats/summary", TOKEN, 403),
    ] {
        let text = controller.on_port(&ask(method, path, token));
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {text}");
    }
    assert!(controller.on_socket(&ask("GET", nodes, "")).starts_with("HTTP/1.1 200 "));
    // What may be a secret is for who may open the socket.
    let one = ask("GET", "/edgecontroller/nodes/gw", TOKEN);
    let (port, socket) = (controller.on_port(&one), controller.on_socket(&one));
    assert!(port.contains("<redacted>") && !port.contains("passw0rd"), "{port}");
    assert!(socket.contains("passw0rd"), "{socket}");
}

#[test]
fn of_many_nodes_those_are_shown_whose_name_is_typed() {
    let controller = Controller::start("nodes");
    let count = edged::limits::PAGE_NODES_MAX + 1;
    let node = |n: usize| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: gw-{n}}}\n---\n");
    let all = controller.file("all.yaml", &(1..=count).map(node).collect::<String>());
    fs::rename(all, controller.dir.join("manifests/all.yaml")).expect("a file of ours");
    let shown = |query: &str| {
        let path = format!("/edgecontroller/nodes?match={query}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let text = controller.on_socket(&request);
        let (_, body) = text.split_once("\r\n\r\n").expect("a head");
        let body: serde_json::Value = serde_json::from_str(body).expect(body);
        (body["total"].clone(), body["nodes"].as_array().map(Vec::len))
    };
    while shown("").0 != count {}
    assert_eq!(shown("").1, Some(count - 1));
    assert_eq!(shown("w-20"), (3.into(), Some(3)), "20, 200 and 201");
    assert_eq!(shown("%67w-201"), (1.into(), Some(1)));
    assert_eq!(shown("nobody"), (0.into(), Some(0)));
}

#[test]
fn a_full_port_says_so_at_once_and_keeps_nobody_from_the_socket() {
    let controller = Controller::start("full");
    let held: Vec<_> = (0..edged::limits::CONTROLLER_API_CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(controller.api).expect("it listens"))
        .collect();
    let mut text = String::new();
    let mut last = held.last().expect("there are some");
    last.read_to_string(&mut text).expect("it is told without a word of its own");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    let (code, _, why) = controller.run(&["get", "pods"]);
    assert_eq!(code, Some(0), "{why}");
}

#[test]
fn apply_says_what_became_of_each_object() {
    let controller = Controller::start("apply");
    fs::create_dir(controller.dir.join("all")).expect("a folder of ours");
    controller.file("all/b.yaml", SECRET);
    controller.file("all/a.json", r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"gw"}}"#);
    controller.file("all/README.md", "not a manifest");
    let folder = controller.dir.join("all").display().to_string();
    let web = controller.file("web.yaml", &pod("web", "nodeName: gw"));
    let (code, output, why) = controller.run(&["apply", "-f", &folder, "-f", &web]);
    assert_eq!((code, &*why), (Some(0), ""), "{output}");
    assert_eq!(output, "node/gw created\nsecret/s created\npod/web created\n");
    let web = controller.file("web.yaml", &pod("web", "nodeName: gw\n  priority: 1"));
    let (_, output, _) = controller.run(&["apply", "-f", &folder, "-f", &web]);
    assert_eq!(output, "node/gw unchanged\nsecret/s unchanged\npod/web configured\n");
    let none = controller.file("none.yaml", &pod("none", "restartPolicy: Never"));
    let (code, output, why) = controller.run(&["apply", "-f", &none]);
    assert_eq!((code, &*output), (Some(0), "pod/none created\n"));
    let expected = "pod/none: spec.nodeName: got none, so no node runs it\n";
    assert_eq!(why, format!("Warning: {none}: {expected}"));
    let odd = controller.file("odd.yaml", &pod("odd", "nodeName: gw2\n  hostUser: false"));
    let (_, _, why) = controller.run(&["apply", "-f", &odd]);
    assert!(why.contains("pod/odd: not known: spec.hostUser\n"), "{why}");
    assert!(why.contains("pod/odd: spec.nodeName: got \"gw2\", which has not joined yet"), "{why}");
}

#[test]
fn a_mistake_is_told_with_its_place_and_nothing_is_applied() {
    let controller = Controller::start("mistakes");
    let good = controller.file("good.yaml", SECRET);
    let large = "#".repeat(edged::limits::CONTROLLER_API_BODY_BYTES_MAX + 1);
    for (text, expected) in [
        ("kind: Pod\n  broken", ":1:1: got no apiVersion"),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: ../../evil}\n",
            ":3:18: metadata.name: got",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: c, namespace: a.b}\n",
            ":3:32: metadata.n",
        ),
        (&pod("web", "restartPolicy: Sometimes"), ":5:18: spec.restartPolicy: got"),
        (&pod("web", "dnsPolicy: None"), ":4:1: spec: spec.dnsConfig"),
        (&pod("Web", "nodeName: gw"), ":3:12: metadata.name: "),
        (&large, ": got more than 4194304 bytes, expected fewer"),
        ("# nothing\n", ": got no object, expected one"),
    ] {
        let bad = controller.file("bad.yaml", text);
        let (code, output, why) = controller.run(&["apply", "-f", &good, "-f", &bad]);
        assert_eq!((code, &*output), (Some(1), ""), "{why}");
        assert!(why.starts_with(&format!("{bad}{expected}")), "{why}");
        assert_eq!(controller.applied(), [] as [&str; 0], "{why}");
    }
    let (code, _, why) = controller.run(&["apply", "-f", "/nowhere/a.yaml"]);
    assert_eq!(code, Some(1));
    assert!(why.starts_with("/nowhere/a.yaml: No such file"), "{why}");
}

#[test]
fn a_name_leads_out_of_no_folder() {
    let controller = Controller::start("names");
    let request = "DELETE /api/v1/namespaces/..%2F..%2Fx/secrets/..%2F..%2Fevil HTTP/1.1\r\n\
                   Host: localhost\r\n\r\n";
    assert!(controller.on_socket(request).starts_with("HTTP/1.1 404 "));
    for (namespace, name) in [("a", "b.c"), ("b", "c")] {
        let text = SECRET.replace("name: s", &format!("name: {name}, namespace: {namespace}"));
        let file = controller.file("s.yaml", &text);
        assert_eq!(controller.run(&["apply", "-f", &file]).0, Some(0));
    }
    assert_eq!(controller.applied(), ["secret.a.b.c.json", "secret.b.c.json"]);
}

#[test]
fn one_object_is_got_by_its_name() {
    let controller = Controller::start("get");
    let file = controller.file("s.yaml", &format!("{SECRET}---\n{}", pod("web", "nodeName: gw")));
    assert_eq!(controller.run(&["apply", "-f", &file]).0, Some(0));
    // A file in the folder becomes an object in the next turn.
    while controller.run(&["get", "pod", "web"]).0 != Some(0) {}
    let (_, output, _) = controller.run(&["get", "pod", "web", "-o", "yaml"]);
    assert!(output.contains("\nkind: Pod\n") && output.contains("\n  nodeName: gw\n"), "{output}");
    let (_, output, _) = controller.run(&["get", "secrets", "s", "-o", "json"]);
    assert!(output.contains("\"a\": \"Yg==\"") && !output.contains("items"), "{output}");
    let (_, output, _) = controller.run(&["get", "secrets"]);
    assert!(output.starts_with("NAMESPACE   NAME   AGE\ndefault     s      "), "{output}");
    let (code, _, why) = controller.run(&["get", "pod", "web2"]);
    assert_eq!((code, &*why), (Some(1), "edgecontroller get: pods \"web2\" not found\n"));
    let (code, _, why) = controller.run(&["delete", "secret", "t"]);
    assert_eq!((code, &*why), (Some(1), "edgecontroller delete: secrets \"t\" not found\n"));
    let (code, output, _) = controller.run(&["delete", "secret/s"]);
    assert_eq!((code, &*output), (Some(0), "secret/s deleted\n"));
}

#[test]
fn a_pod_of_a_node_that_is_gone_is_deleted_by_force() {
    let controller = Controller::start("force");
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"gw"}}"#;
    let node = controller.file("gw.json", node);
    let web = controller.file("web.yaml", &pod("web", "nodeName: gw"));
    assert_eq!(controller.run(&["apply", "-f", &node, "-f", &web]).0, Some(0));
    let is = |code| controller.run(&["get", "pod", "web"]).0 == Some(code);
    while !is(0) {}
    assert_eq!(controller.run(&["delete", "pod", "web"]).0, Some(0));
    let ends = || controller.run(&["get", "pod", "web", "-o", "yaml"]).1;
    // Its node should report that it has ended, and does not.
    while !ends().contains("deletionTimestamp") {}
    assert!(is(0));
    assert_eq!(controller.run(&["delete", "--force", "pod", "web"]).0, Some(0));
    assert!(is(1), "at once");
    // The same for one whose file still exists.
    assert_eq!(controller.run(&["apply", "-f", &web]).0, Some(0));
    while !is(0) {}
    let (code, output, why) = controller.run(&["delete", "--force", "pod/web"]);
    assert_eq!((code, &*output), (Some(0), "pod/web deleted\n"), "{why}");
    assert!(is(1), "at once");
    assert_eq!(controller.applied(), ["node..gw.json"]);
}

#[test]
fn each_metric_has_its_help() {
    let controller = Controller::start("help");
    let text = controller.on_port("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let lines: Vec<&str> = text.lines().collect();
    let types: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at].starts_with("# TYPE ")).collect();
    assert!(types.len() >= 18, "{text}");
    for at in types {
        let name = lines[at].split(' ').nth(2).expect("a name");
        let help = lines[at - 1].strip_prefix(&format!("# HELP {name} "));
        assert!(help.is_some_and(|help| help.len() > 5), "{}", lines[at]);
    }
}

#[test]
fn a_disk_that_is_full_keeps_no_half_of_a_file() {
    // No file becomes larger than a MiB, and the user gets an error for a larger one.
    let controller = Controller::start_by("full-disk", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"");
    // JSON needs two bytes for each.
    let data = "\"".repeat(600_000);
    let text =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{a: '{data}'}}\n");
    let file = controller.file("m.yaml", &text);
    let (code, output, why) = controller.run(&["apply", "-f", &file]);
    assert_eq!((code, &*output), (Some(1), ""), "{why}");
    assert!(why.starts_with(&file) && why.contains("File too large"), "{why}");
    assert_eq!(controller.applied(), [] as [&str; 0]);
}

#[test]
fn who_asks_nobody_is_told_which_program_is_meant() {
    let _alone = crate::jobs::alone();
    for args in [["--server", "127.0.0.1:1"], ["--data", "/nowhere"]] {
        let done = Command::new(PROGRAM).args(["get", "pods"]).args(args).output();
        let done = done.expect("it starts");
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{why}");
        assert!(why.contains("is edgecontroller running (`edgecontroller run`)?"), "{why}");
    }
}
