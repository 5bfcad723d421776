//! Connections to ports of a pod, as a client of `portforward.k8s.io`: any number of them over one
//! SPDY connection, each with a stream for its data and one for the reason of a failure.

use super::{Client, Incoming, Violation};
use crate::limits::SPDY_REASON_BYTES_MAX;
use crate::model::map::Map;

/// The version of the protocol, for `X-Stream-Protocol-Version`.
pub const PROTOCOL: &str = "portforward.k8s.io";

/// Connections to a pod's ports.
#[derive(Debug, Default)]
pub struct Forward {
    client: Client,
    /// Pairs that were opened.
    opened: u32,
    /// By the id of the data stream.
    pairs: Map<u32, Pair>,
    /// From the id of the error stream to that of the data stream.
    errors: Map<u32, u32>,
}

#[derive(Debug)]
struct Pair {
    error: u32,
    reason: Vec<u8>,
    /// No reason will come, or it is complete.
    has_reason: bool,
    /// Both directions of the data stream, as long as bytes may come or be sent.
    receives: bool,
    sends: bool,
}

/// What came for one connection, which is named by the number that [`Forward::open`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Data(u32, &'a [u8]),
    /// The pod sends no more.
    End(u32),
    /// The connection failed, with the runtime's reason; it is forgotten.
    Failed(u32, String),
}

impl Forward {
    /// Connects to a port of the pod; returns the number of the connection.
    pub fn open(&mut self, port: u16) -> u32 {
        let (port, request) = (port.to_string(), self.opened.to_string());
        self.opened += 1;
        let mut open = |kind: &str, ended: bool| {
            let headers = [("streamtype", kind), ("port", &port), ("requestid", &request)];
            self.client.open(&headers, ended)
        };
        // In this order, as kubectl; nothing is ever sent on the first.
        let error = open("error", true);
        let data = open("data", false);
        let pair =
            Pair { error, reason: Vec::new(), has_reason: false, receives: true, sends: true };
        self.pairs.insert(data, pair);
        self.errors.insert(error, data);
        data
    }

    /// Whether the connection is known.
    pub fn has(&self, connection: u32) -> bool {
        self.pairs.contains_key(&connection)
    }

    /// Sends bytes to the pod.
    pub fn data(&mut self, connection: u32, bytes: &[u8]) {
        if self.pairs.get(&connection).is_some_and(|pair| pair.sends) {
            self.client.data(connection, bytes);
        }
    }

    /// Sends that nothing follows.
    pub fn end(&mut self, connection: u32) {
        let Some(pair) = self.pairs.get_mut(&connection) else { return };
        if std::mem::take(&mut pair.sends) {
            self.client.end(connection);
        }
        self.forget_if_ended(connection);
    }

    /// Gives the connection up and forgets it.
    pub fn cancel(&mut self, connection: u32) {
        if let Some(pair) = self.forget(connection) {
            self.client.cancel(connection);
            if !pair.has_reason {
                self.client.cancel(pair.error);
            }
        }
    }

    /// The bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        self.client.output()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.client.sent(count);
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Event<'a>>), Violation> {
        let mut taken = 0;
        loop {
            let (count, incoming) = self.client.receive(&bytes[taken..])?;
            taken += count;
            let Some(incoming) = incoming else { return Ok((taken, None)) };
            if let Some(event) = self.event(incoming) {
                return Ok((taken, Some(event)));
            }
        }
    }

    fn event<'a>(&mut self, incoming: Incoming<'a>) -> Option<Event<'a>> {
        match incoming {
            Incoming::Data(id, piece) => {
                if let Some(pair) = self.errors.get(&id).and_then(|id| self.pairs.get_mut(id)) {
                    let room = SPDY_REASON_BYTES_MAX - pair.reason.len();
                    pair.reason.extend_from_slice(&piece[..piece.len().min(room)]);
                    return None;
                }
                let pair = self.pairs.get(&id)?;
                pair.receives.then_some(Event::Data(id, piece))
            }
            Incoming::End(id) => match self.errors.get(&id).copied() {
                Some(data) => self.end_of_reason(data),
                None => self.end_of_data(id),
            },
            Incoming::Reset(id, status) => {
                let data = self.errors.get(&id).copied().unwrap_or(id);
                let pair = self.forget(data)?;
                let why = reason(&pair).unwrap_or_else(|| format!("got a reset, status {status}"));
                Some(Event::Failed(data, why))
            }
            Incoming::GoAway(_) => None,
        }
    }

    fn end_of_reason(&mut self, data: u32) -> Option<Event<'static>> {
        let pair = self.pairs.get_mut(&data)?;
        pair.has_reason = true;
        if let Some(why) = reason(pair) {
            self.forget(data);
            self.client.cancel(data);
            return Some(Event::Failed(data, why));
        }
        self.forget_if_ended(data);
        None
    }

    fn end_of_data(&mut self, data: u32) -> Option<Event<'static>> {
        let pair = self.pairs.get_mut(&data)?;
        let first = std::mem::take(&mut pair.receives);
        self.forget_if_ended(data);
        first.then_some(Event::End(data))
    }

    fn forget_if_ended(&mut self, data: u32) {
        let ended = |pair: &Pair| !pair.receives && !pair.sends && pair.has_reason;
        if self.pairs.get(&data).is_some_and(ended) {
            self.forget(data);
        }
    }

    fn forget(&mut self, data: u32) -> Option<Pair> {
        let pair = self.pairs.remove(&data)?;
        self.errors.remove(&pair.error);
        Some(pair)
    }
}

fn reason(pair: &Pair) -> Option<String> {
    let text = String::from_utf8_lossy(&pair.reason);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
