//! `edged cp`: copies files and folders to and from a container, by a `tar` that runs in it.

use std::io::Write;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use super::Error;
use super::list::Api;
use super::remote::{self, Common, Pod, Target};
use crate::io::client::Agent;
use crate::io::client::copy::{Archive, Extract, Notes};
use crate::io::client::session::{End, Input, Session};
use crate::io::log::printable;
use crate::model;
use crate::wire::spdy::exec::{Exec, Outcome, Wanted};

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Local(PathBuf),
    /// `POD:PATH`, `NAMESPACE/POD:PATH`
    Remote {
        pod: String,
        path: String,
    },
}

impl Place {
    /// As kubectl: what has a colon is in a pod, unless it begins like a path.
    fn of(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((pod, path)) if !pod.starts_with(['.', '/']) && !pod.is_empty() => {
                if path.is_empty() {
                    return Err(Error::Usage(format!("got {text:?}, expected POD:PATH")));
                }
                Ok(Self::Remote { pod: pod.to_owned(), path: path.to_owned() })
            }
            _ => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

/// A connected copy.
struct Copy {
    agent: Agent,
    pod: Pod,
    container: String,
}

/// Copies; returns the exit code.
pub(super) fn run(
    mut args: lexopt::Parser,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let (mut target, mut places) = (Target::default(), Vec::new());
    while let Some(arg) = args.next()? {
        if let Some(option) = Common::of(&arg, api) {
            target.set(option, args.value()?.string()?);
            continue;
        }
        match arg {
            Value(place) => places.push(Place::of(&place.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    match &places[..] {
        [Place::Local(from), Place::Remote { pod, path }] => {
            target.pod = Some(pod.clone());
            Copy::new(&target, trouble, api)?.upload(from, path, trouble)
        }
        [Place::Remote { pod, path }, Place::Local(to)] => {
            target.pod = Some(pod.clone());
            Copy::new(&target, trouble, api)?.download(path, to, trouble)
        }
        _ => {
            let why = "expected a file and one in a pod: cp FILE POD:PATH, or cp POD:PATH FILE";
            Err(Error::Usage(why.to_owned()))
        }
    }
}

impl Copy {
    fn new(target: &Target, trouble: &mut dyn Write, api: Api) -> Result<Self, Error> {
        let agent = target.agent(api)?;
        let pod = target.find(&agent, api)?;
        let container = pod.choose(target.container.as_deref(), trouble)?;
        let container = remote::text(&container["name"]).to_owned();
        Ok(Self { agent, pod, container })
    }

    /// Runs a command in the container.
    fn exec(
        &self,
        command: &[&str],
        input: Input<'_>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<End, Error> {
        let stdin = !matches!(input, Input::None);
        let wanted = Wanted { stdin, stdout: true, stderr: true, tty: false };
        let mut query: Vec<_> = command.iter().map(|word| ("command", *word)).collect();
        query.extend(remote::query(wanted));
        let path = self.pod.path("exec", Some(&self.container), &query);
        let connection = remote::upgrade_exec(&self.agent, &path)?;
        let exec = Exec::new(wanted);
        let session = Session { connection, exec, input, out, err, terminal: None };
        // Standard output is an archive here.
        session.run().map_err(|error| Error::Failed(error.to_string()))
    }

    fn upload(&self, from: &Path, path: &str, trouble: &mut dyn Write) -> Result<u8, Error> {
        let failed = |error| Error::Failed(format!("{}: {error}", from.display()));
        let is_folder = {
            let (mut out, mut err) = (std::io::sink(), std::io::sink());
            let end = self.exec(&["test", "-d", path], Input::None, &mut out, &mut err)?;
            matches!(end, End::Outcome(Outcome::Exited(0)))
        };
        let target = if is_folder {
            let whole = from.canonicalize().map_err(failed)?;
            let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.ok_or_else(|| Error::Failed("cannot copy /".to_owned()))?;
            format!("{}/{name}", path.trim_end_matches('/'))
        } else {
            path.to_owned()
        };
        let (folder, name) = split(&target)?;
        let mut archive = Archive::new(from, &name).map_err(failed)?;
        let command = ["tar", "-xmf", "-", "-C", &folder];
        let mut out = std::io::sink();
        let end = self.exec(&command, Input::Source(Box::new(&mut archive)), &mut out, trouble)?;
        note(&archive.notes, trouble);
        if let End::Input(error) = end {
            return Err(Error::Failed(error.to_string()));
        }
        remote::exit_code(end, trouble)
    }

    fn download(&self, path: &str, to: &Path, trouble: &mut dyn Write) -> Result<u8, Error> {
        let (folder, name) = split(path)?;
        let member = format!("./{name}");
        let mut extract = Extract::new(&name, to);
        let command = ["tar", "-cf", "-", "-C", &folder, &member];
        let end = self.exec(&command, Input::None, &mut extract, trouble)?;
        note(&extract.notes, trouble);
        match remote::exit_code(end, trouble)? {
            0 => Ok(extract.finish().map(|()| 0).map_err(model::error::Error::from)?),
            code => Ok(code),
        }
    }
}

/// The folder of a path, and its last component; of `/` and of paths that end in `.` all is meant,
/// and the component is empty.
fn split(path: &str) -> Result<(String, String), Error> {
    let bare = path.trim_end_matches('/');
    let (folder, name) = match bare.rsplit_once('/') {
        Some((folder, name)) => (if folder.is_empty() { "/" } else { folder }, name),
        None if path.starts_with('/') => ("/", ""),
        None => (".", bare),
    };
    match name {
        ".." => Err(Error::Usage(format!("got {path:?}, expected a path that ends in a name"))),
        "." => Ok((folder.to_owned(), String::new())),
        _ => Ok((folder.to_owned(), name.to_owned())),
    }
}

fn note(notes: &Notes, trouble: &mut dyn Write) {
    for line in &notes.lines {
        let _ = writeln!(trouble, "warning: {}", printable(line));
    }
    if notes.more > 0 {
        let _ = writeln!(trouble, "warning: and {} more", notes.more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_colon_is_in_a_pod() {
        let remote = |pod: &str, path: &str| Place::Remote { pod: pod.into(), path: path.into() };
        for (text, place) in [
            ("web:/etc/a", remote("web", "/etc/a")),
            ("shop/web:a", remote("shop/web", "a")),
            ("a", Place::Local("a".into())),
            ("./a:b", Place::Local("./a:b".into())),
            ("/a:b", Place::Local("/a:b".into())),
            (":a", Place::Local(":a".into())),
        ] {
            assert_eq!(Place::of(text).expect(text), place, "{text}");
        }
        assert!(matches!(Place::of("web:"), Err(Error::Usage(_))));
    }

    #[test]
    fn a_path_is_a_folder_and_a_name_in_it() {
        for (path, folder, name) in [
            ("/etc/conf", "/etc", "conf"),
            ("/etc/conf/", "/etc", "conf"),
            ("/etc", "/", "etc"),
            ("/", "/", ""),
            ("conf", ".", "conf"),
            ("a/b", "a", "b"),
            (".", ".", ""),
            ("/srv/.", "/srv", ""),
        ] {
            let got = split(path).expect(path);
            assert_eq!((&*got.0, &*got.1), (folder, name), "{path}");
        }
        assert!(matches!(split("/srv/.."), Err(Error::Usage(_))));
    }
}
