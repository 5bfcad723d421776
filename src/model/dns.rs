//! DNS questions and answers (RFC 1035), as far as Services need them: names are text in lower
//! case, without the dot at their end.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The types of records that are answered here (RFC 1035 section 3.2.2, RFC 3596, RFC 2782).
pub mod kind {
    pub const A: u16 = 1;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const ANY: u16 = 255;
}

/// One question, of class IN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// A byte that no name of Kubernetes has is `?`.
    pub name: Box<str>,
    /// See [`kind`].
    pub kind: u16,
}

/// The codes of answers (RFC 1035 section 4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rcode {
    #[default]
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
}

/// One record of class IN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its owner.
    pub name: Box<str>,
    /// Seconds that it may be kept.
    pub ttl_s: u32,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(Box<str>),
    Ptr(Box<str>),
    Srv {
        port: u16,
        target: Box<str>,
    },
    /// Of the zone: how long a negative answer may be kept is its minimum, seconds.
    Soa {
        minimum_s: u32,
    },
}

/// The content of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub rcode: Rcode,
    /// The responder owns the zone.
    pub authoritative: bool,
    pub answers: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

/// What is to be done with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The table of Services has the answer.
    Answer(Answer),
    /// The answer begins with this record, and the rest is asked for elsewhere: the question of
    /// the same type about this name.
    Alias(Record, Box<str>),
    /// It is not about Services.
    Forward,
}
