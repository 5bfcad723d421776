//! The faces of the cloud's side: `edgecontroller run`, and the commands for people beside it.

use std::io::Write;
use std::process::ExitCode;

use edged::io::controller::settings::Settings;
use edged::{cli, io};

const HELP: &str = "\
edgecontroller: the cloud side of KubeEdge: serves the nodes that dial it

  edgecontroller run [OPTIONS]     serve, in the foreground
{COMMANDS}
  edgecontroller version           print the version
  edgecontroller help              print this

Options of run:
  --manifests DIR          folder of manifests         [/etc/edgecontroller/manifests]
  --kubeconfig FILE        the objects of a Kubernetes cluster instead, by this kubeconfig
  --in-cluster             the same, as a pod of it
  --namespace NAME         of the Secrets with CA and token, in a cluster [kubeedge]
  --data DIR               keys and the store          [/var/lib/edgecontroller]
  --listen-hub ADDR:PORT   where nodes dial            [0.0.0.0:10000]
  --listen-https ADDR:PORT where nodes join            [0.0.0.0:10002]
  --advertise NAME,…       names and addresses under which nodes dial    [the host name]
  --api ADDR:PORT          our own API on loopback, or off               [127.0.0.1:10020]
  --certificate-days N     of the life of a node's certificate           [365]
  --enrol-again allow|refuse  a node that exists, by a token for no node
                           [refuse; with a cluster: allow, as CloudCore]
  --keepalive SECONDS      without a sign of life a node is disconnected [30]
  --node-limit N           nodes at once                                 [10000]
  --log LEVEL              off, error, warn, info, debug or trace        [info]
";

fn main() -> ExitCode {
    io::sys::guard_memory();
    let mut args = lexopt::Parser::from_env();
    let command = args.value().unwrap_or_default();
    match command.to_str() {
        Some("run") => run(args),
        Some("job") => {
            let kind = args.value().unwrap_or_default();
            io::controller::child(&kind.to_string_lossy())
        }
        Some("version" | "--version" | "-V") => {
            print(&format!("edgecontroller {}\n", env!("CARGO_PKG_VERSION")))
        }
        Some("help" | "--help" | "-h") => {
            print(&HELP.replace("{COMMANDS}\n", cli::controller::HELP))
        }
        Some(command) if cli::controller::has(command) => {
            let (mut out, mut trouble) = (std::io::stdout().lock(), std::io::stderr().lock());
            ExitCode::from(cli::controller::main(command, args, &mut out, &mut trouble))
        }
        _ => {
            let command = command.to_string_lossy();
            usage(&format!("got the command {command:?}, expected one that `help` names"))
        }
    }
}

fn run(mut args: lexopt::Parser) -> ExitCode {
    let flags: Vec<_> = match args.raw_args() {
        Ok(flags) => flags.collect(),
        Err(error) => return usage(&error.to_string()),
    };
    match Settings::parse(flags, io::sys::hostname()) {
        Ok(settings) => {
            io::log::open(settings.log);
            io::controller::run(settings)
        }
        Err(why) => usage(&why),
    }
}

fn print(text: &str) -> ExitCode {
    ExitCode::from(cli::print("edgecontroller", text))
}

fn usage(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "edgecontroller: {why}");
    ExitCode::from(2)
}
