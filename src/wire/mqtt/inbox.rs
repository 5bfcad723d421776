//! Received bytes → packets, split anywhere. Memory grows with the bytes that came, never with the
//! announced length.

use std::ops::ControlFlow;

use super::packet::{self, Delivery, Head, Kind, Packet, PacketId, Problem, Violation};

/// The incomplete packet of one connection.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Bytes of a PUBLISH that was too large, which are dropped as they come.
    passing: usize,
}

/// What [`Inbox::receive`] found.
pub(super) enum Incoming<'a> {
    Packet(Packet<'a>),
    /// A PUBLISH of so many bytes is skipped.
    TooLarge {
        bytes: usize,
        delivery: Delivery,
    },
}

/// What becomes of a PUBLISH that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oversize {
    /// It is a violation, as any other packet of that size is.
    Refuse,
    /// It is skipped: a broker sends it again after each reconnection until it is acknowledged.
    Skip,
}

/// Takes a packet, and may change the limit for those after it.
pub(super) type Handler<'h> =
    dyn FnMut(Incoming<'_>, &mut usize) -> Result<ControlFlow<()>, Violation> + 'h;

impl Inbox {
    /// Bytes that are kept.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the rest of a packet must come.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.bytes.is_empty() || self.passing > 0
    }

    /// Keeps bytes for later.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        let passed = self.passing.min(bytes.len());
        self.passing -= passed;
        self.bytes.extend_from_slice(&bytes[passed..]);
    }

    /// Gives every complete packet to `each`, until it breaks; the rest is kept.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        mut bytes_max: usize,
        oversize: Oversize,
        each: &mut Handler<'_>,
    ) -> Result<(), Violation> {
        let passed = self.passing.min(bytes.len());
        self.passing -= passed;
        let bytes = &bytes[passed..];
        let mut kept = std::mem::take(&mut self.bytes);
        let all = if kept.is_empty() {
            bytes
        } else {
            kept.extend_from_slice(bytes);
            &kept
        };
        let mut at = 0;
        loop {
            let rest = &all[at..];
            let flow = match packet::decode(rest, bytes_max) {
                Ok(None) => break,
                Ok(Some((packet, count))) => {
                    at += count;
                    each(Incoming::Packet(packet), &mut bytes_max)?
                }
                Err(violation) if oversize == Oversize::Skip && is_too_large(&violation) => {
                    let Some((head, delivery)) = beginning(rest)? else { break };
                    let bytes = head.packet_bytes();
                    let count = bytes.min(rest.len());
                    at += count;
                    self.passing = bytes - count;
                    each(Incoming::TooLarge { bytes, delivery }, &mut bytes_max)?
                }
                Err(violation) => return Err(violation),
            };
            if flow.is_break() {
                break;
            }
        }
        if kept.is_empty() {
            self.bytes = bytes[at..].to_vec();
        } else {
            kept.drain(..at);
            if kept.is_empty() {
                kept = Vec::new();
            }
            self.bytes = kept;
        }
        Ok(())
    }
}

fn is_too_large(violation: &Violation) -> bool {
    violation.packet == Some(Kind::Publish) && matches!(violation.problem, Problem::TooLarge { .. })
}

/// The head and the id of a PUBLISH of which not all is there. `None`: not even these are.
fn beginning(bytes: &[u8]) -> Result<Option<(Head, Delivery)>, Violation> {
    let Some(head) = packet::head(bytes)? else { return Ok(None) };
    let qos = head.flags >> 1 & 3;
    if qos == 0 {
        return Ok(Some((head, Delivery::AtMostOnce)));
    }
    let body = &bytes[head.head_bytes..];
    let Some((count, rest)) = body.split_first_chunk::<2>() else { return Ok(None) };
    let topic_bytes = usize::from(u16::from_be_bytes(*count));
    if 4 + topic_bytes > head.body_bytes {
        return Err(head.violation(Problem::Short));
    }
    let Some(id) = rest.get(topic_bytes..topic_bytes + 2) else { return Ok(None) };
    let id = PacketId::new(u16::from_be_bytes([id[0], id[1]]));
    match (qos, id) {
        (1, Some(id)) => Ok(Some((head, Delivery::AtLeastOnce(id)))),
        (2, Some(id)) => Ok(Some((head, Delivery::ExactlyOnce(id)))),
        (_, None) => Err(head.violation(Problem::PacketId)),
        (qos, Some(_)) => Err(head.violation(Problem::QoS(qos))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mqtt::packet::{Publish, encode};

    /// What came of these pieces, in words.
    fn came(pieces: &[&[u8]], oversize: Oversize) -> Result<Vec<String>, Violation> {
        let (mut inbox, mut found) = (Inbox::default(), Vec::new());
        for piece in pieces {
            inbox.receive(piece, MAX, oversize, &mut |incoming, _| {
                found.push(match incoming {
                    Incoming::Packet(packet) => packet.kind().to_string(),
                    Incoming::TooLarge { bytes, delivery } => format!("{bytes} {delivery:?}"),
                });
                Ok(ControlFlow::Continue(()))
            })?;
            assert!(inbox.len() <= MAX + 2 + (1 << 16), "no more is kept than is needed");
        }
        Ok(found)
    }

    const MAX: usize = 100;

    fn publish(delivery: Delivery, bytes: usize) -> Vec<u8> {
        let payload = vec![b'x'; bytes];
        let (mut to, topic) = (Vec::new(), "a/b");
        let publish = Publish { dup: false, retain: false, delivery, topic, payload: &payload };
        encode(&Packet::Publish(publish), &mut to);
        to
    }

    #[test]
    fn a_message_that_is_too_large_is_skipped_with_its_id_however_it_is_cut() {
        let id = PacketId::new(7).expect("not 0");
        let large = publish(Delivery::AtLeastOnce(id), 5_000);
        let said = format!("{} AtLeastOnce(7)", large.len());
        let bytes = [&large[..], &publish(Delivery::AtMostOnce, 9), &[0xd0, 0]].concat();
        let expected = vec![said, "PUBLISH".to_owned(), "PINGRESP".to_owned()];
        for size in [1, 2, 3, 7, 1_000, bytes.len()] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(came(&pieces, Oversize::Skip).as_ref(), Ok(&expected), "{size}");
            let refused = came(&pieces, Oversize::Refuse).map_err(|violation| violation.problem);
            let problem = Problem::TooLarge { got_bytes: large.len(), max_bytes: MAX };
            assert_eq!(refused, Err(problem), "{size}");
        }
        let subscribe = [&[0x82, 0xe8, 7][..], &[0; 1_000]].concat();
        assert!(came(&[&subscribe], Oversize::Skip).is_err(), "only messages are skipped");
        let short = [0x32, 0xe8, 7, 0xff, 0xff, 0, 0];
        assert!(came(&[&short], Oversize::Skip).is_err(), "its topic is longer than it is");
    }

    #[test]
    fn what_follows_a_break_is_kept_for_the_next_call() {
        let (mut inbox, mut count) = (Inbox::default(), 0);
        let bytes = [0xc0, 0, 0xc0, 0, 0xc0];
        for (more, expected) in [(&bytes[..], 1), (&[], 2), (&[0, 0xc0, 0], 3), (&[], 4)] {
            let done = inbox.receive(more, MAX, Oversize::Refuse, &mut |_, _| {
                count += 1;
                Ok(ControlFlow::Break(()))
            });
            assert_eq!((done, count), (Ok(()), expected));
        }
        assert!(!inbox.is_incomplete());
    }
}
