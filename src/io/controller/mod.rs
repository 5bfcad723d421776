//! The controller's event loop: everything that touches the system. It decides nothing.
//!
//! ```text
//!  poll ─▶ ports, API server, folder ─▶ events ─▶ handle* ─▶ step ─▶ actions ─▶ perform*
//!   ▲                                                                             │
//!   └── sleep until wake_at ◀── write the sockets ◀── report ◀── save ◀───────────┘
//! ```
//!
//! One thread, one poll, one turn after the other, as in the agent ([`crate::io`]). The changes of
//! a turn are on the disk before anything reports them.
//!
//! **If we crash here** the nodes connect again; what they acknowledged is in the store, and their
//! pods keep running.

mod any_client;
pub mod api;
pub mod authority;
pub mod callers;
mod client;
mod http_api;
pub mod http_server;
mod keepalive;
pub mod listeners;
pub mod router;
mod secrets;
pub mod settings;
pub mod store;
pub mod streams;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use mio::{Events, Poll, Token};
use rustls::ServerConfig;

use crate::agent::admit;
use crate::controller::event::{Action, CallId, Event, Out, Tunnel};
use crate::controller::identity::Identity;
use crate::controller::local::{Duplicate, Key, Objects, Row};
use crate::controller::time::{Instant, Now};
use crate::controller::{self, Candidate, Controller, Replica, SyncStore};
use crate::io::cloud::{files, names};
use crate::io::folder::{self, FileContent, Manifests, Room};
use crate::io::signal::{self, SignalAction, Signals};
use crate::io::turn::{self, Turn};
use crate::io::turn_log;
use crate::io::{clock, sys};
use crate::limits::{MANIFEST_ALL_BYTES_MAX, MANIFEST_ALL_OBJECTS_MAX};
use crate::model::api::Kind;
use crate::model::error::{Error, Input, System};
use crate::model::link::{Session, Validity};
use crate::model::manifest::Folder;
use crate::model::meta::DiskError;
use crate::model::raw::Manifest;
use crate::model::router::{NodeRuleRow, RouterAction, RouterEvent};
use crate::model::sync;
use crate::wire::manifest::raw;
use api::Api;
use api::local::Local;
use api::remote::endpoints::Endpoint;
use api::remote::{self, Remote, TOKENS};
use authority::{Authority, Clients};
use callers::{Callers, Identity as ServerIdentity};
use client::{Asked, Client};
use http_server::{Handover, HttpServer};
use listeners::{Ports, Trust};
use router::{Gate, Router};
use settings::{Settings, Source};
use store::{Store, Stored};
use streams::Streams;

const SIGNALS: Token = Token(0);
const FOLDER: Token = Token(1);
/// The first listener of our own API; its connections and the second listener have the next tokens.
const FRONT: Token = Token(16);
/// The first connection to the API server; the others have the next tokens.
const API: Token = Token(1_024);
/// The REST entry, its connections, and requests to REST endpoints.
const ROUTER: Token = Token(1 << 16);
/// The first request for a stream, and the first tunnel; the others have the next tokens.
const STREAMS: Token = Token(1 << 18);
/// The listeners of the ports; their connections have all tokens after them.
const PORTS: Token = Token(1 << 20);

/// Runs the controller until a signal stops it, or the system refuses something it needs.
pub fn run(settings: Settings) -> ExitCode {
    let mut event_loop = match EventLoop::open(settings) {
        Ok(event_loop) => event_loop,
        Err(why) => {
            ::log::error!("cannot start: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut ready = turn::events();
    loop {
        if let Err(error) = event_loop.sleep(&mut ready) {
            ::log::error!("cannot poll: {error}");
            return ExitCode::FAILURE;
        }
        if event_loop.turn(&ready) == Next::Exit {
            event_loop.ports.shut();
            event_loop.streams.shut();
            ::log::info!("stopped; the nodes keep running their pods");
            return ExitCode::SUCCESS;
        }
    }
}

/// The main function of a child, `edgecontroller job <kind>`, which looks up a name.
pub fn child(kind: &str) -> ExitCode {
    signal::let_through();
    if kind == names::KIND { names::child() } else { ExitCode::FAILURE }
}

/// The program that children run: the same binary even if an update replaces the file.
const PROGRAM: &str = "/proc/self/exe";

/// What to do after a turn.
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
    /// Whom the port for kube-apiserver lets in.
    callers: Callers,
    ports: Ports,
    streams: Streams,
    router: Router,
    api: Api,
    /// Renews the token in the Secret; `None`: there is no Secret.
    renewal: Option<secrets::Renewal>,
    store: Store,
    manifests: Manifests<Vec<Manifest>>,
    front: HttpServer,
    /// Events that the core has not handled yet.
    events: Vec<Event>,
    out: Out,
    /// Sessions with new messages in this turn.
    dirty: Vec<Session>,
    /// What the core requested to save in this turn.
    save: Option<(crate::model::meta::Revision, Vec<sync::Change>)>,
    /// Changes of nodes' certificates that are to be saved.
    identities: BTreeMap<Box<str>, Identity>,
    /// Changes of what nodes were told of rules, that are to be saved.
    rules: BTreeMap<NodeRuleRow, bool>,
    /// What was logged about the files.
    logged: Vec<String>,
    stopping: bool,
}

/// The folder's objects as they were stored.
fn loaded(rows: Vec<(Key, Row)>, version: u64, is_new: bool) -> Objects {
    let mut objects = Objects::load(rows, version, clock::seed());
    if is_new {
        objects.derive_uids();
    }
    if objects.trimmed() > 0 {
        let count = objects.trimmed();
        ::log::warn!(
            "{count} objects exceeded what a node may store, and are cut: statuses, annotations \
             and mirror pods, which their nodes report again"
        );
    }
    objects
}

impl EventLoop {
    fn open(settings: Settings) -> Result<Self, Error> {
        sys::raise_descriptors();
        let poll = Poll::new()?;
        let signals = Signals::open(poll.registry(), SIGNALS)?;
        let now = clock::now();
        let unset = || System::new("this machine's clock is not set: certificates need the time");
        let now_s = now.timestamp().ok_or_else(unset)?.0;
        let had_store = settings.store().exists();
        let (store, mut stored) = Store::open(&settings.store())?;
        if settings.source == Source::Folder {
            check_data_folder(&settings, &mut stored, had_store, now_s)?;
        }
        let mut backend = Backend::find(&settings, now_s)?;
        let callers = callers(&settings)?;
        let router = router(&settings, &backend.authority, now_s)?;
        let authority = backend.authority;
        let tls = authority.tls(Clients::Required)?;
        let tunnel = (settings.tunnel.port() != 0).then(|| (settings.tunnel, Arc::clone(&tls)));
        let https = (settings.https, authority.tls(Clients::Optional)?);
        let stream = backend.stream.take();
        let ports = Ports::new((settings.hub, tls), https, tunnel, stream, PORTS);
        let parse = |bytes: &[u8]| raw::parse_valid(bytes, admit::invalid);
        let folder = settings.manifests.clone();
        let manifests = Manifests::open(folder, parse, poll.registry(), FOLDER)
            .remembering(settings.data.join(folder::RECORD));
        let config = controller::Config {
            authority: authority.core_authority(),
            certificate_days: settings.certificate_days,
            enrol_again: settings.enrol_again(),
            namespace: settings.namespace.as_str().into(),
            keepalive_ms: settings.keepalive_ms,
            nodes_max: settings.nodes_max,
            api_authority: backend.reach.as_ref().map(|reach| reach.authority.clone()),
            sync: backend.sync,
            candidate: backend.candidate,
            replica: backend.replica,
            access: settings.access.clone(),
            access_rules: settings.access_rules,
        };
        let api = if let Some(reach) = backend.reach {
            Api::Remote(Box::new(Remote::new(reach, PathBuf::from(PROGRAM), API)))
        } else {
            let objects = loaded(stored.objects, stored.version, stored.is_new);
            Api::Local(Box::new(Local::new(objects)))
        };
        Ok(Self {
            controller: Controller::boot(config, now, clock::seed()),
            signals,
            authority,
            callers,
            ports,
            streams: Streams::new(STREAMS),
            router,
            renewal: matches!(api, Api::Remote(_)).then(|| secrets::Renewal::new(now.boot)),
            api,
            store,
            manifests,
            front: HttpServer::new(settings.api, settings.socket(), FRONT),
            events: first_events(stored.records, stored.identities, stored.rules),
            out: Out::default(),
            dirty: Vec::new(),
            save: None,
            identities: BTreeMap::new(),
            rules: BTreeMap::new(),
            logged: Vec::new(),
            stopping: false,
            settings,
            poll,
        })
    }

    fn sleep(&mut self, ready: &mut Events) -> io::Result<()> {
        let due = [
            self.controller.wake_at(),
            self.ports.wake_at(),
            self.streams.wake_at(),
            self.router.wake_at(),
            self.api.wake_at(),
            self.front.wake_at(),
            self.renewal.as_ref().map(secrets::Renewal::wake_at),
            self.callers.wake_at(),
            matches!(self.api, Api::Local(_)).then(|| self.manifests.wake_at()),
        ];
        let due_at = due.into_iter().flatten().min().unwrap_or_default();
        let due_at = if self.events.is_empty() { due_at } else { Instant(0) };
        match self.poll.poll(ready, Some(turn::timeout(clock::boot(), due_at))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::now();
        let mut turn = Turn::begin();
        for ready in ready {
            match ready.token() {
                SIGNALS => self.signalled(),
                FOLDER => self.manifests.ready(now.boot),
                token if token.0 >= PORTS.0 => self.ports.ready(ready),
                token if token.0 >= STREAMS.0 => self.streams.ready(ready),
                token if self.router.owns(token) => self.router.ready(ready),
                token if self.front.owns(token) => self.front.ready(ready),
                token if (API.0..API.0 + TOKENS).contains(&token.0) => self.api.ready(ready),
                token => ::log::debug!("token={} has no owner", token.0),
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
        self.read_client_ca(now);
        let trust = Trust { authority: &self.authority, callers: &self.callers };
        self.ports.tick(now, self.poll.registry(), trust, &mut self.events);
        turn.lap("the ports");
        self.streams.tick(now.boot, &mut self.events);
        turn.lap("streams");
        self.router.tick(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the router");
        self.api.tick(now, self.poll.registry(), &mut self.events);
        turn.lap("the objects");
        let next = self.think(now, &mut turn);
        self.commit(now.boot);
        turn.lap("the store");
        self.ports.flush(now.boot, &mut self.dirty, &mut self.events);
        turn.lap("messages to the nodes");
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

    /// `None`: some action was answered immediately.
    fn round(&mut self, now: Now, turn: &mut Turn) -> Option<Next> {
        for event in self.events.drain(..) {
            match event {
                Event::Called(OWN_CALL, Ok(_)) => ::log::debug!("the Secret has a new token"),
                Event::Called(OWN_CALL, Err(error)) => {
                    ::log::warn!("cannot renew the token in the Secret: {error:?}");
                }
                Event::Called(CLIENT_CA_CALL, result) => self.callers.answered(result, now.boot),
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
        turn.lap("the controller's actions");
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
            Action::AcceptTunnel(tunnel, node) => self.open_tunnel(tunnel, node, now.boot),
            Action::RefuseTunnel(tunnel, refusal) => self.ports.refuse_tunnel(tunnel, &refusal),
            Action::CloseTunnel(tunnel, why) => self.streams.close_tunnel(tunnel, &why, now.boot),
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
            Action::CallAny(id, call) => self.api.call_any(id, call),
            Action::ListAny(id, resource) => self.api.list_any(id, resource),
            Action::WatchAny(id, resource, version) => {
                self.api.watch_any(id, resource, &version, &mut self.events);
            }
            Action::Unwatch(id) => self.api.unwatch(id),
            Action::Save { revision, changes } => {
                assert!(self.save.is_none(), "{revision:?} before the save before was answered");
                self.save = Some((revision, changes));
            }
            Action::KeepIdentity(identity) => {
                self.identities.insert(identity.node.clone(), identity);
            }
            Action::Router(action) => self.route(*action, now.boot),
            Action::Log(severity, text) => {
                turn_log::line("controller", severity, &text);
            }
            Action::Exit => return Next::Exit,
        }
        Next::Turn
    }

    fn route(&mut self, action: RouterAction, now: Instant) {
        match action {
            RouterAction::Answer(id, answer) => self.router.answer(now, id, &answer),
            RouterAction::Post(id, post) => {
                let registry = self.poll.registry();
                self.router.post(now, id, &post, registry, &mut self.events);
            }
            RouterAction::Keep(row, exists) => drop(self.rules.insert(row, exists)),
        }
    }

    fn open_tunnel(&mut self, tunnel: Tunnel, node: Box<str>, now: Instant) {
        let registry = self.poll.registry();
        let opened = match self.ports.hand_over(tunnel, registry) {
            Some(upgraded) => self.streams.open_tunnel(tunnel, node, upgraded, now, registry),
            // It has ended; if that is an event, it is the second one, and is ignored.
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        if let Err(error) = opened {
            self.events.push(Event::TunnelDown(tunnel, error.to_string()));
        }
    }

    fn sign(&self, request: &[u8], node: &str, days: u32, now: Now) -> Result<Vec<u8>, Error> {
        let now_s = now.timestamp().ok_or_else(|| System::new("the server's clock is not set"))?.0;
        let validity =
            Validity { not_before_s: now_s, not_after_s: now_s + i64::from(days) * DAY_S };
        let signed = self.authority.sign(request, node, validity)?;
        ::log::info!("node={node} has a certificate for {days} days");
        Ok(signed)
    }

    /// Saves the changes, and then reports them.
    fn commit(&mut self, now: Instant) {
        if !self.identities.is_empty() {
            let all: Vec<_> = self.identities.values().cloned().collect();
            match self.store.save_identities(&all) {
                Ok(()) => self.identities.clear(),
                // They are in force until we stop, and are saved with the next change.
                Err(why) => ::log::error!("cannot save which certificates are revoked: {why}"),
            }
        }
        if !self.rules.is_empty() {
            match self.store.save_rules(&self.rules) {
                Ok(()) => self.rules.clear(),
                // As above.
                Err(why) => ::log::error!("cannot save what nodes were told of rules: {why}"),
            }
        }
        let (revision, records) = self.save.take().unzip();
        let records = records.unwrap_or_default();
        let stored = self.api.commit(&mut self.store, &records, now, &mut self.events);
        if let Some(revision) = revision {
            self.events.push(match stored {
                Ok(()) => Event::Saved(revision),
                Err(why) => Event::SaveFailed(revision, DiskError::Failed(why.to_string())),
            });
        }
    }

    /// Reads the wanted objects from the folder's files.
    fn read(&mut self, folder: Folder<Vec<Manifest>>, now: Now) {
        let mut logged: Vec<String> = folder.trouble.iter().map(ToString::to_string).collect();
        let is_read = logged.is_empty();
        let whole = is_read && folder.files.iter().all(|file| file.content.is_ok());
        let files = folder.files.into_iter().map(|file| {
            let content = match file.content {
                Ok(content) => Some(content),
                Err(refusal) => {
                    logged.push(format!("{}{refusal}", file.path));
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
            logged.push(format!("{source}: {name} is ignored: {winner} has it, and comes first"));
        }
        if whole {
            objects.all_was_read(now);
        }
        for line in logged.iter().filter(|line| !self.logged.contains(line)) {
            ::log::error!("{line}");
        }
        self.logged = logged;
    }

    fn answer_people(&mut self, now: Now) {
        let token = self.settings.token();
        let mut context = http_api::HttpContext {
            controller: &self.controller,
            trouble: self.api.trouble(now.boot),
            local: self.api.local(),
            folder: &self.settings.manifests,
            token: &token,
            connections: self.ports.connections(),
            refused: self.ports.refused().collect(),
            tunnels: self.streams.tunnels(),
            streams: self.streams.requests(),
            now,
        };
        let registry = self.poll.registry();
        let handovers = self.front.tick(now.boot, registry, |call, access| {
            let is_stream = streams::is_stream(&call.path) && context.admits(call, access);
            (!is_stream).then(|| context.answer(call, access))
        });
        let local = handovers.into_iter().map(|Handover { stream, call, rest }| {
            let client = Client::Local(stream);
            Asked { client, call, rest }
        });
        for asked in local.chain(self.ports.asked()) {
            let find = |target: &streams::Target| target.find(&self.controller);
            self.streams.serve(asked, &find, now.boot, registry);
        }
    }

    fn read_client_ca(&mut self, now: Now) {
        if let Some(call) = self.callers.due(now.boot) {
            self.api.call(CLIENT_CA_CALL, &call, now);
        }
    }

    /// Keeps the Secret with the token for joining nodes up to date.
    fn renew_token(&mut self, now: Now) {
        let Some(now_s) = now.timestamp().map(|at| at.0) else { return };
        if self.renewal.as_mut().is_some_and(|renewal| renewal.is_due(now.boot)) {
            let call = secrets::token(&self.settings.namespace, &self.authority, now_s);
            self.api.call(OWN_CALL, &call, now);
        }
    }

    fn signalled(&mut self) {
        while let Some(action) = self.signals.take() {
            match action {
                SignalAction::ChildEnded | SignalAction::Reload => {}
                SignalAction::Stop if self.stopping => {
                    ::log::warn!("got a second stop signal: exiting at once");
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

/// Whether the data folder is complete: a store may be replaced by a new one, a CA may not,
/// because every node has pinned it.
fn check_data_folder(
    settings: &Settings,
    stored: &mut Stored,
    had_store: bool,
    now_s: i64,
) -> Result<(), Input> {
    let (data, store, pki) = (&settings.data, settings.store(), settings.pki());
    let has_ca = pki.join("ca.crt").exists();
    let was_used = !stored.is_new || pki.join("server.crt").exists();
    if !has_ca && was_used {
        return Err(Input::other(format!(
            "{}/ca.crt: it does not exist, though this controller has run before. Every node \
             trusts only the CA that was there. Restore ca.crt and ca.key, for example from a \
             backup; or move {} away for a new start: then every node must join again",
            pki.display(),
            data.display()
        )));
    }
    if has_ca && !had_store {
        ::log::warn!(
            "{}: it did not exist, though this controller has run before: what nodes have is not \
             known. A new store is created; pods that existed when the old one was created keep \
             their uids, others are replaced",
            store.display()
        );
    }
    // Records of an earlier store, or of a copy of this one, must count as older.
    stored.version = stored.version.max(now_s.unsigned_abs().saturating_mul(1_000));
    Ok(())
}

/// The source of objects: files and a folder, or a cluster.
struct Backend {
    authority: Authority,
    reach: Option<Endpoint>,
    sync: SyncStore,
    candidate: Option<Candidate>,
    /// The port for kube-apiserver.
    stream: Option<(SocketAddr, Arc<ServerConfig>)>,
    replica: Option<Replica>,
}

impl Backend {
    fn find(settings: &Settings, now_s: i64) -> Result<Self, Error> {
        let mut reach = match &settings.source {
            Source::Folder => {
                let authority = Authority::open(&settings.pki(), &settings.names, now_s)?;
                let stream = stream_port(settings, &authority, None, now_s)?;
                let (sync, candidate, replica) = (SyncStore::Table, None, None);
                return Ok(Self { authority, reach: None, sync, candidate, stream, replica });
            }
            Source::Kubeconfig(path) => Endpoint::of_file(path)?,
            Source::Cluster => Endpoint::in_cluster()?,
        };
        let authority = secrets::open(&mut reach, &settings.namespace, &settings.names, now_s)?;
        let crds = remote::has(&mut reach, Kind::ObjectSync)?;
        let sync = if crds { SyncStore::Objects } else { SyncStore::Table };
        ::log::info!("the API server is {}; what nodes have is stored in {sync:?}", reach.host);
        // With a table there is only this replica.
        let candidate =
            crds.then(|| Candidate { identity: identity(), namespace: settings.namespace.clone() });
        let stream = stream_port(settings, &authority, Some(&mut reach), now_s)?;
        let replica = stream.as_ref().and_then(|(at, _)| replica(*at, &reach, settings));
        Ok(Self { authority, reach: Some(reach), sync, candidate, stream, replica })
    }
}

/// Whom the port for kube-apiserver lets in.
fn callers(settings: &Settings) -> Result<Callers, Error> {
    if settings.any_stream_client && settings.stream().is_some() {
        ::log::warn!(
            "--stream-clients any: whoever reaches the port for kube-apiserver reads logs and runs \
             commands in the pods of all nodes"
        );
    }
    match (&settings.stream_client_ca, &settings.source) {
        _ if settings.any_stream_client || settings.stream().is_none() => Ok(Callers::anybody()),
        (Some(path), _) => Callers::of_file(path),
        (None, Source::Folder | Source::Kubeconfig(_) | Source::Cluster) => {
            Ok(Callers::of_cluster())
        }
    }
}

/// The port for kube-apiserver. Its certificate is that of the files, or of CloudCore's Secret if
/// it can be used, or one of our CA.
fn stream_port(
    settings: &Settings,
    authority: &Authority,
    reach: Option<&mut Endpoint>,
    now_s: i64,
) -> Result<Option<(SocketAddr, Arc<ServerConfig>)>, Error> {
    let Some(at) = settings.stream() else { return Ok(None) };
    if let (Some(certificate), Some(key)) = &settings.stream_identity {
        return Ok(Some((at, server_identity(certificate, key)?.tls()?)));
    }
    match reach.map(|reach| secrets::stream_identity(reach, &settings.namespace, now_s)) {
        None | Some(Ok(None)) => {}
        Some(Ok(Some(tls))) => return Ok(Some((at, tls))),
        Some(Err(why)) => ::log::warn!("{why}; our own CA's certificate is used in its place"),
    }
    let identity = ServerIdentity::of_pair(authority.make_server(&settings.names, now_s)?);
    Ok(Some((at, identity.tls()?)))
}

/// What the store holds of nodes, for the core.
fn first_events(
    records: Vec<sync::Record>,
    identities: Vec<Identity>,
    rules: Vec<NodeRuleRow>,
) -> Vec<Event> {
    let rules = Event::Router(Box::new(RouterEvent::Loaded(rules)));
    vec![Event::Loaded(records), Event::Identities(identities), rules]
}

fn router(settings: &Settings, authority: &Authority, now_s: i64) -> Result<Router, Error> {
    let gate = gate(settings, authority, now_s)?;
    Ok(Router::new(gate, PathBuf::from(PROGRAM), settings.rest_ca.clone(), ROUTER))
}

/// The REST entry of the router, if it is on. Its certificate is that of the files, or one of our
/// CA.
fn gate(settings: &Settings, authority: &Authority, now_s: i64) -> Result<Option<Gate>, Error> {
    let (Some(address), Some(token)) = (settings.router, &settings.router_token) else {
        return Ok(None);
    };
    files::read(token).map_err(|error| System::at(token.display(), error))?;
    let tls = if settings.is_router_plain {
        ::log::warn!("--router-tls off: requests to {address} and their tokens are not encrypted");
        None
    } else if let (Some(certificate), Some(key)) = &settings.router_identity {
        Some(server_identity(certificate, key)?.tls()?)
    } else {
        let pair = authority.make_server(&settings.names, now_s)?;
        Some(ServerIdentity::of_pair(pair).tls()?)
    };
    Ok(Some(Gate { address, tls, token: token.clone() }))
}

fn server_identity(certificate: &Path, key: &Path) -> Result<ServerIdentity, Error> {
    let read = |path: &Path| files::read(path).map_err(|error| System::at(path.display(), error));
    let identity = ServerIdentity::of(&read(certificate)?, &read(key)?);
    let identity = identity.map_err(|why| Input::other(why.to_string()).at(certificate.display()));
    Ok(identity?)
}

/// How kube-apiserver reaches this replica: at the address of the port, or at the one from which we
/// reach it, or, on its own machine, at the first address for nodes.
fn replica(at: SocketAddr, reach: &Endpoint, settings: &Settings) -> Option<Replica> {
    let own = Some(at.ip()).filter(|ip| !ip.is_unspecified()).or_else(|| reach.own_address());
    let names = settings.names.iter().filter_map(|name| name.parse().ok());
    let address = own.into_iter().chain(names).find(|ip: &IpAddr| !ip.is_loopback()).or(own);
    let Some(address) = address else {
        ::log::warn!(
            "this machine's address is not known: kube-apiserver does not find the nodes; \
             --listen-stream ADDRESS:PORT says it"
        );
        return None;
    };
    Some(Replica { address: address.to_string(), namespace: settings.namespace.clone() })
}

/// The name of the pod or the machine, plus a random part for this run.
fn identity() -> String {
    format!("{}_{:016x}", sys::hostname().unwrap_or_default(), clock::seed())
}

/// Our own calls; those of the core count up from 0.
const OWN_CALL: CallId = CallId(u64::MAX);
const CLIENT_CA_CALL: CallId = CallId(u64::MAX - 1);

impl FileContent for Vec<Manifest> {
    const LIMITS: Room = Room {
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
    use crate::model::error::Refusal;

    /// A file of these tests has the number of its objects, and the bytes of the first one.
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
            let mut reported = None;
            while reported.is_none() {
                reported = manifests.tick(Instant(1_000_000));
            }
            let files = reported.expect("it was reported").files;
            let fits: Vec<bool> = files.iter().map(|file| file.content.is_ok()).collect();
            assert_eq!(fits, [true, true, false], "{first}");
            let why = files[2].content.as_ref().expect_err("there is no room").to_string();
            assert!(why.contains(&expected), "{why}");
            fs::remove_dir_all(&folder).expect("it was made");
        }
    }
}
