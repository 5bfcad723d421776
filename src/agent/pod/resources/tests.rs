//! The kubelet's values.

use super::*;
use crate::agent::Machine;
use crate::model::cgroup::Cgroups;

fn spec(json: &str) -> PodSpec {
    serde_json::from_str(json).expect(json)
}

fn of_containers(containers: &str) -> PodSpec {
    spec(&format!(r#"{{"containers":{containers}}}"#))
}

fn config() -> Config {
    let machine = Machine { memory_bytes: 1 << 30, ..Machine::default() };
    Config { machine, ..Config::default() }
}

#[test]
fn qos_classes_follow_requests_and_limits() {
    for (containers, class) in [
        (r#"[{"name":"a"}]"#, QosClass::BestEffort),
        (r#"[{"resources":{"requests":{"cpu":"0"}}}]"#, QosClass::BestEffort),
        (r#"[{"resources":{"limits":{"hugepages-2Mi":"2Mi"}}}]"#, QosClass::BestEffort),
        (r#"[{"resources":{"limits":{"cpu":"0","memory":"0"}}}]"#, QosClass::BestEffort),
        (r#"[{"resources":{"limits":{"cpu":"0","memory":"1Mi"}}}]"#, QosClass::Burstable),
        (r#"[{"resources":{"requests":{"cpu":"1m"}}}]"#, QosClass::Burstable),
        (r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"}}}]"#, QosClass::Guaranteed),
        (r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"}}},{}]"#, QosClass::Burstable),
        (
            r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"},"requests":{"cpu":"1"}}}]"#,
            QosClass::Guaranteed,
        ),
        (
            r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"},"requests":{"cpu":"500m"}}}]"#,
            QosClass::Burstable,
        ),
    ] {
        assert_eq!(qos_class(&of_containers(containers)), class, "{containers}");
    }
    let whole = |own: &str| {
        let container = r#"[{"resources":{"requests":{"cpu":"1m"}}}]"#;
        qos_class(&spec(&format!(r#"{{"resources":{own},"containers":{container}}}"#)))
    };
    assert_eq!(whole("{}"), QosClass::Burstable);
    assert_eq!(whole(r#"{"limits":{"cpu":1,"memory":"1Mi"}}"#), QosClass::Guaranteed);
    assert_eq!(whole(r#"{"requests":{"memory":"1Mi"}}"#), QosClass::Burstable);
}

#[test]
fn cgroup_values_are_the_kubelets() {
    let of = |resources: &str, config: &Config| {
        let spec = of_containers(&format!(r#"[{{"resources":{resources}}}]"#));
        container_resources(&spec, &spec.containers[0], config)
    };
    let mut config = config();
    let none = of("{}", &config);
    assert_eq!((none.cpu_shares, none.cpu_quota, none.memory_limit), (2, 0, 0));
    assert_eq!(none.oom_score_adj, 1000);
    let half = r#"{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"500m"}}"#;
    let some = of(half, &config);
    assert_eq!((some.cpu_shares, some.cpu_quota, some.cpu_period), (256, 50_000, 100_000));
    assert_eq!(some.oom_score_adj, 750);
    let tiny = of(r#"{"limits":{"cpu":"1m","memory":"8Mi"}}"#, &config);
    assert_eq!((tiny.cpu_shares, tiny.cpu_quota), (2, 1000));
    assert_eq!((tiny.memory_limit, tiny.oom_score_adj), (8 << 20, -997));
    config.settings.cgroups.cpu_period_us = 10_000;
    let some = of(half, &config);
    assert_eq!((some.cpu_quota, some.cpu_period), (5_000, 10_000));
    config.settings.cgroups.cpu_quota = false;
    let some = of(half, &config);
    assert_eq!((some.cpu_shares, some.cpu_quota, some.cpu_period), (256, 0, 0));
}

#[test]
fn what_the_kernel_bounds_beside_follows_its_interface() {
    let limited =
        of_containers(r#"[{"resources":{"limits":{"memory":"8Mi","hugepages-2Mi":"4Mi"}}}]"#);
    let of = |hierarchy: Hierarchy, swap: bool, single: bool| {
        let mut config = config();
        config.machine.cgroups = Cgroups { hierarchy, swap, huge_pages: vec![2 << 20, 1 << 30] };
        config.settings.cgroups.single_oom_kill = single;
        let resources = container_resources(&limited, &limited.containers[0], &config);
        let pages = vec![("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)];
        assert_eq!(resources.hugepages, pages);
        let files: Vec<_> =
            resources.unified.iter().map(|(file, value)| format!("{file}={value}")).collect();
        (resources.memory_swap_limit, files.join(" "))
    };
    for (hierarchy, swap, single, limit, files) in [
        (Hierarchy::None, true, false, 0, ""),
        (Hierarchy::V1, false, false, 0, ""),
        (Hierarchy::V1, true, false, 8 << 20, ""),
        (Hierarchy::V2, false, false, 0, "memory.oom.group=1"),
        (Hierarchy::V2, true, false, 0, "memory.oom.group=1 memory.swap.max=0"),
        (Hierarchy::V2, true, true, 0, "memory.swap.max=0"),
    ] {
        assert_eq!(of(hierarchy, swap, single), (limit, files.to_owned()), "{hierarchy:?}");
    }
}

#[test]
fn who_goes_first_when_memory_runs_out_follows_what_was_asked_for() {
    let adj = |json: &str, which: &str| {
        let spec = spec(json);
        let container = spec.all_containers().find(|it| &*it.name == which).expect(json);
        oom_score_adj(&spec, container, 1 << 30)
    };
    let asks = |name: &str, mi: u32, more: &str| {
        format!(r#"{{"name":"{name}","resources":{{"requests":{{"memory":"{mi}Mi"}}}}{more}}}"#)
    };
    let sidecar = r#","restartPolicy":"Always""#;
    let pod = |init: &str, mains: &str, more: &str| {
        format!(r#"{{"initContainers":[{init}],"containers":[{mains}]{more}}}"#)
    };
    let (m, n) = (asks("m", 512, ""), asks("n", 256, ""));
    for (json, which, want) in [
        // Never as little as 2 or as much as 1000: those belong to other classes.
        (pod("", &asks("m", 1024, ""), ""), "m", 3),
        (pod("", &asks("m", 0, r#","x":1"#), ""), "m", 1000),
        (pod("", &format!(r#"{m},{{"name":"z"}}"#), ""), "z", 999),
        // A sidecar counts at least as much as the smallest main container.
        (pod(&asks("s", 128, sidecar), &format!("{m},{n}"), ""), "s", 750),
        (pod(&asks("s", 768, sidecar), &format!("{m},{n}"), ""), "s", 250),
        (pod(&asks("i", 128, ""), &format!("{m},{n}"), ""), "i", 875),
        // The pod's own request beyond its containers' is shared: 256 Mi, 128 each.
        (pod("", &format!("{m},{n}"), r#","resources":{"requests":{"memory":"1Gi"}}"#), "n", 625),
        (pod("", &m, r#","priorityClassName":"system-node-critical""#), "m", -997),
        (pod("", &m, r#","priorityClassName":"system-cluster-critical""#), "m", 500),
    ] {
        assert_eq!(adj(&json, which), want, "{json} {which}");
    }
}

#[test]
fn a_pod_needs_its_containers_together_or_its_largest_init_container() {
    let settings = Settings::default();
    let one = spec(
        r#"{"initContainers":[
                {"resources":{"limits":{"cpu":"3","memory":"1Mi"}}},
                {"restartPolicy":"Always","resources":{"limits":{"cpu":"1","memory":"4Mi"}}}],
            "containers":[{"resources":{"limits":{"cpu":"1","memory":"4Mi"}}}]}"#,
    );
    let sum = pod_resources(&one, &settings);
    assert_eq!((sum.cpu_quota, sum.memory_limit), (300_000, 8 << 20));
    let beside = spec(
        r#"{"initContainers":[
                {"restartPolicy":"Always","resources":{"limits":{"cpu":"1","memory":"4Mi"}}},
                {"resources":{"limits":{"cpu":"3","memory":"1Mi"}}}],
            "containers":[{"resources":{"limits":{"cpu":"1","memory":"4Mi"}}}]}"#,
    );
    let sum = pod_resources(&beside, &settings);
    assert_eq!((sum.cpu_quota, sum.memory_limit), (400_000, 8 << 20));
}

#[test]
fn a_pods_own_cgroup_holds_all_of_it() {
    let of = |json: &str, overhead: &str, change: fn(&mut Config)| {
        let mut config = config();
        config.machine.cgroups.huge_pages = vec![2 << 20];
        change(&mut config);
        let overhead = serde_json::from_str(overhead).expect(overhead);
        pod_values(&spec(json), &overhead, &config)
    };
    let no = |_: &mut Config| ();
    let main = |resources: &str| format!(r#"{{"containers":[{{"resources":{resources}}}]}}"#);
    let limits = r#"{"limits":{"cpu":"500m","memory":"8Mi","hugepages-2Mi":"4Mi"}}"#;
    let values = of(&main(limits), "{}", no);
    let want = Values {
        cpu_shares: 512,
        cpu_quota: Some(50_000),
        cpu_period: 100_000,
        memory: Some(8 << 20),
        pids: None,
        huge_pages: vec![("2MB".into(), 4 << 20)],
    };
    assert_eq!(values, want);
    let overhead = r#"{"cpu":"250m","memory":"1Mi"}"#;
    let with = of(&main(limits), overhead, no);
    assert_eq!((with.cpu_shares, with.cpu_quota, with.memory), (768, Some(75_000), Some(9 << 20)));
    let free = of(&main(r#"{"requests":{"cpu":"500m"}}"#), overhead, no);
    assert_eq!((free.cpu_shares, free.cpu_quota, free.memory), (768, None, None));
    let best = of(&main("{}"), "{}", |config| config.settings.cgroups.pids_max = Some(100));
    assert_eq!((best.cpu_shares, best.cpu_quota, best.pids), (2, None, Some(100)));
    // Whatever a sandbox needs, a BestEffort pod has no limit; a limit of 0 is none.
    let best = of(&main("{}"), overhead, no);
    assert_eq!((best.cpu_shares, best.cpu_quota, best.memory), (2, None, None));
    let zero = of(&main(r#"{"limits":{"cpu":"0"},"requests":{"memory":"1Mi"}}"#), "{}", no);
    assert_eq!(zero.cpu_quota, None);
    let half = r#"{"containers":[{"resources":{"limits":{"cpu":"1"}}},{}]}"#;
    assert_eq!(of(half, "{}", no).cpu_quota, None, "one has no limit");
    let odd = of(&main(limits), "{}", |config| config.machine.cgroups.huge_pages.push(0));
    assert_eq!(odd.huge_pages.len(), 1, "pages of no size");
    let unbound = of(&main(limits), "{}", |config| config.settings.cgroups.cpu_quota = false);
    assert_eq!(unbound.cpu_quota, None);
    // One container without a limit leaves the whole pod without one, unless the pod has its own.
    let two = r#"{"containers":[{"resources":{"limits":{"memory":"8Mi"}}},{}]RES}"#;
    assert_eq!(of(&two.replace("RES", ""), "{}", no).memory, None);
    let own = two.replace("RES", r#","resources":{"limits":{"memory":"64Mi"}}"#);
    assert_eq!(of(&own, "{}", no).memory, Some(64 << 20));
}

#[test]
fn burstable_pods_alone_count_for_their_class() {
    for (resources, want) in [
        (r#"{"requests":{"cpu":"250m"}}"#, 250),
        (r#"{"limits":{"cpu":1,"memory":"1Mi"}}"#, 0),
        ("{}", 0),
    ] {
        let spec = of_containers(&format!(r#"[{{"resources":{resources}}}]"#));
        assert_eq!(burstable_milli(&spec), want, "{resources}");
    }
}

#[test]
fn huge_pages_are_those_of_what_runs_together_or_the_pods_own() {
    let pages = |mi: u32, more: &str| {
        format!(
            r#"{{"resources":{{"limits":{{"hugepages-2Mi":"{mi}Mi","memory":"99Gi"}}}}{more}}}"#
        )
    };
    let sidecar = |mi| pages(mi, r#","restartPolicy":"Always""#);
    let mut config = config();
    config.machine.cgroups.huge_pages = vec![2 << 20];
    for (inits, mains, own, want) in [
        (String::new(), format!("{},{}", pages(4, ""), pages(2, "")), "", 6),
        // A plain init container runs beside the sidecars before it, and not beside the others.
        (format!("{},{}", sidecar(2), pages(4, "")), pages(2, ""), "", 6),
        (format!("{},{}", sidecar(2), pages(4, "")), pages(8, ""), "", 10),
        (format!("{},{}", pages(4, ""), sidecar(2)), "{}".to_owned(), "", 4),
        (format!("{},{}", pages(6, ""), pages(4, "")), pages(2, ""), "", 6),
        (format!("{},{}", pages(4, ""), pages(6, "")), pages(2, ""), "", 6),
        (String::new(), pages(2, ""), r#","resources":{"limits":{"hugepages-2Mi":"8Mi"}}"#, 8),
    ] {
        let json = format!(r#"{{"initContainers":[{inits}],"containers":[{mains}]{own}}}"#);
        let values = pod_values(&spec(&json), &BTreeMap::new(), &config);
        assert_eq!(values.huge_pages, [("2MB".into(), want << 20)], "{json}");
    }
}

#[test]
fn huge_pages_beyond_all_quantities_are_summed_up_as_well() {
    let one = r#"{"resources":{"limits":{"hugepages-2Mi":"5Pi"}}}"#;
    let sidecar = one.replacen('{', r#"{"restartPolicy":"Always","#, 1);
    let many = vec![one; 2_000].join(",");
    let mut config = config();
    config.machine.cgroups.huge_pages = vec![2 << 20];
    for (json, want) in [
        (format!(r#"{{"containers":[{one},{one}]}}"#), 10 << 50),
        (format!(r#"{{"initContainers":[{sidecar},{one}],"containers":[{one}]}}"#), 10 << 50),
        (format!(r#"{{"containers":[{many}]}}"#), i64::MAX.unsigned_abs()),
    ] {
        let values = pod_values(&spec(&json), &BTreeMap::new(), &config);
        assert_eq!(values.huge_pages, [("2MB".into(), want)]);
    }
}
