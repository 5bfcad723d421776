//! What `edgecontroller status` prints: what is watched for nodes' `MetaServers`, what service
//! accounts may do there, the rules for custom messages, and the jobs that are under way. As JSON
//! it is the answer to `GET /status`.

use serde::{Deserialize, Serialize};

use super::Controller;

/// The state of a controller, as of its last step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// Whether nodes may connect.
    pub is_ready: bool,
    /// Whether this replica is the leader.
    pub leads: bool,
    /// Nodes with a session.
    pub nodes: usize,
    /// Objects that wait for their nodes.
    pub queued: usize,
    /// Calls of the API server that are not answered yet.
    pub calls: usize,
    /// What is watched for nodes, at most [`crate::limits::DYNAMIC_RESOURCES_MAX`]; `None`: nodes
    /// may request nothing (`--metaserver-reads off`).
    pub resources: Option<Vec<ResourceOverview>>,
    /// What service accounts may do on nodes; `None`: nodes get no rules of them
    /// (`--access-rules off`).
    pub policy: Option<PolicyOverview>,
    /// At most [`crate::limits::ROUTER_RULES_MAX`].
    pub rules: Vec<RuleOverview>,
    /// Jobs for nodes that are not over, at most [`crate::limits::CONTROLLER_JOBS_MAX`].
    pub jobs: Vec<JobOverview>,
}

/// A resource of the API server that is watched for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceOverview {
    /// `RESOURCE`, or `RESOURCE.GROUP`.
    pub name: String,
    /// `listing`, `watching`, or `waiting` for the next list or watch.
    pub state: String,
    pub objects: usize,
    /// Bytes of these objects.
    pub bytes: usize,
    /// Nodes that listen.
    pub nodes: usize,
    /// Their watches.
    pub watches: usize,
    /// Why the API server refuses it; empty: it does not.
    pub trouble: String,
}

/// What service accounts may do on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyOverview {
    /// Service accounts of which a node has or needs the rules.
    pub accounts: usize,
    /// Service accounts, roles and bindings of the API server.
    pub objects: usize,
    /// Bytes of these objects.
    pub bytes: usize,
    /// Why no rules are sent; empty: they are.
    pub trouble: String,
    /// Accounts with too many rules, and why: at most
    /// [`crate::limits::POLICY_REFUSED_SHOWN_MAX`].
    pub refused: Vec<String>,
}

/// A rule for custom messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleOverview {
    /// `NAMESPACE/NAME`
    pub name: String,
    /// Why it is not in force; empty: it is.
    pub trouble: String,
    /// `status.successMessages`, with those that are not written yet.
    pub delivered: u64,
    /// `status.failMessages`, likewise.
    pub failed: u64,
    /// The last failures, at most [`crate::limits::ROUTER_ERRORS_MAX`].
    pub errors: Vec<String>,
}

/// A job for nodes that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobOverview {
    /// `KIND/NAME`, in lower case.
    pub name: String,
    /// `InProgress` …; empty: nobody has looked at it yet.
    pub phase: String,
    pub nodes: usize,
    /// Nodes that work on it.
    pub working: usize,
    /// Nodes that it does not wait for any more; the failed ones are among them.
    pub done: usize,
    pub failed: usize,
}

impl Controller {
    /// The state as of now.
    pub fn overview(&self) -> Overview {
        let counters = self.counters();
        Overview {
            is_ready: self.is_ready(),
            leads: counters.leads,
            nodes: counters.nodes_connected,
            queued: counters.queued,
            calls: counters.calls,
            resources: self.config.access.is_some().then(|| self.resource_overviews()),
            policy: self.policy_overview(),
            rules: self.rule_overviews(),
            jobs: self.job_overviews(),
        }
    }
}
