//! `edged devices`: prints the devices of the node, or one with its properties.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use super::list::{self, Form, Options};
use super::table::Columns;
use super::{Error, age};
use crate::io::client;
use crate::io::log::printable;

/// Parses the flags, requests the devices and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let options = Options::parse(args, list::EDGED)?;
    let agent = options.agent(list::EDGED)?;
    let mut print = Print { options: &options, columns: Columns::default(), shown: None };
    options.print_turns(out, &mut |out| {
        let list = options.fetch(&agent, "/edged/devices", "metadata")?;
        options.expect_named(&list, "devices")?;
        print.turn(&list, client::wall_s(), out)
    })?;
    Ok(0)
}

/// One line: a device, or a property of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// The first is the namespace.
    cells: Vec<String>,
    /// When it was reported last, seconds since 1970.
    reported_at: Option<i64>,
}

/// By namespace, device and property.
type Rows = BTreeMap<[String; 3], Row>;

struct Print<'a> {
    options: &'a Options,
    columns: Columns,
    /// `None`: nothing yet.
    shown: Option<Rows>,
}

const DEVICE: [&str; 8] =
    ["NAMESPACE", "NAME", "STATE", "MAPPER", "PROPERTIES", "PROTOCOL", "MODEL", "MESSAGE"];
const PROPERTY: [&str; 8] =
    ["NAMESPACE", "NAME", "PROPERTY", "EXPECTED", "ACTUAL", "UNIT", "CONFIRMED", "TYPE"];
/// Of both kinds: the cell that says that the row is gone.
const STATE: usize = 2;
const ACTUAL: usize = 4;
/// Cells of devices that only `-o wide` has, and where the age stands.
const DEVICE_SHORT: usize = 5;
const PROPERTY_SHORT: usize = 7;

impl Print<'_> {
    /// Prints the whole list at first, then the rows that changed.
    fn turn(&mut self, list: &Value, now: Option<i64>, out: &mut dyn Write) -> Result<(), Error> {
        if self.options.print_whole(list, out)? {
            return Ok(());
        }
        let devices = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let rows = if self.options.name.is_some() { properties(devices) } else { all(devices) };
        let first = self.shown.is_none();
        let shown = self.shown.replace(rows.clone()).unwrap_or_default();
        if first && devices.is_empty() && !self.options.watch {
            let of = self.options.namespace.as_deref().map(|name| format!(" in namespace {name}"));
            return Ok(writeln!(out, "No devices{}.", of.unwrap_or_default())?);
        }
        if first && self.options.name.is_some() {
            devices.iter().try_for_each(|device| head(device, out))?;
        }
        let with_namespace = self.with_namespace(&rows);
        let mut lines = Vec::new();
        if first {
            lines.push(self.header(with_namespace));
        }
        for (_, gone) in shown.iter().filter(|(key, _)| !rows.contains_key(*key)) {
            let mut gone = gone.clone();
            let at = if self.options.name.is_some() { ACTUAL } else { STATE };
            "Gone".clone_into(&mut gone.cells[at]);
            lines.push(self.line(&gone, with_namespace, now));
        }
        // Another time of the same values is no change.
        let is_same = |key, row: &Row| shown.get(key).is_some_and(|it| it.cells == row.cells);
        let changed = rows.iter().filter(|(key, row)| !is_same(*key, row));
        lines.extend(changed.map(|(_, row)| self.line(row, with_namespace, now)));
        Ok(self.columns.print_all(&lines, 0, out)?)
    }

    /// The columns must not change while a watched list grows.
    fn with_namespace(&self, rows: &Rows) -> bool {
        let Options { namespace, all_namespaces, watch, .. } = self.options;
        let several = list::several(rows.keys().map(|[namespace, ..]| &**namespace));
        *all_namespaces || namespace.is_none() && (*watch || several)
    }

    fn header(&self, with_namespace: bool) -> Vec<String> {
        let names = if self.options.name.is_some() { PROPERTY } else { DEVICE };
        let cells = names.map(str::to_owned).to_vec();
        self.cells(cells, "REPORTED".to_owned(), with_namespace)
    }

    fn line(&self, row: &Row, with_namespace: bool, now: Option<i64>) -> Vec<String> {
        let reported = match (row.reported_at, now) {
            (Some(at), Some(now)) => age::short(now - at),
            (None, _) => "<none>".to_owned(),
            (Some(_), None) => "<unknown>".to_owned(),
        };
        self.cells(row.cells.clone(), reported, with_namespace)
    }

    /// The cells of a line that the options want, with the age before those of `-o wide`.
    fn cells(&self, mut cells: Vec<String>, age: String, with_namespace: bool) -> Vec<String> {
        let is_named = self.options.name.is_some();
        let short = if is_named { PROPERTY_SHORT } else { DEVICE_SHORT };
        if self.options.form != Form::Wide {
            cells.truncate(short);
        }
        cells.insert(if is_named { short - 1 } else { short }, age);
        if !with_namespace {
            cells.remove(0);
        }
        cells
    }
}

/// A row for each device.
fn all(devices: &[Value]) -> Rows {
    let row = |device: &Value| {
        let [namespace, name] = id(device);
        let of = list_of(&device["properties"]);
        let reported_at = of.iter().filter_map(reported_at).max();
        let mapper = match (text(&device["mapper"]), of.iter().any(|it| !it["actual"].is_null())) {
            ("", true) => "mqtt",
            (mapper, _) => mapper,
        };
        let count = of.len().to_string();
        let words = [text(&device["state"]), mapper, &count].map(some);
        let wide = ["protocol", "model", "trouble"].map(|key| some(text(&device[key])));
        let mut cells = vec![namespace.clone(), name.clone()];
        cells.extend(words.into_iter().chain(wide));
        ([namespace, name, String::new()], Row { cells, reported_at })
    };
    devices.iter().map(row).collect()
}

/// A row for each property of the devices.
fn properties(devices: &[Value]) -> Rows {
    let row = |device: &Value, property: &Value| {
        let ([namespace, name], of) = (id(device), text(&property["name"]).to_owned());
        let confirmed = if property["confirmed"] == true { "yes" } else { "no" };
        let mut cells = vec![namespace.clone(), name.clone(), of.clone()];
        cells.extend(["expected", "actual", "unit"].map(|key| some(text(&property[key]))));
        cells.extend([confirmed.to_owned(), some(text(&property["type"]))]);
        ([namespace, name, of], Row { cells, reported_at: reported_at(property) })
    };
    let mut rows = Rows::new();
    for device in devices {
        rows.extend(list_of(&device["properties"]).iter().map(|it| row(device, it)));
    }
    rows
}

/// What of a device is not about one property.
fn head(device: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let [namespace, name] = id(device);
    let online = match text(&device["lastOnlineTime"]) {
        "" => String::new(),
        at => format!(", online at {at}"),
    };
    let state = some(text(&device["state"])) + &online;
    let mapper = match (text(&device["mapper"]), text(&device["protocol"])) {
        (mapper, "") => some(mapper),
        (mapper, protocol) => format!("{}, protocol {protocol}", some(mapper)),
    };
    let attribute = |it: &Value| format!("{}={}", text(&it["name"]), text(&it["value"]));
    let attributes: Vec<String> = list_of(&device["attributes"]).iter().map(attribute).collect();
    let [model, description, trouble] =
        ["model", "description", "trouble"].map(|key| text(&device[key]).to_owned());
    for (key, value) in [
        ("Name", name),
        ("Namespace", namespace),
        ("Description", description),
        ("State", state),
        ("Mapper", mapper),
        ("Model", model),
        ("Attributes", attributes.join(", ")),
        ("Trouble", trouble),
    ] {
        if !value.is_empty() {
            writeln!(out, "{:14}{}", format!("{key}:"), printable(&value))?;
        }
    }
    writeln!(out)
}

fn id(device: &Value) -> [String; 2] {
    ["namespace", "name"].map(|key| text(&device["metadata"][key]).to_owned())
}

fn reported_at(property: &Value) -> Option<i64> {
    age::seconds(text(&property["reportedAt"]))
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn some(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn device(namespace: &str, actual: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": "dev1"},
            "model": "m", "protocol": "modbus", "mapper": "m1", "state": "online",
            "lastOnlineTime": "2025-11-20T19:29:11Z", "trouble": "it refuses: no",
            "properties": [
                {"name": "power", "type": "string", "expected": "on", "confirmed": true},
                {"name": "temp", "type": "int", "unit": "C", "actual": actual,
                 "reportedAt": "2025-11-20T19:29:11Z", "confirmed": false},
            ],
            "attributes": [
                {"name": "line", "type": "int", "value": "2"},
                {"name": "vendor", "type": "string", "value": "acme"},
            ],
        })
    }

    /// What the turns print one after the other, five seconds after the report.
    fn printed(args: &[&str], turns: &[Value]) -> Vec<String> {
        let options = Options::parse(lexopt::Parser::from_args(args), list::EDGED);
        let options = options.expect("options");
        let mut print = Print { options: &options, columns: Columns::default(), shown: None };
        let texts = turns.iter().map(|items| {
            let mut out = Vec::new();
            let list = json!({"kind": "DeviceList", "apiVersion": "v1", "items": items});
            print.turn(&list, Some(1_763_666_956), &mut out).expect("writes to memory");
            String::from_utf8(out).expect("text")
        });
        texts.collect()
    }

    #[test]
    fn devices_stand_in_columns() {
        let one = json!([device("default", "19")]);
        assert_eq!(
            printed(&[], std::slice::from_ref(&one)),
            ["NAME   STATE    MAPPER   PROPERTIES   REPORTED\n\
              dev1   online   m1       2            5s\n"]
        );
        assert_eq!(
            printed(&["-A", "-o", "wide"], &[one]),
            ["NAMESPACE   NAME   STATE    MAPPER   PROPERTIES   REPORTED   PROTOCOL   MODEL   \
              MESSAGE\n\
              default     dev1   online   m1       2            5s         modbus     m       it \
              refuses: no\n"]
        );
        let mut silent = device("a", "19");
        silent["mapper"] = Value::Null;
        silent["properties"] = json!([]);
        let mut by_mqtt = device("b", "19");
        by_mqtt["mapper"] = Value::Null;
        assert_eq!(
            printed(&[], &[json!([silent, by_mqtt])]),
            ["NAMESPACE   NAME   STATE    MAPPER   PROPERTIES   REPORTED\n\
              a           dev1   online   <none>   0            <none>\n\
              b           dev1   online   mqtt     2            5s\n"]
        );
        assert_eq!(printed(&["-n", "a"], &[json!(null)]), ["No devices in namespace a.\n"]);
    }

    #[test]
    fn one_device_has_its_properties() {
        assert_eq!(
            printed(&["dev1"], &[json!([device("default", "19")])]),
            ["Name:         dev1\n\
              Namespace:    default\n\
              State:        online, online at 2025-11-20T19:29:11Z\n\
              Mapper:       m1, protocol modbus\n\
              Model:        m\n\
              Attributes:   line=2, vendor=acme\n\
              Trouble:      it refuses: no\n\n\
              NAME   PROPERTY   EXPECTED   ACTUAL   UNIT     REPORTED   CONFIRMED\n\
              dev1   power      on         <none>   <none>   <none>     yes\n\
              dev1   temp       <none>     19       C        5s         no\n"]
        );
    }

    #[test]
    fn a_watch_prints_the_values_that_change() {
        let mut none = device("d", "20");
        none["properties"].as_array_mut().expect("a list").remove(0);
        let mut later = device("d", "20");
        later["properties"][1]["reportedAt"] = json!("2025-11-20T19:29:14Z");
        let turns = [device("d", "19"), device("d", "20"), later, none].map(|it| json!([it]));
        let texts = printed(&["dev1", "-n", "d", "-w"], &turns);
        assert!(
            texts[0].ends_with("dev1   temp       <none>     19       C        5s         no\n")
        );
        assert_eq!(
            texts[1..],
            [
                "dev1   temp       <none>     20       C        5s         no\n",
                "",
                "dev1   power      on         Gone     <none>   <none>     yes\n",
            ]
        );
    }
}
