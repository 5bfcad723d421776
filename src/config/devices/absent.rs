//! The keys of devices, which are not built in (feature `devices`): they are known, and reported if
//! a part is on.

use super::table::{Row, Rule, Table, truth};
use crate::config::Config;
use crate::model::error::Input;

use Rule::{Map, Module, Take as Set};

/// Below `modules`, each with KubeEdge's default for `enable`.
pub(super) const MODULES: &[Row] =
    &[("deviceTwin", Module(&DEVICE_TWIN, true)), ("eventBus", Module(&EVENT_BUS, true))];

const ENABLE: Row = ("enable", Set(|_, value| truth(value).map(drop)));

const DEVICE_TWIN: Table = Table { rules: &[ENABLE], more: &[], unused: "dmiSockPath" };
const EVENT_BUS: Table = Table {
    rules: &[ENABLE, ("eventBusTLS", Map(&EVENT_BUS_TLS))],
    more: &[],
    unused: "mqttMode mqttPassword mqttPubClientID mqttQOS mqttRetain mqttServerExternal \
        mqttServerInternal mqttSessionQueueSize mqttSocketInternal mqttSubClientID mqttUsername",
};
const EVENT_BUS_TLS: Table = Table {
    rules: &[ENABLE],
    more: &[],
    unused: "tlsMqttCAFile tlsMqttCertFile tlsMqttPrivateKeyFile",
};

/// Without settings there is no error.
#[expect(clippy::unnecessary_wraps, reason = "as where there may be one")]
pub(super) fn check(_: &Config) -> Result<(), Input> {
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices(());
