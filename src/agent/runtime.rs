//! The runtime's health: whether it is connected and ready, its version, and whether it has a
//! network.
//!
//! Requests `Version` and `RuntimeConfig` once per connection and `Status` every 5 s; more often
//! while something waits for it, and as rarely as relists while there is no pod. Nothing else is
//! requested from a runtime that is not ready (spec section 0.1). After a reconnect the runtime is
//! listed before anything else is done.

use super::calls::{Calls, Owner};
use super::event::{CallId, Out};
use super::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, CgroupDriver, Code, Reply, Request, RuntimeStatus, Version};

/// The state of the runtime.
#[derive(Debug)]
pub struct Runtime {
    link: Link,
    version: Option<Version>,
    /// Used if the runtime does not report its own.
    default_driver: CgroupDriver,
    cgroup_driver: Reported<CgroupDriver>,
    status: Option<(Instant, RuntimeStatus)>,
    call: Option<CallId>,
    request_at: Instant,
    /// The error of the last request.
    trouble: Option<String>,
}

/// The answer to a request that not every runtime supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported<T> {
    NotRequested,
    Unsupported,
    Value(T),
}

#[derive(Debug, PartialEq, Eq)]
enum Link {
    Down { cause: String },
    Up,
}

impl Runtime {
    /// Nothing known. `default_driver` is for runtimes that do not report theirs.
    pub fn new(now: Now, default_driver: CgroupDriver) -> Self {
        Self {
            link: Link::Down { cause: "not connected yet".to_owned() },
            version: None,
            default_driver,
            cgroup_driver: Reported::NotRequested,
            status: None,
            call: None,
            request_at: now.boot,
            trouble: None,
        }
    }

    /// The connection is open. The runtime behind it may be another than before.
    pub fn up(&mut self, now: Now) {
        self.link = Link::Up;
        self.version = None;
        self.cgroup_driver = Reported::NotRequested;
        self.status = None;
        self.trouble = None;
        self.request_at = now.boot;
    }

    /// The connection is closed. Its calls have been answered before.
    pub fn down(&mut self, cause: String) {
        assert!(self.call.is_none(), "the link went down with a call unanswered");
        self.link = Link::Down { cause };
        self.status = None;
    }

    /// Takes the answer to a call of its own; `idle`: there is no pod.
    pub fn answer(&mut self, now: Now, call: CallId, result: Result<Reply, CallError>, idle: bool) {
        assert_eq!(self.call, Some(call), "answer to a call that is not the runtime's");
        self.call = None;
        let wait_ms = match result {
            Ok(Reply::Version(version)) => {
                self.version = Some(version);
                0
            }
            Ok(Reply::CgroupDriver(driver)) => {
                self.cgroup_driver = driver.map_or(Reported::Unsupported, Reported::Value);
                0
            }
            Ok(Reply::Status(status)) => {
                let ready = status.runtime.is_ok() && status.network.is_ok();
                self.status = Some((now.boot, status));
                self.trouble = None;
                match (ready, idle) {
                    (true, true) => limits::RELIST_IDLE_MS,
                    (true, false) => limits::STATUS_MS,
                    (false, _) => limits::STATUS_WAITING_MS,
                }
            }
            Ok(other) => panic!("Version, RuntimeConfig and Status cannot answer {}", other.kind()),
            // Older runtimes do not support this request.
            Err(CallError::Refused { code: Code::Unimplemented, .. }) if self.needs_driver() => {
                self.cgroup_driver = Reported::Unsupported;
                0
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                limits::STATUS_WAITING_MS
            }
        };
        self.request_at = now.boot.plus_ms(wait_ms);
    }

    /// Requests what is due.
    pub fn step(&mut self, now: Now, calls: &mut Calls, out: &mut Out) {
        if self.link == Link::Up && self.call.is_none() && self.request_at <= now.boot {
            let request = if self.version.is_none() {
                Request::Version
            } else if self.needs_driver() {
                Request::RuntimeConfig
            } else {
                Request::Status
            };
            self.call = Some(calls.begin(now, Owner::Runtime, request, out));
        }
    }

    /// Whether the driver is requested next.
    fn needs_driver(&self) -> bool {
        self.version.is_some() && self.cgroup_driver == Reported::NotRequested
    }

    /// How cgroups are named.
    pub fn driver(&self) -> CgroupDriver {
        match self.cgroup_driver {
            Reported::Value(driver) => driver,
            Reported::NotRequested | Reported::Unsupported => self.default_driver,
        }
    }

    /// The last reported status.
    pub fn status(&self) -> Option<&RuntimeStatus> {
        self.status.as_ref().map(|(_, status)| status)
    }

    /// When something is due.
    pub fn wake_at(&self) -> Option<Instant> {
        (self.link == Link::Up && self.call.is_none()).then_some(self.request_at)
    }

    /// Why the runtime cannot be used now; `None`: it is ready.
    pub fn trouble(&self, now: Now) -> Option<String> {
        if let Link::Down { cause } = &self.link {
            return Some(cause.clone());
        }
        let requested = |what| match &self.trouble {
            Some(trouble) => format!("{what}: {trouble}"),
            None => format!("{what} yet"),
        };
        let Some((at, status)) = &self.status else {
            return Some(requested("the runtime has not reported its status"));
        };
        if now.boot.since_ms(*at) > limits::STATUS_VALID_MS {
            return Some(requested("the runtime has not reported its status for 30 s"));
        }
        status.runtime.clone().err()
    }

    /// Whether a request is pending and no trouble is known: nothing is logged then.
    pub fn is_settling(&self) -> bool {
        self.link == Link::Up && self.status.is_none() && self.trouble.is_none()
    }

    /// Whether it is connected and ready: [`Runtime::trouble`] without the text.
    pub fn is_ready(&self, now: Now) -> bool {
        self.link == Link::Up
            && self.status.as_ref().is_some_and(|(at, status)| {
                status.runtime.is_ok() && now.boot.since_ms(*at) <= limits::STATUS_VALID_MS
            })
    }

    /// Why pods on the pod network cannot start; `None`: they can, or nothing is known.
    pub fn network_trouble(&self) -> Option<&str> {
        self.status.as_ref()?.1.network.as_ref().err().map(String::as_str)
    }

    /// The runtime's version, once reported.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::calls::Outcome;
    use crate::agent::event::Action;
    use crate::limits::{RELIST_IDLE_MS, STATUS_MS, STATUS_WAITING_MS};
    use crate::model::cri::Lost;

    /// The request of this step, if there is one.
    fn requested(
        runtime: &mut Runtime,
        now: Instant,
        calls: &mut Calls,
    ) -> Option<(CallId, Request)> {
        let mut out = Out::default();
        runtime.step(Now { boot: now, wall: None }, calls, &mut out);
        out.actions.pop().map(|action| match action {
            Action::Cri { call, request, .. } => (call, request),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_status_interval_depends_on_the_state() {
        let trouble = || Err("starting".to_owned());
        for (status, idle, wait_ms) in [
            (Some(RuntimeStatus::of(Ok(()), Ok(()))), false, STATUS_MS),
            (Some(RuntimeStatus::of(Ok(()), Ok(()))), true, RELIST_IDLE_MS),
            (Some(RuntimeStatus::of(trouble(), Ok(()))), false, STATUS_WAITING_MS),
            (Some(RuntimeStatus::of(Ok(()), trouble())), true, STATUS_WAITING_MS),
            (None, false, STATUS_WAITING_MS),
        ] {
            let boot = Instant(1_000);
            let now = Now { boot, wall: None };
            let mut calls = Calls::new(1);
            let mut runtime = Runtime::new(now, CgroupDriver::Cgroupfs);
            runtime.up(now);
            for _ in 0..3 {
                let (call, request) = requested(&mut runtime, boot, &mut calls).expect("it is up");
                let version =
                    Version { runtime_name: "r".to_owned(), runtime_version: "1".to_owned() };
                let answer = match request {
                    Request::Version => Ok(Reply::Version(version)),
                    Request::RuntimeConfig => Ok(Reply::CgroupDriver(None)),
                    _ => status.clone().map(Reply::Status).ok_or(CallError::Lost(Lost::Deadline)),
                };
                calls.end(now, call, Outcome::Answered).expect("it is under way");
                runtime.answer(now, call, answer, idle);
            }
            assert_eq!(runtime.wake_at(), Some(boot.plus_ms(wait_ms)), "{status:?} {idle}");
            let early = requested(&mut runtime, boot.plus_ms(wait_ms - 1), &mut calls);
            assert_eq!(early, None, "{status:?} {idle}");
            let (_, request) = requested(&mut runtime, boot.plus_ms(wait_ms), &mut calls)
                .expect("it is asked again");
            assert_eq!(request, Request::Status, "{status:?} {idle}");
        }
    }
}
