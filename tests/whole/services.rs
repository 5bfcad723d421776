//! Services by name on a real runtime: names and ClusterIPs, from pods and from the host, and what
//! becomes of connections when the agent ends.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::World;
use crate::support::agent::{Agent, KEEP_ALL, Site};
use crate::support::cgroup;
use crate::support::wait::until;

crate::tests![services_are_found_by_name_and_outlive_the_agent];

/// One that the manifests name: free on every machine that these tests run on.
const CLUSTER_IP: &str = "10.96.77.7";

/// A pod with the label `app: NAME`, on the pods' network.
fn labelled(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  labels: {{app: {name}}}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: \
         localhost/edged-demo:1\n    command: [sh, -c, {script:?}]\n    ports:\n    - \
         {{name: http, containerPort: 8080}}\n"
    )
}

fn service() -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  clusterIP: \
         {CLUSTER_IP}\n  selector: {{app: web}}\n  ports:\n  - {{name: http, port: 80, \
         targetPort: http}}\n  - {{name: echo, port: 7, targetPort: 7007}}\n"
    )
}

/// The process that serves Services, which is nobody's child once its agent has ended.
struct Serving<'a>(&'a Site);

impl Serving<'_> {
    fn pid(&self) -> Option<u32> {
        let arguments = format!("services\0serve\0{}", socket(&self.0.root)?);
        let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&arguments)
        })
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended since.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
        }
    }
}

fn socket(root: &Path) -> Option<String> {
    let found = edged::io::services::socket_of(root)?;
    Some(found.to_str()?.to_owned())
}

fn serving(site: &Site) -> Agent<'_> {
    let agent = site.start();
    agent.wait_listening();
    site.wait_trouble("nothing", Value::is_null);
    agent
}

/// One line through the echo port.
fn echo(stream: &mut TcpStream, line: &str) {
    stream.write_all(line.as_bytes()).expect("the connection is open");
    let mut back = vec![0; line.len()];
    stream.read_exact(&mut back).expect("the connection is open");
    assert_eq!(back, line.as_bytes());
}

fn services_are_found_by_name_and_outlive_the_agent(world: &World) {
    let site = world.site("services");
    site.set("services: {enable: true}\n", KEEP_ALL);
    let process = Serving(&site);
    let agent = serving(&site);
    let script = "mkdir -p /www; echo from-web > /www/index.html; nc -ll -p 7007 -e cat & exec \
                  httpd -f -p 8080 -h /www";
    site.put("web.yaml", &labelled("web", script));
    site.put("service.yaml", &service());
    site.wait_running("web");
    // From a pod: by its short name, which is looked up along the search list.
    let script = "until wget -q -O - http://web/; do sleep 0.2; done; wget -q -O - \
                  http://web.default.svc.cluster.local/; echo host=$WEB_SERVICE_HOST; sleep 100000";
    site.put("client.yaml", &labelled("client", script));
    let client = site.wait_running("client");
    let said = until("the client has reached it twice", || {
        let lines = site.output(&client, "main", 0);
        let count = lines.iter().filter(|line| **line == "from-web").count();
        if count == 2 && lines.len() >= 3 { Ok(lines) } else { Err(lines.join("\n")) }
    });
    assert!(said.contains(&format!("host={CLUSTER_IP}")), "{said:?}");
    // Where pods are in cgroups of version 2, no byte of theirs passes through that process.
    let of_pods = cgroup::all("kubepods");
    if of_pods.iter().any(|folder| folder.join("cgroup.events").exists()) {
        until("the kernel leads the client to the pod", || {
            let direct = &site.status()?["services"]["report"]["direct"];
            if direct.as_u64() >= Some(1) { Ok(()) } else { Err(direct.to_string()) }
        });
    }
    // From the host.
    let mut held = until("the host reaches it", || {
        TcpStream::connect((CLUSTER_IP, 7)).map_err(|error| error.to_string())
    });
    held.set_read_timeout(Some(Duration::from_secs(20))).expect("ours");
    echo(&mut held, "before");
    // The agent is killed; nothing of it is.
    let served_by = process.pid().expect("it serves");
    agent.kill();
    echo(&mut held, "without an agent");
    drop(TcpStream::connect((CLUSTER_IP, 80)).expect("new ones are taken as well"));
    let agent = serving(&site);
    until("the next agent knows the Services", || {
        let known = site.status()?["services"]["services"].as_u64();
        if known == Some(1) { Ok(()) } else { Err(format!("{known:?}")) }
    });
    echo(&mut held, "with another one");
    assert_eq!(process.pid(), Some(served_by), "it was adopted");
    // Its pod is replaced: a new address, and the name leads there.
    site.take("web.yaml");
    until("nobody serves it", || match TcpStream::connect((CLUSTER_IP, 80)) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let script = "exec nc -ll -p 8080 -e echo other";
    site.put("web.yaml", &labelled("web", script));
    until("the new pod is reached", || {
        let mut stream = TcpStream::connect((CLUSTER_IP, 80)).map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|error| error.to_string())?;
        if text == "other\n" { Ok(()) } else { Err(text) }
    });
    assert_eq!(agent.terminate().code(), Some(0));
    // Switched off: the process ends, and the link goes.
    site.set("services: {enable: false}\n", KEEP_ALL);
    let _agent = serving(&site);
    until("the process is gone", || process.pid().map_or(Ok(()), |pid| Err(pid.to_string())));
    assert!(!Path::new("/sys/class/net/edgemesh0").exists(), "no link is left behind");
}
