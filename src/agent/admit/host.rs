//! Admission by the host's kernel: sysctls and AppArmor (spec section 1.2, rows 2 and 5).

use super::Refused;
use crate::agent::Config;
use crate::agent::pod::security::needs_apparmor;
use crate::model::names::dotted_sysctl;
use crate::model::pod::{Pod, PodSpec};

/// The namespace of a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Safe sysctls, which a pod may set without permission, and the first kernel in which they are
/// namespaced.
const SAFE: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// Why the pod's sysctls are forbidden here.
pub(super) fn forbidden_sysctl(pod: &Pod, config: &Config) -> Option<Refused> {
    let spec = &pod.spec;
    let sysctls = spec.security_context.sysctls.iter().map(|sysctl| dotted_sysctl(&sysctl.name));
    let why = sysctls.into_iter().find_map(|name| forbidden(&name, spec, config))?;
    Some(Refused { reason: "SysctlForbidden", message: format!("forbidden sysctl: {why}") })
}

fn forbidden(name: &str, spec: &PodSpec, config: &Config) -> Option<String> {
    let is_safe =
        |(safe, since): &(&str, (u32, u32))| *safe == name && config.machine.kernel >= *since;
    let is_allowed = |allowed: &String| {
        let allowed = dotted_sysctl(allowed);
        match allowed.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => allowed == name,
        }
    };
    let listed = SAFE.iter().any(is_safe) || config.settings.allowed_sysctls.iter().any(is_allowed);
    match namespace(name).filter(|_| listed) {
        None => Some(format!("\"{name}\" not allowlisted")),
        Some(Namespace::Ipc) if spec.host_ipc => {
            Some(format!("\"{name}\" not allowed with host ipc enabled"))
        }
        Some(Namespace::Net) if spec.host_network => {
            Some(format!("\"{name}\" not allowed with host net enabled"))
        }
        Some(_) => None,
    }
}

fn namespace(name: &str) -> Option<Namespace> {
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name == "kernel.sem" || ipc.iter().any(|prefix| name.starts_with(prefix)) {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

/// Why the pod's AppArmor profile cannot be enforced.
pub(super) fn without_apparmor(pod: &Pod, config: &Config) -> Option<Refused> {
    let lacks = !config.machine.apparmor && needs_apparmor(pod);
    lacks.then(|| Refused {
        reason: "AppArmor",
        message: "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kernel: (u32, u32), allowed: &[&str]) -> Config {
        let mut config = Config::default();
        config.machine.kernel = kernel;
        config.settings.allowed_sysctls = allowed.iter().map(|&name| name.to_owned()).collect();
        config
    }

    fn message(spec: &str, name: &str, config: &Config) -> Option<String> {
        let json = format!(
            r#"{{"spec":{{{spec} "securityContext":{{"sysctls":[{{"name":"{name}"}}]}}}}}}"#
        );
        let pod: Pod = serde_json::from_str(&json).expect("a pod");
        forbidden_sysctl(&pod, config).map(|refused| refused.message)
    }

    #[test]
    fn safe_sysctls_pass_and_others_need_leave() {
        let new = config((6, 1), &[]);
        for (spec, name, config, want) in [
            ("", "kernel.shm_rmid_forced", &new, None),
            ("", "kernel/shm_rmid_forced", &new, None),
            ("", "net.ipv4.tcp_rmem", &new, None),
            (
                "",
                "net.ipv4.tcp_rmem",
                &config((4, 14), &[]),
                Some("\"net.ipv4.tcp_rmem\" not allowlisted"),
            ),
            ("", "kernel.msgmax", &new, Some("\"kernel.msgmax\" not allowlisted")),
            ("", "kernel.msgmax", &config((6, 1), &["kernel.msg*"]), None),
            ("", "net.core.somaxconn", &config((6, 1), &["net.core.somaxconn"]), None),
            (
                "",
                "net.core.somaxconn",
                &config((6, 1), &["net.core.soma"]),
                Some("\"net.core.somaxconn\" not allowlisted"),
            ),
            ("", "vm.swappiness", &config((6, 1), &["vm.*"]), Some("\"vm.swappiness\" not allow")),
            (
                r#""hostNetwork":true,"#,
                "net.ipv4.tcp_syncookies",
                &new,
                Some("\"net.ipv4.tcp_syncookies\" not allowed with host net enabled"),
            ),
            (
                r#""hostIPC":true,"#,
                "kernel.shm_rmid_forced",
                &new,
                Some("\"kernel.shm_rmid_forced\" not allowed with host ipc enabled"),
            ),
            (r#""hostNetwork":true,"#, "kernel.shm_rmid_forced", &new, None),
        ] {
            let got = message(spec, name, config);
            let want = want.map(|want| format!("forbidden sysctl: {want}"));
            match (&got, &want) {
                (Some(got), Some(want)) => assert!(got.starts_with(want.as_str()), "{got}\n{want}"),
                _ => assert_eq!(got, want, "{spec} {name}"),
            }
        }
    }

    #[test]
    fn what_stands_first_parts_the_name_of_a_sysctl() {
        for (written, name) in [
            ("kernel.sem", "kernel.sem"),
            ("kernel/sem", "kernel.sem"),
            ("net/ipv4/conf/eth0.1/mtu", "net.ipv4.conf.eth0/1.mtu"),
            ("net.ipv4.conf.eth0/1.mtu", "net.ipv4.conf.eth0/1.mtu"),
            ("kernel", "kernel"),
        ] {
            assert_eq!(dotted_sysctl(written), name);
        }
    }

    #[test]
    fn a_profile_needs_a_kernel_that_enforces_it() {
        let mut config = config((6, 1), &[]);
        let refused = |context: &str, annotation: &str, config: &Config| {
            let json = format!(
                r#"{{"metadata":{{"annotations":{{{annotation}}}}},
                    "spec":{{"containers":[{{"name":"c","securityContext":{{{context}}}}}]}}}}"#
            );
            let pod: Pod = serde_json::from_str(&json).expect("a pod");
            without_apparmor(&pod, config).map(|refused| refused.reason)
        };
        let profile = r#""appArmorProfile":{"type":"RuntimeDefault"}"#;
        let old = r#""container.apparmor.security.beta.kubernetes.io/c":"localhost/p""#;
        assert_eq!(refused("", "", &config), None);
        assert_eq!(refused(r#""appArmorProfile":{"type":"Unconfined"}"#, "", &config), None);
        assert_eq!(refused(profile, "", &config), Some("AppArmor"));
        assert_eq!(refused("", old, &config), Some("AppArmor"));
        config.machine.apparmor = true;
        assert_eq!(refused(profile, "", &config), None);
        assert_eq!(refused("", old, &config), None);
    }
}
