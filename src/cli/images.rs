//! `edged images`: lists images in files and folders, imports them into containerd, or serves them.

use core::net::{Ipv4Addr, SocketAddr};
use std::io::Write;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use super::{Error, table};
use crate::config;
use crate::io::image_import::image_store::{ImageStore, full_name};
use crate::io::image_import::{import, serve};

/// Parses the arguments, runs the subcommand, and prints.
pub(super) fn run(
    mut args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    let verb = match args.next()? {
        Some(Value(verb)) => verb.string()?,
        _ => return Err(Error::Usage("expected list, import or serve".to_owned())),
    };
    let mut options = Options::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("config") => options.flags.extend(["--config".into(), args.value()?]),
            Long("runtime") => options.flags.extend(["--runtime".into(), args.value()?]),
            Long("listen") => options.listen = Some(loopback(&args.value()?.string()?)?),
            // Set by the agent, which restarts this process.
            Long("child-of") => options.parent = Some(args.value()?.parse()?),
            Value(path) => options.paths.push(PathBuf::from(path)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    match &*verb {
        "list" => list(options, out),
        "import" => import_archive(&options, out),
        "serve" => serve_images(options, trouble),
        _ => Err(Error::Usage(format!("got {verb:?}, expected list, import or serve"))),
    }
}

#[derive(Debug, Default)]
struct Options {
    paths: Vec<PathBuf>,
    flags: Vec<std::ffi::OsString>,
    listen: Option<SocketAddr>,
    parent: Option<i32>,
}

impl Options {
    fn settings(&self) -> Result<config::Config, Error> {
        Ok(config::load(&self.flags, Some("localhost".to_owned()))?.config)
    }
}

fn loopback(text: &str) -> Result<SocketAddr, Error> {
    let expected = "a loopback address and a port such as 127.0.0.1:10351";
    let wrong = || Error::Usage(format!("--listen: got {text:?}, expected {expected}"));
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    // It has no authentication.
    if address.ip().is_loopback() { Ok(address) } else { Err(wrong()) }
}

fn list(mut options: Options, out: &mut dyn Write) -> Result<u8, Error> {
    if options.paths.is_empty() {
        options.paths = options.settings()?.image_folders.iter().map(PathBuf::from).collect();
    }
    if options.paths.is_empty() {
        let why = "no folder is configured (imageFolders in edgecore.yaml), and none was given";
        return Err(Error::Failed(why.to_owned()));
    }
    let mut store = ImageStore::default();
    store.scan(&options.paths);
    let mut rows = vec![["NAME", "DIGEST", "FROM"].map(str::to_owned).to_vec()];
    let mut troubles = Vec::new();
    let shown = |path: &Path| path.display().to_string();
    for (path, found) in store.images() {
        match found {
            Ok(image) => {
                let digest = image.descriptor.digest.chars().take(19).collect();
                rows.push(vec![full_name(image), digest, shown(path)]);
            }
            Err(why) => troubles.push(format!("{}: {why}", shown(path))),
        }
    }
    let mut columns = table::Columns::default();
    for row in &rows {
        columns.fit(row);
    }
    for row in &rows {
        columns.print(row, out)?;
    }
    for trouble in &troubles {
        writeln!(out, "NOT USED  {trouble}")?;
    }
    Ok(u8::from(!troubles.is_empty()))
}

fn import_archive(options: &Options, out: &mut dyn Write) -> Result<u8, Error> {
    let [file] = &options.paths[..] else {
        return Err(Error::Usage("import: expected one archive".to_owned()));
    };
    let runtime = options.settings()?.runtime;
    for name in import(file, &runtime)? {
        writeln!(out, "{name}")?;
    }
    Ok(0)
}

fn serve_images(options: Options, trouble: &mut dyn Write) -> Result<u8, Error> {
    if options.paths.is_empty() {
        return Err(Error::Usage("serve: expected folders or archives".to_owned()));
    }
    crate::io::log::open(log::LevelFilter::Info);
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10_351);
    let address = options.listen.unwrap_or(any);
    let ended = serve(address, options.paths, options.parent, &mut |bound| {
        let _ = writeln!(trouble, "images are served on {bound}");
    });
    Err(Error::Failed(ended))
}
