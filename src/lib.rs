//! **edged**: a node agent for small ARM gateways. It keeps the pods of a KubeEdge cloud, and of a
//! folder of manifests, running on a container runtime, as a kubelet would, in a few megabytes.
//!
//! # The map
//!
//! Read it down the tree: what is wanted goes from left to right, what is seen comes back.
//!
//! ```text
//!  manifests ──→ io/folder ──→ wire/manifest ──→ agent/source ──→ agent/pods ──→ agent/pod/next
//!                                                                   ▲   │              │
//!                                                                   │   ▼              ▼
//!  curl, CLI ←── io/server ←── wire/http1 ←── agent/view        agent/pleg       agent/calls
//!                                                                   ▲                  │
//!                                                                   │                  ▼
//!  runtime ──socket─→ io/runtime ──→ wire/grpc ──→ wire/cri ────────┘   io/runtime ─socket─→ it
//!
//!  cloud ──websocket─→ io/cloud ──→ wire/edge ──→ agent/cloud ──saved──→ agent/pods
//!    ▲                                   ▲           │    ▲
//!    │                                   │           ▼    │
//!    └──────────────── io/cloud ─────────┴─ statuses  io/disk (SQLite)
//! ```
//!
//! What the cloud says counts only once it is durable: heard, saved, acted on and acknowledged, in
//! this order. Never the pod first, never the acknowledgement first.
//!
//! Three layers, of which none looks up:
//!
//! - [`model`]: what the words mean. Plain data.
//! - [`wire`]: bytes ↔ model. Pure and sans-IO; every decoder is fuzzed.
//! - [`agent`]: **the mind.** Facts in ([`agent::event::Event`]), requests out
//!   ([`agent::event::Action`]), by three verbs: [`agent::Agent::handle`] only learns,
//!   [`agent::Agent::step`] looks at all it knows and asks for what is missing,
//!   [`agent::Agent::wake_at`] says when to step again if nothing happens. No clock, no files, no
//!   sockets, no threads: the simulator runs the very same code.
//! - [`core`]: what a core needs of time and chance, handed in.
//! - `controller`: **the cloud side's mind**, by the same verbs, for `edgecontroller` alone.
//! - [`io`]: **the hands.** One thread, one loop: poll → handle → step → perform. No decisions.
//!
//! # What holds
//!
//! The simulator (`tests/sim`) checks these after every event, the mutants (`scripts/mutants.sh`)
//! show that it would notice.
//!
//! 1. At most one runtime call of a pod is under way, but stops of its containers go side by side.
//!    Looks, stops and pulls have room of their own, so that none waits for the others' kind.
//! 2. A success teaches its effect at once; a failure or a lost answer makes blind: the pod is
//!    looked at before it is acted on.
//! 3. A list that was begun before a pod's last call ended is not believed for that pod; one that
//!    names what the runtime says is gone is believed ever more rarely.
//! 4. A pod that ends cancels its pull; its grace period only shrinks.
//! 5. Nothing is killed as unknown before the manifests were read once, and a manifest that cannot
//!    be read is no deletion.
//! 6. A pod that has ended is watched until it is forgotten: a call that was given up may take
//!    effect late.
//! 7. Attempt numbers come from what is seen, and never go back.
//! 8. A back-off belongs to its pod; waiting for room sets no timer.
//! 9. Only what carries the kubelet's labels is touched.
//! 10. No state outlives a crash but what the runtime, the manifest folder and the store hold, a
//!     file that says which folder the manifests were read from, and until the next reboot two
//!     files in `/run`: which containers' probes have succeeded, and how many starts in a row have
//!     crashed.
//! 11. Nothing of the cloud's counts or is acknowledged before it is durable; the store never goes
//!     back, and a deletion is final.
//!
//! # What is deliberately absent
//!
//! No async runtime and no thread beside the first: what may hang runs in a child process that can
//! be killed. No state per runtime call: a pod's next step is a pure function of what is wanted and
//! what was seen. No trait for machines, no bus, no callbacks. No HTTP/2 library: the CRI needs the
//! few frames that `wire/h2` knows. No list without a bound: see [`limits`].

pub mod agent;
pub mod cli;
pub mod config;
#[cfg(feature = "controller")]
pub mod controller;
pub mod core;
pub mod io;
pub mod limits;
pub mod model;
pub mod wire;
