//! The controller's hands: everything that touches the system. They decide nothing.
//!
//! ```text
//!  poll ─▶ ports, API server, folder ─▶ events ─▶ handle* ─▶ step ─▶ actions ─▶ perform*
//!   ▲                                                                             │
//!   └── sleep until wake_at ◀── write the sockets ◀── tell of it ◀── keep it ◀────┘
//! ```
//!
//! One thread, one poll, one turn after the other, as the agent's ([`crate::io`]). What a turn
//! changed is on the disk before anybody hears of it.
//!
//! **If we crash here** the nodes dial again; what they acknowledged is in the store, and what they
//! run they go on to run.

pub mod api;
pub mod authority;
mod http_api;
pub mod http_server;
pub mod listeners;
mod secrets;
pub mod settings;
pub mod store;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use mio::{Events, Poll, Token};

use crate::agent::admit;
use crate::controller::event::{Action, CallId, Event, Out};
use crate::controller::identity::Identity;
use crate::controller::local::{Duplicate, Key, Objects, Row};
use crate::controller::time::{Instant, Now};
use crate::controller::{self, Candidate, Controller, SyncStore};
use crate::io::cloud::names;
use crate::io::folder::{self, Held, Manifests, Room};
use crate::io::signal::{self, SignalAction, Signals};
use crate::io::turn::{self, Turn};
use crate::io::turn_log;
use crate::io::{clock, sys};
use crate::limits::{MANIFEST_ALL_BYTES_MAX, MANIFEST_ALL_OBJECTS_MAX};
use crate::model::api::Kind;
use crate::model::link::{Session, Validity};
use crate::model::manifest::Folder;
use crate::model::meta::DiskError;
use crate::model::raw::Manifest;
use crate::wire::manifest::raw;
use api::Api;
use api::local::Local;
use api::remote::endpoints::Endpoint;
use api::remote::{self, Remote, TOKENS};
use authority::{Authority, Clients};
use http_server::HttpServer;
use listeners::Ports;
use settings::{Settings, Source};
use store::{Kept, Store};

const SIGNALS: Token = Token(0);
const FOLDER: Token = Token(1);
/// The first listener of our own API; its connections and the second have the tokens after it.
const FRONT: Token = Token(16);
/// The first connection to the API server; the others have the tokens after it.
const API: Token = Token(1_024);
/// The listeners of both ports; their connections have all after them.
const PORTS: Token = Token(1 << 20);

/// Runs the controller until it is told to stop, or the system refuses what it cannot be without.
pub fn run(settings: Settings) -> ExitCode {
    let mut hands = match EventLoop::open(settings) {
        Ok(hands) => hands,
        Err(why) => {
            ::log::error!("cannot start: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut ready = turn::events();
    loop {
        if let Err(error) = hands.sleep(&mut ready) {
            ::log::error!("cannot poll: {error}");
            return ExitCode::FAILURE;
        }
        if hands.turn(&ready) == Next::Exit {
            hands.ports.shut();
            ::log::info!("stopped; the nodes go on with what they have");
            return ExitCode::SUCCESS;
        }
    }
}

/// The whole life of a child of ours, `edgecontroller job <kind>`, which looks up a name.
pub fn child(kind: &str) -> ExitCode {
    signal::let_through();
    if kind == names::KIND { names::child() } else { ExitCode::FAILURE }
}

/// What children run: the same binary while the file is replaced.
const PROGRAM: &str = "/proc/self/exe";

/// What follows a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Turn,
    Exit,
}

struct EventLoop {
    poll: Poll,
    settings: Settings,
    controller: Controller,
    signals: Signals,
    authority: Authority,
    ports: Ports,
    api: Api,
    /// Of the token in the Secret; `None`: there is no Secret.
    renewal: Option<secrets::Renewal>,
    store: Store,
    manifests: Manifests<Vec<Manifest>>,
    front: HttpServer,
    /// Facts that the mind has not been told.
    events: Vec<Event>,
    out: Out,
    /// Sessions to which something was sent in this turn.
    dirty: Vec<Session>,
    /// What the mind asked to keep in this turn.
    save: Option<(crate::model::meta::Revision, Vec<crate::model::sync::Change>)>,
    /// What is to be kept of nodes' certificates.
    identities: BTreeMap<Box<str>, Identity>,
    /// What was said of each file.
    said: Vec<String>,
    stopping: bool,
}

/// The folder's objects as the store kept them.
fn loaded(rows: Vec<(Key, Row)>, version: u64, is_new: bool) -> Objects {
    let mut objects = Objects::load(rows, version, clock::seed());
    if is_new {
        objects.derive_uids();
    }
    if objects.trimmed() > 0 {
        let count = objects.trimmed();
        ::log::warn!(
            "{count} objects were kept beyond what a node may store, and are cut: statuses, \
             annotations and mirror pods, which their nodes tell again"
        );
    }
    objects
}

impl EventLoop {
    fn open(settings: Settings) -> Result<Self, String> {
        sys::raise_descriptors();
        let failed = |error: io::Error| error.to_string();
        let poll = Poll::new().map_err(failed)?;
        let signals = Signals::open(poll.registry(), SIGNALS).map_err(failed)?;
        let now = clock::now();
        let now_s = now.timestamp().map(|at| at.0);
        let now_s = now_s.ok_or("this machine's clock is not set: certificates need the time")?;
        let had_store = settings.store().exists();
        let (store, mut kept) = Store::open(&settings.store())?;
        if settings.source == Source::Folder {
            judge(&settings, &mut kept, had_store, now_s)?;
        }
        let ground = Ground::find(&settings, now_s)?;
        let authority = ground.authority;
        let ports = Ports::new(
            (settings.hub, authority.tls(Clients::Required)?),
            (settings.https, authority.tls(Clients::Asked)?),
            PORTS,
        );
        let parse = |bytes: &[u8]| raw::parse_valid(bytes, admit::invalid);
        let folder = settings.manifests.clone();
        let manifests = Manifests::open(folder, parse, poll.registry(), FOLDER)
            .remembering(settings.data.join(folder::RECORD));
        let config = controller::Config {
            authority: authority.for_the_mind(),
            certificate_days: settings.certificate_days,
            enrol_again: settings.enrol_again(),
            namespace: settings.namespace.as_str().into(),
            keepalive_ms: settings.keepalive_ms,
            nodes_max: settings.nodes_max,
            api_authority: ground.reach.as_ref().map(|reach| reach.authority.clone()),
            sync: ground.sync,
            candidate: ground.candidate,
        };
        let api = if let Some(reach) = ground.reach {
            Api::Remote(Box::new(Remote::new(reach, PathBuf::from(PROGRAM), API)))
        } else {
            let objects = loaded(kept.objects, kept.version, kept.is_new);
            Api::Local(Box::new(Local::new(objects)))
        };
        let is_remote = matches!(api, Api::Remote(_));
        Ok(Self {
            controller: Controller::boot(config, now, clock::seed()),
            signals,
            authority,
            ports,
            api,
            renewal: is_remote.then(|| secrets::Renewal::new(now.boot)),
            store,
            manifests,
            front: HttpServer::new(settings.api, settings.socket(), FRONT),
            events: vec![Event::Loaded(kept.records), Event::Identities(kept.identities)],
            out: Out::default(),
            dirty: Vec::new(),
            save: None,
            identities: BTreeMap::new(),
            said: Vec::new(),
            stopping: false,
            settings,
            poll,
        })
    }

    fn sleep(&mut self, ready: &mut Events) -> io::Result<()> {
        let due = [
            self.controller.wake_at(),
            self.ports.wake_at(),
            self.api.wake_at(),
            self.front.wake_at(),
            self.renewal.as_ref().map(secrets::Renewal::wake_at),
            matches!(self.api, Api::Local(_)).then(|| self.manifests.wake_at()),
        ];
        let due_at = due.into_iter().flatten().min().unwrap_or_default();
        let due_at = if self.events.is_empty() { due_at } else { Instant(0) };
        match self.poll.poll(ready, Some(turn::timeout(clock::boot(), due_at))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    /// One turn.
    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::now();
        let mut turn = Turn::begin();
        for ready in ready {
            match ready.token() {
                SIGNALS => self.signalled(),
                FOLDER => self.manifests.ready(now.boot),
                token if token.0 >= PORTS.0 => self.ports.ready(ready),
                token if self.front.owns(token) => self.front.ready(ready),
                token if (API.0..API.0 + TOKENS).contains(&token.0) => self.api.ready(ready),
                token => ::log::debug!("token={} is nobody's", token.0),
            }
        }
        turn.lap("signals");
        if matches!(self.api, Api::Local(_))
            && let Some(folder) = self.manifests.tick(now.boot)
        {
            self.read(folder, now);
            turn.lap("the manifest folder");
        }
        self.renew_token(now);
        self.ports.tick(now, self.poll.registry(), &self.authority, &mut self.events);
        turn.lap("the ports");
        self.api.tick(now, self.poll.registry(), &mut self.events);
        turn.lap("the objects");
        let next = self.think(now, &mut turn);
        self.keep(now.boot);
        turn.lap("the store");
        self.ports.flush(now.boot, &mut self.dirty, &mut self.events);
        turn.lap("what goes to the nodes");
        self.answer_people(now);
        turn.lap("the controller's API");
        turn.end();
        next
    }

    fn think(&mut self, now: Now, turn: &mut Turn) -> Next {
        let due = self.controller.wake_at().is_some_and(|at| at <= now.boot);
        if self.events.is_empty() && !due {
            return Next::Turn;
        }
        turn::rounds(|| self.round(now, turn)).unwrap_or(Next::Turn)
    }

    /// `None`: something of it is answered already.
    fn round(&mut self, now: Now, turn: &mut Turn) -> Option<Next> {
        for event in self.events.drain(..) {
            match event {
                Event::Called(OWN_CALL, Ok(_)) => ::log::debug!("the Secret has a new token"),
                Event::Called(OWN_CALL, Err(error)) => {
                    ::log::warn!("the Secret keeps its old token: {error:?}");
                }
                event => self.controller.handle(now, event),
            }
        }
        self.controller.step(now, &mut self.out);
        turn.lap("the controller");
        let mut actions = std::mem::take(&mut self.out.actions);
        for action in actions.drain(..) {
            if self.perform(action, now) == Next::Exit {
                return Some(Next::Exit);
            }
        }
        self.out.actions = actions;
        turn.lap("what it asks for");
        self.events.is_empty().then_some(Next::Turn)
    }

    fn perform(&mut self, action: Action, now: Now) -> Next {
        match action {
            Action::Accept(session) => self.ports.accept_session(session),
            Action::Refuse(session, refusal) => self.ports.refuse(session, &refusal),
            Action::Send(session, message) => {
                self.ports.send(session, &message, &mut self.events);
                self.dirty.push(session);
            }
            Action::Close(session, why) => self.ports.close(session, &why),
            Action::Answer(exchange, answer) => self.ports.answer(exchange, &answer),
            Action::Sign { exchange, request, node, days } => {
                let result = self.sign(&request, &node, days, now);
                self.events.push(Event::Signed(exchange, result.map(Into::into)));
            }
            Action::Call(id, call) => self.api.call(id, &call, now),
            Action::List(id, kind) => self.api.list(id, kind),
            Action::Watch(id, kind, version) => {
                self.api.watch(id, kind, &version, &mut self.events);
            }
            Action::Unwatch(id) => self.api.unwatch(id),
            Action::Save { revision, changes } => {
                assert!(self.save.is_none(), "{revision:?} before the save before was answered");
                self.save = Some((revision, changes));
            }
            Action::KeepIdentity(identity) => {
                self.identities.insert(identity.node.clone(), identity);
            }
            Action::Log(severity, text) => {
                turn_log::line("controller", severity, &text);
            }
            Action::Exit => return Next::Exit,
        }
        Next::Turn
    }

    fn sign(&self, request: &[u8], node: &str, days: u32, now: Now) -> Result<Vec<u8>, String> {
        let now_s = now.timestamp().ok_or("the time is not known here")?.0;
        let validity =
            Validity { not_before_s: now_s, not_after_s: now_s + i64::from(days) * DAY_S };
        let signed = self.authority.sign(request, node, validity)?;
        ::log::info!("node={node} has a certificate for {days} days");
        Ok(signed)
    }

    /// Writes what changed, and tells of it.
    fn keep(&mut self, now: Instant) {
        if !self.identities.is_empty() {
            let all: Vec<_> = self.identities.values().cloned().collect();
            match self.store.keep_identities(&all) {
                Ok(()) => self.identities.clear(),
                // They are in force until we end, and go with the next.
                Err(why) => ::log::error!("whose certificates are revoked cannot be kept: {why}"),
            }
        }
        let (revision, records) = self.save.take().unzip();
        let records = records.unwrap_or_default();
        let kept = self.api.commit(&mut self.store, &records, now, &mut self.events);
        if let Some(revision) = revision {
            self.events.push(match kept {
                Ok(()) => Event::Saved(revision),
                Err(why) => Event::SaveFailed(revision, DiskError::Failed(why)),
            });
        }
    }

    /// The folder says what is wanted.
    fn read(&mut self, folder: Folder<Vec<Manifest>>, now: Now) {
        let mut said: Vec<String> = folder.trouble.iter().map(ToString::to_string).collect();
        let is_read = said.is_empty();
        let whole = is_read && folder.files.iter().all(|file| file.content.is_ok());
        let files = folder.files.into_iter().map(|file| {
            let content = match file.content {
                Ok(content) => Some(content),
                Err(refusal) => {
                    said.push(format!("{}{refusal}", file.path));
                    None
                }
            };
            (file.path, content)
        });
        let files = files.collect();
        let Some(objects) = self.api.local().map(|local| &mut local.objects) else { return };
        let now = now.timestamp();
        let duplicates =
            if is_read { objects.want(files, now) } else { objects.want_still(files, now) };
        for Duplicate { name, source, winner } in duplicates {
            said.push(format!("{source}: {name} is left out: {winner} has it, and comes first"));
        }
        if whole {
            objects.all_was_read(now);
        }
        for line in said.iter().filter(|line| !self.said.contains(line)) {
            ::log::error!("{line}");
        }
        self.said = said;
    }

    fn answer_people(&mut self, now: Now) {
        let mut context = http_api::HttpContext {
            controller: &self.controller,
            trouble: self.api.trouble(now.boot),
            local: self.api.local(),
            folder: &self.settings.manifests,
            connections: self.ports.connections(),
            refused: self.ports.refused().collect(),
            now,
        };
        self.front
            .tick(now.boot, self.poll.registry(), |call, access| context.answer(call, access));
    }

    /// Nodes that join find a token where they always did.
    fn renew_token(&mut self, now: Now) {
        let Some(now_s) = now.timestamp().map(|at| at.0) else { return };
        if self.renewal.as_mut().is_some_and(|renewal| renewal.is_due(now.boot)) {
            let call = secrets::token(&self.settings.namespace, &self.authority, now_s);
            self.api.call(OWN_CALL, &call, now);
        }
    }

    fn signalled(&mut self) {
        while let Some(told) = self.signals.take() {
            match told {
                SignalAction::ChildEnded | SignalAction::Reload => {}
                SignalAction::Stop if self.stopping => {
                    ::log::warn!("told to stop a second time: ending at once");
                    std::process::exit(1);
                }
                SignalAction::Stop => {
                    self.stopping = true;
                    self.events.push(Event::Stop);
                }
            }
        }
    }
}

/// Whether the folder of data is whole: a store may be begun anew, a CA may not, because every node
/// has pinned it.
fn judge(settings: &Settings, kept: &mut Kept, had_store: bool, now_s: i64) -> Result<(), String> {
    let (data, store, pki) = (&settings.data, settings.store(), settings.pki());
    let has_ca = pki.join("ca.crt").exists();
    let was_used = !kept.is_new || pki.join("server.crt").exists();
    if !has_ca && was_used {
        return Err(format!(
            "{}/ca.crt: there is none, though this controller has run before. Every node trusts \
             the CA that was there, and no other. Put ca.crt and ca.key back, say from a backup; \
             or move {} away to begin anew: then every node has to join again",
            pki.display(),
            data.display()
        ));
    }
    if has_ca && !had_store {
        ::log::warn!(
            "{}: there was none, though this controller has run before: what nodes have is not \
             known. A new one is begun; pods that were there when the old one was begun keep their \
             uids, others are replaced",
            store.display()
        );
    }
    // What nodes have of an earlier store, or of a copy of this one, counts as older.
    kept.version = kept.version.max(now_s.unsigned_abs().saturating_mul(1_000));
    Ok(())
}

/// What we stand on: files and a folder, or a cluster.
struct Ground {
    authority: Authority,
    reach: Option<Endpoint>,
    sync: SyncStore,
    candidate: Option<Candidate>,
}

impl Ground {
    fn find(settings: &Settings, now_s: i64) -> Result<Self, String> {
        let mut reach = match &settings.source {
            Source::Folder => {
                let authority = Authority::open(&settings.pki(), &settings.names, now_s)?;
                let (sync, candidate) = (SyncStore::Table, None);
                return Ok(Self { authority, reach: None, sync, candidate });
            }
            Source::Kubeconfig(path) => Endpoint::of_file(path)?,
            Source::Cluster => Endpoint::in_cluster()?,
        };
        let authority = secrets::open(&mut reach, &settings.namespace, &settings.names, now_s)?;
        let crds = remote::has(&mut reach, Kind::ObjectSync)?;
        let sync = if crds { SyncStore::Objects } else { SyncStore::Table };
        ::log::info!("the API server is {}; what nodes have is kept in {sync:?}", reach.host);
        // A table is this replica's alone.
        let candidate =
            crds.then(|| Candidate { identity: identity(), namespace: settings.namespace.clone() });
        Ok(Self { authority, reach: Some(reach), sync, candidate })
    }
}

/// The pod's or the machine's name, and what no other life has.
fn identity() -> String {
    format!("{}_{:016x}", sys::hostname().unwrap_or_default(), clock::seed())
}

/// Our own call beside the mind's, which count from the other end.
const OWN_CALL: CallId = CallId(u64::MAX);

impl Held for Vec<Manifest> {
    const MOST: Room = Room {
        pods: MANIFEST_ALL_OBJECTS_MAX,
        objects: MANIFEST_ALL_OBJECTS_MAX,
        object_bytes: MANIFEST_ALL_BYTES_MAX,
    };

    fn weight(&self) -> Room {
        let object_bytes = self.iter().map(|manifest| manifest.size_bytes).sum();
        Room { pods: 0, objects: self.len(), object_bytes }
    }
}

const DAY_S: i64 = 86_400;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::model::manifest::Refusal;

    /// A file of these tests says how many objects it holds, and of how many bytes the first is.
    fn parse(text: &[u8]) -> Result<Vec<Manifest>, Refusal> {
        let text = str::from_utf8(text).expect("text");
        let Some((count, size)) = text.split_once(' ') else {
            let why = format!("got {text:?}, expected two numbers");
            return Err(Refusal { line: 1, column: 1, why });
        };
        let mut size_bytes = size.parse().expect("a number");
        let objects = (0..count.parse().expect("a number")).map(|_| Manifest {
            kind: Kind::ConfigMap,
            namespace: "".into(),
            name: "".into(),
            value: Arc::default(),
            size_bytes: std::mem::take(&mut size_bytes),
        });
        Ok(objects.collect())
    }

    #[test]
    fn the_manifests_have_a_bound_in_objects_and_in_bytes() {
        let folder = std::env::temp_dir().join(format!("edged-held-{}", std::process::id()));
        for (first, expected) in [
            (
                format!("{} 0", MANIFEST_ALL_OBJECTS_MAX - 1),
                format!("got more than {MANIFEST_ALL_OBJECTS_MAX} "),
            ),
            (
                format!("1 {}", MANIFEST_ALL_BYTES_MAX - 1),
                format!("got more than {MANIFEST_ALL_BYTES_MAX} bytes "),
            ),
        ] {
            fs::create_dir_all(&folder).expect("a folder of ours");
            for (name, text) in [("a", &*first), ("b", "1 1"), ("c", "1 1")] {
                fs::write(folder.join(name), text).expect("a file of ours");
            }
            let poll = Poll::new().expect("a poll");
            let mut manifests = Manifests::open(folder.clone(), parse, poll.registry(), FOLDER);
            let mut told = None;
            while told.is_none() {
                told = manifests.tick(Instant(1_000_000));
            }
            let files = told.expect("it was told").files;
            let fits: Vec<bool> = files.iter().map(|file| file.content.is_ok()).collect();
            assert_eq!(fits, [true, true, false], "{first}");
            let why = files[2].content.as_ref().expect_err("there is no room").to_string();
            assert!(why.contains(&expected), "{why}");
            fs::remove_dir_all(&folder).expect("it was made");
        }
    }
}
