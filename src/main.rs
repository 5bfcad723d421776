//! The faces of the one binary: `edged run`, its children `edged job`, and `version` and `help`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use edged::config::{self, Config, Error, Loaded};
use edged::{cli, io};

const HELP: &str = "\
edged: runs the pods of a manifest folder on a container runtime (CRI v1)

  edged run [OPTIONS]    run the agent in the foreground
{COMMANDS}
  edged version          print the version
  edged help             print this

Options of run, over the keys of the same name in the file:
  --config FILE          edgecore.yaml                 [/etc/kubeedge/config/edgecore.yaml]
  --manifests DIR        folder of pod manifests       [/etc/kubeedge/manifests]
  --runtime SOCKET       the runtime's socket          [unix:///run/containerd/containerd.sock]
  --root-dir DIR         folder of the pods' volumes   [/var/lib/kubelet]
  --pod-logs DIR         folder of the pods' logs      [/var/log/pods]
  --container-logs DIR   folder of links to them       [/var/log/containers]
  --node-name NAME       the node's name               [the host name]
  --node-ip ADDRESS      the node's address            [that of the default route]
  --listen ADDR:PORT     the HTTP API, or off          [127.0.0.1:10350]
  --log LEVEL            off, error, warn, info, debug or trace                     [info]
";

fn main() -> ExitCode {
    io::sys::guard_memory();
    let mut args = lexopt::Parser::from_env();
    let command = args.value().unwrap_or_default();
    match command.to_str() {
        Some("run") => run(args),
        Some("job") => io::job::child(&args.value().unwrap_or_default().to_string_lossy()),
        Some("version" | "--version" | "-V") => {
            print(&format!("edged {}\n", env!("CARGO_PKG_VERSION")))
        }
        Some("help" | "--help" | "-h") => print(&HELP.replace("{COMMANDS}\n", cli::HELP)),
        Some(command) if cli::has(command) => {
            let (mut out, mut trouble) = (std::io::stdout().lock(), std::io::stderr().lock());
            ExitCode::from(cli::main(command, args, &mut out, &mut trouble))
        }
        _ => {
            let command = command.to_string_lossy();
            usage(&format!("got the command {command:?}, expected one that `edged help` names"))
        }
    }
}

fn run(mut args: lexopt::Parser) -> ExitCode {
    let flags: Vec<OsString> = match args.raw_args() {
        Ok(flags) => flags.collect(),
        Err(error) => return usage(&error.to_string()),
    };
    let loaded = match config::load(&flags, io::sys::hostname()) {
        Ok(loaded) => loaded,
        Err(Error::Usage(why) | Error::File(why)) => return usage(&why),
    };
    io::log::open(loaded.config.log);
    io::run(told(loaded), &mut || match config::load(&flags, io::sys::hostname()) {
        Ok(loaded) => Ok(told(loaded)),
        Err(Error::Usage(why) | Error::File(why)) => Err(why),
    })
}

/// Puts the warnings into the log.
fn told(loaded: Loaded) -> Config {
    for warning in loaded.warnings() {
        log::warn!("{warning}");
    }
    loaded.config
}

fn print(text: &str) -> ExitCode {
    ExitCode::from(cli::print("edged", text))
}

fn usage(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "edged: {why}");
    ExitCode::from(2)
}
