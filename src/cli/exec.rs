//! `edged exec` and `edged attach`: a command in a container, or its own process, connected with
//! this terminal or with pipes.

use std::io::{ErrorKind, Write};

use lexopt::prelude::*;
use serde_json::Value;

use super::Error;
use super::list::Api;
use super::remote::{self, Common, Pod, Target};
use crate::io::client::Agent;
use crate::io::client::session::{Input, Session};
use crate::io::client::terminal::{self, Terminal};
use crate::wire::spdy::exec::{Exec, Wanted};

/// The options on the command line.
#[derive(Debug, Default)]
struct Options {
    target: Target,
    stdin: bool,
    tty: bool,
    /// Of `exec`.
    command: Vec<String>,
}

impl Options {
    fn parse(mut args: lexopt::Parser, api: Api, has_command: bool) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            if let Some(option) = Common::of(&arg, api) {
                options.target.set(option, args.value()?.string()?);
                continue;
            }
            match arg {
                Short('i') | Long("stdin") => options.stdin = true,
                Short('t') | Long("tty") => options.tty = true,
                Value(pod) if options.target.pod.is_none() => {
                    options.target.pod = Some(pod.string()?);
                }
                // The rest belongs to the command, whatever it looks like.
                Value(first) if has_command => {
                    options.command.push(first.string()?);
                    for word in args.raw_args()? {
                        options.command.push(word.string()?);
                    }
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        if has_command && options.command.is_empty() {
            let why = "expected a command: exec POD -- COMMAND";
            return Err(Error::Usage(why.to_owned()));
        }
        Ok(options)
    }
}

/// Runs a command in a container; returns its exit code.
pub(super) fn run(
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api, true)?;
    let agent = options.target.agent(api)?;
    let pod = options.target.find(&agent, api)?;
    let container = pod.choose(options.target.container.as_deref(), trouble)?;
    expect_running(&pod, "exec into a container in")?;
    // As kubectl: without -i there is nothing to type into.
    let tty = options.tty && options.stdin && is_terminal(trouble);
    let wanted = Wanted { stdin: options.stdin, stdout: true, stderr: !tty, tty };
    let mut query: Vec<_> = options.command.iter().map(|word| ("command", &**word)).collect();
    query.extend(remote::query(wanted));
    let path = pod.path("exec", Some(remote::text(&container["name"])), &query);
    connect(&agent, &path, wanted, tty, out, trouble)
}

/// Connects with the process of a container; returns its exit code as far as the runtime says it.
pub(super) fn attach(
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api, false)?;
    let agent = options.target.agent(api)?;
    let pod = options.target.find(&agent, api)?;
    let container = pod.choose(options.target.container.as_deref(), trouble)?;
    expect_running(&pod, "attach to a container in")?;
    let name = remote::text(&container["name"]);
    // The container has a terminal or not, whatever is wanted here.
    let tty = container["tty"] == Value::Bool(true);
    if options.tty && !tty {
        let _ = writeln!(trouble, "Unable to use a TTY - container {name} did not allocate one");
    }
    let is_raw = tty && options.tty && options.stdin && is_terminal(trouble);
    let wanted = Wanted { stdin: options.stdin, stdout: true, stderr: !tty, tty };
    let path = pod.path("attach", Some(name), &remote::query(wanted));
    if is_raw {
        let hint = "If you don't see a command prompt, try pressing enter.";
        let _ = writeln!(trouble, "{hint}");
    }
    connect(&agent, &path, wanted, is_raw, out, trouble)
}

fn connect(
    agent: &Agent,
    path: &str,
    wanted: Wanted,
    is_raw: bool,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    let connection = remote::upgrade_exec(agent, path)?;
    let terminal = if is_raw {
        let raw = Terminal::of_stdin();
        Some(raw.map_err(|error| Error::Failed(format!("cannot use the terminal: {error}")))?)
    } else {
        None
    };
    let stdin = |error| Error::Failed(format!("standard input: {error}"));
    let session = Session {
        connection,
        exec: Exec::new(wanted),
        input: if wanted.stdin { Input::stdin().map_err(stdin)? } else { Input::None },
        out,
        err: trouble,
        terminal: terminal.as_ref(),
    };
    let end = session.run();
    // Before anything is printed.
    drop(terminal);
    match end {
        // The command may still run, and its code is not known.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(PIPE),
        end => remote::exit_code(end?, trouble),
    }
}

/// As of a program that SIGPIPE has ended, which kubectl is.
const PIPE: u8 = 128 + 13;

fn is_terminal(trouble: &mut dyn Write) -> bool {
    let is_one = terminal::has_terminal();
    if !is_one {
        let why = "Unable to use a TTY - input is not a terminal or the right kind of file";
        let _ = writeln!(trouble, "{why}");
    }
    is_one
}

fn expect_running(pod: &Pod, what: &str) -> Result<(), Error> {
    match pod.phase() {
        phase @ ("Succeeded" | "Failed") => {
            Err(Error::Failed(format!("cannot {what} a completed pod; current phase is {phase}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::list::EDGED;

    fn options(args: &[&str], has_command: bool) -> Result<Options, Error> {
        Options::parse(lexopt::Parser::from_args(args), EDGED, has_command)
    }

    #[test]
    fn what_follows_the_pod_is_the_command() {
        let got = options(&["-it", "web", "-c", "a", "--", "ls", "-l", "--", "x"], true);
        let got = got.expect("options");
        assert!(got.stdin && got.tty);
        assert_eq!(got.target.container.as_deref(), Some("a"));
        assert_eq!(got.command, ["ls", "-l", "--", "x"]);
        assert_eq!(options(&["web", "ls", "-l"], true).expect("options").command, ["ls", "-l"]);
        let got = options(&["-i", "web"], false).expect("options");
        assert!(got.stdin && !got.tty && got.command.is_empty());
    }

    #[test]
    fn wrong_options_are_named() {
        for (args, has_command, want) in [
            (&["web"][..], true, "expected a command: exec POD -- COMMAND"),
            (&["web", "--"], true, "expected a command"),
            (&["web", "ls"], false, "unexpected argument \"ls\""),
            (&["--wide", "web"], true, "invalid option '--wide'"),
        ] {
            match options(args, has_command) {
                Err(Error::Usage(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
