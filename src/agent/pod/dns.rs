//! DNS of a pod: the content of its `/etc/resolv.conf` (spec section 3.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::Config;
use crate::model::cri::Dns;
use crate::model::pod::{DnsPolicy, Pod};

/// The limits of resolvers; the rest is left out, with an event.
const SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARS_MAX: usize = 2_048;
const SEARCH_PATH_CHARS_MAX: usize = 253;

/// The file that the runtime reads by itself.
const HOST_FILE: &str = "/etc/resolv.conf";

/// The DNS configuration for the runtime, and events for the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    /// `None`: the host's file, unchanged.
    pub dns: Option<Dns>,
    /// Events: reason and message.
    pub events: Vec<(&'static str, String)>,
}

/// Combines the DNS policy with the pod's own settings. `host` is the content of the host's file.
pub fn form(pod: &Pod, host: &Dns, config: &Config) -> DnsConfig {
    let spec = &pod.spec;
    let settings = &config.settings;
    let mut events = Vec::new();
    let wants_cluster = match spec.dns_policy.unwrap_or_default() {
        DnsPolicy::None | DnsPolicy::Default => false,
        DnsPolicy::ClusterFirst => !spec.host_network,
        DnsPolicy::ClusterFirstWithHostNet => true,
    };
    let clusters = wants_cluster && !settings.cluster_dns.is_empty();
    // A missing policy is not a request for the cluster's DNS.
    if let Some(policy) = spec.dns_policy.filter(|_| wants_cluster && !clusters) {
        let metadata = &pod.metadata;
        let message = format!(
            "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create \
             Pod using \"{policy:?}\" policy. Falling back to \"Default\" policy.",
            metadata.name, metadata.namespace, metadata.uid
        );
        events.push(("MissingClusterDNS", message));
    }
    let mut dns = if clusters {
        cluster(pod, host, config)
    } else if spec.dns_policy == Some(DnsPolicy::None) {
        Dns::default()
    } else if settings.resolv_conf.is_empty() {
        // As configured: nothing from the host.
        let (servers, searches) = (vec!["127.0.0.1".to_owned()], vec![".".to_owned()]);
        Dns { servers, searches, options: Vec::new() }
    } else {
        host.clone()
    };
    let own = &spec.dns_config;
    append(&mut dns.servers, &own.nameservers);
    append(&mut dns.searches, &own.searches);
    let own_options = own.options.iter().map(|option| match option.value.as_deref() {
        None | Some("") => option.name.clone(),
        Some(value) => format!("{}:{value}", option.name),
    });
    set_options(&mut dns.options, own_options);
    let whole = dns.clone();
    trim(&mut dns, &mut events);
    let is_hosts = !clusters && whole == *host && dns == whole && settings.resolv_conf == HOST_FILE;
    let is_hosts = is_hosts && spec.dns_policy != Some(DnsPolicy::None);
    DnsConfig { dns: (!is_hosts).then_some(dns), events }
}

fn cluster(pod: &Pod, host: &Dns, config: &Config) -> Dns {
    let domain = &config.settings.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        let namespace = &pod.metadata.namespace;
        searches =
            vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    }
    append(&mut searches, &host.searches);
    Dns { servers: config.settings.cluster_dns.clone(), searches, options: vec!["ndots:5".into()] }
}

fn append(to: &mut Vec<String>, more: &[String]) {
    let mut known: BTreeSet<String> = to.iter().cloned().collect();
    to.extend(more.iter().filter(|one| known.insert((*one).clone())).cloned());
}

/// Each option replaces the option of the same name.
fn set_options(options: &mut Vec<String>, own: impl Iterator<Item = String>) {
    let name = |option: &str| option.split(':').next().unwrap_or(option).to_owned();
    let host = options.iter().enumerate().rev();
    let mut places: BTreeMap<String, usize> = host.map(|(at, old)| (name(old), at)).collect();
    for text in own {
        let at = *places.entry(name(&text)).or_insert(options.len());
        match options.get_mut(at) {
            Some(old) => *old = text,
            None => options.push(text),
        }
    }
}

fn trim(dns: &mut Dns, events: &mut Vec<(&'static str, String)>) {
    if dns.servers.len() > SERVERS_MAX {
        dns.servers.truncate(SERVERS_MAX);
        let message = format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
             nameserver line is: {}",
            dns.servers.join(" ")
        );
        events.push(("DNSConfigForming", message));
    }
    let before = dns.searches.len();
    dns.searches.retain(|path| path.len() <= SEARCH_PATH_CHARS_MAX);
    dns.searches.truncate(SEARCHES_MAX);
    while dns.searches.join(" ").len() > SEARCH_CHARS_MAX {
        dns.searches.pop();
    }
    if dns.searches.len() < before {
        let message = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied \
             search line is: {}",
            dns.searches.join(" ")
        );
        events.push(("DNSConfigForming", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_replaces_the_first_of_its_name_in_its_place() {
        let mut options = texts(&["a", "ndots:5", "ndots:7"]);
        set_options(&mut options, texts(&["ndots:2", "b:1", "b:2", "a:3"]).into_iter());
        assert_eq!(options, ["a:3", "ndots:2", "ndots:7", "b:2"]);
        let mut searches = texts(&["a", "a"]);
        append(&mut searches, &texts(&["b", "a", "b", "c"]));
        assert_eq!(searches, ["a", "a", "b", "c"]);
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|&text| text.to_owned()).collect()
    }

    fn dns_of(spec: &str, cluster_dns: &[&str]) -> DnsConfig {
        let host = Dns {
            servers: texts(&["192.0.2.53"]),
            searches: texts(&["lan"]),
            options: texts(&["rotate"]),
        };
        dns_of_host(&host, spec, |config| config.settings.cluster_dns = texts(cluster_dns))
    }

    fn dns_of_host(host: &Dns, spec: &str, change: impl FnOnce(&mut Config)) -> DnsConfig {
        let json = format!(r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{{{spec}}}}}"#);
        let pod = serde_json::from_str(&json).expect("a pod");
        let mut config = Config::default();
        config.settings.resolv_conf = HOST_FILE.to_owned();
        config.settings.cluster_domain = "cluster.local".to_owned();
        change(&mut config);
        form(&pod, host, &config)
    }

    /// Search paths of these lengths.
    fn paths(lengths: impl IntoIterator<Item = usize>) -> Vec<String> {
        let each = lengths.into_iter().enumerate();
        each.map(|(at, length)| format!("{at:x>length$}")).collect()
    }

    #[test]
    fn the_runtime_reads_the_host_file_only_if_nothing_differs() {
        let host = Dns { servers: texts(&["192.0.2.53"]), ..Dns::default() };
        assert_eq!(dns_of_host(&host, "", |_| ()).dns, None);
        let elsewhere =
            dns_of_host(&host, "", |config| "/run/r".clone_into(&mut config.settings.resolv_conf));
        assert_eq!(elsewhere.dns, Some(host));
        // A file with more name servers than resolvers support.
        let long = Dns { servers: texts(&["a", "b", "c", "d"]), ..Dns::default() };
        let three = Dns { servers: texts(&["a", "b", "c"]), ..Dns::default() };
        assert_eq!(dns_of_host(&long, "", |_| ()).dns, Some(three));
        // The pod requests an empty configuration, whatever the file contains.
        let nothing = dns_of_host(&Dns::default(), r#""dnsPolicy":"None""#, |_| ());
        assert_eq!(nothing.dns, Some(Dns::default()));
    }

    #[test]
    fn without_a_host_file_a_pod_uses_localhost() {
        let host = Dns { servers: texts(&["192.0.2.53"]), ..Dns::default() };
        let dns = dns_of_host(&host, "", |config| config.settings.resolv_conf.clear()).dns;
        let (servers, searches) = (texts(&["127.0.0.1"]), texts(&["."]));
        assert_eq!(dns, Some(Dns { servers, searches, options: Vec::new() }));
    }

    #[test]
    fn a_cluster_without_a_domain_adds_no_search_path() {
        let host = Dns { searches: texts(&["lan"]), ..Dns::default() };
        let dns = dns_of_host(&host, "", |config| {
            config.settings.cluster_dns = texts(&["10.96.0.10"]);
            config.settings.cluster_domain.clear();
        });
        assert_eq!(dns.dns.expect("the cluster's").searches, ["lan"]);
    }

    #[test]
    fn search_paths_have_bounds_each_and_together() {
        let host = |searches| Dns { searches, ..Dns::default() };
        let most = SEARCH_PATH_CHARS_MAX;
        let config_of = dns_of_host(&host(paths([most, most + 1, 3])), "", |_| ());
        let dns = config_of.dns.expect("one is left out");
        assert_eq!(dns.searches.iter().map(String::len).collect::<Vec<_>>(), [most, 3]);
        assert_eq!(config_of.events[0].0, "DNSConfigForming");
        // Eight of 253 with their blanks are 2,031 characters: a ninth of 16 just fits.
        let fits = |last: usize| {
            let searches = paths([most; 8].into_iter().chain([last]));
            dns_of_host(&host(searches), "", |_| ()).dns.map(|dns| dns.searches.len())
        };
        assert_eq!((fits(16), fits(17)), (None, Some(8)));
    }

    #[test]
    fn the_policy_selects_the_name_servers() {
        let cluster = Dns {
            servers: texts(&["10.96.0.10"]),
            searches: texts(&["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"]),
            options: texts(&["ndots:5"]),
        };
        for (spec, servers, want) in [
            ("", &[][..], None),
            (r#""dnsPolicy":"Default""#, &["10.96.0.10"], None),
            (r#""dnsPolicy":"ClusterFirst""#, &["10.96.0.10"], Some(cluster.clone())),
            ("", &["10.96.0.10"], Some(cluster.clone())),
            (r#""hostNetwork":true"#, &["10.96.0.10"], None),
            (
                r#""hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet""#,
                &["10.96.0.10"],
                Some(cluster),
            ),
            (r#""dnsPolicy":"None""#, &[], Some(Dns::default())),
        ] {
            assert_eq!(dns_of(spec, servers).dns, want, "{spec}");
        }
        let missing = dns_of(r#""dnsPolicy":"ClusterFirst""#, &[]);
        assert_eq!(missing.dns, None);
        assert_eq!(missing.events[0].0, "MissingClusterDNS");
        assert!(
            missing.events[0].1.contains("\"ClusterFirst\" policy. Falling back"),
            "{missing:?}"
        );
        assert_eq!(dns_of("", &[]).events, [], "nobody asked for it");
        assert_eq!(dns_of(r#""dnsPolicy":"Default""#, &[]).events, []);
        assert_eq!(dns_of(r#""dnsPolicy":"ClusterFirst""#, &["10.96.0.10"]).events, []);
    }

    #[test]
    fn dns_config_is_added_and_its_options_win() {
        let own = r#""dnsConfig":{"nameservers":["192.0.2.53","1.1.1.1"],"searches":["a"],
            "options":[{"name":"ndots","value":"2"},{"name":"rotate"},{"name":"edns0"}]}"#;
        let dns = dns_of(own, &[]).dns.expect("its own");
        assert_eq!(dns.servers, ["192.0.2.53", "1.1.1.1"]);
        assert_eq!(dns.searches, ["lan", "a"]);
        assert_eq!(dns.options, ["rotate", "ndots:2", "edns0"]);
        let dns = dns_of(own, &["10.96.0.10"]).dns.expect("its own");
        assert_eq!(dns.options, ["ndots:2", "rotate", "edns0"]);
        let dns = dns_of(&format!(r#"{own},"dnsPolicy":"None""#), &[]).dns.expect("its own");
        assert_eq!((&*dns.servers[0], dns.searches.len()), ("192.0.2.53", 1));
    }

    #[test]
    fn entries_beyond_the_limits_are_omitted_with_an_event() {
        let own = r#""dnsConfig":{"nameservers":["1.1.1.1","1.1.1.2"]}"#;
        assert_eq!(dns_of(own, &[]).events, [], "these are three with the host's");
        let own = r#""dnsConfig":{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3"]}"#;
        let config_of = dns_of(own, &[]);
        assert_eq!(config_of.dns.as_ref().expect("its own").servers.len(), 3);
        assert!(config_of.events[0].1.ends_with("is: 192.0.2.53 1.1.1.1 1.1.1.2"), "{config_of:?}");
        let searches: Vec<String> = (0..40).map(|n| format!("\"d{n}\"")).collect();
        let config_of =
            dns_of(&format!(r#""dnsConfig":{{"searches":[{}]}}"#, searches.join(",")), &[]);
        assert_eq!(config_of.dns.as_ref().expect("its own").searches.len(), 32);
        assert_eq!(config_of.events[0].0, "DNSConfigForming");
    }
}
