//! `edged images`: the images of the runtime and of files and folders. Lists them; pulls and
//! removes the runtime's; imports archives, or serves them.

use core::net::{Ipv4Addr, SocketAddr};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lexopt::prelude::*;

use super::{Error, table};
use crate::config::{self, Config};
use crate::io::image_import::image_store::{ImageStore, full_name};
use crate::io::image_import::{import, serve};
use crate::io::runtime::blocking::Client;
use crate::limits::{CHECK_RUNTIME_MS, PULL_DEADLINE_MS};
use crate::model::cri::{Auth, Container, Reply, Request, SandboxConfig};
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{self, Input};
use crate::model::housekeeping::{HousekeepingCall, HousekeepingReply, StoredImage};

/// Parses the arguments, runs the subcommand, and prints.
pub(super) fn run(
    mut args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    const VERBS: &str = "list, pull, rm, import or serve";
    let verb = match args.next()? {
        Some(Value(verb)) => verb.string()?,
        _ => return Err(Error::Usage(format!("expected {VERBS}"))),
    };
    let mut options = Options::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("config") => options.flags.extend(["--config".into(), args.value()?]),
            Long("runtime") => {
                options.names_runtime = true;
                options.flags.extend(["--runtime".into(), args.value()?]);
            }
            Long("listen") => options.listen = Some(loopback(&args.value()?.string()?)?),
            Long("username") if verb == "pull" => options.user = Some(args.value()?.string()?),
            Long("force") if verb == "rm" => options.force = true,
            // Set by the agent, which restarts this process.
            Long("child-of") => options.parent = Some(args.value()?.parse()?),
            Value(path) => options.paths.push(PathBuf::from(path)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    match &*verb {
        "list" => list(options, out, trouble),
        "pull" => pull(&options, out, trouble),
        "rm" => remove(&options, out, trouble),
        "import" => import_archive(&options, out, trouble),
        "serve" => serve_images(options, trouble),
        _ => Err(Error::Usage(format!("got {verb:?}, expected {VERBS}"))),
    }
}

#[derive(Debug, Default)]
struct Options {
    paths: Vec<PathBuf>,
    flags: Vec<std::ffi::OsString>,
    listen: Option<SocketAddr>,
    parent: Option<i32>,
    user: Option<String>,
    force: bool,
    names_runtime: bool,
}

impl Options {
    fn settings(&self) -> Result<Config, Error> {
        Ok(config::load(&self.flags, Some("localhost".to_owned()))?.config)
    }

    /// The names of images.
    fn names(&self, verb: &str) -> Result<Vec<&str>, Error> {
        if self.paths.is_empty() {
            return Err(Error::Usage(format!("{verb}: expected names of images")));
        }
        let names = self.paths.iter().map(|path| {
            let wrong = || Error::Usage(format!("got {}, expected UTF-8", path.display()));
            path.to_str().ok_or_else(wrong)
        });
        names.collect()
    }

    fn runtime(&self) -> Result<Client, Error> {
        connect(&self.settings()?.runtime)
    }
}

pub(super) fn connect(runtime: &RuntimeEndpoint) -> Result<Client, Error> {
    Ok(Client::connect(runtime).map_err(|error| error.at(runtime))?)
}

/// An answer that does not belong to its call.
pub(super) fn unexpected(reply: &Reply) -> Error {
    Error::Failed(format!("got the runtime's answer {}, expected another", reply.kind()))
}

fn loopback(text: &str) -> Result<SocketAddr, Error> {
    let expected = "a loopback address and a port such as 127.0.0.1:10351";
    let wrong = || Error::Usage(format!("--listen: got {text:?}, expected {expected}"));
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    // It has no authentication.
    if address.ip().is_loopback() { Ok(address) } else { Err(wrong()) }
}

fn list(options: Options, out: &mut dyn Write, trouble: &mut dyn Write) -> Result<u8, Error> {
    let settings = options.settings()?;
    // Folders that are named are looked at alone.
    let with_runtime = options.paths.is_empty() || options.names_runtime;
    let mut folders = options.paths;
    if folders.is_empty() {
        folders = settings.image_folders.iter().map(PathBuf::from).collect();
    }
    let mut rows = vec![["NAME", "DIGEST", "ID", "SIZE", "FROM"].map(str::to_owned).to_vec()];
    let mut silent = None;
    if with_runtime {
        match stored(&settings.runtime) {
            Ok(images) => rows.extend(images.iter().flat_map(rows_of)),
            Err(why) => silent = Some(why),
        }
    }
    let mut store = ImageStore::default();
    store.scan(&folders);
    let mut unusable = Vec::new();
    let shown = |path: &Path| path.display().to_string();
    for (path, found) in store.images() {
        match found {
            Ok(image) => {
                let digest = short(&image.descriptor.digest, 19);
                let none = || "-".to_owned();
                rows.push(vec![full_name(image), digest, none(), none(), shown(path)]);
            }
            Err(why) => unusable.push(format!("{}: {why}", shown(path))),
        }
    }
    if rows.len() == 1
        && unusable.is_empty()
        && let Some(why) = silent
    {
        return Err(why);
    }
    rows[1..].sort();
    let mut columns = table::Columns::default();
    columns.print_all(&rows, 0, out)?;
    for trouble in &unusable {
        writeln!(out, "NOT USED  {trouble}")?;
    }
    // What the folders have is of use without it.
    if let Some(Error::Failed(why)) = &silent {
        writeln!(trouble, "edged images list: without the runtime's images: {why}")?;
    }
    Ok(u8::from(!unusable.is_empty() || silent.is_some()))
}

fn stored(runtime: &RuntimeEndpoint) -> Result<Vec<StoredImage>, Error> {
    let request = Request::HousekeepingCall(HousekeepingCall::ListImages);
    match connect(runtime)?.call(&request, CHECK_RUNTIME_MS)? {
        Reply::HousekeepingCall(HousekeepingReply::Images(images)) => Ok(images),
        other => Err(unexpected(&other)),
    }
}

/// A row for each tag; an image without one has a row as well.
fn rows_of(image: &StoredImage) -> Vec<Vec<String>> {
    let (digests, tags): (Vec<&str>, Vec<&str>) =
        image.names.iter().map(|name| &**name).partition(|name| name.contains('@'));
    let repository = |tag: &str| match tag.rsplit_once(':') {
        Some((repository, rest)) if !rest.contains('/') => repository.to_owned(),
        _ => tag.to_owned(),
    };
    let of = |repository: &str| digests.iter().find_map(|it| it.strip_prefix(repository));
    let row = |name: String, digest: Option<&str>| {
        let digest = digest.map_or("-".to_owned(), |it| short(it.trim_start_matches('@'), 19));
        let size = format!("{:.1} MB", image.size as f64 / 1e6);
        vec![name, digest, short(image.id.trim_start_matches("sha256:"), 12), size, RUNTIME.into()]
    };
    if let ([], digest) = (&tags[..], digests.first()) {
        let parts = digest.and_then(|digest| digest.split_once('@'));
        return vec![row(parts.map_or("<none>", |it| it.0).to_owned(), parts.map(|it| it.1))];
    }
    tags.iter().map(|tag| row((*tag).to_owned(), of(&repository(tag)))).collect()
}

/// Where the images of the runtime come from, in the list.
const RUNTIME: &str = "runtime";

/// The beginning of an id or a digest.
pub(super) fn short(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// On a terminal: what is being done, and since when, in one line that is written again and again.
struct Progress {
    what: String,
    is_shown: bool,
}

impl Progress {
    fn new(what: String) -> Self {
        Self { what, is_shown: false }
    }

    fn show(&mut self, ms: u64) {
        let mut terminal = std::io::stderr();
        if terminal.is_terminal() {
            // It is of no use where it cannot be written.
            let _ = write!(terminal, "\r{}: {} s", self.what, ms / 1_000);
            let _ = terminal.flush();
            self.is_shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let blank = " ".repeat(self.what.chars().count() + 12);
            let _ = write!(std::io::stderr(), "\r{blank}\r");
        }
    }
}

fn pull(options: &Options, out: &mut dyn Write, trouble: &mut dyn Write) -> Result<u8, Error> {
    let names = options.names("pull")?;
    let auth = options.user.as_deref().map(password).transpose()?;
    let mut runtime = options.runtime()?;
    let mut failed = false;
    for name in names {
        let request = Request::PullImage {
            image: name.into(),
            auth: auth.clone(),
            sandbox_config: Box::new(SandboxConfig::default()),
        };
        let mut progress = Progress::new(format!("pulling {name}"));
        let pulled = runtime.call_with(&request, PULL_DEADLINE_MS, &mut |ms| progress.show(ms));
        drop(progress);
        match pulled {
            Ok(Reply::Pulled(id)) => writeln!(out, "{name} {id}")?,
            Ok(other) => return Err(unexpected(&other)),
            Err(why) => {
                failed = true;
                writeln!(trouble, "edged images pull: {name}: {why}")?;
            }
        }
    }
    Ok(u8::from(failed))
}

/// The password is the first line of standard input.
fn password(user: &str) -> Result<Auth, Error> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Error::Failed(format!("cannot read a password from stdin: {error}")))?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let why = "--username: got no password, expected one on standard input";
        return Err(Error::Usage(why.to_owned()));
    }
    Ok(Auth { username: user.into(), password: password.into() })
}

fn remove(options: &Options, out: &mut dyn Write, trouble: &mut dyn Write) -> Result<u8, Error> {
    let names = options.names("rm")?;
    let mut runtime = options.runtime()?;
    let Reply::Containers(containers) = runtime.call(&Request::ListContainers, CHECK_RUNTIME_MS)?
    else {
        return Err(Error::Failed("got another answer to ListContainers".to_owned()));
    };
    let mut failed = false;
    for name in names {
        let image = match runtime.call(&Request::ImageStatus(name.into()), CHECK_RUNTIME_MS)? {
            Reply::Image(image) => image,
            other => return Err(unexpected(&other)),
        };
        match remove_one(&mut runtime, image.map(|image| image.id), &containers, options.force) {
            Ok(()) => writeln!(out, "{name}")?,
            Err(why) => {
                failed = true;
                writeln!(trouble, "edged images rm: {name}: {why}")?;
            }
        }
    }
    Ok(u8::from(failed))
}

/// `id`: of the image, if there is one of this name.
fn remove_one(
    runtime: &mut Client,
    id: Option<Box<str>>,
    containers: &[Arc<Container>],
    force: bool,
) -> Result<(), error::Error> {
    let id = id.ok_or_else(|| Input::other("there is no such image"))?;
    let user = containers.iter().find(|container| container.image_id == id);
    if let Some(user) = user.filter(|_| !force) {
        let (id, name) = (short(&user.id.0, 12), &user.name);
        let why = format!("container {id} ({name}) uses it; --force removes it all the same");
        return Err(Input::other(why).into());
    }
    let call = Request::HousekeepingCall(HousekeepingCall::RemoveImage(id));
    runtime.call(&call, PULL_DEADLINE_MS).map(drop)
}

fn import_archive(
    options: &Options,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> Result<u8, Error> {
    if options.paths.is_empty() {
        return Err(Error::Usage("import: expected archives".to_owned()));
    }
    let runtime = options.settings()?.runtime;
    let mut failed = false;
    for file in &options.paths {
        let mut progress = Progress::new(format!("importing {}", file.display()));
        let imported = import(file, &runtime, &mut |ms| progress.show(ms));
        drop(progress);
        match imported {
            Ok(names) => {
                for name in names {
                    writeln!(out, "{name}")?;
                }
            }
            Err(why) if options.paths.len() == 1 => return Err(why.into()),
            Err(why) => {
                failed = true;
                writeln!(trouble, "edged images import: {}: {why}", file.display())?;
            }
        }
    }
    Ok(u8::from(failed))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_of_an_image_has_a_row() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let image = |names: &[&str]| StoredImage {
            id: format!("sha256:{}", "2".repeat(64)).into(),
            names: names.iter().map(|name| (*name).into()).collect(),
            size: 2_150_000,
            pinned: false,
        };
        let rows = |names: &[&str]| {
            rows_of(&image(names)).into_iter().map(|row| row.join(" ")).collect::<Vec<_>>()
        };
        let rest = "222222222222 2.1 MB runtime";
        let named = format!("h:5000/a@{digest}");
        assert_eq!(
            rows(&["h:5000/a:1", "h:5000/b:2", &named]),
            [format!("h:5000/a:1 sha256:111111111111 {rest}"), format!("h:5000/b:2 - {rest}")]
        );
        assert_eq!(rows(&[&named]), [format!("h:5000/a sha256:111111111111 {rest}")]);
        assert_eq!(rows(&[]), [format!("<none> - {rest}")]);
    }
}
