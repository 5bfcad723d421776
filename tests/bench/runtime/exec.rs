//! A command in a container, and the smallest call.

use std::path::Path;
use std::time::{Duration, Instant};

use edged::wire::cri::container::ExecSyncRequest;
use edged::wire::cri::runtime::VersionRequest;

use super::{builtin, order};
use crate::bare::{Bare, DELETE, START};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::sleeper;
use crate::support::cri::Cri;
use crate::support::runtime_state;

/// Names of [`command`].
pub const EXEC: &[&str] = &["runtime.exec", "runtime.exec.runc"];
/// Names of [`version`].
pub const RPC: &[&str] = &["runtime.rpc"];

const ROUNDS: usize = 45;
const REST: Duration = Duration::from_millis(37);
const CALLS: usize = 3_000;
/// Measured in turns of this many; the median turn counts.
const TURN: usize = 100;

/// Milliseconds of `true` by ExecSync, as a probe runs it.
pub fn command(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let (crun, runc) = (builtin(rig, "crun"), builtin(rig, "runc"));
    let sides = [rig.runtime(), crun.socket(), runc.socket()];
    let mut bares = sides.each_ref().map(|socket| {
        let site = rig.site_on(socket.clone());
        let mut bare = Bare::connect(socket, &site.pod_logs, &[sleeper("p")]);
        bare.run(START);
        bare
    });
    let mut lines = sides.each_ref().map(|socket| (connect(socket), request(socket)));
    let mut times = [const { Vec::new() }; 3];
    // The first warms the caches of all.
    for round in 0..=ROUNDS {
        for side in order::<3>(round) {
            // From rest: what a command leaves to the runtime takes it milliseconds.
            std::thread::sleep(REST);
            let (cri, request) = &mut lines[side];
            let begun = Instant::now();
            let reply = cri.call(request).expect("it runs");
            let took = begun.elapsed().as_secs_f64() * 1_000.0;
            assert_eq!(reply.exit_code, 0);
            if round > 0 {
                times[side].push(took);
            }
        }
    }
    for bare in &mut bares {
        bare.run(DELETE);
    }
    crun.cut();
    runc.cut();
    vec![
        Figure::beside(EXEC[0], &times[1], &times[0], "ms", Limit::Ratio(0.50)),
        Figure::beside(EXEC[1], &times[2], &times[0], "ms", Limit::Ratio(0.70)),
    ]
}

fn request(socket: &Path) -> ExecSyncRequest {
    let state = runtime_state::list(socket);
    let container_id = state.running("main")[0].id.clone();
    ExecSyncRequest { container_id, cmd: vec!["true".to_owned()], timeout: 10 }
}

fn connect(socket: &Path) -> Cri {
    Cri::connect(socket).expect("it listens")
}

/// Microseconds of the call `Version`.
pub fn version(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let crun = builtin(rig, "crun");
    let mut lines = [rig.runtime(), crun.socket()].map(|socket| connect(&socket));
    let mut times = [const { Vec::new() }; 2];
    for turn in 0..=CALLS / TURN {
        for side in order::<2>(turn) {
            let begun = Instant::now();
            for _ in 0..TURN {
                lines[side].call(&VersionRequest { version: String::new() }).expect("a version");
            }
            if turn > 0 {
                times[side].push(begun.elapsed().as_secs_f64() * 1e6 / TURN as f64);
            }
        }
    }
    crun.cut();
    vec![Figure::beside(RPC[0], &times[1], &times[0], "µs", Limit::Ratio(0.50))]
}
