//! The commands of the cloud side: `edgecontroller run`, and those for its operator.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use edged::cli::help::{self, Program};
use edged::io::controller::settings::Settings;
use edged::model::error::Input;
use edged::{cli, io};

const EDGECONTROLLER: Program = Program {
    name: "edgecontroller",
    about: "the cloud side of KubeEdge: serves the nodes that dial it",
    pages: cli::controller::PAGES,
};

fn main() -> ExitCode {
    io::sys::guard_memory();
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = help::common(&EDGECONTROLLER, &args) {
        return ExitCode::from(code);
    }
    let (command, rest) = args.split_first().expect("without arguments it is help");
    match command.to_str() {
        Some("run") => run(rest),
        Some("job") => {
            let kind = rest.first().cloned().unwrap_or_default();
            io::controller::child(&kind.to_string_lossy())
        }
        Some(command) if cli::controller::has(command) => {
            let args = lexopt::Parser::from_args(rest);
            let (mut out, mut trouble) = (std::io::stdout().lock(), std::io::stderr().lock());
            ExitCode::from(cli::controller::main(command, args, &mut out, &mut trouble))
        }
        _ => ExitCode::from(help::wrong(&EDGECONTROLLER, command)),
    }
}

fn run(flags: &[OsString]) -> ExitCode {
    match Settings::parse(flags.iter().cloned(), io::sys::hostname()) {
        Ok(settings) => {
            io::log::open(settings.log);
            io::controller::run(settings)
        }
        Err(wrong) => usage(&wrong),
    }
}

fn usage(why: &Input) -> ExitCode {
    let _ = writeln!(
        std::io::stderr(),
        "edgecontroller run: {why}; `edgecontroller run --help` says more"
    );
    ExitCode::from(2)
}
