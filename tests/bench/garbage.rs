//! Whether the event loop blocks during a large garbage collection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fake::Fake;
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::Site;
use crate::support::http;
use crate::watched::{RUNS, Watched};

/// Names of [`stall`].
pub const NAMES: &[&str] = &["gc.stall"];

/// Containers of the pod; together they leave five hundred dead ones.
const CONTAINERS: usize = 10;
const DEAD_EACH: u32 = 50;
const IMAGES: usize = 50;
/// Containers are collected each minute, for the first time when the pods are known.
const PATIENCE: Duration = Duration::from_secs(150);
const IDLE: Duration = Duration::from_secs(20);

/// Milliseconds of the longest time without an answer of the loop, while it removes five hundred
/// dead containers with their logs and fifty images; compared with the same agent at rest.
pub fn stall(rig: &Rig) -> Vec<Figure> {
    let fake = Fake::start(rig.socket("garbage.sock"));
    let site = rig.site_on(fake.socket().to_owned());
    let settings = |images: &str| {
        site.set("maxPerPodContainerCount: 1", &format!("evictionHard: {{}}\n{images}"));
    };
    settings("imageGCHighThresholdPercent: 100");
    site.put("crowd.yaml", &crowd());
    let mut agent = Watched::start(&site);
    agent.wait(1, RUNS);
    drop(agent);
    fill(&fake, &site);
    // Any disk usage is above the threshold.
    settings(
        "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 0s",
    );
    let agent = Watched::start(&site);
    let asker = Asker::start(site.api);
    let started = Instant::now();
    while fake.state().count() != (CONTAINERS, CONTAINERS, 1) {
        let left = fake.state().count();
        assert!(started.elapsed() < PATIENCE, "running, dead, images: {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = started.elapsed();
    let (busy, requested) = asker.stop();
    eprintln!("bench:   clean after {:.2} s, asked {requested} times", took.as_secs_f64());
    assert!(requested > 0, "it listens before it cleans");
    let asker = Asker::start(site.api);
    std::thread::sleep(IDLE);
    let (idle, _) = asker.stop();
    let left = fake.state().count();
    assert_eq!(left, (CONTAINERS, CONTAINERS, 1), "what the policies keep stays");
    drop(agent);
    let limit = Some(Limit::Most(50.0));
    vec![Figure { reference: Some(idle), ..Figure::alone(NAMES[0], busy, "ms", limit) }]
}

fn crowd() -> String {
    let container = |n| format!("  - {{name: c{n}, image: localhost/pause:1}}");
    let containers: Vec<String> = (0..CONTAINERS).map(container).collect();
    let containers = containers.join("\n");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: crowd}}\nspec:\n  hostNetwork: true\n  \
         containers:\n{containers}\n"
    )
}

fn fill(fake: &Fake, site: &Site) {
    let mut state = fake.state();
    for log in state.restart_all(DEAD_EACH) {
        assert!(log.starts_with(&*site.pod_logs.to_string_lossy()), "{log}");
        std::fs::write(&log, "x".repeat(64 << 10)).expect("the folder of a container that ran");
    }
    state.add_images(IMAGES);
    assert_eq!(state.count(), (CONTAINERS, CONTAINERS * DEAD_EACH as usize, IMAGES + 1));
}

/// Polls the agent's health; records the longest wait.
struct Asker {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<(f64, u32)>,
}

impl Asker {
    fn start(api: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let stopped = ends.clone();
        let thread = std::thread::spawn(move || {
            let (mut longest, mut answers) = (Duration::ZERO, 0);
            while !stopped.load(Ordering::Relaxed) {
                let requested = Instant::now();
                // It listens only after a while.
                if http::get(api, "/healthz").is_ok() {
                    longest = longest.max(requested.elapsed());
                    answers += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            (longest.as_secs_f64() * 1_000.0, answers)
        });
        Self { ends, thread }
    }

    /// Milliseconds of the longest wait, and the number of answers.
    fn stop(self) -> (f64, u32) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only asks")
    }
}
