//! Security contexts of a pod and its containers, and the runtime's configuration for them.

use edged::agent::event::Event;
use edged::limits::USERS_PER_POD;
use edged::model::cri::{
    Code, ImageUser, IpcNamespace, Network, PidNamespace, Profile, Request, RuntimeHandler,
    Selinux, User, UserRange,
};
use edged::model::pod::FIRST_USER;

use crate::harness::{Harness, MAIN, UID, sandbox};
use crate::made::{annotated, container_of, made, made_on, sandbox_of};

/// One container `m` with this context in a pod with that one.
fn spec(pod: &str, container: &str) -> String {
    format!(
        r#""securityContext":{{{pod}}},
           "containers":[{{"name":"m","image":"i:1","securityContext":{{{container}}}}}]"#
    )
}

#[test]
fn without_a_context_a_container_gets_what_a_kubelet_gives() {
    let (sandbox, container) = made(MAIN);
    assert_eq!(sandbox.namespaces.network, Network::Pod);
    assert_eq!(container.namespaces.pid, PidNamespace::Container);
    let security = container.security;
    assert_eq!(security.user, User::default());
    assert_eq!(security.seccomp, Profile::Unconfined);
    assert_eq!((security.masked_paths.len(), security.readonly_paths.len()), (12, 5));
    assert!(security.masked_paths.contains(&"/proc/kcore".to_owned()));
    assert!(security.readonly_paths.contains(&"/proc/sys".to_owned()));
    assert!(!security.privileged && !security.no_new_privs && !security.readonly_rootfs);
    assert_eq!((security.apparmor, security.selinux), (None, None));
}

#[test]
fn a_containers_user_stands_over_its_pods_and_both_over_the_images() {
    let user = |uid, gid| User { uid, gid, ..User::default() };
    for (pod, container, image, want) in [
        ("", "", ImageUser::Uid(7), user(Some(7), None)),
        (r#""runAsUser":5"#, "", ImageUser::Uid(7), user(Some(5), None)),
        (r#""runAsUser":5"#, r#""runAsUser":0"#, ImageUser::Unset, user(Some(0), None)),
        (
            r#""runAsUser":5,"runAsGroup":6"#,
            r#""runAsGroup":8"#,
            ImageUser::Unset,
            user(Some(5), Some(8)),
        ),
        // A group needs a user: root, unless another is set.
        (r#""runAsGroup":6"#, "", ImageUser::Unset, user(Some(0), Some(6))),
        ("", "", ImageUser::Name("web".into()), User { name: "web".into(), ..User::default() }),
    ] {
        let mut harness = Harness::new();
        harness.image_user = image;
        let (_, made) = made_on(&mut harness, &spec(pod, container));
        assert_eq!(made.security.user, want, "{pod} {container}");
    }
}

#[test]
fn groups_come_in_the_kubelets_order_and_the_sandbox_has_them_too() {
    let pod = r#""fsGroup":100,"supplementalGroups":[5,4],"runAsUser":1,"runAsGroup":2"#;
    let (sandbox, container) = made(&spec(pod, ""));
    assert_eq!(container.security.user.groups, [100, 5, 4]);
    assert_eq!(sandbox.security.user, container.security.user);
    let (sandbox, _) = made(&spec(r#""runAsGroup":2"#, ""));
    assert_eq!(sandbox.security.user.gid, None, "runtimes refuse a group without a user");
}

#[test]
fn root_is_refused_where_it_is_not_wanted_and_the_rest_of_the_pod_runs() {
    let explicit = r#""runAsNonRoot":true,"runAsUser":0"#;
    let who = "(pod: \"p-gw_default(u1)\", container: m)";
    for (context, image, want) in [
        (explicit, ImageUser::Unset, "container's runAsUser breaks non-root policy"),
        (
            r#""runAsNonRoot":true"#,
            ImageUser::Unset,
            "container has runAsNonRoot and image will run as root",
        ),
        (
            r#""runAsNonRoot":true"#,
            ImageUser::Uid(0),
            "container has runAsNonRoot and image will run as root",
        ),
        (
            r#""runAsNonRoot":true"#,
            ImageUser::Name("web".into()),
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user \
             is non-root",
        ),
    ] {
        let mut harness = Harness::new();
        harness.image_user = image;
        harness.manifests(&[&annotated("", &spec("", context))]);
        harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{context}");
        let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerConfigError");
        assert_eq!(waiting["message"], format!("{want} {who}"));
        let event = format!("Failed Error: {want} {who}");
        assert!(harness.events.contains(&event), "{:?}", harness.events);
        harness.pass(9_000);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "not before ten seconds");
    }
    for (context, image) in [
        (r#""runAsNonRoot":true,"runAsUser":7"#, ImageUser::Uid(0)),
        (r#""runAsNonRoot":true"#, ImageUser::Uid(7)),
        (r#""runAsNonRoot":false"#, ImageUser::Unset),
    ] {
        let mut harness = Harness::new();
        harness.image_user = image;
        made_on(&mut harness, &spec(r#""runAsNonRoot":true"#, context));
    }
}

#[test]
fn what_a_container_may_do_is_passed_on() {
    let (_, container) = made(&spec(
        "",
        r#""capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},"readOnlyRootFilesystem":true,
           "allowPrivilegeEscalation":false,"seLinuxOptions":{"type":"t","level":"s0"}"#,
    ));
    let security = container.security;
    assert_eq!(security.add_capabilities, ["NET_ADMIN"]);
    assert_eq!(security.drop_capabilities, ["ALL"]);
    assert!(security.readonly_rootfs && security.no_new_privs && !security.privileged);
    let selinux = Selinux { kind: "t".to_owned(), level: "s0".to_owned(), ..Selinux::default() };
    assert_eq!(security.selinux, Some(selinux));
    let (sandbox, container) = made(&spec(
        "",
        r#""privileged":true,"procMount":"Unmasked","allowPrivilegeEscalation":true"#,
    ));
    let security = container.security;
    assert!(security.privileged && sandbox.security.privileged && !security.no_new_privs);
    assert!(security.masked_paths.is_empty() && security.readonly_paths.is_empty());
}

#[test]
fn profiles_come_from_the_container_then_the_pod() {
    let seccomp = |pod: &str, container: &str| made(&spec(pod, container)).1.security.seccomp;
    let default = r#""seccompProfile":{"type":"RuntimeDefault"}"#;
    let local = r#""seccompProfile":{"type":"Localhost","localhostProfile":"a/b.json"}"#;
    let none = r#""seccompProfile":{"type":"Unconfined"}"#;
    assert_eq!(seccomp(default, ""), Profile::RuntimeDefault);
    assert_eq!(seccomp(default, none), Profile::Unconfined);
    let path = "/var/lib/kubelet/seccomp/a/b.json".to_owned();
    assert_eq!(seccomp(none, local), Profile::Localhost(path));
    let apparmor = |metadata: &str, pod: &str, container: &str| {
        let mut harness = Harness::with(|config| config.machine.apparmor = true);
        harness.manifests(&[&annotated(metadata, &spec(pod, container))]);
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        container_of(&mut harness).security.apparmor
    };
    let local = r#""appArmorProfile":{"type":"Localhost","localhostProfile":"p"}"#;
    let default = r#""appArmorProfile":{"type":"RuntimeDefault"}"#;
    let note =
        r#","annotations":{"container.apparmor.security.beta.kubernetes.io/m":"localhost/q"}"#;
    assert_eq!(apparmor("", default, local), Some(Profile::Localhost("p".to_owned())));
    assert_eq!(apparmor(note, default, ""), Some(Profile::RuntimeDefault));
    assert_eq!(apparmor(note, "", ""), Some(Profile::Localhost("q".to_owned())));
}

#[test]
fn the_runtimes_seccomp_profile_can_be_made_the_default() {
    let mut harness = Harness::with(|config| config.settings.seccomp_default = true);
    assert_eq!(made_on(&mut harness, MAIN).1.security.seccomp, Profile::RuntimeDefault);
}

#[test]
fn namespaces_are_the_pods_the_hosts_or_each_containers_own() {
    let all = |field: &str| made(&format!("{field},{MAIN}"));
    for (field, pid, ipc) in [
        (r#""hostPID":true"#, PidNamespace::Node, IpcNamespace::Pod),
        (r#""hostIPC":true"#, PidNamespace::Container, IpcNamespace::Node),
        (r#""shareProcessNamespace":true"#, PidNamespace::Pod, IpcNamespace::Pod),
    ] {
        let (sandbox, container) = all(field);
        assert_eq!((&sandbox.namespaces.pid, sandbox.namespaces.ipc), (&pid, ipc), "{field}");
        assert_eq!(container.namespaces, sandbox.namespaces, "{field}");
    }
}

/// A pod with users of its own, on a runtime that can make them.
fn own_users(name: &str, uid: &str) -> String {
    let spec = format!(r#""hostUsers":false,"volumes":[{{"name":"v","emptyDir":{{}}}}],{MOUNTS}"#);
    annotated("", &spec).replace(UID, uid).replace(r#""name":"p""#, &format!(r#""name":"{name}""#))
}

const MOUNTS: &str = r#""containers":[{"name":"m","image":"i:1",
    "volumeMounts":[{"name":"v","mountPath":"/v"}]}]"#;

fn with_users() -> Harness {
    let mut harness = Harness::new();
    let handler = RuntimeHandler { user_namespaces: true, ..RuntimeHandler::default() };
    harness.runtime.handlers = vec![handler];
    harness.deliver(Event::RuntimeUp);
    harness.pass(10_000);
    harness
}

#[test]
fn pods_with_users_of_their_own_share_none() {
    let mut harness = with_users();
    harness.manifests(&[&own_users("p", UID)]);
    let sandbox = sandbox_of(&mut harness);
    let users = sandbox.namespaces.users;
    let UserRange { first, count } = users.expect("of its own");
    assert_eq!((first % USERS_PER_POD, count), (0, USERS_PER_POD));
    assert!(first > 0, "these are the host's own");
    assert_eq!(sandbox.annotations[FIRST_USER], first.to_string());
    harness.does("image_status i:1");
    let container = container_of(&mut harness);
    assert_eq!(container.namespaces, sandbox.namespaces);
    assert!(!container.mounts.is_empty());
    assert!(container.mounts.iter().all(|mount| mount.users == users), "{:?}", container.mounts);
}

/// Which range each of these pods is lent.
fn lent(harness: &mut Harness, pods: &[(&str, &str)]) -> Vec<u32> {
    let pods: Vec<String> = pods.iter().map(|(name, uid)| own_users(name, uid)).collect();
    harness.manifests(&pods.iter().map(|pod| &**pod).collect::<Vec<_>>());
    let mut seen = Vec::new();
    while seen.len() < pods.len() {
        let is_open = |(_, request): &(_, Request)| *request != Request::GetContainerEvents;
        let at = harness.open.iter().position(is_open).expect("all are started");
        let (call, request) = harness.open.remove(at);
        if let Request::RunPodSandbox(config) = &request {
            let users = config.namespaces.users.expect("of its own");
            seen.push((config.pod.name.to_string(), users.first / USERS_PER_POD));
        }
        let reply = harness.perform(&request);
        harness.deliver(Event::Cri(call, Ok(reply)));
    }
    seen.sort();
    seen.into_iter().map(|(_, range)| range).collect()
}

#[test]
fn the_next_agent_lends_a_pod_the_same_users() {
    let (p, q, r) = (("p", UID), ("q", "0f3a-2"), ("r", "0f3a-3"));
    let all = lent(&mut with_users(), &[p, q, r]);
    assert_eq!(lent(&mut with_users(), &[r]), all[2..]);
    assert_eq!(lent(&mut with_users(), &[p, q]), all[..2]);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
}

#[test]
fn users_that_any_sandbox_has_are_not_lent_again() {
    let q = ("q", "0f3a-2");
    let alone = lent(&mut with_users(), &[q])[0];
    let mut harness = with_users();
    // One of a pod that nobody knows, and one of our own that was made before the agent's start.
    let mut unknown = sandbox("s7", 0, true);
    unknown.pod.as_mut().expect("a pod").uid = "another".into();
    unknown.first_user = Some(alone * USERS_PER_POD);
    harness.sandboxes.push(unknown);
    let mut ours = sandbox("s8", 0, false);
    ours.first_user = Some((alone + 1) * USERS_PER_POD);
    harness.sandboxes.push(ours);
    harness.deliver(Event::RuntimeUp);
    harness.pass(10_000);
    assert_eq!(lent(&mut harness, &[("p", UID), q]), [alone + 1, alone + 2]);
}

/// A call of an agent that has ended took effect after the next one had lent others.
#[test]
fn a_sandbox_keeps_the_users_that_it_has() {
    let mut harness = with_users();
    harness.manifests(&[&own_users("p", UID)]);
    harness.refuses("run_podsandbox #0", Code::Unknown, "the name is reserved");
    let mut late = sandbox("s9", 0, true);
    late.first_user = Some(7 * USERS_PER_POD);
    harness.sandboxes.push(late);
    harness.pass(10_000);
    harness.does("podsandbox_status s9");
    harness.does("image_status i:1");
    let users = container_of(&mut harness).namespaces.users;
    assert_eq!(users.map(|users| users.first), Some(7 * USERS_PER_POD));
}

#[test]
fn a_runtime_without_user_namespaces_runs_no_such_pod() {
    let mut harness = Harness::new();
    harness.manifests(&[&own_users("p", UID)]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let told = "the runtime does not support user namespaces with the handler \"\"";
    assert!(harness.events.iter().any(|event| event.contains(told)), "{:?}", harness.events);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        let mut harness = with_users();
        harness
            .manifests(&[&annotated("", &format!(r#""hostUsers":false,"{field}":true,{MAIN}"#))]);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{field}");
    }
    // A manifest does not say which users it has.
    let claims = format!(r#","annotations":{{"{FIRST_USER}":"0"}}"#);
    let mut harness = Harness::new();
    harness.manifests(&[&annotated(&claims, MAIN)]);
    let sandbox = sandbox_of(&mut harness);
    assert!(!sandbox.annotations.contains_key(FIRST_USER) && sandbox.namespaces.users.is_none());
}

#[test]
fn sysctls_are_set_if_they_are_safe_and_refused_otherwise() {
    let sysctls = |name: &str| spec(&format!(r#""sysctls":[{{"name":"{name}","value":"1"}}]"#), "");
    let (sandbox, _) = made(&sysctls("kernel/shm_rmid_forced"));
    assert_eq!(sandbox.sysctls["kernel.shm_rmid_forced"], "1");
    let mut harness = Harness::new();
    harness.manifests(&[&annotated("", &sysctls("kernel.msgmax"))]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let status = harness.status();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&"Failed".into(), &"SysctlForbidden".into())
    );
    let message = "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    assert_eq!(status["message"], message);
}

#[test]
fn groups_without_the_images_need_a_runtime_that_can() {
    let strict = spec(r#""supplementalGroupsPolicy":"Strict","supplementalGroups":[5]"#, "");
    let mut harness = Harness::new();
    harness.manifests(&[&annotated("", &strict)]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let status = harness.status();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&"Failed".into(), &"UnsupportedRuntime".into())
    );
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("spec.securityContext.supplementalGroupsPolicy"), "{message}");
    let mut harness = Harness::new();
    harness.runtime.strict_groups = true;
    harness.pass(10_000);
    assert!(made_on(&mut harness, &strict).1.security.user.strict_groups);
}

#[test]
fn one_privileged_container_makes_the_sandbox_privileged() {
    let (sandbox, container) = made(
        r#""containers":[{"name":"m","image":"i:1","securityContext":{"privileged":true}},
            {"name":"n","image":"i:1"}]"#,
    );
    assert!(sandbox.security.privileged && container.security.privileged);
    let (sandbox, container) = made(MAIN);
    assert!(!sandbox.security.privileged && !container.security.privileged);
}
