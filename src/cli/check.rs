//! `edged check`: finds what is missing on this machine before a pod fails for it, with a remedy
//! each. Changes nothing.

#[cfg(feature = "runtime")]
mod builtin;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "devices")]
mod devices;
mod judge;
#[cfg(feature = "metaserver")]
mod metaserver;
mod remedy;
#[cfg(feature = "services")]
mod services;

use std::io::Write;

use super::Error;
use super::table::Columns;
use crate::io::diagnostics::{self, Room};
use crate::model::error::System;

/// Checks and prints; returns 1 if something is missing that edged needs.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let flags: Vec<_> = args.raw_args()?.collect();
    let facts = diagnostics::gather(&flags).map_err(|error| Error::Usage(error.to_string()))?;
    let rows = judge::all(&facts);
    print(&rows, out)?;
    Ok(u8::from(rows.iter().any(|row| row.verdict == Verdict::Fail)))
}

fn print(rows: &[Row], out: &mut dyn Write) -> std::io::Result<()> {
    let mut columns = Columns::default();
    let name = |row: &Row| format!("{}:", row.name);
    for row in rows {
        columns.fit(&[row.verdict.word(), &name(row), ""]);
    }
    for row in rows {
        columns.print(&[row.verdict.word(), &name(row), &row.detail], out)?;
        if let Some(remedy) = &row.remedy {
            columns.print(&["", "", &format!("→ {remedy}")], out)?;
        }
    }
    Ok(())
}

/// One line of the report, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    pub verdict: Verdict,
    pub name: &'static str,
    pub detail: String,
    pub remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Some pods will fail.
    Warn,
    /// No pod runs without it.
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

fn ok(name: &'static str, detail: impl Into<String>) -> Row {
    Row { verdict: Verdict::Ok, name, detail: detail.into(), remedy: None }
}

fn warn(name: &'static str, detail: impl Into<String>, remedy: &str) -> Row {
    let remedy = Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty());
    Row { verdict: Verdict::Warn, name, detail: detail.into(), remedy }
}

fn fail(name: &'static str, detail: impl Into<String>, remedy: &str) -> Row {
    Row { verdict: Verdict::Fail, ..warn(name, detail, remedy) }
}

/// A folder that is written to, and the flag that names another one.
fn place(name: &'static str, room: &Result<Room, System>, flag: &str) -> Row {
    let room = match room {
        Ok(room) => room,
        Err(why) => {
            return fail(name, why.to_string(), &format!("name another folder with {flag}"));
        }
    };
    let Room { path, writable, free_bytes, bytes, free_inodes, inodes } = room;
    let free_mb = free_bytes >> 20;
    let detail = format!("{path} has {free_mb} MiB of {} MiB free", bytes >> 20);
    if !writable {
        let remedy = format!(
            "run as root on a file system that is mounted for writing, or name another folder \
             with {flag}"
        );
        fail(name, format!("{path} cannot be written to"), &remedy)
    } else if *inodes > 0 && *free_inodes < inodes / 50 {
        let detail = format!("{path} has {free_inodes} of {inodes} inodes left");
        warn(name, detail, "remove small files, or make the file system with more inodes")
    } else if *free_bytes < FREE_MIN_BYTES {
        warn(name, detail, "make room, or let old images go: crictl rmi --prune")
    } else {
        ok(name, detail)
    }
}

/// What a few pods write in a day.
const FREE_MIN_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns_with_their_remedies() {
        let row = |verdict, name, detail: &str, remedy: Option<&str>| Row {
            verdict,
            name,
            detail: detail.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let rows = [
            row(Verdict::Ok, "kernel", "6.1.0", None),
            row(Verdict::Fail, "cgroups", "none", Some("mount them")),
        ];
        let mut out = Vec::new();
        print(&rows, &mut out).expect("writes to memory");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "ok     kernel:    6.1.0\n\
             fail   cgroups:   none\n                  → mount them\n"
        );
    }
}
