//! Draws the settings of the node's agent.

use edged::agent::{self, Config};
use edged::model::housekeeping::Settings;
use edged::model::watchdog;

use crate::cgroups;
use crate::chance::Chance;
use crate::faults::Class;
use crate::world::{NODE, POD_LOGS};

/// The kubelet's default of `maxPods`, and more than most users need here.
const ROOM_FOR_MOST: usize = 110;

/// The settings of this seed's node.
pub fn draw(class: Class, seed: u64, chance: &mut Chance) -> Config {
    let capped = class == Class::Storm || chance.percent(20);
    let backoff_max_ms = if capped { *chance.pick(&[5_000, 15_000, 60_000]) } else { 300_000 };
    // In a crowd of which many start and end every few seconds there is never a moment in which
    // everything is settled.
    let backoff_min_ms = if class == Class::Crowd { 60_000 } else { 0 };
    Config {
        node_name: NODE.to_owned(),
        node_labels: std::collections::BTreeMap::new(),
        root: "/var/lib/kubelet".to_owned(),
        pod_logs: POD_LOGS.to_owned(),
        settings: cgroups::settings(seed),
        machine: agent::Machine {
            memory_bytes: 1 << 30,
            cpu_milli: 4_000,
            cgroups: cgroups::draw(seed),
            ..agent::Machine::default()
        },
        pods_max: room(class, seed),
        crash_backoff_max_ms: backoff_max_ms.max(backoff_min_ms),
        housekeeping: Settings { eviction: crate::short::policy(seed), ..housekeeping(chance) },
        pulls: agent::image::Settings {
            parallel_max: *chance.pick(&[1, 1, 2, 5, 16]),
            per_second: *chance.pick(&[0, 5, 5, 5]),
            burst: *chance.pick(&[1, 10, 10]),
        },
        watchdog: watchdog(seed),
        #[cfg(feature = "cloud")]
        cloud: None,
        #[cfg(feature = "metaserver")]
        metaserver: None,
        #[cfg(feature = "servicebus")]
        service_bus: None,
        #[cfg(feature = "services")]
        services: None,
        #[cfg(feature = "devices")]
        devices: None,
        #[cfg(feature = "node-jobs")]
        node_jobs: false,
        #[cfg(feature = "node-jobs")]
        upgrade_repositories: Vec::new(),
        #[cfg(all(feature = "cloud", feature = "streams"))]
        tunnel: None,
    }
}

/// Some nodes only: the watchdog's wakes would hide that a part has forgotten its own.
fn watchdog(seed: u64) -> watchdog::Settings {
    let device = if seed.is_multiple_of(4) { "/dev/watchdog" } else { "" };
    watchdog::Settings { device: device.to_owned(), ..watchdog::Settings::default() }
}

/// Most nodes have more room than pods, as in the field.
fn room(class: Class, seed: u64) -> usize {
    // A separate random sequence, so that other worlds do not change.
    let mut chance = Chance::new(seed ^ 0x6d61_7850_6f64_7321);
    match class {
        _ if !chance.percent(10) => ROOM_FOR_MOST,
        Class::Crowd => chance.between(20, 80) as usize,
        Class::Usual | Class::Calm | Class::Storm | Class::Site => chance.between(1, 8) as usize,
    }
}

/// Mostly the defaults.
fn housekeeping(chance: &mut Chance) -> Settings {
    let mut settings = Settings::default();
    if chance.percent(30) {
        settings.images.high_percent = chance.between(50, 90);
        settings.images.low_percent = chance.between(0, settings.images.high_percent);
        settings.images.age_min_ms = chance.spread(300_000);
    }
    if chance.percent(30) {
        let bound = |chance: &mut Chance, most| Some(chance.below(most) as usize);
        settings.containers.per_container_max = bound(chance, 4);
        settings.containers.all_max = if chance.percent(50) { bound(chance, 30) } else { None };
        settings.containers.age_min_ms =
            if chance.percent(50) { chance.spread(600_000) } else { 0 };
    }
    settings
}
