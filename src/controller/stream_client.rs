//! Who may use the port for kube-apiserver: whoever may read logs and run commands in every pod.

use crate::model::error::Peer;

/// kube-apiserver's own name in kubeadm's certificates.
const API_SERVER: &str = "kube-apiserver-kubelet-client";
/// Groups of clusters' administrators: `system:masters` may do everything, and since 1.29 kubeadm
/// gives the other one to kube-apiserver.
const GROUPS: [&str; 2] = ["system:masters", "kubeadm:cluster-admins"];

/// Whether the subject of a certificate that the cluster's CA for clients has signed is let in:
/// its `CN`, and its groups, which are its `O`s.
pub fn may_request(common_name: &str, groups: &[String]) -> Result<(), Peer> {
    let is_admin = groups.iter().any(|group| GROUPS.contains(&&**group));
    if common_name == API_SERVER || is_admin {
        return Ok(());
    }
    let got = format!("a certificate of CN={common_name:?}, O={groups:?}");
    let got: String = got.chars().take(256).collect();
    let groups = GROUPS.join(", ");
    Err(Peer::new(format!("got {got}, expected CN={API_SERVER} or one of the groups {groups}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_server_and_administrators_are_let_in() {
        for (name, groups, is_let_in) in [
            ("kube-apiserver-kubelet-client", &[][..], true),
            ("kube-apiserver-kubelet-client", &["any"], true),
            ("admin", &["any", "system:masters"], true),
            ("kubernetes-admin", &["kubeadm:cluster-admins"], true),
            ("", &[], false),
            ("system:masters", &[], false),
            ("system:node:e1", &["system:nodes"], false),
            ("kube-apiserver-kubelet-client ", &["system:masters:x"], false),
        ] {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            assert_eq!(may_request(name, &groups).is_ok(), is_let_in, "{name} {groups:?}");
        }
        let long = may_request(&"x".repeat(9_000), &[]).expect_err("it is nobody").to_string();
        assert!(long.len() < 512, "{} bytes", long.len());
    }
}
