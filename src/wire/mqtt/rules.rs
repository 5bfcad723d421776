//! Which topics belong to the agent alone, and what becomes of a publication while no broker is
//! there (spec `devices`, sections 6 and 16.2).

/// Below it are the topics of KubeEdge's devices.
const EVENTS: &str = "$hw/events/";

/// What the agent subscribes to, with QoS 1 (section 6.1): the topics of devices with and without a
/// namespace, and what goes to the cloud without any rule.
pub const FILTERS: [&str; 8] = [
    "$hw/events/upload/#",
    "$hw/events/device/+/+/state/update",
    "$hw/events/device/+/state/update",
    "$hw/events/device/+/+/twin/+",
    "$hw/events/device/+/twin/+",
    "$hw/events/node/+/membership/get",
    "SYS/dis/upload_records",
    "+/user/#",
];

/// Whether a client may publish to this topic. What the agent answers, and what in old versions the
/// cloud sent, is the agent's: a client that publishes it would play the agent or the cloud.
pub fn may_publish(topic: &str) -> bool {
    if topic.starts_with("$SYS/") {
        return false;
    }
    let last = topic.rsplit('/').next().unwrap_or_default();
    !topic.starts_with(EVENTS)
        || !matches!(last, "result" | "delta" | "document" | "updated" | "cloud_updated")
}

/// What becomes of a publication while it cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhileAway {
    /// It is dropped: whoever asked has lost its connection, too.
    Drop,
    /// It replaces the one with the same topic: only the last says what holds.
    Latest,
    /// It waits in the order of the others.
    Queue,
}

/// The rule for a topic: of KubeEdge's answers only the last document and delta of each device are
/// of use later; what a rule of the cloud publishes waits.
pub fn while_away(topic: &str) -> WhileAway {
    match topic.strip_prefix(EVENTS) {
        None => WhileAway::Queue,
        Some(_) if topic.ends_with("/twin/update/document") => WhileAway::Latest,
        Some(_) if topic.ends_with("/twin/update/delta") => WhileAway::Latest,
        Some(_) => WhileAway::Drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_plays_neither_the_agent_nor_the_cloud() {
        for topic in [
            "$hw/events/device/default/dev1/twin/cloud_updated",
            "$hw/events/device/dev1/twin/update/result",
            "$hw/events/device/default/dev1/twin/update/delta",
            "$hw/events/device/default/dev1/twin/update/document",
            "$hw/events/device/default/dev1/updated",
            "$hw/events/node/edge1/membership/updated",
            "$hw/events/node/edge1/membership/get/result",
            "$SYS/broker/version",
        ] {
            assert!(!may_publish(topic), "{topic}");
        }
        for topic in [
            "$hw/events/device/default/dev1/twin/update",
            "$hw/events/device/dev1/twin/get",
            "$hw/events/device/default/dev1/state/update",
            "$hw/events/node/edge1/membership/get",
            "$hw/events/upload/anything",
            "plant/user/result",
            "SYS/dis/upload_records",
        ] {
            assert!(may_publish(topic), "{topic}");
        }
    }

    #[test]
    fn of_answers_only_the_last_document_and_delta_wait() {
        for (topic, expected) in [
            ("$hw/events/device/default/dev1/twin/update/document", WhileAway::Latest),
            ("$hw/events/device/default/dev1/twin/update/delta", WhileAway::Latest),
            ("$hw/events/device/default/dev1/twin/update/result", WhileAway::Drop),
            ("$hw/events/node/edge1/membership/updated", WhileAway::Drop),
            ("plant/line1/setpoint", WhileAway::Queue),
        ] {
            assert_eq!(while_away(topic), expected, "{topic}");
        }
    }
}
