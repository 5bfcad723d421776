//! Both cores together: the agent with its runtime and the controller with its API server, joined
//! by a link, in memory and on a clock that the test moves.
//!
//! The stories of either core and both simulators stand for the other side with a model of it. What
//! the two sides understand differently shows only here: hours pass in milliseconds, and a pod of
//! the API server must run on the node, whatever either side has done in between.
//!
//! The worlds of `worlds`, `informers`, `devices`, `jobs` and `rules` are
//! drawn from seeds: `SIM_FIRST=n` names the first,
//! `SIM_SEEDS=n` says how many, and `SEED=n` runs one alone.
#![expect(clippy::panic, reason = "a failing test reports where")]

#[path = "../stories/clock.rs"]
mod clock;
#[path = "../stories/cloud_harness.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
mod cloud_harness;
#[path = "../stories/cluster.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
mod cluster;
mod controller;
#[path = "../sim/cloud/devices/rows.rs"]
#[expect(dead_code, reason = "shared with the simulator; not all of it is needed here")]
mod device_rows;
mod devices;
#[path = "../stories/harness.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the stories; not all of it is needed here"
)]
mod harness;
mod informers;
mod jobs;
mod joint;
#[path = "../stories/made.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
mod made;
#[path = "../stories/named.rs"]
mod named;
#[path = "../stories/node.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
mod node;
#[path = "../stories/props.rs"]
mod props;
mod rules;
mod stories;
mod worlds;
