//! The position of the field of a manifest that makes its pod invalid.

use crate::model::manifest::Invalid;
use crate::wire::tree::{Fault, Mark, Node, Step, Value};

/// The pod of `node` is not valid. Points at the field; if it is missing, at an unknown field
/// beside it, because that is often the same, misspelt; otherwise at its parent.
pub(super) fn fault(node: &Node, path: &[Step], invalid: Invalid) -> Fault {
    let Invalid { path: field, why, unknown } = invalid;
    let parent = |field: &str| field.rsplit_once('.').map(|(parent, _)| parent.to_owned());
    let mistyped = unknown.iter().find(|other| parent(other) == parent(&field));
    let (mut at, mut steps, whole) = find(node, &field);
    let mut text = why;
    if !whole {
        text = format!("{field}: {text}");
    }
    if let Some(other) = mistyped.filter(|_| !whole) {
        (at, steps, _) = find(node, other);
        text = format!("got an unknown field; {text}");
    }
    Fault { at: Some(at), path: path.iter().cloned().chain(steps).collect(), why: text }
}

/// The existing part of this path: its position, the steps to it, and whether the path is complete.
fn find(node: &Node, field: &str) -> (Mark, Vec<Step>, bool) {
    let (mut node, mut at, mut steps) = (node, node.at, Vec::new());
    for part in field.split(['.', '[']) {
        let step = match part.strip_suffix(']').and_then(|index| index.parse().ok()) {
            Some(index) => Step::Index(index),
            None => Step::Key(part.into()),
        };
        let below = match (&node.value, &step) {
            (Value::Map(map), Step::Key(key)) => {
                map.get(key).map(|entry| (entry.key_at, &entry.node))
            }
            (Value::List(list), Step::Index(index)) => list.get(*index).map(|it| (it.at, it)),
            _ => None,
        };
        let Some((place, below)) = below else { return (at, steps, false) };
        (node, at) = (below, place);
        steps.push(step);
    }
    (at, steps, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, field: &str, unknown: &str) -> String {
        let node = crate::wire::tree::parse(text.as_bytes()).expect(text).remove(0);
        let unknown = if unknown.is_empty() { Vec::new() } else { vec![unknown.to_owned()] };
        let invalid = Invalid { path: field.to_owned(), why: "Bad".to_owned(), unknown };
        fault(&node, &[], invalid).refusal(text.as_bytes()).to_string()
    }

    #[test]
    fn a_field_is_pointed_at_or_what_stands_in_its_place() {
        let text = "metadata:\n  name: Web\nspec:\n  containerz:\n  - name: c\n  volumes:\n  \
                    - name: v\n";
        for (field, unknown, expected) in [
            ("metadata.name", "", ":2:3: metadata.name: Bad"),
            ("spec.volumes[0].name", "", ":7:5: spec.volumes[0].name: Bad"),
            ("spec.volumes[1].name", "", ":6:3: spec.volumes: spec.volumes[1].name: Bad"),
            ("spec.containers", "spec.hostnet", ":3:1: spec: got an unknown field; "),
            (
                "spec.containers",
                "spec.containerz",
                ":4:3: spec.containerz: got an unknown field; spec.containers: Bad",
            ),
        ] {
            let got = refused(text, field, unknown);
            assert!(got.starts_with(expected), "{field}: {got}");
        }
        let json = "{\"metadata\": {},\n \"spec\": {\"containerz\": []}}";
        let got = refused(json, "spec.containers", "spec.containerz");
        assert!(got.starts_with(":2:"), "{got}");
    }
}
