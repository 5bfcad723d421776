//! Services by name: an answer about a name, connections through a ClusterIP beside direct ones,
//! and the memory of many Services. Without a runtime: the process that serves them, in a network
//! namespace of its own. Of the connections, those of pods, for which the bench is in the pods'
//! cgroup, and those that pass through that process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use edged::agent::services::names::Zone;
use edged::io::services::protocol::{Order, Settings};
use edged::limits::DNS_UDP_BYTES_MAX;
use edged::model::dns::{Resolution, kind};
use edged::model::service::{Endpoint, EntryKind, EntryPort, Protocol, ServiceEntry};
use edged::wire::dns::{OwnQuery, parse};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};

use crate::figure::{Figure, Limit, median};
use crate::rig::Rig;
use crate::support::agent::binary;
use crate::support::process::pss_kb;

/// Names of [`names`].
pub const NAMES: &[&str] = &["services.lookup_us"];
/// Names of [`served`].
pub const SERVED: &[&str] = &[
    "services.udp_lookup_ms",
    "services.tcp.pods_mb_per_s",
    "services.tcp.copied_mb_per_s",
    "services.memory.500",
];

const SERVICES: usize = 500;
const ROUNDS: usize = 5;
const LOOKUPS: usize = 20_000;
const BYTES: usize = 1 << 30;
const RESOLVER: Ipv4Addr = Ipv4Addr::new(169, 254, 96, 16);
const PORT: u16 = 8_080;

fn entry(number: usize) -> ServiceEntry {
    let [high, low] = (number as u16 + 1).to_be_bytes();
    ServiceEntry {
        namespace: "default".into(),
        name: format!("service-{number:04}").into(),
        kind: EntryKind::Cluster(Ipv4Addr::new(10, 96, high, low)),
        ports: vec![EntryPort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
        endpoints: vec![Endpoint { ip: RESOLVER, hostname: "".into(), ports: vec![PORT] }],
        affinity_s: 0,
        of_pods: true,
    }
}

fn name(number: usize) -> String {
    format!("service-{:04}.default.svc.cluster.local", number % SERVICES)
}

/// Our own part of an answer: the query is read, the name found, and the answer written.
pub fn names(_: &Rig) -> Vec<Figure> {
    let table: Vec<Arc<ServiceEntry>> = (0..SERVICES).map(|n| Arc::new(entry(n))).collect();
    let queries: Vec<Vec<u8>> =
        (0..LOOKUPS).map(|n| OwnQuery::new(n as u16, &name(n), kind::A).bytes).collect();
    let round = || {
        let begun = Instant::now();
        let mut bytes = 0;
        for query in &queries {
            let query = parse(query).expect("a query");
            let zone = Zone { domain: "cluster.local", table: &table, turn: 0 };
            let Resolution::Answer(answer) = zone.resolve(&query.question) else {
                panic!("it is in the zone")
            };
            bytes += query.answer(&answer, DNS_UDP_BYTES_MAX).len();
        }
        assert!(bytes > LOOKUPS * 50);
        begun.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64
    };
    let rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    vec![Figure::alone(NAMES[0], median(&rounds), "µs", Some(Limit::Most(200.0)))]
}

/// The process in this thread's network namespace.
struct Serving {
    child: Child,
    channel: OwnedFd,
}

impl Serving {
    fn start(path: &Path) -> Serving {
        let child = Command::new(binary()).args(["services", "serve"]).arg(path).spawn();
        let child = child.expect("it can be started");
        let flags = SockFlag::SOCK_CLOEXEC;
        let channel = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
        let channel = channel.expect("a socket");
        let address = UnixAddr::new(path).expect("a short path");
        wait(|| connect(channel.as_raw_fd(), &address).ok());
        Serving { child, channel }
    }

    fn tell(&self, order: &Order) {
        let bytes = postcard::to_stdvec(order).expect("plain data");
        send(self.channel.as_raw_fd(), &bytes, MsgFlags::empty()).expect("it reads");
    }

    fn serve(&self, count: usize) {
        self.tell(&Order::Begin);
        (0..count).for_each(|n| self.tell(&Order::Put(Arc::new(entry(n)))));
        self.tell(&Order::End);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.tell(&Order::Stop);
        let _ = self.child.wait();
    }
}

/// A cgroup of version 2, as that of all pods is.
struct Cgroup {
    name: String,
    folder: PathBuf,
    /// Where this program was.
    before: PathBuf,
}

impl Cgroup {
    fn new() -> Self {
        let top = top();
        let name = format!("edged-bench-{}", std::process::id());
        let folder = top.join(&name);
        std::fs::create_dir(&folder).expect("root may");
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("proc is there");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("version 2");
        Self { name, folder, before: top.join(own) }
    }

    fn enter(&self) {
        put_in(&self.folder);
    }

    fn leave(&self) {
        put_in(&self.before);
    }
}

/// Where cgroups of version 2 are. The bench takes those beside version 1 away, for crun's sake: in
/// this thread's mount namespace they are back.
fn top() -> PathBuf {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let known = |top: &&PathBuf| top.join("cgroup.controllers").exists();
    if let Some(top) = tops.iter().find(known) {
        return top.clone();
    }
    let (kind, target) = (Some("cgroup2"), tops[1].as_path());
    mount(kind, target, kind, MsFlags::empty(), None::<&str>).expect("the kernel has version 2");
    target.to_owned()
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn put_in(cgroup: &Path) {
    let text = std::process::id().to_string();
    std::fs::write(cgroup.join("cgroup.procs"), text).expect("root may");
}

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it has not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Names over UDP, bytes through a ClusterIP beside bytes over loopback, and memory.
pub fn served(rig: &Rig) -> Vec<Figure> {
    let path = rig.site().dir.join("services");
    let measured = std::thread::spawn(move || in_namespace(&path));
    measured.join().expect("it is measured")
}

fn in_namespace(path: &Path) -> Vec<Figure> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("root may");
    let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, flags, none).expect("root may");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.expect("iproute2 is there").success());
    let serving = Serving::start(path);
    let cgroup = Cgroup::new();
    serving.tell(&Order::Settings(Settings {
        domain: "cluster.local".to_owned(),
        address: RESOLVER,
        upstream: Vec::new(),
        resolv_conf: String::new(),
        pods_cgroup: cgroup.name.clone(),
    }));
    serving.serve(1);
    let server = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a free port");
    let cluster = SocketAddr::new(Ipv4Addr::new(10, 96, 0, 1).into(), 80);
    wait(|| TcpStream::connect(cluster).ok());
    let _ = server.accept();
    let before = pss_kb(serving.child.id()) as f64;
    serving.serve(SERVICES);
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("ours");
    socket.connect((RESOLVER, 53)).expect("it is on this machine");
    let mut buffer = [0; 1_232];
    let mut ask = |number: usize| {
        let query = OwnQuery::new(number as u16, &name(number), kind::A);
        socket.send(&query.bytes).expect("it is sent");
        let bytes = socket.recv(&mut buffer).expect("an answer");
        query.is_answered_by(number as u16, &buffer[..bytes])
    };
    assert!(ask(SERVICES - 1));
    std::thread::sleep(Duration::from_secs(2));
    let memory = (pss_kb(serving.child.id()) as f64 - before) / 1_024.0;
    let mut lookups: Vec<f64> = (0..2_000)
        .map(|number| {
            let begun = Instant::now();
            assert!(ask(number));
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    lookups.sort_by(f64::total_cmp);
    let direct = SocketAddr::new(RESOLVER.into(), PORT);
    let [mut copied, mut of_pods, mut beside] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        copied.push(throughput(&server, cluster));
        cgroup.enter();
        let led = TcpStream::connect(cluster).and_then(|it| it.peer_addr());
        assert_eq!(led.expect("it is served"), direct, "the kernel leads pods to the endpoint");
        let _ = server.accept();
        of_pods.push(throughput(&server, cluster));
        cgroup.leave();
        beside.push(throughput(&server, direct));
    }
    vec![
        Figure::alone(SERVED[0], median(&lookups), "ms", Some(Limit::Most(0.2))),
        Figure::beside(SERVED[1], &of_pods, &beside, "MB/s", Limit::Share(0.8)),
        // On two cores three of its four passages through TCP compete: 0.74 is the most there.
        Figure::beside(SERVED[2], &copied, &beside, "MB/s", Limit::Share(0.4)),
        Figure::alone(SERVED[3], memory, "MB", Some(Limit::Most(1.0))),
    ]
}

/// Megabytes in a second from the server to a client of this address.
fn throughput(server: &TcpListener, to: SocketAddr) -> f64 {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = server.accept().expect("a connection");
            let block = vec![7; 256 << 10];
            (0..BYTES / block.len()).for_each(|_| stream.write_all(&block).expect("open"));
        });
        let mut stream = TcpStream::connect(to).expect("it listens");
        let begun = Instant::now();
        let mut buffer = vec![0; 256 << 10];
        let mut sum = 0;
        while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
            sum += bytes;
        }
        assert_eq!(sum, BYTES);
        sum as f64 / 1e6 / begun.elapsed().as_secs_f64()
    })
}
