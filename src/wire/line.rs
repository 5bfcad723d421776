//! The client of one connection to a runtime, whichever framing it speaks: gRPC to containerd and
//! CRI-O, ttrpc to the built-in runtime. The framing decides nothing else.

use crate::limits::CriBudget;
use crate::model::endpoint::Framing;
use crate::model::error::Peer;
use crate::wire::cri::Rpc;
use crate::wire::grpc;
use crate::wire::h2;
use crate::wire::rpc::{CallKey, Event, Refused};
#[cfg(feature = "runtime")]
use crate::wire::ttrpc;

/// Calls on one connection.
#[derive(Debug)]
pub enum Line {
    Grpc(Box<grpc::Client>),
    #[cfg(feature = "runtime")]
    Ttrpc(ttrpc::Client),
}

impl Line {
    /// For a new connection. What the framing begins with is in the output.
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Grpc => Self::Grpc(grpc::Client::new(h2::Config::default()).into()),
            #[cfg(feature = "runtime")]
            Framing::Ttrpc => Self::Ttrpc(ttrpc::Client::new()),
        }
    }

    /// The same with other limits of the replies.
    #[must_use]
    pub fn within(self, budget: &CriBudget) -> Self {
        match self {
            Self::Grpc(client) => Self::Grpc(client.within(budget).into()),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => Self::Ttrpc(client.within(budget)),
        }
    }

    /// Makes a call. `wait_ms`, after which the caller gives up (0: never), is sent by ttrpc alone:
    /// see [`grpc`].
    pub fn call(
        &mut self,
        key: CallKey,
        rpc: Rpc,
        wait_ms: u64,
        message: &[u8],
    ) -> Result<(), Refused> {
        match self {
            Self::Grpc(client) => {
                let _ = wait_ms;
                if rpc.is_stream() {
                    client.stream(key, rpc.path(), message)
                } else {
                    client.unary_with(key, rpc.path(), rpc.metadata(), message)
                }
            }
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => {
                let method = (rpc.service(), rpc.name());
                let timeout_ns = i64::try_from(wait_ms.saturating_mul(1_000_000));
                let timeout_ns = timeout_ns.unwrap_or(i64::MAX);
                if rpc.is_stream() {
                    client.stream(key, method, timeout_ns, message)
                } else {
                    client.unary(key, method, timeout_ns, message)
                }
            }
        }
    }

    /// Cancels a call, in whatever state: no event will name it any more.
    pub fn cancel(&mut self, key: CallKey) {
        match self {
            Self::Grpc(client) => client.cancel(key),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.cancel(key),
        }
    }

    /// Takes bytes from the socket. An error ends the connection: all calls are reported lost, and
    /// the output (which may inform the server) may be written before closing.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Peer> {
        match self {
            Self::Grpc(client) => {
                client.receive(bytes).map_err(|error| Peer::new(error.to_string()))
            }
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => {
                client.receive(bytes).map_err(|error| Peer::new(error.to_string()))
            }
        }
    }

    /// The connection is closed, as the caller knows: all calls are lost.
    pub fn hangup(&mut self, why: &str) {
        match self {
            Self::Grpc(client) => client.hangup(why),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.hangup(why),
        }
    }

    /// The next event; take all of them before receiving more.
    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Grpc(client) => client.poll_event(),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.poll_event(),
        }
    }

    /// The bytes to write to the socket, in order.
    pub fn output(&self) -> &[u8] {
        match self {
            Self::Grpc(client) => client.output(),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.output(),
        }
    }

    /// `count` bytes of [`Line::output`] were written.
    pub fn sent(&mut self, count: usize) {
        match self {
            Self::Grpc(client) => client.sent(count),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.sent(count),
        }
    }

    /// Why this connection accepts no more calls; those under way may still be answered.
    pub fn closing(&self) -> Option<&str> {
        match self {
            Self::Grpc(client) => client.closing(),
            #[cfg(feature = "runtime")]
            Self::Ttrpc(client) => client.closing(),
        }
    }

    /// Whether the output has only answers to the runtime's PINGs (HTTP/2). gRPC servers send one
    /// after each reply to measure the latency; the answer can be sent with the next request.
    pub fn only_pongs(&self) -> bool {
        const PONG_BYTES: usize = 17;
        const PING: u8 = 6;
        const ACK: u8 = 1;
        match self {
            Self::Grpc(client) => {
                let output = client.output();
                let is_pong =
                    |frame: &[u8]| frame.len() == PONG_BYTES && frame[..5] == [0, 0, 8, PING, ACK];
                !output.is_empty() && output.chunks(PONG_BYTES).all(is_pong)
            }
            #[cfg(feature = "runtime")]
            Self::Ttrpc(_) => false,
        }
    }
}
