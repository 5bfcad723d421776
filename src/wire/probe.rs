//! The protocols of probes and network hooks (HTTP, TCP, gRPC): requests, and results of answers.
//!
//! ```text
//!  Query ─▶ Exchange ─▶ connected ─▶ output … receive* … ended ─▶ Done(Finding) │ Follow(query)
//! ```
//!
//! Sans-IO: the owner of the socket connects to [`Exchange::peer`], writes [`Exchange::output`],
//! passes in received bytes, and reports the end. A redirect is a new exchange to another peer.
//!
//! **Intended behaviour** is the kubelet's (spec section 5): no keep-alive, compression or
//! verification; 200–399 are good; up to ten redirects are followed on the same host name, and none
//! to another name, which is good, with a warning. Texts that appear in events are the kubelet's
//! own.
//!
//! **What is not here**: sockets, time, TLS, names. A crash here loses one probe.

mod http;
mod url;
mod words;

mod health;

pub use http::{Reader, Response};
pub use url::{BadLocation, resolve};
pub use words::{dial_failed, not_tls, timed_out};

use crate::limits::PROBE_REDIRECTS_MAX;
use crate::model::net::{Expects, Finding, HttpQuery, Query};

/// The address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// An address, or a name.
    pub host: Box<str>,
    /// 1–65535
    pub port: u16,
    /// With TLS.
    pub tls: bool,
}

/// The result of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(Finding),
    /// Send this query next; count the redirects.
    Follow(Box<HttpQuery>),
}

/// The part of a query on one connection.
#[derive(Debug)]
pub struct Exchange {
    talk: Talk,
    output: Vec<u8>,
    sent: usize,
}

#[derive(Debug)]
enum Talk {
    Tcp,
    Http {
        query: Box<HttpQuery>,
        reader: Reader,
        /// The first host name, and the number of queries before this one.
        first: Box<str>,
        queries_before: usize,
    },
    Grpc(Box<health::Health>),
}

impl Exchange {
    /// For a query; its first bytes are in the output. `None`: not built in.
    pub fn new(query: &Query) -> Option<Self> {
        match query {
            Query::Tcp { .. } => Some(Self::with(Talk::Tcp, Vec::new())),
            Query::Http(query) => {
                let first = query.host.clone();
                Some(Self::http(query.clone(), first, 0))
            }
            Query::Grpc { .. } => {
                let health = health::Health::new(query);
                let mut exchange = Self::with(Talk::Grpc(Box::new(health)), Vec::new());
                exchange.pull();
                Some(exchange)
            }
            #[cfg(any())]
            Query::Grpc { .. } => None,
        }
    }

    /// The exchange that a redirect leads to.
    #[must_use]
    pub fn follow(&self, query: Box<HttpQuery>) -> Self {
        match &self.talk {
            Talk::Http { first, queries_before, .. } => {
                Self::http(query, first.clone(), queries_before + 1)
            }
            Talk::Tcp => unreachable!("only HTTP is redirected"),
            Talk::Grpc(_) => unreachable!("only HTTP is redirected"),
        }
    }

    fn http(query: Box<HttpQuery>, first: Box<str>, queries_before: usize) -> Self {
        let output = http::request(&query);
        Self::with(Talk::Http { query, reader: Reader::default(), first, queries_before }, output)
    }

    fn with(talk: Talk, output: Vec<u8>) -> Self {
        Self { talk, output, sent: 0 }
    }

    /// The connection is established. Returns the outcome if that was all.
    pub fn connected(&mut self) -> Option<Outcome> {
        matches!(self.talk, Talk::Tcp).then_some(Outcome::Done(Finding::Good))
    }

    /// The bytes to write.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// So many bytes of the output were written.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.output.len(), "no more can be sent than was waiting");
    }

    /// Takes what arrived.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<Outcome> {
        match &mut self.talk {
            // Nothing was requested.
            Talk::Tcp => None,
            Talk::Http { query, reader, first, queries_before } => match reader.receive(bytes) {
                Ok(_) => http_outcome(query, reader, first, *queries_before),
                Err(fault) => Some(Outcome::Done(words::unreadable(query, &fault))),
            },
            Talk::Grpc(health) => {
                let found = health.receive(bytes);
                self.pull();
                found.map(Outcome::Done)
            }
        }
    }

    /// The other end closed the connection, or it broke: `why` in Go's words, `EOF` for the former.
    pub fn ended(&mut self, why: &str) -> Outcome {
        match &mut self.talk {
            Talk::Tcp => Outcome::Done(Finding::Bad(why.to_owned())),
            Talk::Http { query, reader, first, queries_before } => {
                if why == "EOF"
                    && reader.end()
                    && let Some(outcome) = http_outcome(query, reader, first, *queries_before)
                {
                    return outcome;
                }
                let why = if why == "EOF" && reader.response().is_some() {
                    "unexpected EOF"
                } else {
                    why
                };
                Outcome::Done(Finding::Bad(words::get_failed(query, why)))
            }
            Talk::Grpc(health) => Outcome::Done(health.ended(why)),
        }
    }

    /// Moves the gRPC client's output into ours.
    fn pull(&mut self) {
        let Talk::Grpc(health) = &mut self.talk else { return };
        self.output.drain(..self.sent);
        self.sent = 0;
        health.take_output(&mut self.output);
    }

    /// The address to connect to.
    pub fn peer(&self, query: &Query) -> Peer {
        match (&self.talk, query) {
            (Talk::Http { query, .. }, _) => {
                Peer { host: query.host.clone(), port: query.port, tls: query.tls }
            }
            (_, Query::Tcp { host, port } | Query::Grpc { host, port, .. }) => {
                Peer { host: host.clone(), port: *port, tls: false }
            }
            (_, Query::Http(query)) => {
                Peer { host: query.host.clone(), port: query.port, tls: query.tls }
            }
        }
    }

    /// The current query, for the text of a failure.
    pub fn current_query(&self) -> Option<&HttpQuery> {
        match &self.talk {
            Talk::Http { query, .. } => Some(query),
            Talk::Tcp => None,
            Talk::Grpc(_) => None,
        }
    }
}

/// The outcome by the answer so far.
fn http_outcome(
    query: &HttpQuery,
    reader: &Reader,
    first: &str,
    queries_before: usize,
) -> Option<Outcome> {
    let response = reader.response()?;
    let follow = match redirect(query, response, first, queries_before) {
        Redirect::To(next) => return Some(Outcome::Follow(next)),
        Redirect::Bad(why) => Some(why),
        Redirect::None => None,
    };
    if query.expects == Expects::Answer {
        let finding = follow.map_or(Finding::Good, Finding::Bad);
        return Some(Outcome::Done(finding));
    }
    if let Some(why) = follow {
        return Some(Outcome::Done(Finding::Bad(why)));
    }
    if !reader.is_complete() {
        return None;
    }
    let body = String::from_utf8_lossy(&response.body);
    Some(Outcome::Done(match response.status {
        200..300 => Finding::Good,
        300..400 => Finding::Warning(format!("Probe terminated redirects, Response body: {body}")),
        // The body may contain confidential data.
        status => Finding::Bad(format!("HTTP probe failed with statuscode: {status}")),
    }))
}

enum Redirect {
    None,
    To(Box<HttpQuery>),
    Bad(String),
}

fn redirect(
    query: &HttpQuery,
    response: &Response,
    first: &str,
    queries_before: usize,
) -> Redirect {
    let Some(location) = response
        .location
        .as_deref()
        .filter(|_| matches!(response.status, 301 | 302 | 303 | 307 | 308))
    else {
        return Redirect::None;
    };
    match resolve(query, location) {
        Ok(next) if *next.host != *first => Redirect::None,
        Ok(_) if queries_before + 1 >= PROBE_REDIRECTS_MAX => {
            let why = format!("stopped after {PROBE_REDIRECTS_MAX} redirects");
            Redirect::Bad(words::get_failed(query, &why))
        }
        Ok(next) => Redirect::To(Box::new(next)),
        Err(bad) => Redirect::Bad(words::get_failed(query, &bad.to_string())),
    }
}
