//! `edged pods`: prints the pods as `kubectl get pods` does.

mod row;

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use super::Error;
use super::list::{self, Api, Form, Options};
use super::table::Columns;
use crate::io::client;
use row::Row;

/// Parses the flags, requests the pods and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    show(args, out, "/pods", list::EDGED)
}

/// The same for any server with a `PodList` at this path.
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
        let list = options.fetch(&agent, path, "metadata")?;
        options.expect_named(&list, "pods")?;
        print.turn(&list, client::wall_s(), out)
    })?;
    Ok(0)
}

/// The last printed content of each row, without its ages.
/// By namespace, name and uid: while a pod is replaced there are two with one name.
type Shown = BTreeMap<[String; 3], Row>;

struct Print<'a> {
    options: &'a Options,
    columns: Columns,
    /// `None`: nothing yet.
    shown: Option<Shown>,
}

impl Print<'_> {
    /// Prints the whole list at first, then the rows that changed.
    fn turn(&mut self, list: &Value, now: Option<i64>, out: &mut dyn Write) -> Result<(), Error> {
        if self.options.print_whole(list, out)? {
            return Ok(());
        }
        let pods = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let rows: Shown = pods
            .iter()
            .map(Row::of)
            .map(|row| ([row.namespace.clone(), row.name.clone(), row.uid.clone()], row))
            .collect();
        let first = self.shown.is_none();
        let shown = self.shown.replace(rows.clone()).unwrap_or_default();
        if first && rows.is_empty() && !self.options.watch {
            let of = self.options.namespace.as_deref().map(|name| format!(" in namespace {name}"));
            return Ok(writeln!(out, "No pods{}.", of.unwrap_or_default())?);
        }
        let with_namespace = self.with_namespace(&rows);
        let mut lines = Vec::new();
        if first {
            lines.push(self.header(with_namespace));
        }
        // Removed pods first: another one may have the same name.
        for (_, gone) in shown.iter().filter(|(key, _)| !rows.contains_key(*key)) {
            let gone = Row { status: "Gone".to_owned(), ..gone.clone() };
            lines.push(self.line(&gone, with_namespace, now));
        }
        let changed = rows.iter().filter(|(key, row)| shown.get(*key) != Some(*row));
        lines.extend(changed.map(|(_, row)| self.line(row, with_namespace, now)));
        Ok(self.columns.print_all(&lines, 0, out)?)
    }

    /// The columns must not change while a watched list grows.
    fn with_namespace(&self, rows: &Shown) -> bool {
        let Options { namespace, all_namespaces, watch, .. } = self.options;
        let several = list::several(rows.keys().map(|[namespace, ..]| &**namespace));
        *all_namespaces || namespace.is_none() && (*watch || several)
    }

    fn header(&self, with_namespace: bool) -> Vec<String> {
        let mut cells = vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
        if with_namespace {
            cells.insert(0, "NAMESPACE");
        }
        if self.options.form == Form::Wide {
            cells.extend(["IP", "NODE", "MESSAGE"]);
        }
        cells.into_iter().map(str::to_owned).collect()
    }

    fn line(&self, row: &Row, with_namespace: bool, now: Option<i64>) -> Vec<String> {
        let mut cells = Vec::new();
        if with_namespace {
            cells.push(row.namespace.clone());
        }
        cells.extend([row.name.clone(), row.ready.clone(), row.status.clone()]);
        cells.extend([row.restarts(now), row.age(now)]);
        if self.options.form == Form::Wide {
            cells.extend([row.ip.clone(), row.node.clone(), row.message.clone()]);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, phase: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name,
                            "creationTimestamp": "2025-11-20T19:29:11Z"},
               "spec": {"containers": [{"name": "c"}], "nodeName": "gw"},
               "status": {"phase": phase, "podIP": "10.1.0.5"}})
    }

    fn options(args: &[&str]) -> Result<Options, Error> {
        Options::parse(lexopt::Parser::from_args(args), list::EDGED)
    }

    /// What the turns print one after the other, five seconds after the pods' creation.
    fn printed(args: &[&str], turns: &[Value]) -> Vec<String> {
        let options = options(args).expect("options");
        let mut print = Print { options: &options, columns: Columns::default(), shown: None };
        let now = Some(1_763_666_956);
        let texts = turns.iter().map(|items| {
            let mut out = Vec::new();
            let list = json!({"kind": "PodList", "items": items});
            print.turn(&list, now, &mut out).expect("writes to memory");
            String::from_utf8(out).expect("text")
        });
        texts.collect()
    }

    #[test]
    fn pods_stand_in_columns() {
        let one = json!([pod("default", "web-gw", "Running"), pod("default", "b", "Pending")]);
        assert_eq!(
            printed(&[], std::slice::from_ref(&one)),
            ["NAME     READY   STATUS    RESTARTS   AGE\n\
              b        0/1     Pending   0          5s\n\
              web-gw   0/1     Running   0          5s\n"]
        );
        assert_eq!(
            printed(&["-A", "-o", "wide"], &[one]),
            ["NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE   IP         NODE   \
              MESSAGE\n\
              default     b        0/1     Pending   0          5s    10.1.0.5   gw     \
              <none>\n\
              default     web-gw   0/1     Running   0          5s    10.1.0.5   gw     \
              <none>\n"]
        );
        let two = json!([pod("a", "x", "Running"), pod("b", "x", "Running")]);
        assert!(printed(&[], &[two])[0].starts_with("NAMESPACE   NAME"));
        assert_eq!(printed(&[], &[json!(null)]), ["No pods.\n"]);
        assert_eq!(printed(&["-n", "a"], &[json!([])]), ["No pods in namespace a.\n"]);
    }

    #[test]
    fn a_watch_prints_what_changed() {
        let (a, b) = (pod("d", "a", "Running"), pod("d", "b", "Pending"));
        let turns = [
            json!([a, b]),
            json!([a, b]),
            json!([a, pod("d", "b", "Running")]),
            json!([pod("d", "b", "Running")]),
        ];
        assert_eq!(
            printed(&["-w"], &turns),
            [
                "NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE\n\
                 d           a      0/1     Running   0          5s\n\
                 d           b      0/1     Pending   0          5s\n",
                "",
                "d           b      0/1     Running   0          5s\n",
                "d           a      0/1     Gone      0          5s\n",
            ]
        );
    }

    #[test]
    fn a_pod_and_the_one_that_replaces_it_have_a_row_each() {
        let pod = |uid: &str, phase: &str| {
            let mut pod = pod("d", "a", phase);
            pod["metadata"]["uid"] = json!(uid);
            pod
        };
        let mut leaving = pod("2", "Running");
        leaving["metadata"]["deletionTimestamp"] = json!("2025-11-20T19:29:13Z");
        let turns = [json!([leaving, pod("1", "Pending")]), json!([pod("1", "Running")])];
        assert_eq!(
            printed(&["-n", "d", "-w"], &turns),
            [
                "NAME   READY   STATUS        RESTARTS   AGE\n\
                 a      0/1     Pending       0          5s\n\
                 a      0/1     Terminating   0          5s\n",
                "a      0/1     Gone          0          5s\n\
                 a      0/1     Running       0          5s\n",
            ]
        );
    }

    #[test]
    fn json_is_handed_on() {
        let text = printed(&["-o", "json"], &[json!([pod("d", "a", "Running")])]).remove(0);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(list["items"][0]["metadata"]["name"], "a");
    }

    #[test]
    fn wrong_options_are_named() {
        for (args, want) in [
            (&["-o", "table"][..], "-o: got \"table\", expected wide, json or yaml"),
            (&["--wide"], "invalid option '--wide'"),
            (&["-w", "-o", "json"], "--watch prints rows"),
            (&["web", "db"], "unexpected argument \"db\""),
            (&["-n"], "missing argument"),
        ] {
            match options(args) {
                Err(Error::Usage(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
