//! The messages of the stream tunnel, KubeEdge's EdgeStream and CloudStream: logs, exec, attach and
//! metrics of a node's pods over one WebSocket connection that the node has opened.
//!
//! A WebSocket message is one message here: two numbers in base 128, the request that it belongs to
//! and its kind, and then data up to its end. The data is binary even in a text frame.
//!
//! Not here: the WebSocket frames ([`super::ws`]), and what a request does.

mod connect;

use std::fmt;

pub use connect::{Connect, ConnectError};

use crate::limits::TUNNEL_DATA_BYTES_MAX;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The request, by the cloud's count. It has a meaning within one connection only.
    pub id: u64,
    pub kind: Kind,
    pub data: &'a [u8],
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The cloud wants logs; the data is a [`Connect`].
    Logs,
    /// The cloud wants a connection to a request's answer, both ways; the data is a [`Connect`].
    Exec,
    /// The cloud wants metrics or statistics; the data is a [`Connect`].
    Metrics,
    /// Bytes of a request, from either side.
    Data,
    /// The request ends; without data.
    Remove,
    /// The cloud gives up the whole connection; the data is its reason, and the id has no meaning.
    Close,
    /// As `Exec`, for the process of a container.
    Attach,
    /// A kind of a later version; to be ignored.
    Unknown(u64),
}

impl Kind {
    fn number(self) -> u64 {
        match self {
            Self::Logs => 0,
            Self::Exec => 1,
            Self::Metrics => 2,
            Self::Data => 3,
            Self::Remove => 4,
            Self::Close => 5,
            Self::Attach => 6,
            Self::Unknown(number) => number,
        }
    }

    fn of(number: u64) -> Self {
        match number {
            0 => Self::Logs,
            1 => Self::Exec,
            2 => Self::Metrics,
            3 => Self::Data,
            4 => Self::Remove,
            5 => Self::Close,
            6 => Self::Attach,
            _ => Self::Unknown(number),
        }
    }
}

/// Why bytes are not a message. KubeEdge ends the connection then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The bytes end before this number does.
    Cut(Number),
    /// This number does not fit into 64 bits.
    Overflow(Number),
    /// Data of more than [`TUNNEL_DATA_BYTES_MAX`].
    Size(usize),
}

/// The numbers at the beginning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Id,
    Kind,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |number: &Number| match number {
            Number::Id => "an id",
            Number::Kind => "a kind",
        };
        match self {
            Self::Cut(number) => {
                write!(f, "tunnel: got a message that ends early, expected {}", name(number))
            }
            Self::Overflow(number) => {
                write!(f, "tunnel: got a longer number, expected {} of 64 bits", name(number))
            }
            Self::Size(got) => {
                write!(f, "tunnel: got {got} bytes of data, expected at most ")?;
                write!(f, "{TUNNEL_DATA_BYTES_MAX}")
            }
        }
    }
}

impl<'a> Message<'a> {
    /// Reads one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let (id, rest) = number(bytes, Number::Id)?;
        let (kind, data) = number(rest, Number::Kind)?;
        if data.len() > TUNNEL_DATA_BYTES_MAX {
            return Err(MessageError::Size(data.len()));
        }
        Ok(Self { id, kind: Kind::of(kind), data })
    }

    /// Appends the message. The caller cuts data into pieces of [`TUNNEL_DATA_BYTES_MAX`] or less.
    pub fn encode(&self, to: &mut Vec<u8>) {
        put_number(self.id, to);
        put_number(self.kind.number(), to);
        to.extend_from_slice(self.data);
    }
}

/// A number in base 128, the lowest seven bits first, and what follows it.
fn number(bytes: &[u8], which: Number) -> Result<(u64, &[u8]), MessageError> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate() {
        // Nine bytes have 63 bits: the tenth can only add the last one.
        if at == 9 && *byte > 1 {
            return Err(MessageError::Overflow(which));
        }
        value |= u64::from(byte & !MORE) << (7 * at);
        if byte & MORE == 0 {
            return Ok((value, &bytes[at + 1..]));
        }
    }
    Err(MessageError::Cut(which))
}

fn put_number(mut value: u64, to: &mut Vec<u8>) {
    while value >= u64::from(MORE) {
        to.push(value as u8 | MORE);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Another byte of the number follows.
const MORE: u8 = 0x80;
