//! Fields without a type of their own: whether they are empty, and how they are shown.

use serde_json::{Map, Value};

use crate::model::names::cut;

/// Fields without a type of their own, by their JSON name.
pub type Rest = Map<String, Untyped>;

/// The value of such a field.
pub type Untyped = Value;

/// Whether it is empty, as Go's zero values are.
pub fn is_nothing(value: &Untyped) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A text as it stands; any other value as JSON.
pub fn plain(value: &Untyped) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Its kind, as it may be of any size; a scalar as JSON, a text by its beginning.
pub fn shown(value: &Untyped) -> String {
    match value {
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("{:?}", cut(text)),
        scalar => scalar.to_string(),
    }
}

/// Whether serialisation leaves a value out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
