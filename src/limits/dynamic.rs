//! Limits of the dynamic controller, the cloud side of nodes' `MetaServers`.

/// Entries of an allow-list of resources: each is compared with every request.
pub const ACCESS_RULES_MAX: usize = 128;
/// Watches of one node: an agent has one for each resource, namespace and selector, whatever the
/// number of its clients; EdgeCore has one for each client.
pub const LISTENERS_OF_NODE_MAX: usize = 64;
/// Resources that are watched for nodes at once: a connection to the API server each.
pub const DYNAMIC_RESOURCES_MAX: usize = 64;
/// Objects of one resource in memory: those of a cluster of some thousand Services.
pub const DYNAMIC_OBJECTS_MAX: usize = 20_000;
/// The same with those that do not exist any more, as long as nodes have not acknowledged that: as
/// many again.
pub const DYNAMIC_ENTRIES_MAX: usize = 2 * DYNAMIC_OBJECTS_MAX;
/// Bytes of the objects of one resource.
pub const DYNAMIC_BYTES_MAX: usize = 64 << 20;
/// Bytes of the objects of all resources: half of the memory that config/edgecontroller.yaml gives.
pub const DYNAMIC_ALL_BYTES_MAX: usize = 512 << 20;
/// Milliseconds that a resource is watched without a node that listens: a client that watches again
/// does so at once.
pub const DYNAMIC_UNUSED_MS: u64 = 300_000;
/// Milliseconds that a resource without listeners is known as refused before it is tried again:
/// then a person has installed or granted it.
pub const DYNAMIC_REFUSED_MS: u64 = 10_000;
/// Milliseconds before a refused resource with listeners, or one that is too large, is listed
/// again.
pub const DYNAMIC_RELIST_MS: u64 = 60_000;
/// Milliseconds after which a watch is answered although its resource is not listed: an edge waits
/// 10 s.
pub const DYNAMIC_ANSWER_MS: u64 = 8_000;
/// Milliseconds that endpoints wait for the Services that limit them to node groups: half of the
/// time in which a list of them is to be answered.
pub const DYNAMIC_SERVICES_MS: u64 = 5_000;
/// Milliseconds that the watches of a node are kept without a session: EdgeCore says its watches
/// again when one of them ends, which is after 10 min at the most.
pub const LISTENER_GRACE_MS: u64 = 900_000;
/// Events to one node that wait for their acknowledgements: beyond them nothing is sent. One at a
/// time would take a round trip for each object of a first list.
pub const DYNAMIC_EVENTS_MAX: usize = 16;
/// Objects that are compared for one node in one step.
pub const DYNAMIC_COMPARED_MAX: usize = 256;
/// Requests of one node's MetaServer that wait for the API server; beyond them the next is refused.
pub const APPLICATIONS_MAX: usize = 64;
/// Bytes of these requests: one is 3 MiB at the most.
pub const APPLICATIONS_BYTES_MAX: usize = 8 << 20;
/// Calls for one node's MetaServer at once, beside those for its pods.
pub const APPLICATION_CALLS_MAX: usize = 4;
/// Calls for all nodes' MetaServers at once: a quarter of all calls.
pub const APPLICATION_CALLS_ALL_MAX: usize = 64;
/// Bytes of an answer of the API server to such a call.
pub const APPLICATION_RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Bytes of an answer to a node, without managed fields and before base64: some thousand Services.
/// A client that wants more asks for pages.
pub const APPLICATION_ANSWER_BYTES_MAX: usize = 2 << 20;
