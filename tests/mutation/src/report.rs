//! The results of the mutants: kept from run to run, summed up by folder, survivors by file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::points::Mutant;
use crate::run::Verdict;

/// Known survivors, each with a reason: a line `identity | why`, in which `*` matches anything.
pub struct Accepted(Vec<(String, String)>);

impl Accepted {
    pub fn read(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| {
            let pair = line.rsplit_once(" | ");
            let (what, why) = pair.ok_or_else(|| format!("accepted.txt: why {line}?"))?;
            Ok((what.trim().to_owned(), why.trim().to_owned()))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    fn knows(&self, identity: &str) -> bool {
        self.0.iter().any(|(pattern, _)| fits(pattern, identity))
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    // Operators have stars as well; those stand between blanks.
    let pattern = pattern.replace(" * ", " \0 ");
    let text = text.replace(" * ", " \0 ");
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().expect("one at least")) else {
        return false;
    };
    let mut is_whole = true;
    for part in parts {
        is_whole = part.is_empty();
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        is_whole |= rest.is_empty();
    }
    is_whole && (pattern.ends_with('*') || rest.is_empty())
}

/// Which mutants a run covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Due {
    All,
    /// Those that nothing caught so far, and those without a result.
    NotCaught,
    /// Those without a result, as after a run that did not finish.
    Unknown,
}

/// The result of each mutant: level or nothing, by what, and where.
pub struct Results {
    file: File,
    known: BTreeMap<String, (String, String, String)>,
    due: Due,
}

impl Results {
    pub fn open(path: &Path, anew: bool, due: Due) -> Self {
        if anew {
            let _ = fs::remove_file(path);
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut known = BTreeMap::new();
        for line in text.lines() {
            if let [level, by, place, identity] = line.split('\t').collect::<Vec<_>>()[..] {
                known.insert(identity.into(), (level.into(), by.into(), place.into()));
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        Self { file: file.expect("results can be written"), known, due }
    }

    pub fn is_due(&self, identity: &str) -> bool {
        let Some((level, ..)) = self.known.get(identity) else { return true };
        match self.due {
            Due::All => true,
            Due::NotCaught => level == "SURVIVED" || level == "unreached",
            Due::Unknown => false,
        }
    }

    pub fn add(&mut self, mutant: &Mutant, verdict: &Verdict, line: usize) {
        let (level, by) = match verdict {
            Verdict::Unreached => ("unreached", ""),
            Verdict::Survived => ("SURVIVED", ""),
            Verdict::Caught(level, by) => (*level, by.as_str()),
        };
        let line = line.to_string();
        let identity = &mutant.identity;
        writeln!(self.file, "{level}\t{by}\t{line}\t{identity}").expect("there is room");
        if mutant.rule.is_some() && matches!(verdict, Verdict::Caught(..)) {
            println!("{identity}: {level} {by}");
        }
        self.known.insert(identity.clone(), (level.into(), by.into(), line));
    }
}

#[derive(Default)]
struct Row {
    caught: BTreeMap<String, usize>,
    unreached: usize,
    accepted: usize,
    survived: usize,
}

/// Prints the table and writes the survivors; returns whether all is well.
pub fn tell(
    results: &Results,
    known: &BTreeSet<&str>,
    accepted: &Accepted,
    dropped: usize,
    survivors: &Path,
) -> bool {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut left: BTreeMap<&str, Vec<(usize, String)>> = BTreeMap::new();
    let judged = results.known.iter().filter(|(identity, _)| known.contains(identity.as_str()));
    for (identity, (level, _, line)) in judged {
        let file = identity.split(' ').next().unwrap_or_default();
        let folder: Vec<&str> = file.split('/').collect();
        let folder = match folder[..] {
            [core, folder, _, ..] => format!("{core}/{folder}/"),
            _ => file.to_owned(),
        };
        let row = rows.entry(folder).or_default();
        match level.as_str() {
            "unreached" | "SURVIVED" if accepted.knows(identity) => row.accepted += 1,
            "unreached" | "SURVIVED" => {
                let is_reached = level != "unreached";
                *if is_reached { &mut row.survived } else { &mut row.unreached } += 1;
                let what = identity.split_once(' ').map_or("", |(_, what)| what);
                let line: usize = line.parse().unwrap_or_default();
                let mark = if is_reached { "" } else { "[unreached] " };
                left.entry(file).or_default().push((line, format!("{line}: {mark}{what}")));
            }
            level => *row.caught.entry(level.to_owned()).or_default() += 1,
        }
    }
    let mut text = String::new();
    for (file, mut lines) in left {
        lines.sort();
        text.push_str(&format!("{file}: {}\n", lines.len()));
        lines.iter().for_each(|(_, line)| text.push_str(&format!("    {line}\n")));
    }
    fs::write(survivors, text).expect("there is room");
    println!(
        "{:24} {:>6} {:>6} {:>8} {:>6} {:>6} {:>9} {:>9} {:>9}",
        "", "all", "units", "stories", "contr.", "simul.", "accepted", "unreached", "survived"
    );
    let mut total = Row::default();
    for (folder, row) in &rows {
        print_row(folder, row);
        row.caught.iter().for_each(|(k, n)| *total.caught.entry(k.clone()).or_default() += n);
        total.unreached += row.unreached;
        total.accepted += row.accepted;
        total.survived += row.survived;
    }
    print_row("all", &total);
    println!("{dropped} do not compile; survivors: {}", survivors.display());
    total.survived + total.unreached == 0
}

fn print_row(name: &str, row: &Row) {
    let of = |level: &str| row.caught.get(level).copied().unwrap_or_default();
    let caught: usize = row.caught.values().sum();
    println!(
        "{name:24} {:>6} {:>6} {:>8} {:>6} {:>6} {:>9} {:>9} {:>9}",
        caught + row.unreached + row.accepted + row.survived,
        of("units"),
        of("stories"),
        of("controller"),
        of("simulator") + of("cloudsim"),
        row.accepted,
        row.unreached,
        row.survived
    );
}
