//! The hardware watchdog: a device that resets the machine unless it is written to in time.
//!
//! It is opened with the first write and counts from then on. A clean stop writes the `V` that
//! stops it (the kernel's «magic close»; a watchdog that is built or loaded with nowayout continues
//! to count), so that an agent which was stopped on purpose does not reset the machine. A crash
//! writes nothing: the restarted agent opens the device again and feeds it, or the machine resets.
#![expect(unsafe_code, reason = "the timeout is set by an ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::log::Limit;
use crate::agent::time::Instant;
use crate::model::watchdog::Settings;

/// The device; open once it was fed.
#[derive(Debug)]
pub struct Watchdog {
    device: PathBuf,
    timeout_s: u32,
    open: Option<File>,
    limit: Limit,
}

impl Watchdog {
    /// Not open yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            device: PathBuf::from(&settings.device),
            timeout_s: settings.timeout_s,
            open: None,
            limit: Limit::default(),
        }
    }

    /// Feeds it. If the device is absent, this is logged, and the next call tries again.
    pub fn feed(&mut self, now: Instant) {
        if let Err(error) = self.write(b'\n') {
            self.open = None;
            if let Some(repeats) = self.limit.pass(now) {
                let device = self.device.display();
                log::error!("{device}: the watchdog cannot be fed: {error}; repeats={repeats}");
            }
        }
    }

    /// Stops it, if it was fed.
    pub fn close(&mut self) {
        if self.open.is_some()
            && let Err(error) = self.write(b'V')
        {
            log::error!("{}: the watchdog cannot be stopped: {error}", self.device.display());
        }
        self.open = None;
    }

    fn write(&mut self, byte: u8) -> io::Result<()> {
        if self.open.is_none() {
            let file = OpenOptions::new().write(true).open(&self.device)?;
            let timeout_s = set_timeout(&file, self.timeout_s);
            log::info!("{}: the watchdog is fed; {timeout_s}", self.device.display());
            self.open = Some(file);
        }
        self.open.as_ref().expect("just opened").write_all(&[byte])
    }
}

/// Sets the timeout and returns the result as text: a device may support only some timeouts.
fn set_timeout(file: &File, seconds: u32) -> String {
    let mut timeout = seconds as libc::c_int;
    // SAFETY: the descriptor is open, and the kernel reads and writes one int.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SET_TIMEOUT, &raw mut timeout) };
    if done == 0 {
        format!("timeout={timeout}s")
    } else {
        format!("the device keeps its own timeout: {}", io::Error::last_os_error())
    }
}

/// `WDIOC_SETTIMEOUT`, `_IOWR('W', 6, int)`: the same number on all targets of edged.
const SET_TIMEOUT: libc::Ioctl = 0xc004_5706_u32 as libc::Ioctl;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_is_fed_and_stopped_by_a_clean_end_only() {
        let device = std::env::temp_dir().join(format!("edged-watchdog-{}", std::process::id()));
        let settings = Settings {
            device: device.to_string_lossy().into_owned(),
            timeout_s: 30,
            runtime_silence_ms: 0,
        };
        let mut watchdog = Watchdog::new(&settings);
        watchdog.feed(Instant(1));
        assert!(!device.exists(), "a device is not made");
        fs::write(&device, "").expect("a file of ours");
        watchdog.close();
        assert_eq!(fs::read(&device).expect("it was made"), b"", "never fed, nothing to stop");
        watchdog.feed(Instant(2));
        watchdog.feed(Instant(3));
        assert_eq!(fs::read(&device).expect("it was made"), b"\n\n");
        watchdog.close();
        assert_eq!(fs::read(&device).expect("it was made"), b"\n\nV");
        fs::remove_file(&device).expect("it was made");
    }
}
