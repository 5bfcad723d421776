//! Keys for the hardware watchdog; edged's own: KubeEdge has no such settings.

use super::Config;
use super::table::{Row, Rule, Table, absolute, duration, text, whole};
use crate::model::error::Input;
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("watchdog", Map(&WATCHDOG))];

const WATCHDOG: Table = Table {
    rules: &[
        ("device", Set(device)),
        ("runtimeSilence", Set(silence)),
        ("timeoutSeconds", Set(timeout)),
    ],
    more: &[],
    unused: "",
};

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[&WATCHDOG];

fn device(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let path = if given.is_empty() { Some(String::new()) } else { absolute(given) };
    config.watchdog.device =
        path.ok_or_else(|| Input::quoted(given, "an absolute path, or nothing"))?;
    Ok(())
}

/// Devices differ in their longest timeout; most support five minutes. Below ten seconds a disk
/// that stalls resets the machine.
fn timeout(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.watchdog.timeout_s = whole(value, 10, 3_600)? as u32;
    Ok(())
}

fn silence(config: &mut Config, value: &Value) -> Result<(), Input> {
    let ms = duration(value)?;
    if ms > 0 && ms < SILENCE_MS_MIN {
        let given = text(value)?;
        return Err(Input::new(given, format!("0s, or {}s at least", SILENCE_MS_MIN / 1_000)));
    }
    config.watchdog.runtime_silence_ms = ms;
    Ok(())
}

/// A runtime may need some minutes to start on a slow disk, and a machine that resets in that time
/// never comes up.
const SILENCE_MS_MIN: u64 = 300_000;

#[cfg(test)]
mod tests {
    use crate::config::tests::edged_section;
    use crate::model::error::Refusal;
    use crate::model::watchdog::Settings;

    fn read(line: &str) -> Result<Settings, Refusal> {
        edged_section(&format!("watchdog: {{{line}}}")).map(|config| config.watchdog)
    }

    #[test]
    fn the_settings_are_taken() {
        let want = Settings {
            device: "/dev/watchdog1".to_owned(),
            timeout_s: 30,
            runtime_silence_ms: 600_000,
        };
        let line = "device: /dev/watchdog1, timeoutSeconds: 30, runtimeSilence: 10m";
        assert_eq!(read(line), Ok(want));
        assert_eq!(read("device: ''"), Ok(Settings::default()));
    }

    #[test]
    fn wrong_values_are_named() {
        for (line, want) in [
            ("device: watchdog", "got \"watchdog\", expected an absolute path"),
            ("timeoutSeconds: 5", "got 5, expected a whole number from 10 to 3600"),
            ("runtimeSilence: 30s", "got 30s, expected 0s, or 300s at least"),
            ("devices: /dev/watchdog", "got an unknown key"),
        ] {
            let got = read(line);
            assert!(
                got.as_ref().is_err_and(|why| why.to_string().contains(want)),
                "{line}: {got:?}"
            );
        }
    }
}
