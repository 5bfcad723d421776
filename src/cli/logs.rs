//! `edged logs`: prints the logs of a pod's containers, as `kubectl logs` does.

use std::io::Write;

use lexopt::prelude::*;

use super::Error;
use super::list::Api;
use super::remote::{self, Common, LOST, Pod, Target};
use crate::io::client::logs::{Source, print};
use crate::io::client::{Agent, Opened};
use crate::io::log::printable;
use crate::limits::CLIENT_FOLLOWED_MAX;

/// The options on the command line.
#[derive(Debug, Default)]
struct Options {
    target: Target,
    all_containers: bool,
    prefix: bool,
    follow: bool,
    /// The query, except `follow`.
    query: Vec<(&'static str, String)>,
}

impl Options {
    fn parse(mut args: lexopt::Parser, api: Api) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            if let Some(option) = Common::of(&arg, api) {
                options.target.set(option, args.value()?.string()?);
                continue;
            }
            match arg {
                Short('f') | Long("follow") => options.follow = true,
                Short('p') | Long("previous") => options.add("previous", "true"),
                Long("timestamps") => options.add("timestamps", "true"),
                Long("all-containers") => options.all_containers = true,
                Long("prefix") => options.prefix = true,
                Long("tail") => match args.value()?.parse::<i64>()? {
                    // kubectl's default.
                    -1 => {}
                    lines @ 0.. => options.add("tailLines", &lines.to_string()),
                    lines => return usage(format!("--tail: got {lines}, expected 0 or more")),
                },
                Long("limit-bytes") => match args.value()?.parse::<i64>()? {
                    0 => {}
                    bytes @ 1.. => options.add("limitBytes", &bytes.to_string()),
                    bytes => {
                        return usage(format!("--limit-bytes: got {bytes}, expected 1 or more"));
                    }
                },
                Long("since") => {
                    let text = args.value()?.string()?;
                    let expected = "expected a duration such as 5s, 2m or 3h";
                    let wrong = || Error::Usage(format!("--since: got {text:?}, {expected}"));
                    let seconds = seconds_of(&text).ok_or_else(wrong)?;
                    if seconds > 0 {
                        options.add("sinceSeconds", &seconds.to_string());
                    }
                }
                Long("since-time") => options.add("sinceTime", &args.value()?.string()?),
                Value(pod) if options.target.pod.is_none() => {
                    options.target.pod = Some(pod.string()?);
                }
                // kubectl takes the container as the second word too.
                Value(name) if options.target.container.is_none() => {
                    options.target.container = Some(name.string()?);
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        let has = |key: &str| options.query.iter().any(|(known, _)| *known == key);
        if has("sinceSeconds") && has("sinceTime") {
            return usage("got --since and --since-time, expected one of them".to_owned());
        }
        if options.all_containers && options.target.container.is_some() {
            return usage("got --all-containers and a container, expected one".to_owned());
        }
        Ok(options)
    }

    fn add(&mut self, key: &'static str, value: &str) {
        self.query.retain(|(known, _)| *known != key);
        self.query.push((key, value.to_owned()));
    }
}

fn usage<T>(why: String) -> Result<T, Error> {
    Err(Error::Usage(why))
}

/// Parses the flags, requests the logs and prints them.
pub(super) fn run(
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api)?;
    let agent = options.target.agent(api)?;
    let pod = options.target.find(&agent, api)?;
    let names = containers(&options, &pod, trouble)?;
    let mut sources = Vec::new();
    for name in &names {
        let source = open(&options, &agent, &pod, name)?;
        if options.follow {
            sources.push(source);
        } else if let Err(why) = print(vec![source], out)? {
            return Ok(broken(&why.to_string(), trouble));
        }
    }
    match print(sources, out)? {
        Ok(()) => Ok(0),
        Err(why) => Ok(broken(&why.to_string(), trouble)),
    }
}

fn broken(why: &str, trouble: &mut dyn Write) -> u8 {
    // If this cannot be printed either, only the exit code remains.
    let _ = writeln!(trouble, "error: the log was cut off: {}", printable(why));
    LOST
}

/// Those whose logs are wanted, in the order in which they run.
fn containers(options: &Options, pod: &Pod, trouble: &mut dyn Write) -> Result<Vec<String>, Error> {
    if !options.all_containers {
        let container = pod.choose(options.target.container.as_deref(), trouble)?;
        return Ok(vec![remote::text(&container["name"]).to_owned()]);
    }
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.into_iter().flat_map(|list| pod.containers(list));
    let names: Vec<_> = all.map(|container| remote::text(&container["name"]).to_owned()).collect();
    if options.follow && names.len() > CLIENT_FOLLOWED_MAX {
        let why = format!("got {} containers, expected {CLIENT_FOLLOWED_MAX} at most", names.len());
        return Err(Error::Failed(format!("{why} with -f: name one with -c")));
    }
    Ok(names)
}

fn open(options: &Options, agent: &Agent, pod: &Pod, name: &str) -> Result<Source, Error> {
    let mut query: Vec<(&str, &str)> =
        options.query.iter().map(|(key, value)| (*key, &**value)).collect();
    if options.follow {
        query.insert(0, ("follow", "true"));
    }
    let path = pod.path("containerLogs", Some(name), &query);
    let prefix = if options.prefix {
        format!("[{}] ", printable(&format!("pod/{}/{name}", pod.name())))
    } else {
        String::new()
    };
    match agent.open("GET", &path, "", 200)? {
        Opened::Open(connection) => Ok(Source::new(connection, prefix)),
        Opened::Refused(answer) => Err(Error::Failed(remote::refusal(&answer))),
    }
}

/// Whole seconds of a duration as Go writes it (`1h2m3.5s`, `300ms`), rounded up.
fn seconds_of(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut nanos) = (text, 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let units = [
            ("ms", 1_000_000),
            ("us", 1_000),
            ("µs", 1_000),
            ("ns", 1),
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
        ];
        let (unit, unit_ns) = units.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        rest = &after[unit.len()..];
        nanos = nanos.checked_add(scaled(number, unit_ns)?)?;
    }
    Some(nanos.div_ceil(1_000_000_000))
}

/// A decimal number of units, in nanoseconds; what is smaller is cut off.
fn scaled(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit_ns)?;
    let mut digit_ns = unit_ns;
    for digit in part.bytes() {
        digit_ns /= 10;
        nanos = nanos.checked_add(digit_ns * u64::from(digit.checked_sub(b'0')?))?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::list::EDGED;

    fn options(args: &[&str]) -> Result<Options, Error> {
        Options::parse(lexopt::Parser::from_args(args), EDGED)
    }

    fn query(args: &[&str]) -> Vec<(&'static str, String)> {
        options(&[&["web"], args].concat()).expect("options").query
    }

    #[test]
    fn options_are_those_of_the_kubelet_in_kubectls_spelling() {
        let of = |key: &'static str, value: &str| vec![(key, value.to_owned())];
        for (args, expected) in [
            (&["--tail=3"][..], of("tailLines", "3")),
            (&["--tail", "0"], of("tailLines", "0")),
            (&["--tail=3", "--tail=-1"], of("tailLines", "3")),
            (&["--tail", "-1"], Vec::new()),
            (&["-p"], of("previous", "true")),
            (&["--timestamps"], of("timestamps", "true")),
            (&["--limit-bytes=10"], of("limitBytes", "10")),
            (&["--since=5m"], of("sinceSeconds", "300")),
            (&["--since=1ms"], of("sinceSeconds", "1")),
            (&["--since=0"], Vec::new()),
            (&["--since-time=2025-11-20T19:29:11Z"], of("sinceTime", "2025-11-20T19:29:11Z")),
        ] {
            assert_eq!(query(args), expected, "{args:?}");
        }
        let second = options(&["web", "side"]).expect("options").target;
        assert_eq!(second.container.as_deref(), Some("side"));
    }

    #[test]
    fn wrong_options_are_named() {
        for (args, want) in [
            (&["--tail=-2"][..], "--tail: got -2, expected 0 or more"),
            (&["--tail=x"], "invalid digit"),
            (&["--limit-bytes=-1"], "--limit-bytes: got -1, expected 1 or more"),
            (&["--since=5"], "--since: got \"5\", expected a duration"),
            (&["--since=1s", "--since-time=x"], "expected one of them"),
            (&["web", "-c", "a", "--all-containers"], "got --all-containers and a container"),
            (&["--wide"], "invalid option '--wide'"),
        ] {
            match options(args) {
                Err(Error::Usage(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn durations_are_rounded_up_to_seconds() {
        for (text, seconds) in [
            ("5s", Some(5)),
            ("1h2m3s", Some(3_723)),
            ("1.5h", Some(5_400)),
            ("1500ms", Some(2)),
            ("1ns", Some(1)),
            (".5s", Some(1)),
            ("2.s", Some(2)),
            ("0s", Some(0)),
            ("", None),
            ("s", None),
            ("5", None),
            ("-5s", None),
            ("5d", None),
            ("1.2.3s", None),
            ("99999999999h", None),
        ] {
            assert_eq!(seconds_of(text), seconds, "{text}");
        }
    }

    #[test]
    fn the_logs_that_are_followed_at_once_have_a_bound() {
        let all = options(&["web", "-f", "--all-containers"]).expect("options");
        let names = |count: usize| {
            let list: Vec<_> = (0..count).map(|at| json!({"name": at.to_string()})).collect();
            let pod = Pod(json!({"spec": {"containers": list, "initContainers": [{"name": "i"}]}}));
            containers(&all, &pod, &mut Vec::new())
        };
        let most = names(CLIENT_FOLLOWED_MAX - 1).expect("as many as may be");
        assert_eq!((most.len(), &*most[0]), (CLIENT_FOLLOWED_MAX, "i"));
        assert!(matches!(names(CLIENT_FOLLOWED_MAX), Err(Error::Failed(_))));
    }
}
