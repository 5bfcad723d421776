//! `edged port-forward`: ports of this machine that lead to ports of a pod.

use std::io::Write;

use lexopt::prelude::*;

use super::Error;
use super::list::Api;
use super::remote::{self, Common, LOST, Target};
use crate::io::client::forward::{Listener, Ports};
use crate::io::log::printable;
use crate::wire::spdy::forward::PROTOCOL;

/// The options on the command line.
#[derive(Debug, Default)]
struct Options {
    target: Target,
    /// Local ports, 0: any, and those of the pod.
    ports: Vec<(u16, u16)>,
}

impl Options {
    fn parse(mut args: lexopt::Parser, api: Api) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            if let Some(option) = Common::of(&arg, api) {
                options.target.set(option, args.value()?.string()?);
                continue;
            }
            match arg {
                Value(pod) if options.target.pod.is_none() => {
                    options.target.pod = Some(pod.string()?);
                }
                Value(ports) => {
                    let text = ports.string()?;
                    let wrong =
                        || Error::Usage(format!("got the ports {text:?}, expected [LOCAL:]REMOTE"));
                    options.ports.push(ports_of(&text).ok_or_else(wrong)?);
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.ports.is_empty() {
            let why = "expected a port: port-forward POD [LOCAL:]REMOTE...";
            return Err(Error::Usage(why.to_owned()));
        }
        Ok(options)
    }
}

/// `8080:80`; `80`: the same port here; `:80`: any port here.
fn ports_of(text: &str) -> Option<(u16, u16)> {
    let number = |text: &str| text.parse().ok().filter(|port| *port > 0);
    match text.split_once(':') {
        None => number(text).map(|port| (port, port)),
        Some(("", remote)) => Some((0, number(remote)?)),
        Some((local, remote)) => Some((number(local)?, number(remote)?)),
    }
}

/// Forwards the ports until it is ended or the connection breaks.
pub(super) fn run(
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api)?;
    let agent = options.target.agent(api)?;
    let pod = options.target.find(&agent, api)?;
    let phase = pod.phase();
    if phase != "Running" {
        let why =
            format!("unable to forward port because pod is not running. Current status={phase}");
        return Err(Error::Failed(why));
    }
    let mut listeners = Vec::new();
    for (local, remote) in &options.ports {
        let listener = Listener::open(*local, *remote).map_err(|error| {
            Error::Failed(format!("unable to listen on 127.0.0.1:{local}: {error}"))
        })?;
        listeners.push(listener);
    }
    let connection = remote::upgrade(&agent, &pod.path("portForward", None, &[]), PROTOCOL)?;
    for Listener { local, remote, .. } in &listeners {
        writeln!(out, "Forwarding from 127.0.0.1:{local} -> {remote}")?;
    }
    out.flush()?;
    let why = Ports::new(connection, listeners, out, trouble).run()?;
    // If this cannot be printed either, only the exit code remains.
    let _ = writeln!(trouble, "error: lost connection to pod: {}", printable(&why));
    Ok(LOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::list::EDGED;

    #[test]
    fn ports_are_written_as_kubectl_takes_them() {
        for (text, ports) in [
            ("80", Some((80, 80))),
            ("8080:80", Some((8080, 80))),
            (":80", Some((0, 80))),
            ("0:80", None),
            ("80:", None),
            ("80:0", None),
            ("65536", None),
            ("a", None),
            ("1:2:3", None),
            ("", None),
        ] {
            assert_eq!(ports_of(text), ports, "{text}");
        }
        let parse = |args: &[&str]| Options::parse(lexopt::Parser::from_args(args), EDGED);
        let options = parse(&["-n", "shop", "web", "80", "8443:443"]).expect("options");
        assert_eq!(options.ports, [(80, 80), (8443, 443)]);
        for (args, want) in [
            (&["web"][..], "expected a port"),
            (&["web", "x"], "got the ports \"x\", expected [LOCAL:]REMOTE"),
        ] {
            match parse(args) {
                Err(Error::Usage(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
