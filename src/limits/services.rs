//! Limits of Services: their number, what the process that serves them holds, and its waits.

/// Services that a node serves, the first ones by namespace and name. Each takes an address, a
/// descriptor for each port and some 400 bytes; a site has dozens.
pub const SERVICES_MAX: usize = 1_024;
/// Ports of one Service; those beyond are left out.
pub const SERVICE_PORTS_MAX: usize = 32;
/// Endpoints of one Service on this node: all pods that a node runs. With all ports and the longest
/// names they fit into one message to the process that serves them.
pub const SERVICE_ENDPOINTS_MAX: usize = 128;
/// Bytes of one message to that process: as above, and less than what a socket takes at once.
pub const SERVICE_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Milliseconds after the agent's start for pods to be inspected before the table is given out
/// without them: the process that serves it still has the table of before.
pub const SERVICES_SETTLE_MS: u64 = 10_000;
/// Seconds that a client's connections go to one endpoint, by default (Kubernetes').
pub const AFFINITY_DEFAULT_S: u32 = 10_800;
/// Clients whose endpoint is remembered, for all Services together; the oldest is forgotten.
pub const AFFINITY_CLIENTS_MAX: usize = 4_096;

/// Services in one page of the cloud's list: with their managedFields and in base64 some 200 KiB.
pub const SERVICES_LIST_PAGE: u32 = 50;
/// Milliseconds before the cloud is asked for Services again where it did not answer: most clouds
/// that have no dynamic controller never will.
pub const SERVICES_LIST_RETRY_MS: u64 = 300_000;

/// Seconds that an answer about a Service may be kept: a pod that gets another address is found
/// again in that time.
pub const DNS_TTL_S: u32 = 5;
/// Bytes of a DNS message over UDP: what Ethernet takes without fragments, as most servers have it.
pub const DNS_UDP_BYTES_MAX: usize = 1_232;
/// Bytes of a DNS message over UDP to a client that says nothing of its size (RFC 1035).
pub const DNS_UDP_BYTES: usize = 512;
/// Bytes of a DNS message over TCP, either way: some 250 addresses.
pub const DNS_TCP_BYTES_MAX: usize = 4_096;
/// Compression pointers followed in one name: a name has 127 labels at the most.
pub const DNS_POINTERS_MAX: usize = 16;
/// Records of another server's answer that are read behind an alias.
pub const DNS_RECORDS_MAX: usize = 64;
/// Queries under way to other servers; those beyond are answered with SERVFAIL.
pub const DNS_FORWARDS_MAX: usize = 256;
/// Milliseconds for one try of a query to another server.
pub const DNS_FORWARD_MS: u64 = 2_000;
/// Tries of such a query, each with the next server.
pub const DNS_FORWARD_TRIES: usize = 2;
/// Milliseconds between two looks whether the host's `resolv.conf` has changed, while queries are
/// forwarded.
pub const DNS_SERVERS_MS: u64 = 5_000;
/// TCP connections of DNS clients.
pub const DNS_CLIENTS_MAX: usize = 64;
/// Milliseconds without a query after which such a connection is closed.
pub const DNS_CLIENT_IDLE_MS: u64 = 10_000;

/// TCP connections through Services at once: each takes two descriptors, and two pipes of 64 KiB
/// each in the kernel while bytes wait in them.
pub const SERVICE_CONNECTIONS_MAX: usize = 512;
/// Of these, those of one Service: half, so that one does not take all.
pub const SERVICE_CONNECTIONS_EACH_MAX: usize = 256;
/// Milliseconds for a connection to an endpoint; then the next one is tried.
pub const SERVICE_DIAL_MS: u64 = 3_000;
/// Endpoints that are tried for one connection (EdgeMesh's).
pub const SERVICE_DIALS_MAX: usize = 4;
/// Bytes that one call moves from socket to socket: what a pipe of the kernel holds.
pub const SERVICE_SPLICE_BYTES: usize = 64 << 10;
/// Moves for one connection in one turn, so that the others get their turn.
pub const SERVICE_TURN_MOVES: usize = 16;
/// Pipes that are kept for the next bytes.
pub const SERVICE_PIPES_KEPT: usize = 16;
/// Ports of Services that the kernel leads to their endpoint by itself; those beyond pass through
/// the process that serves them. Some 100 kB of the kernel's memory.
pub const SERVICE_ROWS_MAX: usize = 1_024;
/// Bytes of locked memory for them, as kernels before 5.11 count: twice what they need.
pub const SERVICE_ROWS_LOCKED_BYTES: u64 = 1 << 20;
/// UDP clients at once; the one that was silent longest is forgotten.
pub const SERVICE_FLOWS_MAX: usize = 512;
/// Milliseconds without a datagram after which a UDP client is forgotten: as long as conntrack
/// keeps one.
pub const SERVICE_FLOW_IDLE_MS: u64 = 60_000;
/// Datagrams that are taken from one socket in one turn.
pub const SERVICE_TURN_DATAGRAMS: usize = 64;
/// Connections that are accepted on one port in one turn.
pub const SERVICE_TURN_ACCEPTS: usize = 32;
/// Milliseconds between two looks whether the link and its addresses are as they should be.
pub const SERVICE_LINK_MS: u64 = 10_000;
/// Milliseconds before what could not be opened is tried again: a process that leaves closes its
/// sockets in less.
pub const SERVICE_RETRY_MS: u64 = 1_000;
/// Milliseconds between two reports to the agent while something changes.
pub const SERVICE_REPORT_MS: u64 = 2_000;
/// Milliseconds that a process which another one has replaced keeps its last connections.
pub const SERVICE_LEAVE_MS: u64 = 3_600_000;
/// Milliseconds until a process that has ended is started again; each further one waits twice as
/// long, up to a minute.
pub const SERVICES_RESTART_MS: u64 = 250;
/// Milliseconds after its start in which that process opens its socket.
pub const SERVICES_CONNECT_MS: u64 = 50;
/// Lines about trouble that a report has.
pub const SERVICES_TROUBLE_MAX: usize = 16;
