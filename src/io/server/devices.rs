//! `/edged/devices`: devices as the API shows them. Names and states are for every user of this
//! machine; the values of properties only for root, like those in [`super::redact`].

use serde::Serialize;

use super::redact::HIDDEN;
use crate::io::socket::Access;
use crate::model::device::{self, DeviceInfo, PropertyInfo, TwinSide};

/// A device. What is not known is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device<'a> {
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mapper: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    state: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    last_online_time: &'a str,
    /// Why its mapper does not have it as the cloud wants it.
    #[serde(skip_serializing_if = "str::is_empty")]
    trouble: &'a str,
    properties: Vec<Property<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
}

/// A fact about the device that only the cloud changes.
#[derive(Serialize)]
struct Attribute<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Property<'a> {
    name: &'a str,
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    type_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<&'a str>,
    /// RFC 3339, by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_at: Option<String>,
    /// The cloud has confirmed these values.
    confirmed: bool,
}

impl<'a> Device<'a> {
    pub(super) fn of(device: &'a DeviceInfo<'a>, access: Access) -> Self {
        Self {
            metadata: Metadata { name: device.id.name(), namespace: device.id.namespace() },
            description: device.description,
            model: device.model,
            protocol: device.protocol,
            mapper: device.mapper,
            state: &device.state.state,
            last_online_time: &device.state.last_online,
            trouble: &device.trouble,
            properties: device.properties.iter().map(|it| Property::of(it, access)).collect(),
            attributes: device
                .attributes
                .iter()
                .map(|(name, it)| Attribute::of((name, it), access))
                .collect(),
        }
    }
}

/// A value, for those who may see it.
fn shown(value: &str, access: Access) -> &str {
    match access {
        Access::Protected => value,
        Access::Public => HIDDEN,
    }
}

impl<'a> Attribute<'a> {
    fn of((name, attribute): (&'a str, &'a device::Attribute), access: Access) -> Self {
        let value = shown(&attribute.value, access);
        Self { name, type_name: &attribute.type_name, value }
    }
}

impl<'a> Property<'a> {
    fn of(property: &'a PropertyInfo<'a>, access: Access) -> Self {
        let value =
            |side: &'a Option<TwinSide>| Some(shown(side.as_ref()?.value.as_deref()?, access));
        Self {
            name: property.name,
            type_name: &property.twin.type_name,
            unit: property.unit,
            expected: value(&property.twin.expected),
            actual: value(&property.twin.actual),
            reported_at: property.reported_at().map(|at| at.to_string()),
            confirmed: property.is_confirmed,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::device::{DeviceId, DeviceState, Twin};

    #[test]
    fn values_are_for_root_only() {
        let twin = Twin {
            expected: Some(TwinSide { value: Some("20".into()), ..TwinSide::default() }),
            actual: Some(TwinSide {
                value: Some("19".into()),
                timestamp_ms: 1_763_666_951_500,
                ..TwinSide::default()
            }),
            optional: true,
            type_name: "int".into(),
        };
        let (id, state) = (DeviceId::new("default", "dev1"), DeviceState::default());
        let property = PropertyInfo { name: "temp", twin: &twin, unit: "C", is_confirmed: false };
        let attribute =
            device::Attribute { value: "acme".into(), optional: true, type_name: "string".into() };
        let attributes = [("vendor".into(), attribute)].into();
        let device = DeviceInfo {
            id: &id,
            description: "",
            model: "m",
            protocol: "modbus",
            mapper: "",
            state: &state,
            trouble: "why".to_owned(),
            properties: vec![property],
            attributes: &attributes,
        };
        let shown = |access| serde_json::to_value(Device::of(&device, access)).expect("data");
        assert_eq!(
            shown(Access::Protected),
            json!({
                "metadata": {"name": "dev1", "namespace": "default"},
                "model": "m", "protocol": "modbus", "trouble": "why",
                "properties": [{
                    "name": "temp", "type": "int", "unit": "C", "expected": "20", "actual": "19",
                    "reportedAt": "2025-11-20T19:29:11Z", "confirmed": false,
                }],
                "attributes": [{"name": "vendor", "type": "string", "value": "acme"}],
            })
        );
        let public = shown(Access::Public);
        assert_eq!(public["properties"][0]["actual"], "<redacted>");
        assert_eq!(public["attributes"][0]["value"], "<redacted>");
        assert_eq!(public["properties"][0]["expected"], "<redacted>");
        assert_eq!(public["properties"][0]["name"], "temp");
    }
}
