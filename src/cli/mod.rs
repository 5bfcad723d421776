//! The commands that a person at the gateway types. They read what the agent shows, or the machine
//! itself, print it and end; `join` and `images import` are the only ones that change something.
//!
//! Exit codes: 0 it went well, 1 it did not, 2 the command line is wrong. Whoever closes the pipe
//! early (`| head`) ends the command quietly.

#[cfg(feature = "api")]
mod age;
#[cfg(feature = "check")]
mod check;
#[cfg(feature = "controller")]
pub mod controller;
#[cfg(feature = "image-import")]
mod images;
#[cfg(feature = "cloud")]
mod join;
#[cfg(feature = "api")]
mod pods;
#[cfg(feature = "api")]
mod status;
#[cfg(any(feature = "api", feature = "check", feature = "image-import"))]
mod table;

use std::io::{ErrorKind, Write};

#[cfg(any(feature = "api", feature = "image-import"))]
use crate::config;

/// The commands of this module, for `edged help`.
pub const HELP: &str =
    "  edged pods [OPTIONS]   print the pods              -n NAMESPACE, -o wide or json, -w: watch
  edged status           print how the agent is      --config FILE: of this edgecore.yaml
  edged check            look for what is missing on this machine, and name each remedy
  edged join             make this machine a node of a KubeEdge cloud, in keadm's words:
                         -e, --cloudcore-ipport HOST:10000  -t, --token TOKEN
                         [--certport 10002] [-i, --edgenode-name NAME]
                         [-p, --remote-runtime-endpoint SOCKET]
                         [--root DIR: all files below it in place of /]
  edged images list [PATH...]     print the images that files and folders have
  edged images import FILE        bring an archive's images into containerd, by its own tool
  edged images serve PATH...      be a registry on loopback that lets pull them
  (pods and status ask the agent where edgecore.yaml says, or --server ADDR:PORT)
";

/// Why a command failed.
#[derive(Debug)]
enum Error {
    /// The command line is wrong.
    Usage(String),
    /// It could not be done; for people, with what to do about it.
    Failed(String),
    /// What was printed was not taken.
    Output(std::io::Error),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

#[cfg(any(feature = "api", feature = "image-import"))]
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
    matches!(command, "pods" | "status" | "check" | "images" | "join")
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
        "status" => status::run(args, out),
        #[cfg(feature = "check")]
        "check" => check::run(args, out),
        #[cfg(feature = "image-import")]
        "images" => images::run(args, out, trouble),
        #[cfg(feature = "cloud")]
        "join" => join::run(args, out),
        _ => {
            drop(args);
            let feature = match command {
                "check" => "check",
                "images" => "image-import",
                "join" => "cloud",
                _ => "api",
            };
            // `edged-run` knows it by these words.
            let why = format!("`{command}` is not built into this edged (feature `{feature}`)");
            Err(Error::Failed(why))
        }
    };
    end("edged", command, done, out, trouble)
}

/// Prints a text of a program's own, say its help; returns the exit code.
pub fn print(program: &str, text: &str) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // If even this cannot be printed, the exit code has to do.
            let _ = writeln!(std::io::stderr(), "{program}: cannot print: {error}");
            1
        }
        _ => 0,
    }
}

/// Says how a command of a program ended, if it has to be said; returns the exit code.
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
        Err(Error::Failed(why)) => (1, why),
        Err(Error::Usage(why)) => (2, format!("{why}; `{program} help` says more")),
    };
    // If even this cannot be printed, the exit code has to do.
    let why: Vec<_> = why.lines().map(crate::io::log::printable).collect();
    let _ = writeln!(trouble, "{program} {command}: {}", why.join("\n"));
    code
}
