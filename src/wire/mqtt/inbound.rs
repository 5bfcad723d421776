//! The receiving side of a session: which messages are acknowledged, in which order, and which of
//! QoS 2 have come before (sections 4.3, 4.4 and 4.6).
//!
//! ```text
//!  QoS 1: PUBLISH ─▶ owner ─acknowledge─▶ PUBACK
//!  QoS 2: PUBLISH ─▶ owner ─acknowledge─▶ PUBREC ─▶ PUBREL ─▶ PUBCOMP
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::packet::{Delivery, Packet, PacketId, Problem, encode};
use crate::limits::{MQTT_UNACKNOWLEDGED_MAX, MQTT_UNRELEASED_MAX};

/// Names a received message until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId(pub u64);

/// Of one session.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// In the order of the messages.
    acks: VecDeque<Ack>,
    /// Ids of QoS 2 that have come, and are not released.
    unreleased: BTreeSet<PacketId>,
    /// Of them, those that came over a connection before, and wait for the owner.
    earlier: BTreeMap<PacketId, MessageId>,
}

#[derive(Debug)]
struct Ack {
    packet: PacketId,
    is_qos2: bool,
    /// The owner has not acknowledged it.
    awaits: Option<MessageId>,
}

impl Inbound {
    /// A PUBLISH came. Whether it is new; if it is, and has a QoS above 0, it is acknowledged after
    /// [`Inbound::acknowledge`] for `awaits`; `None`: at once.
    pub(super) fn publish(
        &mut self,
        delivery: Delivery,
        awaits: Option<MessageId>,
    ) -> Result<bool, Problem> {
        let (packet, is_qos2) = match delivery {
            Delivery::AtMostOnce => return Ok(true),
            Delivery::AtLeastOnce(packet) => (packet, false),
            Delivery::ExactlyOnce(packet) => (packet, true),
        };
        let is_new = !is_qos2 || !self.unreleased.contains(&packet);
        let is_waiting = self.acks.iter().any(|ack| ack.is_qos2 && ack.packet == packet);
        if !is_new && is_waiting {
            return Ok(false);
        }
        if let Some(message) = self.earlier.remove(&packet).filter(|_| is_qos2) {
            self.acks.push_back(Ack { packet, is_qos2, awaits: Some(message) });
            return Ok(false);
        }
        if is_new && is_qos2 {
            if self.unreleased.len() >= MQTT_UNRELEASED_MAX {
                return Err(Problem::TooMany { max: MQTT_UNRELEASED_MAX });
            }
            self.unreleased.insert(packet);
        }
        let awaits = awaits.filter(|_| is_new);
        self.acks.push_back(Ack { packet, is_qos2, awaits });
        Ok(is_new)
    }

    /// Whether as many messages wait for the owner as may: no more is read until then.
    pub(super) fn is_full(&self) -> bool {
        self.acks.len() >= MQTT_UNACKNOWLEDGED_MAX
    }

    /// The owner has acknowledged it; whether it was known.
    pub(super) fn acknowledge(&mut self, message: MessageId) -> bool {
        if let Some(ack) = self.acks.iter_mut().find(|ack| ack.awaits == Some(message)) {
            ack.awaits = None;
            return true;
        }
        let count = self.earlier.len();
        self.earlier.retain(|_, earlier| *earlier != message);
        self.earlier.len() < count
    }

    /// Writes the acknowledgements that are due.
    pub(super) fn flush(&mut self, to: &mut Vec<u8>) {
        let due = self.acks.iter().take_while(|ack| ack.awaits.is_none()).count();
        for Ack { packet, is_qos2, .. } in self.acks.drain(..due) {
            let ack = if is_qos2 { Packet::PubRec(packet) } else { Packet::PubAck(packet) };
            encode(&ack, to);
        }
    }

    /// A PUBREL came. It is answered in any case: the one before may have been lost.
    pub(super) fn release(&mut self, packet: PacketId, to: &mut Vec<u8>) {
        self.unreleased.remove(&packet);
        self.earlier.remove(&packet);
        encode(&Packet::PubComp(packet), to);
    }

    /// The connection is lost: its messages come again, those of QoS 1 with ids that may mean
    /// others. Nothing is sent for them before.
    pub(super) fn disconnect(&mut self) {
        for Ack { packet, is_qos2, awaits } in self.acks.drain(..) {
            if let Some(message) = awaits.filter(|_| is_qos2) {
                self.earlier.insert(packet, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u16) -> PacketId {
        PacketId::new(id).expect("not 0")
    }

    fn flushed(inbound: &mut Inbound) -> Vec<u8> {
        let mut to = Vec::new();
        inbound.flush(&mut to);
        to
    }

    #[test]
    fn acknowledgements_leave_in_the_order_of_the_messages() {
        let mut inbound = Inbound::default();
        let (first, second) = (MessageId(1), MessageId(2));
        assert_eq!(inbound.publish(Delivery::AtLeastOnce(id(5)), Some(first)), Ok(true));
        assert_eq!(inbound.publish(Delivery::ExactlyOnce(id(6)), Some(second)), Ok(true));
        assert_eq!(inbound.publish(Delivery::AtLeastOnce(id(7)), None), Ok(true));
        assert!(flushed(&mut inbound).is_empty());
        assert!(inbound.acknowledge(second) && !inbound.acknowledge(second));
        assert!(flushed(&mut inbound).is_empty(), "the first is not acknowledged");
        assert!(inbound.acknowledge(first));
        let expected = [0x40, 2, 0, 5, 0x50, 2, 0, 6, 0x40, 2, 0, 7];
        assert_eq!(flushed(&mut inbound), expected);
    }

    #[test]
    fn a_message_of_qos_2_comes_once_until_it_is_released() {
        let (mut inbound, mut to) = (Inbound::default(), Vec::new());
        let again = Delivery::ExactlyOnce(id(5));
        assert_eq!(inbound.publish(again, Some(MessageId(1))), Ok(true));
        inbound.disconnect();
        assert_eq!(inbound.publish(again, Some(MessageId(2))), Ok(false), "it waits");
        assert_eq!(inbound.publish(again, Some(MessageId(2))), Ok(false), "it still does");
        assert!(inbound.acknowledge(MessageId(1)));
        assert_eq!(flushed(&mut inbound), [0x50, 2, 0, 5], "once");
        assert_eq!(inbound.publish(again, Some(MessageId(3))), Ok(false), "PUBREC was lost");
        assert_eq!(flushed(&mut inbound), [0x50, 2, 0, 5]);
        inbound.release(id(5), &mut to);
        inbound.release(id(5), &mut to);
        assert_eq!(to, [0x70, 2, 0, 5, 0x70, 2, 0, 5], "PUBCOMP was lost");
        assert_eq!(inbound.publish(again, None), Ok(true), "the id is free");
    }

    #[test]
    fn a_message_that_got_durable_between_two_connections_is_answered_when_it_comes_again() {
        let mut inbound = Inbound::default();
        let again = Delivery::ExactlyOnce(id(5));
        assert_eq!(inbound.publish(again, Some(MessageId(1))), Ok(true));
        inbound.disconnect();
        assert!(inbound.acknowledge(MessageId(1)) && !inbound.acknowledge(MessageId(1)));
        assert!(flushed(&mut inbound).is_empty(), "not before");
        assert_eq!(inbound.publish(again, Some(MessageId(2))), Ok(false));
        assert_eq!(flushed(&mut inbound), [0x50, 2, 0, 5]);
    }

    #[test]
    fn a_lost_connection_ends_what_comes_again() {
        let mut inbound = Inbound::default();
        assert_eq!(inbound.publish(Delivery::AtLeastOnce(id(5)), Some(MessageId(1))), Ok(true));
        inbound.disconnect();
        assert!(!inbound.acknowledge(MessageId(1)), "it belongs to the connection before");
        assert!(flushed(&mut inbound).is_empty());
    }

    #[test]
    fn messages_that_wait_have_a_bound() {
        let mut inbound = Inbound::default();
        for at in 1..=MQTT_UNACKNOWLEDGED_MAX as u16 {
            assert!(!inbound.is_full());
            let message = MessageId(at.into());
            assert_eq!(inbound.publish(Delivery::AtLeastOnce(id(at)), Some(message)), Ok(true));
        }
        assert!(inbound.is_full());
        let mut inbound = Inbound::default();
        for at in 1..=MQTT_UNRELEASED_MAX as u16 {
            assert_eq!(inbound.publish(Delivery::ExactlyOnce(id(at)), None), Ok(true));
            flushed(&mut inbound);
        }
        let refused = inbound.publish(Delivery::ExactlyOnce(id(1_000)), None);
        assert_eq!(refused, Err(Problem::TooMany { max: MQTT_UNRELEASED_MAX }));
    }
}
