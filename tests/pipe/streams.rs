//! The commands that stream, against an agent whose answers are those of a real containerd, kept in
//! `tests/golden/stream`: output, exit codes, and what is sent.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use edged::wire::tar::{self, Written};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

const POD: &str = r#"{"kind": "PodList", "items": [{"metadata": {"name": "web", "namespace": "shop",
    "annotations": {"kubectl.kubernetes.io/default-container": "main"}}, "spec": {"containers":
    [{"name": "side"}, {"name": "main"}, {"name": "shell", "tty": true}]}, "status":
    {"phase": "Running"}}]}"#;
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// The bytes of a capture in one direction, after the head.
fn captured(file: &str, arrow: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/stream/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).expect("the capture");
    let mut bytes = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.contains(&format!(" {arrow} ")) && line.ends_with(" bytes") {
            let line = lines.next().expect("the bytes follow").trim();
            let digits = line.strip_prefix("hex ").expect("hex").as_bytes();
            let digit = |byte: u8| char::from(byte).to_digit(16).expect("hex") as u8;
            bytes.extend(digits.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])));
        }
    }
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    bytes.split_off(head)
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    [&stream.to_be_bytes()[..], &[flags], &length[1..], bytes].concat()
}

/// The end of a command whose outputs are on streams 3 and 5.
fn success() -> Vec<u8> {
    let reset = [&[0x80, 3, 0, 3, 0, 0, 0, 8][..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat();
    let status = data(1, 0, br#"{"metadata":{},"status":"Success"}"#);
    [data(3, 1, b""), data(5, 1, b""), status, reset].concat()
}

/// An agent, and a command that calls it.
struct Agent {
    listener: TcpListener,
}

impl Agent {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").expect("a port") }
    }

    fn command(&self, args: &[&str]) -> Command {
        let server = self.listener.local_addr().expect("it listens").to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_edged"));
        // Behind `--` it would belong to the command in the container.
        command.args(&args[..1]).args(["--server", &server]).args(&args[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Accepts a connection; returns it with the head of its request.
    fn accept(&self) -> (TcpStream, String) {
        let (mut connection, _) = self.listener.accept().expect("it connects");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).expect("it sends a request");
            head.push(byte[0]);
        }
        (connection, String::from_utf8(head).expect("text"))
    }

    /// Answers a request whose line begins so.
    fn answer(&self, request: &str, answer: &[u8]) -> TcpStream {
        let (mut connection, head) = self.accept();
        assert!(head.starts_with(request), "got {head}, expected {request}");
        connection.write_all(answer).expect("it reads");
        connection
    }

    fn answer_pods(&self) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", POD.len());
        self.answer(
            "GET /pods HTTP/1.1\r\n",
            [head.as_bytes(), POD.as_bytes()].concat().as_slice(),
        );
    }

    /// Runs a command that makes one request beyond that for the pods, and gets this answer.
    fn run(&self, args: &[&str], request: &str, answer: &[u8]) -> (Option<i32>, String, String) {
        let child = self.command(args).spawn().expect("it starts");
        self.answer_pods();
        let connection = self.answer(request, answer);
        connection.shutdown(Shutdown::Write).expect("it is open");
        ended(child)
    }
}

/// The exit code of a command, its output and its error output.
fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("our child");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

const EXEC: &str = "POST /exec/shop/web/main?command=sh&command=-c&command=cat%3B%20exit%203&\
                    input=1&output=1&error=1 HTTP/1.1\r\n";

#[test]
fn a_command_has_its_input_its_output_and_its_code() {
    let _alone = crate::jobs::alone();
    let agent = Agent::new();
    let mut command = agent.command(&["exec", "-i", "web", "--", "sh", "-c", "cat; exit 3"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"hello\n").expect("it is open");
    agent.answer_pods();
    let (mut connection, head) = agent.accept();
    assert!(head.starts_with(EXEC), "{head}");
    for line in ["Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
    }
    let (sent, back) =
        (captured("containerd-spdy-exec.txt", ">>"), captured("containerd-spdy-exec.txt", "<<"));
    // The answer's first bytes may come with its head.
    connection.write_all(&[SWITCH.as_bytes(), &back[..20]].concat()).expect("it reads");
    let mut got = vec![0; sent.len()];
    connection.read_exact(&mut got).expect("it sends");
    assert_eq!(got, sent);
    connection.write_all(&back[20..]).expect("it reads");
    let why = "err\ncommand terminated with exit code 3\n";
    assert_eq!(ended(child), (Some(3), "hello\n".to_owned(), why.to_owned()));
}

#[test]
fn output_that_nobody_reads_is_no_success() {
    let _alone = crate::jobs::alone();
    let agent = Agent::new();
    let mut command = agent.command(&["exec", "-i", "web", "--", "sh", "-c", "cat; exit 3"]);
    let mut child = command.spawn().expect("it starts");
    drop(child.stdout.take());
    agent.answer_pods();
    let (mut connection, _) = agent.accept();
    let back = captured("containerd-spdy-exec.txt", "<<");
    connection.write_all(&[SWITCH.as_bytes(), &back].concat()).expect("it reads");
    // As of a program that SIGPIPE has ended: the code of the command is not known.
    let (code, _, trouble) = ended(child);
    assert_eq!((code, &*trouble), (Some(141), ""));
}

#[test]
fn a_broken_connection_is_no_success() {
    let _alone = crate::jobs::alone();
    let back = captured("containerd-spdy-exec.txt", "<<");
    let args = ["exec", "-i", "web", "--", "sh", "-c", "cat; exit 3"];
    // In the middle of the status, of a frame's head, at once; and what is no SPDY.
    for end in [back.len() - 100, 3, 0] {
        let answer = [SWITCH.as_bytes(), &back[..end]].concat();
        let (code, _, why) = Agent::new().run(&args, EXEC, &answer);
        assert_eq!(code, Some(255), "{end}: {why}");
        assert!(why.ends_with("error: lost connection to the pod: the connection was closed\n"));
    }
    let answer = [SWITCH.as_bytes(), b"HTTP/1.1 400 Bad Request"].concat();
    let (code, _, why) = Agent::new().run(&args, EXEC, &answer);
    assert!(code == Some(255) && why.contains("SPDY: got a frame of"), "{code:?} {why}");
}

#[test]
fn a_refusal_is_shown_with_exit_code_1() {
    let _alone = crate::jobs::alone();
    let body = "container not found (\"main\")";
    let length = body.len();
    let answer =
        format!("HTTP/1.1 500 Internal Server Error\r\nContent-Length: {length}\r\n\r\n{body}");
    let request = "POST /exec/shop/web/main?command=ls&output=1&error=1 ";
    let got = Agent::new().run(&["exec", "web", "--", "ls"], request, answer.as_bytes());
    let why = format!("edged exec: unable to upgrade connection: {body}\n");
    assert_eq!(got, (Some(1), String::new(), why));
    let forbidden = b"HTTP/1.1 403 Forbidden\r\n\r\n";
    let got = Agent::new().run(&["exec", "web", "--", "ls"], request, forbidden);
    let why = "edged exec: unable to upgrade connection: got status 403\n";
    assert_eq!(got, (Some(1), String::new(), why.to_owned()));
    // What could not be started at all.
    let status = br#"{"status":"Failure","reason":"InternalError","message":"no such file"}"#;
    let reset = [&[0x80, 3, 0, 3, 0, 0, 0, 8][..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat();
    let frames = [data(3, 1, b""), data(5, 1, b""), data(1, 0, status), reset].concat();
    let answer = [SWITCH.as_bytes(), &frames].concat();
    let got = Agent::new().run(&["exec", "web", "--", "ls"], request, &answer);
    assert_eq!(got, (Some(1), String::new(), "edged exec: no such file\n".to_owned()));
}

#[test]
fn a_command_keeps_its_own_options() {
    let _alone = crate::jobs::alone();
    let answer = [SWITCH.as_bytes(), &data(3, 0, b"listed\n"), &success()].concat();
    let request = "POST /exec/shop/web/side?command=ls&command=--help&command=-c&output=1&error=1 ";
    let args = ["exec", "shop/web", "-c", "side", "--", "ls", "--help", "-c"];
    let got = Agent::new().run(&args, request, &answer);
    assert_eq!(got, (Some(0), "listed\n".to_owned(), String::new()));
}

#[test]
fn logs_are_printed_as_they_come() {
    let _alone = crate::jobs::alone();
    let agent = Agent::new();
    let args = ["logs", "-f", "web", "--tail=2", "--since", "1500ms", "--timestamps"];
    let mut child = agent.command(&args).spawn().expect("it starts");
    agent.answer_pods();
    let request = "GET /containerLogs/shop/web/main?follow=true&tailLines=2&sinceSeconds=2&\
                   timestamps=true HTTP/1.1\r\n";
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n";
    let mut connection = agent.answer(request, head);
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "one\n");
    connection.write_all(b"7\r\ntwo\nend\r\n0\r\n\r\n").expect("it reads");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "two\nend");
    assert_eq!(ended(child), (Some(0), String::new(), String::new()));
}

#[test]
fn logs_that_are_refused_or_cut_off_are_no_success() {
    let _alone = crate::jobs::alone();
    let request = "GET /containerLogs/shop/web/main?previous=true HTTP/1.1\r\n";
    let body = "previous terminated container \"main\" in pod \"web\" not found";
    let length = body.len();
    let answer = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {length}\r\n\r\n{body}");
    let got = Agent::new().run(&["logs", "-p", "web"], request, answer.as_bytes());
    assert_eq!(got, (Some(1), String::new(), format!("edged logs: {body}\n")));
    let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n5\r\ntw";
    let (code, out, why) = Agent::new().run(&["logs", "-p", "web"], request, cut);
    assert_eq!((code, &*out), (Some(255), "one\ntw"), "{why}");
    assert_eq!(why, "error: the log was cut off: the connection was closed\n");
}

#[test]
fn the_lines_of_several_containers_do_not_mix() {
    let _alone = crate::jobs::alone();
    let agent = Agent::new();
    let args = ["logs", "-f", "web", "--all-containers", "--prefix"];
    let child = agent.command(&args).spawn().expect("it starts");
    agent.answer_pods();
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let open = |name: &str, text: &str| {
        let request = format!("GET /containerLogs/shop/web/{name}?follow=true ");
        agent.answer(&request, format!("{head}{text}").as_bytes())
    };
    let mut side = open("side", "half a ");
    let main = open("main", "whole\nlast");
    main.shutdown(Shutdown::Write).expect("it is open");
    let shell = open("shell", "");
    shell.shutdown(Shutdown::Write).expect("it is open");
    side.write_all(b"line\n").expect("it reads");
    drop(side);
    let (code, out, why) = ended(child);
    assert_eq!((code, &*why), (Some(0), ""));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected = ["[pod/web/main] last", "[pod/web/main] whole", "[pod/web/side] half a line"];
    assert_eq!(lines, expected);
}

#[test]
fn a_port_leads_to_a_pod_until_the_connection_breaks() {
    let _alone = crate::jobs::alone();
    let agent = Agent::new();
    let child = agent.command(&["port-forward", "web", ":8080"]).spawn();
    let mut child = child.expect("it starts");
    agent.answer_pods();
    let mut connection = agent.answer("POST /portForward/shop/web HTTP/1.1\r\n", SWITCH.as_bytes());
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        line
    };
    let forwarding = line();
    let port: u16 = forwarding
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.strip_suffix(" -> 8080\n")?.parse().ok())
        .expect(&forwarding);
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    client.write_all(b"GET /demo-version HTTP/1.0\r\n\r\n").expect("it reads");
    let mut sent = captured("containerd-spdy-portforward.txt", ">>");
    sent[4] = 1;
    let mut got = vec![0; sent.len()];
    connection.read_exact(&mut got).expect("it sends");
    assert_eq!(got, sent);
    assert_eq!(line(), format!("Handling connection for {port}\n"));
    connection.write_all(&captured("containerd-spdy-portforward.txt", "<<")).expect("it reads");
    let mut page = String::new();
    client.read_to_string(&mut page).expect("a page");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n1\n"), "{page}");
    drop(client);
    let mut end = [0; 8];
    connection.read_exact(&mut end).expect("it sends");
    assert_eq!(end[..], data(3, 1, b""));
    // The next one fails in the pod.
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut opened = vec![0; 2 * 8 + 0x51 + 0x50];
    connection.read_exact(&mut opened).expect("it sends");
    connection.write_all(&data(5, 1, b"connection refused")).expect("it reads");
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
    // With unread bytes the end would be a reset.
    connection.shutdown(Shutdown::Write).expect("it is open");
    connection.read_to_end(&mut Vec::new()).expect("it ends");
    let (code, _, why) = ended(child);
    assert_eq!(code, Some(255), "{why}");
    let failed = format!("an error occurred forwarding {port} -> 8080: connection refused\n");
    assert_eq!(why, failed + "error: lost connection to pod: it was closed\n");
}

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("edged-cp-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder of ours");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An archive of files, with a folder where the name ends in a slash, as the frames of a command's
/// output.
fn archive(members: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, text) in members {
        let size = text.len() as u64;
        let member = Written {
            name: name.as_bytes(),
            size,
            mode: 0o640,
            modified_s: 0,
            link: None,
            is_folder: name.ends_with('/'),
        };
        tar::write_head(&member, &mut bytes);
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend(std::iter::repeat_n(0, tar::padding(size)));
    }
    bytes.extend([0; 2 * tar::BLOCK]);
    [SWITCH.as_bytes(), &data(3, 0, &bytes), &success()].concat()
}

const TAR: &str = "POST /exec/shop/web/main?command=tar&command=-cf&command=-&command=-C&\
                   command=%2Fetc&command=.%2Fconf&output=1&error=1 ";

#[test]
fn a_folder_is_copied_out_of_a_pod() {
    let _alone = crate::jobs::alone();
    let folder = Folder::new("out");
    let to = folder.path("copy");
    let members = [("./conf/", ""), ("./conf/a", "first"), ("./conf/sub/b", "second")];
    let got = Agent::new().run(&["cp", "shop/web:/etc/conf", &to], TAR, &archive(&members));
    assert_eq!(got, (Some(0), String::new(), String::new()));
    let read = |name: &str| fs::read_to_string(folder.path(name)).expect(name);
    assert_eq!((read("copy/a"), read("copy/sub/b")), ("first".to_owned(), "second".to_owned()));
    // One file, into a folder that is there.
    let got = Agent::new().run(&["cp", "web:/etc/conf", &to], TAR, &archive(&[("./conf", "file")]));
    assert_eq!((got.0, read("copy/conf")), (Some(0), "file".to_owned()));
}

#[test]
fn an_archive_writes_nothing_outside_of_its_destination() {
    let _alone = crate::jobs::alone();
    let folder = Folder::new("hostile");
    let (to, outside) = (folder.path("copy"), folder.path("outside"));
    fs::create_dir_all(&to).expect("a folder of ours");
    fs::create_dir_all(&outside).expect("a folder of ours");
    std::os::unix::fs::symlink(&outside, folder.path("copy/link")).expect("a link");
    std::os::unix::fs::symlink(folder.path("outside/f"), folder.path("copy/file")).expect("a link");
    for name in [
        "./conf/../../outside/x",
        "../outside/x",
        "/outside/x",
        "./other/x",
        // Through links that are there.
        "./conf/link/x",
        "./conf/file",
    ] {
        let got = Agent::new().run(&["cp", "web:/etc/conf", &to], TAR, &archive(&[(name, "x")]));
        assert_eq!(got.0, Some(1), "{name}: {got:?}");
        assert!(got.2.starts_with("edged cp: "), "{name}: {}", got.2);
    }
    assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 0);
}

#[test]
fn an_archive_that_is_cut_off_is_no_success() {
    let _alone = crate::jobs::alone();
    let folder = Folder::new("cut");
    let to = folder.path("copy");
    let whole = archive(&[("./conf", &"x".repeat(2_000))]);
    // The command says that it has succeeded, but blocks of its output are missing.
    let at = SWITCH.len() + 8;
    let size = 1_024;
    let frame = data(3, 0, &whole[at..at + size]);
    let answer = [SWITCH.as_bytes(), &frame, &success()].concat();
    let got = Agent::new().run(&["cp", "web:/etc/conf", &to], TAR, &answer);
    assert!(got.0 == Some(1) && got.2.contains("cut off"), "{got:?}");
}

#[test]
fn a_folder_is_copied_into_a_pod() {
    let _alone = crate::jobs::alone();
    let folder = Folder::new("in");
    fs::create_dir_all(folder.path("conf/sub")).expect("a folder of ours");
    fs::write(folder.path("conf/a"), "x".repeat(40_000)).expect("a file of ours");
    fs::write(folder.path("conf/sub/empty"), "").expect("a file of ours");
    let agent = Agent::new();
    let args = ["cp", &folder.path("conf"), "web:/srv"];
    let child = agent.command(&args).spawn().expect("it starts");
    agent.answer_pods();
    // /srv is a folder.
    let answer = [SWITCH.as_bytes(), &success()].concat();
    let test = "POST /exec/shop/web/main?command=test&command=-d&command=%2Fsrv&output=1&error=1 ";
    drop(agent.answer(test, &answer));
    let tar = "POST /exec/shop/web/main?command=tar&command=-xmf&command=-&command=-C&\
               command=%2Fsrv&input=1&output=1&error=1 ";
    let mut connection = agent.answer(tar, SWITCH.as_bytes());
    let (mut archive, mut head) = (Vec::new(), [0; 8]);
    loop {
        connection.read_exact(&mut head).expect("it sends");
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).expect("it sends");
        if head[..4] == [0, 0, 0, 3] {
            archive.extend(payload);
            if head[4] == 1 {
                break;
            }
        }
    }
    let reset = [&[0x80, 3, 0, 3, 0, 0, 0, 8][..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat();
    let status = data(1, 0, br#"{"metadata":{},"status":"Success"}"#);
    let end = [data(5, 1, b""), data(7, 1, b""), status, reset].concat();
    connection.write_all(&end).expect("it reads");
    assert_eq!(ended(child), (Some(0), String::new(), String::new()));
    // A real tar takes it.
    let out = folder.path("out");
    fs::create_dir_all(&out).expect("a folder of ours");
    let mut tar = Command::new("tar");
    tar.args(["-xmf", "-", "-C", &out]).stdin(Stdio::piped());
    let mut child = tar.spawn().expect("tar");
    child.stdin.take().expect("a pipe").write_all(&archive).expect("it reads");
    assert!(child.wait().expect("our child").success());
    let read = |name: &str| fs::read_to_string(folder.path(name)).expect(name);
    assert_eq!(read("out/conf/a"), "x".repeat(40_000));
    assert_eq!(read("out/conf/sub/empty"), "");
}

/// A command on a terminal of 111 columns and 33 rows.
struct OnTerminal {
    child: Child,
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl OnTerminal {
    fn new(agent: &Agent, args: &[&str]) -> Self {
        let size = Winsize { ws_row: 33, ws_col: 111, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let mut command = agent.command(args);
        let child = command.stdin(end()).stdout(end()).stderr(Stdio::piped()).spawn();
        Self { child: child.expect("it starts"), ours: pty.master, theirs: pty.slave }
    }

    fn is_raw(&self) -> bool {
        let mode = tcgetattr(&self.theirs).expect("a terminal");
        !mode.local_flags.intersects(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG)
    }
}

#[test]
fn a_terminal_is_raw_for_a_command_and_as_before_afterwards() {
    let _alone = crate::jobs::alone();
    // The command ends by itself; the connection breaks; a signal ends it.
    for case in ["ends", "breaks", "signal"] {
        let agent = Agent::new();
        let terminal = OnTerminal::new(&agent, &["exec", "-it", "web", "--", "sh"]);
        agent.answer_pods();
        let request = "POST /exec/shop/web/main?command=sh&input=1&output=1&tty=1 ";
        let mut connection = agent.answer(request, SWITCH.as_bytes());
        let mut got = Vec::new();
        let size = data(7, 0, br#"{"Width":111,"Height":33}"#);
        let mut read_until = |wanted: &[u8]| {
            while !got.ends_with(wanted) {
                let mut byte = [0];
                connection.read_exact(&mut byte).expect("it sends");
                got.push(byte[0]);
            }
        };
        read_until(&size);
        assert!(terminal.is_raw(), "{case}");
        // ^C is a byte like any other, and there is no echo.
        nix::unistd::write(terminal.ours.as_fd(), b"\x03").expect("a terminal");
        read_until(&data(3, 0, b"\x03"));
        let stty = Command::new("stty")
            .args(["cols", "80", "rows", "24"])
            .stdin(Stdio::from(terminal.theirs.try_clone().expect("a descriptor")))
            .status();
        assert!(stty.expect("stty").success());
        let pid = Pid::from_raw(terminal.child.id() as i32);
        kill(pid, Signal::SIGWINCH).expect("our child");
        read_until(&data(7, 0, br#"{"Width":80,"Height":24}"#));
        let expected = match case {
            "ends" => {
                let reset = [&[0x80, 3, 0, 3, 0, 0, 0, 8][..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat();
                let status = data(1, 0, br#"{"metadata":{},"status":"Success"}"#);
                connection.write_all(&[data(5, 1, b"bye"), status, reset].concat()).expect("sent");
                0
            }
            "breaks" => {
                connection.shutdown(Shutdown::Both).expect("it is open");
                255
            }
            _ => {
                kill(pid, Signal::SIGTERM).expect("our child");
                143
            }
        };
        let OnTerminal { mut child, theirs, ours } = terminal;
        let status = child.wait().expect("our child");
        assert_eq!(status.code(), Some(expected), "{case}");
        let mode = tcgetattr(&theirs).expect("a terminal").local_flags;
        assert!(mode.contains(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG), "{case}");
        drop(ours);
    }
}

#[test]
fn what_is_no_terminal_is_used_as_a_pipe() {
    let _alone = crate::jobs::alone();
    let request = "POST /exec/shop/web/main?command=ls&input=1&output=1&error=1 ";
    let agent = Agent::new();
    let child = agent.command(&["exec", "-it", "web", "--", "ls"]).spawn().expect("it starts");
    agent.answer_pods();
    let status = br#"{"status":"Success"}"#;
    let reset = [&[0x80, 3, 0, 3, 0, 0, 0, 8][..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat();
    let frames = [data(5, 1, b"a\n"), data(7, 1, b""), data(1, 0, status), reset].concat();
    drop(agent.answer(request, &[SWITCH.as_bytes(), &frames].concat()));
    let why = "Unable to use a TTY - input is not a terminal or the right kind of file\n";
    assert_eq!(ended(child), (Some(0), "a\n".to_owned(), why.to_owned()));
}
