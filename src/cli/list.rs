//! The common parts of commands that print objects: their options, the server, and the
//! machine-readable formats.

use std::io::Write;

use lexopt::prelude::*;
use serde_json::Value;

use super::{Error, yaml};
use crate::io::client::{self, Agent};
use crate::limits::WATCH_MS;

/// The server of a command.
#[derive(Clone, Copy)]
pub(super) struct Api {
    /// The flag for its configuration.
    pub home: &'static str,
    /// The path of all its pods.
    #[cfg(feature = "streams")]
    pub pods: &'static str,
    /// The path of its nodes, where there are several.
    #[cfg(feature = "streams")]
    pub nodes: Option<&'static str>,
    /// Finds it by `--server` and that flag.
    pub at: fn(Option<&str>, Option<&str>) -> Result<Agent, Error>,
}

/// The agent.
pub(super) const EDGED: Api = Api {
    home: "config",
    #[cfg(feature = "streams")]
    pods: "/pods",
    #[cfg(feature = "streams")]
    nodes: None,
    at: |server, config| Ok(client::agent(server, config)?),
};

/// The controller.
#[cfg(feature = "controller")]
pub(super) const CONTROLLER: Api = Api {
    home: "data",
    pods: "/api/v1/pods",
    nodes: Some("/api/v1/nodes"),
    at: |server, data| {
        client::controller(server, data.map(std::path::Path::new))
            .map_err(|wrong| Error::Usage(wrong.to_string()))
    },
};

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Short,
    Wide,
    Json,
    Yaml,
}

/// The options on the command line.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub all_namespaces: bool,
    pub form: Form,
    pub watch: bool,
    server: Option<String>,
    home: Option<String>,
}

impl Options {
    pub(super) fn parse(mut args: lexopt::Parser, api: Api) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            match arg {
                Short('n') | Long("namespace") => options.namespace = Some(args.value()?.string()?),
                Short('A') | Long("all-namespaces") => options.all_namespaces = true,
                Short('o') | Long("output") => {
                    options.form = match &*args.value()?.string()? {
                        "wide" => Form::Wide,
                        "json" => Form::Json,
                        "yaml" => Form::Yaml,
                        other => {
                            let why = format!("-o: got {other:?}, expected wide, json or yaml");
                            return Err(Error::Usage(why));
                        }
                    };
                }
                Short('w') | Long("watch") => options.watch = true,
                Long("server") => options.server = Some(args.value()?.string()?),
                Long(flag) if flag == api.home => options.home = Some(args.value()?.string()?),
                Value(name) if options.name.is_none() => options.name = Some(name.string()?),
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.watch && matches!(options.form, Form::Json | Form::Yaml) {
            let why = "--watch prints rows: it goes without -o json and -o yaml";
            return Err(Error::Usage(why.to_owned()));
        }
        Ok(options)
    }

    /// The server to connect to.
    pub(super) fn agent(&self, api: Api) -> Result<Agent, Error> {
        (api.at)(self.server.as_deref(), self.home.as_deref())
    }

    /// Prints a turn, or with `--watch` one after the other until that fails.
    pub(super) fn print_turns(
        &self,
        out: &mut dyn Write,
        turn: &mut dyn FnMut(&mut dyn Write) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            turn(out)?;
            if !self.watch {
                return Ok(());
            }
            out.flush()?;
            client::pause(WATCH_MS);
        }
    }

    /// The list at `path`, reduced to the selected objects. `about`: the field of an item that
    /// identifies its object.
    pub(super) fn fetch(&self, agent: &Agent, path: &str, about: &str) -> Result<Value, Error> {
        let body = agent.get(path)?;
        let unusable =
            |why: &str| Error::Failed(format!("got an answer that is not a list: {why}"));
        let mut list: Value =
            serde_json::from_slice(&body).map_err(|error| unusable(&error.to_string()))?;
        if !list["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
            return Err(unusable(&format!("its kind is {}", list["kind"])));
        }
        let is = |wanted: &Option<String>, got: &Value| {
            wanted.as_ref().is_none_or(|wanted| *got == **wanted)
        };
        if let Some(items) = list["items"].as_array_mut() {
            items.retain(|item| {
                is(&self.namespace, &item[about]["namespace"])
                    && is(&self.name, &item[about]["name"])
            });
        }
        Ok(list)
    }

    /// Prints the list in a machine-readable format, or a single object if it was named; false:
    /// rows are wanted.
    pub(super) fn print_whole(&self, list: &Value, out: &mut dyn Write) -> Result<bool, Error> {
        let mut one = Value::Null;
        let mut whole = list;
        if let (Some(_), Some([item])) = (&self.name, list["items"].as_array().map(Vec::as_slice)) {
            one.clone_from(item);
            let kind = list["kind"].as_str().unwrap_or_default();
            one["kind"] = kind.trim_end_matches("List").into();
            one["apiVersion"].clone_from(&list["apiVersion"]);
            whole = &one;
        }
        match self.form {
            Form::Short | Form::Wide => return Ok(false),
            Form::Json => {
                let text = serde_json::to_string_pretty(whole).expect("JSON was read");
                writeln!(out, "{text}")?;
            }
            Form::Yaml => out.write_all(yaml::text(whole).as_bytes())?,
        }
        Ok(true)
    }

    /// Fails if the named object does not exist.
    pub(super) fn expect_named(&self, list: &Value, plural: &str) -> Result<(), Error> {
        let none = list["items"].as_array().is_none_or(Vec::is_empty);
        match &self.name {
            Some(name) if none && !self.watch => {
                Err(Error::Failed(format!("{plural} {name:?} not found")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether rows need a column of namespaces.
pub(super) fn several<'a>(mut namespaces: impl Iterator<Item = &'a str>) -> bool {
    namespaces.next().is_some_and(|first| namespaces.any(|other| other != first))
}
