//! The cost of probes, and their delay while the machine is busy.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fake::Fake;
use crate::figure::{Figure, Limit, median};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::support::process::cpu_seconds;
use crate::watched::{RUNS, Watched};

/// Names of [`cpu`].
pub const CPU: &[&str] = &["probes.cpu.200"];
/// Names of [`late`].
pub const LATE: &[&str] = &["probes.late"];

/// Start-up is over, and each probe ran once.
const SETTLE: Duration = Duration::from_secs(15);
const WINDOW: Duration = Duration::from_secs(60);

/// Percent of a core for two hundred containers with a liveness probe by HTTP and a readiness probe
/// by TCP each, every ten seconds: the difference to an agent without probes.
pub fn cpu(rig: &Rig) -> Vec<Figure> {
    let server = Server::start();
    let percent = |probes: &str| {
        let fake = Fake::start(rig.socket(&format!("probes{}.sock", probes.len())));
        let site = rig.site_on(fake.socket().to_owned());
        let mut agent = Watched::start(&site);
        for n in 0..100 {
            site.put(&format!("p{n}.yaml"), &two_containers(n, probes));
        }
        agent.wait(100, RUNS);
        std::thread::sleep(SETTLE);
        let (before, answered) = (cpu_seconds(agent.pid()), server.answered());
        std::thread::sleep(WINDOW);
        let used = cpu_seconds(agent.pid()) - before;
        eprintln!("bench:   {} queries, {used:.3} s of CPU", server.answered() - answered);
        assert!(probes.is_empty() || server.answered() - answered > 1_000, "the probes run");
        used * 100.0 / WINDOW.as_secs_f64()
    };
    let without = percent("");
    let port = server.port;
    let with = percent(&format!(
        "    livenessProbe: {{httpGet: {{host: 127.0.0.1, port: {port}, path: /}}}}\n    \
         readinessProbe: {{tcpSocket: {{host: 127.0.0.1, port: {port}}}}}\n"
    ));
    vec![Figure::alone(CPU[0], with - without, "% core", Some(Limit::Most(1.0)))]
}

fn two_containers(n: usize, probes: &str) -> String {
    let container =
        |name: &str| format!("  - name: {name}\n    image: localhost/pause:1\n{probes}");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p{n}\nspec:\n  hostNetwork: true\n  \
         containers:\n{}{}",
        container("a"),
        container("b")
    )
}

/// Ten containers are probed every second; then ten more pods start and an image is pulled that
/// does not come. The longest delay of a probe meanwhile, in percent of its period.
pub fn late(rig: &Rig) -> Vec<Figure> {
    const PERIOD_MS: f64 = 1_000.0;
    rig.wipe();
    let server = Server::start();
    let site = rig.site();
    let mut agent = Watched::start(&site);
    agent.wait_ready();
    for n in 0..10 {
        let probe = format!(
            "    livenessProbe: {{httpGet: {{host: 127.0.0.1, port: {}, path: /{n}}}, \
             periodSeconds: 1}}\n",
            server.port
        );
        site.put(&format!("p{n}.yaml"), &(idler(&format!("p{n}"), Network::Host) + &probe));
    }
    agent.wait(10, RUNS);
    std::thread::sleep(Duration::from_secs(3));
    let calm_at = Instant::now();
    std::thread::sleep(Duration::from_secs(8));
    let busy_at = Instant::now();
    pull_without_end(&site);
    for n in 10..20 {
        site.put(&format!("p{n}.yaml"), &idler(&format!("p{n}"), Network::Host));
    }
    let took = agent.wait(10, RUNS) - busy_at;
    std::thread::sleep(Duration::from_secs(1));
    let mut worst_ms: f64 = 0.0;
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 10, "each container is probed");
    for times in arrivals.values() {
        let phase = |at: &Instant| (*at - calm_at).as_secs_f64() * 1e3 % PERIOD_MS;
        let calm: Vec<Instant> =
            times.iter().copied().filter(|at| (calm_at..busy_at).contains(at)).collect();
        // Phases count from the first, so that none is cut in two.
        let first = phase(&calm[0]);
        let from_first = |at: &Instant| {
            let ms = (phase(at) - first).rem_euclid(PERIOD_MS);
            if ms > PERIOD_MS / 2.0 { ms - PERIOD_MS } else { ms }
        };
        let usual = median(&calm.iter().map(from_first).collect::<Vec<_>>());
        let busy = times.iter().filter(|at| **at >= busy_at);
        worst_ms = busy.map(|at| from_first(at) - usual).fold(worst_ms, f64::max);
    }
    eprintln!(
        "bench:   ten pods started in {took:.1?}, the latest probe was {worst_ms:.1} ms late"
    );
    drop(agent);
    rig.wipe();
    let percent = worst_ms * 100.0 / PERIOD_MS;
    vec![Figure::alone(LATE[0], percent, "% period", Some(Limit::Most(5.0)))]
}

/// A pod whose image is at a registry that accepts connections and does not answer.
fn pull_without_end(site: &Site) {
    let registry = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = registry.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let silent: Vec<TcpStream> = registry.incoming().flatten().collect();
        drop(silent);
    });
    let pod = idler("pulls", Network::Host)
        .replace("localhost/pause:1", &format!("127.0.0.1:{port}/nothing:1"));
    site.put("pulls.yaml", &pod);
}

/// Answers every GET with 200, and records the times.
struct Server {
    port: u16,
    arrivals: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let arrivals = Arc::new(Mutex::new(BTreeMap::<String, Vec<Instant>>::new()));
        let reported = Arc::clone(&arrivals);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let at = Instant::now();
                let mut head = [0; 1024];
                let count = stream.read(&mut head).unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..count]);
                // A TCP probe sends nothing.
                let path = text.split(' ').nth(1).unwrap_or("tcp").to_owned();
                reported.lock().expect("nobody panics with it").entry(path).or_default().push(at);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        Self { port, arrivals }
    }

    fn answered(&self) -> usize {
        self.arrivals.lock().expect("nobody panics with it").values().map(Vec::len).sum()
    }

    fn arrivals(&self) -> BTreeMap<String, Vec<Instant>> {
        self.arrivals.lock().expect("nobody panics with it").clone()
    }
}
