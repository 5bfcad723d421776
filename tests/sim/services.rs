//! Services of the manifest folder, and the table that the agent gives out for them.
//!
//! The draws are a separate random sequence: worlds without Services do not change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use edged::agent::{Agent, Config};
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::Object;
use edged::model::pod::{Metadata, Pod};
use edged::model::service::{Service, ServiceEntry, ServicePort, ServiceSpec};
use edged::model::settings::ServiceSettings;
use edged::model::status::ConditionKind;

use crate::chance::Chance;
use crate::rule::judge;
use crate::world::World;

/// The share of worlds with Services, percent.
const SHARE_PCT: u64 = 25;
/// Services that users make and remove.
const COUNT: u64 = 6;
/// The label by which they choose pods, and its values.
const LABEL: &str = "part";
const PARTS: u64 = 3;

/// Addresses by namespace and name.
type Endpoints = BTreeMap<(String, String), BTreeSet<Ipv4Addr>>;

pub struct ServiceSim {
    chance: Chance,
    /// Their numbers.
    present: BTreeSet<u64>,
    /// What is served: the process that does so outlives the agent.
    table: Vec<Arc<ServiceEntry>>,
    /// The agent has given one out in this life.
    is_given: bool,
}

/// Draws whether this world has Services.
pub fn draw(seed: u64, config: &mut Config) -> Option<ServiceSim> {
    let mut chance = Chance::new(seed ^ 0x7365_7276_6963_6521);
    if !chance.percent(SHARE_PCT) {
        return None;
    }
    config.services = Some(ServiceSettings::default());
    let present = (0..COUNT).filter(|_| chance.percent(50)).collect();
    Some(ServiceSim { chance, present, table: Vec::new(), is_given: false })
}

impl ServiceSim {
    /// A user makes one or removes it.
    pub fn change(&mut self) {
        if self.chance.percent(20) {
            let number = self.chance.below(COUNT);
            if !self.present.remove(&number) {
                self.present.insert(number);
            }
        }
    }

    /// One more file of the folder.
    pub fn add_to(&self, folder: &mut Folder) {
        let objects = self.services().map(|it| Arc::new(Object::Service(Box::new(it))));
        folder.files.push(File {
            path: "/etc/kubeedge/manifests/services.yaml".into(),
            changed_ns: 0,
            content: Ok(Content { pods: Vec::new(), objects: objects.collect() }),
        });
    }

    fn services(&self) -> impl Iterator<Item = Service> {
        self.present.iter().map(|number| {
            let metadata = Metadata {
                name: format!("svc{number}"),
                namespace: if number % 4 == 3 { "site" } else { "default" }.to_owned(),
                ..Metadata::default()
            };
            let spec = ServiceSpec {
                cluster_ip: if number % 3 == 2 { "None" } else { "" }.to_owned(),
                ports: vec![ServicePort { port: 80, ..ServicePort::default() }],
                selector: [(LABEL.to_owned(), (number % PARTS).to_string())].into(),
                publish_not_ready_addresses: *number == COUNT - 1,
                ..ServiceSpec::default()
            };
            Service { metadata, spec }
        })
    }

    pub fn begin_life(&mut self) {
        self.is_given = false;
    }

    /// The agent gives out a table.
    pub fn given(&mut self, table: Vec<Arc<ServiceEntry>>) {
        let is_new = !self.is_given || table != self.table;
        judge!(is_new, "[services once] the same table is given out again: {table:?}");
        (self.table, self.is_given) = (table, true);
    }

    /// Why the table is not what Services and pods give.
    pub fn unsettled(&self, agent: &Agent) -> Option<String> {
        if !self.is_given {
            return Some("no table of Services was given out".to_owned());
        }
        let expected = self.expected(agent);
        let key = |it: &ServiceEntry| (it.namespace.to_string(), it.name.to_string());
        let ips = |it: &ServiceEntry| it.endpoints.iter().map(|endpoint| endpoint.ip).collect();
        let served: Endpoints = self.table.iter().map(|it| (key(it), ips(it))).collect();
        (served != expected).then(|| format!("served are {served:?}, expected {expected:?}"))
    }

    fn expected(&self, agent: &Agent) -> Endpoints {
        let of = |service: Service| {
            let spec = &service.spec;
            let ip = |pod: &Pod| {
                let is_there = !pod.status.phase.is_terminal()
                    && pod.metadata.deletion_timestamp.is_none()
                    && pod.metadata.namespace == service.metadata.namespace
                    && pod.metadata.labels.get(LABEL) == spec.selector.get(LABEL);
                let conditions = &pod.status.conditions;
                let is_ready =
                    conditions.iter().any(|it| it.kind == ConditionKind::Ready && it.status);
                let counts = is_there && (is_ready || spec.publish_not_ready_addresses);
                let mut ips = pod.status.pod_ips.iter().filter_map(|it| it.ip.parse().ok());
                ips.next().filter(|_| counts)
            };
            let Metadata { namespace, name, .. } = &service.metadata;
            let ips = agent.pods().filter_map(ip).collect();
            ((namespace.clone(), name.clone()), ips)
        };
        self.services().map(of).collect()
    }
}

impl World {
    pub(crate) fn services_unsettled(&self) -> Option<String> {
        self.services.as_ref()?.unsettled(&self.agent)
    }

    /// Whatever happened before: it is settled.
    pub(crate) fn judge_services(&self) {
        if self.services.is_some() {
            let why = self.services_unsettled();
            judge!(why.is_none(), "[services] in calm: {why:?}");
        }
    }
}
