//! Help and completion of both programs: each command has its own page.

use std::ffi::OsString;
use std::io::Write;

/// A program and its commands.
#[derive(Debug)]
pub struct Program {
    /// The name of the program's file.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The pages of its commands, in the order of the help.
    pub pages: &'static [Page],
}

#[derive(Debug)]
pub struct Page {
    command: &'static str,
    /// The arguments of the command. Words in lower case are completed.
    usage: &'static str,
    /// A description in one line.
    what: &'static str,
    /// Lines; those that begin with `-` are completed.
    options: &'static str,
}

pub const fn page(
    command: &'static str,
    usage: &'static str,
    what: &'static str,
    options: &'static str,
) -> Page {
    Page { command, usage, what, options }
}

/// The page of the completion itself.
pub const COMPLETION: Page = page(
    "completion",
    "bash",
    "print the completion of these commands for bash",
    "Into ~/.bashrc: source <(PROGRAM completion bash)\n",
);
/// The page of the version.
pub const VERSION: Page = page("version", "", "print the version", "");

/// Runs a command that both programs have; returns the exit code. `None`: another command.
pub fn common(program: &Program, args: &[OsString]) -> Option<u8> {
    let word = |at: usize| args.get(at).and_then(|word| word.to_str());
    let page = |name: Option<&str>| program.pages.iter().find(|page| Some(page.command) == name);
    // What follows `--` belongs to the command that `exec` runs.
    let own = args.split(|word| word == "--").next().unwrap_or_default();
    let is_help = |word: &OsString| word == "--help" || word == "-h";
    let text = match word(0) {
        None if args.is_empty() => overview(program),
        Some("help" | "--help" | "-h") => match (args.len(), page(word(1))) {
            (1, _) => overview(program),
            (_, Some(page)) => one(program, page),
            (_, None) => return Some(wrong(program, &args[1])),
        },
        Some("version" | "--version" | "-V") => {
            format!("{} {}\n", program.name, env!("CARGO_PKG_VERSION"))
        }
        name => match page(name) {
            Some(page) if own.iter().any(is_help) => one(program, page),
            Some(page) if page.command == COMPLETION.command => {
                if args.len() != 2 || word(1) != Some("bash") {
                    let got = args.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
                    let why = format!("got {got:?}, expected bash");
                    let _ = writeln!(std::io::stderr(), "{} completion: {why}", program.name);
                    return Some(2);
                }
                completion(program)
            }
            _ => return None,
        },
    };
    Some(super::print(program.name, &text))
}

/// Reports an unknown command; returns the exit code.
pub fn wrong(program: &Program, command: &OsString) -> u8 {
    let (name, command) = (program.name, command.to_string_lossy());
    let _ = writeln!(
        std::io::stderr(),
        "{name}: got the command {command:?}, expected one that `{name} help` names"
    );
    2
}

fn overview(program: &Program) -> String {
    let Program { name, about, pages } = program;
    let mut text = format!("{name}: {about}\n\n");
    for page in *pages {
        text.push_str(&[&*format!("  {name} {:15}", page.command), page.what, "\n"].concat());
    }
    text.extend(["\n`", name, " COMMAND --help` says more.\n"]);
    text
}

fn one(program: &Program, page: &Page) -> String {
    let Page { command, usage, what, options } = page;
    let gap = if options.is_empty() { "" } else { "\n" };
    let options = options.replace("PROGRAM", program.name);
    format!("usage: {} {command} {usage}\n\n{what}\n{gap}{options}", program.name)
}

/// A function for bash. Anything that is no option or word is completed as a file.
fn completion(program: &Program) -> String {
    let name = program.name;
    let commands: Vec<&str> = program.pages.iter().map(|page| page.command).collect();
    let mut text = format!(
        "_{name}() {{\n  local words cur=${{COMP_WORDS[COMP_CWORD]}}\n  \
         if [ \"$COMP_CWORD\" = 1 ]; then words='help {}'\n  else case ${{COMP_WORDS[1]}} in\n",
        commands.join(" ")
    );
    for page in program.pages {
        text.extend(["  ", page.command, ") words='", &words(page).join(" "), "' ;;\n"]);
    }
    text + &format!(
        "  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}}\n\
             complete -o default -F _{name} {name}\n"
    )
}

/// The words that may follow a command.
fn words(page: &Page) -> Vec<&'static str> {
    let lower = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    let mut words: Vec<&str> = page.usage.split([' ', '|', '[', ']']).filter(lower).collect();
    for line in page.options.lines().filter(|line| line.starts_with("  ")) {
        let flags = line.trim_start().split([' ', ',']).filter(|word| !word.is_empty());
        words.extend(flags.take_while(|word| word.starts_with('-')));
    }
    words.push("--help");
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_completed() {
        let of = |name: &str| {
            let page = super::super::PAGES.iter().find(|page| page.command == name);
            words(page.expect("a page"))
        };
        let status = ["--connected", "--config", "--server", "--help"];
        assert_eq!(of("status"), status);
        assert_eq!(of("completion"), ["bash", "--help"]);
        assert_eq!(of("images")[..5], ["list", "pull", "rm", "import", "serve"]);
        assert_eq!(of("runtime")[..2], ["ps", "--config"]);
        assert!(of("pods").starts_with(&["-n", "--namespace", "-A"]));
        assert!(of("join").contains(&"--certport"));
    }

    #[test]
    fn the_name_of_the_program_stands_for_no_argument_of_an_option() {
        let lines = super::super::PAGES.iter().flat_map(|page| page.options.lines());
        let named: Vec<&str> = lines.filter(|line| line.contains("PROGRAM")).collect();
        assert!(matches!(&named[..], [line] if line.contains("PROGRAM completion")), "{named:?}");
    }
}
