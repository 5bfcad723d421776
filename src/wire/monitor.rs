//! What a monitor of the built-in runtime tells, as text: the monitor may be of another version of
//! this program than the server that hears it, and a person may read its files.
//!
//! ```text
//!  fact, also the file exit:   started PID START BOOT AT
//!                              failed TEXT
//!                              exited CODE AT            exited CODE AT oom
//!                              reopened
//!                              not-reopened TEXT
//!  the file pid:               PID START BOOT CGROUP
//! ```
//!
//! Words are divided by one space; TEXT and CGROUP are the rest, whatever is in it. PID, START and
//! BOOT are those of [`Process`], AT is in nanoseconds since 1970. Further words are skipped: a
//! newer version may have added them. A fact that is none of these is an error.

use std::str::FromStr;

use crate::model::error::Peer;
use crate::model::runtime::{BootId, MonitorFact, Process};

/// The text of a fact that a monitor tells: any but [`MonitorFact::Gone`].
pub fn fact(fact: &MonitorFact) -> String {
    match fact {
        MonitorFact::Started { process, at } => format!("started {} {at}", words(process)),
        MonitorFact::Failed(why) => format!("failed {why}"),
        MonitorFact::Exited { code, oom_killed, at } => {
            format!("exited {code} {at}{}", if *oom_killed { " oom" } else { "" })
        }
        MonitorFact::Reopened(Ok(())) => "reopened".to_owned(),
        MonitorFact::Reopened(Err(why)) => format!("not-reopened {why}"),
        MonitorFact::Gone => unreachable!("a monitor that is gone tells nothing"),
    }
}

pub fn read_fact(bytes: &[u8]) -> Result<MonitorFact, Peer> {
    let text = utf8(bytes)?;
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut words = rest.split(' ');
    Ok(match kind {
        "started" => {
            MonitorFact::Started { process: process(&mut words)?, at: number(&mut words)? }
        }
        "failed" => MonitorFact::Failed(rest.to_owned()),
        "exited" => MonitorFact::Exited {
            code: number(&mut words)?,
            at: number(&mut words)?,
            oom_killed: words.any(|word| word == "oom"),
        },
        "reopened" => MonitorFact::Reopened(Ok(())),
        "not-reopened" => MonitorFact::Reopened(Err(rest.to_owned())),
        _ => {
            let expected = "started, failed, exited, reopened or not-reopened";
            return Err(Peer::new(format!("got {kind:?}, expected {expected}")));
        }
    })
}

/// The file `pid`: a container's first process, and its cgroup.
pub fn pid(process: &Process, cgroup: &str) -> String {
    format!("{} {cgroup}", words(process))
}

pub fn read_pid(bytes: &[u8]) -> Result<(Process, Box<str>), Peer> {
    let mut parts = utf8(bytes)?.splitn(4, ' ');
    let process = process(&mut parts)?;
    Ok((process, parts.next().unwrap_or_default().into()))
}

/// The file `started`: a number.
pub fn read_number(bytes: &[u8]) -> Result<i64, Peer> {
    number(&mut utf8(bytes)?.split(' '))
}

fn words(Process { pid, start_time, boot }: &Process) -> String {
    format!("{pid} {start_time} {}", boot.0)
}

fn process<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Process, Peer> {
    let (pid, start_time) = (number(words)?, number(words)?);
    let boot = words.next().filter(|boot| !boot.is_empty());
    let boot = boot.ok_or_else(|| Peer::new("got no boot id, expected one"))?;
    Ok(Process { pid, start_time, boot: BootId(boot.into()) })
}

fn number<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Result<T, Peer> {
    let word = words.next().unwrap_or_default();
    word.parse().map_err(|_| Peer::new(format!("got {word:?}, expected a number")))
}

fn utf8(bytes: &[u8]) -> Result<&str, Peer> {
    str::from_utf8(bytes).map_err(|error| Peer::at("got no UTF-8", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process_1() -> Process {
        Process { pid: 1, start_time: 1 << 40, boot: BootId("b-1".into()) }
    }

    #[test]
    fn every_fact_has_its_words_and_comes_back() {
        let why = "exec failed:\n\"é\" not found ".to_owned();
        let exited = |oom_killed| MonitorFact::Exited { code: 137, oom_killed, at: -5 };
        for (told, text) in [
            (
                MonitorFact::Started { process: process_1(), at: 1 << 60 },
                "started 1 1099511627776 b-1 1152921504606846976",
            ),
            (MonitorFact::Failed(why.clone()), "failed exec failed:\n\"é\" not found "),
            (MonitorFact::Failed(String::new()), "failed "),
            (exited(false), "exited 137 -5"),
            (exited(true), "exited 137 -5 oom"),
            (MonitorFact::Reopened(Ok(())), "reopened"),
            (MonitorFact::Reopened(Err(why)), "not-reopened exec failed:\n\"é\" not found "),
        ] {
            assert_eq!(fact(&told), text);
            assert_eq!(read_fact(text.as_bytes()), Ok(told));
        }
    }

    #[test]
    fn words_of_a_newer_version_are_skipped() {
        let started = MonitorFact::Started { process: process_1(), at: 2 };
        assert_eq!(read_fact(b"started 1 1099511627776 b-1 2 soon"), Ok(started));
        let exited = MonitorFact::Exited { code: 0, oom_killed: true, at: 3 };
        assert_eq!(read_fact(b"exited 0 3 core oom"), Ok(exited));
        assert_eq!(read_fact(b"reopened twice"), Ok(MonitorFact::Reopened(Ok(()))));
        assert_eq!(read_number(b"12 s"), Ok(12));
    }

    #[test]
    fn what_is_no_fact_is_refused_with_what_was_got() {
        let refused = |bytes: &[u8]| read_fact(bytes).expect_err("it is none").to_string();
        let kinds = "expected started, failed, exited, reopened or not-reopened";
        assert_eq!(refused(b""), format!("got \"\", {kinds}"));
        assert_eq!(refused(b"{\"Gone\":1}"), format!("got \"{{\\\"Gone\\\":1}}\", {kinds}"));
        assert_eq!(refused(b"exited"), "got \"\", expected a number");
        assert_eq!(refused(b"exited 137"), "got \"\", expected a number");
        assert_eq!(refused(b"exited 4294967296 0"), "got \"4294967296\", expected a number");
        assert_eq!(refused(b"started 1 2"), "got no boot id, expected one");
        assert_eq!(refused(b"started 1 2  3"), "got no boot id, expected one");
        assert!(refused(b"failed \xff").starts_with("got no UTF-8: "));
    }

    #[test]
    fn the_process_is_noted_with_its_cgroup() {
        let text = pid(&process_1(), "/kubepods/pod a/c");
        assert_eq!(text, "1 1099511627776 b-1 /kubepods/pod a/c");
        assert_eq!(read_pid(text.as_bytes()), Ok((process_1(), "/kubepods/pod a/c".into())));
        assert_eq!(read_pid(b"1 1099511627776 b-1"), Ok((process_1(), "".into())));
        let refused = read_pid(b"{\"pid\":1}").expect_err("it is none").to_string();
        assert_eq!(refused, "got \"{\\\"pid\\\":1}\", expected a number");
    }
}
