//! `edged services`: prints the Services that the node serves by name.

use std::io::Write;

use serde_json::Value;

use super::Error;
use super::list::{self, Options};
use super::table::Columns;

const HEAD: [&str; 6] = ["NAMESPACE", "NAME", "TYPE", "ADDRESS", "PORTS", "ENDPOINTS"];

/// Parses the flags, requests the Services and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let options = Options::parse(args, list::EDGED)?;
    let agent = options.agent(list::EDGED)?;
    let list = options.fetch(&agent, "/edged/services", "metadata")?;
    options.expect_named(&list, "services")?;
    if !options.print_whole(&list, out)? {
        print(&list, out)?;
    }
    Ok(0)
}

fn print(list: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return writeln!(out, "No services.");
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(items.iter().map(row));
    Columns::default().print_all(&rows, 0, out)
}

fn row(service: &Value) -> [String; 6] {
    let text = |value: &Value| match value.as_str() {
        None | Some("") => "<none>".to_owned(),
        Some(text) => text.to_owned(),
    };
    let all = |value: &Value| {
        let texts: Vec<&str> =
            value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if texts.is_empty() { "<none>".to_owned() } else { texts.join(" ") }
    };
    let metadata = &service["metadata"];
    [
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&service["type"]),
        text(&service["address"]),
        all(&service["ports"]),
        all(&service["endpoints"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_stand_in_columns() {
        let list = json!({"items": [
            {"metadata": {"namespace": "default", "name": "web"}, "type": "ClusterIP",
             "address": "10.96.0.7", "ports": ["80/TCP"],
             "endpoints": ["10.88.0.5:8080", "10.88.0.6:8080"]},
            {"metadata": {"namespace": "default", "name": "x"}, "type": "Headless",
             "address": "", "ports": [], "endpoints": []},
        ]});
        let mut out = Vec::new();
        print(&list, &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let web =
            "default     web    ClusterIP   10.96.0.7   80/TCP   10.88.0.5:8080 10.88.0.6:8080";
        assert_eq!(lines[1], web);
        assert!(lines[2].ends_with("<none>"), "{text}");
        let mut none = Vec::new();
        print(&json!({"items": null}), &mut none).expect("memory takes it");
        assert_eq!(none, b"No services.\n");
    }
}
