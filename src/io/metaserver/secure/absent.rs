//! The authenticated form is not built in (feature `metaserver-auth`): the configuration refuses
//! its feature gate, and nobody is asked who he is.

use std::net::IpAddr;

use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;
use crate::io::socket::Stream;
use crate::io::transport::Transport;
use crate::model::metaserver::{Authorization, Caller, Failure, MetaServerSettings};
use crate::wire::http1::call::Call;

/// There is none.
#[derive(Debug)]
pub(super) enum Secure {}

impl Secure {
    pub(super) fn open(_: &Config, _: Option<&MetaServerSettings>, _: Token) -> Option<Self> {
        None
    }

    pub(super) fn has_identity(&self) -> bool {
        match *self {}
    }

    pub(super) fn retry(&mut self) {
        match *self {}
    }

    pub(super) fn ready(&mut self) {
        match *self {}
    }

    pub(super) fn tick(
        &mut self,
        _: Instant,
        _: &MetaServerSettings,
        _: &Registry,
        _: &mut Vec<Event>,
    ) {
        match *self {}
    }

    pub(super) fn accept(&mut self, _: Instant) -> Option<(Stream, IpAddr)> {
        match *self {}
    }

    pub(super) fn transport(&self, _: Stream) -> Option<Transport> {
        match *self {}
    }

    pub(super) fn caller(&self, _: &Call) -> Result<Caller, Failure> {
        match *self {}
    }

    pub(super) fn wake_at(&self, _: bool) -> Option<Instant> {
        match *self {}
    }
}

/// Without keys none is missed.
pub fn trouble_of_keys(_: &Authorization) -> Vec<String> {
    Vec::new()
}
