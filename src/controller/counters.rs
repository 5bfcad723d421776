//! The controller's metrics, for `/metrics`.

use crate::model::metrics::Histogram;

/// Counts since the start, and gauges as of the last step.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Open sessions.
    pub nodes_connected: usize,
    /// Messages to nodes.
    pub messages_down: u64,
    /// Bytes of their contents.
    pub bytes_down: u64,
    /// Messages from nodes.
    pub messages_up: u64,
    /// Bytes of their contents.
    pub bytes_up: u64,
    /// From the first sending to the acknowledgement.
    pub ack_latency: Histogram,
    /// Messages sent again because no acknowledgement came.
    pub resends: u64,
    /// Objects that wait for their node: not sent, or not acknowledged.
    pub queued: usize,
    /// Requests of nodes that wait for the API server.
    pub calls: usize,
    /// Refused sessions.
    pub sessions_refused: u64,
    /// Reports of nodes about devices.
    pub device_reports: u64,
    /// Those of them about devices that the node does not have.
    pub device_reports_ignored: u64,
    /// Statuses of devices that were written.
    pub device_writes: u64,
    /// Jobs for nodes that are not over.
    pub jobs_open: usize,
    /// Requests to nodes to work on a job.
    pub job_requests: u64,
    /// Reports of nodes about jobs.
    pub job_reports: u64,
    /// Those of them about jobs that the node does not have.
    pub job_reports_ignored: u64,
    /// Statuses of jobs that were written.
    pub job_writes: u64,
    /// Requests of nodes' `MetaServers`.
    pub applications: u64,
    /// Those of them that were rejected, by us or by the API server.
    pub applications_rejected: u64,
    /// Resources that are watched for nodes.
    pub dynamic_resources: usize,
    /// Watches of nodes.
    pub dynamic_listeners: usize,
    /// Events of these watches that were sent to nodes.
    pub dynamic_events: u64,
    /// Service accounts of nodes' pods that have too many rules.
    pub policy_refused: usize,
    /// How often the rules of a service account were put together.
    pub policy_computed: u64,
    /// Rules for custom messages.
    pub rules: usize,
    /// Requests of clients that wait for nodes, and uploads of nodes that wait for REST endpoints.
    pub router_waiting: usize,
    /// Requests of clients for nodes.
    pub router_requests: u64,
    /// Those of them that were refused or not answered, or whose answer was an error.
    pub router_requests_failed: u64,
    /// Messages of nodes for REST endpoints.
    pub router_uploads: u64,
    /// Those of them that were dropped, or not accepted by a REST endpoint.
    pub router_uploads_failed: u64,
    /// Statuses of rules that were written.
    pub router_writes: u64,
    /// Refused messages: malformed, too large, or about objects that the node may not access.
    pub messages_refused: u64,
    /// Messages to modules that do not exist here, to the cloud side of `MetaServer` where it is
    /// off, and to the router without a rule.
    pub messages_unserved: u64,
    /// Signed certificates.
    pub certificates: u64,
    /// Lists that were begun.
    pub lists: u64,
    /// Whether this replica is the leader.
    pub leads: bool,
    /// Deleted records of deleted nodes.
    pub records_removed: u64,
}
