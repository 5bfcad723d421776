//! Raw objects of manifests, of any kind, for the controller's folder.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::api::Kind;

/// An object, or a part of one, as JSON.
pub fn json<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

/// What was put together as JSON.
pub fn of_text(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("put together of JSON")
}

/// An object of a manifest.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    pub kind: Kind,
    /// Its namespace; empty: none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its JSON, as it was written but without nulls; shared, because the folder is delivered
    /// repeatedly.
    pub value: Arc<Value>,
    /// The size of that JSON as text.
    pub size_bytes: usize,
}

/// Removes keys without a value, as an API server does: in YAML, keys whose lines are all commented
/// out. In maps with arbitrary keys, the value becomes an empty text. Returns whether there was
/// any.
pub fn drop_nulls(value: &mut Value) -> bool {
    match value {
        Value::Object(map) => {
            let count = map.len();
            map.retain(|_, value| !value.is_null());
            let mut dropped = map.len() < count;
            for (key, value) in map.iter_mut() {
                if let Value::Object(texts) = value
                    && TEXTS.contains(&&**key)
                {
                    for text in texts.values_mut().filter(|text| text.is_null()) {
                        *text = "".into();
                        dropped = true;
                    }
                }
                dropped |= drop_nulls(value);
            }
            dropped
        }
        Value::Array(list) => {
            let mut dropped = false;
            for value in list {
                dropped |= drop_nulls(value);
            }
            dropped
        }
        _ => false,
    }
}

/// Maps of texts with arbitrary keys.
const TEXTS: [&str; 7] =
    ["labels", "annotations", "data", "binaryData", "stringData", "nodeSelector", "matchLabels"];

/// Values may be secret.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
