//! `edged verify-release`: verifies that an edged was signed by the release key. `edged-run` runs
//! it before an upgrade, and an operator may.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use lexopt::prelude::*;

use super::Error;
use crate::io::release::{KEYS, verify};

/// Prints the file's name if its signature is valid.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut program, mut key, mut signature): (Option<OsString>, _, _) = (None, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("key") => key = Some(args.value()?),
            Long("signature") => signature = Some(args.value()?),
            Value(file) if program.is_none() => program = Some(file),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let program = program.ok_or_else(|| Error::Usage("got no FILE".to_owned()))?;
    let signature = signature.unwrap_or_else(|| {
        let mut beside = program.clone();
        beside.push(".sig");
        beside
    });
    let key = key.unwrap_or_else(|| KEYS.into());
    verify(Path::new(&program), Path::new(&signature), Path::new(&key))?;
    writeln!(out, "{} is signed by the release key", program.display())?;
    Ok(0)
}
