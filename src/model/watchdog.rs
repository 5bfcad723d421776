//! The settings of the machine's watchdog.

/// The settings; edged's own keys, `modules.edged.watchdog`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `device`: absolute path of the device; empty: no watchdog is opened.
    pub device: String,
    /// `timeoutSeconds`: it resets the machine when it was not fed for this long.
    pub timeout_s: u32,
    /// `runtimeSilence`: it is not fed any more once the runtime has been unreachable for this
    /// long, milliseconds; 0: the runtime is ignored.
    pub runtime_silence_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { device: String::new(), timeout_s: 60, runtime_silence_ms: 0 }
    }
}
