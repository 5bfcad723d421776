//! `edged runtime`: serves CRI to the agent, and drives crun or runc.
//!
//! `edged runtime --choose [FLAGS OF run]` only prints which runtime an agent with these flags
//! takes: `named` or `chosen`, its endpoint, and the reason. `edged-run` asks it.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;
use log::LevelFilter;

use super::Error;
use crate::config::{self, Config};
use crate::io::builtin::environment::{self, Environment};
use crate::io::builtin::layout::{Layout, Settings};
use crate::limits::RUNTIME_HANDLERS_MAX;
use crate::model::endpoint::{BUILTIN, Framing};
use crate::model::error::Input;

/// What edgecore.yaml and the arguments say, and what this machine has. `None`: something was
/// printed instead.
pub(super) fn parse(
    mut args: lexopt::Parser,
    out: &mut dyn Write,
) -> Result<Option<(Settings, Environment)>, Error> {
    let (mut run, mut data, mut oci) = (None, None, None);
    let (mut plugins, mut conflists) = (None, None);
    let (mut handlers, mut level) = (Vec::new(), LevelFilter::Info);
    let mut file: Vec<OsString> = Vec::new();
    while let Some(arg) = args.next()? {
        let (name, folder) = match arg {
            Long("handler") => {
                add_handler(&mut handlers, &args.value()?.string()?)?;
                continue;
            }
            Long("config") => {
                file.extend(["--config".into(), args.value()?]);
                continue;
            }
            Long("log") => {
                level = args.value()?.parse()?;
                continue;
            }
            Long("choose") => {
                let flags: Vec<_> = args.raw_args()?.collect();
                return choose(&flags, out).map(|()| None);
            }
            Long("run-dir") => ("--run-dir", &mut run),
            Long("data-dir") => ("--data-dir", &mut data),
            Long("oci") => ("--oci", &mut oci),
            Long("cni-bin-dir") => ("--cni-bin-dir", &mut plugins),
            Long("cni-conf-dir") => ("--cni-conf-dir", &mut conflists),
            _ => return Err(arg.unexpected().into()),
        };
        *folder = Some(absolute(name, args.value()?.into())?);
    }
    let config = config::load(&file, Some("localhost".to_owned()))?.config;
    crate::io::log::open(level);
    let environment = environment::examine().map_err(|(reason, message)| {
        Error::Failed(format!("this machine cannot run containers: {reason}: {message}"))
    })?;
    for remark in &environment.remarks {
        log::warn!("{remark}");
    }
    let run = run.map_or_else(|| run_dir(&config), Ok)?;
    let usual = Settings::of(&config);
    let named = Some(usual.oci).filter(|named| !named.as_os_str().is_empty());
    let oci = oci.or(named).unwrap_or_else(|| environment.oci.clone());
    let layout = Layout::new(run, data.unwrap_or_else(|| usual.layout.data().to_path_buf()));
    let settings = Settings {
        handlers: environment::handlers(&oci, handlers, layout.data())
            .map_err(|why| Error::Failed(why.to_string()))?,
        layout,
        oci,
        cni_conf_dir: conflists.unwrap_or(usual.cni_conf_dir),
        cni_bin_dir: plugins.unwrap_or(usual.cni_bin_dir),
        registries: usual.registries,
    };
    Ok(Some((settings, environment)))
}

fn choose(flags: &[OsString], out: &mut dyn Write) -> Result<(), Error> {
    let loaded = config::load(flags, Some("localhost".to_owned()))?;
    let how = if loaded.config.runtime_is_named { "named" } else { "chosen" };
    Ok(writeln!(out, "{how} {} {}", loaded.config.runtime, loaded.runtime_reason)?)
}

/// The folder of the socket that the agent connects to.
fn run_dir(config: &Config) -> Result<PathBuf, Error> {
    let socket = match config.runtime.framing {
        Framing::Grpc => BUILTIN,
        Framing::Ttrpc => &config.runtime.socket,
    };
    socket.strip_suffix("/sock").map(PathBuf::from).ok_or_else(|| {
        let expected = "ttrpc:// and a path that ends with /sock, or --run-dir";
        Error::Failed(
            Input::new(&config.runtime, expected).at("containerRuntimeEndpoint").to_string(),
        )
    })
}

/// `NAME=PROGRAM`: a handler, as RuntimeClasses name it.
fn add_handler(all: &mut Vec<(String, PathBuf)>, text: &str) -> Result<(), Error> {
    let wrong =
        |expected: &str| Err(Error::Usage(format!("--handler: got {text:?}, expected {expected}")));
    let Some((name, program)) = text.split_once('=') else { return wrong("NAME=PROGRAM") };
    // The API server takes no other.
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = name.bytes().all(|byte| is_edge(&byte) || byte == b'-')
        && [name.as_bytes().first(), name.as_bytes().last()]
            .iter()
            .all(|at| at.is_some_and(is_edge))
        && name.len() <= 63;
    if !is_label {
        return wrong("a name of at most 63 letters a-z, digits and hyphens");
    }
    if all.iter().any(|(other, _)| other == name) {
        return wrong("each name once");
    }
    if all.len() >= RUNTIME_HANDLERS_MAX {
        return wrong(&format!("{RUNTIME_HANDLERS_MAX} handlers at most"));
    }
    all.push((name.to_owned(), absolute("--handler", program.into())?));
    Ok(())
}

fn absolute(option: &str, path: PathBuf) -> Result<PathBuf, Error> {
    if is_plain(&path) {
        return Ok(path);
    }
    let got = path.display();
    Err(Error::Usage(format!("{option}: got {got}, expected an absolute path without `..`")))
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_one_line_for_a_shell() {
        let line = |words: &[&str]| {
            let mut out = Vec::new();
            let parsed = parse(lexopt::Parser::from_args(words), &mut out);
            parsed.map(|server| {
                assert!(server.is_none(), "it serves");
                String::from_utf8(out).expect("text")
            })
        };
        let words = ["--choose", "--config=config/edgecore.yaml"];
        let named = [&words[..], &["--runtime", "builtin", "--log=warn"]].concat();
        let line_of = |words: &[&str]| line(words).expect("they are flags of `run`");
        assert_eq!(line_of(&named), "named ttrpc:///run/edged/rt/sock it is configured\n");
        assert!(line_of(&words).starts_with("chosen "), "{}", line_of(&words));
        let wrong = [&words[..], &["--runtime=tcp://x"]].concat();
        assert!(matches!(line(&wrong), Err(Error::Usage(_))));
    }

    #[test]
    fn folders_are_absolute() {
        for (path, plain) in
            [("/run/edged/rt", true), ("run", false), ("", false), ("/run/../etc", false)]
        {
            assert_eq!(absolute("--run-dir", path.into()).is_ok(), plain, "{path}");
        }
    }

    #[test]
    fn a_handler_is_a_name_and_a_program() {
        let mut all = Vec::new();
        for (text, expected) in [
            ("kata=/usr/bin/kata", ""),
            ("a-1=/a=b", ""),
            ("kata=/usr/bin/other", "each name once"),
            ("crun", "NAME=PROGRAM"),
            ("=/usr/bin/crun", "a name of at most 63"),
            ("-a=/usr/bin/crun", "a name of at most 63"),
            ("A=/usr/bin/crun", "a name of at most 63"),
            ("crun=crun", "an absolute path"),
        ] {
            match add_handler(&mut all, text) {
                Ok(()) => assert_eq!(expected, "", "{text}"),
                Err(Error::Usage(why)) => assert!(why.contains(expected), "{why}"),
                Err(other) => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(all[1], ("a-1".to_owned(), "/a=b".into()));
        for at in all.len()..RUNTIME_HANDLERS_MAX {
            add_handler(&mut all, &format!("h{at}=/h")).map_err(|_| at).expect("there is room");
        }
        assert!(add_handler(&mut all, "more=/h").is_err());
    }
}
