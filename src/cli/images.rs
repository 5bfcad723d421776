//! `edged images`: what files and folders have, into containerd with it, or a registry of it.

use core::net::{Ipv4Addr, SocketAddr};
use std::io::Write;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use super::{Error, table};
use crate::config;
use crate::io::image_import::image_store::{ImageStore, full_name};
use crate::io::image_import::{import, serve};

/// Reads the words, does it, prints.
pub(super) fn run(
    mut args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    let verb = match args.next()? {
        Some(Value(verb)) => verb.string()?,
        _ => return Err(Error::Usage("expected list, import or serve".to_owned())),
    };
    let mut asked = Asked::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("config") => asked.flags.extend(["--config".into(), args.value()?]),
            Long("runtime") => asked.flags.extend(["--runtime".into(), args.value()?]),
            Long("listen") => asked.listen = Some(loopback(&args.value()?.string()?)?),
            // Of the agent, which keeps this process going.
            Long("child-of") => asked.parent = Some(args.value()?.parse()?),
            Value(path) => asked.paths.push(PathBuf::from(path)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    match &*verb {
        "list" => list(asked, out),
        "import" => bring(&asked, out),
        "serve" => stand(asked, trouble),
        _ => Err(Error::Usage(format!("got {verb:?}, expected list, import or serve"))),
    }
}

#[derive(Debug, Default)]
struct Asked {
    paths: Vec<PathBuf>,
    flags: Vec<std::ffi::OsString>,
    listen: Option<SocketAddr>,
    parent: Option<i32>,
}

impl Asked {
    fn settings(&self) -> Result<config::Config, Error> {
        Ok(config::load(&self.flags, Some("localhost".to_owned()))?.config)
    }
}

fn loopback(said: &str) -> Result<SocketAddr, Error> {
    let expected = "a loopback address and a port such as 127.0.0.1:10351";
    let wrong = || Error::Usage(format!("--listen: got {said:?}, expected {expected}"));
    let address: SocketAddr = said.parse().map_err(|_| wrong())?;
    // It asks nobody who they are.
    if address.ip().is_loopback() { Ok(address) } else { Err(wrong()) }
}

fn list(mut asked: Asked, out: &mut dyn Write) -> Result<u8, Error> {
    if asked.paths.is_empty() {
        asked.paths = asked.settings()?.image_folders.iter().map(PathBuf::from).collect();
    }
    if asked.paths.is_empty() {
        let why = "no folder is configured (imageFolders in edgecore.yaml), and none was named";
        return Err(Error::Failed(why.to_owned()));
    }
    let mut shelf = ImageStore::default();
    shelf.look(&asked.paths);
    let mut rows = vec![["NAME", "DIGEST", "FROM"].map(str::to_owned).to_vec()];
    let mut troubles = Vec::new();
    let shown = |path: &Path| path.display().to_string();
    for (path, found) in shelf.images() {
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

fn bring(asked: &Asked, out: &mut dyn Write) -> Result<u8, Error> {
    let [file] = &asked.paths[..] else {
        return Err(Error::Usage("import: expected one archive".to_owned()));
    };
    let runtime = asked.settings()?.runtime;
    for name in import(file, &runtime).map_err(Error::Failed)? {
        writeln!(out, "{name}")?;
    }
    Ok(0)
}

fn stand(asked: Asked, trouble: &mut dyn Write) -> Result<u8, Error> {
    if asked.paths.is_empty() {
        return Err(Error::Usage("serve: expected folders or archives".to_owned()));
    }
    crate::io::log::open(log::LevelFilter::Info);
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10_351);
    let address = asked.listen.unwrap_or(any);
    let ended = serve(address, asked.paths, asked.parent, &mut |bound| {
        let _ = writeln!(trouble, "images are served on {bound}");
    });
    Err(Error::Failed(ended))
}
