//! The authenticated form of MetaServer (the feature gate `requireAuthorization`): its certificate,
//! the keys that sign tokens, and the listener for pods with the link that holds its address.

mod identity;
mod keys;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use mio::{Registry, Token};
use rustls::ServerConnection;

use crate::agent::event::Event;
use crate::agent::time::{Instant, sooner};
use crate::config::Config;
use crate::io::link::{self, Link};
use crate::io::socket::{Address, Listener, Stream};
use crate::io::tls::Tls;
use crate::io::transport::Transport;
use crate::limits::{HTTP_LISTEN_RETRY_MS, METASERVER_CLIENTS_MAX, METASERVER_LINK_MS};
use crate::model::metaserver::{Authorization, Caller, Failure, InCluster, MetaServerSettings};
use crate::wire::http1::call::Call;
use identity::Identity;
use keys::Keys;

#[derive(Debug)]
pub(super) struct Secure {
    identity: Option<Identity>,
    keys: Keys,
    link: Link,
    /// Where pods reach it, once the link holds its address; its token is the last one.
    for_pods: Listener,
    /// The link holds the address.
    is_held: bool,
    /// When what has failed is tried again.
    retry_at: Instant,
    logged: Option<String>,
    /// What the core knows of it.
    reported: bool,
    folder: PathBuf,
}

impl Secure {
    /// `None`: nobody is asked who he is. The link of an earlier MetaServer is removed then.
    pub(super) fn open(
        config: &Config,
        settings: Option<&MetaServerSettings>,
        first: Token,
    ) -> Option<Self> {
        let Some(settings) = settings.filter(|settings| settings.requires_authorization) else {
            if let Err(why) = Link::new(link::METASERVER).remove() {
                log::debug!("the link of an earlier MetaServer: {why}");
            }
            return None;
        };
        let link = config.link();
        let folder = Path::new(&link.cert_file).parent().unwrap_or(Path::new("/"));
        Some(Self::new(settings, folder, first))
    }

    fn new(settings: &MetaServerSettings, folder: &Path, first: Token) -> Self {
        let token = Token(first.0 + 1 + METASERVER_CLIENTS_MAX);
        let address = Address::Port(settings.authorization.dummy);
        Self {
            identity: None,
            keys: Keys::read(&settings.authorization),
            link: Link::new(link::METASERVER),
            for_pods: Listener::new(address, "MetaServer for pods", token),
            is_held: false,
            retry_at: Instant(0),
            logged: None,
            reported: false,
            folder: folder.to_owned(),
        }
    }

    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// Retries at once what failed before.
    pub(super) fn retry(&mut self) {
        self.for_pods.retry();
        self.retry_at = Instant(0);
    }

    /// The listener for pods is ready.
    pub(super) fn ready(&mut self) {
        self.for_pods.ready();
    }

    /// Listens, once there is what that takes, and tells the core of it.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        settings: &MetaServerSettings,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        self.prepare(now, settings);
        if self.identity.is_some() && self.is_held {
            self.for_pods.listen(
                now,
                registry,
                |_, _| "choose another with modules.metaManager.metaServer.dummyServer",
            );
        }
        self.report(events);
    }

    /// The next connection of a pod, with its address.
    pub(super) fn accept(&mut self, now: Instant) -> Option<(Stream, IpAddr)> {
        loop {
            let stream = self.for_pods.accept(now)?;
            let Stream::Port(socket) = &stream else { continue };
            // One that has left again has no address any more.
            let Ok(peer) = socket.peer_addr() else { continue };
            return Some((stream, peer.ip().to_canonical()));
        }
    }

    /// TLS over a connection; `None`: it is not served.
    pub(super) fn transport(&self, stream: Stream) -> Option<Transport> {
        let config = self.identity.as_ref()?.config.clone();
        let Stream::Port(socket) = stream else { return None };
        match ServerConnection::new(config) {
            Ok(connection) => Some(Transport::Tls(Box::new(Tls::new(connection, socket)))),
            Err(error) => {
                log::warn!("MetaServer cannot begin TLS: {error}");
                None
            }
        }
    }

    /// Who sends this request; an error is the answer to it.
    pub(super) fn caller(&self, request: &Call) -> Result<Caller, Failure> {
        self.keys.caller(request)
    }

    /// Makes the certificate and the link, if they are missing.
    fn prepare(&mut self, now: Instant, settings: &MetaServerSettings) {
        if now < self.retry_at {
            return;
        }
        let (server, dummy) = (settings.server.ip(), settings.authorization.dummy.ip());
        let mut trouble = None;
        if self.identity.is_none() {
            match Identity::open(&self.folder, &[server, dummy]) {
                Ok(identity) => self.identity = Some(identity),
                Err(why) => trouble = Some(why.to_string()),
            }
        }
        if let IpAddr::V4(dummy) = dummy {
            match self.link.hold(&[dummy].into_iter().collect()) {
                Ok(()) => self.is_held = true,
                Err(fault) => {
                    self.is_held = false;
                    trouble = Some(fault.to_string());
                }
            }
        }
        let wait_ms = if trouble.is_some() { HTTP_LISTEN_RETRY_MS } else { METASERVER_LINK_MS };
        self.retry_at = now.plus_ms(wait_ms);
        if let Some(why) = trouble.as_ref().filter(|_| trouble != self.logged) {
            log::warn!("MetaServer cannot serve pods: {why}");
        }
        self.logged = trouble;
    }

    /// `has_room`: there is room for one more connection.
    pub(super) fn wake_at(&self, has_room: bool) -> Option<Instant> {
        let is_ready = self.identity.is_some() && self.is_held && has_room;
        let listener = self.for_pods.wake_at().filter(|_| is_ready);
        sooner(Some(self.retry_at), listener)
    }

    /// Tells the core where pods reach it, when that has changed.
    fn report(&mut self, events: &mut Vec<Event>) {
        let bound = self.for_pods.bound().filter(|_| self.is_held);
        let place = bound.zip(self.identity.as_ref());
        if place.is_some() != self.reported {
            self.reported = place.is_some();
            let place = place.map(|(address, identity)| {
                Box::new(InCluster { address, certificate: identity.certificate.clone() })
            });
            events.push(Event::InCluster(place));
        }
    }
}

/// The files of keys that cannot be read, and why.
pub fn trouble_of_keys(settings: &Authorization) -> Vec<String> {
    Keys::read_all(settings).1
}

#[cfg(test)]
mod tests;
