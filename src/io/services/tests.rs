//! The process that serves Services, in a network namespace of its own: real sockets, a real link.
#![allow(clippy::disallowed_methods, reason = "real sockets need real time")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Clock};

use nix::sched::{CloneFlags, unshare};

use super::protocol::{Order, Settings, greeting};
use super::server;
use crate::io::channel::{Channel, Received};
use crate::io::link;
use crate::limits::{
    DNS_CLIENT_IDLE_MS, DNS_CLIENTS_MAX, DNS_FORWARD_MS, DNS_FORWARD_TRIES, DNS_FORWARDS_MAX,
    SERVICE_CONNECTIONS_EACH_MAX, SERVICE_CONNECTIONS_MAX, SERVICE_DIAL_MS, SERVICE_DIALS_MAX,
    SERVICE_ENDPOINTS_MAX, SERVICE_FLOW_IDLE_MS, SERVICE_FLOWS_MAX, SERVICE_LEAVE_MS,
    SERVICE_LINK_MS, SERVICE_MESSAGE_BYTES_MAX, SERVICE_PORTS_MAX, SERVICE_REPORT_MS,
    SERVICE_RETRY_MS, SERVICE_TURN_ACCEPTS, SERVICE_TURN_DATAGRAMS, SERVICE_TURN_MOVES,
    SERVICES_CONNECT_MS, SERVICES_RESTART_MS, SERVICES_TROUBLE_MAX,
};
use crate::model::dns::{Rcode, kind};
use crate::model::service::{
    Endpoint, EntryKind, EntryPort, Protocol, ServiceEntry, ServicesReport,
};
use crate::wire::dns::{OwnQuery, records};

const RESOLVER: Ipv4Addr = Ipv4Addr::new(169, 254, 96, 16);
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 7);

/// A server in this thread's new network namespace.
struct World {
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    agent: Channel,
}

fn world() -> World {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    unshare(CloneFlags::CLONE_NEWNET).expect("root may");
    raise_loopback();
    let name = format!("edged-services-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder of ours");
    let socket = folder.join("ctl").to_str().expect("UTF-8").to_owned();
    // A new thread is in the namespace of the one that starts it.
    let thread = thread::spawn(move || server::serve(&socket).expect("it ends as it was told"));
    let agent = wait(|| Channel::connect(&folder, "ctl").ok());
    let mut world = World { thread: Some(thread), folder, agent };
    assert_eq!(world.receive(), greeting().into_bytes());
    world
}

fn raise_loopback() {
    let done = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(done.expect("iproute2 is there").success());
}

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Clock::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "it has not come");
        thread::sleep(Duration::from_millis(5));
    }
}

impl World {
    fn receive(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; SERVICE_MESSAGE_BYTES_MAX];
        wait(|| match self.agent.receive(&mut buffer) {
            Received::Message(bytes) => Some(buffer[..bytes].to_vec()),
            Received::Nothing => None,
            Received::End => panic!("it has ended"),
        })
    }

    fn report(&mut self) -> ServicesReport {
        postcard::from_bytes(&self.receive()).expect("a report")
    }

    fn tell(&self, order: &Order) {
        let bytes = postcard::to_stdvec(order).expect("plain data");
        assert!(self.agent.send(&bytes));
    }

    fn serve(&self, upstream: &[&str], table: Vec<ServiceEntry>) {
        self.serve_pods("", upstream, table);
    }

    fn serve_pods(&self, pods_cgroup: &str, upstream: &[&str], table: Vec<ServiceEntry>) {
        self.tell(&Order::Settings(Settings {
            domain: "cluster.local".to_owned(),
            address: RESOLVER,
            upstream: upstream.iter().map(|&it| it.to_owned()).collect(),
            resolv_conf: String::new(),
            pods_cgroup: pods_cgroup.to_owned(),
        }));
        self.tell(&Order::Begin);
        for entry in table {
            self.tell(&Order::Put(Arc::new(entry)));
        }
        self.tell(&Order::End);
    }

    fn end(mut self, order: &Order) {
        self.tell(order);
        self.thread.take().expect("it runs").join().expect("it ends");
        std::fs::remove_dir_all(&self.folder).expect("ours");
    }
}

fn entry(protocol: Protocol, ports: &[(u16, u16)], endpoints: &[Ipv4Addr]) -> ServiceEntry {
    let port = |(port, _): &(u16, u16)| EntryPort {
        name: "p".into(),
        protocol,
        port: *port,
        node_port: 0,
    };
    let endpoint = |ip: &Ipv4Addr| Endpoint {
        ip: *ip,
        hostname: "".into(),
        ports: ports.iter().map(|(_, target)| *target).collect(),
    };
    ServiceEntry {
        namespace: "ns".into(),
        name: "web".into(),
        kind: EntryKind::Cluster(CLUSTER),
        ports: ports.iter().map(port).collect(),
        endpoints: endpoints.iter().map(endpoint).collect(),
        affinity_s: 0,
        of_pods: true,
    }
}

fn ask(name: &str, kind: u16) -> (Rcode, usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(8))).expect("ours");
    socket.connect((RESOLVER, 53)).expect("it is on this machine");
    let query = OwnQuery::new(7, name, kind);
    socket.send(&query.bytes).expect("it is sent");
    let mut buffer = [0; 2_048];
    let bytes = socket.recv(&mut buffer).expect("an answer");
    assert!(query.is_answered_by(7, &buffer[..bytes]));
    let (rcode, found) = records(&buffer[..bytes]).expect("an answer");
    (rcode, found.len())
}

fn ask_over_tcp(name: &str) -> (Rcode, usize) {
    let mut stream = TcpStream::connect((RESOLVER, 53)).expect("it listens");
    let query = OwnQuery::new(9, name, kind::A);
    let mut framed = (query.bytes.len() as u16).to_be_bytes().to_vec();
    framed.extend(&query.bytes);
    // In pieces, as a slow client sends.
    for byte in framed {
        stream.write_all(&[byte]).expect("it reads");
    }
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).expect("all of it");
    let (rcode, found) = records(&answer).expect("an answer");
    (rcode, found.len())
}

fn listens() {
    wait(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect((RESOLVER, 53)).ok()?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).ok()?;
        socket.send(&OwnQuery::new(1, "cluster.local", kind::SOA).bytes).ok()?;
        socket.recv(&mut [0; 512]).ok()
    });
}

#[test]
fn names_are_answered_over_udp_and_tcp_and_the_link_goes_at_the_end() {
    let mut world = world();
    let one = [Ipv4Addr::LOCALHOST];
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &one)]);
    listens();
    assert!(link::exists(link::SERVICES).expect("netlink"));
    let name = "web.ns.svc.cluster.local";
    assert_eq!(ask(name, kind::A), (Rcode::NoError, 1));
    assert_eq!(ask_over_tcp(name), (Rcode::NoError, 1));
    assert_eq!(ask("nobody.ns.svc.cluster.local", kind::A), (Rcode::NxDomain, 0));
    // Nobody to ask: the answer comes at once all the same.
    let began = Clock::now();
    assert_eq!(ask("example.org", kind::A), (Rcode::ServFail, 0));
    assert!(began.elapsed() < Duration::from_millis(DNS_FORWARD_MS));
    let report = wait(|| Some(world.report()).filter(|it| it.queries > 3));
    assert_eq!((report.trouble.len(), report.forwarded, report.unanswered), (0, 1, 1));
    world.end(&Order::Stop);
    assert!(!link::exists(link::SERVICES).expect("netlink"), "no link is left behind");
}

#[test]
fn other_names_are_asked_for_at_another_server_which_may_be_silent() {
    let world = world();
    let server = UdpSocket::bind("127.0.0.1:53").expect("the namespace is ours");
    world.serve(&["127.0.0.1"], Vec::new());
    listens();
    let answering = thread::spawn(move || {
        let mut buffer = [0; 512];
        // The probe is not answered, and neither is the first try.
        let mut seen = 0;
        loop {
            let (bytes, from) = server.recv_from(&mut buffer).expect("a query");
            let query = crate::wire::dns::parse(&buffer[..bytes]).expect("a query");
            if query.question.name.starts_with("edged-") {
                continue;
            }
            seen += 1;
            if seen == 2 {
                let answer = query.answer(&crate::model::dns::Answer::default(), 512);
                server.send_to(&answer, from).expect("it is sent");
                return;
            }
        }
    });
    assert_eq!(ask("example.org", kind::A), (Rcode::NoError, 0));
    assert_eq!(DNS_FORWARD_TRIES, 2);
    answering.join().expect("it has answered");
    world.end(&Order::Stop);
}

#[test]
fn a_server_that_asks_us_is_not_used() {
    let mut world = world();
    // It passes everything on to us.
    let server = UdpSocket::bind("127.0.0.1:53").expect("the namespace is ours");
    world.serve(&["127.0.0.1"], Vec::new());
    listens();
    let passing = thread::spawn(move || {
        let ours = UdpSocket::bind("0.0.0.0:0").expect("a port");
        ours.connect((RESOLVER, 53)).expect("it is on this machine");
        server.set_read_timeout(Some(Duration::from_secs(2))).expect("ours");
        let mut buffer = [0; 512];
        while let Ok((bytes, _)) = server.recv_from(&mut buffer) {
            ours.send(&buffer[..bytes]).expect("it is sent");
        }
    });
    let _ = ask("example.org", kind::A);
    let report = wait(|| Some(world.report()).filter(|it| !it.trouble.is_empty()));
    assert!(report.trouble[0].contains("it asks this one"), "{report:?}");
    let began = Clock::now();
    assert_eq!(ask("example.org", kind::A).0, Rcode::ServFail);
    assert!(began.elapsed() < Duration::from_millis(DNS_FORWARD_MS), "there is nobody left to ask");
    passing.join().expect("it ends");
    world.end(&Order::Stop);
}

/// Sends back what it gets, and closes after the client has.
fn echo(at: SocketAddr) -> JoinHandle<usize> {
    let listener = TcpListener::bind(at).expect("the namespace is ours");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = vec![0; 16 << 10];
        let mut sum = 0;
        loop {
            let bytes = stream.read(&mut buffer).expect("open");
            if bytes == 0 {
                return sum;
            }
            stream.write_all(&buffer[..bytes]).expect("open");
            sum += bytes;
        }
    })
}

#[test]
fn a_connection_reaches_an_endpoint_and_each_end_closes_by_itself() {
    let world = world();
    // The first endpoint takes nothing.
    let both = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let served = echo((both[1], 8_080).into());
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &both)]);
    listens();
    let mut client = TcpStream::connect((CLUSTER, 80)).expect("it listens");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let copy = sent.clone();
    let mut writing = client.try_clone().expect("ours");
    let writer = thread::spawn(move || {
        writing.write_all(&copy).expect("open");
        writing.shutdown(std::net::Shutdown::Write).expect("open");
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("half is open");
    writer.join().expect("it has written");
    assert!(got == sent, "{} bytes came back", got.len());
    assert_eq!(served.join().expect("it has served"), sent.len());
    // Now nobody listens any more: after its endpoints were tried, the client is reset.
    let mut refused = TcpStream::connect((CLUSTER, 80)).expect("it listens");
    let error = refused.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // Without endpoints it is refused at once.
    world.tell(&Order::Put(Arc::new(entry(Protocol::Tcp, &[(80, 8_080)], &[]))));
    wait(|| TcpStream::connect((CLUSTER, 80)).err());
    assert_eq!(ask("web.ns.svc.cluster.local", kind::A), (Rcode::NoError, 1), "the name stays");
    world.tell(&Order::Remove { namespace: "ns".into(), name: "web".into() });
    wait(|| (ask("web.ns.svc.cluster.local", kind::A).0 == Rcode::NxDomain).then_some(()));
    world.end(&Order::Stop);
}

#[test]
fn datagrams_stay_whole_and_go_back_to_their_client() {
    let world = world();
    let at = Ipv4Addr::new(127, 0, 0, 2);
    let server = UdpSocket::bind((at, 5_353)).expect("the namespace is ours");
    world.serve(&[], vec![entry(Protocol::Udp, &[(53, 5_353)], &[at])]);
    listens();
    let client = UdpSocket::bind("0.0.0.0:0").expect("a port");
    client.connect((CLUSTER, 53)).expect("an address of this machine");
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("ours");
    let mut buffer = vec![0; 64 << 10];
    for bytes in [1, 60_000] {
        let sent = vec![b'x'; bytes];
        client.send(&sent).expect("it is sent");
        let (got, from) = server.recv_from(&mut buffer).expect("it has come");
        assert_eq!(got, bytes);
        // A late answer: the client is still known.
        thread::sleep(Duration::from_millis(300));
        server.send_to(&buffer[..got], from).expect("it is sent");
        assert_eq!(client.recv(&mut buffer).expect("it came back"), bytes);
    }
    world.end(&Order::Stop);
}

#[test]
fn another_agent_finds_everything_as_it_was_and_one_of_a_new_version_takes_over() {
    let mut world = world();
    let at = Ipv4Addr::new(127, 0, 0, 2);
    let served = echo((at, 8_080).into());
    let service = || entry(Protocol::Tcp, &[(80, 8_080)], &[at]);
    world.serve(&[], vec![service()]);
    listens();
    let mut client = TcpStream::connect((CLUSTER, 80)).expect("it listens");
    client.write_all(b"a").expect("open");
    client.read_exact(&mut [0; 1]).expect("it came back");
    // The agent is gone, and its successor is cut off in the middle of the table.
    world.agent = Channel::connect(&world.folder, "ctl").expect("it listens");
    assert_eq!(world.receive(), greeting().into_bytes());
    world.tell(&Order::Begin);
    assert_eq!(ask("web.ns.svc.cluster.local", kind::A), (Rcode::NoError, 1));
    world.agent = Channel::connect(&world.folder, "ctl").expect("it listens");
    assert_eq!(world.receive(), greeting().into_bytes());
    assert_eq!(ask("web.ns.svc.cluster.local", kind::A), (Rcode::NoError, 1));
    client.write_all(b"b").expect("open");
    client.read_exact(&mut [0; 1]).expect("it came back");
    // It leaves: the connection is not cut, and nothing new is taken.
    world.tell(&Order::Leave);
    wait(|| TcpStream::connect((CLUSTER, 80)).err());
    client.write_all(b"c").expect("open");
    client.read_exact(&mut [0; 1]).expect("it came back");
    assert!(link::exists(link::SERVICES).expect("netlink"), "it is the other's now");
    drop(client);
    assert_eq!(served.join().expect("it has served"), 3);
    world.thread.take().expect("it runs").join().expect("it ends");
    std::fs::remove_dir_all(&world.folder).expect("ours");
}

#[test]
fn a_link_that_is_removed_by_hand_comes_back() {
    let world = world();
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[Ipv4Addr::LOCALHOST])]);
    listens();
    let done = std::process::Command::new("ip").args(["link", "del", link::SERVICES.name]).status();
    assert!(done.expect("iproute2 is there").success());
    // Anything that changes the table mends it at once; else the next look does. The link is there
    // before its addresses are.
    world.tell(&Order::End);
    listens();
    assert_eq!(ask("web.ns.svc.cluster.local", kind::A), (Rcode::NoError, 1));
    world.end(&Order::Stop);
}

#[test]
fn a_link_of_somebody_else_keeps_what_it_has() {
    let world = world();
    let ip = |args: &str| {
        let done = std::process::Command::new("ip").args(args.split(' ')).status();
        assert!(done.expect("iproute2 is there").success(), "{args}");
    };
    ip("link add edgemesh0 type bridge");
    ip("link set edgemesh0 up");
    ip("addr add 169.254.96.16/32 dev edgemesh0");
    ip("addr add 192.0.2.77/32 dev edgemesh0");
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[Ipv4Addr::LOCALHOST])]);
    listens();
    world.end(&Order::Stop);
    assert!(link::exists(link::SERVICES).expect("netlink"), "it is not ours");
    let shown =
        std::process::Command::new("ip").args(["-4", "addr", "show", link::SERVICES.name]).output();
    let shown = String::from_utf8(shown.expect("iproute2 is there").stdout).expect("text");
    assert!(shown.contains("169.254.96.16/32") && shown.contains("192.0.2.77/32"), "{shown}");
    assert!(!shown.contains("10.96.0.7"), "{shown}");
}

#[test]
fn an_edgemesh_agent_keeps_its_link_and_what_it_serves() {
    let mut world = world();
    let ip = |args: &str| {
        let done = std::process::Command::new("ip").args(args.split(' ')).status();
        assert!(done.expect("iproute2 is there").success(), "{args}");
    };
    ip("link add edgemesh0 type bridge");
    ip("link set edgemesh0 up");
    ip("addr add 169.254.96.16/32 dev edgemesh0");
    let agent = UdpSocket::bind((RESOLVER, 53)).expect("the namespace is ours");
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[Ipv4Addr::LOCALHOST])]);
    let report = wait(|| Some(world.report()).filter(|it| !it.trouble.is_empty()));
    assert!(report.trouble[0].contains("an EdgeMesh agent has the link"), "{report:?}");
    assert!(TcpStream::connect((CLUSTER, 80)).is_err());
    // It is gone: then we serve.
    drop(agent);
    world.tell(&Order::End);
    listens();
    world.end(&Order::Stop);
    assert!(link::exists(link::SERVICES).expect("netlink"), "it is not ours");
}

#[test]
fn a_taken_port_is_named_and_the_rest_is_served() {
    let mut world = world();
    let _other = UdpSocket::bind("0.0.0.0:53").expect("the namespace is ours");
    world.serve(&[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[Ipv4Addr::LOCALHOST])]);
    let report = wait(|| Some(world.report()).filter(|it| !it.trouble.is_empty()));
    assert!(report.trouble[0].contains("another program answers DNS"), "{report:?}");
    wait(|| TcpStream::connect((CLUSTER, 80)).ok());
    world.end(&Order::Stop);
}

#[test]
fn the_largest_service_fits_into_a_message_and_the_limits_fit_together() {
    let long: Box<str> = "x".repeat(63).into();
    let port = |_| EntryPort {
        name: "x".repeat(15).into(),
        protocol: Protocol::Udp,
        port: u16::MAX,
        node_port: u16::MAX,
    };
    let endpoint = |_| Endpoint {
        ip: Ipv4Addr::BROADCAST,
        hostname: long.clone(),
        ports: vec![u16::MAX; SERVICE_PORTS_MAX],
    };
    let entry = ServiceEntry {
        namespace: long.clone(),
        name: long.clone(),
        kind: EntryKind::External("x".repeat(253).into()),
        ports: (0..SERVICE_PORTS_MAX).map(port).collect(),
        endpoints: (0..SERVICE_ENDPOINTS_MAX).map(endpoint).collect(),
        affinity_s: u32::MAX,
        of_pods: true,
    };
    let bytes = postcard::to_stdvec(&Order::Put(Arc::new(entry))).expect("plain data");
    assert!(bytes.len() <= SERVICE_MESSAGE_BYTES_MAX, "{} bytes", bytes.len());
    let (one, _other) = Channel::pair().expect("a pair");
    assert!(one.send(&vec![0; SERVICE_MESSAGE_BYTES_MAX]), "a socket takes it");
    const { assert!(SERVICE_CONNECTIONS_EACH_MAX < SERVICE_CONNECTIONS_MAX) };
    const { assert!(SERVICE_DIAL_MS * SERVICE_DIALS_MAX as u64 <= 15_000) };
    const { assert!(SERVICES_CONNECT_MS < SERVICES_RESTART_MS) };
    const { assert!(SERVICE_REPORT_MS < SERVICE_LINK_MS) };
    const { assert!(SERVICE_RETRY_MS < SERVICE_LINK_MS) };
    const { assert!(SERVICE_FLOW_IDLE_MS >= 30_000 && SERVICE_LEAVE_MS >= SERVICE_FLOW_IDLE_MS) };
    const { assert!(DNS_CLIENT_IDLE_MS > DNS_FORWARD_MS * DNS_FORWARD_TRIES as u64) };
    const { assert!(DNS_CLIENTS_MAX < DNS_FORWARDS_MAX && SERVICES_TROUBLE_MAX > 0) };
    const { assert!(SERVICE_TURN_ACCEPTS < SERVICE_CONNECTIONS_EACH_MAX) };
    const { assert!(SERVICE_TURN_DATAGRAMS < SERVICE_FLOWS_MAX && SERVICE_TURN_MOVES > 1) };
}

/// A cgroup of version 2.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`: this machine has no cgroups of version 2.
    fn new() -> Option<Self> {
        let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let top = tops.into_iter().find(|top| top.join("cgroup.controllers").exists())?;
        let folder = top.join(format!("edged-test-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of ours");
        Some(Self(folder))
    }

    /// What a process in it reads from a server; empty: nobody took the connection.
    fn reads(&self, ip: &str, port: u16) -> String {
        let script = format!(
            "echo $$ >{}/cgroup.procs && exec 3<>/dev/tcp/{ip}/{port} && cat <&3",
            self.0.display()
        );
        let output = std::process::Command::new("bash").args(["-c", &script]).output();
        String::from_utf8(output.expect("bash is there").stdout).expect("a text")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may just be ending.
        wait(|| std::fs::remove_dir(&self.0).ok());
    }
}

#[test]
fn pods_reach_a_single_endpoint_without_this_process() {
    let mut world = world();
    let Some(cgroup) = Cgroup::new() else {
        world.serve_pods("/nowhere", &[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[RESOLVER])]);
        let report = wait(|| Some(world.report()).filter(|it| it.queries == 0));
        assert_eq!(report.direct, None);
        return world.end(&Order::Stop);
    };
    let cluster = "10.96.0.7";
    let name = cgroup.0.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    let server = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8_080)).expect("the namespace is ours");
    thread::spawn(move || {
        for stream in server.incoming() {
            stream.expect("a client").write_all(b"hello").expect("it reads");
        }
    });
    world.serve_pods(&name, &[], vec![entry(Protocol::Tcp, &[(80, 8_080)], &[RESOLVER])]);
    wait(|| Some(world.report()).filter(|it| it.direct == Some(0)));
    assert_eq!(cgroup.reads(cluster, 80), "hello");
    let report = wait(|| Some(world.report()).filter(|it| it.direct == Some(1)));
    assert_eq!(report.accepted, 0);
    // As Java asks for it, and an address that only looks like it.
    assert_eq!(cgroup.reads("::ffff:10.96.0.7", 80), "hello");
    assert_eq!(cgroup.reads("1::ffff:10.96.0.7", 80), "");
    // Another port of that address is nobody's, and another process no pod.
    assert_eq!(cgroup.reads(cluster, 81), "");
    assert_eq!(hello(CLUSTER), "hello");
    let report = wait(|| Some(world.report()).filter(|it| it.accepted == 1));
    assert_eq!(report.direct, Some(2));
    // Of two endpoints this process chooses one.
    let two = [RESOLVER, Ipv4Addr::LOCALHOST];
    world.tell(&Order::Put(Arc::new(entry(Protocol::Tcp, &[(80, 8_080)], &two))));
    wait(|| (cgroup.reads(cluster, 80) == "hello").then_some(()));
    wait(|| Some(world.report()).filter(|it| it.accepted > 1));
    // A cgroup that is made anew is found.
    drop(cgroup);
    let cgroup = Cgroup::new().expect("it was there");
    world.tell(&Order::Put(Arc::new(entry(Protocol::Tcp, &[(80, 8_080)], &[RESOLVER]))));
    wait(|| Some(world.report()).filter(|it| it.direct == Some(0)));
    assert_eq!(cgroup.reads(cluster, 80), "hello");
    wait(|| Some(world.report()).filter(|it| it.direct == Some(1)));
    world.end(&Order::Stop);
    assert_eq!(cgroup.reads(cluster, 80), "", "nothing is left in the kernel");
}

/// What this process, which is no pod, reads from port 80.
fn hello(ip: Ipv4Addr) -> String {
    let mut text = String::new();
    let mut stream = TcpStream::connect((ip, 80)).expect("it is served");
    stream.read_to_string(&mut text).map(|_| text).expect("all of it")
}
