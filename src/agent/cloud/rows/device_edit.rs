//! The row of a device that was edited on the node: the `spec` that it has here, and that of the
//! cloud from which it was made.
//!
//! ```text
//!  {"base":"ac1e9f0012345678","uid":"f10e61b2-…","spec":{"properties":[…],…}}
//! ```
//!
//! The uid is not in `metadata`: a deletion of the row must not count as one of the device.
//! `EdgeCore` keeps an edit in memory only, and ignores these rows.

use serde::Deserialize;
#[cfg(feature = "metaserver")]
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{Deep, Map};
#[cfg(feature = "metaserver")]
use crate::limits::DEVICE_EDIT_BYTES_MAX;
use crate::model::device::DeviceObject;

/// The kind of these rows.
pub(in crate::agent::cloud) const DEVICE_EDIT: &str = "deviceedit";

/// The annotation of a device that is shown as it was edited; its value is what was.
const ANNOTATION: &str = "edged.io/local-edit";

/// An edit of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent::cloud) struct DeviceEdit {
    uid: Box<str>,
    /// A digest of the cloud's spec; see [`DeviceObject`].
    base: u64,
    /// JSON.
    spec: Box<str>,
}

#[derive(Deserialize)]
struct Row<'a> {
    base: &'a str,
    uid: Box<str>,
    #[serde(borrow)]
    spec: &'a RawValue,
}

impl DeviceEdit {
    /// The `spec` of a client's text takes the place of the device's. Fails, for the client, if
    /// there is none, or it is too large.
    #[cfg(feature = "metaserver")]
    pub(in crate::agent::cloud) fn new(device: &DeviceObject, text: &str) -> Result<Self, String> {
        let object: Option<Deep<'_>> = serde_json::from_str(text).ok();
        let spec = object.as_ref().and_then(|Deep(object)| object.get("spec"));
        let spec = spec.filter(|spec| spec.get().starts_with('{'));
        let spec = spec.ok_or("got a device without a spec, expected one")?.get();
        if spec.len() > DEVICE_EDIT_BYTES_MAX {
            let got = spec.len();
            return Err(format!(
                "got {got} bytes of spec, expected {DEVICE_EDIT_BYTES_MAX} at most"
            ));
        }
        let view = &device.view;
        Ok(Self { uid: view.uid.clone(), base: view.spec, spec: spec.into() })
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let row: Row<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let base = u64::from_str_radix(row.base, 16).map_err(|error| format!("base: {error}"))?;
        Ok(Self { uid: row.uid, base, spec: row.spec.get().into() })
    }

    /// The text of the row.
    #[cfg(feature = "metaserver")]
    pub(in crate::agent::cloud) fn row(&self) -> String {
        let Self { uid, base, spec } = self;
        let head = json!({"base": format!("{base:016x}"), "uid": uid}).to_string();
        format!("{},\"spec\":{spec}}}", head.trim_end_matches('}'))
    }

    /// Whether the cloud still has the spec that was edited, of the same device: only then the
    /// device is as the edit says. A version says less: it grows with each report of a value.
    pub(in crate::agent::cloud) fn holds_for(&self, device: &DeviceObject) -> bool {
        self.uid == device.view.uid && self.base == device.view.spec
    }

    /// A text of the device, as the cloud has it, with the edit in it.
    pub(in crate::agent::cloud) fn apply(&self, text: &str) -> Option<String> {
        let Deep(mut object) = serde_json::from_str(text).ok()?;
        let part = |map: &Map<'_>, key: &str| map.get(key).map_or("{}", |raw| raw.get()).to_owned();
        let metadata = part(&object, "metadata");
        let Deep(mut metadata) = serde_json::from_str(&metadata).ok()?;
        let annotations = part(&metadata, "annotations");
        let Deep(mut annotations) = serde_json::from_str(&annotations).ok()?;
        let edited = to_raw_value("spec").ok()?;
        annotations.insert(ANNOTATION.into(), &edited);
        let annotations = to_raw_value(&annotations).ok()?;
        metadata.insert("annotations".into(), &annotations);
        let metadata = to_raw_value(&metadata).ok()?;
        object.insert("metadata".into(), &metadata);
        let spec: &RawValue = serde_json::from_str(&self.spec).ok()?;
        object.insert("spec".into(), spec);
        serde_json::to_string(&object).ok()
    }

    /// About how many bytes it takes on the heap, with the object that is made of it.
    pub(super) fn heap_bytes(&self) -> usize {
        2 * self.spec.len() + size_of::<DeviceObject>() + size_of::<Self>()
    }
}

#[cfg(all(test, feature = "metaserver"))]
mod tests {
    use serde_json::Value;

    use super::*;

    fn device(version: &str, spec: &str) -> (String, DeviceObject) {
        let text = format!(
            r#"{{"metadata":{{"name":"d","namespace":"n","uid":"u","resourceVersion":"{version}",
            "annotations":{{"a":"b"}}}},"spec":{spec},"status":{{"s":1}}}}"#
        );
        let object = DeviceObject::read(&text).expect("a device");
        (text, object)
    }

    #[test]
    fn an_edit_holds_as_long_as_the_cloud_has_the_spec_that_was_edited() {
        let (text, cloud) = device("7", r#"{"nodeName":"gw"}"#);
        let wanted = r#"{"spec":{"nodeName":"gw","x":[1,{"y":"}"}]}}"#;
        let edit = DeviceEdit::new(&cloud, wanted).expect("an edit");
        let edit = DeviceEdit::read(&edit.row()).expect("its row");
        assert!(edit.holds_for(&cloud) && edit.holds_for(&device("9", r#"{"nodeName":"gw"}"#).1));
        assert!(!edit.holds_for(&device("9", r#"{"nodeName":"gw","x":1}"#).1));
        let other = text.replace(r#""uid":"u""#, r#""uid":"v""#);
        assert!(!edit.holds_for(&DeviceObject::read(&other).expect("a device")));
        let edited: Value =
            serde_json::from_str(&edit.apply(&text).expect("an object")).expect("JSON");
        assert_eq!(edited["spec"]["x"][1]["y"], "}");
        assert_eq!((&edited["status"]["s"], &edited["metadata"]["uid"]), (&1.into(), &"u".into()));
        let annotations = &edited["metadata"]["annotations"];
        assert_eq!((&annotations["a"], &annotations[ANNOTATION]), (&"b".into(), &"spec".into()));
        assert_eq!(edit.apply("[]"), None);
        assert!(edit.apply("{}").is_some(), "a device without metadata");
    }

    #[test]
    fn a_spec_is_an_object_of_a_bounded_size() {
        let (_, cloud) = device("7", "{}");
        for wrong in ["{}", r#"{"spec":null}"#, r#"{"spec":[]}"#, "[]", ""] {
            let why = DeviceEdit::new(&cloud, wrong).expect_err(wrong);
            assert_eq!(why, "got a device without a spec, expected one");
        }
        let text = |length: usize| format!(r#"{{"spec":{{"a":"{}"}}}}"#, "x".repeat(length - 8));
        assert!(DeviceEdit::new(&cloud, &text(DEVICE_EDIT_BYTES_MAX)).is_ok());
        assert!(DeviceEdit::new(&cloud, &text(DEVICE_EDIT_BYTES_MAX + 1)).is_err());
        for wrong in ["", "{}", r#"{"base":"x","uid":"u","spec":{}}"#] {
            assert!(DeviceEdit::read(wrong).is_err(), "{wrong}");
        }
    }
}
