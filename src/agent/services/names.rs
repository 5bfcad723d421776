//! Answers about the names of Services (the specification of DNS-based service discovery of
//! Kubernetes, 1.1.0; edgemesh.md, section 6).
//!
//! | question | answer |
//! |---|---|
//! | A `SVC.NS.svc.ZONE` | its ClusterIP, with endpoints or without; headless: one A per endpoint |
//! | A `HOST.SVC.NS.svc.ZONE` | that endpoint, HOST is its host name or `1-2-3-4` |
//! | SRV `_PORT._PROTO.SVC.NS.svc.ZONE` | port and target; headless: one per endpoint |
//! | of a Service of type ExternalName | a CNAME, and what that name resolves to |
//! | A `1-2-3-4.NS.pod.ZONE` | 1.2.3.4, unchecked |
//! | PTR of a ClusterIP, or of an endpoint of a headless Service | its name |
//! | another type about a name that exists | no record, with the SOA |
//! | another name in ZONE | NXDOMAIN, with the SOA |
//! | all else | forwarded |

use core::net::Ipv4Addr;
use std::sync::Arc;

use crate::limits::DNS_TTL_S;
use crate::model::dns::{Answer, Data, Question, Rcode, Record, Resolution, kind};
use crate::model::service::{Endpoint, EntryKind, ServiceEntry};

/// The zone with the table behind it.
#[derive(Clone, Copy, Debug)]
pub struct Zone<'a> {
    /// `cluster.local`; empty: there is none.
    pub domain: &'a str,
    /// By namespace and name.
    pub table: &'a [Arc<ServiceEntry>],
    /// Grows with each question: where the list of a headless Service begins.
    pub turn: usize,
}

/// Aliases of aliases that are followed in the zone.
const ALIASES_MAX: usize = 8;

/// Records, or that the name has none of this type, or that it does not exist.
type Found = Option<Vec<Data>>;

impl Zone<'_> {
    pub fn resolve(&self, question: &Question) -> Resolution {
        let mut answer = Answer { authoritative: true, ..Answer::default() };
        let mut question = question.clone();
        for _ in 0..ALIASES_MAX {
            let Some(labels) = self.labels(&question.name) else {
                return self.outside(&question, answer);
            };
            if let Some(target) = self.alias(&labels) {
                let data = Data::Cname(target.clone());
                answer.answers.push(record(&question.name, data));
                if question.kind == kind::CNAME {
                    return Resolution::Answer(answer);
                }
                question.name = target;
                continue;
            }
            match self.find(&labels, question.kind, &mut answer) {
                None => answer.rcode = Rcode::NxDomain,
                Some(all) => {
                    let of_name = all.into_iter().map(|data| record(&question.name, data));
                    answer.answers.extend(of_name);
                }
            }
            if answer.rcode == Rcode::NxDomain || answer.answers.is_empty() {
                answer.authority.push(self.soa());
            }
            return Resolution::Answer(answer);
        }
        Resolution::Answer(Answer { rcode: Rcode::ServFail, ..Answer::default() })
    }

    /// The labels of a name in the zone, without those of the zone; `None`: it is elsewhere.
    fn labels<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        if self.domain.is_empty() {
            return None;
        }
        let rest = name.strip_suffix(self.domain)?;
        if rest.is_empty() {
            return Some(Vec::new());
        }
        Some(rest.strip_suffix('.')?.split('.').collect())
    }

    fn outside(&self, question: &Question, mut answer: Answer) -> Resolution {
        if let Some(alias) = answer.answers.pop() {
            return Resolution::Alias(alias, question.name.clone());
        }
        let reverse = question.name.strip_suffix(".in-addr.arpa").and_then(address);
        let Some(found) = reverse.and_then(|ip| self.name_of(ip)) else {
            return Resolution::Forward;
        };
        if matches!(question.kind, kind::PTR | kind::ANY) {
            answer.answers.push(record(&question.name, Data::Ptr(found)));
        } else {
            answer.authority.push(self.soa());
        }
        Resolution::Answer(answer)
    }

    /// What the labels stand for.
    fn alias(&self, labels: &[&str]) -> Option<Box<str>> {
        let [name, namespace, "svc"] = labels else { return None };
        match &self.service(namespace, name)?.kind {
            EntryKind::External(target) => Some(target.clone()),
            EntryKind::Cluster(_) | EntryKind::Headless => None,
        }
    }

    fn find(&self, labels: &[&str], kind: u16, answer: &mut Answer) -> Found {
        match labels {
            [] if kind == kind::SOA => Some(vec![self.soa().data]),
            [] | ["svc" | "pod"] => Some(Vec::new()),
            [namespace, "svc" | "pod"] => {
                self.table.iter().any(|it| *it.namespace == **namespace).then(Vec::new)
            }
            [name, namespace, "svc"] => {
                let service = self.service(namespace, name)?;
                Some(self.of_service(service, None, kind, answer))
            }
            [port, protocol, name, namespace, "svc"] => {
                let port = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
                let service = self.service(namespace, name)?;
                let is_it = |at: &usize| {
                    let it = &service.ports[*at];
                    *it.name == *port.0 && it.protocol.name() == port.1
                };
                let at = (0..service.ports.len()).find(is_it)?;
                Some(self.of_service(service, Some(at), kind, answer))
            }
            [host, name, namespace, "svc"] => {
                let service = self.service(namespace, name)?;
                let mut hosts = service.endpoints.iter().filter(|it| *host_of(it) == **host);
                let first = a(hosts.next()?.ip, kind);
                Some(first.into_iter().chain(hosts.flat_map(|it| a(it.ip, kind))).collect())
            }
            [ip, _, "pod"] => Some(a(dashed(ip)?, kind)),
            _ => None,
        }
    }

    fn of_service(
        &self,
        service: &ServiceEntry,
        port: Option<usize>,
        kind: u16,
        answer: &mut Answer,
    ) -> Vec<Data> {
        if kind == kind::SRV {
            return self.srv(service, port, answer);
        }
        match &service.kind {
            // A name of a port has no address.
            _ if port.is_some() => Vec::new(),
            EntryKind::Cluster(ip) => a(*ip, kind),
            EntryKind::Headless => self.turned(service).flat_map(|it| a(it.ip, kind)).collect(),
            EntryKind::External(_) => Vec::new(),
        }
    }

    /// The targets of a port, or of all of them; their addresses are additional records.
    fn srv(&self, service: &ServiceEntry, port: Option<usize>, answer: &mut Answer) -> Vec<Data> {
        let base = format!("{}.{}.svc.{}", service.name, service.namespace, self.domain);
        let ports = (0..service.ports.len()).filter(|at| port.is_none_or(|it| it == *at));
        let mut found = Vec::new();
        match &service.kind {
            EntryKind::Cluster(ip) => {
                let target: Box<str> = base.into();
                answer.additional.push(record(&target, Data::A(*ip)));
                found.extend(
                    ports.map(|at| Data::Srv {
                        port: service.ports[at].port,
                        target: target.clone(),
                    }),
                );
            }
            EntryKind::Headless => {
                for endpoint in self.turned(service) {
                    let target: Box<str> = format!("{}.{base}", host_of(endpoint)).into();
                    let numbers = ports.clone().filter_map(|at| endpoint.ports.get(at).copied());
                    let numbers = numbers.filter(|it| *it > 0);
                    found.extend(numbers.map(|port| Data::Srv { port, target: target.clone() }));
                    answer.additional.push(record(&target, Data::A(endpoint.ip)));
                }
            }
            EntryKind::External(_) => {}
        }
        found
    }

    /// The endpoints, beginning with another one each time.
    fn turned<'s>(&self, service: &'s ServiceEntry) -> impl Iterator<Item = &'s Endpoint> {
        let all = &service.endpoints;
        let begin = self.turn % all.len().max(1);
        all[begin..].iter().chain(&all[..begin])
    }

    fn service(&self, namespace: &str, name: &str) -> Option<&ServiceEntry> {
        let order = |it: &Arc<ServiceEntry>| (&*it.namespace, &*it.name).cmp(&(namespace, name));
        self.table.binary_search_by(order).ok().map(|at| &*self.table[at])
    }

    /// The name of an address.
    fn name_of(&self, ip: Ipv4Addr) -> Option<Box<str>> {
        self.table.iter().find_map(|service| {
            let base = || format!("{}.{}.svc.{}", service.name, service.namespace, self.domain);
            match &service.kind {
                EntryKind::Cluster(own) => (*own == ip).then(|| base().into()),
                EntryKind::Headless => {
                    let found = service.endpoints.iter().find(|it| it.ip == ip)?;
                    Some(format!("{}.{}", host_of(found), base()).into())
                }
                EntryKind::External(_) => None,
            }
        })
    }

    fn soa(&self) -> Record {
        record(self.domain, Data::Soa { minimum_s: DNS_TTL_S })
    }
}

fn record(name: &str, data: Data) -> Record {
    Record { name: name.into(), ttl_s: DNS_TTL_S, data }
}

/// The record for a question of this type.
fn a(ip: Ipv4Addr, kind: u16) -> Vec<Data> {
    let wants = matches!(kind, kind::A | kind::ANY);
    if wants { vec![Data::A(ip)] } else { Vec::new() }
}

/// Its name below the Service's.
fn host_of(endpoint: &Endpoint) -> Box<str> {
    if endpoint.hostname.is_empty() {
        endpoint.ip.to_string().replace('.', "-").into()
    } else {
        endpoint.hostname.clone()
    }
}

/// `1-2-3-4`
fn dashed(label: &str) -> Option<Ipv4Addr> {
    if label.contains('.') { None } else { label.replace('-', ".").parse().ok() }
}

/// `4.3.2.1`, as before `.in-addr.arpa`.
fn address(reverse: &str) -> Option<Ipv4Addr> {
    let ip: Ipv4Addr = reverse.parse().ok()?;
    let [a, b, c, d] = ip.octets();
    Some(Ipv4Addr::new(d, c, b, a))
}
