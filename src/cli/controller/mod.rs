//! The commands of `edgecontroller` beside `run`: they ask the controller that runs on this
//! machine, or read its keys.
//!
//! Exit codes are those of [`super`].

mod nodes;

use std::io::Write;

use lexopt::prelude::*;

use super::{Error, pods};
use crate::io::client;
use crate::io::controller::authority;
use crate::io::controller::settings::Settings;
use crate::limits::TOKEN_LIFE_S;

/// The commands, for `edgecontroller help`.
pub const HELP: &str =
    "  edgecontroller get nodes|pods    print them: -n NAMESPACE, -o wide or json, -w: watch
  edgecontroller token             print a token with which new nodes join for a day: [--data DIR];
                                   --node NAME: once, and for this node, which may exist
  edgecontroller apply -f FILE     put the objects of a manifest into the folder (- : stdin)
  edgecontroller delete KIND NAME  take an object out: [-n NAMESPACE]
  (they ask the controller at 127.0.0.1:10020, or at --server ADDR:PORT)
";

/// Whether [`main`] has the command.
pub fn has(command: &str) -> bool {
    matches!(command, "get" | "token" | "apply" | "delete")
}

/// Runs a command that [`has`] knows; returns the exit code.
pub fn main(
    command: &str,
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
) -> u8 {
    let done = match command {
        "get" => get(args, out),
        "token" => token(args, out),
        "apply" => apply(args, out),
        _ => delete(args, out),
    };
    super::end("edgecontroller", command, done, out, trouble)
}

fn get(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    match args.value()?.to_str() {
        Some("pods" | "pod" | "po") => pods::show(args, out, "/api/v1/pods", client::controller),
        Some("nodes" | "node" | "no") => nodes::run(args, out),
        other => {
            let got = other.unwrap_or_default();
            Err(Error::Usage(format!("got {got:?}, expected nodes or pods")))
        }
    }
}

fn token(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut settings, mut node) = (Settings::default(), None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("data") => settings.data = args.value()?.into(),
            Long("node") => node = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let now_s = client::wall_s();
    let now_s = now_s.ok_or_else(|| Error::Failed("this machine's clock is not set".to_owned()))?;
    let token = authority::token(&settings.pki(), node.as_deref(), now_s, now_s + TOKEN_LIFE_S);
    let token = token.map_err(Error::Failed)?;
    writeln!(out, "{token}")?;
    Ok(0)
}

fn apply(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut file, mut server) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Short('f') | Long("filename") => file = Some(args.value()?),
            Long("server") => server = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let file = file.ok_or_else(|| Error::Usage("expected -f FILE".to_owned()))?;
    let manifest = client::read_whole(&file).map_err(Error::Failed)?;
    let controller = client::controller(server.as_deref()).map_err(Error::Usage)?;
    let said = controller.ask("POST", "/apply", &manifest);
    // A place in the text follows the file's name.
    let said = said.map_err(|why| Error::Failed(format!("{}: {why}", file.display())))?;
    out.write_all(&said)?;
    Ok(0)
}

fn delete(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut words, mut namespace, mut server) = (Vec::new(), "default".to_owned(), None);
    while let Some(arg) = args.next()? {
        match arg {
            Short('n') | Long("namespace") => namespace = args.value()?.string()?,
            Long("server") => server = Some(args.value()?.string()?),
            Value(word) => words.extend(word.string()?.split('/').map(str::to_owned)),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let [kind, name] = &words[..] else {
        return Err(Error::Usage("expected a kind and a name, such as pod web".to_owned()));
    };
    let path = path_of(kind, &namespace, name).ok_or_else(|| {
        Error::Usage(format!("got the kind {kind:?}, expected pod, node, configmap or the like"))
    })?;
    let controller = client::controller(server.as_deref()).map_err(Error::Usage)?;
    let said = controller.ask("DELETE", &path, b"").map_err(Error::Failed)?;
    if said.starts_with(b"{") {
        writeln!(out, "{kind} {name} deleted")?;
    } else {
        out.write_all(&said)?;
    }
    Ok(0)
}

/// Of an object by the words of a person.
fn path_of(kind: &str, namespace: &str, name: &str) -> Option<String> {
    use crate::model::api::{Call, Kind, Verb};
    let kind = kind.to_ascii_lowercase();
    let named = |known: &Kind| {
        let single = known.name().to_ascii_lowercase();
        kind == single || kind == known.plural()
    };
    let kind = Kind::ALL.into_iter().find(named)?;
    let namespace = if kind.is_namespaced() { namespace } else { "" };
    let call = Call {
        verb: Verb::Delete,
        kind,
        namespace: namespace.into(),
        name: name.into(),
        subresource: None,
        body: None,
    };
    Some(crate::wire::rest::of_call(&call).path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, args: &[&str]) -> (u8, String) {
        let (mut out, mut trouble) = (Vec::new(), Vec::new());
        let code = main(command, lexopt::Parser::from_args(args), &mut out, &mut trouble);
        (code, String::from_utf8(trouble).expect("text"))
    }

    #[test]
    fn wrong_command_lines_are_named() {
        for (command, args, expected) in [
            ("get", &["things"][..], "got \"things\", expected nodes or pods"),
            ("apply", &[], "expected -f FILE"),
            ("delete", &["pod"], "expected a kind and a name"),
            ("delete", &["thing", "x"], "got the kind \"thing\""),
            ("token", &["--what"], "invalid option '--what'"),
        ] {
            let (code, said) = run(command, args);
            assert_eq!(code, 2, "{said}");
            assert!(said.contains(expected), "{said}");
        }
        let (code, said) = run("token", &["--data", "/nowhere"]);
        assert_eq!(code, 1, "{said}");
    }

    #[test]
    fn objects_are_named_as_people_name_them() {
        let web = "/api/v1/namespaces/default/pods/web";
        for kind in ["pod", "pods", "Pod"] {
            assert_eq!(path_of(kind, "default", "web").as_deref(), Some(web));
        }
        assert_eq!(path_of("node", "default", "gw").as_deref(), Some("/api/v1/nodes/gw"));
    }
}
