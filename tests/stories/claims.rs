//! Storage that outlives pods: claims, the volumes behind them, and folders of other machines.

use std::sync::Arc;

use edged::agent::event::Event;
use edged::model::cri::{Request, RuntimeHandler};
use edged::model::job::{JobSpec, Source, VolumeSetUp};
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::Object;
use edged::model::pod::Pod;

use crate::harness::{Harness, pod};
use crate::made::{container_of, made_on, sandbox_of};

/// One container that mounts volume `v` with these further fields.
fn mounting(source: &str, more: &str) -> String {
    format!(
        r#""volumes":[{{"name":"v",{source}}}],"containers":[{{"name":"m","image":"i:1",
            "volumeMounts":[{{"name":"v","mountPath":"/v"{more}}}]}}]"#
    )
}

const CLAIMS: &str = r#""persistentVolumeClaim":{"claimName":"data"}"#;

fn claim(spec: &str) -> Arc<Object> {
    let json =
        format!(r#"{{"metadata":{{"name":"data","namespace":"default"}},"spec":{{{spec}}}}}"#);
    Arc::new(Object::Claim(serde_json::from_str(&json).expect(spec)))
}

fn volume(name: &str, spec: &str) -> Arc<Object> {
    let json = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#);
    let volume = serde_json::from_str(&json).expect(spec);
    Arc::new(Object::PersistentVolume(Box::new(volume)))
}

/// The folder contains the pod, and these objects.
fn put_folder(harness: &mut Harness, spec: &str, objects: Vec<Arc<Object>>) {
    let pods = vec![serde_json::from_str::<Pod>(&pod(spec)).expect(spec)];
    let content = Content { pods, objects };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

fn set_up(harness: &Harness) -> Vec<&VolumeSetUp> {
    let each = harness.specs.iter().filter_map(|spec| match spec {
        JobSpec::SetUpVolume(wanted) => Some(&**wanted),
        _ => None,
    });
    each.collect()
}

const LOCAL: &str = r#""accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},
    "local":{"path":"/mnt/ssd"}"#;

#[test]
fn a_claim_shows_the_folder_of_the_volume_that_it_is_bound_to() {
    let affine = r#","nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[
        {"key":"kubernetes.io/hostname","operator":"In","values":["gw"]}]}]}}"#;
    for (claimed, stored) in [
        (r#""volumeName":"ssd""#, ""),
        (r#""volumeName":"ssd","accessModes":["ReadWriteOnce"]"#, affine),
        ("", r#","claimRef":{"namespace":"default","name":"data"}"#),
        (
            r#""volumeName":"ssd","resources":{"requests":{"storage":"1Gi"}}"#,
            r#","claimRef":{"namespace":"default","name":"data","uid":"x"}"#,
        ),
    ] {
        let mut harness = Harness::new();
        let objects = vec![claim(claimed), volume("ssd", &format!("{LOCAL}{stored}"))];
        put_folder(&mut harness, &mounting(CLAIMS, ""), objects);
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        let mount = &container_of(&mut harness).mounts[0];
        let want = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/ssd";
        assert_eq!((&*mount.host_path, mount.readonly), (want, false), "{claimed} {stored}");
        let wanted = set_up(&harness)[0];
        assert_eq!((&*wanted.volume, &*wanted.folder), ("v", "ssd"));
        assert_eq!(wanted.source, Source::Local { path: "/mnt/ssd".into(), if_needed: false });
    }
}

#[test]
fn a_claim_that_cannot_be_met_keeps_its_pod_waiting_and_says_why_until_it_can() {
    let stored =
        |name: &str| format!(r#"{LOCAL},"claimRef":{{"namespace":"default","name":"{name}"}}"#);
    let elsewhere = format!(
        r#"{LOCAL},"nodeAffinity":{{"required":{{"nodeSelectorTerms":[{{"matchExpressions":[
            {{"key":"kubernetes.io/hostname","operator":"In","values":["other"]}}]}}]}}}}"#
    );
    let bound = r#""volumeName":"ssd""#;
    let not_bound = "error processing PVC default/data: PVC is not bound: ";
    for (objects, why) in [
        (
            vec![],
            "error processing PVC default/data: failed to fetch PVC from API server: \
             persistentvolumeclaims \"data\" not found"
                .to_owned(),
        ),
        (vec![claim("")], format!("{not_bound}it has no volumeName, and no claimRef refers to it")),
        (vec![claim(bound)], format!("{not_bound}PersistentVolume \"ssd\" not found")),
        (
            vec![claim(bound), volume("ssd", &stored("other"))],
            format!("{not_bound}PersistentVolume \"ssd\" is reserved for default/other"),
        ),
        (
            vec![
                claim(&format!(r#"{bound},"accessModes":["ReadWriteMany"]"#)),
                volume("ssd", LOCAL),
            ],
            format!(
                "{not_bound}PersistentVolume \"ssd\" has the access modes [ReadWriteOnce], and \
                 ReadWriteMany is requested"
            ),
        ),
        (
            vec![
                claim(&format!(r#"{bound},"resources":{{"requests":{{"storage":"2Gi"}}}}"#)),
                volume("ssd", LOCAL),
            ],
            format!(
                "{not_bound}PersistentVolume \"ssd\" has a capacity of 1Gi, and 2Gi is requested"
            ),
        ),
        (
            vec![claim(bound), volume("ssd", &elsewhere)],
            "MountVolume.NodeAffinity check failed for volume \"ssd\" : no matching \
             NodeSelectorTerms"
                .to_owned(),
        ),
        (
            vec![claim(bound), volume("ssd", r#""csi":{"driver":"d"}"#)],
            "PersistentVolume \"ssd\": got csi, expected local, hostPath or nfs".to_owned(),
        ),
        (
            vec![claim(bound), volume("ssd", r#""local":{"path":"mnt"}"#)],
            "PersistentVolume \"ssd\": local.path: got \"mnt\", expected an absolute path without \
             `..`"
                .to_owned(),
        ),
    ] {
        let mut harness = Harness::new();
        let spec = mounting(CLAIMS, "");
        put_folder(&mut harness, &spec, objects);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{why}");
        let event = format!("FailedMount MountVolume.SetUp failed for volume \"v\" : {why}");
        assert!(harness.events.contains(&event), "{event}\n{:?}", harness.events);
        let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "ContainerCreating");
        put_folder(&mut harness, &spec, vec![claim(bound), volume("ssd", LOCAL)]);
        sandbox_of(&mut harness);
    }
}

#[test]
fn two_claims_that_name_one_volume_get_it_neither() {
    let json = r#"{"metadata":{"name":"other","namespace":"default"},"spec":{"volumeName":"ssd"}}"#;
    let other = Arc::new(Object::Claim(serde_json::from_str(json).expect("a claim")));
    let mut harness = Harness::new();
    let objects = vec![claim(r#""volumeName":"ssd""#), other, volume("ssd", LOCAL)];
    put_folder(&mut harness, &mounting(CLAIMS, ""), objects);
    let why = "PersistentVolume \"ssd\" is named by default/other too, and has no claimRef";
    assert!(harness.events.iter().any(|event| event.ends_with(why)), "{:?}", harness.events);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn a_claim_of_a_path_of_the_node_is_that_path_and_may_be_read_only() {
    let mut harness = Harness::new();
    let path = r#""hostPath":{"path":"/srv/x","type":"DirectoryOrCreate"}"#;
    let objects = vec![claim(r#""volumeName":"ssd""#), volume("ssd", path)];
    let read_only = r#""persistentVolumeClaim":{"claimName":"data","readOnly":true}"#;
    put_folder(&mut harness, &mounting(read_only, ""), objects);
    sandbox_of(&mut harness);
    harness.does("image_status i:1");
    let mount = &container_of(&mut harness).mounts[0];
    assert_eq!((&*mount.host_path, mount.readonly), ("/srv/x", true));
}

#[test]
fn a_claimed_folder_is_given_to_the_pods_group_as_the_pod_says() {
    for (policy, want) in [("Always", false), ("OnRootMismatch", true)] {
        let mut harness = Harness::new();
        let security = format!(
            r#""securityContext":{{"fsGroup":7,"fsGroupChangePolicy":"{policy}"}},{}"#,
            mounting(CLAIMS, "")
        );
        let objects = vec![claim(r#""volumeName":"ssd""#), volume("ssd", LOCAL)];
        put_folder(&mut harness, &security, objects);
        let wanted = set_up(&harness)[0];
        assert_eq!(wanted.fs_group, Some(7));
        let source = Source::Local { path: "/mnt/ssd".into(), if_needed: want };
        assert_eq!(wanted.source, source, "{policy}");
    }
}

#[test]
fn a_claim_that_goes_while_its_pod_runs_breaks_nothing() {
    let mut harness = Harness::new();
    let spec = mounting(CLAIMS, "");
    put_folder(&mut harness, &spec, vec![claim(r#""volumeName":"ssd""#), volume("ssd", LOCAL)]);
    harness.does_all(crate::harness::START);
    put_folder(&mut harness, &spec, Vec::new());
    harness.exits("m", 1);
    harness.does("container_status c2");
    harness.pass(10_000);
    harness.does("image_status i:1");
    let mount = container_again(&mut harness);
    assert_eq!(mount, "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/ssd");
}

fn container_again(harness: &mut Harness) -> String {
    let (_, request) = harness.take("create_container m#1");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    config.mounts[0].host_path.clone()
}

#[test]
fn a_folder_of_another_machine_is_mounted_and_shown() {
    let mut harness = Harness::new();
    let source = r#""nfs":{"server":"nas","path":"/export","readOnly":true}"#;
    let (_, container) = made_on(&mut harness, &mounting(source, ""));
    let mount = &container.mounts[0];
    let want = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~nfs/v";
    assert_eq!((&*mount.host_path, mount.readonly), (want, true));
    let options = Vec::new();
    let (server, path) = ("nas".into(), "/export".into());
    let source = Source::Nfs { server, path, read_only: true, options };
    assert_eq!(set_up(&harness)[0].source, source);
}

#[test]
fn a_claim_of_another_machines_folder_has_its_volumes_options() {
    let mut harness = Harness::new();
    let nas = r#""mountOptions":["vers=4.1"],"nfs":{"server":"nas","path":"/export"}"#;
    let objects = vec![claim(r#""volumeName":"nas""#), volume("nas", nas)];
    put_folder(&mut harness, &mounting(CLAIMS, ""), objects);
    let wanted = set_up(&harness)[0];
    let options = vec!["vers=4.1".into()];
    let (server, path) = ("nas".into(), "/export".into());
    assert_eq!(wanted.source, Source::Nfs { server, path, read_only: false, options });
    assert_eq!(&*wanted.folder, "nas");
}

#[test]
fn what_is_mounted_below_is_read_only_as_well_where_the_runtime_can() {
    let requested = |mode: &str| format!(r#","readOnly":true,"recursiveReadOnly":"{mode}""#);
    for (mode, able, want) in [
        ("Disabled", true, Some(false)),
        ("IfPossible", true, Some(true)),
        ("IfPossible", false, Some(false)),
        ("Enabled", true, Some(true)),
        ("Enabled", false, None),
    ] {
        let mut harness = Harness::new();
        harness.runtime.handlers =
            vec![RuntimeHandler { recursive_read_only_mounts: able, ..RuntimeHandler::default() }];
        harness.deliver(Event::RuntimeUp);
        harness.manifests(&[&pod(&mounting(r#""hostPath":{"path":"/srv"}"#, &requested(mode)))]);
        sandbox_of(&mut harness);
        harness.does("image_status i:1");
        if let Some(want) = want {
            let (call, request) = harness.take("create_container m#0");
            let made = harness.perform(&request);
            let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
            assert_eq!(config.mounts[0].recursive_read_only, want, "{mode} {able}");
            harness.deliver(Event::Cri(call, Ok(made)));
            harness.does_all(&["start_container c2", "container_status c2"]);
            let shown = if want { "Enabled" } else { "Disabled" };
            let mount = serde_json::json!({"name": "v", "mountPath": "/v", "readOnly": true,
                                           "recursiveReadOnly": shown});
            let status = &harness.status()["containerStatuses"][0];
            assert_eq!(status["volumeMounts"], serde_json::json!([mount]), "{mode} {able}");
            continue;
        }
        let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerConfigError");
        let why = "failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                   read-only mode, but it is not supported by the runtime";
        assert_eq!(waiting["message"], why);
    }
}
