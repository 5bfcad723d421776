//! Environment variables and the expansion of `$(NAME)` (spec sections 3.4 and 3.5).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
#[cfg(feature = "services")]
use std::sync::Arc;

#[cfg(feature = "services")]
use super::service_links;
use crate::agent::downward::{Downward, ResourceError};
use crate::agent::objects::Objects;
use crate::limits::EXPANDED_ITEM_BYTES;
#[cfg(feature = "metaserver-auth")]
use crate::model::metaserver::InCluster;
use crate::model::object::{ConfigMap, Secret};
use crate::model::pod::{Container, EnvFrom, EnvVar, EnvVarSource, KeyRef};
#[cfg(feature = "services")]
use crate::model::service::ServiceEntry;
use crate::model::tree::shorten;

/// Why a container has no environment: what is missing, in the kubelet's words, or is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvError {
    /// An object of this kind and name.
    NoObject {
        kind: &'static str,
        name: Box<str>,
    },
    /// A key of an object, which is given as `namespace/name`.
    NoKey {
        kind: &'static str,
        object: String,
        key: String,
    },
    /// The value of a key of a Secret, which is given as `namespace/name`, is no text.
    NotText {
        secret: String,
        key: String,
    },
    /// A path that names no field of the pod.
    Field(String),
    Resource(ResourceError),
    TooLarge {
        bytes: usize,
        bytes_max: usize,
        /// What was expanded: `in the variable A`.
        place: String,
    },
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject { kind, name } => write!(f, "{kind} \"{name}\" not found"),
            Self::NoKey { kind, object, key } => {
                write!(f, "couldn't find key {key} in {kind} {object}")
            }
            Self::NotText { secret, key } => {
                write!(f, "got key {key} in Secret {secret} that is not UTF-8, expected text")
            }
            Self::Field(path) => write!(f, "unsupported fieldPath: {path}"),
            Self::Resource(why) => why.fmt(f),
            Self::TooLarge { bytes, bytes_max, place } => write!(
                f,
                "got variables, command, arguments and subPathExpr of {bytes} bytes or more after \
                 $(NAME) was replaced {place}, expected at most {bytes_max}"
            ),
        }
    }
}

/// Sources of values.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub downward: Downward<'a>,
    /// ConfigMaps and Secrets.
    pub objects: &'a Objects,
    /// The Services that are known.
    #[cfg(feature = "services")]
    pub services: &'a [Arc<ServiceEntry>],
}

/// The variables of one container and everything else that is expanded for it. All bytes written in
/// the process are charged to one budget before they are written: a few hundred bytes of nested
/// references could otherwise use up any memory.
#[derive(Clone)]
pub struct Environment {
    values: BTreeMap<String, String>,
    /// Names, in the order in which they were first set.
    order: Vec<String>,
    bytes: usize,
    bytes_max: usize,
}

impl Environment {
    /// The variables of a container, each name once: first those of Services and of whole objects,
    /// then its own, both in the order of the spec. A later variable of the same name replaces the
    /// value of the earlier one and keeps its position. A value may refer to variables before it.
    pub fn of(container: &Container, sources: Sources<'_>) -> Result<Self, EnvError> {
        let mut known = Self::within(sources.downward.config.machine.budget.expanded_bytes_max);
        #[cfg(feature = "services")]
        {
            let pod = sources.downward.pod;
            if pod.spec.enable_service_links != Some(false) {
                for (name, value) in service_links::of(sources.services, &pod.metadata.namespace) {
                    known.set(name, value)?;
                }
            }
        }
        #[cfg(feature = "metaserver-auth")]
        for (name, value) in sources.objects.in_cluster().into_iter().flat_map(InCluster::variables)
        {
            known.set(name.to_owned(), value)?;
        }
        for from in &container.env_from {
            sources.all(from, &mut known)?;
        }
        for variable in &container.env {
            match &variable.value_from {
                None => known.define(variable)?,
                Some(from) => {
                    if let Some(value) = sources.value_from(from, container)? {
                        known.set(variable.name.clone(), value)?;
                    }
                }
            }
        }
        Ok(known)
    }

    /// Only variables whose values the spec itself contains: probe commands may use these.
    pub fn written(env: &[EnvVar], bytes_max: usize) -> Result<Self, EnvError> {
        let mut known = Self::within(bytes_max);
        for variable in env.iter().filter(|variable| variable.value_from.is_none()) {
            known.define(variable)?;
        }
        Ok(known)
    }

    /// No variables yet.
    pub fn within(bytes_max: usize) -> Self {
        Self { values: BTreeMap::new(), order: Vec::new(), bytes: 0, bytes_max }
    }

    /// Sets a variable to its value in the spec, which may refer to variables before it.
    fn define(&mut self, variable: &EnvVar) -> Result<(), EnvError> {
        let place = || format!("in the variable {}", shorten(&variable.name));
        let value = self.expand(&variable.value, &place)?;
        self.charge(variable.name.len() + EXPANDED_ITEM_BYTES, &place)?;
        self.insert(variable.name.clone(), value);
        Ok(())
    }

    /// Sets a variable to this value without expansion.
    pub fn set(&mut self, name: String, value: String) -> Result<(), EnvError> {
        let bytes = name.len() + value.len() + EXPANDED_ITEM_BYTES;
        self.charge(bytes, &|| format!("in the variable {}", shorten(&name)))?;
        self.insert(name, value);
        Ok(())
    }

    fn insert(&mut self, name: String, value: String) {
        if self.values.insert(name.clone(), value).is_none() {
            self.order.push(name);
        }
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Replaces each `$(NAME)` whose name is known; `$$` becomes `$`; the rest stays as it is.
    /// Inserted values are not expanded again. `place` names the position of the text in errors.
    pub fn expand(&mut self, text: &str, place: &dyn Fn() -> String) -> Result<String, EnvError> {
        let mut expanded = String::new();
        each_piece(text, &mut |piece| {
            let value = match piece {
                Piece::Text(text) => text,
                Piece::Reference { name, whole } => {
                    self.values.get(name).map_or(whole, String::as_str)
                }
            };
            charge(&mut self.bytes, self.bytes_max, value.len(), place)?;
            expanded.push_str(value);
            Ok(())
        })?;
        Ok(expanded)
    }

    /// The same for each word of a list.
    pub fn expand_all(&mut self, words: &[String], field: &str) -> Result<Vec<String>, EnvError> {
        let place = || format!("in {field}");
        let mut expanded = Vec::new();
        for word in words {
            self.charge(EXPANDED_ITEM_BYTES, &place)?;
            expanded.push(self.expand(word, &place)?);
        }
        Ok(expanded)
    }

    fn charge(&mut self, bytes: usize, place: &dyn Fn() -> String) -> Result<(), EnvError> {
        charge(&mut self.bytes, self.bytes_max, bytes, place)
    }

    /// Name and value of each variable, in order.
    pub fn into_list(self) -> Vec<(String, String)> {
        let Self { mut values, order, .. } = self;
        let pair = |name: String| {
            let value = values.remove(&name).expect("each name has a value");
            (name, value)
        };
        order.into_iter().map(pair).collect()
    }
}

/// Values may be secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("names", &self.order).finish_non_exhaustive()
    }
}

fn charge(
    sum: &mut usize,
    max: usize,
    bytes: usize,
    place: &dyn Fn() -> String,
) -> Result<(), EnvError> {
    *sum += bytes;
    if *sum <= max {
        return Ok(());
    }
    Err(EnvError::TooLarge { bytes: *sum, bytes_max: max, place: place() })
}

/// A piece of a text in which `$(NAME)` stands for a value.
enum Piece<'a> {
    /// Unchanged text.
    Text(&'a str),
    /// `NAME`, and the whole `$(NAME)`.
    Reference { name: &'a str, whole: &'a str },
}

/// Splits a text, in time linear in its length.
fn each_piece<'a, E>(
    text: &'a str,
    take: &mut dyn FnMut(Piece<'a>) -> Result<(), E>,
) -> Result<(), E> {
    // No reference ends after this position, so the rest is not searched again for each `$(`.
    let last_end = text.rfind(')').unwrap_or(0);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        take(Piece::Text(&rest[..at]))?;
        let from = &rest[at..];
        rest = &from[1..];
        let ends = text.len() - rest.len() < last_end;
        if let Some(after) = rest.strip_prefix('$') {
            take(Piece::Text("$"))?;
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').filter(|_| ends).and_then(|inner| inner.split_once(')'))
        {
            take(Piece::Reference { name, whole: &from[..name.len() + 3] })?;
            rest = after;
        } else {
            take(Piece::Text("$"))?;
        }
    }
    take(Piece::Text(rest))
}

/// The names of a text's references, each once.
pub fn references(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let Ok(()) = each_piece::<Infallible>(text, &mut |piece| {
        if let Piece::Reference { name, .. } = piece {
            names.insert(name);
        }
        Ok(())
    });
    names
}

impl<'a> Sources<'a> {
    fn namespace(&self) -> &'a str {
        &self.downward.pod.metadata.namespace
    }

    /// `None`: it does not exist and is optional.
    fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&'a ConfigMap>, EnvError> {
        let found = self.objects.config_map(self.namespace(), name);
        if found.is_none() && optional != Some(true) {
            return Err(EnvError::NoObject { kind: "configmap", name: name.into() });
        }
        Ok(found)
    }

    /// `None`: it does not exist and is optional.
    fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&'a Secret>, EnvError> {
        let found = self.objects.secret(self.namespace(), name);
        if found.is_none() && optional != Some(true) {
            return Err(EnvError::NoObject { kind: "secret", name: name.into() });
        }
        Ok(found)
    }

    /// Sets a variable for each key of an object.
    fn all(&self, from: &EnvFrom, known: &mut Environment) -> Result<(), EnvError> {
        let prefix = &from.prefix;
        if let Some(wanted) = &from.config_map_ref
            && let Some(map) = self.config_map(&wanted.name, wanted.optional)?
        {
            for (key, value) in &map.data {
                known.set(format!("{prefix}{key}"), value.clone())?;
            }
        }
        if let Some(wanted) = &from.secret_ref
            && let Some(secret) = self.secret(&wanted.name, wanted.optional)?
        {
            for key in secret.data.keys() {
                let value = self.secret_text(secret, &wanted.name, key)?;
                known.set(format!("{prefix}{key}"), value)?;
            }
        }
        Ok(())
    }

    /// `None`: its source does not exist and is optional.
    fn value_from(&self, from: &EnvVarSource, own: &Container) -> Result<Option<String>, EnvError> {
        if let Some(field) = &from.field_ref {
            let text = self.downward.field(&field.field_path);
            return text.map(Some).ok_or_else(|| EnvError::Field(field.field_path.clone()));
        }
        if let Some(resource) = &from.resource_field_ref {
            return self.downward.resource(resource, own).map(Some).map_err(EnvError::Resource);
        }
        let lacks = |kind, wanted: &KeyRef| {
            let KeyRef { name, key, optional, .. } = wanted;
            let object = format!("{}/{name}", self.namespace());
            match optional {
                Some(true) => Ok(None),
                _ => Err(EnvError::NoKey { kind, object, key: key.clone() }),
            }
        };
        if let Some(wanted) = &from.config_map_key_ref {
            let Some(map) = self.config_map(&wanted.name, wanted.optional)? else {
                return Ok(None);
            };
            return match map.data.get(&wanted.key) {
                Some(text) => Ok(Some(text.clone())),
                None => lacks("ConfigMap", wanted),
            };
        }
        if let Some(wanted) = &from.secret_key_ref {
            let Some(secret) = self.secret(&wanted.name, wanted.optional)? else { return Ok(None) };
            if !secret.data.contains_key(&wanted.key) {
                return lacks("Secret", wanted);
            }
            return self.secret_text(secret, &wanted.name, &wanted.key).map(Some);
        }
        Ok(Some(String::new()))
    }

    /// The runtime only accepts UTF-8.
    fn secret_text(&self, secret: &Secret, name: &str, key: &str) -> Result<String, EnvError> {
        String::from_utf8(secret.data[key].0.to_vec()).map_err(|_| EnvError::NotText {
            secret: format!("{}/{name}", self.namespace()),
            key: key.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 20;

    fn place() -> String {
        "here".to_owned()
    }

    #[test]
    fn only_known_names_are_expanded() {
        let mut known = Environment::within(ROOM);
        for (name, value) in [("A", "1"), ("B", "$(A)")] {
            known.set(name.to_owned(), value.to_owned()).expect("room");
        }
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("$(B)", "$(A)"),
            ("$()", "$()"),
            ("é$(A)é", "é1é"),
            ("$(A)$(A", "1$(A"),
            ("$(A$(A)", "$(A$(A)"),
            (")$(", ")$("),
        ] {
            assert_eq!(known.expand(text, &place).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nested_references_stop_at_the_budget() {
        let mut env = vec![variable("V0", &"x".repeat(16))];
        for level in 1..8 {
            env.push(variable(&format!("V{level}"), &format!("$(V{})", level - 1).repeat(16)));
        }
        let why = Environment::written(&env, ROOM).expect_err("16 bytes to the eighth power");
        let why = why.to_string();
        let start = "got variables, command, arguments and subPathExpr of 105";
        assert!(why.starts_with(start), "{why}");
        let end = " bytes or more after $(NAME) was replaced in the variable V4, expected at most \
                   1048576";
        assert!(why.ends_with(end), "{why}");
        // It is refused before it is written: the written bytes stay within the budget.
        let mut known = Environment::written(&env[..5], 4 * ROOM).expect("room");
        let before = known.bytes;
        known.bytes_max = before + ROOM + 1;
        assert_eq!(known.expand("$(V4)", &place).map(|text| text.len()), Ok(ROOM));
        known.expand("$(V4)", &place).expect_err("the budget is used up");
        assert_eq!(known.bytes, before + 2 * ROOM, "charged once, and not written");
    }

    #[test]
    fn replaced_values_count_towards_the_budget() {
        let env: Vec<_> = (0..64).map(|_| variable("A", &"x".repeat(ROOM / 32))).collect();
        Environment::written(&env[..8], ROOM).expect("room");
        Environment::written(&env, ROOM).expect_err("a value set 64 times");
    }

    #[test]
    fn empty_variables_and_words_count_towards_the_budget() {
        let mut known = Environment::within(10 * EXPANDED_ITEM_BYTES);
        let words = vec![String::new(); 10];
        assert_eq!(known.clone().expand_all(&words, "args").map(|all| all.len()), Ok(10));
        known.expand_all(&vec![String::new(); 11], "args").expect_err("one too many");
    }

    #[test]
    fn variables_are_listed_in_the_order_in_which_they_were_first_set() {
        let env = [variable("B", "1"), variable("A", "2"), variable("B", "3")];
        let known = Environment::written(&env, ROOM).expect("room");
        assert_eq!(format!("{known:?}"), r#"Environment { names: ["B", "A"], .. }"#);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(known.into_list(), [pair("B", "3"), pair("A", "2")]);
    }

    #[test]
    fn a_text_with_many_open_references_is_scanned_once() {
        // A million openings: each would cause a search through the rest of the text.
        let open = "$(".repeat(1 << 20);
        let mut known = Environment::within(usize::MAX);
        assert_eq!(known.expand(&open, &place).as_deref(), Ok(&*open));
        assert_eq!(references("$(B)$(A)$$(C)$(A)$("), ["A", "B"].into());
    }

    fn variable(name: &str, value: &str) -> EnvVar {
        EnvVar { name: name.to_owned(), value: value.to_owned(), ..EnvVar::default() }
    }
}
