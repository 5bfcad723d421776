//! `edged events`: prints the events as `kubectl get events` does.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use super::list::{self, Api, Options};
use super::table::Columns;
use super::{Error, age};
use crate::io::client;

/// Parses the flags, requests the events and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    show(args, out, "/events", list::EDGED)
}

/// The same for any server with an `EventList` at this path.
pub(super) fn show(
    args: lexopt::Parser,
    out: &mut dyn Write,
    path: &str,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api)?;
    let agent = options.agent(api)?;
    let mut print = Print { options: &options, columns: Columns::default(), shown: None };
    options.print_turns(out, &mut |out| {
        let list = options.fetch(&agent, path, "involvedObject")?;
        print.turn(&list, client::wall_s(), out)
    })?;
    Ok(0)
}

/// The events of one pod, under a heading, as a part of another page.
#[cfg(feature = "streams")]
pub(super) fn table_of(
    pod: &super::remote::Pod,
    list: &Value,
    now: Option<i64>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let about = |event: &&Value| {
        let about = &event["involvedObject"];
        text(&about["name"]) == pod.name() && text(&about["namespace"]) == pod.namespace()
    };
    let mut events: Vec<&Value> =
        list["items"].as_array().into_iter().flatten().filter(about).collect();
    if events.is_empty() {
        return Ok(writeln!(out, "Events:             <none>")?);
    }
    events.sort_by_key(|event| at(event));
    let mut rows = vec![["Age", "Type", "Reason", "Message"].map(str::to_owned)];
    rows.extend(events.iter().map(|event| {
        let [seen, kind, reason, _, message] = cells(event, now);
        [seen, kind, reason, message]
    }));
    let mut columns = Columns::default();
    for row in &rows {
        columns.fit(row);
    }
    writeln!(out, "Events:")?;
    for row in &rows {
        write!(out, "  ")?;
        columns.print(row, out)?;
    }
    Ok(())
}

/// How often an event was seen, and when last, by what it says about which object.
type Shown = BTreeMap<[String; 6], (u64, Option<i64>)>;

struct Print<'a> {
    options: &'a Options,
    columns: Columns,
    /// `None`: nothing yet.
    shown: Option<Shown>,
}

impl Print<'_> {
    /// Prints all events at first, then those that are new or were seen again.
    fn turn(&mut self, list: &Value, now: Option<i64>, out: &mut dyn Write) -> Result<(), Error> {
        if self.options.print_whole(list, out)? {
            return Ok(());
        }
        let mut events: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        let first = self.shown.is_none();
        if first && events.is_empty() && !self.options.watch {
            return Ok(writeln!(out, "No events.")?);
        }
        let all = events.iter().map(|event| (key(event), (count(event), at(event)))).collect();
        let shown = self.shown.replace(all).unwrap_or_default();
        let wide = self.with_namespace(&events);
        events.retain(|event| shown.get(&key(event)) != Some(&(count(event), at(event))));
        // Events from before the clock was set come first; the others keep their order.
        events.sort_by_key(|event| at(event));
        let mut rows = Vec::new();
        if first {
            let head = ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
            rows.push(head.map(str::to_owned).to_vec());
        }
        rows.extend(events.iter().map(|event| {
            let mut row = vec![text(&event["involvedObject"]["namespace"]).to_owned()];
            row.extend(cells(event, now));
            row
        }));
        let from = usize::from(!wide);
        Ok(self.columns.print_all(&rows, from, out)?)
    }

    /// The columns must not change while a watched list grows.
    fn with_namespace(&self, events: &[&Value]) -> bool {
        let Options { namespace, all_namespaces, watch, .. } = self.options;
        let namespaces = events.iter().map(|event| text(&event["involvedObject"]["namespace"]));
        namespace.is_none() && (*all_namespaces || *watch || list::several(namespaces))
    }
}

fn key(event: &Value) -> [String; 6] {
    let about = &event["involvedObject"];
    let of_object = ["kind", "namespace", "name"].map(|key| text(&about[key]).to_owned());
    let [kind, namespace, name] = of_object;
    let [reason, message] = ["reason", "message"].map(|key| text(&event[key]).to_owned());
    [kind, namespace, name, text(&about["uid"]).to_owned(), reason, message]
}

fn count(event: &Value) -> u64 {
    event["count"].as_u64().unwrap_or(1)
}

fn cells(event: &Value, now: Option<i64>) -> [String; 5] {
    let seen = match (at(event), now) {
        (Some(at), Some(now)) => age::short(now - at),
        _ => "<unknown>".to_owned(),
    };
    let count = count(event);
    let seen = if count > 1 { format!("{seen} (x{count})") } else { seen };
    let about = &event["involvedObject"];
    let object = format!("{}/{}", text(&about["kind"]).to_ascii_lowercase(), text(&about["name"]));
    let [kind, reason, message] =
        ["type", "reason", "message"].map(|key| text(&event[key]).to_owned());
    [seen, kind, reason, object, message]
}

fn at(event: &Value) -> Option<i64> {
    let times = ["lastTimestamp", "firstTimestamp", "eventTime"];
    times.into_iter().find_map(|key| age::seconds(text(&event[key])))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_stand_in_columns_the_oldest_first() {
        let event = |name: &str, at: &str, count: u64| {
            json!({
                "involvedObject": {"kind": "Pod", "namespace": "d", "name": name},
                "type": "Warning", "reason": "BackOff", "message": "it fails", "count": count,
                "lastTimestamp": at,
            })
        };
        let events = [event("new", "2025-11-20T19:29:11Z", 3), event("old", "", 1)];
        let list = json!({"kind": "EventList", "items": events});
        assert_eq!(
            printed(&[], &[list]),
            ["LAST SEEN   TYPE      REASON    OBJECT    MESSAGE\n\
             <unknown>   Warning   BackOff   pod/old   it fails\n\
             5s (x3)     Warning   BackOff   pod/new   it fails\n"]
        );
        assert_eq!(printed(&[], &[json!({"items": []})]), ["No events.\n"]);
    }

    #[test]
    fn a_watch_prints_what_happened_since() {
        let event = |reason: &str, count: u64| {
            json!({
                "involvedObject": {"kind": "Pod", "namespace": "d", "name": "a"},
                "type": "Normal", "reason": reason, "message": "m", "count": count,
                "lastTimestamp": "2025-11-20T19:29:11Z",
            })
        };
        let turns = [
            json!({"items": [event("Pulled", 1)]}),
            json!({"items": [event("Pulled", 1)]}),
            json!({"items": [event("Pulled", 2), event("Started", 1)]}),
            json!({"items": [event("Started", 1)]}),
        ];
        assert_eq!(
            printed(&["-w"], &turns),
            [
                "NAMESPACE   LAST SEEN   TYPE     REASON   OBJECT   MESSAGE\n\
                 d           5s          Normal   Pulled   pod/a    m\n",
                "",
                "d           5s (x2)     Normal   Pulled    pod/a    m\n\
                 d           5s          Normal   Started   pod/a    m\n",
                "",
            ]
        );
    }

    /// What the turns print one after the other, five seconds after the events.
    fn printed(args: &[&str], turns: &[Value]) -> Vec<String> {
        let args = lexopt::Parser::from_args(args);
        let options = Options::parse(args, list::EDGED).expect("options");
        let mut print = Print { options: &options, columns: Columns::default(), shown: None };
        let texts = turns.iter().map(|list| {
            let mut out = Vec::new();
            print.turn(list, Some(1_763_666_956), &mut out).expect("writes to memory");
            String::from_utf8(out).expect("text")
        });
        texts.collect()
    }
}
