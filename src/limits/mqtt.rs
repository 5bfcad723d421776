//! Limits of MQTT: the client of another broker, and the broker inside.

/// Bytes of one packet. Twins have some hundred; a client that uploads a picture has this much.
pub const MQTT_PACKET_BYTES_MAX: usize = 256 << 10;
/// Bytes of a CONNECT: names, a password and a last will. Nobody has proved anything by then.
pub const MQTT_CONNECT_BYTES_MAX: usize = 16 << 10;
/// Bytes of a topic or a filter. The format allows 65,535; KubeEdge's longest has some 150.
pub const MQTT_TOPIC_BYTES_MAX: usize = 1 << 10;
/// Levels of a topic or a filter: twice as many as KubeEdge's deepest has.
pub const MQTT_TOPIC_LEVELS_MAX: usize = 16;
/// Bytes of a client's id. The standard asks for 23; generated ones have 36 and a name.
pub const MQTT_CLIENT_ID_BYTES_MAX: usize = 256;
/// Clients of the broker that are connected.
pub const MQTT_CONNECTIONS_MAX: usize = 64;
/// Sessions that outlive their connections. One more replaces the one whose client left first.
pub const MQTT_PERSISTENT_SESSIONS_MAX: usize = 16;
/// Filters of one session, and of the agent itself.
pub const MQTT_SUBSCRIPTIONS_MAX: usize = 64;
/// Topics of the cloud's rules: the other subscriptions are the agent's own.
pub const RULE_TOPICS_MAX: usize = MQTT_SUBSCRIPTIONS_MAX - 8;
/// Messages that wait for one client, unless `mqttSessionQueueSize` says otherwise (KubeEdge's
/// default); of more, the oldest is dropped.
pub const MQTT_SESSION_MESSAGES_MAX: usize = 100;
/// What that key may say at the most: all of them are in memory.
pub const MQTT_SESSION_QUEUE_MAX: usize = 1_000;
/// Bytes of these messages. A single one may be larger.
pub const MQTT_SESSION_BYTES_MAX: usize = 64 << 10;
/// Bytes of the messages that wait for all clients together: 16 sessions that are full, twice.
pub const MQTT_STORED_BYTES_MAX: usize = 2 << 20;
/// Retained messages. A new topic beyond is delivered, and not retained.
pub const MQTT_RETAINED_MAX: usize = 256;
/// Bytes of the retained messages, with their topics.
pub const MQTT_RETAINED_BYTES_MAX: usize = 256 << 10;
/// Bytes that one client may leave unread: the largest packet fits.
pub const MQTT_OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Bytes that all clients together may leave unread.
pub const MQTT_OUTPUT_TOTAL_BYTES_MAX: usize = 2 << 20;
/// Bytes of incomplete packets of all clients together: eight of the largest.
pub const MQTT_INPUT_TOTAL_BYTES_MAX: usize = 2 << 20;
/// Messages of QoS 1 under way in one direction of a session (mosquitto's default).
pub const MQTT_UNACKNOWLEDGED_MAX: usize = 20;
/// Messages of QoS 2 of one session that were received and not released.
pub const MQTT_UNRELEASED_MAX: usize = 64;
/// Milliseconds from a connection to its CONNECT.
pub const MQTT_CONNECT_MS: u64 = 10_000;
/// Milliseconds from the first byte of a packet to its last: the largest one at 10 kB/s.
pub const MQTT_PACKET_MS: u64 = 30_000;
/// Milliseconds that a client may leave bytes unread and take none.
pub const MQTT_STALL_MS: u64 = 20_000;
/// Seconds of the client's keep-alive, as in EdgeCore.
pub const MQTT_KEEP_ALIVE_S: u16 = 30;
/// Milliseconds that a broker may take to answer a PINGREQ, as in EdgeCore.
pub const MQTT_PING_MS: u64 = 10_000;
/// Milliseconds for a dial: name, TCP, TLS and CONNACK.
pub const MQTT_DIAL_MS: u64 = 15_000;
/// Milliseconds before the first dial after a loss; doubles with each.
pub const MQTT_BACKOFF_MIN_MS: u64 = 1_000;
/// Milliseconds between dials at the most, without the jitter of half of it.
pub const MQTT_BACKOFF_MAX_MS: u64 = 30_000;
/// Publications of the agent that wait for another broker; of more, the oldest is dropped.
pub const MQTT_QUEUE_MAX: usize = 256;
/// Bytes of these publications. A single one may be larger.
pub const MQTT_QUEUE_BYTES_MAX: usize = 256 << 10;
/// Bytes that are read from one connection in one turn.
pub const MQTT_TURN_BYTES: usize = 32 << 10;
