//! Checks what devices need: the broker, and the socket for mappers.

use super::{Row, ok, warn};
use crate::io::diagnostics::DeviceFacts;

/// The rows about devices that are served.
pub(super) fn rows(facts: &DeviceFacts) -> Vec<Row> {
    let mut rows = vec![mappers(facts)];
    rows.extend(broker(facts));
    rows
}

/// A row for each setting that contradicts others.
pub(super) fn contradictions(all: &[String]) -> Vec<Row> {
    let row = |why: &String| warn("mqtt", why.as_str(), "correct modules.eventBus in the file");
    all.iter().map(row).collect()
}

fn mappers(facts: &DeviceFacts) -> Row {
    let socket = &facts.settings.socket;
    let remedy = "run as root on a file system that is mounted for writing, or name another \
                  folder in modules.deviceTwin.dmiSockPath: without the socket no mapper can \
                  register";
    match &facts.folder {
        Ok(room) if room.writable => ok("mappers", format!("{socket} can be made")),
        Ok(room) => {
            let detail = format!("{socket} cannot be made: {} cannot be written to", room.path);
            warn("mappers", detail, remedy)
        }
        Err(why) => warn("mappers", format!("{socket} cannot be made: {why}"), remedy),
    }
}

fn broker(facts: &DeviceFacts) -> Option<Row> {
    let client = &facts.settings.bus.as_ref()?.mqtt.client;
    let server = &client.server;
    Some(match facts.broker.as_ref()? {
        Ok(()) => ok("mqtt", format!("the broker {server} takes connections")),
        Err(why) if client.is_written => {
            let remedy = "start it (Debian: mosquitto), correct \
                          modules.eventBus.mqttServerExternal, or use the broker inside edged \
                          (mqttMode: 0); enable: false switches MQTT off";
            warn("mqtt", format!("the broker {server} cannot be reached: {why}"), remedy)
        }
        Err(_) => ok("mqtt", format!("no broker on {server}, KubeEdge's default; none is named")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Verdict;
    use crate::io::diagnostics::Room;
    use crate::model::error::System;
    use crate::model::settings::DeviceSettings;

    fn facts() -> DeviceFacts {
        let path = "/etc/kubeedge".to_owned();
        DeviceFacts {
            settings: DeviceSettings::default(),
            broker: Some(Ok(())),
            folder: Ok(Room { path, writable: true, ..Room::default() }),
        }
    }

    fn lines(facts: &DeviceFacts) -> Vec<String> {
        let line = |row: Row| format!("{} {}: {}", row.verdict.word(), row.name, row.detail);
        rows(facts).into_iter().map(line).collect()
    }

    #[test]
    fn the_socket_and_the_broker_have_a_row_each() {
        let well = lines(&facts());
        assert_eq!(
            well,
            [
                "ok mappers: /etc/kubeedge/dmi.sock can be made",
                "ok mqtt: the broker tcp://127.0.0.1:1883 takes connections",
            ]
        );
        let mut read_only = facts();
        read_only.folder = Ok(Room { path: "/etc".to_owned(), ..Room::default() });
        let line = "warn mappers: /etc/kubeedge/dmi.sock cannot be made: /etc cannot be written to";
        assert_eq!(lines(&read_only)[0], line);
        let mut off = facts();
        (off.settings.bus, off.broker) = (None, None);
        assert_eq!(lines(&off).len(), 1, "MQTT is off");
    }

    #[test]
    fn a_broker_that_somebody_named_is_missed() {
        let mut facts = facts();
        facts.broker = Some(Err(System::new("refused")));
        assert!(lines(&facts)[1].starts_with("ok mqtt: no broker on tcp://127.0.0.1:1883"));
        let bus = facts.settings.bus.as_mut().expect("it is on");
        bus.mqtt.client.is_written = true;
        let line = "warn mqtt: the broker tcp://127.0.0.1:1883 cannot be reached: refused";
        assert_eq!(lines(&facts)[1], line);
    }

    #[test]
    fn each_contradiction_is_a_warning() {
        let rows = contradictions(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.verdict == Verdict::Warn && row.remedy.is_some()));
    }
}
