//! `edged join`: makes this machine a node of a KubeEdge cloud, with keadm's flags.

use std::io::{Read, Write};
use std::path::PathBuf;

use lexopt::prelude::*;

use super::Error;
use crate::io::cloud::join::{Options, join};
use crate::io::sys;
use crate::limits::CONFIG_BYTES_MAX;
use crate::model::settings::Secret;

/// Parses the flags, joins, and prints the next step.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let mut options = Options::default();
    let mut is_shown = false;
    while let Some(arg) = args.next()? {
        match arg {
            Short('e') | Long("cloudcore-ipport") => options.cloudcore = args.value()?.string()?,
            Short('t') | Long("token") => match &*args.value()?.string()? {
                "-" => options.token = read(std::io::stdin())?,
                token => {
                    options.token = Secret::new(token.trim());
                    is_shown = true;
                }
            },
            Long("token-file") => {
                let path = args.value()?;
                let file = sys::open(&path).map_err(|error| {
                    Error::Failed(format!("--token-file {}: {error}", path.display()))
                })?;
                options.token = read(file)?;
            }
            Long("certport") => options.certport = Some(args.value()?.parse()?),
            Short('i') | Long("edgenode-name") => {
                options.node_name = Some(args.value()?.string()?);
            }
            Short('p') | Long("remote-runtime-endpoint") => {
                options.runtime = Some(args.value()?.string()?);
            }
            Long("root") => options.root = Some(PathBuf::from(args.value()?)),
            // The runtime itself reports its driver.
            Long("cgroupdriver") => drop(args.value()?.string()?),
            Long(word) if refused(word).is_some() => {
                let why = refused(word).unwrap_or_default();
                return Err(Error::Usage(format!("--{word}: {why}")));
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    options.check().map_err(|wrong| Error::Usage(wrong.to_string()))?;
    let report = join(&options)?;
    out.write_all(report.as_bytes())?;
    if is_shown {
        let better = "--token-file FILE, or --token - and the token on standard input";
        writeln!(
            out,
            "the token was on the command line, where every user can see it: next time use {better}"
        )?;
    }
    Ok(0)
}

/// A token from a file, or from standard input.
fn read(from: impl Read) -> Result<Secret, Error> {
    let mut text = String::new();
    let read = from.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Error::Failed(format!("the token cannot be read: {error}")))?;
    if text.len() > CONFIG_BYTES_MAX {
        let why = format!("got more than {CONFIG_BYTES_MAX} bytes, expected a token");
        return Err(Error::Failed(format!("the token cannot be used: {why}")));
    }
    Ok(Secret::new(text.trim()))
}

/// Flags of keadm for other things than joining.
fn refused(word: &str) -> Option<&'static str> {
    Some(match word {
        "kubeedge-version" | "tarballpath" | "image-repository" | "pre-run" | "post-run" => {
            "edged is installed already, and installs nothing"
        }
        "with-mqtt" => "edged starts no broker",
        "hub-protocol" | "quicport" => "the link is a websocket",
        "labels" | "set" => "write it into edgecore.yaml: nodeLabels, or the key itself",
        "domainname" => "give the name itself to --cloudcore-ipport",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_longer_than_any_is_refused_and_not_cut() {
        let text = "x".repeat(CONFIG_BYTES_MAX + 1);
        assert!(read(&text.as_bytes()[1..]).is_ok());
        let refused = read(text.as_bytes());
        let why = format!("got more than {CONFIG_BYTES_MAX} bytes, expected a token");
        assert!(matches!(refused, Err(Error::Failed(text)) if text.ends_with(&why)));
    }
}
