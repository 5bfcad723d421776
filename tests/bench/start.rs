//! The time from the agent's start to its first call: after each restart and each power cut, all
//! pods wait for that.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::figure::{Figure, Limit};
use crate::memory::program;
use crate::rig::Rig;
use crate::support::cloud::{Cloud, Setup};
use crate::support::joined::join;
use crate::watched::Watched;

/// Names of [`first_call`].
pub const NAMES: &[&str] = &["gateway.start"];

const ROUNDS: usize = 15;
/// Longer than a start ever takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The size of a client's first bytes.
const PREFACE: usize = 24;
/// A server's empty SETTINGS frame.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The type of the frame that begins a call.
const HEADERS: u8 = 1;

/// Milliseconds from exec to the first CRI call, of an agent that has joined a cloud and has a
/// store; compared with the same program's `version`, from exec to exit.
pub fn first_call(rig: &Rig) -> Vec<Figure> {
    let socket = rig.socket("start.sock");
    let runtime = UnixListener::bind(&socket).expect("a socket of ours");
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site_on(socket);
    join(&mut site, &cloud);
    let program = program(&site);
    let round = || {
        let started = Instant::now();
        let agent = Watched::start_of(&site, &program);
        let (stream, _) = runtime.accept().expect("the agent comes");
        wait_for_call(stream);
        let took = started.elapsed().as_secs_f64() * 1_000.0;
        drop(agent);
        took
    };
    // The first one joins, and creates the store.
    let first = Watched::start_of(&site, &program);
    cloud.connected(1);
    drop(first);
    drop(runtime.accept().expect("it came as well"));
    let bare = || {
        let started = Instant::now();
        let status = Command::new(&program).arg("version").stdout(Stdio::null()).status();
        assert!(status.expect("it is there").success());
        started.elapsed().as_secs_f64() * 1_000.0
    };
    let (mut took, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        took.push(round());
        reference.push(bare());
    }
    vec![Figure::beside(NAMES[0], &took, &reference, "ms", Limit::Most(30.0))]
}

/// Reads until a call begins.
fn wait_for_call(mut stream: UnixStream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(&SETTINGS).expect("the agent reads");
    stream.read_exact(&mut [0; PREFACE]).expect("the preface");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        if head[3] == HEADERS {
            return;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).expect("the whole frame");
    }
}
