//! Retained messages: the last one of each topic, for those who subscribe later (section 3.3.1.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::{MQTT_RETAINED_BYTES_MAX, MQTT_RETAINED_MAX};
use crate::wire::mqtt::{Message, QoS, topic};

/// By topic.
#[derive(Debug, Default)]
pub(super) struct Retained {
    messages: BTreeMap<Box<str>, (Arc<Message>, QoS)>,
    bytes: usize,
}

impl Retained {
    /// Retains a message; an empty one only removes that of its topic. `false`: no room.
    pub(super) fn set(&mut self, message: &Arc<Message>, qos: QoS) -> bool {
        if let Some((old, _)) = self.messages.remove(&message.topic) {
            self.bytes -= old.bytes();
        }
        if message.payload.is_empty() {
            return true;
        }
        let bytes = self.bytes + message.bytes();
        if self.messages.len() >= MQTT_RETAINED_MAX || bytes > MQTT_RETAINED_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        self.messages.insert(message.topic.clone(), (Arc::clone(message), qos));
        true
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn matching(&self, filter: &str) -> impl Iterator<Item = (Arc<Message>, QoS)> {
        let all = self.messages.values();
        let matching = all.filter(move |(message, _)| topic::matches(filter, &message.topic));
        matching.map(|(message, qos)| (Arc::clone(message), *qos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(retained: &mut Retained, topic: &str, bytes: usize) -> bool {
        retained.set(&Message::new(topic, &vec![b'x'; bytes]), QoS::AtLeastOnce)
    }

    #[test]
    fn their_number_and_bytes_have_bounds() {
        let mut retained = Retained::default();
        for at in 0..MQTT_RETAINED_MAX {
            assert!(set(&mut retained, &format!("a/{at}"), 1));
        }
        assert!(!set(&mut retained, "b", 1));
        assert!(set(&mut retained, "a/7", 2), "one that is there is replaced");
        assert!(set(&mut retained, "a/7", 0) && set(&mut retained, "b", 1), "an empty one removes");
        assert_eq!(retained.len(), MQTT_RETAINED_MAX);
        assert_eq!(retained.matching("a/#").count(), MQTT_RETAINED_MAX - 1);
        let mut retained = Retained::default();
        assert!(set(&mut retained, "t", MQTT_RETAINED_BYTES_MAX - 1));
        assert!(!set(&mut retained, "t", MQTT_RETAINED_BYTES_MAX), "and the old one is gone");
        assert_eq!((retained.len(), retained.bytes), (0, 0));
    }
}
