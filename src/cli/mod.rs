//! The commands of `edged` for an operator at the gateway. They read the agent's state, or the
//! machine itself, print it and end; only `join` and some verbs of `images` change something.
//!
//! Exit codes: 0 success, 1 failure, 2 a wrong command line. If the output is closed
//! early (`| head`), the command ends quietly.

#[cfg(any(feature = "api", feature = "runtime"))]
mod age;
#[cfg(feature = "api")]
mod check;
#[cfg(feature = "controller")]
pub mod controller;
#[cfg(feature = "streams")]
mod cp;
#[cfg(feature = "streams")]
mod describe;
#[cfg(feature = "devices")]
mod devices;
#[cfg(feature = "api")]
mod events;
#[cfg(feature = "streams")]
mod exec;
pub mod help;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "cloud")]
mod join;
#[cfg(feature = "api")]
mod list;
#[cfg(feature = "streams")]
mod logs;
#[cfg(feature = "api")]
mod pods;
#[cfg(feature = "streams")]
mod port_forward;
#[cfg(feature = "runtime")]
mod ps;
#[cfg(feature = "streams")]
mod remote;
#[cfg(feature = "runtime")]
mod runtime;
#[cfg(feature = "services")]
mod services;
#[cfg(feature = "api")]
mod status;
#[cfg(any(feature = "api", feature = "images"))]
mod table;
#[cfg(feature = "streams")]
mod top;
#[cfg(feature = "node-jobs")]
mod upgrade;
#[cfg(feature = "cloud")]
mod verify;
#[cfg(feature = "api")]
mod yaml;

use std::io::{ErrorKind, Write};

#[cfg(any(feature = "api", feature = "images"))]
use crate::config;
#[cfg(feature = "runtime")]
use crate::io::builtin::{environment::Environment, layout::Settings};
use crate::io::sys;
use help::{Page, page};

/// Options of all commands that connect to the agent.
macro_rules! ask {
    () => {
        "  --config FILE          ask the agent with this edgecore.yaml\n  \
         --server PLACE         ask the one at ADDR:PORT or unix:///PATH\n"
    };
}

/// Options of all commands about one container.
macro_rules! pod {
    () => {
        "  -n, --namespace NAME   also as NAME/POD; without it the pod of this name\n  \
         -c, --container NAME   else the pod's default container, or its first\n"
    };
}

/// Options of `exec` and `attach`.
macro_rules! terminal {
    () => {
        "  -i, --stdin            connect standard input\n  \
         -t, --tty              with a terminal, together with -i\n"
    };
}

/// Exit codes of the same.
macro_rules! codes {
    () => {
        "Exit code 1: it was refused; 255: the connection broke before the code came.\n"
    };
}

/// Options of `logs`.
macro_rules! log_options {
    () => {
        concat!(
            "      --all-containers   of all containers\n",
            "  -f, --follow           and what is added, until the container ends\n",
            "  -p, --previous         of the container before the last restart\n",
            "      --tail N           the last N lines\n",
            "      --since DURATION   what is not older than 5s, 2m, 3h\n",
            "      --since-time TIME  what is not older than this time, RFC 3339\n",
            "      --timestamps       with the time of each line\n",
            "      --limit-bytes N    N bytes at most\n",
            "      --prefix           with the names of pod and container before each line\n",
        )
    };
}

#[cfg(feature = "controller")]
use {codes, log_options, pod, terminal};

/// The pages of `edged`.
pub const PAGES: &[Page] = &[
    page("run", "[OPTIONS]", "run the agent in the foreground", RUN),
    page(
        "pods",
        "[NAME] [OPTIONS]",
        "print the pods, or one",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "  -o, --output FORM      wide (with messages), json or yaml\n",
            "  -w, --watch            and whatever changes, until it is ended\n",
            ask!(),
            "Values that may be secrets are shown to root only: through ROOTDIR/edged.sock.\n",
        ),
    ),
    page(
        "events",
        "[NAME] [OPTIONS]",
        "print the events of the pods, or of one, the oldest first",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "  -o, --output FORM      json or yaml\n",
            "  -w, --watch            and what happens, until it is ended\n",
            ask!(),
        ),
    ),
    page(
        "devices",
        "[NAME] [OPTIONS]",
        "print the devices, or one with its properties",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "  -o, --output FORM      wide (with messages), json or yaml\n",
            "  -w, --watch            and what changes, values if there is a NAME\n",
            ask!(),
            "Values are shown to root only: through ROOTDIR/edged.sock.\n",
        ),
    ),
    page(
        "services",
        "[NAME] [OPTIONS]",
        "print the Services that this node serves by name, with their endpoints",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -o, --output FORM      json or yaml\n",
            ask!(),
        ),
    ),
    page(
        "describe",
        "pod NAME [OPTIONS]",
        "print one pod in full, with its events",
        concat!("  -n, --namespace NAME\n", ask!()),
    ),
    page(
        "logs",
        "POD [OPTIONS]",
        "print the log of a container of a pod",
        concat!(pod!(), log_options!(), ask!(),),
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
        "node|pods [NAME] [OPTIONS]",
        "print what the node or its pods use of CPU and memory",
        concat!(
            "  -n, --namespace NAME   only those of this namespace\n",
            "  -A, --all-namespaces   with a column of namespaces\n",
            "      --containers       a line for each container\n",
            ask!(),
        ),
    ),
    page(
        "status",
        "[OPTIONS]",
        "print the agent's state; exit code 1: the runtime is not ready",
        concat!(
            "      --connected        exit code 3: a cloud is configured and not connected\n",
            ask!(),
        ),
    ),
    page("check", "[OPTIONS]", "find what is missing on this machine, with a remedy for each", RUN),
    page(
        "join",
        "[OPTIONS]",
        "make this machine a node of a KubeEdge cloud, with keadm's flags",
        "  -e, --cloudcore-ipport HOST:10000\n  \
         -t, --token TOKEN      -: read it from standard input\n  \
         --token-file FILE\n  \
         --certport PORT        [10002]\n  \
         -i, --edgenode-name NAME\n  \
         -p, --remote-runtime-endpoint SOCKET\n  \
         --root DIR             all files below it in place of /\n",
    ),
    page(
        "images",
        "list|pull|rm|import|serve [NAME...|PATH...] [OPTIONS]",
        "images of the runtime, and those in files and folders",
        "list: print those of the runtime and of imageFolders, or those in files and folders\n\
         pull: pull images into the runtime\n\
         rm: remove images of the runtime, each with all its names\n\
         import: import archives into the runtime; into containerd with its own tool\n\
         serve: run a registry on loopback from which files and folders can be pulled\n\n  \
         --config FILE          edgecore.yaml\n  \
         --runtime SOCKET       the runtime's         [that of the agent]\n  \
         --username NAME        of pull; the password is the first line of standard input\n  \
         --force                of rm: although a container uses it\n  \
         --listen ADDR:PORT     of serve              [127.0.0.1:10351]\n\
         Exit code 1: something failed, or a file cannot be used.\n",
    ),
    page(
        "runtime",
        "[ps] [OPTIONS]",
        "serve the containers of this machine, in place of containerd (CRI over ttrpc)",
        "  --config FILE          edgecore.yaml     [/etc/kubeedge/config/edgecore.yaml]\n  \
         --run-dir DIR          on tmpfs              [/run/edged/rt]\n  \
         --data-dir DIR         on flash              [/var/lib/edged/rt]\n  \
         --oci FILE             crun or runc          [the one that this machine can use]\n  \
         --handler NAME=FILE    of RuntimeClasses     [crun, runc, where they work]\n  \
         --cni-bin-dir DIR      plugins               [/opt/cni/bin, or the distribution's]\n  \
         --cni-conf-dir DIR     their configuration   [/etc/cni/net.d]\n  \
         --log LEVEL            error, warn, info, debug [info]\n\
         ps: print its sandboxes and containers, or those of another runtime\n  \
         -a, --all              ended ones as well, with exit code and reason\n  \
         -o, --output json      for programs\n  \
         --runtime SOCKET       the runtime's         [that of the agent]\n",
    ),
    page(
        "upgrade",
        "confirm [OPTIONS]",
        "let the upgrade of edged go on that a job of the cloud asks for",
        ask!(),
    ),
    page(
        "verify-release",
        "FILE [OPTIONS]",
        "verify that the release key has signed an edged; edged-run does so before an upgrade",
        "  --key FILE             public keys, PEM      [/etc/edged/release.pub]\n  \
         --signature FILE       Ed25519, 64 bytes     [FILE.sig]\n",
    ),
    help::COMPLETION,
    help::VERSION,
];

const RUN: &str = "  --config FILE          edgecore.yaml    [/etc/kubeedge/config/edgecore.yaml]
  --manifests DIR        folder of pod manifests       [/etc/kubeedge/manifests]
  --runtime SOCKET       unix:///path, or builtin      [the one that is there]
  --root-dir DIR         folder of the pods' volumes   [/var/lib/kubelet]
  --pod-logs DIR         folder of the pods' logs      [/var/log/pods]
  --container-logs DIR   folder of links to them       [/var/log/containers]
  --node-name NAME       the node's name               [the host name]
  --node-ip ADDRESS      the node's address            [that of the default route]
  --listen ADDR:PORT     the HTTP API, or off          [127.0.0.1:10350]
  --log LEVEL            off, error, warn, info, debug or trace    [info]
Each flag stands over the key of the file.
";

/// Why a command failed.
#[derive(Debug)]
enum Error {
    /// The command line is wrong.
    Usage(String),
    /// It failed; a text for the user, with a remedy.
    Failed(String),
    /// The output could not be written.
    Output(std::io::Error),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(any(feature = "api", feature = "images", feature = "cloud"))]
impl From<crate::model::error::Error> for Error {
    fn from(error: crate::model::error::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

#[cfg(any(feature = "api", feature = "images"))]
impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        match error {
            config::Error::Usage(why) => Self::Usage(why),
            config::Error::File(why) => Self::Failed(why),
        }
    }
}

/// Whether [`main`] has the command.
pub fn has(command: &str) -> bool {
    const COMMANDS: [&str; 18] = [
        "pods",
        "events",
        "devices",
        "services",
        "describe",
        "logs",
        "exec",
        "attach",
        "port-forward",
        "cp",
        "top",
        "status",
        "check",
        "images",
        "join",
        "runtime ps",
        "upgrade",
        "verify-release",
    ];
    COMMANDS.contains(&command)
}

/// Runs a command that [`has`] knows; returns the exit code.
pub fn main(
    command: &str,
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> u8 {
    let done = match command {
        #[cfg(feature = "api")]
        "pods" => pods::run(args, out),
        #[cfg(feature = "api")]
        "events" => events::run(args, out),
        #[cfg(feature = "devices")]
        "devices" => devices::run(args, out),
        #[cfg(feature = "services")]
        "services" => services::run(args, out),
        #[cfg(feature = "streams")]
        "describe" => describe::run(args, out, list::EDGED),
        #[cfg(feature = "streams")]
        "logs" => logs::run(args, out, trouble, list::EDGED),
        #[cfg(feature = "streams")]
        "exec" => exec::run(args, out, trouble, list::EDGED),
        #[cfg(feature = "streams")]
        "attach" => exec::attach(args, out, trouble, list::EDGED),
        #[cfg(feature = "streams")]
        "port-forward" => port_forward::run(args, out, trouble, list::EDGED),
        #[cfg(feature = "streams")]
        "cp" => cp::run(args, trouble, list::EDGED),
        #[cfg(feature = "streams")]
        "top" => top::run(args, out, trouble, list::EDGED),
        #[cfg(feature = "api")]
        "status" => status::run(args, out),
        #[cfg(feature = "api")]
        "check" => check::run(args, out),
        #[cfg(feature = "images")]
        "images" => images::run(args, out, trouble),
        #[cfg(feature = "cloud")]
        "join" => join::run(args, out),
        #[cfg(feature = "runtime")]
        "runtime ps" => ps::run(args, out),
        #[cfg(feature = "node-jobs")]
        "upgrade" => upgrade::run(args, out),
        #[cfg(feature = "cloud")]
        "verify-release" => verify::run(args, out),
        _ => {
            drop(args);
            let feature = match command {
                "check" => "api",
                "devices" => "devices",
                "services" => "services",
                "images" => "images",
                "runtime ps" => "runtime",
                "upgrade" => "node-jobs",
                "join" | "verify-release" => "cloud",
                "describe" | "logs" | "exec" | "attach" | "port-forward" | "cp" | "top" => {
                    "streams"
                }
                _ => "api",
            };
            // `edged-run` matches these words.
            let why = format!("`{command}` is not built into this edged (feature `{feature}`)");
            Err(Error::Failed(why))
        }
    };
    end("edged", command, done, out, trouble)
}

/// The arguments of `edged runtime`, and what this machine has. The error is the exit code of what
/// was printed.
#[cfg(feature = "runtime")]
pub fn runtime_settings(args: lexopt::Parser) -> Result<(Settings, Environment), u8> {
    let (mut out, mut trouble) = (std::io::stdout(), std::io::stderr());
    let done = match runtime::parse(args, &mut out) {
        Ok(Some(server)) => return Ok(server),
        Ok(None) => Ok(0),
        Err(error) => Err(error),
    };
    Err(end("edged", "runtime", done, &mut out, &mut trouble))
}

/// Prints a text of the program, such as its help; returns the exit code.
pub fn print(program: &str, text: &str) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // If this cannot be printed either, only the exit code remains.
            let _ = writeln!(std::io::stderr(), "{program}: cannot print: {error}");
            1
        }
        _ => 0,
    }
}

/// Reports how a command ended, if necessary; returns the exit code.
fn end(
    program: &str,
    command: &str,
    done: Result<u8, Error>,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> u8 {
    let (code, why) = match done.and_then(|code| out.flush().map(|()| code).map_err(Error::from)) {
        Ok(code) => return code,
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return 0,
        Err(Error::Output(error)) => (1, format!("cannot print: {error}")),
        Err(Error::Failed(why)) => (1, format!("{why}{}", unprivileged(&why))),
        Err(Error::Usage(why)) => (2, format!("{why}; `{program} {command} --help` says more")),
    };
    // If this cannot be printed either, only the exit code remains.
    let why: Vec<_> = why.lines().map(crate::io::log::printable).collect();
    let _ = writeln!(trouble, "{program} {command}: {}", why.join("\n"));
    code
}

/// A remedy for a refusal of the system, for users other than root.
fn unprivileged(why: &str) -> String {
    match sys::unprivileged() {
        Some(uid) if why.contains("ermission denied") => {
            format!("; this runs as the user {uid}: try it as root")
        }
        _ => String::new(),
    }
}

/// Logs what does not work because edged does not run as root.
pub fn warn_unprivileged() {
    if let Some(uid) = sys::unprivileged() {
        log::warn!(
            "edged runs as the user {uid}, expected root: only root can use the runtime's socket, \
             volumes and cgroups"
        );
    }
}
