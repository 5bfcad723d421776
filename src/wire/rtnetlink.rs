//! Messages of rtnetlink(7) for one link and its IPv4 addresses: requests, and the kernel's
//! answers.
//!
//! The kernel is not hostile, but its answers are read as those of any peer: each length is
//! checked.

use core::net::Ipv4Addr;

/// The header of a message, in the machine's byte order.
const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const DUMP: u16 = 0x300;

const INET: u8 = 2;
const UP: u32 = 1;
/// Attributes of a link.
const IFNAME: u16 = 3;
const LINKINFO: u16 = 18;
const IFALIAS: u16 = 20;
const INFO_KIND: u16 = 1;
/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const SCOPE_UNIVERSE: u8 = 0;

/// What is asked of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Make a link of this kind.
    AddLink {
        name: &'a str,
        kind: &'a str,
    },
    /// Set it up, and perhaps give it this description.
    RaiseLink {
        index: u32,
        alias: Option<&'a str>,
    },
    DeleteLink {
        index: u32,
    },
    AddAddress {
        index: u32,
        ip: Ipv4Addr,
    },
    DeleteAddress {
        index: u32,
        ip: Ipv4Addr,
    },
    /// Describe the link of this name.
    FindLink {
        name: &'a str,
    },
    /// Name all IPv4 addresses.
    Addresses,
}

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What was asked is done, or failed with this number of errno.
    Ack(i32),
    /// The end of a list.
    Done,
    Link {
        index: u32,
        is_up: bool,
        kind: Box<str>,
        alias: Box<str>,
    },
    Address {
        index: u32,
        ip: Ipv4Addr,
    },
    /// About something else.
    Other,
}

impl Request<'_> {
    /// The message. `serial` comes back with its answers.
    pub fn encode(&self, serial: u32) -> Vec<u8> {
        let (kind, flags) = match self {
            Self::AddLink { .. } => (NEW_LINK, ACK | CREATE | EXCLUSIVE),
            Self::RaiseLink { .. } => (NEW_LINK, ACK),
            Self::DeleteLink { .. } => (DEL_LINK, ACK),
            Self::AddAddress { .. } => (NEW_ADDRESS, ACK | CREATE | EXCLUSIVE),
            Self::DeleteAddress { .. } => (DEL_ADDRESS, ACK),
            Self::FindLink { .. } => (GET_LINK, 0),
            Self::Addresses => (GET_ADDRESS, DUMP),
        };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | REQUEST).to_ne_bytes());
        bytes.extend(serial.to_ne_bytes());
        bytes.extend([0; 4]);
        match self {
            Self::AddLink { name, kind } => {
                put_link(0, UP, &mut bytes);
                put_text(IFNAME, name, &mut bytes);
                let mut info = Vec::new();
                put_text(INFO_KIND, kind, &mut info);
                put(LINKINFO, &info, &mut bytes);
            }
            Self::RaiseLink { index, alias } => {
                put_link(*index, UP, &mut bytes);
                if let Some(alias) = alias {
                    put_text(IFALIAS, alias, &mut bytes);
                }
            }
            Self::DeleteLink { index } => put_link(*index, 0, &mut bytes),
            Self::AddAddress { index, ip } | Self::DeleteAddress { index, ip } => {
                bytes.extend([INET, 32, 0, SCOPE_UNIVERSE]);
                bytes.extend(index.to_ne_bytes());
                put(LOCAL, &ip.octets(), &mut bytes);
                put(ADDRESS, &ip.octets(), &mut bytes);
            }
            Self::FindLink { name } => {
                put_link(0, 0, &mut bytes);
                put_text(IFNAME, name, &mut bytes);
            }
            Self::Addresses => bytes.extend([INET, 0, 0, 0, 0, 0, 0, 0]),
        }
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }
}

fn put_link(index: u32, flags: u32, to: &mut Vec<u8>) {
    to.extend([0; 4]);
    to.extend(index.to_ne_bytes());
    to.extend(flags.to_ne_bytes());
    to.extend(flags.to_ne_bytes());
}

fn put_text(kind: u16, text: &str, to: &mut Vec<u8>) {
    put(kind, &[text.as_bytes(), &[0]].concat(), to);
}

fn put(kind: u16, value: &[u8], to: &mut Vec<u8>) {
    to.extend((value.len() as u16 + 4).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// The messages in what one read has returned, with their serials. The rest is dropped where a
/// length is wrong.
pub fn replies(mut bytes: &[u8]) -> Vec<(u32, Reply)> {
    let mut found = Vec::new();
    while let Some(header) = bytes.get(..HEADER) {
        let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|it| header[at + it]));
        let length = number(0) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(HEADER..length) else { break };
        found.push((number(8), reply(kind, body)));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn reply(kind: u16, body: &[u8]) -> Reply {
    let number = |at: usize| body.get(at..at + 4).map(|it| [it[0], it[1], it[2], it[3]]);
    match kind {
        ERROR => Reply::Ack(number(0).map_or(0, |it| -i32::from_ne_bytes(it))),
        DONE => Reply::Done,
        NEW_LINK => {
            let (Some(index), Some(flags)) = (number(4), number(8)) else { return Reply::Other };
            let rest = body.get(16..).unwrap_or_default();
            let info = attribute(rest, LINKINFO).unwrap_or_default();
            Reply::Link {
                index: u32::from_ne_bytes(index),
                is_up: u32::from_ne_bytes(flags) & UP != 0,
                kind: text(attribute(info, INFO_KIND)),
                alias: text(attribute(rest, IFALIAS)),
            }
        }
        NEW_ADDRESS => {
            let ip = attribute(body.get(8..).unwrap_or_default(), LOCAL);
            let ip = ip.and_then(|it| <[u8; 4]>::try_from(it).ok());
            match (number(4), ip) {
                (Some(index), Some(ip)) => {
                    Reply::Address { index: u32::from_ne_bytes(index), ip: ip.into() }
                }
                _ => Reply::Other,
            }
        }
        _ => Reply::Other,
    }
}

fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        // The two highest bits are flags.
        if u16::from_ne_bytes([header[2], header[3]]) & 0x3fff == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn text(value: Option<&[u8]>) -> Box<str> {
    let value = value.unwrap_or_default();
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel: kind and body.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn what_the_kernel_answers_is_read() {
        let mut body = vec![0; 4];
        body.extend(5_u32.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        body.extend([0; 4]);
        put_text(IFNAME, "edgemesh0", &mut body);
        put_text(IFALIAS, "edged", &mut body);
        let mut info = Vec::new();
        put_text(INFO_KIND, "dummy", &mut info);
        put(LINKINFO, &info, &mut body);
        let link = message(NEW_LINK, &body);
        let expected =
            Reply::Link { index: 5, is_up: true, kind: "dummy".into(), alias: "edged".into() };
        assert_eq!(replies(&link), [(7, expected.clone())]);
        let ack = message(ERROR, &(-17_i32).to_ne_bytes());
        let both = [ack, message(DONE, &[0; 4])].concat();
        assert_eq!(replies(&both), [(7, Reply::Ack(17)), (7, Reply::Done)]);
        // Cut at every place: what is read is right, and nothing panics.
        for end in 0..link.len() {
            assert_eq!(replies(&link[..end]), [], "{end}");
        }
        for at in 0..link.len() {
            let mut spoilt = link.clone();
            spoilt[at] ^= 0xff;
            let _ = replies(&spoilt);
        }
    }

    #[test]
    fn a_request_is_a_message_that_can_be_read_again() {
        let ip = Ipv4Addr::new(10, 96, 0, 7);
        let bytes = Request::AddAddress { index: 3, ip }.encode(9);
        assert_eq!(replies(&bytes), [(9, Reply::Address { index: 3, ip })]);
        let link = |index, kind: &str, alias: &str| Reply::Link {
            index,
            is_up: true,
            kind: kind.into(),
            alias: alias.into(),
        };
        let made = Request::AddLink { name: "edgemesh0", kind: "dummy" };
        assert_eq!(replies(&made.encode(1)), [(1, link(0, "dummy", ""))]);
        let raised = Request::RaiseLink { index: 3, alias: Some("edged") };
        assert_eq!(replies(&raised.encode(2)), [(2, link(3, "", "edged"))]);
        let only = Request::RaiseLink { index: 3, alias: None };
        assert_eq!(replies(&only.encode(2)), [(2, link(3, "", ""))]);
        for request in [
            Request::DeleteLink { index: 3 },
            Request::DeleteAddress { index: 3, ip },
            Request::FindLink { name: "edgemesh0" },
            Request::Addresses,
        ] {
            let bytes = request.encode(1);
            assert_eq!(bytes.len(), u32::from_ne_bytes([0, 1, 2, 3].map(|at| bytes[at])) as usize);
        }
    }
}
