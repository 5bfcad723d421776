//! Environment and `$(NAME)` (spec sections 3.4 and 3.5).

use super::downward::Downward;
use crate::agent::objects::Objects;
use crate::model::object::{ConfigMap, Secret};
use crate::model::pod::{Container, EnvFrom, EnvVar, EnvVarSource, KeyRef};

/// Where values may come from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The pod itself.
    pub downward: Downward<'a>,
    /// ConfigMaps and Secrets.
    pub objects: &'a Objects,
}

/// The variables of a container, each name once: first those of whole objects, then its own, both
/// in the order of the spec. A later one of the same name replaces the earlier, in the place of the
/// earlier. A value may use those before it.
///
/// `Err`: what is missing, in the kubelet's words.
pub fn environment(
    container: &Container,
    sources: Sources<'_>,
) -> Result<Vec<(String, String)>, String> {
    let mut known: Vec<(String, String)> = Vec::with_capacity(container.env.len());
    for from in &container.env_from {
        for (key, value) in sources.all(from)? {
            set(&mut known, format!("{}{key}", from.prefix), value);
        }
    }
    for variable in &container.env {
        let value = match &variable.value_from {
            None => Some(expand(&variable.value, &known)),
            Some(from) => sources.one(from, container)?,
        };
        if let Some(value) = value {
            set(&mut known, variable.name.clone(), value);
        }
    }
    Ok(known)
}

/// Those whose values the spec itself writes: what commands of probes may use.
pub fn written(env: &[EnvVar]) -> Vec<(String, String)> {
    let mut known = Vec::with_capacity(env.len());
    for variable in env.iter().filter(|variable| variable.value_from.is_none()) {
        let value = expand(&variable.value, &known);
        set(&mut known, variable.name.clone(), value);
    }
    known
}

fn set(known: &mut Vec<(String, String)>, name: String, value: String) {
    match known.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => known.push((name, value)),
    }
}

impl<'a> Sources<'a> {
    fn namespace(&self) -> &'a str {
        &self.downward.pod.metadata.namespace
    }

    /// `None`: it is not there and need not be.
    fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&'a ConfigMap>, String> {
        let found = self.objects.config_map(self.namespace(), name);
        if found.is_none() && optional != Some(true) {
            return Err(format!("configmap \"{name}\" not found"));
        }
        Ok(found)
    }

    /// `None`: it is not there and need not be.
    fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&'a Secret>, String> {
        let found = self.objects.secret(self.namespace(), name);
        if found.is_none() && optional != Some(true) {
            return Err(format!("secret \"{name}\" not found"));
        }
        Ok(found)
    }

    /// All texts of an object.
    fn all(&self, from: &EnvFrom) -> Result<Vec<(&'a str, String)>, String> {
        let mut all = Vec::new();
        if let Some(wanted) = &from.config_map_ref
            && let Some(map) = self.config_map(&wanted.name, wanted.optional)?
        {
            all.extend(map.data.iter().map(|(key, value)| (key.as_str(), value.clone())));
        }
        if let Some(wanted) = &from.secret_ref
            && let Some(secret) = self.secret(&wanted.name, wanted.optional)?
        {
            for key in secret.data.keys() {
                all.push((key, self.secret_text(secret, &wanted.name, key)?));
            }
        }
        Ok(all)
    }

    /// `None`: what it comes from is not there and need not be.
    fn one(&self, from: &EnvVarSource, own: &Container) -> Result<Option<String>, String> {
        if let Some(field) = &from.field_ref {
            let text = self.downward.field(&field.field_path);
            return text
                .map(Some)
                .ok_or_else(|| format!("unsupported fieldPath: {}", field.field_path));
        }
        if let Some(resource) = &from.resource_field_ref {
            return self.downward.resource(resource, own).map(Some);
        }
        let lacks = |kind: &str, wanted: &KeyRef| {
            let KeyRef { name, key, optional, .. } = wanted;
            match optional {
                Some(true) => Ok(None),
                _ => Err(format!("couldn't find key {key} in {kind} {}/{name}", self.namespace())),
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

    /// The runtime takes nothing but UTF-8.
    fn secret_text(&self, secret: &Secret, name: &str, key: &str) -> Result<String, String> {
        String::from_utf8(secret.data[key].0.to_vec()).map_err(|_| {
            format!(
                "got key {key} in Secret {}/{name} that is not UTF-8, expected text",
                self.namespace()
            )
        })
    }
}

/// Replaces each `$(NAME)` whose name is known; `$$` becomes `$`; all else stays as it is. What was
/// put in is not looked at again.
pub fn expand(text: &str, known: &[(String, String)]) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            if let Some((_, value)) = known.iter().find(|(known, _)| known == name) {
                expanded.push_str(value);
            } else {
                expanded.push_str("$(");
                expanded.push_str(name);
                expanded.push(')');
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_replaced_and_all_else_stays() {
        let known = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())];
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
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }
}
