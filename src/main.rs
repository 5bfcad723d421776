//! The commands of the one binary: `edged run`, its children `edged job`, the monitors of the
//! built-in runtime, and those of `cli`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use edged::cli::help::{self, Program};
use edged::config::{self, Config, Error, Loaded};
use edged::{cli, io};

const EDGED: Program = Program {
    name: "edged",
    about: "runs the pods of a manifest folder and of a KubeEdge cloud, on a runtime (CRI v1)",
    pages: cli::PAGES,
};

fn main() -> ExitCode {
    io::sys::guard_memory();
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = help::common(&EDGED, &args) {
        return ExitCode::from(code);
    }
    let (command, rest) = args.split_first().expect("without arguments it is help");
    match command.to_str() {
        Some("run") => run(rest),
        Some("runtime") if rest.first().is_some_and(|verb| verb == "ps") => {
            command_line("runtime ps", &rest[1..])
        }
        #[cfg(feature = "runtime")]
        Some("runtime") => match cli::runtime_settings(lexopt::Parser::from_args(rest)) {
            Ok((settings, environment)) => io::builtin::server::run(settings, &environment),
            Err(code) => ExitCode::from(code),
        },
        Some("job") => {
            let kind = rest.first().cloned().unwrap_or_default();
            io::job::child(&kind.to_string_lossy())
        }
        #[cfg(feature = "runtime")]
        Some("pause") => io::builtin::pause::run(rest.first().unwrap_or(&OsString::new()).as_ref()),
        #[cfg(feature = "runtime")]
        Some("monitor") => io::builtin::monitor::main(rest),
        #[cfg(feature = "services")]
        Some("services") if rest.first().is_some_and(|verb| verb == "serve") => {
            io::log::open(log::LevelFilter::Info);
            io::services::server::main(&rest[1..])
        }
        Some(command) if cli::has(command) => command_line(command, rest),
        _ => ExitCode::from(help::wrong(&EDGED, command)),
    }
}

fn command_line(command: &str, args: &[OsString]) -> ExitCode {
    let args = lexopt::Parser::from_args(args);
    let (mut out, mut trouble) = (std::io::stdout().lock(), std::io::stderr().lock());
    ExitCode::from(cli::main(command, args, &mut out, &mut trouble))
}

fn run(flags: &[OsString]) -> ExitCode {
    let loaded = match config::load(flags, io::sys::hostname()) {
        Ok(loaded) => loaded,
        Err(error) => return usage(&error),
    };
    io::log::open(loaded.config.log);
    log::info!("the runtime is {}: {}", loaded.config.runtime, loaded.runtime_reason);
    cli::warn_unprivileged();
    io::run(log_warnings(loaded), &mut || {
        config::load(flags, io::sys::hostname()).map(log_warnings)
    })
}

/// Logs the warnings.
fn log_warnings(loaded: Loaded) -> Config {
    for warning in loaded.warnings() {
        log::warn!("{warning}");
    }
    loaded.config
}

fn usage(why: &Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "edged run: {why}; `edged run --help` says more");
    ExitCode::from(2)
}
