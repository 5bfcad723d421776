//! Sessions with real OCI runtimes: commands, attached containers and ports, for clients that speak
//! SPDY (the program's own) and WebSocket (the tests').

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use edged::io::builtin::container;
use edged::io::builtin::session::serve;
use edged::limits::SESSION_ORPHAN_BYTES_MAX;
use edged::model::runtime::{ContainerId, MonitorFact, Pipes, Process, Session};
use edged::wire::spdy::exec::{Exec, Outcome, Output, Wanted};
use edged::wire::spdy::forward::{Event, Forward};

use crate::exec_client;
use crate::place::{CRUN, Place, RUNC, in_namespace};

/// A session in a thread, and its client's end.
struct Client {
    stream: UnixStream,
    session: JoinHandle<()>,
}

impl Client {
    fn new(place: &Place, session: Session) -> Self {
        let (stream, theirs) = UnixStream::pair().expect("a pair");
        let settings = place.settings.clone();
        let session = thread::spawn(move || serve(&settings, &session, theirs));
        Self { stream, session }
    }

    /// The same, after the upgrade to SPDY.
    fn spdy(place: &Place, session: Session, protocol: &str) -> Self {
        let mut client = Self::new(place, session);
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
        );
        client.stream.write_all(request.as_bytes()).expect("written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.stream.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        client
    }

    /// Sends what the client has to send while the other end may not read.
    fn send(&self, bytes: Vec<u8>) -> JoinHandle<()> {
        let mut stream = self.stream.try_clone().expect("a descriptor");
        thread::spawn(move || stream.write_all(&bytes).expect("it is read"))
    }

    fn end(self) {
        drop(self.stream);
        self.session.join().expect("it ends with its client");
    }
}

/// A command's client.
struct Person {
    client: Client,
    exec: Exec,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Person {
    fn new(place: &Place, session: Session) -> Self {
        let (Session::Exec { pipes, .. } | Session::Attach { pipes, .. }) = &session else {
            panic!("{session:?}")
        };
        let Pipes { stdin, stdout, stderr, tty } = *pipes;
        let client = Client::spdy(place, session, "v4.channel.k8s.io");
        let exec = Exec::new(Wanted { stdin, stdout, stderr, tty });
        Self { client, exec, out: Vec::new(), err: Vec::new() }
    }

    fn flush(&mut self) {
        let bytes = self.exec.output().to_vec();
        self.exec.sent(bytes.len());
        self.client.stream.write_all(&bytes).expect("it is read");
    }

    /// Reads until this holds, or all has come.
    fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        let mut buffer = [0; 16 << 10];
        while !holds(self) {
            let count = self.client.stream.read(&mut buffer).expect("it answers");
            if count == 0 {
                return;
            }
            let mut rest = &buffer[..count];
            loop {
                let (taken, output) = self.exec.receive(rest).expect("SPDY");
                rest = &rest[taken..];
                match output {
                    Some(Output::Stdout(bytes)) => self.out.extend_from_slice(bytes),
                    Some(Output::Stderr(bytes)) => self.err.extend_from_slice(bytes),
                    None if rest.is_empty() => break,
                    None => {}
                }
            }
        }
    }

    /// Up to its end.
    fn rest(mut self) -> (Outcome, String, String) {
        self.flush();
        self.until(|_| false);
        let outcome = self.exec.outcome();
        self.client.end();
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (outcome, text(self.out), text(self.err))
    }
}

const ALL: Pipes = Pipes { stdin: true, stdout: true, stderr: true, tty: false };
const OUT: Pipes = Pipes { stdin: false, stdout: true, stderr: true, tty: false };
const TTY: Pipes = Pipes { stdin: true, stdout: true, stderr: false, tty: true };

fn exec(place: &Place, id: &ContainerId, script: &str, pipes: Pipes) -> Session {
    let command = ["sh", "-c", script].map(str::to_owned).into();
    Session::Exec { container: place.folder(id), command, pipes }
}

fn attach(place: &Place, id: &ContainerId, pipes: Pipes, stdin_once: bool) -> Session {
    Session::Attach { container: place.folder(id), pipes, stdin_once }
}

/// A container that does nothing.
fn idle(place: &mut Place, uid: i64) -> ContainerId {
    let id = place.make('a', |config| {
        config.command = vec!["sleep".into(), "86400".into()];
        config.security.user.uid = Some(uid);
    });
    started(place, &id);
    id
}

/// Ends a container that runs. Returns the exit code that its monitor tells.
fn end(place: &mut Place, id: &ContainerId) -> i32 {
    remove(place, id);
    let fact = place.fact(id);
    let MonitorFact::Exited { code, .. } = fact else { panic!("{fact:?}") };
    code
}

/// Ends what is left of a container.
fn remove(place: &Place, id: &ContainerId) {
    container::end(&place.settings, &place.folder(id)).expect("ended");
}

fn started(place: &mut Place, id: &ContainerId) -> Process {
    place.start(id);
    match place.fact(id) {
        MonitorFact::Started { process, .. } => process,
        other => panic!("{other:?}"),
    }
}

/// A MiB that repeats itself late.
fn much() -> Vec<u8> {
    (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

#[test]
fn a_command_gets_its_input_and_its_output_and_code_come_back() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("xin", oci);
            let id = idle(&mut place, 1_000);
            let mut person = Person::new(&place, exec(&place, &id, "cat", ALL));
            let sent = much();
            person.exec.input(&sent);
            person.exec.end_input();
            let bytes = person.exec.output().to_vec();
            person.exec.sent(bytes.len());
            let sender = person.client.send(bytes);
            person.until(|_| false);
            sender.join().expect("all was read");
            assert!(person.out == sent, "{oci}: {} bytes of {}", person.out.len(), sent.len());
            assert_eq!(person.exec.outcome(), Outcome::Exited(0));
            person.client.end();
            let script = "echo out; echo err >&2; id -u; exit 5";
            let (outcome, out, err) = Person::new(&place, exec(&place, &id, script, OUT)).rest();
            assert_eq!((outcome, &*err), (Outcome::Exited(5), "err\n"), "{oci}");
            assert_eq!(out, "out\n1000\n", "{oci}");
            let (outcome, ..) = Person::new(&place, exec(&place, &id, "kill -9 $$", OUT)).rest();
            assert_eq!(outcome, Outcome::Exited(137), "{oci}");
            let command = vec!["/none".to_owned()];
            let none = Session::Exec { container: place.folder(&id), command, pipes: OUT };
            let (outcome, ..) = Person::new(&place, none).rest();
            let Outcome::Failed(why) = outcome else { panic!("{oci}: {outcome:?}") };
            assert!(why.contains("exec failed") && why.contains("o such file"), "{oci}: {why}");
            // Who keeps its output open is not waited for.
            let script = "sleep 86466 & echo done";
            let (outcome, out, _) = Person::new(&place, exec(&place, &id, script, OUT)).rest();
            assert_eq!((outcome, &*out), (Outcome::Exited(0), "done\n"), "{oci}");
            assert_eq!(end(&mut place, &id), 137);
        }
    });
}

#[test]
fn a_command_has_a_terminal_with_the_clients_size() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("xtty", oci);
            let id = idle(&mut place, 0);
            let script = "test -t 0 && test -t 2 && echo $TERM; \
                          until stty size | grep '33 111'; do usleep 10000; done; \
                          read line; echo \"<$line>\"; exit 3";
            let mut person = Person::new(&place, exec(&place, &id, script, TTY));
            person.exec.resize(111, 33);
            person.exec.input(b"hello\n");
            let (outcome, out, _) = person.rest();
            assert_eq!(outcome, Outcome::Exited(3), "{oci}: {out}");
            assert!(out.contains("xterm\r\n") && out.contains("33 111\r\n"), "{oci}: {out:?}");
            assert!(out.contains("<hello>\r\n"), "{oci}: {out:?}");
            end(&mut place, &id);
        }
    });
}

#[test]
fn a_command_by_websocket() {
    in_namespace(|| {
        let mut place = Place::new("xws", CRUN);
        let id = idle(&mut place, 0);
        let script = "read line; echo \"<$line>\"; echo err >&2; exit 4";
        let client = Client::new(&place, exec(&place, &id, script, ALL));
        let mut ws = exec_client::Exec::over(client.stream.try_clone().expect("ours"), "/");
        assert_eq!(ws.next(), Some((1, Vec::new())), "it says that it is connected");
        ws.send(0, b"hello\n");
        let [_, out, err, status] = ws.rest();
        assert_eq!((&*out, &*err), ("<hello>\n", "err\n"));
        let status: serde_json::Value = serde_json::from_str(&status).expect("a status");
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0]["message"], "4");
        client.end();
        end(&mut place, &id);
    });
}

#[test]
fn what_becomes_of_a_command_whose_client_leaves() {
    in_namespace(|| {
        let mut place = Place::new("xleft", CRUN);
        let id = idle(&mut place, 0);
        // Its input ends, and it goes on, whatever it writes.
        let script = "echo ready; cat; head -c 300000 /dev/zero; touch /tmp/done";
        let mut person = Person::new(&place, exec(&place, &id, script, ALL));
        person.flush();
        person.until(|person| person.out == b"ready\n");
        person.client.end();
        let rootfs = place.settings.layout.container(&id).join("rootfs");
        assert!(rootfs.join("tmp/done").exists(), "its session ends with it");
        // One that writes without end is ended by it.
        let many = SESSION_ORPHAN_BYTES_MAX + (256 << 10);
        let script = format!("echo ready; head -c {many} /dev/zero; cat /dev/zero");
        let mut person = Person::new(&place, exec(&place, &id, &script, ALL));
        person.flush();
        person.until(|person| person.out.starts_with(b"ready\n"));
        person.client.end();
        // A terminal is hung up.
        let script = "echo ready; sleep 86455; sleep 86456";
        let mut person = Person::new(&place, exec(&place, &id, script, TTY));
        person.flush();
        person.until(|person| person.out == b"ready\r\n");
        person.client.end();
        let script = "while ps | grep -q '[s]leep 8645'; do usleep 10000; done; \
                      while ps | grep -q '[c]at /dev'; do usleep 10000; done";
        let (outcome, ..) = Person::new(&place, exec(&place, &id, script, OUT)).rest();
        assert_eq!(outcome, Outcome::Exited(0));
        end(&mut place, &id);
    });
}

#[test]
fn a_command_waits_for_a_client_that_does_not_read() {
    in_namespace(|| {
        let mut place = Place::new("xslow", CRUN);
        let id = idle(&mut place, 0);
        let script = "head -c 30000000 /dev/zero; touch /tmp/written";
        let mut person = Person::new(&place, exec(&place, &id, script, OUT));
        person.flush();
        person.until(|person| !person.out.is_empty());
        let written = place.settings.layout.container(&id).join("rootfs/tmp/written");
        thread::sleep(Duration::from_millis(300));
        assert!(!written.exists(), "what nobody reads is kept nowhere");
        person.until(|_| false);
        assert_eq!((person.out.len(), person.exec.outcome()), (30_000_000, Outcome::Exited(0)));
        assert!(written.exists());
        person.client.end();
        end(&mut place, &id);
    });
}

#[test]
fn a_container_is_attached_and_its_input_ends_once() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("attach", oci);
            place.stdin = true;
            let id = place.shell('a', "echo first; head -n 1; wc -c; echo last; exit 6");
            started(&mut place, &id);
            while !place.log(&id).contains("first") {
                place.turn();
            }
            // One that leaves does not end the input where that is not asked for.
            let mut person = Person::new(&place, attach(&place, &id, ALL, false));
            person.exec.input(b"hello\n");
            person.flush();
            person.until(|person| person.out == b"hello\n");
            person.client.end();
            let mut person = Person::new(&place, attach(&place, &id, ALL, true));
            let sent = much();
            person.exec.input(&sent);
            person.exec.end_input();
            let bytes = person.exec.output().to_vec();
            person.exec.sent(bytes.len());
            let sender = person.client.send(bytes);
            let (outcome, out, _) = person.rest();
            sender.join().expect("all was read");
            // Its own exit code is another matter.
            assert_eq!(outcome, Outcome::Exited(0), "{oci}: {out}");
            assert_eq!(out, format!("{}\nlast\n", sent.len()), "{oci}");
            assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 6, .. }));
            let (outcome, ..) = Person::new(&place, attach(&place, &id, OUT, false)).rest();
            assert_eq!(outcome, Outcome::Exited(0), "it has ended");
            remove(&place, &id);
        }
    });
}

#[test]
fn a_terminal_is_attached() {
    in_namespace(|| {
        let mut place = Place::new("atty", CRUN);
        place.stdin = true;
        let id = place.make('a', |config| {
            config.terminal.tty = true;
            let script = "until stty size | grep '33 111'; do usleep 10000; done; read line; \
                          echo \"<$line>\"";
            config.command = ["sh", "-c", script].map(str::to_owned).into();
        });
        started(&mut place, &id);
        let mut person = Person::new(&place, attach(&place, &id, TTY, false));
        person.exec.resize(111, 33);
        person.flush();
        person.until(|person| person.out.ends_with(b"33 111\r\n"));
        person.exec.input(b"hello\n");
        let (outcome, out, _) = person.rest();
        assert_eq!(outcome, Outcome::Exited(0));
        assert!(out.ends_with("<hello>\r\n"), "{out:?}");
        assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 0, .. }));
        remove(&place, &id);
    });
}

#[test]
fn a_container_does_not_wait_for_one_that_is_attached_and_does_not_read() {
    in_namespace(|| {
        let mut place = Place::new("aslow", CRUN);
        place.stdin = true;
        let id = place.shell('a', "read line; head -c 30000000 /dev/zero; sleep 86400");
        started(&mut place, &id);
        let mut slow = Person::new(&place, attach(&place, &id, ALL, false));
        slow.exec.input(b"begin\n");
        slow.flush();
        // The log has all of it while nobody reads: each line of 16 KiB has a head.
        let path = place.log_path(&id);
        while fs::metadata(&path).map_or(0, |about| about.len()) < 30_000_000 {
            place.turn();
        }
        let (outcome, out, _) = slow.rest();
        let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("was read too slowly") && out.len() < 30_000_000, "{why}");
        remove(&place, &id);
    });
}

/// Makes a network namespace for the sandbox, and in it a server that reads up to the end, and then
/// says how much that was.
fn serve_in_pod(place: &Place) -> u16 {
    let file = place.settings.layout.sandbox(&place.sandbox()).join("net");
    let (tell, port) = mpsc::channel();
    thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("iproute2").success());
        fs::write(&file, "").expect("a file of ours");
        let (from, none) = ("/proc/thread-self/ns/net", None::<&str>);
        let flags = nix::mount::MsFlags::MS_BIND;
        nix::mount::mount(Some(from), &file, none, flags, none).expect("a bind");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        tell.send(listener.local_addr().expect("bound").port()).expect("it is awaited");
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    port.recv().expect("it listens")
}

fn answer(mut stream: std::net::TcpStream) {
    let mut came = Vec::new();
    if stream.read_to_end(&mut came).is_ok() {
        let sum = came.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte));
        let _ = write!(stream, "{} {sum}", came.len());
    }
}

#[test]
fn ports_of_a_pod_are_reached_in_its_network() {
    in_namespace(|| {
        let place = Place::new("ports", CRUN);
        let number = serve_in_pod(&place);
        let sandbox = place.sandbox();
        let session = Session::PortForward { sandbox, own_network: true, ports: vec![number, 1] };
        let mut client = Client::spdy(&place, session.clone(), "portforward.k8s.io");
        let mut forward = Forward::default();
        let ids = [forward.open(number), forward.open(1), forward.open(number)];
        let sent = much();
        forward.data(ids[0], &sent);
        forward.data(ids[2], b"x");
        forward.end(ids[0]);
        forward.end(ids[2]);
        let sender = client.send(forward.output().to_vec());
        let (mut got, mut failed, mut ended) = ([Vec::new(), Vec::new()], String::new(), 0);
        let mut buffer = [0; 4 << 10];
        while ended < 2 || failed.is_empty() {
            let count = client.stream.read(&mut buffer).expect("it answers");
            assert!(count > 0, "{got:?} {failed}");
            let mut rest = &buffer[..count];
            loop {
                let (taken, event) = forward.receive(rest).expect("SPDY");
                rest = &rest[taken..];
                match event {
                    Some(Event::Data(id, bytes)) => {
                        got[usize::from(id == ids[2])].extend_from_slice(bytes);
                    }
                    Some(Event::End(_)) => ended += 1,
                    Some(Event::Failed(id, why)) => {
                        assert_eq!(id, ids[1]);
                        failed = why;
                    }
                    None if rest.is_empty() => break,
                    None => {}
                }
            }
        }
        sender.join().expect("all was read");
        let sum = sent.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte));
        assert_eq!(String::from_utf8_lossy(&got[0]), format!("{} {sum}", sent.len()));
        assert_eq!(got[1], format!("1 {}", u32::from(b'x')).into_bytes());
        assert!(failed.contains("IPv4: dial tcp4 127.0.0.1:1: connect: connection refused"));
        assert!(failed.contains("IPv6 dial tcp6 [::1]:1: connect: "), "{failed}");
        client.end();
        // By WebSocket, and until the sandbox is taken down.
        let client = Client::new(&place, session);
        let mut ws = exec_client::Exec::over(client.stream.try_clone().expect("ours"), "/");
        let first = number.to_le_bytes().to_vec();
        assert_eq!(ws.next(), Some((0, first.clone())));
        assert_eq!((ws.next(), ws.next()), (Some((1, first)), Some((2, vec![1, 0]))));
        assert_eq!(ws.next(), Some((3, vec![1, 0])));
        let (channel, why) = ws.next().expect("a reason");
        assert_eq!(channel, 3);
        assert!(String::from_utf8_lossy(&why).contains("connection refused"));
        let file = place.settings.layout.sandbox(&place.sandbox()).join("net");
        nix::mount::umount2(&file, nix::mount::MntFlags::MNT_DETACH).expect("ours");
        fs::remove_file(&file).expect("ours");
        assert_eq!(ws.next(), None, "it ends with its sandbox");
        client.end();
    });
}
