//! `edged check`: finds what is missing on this machine before a pod fails for it, with a remedy
//! each. Changes nothing.

#[cfg(feature = "cloud")]
mod cloud;
mod judge;
mod remedy;

use std::io::Write;

use super::Error;
use super::table::Columns;
use crate::io::diagnostics;
use judge::Verdict;

/// Checks and prints; returns 1 if something is missing that edged needs.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let flags: Vec<_> = args.raw_args()?.collect();
    let facts = diagnostics::gather(&flags).map_err(|error| Error::Usage(error.to_string()))?;
    let rows = judge::all(&facts);
    print(&rows, out)?;
    Ok(u8::from(rows.iter().any(|row| row.verdict == Verdict::Fail)))
}

fn print(rows: &[judge::Row], out: &mut dyn Write) -> std::io::Result<()> {
    let mut columns = Columns::default();
    let name = |row: &judge::Row| format!("{}:", row.name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns_with_their_remedies() {
        let row = |verdict, name, detail: &str, remedy: Option<&str>| judge::Row {
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
