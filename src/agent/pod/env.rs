//! Environment and `$(NAME)` (spec sections 3.4 and 3.5).

use crate::model::pod::EnvVar;

/// The variables of a container in the order of the spec, each name once: a later one of the same
/// name replaces the earlier, in the place of the earlier. A value may use those before it.
pub fn environment(env: &[EnvVar]) -> Vec<(String, String)> {
    let mut known: Vec<(String, String)> = Vec::with_capacity(env.len());
    for variable in env {
        let value = expand(&variable.value, &known);
        match known.iter_mut().find(|(name, _)| *name == variable.name) {
            Some((_, old)) => *old = value,
            None => known.push((variable.name.clone(), value)),
        }
    }
    known
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

    #[test]
    fn variables_use_those_before_them_and_the_last_of_a_name_wins() {
        let variable = |name: &str, value: &str| EnvVar {
            name: name.into(),
            value: value.into(),
            ..EnvVar::default()
        };
        let env = [
            variable("A", "1"),
            variable("B", "$(A)$(C)"),
            variable("C", "3"),
            variable("A", "2$(A)"),
        ];
        let pairs = environment(&env);
        let text: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(text, ["A=21", "B=1$(C)", "C=3"]);
    }
}
