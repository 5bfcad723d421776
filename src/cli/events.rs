//! `edged events`: prints the events as `kubectl get events` does.

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
    if options.watch {
        return Err(Error::Usage("events: there is no --watch of them".to_owned()));
    }
    let list = options.fetch(&options.agent(api)?, path, "involvedObject")?;
    if !options.print_whole(&list, out)? {
        print(&options, &list, client::wall_s(), out)?;
    }
    Ok(0)
}

fn print(
    options: &Options,
    list: &Value,
    now: Option<i64>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut events: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    if events.is_empty() {
        return Ok(writeln!(out, "No events.")?);
    }
    // Events from before the clock was set come first; the others keep their order.
    events.sort_by_key(|event| at(event));
    let namespace = |event: &&Value| text(&event["involvedObject"]["namespace"]).to_owned();
    let namespaces: Vec<String> = events.iter().map(namespace).collect();
    let wide = options.namespace.is_none()
        && (options.all_namespaces || list::several(namespaces.iter().map(String::as_str)));
    let mut rows = vec![
        ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(events.iter().zip(namespaces).map(|(event, namespace)| {
        let mut row = vec![namespace];
        row.extend(cells(event, now));
        row
    }));
    let mut columns = Columns::default();
    let from = usize::from(!wide);
    for row in &rows {
        columns.fit(&row[from..]);
    }
    for row in &rows {
        columns.print(&row[from..], out)?;
    }
    Ok(())
}

fn cells(event: &Value, now: Option<i64>) -> [String; 5] {
    let seen = match (at(event), now) {
        (Some(at), Some(now)) => age::short(now - at),
        _ => "<unknown>".to_owned(),
    };
    let count = event["count"].as_u64().unwrap_or(1);
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
        let mut out = Vec::new();
        let now = Some(1_763_666_956);
        print(&Options::default(), &list, now, &mut out).expect("writes to memory");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "LAST SEEN   TYPE      REASON    OBJECT    MESSAGE\n\
             <unknown>   Warning   BackOff   pod/old   it fails\n\
             5s (x3)     Warning   BackOff   pod/new   it fails\n"
        );
    }
}
