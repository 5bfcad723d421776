//! Objects as a person writes them, whatever their kind: what the controller takes of a folder.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::api::Kind;

/// An object of a manifest.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// What it is.
    pub kind: Kind,
    /// Where it lies; empty: in none.
    pub namespace: Box<str>,
    /// What it is called.
    pub name: Box<str>,
    /// Its JSON, as it was written but for nulls; shared, because a folder is told of again and
    /// again.
    pub value: Arc<Value>,
    /// Of that JSON as text.
    pub size_bytes: usize,
}

/// Takes out what has no value, as an API server does: in YAML it is a key whose lines are all
/// commented out. Where any key may stand that a person thinks of, it is an empty text. Whether
/// there was any.
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

/// Maps of texts, whose keys a person chooses.
const TEXTS: [&str; 7] =
    ["labels", "annotations", "data", "binaryData", "stringData", "nodeSelector", "matchLabels"];

/// Values may be secret.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
