//! **edged**: a node agent for small ARM gateways. It keeps the pods of a KubeEdge cloud, and of a
//! folder of manifests, running on a container runtime, as a kubelet would, in a few megabytes.
//!
//! # The map
//!
//! What is wanted goes from left to right; what is observed comes back.
//!
//! ```text
//!  manifests ──→ io/folder ──→ wire/manifest ──→ agent/source ──→ agent/pods ──→ agent/pod/next
//!                                                                   ▲   │              │
//!                                                                   │   ▼              ▼
//!  curl, CLI ←── io/server ←── wire/http1 ←── agent/view        agent/pleg       agent/calls
//!                                                                   ▲                  │
//!                                                                   │                  ▼
//!  runtime ──socket─→ io/runtime ──→ wire/line ──→ wire/cri ────────┘   io/runtime ─socket─→ it
//!
//!  cloud ──websocket─→ io/cloud ──→ wire/kubeedge ──→ agent/cloud ──saved──→ agent/pods
//!    ▲                                   ▲               │    ▲
//!    │                                   │               ▼    │
//!    └──────────────── io/cloud ─────────┴── statuses  io/disk (SQLite)
//! ```
//!
//! An object of the cloud counts only once it is durable: received, saved, acted on and
//! acknowledged, in this order.
//!
//! Layers, of which none uses one above it:
//!
//! - [`model`]: the data of Kubernetes, CRI and KubeEdge as plain types.
//! - [`wire`]: bytes ↔ model. Pure and sans-IO; every decoder is fuzzed.
//! - [`core`]: what every core needs: time and randomness as arguments, back-off, rate limits.
//! - [`agent`]: **the agent's core.** Facts in ([`agent::event::Event`]), requests out
//!   ([`agent::event::Action`]), by three methods: [`agent::Agent::handle`] only learns,
//!   [`agent::Agent::step`] looks at all that is known and requests what is missing,
//!   [`agent::Agent::wake_at`] says when to step again if nothing happens. No clock, no files, no
//!   sockets, no threads: the simulator runs the same code.
//! - `controller`: **the core of the cloud side**, by the same methods, for `edgecontroller` alone.
//! - `runtime`: **the core of the built-in runtime**, by the same methods.
//! - [`io`]: **the event loop.** One thread: poll → handle → step → perform. No decisions.
//!
//! # Invariants
//!
//! The simulator (`tests/sim`) checks these after every event, and the mutants
//! (`scripts/mutants.sh`) show that it would find a violation.
//!
//! 1. At most one runtime call of a pod is under way, except stops of its containers, which run
//!    side by side. Lists, stops and pulls have limits of their own, so that none waits for the
//!    others.
//! 2. A successful call changes what is known at once. After a failed call, or a lost answer, the
//!    pod is listed before anything else is done with it.
//! 3. A list that began before the last call of a pod ended is not used for that pod. If it names
//!    what the runtime says is gone, that is retried with a back-off.
//! 4. A pod that ends cancels its pull; its grace period only shrinks.
//! 5. Nothing is killed as unknown before the manifests were read once, and a manifest that cannot
//!    be read does not delete its pod.
//! 6. A pod that has ended is observed until it is forgotten: an abandoned call may take effect
//!    late.
//! 7. Attempt numbers follow from the containers that exist, and never decrease.
//! 8. A back-off belongs to its pod; waiting for a free slot sets no timer.
//! 9. Only containers and sandboxes with the kubelet's labels are touched.
//! 10. After a crash, state is only in the runtime, the manifest folder, the store, a file that
//!     names the folder of the manifests, and until the next reboot two files in `/run`: which
//!     containers' probes have succeeded, and how many starts in a row have crashed.
//! 11. No object of the cloud counts or is acknowledged before it is durable; the store never goes
//!     back, and a deletion is final. Only what the watches of MetaServer bring is a cache: it is
//!     acknowledged in memory, and listed anew in each connection.
//!
//! # What is deliberately absent
//!
//! No async runtime and no second thread: what may hang runs in a child process that can be killed.
//! No state per runtime call: the next step of a pod is a pure function of what is wanted and what
//! was observed. No trait for state machines, no bus, no callbacks. No HTTP/2 library: CRI and
//! mappers need the few frames that `wire/h2` has. No list without a bound: see [`limits`].
//!
//! # Glossary
//!
//! The words are those of Kubernetes, CRI, KubeEdge and Linux. A few are our own:
//!
//! - **core**: a state machine without I/O that handles events and returns actions.
//! - **step**: one pass of a core over all that it knows.
//! - **tombstone**: the mark of a deleted object, kept so that late messages do not bring it back.
//! - **story**: a test that gives a core facts and expects requests.
//! - **sets**: the features `minimal`, `gateway`, `full` and `standalone`, with a size budget each.

pub mod agent;
#[cfg(not(cores_alone))]
#[cfg(not(cores_alone))]
pub mod cli;
#[cfg(not(cores_alone))]
#[cfg(not(cores_alone))]
pub mod config;
#[cfg(feature = "controller")]
pub mod controller;
pub mod core;
#[cfg(not(cores_alone))]
#[cfg(not(cores_alone))]
pub mod io;
pub mod limits;
pub mod model;
#[cfg(feature = "runtime")]
pub mod runtime;
pub mod wire;
