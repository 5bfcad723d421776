//! The commands of `edgecontroller` other than `run`: they connect to the controller on this
//! machine, or read its keys.
//!
//! Exit codes are those of [`super`].

mod apply;
mod devices;
mod jobs;
mod nodes;
mod objects;
mod run_job;
mod status;

use std::io::Write;

use lexopt::prelude::*;

use super::help::{self, Page, page};
use super::{Error, events, list, pods};
use super::{codes, cp, exec, log_options, logs, pod, port_forward, terminal, top};
use crate::io::client;
use crate::io::controller::authority;
use crate::io::controller::settings::Settings;
use crate::limits::TOKEN_LIFE_S;
use crate::model::api::Kind;

/// Options of all commands that connect to the controller.
macro_rules! ask {
    () => {
        "  --data DIR             ask the controller of this folder [/var/lib/edgecontroller]\n  \
         --server PLACE         ask the one at unix:///PATH\n"
    };
}

/// Options of all commands that make a job for nodes.
macro_rules! job {
    () => {
        "  -l, --selector KEY=VALUE,…   in place of names: the nodes with these labels\n  \
         --concurrency N        nodes at once                       [1]\n  \
         --tolerate SHARE       of the nodes that may fail, 0 to 1   [0]\n  \
         --timeout SECONDS      for each action of a node            [3600]\n  \
         --check ITEM,…         cpu, mem, disk: only where less than 80 % is used\n  \
         --name NAME            of the job\n  \
         --no-wait              do not wait until it is over\n"
    };
}

/// The pages of `edgecontroller`.
pub const PAGES: &[Page] = &[
    page("run", "[OPTIONS]", "serve the nodes, in the foreground", RUN),
    page(
        "get",
        "nodes|pods|devices|events|jobs|KIND [NAME] [OPTIONS]",
        "print objects, or one",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "  -o, --output FORM      wide (with messages, or what devices report), json or yaml\n",
            "  -w, --watch            nodes, pods, events, and what changes, until it is ended\n",
            ask!(),
        ),
    ),
    page(
        "status",
        "[OPTIONS]",
        "print what nodes may read, rules with their counts, and jobs that are not over",
        concat!(ask!(), "Exit code: 1 while nodes are not served.\n"),
    ),
    page(
        "apply",
        "-f FILE... [OPTIONS]",
        "write the objects of manifests into the folder",
        concat!(
            "  -f, --filename FILE    a file, a folder of .yaml, .yml and .json files, or - for\n",
            "                         standard input; may be repeated\n",
            ask!(),
        ),
    ),
    page(
        "delete",
        "KIND NAME [OPTIONS]",
        "delete an object",
        concat!(
            "  -n, --namespace NAME   [default]\n",
            "  --force                at once, and not when its node says that it has ended: for\n",
            "                         a pod of a node that does not come back\n",
            ask!(),
        ),
    ),
    page(
        "logs",
        "POD [OPTIONS]",
        "print the log of a container of a pod, through its node's stream tunnel",
        concat!(pod!(), log_options!(), ask!()),
    ),
    page(
        "exec",
        "POD [OPTIONS] -- COMMAND [ARGUMENT...]",
        "run a command in a container of a pod; its exit code is that of the command",
        concat!(pod!(), terminal!(), ask!(), codes!()),
    ),
    page(
        "attach",
        "POD [OPTIONS]",
        "connect with the process of a container of a pod",
        concat!(pod!(), terminal!(), ask!(), codes!()),
    ),
    page(
        "port-forward",
        "POD [LOCAL:]REMOTE... [OPTIONS]",
        "let ports of 127.0.0.1 lead to ports of a pod, until it is ended",
        concat!("  -n, --namespace NAME\n", ask!(), "LOCAL: nothing before the colon: any port\n"),
    ),
    page(
        "cp",
        "FILE POD:PATH | POD:PATH FILE [OPTIONS]",
        "copy files and folders to or from a container, which must have a tar",
        concat!(pod!(), ask!(), "Links are copied into a container, and left out from one.\n"),
    ),
    page(
        "top",
        "nodes|pods [NAME] [OPTIONS]",
        "print what nodes or pods use of CPU and memory, through their stream tunnels",
        concat!(
            "  -n, --namespace NAME   only the pods of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "  --containers           a line for each container\n",
            ask!(),
        ),
    ),
    page(
        "prepull",
        "NODE... --image IMAGE... [OPTIONS]",
        "let nodes pull images before pods need them",
        concat!(
            "  --image IMAGE          may be repeated\n",
            "  --secret NAMESPACE/NAME   with the registry's credentials\n",
            "  --retries N            more tries for what could not be pulled   [0]\n",
            job!(),
            ask!(),
            "The job goes on when this command ends. `get jobs` shows it.\n",
        ),
    ),
    page(
        "upgrade",
        "NODE... --version VERSION --image REPOSITORY [OPTIONS]",
        "let nodes upgrade their agent, some at once",
        concat!(
            "  --version VERSION      v1.2.3\n",
            "  --image REPOSITORY     with the new agent; with a digest or without\n",
            "  --digest ARCH=DIGEST,…    of the image for amd64 or arm64\n",
            "  --confirm              each node waits until somebody there confirms\n",
            job!(),
            ask!(),
            "The job goes on when this command ends. `get jobs` shows it.\n",
        ),
    ),
    page(
        "token",
        "[OPTIONS]",
        "print a token with which nodes join for a day",
        "  --data DIR             [/var/lib/edgecontroller]\n  --node NAME            once, and \
         for this node, which may exist\n",
    ),
    help::COMPLETION,
    help::VERSION,
];

const RUN: &str = "  --manifests DIR        folder of manifests    [/etc/edgecontroller/manifests]
  --kubeconfig FILE      the objects of a Kubernetes cluster instead, by this kubeconfig
  --in-cluster           the same, as a pod of it
  --namespace NAME       of the Secrets with CA and token, in a cluster    [kubeedge]
  --data DIR             keys, the store and the socket of the commands
                         [/var/lib/edgecontroller]
  --listen-hub ADDR:PORT     where nodes dial          [0.0.0.0:10000]
  --listen-https ADDR:PORT   where nodes join          [0.0.0.0:10002]
  --listen-tunnel ADDR:PORT  where nodes open the tunnel for logs and commands, or off
                             [0.0.0.0:10004]
  --listen-stream ADDR:PORT  where kube-apiserver asks for logs and commands, or off
                             [off; with a cluster: 0.0.0.0:10003]
  --stream-cert FILE, --stream-key FILE   the certificate there, PEM
                             [of CloudCore's Secret, or of our CA]
  --stream-client-ca FILE    the CA of clients there    [as the cluster says]
  --stream-clients verified|any   any: whoever connects, as CloudCore   [verified]
  --listen-router ADDR:PORT  where clients call services and topics of nodes, or off   [off]
  --router-token FILE        with the token of these clients: needed for it
  --router-cert FILE, --router-key FILE   the certificate there, PEM       [of our CA]
  --router-tls on|off        off: plain HTTP, on loopback only             [on]
  --rest-ca FILE             the CAs of rules' https URLs                  [the system's]
  --advertise NAME,…     names and addresses under which nodes dial        [the host name]
  --api ADDR:PORT        /healthz, /metrics and a page on loopback, or off [127.0.0.1:10020]
  --certificate-days N   of the life of a node's certificate               [365]
  --enrol-again allow|refuse   a node that exists, by a token for no node
                             [refuse; with a cluster: allow, as CloudCore]
  --metaserver-reads LIST|off   what nodes may read of the cluster, as RESOURCE.GROUP
                             [services,endpoints,endpointslices.discovery.k8s.io,namespaces,
                             nodes]
  --metaserver-writes LIST   what they may change          [nothing]
  --metaserver-user controller|node   as whose user        [controller]
  --access-rules on|off  send nodes what their pods' service accounts may do, for
                         MetaServers with requireAuthorization             [off]
  --keepalive SECONDS    without a sign of life a node is disconnected     [30]
  --node-limit N         nodes at once                                     [10000]
  --log LEVEL            off, error, warn, info, debug or trace            [info]
";

/// Whether [`main`] has the command.
pub fn has(command: &str) -> bool {
    let streams = matches!(command, "logs" | "exec" | "attach" | "port-forward" | "cp" | "top");
    let of_jobs = matches!(command, "prepull" | "upgrade");
    streams || of_jobs || matches!(command, "get" | "status" | "token" | "apply" | "delete")
}

/// Runs a command that [`has`] knows; returns the exit code.
pub fn main(
    command: &str,
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> u8 {
    let done = match command {
        "get" => get(args, out),
        "status" => status::run(args, out),
        "token" => token(args, out),
        "apply" => apply::run(args, out, trouble),
        "prepull" => run_job::run(args, run_job::Command::PrePull, out),
        "upgrade" => run_job::run(args, run_job::Command::Upgrade, out),
        "logs" => logs::run(args, out, trouble, list::CONTROLLER),
        "exec" => exec::run(args, out, trouble, list::CONTROLLER),
        "attach" => exec::attach(args, out, trouble, list::CONTROLLER),
        "port-forward" => port_forward::run(args, out, trouble, list::CONTROLLER),
        "cp" => cp::run(args, trouble, list::CONTROLLER),
        "top" => top::run(args, out, trouble, list::CONTROLLER),
        _ => delete(args, out),
    };
    super::end("edgecontroller", command, done, out, trouble)
}

fn get(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let kind = match args.next()? {
        Some(Value(kind)) => kind.string()?,
        Some(other) => return Err(other.unexpected().into()),
        None => String::new(),
    };
    match kind_of(&kind) {
        Some(Kind::Pod) => pods::show(args, out, "/api/v1/pods", list::CONTROLLER),
        Some(Kind::Node) => nodes::run(args, out),
        Some(Kind::Device) => devices::run(args, out),
        None if matches!(&*kind, "job" | "jobs") => jobs::run(args, out),
        Some(Kind::Event) => events::show(args, out, "/api/v1/events", list::CONTROLLER),
        Some(kind) => objects::run(args, out, kind),
        None => {
            let expected = "nodes, pods, devices, jobs, events, configmaps or the like";
            Err(Error::Usage(format!("got {kind:?}, expected {expected}")))
        }
    }
}

fn token(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut settings, mut node) = (Settings::default(), None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("data") => settings.data = args.value()?.into(),
            Long("node") => node = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let now_s = client::wall_s();
    let now_s = now_s.ok_or_else(|| Error::Failed("this machine's clock is not set".to_owned()))?;
    let token = authority::token(&settings.pki(), node.as_deref(), now_s, now_s + TOKEN_LIFE_S);
    let token = token?;
    writeln!(out, "{token}")?;
    Ok(0)
}

fn delete(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut words, mut namespace) = (Vec::new(), "default".to_owned());
    let (mut server, mut data, mut options) = (None, None, "");
    while let Some(arg) = args.next()? {
        match arg {
            Long("force") => options = r#"{"gracePeriodSeconds":0}"#,
            Short('n') | Long("namespace") => namespace = args.value()?.string()?,
            Long("server") => server = Some(args.value()?.string()?),
            Long("data") => data = Some(args.value()?.string()?),
            Value(word) => words.extend(word.string()?.split('/').map(str::to_owned)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let [kind, name] = &words[..] else {
        return Err(Error::Usage("expected a kind and a name, such as pod web".to_owned()));
    };
    let path = path_of(kind, &namespace, name).ok_or_else(|| {
        Error::Usage(format!("got the kind {kind:?}, expected pod, node, configmap or the like"))
    })?;
    let controller = (list::CONTROLLER.at)(server.as_deref(), data.as_deref())?;
    let answer = controller.send("DELETE", &path, options.as_bytes())?;
    if answer.status != 200 {
        return Err(Error::Failed(answer.why()));
    }
    if answer.body.starts_with(b"{") {
        writeln!(out, "{kind}/{name} deleted")?;
    } else {
        out.write_all(&answer.body)?;
    }
    Ok(0)
}

/// The kind for a user's word.
fn kind_of(word: &str) -> Option<Kind> {
    let word = word.to_ascii_lowercase();
    let short = [
        ("po", Kind::Pod),
        ("no", Kind::Node),
        ("cm", Kind::ConfigMap),
        ("ev", Kind::Event),
        ("pv", Kind::PersistentVolume),
        ("pvc", Kind::PersistentVolumeClaim),
        ("sa", Kind::ServiceAccount),
    ];
    let short = short.into_iter().find(|(short, _)| *short == word).map(|(_, kind)| kind);
    short.or_else(|| {
        let named = |kind: &Kind| word == kind.name().to_ascii_lowercase() || word == kind.plural();
        Kind::ALL.into_iter().find(named)
    })
}

/// The path of an object, for a user's words.
fn path_of(kind: &str, namespace: &str, name: &str) -> Option<String> {
    use crate::model::api::{Call, Verb};
    let kind = kind_of(kind)?;
    let namespace = if kind.is_namespaced() { namespace } else { "" };
    let call = Call {
        verb: Verb::Delete,
        kind,
        namespace: namespace.into(),
        name: name.into(),
        subresource: None,
        body: None,
    };
    Some(crate::wire::rest::of_call(&call).path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, args: &[&str]) -> (u8, String) {
        let (mut out, mut trouble) = (Vec::new(), Vec::new());
        let code = main(command, lexopt::Parser::from_args(args), &mut out, &mut trouble);
        (code, String::from_utf8(trouble).expect("text"))
    }

    #[test]
    fn wrong_command_lines_are_named() {
        for (command, args, expected) in [
            ("get", &["things"][..], "got \"things\", expected nodes, pods"),
            ("apply", &[], "expected -f FILE"),
            ("delete", &["pod"], "expected a kind and a name"),
            ("delete", &["thing", "x"], "got the kind \"thing\""),
            ("token", &["--what"], "invalid option '--what'"),
        ] {
            let (code, output) = run(command, args);
            assert_eq!(code, 2, "{output}");
            assert!(output.contains(expected), "{output}");
        }
        let (code, output) = run("token", &["--data", "/nowhere"]);
        assert_eq!(code, 1, "{output}");
    }

    #[test]
    fn objects_are_named_as_people_name_them() {
        let web = "/api/v1/namespaces/default/pods/web";
        for kind in ["pod", "pods", "Pod", "po"] {
            assert_eq!(path_of(kind, "default", "web").as_deref(), Some(web));
        }
        assert_eq!(path_of("node", "default", "gw").as_deref(), Some("/api/v1/nodes/gw"));
    }
}
