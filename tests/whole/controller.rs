//! The whole system: the real controller over a folder of manifests, the real agent joined to it
//! over real TLS, a real containerd.

use std::fs;
use std::time::Duration;

use edged::model::api::Kind;
use serde_json::{Value, json};

use super::World;
use super::support::agent::{NODE, Site, sleeper};
use super::support::apiserver::ApiServer;
use super::support::controller::{Cloud, map, pod};
use super::support::exec::Exec;
use super::support::http;
use super::support::line::Line;
use super::support::wait::{always, until};

crate::tests!(
    a_node_joins_and_runs_what_the_folder_wants,
    a_controller_that_was_killed_goes_on_where_it_was,
    a_controller_without_its_store_goes_on_with_the_pods_that_run,
    an_agent_that_was_killed_is_told_what_it_missed,
    a_link_that_was_cut_is_made_good,
    a_broken_manifest_is_named_and_the_others_go_on,
    a_folder_that_vanishes_ends_no_pods_of_nodes,
    an_agent_without_its_store_is_served_again,
    people_reach_pods_through_the_stream_tunnel,
    static_pods_are_shown_in_the_cloud_and_stay_the_nodes,
    a_cluster_is_served_through_cuts_and_forgotten_histories,
    of_two_replicas_one_leads_and_the_other_follows_it,
);

const ONE: &str = "localhost/edged-demo:1";
const TWO: &str = "localhost/edged-demo:2";

fn site(world: &World, name: &str, cloud: &Cloud) -> Site {
    let mut site = world.site(name);
    cloud.welcome(&mut site, cloud.hub);
    site
}

fn cloud(world: &World, name: &str) -> Cloud {
    Cloud::new(world.folder(&format!("{name}-cloud")))
}

fn container(pod: &Value) -> String {
    pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned()
}

fn a_node_joins_and_runs_what_the_folder_wants(world: &World) {
    let cloud = cloud(world, "joined");
    let _controller = cloud.start();
    let site = site(world, "joined", &cloud);
    cloud.put("cm.json", &map("cm", "one"));
    let mut web = pod("web", NODE, ONE);
    web["spec"]["volumes"] = json!([{"name": "cm", "configMap": {"name": "cm"}}]);
    web["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "cm", "mountPath": "/cm"}]);
    cloud.put("web.json", &web);
    let _agent = site.start();
    let reported = cloud.wait_phase("web", "Running");
    assert_eq!(
        reported["status"]["conditions"].as_array().map(Vec::is_empty),
        Some(false),
        "{reported}"
    );
    until("the node is ready", || {
        let node = cloud.object(&format!("/api/v1/nodes/{NODE}"))?.ok_or("there is none")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        if ready { Ok(()) } else { Err(node["status"].to_string()) }
    });
    let uid = reported["metadata"]["uid"].as_str().expect("a uid");
    let file = site.root.join("pods").join(uid).join("volumes/kubernetes.io~configmap/cm/k");
    cloud.put("cm.json", &map("cm", "two"));
    until("the file follows", || match fs::read_to_string(&file) {
        Ok(text) if text == "two" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Another image: the same pod, another container.
    web["spec"]["containers"][0]["image"] = json!(TWO);
    cloud.put("web.json", &web);
    let changed = until("the container has the other image", || {
        let pod = cloud.pod("web")?.ok_or("it is gone")?;
        let status = &pod["status"]["containerStatuses"][0];
        let runs = status["image"] == TWO && status["state"]["running"].is_object();
        if runs { Ok(pod) } else { Err(status.to_string()) }
    });
    assert_eq!(changed["metadata"]["uid"], reported["metadata"]["uid"]);
    assert_ne!(container(&changed), container(&reported));
    cloud.take("web.json");
    cloud.wait_gone("web");
    until("nothing is left of it", || {
        let state = site.runtime_state().of(uid);
        if state.is_empty() { Ok(()) } else { Err(state.short()) }
    });
}

fn people_reach_pods_through_the_stream_tunnel(world: &World) {
    let cloud = cloud(world, "streams");
    let _controller = cloud.start();
    let site = site(world, "streams", &cloud);
    cloud.welcome_tunnel(&site);
    let socket = cloud.socket();
    let get =
        |path: &str| http::get_of(&socket, path).unwrap_or_else(|why| panic!("{path}: {why}"));
    let mut talks = pod("talks", NODE, ONE);
    let script = "echo line 1; echo line 2; exec sleep 100000";
    talks["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    cloud.put("talks.json", &talks);
    let path = "/containerLogs/default/talks/main";
    until("the pod is known", || {
        let answer = get(path);
        let why = format!("node {NODE} has no stream tunnel (not seen since this controller");
        let told = answer.code == 503 && answer.body.starts_with(&why);
        told.then_some(()).ok_or(format!("{answer:?}"))
    });
    let agent = site.start();
    cloud.wait_phase("talks", "Running");
    until("its log is there", || {
        let answer = get(path);
        let told = answer.code == 200 && answer.body == "line 1\nline 2\n";
        told.then_some(()).ok_or(format!("{answer:?}\n{}", site.log_tail()))
    });
    assert_eq!(get(&format!("{path}?tailLines=1")).body, "line 2\n");
    for (path, code, text) in [
        ("/containerLogs/default/nobody/main", 404, "pod \"nobody\" does not exist"),
        ("/containerLogs/default/talks/x", 404, "container \"x\" not found in pod \"talks\""),
        ("/exec/default/talks/x?command=ls&output=1", 500, "container not found (\"x\")"),
        ("/nodes/nowhere/stats/summary", 404, "node \"nowhere\" does not exist"),
    ] {
        let answer = get(path);
        assert_eq!((answer.code, &*answer.body), (code, text), "{path}");
    }
    let path_of = |script: &str| {
        format!("/exec/default/talks/main?command=sh&command=-c&command={script}&output=1")
    };
    let path = path_of("echo+out;echo+err+%3E%262;exit+3");
    let [_, out, err, status] = Exec::open(&socket, &format!("{path}&error=1")).rest();
    assert_eq!((&*out, &*err), ("out\n", "err\n"));
    let status: Value = serde_json::from_str(&status).expect("a status");
    assert_eq!(status["details"]["causes"][0]["message"], "3", "{status}");
    let path = path_of("read+line;echo+got+$line");
    let mut exec = Exec::open(&socket, &format!("{path}&input=1"));
    exec.send(0, b"hello\n");
    assert_eq!(exec.rest()[1], "got hello\n");
    let page = get(&format!("/nodes/{NODE}/metrics/resource"));
    assert_eq!(page.code, 200, "{page:?}");
    assert!(page.body.contains("node_cpu_usage_seconds_total"), "{page:?}");
    let run = |command: &str, arguments: &[&str]| cloud.run(command, arguments);
    assert_eq!(run("logs", &["talks", "--tail=1"]), (Some(0), "line 2\n".to_owned()));
    let exec = run("exec", &["talks", "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!(exec, (Some(3), "out\n".to_owned()));
    // The port of any local user has none of this: logs want a token, commands the socket.
    let port = |path| http::get(cloud.api, path).expect("an answer").code;
    assert_eq!(port("/containerLogs/default/talks/main"), 401);
    assert_eq!(port("/exec/default/talks/main?command=id&output=1"), 403);
    agent.kill();
    until("the node is offline", || {
        let answer = get("/containerLogs/default/talks/main");
        let why = format!("node {NODE} has no stream tunnel (last seen 20");
        let told = answer.code == 503 && answer.body.starts_with(&why);
        told.then_some(()).ok_or(format!("{answer:?}"))
    });
}

fn a_controller_that_was_killed_goes_on_where_it_was(world: &World) {
    let cloud = cloud(world, "reborn");
    let controller = cloud.start();
    let site = site(world, "reborn", &cloud);
    for name in ["kept", "changed", "gone"] {
        cloud.put(&format!("{name}.json"), &pod(name, NODE, ONE));
    }
    let _agent = site.start();
    let before = ["kept", "changed", "gone"].map(|name| cloud.wait_phase(name, "Running"));
    controller.kill();
    cloud.take("gone.json");
    cloud.put("changed.json", &pod("changed", NODE, TWO));
    cloud.put("new.json", &pod("new", NODE, ONE));
    let _next = cloud.start();
    cloud.wait_gone("gone");
    cloud.wait_phase("new", "Running");
    until("the change arrives", || {
        let pod = cloud.pod("changed")?.ok_or("it is gone")?;
        let image = &pod["status"]["containerStatuses"][0]["image"];
        if *image == TWO { Ok(()) } else { Err(format!("{image}\n{}", site.log_tail())) }
    });
    let kept = cloud.wait_phase("kept", "Running");
    assert_eq!(container(&kept), container(&before[0]), "it was not changed");
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"]);
}

fn a_controller_without_its_store_goes_on_with_the_pods_that_run(world: &World) {
    let cloud = cloud(world, "forgetful");
    // A new store gives the objects in the folder uids that the next new store will give them
    // again.
    for name in ["kept", "changed", "gone"] {
        cloud.put(&format!("{name}.json"), &pod(name, NODE, ONE));
    }
    let controller = cloud.start();
    let site = site(world, "forgetful", &cloud);
    let _agent = site.start();
    let before = ["kept", "changed", "gone"].map(|name| cloud.wait_phase(name, "Running"));
    cloud.put("late.json", &pod("late", NODE, ONE));
    let late = cloud.wait_phase("late", "Running");
    controller.kill();
    let data = cloud.socket().with_file_name("controller.db");
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", data.display()));
    }
    let controller = cloud.start();
    let kept = cloud.wait_phase("kept", "Running");
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"]);
    assert_eq!(container(&kept), container(&before[0]), "it was not changed");
    // A later one is another pod now: cloud and node agree on that.
    until("the later pod is one and the same in the cloud and on the node", || {
        let now = cloud.wait_phase("late", "Running");
        let uid = now["metadata"]["uid"].as_str().expect("a uid");
        let runs = !site.runtime_state().of(uid).running("main").is_empty();
        let old = late["metadata"]["uid"].as_str().expect("a uid");
        let left = old != uid && !site.runtime_state().of(old).is_empty();
        if runs && !left { Ok(()) } else { Err(format!("{old} {uid}\n{}", site.log_tail())) }
    });
    // Later changes reach the node, although it has these objects from another history.
    cloud.put("changed.json", &pod("changed", NODE, TWO));
    cloud.take("gone.json");
    cloud.wait_gone("gone");
    until("the change arrives", || {
        let pod = cloud.pod("changed")?.ok_or("it is gone")?;
        let image = &pod["status"]["containerStatuses"][0]["image"];
        if *image == TWO { Ok(()) } else { Err(format!("{image}\n{}", site.log_tail())) }
    });
    // A file whose content is unreadable is replaced by another one.
    controller.kill();
    let _ = fs::remove_file(format!("{}-wal", data.display()));
    fs::write(&data, "no database at all".repeat(1_000)).expect("a file of ours");
    let _controller = cloud.start();
    let kept = cloud.wait_phase("kept", "Running");
    assert_eq!(container(&kept), container(&before[0]), "it was not changed");
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"]);
    cloud.put("new.json", &pod("new", NODE, ONE));
    cloud.wait_phase("new", "Running");
    let uid = before[2]["metadata"]["uid"].as_str().expect("a uid");
    until("nothing is left of what went", || {
        let left = site.runtime_state().of(uid);
        if left.is_empty() { Ok(()) } else { Err(left.short()) }
    });
    let log = cloud.log();
    assert!(log.contains("A new store is created; pods that"), "{}", cloud.log_tail());
    assert!(log.contains("was damaged"), "{}", cloud.log_tail());
}

fn an_agent_that_was_killed_is_told_what_it_missed(world: &World) {
    let cloud = cloud(world, "missed");
    let _controller = cloud.start();
    let site = site(world, "missed", &cloud);
    for name in ["kept", "gone"] {
        cloud.put(&format!("{name}.json"), &pod(name, NODE, ONE));
    }
    let agent = site.start();
    let before = cloud.wait_phase("kept", "Running");
    cloud.wait_phase("gone", "Running");
    agent.kill();
    cloud.take("gone.json");
    cloud.put("new.json", &pod("new", NODE, ONE));
    let _next = site.start();
    cloud.wait_gone("gone");
    cloud.wait_phase("new", "Running");
    let kept = cloud.wait_phase("kept", "Running");
    assert_eq!(container(&kept), container(&before), "it was not changed");
}

fn a_link_that_was_cut_is_made_good(world: &World) {
    let cloud = cloud(world, "cut-link");
    let _controller = cloud.start();
    let line = Line::open(cloud.hub);
    let mut site = world.site("cut-link");
    cloud.welcome(&mut site, line.address);
    cloud.put("kept.json", &pod("kept", NODE, ONE));
    let _agent = site.start();
    let before = cloud.wait_phase("kept", "Running");
    line.cut(true);
    cloud.put("new.json", &pod("new", NODE, ONE));
    until("the controller has the new pod", || match cloud.pod("new")? {
        Some(_) => Ok(()),
        None => Err("not yet".to_owned()),
    });
    line.cut(false);
    cloud.wait_phase("new", "Running");
    let kept = cloud.wait_phase("kept", "Running");
    assert_eq!(container(&kept), container(&before), "it was not changed");
}

fn a_broken_manifest_is_named_and_the_others_go_on(world: &World) {
    let cloud = cloud(world, "broken");
    let controller = cloud.start();
    let site = site(world, "broken", &cloud);
    cloud.put("web.json", &pod("web", NODE, ONE));
    let _agent = site.start();
    cloud.wait_phase("web", "Running");
    fs::write(cloud.manifests.join("web.json"), "kind: Pod\n  broken").expect("a file of ours");
    fs::write(
        cloud.manifests.join("bad.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: 7}\n",
    )
    .expect("a file of ours");
    cloud.put("new.json", &pod("new", NODE, ONE));
    cloud.wait_phase("new", "Running");
    let log = cloud.log_tail();
    assert!(log.contains("bad.yaml:4:20: spec.containers: got 7, expected a list"), "{log}");
    cloud.wait_phase("web", "Running");
    controller.terminate();
    let _next = cloud.start();
    // The content of the file is unknown: its earlier objects stay.
    cloud.wait_phase("web", "Running");
}

fn a_folder_that_vanishes_ends_no_pods_of_nodes(world: &World) {
    let cloud = cloud(world, "vanished");
    let controller = cloud.start();
    let site = site(world, "vanished", &cloud);
    let web = pod("web", NODE, ONE);
    cloud.put("web.json", &web);
    let _agent = site.start();
    let before = cloud.wait_phase("web", "Running");
    let stays = |what: &str| {
        until(what, || {
            let log = cloud.log_tail();
            if log.contains(what) { Ok(()) } else { Err(log) }
        });
        always(Duration::from_millis(2500), "the pod stays", || {
            let pod = cloud.pod("web")?.ok_or("it is gone")?;
            let ends = pod["metadata"].get("deletionTimestamp").is_some();
            let same = container(&pod) == container(&before);
            if same && !ends { Ok(()) } else { Err(pod.to_string()) }
        });
    };
    // A misspelt key is refused with its position.
    let typed = format!("{web:#}").replace("\"containers\"", "\"containerz\"");
    fs::write(cloud.manifests.join("web.json"), typed).expect("a file of ours");
    stays("spec.containerz: got an unknown field; spec.containers: Required value");
    cloud.put("web.json", &web);
    let away = cloud.manifests.with_file_name("away");
    fs::rename(&cloud.manifests, &away).expect("a folder of ours");
    stays("the folder cannot be read");
    controller.terminate();
    fs::create_dir(&cloud.manifests).expect("a folder of ours");
    let _next = cloud.start();
    stays("is not the one that manifests were read from");
    fs::remove_dir(&cloud.manifests).expect("it is empty");
    fs::rename(&away, &cloud.manifests).expect("a folder of ours");
    cloud.put("new.json", &pod("new", NODE, ONE));
    cloud.wait_phase("new", "Running");
    assert_eq!(container(&cloud.wait_phase("web", "Running")), container(&before));
    cloud.take("web.json");
    cloud.wait_gone("web");
}

fn an_agent_without_its_store_is_served_again(world: &World) {
    let cloud = cloud(world, "storeless");
    let _controller = cloud.start();
    let site = site(world, "storeless", &cloud);
    let names = ["web", "job", "gone"];
    for name in names {
        cloud.put(&format!("{name}.json"), &pod(name, NODE, ONE));
    }
    let agent = site.start();
    let before = names.map(|name| cloud.wait_phase(name, "Running"));
    agent.kill();
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(site.dir.join(format!("edgecore.db{end}")));
    }
    // By force: the node is offline, and does not report its end.
    cloud.take("gone.json");
    let (path, now) = ("/api/v1/namespaces/default/pods/gone", r#"{"gracePeriodSeconds":0}"#);
    let request = format!(
        "DELETE {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{now}",
        cloud.api,
        now.len()
    );
    until("the cloud has forgotten the pod", || {
        let answer = http::send_to(&cloud.socket(), request.as_bytes())
            .map_err(|error| error.to_string())?;
        if answer.code == 404 { Ok(()) } else { Err(answer.body) }
    });
    let _next = site.start();
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
    until("the agent has its pods again, and not the one that is gone", || {
        let pods = site.pods()?;
        let has = |pod: &Value| pods.iter().any(|it| it.uid() == uid(pod));
        let all = has(&before[0]) && has(&before[1]);
        let left = site.runtime_state().of(&uid(&before[2]));
        if all && left.is_empty() {
            return Ok(());
        }
        Err(format!("{} pods, left {}\n{}", pods.len(), left.short(), site.log_tail()))
    });
    for was in &before[..2] {
        let name = was["metadata"]["name"].as_str().expect("a name");
        let now = cloud.wait_phase(name, "Running");
        assert_eq!(container(&now), container(was), "{name} runs on as it was");
        assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    assert!(site.log().contains("all pods of this node are stored"), "{}", site.log_tail());
}

fn static_pods_are_shown_in_the_cloud_and_stay_the_nodes(world: &World) {
    let cloud = cloud(world, "shown");
    let _controller = cloud.start();
    let site = site(world, "shown", &cloud);
    site.put("own.json", &sleeper("own"));
    let _agent = site.start();
    let name = format!("own-{NODE}");
    let shown = cloud.wait_phase(&name, "Running");
    let own = site.wait_running("own");
    let annotations = &shown["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.mirror"], own.uid(), "{shown}");
    let id = own.container_id("main");
    assert_eq!(container(&shown), format!("{}://{id}", crate::support::containerd::kind().name()));
    // Other desired pods of the node do not affect it, nor does its end in the cloud.
    cloud.put("web.json", &pod("web", NODE, ONE));
    cloud.wait_phase("web", "Running");
    assert_eq!(cloud.wait_phase(&name, "Running")["metadata"]["uid"], shown["metadata"]["uid"]);
    cloud.delete(&name);
    let recreated = until("it is shown again", || {
        let recreated = cloud.pod(&name)?.ok_or("it is gone")?;
        let is_other = recreated["metadata"]["uid"] != shown["metadata"]["uid"];
        if is_other { Ok(recreated) } else { Err("it is the same".to_owned()) }
    });
    assert_eq!(recreated["metadata"]["annotations"], shown["metadata"]["annotations"]);
    assert_eq!(site.wait_running("own").container_id("main"), id, "nobody touched it");
    site.take("own.json");
    site.wait_gone(&own);
    cloud.wait_gone(&name);
}

fn a_cluster_is_served_through_cuts_and_forgotten_histories(world: &World) {
    let api = ApiServer::start();
    let mut cloud = cloud(world, "cluster");
    let config = api.kubeconfig(&world.folder("cluster-cloud"));
    cloud.flags = vec!["--kubeconfig".to_owned(), config.display().to_string()];
    let controller = cloud.start();
    // The pinned data of a live fleet is where CloudCore looks for it.
    for (secret, key) in [
        ("casecret", "cakeydata"),
        ("cloudcoresecret", "cloudcoredata"),
        ("tokensecret", "tokendata"),
    ] {
        let kept = api.object(Kind::Secret, "kubeedge", secret);
        assert!(kept["data"][key].is_string(), "{secret}: {kept}");
    }
    let token = api.object(Kind::Secret, "kubeedge", "tokensecret")["data"]["tokendata"].clone();
    let token = edged::model::base64::decode(token.as_str().expect("a text")).expect("base64");
    let mut site = world.site("cluster");
    cloud.welcome_with(&mut site, cloud.hub, &String::from_utf8(token).expect("a token"));
    api.put(Kind::ConfigMap, "default", "cm", &map("cm", "one"));
    let mut web = pod("web", NODE, ONE);
    web["spec"]["volumes"] = json!([{"name": "cm", "configMap": {"name": "cm"}}]);
    web["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "cm", "mountPath": "/cm"}]);
    api.put(Kind::Pod, "default", "web", &web);
    for n in 0..5 {
        api.put(Kind::ConfigMap, "default", &format!("m{n}"), &map(&format!("m{n}"), "x"));
    }
    let _agent = site.start();
    let runs = |name: &str| {
        until(&format!("the cluster has {name} as Running"), || {
            let pod = api.object(Kind::Pod, "default", name);
            let reported =
                || format!("{}\n{}\n{}", pod["status"], cloud.log_tail(), site.log_tail());
            if pod["status"]["phase"] == "Running" { Ok(pod) } else { Err(reported()) }
        })
    };
    let before = runs("web");
    let uid = before["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let file = site.root.join("pods").join(uid).join("volumes/kubernetes.io~configmap/cm/k");
    let follows = |text: &str| {
        api.put(Kind::ConfigMap, "default", "cm", &map("cm", text));
        until("the file follows", || match fs::read_to_string(&file) {
            Ok(read) if read == text => Ok(()),
            other => Err(format!("{other:?}\n{}", cloud.log_tail())),
        });
    };
    follows("two");
    api.cut();
    follows("three");
    api.forget(20);
    follows("four");
    drop(controller);
    api.put(Kind::Pod, "default", "new", &pod("new", NODE, ONE));
    let _next = cloud.start();
    runs("new");
    assert_eq!(container(&runs("web")), container(&before), "nobody touched it");
    api.delete(Kind::Pod, "default", "new");
    until("the pod is gone from the cluster", || match api.object(Kind::Pod, "default", "new") {
        Value::Null => Ok(()),
        pod => Err(format!("{}\n{}", pod["metadata"], cloud.log_tail())),
    });
    let requests = api.requests();
    let patched = |it: &&String| it.starts_with("PATCH /api/v1/namespaces/default/pods/web/status");
    assert!(requests.iter().any(|it| patched(&it)), "{requests:?}");
}

fn leads(cloud: &Cloud) -> bool {
    let page = http::get(cloud.api, "/metrics").map(|answer| answer.body).unwrap_or_default();
    page.lines().any(|line| line == "edgecontroller_leads 1")
}

fn of_two_replicas_one_leads_and_the_other_follows_it(world: &World) {
    let api = ApiServer::start();
    let config = api.kubeconfig(&world.folder("replicas"));
    let clouds = ["replica-a", "replica-b"].map(|name| {
        let mut cloud = cloud(world, name);
        cloud.flags = vec!["--kubeconfig".to_owned(), config.display().to_string()];
        cloud
    });
    let mut running = clouds.each_ref().map(|cloud| Some(cloud.start()));
    let first = until("one leads", || {
        let at = clouds.iter().position(leads).ok_or_else(|| clouds[0].log_tail())?;
        if leads(&clouds[1 - at]) { Err("both lead".to_owned()) } else { Ok(at) }
    });
    let lease = || api.object(Kind::Lease, "kubeedge", "edgecontroller")["spec"].clone();
    let before = lease();
    // A deletion for a node that no longer exists was still to be sent.
    let record = json!({
        "kind": "ObjectSync", "apiVersion": "reliablesyncs.kubeedge.io/v1alpha1",
        "metadata": {"namespace": "default", "name": "gone.example.0f6b1c1e"},
        "spec": {"objectAPIVersion": "v1", "objectKind": "Pod", "objectName": "web"},
        "status": {"objectResourceVersion": "7"},
    });
    api.put(Kind::ObjectSync, "default", "gone.example.0f6b1c1e", &record);
    drop(running[first].take());
    until("the other leads", || {
        if leads(&clouds[1 - first]) { Ok(()) } else { Err(clouds[1 - first].log_tail()) }
    });
    assert_ne!(lease()["holderIdentity"], before["holderIdentity"]);
    assert_eq!(lease()["leaseTransitions"], json!(1), "{before}");
    until("the record is removed", || {
        match api.object(Kind::ObjectSync, "default", "gone.example.0f6b1c1e") {
            Value::Null => Ok(()),
            _ => Err(clouds[1 - first].log_tail()),
        }
    });
    let last = running[1 - first].take().expect("it runs");
    last.terminate();
    assert_eq!(lease()["holderIdentity"], "", "it was given back");
}
