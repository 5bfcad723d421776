//! The sending side of a session: messages that wait, and those under way, with QoS 0 or 1
//! (sections 4.3, 4.4 and 4.6).

use std::collections::VecDeque;
use std::sync::Arc;

use super::packet::{Delivery, Packet, PacketId, Publish, encode};
use super::{Message, QoS};
use crate::limits::MQTT_UNACKNOWLEDGED_MAX;
use crate::wire::output::Output;

/// A message for the other end.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) message: Arc<Message>,
    /// QoS 2 is sent as 1.
    pub(super) qos: QoS,
    pub(super) retain: bool,
    /// The sender's own.
    pub(super) number: u64,
}

/// The bounds of what waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) messages_max: usize,
    /// A single message may be larger.
    pub(super) bytes_max: usize,
}

/// Of one session.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    queue: VecDeque<Outgoing>,
    /// Sent and not acknowledged, in the order of the ids.
    unacknowledged: VecDeque<(PacketId, Outgoing)>,
    /// Bytes of both.
    bytes: usize,
    last_id: u16,
}

impl Outbound {
    /// Queues a message. `dropped` gets the oldest, as many as are beyond the bounds.
    pub(super) fn push(
        &mut self,
        outgoing: Outgoing,
        bounds: Bounds,
        dropped: &mut dyn FnMut(&Outgoing),
    ) {
        self.bytes += outgoing.message.bytes();
        self.queue.push_back(outgoing);
        while self.queue.len() > 1
            && (self.queue.len() > bounds.messages_max || self.bytes > bounds.bytes_max)
        {
            let oldest = self.queue.pop_front().expect("there are several");
            self.bytes -= oldest.message.bytes();
            dropped(&oldest);
        }
    }

    /// Removes the messages that wait and meet the condition.
    pub(super) fn remove(&mut self, mut is_meant: impl FnMut(&Outgoing) -> bool) {
        let bytes = &mut self.bytes;
        self.queue.retain(|outgoing| {
            let goes = is_meant(outgoing);
            *bytes -= if goes { outgoing.message.bytes() } else { 0 };
            !goes
        });
    }

    /// Bytes of all messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.unacknowledged.len()
    }

    /// Writes the messages that wait while the output has less than `output_bytes_max`. `sent` gets
    /// those of QoS 0, which are over by that.
    pub(super) fn pump(
        &mut self,
        output: &mut Output,
        output_bytes_max: usize,
        sent: &mut dyn FnMut(&Outgoing),
    ) {
        while let Some(next) = self.queue.front() {
            let fits = output.len() == 0
                || output.len() + next.message.bytes() + HEAD_BYTES_MAX <= output_bytes_max;
            if !fits || self.unacknowledged.len() >= MQTT_UNACKNOWLEDGED_MAX {
                return;
            }
            let next = self.queue.pop_front().expect("it was looked at");
            if next.qos == QoS::AtMostOnce {
                put(&next, Delivery::AtMostOnce, false, output.tail());
                self.bytes -= next.message.bytes();
                sent(&next);
            } else {
                let id = self.next_id();
                put(&next, Delivery::AtLeastOnce(id), false, output.tail());
                self.unacknowledged.push_back((id, next));
            }
        }
    }

    /// A PUBACK came. `None`: for no message under way.
    pub(super) fn acknowledge(&mut self, id: PacketId) -> Option<Outgoing> {
        let at = self.unacknowledged.iter().position(|(other, _)| *other == id)?;
        let (_, outgoing) = self.unacknowledged.remove(at)?;
        self.bytes -= outgoing.message.bytes();
        Some(outgoing)
    }

    /// The id of the first one under way.
    pub(super) fn oldest(&self) -> Option<PacketId> {
        self.unacknowledged.front().map(|(id, _)| *id)
    }

    /// After a reconnection: sends again what is not acknowledged.
    pub(super) fn resend(&self, output: &mut Output) {
        for (id, outgoing) in &self.unacknowledged {
            put(outgoing, Delivery::AtLeastOnce(*id), true, output.tail());
        }
    }

    /// One that no message under way has.
    pub(super) fn next_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let is_used = |id| self.unacknowledged.iter().any(|(other, _)| *other == id);
            match PacketId::new(self.last_id) {
                Some(id) if !is_used(id) => return id,
                _ => {}
            }
        }
    }
}

fn put(outgoing: &Outgoing, delivery: Delivery, dup: bool, to: &mut Vec<u8>) {
    let Outgoing { message, retain, .. } = outgoing;
    let (topic, payload) = (&*message.topic, &*message.payload);
    encode(&Packet::Publish(Publish { dup, retain: *retain, delivery, topic, payload }), to);
}

/// Of a PUBLISH beside its topic and payload: the fixed header, the topic's length and the id.
pub(super) const HEAD_BYTES_MAX: usize = 5 + 2 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { messages_max: 30, bytes_max: 1_000 };

    fn outgoing(number: u64, qos: QoS, bytes: usize) -> Outgoing {
        let message = Message::new("t", &vec![b'x'; bytes - 1]);
        Outgoing { message, qos, retain: false, number }
    }

    fn pushed(outbound: &mut Outbound, outgoing: Outgoing) -> Vec<u64> {
        let mut dropped = Vec::new();
        outbound.push(outgoing, BOUNDS, &mut |gone| dropped.push(gone.number));
        dropped
    }

    #[test]
    fn of_too_many_messages_the_oldest_are_dropped() {
        let mut outbound = Outbound::default();
        for number in 0..30 {
            assert!(pushed(&mut outbound, outgoing(number, QoS::AtLeastOnce, 10)).is_empty());
        }
        assert_eq!(pushed(&mut outbound, outgoing(30, QoS::AtLeastOnce, 10)), [0]);
        assert_eq!(pushed(&mut outbound, outgoing(31, QoS::AtLeastOnce, 980)).len(), 28);
        assert_eq!((outbound.len(), outbound.bytes()), (3, 1_000));
        assert_eq!(pushed(&mut outbound, outgoing(32, QoS::AtLeastOnce, 5_000)), [29, 30, 31]);
        assert_eq!((outbound.len(), outbound.bytes()), (1, 5_000), "a single one may be larger");
    }

    #[test]
    fn so_many_are_under_way_and_come_again_with_their_ids() {
        let (mut outbound, mut output) = (Outbound::default(), Output::default());
        let mut sent = 0;
        for number in 0..25 {
            pushed(&mut outbound, outgoing(number, QoS::AtLeastOnce, 3));
        }
        pushed(&mut outbound, outgoing(25, QoS::AtMostOnce, 3));
        outbound.pump(&mut output, 1 << 20, &mut |_| sent += 1);
        let of = |count: usize| count * (2 + 2 + 2 + 3);
        assert_eq!(output.len(), of(MQTT_UNACKNOWLEDGED_MAX));
        let id = |id| PacketId::new(id).expect("not 0");
        assert_eq!(outbound.acknowledge(id(3)).map(|gone| gone.number), Some(2));
        assert!(outbound.acknowledge(id(3)).is_none(), "it is acknowledged once");
        output.sent(output.len());
        outbound.pump(&mut output, 1 << 20, &mut |_| sent += 1);
        assert_eq!(output.len(), of(1));
        output.sent(output.len());
        outbound.resend(&mut output);
        assert_eq!(output.len(), of(MQTT_UNACKNOWLEDGED_MAX));
        assert_eq!(&output.pending()[..9], [0x3a, 7, 0, 1, b't', 0, 1, b'x', b'x']);
        output.sent(output.len());
        for at in 1..=25 {
            outbound.acknowledge(id(at));
            outbound.pump(&mut output, 1 << 20, &mut |_| sent += 1);
        }
        assert_eq!((sent, outbound.len(), outbound.bytes()), (1, 0, 0));
    }

    #[test]
    fn a_full_output_stops_it_and_a_large_message_gets_an_empty_one() {
        let (mut outbound, mut output) = (Outbound::default(), Output::default());
        pushed(&mut outbound, outgoing(0, QoS::AtMostOnce, 700));
        pushed(&mut outbound, outgoing(1, QoS::AtMostOnce, 20));
        outbound.pump(&mut output, 100, &mut |_| ());
        assert_eq!((outbound.len(), output.len()), (1, 705));
        output.sent(700);
        outbound.pump(&mut output, 100, &mut |_| ());
        assert_eq!(outbound.len(), 0);
    }

    #[test]
    fn an_id_in_use_is_passed_over() {
        let (mut outbound, mut output) = (Outbound::default(), Output::default());
        pushed(&mut outbound, outgoing(0, QoS::AtLeastOnce, 3));
        outbound.pump(&mut output, 100, &mut |_| ());
        outbound.last_id = u16::MAX;
        assert_eq!(outbound.next_id().get(), 2, "neither 0 nor 1");
    }
}
