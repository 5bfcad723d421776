//! `edgecontroller get devices`: prints the devices, and what is recorded of them. In JSON and YAML
//! each device has its recorded status, wherever that is stored.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use crate::cli::list::{self, Form, Options};
use crate::cli::table::Columns;
use crate::cli::{Error, age};
use crate::io::client;

const DEVICES: &str = "/apis/devices.kubeedge.io/v1beta1/devices";
const STATUSES: &str = "/apis/devices.kubeedge.io/v1beta1/devicestatuses";

/// Parses the flags, requests the devices and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let options = Options::parse(args, list::CONTROLLER)?;
    if options.watch {
        return Err(Error::Usage("devices: there is no --watch of them".to_owned()));
    }
    let agent = options.agent(list::CONTROLLER)?;
    let mut list = options.fetch(&agent, DEVICES, "metadata")?;
    options.expect_named(&list, "devices")?;
    add_statuses(&mut list, &options.fetch(&agent, STATUSES, "metadata")?);
    if options.print_whole(&list, out)? {
        return Ok(0);
    }
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        writeln!(out, "No devices.")?;
        return Ok(0);
    }
    let (wide, now) = (options.form == Form::Wide, client::wall_s());
    let from = usize::from(!options.all_namespaces);
    let mut rows = vec![header(wide)];
    rows.extend(items.iter().map(|item| row(item, wide, now)));
    let mut columns = Columns::default();
    columns.print_all(&rows, from, out)?;
    Ok(0)
}

/// Gives each device the status of the DeviceStatus with its name, if there is one.
fn add_statuses(devices: &mut Value, statuses: &Value) {
    let id = |object: &Value| {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    };
    let statuses = statuses["items"].as_array().map_or(&[][..], Vec::as_slice);
    let by_id: BTreeMap<_, &Value> = statuses.iter().map(|it| (id(it), &it["status"])).collect();
    for device in devices["items"].as_array_mut().into_iter().flatten() {
        if let Some(status) = by_id.get(&id(device)).filter(|status| status.is_object()) {
            device["status"] = (*status).clone();
        }
    }
}

fn header(wide: bool) -> Vec<String> {
    let mut cells = vec!["NAMESPACE", "NAME", "NODE", "STATE", "LAST-ONLINE", "AGE"];
    if wide {
        cells.extend(["MODEL", "PROTOCOL", "REPORTED"]);
    }
    cells.into_iter().map(str::to_owned).collect()
}

fn row(device: &Value, wide: bool, now: Option<i64>) -> Vec<String> {
    let (metadata, spec, status) = (&device["metadata"], &device["spec"], &device["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let since = |value: &Value, none: &str| match (age::seconds(&text(value)), now) {
        (Some(at), Some(now)) => age::short((now - at).max(0)),
        _ => none.to_owned(),
    };
    let mut cells = vec![
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        or_none(text(&spec["nodeName"])),
        or_none(text(&status["state"])),
        since(&status["lastOnlineTime"], "<never>"),
        since(&metadata["creationTimestamp"], "<unknown>"),
    ];
    if wide {
        let twins = status["twins"].as_array().map_or(&[][..], Vec::as_slice);
        let reported = twins.iter().filter_map(|twin| {
            let (name, value) =
                (twin["propertyName"].as_str()?, twin["reported"]["value"].as_str()?);
            Some(format!("{name}={value}"))
        });
        cells.push(or_none(text(&spec["deviceModelRef"]["name"])));
        cells.push(or_none(text(&spec["protocol"]["protocolName"])));
        cells.push(or_none(reported.collect::<Vec<_>>().join(",")));
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_is_a_row_with_what_it_has_reported() {
        let mut list = json!({"items": [
            {"metadata": {"namespace": "n", "name": "d",
                          "creationTimestamp": "2025-11-20T19:29:11Z"},
             "spec": {"nodeName": "gw", "deviceModelRef": {"name": "m"},
                      "protocol": {"protocolName": "modbus"}}},
            {"metadata": {"namespace": "n", "name": "new"}},
        ]});
        let statuses = json!({"items": [{"metadata": {"namespace": "n", "name": "d"}, "status": {
            "state": "online", "lastOnlineTime": "2025-11-20T19:29:10Z", "twins": [
                {"propertyName": "rpm", "observedDesired": {"value": "1"}},
                {"propertyName": "temp", "reported": {"value": "21"}}]}}]});
        add_statuses(&mut list, &statuses);
        let now = Some(1_763_666_956);
        let shown = row(&list["items"][0], true, now);
        let expected = ["n", "d", "gw", "online", "6s", "5s", "m", "modbus", "temp=21"];
        assert_eq!(shown, expected);
        let shown = row(&list["items"][1], true, now);
        assert_eq!(
            shown[2..],
            ["<none>", "<none>", "<never>", "<unknown>", "<none>", "<none>", "<none>"]
        );
        assert_eq!(row(&list["items"][0], false, now).len(), header(false).len());
        assert_eq!(shown.len(), header(true).len());
    }

    #[test]
    fn a_status_of_the_device_itself_stays() {
        let mut list = json!({"items": [{"metadata": {"name": "d"}, "status": {"state": "ok"}}]});
        add_statuses(&mut list, &json!({"items": [{"metadata": {"name": "other"}, "status": {}}]}));
        assert_eq!(list["items"][0]["status"]["state"], "ok");
    }
}
