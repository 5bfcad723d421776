//! The rules for one property of a device (section 8 of spec `devices`): what a client or a mapper
//! may write, what the cloud may, and what follows from both. Plain functions over [`Twin`].

use crate::limits::{DEVICE_WORD_BYTES_MAX, TWIN_NAME_BYTES_MAX, TWIN_VALUE_BYTES_MAX};
use crate::model::base64;
use crate::model::device::{
    DELETED, GivenSide, GivenTwin, PropertyUpdate, Twin, TwinSide, TwinVersion, Twins,
};

/// When a change has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Only times differ.
    Nothing,
    /// An actual value: after a power cut its device reports it again.
    Value,
    /// What the cloud waits for, and what changes often.
    Soon,
    /// Anything else.
    AtOnce,
}

/// The result of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub twin: Twin,
    /// The sides that were given; `None`: the property is deleted.
    pub answer: Option<Twin>,
    pub change: Change,
}

// ---- what EdgeCore says (section 7.4) ----

const NAME: &str = "The key of twin must only include upper or lowercase letters, number, \
                    english, and special letter - _ . , : / @ # and the length of key should be \
                    less than 128 bytes";
const VALUE: &str = "the length of value should be less than 512 bytes";
const TYPE: &str = "the value type is not allowed";

/// Fails if a property may not have this name.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/@#".contains(&byte);
    let length = (1..=TWIN_NAME_BYTES_MAX).contains(&name.len());
    if length && name.bytes().all(is_valid) { Ok(()) } else { Err(NAME) }
}

/// Fails if a property of this type may not have this value. Any text may be a value; `double` and
/// `bytes` are known beyond KubeEdge's types (section 16.5).
fn check_value(value: &str, type_name: &str) -> Result<(), &'static str> {
    if value.len() > TWIN_VALUE_BYTES_MAX {
        return Err(VALUE);
    }
    let (is_valid, why) = match type_name {
        "" | "string" | DELETED => (true, TYPE),
        "int" | "integer" => (value.parse::<i64>().is_ok(), "the value is not int or integer"),
        "float" | "double" => (value.parse::<f64>().is_ok(), "the value is not float"),
        "boolean" => (matches!(value, "true" | "false"), "the bool value must be true or false"),
        "bytes" => (base64::decode(value).is_some(), "the value is not base64"),
        _ => (false, TYPE),
    };
    if is_valid { Ok(()) } else { Err(why) }
}

/// A property that exists.
pub(super) fn live(twin: Option<&Twin>) -> Option<&Twin> {
    twin.filter(|twin| !twin.is_deleted())
}

/// What a client or a mapper changes. `None`: it may not be deleted, or does not exist, and nothing
/// happens.
pub(super) fn apply(
    existing: Option<&Twin>,
    update: &PropertyUpdate,
    now_ms: i64,
) -> Result<Option<Applied>, &'static str> {
    let (expected, actual, optional, type_name) = match update {
        PropertyUpdate::Delete => {
            let Some(twin) = live(existing) else { return Ok(None) };
            let deleted = || Applied {
                twin: tombstone(twin, TwinVersion { cloud: 0, edge: 1 }),
                answer: None,
                change: Change::AtOnce,
            };
            return Ok(twin.optional.then(deleted));
        }
        PropertyUpdate::Set { expected, actual, optional, type_name } => {
            (expected, actual, *optional, type_name)
        }
    };
    if type_name.len() > DEVICE_WORD_BYTES_MAX {
        return Err(TYPE);
    }
    let is_new = live(existing).is_none();
    let mut twin = match existing {
        Some(twin) if !is_new => twin.clone(),
        other => begun(other, type_name),
    };
    let mut change = if is_new { Change::Soon } else { Change::Nothing };
    if let Some(value) = expected {
        check_value(value, &twin.type_name)?;
        if set(&mut twin.expected, value, now_ms) {
            change = Change::AtOnce;
        }
    }
    if let Some(value) = actual {
        check_value(value, &twin.type_name)?;
        // Whoever has made a device waits for its first value.
        let is_first = twin.actual.as_ref().is_none_or(|side| side.value.is_none());
        if set(&mut twin.actual, value, now_ms) {
            change = change.max(if is_first { Change::AtOnce } else { Change::Value });
        }
    }
    if optional == Some(false) && twin.optional {
        twin.optional = false;
        change = Change::AtOnce;
    }
    let answer = Twin {
        expected: twin.expected.clone().filter(|_| expected.is_some()),
        actual: twin.actual.clone().filter(|_| actual.is_some()),
        ..twin.clone()
    };
    Ok(Some(Applied { twin, answer: Some(answer), change }))
}

/// A property that does not exist yet, or not any more: then its versions go on.
fn begun(tombstone: Option<&Twin>, type_name: &str) -> Twin {
    let type_name = if type_name.is_empty() { "string" } else { type_name };
    Twin {
        expected: tombstone.and_then(|twin| twin.expected.clone()),
        actual: tombstone.and_then(|twin| twin.actual.clone()),
        optional: true,
        type_name: type_name.into(),
    }
}

/// Returns whether it is another value than before.
fn set(side: &mut Option<TwinSide>, value: &str, now_ms: i64) -> bool {
    let before = side.take().unwrap_or_default();
    let is_same = before.value.as_deref() == Some(value);
    let TwinVersion { cloud, edge } = before.version;
    let edge = if is_same { edge } else { edge.saturating_add(1) };
    let version = TwinVersion { cloud, edge };
    *side = Some(TwinSide { value: Some(value.into()), timestamp_ms: now_ms, version });
    !is_same
}

/// The property without its values; `add`: to the versions of the sides that it has.
fn tombstone(twin: &Twin, add: TwinVersion) -> Twin {
    let side = |side: &TwinSide| TwinSide {
        version: TwinVersion {
            cloud: side.version.cloud.saturating_add(add.cloud),
            edge: side.version.edge.saturating_add(add.edge),
        },
        ..TwinSide::default()
    };
    Twin {
        expected: twin.expected.as_ref().map(side),
        actual: twin.actual.as_ref().map(side),
        optional: twin.optional,
        type_name: DELETED.into(),
    }
}

/// The result of what the cloud gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// It is so already.
    Same,
    Changed(Twin),
    /// The node has a newer one, which the cloud is to get.
    Refused,
}

/// What the cloud changes (section 8.5). A side is taken if neither of its versions is lower.
pub(super) fn sync(existing: Option<&Twin>, given: &GivenTwin, now_ms: i64) -> Synced {
    if &*given.type_name == DELETED {
        let cloud = given.expected.as_ref().and_then(|side| side.version);
        return match live(existing) {
            None => Synced::Same,
            Some(twin) => {
                let mut twin = tombstone(twin, TwinVersion::default());
                if let (Some(side), Some(version)) = (&mut twin.expected, cloud) {
                    side.version = version;
                }
                Synced::Changed(twin)
            }
        };
    }
    let mut twin = live(existing).cloned().unwrap_or_else(|| begun(existing, &given.type_name));
    if live(existing).is_none() {
        twin.optional = given.optional.unwrap_or(true);
    }
    let sides = [(&mut twin.expected, &given.expected), (&mut twin.actual, &given.actual)];
    for (side, given) in sides {
        let Some(GivenSide { value, version }) = given else { continue };
        let local = side.as_ref().map(|side| side.version).unwrap_or_default();
        match version {
            Some(version) if version.cloud >= local.cloud && version.edge >= local.edge => {
                let is_same = side.as_ref().is_some_and(|side| side.text() == &**value);
                let timestamp_ms = side.as_ref().filter(|_| is_same).map(|it| it.timestamp_ms);
                let (value, version) = (Some(value.clone()), *version);
                let timestamp_ms = timestamp_ms.unwrap_or(now_ms);
                *side = Some(TwinSide { value, timestamp_ms, version });
            }
            Some(_) | None => return Synced::Refused,
        }
    }
    if existing == Some(&twin) { Synced::Same } else { Synced::Changed(twin) }
}

/// The object of the cloud desires this value (section 16.1); `cloud`: its version. `None`: it is
/// expected already.
pub(super) fn desire(
    existing: Option<&Twin>,
    value: &str,
    cloud: i64,
    now_ms: i64,
) -> Option<Twin> {
    let mut twin = live(existing).cloned().unwrap_or_else(|| begun(existing, ""));
    let before = twin.expected.take().unwrap_or_default();
    let is_same = live(existing).is_some() && before.value.as_deref() == Some(value);
    let version = TwinVersion { cloud: cloud.max(before.version.cloud), ..before.version };
    twin.expected = Some(TwinSide { value: Some(value.into()), timestamp_ms: now_ms, version });
    (!is_same).then_some(twin)
}

/// How often the node has changed the actual value; 0: there is none.
pub(super) fn actual_version(twin: &Twin) -> i64 {
    twin.actual.as_ref().map_or(0, |side| side.version.edge)
}

/// The twin as it is stored: its actual value has a version that is higher by so many.
pub(super) fn with_reserved(twin: &Twin, count: i64) -> Twin {
    let mut twin = twin.clone();
    if let Some(side) = twin.actual.as_mut().filter(|side| side.value.is_some()) {
        side.version.edge = side.version.edge.saturating_add(count);
    }
    twin
}

/// The properties whose actual values are not as expected.
#[derive(Debug)]
pub(super) struct Delta {
    /// Every property that has an expected value.
    pub twins: Twins,
    /// The expected values of those that differ.
    pub values: Vec<(Box<str>, Box<str>)>,
}

/// `None`: none differs. Texts are compared.
pub(super) fn delta<'a>(twins: impl Iterator<Item = (&'a Box<str>, &'a Twin)>) -> Option<Delta> {
    let expected =
        |twin: &Twin| -> Box<str> { twin.expected.as_ref().map_or("", |side| side.text()).into() };
    let twins: Twins = twins
        .filter(|(_, twin)| !twin.is_deleted() && !expected(twin).is_empty())
        .map(|(name, twin)| (name.clone(), twin.clone()))
        .collect();
    let differs =
        |twin: &Twin| *expected(twin) != *twin.actual.as_ref().map_or("", |side| side.text());
    let values: Vec<_> = twins
        .iter()
        .filter(|(_, twin)| differs(twin))
        .map(|(name, twin)| (name.clone(), expected(twin)))
        .collect();
    (!values.is_empty()).then_some(Delta { twins, values })
}
