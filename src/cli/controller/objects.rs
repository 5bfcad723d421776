//! `edgecontroller get KIND`: prints objects of kinds without a table of their own.

use std::io::Write;

use serde_json::Value;

use crate::cli::list::{self, Options};
use crate::cli::table::Columns;
use crate::cli::{Error, age};
use crate::io::client;
use crate::model::api::Kind;

/// Parses the flags, requests the objects and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write, kind: Kind) -> Result<u8, Error> {
    let options = Options::parse(args, list::CONTROLLER)?;
    let plural = kind.plural();
    if options.watch {
        return Err(Error::Usage(format!("{plural}: there is no --watch of them")));
    }
    let version = kind.api_version();
    let root = if version.contains('/') { "apis" } else { "api" };
    let path = format!("/{root}/{version}/{plural}");
    let list = options.fetch(&options.agent(list::CONTROLLER)?, &path, "metadata")?;
    options.expect_named(&list, plural)?;
    if options.print_whole(&list, out)? {
        return Ok(0);
    }
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        writeln!(out, "No {plural}.")?;
        return Ok(0);
    }
    let from = usize::from(!kind.is_namespaced());
    let mut rows = vec![["NAMESPACE", "NAME", "AGE"].map(str::to_owned)];
    let now = client::wall_s();
    rows.extend(items.iter().map(|item| row(item, now)));
    let mut columns = Columns::default();
    columns.print_all(&rows, from, out)?;
    Ok(0)
}

fn row(item: &Value, now: Option<i64>) -> [String; 3] {
    let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
    let age = match (age::seconds(text("creationTimestamp")), now) {
        (Some(at), Some(now)) => age::short(now - at),
        _ => "<unknown>".to_owned(),
    };
    [text("namespace").to_owned(), text("name").to_owned(), age]
}
