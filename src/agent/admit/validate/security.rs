//! Kubernetes' validation of security contexts.

use std::collections::BTreeSet;

use crate::agent::admit::Findings;
use crate::model::names::{cut, dotted_sysctl};
use crate::model::pod::{Container, Pod, PodSpec, Profile, ProfileType, Sysctl};

const ID: &str = "must be between 0 and 2147483647, inclusive";
const SYSCTL: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

impl Findings {
    pub(super) fn pod_security(&mut self, pod: &Pod) {
        let PodSpec { host_pid, share_process_namespace, security_context, .. } = &*pod.spec;
        if *host_pid && *share_process_namespace {
            let why = "ShareProcessNamespace and HostPID cannot both be enabled";
            self.invalid("spec.shareProcessNamespace", true, why);
        }
        if pod.spec.has_users() {
            let spec = &pod.spec;
            for (name, is_host) in [
                ("hostNetwork", spec.host_network),
                ("hostPID", spec.host_pid),
                ("hostIPC", spec.host_ipc),
            ] {
                if is_host {
                    let path = format!("spec.{name}");
                    self.problem(&path, "Forbidden: when `hostUsers` is false");
                }
            }
        }
        let path = "spec.securityContext";
        self.id(&format!("{path}.runAsUser"), security_context.run_as_user);
        self.id(&format!("{path}.runAsGroup"), security_context.run_as_group);
        self.id(&format!("{path}.fsGroup"), security_context.fs_group);
        for (index, group) in security_context.supplemental_groups.iter().enumerate() {
            self.id(&format!("{path}.supplementalGroups[{index}]"), Some(*group));
        }
        let [seccomp, apparmor] =
            [&security_context.seccomp_profile, &security_context.app_armor_profile];
        self.profiles(path, seccomp.as_ref(), apparmor.as_ref());
        self.sysctls(&format!("{path}.sysctls"), &security_context.sysctls);
        for (key, value) in &pod.metadata.annotations {
            let is_apparmor = key.starts_with("container.apparmor.security.beta.kubernetes.io/");
            let known = ["", "unconfined", "runtime/default"].contains(&value.as_str())
                || value.strip_prefix("localhost/").is_some_and(|name| !name.is_empty());
            if is_apparmor && !known {
                let path = format!("metadata.annotations[{}]", cut(key));
                self.invalid(&path, cut(value), "invalid AppArmor profile name");
            }
        }
    }

    pub(super) fn container_security(&mut self, path: &str, container: &Container) {
        let context = &container.security_context;
        let path = format!("{path}.securityContext");
        self.id(&format!("{path}.runAsUser"), context.run_as_user);
        self.id(&format!("{path}.runAsGroup"), context.run_as_group);
        let [seccomp, apparmor] = [&context.seccomp_profile, &context.app_armor_profile];
        self.profiles(&path, seccomp.as_ref(), apparmor.as_ref());
        if context.allow_privilege_escalation == Some(false) {
            let cannot = "cannot set `allowPrivilegeEscalation` to false and";
            if context.privileged == Some(true) {
                self.problem(&path, &format!("Invalid value: {cannot} `privileged` to true"));
            }
            if context.capabilities.add.iter().any(|name| name == "CAP_SYS_ADMIN") {
                self.problem(
                    &path,
                    &format!("Invalid value: {cannot} `capabilities.Add` CAP_SYS_ADMIN"),
                );
            }
        }
    }

    fn id(&mut self, path: &str, id: Option<i64>) {
        if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            self.invalid(path, id, ID);
        }
    }

    fn profiles(&mut self, path: &str, seccomp: Option<&Profile>, apparmor: Option<&Profile>) {
        for (field, profile) in [("seccompProfile", seccomp), ("appArmorProfile", apparmor)] {
            let Some(profile) = profile else { continue };
            let path = format!("{path}.{field}.localhostProfile");
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            match (profile.r#type, name) {
                (ProfileType::Localhost, "") => {
                    self.problem(&path, "Required value: must be set when type is Localhost");
                }
                (ProfileType::Localhost, name) if field == "seccompProfile" => {
                    if name.starts_with('/') {
                        self.invalid(&path, cut(name), "must be a relative path");
                    } else if name.split('/').any(|part| part == "..") {
                        self.invalid(&path, cut(name), "must not contain '..'");
                    }
                }
                (ProfileType::Localhost, _) | (_, "") => {}
                (ProfileType::RuntimeDefault | ProfileType::Unconfined, name) => {
                    self.invalid(&path, cut(name), "can only be set when type is Localhost");
                }
            }
        }
    }

    fn sysctls(&mut self, path: &str, sysctls: &[Sysctl]) {
        let mut names = BTreeSet::new();
        for (index, sysctl) in sysctls.iter().enumerate() {
            let path = format!("{path}[{index}].name");
            if sysctl.name.is_empty() {
                self.problem(&path, "Required value");
            } else if !is_sysctl(&sysctl.name) {
                self.invalid(&path, cut(&sysctl.name), SYSCTL);
            } else if !names.insert(dotted_sysctl(&sysctl.name)) {
                self.problem(&path, &format!("Duplicate value: {:?}", cut(&sysctl.name)));
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            ends(bytes.first()) && ends(bytes.last()) && part.bytes().all(inner)
        })
}

#[cfg(test)]
mod tests {
    use crate::agent::admit::tests::{pod, problems};

    fn check(json: &str, want: &[&str]) {
        let got = problems(&pod(json));
        assert_eq!(got.len(), want.len(), "{json}\n{got:#?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.starts_with(want), "{json}\ngot  {got}\nwant {want}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_pods_context_is_named() {
        for (spec, want) in [
            (r#""securityContext": {"runAsUser": 0, "fsGroup": 2147483647}"#, ""),
            (
                r#""securityContext": {"runAsUser": -1}"#,
                "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and",
            ),
            (
                r#""securityContext": {"supplementalGroups": [1, 2147483648]}"#,
                "spec.securityContext.supplementalGroups[1]: Invalid value: 2147483648",
            ),
            (
                r#""securityContext": {"sysctls": [{"name": "foo-", "value": "1"}]}"#,
                "spec.securityContext.sysctls[0].name: Invalid value: \"foo-\": must have at most",
            ),
            (
                r#""securityContext":
                   {"sysctls": [{"name": "kernel.sem"}, {"name": "kernel/sem"}]}"#,
                "spec.securityContext.sysctls[1].name: Duplicate value: \"kernel/sem\"",
            ),
            (
                r#""securityContext": {"sysctls": [{"name": "safe-and-unsafe"}, {"name": ""}]}"#,
                "spec.securityContext.sysctls[1].name: Required value",
            ),
            (
                r#""hostPID": true, "shareProcessNamespace": true"#,
                "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and \
                 HostPID cannot both be enabled",
            ),
            (
                r#""securityContext": {"seccompProfile": {"type": "Localhost"}}"#,
                "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set",
            ),
            (
                r#""securityContext": {"seccompProfile":
                   {"type": "Localhost", "localhostProfile": "a/../../b"}}"#,
                "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \
                 \"a/../../b\": must not contain '..'",
            ),
            (
                r#""securityContext": {"appArmorProfile":
                   {"type": "Unconfined", "localhostProfile": "p"}}"#,
                "spec.securityContext.appArmorProfile.localhostProfile: Invalid value: \"p\": can",
            ),
        ] {
            let json = format!(
                r#"{{"metadata": {{"name": "a"}},
                     "spec": {{{spec}, "containers": [{{"name": "c", "image": "i"}}]}}}}"#
            );
            check(&json, if want.is_empty() { &[] } else { std::slice::from_ref(&want) });
        }
    }

    #[test]
    fn what_is_wrong_with_a_containers_context_is_named() {
        for (context, want) in [
            (r#""allowPrivilegeEscalation": false"#, ""),
            (
                r#""allowPrivilegeEscalation": false, "privileged": true"#,
                "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to",
            ),
            (
                r#""allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}"#,
                "Invalid value: cannot set `allowPrivilegeEscalation` to false and `capabilities.",
            ),
        ] {
            let json = format!(
                r#"{{"metadata": {{"name": "a"}}, "spec": {{"containers": [
                    {{"name": "c", "image": "i", "securityContext": {{{context}}}}}]}}}}"#
            );
            let path = "spec.containers[0].securityContext";
            let want = [&*format!("{path}: {want}")];
            check(&json, if want[0].ends_with(": ") { &[] } else { &want });
        }
        check(
            r#"{"metadata": {"name": "a", "annotations":
                {"container.apparmor.security.beta.kubernetes.io/c": "strict"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}"#,
            &["metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid"],
        );
    }
}
