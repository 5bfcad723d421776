//! `edged upgrade confirm`: lets the upgrade go on that a job of the cloud asks for.

use std::io::Write;

use lexopt::prelude::*;

use super::Error;
use crate::io::client;
use crate::wire::http1::CONFIRM_UPGRADE;

/// Parses the flags, confirms, and prints the job.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut server, mut config, mut verb) = (None, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("server") => server = Some(args.value()?.string()?),
            Long("config") => config = Some(args.value()?.string()?),
            Value(word) if verb.is_none() => verb = Some(word.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    if verb.as_deref() != Some("confirm") {
        let got = verb.unwrap_or_default();
        return Err(Error::Usage(format!("upgrade: got {got:?}, expected confirm")));
    }
    let agent = client::agent(server.as_deref(), config.as_deref())?;
    writeln!(out, "{}", agent.post(CONFIRM_UPGRADE)?)?;
    Ok(0)
}
