//! Keys of edgecore.yaml for garbage collection, logs and eviction.

use std::collections::BTreeMap;

use super::Config;
use super::table::{Row, Rule, duration, text, whole};
use crate::model::error::Input;
use crate::model::housekeeping::{Signal, Threshold};
use crate::model::quantity::Quantity;
use crate::wire::tree::Value;

use Rule::Take as Set;

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[
    (
        "maxContainerCount",
        Set(|config, value| {
            config.housekeeping.containers.all_max = count(value)?;
            Ok(())
        }),
    ),
    (
        "maxPerPodContainerCount",
        Set(|config, value| {
            config.housekeeping.containers.per_container_max = count(value)?;
            Ok(())
        }),
    ),
    (
        "minimumGCAge",
        Set(|config, value| {
            config.housekeeping.containers.age_min_ms = duration(value)?;
            Ok(())
        }),
    ),
    (
        "podSandboxImage",
        Set(|config, value| {
            config.housekeeping.images.sandbox_image = text(value)?.into();
            Ok(())
        }),
    ),
];

/// Below `tailoredKubeletConfig`.
pub(super) const TAILORED: &[Row] = &[
    (
        "containerLogMaxFiles",
        Set(|config, value| {
            config.housekeeping.logs.files_max = whole(value, 2, 1_000)? as usize;
            Ok(())
        }),
    ),
    (
        "containerLogMaxSize",
        Set(|config, value| {
            let size = quantity(text(value)?)?;
            config.housekeeping.logs.size_max = u64::try_from(size).ok();
            Ok(())
        }),
    ),
    (
        "containerLogMonitorInterval",
        Set(|config, value| {
            config.housekeeping.logs.period_ms = period(value, 3_000)?;
            Ok(())
        }),
    ),
    (
        "evictionHard",
        Set(|config, value| {
            config.housekeeping.eviction.hard = thresholds(value)?;
            Ok(())
        }),
    ),
    (
        "evictionMaxPodGracePeriod",
        Set(|config, value| {
            config.housekeeping.eviction.grace_max_s = whole(value, 0, i64::from(i32::MAX))?;
            Ok(())
        }),
    ),
    (
        "evictionMinimumReclaim",
        Set(|config, value| {
            config.housekeeping.eviction.reclaim_min = thresholds(value)?;
            Ok(())
        }),
    ),
    (
        "evictionPressureTransitionPeriod",
        Set(|config, value| {
            config.housekeeping.eviction.transition_ms = duration(value)?;
            Ok(())
        }),
    ),
    (
        "evictionSoft",
        Set(|config, value| {
            let soft = &mut config.housekeeping.eviction.soft;
            *soft = thresholds(value)?
                .into_iter()
                .map(|(signal, threshold)| {
                    let grace_ms = soft.get(&signal).map_or(NO_GRACE, |(_, grace_ms)| *grace_ms);
                    (signal, (threshold, grace_ms))
                })
                .collect();
            Ok(())
        }),
    ),
    ("evictionSoftGracePeriod", Set(take_soft_grace)),
    (
        "imageGCHighThresholdPercent",
        Set(|config, value| {
            config.housekeeping.images.high_percent = percent(value)?;
            Ok(())
        }),
    ),
    (
        "imageGCLowThresholdPercent",
        Set(|config, value| {
            config.housekeeping.images.low_percent = percent(value)?;
            Ok(())
        }),
    ),
    (
        "imageGCPeriod",
        Set(|config, value| {
            config.housekeeping.images.period_ms = period(value, 1_000)?;
            Ok(())
        }),
    ),
    (
        "imageMaximumGCAge",
        Set(|config, value| {
            config.housekeeping.images.age_max_ms = duration(value)?;
            Ok(())
        }),
    ),
    (
        "imageMinimumGCAge",
        Set(|config, value| {
            config.housekeeping.images.age_min_ms = duration(value)?;
            Ok(())
        }),
    ),
];

/// A soft threshold without a grace period so far.
const NO_GRACE: u64 = u64::MAX;

/// Checks several keys together; the error is about the file as a whole.
pub(super) fn check(config: &Config) -> Result<(), Input> {
    let images = &config.housekeeping.images;
    if images.low_percent > images.high_percent {
        let expected = format!("at most imageGCHighThresholdPercent, {}", images.high_percent);
        let wrong = Input::new(images.low_percent, expected);
        return Err(wrong.at("imageGCLowThresholdPercent"));
    }
    let soft = &config.housekeeping.eviction.soft;
    let lacking = soft.iter().find(|(_, (_, grace_ms))| *grace_ms == NO_GRACE);
    match lacking {
        Some((signal, _)) => {
            let got = format_args!("{} without a grace period", name_of(*signal));
            Err(Input::new(got, "one in evictionSoftGracePeriod").at("evictionSoft"))
        }
        None => Ok(()),
    }
}

/// The keys of a map may come in any order: this may be read before the thresholds.
fn take_soft_grace(config: &mut Config, value: &Value) -> Result<(), Input> {
    for (signal, value) in signals(value)? {
        let grace_ms = duration(value)?;
        // An amount that no machine can lack, until the threshold is read.
        let unset = (Threshold::Amount(0), grace_ms);
        config.housekeeping.eviction.soft.entry(signal).or_insert(unset).1 = grace_ms;
    }
    Ok(())
}

fn thresholds(value: &Value) -> Result<BTreeMap<Signal, Threshold>, Input> {
    let mut taken = BTreeMap::new();
    for (signal, value) in signals(value)? {
        let threshold =
            Threshold::parse(text(value)?).map_err(|wrong| wrong.at(name_of(signal)))?;
        taken.extend(threshold.map(|threshold| (signal, threshold)));
    }
    Ok(taken)
}

/// The entries of a map by signal. Signals that the kubelet derives itself are skipped.
fn signals(value: &Value) -> Result<Vec<(Signal, &Value)>, Input> {
    let Value::Map(map) = value else { return Err(Input::new(value, "a map")) };
    let mut taken = Vec::new();
    for (key, entry) in map {
        let known = Signal::ALL.iter().find(|(_, name)| *name == &**key);
        match known {
            Some((signal, _)) => taken.push((*signal, &entry.node.value)),
            None if DERIVED.contains(&&**key) => {}
            None => {
                let names: Vec<&str> = Signal::ALL.iter().map(|(_, name)| *name).collect();
                return Err(Input::quoted(key, format!("one of {}", names.join(", "))));
            }
        }
    }
    Ok(taken)
}

const DERIVED: [&str; 2] = ["containerfs.available", "containerfs.inodesFree"];

fn name_of(signal: Signal) -> &'static str {
    let found = Signal::ALL.iter().find(|(known, _)| *known == signal);
    found.expect("all of them are there").1
}

/// Negative: no limit.
fn count(value: &Value) -> Result<Option<usize>, Input> {
    let count = whole(value, i64::from(i32::MIN), i64::from(i32::MAX))?;
    Ok(usize::try_from(count).ok())
}

fn percent(value: &Value) -> Result<u64, Input> {
    whole(value, 0, 100).map(i64::unsigned_abs)
}

fn period(value: &Value, least_ms: u64) -> Result<u64, Input> {
    let ms = duration(value)?;
    if ms < least_ms {
        return Err(Input::new(
            format_args!("{ms} ms"),
            format!("at least {} s", least_ms / 1_000),
        ));
    }
    Ok(ms)
}

fn quantity(given: &str) -> Result<i64, Input> {
    given.parse::<Quantity>().map(|quantity| quantity.whole())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::edged_section;
    use crate::model::error::Refusal;
    use crate::model::housekeeping::{
        ContainerPolicy, EvictionPolicy, ImagePolicy, LogPolicy, Settings,
    };

    fn read(edged: &str, tailored: &str) -> Result<Config, Refusal> {
        edged_section(&format!("{edged}, tailoredKubeletConfig: {{{tailored}}}"))
    }

    #[test]
    fn every_setting_is_taken() {
        let edged = "maxContainerCount: 100, maxPerPodContainerCount: -1, minimumGCAge: 1m, \
                     podSandboxImage: p:1";
        let tailored = "containerLogMaxFiles: 3, containerLogMaxSize: 1Mi, \
             containerLogMonitorInterval: 5s, evictionHard: {memory.available: 5%, \
             nodefs.available: 1Gi, imagefs.available: 0%, containerfs.available: 1%, \
             allocatableMemory.available: 10%}, \
             evictionMaxPodGracePeriod: 60, evictionMinimumReclaim: {nodefs.available: 100Mi}, \
             evictionPressureTransitionPeriod: 1m, evictionSoftGracePeriod: {pid.available: 2m}, \
             evictionSoft: {pid.available: '500'}, imageGCHighThresholdPercent: 70, \
             imageGCLowThresholdPercent: 60, imageGCPeriod: 1m, imageMaximumGCAge: 24h, \
             imageMinimumGCAge: 10s";
        let want = Settings {
            containers: ContainerPolicy {
                age_min_ms: 60_000,
                per_container_max: None,
                all_max: Some(100),
            },
            images: ImagePolicy {
                high_percent: 70,
                low_percent: 60,
                age_min_ms: 10_000,
                age_max_ms: 86_400_000,
                period_ms: 60_000,
                sandbox_image: "p:1".into(),
            },
            logs: LogPolicy { size_max: Some(1 << 20), files_max: 3, period_ms: 5_000 },
            eviction: EvictionPolicy {
                hard: [
                    (Signal::Memory, Threshold::Millionths(50_000)),
                    (Signal::PodsMemory, Threshold::Millionths(100_000)),
                    (Signal::NodeFs, Threshold::Amount(1 << 30)),
                ]
                .into(),
                soft: [(Signal::Pids, (Threshold::Amount(500), 120_000))].into(),
                reclaim_min: [(Signal::NodeFs, Threshold::Amount(100 << 20))].into(),
                transition_ms: 60_000,
                grace_max_s: 60,
            },
            ..Settings::default()
        };
        let config = read(edged, tailored).expect("all of it is right");
        assert_eq!(config.housekeeping, want);
        let config = read("enable: true", "containerLogMaxSize: '-1'").expect("it is right");
        assert_eq!(config.housekeeping.logs.size_max, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (tailored, want) in [
            ("evictionHard: {mem: 5%}", "got \"mem\", expected one of memory.available, allo"),
            ("evictionHard: {memory.available: lots}", "memory.available: got \"lots\", expected"),
            ("evictionHard: 5", "evictionHard: got 5, expected a map"),
            ("evictionSoft: {memory.available: 5%}", "got memory.available without a grace period"),
            (
                "imageGCHighThresholdPercent: 60",
                "imageGCLowThresholdPercent: got 80, expected at most imageGCHighThresholdPercent",
            ),
            ("imageGCHighThresholdPercent: 101", "got 101, expected a whole number from 0 to 100"),
            ("imageGCPeriod: 1ms", "imageGCPeriod: got 1 ms, expected at least 1 s"),
            ("containerLogMaxFiles: 1", "got 1, expected a whole number from 2 to 1000"),
            ("containerLogMaxSize: big", "containerLogMaxSize: got \"big\", expected a quantity"),
            ("imageMinimumGCAge: 10", "imageMinimumGCAge: got 10, expected text"),
        ] {
            let why = read("enable: true", tailored).expect_err(tailored).to_string();
            assert!(why.contains(want), "{why}\n{want}");
        }
    }
}
