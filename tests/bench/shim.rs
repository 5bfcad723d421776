//! The codecs' own cost: ten thousand lists, compared with the same bytes exchanged by hand.

use std::time::Instant;

use edged::model::cri::Request;
use edged::wire::cri::convert;

use crate::bare::{Bare, DELETE, START};
use crate::figure::{Figure, Limit};
use crate::raw::Raw;
use crate::rig::{Network, Rig, idler};
use crate::support::cri::Cri;

/// Names of [`list`].
pub const NAMES: &[&str] = &["cri.list.10000"];

const CALLS: usize = 10_000;
/// Measured in alternating turns of this many, so that both sides see the same machine; the median
/// turn counts.
const TURN: usize = 500;
const TURNS: usize = CALLS / TURN;

/// With ten pods in the runtime.
pub fn list(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    let texts: Vec<String> = (0..10).map(|n| idler(&format!("p{n}"), Network::Host)).collect();
    let mut bare = Bare::connect(&site.runtime, &site.pod_logs, &texts);
    bare.run(START);
    let mut cri = Cri::connect(&site.runtime).expect("the runtime listens");
    let (rpc, message) = convert::encode(&Request::ListPodSandbox);
    let mut raw = Raw::connect(&site.runtime, rpc.path(), &message);
    let (mut shim_s, mut raw_s) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    // One turn of each to warm up.
    for turn in 0..=TURNS {
        let begun = Instant::now();
        for _ in 0..TURN {
            bytes = raw.exchange();
        }
        let raw_took = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        for _ in 0..TURN {
            let (_, message) = convert::encode(&Request::ListPodSandbox);
            cri.begin(rpc, &message);
            let (_, answer) = cri.next();
            convert::decode(rpc, &answer.expect("a list")).expect("a list");
        }
        let shim_took = begun.elapsed().as_secs_f64();
        if turn > 0 {
            raw_s.push(raw_took * TURNS as f64);
            shim_s.push(shim_took * TURNS as f64);
        }
    }
    eprintln!("bench:   a reply has {bytes} bytes of DATA");
    bare.run(DELETE);
    vec![Figure::beside(NAMES[0], &shim_s, &raw_s, "s", Limit::Ratio(1.2))]
}
