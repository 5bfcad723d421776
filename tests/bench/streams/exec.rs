//! The latency of a command in a container.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use edged::wire::cri::streaming::ExecRequest;

use super::{POD, manifest, path, socket};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::{NODE, binary};
use crate::support::cri::Cri;
use crate::support::exec::Exec;
use crate::watched::{RUNS, Watched};

/// Names of [`latency`].
pub const NAMES: &[&str] = &["streams.exec", "streams.exec.cli"];

const ROUNDS: usize = 60;
const REST: Duration = Duration::from_millis(37);
/// Each follows each: what is measured after another must not always follow the same.
const ORDERS: [[usize; 4]; 6] =
    [[0, 1, 2, 3], [0, 1, 3, 2], [2, 0, 1, 3], [2, 3, 0, 1], [3, 0, 1, 2], [3, 2, 0, 1]];

/// Milliseconds of `true` in a container: through the agent's endpoint, and by `edged exec`. The
/// reference is what any client of the runtime does: the call `Exec`, a connection to the URL in
/// its answer, and a websocket over it until the command's status has come and it is closed; for
/// `edged exec` a program's start stands before that.
pub fn latency(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    site.put("seen.yaml", &manifest());
    let mut agent = Watched::start(&site);
    agent.wait(1, RUNS);
    let id = site.wait_running(POD).container_id("main");
    let mut cri = Cri::connect(&site.runtime).expect("it listens");
    let mut bare = || {
        let url = cri.call(&request(&id)).expect("a URL").url;
        let (address, path) = parts(&url);
        ended(Exec::over(TcpStream::connect(address).expect("the runtime listens"), path));
    };
    let through =
        || ended(Exec::open(&socket(&site), &path("exec", "output=1&error=1&command=true")));
    let by_command = || {
        let mut command = Command::new(binary());
        command.args(["exec", "--server"]).arg(format!("unix://{}", socket(&site).display()));
        let status = command.arg(format!("{POD}-{NODE}")).args(["--", "true"]).status();
        assert!(status.expect("it runs").success());
    };
    let start = || assert!(Command::new("true").status().expect("every machine has it").success());
    let mut times = [const { Vec::new() }; 4];
    // The first warms the caches of all.
    for round in 0..=ROUNDS {
        let mut round_times = [0.0; 4];
        for way in ORDERS[round % ORDERS.len()] {
            round_times[way] = match way {
                0 => timed(&mut bare),
                1 => timed(start),
                2 => timed(through),
                _ => timed(by_command),
            };
        }
        round_times[1] += round_times[0];
        if round > 0 {
            times.iter_mut().zip(round_times).for_each(|(times, time)| times.push(time));
        }
    }
    drop(agent);
    rig.wipe();
    let [bare, started, took, commands] = times;
    vec![
        Figure::beside(NAMES[0], &took, &bare, "ms", Limit::Ratio(1.10)),
        Figure::beside(NAMES[1], &commands, &started, "ms", Limit::Ratio(1.10)),
    ]
}

fn request(id: &str) -> ExecRequest {
    ExecRequest {
        container_id: id.to_owned(),
        cmd: vec!["true".to_owned()],
        tty: false,
        stdin: false,
        stdout: true,
        stderr: true,
    }
}

/// Milliseconds, from rest: what a command leaves to the runtime takes it milliseconds, and would
/// fall upon the next one.
fn timed(mut run: impl FnMut()) -> f64 {
    std::thread::sleep(REST);
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64() * 1_000.0
}

fn ended<S: std::io::Read + std::io::Write>(exec: Exec<S>) {
    let [_, _, _, status] = exec.rest();
    assert!(status.contains("Success"), "{status}");
}

/// The address and the path of `http://127.0.0.1:41513/exec/Jg8mmVu0`.
fn parts(url: &str) -> (SocketAddr, &str) {
    let rest = url.strip_prefix("http://").expect("a URL of the runtime");
    let at = rest.find('/').expect("it has a path");
    (rest[..at].parse().expect("an address"), &rest[at..])
}
